//! What a server of frieze finds in its memory under a recorded load, by the code of `tier` that the server runs.
//!
//! Guarantees: which bytes are young, which frames stay, which readers are sequential and how far ahead of them is read
//! are decided by [`RecentWindow`], [`OldPages`] and [`Readers`] alone; the same load gives the same counts.
//! Leaves to others: which calls there are (`trace`), and how long anything takes.
//!
//! # Two ways
//! [`simulate_server`] takes the calls of users: it lays what they write into a log as the server does, and finds in it
//! what they read. So any trace can be tried with any memory. [`DeviceReplay`] takes the requests that a server
//! recorded at its device, and counts beside its own decisions those of the server: what differs is the simulation's
//! error.

mod placement;
mod replay;

use frieze_base::ByteRange;
use frieze_tier::{
    AheadSteps, CachePolicy, CacheStats, FRAME_BYTES, Heat, HitCounts, OldPages, PAGE_BYTES, READERS_MAX, Readers,
    RecentWindow, Shares,
};
use frieze_trace::DeviceFile;

use crate::workload::{Movement, RecordedLoad};
use placement::{LogPlaces, ReadSpan};
pub use replay::DeviceReplay;

/// Memory of a server for records, and the policies that decide about it. All sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerMemory {
    /// For the youngest records.
    pub young_bytes: u64,
    /// For older records that are in use.
    pub old_bytes: u64,
    /// The part of `old_bytes` that the small queue of the policy has, 0 to 1; `None`: the server's.
    pub small_share: Option<f64>,
    /// The steps in which is read ahead; `None`: the server's.
    pub ahead: Option<AheadSteps>,
}

impl ServerMemory {
    /// What a server with these shares has for records.
    pub fn of_shares(shares: &Shares) -> ServerMemory {
        ServerMemory { young_bytes: shares.young, old_bytes: shares.old, small_share: None, ahead: None }
    }

    /// So many bytes for records, of which the young ones have this share, 0 to 1.
    pub fn split(bytes: u64, young_share: f64) -> ServerMemory {
        let young_bytes = ((bytes as f64 * young_share.clamp(0.0, 1.0)) as u64).min(bytes);
        ServerMemory { young_bytes, old_bytes: bytes - young_bytes, small_share: None, ahead: None }
    }

    /// The part that the young records have, 0 to 1.
    pub fn young_share(&self) -> f64 {
        self.young_bytes as f64 / (self.young_bytes + self.old_bytes).max(1) as f64
    }

    /// The same for one in so many files of a machine.
    #[must_use]
    pub fn shrunk(&self, one_in: u32) -> ServerMemory {
        let of = |bytes: u64| bytes / u64::from(one_in.max(1));
        ServerMemory { young_bytes: of(self.young_bytes), old_bytes: of(self.old_bytes), ..*self }
    }
}

/// What reads found. Bytes are those of whole pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerHits {
    /// Bytes of reads that were young: in memory because they were written.
    pub young_bytes: u64,
    /// Older bytes that random reads asked for.
    pub wanted: HitCounts,
    /// Older bytes that sequential readers asked for, or that were requested ahead of them.
    pub scanned: HitCounts,
    /// Of `scanned`, what was requested ahead. A recording of a server's device does not say which it was.
    pub ahead: HitCounts,
    /// Frames that were pushed out by others.
    pub evicted: u64,
}

impl ServerHits {
    /// Bytes that readers asked for.
    pub fn asked_bytes(&self) -> u64 {
        self.young_bytes + self.wanted.asked_bytes() + self.scanned.asked_bytes() - self.ahead.asked_bytes()
    }

    /// Bytes that the device was asked for.
    pub fn device_bytes(&self) -> u64 {
        self.wanted.missed_bytes + self.scanned.missed_bytes
    }

    /// The part of what readers asked for that no device had to be asked for, ahead of them or with them; `None` if
    /// they asked for nothing, below 0 if more was read ahead than was used.
    pub fn served_share(&self) -> Option<f64> {
        let asked = self.asked_bytes();
        (asked > 0).then(|| 1.0 - self.device_bytes() as f64 / asked as f64)
    }

    /// The part that was in memory of all that was asked for, ahead of readers too; `None` if that is nothing. This is
    /// what a server counts.
    pub fn found_share(&self) -> Option<f64> {
        let missed = self.device_bytes();
        let found = self.young_bytes + self.wanted.hit_bytes + self.scanned.hit_bytes;
        (found + missed > 0).then(|| found as f64 / (found + missed) as f64)
    }

    /// The part of what readers asked for that was young.
    pub fn young_share(&self) -> Option<f64> {
        let asked = self.asked_bytes();
        (asked > 0).then(|| self.young_bytes as f64 / asked as f64)
    }

    /// The part of what readers asked for that they had to wait for: what was read ahead in time is not in it.
    pub fn waited_share(&self) -> Option<f64> {
        let asked = self.asked_bytes();
        let waited = self.device_bytes() - self.ahead.missed_bytes;
        (asked > 0).then(|| waited as f64 / asked as f64)
    }
}

/// What a server with each of these memories would find under the load.
///
/// # Cost
/// One pass over the calls for all; 30 to 100 bytes of memory for each piece of a file that was written by itself.
pub fn simulate_server(load: &RecordedLoad, memories: &[ServerMemory]) -> Vec<ServerHits> {
    let mut log = LogPlaces::new(load.files().iter().map(|file| file.bytes));
    let mut models: Vec<ServerModel> = memories.iter().map(|memory| ServerModel::new(memory, 0)).collect();
    let (mut spans, mut ahead_spans) = (Vec::new(), Vec::new());
    for call in load.calls() {
        let bytes = u64::from(call.bytes);
        match call.movement {
            Movement::Remove => log.remove(call.file),
            Movement::Write => {
                let end = log.write(call.file, call.offset, bytes);
                models.iter_mut().for_each(|model| model.grow(end, end));
            }
            Movement::Read => {
                let size = log.size(call.file);
                let range = ByteRange::new(call.offset.min(size), call.offset.saturating_add(bytes).min(size));
                if range.is_empty() {
                    continue;
                }
                spans.clear();
                log.spans(call.file, range.start(), range.end(), &mut spans);
                for model in &mut models {
                    let Some(ahead) = model.read((call.machine, call.file), range, &spans) else { continue };
                    let end = ahead.end().min(log.size(call.file));
                    ahead_spans.clear();
                    if ahead.start() < end {
                        log.spans(call.file, ahead.start(), end, &mut ahead_spans);
                    }
                    model.read_ahead(&ahead_spans);
                }
            }
        }
    }
    models.iter().map(ServerModel::hits).collect()
}

/// A file that reads of the device name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum ServedFile {
    /// A file of the device.
    Device(DeviceFile),
    /// What a file of the load had before the load began.
    Before(u32),
}

/// The decisions of a server about its memory.
struct ServerModel {
    window: RecentWindow,
    old: OldPages<ServedFile>,
    readers: Readers<(u8, u32)>,
    young_bytes: u64,
    ahead: HitCounts,
    /// Scratch.
    evicted: Vec<(frieze_tier::PageFrame<ServedFile>, frieze_tier::FramePages)>,
}

impl ServerModel {
    /// Nothing was read yet, and the young window begins at `edge`.
    fn new(memory: &ServerMemory, edge: u64) -> ServerModel {
        let old = match memory.small_share {
            None => OldPages::new(memory.old_bytes),
            Some(share) => {
                let small = (memory.old_bytes as f64 * share.clamp(0.0, 1.0)) as u64;
                OldPages::under(CachePolicy::with_small(memory.old_bytes, small))
            }
        };
        let steps = memory.ahead.unwrap_or(AheadSteps::upto(old.ahead_bytes_max()));
        ServerModel {
            window: RecentWindow::new(memory.young_bytes, FRAME_BYTES, edge.saturating_add(memory.young_bytes)),
            old,
            readers: Readers::with_steps(READERS_MAX, steps),
            young_bytes: 0,
            ahead: HitCounts::default(),
            evicted: Vec::new(),
        }
    }

    /// The log has grown to `end`, and is durable up to `durable`.
    fn grow(&mut self, end: u64, durable: u64) {
        if self.window.is_due(end) {
            self.window.advance(end, durable);
        }
    }

    /// A reader reads `range` of a file, which lies in these spans. Returns what is to be read ahead.
    fn read(&mut self, reader: (u8, u32), range: ByteRange, spans: &[ReadSpan]) -> Option<ByteRange> {
        // A server does not look at readers of young records alone.
        if !spans.iter().any(|span| self.is_old(span)) {
            self.young_bytes += spans.iter().map(ReadSpan::page_bytes).sum::<u64>();
            return None;
        }
        let habit = self.readers.observe(reader, range);
        let heat = if habit.is_sequential { Heat::Scan } else { Heat::Wanted };
        for span in spans {
            match self.is_old(span) {
                true => _ = self.request(span, heat),
                false => self.young_bytes += span.page_bytes(),
            }
        }
        habit.ahead
    }

    fn read_ahead(&mut self, spans: &[ReadSpan]) {
        let before = self.old.scanned();
        for span in spans {
            if self.is_old(span) {
                self.request(span, Heat::Scan);
            }
        }
        let after = self.old.scanned();
        self.ahead.hit_bytes += after.hit_bytes - before.hit_bytes;
        self.ahead.missed_bytes += after.missed_bytes - before.missed_bytes;
    }

    fn is_old(&self, span: &ReadSpan) -> bool {
        span.is_old(self.window.edge())
    }

    /// Asks for the old part of a span. Returns how many bytes of it are old.
    fn request(&mut self, span: &ReadSpan, heat: Heat) -> u64 {
        let (file, start) = (span.file, span.start);
        let end = span.end.min(span.old_end(self.window.edge()));
        if start >= end {
            return 0;
        }
        self.old.request(file, start, end, heat, &mut self.evicted);
        self.evicted.clear();
        end - start
    }

    fn hits(&self) -> ServerHits {
        let CacheStats { evicted, .. } = self.old.stats();
        ServerHits {
            young_bytes: self.young_bytes,
            wanted: self.old.wanted(),
            scanned: self.old.scanned(),
            ahead: self.ahead,
            evicted,
        }
    }
}

/// Bytes of the pages that `start..end` lies in.
fn page_bytes(start: u64, end: u64) -> u64 {
    end.next_multiple_of(PAGE_BYTES) - start / PAGE_BYTES * PAGE_BYTES
}
