//! Directories of other format versions, and of builds from before the first one, are refused with an error that says
//! so.

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

/// Adds a field to the record of a directory, whose last value counts: its format version (tag 19), or what builds
/// before the first format wrote (tag 1).
fn say_field(disk: &SimDisk, field: &[u8]) {
    let (file, mut bytes) = bytes_of(disk, "state");
    for slot in bytes.chunks_mut(SLOT).filter(|slot| slot.starts_with(b"FRZS")) {
        let len = u32::from_le_bytes(slot[4..8].try_into().unwrap()) as usize;
        slot[20 + len..20 + len + field.len()].copy_from_slice(field);
        let len = len + field.len();
        slot[4..8].copy_from_slice(&(len as u32).to_le_bytes());
        let crc = crc32c(&[&slot[..16], &slot[20..20 + len]].concat());
        slot[16..20].copy_from_slice(&crc.to_le_bytes());
    }
    file.write_at(0, &[&bytes]).unwrap();
    file.sync().unwrap();
}

/// A server does not start, and leaves every byte as it was.
fn check_refused(machine: &SimMachine, words: &[&str]) {
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
fn other_versions_of_anything_are_refused_with_both_versions_and_what_to_do() {
    let (machine, mut client, mut history) = History::live(4, |settings| settings.shelve_segments = 1, true);
    let instants = some(&mut history);
    let before = answers(&mut client, &instants);
    client.server.stop().unwrap();
    drop(client);
    let (file, state) = bytes_of(&machine.disk, "state");
    say_field(&machine.disk, &[0xa0, 0x01, 2]);
    check_refused(&machine, &["format version 2", "reads 1", "use the version of frieze that made it"]);
    file.write_at(0, &[&state]).unwrap();
    // Where earlier builds had their format.
    for (field, found) in [(&[0x08, 5][..], "format 5"), (&[0x98, 0x01, 1], "format 1")] {
        say_field(&machine.disk, field);
        check_refused(&machine, &["older, unreleased build", found, "copy what it holds into a new directory"]);
        file.write_at(0, &[&state]).unwrap();
    }
    // Of each log one header, with its checksum.
    for (prefix, version, bytes) in [("seg-", 1, 64), ("raft-", 1, 48)] {
        let name = names(&machine.disk, prefix).remove(0);
        let (file, whole) = bytes_of(&machine.disk, &name);
        let mut header = whole[..bytes].to_vec();
        header[4] = version + 1;
        let crc = crc32c(&header[..bytes - 4]);
        header[bytes - 4..].copy_from_slice(&crc.to_le_bytes());
        file.write_at(0, &[&header]).unwrap();
        let words = [format!("format version {}", version + 1), format!("frieze reads {version} only")];
        check_refused(&machine, &[&words[0], &words[1], "read it with the build that wrote it"]);
        file.write_at(0, &[&whole[..bytes]]).unwrap();
    }
    // A shelf says nothing that the footers do not: one of another version is made anew.
    for name in names(&machine.disk, "shelf-") {
        let (file, mut whole) = bytes_of(&machine.disk, &name);
        whole[4] += 1;
        let crc = crc32c(&whole[..124]);
        whole[124..128].copy_from_slice(&crc.to_le_bytes());
        file.write_at(0, &[&whole[..128]]).unwrap();
    }
    let mut client = machine.serve();
    check_same(&answers(&mut client, &instants), &before, "shelves of a newer version");
}
