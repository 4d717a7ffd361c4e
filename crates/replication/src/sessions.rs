//! Sessions of clients in the data plane: which requests are known here, and appends that are refused for good.

use std::collections::BTreeSet;

use frieze_base::{ChainId, Fault, Reason, Seq, SessionId};
use frieze_chain::{Replica, ReplicaInput};
use frieze_multilog::ChainTip;

use crate::appender::Appender;
use crate::chain_state::DeferredWork;
use crate::plane::DataPlane;

impl DataPlane {
    /// Ends a session: its numbers are not used again. The chain keeps the entry of an uncommitted record until the
    /// next call.
    pub fn end_session(&self, session: SessionId) {
        let mut out = DeferredWork::default();
        let mut appender = self.lock_appender();
        for chain in 0..appender.chains.len() {
            let replica = &appender.chains[chain];
            if !(appender.states[chain].shared && replica.is_in_flight(session)) {
                self.step(&mut appender, ChainId(chain as u32), ReplicaInput::EndSession(session), &mut out);
            }
        }
        appender.requests.end_session(session);
        drop(appender);
        self.run_deferred(out);
    }

    /// The fault of an append to the end that is refused early, as [`DataPlane::write`] refuses one. `acked`: numbers
    /// that the session has acknowledged.
    pub fn refuse_append(&self, chain: ChainId, request: (SessionId, Seq), acked: Seq, fault: Fault) -> Fault {
        let mut appender = self.lock_appender();
        appender.requests.recall(request, acked);
        self.refuse(&mut appender, chain, request, fault)
    }

    /// `Busy` is final for the number of an append, and only the head of the chain may send it: the client retries
    /// under a new number, and a late duplicate of this one has no effect. Where this node may not send it, the client
    /// receives `Overloaded` and retries under the same number.
    pub(crate) fn refuse(
        &self,
        appender: &mut Appender,
        chain: ChainId,
        request: (SessionId, Seq),
        fault: Fault,
    ) -> Fault {
        if fault.reason != Reason::Busy {
            return fault;
        }
        if let Err(fault) = self.check_stamps(appender, std::iter::once(chain)) {
            return fault;
        }
        let is_here = appender.requests.is_in_flight(request) || appender.has_record(request.0, request.1);
        if is_here || appender.requests.refuse(request).is_err() {
            let words = "doubles of this session's appends are on their way: send it again later";
            return Fault::new(Reason::Overloaded, words);
        }
        fault
    }

    /// Sessions with an entry in the dedupe state.
    pub fn sessions(&self) -> BTreeSet<SessionId> {
        let appender = self.lock_appender();
        let remembered = appender.chains.iter().flat_map(Replica::sessions);
        remembered.chain(appender.requests.sessions()).collect()
    }

    /// True if a request has a record here, committed or not.
    pub fn has_record(&self, session: SessionId, seq: Seq) -> bool {
        self.lock_appender().has_record(session, seq)
    }

    /// Encodes the chains' dedupe state for records up to `tips`, of live sessions. `None` while one of those records
    /// is not committed.
    pub fn encode_dedupe(&self, tips: &[ChainTip], lives: &dyn Fn(SessionId) -> bool) -> Option<Vec<u8>> {
        crate::dedupe_image::keep(&self.lock_appender().chains, tips, lives)
    }
}
