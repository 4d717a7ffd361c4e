//! The commands that make loads.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Make loads: as traces, or as calls
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  frieze load messages --scale 1/225          a trace of a 225th of a machine of the Facebook Messages study")]
pub(crate) enum LoadCommand {
    Messages(LoadMessagesArgs),
}

/// Make the load of the Facebook Messages study
///
/// HBase in the small: users visit their mailboxes in sessions; what they put goes to a log and to memstores, memstores
/// become files, files are merged. Its parameters are fitted to the numbers that Harter et al., Analysis of HDFS Under
/// HBase (FAST'14), print; docs/load.md shows which are met.
///
/// Without --out the trace is written to the user's cache, and its directory is all that is printed. The same scale,
/// days and seed make the same trace.
///
/// With --against the calls are made in a directory, such as one of a mount, at --speed times the pace of the load.
/// Files that the load finds there are made first, as far as it reads them. Bytes come from the seed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze load messages                                      a 225th of one machine, 8.3 days: 1.4 million events
  frieze load messages --scale 1/225 | frieze what-if -     what other hardware would do with it
  frieze load messages --scale 1/15 --days 1 --out trace/   one disk of fifteen, one day
  frieze load messages --compare                            its numbers beside those of the study
  frieze load messages --against /mnt/f --speed 100 --seconds 30

JSON: trace (the directory), events, days, scale, seed, regions, slice; with --compare one line a number: name, about,
model, paper, tolerance, source, met; with --against: directory, calls, read, written, seconds, behind_ms, prepared.")]
pub(crate) struct LoadMessagesArgs {
    /// Part of one machine: 1/15 is one disk of its fifteen. From 1/100000 up to 1; a whole machine and 8.3 days are
    /// 320 million events.
    #[arg(long, value_name = "PART", default_value = "1/225", allow_negative_numbers = true)]
    pub(crate) scale: String,

    /// Days of the load; above 0 and at most 366.
    #[arg(long, value_name = "DAYS", default_value_t = 8.3)]
    pub(crate) days: f64,

    /// Seed of the random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Parameters other than the fitted ones (TOML, as crates/load/messages.toml).
    #[arg(long, value_name = "FILE")]
    pub(crate) parameters: Option<PathBuf>,

    /// Directory of the trace: empty, or not there [default: one in the user's cache].
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["against", "compare"])]
    pub(crate) out: Option<PathBuf>,

    /// Write no trace: print the numbers of the load beside those of the study.
    #[arg(long, conflicts_with = "against")]
    pub(crate) compare: bool,

    /// Make the calls in this directory instead; what it makes there stays.
    #[arg(long, value_name = "DIR")]
    pub(crate) against: Option<PathBuf>,

    /// How many seconds of the load go by in one second; above 0 and at most 1000000.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "against")]
    pub(crate) speed: f64,

    /// Stop after so many seconds; at most 86400.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, requires = "against")]
    pub(crate) seconds: f64,
}
