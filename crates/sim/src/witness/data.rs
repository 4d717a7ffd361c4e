//! The effects of a write or a punch: a record in each chunk that it reaches, and grants that only the server knows.

use frieze_base::Reason;
use frieze_hlc::Hlc;

use super::{CHUNK_BYTES, Expectation, PERHAPS, Witness};
use crate::exchange::{ClientRequest, Handle};
use crate::journal::{Act, Effect, LogPlace};
use crate::machine::Marks;
use crate::model::bytes::{Cut, FilePunch, FileWrite};
use crate::model::{GrantState, RequestEffect};
use crate::violation::{Rule, Verdict, broken};

/// A change of a file's bytes as it was asked for.
struct ByteChange {
    /// In words.
    what: &'static str,
    inode: u64,
    offset: u64,
    /// Records that it has to make.
    parts: u64,
    /// Transactions that the server may make for it: grants.
    grants_max: u64,
    act: Act,
    /// Why it may be refused, and has to be unless it is one of `PERHAPS`.
    refusals: Vec<Reason>,
}

impl Witness {
    pub(super) fn account_write(
        &mut self,
        ask: &ClientRequest,
        append: bool,
        offset: u64,
        before: Marks,
        after: Marks,
    ) -> Verdict<Expectation> {
        let handle = ask.handle.as_ref().expect("writes go through a handle");
        let (inode, len) = (handle.inode, ask.payload.len() as u64);
        // Every record in the log counts, also without an answer to its client: it may be committed later.
        let offset = if append { self.model.tree.bytes(inode).size(Cut::NOW) } else { offset };
        let (first, last) = (offset / CHUNK_BYTES, (offset + len - 1) / CHUNK_BYTES);
        let session = ask.header.session.0;
        let write =
            FileWrite { session, offset, bytes: ask.payload.clone(), user_time: self.user_time(handle, &ask.payload) };
        let refusals = self.refusals_of_write(ask, handle, &write, append);
        let change = ByteChange {
            what: "a write",
            inode,
            offset,
            parts: last - first + 1,
            grants_max: if append { 1 + len / (16 * CHUNK_BYTES) + 1 } else { 0 },
            act: Act::Write { inode, write },
            refusals,
        };
        self.account_change(ask, change, before, after)
    }

    pub(super) fn account_punch(
        &mut self,
        ask: &ClientRequest,
        offset: u64,
        len: u64,
        before: Marks,
        after: Marks,
    ) -> Verdict<Expectation> {
        let handle = ask.handle.as_ref().expect("holes go through a handle");
        let inode = handle.inode;
        let (first, last) = (offset / CHUNK_BYTES, (offset + len - 1) / CHUNK_BYTES);
        // The chunk it begins in, and those that were ever written.
        let parts = 1 + self.model.tree.bytes(inode).chunks_written(first + 1, last, CHUNK_BYTES);
        let change = ByteChange {
            what: "a hole",
            inode,
            offset,
            parts,
            grants_max: parts,
            act: Act::Punch { inode, punch: FilePunch { session: ask.header.session.0, offset, len } },
            refusals: self.refusals_of_handle(ask, handle).unwrap_or_default(),
        };
        self.account_change(ask, change, before, after)
    }

    fn account_change(
        &mut self,
        ask: &ClientRequest,
        change: ByteChange,
        before: Marks,
        after: Marks,
    ) -> Verdict<Expectation> {
        let (session, seq) = (ask.header.session.0, ask.header.seq.0);
        let ByteChange { what, inode, offset, parts, grants_max, act, mut refusals } = change;
        let what = format!("{what} at {offset} of inode {inode}");
        if self.is_behind(ask) {
            // A number that the client has left behind, answered or not.
            refusals.push(Reason::SequenceTooOld);
        }
        let first = offset / CHUNK_BYTES;
        // The server's own transaction: it has no number, and a stamp of its own before that of the records.
        let grant = |index| {
            let stamp = self.machine.logged(index).map_or(after.newest, |(stamp, _)| stamp);
            Effect::new(LogPlace::Meta(index), stamp, (session, 0, 0), Act::TailGrant { inode, first })
        };
        let (entries, records) = (after.index - before.index, after.records - before.records);
        if entries > grants_max {
            return broken(Rule::Once, format!("{what} made {entries} entries in the metalog"));
        }
        if entries > 0 {
            let granted: Vec<Effect> = (before.index + 1..=after.index).map(grant).collect();
            self.journal.effects.extend(granted);
            self.model.granted_tail(session, inode, first);
        }
        let ran = self.model.sessions.get(&session).and_then(|state| state.ran.get(&seq)).cloned();
        let effect = Effect::new(LogPlace::Data(before.records + parts), after.newest, (session, seq, 0), act);
        if records == 0 {
            // Died in the middle of the records, or of a grant before them.
            let granted = (grants_max > 0).then(|| grant(after.index + 1));
            self.doubts = granted.into_iter().chain([effect]).collect();
            if ran.is_none() && refusals.is_empty() && !self.machine.is_dying() {
                refusals.push(Reason::NoSpace);
            }
            return Ok(Expectation::Write { did: ran, refusals });
        }
        if let Some(ran) = ran {
            let words = format!("request {seq} of session {session} ran again: it was {ran:?}");
            return broken(Rule::Once, format!("{words} and made {records} more records"));
        }
        if records != parts {
            return broken(Rule::Linearizable, format!("{what} over {parts} chunks made {records} records"));
        }
        if refusals.iter().any(|reason| !PERHAPS.contains(reason)) {
            let words = format!("{what} was done, and should be refused");
            return broken(Rule::PromisedErrors, format!("{words}: {refusals:?}"));
        }
        self.check_stamp(after.newest)?;
        match &effect.act {
            Act::Write { write, .. } => self.model.wrote(seq, inode, after.newest, write.clone()),
            Act::Punch { punch, .. } => self.model.punched(seq, inode, after.newest, *punch),
            other => unreachable!("{other:?} has no records"),
        }
        self.journal.effects.push(effect);
        self.unsure.insert(after.newest, inode);
        Ok(Expectation::Write { did: Some(RequestEffect::Wrote { stamp: after.newest, offset }), refusals: Vec::new() })
    }

    /// Why this write is to be refused; reasons of `PERHAPS` only may be.
    fn refusals_of_write(&self, ask: &ClientRequest, handle: &Handle, write: &FileWrite, append: bool) -> Vec<Reason> {
        let mut perhaps = Vec::new();
        let node = self.model.tree.node(handle.inode, Hlc::MAX);
        let lacks_time = node.is_some_and(|node| !node.plugin.is_empty()) && write.user_time.is_none();
        if let Some(mut refusals) = self.refusals_of_handle(ask, handle) {
            // A fault of the record itself is also allowed for a file that has expired, and for a session that has
            // ended: both faults are true.
            if lacks_time && [Reason::HistoryExpired, Reason::UnknownSession].iter().any(|also| refusals.contains(also))
            {
                refusals.push(Reason::InvalidArgument);
            }
            return refusals;
        }
        if lacks_time {
            return vec![Reason::InvalidArgument];
        }
        let (first, last) = (write.offset / CHUNK_BYTES, (write.end() - 1) / CHUNK_BYTES);
        match self.model.may_write(write.session, handle.inode, first, last) {
            GrantState::Yes => {}
            _ if append => {}
            GrantState::No => return vec![Reason::Busy],
            GrantState::Perhaps => perhaps.push(Reason::Busy),
        }
        let newest = self.model.tree.newest_user_time(handle.inode);
        if write.user_time.is_some() && write.user_time < newest {
            perhaps.push(Reason::BackwardUserTime);
        }
        perhaps
    }

    /// The time of a record: the first eight bytes, in microseconds.
    fn user_time(&self, handle: &Handle, payload: &[u8]) -> Option<i64> {
        let node = self.model.tree.node(handle.inode, Hlc::MAX)?;
        if node.plugin.is_empty() {
            return None;
        }
        let field: [u8; 8] = payload.get(..8)?.try_into().ok()?;
        i64::try_from(u64::from_le_bytes(field)).ok()?.checked_mul(1000)
    }
}
