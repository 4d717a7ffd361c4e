//! `changes`: the events of an interval, oldest first, by all sessions or some.

use std::collections::BTreeSet;

use frieze_client::{Difference, HistoryInterval, Hlc};

use crate::answers::{Authors, Change, ChangePage};
use crate::arguments::{ChangesArguments, limit_of};
use crate::error::ToolError;
use crate::page_cursor::PageCursor;
use crate::tool_context::ToolContext;
use crate::words::{count, time_of};

/// Events that one call reads at most: a filter that finds little ends with `next`, not with a long wait.
const READ_MAX: u64 = 20_000;

/// Pages of the server until the answer is full. One transaction may be more than an answer (an undo of many files), so
/// a position within a page continues it.
pub(crate) fn changes(context: &ToolContext, args: ChangesArguments) -> Result<(String, ChangePage), ToolError> {
    let path = context.path(args.path.as_deref(), args.path_hex.as_deref())?;
    let limit = limit_of(args.limit);
    let sessions: BTreeSet<u64> = context.sessions(&args.sessions)?.into_iter().collect();
    let start = context.position(args.next.as_deref(), args.from.as_deref(), args.to.as_deref(), limit)?;
    let (fs, target) = context.target_in(&path, HistoryInterval { after: start.after, upto: start.upto })?;
    let mut page = ChangePage {
        changes: Vec::new(),
        from: start.after.to_string(),
        to: start.upto.to_string(),
        next: None,
        hidden: false,
        forgotten_before: None,
    };
    let (mut position, mut read, mut authors) = (start, 0, Authors::default());
    while position.after < position.upto {
        if read >= READ_MAX {
            page.next = Some(position.to_string());
            break;
        }
        let interval = HistoryInterval { after: position.after, upto: position.upto };
        let reply = fs
            .story(&target, interval, true, position.page)
            .map_err(|source| ToolError::Client { subject: path.to_string(), source })?;
        authors.learn(reply.sessions);
        page.hidden |= reply.hidden;
        if let Some(forgotten) = reply.forgotten.filter(|forgotten| forgotten.before > start.after.0) {
            page.forgotten_before = Some(Hlc(forgotten.before).to_string());
        }
        read += reply.events.len() as u64;
        let is_wanted = |event: &Difference| sessions.is_empty() || sessions.contains(&event.session);
        let skip = usize::try_from(position.skip).unwrap_or(usize::MAX);
        for (index, event) in reply.events.iter().enumerate().skip(skip).filter(|(_, event)| is_wanted(event)) {
            let Some(change) = Change::of(&context.scope, &authors, event) else { continue };
            if page.changes.len() >= limit as usize {
                page.next = Some(PageCursor { skip: index as u64, ..position }.to_string());
                return Ok((sentence(&page, read), page));
            }
            page.changes.push(change);
        }
        let after = Hlc(reply.upto).max(position.after.next());
        position = PageCursor { after, skip: 0, ..position };
    }
    Ok((sentence(&page, read), page))
}

fn sentence(page: &ChangePage, read: u64) -> String {
    let found = count(page.changes.len() as u64, "change");
    let more = match page.next {
        Some(_) => format!(" of the first {read} events read; there are more: call again with next"),
        None => String::new(),
    };
    let until = page.to.parse().map_or_else(|_| page.to.clone(), time_of);
    format!("{found} up to {until}{more}.")
}
