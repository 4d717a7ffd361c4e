//! Scrubbing: a background read of everything on the device, which reports damage.
//!
//! Guarantees: every record is compared with its checksums on the medium; expired records are skipped; reading keeps to
//! a rate and yields to requests; a finding is kept, over restarts too, until a later scrub has finished without it, or
//! it was repaired: in a cluster other servers are asked for damaged records (`mending`). A single server repairs
//! nothing: there is one copy. Memory does not grow with the device.
//! Leaves to others: the places of records (`multilog`), refusing damaged bytes to readers (`device`), its thread
//! (`serve`).
//!
//! # The algorithm
//! Segments are checked in the order of the log, each in its state when its turn comes; records appended meanwhile are
//! checked at the end. Before damage is reported, dead records are looked up again: a record that expired since is no
//! loss.
//!
//! # Source
//! ZFS and btrfs scrub: online, at low priority, progress and findings kept on disk, resumed after a restart; the list
//! of damaged files is the operator's answer to *what did I lose*. Ours adds the instants at which the bytes show.

mod direct_read;
mod findings;
mod peer_repair;
mod periodic;
mod read_errors;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frieze_base::{Fault, MonoTime, SegmentId};
use frieze_disk::{Disk, StateFile};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, levels};
use frieze_multilog::{CheckStop, Damage, DamageKind, RecordHeader, SegmentBytes};
use frieze_storage::IMAGE_SLOT_BYTES;
use frieze_wire::scrub::{ScrubReply, ScrubState};
use prost::Message;

use self::direct_read::{Medium, Pace};
use self::findings::{FILE, FINDINGS_MAX, SLOT_BYTES, StoredScrub, found, read_kept};
use self::peer_repair::Mends;
use crate::upkeep::Upkeep;

/// Interval between two writes of the progress, at least: a restart repeats the reads since.
const KEEP_EVERY_NS: u64 = 10_000_000_000;

/// Known damage, and the scrub under way.
pub struct Scrub {
    disk: Arc<dyn Disk>,
    state: Mutex<levels::ScrubState, ScrubProgress>,
    /// Bytes checked of the current segment.
    within: AtomicU64,
    /// Records that other servers may have undamaged.
    mends: Mends,
}

struct ScrubProgress {
    kept: StoredScrub,
    /// Created when there is something to store.
    file: Option<StateFile>,
    /// Time of the last write.
    written: MonoTime,
    /// Error of the last write.
    trouble: Option<Fault>,
}

impl Scrub {
    /// Loads the findings of a data directory. A file that cannot be read counts as none, and `notes` says so: a scrub
    /// would find its content again.
    pub fn open(disk: Arc<dyn Disk>, notes: &mut Vec<String>) -> Scrub {
        let mut state = ScrubProgress { kept: StoredScrub::default(), file: None, written: MonoTime(0), trouble: None };
        match read_kept(&*disk) {
            Ok(Some((kept, file))) => (state.kept, state.file) = (kept, Some(file)),
            Ok(None) => {}
            Err(fault) => notes.push(format!("what the last scrub found cannot be read, scrub again: {fault}")),
        }
        Scrub { disk, state: Mutex::new(state), within: AtomicU64::new(0), mends: Mends::default() }
    }

    /// Number of the scrub under way, and its rate in bytes a second.
    fn under_way(&self) -> Option<(u64, u64)> {
        let state = self.state.lock();
        (state.kept.state() == ScrubState::Running).then(|| (state.kept.run, state.kept.bytes_per_s.max(1)))
    }

    /// Begins a scrub, unless one is under way.
    fn start(&self, now: Hlc, bytes_per_s: u64) {
        let mut state = self.state.lock();
        if state.kept.state() == ScrubState::Running {
            // The new rate holds from now on.
            state.kept.bytes_per_s = bytes_per_s;
            return;
        }
        self.within.store(0, Ordering::Relaxed);
        let before = &mut state.kept;
        *before = StoredScrub {
            state: ScrubState::Running.into(),
            run: before.run + 1,
            started: now.0,
            bytes_per_s,
            more_before: before.more.max(before.more_before),
            found: std::mem::take(&mut before.found),
            finished: before.finished,
            ..StoredScrub::default()
        };
        self.keep(&mut state);
    }

    /// Ends the scrub under way.
    fn stop(&self, now: Hlc) {
        let mut state = self.state.lock();
        if state.kept.state() == ScrubState::Running {
            state.kept.done_bytes += self.within.swap(0, Ordering::Relaxed);
            state.kept.set_state(ScrubState::Stopped);
            state.kept.ended = now.0;
            self.keep(&mut state);
        }
    }

    /// Drops the findings of a record.
    fn forget(&self, segment: SegmentId, record: &RecordHeader) {
        let mut state = self.state.lock();
        let before = state.kept.found.len();
        state.kept.found.retain(|found| !found.is_of(segment, record));
        if state.kept.found.len() < before {
            self.keep(&mut state);
        }
    }

    /// Writes the state to disk. If that fails, the state is kept in memory.
    fn keep(&self, state: &mut ScrubProgress) {
        let done = (|| {
            if state.file.is_none() {
                state.file = Some(StateFile::open_or_create_sized(&*self.disk, FILE, SLOT_BYTES)?);
            }
            state.file.as_ref().expect("just made").write(&state.kept.encode_to_vec())
        })();
        state.trouble = done.err().map(Fault::from);
    }

    /// The summary that every user may see.
    pub fn summary(&self) -> ScrubSummary {
        let state = self.state.lock();
        let kept = &state.kept;
        let running = kept.state() == ScrubState::Running;
        ScrubSummary {
            damaged: kept.damaged(),
            finished: Hlc(kept.finished),
            done_bytes: running.then(|| kept.done_bytes + self.within.load(Ordering::Relaxed)),
        }
    }
}

/// Known damage, in numbers.
#[derive(Clone, Copy, Debug)]
pub struct ScrubSummary {
    /// Damaged places known.
    pub damaged: u64,
    /// Stamp of the last finished scrub; zero for never.
    pub finished: Hlc,
    /// Of a scrub under way, bytes checked.
    pub done_bytes: Option<u64>,
}

impl Upkeep {
    /// Continues the scrub under way, if there is one, to its end. Call it now and then, on a thread of its own.
    /// `pause` waits as long as it is told and returns whether to continue; if it returns false, the next call, or the
    /// next start of the server, continues.
    ///
    /// # Errors
    /// Those of the store, while expired records are looked up: the next call tries again.
    pub fn scrub(&self, pause: &dyn Fn(Duration) -> bool) -> Result<(), Fault> {
        self.planes.pack_beside_requests(pause);
        if let Err(fault) = self.planes.advise_on_space(&|| pause(Duration::ZERO)) {
            tracing::debug!("which policy would free a full disk is not known: {fault}");
        }
        self.start_scrub_if_due();
        let now = self.planes.clock.reading().mono;
        let met = self.planes.data.device().read_errors().is_due(now);
        if self.scrub.under_way().is_none() && !met && !self.scrub.mends.is_due(now) {
            return Ok(());
        }
        // Load the expired records first: their bytes may already be zeros.
        if !self.planes.knows_dead() {
            self.reclaim()?;
            while self.thin()? {}
        }
        if !self.planes.knows_dead() || self.look_at_what_readers_met(pause).is_err() {
            return Ok(());
        }
        self.mend();
        let Some((run, _)) = self.scrub.under_way() else { return Ok(()) };
        loop {
            self.planes.pack_beside_requests(pause);
            let after = SegmentId(self.scrub.state.lock().kept.segment);
            let next = self.planes.data.device().log().segment_after(after);
            let Some(segment) = next else {
                if self.scrub_shelves(run, pause)? && self.scrub_images(run, pause).is_ok() {
                    self.finish_scrub(run);
                }
                return Ok(());
            };
            if self.scrub_segment(run, segment, pause).is_err() {
                self.scrub.within.store(0, Ordering::Relaxed);
                return Ok(());
            }
            self.mend();
        }
    }

    /// Scrubs everything, now and to the end, and reports the damage.
    ///
    /// # Errors
    /// As [`Upkeep::scrub`].
    pub fn scrub_everything(&self, bytes_per_s: u64, pause: &dyn Fn(Duration) -> bool) -> Result<ScrubReply, Fault> {
        // An earlier scrub of a server does not count.
        self.scrub.stop(self.planes.clock.now());
        self.scrub.start(self.planes.clock.now(), bytes_per_s);
        self.scrub(pause)?;
        self.scrub_reply(true)
    }

    fn scrub_segment(&self, run: u64, segment: SegmentId, pause: &dyn Fn(Duration) -> bool) -> Result<(), CheckStop> {
        let hit = self.look_at(Some(run), segment, pause)?;
        let now = self.planes.clock.now();
        let mut state = self.scrub.state.lock();
        let kept = &mut state.kept;
        if kept.run != run || kept.state() != ScrubState::Running {
            return Err(CheckStop::Stop);
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
        let mono = self.planes.clock.reading().mono;
        if kept.damaged() != known || mono.since_ns(state.written) > KEEP_EVERY_NS {
            state.written = mono;
            self.scrub.keep(&mut state);
        }
        Ok(())
    }

    /// Damage in a segment, checked twice where the first look may be wrong.
    fn look_at(
        &self,
        run: Option<u64>,
        segment: SegmentId,
        pause: &dyn Fn(Duration) -> bool,
    ) -> Result<Hit, CheckStop> {
        let mut hit = self.check_segment(run, segment, pause)?;
        if hit.has_footer() && self.planes.flush().is_ok() {
            // A record may have been placed a moment ago and not be written yet.
            hit = self.check_segment(run, segment, pause)?;
        }
        if !hit.places.is_empty() {
            // Expired meanwhile, and freed: no loss.
            let graves = self.planes.gc.lock().graves_in(segment);
            hit.places.retain(|damage| !lies_in(&graves, damage));
            // Or discarded.
            let device = self.planes.data.device();
            let discarded = if hit.places.is_empty() { Ok(None) } else { device.discarded_in(segment) };
            if let Ok(Some(runs)) = discarded {
                hit.places.retain(|damage| !lies_in(&runs, damage));
            }
            hit.places.iter().for_each(|damage| self.note_mend(damage));
        }
        Ok(hit)
    }

    fn note_mend(&self, damage: &Damage) {
        // Else no other server has it.
        if damage.record.as_ref().is_some_and(|record| !self.planes.data.is_sole(record.chain)) {
            self.scrub.mends.note(damage);
        }
    }

    fn check_segment(
        &self,
        run: Option<u64>,
        segment: SegmentId,
        pause: &dyn Fn(Duration) -> bool,
    ) -> Result<Hit, CheckStop> {
        let device = self.planes.data.device();
        // Before the records are read: the caller asks again for those that expire later.
        let graves = self.planes.gc.lock().graves_in(segment);
        let mut hit = Hit::default();
        let Some(content) = device.log().content(segment) else {
            let mut pace = Pace::new(self, run, pause);
            let found = device.check_pack(segment, &mut |bytes| pace.wait(bytes).is_ok());
            hit.places = found.ok().flatten().unwrap_or_default();
            return Ok(hit);
        };
        hit.bytes = content.end();
        match device.medium(segment) {
            Ok(file) => {
                let mut medium = Medium::new(Pace::new(self, run, pause), &*file, content.end());
                hit.records = content.check(&graves, &mut medium, &mut |damage| hit.add(damage))?.records;
            }
            Err(fault) => {
                let (kind, len) = (DamageKind::Records, content.end());
                hit.add(Damage { kind, segment, at: 0, len, record: None, skip: 0, unread: Some(fault) });
            }
        }
        Ok(hit)
    }

    /// Reads the shelves, of which a damaged one is rebuilt, and the packs. False if `pause` stopped it.
    ///
    /// # Errors
    /// Those of the disk during a rebuild: the next call tries again.
    fn scrub_shelves(&self, run: u64, pause: &dyn Fn(Duration) -> bool) -> Result<bool, Fault> {
        let mut pace = Pace::new(self, Some(run), pause);
        let mut goes_on = true;
        let device = self.planes.data.device();
        let shelves = device.check_index_runs(&mut |bytes| {
            goes_on = pace.wait(bytes).is_ok();
            goes_on
        })?;
        let mut in_packs = Vec::new();
        for pack in device.pack_ids() {
            let Some(found) = device.check_pack(pack, &mut |bytes| pace.wait(bytes).is_ok())? else { return Ok(false) };
            in_packs.extend(found);
        }
        if !goes_on {
            return Ok(false);
        }
        let now = self.planes.clock.now();
        let mut state = self.scrub.state.lock();
        state.kept.mended = shelves.rebuilt;
        state.kept.done_bytes += device.pack_stats().bytes;
        state.kept.records += device.pack_stats().records;
        for (key, unread) in shelves.lost {
            let (kind, segment) = (DamageKind::Index, key.first);
            let damage = Damage { kind, segment, at: 0, len: 0, record: None, skip: 0, unread: Some(unread) };
            state.kept.add(found(damage, run, now));
        }
        for damage in in_packs {
            self.note_mend(&damage);
            state.kept.add(found(damage, run, now));
        }
        Ok(true)
    }

    /// Compares images with their checksums. A damaged one is dropped, which loses nothing: it is no finding.
    fn scrub_images(&self, run: u64, pause: &dyn Fn(Duration) -> bool) -> Result<(), CheckStop> {
        let device = self.planes.data.device();
        for (number, file) in device.image_files() {
            let mut medium = Medium::new(Pace::new(self, Some(run), pause), &*file, u64::MAX);
            for (image, at) in device.images_in(number) {
                match medium.bytes(at, IMAGE_SLOT_BYTES) {
                    Err(CheckStop::Stop) => return Err(CheckStop::Stop),
                    Err(CheckStop::Failed(fault)) => device.check_image(&image, Err(fault)),
                    Ok(bytes) => device.check_image(&image, Ok(bytes)),
                }
            }
        }
        Ok(())
    }

    fn finish_scrub(&self, run: u64) {
        let now = self.planes.clock.now();
        let mut state = self.scrub.state.lock();
        let kept = &mut state.kept;
        if kept.run != run || kept.state() != ScrubState::Running {
            return;
        }
        // Damage that this scrub did not find is repaired or deleted.
        kept.found.retain(|known| known.run == run);
        kept.more_before = 0;
        kept.set_state(ScrubState::Finished);
        (kept.ended, kept.finished) = (now.0, now.0);
        self.scrub.keep(&mut state);
    }
}

/// Result of checking one segment.
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
