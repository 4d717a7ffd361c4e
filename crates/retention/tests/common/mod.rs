//! Records and answers, as the product has them: the rule of `planes::thinning`, of one file without chunks.

#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{ByteRange, ChainEpoch, InodeId};
use frieze_hlc::Hlc;
use frieze_retention::{KeptSet, RANGES_MAX, RetentionEpoch, surviving_records};

/// A record of a chain, as far as retention looks at it: a write, or a punch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordExtent {
    /// Its number in the chain.
    pub(crate) number: u64,
    /// Its stamp. Stamps rise with numbers; records of one group have the same.
    pub(crate) stamp: Hlc,
    /// The configuration in which the head gave the number.
    pub(crate) epoch: ChainEpoch,
    pub(crate) inode: InodeId,
    /// Its bytes in the file.
    pub(crate) range: ByteRange,
}

/// Truncates by file: stamp and length in bytes. A truncate hides what was written before its stamp.
pub(crate) type TruncateList = BTreeMap<InodeId, Vec<(Hlc, u64)>>;

/// What is answered for an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstantAnswer {
    /// The state is that of all records.
    Exact,
    /// A record of this epoch has died: its ends are the neighbours. Final.
    Thinned(RetentionEpoch),
}

/// Whether the state of a file at an instant is exact, by records of the epoch, dead or not.
pub(crate) fn answer_at(
    kept: &KeptSet,
    truncates: &TruncateList,
    inode: InodeId,
    at: Hlc,
    records: &[RecordExtent],
) -> InstantAnswer {
    if kept.is_kept(at) {
        return InstantAnswer::Exact;
    }
    let epoch = kept.epoch_of(at);
    let is_within = |stamp: Hlc| epoch.after.is_none_or(|after| stamp > after) && stamp <= epoch.upto;
    let of_file = records.iter().filter(|record| record.inode == inode && is_within(record.stamp));
    let records: Vec<RecordExtent> = of_file.copied().collect();
    let within = truncates.get(&inode).into_iter().flatten().filter(|(stamp, _)| is_within(*stamp));
    match dead_of_epoch(&records, within).is_empty() {
        true => InstantAnswer::Exact,
        false => InstantAnswer::Thinned(epoch),
    }
}

/// The numbers of the records of a file that are newest for no byte of their epoch, by the epoch's end.
pub(crate) fn dead_numbers(
    records: &[RecordExtent],
    kept: &KeptSet,
    truncates: &TruncateList,
    inode: InodeId,
) -> BTreeMap<Hlc, Vec<u64>> {
    let mut epochs: BTreeMap<Hlc, Vec<RecordExtent>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.inode == inode) {
        epochs.entry(kept.first_at_or_above(record.stamp)).or_default().push(*record);
    }
    let mut dead = BTreeMap::new();
    for (upto, records) in epochs {
        let after = kept.epoch_of(records[0].stamp).after;
        let is_within = |stamp: &Hlc| after.is_none_or(|after| *stamp > after) && *stamp <= upto;
        let within = truncates.get(&inode).into_iter().flatten().filter(|(stamp, _)| is_within(stamp));
        dead.insert(upto, dead_of_epoch(&records, within));
    }
    dead
}

/// The dead of the records of one epoch of one file, which may be in any order.
fn dead_of_epoch<'a>(records: &[RecordExtent], truncates: impl Iterator<Item = &'a (Hlc, u64)>) -> Vec<u64> {
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

/// What an index keeps of the records of a file: those that survive, and the newest dead one of each epoch.
pub(crate) fn reduced(
    records: &[RecordExtent],
    kept: &KeptSet,
    truncates: &TruncateList,
    inode: InodeId,
) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let dead = dead_numbers(records, kept, truncates, inode);
    let all_dead: BTreeSet<u64> = dead.values().flatten().copied().collect();
    let of_file = records.iter().filter(|record| record.inode == inode).map(|record| record.number);
    let live = of_file.filter(|number| !all_dead.contains(number)).collect();
    let newest = dead.values().filter_map(|numbers| numbers.iter().max().copied()).collect();
    (live, newest)
}
