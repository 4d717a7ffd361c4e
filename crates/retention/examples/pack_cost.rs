//! What a pack costs a record: `cargo run --release -p frieze-retention --example pack_cost`.
//!
//! 100,000 writes of 4 KiB at random places of 100 files of 64 KiB over an hour, thinned to one a minute; then 100,000
//! appends. Nanoseconds of processor for a record, without reading or writing bytes.

use frieze_base::{ByteRange, ChainEpoch, InodeId, LogIndex, Rng};
use frieze_hlc::Hlc;
use frieze_retention::{
    LogPart, PackContent, PackName, PolicyNumber, RecordExtent, RetentionEntry, RetentionTable, TruncateList,
};

const RECORDS: u64 = 100_000;
const FILES: u64 = 100;
const PAGE: u64 = 4096;
const PAGES: u64 = 16;
const HOUR_US: u64 = 3_600_000_000;

fn main() {
    let mut table = RetentionTable::default();
    let policy = "all 1min, 1/min 1d".parse().expect("it is a policy");
    let closed = Hlc::last_of_micros(1_000_000 * 86_400 + 2 * HOUR_US);
    let files = (1..=FILES).map(|inode| RetentionEntry::SetPolicy(InodeId(inode), PolicyNumber(1)));
    for entry in [RetentionEntry::MakePolicy(PolicyNumber(1), policy)].into_iter().chain(files) {
        table.apply(&entry).expect("the policy is new");
    }
    for mark in table.marks_due(closed) {
        table.apply(&RetentionEntry::Mark(mark)).expect("the mark is due");
    }
    let mut rng = Rng::new(1);
    measure("writes at random places", &table, |_| rng.below(PAGES) * PAGE);
    measure("appends", &table, |number| number / FILES * PAGE);
}

fn measure(what: &str, table: &RetentionTable, mut place: impl FnMut(u64) -> u64) {
    let record = |number: u64| {
        let start = place(number);
        LogPart::Record(RecordExtent {
            number,
            stamp: Hlc::first_of_micros(1_000_000 * 86_400 + number * HOUR_US / RECORDS),
            epoch: ChainEpoch(1),
            inode: InodeId(1 + number % FILES),
            range: ByteRange::new(start, start + PAGE),
        })
    };
    let parts: Vec<LogPart> = (1..=RECORDS).map(record).collect();
    let name = PackName { first: 1, last: RECORDS, mark: LogIndex(1) };
    let begun = cpu_ns();
    let made = PackContent::make(name, &parts, table, &TruncateList::new()).expect("no number is missing");
    let each = (cpu_ns() - begun) as f64 / RECORDS as f64;
    let left = made.parts.iter().filter(|part| matches!(part, LogPart::Record(_))).count();
    println!("{what}: {each:.0} ns a record, {left} of {RECORDS} left");
}

/// Processor time of this thread: others may have the rest of the machine.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("it is Linux");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("it begins with the time")
}
