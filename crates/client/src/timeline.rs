//! Queries about history: differences between two instants, events in a directory, deleted names, sessions.

use frieze_hlc::Hlc;
use frieze_wire::message::{Reply, Request};
use frieze_wire::timeline::{
    Deleted, DeletedReply, Diff, DiffReply, LastExisted, LastExistedReply, SessionInfo, Sessions, SessionsReply, Story,
    StoryReply, Usage, UsageReply,
};
use frieze_wire::txn::Target;

use crate::interval::HistoryInterval;
use crate::{Client, Error, Fs};

/// Which events of a story come first, and where runs of writes are divided.
#[derive(Clone, Copy)]
enum StoryOrder {
    Oldest { cell_us: u64 },
    Newest,
}

impl Fs {
    /// A page of the differences between the ends of `interval`, of a file or of everything below a directory: those
    /// after the first `skip`, at most `count_max` (0 leaves it to the server). The instant of this view does not
    /// matter.
    ///
    /// The server reads the changes of the interval, not the tree.
    pub fn diff(
        &self,
        target: &Target,
        interval: HistoryInterval,
        skip: u64,
        count_max: u32,
    ) -> Result<DiffReply, Error> {
        let (from, to) = (interval.after.0, interval.upto.0);
        match self.query(Request::Diff(Diff { target: target.clone(), from, to, skip, count_max }))? {
            Reply::Diff(reply) => Ok(reply),
            other => Err(self.unexpected("differences", &other)),
        }
    }

    /// A page of the events of a directory and the names in it, with `recursive` of everything below: about
    /// `count_max` events (0 leaves it to the server). The directory is looked up at the view. The next page is the
    /// interval after `upto` of the reply.
    pub fn story(
        &self,
        target: &Target,
        interval: HistoryInterval,
        recursive: bool,
        count_max: u32,
    ) -> Result<StoryReply, Error> {
        self.story_in(target, interval, recursive, count_max, StoryOrder::Oldest { cell_us: 0 })
    }

    /// As [`Fs::story`], the newest events first. The next page is the interval up to `after` of the reply, unless that
    /// is its start.
    pub fn story_newest(
        &self,
        target: &Target,
        interval: HistoryInterval,
        recursive: bool,
        count_max: u32,
    ) -> Result<StoryReply, Error> {
        self.story_in(target, interval, recursive, count_max, StoryOrder::Newest)
    }

    /// As [`Fs::story`] of everything below, with runs of writes divided at multiples of `cell_us` microseconds since
    /// 1970: what a program wrote for an hour is an event in each cell of it.
    pub fn story_in_cells(
        &self,
        target: &Target,
        interval: HistoryInterval,
        cell_us: u64,
        count_max: u32,
    ) -> Result<StoryReply, Error> {
        self.story_in(target, interval, true, count_max, StoryOrder::Oldest { cell_us })
    }

    fn story_in(
        &self,
        target: &Target,
        interval: HistoryInterval,
        recursive: bool,
        count_max: u32,
        order: StoryOrder,
    ) -> Result<StoryReply, Error> {
        let request = Story {
            target: target.clone(),
            view: self.view(),
            after: interval.after.0,
            upto: interval.upto.0,
            recursive,
            count_max,
            newest_first: matches!(order, StoryOrder::Newest),
            cell_us: if let StoryOrder::Oldest { cell_us } = order { cell_us } else { 0 },
        };
        match self.query(Request::Story(request))? {
            Reply::Story(reply) => Ok(reply),
            other => Err(self.unexpected("events", &other)),
        }
    }

    /// The newest instant at which a path from the root existed, and the actor that removed the name.
    ///
    /// # Errors
    /// `Refused` with `NotFound` if it never existed, or if the caller could not have read its directory.
    pub fn last_existed(&self, path: &[u8]) -> Result<LastExistedReply, Error> {
        match self.query(Request::LastExisted(LastExisted { path: path.to_vec() }))? {
            Reply::LastExisted(reply) => Ok(reply),
            other => Err(self.unexpected("an instant", &other)),
        }
    }

    /// A page of the names that once existed in a directory and do not at the view: those after `after`, at most
    /// `count_max` (0 leaves it to the server).
    pub fn deleted(&self, target: &Target, after: &[u8], count_max: u32) -> Result<DeletedReply, Error> {
        let request = Deleted { target: target.clone(), view: self.view(), after: after.to_vec(), count_max };
        match self.query(Request::Deleted(request))? {
            Reply::Deleted(reply) => Ok(reply),
            other => Err(self.unexpected("names", &other)),
        }
    }

    /// A page of the present and historical sizes of the files of one directory: of the names after `after`.
    pub fn usage(&self, target: &Target, after: &[u8]) -> Result<UsageReply, Error> {
        let request = Usage { target: target.clone(), view: self.view(), after: after.to_vec(), count_max: 0 };
        match self.query(Request::Usage(request))? {
            Reply::Usage(reply) => Ok(reply),
            other => Err(self.unexpected("sizes", &other)),
        }
    }

    /// A page of the sessions that were open after `since`, ended ones included, oldest first: of those numbered above
    /// `after`, at most `count_max`; 0 leaves it to the server. Command and host are of the caller's own sessions only;
    /// an administrator reads those of all users.
    ///
    /// # Errors
    /// As any call.
    pub fn sessions_page(&self, since: Hlc, after: u64, count_max: u32) -> Result<SessionsReply, Error> {
        match self.query(Request::Sessions(Sessions { since: since.0, after, count_max }))? {
            Reply::Sessions(reply) => Ok(reply),
            other => Err(self.unexpected("sessions", &other)),
        }
    }
}

impl Client {
    /// One session, open or ended; `None` if no session ever had this number.
    ///
    /// # Errors
    /// As any call.
    pub fn session_info(&self, id: u64) -> Result<Option<SessionInfo>, Error> {
        let page = self.sessions_page(Hlc::ZERO, id.saturating_sub(1), 1)?;
        Ok(page.sessions.into_iter().find(|session| session.id == id))
    }

    /// As [`Fs::sessions_page`], of the client's own user.
    ///
    /// # Errors
    /// As any call.
    pub fn sessions_page(&self, since: Hlc, after: u64, count_max: u32) -> Result<SessionsReply, Error> {
        self.fs().sessions_page(since, after, count_max)
    }
}
