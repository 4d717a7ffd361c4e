//! What a punch did: as a write, in the chunks that have something to hide.

use frieze_base::Reason;

use super::{Ask, CHUNK_BYTES, Expect, PERHAPS, Witness};
use crate::journal::{Act, Effect, LogPlace};
use crate::machine::Marks;
use crate::model::Ran;
use crate::model::bytes::Punch;
use crate::violation::{Rule, Verdict, broken};

impl Witness {
    pub(super) fn account_punch(
        &mut self,
        ask: &Ask,
        offset: u64,
        len: u64,
        before: Marks,
        after: Marks,
    ) -> Verdict<Expect> {
        let (session, seq) = (ask.header.session.0, ask.header.seq.0);
        let handle = ask.handle.as_ref().expect("holes go through a handle");
        let inode = handle.inode;
        let punch = Punch { session, offset, len };
        let (first, last) = (offset / CHUNK_BYTES, (offset + len - 1) / CHUNK_BYTES);
        // The chunk it begins in, and those that were ever written.
        let parts = 1 + self.model.tree.bytes(inode).chunks_written(first + 1, last, CHUNK_BYTES);
        let records = after.records - before.records;
        let mut refusals = self.refusals_of_handle(ask, handle).unwrap_or_default();
        if self.is_behind(ask) {
            refusals.push(Reason::SequenceTooOld);
        }
        let effect = |place, act| Effect {
            place,
            stamp: after.newest,
            session,
            seq,
            acked: 0,
            act,
            made: 0,
            answered: false,
            durable: false,
        };
        // The server's own transactions: they have no number.
        let grant = |index| Effect { seq: 0, ..effect(LogPlace::Meta(index), Act::TailGrant { inode, first }) };
        let entries = after.index - before.index;
        if entries > parts {
            return broken(Rule::Once, format!("a hole over {parts} chunks made {entries} entries in the metalog"));
        }
        if entries > 0 {
            self.journal.effects.extend((before.index + 1..=after.index).map(grant));
            self.model.granted_tail(session, inode, first);
        }
        let ran = self.model.sessions.get(&session).and_then(|state| state.ran.get(&seq)).cloned();
        let effect = effect(LogPlace::Data(before.records + parts), Act::Punch { inode, punch });
        if records == 0 {
            // Died in the middle of the records, or of a grant before them.
            self.doubts = vec![grant(after.index + 1), effect];
            if ran.is_none() && refusals.is_empty() && !self.machine.is_dying() {
                refusals.push(Reason::NoSpace);
            }
            return Ok(Expect::Write { did: ran, refusals });
        }
        if let Some(ran) = ran {
            let words = format!("request {seq} of session {session} ran again: it was {ran:?}");
            return broken(Rule::Once, format!("{words} and made {records} more records"));
        }
        if records != parts {
            return broken(Rule::Linearizable, format!("a hole over {parts} written chunks made {records} records"));
        }
        if refusals.iter().any(|reason| !PERHAPS.contains(reason)) {
            let words = format!("{len} bytes at {offset} of inode {inode} were punched");
            return broken(Rule::PromisedErrors, format!("{words}, and should be refused: {refusals:?}"));
        }
        self.check_stamp(after.newest)?;
        self.journal.effects.push(effect);
        self.model.punched(seq, inode, after.newest, punch);
        self.unsure.insert(after.newest, inode);
        Ok(Expect::Write { did: Some(Ran::Wrote { stamp: after.newest, offset }), refusals: Vec::new() })
    }
}
