//! Restore and undo: the plan first, then the change, as one transaction with the rights of the user.

use askama::Template;
use frieze_client::{ActionKind, EditAction, EditReply, Fs, Hlc, Reason, Target, Undo};

use super::files::address;
use crate::error::{PageRefusal, about};
use crate::frame::{Frame, render};
use crate::paths::PagePath;
use crate::query::Params;
use crate::reply::ConsoleReply;
use crate::visit::{Visit, target};
use crate::words::{bytes, count, shown, time_of};

/// Actions that a page lists.
const ROWS_MAX: usize = 300;

/// One action of a plan.
struct ActionRow {
    word: &'static str,
    path: String,
    details: String,
    is_left: bool,
}

#[derive(Template)]
#[template(path = "edit.html")]
struct EditPage {
    frame: Frame,
    crumbs: Vec<(String, String)>,
    heading: String,
    /// What the change does, in a sentence.
    words: String,
    rows: Vec<ActionRow>,
    /// How many actions are not listed; empty if all are.
    unlisted: String,
    /// What would change, in numbers.
    sum: String,
    /// Why it would be refused; empty if it would not.
    refused: String,
    /// It has been done: where it can be taken back.
    undo: String,
    /// It is a plan that can be carried out.
    may_go_on: bool,
    /// The label of the button.
    button: String,
    /// A box of the form: names that were made since are removed.
    has_delete: bool,
    delete: bool,
    back: String,
    action: String,
    /// Where the plan is made again, and of which instant.
    plan: String,
    to: String,
}

/// The plan of restoring a file or tree to an instant.
pub(super) fn restore_plan(visit: &Visit<'_>, path: &PagePath, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    restore_page(visit, path, query, query.flag("delete"), EditStep::Plan)
}

/// Restores a file or tree.
pub(super) fn restore(visit: &Visit<'_>, path: &PagePath, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    restore_page(visit, path, query, visit.form.flag("delete"), EditStep::Make)
}

/// The plan of an undo.
pub(super) fn undo_plan(visit: &Visit<'_>, path: &PagePath, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    undo_page(visit, path, query, EditStep::Plan)
}

/// Undoes what sessions did, or what was done in an interval.
pub(super) fn undo(visit: &Visit<'_>, path: &PagePath, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    undo_page(visit, path, query, EditStep::Make)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EditStep {
    Plan,
    Make,
}

fn restore_page(
    visit: &Visit<'_>,
    path: &PagePath,
    query: &Params,
    delete: bool,
    step: EditStep,
) -> Result<ConsoleReply, PageRefusal> {
    let missing = || PageRefusal::bad("to is missing: the instant whose state comes back");
    let to = visit.instant_of(query, "to")?.ok_or_else(missing)?;
    let reply = visit.fs().restore(&target(path), to, delete, step == EditStep::Plan).map_err(about(path.shown()))?;
    let what = format!("{} to {}", path.shown(), time_of(to));
    note(visit, step, &reply, format!("Restored {what}"));
    let page = EditPage {
        heading: format!("Restore {what} UTC"),
        words: "The state of that instant comes back by one change, made now. The state that it replaces stays \
                readable at every instant before, and no byte is copied."
            .to_owned(),
        button: "Restore".to_owned(),
        has_delete: true,
        delete,
        back: address(path.as_bytes(), Some(to)),
        action: format!("/restore{}?to={to}", path.escaped()),
        plan: format!("/restore{}", path.escaped()),
        to: to.to_string(),
        ..outcome(visit, path, &reply, step)
    };
    Ok(render(&page))
}

fn undo_page(visit: &Visit<'_>, path: &PagePath, query: &Params, step: EditStep) -> Result<ConsoleReply, PageRefusal> {
    let number = |text: &str| text.parse().map_err(|_| PageRefusal::bad(format!("{text:?} is no number of a session")));
    let sessions: Vec<u64> =
        query.all("session").filter(|text| !text.is_empty()).map(number).collect::<Result<_, _>>()?;
    let (from, to) = (visit.instant_of(query, "from")?, visit.instant_of(query, "to")?);
    if sessions.is_empty() && from.is_none() {
        return Err(PageRefusal::bad("whose changes, or since when? give session, or from, or both"));
    }
    let opened = sessions.iter().min().map(|first| Hlc(*first));
    let undo = Undo {
        target: existing(visit, path, from.or(opened))?,
        sessions: sessions.clone(),
        uid: None,
        after: from.map_or(0, |at| at.0),
        upto: to.map_or(0, |at| at.0),
        dry_run: step == EditStep::Plan,
    };
    let reply = visit.fs().undo(undo).map_err(about(path.shown()))?;
    let whose = match &sessions[..] {
        [] => "all changes".to_owned(),
        [one] => format!("the changes of session {one}"),
        many => format!("the changes of {}", count(many.len() as u64, "session")),
    };
    let when = match (from, to) {
        (Some(from), Some(to)) => format!(" after {}, up to {}", time_of(from), time_of(to)),
        (Some(from), None) => format!(" after {}", time_of(from)),
        (None, Some(to)) => format!(" up to {}", time_of(to)),
        (None, None) => String::new(),
    };
    let what = format!("{whose}{when} in {}", path.shown());
    note(visit, step, &reply, format!("Undid {what}"));
    let mut action = format!("/undo{}?", path.escaped());
    for session in &sessions {
        action.push_str(&format!("session={session}&"));
    }
    for (name, at) in [("from", from), ("to", to)] {
        if let Some(at) = at {
            action.push_str(&format!("{name}={at}&"));
        }
    }
    let page = EditPage {
        heading: format!("Undo {what}"),
        words: "Each name, attribute and byte whose newest version is theirs gets the version before. What others \
                changed later stays, and is listed. It is one change, made now, and can be undone itself."
            .to_owned(),
        button: "Undo".to_owned(),
        back: format!("/changes{}", path.escaped()),
        action: action.trim_end_matches(['&', '?']).to_owned(),
        ..outcome(visit, path, &reply, step)
    };
    Ok(render(&page))
}

/// A file or directory as it is now; one that was removed since, as it was then.
fn existing(visit: &Visit<'_>, path: &PagePath, then: Option<Hlc>) -> Result<Target, PageRefusal> {
    let stat = |fs: &Fs| fs.stat(&target(path));
    match (stat(&visit.fs()), then) {
        (Err(error), Some(then)) if error.reason() == Reason::NotFound => {
            let stat = stat(&visit.fs().at(then)).map_err(about(path.shown()))?;
            Ok(Target::inode(frieze_client::InodeId(stat.attr.inode)))
        }
        (found, _) => found.map(|_| target(path)).map_err(about(path.shown())),
    }
}

/// Keeps what was made: a browser that goes away in the middle finds it on the page of sessions.
fn note(visit: &Visit<'_>, step: EditStep, reply: &EditReply, words: String) {
    if step == EditStep::Make && reply.stamp != 0 {
        tracing::info!(uid = visit.signed_in.uid, "console: {words}");
        visit.note_done(words, Hlc(reply.stamp));
    }
}

fn outcome(visit: &Visit<'_>, path: &PagePath, reply: &EditReply, step: EditStep) -> EditPage {
    let is_left = |action: &&EditAction| action.kind() == ActionKind::Left;
    let left = reply.actions.iter().filter(is_left).count() as u64;
    let changes = reply.count.saturating_sub(left);
    let (first, rest): (Vec<&EditAction>, Vec<&EditAction>) = reply.actions.iter().partition(is_left);
    let rows: Vec<ActionRow> = first.into_iter().chain(rest).take(ROWS_MAX).map(action_row).collect();
    let unlisted = reply.count.saturating_sub(rows.len() as u64);
    let left_words = if left > 0 { format!(" {} left as it is.", count(left, "thing")) } else { String::new() };
    let is_made = reply.stamp != 0;
    let sum = match (step, is_made) {
        (EditStep::Plan, _) if changes == 0 => format!("Nothing would change.{left_words}"),
        (EditStep::Plan, _) => format!("{} would be made.{left_words}", count(changes, "change")),
        (EditStep::Make, false) => format!("There was nothing to do.{left_words}"),
        (EditStep::Make, true) => {
            format!("Done: {}, at {} UTC.{left_words}", count(changes, "change"), time_of(Hlc(reply.stamp)))
        }
    };
    let undo = match is_made {
        true => format!("/undo/?from={}&to={}", Hlc(reply.stamp).previous(), Hlc(reply.stamp)),
        false => String::new(),
    };
    EditPage {
        frame: Frame::new(visit, "files", if is_made { "Done" } else { "Plan" }),
        crumbs: path.crumbs(),
        heading: String::new(),
        words: String::new(),
        rows,
        unlisted: if unlisted > 0 { count(unlisted, "more action") } else { String::new() },
        sum,
        refused: reply.refused_words.clone(),
        undo,
        may_go_on: step == EditStep::Plan && changes > 0 && reply.refused == 0,
        button: String::new(),
        has_delete: false,
        delete: false,
        back: String::new(),
        action: String::new(),
        plan: String::new(),
        to: String::new(),
    }
}

fn action_row(action: &EditAction) -> ActionRow {
    let has_bytes = matches!(action.kind(), ActionKind::Bytes | ActionKind::Left) && action.len > 0;
    let span = if has_bytes { format!("{} at {}", bytes(action.len), action.offset) } else { String::new() };
    let details =
        [span, shown(action.words.as_bytes())].into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>();
    ActionRow {
        word: action.kind().word(),
        path: shown(&action.path),
        details: details.join(", "),
        is_left: action.kind() == ActionKind::Left,
    }
}
