//! A node's own lease: its reports to the leader, the leader's grants, and whether the node may answer now.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use frieze_base::{ChainEpoch, ChainId, ClusterId, Fault, MonoTime, NodeId, Reason, Rng};

use crate::chain::LostInterval;
use crate::message::{
    Assignment, ClockOffset, Heartbeat, LeaseGrant, ReplicaGarbage, ReplicaHealth, ReplicaReport, WallMoment,
};
use crate::node::NodeDevice;
use crate::settings::Settings;

/// Identity of a process. Its incarnation is durable before the first heartbeat, and above every one that this node
/// ever had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its node.
    pub node: NodeId,
    /// Number of the process.
    pub incarnation: u64,
    /// Address at which peers reach it.
    pub address: String,
    /// Its devices.
    pub devices: Vec<NodeDevice>,
}

/// Everything that can happen to a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeLeaseInput {
    /// Time has passed: at least each [`Settings::hurried_ns`] while reports are pending.
    Tick,
    /// The metalog's member here takes this node for the leader.
    Leader(Option<NodeId>),
    /// The leader has answered, or sent a new decision.
    Granted(LeaseGrant),
    /// A node has refused a heartbeat.
    Refused {
        /// The node that refused.
        from: NodeId,
        /// Why.
        fault: Fault,
    },
    /// [`NodeLeaseEffect::Install`] is done: no replica here acts under an older configuration any more.
    Installed {
        /// From the effect.
        token: u64,
    },
    /// Installing failed, and no configuration was taken: the leader sends them again.
    NotInstalled {
        /// From the effect.
        token: u64,
    },
    /// A report of a replica.
    Replica {
        /// Its chain.
        chain: ChainId,
        /// The report.
        event: ReplicaEvent,
    },
    /// The devices are these now.
    Devices(Vec<NodeDevice>),
    /// The replica garbage of this node. Sent with the next heartbeat.
    Remains(ReplicaGarbage),
    /// Trouble of this server, as text; empty if there is none. Sent with the next heartbeat.
    Trouble(String),
    /// The process is about to end: it answers nothing from now on, and other nodes need not wait for its lease to end.
    Resign,
}

/// A report of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaEvent {
    /// As the tail: the syncing target has caught up.
    CaughtUp {
        /// The syncing target.
        node: NodeId,
        /// Under this configuration.
        epoch: ChainEpoch,
    },
    /// As the joining tail: it can serve.
    Ready {
        /// Under this configuration.
        epoch: ChainEpoch,
    },
    /// How it is.
    Health(ReplicaHealth),
    /// End of its log, and the bytes that it lacks.
    Progress {
        /// (epoch, n) of its last record.
        last: (ChainEpoch, u64),
        /// The stamp of that record, as a number.
        newest: u64,
        /// Bytes, as far as it knows.
        left_bytes: u64,
    },
    /// A power loss may have taken records of this interval from its log.
    Lost(LostInterval),
}

/// Everything that a tenant asks of its driver, to be done in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeLeaseEffect {
    /// Send this to the leader, which may be this node itself.
    Send {
        /// The leader.
        to: NodeId,
        /// The heartbeat.
        heartbeat: Heartbeat,
    },
    /// Give each replica its configuration, then report [`NodeLeaseInput::Installed`] or
    /// [`NodeLeaseInput::NotInstalled`]. A configuration that does not name this node takes its part away.
    Install {
        /// Names it.
        token: u64,
        /// The chains, each with a configuration.
        chains: Vec<Assignment>,
    },
    /// The leader refuses this node: log the reason once.
    Refused(Fault),
}

/// The lease of one process.
#[derive(Debug)]
pub struct NodeLease {
    identity: ProcessIdentity,
    settings: Settings,
    rng: Rng,
    leader: Option<NodeId>,

    /// Number of the last heartbeat, and the newest answered.
    number: u64,
    heard: u64,
    /// When those not answered yet were sent.
    sent: BTreeMap<u64, WallMoment>,
    /// The best comparison with the leader's clock of late, and the heartbeat that it is from.
    clock: Option<(u64, ClockOffset)>,
    /// When the next one is due.
    next: MonoTime,
    last_sent: Option<MonoTime>,
    /// Refusals in a row, and the last.
    refusals: u32,
    refused: Option<Fault>,

    /// Newest state version of any grant. A late grant of an older version could restore a role that was removed.
    version: u64,
    lease_until: Option<MonoTime>,
    has_resigned: bool,
    tokens: u64,
    remains: ReplicaGarbage,
    trouble: String,
    installing: VecDeque<Installing>,
    chains: BTreeMap<ChainId, LocalChain>,
}

/// Local knowledge of a chain.
#[derive(Clone, Copy, Debug, Default)]
struct LocalChain {
    report: ReplicaReport,
    /// It has a part under the configuration installed.
    has_part: bool,
    /// Epoch of the last record when the process began. A part under this one or an older is the part of the process
    /// before.
    floor: ChainEpoch,
    caught_up: Option<(NodeId, ChainEpoch)>,
    ready: Option<ChainEpoch>,
}

/// Configurations on their way into the replicas, and the lease that counts once they are there.
#[derive(Debug)]
struct Installing {
    token: u64,
    chains: Vec<InstallingChain>,
    lease: Option<PendingLease>,
}

/// This node's role in a configuration.
#[derive(Debug)]
struct InstallingChain {
    chain: ChainId,
    epoch: ChainEpoch,
    /// It is named.
    has_part: bool,
    /// As a member: it has all that the chain has.
    is_member: bool,
}

#[derive(Debug)]
struct PendingLease {
    until: MonoTime,
    /// The chains that the grant names.
    named: BTreeSet<ChainId>,
}

/// Heartbeats that may be under way unanswered; older ones no longer count.
const SENT_MAX: usize = 64;
/// Heartbeats after which a comparison of clocks makes room for one that is not as good.
const CLOCK_BEATS: u64 = 16;
/// Grants on their way into the replicas; the leader sends another.
const INSTALLING_MAX: usize = 64;

impl NodeLease {
    /// Of a process that has just begun, with (epoch, n) and the stamp of the last record of each chain in its log. It
    /// has no part in any.
    pub fn new(
        identity: ProcessIdentity,
        settings: Settings,
        seed: u64,
        logs: impl IntoIterator<Item = (ChainId, (ChainEpoch, u64), u64)>,
    ) -> NodeLease {
        let local = |(chain, last, newest): (ChainId, (ChainEpoch, u64), u64)| {
            let report = ReplicaReport { chain, last, newest, ..ReplicaReport::default() };
            (chain, LocalChain { report, floor: last.0, ..LocalChain::default() })
        };
        NodeLease {
            identity,
            settings,
            rng: Rng::new(seed),
            leader: None,
            number: 0,
            heard: 0,
            sent: BTreeMap::new(),
            clock: None,
            next: MonoTime::default(),
            last_sent: None,
            refusals: 0,
            refused: None,
            version: 0,
            lease_until: None,
            has_resigned: false,
            tokens: 0,
            remains: ReplicaGarbage::default(),
            trouble: String::new(),
            installing: VecDeque::new(),
            chains: logs.into_iter().map(local).collect(),
        }
    }

    /// Advances the lease by one input; `out` receives the driver's tasks, in order.
    pub fn step(&mut self, at: WallMoment, input: NodeLeaseInput, out: &mut Vec<NodeLeaseEffect>) {
        let now = at.mono;
        match input {
            NodeLeaseInput::Tick => {}
            NodeLeaseInput::Leader(leader) => {
                if self.leader != leader {
                    (self.refusals, self.clock) = (0, None);
                    self.next = now;
                }
                self.leader = leader;
            }
            NodeLeaseInput::Granted(grant) => self.on_granted(at, grant, out),
            NodeLeaseInput::Refused { from, fault } => self.on_refused(now, from, fault, out),
            NodeLeaseInput::Installed { token } => self.on_installed(now, token),
            NodeLeaseInput::NotInstalled { token } => self.installing.retain(|installing| installing.token != token),
            NodeLeaseInput::Replica { chain, event } => self.on_event(now, chain, event),
            NodeLeaseInput::Devices(devices) => {
                self.identity.devices = devices;
                self.next = now;
            }
            NodeLeaseInput::Remains(remains) => self.remains = remains,
            NodeLeaseInput::Trouble(trouble) => self.trouble = trouble,
            NodeLeaseInput::Resign => {
                (self.has_resigned, self.lease_until) = (true, None);
                self.installing.clear();
                return self.send(at, out);
            }
        }
        let hurried = self.last_sent.map_or(MonoTime(0), |last| MonoTime(last.0 + self.settings.hurried_ns));
        if !self.has_resigned && now >= self.next.max(hurried) {
            self.send(at, out);
        }
    }

    /// True if this node may answer reads of now, and stamp. Call it *after* reading the state, so that a pause in
    /// between cannot return stale state.
    pub fn holds(&self, now: MonoTime) -> bool {
        self.lease_until.is_some_and(|until| now < until)
    }

    /// When the lease ends, by this node's monotonic clock.
    pub fn lease_until(&self) -> Option<MonoTime> {
        self.lease_until
    }

    /// When the next heartbeat is due: [`NodeLeaseInput::Tick`] then.
    pub fn next_heartbeat(&self) -> MonoTime {
        self.next
    }

    /// Why the leader refuses this node, if it does.
    pub fn refused(&self) -> Option<&Fault> {
        self.refused.as_ref()
    }

    fn send(&mut self, at: WallMoment, out: &mut Vec<NodeLeaseEffect>) {
        let back_off = self.settings.heartbeat_ns << self.refusals.min(16);
        let wait = back_off.min(self.settings.back_off_ns_max.max(self.settings.heartbeat_ns));
        // All nodes of a cluster that starts at once are not to speak at once for ever.
        let early = self.rng.below(wait / 8 + 1);
        self.next = MonoTime(at.mono.0 + wait - early);
        let Some(to) = self.leader else { return };
        self.last_sent = Some(at.mono);
        self.number += 1;
        self.sent.insert(self.number, at);
        if self.sent.len() > SENT_MAX {
            self.sent.pop_first();
        }
        let ProcessIdentity { cluster, node, incarnation, address, devices } = self.identity.clone();
        let heartbeat = Heartbeat {
            cluster,
            node,
            incarnation,
            number: self.number,
            heard: self.heard,
            clock: self.clock.map(|(_, clock)| clock),
            resigns: self.has_resigned,
            address,
            devices,
            chains: self.chains.values().map(LocalChain::report).collect(),
            remains: self.remains,
            trouble: self.trouble.clone(),
        };
        out.push(NodeLeaseEffect::Send { to, heartbeat });
    }

    fn on_granted(&mut self, at: WallMoment, grant: LeaseGrant, out: &mut Vec<NodeLeaseEffect>) {
        if grant.incarnation != self.identity.incarnation || self.has_resigned {
            return;
        }
        let now = at.mono;
        self.compare_clocks(at, &grant);
        if grant.number > self.heard && grant.number <= self.number {
            self.heard = grant.number;
            if grant.lease_ns > 0 {
                (self.refusals, self.refused) = (0, None);
            }
        }
        if grant.version < self.version || self.installing.len() >= INSTALLING_MAX {
            return;
        }
        self.version = grant.version;
        let named = grant.chains.iter().map(|assignment| assignment.chain).collect();
        let sent = self.sent.get(&grant.number).filter(|_| grant.lease_ns > 0);
        let lease = sent.map(|sent| PendingLease { until: MonoTime(sent.mono.0 + grant.lease_ns), named });
        let (me, known) = (self.identity.node, &self.chains);
        let is_newer = |assignment: &Assignment| {
            let local = known.get(&assignment.chain).copied().unwrap_or_default();
            assignment.configuration.as_ref().is_some_and(|configuration| {
                let is_own = !configuration.names(me) || configuration.epoch > local.floor;
                configuration.epoch > local.report.epoch && is_own
            })
        };
        let chains: Vec<Assignment> = grant.chains.into_iter().filter(is_newer).collect();
        self.tokens += 1;
        let token = self.tokens;
        let installs = chains.iter().filter_map(|assignment| {
            let configuration = assignment.configuration.as_ref()?;
            let (has_part, is_member) = (configuration.names(me), configuration.members.contains(&me));
            Some(InstallingChain { chain: assignment.chain, epoch: configuration.epoch, has_part, is_member })
        });
        self.installing.push_back(Installing { token, chains: installs.collect(), lease });
        if chains.is_empty() {
            self.on_installed(now, token);
        } else {
            out.push(NodeLeaseEffect::Install { token, chains });
        }
    }

    /// The leader's clock was read between sending the heartbeat and now.
    fn compare_clocks(&mut self, at: WallMoment, grant: &LeaseGrant) {
        let Some(sent) = self.sent.get(&grant.number).filter(|_| self.leader == Some(grant.leader)) else { return };
        let half_us = at.mono.since_ns(sent.mono) / 2000;
        let offset_us = (sent.wall_us + half_us) as i64 - grant.wall_us as i64;
        let is_better = self.clock.is_none_or(|(number, clock)| {
            let has_jumped = offset_us.abs_diff(clock.offset_us) > half_us.saturating_add(clock.error_us);
            half_us <= clock.error_us || has_jumped || grant.number.saturating_sub(number) > CLOCK_BEATS
        });
        if is_better {
            self.clock = Some((grant.number, ClockOffset { offset_us, error_us: half_us }));
        }
    }

    fn on_installed(&mut self, now: MonoTime, token: u64) {
        let Some(place) = self.installing.iter().position(|installing| installing.token == token) else { return };
        let Some(Installing { chains, lease, .. }) = self.installing.remove(place) else { return };
        for &InstallingChain { chain, epoch, has_part, is_member } in &chains {
            let local = self.chains.entry(chain).or_default();
            if epoch > local.report.epoch {
                (local.report.chain, local.report.epoch, local.has_part) = (chain, epoch, has_part);
                local.report.health = ReplicaHealth::Good;
                // A member has received what it lacked, or the loss is recorded.
                local.report.lost = local.report.lost.filter(|_| !is_member);
            }
        }
        if !chains.is_empty() {
            self.next = now;
        }
        let Some(PendingLease { until, named }) = lease else { return };
        let parts = self.chains.iter().filter(|(_, local)| local.has_part).map(|(chain, _)| chain);
        let coming = self.installing.iter().flat_map(|installing| &installing.chains);
        let coming = coming.filter(|part| part.has_part).map(|part| &part.chain);
        // A role that the leader does not know, from a late message: report it first.
        if parts.chain(coming).all(|chain| named.contains(chain)) {
            self.lease_until = self.lease_until.max(Some(until));
        } else {
            self.next = now;
        }
    }

    fn on_refused(&mut self, now: MonoTime, from: NodeId, fault: Fault, out: &mut Vec<NodeLeaseEffect>) {
        // A refusal by a former leader may arrive late and says nothing about the present leader; a node that does not
        // lead cannot refuse. A longer wait would cost this node its lease.
        if self.leader != Some(from) || fault.reason == Reason::Unavailable {
            return;
        }
        self.refusals += 1;
        let wait = (self.settings.heartbeat_ns << self.refusals.min(16)).min(self.settings.back_off_ns_max);
        self.next = self.next.max(MonoTime(now.0 + wait));
        if self.refused.as_ref() != Some(&fault) {
            self.refused = Some(fault.clone());
            out.push(NodeLeaseEffect::Refused(fault));
        }
    }

    fn on_event(&mut self, now: MonoTime, chain: ChainId, event: ReplicaEvent) {
        let local = self.chains.entry(chain).or_default();
        let before = local.report();
        local.report.chain = chain;
        match event {
            ReplicaEvent::CaughtUp { node, epoch } => local.caught_up = Some((node, epoch)),
            ReplicaEvent::Ready { epoch } => local.ready = Some(epoch),
            ReplicaEvent::Health(health) => local.report.health = health,
            ReplicaEvent::Lost(lost) => local.report.lost = Some(lost),
            ReplicaEvent::Progress { last, newest, left_bytes } => {
                (local.report.last, local.report.newest, local.report.left_bytes) = (last, newest, left_bytes);
            }
        }
        let after = local.report();
        if (before.caught_up, before.is_ready, before.health) != (after.caught_up, after.is_ready, after.health) {
            self.next = self.next.min(now);
        }
    }
}

impl LocalChain {
    /// Reports made under another configuration than the installed one are not repeated.
    fn report(&self) -> ReplicaReport {
        let caught_up = self.caught_up.filter(|(_, epoch)| *epoch == self.report.epoch).map(|(node, _)| node);
        ReplicaReport { caught_up, is_ready: self.ready == Some(self.report.epoch), ..self.report }
    }
}
