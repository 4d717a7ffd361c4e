//! The server as a node of a cluster: what the control plane needs from it, and how a cluster begins and grows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use frieze_base::{ChainEpoch, ChainId, ClusterId, Fault, MonoTime, NodeId, Reason};
use frieze_cluster::{
    ClusterChange, ClusterState, ClusterStatus, ClusterTrouble, Decision, Error as ClusterError, LostInterval,
    MembershipChange, MetalogMembership, NodeDevice, NodeInfo, NodeState, OperatorReply, OperatorRequest,
    ProcessIdentity as Process, REPLICAS_MAX, ReplicaEvent, ReplicaGarbage, ReplicaHealth,
};
use frieze_metalog::MemberChange;
use frieze_net::ServerAddr;
use frieze_planes::Principal;
use frieze_replication::{ChainEnd, ChainEvent};
use frieze_service::NodeKeys;
use frieze_storage::Identity;
use frieze_wire::chain::Configuration;
use frieze_wire::message::{
    ChainMembers, Cluster, ClusterMapReply, ClusterOp, ClusterReply, Join, JoinReply, NodeAddress,
};
use tracing::{debug, warn};

use super::ServerParts;
use crate::control::{Control, ControlMessage, Job, Premises, Reign};

impl ServerParts {
    /// This node's control plane, if the server is one of several.
    pub(crate) fn control(&self) -> Option<&Control> {
        self.control.get().map(|control| &**control)
    }

    /// True if this server is a node of a cluster.
    pub(crate) fn has_cluster(&self) -> bool {
        self.control.get().is_some()
    }

    /// Starts this node's control plane, if the server is one of several and it has not started. To be called when the
    /// server knows its address.
    ///
    /// # Errors
    /// `InvalidArgument` if other servers cannot reach that address.
    pub fn begin_node(&self) -> Result<(), Fault> {
        if !self.planes.meta.is_member() || self.has_cluster() {
            return Ok(());
        }
        let address = self.planes.settings.reached_at(self.listens_at.get().map(String::as_str))?;
        let (me, cluster, incarnation) =
            self.planes.keeper.with(|identity| (identity.node_id(), identity.cluster_id(), identity.incarnation));
        let process = Process { cluster, node: me, incarnation, address, devices: vec![self.this_device()] };
        let settings = frieze_cluster::Settings::with_lease_ns(self.planes.settings.lease.as_nanos() as u64);
        let logs = self.planes.data.ends().iter().map(|end| (end.chain, (end.epoch, end.n), end.newest.0)).collect();
        let made = Control::new(
            process,
            settings,
            self.seed,
            logs,
            self.planes.clock.clone(),
            self.planes.peers.clone(),
            self.planes.meta.idle().clone(),
        );
        for (chain, from, to) in self.planes.data.lost_intervals() {
            made.note(chain, ReplicaEvent::Lost(LostInterval { from: from.0, to: to.0 }));
        }
        // Called once: where the server begins as a node, or founds a cluster.
        let _ = self.control.set(Arc::new(made));
        let control = Arc::downgrade(self.control.get().expect("just set"));
        self.planes.data.set_reports(Box::new(move |report| {
            if let Some(control) = control.upgrade() {
                note(&control, report);
            }
        }));
        Ok(())
    }

    /// The keys by which the nodes of this cluster prove themselves to each other.
    pub(crate) fn node_keys(&self) -> NodeKeys {
        NodeKeys::of(self.planes.keeper.with(Identity::key))
    }

    fn this_device(&self) -> NodeDevice {
        // Its share of chains depends on the capacity that it may use, however much of that is in use.
        NodeDevice { device: 0, capacity_bytes: self.capacity_bytes(), has_failed: false, is_full: false }
    }

    fn capacity_bytes(&self) -> u64 {
        self.planes.data.device().space().map_or(0, |space| space.capacity_bytes)
    }

    /// Advances time for leases and their timers. To be called again after the returned duration; `None`: the server is
    /// alone.
    pub fn beat_control(&self) -> Option<Duration> {
        Some(self.control.get()?.beat(self))
    }

    /// Runs the jobs that need a majority, one after the other, until the server stops: for a thread of its own.
    pub fn control_jobs(&self) {
        let Some(control) = self.control.get() else { return };
        while let Some(job) = control.next_job() {
            self.do_job(control, job);
        }
    }

    /// The same for a process with one thread: runs the jobs that are queued now.
    pub fn do_control_jobs(&self) {
        let Some(control) = self.control.get() else { return };
        while let Some(job) = control.take_job() {
            self.do_job(control, job);
        }
    }

    fn do_job(&self, control: &Control, job: Job) {
        match job {
            Job::Confirm(token) => match self.planes.meta.linearizable() {
                Ok(()) => control.confirmed(self, token),
                Err(fault) => debug!("nobody confirms that this server leads: {fault}"),
            },
            Job::Members => {
                if let Err(fault) = self.match_members(control) {
                    debug!("the members of the metalog are not yet the nodes of the cluster: {fault}");
                }
            }
        }
    }

    /// Takes the next step towards the members of the metalog that the cluster is to have, if this server leads it.
    fn match_members(&self, control: &Control) -> Result<(), Fault> {
        let Some(status) = self.planes.meta.status().filter(|status| status.leads) else { return Ok(()) };
        let keepers = MetalogMembership {
            leader: self.planes.node(),
            voters: status.members.voters,
            learners: status.members.learners,
            caught_up: status.caught_up,
            voters_max: status.voters_max,
            replaceable: control.replaceable(),
        };
        let change = match self.cluster_state(|cluster| cluster.next_membership_change(&keepers)) {
            Some(MembershipChange::Add(node)) => MemberChange::Add(node),
            Some(MembershipChange::Promote(node)) => MemberChange::Promote(node),
            Some(MembershipChange::Demote(node)) => MemberChange::Demote(node),
            Some(MembershipChange::Remove(node)) => MemberChange::Remove(node),
            None => return Ok(()),
        };
        self.planes.meta.change_members(change)
    }

    /// The process ends: other servers need not wait until its lease has ended.
    pub fn resign(&self) {
        if let Some(control) = self.control.get() {
            // Names the next leader at once, without an election timeout.
            self.planes.meta.resign();
            control.resign(self);
        }
    }

    /// Ends [`ServerParts::control_jobs`].
    pub fn stop_control(&self) {
        if let Some(control) = self.control.get() {
            control.stop();
        }
    }

    pub(super) fn on_control_message(&self, from: NodeId, told: ControlMessage) {
        if let Some(control) = self.control.get() {
            control.on_message(self, from, told);
        }
    }

    /// The other nodes of the cluster, and their addresses.
    pub fn others(&self) -> BTreeMap<NodeId, ServerAddr> {
        if !self.has_cluster() {
            return BTreeMap::new();
        }
        let me = self.planes.node();
        let (is_founded, mut found) = self.cluster_state(|cluster| {
            let others = cluster.nodes().filter(|node| node.id != me);
            let found = others.filter_map(|node| Some((node.id, node.info.address.parse().ok()?)));
            (cluster.is_founded(), found.collect::<BTreeMap<NodeId, ServerAddr>>())
        });
        if !is_founded {
            // It has no state yet, and waits for the nodes that admitted it.
            let known = self.planes.keeper.with(|identity| identity.known_first.clone());
            found.extend(known.iter().filter_map(|known| {
                let (node, address) = known.split_once('@')?;
                Some((node.parse().ok()?, address.parse().ok()?))
            }));
        }
        self.with_members(me, found)
    }

    /// The same with the members of the metalog that are nodes no more: as long as they are members, removing them
    /// takes their votes.
    fn with_members(&self, me: NodeId, found: BTreeMap<NodeId, ServerAddr>) -> BTreeMap<NodeId, ServerAddr> {
        let (Some(control), Some(status)) = (self.control.get(), self.planes.meta.status()) else { return found };
        let members = status.members.voters.iter().chain(&status.members.learners).filter(|node| **node != me);
        control.with_former(found, members.copied())
    }

    /// Which servers answer for which chains, as far as this server knows.
    pub(super) fn cluster_map(&self) -> ClusterMapReply {
        let Some(status) = self.planes.meta.status().filter(|_| self.has_cluster()) else {
            return ClusterMapReply::default();
        };
        let address =
            |node: &frieze_cluster::ClusterNode| NodeAddress { node: node.id.0, address: node.info.address.clone() };
        let serving = |chain: &frieze_cluster::Chain| ChainMembers {
            serving: chain.serving().map(|target| target.node.0).collect(),
        };
        self.cluster_state(|cluster| ClusterMapReply {
            // One more: version 0 would denote a single server, and a cluster without known decisions is none.
            version: cluster.version() + 1,
            leader: status.leader.map_or(0, |leader| leader.0),
            term: status.term,
            nodes: cluster.nodes().map(address).collect(),
            chains: cluster.chains().map(serving).collect(),
        })
    }

    /// The servers of the cluster, each with its address: none where the server is alone.
    pub(crate) fn servers(&self) -> Vec<NodeAddress> {
        self.cluster_map().nodes
    }

    /// Reads the decisions of the cluster.
    fn cluster_state<T>(&self, look: impl FnOnce(&ClusterState) -> T) -> T {
        let (mut look, mut seen) = (Some(look), None);
        self.planes.meta.look_at_control(&mut |state| seen = look.take().map(|look| look(state)));
        seen.expect("it is looked at once")
    }

    /// Admits a server to the cluster. If there is no cluster yet, this server founds it.
    ///
    /// # Errors
    /// `NotPermitted` for a caller that is no administrator; `Elsewhere`: ask the leader; the reason why the newcomer
    /// is refused.
    pub(super) fn admit_newcomer(&self, principal: &Principal, ask: Join) -> Result<JoinReply, Fault> {
        if !self.planes.is_administrator(principal) {
            return Err(Fault::new(
                Reason::NotPermitted,
                "only root, and the user that the server runs as, may add servers: they are given the secret of the \
                 cluster",
            ));
        }
        let newcomer = ask.newcomer.as_ref().and_then(NodeInfo::from_wire);
        let newcomer = newcomer.ok_or_else(|| Fault::new(Reason::BadFrame, "malformed frame: nobody asks to join"))?;
        let cluster =
            match ask.cluster.as_str() {
                "" => None,
                hex => Some(ClusterId(u128::from_str_radix(hex, 16).map_err(|_| {
                    Fault::new(Reason::InvalidArgument, format!("{hex:?} is not a cluster's identity"))
                })?)),
            };
        self.check_leads()?;
        self.found_cluster()?;
        let control = self.control.get().ok_or(Reason::Internal)?;
        // This server may have begun to lead a moment ago.
        control.beat(self);
        let node = match control.ask(self, OperatorRequest::Join { newcomer, cluster, clock: None })? {
            OperatorReply::Joined(node) => node,
            OperatorReply::Decided => return Err(Reason::Internal.into()),
        };
        let map = self.cluster_map();
        let (cluster, secret) = self.planes.keeper.with(|identity| (identity.cluster_id(), identity.key()));
        Ok(JoinReply {
            node: node.0,
            cluster: cluster.to_string(),
            secret: secret.to_vec(),
            chain_count: map.chains.len() as u32,
            nodes: map.nodes,
        })
    }

    /// The status of the cluster, after the requested change has been decided.
    ///
    /// # Errors
    /// `NotPermitted` for a caller that is no administrator and requests a change; `Elsewhere`: ask the leader; the
    /// reason why the change is refused.
    pub(super) fn on_operator_request(&self, principal: &Principal, ask: Cluster) -> Result<ClusterReply, Fault> {
        let control = self.control.get();
        if let Some(op) = ask.op {
            if !self.planes.is_administrator(principal) {
                return Err(Fault::new(
                    Reason::NotPermitted,
                    "only root, and the user that the server runs as, may change the cluster",
                ));
            }
            let alone = || Fault::new(Reason::InvalidArgument, "this server is alone: start another with --join first");
            self.check_leads().map_err(|fault| self.declare_without_leader(op, fault))?;
            match (control, op) {
                (Some(control), op) => drop(control.ask(self, OperatorRequest::from_wire(op))?),
                (None, ClusterOp::Replicas(replicas)) => self.keep_replicas(replicas)?,
                (None, _) => return Err(alone()),
            }
        }
        self.ask_majority();
        let status = self.cluster_status();
        let reply = |status: ClusterStatus| {
            let mut reply = status.to_wire(self.planes.node());
            self.complete_nodes(&mut reply.nodes);
            reply.sync_bytes_per_s = self.planes.data.catch_up_limit();
            reply.troubles = self.troubles_of_cluster(&status).into_iter().map(ClusterTrouble::to_wire).collect();
            reply
        };
        let alone = || match self.has_cluster() {
            false => ClusterReply { replicas: self.replicas_at_founding(), ..ClusterReply::default() },
            // It has joined, and does not know the other nodes yet.
            true => ClusterReply {
                cluster: self.planes.cluster().to_string(),
                leader: self.planes.meta.leader().map_or(0, |leader| leader.0),
                told_by: self.planes.node().0,
                ..ClusterReply::default()
            },
        };
        Ok(status.map_or_else(alone, reply))
    }

    /// Number of copies of everything once this single server is one of several.
    fn replicas_at_founding(&self) -> u32 {
        match self.planes.keeper.with(|identity| identity.replicas) {
            0 => self.planes.settings.replicas,
            kept => kept,
        }
    }

    /// Stores that number. Durable on return.
    fn keep_replicas(&self, replicas: u32) -> Result<(), Fault> {
        let max = REPLICAS_MAX;
        if !(1..=max).contains(&replicas) {
            let (what, found, max) = ("replicas", replicas.into(), max.into());
            return Err(ClusterError::OutOfRange { what, found, max }.into());
        }
        let _one = self.founding.lock();
        if self.has_cluster() {
            return Err(Fault::new(Reason::Unavailable, "another server joins this one just now: ask again"));
        }
        self.planes.keeper.update(|identity| identity.replicas = replicas)
    }

    /// The cluster as this server knows it; `None` if it is alone.
    pub(crate) fn cluster_status(&self) -> Option<ClusterStatus> {
        self.control.get()?.status(self)
    }

    /// The cluster as this server knows it, beside the log's decisions here: for tests of the status.
    pub fn look_at_health(&self, look: &mut dyn FnMut(&ClusterState, &ClusterStatus)) {
        if let Some(status) = self.cluster_status() {
            self.planes.meta.look_at_control(&mut |state| look(state, &status));
        }
    }

    /// A message came from this node that a leader or a lease depends on.
    pub(super) fn contact(&self, from: NodeId) {
        if let Some(control) = self.control.get() {
            control.contact(from);
        }
    }

    /// Reports this server's own trouble to the leader.
    pub(super) fn report_trouble(&self) {
        if let Some(control) = self.control.get() {
            let words: Vec<String> = self.own_troubles().into_iter().map(|trouble| trouble.what).collect();
            control.set_trouble(words.join("; "));
        }
    }

    /// Checks that node `node`, which has proven to hold the secret of the cluster, is a node of it.
    ///
    /// # Errors
    /// `Removed` if it was one, and nothing depends on its messages any more.
    pub(crate) fn check_is_node(&self, node: NodeId) -> Result<(), Fault> {
        let Some(status) = self.planes.meta.status().filter(|_| self.has_cluster()) else { return Ok(()) };
        let is_removed = self.cluster_state(|cluster| cluster.node_state(node) == Some(NodeState::Removed));
        let is_member = status.members.voters.contains(&node) || status.members.learners.contains(&node);
        if is_removed && !is_member { Err(ClusterError::Removed { node }.into()) } else { Ok(()) }
    }

    /// Why the leader refuses this server, if it does.
    pub(crate) fn refused_by_leader(&self) -> Option<Fault> {
        self.control.get()?.refused()
    }

    /// Makes a single server the first node of a cluster. An interrupted founding continues.
    fn found_cluster(&self) -> Result<(), Fault> {
        let _one = self.founding.lock();
        let address = self.planes.settings.reached_at(self.listens_at.get().map(String::as_str))?;
        if !self.cluster_state(ClusterState::is_founded) {
            self.found_metalog()?;
        }
        self.begin_node()?;
        if self.cluster_state(ClusterState::is_founded) {
            return Ok(());
        }
        let first = self.planes.keeper.with(|identity| NodeInfo {
            name: self.planes.settings.node_name(),
            site: self.planes.settings.site.clone(),
            machine: self.planes.settings.machine_name(),
            address,
            token: u128::from_be_bytes(blake3::hash(&identity.cluster).as_bytes()[..16].try_into().expect("16 of 32")),
            incarnation: identity.incarnation,
            devices: vec![self.this_device()],
        });
        let ends = self.planes.data.ends();
        let newest = ends.iter().map(|end| end.epoch.max(end.taken)).max().unwrap_or_default();
        let found = Decision::Found {
            cluster: self.planes.cluster(),
            replicas: self.replicas_at_founding(),
            chain_count: ends.len() as u32,
            epoch: ChainEpoch(newest.max(self.planes.data.epoch()).0 + 1),
            first,
            gaps: self
                .planes
                .keeper
                .with(|identity| identity.gaps().map(|(from, to)| LostInterval { from: from.0, to: to.0 }).collect()),
        };
        let term = self.planes.meta.status().map_or(0, |status| status.term);
        self.planes.meta.decide(term, &[found]);
        let founded = self.planes.meta.wait_for(|| self.cluster_state(ClusterState::is_founded).then_some(()));
        founded
            .ok_or_else(|| Fault::new(Reason::Unavailable, "the cluster could not be founded: ask again in a moment"))
    }

    /// A connection to another node was opened, or broke: messages that may have been lost are sent again.
    pub fn link_changed(&self, node: NodeId, stands: bool) {
        if !stands {
            self.planes.data.on_disconnect(node);
            self.hung_up(node);
        }
    }

    /// A node has closed the connection on which it sent, as it does when its process ends: if it led, another leads
    /// soon.
    pub fn hung_up(&self, node: NodeId) {
        self.planes.meta.on_peer_lost(node);
    }
}

/// Forwards a report of a chain.
fn note(control: &Control, report: ChainEvent) {
    match report {
        ChainEvent::CaughtUp { chain, epoch, node } => control.note(chain, ReplicaEvent::CaughtUp { node, epoch }),
        ChainEvent::Ready { chain, epoch } => control.note(chain, ReplicaEvent::Ready { epoch }),
        ChainEvent::Silent { chain, node } => {
            control.note(chain, ReplicaEvent::Health(node.map_or(ReplicaHealth::Good, ReplicaHealth::Unreachable)));
        }
        ChainEvent::Failed { chain, fault } => {
            warn!("chain {chain}: this server is none of its members any more: {fault}");
            let is_full = fault.reason == Reason::NoSpace;
            control
                .note(chain, ReplicaEvent::Health(if is_full { ReplicaHealth::Full } else { ReplicaHealth::Failed }));
        }
        ChainEvent::Distrust { chain, peer, why } => warn!("chain {chain}: impossible message of node {peer}: {why}"),
        ChainEvent::Damaged { chain, n, fault } => {
            warn!("chain {chain}: record {n}, which another server lacks, cannot be read here: {fault}");
        }
    }
}

impl Premises for ServerParts {
    fn state(&self, look: &mut dyn FnMut(&ClusterState)) {
        self.planes.meta.look_at_control(look);
    }

    fn changes(&self) -> Vec<ClusterChange> {
        self.planes.meta.take_control_changes()
    }

    fn reign(&self) -> Option<Reign> {
        let number = self.planes.meta.leader_terms();
        let status = self.planes.meta.status().filter(|status| status.leads)?;
        Some(Reign { number, term: status.term })
    }

    fn leader(&self) -> Option<NodeId> {
        self.planes.meta.leader()
    }

    fn decide(&self, term: u64, decisions: &[Decision]) {
        self.planes.meta.decide(term, decisions);
    }

    fn configure(&self, configurations: &[(ChainId, Configuration)]) -> Result<(), Fault> {
        self.planes.data.configure(configurations)
    }

    fn renew(&self, until: MonoTime) {
        self.planes.data.lease().renew(until);
    }

    fn progress(&self) -> Vec<(ChainId, ReplicaEvent)> {
        // Leases do not wait for the disk: the next report contains it.
        let ends = self.planes.data.ends_now().unwrap_or_default();
        let told = |end: ChainEnd| {
            let (last, left_bytes) = ((end.epoch, end.n), self.planes.data.lag_bytes(end.chain));
            (end.chain, ReplicaEvent::Progress { last, newest: end.newest.0, left_bytes })
        };
        ends.into_iter().map(told).collect()
    }

    fn remains(&self) -> ReplicaGarbage {
        let (chains, left_bytes, _) = self.service.upkeep.remains.figures();
        ReplicaGarbage { chains: chains as u32, left_bytes }
    }

    fn step_aside(&self) {
        self.planes.meta.resign();
    }
}
