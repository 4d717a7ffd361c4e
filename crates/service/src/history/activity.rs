//! Queries about time itself: differences between two instants, activity in a directory, past sessions.
//!
//! Guarantees: an interval is closed before it is read, so the pages of an answer are one answer; the rights of then
//! and of now both decide what of the past is visible. A page costs its own events and the others of its time, each
//! directory on the way up once; the next page begins where it ended.
//! Leaves to others: the changes (`change_feed`), the meaning of a change (`diff`), deleted names (`deleted`).

use std::collections::BTreeSet;

use frieze_base::{Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::{MAY_READ, PastSession, TreeAt, TxnChanges};
use frieze_planes::Principal;
use frieze_wire::message::{FileKind, InstantInfo, View};
use frieze_wire::timeline::{
    CONTENT, ChangedSpan, Diff, DiffReply, Difference, SessionInfo, Sessions, SessionsReply, Story, StoryReply,
};
use frieze_wire::txn::Caller;

use crate::history::History;
use crate::history::change_feed::{FileChange, Written, is_one_cell};
use crate::history::diff::{IfForgotten, SPANS_MAX, apart};
use crate::history::scope::{Area, Scope, records_max, scope_of};
use crate::history::tree_pair::{CutPair, Interval};
use crate::history::unshown::{Page, UnshownKey};
use crate::read::page;
use crate::session::cache_leases::CacheLeaseRequest;

/// Most bytes of paths and spans in one answer: far below the largest body of a frame.
const ANSWER_BYTES_MAX: usize = 3 << 20;
/// Most subjects (names, inodes and attributes) in the transactions read for one page of activity.
const SUBJECTS_MAX: usize = 1 << 16;
/// Least transactions read for a page of the newest events.
const NEWEST_MIN: usize = 256;

impl History {
    pub(crate) fn diff(&self, principal: &Principal, ask: &Diff) -> Result<DiffReply, Fault> {
        let mut interval = Interval { after: Hlc(ask.from), upto: Hlc(ask.to) };
        if interval.after > interval.upto {
            return Err(Fault::new(Reason::InvalidArgument, "the interval ends before it begins: swap its ends"));
        }
        let ends = [self.answer_start(interval.after)?, self.planes.answer(View::exact(interval.upto))?];
        // Older instants show the same as this one: nothing.
        interval.after = interval.after.max(self.planes.earliest().previous());
        let found = match self.planes.resolve_at(principal, &ask.target, interval.upto) {
            Err(fault) if fault.reason == Reason::NotFound && interval.after >= self.planes.earliest() => {
                self.planes.resolve_at(principal, &ask.target, interval.after)?
            }
            found => found?,
        };
        let scope = scope_of(&found, true);
        let (caller, max) = (&principal.caller, page(ask.count_max));
        let asked = UnshownKey { caller: caller.clone(), scope, interval, forgotten: self.times_forgotten() };
        let incomplete = ends.iter().any(|end| end.incomplete);
        let reply = |page: Page, entries_read: u64| {
            let sessions = self.infos(principal, page.differences.iter().map(|difference| difference.session))?;
            let Page { differences, more, hidden } = page;
            Ok(DiffReply { differences, more, hidden, sessions, entries_read, incomplete })
        };
        let mut cuts = CutPair::new(self.planes.meta.history(), interval, caller);
        if let Some(page) = self.unshown.page(&asked, ask.skip, max, ANSWER_BYTES_MAX)
            && self.shows_all(&mut cuts, caller, &page.differences)?
        {
            return reply(page, 0);
        }
        let changes = self.changes(scope, interval, &mut cuts)?;
        let mut told = self.differences(caller, scope, &mut cuts, &changes, IfForgotten::Refuse)?;
        let skip = usize::try_from(ask.skip).unwrap_or(usize::MAX).min(told.all.len());
        let mut rest = told.all.split_off(skip);
        let mut bytes = 0;
        let fits = |difference: &&Difference| {
            bytes += bytes_of(difference);
            bytes <= ANSWER_BYTES_MAX
        };
        let count = rest.iter().take(max).take_while(fits).count();
        self.unshown.keep(asked, ask.skip + count as u64, &rest[count..], told.hidden);
        let more = count < rest.len();
        rest.truncate(count);
        reply(Page { differences: rest, more, hidden: told.hidden }, changes.entries_read)
    }

    /// Number of expiries of history, and the last one: an answer about the past depends on them too.
    fn times_forgotten(&self) -> (usize, Hlc) {
        let forgettings = self.planes.meta.forgetting_count();
        (forgettings.count, forgettings.last)
    }

    /// True if the caller may see all of these differences, which an earlier page found for the same caller: a right
    /// may have been revoked since.
    fn shows_all(&self, cuts: &mut CutPair<'_>, caller: &Caller, found: &[Difference]) -> Result<bool, Fault> {
        if caller.uid == 0 {
            return Ok(true);
        }
        for difference in found {
            for (cut, side) in [(&mut cuts.before, &difference.before), (&mut cuts.after, &difference.after)] {
                let Some(side) = side else { continue };
                let id = InodeId(side.inode);
                if !difference.spans.is_empty() && !cut.allows(id, MAY_READ)? {
                    return Ok(false);
                }
                let mut is_shown = id == InodeId::ROOT && cut.may_list(id)?;
                for named in cut.names(id)? {
                    if !is_shown && side.path.ends_with(&named.name) && cut.may_list(named.parent)? {
                        let directory = cut.path(named.parent)?;
                        is_shown = directory.is_some_and(|path| [&path[..], b"/", &named.name].concat() == side.path);
                    }
                }
                if !is_shown {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Closes the start of an interval. Before the file system was made there is nothing to close.
    pub(crate) fn answer_start(&self, after: Hlc) -> Result<InstantInfo, Fault> {
        match after < self.planes.earliest() {
            true => Ok(InstantInfo::default()),
            false => self.planes.answer(View::exact(after)),
        }
    }

    pub(crate) fn story(
        &self,
        principal: &Principal,
        ask: &Story,
        asking: &CacheLeaseRequest,
    ) -> Result<StoryReply, Fault> {
        let mut whole = Interval { after: Hlc(ask.after), upto: Hlc(ask.upto) };
        self.planes.answer(View::exact(whole.upto))?;
        self.planes.answer(ask.view)?;
        let found = self.planes.resolve(principal, &ask.target, ask.view.instant(), asking.reads())?;
        if !found.inode.is_directory() && !ask.recursive {
            return Err(Reason::NotDirectory.into());
        }
        let forgotten =
            self.planes.forgotten(found.id, &found.inode).filter(|forgotten| forgotten.before > whole.after.0);
        if let Some(forgotten) = forgotten {
            whole.after = Hlc(forgotten.before).previous().min(whole.upto);
        }
        let area = self.area(scope_of(&found, ask.recursive), whole, ask.cell_us)?;
        let max = page(ask.count_max);
        let (ActivityPage { events, upto }, untold) = match ask.newest_first {
            true => self.newest_story_of(&principal.caller, &area, &mut whole, max)?,
            false => self.story_of(&principal.caller, &area, whole, max)?,
        };
        let sessions = self.infos(principal, events.iter().map(|event| event.session))?;
        let Untold { hidden, left_out } = untold;
        Ok(StoryReply { events, upto: upto.0, hidden, sessions, forgotten, left_out, after: whole.after.0 })
    }

    /// The newest events in an interval within a scope, newest first: a page of about `max`. On return `whole` begins
    /// where the page ends.
    fn newest_story_of(
        &self,
        caller: &Caller,
        area: &Area,
        whole: &mut Interval,
        max: usize,
    ) -> Result<(ActivityPage, Untold), Fault> {
        // A small page costs the same: reading fewer transactions at a time finds one event no sooner.
        let looked_at = max.max(NEWEST_MIN);
        whole.after = self.newest_since(area, *whole, looked_at)?;
        let (mut told, untold) = loop {
            let (told, untold) = self.story_of(caller, area, *whole, looked_at)?;
            if told.upto >= whole.upto {
                break (told, untold);
            }
            // If so short a time holds more than a page, its later part comes first.
            whole.after = told.upto;
        };
        told.events.reverse();
        if let Some(last) = told.events.get(max - 1).map(|event| event.stamp) {
            told.events.retain(|event| event.stamp >= last);
            whole.after = whole.after.max(Hlc(last).previous());
        }
        Ok((told, untold))
    }

    /// Estimated start of a page that ends with the interval, for events spread as usual; the start of the interval if
    /// all of it may be a page.
    fn newest_since(&self, area: &Area, whole: Interval, max: usize) -> Result<Hlc, Fault> {
        let Interval { upto, .. } = whole;
        let after = area.reach_back(self.planes.data.device(), whole, records_max(max));
        let history = self.planes.meta.history();
        if let Some(stamps) = area.stamps(Interval { after, upto }) {
            return Ok(stamps.len().checked_sub(max).map_or(after, |first| stamps[first].previous()));
        }
        match area.scope {
            Scope::Names(directory) => history.newest_changes_since(directory, (after, upto), max),
            Scope::Everything | Scope::Within(_) => history.newest_transactions_since((after, upto), max, SUBJECTS_MAX),
        }
    }

    /// The events in an interval within a scope, oldest first: a page of about `max`.
    fn story_of(
        &self,
        caller: &Caller,
        area: &Area,
        mut whole: Interval,
        max: usize,
    ) -> Result<(ActivityPage, Untold), Fault> {
        whole.upto = area.reach(self.planes.data.device(), whole, records_max(max));
        let transactions = self.transactions(area, &mut whole, records_max(max))?;
        let (mut events, upto, mut untold) = self.steps(caller, area, whole, &transactions, max)?;
        // Writes of the same stretch of time; if they make the page too long, it ends earlier.
        let mut interval = Interval { upto, ..whole };
        let mut passing = Passing::of(&events);
        // A hidden change may have moved a file into the scope, and out of it again.
        passing.any |= untold.left_out;
        let writes = loop {
            let (writes, some_untold) = self.runs(caller, area, interval, &transactions, &passing)?;
            let mut stamps: Vec<(u64, usize)> =
                events.iter().chain(&writes).map(|event| (event.stamp, bytes_of(event))).collect();
            stamps.sort_unstable();
            // A run that continues beyond the end of the page is reported with its writes until then: an end a little
            // earlier would have as many events. So the page gets half as long.
            let bytes: usize = stamps.iter().map(|(_, size)| size).sum();
            let is_over = stamps.len() > 2 * max || bytes > ANSWER_BYTES_MAX;
            let mut sum = 0;
            let mut beyond = stamps.iter().enumerate().skip_while(|(count, (_, size))| {
                sum += size;
                *count < max && sum <= ANSWER_BYTES_MAX / 2
            });
            let end = beyond.next().filter(|_| is_over).map(|(_, (stamp, _))| Hlc(*stamp).previous());
            let Some(earlier) = end.filter(|at| *at > interval.after) else {
                untold.hidden |= some_untold.hidden;
                untold.left_out |= some_untold.left_out;
                break writes;
            };
            interval.upto = earlier;
            // One transaction may be more than a page by itself: it begins the next page.
            events.retain(|event| event.stamp <= earlier.0);
        };
        events.extend(writes);
        events.sort_by_key(|event| event.stamp);
        Ok((ActivityPage { events, upto: interval.upto }, untold))
    }

    /// The transactions of an interval that may have changed something within `scope`, oldest first. If they are too
    /// many for a page, the interval ends with the last of them.
    fn transactions(&self, area: &Area, interval: &mut Interval, max: usize) -> Result<Vec<TxnChanges>, Fault> {
        let (history, Interval { after, upto }) = (self.planes.meta.history(), *interval);
        let stamps = match (area.stamps(*interval), area.scope) {
            (Some(stamps), _) => stamps[..stamps.len().min(max)].to_vec(),
            (None, Scope::Names(directory)) => history.changes_of(directory, (after, upto), max)?,
            (None, _) => {
                let (found, end) = history.transactions((after, upto), max, SUBJECTS_MAX)?;
                interval.upto = end;
                return Ok(found);
            }
        };
        if stamps.len() == max {
            interval.upto = *stamps.last().expect("there are many");
        }
        let mut found = Vec::with_capacity(stamps.len());
        for stamp in stamps {
            found.extend(history.transactions((stamp.previous(), stamp), 1, SUBJECTS_MAX)?.0);
        }
        Ok(found)
    }

    /// The first `max` or more differences of single transactions, oldest first, and the stamp up to which they are
    /// complete.
    fn steps(
        &self,
        caller: &Caller,
        area: &Area,
        whole: Interval,
        transactions: &[TxnChanges],
        max: usize,
    ) -> Result<(Vec<Difference>, Hlc, Untold), Fault> {
        let (mut events, mut untold) = (Vec::new(), Untold::default());
        let mut cuts = self.sweep(caller, area, whole.after);
        for transaction in transactions {
            if events.len() >= max {
                return Ok((events, transaction.stamp.previous(), untold));
            }
            let cuts = cuts.before(transaction)?;
            let changes = self.changes_by(transaction, area.scope, cuts)?;
            let told = self.differences(caller, area.scope, cuts, &changes, IfForgotten::LeaveOut)?;
            untold.hidden |= told.hidden;
            untold.left_out |= told.left_out;
            events.extend(told.all);
        }
        Ok((events, whole.upto, untold))
    }

    /// The writes of sessions, each run as one event with its bytes, in no order.
    ///
    /// `passing`: inodes that were within the scope at some instant between its ends.
    fn runs(
        &self,
        caller: &Caller,
        area: &Area,
        interval: Interval,
        transactions: &[TxnChanges],
        passing: &Passing,
    ) -> Result<(Vec<Difference>, Untold), Fault> {
        let mut ends = CutPair::new(self.planes.meta.history(), interval, caller);
        let (files, _) = self.files_changed(area, interval, &mut ends, &|inode| passing.holds(inode))?;
        let (mut events, mut untold) = (Vec::new(), Untold::default());
        untold.left_out = files.iter().any(|file| file.lost);
        let runs: Vec<Run> = files.iter().flat_map(|file| runs_of(file, area.cell_us)).collect();
        let mut last: Vec<(usize, usize)> = runs.iter().map(|run| run.writes.len() - 1).enumerate().collect();
        let found = self.report_runs(caller, area, interval, transactions, &runs, &mut last)?;
        // The file had lost its name by then, or had been moved out, while the session still wrote; or only a snapshot
        // keeps the state in the middle of the run: an earlier write represents the run.
        let rest = found.iter().zip(&runs).enumerate().filter(|(_, (told, _))| !told.is_inside());
        let mut earlier: Vec<(usize, usize)> =
            rest.flat_map(|(number, (_, run))| (0..run.writes.len() - 1).map(move |write| (number, write))).collect();
        let found_earlier = self.report_runs(caller, area, interval, transactions, &runs, &mut earlier)?;
        for ((told, earlier), run) in found.into_iter().zip(found_earlier).zip(&runs) {
            for mut told in [told, earlier] {
                told.show_spans(run);
                events.extend(told.events);
                untold.hidden |= told.untold.hidden;
                untold.left_out |= told.untold.left_out;
            }
        }
        Ok((events, untold))
    }

    /// Reports runs by one of their writes, given in order for each run: the newest at which the file had a name in the
    /// scope that has not expired. `writes`: numbers of the run and of the write.
    fn report_runs(
        &self,
        caller: &Caller,
        area: &Area,
        interval: Interval,
        transactions: &[TxnChanges],
        runs: &[Run],
        writes: &mut [(usize, usize)],
    ) -> Result<Vec<ToldRun>, Fault> {
        let mut told: Vec<ToldRun> = runs.iter().map(|_| ToldRun::default()).collect();
        writes.sort_by_key(|&(run, write)| runs[run].writes[write].0);
        let mut sweep = self.sweep(caller, area, interval.after);
        let mut following = transactions.iter().peekable();
        for &(number, write) in &*writes {
            let at = runs[number].writes[write].0;
            while let Some(transaction) = following.next_if(|transaction| transaction.stamp <= at) {
                sweep.before(transaction)?;
            }
            let cut = sweep.at(at)?;
            let next = self.report_run(cut, area.scope, &runs[number], write)?;
            let is_forgotten = next.untold.left_out;
            match next.is_inside() {
                true => told[number] = next,
                false => told[number].untold.left_out |= is_forgotten,
            }
        }
        Ok(told)
    }

    /// Reports a run up to one of its writes, at the instant of that write.
    fn report_run(&self, cut: &mut TreeAt<'_>, scope: Scope, run: &Run, write: usize) -> Result<ToldRun, Fault> {
        let (mut told, inode, last) = (ToldRun::default(), run.inode, cut.at());
        let mut inside = Vec::new();
        for named in cut.names(inode)? {
            if !scope.is_root(inode) && !scope.holds(cut, &named)? {
                continue;
            }
            match [inode, named.parent].into_iter().all(|id| self.planes.meta.check_kept(id, Some(last)).is_ok()) {
                true => inside.push(named),
                false => told.untold.left_out = true,
            }
        }
        told.names = inside.len();
        if inside.is_empty() {
            return Ok(told);
        }
        let Some(version) = cut.inode(inode)? else { return Ok(told) };
        told.spans_upto = cut.allows(inode, MAY_READ)?.then_some(write);
        for named in inside {
            let Some(side) = self.side(cut, Some(&named), inode, Some(&version), &mut told.untold.hidden)? else {
                continue;
            };
            told.events.push(Difference {
                before: Some(side.clone()),
                after: Some(side),
                flags: CONTENT,
                stamp: last.0,
                session: run.session.0,
                uid: run.uid,
                ..Difference::default()
            });
        }
        Ok(told)
    }

    /// The tree from `after` on, for the transactions that follow it.
    fn sweep<'a>(&'a self, caller: &'a Caller, area: &Area, after: Hlc) -> Sweep<'a> {
        let knows_all = area.is_everything_that_changed();
        Sweep { history: self, caller, knows_all, cuts: CutPair::at(self.planes.meta.history(), after, caller) }
    }

    pub(crate) fn list_sessions(&self, principal: &Principal, ask: &Sessions) -> Result<SessionsReply, Fault> {
        let max = page(ask.count_max);
        let mut found =
            self.planes.meta.history().sessions(SessionId(ask.after), Hlc(ask.since), max.saturating_add(1))?;
        let more = found.len() > max;
        found.truncate(max);
        Ok(SessionsReply { sessions: found.into_iter().map(|session| self.info(principal, session)).collect(), more })
    }

    /// Information about the sessions with these numbers; 0, the server itself, is left out.
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
            let found = self.planes.meta.history().session(SessionId(id))?;
            infos.extend(found.map(|session| self.info(principal, session)));
        }
        Ok(infos)
    }

    fn info(&self, principal: &Principal, session: PastSession) -> SessionInfo {
        let PastSession { id, uid, command, host, ended } = session;
        let hidden = !self.planes.may_know_command(principal, uid);
        let (command, host) = if hidden { Default::default() } else { (command, host) };
        let wrote = self.planes.data.device().log().newest_of(id);
        let changed = self.planes.meta.newest_of_session(id);
        let last = wrote.max(changed).max(ended).unwrap_or_default();
        SessionInfo { id: id.0, uid, command, host, ended: ended.unwrap_or_default().0, last: last.0, hidden }
    }
}

/// A page of activity.
struct ActivityPage {
    events: Vec<Difference>,
    /// The page is complete up to this stamp.
    upto: Hlc,
}

/// Reasons for events missing from a page.
#[derive(Clone, Copy, Debug, Default)]
struct Untold {
    /// Something happened where the caller has no access.
    hidden: bool,
    /// Something happened whose history has expired since.
    left_out: bool,
}

/// Inodes that were within a scope for a part of an interval, perhaps at neither of its ends.
#[derive(Debug, Default)]
struct Passing {
    inodes: BTreeSet<u64>,
    /// Directories came or went with everything below them: each file has to be checked.
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

/// The tree as it moves through the transactions of a page.
struct Sweep<'a> {
    history: &'a History,
    caller: &'a Caller,
    /// Every transaction passes by: if it did not change an entry, the entry is as before.
    knows_all: bool,
    cuts: CutPair<'a>,
}

impl<'a> Sweep<'a> {
    /// The tree just before and just after a transaction, later than those before it.
    fn before(&mut self, transaction: &TxnChanges) -> Result<&mut CutPair<'a>, Fault> {
        match self.knows_all {
            true => self.cuts.advance(transaction.stamp, transaction.inodes().collect())?,
            false => {
                let interval = Interval { after: transaction.stamp.previous(), upto: transaction.stamp };
                self.cuts = CutPair::new(self.history.planes.meta.history(), interval, self.caller);
            }
        }
        Ok(&mut self.cuts)
    }

    /// The tree at an instant before the next transaction.
    fn at(&mut self, at: Hlc) -> Result<&mut TreeAt<'a>, Fault> {
        match self.knows_all {
            true => self.cuts.after.advance(at, [])?,
            false => self.cuts.after = self.history.planes.meta.history().tree_at(at, self.caller),
        }
        Ok(&mut self.cuts.after)
    }
}

/// Report of a run.
#[derive(Debug, Default)]
struct ToldRun {
    /// One event for each visible name.
    events: Vec<Difference>,
    /// Names in the scope that have not expired.
    names: usize,
    /// The write up to which the bytes of the run are shown; `None` if the caller may not read them.
    spans_upto: Option<usize>,
    untold: Untold,
}

impl ToldRun {
    fn is_inside(&self) -> bool {
        self.names > 0
    }

    /// Adds the written bytes, which do not count for an event that another one replaces.
    fn show_spans(&mut self, run: &Run) {
        let Some(upto) = self.spans_upto.filter(|_| !self.events.is_empty()) else { return };
        let spans = apart(run.writes[..=upto].iter().map(|(_, span)| *span).collect());
        for event in &mut self.events {
            event.spans = spans[..spans.len().min(SPANS_MAX)].to_vec();
            event.more_spans = spans.len() > SPANS_MAX;
        }
    }
}

/// The writes of one session to a file before another session writes it, or a cell of time ends.
struct Run {
    inode: InodeId,
    session: SessionId,
    uid: u32,
    /// Stamp and bytes of each write, oldest first.
    writes: Vec<(Hlc, ChangedSpan)>,
}

fn runs_of(file: &FileChange, cell_us: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for Written { range, last, session, uid, .. } in &file.writes {
        let is_same = |run: &Run| (run.session, run.uid) == (*session, *uid);
        let goes_on = |run: &Run| is_same(run) && is_one_cell(run.writes[run.writes.len() - 1].0, *last, cell_us);
        if !runs.last().is_some_and(goes_on) {
            runs.push(Run { inode: file.inode, session: *session, uid: *uid, writes: Vec::new() });
        }
        let run = runs.last_mut().expect("there is one, or one was just added");
        run.writes.push((*last, ChangedSpan { offset: range.start(), len: range.len() }));
    }
    runs
}

/// Approximate size in an answer.
fn bytes_of(difference: &Difference) -> usize {
    let side = |side: &Option<frieze_wire::timeline::Side>| side.as_ref().map_or(0, |side| side.path.len() + 48);
    side(&difference.before) + side(&difference.after) + difference.spans.len() * 12 + 32
}
