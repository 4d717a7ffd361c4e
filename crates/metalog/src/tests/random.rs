//! Random lives: appends, failures, flushes, truncations, kills and losses of power. What is recovered is always a
//! prefix of what was proposed and holds what was durable; a kill loses nothing that was appended.

use frieze_base::{LogIndex, Rng};
use proptest::prelude::*;

use super::machine::SegmentMachine;
use crate::recover::MetalogCutReason;

#[derive(Clone, Debug)]
enum RandomOp {
    Propose { len: usize },
    Write,
    Fail { written: usize, others_too: bool },
    Flush,
    Apply { back: u64 },
    Kill,
    LosePower { seed: u64, data_lost: bool },
}

fn op() -> impl Strategy<Value = RandomOp> {
    prop_oneof![
        6 => (0..300usize).prop_map(|len| RandomOp::Propose { len }),
        2 => Just(RandomOp::Propose { len: 40 }),
        7 => Just(RandomOp::Write),
        1 => (0..400usize, any::<bool>()).prop_map(|(written, others_too)| RandomOp::Fail { written, others_too }),
        2 => Just(RandomOp::Flush),
        1 => (0..4u64).prop_map(|back| RandomOp::Apply { back }),
        1 => Just(RandomOp::Kill),
        1 => (any::<u64>(), any::<bool>()).prop_map(|(seed, data_lost)| RandomOp::LosePower { seed, data_lost }),
    ]
}

fn play(machine: &mut SegmentMachine, op: &RandomOp, failed_since_flush: &mut bool) {
    match *op {
        RandomOp::Propose { len } => {
            machine.propose(len);
        }
        RandomOp::Write => machine.write_one(),
        RandomOp::Fail { written, others_too } => {
            machine.fail_one(written, others_too);
            *failed_since_flush = true;
        }
        RandomOp::Flush => {
            machine.flush();
            *failed_since_flush = false;
        }
        RandomOp::Apply { back } => machine.let_go(LogIndex(machine.log.durable.0.saturating_sub(back))),
        RandomOp::Kill => {
            let committed = machine.log.written;
            let recovered = machine.kill();
            assert!(recovered.report.last >= committed, "a kill loses nothing");
            machine.go_on(recovered);
            *failed_since_flush = false;
        }
        // The one way back for a withdrawn entry is not judged here.
        RandomOp::LosePower { .. } if *failed_since_flush => {}
        RandomOp::LosePower { seed, data_lost } => {
            let durable = machine.log.durable;
            machine.lose_power(&mut Rng::new(seed));
            let mut data_end = machine.data_end;
            if data_lost {
                let kept = durable.0 as usize + (seed % 3) as usize;
                data_end = machine.records[..kept.min(machine.records.len())].last().map_or(data_end, |e| e.data_end);
            }
            let recovered = machine.recover(data_end).expect("a crash alone never damages the log");
            assert!(recovered.report.last >= durable, "what was durable is there");
            let beyond = recovered.report.cut.is_some_and(|cut| cut.why == MetalogCutReason::BeyondData);
            assert!(!beyond || data_lost);
            machine.go_on(recovered);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn every_life_of_a_log_leaves_a_prefix(ops in prop::collection::vec(op(), 1..60)) {
        let mut machine = SegmentMachine::new(512);
        let mut failed_since_flush = false;
        for op in &ops {
            play(&mut machine, op, &mut failed_since_flush);
        }
        play(&mut machine, &RandomOp::Kill, &mut failed_since_flush);
    }
}
