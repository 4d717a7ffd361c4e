//! Requests to the members of chains, until each chain has an answer.
//!
//! Guarantees: ends within [`PEER_WAIT_MAX`] and one [`ROUND`], even if servers die or are slow meanwhile; the answer
//! for every chain comes from a member of it. A request does no harm when several servers execute it.
//!
//! The requests go to as few servers as have all of the chains. If a server refuses, or does not answer within a
//! [`ROUND`], the next request goes to another member; an answer of the first one still counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use frieze_base::{ChainId, ErrorKind, Fault, LogIndex, NodeId, Reason};
use frieze_hlc::Hlc;
use frieze_net::{PEER_WAIT_MAX, PeerPayload, Peers};
use frieze_wire::peer::{PeerRequest, PeerRequestKind, PeerResponse, ServerMessage};

use crate::files::Files;
use crate::open_requests::{OpenRequest, OpenRequests};
use crate::peer_rpc::PeerReply;

/// The request to each server, about some of the chains.
pub(crate) struct Inquiry<'a> {
    /// The instant of the request; `None`: now.
    pub(crate) at: Option<Hlc>,
    pub(crate) about: &'a dyn Fn(&BTreeSet<ChainId>) -> PeerRequestKind,
}

/// The answer of one server.
pub(crate) struct MemberReply {
    /// The chains in the request to it.
    pub(crate) asked: BTreeSet<ChainId>,
    /// Those of them without an answer from another server.
    pub(crate) chains: BTreeSet<ChainId>,
    pub(crate) answer: PeerResponse,
    /// The bytes beside the answer.
    pub(crate) payload: Vec<u8>,
}

/// The requests without an answer yet.
struct Pending<'a> {
    requests: &'a OpenRequests<PeerReply>,
    asked: Vec<MemberRequest<'a>>,
}

/// A request to one member. At its deadline another member gets the request as well.
struct MemberRequest<'a> {
    request: OpenRequest<'a, PeerReply>,
    node: NodeId,
    chains: BTreeSet<ChainId>,
}

impl Files {
    /// Sends requests for these chains to members of them until all chains have an answer. Not to be called with a lock
    /// held.
    ///
    /// # Errors
    /// `Unavailable` if no member of one of the chains answers; `Elsewhere` if there is no member; the fault of the
    /// request itself.
    pub(crate) fn ask_members(&self, chains: BTreeSet<ChainId>, ask: &Inquiry<'_>) -> Result<Vec<MemberReply>, Fault> {
        frieze_locks::check_may_wait();
        let now = || self.planes.clock.reading().mono;
        let (began, mut round, mut why) = (now(), 0u32, None);
        let (mut left, mut answers) = (chains, Vec::new());
        let mut pending = Pending { requests: &self.planes.peer_rpc.open, asked: Vec::new() };
        while !left.is_empty() {
            if now().since_ns(began) > PEER_WAIT_MAX.as_nanos() as u64 {
                return Err(why.unwrap_or_else(|| nobody_answers(&left)));
            }
            let waited_for = pending.young();
            let todo: BTreeSet<ChainId> = left.difference(&waited_for).copied().collect();
            if !todo.is_empty() {
                for (node, chains) in self.members_for(&todo, round) {
                    pending.asked.push(self.send_request(node, chains, ask));
                }
                round += 1;
            }
            if let (true, Some(chain)) = (pending.asked.is_empty(), left.first()) {
                return Err(frieze_chain::Error::NotMember { chain: *chain }.into());
            }
            pending.wait();
            let mut is_refused = false;
            for (node, asked, (answer, payload)) in pending.take_answered() {
                let behind = self.planes.check_executed(LogIndex(answer.expired_index)).err();
                match answer.refused.clone().map(Fault::from).or(behind) {
                    None => {
                        let chains: BTreeSet<ChainId> = asked.intersection(&left).copied().collect();
                        left.retain(|chain| !chains.contains(chain));
                        answers.push(MemberReply { asked, chains, answer, payload });
                    }
                    // The server may be no member any more, or not yet, or lag behind: another one knows.
                    Some(fault) if matches!(fault.kind(), ErrorKind::Unavailable | ErrorKind::StaleEpoch) => {
                        tracing::debug!(%node, "a server does not answer for chains: {fault}");
                        (is_refused, why) = (true, Some(fault));
                    }
                    Some(fault) => return Err(fault),
                }
            }
            if is_refused && !left.is_empty() {
                // Soon the members of these chains may be others.
                pending.requests.wait_any([], PAUSE);
            }
        }
        Ok(answers)
    }

    /// Sends a request about a chain to one server, a member of it or not. `None` if it refuses, or has not answered
    /// within a [`ROUND`]. Not to be called with a lock held.
    pub fn ask_one(&self, node: NodeId, chain: ChainId, about: &PeerRequestKind) -> Option<PeerReply> {
        let ask = Inquiry { at: None, about: &|_| about.clone() };
        let reply = self.send_request(node, BTreeSet::from([chain]), &ask).request.wait();
        reply.filter(|(answer, _)| answer.refused.is_none())
    }

    fn send_request(&self, node: NodeId, chains: BTreeSet<ChainId>, ask: &Inquiry<'_>) -> MemberRequest<'_> {
        let request = self.planes.peer_rpc.open.begin(ROUND);
        let named = chains.iter().map(|chain| chain.0).collect();
        let (at, about) = (ask.at.map(|at| at.0), Some((ask.about)(&chains)));
        let message = ServerMessage::Question(PeerRequest { id: request.id(), chains: named, at, about });
        self.planes.peers.send(node, message, PeerPayload::none());
        MemberRequest { request, node, chains }
    }

    /// The servers to ask about these chains: few servers, each for all the chains that it has. After the first round
    /// one member of each chain, another one in each round.
    fn members_for(&self, chains: &BTreeSet<ChainId>, round: u32) -> Vec<(NodeId, BTreeSet<ChainId>)> {
        let me = self.planes.node();
        let mut members: BTreeMap<ChainId, Vec<NodeId>> = BTreeMap::new();
        self.planes.meta.look_at_control(&mut |state| {
            for chain in chains.iter().filter_map(|id| state.chain(*id)) {
                let serving = chain.serving().filter(|target| state.is_alive(target)).map(|target| target.node);
                let mut nodes: Vec<NodeId> = serving.filter(|node| *node != me).collect();
                if !nodes.is_empty() {
                    let first = round as usize % nodes.len();
                    nodes.rotate_left(first);
                    members.insert(chain.id, nodes);
                }
            }
        });
        let mut asked: BTreeMap<NodeId, BTreeSet<ChainId>> = BTreeMap::new();
        while !members.is_empty() {
            let mut counts: BTreeMap<NodeId, usize> = BTreeMap::new();
            for nodes in members.values() {
                nodes.iter().take(if round == 0 { usize::MAX } else { 1 }).for_each(|node| {
                    *counts.entry(*node).or_default() += 1;
                });
            }
            let Some((&node, _)) = counts.iter().max_by_key(|(node, count)| (**count, std::cmp::Reverse(**node)))
            else {
                break;
            };
            let may =
                |nodes: &Vec<NodeId>| if round == 0 { nodes.contains(&node) } else { nodes.first() == Some(&node) };
            let taken: BTreeSet<ChainId> =
                members.iter().filter(|(_, nodes)| may(nodes)).map(|(chain, _)| *chain).collect();
            members.retain(|chain, _| !taken.contains(chain));
            asked.entry(node).or_default().extend(taken);
        }
        asked.into_iter().collect()
    }
}

impl Pending<'_> {
    /// The chains with a request before its deadline.
    fn young(&self) -> BTreeSet<ChainId> {
        let young = self.asked.iter().filter(|asked| !asked.request.time_left().is_zero());
        young.flat_map(|asked| &asked.chains).copied().collect()
    }

    /// Waits for an answer, at most until the next member is due.
    fn wait(&self) {
        let left = self.asked.iter().map(|asked| asked.request.time_left()).filter(|left| !left.is_zero()).min();
        let patience = left.unwrap_or(PAUSE).max(Duration::from_millis(1));
        self.requests.wait_any(self.asked.iter().map(|asked| &asked.request), patience);
    }

    /// Removes and returns the answered requests.
    fn take_answered(&mut self) -> Vec<(NodeId, BTreeSet<ChainId>, PeerReply)> {
        let mut answered = Vec::new();
        self.asked.retain_mut(|asked| match asked.request.take() {
            Some(reply) => {
                answered.push((asked.node, std::mem::take(&mut asked.chains), reply));
                false
            }
            None => true,
        });
        answered
    }
}

fn nobody_answers(chains: &BTreeSet<ChainId>) -> Fault {
    let named: Vec<String> = chains.iter().take(4).map(ChainId::to_string).collect();
    let more = if chains.len() > named.len() { " and others" } else { "" };
    let words = format!("no server with chain {}{more} answers just now: try again", named.join(", "));
    Fault::new(Reason::Unavailable, words)
}

/// How long to wait for one member before another gets the request as well.
const ROUND: Duration = Duration::from_millis(500);
/// How long until the next attempt if no server could answer.
const PAUSE: Duration = Duration::from_millis(20);
