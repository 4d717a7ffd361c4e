//! Questions about sessions, and about what they may write.
//!
//! Guarantees: as in `reader`. What one write asks is one question, answered with a few fields.

use frieze_base::{ChunkId, Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::{Inode, MAY_WRITE, SessionState, check_access};
use frieze_wire::message::FileKind;
use frieze_wire::txn::Caller;

use super::facts::{ChunkLayout, FileChunks, MissingGrant, OpenSessions, OtherWriter, SessionGrants, WriteTarget};
use super::metadata::Metadata;

/// What sessions may write.
impl Metadata {
    /// A file as the writes of `session` see it, without a copy of the inode unless the file has a time plug-in.
    ///
    /// # Errors
    /// `HistoryExpired` if the file was forgotten whole, `StaleHandle` if there is none.
    pub fn write_target(&self, id: InodeId, session: SessionId) -> Result<WriteTarget, Fault> {
        let namespace = self.state.read();
        namespace.check_kept(id, None)?;
        let inode = namespace.current(id).ok_or(Reason::StaleHandle)?;
        let grants = inode.grants().iter().filter(|grant| grant.session == session && !grant.is_stopped);
        Ok(WriteTarget {
            kind: inode.kind(),
            layout: ChunkLayout::of(&inode),
            timed: (!inode.plugin().is_empty()).then(|| (*inode).clone()),
            granted: grants.flat_map(|grant| grant.chunks.iter().cloned()).collect(),
            is_open: namespace.session(session).is_some(),
            reaches_from: inode.reaches_from(),
            origin: inode.origin(),
            times_after: inode.times_after(),
            // Changed under the lock that is held.
            change_count: self.change_count(),
        })
    }

    /// Count of changes that were executed here since the start. While it is the same, so are names and inodes.
    pub fn change_count(&self) -> u64 {
        self.state.change_count()
    }

    /// A copy of the inode of a file that is about to be written.
    ///
    /// # Errors
    /// As [`Metadata::write_target`].
    pub fn writable_inode(&self, id: InodeId) -> Result<Inode, Fault> {
        let namespace = self.state.read();
        namespace.check_kept(id, None)?;
        Ok(namespace.current(id).ok_or(Reason::StaleHandle)?.into_owned())
    }

    /// The first of these chunks that `session` may not write, by this version of the inode.
    pub fn missing_grant(
        &self,
        inode: &Inode,
        session: SessionId,
        mut chunks: impl Iterator<Item = u32>,
    ) -> Option<MissingGrant> {
        let chunk = chunks.find(|chunk| !inode.may_write_chunk(session, *chunk))?;
        Some(MissingGrant { chunk, is_open: self.has_session(session) })
    }

    /// The grant under which `session` wrote a record, by bytes of the file and stamp, if that grant was lost and
    /// nothing else lets the record count: what a loss took, it took at every instant up to the end of the gap. The
    /// file's next version hides the record ([`frieze_namespace::Namespace::lose`]).
    ///
    /// # Errors
    /// `StaleHandle` if the file was lost, too; the store's.
    ///
    /// # Cost
    /// None unless changes up to the stamp may have been lost; else a read of the history.
    pub fn lost_grant(
        &self,
        id: InodeId,
        session: SessionId,
        (start, end): (u64, u64),
        stamp: Hlc,
    ) -> Result<Option<MissingGrant>, Fault> {
        if stamp > self.state.read().lost_upto() {
            return Ok(None);
        }
        // If the history was forgotten, the present says it.
        let then = self.inode(id, Some(stamp)).or_else(|_| self.writable_inode(id))?;
        let chunk = u32::try_from(start / then.chunk_bytes()).unwrap_or(u32::MAX);
        let is_lost = !then.counts_record(start, end);
        Ok(is_lost.then(|| MissingGrant { chunk, is_open: self.has_session(session) }))
    }

    /// True if `session` may write that chunk now.
    pub fn has_grant(&self, session: SessionId, chunk: ChunkId) -> bool {
        self.state.read().has_grant(session, chunk.inode, chunk.index)
    }

    /// As [`OtherWriter::of`], of a file in memory.
    pub fn other_writer(&self, id: InodeId, session: SessionId) -> Option<OtherWriter> {
        self.state.read().current(id).and_then(|inode| OtherWriter::of(&inode, session))
    }

    /// Whether `session` may be given a grant on a file that it says it has open for writing: it has one, or the caller
    /// may write the file. An unknown file is left to the transaction.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub fn check_grantable(&self, id: InodeId, session: SessionId, caller: &Caller) -> Result<(), Fault> {
        let namespace = self.state.read();
        match namespace.current(id) {
            Some(inode) if !holds_grant(&inode, session) => check_access(&inode, caller, MAY_WRITE),
            _ => Ok(()),
        }
    }

    /// The open sessions that have grants on a regular file in memory; `None` if it is none.
    pub fn writers(&self, id: InodeId) -> Option<Vec<(SessionId, SessionState)>> {
        let namespace = self.state.read();
        let inode = namespace.current(id).filter(|inode| inode.kind() == FileKind::File)?;
        let writers = inode.grants().iter();
        Some(writers.filter_map(|grant| Some((grant.session, namespace.session(grant.session)?.clone()))).collect())
    }

    /// Where bytes of a file in memory may lie.
    pub fn file_chunks(&self, id: InodeId) -> Option<FileChunks> {
        self.state.read().current(id).map(|inode| FileChunks::of(&inode))
    }

    /// The same of several files, of one state.
    pub fn chunks_of_files(&self, files: &[InodeId]) -> Vec<(InodeId, FileChunks)> {
        let namespace = self.state.read();
        files.iter().filter_map(|id| Some((*id, FileChunks::of(&*namespace.current(*id)?)))).collect()
    }

    /// What a session may write.
    pub fn session_grants(&self, session: SessionId) -> SessionGrants {
        let namespace = self.state.read();
        let files = namespace.granted(session);
        SessionGrants {
            is_open: namespace.session(session).is_some(),
            may_write: files.iter().any(|id| namespace.may_write(session, *id)),
            files,
        }
    }
}

/// Sessions.
impl Metadata {
    /// True if a session is open.
    pub fn has_session(&self, id: SessionId) -> bool {
        self.state.read().session(id).is_some()
    }

    /// The user of an open session.
    pub fn session_user(&self, id: SessionId) -> Option<u32> {
        self.state.read().session(id).map(|session| session.uid)
    }

    /// True if a session may get a cache lease or a lock here. Among several servers, from the leader, and only if it
    /// declared this when it was opened: so the next leader knows of it.
    pub fn may_keep(&self, id: SessionId) -> bool {
        let declared = || self.state.read().session(id).is_some_and(|session| session.keeps);
        !self.is_member() || (self.leads() && declared())
    }

    /// The open sessions.
    pub fn sessions(&self) -> OpenSessions {
        let namespace = self.state.read();
        let keeping = namespace.sessions().filter(|(_, session)| session.keeps).map(|(id, _)| id);
        OpenSessions { keeping: keeping.collect(), all: namespace.sessions().map(|(id, _)| id).collect() }
    }

    /// Those of some sessions that are not open.
    pub fn closed_sessions(&self, sessions: impl Iterator<Item = SessionId>) -> Vec<SessionId> {
        let namespace = self.state.read();
        sessions.filter(|session| namespace.session(*session).is_none()).collect()
    }

    /// True if a session that changed nothing ended before `before` and is still listed.
    pub fn has_ended_before(&self, before: Hlc) -> bool {
        self.state.read().has_ended_before(before)
    }

    /// Stamp of the newest change of names or attributes that an open session is remembered for.
    pub fn newest_of_session(&self, session: SessionId) -> Option<Hlc> {
        self.state.read().newest_of(session)
    }
}

/// True if `session` has a write grant on a file, stopped or not.
pub fn holds_grant(inode: &Inode, session: SessionId) -> bool {
    inode.grants().iter().any(|grant| grant.session == session)
}
