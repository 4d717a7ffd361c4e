//! What a pack has: the surviving records of a stretch of a chain's log, and runs in place of the others.
//!
//! Guarantees: a pack is a function of its name, the records and the log of names up to the mark in the name; so every
//! member of a chain makes the same one, from all records or from what an earlier pack has left of them.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{ByteRange, ChainEpoch, InodeId, LogIndex};
use frieze_hlc::Hlc;

use crate::error::RetentionError;
use crate::kept::KeptSet;
use crate::sweep::{RANGES_MAX, surviving_records};
use crate::table::RetentionTable;

/// A record of a chain, as far as retention looks at it: a write, or a punch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordExtent {
    /// Its number in the chain.
    pub number: u64,
    /// Its stamp. Stamps rise with numbers; records of one group have the same.
    pub stamp: Hlc,
    /// The configuration in which the head gave the number.
    pub epoch: ChainEpoch,
    /// The file.
    pub inode: InodeId,
    /// Its bytes in the file.
    pub range: ByteRange,
}

/// Consecutive records of one configuration that are not kept: what stays known of them.
///
/// `(epoch, number)` names a record for ever, so a run of one configuration says whether the record of a returning
/// member is the chain's, though the chain does not have it any more. `deaths` says which instants are thinned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DroppedRun {
    /// The first number.
    pub first: u64,
    /// The last number.
    pub last: u64,
    /// The stamp of the last one.
    pub stamp: Hlc,
    /// The configuration of all of them.
    pub epoch: ChainEpoch,
    /// For each file and each of its epochs the newest stamp that died: epochs grow together, and it stays within.
    pub deaths: BTreeSet<(InodeId, Hlc)>,
}

/// A part of a chain's log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogPart {
    /// A record that is there.
    Record(RecordExtent),
    /// Records that are not.
    Dropped(DroppedRun),
}

impl LogPart {
    /// The first number.
    pub fn first(&self) -> u64 {
        match self {
            LogPart::Record(record) => record.number,
            LogPart::Dropped(run) => run.first,
        }
    }

    /// The last number.
    pub fn last(&self) -> u64 {
        match self {
            LogPart::Record(record) => record.number,
            LogPart::Dropped(run) => run.last,
        }
    }

    /// The configuration of its records.
    pub fn epoch(&self) -> ChainEpoch {
        match self {
            LogPart::Record(record) => record.epoch,
            LogPart::Dropped(run) => run.epoch,
        }
    }
}

/// The name of a pack within its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackName {
    /// The first number.
    pub first: u64,
    /// The last number.
    pub last: u64,
    /// The entry of the log of names that ordered it: marks, policies and pins count as of there.
    pub mark: LogIndex,
}

/// Truncates by file: stamp and length in bytes. A truncate hides what was written before its stamp.
pub type TruncateList = BTreeMap<InodeId, Vec<(Hlc, u64)>>;

/// The content of a pack, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackContent {
    /// Its name.
    pub name: PackName,
    /// Every number of the name once, in order. No two runs of one configuration follow each other.
    pub parts: Vec<LogPart>,
}

impl PackContent {
    /// Makes the pack `name` out of `parts`, which have every number of the name, in order, and come from all records
    /// or from packs of older marks. `table` and `truncates` are as of the mark in the name.
    ///
    /// A record is compared with later ones of the pack, not with those behind it: so it is known from these numbers
    /// alone, and a later pack of more numbers drops the rest.
    ///
    /// # Errors
    /// `Hole` if a number is missing: the member is not ready to make the pack.
    pub fn make(
        name: PackName,
        parts: &[LogPart],
        table: &RetentionTable,
        truncates: &TruncateList,
    ) -> Result<PackContent, RetentionError> {
        let mut next = name.first;
        for part in parts {
            if part.first() != next {
                return Err(RetentionError::Hole { number: next });
            }
            next = part.last() + 1;
        }
        if next != name.last + 1 {
            return Err(RetentionError::Hole { number: next });
        }
        let kept = KeptSets::of(parts, table);
        let dead = dead_numbers(parts.iter().filter_map(record_of), &kept, truncates);
        let mut made = PackContent { name, parts: Vec::new() };
        for part in parts {
            match part {
                LogPart::Record(record) if !dead.contains(&record.number) => made.parts.push(part.clone()),
                LogPart::Record(record) => made.drop_run(DroppedRun::of(record)),
                LogPart::Dropped(run) => made.drop_run(run.clone()),
            }
        }
        for part in &mut made.parts {
            if let LogPart::Dropped(run) = part {
                run.deaths = kept.newest_deaths(&run.deaths);
            }
        }
        Ok(made)
    }

    fn drop_run(&mut self, run: DroppedRun) {
        match self.parts.last_mut() {
            Some(LogPart::Dropped(before)) if before.epoch == run.epoch => {
                (before.last, before.stamp) = (run.last, run.stamp);
                before.deaths.extend(run.deaths);
            }
            _ => self.parts.push(LogPart::Dropped(run)),
        }
    }
}

impl DroppedRun {
    fn of(record: &RecordExtent) -> DroppedRun {
        let RecordExtent { number, stamp, epoch, inode, .. } = *record;
        DroppedRun { first: number, last: number, stamp, epoch, deaths: BTreeSet::from([(inode, stamp)]) }
    }

    /// The run from `number` on, for a member that has what is before. It says all deaths: the member's own records
    /// of the run are dead too.
    pub fn from_number(&self, number: u64) -> DroppedRun {
        DroppedRun { first: self.first.max(number), ..self.clone() }
    }
}

fn record_of(part: &LogPart) -> Option<&RecordExtent> {
    match part {
        LogPart::Record(record) => Some(record),
        LogPart::Dropped(_) => None,
    }
}

/// The kept instants of the files of some parts.
struct KeptSets(BTreeMap<InodeId, KeptSet>);

impl KeptSets {
    fn of(parts: &[LogPart], table: &RetentionTable) -> KeptSets {
        let mut sets = KeptSets(BTreeMap::new());
        for part in parts {
            match part {
                LogPart::Record(record) => sets.add(record.inode, table),
                LogPart::Dropped(run) => run.deaths.iter().for_each(|(inode, _)| sets.add(*inode, table)),
            }
        }
        sets
    }

    fn add(&mut self, inode: InodeId, table: &RetentionTable) {
        self.0.entry(inode).or_insert_with(|| table.kept_set(inode));
    }

    fn newest_deaths(&self, deaths: &BTreeSet<(InodeId, Hlc)>) -> BTreeSet<(InodeId, Hlc)> {
        let mut newest = BTreeMap::new();
        for (inode, stamp) in deaths {
            // In order of stamps: the last one of an epoch stays.
            newest.insert((*inode, self.0[inode].first_at_or_above(*stamp)), *stamp);
        }
        newest.into_iter().map(|((inode, _), stamp)| (inode, stamp)).collect()
    }
}

/// The numbers of the records that are newest for no byte of their epoch.
fn dead_numbers<'a>(
    records: impl Iterator<Item = &'a RecordExtent>,
    kept: &KeptSets,
    truncates: &TruncateList,
) -> BTreeSet<u64> {
    let mut epochs: BTreeMap<(InodeId, Hlc), Vec<RecordExtent>> = BTreeMap::new();
    for record in records {
        let upto = kept.0[&record.inode].first_at_or_above(record.stamp);
        epochs.entry((record.inode, upto)).or_default().push(*record);
    }
    let mut dead = BTreeSet::new();
    for ((inode, upto), records) in epochs {
        let truncates = truncates.get(&inode).map_or(&[][..], Vec::as_slice);
        let oldest = records.iter().map(|record| record.stamp).min().expect("an epoch is made for a record");
        // Older ones cover nothing that is here.
        let within = truncates.iter().filter(|(stamp, _)| (oldest..=upto).contains(stamp));
        dead.extend(dead_of_epoch(&records, within));
    }
    dead
}

/// The dead of the records of one epoch of one file, which may be in any order.
pub(crate) fn dead_of_epoch<'a>(records: &[RecordExtent], truncates: impl Iterator<Item = &'a (Hlc, u64)>) -> Vec<u64> {
    // A truncate hides what is before its stamp, so it comes first among equals. Its number is 0.
    let hidden = truncates.map(|(stamp, len)| (*stamp, 0, ByteRange::new(*len, u64::MAX)));
    let mut order: Vec<_> = records.iter().map(|record| (record.stamp, record.number, record.range)).collect();
    order.extend(hidden);
    order.sort_unstable_by(|a, b| b.cmp(a));
    let ranges: Vec<ByteRange> = order.iter().map(|(_, _, range)| *range).collect();
    let survives = surviving_records(&ranges, RANGES_MAX);
    let dead = order.iter().zip(survives).filter(|((_, number, _), survives)| *number != 0 && !survives);
    dead.map(|((_, number, _), _)| *number).collect()
}
