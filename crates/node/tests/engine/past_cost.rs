//! Cost of queries about the past: reads of the store grow with the number of changes, not with its square.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

use frieze_base::LogIndex;
use frieze_wire::timeline::{Diff, Story};

/// A store that counts reads: one for each look-up, and one for each item shown.
struct Counting {
    store: MemoryStore,
    reads: Arc<AtomicU64>,
}

type StoredItem = (Vec<u8>, Vec<u8>);

impl VersionStore for Counting {
    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<StoredItem>, Fault> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.store.last_in(from, to)
    }

    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoredItem, Fault>> + '_> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Box::new(self.store.items(from, to).inspect(|_| {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }))
    }

    fn begin(&self) -> Result<LogIndex, Fault> {
        self.store.begin()
    }

    fn insert(&self, batch: &StoreBatch) -> u64 {
        self.store.insert(batch)
    }

    fn memtable_bytes_max(&self) -> u64 {
        self.store.memtable_bytes_max()
    }

    fn seal(&self, batch: &StoreBatch, through: LogIndex) {
        self.store.seal(batch, through);
    }

    fn settle(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        self.store.settle(durable)
    }

    fn applied(&self) -> Result<LogIndex, Fault> {
        self.store.applied()
    }

    fn persist(&self) -> Result<(), Fault> {
        self.store.persist()
    }
}

/// A server whose store counts.
struct Counted {
    client: TestConnection,
    reads: Arc<AtomicU64>,
}

impl Counted {
    fn start() -> Counted {
        let machine = SimMachine::new(7);
        let reads = Arc::new(AtomicU64::new(0));
        let store = Counting { store: machine.store.clone(), reads: Arc::clone(&reads) };
        let server = machine.open(Box::new(store)).unwrap();
        Counted { client: machine.connect(server, Caller::root()), reads }
    }

    /// Reads of the store for a query.
    fn reads_of<T>(&mut self, ask: impl FnOnce(&mut TestConnection) -> T) -> (T, u64) {
        let before = self.reads.load(Ordering::Relaxed);
        let answer = ask(&mut self.client);
        (answer, self.reads.load(Ordering::Relaxed) - before)
    }

    /// A directory in a directory, and so on; the innermost one's path is beyond what a path may be.
    fn chain(&mut self, depth: usize) {
        let mut base = InodeId::ROOT.0;
        for _ in 0..depth {
            let target = Target { base, path: b"d".to_vec(), ..Target::path("") };
            let kind = Some(MakeKind::Directory(true));
            let make = Make { target, mode: 0o755, or_open: false, kind, ..Make::default() };
            base = self.client.txn(Op::Make(make)).expect("makes").id;
        }
    }

    /// As [`Counted::reads_of`], of everything that happened, in pages of about `count_max`; how many events that is.
    fn story(&mut self, path: &str, count_max: u32) -> (usize, u64) {
        self.story_since(path, 0, count_max)
    }

    fn story_since(&mut self, path: &str, since: u64, count_max: u32) -> (usize, u64) {
        let upto = self.client.server.newest().0;
        self.reads_of(|client| {
            let (mut after, mut count) = (since, 0);
            while after < upto {
                let target = Target::path(path);
                let ask =
                    Story { target, view: View::NOW, after, upto, recursive: true, count_max, ..Story::default() };
                let Ok(Reply::Story(page)) = client.ask(Request::Story(ask)) else { panic!("no story") };
                assert!(page.upto > after);
                (after, count) = (page.upto, count + page.events.len());
            }
            count
        })
    }

    /// As [`Counted::story`], of the differences between `from` and now.
    fn diff(&mut self, path: &str, from: u64, count_max: u32) -> (usize, u64) {
        let to = self.client.server.newest().0;
        self.reads_of(|client| {
            let mut count = 0;
            loop {
                let ask = Diff { target: Target::path(path), from, to, skip: count as u64, count_max };
                let Ok(Reply::Diff(page)) = client.ask(Request::Diff(ask)) else { panic!("no difference") };
                count += page.differences.len();
                if !page.more {
                    return count;
                }
            }
        })
    }
}

/// Twice as much costs about twice as much: the square would cost four times.
fn check_linear(what: &str, cost: impl Fn(usize) -> u64) {
    let (once, twice) = (cost(200), cost(400));
    assert!(once > 0 && twice * 10 <= once * 26, "{what}: {once} reads, of twice as much {twice}");
}

#[test]
fn a_story_costs_the_depth_of_other_trees_once_and_not_for_each_change_in_them() {
    check_linear("a chain of directories elsewhere", |depth| {
        let mut counted = Counted::start();
        counted.client.mkdir("/small");
        let (_, before) = counted.story("/small", 0);
        counted.chain(depth);
        let (events, after) = counted.story("/small", 0);
        assert_eq!(events, 1);
        after - before
    });
}

#[test]
fn a_story_costs_the_depth_of_what_it_shows_once_and_not_for_each_event() {
    check_linear("a chain of directories that is shown", |depth| {
        let mut counted = Counted::start();
        counted.chain(depth);
        let (events, reads) = counted.story("/", 0);
        assert_eq!(events, depth);
        reads
    });
}

#[test]
fn a_difference_costs_the_depth_of_other_trees_once() {
    check_linear("a chain of directories elsewhere", |depth| {
        let mut counted = Counted::start();
        counted.client.mkdir("/small");
        let from = counted.client.server.newest().0;
        counted.client.make("/small/f");
        counted.chain(depth);
        let (found, reads) = counted.diff("/small", from, 0);
        assert_eq!(found, 1);
        reads
    });
}

#[test]
fn the_pages_of_a_story_go_on_where_the_last_ended() {
    check_linear("a story in pages of 20", |count| {
        let mut counted = Counted::start();
        (0..count).for_each(|number| drop(counted.client.make(&format!("/f{number}"))));
        let (events, reads) = counted.story("/", 20);
        assert_eq!(events, count);
        reads
    });
}

#[test]
fn the_pages_of_a_difference_are_found_once() {
    check_linear("differences in pages of 20", |count| {
        let mut counted = Counted::start();
        let from = counted.client.server.newest().0;
        (0..count).for_each(|number| drop(counted.client.make(&format!("/f{number}"))));
        let (found, reads) = counted.diff("/", from, 20);
        assert_eq!(found, count);
        reads
    });
}

#[test]
fn a_run_that_goes_on_beyond_its_page_is_cut_a_few_times_and_not_once_for_each_write() {
    check_linear("a run beside more events than a page has", |count| {
        let mut counted = Counted::start();
        let capability = counted.client.make("/written");
        counted.client.make("/other");
        let since = counted.client.server.newest().0;
        let (from, to) = (Target::path("/written"), Target::path("/other"));
        let exchange = Rename { from, to, flags: frieze_wire::txn::RENAME_EXCHANGE };
        counted.client.txn(Op::Rename(exchange)).unwrap();
        for number in 0..count as u64 {
            counted.client.write(&capability, Some(number % 10), b"x").unwrap();
        }
        let (events, reads) = counted.story_since("/", since, 1);
        assert!(events >= 3);
        reads
    });
}

#[test]
fn the_newest_events_cost_what_they_show_and_not_what_came_before_them() {
    let cost = |before: usize| {
        let mut counted = Counted::start();
        (0..before).for_each(|number| drop(counted.client.make(&format!("/f{number}"))));
        let upto = counted.client.server.newest().0;
        let (target, view) = (Target::path("/"), View::NOW);
        let ask =
            Story { target, view, after: 0, upto, recursive: true, count_max: 10, newest_first: true, cell_us: 0 };
        let (reply, reads) = counted.reads_of(|client| client.ask(Request::Story(ask)));
        let Ok(Reply::Story(page)) = reply else { panic!("no story") };
        let stamps: Vec<u64> = page.events.iter().map(|event| event.stamp).collect();
        assert_eq!(stamps.len(), 10);
        assert!(stamps.is_sorted_by(|one, next| one > next) && page.after < stamps[9]);
        reads
    };
    let (few, many) = (cost(600), cost(1200));
    assert!(many < few + few / 10, "{few} reads beside 600 events, {many} beside 1,200");
}

/// What a question about a small tree costs beside so much more in another one.
fn check_beside(ask: impl Fn(&mut Counted) -> (usize, u64)) {
    let cost = |beside: usize| {
        let mut counted = Counted::start();
        counted.client.mkdir("/small");
        counted.client.mkdir("/large");
        for number in 0..beside {
            let capability = counted.client.make(&format!("/large/f{number}"));
            counted.client.write(&capability, None, b"x").unwrap();
            if number % (beside / 10) == 0 {
                let capability = counted.client.make(&format!("/small/f{number}"));
                counted.client.write(&capability, None, b"x").unwrap();
            }
        }
        let (found, reads) = ask(&mut counted);
        assert!(found >= 10, "{found}");
        reads
    };
    let (few, many) = (cost(1500), cost(3000));
    assert!(many < few + few / 10, "{few} reads beside 1,500 files, {many} beside 3,000");
}

#[test]
fn a_story_of_a_small_tree_costs_nothing_for_changes_in_other_trees() {
    check_beside(|counted| counted.story("/small", 0));
    check_beside(|counted| counted.story("/small", 7));
}

#[test]
fn the_differences_of_a_small_tree_cost_nothing_for_those_of_other_trees() {
    check_beside(|counted| counted.diff("/small", 0, 0));
}
