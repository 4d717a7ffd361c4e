//! Loads through the client library: overwrites, appends, replacements, names.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use frieze_base::Rng;
use frieze_client::{
    Client, CreateMode, Durability, HistoryInterval, Hlc, InodeId, OpenFlags, Reason, RenameMode, Target, VersionKind,
};
use frieze_testkit::bytes::random_bytes;
use nix::sys::signal::Signal;

use crate::loads::{EndOfLoads, Load, Loads, State};
use crate::past::{check_gone, come_and_go, remember};
use crate::support::client;
use crate::support::served::{Served, frieze};
use crate::{SETTINGS, kills, number_of, seed, version};

/// A write that was acknowledged, or a truncate (without a stamp).
struct Change {
    stamp: Option<Hlc>,
    offset: u64,
    /// Seed and length of the bytes; no length for a truncate.
    bytes: (u64, usize),
}

/// Writes and truncates at random, one after the other.
fn overwrite(load: &Load<'_>, client: &Client, path: &str, durability: Durability, mut rng: Rng) -> Vec<Change> {
    let fs = client.fs().with_durability(durability);
    let file = fs.create(&Target::path(path), 0o644, CreateMode::Exclusive).unwrap();
    let mut changes = Vec::new();
    loop {
        let offset = rng.below(500_000);
        if rng.chance(20) {
            file.set_len(offset).unwrap();
            changes.push(Change { stamp: None, offset, bytes: (0, 0) });
        } else {
            // Often over the boundary of a chunk.
            let bytes = (rng.next(), rng.between(1, 40_000) as usize);
            let stamp = file.write_at(offset, &random_bytes(bytes.0, bytes.1)).unwrap();
            changes.push(Change { stamp: Some(stamp), offset, bytes });
        }
        if rng.chance(30) {
            file.sync().unwrap();
        }
        if !load.goes_on() {
            file.close().unwrap();
            return changes;
        }
    }
}

fn check_overwritten(client: &Client, path: &str, changes: &[Change], rng: &mut Rng) {
    // Every write that was acknowledged is a version of the file, once, and there is no other.
    let log = whole_log(client, path);
    let expected: Vec<(u64, u64, u64)> =
        changes.iter().filter_map(|change| Some((change.stamp?.0, change.offset, change.bytes.1 as u64))).collect();
    assert_eq!(log, expected, "{path}: the writes in the log are not those that were acknowledged");
    // Its content now, and at some of the stamps on the way.
    let mut content: Vec<u8> = Vec::new();
    for change in changes {
        let offset = change.offset as usize;
        match change.stamp {
            None => content.resize(offset, 0),
            Some(stamp) => {
                let bytes = random_bytes(change.bytes.0, change.bytes.1);
                content.resize(content.len().max(offset + bytes.len()), 0);
                content[offset..offset + bytes.len()].copy_from_slice(&bytes);
                if rng.chance(1 + changes.len() as u64 / 20) {
                    assert!(read(client, path, Some(stamp)) == content, "{path} at {stamp}");
                }
            }
        }
    }
    assert!(read(client, path, None) == content, "{path} now");
}

/// Every write to a file: stamp, offset and length, the parts of one write put together.
fn whole_log(client: &Client, path: &str) -> Vec<(u64, u64, u64)> {
    let mut writes: Vec<(u64, u64, u64)> = Vec::new();
    let mut after = Hlc::ZERO;
    loop {
        let page =
            client.fs().log(&Target::path(path), HistoryInterval { after, ..HistoryInterval::WHOLE }, 0).unwrap();
        for version in &page.versions {
            after = Hlc(version.stamp);
            if version.kind != VersionKind::Write as i32 {
                continue;
            }
            match writes.last_mut() {
                Some((stamp, offset, len)) if *stamp == version.stamp => {
                    assert_eq!(*offset + *len, version.offset, "the parts of a write follow each other");
                    *len += version.len;
                }
                _ => writes.push((version.stamp, version.offset, version.len)),
            }
        }
        if !page.more {
            return writes;
        }
    }
}

pub(crate) fn read(client: &Client, path: &str, at: Option<Hlc>) -> Vec<u8> {
    let fs = at.map_or(client.fs(), |at| client.fs().at(at));
    let file = fs.open(&Target::path(path), OpenFlags::READ).unwrap();
    let mut bytes = vec![0; file.attr().size as usize];
    let len = file.read_at(0, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

const RECORD_HEAD: usize = 12;

/// Appends records of any length to a file that other clients append to as well: writer, number, length, and bytes.
/// Returns the offset of each.
fn append(load: &Load<'_>, client: &Client, path: &str, mut rng: Rng) -> Vec<u64> {
    let file = client.fs().create(&Target::path(path), 0o644, CreateMode::OpenExisting).unwrap();
    let mut offsets = Vec::new();
    loop {
        let number = offsets.len() as u32;
        let len = rng.between(RECORD_HEAD as u64, 9000) as usize;
        let mut record = random_bytes(u64::from(number) << 8 | load.index as u64, len);
        record[..4].copy_from_slice(&(load.index as u32).to_le_bytes());
        record[4..8].copy_from_slice(&number.to_le_bytes());
        record[8..12].copy_from_slice(&(len as u32).to_le_bytes());
        offsets.push(file.append(&record).unwrap().offset);
        if rng.chance(30) {
            file.sync().unwrap();
        }
        if !load.goes_on() {
            file.close().unwrap();
            return offsets;
        }
    }
}

/// The file is records one after the other, those of each appender in order, each once, where its append said.
fn check_appended(content: &[u8], appended: &BTreeMap<u32, Vec<u64>>) {
    let mut found: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let mut at = 0;
    while at < content.len() {
        let word = |from: usize| u32::from_le_bytes(content[at + from..at + from + 4].try_into().unwrap());
        let (who, number, len) = (word(0), word(4), word(8) as usize);
        let offsets = found.entry(who).or_default();
        assert_eq!(number as usize, offsets.len(), "at {at}: a record of appender {who} is out of order");
        offsets.push(at as u64);
        let expected = random_bytes(u64::from(number) << 8 | u64::from(who), len);
        assert!(content[at + RECORD_HEAD..at + len] == expected[RECORD_HEAD..], "at {at}: a torn record");
        at += len;
    }
    assert_eq!(&found, appended, "records are not where their appends said");
}

/// Writes beside and renames into place, again and again. Returns the stamp of each rename.
fn replace(load: &Load<'_>, client: &Client, path: &str, newest: &AtomicU64) -> Vec<Hlc> {
    let fs = client.fs();
    let (target, beside) = (Target::path(path), Target::path(format!("{path}.new")));
    let mut stamps = Vec::new();
    loop {
        let number = stamps.len() as u64;
        let file = fs.create(&beside, 0o644, CreateMode::Exclusive).unwrap();
        file.write_at(0, &version(number)).unwrap();
        file.close().unwrap();
        let done = fs.rename(&beside, &target, RenameMode::Replace).unwrap();
        stamps.push(Hlc(done.stamp));
        newest.store(number, Ordering::SeqCst);
        if !load.goes_on() {
            return stamps;
        }
    }
}

/// Reads what is replaced meanwhile: always a whole version, and never one older than was there when the read began.
fn watch(load: &Load<'_>, client: &Client, path: &str, newest: &AtomicU64) {
    loop {
        let at_least = newest.load(Ordering::SeqCst);
        match client.fs().open(&Target::path(path), OpenFlags::READ) {
            // Before the first rename.
            Err(error) if error.reason() == Reason::NotFound => assert_eq!(at_least, 0, "{error}"),
            Err(error) => panic!("{error}"),
            Ok(file) => {
                let mut bytes = vec![0; file.attr().size as usize];
                assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
                let number = number_of(&bytes);
                assert!(number >= at_least, "version {number} after version {at_least}");
            }
        }
        if !load.goes_on() {
            return;
        }
    }
}

/// Makes, links, renames and removes names. A request that ran twice would answer that a name is there or is gone.
/// Returns the names that must be left.
fn juggle(load: &Load<'_>, client: &Client, directory: &str, mut rng: Rng) -> Vec<String> {
    let fs = client.fs();
    fs.mkdir(&Target::path(directory), 0o755).unwrap();
    // Links themselves are linked and renamed, not what they point to.
    let path = |name: &str| Target::under(InodeId::ROOT, format!("{directory}/{name}"));
    let mut names: Vec<String> = Vec::new();
    let mut made = 0;
    loop {
        let index = rng.below(names.len().max(1) as u64) as usize;
        let new = format!("n{made}");
        made += 1;
        match rng.below(5) {
            _ if names.len() < 3 => {
                fs.symlink(b"anywhere", &path(&new)).unwrap();
                names.push(new);
            }
            0 => {
                fs.create(&path(&new), 0o600, CreateMode::Exclusive).unwrap().close().unwrap();
                names.push(new);
            }
            1 => {
                fs.link(&path(&names[index]), &path(&new)).unwrap();
                names.push(new);
            }
            2 => {
                fs.rename(&path(&names[index]), &path(&new), RenameMode::NoReplace).unwrap();
                names[index] = new;
            }
            3 => {
                fs.mkdir(&path(&new), 0o700).unwrap();
                fs.rmdir(&path(&new)).unwrap();
            }
            _ => {
                fs.unlink(&path(&names[index])).unwrap();
                names.swap_remove(index);
            }
        }
        if rng.chance(20) {
            // Also so that it does not run away from those that wait for the disk.
            fs.sync_all().unwrap();
        }
        if !load.goes_on() {
            names.sort();
            return names;
        }
    }
}

#[test]
fn every_answer_to_a_client_holds_after_any_number_of_kills() {
    let mut rng = Rng::new(seed());
    let mut server = Served::with(SETTINGS, "127.0.0.1:0");
    let address = server.address.clone();
    let state = State::default();
    let newest = AtomicU64::new(0);
    let connect = || client(&address);

    std::thread::scope(|scope| {
        let loads = Loads { scope, state: &state };
        let _end = EndOfLoads(&state);
        let writers: Vec<_> = [("/async", Durability::Async), ("/sync", Durability::Sync)]
            .into_iter()
            .map(|(path, durability)| {
                let (client, rng) = (connect(), rng.split());
                (path, loads.start(move |load| overwrite(&load, &client, path, durability, rng)))
            })
            .collect();
        let appenders: Vec<_> = (0..3)
            .map(|_| {
                let (client, rng) = (connect(), rng.split());
                loads.start(move |load| (load.index as u32, append(&load, &client, "/appended", rng)))
            })
            .collect();
        let (replacing, watching, juggling) = (connect(), connect(), connect());
        let newest = &newest;
        let replacer = loads.start(move |load| replace(&load, &replacing, "/replaced", newest));
        let watcher = loads.start(move |load| watch(&load, &watching, "/replaced", newest));
        let names_rng = rng.split();
        let juggler = loads.start(move |load| juggle(&load, &juggling, "/names", names_rng));

        let (coming, remembering) = (connect(), connect());
        let (coming_rng, remembering_rng) = (rng.split(), rng.split());
        let comer = loads.start(move |load| come_and_go(&load, &coming, "/coming", coming_rng));
        let rememberer = loads.start(move |load| remember(&load, &remembering, remembering_rng));

        // A few gigabytes at most, however often it is killed.
        let answers_max = (ANSWERS_OF_ALL / kills()).min(4000);
        let starts = state.kill_again_and_again(&mut server, &mut rng, kills(), answers_max);
        let overwritten: Vec<_> = writers.into_iter().map(|(path, load)| (path, load.join().unwrap())).collect();
        let appended: BTreeMap<u32, Vec<u64>> = appenders.into_iter().map(|load| load.join().unwrap()).collect();
        let replaced = replacer.join().unwrap();
        watcher.join().unwrap();
        let names = juggler.join().unwrap();
        let gone = comer.join().unwrap();
        let memories = rememberer.join().unwrap();

        // By a client that knows nothing, of a server that was killed once more.
        let answers = state.progress();
        eprintln!("answers: {answers:?}, {} instants remembered, {} files gone", memories.len(), gone.removed());
        eprintln!("{starts}");
        assert_eq!(server.restart(Signal::SIGKILL), None);
        let client = connect();
        for memory in &memories {
            memory.check(&client);
        }
        check_gone(&client, &gone, &mut rng);
        for (path, changes) in &overwritten {
            check_overwritten(&client, path, changes, &mut rng);
        }
        check_appended(&read(&client, "/appended", None), &appended);
        assert_eq!(number_of(&read(&client, "/replaced", None)), replaced.len() as u64 - 1);
        for number in 0..replaced.len() as u64 {
            if rng.chance(1 + replaced.len() as u64 / 20) {
                let at = replaced[number as usize];
                assert_eq!(number_of(&read(&client, "/replaced", Some(at))), number, "at {at}");
            }
        }
        let found = client.fs().entries(&Target::path("/names")).unwrap();
        let found: Vec<String> = found.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect();
        let mut sorted = found.clone();
        sorted.sort();
        assert_eq!(sorted, names);
        let status = client.status().unwrap();
        assert_eq!(status.health, "healthy");
        assert!(status.gaps.is_empty(), "the machine has not gone down: nothing was lost: {:?}", status.gaps);
        assert_eq!(status.damaged, 0);
    });
    let scrubbed = server.run(&["scrub", "--rate", "100000"]);
    assert!(scrubbed.status == 0 && scrubbed.out().contains("no damage is known"), "{scrubbed:?}");
    assert_eq!(server.end(Signal::SIGKILL), None);
    let checked = frieze(&["fsck".as_ref(), server.data().as_os_str()]).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    eprintln!("{}{}", scrubbed.out(), String::from_utf8_lossy(&checked.stdout));
}

/// Answers that all the loads get together between all the kills, at most; on average it is half of them.
const ANSWERS_OF_ALL: u64 = 250_000;
