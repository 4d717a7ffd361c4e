//! A node that joins when all other members are lost.

use frieze_base::{ChainEpoch, ChainId, NodeId};
use frieze_hlc::Hlc;
use frieze_wire::chain::Configuration;

use crate::{Message, Moment, Replica, ReplicaEffect, ReplicaInput, RequestId, Settings};

const ME: NodeId = NodeId(3);
const OTHER: NodeId = NodeId(2);

fn step(replica: &mut Replica, input: ReplicaInput) -> Vec<ReplicaEffect> {
    let mut out = Vec::new();
    replica.step(Moment { hlc: Hlc(100), ..Moment::default() }, input, &mut out);
    out
}

/// The joining tail of a chain of two.
fn joining() -> Replica {
    let (epoch, syncing) = (ChainEpoch(1), Some(ME));
    let begun = Configuration { epoch, members: vec![OTHER], syncing, joining: false };
    let mut replica = Replica::member(ChainId(0), ME, begun, Settings::default());
    let (epoch, members) = (ChainEpoch(2), vec![OTHER, ME]);
    step(&mut replica, ReplicaInput::Configure(Configuration { epoch, members, syncing: None, joining: true }));
    let out = step(&mut replica, ReplicaInput::QueryTail { request: RequestId(1) });
    assert!(!out.iter().any(|effect| matches!(effect, ReplicaEffect::TailCut { .. })), "the other may hold more");
    replica
}

/// The other is lost for good: it has the chain alone, and answers.
fn resumes_alone(replica: &mut Replica) {
    let (epoch, members) = (ChainEpoch(3), vec![ME]);
    let out = step(replica, ReplicaInput::Configure(Configuration { epoch, members, syncing: None, joining: false }));
    let is_seen = |effect: &ReplicaEffect| matches!(effect, ReplicaEffect::TailCut { request: RequestId(1), .. });
    assert!(out.iter().any(is_seen), "who waited is answered: {out:?}");
    let out = step(replica, ReplicaInput::QueryTail { request: RequestId(2) });
    assert!(matches!(out[..], [ReplicaEffect::TailCut { request: RequestId(2), .. }]), "{out:?}");
    let out = step(replica, ReplicaInput::Close { request: RequestId(3), at: Hlc(40) });
    assert!(matches!(out[..], [ReplicaEffect::Closed { request: RequestId(3), .. }]), "{out:?}");
}

#[test]
fn a_joining_tail_left_alone_answers_from_its_own_log() {
    resumes_alone(&mut joining());
}

#[test]
fn a_joining_tail_left_alone_keeps_the_promises_of_its_predecessor() {
    let mut replica = joining();
    let message = Message::Greet { held: 0, promised: Hlc(50) };
    step(&mut replica, ReplicaInput::Receive { from: OTHER, epoch: ChainEpoch(2), message });
    assert!(replica.promised() < Hlc(50), "it has not come through yet");
    resumes_alone(&mut replica);
    assert_eq!(replica.promised(), Hlc(50));
}

/// The control plane may take it out, or resume the chain from another log, without waiting: then other members write
/// records that it does not receive.
#[test]
fn a_joining_tail_with_all_records_acknowledges_to_its_predecessor_alone() {
    let mut replica = joining();
    let receive = |message| ReplicaInput::Receive { from: OTHER, epoch: ChainEpoch(2), message };
    let is_seen = |effect: &ReplicaEffect| matches!(effect, ReplicaEffect::TailCut { .. });
    let out = step(&mut replica, receive(Message::Greet { held: 0, promised: Hlc::ZERO }));
    assert!(out.iter().any(|effect| matches!(effect, ReplicaEffect::Ready { .. })), "it has everything: {out:?}");
    assert!(!out.iter().any(is_seen), "{out:?}");
    let out = step(&mut replica, ReplicaInput::QueryTail { request: RequestId(2) });
    assert!(!out.iter().any(is_seen) && !replica.is_readable_now() && !replica.has_all_acknowledged(), "{out:?}");
    let out = step(&mut replica, receive(Message::AskClean { request: RequestId(9) }));
    assert!(matches!(out[..], [ReplicaEffect::Send { to: OTHER, .. }]), "{out:?}");
    let (epoch, members) = (ChainEpoch(3), vec![OTHER, ME]);
    let out =
        step(&mut replica, ReplicaInput::Configure(Configuration { epoch, members, syncing: None, joining: false }));
    assert_eq!(out.iter().filter(|effect| is_seen(effect)).count(), 2, "who waited is answered: {out:?}");
    assert!(replica.is_readable_now() && replica.has_all_acknowledged());
}
