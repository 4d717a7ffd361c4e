//! The judge: every committed record, and by brute force what has to be answered at each position of the log of names.

use std::collections::BTreeMap;

use frieze_base::{ByteRange, InodeId};
use frieze_hlc::Hlc;
use frieze_retention::{PolicyNumber, RetentionEntry, RetentionPolicy};

use crate::common::{RecordExtent, TruncateList};
use crate::names::{BEGIN, BEHIND_MAX, NamesEntry, NamesLog, seconds};

pub(crate) const BYTES: u64 = 8;

/// Below the instant, multiples of so many microseconds are kept; `None`: nothing is.
type ThinRule = (Hlc, Option<u64>);

/// What is kept, as plain lists: nothing of the crate's tables is used.
#[derive(Clone, Debug, Default)]
struct JudgedRules {
    policies: BTreeMap<PolicyNumber, (Option<RetentionPolicy>, Vec<ThinRule>)>,
    files: BTreeMap<InodeId, JudgedFile>,
}

#[derive(Clone, Debug, Default)]
struct JudgedFile {
    policy: PolicyNumber,
    past: Vec<ThinRule>,
    pins: BTreeMap<Hlc, u32>,
}

impl JudgedRules {
    fn apply(&mut self, entry: &RetentionEntry) {
        match entry {
            RetentionEntry::MakePolicy(number, policy) => {
                self.policies.insert(*number, (Some(policy.clone()), Vec::new()));
            }
            RetentionEntry::SetPolicy(inode, number) => {
                let file = self.files.entry(*inode).or_default();
                file.past.extend(self.policies.entry(file.policy).or_default().1.clone());
                file.policy = *number;
            }
            RetentionEntry::Mark(mark) => {
                let (policy, rules) = self.policies.get_mut(&mark.policy).expect("a mark has a policy");
                let class = policy.as_ref().expect("it was made").classes().get(mark.class - 1);
                rules.push((mark.upto, class.map(|class| class.period.micros())));
            }
            RetentionEntry::Pin(inode, at) => {
                if self.is_kept(*inode, *at) {
                    *self.files.entry(*inode).or_default().pins.entry(*at).or_default() += 1;
                }
            }
            RetentionEntry::Unpin(inode, at) => {
                let pins = &mut self.files.entry(*inode).or_default().pins;
                match pins.get(at).copied().unwrap_or(0) {
                    0 => {}
                    1 => _ = pins.remove(at),
                    count => _ = pins.insert(*at, count - 1),
                }
            }
        }
    }

    fn last_mark(&self) -> Hlc {
        let past = self.files.values().flat_map(|file| &file.past);
        let marks = self.policies.values().flat_map(|(_, rules)| rules).chain(past);
        marks.map(|(upto, _)| *upto).max().unwrap_or_default()
    }

    fn is_kept(&self, inode: InodeId, at: Hlc) -> bool {
        let Some(file) = self.files.get(&inode) else { return true };
        let marks = self.policies.get(&file.policy).map_or(&[][..], |(_, rules)| rules);
        let leaves = |(upto, period): &ThinRule| {
            let on_grid = |period| at == Hlc::last_of_micros(at.micros()) && at.micros().is_multiple_of(period);
            at >= *upto || period.is_some_and(on_grid)
        };
        file.pins.contains_key(&at) || file.past.iter().chain(marks).all(leaves)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// Committed records by number, from 1.
    pub(crate) truth: Vec<RecordExtent>,
    /// By position.
    rules: Vec<JudgedRules>,
    /// By position and file: kept instants on the grid of seconds, and pins.
    walks: BTreeMap<(usize, InodeId), Vec<Hlc>>,
    /// By file and instant the last position at which it was exact, and the first at which it was refused.
    exact: BTreeMap<(InodeId, Hlc), usize>,
    refused: BTreeMap<(InodeId, Hlc), usize>,
    pub(crate) violations: Vec<String>,
}

impl Judge {
    pub(crate) fn fail(&mut self, words: String) {
        self.violations.push(words);
    }

    pub(crate) fn commit(&mut self, record: RecordExtent) {
        if record.number != self.truth.len() as u64 + 1 {
            self.fail(format!("record {} is committed after {}", record.number, self.truth.len()));
        }
        self.truth.push(record);
    }

    /// Executes what is new in the log.
    pub(crate) fn execute(&mut self, names: &NamesLog) {
        if self.rules.is_empty() {
            self.rules.push(JudgedRules::default());
        }
        while self.rules.len() <= names.end() {
            let mut rules = self.rules[self.rules.len() - 1].clone();
            if let (_, NamesEntry::Retain(entry)) = &names.entries[self.rules.len() - 1] {
                rules.apply(entry);
            }
            self.rules.push(rules);
        }
    }

    pub(crate) fn is_kept(&self, inode: InodeId, at: Hlc, position: usize) -> bool {
        self.rules[position].is_kept(inode, at)
    }

    pub(crate) fn pins(&self, inode: InodeId) -> Vec<Hlc> {
        let rules = self.rules.last().expect("there is one");
        rules.files.get(&inode).into_iter().flat_map(|file| file.pins.keys().copied()).collect()
    }

    /// True if the state of the file at the instant has to be exact for a member at the position.
    pub(crate) fn is_exact(&mut self, names: &NamesLog, inode: InodeId, at: Hlc, position: usize) -> bool {
        if self.is_kept(inode, at, position) {
            return true;
        }
        let rules = &self.rules[position];
        // Above the last mark every instant is kept.
        let end = rules.last_mark().micros() / 1_000_000 + 2;
        let walk = self.walks.entry((position, inode)).or_insert_with(|| {
            let pins = rules.files.get(&inode).into_iter().flat_map(|file| file.pins.keys().copied());
            let grid = (BEGIN - BEHIND_MAX - 60..end).map(seconds).filter(|at| rules.is_kept(inode, *at));
            let mut walk: Vec<Hlc> = grid.chain(pins).collect();
            walk.sort();
            walk
        });
        // The kept instants at or above name the epochs.
        let epoch = |stamp: Hlc| walk.partition_point(|kept| *kept < stamp);
        let asked = epoch(at);
        let is_within = |stamp: Hlc| epoch(stamp) == asked;
        let records = self.truth.iter().filter(|record| record.inode == inode && is_within(record.stamp));
        let cuts = names.truncates[position].get(&inode).into_iter().flatten().filter(|(stamp, _)| is_within(*stamp));
        let records: Vec<RecordExtent> = records.copied().collect();
        let shown = painted(records.iter(), cuts);
        records.iter().all(|record| shown.contains(&record.number))
    }

    /// The number of the record that each byte shows at the instant; 0: none.
    pub(crate) fn state(&self, names: &NamesLog, inode: InodeId, at: Hlc) -> Vec<u64> {
        state(self.truth.iter(), names.truncates.last().expect("there is one"), inode, at)
    }

    /// Notes an answer. One changes by what is executed only, and only from exact to refused.
    pub(crate) fn note(&mut self, inode: InodeId, at: Hlc, position: usize, is_exact: bool) {
        let exact = self.exact.entry((inode, at)).or_default();
        let refused = self.refused.entry((inode, at)).or_insert(usize::MAX);
        match is_exact {
            true => *exact = position.max(*exact),
            false => *refused = position.min(*refused),
        }
        if *refused <= *exact {
            let words = format!("{at} of {inode} was refused at {refused}, and exact at {exact}");
            self.fail(words);
        }
    }
}

pub(crate) fn state<'a>(
    records: impl Iterator<Item = &'a RecordExtent>,
    truncates: &'a TruncateList,
    inode: InodeId,
    at: Hlc,
) -> Vec<u64> {
    let cuts = truncates.get(&inode).into_iter().flatten().filter(|(stamp, _)| *stamp <= at);
    painted(records.filter(|record| record.inode == inode && record.stamp <= at), cuts)
}

fn painted<'a>(
    records: impl Iterator<Item = &'a RecordExtent>,
    cuts: impl Iterator<Item = &'a (Hlc, u64)>,
) -> Vec<u64> {
    let mut order: Vec<(Hlc, u64, ByteRange)> =
        records.map(|record| (record.stamp, record.number, record.range)).collect();
    order.extend(cuts.map(|(stamp, len)| (*stamp, 0, ByteRange::new(*len, BYTES))));
    order.sort_unstable();
    let mut bytes = vec![0; BYTES as usize];
    for (_, number, range) in order {
        bytes[range.start() as usize..range.end() as usize].fill(number);
    }
    bytes
}
