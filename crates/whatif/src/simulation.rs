//! One system under one load: caches, flash, disks, and what they counted.
//!
//! Guarantees: the same load and system give the same outcome, byte for byte, whatever runs beside it.
//! Leaves to others: what the calls mean at a machine (`local`), many systems at once (`sweep`), money (`costs`).
//!
//! # The algorithm
//! Open loop: a request begins when the trace says. A read looks into memory, then flash, and runs of adjacent pages
//! that neither has go to the disk of the file. A write goes to the disk in any case. Disks know nothing of each other,
//! so each is brought up to date only when a request for it arrives.
//!
//! # Source
//! Harter et al. (FAST'14), §3.2, §5; choices where it is ambiguous: `docs/adr/0070-simulate-recorded-loads.md`.

use frieze_tier::{FlashAdmission, OnFlashHit, PagesFound, Policy, TierSettings, Tiered, Writes};

use crate::disk::{DiskQueue, DiskRequest, ServedRequest};
use crate::error::WhatIfError;
use crate::hardware::HardwareProfile;
use crate::latency::TailedLatency;
use crate::local::{FRAME_BYTES, FrameAccess, LocalLoad, PAGE_BYTES};
use crate::outcome::{HitBucket, ObjectSums, SimOutcome};
use crate::requests::{ObjectStore, OpenCalls, RequestWait};
use crate::rules::{RuleSet, SimRule};
use crate::workload::IoPurpose;

/// What caches decide about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheUnit {
    /// Frames of 64 KiB with some of their pages, as the server does.
    #[default]
    Frames,
    /// Pages of 4 KiB, as the study does: more memory and time.
    Pages,
}

/// Policies of a system, and how it is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemPolicies {
    /// What leaves a cache.
    pub policy: Policy,
    /// What writes do to caches.
    pub writes: Writes,
    /// What a hit in flash does.
    pub on_flash_hit: OnFlashHit,
    /// What comes into flash.
    pub admission: FlashAdmission,
    /// Output of flushes and compactions lies in flash whole, if the file is smaller than so many bytes.
    pub buffer_below: Option<u64>,
    /// All logs are one file on a disk of its own.
    pub combined_log: bool,
    /// A put waits for its log.
    pub durable_puts: bool,
    /// Microseconds at which memory loses what it has, ascending.
    pub crashes_us: Vec<u64>,
    /// Microseconds at the beginning that are not counted.
    pub warm_up_us: u64,
    /// What caches decide about.
    pub unit: CacheUnit,
    /// False if disks are left out, for runs about caches alone.
    pub with_disks: bool,
    /// True if the load has a sample of its frames ([`LocalLoad::sampled`]): the error of hit ratios is estimated.
    pub is_sampled: bool,
    /// Microseconds of an interval of the timeline of hits.
    pub bucket_us: u64,
    /// Rules that are followed.
    pub rules: RuleSet,
}

impl Default for SystemPolicies {
    fn default() -> SystemPolicies {
        SystemPolicies {
            policy: Policy::Lru,
            writes: Writes::NoAllocate,
            on_flash_hit: OnFlashHit::Promote,
            admission: FlashAdmission::All,
            buffer_below: None,
            combined_log: false,
            durable_puts: false,
            crashes_us: Vec::new(),
            warm_up_us: 0,
            unit: CacheUnit::Frames,
            with_disks: true,
            is_sampled: false,
            bucket_us: 600 * 1_000_000,
            rules: RuleSet::ALL,
        }
    }
}

/// A system: hardware and policies.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemConfig {
    /// Hardware.
    pub hardware: HardwareProfile,
    /// Policies.
    pub policies: SystemPolicies,
}

impl SystemConfig {
    /// A system that can be.
    ///
    /// # Errors
    /// `Impossible` says which policy lacks its hardware.
    pub fn new(hardware: HardwareProfile, policies: SystemPolicies) -> Result<SystemConfig, WhatIfError> {
        let impossible = |words: &str| Err(WhatIfError::Impossible(words.to_owned()));
        if hardware.flash_bytes() == 0 && policies.on_flash_hit == OnFlashHit::Keep {
            return impossible("keep needs flash, and there is none: --set flash=60");
        }
        if hardware.flash_bytes() == 0 && policies.buffer_below.is_some() {
            return impossible("a write buffer needs flash, and there is none: --set flash=60");
        }
        if hardware.disks() == 0 && hardware.get("object.latency").is_none() {
            return impossible(
                "without disks files lie in an object store, and the profile has no object.latency: --profile \
                 hdd-qlc, or --set object.latency=20ms",
            );
        }
        if policies.combined_log && hardware.disks() < 2 {
            return impossible("combined logs need a disk of their own: --set disks=2 or more");
        }
        Ok(SystemConfig { hardware, policies })
    }

    /// Bytes that simulating it takes beside the load, at most.
    pub fn memory_bytes(&self, load: &LocalLoad) -> u64 {
        let room = (self.hardware.ram_bytes() + self.hardware.flash_bytes()) / PAGE_BYTES;
        let things = match self.policies.unit {
            CacheUnit::Frames => load.frames_max(),
            CacheUnit::Pages => 16 * load.frames_max(),
        };
        let ghosts = if self.policies.policy == Policy::S3Fifo { 2 } else { 1 };
        // What an object store has of a file, beside one byte.
        let of_file = if self.hardware.disks() == 0 { 48 } else { 1 };
        // An entry of 32 bytes in a vector that may have doubled, and slots of 8 at 5/16 to 5/8 of use.
        room.min(things) * ghosts * (2 * 32 + 26) + load.files().len() as u64 * of_file + FIXED_BYTES
    }
}

/// A system while it is simulated.
#[derive(Debug)]
pub struct Simulation<'a> {
    load: &'a LocalLoad,
    system: &'a SystemConfig,
    rules: RuleSet,
    cache: Tiered,
    disks: Vec<DiskQueue>,
    outcome: SimOutcome,
    now_us: u64,
    next_crash: usize,
    flash_page_ns: u64,
    flash_pages_max: u64,
    /// Whether a local file lies in flash whole; empty without a buffer.
    buffered: Vec<bool>,
    buffered_pages: u64,
    buffer_pages_written: u64,
    /// Pages written to flash before the end of the warm-up.
    uncounted_flash_pages: Option<u64>,
    log_end: u64,
    keys: Vec<u64>,
    hop: Option<TailedLatency>,
    objects: Option<ObjectStore>,
    calls: OpenCalls,
    /// The number of an access, for latencies.
    number: u64,
}

impl<'a> Simulation<'a> {
    /// A system with empty caches and idle disks.
    pub fn new(load: &'a LocalLoad, system: &'a SystemConfig) -> Simulation<'a> {
        let SystemConfig { hardware, policies } = system;
        let flash_pages_max = hardware.flash_bytes() / PAGE_BYTES;
        let rules = policies.rules;
        let cache = Tiered::new(TierSettings {
            policy: policies.policy,
            ram_pages: hardware.ram_bytes() / PAGE_BYTES,
            flash_pages: flash_pages_max,
            writes: policies.writes,
            on_flash_hit: policies.on_flash_hit,
            admission: policies.admission,
        });
        let disks = if policies.with_disks { hardware.disks() as usize } else { 0 };
        let flash_ns = if rules.has(SimRule::FlashLatency) { hardware.flash_ns(PAGE_BYTES) } else { 0 };
        let buckets = load.span_us() / policies.bucket_us.max(1) + 1;
        Simulation {
            load,
            system,
            rules,
            cache,
            disks: vec![DiskQueue::new(hardware.disk_model(), rules); disks],
            outcome: SimOutcome {
                bucket_us: policies.bucket_us * buckets.div_ceil(BUCKETS_MAX),
                sample_groups: vec![HitBucket::default(); if policies.is_sampled { SAMPLE_GROUPS } else { 0 }],
                ..SimOutcome::default()
            },
            now_us: 0,
            next_crash: 0,
            flash_page_ns: flash_ns,
            flash_pages_max,
            buffered: if policies.buffer_below.is_some() { vec![false; load.files().len()] } else { Vec::new() },
            buffered_pages: 0,
            buffer_pages_written: 0,
            uncounted_flash_pages: None,
            log_end: 0,
            keys: Vec::new(),
            hop: TailedLatency::of(hardware, "net").filter(|_| rules.has(SimRule::NetworkHop)),
            objects: ObjectStore::of(hardware).filter(|_| policies.with_disks && hardware.disks() == 0),
            calls: OpenCalls::default(),
            number: 0,
        }
    }

    /// Simulates the whole load.
    pub fn run(load: &LocalLoad, system: &SystemConfig) -> SimOutcome {
        let mut simulation = Simulation::new(load, system);
        simulation.advance(load.accesses());
        simulation.finish()
    }

    /// Simulates the next accesses of the load.
    ///
    /// # Cost
    /// 60 to 300 ns an access of the caches, by how much of their tables the processor's caches hold; disks some 100 to
    /// 300 ns more.
    pub fn advance(&mut self, accesses: &[FrameAccess]) {
        if self.outcome.overloaded {
            return;
        }
        let is_fine = self.system.policies.unit == CacheUnit::Pages;
        for group in accesses.chunks(GROUP) {
            self.keys.clear();
            self.keys.extend(group.iter().map(FrameAccess::key));
            self.cache.warm(&self.keys);
            for access in group {
                self.access(access, is_fine);
            }
        }
        self.outcome.accesses += accesses.len() as u64;
    }

    /// Serves what waits, and returns what was counted.
    pub fn finish(mut self) -> SimOutcome {
        self.calls.close(&mut self.outcome);
        for disk in &mut self.disks {
            let (outcome, calls) = (&mut self.outcome, &mut self.calls);
            if !outcome.overloaded {
                disk.drain(&mut |served| count_served(outcome, calls, served));
            }
            outcome.busy_ns.push(disk.busy_ns());
        }
        let warm_up_us = self.warm_up_us();
        self.outcome.counted_us = self.load.span_us().saturating_sub(warm_up_us);
        let pages = self.flash_pages_written() - self.uncounted_flash_pages.unwrap_or(0);
        self.outcome.flash_written_bytes = pages * PAGE_BYTES;
        let amplifies = self.rules.has(SimRule::DeviceAmplification);
        self.outcome.flash_amplification = if amplifies { self.system.hardware.flash_amplification() } else { 1.0 };
        let stored_bytes = self.load.stored_bytes();
        self.outcome.object = self.objects.map(|objects| ObjectSums { stored_bytes, ..objects.sums });
        self.outcome
    }

    #[inline]
    fn access(&mut self, access: &FrameAccess, is_fine: bool) {
        self.now_us += u64::from(access.delta_us);
        while let Some(crash_us) = self.system.policies.crashes_us.get(self.next_crash)
            && *crash_us <= self.now_us
        {
            self.next_crash += 1;
            if self.rules.has(SimRule::CrashEmptiesMemory) {
                self.cache.crash();
            }
        }
        if access.pages == 0 {
            if access.is_removal() {
                self.remove(access.file);
            }
            return;
        }
        let counts = self.now_us >= self.warm_up_us();
        if counts && self.uncounted_flash_pages.is_none() {
            self.uncounted_flash_pages = Some(self.flash_pages_written());
        }
        let purpose = IoPurpose::of(access.purpose);
        self.number += 1;
        if self.objects.is_some() && access.is_write() && access.is_copy() && self.rules.has(SimRule::ObjectCopies) {
            return;
        }
        if counts {
            let bytes = if access.is_write() { &mut self.outcome.written_bytes } else { &mut self.outcome.read_bytes };
            bytes[purpose as usize] += u64::from(access.bytes);
            if access.is_remote() {
                self.outcome.net_bytes += u64::from(access.bytes);
            }
        }
        if access.is_write() {
            self.write(access, purpose, counts, is_fine);
        } else {
            self.read(access, purpose, counts, is_fine);
        }
    }

    fn read(&mut self, access: &FrameAccess, purpose: IoPurpose, counts: bool, is_fine: bool) {
        let found = if self.is_buffered(access.file) {
            PagesFound { ram: 0, flash: access.pages, missed: 0 }
        } else if is_fine {
            let mut found = PagesFound::default();
            for page in pages_of(access.pages) {
                let one = self.cache.read(access.key() | u64::from(page), 1, self.class(access.file));
                found.ram |= one.ram << page;
                found.flash |= one.flash << page;
                found.missed |= one.missed << page;
            }
            found
        } else {
            self.cache.read(access.key(), access.pages, self.class(access.file))
        };
        let foreground = self.is_foreground(purpose, false);
        let hop_ns = match self.hop.filter(|_| access.is_remote()) {
            Some(hop) => hop.draw(self.number).min(u32::MAX.into()),
            None => 0,
        };
        let joined = access.is_part() && self.rules.has(SimRule::SlowestPart);
        if joined {
            let now_ns = self.now_us * 1000;
            if access.is_first_part() {
                self.calls.begin(now_ns, foreground && counts, &mut self.outcome);
            }
            let flash_ns = if found.flash != 0 { self.flash_page_ns } else { 0 };
            self.calls.add(access.pages.count_ones().into(), now_ns + hop_ns + flash_ns);
        }
        if counts {
            self.count_read(&found, purpose, foreground, (!joined).then_some(hop_ns));
            if self.system.policies.is_sampled {
                let group = access.key().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                let group = &mut self.outcome.sample_groups[group as usize % SAMPLE_GROUPS];
                group.pages += u64::from(access.pages.count_ones());
                group.hits += u64::from((found.ram | found.flash).count_ones());
            }
        }
        if found.missed != 0 {
            let call = if joined { self.calls.last } else { 0 };
            let wait = RequestWait { counts, foreground: foreground && counts, call, hop_ns: hop_ns as u32 };
            if self.objects.is_some() {
                self.get_objects(found.missed, wait);
            } else if !self.disks.is_empty() {
                self.send_to_disk(access, found.missed, purpose, wait);
            }
        }
    }

    /// Each run of adjacent pages is read from the object store, whatever else is read from it.
    fn get_objects(&mut self, pages: u16, wait: RequestWait) {
        let Some(objects) = &mut self.objects else { return };
        let mut left = pages;
        while left != 0 {
            let first = left.trailing_zeros();
            let count = (left >> first).trailing_ones();
            left &= !((u32::MAX >> (32 - count) << first) as u16);
            let answers = self.rules.has(SimRule::ObjectLatency);
            let latency_ns = if answers { objects.latency.draw(self.number << 4 | u64::from(first)) } else { 0 };
            objects.sums.gets += u64::from(wait.counts);
            if wait.call != 0 {
                self.calls.add(0, self.now_us * 1000 + latency_ns);
            } else if wait.foreground {
                self.outcome.called(count.into(), latency_ns);
            }
        }
    }

    /// A part is sent when its first byte is written: files are written from their begin to their end.
    fn put_object(&mut self, access: &FrameAccess, counts: bool) {
        let Some(objects) = &mut self.objects else { return };
        let part = u64::from(access.frame) * FRAME_BYTES / objects.part_bytes;
        let is_new = objects.parts.insert(access.file, part) != Some(part);
        objects.sums.puts += u64::from(counts && (is_new || !self.rules.has(SimRule::ObjectParts)));
    }

    /// `hop_ns` is what the network takes; `None` where the wait is counted with that for other parts.
    fn count_read(&mut self, found: &PagesFound, purpose: IoPurpose, foreground: bool, hop_ns: Option<u64>) {
        let [ram, flash, missed] = [found.ram, found.flash, found.missed].map(|pages| u64::from(pages.count_ones()));
        let outcome = &mut self.outcome;
        let of = purpose as usize;
        let all = ram + flash + missed;
        outcome.read_pages[of] += all;
        outcome.ram_pages[of] += ram;
        outcome.flash_pages[of] += flash;
        outcome.disk_read_bytes += missed * PAGE_BYTES;
        outcome.ram_inserts += missed;
        if self.system.policies.on_flash_hit == OnFlashHit::Promote {
            outcome.ram_inserts += flash;
        }
        let bucket = (self.now_us / outcome.bucket_us.max(1)) as usize;
        if bucket >= outcome.timeline.len() {
            outcome.timeline.resize(bucket + 1, HitBucket::default());
        }
        outcome.timeline[bucket].pages += all;
        outcome.timeline[bucket].hits += ram + flash;
        if foreground {
            outcome.foreground_pages += all;
            outcome.foreground_slow_pages += flash + missed;
            if let Some(hop_ns) = hop_ns {
                outcome.called(ram, hop_ns);
                outcome.called(flash, self.flash_page_ns + hop_ns);
            }
        }
    }

    fn write(&mut self, access: &FrameAccess, purpose: IoPurpose, counts: bool, is_fine: bool) {
        let pages = u64::from(access.pages.count_ones());
        if self.goes_to_buffer(access.file, purpose) {
            if self.rules.has(SimRule::WearOfBuffer) {
                self.buffer_pages_written += pages;
            }
            return;
        }
        let file = &self.load.files()[access.file as usize];
        let (class, hinted) = (self.class(access.file), file.hinted);
        if is_fine {
            for page in pages_of(access.pages) {
                self.cache.write(access.key() | u64::from(page), 1, class, hinted);
            }
        } else {
            self.cache.write(access.key(), access.pages, class, hinted);
        }
        if counts {
            let allocates = match self.system.policies.writes {
                Writes::Allocate => true,
                Writes::NoAllocate => false,
                Writes::Hinted => hinted,
            };
            self.outcome.ram_inserts += if allocates { pages } else { 0 };
            let whole = self.rules.has(SimRule::WholePages);
            self.outcome.disk_written_bytes += if whole { pages * PAGE_BYTES } else { u64::from(access.bytes) };
        }
        self.put_object(access, counts);
        if !self.disks.is_empty() {
            let foreground = self.is_foreground(purpose, true);
            if foreground && counts {
                self.outcome.foreground_pages += pages;
                self.outcome.foreground_slow_pages += pages;
            }
            let wait = RequestWait { counts, foreground: foreground && counts, call: 0, hop_ns: 0 };
            self.send_to_disk(access, access.pages, purpose, wait);
        }
    }

    /// Runs of adjacent pages go to the disk of the file.
    fn send_to_disk(&mut self, access: &FrameAccess, pages: u16, purpose: IoPurpose, wait: RequestWait) {
        let policies = &self.system.policies;
        let disks = self.disks.len() as u32;
        let has_own_disk = policies.combined_log && self.rules.has(SimRule::LogsOnOwnDisk);
        let is_combined = policies.combined_log && purpose == IoPurpose::Log && access.is_write();
        let shared = if has_own_disk { disks - 1 } else { disks };
        let disk = match access.file {
            _ if is_combined && has_own_disk => disks - 1,
            file if self.rules.has(SimRule::DisksInTurn) => file % shared,
            _ => 0,
        };
        let base = u64::from(access.frame) * 16;
        let mut left = pages;
        while left != 0 {
            let first = left.trailing_zeros();
            let count = (left >> first).trailing_ones();
            // A run of all sixteen shifts everything out.
            left &= !((u32::MAX >> (32 - count) << first) as u16);
            let (mut file, mut offset) = (access.file, (base + u64::from(first)) * PAGE_BYTES);
            if is_combined && self.rules.has(SimRule::LogsInOneFile) {
                (file, offset) = (LOG_FILE, self.log_end);
                self.log_end += u64::from(count) * PAGE_BYTES;
            }
            let request = DiskRequest {
                at_ns: self.now_us * 1000,
                offset,
                file,
                bytes: count * PAGE_BYTES as u32,
                pages: count,
                purpose,
                counts: wait.counts,
                foreground: wait.foreground && wait.call == 0,
                call: wait.call,
                hop_ns: wait.hop_ns,
            };
            self.calls.sent(wait.call);
            let (outcome, calls) = (&mut self.outcome, &mut self.calls);
            let queue = &mut self.disks[disk as usize];
            queue.arrive(request, &mut |served| count_served(outcome, calls, served));
            let waiting = queue.waiting();
            outcome.waiting_max = outcome.waiting_max.max(waiting);
            outcome.overloaded |= waiting > WAITING_MAX;
        }
    }

    fn remove(&mut self, file: u32) {
        if self.is_buffered(file) && self.rules.has(SimRule::BufferReleased) {
            self.buffered[file as usize] = false;
            self.buffered_pages -= self.pages_of_file(file);
            self.resize_cache();
        }
    }

    fn is_buffered(&self, file: u32) -> bool {
        self.buffered.get(file as usize).copied().unwrap_or(false)
    }

    /// True if a write goes to the buffer; places the file there if it is to be, and there is room.
    fn goes_to_buffer(&mut self, file: u32, purpose: IoPurpose) -> bool {
        let Some(below) = self.system.policies.buffer_below.filter(|_| self.rules.has(SimRule::BufferBelow)) else {
            return false;
        };
        if self.is_buffered(file) {
            return true;
        }
        let facts = &self.load.files()[file as usize];
        let is_background = matches!(purpose, IoPurpose::Flush | IoPurpose::Compaction);
        let may = is_background || !self.rules.has(SimRule::BufferBackgroundOnly);
        let pages = self.pages_of_file(file);
        if !may || facts.bytes_of_all >= below || self.buffered_pages + pages > self.flash_pages_max {
            return false;
        }
        self.buffered[file as usize] = true;
        self.buffered_pages += pages;
        self.resize_cache();
        true
    }

    fn resize_cache(&mut self) {
        if self.rules.has(SimRule::BufferTakesCache) {
            self.cache.resize_flash(self.flash_pages_max - self.buffered_pages);
        }
    }

    fn pages_of_file(&self, file: u32) -> u64 {
        self.load.files()[file as usize].bytes.div_ceil(PAGE_BYTES)
    }

    /// The logarithm of the file's bytes.
    #[inline]
    fn class(&self, file: u32) -> u8 {
        match self.system.policies.admission {
            FlashAdmission::ClassMax(_) => self.load.files()[file as usize].bytes_of_all.max(1).ilog2() as u8,
            _ => 0,
        }
    }

    fn is_foreground(&self, purpose: IoPurpose, is_write: bool) -> bool {
        if !self.rules.has(SimRule::ForegroundOnly) {
            return true;
        }
        let is_put = is_write && purpose == IoPurpose::Log;
        let puts_wait = self.system.policies.durable_puts && self.rules.has(SimRule::DurablePutsWait);
        (!is_write && purpose == IoPurpose::Read) || (is_put && puts_wait)
    }

    fn warm_up_us(&self) -> u64 {
        if self.rules.has(SimRule::WarmUp) { self.system.policies.warm_up_us } else { 0 }
    }

    fn flash_pages_written(&self) -> u64 {
        self.cache.flash_pages_written() + self.buffer_pages_written
    }
}

#[inline]
fn count_served(outcome: &mut SimOutcome, calls: &mut OpenCalls, served: ServedRequest) {
    if served.request.counts {
        outcome.served(served);
    }
    if served.request.call != 0 {
        calls.served(served.request.call, served.end_ns + u64::from(served.request.hop_ns), outcome);
    }
}

/// Numbers of the pages of a mask, upward.
fn pages_of(mask: u16) -> impl Iterator<Item = u16> {
    (0..16).filter(move |page| mask >> page & 1 == 1)
}

/// The file of combined logs.
const LOG_FILE: u32 = u32::MAX;
/// Accesses whose entries are brought into the processor's cache together.
const GROUP: usize = 16;
/// Requests that wait for one disk beyond which it cannot keep up: four days of seeks in the study's disk.
const WAITING_MAX: usize = 1 << 20;
/// Intervals of a timeline; a longer load has longer ones.
const BUCKETS_MAX: u64 = 10_000;
/// Groups of frames whose hit ratios differ by chance: more of them estimate the error better.
const SAMPLE_GROUPS: usize = 64;
/// Tables that every simulation has.
const FIXED_BYTES: u64 = 1 << 16;
