//! Undo against an oracle: the records of a history without the actor's, unit by unit.

use std::collections::BTreeSet;

use super::*;
use frieze_base::Rng;

/// Author of a record of the model.
type Who = usize;

const ACTOR: Who = 0;

#[derive(Clone, Debug)]
enum Bytes {
    Write(u64, Vec<u8>),
    Length(u64),
}

/// The versions of a unit, oldest first, with their authors.
type Versions<T> = Vec<(Who, T)>;

/// Every record of a history, by unit.
#[derive(Default)]
struct Records {
    names: BTreeMap<(u64, String), Versions<Option<u64>>>,
    modes: BTreeMap<u64, Vec<(Who, u32)>>,
    xattrs: BTreeMap<(u64, &'static str), Versions<Option<Vec<u8>>>>,
    bytes: BTreeMap<u64, Vec<(Who, Bytes)>>,
    makers: BTreeMap<u64, Who>,
    directories: BTreeSet<u64>,
    /// Inodes whose mode a user other than the actor set, to what it was before or not.
    set_by_others: BTreeSet<u64>,
}

/// The newest version, and the newest by any author but the actor; `None` where there is none.
fn newest<T: Clone>(versions: &[(Who, T)]) -> (bool, Option<T>, Option<T>) {
    let now = versions.last().map(|(_, value)| value.clone());
    let by_actor = versions.last().is_some_and(|(who, _)| *who == ACTOR);
    let other = versions.iter().rev().find(|(who, _)| *who != ACTOR).map(|(_, value)| value.clone());
    (by_actor, now, other)
}

impl Records {
    fn entries(&self) -> BTreeMap<(u64, String), u64> {
        let now = self.names.iter().map(|(key, versions)| (key.clone(), versions.last().and_then(|last| last.1)));
        now.filter_map(|(key, inode)| Some((key, inode?))).collect()
    }

    fn path(&self, root: (u64, &str), id: u64) -> Option<String> {
        if id == root.0 {
            return Some(root.1.to_owned());
        }
        let entries = self.entries();
        let ((directory, name), _) = entries.iter().find(|(_, inode)| **inode == id)?;
        Some(format!("{}/{name}", self.path(root, *directory)?))
    }

    /// Length and bytes with all records and without the actor's, by the rule of units.
    fn content(&self, id: u64) -> (Vec<u8>, Vec<u8>) {
        let empty = Vec::new();
        let events = self.bytes.get(&id).unwrap_or(&empty);
        let first = events.iter().position(|(who, _)| *who == ACTOR).unwrap_or(events.len());
        let reach = |size: u64, event: &Bytes| match event {
            Bytes::Write(offset, bytes) => size.max(offset + bytes.len() as u64),
            Bytes::Length(len) => *len,
        };
        let (mut with, mut without, mut by_actor) = (0, 0, false);
        for (at, (who, event)) in events.iter().enumerate() {
            if reach(with, event) != with {
                (with, by_actor) = (reach(with, event), *who == ACTOR && at >= first);
            }
            if *who != ACTOR {
                without = reach(without, event);
            }
        }
        let size_after = if by_actor { without } else { with };
        let most = with.max(size_after) as usize;
        let (mut now, mut after) = (vec![0; most], vec![0; most]);
        for (offset, (now, after)) in now.iter_mut().zip(&mut after).enumerate() {
            let says = |event: &Bytes| match event {
                Bytes::Write(start, bytes) => bytes.get((offset as u64).checked_sub(*start)? as usize).copied(),
                Bytes::Length(len) => (offset as u64 >= *len).then_some(0),
            };
            let versions: Vec<(Who, u8)> =
                events.iter().filter_map(|(who, event)| Some((*who, says(event)?))).collect();
            let (by_actor, newest, other) = newest(&versions);
            *now = newest.unwrap_or(0);
            *after = if by_actor { other.unwrap_or(0) } else { *now };
        }
        now.truncate(with as usize);
        after.truncate(size_after as usize);
        (now, after)
    }

    /// True if an author other than the actor changed an inode, a name of it, or a name in it.
    fn others_touched(&self, id: u64) -> bool {
        let other = |who: Who| who != ACTOR;
        self.names.iter().any(|((directory, _), versions)| {
            let about = *directory == id || versions.iter().any(|(_, inode)| *inode == Some(id));
            about && versions.iter().any(|(who, _)| other(*who))
        }) || self.set_by_others.contains(&id)
            || self.modes.get(&id).is_some_and(|all| all.iter().any(|(who, _)| other(*who)))
            || self.bytes.get(&id).is_some_and(|all| all.iter().any(|(who, _)| other(*who)))
            || self.xattrs.iter().any(|((inode, _), all)| *inode == id && all.iter().any(|(who, _)| other(*who)))
    }

    /// True if a name may be left as it is: others have to do with what it names or named, or with where it lies.
    fn is_excused(&self, key: &(u64, String), top: u64) -> bool {
        let mut about: BTreeSet<u64> = self.names[key].iter().filter_map(|(_, inode)| *inode).collect();
        about.insert(key.0);
        // Whatever ever lay above or below: a chain of directories stands and falls together.
        loop {
            let before = about.len();
            for ((directory, _), versions) in &self.names {
                let inodes: Vec<u64> = versions.iter().filter_map(|(_, inode)| *inode).collect();
                if *directory != top && (about.contains(directory) || inodes.iter().any(|inode| about.contains(inode)))
                {
                    about.insert(*directory);
                    about.extend(inodes);
                }
            }
            if about.len() == before {
                break;
            }
        }
        about.remove(&top);
        about.iter().any(|&id| self.others_touched(id))
    }
}

/// One random operation of an author, with its records.
fn act(client: &mut TestConnection, records: &mut Records, rng: &mut Rng, who: Who, top: (u64, &str)) {
    let entries = records.entries();
    let directories: Vec<u64> = [top.0]
        .into_iter()
        .chain(entries.values().copied().filter(|inode| records.directories.contains(inode)))
        .collect();
    let files: Vec<u64> = entries.values().copied().filter(|inode| !records.directories.contains(inode)).collect();
    let pick = |rng: &mut Rng, from: &[u64]| from[rng.below(from.len() as u64) as usize];
    let name = ["p", "q", "r"][rng.below(3) as usize].to_owned();
    let directory = pick(rng, &directories);
    let Some(place) = records.path(top, directory) else { return };
    let path = format!("{place}/{name}");
    let key = (directory, name);
    match rng.below(12) {
        0 | 1 => {
            let is_directory = rng.chance(2);
            let kind = Some(if is_directory { MakeKind::Directory(true) } else { MakeKind::File(true) });
            let make =
                Make { target: Target::path(path.as_str()), mode: 0o644, or_open: false, kind, ..Make::default() };
            let Ok(made) = client.txn(Op::Make(make)) else { return };
            records.names.entry(key).or_default().push((who, Some(made.id)));
            records.modes.insert(made.id, vec![(who, 0o644)]);
            records.makers.insert(made.id, who);
            match is_directory {
                true => drop(records.directories.insert(made.id)),
                false => records.bytes.entry(made.id).or_default().push((who, Bytes::Length(0))),
            }
        }
        2..=5 if !files.is_empty() => {
            let file = pick(rng, &files);
            let path = records.path(top, file).unwrap();
            let (offset, len) = (rng.below(60), rng.between(1, 40));
            let bytes: Vec<u8> = (0..len).map(|_| rng.between(1, 255) as u8).collect();
            let capability = client.open(&path).unwrap();
            client.write(&capability, Some(offset), &bytes).unwrap();
            records.bytes.get_mut(&file).unwrap().push((who, Bytes::Write(offset, bytes)));
        }
        6 if !files.is_empty() => {
            let file = pick(rng, &files);
            let len = rng.below(80);
            client.truncate(&records.path(top, file).unwrap(), len);
            records.bytes.get_mut(&file).unwrap().push((who, Bytes::Length(len)));
        }
        7 => {
            let Some(&inode) = entries.get(&key) else { return };
            let mode = 0o600 + rng.below(64) as u32;
            client.chmod(&path, mode).unwrap();
            if who != ACTOR {
                records.set_by_others.insert(inode);
            }
            // A mode that was set to what it was is no change.
            let modes = records.modes.get_mut(&inode).unwrap();
            if modes.last().unwrap().1 != mode {
                modes.push((who, mode));
            }
        }
        8 => {
            let Some(&inode) = entries.get(&key) else { return };
            let value = vec![rng.below(256) as u8];
            let set = SetXattr {
                target: Target::path(path.as_str()),
                name: b"user.c".to_vec(),
                value: value.clone(),
                flags: 0,
            };
            client.txn(Op::SetXattr(set)).unwrap();
            records.xattrs.entry((inode, "user.c")).or_default().push((who, Some(value)));
        }
        9 => {
            let Some(&inode) = entries.get(&key) else { return };
            if client.remove(&path, records.directories.contains(&inode)).is_ok() {
                records.names.get_mut(&key).unwrap().push((who, None));
            }
        }
        _ => {
            let Some(&inode) = entries.get(&key) else { return };
            let into = pick(rng, &directories);
            let Some(place) = records.path(top, into) else { return };
            let name = ["p", "q", "r"][rng.below(3) as usize].to_owned();
            if (into, &name) != (key.0, &key.1) && client.rename(&path, &format!("{place}/{name}")).is_ok() {
                records.names.get_mut(&key).unwrap().push((who, None));
                records.names.entry((into, name)).or_default().push((who, Some(inode)));
            }
        }
    }
}

/// Everything below a path at an instant: names, numbers, modes, times, attributes, bytes.
fn dump(client: &mut TestConnection, path: &str, view: View) -> Vec<String> {
    let mut lines = Vec::new();
    let mut todo = vec![path.to_owned()];
    while let Some(directory) = todo.pop() {
        let list = List { target: Target::path(directory.as_str()), view, with_attrs: true, ..List::default() };
        let Ok(Reply::List(listed)) = client.ask(Request::List(list)) else { panic!("no list of {directory}") };
        for entry in listed.entries {
            let path = format!("{directory}/{}", String::from_utf8_lossy(&entry.name));
            let attr = entry.attr.unwrap();
            let ask =
                frieze_wire::message::GetXattr { target: Target::path(path.as_str()), view, name: b"user.c".to_vec() };
            let xattr = client.ask(Request::GetXattr(ask)).ok();
            let is_directory = attr.kind == frieze_wire::message::FileKind::Directory as i32;
            let (bytes, mtime) = match is_directory {
                true => (Vec::new(), 0),
                false => (client.read(&path, view).unwrap(), attr.mtime_ns),
            };
            lines.push(format!("{path} {} {:o} {} {mtime} {xattr:?} {bytes:?}", attr.inode, attr.mode, attr.links));
            if is_directory {
                todo.push(path);
            }
        }
    }
    lines.sort();
    lines
}

fn entries_now(client: &mut TestConnection, path: &str, id: u64) -> BTreeMap<(u64, String), u64> {
    let mut found = BTreeMap::new();
    let mut todo = vec![(path.to_owned(), id)];
    while let Some((directory, id)) = todo.pop() {
        let list = List { target: Target::path(directory.as_str()), view: View::NOW, ..List::default() };
        let Ok(Reply::List(listed)) = client.ask(Request::List(list)) else { panic!("no list of {directory}") };
        for entry in listed.entries {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            if entry.kind == frieze_wire::message::FileKind::Directory as i32 {
                todo.push((format!("{directory}/{name}"), entry.inode));
            }
            found.insert((id, name), entry.inode);
        }
    }
    found
}

/// Plays one history, undoes what the actor did, and compares; true if anything was undone.
fn history(client: &mut TestConnection, seed: u64) -> bool {
    let mut rng = Rng::new(seed);
    let top_path = format!("/h{seed}");
    let mut speakers: Vec<SessionPlace> = (0..3).map(|_| client.new_session()).collect();
    client.mkdir(&top_path);
    let top = (client.inode(&top_path, View::NOW).unwrap(), top_path.as_str());
    let mut records = Records::default();
    // All three speakers count from the last number used: the sessions are apart.
    for speaker in &mut speakers {
        speaker.seq = client.seq;
    }
    let mut who = 2;
    for _ in 0..rng.between(4, 40) {
        let next = rng.below(3) as Who;
        client.switch_session(&mut speakers, who, next);
        who = next;
        act(client, &mut records, &mut rng, who, top);
    }
    let before = dump(client, top.1, View::NOW);
    let entries_before = entries_now(client, top.1, top.0);
    assert_eq!(entries_before, records.entries(), "the model knows the names");
    let undoer = client.new_session();
    let planned = ["/", top.1].map(|path| {
        let sessions = vec![speakers[ACTOR].session.0];
        let undo = Undo { target: Target::path(path), sessions, dry_run: true, ..Undo::default() };
        words(&client.edit(Request::Undo(undo)).unwrap_or_else(|fault| panic!("seed {seed}: {fault}")))
    });
    assert_eq!(planned[0], planned[1], "seed {seed}: all of it lies below one path");
    check_a_part(client, &records, &mut rng, speakers[ACTOR].session, top, &planned[0]);
    let reply = client.undo(&[speakers[ACTOR].session.0]).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
    let entries = entries_now(client, top.1, top.0);
    let left = told(&reply, ActionKind::Left).len();
    for (key, versions) in &records.names {
        let (by_actor, now, other) = newest(versions);
        let (now, other) = (now.flatten(), other.flatten());
        let found = entries.get(key).copied();
        let expected = if by_actor { other } else { now };
        // The entries of a deleted directory are not visible.
        if found != expected && (by_actor || found.is_some()) {
            let unchanged = found == now || found.is_none();
            assert!(
                unchanged && left > 0 && records.is_excused(key, top.0),
                "seed {seed}: {key:?} is {found:?}, not {expected:?}: {versions:?}\n{:#?}",
                words(&reply)
            );
        }
    }
    for (&(directory, ref name), &id) in &entries {
        let path = records_path(&entries, top, directory, name);
        if records.makers[&id] == ACTOR {
            continue;
        }
        let modes = newest(&records.modes[&id]);
        let mode = if modes.0 { modes.2 } else { modes.1 };
        let attr = client.stat(&path, View::NOW).unwrap().attr;
        assert_eq!(Some(attr.mode), mode, "seed {seed}: mode of {path}");
        if let Some(versions) = records.xattrs.get(&(id, "user.c")) {
            let (by_actor, now, other) = newest(versions);
            let expected = if by_actor { other.flatten() } else { now.flatten() };
            let ask = frieze_wire::message::GetXattr {
                target: Target::path(path.as_str()),
                view: View::NOW,
                name: b"user.c".to_vec(),
            };
            let found = match client.ask(Request::GetXattr(ask)) {
                Ok(Reply::Bytes(value)) => Some(value.value),
                _ => None,
            };
            assert_eq!(found, expected, "seed {seed}: attribute of {path}");
        }
        if records.bytes.contains_key(&id) {
            let (_, expected) = records.content(id);
            let found = client.read(&path, View::NOW).unwrap();
            assert_eq!(found, expected, "seed {seed}: {path}: {:?}\n{:#?}", records.bytes[&id], words(&reply));
        }
    }
    if reply.stamp == 0 {
        return false;
    }
    let view = View { at: Some(reply.stamp - 1), user_at: None };
    assert_eq!(dump(client, top.1, view), before, "seed {seed}: what it replaced stays readable");
    client.new_session();
    let again = client.undo(&[undoer.session.0]).unwrap();
    assert!(told(&again, ActionKind::Left).is_empty(), "seed {seed}: {again:#?}");
    assert_eq!(dump(client, top.1, View::NOW), before, "seed {seed}: undoing an undo gives the state before it");
    true
}

/// The undo of a path is a part of the undo of everything, unless that leaves something.
fn check_a_part(
    client: &mut TestConnection,
    records: &Records,
    rng: &mut Rng,
    actor: SessionId,
    top: (u64, &str),
    whole: &[String],
) {
    let ever: Vec<&(u64, String)> = records.names.keys().collect();
    if ever.is_empty() || whole.iter().any(|line| line.starts_with("Left")) {
        return;
    }
    let (directory, name) = ever[rng.below(ever.len() as u64) as usize];
    let Some(place) = records.path(top, *directory) else { return };
    let undo = Undo { target: Target::path(format!("{place}/{name}")), sessions: vec![actor.0], ..Undo::default() };
    match client.edit(Request::Undo(Undo { dry_run: true, ..undo })) {
        Ok(part) => {
            let foreign: Vec<String> = words(&part).into_iter().filter(|line| !whole.contains(line)).collect();
            assert!(foreign.is_empty(), "{place}/{name}: {foreign:#?}\n{whole:#?}");
            let about = format!(" {place}/{name} ");
            let missing = whole.iter().filter(|line| line.contains(&about) && !words(&part).contains(line));
            assert_eq!(missing.count(), 0, "{place}/{name}: {part:?}\n{whole:#?}");
        }
        // It was there neither at the ends nor in between, as far as this session knows.
        Err(fault) => assert_eq!(fault.reason, Reason::NotFound, "{place}/{name}"),
    }
}

fn records_path(entries: &BTreeMap<(u64, String), u64>, top: (u64, &str), directory: u64, name: &str) -> String {
    if directory == top.0 {
        return format!("{}/{name}", top.1);
    }
    let ((parent, own), _) = entries.iter().find(|(_, inode)| **inode == directory).unwrap();
    format!("{}/{name}", records_path(entries, top, *parent, own))
}

fn words(reply: &EditReply) -> Vec<String> {
    let line = |action: &EditAction| {
        let path = String::from_utf8_lossy(&action.path);
        format!("{:?} {path} {} {}+{} {}", action.kind(), action.inode, action.offset, action.len, action.words)
    };
    reply.actions.iter().map(line).collect()
}

fn of_session(path: &str, session: SessionId) -> Request {
    Request::Undo(Undo { target: Target::path(path), sessions: vec![session.0], ..Undo::default() })
}

#[test]
fn a_rename_is_undone_whole_wherever_its_other_name_lies() {
    let machine = SimMachine::new(7);
    for (seed, path) in ["/a", "/b", "/b/f"].iter().enumerate() {
        let mut client = machine.serve();
        let mut speakers: Vec<SessionPlace> = (0..2).map(|_| client.new_session()).collect();
        let [a, b] = ["a", "b"].map(|name| format!("/{seed}{name}"));
        client.mkdir(&a);
        client.mkdir(&b);
        let file = client.make(&format!("{a}/f"));
        client.write(&file, Some(0), b"bytes").unwrap();
        client.switch_session(&mut speakers, 1, ACTOR);
        client.rename(&format!("{a}/f"), &format!("{b}/f")).unwrap();
        let mover = client.session;
        client.new_session();
        let undone = client.edit(of_session(&path.replacen('/', &format!("/{seed}"), 1), mover)).unwrap();
        assert_eq!(client.inode(&format!("{b}/f"), View::NOW), None, "{path}: {undone:?}");
        assert_eq!(client.read(&format!("{a}/f"), View::NOW).unwrap(), b"bytes", "{path}: {undone:?}");
    }
}

#[test]
fn what_was_made_and_deleted_meanwhile_comes_back_without_the_actors_bytes() {
    let machine = SimMachine::new(7);
    for (seed, asked) in ["", "/d", "/d/f"].iter().enumerate() {
        let mut client = machine.serve();
        let mut speakers: Vec<SessionPlace> = (0..2).map(|_| client.new_session()).collect();
        let top = format!("/{seed}");
        client.mkdir(&top);
        client.mkdir(&format!("{top}/d"));
        let path = format!("{top}/d/f");
        let file = client.make(&path);
        client.write(&file, Some(0), b"theirs and theirs").unwrap();
        client.chmod(&path, 0o640).unwrap();
        client.switch_session(&mut speakers, 1, ACTOR);
        let opened = client.open(&path).unwrap();
        client.write(&opened, Some(7), b"MINE").unwrap();
        client.chmod(&path, 0o600).unwrap();
        client.remove(&path, false).unwrap();
        if *asked != "/d/f" {
            client.remove(&format!("{top}/d"), true).unwrap();
        }
        let actor = client.session;
        client.new_session();
        let undone = client.edit(of_session(&format!("{top}{asked}"), actor)).unwrap();
        assert_eq!(client.read(&path, View::NOW).unwrap(), b"theirs and theirs", "{asked}: {undone:?}");
        assert_eq!(client.stat(&path, View::NOW).unwrap().attr.mode, 0o640, "{asked}");
        let told = words(&undone);
        let about = |kind: &str| told.iter().any(|line| line.starts_with(&format!("{kind} {path} ")));
        assert!(about("Bytes") && about("Name") && about("Attributes"), "{asked}: {told:#?}");
    }
    let mut client = machine.serve();
    let never = of_session("/never", SessionId(1));
    assert_eq!(client.edit(never).unwrap_err().reason, Reason::NotFound);
}

#[test]
fn an_undo_reveals_no_name_of_a_directory_closed_to_its_caller() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let began = client.server.newest().0;
    for (path, mode) in [("/shut", 0o700), ("/shut/gone", 0o755), ("/opened", 0o700), ("/open", 0o777)] {
        client.mkdir(path);
        client.chmod(path, mode).unwrap();
    }
    client.make("/shut/secret");
    client.make("/shut/gone/secret");
    client.make("/opened/secret");
    client.make("/open/plain");
    client.new_session();
    let secret = client.open("/shut/secret").unwrap();
    client.write(&secret, Some(0), b"bytes").unwrap();
    for path in ["/shut/secret", "/open/plain"] {
        client.chmod(path, 0o600).unwrap();
    }
    client.remove("/shut/gone/secret", false).unwrap();
    client.remove("/shut/gone", true).unwrap();
    // Names of then ask for the rights of then, too.
    client.remove("/opened/secret", false).unwrap();
    client.chmod("/opened", 0o777).unwrap();
    let actor = client.session;
    drop(client);
    let mut client = machine.serve_as(Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    let undo = Undo { target: Target::path("/"), sessions: vec![actor.0], after: began, ..Undo::default() };
    let planned = client.edit(Request::Undo(Undo { dry_run: true, ..undo })).unwrap();
    let told = words(&planned);
    assert!(!told.iter().any(|line| line.contains("secret")), "{told:#?}");
    assert!(told.iter().any(|line| line.starts_with("Attributes /open/plain ")), "{told:#?}");
    assert!(told.iter().any(|line| line.contains("may not list")), "{told:#?}");
}

/// Histories of the test; `FRIEZE_UNDO_HISTORIES` plays more.
fn histories() -> u64 {
    std::env::var("FRIEZE_UNDO_HISTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(10_000)
}

#[test]
fn an_undo_leaves_the_history_without_the_actor() {
    let mut undone = 0;
    for batch in 0..histories().div_ceil(50) {
        let machine = SimMachine::new(7);
        let mut client = machine.serve();
        for seed in batch * 50..(batch + 1) * 50 {
            undone += u64::from(history(&mut client, seed + 1));
        }
    }
    assert!(undone * 2 > histories(), "{undone} histories with something to undo: too few to show anything");
}
