//! The right of one client to write a file: which block it writes, and how far it is.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frieze_base::MonoTime;
use frieze_client::{Caller, File};

use crate::blocks::block_id;
use crate::exception::Exception;
use crate::lease_record::{LeaseRecord, OpenBlock};
use crate::proto::ExtendedBlock;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct FileLease {
    /// Names it in tokens.
    pub(crate) id: u64,
    /// The file.
    pub(crate) inode: u64,
    /// Its path when it was opened.
    pub(crate) path: String,
    /// The client that writes it, as it calls itself.
    pub(crate) holder: String,
    /// Most bytes of a block.
    pub(crate) block_bytes: u64,
    /// Opened to write.
    pub(crate) file: File,
    /// On whose behalf.
    pub(crate) caller: Caller,
    /// From where, if that is known.
    pub(crate) machine: Option<IpAddr>,
    /// When it was given.
    pub(crate) given: MonoTime,
    pub(crate) progress: Mutex<WriteProgress>,
}

/// How far a writer is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteProgress {
    /// Where the next block begins, if none is being written.
    pub(crate) next: u64,
    /// The block that is being written.
    pub(crate) block: Option<OpenBlock>,
    /// The block before, which is done: its number and generation; zeros if there was none.
    pub(crate) last: (u64, u64),
    /// Bytes of blocks that were given up may lie behind what is wanted.
    pub(crate) left_behind: bool,
    /// The lease was taken away.
    pub(crate) is_over: bool,
    /// It is noted for the next process, or another door.
    pub(crate) noted: bool,
    /// Its writer is in this process, and ends with it.
    pub(crate) is_own: bool,
}

impl FileLease {
    /// How far it is. Held while bytes are written, so that nobody takes the lease away in between.
    pub(crate) fn progress(&self) -> MutexGuard<'_, WriteProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for who goes on writing.
    ///
    /// # Errors
    /// `LeaseExpiredException` if it was taken away.
    pub(crate) fn writing(&self) -> Result<MutexGuard<'_, WriteProgress>, Exception> {
        let progress = self.progress();
        if progress.is_over { Err(none_held(&self.path, &self.holder)) } else { Ok(progress) }
    }

    pub(crate) fn note(&self, progress: &WriteProgress) -> LeaseRecord {
        LeaseRecord {
            id: self.id,
            inode: self.inode,
            path: self.path.clone(),
            holder: self.holder.clone(),
            block_bytes: self.block_bytes,
            uid: self.caller.uid,
            gid: self.caller.gid,
            groups: self.caller.groups.clone(),
            next: progress.next,
            start: progress.block.map(|block| block.start),
            generation: progress.block.map_or(0, |block| block.generation),
            last_id: progress.last.0,
            last_generation: progress.last.1,
            left_ns: 0,
        }
    }
}

/// Settles a file that nobody may write to under this lease any more; cuts it at `end` if that is where its writer was.
pub(crate) fn close_file(lease: Arc<FileLease>, end: Option<u64>) -> Result<(), Exception> {
    let failed = |error, path: &str| Exception::of(error, path);
    let path = lease.path.clone();
    if let Some(end) = end
        && lease.progress().left_behind
    {
        let size = lease.file.stat().map_err(|error| failed(error, &path))?.attr.size;
        if size > end {
            lease.file.set_len(end).map_err(|error| failed(error, &path))?;
        }
    }
    match Arc::try_unwrap(lease) {
        Ok(lease) => lease.file.close_unused_later().map_err(|error| failed(error, &path)),
        // A transfer is about to end: it closes the file when it does.
        Err(_) => Ok(()),
    }
}

/// The block that was being written is as long as its writer says.
pub(crate) fn finish_block(
    lease: &FileLease,
    progress: &mut WriteProgress,
    last: Option<&ExtendedBlock>,
) -> Result<(), Exception> {
    let Some(last) = last else {
        // Nothing of a block that was begun is wanted.
        progress.left_behind |= progress.block.take().is_some_and(|block| block.received > 0);
        return Ok(());
    };
    // The client names the block before one that it gave up.
    if (last.block_id, last.generation_stamp) == progress.last {
        progress.left_behind |= progress.block.take().is_some_and(|block| block.received > 0);
        return Ok(());
    }
    let len = last.num_bytes.unwrap_or(0);
    let Some(block) = is_block(lease, progress, last) else {
        return Err(Exception::io(format!("{}: block {} is not the one being written", lease.path, last.block_id)));
    };
    if len > block.received {
        return Err(Exception::io(format!(
            "{}: of the {len} bytes of block {} only {} have arrived",
            lease.path, last.block_id, block.received
        )));
    }
    progress.left_behind |= len < block.received;
    progress.next = block.start + len;
    progress.last = (last.block_id, last.generation_stamp);
    progress.block = None;
    Ok(())
}

/// The block that is being written, if that is the one named.
pub(crate) fn is_block(lease: &FileLease, progress: &WriteProgress, named: &ExtendedBlock) -> Option<OpenBlock> {
    progress.block.filter(|block| block_id(lease.inode, block.start) == named.block_id)
}

pub(crate) fn none_held(path: &str, holder: &str) -> Exception {
    Exception::lease_expired(format!("{path}: {holder} does not have it open for writing any more"))
}
