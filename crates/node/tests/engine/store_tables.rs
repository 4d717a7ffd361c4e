//! The log of metadata is cut behind what tables of the store hold, and is replayed from there.

use frieze_base::LogIndex;
use frieze_node::StoreItem;

use super::*;

/// A segment of the log holds some thirty of them.
const VALUE_BYTES: usize = 60 << 10;
const VALUES: u8 = 120;

/// A store that says that its tables are complete as far as the log is durable.
struct BoastingStore(MemoryStore);

impl VersionStore for BoastingStore {
    fn begin(&self) -> Result<LogIndex, Fault> {
        self.0.begin()
    }

    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<StoreItem>, Fault> {
        self.0.last_in(from, to)
    }

    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoreItem, Fault>> + '_> {
        self.0.items(from, to)
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
        self.0.settle(durable).map(|_| durable)
    }

    fn applied(&self) -> Result<LogIndex, Fault> {
        self.0.applied()
    }

    fn persist(&self) -> Result<(), Fault> {
        self.0.persist()
    }
}

fn segments(machine: &SimMachine) -> usize {
    machine.disk.list().unwrap().iter().filter(|name| name.starts_with("raft-")).count()
}

/// Sets so many values that the log has several segments, flushing between them, and is killed.
fn fill_and_kill(machine: &mut SimMachine, store: Box<dyn VersionStore>, power: CrashKind) {
    let server = machine.open(store).unwrap();
    let mut client = machine.connect(server, Caller::root());
    client.make("/f");
    for value in 0..VALUES {
        let set = SetXattr {
            target: Target::path("/f"),
            name: b"user.value".to_vec(),
            value: vec![value; VALUE_BYTES],
            flags: 0,
        };
        client.txn(Op::SetXattr(set)).unwrap();
        if value % 8 == 7 {
            client.fsync();
        }
    }
    drop(client);
    machine.crash(power);
}

fn value(client: &mut TestConnection) -> u8 {
    let ask = GetXattr { target: Target::path("/f"), view: View::NOW, name: b"user.value".to_vec() };
    let Ok(Reply::Bytes(found)) = client.ask(Request::GetXattr(ask)) else { panic!("no value") };
    assert_eq!(found.value, vec![found.value[0]; VALUE_BYTES]);
    found.value[0]
}

#[test]
fn the_log_is_kept_as_far_as_no_table_has_it_and_no_further() {
    for power in [CrashKind::Process, CrashKind::Power] {
        for memtable_bytes in [1, 1 << 20, 64 << 20] {
            let mut machine = SimMachine::new(7);
            machine.store.set_memtable_bytes_max(memtable_bytes);
            let store = Box::new(machine.store.clone());
            fill_and_kill(&mut machine, store, power);
            let left = segments(&machine);
            match memtable_bytes {
                67_108_864 => assert!(left >= 4, "no table has anything: {left} segments"),
                1 => assert!(left <= 3, "tables have it: {left} segments"),
                _ => {}
            }
            let mut client = machine.serve();
            assert_eq!(value(&mut client), VALUES - 1);
            assert_eq!(client.server.check_up().wrong, Vec::<String>::new());
        }
    }
}

#[test]
fn a_log_that_was_cut_beyond_the_tables_is_noticed_by_the_next_start() {
    let mut machine = SimMachine::new(7);
    machine.store.set_memtable_bytes_max(64 << 20);
    let store = Box::new(BoastingStore(machine.store.clone()));
    fill_and_kill(&mut machine, store, CrashKind::Process);
    let refused = machine.try_serve().err().expect("entries are missing between the tables and the log");
    assert_eq!(refused.reason, Reason::Corrupt, "{refused}");
}
