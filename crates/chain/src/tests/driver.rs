//! What a driver may never do: the replica stops rather than go on with a broken order.

use std::panic::{AssertUnwindSafe, catch_unwind};

use frieze_base::{ChainEpoch, ChainId, NodeId, Reason};
use frieze_hlc::Hlc;
use frieze_wire::chain::Configuration;
use frieze_wire::message::Durability;

use crate::{AppendToken, LogEnd, Moment, Replica, ReplicaEffect, ReplicaInput, RequestId, Settings};

use super::write_of;

fn replica() -> Replica {
    Replica::new(ChainId(0), ChainEpoch(1), Settings::default())
}

fn write(seq: u64) -> ReplicaInput {
    write_under(1, seq)
}

fn write_under(epoch: u64, seq: u64) -> ReplicaInput {
    let mut request = write_of(1, seq);
    request.header.epoch = ChainEpoch(epoch);
    ReplicaInput::Write(request)
}

/// Steps and expects the replica to stop with `words`.
fn stops(replica: &mut Replica, hlc: u64, input: ReplicaInput, words: &str) {
    let at = Moment { hlc: Hlc(hlc), ..Moment::default() };
    let stopped = catch_unwind(AssertUnwindSafe(|| replica.step(at, input, &mut Vec::new())));
    let payload = stopped.expect_err("the replica stops");
    let said = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
    let said = said.expect("it says why");
    assert!(said.contains(words), "it said {said:?}, not {words:?}");
}

fn step_at(replica: &mut Replica, hlc: u64, input: ReplicaInput) -> Vec<ReplicaEffect> {
    let mut out = Vec::new();
    replica.step(Moment { hlc: Hlc(hlc), ..Moment::default() }, input, &mut out);
    out
}

#[test]
fn a_stamp_is_never_given_twice() {
    let mut replica = replica();
    step_at(&mut replica, 10, write(1));
    stops(&mut replica, 10, write(2), "the newest of the chain");
}

#[test]
fn a_stamp_of_a_withdrawn_record_stays_burnt() {
    let mut replica = replica();
    step_at(&mut replica, 10, write(1));
    step_at(&mut replica, 0, ReplicaInput::AppendFailed { token: AppendToken(0), reason: Reason::NoSpace });
    stops(&mut replica, 10, write(1), "the newest of the chain");
}

#[test]
fn no_stamp_lies_at_or_below_a_promise() {
    let mut replica = replica();
    step_at(&mut replica, 20, ReplicaInput::Close { request: RequestId(9), at: Hlc(15) });
    stops(&mut replica, 15, write(1), "is promised not to come");
}

#[test]
fn appends_complete_in_order() {
    let mut replica = replica();
    step_at(&mut replica, 10, write(1));
    step_at(&mut replica, 11, write(2));
    stops(&mut replica, 0, ReplicaInput::Appended { token: AppendToken(1), end: LogEnd::default() }, "in the order");
}

#[test]
fn only_requested_appends_complete() {
    stops(&mut replica(), 0, ReplicaInput::Appended { token: AppendToken(0), end: LogEnd::default() }, "was asked for");
    let failed = ReplicaInput::AppendFailed { token: AppendToken(0), reason: Reason::NoSpace };
    stops(&mut replica(), 0, failed, "never asked for");
}

#[test]
fn a_whole_record_cannot_fail() {
    let mut replica = replica();
    let ReplicaInput::Write(mut request) = write(1) else { unreachable!("write makes a write") };
    request.durability = Durability::Sync;
    step_at(&mut replica, 10, ReplicaInput::Write(request));
    step_at(
        &mut replica,
        0,
        ReplicaInput::Appended { token: AppendToken(0), end: LogEnd { offset: 1, ..LogEnd::default() } },
    );
    let failed = ReplicaInput::AppendFailed { token: AppendToken(0), reason: Reason::NoSpace };
    stops(&mut replica, 0, failed, "reported whole and then failed");
}

/// A joining tail's repeated message asks for the greeting that it has not received: no other member would notice the
/// loss.
#[test]
fn a_joining_tail_whose_greeting_was_lost_asks_for_it() {
    let (head, tail) = (NodeId(1), NodeId(2));
    let joining =
        Configuration { epoch: ChainEpoch(5), members: vec![head, tail], joining: true, ..Configuration::default() };
    let member = |me| Replica::member(ChainId(0), me, Configuration::default(), Settings::default());
    let (mut first, mut last) = (member(head), member(tail));
    step_at(&mut first, 1, ReplicaInput::Configure(joining.clone()));
    // Its acknowledgement arrives, the greeting does not.
    for effect in step_at(&mut last, 1, ReplicaInput::Configure(joining)) {
        if let ReplicaEffect::Send { epoch, message, .. } = effect {
            step_at(&mut first, 1, ReplicaInput::Receive { from: tail, epoch, message });
        }
    }
    assert!(!first.has_unanswered() && last.has_unanswered());
    let mut ready = false;
    for effect in step_at(&mut last, 1, ReplicaInput::Resend) {
        let ReplicaEffect::Send { epoch, message, .. } = effect else { continue };
        for effect in step_at(&mut first, 1, ReplicaInput::Receive { from: tail, epoch, message }) {
            let ReplicaEffect::Send { epoch, message, .. } = effect else { continue };
            let output = step_at(&mut last, 1, ReplicaInput::Receive { from: head, epoch, message });
            ready |= output.iter().any(|effect| matches!(effect, ReplicaEffect::Ready { .. }));
        }
    }
    assert!(ready);
}

/// It was cut off while the chain continued without it, and its first news is that it is to sync: its last records are
/// at no other member, so their writer gets no success, whatever becomes durable or is sent again here.
#[test]
fn a_removed_head_does_not_acknowledge_its_writes_in_flight() {
    let (old, new) = (NodeId(2), NodeId(1));
    let mut replica = Replica::member(ChainId(0), old, Configuration::default(), Settings::default());
    let first = Configuration { epoch: ChainEpoch(1), members: vec![old, new], ..Configuration::default() };
    step_at(&mut replica, 1, ReplicaInput::Configure(first));
    step_at(&mut replica, 10, write(1));
    let end = LogEnd { offset: 1, ..LogEnd::default() };
    step_at(&mut replica, 10, ReplicaInput::Appended { token: AppendToken(0), end });
    let syncing =
        Configuration { epoch: ChainEpoch(3), members: vec![new], syncing: Some(old), ..Configuration::default() };
    let mut said = step_at(&mut replica, 11, ReplicaInput::Configure(syncing));
    said.extend(step_at(&mut replica, 11, ReplicaInput::Persisted { through: end }));
    said.extend(step_at(&mut replica, 11, ReplicaInput::Resend));
    let replies: Vec<_> = said
        .iter()
        .filter_map(|effect| match effect {
            ReplicaEffect::Reply { result, .. } => Some(result.as_ref().map_err(|fault| fault.reason)),
            _ => None,
        })
        .collect();
    assert_eq!(replies, [Err(Reason::StaleEpoch)], "it is sent again, to who heads the chain now");
    assert_eq!(replica.clean(), 0);
    let keep = ReplicaInput::Receive { from: new, epoch: ChainEpoch(3), message: crate::Message::Keep { upto: 0 } };
    assert_eq!(step_at(&mut replica, 12, keep), [ReplicaEffect::Discard { after: 0 }]);
}

/// The members before it were restarted and know nothing of what was promised then; it was away and does. What it
/// acknowledges they learn again, and the chain goes on.
#[test]
fn a_promise_from_before_a_restart_is_received_again_from_a_member_that_was_offline() {
    let (head, tail) = (NodeId(1), NodeId(2));
    let both =
        |epoch| Configuration { epoch: ChainEpoch(epoch), members: vec![head, tail], ..Configuration::default() };
    let mut replica = Replica::member(ChainId(0), head, both(4), Settings::default());
    step_at(&mut replica, 500, ReplicaInput::Configure(both(5)));
    step_at(&mut replica, 500, write_under(5, 1));
    let end = LogEnd { offset: 1, ..LogEnd::default() };
    step_at(&mut replica, 500, ReplicaInput::Appended { token: AppendToken(0), end });
    let ack = crate::Message::Ack { upto: 0, closed: Hlc(400), held: 0 };
    let said = step_at(&mut replica, 500, ReplicaInput::Receive { from: tail, epoch: ChainEpoch(5), message: ack });
    let is_record = |effect: &ReplicaEffect| match effect {
        ReplicaEffect::Send { message: crate::Message::Record(record), .. } => record.header.n == 1,
        _ => false,
    };
    assert!(said.iter().any(is_record), "{said:?}");
    assert_eq!(replica.closed(), Hlc(400));
    stops(&mut replica, 400, write_under(5, 2), "promised not to come");
}
