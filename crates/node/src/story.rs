//! Questions about time itself: differences of two instants, what happened in a directory, who was connected.
//!
//! Guarantees: an interval is closed before it is read, so an answer asked for page by page is one answer; what of the
//! past may be seen follows the rights of then and of now.
//! Leaves to others: what changed (`timeline`), what a change means (`differences`), names that went (`gone`).

use std::collections::BTreeSet;

use frieze_base::{Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::{Cut, Named, PastSession, Resolved, changes_of};
use frieze_wire::message::{Answered, FileKind, View};
use frieze_wire::timeline::{
    CONTENT, Diff, DiffReply, Difference, SessionInfo, Sessions, SessionsReply, Span, Story, StoryReply,
};
use frieze_wire::txn::Caller;

use crate::caching::Asking;
use crate::differences::{IfForgotten, SPANS_MAX};
use crate::engine::Engine;
use crate::session::Principal;
use crate::timeline::{FileChange, Interval, Scope, Written};
use crate::views::page;

/// Bytes of paths and spans in one answer: far below the largest body of a frame.
const ANSWER_BYTES_MAX: usize = 3 << 20;
/// Writes of one run that are looked at for one that is not forgotten.
const LOST_MAX: usize = 256;
/// Transactions looked at for one page of a story, whoever may see them.
const STAMPS_MAX: usize = 20_000;

impl Engine {
    pub(crate) fn diff(&self, principal: &Principal, ask: &Diff) -> Result<DiffReply, Fault> {
        let mut interval = Interval { after: Hlc(ask.from), upto: Hlc(ask.to) };
        if interval.after > interval.upto {
            return Err(Fault::new(Reason::InvalidArgument, "the interval ends before it begins: swap its ends"));
        }
        let ends = [self.answer_start(interval.after)?, self.answer(exact(interval.upto))?];
        // Older instants show what this one does: nothing.
        interval.after = interval.after.max(self.earliest().previous());
        let found = match self.resolve_at(principal, &ask.target, interval.upto) {
            Err(fault) if fault.reason == Reason::NotFound && interval.after >= self.earliest() => {
                self.resolve_at(principal, &ask.target, interval.after)?
            }
            found => found?,
        };
        let scope = scope_of(&found, true);
        let changes = self.changes(scope, interval)?;
        let told = self.differences(&principal.caller, scope, interval, &changes, IfForgotten::Refuse)?;
        let skip = usize::try_from(ask.skip).unwrap_or(usize::MAX).min(told.all.len());
        let rest = &told.all[skip..];
        let mut bytes = 0;
        let fits = |difference: &&Difference| {
            bytes += bytes_of(difference);
            bytes <= ANSWER_BYTES_MAX
        };
        let differences: Vec<Difference> = rest.iter().take(page(ask.count_max)).take_while(fits).cloned().collect();
        Ok(DiffReply {
            sessions: self.infos(principal, differences.iter().map(|difference| difference.session))?,
            more: differences.len() < rest.len(),
            hidden: told.hidden,
            entries_read: changes.entries_read,
            incomplete: ends.iter().any(|end| end.incomplete),
            differences,
        })
    }

    /// Closes the start of an interval. There is nothing to close before the file system was made: it did not exist.
    pub(crate) fn answer_start(&self, after: Hlc) -> Result<Answered, Fault> {
        match after < self.earliest() {
            true => Ok(Answered::default()),
            false => self.answer(exact(after)),
        }
    }

    pub(crate) fn story(&self, principal: &Principal, ask: &Story, asking: &Asking) -> Result<StoryReply, Fault> {
        let mut whole = Interval { after: Hlc(ask.after), upto: Hlc(ask.upto) };
        self.answer(exact(whole.upto))?;
        self.answer(ask.view)?;
        let found = self.resolve(principal, &ask.target, ask.view.instant(), asking.reads())?;
        if !found.inode.is_directory() {
            return Err(Reason::NotDirectory.into());
        }
        let forgotten = self.forgotten(found.id, &found.inode).filter(|forgotten| forgotten.before > whole.after.0);
        if let Some(forgotten) = forgotten {
            whole.after = Hlc(forgotten.before).previous().min(whole.upto);
        }
        let scope = scope_of(&found, ask.recursive);
        let max = page(ask.count_max);
        let (mut events, upto, mut untold) = self.transactions(&principal.caller, scope, whole, max)?;
        // Writes of the same stretch of time; a page that they make too long ends earlier.
        let mut interval = Interval { upto, ..whole };
        let mut passing = Passing::of(&events);
        // What is left out may have brought a file here, and taken it away again.
        passing.any |= untold.left_out;
        let writes = loop {
            let (writes, some_untold) = self.runs(&principal.caller, scope, interval, &passing)?;
            let mut stamps: Vec<(u64, usize)> =
                events.iter().chain(&writes).map(|event| (event.stamp, bytes_of(event))).collect();
            stamps.sort_unstable();
            let mut bytes = 0;
            let over = stamps.iter().enumerate().find(|(count, (_, size))| {
                bytes += size;
                *count >= 2 * max || bytes > ANSWER_BYTES_MAX
            });
            let Some(earlier) = over.map(|(_, (stamp, _))| Hlc(*stamp).previous()).filter(|at| *at > interval.after)
            else {
                untold.hidden |= some_untold.hidden;
                untold.left_out |= some_untold.left_out;
                break writes;
            };
            interval.upto = earlier;
            // What one transaction did may be more than a page by itself: it begins the next one.
            events.retain(|event| event.stamp <= earlier.0);
        };
        events.extend(writes);
        events.sort_by_key(|event| event.stamp);
        let sessions = self.infos(principal, events.iter().map(|event| event.session))?;
        let Untold { hidden, left_out } = untold;
        Ok(StoryReply { events, upto: interval.upto.0, hidden, sessions, forgotten, left_out })
    }

    /// The first `max` or more differences that single transactions made, oldest first, and up to when these are all.
    fn transactions(
        &self,
        caller: &Caller,
        scope: Scope,
        whole: Interval,
        max: usize,
    ) -> Result<(Vec<Difference>, Hlc, Untold), Fault> {
        let history = self.meta.versions();
        let stamps = match scope {
            Scope::Names(directory) => changes_of(history, directory, whole.after, whole.upto, STAMPS_MAX)?,
            Scope::Everything | Scope::Within(_) => self.stamps(whole, STAMPS_MAX)?,
        };
        let (mut events, mut untold) = (Vec::new(), Untold::default());
        // All stamps were found, or they reach to the last of them.
        let mut upto = if stamps.len() < STAMPS_MAX { whole.upto } else { *stamps.last().expect("there are many") };
        for stamp in stamps {
            if events.len() >= max {
                upto = stamp.previous();
                break;
            }
            let interval = Interval { after: stamp.previous(), upto: stamp };
            let changes = self.names_changed(scope, interval)?;
            let told = self.differences(caller, scope, interval, &changes, IfForgotten::LeaveOut)?;
            untold.hidden |= told.hidden;
            untold.left_out |= told.left_out;
            events.extend(told.all);
        }
        Ok((events, upto, untold))
    }

    /// What sessions wrote, each as one event with the bytes of its run, in order of nothing.
    ///
    /// `passing` was within the scope at some instant between its ends.
    fn runs(
        &self,
        caller: &Caller,
        scope: Scope,
        interval: Interval,
        passing: &Passing,
    ) -> Result<(Vec<Difference>, Untold), Fault> {
        let (files, _) = self.files_changed(scope, interval, &|inode| passing.holds(inode))?;
        let (mut events, mut untold) = (Vec::new(), Untold::default());
        for file in &files {
            untold.left_out |= file.lost;
            for run in runs_of(file) {
                self.tell_run(caller, scope, file.inode, &run, &mut events, &mut untold)?;
            }
        }
        Ok((events, untold))
    }

    /// Tells a run with its newest write at which the file had a name in the scope that is not forgotten: it may have lost
    /// it, or been moved away, while the session went on writing; or a snapshot keeps what it was in the middle of the run.
    fn tell_run(
        &self,
        caller: &Caller,
        scope: Scope,
        inode: InodeId,
        run: &Run,
        events: &mut Vec<Difference>,
        untold: &mut Untold,
    ) -> Result<(), Fault> {
        let mut writes = run.writes.as_slice();
        let mut lost = 0;
        let (last, mut cut, inside) = loop {
            let Some((&(last, _), before)) = writes.split_last() else { return Ok(()) };
            let mut cut = Cut::new(self.meta.versions(), last, caller);
            let (mut inside, mut is_forgotten) = (Vec::new(), false);
            for named in cut.names(inode)? {
                if !scope.holds(&mut cut, &named)? {
                    continue;
                }
                match [inode, named.parent].into_iter().all(|id| self.check_kept(id, Some(last)).is_ok()) {
                    true => inside.push(named),
                    false => is_forgotten = true,
                }
            }
            untold.left_out |= is_forgotten;
            if !inside.is_empty() {
                break (last, cut, inside);
            }
            lost += usize::from(is_forgotten);
            if lost > LOST_MAX {
                return Ok(());
            }
            writes = before;
        };
        let Some(version) = cut.inode(inode)? else { return Ok(()) };
        let may_read = cut.allows(inode, frieze_namespace::MAY_READ)?;
        let spans = apart(writes.iter().map(|(_, span)| *span).collect());
        for named in inside {
            let Some(side) = self.side(&mut cut, Some(&named), inode, Some(&version), &mut untold.hidden)? else {
                continue;
            };
            let shown = if may_read { spans.len().min(SPANS_MAX) } else { 0 };
            events.push(Difference {
                before: Some(side.clone()),
                after: Some(side),
                flags: CONTENT,
                stamp: last.0,
                session: run.session.0,
                uid: run.uid,
                spans: spans[..shown].to_vec(),
                more_spans: may_read && spans.len() > SPANS_MAX,
            });
        }
        Ok(())
    }

    pub(crate) fn list_sessions(&self, principal: &Principal, ask: &Sessions) -> Result<SessionsReply, Fault> {
        let max = page(ask.count_max);
        let mut found =
            PastSession::list(self.meta.versions(), SessionId(ask.after), Hlc(ask.since), max.saturating_add(1))?;
        let more = found.len() > max;
        found.truncate(max);
        Ok(SessionsReply { sessions: found.into_iter().map(|session| self.info(principal, session)).collect(), more })
    }

    /// What is known of the sessions with these numbers; 0, the server itself, is left out.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn infos(
        &self,
        principal: &Principal,
        ids: impl Iterator<Item = u64>,
    ) -> Result<Vec<SessionInfo>, Fault> {
        let ids: BTreeSet<u64> = ids.filter(|id| *id != 0).collect();
        let mut infos = Vec::with_capacity(ids.len());
        for id in ids {
            let found = PastSession::find(self.meta.versions(), SessionId(id))?;
            infos.extend(found.map(|session| self.info(principal, session)));
        }
        Ok(infos)
    }

    /// True if the caller may know what a session of this user calls itself: a command line may hold what is nobody else's to know.
    pub(crate) fn may_know_command(&self, principal: &Principal, uid: u32) -> bool {
        principal.caller.uid == uid || self.is_administrator(principal)
    }

    fn info(&self, principal: &Principal, session: PastSession) -> SessionInfo {
        let PastSession { id, uid, command, host, ended } = session;
        let hidden = !self.may_know_command(principal, uid);
        let (command, host) = if hidden { Default::default() } else { (command, host) };
        let wrote = self.data.device().log().newest_of(id);
        let changed = self.meta.namespace().newest_of(id);
        let last = wrote.max(changed).max(ended).unwrap_or_default();
        SessionInfo { id: id.0, uid, command, host, ended: ended.unwrap_or_default().0, last: last.0, hidden }
    }
}

/// What is not told, and of which kind it is.
#[derive(Clone, Copy, Debug, Default)]
struct Untold {
    /// Something happened where the caller may not look.
    hidden: bool,
    /// Something happened that was forgotten since.
    left_out: bool,
}

/// What was within a scope for a part of an interval, perhaps at neither of its ends.
#[derive(Debug, Default)]
struct Passing {
    inodes: BTreeSet<u64>,
    /// Directories came or went with all that is below them: each file is looked at.
    any: bool,
}

impl Passing {
    fn of(events: &[Difference]) -> Passing {
        let mut passing = Passing::default();
        for event in events {
            passing.inodes.extend([&event.before, &event.after].into_iter().flatten().map(|side| side.inode));
            if let (Some(old), Some(new)) = (&event.before, &event.after) {
                passing.any |= old.path != new.path && old.kind() == FileKind::Directory;
            }
        }
        passing
    }

    fn holds(&self, inode: InodeId) -> bool {
        self.any || self.inodes.contains(&inode.0)
    }
}

/// What one session wrote to a file before another did.
struct Run {
    session: SessionId,
    uid: u32,
    /// When, and which bytes, oldest first.
    writes: Vec<(Hlc, Span)>,
}

fn runs_of(file: &FileChange) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for Written { range, last, session, uid, .. } in &file.writes {
        if runs.last().is_none_or(|run| (run.session, run.uid) != (*session, *uid)) {
            runs.push(Run { session: *session, uid: *uid, writes: Vec::new() });
        }
        let run = runs.last_mut().expect("there is one, or one was just added");
        run.writes.push((*last, Span { offset: range.start(), len: range.len() }));
    }
    runs
}

/// The same bytes as spans in order that do not touch.
pub(crate) fn apart(mut spans: Vec<Span>) -> Vec<Span> {
    spans.retain(|span| span.len > 0);
    spans.sort_unstable_by_key(|span| span.offset);
    let mut kept: Vec<Span> = Vec::new();
    for span in spans {
        match kept.last_mut() {
            Some(last) if last.offset + last.len >= span.offset => {
                last.len = last.len.max(span.offset + span.len - last.offset);
            }
            _ => kept.push(span),
        }
    }
    kept
}

/// An exact instant as a view.
pub(crate) fn exact(at: Hlc) -> View {
    View { at: Some(at.0), user_at: None }
}

fn scope_of(found: &Resolved, recursive: bool) -> Scope {
    match recursive {
        true if found.id == InodeId::ROOT => Scope::Everything,
        true => Scope::Within(found.id),
        false => Scope::Names(found.id),
    }
}

/// About what it takes in an answer.
fn bytes_of(difference: &Difference) -> usize {
    let side = |side: &Option<frieze_wire::timeline::Side>| side.as_ref().map_or(0, |side| side.path.len() + 48);
    side(&difference.before) + side(&difference.after) + difference.spans.len() * 12 + 32
}

impl Scope {
    /// True if a name belongs to the scope at the instant of `cut`.
    pub(crate) fn holds(self, cut: &mut Cut<'_>, named: &Named) -> Result<bool, Fault> {
        match self {
            Scope::Everything => Ok(true),
            Scope::Names(directory) => Ok(named.parent == directory),
            Scope::Within(root) => cut.is_within(named.parent, root),
        }
    }
}
