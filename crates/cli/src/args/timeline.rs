//! The commands about time itself.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use frieze_client::SessionName;

/// Show the changes of a file or directory, and their sessions
///
/// For a file it prints one line for each version: when, its exact stamp (any of them can be given to `--at`), offset
/// and length, the user, and session, host and program of the change. Host and program are shown to the user of the
/// session and to administrators. For a directory it prints the events of the names in it (made, removed, renamed,
/// written); with `-R` in everything below. The newest comes first; with `--reverse` the oldest does. A deleted path is
/// looked up in the past: the newest instant at which it existed is found and printed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze log /report.txt
  frieze log /reports --from 1h-ago
  frieze log -R / --from yesterday --to 1h-ago
  frieze log -R / -n 20                   the last twenty things that happened
  frieze log -R /src --from now --follow  what happens from now on, until it is interrupted
  frieze log /deleted.txt                 finds when it last existed, and its removal
  frieze cat /report.txt --at $(frieze log --json /report.txt | jq -r 'select(.kind == \"write\") | .stamp' | tail -1)

JSON, of a file: one line a version: stamp, time, kind (write, make, truncate, set-attr, named, unnamed, punch),
user_time, session, session_name, uid, user, host, command, offset, len, name.
JSON, of a directory: one line an event: stamp, time, change (added, removed, renamed, modified), what (a list of \
content,
mode, owner, times, xattrs, acl, replaced), path, before and after (path, inode, kind, mode, uid, gid, size, mtime, \
made),
spans (offset, len), more_spans, session, session_name, uid, user, host, command.")]
pub(crate) struct LogArgs {
    /// The file or directory.
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,

    /// An instant at which PATH named the file.
    #[arg(long, value_name = "INSTANT")]
    pub(crate) at: Option<String>,

    /// Only events after this instant.
    #[arg(long, value_name = "INSTANT")]
    pub(crate) from: Option<String>,

    /// Only events up to this instant.
    #[arg(long, value_name = "INSTANT")]
    pub(crate) to: Option<String>,

    /// Everything below a directory, too.
    #[arg(short = 'R', short_alias = 'r', long)]
    pub(crate) recursive: bool,

    /// At most this many lines: the newest, with `--reverse` the oldest.
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(crate) limit: Option<u64>,

    /// The oldest first.
    #[arg(long)]
    pub(crate) reverse: bool,

    /// Continue with new events, the oldest first, until it is interrupted. With `--limit`, so many of the newest lines
    /// come before.
    #[arg(short = 'f', long, conflicts_with_all = ["to", "at", "reverse"])]
    pub(crate) follow: bool,

    /// Command lines of sessions whole, instead of the program's name.
    #[arg(long)]
    pub(crate) full: bool,

    #[command(flatten)]
    pub(crate) old: OldIntervals,
}

/// Intervals in their former spelling: accepted only to be refused with the present one.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct OldIntervals {
    #[arg(long, hide = true, value_name = "INSTANT")]
    pub(crate) since: Option<String>,
    #[arg(long, hide = true, value_name = "INSTANT")]
    pub(crate) until: Option<String>,
    #[arg(long, hide = true, value_name = "INSTANT")]
    pub(crate) changed_since: Option<String>,
    #[arg(long, hide = true, value_name = "INSTANT", num_args = 2)]
    pub(crate) changed_between: Vec<String>,
}

/// Show the differences between two instants
///
/// Prints one line for each name below PATH that differs between the first and the second instant: A added, D deleted,
/// R renamed, M modified, and what was modified: bytes, mode, owner, times, extended attributes. It reads the changes
/// in between, not the tree. A file that was written with the bytes it had already counts as modified unless `--exact`
/// is given. For a single file it prints the bytes that differ.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze diff / --from 1h-ago
  frieze diff /src --from before-upgrade --to after-upgrade
  frieze diff /etc --from yesterday --text        the lines that changed, as patch(1) reads them
  frieze diff /disk.img --from 5m-ago             the ranges of bytes that changed

JSON: one line a difference: change (added, removed, renamed, modified), what (a list of content, mode, owner, times,
xattrs, acl, replaced), path, before and after (path, inode, kind, mode, uid, gid, size, mtime, made), spans (offset, \
len),
more_spans, stamp, time, session, session_name, uid, user, host, command (of the newest change); with --text: text.")]
pub(crate) struct DiffArgs {
    /// File or directory, as named at either instant.
    #[arg(value_name = "PATH", default_value = "/")]
    pub(crate) path: OsString,

    /// The first instant.
    #[arg(long, value_name = "INSTANT")]
    pub(crate) from: String,

    /// The second instant, by default now.
    #[arg(long, value_name = "INSTANT")]
    pub(crate) to: Option<String>,

    /// Show the lines that differ of files that are text at both instants.
    #[arg(short, long)]
    pub(crate) text: bool,

    /// Compare the bytes of files that were written, and leave out those that hold the same.
    #[arg(short, long)]
    pub(crate) exact: bool,

    /// Show the session of the last change, and its time.
    #[arg(short, long)]
    pub(crate) by: bool,

    /// Command lines of sessions whole, instead of the program's name.
    #[arg(long)]
    pub(crate) full: bool,
}

/// Find names by when they changed.
///
/// Prints the path of everything below PATH that differs between the first and the second instant, one a line. The
/// server reads the changes in between, not the tree.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze find / --from 2h-ago --to 1h-ago
  frieze find /src --from yesterday --added
  frieze find / --from 10m-ago --modified -0 | xargs -0 -n1 echo
  frieze find / --from 10m-ago --removed --json | jq -r .path

JSON: one line a name: the fields of 'frieze diff --json'.")]
pub(crate) struct FindArgs {
    /// Files or directories, as named at either instant.
    #[arg(value_name = "PATH", default_value = "/")]
    pub(crate) paths: Vec<OsString>,

    /// Changed after this instant.
    #[arg(long, value_name = "INSTANT")]
    pub(crate) from: Option<String>,

    /// And not after this one, by default now.
    #[arg(long, value_name = "INSTANT", requires = "from")]
    pub(crate) to: Option<String>,

    /// End each path with a zero byte instead of a line break, and print it as it is: for xargs -0.
    #[arg(short = '0', long, conflicts_with = "json")]
    pub(crate) null: bool,

    /// Only added names.
    #[arg(long)]
    pub(crate) added: bool,

    /// Only removed names, with the path of the first instant.
    #[arg(long)]
    pub(crate) removed: bool,

    /// Only renamed names.
    #[arg(long)]
    pub(crate) renamed: bool,

    /// Only modified files.
    #[arg(long)]
    pub(crate) modified: bool,

    /// Command lines of sessions whole, instead of the program's name.
    #[arg(long)]
    pub(crate) full: bool,

    #[command(flatten)]
    pub(crate) old: OldIntervals,
}

/// List the sessions of clients
///
/// A session is one mount, one program or one run of a command. Every change carries its session, so `frieze log` can
/// name it. Sessions that have ended are listed too, oldest first; `frieze forget` of all that a session changed
/// forgets its command line and host too.
///
/// HOST and COMMAND are shown to the user of the session and to administrators (root, and the user that the server runs
/// as): command lines contain passwords. COMMAND is the name of the program unless `--full` is given.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze sessions
  frieze sessions --from 1d-ago
  frieze sessions --full -n 20
  frieze sessions --name turn-12                 those that 'frieze run --name turn-12' began
  frieze sessions --after 7353611325287636992    the next ones
  frieze sessions --json | jq 'select(.user == \"ann\")'

JSON: one line a session: session, uid, user, host, command and name (null if they are another user's, or forgotten), \
opened, opened_time,
last, last_time (its newest change; null if none is known), ended, ended_time (null while it is open).")]
pub(crate) struct SessionsArgs {
    /// Only those that were open after this instant.
    #[arg(long, value_name = "INSTANT")]
    pub(crate) from: Option<String>,

    /// Only those with this name ('frieze run --name').
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<SessionName>,

    /// Only those after this one, by its number.
    #[arg(long, value_name = "SESSION", default_value_t = 0, hide_default_value = true)]
    pub(crate) after: u64,

    /// At most this many.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1000)]
    pub(crate) limit: u64,

    /// Command lines of sessions whole, instead of the program's name.
    #[arg(long)]
    pub(crate) full: bool,

    #[command(flatten)]
    pub(crate) old: OldIntervals,
}

/// Run a command on a mount and a session of its own.
///
/// Mounts the file system where only COMMAND and its children can see it (as root; otherwise at a directory that only
/// you may enter), puts the mountpoint into $FRIEZE_MOUNT and the number of the session into $FRIEZE_SESSION, runs
/// COMMAND, unmounts, and prints the number on standard error: `frieze undo --session` undoes the changes of COMMAND by
/// it, or by the name that --name gave it. So an agent's turn is a session that can be undone by itself. Called in a
/// mount of the same file system, COMMAND starts in the same directory of its own mount. The exit status is that of
/// COMMAND, or 128 and the number of the signal that ended it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze run -- sh -c 'cd $FRIEZE_MOUNT/src && make'
  frieze run --at-dir /work -- ./upgrade.sh      at a directory whose name the script knows
  frieze run --name turn-12 -- my-agent          then: frieze undo --session turn-12 --dry-run
  frieze sessions                                the session is listed with its command

JSON: one line after COMMAND has ended: session, name (null without one), status, mountpoint.")]
pub(crate) struct RunWithArgs {
    /// Name of the session: letters, digits, '.', '_' and '-', no number. Several sessions may have one name.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<SessionName>,

    /// Mount here instead of at a new directory; it must exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) at_dir: Option<PathBuf>,

    /// The command and its arguments.
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true, num_args = 1..)]
    pub(crate) command: Vec<OsString>,
}
