//! The commands about traces.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Look at what programs did with the file system
///
/// With `--trace-ring SIZE` (or `FRIEZE_TRACE_RING`) `frieze mount`, `frieze serve` for its Hadoop clients, and every
/// other command record each call that they serve: what, when, how long, which file, which bytes. Never what is in a
/// file. The newest calls stay in a file of that size, 64 bytes each, readable while the program runs and after it was
/// killed.
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  frieze mount /mnt/f --trace-ring 256M       record four million calls, the newest
  frieze trace list                           the rings of this user
  frieze trace summary                        what was called, how often, how long it took, which files
  FRIEZE_TRACE_RING=16M frieze get -r /data . record one command")]
pub(crate) enum TraceCommand {
    List(TraceListArgs),
    Summary(TraceSummaryArgs),
}

/// List the rings that programs have recorded
///
/// A ring stays when its program has ended; the newest eight of ended programs are kept.
#[derive(Debug, Args)]
#[command(after_long_help = "\
JSON: one line a ring: ring, program, pid, running, events, overwritten, torn, first, last.")]
pub(crate) struct TraceListArgs {}

/// Summarize rings: calls, bytes, times, the files with most bytes
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze trace summary                        all rings of this user
  frieze trace summary mount-4711-1.ring      one of them
  frieze trace summary --top 50 --json | jq .files

JSON: rings, events, overwritten, torn, unknown, first, last, calls (a list of gateway, call, count, failed, bytes,
p50_ns, p90_ns, p99_ns, max_ns), files (a list of inode, path, read, written).")]
pub(crate) struct TraceSummaryArgs {
    /// Ring files, or names in the directory of the rings [default: all in it].
    #[arg(value_name = "RING")]
    pub(crate) rings: Vec<PathBuf>,

    /// Files with most bytes to name.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) top: usize,
}
