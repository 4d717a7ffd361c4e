//! A member whose majority is lost for good, made the only one: what its journal holds goes on, without the others.
//!
//! Guarantees: every entry of the journal stays, known to be committed or not; the change is one record of the journal,
//! so that after a crash there is the old member or the new one; the next ordinary recovery executes it.
//! Leaves to others: whether that is meant, and what is said of what may be lost ([`Survivor::known_stamp`] is where
//! that begins).
//!
//! An entry that is not known to be committed here is kept: a majority may have held it, and a client may have been
//! answered by it. To drop it would lose for certain what otherwise may never have been acknowledged. A lost majority
//! may also have put other entries in its place; those are stamped above the last entry that is known to be committed,
//! like all that this member never received.

use frieze_base::{LogIndex, NodeId, SegmentId};
use frieze_hlc::Hlc;

use super::journal::FlushDue;
use super::message::{BatchDurability, EntryKind, MemberChange, MemberEffect, Members, PeerEntry};
use super::peer;
use super::record::{self, JournalBase, JournalRecord};
use super::recover::{JournalRead, MemberFrom};
use super::salvage::{SalvageFrom, SalvagedJournal};
use super::settings::MemberSettings;
use crate::error::Error;
use crate::message::DataEnd;
use crate::recover::{Mend, SegmentSource};

/// What is left of a metalog at one member, before it goes on alone.
pub struct Survivor {
    id: NodeId,
    read: JournalRead,
    known: LogIndex,
    known_stamp: Hlc,
    members: Members,
    damaged_files: Vec<SegmentId>,
}

/// How a survivor goes on.
#[derive(Debug)]
pub struct SoleMember {
    /// What the driver does first, in order.
    pub mend: Vec<Mend>,
    /// What it writes then, and makes durable.
    pub effects: Vec<MemberEffect>,
    /// The entry that says so, the last one of the log.
    pub entry: LogIndex,
    /// The files of a damaged journal. A start refuses them: the driver sets them aside once `effects` are on stable
    /// storage.
    pub damaged_files: Vec<SegmentId>,
}

impl Survivor {
    /// Reads the journal of a member that does not run.
    ///
    /// # Errors
    /// As [`RaftMember::recover`](super::RaftMember::recover).
    pub fn read(
        settings: &MemberSettings,
        from: &MemberFrom,
        source: &mut dyn SegmentSource,
    ) -> Result<Survivor, Error> {
        Ok(Survivor::of(from, JournalRead::of(settings, from, source)?, Vec::new()))
    }

    /// Reads what is left of a damaged journal: the records before the damage.
    ///
    /// # Errors
    /// As [`RaftMember::salvage`](super::RaftMember::salvage).
    pub fn salvage(
        settings: &MemberSettings,
        from: &SalvageFrom,
        source: &mut dyn SegmentSource,
    ) -> Result<Survivor, Error> {
        let SalvagedJournal { read, files, .. } = SalvagedJournal::read(settings, from, false, source)?;
        Ok(Survivor::of(&from.member, read, files))
    }

    fn of(from: &MemberFrom, read: JournalRead, damaged_files: Vec<SegmentId>) -> Survivor {
        let found = &read.found;
        let base = found.base.as_ref().map(|base| base.meta.clone()).unwrap_or_default();
        // What the store holds was committed.
        let known = found.state.commit.max(base.index.0).max(from.applied.0).min(found.last().0);
        let stamps = found.entries.iter().filter(|entry| entry.index <= known);
        let known_stamp = stamps.filter_map(|entry| record::stamp_of(&entry.data)).max().unwrap_or(Hlc::ZERO);
        let mut members = base.members;
        for entry in found.entries.iter().map(peer::entry_out).filter(|entry| entry.kind == EntryKind::Change) {
            if let Some(change) = peer::decode_change(&entry.data) {
                peer::change_members(&mut members, &change);
            }
        }
        let (id, known) = (from.id, LogIndex(known));
        Survivor { id, known_stamp: known_stamp.max(base.stamp), known, members, read, damaged_files }
    }

    /// Last record of the journal.
    pub fn last_record(&self) -> LogIndex {
        self.read.report.last
    }

    /// Last entry of the journal.
    pub fn last(&self) -> LogIndex {
        self.read.found.last()
    }

    /// Newest stamp in the journal.
    pub fn newest(&self) -> Hlc {
        self.read.found.newest.max(self.known_stamp)
    }

    /// Last entry that is known to be committed.
    pub fn known(&self) -> LogIndex {
        self.known
    }

    /// Everything committed that is stamped up to this is in the journal, or in the state before it: the log is in the
    /// order of its stamps. Of what is stamped above, this member cannot vouch.
    pub fn known_stamp(&self) -> Hlc {
        self.known_stamp
    }

    /// The members, with the changes that are not known to be committed.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Makes it the only member: the others go, and the batch `body`, stamped `stamp`, says what became of them.
    ///
    /// # Errors
    /// `DeviceFailed`: the record cannot be written.
    ///
    /// # Panics
    /// If the stamp is not above [`Survivor::newest`].
    pub fn go_on(self, stamp: Hlc, body: &[u8]) -> Result<SoleMember, Error> {
        assert!(stamp > self.newest(), "stamp {stamp} is not above {}, the newest of the log", self.newest());
        let Survivor { id, read, members, damaged_files, .. } = self;
        let JournalRead { mut journal, found, anew, mend, mut effects, .. } = read;
        // Above every term that it knows of: no leader of before can be taken for one of now.
        let base_term = found.base.as_ref().map_or(0, |base| base.meta.term);
        let term = found.state.term.max(base_term) + 1;
        // It has a say, whatever it was, before the others go.
        let others = members.voters.iter().chain(&members.learners).filter(|other| **other != id);
        let mut changes = vec![peer::change_of(MemberChange::Promote(id))];
        changes.extend(others.map(|other| peer::change_of(MemberChange::Remove(*other))));
        let mut index = found.last().0;
        let mut put = |kind, data| {
            index += 1;
            PeerEntry { kind, index: LogIndex(index), term, data }
        };
        let mut entries: Vec<PeerEntry> =
            changes.iter().map(|change| put(EntryKind::Change, peer::change_data(change))).collect();
        let batch = record::encode_batch(stamp, 1, DataEnd::default(), BatchDurability::Stable, body);
        entries.push(put(EntryKind::Normal, batch.into()));
        let base = found.base.filter(|_| anew).map(|base| JournalBase { needed: 0, ..base });
        let record = JournalRecord { term, vote: id.0.into(), commit: index, base, entries };
        journal.append(record, FlushDue::Now, &mut effects)?;
        Ok(SoleMember { mend, effects, entry: LogIndex(index), damaged_files })
    }
}
