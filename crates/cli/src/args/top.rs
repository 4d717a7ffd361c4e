//! `frieze top`.

use clap::Args;

/// Watch a server or a cluster live.
///
/// Shows on the terminal, each second: rates and latencies by operation, bytes in and out, space for data and for
/// history, chains, clocks, and each server. Where standard output is no terminal it prints one sample and ends.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze top                                     the servers of the cluster of 127.0.0.1:7470
  frieze --server db1:7470 top
  frieze top --metrics 127.0.0.1:9471            a server whose metrics are at another port than 9470
  frieze top --once                              one sample, for people
  frieze top --once --json | jq .operations
  frieze top --json --interval 10                a line of JSON each ten seconds

Keys: q quit, left and right or s sort by the next column, r turn the order, up and down scroll, tab the other table,
space pause, ? help.

Rates by operation come from the metrics of the servers ('frieze serve --metrics 9470', or 'db1:9470' for other
machines); without them everything else is shown. Of sessions a server tells only the number.

JSON: time, server, cluster, leader, healthy, troubles (a list of what, remedy), interval_s, requests_per_s, \
refused_per_s, received_bytes_per_s, sent_bytes_per_s, operations (a list of kind, per_s, refused_per_s, \
received_bytes_per_s, sent_bytes_per_s, mean_s, p50_s, p99_s, count), space (capacity_bytes, free_bytes, \
live_bytes, records_bytes), chains (count, whole, waiting, catch_up_bytes, uncommitted_bytes), servers (a list \
of name, address, state, leads, metrics, trouble, uptime_s, requests_per_s, p99_s, cpu, resident_bytes, \
memory_max_bytes, capacity_bytes, free_bytes, records_bytes, dirty_bytes, dirty_age_s, connections, sessions, \
clock_error_s, clock_ahead_s, clock_offset_s, heads, chains, lease_left_s). What is not known is null.")]
pub(crate) struct TopArgs {
    /// Where the servers export metrics: HOST:PORT of each [default: port 9470 of the host of each server].
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',')]
    pub(crate) metrics: Vec<String>,

    /// Print one sample and end: for scripts, and for terminals that cannot be drawn on.
    #[arg(long)]
    pub(crate) once: bool,

    /// Seconds between two samples.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) interval: f64,
}
