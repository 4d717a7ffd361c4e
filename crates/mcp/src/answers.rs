//! What tools answer: the structured results, and how they are made of the client's replies.
//!
//! Sessions are texts: their numbers are larger than readers of JSON that keep numbers in doubles can hold.

use std::collections::BTreeMap;

use frieze_client::{Difference, Hlc, SessionInfo, SessionName, Side};
use schemars::JsonSchema;
use serde::Serialize;

use crate::scoped_path::ToolScope;
use crate::words::{hex_unless_text, lossy, time_of};

/// A checkpoint.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Checkpoint {
    /// The instant. Pass it to undo, restore, diff, changes and read_at.
    pub(crate) at: String,
    /// Its wall-clock time.
    pub(crate) time: String,
    /// The name of its snapshot, if it has one: as good as `at` wherever an instant is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
}

/// The session that made a change.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct ChangeAuthor {
    /// Number of the session, for undo. Empty: the server itself.
    pub(crate) session: String,
    /// Name of the session (frieze run --name).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_name: Option<String>,
    /// Command line of the session, if the caller may see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// User on whose behalf.
    pub(crate) uid: u32,
}

/// A change of one name: an event, or the difference between two instants.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Change {
    /// added, removed, renamed or modified.
    pub(crate) change: &'static str,
    /// Path, of a removed name the former one.
    pub(crate) path: String,
    /// The bytes of a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path_hex: Option<String>,
    /// Of a renamed one: the former path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path_before: Option<String>,
    /// file, directory, symlink, …
    pub(crate) kind: &'static str,
    /// Beside the name: content, mode, owner, times, xattrs, acl, replaced (another file has the name).
    pub(crate) what: Vec<&'static str>,
    /// Length before, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size_before: Option<u64>,
    /// Length after, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size_after: Option<u64>,
    /// Bytes that were written or cut off, in all listed places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_changed: Option<u64>,
    /// Instant of the newest change.
    pub(crate) at: String,
    /// Its wall-clock time.
    pub(crate) time: String,
    /// The newest change is by this session.
    #[serde(flatten)]
    pub(crate) by: ChangeAuthor,
    /// The lines that differ, as a unified diff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// Why there are no lines, or not all: binary, too-long, cut, budget (ask for this path by itself).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text_omitted: Option<&'static str>,
}

/// Changes of an interval.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChangePage {
    /// The changes.
    pub(crate) changes: Vec<Change>,
    /// Start of the interval, exclusive, exact.
    pub(crate) from: String,
    /// End of the interval, inclusive, exact.
    pub(crate) to: String,
    /// There are more: call again with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// Something else changed where the caller may not look.
    pub(crate) hidden: bool,
    /// History before this instant was deleted for good: changes before it are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) forgotten_before: Option<String>,
}

/// An action of an undo or a restore.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlannedAction {
    /// make, bring back, remove, replace, bytes, attributes; or left: it stays as it is.
    pub(crate) action: &'static str,
    /// Path.
    pub(crate) path: String,
    /// The bytes of a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path_hex: Option<String>,
    /// Of bytes: the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<u64>,
    /// Of bytes: how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) len: Option<u64>,
    /// Which attributes, or why it is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// Of what is left: instant of the newer version, which stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) newest: Option<String>,
    /// Of what is left: instant of the version that is not undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) older: Option<String>,
}

/// The outcome of an undo or a restore.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EditOutcome {
    /// True: nothing has changed; call again with dry_run false to do it.
    pub(crate) dry_run: bool,
    /// Things that change, or would.
    pub(crate) changes: u64,
    /// Things that stay as they are, because later changes by others build on them: see the actions `left`.
    pub(crate) left: u64,
    /// The actions, those left first.
    pub(crate) actions: Vec<PlannedAction>,
    /// Of a dry run: there are more actions, call again with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<u64>,
    /// Actions beyond those that the server lists; they are counted and done, and some may be of the kind left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) not_listed: Option<u64>,
    /// Of a dry run: why the real run would be refused now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
    /// Instant of the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<String>,
    /// Its wall-clock time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time: Option<String>,
    /// Arguments of undo that take this change back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) take_back: Option<TakeBack>,
}

/// Arguments of undo that take a change back.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TakeBack {
    /// The session of this server.
    pub(crate) sessions: Vec<String>,
    /// Just before the change.
    pub(crate) from: String,
    /// The change.
    pub(crate) to: String,
}

/// An entry of a directory.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NameInDirectory {
    /// The name.
    pub(crate) name: String,
    /// The bytes of a name that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name_hex: Option<String>,
    /// file, directory, symlink, …
    pub(crate) kind: &'static str,
    /// Length of a file, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u64>,
}

/// A file or directory as it was at an instant.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct PastObject {
    /// Path.
    pub(crate) path: String,
    /// The exact instant.
    pub(crate) at: String,
    /// Its wall-clock time.
    pub(crate) time: String,
    /// file, directory, symlink, …
    pub(crate) kind: &'static str,
    /// Length in bytes.
    pub(crate) size: u64,
    /// Of a file: the first byte of this answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<u64>,
    /// Of a file: bytes in this answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) len: Option<u64>,
    /// The bytes, if they are UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// The bytes in base 64, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) base64: Option<String>,
    /// The file goes on: call again with this offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_offset: Option<u64>,
    /// Of a symbolic link: where it leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<String>,
    /// Of a directory: its names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entries: Option<Vec<NameInDirectory>>,
    /// Of a directory: there are more names, call again with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// A power loss took some of what was acknowledged around that instant.
    pub(crate) incomplete: bool,
}

/// A version of a file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FileVersionItem {
    /// write, truncate, make, named, unnamed, set-attr, punch, cloned, restored, undone, copied.
    pub(crate) kind: &'static str,
    /// The instant: read_at shows the file with this version.
    pub(crate) at: String,
    /// Its wall-clock time.
    pub(crate) time: String,
    /// Of a write: the first byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<u64>,
    /// Of a write: bytes; of a truncate: the new length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) len: Option<u64>,
    /// Of a name: the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The session that made it.
    #[serde(flatten)]
    pub(crate) by: ChangeAuthor,
}

/// The history of a file, or the events of a directory.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HistoryAnswer {
    /// Path.
    pub(crate) path: String,
    /// file or directory.
    pub(crate) kind: &'static str,
    /// Of a deleted one: how it went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deleted: Option<Deletion>,
    /// Of a file: versions, newest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) versions: Option<Vec<FileVersionItem>>,
    /// Of a directory: events of it and of the names in it, newest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) events: Option<Vec<Change>>,
    /// There are older ones: call again with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// History before this instant was deleted for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) forgotten_before: Option<String>,
}

/// How a name was removed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Deletion {
    /// The newest instant at which it was there: restore to it brings it back.
    pub(crate) last_at: String,
    /// Its wall-clock time.
    pub(crate) time: String,
    /// Where it was moved; none if it was removed, or where the caller may not look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) moved_to: Option<String>,
    /// The session that removed it.
    #[serde(flatten)]
    pub(crate) by: ChangeAuthor,
}

/// A session.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SessionItem {
    /// Its number: what undo and changes take.
    pub(crate) session: String,
    /// Its name (frieze run --name).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Its command line, if the caller may see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// Its machine, if the caller may see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    /// Its user.
    pub(crate) uid: u32,
    /// When it was opened: undo of it needs no earlier `from`.
    pub(crate) opened_time: String,
    /// Its newest change; none if it has made none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_change_time: Option<String>,
    /// When it ended; none while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended_time: Option<String>,
}

/// Sessions, oldest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SessionPage {
    /// The sessions.
    pub(crate) sessions: Vec<SessionItem>,
    /// There are more: call again with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

impl SessionItem {
    /// Of a session as the server describes it.
    pub(crate) fn of(info: &SessionInfo) -> SessionItem {
        let shown = |text: &str| (!info.hidden && !text.is_empty()).then(|| text.to_owned());
        let known = |stamp: u64| (stamp != 0).then(|| time_of(Hlc(stamp)));
        let (name, command) = SessionName::split(&info.command);
        SessionItem {
            session: info.id.to_string(),
            name: name.map(str::to_owned),
            command: shown(command),
            host: shown(&info.host),
            uid: info.uid,
            opened_time: time_of(Hlc(info.id)),
            last_change_time: known(info.last),
            ended_time: known(info.ended),
        }
    }
}

/// The sessions that answers name.
#[derive(Debug, Default)]
pub(crate) struct Authors(BTreeMap<u64, SessionInfo>);

impl Authors {
    /// Adds the sessions of a reply.
    pub(crate) fn learn(&mut self, sessions: Vec<SessionInfo>) {
        self.0.extend(sessions.into_iter().map(|info| (info.id, info)));
    }

    /// The author of a change.
    pub(crate) fn author(&self, session: u64, uid: u32) -> ChangeAuthor {
        let info = self.0.get(&session).filter(|info| !info.hidden && !info.command.is_empty());
        let parts = info.map(|info| SessionName::split(&info.command));
        ChangeAuthor {
            session: if session == 0 { String::new() } else { session.to_string() },
            session_name: parts.and_then(|(name, _)| name).map(str::to_owned),
            command: parts.map(|(_, command)| command.to_owned()),
            uid,
        }
    }
}

impl Change {
    /// Of a difference. A side outside the tree is not shown: what came from there was added, what went there removed.
    /// None if neither side lies in the tree.
    pub(crate) fn of(scope: &ToolScope, authors: &Authors, difference: &Difference) -> Option<Change> {
        let shown = |side: &Option<Side>| side.clone().filter(|side| scope.shows(&side.path));
        let (before, after) = (shown(&difference.before), shown(&difference.after));
        let named = after.as_ref().or(before.as_ref())?;
        let change = match (&before, &after) {
            (None, _) => "added",
            (_, None) => "removed",
            (Some(before), Some(after)) if before.path != after.path => "renamed",
            _ => "modified",
        };
        let bytes: u64 = difference.spans.iter().map(|span| span.len).sum();
        Some(Change {
            change,
            path: lossy(&named.path),
            path_hex: hex_unless_text(&named.path),
            path_before: before.as_ref().filter(|_| change == "renamed").map(|before| lossy(&before.path)),
            kind: named.kind().word(),
            what: difference.words(),
            size_before: before.as_ref().map(|side| side.size),
            size_after: after.as_ref().map(|side| side.size),
            bytes_changed: (bytes > 0).then_some(bytes),
            at: Hlc(difference.stamp).to_string(),
            time: time_of(Hlc(difference.stamp)),
            by: authors.author(difference.session, difference.uid),
            text: None,
            text_omitted: None,
        })
    }
}
