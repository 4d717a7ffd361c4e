//! What the scheduler costs a transaction: `cargo run --release -p frieze-calvin --example scheduler_cost`.
//!
//! Creates in one slot, with the keys of a name, of an inode and of the content of the directory; then renames over two
//! shards of one server, with values; then creates behind a part that waits; then changes of a limit, for which every
//! shard needs the values of all, on a server that has all shards and on one of many. Nanoseconds of processor for a
//! transaction, without what a driver does.

use frieze_base::{LogIndex, MonoTime, Seq, SessionId};
use frieze_calvin::{
    ExecutionPlace, KeyAccess, Position, Registry, RequestName, Scheduler, SchedulerEffect, SchedulerInput,
    SchedulerSettings, ShardId, Slot, SlotPart, TxnEnvelope, TxnKey, TxnPlan,
};

const TRANSACTIONS: u64 = 1_000_000;

struct Driver {
    scheduler: Scheduler,
    shards: u16,
    effects: Vec<SchedulerEffect>,
    next: u64,
    /// Parts that are not run: their place keeps its keys.
    stuck: Option<ExecutionPlace>,
}

impl Driver {
    fn new(shards: u16) -> Driver {
        Driver::one_of(1, shards)
    }

    /// A server that has each so many-th shard.
    fn one_of(servers: u16, shards: u16) -> Driver {
        let settings = SchedulerSettings { shards, ..SchedulerSettings::default() };
        let here = (0..shards).filter(|shard| shard.is_multiple_of(servers)).map(ShardId);
        let scheduler = Scheduler::new(settings, LogIndex(0), Registry::default(), here);
        Driver { scheduler, shards, effects: Vec::new(), next: 0, stuck: None }
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
                    let slots: Vec<Slot> = plan.slots.iter().filter(|part| part.gives).map(|part| part.slot).collect();
                    self.step(SchedulerInput::Prepared { position, plan });
                    // Other servers send theirs.
                    for slot in slots {
                        let shard = ShardId::of(slot, self.shards);
                        if self.scheduler.watermark(ExecutionPlace::Shard(shard)) == Position::default() {
                            self.step(SchedulerInput::Received { position, slot, value: vec![1; 16] });
                        }
                    }
                }
                SchedulerEffect::Read { position, shard } => {
                    let values = vec![(first_slot(shard.0, self.shards), vec![1; 16])];
                    self.step(SchedulerInput::Values { position, shard, values });
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

/// Every shard says what it has of a limit, and needs what all others have. A server fills in its own parts.
fn gather(number: u64, shards: u16, servers: u16) -> TxnPlan {
    let slots: Vec<Slot> = (0..shards).map(|shard| first_slot(shard, shards)).collect();
    let part = |slot: &Slot| {
        let is_here = ShardId::of(*slot, shards).0.is_multiple_of(servers);
        SlotPart {
            slot: *slot,
            keys: vec![(TxnKey(number), KeyAccess::Exclusive)],
            gives: true,
            needs: slots.iter().copied().filter(|other| is_here && other != slot).collect(),
        }
    };
    TxnPlan { slots: slots.iter().map(part).collect(), ..TxnPlan::default() }
}

fn first_slot(shard: u16, shards: u16) -> Slot {
    Slot((u32::from(shard) * u32::from(frieze_calvin::SLOTS)).div_ceil(u32::from(shards)) as u16)
}

fn measure(what: &str, driver: &mut Driver, plan: impl Fn(u64) -> TxnPlan) {
    measure_some(what, TRANSACTIONS, driver, plan);
}

fn measure_some(what: &str, transactions: u64, driver: &mut Driver, plan: impl Fn(u64) -> TxnPlan) {
    let begun = cpu_ns();
    for number in 1..=transactions {
        driver.run(plan(number));
    }
    println!("{what}: {:.0} ns a transaction", (cpu_ns() - begun) as f64 / transactions as f64);
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
    for (servers, shards) in [(1, 1), (1, 16), (16, 16), (1, 400), (100, 400)] {
        let mut driver = Driver::one_of(servers, shards);
        let what = format!("a limit over {shards} shards, {} of them here", shards / servers);
        let values = u64::from(shards) * u64::from(shards / servers);
        measure_some(&what, (10_000_000 / values).clamp(100, TRANSACTIONS), &mut driver, |number| {
            gather(number, shards, servers)
        });
    }
}
