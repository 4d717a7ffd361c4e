//! Writers that lost their gateway continue at another, with their lease.
//!
//! A lease is stored on the file that is written ([`crate::lease_store`]): its holder, and where its block begins; the
//! size of the file is the position. A client that has lost its gateway calls the next one (it takes the gateways of a
//! cluster for name nodes of one service), under its former name, and that one takes the record and continues. Bytes
//! that the former gateway received and had not written may still reach the file: the client sends the same bytes
//! again, for the same place. So nothing has to be waited for.
//!
//! Guarantees: one of several gateways takes a lease over, for a record is removed once. None does if the file was
//! taken by another client meanwhile, which takes the records too ([`crate::file_writers`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frieze_client::{InodeId, OpenFlags, Target};

use crate::attributes::is_deleted;
use crate::blocks::inode_of;
use crate::exception::Exception;
use crate::file_writers::FileWriters;
use crate::lease::FileLease;
use crate::lease_record::LeaseRecord;
use crate::leases::{LeaseRequest, Revocation};
use crate::peer_gateways::RemoteWriter;

/// The lease of `holder` on a file, at this gateway or taken over from another.
///
/// # Errors
/// `LeaseExpiredException` if there is none.
pub(crate) fn find_lease(
    writers: &FileWriters,
    inode: u64,
    path: &str,
    holder: &str,
) -> Result<Arc<FileLease>, Exception> {
    match writers.leases.lease_of(inode, path, holder) {
        Err(none) if !writers.client.has_others() || inode == 0 || writers.leases.has(inode) => Err(none),
        Err(none) => take_over(writers, inode, path, holder)?.ok_or(none),
        held => held,
    }
}

/// The same for the file of a block that it writes.
///
/// # Errors
/// `LeaseExpiredException` if there is none.
pub(crate) fn lease_of_block(writers: &FileWriters, block: u64, holder: &str) -> Result<Arc<FileLease>, Exception> {
    let inode = writers.leases.file_of(block, holder).or_else(|| inode_of(block)).unwrap_or(0);
    find_lease(writers, inode, "", holder).map_err(|exception| match inode {
        0 => Exception::lease_expired(format!("{holder} does not write block {block}")),
        _ => exception,
    })
}

/// Takes over a lease of another gateway, or of the process before; `None` if there is none.
fn take_over(writers: &FileWriters, inode: u64, path: &str, holder: &str) -> Result<Option<Arc<FileLease>>, Exception> {
    let Some(note) = record_of(writers, inode, path, holder)? else { return Ok(None) };
    let failed = |error| Exception::of(error, path);
    let caller = note.caller();
    let fs = writers.client.fs().as_caller(caller.clone());
    let file = fs.open(&Target::inode(InodeId(inode)), OpenFlags::WRITE).map_err(failed)?;
    let LeaseRecord { path, block_bytes, next, .. } = note.clone();
    let holder = holder.to_owned();
    let lease =
        writers.leases.give(LeaseRequest { inode, path, holder, block_bytes, file, caller, machine: None, next })?;
    match resume(writers, &lease, &note) {
        Ok(true) => Ok(Some(lease)),
        other => {
            writers.close(lease, None)?;
            other.map(|_| None)
        }
    }
}

/// False: another client has the file.
fn resume(writers: &FileWriters, lease: &FileLease, note: &LeaseRecord) -> Result<bool, Exception> {
    let failed = |error| Exception::of(error, &lease.path);
    // A client that takes the file from now on sees this write, and asks; one that took it before has the record.
    lease.file.prepare_write(note.start.unwrap_or(note.next), 1).map_err(failed)?;
    // The former gateway may be running, and out of the client's reach; after its reply it stores no record. If it does
    // not answer, bytes that it received from this client only concern other clients, which ask.
    if let RemoteWriter::Held(_) =
        writers.peers.writer_of(lease.inode, Revocation::Of(&lease.holder)).map_err(failed)?
    {
        return Ok(false);
    }
    let Some(note) = record_of(writers, lease.inode, &lease.path, &lease.holder)? else { return Ok(false) };
    let size = lease.file.stat().map_err(failed)?.attr.size;
    if !writers.leases.notes().take(lease.inode, note.id).map_err(failed)? {
        return Ok(false);
    }
    // A block that begins here is newer than those of the former gateway, however far the clocks differ.
    writers.generation.fetch_max(note.generation.max(note.last_generation), Ordering::Relaxed);
    writers.leases.resume(lease, &note, size)?;
    tracing::info!(
        path = lease.path,
        holder = lease.holder,
        "a writer continues here with its lease of another gateway"
    );
    Ok(true)
}

fn record_of(writers: &FileWriters, inode: u64, path: &str, holder: &str) -> Result<Option<LeaseRecord>, Exception> {
    let notes = match writers.leases.notes().of_file(inode) {
        Err(error) if is_deleted(&error) => return Ok(None),
        notes => notes.map_err(|error| Exception::of(error, path))?,
    };
    Ok(notes.into_iter().find(|note| note.holder == holder))
}
