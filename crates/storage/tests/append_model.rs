//! The protocol of appends, as a model without bytes: several threads reserve, fill and publish, one flushes, the
//! process or the power fails at any step. Random schedules find no violation while every rule holds, and each rule
//! that is left out is caught.
//!
//! A segment is a row of slots of one record each. A record names the record before it, and the header of a segment the
//! record before the segment, as on disk: recovery follows these links from the first segment and ends at the first
//! that does not fit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use frieze_base::Rng;

/// The rules of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AppendRule {
    /// A reservation is published only when all before it are published.
    PublishInOrder,
    /// A reservation is published only when it is filled.
    PublishWhenFilled,
    /// If a fill fails, the reservations behind it fail too: their links lead through it.
    FailFollowers,
    /// The space of failed reservations is reserved again only when none of them is being filled any more.
    AwaitFailedFills,
    /// The record of a failed fill is erased: all of it may have been written.
    EraseFailed,
    /// A segment is begun only when nothing is reserved: its header names the last record published.
    RollAlone,
    /// A segment counts as dirty from the end of the fill on, before the record is published.
    MarkDirtyAfterFill,
    /// See [`AppendRule::MarkDirtyAfterFill`].
    MarkDirtyBeforePublish,
    /// A flush reads the end of the log before it takes the list of dirty segments.
    ReadEndFirst,
    /// A flush waits for the reservations made before it.
    FlushAwaitsReserved,
    /// Recovery ends at the first record that is not whole.
    EndAtTorn,
    /// Recovery erases the slots behind the end, durably: a record that is lost must not come back once the record
    /// before it is sent again.
    WipeBehindEnd,
    /// At most [`RESERVED_MAX`] reservations are open: as many as recovery erases.
    BoundReserved,
}

const RULES: [AppendRule; 13] = [
    AppendRule::PublishInOrder,
    AppendRule::PublishWhenFilled,
    AppendRule::FailFollowers,
    AppendRule::AwaitFailedFills,
    AppendRule::EraseFailed,
    AppendRule::RollAlone,
    AppendRule::MarkDirtyAfterFill,
    AppendRule::MarkDirtyBeforePublish,
    AppendRule::ReadEndFirst,
    AppendRule::FlushAwaitsReserved,
    AppendRule::EndAtTorn,
    AppendRule::WipeBehindEnd,
    AppendRule::BoundReserved,
];

const FILLERS: usize = 5;
const RESERVED_MAX: usize = 3;
const SEGMENT_SLOTS: usize = 8;
const STEPS: usize = 400;
const SEEDS: u64 = 400;

/// A record, named as by its stamp; 0 is the beginning of the log.
type RecordId = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotBytes {
    Blank,
    Torn,
    Record { id: RecordId, previous: RecordId },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ModelSegment {
    /// The last record before the segment.
    link: RecordId,
    slots: [SlotBytes; SEGMENT_SLOTS],
}

impl ModelSegment {
    fn after(link: RecordId) -> ModelSegment {
        ModelSegment { link, slots: [SlotBytes::Blank; SEGMENT_SLOTS] }
    }
}

/// Where a record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SlotPlace {
    segment: usize,
    slot: usize,
}

#[derive(Clone, Copy, Debug)]
struct OpenReservation {
    /// Order of reservations.
    number: u64,
    id: RecordId,
    previous: RecordId,
    place: SlotPlace,
    has_failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FillerStep {
    Idle,
    Half,
    Whole,
    /// The bytes are there and the segment counts as dirty.
    Filled,
    Failed,
}

#[derive(Clone, Debug)]
struct Filler {
    step: FillerStep,
    reservation: Option<OpenReservation>,
    is_sync: bool,
}

#[derive(Clone, Debug)]
enum FlushStep {
    Idle,
    /// Waits for the reservations below this number.
    Await(u64),
    Begin {
        asked: u64,
    },
    /// Has read the end of the log, and of the dirty segments those that are given.
    Sync {
        asked: u64,
        end: usize,
        segments: Vec<usize>,
    },
}

struct AppendModel {
    without: Option<AppendRule>,
    rng: Rng,
    /// How often a thread that could reserve does not.
    idle_percent: u64,
    /// Nothing is written until the next crash but records that are sent again.
    only_resends: bool,
    /// As every read in this process sees it.
    cache: Vec<ModelSegment>,
    /// What a power loss leaves.
    medium: Vec<ModelSegment>,
    dirty: BTreeSet<usize>,
    /// The visible records, in order.
    published: Vec<(RecordId, SlotPlace)>,
    open: VecDeque<OpenReservation>,
    next_number: u64,
    next_id: RecordId,
    fillers: Vec<Filler>,
    flush: FlushStep,
    /// Records whose writers wait for a flush, with their number among the published.
    sync_waiters: Vec<(RecordId, usize)>,
    acked: BTreeSet<RecordId>,
    durable: BTreeSet<RecordId>,
    refused: BTreeSet<RecordId>,
    /// Records that a recovery did not find, and that have not been sent again.
    lost: BTreeSet<RecordId>,
    /// Records to be sent again under the same id, as a head sends them to a follower.
    resend: VecDeque<RecordId>,
    numbers: BTreeMap<RecordId, u64>,
}

impl AppendModel {
    fn new(seed: u64, without: Option<AppendRule>) -> AppendModel {
        let idle = Filler { step: FillerStep::Idle, reservation: None, is_sync: false };
        AppendModel {
            without,
            rng: Rng::new(seed),
            only_resends: false,
            idle_percent: [0, 50, 95][seed as usize % 3],
            cache: vec![ModelSegment::after(0)],
            medium: vec![ModelSegment::after(0)],
            dirty: BTreeSet::new(),
            published: Vec::new(),
            open: VecDeque::new(),
            next_number: 1,
            next_id: 1,
            fillers: vec![idle; FILLERS],
            flush: FlushStep::Idle,
            sync_waiters: Vec::new(),
            acked: BTreeSet::new(),
            durable: BTreeSet::new(),
            refused: BTreeSet::new(),
            lost: BTreeSet::new(),
            resend: VecDeque::new(),
            numbers: BTreeMap::new(),
        }
    }

    fn holds(&self, rule: AppendRule) -> bool {
        self.without != Some(rule)
    }

    fn slot(&mut self, place: SlotPlace) -> &mut SlotBytes {
        &mut self.cache[place.segment].slots[place.slot]
    }

    /// Behind the last reservation, or the last record.
    fn tail(&self) -> (SlotPlace, RecordId) {
        let last = self.open.iter().rfind(|open| !open.has_failed).map(|open| (open.place, open.id));
        let last = last.or(self.published.last().map(|(id, place)| (*place, *id)));
        let segment = self.cache.len() - 1;
        match last {
            Some((place, id)) if place.segment == segment => (SlotPlace { segment, slot: place.slot + 1 }, id),
            Some((_, id)) => (SlotPlace { segment, slot: 0 }, id),
            None => (SlotPlace { segment, slot: 0 }, 0),
        }
    }

    fn reserve(&mut self, filler: usize) {
        if self.only_resends && self.resend.is_empty() {
            return;
        }
        if self.rng.below(100) < self.idle_percent
            || self.holds(AppendRule::BoundReserved) && self.open.len() >= RESERVED_MAX
        {
            return;
        }
        if self.holds(AppendRule::AwaitFailedFills) && self.open.iter().any(|open| open.has_failed) {
            return;
        }
        let (mut place, previous) = self.tail();
        if place.slot == SEGMENT_SLOTS {
            if self.holds(AppendRule::RollAlone) && !self.open.is_empty() {
                return;
            }
            let link = self.published.last().map_or(0, |(id, _)| *id);
            self.cache.push(ModelSegment::after(link));
            self.medium.push(ModelSegment::after(link));
            place = SlotPlace { segment: self.cache.len() - 1, slot: 0 };
        }
        let id = match self.resend.pop_front() {
            Some(id) => id,
            None => {
                self.next_id += 1;
                self.next_id - 1
            }
        };
        self.lost.remove(&id);
        let number = self.next_number;
        self.next_number += 1;
        self.numbers.insert(id, number);
        let reservation = OpenReservation { number, id, previous, place, has_failed: false };
        self.open.push_back(reservation);
        if !self.holds(AppendRule::MarkDirtyAfterFill) {
            self.dirty.insert(place.segment);
        }
        self.fillers[filler] =
            Filler { step: FillerStep::Half, reservation: Some(reservation), is_sync: self.rng.chance(2) };
    }

    /// Takes one step of a filler.
    fn fill(&mut self, filler: usize) -> Result<(), String> {
        let Filler { step, reservation, is_sync } = self.fillers[filler].clone();
        let Some(OpenReservation { number, id, previous, place, .. }) = reservation else {
            self.reserve(filler);
            return Ok(());
        };
        let has_failed = self.open.iter().any(|open| open.number == number && open.has_failed);
        let next = match step {
            FillerStep::Half => {
                *self.slot(place) = SlotBytes::Torn;
                FillerStep::Whole
            }
            FillerStep::Whole => {
                *self.slot(place) = SlotBytes::Record { id, previous };
                if self.holds(AppendRule::MarkDirtyAfterFill) && self.holds(AppendRule::MarkDirtyBeforePublish) {
                    self.dirty.insert(place.segment);
                }
                // A device may report an error of a write that has reached it.
                if self.rng.chance(20) { FillerStep::Failed } else { FillerStep::Filled }
            }
            FillerStep::Filled | FillerStep::Failed => {
                let is_first = self.open.front().is_some_and(|first| first.number == number);
                if !is_first && self.holds(AppendRule::PublishInOrder) {
                    return Ok(());
                }
                let at = self.open.iter().position(|open| open.number == number).expect("an open reservation");
                if has_failed || step == FillerStep::Failed {
                    self.refused.insert(id);
                    if !has_failed && self.holds(AppendRule::FailFollowers) {
                        self.open.iter_mut().skip(at).for_each(|open| open.has_failed = true);
                    }
                    if self.holds(AppendRule::EraseFailed) {
                        *self.slot(place) = SlotBytes::Blank;
                        self.dirty.insert(place.segment);
                    }
                    self.open.remove(at);
                } else {
                    self.publish(at, is_sync);
                }
                FillerStep::Idle
            }
            FillerStep::Idle => FillerStep::Idle,
        };
        let is_early = !self.holds(AppendRule::PublishWhenFilled) && next == FillerStep::Whole;
        if is_early && self.open.front().is_some_and(|first| first.number == number) && !has_failed {
            self.publish(0, is_sync);
            self.fillers[filler] = Filler { step: FillerStep::Idle, reservation: None, is_sync };
            return self.check_visible();
        }
        let reservation = reservation.filter(|_| next != FillerStep::Idle);
        self.fillers[filler] = Filler { step: next, reservation, is_sync };
        Ok(())
    }

    fn publish(&mut self, at: usize, is_sync: bool) {
        let OpenReservation { id, place, .. } = self.open.remove(at).expect("an open reservation");
        self.published.push((id, place));
        if !self.holds(AppendRule::MarkDirtyBeforePublish) {
            // Marked a little later, when a flush may have looked already.
            if self.rng.chance(2) {
                self.dirty.insert(place.segment);
            }
        }
        if is_sync {
            self.sync_waiters.push((id, self.published.len()));
        } else {
            self.acked.insert(id);
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        self.flush = match std::mem::replace(&mut self.flush, FlushStep::Idle) {
            FlushStep::Idle => FlushStep::Await(self.next_number),
            FlushStep::Await(asked) => {
                let waits = self.open.iter().any(|open| open.number < asked);
                match waits && self.holds(AppendRule::FlushAwaitsReserved) {
                    true => FlushStep::Await(asked),
                    false => FlushStep::Begin { asked },
                }
            }
            FlushStep::Begin { asked } => {
                if self.holds(AppendRule::ReadEndFirst) {
                    // Other threads run between the two: what they publish then is not counted.
                    let end = self.published.len();
                    for _ in 0..self.rng.below(4) {
                        let filler = self.rng.below(FILLERS as u64) as usize;
                        self.fill(filler)?;
                    }
                    FlushStep::Sync { asked, end, segments: std::mem::take(&mut self.dirty).into_iter().collect() }
                } else {
                    let segments: Vec<usize> = std::mem::take(&mut self.dirty).into_iter().collect();
                    for _ in 0..self.rng.below(8) {
                        let filler = self.rng.below(FILLERS as u64) as usize;
                        self.fill(filler)?;
                    }
                    // The bytes are read by the sync; the write after it is the one that is at risk.
                    self.sync(&segments);
                    for _ in 0..self.rng.below(8) {
                        let filler = self.rng.below(FILLERS as u64) as usize;
                        self.fill(filler)?;
                    }
                    FlushStep::Sync { asked, end: self.published.len(), segments: Vec::new() }
                }
            }
            FlushStep::Sync { asked, end, segments } => {
                self.sync(&segments);
                let end = end.min(self.published.len());
                self.durable.extend(self.published[..end].iter().map(|(id, _)| *id));
                let (done, waiting) = self.sync_waiters.iter().partition(|(_, number)| *number <= end);
                self.sync_waiters = waiting;
                self.acked.extend(Vec::into_iter(done).map(|(id, _): (RecordId, usize)| id));
                let missing = |id: &RecordId| !self.durable.contains(id) && !self.refused.contains(id);
                if let Some((id, _)) = self
                    .numbers
                    .iter()
                    .filter(|(id, _)| !self.lost.contains(id))
                    .find(|(id, number)| **number < asked && missing(id))
                {
                    return Err(format!("record {id} was reserved before a flush that does not cover it"));
                }
                FlushStep::Idle
            }
        };
        Ok(())
    }

    fn sync(&mut self, segments: &[usize]) {
        for segment in segments {
            self.medium[*segment] = self.cache[*segment].clone();
        }
    }

    /// Every visible record is whole, and leads to the one before it.
    fn check_visible(&self) -> Result<(), String> {
        let mut before = 0;
        for (id, place) in &self.published {
            let found = self.cache[place.segment].slots[place.slot];
            if found != (SlotBytes::Record { id: *id, previous: before }) {
                return Err(format!("record {id} is visible after {before}, and its bytes are {found:?}"));
            }
            before = *id;
        }
        Ok(())
    }

    fn crash(&mut self) -> Result<(), String> {
        let is_power = self.rng.chance(2);
        if is_power {
            for (segment, medium) in self.cache.iter_mut().zip(&self.medium) {
                for (slot, old) in segment.slots.iter_mut().zip(&medium.slots) {
                    if *slot != *old {
                        *slot = match self.rng.below(3) {
                            0 => *old,
                            1 => SlotBytes::Torn,
                            _ => *slot,
                        };
                    }
                }
            }
            // The header of a segment is made durable with its name, before anything in it counts.
        }
        let unpublished: Vec<RecordId> = self.open.iter().map(|open| open.id).collect();
        self.recover();
        let found: BTreeSet<RecordId> = self.published.iter().map(|(id, _)| *id).collect();
        let kept = if is_power { &self.durable } else { &self.acked };
        if let Some(id) = kept.iter().find(|id| !found.contains(id)) {
            return Err(format!("record {id} was acknowledged, and a crash lost it (power: {is_power})"));
        }
        if let Some(id) = self.refused.iter().find(|id| found.contains(id) && !is_power) {
            return Err(format!("record {id} was refused, and a crash shows it"));
        }
        if let Some(id) = self.lost.iter().find(|id| found.contains(id)) {
            return Err(format!("record {id} was lost in an earlier crash, and another crash shows it"));
        }
        self.acked.retain(|id| found.contains(id));
        // An erasure that was not flushed: the error of the write said that its outcome is unknown.
        self.refused.retain(|id| !found.contains(id));
        self.numbers.retain(|id, _| found.contains(id));
        // A power loss may take much more than is erased behind the end; that is as it was before reservations.
        if !is_power {
            self.lost.extend(unpublished.iter().filter(|id| !found.contains(id)));
        }
        self.resend.retain(|id| !found.contains(id));
        self.only_resends = self.rng.chance(3);
        if !self.rng.chance(3) {
            // The head sends again what a follower lacks, in order; the next crash may come before the second.
            let count = self.rng.between(1, FILLERS as u64) as usize;
            self.resend.extend(unpublished.iter().filter(|id| !found.contains(id)).take(count));
        }
        self.check_visible()
    }

    fn recover(&mut self) {
        self.published.clear();
        let mut previous = 0;
        let mut end = SlotPlace { segment: 0, slot: 0 };
        for (number, segment) in self.cache.iter().enumerate() {
            if segment.link != previous {
                break;
            }
            end = SlotPlace { segment: number, slot: 0 };
            for (slot, bytes) in segment.slots.iter().enumerate() {
                match *bytes {
                    SlotBytes::Record { id, previous: before } if before == previous => {
                        previous = id;
                        self.published.push((id, SlotPlace { segment: number, slot }));
                        end.slot = slot + 1;
                    }
                    SlotBytes::Torn if !self.holds(AppendRule::EndAtTorn) => {
                        // Shown for what it was to be.
                        previous = u32::MAX;
                        self.published.push((u32::MAX, SlotPlace { segment: number, slot }));
                        end.slot = slot + 1;
                        break;
                    }
                    _ => break,
                }
            }
        }
        self.cache.truncate(end.segment + 1);
        self.medium.truncate(end.segment + 1);
        if self.holds(AppendRule::WipeBehindEnd) {
            let behind = end.slot..SEGMENT_SLOTS.min(end.slot + RESERVED_MAX);
            self.cache[end.segment].slots[behind.clone()].fill(SlotBytes::Blank);
            self.medium[end.segment].slots[behind].fill(SlotBytes::Blank);
        }
        self.dirty = (0..self.cache.len()).collect();
        self.open.clear();
        self.sync_waiters.clear();
        self.flush = FlushStep::Idle;
        for filler in &mut self.fillers {
            *filler = Filler { step: FillerStep::Idle, reservation: None, is_sync: false };
        }
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            match self.rng.below(100) {
                0..=2 => self.crash()?,
                3..=21 => self.flush()?,
                _ => {
                    let filler = self.rng.below(FILLERS as u64) as usize;
                    self.fill(filler)?;
                }
            }
            self.check_visible()?;
        }
        self.crash()
    }
}

#[test]
fn appends_by_reservation_lose_and_invent_nothing() {
    let mut published = 0;
    for seed in 0..4 * SEEDS {
        let mut model = AppendModel::new(seed, None);
        if let Err(violation) = model.run() {
            panic!("seed {seed}: {violation}");
        }
        published += model.published.len();
    }
    assert!(published > 20_000, "only {published} records");
}

#[test]
fn each_rule_of_appends_is_needed() {
    for rule in RULES {
        let caught = (0..SEEDS).find_map(|seed| AppendModel::new(seed, Some(rule)).run().err());
        assert!(caught.is_some(), "without {rule:?} nothing is wrong");
    }
}
