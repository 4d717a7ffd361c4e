//! Survivors and answers of random logs, against a judge that knows every byte at every instant.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{InstantAnswer, RecordExtent, TruncateList, answer_at, reduced};
use frieze_base::{ByteRange, ChainEpoch, InodeId, Rng};
use frieze_hlc::Hlc;
use frieze_retention::{
    GridPeriod, KeptSet, PolicyNumber, RetentionEntry, RetentionMark, RetentionSweep, RetentionTable, SweepVerdict,
    surviving_records,
};

const BYTES: u64 = 10;
const FILES: u64 = 2;
const NUMBER: PolicyNumber = PolicyNumber(1);

fn seconds(seconds: u64) -> Hlc {
    Hlc::last_of_micros(seconds * 1_000_000)
}

/// A random log over five minutes, and what is kept of it.
struct RandomLog {
    records: Vec<RecordExtent>,
    truncates: TruncateList,
    table: RetentionTable,
    /// Instants that are worth a question: around stamps, grid points and pins.
    instants: BTreeSet<Hlc>,
}

impl RandomLog {
    fn draw(rng: &mut Rng) -> RandomLog {
        let mut table = RetentionTable::default();
        let policy = "all 20s, 1/5s 1min, 1/15s 2min, 1/30s 10min".parse().expect("it is a policy");
        table.apply(&RetentionEntry::MakePolicy(NUMBER, policy)).expect("it is new");
        let mut log =
            RandomLog { records: Vec::new(), truncates: TruncateList::new(), table, instants: BTreeSet::new() };
        let (mut stamp, mut epoch) = (seconds(1000), 1);
        for number in 1..=rng.between(5, 60) {
            stamp = Hlc(stamp.0 + if rng.chance(6) { 0 } else { 1 + rng.below(seconds(8).0) });
            epoch += u64::from(rng.chance(12));
            let inode = InodeId(1 + rng.below(FILES));
            if rng.chance(10) {
                log.truncates.entry(inode).or_default().push((stamp, rng.below(BYTES)));
            }
            let (a, b) = (rng.below(BYTES + 1), rng.below(BYTES + 1));
            let range = ByteRange::new(a.min(b), a.max(b));
            log.records.push(RecordExtent { number, stamp, epoch: ChainEpoch(epoch), inode, range });
            log.instants.extend([stamp, stamp.previous(), stamp.next()]);
        }
        for inode in (1..=FILES).map(InodeId) {
            log.table.apply(&RetentionEntry::SetPolicy(inode, NUMBER)).expect("there is one");
        }
        log.instants.extend((1000..1000 + 480).step_by(5).map(seconds));
        log
    }

    /// Pins some instants and raises some marks.
    fn thin(&mut self, rng: &mut Rng, closed: u64) {
        let instants: Vec<Hlc> = self.instants.iter().copied().collect();
        for _ in 0..rng.below(3) {
            // One that is not kept is refused.
            let _ = self.table.apply(&RetentionEntry::Pin(InodeId(1 + rng.below(FILES)), *rng.choose(&instants)));
        }
        for mark in self.table.marks_due(seconds(closed)) {
            if !rng.chance(3) {
                self.table.apply(&RetentionEntry::Mark(mark)).expect("it is due");
            }
        }
    }

    /// The numbers that survive, and those of dead records that an index keeps.
    fn reduced(&self, records: &[RecordExtent]) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let (mut live, mut newest_dead) = (BTreeSet::new(), BTreeSet::new());
        for inode in (1..=FILES).map(InodeId) {
            let (mut more, mut dead) = reduced(records, &self.table.kept_set(inode), &self.truncates, inode);
            live.append(&mut more);
            newest_dead.append(&mut dead);
        }
        (live, newest_dead)
    }
}

/// For each byte the number of the record that shows it at an instant; 0: none.
fn state<'a>(
    records: impl Iterator<Item = &'a RecordExtent>,
    truncates: &TruncateList,
    inode: InodeId,
    at: Hlc,
) -> Vec<u64> {
    let mut order: Vec<(Hlc, u64, ByteRange)> = records
        .filter(|record| record.inode == inode)
        .map(|record| (record.stamp, record.number, record.range))
        .collect();
    let cuts = truncates.get(&inode).into_iter().flatten();
    order.extend(cuts.map(|(stamp, len)| (*stamp, 0, ByteRange::new(*len, BYTES.max(*len)))));
    order.sort();
    let mut bytes = vec![0; BYTES as usize];
    for (_, number, range) in order.into_iter().filter(|(stamp, ..)| *stamp <= at) {
        bytes[range.start() as usize..range.end() as usize].fill(number);
    }
    bytes
}

#[test]
fn a_sweep_in_one_range_of_memory_finds_what_a_judge_of_bytes_finds() {
    for seed in 0..20_000 {
        let mut rng = Rng::new(seed);
        let ranges: Vec<ByteRange> = (0..rng.below(12))
            .map(|_| (rng.below(30), rng.below(30)))
            .map(|(a, b)| ByteRange::new(a.min(b), a.max(b)))
            .collect();
        let mut covered = BTreeSet::new();
        let expected: Vec<bool> = ranges
            .iter()
            .map(|range| (range.start()..range.end()).filter(|byte| covered.insert(*byte)).count() > 0)
            .collect();
        for ranges_max in [1, 2, 3, 1000] {
            assert_eq!(surviving_records(&ranges, ranges_max), expected, "seed {seed}: {ranges:?} in {ranges_max}");
        }
    }
}

#[test]
fn a_sweep_that_stops_and_starts_again_finds_the_same() {
    for seed in 0..3_000 {
        let mut rng = Rng::new(seed);
        let mut log = RandomLog::draw(&mut rng);
        log.truncates.clear();
        let closed = 1000 + rng.below(600);
        log.thin(&mut rng, closed);
        let (live, _) = log.reduced(&log.records);
        for inode in (1..=FILES).map(InodeId) {
            let mut newest_first: Vec<RecordExtent> =
                log.records.iter().filter(|record| record.inode == inode).copied().collect();
            newest_first.reverse();
            let expected: BTreeSet<u64> =
                newest_first.iter().map(|record| record.number).filter(|number| live.contains(number)).collect();
            assert_eq!(swept(&mut rng, &newest_first, &log.table.kept_set(inode)), expected, "seed {seed}");
        }
    }
}

/// The survivors of one file, by a sweep that forgets everything but its position now and then.
fn swept(rng: &mut Rng, newest_first: &[RecordExtent], kept: &KeptSet) -> BTreeSet<u64> {
    let (mut survivors, mut place) = (BTreeSet::new(), 0);
    let mut sweep = RetentionSweep::new(kept.clone(), 2);
    while let Some(epoch) = sweep.next_pass(newest_first.get(place).map(|record| record.stamp)) {
        let is_within = |record: &&RecordExtent| record.stamp <= epoch.upto && Some(record.stamp) > epoch.after;
        let mut is_open = false;
        for record in newest_first.iter().filter(is_within) {
            match sweep.step(record.range) {
                SweepVerdict::Survives => _ = survivors.insert(record.number),
                SweepVerdict::Undecided => is_open = true,
                SweepVerdict::Dies => {}
            }
        }
        let next = newest_first.iter().position(|record| Some(record.stamp) <= epoch.after);
        place = next.unwrap_or(newest_first.len());
        if rng.chance(3) && !is_open {
            // A record that survives may have cut the pass too: the rest of the epoch has no verdict to change.
            sweep = RetentionSweep::new(kept.clone(), 2);
        }
    }
    survivors
}

#[test]
fn states_at_kept_instants_are_unchanged_nothing_else_survives_and_answers_stay() {
    let mut exact_between = 0;
    for seed in 0..6_000 {
        let mut rng = Rng::new(seed);
        let mut log = RandomLog::draw(&mut rng);
        let all = log.records.clone();
        // What is left in an index, and the numbers of it that are dead.
        let (mut left, mut dead) = (all.clone(), BTreeSet::new());
        let mut closed = 1000;
        for _ in 0..3 {
            closed += rng.below(250);
            log.thin(&mut rng, closed);
            assert_eq!(log.reduced(&left).0, log.reduced(&all).0, "seed {seed}: the same survive of what is left");
            // Some of the dead go.
            let (live, newest_dead) = log.reduced(&left);
            dead.extend(left.iter().map(|record| record.number).filter(|number| !live.contains(number)));
            let goes = |number: u64| !live.contains(&number) && !newest_dead.contains(&number);
            left.retain(|record| !goes(record.number) || rng.chance(3));
            for inode in (1..=FILES).map(InodeId) {
                let kept = log.table.kept_set(inode);
                for at in log.instants.iter().copied() {
                    let answer = answer_at(&kept, &log.truncates, inode, at, &left);
                    assert_eq!(answer, answer_at(&kept, &log.truncates, inode, at, &all), "seed {seed}: {at}");
                    if answer == InstantAnswer::Exact {
                        let shown = left.iter().filter(|record| !dead.contains(&record.number));
                        let here = state(shown, &log.truncates, inode, at);
                        assert_eq!(here, state(log.records.iter(), &log.truncates, inode, at), "seed {seed}: {at}");
                        exact_between += usize::from(!kept.is_kept(at));
                    } else {
                        assert!(!kept.is_kept(at), "seed {seed}: {at} is kept");
                    }
                }
            }
        }
        check_survivors(&log, seed);
    }
    assert!(exact_between > 10_000, "instants between kept ones are exact where nothing died: {exact_between}");
}

/// A record survives if and only if the state at the end of its epoch, cut off there, shows a byte of it.
fn check_survivors(log: &RandomLog, seed: u64) {
    let (survivors, _) = log.reduced(&log.records);
    let mut ends: BTreeMap<(InodeId, Hlc), Vec<u64>> = BTreeMap::new();
    for record in &log.records {
        let upto = log.table.kept_set(record.inode).epoch_of(record.stamp).upto;
        let shown = ends
            .entry((record.inode, upto))
            .or_insert_with(|| state(log.records.iter(), &log.truncates, record.inode, upto));
        assert_eq!(survivors.contains(&record.number), shown.contains(&record.number), "seed {seed}: {record:?}");
    }
}

#[test]
fn a_file_that_is_only_appended_to_loses_no_instant_and_no_record() {
    let mut log = RandomLog::draw(&mut Rng::new(1));
    let inode = InodeId(1);
    let append = |number: u64| RecordExtent {
        number,
        stamp: seconds(1000).previous().max(Hlc(seconds(1000).0 + number * 777_777)),
        epoch: ChainEpoch(1),
        inode,
        range: ByteRange::new(number, number + 1),
    };
    log.records = (1..=500).map(append).collect();
    log.truncates.clear();
    for mark in log.table.marks_due(seconds(100_000)) {
        log.table.apply(&RetentionEntry::Mark(mark)).unwrap();
    }
    assert_eq!(log.reduced(&log.records).0.len(), 500);
    let kept = log.table.kept_set(inode);
    for record in &log.records {
        assert!(!kept.is_kept(record.stamp), "no stamp is on the grid");
        let answer = answer_at(&kept, &log.truncates, inode, record.stamp, &log.records);
        assert_eq!(answer, InstantAnswer::Exact);
    }
}

#[test]
fn a_mark_of_the_whole_day_is_one_entry_however_many_files_there_are() {
    let mut table = RetentionTable::default();
    table.apply(&RetentionEntry::MakePolicy(NUMBER, "all 1h, 1/min 1d, 1/day 1y".parse().unwrap())).unwrap();
    for inode in 1..=1000 {
        table.apply(&RetentionEntry::SetPolicy(InodeId(inode), NUMBER)).unwrap();
    }
    let day = GridPeriod::of_seconds(86_400).unwrap();
    let upto = day.first_at_or_above(seconds(1_700_000_000)).unwrap();
    table.apply(&RetentionEntry::Mark(RetentionMark { policy: NUMBER, class: 2, upto })).unwrap();
    assert!((1..=1000).all(|inode| !table.kept_set(InodeId(inode)).is_kept(upto.previous())));
}
