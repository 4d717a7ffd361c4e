//! Requests of clients that a server knows beside the records of its chains, so that each runs once.
//!
//! Guarantees, for a number of a session:
//! - below the session's *floor* it never runs again, and nothing is remembered of it: the client has its answer;
//! - while it is in flight it runs once: its duplicates wait for the same answer;
//! - once it was refused for good it never runs: the client has taken another number for the same append, and late
//!   duplicates of this one still arrive.
//!
//! *Invariant:* every entry lies at or above its session's floor, and has a group in flight, a refusal, or both.
//!
//! One rule of forgetting: the floor is the smallest number without an answer by the client's newest request, and only
//! rises; what lies below is dropped when it rises. The end of a session drops its floor and all its entries, once none
//! is in flight: its numbers do not come again. Refusals of one session are at most [`REFUSED_MAX`]; entries in flight
//! are bounded by the chains.
//!
//! Leaves to others: records of requests, committed or not, which each chain remembers by itself, across restarts too
//! (`frieze_chain`); a request is looked up in all chains of this server before it runs (`Appender::earlier_run`), for
//! the end of a file moves from chain to chain. Which server may refuse (`sessions`).

use std::collections::BTreeMap;

use frieze_base::{Seq, SessionId};

/// Refused appends of one session whose duplicates may still arrive.
pub(crate) const REFUSED_MAX: usize = 64;

/// A request: the session, and its number of it.
pub(crate) type NumberedRequest = (SessionId, Seq);

/// What is known of requests, by session.
#[derive(Debug, Default)]
pub(crate) struct RequestTable {
    sessions: BTreeMap<SessionId, SessionRequests>,
}

#[derive(Debug, Default)]
struct SessionRequests {
    floor: Seq,
    requests: BTreeMap<Seq, RequestEntry>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RequestEntry {
    /// The group of the write that runs.
    group: Option<u64>,
    is_refused: bool,
}

/// What the table knows of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownRequest {
    /// It lies below this floor: it must not run.
    TooOld(Seq),
    /// It runs, as this group: wait for its answer.
    InFlight(u64),
    /// It was refused for good: it must not run.
    Refused,
    /// Nothing: the chains may know it.
    Unknown,
}

/// A refusal cannot be remembered: the request must not be refused for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefusalsFull;

impl RequestTable {
    /// Raises the floor of the request's session to `acked`, but not above the request itself, and returns what is
    /// known of the request.
    pub(crate) fn recall(&mut self, (session, seq): NumberedRequest, acked: Seq) -> KnownRequest {
        let known = self.sessions.entry(session).or_default();
        let floor = known.floor.max(acked.min(seq));
        if floor > known.floor {
            known.floor = floor;
            known.requests = known.requests.split_off(&floor);
        }
        if seq < known.floor {
            return KnownRequest::TooOld(known.floor);
        }
        match known.requests.get(&seq) {
            Some(RequestEntry { group: Some(group), .. }) => KnownRequest::InFlight(*group),
            Some(RequestEntry { is_refused: true, .. }) => KnownRequest::Refused,
            _ => KnownRequest::Unknown,
        }
    }

    /// The request runs as `group`. It lies at or above its session's floor: [`RequestTable::recall`] has said so.
    pub(crate) fn begin(&mut self, (session, seq): NumberedRequest, group: u64) {
        let known = self.sessions.entry(session).or_default();
        assert!(seq >= known.floor, "request {seq} of session {session} runs below the floor {}", known.floor);
        known.requests.entry(seq).or_default().group = Some(group);
    }

    /// The request is answered: the chains remember its record, or it has none.
    pub(crate) fn finish(&mut self, (session, seq): NumberedRequest) {
        let Some(known) = self.sessions.get_mut(&session) else { return };
        let Some(entry) = known.requests.get_mut(&seq) else { return };
        entry.group = None;
        if !entry.is_refused {
            known.requests.remove(&seq);
        }
    }

    /// True if the request runs at the moment.
    pub(crate) fn is_in_flight(&self, (session, seq): NumberedRequest) -> bool {
        let entry = self.sessions.get(&session).and_then(|known| known.requests.get(&seq));
        entry.is_some_and(|entry| entry.group.is_some())
    }

    /// Remembers that the request is refused for good. The caller has seen that it neither runs nor has a record.
    ///
    /// # Errors
    /// [`RefusalsFull`] if too many refusals of the session are remembered: answer that the client is to send the same
    /// number again.
    pub(crate) fn refuse(&mut self, (session, seq): NumberedRequest) -> Result<(), RefusalsFull> {
        let known = self.sessions.entry(session).or_default();
        let is_known = known.requests.get(&seq).is_some_and(|entry| entry.is_refused);
        // Below the floor it cannot run in any case.
        if is_known || seq < known.floor {
            return Ok(());
        }
        let refused = known.requests.values().filter(|entry| entry.is_refused).count();
        if refused >= REFUSED_MAX {
            return Err(RefusalsFull);
        }
        known.requests.entry(seq).or_default().is_refused = true;
        Ok(())
    }

    /// The session is over: its numbers do not come again. While a request of it is in flight the session stays: its
    /// duplicates may have been admitted before the end. The caller ends it again later.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        let Some(known) = self.sessions.get_mut(&session) else { return };
        if !known.requests.values().any(|entry| entry.group.is_some()) {
            self.sessions.remove(&session);
        }
    }

    /// The sessions that are known.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.keys().copied()
    }
}

#[cfg(test)]
mod tests;
