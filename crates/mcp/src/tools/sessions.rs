//! `sessions`: the sessions that may have changed something, by number and name.

use frieze_client::{Hlc, SessionName};

use crate::answers::{SessionItem, SessionPage};
use crate::arguments::{SessionsArguments, limit_of};
use crate::error::ToolError;
use crate::tool_context::ToolContext;
use crate::words::count;

/// Sessions that one call reads at most, where it looks for a name.
const READ_MAX: usize = 20_000;
/// Sessions in a request.
const PAGE: u32 = 1000;

/// Pages of the server until the answer is full.
pub(crate) fn sessions(context: &ToolContext, args: SessionsArguments) -> Result<(String, SessionPage), ToolError> {
    let limit = limit_of(args.limit) as usize;
    let name = args.name.as_deref().map(str::parse::<SessionName>).transpose();
    let name = name.map_err(|error| ToolError::Arguments(error.to_string()))?.map(|name| name.to_string());
    let since = match (args.from.as_deref(), &name) {
        (Some(from), _) => context.instant(from)?,
        // A name is looked for in all of history.
        (None, Some(_)) => Hlc::ZERO,
        (None, None) => context.instant("1h-ago")?,
    };
    let mut after = match args.next.as_deref() {
        None => 0,
        Some(next) => next.parse::<u64>().map_err(|_| {
            ToolError::Arguments(format!("next {next:?} is not the next of an earlier answer: pass it back as it was"))
        })?,
    };
    let (mut page, mut read) = (SessionPage { sessions: Vec::new(), next: None }, 0);
    loop {
        let reply = context.client()?.sessions_page(since, after, PAGE).map_err(ToolError::about("sessions"))?;
        read += reply.sessions.len();
        for info in &reply.sessions {
            let item = SessionItem::of(info);
            if name.is_none() || item.name == name {
                if page.sessions.len() >= limit {
                    page.next = Some(after.to_string());
                    return Ok((sentence(&page), page));
                }
                page.sessions.push(item);
            }
            after = info.id;
        }
        if !reply.more {
            return Ok((sentence(&page), page));
        }
        if read >= READ_MAX {
            page.next = Some(after.to_string());
            return Ok((sentence(&page), page));
        }
    }
}

fn sentence(page: &SessionPage) -> String {
    let more = if page.next.is_some() { "; there are more: call again with next" } else { "" };
    format!("{}{more}.", count(page.sessions.len() as u64, "session"))
}
