//! How the server is, in numbers and words.

use frieze_wire::message::{Gap, MemoryUse, StatusReply};

use crate::engine::{Engine, SOFTWARE};
use crate::scrub::Summary;

impl Engine {
    pub(crate) fn status(&self) -> StatusReply {
        let health = self.clock.health();
        let process = (self.process)();
        let stats = self.data.device().log().stats();
        let space = self.data.device().space().unwrap_or_default();
        let counts = self.meta.namespace().counts();
        let now = self.clock.reading().mono;
        let dirty = self.durability.is_dirty(&self.data, &self.meta);
        let gaps = self.all_gaps().into_iter().map(|(from, to)| Gap { from: from.0, to: to.0 }).collect();
        let (cluster, last_whole) = (self.cluster(), self.last_whole().0);
        let failure = self.durability.failure();
        let images = self.data.device().image_stats();
        let (flushes, flush_bytes_median) = self.data.device().flushes();
        let Summary { damaged, finished, done_bytes: scrub_done } = self.scrub.summary();
        let (scrub_done_bytes, scrub_all_bytes) =
            scrub_done.map_or((0, 0), |done| (done, self.stored_bytes().max(done).max(1)));
        let (forgotten_bytes, forgotten_waiting_bytes) = self.reclaim.bytes();
        let (forgetting_looked_at, forgetting_to_look_at) = self.reclaim.progress().now();
        let words = match (&failure, &health.fenced, self.durability.store_trouble()) {
            (Some(fault), _, _) => format!("read-only after a failed flush: {}", fault.message),
            (None, Some(fence), _) => format!("fenced, reads only: {fence}"),
            (None, None, Some(fault)) => format!("names are kept in memory and in the metalog only: {}", fault.message),
            (None, None, None) if damaged > 0 => damaged_words(damaged),
            (None, None, None) => "healthy".to_owned(),
        };
        StatusReply {
            health: words,
            clock_error_us: health.error_us.unwrap_or(u64::MAX),
            fenced: health.fenced.is_some(),
            newest: self.clock.newest().0,
            earliest: self.earliest().0,
            stable: self.stable().0,
            durable: self.durability.durable_stamp().0,
            dirty_bytes: self.data.device().dirty_bytes(),
            dirty_age_ms: self.durability.dirty_age_ns(now, dirty) / 1_000_000,
            capacity_bytes: space.capacity_bytes,
            free_bytes: space.free_bytes.saturating_sub(self.settings.reserve_bytes),
            log_bytes: stats.log_bytes,
            records: stats.records,
            inodes: counts.inodes,
            sessions: counts.sessions,
            connections: process.connections,
            resident_bytes: process.resident_bytes,
            resident_bytes_peak: process.resident_bytes_peak,
            cpu_ns: process.cpu_ns,
            gaps,
            software: SOFTWARE.to_owned(),
            cluster: cluster.to_string(),
            uptime_ms: now.since_ns(self.started) / 1_000_000,
            metalog_index: self.meta.appended().0,
            index_bytes: stats.index_bytes + images.heap_bytes,
            index_bytes_max: self.data.device().shares().index,
            shelved_records: stats.shelved_records,
            shelf_bytes: stats.shelf_bytes,
            flushes,
            flush_bytes_median,
            last_whole,
            forgotten_bytes,
            forgotten_waiting_bytes,
            forgetting_looked_at,
            forgetting_to_look_at,
            damaged,
            scrubbed: finished.0,
            scrub_done_bytes,
            scrub_all_bytes,
            corrupt_reads: self.data.device().noticed().reads(),
            scrub_due: self.scrub_due().map_or(0, |due| due.0),
            memory: Some(Box::new(self.memory_use())),
            images: Some(Box::new(images.told())),
        }
    }

    /// Who may use how much memory, and does.
    fn memory_use(&self) -> MemoryUse {
        let device = self.data.device();
        let (shares, tiers) = (device.shares(), device.tiers().stats());
        MemoryUse {
            bytes_max: shares.total,
            program_bytes_max: shares.program,
            store_bytes_max: shares.store,
            files_bytes_max: shares.files,
            files_bytes: self.files_cached(),
            dirty_bytes_max: shares.dirty,
            young_bytes_max: shares.young,
            young_bytes: device.tiers().young_bytes(device.log().end()),
            old_bytes_max: shares.old,
            old_bytes: tiers.old_bytes,
            wanted_hit_bytes: tiers.wanted.hit_bytes,
            wanted_missed_bytes: tiers.wanted.missed_bytes,
            scanned_hit_bytes: tiers.scanned.hit_bytes,
            scanned_missed_bytes: tiers.scanned.missed_bytes,
            ahead_bytes: tiers.ahead_bytes,
            admitted: tiers.admitted,
            evicted: tiers.evicted,
            refused: tiers.refused,
            healed: tiers.healed,
            unbounded: tiers.unbounded,
        }
    }
}

fn damaged_words(damaged: u64) -> String {
    let places = if damaged == 1 { "1 place".to_owned() } else { format!("{damaged} places") };
    format!("stored data is damaged in {places}, which are not given out: `frieze scrub --status` names them")
}
