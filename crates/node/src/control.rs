//! The control plane of this server: drives its lease, and, while it leads the metalog, the controller of the whole
//! cluster.
//!
//! Guarantees: only the log makes a decision; a chain has its configuration before the lease under it counts; a lease
//! is requested after what it permits was read (`data`). A message on a connection comes from the node that has proven
//! itself on that connection. Leaves to others: what is decided and when a lease ends (`frieze_cluster`), the log
//! (`meta`), the chains (`data`).
//!
//! One lock, held for one event and all its effects. No thread waits while it holds the lock: work that needs a
//! majority runs on a thread of its own ([`Control::next_job`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use frieze_base::{ChainEpoch, ChainId, ClusterId, Fault, MonoTime, NodeId, Reason};
use frieze_cluster::{
    Assignment, ClusterChange, ClusterState, ClusterStatus, Contacts, Controller, ControllerEffect, ControllerInput,
    Decision, Heartbeat, LeaseGrant, NodeLease, NodeLeaseEffect, NodeLeaseInput, OperatorReply, OperatorRequest,
    ProcessIdentity, ReplicaEvent, ReplicaGarbage, Settings, WallMoment,
};
use frieze_locks::{Condvar, Mutex, levels};
use frieze_net::{Idle, OPERATOR_WAIT_MAX, PeerPayload, Peers, ServerAddr};
use frieze_planes::OpenRequests;
use frieze_storage::NodeClock;
use frieze_wire::chain::Configuration;
use frieze_wire::peer::ServerMessage;
use tracing::{debug, warn};

/// How often leases and their timers advance.
const BEAT: Duration = Duration::from_millis(20);
/// How often the members of the metalog are compared with the nodes of the cluster.
const MEMBERS_EVERY_NS: u64 = 100_000_000;
/// How often a server reports the progress of its chains.
const PROGRESS_EVERY_NS: u64 = 200_000_000;
/// Chain events that are queued and not yet forwarded, at most; chains report a dropped event again.
const NEWS_MAX: usize = 1 << 16;

/// What the control plane asks of the rest of the server.
pub(crate) trait Premises: Sync {
    /// Reads the state that the log has decided.
    fn state(&self, look: &mut dyn FnMut(&ClusterState));
    /// What decisions have changed since the last call.
    fn changes(&self) -> Vec<ClusterChange>;
    /// The current term of this server as leader; `None` if it does not lead.
    fn reign(&self) -> Option<Reign>;
    /// The leader, as far as this server knows.
    fn leader(&self) -> Option<NodeId>;
    /// Proposes decisions to the log if this server leads in this term; otherwise drops them.
    fn decide(&self, term: u64, decisions: &[Decision]);
    /// Applies configurations of chains. When it returns they are durable, and no replica acts under an older one.
    ///
    /// # Errors
    /// The disk's: no configuration is applied.
    fn configure(&self, configurations: &[(ChainId, Configuration)]) -> Result<(), Fault>;
    /// The lease holds until then, by the monotonic clock.
    fn renew(&self, until: MonoTime);
    /// How far the log of each chain reaches here, and the bytes that it is known to lack: [`ReplicaEvent::Progress`].
    /// Empty if the answer would have to wait.
    fn progress(&self) -> Vec<(ChainId, ReplicaEvent)>;
    /// Replicas that this server is to delete.
    fn remains(&self) -> ReplicaGarbage;
    /// Lets another server lead the metalog.
    fn step_aside(&self);
}

/// A time during which this server leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reign {
    /// Number of this term as leader, counted by this process.
    pub(crate) number: u64,
    /// The Raft term.
    pub(crate) term: u64,
}

/// The control plane: one lock over the node's lease and the controller; see the module's doc.
pub(crate) struct Control {
    me: NodeId,
    cluster: ClusterId,
    clock: Arc<NodeClock>,
    way: Arc<dyn Peers>,
    inner: Mutex<levels::ControlState, Inner>,
    news: Mutex<levels::ReplicaEvents, Vec<(ChainId, ReplicaEvent)>>,
    jobs: Mutex<levels::ControlJobs, Jobs>,
    wanted: Condvar,
    /// Requests of operators that are not decided yet.
    requests: OpenRequests<Result<OperatorReply, Fault>>,
    /// When the last message came from each other node; a leader or a lease depends on it.
    contacts: Mutex<levels::Contacts, BTreeMap<NodeId, MonoTime>>,
    /// Trouble of this server itself, in words; empty: none.
    trouble: Mutex<levels::ServerTrouble, String>,
    /// The last known addresses of the other nodes.
    addresses: Mutex<levels::NodeAddresses, BTreeMap<NodeId, ServerAddr>>,
}

struct Inner {
    controller: Controller,
    lease: NodeLease,
    /// The term as leader that the controller knows, and the leader that this node follows.
    reign: Option<Reign>,
    leader: Option<NodeId>,
    /// Since when this node follows no leader; `None` while it follows one.
    no_leader_since: Option<MonoTime>,
    progress_at: MonoTime,
}

/// A job that needs a majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Find out whether this server leads, then call [`Control::confirmed`].
    Confirm(u64),
    /// Make the nodes of the cluster the members of the metalog.
    Members,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    members_at: MonoTime,
    ended: bool,
}

/// One event, and those that follow from it.
enum ControlEvent {
    Controller(ControllerInput),
    Lease(NodeLeaseInput),
}

impl Control {
    /// For a process that has just started, with (epoch, n) of the last record of each chain in its log.
    pub(crate) fn new(
        identity: ProcessIdentity,
        settings: Settings,
        seed: u64,
        logs: Vec<(ChainId, (ChainEpoch, u64), u64)>,
        clock: Arc<NodeClock>,
        way: Arc<dyn Peers>,
        idle: Idle,
    ) -> Control {
        let (me, cluster) = (identity.node, identity.cluster);
        let inner = Inner {
            controller: Controller::new(me, settings.clone()),
            lease: NodeLease::new(identity, settings, seed, logs),
            reign: None,
            leader: None,
            no_leader_since: None,
            progress_at: MonoTime(0),
        };
        Control {
            me,
            cluster,
            requests: OpenRequests::new(0, clock.clone(), idle),
            clock,
            way,
            inner: Mutex::new(inner),
            news: Mutex::default(),
            jobs: Mutex::default(),
            wanted: Condvar::new(),
            contacts: Mutex::default(),
            trouble: Mutex::default(),
            addresses: Mutex::default(),
        }
    }

    fn moment(&self) -> WallMoment {
        let reading = self.clock.reading();
        WallMoment { mono: reading.mono, wall_us: reading.wall_us }
    }

    /// Advances time. To be called again after the returned duration.
    pub(crate) fn beat(&self, premises: &dyn Premises) -> Duration {
        let mut inner = self.inner.lock();
        let mut events = VecDeque::new();
        let reign = premises.reign();
        if let Some(Reign { term, .. }) = reign.filter(|reign| Some(*reign) != inner.reign) {
            events.push_back(ControlEvent::Controller(ControllerInput::Lead { term }));
        }
        let leader = if reign.is_some() { Some(self.me) } else { premises.leader() };
        if reign.is_none() && (inner.reign.is_some() || leader != inner.leader) {
            events.push_back(ControlEvent::Controller(ControllerInput::Follow(leader)));
        }
        if leader != inner.leader {
            events.push_back(ControlEvent::Lease(NodeLeaseInput::Leader(leader)));
        }
        (inner.reign, inner.leader) = (reign, leader);
        let changes = premises.changes();
        if !changes.is_empty() {
            events.push_back(ControlEvent::Controller(ControllerInput::Applied(changes)));
        }
        let news = std::mem::take(&mut *self.news.lock());
        events.extend(
            news.into_iter().map(|(chain, news)| ControlEvent::Lease(NodeLeaseInput::Replica { chain, event: news })),
        );
        let now = self.moment().mono;
        inner.no_leader_since = leader.is_none().then(|| inner.no_leader_since.unwrap_or(now));
        if now.since_ns(inner.progress_at) > PROGRESS_EVERY_NS {
            let progress = premises.progress();
            if !progress.is_empty() {
                inner.progress_at = now;
            }
            let told = |(chain, news)| ControlEvent::Lease(NodeLeaseInput::Replica { chain, event: news });
            events.extend(progress.into_iter().map(told));
            events.push_back(ControlEvent::Lease(NodeLeaseInput::Remains(premises.remains())));
            events.push_back(ControlEvent::Lease(NodeLeaseInput::Trouble(self.trouble.lock().clone())));
        }
        events.extend([ControlEvent::Controller(ControllerInput::Tick), ControlEvent::Lease(NodeLeaseInput::Tick)]);
        self.run(&mut inner, premises, events);
        if inner.reign.is_some() {
            self.want_members(now);
        }
        BEAT
    }

    /// Handles a control message of another server.
    pub(crate) fn on_message(&self, premises: &dyn Premises, from: NodeId, told: ControlMessage) {
        let event = match told {
            ControlMessage::Heartbeat(told) => {
                ControlEvent::Controller(ControllerInput::Heartbeat(Heartbeat::from_wire(from, self.cluster, told)))
            }
            ControlMessage::Grant(told) => {
                ControlEvent::Lease(NodeLeaseInput::Granted(LeaseGrant::from_wire(from, told)))
            }
            ControlMessage::Refused(told) => ControlEvent::Lease(NodeLeaseInput::Refused { from, fault: told.into() }),
        };
        self.run(&mut self.inner.lock(), premises, VecDeque::from([event]));
    }

    /// Records that a message came from this node.
    pub(crate) fn contact(&self, from: NodeId) {
        let now = self.moment().mono;
        self.contacts.lock().insert(from, now);
    }

    /// Number of `nodes` from which a message came within a lease, this one included.
    pub(crate) fn reachable_count(&self, nodes: &[NodeId]) -> usize {
        let recently = self.inner.lock().controller.recently_ns();
        let (now, contacts) = (self.moment().mono, self.contacts.lock());
        let is_recent = |node: &NodeId| contacts.get(node).is_some_and(|last| now.since_ns(*last) < recently);
        nodes.iter().filter(|node| **node == self.me || is_recent(node)).count()
    }

    /// For how long this node has followed no leader, in nanoseconds; `None` while it follows one.
    pub(crate) fn leaderless_ns(&self) -> Option<u64> {
        let since = self.inner.lock().no_leader_since?;
        Some(self.moment().mono.since_ns(since))
    }

    /// These nodes, plus the last known addresses of those of `needed` that are not among them. All other addresses are
    /// forgotten.
    pub(crate) fn with_former(
        &self,
        mut nodes: BTreeMap<NodeId, ServerAddr>,
        needed: impl Iterator<Item = NodeId>,
    ) -> BTreeMap<NodeId, ServerAddr> {
        let mut addresses = self.addresses.lock();
        for node in needed {
            if let (false, Some(address)) = (nodes.contains_key(&node), addresses.get(&node)) {
                nodes.insert(node, address.clone());
            }
        }
        if *addresses != nodes {
            addresses.clone_from(&nodes);
        }
        nodes
    }

    /// Sets the trouble of this server itself; empty: none.
    pub(crate) fn set_trouble(&self, trouble: String) {
        *self.trouble.lock() = trouble;
    }

    /// Why the leader refuses this node, if it does.
    pub(crate) fn refused(&self) -> Option<Fault> {
        self.inner.lock().lease.refused().cloned()
    }

    /// Queues an event of a chain. Never waits: the next beat forwards it.
    pub(crate) fn note(&self, chain: ChainId, news: ReplicaEvent) {
        let mut waiting = self.news.lock();
        if waiting.len() < NEWS_MAX {
            waiting.push((chain, news));
        }
    }

    /// A majority has confirmed, after the request `token`, that this server leads.
    pub(crate) fn confirmed(&self, premises: &dyn Premises, token: u64) {
        let event = ControlEvent::Controller(ControllerInput::Confirmed { token });
        self.run(&mut self.inner.lock(), premises, VecDeque::from([event]));
    }

    /// The process is about to end: other servers need not wait for the lease.
    pub(crate) fn resign(&self, premises: &dyn Premises) {
        self.run(&mut self.inner.lock(), premises, VecDeque::from([ControlEvent::Lease(NodeLeaseInput::Resign)]));
    }

    /// Handles an operator's request. Waits until it is decided.
    ///
    /// # Errors
    /// `Elsewhere`, `Unavailable`: this server does not lead, or no majority answers; otherwise the reason why the
    /// request is refused.
    pub(crate) fn ask(&self, premises: &dyn Premises, ask: OperatorRequest) -> Result<OperatorReply, Fault> {
        let request = self.requests.begin(OPERATOR_WAIT_MAX);
        let event = ControlEvent::Controller(ControllerInput::Request { request: request.id(), ask });
        self.run(&mut self.inner.lock(), premises, VecDeque::from([event]));
        request.wait().unwrap_or_else(|| Err(undecided()))
    }

    /// Status of the cluster.
    pub(crate) fn status(&self, premises: &dyn Premises) -> Option<ClusterStatus> {
        let inner = self.inner.lock();
        let at = self.moment();
        // A leader that was lost since the last beat already counts as missing here.
        let leader = premises.reign().map_or_else(|| premises.leader(), |_| Some(self.me));
        let no_leader_since = leader.is_none().then(|| inner.no_leader_since.unwrap_or(at.mono));
        let contacts = Contacts { last: self.contacts.lock().clone(), leader, no_leader_since };
        let mut status = None;
        premises.state(&mut |state| {
            status = state.is_founded().then(|| inner.controller.status(at, state, &contacts));
        });
        status
    }

    /// The nodes that have been offline for so long that other nodes replace them.
    pub(crate) fn replaceable(&self) -> Vec<NodeId> {
        self.inner.lock().controller.replaceable(self.moment().mono)
    }

    /// The next job that needs a majority; `None` when the server stops.
    pub(crate) fn next_job(&self) -> Option<Job> {
        let idle = |jobs: &mut Jobs| jobs.waiting.is_empty() && !jobs.ended;
        let mut jobs = self.wanted.wait_while(self.jobs.lock(), idle);
        if jobs.ended { None } else { jobs.waiting.pop_front() }
    }

    /// [`Control::next_job`] without waiting, for a process with one thread.
    pub(crate) fn take_job(&self) -> Option<Job> {
        self.jobs.lock().waiting.pop_front()
    }

    /// Ends the job queue: no thread gets a job any more.
    pub(crate) fn stop(&self) {
        self.jobs.lock().ended = true;
        self.wanted.notify_all();
    }

    fn want_members(&self, now: MonoTime) {
        let mut jobs = self.jobs.lock();
        if now.since_ns(jobs.members_at) > MEMBERS_EVERY_NS && !jobs.waiting.contains(&Job::Members) {
            jobs.members_at = now;
            self.give(&mut jobs, Job::Members);
        }
    }

    fn give(&self, jobs: &mut Jobs, job: Job) {
        // One leadership check at a time is under way: the newer one answers an older one.
        if matches!(job, Job::Confirm(_)) {
            jobs.waiting.retain(|waiting| !matches!(waiting, Job::Confirm(_)));
        }
        jobs.waiting.push_back(job);
        self.wanted.notify_one();
    }

    fn run(&self, inner: &mut Inner, premises: &dyn Premises, mut events: VecDeque<ControlEvent>) {
        while let Some(event) = events.pop_front() {
            let at = self.moment();
            match event {
                ControlEvent::Controller(input) => {
                    let mut effects = Vec::new();
                    let mut input = Some(input);
                    premises.state(&mut |state| {
                        if let Some(input) = input.take() {
                            inner.controller.step(at, state, input, &mut effects);
                        }
                    });
                    for effect in effects {
                        self.on_controller_effect(premises, effect, &mut events);
                    }
                }
                ControlEvent::Lease(input) => {
                    let mut effects = Vec::new();
                    inner.lease.step(at, input, &mut effects);
                    for effect in effects {
                        self.on_lease_effect(premises, effect, &mut events);
                    }
                    premises.renew(inner.lease.lease_until().unwrap_or_default());
                }
            }
        }
    }

    fn on_controller_effect(
        &self,
        premises: &dyn Premises,
        effect: ControllerEffect,
        events: &mut VecDeque<ControlEvent>,
    ) {
        match effect {
            ControllerEffect::Confirm { token } => self.give(&mut self.jobs.lock(), Job::Confirm(token)),
            ControllerEffect::Grant { to, grant } if to == self.me => {
                events.push_back(ControlEvent::Lease(NodeLeaseInput::Granted(grant)));
            }
            ControllerEffect::Grant { to, grant } => self.send(to, ServerMessage::Grant(grant.to_wire())),
            ControllerEffect::Refuse { to, error } if to == self.me => {
                events.push_back(ControlEvent::Lease(NodeLeaseInput::Refused { from: to, fault: error.into() }));
            }
            ControllerEffect::Refuse { to, error } => self.send(to, ServerMessage::Refused(Fault::from(error).into())),
            ControllerEffect::Propose { term, decisions } => premises.decide(term, &decisions),
            ControllerEffect::Answer { request, result } => {
                self.requests.respond(request, result.map_err(Fault::from));
            }
            ControllerEffect::StepAside(error) => {
                warn!("another server is to lead: {error}");
                premises.step_aside();
            }
        }
    }

    fn on_lease_effect(&self, premises: &dyn Premises, effect: NodeLeaseEffect, events: &mut VecDeque<ControlEvent>) {
        match effect {
            NodeLeaseEffect::Send { to, heartbeat } if to == self.me => {
                events.push_back(ControlEvent::Controller(ControllerInput::Heartbeat(heartbeat)));
            }
            NodeLeaseEffect::Send { to, heartbeat } => self.send(to, ServerMessage::Heartbeat(heartbeat.to_wire())),
            NodeLeaseEffect::Install { token, chains } => {
                let configurations: Vec<_> = chains.into_iter().filter_map(configured).collect();
                match premises.configure(&configurations) {
                    Ok(()) => events.push_back(ControlEvent::Lease(NodeLeaseInput::Installed { token })),
                    Err(fault) => {
                        warn!("configurations of chains could not be kept, so the lease runs out: {fault}");
                        events.push_back(ControlEvent::Lease(NodeLeaseInput::NotInstalled { token }));
                    }
                }
            }
            NodeLeaseEffect::Refused(fault) => warn!("the cluster's leader refuses this server: {fault}"),
        }
    }

    fn send(&self, to: NodeId, told: ServerMessage) {
        self.way.send(to, told, PeerPayload::none());
    }
}

/// A message from the leader to a node, or from a node to the leader.
pub(crate) enum ControlMessage {
    Heartbeat(frieze_wire::peer::control::HeartbeatProto),
    Grant(frieze_wire::peer::control::LeaseGrantProto),
    Refused(frieze_wire::peer::control::HeartbeatRefusal),
}

fn configured(assignment: Assignment) -> Option<(ChainId, Configuration)> {
    let configuration = assignment.configuration?;
    debug!(chain = %assignment.chain, ?configuration, "a configuration is installed");
    Some((assignment.chain, configuration))
}

fn undecided() -> Fault {
    Fault::new(Reason::Unavailable, "the cluster did not decide in time: ask again in a moment")
}
