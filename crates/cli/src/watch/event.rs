//! A change as a line of JSON.

use frieze_client::{Difference, Hlc, flags};
use serde_json::{Map, Value, json};

use crate::format;
use crate::run::CommandRun;
use crate::timeline::{ChangeKind, SessionNames, named, put_path};

/// What happened, in a word: the most important of all that one transaction did to the object.
pub(super) fn kind_of(change: &Difference) -> &'static str {
    let has = |bit| change.flags & bit != 0;
    match (ChangeKind::of(change), &change.before, &change.after) {
        (ChangeKind::Added, ..) => "created",
        (ChangeKind::Removed, ..) => "removed",
        (ChangeKind::Renamed, ..) => "renamed",
        (ChangeKind::Modified, ..) if has(flags::REPLACED) => "replaced",
        (ChangeKind::Modified, Some(before), Some(after)) if has(flags::CONTENT) && after.size < before.size => {
            "truncated"
        }
        (ChangeKind::Modified, ..) if has(flags::CONTENT) => "written",
        (ChangeKind::Modified, ..) => "attributes",
    }
}

/// The fields that `frieze watch --help` lists.
pub(super) fn event_json(run: &mut CommandRun, sessions: &SessionNames, change: &Difference) -> Map<String, Value> {
    let (stamp, side) = (Hlc(change.stamp), named(change));
    let spans: Vec<Value> = change.spans.iter().map(|span| json!({ "offset": span.offset, "len": span.len })).collect();
    let mut item = Map::new();
    item.insert("at".to_owned(), stamp.to_string().into());
    item.insert("time".to_owned(), format::time_of(stamp).into());
    item.insert("kind".to_owned(), kind_of(change).into());
    put_path(&mut item, &side.path);
    let was = change.before.as_ref().filter(|before| change.after.as_ref().is_some_and(|it| it.path != before.path));
    item.insert("was".to_owned(), was.map(|before| String::from_utf8_lossy(&before.path).into_owned()).into());
    if let Some(before) = was.filter(|before| std::str::from_utf8(&before.path).is_err()) {
        item.insert("was_hex".to_owned(), format::hex(&before.path).into());
    }
    item.insert("type".to_owned(), side.kind().word().into());
    item.insert("inode".to_owned(), side.inode.into());
    item.insert("size".to_owned(), side.size.into());
    item.insert("spans".to_owned(), spans.into());
    item.insert("more_spans".to_owned(), change.more_spans.into());
    sessions.put_json(run, &mut item, "uid", change.uid, change.session);
    item
}
