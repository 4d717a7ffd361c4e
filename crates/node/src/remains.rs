//! What this server still has of chains that others have by now, and giving back its room.
//!
//! Guarantees: a chain is given up only after the metalog's leader was asked, and by what the log had decided then:
//! this server has no part in it, and those who have one all serve with everything. So who is cut off gives up nothing,
//! whatever it believes. Once it is given up it is as if this server had never had a part. A crash at any moment leaves
//! it whole, or given up with its room still to be given back, which goes on at the next start. Leaves to others: what
//! of the log goes (`data`, `device`), who has a part (`cluster`).
//!
//! # The algorithm
//! Giving up is one durable note, "every record of this chain that begins before this place is none of it": what
//! `discard` writes when a member comes back with records that its chain does not have. From then on no index, shelf,
//! list or recovery says anything of them; a member that comes back is supplied from the first record on, behind that
//! place. The room is given back segment by segment, as that of forgotten records is ([`crate::reclaim`]): footers say
//! where discarded records lie, and whole pages of them are freed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use frieze_base::{ChainEpoch, ChainId, Fault, NodeId, Reason, SegmentId};
use frieze_cluster::ClusterState;
use tracing::{debug, info};

use crate::engine::Engine;
use frieze_replication::Room;

/// What there is to give back, as far as it is known.
#[derive(Default)]
pub(crate) struct Remains {
    counted: Mutex<Counted>,
    /// Chains that were given up since the process began, and how often.
    given_up: Mutex<BTreeMap<ChainId, u64>>,
    chains: AtomicU64,
    left_bytes: AtomicU64,
    freed_bytes: AtomicU64,
}

/// What was found by a look at the footers.
#[derive(Default)]
struct Counted {
    /// What it was counted for: how often something had been discarded.
    discards: Option<u64>,
    /// All segments up to this one were looked at.
    upto: SegmentId,
    /// Those that hold discarded records, and how many bytes of them.
    segments: BTreeMap<SegmentId, u64>,
}

impl Remains {
    /// Chains that others have and that were not given up yet; bytes of those given up that are still to be given back,
    /// and that were since the process began.
    pub(crate) fn told(&self) -> (u64, u64, u64) {
        let told = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        (told(&self.chains), told(&self.left_bytes), told(&self.freed_bytes))
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_given_up(&self) -> MutexGuard<'_, BTreeMap<ChainId, u64>> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, counted: &Counted) {
        self.left_bytes.store(counted.segments.values().sum(), Ordering::Relaxed);
    }
}

impl Engine {
    /// Gives up what this server has of chains that others have by now. To be called about twice a second, on a thread
    /// that may wait.
    ///
    /// # Errors
    /// The disk's: the next call tries again.
    pub fn give_up_remains(&self) -> Result<(), Fault> {
        self.give_up_remains_if(&ClusterState::is_kept_by_others)
    }

    /// The same, where `is_kept` says whether nobody needs what a node may still have of a chain: for tests of who
    /// notices if it is wrong.
    ///
    /// # Errors
    /// As [`Engine::give_up_remains`].
    pub fn give_up_remains_if(&self, is_kept: &dyn Fn(&ClusterState, ChainId, NodeId) -> bool) -> Result<(), Fault> {
        if !self.meta.is_member() || self.durability.failure().is_some() {
            return Ok(());
        }
        let held = self.data.remains();
        self.remains.chains.store(held.len() as u64, Ordering::Relaxed);
        if self.kept_of(&held, is_kept).is_empty() {
            return Ok(());
        }
        // What is known here may be old. As old as the leader's answer it cannot be: whatever was decided later gives
        // this server a part only by its own hand, from nothing.
        if let Err(fault) = self.meta.linearizable() {
            debug!("nobody confirms that others have what this server has of chains: {fault}");
            return Ok(());
        }
        let chosen = self.kept_of(&held, is_kept);
        let gone = match self.data.take_out(&chosen) {
            Err(fault) if fault.reason == Reason::Busy => return Ok(()),
            gone => gone?,
        };
        if gone.is_empty() {
            return Ok(());
        }
        self.remains.chains.store((held.len() - gone.len()) as u64, Ordering::Relaxed);
        gone.iter().for_each(|chain| *self.remains.lock_given_up().entry(*chain).or_default() += 1);
        let named: Vec<String> = gone.iter().map(ChainId::to_string).collect();
        info!(chains = named.join(" "), "other servers have these by now: their room here is given back");
        self.data.device().forget_images_of_nothing()
    }

    fn kept_of(
        &self,
        held: &[(ChainId, ChainEpoch)],
        is_kept: &dyn Fn(&ClusterState, ChainId, NodeId) -> bool,
    ) -> Vec<(ChainId, ChainEpoch)> {
        let (me, mut found) = (self.node(), Vec::new());
        if !held.is_empty() {
            self.meta.look_at_control(&mut |state| {
                found = held.iter().filter(|(chain, _)| is_kept(state, *chain, me)).copied().collect();
            });
        }
        found
    }

    /// Gives back room of what was given up or discarded, some at a time. To be called about twice a second, on a
    /// thread that may take long.
    ///
    /// # Errors
    /// The disk's, `Unsupported` if it cannot free parts of files: the next call goes on.
    pub fn give_back_remains(&self) -> Result<(), Fault> {
        if self.durability.failure().is_some() {
            return Ok(());
        }
        let mut counted = self.remains.lock();
        let Some(room) = self.data.room() else {
            *counted = Counted::default();
            self.remains.note(&counted);
            return Ok(());
        };
        if counted.discards != Some(room.discards) {
            *counted = Counted { discards: Some(room.discards), upto: room.upto, segments: BTreeMap::new() };
        }
        let done = self.count_remains(&mut counted, room).and_then(|()| self.free_counted(&mut counted, room));
        self.remains.note(&counted);
        done
    }

    /// Looks at some more footers.
    fn count_remains(&self, counted: &mut Counted, room: Room) -> Result<(), Fault> {
        let device = self.data.device();
        for _ in 0..COUNTED_AT_ONCE {
            let next = device.log().segment_after(counted.upto).filter(|segment| *segment <= room.end);
            let Some(segment) = next else {
                counted.upto = counted.upto.max(room.end);
                break;
            };
            let Some(runs) = device.discarded_in(segment)? else { break };
            let bytes: u64 = runs.iter().map(|(start, end)| end - start).sum();
            if bytes > 0 {
                counted.segments.insert(segment, bytes);
            }
            counted.upto = segment;
        }
        Ok(())
    }

    /// Gives back the room of some of what was counted.
    fn free_counted(&self, counted: &mut Counted, room: Room) -> Result<(), Fault> {
        let device = self.data.device();
        let (mut bytes, mut is_all) = (0, true);
        while bytes < FREED_AT_ONCE_BYTES
            && let Some((&segment, &held)) = counted.segments.first_key_value()
        {
            if device.log().sealed(segment).is_none() {
                if held >= device.worth_closing() && device.log().end().segment == segment {
                    // It gets its footer with the next flush.
                    self.close_segment();
                    self.flush()?;
                }
                is_all = false;
                break;
            }
            let dead_records = self.reclaim.lock().graves_in(segment);
            let Some(freed) = device.give_back(segment, dead_records.iter())? else {
                is_all = false;
                break;
            };
            counted.segments.remove(&segment);
            self.remains.freed_bytes.fetch_add(freed, Ordering::Relaxed);
            bytes += held;
        }
        // Behind those that are left there may be more.
        let first = counted.segments.keys().next().copied();
        let upto = first.map_or(counted.upto, |first| SegmentId(first.0.saturating_sub(1)));
        let is_end = is_all && upto >= room.end;
        if is_end || upto.0 >= room.upto.0 + KEPT_EVERY_SEGMENTS {
            self.data.gave_back(room, upto)?;
        }
        Ok(())
    }

    /// The chains that were given up since the process began, and how often: for tests of when they are.
    pub fn chains_given_up(&self) -> Vec<(ChainId, u64)> {
        self.remains.lock_given_up().iter().map(|(chain, times)| (*chain, *times)).collect()
    }

    /// True if an answer that an instant was read for has to be made again: chains went while it was made.
    pub(crate) fn has_lost_chains_since(&self, went: u64) -> bool {
        self.data.went() != went
    }
}

/// What is answered to whoever read an instant of chains that went meanwhile.
pub(crate) fn went_meanwhile() -> Fault {
    let words = "other servers have some of what this one had while it looked: try again";
    Fault::new(Reason::Unavailable, words)
}

/// Footers that are read in one call.
const COUNTED_AT_ONCE: usize = 256;
/// Bytes given back in one call: so much in half a second that the disk has time for others.
const FREED_AT_ONCE_BYTES: u64 = 256 << 20;
/// It is noted how far it is once in so many segments, and at the end: a restart looks at so many again.
const KEPT_EVERY_SEGMENTS: u64 = 64;
