//! State that only the leader of the metalog has: which nodes are online, and the decisions that follow.
//!
//! A controller is volatile. It counts leases and stores the nodes' reports; what has to survive becomes a [`Decision`]
//! in the log. A decision that another leader has overtaken has no effect there, so a stale controller does no harm.

mod asks;
mod chains;
mod leases;
mod status;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{ChainId, ClusterId, MonoTime, NodeId};

use crate::decision::{Change, Decision};
use crate::error::Error;
use crate::message::{Clock, Grant, Heartbeat, Moment};
use crate::node::{Device, Newcomer};
use crate::settings::Settings;
use crate::state::State;

pub use status::{ChainStatus, Contacts, NodeStatus, Status, TargetStatus, Waits};
pub use trouble::Trouble;

/// Everything that can happen to an overseer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Time has passed. Sent as often as a lost node should be noticed: each 50 ms by default.
    Tick,
    /// This node leads the metalog, and its state holds everything that earlier leaders have had committed.
    Lead {
        /// In this term.
        term: u64,
    },
    /// It does not, and this one does.
    Follow(Option<NodeId>),
    /// A node is there. The sender is proven by the connection.
    Heartbeat(Heartbeat),
    /// A majority of the metalog has confirmed, after [`Effect::Confirm`], that this node leads, and the state holds
    /// everything that was committed by then.
    Confirmed {
        /// From the effect.
        token: u64,
    },
    /// Decisions were executed on the state, with these changes.
    Applied(Vec<Change>),
    /// A request of an operator or a joining node. Answered by [`Effect::Answer`].
    Ask {
        /// Names the request.
        request: u64,
        /// The request.
        ask: Ask,
    },
}

/// A request of an operator, or of a node that wants to join. A repeated request takes effect once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// To be one of the cluster. Answered by [`Answer::Joined`].
    Join {
        /// The node.
        newcomer: Newcomer,
        /// The cluster that its directory belongs to, if it does to one.
        cluster: Option<ClusterId>,
        /// Its wall clock, as far as it could compare it with this node's.
        clock: Option<Clock>,
    },
    /// The node gives its chains away.
    Drain {
        /// Which.
        node: NodeId,
        /// Even where fewer replicas than wanted remain.
        fewer: bool,
    },
    /// The node may keep its targets.
    Undrain(NodeId),
    /// A drained node is none of the cluster any more.
    Remove(NodeId),
    /// The node is offline and will not come back, nor will what only it has. Its chains continue without it, and it is
    /// removed.
    DeclareDead {
        /// The node.
        node: NodeId,
        /// The operator confirms the loss of what only this node has.
        with_loss: bool,
    },
    /// A node has one more device.
    AddDevice {
        /// Which.
        node: NodeId,
        /// The device.
        device: Device,
    },
    /// Move chains until every node has its share, or stop that.
    Balance(bool),
    /// So many replicas of each chain.
    Replicas(u32),
}

/// Result of an [`OperatorRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The node has this id.
    Joined(NodeId),
    /// It is decided, and is being done: [`Overseer::status`] shows how far.
    Decided,
}

/// Everything that an overseer asks of its driver, to be done in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask a majority of the metalog whether this node leads, now or later (a read index), and wait until the state
    /// holds all up to there. Then [`Input::Confirmed`]; nothing if it does not come.
    Confirm {
        /// Names the question.
        token: u64,
    },
    /// Send this to a node, which may be this one.
    Grant {
        /// The node.
        to: NodeId,
        /// The grant.
        grant: Grant,
    },
    /// Refuse a node's heartbeat.
    Refuse {
        /// The node.
        to: NodeId,
        /// The reason, and what to do.
        error: Error,
    },
    /// Propose these to the log, if this node still leads in this term: a decision from an older term may rest on
    /// overtaken state. A decision that is not taken is proposed again.
    Propose {
        /// From [`Input::Lead`].
        term: u64,
        /// In this order.
        decisions: Vec<Decision>,
    },
    /// Answers [`Input::Ask`].
    Answer {
        /// The request.
        request: u64,
        /// Its result.
        result: Result<Answer, Error>,
    },
    /// This node's own clock differs too much from those of the other nodes: transfer the leadership.
    StepAside(Error),
}

/// The volatile half of the control plane.
#[derive(Debug)]
pub struct Overseer {
    me: NodeId,
    settings: Settings,
    /// The leader, if it is known here.
    leader: Option<NodeId>,
    leading: Option<Leading>,
    tokens: u64,
}

/// State since this node became the leader.
#[derive(Debug, Default)]
struct Leading {
    term: u64,
    since: MonoTime,
    /// When all chains were last examined.
    looked: MonoTime,
    nodes: BTreeMap<NodeId, leases::Watched>,
    /// The question about leadership that is under way.
    confirming: Option<(u64, MonoTime)>,
    /// Based on which revision something was proposed, and when.
    proposed: BTreeMap<Subject, (u64, MonoTime)>,
    asks: Vec<asks::Asked>,
    /// Chains without a remaining member that may have kept its memory, and since when.
    stuck: BTreeMap<ChainId, MonoTime>,
    /// Progress of the running syncs.
    syncs: BTreeMap<ChainId, chains::Progress>,
    /// Targets whose sync made no progress and that make room for another one.
    stalled: BTreeMap<ChainId, NodeId>,
    /// Since when nodes are known to be offline.
    offline: BTreeMap<NodeId, MonoTime>,
}

/// The object of a decision: one decision about each is proposed at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Node(NodeId),
    Chain(ChainId),
    Cluster,
    Newcomer(u128),
}

impl Overseer {
    /// On this node; it does not lead yet.
    pub fn new(me: NodeId, settings: Settings) -> Overseer {
        Overseer { me, settings, leader: None, leading: None, tokens: 0 }
    }

    /// Advances the controller by one input; `out` receives the driver's tasks, in order. `state` is that of this node,
    /// with every decision executed that the driver has passed in.
    pub fn step(&mut self, at: Moment, state: &State, input: Input, out: &mut Vec<Effect>) {
        let now = at.mono;
        let mut look = Look::All;
        match input {
            Input::Tick => {
                self.expire(now, state);
                let is_due = self.leading.as_ref().is_some_and(|leading| now.since_ns(leading.looked) >= LOOK_NS);
                look = if is_due { Look::All } else { Look::At(BTreeSet::new()) };
            }
            Input::Lead { term } => {
                // Another leader may have led in between without this node noticing: the collected state is stale in
                // any case.
                self.stand_down(Some(self.me), out);
                self.leading = Some(Leading { term, since: now, ..Leading::default() });
            }
            Input::Follow(leader) => self.stand_down(leader, out),
            Input::Heartbeat(heartbeat) => {
                let to = heartbeat.node;
                match self.on_heartbeat(at, state, heartbeat, out) {
                    Ok(told) => look = told,
                    Err(error) => out.push(Effect::Refuse { to, error }),
                }
            }
            Input::Confirmed { token } => {
                look = Look::At(BTreeSet::new());
                self.on_confirmed(at, state, token, out);
            }
            Input::Applied(changes) => {
                self.on_applied(at, state, &changes, out);
                look = Look::after(state, &changes);
            }
            Input::Ask { request, ask } => {
                if let Err(error) = self.on_ask(at, state, request, ask) {
                    out.push(Effect::Answer { request, result: Err(error) });
                }
            }
        }
        let Some(term) = self.leading.as_ref().map(|leading| leading.term).filter(|_| state.is_founded()) else {
            return;
        };
        self.watch_all(now, state);
        let decisions = self.decide(now, state, &look, out);
        let max = self.settings.decisions_max.max(1);
        out.extend(decisions.chunks(max).map(|some| Effect::Propose { term, decisions: some.to_vec() }));
        self.confirm(now, state, out);
    }

    fn stand_down(&mut self, leader: Option<NodeId>, out: &mut Vec<Effect>) {
        self.leader = leader;
        let asks = self.leading.take().into_iter().flat_map(|leading| leading.asks);
        let refused =
            |asked: asks::Asked| Effect::Answer { request: asked.request, result: Err(Error::NotLeader { leader }) };
        out.extend(asks.map(refused));
    }

    /// True if this node leads, as far as it knows.
    pub fn leads(&self) -> bool {
        self.leading.is_some()
    }

    /// The nodes that have been offline for so long that other nodes replace them. Empty if this node does not lead.
    pub fn replaceable(&self, now: MonoTime) -> Vec<NodeId> {
        let offline = self.leading.iter().flat_map(|leading| &leading.offline);
        offline.filter(|(_, since)| !self.is_short(now, **since)).map(|(node, _)| *node).collect()
    }

    /// Finds the next decisions.
    fn decide(&mut self, now: MonoTime, state: &State, look: &Look, out: &mut Vec<Effect>) -> Vec<Decision> {
        let mut wanted = self.decide_nodes(now, state);
        if *look == Look::All {
            wanted.extend(self.decide_asks(now, state, out));
        }
        wanted.extend(self.decide_chains(now, state, look));
        let Some(leading) = &mut self.leading else { return Vec::new() };
        if *look == Look::All {
            leading.looked = now;
        }
        let again = self.settings.again_ns;
        let mut decisions = Vec::new();
        for (subject, revision, some) in wanted {
            let is_proposed = leading
                .proposed
                .get(&subject)
                .is_some_and(|(before, when)| *before == revision && now.since_ns(*when) < again);
            if !is_proposed {
                leading.proposed.insert(subject, (revision, now));
                decisions.extend(some);
            }
        }
        decisions
    }

    /// Drops state that is long out of date.
    fn expire(&mut self, now: MonoTime, state: &State) {
        let again = self.settings.again_ns;
        let Some(leading) = &mut self.leading else { return };
        leading.proposed.retain(|_, (_, when)| now.since_ns(*when) < again);
        leading.stuck.retain(|chain, _| state.chain(*chain).is_some());
        leading.nodes.retain(|node, _| state.node(*node).is_ok());
        leading.confirming = leading.confirming.filter(|(_, when)| now.since_ns(*when) < again);
    }
}

/// The chains to examine for new decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Look {
    All,
    At(BTreeSet<ChainId>),
}

impl Look {
    /// The chains to examine after these changes: if a sync has ended, another one may begin.
    fn after(state: &State, changes: &[Change]) -> Look {
        let changed = changes.iter().map(|change| match change {
            Change::Chain(chain) => Some(*chain),
            Change::Configured(id, _) => state.chain(*id).filter(|chain| chain.newcomer().is_some()).map(|_| *id),
            Change::NoEffect(_) | Change::Recovered(_) => None,
            Change::Founded | Change::Joined(_) | Change::Node(_) | Change::Removed(_) | Change::Wanted => None,
        });
        changed.collect::<Option<_>>().map_or(Look::All, Look::At)
    }
}

/// Interval between two examinations of all chains while no report changes them: time alone changes little.
const LOOK_NS: u64 = 200_000_000;

/// A subject, the revision of it, and the decisions about it, which are proposed together.
type Wanted = (Subject, u64, Vec<Decision>);
