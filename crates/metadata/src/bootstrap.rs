//! How a server becomes a member of a metalog that several servers keep: it bootstraps one, joins one, or restarts as
//! one.
//!
//! The identity of a directory says what the directory is, and changes in one durable write. A server that bootstraps
//! writes its journal first: a crash before the write of the identity leaves a lone server, and the journal is ignored.
//! A server that joins notes that before it has a journal, and notes that it is a member after the first flush of the
//! journal.
//!
//! *Inode numbers.* Each member gives the next number while it executes, so the log decides. A lone machine that loses
//! power may lose entries with the numbers that they gave, and leaves those out (`ids_above` of a batch). So does a
//! group whose members lose power together: a leader whose election may have lost entries leaves out as many numbers as
//! can lie in entries that are not durable (`raft_driver/losses.rs`). The bound goes with the state to every member:
//! with it the next number is the same after a restart, and after the state was received, as without.

use std::sync::{Arc, OnceLock};

use frieze_base::{Fault, InodeId, LogIndex, Reason};
use frieze_metalog::{Error, MemberFrom, MemberSettings, Members, RaftMember, SnapshotMeta};
use frieze_wire::peer::metalog::MetalogState;
use prost::Message;

use super::codec;
use super::durable_mark::DURABLE_MARK_FILE;
use super::host::MetadataHost;
use super::metadata::{LogDriver, Metadata};
use super::raft_driver::{DriverSetup, RaftDriver};
use super::segments::SegmentFiles;
use super::single;
use super::state::AppliedState;
use crate::store::NameVersions;
use frieze_storage::MetalogRole;

/// What the files of a member's journal are called.
pub(super) const SEGMENT_PREFIX: &str = "raft-";

impl Metadata {
    /// Turns a machine that is alone into the only member of a metalog to which others can be added. `flush_data` makes
    /// all data durable. Transactions wait meanwhile. False, and nothing is done, if it is a member already.
    ///
    /// # Errors
    /// The disk's: the machine is alone as before, or changes nothing any more.
    pub fn bootstrap(&self, flush_data: &dyn Fn() -> Result<(), Fault>) -> Result<bool, Fault> {
        let LogDriver::Single(single) = self.order() else { return Ok(false) };
        let mut core = single.lock();
        if core.is_over() {
            return Ok(false);
        }
        flush_data()?;
        let (index, term, stamp) = single.finish(&mut core, &self.state)?;
        let (id, floor) = self.host.keeper.with(|identity| (identity.node_id(), identity.inode_floor));
        let ids_above = self.state.read().last_id().0.max(floor);
        self.state.skip_ids(InodeId(ids_above));
        let mut journal = SegmentFiles::new(self.host.disk.clone(), SEGMENT_PREFIX);
        journal.remove_all()?;
        let members = Members { voters: vec![id], learners: Vec::new() };
        let meta = SnapshotMeta { index, term, stamp, members };
        let settings = self.host.member_settings();
        let begin = self.begin(&settings, index, ids_above);
        let (member, effects) = RaftMember::found(id, settings, (self.host.seed, self.host.incarnation), meta);
        let raft = RaftDriver::begin(begin, member, journal, LogIndex(0), effects, &self.state);
        raft.flush(&self.state, None)?;
        let said = self.host.keeper.update(|identity| {
            identity.standing = MetalogRole::Member as i32;
            identity.ids_above = ids_above;
        });
        if let Err(fault) = said {
            // What the directory says now is not known, so that neither log may go on.
            core.fail(fault.reason);
            return Err(fault);
        }
        raft.lead_single(&self.state)?;
        // Set once: it was alone when the log was locked.
        let _ = self.raft.set(raft);
        core.end();
        remove_lone_log(&self.host);
        Ok(true)
    }

    fn begin(&self, settings: &MemberSettings, applied: LogIndex, ids_above: u64) -> DriverSetup {
        self.host.begin(settings, applied, ids_above, &self.unflushed, &self.idle)
    }

    /// Recovers a member, or begins as one that others will add. Also returns which checkpoints do not count, in words.
    ///
    /// # Errors
    /// `Corrupt` if something that was on stable storage is lost: the member can be replaced by one with another id.
    /// The disk's.
    pub(super) fn recover_member(host: MetadataHost, versions: NameVersions) -> Result<(Metadata, Vec<String>), Fault> {
        let mut notes = Vec::new();
        let state = AppliedState::load(versions, host.disk.clone(), &mut notes)?;
        let (id, standing, ids_above) =
            host.keeper.with(|identity| (identity.node_id(), identity.standing(), identity.ids_above));
        let name = match state.versions.name()? {
            Some(bytes) => Some(MetalogState::decode(bytes.as_slice()).map_err(|error| {
                Fault::new(Reason::Corrupt, format!("the name of the state received last cannot be read: {error}"))
            })?),
            None => None,
        };
        let (installed, received_above) = name.as_ref().map(codec::state_from_wire).unzip();
        let ids_above = ids_above.max(received_above.unwrap_or(0));
        state.skip_ids(InodeId(ids_above));
        let applied = state.versions.applied()?;
        let settings = host.member_settings();
        let (unflushed, idle) = (Arc::default(), Arc::new(OnceLock::new()));
        let begin = host.begin(&settings, applied, ids_above, &unflushed, &idle);
        let MetadataHost { seed, incarnation, kept_memory, stamp_bound, .. } = host;
        let from = MemberFrom { id, seed, incarnation, kept_memory, stamp_bound, applied, installed };
        let mut journal = SegmentFiles::new(host.disk.clone(), SEGMENT_PREFIX);
        let raft = match RaftMember::recover(settings.clone(), &from, &mut journal) {
            Ok(recovered) => {
                journal.mend(&recovered.mend)?;
                journal.sync_all()?;
                let last = recovered.report.last;
                RaftDriver::begin(begin, recovered.member, journal, last, recovered.effects, &state)
            }
            // No flush of it ever ended, so this member never confirmed anything.
            Err(Error::NeverBegun) if standing == MetalogRole::Joining => {
                let mut journal = SegmentFiles::new(host.disk.clone(), SEGMENT_PREFIX);
                journal.remove_all()?;
                let (member, effects) = RaftMember::join(id, settings, (host.seed, host.incarnation));
                RaftDriver::begin(begin, member, journal, LogIndex(0), effects, &state)
            }
            Err(error) => return Err(error.into()),
        };
        raft.flush(&state, None)?;
        if standing == MetalogRole::Joining {
            host.keeper.update(|identity| identity.standing = MetalogRole::Member as i32)?;
        }
        remove_lone_log(&host);
        Ok((Metadata { state, single: None, raft: OnceLock::from(raft), host, unflushed, idle }, notes))
    }
}

/// The log of the time before the machine was a member counts for nothing.
fn remove_lone_log(host: &MetadataHost) {
    let _later = host.disk.remove(DURABLE_MARK_FILE);
    // What stays is removed at the next start.
    let _later = SegmentFiles::new(host.disk.clone(), single::SEGMENT_PREFIX).remove_all();
}
