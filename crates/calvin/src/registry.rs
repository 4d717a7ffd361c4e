//! Which requests have run: a pure function of the log.
//!
//! Guarantees: each attempt of a request runs once in the whole log, whichever server sent it and by whichever path. An
//! attempt that comes again gets the position of the first time, where its outcome is. Leaves to others: outcomes (the
//! part that a transaction is answered by), sessions (the trunk: it ends what is remembered of one).
//!
//! Requests of a session are numbered, and a client says with each up to where it has answers. A *superseded* attempt
//! has changed nothing: its front-end had guessed other inodes than the names have now. Only the place that decided so
//! can say it. A front-end sends attempt k + 1 with its word that k was superseded, and begins with 1 if it knows
//! nothing. All front-ends walk the same ladder, and at most one rung runs.
//!
//! # Source
//! Kafka's idempotent producer (KIP-98) for numbered requests with a window, here a part of the order itself.

use std::collections::BTreeMap;

use frieze_base::{Seq, SessionId};

use crate::error::RegistryError;
use crate::message::TxnEnvelope;
use crate::place::Position;

/// The name of a request, and which attempt it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestName {
    /// The session.
    pub session: SessionId,
    /// Its number within the session, from 1. 0: a transaction of a server, which is not remembered.
    pub seq: Seq,
    /// From 1: which attempt.
    pub attempt: u32,
}

/// The newest attempt of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NewestAttempt {
    number: u32,
    position: Position,
}

/// The requests of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Requests {
    /// Those below are acknowledged.
    acked: u64,
    /// By number.
    attempts: BTreeMap<u64, NewestAttempt>,
}

/// Requests that have run, of all sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    sessions: BTreeMap<SessionId, Requests>,
}

/// What becomes of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TxnAdmission {
    /// It runs.
    Run,
    /// It ran at this position.
    Again(Position),
}

impl Registry {
    /// What becomes of a transaction. Changes nothing: the trunk phase of one that runs comes before
    /// [`Registry::note`], so that a registry never knows more than the state that it is stored with.
    ///
    /// # Errors
    /// [`RegistryError`]: it does not run.
    pub(crate) fn look_up(&self, envelope: &TxnEnvelope, max: usize) -> Result<TxnAdmission, RegistryError> {
        let RequestName { session, seq: Seq(seq), attempt } = envelope.request;
        if seq == 0 {
            return Ok(TxnAdmission::Run);
        }
        let requests = self.sessions.get(&session);
        let acked = requests.map_or(1, |requests| requests.acked).max(envelope.acked.0).max(1);
        if seq < acked {
            return Err(RegistryError::TooOld { session, seq, acked });
        }
        let last = requests.and_then(|requests| requests.attempts.get(&seq));
        if let Some(last) = last.filter(|last| attempt <= last.number) {
            return Ok(TxnAdmission::Again(last.position));
        }
        let number = last.map_or(0, |last| last.number);
        if attempt != number + 1 {
            return Err(RegistryError::AttemptSkipped { session, seq, attempt, last: number });
        }
        // The oldest request without an answer always has room, or nothing could ever be acknowledged again. A window
        // of numbers would count writes of bytes, too, which share the numbers of a session.
        let is_full = |known: &Requests| known.attempts.len() >= max && known.attempts.range(acked..).count() >= max;
        if last.is_none() && seq > acked && requests.is_some_and(is_full) {
            return Err(RegistryError::Unacknowledged { session, max });
        }
        Ok(TxnAdmission::Run)
    }

    /// Notes a transaction that [`Registry::look_up`] has decided about: the answers that it acknowledges, and, if it
    /// runs, its position.
    pub(crate) fn note(&mut self, envelope: &TxnEnvelope, runs_at: Option<Position>) {
        let RequestName { session, seq: Seq(seq), attempt } = envelope.request;
        if seq == 0 {
            return;
        }
        // A late request of a session that has ended may be refused. What was remembered of it would stay for ever.
        if runs_at.is_none() && !self.sessions.contains_key(&session) {
            return;
        }
        let requests = self.sessions.entry(session).or_default();
        // An acknowledgement counts whatever becomes of the request that brought it.
        requests.acked = requests.acked.max(envelope.acked.0).max(1);
        while let Some(first) = requests.attempts.first_entry().filter(|first| *first.key() < requests.acked) {
            first.remove();
        }
        if let Some(position) = runs_at {
            requests.attempts.insert(seq, NewestAttempt { number: attempt, position });
        }
    }

    /// Forgets a session. The trunk phase of its last transaction calls it, so at the same position on every server.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// Sessions that have requests.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }
}

#[cfg(test)]
mod tests {
    use frieze_base::LogIndex;

    use super::*;

    fn at(index: u64) -> Position {
        Position { index: LogIndex(index), item: 0 }
    }

    fn envelope(seq: u64, attempt: u32, acked: u64) -> TxnEnvelope {
        TxnEnvelope { request: RequestName { session: SessionId(7), seq: Seq(seq), attempt }, acked: Seq(acked) }
    }

    fn admit(
        registry: &mut Registry,
        envelope: &TxnEnvelope,
        position: Position,
    ) -> Result<TxnAdmission, RegistryError> {
        let admission = registry.look_up(envelope, 4);
        registry.note(envelope, (admission == Ok(TxnAdmission::Run)).then_some(position));
        admission
    }

    #[test]
    fn each_attempt_runs_once_and_the_ladder_has_no_gaps() {
        let mut registry = Registry::default();
        let mut admit = |seq, attempt, acked, index| admit(&mut registry, &envelope(seq, attempt, acked), at(index));
        assert_eq!(admit(1, 1, 1, 1), Ok(TxnAdmission::Run));
        assert_eq!(admit(1, 1, 1, 2), Ok(TxnAdmission::Again(at(1))));
        let skipped = RegistryError::AttemptSkipped { session: SessionId(7), seq: 1, attempt: 3, last: 1 };
        assert_eq!(admit(1, 3, 1, 3), Err(skipped));
        assert_eq!(admit(1, 2, 1, 4), Ok(TxnAdmission::Run));
        // A late first attempt of another front-end gets the newest.
        assert_eq!(admit(1, 1, 1, 5), Ok(TxnAdmission::Again(at(4))));
        assert!(matches!(admit(2, 2, 1, 6), Err(RegistryError::AttemptSkipped { last: 0, .. })));
    }

    #[test]
    fn acknowledged_requests_are_forgotten_and_never_run_again() {
        let mut registry = Registry::default();
        for seq in 1..=4 {
            assert_eq!(admit(&mut registry, &envelope(seq, 1, 1), at(seq)), Ok(TxnAdmission::Run));
        }
        let full = RegistryError::Unacknowledged { session: SessionId(7), max: 4 };
        assert_eq!(admit(&mut registry, &envelope(5, 1, 1), at(5)), Err(full));
        // What ran is answered all the same.
        assert_eq!(admit(&mut registry, &envelope(4, 1, 1), at(6)), Ok(TxnAdmission::Again(at(4))));
        assert_eq!(admit(&mut registry, &envelope(5, 1, 4), at(7)), Ok(TxnAdmission::Run));
        let old = RegistryError::TooOld { session: SessionId(7), seq: 3, acked: 4 };
        assert_eq!(admit(&mut registry, &envelope(3, 1, 1), at(8)), Err(old));
        registry.end_session(SessionId(7));
        assert_eq!(registry, Registry::default());
    }

    #[test]
    fn nothing_is_remembered_of_a_session_that_has_ended() {
        let mut registry = Registry::default();
        assert_eq!(admit(&mut registry, &envelope(1, 1, 1), at(1)), Ok(TxnAdmission::Run));
        registry.end_session(SessionId(7));
        // Late ones, which are refused: a second attempt, and one that was acknowledged.
        assert!(matches!(
            admit(&mut registry, &envelope(2, 2, 1), at(2)),
            Err(RegistryError::AttemptSkipped { last: 0, .. })
        ));
        assert!(matches!(admit(&mut registry, &envelope(1, 1, 2), at(3)), Err(RegistryError::TooOld { .. })));
        assert_eq!(registry, Registry::default());
    }

    #[test]
    fn the_oldest_request_has_room_whatever_came_before_it() {
        let mut registry = Registry::default();
        for seq in 2..=5 {
            assert_eq!(admit(&mut registry, &envelope(seq, 1, 1), at(seq)), Ok(TxnAdmission::Run));
        }
        assert!(matches!(admit(&mut registry, &envelope(6, 1, 1), at(6)), Err(RegistryError::Unacknowledged { .. })));
        assert_eq!(admit(&mut registry, &envelope(1, 1, 1), at(6)), Ok(TxnAdmission::Run));
    }

    #[test]
    fn transactions_of_servers_are_not_remembered() {
        let mut registry = Registry::default();
        assert_eq!(admit(&mut registry, &envelope(0, 1, 0), at(1)), Ok(TxnAdmission::Run));
        assert_eq!((admit(&mut registry, &envelope(0, 1, 0), at(2)), registry.sessions()), (Ok(TxnAdmission::Run), 0));
    }
}
