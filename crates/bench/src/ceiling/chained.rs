//! The rate of a chain of bare programs: each member forwards what it receives while it receives it, and does the work
//! that no member can leave out. No numbers, no stamps, no index, no log.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, ensure};

use super::streamed::{CHECKSUM_BYTES, MESSAGE_BYTES};
use super::{GIB, UNPACED, pair_with, preallocated};
use crate::stopwatch::Stopwatch;

/// What it measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chained {
    /// Of one message of 1 MiB, from its checksum to the answer; the median.
    pub(crate) p50_us: f64,
    /// Of the sender and all members, including the flush to the disk.
    pub(crate) cpu_s_per_gib: f64,
}

/// `bytes` of `data`, over and over, in messages of 1 MiB down a chain of so many members, each of which has a file in
/// `directory`: first as a stream of which the last is answered, then `singles` one at a time.
pub(crate) fn chained(directory: &Path, data: &[u8], members: usize, bytes: u64, singles: u64) -> Result<Chained> {
    let count = bytes / MESSAGE_BYTES as u64;
    let (mut sender, mut before) = pair_with(Some(UNPACED))?;
    let mut stages = Vec::new();
    for member in 0..members {
        let next = if member + 1 < members { Some(pair_with(Some(UNPACED))?) } else { None };
        let (after, next_before) = next.unzip();
        let file = preallocated(directory, (count + singles) * MESSAGE_BYTES as u64)?;
        stages.push(ChainHop { before, after, file, count, singles });
        let Some(next) = next_before else { break };
        before = next;
    }
    thread::scope(|scope| {
        let threads: Vec<_> = stages.into_iter().map(|mut stage| scope.spawn(move || stage.run())).collect();
        let measured = send(&mut sender, data, count, singles);
        // Waiting members end with the connection.
        drop(sender);
        for thread in threads {
            thread.join().ok().context("a member panicked")??;
        }
        measured
    })
}

fn send(to: &mut TcpStream, data: &[u8], count: u64, singles: u64) -> Result<Chained> {
    let mut pieces = data.chunks_exact(MESSAGE_BYTES).cycle();
    let mut one = |to: &mut TcpStream| -> Result<()> {
        let piece = pieces.next().context("no data to send")?;
        to.write_all(&frieze_base::crc32c(piece).to_le_bytes())?;
        Ok(to.write_all(piece)?)
    };
    let watch = Stopwatch::start();
    (0..count).try_for_each(|_| one(to))?;
    to.read_exact(&mut [0u8])?;
    let cpu_s_per_gib = watch.cpu_seconds() / (count as f64 * MESSAGE_BYTES as f64 / GIB);
    let mut times = Vec::new();
    for _ in 0..singles {
        let watch = Stopwatch::start();
        one(to)?;
        to.read_exact(&mut [0u8])?;
        times.push(watch.seconds() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(Chained { p50_us: times.get(times.len() / 2).copied().unwrap_or(0.0), cpu_s_per_gib })
}

/// One member.
struct ChainHop {
    before: TcpStream,
    after: Option<TcpStream>,
    file: File,
    count: u64,
    singles: u64,
}

impl ChainHop {
    fn run(&mut self) -> Result<()> {
        let mut piece = vec![0u8; PIECE_BYTES];
        for number in 0..self.count + self.singles {
            self.pass(number * MESSAGE_BYTES as u64, &mut piece)?;
            if number + 1 == self.count {
                self.file.sync_data()?;
            }
            if number + 1 >= self.count {
                if let Some(after) = &mut self.after {
                    after.read_exact(&mut [0u8])?;
                }
                self.before.write_all(&[1])?;
            }
        }
        Ok(())
    }

    fn pass(&mut self, at: u64, piece: &mut [u8]) -> Result<()> {
        let mut sum = [0; CHECKSUM_BYTES];
        self.before.read_exact(&mut sum)?;
        if let Some(after) = &mut self.after {
            after.write_all(&sum)?;
        }
        let mut crc = frieze_base::Crc32c::default();
        for number in 0..MESSAGE_BYTES / PIECE_BYTES {
            self.before.read_exact(piece)?;
            if let Some(after) = &mut self.after {
                after.write_all(piece)?;
            }
            crc.update(piece);
            self.file.write_all_at(piece, at + (number * PIECE_BYTES) as u64)?;
        }
        ensure!(crc.value().to_le_bytes() == sum, "what arrived is not what was sent");
        Ok(())
    }
}

/// Passed on at once.
const PIECE_BYTES: usize = 256 << 10;
