//! No answer depends on how the server stores its state: the same calls have the same answers with much memory and with
//! little, with shelves and without, and every answer is the same after a restart, a crash, a shelving, a loss of
//! shelves.
//!
//! Other tests know the right answers (`sharing`, `forget`, the simulator); here every query runs twice. A new way to
//! store state is a line in [`WAYS`], and an event between two queries one in [`EVENTS`].

use frieze_base::Rng;
use frieze_wire::edit::{CloneTree, CopyRange, Restore, Undo};
use frieze_wire::forget::Forget;
use frieze_wire::message::{FileKind, ListReply, Punch};
use frieze_wire::timeline::{Deleted, Diff, Story, Usage};
use frieze_wire::txn::{DeleteSnapshot, Link, MakeSnapshot};

use super::*;

type Way = fn(&mut Settings);
type Event = fn(&mut SimMachine, TestConnection) -> TestConnection;

/// How a server stores its state. All of them have the same answers.
const WAYS: &[(&str, Way)] = &[
    ("all of the index in memory, no shelf", |settings| settings.shelve_segments = 1000),
    ("little memory, a shelf for each segment", |settings| {
        (settings.index_bytes_max, settings.shelve_segments) = (64 << 10, 1);
    }),
    ("little memory, a shelf for three segments", |settings| {
        (settings.index_bytes_max, settings.shelve_segments) = (64 << 10, 3);
    }),
    ("a page of records in memory", |settings| {
        (settings.young_bytes_max, settings.old_bytes_max) = (4096, 4096);
        (settings.index_bytes_max, settings.shelve_segments) = (64 << 10, 1);
    }),
    ("questions about a part of the tree begin at its directory", |settings| settings.few_changes = 0),
    ("some records in memory", |settings| {
        (settings.young_bytes_max, settings.old_bytes_max) = (64 << 10, 128 << 10);
    }),
];

/// What happens to a server between two questions, and changes no answer.
const EVENTS: &[(&str, Event)] = &[
    ("asked once more", |_, client| client),
    ("stopped and started", |machine, client| {
        client.server.stop().unwrap();
        drop(client);
        machine.serve()
    }),
    ("killed and started", |machine, client| {
        drop(client);
        machine.disk.crash(CrashKind::Process);
        machine.disk.restart();
        machine.serve()
    }),
    ("without power, after a sync", |machine, mut client| {
        client.fsync();
        drop(client);
        machine.lose_power();
        machine.serve()
    }),
    ("swept", |_, mut client| {
        client.fsync();
        client.server.keep_to_memory().unwrap();
        client
    }),
    ("shelved", |_, mut client| {
        tidy_up(&mut client);
        client
    }),
    ("without its shelves", |machine, client| {
        drop(client);
        for name in machine.disk.list().unwrap().iter().filter(|name| name.starts_with("shelf-")) {
            machine.disk.remove(name).unwrap();
        }
        machine.serve()
    }),
    ("scrubbed", |_, client| {
        assert_eq!(client.server.check_up().found(), 0);
        client
    }),
];

/// Ends the segment, makes everything durable, and runs the background work of the server.
fn tidy_up(client: &mut TestConnection) {
    client.server.close_segment();
    client.fsync();
    client.fsync();
    client.server.shelve_all();
}

/// A random history of calls. Many are refused: they name a file that does not exist.
pub(crate) struct History {
    rng: Rng,
    /// Instants in it.
    stamps: Vec<u64>,
    sessions: Vec<u64>,
    /// False: no history expires.
    forgets: bool,
    done: u64,
}

impl History {
    /// A machine of this way, and a server on it with the history of a seed.
    pub(crate) fn live(seed: u64, set: Way, forgets: bool) -> (SimMachine, TestConnection, History) {
        let mut machine = SimMachine::new(7);
        set(&mut machine.settings);
        machine.settings.session_timeout = std::time::Duration::from_secs(100_000);
        let mut client = machine.serve();
        for directory in ["/a", "/a/d", "/b"] {
            client.mkdir(directory);
        }
        let stamps = vec![client.server.newest().0];
        let mut history = History { rng: Rng::new(seed), stamps, sessions: Vec::new(), forgets, done: 0 };
        for _ in 0..CALLS {
            history.call(&mut client);
        }
        client.close_session();
        (machine, client, history)
    }

    fn path(&mut self) -> String {
        let directory = self.rng.choose(&["", "/a", "/a/d", "/b"]);
        format!("{directory}/{}", self.rng.choose(&["w", "x", "y", "z"]))
    }

    fn instant(&mut self) -> u64 {
        self.stamps[self.rng.below(self.stamps.len() as u64) as usize]
    }

    pub(crate) fn call(&mut self, client: &mut TestConnection) {
        client.open_session();
        if self.sessions.last() != Some(&client.session.0) {
            self.sessions.push(client.session.0);
        }
        let (path, other, at) = (self.path(), self.path(), self.instant());
        let target = || Target::path(path.as_str());
        let result = match self.rng.below(20) {
            0 | 1 => client.txn(Op::Make(Make {
                target: target(),
                mode: 0o644,
                or_open: true,
                kind: Some(MakeKind::File(true)),
                ..Make::default()
            })),
            2..=6 => return self.write(client, &path),
            7 => {
                let size = Some(self.rng.below(180_000));
                client.txn(Op::SetAttr(SetAttr { target: target(), size, ..SetAttr::default() }))
            }
            8 | 9 => return self.share(client, &path, &other),
            10 => client.txn(Op::Remove(Remove { target: target(), directory: false })),
            11 => {
                let flags = if self.rng.chance(3) { 2 } else { 0 };
                client.txn(Op::Rename(Rename { from: target(), to: Target::path(other.as_str()), flags }))
            }
            12 => client.txn(Op::Link(Link { file: target(), name: Target::path(other.as_str()) })),
            13 => {
                let mode = Some(0o600 + self.rng.below(64) as u32);
                client.txn(Op::SetAttr(SetAttr { target: target(), mode, ..SetAttr::default() }))
            }
            14 => {
                let value = pattern(self.rng.below(40) as usize, 3);
                client.txn(Op::SetXattr(SetXattr { target: target(), name: b"user.x".to_vec(), value, flags: 0 }))
            }
            15 => {
                let (source, target) = (Target::path(other.as_str()), target());
                return self.edit(client, Request::Clone(CloneTree { source, at, target, dry_run: false }));
            }
            16 => {
                let target = if self.rng.chance(3) { Target::path("/a") } else { target() };
                let delete = self.rng.chance(2);
                return self.edit(client, Request::Restore(Restore { target, at, delete, dry_run: false }));
            }
            17 if self.rng.chance(3) => {
                let sessions = vec![*self.rng.choose(&self.sessions)];
                let undo = Undo { target: Target::path("/"), sessions, after: at, ..Undo::default() };
                return self.edit(client, Request::Undo(undo));
            }
            18 if self.rng.chance(4) && self.forgets => {
                let target = if self.rng.chance(2) { Target::path("/a") } else { target() };
                return self.edit(
                    client,
                    Request::Forget(Forget { target, before: at, dry_run: false, with_snapshots: false }),
                );
            }
            18 => {
                // A file that a session has open for writing does not expire whole.
                client.close_session();
                return;
            }
            19 if self.rng.chance(2) => {
                let name = self.rng.choose(&["one", "two"]).to_string();
                match self.rng.chance(2) {
                    true => client.txn(Op::MakeSnapshot(MakeSnapshot { name, at, count_max: 0 })),
                    false => client.txn(Op::DeleteSnapshot(DeleteSnapshot { name })),
                }
            }
            _ => return tidy_up(client),
        };
        self.note(client, result.map(drop));
    }

    /// Of one write, or of many small ones, so that the index is more than what may be in memory.
    fn write(&mut self, client: &mut TestConnection, path: &str) {
        let Ok(capability) = client.open(path) else { return };
        let (count, len_max) = if self.rng.chance(3) { (60, 200) } else { (1, 30_000) };
        for _ in 0..count {
            let offset = (!self.rng.chance(5)).then(|| self.rng.below(150_000));
            let bytes = pattern(self.rng.between(1, len_max) as usize, self.rng.below(256) as u8);
            let result = client.write(&capability, offset, &bytes);
            self.note(client, result.map(drop));
        }
    }

    /// Punches a hole, or lets a file share bytes of another.
    fn share(&mut self, client: &mut TestConnection, path: &str, other: &str) {
        let Ok(source) = client.open(path) else { return };
        let (offset, len) = (self.rng.below(150_000), self.rng.between(1, 80_000));
        if self.rng.chance(2) {
            let durability = Durability::Async as i32;
            return self.edit(client, Request::Punch(Punch { capability: source, offset, len, durability }));
        }
        let Ok(target) = client.open(other) else { return };
        let target_offset = self.rng.below(100_000);
        let ask = CopyRange { source, source_offset: offset, target, target_offset, len, also: Vec::new() };
        self.edit(client, Request::CopyRange(ask));
    }

    fn edit(&mut self, client: &mut TestConnection, request: Request) {
        client.open_session();
        client.seq += 1;
        let id = client.send(request, &[], client.seq);
        let result = client.answer(id).expect("answered at once").0;
        self.note(client, result.map(drop));
    }

    fn note(&mut self, client: &TestConnection, result: Result<(), Fault>) {
        match result {
            Ok(()) => self.done += 1,
            Err(fault) => assert!(
                !matches!(fault.kind(), frieze_base::ErrorKind::Corrupt | frieze_base::ErrorKind::Internal),
                "{fault}"
            ),
        }
        self.stamps.push(client.server.newest().0);
    }
}

/// Every question about some instants, with its answer.
pub(crate) fn answers(client: &mut TestConnection, instants: &[u64]) -> Vec<(String, String)> {
    // Free the expired space before the queries: how much is pinned is an answer too.
    client.server.reclaim().unwrap();
    let mut told = Vec::new();
    for (number, &at) in instants.iter().enumerate() {
        about(client, at, &mut told);
        let earlier = instants[number / 2].min(at);
        for path in ["/", "/a"] {
            let (target, view) = (Target::path(path), View { at: Some(at), user_at: None });
            let between = Diff { target: target.clone(), from: earlier, to: at, skip: 0, count_max: 0 };
            tell(client, Request::Diff(between), &mut told);
            let mut story = Story {
                target: target.clone(),
                view,
                after: earlier,
                upto: at,
                recursive: true,
                count_max: 0,
                ..Story::default()
            };
            tell(client, Request::Story(story.clone()), &mut told);
            story.recursive = false;
            tell(client, Request::Story(story), &mut told);
            let gone = Deleted { target: target.clone(), view, after: Vec::new(), count_max: 0 };
            tell(client, Request::Deleted(gone), &mut told);
            tell(client, Request::Usage(Usage { target, view, after: Vec::new(), count_max: 0 }), &mut told);
        }
        for name in ["w", "x", "y", "z"] {
            for directory in ["", "/a", "/b"] {
                let (target, view) =
                    (Target::path(format!("{directory}/{name}")), View { at: Some(at), user_at: None });
                tell(
                    client,
                    Request::Log(Log { target, view, after: 0, count_max: 0, upto: 0, ..Log::default() }),
                    &mut told,
                );
            }
        }
    }
    tell(
        client,
        Request::Snapshots(frieze_wire::message::Snapshots { with_bytes: true, after: String::new(), count_max: 0 }),
        &mut told,
    );
    told
}

/// The tree at an instant: names, attributes and bytes.
fn about(client: &mut TestConnection, at: u64, told: &mut Vec<(String, String)>) {
    let view = View { at: Some(at), user_at: None };
    let mut left = vec![String::new()];
    while let Some(directory) = left.pop() {
        let target = Target::path(if directory.is_empty() { "/" } else { directory.as_str() });
        let list = List { target, view, count_max: 0, with_attrs: true, ..List::default() };
        let listed = client.ask(Request::List(list));
        let names = listed.as_ref().map(names_of);
        told.push((format!("names in {directory} at {at}"), format!("{names:?}")));
        let Ok(Reply::List(ListReply { entries, .. })) = listed else { continue };
        for entry in entries {
            let path = format!("{directory}/{}", String::from_utf8_lossy(&entry.name));
            told.push((format!("attributes of {path} at {at}"), format!("{:?}", entry.attr)));
            if entry.kind() == FileKind::Directory {
                left.push(path);
                continue;
            }
            let bytes = client.at(&path, at).map(|bytes| (bytes.len(), crc32c(&bytes)));
            told.push((format!("bytes of {path} at {at}"), format!("{bytes:?}")));
        }
    }
}

fn names_of(reply: &Reply) -> Vec<(String, u64)> {
    let Reply::List(reply) = reply else { panic!("{reply:?}") };
    reply.entries.iter().map(|entry| (String::from_utf8_lossy(&entry.name).into_owned(), entry.inode)).collect()
}

/// Sends a query, and records the answer without its cost.
fn tell(client: &mut TestConnection, request: Request, told: &mut Vec<(String, String)>) {
    let question = format!("{request:?}");
    let mut answer = client.ask(request);
    if let Ok(Reply::Diff(reply)) = &mut answer {
        reply.entries_read = 0;
    }
    told.push((question, format!("{answer:?}")));
}

#[track_caller]
pub(crate) fn check_same(found: &[(String, String)], expected: &[(String, String)], when: &str) {
    for ((question, answer), (other, before)) in found.iter().zip(expected) {
        assert!(question == other && answer == before, "{when}: {question}\n  is {answer}\n  was {before} ({other})");
    }
    assert_eq!(found.len(), expected.len(), "{when}");
}

/// Some of the instants of a history, oldest first.
pub(crate) fn some(history: &mut History) -> Vec<u64> {
    let mut instants: Vec<u64> = (0..INSTANTS).map(|_| history.instant()).collect();
    instants.push(*history.stamps.last().unwrap());
    instants.sort_unstable();
    instants.dedup();
    instants
}

#[test]
fn the_same_calls_have_the_same_answers_however_things_are_kept() {
    for seed in SEEDS {
        let mut first = None;
        for (way, set) in WAYS {
            let (_, mut client, mut history) = History::live(seed, *set, true);
            assert!(history.done > CALLS, "seed {seed}: only {} calls did something", history.done);
            let instants = some(&mut history);
            let told = answers(&mut client, &instants);
            let (expected, stamps) = first.get_or_insert((told.clone(), history.stamps.clone()));
            assert!(history.stamps == *stamps, "seed {seed}, {way}: other stamps");
            check_same(&told, expected, &format!("seed {seed}, {way}"));
        }
    }
}

#[test]
fn answers_about_the_past_survive_every_event_of_a_server() {
    for seed in SEEDS {
        let mut rng = Rng::new(seed ^ 0x6d_6574);
        let (mut machine, mut client, mut history) = History::live(seed, WAYS[seed as usize % WAYS.len()].1, true);
        let instants = some(&mut history);
        let before = answers(&mut client, &instants);
        // Every event, in any order, each followed by a start in another way.
        let mut events: Vec<usize> = (0..EVENTS.len()).collect();
        while !events.is_empty() {
            let (event, happen) = EVENTS[events.swap_remove(rng.below(events.len() as u64) as usize)];
            client = happen(&mut machine, client);
            check_same(&answers(&mut client, &instants), &before, &format!("seed {seed}, {event}"));
            let (way, set) = rng.choose(WAYS);
            drop(client);
            set(&mut machine.settings);
            client = machine.serve();
            check_same(&answers(&mut client, &instants), &before, &format!("seed {seed}, {event}, then {way}"));
        }
    }
}

#[test]
fn what_was_answered_once_stays_so_while_history_goes_on() {
    for seed in SEEDS {
        let (_machine, mut client, mut history) = History::live(seed ^ 0xf0, WAYS[1].1, true);
        let mut before: Vec<(u64, Vec<(String, String)>)> = Vec::new();
        for _ in 0..6 {
            for at in some(&mut history).into_iter().step_by(4) {
                let mut told = Vec::new();
                about(&mut client, at, &mut told);
                before.push((at, told));
            }
            for _ in 0..CALLS / 6 {
                history.call(&mut client);
            }
        }
        for (at, expected) in before {
            let mut told = Vec::new();
            about(&mut client, at, &mut told);
            let forgotten = told.iter().any(|(_, is)| is.contains("HistoryExpired"));
            let mut told: BTreeMap<String, String> = told.into_iter().collect();
            for (question, was) in expected {
                // If history has expired since, the answer says so, and nothing else differs.
                match told.remove(&question) {
                    Some(is) if is == was || is.contains("HistoryExpired") => {}
                    // Attributes are left out of a list then.
                    Some(is) if is == "None" => {}
                    None => assert!(forgotten, "seed {seed}: {question} has no answer"),
                    Some(is) => panic!("seed {seed}: {question}\n  is {is}\n  was {was}"),
                }
            }
        }
    }
}

const SEEDS: std::ops::RangeInclusive<u64> = 1..=6;
/// Calls of a history.
const CALLS: u64 = 300;
/// Instants that are asked about.
const INSTANTS: usize = 12;
