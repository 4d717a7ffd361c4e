//! Scrubbing: everything on the device is read in the background, and what is damaged is named.
//!
//! Guarantees: every record is compared with its checksums as they lie on the medium; what was forgotten is passed over;
//! reading keeps to a rate and gives way to requests; a finding stays known, over restarts too, until a later scrub has
//! finished and did not find it again. Nothing is repaired: there is one copy. Memory does not grow with the device.
//! Leaves to others: what lies where (`multilog`), refusing damaged bytes to readers (`device`), its thread (`serve`).
//!
//! # The algorithm
//! Segments are checked in the order of the log, each as the log said it was when its turn came; what is appended
//! meanwhile is met at the end. Before damage is believed, the graves are asked again: what was forgotten since is no loss.
//!
//! # Source
//! ZFS and btrfs scrub: online, at low priority, progress and findings kept on disk, resumed after a restart; the list of
//! damaged files is the operator's answer to *what did I lose*. Ours adds the instants at which the bytes show.

mod told;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::{Fault, MonoTime, Reason, SegmentId};
use frieze_disk::{Disk, DiskFile, PAGE_BYTES, StateFile};
use frieze_hlc::Hlc;
use frieze_multilog::{Damage, DamageKind, SegmentBytes, Unread};
use frieze_wire::scrub::{FindingKind, ScrubReply, ScrubState};
use prost::Message;

use crate::engine::Engine;

/// File that holds what a scrub has found.
const FILE: &str = "scrub";
/// Damaged places that are remembered; of more it is known how many.
const FINDINGS_MAX: usize = 500;
/// Holds as many findings, each with the longest words of a device.
const SLOT_BYTES: usize = 128 << 10;
/// Longest words of a device that are kept.
const WORDS_MAX: usize = 120;
/// Read at once.
const WINDOW_BYTES: usize = 1 << 20;
/// While others are served, a scrub takes one part in this many of the time.
const PART_WHEN_BUSY: u32 = 4;
/// How often progress is put on disk, at most: a restart repeats what was read since.
const KEEP_EVERY_NS: u64 = 10_000_000_000;

/// What is known to be damaged, and the scrub under way.
pub(crate) struct Scrub {
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
    /// Bytes of the segment that is looked at.
    within: AtomicU64,
}

struct State {
    kept: Kept,
    /// Made when there is something to keep.
    file: Option<StateFile>,
    /// When it was written.
    written: MonoTime,
    /// Why it could not be.
    trouble: Option<Fault>,
}

/// As it is stored.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Kept {
    #[prost(enumeration = "ScrubState", tag = "1")]
    state: i32,
    /// Number of the newest scrub.
    #[prost(uint64, tag = "2")]
    run: u64,
    #[prost(uint64, tag = "3")]
    started: u64,
    #[prost(uint64, tag = "4")]
    ended: u64,
    /// The last segment that was looked at.
    #[prost(uint64, tag = "5")]
    segment: u64,
    #[prost(uint64, tag = "6")]
    bytes_per_s: u64,
    #[prost(uint64, tag = "7")]
    done_bytes: u64,
    #[prost(uint64, tag = "8")]
    records: u64,
    #[prost(message, repeated, tag = "9")]
    found: Vec<Found>,
    /// Places found by the newest scrub that are not in `found`.
    #[prost(uint64, tag = "10")]
    more: u64,
    /// The same of the one before, until the newest has finished.
    #[prost(uint64, tag = "11")]
    more_before: u64,
    #[prost(uint64, tag = "12")]
    finished: u64,
}

/// A damaged place as it is stored. Names and instants are looked up when it is told.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Found {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(uint64, tag = "2")]
    segment: u64,
    #[prost(uint64, tag = "3")]
    at: u64,
    #[prost(uint64, tag = "4")]
    len: u64,
    /// 0: no record is known.
    #[prost(uint64, tag = "5")]
    inode: u64,
    #[prost(uint32, tag = "6")]
    chunk: u32,
    /// In the chunk.
    #[prost(uint64, tag = "7")]
    start: u64,
    #[prost(uint64, tag = "8")]
    bytes: u64,
    #[prost(uint64, tag = "9")]
    stamp: u64,
    /// The scrub that found it last.
    #[prost(uint64, tag = "10")]
    run: u64,
    #[prost(uint64, tag = "11")]
    found: u64,
    #[prost(string, tag = "12")]
    unread: String,
}

impl Scrub {
    /// What a data directory knows. A file that cannot be read counts as none, and says so: it holds nothing that a scrub
    /// would not find again.
    pub(crate) fn open(disk: Arc<dyn Disk>, notes: &mut Vec<String>) -> Scrub {
        let mut state = State { kept: Kept::default(), file: None, written: MonoTime(0), trouble: None };
        match read_kept(&*disk) {
            Ok(Some((kept, file))) => (state.kept, state.file) = (kept, Some(file)),
            Ok(None) => {}
            Err(fault) => notes.push(format!("what the last scrub found cannot be read, scrub again: {fault}")),
        }
        Scrub { disk, state: Mutex::new(state), within: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the scrub that is under way, and how many bytes a second it may read.
    fn under_way(&self) -> Option<(u64, u64)> {
        let state = self.lock();
        (state.kept.state() == ScrubState::Running).then(|| (state.kept.run, state.kept.bytes_per_s.max(1)))
    }

    /// Begins a scrub, unless one is under way.
    fn start(&self, now: Hlc, bytes_per_s: u64) {
        let mut state = self.lock();
        if state.kept.state() == ScrubState::Running {
            // At another rate from now on.
            state.kept.bytes_per_s = bytes_per_s;
            return;
        }
        self.within.store(0, Ordering::Relaxed);
        let before = &mut state.kept;
        *before = Kept {
            state: ScrubState::Running.into(),
            run: before.run + 1,
            started: now.0,
            bytes_per_s,
            more_before: before.more.max(before.more_before),
            found: std::mem::take(&mut before.found),
            finished: before.finished,
            ..Kept::default()
        };
        self.keep(&mut state);
    }

    /// Ends the one that is under way.
    fn stop(&self, now: Hlc) {
        let mut state = self.lock();
        if state.kept.state() == ScrubState::Running {
            state.kept.done_bytes += self.within.swap(0, Ordering::Relaxed);
            state.kept.set_state(ScrubState::Stopped);
            state.kept.ended = now.0;
            self.keep(&mut state);
        }
    }

    /// Puts what is known on disk. Where that fails, it is known while the server lives.
    fn keep(&self, state: &mut State) {
        let done = (|| {
            if state.file.is_none() {
                state.file = Some(StateFile::open_or_create_sized(&*self.disk, FILE, SLOT_BYTES)?);
            }
            state.file.as_ref().expect("just made").write(&state.kept.encode_to_vec())
        })();
        state.trouble = done.err().map(Fault::from);
    }

    /// Damaged places known; when everything was last looked at; of a scrub under way, bytes looked at.
    pub(crate) fn summary(&self) -> (u64, Hlc, Option<u64>) {
        let state = self.lock();
        let kept = &state.kept;
        let running = kept.state() == ScrubState::Running;
        let done = running.then(|| kept.done_bytes + self.within.load(Ordering::Relaxed));
        (kept.damaged(), Hlc(kept.finished), done)
    }
}

impl Kept {
    fn damaged(&self) -> u64 {
        self.found.len() as u64 + self.more.max(self.more_before)
    }

    /// Takes in a place, known or new. Where there is no room left, it is counted; one of the scrub before goes first.
    fn add(&mut self, found: Found) {
        let place = |found: &Found| (found.segment, found.at, found.kind);
        if let Some(known) = self.found.iter_mut().find(|known| place(known) == place(&found)) {
            *known = found;
            return;
        }
        if self.found.len() < FINDINGS_MAX {
            self.found.push(found);
        } else if let Some(older) = self.found.iter_mut().find(|known| known.run < self.run) {
            *older = found;
            self.more_before += 1;
        } else {
            self.more += 1;
        }
    }
}

fn read_kept(disk: &dyn Disk) -> Result<Option<(Kept, StateFile)>, Fault> {
    if !disk.list()?.iter().any(|name| name == FILE) {
        return Ok(None);
    }
    let file = StateFile::open_or_create_sized(disk, FILE, SLOT_BYTES)?;
    let kept = file.read().map_or(Ok(Kept::default()), |bytes| Kept::decode(bytes.as_slice()));
    let kept = kept.map_err(|error| Fault::new(Reason::Corrupt, format!("the {FILE} file is malformed: {error}")))?;
    Ok(Some((kept, file)))
}

impl Engine {
    /// Goes on with the scrub that is under way, if there is one, to its end. To be called now and then, on a thread of its
    /// own. `pause` waits as long as it is told and says whether to go on; when it says no, the next call, or the next
    /// start of the server, goes on.
    ///
    /// # Errors
    /// Those of the store, while it is found out what was forgotten: the next call tries again.
    pub fn scrub(&self, pause: &dyn Fn(Duration) -> bool) -> Result<(), Fault> {
        let Some((run, _)) = self.scrub.under_way() else { return Ok(()) };
        // What was forgotten before this start is zeros in places: that has to be known first.
        if !self.reclaim.is_known() {
            self.reclaim()?;
        }
        if !self.reclaim.is_known() {
            return Ok(());
        }
        loop {
            let after = SegmentId(self.scrub.lock().kept.segment);
            let next = self.data.device().log().segment_after(after);
            let Some(segment) = next else {
                self.finish_scrub(run);
                return Ok(());
            };
            if self.scrub_segment(run, segment, pause).is_err() {
                self.scrub.within.store(0, Ordering::Relaxed);
                return Ok(());
            }
        }
    }

    /// Scrubs everything, now and to the end, and tells what is damaged.
    ///
    /// # Errors
    /// As [`Engine::scrub`].
    pub(crate) fn scrub_everything(
        &self,
        bytes_per_s: u64,
        pause: &dyn Fn(Duration) -> bool,
    ) -> Result<ScrubReply, Fault> {
        // One that a server had begun is not this one.
        self.scrub.stop(self.clock.now());
        self.scrub.start(self.clock.now(), bytes_per_s);
        self.scrub(pause)?;
        self.scrub_reply(true)
    }

    fn scrub_segment(&self, run: u64, segment: SegmentId, pause: &dyn Fn(Duration) -> bool) -> Result<(), Unread> {
        let mut hit = self.check_segment(run, segment, pause)?;
        if hit.has_footer() && self.flush().is_ok() {
            // It may have been handed out a moment ago and not be written yet.
            hit = self.check_segment(run, segment, pause)?;
        }
        if !hit.places.is_empty() {
            // Forgotten meanwhile, and given back: no loss.
            let graves = self.reclaim.lock().graves_in(segment);
            hit.places.retain(|damage| !lies_in(&graves, damage));
        }
        let now = self.clock.now();
        let mut state = self.scrub.lock();
        let kept = &mut state.kept;
        if kept.run != run || kept.state() != ScrubState::Running {
            return Err(Unread::Stop);
        }
        let known = kept.damaged();
        for damage in hit.places {
            kept.add(found(damage, run, now));
        }
        kept.more += hit.more;
        kept.segment = segment.0;
        kept.records += hit.records;
        kept.done_bytes += hit.bytes;
        self.scrub.within.store(0, Ordering::Relaxed);
        let mono = self.clock.reading().mono;
        if kept.damaged() != known || mono.since_ns(state.written) > KEEP_EVERY_NS {
            state.written = mono;
            self.scrub.keep(&mut state);
        }
        Ok(())
    }

    fn check_segment(&self, run: u64, segment: SegmentId, pause: &dyn Fn(Duration) -> bool) -> Result<Hit, Unread> {
        let device = self.data.device();
        // Before the records are looked at: what is forgotten later is asked for again.
        let graves = self.reclaim.lock().graves_in(segment);
        let mut hit = Hit::default();
        let Some(content) = device.log().content(segment) else { return Ok(hit) };
        hit.bytes = content.end();
        match device.medium(segment) {
            Ok(file) => {
                let mut medium = Medium::new(self, run, content.end(), &*file, pause);
                hit.records = content.check(&graves, &mut medium, &mut |damage| hit.add(damage))?.records;
            }
            Err(fault) => {
                let (kind, len) = (DamageKind::Records, content.end());
                hit.add(Damage { kind, segment, at: 0, len, record: None, skip: 0, unread: Some(fault) });
            }
        }
        Ok(hit)
    }

    fn finish_scrub(&self, run: u64) {
        let now = self.clock.now();
        let mut state = self.scrub.lock();
        let kept = &mut state.kept;
        if kept.run != run || kept.state() != ScrubState::Running {
            return;
        }
        // What it did not find is whole again, or gone.
        kept.found.retain(|known| known.run == run);
        kept.more_before = 0;
        kept.set_state(ScrubState::Finished);
        (kept.ended, kept.finished) = (now.0, now.0);
        self.scrub.keep(&mut state);
    }
}

/// What was seen of one segment.
#[derive(Default)]
struct Hit {
    places: Vec<Damage>,
    more: u64,
    bytes: u64,
    records: u64,
}

impl Hit {
    fn add(&mut self, damage: Damage) {
        match self.places.len() < FINDINGS_MAX {
            true => self.places.push(damage),
            false => self.more += 1,
        }
    }

    fn has_footer(&self) -> bool {
        self.places.iter().any(|damage| damage.kind == DamageKind::Footer)
    }
}

fn lies_in(graves: &BTreeMap<u64, u64>, damage: &Damage) -> bool {
    let grave = graves.range(..=damage.at).next_back();
    grave.is_some_and(|(_, &end)| damage.at + damage.len <= end)
}

fn found(damage: Damage, run: u64, now: Hlc) -> Found {
    let is_data = damage.kind == DamageKind::Data;
    let unread = damage.unread.map_or(String::new(), |fault| fault.message.chars().take(WORDS_MAX).collect());
    let mut found = Found {
        kind: kind_of(damage.kind) as u32,
        segment: damage.segment.0,
        at: damage.at,
        len: damage.len,
        run,
        found: now.0,
        unread,
        ..Found::default()
    };
    if let Some(record) = damage.record {
        found.inode = record.chunk.inode.0;
        found.chunk = record.chunk.index;
        found.stamp = record.stamp.0;
        found.start = u64::from(record.offset) + u64::from(damage.skip);
        found.bytes = if is_data { damage.len } else { record.len.into() };
    }
    found
}

fn kind_of(kind: DamageKind) -> FindingKind {
    match kind {
        DamageKind::Data => FindingKind::Data,
        DamageKind::Header => FindingKind::Header,
        DamageKind::SegmentHeader => FindingKind::SegmentHeader,
        DamageKind::Footer => FindingKind::Footer,
        DamageKind::Records => FindingKind::Records,
    }
}

/// A segment's file as it lies on the medium, read through windows and no faster than it may be.
struct Medium<'a> {
    engine: &'a Engine,
    run: u64,
    file: &'a dyn DiskFile,
    pause: &'a dyn Fn(Duration) -> bool,
    /// End of the records: what lies behind is the footer, which is read beside them.
    end: u64,
    /// Of the records, and of the footer.
    windows: [Window; 2],
    /// Requests that the device had served when it was last looked.
    served: u64,
    /// When it went on after the last pause.
    resumed: MonoTime,
}

/// Bytes of a file that were read.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn holds(&self, offset: u64, end: u64) -> bool {
        self.start <= offset && end <= self.start + self.bytes.len() as u64
    }

    /// Reads what lies in the pages of these bytes.
    fn fill(&mut self, file: &dyn DiskFile, offset: u64, end: u64) -> Result<(), Fault> {
        self.start = offset / PAGE_BYTES * PAGE_BYTES;
        self.bytes.resize((end.next_multiple_of(PAGE_BYTES) - self.start) as usize, 0);
        let read = file.read_medium_at(self.start, &mut self.bytes);
        self.bytes.truncate(*read.as_ref().unwrap_or(&0));
        read.map(drop).map_err(Fault::from)
    }
}

impl<'a> Medium<'a> {
    fn new(
        engine: &'a Engine,
        run: u64,
        end: u64,
        file: &'a dyn DiskFile,
        pause: &'a dyn Fn(Duration) -> bool,
    ) -> Medium<'a> {
        let served = engine.data.device().served();
        let resumed = engine.clock.reading().mono;
        Medium { engine, run, file, pause, end, windows: Default::default(), served, resumed }
    }

    /// Waits for as long as reading `bytes` may take, or longer while others are served.
    fn pace(&mut self, bytes: u64) -> Result<(), Unread> {
        // Reading it, and looking at what was read before.
        let took = Duration::from_nanos(self.engine.clock.reading().mono.since_ns(self.resumed));
        let rate = match self.engine.scrub.under_way() {
            Some((run, rate)) if run == self.run => rate,
            _ => return Err(Unread::Stop),
        };
        let due = Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64);
        let served = self.engine.data.device().served();
        let busy = served != self.served;
        self.served = served;
        let due = if busy { due.max(took * PART_WHEN_BUSY) } else { due };
        let goes_on = (self.pause)(due.saturating_sub(took));
        self.resumed = self.engine.clock.reading().mono;
        if goes_on { Ok(()) } else { Err(Unread::Stop) }
    }
}

impl SegmentBytes for Medium<'_> {
    fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8], Unread> {
        let which = usize::from(offset >= self.end);
        let end = offset + len as u64;
        if !self.windows[which].holds(offset, end) {
            let (file, window) = (self.file, &mut self.windows[which]);
            let region_end = if which == 0 { self.end } else { u64::MAX };
            let upto = (offset + WINDOW_BYTES as u64).min(region_end).max(end);
            // Of a window with a bad sector in it, only what is asked for is read again.
            let filled = window.fill(file, offset, upto).or_else(|_| window.fill(file, offset, end));
            let bytes = window.bytes.len() as u64;
            if which == 0 {
                self.engine.scrub.within.store(offset, Ordering::Relaxed);
            }
            self.pace(bytes)?;
            if let Err(fault) = filled {
                return Err(Unread::Failed(fault));
            }
        }
        let window = &self.windows[which];
        let from = ((offset - window.start) as usize).min(window.bytes.len());
        Ok(&window.bytes[from..window.bytes.len().min(from + len)])
    }
}
