//! The values of the metrics for operators.
//!
//! Guarantees: a scrape changes nothing and waits for nothing but the locks that `frieze status` takes. Leaves to
//! others: names and meaning (`frieze_metrics`), the text format (`prometheus`), the HTTP endpoint (`serve::metrics`).

use frieze_base::{ChainId, NodeId};
use frieze_cluster::{ClusterStatus, NodeState};
use frieze_hlc::Hlc;
use frieze_metadata::MetalogStatus;
use frieze_metrics::Values;
use frieze_wire::message::ReplicaStatus;

use crate::parts::{SOFTWARE, ServerParts};

/// Chains with metrics of their own; beyond, only the sums are exported: a collector has to be able to store them.
const CHAINS_EXPORTED_MAX: usize = 1024;

impl ServerParts {
    /// The present values of every metric that the parts knows.
    pub(crate) fn figures(&self) -> Values {
        let mut values = Values::default();
        self.figures_of_server(&mut values);
        if let Some(metalog) = self.metalog() {
            of_metalog(&metalog, &mut values);
        } else {
            values.count("frieze_metalog_last_index", self.planes.meta.appended().0);
        }
        values.count("frieze_metalog_applied_index", self.planes.meta.appended().0);
        let Some(status) = self.cluster_status() else { return values };
        let left_ns = self.planes.data.lease().left_ns(self.planes.clock.reading().mono);
        values.flag("frieze_lease_held", left_ns > 0);
        values.set("frieze_lease_left_seconds", &[], seconds_of_ns(left_ns));
        let me = self.planes.node();
        of_cluster(me, &status, &mut values);
        let chains = self.planes.chains();
        of_chains(me, &chains, &mut values);
        let behind: u64 = chains.iter().map(|chain| chain.behind).sum();
        values.count("frieze_sync_left_bytes", behind * self.planes.data.mean_record_bytes());
        values.count("frieze_sync_sent_bytes_total", self.planes.data.catch_up_bytes());
        values.count(
            "frieze_sync_lacked_bytes",
            chains.iter().map(|chain| self.planes.data.lag_bytes(ChainId(chain.chain))).sum(),
        );
        values.count("frieze_sync_max_bytes_per_second", self.planes.data.catch_up_limit());
        values
    }

    fn figures_of_server(&self, values: &mut Values) {
        let status = self.status();
        let clock = self.planes.clock.health();
        values.set("frieze_build_info", &[SOFTWARE.trim_start_matches("frieze/")], 1.0);
        values.set("frieze_uptime_seconds", &[], status.uptime_ms as f64 / 1e3);
        values.flag("frieze_healthy", status.troubles.is_empty());
        values.flag("frieze_fenced", status.fenced);
        values.set(
            "frieze_clock_error_seconds",
            &[],
            clock.error_us.map_or(f64::INFINITY, |error_us| error_us as f64 / 1e6),
        );
        values.set("frieze_clock_ahead_seconds", &[], clock.ahead_us as f64 / 1e6);
        for (name, value) in [
            ("frieze_stable_timestamp_seconds", status.stable),
            ("frieze_durable_timestamp_seconds", status.durable),
            ("frieze_scrubbed_timestamp_seconds", status.scrubbed),
        ] {
            values.set(name, &[], seconds_of_stamp(value));
        }
        values.set("frieze_dirty_age_seconds", &[], status.dirty_age_ms as f64 / 1e3);
        values.set("process_cpu_seconds_total", &[], seconds_of_ns(status.cpu_ns));
        let checkpoint = self.planes.meta.checkpoint_status();
        values.set("frieze_checkpoint_timestamp_seconds", &[], checkpoint.taken_us as f64 / 1e6);
        let (remains_chains, remains_left, remains_freed) = self.service.upkeep.remains.figures();
        let names = self.planes.names_use();
        for (name, value) in [
            ("frieze_names_bytes", names.names_bytes),
            ("frieze_names_loads_total", names.names_loads),
            ("frieze_remains_chains", remains_chains),
            ("frieze_remains_left_bytes", remains_left),
            ("frieze_remains_freed_bytes_total", remains_freed),
            ("frieze_checkpoint_bytes", checkpoint.bytes),
            ("frieze_checkpoint_missing_changes", checkpoint.changes_since),
            ("frieze_checkpoint_failures_total", checkpoint.failures),
            ("frieze_gaps", status.gaps.len() as u64),
            ("frieze_chains_behind", self.planes.chains_behind()),
            ("frieze_connections", status.connections),
            ("frieze_sessions", status.sessions),
            ("frieze_inodes", status.inodes),
            ("frieze_records", status.records),
            ("frieze_dirty_bytes", status.dirty_bytes),
            ("frieze_flushes_total", status.flushes),
            ("frieze_disk_capacity_bytes", status.capacity_bytes),
            ("frieze_disk_free_bytes", status.free_bytes),
            ("frieze_log_bytes", status.log_bytes),
            ("frieze_forgotten_waiting_bytes", status.forgotten_waiting_bytes),
            ("frieze_index_bytes", status.index_bytes),
            ("frieze_index_max_bytes", status.index_bytes_max),
            ("frieze_shelf_bytes", status.shelf_bytes),
            ("process_resident_memory_bytes", status.resident_bytes),
            ("frieze_damaged_places", status.damaged),
            ("frieze_corrupt_reads_total", status.corrupt_reads),
            ("frieze_scrub_done_bytes", status.scrub_done_bytes),
            ("frieze_scrub_all_bytes", status.scrub_all_bytes),
        ]
        .into_iter()
        .chain(status.thinned.unwrap_or_default().figures())
        {
            values.count(name, value);
        }
        if let Some(fabric) = &status.fabric {
            values.flag("frieze_fabric_in_use", !fabric.provider.is_empty());
            for (kind, count) in [("write", fabric.writes), ("read", fabric.reads), ("hop", fabric.server_reads)] {
                values.set("frieze_fabric_transfers_total", &[kind], count as f64);
            }
            values.count("frieze_fabric_bytes_total", fabric.bytes);
            values.count("frieze_fabric_failures_total", fabric.failures);
            values.count("frieze_fabric_registered_bytes", fabric.registered_bytes);
            values.count("frieze_fabric_registrations_total", fabric.registrations);
        }
        let memory = status.memory.unwrap_or_default();
        values.count("frieze_memory_max_bytes", memory.bytes_max);
        for (part, bytes, bytes_max) in [
            ("young", memory.young_bytes, memory.young_bytes_max),
            ("old", memory.old_bytes, memory.old_bytes_max),
            ("files", memory.files_bytes, memory.files_bytes_max),
        ] {
            values.set("frieze_memory_part_bytes", &[part], bytes as f64);
            values.set("frieze_memory_part_max_bytes", &[part], bytes_max as f64);
        }
        for (kind, hit, missed) in [
            ("wanted", memory.wanted_hit_bytes, memory.wanted_missed_bytes),
            ("scanned", memory.scanned_hit_bytes, memory.scanned_missed_bytes),
        ] {
            values.set("frieze_reads_hit_bytes_total", &[kind], hit as f64);
            values.set("frieze_reads_missed_bytes_total", &[kind], missed as f64);
        }
    }
}

fn of_metalog(metalog: &MetalogStatus, values: &mut Values) {
    values.count("frieze_metalog_last_index", metalog.last.0);
    values.count("frieze_metalog_term", metalog.term);
    values.flag("frieze_metalog_leads", metalog.leads);
    values.flag("frieze_metalog_has_leader", metalog.leader.is_some());
    values.flag("frieze_metalog_failed", metalog.failed.is_some());
    values.set("frieze_metalog_members", &["voter"], metalog.members.voters.len() as f64);
    values.set("frieze_metalog_members", &["learner"], metalog.members.learners.len() as f64);
}

fn of_cluster(me: NodeId, status: &ClusterStatus, values: &mut Values) {
    let node = status.nodes.iter().find(|node| node.node.id == me);
    let name = node.map_or("", |node| &node.node.info.name);
    values.set("frieze_node_info", &[&status.cluster.to_string(), &me.to_string(), name], 1.0);
    for (state, name) in [
        (NodeState::Up, "up"),
        (NodeState::Draining, "draining"),
        (NodeState::Offline, "offline"),
        (NodeState::Unknown, "unknown"),
        (NodeState::Removed, "removed"),
    ] {
        let count = status.nodes.iter().filter(|node| node.state == state).count();
        values.set("frieze_cluster_nodes", &[name], count as f64);
    }
    for node in &status.nodes {
        if let Some(offset_us) = node.clock_offset_us {
            let id = node.node.id.to_string();
            values.set("frieze_cluster_clock_offset_seconds", &[&id], offset_us as f64 / 1e6);
        }
    }
    values.count("frieze_cluster_chains", status.chains.len() as u64);
    values.count("frieze_cluster_chains_whole", status.whole() as u64);
    values.count("frieze_cluster_copies_missing", status.copies_missing());
    let devices = || status.nodes.iter().filter(|node| !node.node.is_dead).flat_map(|node| &node.node.info.devices);
    let full = devices().filter(|device| device.is_full && !device.has_failed).count();
    let failed = devices().filter(|device| device.has_failed).count();
    values.set("frieze_cluster_disks_out", &["full"], full as f64);
    values.set("frieze_cluster_disks_out", &["failed"], failed as f64);
    let waiting = status.chains.iter().filter(|chain| chain.waits.is_some()).count();
    values.count("frieze_cluster_chains_waiting", waiting as u64);
}

fn of_chains(me: NodeId, chains: &[ReplicaStatus], values: &mut Values) {
    for role in ROLES {
        let count = chains.iter().filter(|chain| role_of(me, chain) == *role).count();
        values.set("frieze_chains", &[role], count as f64);
    }
    values.count("frieze_sync_chains", chains.iter().filter(|chain| chain.behind > 0).count() as u64);
    values.count("frieze_sync_left_records", chains.iter().map(|chain| chain.behind).sum());
    if chains.len() > CHAINS_EXPORTED_MAX {
        return;
    }
    for chain in chains {
        let id = chain.chain.to_string();
        values.set("frieze_chain_role", &[&id, role_of(me, chain)], 1.0);
        for (name, value) in [
            ("frieze_chain_epoch", chain.epoch),
            ("frieze_chain_members", chain.members.len() as u64),
            ("frieze_chain_last_record", chain.last),
            ("frieze_chain_clean_record", chain.clean),
            ("frieze_chain_dirty_records", chain.last.saturating_sub(chain.clean)),
            ("frieze_chain_dirty_bytes", chain.in_flight_bytes),
            ("frieze_chain_failed", u64::from(!chain.failed.is_empty())),
        ] {
            values.set(name, &[&id], value as f64);
        }
        values.set("frieze_chain_closed_timestamp_seconds", &[&id], seconds_of_stamp(chain.closed));
    }
}

/// Every role that a server can have in a chain.
const ROLES: &[&str] = &["only", "head", "middle", "tail", "joining", "syncing", "none"];

fn role_of(me: NodeId, chain: &ReplicaStatus) -> &'static str {
    let NodeId(me) = me;
    let is_last = chain.members.last() == Some(&me);
    match chain.members.iter().position(|member| *member == me) {
        None if chain.syncing == me => "syncing",
        None => "none",
        Some(_) if is_last && chain.joining => "joining",
        Some(0) if is_last => "only",
        Some(0) => "head",
        Some(_) if is_last => "tail",
        Some(_) => "middle",
    }
}

fn seconds_of_ns(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn seconds_of_stamp(stamp: u64) -> f64 {
    Hlc(stamp).micros() as f64 / 1e6
}

#[cfg(test)]
mod tests;
