//! The index on disk, from outside: it changes no read, memory is bounded, restarts are quick, damage is repaired.

use std::time::Duration;

use frieze_base::Rng;
use frieze_testkit::wait::SetOnDrop;
use frieze_wire::timeline::{Diff, Usage};

use super::*;

const FILES: u64 = 30;
/// The index of this load, all of it in memory, is some times as large.
const INDEX_BYTES: u64 = 80 << 10;

/// A machine that shelves early and has little memory.
fn small() -> SimMachine {
    let mut machine = SimMachine::new(7);
    machine.settings.index_bytes_max = INDEX_BYTES;
    machine.settings.shelve_segments = 1;
    machine.settings.session_timeout = Duration::from_secs(3600);
    machine
}

fn shelves_of(machine: &SimMachine) -> Vec<String> {
    machine.disk.list().unwrap().into_iter().filter(|name| name.starts_with("shelf-")).collect()
}

/// Ends the segment, makes everything durable and shelves it.
fn shelve(client: &mut TestConnection) {
    client.server.close_segment();
    client.fsync();
    client.fsync();
    client.server.shelve_all();
}

/// Small writes all over the files; returns some of their stamps.
fn load(client: &mut TestConnection, rounds: u64, rng: &mut Rng) -> Vec<u64> {
    let files: Vec<Vec<u8>> = (0..FILES).map(|name| client.make(&format!("/{name}"))).collect();
    let mut stamps = Vec::new();
    for round in 0..rounds {
        for _ in 0..600 {
            let file = &files[rng.below(FILES) as usize];
            let bytes = pattern(1 + rng.below(300) as usize, round as u8);
            let (stamp, _) = client.write(file, Some(rng.below(50_000)), &bytes).unwrap();
            if rng.chance(60) {
                stamps.push(stamp);
            }
        }
        shelve(client);
    }
    stamps
}

fn status(client: &mut TestConnection) -> frieze_wire::message::StatusReply {
    let Ok(Reply::Status(status)) = client.ask(Request::Status(Status {})) else { panic!("no status") };
    *status
}

/// Everything that is asked of a file, at some instants.
fn answers(client: &mut TestConnection, stamps: &[u64]) -> Vec<(Vec<u8>, u64, u64, usize)> {
    let mut all = Vec::new();
    for &stamp in stamps {
        for name in 0..FILES {
            let path = format!("/{name}");
            let view = View { at: Some(stamp), user_at: None };
            let bytes = client.at(&path, stamp).unwrap();
            let attr = client.stat(&path, view).unwrap().attr;
            let log = Log {
                target: Target::path(&*path),
                view: View::NOW,
                after: stamp,
                count_max: 0,
                upto: 0,
                ..Log::default()
            };
            let Ok(Reply::Log(log)) = client.ask(Request::Log(log)) else { panic!("no log") };
            all.push((bytes, attr.size, attr.bytes_live, log.versions.len()));
        }
    }
    all
}

#[test]
fn with_little_memory_every_instant_reads_as_with_all_of_it() {
    let machine = small();
    let mut client = machine.serve();
    let stamps = load(&mut client, 12, &mut Rng::new(3));
    let some: Vec<u64> = stamps.iter().step_by(20).copied().collect();
    let told = status(&mut client);
    assert!(told.shelved_records >= 7000 && told.shelf_bytes > 0, "{told:?}");
    assert!(told.index_bytes <= INDEX_BYTES * 6 / 5, "{} bytes of {INDEX_BYTES}", told.index_bytes);
    let found = answers(&mut client, &some);
    assert!(status(&mut client).index_bytes <= INDEX_BYTES * 6 / 5, "also after reading all of it");
    drop(client);

    // The same directory with memory for all of it, and no shelf.
    let mut large = SimMachine { disk: machine.disk.clone(), ..machine };
    large.settings.index_bytes_max = 1 << 30;
    for name in shelves_of(&large) {
        large.disk.remove(&name).unwrap();
    }
    large.settings.shelve_segments = 1000;
    let mut client = large.serve();
    assert!(answers(&mut client, &some) == found, "the same answers");
    assert!(status(&mut client).index_bytes > INDEX_BYTES * 2, "what was not in memory before");
}

#[test]
fn a_restart_reads_shelves_and_goes_on() {
    let machine = small();
    let mut client = machine.serve();
    let stamps = load(&mut client, 6, &mut Rng::new(4));
    let file = client.make("/more");
    let first = client.send(TestConnection::write_request(&file, None, Durability::Async), b"once", 9000);
    let stamp = client.answer(first).unwrap().0.unwrap();
    shelve(&mut client);
    let (session, records) = (client.session, status(&mut client).records);
    drop(client);
    let mut client = machine.serve();
    let told = status(&mut client);
    assert_eq!(told.records, records);
    assert!(told.index_bytes < 64 << 10, "{} bytes right after a restart", told.index_bytes);
    // A retry of what only a shelf knows is answered with its first run.
    client.session = session;
    let again = client.send(TestConnection::write_request(&file, None, Durability::Async), b"once", 9000);
    assert_eq!(client.answer(again).unwrap().0.unwrap(), stamp);
    assert_eq!(client.read("/more", View::NOW).unwrap(), b"once");
    client.seq = 9001;
    client.write(&file, None, b" more").unwrap();
    assert_eq!(client.read("/more", View::NOW).unwrap(), b"once more");
    let to = client.server.newest().0;
    let diff = Diff { target: Target::path("/"), from: stamps[0], to, ..Diff::default() };
    let Ok(Reply::Diff(diff)) = client.ask(Request::Diff(diff)) else { panic!("no difference") };
    assert_eq!(diff.differences.len() as u64, FILES + 1, "every file changed, and one is new");
    let Ok(Reply::Usage(usage)) = client.ask(Request::Usage(Usage { target: Target::path("/"), ..Usage::default() }))
    else {
        panic!("no usage")
    };
    assert_eq!(usage.files, FILES + 1);
    assert!(usage.live_bytes + usage.history_bytes > 400_000, "{usage:?}");
}

#[test]
fn a_damaged_shelf_is_made_anew_and_said() {
    let machine = small();
    let mut client = machine.serve();
    let stamps = load(&mut client, 3, &mut Rng::new(5));
    let found = answers(&mut client, &stamps[..3]);
    drop(client);
    let names = shelves_of(&machine);
    assert!(!names.is_empty());
    for name in &names {
        // In its first block.
        machine.disk.flip_bit(name, 1000, 3).unwrap();
    }
    let mut client = machine.serve();
    let wrong = client.server.check_up().wrong;
    assert_eq!(wrong.len(), names.len(), "a check names each: {wrong:?}");
    assert!(answers(&mut client, &stamps[..3]) == found, "the same answers");
    assert_eq!(client.server.check_up().wrong, [""; 0], "and none once they are mended");
    let words = client.server.repairs();
    assert_eq!(words.len(), names.len(), "{words:?}");
    assert!(words[0].contains("made anew"), "{words:?}");
    drop(client);
    // In its head: the restart finds it.
    for name in &shelves_of(&machine) {
        machine.disk.flip_bit(name, 9, 3).unwrap();
    }
    let mut client = machine.serve();
    assert!(
        client.server.notes().iter().any(|note| note.contains("footers were read instead")),
        "{:?}",
        client.server.notes()
    );
    assert!(answers(&mut client, &stamps[..3]) == found, "the same answers");
}

#[test]
fn a_full_disk_shelves_nothing_and_loses_nothing() {
    let machine = small();
    let mut client = machine.serve();
    let stamps = load(&mut client, 2, &mut Rng::new(6));
    let found = answers(&mut client, &stamps[..2]);
    let file = client.make("/f");
    client.write(&file, Some(0), b"young").unwrap();
    client.server.close_segment();
    client.fsync();
    client.fsync();
    let used = machine.disk.space().unwrap();
    machine.disk.set_capacity(used.capacity_bytes - used.free_bytes);
    let before = shelves_of(&machine);
    assert!(!client.server.shelve().unwrap(), "there is no room");
    assert_eq!(shelves_of(&machine), before);
    assert!(answers(&mut client, &stamps[..2]) == found);
    machine.disk.set_capacity(u64::MAX / 2);
    client.server.shelve_all();
    assert_ne!(shelves_of(&machine), before);
    assert!(answers(&mut client, &stamps[..2]) == found);
}

#[test]
fn readers_and_writers_never_see_what_is_away() {
    let mut machine = small();
    machine.settings.index_bytes_max = 64 << 10;
    let mut client = machine.serve();
    let files: Vec<Vec<u8>> = (0..8).map(|name| client.make(&format!("/{name}"))).collect();
    let server = client.server.clone();
    let known: Mutex<Vec<(u64, u64, u8)>> = Mutex::default();
    let (session, done) = (client.session, std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        let ends = SetOnDrop(&done);
        for seed in 0..3 {
            let (machine, server, known, done) = (&machine, server.clone(), &known, &done);
            scope.spawn(move || {
                let mut reader = machine.connect(server, Caller::root());
                let mut rng = Rng::new(seed);
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let some = {
                        let known = known.lock().unwrap();
                        known.get(rng.below(known.len().max(1) as u64) as usize).copied()
                    };
                    let Some((name, stamp, byte)) = some else { continue };
                    let read = reader.at(&format!("/{name}"), stamp).unwrap();
                    assert!(read == [byte; 3000], "/{name} at {stamp}");
                }
            });
        }
        client.session = session;
        let mut rng = Rng::new(9);
        for round in 0..3000u64 {
            let name = rng.below(8);
            let byte = rng.below(255) as u8 + 1;
            let (stamp, _) = client.write(&files[name as usize], Some(0), &[byte; 3000]).unwrap();
            known.lock().unwrap().push((name, stamp, byte));
            if round % 100 == 99 {
                shelve(&mut client);
            }
        }
        drop(ends);
    });
    assert!(status(&mut client).shelved_records > 2000);
}
