//! The table of metrics: every metric of a server, by its name at Prometheus.
//!
//! Guarantees: names and labels are those of [`FIGURES`], from which `docs/metrics.md`, the dashboard and the alerts in
//! `contrib` are made; labels take a bounded number of values: kinds, roles, nodes and chains, never files, users or
//! sessions. Leaves to others: the values (`node`), the text format and the HTTP endpoint (`node`'s `serve::metrics`).

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It goes up and down.
    Gauge,
    /// It only rises, until the process ends.
    Counter,
    /// How many requests took how long.
    Histogram,
}

/// A metric: its name and its meaning.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its name at Prometheus.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it is: a sentence.
    pub help: &'static str,
    /// When to alert an operator or look closer; empty for metrics that only explain.
    pub alarm: &'static str,
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str, alarm: &'static str) -> Figure {
    Figure { name, kind: Kind::Gauge, labels, help, alarm }
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    alarm: &'static str,
) -> Figure {
    Figure { name, kind: Kind::Counter, labels, help, alarm }
}

/// How long requests take, by kind.
pub const REQUEST_SECONDS: Figure = Figure {
    name: "frieze_request_duration_seconds",
    kind: Kind::Histogram,
    labels: &["kind"],
    help: "From when a request was read to when its answer was handed to the kernel. Waits for locks and recalls are \
        left out.",
    alarm: "the 99th percentile of reads or writes far above its usual value",
};

/// Every metric, in the order of the documentation's page.
pub const FIGURES: &[Figure] = &[
    gauge("frieze_build_info", &["version"], "Always 1; the version is in the label.", ""),
    gauge("frieze_uptime_seconds", &[], "Since the server began to serve.", "it falls: the server was restarted"),
    gauge(
        "frieze_healthy",
        &[],
        "1 if `frieze status` says healthy, else 0: a copy, a server or a majority is missing, or something is wrong \
         here.",
        "0",
    ),
    gauge("frieze_fenced", &[], "1 while the server refuses changes because it does not trust its clock.", "1"),
    gauge("frieze_gaps", &[], "Intervals of which a loss of power took something.", "it rises"),
    gauge(
        "frieze_chains_behind",
        &[],
        "Chains that went on from a copy that was behind, and may lack what was durable.",
        "above 0",
    ),
    gauge("frieze_connections", &[], "Open connections of clients and servers.", "near `connections_max`"),
    gauge("frieze_sessions", &[], "Open sessions.", ""),
    gauge("frieze_inodes", &[], "Files, directories and links that are there now.", ""),
    gauge("frieze_records", &[], "Records in the log, history included.", ""),
    REQUEST_SECONDS,
    counter("frieze_requests_refused_total", &["kind"], "Requests that were answered with an error.", ""),
    counter("frieze_request_received_bytes_total", &["kind"], "Payload of the requests, bytes.", ""),
    counter("frieze_request_sent_bytes_total", &["kind"], "Payload of their answers, bytes.", ""),
    counter("frieze_spans_sent_total", &[], "Spans that the collector of traces has accepted.", ""),
    counter(
        "frieze_spans_dropped_total",
        &[],
        "Spans that were dropped: the collector is away or too slow, or refused them.",
        "it rises",
    ),
    gauge(
        "frieze_clock_error_seconds",
        &[],
        "Error bound of the clock; +Inf if the kernel names none.",
        "near `max_clock_offset`",
    ),
    gauge("frieze_clock_ahead_seconds", &[], "How far the newest stamp lies ahead of the clock.", "above 0.1 for long"),
    gauge("frieze_stable_timestamp_seconds", &[], "The newest instant at which everything is closed.", ""),
    gauge("frieze_durable_timestamp_seconds", &[], "Every record stamped up to it is on stable storage.", ""),
    gauge("frieze_dirty_bytes", &[], "Acknowledged bytes not yet on stable storage.", "near `dirty_bytes_max`"),
    gauge("frieze_dirty_age_seconds", &[], "Age of the oldest of these bytes.", "above 5: the disk does not keep up"),
    counter("frieze_flushes_total", &[], "Flushes of the device log.", ""),
    gauge("frieze_disk_capacity_bytes", &[], "Capacity of the device that the server may use.", ""),
    gauge(
        "frieze_disk_free_bytes",
        &[],
        "Bytes free for data, without the reserve.",
        "below a tenth; at 0 writes are refused",
    ),
    gauge("frieze_log_bytes", &[], "Bytes of records in the log, history included.", ""),
    gauge("frieze_forgotten_waiting_bytes", &[], "Bytes of expired records that the disk has not reclaimed yet.", ""),
    gauge("frieze_packs", &[], "Packs of thinned history.", ""),
    gauge("frieze_packed_bytes", &[], "Bytes of payload of the records in packs, as they were written.", ""),
    gauge(
        "frieze_unpacked_dead_bytes",
        &[],
        "Bytes of records outside of packs that died since records were packed last.",
        "rises for days: see the log for why old records are not packed",
    ),
    gauge(
        "frieze_thinning_files_left",
        &[],
        "Files that the pass over what policies of retention thin has still to look at.",
        "rises for hours",
    ),
    gauge(
        "frieze_remains_chains",
        &[],
        "Chains of which this server is no member any more and keeps its records until all members serve.",
        "above 0 for long",
    ),
    gauge(
        "frieze_remains_left_bytes",
        &[],
        "Bytes of such chains that all members have, and that the disk has not reclaimed yet.",
        "above 0 and not falling",
    ),
    counter("frieze_remains_freed_bytes_total", &[], "Bytes of such chains that the disk has reclaimed.", ""),
    gauge("frieze_index_bytes", &[], "Memory of the index of the device log.", ""),
    gauge("frieze_index_max_bytes", &[], "Memory that the index of the device log may use.", ""),
    gauge("frieze_shelf_bytes", &[], "Bytes of index on disk.", ""),
    gauge("frieze_names_bytes", &[], "Memory of packed names and inodes.", ""),
    counter("frieze_names_loads_total", &[], "Pages and blocks of them read again.", "it rises fast"),
    gauge("frieze_checkpoint_bytes", &[], "Size of the newest checkpoint of the names; 0: there is none.", ""),
    gauge("frieze_checkpoint_timestamp_seconds", &[], "When it was taken; 0: there is none.", ""),
    gauge("frieze_checkpoint_missing_changes", &[], "Changes of names since.", "above a million: starts take long"),
    counter("frieze_checkpoint_failures_total", &[], "Checkpoints that could not be written.", "it rises"),
    gauge(
        "frieze_memory_max_bytes",
        &[],
        "Memory that the server may use, copies of files in the kernel included.",
        "",
    ),
    gauge(
        "frieze_memory_part_bytes",
        &["part"],
        "Memory in use, by part: young records, old records, copies of other files.",
        "",
    ),
    gauge("frieze_memory_part_max_bytes", &["part"], "Memory that each part may use.", ""),
    counter(
        "frieze_reads_hit_bytes_total",
        &["kind"],
        "Bytes of older records found in memory, by kind of read: wanted or scanned.",
        "",
    ),
    counter("frieze_reads_missed_bytes_total", &["kind"], "Bytes of older records read from the disk.", ""),
    gauge("process_resident_memory_bytes", &[], "Resident memory of the process.", "above `memory_bytes_max`"),
    counter("process_cpu_seconds_total", &[], "Processor time of the process.", ""),
    gauge("frieze_damaged_places", &[], "Places of the stored data known to be damaged.", "above 0"),
    counter("frieze_corrupt_reads_total", &[], "Reads refused: bytes and checksum do not match.", "it rises"),
    gauge(
        "frieze_scrubbed_timestamp_seconds",
        &[],
        "End of the last scrub of everything; 0 for never.",
        "older than twice `scrub_every`",
    ),
    gauge("frieze_scrub_done_bytes", &[], "Bytes that the current scrub has checked.", ""),
    gauge("frieze_scrub_all_bytes", &[], "Bytes that the current scrub has to check; 0 if none is running.", ""),
    gauge("frieze_metalog_applied_index", &[], "Last entry of the metalog executed here.", ""),
    gauge("frieze_metalog_last_index", &[], "Last entry of the metalog here.", "far above the applied one for long"),
    gauge("frieze_metalog_term", &[], "Term of the metalog.", "it rises often: leaders are lost"),
    gauge(
        "frieze_metalog_leads",
        &[],
        "1 if this server leads the metalog.",
        "the sum over all servers is not 1 for longer than a lease",
    ),
    gauge("frieze_metalog_has_leader", &[], "1 if this server knows the leader.", "0 for longer than a lease"),
    gauge(
        "frieze_metalog_members",
        &["kind"],
        "Servers that keep the metalog: voters, five at most, and learners, which get it and do not vote.",
        "",
    ),
    gauge("frieze_metalog_failed", &[], "1 if the metalog's journal cannot be written here.", "1"),
    gauge("frieze_lease_held", &[], "1 if this server may answer for its chains.", "0 for longer than a lease"),
    gauge("frieze_lease_left_seconds", &[], "Time until the lease of this server ends if it is not renewed.", ""),
    gauge(
        "frieze_node_info",
        &["cluster", "node", "name"],
        "Always 1; which node of which cluster this server is.",
        "",
    ),
    gauge(
        "frieze_cluster_nodes",
        &["state"],
        "Servers of the cluster by state, as this server knows it: without a leader, a server that sent no message \
         lately is unknown.",
        "offline or unknown above 0",
    ),
    gauge(
        "frieze_cluster_clock_offset_seconds",
        &["node"],
        "Each server's clock less the leader's; exported by the leader only.",
        "beyond 0.1",
    ),
    gauge("frieze_cluster_chains", &[], "Chains of the cluster.", ""),
    gauge(
        "frieze_cluster_chains_whole",
        &[],
        "Chains with all wanted copies: `replicas`, or the count of servers if that is smaller, offline servers \
         included.",
        "below `frieze_cluster_chains` for long",
    ),
    gauge("frieze_cluster_copies_missing", &[], "Wanted copies of chains that do not exist.", "above 0 for long"),
    gauge(
        "frieze_cluster_disks_out",
        &["reason"],
        "Disks that left their chains because they accept no record, by reason: full or failed.",
        "above 0",
    ),
    gauge(
        "frieze_cluster_chains_waiting",
        &[],
        "Chains that do not serve until a server comes back.",
        "above 0 for longer than a lease",
    ),
    gauge("frieze_chains", &["role"], "Chains by this server's role in them.", ""),
    gauge(
        "frieze_chain_role",
        &["chain", "role"],
        "Always 1; this server's role in the chain: only, head, middle, tail, joining, syncing or none.",
        "",
    ),
    gauge("frieze_chain_epoch", &["chain"], "Configuration number of the chain.", "it rises often: members are lost"),
    gauge("frieze_chain_members", &["chain"], "Members of the chain.", ""),
    gauge("frieze_chain_last_record", &["chain"], "Number of the last record in the log here.", ""),
    gauge(
        "frieze_chain_clean_record",
        &["chain"],
        "Number of the last record that this server knows to be committed.",
        "constant while `frieze_chain_last_record` rises",
    ),
    gauge("frieze_chain_dirty_records", &["chain"], "Records here that this server does not know to be committed.", ""),
    gauge(
        "frieze_chain_dirty_bytes",
        &["chain"],
        "Bytes of dirty records that may have to be forwarded.",
        "near 64 MiB for long: the members behind do not keep up",
    ),
    gauge("frieze_chain_closed_timestamp_seconds", &["chain"], "Closed timestamp of the chain.", ""),
    gauge(
        "frieze_chain_failed",
        &["chain"],
        "1 if this server is named as a member but its device accepts no record.",
        "1",
    ),
    gauge("frieze_sync_chains", &[], "Chains of which this server brings another server up to date.", ""),
    gauge("frieze_sync_left_records", &[], "Records left to send for catch-up.", "above 0 and not falling"),
    gauge("frieze_sync_left_bytes", &[], "Estimated bytes of those records.", ""),
    counter("frieze_sync_sent_bytes_total", &[], "Bytes that this server has sent for catch-up.", ""),
    gauge("frieze_sync_lacked_bytes", &[], "Estimated bytes that this server still has to receive for catch-up.", ""),
    gauge("frieze_sync_max_bytes_per_second", &[], "`sync_bytes_per_s`; 0 for no limit.", ""),
    counter("frieze_peer_sent_messages_total", &["kind"], "Messages to other servers.", ""),
    counter("frieze_peer_sent_bytes_total", &["kind"], "Bytes of these messages, without headers.", ""),
    counter("frieze_peer_received_messages_total", &["kind"], "Messages from other servers.", ""),
    counter("frieze_peer_received_bytes_total", &["kind"], "Bytes of these messages, without headers.", ""),
    gauge("frieze_fabric_in_use", &[], "1 while there is a fabric for payloads, 0 while all go by TCP.", ""),
    counter("frieze_fabric_transfers_total", &["kind"], "One-sided transfers of payloads, since it was opened.", ""),
    counter("frieze_fabric_bytes_total", &[], "Bytes of these transfers.", ""),
    counter(
        "frieze_fabric_failures_total",
        &[],
        "Transfers that failed: their payloads went by TCP.",
        "rising: look at the card and its network",
    ),
    gauge("frieze_fabric_registered_bytes", &[], "Memory that is registered for payloads.", ""),
    counter("frieze_fabric_registrations_total", &[], "Registrations of memory.", "rising with the requests"),
    counter(
        "frieze_peer_lost_messages_total",
        &[],
        "Messages to other servers that were dropped: the server was offline, or its queue was full.",
        "",
    ),
];

/// Values of metrics, ready for export.
#[derive(Debug, Default)]
pub struct Values(
    /// Each metric with the values of its labels.
    pub Vec<(&'static Figure, Vec<String>, f64)>,
);

impl Values {
    /// Sets a value.
    ///
    /// # Panics
    /// If [`FIGURES`] has no such metric, or one with other labels.
    pub fn set(&mut self, name: &str, labels: &[&str], value: f64) {
        let figure = FIGURES.iter().find(|figure| figure.name == name).expect("every figure is in the table");
        assert_eq!(figure.labels.len(), labels.len(), "{name} has other labels in the table");
        self.0.push((figure, labels.iter().map(|label| (*label).to_owned()).collect(), value));
    }

    /// Sets a number without labels.
    pub fn count(&mut self, name: &str, value: u64) {
        self.set(name, &[], value as f64);
    }

    /// Sets 1 or 0.
    pub fn flag(&mut self, name: &str, value: bool) {
        self.set(name, &[], f64::from(u8::from(value)));
    }
}

#[cfg(test)]
mod tests;
