//! Memory tiers: they show in the reads of the device, and never in an answer.

use frieze_base::Rng;
use frieze_wire::message::MemoryUse;

use super::*;

const KIB: u64 = 1 << 10;
const FILE_BYTES: u64 = 1 << 20;
const WRITE_BYTES: u64 = 16 * KIB;
const SLOTS: u64 = FILE_BYTES / WRITE_BYTES;

/// A machine with so much memory for young and for old records.
fn with_memory(young: u64, old: u64) -> SimMachine {
    let mut machine = SimMachine::new(7);
    machine.settings.young_bytes_max = young;
    machine.settings.old_bytes_max = old;
    machine.settings.chunk_bytes = 4 << 20;
    machine
}

fn memory(client: &mut TestConnection) -> MemoryUse {
    let Ok(Reply::Status(status)) = client.ask(Request::Status(Status {})) else { panic!("no status") };
    *status.memory.unwrap()
}

/// One file, all of it written `rounds` times at places in no order. Returns a capability for now, and the stamp after
/// each round with what the file then held.
fn load(client: &mut TestConnection, rounds: u64, rng: &mut Rng) -> Vec<(u64, Vec<u8>)> {
    let file = client.make("/f");
    let mut content = vec![0; FILE_BYTES as usize];
    let mut states = Vec::new();
    for round in 0..rounds {
        let mut stamp = 0;
        let mut slots: Vec<u64> = (0..SLOTS).collect();
        while !slots.is_empty() {
            let at = (slots.swap_remove(rng.below(slots.len() as u64) as usize) * WRITE_BYTES) as usize;
            let mut bytes = vec![0; WRITE_BYTES as usize];
            rng.fill(&mut bytes);
            (stamp, _) = client.write(&file, Some(at as u64), &bytes).unwrap();
            content[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        states.push((stamp, content.clone()));
        if round % 2 == 1 {
            client.fsync();
        }
    }
    client.fsync();
    states
}

/// A capability to read a file at an instant.
fn open_at(client: &mut TestConnection, path: &str, stamp: u64) -> Vec<u8> {
    client.open_session();
    let view = View { at: Some(stamp), user_at: None };
    let open = Open { target: Target::path(path), view, read: true, write: false, made_at: 0 };
    let Ok(Reply::Open(open)) = client.ask(Request::Open(open)) else { panic!("no open file") };
    open.capability
}

fn read_part(client: &mut TestConnection, capability: &[u8], offset: u64, len: u64) -> Result<Vec<u8>, Fault> {
    let read = Read { capability: capability.to_vec(), offset, len: len as u32, in_steps: true, ..Read::default() };
    let id = client.send(Request::Read(read), &[], 0);
    let (reply, payload) = client.answer(id).expect("answered at once");
    reply.map(|_| payload)
}

/// Bytes of the log and of shelves that memory has copies of.
fn copies(machine: &SimMachine) -> u64 {
    let names = machine.disk.list().unwrap();
    let records = names.iter().filter(|name| name.starts_with("seg-") || name.starts_with("shelf-"));
    records.map(|name| machine.disk.open(name).unwrap().cached_bytes().unwrap().unwrap()).sum()
}

fn first_segment(machine: &SimMachine) -> String {
    machine.disk.list().unwrap().into_iter().find(|name| name.starts_with("seg-")).unwrap()
}

#[test]
fn what_is_young_asks_nothing_of_the_device_and_what_is_old_at_most_once_a_piece() {
    let machine = with_memory(2 << 20, 2 << 20);
    let mut client = machine.serve();
    let states = load(&mut client, 8, &mut Rng::new(1));
    let fetches = |machine: &SimMachine| machine.disk.fetches();
    let before = fetches(&machine);
    assert!(client.read("/f", View::NOW).unwrap() == states[7].1);
    assert_eq!(fetches(&machine), before, "all of it is young");
    let then = open_at(&mut client, "/f", states[1].0);
    let before = fetches(&machine);
    // Four records, each with its checksums before it.
    let four = read_part(&mut client, &then, 5 * WRITE_BYTES, 4 * WRITE_BYTES).unwrap();
    assert!(four[..] == states[1].1[5 * WRITE_BYTES as usize..][..four.len()]);
    let asked = fetches(&machine) - before;
    assert!((1..=4).contains(&asked), "{asked} reads of the device for four pieces");
    read_part(&mut client, &then, 5 * WRITE_BYTES, 4 * WRITE_BYTES).unwrap();
    assert_eq!(fetches(&machine) - before, asked, "the second time it is there");
    let memory = memory(&mut client);
    assert!(memory.wanted_missed_bytes >= 64 * KIB && memory.wanted_hit_bytes >= 64 * KIB, "{memory:?}");
    assert_eq!((memory.unbounded, memory.refused, memory.healed), (false, 0, 0));
}

#[test]
fn copies_in_memory_stay_within_their_shares() {
    for (young, old) in [(256 * KIB, 128 * KIB), (64 * KIB, 4 * KIB), (1 << 20, 1 << 20)] {
        let machine = with_memory(young, old);
        let mut client = machine.serve();
        let mut rng = Rng::new(2);
        let states = load(&mut client, 12, &mut rng);
        // Footers, shelves, and pages that no figure counts.
        client.server.close_segment();
        client.fsync();
        client.fsync();
        client.server.shelve_all();
        for _ in 0..200 {
            let (stamp, content) = rng.choose(&states).clone();
            let then = open_at(&mut client, "/f", stamp);
            let (at, len) = (rng.below(FILE_BYTES), 1 + rng.below(100 * KIB));
            let read = read_part(&mut client, &then, at, len).unwrap();
            assert!(read[..] == content[at as usize..][..read.len()]);
        }
        client.fsync();
        client.server.keep_to_memory().unwrap();
        let memory = memory(&mut client);
        assert!(memory.old_bytes <= old && memory.young_bytes <= young + 128 * KIB, "{memory:?}");
        // Pages at the edges of what is young and of the file.
        let copies = copies(&machine);
        assert!(copies <= young + old + 256 * KIB, "{copies} bytes of {young} and {old}");
    }
}

#[test]
fn a_scan_of_all_history_leaves_in_memory_what_is_in_use() {
    let machine = with_memory(64 * KIB, 1 << 20);
    let mut client = machine.serve();
    let states = load(&mut client, 24, &mut Rng::new(3));
    let hot: Vec<Vec<u8>> = (0..4).map(|state| open_at(&mut client, "/f", states[state].0)).collect();
    let look = |client: &mut TestConnection| {
        let before = machine.disk.fetches();
        for (state, file) in hot.iter().enumerate() {
            for slot in (0..SLOTS).step_by(16) {
                let read = read_part(client, file, slot * WRITE_BYTES, WRITE_BYTES).unwrap();
                assert!(read[..] == states[state].1[(slot * WRITE_BYTES) as usize..][..read.len()]);
            }
        }
        machine.disk.fetches() - before
    };
    assert!(look(&mut client) > 0, "at first nothing of it is there");
    look(&mut client);
    look(&mut client);
    assert_eq!(look(&mut client), 0, "in use");
    // All states from front to back, in steps that are no multiple of a page: 24 times the memory.
    for (stamp, content) in &states {
        let file = open_at(&mut client, "/f", *stamp);
        for at in (0..FILE_BYTES).step_by(5000) {
            let read = read_part(&mut client, &file, at, 5000).unwrap();
            assert!(read[..] == content[at as usize..][..read.len()]);
        }
    }
    assert_eq!(look(&mut client), 0, "after the scan");
}

#[test]
fn a_sequential_reader_finds_its_next_bytes_in_memory() {
    let machine = with_memory(64 * KIB, 8 << 20);
    let mut client = machine.serve();
    let states = load(&mut client, 4, &mut Rng::new(4));
    let file = open_at(&mut client, "/f", states[0].0);
    let mut waited = Vec::new();
    for slot in 0..SLOTS {
        let ahead = memory(&mut client).ahead_bytes;
        let before = machine.disk.fetches();
        read_part(&mut client, &file, slot * WRITE_BYTES, WRITE_BYTES).unwrap();
        // What was fetched without anything read ahead was fetched for this read.
        if machine.disk.fetches() > before && memory(&mut client).ahead_bytes == ahead {
            waited.push(slot);
        }
    }
    assert!(waited.iter().all(|slot| *slot < 3), "reads {waited:?} found nothing there");
    let told = memory(&mut client);
    assert!(told.ahead_bytes > FILE_BYTES / 2 && told.scanned_hit_bytes > FILE_BYTES / 2, "{told:?}");
    // A reader of random places gets no prefetch.
    let mut rng = Rng::new(5);
    let file = open_at(&mut client, "/f", states[1].0);
    let before = memory(&mut client).ahead_bytes;
    for _ in 0..100 {
        read_part(&mut client, &file, rng.below(SLOTS) * WRITE_BYTES, 4096).unwrap();
    }
    assert_eq!(memory(&mut client).ahead_bytes, before);
}

#[test]
fn a_read_that_fails_leaves_nothing_that_is_taken_for_a_copy() {
    let machine = with_memory(64 * KIB, 1 << 20);
    let mut client = machine.serve();
    let states = load(&mut client, 4, &mut Rng::new(6));
    let (stamp, content) = &states[0];
    let file = open_at(&mut client, "/f", *stamp);
    machine.disk.fail_reads(1);
    assert_eq!(read_part(&mut client, &file, 0, WRITE_BYTES).unwrap_err().reason, Reason::InputOutput);
    assert_eq!(memory(&mut client).old_bytes, 0, "nothing is known of it");
    let before = machine.disk.fetches();
    assert!(read_part(&mut client, &file, 0, WRITE_BYTES).unwrap()[..] == content[..WRITE_BYTES as usize]);
    assert!(machine.disk.fetches() > before, "it was read again");
    // A bad sector is reported each time, and the bytes beside it are read.
    let segment = first_segment(&machine);
    let len = machine.disk.open(&segment).unwrap().len().unwrap();
    machine.disk.wear_out(&segment, 0..len).unwrap();
    let far = 40 * WRITE_BYTES;
    for _ in 0..3 {
        assert_eq!(read_part(&mut client, &file, far, WRITE_BYTES).unwrap_err().reason, Reason::InputOutput);
    }
}

#[test]
fn a_copy_that_went_bad_in_memory_is_read_again_and_a_bad_medium_is_never_answered() {
    let machine = with_memory(64 * KIB, 1 << 20);
    let mut client = machine.serve();
    let states = load(&mut client, 4, &mut Rng::new(7));
    let (stamp, content) = &states[0];
    let file = open_at(&mut client, "/f", *stamp);
    let all = |client: &mut TestConnection| {
        (0..SLOTS).map(|slot| read_part(client, &file, slot * WRITE_BYTES, WRITE_BYTES)).collect::<Vec<_>>()
    };
    all(&mut client);
    let segment = first_segment(&machine);
    for at in (0..FILE_BYTES).step_by(1001) {
        machine.disk.stain(&segment, at, (at % 8) as u8).unwrap();
    }
    for (slot, read) in all(&mut client).into_iter().enumerate() {
        assert!(read.unwrap()[..] == content[slot * WRITE_BYTES as usize..][..WRITE_BYTES as usize], "slot {slot}");
    }
    let healed = memory(&mut client).healed;
    assert!(healed >= SLOTS / 2, "{healed} copies were read again");
    // The medium itself.
    for at in (0..FILE_BYTES).step_by(1001) {
        machine.disk.flip_bit(&segment, at, (at % 8) as u8).unwrap();
    }
    for _ in 0..2 {
        let wrong = all(&mut client).into_iter().filter(Result::is_err).count();
        assert!(wrong >= SLOTS as usize / 2, "{wrong} of {SLOTS}");
    }
    for (slot, read) in all(&mut client).into_iter().enumerate() {
        match read {
            Err(fault) => assert_eq!(fault.reason, Reason::Corrupt),
            Ok(read) => assert!(read[..] == content[slot * WRITE_BYTES as usize..][..read.len()]),
        }
    }
}

#[test]
fn forgotten_history_leaves_memory_too() {
    let machine = with_memory(64 * KIB, 8 << 20);
    let mut client = machine.serve();
    let states = load(&mut client, 4, &mut Rng::new(8));
    let file = open_at(&mut client, "/f", states[0].0);
    let secret = read_part(&mut client, &file, 0, WRITE_BYTES).unwrap();
    client.close_session();
    client.forget("/f", states[2].0);
    client.server.reclaim().unwrap();
    let again = client.at("/f", states[0].0).unwrap_err();
    assert_eq!(again.reason, Reason::HistoryExpired);
    for name in machine.disk.list().unwrap().iter().filter(|name| name.starts_with("seg-")) {
        let file = machine.disk.open(name).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut bytes).unwrap();
        let middle = &secret[5000..9000];
        assert!(!bytes.windows(middle.len()).any(|window| window == middle), "{name} still has it");
    }
    assert!(client.at("/f", states[3].0).unwrap() == states[3].1);
}

/// Everything that is answered for some places of some files at some instants, refusals included.
fn answers(client: &mut TestConnection, stamps: &[u64], seed: u64) -> Vec<Result<Vec<u8>, Reason>> {
    let mut rng = Rng::new(seed);
    let mut all = Vec::new();
    for &stamp in stamps {
        for name in 0..FILES {
            let path = format!("/{name}");
            all.push(client.at(&path, stamp).map_err(|fault| fault.reason));
            let view = View { at: Some(stamp), user_at: None };
            let open = Open { target: Target::path(&*path), view, read: true, write: false, made_at: 0 };
            let Ok(Reply::Open(open)) = client.ask(Request::Open(open)) else { continue };
            for _ in 0..4 {
                let (at, len) = (rng.below(200_000), 1 + rng.below(70_000));
                all.push(read_part(client, &open.capability, at, len).map_err(|fault| fault.reason));
            }
        }
    }
    all
}

const FILES: u64 = 6;

/// The same random work on any machine: writes of all sizes, cuts, deletions, forgetting, restarts.
fn live(machine: &SimMachine, seed: u64) -> Vec<Vec<Result<Vec<u8>, Reason>>> {
    let mut rng = Rng::new(seed);
    let mut client = machine.serve();
    let mut stamps = Vec::new();
    let mut told = Vec::new();
    for round in 0..5 {
        for name in 0..FILES {
            let path = format!("/{name}");
            if client.stat(&path, View::NOW).is_err() {
                client.make(&path);
            }
            let file = client.open(&path).unwrap();
            for _ in 0..40 {
                let len = if rng.chance(8) { 1 + rng.below(90_000) } else { 1 + rng.below(400) };
                let bytes = pattern(len as usize, rng.below(256) as u8);
                let at = (!rng.chance(5)).then(|| rng.below(150_000));
                let (stamp, _) = client.write(&file, at, &bytes).unwrap();
                if rng.chance(20) {
                    stamps.push(stamp);
                }
            }
            if rng.chance(4) {
                let size = Some(rng.below(100_000));
                client.txn(Op::SetAttr(SetAttr { target: Target::path(&*path), size, ..SetAttr::default() })).unwrap();
            }
            client.fsync();
        }
        stamps.push(client.server.newest().0);
        machine.time.advance_us(1_000_000);
        if round == 2 {
            let path = format!("/{}", rng.below(FILES));
            client.close_session();
            let before = stamps[stamps.len() / 2];
            client.forget(&path, before);
            client.server.reclaim().unwrap();
            client.close_session();
        }
        if round == 3 {
            client.close_session();
            client.server.stop().unwrap();
            client = machine.serve();
        }
        client.server.close_segment();
        client.fsync();
        client.fsync();
        client.server.shelve_all();
        client.server.keep_to_memory().unwrap();
        told.push(answers(&mut client, &stamps, seed + round));
        client.close_session();
    }
    told
}

#[test]
fn how_much_memory_there_is_changes_no_answer() {
    for seed in 0..3 {
        let large = live(&with_memory(64 << 20, 64 << 20), seed);
        for (young, old) in [(4096, 4096), (64 * KIB, 100 * KIB), (300 * KIB, 1 << 20)] {
            let mut machine = with_memory(young, old);
            machine.settings.shelve_segments = 1;
            machine.settings.index_bytes_max = 64 * KIB;
            let small = live(&machine, seed);
            assert!(small == large, "seed {seed}, {young} bytes for young records and {old} for old ones");
        }
    }
}

#[test]
fn a_server_with_too_little_memory_does_not_start_and_says_how_much_it_needs() {
    let mut machine = SimMachine::new(7);
    machine.settings.memory_bytes_max = 40 << 20;
    let refused = machine.try_serve().err().unwrap();
    assert_eq!(refused.reason, Reason::InvalidArgument);
    let words = refused.message.split("at least ").nth(1).unwrap();
    let mib: u64 = words.split(' ').next().unwrap().parse().unwrap();
    machine.settings.memory_bytes_max = (mib - 1) << 20;
    assert!(machine.try_serve().is_err());
    machine.settings.memory_bytes_max = mib << 20;
    assert_eq!(memory(&mut machine.serve()).bytes_max, mib << 20);
}
