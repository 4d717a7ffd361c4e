//! Directories of other format versions: older ones are read and become this one, newer ones are refused with words.

use frieze_disk::DiskFile;

use super::metamorphic::{History, answers, check_same, some};
use super::*;

/// Length of each of the two slots of the `state` file.
const SLOT: usize = 4096;

/// The whole of a file.
fn bytes_of(disk: &SimDisk, name: &str) -> (Arc<dyn DiskFile>, Vec<u8>) {
    let file = disk.open(name).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    (file, bytes)
}

fn names(disk: &SimDisk, prefix: &str) -> Vec<String> {
    disk.list().unwrap().into_iter().filter(|name| name.starts_with(prefix)).collect()
}

/// Lets the directory say that it has another version.
fn say_version(disk: &SimDisk, version: u8) {
    let (file, mut bytes) = bytes_of(disk, "state");
    for slot in bytes.chunks_mut(SLOT).filter(|slot| slot.starts_with(b"FRZS")) {
        // The version is the first field of the record: tag 1, a small number.
        assert_eq!(slot[20], 8);
        slot[21] = version;
        let len = u32::from_le_bytes(slot[4..8].try_into().unwrap()) as usize;
        let crc = crc32c(&[&slot[..16], &slot[20..20 + len]].concat());
        slot[16..20].copy_from_slice(&crc.to_le_bytes());
    }
    file.write_at(0, &[&bytes]).unwrap();
    file.sync().unwrap();
}

fn version_said(disk: &SimDisk) -> u8 {
    let (_, bytes) = bytes_of(disk, "state");
    let slots = bytes.chunks(SLOT).filter(|slot| slot.starts_with(b"FRZS"));
    slots.max_by_key(|slot| u64::from_le_bytes(slot[8..16].try_into().unwrap())).unwrap()[21]
}

/// Makes of a directory in which nothing was forgotten what a server of an older
/// version would have left: before version 3 footers that do not say whether they are the last, no shelves, no list of findings;
/// before version 2 neither names by inode nor an index of time.
fn age(machine: &Machine, version: u8) {
    if version >= 3 {
        say_version(&machine.disk, version);
        return;
    }
    let disk = &machine.disk;
    for name in names(disk, "seg-") {
        let (file, bytes) = bytes_of(disk, &name);
        let mut trailer = bytes[bytes.len() - 128..].to_vec();
        if trailer[64..68] == *b"FRZF" {
            trailer[96] = 0;
            let crc = crc32c(&trailer[..124]);
            trailer[124..].copy_from_slice(&crc.to_le_bytes());
            file.write_at(bytes.len() as u64 - 128, &[&trailer]).unwrap();
            file.sync().unwrap();
        }
    }
    for name in names(disk, "shelf-").into_iter().chain(names(disk, "scrub")) {
        disk.remove(&name).unwrap();
    }
    if version < 2 {
        let store = &machine.store;
        let letters = [(b"L", b"M"), (b"T", b"U")];
        let keys = letters.iter().flat_map(|(from, to)| store.items(*from, *to).map(|item| item.unwrap().0));
        let keys: Vec<Vec<u8>> = keys.collect();
        assert!(keys.len() > 10);
        store.commit(Vec::new(), keys, store.applied().unwrap()).unwrap();
        store.persist().unwrap();
    }
    disk.sync_dir().unwrap();
    say_version(disk, version);
}

#[test]
fn directories_of_versions_1_to_4_are_read_become_5_and_answer_as_before() {
    for version in [1, 2, 3, 4] {
        for seed in 1..=3 {
            let older = |settings: &mut Settings| {
                settings.shelve_segments = 1;
            };
            let (machine, mut served, mut history) = History::live(seed, older, false);
            let instants = some(&mut history);
            let before_all = answers(&mut served, &instants);
            served.engine.stop().unwrap();
            drop(served);
            age(&machine, version);
            for start in 0..2 {
                let mut served = machine.serve();
                assert_eq!(served.engine.check_up().found(), 0, "version {version}, seed {seed}");
                check_same(&answers(&mut served, &instants), &before_all, &format!("version {version}, start {start}"));
                assert_eq!(version_said(&machine.disk), 5, "an older server is warned off");
            }
            // It goes on, and what version 3 is for works on what was there before.
            let mut served = machine.serve();
            let before = *instants.last().unwrap();
            for _ in 0..100 {
                history.call(&mut served);
            }
            // Logs and how much there is of history go on.
            let goes_on = |question: &str| {
                ["Usage", "Snapshots", "Log", "Story", "Deleted"].iter().any(|name| question.starts_with(name))
            };
            let of_then = |told: &[(String, String)]| -> Vec<(String, String)> {
                told.iter().filter(|(question, _)| !goes_on(question)).cloned().collect()
            };
            let (found, expect) = (of_then(&answers(&mut served, &instants)), of_then(&before_all));
            check_same(&found, &expect, &format!("version {version}, written to"));
            served.forget("/", before);
            assert_eq!(served.at("/a/x", instants[0]).unwrap_err().reason, Reason::HistoryExpired);
            assert_eq!(served.engine.check_up().found(), 0, "version {version}, seed {seed}");
        }
    }
}

/// A server does not start, and leaves every byte as it was.
fn check_refused(machine: &Machine, words: &[&str]) {
    let all = || -> Vec<_> {
        machine.disk.list().unwrap().into_iter().map(|name| bytes_of(&machine.disk, &name).1).collect()
    };
    let before = all();
    let Err(fault) = machine.try_serve() else { panic!("it is served") };
    for word in words {
        assert!(fault.message.contains(word), "{:?} should name {word:?}", fault.message);
    }
    assert!(all() == before, "something was changed");
}

#[test]
fn newer_versions_of_anything_are_refused_with_both_versions_and_what_to_do() {
    let (machine, mut served, mut history) = History::live(4, |settings| settings.shelve_segments = 1, true);
    let instants = some(&mut history);
    let before = answers(&mut served, &instants);
    served.engine.stop().unwrap();
    drop(served);
    say_version(&machine.disk, 6);
    check_refused(&machine, &["format version 6", "reads 1 to 5", "use the version of frieze that made it"]);
    say_version(&machine.disk, 5);
    // Of each log one header, with its checksum.
    for (prefix, version) in [("seg-", 1), ("meta-", 1)] {
        let name = names(&machine.disk, prefix).remove(0);
        let (file, whole) = bytes_of(&machine.disk, &name);
        let mut header = whole[..64].to_vec();
        header[4] = version + 1;
        let crc = crc32c(&header[..60]);
        header[60..].copy_from_slice(&crc.to_le_bytes());
        file.write_at(0, &[&header]).unwrap();
        let words = [format!("format version {}", version + 1), format!("frieze reads {version} only")];
        check_refused(&machine, &[&words[0], &words[1], "read it with the build that wrote it"]);
        file.write_at(0, &[&whole[..64]]).unwrap();
    }
    // A shelf says nothing that the footers do not: one of another version is made anew.
    for name in names(&machine.disk, "shelf-") {
        let (file, mut whole) = bytes_of(&machine.disk, &name);
        whole[4] += 1;
        let crc = crc32c(&whole[..124]);
        whole[124..128].copy_from_slice(&crc.to_le_bytes());
        file.write_at(0, &[&whole[..128]]).unwrap();
    }
    let mut served = machine.serve();
    check_same(&answers(&mut served, &instants), &before, "shelves of a newer version");
}
