//! Questions between servers: what was asked here and has no answer yet, and what others have asked and nobody has
//! looked at.
//!
//! Guarantees: nothing is kept of a question whose asker has gone on; what others may leave here is bounded. A question
//! that comes again while it is being answered is answered once. Leaves to others: what is asked and of whom, and the
//! answers ([`crate::elsewhere`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::NodeId;
use frieze_wire::peer::{PeerRequest, PeerResponse};

/// An answer, and the bytes beside it.
pub(crate) type Answered = (PeerResponse, Vec<u8>);

/// Both sides of it at one server.
pub(crate) struct Questions {
    open: Mutex<Open>,
    /// Told when an answer has come.
    come: Condvar,
    asked: Mutex<Asked>,
    /// Told when somebody has asked.
    wanted: Condvar,
}

struct Open {
    last: u64,
    answers: BTreeMap<u64, Option<Answered>>,
}

#[derive(Default)]
struct Asked {
    waiting: VecDeque<(NodeId, PeerRequest)>,
    /// Those that wait, and those that are being answered.
    known: BTreeSet<(NodeId, u64)>,
    ended: bool,
}

impl Questions {
    /// Nothing is asked. Questions are named from `first` on: another life of this server named others.
    pub(crate) fn new(first: u64) -> Questions {
        Questions {
            open: Mutex::new(Open { last: first, answers: BTreeMap::new() }),
            come: Condvar::new(),
            asked: Mutex::default(),
            wanted: Condvar::new(),
        }
    }

    /// A name for a question that is about to be asked.
    pub(crate) fn begin(&self) -> u64 {
        let mut open = lock(&self.open);
        open.last = open.last.wrapping_add(1);
        let id = open.last;
        open.answers.insert(id, None);
        id
    }

    /// Nobody waits for its answer any more.
    pub(crate) fn end(&self, id: u64) {
        lock(&self.open).answers.remove(&id);
    }

    /// The answer, if it has come: then nobody waits for it any more.
    pub(crate) fn take_answer(&self, id: u64) -> Option<Answered> {
        let mut open = lock(&self.open);
        open.answers.get(&id)?.as_ref()?;
        open.answers.remove(&id).flatten()
    }

    /// True if one of these has its answer.
    pub(crate) fn has_come(&self, ids: &[u64]) -> bool {
        has_come(&lock(&self.open), ids)
    }

    /// Waits until one of these has its answer, `patience` at most.
    pub(crate) fn wait(&self, ids: &[u64], patience: Duration) {
        let open = lock(&self.open);
        // Whether one has is looked at by whoever waited.
        let _waited = self.come.wait_timeout_while(open, patience, |open| !has_come(open, ids));
    }

    /// Waits so long.
    pub(crate) fn rest(&self, duration: Duration) {
        let _waited = self.come.wait_timeout_while(lock(&self.open), duration, |_| true);
    }

    /// An answer has come. What nobody waits for is let go.
    pub(crate) fn answered(&self, answer: PeerResponse, payload: &[u8]) {
        if let Some(place) = lock(&self.open).answers.get_mut(&answer.id) {
            *place = Some((answer, payload.to_vec()));
            self.come.notify_all();
        }
    }

    /// Another server asks. What is too much is let go: it is asked again.
    pub(crate) fn ask(&self, from: NodeId, question: PeerRequest) {
        let mut asked = lock(&self.asked);
        if asked.waiting.len() < ASKED_MAX && asked.known.insert((from, question.id)) {
            asked.waiting.push_back((from, question));
            self.wanted.notify_one();
        }
    }

    /// The next to be answered; `None` when the server stops. [`Questions::done`] is to be called with it.
    pub(crate) fn next(&self) -> Option<(NodeId, PeerRequest)> {
        let idle = |asked: &mut Asked| asked.waiting.is_empty() && !asked.ended;
        let mut asked = self.wanted.wait_while(lock(&self.asked), idle).unwrap_or_else(PoisonError::into_inner);
        if asked.ended { None } else { asked.waiting.pop_front() }
    }

    /// [`Questions::next`] without waiting.
    pub(crate) fn take(&self) -> Option<(NodeId, PeerRequest)> {
        lock(&self.asked).waiting.pop_front()
    }

    /// It was answered.
    pub(crate) fn done(&self, from: NodeId, id: u64) {
        lock(&self.asked).known.remove(&(from, id));
    }

    /// Nobody answers any more.
    pub(crate) fn stop(&self) {
        lock(&self.asked).ended = true;
        self.wanted.notify_all();
    }
}

fn has_come(open: &Open, ids: &[u64]) -> bool {
    ids.iter().any(|id| open.answers.get(id).is_some_and(Option::is_some))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Questions of others that wait.
const ASKED_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn question(id: u64) -> PeerRequest {
        PeerRequest { id, ..PeerRequest::default() }
    }

    #[test]
    fn a_question_that_comes_again_is_answered_once() {
        let questions = Questions::new(7);
        questions.ask(NodeId(2), question(1));
        questions.ask(NodeId(2), question(1));
        questions.ask(NodeId(3), question(1));
        assert_eq!(questions.take().map(|(from, _)| from), Some(NodeId(2)));
        questions.ask(NodeId(2), question(1));
        assert_eq!(questions.take().map(|(from, _)| from), Some(NodeId(3)));
        assert!(questions.take().is_none());
        questions.done(NodeId(2), 1);
        questions.ask(NodeId(2), question(1));
        assert!(questions.take().is_some(), "its answer may have been lost");
    }

    #[test]
    fn an_answer_that_nobody_waits_for_is_not_kept() {
        let questions = Questions::new(7);
        let (first, second) = (questions.begin(), questions.begin());
        assert!(!questions.has_come(&[first, second]));
        let answer = PeerResponse { id: second, complete: 3, ..PeerResponse::default() };
        questions.answered(answer, b"bytes");
        assert!(questions.has_come(&[first, second]) && !questions.has_come(&[first]));
        assert!(questions.take_answer(first).is_none());
        let taken = questions.take_answer(second).map(|(answer, payload)| (answer.complete, payload));
        assert_eq!(taken, Some((3, b"bytes".to_vec())));
        questions.end(first);
        questions.answered(PeerResponse { id: first, ..PeerResponse::default() }, &[]);
        assert!(questions.take_answer(first).is_none() && !questions.has_come(&[first, second]));
    }

    #[test]
    fn what_others_may_leave_here_is_bounded() {
        let questions = Questions::new(0);
        (0..2 * ASKED_MAX as u64).for_each(|id| questions.ask(NodeId(2), question(id)));
        assert_eq!(std::iter::from_fn(|| questions.take()).count(), ASKED_MAX);
    }
}
