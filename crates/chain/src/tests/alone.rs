//! A chain of one: what is written in one step leaves what three leave.

use frieze_base::{ChainEpoch, ChainId, NodeId, Reason, Rng, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::message::Durability;

use crate::{
    AppendToken, Configuration, Effect, Input, LogEnd, Moment, Replica, RequestId, Settings, WriteDone, WriteRequest,
    WroteAlone,
};

use super::write_of;

fn replica() -> Replica {
    Replica::new(ChainId(0), ChainEpoch(1), Settings::default())
}

fn request(session: u64, seq: u64, acked: u64, durability: Durability) -> WriteRequest {
    WriteRequest { acked: Seq(acked), durability, ..write_of(session, seq) }
}

fn step(replica: &mut Replica, hlc: u64, input: Input) -> Vec<Effect> {
    let mut out = Vec::new();
    replica.step(Moment { hlc: Hlc(hlc), ..Moment::default() }, input, &mut out);
    out
}

/// Asks, appends and commits.
fn in_steps(replica: &mut Replica, hlc: u64, write: WriteRequest) {
    let effects = step(replica, hlc, Input::Write(write));
    let token = effects.iter().find_map(|effect| match effect {
        Effect::Append { token, .. } => Some(*token),
        _ => None,
    });
    if let Some(token) = token {
        step(replica, hlc, Input::Appended { token, end: LogEnd::default() });
    }
}

/// The same at once, if that may be.
fn at_once(replica: &mut Replica, hlc: u64, write: &WriteRequest) -> bool {
    let Some((n, epoch)) = replica.next_alone(write.session, write.seq) else { return false };
    assert_eq!(epoch, ChainEpoch(1));
    let done = WriteDone { stamp: Hlc(hlc), chunk: write.chunk, offset: write.offset };
    replica.wrote(&WroteAlone { n, session: write.session, seq: write.seq, acked: write.acked, done });
    true
}

#[test]
fn what_is_written_at_once_leaves_what_steps_leave() {
    let (mut one, mut other, mut rng, mut at_once_count) = (replica(), replica(), Rng::new(5), 0);
    let mut last = [0_u64; 3];
    for hlc in 1..2000_u64 {
        let session = rng.below(3) + 1;
        let newest = &mut last[session as usize - 1];
        // Some ask again, and some that long ago.
        let seq = if rng.chance(5) { rng.between(1, *newest + 1) } else { *newest + 1 };
        *newest = seq.max(*newest);
        let write = request(session, seq, newest.saturating_sub(rng.below(8)), Durability::Async);
        in_steps(&mut one, hlc * 2, write.clone());
        match at_once(&mut other, hlc * 2, &write) {
            true => at_once_count += 1,
            false => in_steps(&mut other, hlc * 2, write),
        }
        if rng.chance(20) {
            let close = || Input::Close { request: RequestId(9), at: Hlc(hlc * 2 + 1) };
            assert_eq!(step(&mut one, hlc * 2 + 1, close()), step(&mut other, hlc * 2 + 1, close()));
        }
        assert_eq!(format!("{one:?}"), format!("{other:?}"), "after the write at {hlc}");
    }
    assert!((1000..1900).contains(&at_once_count), "{at_once_count} were written at once");
}

#[test]
fn nothing_is_written_at_once_while_something_is_on_its_way() {
    let mut replica = replica();
    step(&mut replica, 10, Input::Write(request(1, 1, 0, Durability::Sync)));
    step(&mut replica, 10, Input::Appended { token: AppendToken(0), end: LogEnd { offset: 1, ..LogEnd::default() } });
    assert!(
        !at_once(&mut replica, 11, &request(1, 2, 0, Durability::Async)),
        "it would be committed before one that waits for the disk"
    );
    step(&mut replica, 11, Input::Persisted { through: LogEnd { offset: 1, ..LogEnd::default() } });
    assert!(!at_once(&mut replica, 12, &request(1, 1, 0, Durability::Async)), "it has happened");
    assert!(!at_once(&mut replica, 12, &request(0, 2, 0, Durability::Async)), "it has no number");
    assert!(at_once(&mut replica, 12, &request(1, 2, 0, Durability::Async)));
    step(&mut replica, 13, Input::DeviceFailed { reason: Reason::InputOutput });
    assert!(!at_once(&mut replica, 14, &request(1, 3, 0, Durability::Async)), "the device takes no more");
}

#[test]
fn only_who_is_the_whole_chain_writes_at_once() {
    let (me, other) = (NodeId(1), NodeId(2));
    let of = |members: Vec<NodeId>, syncing| {
        let configuration = Configuration { epoch: ChainEpoch(1), members, syncing, ..Configuration::default() };
        Replica::member(ChainId(0), me, configuration, Settings::default())
    };
    let may = |replica: Replica| replica.next_alone(SessionId(1), Seq(1)).is_some();
    assert!(may(of(vec![me], None)));
    assert!(!may(of(vec![me], Some(other))), "who is syncing is to be sent it");
    assert!(!may(of(vec![me, other], None)) && !may(of(vec![other, me], None)) && !may(of(vec![other], None)));
}

#[test]
#[should_panic(expected = "is not fresh")]
fn a_stamp_that_was_promised_not_to_come_is_not_written_at_once() {
    let mut replica = replica();
    step(&mut replica, 20, Input::Close { request: RequestId(9), at: Hlc(15) });
    at_once(&mut replica, 15, &request(1, 1, 0, Durability::Async));
}
