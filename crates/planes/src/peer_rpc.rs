//! Requests between servers: requests of this server that have no response yet, and requests of other servers that wait
//! for a response.
//!
//! Guarantees: when the asking thread ends a request, its response is dropped; the queue of received requests is
//! bounded. A request that arrives again while it is being answered is answered once.
//! Leaves to others: the content and the recipient of a request, and the responses ([`crate::remote_chains`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use frieze_base::NodeId;
use frieze_locks::{Condvar, Mutex, levels};
use frieze_wire::peer::{PeerRequest, PeerResponse};

/// A response and its payload.
pub type Answered = (PeerResponse, Vec<u8>);

/// Both sides of the exchange at one server.
pub struct PeerRpc {
    open: Mutex<levels::OpenQuestions, Open>,
    /// Notified when a response arrives.
    come: Condvar,
    asked: Mutex<levels::PeerQuestions, Asked>,
    /// Notified when another server sends a request.
    wanted: Condvar,
}

struct Open {
    last: u64,
    answers: BTreeMap<u64, Option<Answered>>,
}

#[derive(Default)]
struct Asked {
    waiting: VecDeque<(NodeId, PeerRequest)>,
    /// Requests that wait, and requests that are being answered.
    known: BTreeSet<(NodeId, u64)>,
    ended: bool,
}

impl PeerRpc {
    /// No requests. Request numbers start at `first`: an earlier life of this server used lower ones.
    pub fn new(first: u64) -> PeerRpc {
        PeerRpc {
            open: Mutex::new(Open { last: first, answers: BTreeMap::new() }),
            come: Condvar::new(),
            asked: Mutex::default(),
            wanted: Condvar::new(),
        }
    }

    /// A number for a request that is about to be sent.
    pub fn begin(&self) -> u64 {
        let mut open = self.open.lock();
        open.last = open.last.wrapping_add(1);
        let id = open.last;
        open.answers.insert(id, None);
        id
    }

    /// Ends a request: its response is not needed any more.
    pub fn end(&self, id: u64) {
        self.open.lock().answers.remove(&id);
    }

    /// The response, if it has arrived; the request then ends.
    pub fn take_answer(&self, id: u64) -> Option<Answered> {
        let mut open = self.open.lock();
        open.answers.get(&id)?.as_ref()?;
        open.answers.remove(&id).flatten()
    }

    /// True if one of these requests has its response.
    pub fn has_come(&self, ids: &[u64]) -> bool {
        has_come(&self.open.lock(), ids)
    }

    /// Waits until one of these requests has its response, `patience` at most.
    pub fn wait(&self, ids: &[u64], patience: Duration) {
        let open = self.open.lock();
        // The caller checks for a response after the wait.
        let _waited = self.come.wait_timeout_while(open, patience, |open| !has_come(open, ids));
    }

    /// Waits for `duration`.
    pub fn rest(&self, duration: Duration) {
        let _waited = self.come.wait_timeout_while(self.open.lock(), duration, |_| true);
    }

    /// Stores a response that arrived. If its request has ended, the response is dropped.
    pub fn answered(&self, answer: PeerResponse, payload: &[u8]) {
        if let Some(place) = self.open.lock().answers.get_mut(&answer.id) {
            *place = Some((answer, payload.to_vec()));
            self.come.notify_all();
        }
    }

    /// Queues a request of another server. If the queue is full, the request is dropped and the other server sends it
    /// again.
    pub fn ask(&self, from: NodeId, question: PeerRequest) {
        let mut asked = self.asked.lock();
        if asked.waiting.len() < ASKED_MAX && asked.known.insert((from, question.id)) {
            asked.waiting.push_back((from, question));
            self.wanted.notify_one();
        }
    }

    /// The next request to answer; `None` when the server stops. The caller ends it with [`PeerRpc::done`].
    pub fn next(&self) -> Option<(NodeId, PeerRequest)> {
        let idle = |asked: &mut Asked| asked.waiting.is_empty() && !asked.ended;
        let mut asked = self.wanted.wait_while(self.asked.lock(), idle);
        if asked.ended { None } else { asked.waiting.pop_front() }
    }

    /// [`PeerRpc::next`] without waiting.
    pub fn take(&self) -> Option<(NodeId, PeerRequest)> {
        self.asked.lock().waiting.pop_front()
    }

    /// Marks a request as answered.
    pub fn done(&self, from: NodeId, id: u64) {
        self.asked.lock().known.remove(&(from, id));
    }

    /// Stops answering: the server stops.
    pub fn stop(&self) {
        self.asked.lock().ended = true;
        self.wanted.notify_all();
    }
}

fn has_come(open: &Open, ids: &[u64]) -> bool {
    ids.iter().any(|id| open.answers.get(id).is_some_and(Option::is_some))
}

/// Most requests of other servers that wait.
const ASKED_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn question(id: u64) -> PeerRequest {
        PeerRequest { id, ..PeerRequest::default() }
    }

    #[test]
    fn a_question_that_comes_again_is_answered_once() {
        let questions = PeerRpc::new(7);
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
        let questions = PeerRpc::new(7);
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
        let questions = PeerRpc::new(0);
        (0..2 * ASKED_MAX as u64).for_each(|id| questions.ask(NodeId(2), question(id)));
        assert_eq!(std::iter::from_fn(|| questions.take()).count(), ASKED_MAX);
    }
}
