//! Questions about time: what changed between two instants, what happened in a directory, what once was there.

use frieze_hlc::Hlc;
use frieze_wire::message::{Reply, Request};
use frieze_wire::timeline::{
    Deleted, DeletedReply, Diff, DiffReply, LastSeen, LastSeenReply, SessionInfo, Sessions, SessionsReply, Story,
    StoryReply, Usage, UsageReply,
};
use frieze_wire::txn::Target;

use crate::{Client, Error, Fs};

/// (after, upto]: what was stamped later than the one and not later than the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Exclusive start.
    pub after: Hlc,
    /// Inclusive end.
    pub upto: Hlc,
}

impl Interval {
    /// Everything until now.
    pub const WHOLE: Interval = Interval { after: Hlc::ZERO, upto: Hlc::MAX };
}

impl Fs {
    /// A page of what is different between the ends of `interval`, of a file or of everything below a directory: those
    /// after the first `skip`, at most `count_max` (0 leaves it to the server). The view plays no part.
    ///
    /// The server reads what changed in the interval, not the tree.
    pub fn diff(&self, target: &Target, interval: Interval, skip: u64, count_max: u32) -> Result<DiffReply, Error> {
        let (from, to) = (interval.after.0, interval.upto.0);
        match self.ask(Request::Diff(Diff { target: target.clone(), from, to, skip, count_max }))? {
            Reply::Diff(reply) => Ok(reply),
            other => Err(self.unexpected("differences", &other)),
        }
    }

    /// A page of what happened to a directory and the names in it, with `recursive` to everything below: about
    /// `count_max` events (0 leaves it to the server). The directory is looked up at the view. To go on, ask again with the
    /// interval after `upto` of the answer.
    pub fn story(
        &self,
        target: &Target,
        interval: Interval,
        recursive: bool,
        count_max: u32,
    ) -> Result<StoryReply, Error> {
        self.story_in(target, interval, recursive, count_max, false)
    }

    /// As [`Fs::story`], the newest events first. To go on, ask again with the interval up to `after` of the answer, unless that
    /// is its start.
    pub fn story_newest(
        &self,
        target: &Target,
        interval: Interval,
        recursive: bool,
        count_max: u32,
    ) -> Result<StoryReply, Error> {
        self.story_in(target, interval, recursive, count_max, true)
    }

    fn story_in(
        &self,
        target: &Target,
        interval: Interval,
        recursive: bool,
        count_max: u32,
        newest_first: bool,
    ) -> Result<StoryReply, Error> {
        let request = Story {
            target: target.clone(),
            view: self.view(),
            after: interval.after.0,
            upto: interval.upto.0,
            recursive,
            count_max,
            newest_first,
        };
        match self.ask(Request::Story(request))? {
            Reply::Story(reply) => Ok(reply),
            other => Err(self.unexpected("events", &other)),
        }
    }

    /// The newest instant at which a path from the root existed, and who took the name.
    ///
    /// # Errors
    /// `Refused` with `NotFound` if it never was there, or if the caller could not have seen it.
    pub fn last_seen(&self, path: &[u8]) -> Result<LastSeenReply, Error> {
        match self.ask(Request::LastSeen(LastSeen { path: path.to_vec() }))? {
            Reply::LastSeen(reply) => Ok(reply),
            other => Err(self.unexpected("an instant", &other)),
        }
    }

    /// A page of the names that once were in a directory and are not at the view: those after `after`, at most `count_max`
    /// (0 leaves it to the server).
    pub fn deleted(&self, target: &Target, after: &[u8], count_max: u32) -> Result<DeletedReply, Error> {
        let request = Deleted { target: target.clone(), view: self.view(), after: after.to_vec(), count_max };
        match self.ask(Request::Deleted(request))? {
            Reply::Deleted(reply) => Ok(reply),
            other => Err(self.unexpected("names", &other)),
        }
    }

    /// A page of what the files of one directory take now and in their history: of the names after `after`.
    pub fn usage(&self, target: &Target, after: &[u8]) -> Result<UsageReply, Error> {
        let request = Usage { target: target.clone(), view: self.view(), after: after.to_vec(), count_max: 0 };
        match self.ask(Request::Usage(request))? {
            Reply::Usage(reply) => Ok(reply),
            other => Err(self.unexpected("sizes", &other)),
        }
    }
}

impl Client {
    /// What is known of one session, whether or not it is still open; `None` if there never was one of this number.
    ///
    /// # Errors
    /// As any call.
    pub fn session_info(&self, id: u64) -> Result<Option<SessionInfo>, Error> {
        let fs = self.fs();
        let ask = Sessions { since: 0, after: id.saturating_sub(1), count_max: 1 };
        match fs.ask(Request::Sessions(ask))? {
            Reply::Sessions(reply) => Ok(reply.sessions.into_iter().find(|session| session.id == id)),
            other => Err(fs.unexpected("sessions", &other)),
        }
    }

    /// A page of the sessions that were open after `since`, those that have ended included, oldest first: of those numbered above
    /// `after`, at most `count_max`; 0 leaves it to the server. Command and host are those of the caller's own sessions; an
    /// administrator reads everybody's.
    ///
    /// # Errors
    /// As any call.
    pub fn sessions_page(&self, since: Hlc, after: u64, count_max: u32) -> Result<SessionsReply, Error> {
        let fs = self.fs();
        match fs.ask(Request::Sessions(Sessions { since: since.0, after, count_max }))? {
            Reply::Sessions(reply) => Ok(reply),
            other => Err(fs.unexpected("sessions", &other)),
        }
    }
}
