//! Files and directories: `ls`, `stat`, `cat`, `put`, `get`, `cp`, `mv`, `ln`, `rm`, `mkdir` and `du`.

use std::ffi::OsString;

use clap::{ArgAction, Args};

use super::{NoPastArgs, PastArgs};

/// List directories, now or in the past.
///
/// Lists the entries of each directory in byte order of their names, or the file itself. With `--at` it lists the
/// entries of that instant, files since deleted or renamed included, under their names of then.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_long_help = "\
Examples:
  frieze ls /
  frieze ls -l /reports --at yesterday
  frieze ls -R /src --at hlc-660c66c7a2800fff
  frieze ls --deleted /reports                deleted names, when and by which user
  frieze ls --json / | jq -r 'select(.kind == \"file\") | .path'

JSON: one line an entry: path, name, kind (file, directory, symlink, fifo, socket, char-device, block-device), inode,
mode (octal text), links, uid, gid, size, bytes_live, mtime, ctime, born, target (of a symlink), time_plugin, changed,
has_acl;
and, in the past, answered: at, at_time, precision_us, stable, incomplete, user_time_open, without_lease, executed.
With --deleted one line a name: path, name, kind, inode, mode, uid, gid, size, mtime, at and at_time (the newest instant
at which it was there), gone and gone_time, moved_to, session, uid_by, user, host, command."
)]
pub(crate) struct LsArgs {
    /// The files and directories to list.
    #[arg(value_name = "PATH", default_value = "/")]
    pub(crate) paths: Vec<OsString>,

    /// Mode, links, owner, size and time beside each name.
    #[arg(short, long)]
    pub(crate) long: bool,

    /// All directories below, too.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    /// The directory itself instead of its entries.
    #[arg(short, long)]
    pub(crate) directory: bool,

    /// Sizes as 4.0K, 1.5M.
    #[arg(short = 'h', long)]
    pub(crate) human: bool,

    /// Print help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,

    /// End each name with a zero byte instead of a line break, and print it as it is, as a path with -R or several
    /// PATHs: for xargs -0.
    #[arg(short = '0', long, conflicts_with_all = ["long", "json", "deleted"])]
    pub(crate) null: bool,

    /// Deleted names of the directory: when each was removed, and by which user.
    #[arg(long, conflicts_with_all = ["long", "recursive", "directory"])]
    pub(crate) deleted: bool,

    /// With --deleted: command lines of sessions whole, instead of the program's name.
    #[arg(long, requires = "deleted")]
    pub(crate) full: bool,

    #[command(flatten)]
    pub(crate) past: PastArgs,
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

JSON: one line a path: the fields of 'frieze ls --json' and atime, rdev, chunk_bytes, acl and default_acl (lists of
entries as getfacl shows them, null if there are none).")]
pub(crate) struct StatArgs {
    /// Files, directories or links.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,

    /// Follow a symbolic link to its target.
    #[arg(short = 'L', long)]
    pub(crate) follow: bool,

    #[command(flatten)]
    pub(crate) past: PastArgs,
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
pub(crate) struct CatArgs {
    /// Files.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,

    #[command(flatten)]
    pub(crate) past: PastArgs,
}

/// Options of `put`, `get` and `cp`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CopyOptions {
    /// Directories with everything in them.
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Keep mode bits and modification times.
    #[arg(short, long)]
    pub(crate) preserve: bool,

    /// Write a temporary file and rename it: readers see the old file or the new one.
    #[arg(long)]
    pub(crate) atomic: bool,
}

/// Copy local files into the file system.
///
/// Copies each LOCAL to the path in the file system that comes last, or into it if it is a directory. `-` is standard
/// input. An existing file is overwritten; its former bytes stay readable in the past. Readers of now may read it half
/// written: `--atomic` writes a temporary file beside it and renames it once it is complete.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze put report.txt /reports/
  tar c src | frieze put - /backup/src.tar
  frieze put -r ./site /www
  frieze put --atomic config.toml /etc/config.toml
  date | frieze put --append - /journal.txt      one atomic append a request

JSON: one line a file, directory or link: from, to, kind, bytes.")]
pub(crate) struct PutArgs {
    /// Local files (or -), then the path in the file system.
    #[arg(value_name = "LOCAL... PATH", required = true, num_args = 2..)]
    pub(crate) paths: Vec<OsString>,

    #[command(flatten)]
    pub(crate) options: CopyOptions,

    /// Append instead of writing over.
    #[arg(long, conflicts_with = "atomic")]
    pub(crate) append: bool,

    #[command(flatten)]
    pub(crate) no_past: NoPastArgs,
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
pub(crate) struct GetArgs {
    /// Paths in the file system, then the local file or directory.
    #[arg(value_name = "PATH... LOCAL", required = true, num_args = 2..)]
    pub(crate) paths: Vec<OsString>,

    #[command(flatten)]
    pub(crate) options: CopyOptions,

    #[command(flatten)]
    pub(crate) past: PastArgs,
}

/// Copy files within the file system, also from the past into the present.
///
/// Copies each SOURCE to the path that comes last, or into it if it is a directory. With `--at` the sources are read as
/// of that instant and the copy is made now: this brings a deleted or spoiled file back. Nothing is lost by it: what
/// the copy replaces stays readable in its turn.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze cp /a.txt /b.txt
  frieze cp --at 10m-ago /report.txt /report.txt       bring back the contents of ten minutes ago
  frieze cp -r --at yesterday /photos /photos-back

JSON: one line a file, directory or link: from, to, kind, bytes, and, in the past, answered.")]
pub(crate) struct CpArgs {
    /// Paths to copy, then where to.
    #[arg(value_name = "SOURCE... PATH", required = true, num_args = 2..)]
    pub(crate) paths: Vec<OsString>,

    #[command(flatten)]
    pub(crate) options: CopyOptions,

    #[command(flatten)]
    pub(crate) past: PastArgs,
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
pub(crate) struct MvArgs {
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
    pub(crate) no_past: NoPastArgs,
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
pub(crate) struct LnArgs {
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
    pub(crate) no_past: NoPastArgs,
}

/// Remove files; their bytes stay in the past
///
/// Removes the names. Their contents stay readable at every instant before: `frieze ls --at 1m-ago`, and
/// `frieze cp --at 1m-ago PATH PATH` brings a file back.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze rm /old.txt
  frieze rm -r /build
  frieze rm -f /may-not-exist

A directory goes with everything in it by one change, if all of it may go: readers see all of it or none. That is at \
most 64 MiB of names, about a million and a half of 20 bytes; of a larger tree remove one directory after the other.

JSON: one line a name removed: path, kind. Of very many the last line has the number of the rest: path, more.")]
pub(crate) struct RmArgs {
    /// The files to remove.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,

    /// Directories with everything in them.
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// No message about missing files.
    #[arg(short, long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) no_past: NoPastArgs,
}

/// Make directories.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze mkdir /reports
  frieze mkdir -p /a/b/c
  frieze mkdir -m 700 /private

JSON: one line a directory made: path, inode.")]
pub(crate) struct MkdirArgs {
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
    pub(crate) no_past: NoPastArgs,
}

/// Remove empty directories.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze rmdir /reports/2025
  frieze rmdir -p /a/b/c                   and /a/b and /a, if they are empty then

JSON: one line a directory removed: path, kind.")]
pub(crate) struct RmdirArgs {
    /// Directories.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,

    /// Parents as well, as far as they are empty.
    #[arg(short, long)]
    pub(crate) parents: bool,

    #[command(flatten)]
    pub(crate) no_past: NoPastArgs,
}

/// Show or set how much may lie below directories.
///
/// A quota bounds the files and directories below a directory, itself included; the bytes of files, their lengths; and
/// the bytes that are kept of them with their history. It holds for every program and protocol. A write beyond it gets
/// EDQUOT, and HDFS's clients their own exceptions. Without limits it is shown, with its use. Only root sets it. It may
/// be set below the present use: existing files stay.
///
/// Files count once, also with several names. Bytes are checked at each chunk of a file (64 MiB) and counted when it is
/// closed, so each open writer may exceed the quota by a chunk. What is kept is checked at each write: overwritten and
/// deleted bytes count until `frieze forget` or a policy (`frieze retention`) frees them.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze quota /users/ada                        what may be there, and what is
  frieze quota /users/ada --files 100000 --bytes 50G    and as many bytes of history
  frieze quota /users/ada --kept 200G                   more of history
  frieze quota /users/ada --bytes none --kept none      of files only

JSON: one line a directory: path, files, files_max, bytes, bytes_max, kept, kept_max; all but path null where there is
no quota, a limit null where there is none, and kept null where it has no limit or is not counted yet.")]
pub(crate) struct SetQuotaArgs {
    /// Directories.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,

    /// Most files and directories, itself included, or none for no limit.
    #[arg(long, value_name = "COUNT", value_parser = Most::count)]
    pub(crate) files: Option<Most>,

    /// Most bytes, such as 1073741824, 500M or 2T, or none for no limit.
    #[arg(long, value_name = "SIZE", value_parser = Most::bytes)]
    pub(crate) bytes: Option<Most>,

    /// Most bytes that are stored, history and deleted files included, or none for no limit. With --bytes alone it is
    /// twice as many.
    #[arg(long, value_name = "SIZE", value_parser = Most::bytes)]
    pub(crate) kept: Option<Most>,

    #[command(flatten)]
    pub(crate) no_past: NoPastArgs,
}

/// A limit, or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Most(pub(crate) Option<u64>);

impl Most {
    fn count(text: &str) -> Result<Most, String> {
        match text {
            "none" => Ok(Most(None)),
            _ => text.parse().map(|most| Most(Some(most))).map_err(|_| "it is a whole number, or none".to_owned()),
        }
    }

    fn bytes(text: &str) -> Result<Most, String> {
        let wrong = || "it is a size such as 1073741824, 500M or 2T, or none".to_owned();
        let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50)];
        let unit = units.into_iter().find(|(unit, _)| text.ends_with([*unit, unit.to_ascii_lowercase()]));
        match (text, unit) {
            ("none", _) => Ok(Most(None)),
            (_, None) => text.parse().map(|most| Most(Some(most))).map_err(|_| wrong()),
            (_, Some((_, shift))) => {
                let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
                let bytes = number.checked_mul(1 << shift).ok_or_else(wrong)?;
                Ok(Most(Some(bytes)))
            }
        }
    }
}

/// Show how much room is left.
///
/// The room on the device of the answering server; below a directory with a quota, the rest of the quota if that is
/// less. History takes room too, until 'frieze forget': USED is all that cannot be written. For a cluster 'frieze
/// cluster nodes' shows every server.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_long_help = "\
Examples:
  frieze df
  frieze df -h / /users/ada

JSON: one line a path: path, bytes, bytes_used, bytes_free, inodes, inodes_used, inodes_free."
)]
pub(crate) struct DfArgs {
    /// Files or directories.
    #[arg(value_name = "PATH", default_value = "/")]
    pub(crate) paths: Vec<OsString>,

    /// Sizes as 4.0K, 1.5M.
    #[arg(short = 'h', long)]
    pub(crate) human: bool,

    /// Inodes instead of bytes.
    #[arg(short, long)]
    pub(crate) inodes: bool,

    /// Print help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,

    #[command(flatten)]
    pub(crate) no_past: NoPastArgs,
}

/// Sum up the sizes of trees.
///
/// Prints the bytes that hold data (holes are not counted; a file with several names counts once) below each directory,
/// as of now or of an instant. With `--history` it prints two sums: the bytes of now, and those that are kept for the
/// past only: overwritten, cut off, or of files since deleted, which count where their last name was.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_long_help = "\
Examples:
  frieze du -sh /
  frieze du /src --at yesterday
  frieze du -sh --history /             what the past costs

JSON: one line a directory (with -s: a path): path, bytes_live, size, files, directories, and, in the past, answered.
With --history: path, bytes_live, bytes_history, files, deleted_files, directories."
)]
pub(crate) struct DuArgs {
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
    #[arg(short = 'h', long)]
    pub(crate) human: bool,

    /// Print help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,

    #[command(flatten)]
    pub(crate) past: PastArgs,
}
