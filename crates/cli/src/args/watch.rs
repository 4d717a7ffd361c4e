//! `frieze watch`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Follow the changes of a file or a tree as they happen
///
/// Prints each change with its stamp, in the order of the stamps, and with `--json` marks between them: nothing at or
/// below a mark follows. The lines up to a mark are the same for every reader of the same rights, at any time: a watch
/// goes on from the last mark of another, `--position` keeps it. Writes of a session to a file count as one change
/// within a twentieth of a second. A name that moves out of the tree is a removal in it. Without changes the command
/// sleeps.
///
/// Instead of printing, `--exec` runs a command for each change, and `--webhook` posts them. A
/// command that fails ends the watch, a post is sent again until it is accepted. With `--position` a watch that is
/// started again goes on from the last kept mark: each change arrives at least once.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze watch /inbox                                       from now on, until it is interrupted
  frieze watch / --from 1h-ago --to now --json              an hour, with exact stamps
  frieze watch /inbox --position ~/inbox.mark --exec ./convert --fast
      runs './convert --fast' for each change, with FRIEZE_KIND, FRIEZE_PATH, FRIEZE_WAS, FRIEZE_AT and FRIEZE_EVENT
      (the JSON line) in its environment
  frieze watch /orders --position orders.mark --webhook https://example.org/hook --secret hook.secret

JSON: one line a change: at (stamp), time, kind (created, written, truncated, renamed, removed, replaced, attributes), \
path,
was (the path before, of a rename), type, inode, size, spans (offset, len; none with more_spans: many), more_spans, \
session,
uid, user, host, command. One line a mark: resolved (stamp), time. One line for missing changes: left_out (forgotten,
not-permitted), before (stamp).

A webhook gets POST requests of {path, events, resolved}, signed as Standard Webhooks has it: headers webhook-id,
webhook-timestamp and webhook-signature (v1: HMAC-SHA256 over id.timestamp.body). After any answer but 2xx the same
is sent again, after 1 s to 5 min; 410 ends the watch. The same post has the same webhook-id; a watch that is started
again may post a change once more under another id: at, path and kind identify a change.")]
pub(crate) struct WatchArgs {
    /// The file or directory.
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,

    /// Only changes after this instant [default: now; with --position: the kept mark].
    #[arg(long, value_name = "INSTANT")]
    pub(crate) from: Option<String>,

    /// End with this instant.
    #[arg(long, value_name = "INSTANT")]
    pub(crate) to: Option<String>,

    /// Keep the last mark in this file, and begin at it if there is one. The first watch keeps where it begins.
    #[arg(long, value_name = "FILE")]
    pub(crate) position: Option<PathBuf>,

    /// Post the changes to this URL.
    #[arg(long, value_name = "URL", requires = "secret", conflicts_with = "exec")]
    pub(crate) webhook: Option<String>,

    /// File with the secret that signs the posts: at least 16 characters, or whsec_ and base64. Only you may read it.
    #[arg(long, value_name = "FILE", requires = "webhook")]
    pub(crate) secret: Option<PathBuf>,

    /// Command lines of sessions whole, instead of the program's name.
    #[arg(long)]
    pub(crate) full: bool,

    /// Run this command for each change; everything behind belongs to it.
    #[arg(long, value_name = "COMMAND", num_args = 1.., allow_hyphen_values = true)]
    pub(crate) exec: Vec<OsString>,
}
