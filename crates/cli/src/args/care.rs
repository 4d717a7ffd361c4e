//! `scrub`, `fsck` and `export`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Read everything stored and name the damage
///
/// The server reads all of its history as it lies on the disk, compares it with its checksums, and continues to serve:
/// it keeps to a rate, and takes a quarter of its time at most while requests are served. Damage is named by file,
/// range of bytes and the instants that show them. Damaged bytes are never returned: reading them fails, and nothing
/// else does. Damage stays known, and `frieze status` shows it, until a later scrub finds the bytes good.
///
/// This command waits and shows the server's progress. If the command ends before, the scrub continues; a restart of
/// the server does not end it either. Only root, and the user that the server runs as, may scrub. Exits with 1 if
/// anything is damaged.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze scrub                       read everything, at most 64 MiB a second
  frieze scrub --rate 500            faster
  frieze scrub --background          begin, and do not wait
  frieze scrub --status              how far it is, and what is damaged
  frieze scrub --stop

A file that is damaged comes back by writing it again, or from an instant at which the bytes were others: 'frieze \
restore'.

JSON: state (never, running, stopped, finished), started, started_time, ended, ended_time, done_bytes, all_bytes, \
records,
bytes_per_s, finished, finished_time, damaged, trouble, findings (a list of kind (data, header, segment_header, footer,
records), path, deleted, deleted_time, inode, start, end, from, from_time, until, until_time, segment, at, len, found,
found_time, unread).")]
pub(crate) struct ScrubArgs {
    /// MiB a second at most [default: as the server is set, 64].
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,

    /// Begin and do not wait.
    #[arg(long, conflicts_with_all = ["status", "stop"])]
    pub(crate) background: bool,

    /// Only show the progress and the damage.
    #[arg(long, conflicts_with_all = ["stop", "rate"])]
    pub(crate) status: bool,

    /// End the scrub that is under way; its findings stay known.
    #[arg(long, conflicts_with = "rate")]
    pub(crate) stop: bool,
}

/// Check the directory of a server that does not run.
///
/// Does what a server does at its start, in memory; then reads every byte stored and compares it with its checksums,
/// reads every version of every name and inode, and compares names, inodes and writes with each other. It changes
/// nothing, and keeps servers off the directory while it runs. A directory after a crash, with torn ends and a gap, is
/// in order.
///
/// Nothing is repaired here. A server serves all good data, and refuses damaged data; in a cluster other servers have
/// copies of it.
///
/// Exits with 0 if nothing is wrong, 1 if something is, 2 if it could not look: the directory is in use, is not there,
/// or is none of a server's.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze fsck /srv/frieze
  frieze fsck /srv/frieze --json | jq .wrong

JSON: clean, found, wrong (a list of sentences), wrong_more, notes, inodes, names, versions, bytes, records, damaged, \
findings
(as 'frieze scrub' has them).")]
pub(crate) struct FsckArgs {
    /// Data directory of the server.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

/// Read files out of the directory of a server that does not run, now or at an instant.
///
/// Writes them as a tar to standard output, or to a file (--output), or makes them below a directory (--to): names,
/// modes, owners, times, symbolic and hard links, extended attributes. Nothing in DIR is changed, and no server starts
/// on it meanwhile. PATH is in the file system: everything, unless it is named; names in the tar begin with the last
/// part of it. Nothing that is there is overwritten.
///
/// It needs no server and no cluster: DIR may be that of a single server, of a member of a cluster whose other servers
/// are lost, or of a removed server. For a member it shows what that server has, changes that it does not know to be
/// committed included, and prints the instant up to which it can vouch for everything.
///
/// Data that is damaged, has no copy in DIR or only an old one, or lies in a gap is named, one line each, and the exit
/// status is 1 then; the rest is exported, with zeros in place of unreadable bytes. 2: the check could not run.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze export /srv/frieze >all.tar
  frieze export /srv/frieze /reports --output reports.tar --at yesterday
  frieze export /srv/frieze /reports --to /restored       /restored/reports
  frieze export /srv/frieze --list                        what is there

JSON: with --list one line a name: path, inode, kind, mode, uid, gid, size, mtime_ns, links, target. Else one \
document: at, at_time
(null: the newest there is), files, directories, links, others, bytes, wrong (a list of path, start, end, why), \
wrong_more, notes, and
of a member of a cluster: node, whole (up to this instant everything is there), kept (changes not known to be \
committed), chains,
lacking (a list of chain, copy (stale, none), whole).")]
pub(crate) struct ExportArgs {
    /// Data directory of the server.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// The file or directory to read, in the file system.
    #[arg(value_name = "PATH", default_value = "/")]
    pub(crate) path: OsString,

    /// Read as of this instant ('frieze --help' lists the forms).
    #[arg(long, value_name = "INSTANT")]
    pub(crate) at: Option<String>,

    /// Make the files below this directory, which is empty, or made.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "list"])]
    pub(crate) to: Option<PathBuf>,

    /// Write the tar to this file, which is made.
    #[arg(short, long, value_name = "FILE", conflicts_with = "list")]
    pub(crate) output: Option<PathBuf>,

    /// Only list it.
    #[arg(long)]
    pub(crate) list: bool,
}
