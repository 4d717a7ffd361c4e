//! Status of the server, in numbers and words.

use frieze_base::Reason;
use frieze_cluster::ClusterTrouble;
use frieze_service::ScrubSummary;
use frieze_wire::message::{ClusterNodeStatus, Gap, MemoryUse, StatusReply};

use crate::parts::{SOFTWARE, ServerParts};

impl ServerParts {
    /// Asks a majority before the health of the cluster is reported: a request detects a majority that was just lost,
    /// not only the leader's timeout.
    pub(crate) fn ask_majority(&self) {
        if self.planes.meta.leader().is_some() {
            // Without an answer no server leads by now, and the status says so.
            let _unconfirmed = self.planes.meta.linearizable();
        }
    }

    pub(crate) fn status(&self) -> StatusReply {
        let health = self.planes.clock.health();
        let process = (self.process)();
        let stats = self.planes.data.device().log().stats();
        let space = self.planes.data.device().space().unwrap_or_default();
        let counts = self.planes.meta.counts();
        let now = self.planes.clock.reading().mono;
        let dirty = self.planes.durability.is_dirty(&self.planes.data, &self.planes.meta);
        let gaps = self.planes.all_gaps().into_iter().map(|(from, to)| Gap { from: from.0, to: to.0 }).collect();
        let (cluster, last_whole) = (self.planes.cluster(), self.planes.last_whole().0);
        let images = self.planes.data.device().image_stats();
        let (flushes, flush_bytes_median) = self.planes.data.device().flushes();
        let ScrubSummary { damaged, finished, done_bytes: scrub_done } = self.service.upkeep.scrub.summary();
        let (scrub_done_bytes, scrub_all_bytes) =
            scrub_done.map_or((0, 0), |done| (done, self.service.upkeep.stored_bytes().max(done).max(1)));
        let (forgotten_bytes, forgotten_waiting_bytes) = self.planes.gc.bytes();
        let (forgetting_looked_at, forgetting_to_look_at) = self.planes.gc.progress().now();
        let troubles = self.troubles();
        StatusReply {
            health: ClusterTrouble::health_of(&troubles),
            clock_error_us: health.error_us.unwrap_or(u64::MAX),
            fenced: health.fenced.is_some(),
            newest: self.planes.clock.newest().0,
            earliest: self.planes.earliest().0,
            stable: self.planes.stable().0,
            durable: self.planes.durability.durable_stamp().0,
            dirty_bytes: self.planes.data.device().dirty_bytes(),
            dirty_age_ms: self.planes.durability.dirty_age_ns(now, dirty) / 1_000_000,
            capacity_bytes: space.capacity_bytes,
            free_bytes: space.free_bytes.saturating_sub(self.planes.settings.reserve_bytes),
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
            metalog_index: self.planes.meta.appended().0,
            index_bytes: stats.index_bytes + images.heap_bytes,
            index_bytes_max: self.planes.data.device().shares().index,
            shelved_records: stats.run_records,
            shelf_bytes: stats.run_bytes,
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
            corrupt_reads: self.planes.data.device().read_errors().reads(),
            scrub_due: self.service.upkeep.scrub_due().map_or(0, |due| due.0),
            memory: Some(Box::new(self.memory_use())),
            thinned: self.planes.thinned_status(),
            images: Some(Box::new(images.to_wire())),
            troubles: troubles.into_iter().map(ClusterTrouble::to_wire).collect(),
            fabric: self.fabric.get().map(|host| Box::new(host.report().to_wire())),
        }
    }

    /// Troubles of this server, and those of its cluster as far as it knows; empty: none.
    fn troubles(&self) -> Vec<ClusterTrouble> {
        let mut troubles = self.own_troubles();
        if let Some(mut status) = self.cluster_status() {
            let me = self.planes.node();
            // Its own troubles are in the list already.
            status.nodes.iter_mut().filter(|node| node.node.id == me).for_each(|node| node.trouble = None);
            troubles.extend(self.troubles_of_cluster(&status));
        } else if self.has_cluster() {
            let what = "it has not been told yet of the cluster that it has joined";
            troubles.push(ClusterTrouble::new(
                what,
                "none if it has just begun; else its log names what it does not reach",
            ));
        }
        troubles
    }

    /// Troubles of this server alone.
    pub(crate) fn own_troubles(&self) -> Vec<ClusterTrouble> {
        let mut troubles = Vec::new();
        let mut add = |what: String, remedy: &str| troubles.push(ClusterTrouble::new(what, remedy));
        if let Some(fault) = self.removal.fault() {
            let what = match fault.reason {
                Reason::Removed => format!("removed from the cluster, and about to end: {}", fault.message),
                _ => fault.message,
            };
            add(what, "start it on an empty directory with --join");
        }
        let disk = "look at the disk (dmesg, SMART), replace it if need be, then restart the server";
        if let Some(fault) = self.planes.durability.failure() {
            add(format!("read-only after a failed flush: {}", fault.message), disk);
        }
        if let Some(fence) = self.planes.clock.health().fenced {
            add(
                format!("fenced, reads only: {fence}"),
                "set the clock (chrony, NTP): writes are taken again by itself",
            );
        }
        if let Some(fault) = self.planes.durability.store_trouble() {
            let what = format!("names are kept in memory and in the metalog only: {}", fault.message);
            add(what, "give the disk of the data directory room, or replace it");
        }
        if let Some(what) = self.fabric.get().and_then(|host| host.trouble()) {
            add(what, "look at the card and its address, or set fabric = \"none\"; it is tried again by itself");
        }
        let damaged = self.service.upkeep.scrub.summary().damaged;
        if damaged > 0 {
            add(
                damaged_words(damaged),
                "bring the files back from an instant before, or from a copy; 'frieze scrub' looks again",
            );
        }
        if let Some(what) = self.planes.data.device().space_trouble() {
            let history = "'frieze forget' some of the past ('frieze du --history /' shows where it is)";
            add(what.to_owned(), &format!("{history}, or give it a larger disk"));
        }
        let chains = self.planes.chains();
        let failed: Vec<&str> =
            chains.iter().map(|chain| chain.failed.as_str()).filter(|why| !why.is_empty()).collect();
        if let Some(why) = failed.first() {
            let chains = if failed.len() == 1 { "1 chain".to_owned() } else { format!("{} chains", failed.len()) };
            let remedy = match *why == Reason::NoSpace.words() {
                true => {
                    "give the disk room ('frieze forget', a larger one), then restart the server: it is given what it \
                     lacks"
                }
                false => disk,
            };
            add(format!("out of {chains}: the disk took a record no more ({why})"), remedy);
        }
        if self.has_cluster() && !chains.is_empty() && self.planes.meta.leader().is_some() {
            let left_ns = self.planes.data.lease().left_ns(self.planes.clock.reading().mono);
            match self.refused_by_leader() {
                Some(fault) => add(format!("refused by the cluster's leader: {}", fault.message), "as it says"),
                None if left_ns == 0 => add(
                    format!("{}: this server answers for none of its chains", ClusterNodeStatus::NO_LEASE),
                    "none if it has just begun; else look at its connections to the other servers (its log names them)",
                ),
                None => {}
            }
        }
        troubles
    }

    /// Limits and use of memory, by purpose.
    fn memory_use(&self) -> MemoryUse {
        let device = self.planes.data.device();
        let (shares, tiers, names) = (device.shares(), device.tiers().stats(), self.planes.names_use());
        MemoryUse {
            bytes_max: shares.total,
            program_bytes_max: shares.program,
            store_bytes_max: shares.store,
            files_bytes_max: shares.files,
            files_bytes: self.service.upkeep.files_cached(),
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
            ..names
        }
    }
}

fn damaged_words(damaged: u64) -> String {
    let places = if damaged == 1 { "1 place".to_owned() } else { format!("{damaged} places") };
    format!("stored data is damaged in {places}, which are not given out: `frieze scrub --status` names them")
}
