//! What applications rely on in a power loss: write-then-rename, append-and-sync, a write-ahead log. And `last-whole`:
//! the instant before the gap, at which nothing is missing.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use frieze_base::{LogIndex, Rng};
use frieze_disk::CrashKind;
use frieze_node::StoreItem;

use super::*;

const SEEDS: u64 = 120;

/// Bytes that say which version they are, all of them.
fn version(n: u64) -> Vec<u8> {
    let mut rng = Rng::new(n);
    let len = rng.between(1, 90_000) as usize;
    [&n.to_le_bytes()[..], &(0..len).map(|_| rng.next() as u8).collect::<Vec<u8>>()].concat()
}

/// Which version these bytes are; `None` if they are whole as none.
fn version_of(bytes: &[u8]) -> Option<u64> {
    let n = u64::from_le_bytes(*bytes.first_chunk()?);
    (bytes == version(n)).then_some(n)
}

/// Works until the power goes in the middle of something, and returns what comes back.
fn until_the_power_goes(
    seed: u64,
    begin: &dyn Fn(&mut TestConnection),
    work: &mut dyn FnMut(&mut TestConnection, &mut Rng) -> Result<(), Fault>,
) -> TestConnection {
    let mut machine = SimMachine::new(7);
    machine.disk = SimDisk::new(seed);
    let mut rng = Rng::new(seed);
    let mut client = machine.serve();
    begin(&mut client);
    client.fsync();
    machine.disk.fail_after(rng.between(1, 60));
    while !machine.disk.is_crashed() {
        machine.time.advance_us(1000);
        // An error means that the device has failed, or is about to.
        let _ = work(&mut client, &mut rng);
        if rng.chance(4) {
            let _ = client.server.flush();
        }
    }
    drop(client);
    machine.lose_power();
    machine.time.advance_us(1_000_000);
    let client = machine.serve();
    assert_eq!(client.server.check_up().found(), 0, "seed {seed}: {:?}", client.server.check_up());
    client
}

#[test]
fn a_file_replaced_by_rename_is_the_old_or_the_new_one_whole() {
    for seed in 0..SEEDS {
        let (mut n, mut durable) = (1, 1);
        let begin = |client: &mut TestConnection| client.try_write_file("/f", &version(1)).unwrap();
        let mut client = until_the_power_goes(seed, &begin, &mut |client, rng| {
            n += 1;
            client.try_write_file("/f.tmp", &version(n))?;
            client.rename("/f.tmp", "/f")?;
            if rng.chance(3) {
                client.try_fsync()?;
                durable = n;
            }
            Ok(())
        });
        let found = client.read("/f", View::NOW).unwrap();
        let found = version_of(&found).unwrap_or_else(|| panic!("seed {seed}: {} bytes of no version", found.len()));
        assert!((durable..=n).contains(&found), "seed {seed}: version {found}, of {n}, {durable} was synced");
    }
}

/// A process ends, and the power fails in the middle of the next start: what that made durable of the log of names has
/// the bytes that the names rest on.
#[test]
fn a_start_makes_no_name_durable_before_the_bytes_under_it() {
    for seed in 0..SEEDS {
        let mut machine = SimMachine::new(7);
        machine.disk = SimDisk::new(seed);
        let mut client = machine.serve();
        client.try_write_file("/f", &version(1)).unwrap();
        client.fsync();
        for n in 2..5 {
            client.try_write_file("/f.tmp", &version(n)).unwrap();
            client.rename("/f.tmp", "/f").unwrap();
        }
        machine.crash(CrashKind::Process);
        drop(client);
        machine.disk.fail_after(1 + seed % 60);
        let started = machine.try_serve();
        machine.lose_power();
        drop(started);
        machine.time.advance_us(1_000_000);
        let mut client = machine.serve();
        let found = client.read("/f", View::NOW).unwrap();
        assert!(version_of(&found).is_some(), "seed {seed}: {} bytes of no version", found.len());
    }
}

#[test]
fn a_file_appended_to_is_a_prefix_that_holds_all_that_was_synced() {
    for seed in 0..SEEDS {
        let (mut written, mut durable) = (Vec::new(), 0);
        let mut n = 0;
        let begin = |client: &mut TestConnection| drop(client.make("/log"));
        let mut client = until_the_power_goes(seed, &begin, &mut |client, rng| {
            let capability = client.open("/log")?;
            n += 1;
            let record = version(n);
            written.extend_from_slice(&record);
            client.write(&capability, None, &record)?;
            if rng.chance(2) {
                client.try_fsync()?;
                durable = written.len();
            }
            Ok(())
        });
        let found = client.read("/log", View::NOW).unwrap();
        assert!(found.len() >= durable, "seed {seed}: {} bytes, {durable} were synced", found.len());
        assert!(written.starts_with(&found), "seed {seed}: bytes that were not appended");
    }
}

#[test]
fn what_was_written_together_is_there_together_or_not_at_all() {
    const LEN: usize = 80_000;
    for seed in 0..SEEDS {
        let (mut n, mut durable) = (0u8, 0);
        let begin = |client: &mut TestConnection| {
            client.try_write_file("/a", &[0; 30_000 + LEN]).unwrap();
            client.try_write_file("/b", &[0; LEN]).unwrap();
        };
        let mut client = until_the_power_goes(seed, &begin, &mut |client, rng| {
            n += 1;
            // Over the boundary of two chunks of one file, and in another.
            client.write_together(&[("/a", 30_000, &[n; LEN]), ("/b", 0, &[n; LEN])])?;
            if rng.chance(3) {
                client.try_fsync()?;
                durable = n;
            }
            Ok(())
        });
        let (a, b) = (client.read("/a", View::NOW).unwrap(), client.read("/b", View::NOW).unwrap());
        assert!((durable..=n).contains(&b[0]), "seed {seed}: {} of {n}, {durable} was synced", b[0]);
        assert!(a[30_000..] == b && b == [b[0]; LEN], "seed {seed}: half of what was written together");
    }
}

#[test]
fn a_write_ahead_log_never_misses_what_the_table_holds() {
    for seed in 0..SEEDS {
        // The table has ten places of one version number each; the log says which got which.
        let (mut n, mut committed) = (0u64, 0);
        let begin = |client: &mut TestConnection| {
            client.try_write_file("/table", &[0; 80]).unwrap();
            client.make("/wal");
        };
        let sync = seed % 2 == 0;
        let mut client = until_the_power_goes(seed, &begin, &mut |client, _| {
            n += 1;
            let wal = client.open("/wal")?;
            client.write(&wal, None, &n.to_le_bytes())?;
            if sync {
                client.try_fsync()?;
                committed = n;
            }
            let table = client.open("/table")?;
            client.write(&table, Some(n % 10 * 8), &n.to_le_bytes()).map(drop)
        });
        let numbers =
            |bytes: &[u8]| -> Vec<u64> { bytes.as_chunks().0.iter().map(|n| u64::from_le_bytes(*n)).collect() };
        let wal = numbers(&client.read("/wal", View::NOW).unwrap());
        let expected: Vec<u64> = (1..=wal.len() as u64).collect();
        assert_eq!(wal, expected, "seed {seed}");
        assert!(wal.len() as u64 >= committed, "seed {seed}: {} of {committed} committed", wal.len());
        for (place, n) in numbers(&client.read("/table", View::NOW).unwrap()).into_iter().enumerate() {
            let logged = n == 0 || (n <= wal.len() as u64 && n % 10 == place as u64);
            assert!(logged, "seed {seed}: the table holds {n} at {place}, the log ends with {}", wal.len());
        }
    }
}

#[test]
fn last_whole_is_the_newest_state_before_the_gap_and_answers_inside_say_so() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let mut n = 0;
        let states = RefCell::new(vec![(0, Vec::new())]);
        let file = RefCell::new(Vec::new());
        let mut directories = Vec::new();
        let begin = |client: &mut TestConnection| {
            let capability = client.make("/f");
            let (stamp, _) = client.write(&capability, Some(0), b"first").unwrap();
            states.borrow_mut().push((stamp, b"first".to_vec()));
            *file.borrow_mut() = capability;
            // Names come after bytes, bytes after names.
            client.mkdir("/d");
        };
        let mut client = until_the_power_goes(seed, &begin, &mut |client, rng| {
            n += 1;
            // Names and bytes that have nothing to do with each other: of either log the end may be missing.
            let kind = Some(MakeKind::Directory(true));
            let path = format!("/d/{n}");
            let make =
                Make { target: Target::path(path.as_str()), mode: 0o755, or_open: false, kind, ..Make::default() };
            directories.push((client.txn(Op::Make(make))?.stamp, path));
            let mut bytes = version(n);
            bytes.resize(1000, n as u8);
            let (stamp, _) = client.write(&file.borrow(), Some(0), &bytes)?;
            states.borrow_mut().push((stamp, bytes));
            if rng.chance(3) { client.try_fsync() } else { Ok(()) }
        });
        let states = states.into_inner();
        let status = client.status();
        let [gap] = status.gaps[..] else { panic!("seed {seed}: {:?}", status.gaps) };
        let whole = client.now_named("last-whole").unwrap().at;
        assert_eq!((whole, gap.from), (status.last_whole, status.last_whole), "seed {seed}");
        // Everything acknowledged up to it is there, as it was.
        let (_, expected) = states.iter().rev().find(|(stamp, _)| *stamp <= whole).unwrap();
        assert!(client.at("/f", whole).unwrap() == *expected, "seed {seed}: not as it was at {whole}");
        for (_, path) in directories.iter().filter(|(stamp, _)| *stamp <= whole) {
            let there = client.stat(path, View { at: Some(whole), user_at: None });
            assert!(there.is_ok(), "seed {seed}: {path} is missing at {whole}");
        }
        let incomplete = |client: &mut TestConnection, at: u64| {
            client.stat("/f", View { at: Some(at), user_at: None }).unwrap().answered.incomplete
        };
        assert!(!incomplete(&mut client, whole), "seed {seed}");
        if gap.to > gap.from + 1 {
            assert!(incomplete(&mut client, gap.from + 1) && incomplete(&mut client, gap.to - 1), "seed {seed}");
        }
        assert!(!incomplete(&mut client, gap.to), "seed {seed}");
        // Put back, it is as it was then, and what was there before stays readable.
        let (before, newest) = (client.read("/f", View::NOW).unwrap(), client.server.newest().0);
        lost += u64::from(before != states.last().unwrap().1);
        client.restore("/f", whole, true).unwrap();
        assert!(client.read("/f", View::NOW).unwrap() == *expected, "seed {seed}");
        assert!(client.at("/f", newest).unwrap() == before, "seed {seed}");
    }
    assert!(lost > SEEDS / 10, "{lost} of {SEEDS} runs lost anything");
}

#[test]
fn every_instant_before_a_sync_is_whole_after_a_loss_of_power() {
    let mut machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.write(&file, Some(0), b"here").unwrap();
    machine.time.advance_us(1000);
    let before = client.now_named("").unwrap().at;
    client.fsync();
    // The next stamp after what the sync closed.
    let (next, _) = client.write(&file, Some(0), b"lost").unwrap();
    machine.time.advance_us(1000);
    let after = client.now_named("").unwrap().at;
    drop(client);
    machine.lose_power();
    machine.time.advance_us(1_000_000);
    let mut client = machine.serve();
    let mut look = |at: u64| {
        let found = client.stat("/f", View { at: Some(at), user_at: None }).unwrap().answered.incomplete;
        (found, client.at("/f", at).unwrap())
    };
    assert_eq!(look(before), (false, b"here".to_vec()));
    assert!(look(next).0 && look(after).0, "that was not synced");
    let whole = client.now_named("last-whole").unwrap().at;
    assert!(before <= whole && whole < next);
}

#[test]
fn without_a_loss_of_power_everything_is_whole_up_to_now() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.write(&file, Some(0), b"here").unwrap();
    machine.disk.crash(CrashKind::Process);
    drop(client);
    machine.disk.restart();
    let mut client = machine.serve();
    assert!(client.status().gaps.is_empty() && client.status().last_whole == 0);
    let whole = client.now_named("last-whole").unwrap().at;
    assert_eq!(client.at("/f", whole).unwrap(), b"here");
}

/// A store that loses what is in no table when the last of it is to become one.
struct RestingStore(MemoryStore, Arc<AtomicU32>);

impl VersionStore for RestingStore {
    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<StoreItem>, Fault> {
        self.0.last_in(from, to)
    }

    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoreItem, Fault>> + '_> {
        self.0.items(from, to)
    }

    fn begin(&self) -> Result<LogIndex, Fault> {
        self.0.begin()
    }

    fn insert(&self, batch: &StoreBatch) -> u64 {
        self.0.insert(batch)
    }

    fn memtable_bytes_max(&self) -> u64 {
        self.0.memtable_bytes_max()
    }

    fn seal(&self, batch: &StoreBatch, through: LogIndex) {
        self.0.seal(batch, through);
    }

    fn settle(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        self.0.settle(durable)
    }

    fn applied(&self) -> Result<LogIndex, Fault> {
        self.0.applied()
    }

    fn persist(&self) -> Result<(), Fault> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.lose_memory();
        Err(Fault::new(Reason::InputOutput, "the disk is slow today"))
    }
}

fn remove(path: &str) -> Op {
    Op::Remove(Remove { target: Target::path(path), directory: false })
}

/// A store that counts how often all entries are read from it.
struct CountingStore(MemoryStore, Arc<AtomicU32>);

impl VersionStore for CountingStore {
    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<StoreItem>, Fault> {
        self.0.last_in(from, to)
    }

    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoreItem, Fault>> + '_> {
        if from == b"E" && to > &b"E"[..] {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
        self.0.items(from, to)
    }

    fn begin(&self) -> Result<LogIndex, Fault> {
        self.0.begin()
    }

    fn insert(&self, batch: &StoreBatch) -> u64 {
        self.0.insert(batch)
    }

    fn memtable_bytes_max(&self) -> u64 {
        self.0.memtable_bytes_max()
    }

    fn seal(&self, batch: &StoreBatch, through: LogIndex) {
        self.0.seal(batch, through);
    }

    fn settle(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        self.0.settle(durable)
    }

    fn applied(&self) -> Result<LogIndex, Fault> {
        self.0.applied()
    }

    fn persist(&self) -> Result<(), Fault> {
        self.0.persist()
    }
}

#[test]
fn a_start_reads_names_from_a_checkpoint_and_where_that_is_damaged_from_the_store() {
    let machine = SimMachine::new(7);
    let read = Arc::new(AtomicU32::new(0));
    let open = || {
        read.store(0, Ordering::Relaxed);
        let server = machine.open(Box::new(CountingStore(machine.store.clone(), read.clone()))).unwrap();
        machine.connect(server, Caller::root())
    };
    let mut client = open();
    assert!(read.load(Ordering::Relaxed) > 0);
    for name in 0..20 {
        client.make(&format!("/f{name}"));
    }
    client.txn(remove("/f3")).unwrap();
    let last = client.stat("/f19", View::default()).unwrap().attr.inode;
    client.txn(remove("/f19")).unwrap();
    assert_eq!(client.server.checkpoint(), Ok(true));
    client.make("/later");
    for is_killed in [true, false] {
        match is_killed {
            true => machine.disk.crash(CrashKind::Process),
            // A few changes are not worth another one.
            false => assert_eq!(client.server.stop(), Ok(())),
        }
        drop(client);
        machine.disk.restart();
        client = open();
        assert_eq!((read.load(Ordering::Relaxed), client.server.notes().len()), (0, 0));
        for name in 0..20 {
            let found = client.stat(&format!("/f{name}"), View::default());
            assert_eq!(found.is_ok(), ![3, 19].contains(&name), "/f{name}");
        }
        client.stat("/later", View::default()).unwrap();
        let made = format!("/new-{is_killed}");
        client.make(&made);
        assert!(client.stat(&made, View::default()).unwrap().attr.inode > last, "no number is given twice");
    }
    let name = machine.disk.list().unwrap().into_iter().find(|name| name.starts_with("checkpoint-")).unwrap();
    machine.disk.crash(CrashKind::Process);
    drop(client);
    machine.disk.restart();
    machine.disk.flip_bit(&name, 100, 3).unwrap();
    let mut client = open();
    assert!(read.load(Ordering::Relaxed) > 0);
    let [note] = client.server.notes() else { panic!("{:?}", client.server.notes()) };
    assert!(note.contains(&name) && note.contains("damaged"), "{note}");
    client.stat("/new-false", View::default()).unwrap();
    assert!(!machine.disk.list().unwrap().contains(&name));
}

#[test]
fn a_server_that_stops_brings_all_into_tables_and_needs_no_luck_for_that() {
    let machine = SimMachine::new(7);
    let rests = Arc::new(AtomicU32::new(0));
    let server = machine.open(Box::new(RestingStore(machine.store.clone(), rests.clone()))).unwrap();
    let mut client = machine.connect(server, Caller::root());
    for name in 0..20 {
        client.make(&format!("/f{name}"));
    }
    assert_eq!(client.server.stop(), Ok(()));
    assert_eq!(rests.load(Ordering::Relaxed), 1);
    let mut again = machine.serve();
    for name in 0..20 {
        again.stat(&format!("/f{name}"), View::default()).unwrap();
    }
}
