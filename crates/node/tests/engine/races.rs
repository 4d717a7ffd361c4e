//! Events between two steps of an edit: a hook in the store runs something else there, on the same thread, so that the
//! order is the same in every run.

use std::sync::OnceLock;

use super::*;
use frieze_base::LogIndex;
use frieze_node::StoreItem;
use frieze_wire::forget::Forget;
use frieze_wire::txn::{DeleteSnapshot, MakeSnapshot};

/// Something to be done once, before a look at the names of an inode.
#[derive(Default)]
struct Hook {
    /// How many looks come before it.
    after: Mutex<Option<u32>>,
    act: OnceLock<Box<dyn Fn() + Send + std::marker::Sync>>,
}

impl Hook {
    fn look(&self, from: &[u8]) {
        if from.first() != Some(&b'L') {
            return;
        }
        let due = {
            let mut after = self.after.lock().unwrap();
            let due = *after == Some(0);
            *after = if due { None } else { after.map(|left| left - 1) };
            due
        };
        if due && let Some(act) = self.act.get() {
            // In place of another thread: the one that reads here holds its locks.
            frieze_locks::run_as_other_thread(act);
        }
    }
}

struct HookedStore(MemoryStore, Arc<Hook>);

impl VersionStore for HookedStore {
    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<StoreItem>, Fault> {
        self.1.look(from);
        self.0.last_in(from, to)
    }

    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoreItem, Fault>> + '_> {
        self.1.look(from);
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

/// A thread that waits for history to expire reads the progress: files found, then so many of so many, then nothing.
#[test]
fn forget_reports_its_progress() {
    let machine = SimMachine::new(7);
    let hook = Arc::new(Hook::default());
    let server = machine.open(Box::new(HookedStore(machine.store.clone(), hook.clone()))).unwrap();
    let mut client = machine.connect(server.clone(), Caller::root());
    for name in 0..20 {
        let file = client.make(&format!("/f{name}"));
        for seed in [1, 2] {
            client.write(&file, Some(0), &pattern(5000, seed)).unwrap();
        }
    }
    let before = client.server.newest().0;
    client.fsync();
    let told = Arc::new(Mutex::new(Vec::new()));
    let other = Mutex::new(machine.connect(server, Caller::root()));
    let (kept, telling) = (hook.clone(), told.clone());
    let act = move || {
        let Ok(Reply::Status(status)) = other.lock().unwrap().ask(Request::Status(Status {})) else { panic!() };
        telling.lock().unwrap().push((status.forgetting_looked_at, status.forgetting_to_look_at));
        // And again before the next look at names.
        *kept.after.lock().unwrap() = Some(0);
    };
    assert!(hook.act.set(Box::new(act)).is_ok());
    *hook.after.lock().unwrap() = Some(0);
    client.open_session();
    client.seq += 1;
    let forget = Forget { target: Target::path("/"), before, dry_run: false, with_snapshots: false };
    let id = client.send(Request::Forget(forget), &[], client.seq);
    let Reply::Forgot(reply) = client.answer(id).unwrap().0.unwrap() else { panic!() };
    assert_eq!((reply.files, reply.biggest.len()), (20, 10));
    // The files with the most dead bytes are named after three passes over all files: find them, compute what they
    // lose, and what they free.
    let told = told.lock().unwrap();
    assert!(told.iter().any(|(done, all)| *all == 3 * 21 && *done >= 3 * 20), "{told:?}");
    let Ok(Reply::Status(status)) = client.ask(Request::Status(Status {})) else { panic!() };
    assert_eq!((status.forgetting_looked_at, status.forgetting_to_look_at), (0, 0));
}

/// Files that other sessions create in a tree while its removal is planned are removed with it.
#[test]
fn a_tree_that_grows_while_its_removal_is_planned_goes_whole() {
    let machine = SimMachine::new(7);
    let hook = Arc::new(Hook::default());
    let server = machine.open(Box::new(HookedStore(machine.store.clone(), hook.clone()))).unwrap();
    let mut client = machine.connect(server.clone(), Caller::root());
    for path in ["/a", "/a/b", "/a/b/c"] {
        client.mkdir(path);
    }
    client.fsync();
    let other = Mutex::new(machine.connect(server, Caller::root()));
    let act = move || drop(other.lock().unwrap().make("/a/b/c/late"));
    assert!(hook.act.set(Box::new(act)).is_ok());
    *hook.after.lock().unwrap() = Some(0);
    let removed = client.remove_tree("/a/b", false).unwrap();
    assert!(hook.after.lock().unwrap().is_none(), "the other was there");
    assert_eq!(removed.count, 3, "{removed:?}");
    assert_eq!(client.stat("/a/b", View::NOW).unwrap_err().reason, Reason::NotFound);
    let before = View { at: Some(removed.stamp - 1), user_at: None };
    assert!(client.stat("/a/b/c/late", before).is_ok());
}

/// Bytes written to a file while its join to another is planned are joined with it.
#[test]
fn what_is_written_to_a_file_that_is_joined_is_not_lost() {
    let machine = SimMachine::new(7);
    let hook = Arc::new(Hook::default());
    let server = machine.open(Box::new(HookedStore(machine.store.clone(), hook.clone()))).unwrap();
    let mut client = machine.connect(server.clone(), Caller::root());
    for path in ["/a", "/a/b"] {
        client.mkdir(path);
    }
    for path in ["/a/b/all", "/a/b/part"] {
        let file = client.make(path);
        client.write(&file, Some(0), b"first").unwrap();
    }
    client.fsync();
    let all = client.open("/a/b/all").unwrap();
    let mut other = machine.connect(server, Caller::root());
    let part = other.open("/a/b/part").unwrap();
    let other = Mutex::new(other);
    let act = move || assert!(other.lock().unwrap().write(&part, Some(5), b" second").is_ok());
    assert!(hook.act.set(Box::new(act)).is_ok());
    *hook.after.lock().unwrap() = Some(0);
    client.join(&all, &["/a/b/part"]).unwrap();
    assert!(hook.after.lock().unwrap().is_none(), "the other was there");
    assert_eq!(client.read("/a/b/all", View::NOW).unwrap(), b"firstfirst second");
}

/// A restore takes bytes from a snapshot. Wherever in its plan the snapshot is deleted and the space of the bytes that
/// only it showed is freed, the restore shows these bytes, or is refused.
#[test]
fn a_snapshot_that_goes_while_something_is_taken_from_it_takes_no_bytes_along() {
    let (mut hooked, mut taken) = (0, 0);
    for after in 0..200 {
        let machine = SimMachine::new(7);
        let hook = Arc::new(Hook::default());
        let server = machine.open(Box::new(HookedStore(machine.store.clone(), hook.clone()))).unwrap();
        let mut client = machine.connect(server.clone(), Caller::root());
        let bytes: Vec<Vec<u8>> = (0..3).map(|seed| pattern(60_000, seed * 70)).collect();
        let file = client.make("/f");
        let mut stamps = Vec::new();
        for bytes in &bytes {
            stamps.push(client.write(&file, Some(0), bytes).unwrap().0);
        }
        client.txn(Op::MakeSnapshot(MakeSnapshot { name: "kept".into(), at: stamps[0], count_max: 0 })).unwrap();
        client.seq += 1;
        let forget = Forget { target: Target::path("/f"), before: stamps[2], dry_run: false, with_snapshots: false };
        let id = client.send(Request::Forget(forget), &[], client.seq);
        client.answer(id).unwrap().0.unwrap();
        // What the store does not hold yet is not asked of it.
        client.fsync();
        let mut other = machine.connect(server.clone(), Caller::root());
        other.open_session();
        let other = Mutex::new(other);
        let act = move || {
            let mut other = other.lock().unwrap();
            other.txn(Op::DeleteSnapshot(DeleteSnapshot { name: "kept".into() })).unwrap();
            server.reclaim().unwrap();
        };
        assert!(hook.act.set(Box::new(act)).is_ok());
        *hook.after.lock().unwrap() = Some(after);
        // Of the root: its plan looks for the name of the file after it has looked whether the snapshot is there.
        let restored = client.restore("/", stamps[0], false);
        if hook.after.lock().unwrap().is_some() {
            // The restore was over before.
            break;
        }
        hooked += 1;
        client.server.reclaim().unwrap();
        let expect = match restored {
            Ok(_) => &bytes[0],
            Err(fault) => {
                assert_eq!(fault.reason, Reason::HistoryExpired, "{fault}");
                &bytes[2]
            }
        };
        taken += u32::from(expect == &bytes[0]);
        let now = client.read("/f", View::NOW);
        assert!(now.as_ref() == Ok(expect), "hooked before look {after}: {:?}", now.map(|bytes| bytes.len()));
        client.server.stop().unwrap();
        // The next life of the server frees the space of a deleted snapshot at the latest.
        let mut client = machine.serve();
        client.server.reclaim().unwrap();
        assert!(client.read("/f", View::NOW).as_ref() == Ok(expect), "after a restart, hooked before look {after}");
        assert_eq!(client.at("/f", stamps[0]).unwrap_err().reason, Reason::HistoryExpired);
    }
    assert!(hooked > 3 && taken > 0 && taken < hooked, "{taken} of {hooked} restores had their bytes");
}
