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

use frieze_base::{Fault, LogIndex, Reason, SegmentId};
use frieze_hlc::{Hlc, format_instant};
use frieze_metalog::{
    Error, MemberFrom, MemberRecovered, MemberSettings, Members, RaftMember, SEGMENT_FILE_PREFIX, Salvage, SalvageFrom,
    Salvaged, SnapshotMeta, damaged_header, segment_file_name,
};
use frieze_storage::{DamagedLog, MetalogRole, damaged_log};
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
        let stored = state.versions.applied()?;
        let applied = if has_joined { stored } else { stored.max(FOUNDED_AFTER) };
        let settings = host.member_settings();
        let (unflushed, idle) = (Arc::default(), Arc::new(OnceLock::new()));
        let MetadataHost { seed, incarnation, kept_memory, stamp_bound, .. } = host;
        let data_end = Some(reach.data_end);
        let from = MemberFrom { id, seed, incarnation, kept_memory, stamp_bound, applied, installed, data_end };
        let mut journal = SegmentFiles::new(host.disk.clone());
        let begin = |mark| host.begin(DriverStart { applied, mark }, &unflushed, &idle);
        let mut lost_after = None;
        let recovered = RaftMember::recover(settings.clone(), &from, &mut journal).and_then(|recovered| {
            match end_missing(&recovered, durable).filter(|_| standing == MetalogRole::Alone) {
                Some(loss) => Err(loss),
                None => Ok(recovered),
            }
        });
        let raft = match recovered {
            Ok(mut recovered) => {
                notes.extend(recovered.report.cut.iter().map(|cut| format!("the metalog was cut: {cut:?}")));
                let record = recovered.report.last;
                let has_others = recovered.member.members().voters.iter().any(|voter| *voter != id);
                let loss = end_missing(&recovered, durable);
                if let Some(loss) = &loss {
                    notes.push(damaged(reach, standing, &loss.to_string())?);
                    let from = MemberFrom { kept_memory: false, ..from };
                    recovered = RaftMember::recover(settings, &from, &mut journal)?;
                    lost_after = Some(recovered.member.newest());
                }
                if loss.is_some() && has_others {
                    // It may have voted, and acknowledged what it lacks: it takes no part, and shows what it has. Its
                    // files stay as they are.
                    recovered.member.silence(&mut recovered.effects);
                    notes.push(TAKES_NO_PART.to_owned());
                } else {
                    if reach.is_cut || reach.serve_damaged {
                        // The next start must not miss what is cut off now.
                        mark.reset()?;
                    }
                    journal.mend(&recovered.mend)?;
                    // What recovery read may be in the page cache alone: no record is durable without the data that it
                    // names.
                    host.device.flush()?;
                    journal.sync_all()?;
                }
                RaftDriver::begin(begin(mark), recovered.member, journal, record, recovered.effects, &state)
            }
            // No flush of it ever ended, so that nothing was ever confirmed.
            Err(Error::NeverBegun) if is_new(standing, stored, durable) => {
                let mut journal = SegmentFiles::new(host.disk.clone());
                journal.remove_all()?;
                mark.reset()?;
                let process = (host.seed, host.incarnation);
                let (member, effects) = match standing {
                    MetalogRole::Alone => found(id, settings, process),
                    MetalogRole::Joining | MetalogRole::Member => RaftMember::join(id, settings, process),
                };
                RaftDriver::begin(begin(mark), member, journal, LogIndex(0), effects, &state)
            }
            Err(error) if error.is_loss() => {
                let error = match error {
                    Error::NeverBegun => match damaged_header(&mut journal)? {
                        Some(segment) => Error::HeaderDamaged { segment },
                        None => Error::NoSegment { applied: stored },
                    },
                    error => error,
                };
                notes.push(damaged(reach, standing, &error.to_string())?);
                let whose = match standing {
                    MetalogRole::Alone => Salvage::OnlyVoter,
                    MetalogRole::Joining | MetalogRole::Member => Salvage::OneOfSeveral,
                };
                let from = SalvageFrom { member: from, stamp: state.versions.newest_change(), durable, whose };
                let Salvaged { member, effects, record, lost_after: after, files } =
                    RaftMember::salvage(settings, &from, &mut journal)?;
                let mut aside = std::mem::replace(&mut journal, SegmentFiles::new(host.disk.clone()));
                if whose == Salvage::OneOfSeveral {
                    lost_after = Some(member.newest());
                    notes.push(TAKES_NO_PART.to_owned());
                    RaftDriver::begin(begin(mark), member, journal, record, effects, &state)
                } else {
                    // The mark stays: the numbers of the new records are above it.
                    lost_after = after;
                    host.device.flush()?;
                    let raft = RaftDriver::begin(begin(mark), member, journal, record, effects, &state);
                    if state.read().format().is_none() {
                        remove_others(&host, &files)?;
                        let words = format!("{error}. Nothing of the names is left: put back what is missing");
                        return Err(Fault::new(Reason::Corrupt, words));
                    }
                    note_lost(&host, lost_after)?;
                    raft.flush(&state, None)?;
                    aside.set_aside(&files)?;
                    notes.push(match lost_after {
                        Some(after) => format!("changes of names after {} may be missing", format_instant(after)),
                        None => "no change of names is missing: the store of names has what the damaged records had"
                            .to_owned(),
                    });
                    raft
                }
            }
            Err(Error::Missing { found, .. }) if stored == LogIndex(0) => {
                return Err(Fault::new(
                    Reason::Corrupt,
                    format!(
                        "the store of names, the directory 'namespace' of the data directory, is missing or empty: the \
                         metalog goes on behind entry {found}, which it held. Put the directory back from a backup; \
                         without it the names cannot be read"
                    ),
                ));
            }
            Err(error) => return Err(error.into()),
        };
        if raft.status().failed.is_none() {
            raft.flush(&state, None)?;
        }
        if standing == MetalogRole::Joining {
            host.keeper.update(|identity| identity.standing = MetalogRole::Member as i32)?;
        }
        Ok((Metadata { state, raft, host, unflushed, idle, lost_after }, notes))
    }

    /// Refuses, if the journal of this member of several is damaged: it may have voted by what it lost, so it takes no
    /// part, and it can be looked at only.
    ///
    /// # Errors
    /// `Corrupt`, with what to do. That of a device that has failed.
    pub fn check_takes_part(&self) -> Result<(), Fault> {
        match self.raft.status().failed {
            None => Ok(()),
            Some(fault) if fault.reason != Reason::Corrupt => Err(fault),
            Some(_) => {
                let words = format!(
                    "the metalog of this server is damaged, and it may have voted by what it lost, so that it takes no \
                     part, with serve_damaged = true, too. 'frieze export DIR' reads what is left. {ONE_OF_SEVERAL}"
                );
                Err(Fault::new(Reason::Corrupt, words))
            }
        }
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

/// What is missing at the end of a journal of which entries and records up to `durable` were on stable storage.
fn end_missing(recovered: &MemberRecovered, durable: (LogIndex, LogIndex)) -> Option<Error> {
    let (entry, record, end) = (recovered.member.last(), recovered.report.last, recovered.report.end);
    match () {
        () if entry < durable.0 => Some(Error::EndMissing { what: "entry", last: entry, durable: durable.0, end }),
        () if record < durable.1 => Some(Error::EndMissing { what: "record", last: record, durable: durable.1, end }),
        () => None,
    }
}

/// Notes in the directory, durably, what is lost with a damaged journal: the next start finds a whole one, whenever
/// this process ends.
fn note_lost(host: &MetadataHost, lost_after: Option<Hlc>) -> Result<(), Fault> {
    let Some(after) = lost_after else { return Ok(()) };
    host.keeper.update(|identity| {
        identity.add_gap(after, host.stamp_bound.max(after));
        identity.last_whole = after.0;
        // Until inode numbers are left out.
        identity.is_returning = true;
    })
}

/// Removes the segments that are not among `files`: the journal does not begin anew.
fn remove_others(host: &MetadataHost, files: &[SegmentId]) -> Result<(), Fault> {
    let kept: Vec<String> = files.iter().map(|segment| segment_file_name(*segment)).collect();
    for name in host.disk.list()?.iter().filter(|name| name.starts_with(SEGMENT_FILE_PREFIX) && !kept.contains(name)) {
        host.disk.remove(name)?;
    }
    Ok(host.disk.sync_dir()?)
}

/// Decides about a damaged journal: refuse, or report and continue.
fn damaged(reach: &RecoverUpto, standing: MetalogRole, loss: &str) -> Result<String, Fault> {
    damaged_log(reach.serve_damaged, &METALOG, loss).map_err(|fault| match standing {
        MetalogRole::Alone => fault,
        MetalogRole::Joining | MetalogRole::Member => {
            let words = format!("{}. {ONE_OF_SEVERAL}", fault.message);
            Fault::new(fault.reason, words)
        }
    })
}

/// What a start says of a damaged metalog.
const METALOG: DamagedLog = DamagedLog { log: "metalog", left: "changes of names at its end are missing" };
const TAKES_NO_PART: &str = "this member of the metalog takes no part in it: replace the server";
const ONE_OF_SEVERAL: &str = "This server is one of several: while a majority of the others runs, set the directory \
    aside and let the server join anew with an empty one. If they are lost for good, 'frieze cluster recover --dir \
    DIR' goes on from another server whose directory is whole";

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
