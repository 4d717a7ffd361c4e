//! The index on disk, from outside: it changes no read, memory is bounded, restarts are quick, damage is repaired.

use std::time::Duration;

use frieze_base::Rng;
use frieze_wire::timeline::{Diff, Usage};

use super::*;

const FILES: u64 = 30;
/// The index of this load, all of it in memory, is some times as large.
const INDEX_BYTES: u64 = 80 << 10;

/// A machine that shelves early and has little memory.
fn small() -> Machine {
    let mut machine = Machine::new();
    machine.settings.index_bytes_max = INDEX_BYTES;
    machine.settings.shelve_segments = 1;
    machine.settings.session_timeout = Duration::from_secs(3600);
    machine
}

fn shelves_of(machine: &Machine) -> Vec<String> {
    machine.disk.list().unwrap().into_iter().filter(|name| name.starts_with("shelf-")).collect()
}

/// Ends the segment, makes everything durable and shelves it.
fn shelve(served: &mut Served) {
    served.engine.service.upkeep.close_segment();
    served.fsync();
    served.fsync();
    while served.engine.service.upkeep.shelve().unwrap() {}
}

/// Small writes all over the files; returns some of their stamps.
fn load(served: &mut Served, rounds: u64, rng: &mut Rng) -> Vec<u64> {
    let files: Vec<Vec<u8>> = (0..FILES).map(|name| served.make(&format!("/{name}"))).collect();
    let mut stamps = Vec::new();
    for round in 0..rounds {
        for _ in 0..600 {
            let file = &files[rng.below(FILES) as usize];
            let bytes = pattern(1 + rng.below(300) as usize, round as u8);
            let (stamp, _) = served.write(file, Some(rng.below(50_000)), &bytes).unwrap();
            if rng.chance(60) {
                stamps.push(stamp);
            }
        }
        shelve(served);
    }
    stamps
}

fn status(served: &mut Served) -> frieze_wire::message::StatusReply {
    let Ok(Reply::Status(status)) = served.ask(Request::Status(Status {})) else { panic!("no status") };
    *status
}

/// Everything that is asked of a file, at some instants.
fn answers(served: &mut Served, stamps: &[u64]) -> Vec<(Vec<u8>, u64, u64, usize)> {
    let mut all = Vec::new();
    for &stamp in stamps {
        for name in 0..FILES {
            let path = format!("/{name}");
            let view = View { at: Some(stamp), user_at: None };
            let bytes = served.at(&path, stamp).unwrap();
            let attr = served.stat(&path, view).unwrap().attr;
            let log = Log {
                target: Target::path(&*path),
                view: View::NOW,
                after: stamp,
                count_max: 0,
                upto: 0,
                ..Log::default()
            };
            let Ok(Reply::Log(log)) = served.ask(Request::Log(log)) else { panic!("no log") };
            all.push((bytes, attr.size, attr.bytes_live, log.versions.len()));
        }
    }
    all
}

#[test]
fn with_little_memory_every_instant_reads_as_with_all_of_it() {
    let machine = small();
    let mut served = machine.serve();
    let stamps = load(&mut served, 12, &mut Rng::new(3));
    let some: Vec<u64> = stamps.iter().step_by(20).copied().collect();
    let told = status(&mut served);
    assert!(told.shelved_records >= 7000 && told.shelf_bytes > 0, "{told:?}");
    assert!(told.index_bytes <= INDEX_BYTES * 6 / 5, "{} bytes of {INDEX_BYTES}", told.index_bytes);
    let found = answers(&mut served, &some);
    assert!(status(&mut served).index_bytes <= INDEX_BYTES * 6 / 5, "also after reading all of it");
    drop(served);

    // The same directory with memory for all of it, and no shelf.
    let mut large = Machine { disk: machine.disk.clone(), ..machine };
    large.settings.index_bytes_max = 1 << 30;
    for name in shelves_of(&large) {
        large.disk.remove(&name).unwrap();
    }
    large.settings.shelve_segments = 1000;
    let mut served = large.serve();
    assert!(answers(&mut served, &some) == found, "the same answers");
    assert!(status(&mut served).index_bytes > INDEX_BYTES * 2, "what was not in memory before");
}

#[test]
fn a_restart_reads_shelves_and_goes_on() {
    let machine = small();
    let mut served = machine.serve();
    let stamps = load(&mut served, 6, &mut Rng::new(4));
    let file = served.make("/more");
    let first = served.send(Served::write_request(&file, None, Durability::Async), b"once", 9000);
    let stamp = served.answer(first).unwrap().0.unwrap();
    shelve(&mut served);
    let (session, records) = (served.session, status(&mut served).records);
    drop(served);
    let mut served = machine.serve();
    let told = status(&mut served);
    assert_eq!(told.records, records);
    assert!(told.index_bytes < 64 << 10, "{} bytes right after a restart", told.index_bytes);
    // A retry of what only a shelf knows is answered with its first run.
    served.session = session;
    let again = served.send(Served::write_request(&file, None, Durability::Async), b"once", 9000);
    assert_eq!(served.answer(again).unwrap().0.unwrap(), stamp);
    assert_eq!(served.read("/more", View::NOW).unwrap(), b"once");
    served.seq = 9001;
    served.write(&file, None, b" more").unwrap();
    assert_eq!(served.read("/more", View::NOW).unwrap(), b"once more");
    let to = served.engine.planes.newest().0;
    let diff = Diff { target: Target::path("/"), from: stamps[0], to, ..Diff::default() };
    let Ok(Reply::Diff(diff)) = served.ask(Request::Diff(diff)) else { panic!("no difference") };
    assert_eq!(diff.differences.len() as u64, FILES + 1, "every file changed, and one is new");
    let Ok(Reply::Usage(usage)) = served.ask(Request::Usage(Usage { target: Target::path("/"), ..Usage::default() }))
    else {
        panic!("no usage")
    };
    assert_eq!(usage.files, FILES + 1);
    assert!(usage.live_bytes + usage.history_bytes > 400_000, "{usage:?}");
}

#[test]
fn a_damaged_shelf_is_made_anew_and_said() {
    let machine = small();
    let mut served = machine.serve();
    let stamps = load(&mut served, 3, &mut Rng::new(5));
    let found = answers(&mut served, &stamps[..3]);
    drop(served);
    let names = shelves_of(&machine);
    assert!(!names.is_empty());
    for name in &names {
        // In its first block.
        machine.disk.flip_bit(name, 1000, 3).unwrap();
    }
    let mut served = machine.serve();
    let wrong = served.engine.check_up().wrong;
    assert_eq!(wrong.len(), names.len(), "a check names each: {wrong:?}");
    assert!(answers(&mut served, &stamps[..3]) == found, "the same answers");
    assert_eq!(served.engine.check_up().wrong, [""; 0], "and none once they are mended");
    let words = served.engine.service.upkeep.mended();
    assert_eq!(words.len(), names.len(), "{words:?}");
    assert!(words[0].contains("made anew"), "{words:?}");
    drop(served);
    // In its head: the restart finds it.
    for name in &shelves_of(&machine) {
        machine.disk.flip_bit(name, 9, 3).unwrap();
    }
    let mut served = machine.serve();
    assert!(
        served.engine.notes().iter().any(|note| note.contains("footers were read instead")),
        "{:?}",
        served.engine.notes()
    );
    assert!(answers(&mut served, &stamps[..3]) == found, "the same answers");
}

#[test]
fn a_full_disk_shelves_nothing_and_loses_nothing() {
    let machine = small();
    let mut served = machine.serve();
    let stamps = load(&mut served, 2, &mut Rng::new(6));
    let found = answers(&mut served, &stamps[..2]);
    let file = served.make("/f");
    served.write(&file, Some(0), b"young").unwrap();
    served.engine.service.upkeep.close_segment();
    served.fsync();
    served.fsync();
    let used = machine.disk.space().unwrap();
    machine.disk.set_capacity(used.capacity_bytes - used.free_bytes);
    let before = shelves_of(&machine);
    assert!(!served.engine.service.upkeep.shelve().unwrap(), "there is no room");
    assert_eq!(shelves_of(&machine), before);
    assert!(answers(&mut served, &stamps[..2]) == found);
    machine.disk.set_capacity(u64::MAX / 2);
    while served.engine.service.upkeep.shelve().unwrap() {}
    assert_ne!(shelves_of(&machine), before);
    assert!(answers(&mut served, &stamps[..2]) == found);
}

#[test]
fn readers_and_writers_never_see_what_is_away() {
    let mut machine = small();
    machine.settings.index_bytes_max = 64 << 10;
    let mut served = machine.serve();
    let files: Vec<Vec<u8>> = (0..8).map(|name| served.make(&format!("/{name}"))).collect();
    let engine = served.engine.clone();
    let known: Mutex<Vec<(u64, u64, u8)>> = Mutex::default();
    let (session, done) = (served.session, std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (machine, engine, known, done) = (&machine, engine.clone(), &known, &done);
            scope.spawn(move || {
                let mut reader = machine.connect(engine, Caller::root());
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
        served.session = session;
        let mut rng = Rng::new(9);
        for round in 0..3000u64 {
            let name = rng.below(8);
            let byte = rng.below(255) as u8 + 1;
            let (stamp, _) = served.write(&files[name as usize], Some(0), &[byte; 3000]).unwrap();
            known.lock().unwrap().push((name, stamp, byte));
            if round % 100 == 99 {
                shelve(&mut served);
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(status(&mut served).shelved_records > 2000);
}
