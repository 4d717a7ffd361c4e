//! What a transaction costs the namespace: `cargo run --release -p frieze-namespace --example footprint_cost`.
//!
//! Creates in 1,000 directories, on the whole namespace; then the same on the items of their footprints, which is what
//! a server with some of the slots does for a transaction over several; then their footprints found, which is what a
//! front-end does. Nanoseconds for a transaction, on a quiet processor.

use std::collections::BTreeMap;
use std::time::Instant;

use frieze_hlc::Hlc;
use frieze_namespace::{
    ItemValue, KeyVersion, MemoryHistory, Namespace, NoReadSet, PartialRun, PartialState, StateItem, find_footprint,
};
use frieze_wire::txn::{Caller, Format, Make, MakeKind, Op, OpenSession, Target, Transaction};

const DIRECTORIES: u64 = 1000;
const CREATES: u64 = 200_000;

struct World {
    namespace: Namespace,
    history: MemoryHistory,
    stamp: Hlc,
}

impl World {
    fn apply(&mut self, txn: &Transaction) -> (u64, Vec<KeyVersion>) {
        self.stamp = Hlc::first_of_micros(self.stamp.micros() + 1);
        let mut changes = Vec::new();
        let outcome = self.namespace.apply(txn, self.stamp, &mut changes, &NoReadSet);
        assert_eq!(outcome.reason, 0, "{}", outcome.message);
        (outcome.id, changes)
    }

    fn read(&self, item: &StateItem) -> ItemValue {
        let mut value = item.read(&self.history, Hlc::MAX).expect("what was written can be read");
        // No number that is given in this example is larger.
        if matches!(item, StateItem::DirectoryNumbers | StateItem::FileNumbers(_)) {
            value.number = CREATES;
        }
        value
    }
}

fn make(session: u64, path: &str, kind: MakeKind) -> Transaction {
    let make = Make { target: Target::path(path), mode: 0o755, kind: Some(kind), ..Make::default() };
    Transaction { session, caller: Caller::root(), op: Some(Op::Make(make)), ..Transaction::default() }
}

fn create(session: u64, number: u64) -> Transaction {
    make(session, &format!("/d{}/file-{number}", number % DIRECTORIES), MakeKind::File(false))
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn timed(what: &str, count: u64, mut run: impl FnMut(u64)) {
    let begin = Instant::now();
    (0..count).for_each(&mut run);
    println!("{what:52} {:>8} ns", begin.elapsed().as_nanos() as u64 / count);
}

fn main() {
    let stamp = Hlc::first_of_micros(1_000_000);
    let mut world = World { namespace: Namespace::new(), history: MemoryHistory::of_part(), stamp };
    let format = Format { chunk_bytes: 1 << 20, chain_count: 1, uid: 0, gid: 0, mode: 0o755 };
    let open = OpenSession { command: String::new(), host: String::new(), uid: 0, keeps: false };
    let mut session = 0;
    for op in [Op::Format(format), Op::OpenSession(open)] {
        let (id, changes) = world.apply(&Transaction { op: Some(op), ..Transaction::default() });
        world.history.commit(&changes);
        session = id;
    }
    for number in 0..DIRECTORIES {
        let (_, changes) = world.apply(&make(session, &format!("/d{number}"), MakeKind::Directory(true)));
        world.history.commit(&changes);
    }
    timed("a create, on the whole namespace", CREATES, |number| {
        world.apply(&create(session, number));
    });
    let later = Hlc::first_of_micros(world.stamp.micros() + 1);
    timed("the footprint of a create, found", CREATES / 20, |number| {
        let found = find_footprint(&create(session, number), later, &mut |item| Ok(world.read(item)));
        assert_eq!(found.expect("what was written can be read").1.outcome.reason, 0);
    });
    let txn = create(session, 1);
    let (footprint, _) = find_footprint(&txn, later, &mut |item| Ok(world.read(item))).expect("as above");
    let items: BTreeMap<StateItem, ItemValue> =
        footprint.reads.iter().map(|item| (item.clone(), world.read(item))).collect();
    timed("a create, on the items of its footprint", CREATES / 20, |_| {
        let state = PartialState::new(&items).expect("what was written can be read");
        assert!(matches!(state.run(&txn, later), PartialRun::Done(_)));
    });
    println!("items of a create: {}, changed {}", footprint.reads.len(), footprint.writes.len());
}
