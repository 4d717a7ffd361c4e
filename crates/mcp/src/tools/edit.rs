//! `undo` and `restore`: one change each, shown before it is made.

use frieze_client::{ActionKind, EditAction, EditReply, Fs, Hlc, Undo};

use crate::answers::{EditOutcome, PlannedAction, TakeBack};
use crate::arguments::{RestoreArguments, UndoArguments, limit_of};
use crate::error::ToolError;
use crate::tool_context::ToolContext;
use crate::words::{count, hex_unless_text, lossy, time_of};

/// `undo`.
pub(crate) fn undo(context: &ToolContext, args: UndoArguments) -> Result<(String, EditOutcome), ToolError> {
    let dry_run = args.dry_run.unwrap_or(true);
    if !dry_run {
        context.check_may_change("undo with dry_run false")?;
    }
    check_next(args.next, dry_run)?;
    let path = context.path(args.path.as_deref(), args.path_hex.as_deref())?;
    if args.sessions.is_empty() && args.from.is_none() {
        return Err(ToolError::Arguments(
            "whose changes, or since when? give sessions, or from (such as the at of a checkpoint), or both".to_owned(),
        ));
    }
    let sessions = context.sessions(&args.sessions)?;
    let from = args.from.as_deref().map(|text| context.instant(text)).transpose()?;
    let upto = args.to.as_deref().map(|text| context.instant(text)).transpose()?;
    if let (Some(from), Some(to)) = (from, upto)
        && from > to
    {
        return Err(ToolError::Backward { from, to });
    }
    let fs = context.client()?.fs();
    // A directory that was removed since is found at the start.
    let opened = sessions.iter().min().map(|first| Hlc(*first));
    let views = views(&fs, from.or(opened));
    let undo = Undo {
        target: context.scope.target(&views, &path)?,
        sessions,
        uid: None,
        after: from.map_or(0, |at| at.0),
        upto: upto.map_or(0, |at| at.0),
        dry_run,
    };
    let reply = fs.undo(undo).map_err(ToolError::about(path.to_string()))?;
    outcome(context, reply, dry_run, args.limit, args.next, "undone")
}

/// `restore`.
pub(crate) fn restore(context: &ToolContext, args: RestoreArguments) -> Result<(String, EditOutcome), ToolError> {
    let dry_run = args.dry_run.unwrap_or(true);
    if !dry_run {
        context.check_may_change("restore with dry_run false")?;
    }
    check_next(args.next, dry_run)?;
    if args.path.is_none() && args.path_hex.is_none() {
        return Err(ToolError::Arguments("path is missing: the file or directory to restore".to_owned()));
    }
    let path = context.path(args.path.as_deref(), args.path_hex.as_deref())?;
    let at = context.instant(&args.to)?;
    let fs = context.client()?.fs();
    let target = context.scope.target(&views(&fs, Some(at)), &path)?;
    let delete = args.delete.unwrap_or(false);
    let reply = fs.restore(&target, at, delete, dry_run).map_err(ToolError::about(path.to_string()))?;
    outcome(context, reply, dry_run, args.limit, args.next, "restored")
}

fn views(fs: &Fs, then: Option<Hlc>) -> Vec<Fs> {
    std::iter::once(fs.clone()).chain(then.map(|at| fs.at(at))).collect()
}

fn check_next(next: Option<u64>, dry_run: bool) -> Result<(), ToolError> {
    match next {
        Some(_) if !dry_run => {
            let words = "next lists further actions of a dry run: leave it out to make the change";
            Err(ToolError::Arguments(words.to_owned()))
        }
        _ => Ok(()),
    }
}

fn outcome(
    context: &ToolContext,
    mut reply: EditReply,
    dry_run: bool,
    limit: Option<u32>,
    next: Option<u64>,
    done: &str,
) -> Result<(String, EditOutcome), ToolError> {
    // Stable: by path within each of the two.
    reply.actions.sort_by_key(|action| action.kind() != ActionKind::Left);
    let left = reply.actions.iter().filter(|action| action.kind() == ActionKind::Left).count() as u64;
    let listed = reply.actions.len() as u64;
    let changes = reply.count.saturating_sub(left);
    let skip = usize::try_from(next.unwrap_or(0)).unwrap_or(usize::MAX).min(reply.actions.len());
    let shown = &reply.actions[skip..];
    let shown = &shown[..shown.len().min(limit_of(limit) as usize)];
    let end = (skip + shown.len()) as u64;
    let stamp = Hlc(reply.stamp);
    let is_done = reply.stamp != 0;
    let outcome = EditOutcome {
        dry_run,
        changes,
        left,
        actions: shown.iter().map(planned).collect(),
        next: (dry_run && end < listed).then_some(end),
        not_listed: (reply.count > listed).then_some(reply.count - listed),
        refused: (reply.refused != 0).then(|| reply.refused_words.clone()),
        at: is_done.then(|| stamp.to_string()),
        time: is_done.then(|| time_of(stamp)),
        take_back: match is_done {
            true => Some(TakeBack {
                sessions: vec![context.client()?.session().map_err(ToolError::about("this session"))?.0.to_string()],
                from: stamp.previous().to_string(),
                to: stamp.to_string(),
            }),
            false => None,
        },
    };
    let mut text = match (dry_run, is_done) {
        (true, _) if changes == 0 => "Nothing would change.".to_owned(),
        (true, _) => format!(
            "{} would be made; nothing has changed. Call again with dry_run false to do it.",
            count(changes, "change")
        ),
        (false, false) => "There was nothing to do.".to_owned(),
        (false, true) => {
            format!("{}, {done} at {stamp}. take_back has the arguments that undo it.", count(changes, "change"))
        }
    };
    if let Some(refused) = &outcome.refused {
        text.push_str(&format!(" It would be refused now: {refused}."));
    }
    if left > 0 {
        text.push_str(&format!(" {} left as it is, for the reasons that its actions name.", count(left, "thing")));
    }
    if end - skip as u64 != reply.count {
        text.push_str(&format!(" {} of {} actions are listed.", shown.len(), reply.count));
    }
    Ok((text, outcome))
}

fn planned(action: &EditAction) -> PlannedAction {
    let exact = |at: u64| (at != 0).then(|| Hlc(at).to_string());
    let has_bytes = matches!(action.kind(), ActionKind::Bytes | ActionKind::Left) && action.len > 0;
    PlannedAction {
        action: action.kind().word(),
        path: lossy(&action.path),
        path_hex: hex_unless_text(&action.path),
        offset: has_bytes.then_some(action.offset),
        len: has_bytes.then_some(action.len),
        why: (!action.words.is_empty()).then(|| action.words.clone()),
        newest: exact(action.newest),
        older: exact(action.older),
    }
}
