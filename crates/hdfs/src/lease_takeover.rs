//! Writers whose door is gone: they go on at another, with their lease.
//!
//! A lease is noted on the file that is written ([`crate::lease_store`]): whose it is, where its block begins; how far that is, the file says. A
//! client that has lost its door asks the next one (all doors of a cluster are name nodes of one service to it), by the name that it called
//! itself before, and that one takes the note and goes on where the other was. What the other had received from that client and not written
//! yet may still come to the file: it is what the client sends again, the same bytes at the same place. So nothing has to be waited for.
//!
//! Guarantees: of several doors that would go on with a lease one does, for a note is taken once. None does when somebody
//! has taken the file meanwhile, for he takes the notes too ([`crate::peer_gateways`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frieze_client::{InodeId, OpenFlags, Target};

use crate::attributes::is_gone;
use crate::blocks::inode_of;
use crate::exception::Exception;
use crate::file_writers::FileWriters;
use crate::lease::FileLease;
use crate::lease_record::LeaseRecord;
use crate::leases::{LeaseRequest, Revocation};
use crate::peer_gateways::RemoteWriter;

/// The lease of `holder` on a file, wherever it was given.
///
/// # Errors
/// `LeaseExpiredException` if it has none.
pub(crate) fn held(writers: &FileWriters, inode: u64, path: &str, holder: &str) -> Result<Arc<FileLease>, Exception> {
    match writers.leases.held(inode, path, holder) {
        Err(none) if !writers.client.has_others() || inode == 0 || writers.leases.has(inode) => Err(none),
        Err(none) => take_over(writers, inode, path, holder)?.ok_or(none),
        held => held,
    }
}

/// The same of the file of which it writes that block.
///
/// # Errors
/// `LeaseExpiredException` if there is none.
pub(crate) fn held_of_block(writers: &FileWriters, block: u64, holder: &str) -> Result<Arc<FileLease>, Exception> {
    let inode = writers.leases.file_of(block, holder).or_else(|| inode_of(block)).unwrap_or(0);
    held(writers, inode, "", holder).map_err(|exception| match inode {
        0 => Exception::lease_expired(format!("{holder} does not write block {block}")),
        _ => exception,
    })
}

/// Goes on here with a lease that was given at another door, or by what this one was before; `None` if there is none.
fn take_over(writers: &FileWriters, inode: u64, path: &str, holder: &str) -> Result<Option<Arc<FileLease>>, Exception> {
    let Some(note) = note_of(writers, inode, path, holder)? else { return Ok(None) };
    let failed = |error| Exception::of(error, path);
    let caller = note.caller();
    let fs = writers.client.fs().as_caller(caller.clone());
    let file = fs.open(&Target::inode(InodeId(inode)), OpenFlags::WRITE).map_err(failed)?;
    let LeaseRecord { path, block_bytes, next, .. } = note.clone();
    let holder = holder.to_owned();
    let lease =
        writers.leases.give(LeaseRequest { inode, path, holder, block_bytes, file, caller, machine: None, next })?;
    match go_on(writers, &lease, &note) {
        Ok(true) => Ok(Some(lease)),
        other => {
            writers.close(lease, None)?;
            other.map(|_| None)
        }
    }
}

/// False: somebody has taken it.
fn go_on(writers: &FileWriters, lease: &FileLease, note: &LeaseRecord) -> Result<bool, Exception> {
    let failed = |error| Exception::of(error, &lease.path);
    // Who takes the file from now on sees that somebody writes here, and asks; who has taken it before has the note.
    lease.file.prepare_write(note.start.unwrap_or(note.next), 1).map_err(failed)?;
    // The door that gave it may be there, and the client not reach it; it notes nothing more when it has answered. What it has received of this
    // client, if it does not answer, is in nobody's way but others', who ask.
    if let RemoteWriter::Held(_) =
        writers.peers.writer_of(lease.inode, Revocation::Of(&lease.holder)).map_err(failed)?
    {
        return Ok(false);
    }
    let Some(note) = note_of(writers, lease.inode, &lease.path, &lease.holder)? else { return Ok(false) };
    let size = lease.file.stat().map_err(failed)?.attr.size;
    if !writers.leases.notes().take(lease.inode, note.id).map_err(failed)? {
        return Ok(false);
    }
    // What this door begins is newer than what the other has, however far their clocks are apart.
    writers.generation.fetch_max(note.generation.max(note.last_generation), Ordering::Relaxed);
    writers.leases.go_on(lease, &note, size)?;
    tracing::info!(path = lease.path, holder = lease.holder, "a writer goes on here with its lease of another door");
    Ok(true)
}

fn note_of(writers: &FileWriters, inode: u64, path: &str, holder: &str) -> Result<Option<LeaseRecord>, Exception> {
    let notes = match writers.leases.notes().of_file(inode) {
        Err(error) if is_gone(&error) => return Ok(None),
        notes => notes.map_err(|error| Exception::of(error, path))?,
    };
    Ok(notes.into_iter().find(|note| note.holder == holder))
}
