//! An answer is sent only when every other session has dropped the state before it from its cache.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use frieze_disk::{DiskFile, Space};
use frieze_wire::message::{Access, Attr, GetXattr, ListReply, ReadLink};
use frieze_wire::timeline::Deleted;
use frieze_wire::txn::Link;

use super::*;

fn list(with_attrs: bool) -> Request {
    let (target, view) = (Target::path("/d"), View::NOW);
    Request::List(List { target, view, after: Vec::new(), count_max: 0, with_attrs, by_handle: false })
}

fn listed(answer: Option<ReplyAndPayload>) -> Option<Attr> {
    let Ok(Reply::List(ListReply { entries, .. })) = answer?.0 else { panic!("no listing") };
    entries.into_iter().next().and_then(|entry| entry.attr)
}

/// A session that caches what it has looked up, and keeps a request for recalls waiting.
pub(crate) struct Believer {
    client: TestConnection,
    question: u64,
    life: u64,
}

impl Believer {
    pub(crate) fn new(machine: &SimMachine, server: &TestServer) -> Believer {
        let mut client = machine.connect(server.clone(), Caller::root());
        client.open_session();
        let hello = client.wait_for_recalls(0, 0);
        let life = client.recalls(hello).expect("told at once the first time").life;
        let question = client.wait_for_recalls(0, life);
        Believer { client, question, life }
    }

    /// Caches an entry, or its absence.
    fn look(&mut self, target: Target) {
        let id = self.client.send_to_cache(Request::Stat(Stat { target, view: View::NOW, ..Stat::default() }));
        self.client.answer(id).expect("answered at once").0.map(drop).unwrap_or_default();
    }

    /// Receives the recall of its leases, and drops them.
    fn forget(&mut self) {
        let recall = self.client.recalls(self.question).expect("there is something to tell");
        self.question = self.client.wait_for_recalls(recall.number, self.life);
    }
}

/// As a mount asks: a directory and a name in it.
fn named(client: &mut TestConnection, directory: &str, name: &str) -> Target {
    let base = client.stat(directory, View::NOW).expect("is there").attr.inode;
    Target { base, path: name.into(), follow: false }
}

fn stat(path: &str) -> Request {
    Request::Stat(Stat { target: Target::path(path), view: View::NOW, ..Stat::default() })
}

fn make(path: &str, kind: MakeKind) -> Op {
    Op::Make(Make { target: Target::path(path), mode: 0o644, or_open: false, kind: Some(kind), ..Make::default() })
}

fn remove(path: &str, directory: bool) -> Op {
    Op::Remove(Remove { target: Target::path(path), directory })
}

/// `/d` with a file `f` in it, a file `/other`, and the symbolic link `/l` to `/d`.
fn tree(machine: &SimMachine) -> TestConnection {
    let mut writer = machine.serve();
    writer.mkdir("/d");
    writer.make("/d/f");
    writer.make("/other");
    writer.txn(make("/l", MakeKind::Symlink(b"/d".into()))).expect("makes");
    writer
}

#[test]
fn a_listing_shows_a_change_to_an_entry_when_other_sessions_have_dropped_it() {
    let machine = SimMachine::new(7);
    let mut writer = tree(&machine);
    let mut believer = Believer::new(&machine, &writer.server);
    believer.look(Target::path("/d/f"));
    let mut reader = machine.connect(writer.server.clone(), Caller::root());

    let changed = writer.send_chmod("/d/f", 0o600);
    assert!(writer.answer(changed).is_none(), "the believer may still show the old mode");
    let plain = reader.send(list(false), &[], 0);
    assert!(reader.answer(plain).is_some(), "names alone tell nothing of it");
    let with_attributes = reader.send(list(true), &[], 0);
    assert!(reader.answer(with_attributes).is_none(), "the listing shows the new mode");

    believer.forget();
    assert_eq!(listed(reader.answer(with_attributes)).expect("answered").mode & 0o777, 0o600);
    writer.answer(changed).expect("answered").0.expect("changed");
}

#[test]
fn an_answer_by_path_shows_a_new_name_on_the_way_when_other_sessions_have_dropped_its_absence() {
    let machine = SimMachine::new(7);
    let mut writer = tree(&machine);
    let mut believer = Believer::new(&machine, &writer.server);
    believer.look(named(&mut writer, "/d", "x"));
    let mut reader = machine.connect(writer.server.clone(), Caller::root());
    reader.open_session();
    let made = writer.send_txn(make("/d/x", MakeKind::File(false)));
    assert!(writer.answer(made).is_none(), "the believer may still say that it is absent");

    let (target, view) = (Target::path("/d/x"), View::NOW);
    let open = Open { target: target.clone(), view, read: true, write: false, made_at: 0 };
    let questions = [
        stat("/d/x"),
        stat("/l/x"),
        stat("/d/x/below"),
        list(false),
        Request::Open(open),
        Request::Access(Access { target: target.clone(), view, mask: 0 }),
        Request::ReadLink(ReadLink { target: target.clone(), view }),
        Request::GetXattr(GetXattr { target: target.clone(), view, name: Vec::new() }),
        Request::Log(Log { target: target.clone(), view, after: 0, count_max: 0, upto: 0, ..Log::default() }),
        Request::Deleted(Deleted { target: Target::path("/d"), view, after: Vec::new(), count_max: 0 }),
    ];
    let mut waiting = Vec::new();
    for question in questions {
        let id = reader.send(question.clone(), &[], 0);
        assert!(reader.answer(id).is_none(), "{question:?} tells that it is there");
        waiting.push((id, None));
    }
    let rename = Rename { from: Target::path("/other"), to: target.clone(), flags: 1 };
    let link = Link { file: Target::path("/other"), name: target.clone() };
    let changes = [
        (make("/d/x", MakeKind::File(false)), Reason::Exists),
        (make("/l/x", MakeKind::Directory(true)), Reason::Exists),
        (Op::Rename(rename), Reason::Exists),
        (Op::Link(link), Reason::Exists),
        (remove("/d/x", true), Reason::NotDirectory),
        (remove("/d", true), Reason::NotEmpty),
    ];
    for (change, refusal) in changes {
        let id = reader.send_txn(change.clone());
        assert!(reader.answer(id).is_none(), "{change:?} is refused, which tells that it is there");
        waiting.push((id, Some(refusal)));
        let again = reader.send(Request::Txn(Txn { durability: 0, op: Some(change.clone()) }), &[], reader.seq);
        assert!(reader.answer(again).is_none(), "{change:?} is refused again, in the same words");
        waiting.push((again, Some(refusal)));
    }
    for apart in [stat("/other"), stat("/l")] {
        let id = reader.send(apart, &[], 0);
        reader.answer(id).expect("answered at once: nothing on the way has changed").0.expect("is there");
    }

    believer.forget();
    for (id, refusal) in waiting {
        let answer = reader.answer(id).expect("answered").0;
        assert!(refusal.is_none_or(|reason| answer.is_err_and(|fault| fault.reason == reason)));
    }
    writer.answer(made).expect("answered").0.expect("made");
}

#[test]
fn an_answer_by_path_shows_a_removed_name_on_the_way_when_other_sessions_have_dropped_it() {
    let machine = SimMachine::new(7);
    let mut writer = tree(&machine);
    let mut believer = Believer::new(&machine, &writer.server);
    writer.mkdir("/d/s");
    writer.make("/d/s/f");
    believer.look(named(&mut writer, "/d", "s"));
    let mut reader = machine.connect(writer.server.clone(), Caller::root());
    let rename = Rename { from: Target::path("/d/s"), to: Target::path("/d/t"), flags: 0 };
    let renamed = writer.send_txn(Op::Rename(rename));
    assert!(writer.answer(renamed).is_none(), "the believer may still show the old name");

    let asked =
        [stat("/d/s/f"), stat("/l/s/f"), stat("/d/t/f"), stat("/d/s")].map(|question| reader.send(question, &[], 0));
    let removed = reader.send_txn(remove("/d/s/f", false));
    for id in asked {
        assert!(reader.answer(id).is_none(), "it tells where the directory is, or is not");
    }
    assert!(reader.answer(removed).is_none(), "so does a refusal");

    believer.forget();
    let found = asked.map(|id| reader.answer(id).expect("answered").0.map_err(|fault| fault.reason).is_ok());
    assert_eq!(found, [false, false, true, false]);
    let refused = reader.answer(removed).expect("answered").0.unwrap_err();
    assert_eq!(refused.reason, Reason::NotFound);
    writer.answer(renamed).expect("answered").0.expect("renamed");
}

#[test]
fn an_answer_by_path_shows_a_new_mode_on_the_way_when_other_sessions_have_dropped_the_old_one() {
    let machine = SimMachine::new(7);
    let mut writer = tree(&machine);
    let mut believer = Believer::new(&machine, &writer.server);
    believer.look(Target::path("/d"));
    let someone = Caller { uid: 1000, gid: 1000, groups: Vec::new() };
    let mut reader = machine.connect(writer.server.clone(), someone);
    let mut root = machine.connect(writer.server.clone(), Caller::root());
    let closed = writer.send_chmod("/d", 0o700);
    assert!(writer.answer(closed).is_none(), "the believer may still show the old mode");

    let asked = reader.send(stat("/d/f"), &[], 0);
    let removed = reader.send_txn(remove("/d/f", false));
    assert!(reader.answer(asked).is_none() && reader.answer(removed).is_none(), "both tell that it is closed");
    let unmoved = root.send(stat("/d/f"), &[], 0);
    root.answer(unmoved).expect("the superuser learns nothing of modes").0.expect("is there");

    believer.forget();
    for id in [asked, removed] {
        assert_eq!(reader.answer(id).expect("answered").0.unwrap_err().reason, Reason::AccessDenied);
    }
    writer.answer(closed).expect("answered").0.expect("changed");
}

#[test]
fn a_write_in_flight_when_a_session_began_to_cache_waits_for_its_recall() {
    let machine = SimMachine::new(7);
    let mut writer = machine.serve();
    let file = writer.make("/f");
    writer.seq += 1;
    let write = TestConnection::write_request(&file, Some(0), Durability::Sync);
    let written = writer.send(write, b"bytes", writer.seq);
    assert!(writer.answer(written).is_none(), "it is not on the disk yet");
    let mut believer = Believer::new(&machine, &writer.server);
    believer.look(Target::path("/f"));

    writer.server.flush().expect("flushes");
    assert!(writer.answer(written).is_none(), "the believer may still show an empty file");
    believer.forget();
    writer.answer(written).expect("answered").0.expect("written");
}

/// A server can recall leases of sessions that it recovered, or took over, only when these have listed their open
/// files: if that listing waited for another session's recall, each would wait for the other.
#[test]
fn a_report_of_an_open_file_waits_for_no_recall() {
    let machine = SimMachine::new(7);
    let mut writer = tree(&machine);
    let open = writer.open("/d/f").expect("opens");
    let mut believer = Believer::new(&machine, &writer.server);
    believer.look(Target::path("/d/f"));
    let changed = writer.send_chmod("/d/f", 0o600);
    assert!(writer.answer(changed).is_none(), "the believer may still show the old mode");
    let read = |offset, len| Request::Read(Read { capability: open.clone(), offset, len, ..Read::default() });
    for len in [8, 0] {
        let asked = writer.send(read(0, len), &[], 0);
        assert!(writer.answer(asked).is_none(), "an answer would tell of the file");
    }
    let said = writer.send(read(u64::MAX, 0), &[], 0);
    let (answer, payload) = writer.answer(said).expect("answered at once");
    assert!(answer.is_ok() && payload.is_empty(), "{answer:?}");
}

/// Does something once, in the middle of a write to a segment of data.
#[derive(Default)]
struct Meanwhile {
    armed: AtomicBool,
    act: OnceLock<Box<dyn Fn() + Send + std::marker::Sync>>,
}

struct HookedDisk(SimDisk, Arc<Meanwhile>);
struct HookedFile(Arc<dyn DiskFile>, Arc<Meanwhile>);

impl HookedDisk {
    fn hooked(&self, name: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        if name.starts_with("raft-") { file } else { Arc::new(HookedFile(file, self.1.clone())) }
    }
}

impl Disk for HookedDisk {
    fn list(&self) -> frieze_disk::Result<Vec<String>> {
        self.0.list()
    }

    fn create(&self, name: &str, len: u64) -> frieze_disk::Result<Arc<dyn DiskFile>> {
        self.0.create(name, len).map(|file| self.hooked(name, file))
    }

    fn open(&self, name: &str) -> frieze_disk::Result<Arc<dyn DiskFile>> {
        self.0.open(name).map(|file| self.hooked(name, file))
    }

    fn rename(&self, from: &str, to: &str) -> frieze_disk::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> frieze_disk::Result<()> {
        self.0.remove(name)
    }

    fn sync_dir(&self) -> frieze_disk::Result<()> {
        self.0.sync_dir()
    }

    fn space(&self) -> frieze_disk::Result<Space> {
        self.0.space()
    }
}

impl DiskFile for HookedFile {
    fn len(&self) -> frieze_disk::Result<u64> {
        self.0.len()
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> frieze_disk::Result<()> {
        if self.1.armed.swap(false, Ordering::Relaxed) {
            // In place of another thread: the one that writes here holds its locks.
            frieze_locks::run_as_other_thread(self.1.act.get().unwrap());
        }
        self.0.write_at(offset, parts)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> frieze_disk::Result<usize> {
        self.0.read_at(offset, into)
    }

    fn read_direct_at(&self, offset: u64, into: &mut [u8]) -> frieze_disk::Result<usize> {
        self.0.read_direct_at(offset, into)
    }

    fn prefetch(&self, offset: u64, len: u64) -> frieze_disk::Result<()> {
        self.0.prefetch(offset, len)
    }

    fn advise_dont_need(&self, offset: u64, len: u64) -> frieze_disk::Result<()> {
        self.0.advise_dont_need(offset, len)
    }

    fn hint_random_reads(&self) -> frieze_disk::Result<()> {
        self.0.hint_random_reads()
    }

    fn cached_bytes(&self) -> frieze_disk::Result<Option<u64>> {
        self.0.cached_bytes()
    }

    fn punch(&self, offset: u64, len: u64) -> frieze_disk::Result<u64> {
        self.0.punch(offset, len)
    }

    fn sync(&self) -> frieze_disk::Result<()> {
        self.0.sync()
    }
}

#[test]
fn no_lease_is_granted_on_a_file_while_a_write_to_it_is_published() {
    let machine = SimMachine::new(7);
    let meanwhile = Arc::new(Meanwhile::default());
    let disk = Arc::new(HookedDisk(machine.disk.clone(), meanwhile.clone()));
    let server = machine.open_on(disk, Box::new(machine.store.clone())).unwrap();
    let mut writer = machine.connect(server.clone(), Caller::root());
    let file = writer.make("/f");
    writer.make("/g");
    let believer = Arc::new(Mutex::new(Believer::new(&machine, &server)));
    let looking = believer.clone();
    let look = move || ["/f", "/g"].into_iter().for_each(|path| looking.lock().unwrap().look(Target::path(path)));
    assert!(meanwhile.act.set(Box::new(look)).is_ok());
    meanwhile.armed.store(true, Ordering::Relaxed);
    assert_eq!(server.cache_leases(), 0);
    writer.write(&file, Some(0), b"bytes").expect("nobody is in the way of the answer");
    assert!(!meanwhile.armed.load(Ordering::Relaxed), "the believer has looked");
    assert_eq!(server.cache_leases(), 1, "of the other file only: this one was not yet what the answer tells of");
    believer.lock().unwrap().look(Target::path("/f"));
    assert_eq!(server.cache_leases(), 2, "now it is");
}
