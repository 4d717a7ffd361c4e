//! What a bare program gets out of old states that lie in many places of the page cache.

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
/// Reads of each state: it, it again, and what lies in one place.
const READS: u64 = 3;
/// The slowest and the fastest are told without the slowest and fastest of a hundred, which are the machine's.
pub(crate) const EDGE: f64 = 0.01;

/// Old states, by whichever of two ways is faster: read and sent, or handed on by the system.
#[derive(Default)]
pub(crate) struct Scattered {
    /// Seconds of each first read of a state, in order of their length.
    pub(crate) first: Vec<f64>,
    /// Of each second read.
    pub(crate) second: Vec<f64>,
    /// Of as many bytes in one place, read in between.
    pub(crate) plain: Vec<f64>,
}

impl Scattered {
    /// In order of their length.
    pub(crate) fn sorted(mut self) -> Scattered {
        for times in [&mut self.first, &mut self.second, &mut self.plain] {
            times.sort_by(f64::total_cmp);
        }
        self
    }
}

/// The element at `share` of a sorted list.
pub(crate) fn at_share(times: &[f64], share: f64) -> f64 {
    times[((times.len() - 1) as f64 * share) as usize]
}

/// What is read: a file to which pieces were appended, as random writes of slots.
struct Pieces {
    file: File,
    bytes: u64,
    piece: usize,
    /// Where as many bytes lie in one place.
    plain_at: u64,
    /// Where the newest piece of each slot lies.
    places: Vec<u64>,
}

/// Sends `states` states of `bytes` over a loopback connection, from a file in `directory` to which pieces of `piece` bytes
/// were appended, `writes` of them: each as the newest piece of every slot then, twice, and as many bytes from one place; by
/// `pread(2)` and `send(2)` and by `sendfile(2)` in turn. Who receives computes a checksum. No index, no lock: what a server of old
/// states could do at most.
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
        for _ in 0..states * READS {
            let mut left = bytes;
            while left > 0 {
                match near.read(&mut buffer)? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    some => {
                        left -= some as u64;
                        // Who takes the bytes verifies them, as every client does.
                        std::hint::black_box(frieze_base::crc32c(&buffer[..some]));
                    }
                }
            }
            near.write_all(&[1])?;
        }
        Ok(())
    });
    let places = (0..slots).map(|slot| slot * stride).collect();
    let mut pieces = Pieces { file, bytes, piece, plain_at, places };
    let mut rng = frieze_base::Rng::new(7);
    let [mut copied, mut handed_on] = <[Scattered; 2]>::default();
    let mut written = 0;
    for state in 0..states {
        while written < (state + 1) * writes / states {
            pieces.places[rng.below(slots) as usize] = (slots + written) * stride;
            written += 1;
        }
        type Send = fn(&Pieces, &TcpStream, bool) -> Result<f64>;
        let (send, times): (Send, _) =
            if state % 2 == 0 { (Pieces::copy, &mut copied) } else { (Pieces::hand_on, &mut handed_on) };
        times.first.push(send(&pieces, &far, false)?);
        times.second.push(send(&pieces, &far, false)?);
        times.plain.push(send(&pieces, &far, true)?);
    }
    receiver.join().ok().context("the receiver panicked")??;
    let (copied, handed_on) = (copied.sorted(), handed_on.sorted());
    let is_faster = at_share(&handed_on.first, 0.5) < at_share(&copied.first, 0.5);
    Ok(if is_faster { handed_on } else { copied })
}

impl Pieces {
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
pub(crate) fn speed(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / GIB / seconds
}
