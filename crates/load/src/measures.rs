//! What the study counts, counted from events alone.
//!
//! Bytes, files and calls are those of nine machines and 8.3 days, as the study does: [`Measures::numbers`] multiplies
//! by what the load leaves out. Sizes of files are those of whole regions.

use std::collections::BTreeMap;

use crate::event::{FilePlace, LoadCall, LoadEvent, LoadPurpose};
use crate::messages::MessagesLoad;
use crate::stack_distance::WeightedDistances;

/// What is known of a block, by its number.
#[derive(Clone, Copy, Debug, Default)]
struct BlockUse {
    bytes: u32,
    reads: u32,
    /// Millisecond of the last read plus 1; 0 if there was none.
    last_ms: u32,
    /// Number of its file; 0 if it was never read.
    file: u32,
    by_get: bool,
}

#[derive(Clone, Debug)]
struct FileUse {
    family: usize,
    is_log: bool,
    /// Nanosecond of its creation; `None` for a file from before.
    born_ns: Option<i64>,
    removed_ns: Option<i64>,
    written: u64,
    /// Largest end of a call: the size, or at least that.
    end: u64,
    by_flush: bool,
    closed: bool,
}

/// Sums by purpose, in the order of [`LoadPurpose`].
type ByPurpose = [u64; 4];

/// Counts events of one load.
#[derive(Debug)]
pub struct Measures {
    scale: f64,
    slice: f64,
    days: f64,
    families: Vec<String>,
    blocks: Vec<BlockUse>,
    files: BTreeMap<u64, FileUse>,
    read: ByPurpose,
    written: ByPurpose,
    family_io: Vec<u64>,
    calls: u64,
    events: u64,
    get_reads: u64,
    read_pages: u64,
    written_pages: u64,
    /// Reads of blocks, and those with an earlier read near in place and time.
    block_reads: u64,
    near: [u64; NEAR.len()],
    distances: WeightedDistances,
    /// Pages found by LRU caches of [`CACHES_GB`].
    hits: [u64; CACHES_GB.len()],
    end_ns: i64,
}

/// Thresholds of the locality map: minutes, and blocks to each side (a block is 50 KB, so 1 KB reaches one neighbour,
/// 64 KB two).
const NEAR: [(u32, u64); 6] = [(4, 0), (32, 0), (1, 1), (1, 2), (32, 1), (32, 2)];
/// Caches of one machine, in GB (10^9).
const CACHES_GB: [f64; 4] = [10.0, 30.0, 90.0, 250.0];
const PAGE: u64 = 4096;
const SMALL_MAX: f64 = 16e6;
const LARGE_MIN: f64 = 64e6;

impl Measures {
    /// Ready for the events of `load`.
    pub fn new(load: &MessagesLoad) -> Measures {
        let families: Vec<String> = load.parameters().families.iter().map(|family| family.name.clone()).collect();
        Measures {
            scale: load.size().scale,
            slice: load.slice(),
            days: load.size().days,
            blocks: Vec::new(),
            files: BTreeMap::new(),
            read: [0; 4],
            written: [0; 4],
            family_io: vec![0; families.len() + 1],
            families,
            calls: 0,
            events: 0,
            get_reads: 0,
            read_pages: 0,
            written_pages: 0,
            block_reads: 0,
            near: [0; NEAR.len()],
            distances: WeightedDistances::new(),
            hits: [0; CACHES_GB.len()],
            end_ns: (load.size().days * 86_400e9) as i64,
        }
    }

    /// Events counted so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Counts one event.
    pub fn add(&mut self, event: &LoadEvent<'_>) {
        self.events += 1;
        self.calls += u64::from(event.count);
        let purpose = event.purpose as usize - 1;
        let file = self.files.entry(event.file.number).or_insert_with(|| FileUse {
            family: event.file.family_index,
            is_log: event.file.family.is_none(),
            born_ns: None,
            removed_ns: None,
            written: 0,
            end: 0,
            by_flush: event.purpose == LoadPurpose::Flush,
            closed: false,
        });
        file.end = file.end.max(event.offset + event.len);
        match event.call {
            LoadCall::Create => file.born_ns = Some(event.t_ns),
            LoadCall::Close if event.place != FilePlace::Store => file.closed = true,
            LoadCall::Unlink => file.removed_ns = Some(event.t_ns),
            LoadCall::Read => {
                self.read[purpose] += event.len;
                self.family_io[event.file.family_index] += event.len;
                self.get_reads += u64::from(event.purpose == LoadPurpose::Read);
            }
            LoadCall::Write => {
                file.written += event.len;
                self.written[purpose] += event.len;
                self.family_io[event.file.family_index] += event.len;
                // A burst that is one event stands for writes of some 3,500 bytes.
                let pieces = if event.purpose == LoadPurpose::Log { event.len.div_ceil(PAGE) } else { 1 };
                for piece in 0..pieces {
                    let (start, end) = (event.len * piece / pieces, event.len * (piece + 1) / pieces);
                    self.written_pages += pages(event.offset + start, event.offset + end);
                }
            }
            _ => {}
        }
        if event.call != LoadCall::Read || event.blocks.is_empty() {
            return;
        }
        let first = event.blocks.start;
        if self.blocks.len() < event.blocks.end as usize + 3 {
            self.blocks.resize(event.blocks.end as usize + 3, BlockUse::default());
        }
        // The blocks of one event are equal parts of it: only sums of bytes are asked for.
        let count = event.blocks.end - first;
        for i in 0..count {
            let (start, end) = (event.len * i / count, event.len * (i + 1) / count);
            self.read_block(event, first + i, event.offset + start, event.offset + end);
        }
    }

    fn read_block(&mut self, event: &LoadEvent<'_>, block: u64, start: u64, end: u64) {
        let at = block as usize;
        let now_ms = (event.t_ns / 1_000_000) as u32 + 1;
        self.block_reads += 1;
        let file = self.blocks[at];
        let age = |other: &BlockUse| if other.last_ms == 0 { u32::MAX } else { now_ms - other.last_ms };
        for (i, (minutes, reach)) in NEAR.into_iter().enumerate() {
            // Blocks of neighbouring files have neighbouring numbers: one wrong pair in a thousand blocks.
            let from = at.saturating_sub(reach as usize);
            let nearest = self.blocks[from..=at + reach as usize].iter().map(age).min();
            self.near[i] += u64::from(nearest.is_some_and(|ms| ms <= minutes * 60_000));
        }
        let entry = &mut self.blocks[at];
        entry.bytes = entry.bytes.max((end - start) as u32);
        entry.reads = file.reads.saturating_add(1);
        entry.last_ms = now_ms;
        entry.file = event.file.number as u32;
        entry.by_get |= event.purpose == LoadPurpose::Read;
        // The pages at the ends of a block are those of its neighbours too.
        let (low, high) = (start / PAGE, end.saturating_sub(1).max(start) / PAGE);
        self.read_pages += high - low + 1;
        self.touch(2 * block, 1);
        if high > low {
            self.touch(2 * (block + 1), 1);
        }
        if high > low + 1 {
            self.touch(2 * block + 1, (high - low - 1) as u32);
        }
    }

    fn touch(&mut self, object: u64, pages: u32) {
        let Some(distance) = self.distances.access(object, pages) else { return };
        for (i, gb) in CACHES_GB.into_iter().enumerate() {
            let room = gb * 1e9 * self.scale / PAGE as f64;
            self.hits[i] += if distance as f64 <= room { u64::from(pages) } else { 0 };
        }
    }

    /// Every number by its name in [`crate::PAPER`]; a number that this load has no evidence for is left out.
    pub fn numbers(&self) -> BTreeMap<&'static str, f64> {
        let mut numbers = BTreeMap::new();
        let mut put = |name: &'static str, value: f64| {
            if value.is_finite() {
                numbers.insert(name, value);
            }
        };
        let whole = 9.0 / self.scale * 8.3 / self.days / 1e12;
        let tb = |bytes: u64| bytes as f64 * whole;
        let [get, _, _, compaction_read] = self.read;
        let [_, log, flush, compaction] = self.written;
        let (read, written) = (get + compaction_read, log + flush + compaction);
        let ratio = |a: u64, b: u64| a as f64 / b as f64;
        let page_hits = |i: usize| ratio(self.hits[i], self.read_pages);
        put("get_read_tb", tb(get));
        put("compaction_read_tb", tb(compaction_read));
        put("flush_tb", tb(flush));
        put("log_tb", tb(log));
        put("compaction_tb", tb(compaction));
        put("core_io_tb", tb(get + flush));
        put("hdfs_io_tb", tb(read + written));
        put("local_io_tb", tb(read + 3 * written));
        let disk_read = (self.read_pages * PAGE) as f64 * (1.0 - page_hits(1));
        let disk_written = (3 * self.written_pages * PAGE) as f64;
        put("hdfs_read_tb", tb(read));
        put("disk_read_tb", disk_read * whole);
        put("disk_io_tb", (disk_read + disk_written) * whole);
        put("core_read_share", ratio(get, get + flush));
        put("hdfs_read_share", ratio(read, read + written));
        put("local_read_share", ratio(read, read + 3 * written));
        put("disk_read_share", disk_read / (disk_read + disk_written));
        put("log_over_flush", ratio(log, flush));
        put("compaction_over_flush", ratio(compaction, flush));
        put("compaction_share_of_writes", ratio(compaction, written));
        put("read_page_rounding", ratio(self.read_pages * PAGE, read));
        put("write_page_rounding", ratio(self.written_pages * PAGE, written));
        put("get_read_kb", ratio(get, self.get_reads) / 1e3);
        put("calls_per_second", self.calls as f64 / (self.days * 86_400.0) / self.scale);
        for (i, name) in ["lru_10gb", "lru_30gb", "lru_90gb", "lru_250gb"].into_iter().enumerate() {
            put(name, page_hits(i));
        }
        let near = |i: usize| ratio(self.near[i], self.block_reads);
        put("same_data_4_minutes", near(0));
        put("same_data_32_minutes", near(1));
        put("within_1kb_1_minute", near(2));
        put("lines_1kb_64kb_apart", near(5) - near(4));
        self.put_heat(&mut put, &tb, written);
        self.put_files(&mut put, whole);
        numbers
    }

    fn put_heat(&self, put: &mut impl FnMut(&'static str, f64), tb: &impl Fn(u64) -> f64, written: u64) {
        let (mut distinct, mut once, mut hot, mut sum) = (0u64, 0u64, 0u64, 0u64);
        for block in &self.blocks {
            let bytes = u64::from(block.bytes);
            distinct += if block.reads > 0 { bytes } else { 0 };
            once += if block.reads == 1 { bytes } else { 0 };
            hot += if block.reads >= 64 { bytes } else { 0 };
            sum += bytes * u64::from(block.reads);
        }
        let ratio = |a: u64, b: u64| a as f64 / b as f64;
        put("distinct_read_tb", tb(distinct));
        put("read_once_share", ratio(once, distinct));
        put("read_64_times_share", ratio(hot, distinct));
        put("reads_of_once_read_share", ratio(once, sum));
        put("reads_a_read_byte", ratio(sum, distinct));
        put("reads_a_reread_byte", ratio(sum - once, distinct - once));
        let (mut both, mut core) = (0u64, 0u64);
        let count = self.family_io.len();
        let (mut family_read, mut family_written, mut family_both) = (vec![0; count], vec![0; count], vec![0; count]);
        let mut file: Option<(u32, &FileUse)> = None;
        for block in self.blocks.iter().filter(|block| block.reads > 0) {
            if file.is_none_or(|(number, _)| number != block.file) {
                file = self.files.get(&block.file.into()).map(|of| (block.file, of));
            }
            let Some((_, of)) = file else { continue };
            let bytes = u64::from(block.bytes);
            family_read[of.family] += bytes;
            if of.born_ns.is_some() {
                both += bytes;
                family_both[of.family] += bytes;
            }
            let is_live_core = of.removed_ns.is_none() && block.by_get && !of.by_flush;
            core += if is_live_core { bytes } else { 0 };
        }
        for file in self.files.values() {
            family_written[file.family] += file.written;
            core += if file.removed_ns.is_none() && file.by_flush { file.written } else { 0 };
        }
        put("distinct_written_tb", tb(written));
        put("both_tb", tb(both));
        put("accessed_tb", tb(distinct + written - both));
        put("core_data_tb", tb(core));
        for (family, name) in [("PrefetchMeta", "prefetch_meta_io_over_data"), ("Keywords", "keywords_io_over_data")] {
            let Some(at) = self.families.iter().position(|other| other == family) else { continue };
            let data = family_read[at] + family_written[at] - family_both[at];
            put(name, ratio(self.family_io[at], data));
        }
    }

    fn put_files(&self, put: &mut impl FnMut(&'static str, f64), whole: f64) {
        let size = |file: &FileUse| file.written as f64 / self.slice;
        let hours = |file: &FileUse| {
            file.born_ns.map(|born| (file.removed_ns.unwrap_or(self.end_ns) - born) as f64 / 3600e9).unwrap_or(0.0)
        };
        let created: Vec<&FileUse> = self.files.values().filter(|f| f.born_ns.is_some() && f.closed).collect();
        let (stores, logs): (Vec<&FileUse>, Vec<&FileUse>) = created.iter().partition(|file| !file.is_log);
        let share = |files: &[&FileUse], test: &dyn Fn(&FileUse) -> bool| {
            files.iter().filter(|file| test(file)).count() as f64 / files.len() as f64
        };
        // Files of whole regions stand for `slice` files each; a log is a log at every scale.
        let (store_weight, log_weight) = (self.slice, 1.0);
        let machines = whole * 1e12;
        let appearing = self.files.values().filter(|file| !file.is_log).count() as f64 * store_weight;
        put("files", (appearing + logs.len() as f64 * log_weight) * machines);
        put("log_files", logs.len() as f64 * machines);
        let log_bytes: u64 = logs.iter().map(|file| file.written).sum();
        put("log_file_mb", log_bytes as f64 / logs.len() as f64 / 1e6);
        put("log_file_seconds", self.days * 86_400.0 * self.scale / logs.len() as f64);
        let class = |low: f64, high: f64| -> (f64, f64, Vec<&FileUse>) {
            let of: Vec<&FileUse> = stores.iter().copied().filter(|f| size(f) >= low && size(f) < high).collect();
            let bytes: f64 = of.iter().map(|file| file.written as f64).sum();
            (of.len() as f64 * store_weight, bytes, of)
        };
        let (small, medium, large) = (class(0.0, SMALL_MAX), class(SMALL_MAX, LARGE_MIN), class(LARGE_MIN, f64::MAX));
        // Logs are large files, as the study's shares need it (ADR 0071).
        let (log_count, log_sum) = (logs.len() as f64 * log_weight, log_bytes as f64);
        let count = small.0 + medium.0 + large.0 + log_count;
        put("small_files_share", small.0 / count);
        put("medium_files_share", medium.0 / count);
        put("large_files_share", (large.0 + log_count) / count);
        put("large_data_share", (large.1 + log_sum) / (small.1 + medium.1 + large.1 + log_sum));
        let removed = |file: &FileUse| file.removed_ns.is_some();
        put("small_dead_in_a_minute", share(&small.2, &|f| removed(f) && hours(f) < 1.0 / 60.0));
        put("small_older_than_6_hours", share(&small.2, &|f| hours(f) > 6.0));
        let known: Vec<&FileUse> = medium.2.iter().copied().filter(|f| removed(f) || hours(f) > 8.0).collect();
        put("medium_older_than_8_hours", share(&known, &|f| hours(f) > 8.0));
        let large_dead = large.2.iter().filter(|file| removed(file)).count() as f64 * store_weight;
        put("large_dead", large_dead / (large.0 + log_count));
        put("large_dead_without_logs", large_dead / large.0);
        let by_family = |at: usize| stores.iter().copied().filter(|f| f.family == at).collect::<Vec<_>>();
        let below = (0..self.families.len()).map(|at| share(&by_family(at), &|f| size(f) < 15e6));
        put("least_share_below_15mb", below.fold(1.0, f64::min));
        if let Some(at) = self.families.iter().position(|name| name == "MessageMeta") {
            // Files from before count too, with the part of them that was reached.
            let ends: Vec<u64> = self.files.values().filter(|file| file.family == at).map(|file| file.end).collect();
            put("message_meta_file_mb", ends.iter().sum::<u64>() as f64 / self.slice / ends.len() as f64 / 1e6);
        }
    }
}

fn pages(start: u64, end: u64) -> u64 {
    if end <= start { 0 } else { (end - 1) / PAGE - start / PAGE + 1 }
}
