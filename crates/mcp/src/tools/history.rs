//! `history`: the versions of a file, or the events of a directory, newest first; also of a deleted one.

use frieze_base::Reason;
use frieze_client::{FileKind, Fs, HistoryInterval, Hlc, Target, Version, VersionKind};

use crate::answers::{Authors, Change, Deletion, FileVersionItem, HistoryAnswer};
use crate::arguments::{HistoryArguments, limit_of};
use crate::error::ToolError;
use crate::page_cursor::PageCursor;
use crate::scoped_path::ScopedPath;
use crate::tool_context::ToolContext;
use crate::words::{count, lossy, time_of};

/// One page. A deleted path is looked up at the newest instant at which it existed.
pub(crate) fn history(context: &ToolContext, args: HistoryArguments) -> Result<(String, HistoryAnswer), ToolError> {
    if args.path.is_none() && args.path_hex.is_none() {
        return Err(ToolError::Arguments("path is missing: the file or directory".to_owned()));
    }
    let path = context.path(args.path.as_deref(), args.path_hex.as_deref())?;
    let limit = limit_of(args.limit);
    let position = match (&args.next, &args.from) {
        (None, None) => {
            let upto = args.to.as_deref().map_or_else(|| context.now(), |to| context.instant(to))?;
            PageCursor { after: Hlc::ZERO, upto, page: limit, skip: 0 }
        }
        _ => context.position(args.next.as_deref(), args.from.as_deref(), args.to.as_deref(), limit)?,
    };
    let (fs, target, deleted) = found(context, &path, position.upto)?;
    let stat = fs.stat(&target).map_err(ToolError::about(path.to_string()))?;
    let mut page = HistoryAnswer {
        path: path.to_string(),
        kind: if stat.attr.kind() == FileKind::Directory { "directory" } else { "file" },
        deleted,
        versions: None,
        events: None,
        next: None,
        forgotten_before: None,
    };
    let number = match page.kind {
        "directory" => events(context, &fs, &target, &path, position, limit, &mut page)?,
        _ => versions(&fs, &target, &path, position, &mut page)?,
    };
    let things = if page.kind == "directory" { "event" } else { "version" };
    let mut text = format!("{path}: {}", count(number as u64, things));
    if let Some(deleted) = &page.deleted {
        let session = &deleted.by.session;
        text.push_str(&format!("; it was removed by session {session}, and was last there at {}", deleted.last_at));
    }
    if page.next.is_some() {
        text.push_str("; there are older ones: call again with next");
    }
    Ok((format!("{text}."), page))
}

/// The object of a path, its view, and how it was removed.
fn found(context: &ToolContext, path: &ScopedPath, upto: Hlc) -> Result<(Fs, Target, Option<Deletion>), ToolError> {
    let fs = context.client()?.fs();
    match context.target_in(path, HistoryInterval { after: upto, upto }) {
        Ok((view, target)) => return Ok((view, target, None)),
        Err(error) if error.is(Reason::NotFound) => {}
        Err(error) => return Err(error),
    }
    let reply = fs.at(upto).last_existed(&path.to_string_bytes()).map_err(ToolError::about(path.to_string()))?;
    let (at, was) = (Hlc(reply.at), reply.was);
    let mut authors = Authors::default();
    authors.learn(reply.sessions);
    // The path is there again: it was not at the end of the interval.
    let view = if reply.at == 0 { fs.at(context.now()?) } else { fs.at(at) };
    let target = context.scope.target(std::slice::from_ref(&view), path)?;
    let deletion = (reply.at != 0).then(|| Deletion {
        last_at: at.to_string(),
        time: time_of(at),
        moved_to: Some(&was.moved_to).filter(|to| !to.is_empty() && context.scope.shows(to)).map(|to| lossy(to)),
        by: authors.author(was.session, was.uid),
    });
    Ok((view, target, deletion))
}

fn versions(
    fs: &Fs,
    target: &Target,
    path: &ScopedPath,
    position: PageCursor,
    page: &mut HistoryAnswer,
) -> Result<usize, ToolError> {
    let interval = HistoryInterval { after: position.after, upto: position.upto };
    let reply = fs.log_newest(target, interval, position.page).map_err(ToolError::about(path.to_string()))?;
    let mut authors = Authors::default();
    authors.learn(reply.sessions);
    let versions: Vec<FileVersionItem> = reply.versions.iter().map(|version| item(version, &authors)).collect();
    let rest = PageCursor { upto: Hlc(reply.after), ..position };
    page.next = (reply.more && rest.after < rest.upto).then(|| rest.to_string());
    page.forgotten_before = reply.forgotten.map(|forgotten| Hlc(forgotten.before).to_string());
    let number = versions.len();
    page.versions = Some(versions);
    Ok(number)
}

fn events(
    context: &ToolContext,
    fs: &Fs,
    target: &Target,
    path: &ScopedPath,
    position: PageCursor,
    limit: u32,
    page: &mut HistoryAnswer,
) -> Result<usize, ToolError> {
    let interval = HistoryInterval { after: position.after, upto: position.upto };
    let reply = fs.story_newest(target, interval, false, position.page).map_err(ToolError::about(path.to_string()))?;
    let mut authors = Authors::default();
    authors.learn(reply.sessions);
    let skip = usize::try_from(position.skip).unwrap_or(usize::MAX).min(reply.events.len());
    // One transaction may have more events than an answer.
    let end = reply.events.len().min(skip.saturating_add(limit as usize));
    let events: Vec<Change> =
        reply.events[skip..end].iter().filter_map(|event| Change::of(&context.scope, &authors, event)).collect();
    let before = Hlc(reply.after).min(position.upto.previous());
    let rest = match end < reply.events.len() {
        true => PageCursor { skip: end as u64, ..position },
        false => PageCursor { upto: before.max(position.after), skip: 0, ..position },
    };
    page.next = (rest.after < rest.upto).then(|| rest.to_string());
    page.forgotten_before = reply.forgotten.map(|forgotten| Hlc(forgotten.before).to_string());
    let number = events.len();
    page.events = Some(events);
    Ok(number)
}

fn item(version: &Version, authors: &Authors) -> FileVersionItem {
    let (kind, stamp) = (version.kind(), Hlc(version.stamp));
    let is_write = matches!(kind, VersionKind::Write | VersionKind::Punch);
    FileVersionItem {
        kind: kind.word(),
        at: stamp.to_string(),
        time: time_of(stamp),
        offset: is_write.then_some(version.offset),
        len: (is_write || kind == VersionKind::Truncate).then_some(version.len),
        name: (!version.name.is_empty()).then(|| lossy(&version.name)),
        by: authors.author(version.session, version.uid),
    }
}
