//! Repair of damaged records from other servers.
//!
//! Guarantees: a record whose bytes do not match their checksums is rewritten as soon as a server with an undamaged
//! copy answers, whether that server is still a member of the chain or not. So a chain whose only serving member has a
//! damaged record can bring others up to date again. Servers are asked for one record at most once a second, and less
//! and less often while none of them has it.
//! Leaves to others: finding damage (`scrub`), what may be overwritten (`device`).

use std::collections::BTreeMap;

use frieze_base::{ChainId, Fault, MonoTime, NodeId, SegmentId};
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_multilog::{Damage, DamageKind, NumberedRecord, RecordHeader};
use frieze_wire::peer::{ChainRecord, PeerRequestKind, RecordAsk};
use tracing::{debug, info};

use crate::upkeep::Upkeep;

/// Most records that wait for repair: the next scrub reports the others again.
const WAITING_MAX: usize = 1024;
/// Wait between two attempts at one record, first and at most.
const WAIT_NS: u64 = 1_000_000_000;
const WAIT_NS_MAX: u64 = 60_000_000_000;
/// Most servers outside the chain that are asked for a record of it.
const OTHERS_MAX: usize = 16;

/// Records that wait for repair.
#[derive(Default)]
pub(super) struct Mends(Mutex<levels::RepairQueue, BTreeMap<(ChainId, u64), PendingRepair>>);

#[derive(Clone)]
struct PendingRepair {
    record: RecordHeader,
    segment: SegmentId,
    /// Earliest time of the next attempt.
    due: MonoTime,
    wait_ns: u64,
}

impl Mends {
    /// Notes a damaged place, if another server may have what was there.
    pub(super) fn note(&self, damage: &Damage) {
        let Some(record) = damage.record.as_ref().filter(|_| damage.kind == DamageKind::Data) else { return };
        let mut waiting = self.0.lock();
        if waiting.len() < WAITING_MAX {
            let (record, segment) = (record.clone(), damage.segment);
            let fresh = PendingRepair { record, segment, due: MonoTime(0), wait_ns: WAIT_NS };
            waiting.entry((fresh.record.chain, fresh.record.n)).or_insert(fresh);
        }
    }

    /// True if an attempt is due.
    pub(super) fn is_due(&self, now: MonoTime) -> bool {
        self.0.lock().values().any(|waiting| waiting.due <= now)
    }

    fn due(&self, now: MonoTime) -> Option<PendingRepair> {
        self.lock().values().find(|waiting| waiting.due <= now).cloned()
    }

    /// Ends an attempt: the record is repaired, or waits longer than before.
    fn tried(&self, tried: &PendingRepair, now: MonoTime, is_done: bool) {
        let (mut waiting, key) = (self.lock(), (tried.record.chain, tried.record.n));
        if is_done {
            waiting.remove(&key);
        } else if let Some(again) = waiting.get_mut(&key) {
            (again.due, again.wait_ns) = (MonoTime(now.0 + again.wait_ns), (2 * again.wait_ns).min(WAIT_NS_MAX));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(ChainId, u64), PendingRepair>> {
        self.0.lock()
    }
}

impl Upkeep {
    /// Tries to repair the records that are due.
    pub(super) fn mend(&self) {
        let began = self.planes.clock.reading().mono;
        while let Some(waiting) = self.scrub.mends.due(began) {
            let tried = self.mend_one(&waiting.record);
            if let Err(fault) = &tried {
                debug!(chain = %waiting.record.chain, n = waiting.record.n, "a damaged record is not mended: {fault}");
            }
            let is_done = tried.unwrap_or(false);
            self.scrub.mends.tried(&waiting, self.planes.clock.reading().mono, is_done);
            if is_done {
                self.planes.data.device().read_errors().forget(waiting.segment);
                self.scrub.forget(waiting.segment, &waiting.record);
            }
        }
    }

    /// True if this record needs no more repair.
    fn mend_one(&self, record: &RecordHeader) -> Result<bool, Fault> {
        let device = self.planes.data.device();
        let found = device.records_of(record.chain, record.n.saturating_sub(1), 1)?;
        let Some(found) = found.first().filter(|found| found.header == *record) else { return Ok(true) };
        if device.is_dead(found)? {
            return Ok(true);
        }
        for node in self.who_may_have(record.chain) {
            let ask = PeerRequestKind::Record(RecordAsk { n: record.n, stamp: record.stamp.0 });
            let Some((answer, payload)) = self.files.ask_one(node, record.chain, &ask) else { continue };
            let told = answer.records.first().and_then(ChainRecord::header);
            if told.is_some_and(|told| is_same(&told, found)) && device.repair_record(found, &payload)? {
                info!(chain = %record.chain, n = record.n, "a damaged record is whole again, as node {node} has it");
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reachable servers: first those that are or were lately members of the chain.
    fn who_may_have(&self, chain: ChainId) -> Vec<NodeId> {
        let (me, mut nodes) = (self.planes.node(), Vec::new());
        self.planes.meta.look_at_control(&mut |state| {
            let has_part = |node: NodeId| state.chain(chain).is_some_and(|chain| chain.target(node).is_some());
            let online = || state.nodes().map(|node| node.id).filter(|node| *node != me && state.is_online(*node));
            nodes = online().filter(|node| has_part(*node)).collect();
            nodes.extend(online().filter(|node| !has_part(*node)).take(OTHERS_MAX));
        });
        nodes
    }
}

/// True if another server means the same record; the number of records in its group is each log's own.
fn is_same(told: &RecordHeader, found: &NumberedRecord) -> bool {
    *told == RecordHeader { parts: told.parts, ..found.header.clone() }
}
