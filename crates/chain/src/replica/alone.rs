//! What a replica that is its whole chain does in one step.
//!
//! Alone, and with nothing on its way, a write is committed as soon as it is whole in the log: nobody behind has to have it, and no record
//! before it is waited for. Number, append and commit, three inputs of [`Replica::step`] otherwise, are then one call before the append
//! and one after it. What the replica is afterwards is the same.

use frieze_base::{ChainEpoch, Seq, SessionId};

use crate::message::WriteDone;

use super::Replica;

/// A record that is whole in the log, by [`Replica::wrote`].
#[derive(Clone, Copy, Debug)]
pub struct WroteAlone {
    /// The number that [`Replica::next_alone`] gave.
    pub n: u64,
    /// Who wrote it.
    pub session: SessionId,
    /// Under which number.
    pub seq: Seq,
    /// See [`crate::WriteRequest::acked`].
    pub acked: Seq,
    /// Stamp and place.
    pub done: WriteDone,
}

impl Replica {
    /// Number and epoch of the record that a request becomes, if [`Replica::wrote`] may tell of it: this is the head and the tail, takes
    /// records and has none on its way, and knows nothing of the request.
    pub fn next_alone(&self, session: SessionId, seq: Seq) -> Option<(u64, ChainEpoch)> {
        let is_alone = self.is_head() && self.is_tail() && self.configuration.syncing.is_none();
        let is_quiet = self.dirty.is_empty() && self.promises.is_empty() && self.failed.is_none();
        let is_numbered = session != SessionId(0) && seq != Seq(0);
        let is_new = self.sessions.get(&session).is_none_or(|memory| matches!(memory.recall(seq, 0), Ok(None)));
        let next = (self.last + 1, self.configuration.epoch);
        (is_alone && is_quiet && is_numbered && is_new).then_some(next)
    }

    /// A request of part 0 of 1 that acknowledges once it is whole in the log has become record `n`, and is whole: it is committed.
    ///
    /// # Panics
    /// If it does not follow the last record, something is on its way, or its stamp is not fresh.
    pub fn wrote(&mut self, wrote: &WroteAlone) {
        let WroteAlone { n, session, seq, acked, done } = *wrote;
        assert!(
            n == self.last + 1 && self.dirty.is_empty(),
            "record {n} follows the last one, and nothing is on its way"
        );
        assert!(done.stamp > self.promised && done.stamp > self.newest, "stamp {} is not fresh", done.stamp);
        let memory = self.sessions.entry(session).or_default();
        memory.acknowledge(acked.min(seq));
        memory.do_at_once(seq, 0, done, self.settings.remembered_max);
        (self.newest, self.newest_group) = (done.stamp, (session, seq));
        (self.last, self.appended, self.clean) = (n, n, n);
        self.last_epoch = self.configuration.epoch;
        self.note(self.last_epoch, n);
        self.tokens += 1;
        self.assert_whole();
    }
}
