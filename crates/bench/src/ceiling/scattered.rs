//! What a bare program gets out of bytes that lie in many places of the page cache.

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::{GIB, UNPACED, other_end, pair_with, preallocated};
use crate::stopwatch::Stopwatch;

/// Bytes read before they are sent: what stays in the cache of a core.
const STEP_BYTES: usize = 128 << 10;
/// Bytes between two pieces: about what the header of a record takes.
const BETWEEN: u64 = 100;
/// Rounds in turn, of which the medians count.
const ROUNDS: usize = 15;

/// GiB/s of the same number of bytes.
pub(crate) struct Scattered {
    /// In one place.
    pub(crate) plain: f64,
    /// In pieces all over.
    pub(crate) pieces: f64,
}

/// Sends `bytes` over a loopback connection again and again, read from a file in `directory` to which pieces of `piece` bytes
/// were appended, `writes` of them: once from one place, once as the newest of each of `bytes / piece` slots that were drawn. No
/// checksum, no index, no lock: what a server of old states could do at most.
pub(crate) fn scattered(directory: &Path, bytes: u64, piece: usize, writes: u64) -> Result<Scattered> {
    let slots = bytes / piece as u64;
    let stride = piece as u64 + BETWEEN;
    let plain_at = (slots + writes) * stride;
    let file = preallocated(directory, plain_at + bytes)?;
    let buffer = vec![7u8; 1 << 20];
    let mut rng = frieze_base::Rng::new(7);
    let mut places = vec![0; slots as usize];
    for write in 0..slots + writes {
        let slot = if write < slots { write } else { rng.below(slots) };
        places[slot as usize] = write * stride;
        file.write_all_at(&buffer[..piece], write * stride)?;
    }
    for done in (0..bytes).step_by(buffer.len()) {
        file.write_all_at(&buffer, plain_at + done)?;
    }
    let (mut near, mut far) = pair_with(Some(UNPACED))?;
    let receiver = other_end(move || -> std::io::Result<()> {
        let mut buffer = vec![0u8; 1 << 20];
        for _ in 0..2 * ROUNDS {
            let mut left = bytes;
            while left > 0 {
                match near.read(&mut buffer)? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    some => left -= some as u64,
                }
            }
            near.write_all(&[1])?;
        }
        Ok(())
    });
    let mut step = vec![0u8; STEP_BYTES];
    let mut send = |read: &dyn Fn(&mut [u8], u64) -> std::io::Result<()>| -> Result<f64> {
        let watch = Stopwatch::start();
        for at in (0..bytes).step_by(STEP_BYTES) {
            read(&mut step, at)?;
            far.write_all(&step)?;
        }
        far.read_exact(&mut [0])?;
        Ok(watch.seconds())
    };
    let from_one = |step: &mut [u8], at: u64| file.read_exact_at(step, plain_at + at);
    let from_many = |step: &mut [u8], at: u64| {
        let places = &places[(at / piece as u64) as usize..];
        step.chunks_mut(piece).zip(places).try_for_each(|(part, place)| file.read_exact_at(part, *place))
    };
    let (mut plain, mut pieces) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(send(&from_one)?);
        pieces.push(send(&from_many)?);
    }
    receiver.join().ok().context("the receiver panicked")??;
    let speed = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        bytes as f64 / GIB / times[times.len() / 2]
    };
    Ok(Scattered { plain: speed(plain), pieces: speed(pieces) })
}
