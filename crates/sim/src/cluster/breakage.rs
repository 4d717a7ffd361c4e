//! Clusters that are broken on purpose, from outside: the judge has to detect every one.
//!
//! The servers are the real ones. Their messages, in or out, or their environment are broken, so that the cluster
//! behaves as if one rule of the protocol were violated.

use std::collections::BTreeMap;

use frieze_base::{ChainEpoch, ChainId, Fault, MonoTime, NodeId, Reason, Seq};
use frieze_node::{ClusterState, ServerParts};
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{ReadReply, Reply, Request, RequestBody};
use frieze_wire::peer::ServerMessage;

use super::net::Envelope;
use super::outbox::NodeResponse;

/// A way to break the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterBreak {
    /// A member acknowledges records when it has them, even if it has successors.
    AcksBeforeTail,
    /// Members ignore epochs: a member accepts every message about a chain, whatever its configuration, and of the logs
    /// from which a chain may continue the longest counts as the newest.
    EpochUnchecked,
    /// A retry is another request.
    RetriesRunAgain,
    /// Promises to stamp nothing more at or below an instant are lost on the way.
    PromisesLost,
    /// A promise counts before the tail has acknowledged it.
    ClosesEarly,
    /// A server answers reads without checking that it leads, and its lease never ends.
    LeaseIgnored,
    /// A lease lasts longer at its holder than at its grantor, and reads depend on it alone.
    LeaseLong,
    /// A server answers reads without checking that it still leads.
    ReadsAlone,
    /// A member that returns keeps records that the chain never had.
    SuffixKept,
    /// A member that was restarted counts as one that kept its memory.
    MemoryPretended,
    /// The tail says of all that it has been asked about that it is committed.
    DirtyShown,
    /// The newest stamps that clients and servers have received are not passed on.
    StampsUntold,
    /// Syncs of the metalog's disk report success without effect.
    SyncLies,
    /// The payload of a record is damaged on its way, and its checksum made to fit.
    BytesDamaged,
    /// Grants of leases do not name configurations.
    ConfigurationsUntold,
    /// Acknowledgements of commits are lost.
    AcksLost,
    /// The parts of an atomic multi-write become visible one after the other.
    TogetherApart,
    /// A member that is catching up reports at once that it has everything.
    SyncPretended,
    /// Bit rot on a disk is returned instead of refused.
    RotShown,
    /// Bytes of records beyond the ends of their chunks appear as holes to servers without the records.
    ReachHidden,
    /// The same of how far files reach.
    ReachUntold,
    /// A server that joins after five others gets no part of the metalog.
    SixthLeftOut,
    /// A server deletes its records of a chain as soon as it is no member, whether the members have everything or not.
    GivenUpEarly,
    /// Without a leader, a read at an instant that is not closed returns what is closed.
    UnclosedShown,
    /// A server that continues alone does not report what the lost servers may have known.
    GapForgotten,
}

impl ClusterBreak {
    /// Every one, for the test of the tester.
    pub const ALL: &'static [ClusterBreak] = &[
        ClusterBreak::AcksBeforeTail,
        ClusterBreak::EpochUnchecked,
        ClusterBreak::RetriesRunAgain,
        ClusterBreak::PromisesLost,
        ClusterBreak::ClosesEarly,
        ClusterBreak::LeaseIgnored,
        ClusterBreak::LeaseLong,
        ClusterBreak::ReadsAlone,
        ClusterBreak::SuffixKept,
        ClusterBreak::MemoryPretended,
        ClusterBreak::DirtyShown,
        ClusterBreak::StampsUntold,
        ClusterBreak::SyncLies,
        ClusterBreak::BytesDamaged,
        ClusterBreak::ConfigurationsUntold,
        ClusterBreak::AcksLost,
        ClusterBreak::TogetherApart,
        ClusterBreak::SyncPretended,
        ClusterBreak::RotShown,
        ClusterBreak::ReachHidden,
        ClusterBreak::ReachUntold,
        ClusterBreak::SixthLeftOut,
        ClusterBreak::GivenUpEarly,
        ClusterBreak::UnclosedShown,
        ClusterBreak::GapForgotten,
    ];
}

/// State of a broken cluster.
#[derive(Default)]
pub(super) struct ClusterBreakState {
    /// The newest promise that was made in each chain.
    promised: BTreeMap<u32, u64>,
    tries: u64,
    /// Which process of each node it really is.
    incarnations: BTreeMap<NodeId, u64>,
}

impl ClusterBreakState {
    /// Breaks a message that arrives at a node. `None`: it is lost.
    pub(super) fn on_message(
        &mut self,
        broken: ClusterBreak,
        mut envelope: Box<Envelope>,
        engine: &ServerParts,
    ) -> Option<Box<Envelope>> {
        if let ServerMessage::ChainPromise(promise) = &envelope.message {
            let known = self.promised.entry(promise.chain).or_default();
            *known = (*known).max(promise.at);
        }
        match (broken, &mut envelope.message) {
            (ClusterBreak::AcksBeforeTail, ServerMessage::ChainAck(ack)) if ack.upto > 0 => ack.upto = ack.held,
            (ClusterBreak::AcksLost, ServerMessage::ChainAck(ack)) => ack.upto = 0,
            (ClusterBreak::ClosesEarly, ServerMessage::ChainAck(ack)) => {
                ack.closed = ack.closed.max(self.promised.get(&ack.chain).copied().unwrap_or(0));
            }
            (ClusterBreak::PromisesLost, ServerMessage::ChainPromise(_)) => return None,
            (ClusterBreak::SixthLeftOut, ServerMessage::Metalog(_) | ServerMessage::MetalogPiece(_))
                if envelope.to.0 > 5 =>
            {
                return None;
            }
            (ClusterBreak::EpochUnchecked, ServerMessage::Heartbeat(heartbeat)) => {
                heartbeat.chains.iter_mut().for_each(|report| report.last_epoch = report.last_epoch.min(1));
            }
            (ClusterBreak::EpochUnchecked, message) => set_epoch(message, engine),
            (ClusterBreak::SuffixKept, ServerMessage::ChainKeep(keep)) => keep.upto = u64::MAX,
            (ClusterBreak::MemoryPretended, ServerMessage::Heartbeat(heartbeat)) => {
                self.incarnations.insert(envelope.from, heartbeat.incarnation);
                heartbeat.incarnation = 1;
            }
            (ClusterBreak::SyncPretended, ServerMessage::Heartbeat(heartbeat)) => {
                let chains = engine.planes.chains();
                for report in &mut heartbeat.chains {
                    let known = chains.iter().find(|known| known.chain == report.chain && known.epoch == report.epoch);
                    (report.caught_up, report.is_ready) = (known.map_or(0, |known| known.syncing), true);
                }
            }
            (ClusterBreak::MemoryPretended, ServerMessage::Grant(grant)) => {
                // So that the process takes it for its own.
                grant.incarnation = self.incarnations.get(&envelope.to).copied().unwrap_or(grant.incarnation);
            }
            (ClusterBreak::DirtyShown, ServerMessage::ChainClean(clean)) => {
                let last =
                    engine.planes.chains().iter().find(|chain| chain.chain == clean.chain).map(|chain| chain.last);
                if let (Some(upto), Some(last)) = (&mut clean.upto, last) {
                    *upto = (*upto).max(last);
                }
            }
            (ClusterBreak::ReachHidden, ServerMessage::QuestionAnswer(answer)) => {
                if let [holes] = answer.holes.as_mut_slice() {
                    holes.runs = vec![0, envelope.payload.bytes.len() as u32];
                }
            }
            (ClusterBreak::ReachUntold, ServerMessage::QuestionAnswer(answer)) => {
                answer.tails.iter_mut().for_each(|tail| (tail.chunk, tail.end) = (None, 0));
            }
            (ClusterBreak::StampsUntold, _) => envelope.header.hlc = frieze_hlc::Hlc::ZERO,
            (ClusterBreak::LeaseLong, ServerMessage::Grant(grant)) => {
                grant.lease_ns = grant.lease_ns.saturating_mul(30)
            }
            (ClusterBreak::ConfigurationsUntold, ServerMessage::Grant(grant)) => {
                for assignment in &mut grant.chains {
                    assignment.configuration = None;
                }
            }
            (ClusterBreak::BytesDamaged, ServerMessage::ChainRecord(_)) if !envelope.payload.bytes.is_empty() => {
                let mut bytes = envelope.payload.bytes.to_vec();
                bytes[0] ^= 1;
                envelope.header.payload_crc = frieze_base::crc32c(&bytes);
                envelope.payload.bytes = bytes.into();
            }
            _ => {}
        }
        Some(envelope)
    }

    /// Breaks a request of a client.
    pub(super) fn ask(
        &mut self,
        broken: ClusterBreak,
        header: &mut FrameHeader,
        body: &mut RequestBody,
        engine: &ServerParts,
    ) {
        let tells_of_now = matches!(&body.request, Some(Request::Read(_) | Request::List(_) | Request::Stat(_)));
        match broken {
            ClusterBreak::RetriesRunAgain if header.seq > Seq(0) => {
                self.tries += 1;
                (header.seq, header.acked) = (Seq(1 << 40 | self.tries), Seq(0));
            }
            ClusterBreak::StampsUntold => header.hlc = frieze_hlc::Hlc::ZERO,
            ClusterBreak::UnclosedShown if engine.leader().is_none() => {
                let view = match &mut body.request {
                    Some(Request::Open(ask)) => &mut ask.view,
                    Some(Request::List(ask)) => &mut ask.view,
                    _ => return,
                };
                let closed = engine.metalog().map_or(0, |status| status.closed.0);
                if closed == 0 {
                    // It has received nothing yet, and could not show anything.
                    return;
                }
                view.at = view.at.map(|at| at.min(closed));
            }
            // A request with a number is ordered by the log in any case, and needs no check.
            ClusterBreak::LeaseIgnored | ClusterBreak::LeaseLong | ClusterBreak::ReadsAlone if tells_of_now => {
                header.seq = Seq(1);
            }
            _ => {}
        }
    }

    /// Makes a server delete records that other members have, as [`ServerParts::drop_remains`] does, or too early.
    /// `judge` checks the state behind the decision.
    pub(super) fn detach(
        broken: Option<ClusterBreak>,
        engine: &ServerParts,
        judge: impl Fn(&ClusterState, ChainId, NodeId),
    ) -> Result<(), Fault> {
        engine.service.upkeep.drop_remains_if(&|state, chain, node| {
            let is_kept = match broken {
                Some(ClusterBreak::GivenUpEarly) => {
                    state.chain(chain).is_some_and(|chain| chain.target(node).is_none())
                }
                _ => state.is_kept_by_others(chain, node),
            };
            if is_kept {
                judge(state, chain, node);
            }
            is_kept
        })
    }

    /// Breaks a server, after each of its calls.
    pub(super) fn after(&self, broken: ClusterBreak, engine: &ServerParts) {
        if broken == ClusterBreak::LeaseIgnored {
            engine.renew_lease(MonoTime(u64::MAX));
        }
    }
}

/// Breaks an answer on its way out of a server.
pub(super) fn answer(broken: ClusterBreak, has_gone_on: bool, answer: &mut NodeResponse) {
    if broken == ClusterBreak::GapForgotten && has_gone_on {
        if let Ok(Reply::Read(reply)) = &mut answer.result {
            reply.answered.incomplete = false;
        }
        return;
    }
    let is_corrupt = answer.result.as_ref().is_err_and(|fault| fault.reason == Reason::Corrupt);
    if broken == ClusterBreak::RotShown && is_corrupt {
        answer.result = Ok(Reply::Read(ReadReply::default()));
        answer.payload = vec![1, 2, 3, 4];
    }
}

/// Says it under the configuration that the hearer has.
fn set_epoch(message: &mut ServerMessage, engine: &ServerParts) {
    let here = |chain: u32| {
        let chains = engine.planes.chains();
        chains.iter().find(|known| known.chain == chain).map_or(ChainEpoch(0), |known| ChainEpoch(known.epoch))
    };
    let (chain, epoch) = match message {
        ServerMessage::ChainRecord(said) => (said.chain, &mut said.epoch),
        ServerMessage::ChainPromise(said) => (said.chain, &mut said.epoch),
        ServerMessage::ChainAck(said) => (said.chain, &mut said.epoch),
        ServerMessage::ChainGreet(said) => (said.chain, &mut said.epoch),
        ServerMessage::ChainOffer(said) => (said.chain, &mut said.epoch),
        ServerMessage::ChainKeep(said) => (said.chain, &mut said.epoch),
        ServerMessage::ChainClean(said) => (said.chain, &mut said.epoch),
        ServerMessage::ChainAsk(said) => (said.chain, &mut said.epoch),
        _ => return,
    };
    *epoch = here(chain).0;
}
