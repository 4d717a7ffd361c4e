//! The alerts: `contrib/prometheus/frieze.rules.yml` is made from this table, and `docs/operating.md` has a section for
//! each: what it means, what to look at, what to do.

/// An alert of Prometheus.
pub(super) struct Alert {
    pub(super) name: &'static str,
    pub(super) severity: Severity,
    /// How long the expression has to hold, as Prometheus writes it.
    pub(super) lasts: &'static str,
    pub(super) expression: &'static str,
    /// One line for a pager.
    pub(super) summary: &'static str,
    /// What is wrong, with the value.
    pub(super) description: &'static str,
}

/// How soon an operator has to look.
#[derive(Clone, Copy)]
pub(super) enum Severity {
    /// Now: requests fail or wait, or data is in danger.
    Critical,
    /// Within a working day.
    Warning,
}

const fn critical(
    name: &'static str,
    lasts: &'static str,
    expression: &'static str,
    summary: &'static str,
    description: &'static str,
) -> Alert {
    Alert { name, severity: Severity::Critical, lasts, expression, summary, description }
}

const fn warning(
    name: &'static str,
    lasts: &'static str,
    expression: &'static str,
    summary: &'static str,
    description: &'static str,
) -> Alert {
    Alert { name, severity: Severity::Warning, lasts, expression, summary, description }
}

/// All alerts, in groups.
pub(super) const GROUPS: &[(&str, &[Alert])] = &[
    (
        "frieze-servers",
        &[
            critical(
                "FriezeServerDown",
                "1m",
                "up{job=\"frieze\"} == 0",
                "{{ $labels.instance }} does not answer Prometheus",
                "Prometheus has read no metrics of {{ $labels.instance }} for a minute.",
            ),
            critical(
                "FriezeNoLeader",
                "10s",
                "frieze_metalog_has_leader == 0",
                "{{ $labels.instance }} knows no leader",
                "No majority of the voters answers: nothing can be changed, closed instants can be read.",
            ),
            critical(
                "FriezeLeaseLost",
                "10s",
                "frieze_lease_held == 0",
                "{{ $labels.instance }} has no lease and serves nothing",
                "The server does not reach the leader, or the leader refuses it.",
            ),
            warning(
                "FriezeUnhealthy",
                "1m",
                "frieze_healthy == 0",
                "{{ $labels.instance }} reports a trouble",
                "`frieze status` on {{ $labels.instance }} prints it with its remedy.",
            ),
            warning(
                "FriezeLeadersChange",
                "0s",
                "max by (job) (changes(frieze_metalog_term[1h])) > 5",
                "The cluster has elected {{ $value }} times within an hour",
                "Leaders are lost again and again: the network, or a machine that stalls.",
            ),
            warning(
                "FriezeRestartsOften",
                "0s",
                "resets(process_cpu_seconds_total[30m]) > 2",
                "{{ $labels.instance }} was restarted {{ $value }} times within half an hour",
                "The server ends and is started again.",
            ),
        ],
    ),
    (
        "frieze-replication",
        &[
            critical(
                "FriezeChainsWaiting",
                "10s",
                "max by (job) (frieze_cluster_chains_waiting) > 0",
                "{{ $value }} chains do not serve",
                "They wait for the only server that has their newest records.",
            ),
            warning(
                "FriezeServerAway",
                "1m",
                "max by (job, state) (frieze_cluster_nodes{state=~\"offline|unknown\"}) > 0",
                "{{ $value }} servers are {{ $labels.state }}",
                "The cluster serves without them, and fewer further losses can be survived.",
            ),
            warning(
                "FriezeCopiesMissing",
                "10m",
                "max by (job) (frieze_cluster_copies_missing) > 0",
                "{{ $value }} copies of chains are missing",
                "Copies have been missing for ten minutes: none is being made, or not fast enough.",
            ),
            warning(
                "FriezeCatchUpStuck",
                "10m",
                "frieze_sync_left_records > 0 and delta(frieze_sync_left_records[5m]) >= 0",
                "A server that catches up from {{ $labels.instance }} makes no progress",
                "{{ $value }} records are left to send, and their number does not fall.",
            ),
            warning(
                "FriezeMemberBehind",
                "5m",
                "max by (job, instance) (frieze_chain_dirty_bytes) > 48 * 1024 * 1024",
                "Members of chains of {{ $labels.instance }} do not keep up",
                "{{ $value | humanize1024 }}B of a chain wait to be committed; at 64 MiB writers wait.",
            ),
            warning(
                "FriezeChainsBehind",
                "0s",
                "max by (job) (frieze_chains_behind) > 0",
                "{{ $value }} chains may lack acknowledged writes",
                "They went on from a copy that was behind, by an operator's declaration or after a loss of power.",
            ),
            warning(
                "FriezeRemainsStuck",
                "6h",
                "frieze_remains_left_bytes > 0 and delta(frieze_remains_left_bytes[1h]) >= 0",
                "{{ $labels.instance }} does not reclaim chains that moved away",
                "{{ $value | humanize1024 }}B are left, and they do not become fewer.",
            ),
        ],
    ),
    (
        "frieze-disks",
        &[
            critical(
                "FriezeDiskOut",
                "0s",
                "max by (job, reason) (frieze_cluster_disks_out) > 0",
                "{{ $value }} disks are out of their chains: {{ $labels.reason }}",
                "The other servers serve; fewer further losses can be survived.",
            ),
            critical(
                "FriezeDiskRefusesWrites",
                "0s",
                "max by (job, instance) (frieze_chain_failed) > 0 or max by (job, instance) (frieze_metalog_failed) \
                 > 0",
                "A disk of {{ $labels.instance }} refused a write",
                "Other servers have taken its place.",
            ),
            warning(
                "FriezeDiskNearlyFull",
                "10m",
                "frieze_disk_free_bytes < 0.1 * frieze_disk_capacity_bytes",
                "{{ $labels.instance }} has {{ $value | humanize1024 }}B free",
                "Less than a tenth of the device is free; at 0 writes are refused.",
            ),
            critical(
                "FriezeDiskFull",
                "0s",
                "frieze_disk_free_bytes == 0",
                "{{ $labels.instance }} is full",
                "Writes are refused. Removing and forgetting still work.",
            ),
            warning(
                "FriezeDiskFullSoon",
                "1h",
                "predict_linear(frieze_disk_free_bytes[6h], 86400) < 0 and frieze_disk_free_bytes < 0.3 * \
                 frieze_disk_capacity_bytes",
                "{{ $labels.instance }} is full within a day",
                "The device fills up within 24 hours if it goes on as in the last six.",
            ),
            warning(
                "FriezeDiskSlow",
                "1m",
                "frieze_dirty_age_seconds > 5",
                "The disk of {{ $labels.instance }} does not keep up",
                "The oldest acknowledged byte has waited {{ $value | humanizeDuration }} for stable storage.",
            ),
            warning(
                "FriezeRequestsSlow",
                "10m",
                "histogram_quantile(0.99, sum by (job, instance, kind, le) \
                 (rate(frieze_request_duration_seconds_bucket{kind=~\"read|write|change|stat\"}[5m]))) > 1",
                "Requests of kind {{ $labels.kind }} are slow on {{ $labels.instance }}",
                "99 of 100 take up to {{ $value | humanizeDuration }}.",
            ),
            warning(
                "FriezeCheckpointFails",
                "0s",
                "increase(frieze_checkpoint_failures_total[1h]) > 0",
                "{{ $labels.instance }} cannot write a checkpoint of the names",
                "The next start reads everything since the last one.",
            ),
            warning(
                "FriezeMetalogLags",
                "5m",
                "frieze_metalog_last_index - frieze_metalog_applied_index > 10000",
                "{{ $labels.instance }} executes changes of names too slowly",
                "{{ $value }} entries of the metalog wait to be executed.",
            ),
        ],
    ),
    (
        "frieze-integrity",
        &[
            critical(
                "FriezeDamage",
                "0s",
                "frieze_damaged_places > 0",
                "{{ $value }} places of {{ $labels.instance }} are damaged",
                "A scrub or a read found bytes that do not match their checksum.",
            ),
            critical(
                "FriezeCorruptReads",
                "0s",
                "increase(frieze_corrupt_reads_total[1h]) > 0",
                "{{ $labels.instance }} refused reads of damaged bytes",
                "Clients asked for damaged bytes within the last hour.",
            ),
            warning(
                "FriezeScrubOverdue",
                "1h",
                "time() - frieze_scrubbed_timestamp_seconds > 1209600 and frieze_uptime_seconds > 1209600",
                "{{ $labels.instance }} has not been scrubbed for two weeks",
                "The last whole scrub ended more than twice `scrub_every` (7 days) ago.",
            ),
            warning(
                "FriezeGap",
                "0s",
                "delta(frieze_gaps[1h]) > 0",
                "A loss of power took something of {{ $labels.instance }}",
                "Acknowledged changes that were not on stable storage are lost; the interval is marked.",
            ),
        ],
    ),
    (
        "frieze-clocks",
        &[
            critical(
                "FriezeFenced",
                "1m",
                "frieze_fenced == 1",
                "{{ $labels.instance }} refuses changes",
                "The server does not trust its clock.",
            ),
            warning(
                "FriezeClockInexact",
                "5m",
                "frieze_clock_error_seconds > 0.25",
                "The clock of {{ $labels.instance }} is inexact",
                "Its error may be {{ $value }} s; at `max_clock_offset` the server refuses changes.",
            ),
            warning(
                "FriezeClockOffset",
                "5m",
                "abs(frieze_cluster_clock_offset_seconds) > 0.1",
                "The clock of node {{ $labels.node }} differs from the leader's",
                "By {{ $value }} s; at half a second the server leaves its chains.",
            ),
            warning(
                "FriezeClockAhead",
                "10m",
                "frieze_clock_ahead_seconds > 0.1",
                "Stamps of {{ $labels.instance }} are ahead of its clock",
                "By {{ $value }} s: another clock was ahead, or this one was set back.",
            ),
        ],
    ),
    (
        "frieze-memory",
        &[
            warning(
                "FriezeMemoryOver",
                "15m",
                "process_resident_memory_bytes > frieze_memory_max_bytes",
                "{{ $labels.instance }} uses more memory than it may",
                "{{ $value | humanize1024 }}B are resident.",
            ),
            warning(
                "FriezeSpansDropped",
                "15m",
                "rate(frieze_spans_dropped_total[5m]) > 0",
                "{{ $labels.instance }} loses spans of traces",
                "{{ $value }} a second: the collector is away or too slow, or refuses them.",
            ),
            warning(
                "FriezeFabricFails",
                "15m",
                "rate(frieze_fabric_failures_total[5m]) > 0",
                "RDMA transfers of {{ $labels.instance }} fail",
                "{{ $value }} a second; their payloads go by TCP.",
            ),
        ],
    ),
];
