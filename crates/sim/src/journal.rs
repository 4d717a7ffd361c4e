//! All changes of the server's state, in their order: the single linear order, and what a crash may take from its end.

use frieze_hlc::Hlc;
use frieze_wire::txn::Op;

use crate::model::Model;
use crate::model::bytes::{FilePunch, FileWrite};

/// One change.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    /// Where its log ended after it.
    pub(crate) place: LogPlace,
    pub(crate) stamp: Hlc,
    pub(crate) session: u64,
    pub(crate) seq: u64,
    pub(crate) acked: u64,
    pub(crate) act: Act,
    /// Number of the inode that it made; 0 if it made none.
    pub(crate) made: u64,
    /// The client may have the answer.
    pub(crate) answered: bool,
    /// A client was told that it is durable.
    pub(crate) durable: bool,
}

impl Effect {
    /// A change without an answer so far, of a session under a number (0: the server's own); the session has
    /// acknowledged every number below `acked`.
    pub(crate) fn new(place: LogPlace, stamp: Hlc, (session, seq, acked): (u64, u64, u64), act: Act) -> Effect {
        Effect { place, stamp, session, seq, acked, act, made: 0, answered: false, durable: false }
    }
}

/// The end of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogPlace {
    /// Index of the entry in the metalog.
    Meta(u64),
    /// Number of records in the device log, this one's included.
    Data(u64),
}

/// A change.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// The file system was made.
    Format { mode: u32 },
    /// A transaction of a client, or the one that the server made of its edit or forgetting.
    Txn(Box<Op>),
    /// An edit or an expiry during which the server crashed: if it is in the log, the log says what it was.
    Planned,
    /// A part of an edit: it changes nothing.
    Staged,
    /// The server granted the session of an append or a punch chunks that only it knows.
    TailGrant { inode: u64, first: u64 },
    /// The server ended a session that was gone too long.
    Expired,
    /// Bytes.
    Write { inode: u64, write: FileWrite },
    /// A hole.
    Punch { inode: u64, punch: FilePunch },
}

/// The changes so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    pub(crate) effects: Vec<Effect>,
}

impl Journal {
    /// The change with a stamp. If the disk stopped during a grant for it, the grant is recorded before it, under the
    /// same stamp.
    pub(crate) fn stamped(&self, stamp: Hlc) -> Option<&Effect> {
        let place = self.effects.partition_point(|effect| effect.stamp <= stamp);
        self.effects[..place].last().filter(|effect| effect.stamp == stamp)
    }

    /// The newest change with this number that had an effect of its own.
    pub(crate) fn of_request(&mut self, session: u64, seq: u64) -> Option<&mut Effect> {
        let mine = |effect: &&mut Effect| effect.session == session && effect.seq == seq;
        self.effects.iter_mut().rev().find(mine)
    }

    /// A client received the answer that everything up to the `count`-th change is durable.
    pub(crate) fn durable_up_to(&mut self, count: usize) {
        // All changes before the last marked one are marked too.
        for effect in self.effects[..count].iter_mut().rev() {
            if effect.durable {
                break;
            }
            effect.durable = true;
        }
    }

    /// Removes the changes beyond the ends that a restart found, and returns them.
    pub(crate) fn cut(&mut self, index: u64, records: u64) -> Vec<(usize, Effect)> {
        let survives = |effect: &Effect| match effect.place {
            LogPlace::Meta(end) => end <= index,
            LogPlace::Data(end) => end <= records,
        };
        let mut lost = Vec::new();
        let mut order = 0;
        self.effects.retain(|effect| {
            order += 1;
            let survives = survives(effect);
            if !survives {
                lost.push((order - 1, effect.clone()));
            }
            survives
        });
        lost
    }

    /// The ends of both logs: entries and records.
    pub(crate) fn ends(&self) -> (u64, u64) {
        let mut ends = (0, 0);
        for effect in &self.effects {
            match effect.place {
                LogPlace::Meta(end) => ends.0 = end.max(ends.0),
                LogPlace::Data(end) => ends.1 = end.max(ends.1),
            }
        }
        ends
    }

    /// The model that these changes lead to.
    pub(crate) fn replay(&self) -> Model {
        let mut model = Model::default();
        for effect in &self.effects {
            match &effect.act {
                Act::Format { mode } => model = Model::format(effect.stamp, *mode),
                Act::Txn(op) => {
                    if effect.made != 0 {
                        model.tree.expect_number(op, effect.made);
                    }
                    model.run(effect.session, effect.seq, effect.acked, op, effect.stamp);
                }
                // Read from the log before it was put here.
                Act::Planned | Act::Staged => {}
                Act::TailGrant { inode, first } => model.granted_tail(effect.session, *inode, *first),
                Act::Expired => {
                    model.sessions.remove(&effect.session);
                }
                Act::Punch { inode, punch } => model.punched(effect.seq, *inode, effect.stamp, *punch),
                Act::Write { inode, write } => model.wrote(effect.seq, *inode, effect.stamp, write.clone()),
            }
        }
        model
    }
}
