//! What a leader does, one rule a test: a log that takes every proposal at once, and heartbeats made by hand.

use frieze_base::{ChainEpoch, ChainId, ClusterId, ErrorKind, MonoTime, NodeId};
use frieze_hlc::Hlc;

use super::STAMP;
use super::states::{GIB, add_target, founded, newcomer};
use crate::{
    Chain, ChainStep, ClockOffset, ClusterChange, ClusterState, ClusterStatus, Contacts, Controller, ControllerEffect,
    ControllerInput, Decision, Error, Heartbeat, LeaseGrant, LostInterval, NodeState, OperatorReply, OperatorRequest,
    ReplicaGarbage, ReplicaHealth, ReplicaReport, Settings, TargetRole, TargetState, WaitCause, WallMoment,
};

const MS: u64 = 1_000_000;

/// A leader, its state, and what it has sent.
pub(super) struct LeaderHarness {
    pub(super) state: ClusterState,
    pub(super) controller: Controller,
    pub(super) now: u64,
    grants: Vec<(NodeId, LeaseGrant)>,
    refusals: Vec<Error>,
    answers: Vec<Result<OperatorReply, Error>>,
    decided: Vec<Decision>,
    steps_aside: bool,
    /// Whether a majority answers.
    is_confirmed: bool,
    /// Whether replicas do at once what they are to do.
    pub(super) is_quick: bool,
}

impl LeaderHarness {
    pub(super) fn new(state: ClusterState) -> LeaderHarness {
        let controller = Controller::new(NodeId(1), Settings::default());
        let (grants, refusals, answers, decided) = Default::default();
        let (now, steps_aside, is_confirmed, is_quick) = (1000, false, true, false);
        let mut desk = LeaderHarness {
            state,
            controller,
            now,
            grants,
            refusals,
            answers,
            decided,
            steps_aside,
            is_confirmed,
            is_quick,
        };
        desk.put(ControllerInput::Lead { term: 3 });
        desk
    }

    /// Of `nodes`, all of which serve every one of the `chains`.
    pub(super) fn whole(nodes: u32, chains: u32) -> LeaderHarness {
        let mut state = founded(nodes, chains, nodes);
        for chain in (0..chains).map(ChainId) {
            (2..=nodes).for_each(|node| add_target(&mut state, chain, node, TargetRole::Serving));
        }
        LeaderHarness::new(state)
    }

    pub(super) fn put(&mut self, input: ControllerInput) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut out = Vec::new();
            let at = WallMoment { mono: MonoTime(self.now * MS), wall_us: self.now * 1000 };
            let stamp = Hlc::first_of_micros(at.wall_us).0;
            self.controller.step(at, &self.state, input, &mut out);
            for effect in out {
                match effect {
                    ControllerEffect::Confirm { token } if self.is_confirmed => {
                        inputs.push(ControllerInput::Confirmed { token })
                    }
                    ControllerEffect::Confirm { .. } => {}
                    ControllerEffect::Grant { to, grant } => self.grants.push((to, grant)),
                    ControllerEffect::Refuse { error, .. } => self.refusals.push(error),
                    ControllerEffect::Propose { term, decisions } => {
                        assert_eq!(term, 3);
                        let changes = decisions.iter().flat_map(|decision| self.state.apply(decision, stamp));
                        let changes: Vec<ClusterChange> = changes.collect();
                        assert!(
                            !changes.iter().any(|change| matches!(change, ClusterChange::NoEffect(_))),
                            "{changes:?}"
                        );
                        self.decided.extend(decisions);
                        inputs.push(ControllerInput::Applied(changes));
                    }
                    ControllerEffect::Answer { result, .. } => self.answers.push(result),
                    ControllerEffect::StepAside(_) => self.steps_aside = true,
                }
            }
        }
    }

    pub(super) fn heartbeat(&self, node: u32) -> Heartbeat {
        let told = newcomer(node);
        let node = NodeId(node);
        let report = |chain: &Chain| {
            let now = chain.configuration();
            let is_tail = self.is_quick && now.members.last() == Some(&node);
            let caught_up = now.syncing.filter(|_| is_tail && !now.joining);
            let is_ready = is_tail && now.joining;
            ReplicaReport { chain: chain.id, epoch: chain.epoch, caught_up, is_ready, ..ReplicaReport::default() }
        };
        let chains = self.state.chains_of(node).map(|(chain, _)| report(chain)).collect();
        Heartbeat {
            cluster: self.state.cluster(),
            node,
            incarnation: self.state.node(node).map_or(1, |node| node.incarnation()),
            number: self.now,
            heard: self.now - 1,
            clock: Some(ClockOffset { offset_us: 0, error_us: 100 }),
            resigns: false,
            address: told.address,
            devices: told.devices,
            chains,
            remains: ReplicaGarbage::default(),
            trouble: String::new(),
        }
    }

    pub(super) fn beat(&mut self, nodes: &[u32]) {
        nodes.iter().for_each(|node| self.put(ControllerInput::Heartbeat(self.heartbeat(*node))));
    }

    /// So many milliseconds go by, while these nodes send heartbeats.
    pub(super) fn pass(&mut self, ms: u64, nodes: &[u32]) {
        for _ in 0..ms.div_ceil(100) {
            self.now += 100;
            self.beat(nodes);
            self.put(ControllerInput::Tick);
        }
    }

    fn ask(&mut self, ask: OperatorRequest) -> Result<OperatorReply, Error> {
        self.put(ControllerInput::Request { request: 9, ask });
        self.answers.pop().expect("it is answered")
    }

    pub(super) fn status(&self) -> ClusterStatus {
        let at = WallMoment { mono: MonoTime(self.now * MS), wall_us: self.now * 1000 };
        let contacts = Contacts { leader: Some(NodeId(1)), ..Contacts::default() };
        self.controller.status(at, &self.state, &contacts)
    }

    fn members(&self, chain: u32) -> Vec<u32> {
        self.state.chain(ChainId(chain)).unwrap().configuration().members.iter().map(|node| node.0).collect()
    }

    fn is_offline(&self, node: u32) -> bool {
        self.state.node_state(NodeId(node)) == Some(NodeState::Offline)
    }

    fn last_grant(&self, node: u32) -> &LeaseGrant {
        &self.grants.iter().rfind(|(to, grant)| to.0 == node && grant.number > 0).expect("it got one").1
    }
}

#[test]
fn a_node_silent_for_a_lease_is_removed_and_its_chains_resume() {
    let mut desk = LeaderHarness::whole(3, 4);
    desk.pass(3000, &[1, 2, 3]);
    assert!((1..=3).all(|node| !desk.is_offline(node)));
    desk.pass(1900, &[2, 3]);
    assert!(!desk.is_offline(1), "it may still hold a lease");
    desk.pass(300, &[2, 3]);
    assert!(desk.is_offline(1));
    assert!((0..4).all(|chain| desk.members(chain) == [2, 3]));
    let told = desk.grants.iter().rfind(|(to, _)| to.0 == 2).unwrap();
    assert!(told.1.chains.len() == 4 || told.1.chains.len() == 1, "who stays is told at once: {:?}", told.1);
}

#[test]
fn a_new_leader_gives_every_server_the_time_of_a_lease() {
    let mut desk = LeaderHarness::whole(3, 1);
    desk.pass(1900, &[]);
    assert!((1..=3).all(|node| !desk.is_offline(node)));
    desk.pass(200, &[]);
    assert!((1..=3).all(|node| desk.is_offline(node)));
    assert_eq!(desk.members(0), [1, 2, 3], "nobody who kept its memory is left: the chain waits for all of them");
    let waits = desk.status().chains[0].waits.clone();
    assert_eq!(waits, Some(WaitCause::Memory(vec![NodeId(1), NodeId(2), NodeId(3)])));
    desk.pass(100, &[2]);
    assert_eq!(desk.members(0), [2], "the first that is back goes on");
}

#[test]
fn no_lease_without_a_majority() {
    let mut desk = LeaderHarness::whole(2, 1);
    desk.is_confirmed = false;
    desk.pass(1000, &[1, 2]);
    assert_eq!(desk.grants, []);
    desk.is_confirmed = true;
    desk.pass(1200, &[1, 2]);
    assert!(desk.last_grant(2).lease_ns > 0);
}

#[test]
fn a_node_that_sends_but_receives_nothing_loses_its_lease() {
    let mut desk = LeaderHarness::whole(3, 1);
    desk.pass(1000, &[1, 2, 3]);
    for _ in 0..70 {
        let deaf = Heartbeat { heard: 0, ..desk.heartbeat(3) };
        desk.put(ControllerInput::Heartbeat(deaf));
        desk.pass(100, &[1, 2]);
    }
    assert_eq!(desk.last_grant(3).lease_ns, 0);
    assert_eq!(desk.members(0), [1, 2]);
}

#[test]
fn a_node_that_resigns_is_not_waited_for() {
    let mut desk = LeaderHarness::whole(3, 2);
    desk.pass(500, &[1, 2, 3]);
    desk.now += 1;
    let last = Heartbeat { resigns: true, ..desk.heartbeat(1) };
    desk.put(ControllerInput::Heartbeat(last));
    assert_eq!(desk.members(1), [2, 3]);
    let grants = desk.grants.len();
    desk.pass(300, &[1]);
    assert!(desk.grants[grants..].iter().all(|(to, _)| to.0 != 1), "this process gets no lease any more");
}

#[test]
fn a_restarted_process_joins_again_from_the_start() {
    let mut desk = LeaderHarness::whole(3, 1);
    desk.pass(500, &[1, 2, 3]);
    desk.now += 1;
    let again = Heartbeat { incarnation: 2, number: 1, chains: vec![], ..desk.heartbeat(2) };
    desk.put(ControllerInput::Heartbeat(again));
    assert_eq!(desk.members(0), [1, 3], "without waiting for the lease of the process before");
    assert_eq!(desk.state.chain(ChainId(0)).unwrap().configuration().syncing, Some(NodeId(2)));
    let before = Heartbeat { incarnation: 1, number: desk.now + 9, ..desk.heartbeat(2) };
    desk.put(ControllerInput::Heartbeat(before));
    assert!(matches!(desk.refusals[..], [Error::OldProcess { newest: 2, found: 1, .. }]));
}

#[test]
fn unknown_nodes_are_refused_with_a_remedy() {
    let mut desk = LeaderHarness::whole(2, 1);
    desk.pass(100, &[1, 2]);
    let other = Heartbeat { cluster: ClusterId(9), ..desk.heartbeat(2) };
    desk.put(ControllerInput::Heartbeat(other));
    desk.put(ControllerInput::Heartbeat(Heartbeat { node: NodeId(7), ..desk.heartbeat(2) }));
    assert!(matches!(desk.refusals[..], [Error::WrongCluster { .. }, Error::UnknownNode { .. }]));
    assert!(desk.refusals[0].to_string().contains("check the address"));
    let taken = crate::NodeInfo { token: 77, ..newcomer(2) };
    let error = desk.ask(OperatorRequest::Join { newcomer: taken, cluster: None, clock: None }).unwrap_err();
    assert!(error.to_string().contains("--name"), "{error}");
    let other = OperatorRequest::Join { newcomer: newcomer(3), cluster: Some(ClusterId(9)), clock: None };
    assert_eq!(desk.ask(other).unwrap_err().kind(), ErrorKind::Invalid);
    let join = OperatorRequest::Join { newcomer: newcomer(3), cluster: None, clock: None };
    assert_eq!(desk.ask(join.clone()), Ok(OperatorReply::Joined(NodeId(3))));
    assert_eq!(desk.ask(join), Ok(OperatorReply::Joined(NodeId(3))), "asked twice, joined once");
}

#[test]
fn a_clock_far_off_is_refused_and_a_leader_with_one_resigns() {
    let mut desk = LeaderHarness::whole(3, 1);
    let clock = |offset_us| Some(ClockOffset { offset_us, error_us: 1000 });
    desk.pass(100, &[1, 2, 3]);
    desk.now += 1;
    desk.put(ControllerInput::Heartbeat(Heartbeat { clock: clock(3_600_000_000), ..desk.heartbeat(3) }));
    assert!(matches!(desk.refusals[..], [Error::ClockOff { node: NodeId(3), .. }]));
    assert!(desk.refusals[0].to_string().contains("3600000 ms ahead"), "{}", desk.refusals[0]);
    assert!(!desk.steps_aside);
    let unsure = Heartbeat { clock: Some(ClockOffset { offset_us: 700_000, error_us: 300_000 }), ..desk.heartbeat(3) };
    desk.now += 1;
    desk.put(ControllerInput::Heartbeat(Heartbeat { number: desk.now, ..unsure }));
    assert_eq!(desk.refusals.len(), 1, "it may as well be right");
    for node in [2, 3] {
        desk.now += 1;
        desk.put(ControllerInput::Heartbeat(Heartbeat { clock: clock(-3_600_000_000), ..desk.heartbeat(node) }));
    }
    assert!(desk.steps_aside);
    assert_eq!(desk.refusals.len(), 2, "only while the two did not agree");
}

#[test]
fn a_node_whose_clock_is_off_has_no_part_until_it_is_right_and_no_node_waits_for_it() {
    let mut desk = LeaderHarness::whole(3, 1);
    desk.pass(500, &[1, 2, 3]);
    let beat = |desk: &mut LeaderHarness, offset_us: i64| {
        desk.beat(&[1, 2]);
        let clock = Some(ClockOffset { offset_us, error_us: 1000 });
        desk.put(ControllerInput::Heartbeat(Heartbeat { clock, ..desk.heartbeat(3) }));
    };
    for _ in 0..100 {
        desk.now += 100;
        beat(&mut desk, 1_260_000);
        desk.put(ControllerInput::Tick);
    }
    assert!(desk.is_offline(3));
    assert_eq!(desk.members(0), [1, 2]);
    let went = |decision: &&Decision| matches!(decision, Decision::Node { node: NodeId(3), .. });
    assert_eq!(desk.decided.iter().filter(went).count(), 1, "it went once, and did not come and go");
    let told = desk.last_grant(3);
    assert_eq!((told.number, told.lease_ns), (desk.now, 0), "it is told what hour it is, and gets no lease");
    for _ in 0..10 {
        desk.now += 100;
        beat(&mut desk, 400);
        desk.put(ControllerInput::Tick);
    }
    assert!(!desk.is_offline(3));
    desk.is_quick = true;
    desk.pass(500, &[1, 2, 3]);
    assert_eq!(desk.members(0), [1, 2, 3]);
}

#[test]
fn of_two_neighbours_out_of_reach_the_successor_is_removed() {
    let mut desk = LeaderHarness::whole(3, 1);
    desk.pass(500, &[1, 2, 3]);
    desk.now += 1;
    let mut cut = desk.heartbeat(2);
    cut.chains[0].health = ReplicaHealth::Unreachable(NodeId(3));
    desk.put(ControllerInput::Heartbeat(cut));
    assert_eq!(desk.members(0), [1, 2]);
    let chain = desk.state.chain(ChainId(0)).unwrap();
    assert_eq!(chain.leaving, [NodeId(3)], "it is there, and has to hear of it");
    assert!(desk.grants.iter().rev().take(1).all(|(to, _)| to.0 == 3), "who stays is not told yet");
    desk.now += 1;
    desk.beat(&[3]);
    assert_eq!(desk.state.chain(ChainId(0)).unwrap().leaving, []);
    let told = desk.grants.iter().rev().find(|(to, grant)| to.0 == 1 && grant.number == 0).unwrap();
    assert_eq!(told.1.chains[0].configuration.as_ref().unwrap().members.len(), 2);
}

#[test]
fn a_failed_device_is_left_and_replaced() {
    let mut desk = LeaderHarness::whole(3, 1);
    desk.state.apply(&Decision::Join(newcomer(4)), STAMP);
    desk.pass(500, &[1, 2, 3, 4]);
    desk.now += 1;
    let mut failed = desk.heartbeat(2);
    failed.chains[0].health = ReplicaHealth::Failed;
    desk.put(ControllerInput::Heartbeat(failed));
    assert_eq!(desk.members(0), [1, 3]);
    desk.pass(200, &[1, 2, 3, 4]);
    let chain = desk.state.chain(ChainId(0)).unwrap();
    assert_eq!(chain.configuration().syncing, Some(NodeId(4)));
    assert!(chain.target(NodeId(2)).unwrap().is_retiring);
}

#[test]
fn draining_needs_nodes_that_receive_the_targets() {
    let mut desk = LeaderHarness::whole(3, 2);
    desk.pass(100, &[1, 2, 3]);
    let node = NodeId(3);
    let error = desk.ask(OperatorRequest::Drain { node, fewer: false }).unwrap_err();
    assert_eq!(error, Error::TooFewNodes { node, left: 2, replicas: 3 });
    assert_eq!(desk.ask(OperatorRequest::Remove(node)), Err(Error::StillUsed { node, chains: 2 }));
    assert_eq!(desk.ask(OperatorRequest::DeclareDead { node, with_loss: true }), Err(Error::StillOnline { node }));
    assert_eq!(desk.ask(OperatorRequest::Drain { node, fewer: true }), Ok(OperatorReply::Decided));
    desk.pass(500, &[1, 2, 3]);
    assert_eq!(desk.members(0), [1, 2]);
    desk.pass(500, &[1, 2, 3]);
    assert_eq!(desk.ask(OperatorRequest::Remove(node)), Ok(OperatorReply::Decided));
    desk.now += 1;
    desk.put(ControllerInput::Heartbeat(Heartbeat { node, ..desk.heartbeat(2) }));
    assert!(matches!(desk.refusals[..], [Error::Removed { .. }]));
}

#[test]
fn requests_are_bounded_and_answered_by_a_leader_only() {
    let mut desk = LeaderHarness::whole(2, 1);
    for request in 0..70 {
        let newcomer = crate::NodeInfo { name: format!("x{request}"), token: 1000 + request, ..newcomer(9) };
        // Nothing is taken by this log.
        let mut out = Vec::new();
        let ask = OperatorRequest::Join { newcomer, cluster: None, clock: None };
        let at = WallMoment { mono: MonoTime(desk.now * MS), wall_us: desk.now * 1000 };
        desk.controller.step(at, &desk.state, ControllerInput::Request { request: request as u64, ask }, &mut out);
        let refused = out
            .iter()
            .any(|effect| matches!(effect, ControllerEffect::Answer { result: Err(Error::TooMany { .. }), .. }));
        assert_eq!(refused, request >= 64);
    }
    desk.put(ControllerInput::Follow(Some(NodeId(2))));
    assert_eq!(desk.answers.len(), 64);
    assert!(desk.answers.iter().all(|answer| *answer == Err(Error::NotLeader { leader: Some(NodeId(2)) })));
    assert_eq!(desk.ask(OperatorRequest::Balance(true)), Err(Error::NotLeader { leader: Some(NodeId(2)) }));
}

#[test]
fn status_shows_the_progress_of_a_target() {
    let mut desk = LeaderHarness::new(founded(2, 1, 2));
    desk.pass(100, &[1, 2]);
    let lacks = |desk: &LeaderHarness, left_bytes| {
        let mut beat = desk.heartbeat(2);
        beat.chains[0].left_bytes = left_bytes;
        ControllerInput::Heartbeat(beat)
    };
    for second in 0..=4 {
        desk.now += 1000;
        desk.beat(&[1]);
        desk.put(lacks(&desk, (10 - second) * GIB));
        desk.put(ControllerInput::Tick);
    }
    let status = desk.status();
    let target = &status.chains[0].targets[1];
    assert_eq!(target.state, TargetState::Syncing);
    assert_eq!((target.left_bytes, target.bytes_per_s, target.left_s), (Some(6 * GIB), Some(GIB), Some(6)));
    assert_eq!((status.whole(), status.left_bytes(), status.left_s()), (0, 6 * GIB, Some(6)));
    assert_eq!(status.nodes[0].heads, 1);
    // More is written than it gets: the rate is counted anew from when it lacked most.
    for left in [20, 18] {
        desk.now += 1000;
        desk.beat(&[1]);
        desk.put(lacks(&desk, left * GIB));
        desk.put(ControllerInput::Tick);
    }
    let status = desk.status();
    let target = &status.chains[0].targets[1];
    assert_eq!((target.left_bytes, target.bytes_per_s, target.left_s), (Some(18 * GIB), Some(2 * GIB), Some(9)));
}

#[test]
fn a_node_offline_for_long_is_replaced_and_one_back_soon_is_not() {
    let mut desk = LeaderHarness::whole(3, 1);
    desk.state.apply(&Decision::Join(newcomer(4)), STAMP);
    desk.pass(500, &[1, 2, 3, 4]);
    desk.pass(5000, &[1, 2, 4]);
    assert_eq!(desk.state.chain(ChainId(0)).unwrap().targets.len(), 3);
    let replaceable = |desk: &LeaderHarness| desk.controller.replaceable(MonoTime(desk.now * MS));
    assert!(replaceable(&desk).is_empty(), "its vote is its own as long as its chains wait");
    desk.pass(600_000, &[1, 2, 4]);
    assert_eq!(replaceable(&desk), [NodeId(3)]);
    let placed = |decision: &Decision| {
        matches!(decision, Decision::Chain { step: ChainStep::Place { node: NodeId(4), .. }, .. })
    };
    assert!(desk.decided.iter().any(placed));
    assert_eq!(desk.state.chain(ChainId(0)).unwrap().configuration().syncing, Some(NodeId(4)));
    assert_eq!(desk.state.chain(ChainId(0)).unwrap().epoch, ChainEpoch(13));
}

#[test]
fn balancing_gives_every_node_its_share_of_targets_and_of_heads() {
    let mut desk = LeaderHarness::new(founded(1, 32, 3));
    desk.is_quick = true;
    desk.pass(300, &[1]);
    for number in 2..=4 {
        desk.state.apply(&Decision::Join(newcomer(number)), STAMP);
    }
    desk.pass(20_000, &[1, 2, 3, 4]);
    let shares = |desk: &LeaderHarness| {
        let status = desk.status();
        let shares: Vec<_> = status.nodes.iter().map(|node| (node.serving, node.heads)).collect();
        (status.whole(), shares)
    };
    let (whole, before) = shares(&desk);
    assert_eq!((whole, before[0]), (32, (32, 32)), "nothing moves unasked");
    assert_eq!(desk.ask(OperatorRequest::Balance(true)), Ok(OperatorReply::Decided));
    desk.pass(60_000, &[1, 2, 3, 4]);
    assert!(!desk.state.is_balancing());
    assert_eq!(shares(&desk), (32, vec![(24, 8); 4]));
}

/// A node is back after a restart, with a log that ends so.
fn restarted(desk: &LeaderHarness, node: u32, last: (u64, u64)) -> ControllerInput {
    let mut beat = desk.heartbeat(node);
    let chains = beat.chains.iter().map(|report| ReplicaReport { chain: report.chain, ..ReplicaReport::default() });
    beat.chains = chains.map(|report| ReplicaReport { last: (ChainEpoch(last.0), last.1), ..report }).collect();
    ControllerInput::Heartbeat(Heartbeat { incarnation: 2, number: desk.now, ..beat })
}

/// Three nodes that lost their power, all at once.
fn dark() -> LeaderHarness {
    let mut desk = LeaderHarness::whole(3, 1);
    desk.pass(500, &[1, 2, 3]);
    desk.pass(2200, &[]);
    assert!((1..=3).all(|node| desk.is_offline(node)));
    desk
}

#[test]
fn a_chain_without_memory_resumes_from_the_log_with_the_newest_epoch_and_number() {
    let mut desk = dark();
    for (node, last) in [(1, (9, 100)), (2, (11, 90)), (3, (11, 80))] {
        assert_eq!(desk.members(0).len(), 3, "all of them are heard first");
        desk.now += 10;
        desk.put(restarted(&desk, node, last));
        if node == 2 {
            let waits = desk.status().chains[0].waits.clone();
            assert_eq!(waits, Some(WaitCause::Memory(vec![NodeId(3)])));
        }
    }
    assert_eq!(desk.members(0), [2]);
    assert!(!desk.state.chain(ChainId(0)).unwrap().resumed.unwrap().is_missing);
}

/// All were restarted before any was missed. The first node to report is not replaced by the log of silent ones: their
/// logs may have less.
#[test]
fn a_new_leader_does_not_assume_that_a_silent_member_kept_its_memory() {
    let mut desk = LeaderHarness::whole(3, 1);
    for (node, last) in [(3, (9, 100)), (1, (9, 90)), (2, (9, 80))] {
        assert_eq!(desk.members(0).len(), 3, "all of them are heard first");
        desk.now += 10;
        desk.put(restarted(&desk, node, last));
        desk.put(ControllerInput::Tick);
    }
    assert_eq!(desk.members(0), [3]);
}

/// What the chain is known to have lost, when three nodes are back of which these lost something with their power.
fn lost_when(lost: [Option<LostInterval>; 3]) -> Vec<LostInterval> {
    let mut desk = dark();
    for (node, lost) in (1..).zip(lost) {
        desk.now += 10;
        let ControllerInput::Heartbeat(mut beat) = restarted(&desk, node, (11, 90 + u64::from(node))) else {
            unreachable!()
        };
        beat.chains.iter_mut().for_each(|report| report.lost = lost);
        desk.put(ControllerInput::Heartbeat(beat));
    }
    assert_eq!(desk.members(0), [3], "the newest log");
    desk.state.chain(ChainId(0)).unwrap().gaps.clone()
}

#[test]
fn a_chain_lost_what_its_newest_log_lacks_unless_a_member_kept_all() {
    let lost = |from, to| Some(LostInterval { from, to });
    assert_eq!(lost_when([lost(5, 10), lost(6, 11), lost(7, 12)]), [LostInterval { from: 7, to: 12 }]);
    assert_eq!(
        lost_when([lost(5, 10), None, lost(7, 12)]),
        [],
        "node 2 was only started again: all that counts is there"
    );
    assert_eq!(lost_when([None; 3]), []);
}

/// What the chain is known to have lost when it goes on from the log of node 3, which had been out of it when the two
/// that served went for good; and when node 3 was taken out.
fn losses_without(change: impl FnMut(&mut ReplicaReport)) -> (Vec<LostInterval>, u64) {
    let mut desk = LeaderHarness::whole(3, 1);
    desk.pass(500, &[1, 2, 3]);
    desk.pass(2200, &[1, 2]);
    assert_eq!(desk.members(0), [1, 2]);
    let left = desk.state.chain(ChainId(0)).unwrap().target(NodeId(3)).unwrap().left;
    desk.pass(2200, &[]);
    for node in [1, 2] {
        assert_eq!(
            desk.ask(OperatorRequest::DeclareDead { node: NodeId(node), with_loss: true }),
            Ok(OperatorReply::Decided)
        );
    }
    desk.now += 10;
    let ControllerInput::Heartbeat(mut beat) = restarted(&desk, 3, (9, 93)) else { unreachable!() };
    beat.chains.iter_mut().for_each(change);
    desk.put(ControllerInput::Heartbeat(beat));
    assert_eq!(desk.members(0), [3], "nobody else is left");
    let now = Hlc::first_of_micros(desk.now * 1000).0;
    let gaps = desk.state.chain(ChainId(0)).unwrap().gaps.clone();
    assert!(gaps.iter().all(|lost| lost.to > now), "whoever served had given stamps up to now");
    (gaps, left)
}

#[test]
fn a_chain_resumed_from_a_former_member_lacks_the_writes_without_it() {
    let (gaps, left) = losses_without(|report| report.newest = 77);
    assert_eq!(gaps.iter().map(|lost| lost.from).collect::<Vec<_>>(), [77], "all up to its last record is there");
    assert!(left > 77);
    let (gaps, left) = losses_without(|report| report.newest = u64::MAX - 1);
    assert_eq!(gaps[0].from, left, "what it took in of a former head since is none of the chain's");
    let power = Some(LostInterval { from: 70, to: 71 });
    let (gaps, _) = losses_without(|report| (report.newest, report.lost) = (77, power));
    assert_eq!(gaps[0].from, 70, "and what the power took");
    let (gaps, _) =
        losses_without(|report| *report = ReplicaReport { chain: report.chain, ..ReplicaReport::default() });
    assert_eq!(gaps[0].from, 0, "it has nothing of the chain");
}

/// Three served; node 3 was taken out, node 2 restarted, and node 1 is lost for good. Node 2 is back with a log that
/// ends at `(9, 93)`, and node 3, if it is `there`, with one that ends at `last`: the nodes with a role now, and
/// whether reads of now report that something may be missing.
fn left_with(there: bool, last: (u64, u64)) -> (Vec<u32>, bool) {
    let mut desk = LeaderHarness::whole(3, 1);
    desk.pass(500, &[1, 2, 3]);
    desk.pass(2200, &[1, 2]);
    assert_eq!(desk.members(0), [1, 2]);
    desk.pass(2200, &[]);
    desk.now += 10;
    desk.put(restarted(&desk, 2, (9, 93)));
    if there {
        desk.put(restarted(&desk, 3, last));
    }
    assert_eq!(desk.members(0), [1, 2], "node 1 may have kept its memory");
    assert_eq!(desk.ask(OperatorRequest::DeclareDead { node: NodeId(1), with_loss: true }), Ok(OperatorReply::Decided));
    assert!(resumes(&mut desk, there, last), "it waits for nobody who is gone for good");
    (desk.members(0), desk.state.chain(ChainId(0)).unwrap().behind.is_some())
}

/// True if the chain goes on from one log before a minute is over.
fn resumes(desk: &mut LeaderHarness, there: bool, last: (u64, u64)) -> bool {
    (0..600).any(|_| {
        desk.now += 100;
        desk.put(restarted(desk, 2, (9, 93)));
        if there {
            desk.put(restarted(desk, 3, last));
        }
        desk.put(ControllerInput::Tick);
        desk.members(0).len() == 1
    })
}

#[test]
fn a_former_member_with_more_records_resumes_the_chain_of_a_lost_member() {
    assert_eq!(left_with(true, (9, 94)), (vec![3], true), "nobody knows what the others wrote without it");
    assert_eq!(left_with(true, (9, 93)), (vec![2], false), "who was a member to the last has as much");
    assert_eq!(left_with(true, (8, 99)), (vec![2], false), "its log ended before");
    assert_eq!(left_with(false, (0, 0)), (vec![2], false), "it is waited for, but not for ever");
}

#[test]
fn an_offline_member_is_waited_for_though_a_former_one_is_online() {
    let mut desk = LeaderHarness::whole(3, 1);
    desk.pass(500, &[1, 2, 3]);
    desk.pass(2200, &[1, 2]);
    desk.pass(2200, &[]);
    // Node 2 is back for a moment only.
    desk.now += 10;
    desk.put(restarted(&desk, 2, (9, 93)));
    desk.pass(3000, &[]);
    assert_eq!(desk.ask(OperatorRequest::DeclareDead { node: NodeId(1), with_loss: true }), Ok(OperatorReply::Decided));
    let moved = (0..900).any(|_| {
        desk.now += 100;
        desk.put(restarted(&desk, 3, (9, 99)));
        desk.put(ControllerInput::Tick);
        desk.members(0) != [1, 2]
    });
    assert!(!moved, "what node 2 has would be lost");
    desk.now += 100;
    desk.put(restarted(&desk, 2, (9, 100)));
    desk.put(restarted(&desk, 3, (9, 99)));
    assert_eq!(desk.members(0), [2]);
}

/// A desk at which node 3 was declared dead while its chain waits for the others, and what node 3 said last.
fn one_declared_dead() -> (LeaderHarness, Heartbeat) {
    let mut desk = dark();
    let number = desk.now - 2000;
    let late = Heartbeat { number, heard: number - 100, ..desk.heartbeat(3) };
    assert_eq!(desk.ask(OperatorRequest::DeclareDead { node: NodeId(3), with_loss: true }), Ok(OperatorReply::Decided));
    (desk, late)
}

#[test]
fn an_old_message_of_a_dead_machine_does_not_bring_it_back() {
    let (mut desk, late) = one_declared_dead();
    desk.put(ControllerInput::Heartbeat(late));
    assert!(desk.state.node(NodeId(3)).unwrap().is_dead, "nobody declares it dead once more");
    desk.pass(500, &[1, 2]);
    assert_eq!(desk.state.node_state(NodeId(3)), Some(NodeState::Removed), "nobody waits for it");
}

#[test]
fn a_node_declared_dead_counts_as_online_once_it_has_an_answer() {
    let (mut desk, mut beat) = one_declared_dead();
    desk.put(ControllerInput::Heartbeat(beat.clone()));
    assert!(desk.is_offline(3));
    let grant = desk.last_grant(3).clone();
    assert_eq!((grant.number, grant.lease_ns), (beat.number, 0), "it is answered, and may answer nobody");
    (beat.number, beat.heard) = (beat.number + 1, grant.number);
    desk.put(ControllerInput::Heartbeat(beat));
    assert!(!desk.is_offline(3) && !desk.state.node(NodeId(3)).unwrap().is_dead);
}

/// Tenths of a second until the chain goes on, while nodes 1 and `other` are there; `None` if it does not in a minute
/// and a half.
fn resumed_after(desk: &mut LeaderHarness, other: u32) -> Option<u64> {
    (0..900).find(|_| {
        desk.now += 100;
        [1, other].into_iter().for_each(|node| desk.put(restarted(desk, node, (9, node.into()))));
        desk.put(ControllerInput::Tick);
        desk.members(0).len() < 3
    })
}

#[test]
fn the_controller_waits_without_end_for_a_member_that_may_have_its_memory() {
    let mut desk = dark();
    assert_eq!(resumed_after(&mut desk, 3), None);
    let node = NodeId(2);
    let refused = desk.ask(OperatorRequest::DeclareDead { node, with_loss: false });
    assert!(matches!(refused, Err(Error::OnlyCopy { .. })), "{refused:?}");
    assert_eq!(resumed_after(&mut desk, 3), None);
    assert_eq!(desk.ask(OperatorRequest::DeclareDead { node, with_loss: true }), Ok(OperatorReply::Decided));
    assert_eq!(desk.members(0), [3]);
    assert!(desk.state.chain(ChainId(0)).unwrap().resumed.unwrap().is_missing);
    desk.pass(100, &[]);
    assert_eq!(desk.state.node_state(node), Some(NodeState::Removed), "it has nothing left that anybody needs");
}

#[test]
fn the_controller_waits_a_set_time_for_a_restarted_member() {
    let mut desk = dark();
    // It is back for a moment, and gone before the others are there.
    desk.put(restarted(&desk, 3, (9, 9)));
    desk.pass(3000, &[]);
    let waited = resumed_after(&mut desk, 2).unwrap();
    assert!((298..=302).contains(&waited), "{waited} tenths of a second");
    assert_eq!(desk.members(0), [2]);
    assert!(desk.state.chain(ChainId(0)).unwrap().resumed.unwrap().is_missing);
}

#[test]
fn a_leader_without_progress_resigns() {
    let mut desk = LeaderHarness::new(founded(3, 1, 3));
    let syncing = |desk: &LeaderHarness| desk.state.chain(ChainId(0)).unwrap().configuration().syncing;
    desk.pass(500, &[1, 2, 3]);
    let first = syncing(&desk).unwrap();
    desk.pass(50_000, &[1, 2, 3]);
    assert_eq!(syncing(&desk), Some(first));
    desk.pass(15_000, &[1, 2, 3]);
    let second = syncing(&desk).unwrap();
    assert_ne!(second, first);
    desk.pass(65_000, &[1, 2, 3]);
    assert_eq!(syncing(&desk), Some(first), "and then the first again");
}

#[test]
fn if_every_node_drains_none_does() {
    let mut desk = LeaderHarness::whole(2, 4);
    desk.is_quick = true;
    desk.pass(300, &[1, 2]);
    assert_eq!(desk.ask(OperatorRequest::Drain { node: NodeId(1), fewer: true }), Ok(OperatorReply::Decided));
    desk.pass(1000, &[1, 2]);
    assert!((0..4).all(|chain| desk.members(chain) == [2]));
    let node = NodeId(2);
    let error = desk.ask(OperatorRequest::Drain { node, fewer: true }).unwrap_err();
    assert_eq!(error, Error::TooFewNodes { node, left: 0, replicas: 2 });
    // As it may be when the others have died since.
    super::states::node_step(&mut desk.state, 2, crate::NodeStep::Drain).unwrap();
    desk.pass(2000, &[1, 2]);
    assert!((0..4).all(|chain| desk.members(chain).len() == 2), "two copies are better than one");
    assert_eq!(desk.ask(OperatorRequest::Balance(true)), Ok(OperatorReply::Decided));
    desk.pass(1000, &[1, 2]);
    assert!(!desk.state.is_balancing());
}
