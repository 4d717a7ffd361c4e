//! Garbage collection of replicas: data of chains that this server is no member of any more.
//!
//! Guarantees: this server drops a replica only after it asked the metalog's leader, and only by what the log had
//! decided then: this server is no member of the chain, and every member serves with a full copy. So a partitioned
//! server never drops a replica, whatever it believes. After the drop this server looks as if it had never been a
//! member. A crash at any moment leaves the replica whole, or dropped with its space still to be freed; the next start
//! continues.
//! Leaves to others: which part of the log is dropped (`data`, `device`), the members of a chain (`cluster`).
//!
//! # The algorithm
//! A drop is one durable note, "every record of this chain that begins before this place is none of it": the note that
//! `discard` writes when a member returns with records that its chain does not have. From then on no index, shelf, list
//! or recovery names these records; a member that returns is supplied from the first record on, behind that place. The
//! space is freed segment by segment, as that of expired records is ([`crate::upkeep::gc`]): footers say where
//! discarded records lie, and their whole pages are freed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use frieze_base::{ChainEpoch, ChainId, Fault, NodeId, Reason, SegmentId};
use frieze_cluster::ClusterState;
use frieze_locks::{Mutex, levels};
use frieze_replication::DiscardedSpace;
use tracing::{debug, info};

use crate::upkeep::Upkeep;

/// Space that is still to be freed, as far as it is known.
#[derive(Default)]
pub struct Remains {
    counted: Mutex<levels::RemainingSpace, FooterCount>,
    /// Chains whose replica was dropped since the process began, and how often.
    given_up: Mutex<levels::DroppedReplicas, BTreeMap<ChainId, u64>>,
    chains: AtomicU64,
    left_bytes: AtomicU64,
    freed_bytes: AtomicU64,
}

/// Result of a pass over the footers.
#[derive(Default)]
struct FooterCount {
    /// Number of discards at the time of the count.
    discards: Option<u64>,
    /// Every segment up to this one was read.
    upto: SegmentId,
    /// Segments with discarded records, and the bytes of these.
    segments: BTreeMap<SegmentId, u64>,
}

impl Remains {
    /// Replicas that are to be dropped; bytes of dropped replicas that are still to be freed; bytes freed since the
    /// process began.
    pub fn figures(&self) -> (u64, u64, u64) {
        let told = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        (told(&self.chains), told(&self.left_bytes), told(&self.freed_bytes))
    }

    fn note(&self, counted: &FooterCount) {
        self.left_bytes.store(counted.segments.values().sum(), Ordering::Relaxed);
    }
}

impl Upkeep {
    /// Drops the replicas of chains that other servers have in full. Call it about twice a second, on a thread that may
    /// block.
    ///
    /// # Errors
    /// The disk's: the next call tries again.
    pub fn drop_remains(&self) -> Result<(), Fault> {
        self.drop_remains_if(&ClusterState::is_kept_by_others)
    }

    /// As [`Upkeep::drop_remains`], with a predicate: `is_kept` is true if a node's replica of a chain is not needed
    /// any more. For tests that have to detect a wrong predicate.
    ///
    /// # Errors
    /// As [`Upkeep::drop_remains`].
    pub fn drop_remains_if(&self, is_kept: &dyn Fn(&ClusterState, ChainId, NodeId) -> bool) -> Result<(), Fault> {
        if self.planes.durability.failure().is_some() {
            return Ok(());
        }
        let held = self.planes.data.detachable();
        self.remains.chains.store(held.len() as u64, Ordering::Relaxed);
        if self.kept_of(&held, is_kept).is_empty() {
            return Ok(());
        }
        // The state known here may be old. It cannot be older than the leader's answer: by any later decision this
        // server becomes a member only by its own hand, with an empty replica.
        if let Err(fault) = self.planes.meta.linearizable() {
            debug!("nobody confirms that others have what this server has of chains: {fault}");
            return Ok(());
        }
        let chosen = self.kept_of(&held, is_kept);
        let gone = match self.planes.data.detach(&chosen) {
            Err(fault) if fault.reason == Reason::Busy => return Ok(()),
            gone => gone?,
        };
        if gone.is_empty() {
            return Ok(());
        }
        self.remains.chains.store((held.len() - gone.len()) as u64, Ordering::Relaxed);
        gone.iter().for_each(|chain| *self.remains.given_up.lock().entry(*chain).or_default() += 1);
        let named: Vec<String> = gone.iter().map(ChainId::to_string).collect();
        info!(chains = named.join(" "), "other servers have these by now: their room here is given back");
        self.planes.data.device().evict_orphan_images()
    }

    fn kept_of(
        &self,
        held: &[(ChainId, ChainEpoch)],
        is_kept: &dyn Fn(&ClusterState, ChainId, NodeId) -> bool,
    ) -> Vec<(ChainId, ChainEpoch)> {
        let (me, mut found) = (self.planes.node(), Vec::new());
        if !held.is_empty() {
            self.planes.meta.look_at_control(&mut |state| {
                found = held.iter().filter(|(chain, _)| is_kept(state, *chain, me)).copied().collect();
            });
        }
        found
    }

    /// Frees some of the space of dropped replicas and discarded records. Call it about twice a second, on a thread
    /// that may block for long.
    ///
    /// # Errors
    /// The disk's, `Unsupported` if it cannot free parts of files: the next call continues.
    pub fn give_back_remains(&self) -> Result<(), Fault> {
        if self.planes.durability.failure().is_some() {
            return Ok(());
        }
        let mut counted = self.remains.counted.lock();
        let Some(room) = self.planes.data.discarded_space() else {
            *counted = FooterCount::default();
            self.remains.note(&counted);
            return Ok(());
        };
        if counted.discards != Some(room.discards) {
            *counted = FooterCount { discards: Some(room.discards), upto: room.upto, segments: BTreeMap::new() };
        }
        let done = self.count_remains(&mut counted, room).and_then(|()| self.free_counted(&mut counted, room));
        self.remains.note(&counted);
        done
    }

    /// Reads some more footers.
    fn count_remains(&self, counted: &mut FooterCount, room: DiscardedSpace) -> Result<(), Fault> {
        let device = self.planes.data.device();
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

    /// Frees some of the space that was counted.
    fn free_counted(&self, counted: &mut FooterCount, room: DiscardedSpace) -> Result<(), Fault> {
        let device = self.planes.data.device();
        let (mut bytes, mut is_all) = (0, true);
        while bytes < FREED_AT_ONCE_BYTES
            && let Some((&segment, &held)) = counted.segments.first_key_value()
        {
            if device.log().sealed(segment).is_none() {
                if held >= device.worth_closing() && device.log().end().segment == segment {
                    // The next flush writes its footer.
                    self.planes.close_segment();
                    self.planes.flush()?;
                }
                is_all = false;
                break;
            }
            let dead_records = self.planes.gc.lock().graves_in(segment);
            let Some(freed) = device.punch_dead(segment, dead_records.iter())? else {
                is_all = false;
                break;
            };
            counted.segments.remove(&segment);
            self.remains.freed_bytes.fetch_add(freed, Ordering::Relaxed);
            bytes += held;
        }
        // Behind the segments that are left there may be more.
        let first = counted.segments.keys().next().copied();
        let upto = first.map_or(counted.upto, |first| SegmentId(first.0.saturating_sub(1)));
        let is_end = is_all && upto >= room.end;
        if is_end || upto.0 >= room.upto.0 + KEPT_EVERY_SEGMENTS {
            self.planes.data.mark_reclaimed(room, upto)?;
        }
        Ok(())
    }

    /// Chains whose replica was dropped since the process began, and how often: for tests of the moment of the drop.
    pub fn chains_given_up(&self) -> Vec<(ChainId, u64)> {
        self.remains.given_up.lock().iter().map(|(chain, times)| (*chain, *times)).collect()
    }
}

/// Footers read in one call.
const COUNTED_AT_ONCE: usize = 256;
/// Bytes freed in one call: so much in half a second that the disk has time for requests.
const FREED_AT_ONCE_BYTES: u64 = 256 << 20;
/// Segments between two notes of the progress, which is noted at the end too: a restart reads so many again.
const KEPT_EVERY_SEGMENTS: u64 = 64;
