//! The latency of a bare program for a client that writes at a given rate, while the stored bytes go to the disk.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{UNPACED, pair_with, preallocated};
use crate::stopwatch::at_intervals;

/// A flush is begun when so much waits for it: what a disk is filled by.
const FLUSH_BYTES: u64 = 8 << 20;

/// Sends `requests` of `data` (its length each) over a loopback connection, one after the other, each begun `interval`
/// seconds after the one before or when that is done; a thread stores each in a file in `directory` and answers,
/// another flushes the stored bytes to the disk. No checksum, no index, no log. Milliseconds that each took, in order
/// of size.
pub(crate) fn paced(directory: &Path, data: &[u8], requests: u64, interval: f64) -> Result<Vec<f64>> {
    let len = data.len() as u64;
    let file = preallocated(directory, requests * len)?;
    let flushed = file.try_clone()?;
    let (mut near, mut far) = pair_with(Some(UNPACED))?;
    let (stored, over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let flushing = scope.spawn(|| flush(&flushed, KeptBytes::All, &stored, &over));
        let storing = scope.spawn(|| -> std::io::Result<()> {
            let mut buffer = vec![0u8; data.len()];
            for request in 0..requests {
                near.read_exact(&mut buffer)?;
                file.write_all_at(&buffer, request * len)?;
                stored.store((request + 1) * len, Ordering::Release);
                near.write_all(&[1])?;
            }
            Ok(())
        });
        let times = ask(&mut far, data, requests, interval);
        // The storing thread ends with the connection, whatever has happened.
        drop(far);
        let stored = storing.join();
        over.store(true, Ordering::Release);
        let flushed = flushing.join();
        stored.ok().context("the storing end panicked")??;
        flushed.ok().context("the flushing thread panicked")??;
        times
    })
}

fn ask(far: &mut TcpStream, data: &[u8], requests: u64, interval: f64) -> Result<Vec<f64>> {
    at_intervals(requests, interval, |_| {
        far.write_all(data)?;
        Ok(far.read_exact(&mut [0u8])?)
    })
}

/// How much of the stored bytes stays in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptBytes {
    /// Everything: each page is another one.
    All,
    /// So many bytes, those stored last: what is stored next goes into the pages of what leaves.
    Newest(u64),
}

/// Flushes the file whenever enough of it waits, and lets go of what is not to be kept.
pub(super) fn flush(file: &File, keep: KeptBytes, stored: &AtomicU64, over: &AtomicBool) -> std::io::Result<()> {
    let (mut done, mut gone) = (0, 0);
    while !over.load(Ordering::Acquire) {
        let now = stored.load(Ordering::Acquire);
        if now - done < FLUSH_BYTES {
            thread::park_timeout(Duration::from_millis(1));
            continue;
        }
        rustix::fs::fdatasync(file)?;
        done = now;
        let KeptBytes::Newest(bytes) = keep else { continue };
        let old = done.saturating_sub(bytes).saturating_sub(gone);
        if let Some(len) = NonZeroU64::new(old / FLUSH_BYTES * FLUSH_BYTES) {
            rustix::fs::fadvise(file, gone, Some(len), rustix::fs::Advice::DontNeed)?;
            gone += len.get();
        }
    }
    Ok(())
}
