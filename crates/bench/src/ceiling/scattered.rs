//! The rate of a bare program that sends old states from many places of the page cache.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::{GIB, UNPACED, other_end, pair_with, preallocated};
use crate::stopwatch::Stopwatch;

/// Bytes read before they are sent: what stays in the cache of a core.
const STEP_BYTES: usize = 128 << 10;
/// Bytes between two pieces: about what the header of a record takes.
const BETWEEN: u64 = 100;
/// Reads of each state.
const READS: usize = 3;
/// The first one of a state.
pub(crate) const FIRST: usize = 0;
/// The same state again.
pub(crate) const SECOND: usize = 1;
/// As many bytes in one place.
pub(crate) const PLAIN: usize = 2;
/// The slowest and the fastest are reported without the slowest and fastest of a hundred, which are the machine's.
const EDGE: f64 = 0.01;

/// How long states took that were read one after the other, each first, again, and then as many bytes in one place.
#[derive(Default)]
pub(crate) struct Scattered {
    /// Bytes of each.
    pub(crate) bytes: u64,
    /// Seconds of the three reads of each state, in the order of the states.
    pub(crate) seconds: Vec<[f64; READS]>,
}

impl Scattered {
    /// GiB/s of the reads of a kind, the median of all states.
    pub(crate) fn speed(&self, read: usize) -> f64 {
        speed(self.bytes, self.sorted(|seconds| seconds[read]).1)
    }

    /// How fast a read of a kind is beside one of another: of the reads of each state, which share what the machine did
    /// just then, the median of all states.
    pub(crate) fn beside(&self, read: usize, other: usize) -> f64 {
        self.sorted(|seconds| seconds[other] / seconds[read]).1
    }

    /// GiB/s of the slowest and of the fastest state by the better of its two reads, without the slowest and fastest of
    /// a hundred.
    pub(crate) fn extremes(&self) -> (f64, f64) {
        let (least, _, most) = self.sorted(|seconds| seconds[FIRST].min(seconds[SECOND]));
        (speed(self.bytes, most), speed(self.bytes, least))
    }

    /// Of each state one figure: the least without the smallest of a hundred, the median, the most without the largest
    /// of a hundred.
    fn sorted(&self, figure: impl Fn(&[f64; READS]) -> f64) -> (f64, f64, f64) {
        let mut figures: Vec<f64> = self.seconds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        let at = |share: f64| figures[((figures.len() - 1) as f64 * share) as usize];
        (at(EDGE), at(0.5), at(1.0 - EDGE))
    }
}

/// What is read: a file to which pieces were appended, as random writes of slots.
struct PieceFile {
    file: File,
    bytes: u64,
    piece: usize,
    /// Where as many bytes lie in one place.
    plain_at: u64,
    /// Where the newest piece of each slot lies.
    places: Vec<u64>,
}

/// Sends `states` states of `bytes` over a loopback connection, from a file in `directory` to which pieces of `piece`
/// bytes were appended, `writes` of them: each as the newest piece of every slot then, twice, and as many bytes from
/// one place; by `pread(2)` and `send(2)` and by `sendfile(2)` in turn. The receiver computes a checksum. No index, no
/// lock: the most that a server of old states could do.
pub(crate) fn scattered(directory: &Path, bytes: u64, piece: usize, writes: u64, states: u64) -> Result<Scattered> {
    let slots = bytes / piece as u64;
    let stride = piece as u64 + BETWEEN;
    let plain_at = (slots + writes) * stride;
    let file = preallocated(directory, plain_at + bytes)?;
    let buffer = vec![7u8; 1 << 20];
    for write in 0..slots + writes {
        file.write_all_at(&buffer[..piece], write * stride)?;
    }
    for done in (0..bytes).step_by(buffer.len()) {
        file.write_all_at(&buffer, plain_at + done)?;
    }
    let (mut near, far) = pair_with(Some(UNPACED))?;
    let receiver = other_end(move || -> std::io::Result<()> {
        let mut buffer = vec![0u8; 1 << 20];
        for _ in 0..states * READS as u64 {
            let mut left = bytes;
            while left > 0 {
                match near.read(&mut buffer)? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    some => {
                        left -= some as u64;
                        // The receiver verifies the bytes, as every client does.
                        std::hint::black_box(frieze_base::crc32c(&buffer[..some]));
                    }
                }
            }
            near.write_all(&[1])?;
        }
        Ok(())
    });
    let places = (0..slots).map(|slot| slot * stride).collect();
    let mut pieces = PieceFile { file, bytes, piece, plain_at, places };
    let mut rng = frieze_base::Rng::new(7);
    let (mut copied, mut handed_on) = (Vec::new(), Vec::new());
    let mut written = 0;
    for state in 0..states {
        while written < (state + 1) * writes / states {
            pieces.places[rng.below(slots) as usize] = (slots + written) * stride;
            written += 1;
        }
        type Send = fn(&PieceFile, &TcpStream, bool) -> Result<f64>;
        let (send, times): (Send, _) =
            if state % 2 == 0 { (PieceFile::copy, &mut copied) } else { (PieceFile::hand_on, &mut handed_on) };
        times.push([send(&pieces, &far, false)?, send(&pieces, &far, false)?, send(&pieces, &far, true)?]);
    }
    receiver.join().ok().context("the receiver panicked")??;
    let [copied, handed_on] = [copied, handed_on].map(|seconds| Scattered { bytes, seconds });
    Ok(if handed_on.speed(FIRST) > copied.speed(FIRST) { handed_on } else { copied })
}

impl PieceFile {
    fn place(&self, at: u64, is_plain: bool) -> u64 {
        if is_plain { self.plain_at + at } else { self.places[(at / self.piece as u64) as usize] }
    }

    /// Seconds until all was taken that was read and sent.
    fn copy(&self, mut far: &TcpStream, is_plain: bool) -> Result<f64> {
        let extent = if is_plain { STEP_BYTES } else { self.piece };
        let mut step = vec![0u8; STEP_BYTES];
        let watch = Stopwatch::start();
        for at in (0..self.bytes).step_by(STEP_BYTES) {
            for (part, at) in step.chunks_mut(extent).zip((at..).step_by(extent)) {
                self.file.read_exact_at(part, self.place(at, is_plain))?;
            }
            far.write_all(&step)?;
        }
        far.read_exact(&mut [0])?;
        Ok(watch.seconds())
    }

    /// Seconds until all was taken that the system handed on.
    fn hand_on(&self, mut far: &TcpStream, is_plain: bool) -> Result<f64> {
        let extent = if is_plain { STEP_BYTES } else { self.piece };
        let watch = Stopwatch::start();
        for at in (0..self.bytes).step_by(extent) {
            let mut from = self.place(at, is_plain);
            let end = from + extent as u64;
            while from < end {
                let left = (end - from) as usize;
                rustix::fs::sendfile(far, &self.file, Some(&mut from), left)?;
            }
        }
        far.read_exact(&mut [0])?;
        Ok(watch.seconds())
    }
}

/// GiB/s of `bytes` in so many seconds.
fn speed(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / GIB / seconds
}
