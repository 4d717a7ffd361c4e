//! Instants and the time of the data: `now`, `snapshot` and `time`.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use super::PastArgs;

/// Print an exact instant to keep.
///
/// Prints the server's present as an exact stamp: a read at it holds everything that was done before the question, and
/// gives the same answer for ever. With `--at` it prints the exact stamp of another instant.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  t=$(frieze now); ...; frieze cat /report.txt --at $t
  frieze now --at 5m-ago
  frieze now -v                      with its time and precision on stderr

JSON: at, at_time, precision_us (null: unknown), earliest, earliest_time, stable, stable_time.")]
pub(crate) struct NowArgs {
    /// The instant to make exact, instead of the present.
    #[arg(long, value_name = "INSTANT")]
    pub(crate) at: Option<String>,
}

/// Name instants, and see and delete such names.
///
/// A snapshot is a name for an instant: it copies nothing, takes no time, and keeps the history of that instant. Every
/// instant can be read without one.
///
/// It keeps from `frieze forget` what belongs to the user that made it, and everything if that is root.
/// `frieze forget --with-snapshots` by the owner of a path, or by root, overrides snapshots. A user may have 1,000 of
/// them, unless the server's settings give another number (`snapshots_per_user_max`); the user that made a snapshot may
/// delete it, and root.
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  frieze snapshot create before-upgrade
  frieze snapshot create monday --at 2026-11-16T09:00:00Z
  frieze ls / --at before-upgrade
  frieze snapshot list
  frieze snapshot delete monday")]
pub(crate) enum SnapshotCommand {
    /// Name an instant, by default now.
    #[command(after_long_help = "\
Examples:
  frieze snapshot create before-upgrade
  frieze snapshot create monday --at 2026-11-16T09:00:00Z

JSON: name, at, at_time.")]
    Create {
        /// Name: no '/', and nothing that could be an instant (it may not begin with a digit, '@' or 'hlc-').
        name: String,
        /// The instant to name.
        #[arg(long, value_name = "INSTANT")]
        at: Option<String>,
    },
    /// List the named instants with their age, the bytes they hold back, and their users
    ///
    /// HELD is what was live at the instant and has been overwritten, cut off or deleted since: the history that
    /// reading the instant needs. Two snapshots may hold the same bytes. A `+` means that only the first 20,000 changed
    /// files were counted.
    #[command(visible_alias = "ls")]
    #[command(after_long_help = "\
JSON: one line a snapshot: name, at, at_time, made, made_time, uid, user, age_ms, bytes_held, held_at_least.")]
    List,
    /// Forget names. The instants stay readable as long as their history is kept.
    #[command(visible_alias = "rm")]
    #[command(after_long_help = "\
Example:
  frieze snapshot delete monday

JSON: one line a name: deleted.")]
    Delete {
        /// Names.
        #[arg(required = true)]
        names: Vec<String>,
    },
}

/// Bind a time plug-in, which reads the data's own time
///
/// A time plug-in reads the time of the data out of the data. It is bound to a directory; files and directories made in
/// it from then on inherit it, and `--user-at TIME` cuts such a file at that time of its data. With `binary:size=N`
/// every N bytes are one record, with `csv` and `jsonl` one line is one row, in whatever writes they come; with `json`,
/// and `binary` without a size, one write is one record. A record whose time runs backwards is refused, with its offset
/// (on a mount EINVAL, and `getfattr -n user.frieze.refused FILE` shows the reason); late rows go into a file of their
/// own, and `--at` shows when each was known.
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  frieze time bind /sensors 'binary:offset=0,width=8,size=24,unit=us'
  frieze time bind /events  'json:/meta/time'
  frieze time bind /flights 'csv:event_time'
  frieze time bind /logs    'jsonl:/ts,unit=ms'
  frieze time show /sensors
  frieze cat /sensors/a.bin --user-at 2026-11-21T10:00:00Z")]
pub(crate) enum TimeCommand {
    /// Bind a time plug-in to a directory.
    #[command(after_long_help = "\
SPEC is one of
  binary:offset=N,width=1|2|4|8,order=little|big,signed=true|false,size=N|any,epoch=unix,unit=s|ms|us|ns
                                     an integer in each record of size=N bytes, of which a write holds any number;
                                     with size=any each write is one record, and without a size each of less than 4 KiB
  json:POINTER[,unit=s|ms|us|ns]     an RFC 3339 text, or a number with its unit, at a JSON pointer such as /meta/time
  csv:COLUMN[,header=true|false][,delimiter=comma|semicolon|tab|pipe][,unit=s|ms|us|ns]
                                     a column, by the name that the first line gives it, or counted from 1
  jsonl:POINTER[,unit=s|ms|us|ns]    one JSON document a line
Numbers may have a fraction and an exponent; digits beyond the nanosecond are dropped.
With zone=utc a text without a zone is in UTC; without it, it is refused. Every unit counts from 1970, or from
epoch=gps|j2000|windows|ntp.

JSON: path, time_plugin.")]
    Bind {
        /// Directory.
        #[arg(value_name = "DIR")]
        path: OsString,
        /// The plug-in and its settings.
        #[arg(value_name = "SPEC")]
        spec: String,
    },
    /// Take a binding from a directory. Files made under it keep it.
    #[command(after_long_help = "\
JSON: path, time_plugin (null).")]
    Unbind {
        /// Directory.
        #[arg(value_name = "DIR")]
        path: OsString,
    },
    /// Show the plug-in of a file, or of new files of a directory.
    #[command(after_long_help = "\
JSON: one line a path: path, time_plugin (null if there is none).")]
    Show {
        /// Files or directories.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<OsString>,
        #[command(flatten)]
        past: PastArgs,
    },
}
