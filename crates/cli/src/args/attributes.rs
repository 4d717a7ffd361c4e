//! Attributes of files and directories: `chmod`, `chown` and `touch`.

use std::ffi::OsString;

use clap::{ArgAction, Args};

use super::NoPastArgs;

/// Change the permissions of files
///
/// MODE is as chmod(1) takes it: octal (755), or changes (u+x, go-w, a=rX). The former permissions of a file stay valid
/// in the past, for users that may read the file now.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze chmod 640 /reports/may.txt
  frieze chmod -R u=rwX,go=rX /www

With -R a directory and everything in it change at one instant, if all of it may change; what has the mode already is \
left. Readers see all of it as before, or none.

JSON: one line a file changed: path, kind, mode (octal text), uid, gid. Of very many the last line has the number of \
the rest: path, more.")]
pub(crate) struct ChmodArgs {
    /// The wanted mode.
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    pub(crate) mode: String,

    /// Files and directories.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,

    /// Directories with everything in them.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    #[command(flatten)]
    pub(crate) no_past: NoPastArgs,
}

/// Change the owner of files
///
/// Names are those of this machine; the file system keeps numbers. To give a file to another user takes root.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze chown ada /reports/may.txt
  frieze chown -R ada:staff /reports
  frieze chown :staff /reports

With -R a directory and everything in it change at one instant, if all of it may change. Readers see all of it as \
before, or none.

JSON: one line a file changed: path, kind, mode (octal text), uid, gid. Of very many the last line has the number of \
the rest: path, more.")]
pub(crate) struct ChownArgs {
    /// The new owner, or owner and group; names or numbers.
    #[arg(value_name = "OWNER[:GROUP]")]
    pub(crate) owner: String,

    /// Files and directories.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,

    /// Directories with everything in them.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    /// A symbolic link itself, instead of its target.
    #[arg(long)]
    pub(crate) no_dereference: bool,

    #[command(flatten)]
    pub(crate) no_past: NoPastArgs,
}

/// Set the times of files, and make those that are not there.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze touch /reports/done
  frieze touch -d 2026-11-21T10:00:00Z /reports/may.txt
  frieze touch -c -m /maybe

JSON: one line a file: path.")]
pub(crate) struct TouchArgs {
    /// Files and directories.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,

    /// This time instead of now: a date and time, such as 2026-11-21T10:00:00Z.
    #[arg(short, long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) date: Option<String>,

    /// Make no file.
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,

    /// Only the time of the last access.
    #[arg(short, action = ArgAction::SetTrue)]
    pub(crate) access: bool,

    /// Only the time of the last change.
    #[arg(short, action = ArgAction::SetTrue)]
    pub(crate) modification: bool,

    #[command(flatten)]
    pub(crate) no_past: NoPastArgs,
}
