//! The rate of a bare program that does the work that a file server cannot leave out for each mebibyte: compute its
//! checksum at the sender and again at the receiver, and write it to a file or read it from one.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use anyhow::{Context, Result};

use super::paced::{KeptBytes, flush};
use super::{DIRECT_ALIGN, GIB, UNPACED, pair_with, preallocated, preallocated_for};
use crate::stopwatch::Stopwatch;

/// A message: its checksum, then so many bytes.
pub(super) const MESSAGE_BYTES: usize = 1 << 20;
pub(super) const CHECKSUM_BYTES: usize = 4;

/// Streams `bytes` of `data`, over and over, into a file in `directory` that goes to the disk meanwhile, GiB/s. One
/// connection; the sender waits for an answer to every `call_bytes`, or for the last one only. `keep` is what stays in
/// memory.
pub(crate) fn stored(
    directory: &Path,
    data: &[u8],
    bytes: u64,
    call_bytes: Option<u64>,
    keep: KeptBytes,
) -> Result<f64> {
    let file = preallocated(directory, bytes)?;
    let flushed = file.try_clone()?;
    let (mut near, mut far) = pair_with(Some(UNPACED))?;
    let (reached, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let count = bytes / MESSAGE_BYTES as u64;
    let call = call_bytes.map_or(count, |bytes| bytes / MESSAGE_BYTES as u64);
    let is_answered = |number: u64| (number + 1).is_multiple_of(call) || number + 1 == count;
    thread::scope(|scope| {
        let flushing = scope.spawn(|| flush(&flushed, keep, &reached, &over));
        let storing = scope.spawn(|| -> Result<()> {
            let mut message = vec![0u8; CHECKSUM_BYTES + MESSAGE_BYTES];
            for number in 0..count {
                near.read_exact(&mut message)?;
                file.write_all_at(checked(&message)?, number * MESSAGE_BYTES as u64)?;
                reached.store((number + 1) * MESSAGE_BYTES as u64, Ordering::Release);
                if is_answered(number) {
                    near.write_all(&[1])?;
                }
            }
            Ok(())
        });
        let watch = Stopwatch::start();
        let mut pieces = data.chunks_exact(MESSAGE_BYTES).cycle();
        let sent = (0..count).try_for_each(|number| -> Result<()> {
            let piece = pieces.next().context("no data to send")?;
            far.write_all(&frieze_base::crc32c(piece).to_le_bytes())?;
            far.write_all(piece)?;
            if is_answered(number) {
                far.read_exact(&mut [0u8])?;
            }
            Ok(())
        });
        let seconds = watch.seconds();
        drop(far);
        let stored = storing.join();
        over.store(true, Ordering::Release);
        let flushed = flushing.join();
        stored.ok().context("the storing end panicked")??;
        flushed.ok().context("the flushing thread panicked")??;
        sent?;
        Ok(count as f64 * MESSAGE_BYTES as f64 / GIB / seconds)
    })
}

/// How a bare program brings received bytes to stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Synced {
    /// Through the page cache; those that came while one flush ran share the next.
    Together,
    /// Past the page cache, as many writes at a time as are in flight, each followed by a flush.
    Direct,
}

/// Streams `bytes` of `data`, over and over, into a file in `directory`, `depth` messages in flight, each acknowledged
/// when it is on stable storage, GiB/s. One connection. 0 where the file system knows no direct writes and those are
/// asked for.
pub(crate) fn stored_synced(directory: &Path, data: &[u8], bytes: u64, depth: u64, how: Synced) -> Result<f64> {
    let file = match preallocated_for(directory, bytes, how == Synced::Direct) {
        Err(_) if how == Synced::Direct => return Ok(0.0),
        found => &found?,
    };
    let (mut near, mut far) = pair_with(Some(UNPACED))?;
    let mut answering = near.try_clone()?;
    // A failed thread closes the connection, which ends the others: none waits for an answer that does not come.
    let ending = &near.try_clone()?;
    let ended = move |done: Result<()>| done.inspect_err(|_| drop(ending.shutdown(Shutdown::Both)));
    let count = bytes / MESSAGE_BYTES as u64;
    let (unused, to_fill) = mpsc::channel();
    let (received, to_store) = mpsc::channel::<(u64, Vec<u8>)>();
    let to_store = &Mutex::new(to_store);
    let (stored, to_answer) = mpsc::channel();
    for _ in 0..2 * depth {
        unused.send(vec![0u8; MESSAGE_BYTES + DIRECT_ALIGN])?;
    }
    let place = |buffer: &[u8]| buffer.as_ptr().align_offset(DIRECT_ALIGN);
    let at = |number: u64| number * MESSAGE_BYTES as u64;
    thread::scope(|scope| {
        let mut threads = Vec::new();
        if how == Synced::Direct {
            for _ in 0..depth {
                let (unused, stored) = (unused.clone(), stored.clone());
                let next = || to_store.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let store = move |number: u64, buffer: Vec<u8>| -> Result<()> {
                    let done = file.write_all_at(&buffer[place(&buffer)..][..MESSAGE_BYTES], at(number));
                    // The filling thread may have filled its last buffer.
                    let _ = unused.send(buffer);
                    done.and_then(|()| file.sync_data())?;
                    Ok(stored.send(())?)
                };
                threads.push(scope.spawn(move || {
                    ended(std::iter::from_fn(|| next().ok()).try_for_each(|(number, buffer)| store(number, buffer)))
                }));
            }
        }
        let mut receive = move || -> Result<()> {
            for number in 0..count {
                let mut buffer = to_fill.recv()?;
                let place = place(&buffer);
                let (mut sum, message) = ([0u8; CHECKSUM_BYTES], &mut buffer[place..][..MESSAGE_BYTES]);
                near.read_exact(&mut sum)?;
                near.read_exact(message)?;
                anyhow::ensure!(frieze_base::crc32c(message).to_le_bytes() == sum, "what arrived is not what was sent");
                if how == Synced::Direct {
                    received.send((number, buffer))?;
                } else {
                    file.write_all_at(message, at(number))?;
                    stored.send(())?;
                    unused.send(buffer)?;
                }
            }
            Ok(())
        };
        threads.push(scope.spawn(move || ended(receive())));
        let mut answer = move || -> Result<()> {
            while to_answer.recv().is_ok() {
                let together = 1 + to_answer.try_iter().count();
                if how == Synced::Together {
                    file.sync_data()?;
                }
                answering.write_all(&vec![1; together])?;
            }
            Ok(())
        };
        threads.push(scope.spawn(move || ended(answer())));
        let watch = Stopwatch::start();
        let mut pieces = data.chunks_exact(MESSAGE_BYTES).cycle();
        let sent = (0..count + depth).try_for_each(|number| -> Result<()> {
            if number >= depth {
                far.read_exact(&mut [0u8])?;
            }
            if number < count {
                let piece = pieces.next().context("no data to send")?;
                far.write_all(&frieze_base::crc32c(piece).to_le_bytes())?;
                far.write_all(piece)?;
            }
            Ok(())
        });
        let seconds = watch.seconds();
        drop(far);
        threads.into_iter().try_for_each(|one| one.join().ok().context("a storing thread panicked")?)?;
        sent?;
        Ok(count as f64 * MESSAGE_BYTES as f64 / GIB / seconds)
    })
}

/// Streams `bytes` out of a file in `directory` that is in memory, GiB/s: read, checked, sent; taken, checked.
pub(crate) fn served(directory: &Path, data: &[u8], bytes: u64) -> Result<f64> {
    let file = preallocated(directory, bytes)?;
    let count = bytes / MESSAGE_BYTES as u64;
    let mut sums = Vec::new();
    for (number, piece) in (0..count).zip(data.chunks_exact(MESSAGE_BYTES).cycle()) {
        file.write_all_at(piece, number * MESSAGE_BYTES as u64)?;
        sums.push(frieze_base::crc32c(piece));
    }
    let (mut near, mut far) = pair_with(Some(UNPACED))?;
    thread::scope(|scope| {
        let serving = scope.spawn(move || -> Result<()> {
            let mut message = vec![0u8; CHECKSUM_BYTES + MESSAGE_BYTES];
            for (number, sum) in sums.into_iter().enumerate() {
                let (head, piece) = message.split_at_mut(CHECKSUM_BYTES);
                file.read_exact_at(piece, (number * MESSAGE_BYTES) as u64)?;
                anyhow::ensure!(frieze_base::crc32c(piece) == sum, "what was stored is not what is there");
                head.copy_from_slice(&sum.to_le_bytes());
                near.write_all(&message)?;
            }
            Ok(())
        });
        let watch = Stopwatch::start();
        let mut message = vec![0u8; CHECKSUM_BYTES + MESSAGE_BYTES];
        let taken = (0..count).try_for_each(|_| -> Result<()> {
            far.read_exact(&mut message)?;
            checked(&message).map(drop)
        });
        let seconds = watch.seconds();
        drop(far);
        serving.join().ok().context("the serving end panicked")??;
        taken?;
        Ok(count as f64 * MESSAGE_BYTES as f64 / GIB / seconds)
    })
}

/// The bytes of a message, if they are what was sent.
pub(super) fn checked(message: &[u8]) -> Result<&[u8]> {
    let (head, piece) = message.split_at(CHECKSUM_BYTES);
    anyhow::ensure!(frieze_base::crc32c(piece).to_le_bytes() == head, "what arrived is not what was sent");
    Ok(piece)
}
