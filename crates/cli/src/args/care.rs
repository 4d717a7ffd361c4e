//! `scrub` and `fsck`.

use std::path::PathBuf;

use clap::Args;

/// Read everything stored and name what is damaged.
///
/// The server reads all of its history as it lies on the disk, compares it with its checksums, and serves on meanwhile: it
/// keeps to a rate, and takes a quarter of its time at most while others are served. Damage is named by file, range of bytes
/// and the instants at which they show. Such bytes are never given out: reading them fails, and nothing else does. What is
/// damaged now stays known, and `frieze status` says so, until a later scrub finds it whole.
///
/// This command waits and shows how far the server is. If it ends before, the scrub goes on; a restart of the server does not
/// end it either. Only root, and the user that the server runs as, may scrub. Exits with 1 if anything is damaged.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze scrub                       read everything, at most 64 MiB a second
  frieze scrub --rate 500            faster
  frieze scrub --background          begin, and do not wait
  frieze scrub --status              how far it is, and what is damaged
  frieze scrub --stop

A file that is damaged comes back by writing it again, or from an instant at which the bytes were others: 'frieze restore'.

JSON: state (never, running, stopped, finished), started, started_time, ended, ended_time, done_bytes, all_bytes, records,
bytes_per_s, finished, finished_time, damaged, trouble, findings (a list of kind (data, header, segment_header, footer,
records), path, deleted, deleted_time, inode, start, end, from, from_time, until, until_time, segment, at, len, found,
found_time, unread).")]
pub(crate) struct Scrub {
    /// MiB a second at most [default: as the server is set, 64].
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,

    /// Begin and do not wait.
    #[arg(long, conflicts_with_all = ["status", "stop"])]
    pub(crate) background: bool,

    /// Only say how far it is and what is damaged.
    #[arg(long, conflicts_with_all = ["stop", "rate"])]
    pub(crate) status: bool,

    /// End the scrub that is under way; what it found stays known.
    #[arg(long, conflicts_with = "rate")]
    pub(crate) stop: bool,
}

/// Check the directory of a server that does not run.
///
/// Does what a server does at its start, in memory; then reads every byte stored and compares it with its checksums, reads
/// every version of every name and inode, and compares names, inodes and writes with each other. It changes nothing, and
/// keeps servers away while it runs. A directory that a crash left, with torn ends and a gap, is in order.
///
/// Nothing is mended: there is one copy of everything. A server serves all that is whole, and refuses what is damaged.
///
/// Exits with 0 if nothing is wrong, 1 if something is, 2 if it could not look: the directory is in use, is not there, or is
/// none of a server's.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze fsck /srv/frieze
  frieze fsck /srv/frieze --json | jq .wrong

JSON: clean, found, wrong (a list of sentences), wrong_more, notes, inodes, names, versions, bytes, records, damaged, findings
(as 'frieze scrub' has them).")]
pub(crate) struct Fsck {
    /// Data directory of the server.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}
