//! Read-ahead of one open file: while a program handles what it read, a thread receives what comes next.
//!
//! Guarantees: bytes are those of the file at the moment when they were received, 6 MiB at most before
//! the program reads them; the end of the file is never read ahead, so a file that grows is read on.
//! Leaves to others: which opens read ahead (`python/frieze`: those with a buffer).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use frieze_client::{Error, File};

/// The sequential reads of one open file.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// Where the last read ended.
    next: u64,
    /// Reads in a row that began where the one before ended.
    run_count: u32,
    thread: Option<ReadThread>,
}

/// A thread that reads, and what it has read.
#[derive(Debug)]
struct ReadThread {
    pieces: Receiver<Result<AheadBytes, Error>>,
    /// Buffers that are read into next; the thread ends when this is dropped.
    spare: Sender<Vec<u8>>,
    current: AheadBytes,
}

/// Bytes that were read ahead, of which the first `used` were handed over.
#[derive(Debug, Default)]
struct AheadBytes {
    buffer: Vec<u8>,
    len: usize,
    used: usize,
}

impl ReadAhead {
    /// Reads up to `into.len()` bytes at `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub(crate) fn read(&mut self, file: &Arc<File>, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        if offset != self.next {
            (self.thread, self.run_count) = (None, 0);
        }
        if self.thread.is_none() && self.is_worthwhile(file, offset, into.len()) {
            self.thread = ReadThread::start(file.clone(), offset);
        }
        let mut filled = 0;
        if let Some(thread) = &mut self.thread {
            match thread.take(into) {
                Ok(count) => filled = count,
                Err(error) => {
                    self.thread = None;
                    return Err(error);
                }
            }
        }
        if filled < into.len() {
            // There is no read-ahead, or it has reached the end of the file, which may have moved since.
            self.thread = None;
            filled += file.read_at(offset + filled as u64, &mut into[filled..])?;
        }
        self.next = offset + filled as u64;
        self.run_count = self.run_count.saturating_add(1);
        Ok(filled)
    }

    /// Drops what was read ahead: the file is about to change.
    pub(crate) fn stop(&mut self) {
        *self = ReadAhead::default();
    }

    /// Large reads have several requests in flight by themselves.
    fn is_worthwhile(&self, file: &File, offset: u64, len: usize) -> bool {
        let left = file.attr().size.saturating_sub(offset);
        self.run_count >= RUN_MIN && len < PIECE_BYTES && left >= 2 * PIECE_BYTES as u64
    }
}

impl ReadThread {
    /// Starts to read at `offset`; `None` where the system has no more threads.
    fn start(file: Arc<File>, offset: u64) -> Option<ReadThread> {
        let (spare, buffers) = channel::<Vec<u8>>();
        let (results, pieces) = channel();
        let read = move || {
            let mut at = offset;
            while let Ok(mut buffer) = buffers.recv() {
                buffer.resize(PIECE_BYTES, 0);
                let read = file.read_at(at, &mut buffer);
                let count = *read.as_ref().unwrap_or(&0);
                at += count as u64;
                let piece = read.map(|len| AheadBytes { buffer, len, used: 0 });
                if results.send(piece).is_err() || count < PIECE_BYTES {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("frieze-read-ahead".to_owned()).spawn(read).ok()?;
        for _ in 0..PIECES {
            // The thread has just begun to receive.
            spare.send(Vec::new()).ok()?;
        }
        Some(ReadThread { pieces, spare, current: AheadBytes::default() })
    }

    /// Copies the next bytes; fewer than `into` holds where the thread has ended.
    fn take(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        let mut filled = 0;
        while filled < into.len() {
            let AheadBytes { buffer, len, used } = &mut self.current;
            if used == len {
                let buffer = std::mem::take(buffer);
                if !buffer.is_empty() {
                    // If the thread has ended, its last pieces are still in the channel.
                    let _ = self.spare.send(buffer);
                }
                match self.pieces.recv() {
                    Ok(piece) => self.current = piece?,
                    Err(_) => {
                        self.current = AheadBytes::default();
                        return Ok(filled);
                    }
                }
                continue;
            }
            let count = (*len - *used).min(into.len() - filled);
            into[filled..filled + count].copy_from_slice(&buffer[*used..*used + count]);
            *used += count;
            filled += count;
        }
        Ok(filled)
    }
}

/// Bytes that the thread reads at once: two requests of the client. With twice as many they leave the processor's cache
/// before they are copied out.
const PIECE_BYTES: usize = 2 << 20;
/// One is copied out, one waits, one is read.
const PIECES: usize = 3;
/// A program that has read so often in order will go on.
const RUN_MIN: u32 = 2;
