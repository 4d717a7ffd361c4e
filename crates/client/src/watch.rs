//! A feed of changes: the events of a file or a tree from an instant on, as they happen, with marks up to which they
//! are complete.
//!
//! Guarantees: events come in the order of their stamps; at a mark no event at or below it follows. Up to any mark two
//! feeds from one instant have the same events, for callers of the same rights: writes of a session to a file are one
//! event within a cell of time ([`CELL_US`]), wherever an answer of the server ends. The position is an instant: a feed
//! goes on from a mark of an earlier one, and the server keeps nothing for it.
//! Leaves to others: waiting for changes (`change_waits`), which events there are, and which a caller may
//! see (the server).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use frieze_base::{ErrorKind, Fault, InodeId, MonoTime, Reason};
use frieze_hlc::Hlc;
use frieze_net::mono;
use frieze_wire::forget::ForgottenHistory;
use frieze_wire::message::{Reply, Request};
use frieze_wire::timeline::{AFTER_OUTSIDE, BEFORE_OUTSIDE, CELL_US, CONTENT, Difference, SessionInfo};
use frieze_wire::txn::Target;

use crate::change_waits::{ChangeSignal, ChangeWaits};
use crate::{Error, Fs, HistoryInterval};

mod cell_events;

use self::cell_events::CellEvents;

/// What a feed has next.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchItem {
    /// One transaction changed a name or its inode, or a session wrote to a file within a cell of time.
    Event {
        /// The change; its paths are from the root.
        change: Box<Difference>,
        /// The session that made it; none for the server itself.
        session: Option<SessionInfo>,
    },
    /// No event at or below this stamp follows. A later feed may begin here.
    Resolved(Hlc),
    /// Events are missing: this history was forgotten.
    Forgotten(ForgottenHistory),
    /// Events up to the next mark are missing: the caller may not read where they happened (`false`), or a file, or
    /// another directory, has forgotten them (`true`).
    LeftOut(bool),
    /// The file or directory was removed at or below the last mark. Nothing follows.
    Removed,
}

/// A feed of changes. See [`Fs::watch`].
#[derive(Debug)]
pub struct ChangeFeed {
    fs: Fs,
    root: Target,
    /// Everything up to this stamp was read.
    position: Hlc,
    /// The last mark that was returned.
    resolved: Hlc,
    /// The last mark of all: it may still be among the ready ones.
    newest_mark: Hlc,
    /// The end of what is to be read now.
    goal: Hlc,
    cells: CellEvents,
    ready: VecDeque<WatchItem>,
    sessions: BTreeMap<u64, SessionInfo>,
    waits: ChangeWaits,
    /// Where it ends; none: never.
    upto: Hlc,
    /// Now, when it began.
    begun: Hlc,
    begun_mono: MonoTime,
    has_ended: bool,
}

impl Fs {
    /// A feed of the changes of a file, or of a directory and everything below it, that are stamped after `from`. The
    /// target is looked up now, or, if it is not there now, at `from`; then the feed follows the object, whatever its
    /// name becomes. A name that moves out of the directory is a removal.
    ///
    /// # Errors
    /// As [`Fs::stat`]: `NotFound`, also if there is no such object at `from`; `Future` if `from` is after now.
    ///
    /// # Cost
    /// While nothing changes, one request a minute to each server, and a thread for each server that waits.
    pub fn watch(&self, target: &Target, from: Hlc) -> Result<ChangeFeed, Error> {
        let found = match self.stat(target) {
            Err(error) if is_absent(&error) && from > Hlc::ZERO => self.at(from).stat(target)?,
            found => found?,
        };
        let now = Hlc(self.client_now()?);
        if from > now {
            return Err(Error::Refused(Fault::new(
                Reason::Future,
                format!("a watch cannot begin at {from}, which is after now ({now}): begin at `now`"),
            )));
        }
        Ok(ChangeFeed {
            fs: self.clone(),
            root: Target::inode(InodeId(found.attr.inode)),
            position: from,
            resolved: from,
            newest_mark: from,
            goal: last_whole_cell(now),
            cells: CellEvents::default(),
            ready: VecDeque::new(),
            sessions: BTreeMap::new(),
            waits: ChangeWaits::new(&self.shared),
            upto: Hlc::MAX,
            begun: now,
            begun_mono: mono(),
            has_ended: false,
        })
    }

    fn client_now(&self) -> Result<u64, Error> {
        match self.query(Request::Now(frieze_wire::message::Now::default()))? {
            Reply::Now(reply) => Ok(if reply.without_lease { reply.stable } else { reply.at }),
            other => Err(self.unexpected("the time", &other)),
        }
    }
}

impl ChangeFeed {
    /// The same, which ends with the events up to `upto`, inclusive, and a mark there.
    pub fn until(mut self, upto: Hlc) -> ChangeFeed {
        self.upto = upto;
        if upto <= self.begun {
            self.goal = upto;
        }
        self
    }

    /// True if nothing follows.
    pub fn has_ended(&self) -> bool {
        self.has_ended && self.ready.is_empty()
    }

    /// The next item, after a wait of at most `wait`; `None`: nothing has changed meanwhile.
    ///
    /// # Errors
    /// As any call. After `Unanswered` the next call goes on where this one was; after any other error it meets the
    /// same again.
    pub fn next(&mut self, wait: Duration) -> Result<Option<WatchItem>, Error> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                if let WatchItem::Resolved(mark) = &item {
                    self.resolved = *mark;
                }
                return Ok(Some(item));
            }
            if self.has_ended {
                return Ok(None);
            }
            if self.position >= self.upto {
                self.end();
                continue;
            }
            if self.position < self.goal {
                self.read_page()?;
                continue;
            }
            let to_end = self.time_to_end();
            match self.waits.wait(self.position, wait.min(to_end))? {
                None if wait < to_end => return Ok(None),
                // The end is there, whether or not something changed.
                None if Hlc(self.fs.client_now()?) > self.upto => self.goal = self.upto,
                None => {}
                Some(ChangeSignal::Upto(upto)) => self.goal = self.goal.max(upto),
                Some(ChangeSignal::ServerLost) => {
                    self.goal = self.goal.max(last_whole_cell(Hlc(self.fs.client_now()?)));
                    // What the lost server knew may have happened in the cell that has not ended.
                    if self.goal <= self.position {
                        self.waits.look_again();
                    }
                }
            }
        }
    }

    /// The last mark that was returned: another feed from here has the events that follow.
    pub fn resolved(&self) -> Hlc {
        self.resolved
    }

    /// The object that it follows: a later feed of it finds it under any name.
    pub fn inode(&self) -> InodeId {
        InodeId(self.root.base)
    }

    /// About how long it is until the end that was set, by the clock of this machine.
    fn time_to_end(&self) -> Duration {
        if self.upto == Hlc::MAX {
            return Duration::MAX;
        }
        let total = Duration::from_micros((self.upto.micros() + 1).saturating_sub(self.begun.micros()));
        let passed = Duration::from_nanos(mono().since_ns(self.begun_mono));
        total.saturating_sub(passed).max(END_PAUSE)
    }

    fn read_page(&mut self) -> Result<(), Error> {
        let (after, upto) = (self.position, self.goal.min(self.upto));
        let interval = HistoryInterval { after, upto };
        let story = |view| self.fs.at(view).story_in_cells(&self.root, interval, CELL_US, PAGE_EVENTS);
        let page = match story(upto) {
            Err(error) if is_absent(&error) => story(after)?,
            page => page?,
        };
        let (events, outside): (Vec<_>, Vec<_>) = page.events.into_iter().partition(is_in_tree);
        let is_hidden = page.hidden || !outside.is_empty();
        let loses_name = |event: &Difference| {
            event.after.is_none() && event.before.as_ref().is_some_and(|side| side.inode == self.root.base)
        };
        // A file may have other names.
        let is_removed = events.iter().any(loses_name) && self.is_removed_at(Hlc(page.upto))?;
        if let Some(forgotten) = page.forgotten {
            self.ready.push_back(WatchItem::Forgotten(forgotten));
        }
        for is_left_out in [is_hidden.then_some(false), page.left_out.then_some(true)].into_iter().flatten() {
            self.ready.push_back(WatchItem::LeftOut(is_left_out));
        }
        if self.sessions.len() > SESSIONS_MAX {
            self.sessions.clear();
        }
        self.sessions.extend(page.sessions.into_iter().map(|session| (session.id, session)));
        let (events, mark) = self.cells.add(events, Hlc(page.upto));
        self.resolve(events, mark);
        self.position = Hlc(page.upto).max(after.next());
        if is_removed {
            self.end();
            self.ready.push_back(WatchItem::Removed);
        }
        Ok(())
    }

    fn is_removed_at(&self, at: Hlc) -> Result<bool, Error> {
        match self.fs.at(at).stat(&self.root) {
            Err(error) if is_absent(&error) => Ok(true),
            found => Ok(found?.attr.links == 0),
        }
    }

    fn resolve(&mut self, events: Vec<Difference>, mark: Hlc) {
        for change in events {
            let change = within_tree(change);
            let session = self.sessions.get(&change.session).cloned();
            self.ready.push_back(WatchItem::Event { change: Box::new(change), session });
        }
        if mark > self.newest_mark {
            self.newest_mark = mark;
            self.ready.push_back(WatchItem::Resolved(mark));
        }
    }

    /// Everything up to the position is all there is: its last cell gets nothing more.
    fn end(&mut self) {
        let events = self.cells.end();
        self.resolve(events, self.position);
        self.has_ended = true;
    }
}

fn is_absent(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.reason() == Reason::StaleHandle
}

/// The end of the last cell of time that has passed at `now`.
fn last_whole_cell(now: Hlc) -> Hlc {
    Hlc::last_of_micros((now.micros() / CELL_US * CELL_US).saturating_sub(1))
}

/// False if the caller may know only the side that lies outside of the tree.
fn is_in_tree(change: &Difference) -> bool {
    let sides = [(BEFORE_OUTSIDE, &change.before), (AFTER_OUTSIDE, &change.after)];
    sides.into_iter().any(|(bit, side)| change.outside & bit == 0 && side.is_some())
}

/// The change as the tree has it: a name that moves in is new, one that moves out is removed.
fn within_tree(mut change: Difference) -> Difference {
    for (bit, side) in [(BEFORE_OUTSIDE, &mut change.before), (AFTER_OUTSIDE, &mut change.after)] {
        if change.outside & bit != 0 {
            *side = None;
        }
    }
    if change.outside != 0 {
        (change.flags, change.outside) = (0, 0);
        (change.spans, change.more_spans) = (Vec::new(), false);
    }
    change
}

/// True if it says that a session wrote to a file, and nothing else.
fn is_write(event: &Difference) -> bool {
    let path = |side: &Option<frieze_wire::timeline::Side>| side.as_ref().map(|side| side.path.clone());
    event.flags == CONTENT && event.before.is_some() && path(&event.before) == path(&event.after)
}

/// Shortest wait for the end that was set, where the clock of this machine runs ahead of the server's.
const END_PAUSE: Duration = Duration::from_millis(10);
/// Events of a page.
const PAGE_EVENTS: u32 = 1000;
/// Sessions that a feed remembers.
const SESSIONS_MAX: usize = 4096;
