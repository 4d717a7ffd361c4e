//! What the driver keeps of each chain beside its replica, and what is left to do when the appender is free again.

use std::collections::BTreeMap;

use bytes::Bytes;
use frieze_base::{ChainEpoch, ChainId, Fault, MonoTime, NodeId};
use frieze_hlc::Hlc;
use frieze_multilog::LogPosition;

use crate::catch_up::Supply;
use crate::chains::{Report, WaitReply};
use crate::close_after::Ordered;
use crate::plane::{WriteReply, Written};
use frieze_net::SentPrefix;

/// One chain, as this node has part in it.
#[derive(Default)]
pub(crate) struct Member {
    /// Its configuration comes from elsewhere.
    pub(crate) shared: bool,
    /// What is not committed, by number: it may have to be sent.
    pub(crate) held: BTreeMap<u64, Held>,
    /// Bytes of all of that.
    pub(crate) held_bytes: u64,
    /// How much of it is in memory.
    kept_bytes: u64,
    /// The tail has said that everything stamped up to it is committed.
    pub(crate) seen: Hlc,
    /// Records of the past that are being sent to who lacks them.
    pub(crate) supply: Option<Supply>,
    /// How far it had come, and who is brought up to date by it, and since when it has come no further.
    pub(crate) come: (ChainEpoch, u64, u64, Hlc, u64),
    pub(crate) since: MonoTime,
    /// Since when it has waited without coming further.
    pub(crate) waits_since: MonoTime,
    /// The successor that is said to be out of reach.
    pub(crate) silent: Option<NodeId>,
    /// The newest promise that nobody waits for.
    pub(crate) promised: Hlc,
    /// When it was read at an instant here.
    pub(crate) read_at: Option<MonoTime>,
    /// When its head was asked to promise.
    pub(crate) asked_at: Option<MonoTime>,
    /// Who waits for other members to have it on stable storage.
    pub(crate) barriers: Vec<Barrier>,
    /// Who wants to know when it is on stable storage here, and up to which record.
    pub(crate) persisting: BTreeMap<NodeId, (u64, LogPosition)>,
    /// Changes of metadata that are to be closed.
    pub(crate) ordered: Vec<Ordered>,
}

/// Somebody waits until every member has records on stable storage.
pub(crate) struct Barrier {
    pub(crate) n: u64,
    pub(crate) left: Vec<NodeId>,
    pub(crate) asked: ChainEpoch,
    pub(crate) waiter: u64,
}

/// A record that is not committed.
pub(crate) struct Held {
    pub(crate) punch: bool,
    /// Its bytes, where they may be asked for and there is room.
    pub(crate) payload: Option<Bytes>,
    /// What of them has gone ahead.
    pub(crate) ahead: Option<SentPrefix>,
    len: u64,
    /// Their checksum.
    pub(crate) crc: u32,
}

impl Held {
    pub(crate) fn of(punch: bool, payload: Option<Bytes>, len: usize, crc: u32) -> Held {
        Held { punch, payload, ahead: None, len: len as u64, crc }
    }

    /// The same, of which some has gone ahead.
    pub(crate) fn behind(self, ahead: Option<SentPrefix>) -> Held {
        Held { ahead, ..self }
    }
}

impl Member {
    /// Of a chain that has its configuration from elsewhere, or not.
    pub(crate) fn of(shared: bool) -> Member {
        Member { shared, ..Member::default() }
    }

    /// Keeps a record, its bytes as long as no more than `kept_max` are in memory.
    pub(crate) fn hold(&mut self, n: u64, mut held: Held, kept_max: u64) {
        self.held_bytes += held.len;
        if self.kept_bytes + held.len > kept_max {
            (held.payload, held.ahead) = (None, None);
        }
        self.kept_bytes += if held.payload.is_some() { held.len } else { 0 };
        self.held.insert(n, held);
    }

    /// Lets go of what is committed. True if that was something.
    pub(crate) fn let_go(&mut self, clean: u64) -> bool {
        let mut any = false;
        while let Some(first) = self.held.first_entry().filter(|first| *first.key() <= clean) {
            let held = first.remove();
            self.held_bytes -= held.len;
            self.kept_bytes -= if held.payload.is_some() { held.len } else { 0 };
            any = true;
        }
        any
    }

    /// The replica starts anew.
    pub(crate) fn forget(&mut self) {
        (self.held, self.held_bytes, self.kept_bytes, self.supply) = (BTreeMap::new(), 0, 0, None);
    }
}

/// Somebody who waits for other members.
pub(crate) struct Waiter {
    #[expect(dead_code, reason = "told in a debugger, and by who looks for what hangs")]
    pub(crate) chain: ChainId,
    pub(crate) since: MonoTime,
    pub(crate) reply: WaitReply,
}

/// What is left to do when the appender is free again: answers are system calls, and who is told may ask.
#[derive(Default)]
pub(crate) struct Out {
    pub(crate) done: Vec<(WriteReply, Result<Written, Fault>)>,
    pub(crate) waited: Vec<(WaitReply, Result<(), Fault>)>,
    pub(crate) reports: Vec<Report>,
    pub(crate) supplies: Vec<ChainId>,
    /// Somebody waits for what was appended up to here, the last so many bytes of it.
    pub(crate) flush: Option<(LogPosition, u64)>,
    /// Others were told something: it goes when the appender is free.
    pub(crate) told: bool,
}

impl Out {
    pub(crate) fn answer(&mut self, waiter: Option<Waiter>, result: Result<(), Fault>) {
        self.waited.extend(waiter.map(|waiter| (waiter.reply, result)));
    }
}
