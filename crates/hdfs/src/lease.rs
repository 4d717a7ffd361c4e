//! A lease: the right of one client to write a file, the block that it writes, and its position.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frieze_base::MonoTime;
use frieze_client::{Caller, File};

use crate::blocks::block_id;
use crate::exception::Exception;
use crate::lease_record::{LeaseRecord, OpenBlock};
use crate::proto::ExtendedBlock;

/// The right of one client to write a file.
#[derive(Debug)]
pub(crate) struct FileLease {
    /// Its number in tokens.
    pub(crate) id: u64,
    /// The file.
    pub(crate) inode: u64,
    /// Its path when it was opened.
    pub(crate) path: String,
    /// The client that writes it, by the name that it uses.
    pub(crate) holder: String,
    /// Block size in bytes.
    pub(crate) block_bytes: u64,
    /// The file, open to write.
    pub(crate) file: File,
    /// The account it writes for.
    pub(crate) caller: Caller,
    /// Address of the client, if it is known.
    pub(crate) machine: Option<IpAddr>,
    /// When the lease was given.
    pub(crate) given: MonoTime,
    pub(crate) progress: Mutex<WriteProgress>,
}

/// The position of a writer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteProgress {
    /// Where the next block begins, if none is being written.
    pub(crate) next: u64,
    /// The block that is being written.
    pub(crate) block: Option<OpenBlock>,
    /// Number and generation of the block before; zeros if there was none.
    pub(crate) last: (u64, u64),
    /// Bytes of abandoned blocks may lie behind the end.
    pub(crate) has_abandoned_bytes: bool,
    /// The lease has ended.
    pub(crate) has_ended: bool,
    /// A record of it is stored.
    pub(crate) stored: bool,
    /// Its writer is in this process, and ends with it.
    pub(crate) is_own: bool,
}

impl FileLease {
    /// The position. Locked while bytes are written, so that the lease does not end in between.
    pub(crate) fn progress(&self) -> MutexGuard<'_, WriteProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for a write.
    ///
    /// # Errors
    /// `LeaseExpiredException` if the lease has ended.
    pub(crate) fn writing(&self) -> Result<MutexGuard<'_, WriteProgress>, Exception> {
        let progress = self.progress();
        if progress.has_ended { Err(no_lease(&self.path, &self.holder)) } else { Ok(progress) }
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
            ended_ns: 0,
        }
    }
}

/// Closes a file whose lease has ended; cuts it at `end` if abandoned bytes lie behind.
pub(crate) fn close_file(lease: Arc<FileLease>, end: Option<u64>) -> Result<(), Exception> {
    let failed = |error, path: &str| Exception::of(error, path);
    let path = lease.path.clone();
    if let Some(end) = end
        && lease.progress().has_abandoned_bytes
    {
        let size = lease.file.stat().map_err(|error| failed(error, &path))?.attr.size;
        if size > end {
            lease.file.set_len(end).map_err(|error| failed(error, &path))?;
        }
    }
    match Arc::try_unwrap(lease) {
        Ok(lease) => lease.file.close().map_err(|error| failed(error, &path)),
        // A transfer is about to end, and closes the file.
        Err(_) => Ok(()),
    }
}

/// Ends the block that is being written, at the length that its writer reports.
pub(crate) fn finish_block(
    lease: &FileLease,
    progress: &mut WriteProgress,
    last: Option<&ExtendedBlock>,
) -> Result<(), Exception> {
    let Some(last) = last else {
        // The writer abandons the block that it began.
        progress.has_abandoned_bytes |= progress.block.take().is_some_and(|block| block.received > 0);
        return Ok(());
    };
    // The client names the block before an abandoned one.
    if (last.block_id, last.generation_stamp) == progress.last {
        progress.has_abandoned_bytes |= progress.block.take().is_some_and(|block| block.received > 0);
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
    progress.has_abandoned_bytes |= len < block.received;
    progress.next = block.start + len;
    progress.last = (last.block_id, last.generation_stamp);
    progress.block = None;
    Ok(())
}

/// The block that is being written, if it is the one named.
pub(crate) fn is_block(lease: &FileLease, progress: &WriteProgress, named: &ExtendedBlock) -> Option<OpenBlock> {
    progress.block.filter(|block| block_id(lease.inode, block.start) == named.block_id)
}

pub(crate) fn no_lease(path: &str, holder: &str) -> Exception {
    Exception::lease_expired(format!("{path}: {holder} does not have it open for writing any more"))
}
