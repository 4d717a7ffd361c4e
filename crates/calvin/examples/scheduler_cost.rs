//! What the scheduler costs a transaction: `cargo run --release -p frieze-calvin --example scheduler_cost`.
//!
//! Creates in one slot, with the keys of a name, of an inode and of the content of the directory; then renames over two
//! shards of one server, with values; then creates behind a part that waits. Nanoseconds of
//! processor for a transaction, without what a driver does.

use frieze_base::{LogIndex, MonoTime, Seq, SessionId};
use frieze_calvin::{
    ExecutionPlace, KeyAccess, Position, Registry, RequestName, Scheduler, SchedulerEffect, SchedulerInput,
    SchedulerSettings, ShardId, Slot, SlotPart, TxnEnvelope, TxnKey, TxnPlan,
};

const TRANSACTIONS: u64 = 1_000_000;

struct Driver {
    scheduler: Scheduler,
    effects: Vec<SchedulerEffect>,
    next: u64,
    /// Parts that are not run: their place keeps its keys.
    stuck: Option<ExecutionPlace>,
}

impl Driver {
    fn new(shards: u16) -> Driver {
        let settings = SchedulerSettings { shards, ..SchedulerSettings::default() };
        let all = (0..shards).map(ShardId);
        let scheduler = Scheduler::new(settings, LogIndex(0), Registry::default(), all);
        Driver { scheduler, effects: Vec::new(), next: 0, stuck: None }
    }

    fn step(&mut self, input: SchedulerInput) {
        let mut out = std::mem::take(&mut self.effects);
        self.scheduler.step(MonoTime(0), input, &mut out);
        self.effects = out;
    }

    /// One transaction, an entry of its own, until it is finished.
    fn run(&mut self, plan: TxnPlan) {
        self.next += 1;
        let request = RequestName { session: SessionId(1), seq: Seq(self.next), attempt: 1 };
        let envelopes = vec![TxnEnvelope { request, acked: Seq(self.next) }];
        self.step(SchedulerInput::Entry { index: LogIndex(self.next), envelopes });
        let mut plan = Some(plan);
        let mut at = 0;
        while let Some(effect) = self.effects.get(at).cloned() {
            at += 1;
            match effect {
                SchedulerEffect::Prepare { position } => {
                    let plan = plan.take().expect("one trunk phase a transaction");
                    self.step(SchedulerInput::Prepared { position, plan });
                }
                SchedulerEffect::Read { position, shard } => {
                    let slot = Slot(if shard.0 == 0 { 0 } else { frieze_calvin::SLOTS / 2 });
                    self.step(SchedulerInput::Values { position, shard, values: vec![(slot, vec![1; 16])] });
                }
                SchedulerEffect::Run { position, place, .. } if self.stuck != Some(place) => {
                    self.step(SchedulerInput::Done { position, place });
                }
                _ => {}
            }
        }
        self.effects.clear();
    }
}

fn create(number: u64) -> TxnPlan {
    let slot = (number % 1000) as u16;
    let keys = vec![
        (TxnKey(number * 3), KeyAccess::Exclusive),
        (TxnKey(number * 3 + 1), KeyAccess::Exclusive),
        (TxnKey(u64::MAX - u64::from(slot)), KeyAccess::Shared),
    ];
    TxnPlan { slots: vec![SlotPart { slot: Slot(slot), keys, gives: false, needs: Vec::new() }], ..TxnPlan::default() }
}

fn rename(number: u64) -> TxnPlan {
    let (one, other) = (Slot(0), Slot(frieze_calvin::SLOTS / 2));
    let part = |slot: Slot, needs: Slot| SlotPart {
        slot,
        keys: (0..3).map(|key| (TxnKey(number * 3 + key), KeyAccess::Exclusive)).collect(),
        gives: true,
        needs: vec![needs],
    };
    TxnPlan { slots: vec![part(one, other), part(other, one)], ..TxnPlan::default() }
}

fn measure(what: &str, driver: &mut Driver, plan: impl Fn(u64) -> TxnPlan) {
    let begun = cpu_ns();
    for number in 1..=TRANSACTIONS {
        driver.run(plan(number));
    }
    println!("{what}: {:.0} ns a transaction", (cpu_ns() - begun) as f64 / TRANSACTIONS as f64);
}

/// Processor time of this thread: others may have the rest of the machine.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("it is Linux");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("it begins with the time")
}

fn main() {
    measure("plans alone", &mut Driver::new(1), |number| {
        std::hint::black_box(create(number));
        TxnPlan::default()
    });
    measure("creates", &mut Driver::new(1), create);
    measure("renames over two shards", &mut Driver::new(2), rename);
    let mut driver = Driver::new(2);
    driver.stuck = Some(ExecutionPlace::Shard(ShardId(1)));
    let waits =
        SlotPart { slot: Slot(4000), keys: vec![(TxnKey(1), KeyAccess::Exclusive)], gives: false, needs: vec![] };
    driver.run(TxnPlan { slots: vec![waits], ..TxnPlan::default() });
    driver.stuck = None;
    measure("creates while a part waits", &mut driver, |number| create(number + 10));
    assert!(driver.scheduler.whole_watermark() == Position { index: LogIndex(1), item: 0 });
}
