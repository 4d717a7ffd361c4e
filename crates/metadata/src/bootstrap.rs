//! How a server begins as a member of its metalog: it founds one, waits to be added to one, or restarts as a member.
//!
//! The identity of a directory says what the directory is, and changes in one durable write. A server that begins
//! without others founds a metalog with itself as the only voter. When the first other server joins, the identity says
//! so, and nothing else changes: log, journal and numbers go on. A server that joins others notes that before it has a
//! journal, and notes that it is a member after the first flush of the journal.
//!
//! *Inode numbers.* Each member gives the next number while it executes, so the log decides. Members that lose power
//! together may lose entries with the numbers that they gave, and so does a server that is alone: a leader whose
//! election may have lost entries leaves out as many numbers as can lie in entries that are not durable
//! (`raft_driver/losses.rs`). The bound goes with the state to every member: with it the next number is the same after
//! a restart, and after the state was received, as without.

use std::sync::{Arc, OnceLock};

use frieze_base::{Fault, LogIndex, Reason};
use frieze_metalog::{Error, MemberFrom, MemberSettings, Members, RaftMember, SnapshotMeta};
use frieze_storage::{MetalogRole, damaged_log};
use frieze_wire::peer::metalog::MetalogState;
use prost::Message;

use super::codec;
use super::durable_mark::DurableMark;
use super::host::{DriverStart, MetadataHost, RecoverUpto};
use super::metadata::Metadata;
use super::raft_driver::RaftDriver;
use super::segments::SegmentFiles;
use super::state::AppliedState;
use crate::store::NameVersions;

/// What the files of a journal are called.
pub(super) const SEGMENT_PREFIX: &str = "raft-";
/// A founder begins after this entry, with an empty state: a new member, which has no entry at all, always receives the
/// state.
const FOUNDED_AFTER: LogIndex = LogIndex(1);

impl Metadata {
    /// Loads the namespace from `versions` and executes the metalog on the disk after it, as far as it is known to be
    /// committed and the data log reaches; founds a metalog in an empty directory. Nothing is ordered before
    /// [`Metadata::begin`]. Returns the plane, and in words what was cut and which checkpoints do not count.
    ///
    /// # Errors
    /// `Corrupt` if something that was on stable storage is lost, or an entry cannot be decoded; a member of a cluster
    /// can be replaced by one with another id. The disk's.
    pub fn recover(
        host: MetadataHost,
        versions: NameVersions,
        reach: &RecoverUpto,
    ) -> Result<(Metadata, Vec<String>), Fault> {
        let mut notes = Vec::new();
        let state = AppliedState::load(versions, host.disk.clone(), host.device.shares().names, &mut notes)?;
        let (id, standing, has_joined) =
            host.keeper.with(|identity| (identity.node_id(), identity.standing(), identity.has_joined));
        let name = match state.versions.name()? {
            Some(bytes) => Some(MetalogState::decode(bytes.as_slice()).map_err(|error| {
                Fault::new(Reason::Corrupt, format!("the name of the state received last cannot be read: {error}"))
            })?),
            None => None,
        };
        let installed = name.as_ref().map(codec::state_from_wire);
        let mark = DurableMark::open(&*host.disk)?;
        let durable = match reach.is_cut {
            true => (LogIndex(0), LogIndex(0)),
            false => (reach.durable, mark.read()?),
        };
        if reach.is_cut || reach.serve_damaged {
            // The next start must not miss what is cut off now.
            mark.reset()?;
        }
        let stored = state.versions.applied()?;
        let applied = if has_joined { stored } else { stored.max(FOUNDED_AFTER) };
        let settings = host.member_settings();
        let (unflushed, idle) = (Arc::default(), Arc::new(OnceLock::new()));
        let MetadataHost { seed, incarnation, kept_memory, stamp_bound, .. } = host;
        let data_end = Some(reach.data_end);
        let from = MemberFrom { id, seed, incarnation, kept_memory, stamp_bound, applied, installed, data_end };
        let mut journal = SegmentFiles::new(host.disk.clone(), SEGMENT_PREFIX);
        let begin = |mark| host.begin(DriverStart { applied, mark }, &unflushed, &idle);
        let raft = match RaftMember::recover(settings.clone(), &from, &mut journal) {
            Ok(recovered) => {
                notes.extend(recovered.report.cut.iter().map(|cut| format!("the metalog was cut: {cut:?}")));
                let (last, record) = (recovered.member.last(), recovered.report.last);
                let loss = match () {
                    () if last < durable.0 => Some(("entry", last, durable.0)),
                    () if record < durable.1 => Some(("record", record, durable.1)),
                    () => None,
                };
                if let Some((what, last, durable)) = loss {
                    let loss = format!("it ends with {what} {last}, and was on stable storage up to {what} {durable}");
                    notes.push(damaged_log(reach.serve_damaged, "metalog", &loss)?);
                }
                journal.mend(&recovered.mend)?;
                // What recovery read may be in the page cache alone: no record is durable without the data that it
                // names.
                host.device.flush()?;
                journal.sync_all()?;
                let has_others = recovered.member.members().voters.iter().any(|voter| *voter != id);
                let raft = RaftDriver::begin(begin(mark), recovered.member, journal, record, recovered.effects, &state);
                if loss.is_some() && has_others {
                    // It may have voted, and acknowledged what it lacks: it takes no part, and shows what it has.
                    raft.device_failed(&state, Reason::Corrupt);
                    notes.push("this member of the metalog takes no part in it: replace the server".to_owned());
                }
                raft
            }
            // No flush of it ever ended, so that nothing was ever confirmed.
            Err(Error::NeverBegun) if is_new(standing, stored, durable) => {
                let mut journal = SegmentFiles::new(host.disk.clone(), SEGMENT_PREFIX);
                journal.remove_all()?;
                mark.reset()?;
                let process = (host.seed, host.incarnation);
                let (member, effects) = match standing {
                    MetalogRole::Alone => found(id, settings, process),
                    MetalogRole::Joining | MetalogRole::Member => RaftMember::join(id, settings, process),
                };
                RaftDriver::begin(begin(mark), member, journal, LogIndex(0), effects, &state)
            }
            Err(Error::NeverBegun) if stored > LogIndex(0) => return Err(Error::NoSegment { applied: stored }.into()),
            Err(error) => return Err(error.into()),
        };
        if raft.status().failed.is_none() {
            raft.flush(&state, None)?;
        }
        if standing == MetalogRole::Joining {
            host.keeper.update(|identity| identity.standing = MetalogRole::Member as i32)?;
        }
        Ok((Metadata { state, raft, host, unflushed, idle }, notes))
    }

    /// Begins to order, if this server is alone. A member of several begins with [`Metadata::tick`].
    ///
    /// # Errors
    /// The disk's.
    ///
    /// # Cost
    /// Two flushes of the journal; three after a loss of power.
    pub fn begin(&self) -> Result<(), Fault> {
        if self.raft.is_alone() { self.raft.lead_alone(&self.state) } else { Ok(()) }
    }

    /// Lets other servers become members of the metalog of a server that is alone. `flush_data` makes all data durable.
    /// False, and nothing is done, if they can already.
    ///
    /// # Errors
    /// The disk's, and those of a clock that is not trusted: the server is alone as before.
    pub fn bootstrap(&self, flush_data: &dyn Fn() -> Result<(), Fault>) -> Result<bool, Fault> {
        if self.is_member() {
            return Ok(false);
        }
        flush_data()?;
        if !self.raft.share(&self.state)? {
            return Ok(false);
        }
        let said = self.host.keeper.update(|identity| identity.standing = MetalogRole::Member as i32);
        if let Err(fault) = said {
            // Whatever the directory says now, the log is the same.
            self.raft.unshare();
            return Err(fault);
        }
        Ok(true)
    }
}

/// True if a directory without a journal never had one that counts.
fn is_new(standing: MetalogRole, stored: LogIndex, durable: (LogIndex, LogIndex)) -> bool {
    match standing {
        MetalogRole::Alone => stored == LogIndex(0) && durable == (LogIndex(0), LogIndex(0)),
        MetalogRole::Joining => true,
        MetalogRole::Member => false,
    }
}

/// The only member of a new metalog, and what it does first.
fn found(
    id: frieze_base::NodeId,
    settings: MemberSettings,
    process: (u64, u64),
) -> (RaftMember, Vec<frieze_metalog::MemberEffect>) {
    let members = Members { voters: vec![id], learners: Vec::new() };
    let empty = SnapshotMeta { index: FOUNDED_AFTER, term: 1, members, ..SnapshotMeta::default() };
    RaftMember::found(id, settings, process, empty)
}
