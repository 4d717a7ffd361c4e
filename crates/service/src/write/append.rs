//! Appends: the end of a file that writers on several servers extend.
//!
//! Guarantees: an append begins where the file ends with everything acknowledged before.

use frieze_base::{ChainId, Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_metadata::OtherWriter;
use frieze_namespace::Inode;
use frieze_planes::{FileVersion, Principal, RemoteReach, granted_chains};
use frieze_wire::txn::{Grant, Op};

use crate::write::{GRANT_CHUNKS_MAX, Writers, check_granted, check_one_writer};

impl Writers {
    /// The end of a file according to other servers, before an append to a chunk of `chain`. Writes in flight through
    /// other chains of this server are looked at here.
    pub(super) fn remote_end(&self, id: InodeId, chain: ChainId) -> Result<RemoteReach, Fault> {
        let inode = self.planes.current(id)?;
        let remote = self.files.written_remotely(id, &inode)?;
        let mut others = granted_chains(id, &inode);
        others.retain(|other| *other != chain && self.planes.data.is_member(*other));
        if self.planes.data.has_to_query_tail(others.iter().copied())
            && self.files.append_end(&mut FileVersion::at(id, inode.clone(), None), chain, &remote).is_err()
        {
            self.planes.data.await_tails(others.into_iter())?;
        }
        let tail_of = |remote: &RemoteReach, upto| {
            remote.of(&FileVersion::at(id, inode.clone(), upto)).and_then(|(_, tail)| tail.highest)
        };
        if let Some(last) = tail_of(&remote, Some(Hlc::MAX))
            && u64::from(last.0) * inode.chunk_bytes() + u64::from(last.1)
                >= self.files.current_extent_with(id, &inode, remote.clone())?.0
            && tail_of(&self.files.remote_reach(&[&FileVersion::at(id, inode.clone(), None)])?, None) < Some(last)
        {
            let words = "what the file ends with is not committed yet where it is: try again";
            return Err(Fault::new(Reason::Unavailable, words));
        }
        Ok(remote)
    }

    /// Checks that this server has all user times of a file: its own and those of its clone origin.
    pub(super) fn check_times_here(&self, id: InodeId, inode: &Inode) -> Result<(), Fault> {
        self.files.check_whole_here(&FileVersion::at(id, inode.clone(), None))?;
        let Some((from, then)) = inode.origin() else { return Ok(()) };
        // The origin's times count even if the origin may no longer be read.
        let origin = self.planes.meta.inode(from, Some(then))?;
        self.files.check_whole_here(&FileVersion::at(from, origin, None))
    }

    /// Ensures that the session may write the chunks that an append of `len` bytes touches. `reaches_over`: also that
    /// its record may reach over the end of the chunk it begins in.
    pub(super) fn grant_tail(
        &self,
        principal: &Principal,
        session: SessionId,
        id: InodeId,
        (len, reaches_over): (u64, bool),
        remote: &RemoteReach,
    ) -> Result<(), Fault> {
        let inode = self.planes.current(id)?;
        let (size, _, _) = self.files.current_extent_with(id, &inode, remote.clone())?;
        let chunk_bytes = inode.chunk_bytes();
        let first = (size / chunk_bytes) as u32;
        // One chunk more than needed: another append may move the end over a boundary meanwhile.
        let last = (size.saturating_add(len) / chunk_bytes + 1).min(u32::MAX.into()) as u32;
        let may_write = (first..last).all(|chunk| inode.may_write_chunk(session, chunk));
        if may_write && (!reaches_over || inode.reaches_over(first)) {
            return Ok(());
        }
        if !self.planes.meta.leads() {
            // Only the leader grants: the client asks it.
            return check_granted(id, session, self.planes.meta.missing_grant(&inode, session, first..last));
        }
        check_one_writer(id, OtherWriter::of(&inode, session))?;
        for first in (first..=last).step_by(GRANT_CHUNKS_MAX as usize) {
            let grant = Grant { inode: id.0, first, count: (last - first + 1).min(GRANT_CHUNKS_MAX) };
            self.grant(principal, session, if reaches_over { Op::GrantAppend(grant) } else { Op::Grant(grant) })?;
        }
        Ok(())
    }
}
