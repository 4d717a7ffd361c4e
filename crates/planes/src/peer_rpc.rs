//! Requests between servers: requests of this server that have no response yet, and requests of other servers that wait
//! for a response.
//!
//! Guarantees: a request of this server ends at the latest when its caller returns ([`crate::open_requests`]). The
//! queue of received requests is bounded. A request that arrives again while it is being answered is answered once.
//! Leaves to others: the content and the recipient of a request, and the responses ([`crate::remote_chains`]).

use std::collections::{BTreeSet, VecDeque};

use frieze_base::NodeId;
use frieze_locks::{Condvar, Mutex, levels};
use frieze_wire::peer::{PeerRequest, PeerResponse};

use crate::open_requests::OpenRequests;

/// A response and its payload.
pub type PeerReply = (PeerResponse, Vec<u8>);

/// Both sides of the exchange at one server.
pub struct PeerRpc {
    /// Requests of this server. Their numbers begin at a random one: a response to a request from before a restart
    /// finds no request.
    pub open: OpenRequests<PeerReply>,
    received: Mutex<levels::ReceivedRequests, RequestQueue>,
    /// Notified when another server sends a request.
    wanted: Condvar,
}

#[derive(Default)]
struct RequestQueue {
    waiting: VecDeque<(NodeId, PeerRequest)>,
    /// Requests that wait, and requests that are being answered.
    known: BTreeSet<(NodeId, u64)>,
    ended: bool,
}

impl PeerRpc {
    /// No requests of other servers.
    pub fn new(open: OpenRequests<PeerReply>) -> PeerRpc {
        PeerRpc { open, received: Mutex::default(), wanted: Condvar::new() }
    }

    /// Stores a response that arrived. If its request has ended, the response is dropped.
    pub fn respond(&self, response: PeerResponse, payload: &[u8]) {
        self.open.respond(response.id, (response, payload.to_vec()));
    }

    /// Queues a request of another server. If the queue is full, the request is dropped and the other server sends it
    /// again.
    pub fn enqueue(&self, from: NodeId, request: PeerRequest) {
        let mut received = self.received.lock();
        if received.waiting.len() < RECEIVED_MAX && received.known.insert((from, request.id)) {
            received.waiting.push_back((from, request));
            self.wanted.notify_one();
        }
    }

    /// The next request to answer; `None` when the server stops. The caller ends it with [`PeerRpc::done`].
    pub fn next(&self) -> Option<(NodeId, PeerRequest)> {
        let idle = |received: &mut RequestQueue| received.waiting.is_empty() && !received.ended;
        let mut received = self.wanted.wait_while(self.received.lock(), idle);
        if received.ended { None } else { received.waiting.pop_front() }
    }

    /// [`PeerRpc::next`] without waiting.
    pub fn take(&self) -> Option<(NodeId, PeerRequest)> {
        self.received.lock().waiting.pop_front()
    }

    /// Marks a request as answered.
    pub fn done(&self, from: NodeId, id: u64) {
        self.received.lock().known.remove(&(from, id));
    }

    /// Stops answering: the server stops.
    pub fn stop(&self) {
        self.received.lock().ended = true;
        self.wanted.notify_all();
    }
}

/// Most requests of other servers that wait.
const RECEIVED_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    use crate::open_requests::tests::open_requests;

    fn rpc() -> PeerRpc {
        PeerRpc::new(open_requests(7, frieze_net::Idle::default()))
    }

    fn request(id: u64) -> PeerRequest {
        PeerRequest { id, ..PeerRequest::default() }
    }

    #[test]
    fn a_question_that_comes_again_is_answered_once() {
        let rpc = rpc();
        rpc.enqueue(NodeId(2), request(1));
        rpc.enqueue(NodeId(2), request(1));
        rpc.enqueue(NodeId(3), request(1));
        assert_eq!(rpc.take().map(|(from, _)| from), Some(NodeId(2)));
        rpc.enqueue(NodeId(2), request(1));
        assert_eq!(rpc.take().map(|(from, _)| from), Some(NodeId(3)));
        assert!(rpc.take().is_none());
        rpc.done(NodeId(2), 1);
        rpc.enqueue(NodeId(2), request(1));
        assert!(rpc.take().is_some(), "its answer may have been lost");
    }

    #[test]
    fn a_response_that_no_request_waits_for_is_not_stored() {
        let rpc = rpc();
        let (first, second) = (rpc.open.begin(LONG), rpc.open.begin(LONG));
        let response = PeerResponse { id: second.id(), complete: 3, ..PeerResponse::default() };
        rpc.respond(response, b"bytes");
        assert!(first.take().is_none());
        let taken = second.take().map(|(response, payload)| (response.complete, payload));
        assert_eq!(taken, Some((3, b"bytes".to_vec())));
        let id = first.id();
        drop(first);
        rpc.respond(PeerResponse { id, ..PeerResponse::default() }, &[]);
        assert!(second.take().is_none());
    }

    #[test]
    fn what_others_may_leave_here_is_bounded() {
        let rpc = rpc();
        (0..2 * RECEIVED_MAX as u64).for_each(|id| rpc.enqueue(NodeId(2), request(id)));
        assert_eq!(std::iter::from_fn(|| rpc.take()).count(), RECEIVED_MAX);
    }

    const LONG: std::time::Duration = std::time::Duration::from_secs(60);
}
