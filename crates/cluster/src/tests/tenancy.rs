//! What a node does with its lease, one rule a test.

use frieze_base::{ChainEpoch, ChainId, ClusterId, Fault, MonoTime, NodeId, Reason};
use frieze_wire::chain::Configuration;

use super::states::newcomer;
use crate::{
    Assignment, Heartbeat, LeaseGrant, NodeLease, NodeLeaseEffect, NodeLeaseInput, ProcessIdentity, ReplicaEvent,
    Settings, WallMoment,
};

const MS: u64 = 1_000_000;
const CHAIN: ChainId = ChainId(5);

fn tenant(last: u64) -> NodeLease {
    let told = newcomer(2);
    let identity = ProcessIdentity {
        cluster: ClusterId(7),
        node: NodeId(2),
        incarnation: 4,
        address: told.address,
        devices: told.devices,
    };
    let logs = [(CHAIN, (ChainEpoch(last), 99), 990)];
    NodeLease::new(identity, Settings::default(), 1, logs)
}

fn step(tenant: &mut NodeLease, ms: u64, input: NodeLeaseInput) -> Vec<NodeLeaseEffect> {
    let mut out = Vec::new();
    tenant.step(WallMoment { mono: MonoTime(ms * MS), wall_us: ms * 1000 }, input, &mut out);
    out
}

fn sent(effects: &[NodeLeaseEffect]) -> &Heartbeat {
    match effects {
        [.., NodeLeaseEffect::Send { heartbeat, .. }] => heartbeat,
        other => panic!("{other:?}"),
    }
}

fn grant(number: u64, version: u64, epoch: Option<u64>) -> LeaseGrant {
    let configuration = epoch.map(|epoch| Configuration {
        epoch: ChainEpoch(epoch),
        members: vec![NodeId(1), NodeId(2)],
        ..Configuration::default()
    });
    let assignment = Assignment { chain: CHAIN, device: 0, configuration, resumed: None };
    LeaseGrant {
        number,
        incarnation: 4,
        version,
        lease_ns: 2000 * MS,
        chains: vec![assignment],
        ..LeaseGrant::default()
    }
}

/// One that has spoken to a leader: heartbeat 1 at 100 ms.
fn begun() -> NodeLease {
    let mut tenant = tenant(3);
    let beat = sent(&step(&mut tenant, 100, NodeLeaseInput::Leader(Some(NodeId(1))))).clone();
    assert_eq!((beat.number, beat.heard, beat.chains[0].epoch), (1, 0, ChainEpoch(0)));
    assert_eq!(beat.chains[0].last, (ChainEpoch(3), 99));
    tenant
}

fn holds(tenant: &NodeLease, ms: u64) -> bool {
    tenant.holds(MonoTime(ms * MS))
}

#[test]
fn a_lease_counts_from_when_the_heartbeat_was_sent_and_after_what_comes_with_it() {
    let mut tenant = begun();
    let effects = step(&mut tenant, 600, NodeLeaseInput::Granted(grant(1, 1, Some(4))));
    let [NodeLeaseEffect::Install { token, chains }, ..] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(chains.len(), 1);
    assert!(!holds(&tenant, 601), "the configuration is not installed yet");
    let next = step(&mut tenant, 700, NodeLeaseInput::Installed { token: *token });
    assert_eq!(sent(&next).chains[0].epoch, ChainEpoch(4), "that it is installed is told at once");
    assert!(holds(&tenant, 2099) && !holds(&tenant, 2100));
}

#[test]
fn a_process_takes_no_part_under_the_epoch_of_the_process_before() {
    let mut tenant = begun();
    let effects = step(&mut tenant, 200, NodeLeaseInput::Granted(grant(1, 1, Some(3))));
    assert!(!effects.iter().any(|effect| matches!(effect, NodeLeaseEffect::Install { .. })), "{effects:?}");
}

#[test]
fn a_late_answer_or_one_for_another_process_changes_nothing() {
    let mut tenant = begun();
    step(&mut tenant, 200, NodeLeaseInput::Granted(LeaseGrant { chains: vec![], ..grant(1, 9, None) }));
    assert!(holds(&tenant, 300));
    let mut old = begun();
    for late in [grant(1, 8, Some(4)), LeaseGrant { incarnation: 3, ..grant(1, 10, Some(4)) }] {
        let effects = step(&mut tenant, 300, NodeLeaseInput::Granted(late));
        assert!(!effects.iter().any(|effect| matches!(effect, NodeLeaseEffect::Install { .. })));
    }
    step(&mut old, 200, NodeLeaseInput::Granted(LeaseGrant { chains: vec![], incarnation: 3, ..grant(1, 9, None) }));
    assert!(!holds(&old, 300));
    step(&mut old, 200, NodeLeaseInput::Granted(LeaseGrant { chains: vec![], ..grant(99, 9, None) }));
    assert!(!holds(&old, 300), "that heartbeat was never sent");
}

#[test]
fn a_part_that_a_grant_does_not_name_comes_first() {
    let mut tenant = begun();
    let effects = step(&mut tenant, 200, NodeLeaseInput::Granted(LeaseGrant { lease_ns: 0, ..grant(0, 1, Some(4)) }));
    let [NodeLeaseEffect::Install { token, .. }, ..] = &effects[..] else { panic!("{effects:?}") };
    let token = *token;
    step(&mut tenant, 210, NodeLeaseInput::Installed { token });
    let effects = step(&mut tenant, 220, NodeLeaseInput::Granted(LeaseGrant { chains: vec![], ..grant(1, 2, None) }));
    assert!(!holds(&tenant, 230));
    assert_eq!(sent(&effects).chains[0].epoch, ChainEpoch(4), "the leader is told of it");
}

#[test]
fn a_part_being_appended_counts_as_one() {
    let mut tenant = begun();
    let effects = step(&mut tenant, 200, NodeLeaseInput::Granted(LeaseGrant { lease_ns: 0, ..grant(0, 1, Some(4)) }));
    assert!(matches!(effects[..], [NodeLeaseEffect::Install { .. }, ..]));
    step(&mut tenant, 220, NodeLeaseInput::Granted(LeaseGrant { chains: vec![], ..grant(1, 2, None) }));
    assert!(!holds(&tenant, 230));
}

#[test]
fn a_failed_installation_is_requested_again() {
    let mut tenant = begun();
    for version in 1..200 {
        let ms = 200 + version;
        let effects =
            step(&mut tenant, ms, NodeLeaseInput::Granted(LeaseGrant { lease_ns: 0, ..grant(0, version, Some(4)) }));
        let [NodeLeaseEffect::Install { token, .. }, ..] = effects[..] else { panic!("{effects:?}") };
        step(&mut tenant, ms, NodeLeaseInput::NotInstalled { token });
    }
    step(&mut tenant, 500, NodeLeaseInput::Granted(LeaseGrant { chains: vec![], ..grant(1, 300, None) }));
    assert!(holds(&tenant, 501), "it has no part in anything");
}

#[test]
fn a_report_about_an_older_configuration_is_not_repeated() {
    let mut tenant = begun();
    let installed = |tenant: &mut NodeLease, epoch, ms| {
        let effects = step(tenant, ms, NodeLeaseInput::Granted(grant(0, epoch, Some(epoch))));
        let [NodeLeaseEffect::Install { token, .. }, ..] = effects[..] else { panic!("{effects:?}") };
        sent(&step(tenant, ms + 10, NodeLeaseInput::Installed { token })).chains[0]
    };
    installed(&mut tenant, 4, 200);
    let event = ReplicaEvent::CaughtUp { node: NodeId(3), epoch: ChainEpoch(4) };
    let effects = step(&mut tenant, 300, NodeLeaseInput::Replica { chain: CHAIN, event });
    assert_eq!(sent(&effects).chains[0].caught_up, Some(NodeId(3)), "it is told at once");
    assert_eq!(installed(&mut tenant, 5, 400).caught_up, None);
    let ready = ReplicaEvent::Ready { epoch: ChainEpoch(5) };
    assert!(sent(&step(&mut tenant, 500, NodeLeaseInput::Replica { chain: CHAIN, event: ready })).chains[0].is_ready);
    assert!(!installed(&mut tenant, 6, 600).is_ready);
}

#[test]
fn a_node_that_resigned_has_no_lease_at_any_later_answer() {
    let mut tenant = begun();
    step(&mut tenant, 200, NodeLeaseInput::Granted(LeaseGrant { chains: vec![], ..grant(1, 1, None) }));
    assert!(holds(&tenant, 300));
    assert!(sent(&step(&mut tenant, 300, NodeLeaseInput::Resign)).resigns);
    step(&mut tenant, 310, NodeLeaseInput::Granted(LeaseGrant { chains: vec![], ..grant(2, 1, None) }));
    assert!(!holds(&tenant, 320));
    assert_eq!(step(&mut tenant, 5000, NodeLeaseInput::Tick), []);
}

#[test]
fn a_refused_node_reports_it_once_and_asks_less_and_less_often() {
    let mut tenant = begun();
    let fault = Fault::new(Reason::Fenced, "the clock");
    let (mut told, mut asked) = (0, Vec::new());
    for ms in (150..60_000).step_by(50) {
        for effect in step(&mut tenant, ms, NodeLeaseInput::Tick) {
            if let NodeLeaseEffect::Send { .. } = effect {
                asked.push(ms);
                let refused = step(&mut tenant, ms, NodeLeaseInput::Refused { from: NodeId(1), fault: fault.clone() });
                told += refused.iter().filter(|effect| matches!(effect, NodeLeaseEffect::Refused(_))).count();
            }
        }
    }
    assert_eq!(told, 1);
    assert!((8..14).contains(&asked.len()), "{asked:?}");
    assert_eq!(tenant.refused(), Some(&fault));
    let number = asked.len() as u64 + 1;
    step(&mut tenant, 60_000, NodeLeaseInput::Granted(LeaseGrant { chains: vec![], ..grant(number, 1, None) }));
    assert_eq!(tenant.refused(), None);
}

#[test]
fn a_former_leader_does_not_slow_heartbeats() {
    let mut tenant = begun();
    step(&mut tenant, 150, NodeLeaseInput::Leader(Some(NodeId(3))));
    let late = NodeLeaseInput::Refused { from: NodeId(1), fault: Fault::new(Reason::Fenced, "the clock") };
    let idle = NodeLeaseInput::Refused { from: NodeId(3), fault: Fault::new(Reason::Unavailable, "nobody leads") };
    let mut beats = 0;
    for ms in (200..4200).step_by(10) {
        for input in [late.clone(), idle.clone(), NodeLeaseInput::Tick] {
            let effects = step(&mut tenant, ms, input);
            assert!(effects.iter().all(|effect| matches!(effect, NodeLeaseEffect::Send { .. })), "{effects:?}");
            beats += effects.len();
        }
    }
    assert!(beats >= 10, "{beats} in 4 s: it would lose its lease");
    assert_eq!(tenant.refused(), None);
}

#[test]
fn heartbeats_continue_without_answers_and_stop_without_a_leader() {
    let mut tenant = begun();
    let beats = |tenant: &mut NodeLease, from: u64| {
        (from..from + 4000).step_by(10).map(|ms| step(tenant, ms, NodeLeaseInput::Tick).len()).sum::<usize>()
    };
    assert!((10..=12).contains(&beats(&mut tenant, 200)));
    step(&mut tenant, 5000, NodeLeaseInput::Leader(None));
    assert_eq!(beats(&mut tenant, 5000), 0);
    assert_eq!(step(&mut tenant, 9000, NodeLeaseInput::Leader(Some(NodeId(3)))).len(), 1, "a new leader hears at once");
}

#[test]
fn clocks_are_compared_through_the_middle_of_the_way() {
    let mut tenant = begun();
    // Sent at 100 ms, back at 300: the leader's 10_200 ms were read in between.
    let answer = LeaseGrant { chains: vec![], leader: NodeId(1), wall_us: 10_200_000, ..grant(1, 1, None) };
    step(&mut tenant, 300, NodeLeaseInput::Granted(answer));
    let effects = step(&mut tenant, 1000, NodeLeaseInput::Tick);
    let clock = sent(&effects).clock.unwrap();
    assert_eq!((clock.offset_us, clock.error_us), (-10_000_000, 100_000));
}

#[test]
fn a_clock_that_was_put_right_is_noticed_at_the_next_answer() {
    let mut tenant = begun();
    let answer = |number, wall_us| LeaseGrant { chains: vec![], leader: NodeId(1), wall_us, ..grant(number, 1, None) };
    let now = |tenant: &mut NodeLease, ms| sent(&step(tenant, ms, NodeLeaseInput::Tick)).clone();
    step(&mut tenant, 102, NodeLeaseInput::Granted(answer(1, 11_101_000)));
    let before = now(&mut tenant, 1000);
    assert_eq!(before.clock.unwrap().offset_us, -11_000_000);
    // The answer took longer than the first one, and says all the same that it cannot be 11 s any more.
    step(&mut tenant, 1400, NodeLeaseInput::Granted(answer(before.number, 1_200_000)));
    let after = now(&mut tenant, 2000);
    assert_eq!((after.clock.unwrap().offset_us, after.clock.unwrap().error_us), (0, 200_000));
}
