//! State of the append lock: the replicas of all chains, their driver state, and the writes that are not complete.
//!
//! Guarantees: each reply of a write is called once, with the first fault of its parts or the place of its first part.
//! Leaves to others: the lock (`plane`), the steps of a write (`write`).

use std::collections::BTreeMap;

use frieze_base::{Fault, InodeId, MonoTime, NodeId, Reason, Seq, SessionId};
use frieze_chain::{Replica, ReplicaEffect, RequestOutcome, RequestState};
use frieze_storage::Few;

use crate::chain_state::{DriverState, PendingReply};
use crate::fills::Fills;
use crate::request_table::RequestTable;
use crate::striping::Layout;
use crate::write_request::{WriteCallback, WriteResult};

/// State of which one thread at a time has the lock.
pub struct Appender {
    pub(crate) chains: Vec<Replica>,
    /// Driver state of each chain, beside its replica.
    pub(crate) states: Vec<DriverState>,
    pub(crate) waiters: BTreeMap<u64, PendingReply>,
    pub(crate) next_waiter: u64,
    /// When barriers last asked the other members.
    pub(crate) barriers_asked: MonoTime,
    /// Time of the last message of each other node.
    pub(crate) last_message: BTreeMap<NodeId, MonoTime>,
    pub(crate) groups: BTreeMap<u64, Group>,
    /// Requests that run or were refused for good, and how far each session has acknowledged. Chains remember records.
    pub(crate) requests: RequestTable,
    pub(crate) next_group: u64,
    pub(crate) fills: Fills,
}

/// A record of an earlier run of a request.
pub(crate) struct EarlierRun {
    pub(crate) result: WriteResult,
    /// The chain has committed it.
    pub(crate) is_committed: bool,
}

/// A write whose parts are not all complete.
pub(crate) struct Group {
    pub(crate) request: (SessionId, Seq),
    pub(crate) inode: InodeId,
    pub(crate) left: u8,
    pub(crate) chunk_bytes: u64,
    /// End of the write in the file.
    pub(crate) end: u64,
    pub(crate) first: Option<WriteResult>,
    pub(crate) failed: Option<Fault>,
    pub(crate) replies: Few<WriteCallback>,
}

impl Appender {
    /// True if a request has a record here, committed or not.
    pub(crate) fn has_record(&self, session: SessionId, seq: Seq) -> bool {
        self.chains.iter().any(|chain| chain.outcome_of(session, seq).is_some())
    }

    pub(crate) fn on_reply(
        &mut self,
        effect: ReplicaEffect,
        done: &mut Vec<(WriteCallback, Result<WriteResult, Fault>)>,
    ) {
        let ReplicaEffect::Reply { request, result } = effect else { return };
        let id = request.0 >> 8;
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.left -= 1;
        match result {
            Ok(written) if request.0 & 0xff == 0 => {
                let offset = u64::from(written.chunk.index) * group.chunk_bytes + u64::from(written.offset);
                group.first = Some(WriteResult { stamp: written.stamp, offset, end: group.end });
            }
            Ok(_) => {}
            Err(fault) => group.failed = group.failed.take().or(Some(fault)),
        }
        if group.left == 0 {
            self.finish(id, done);
        }
    }

    /// The record that an earlier run of a request has become; of one with several parts the first.
    ///
    /// # Errors
    /// `Elsewhere` if its record belongs to a chain of which this node is no member: the chain may never have had a
    /// record that this node recovered, or had when it was removed.
    pub(crate) fn earlier_run(
        &self,
        me: NodeId,
        session: SessionId,
        seq: Seq,
        layout: Layout,
    ) -> Result<Option<EarlierRun>, Fault> {
        let mut in_flight = None;
        for (replica, state) in self.chains.iter().zip(&self.states) {
            let Some(remembered) = replica.outcome_of(session, seq) else { continue };
            if state.shared && !replica.configuration().holds(me) {
                return Err(frieze_chain::Error::NotMember { chain: replica.chain() }.into());
            }
            let RequestOutcome { part: 0, state } = remembered else { continue };
            let run = |index: u32, offset: u32, stamp, is_committed| {
                let chunk = u64::from(index);
                let offset = chunk * layout.chunk_bytes + u64::from(offset);
                let result = WriteResult { stamp, offset, end: (chunk + 1) * layout.chunk_bytes };
                EarlierRun { result, is_committed }
            };
            match state {
                RequestState::Done(done) => return Ok(Some(run(done.chunk.index, done.offset, done.stamp, true))),
                RequestState::InFlight => {
                    let record = replica.in_flight_of(session, seq);
                    in_flight = record.map(|record| run(record.chunk.index, record.offset, record.stamp, false));
                }
            }
        }
        Ok(in_flight)
    }

    pub(crate) fn finish(&mut self, id: u64, done: &mut Vec<(WriteCallback, Result<WriteResult, Fault>)>) {
        let Some(group) = self.groups.remove(&id) else { return };
        let result = match (group.failed, group.first) {
            (Some(fault), _) => Err(fault),
            (None, Some(written)) => Ok(written),
            (None, None) => Err(Fault::new(Reason::Internal, "a write was answered without its first part")),
        };
        self.requests.finish(group.request);
        for reply in group.replies {
            done.push((reply, result.clone()));
        }
    }
}
