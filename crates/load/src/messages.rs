//! The load itself: visits, puts, flushes, logs and compactions, in the order of time.
//!
//! A scale below one region of the machine makes regions *slices*: fewer users, and files, flushes and speeds smaller
//! by the same factor, so that files live as long as those of whole regions. Sizes of files are then those of whole
//! units by dividing by [`MessagesLoad::slice`].

mod files;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use frieze_base::Rng;

use self::files::{CompactionJob, LOG_FAMILY};
use crate::block_cache::BlockCache;
use crate::error::LoadError;
use crate::event::{FilePlace, LoadCall, LoadEvent, LoadPurpose};
use crate::parameters::MessagesParameters;
use crate::stores::{BLOCKS_MAX, CompactionRule, FamilyStore, FileTable, StoreFile, mix};
use crate::users::{User, Users, exponential, unit};

/// How much of the load is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadSize {
    /// Part of one machine, above 0 and at most 1: 1/15 is what one of its fifteen disks gets.
    pub scale: f64,
    /// Days, above 0 and at most 366.
    pub days: f64,
    /// Of the random numbers: the same seed gives the same events.
    pub seed: u64,
}

impl LoadSize {
    /// Refuses a size that is no size.
    ///
    /// # Errors
    /// `OutOfRange`, with the range.
    pub fn check(&self) -> Result<(), LoadError> {
        let refuse = |name: &str, given: f64, range: &str| {
            Err(LoadError::OutOfRange { name: name.to_owned(), given: given.to_string(), range: range.to_owned() })
        };
        if !(self.scale >= SCALE_MIN && self.scale <= 1.0) {
            return refuse("scale", self.scale, "a part of one machine, from 1/100000 up to 1, such as 1/225");
        }
        if !(self.days > 0.0 && self.days <= 366.0) {
            return refuse("days", self.days, "above 0 and at most 366");
        }
        Ok(())
    }
}

const SCALE_MIN: f64 = 1e-5;
/// Fewer regions than these are never played: their major compactions would be too few to have a mean.
const REGIONS_MIN: f64 = 4.0;
/// Played without events before the load begins, so that it begins with a full cache and with compactions under way.
const WARM_UP_S: f64 = 2.0 * 3600.0;
/// Flushes and compactions of these days give the files that lie there at the beginning.
const HISTORY_DAYS: f64 = 8.0;
/// Blocks that a flush writes at a time: 90 pages (the same of flushes).
const FLUSH_RUN_BLOCKS: u32 = 7;

/// How much the log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogDetail {
    Writes,
    Bursts,
}

/// A load that is ready to run.
#[derive(Debug)]
pub struct MessagesLoad {
    parameters: MessagesParameters,
    size: LoadSize,
    regions: u32,
    slice: f64,
    detail: LogDetail,
}

impl MessagesLoad {
    /// The load of `parameters` at `size`.
    ///
    /// # Errors
    /// `OutOfRange` with the range; `TooLarge` if the state would not fit.
    pub fn new(parameters: MessagesParameters, size: LoadSize) -> Result<MessagesLoad, LoadError> {
        parameters.check()?;
        size.check()?;
        let whole = parameters.regions * size.scale;
        let regions = whole.round().max(REGIONS_MIN);
        // At least what lies there before, twice: a major compaction writes it again.
        let blocks = (2.0 * parameters.base_tb * 1e12 * size.scale / parameters.block_bytes) as u64;
        if blocks > BLOCKS_MAX {
            return Err(LoadError::TooLarge { blocks, blocks_max: BLOCKS_MAX });
        }
        let (regions, slice) = (regions as u32, whole / regions);
        Ok(MessagesLoad { parameters, size, regions, slice, detail: LogDetail::Writes })
    }

    /// One event for each burst of the log instead of one for each write: a third of the events, the same bytes.
    #[must_use]
    pub fn with_log_bursts(mut self) -> MessagesLoad {
        self.detail = LogDetail::Bursts;
        self
    }

    /// The part of a region that each region of this load is.
    pub fn slice(&self) -> f64 {
        self.slice
    }

    /// Regions of this load.
    pub fn regions(&self) -> u32 {
        self.regions
    }

    /// What it was made from.
    pub fn size(&self) -> LoadSize {
        self.size
    }

    /// Its parameters.
    pub fn parameters(&self) -> &MessagesParameters {
        &self.parameters
    }

    /// Plays the load: `sink` gets every event, in the order of time.
    ///
    /// # Errors
    /// The first error of `sink`, which ends the load; `TooLarge` if files outgrow the bound of blocks.
    ///
    /// # Cost
    /// Above a million events a second of one core.
    pub fn run<E: From<LoadError>>(&self, sink: impl FnMut(&LoadEvent<'_>) -> Result<(), E>) -> Result<(), E> {
        let mut run = LoadRun::new(self, sink);
        run.history()?;
        run.play()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LoadTask {
    Session,
    Visit { user: u32, left: u32 },
    Compact { job: u32 },
    Major { store: u32 },
    Remove { file: u64, region: u32, family: u8 },
    Log { left: u32 },
}

#[derive(Debug, Default)]
struct OpenLog {
    number: u64,
    stream: u64,
    size: u64,
    backlog: f64,
}

struct LoadRun<'a, F> {
    load: &'a MessagesLoad,
    sink: F,
    rng: Rng,
    users: Users,
    cache: BlockCache,
    files: FileTable,
    /// By region, then family.
    stores: Vec<FamilyStore>,
    /// Log bytes of each region since its last flush, and when that was.
    memstores: Vec<(f64, f64)>,
    jobs: Vec<CompactionJob>,
    free_jobs: Vec<u32>,
    tasks: BinaryHeap<Reverse<(i64, u64, LoadTask)>>,
    scheduled: u64,
    log: OpenLog,
    rule: CompactionRule,
    write_shares: Vec<f64>,
    touch_chances: Vec<f64>,
    /// Chance that a visit puts into a family.
    put_chances: Vec<f64>,
    block_bytes: u64,
    visits_per_second: f64,
    users_per_region: f64,
    now_ns: i64,
}

fn ns(seconds: f64) -> i64 {
    (seconds * 1e9) as i64
}

impl<'a, F> LoadRun<'a, F> {
    fn new(load: &'a MessagesLoad, sink: F) -> LoadRun<'a, F> {
        let MessagesLoad { parameters: p, size, regions, slice, .. } = load;
        let mut rng = Rng::new(size.seed);
        let count = (p.users * size.scale).round().max(f64::from(*regions)) as usize;
        let users = Users::new(&mut rng.split(), count, *regions, p.activity_exponent, p.activity_cap);
        let cached = p.block_cache_gb * 1e9 * p.block_cache_fill * size.scale / f64::from(1 << 16);
        let write_shares = p.write_shares();
        // A put has sixteen records, spread over the families by their shares.
        let put_chances = write_shares.iter().map(|share| 1.0 - (1.0 - share).powi(16)).collect();
        let stores = vec![FamilyStore::default(); *regions as usize * p.families.len()];
        LoadRun {
            load,
            sink,
            users,
            cache: BlockCache::new(cached as usize),
            files: FileTable::new(p.block_bytes as u64),
            stores,
            memstores: Vec::new(),
            jobs: Vec::new(),
            free_jobs: Vec::new(),
            tasks: BinaryHeap::new(),
            scheduled: 0,
            log: OpenLog::default(),
            rule: CompactionRule {
                files_min: p.compaction_files_min.round() as usize,
                files_max: p.compaction_files_max.round() as usize,
                ratio: p.compaction_ratio,
                floor_bytes: p.compaction_floor_mb * 1e6 * slice,
            },
            write_shares,
            touch_chances: p.touch_chances(),
            put_chances,
            block_bytes: p.block_bytes as u64,
            visits_per_second: p.visits_per_second * size.scale,
            users_per_region: count as f64 / f64::from(*regions),
            now_ns: -ns(WARM_UP_S),
            rng,
        }
    }

    fn schedule(&mut self, at_ns: i64, task: LoadTask) {
        self.scheduled += 1;
        self.tasks.push(Reverse((at_ns, self.scheduled, task)));
    }

    fn flush_bytes(&self) -> f64 {
        self.load.parameters.flush_mb * 1e6 * self.load.slice
    }

    fn store_at(&self, region: u32, family: usize) -> usize {
        region as usize * self.load.parameters.families.len() + family
    }

    /// Sizes of the files of a flush of `raw` log bytes, by family.
    fn flushed_sizes(&mut self, raw: f64) -> Vec<u64> {
        let flushed = raw / self.load.parameters.log_to_flush;
        let shares = self.write_shares.clone();
        shares.into_iter().map(|share| (flushed * share * (0.7 + 0.6 * unit(&mut self.rng))) as u64).collect()
    }

    /// Puts files there as years of the same load would have left them, without events.
    fn history(&mut self) -> Result<(), LoadError> {
        let load = self.load;
        let (p, families) = (&load.parameters, load.parameters.families.len());
        let base_bytes = p.base_tb * 1e12 * load.size.scale / f64::from(load.regions);
        let mut by_share = Vec::new();
        for (family, share) in p.base_shares().into_iter().enumerate() {
            for region in 0..load.regions {
                let size = (base_bytes * share * (0.9 + 0.2 * unit(&mut self.rng))) as u64;
                let at = self.store_at(region, family);
                let file = self.files.add(region, family as u8, size, f64::INFINITY)?;
                self.stores[at].files.push(file);
                by_share.push((Reverse((share * 1e9) as u64), family, at as u32));
            }
        }
        // Compactions of everything are spread evenly over their period and over sizes, at every seed alike: they are
        // few, and draws would decide how much is compacted.
        by_share.sort_unstable();
        for (i, (_, _, store)) in by_share.into_iter().enumerate() {
            let phase = ((i as f64 + 0.5) * GOLDEN).fract();
            self.schedule(ns(phase * p.major_days * 86_400.0), LoadTask::Major { store });
        }
        let rate = self.visits_per_second * p.put_bytes / f64::from(load.regions);
        let interval_s = self.flush_bytes() / rate;
        for region in 0..load.regions {
            let flushes = (HISTORY_DAYS * 86_400.0 / interval_s).clamp(0.0, 5_000.0) as u32;
            for _ in 0..flushes {
                let sizes = self.flushed_sizes(self.flush_bytes());
                for (family, size) in sizes.into_iter().enumerate().take(families) {
                    let file = self.files.add(region, family as u8, size, interval_s)?;
                    let at = self.store_at(region, family);
                    self.stores[at].files.push(file);
                    self.compact_at_once(at)?;
                }
            }
            let filled = unit(&mut self.rng);
            self.memstores.push((filled * self.flush_bytes(), -WARM_UP_S - filled * interval_s));
        }
        (self.log.number, self.log.stream) = (self.files.next_number(), self.files.next_stream());
        self.log.size = (p.log_mb * 1e6 * unit(&mut self.rng)) as u64;
        Ok(())
    }

    fn select(&self, store: usize) -> Option<std::ops::Range<usize>> {
        let sizes: Vec<u64> = self.stores[store].files.iter().map(|&at| self.files.files[at as usize].size).collect();
        self.rule.select(&sizes)
    }

    fn merged(&self, inputs: &[u32]) -> (u64, u64, f64) {
        let files = inputs.iter().map(|&at| &self.files.files[at as usize]);
        let (bytes, span) = files.fold((0, 0.0), |(bytes, span), file| (bytes + file.size, span + file.span_s));
        (bytes, (bytes as f64 * self.load.parameters.compaction_keeps) as u64, span)
    }

    fn compact_at_once(&mut self, store: usize) -> Result<(), LoadError> {
        while let Some(range) = self.select(store) {
            let inputs = self.stores[store].files[range.clone()].to_vec();
            let (_, size, span) = self.merged(&inputs);
            let StoreFile { region, family, .. } = self.files.files[inputs[0] as usize];
            inputs.into_iter().for_each(|file| self.files.remove(file));
            let output = self.files.add(region, family, size, span)?;
            self.stores[store].files.splice(range, [output]);
        }
        Ok(())
    }
}

/// Golden ratio less 1: its multiples are spread evenly.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

impl<E: From<LoadError>, F: FnMut(&LoadEvent<'_>) -> Result<(), E>> LoadRun<'_, F> {
    fn play(&mut self) -> Result<(), E> {
        let end_ns = ns(self.load.size.days * 86_400.0);
        self.schedule(self.now_ns, LoadTask::Session);
        while let Some(Reverse((at_ns, _, task))) = self.tasks.pop() {
            if at_ns >= end_ns {
                break;
            }
            self.now_ns = at_ns;
            match task {
                LoadTask::Session => self.session()?,
                LoadTask::Visit { user, left } => self.visit(user, left)?,
                LoadTask::Compact { job } => self.compact(job)?,
                LoadTask::Major { store } => self.major(store)?,
                LoadTask::Log { left } => self.write_log(left)?,
                LoadTask::Remove { file, region, family } => {
                    self.emit_name(LoadCall::Unlink, file, region, family, FilePlace::Archive, None)?;
                }
            }
        }
        Ok(())
    }

    fn session(&mut self) -> Result<(), E> {
        let p = &self.load.parameters;
        let day = self.now_ns as f64 / 86_400e9;
        // Quietest at six in the morning of a load that begins at midnight.
        let rate = self.visits_per_second / p.visits_per_session
            * (1.0 - p.diurnal_amplitude * (std::f64::consts::TAU * day).sin());
        let next_s = exponential(&mut self.rng, 1.0 / rate);
        self.schedule(self.now_ns.saturating_add(ns(next_s)), LoadTask::Session);
        let user = self.users.draw(&mut self.rng);
        let go_on = 1.0 - 1.0 / p.visits_per_session;
        let mut left = 0;
        while left < 100_000 && unit(&mut self.rng) < go_on {
            left += 1;
        }
        self.visit(user, left)
    }

    fn visit(&mut self, user_number: u32, left: u32) -> Result<(), E> {
        if left > 0 {
            let gap_s = self.load.parameters.visit_gap_seconds * (0.5 + unit(&mut self.rng));
            self.schedule(self.now_ns + ns(gap_s), LoadTask::Visit { user: user_number, left: left - 1 });
        }
        let user = self.users.get(user_number);
        for family in 0..self.touch_chances.len() {
            if unit(&mut self.rng) < self.touch_chances[family] {
                self.get(user_number, user, family)?;
            }
        }
        self.put(user)
    }

    /// Reads what `user` has in `family`: the newest part of the row in every file whose bloom filter says yes.
    fn get(&mut self, user_number: u32, user: User, family: usize) -> Result<(), E> {
        let (scan, deep, false_share) = {
            let p = &self.load.parameters;
            (p.scan_share, p.deep_share, p.bloom_false_share)
        };
        let store = self.store_at(user.region, family);
        let puts = user.activity * self.visits_per_second * self.put_chances[family];
        for at in 0..self.stores[store].files.len() {
            let file = self.files.files[self.stores[store].files[at] as usize];
            // The number of a user's puts while the file was filled is taken to be geometric: chance of one or more.
            let expected = puts * file.span_s;
            let chance = if expected.is_finite() { expected / (1.0 + expected) } else { 1.0 };
            let draw = mix(u64::from(user_number) << 32 ^ mix(file.number)) as f64 / 2f64.powi(64);
            if draw >= chance + (1.0 - chance) * false_share {
                continue;
            }
            let mut block = (user.position * f64::from(file.blocks)) as u32;
            self.read(&file, block)?;
            if block + 1 < file.blocks && unit(&mut self.rng) < scan {
                block += 1;
                self.read(&file, block)?;
            }
        }
        if unit(&mut self.rng) < deep
            && let Some(&oldest) = self.stores[store].files.first()
        {
            let file = self.files.files[oldest as usize];
            let row_blocks = (f64::from(file.blocks) / self.users_per_region).max(1.0);
            let block = user.position * f64::from(file.blocks) + row_blocks * unit(&mut self.rng);
            self.read(&file, (block as u32).min(file.blocks - 1))?;
        }
        Ok(())
    }

    fn read(&mut self, file: &StoreFile, block: u32) -> Result<(), E> {
        if self.cache.read(file.first_block + u64::from(block)) {
            return Ok(());
        }
        self.emit_blocks(LoadCall::Read, file, block, block + 1, file.stream, LoadPurpose::Read, FilePlace::Store)
    }

    fn put(&mut self, user: User) -> Result<(), E> {
        let raw = self.load.parameters.put_bytes * (0.5 + unit(&mut self.rng));
        self.append_to_log(raw)?;
        let memstore = &mut self.memstores[user.region as usize];
        memstore.0 += raw;
        if memstore.0 < self.flush_bytes() {
            return Ok(());
        }
        self.flush(user.region)
    }

    /// Writes the memstores of all families of a region.
    fn flush(&mut self, region: u32) -> Result<(), E> {
        let now_s = self.now_ns as f64 / 1e9;
        let (raw, since_s) = std::mem::replace(&mut self.memstores[region as usize], (0.0, now_s));
        for (family, size) in self.flushed_sizes(raw).into_iter().enumerate() {
            let at = self.files.add(region, family as u8, size, now_s - since_s)?;
            let file = self.files.files[at as usize];
            let stream = self.create(&file, LoadPurpose::Flush)?;
            let mut block = 0;
            while block < file.blocks {
                let end = file.blocks.min(block + FLUSH_RUN_BLOCKS);
                self.emit_blocks(LoadCall::Write, &file, block, end, stream, LoadPurpose::Flush, FilePlace::Temporary)?;
                block = end;
            }
            self.publish(&file, stream, LoadPurpose::Flush)?;
            let store = self.store_at(region, family);
            self.stores[store].files.push(at);
            self.compact_if_due(store)?;
        }
        Ok(())
    }

    fn append_to_log(&mut self, raw: f64) -> Result<(), E> {
        let p = &self.load.parameters;
        let (mean, writes) = (p.log_write_bytes, p.log_burst.round());
        let log_bytes = (p.log_mb * 1e6) as u64;
        self.log.backlog += raw;
        while self.log.backlog >= mean * writes {
            match self.load.detail {
                LogDetail::Bursts => self.emit_log(LoadCall::Write, (mean * writes) as u64)?,
                LogDetail::Writes => self.write_log(writes as u32)?,
            }
            self.log.backlog -= mean * writes;
        }
        if self.log.size < log_bytes {
            return Ok(());
        }
        self.emit_log(LoadCall::Close, 0)?;
        self.emit_name(LoadCall::Rename, self.log.number, 0, LOG_FAMILY, FilePlace::Log, Some(FilePlace::OldLog))?;
        (self.log.number, self.log.stream) = (self.files.next_number(), self.files.next_stream());
        self.log.size = 0;
        self.emit_log(LoadCall::Create, 0)
    }

    /// One write of a burst; those that are left follow it.
    fn write_log(&mut self, left: u32) -> Result<(), E> {
        let (mean, gap_ms) = (self.load.parameters.log_write_bytes, self.load.parameters.log_gap_ms);
        // Within the limit up to which HTFS puts writes together.
        let spread = (4096.0 / mean - 1.0).clamp(0.0, 0.4);
        let len = mean * (1.0 + spread * (2.0 * unit(&mut self.rng) - 1.0));
        self.emit_log(LoadCall::Write, len as u64)?;
        if left > 1 {
            self.schedule(self.now_ns.saturating_add(ns(gap_ms / 1e3)), LoadTask::Log { left: left - 1 });
        }
        Ok(())
    }

    fn create(&mut self, file: &StoreFile, purpose: LoadPurpose) -> Result<u64, E> {
        let stream = self.files.next_stream();
        self.emit_call(LoadCall::Create, file, stream, purpose, FilePlace::Temporary)?;
        Ok(stream)
    }

    /// Closes a new file, moves it to its store and opens it for gets.
    fn publish(&mut self, file: &StoreFile, stream: u64, purpose: LoadPurpose) -> Result<(), E> {
        self.emit_call(LoadCall::Close, file, stream, purpose, FilePlace::Temporary)?;
        let to = Some(FilePlace::Store);
        self.emit_name(LoadCall::Rename, file.number, file.region, file.family, FilePlace::Temporary, to)?;
        self.emit_call(LoadCall::Open, file, file.stream, LoadPurpose::Read, FilePlace::Store)
    }
}
