//! The arguments of each tool. Their comments are the descriptions in the schemas, written for the model that reads
//! them.
//!
//! An argument that a tool does not know is refused: a misspelled `dry_run` must not make a change.

use schemars::JsonSchema;
use serde::Deserialize;

/// Items of an answer, unless the call says otherwise: a screenful that a model reads whole.
pub(crate) const LIMIT_DEFAULT: u32 = 100;
/// Items of an answer at most.
pub(crate) const LIMIT_MAX: u32 = 1000;
/// Bytes of a file in an answer, unless the call says otherwise.
pub(crate) const READ_BYTES_DEFAULT: u32 = 64 << 10;
/// Bytes of a file in an answer at most.
pub(crate) const READ_BYTES_MAX: u32 = 256 << 10;

/// Items of an answer by the argument of a call.
pub(crate) fn limit_of(limit: Option<u32>) -> u32 {
    limit.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX)
}

/// Arguments of `checkpoint`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckpointArguments {
    /// A name for the instant, such as before-refactoring. A named checkpoint is a snapshot: its history is kept until
    /// the snapshot is deleted. Leave it out for a free one.
    pub(crate) name: Option<String>,
}

/// Arguments of `changes`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangesArguments {
    /// Changes after this instant: the `at` of a checkpoint, 5m-ago, 2026-11-21T10:00:00Z, or the name of a snapshot.
    pub(crate) from: Option<String>,
    /// Changes up to this instant, by default now.
    pub(crate) to: Option<String>,
    /// Directory, by default everything: the changes of it and of all below it.
    pub(crate) path: Option<String>,
    /// The path in hexadecimal digits, if it is not UTF-8 (path_hex of an earlier answer).
    pub(crate) path_hex: Option<String>,
    /// Only changes by these sessions, by number or name.
    #[serde(default)]
    pub(crate) sessions: Vec<String>,
    /// Changes in the answer at most: 100 by default, 1000 at most.
    pub(crate) limit: Option<u32>,
    /// `next` of an earlier answer, to continue it; from and to are not needed then.
    pub(crate) next: Option<String>,
}

/// Arguments of `diff`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiffArguments {
    /// The first instant: the `at` of a checkpoint, 5m-ago, 2026-11-21T10:00:00Z, or the name of a snapshot.
    pub(crate) from: Option<String>,
    /// The second instant, by default now.
    pub(crate) to: Option<String>,
    /// File or directory, by default everything.
    pub(crate) path: Option<String>,
    /// The path in hexadecimal digits, if it is not UTF-8 (path_hex of an earlier answer).
    pub(crate) path_hex: Option<String>,
    /// Show the lines that differ, as a unified diff, of files that are text. Default true.
    pub(crate) text: Option<bool>,
    /// Differences in the answer at most: 100 by default, 1000 at most.
    pub(crate) limit: Option<u32>,
    /// `next` of an earlier answer, to continue it; from and to are not needed then.
    pub(crate) next: Option<String>,
}

/// Arguments of `undo`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UndoArguments {
    /// Undo the changes of these sessions, by number or name. Without it, those of every session: give `from` then.
    #[serde(default)]
    pub(crate) sessions: Vec<String>,
    /// Only what is, or was in between, at or below this file or directory; by default everything.
    pub(crate) path: Option<String>,
    /// The path in hexadecimal digits, if it is not UTF-8 (path_hex of an earlier answer).
    pub(crate) path_hex: Option<String>,
    /// Only changes after this instant, such as the `at` of a checkpoint.
    pub(crate) from: Option<String>,
    /// Only changes up to this instant, by default now.
    pub(crate) to: Option<String>,
    /// true, the default: only show what would change. false: do it.
    pub(crate) dry_run: Option<bool>,
    /// Actions in the answer at most: 100 by default, 1000 at most. All are done, whatever is listed.
    pub(crate) limit: Option<u32>,
    /// Of a dry run: `next` of an earlier answer, to list further actions.
    pub(crate) next: Option<u64>,
}

/// Arguments of `restore`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RestoreArguments {
    /// File or directory; a deleted one by its path then.
    pub(crate) path: Option<String>,
    /// The path in hexadecimal digits, if it is not UTF-8 (path_hex of an earlier answer).
    pub(crate) path_hex: Option<String>,
    /// The instant to go back to: the `at` of a checkpoint, 5m-ago, the name of a snapshot.
    pub(crate) to: String,
    /// true: names made since are removed, too. Default false: they stay.
    pub(crate) delete: Option<bool>,
    /// true, the default: only show what would change. false: do it.
    pub(crate) dry_run: Option<bool>,
    /// Actions in the answer at most: 100 by default, 1000 at most. All are done, whatever is listed.
    pub(crate) limit: Option<u32>,
    /// Of a dry run: `next` of an earlier answer, to list further actions.
    pub(crate) next: Option<u64>,
}

/// Arguments of `read_at`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadAtArguments {
    /// File, directory or symbolic link. By default the root of the tree.
    pub(crate) path: Option<String>,
    /// The path in hexadecimal digits, if it is not UTF-8 (path_hex of an earlier answer).
    pub(crate) path_hex: Option<String>,
    /// The instant: the `at` of a checkpoint, 5m-ago, the name of a snapshot. By default now.
    pub(crate) at: Option<String>,
    /// Of a file: the first byte. Default 0.
    pub(crate) offset: Option<u64>,
    /// Of a file: bytes at most, 65536 by default, 262144 at most.
    pub(crate) len: Option<u32>,
    /// Of a directory: names at most, 100 by default, 1000 at most.
    pub(crate) limit: Option<u32>,
    /// Of a directory: `next` of an earlier answer, to list further names.
    pub(crate) next: Option<String>,
}

/// Arguments of `history`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryArguments {
    /// File or directory; it may be deleted.
    pub(crate) path: Option<String>,
    /// The path in hexadecimal digits, if it is not UTF-8 (path_hex of an earlier answer).
    pub(crate) path_hex: Option<String>,
    /// Only what happened after this instant.
    pub(crate) from: Option<String>,
    /// Only what happened up to this instant, by default now.
    pub(crate) to: Option<String>,
    /// Versions or events in the answer at most: 100 by default, 1000 at most.
    pub(crate) limit: Option<u32>,
    /// `next` of an earlier answer, to continue it with older ones; from and to are not needed then.
    pub(crate) next: Option<String>,
}

/// Arguments of `sessions`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionsArguments {
    /// Only sessions with this name (frieze run --name).
    pub(crate) name: Option<String>,
    /// Only sessions that were open after this instant. Default: 1h-ago.
    pub(crate) from: Option<String>,
    /// Sessions in the answer at most: 100 by default, 1000 at most.
    pub(crate) limit: Option<u32>,
    /// `next` of an earlier answer, to continue it.
    pub(crate) next: Option<String>,
}
