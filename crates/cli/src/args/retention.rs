//! `retention`: which instants of the past are kept.

use std::ffi::OsString;

use clap::{Args, Subcommand};

/// Show and set which instants of the past are kept.
///
/// Everything is kept for ever, unless a policy says otherwise. A policy keeps every instant of young history and, of
/// older history, one instant of each period: 'all 1h, 1/min 1d, 1/day 1y' keeps every instant of the last hour, one a
/// minute of the last day, one a day of the last year, and nothing older but the present and what snapshots name.
///
/// A period is one of s, 5s, 15s, 30s, min, 5min, 15min, 30min, h, 2h, 6h, 12h, day, week, 4w and 52w. They lie on one
/// grid in UTC, so the instants of a coarse period are those of every finer one, too: a whole tree can be read at them,
/// whatever policies its files have. An age is in s, min, h, d, w or y, or 'forever'.
///
/// An instant that is not kept is refused, with the kept instants on both sides. Of a file that was only appended to
/// between them every instant stays. The bytes that no kept instant shows are freed. Directories keep all their names.
/// What snapshots, clones and restored files show stays, and a deleted file keeps its last state until 'frieze forget'
/// takes it. Files with a time plug-in keep everything.
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  frieze retention preview 'all 1h, 1/min 1d, 1/day 1y' /sensors
  frieze retention set 'all 1h, 1/min 1d, 1/day 1y' /sensors
  frieze retention show /sensors
  frieze retention show /sensors/t1.csv --at yesterday      is that instant exact?
  frieze retention set 'all forever' /sensors               from now on nothing more goes")]
pub(crate) enum RetentionCommand {
    Set(RetentionSetArgs),
    Show(RetentionShowArgs),
    Preview(RetentionPreviewArgs),
}

/// Give files, or directories with all that is below them, a policy.
///
/// One change for the whole tree. What is made in a directory later has its policy, and a file keeps its policy where
/// it is moved. Only the owner of all of it, or root. What an earlier policy has let go does not come back.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze retention set 'all 1h, 1/min 1d, 1/day 1y' /sensors
  frieze retention set 'all 90d' / --dry-run
  frieze retention set 'all forever' /sensors               from now on nothing more goes

JSON: one line a path: path, policy, changed (files and directories that had another policy), at, at_time (null for a
dry run, or if nothing changed).")]
pub(crate) struct RetentionSetArgs {
    /// The policy: 'all AGE', then '1/PERIOD AGE' for each class, with commas between.
    #[arg(value_name = "POLICY")]
    pub(crate) policy: String,

    /// Files or directories.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,

    /// Only say how many files would get another policy.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// Print the policy, and how far it was applied.
///
/// With `--at`, says of an instant whether the state at it is known exactly, and which kept instants lie beside it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze retention show /sensors
  frieze retention show /sensors/t1.csv --at 2026-11-21T10:00:00Z

JSON: one line a path: path, policy (null: everything for ever), classes (a list of period, below, below_time: before
that instant only each period's is kept, 'none' for no instant), as_of, and with --at: at, at_time, exact, before,
before_time, after, after_time (before is null if nothing older is kept).")]
pub(crate) struct RetentionShowArgs {
    /// Files or directories.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,

    /// Is this instant exact ('frieze --help' lists the forms)?
    #[arg(long, value_name = "INSTANT")]
    pub(crate) at: Option<String>,
}

/// Say what a policy would keep, before it is set.
///
/// Counts the writes and bytes that each class of the policy would keep of the files that are there now, and those that
/// no kept instant would show, as if all its marks were due now. Of a cluster, what the server that is asked has.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze retention preview 'all 1h, 1/min 1d, 1/day 1y' /sensors

JSON: one line a path: path, policy, files, classes (a list of period, below, below_time, writes, bytes), freed_writes,
freed_bytes.")]
pub(crate) struct RetentionPreviewArgs {
    /// The policy, as for 'frieze retention set'.
    #[arg(value_name = "POLICY")]
    pub(crate) policy: String,

    /// Files or directories.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,
}
