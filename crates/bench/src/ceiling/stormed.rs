//! The rate of a bare program over many connections at once, a thread at each end of each.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use anyhow::{Context, Result};

use super::streamed::{CHECKSUM_BYTES, MESSAGE_BYTES, checked};
use super::{GIB, UNPACED, pair_with, preallocated};
use crate::stopwatch::Stopwatch;

/// A few files in memory, one after the other in one, and the checksums of their messages.
struct StormFiles {
    file: File,
    sums: Vec<u32>,
}

/// So many connections, each of which asks at the same moment for `bytes` of one of `files` files that are in memory:
/// read, checked, sent; taken, checked. GiB/s of all together.
pub(crate) fn stormed(directory: &Path, data: &[u8], connections: u64, files: u64, bytes: u64) -> Result<f64> {
    let count = bytes / MESSAGE_BYTES as u64;
    let mut stored = StormFiles { file: preallocated(directory, files * bytes)?, sums: Vec::new() };
    for (number, piece) in (0..files * count).zip(data.chunks_exact(MESSAGE_BYTES).cycle()) {
        stored.file.write_all_at(piece, number * MESSAGE_BYTES as u64)?;
        stored.sums.push(frieze_base::crc32c(piece));
    }
    let pairs = (0..connections).map(|_| pair_with(Some(UNPACED))).collect::<Result<Vec<_>>>()?;
    let begun = Barrier::new(connections as usize + 1);
    thread::scope(|scope| {
        let mut ends = Vec::new();
        for (number, (near, far)) in (0..).zip(pairs) {
            let (begun, stored) = (&begun, &stored);
            let serving = move || stored.serve(near, number % files * count, count);
            let getting = move || {
                begun.wait();
                get(far, count)
            };
            ends.push(small().spawn_scoped(scope, serving).context("no more threads")?);
            ends.push(small().spawn_scoped(scope, getting).context("no more threads")?);
        }
        let watch = Stopwatch::start();
        begun.wait();
        ends.into_iter().try_for_each(|end| end.join().ok().context("an end panicked")?)?;
        Ok(connections as f64 * bytes as f64 / GIB / watch.seconds())
    })
}

impl StormFiles {
    fn serve(&self, mut near: TcpStream, first: u64, count: u64) -> Result<()> {
        near.read_exact(&mut [0u8])?;
        let mut message = vec![0u8; CHECKSUM_BYTES + MESSAGE_BYTES];
        for number in first..first + count {
            let (head, piece) = message.split_at_mut(CHECKSUM_BYTES);
            self.file.read_exact_at(piece, number * MESSAGE_BYTES as u64)?;
            let sum = self.sums[number as usize];
            anyhow::ensure!(frieze_base::crc32c(piece) == sum, "what was stored is not what is there");
            head.copy_from_slice(&sum.to_le_bytes());
            near.write_all(&message)?;
        }
        Ok(())
    }
}

fn get(mut far: TcpStream, count: u64) -> Result<()> {
    far.write_all(&[1])?;
    let mut message = vec![0u8; CHECKSUM_BYTES + MESSAGE_BYTES];
    for _ in 0..count {
        far.read_exact(&mut message)?;
        checked(&message)?;
    }
    Ok(())
}

fn small() -> thread::Builder {
    thread::Builder::new().stack_size(STACK_BYTES)
}

/// There are thousands.
const STACK_BYTES: usize = 128 << 10;
