//! `clone`, `restore`, `undo` and `forget`.

use std::ffi::OsString;

use clap::Args;
use frieze_client::SessionName;

/// Copy a file or a tree without copying a byte.
///
/// TARGET starts with the content of SOURCE, now or at an instant, and shares its bytes; later changes of one do not
/// affect the other. A clone of a terabyte takes as long as one of an empty file. If TARGET is an existing directory,
/// the clone goes into it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze clone /data /experiment
  frieze clone /report.txt /report-of-monday.txt --at 2026-11-16T09:00:00Z
  frieze clone /deleted /recovered --at yesterday

JSON: one line for each thing made (action, path, len), then: stamp, time, at, count, left, dry_run,
refused (why the real run would be refused; null if it would not).")]
pub(crate) struct CloneTreeArgs {
    /// The file or tree to copy.
    #[arg(value_name = "SOURCE")]
    pub(crate) source: OsString,

    /// The name to make.
    #[arg(value_name = "TARGET")]
    pub(crate) target: OsString,

    /// As SOURCE was at this instant.
    #[arg(long, value_name = "INSTANT")]
    pub(crate) at: Option<String>,

    /// Only show what would be made.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// Restore a file or a tree to its state at an instant
///
/// It is a change at now, all at once: what it replaces stays readable at the instants before, and a restore to just
/// before undoes it. Only differences are touched. Names made since stay, unless --delete is given; deleted or renamed
/// objects come back; an object that was moved out of PATH stays where it is, and PATH gets a copy that shares its
/// bytes.
///
/// PATH may be deleted: then it is the path of then, in an existing directory.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze restore /project --to 1h-ago --dry-run
  frieze restore /project --to 1h-ago
  frieze restore /project/report.txt --to before-upgrade
  frieze restore /project --to 1h-ago --delete        exactly as it was, later names removed

The exit status is 1 if something was left as it is.

JSON: one line for each change (action, path, inode, offset, len, words; of a copy, lives_at: where the original is
now), then: stamp, time, at, count, left, dry_run,
refused (why the real run would be refused; null if it would not).")]
pub(crate) struct RestoreArgs {
    /// The file or directory.
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,

    /// The instant to go back to.
    #[arg(long, value_name = "INSTANT")]
    pub(crate) to: String,

    /// Names made since go.
    #[arg(long)]
    pub(crate) delete: bool,

    /// Only show what would change.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// Undo the changes of a session or a user
///
/// It works unit by unit: a name, an attribute, a length, a range of bytes. If the newest version is theirs, the newest
/// by any other session comes back. Later changes by others are left, and so is what they depend on, such as files in a
/// directory that the session made: both are listed as `left`. All of it is one change at now; undoing the undo gives
/// the state before it.
///
/// `frieze log` and `frieze sessions` show which session made which change.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze undo --session 7032512947716751360 --dry-run
  frieze undo --session 7032512947716751360
  frieze undo --session turn-12                      by the name that 'frieze run --name' gave it
  frieze undo --user alice --from 10m-ago --path /project
  frieze undo --from 10m-ago --to 5m-ago --path /project     everything done in these five minutes

The exit status is 1 if something was left as it is.

JSON: one line for each change (action, path, inode, offset, len, words, newest, older), then: stamp, time, at,
count, left, dry_run,
refused (why the real run would be refused; null if it would not).")]
pub(crate) struct UndoArgs {
    /// Sessions to undo: numbers, as `frieze log` shows them, or names ('frieze run --name'); may be given several
    /// times. A name that several sessions have is refused with their numbers.
    #[arg(long = "session", value_name = "SESSION", value_parser = session)]
    pub(crate) sessions: Vec<SessionArg>,

    /// The user to undo: name or number.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,

    /// Only objects that are, or were in between, at or below this file or directory; it may be deleted.
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub(crate) path: OsString,

    /// Only changes after this instant.
    #[arg(long, value_name = "INSTANT")]
    pub(crate) from: Option<String>,

    /// Only changes up to this instant.
    #[arg(long, value_name = "INSTANT")]
    pub(crate) to: Option<String>,

    /// Only show what would change.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// A session by its number or its name.
#[derive(Clone, Debug)]
pub(crate) enum SessionArg {
    Number(u64),
    Name(SessionName),
}

fn session(text: &str) -> Result<SessionArg, String> {
    if let Ok(number) = text.parse() {
        return Ok(SessionArg::Number(number));
    }
    let named = text.parse().map(SessionArg::Name);
    named.map_err(|error| format!("{error}; `frieze sessions` lists numbers and names"))
}

/// Forget the history of a file or a tree before an instant, to free space
///
/// The state of PATH at INSTANT and since stays. What only earlier instants show is lost for good: overwritten or
/// truncated bytes, and deleted files. Reading PATH before INSTANT is refused from then on. Clones and restored files
/// keep their bytes.
///
/// Snapshots of earlier instants hold back what they show until they are deleted: a snapshot of root's everything, one
/// of another user's what belongs to that user, and the directories on the way to it. The answer names the snapshots
/// that hold something back, and those that show less from now on. With --with-snapshots none holds anything back: each
/// continues to show the rest.
///
/// PATH includes what lay below it at INSTANT. Only the owner of PATH and root may forget, and only root the files of
/// others. The command lines of sessions all of whose changes are forgotten are forgotten too. It works on a full disk.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze du --history /                               where history is
  frieze forget --before 7d-ago /build --dry-run      what would go
  frieze forget --before 7d-ago /build
  frieze forget --before before-upgrade /data/db.log
  frieze forget --before now --with-snapshots /hr/gone.txt

JSON: one line for each of the files that give up most (path, bytes, writes, deleted), then: stamp, time, before,
before_time, files, deleted_files, writes, bytes, freed_bytes, waiting_bytes, held_bytes, snapshots (the names of \
those that hold
some of it back), shown_by (of each snapshot that showed some of it: name, at, uid, user, holds, loses, held_bytes), \
more_snapshots,
sessions, left, open, trouble, dry_run.")]
pub(crate) struct ForgetArgs {
    /// The file or directory; a deleted one is named as it was at INSTANT.
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,

    /// The earliest instant to keep.
    #[arg(long, value_name = "INSTANT")]
    pub(crate) before: String,

    /// Override snapshots of every user: they lose it, and continue to show the rest.
    #[arg(long)]
    pub(crate) with_snapshots: bool,

    /// Only show what would be forgotten, or why nothing may be.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}
