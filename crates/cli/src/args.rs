//! What can be typed: every subcommand, option and help text. No decision is made here.
//!
//! Paths and instants stay text in this module: they are checked by `path` and `past`, whose words are clearer than
//! those of a parser.

mod sharing;
mod timeline;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub(crate) use sharing::{CloneTree, Forget, Restore, Undo};
pub(crate) use timeline::{Diff, Find, Log, RunWith, Sessions};

/// Server that is asked when none is named.
pub(crate) const SERVER_DEFAULT: &str = "127.0.0.1:7470";

/// A file system that can be read at any instant of its past.
///
/// `frieze serve` runs a server on a directory, `frieze mount` shows it as ordinary files, and the other commands work
/// on paths in the file system without a mount. Such a path is absolute and has no `..`: `/reports/may.txt`. Every
/// change is kept, so every command that reads takes `--at INSTANT` and answers as of then.
#[derive(Debug, Parser)]
#[command(name = "frieze", version, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "\
Run 'frieze COMMAND --help' for what a command does, its examples and its JSON fields.")]
#[command(after_long_help = "\
Examples:
  frieze serve --dir /srv/frieze          run a server; keeps running
  echo v1 | frieze put - /report.txt      store a file
  frieze cat /report.txt --at 30s-ago     read it as it was half a minute ago
  frieze ls -l / --at yesterday           what was in a directory, deleted files included
  frieze mount /mnt/f                     mount it; the past is in /mnt/f/.at/30s-ago/

Instants (--at, .at in a mount):
  2026-11-21T10:00:00.123Z      a time with its zone, to the microsecond
  2026-11-21T10:00:00           in the zone of this machine; the UTC used is printed
  20261121T100000.123Z          the same without colons
  @1439845200.1                 seconds since 1970
  5m-ago                        us, ms, s, m, h, d or w ago
  yesterday                     24 hours ago
  hlc-660c66c7a2800fff          the exact stamp that 'frieze now' and 'frieze log' print
  last-whole                    the newest instant at which everything was whole at the last crash
  before-upgrade                the name of a saved snapshot

Exit status:
  0  everything asked for was done
  1  something failed: one line each on stderr; with several paths the others are done
  2  the command line is wrong; nothing was done

Environment:
  FRIEZE_SERVER  as --server, by default 127.0.0.1:7470
  FRIEZE_KEY     as --key
  FRIEZE_LOG     what is logged on stderr: error, warn, info, debug, trace, or frieze_node=debug")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads a command line, the program's name first.
    ///
    /// # Errors
    /// What is wrong with it, or the help that it asks for.
    pub(crate) fn read<T: Into<OsString> + Clone>(typed: impl IntoIterator<Item = T>) -> Result<Cli, clap::Error> {
        let matches = Cli::command().try_get_matches_from(typed)?;
        let mut cli = Cli::from_arg_matches(&matches)?;
        cli.common.server_typed = matches.value_source("server") == Some(ValueSource::CommandLine);
        Ok(cli)
    }
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Common {
    /// Server to ask: HOST:PORT, or unix:PATH of its socket.
    #[arg(long, global = true, value_name = "ADDR", env = "FRIEZE_SERVER", default_value = SERVER_DEFAULT)]
    #[arg(hide_env_values = true)]
    pub(crate) server: String,

    /// True if the server was named on the command line, not by the environment or by default.
    #[arg(skip)]
    pub(crate) server_typed: bool,

    /// Print JSON: one document, or one line an item. Field names stay the same from version to version.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// When a change is acknowledged: async (the server has it in memory: a crash of the server does not lose it, a loss
    /// of power within its next moments may) or sync (it is on stable storage).
    #[arg(long, global = true, value_name = "WHEN", default_value = "async", hide_possible_values = true)]
    pub(crate) durability: Durability,

    /// File with the line NAME:SECRET of a key in the server's settings: proves who asks from another machine.
    #[arg(long, global = true, value_name = "FILE", env = "FRIEZE_KEY", hide_env_values = true)]
    pub(crate) key: Option<PathBuf>,

    /// Seconds to go on trying while the server is away.
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) timeout: u32,

    /// Say more on stderr: the instant used, its precision, and whether it was stable.
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,

    /// No progress bars.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

/// When a change is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    Async,
    Sync,
}

/// Which past is read.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Reading the past")]
pub(crate) struct Past {
    /// Read as of this instant, such as 5m-ago or 2026-11-21T10:00:00Z ('frieze --help' lists the forms).
    #[arg(long, value_name = "INSTANT")]
    pub(crate) at: Option<String>,

    /// Cut every file at this time of its own data, written as an instant (files need a time plug-in: 'frieze time').
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) user_at: Option<String>,
}

/// `--at` where it makes no sense: taken only to be refused in clear words.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct NoPast {
    #[arg(long, value_name = "INSTANT", hide = true)]
    pub(crate) at: Option<String>,
    #[arg(long, value_name = "TIME", hide = true, allow_hyphen_values = true)]
    pub(crate) user_at: Option<String>,
}

/// The subcommands, in the order of `--help`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Serve),
    Mount(Mount),
    Umount(Umount),
    Ls(Ls),
    Stat(Stat),
    Cat(Cat),
    Put(Put),
    Get(Get),
    Cp(Cp),
    Mv(Mv),
    Ln(Ln),
    Rm(Rm),
    Mkdir(Mkdir),
    Du(Du),
    Log(Log),
    Clone(CloneTree),
    Restore(Restore),
    Undo(Undo),
    Forget(Forget),
    Diff(Diff),
    Find(Find),
    Sessions(Sessions),
    Run(RunWith),
    Now(Now),
    #[command(subcommand)]
    Snapshot(Snapshot),
    #[command(subcommand)]
    Time(Time),
    Sync(Sync),
    Status(Status),
    Bench(Bench),
}

/// Make everything written so far durable.
///
/// Returns when everything that anybody was told is done, through this command, a mount or a program, is on the server's
/// stable storage. A PATH must be there; one barrier covers everything, so it names only what the caller cares for.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze sync                     everything
  frieze sync /journal.txt        fails if there is no such file
  sync /mnt/f/journal.txt         the same through a mount, without this command

JSON: one line a path: path, durable (the stamp up to which everything is on stable storage).")]
pub(crate) struct Sync {
    /// Files or directories [default: everything].
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,

    #[command(flatten)]
    pub(crate) no_past: NoPast,
}

/// Run a server on a directory.
///
/// Keeps the whole file system and its past in DIR, which is made if it is not there. Prints a line that starts with
/// `ready` and the addresses as soon as it serves, and runs until SIGTERM or SIGINT; then it finishes what it was asked,
/// makes everything durable and stops. It may be killed at any moment: what was acknowledged is there at the next start.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze serve --dir /srv/frieze
  frieze serve --dir /srv/frieze --listen 127.0.0.1:0        any free port; the ready line names it
  frieze serve --dir /srv/frieze --listen 127.0.0.1:7470 --listen unix:/run/frieze.sock
  FRIEZE_LOG=debug frieze serve --dir /srv/frieze 2>frieze.log

Without keys in the configuration the server refuses to listen beyond this machine.

JSON: one line when ready: ready (true), addresses, dir, pid.")]
pub(crate) struct Serve {
    /// Directory that holds everything.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Address to listen on: HOST:PORT (port 0: any free one) or unix:PATH; may be given several times
    /// [default: 127.0.0.1:7470].
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<String>,

    /// Settings file (TOML).
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Mount the file system.
///
/// Shows the file system as ordinary files at MOUNTPOINT, an existing directory, and goes to the background once it is
/// mounted. Every directory has a hidden `.at` with its past: `.at/5m-ago/`, `.at/2026-11-21T10:00:00Z/`,
/// `.at/SNAPSHOT/`, `.at/user-TIME/`. With `--at` the whole mount shows one instant and is read-only.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze mount /mnt/f
  cat /mnt/f/.at/30s-ago/report.txt       the file as it was half a minute ago
  ls /mnt/f/.at                           saved snapshots
  frieze mount /mnt/monday --at 2026-11-16T09:00:00Z
  frieze umount /mnt/f

JSON: one line when mounted: mounted (true), mountpoint, server, pid, at, at_time.")]
pub(crate) struct Mount {
    /// Directory to mount on.
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mountpoint: PathBuf,

    /// Stay in the foreground until unmounted or interrupted.
    #[arg(long)]
    pub(crate) foreground: bool,

    /// Where the background mount keeps its log; without it the log is dropped.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,

    /// Let other users of this machine in. The default where root mounts; others need user_allow_other in
    /// /etc/fuse.conf.
    #[arg(long)]
    pub(crate) allow_other: bool,

    /// Set by `frieze mount` for the process it starts: leave the terminal once mounted.
    #[arg(long, hide = true)]
    pub(crate) detach: bool,

    #[command(flatten)]
    pub(crate) past: Past,
}

/// Unmount the file system.
///
/// Takes the mount away and ends its background process. A mount in use is refused, unless `--lazy` is given: then the
/// name goes at once and the rest when the last user is done.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze umount /mnt/f
  frieze umount --lazy /mnt/f

JSON: one line a mountpoint: unmounted.")]
pub(crate) struct Umount {
    /// Mountpoints.
    #[arg(value_name = "MOUNTPOINT", required = true)]
    pub(crate) mountpoints: Vec<PathBuf>,

    /// Detach now, clean up when it is no longer in use.
    #[arg(short, long)]
    pub(crate) lazy: bool,
}

/// List directories, now or in the past.
///
/// Lists the entries of each directory in byte order of their names, or the file itself. With `--at` it lists what was
/// there at that instant, files since deleted or renamed included, under their names of then.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze ls /
  frieze ls -l /reports --at yesterday
  frieze ls -R /src --at hlc-660c66c7a2800fff
  frieze ls --deleted /reports                what once was there, when it went, who took it
  frieze ls --json / | jq -r 'select(.kind == \"file\") | .path'

JSON: one line an entry: path, name, kind (file, directory, symlink, fifo, socket, char-device, block-device), inode,
mode (octal text), links, uid, gid, size, bytes_live, mtime, ctime, born, target (of a symlink), time_plugin, changed;
and, in the past, answered: at, at_time, precision_us, stable, incomplete, user_time_open.
With --deleted one line a name: path, name, kind, inode, mode, uid, gid, size, mtime, at and at_time (the newest instant
at which it was there), gone and gone_time, moved_to, session, uid_by, user, host, command.")]
pub(crate) struct Ls {
    /// What to list.
    #[arg(value_name = "PATH", default_value = "/")]
    pub(crate) paths: Vec<OsString>,

    /// Mode, links, owner, size and time beside each name.
    #[arg(short, long)]
    pub(crate) long: bool,

    /// All directories below, too.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    /// The directory itself instead of what is in it.
    #[arg(short, long)]
    pub(crate) directory: bool,

    /// Sizes as 4.0K, 1.5M.
    #[arg(short = 'H', long)]
    pub(crate) human: bool,

    /// Names that once were in the directory and are not now: when they went, and by whom.
    #[arg(long, conflicts_with_all = ["long", "recursive", "directory"])]
    pub(crate) deleted: bool,

    #[command(flatten)]
    pub(crate) past: Past,
}

/// Show everything known about files.
///
/// Prints kind, size, owner, mode and times of each path. A symbolic link is shown itself. `changed` is the newest
/// stamp among data and metadata: two equal ones mean the same state, bytes included.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze stat /reports/may.txt
  frieze stat /reports/may.txt --at 1h-ago
  frieze stat --json /reports/may.txt | jq .size

JSON: one line a path: the fields of 'frieze ls --json' and atime, rdev, chunk_bytes.")]
pub(crate) struct Stat {
    /// Files, directories or links.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,

    /// Follow a symbolic link to what it names.
    #[arg(short = 'L', long)]
    pub(crate) follow: bool,

    #[command(flatten)]
    pub(crate) past: Past,
}

/// Print files.
///
/// Writes the bytes of each file to standard output, one after the other, as they are now or were at an instant.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze cat /report.txt
  frieze cat /report.txt --at 30s-ago
  frieze cat /deleted-by-mistake.txt --at yesterday > back.txt
  frieze cat /samples.bin --user-at 2026-11-21T10:00:00Z

JSON: one line a file instead of its bytes: path, bytes, text (null if it is not UTF-8), hex (if it is not), and, in
the past, answered. Meant for small files.")]
pub(crate) struct Cat {
    /// Files.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,

    #[command(flatten)]
    pub(crate) past: Past,
}

/// Copy local files into the file system.
///
/// Copies each LOCAL to the path in the file system that comes last, or into it if it is a directory. `-` is standard
/// input. An existing file is written over; what it held stays readable in the past. Readers of now can see it half
/// written: `--atomic` writes a temporary file beside it and renames it once it is whole.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze put report.txt /reports/
  tar c src | frieze put - /backup/src.tar
  frieze put -r ./site /www
  frieze put --atomic config.toml /etc/config.toml
  date | frieze put --append - /journal.txt      one atomic append a request

JSON: one line a file, directory or link: from, to, kind, bytes.")]
pub(crate) struct Put {
    /// Local files (or -), then the path in the file system.
    #[arg(value_name = "LOCAL... PATH", required = true, num_args = 2..)]
    pub(crate) paths: Vec<OsString>,

    /// Directories with everything in them.
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Keep mode bits and modification times.
    #[arg(short, long)]
    pub(crate) preserve: bool,

    /// Write a temporary file and rename it: readers see the old file or the new one.
    #[arg(long, conflicts_with = "append")]
    pub(crate) atomic: bool,

    /// Append instead of writing over.
    #[arg(long)]
    pub(crate) append: bool,

    #[command(flatten)]
    pub(crate) no_past: NoPast,
}

/// Copy files out of the file system.
///
/// Copies each path to the local LOCAL that comes last, or into it if it is a directory. `-` is standard output. With
/// `--at` the instant is resolved once: a recursive copy is one consistent cut of the whole tree, however long it takes
/// and whatever is written meanwhile. Holes stay holes.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze get /reports/may.txt .
  frieze get -r /www ./site-of-monday --at 2026-11-16T09:00:00Z
  frieze get -r /src ./src --at $(frieze now)     a consistent copy of a tree that is being changed
  frieze get /report.txt -                        to standard output

JSON: one line a file, directory or link: from, to, kind, bytes, and, in the past, answered.")]
pub(crate) struct Get {
    /// Paths in the file system, then the local file or directory.
    #[arg(value_name = "PATH... LOCAL", required = true, num_args = 2..)]
    pub(crate) paths: Vec<OsString>,

    /// Directories with everything in them.
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Keep mode bits and modification times.
    #[arg(short, long)]
    pub(crate) preserve: bool,

    /// Write a temporary file and rename it.
    #[arg(long)]
    pub(crate) atomic: bool,

    #[command(flatten)]
    pub(crate) past: Past,
}

/// Copy files within the file system, also from the past into the present.
///
/// Copies each SOURCE to the path that comes last, or into it if it is a directory. With `--at` the sources are read as
/// of that instant and the copy is made now: this is how a deleted or spoiled file comes back. Nothing is lost by it:
/// what the copy replaces stays readable in its turn.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze cp /a.txt /b.txt
  frieze cp --at 10m-ago /report.txt /report.txt       bring back the contents of ten minutes ago
  frieze cp -r --at yesterday /photos /photos-back

JSON: one line a file, directory or link: from, to, kind, bytes, and, in the past, answered.")]
pub(crate) struct Cp {
    /// Paths to copy, then where to.
    #[arg(value_name = "SOURCE... PATH", required = true, num_args = 2..)]
    pub(crate) paths: Vec<OsString>,

    /// Directories with everything in them.
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Keep mode bits and modification times.
    #[arg(short, long)]
    pub(crate) preserve: bool,

    /// Write a temporary file and rename it: readers see the old file or the new one.
    #[arg(long)]
    pub(crate) atomic: bool,

    #[command(flatten)]
    pub(crate) past: Past,
}

/// Rename files and directories.
///
/// Renames SOURCE to the path that comes last, or moves every SOURCE into it if it is a directory. One rename is atomic
/// and takes the same time for a file and for a tree. The old name stays readable in the past.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze mv /draft.txt /report.txt
  frieze mv /a /b /c /archive/
  frieze mv --no-clobber /new /name
  frieze mv --exchange /blue /green         swap two names in one step

JSON: one line a name: from, to.")]
pub(crate) struct Mv {
    /// Paths to rename, then the new name or the directory.
    #[arg(value_name = "SOURCE... PATH", required = true, num_args = 2..)]
    pub(crate) paths: Vec<OsString>,

    /// Fail if the new name is taken.
    #[arg(short, long)]
    pub(crate) no_clobber: bool,

    /// Swap the two names.
    #[arg(long, conflicts_with = "no_clobber")]
    pub(crate) exchange: bool,

    /// The last path is the new name, even if it is a directory.
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,

    #[command(flatten)]
    pub(crate) no_past: NoPast,
}

/// Give a file another name, or make a symbolic link.
///
/// Without `-s` NAME becomes one more name of the file TARGET. With `-s` it becomes a symbolic link that holds the text
/// TARGET, which need not exist.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze ln /report.txt /report-too.txt
  frieze ln -s ../shared/report.txt /me/report.txt

JSON: one line: target, name, kind (hard, symbolic).")]
pub(crate) struct Ln {
    /// The file, or the text of the symbolic link.
    #[arg(value_name = "TARGET")]
    pub(crate) target: OsString,

    /// The new name.
    #[arg(value_name = "NAME")]
    pub(crate) name: OsString,

    /// A symbolic link.
    #[arg(short, long)]
    pub(crate) symbolic: bool,

    #[command(flatten)]
    pub(crate) no_past: NoPast,
}

/// Remove files; what they held stays in the past.
///
/// Removes the names. Their contents stay readable at every instant before: `frieze ls --at 1m-ago`, and
/// `frieze cp --at 1m-ago PATH PATH` brings a file back.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze rm /old.txt
  frieze rm -r /build
  frieze rm -f /may-not-exist

JSON: one line a name removed: path, kind.")]
pub(crate) struct Rm {
    /// What to remove.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,

    /// Directories with everything in them.
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// No complaint about what is not there.
    #[arg(short, long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) no_past: NoPast,
}

/// Make directories.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze mkdir /reports
  frieze mkdir -p /a/b/c
  frieze mkdir -m 700 /private

JSON: one line a directory made: path, inode.")]
pub(crate) struct Mkdir {
    /// Directories to make.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,

    /// Parents as needed; no complaint about a directory that is there.
    #[arg(short, long)]
    pub(crate) parents: bool,

    /// Permission bits in octal, instead of 777 without the umask.
    #[arg(short, long, value_name = "MODE")]
    pub(crate) mode: Option<String>,

    #[command(flatten)]
    pub(crate) no_past: NoPast,
}

/// Sum up the sizes of trees.
///
/// Prints the bytes that hold data (holes are not counted; a file with several names counts once) below each directory,
/// as of now or of an instant. With `--history` it prints two sums: the bytes of now, and those that are kept for the past
/// only: overwritten, cut off, or of files since deleted, which count where their last name was.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze du -s -H /
  frieze du /src --at yesterday
  frieze du -s -H --history /             what the past costs

JSON: one line a directory (with -s: a path): path, bytes_live, size, files, directories, and, in the past, answered.
With --history: path, bytes_live, bytes_history, files, deleted_files, directories.")]
pub(crate) struct Du {
    /// Files or directories.
    #[arg(value_name = "PATH", default_value = "/")]
    pub(crate) paths: Vec<OsString>,

    /// Only the sum for each path.
    #[arg(short, long)]
    pub(crate) summarize: bool,

    /// Lengths of files instead of bytes that hold data.
    #[arg(long)]
    pub(crate) apparent_size: bool,

    /// Bytes of now and bytes of history, side by side.
    #[arg(long, conflicts_with_all = ["apparent_size", "at", "user_at"])]
    pub(crate) history: bool,

    /// Sizes as 4.0K, 1.5M.
    #[arg(short = 'H', long)]
    pub(crate) human: bool,

    #[command(flatten)]
    pub(crate) past: Past,
}

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
pub(crate) struct Now {
    /// The instant to make exact, instead of the present.
    #[arg(long, value_name = "INSTANT")]
    pub(crate) at: Option<String>,
}

/// Name instants, and see and delete such names.
///
/// A snapshot is a name for an instant: it copies nothing, takes no time, and keeps the history of that instant. Every
/// instant can be read without one.
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  frieze snapshot create before-upgrade
  frieze snapshot create monday --at 2026-11-16T09:00:00Z
  frieze ls / --at before-upgrade
  frieze snapshot list
  frieze snapshot delete monday")]
pub(crate) enum Snapshot {
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
    /// List the named instants with their age, the bytes they hold back, and who made them.
    ///
    /// HELD is what was live at the instant and has been overwritten, cut off or deleted since: the history that reading the
    /// instant needs. Two snapshots may hold the same bytes. A `+` says that only the first 20,000 changed files were
    /// counted.
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

/// Tell frieze where the data keeps its own time.
///
/// A time plug-in reads the time of the data out of the data. It is bound to a directory; files and directories made in
/// it from then on inherit it, and `--user-at TIME` cuts such a file at that time of its data. With `binary` and `json`
/// one write is one record; with `csv` and `jsonl` one line is one row, in whatever writes it comes. What runs backwards
/// is refused, with its offset; late rows go into a file of their own, and `--at` tells who knew of them when.
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  frieze time bind /sensors 'binary:offset=0,width=8,order=little,signed=false,epoch=unix,unit=us'
  frieze time bind /events  'json:/meta/time'
  frieze time bind /flights 'csv:event_time'
  frieze time bind /logs    'jsonl:/ts,unit=ms'
  frieze time show /sensors
  frieze cat /sensors/a.bin --user-at 2026-11-21T10:00:00Z")]
pub(crate) enum Time {
    /// Bind a time plug-in to a directory.
    #[command(after_long_help = "\
SPEC is one of
  binary:offset=N,width=1|2|4|8,order=little|big,signed=true|false,epoch=unix,unit=s|ms|us|ns
  json:POINTER[,unit=s|ms|us|ns]     an RFC 3339 text, or a number with its unit, at a JSON pointer such as /meta/time
  csv:COLUMN[,header=true|false][,delimiter=comma|semicolon|tab|pipe][,unit=s|ms|us|ns]
                                     a column, by the name that the first line gives it, or counted from 1
  jsonl:POINTER[,unit=s|ms|us|ns]    one JSON document a line
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
    /// Show which plug-in reads the time of a file, or of what is made in a directory.
    #[command(after_long_help = "\
JSON: one line a path: path, time_plugin (null if there is none).")]
    Show {
        /// Files or directories.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<OsString>,
        #[command(flatten)]
        past: Past,
    },
}

/// Show how the server is.
///
/// Prints its health, the error bound of its clock, which instants can be read (earliest to stable), what is not yet
/// on stable storage, space, and intervals that a crash lost. Exits with 1 if it is not healthy.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze status
  frieze status --json | jq .dirty_bytes

JSON: health, healthy, fenced, server, software, cluster, uptime_ms, clock_error_us, newest, newest_time, earliest,
earliest_time, stable, stable_time, durable, durable_time, dirty_bytes, dirty_age_ms, capacity_bytes, free_bytes,
log_bytes, forgotten_bytes, forgotten_waiting_bytes, index_bytes, records, inodes, sessions, connections,
metalog_index, resident_bytes, resident_bytes_peak, cpu_ns, last_whole, last_whole_time, gaps (a list of from, from_time, to, to_time).")]
pub(crate) struct Status {}

/// Measure the file system beside the machine's own ceiling.
///
/// Runs a load and prints its figure, the ceiling of this machine measured in the same run (loopback, disk, memory), the
/// ratio, and what client and server took of the processor and of memory.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[command(after_long_help = "Run 'frieze bench --help' for the scenarios and their options.")]
pub(crate) struct Bench {
    /// Scenario and its options.
    #[arg(value_name = "SCENARIO", trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
    pub(crate) args: Vec<OsString>,
}
