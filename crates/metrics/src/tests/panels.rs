//! The panels of the dashboard: `contrib/grafana/frieze.json` is made from this table.
//!
//! An expression names metrics without the selector of jobs and servers, and has `[R]` as the interval of a rate: the
//! dashboard has the variables of Grafana in both places.

/// A row of panels under a title.
pub(super) struct PanelRow {
    pub(super) title: &'static str,
    pub(super) panels: &'static [Panel],
}

/// A panel: what it draws, and how.
pub(super) struct Panel {
    pub(super) title: &'static str,
    /// What a reader learns from it.
    pub(super) about: &'static str,
    /// A unit of Grafana: `bytes`, `s`, `ops`, `percentunit`, `short`.
    pub(super) unit: &'static str,
    /// Of the 24 columns of a dashboard.
    pub(super) width: u32,
    pub(super) look: Look,
    pub(super) lines: &'static [Line],
}

/// An expression, and the words beside its colour.
pub(super) struct Line(pub(super) &'static str, pub(super) &'static str);

/// How a panel draws.
#[derive(Clone, Copy)]
pub(super) enum Look {
    Lines,
    Stacked,
    /// One number; it is green, and beyond the bound red: above it, or below.
    Number(Bound),
    /// 1 is the first word, in green, and 0 the second, in red.
    YesNo(&'static str, &'static str),
    /// Buckets of a histogram over time.
    Heat,
    /// A line for each series, with its labels.
    Table,
}

#[derive(Clone, Copy)]
pub(super) enum Bound {
    Above(f64),
    Below(f64),
}

const fn panel(
    title: &'static str,
    unit: &'static str,
    width: u32,
    look: Look,
    lines: &'static [Line],
    about: &'static str,
) -> Panel {
    Panel { title, about, unit, width, look, lines }
}

use Bound::{Above, Below};
use Look::{Heat, Lines, Number, Stacked, Table, YesNo};

/// All rows, from the top down.
pub(super) const ROWS: &[PanelRow] = &[
    PanelRow {
        title: "Overview",
        panels: &[
            panel(
                "Health",
                "short",
                4,
                YesNo("healthy", "trouble"),
                &[Line("min(frieze_healthy)", "")],
                "The worst of the servers. `frieze status` on it prints each trouble with its remedy.",
            ),
            panel(
                "Servers that answer",
                "short",
                4,
                Number(Below(1.0)),
                &[Line("sum(up)", "")],
                "Servers whose metrics Prometheus reads: compare with how many there are.",
            ),
            panel(
                "Metalog leaders",
                "short",
                4,
                Number(Above(1.0)),
                &[Line("sum(frieze_metalog_leads)", "")],
                "1 in a cluster: 0 for longer than a lease means that nothing can be changed. Empty for a lone server.",
            ),
            panel(
                "Copies missing",
                "short",
                4,
                Number(Above(1.0)),
                &[Line("max(frieze_cluster_copies_missing)", "")],
                "Wanted copies of chains that do not exist. A second loss may lose data while this is above 0.",
            ),
            panel(
                "Free space, least of all",
                "percentunit",
                4,
                Number(Below(0.1)),
                &[Line("min(frieze_disk_free_bytes / frieze_disk_capacity_bytes)", "")],
                "Share of the device that takes data. At 0 writes are refused.",
            ),
            panel(
                "Damaged places",
                "short",
                4,
                Number(Above(1.0)),
                &[Line("sum(frieze_damaged_places)", "")],
                "Places of the stored data known to be damaged: `frieze scrub --status` names the files.",
            ),
            panel(
                "Requests",
                "ops",
                12,
                Stacked,
                &[Line("sum by (kind) (rate(frieze_request_duration_seconds_count[R]))", "{{kind}}")],
                "Answered requests a second, by kind, of all servers.",
            ),
            panel(
                "Latency, 99 of 100",
                "s",
                12,
                Lines,
                &[Line(
                    "histogram_quantile(0.99, sum by (le, kind) (rate(frieze_request_duration_seconds_bucket[R])))",
                    "{{kind}}",
                )],
                "From when a request was read to when its answer was handed to the kernel.",
            ),
            panel(
                "Servers",
                "short",
                24,
                Table,
                &[Line("frieze_build_info", ""), Line("frieze_node_info", "")],
                "Versions, and which node of which cluster each server is.",
            ),
        ],
    },
    PanelRow {
        title: "Requests and latency",
        panels: &[
            panel(
                "Requests of each server",
                "ops",
                8,
                Lines,
                &[Line("sum by (instance) (rate(frieze_request_duration_seconds_count[R]))", "{{instance}}")],
                "Heads and leaders have more to do than others.",
            ),
            panel(
                "Refused requests",
                "ops",
                8,
                Stacked,
                &[Line("sum by (kind) (rate(frieze_requests_refused_total[R]))", "{{kind}}")],
                "Requests that were answered with an error: a missing file counts, too.",
            ),
            panel(
                "Payload in and out",
                "Bps",
                8,
                Stacked,
                &[
                    Line("sum by (kind) (rate(frieze_request_received_bytes_total[R]))", "{{kind}} in"),
                    Line("sum by (kind) (rate(frieze_request_sent_bytes_total[R]))", "{{kind}} out"),
                ],
                "Bytes of files in requests and in answers, without headers.",
            ),
            panel(
                "Spans",
                "ops",
                8,
                Lines,
                &[
                    Line("sum(rate(frieze_spans_sent_total[R]))", "sent"),
                    Line("sum(rate(frieze_spans_dropped_total[R]))", "dropped"),
                ],
                "Empty unless servers run with --otlp.",
            ),
            panel(
                "Connections and sessions",
                "short",
                8,
                Lines,
                &[
                    Line("frieze_connections", "{{instance}} connections"),
                    Line("frieze_sessions", "{{instance}} sessions"),
                ],
                "Connections include those of other servers.",
            ),
            panel(
                "Latency, half of the requests",
                "s",
                8,
                Lines,
                &[Line(
                    "histogram_quantile(0.5, sum by (le, kind) (rate(frieze_request_duration_seconds_bucket[R])))",
                    "{{kind}}",
                )],
                "The median, by kind.",
            ),
            panel(
                "Latency, mean",
                "s",
                8,
                Lines,
                &[Line(
                    "sum by (kind) (rate(frieze_request_duration_seconds_sum[R])) / sum by (kind) \
                     (rate(frieze_request_duration_seconds_count[R]))",
                    "{{kind}}",
                )],
                "Time of all requests divided by their number.",
            ),
            panel(
                "Durations of all requests",
                "s",
                8,
                Heat,
                &[Line("sum by (le) (increase(frieze_request_duration_seconds_bucket[R]))", "{{le}}")],
                "A second band above the usual one is a part of the requests that waits for something.",
            ),
        ],
    },
    PanelRow {
        title: "Space: data now and history",
        panels: &[
            panel(
                "Device",
                "bytes",
                8,
                Lines,
                &[
                    Line("frieze_disk_capacity_bytes", "{{instance}} capacity"),
                    Line("frieze_disk_free_bytes", "{{instance}} free"),
                ],
                "What the server may use, and what is free for data without the reserve.",
            ),
            panel(
                "History",
                "bytes",
                8,
                Lines,
                &[
                    Line("frieze_log_bytes", "{{instance}} records"),
                    Line("frieze_forgotten_waiting_bytes", "{{instance}} expired, not reclaimed yet"),
                    Line("frieze_packed_bytes", "{{instance}} in packs"),
                    Line("frieze_unpacked_dead_bytes", "{{instance}} died, not packed yet"),
                ],
                "Bytes of records, history included. Thinning and `frieze forget` make them fewer. `frieze du -sh \
                 --history /` says how much is live.",
            ),
            panel(
                "Growth",
                "Bps",
                8,
                Lines,
                &[Line("deriv(frieze_log_bytes[1h])", "{{instance}}")],
                "Bytes of records that come each second, of the last hour.",
            ),
            panel(
                "Full in",
                "s",
                8,
                Lines,
                &[Line("frieze_disk_free_bytes / (deriv(frieze_log_bytes[6h]) > 0)", "{{instance}}")],
                "Free bytes divided by the growth of the last six hours.",
            ),
            panel(
                "Inodes and records",
                "short",
                8,
                Lines,
                &[Line("frieze_inodes", "{{instance}} inodes"), Line("frieze_records", "{{instance}} records")],
                "Files, directories and links of now; records in the log, history included.",
            ),
            panel(
                "Chains that moved away",
                "bytes",
                8,
                Lines,
                &[
                    Line("frieze_remains_left_bytes", "{{instance}} left"),
                    Line("rate(frieze_remains_freed_bytes_total[R])", "{{instance}} freed a second"),
                    Line("frieze_remains_chains", "{{instance}} chains kept"),
                ],
                "Records of chains whose members are other servers now, and how fast the disk reclaims them.",
            ),
        ],
    },
    PanelRow {
        title: "Chains and replication",
        panels: &[
            panel(
                "Chains of the cluster",
                "short",
                8,
                Lines,
                &[
                    Line("max(frieze_cluster_chains)", "all"),
                    Line("max(frieze_cluster_chains_whole)", "whole"),
                    Line("max(frieze_cluster_chains_waiting)", "waiting for a server"),
                    Line("max(frieze_cluster_copies_missing)", "copies missing"),
                    Line("max(frieze_chains_behind)", "went on from a copy that was behind"),
                ],
                "The servers agree but for moments: the largest number of any.",
            ),
            panel(
                "Servers by state",
                "short",
                8,
                Stacked,
                &[Line("max by (state) (frieze_cluster_nodes)", "{{state}}")],
                "As the servers know it. Without a leader a server that sent no message lately is unknown.",
            ),
            panel(
                "Disks out of their chains",
                "short",
                8,
                Lines,
                &[
                    Line("max by (reason) (frieze_cluster_disks_out)", "{{reason}}"),
                    Line("sum(frieze_chain_failed)", "members whose device accepts no record"),
                ],
                "A disk that is full or failed leaves its chains; the others serve.",
            ),
            panel(
                "Roles",
                "short",
                8,
                Lines,
                &[Line("frieze_chains", "{{instance}} {{role}}")],
                "Chains by the server's role in them: balanced servers have as many heads each.",
            ),
            panel(
                "Catch-up left",
                "bytes",
                8,
                Lines,
                &[
                    Line("frieze_sync_left_bytes", "{{instance}} has to send"),
                    Line("frieze_sync_lacked_bytes", "{{instance}} lacks"),
                ],
                "It falls while a server catches up. It stands still: the alert FriezeCatchUpStuck.",
            ),
            panel(
                "Catch-up rate",
                "Bps",
                8,
                Lines,
                &[
                    Line("rate(frieze_sync_sent_bytes_total[R])", "{{instance}} sends"),
                    Line("frieze_sync_max_bytes_per_second", "{{instance}} limit (0: none)"),
                ],
                "Bytes that servers send for catch-up, beside `sync_bytes_per_s`.",
            ),
            panel(
                "Catch-up, records and chains",
                "short",
                8,
                Lines,
                &[
                    Line("frieze_sync_left_records", "{{instance}} records left"),
                    Line("frieze_sync_chains", "{{instance}} chains"),
                ],
                "Records left to send, and the chains that they belong to.",
            ),
            panel(
                "Uncommitted records, largest ten",
                "bytes",
                8,
                Lines,
                &[Line("topk(10, frieze_chain_dirty_bytes)", "{{instance}} chain {{chain}}")],
                "Bytes that wait for members behind. Near 64 MiB for long: those members do not keep up.",
            ),
            panel(
                "Records of chains",
                "ops",
                8,
                Lines,
                &[
                    Line("sum by (instance) (deriv(frieze_chain_last_record[5m]))", "{{instance}} written"),
                    Line("sum by (instance) (deriv(frieze_chain_clean_record[5m]))", "{{instance}} committed"),
                    Line("sum by (instance) (frieze_chain_dirty_records)", "{{instance}} not committed"),
                ],
                "Written and committed records a second are one line unless a member lags.",
            ),
            panel(
                "Changes of members",
                "short",
                8,
                Lines,
                &[Line("sum by (chain) (changes(frieze_chain_epoch[1h]))", "chain {{chain}}")],
                "New configurations of a chain within an hour: members come, go or are lost.",
            ),
            panel(
                "Chains with fewest members",
                "short",
                8,
                Lines,
                &[Line("bottomk(5, min by (chain) (frieze_chain_members))", "chain {{chain}}")],
                "Members of the chains that have the fewest.",
            ),
            panel(
                "Messages between servers",
                "ops",
                8,
                Lines,
                &[
                    Line("sum by (kind) (rate(frieze_peer_sent_messages_total[R]))", "{{kind}} sent"),
                    Line("sum by (kind) (rate(frieze_peer_received_messages_total[R]))", "{{kind}} received"),
                    Line("sum(rate(frieze_peer_lost_messages_total[R]))", "dropped"),
                ],
                "Dropped: the other server was offline, or its queue was full.",
            ),
            panel(
                "Bytes between servers",
                "Bps",
                8,
                Stacked,
                &[
                    Line("sum by (kind) (rate(frieze_peer_sent_bytes_total[R]))", "{{kind}} sent"),
                    Line("sum by (kind) (rate(frieze_peer_received_bytes_total[R]))", "{{kind}} received"),
                ],
                "Without headers.",
            ),
        ],
    },
    PanelRow {
        title: "Metalog, leases and names",
        panels: &[
            panel(
                "Knows the leader, has a lease",
                "short",
                8,
                Lines,
                &[
                    Line("frieze_metalog_has_leader", "{{instance}} knows a leader"),
                    Line("frieze_lease_held", "{{instance}} may answer for its chains"),
                    Line("frieze_metalog_failed", "{{instance}} cannot write the metalog"),
                ],
                "1 and 1 and 0 in a healthy cluster.",
            ),
            panel(
                "Lease left",
                "s",
                8,
                Lines,
                &[Line("frieze_lease_left_seconds", "{{instance}}")],
                "A lease that nearly ends each time points at a network or a machine that stalls.",
            ),
            panel(
                "Elections",
                "short",
                8,
                Lines,
                &[Line("max(changes(frieze_metalog_term[1h]))", "terms within an hour")],
                "Leaders are lost when it rises often.",
            ),
            panel(
                "Entries not executed yet",
                "short",
                8,
                Lines,
                &[Line("frieze_metalog_last_index - frieze_metalog_applied_index", "{{instance}}")],
                "Changes of names that are in the log of this server and not in its tables.",
            ),
            panel(
                "Voters and learners",
                "short",
                8,
                Lines,
                &[Line("max by (kind) (frieze_metalog_members)", "{{kind}}")],
                "Five voters at most; learners receive every change and do not vote.",
            ),
            panel(
                "Checkpoints of names",
                "short",
                8,
                Lines,
                &[
                    Line("frieze_checkpoint_missing_changes", "{{instance}} changes since"),
                    Line("increase(frieze_checkpoint_failures_total[1h])", "{{instance}} failures within an hour"),
                ],
                "Above a million changes a start takes long.",
            ),
            panel(
                "Age of the checkpoint",
                "s",
                8,
                Lines,
                &[Line("time() - (frieze_checkpoint_timestamp_seconds > 0)", "{{instance}}")],
                "Empty where there is none.",
            ),
            panel(
                "Size of the checkpoint and of names",
                "bytes",
                8,
                Lines,
                &[
                    Line("frieze_checkpoint_bytes", "{{instance}} checkpoint"),
                    Line("frieze_names_bytes", "{{instance}} names in memory"),
                ],
                "Names and inodes, packed.",
            ),
            panel(
                "Names read again",
                "ops",
                8,
                Lines,
                &[Line("rate(frieze_names_loads_total[R])", "{{instance}}")],
                "Pages of cold names a second: when it rises fast, names need more memory (`names_bytes_max`).",
            ),
        ],
    },
    PanelRow {
        title: "Clocks and instants",
        panels: &[
            panel(
                "Error bound of the clock",
                "s",
                8,
                Lines,
                &[Line("frieze_clock_error_seconds", "{{instance}}")],
                "Near `max_clock_offset` the server refuses changes. No line: the kernel names no bound.",
            ),
            panel(
                "Clocks beside the leader's",
                "s",
                8,
                Lines,
                &[Line("frieze_cluster_clock_offset_seconds", "node {{node}}")],
                "At half a second a server leaves its chains.",
            ),
            panel(
                "Stamps ahead of the clock",
                "s",
                8,
                Lines,
                &[
                    Line("frieze_clock_ahead_seconds", "{{instance}} ahead"),
                    Line("frieze_fenced", "{{instance}} refuses changes (1)"),
                ],
                "Another server's clock or an earlier start was ahead; it falls by itself.",
            ),
            panel(
                "Newest instant that can be read",
                "s",
                8,
                Lines,
                &[Line("time() - frieze_stable_timestamp_seconds", "{{instance}}")],
                "Age of the newest instant at which everything is closed.",
            ),
            panel(
                "Newest closed instant of chains",
                "s",
                8,
                Lines,
                &[Line("topk(5, time() - frieze_chain_closed_timestamp_seconds)", "{{instance}} chain {{chain}}")],
                "The five chains that are furthest behind.",
            ),
        ],
    },
    PanelRow {
        title: "Disk: what is durable",
        panels: &[
            panel(
                "Not on stable storage yet",
                "bytes",
                8,
                Lines,
                &[Line("frieze_dirty_bytes", "{{instance}}")],
                "Acknowledged bytes that a loss of power of this server would take. At `dirty_bytes_max` writers wait.",
            ),
            panel(
                "Age of the oldest such byte",
                "s",
                8,
                Lines,
                &[
                    Line("frieze_dirty_age_seconds", "{{instance}}"),
                    Line("time() - frieze_durable_timestamp_seconds", "{{instance}} since the durable instant"),
                ],
                "Above 5 s the disk does not keep up.",
            ),
            panel(
                "Flushes",
                "ops",
                8,
                Lines,
                &[Line("rate(frieze_flushes_total[R])", "{{instance}}")],
                "Flushes of the device log a second.",
            ),
        ],
    },
    PanelRow {
        title: "Memory and processor",
        panels: &[
            panel(
                "Memory",
                "bytes",
                8,
                Lines,
                &[
                    Line("process_resident_memory_bytes", "{{instance}} resident"),
                    Line("frieze_memory_max_bytes", "{{instance}} limit"),
                ],
                "The limit includes copies of files that the kernel keeps.",
            ),
            panel(
                "Parts of the memory",
                "bytes",
                8,
                Lines,
                &[
                    Line("sum by (part) (frieze_memory_part_bytes)", "{{part}}"),
                    Line("sum by (part) (frieze_memory_part_max_bytes)", "{{part}} limit"),
                ],
                "Young and old records, and copies of other files.",
            ),
            panel(
                "Older records found in memory",
                "percentunit",
                8,
                Lines,
                &[Line(
                    "sum by (kind) (rate(frieze_reads_hit_bytes_total[R])) / (sum by (kind) \
                     (rate(frieze_reads_hit_bytes_total[R])) + sum by (kind) \
                     (rate(frieze_reads_missed_bytes_total[R])))",
                    "{{kind}}",
                )],
                "Share of bytes; the rest is read from the disk.",
            ),
            panel(
                "Older records read",
                "Bps",
                8,
                Stacked,
                &[
                    Line("sum by (kind) (rate(frieze_reads_hit_bytes_total[R]))", "{{kind}} from memory"),
                    Line("sum by (kind) (rate(frieze_reads_missed_bytes_total[R]))", "{{kind}} from the disk"),
                ],
                "Bytes a second, by kind of read.",
            ),
            panel(
                "Index of the log",
                "bytes",
                8,
                Lines,
                &[
                    Line("frieze_index_bytes", "{{instance}} in memory"),
                    Line("frieze_index_max_bytes", "{{instance}} limit"),
                    Line("frieze_shelf_bytes", "{{instance}} on disk"),
                ],
                "What does not fit into memory lies on disk, and a read of old instants fetches it.",
            ),
            panel(
                "Processor",
                "short",
                8,
                Lines,
                &[Line("rate(process_cpu_seconds_total[R])", "{{instance}}")],
                "Cores in use.",
            ),
        ],
    },
    PanelRow {
        title: "Damage, scrubs and losses",
        panels: &[
            panel(
                "Damage",
                "short",
                8,
                Lines,
                &[
                    Line("frieze_damaged_places", "{{instance}} places"),
                    Line("increase(frieze_corrupt_reads_total[1h])", "{{instance}} refused reads within an hour"),
                    Line("frieze_gaps", "{{instance}} gaps"),
                ],
                "A gap is an interval of which a loss of power took something.",
            ),
            panel(
                "Scrub under way",
                "percentunit",
                8,
                Lines,
                &[Line("frieze_scrub_done_bytes / (frieze_scrub_all_bytes > 0)", "{{instance}}")],
                "Empty while none runs.",
            ),
            panel(
                "Since the last whole scrub",
                "s",
                8,
                Lines,
                &[Line("time() - (frieze_scrubbed_timestamp_seconds > 0)", "{{instance}}")],
                "Empty before the first has ended.",
            ),
            panel(
                "Uptime",
                "s",
                8,
                Lines,
                &[Line("frieze_uptime_seconds", "{{instance}}")],
                "It falls: the server was restarted.",
            ),
        ],
    },
    PanelRow {
        title: "RDMA",
        panels: &[
            panel(
                "Payloads by one-sided transfers",
                "ops",
                8,
                Lines,
                &[
                    Line("sum by (kind) (rate(frieze_fabric_transfers_total[R]))", "{{kind}}"),
                    Line("sum(rate(frieze_fabric_failures_total[R]))", "failed, went by TCP"),
                ],
                "Empty without a fabric.",
            ),
            panel(
                "Bytes of these transfers",
                "Bps",
                8,
                Lines,
                &[Line("rate(frieze_fabric_bytes_total[R])", "{{instance}}")],
                "The rest of the payloads goes by TCP.",
            ),
            panel(
                "Registered memory",
                "bytes",
                8,
                Lines,
                &[
                    Line("frieze_fabric_registered_bytes", "{{instance}}"),
                    Line("rate(frieze_fabric_registrations_total[R])", "{{instance}} registrations a second"),
                    Line("frieze_fabric_in_use", "{{instance}} in use (1)"),
                ],
                "Registrations that rise with the requests cost as much as a copy.",
            ),
        ],
    },
];

/// Metrics without a panel, and the reason.
pub(super) const LEFT_OUT: &[(&str, &str)] = &[
    ("frieze_packs", "the bytes in packs are drawn, and their number follows"),
    ("frieze_thinning_files_left", "it is above 0 for a moment after each mark; `frieze status` shows it"),
    ("frieze_chain_role", "a text for each chain; `frieze cluster chains` shows it, and frieze_chains counts it"),
];
