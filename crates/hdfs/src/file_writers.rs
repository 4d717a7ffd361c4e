//! The context of calls that write: leases of this gateway, the gateways of other servers, and the rule that a file has
//! one writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frieze_client::{Client, Error, SessionId};

use crate::attributes::is_deleted;
use crate::blocks::wall_ns;
use crate::exception::Exception;
use crate::lease::{FileLease, close_file};
use crate::leases::{Leases, Revocation, SOFT_NS, WriterLease, owned};
use crate::peer_gateways::{PeerGateways, RemoteWriter};
use crate::proto::Token;
use crate::remote_user::CallContext;

/// Files that are being written, here and at other gateways.
pub(crate) struct FileWriters {
    pub(crate) client: Client,
    pub(crate) leases: Leases,
    pub(crate) peers: PeerGateways,
    /// Generation of the last block that was begun.
    pub(crate) generation: AtomicU64,
}

impl FileWriters {
    /// Checks that no client writes a file, at any gateway. A writer that was silent for long does not count.
    ///
    /// # Errors
    /// `AlreadyBeingCreatedException`.
    pub(crate) fn check_free(
        &self,
        context: CallContext<'_>,
        inode: u64,
        path: &str,
        client_name: &str,
    ) -> Result<(), Exception> {
        let wants = context.holder(client_name);
        self.leases.check_free(inode, path, &wants)?;
        self.check_no_remote_writer(inode, path, &wants)
    }

    fn check_no_remote_writer(&self, inode: u64, path: &str, wants: &str) -> Result<(), Exception> {
        match self.remote_writer(inode, Revocation::Silent).map_err(|error| Exception::of(error, path))? {
            RemoteWriter::Nobody | RemoteWriter::Ended => Ok(()),
            other => Err(not_free(other, path, wants)),
        }
    }

    /// The writer of a file at another gateway, or at one that ended a moment ago: that writer is about to continue.
    pub(crate) fn remote_writer(&self, inode: u64, takes: Revocation<'_>) -> Result<RemoteWriter, Error> {
        if !self.client.has_others() {
            return Ok(RemoteWriter::Nobody);
        }
        let found = self.peers.writer_of(inode, takes)?;
        if !matches!(found, RemoteWriter::Nobody | RemoteWriter::Ended) {
            return Ok(found);
        }
        let notes = match self.leases.notes().of_file(inode) {
            Err(error) if is_deleted(&error) => return Ok(RemoteWriter::Nobody),
            notes => notes?,
        };
        let now = wall_ns();
        let left = notes.into_iter().find(|note| note.ended_ns != 0 && now.saturating_sub(note.ended_ns) < SOFT_NS);
        Ok(left.map_or(found, |note| RemoteWriter::Held(note.holder)))
    }

    /// Makes a lease that was just given here the only one, or refuses.
    ///
    /// # Errors
    /// `AlreadyBeingCreatedException` if the file has a writer at another gateway, or is about to.
    pub(crate) fn claim(&self, lease: &FileLease, at: u64) -> Result<(), Exception> {
        if !self.client.has_others() {
            return Ok(());
        }
        let failed = |error| Exception::of(error, &lease.path);
        // First this write becomes visible to others, then others are looked for. So of two concurrent claims one sees
        // the other.
        lease.file.prepare_write(at, 1).map_err(failed)?;
        self.check_no_remote_writer(lease.inode, &lease.path, &lease.holder)?;
        match self.take_all(lease.inode, Revocation::Silent, Some(lease.id)).map_err(failed)? {
            RemoteWriter::Nobody => Ok(()),
            other => Err(not_free(other, &lease.path, &lease.holder)),
        }
    }

    /// Revokes all leases on a file, and those that may be taken over. False: some gateway does not answer now.
    pub(crate) fn take_from_all(&self, inode: u64) -> Result<bool, Error> {
        if !self.client.has_others() {
            return Ok(true);
        }
        // Before the records: the holder of a lease could store it again.
        self.peers.writer_of(inode, Revocation::Any)?;
        Ok(self.take_all(inode, Revocation::Any, None)? == RemoteWriter::Nobody)
    }

    /// Takes the stored leases on a file, but for one, and revokes the leases, until neither is left. In this order a
    /// round that finds neither is the last: a gateway that takes over by a record is a visible writer before it takes
    /// the record.
    fn take_all(&self, inode: u64, takes: Revocation<'_>, but: Option<u64>) -> Result<RemoteWriter, Error> {
        for _ in 0..ROUNDS_MAX {
            let notes = match self.leases.notes().of_file(inode) {
                Err(error) if is_deleted(&error) => return Ok(RemoteWriter::Nobody),
                notes => notes?,
            };
            let stored: Vec<u64> = notes.iter().map(|note| note.id).filter(|id| Some(*id) != but).collect();
            for id in &stored {
                self.leases.notes().take(inode, *id)?;
            }
            // A writer may have continued at this gateway, too.
            let has_ended_here = but.is_none() && self.end_here(inode);
            match self.peers.writer_of(inode, takes)? {
                RemoteWriter::Nobody if stored.is_empty() && !has_ended_here => return Ok(RemoteWriter::Nobody),
                RemoteWriter::Nobody | RemoteWriter::Ended => {}
                kept => return Ok(kept),
            }
        }
        // Every round found one: whether another exists now is unknown.
        Ok(RemoteWriter::Ended)
    }

    /// Ends the lease of this gateway on a file. True if there was one.
    fn end_here(&self, inode: u64) -> bool {
        let Some(lease) = self.leases.end(inode) else { return false };
        close_revoked(lease);
        true
    }

    /// Answers another gateway; `None` if no gateway of this cluster signed the query, or it has expired.
    pub(crate) fn answer_peer(&self, token: &Token) -> Option<Token> {
        let question = self.peers.verify(token)?;
        let takes = question.revocation()?;
        let session = self.client.session().unwrap_or(SessionId(0)).0;
        let (holder, ended) = match self.leases.query(question.inode, takes) {
            WriterLease::Nobody => (String::new(), false),
            WriterLease::By(holder) => (holder, false),
            WriterLease::Ended(lease) => {
                tracing::info!(
                    path = lease.path,
                    holder = lease.holder,
                    "another gateway takes a file from its writer"
                );
                close_revoked(lease);
                (String::new(), true)
            }
        };
        Some(self.peers.reply(&question, session, (holder, ended)))
    }

    /// Ends a lease after a regular close.
    pub(crate) fn close(&self, lease: Arc<FileLease>, end: Option<u64>) -> Result<(), Exception> {
        self.leases.end_this(&lease);
        close_file(lease, end)
    }

    /// Above all generations of this gateway, and those of others, as far as the servers' clocks agree.
    pub(crate) fn next_generation(&self) -> u64 {
        self.generation.fetch_max(wall_ns(), Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Closes a file whose lease was revoked.
fn close_revoked(lease: Arc<FileLease>) {
    let path = lease.path.clone();
    if let Err(exception) = close_file(lease, None) {
        tracing::warn!(path, "what was taken from its writer is not settled yet: {exception}");
    }
}

/// The exception for a file that is not free.
fn not_free(found: RemoteWriter, path: &str, wants: &str) -> Exception {
    match found {
        RemoteWriter::Held(holder) => owned(path, wants, &holder),
        RemoteWriter::Unknown(node) => Exception::already_being_created(format!(
            "Failed to CREATE_FILE {path} for {wants} because it may still be written through server {node}, whose \
             gateway does not answer or was restarted just now: try again when it answers, or in a minute"
        )),
        RemoteWriter::Nobody | RemoteWriter::Ended => Exception::already_being_created(format!(
            "Failed to CREATE_FILE {path} for {wants} because others open and leave it all the time: try again"
        )),
    }
}

/// Another client opens and closes the same file again and again.
const ROUNDS_MAX: u32 = 8;
