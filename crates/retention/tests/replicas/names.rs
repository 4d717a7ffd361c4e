//! The log of names: entries, and the table as of each position.

use std::collections::BTreeMap;

use frieze_base::InodeId;
use frieze_hlc::Hlc;
use frieze_retention::{PolicyNumber, RetentionEntry, RetentionPolicy, RetentionTable};

use crate::breakage::RetentionBreak;
use crate::common::TruncateList;

pub(crate) const FILES: u64 = 2;
/// First second of the world.
pub(crate) const BEGIN: u64 = 1_000_020;
/// How far a clock may be behind, in seconds: the judge walks over every instant from there.
pub(crate) const BEHIND_MAX: u64 = 120;
const POLICIES: [&str; 3] =
    ["all 10s, 1/5s 30s, 1/15s 1min, 1/30s 4min", "all 15s, 1/5s 1min, 1/30s forever", "all 30s"];

pub(crate) fn seconds(seconds: u64) -> Hlc {
    Hlc::last_of_micros(seconds * 1_000_000)
}

#[derive(Clone, Debug)]
pub(crate) enum NamesEntry {
    Retain(RetentionEntry),
    Truncate(InodeId, u64),
}

/// The log, and what its entries make. Index: the position, with nothing at 0.
#[derive(Debug)]
pub(crate) struct NamesLog {
    broken: Option<RetentionBreak>,
    pub(crate) entries: Vec<(Hlc, NamesEntry)>,
    pub(crate) tables: Vec<RetentionTable>,
    pub(crate) truncates: Vec<TruncateList>,
}

impl NamesLog {
    pub(crate) fn new(broken: Option<RetentionBreak>) -> NamesLog {
        let (tables, truncates) = (vec![RetentionTable::default()], vec![TruncateList::new()]);
        let mut log = NamesLog { broken, entries: Vec::new(), tables, truncates };
        for (number, text) in (1..).zip(POLICIES) {
            let policy: RetentionPolicy = text.parse().expect("it is a policy");
            log.append(Hlc::ZERO, NamesEntry::Retain(RetentionEntry::MakePolicy(PolicyNumber(number), policy)));
        }
        for inode in 1..=FILES {
            let entry = RetentionEntry::SetPolicy(InodeId(inode), PolicyNumber(inode as u32));
            log.append(Hlc::ZERO, NamesEntry::Retain(entry));
        }
        log
    }

    /// The position of the last entry.
    pub(crate) fn end(&self) -> usize {
        self.entries.len()
    }

    /// Appends an entry with a stamp above those of all entries, and above `closed`.
    pub(crate) fn append(&mut self, closed: Hlc, entry: NamesEntry) {
        let stamp = self.entries.last().map_or(Hlc::ZERO, |(stamp, _)| *stamp).max(closed).next();
        let mut truncates = self.truncates[self.end()].clone();
        if let NamesEntry::Truncate(inode, len) = entry {
            truncates.entry(inode).or_default().push((stamp, len));
        }
        self.truncates.push(truncates);
        self.entries.push((stamp, entry));
        let table = self.table_of(self.end());
        self.tables.push(table);
    }

    fn table_of(&self, position: usize) -> RetentionTable {
        use RetentionBreak as Break;
        let retained = self.entries[..position].iter().filter_map(|(_, entry)| match entry {
            NamesEntry::Retain(entry) => Some(entry.clone()),
            _ => None,
        });
        match self.broken {
            Some(Break::MarkGoesBack | Break::EraForgotten | Break::PinOfThinned) => {}
            _ => {
                let mut table = self.tables[position - 1].clone();
                if let (_, NamesEntry::Retain(entry)) = &self.entries[position - 1] {
                    // A mark of an older leader and a pin of a thinned instant are refused.
                    let _ = table.apply(entry);
                }
                return table;
            }
        }
        let mut entries: Vec<RetentionEntry> = retained.collect();
        match self.broken {
            Some(Break::EraForgotten) => {
                let last: BTreeMap<InodeId, usize> = entries.iter().enumerate().filter_map(set_policy).collect();
                entries =
                    keep(entries, |place, entry| set_policy((place, entry)).is_none_or(|(id, _)| last[&id] == place));
            }
            Some(Break::MarkGoesBack) => {
                let marks: Vec<_> = entries.iter().enumerate().filter_map(mark).collect();
                entries = keep(entries, |place, entry| {
                    let Some((_, this)) = mark((place, entry)) else { return true };
                    let lowers = |(later, other): &(usize, frieze_retention::RetentionMark)| {
                        *later > place
                            && (other.policy, other.class) == (this.policy, this.class)
                            && other.upto < this.upto
                    };
                    !marks.iter().any(lowers)
                });
            }
            _ => {
                let is_pin = |entry: &RetentionEntry| matches!(entry, RetentionEntry::Pin(..));
                let (pins, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_pin);
                entries = pins.into_iter().chain(others).collect();
            }
        }
        replayed(entries)
    }

    /// The table by which records die at `position`.
    pub(crate) fn pass_table(&self, position: usize) -> RetentionTable {
        if self.broken != Some(RetentionBreak::PinIgnored) {
            return self.tables[position].clone();
        }
        let kept = self.entries[..position].iter().filter_map(|(_, entry)| match entry {
            NamesEntry::Retain(RetentionEntry::Pin(..)) => None,
            NamesEntry::Retain(entry) => Some(entry.clone()),
            NamesEntry::Truncate(..) => None,
        });
        replayed(kept.collect())
    }
}

fn replayed(entries: Vec<RetentionEntry>) -> RetentionTable {
    let mut table = RetentionTable::default();
    for entry in &entries {
        let _ = table.apply(entry);
    }
    table
}

fn keep(entries: Vec<RetentionEntry>, is_kept: impl Fn(usize, &RetentionEntry) -> bool) -> Vec<RetentionEntry> {
    entries.into_iter().enumerate().filter(|(place, entry)| is_kept(*place, entry)).map(|(_, entry)| entry).collect()
}

fn set_policy((place, entry): (usize, &RetentionEntry)) -> Option<(InodeId, usize)> {
    match entry {
        RetentionEntry::SetPolicy(inode, _) => Some((*inode, place)),
        _ => None,
    }
}

fn mark((place, entry): (usize, &RetentionEntry)) -> Option<(usize, frieze_retention::RetentionMark)> {
    match entry {
        RetentionEntry::Mark(mark) => Some((place, *mark)),
        _ => None,
    }
}
