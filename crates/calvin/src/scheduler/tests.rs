//! One rule of the scheduler each.

use frieze_base::{Seq, SessionId};

use super::*;
use crate::message::{SlotPart, TrunkPart};
use crate::registry::RequestName;

const HALF: u16 = crate::SLOTS / 2;

fn at(index: u64) -> Position {
    Position { index: LogIndex(index), item: 0 }
}

/// A scheduler of two shards under test, of which it has `shards`.
struct Desk {
    scheduler: Scheduler,
    now: u64,
}

impl Desk {
    fn with(settings: SchedulerSettings, shards: &[u16]) -> Desk {
        let shards = shards.iter().copied().map(ShardId);
        let scheduler = Scheduler::new(settings, LogIndex(0), Registry::default(), shards);
        Desk { scheduler, now: 0 }
    }

    fn of(shards: &[u16]) -> Desk {
        Desk::with(SchedulerSettings { shards: 2, ..SchedulerSettings::default() }, shards)
    }

    fn put(&mut self, input: SchedulerInput) -> Vec<SchedulerEffect> {
        let mut out = Vec::new();
        self.scheduler.step(MonoTime(self.now), input, &mut out);
        out
    }

    /// An entry of one transaction of its own session.
    fn entry(&mut self, index: u64) -> Vec<SchedulerEffect> {
        let request = RequestName { session: SessionId(index), seq: Seq(1), attempt: 1 };
        self.put(SchedulerInput::Entry {
            index: LogIndex(index),
            envelopes: vec![TxnEnvelope { request, acked: Seq(1) }],
        })
    }

    fn prepared(&mut self, index: u64, plan: TxnPlan) -> Vec<SchedulerEffect> {
        self.put(SchedulerInput::Prepared { position: at(index), plan })
    }

    fn done(&mut self, index: u64, place: ExecutionPlace) -> Vec<SchedulerEffect> {
        self.put(SchedulerInput::Done { position: at(index), place })
    }
}

fn part(slot: u16, key: u64, gives: bool, needs: &[u16]) -> SlotPart {
    let needs = needs.iter().copied().map(Slot).collect();
    SlotPart { slot: Slot(slot), keys: vec![(TxnKey(key), KeyAccess::Exclusive)], gives, needs }
}

fn plan(slots: Vec<SlotPart>) -> TxnPlan {
    TxnPlan { slots, ..TxnPlan::default() }
}

fn shard(shard: u16) -> ExecutionPlace {
    ExecutionPlace::Shard(ShardId(shard))
}

fn run(index: u64, place: ExecutionPlace, values: &[(u16, u8)]) -> SchedulerEffect {
    let values = values.iter().map(|(slot, value)| (Slot(*slot), vec![*value])).collect();
    SchedulerEffect::Run { position: at(index), place, values }
}

#[test]
fn a_transaction_of_one_slot_runs_at_once() {
    let mut desk = Desk::of(&[0, 1]);
    assert_eq!(desk.entry(1), [SchedulerEffect::Prepare { position: at(1) }]);
    assert_eq!(desk.scheduler.whole_watermark(), at(1));
    assert_eq!(desk.prepared(1, plan(vec![part(0, 1, false, &[])])), [run(1, shard(0), &[])]);
    assert_eq!((desk.scheduler.watermark(shard(0)), desk.scheduler.watermark(shard(1))), (at(1), at(2)));
    assert_eq!(desk.done(1, shard(0)), [SchedulerEffect::Finished { position: at(1) }]);
    assert_eq!((desk.scheduler.watermark(shard(0)), desk.scheduler.whole_watermark()), (at(2), at(2)));
}

#[test]
fn trunk_phases_run_one_by_one_in_log_order() {
    let mut desk = Desk::of(&[0, 1]);
    assert_eq!(desk.entry(1), [SchedulerEffect::Prepare { position: at(1) }]);
    assert_eq!(desk.entry(2), []);
    let effects = desk.prepared(1, TxnPlan::default());
    assert_eq!(effects, [SchedulerEffect::Finished { position: at(1) }, SchedulerEffect::Prepare { position: at(2) }]);
}

#[test]
fn parts_run_when_they_have_the_values_of_the_others() {
    let mut desk = Desk::of(&[0, 1]);
    desk.entry(1);
    let both = plan(vec![part(0, 1, true, &[]), part(HALF, 2, true, &[0])]);
    let read = |index| SchedulerEffect::Read { position: at(1), shard: ShardId(index) };
    assert_eq!(desk.prepared(1, both), [read(0), read(1)]);
    let values = |shard, slot, value| SchedulerInput::Values {
        position: at(1),
        shard: ShardId(shard),
        values: vec![(Slot(slot), vec![value])],
    };
    assert!(!desk.scheduler.has_read(at(1), ShardId(1)));
    assert_eq!(desk.put(values(1, HALF, 5)), []);
    // It answers another server that lost the value, though it waits itself.
    assert!(desk.scheduler.has_read(at(1), ShardId(1)) && !desk.scheduler.has_read(at(1), ShardId(0)));
    let effects = desk.put(values(0, 0, 4));
    assert_eq!(effects, [run(1, shard(0), &[(0, 4), (HALF, 5)]), run(1, shard(1), &[(0, 4), (HALF, 5)])]);
    assert_eq!(desk.done(1, shard(1)), []);
    assert_eq!(desk.done(1, shard(0)), [SchedulerEffect::Finished { position: at(1) }]);
    assert!(desk.scheduler.has_read(at(1), ShardId(0)) && !desk.scheduler.has_read(at(2), ShardId(0)));
}

#[test]
fn a_parked_part_keeps_its_key_and_its_watermark_and_others_pass() {
    // Shard 1 is on another server.
    let mut desk = Desk::of(&[0]);
    (1..=3).for_each(|index| drop(desk.entry(index)));
    let effects = desk.prepared(1, plan(vec![part(0, 1, false, &[HALF]), part(HALF, 2, true, &[])]));
    assert_eq!(effects, [SchedulerEffect::Prepare { position: at(2) }]);
    // The same key waits, another one does not.
    assert_eq!(desk.prepared(2, plan(vec![part(7, 1, false, &[])])), [SchedulerEffect::Prepare { position: at(3) }]);
    assert_eq!(desk.prepared(3, plan(vec![part(7, 3, false, &[])])), [run(3, shard(0), &[])]);
    desk.done(3, shard(0));
    assert_eq!((desk.scheduler.watermark(shard(0)), desk.scheduler.whole_watermark()), (at(1), at(1)));
    let heard = SchedulerInput::Received { position: at(1), slot: Slot(HALF), value: vec![9] };
    assert_eq!(desk.put(heard.clone()), [run(1, shard(0), &[(HALF, 9)])]);
    assert_eq!(desk.put(heard), [], "a value that comes again changes nothing");
    assert_eq!(desk.done(1, shard(0)), [SchedulerEffect::Finished { position: at(1) }, run(2, shard(0), &[])]);
}

#[test]
fn a_value_that_contradicts_the_known_one_is_reported() {
    let mut desk = Desk::of(&[0]);
    desk.entry(1);
    desk.prepared(1, plan(vec![part(0, 1, false, &[HALF]), part(HALF, 2, true, &[])]));
    let heard = |value| SchedulerInput::Received { position: at(1), slot: Slot(HALF), value: vec![value] };
    desk.put(heard(9));
    assert_eq!(desk.put(heard(8)), [SchedulerEffect::Diverged { position: at(1), slot: Slot(HALF) }]);
}

#[test]
fn a_value_that_comes_before_its_transaction_is_kept() {
    let mut desk = Desk::of(&[0]);
    assert_eq!(desk.put(SchedulerInput::Received { position: at(1), slot: Slot(HALF), value: vec![9] }), []);
    desk.entry(1);
    let effects = desk.prepared(1, plan(vec![part(0, 1, false, &[HALF]), part(HALF, 2, true, &[])]));
    assert_eq!(effects, [run(1, shard(0), &[(HALF, 9)])]);
}

#[test]
fn a_part_waits_for_what_did_not_come_early_and_counts_each_value_once() {
    let mut desk = Desk::of(&[0]);
    let heard = |slot| SchedulerInput::Received { position: at(1), slot: Slot(slot), value: vec![9] };
    desk.put(heard(HALF));
    desk.entry(1);
    let others = [part(HALF, 2, true, &[]), part(HALF + 1, 3, true, &[]), part(HALF + 2, 4, true, &[])];
    let needy = part(0, 1, false, &[HALF, HALF + 1, HALF + 2]);
    assert_eq!(desk.prepared(1, plan(others.into_iter().chain([needy]).collect())), []);
    assert_eq!(desk.put(heard(HALF)), [], "it came early");
    assert_eq!(desk.put(heard(HALF + 1)), []);
    assert_eq!(desk.put(heard(HALF + 1)), [], "it came before");
    assert_eq!(desk.put(heard(HALF + 2)), [run(1, shard(0), &[(HALF, 9), (HALF + 1, 9), (HALF + 2, 9)])]);
}

#[test]
fn a_late_value_is_asked_for_again_and_again() {
    let mut desk = Desk::of(&[0]);
    desk.entry(1);
    desk.prepared(1, plan(vec![part(0, 1, false, &[HALF]), part(HALF, 2, true, &[])]));
    assert_eq!(desk.put(SchedulerInput::Tick), []);
    let ask = SchedulerEffect::Ask { position: at(1), slot: Slot(HALF) };
    // Twice as long each time, and eight times as long at last.
    for times in [1, 2, 4, 8, 8] {
        desk.now += SchedulerSettings::default().ask_after_ns * times - 1;
        assert_eq!(desk.put(SchedulerInput::Tick), []);
        desk.now += 1;
        assert_eq!(desk.put(SchedulerInput::Tick), std::slice::from_ref(&ask));
        assert_eq!(desk.put(SchedulerInput::Tick), []);
    }
}

#[test]
fn a_value_goes_to_other_servers_if_they_have_parts() {
    let mut desk = Desk::of(&[0]);
    desk.entry(1);
    desk.prepared(1, plan(vec![part(0, 1, true, &[]), part(HALF, 2, false, &[0])]));
    let values = vec![(Slot(0), vec![4])];
    let effects = desk.put(SchedulerInput::Values { position: at(1), shard: ShardId(0), values });
    assert_eq!(
        effects,
        [SchedulerEffect::Push { position: at(1), slot: Slot(0), value: vec![4] }, run(1, shard(0), &[(0, 4)])]
    );
}

#[test]
fn trunk_phases_that_meet_a_parked_key_stand_until_it_is_free() {
    let mut desk = Desk::of(&[0, 1]);
    (1..=3).for_each(|index| drop(desk.entry(index)));
    let trunk = TrunkPart { keys: vec![(TxnKey(8), KeyAccess::Exclusive)], needs: vec![Slot(0)] };
    let effects = desk.prepared(1, TxnPlan { slots: vec![part(0, 1, true, &[])], trunk: Some(trunk), ends: None });
    assert_eq!(
        effects,
        [SchedulerEffect::Read { position: at(1), shard: ShardId(0) }, SchedulerEffect::Prepare { position: at(2) }]
    );
    assert!(
        desk.scheduler.is_parked(TxnKey(8), KeyAccess::Shared)
            && !desk.scheduler.is_parked(TxnKey(1), KeyAccess::Shared)
    );
    assert_eq!(desk.put(SchedulerInput::Blocked { position: at(2), key: TxnKey(8) }), []);
    let values = vec![(Slot(0), vec![4])];
    let effects = desk.put(SchedulerInput::Values { position: at(1), shard: ShardId(0), values });
    // Other servers have the trunk too.
    let push = SchedulerEffect::Push { position: at(1), slot: Slot(0), value: vec![4] };
    assert_eq!(effects, [push, run(1, ExecutionPlace::Trunk, &[(0, 4)]), run(1, shard(0), &[(0, 4)])]);
    assert_eq!(desk.done(1, shard(0)), []);
    let effects = desk.done(1, ExecutionPlace::Trunk);
    assert_eq!(effects, [SchedulerEffect::Finished { position: at(1) }, SchedulerEffect::Prepare { position: at(2) }]);
}

#[test]
fn trunk_phases_stand_while_a_lane_is_full() {
    let mut desk = Desk::with(SchedulerSettings { shards: 2, parked_max: 2, ..SchedulerSettings::default() }, &[0, 1]);
    (1..=3).for_each(|index| drop(desk.entry(index)));
    desk.prepared(1, plan(vec![part(0, 1, false, &[])]));
    assert_eq!(desk.prepared(2, plan(vec![part(0, 1, false, &[])])), []);
    assert_eq!((desk.scheduler.incoming(), desk.scheduler.prepared_to()), (1, at(2).next()));
    let effects = desk.done(1, shard(0));
    let prepare = SchedulerEffect::Prepare { position: at(3) };
    assert_eq!(effects, [SchedulerEffect::Finished { position: at(1) }, run(2, shard(0), &[]), prepare]);
}

#[test]
fn a_request_that_comes_again_gets_the_position_of_the_first_time() {
    let mut desk = Desk::of(&[0, 1]);
    let request = RequestName { session: SessionId(5), seq: Seq(1), attempt: 1 };
    let envelopes = vec![TxnEnvelope { request, acked: Seq(1) }; 2];
    desk.put(SchedulerInput::Entry { index: LogIndex(1), envelopes: envelopes.clone() });
    let second = Position { index: LogIndex(1), item: 1 };
    let effects = desk.prepared(1, TxnPlan::default());
    assert_eq!(
        effects,
        [SchedulerEffect::Finished { position: at(1) }, SchedulerEffect::Again { position: second, first: at(1) }]
    );
    // Stored with a state, the registry knows it after a restart.
    let registry = desk.scheduler.registry().clone();
    let scheduler =
        Scheduler::new(SchedulerSettings { shards: 2, ..SchedulerSettings::default() }, LogIndex(1), registry, []);
    let mut desk = Desk { scheduler, now: 0 };
    let effects = desk.put(SchedulerInput::Entry { index: LogIndex(2), envelopes });
    assert_eq!(effects[0], SchedulerEffect::Again { position: at(2), first: at(1) });
}

#[test]
fn a_session_that_ended_is_forgotten_and_its_acknowledged_requests_are_refused() {
    let mut desk = Desk::of(&[]);
    desk.entry(1);
    desk.prepared(1, TxnPlan { ends: Some(SessionId(1)), ..TxnPlan::default() });
    assert_eq!(desk.scheduler.registry(), &Registry::default());
    let request = RequestName { session: SessionId(5), seq: Seq(1), attempt: 1 };
    let old = TxnEnvelope { request, acked: Seq(3) };
    let effects = desk.put(SchedulerInput::Entry { index: LogIndex(2), envelopes: vec![old] });
    assert!(
        matches!(effects[..], [SchedulerEffect::Refuse { error: crate::RegistryError::TooOld { acked: 3, .. }, .. }]),
        "{effects:?}"
    );
}
