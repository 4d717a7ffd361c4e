//! Packs: what they answer while crashes, damage and later deaths come between.

use frieze_base::Rng;
use frieze_hlc::Hlc;
use frieze_testkit::bytes::random_bytes;
use frieze_wire::scrub::FindingKind;

use super::*;

const SECOND: u64 = 1_000_000;
const PATHS: [&str; 3] = ["/t/a", "/t/b", "/t/c"];

/// A machine whose files under `/t` are thinned to every fifth second.
fn thinning(seed: u64) -> (SimMachine, TestConnection) {
    let mut machine = SimMachine::new(seed);
    machine.settings.shelve_segments = 1;
    let mut client = machine.serve();
    client.mkdir("/t");
    client.set_retention("/t", "all 5s, 1/s 1min, 1/5s forever").unwrap();
    PATHS.iter().for_each(|path| drop(client.make(path)));
    (machine, client)
}

/// Writes all over the files for some seconds.
fn scribble(machine: &SimMachine, client: &mut TestConnection, rng: &mut Rng, writes: u64) {
    for _ in 0..writes {
        machine.time.advance_us(rng.below(SECOND / 5));
        let path = *rng.choose(&PATHS);
        let file = client.open(path).unwrap();
        let (offset, len) = (rng.below(200_000), 1 + rng.below(9000));
        client.write(&file, Some(offset), &random_bytes(rng.next(), len as usize)).unwrap();
    }
}

/// Writes over the same bytes of each file, many times a second.
fn overwrite(machine: &SimMachine, client: &mut TestConnection) {
    for number in 0..60_u64 {
        machine.time.advance_us(SECOND / 20);
        for path in PATHS {
            let file = client.open(path).unwrap();
            client.write(&file, Some(0), &random_bytes(number, 9000)).unwrap();
        }
    }
}

/// Marks are raised and all segments closed and indexed: what died may be packed.
fn prepare(machine: &SimMachine, client: &mut TestConnection) -> Result<(), Fault> {
    machine.time.advance_us(30 * SECOND);
    client.fsync();
    client.server.thin()?;
    client.server.close_segment();
    client.fsync();
    client.fsync();
    client.server.shelve_all();
    client.server.reclaim()
}

/// What is answered at many instants: bytes, or the refusal.
type Answers = Vec<(&'static str, u64, Result<Vec<u8>, Reason>)>;

fn answers(client: &mut TestConnection, instants: &[u64]) -> Answers {
    let mut all = Vec::new();
    for path in PATHS {
        for &at in instants {
            all.push((path, at, client.at(path, at).map_err(|fault| fault.reason)));
        }
    }
    all
}

fn same(found: &Answers, expected: &Answers, when: &str) {
    for ((path, at, found), (.., expected)) in found.iter().zip(expected) {
        assert!(found == expected, "{when}: {path} at {at}: {:?}, {:?}", found.as_ref().err(), expected.as_ref().err());
    }
}

/// Instants up to now, kept ones and others.
fn instants(client: &TestConnection, began: u64, rng: &mut Rng) -> Vec<u64> {
    let ended = client.server.newest().micros();
    let any = (0..30).map(|_| Hlc::last_of_micros(began + rng.below(ended - began)).0);
    let kept = (began / (5 * SECOND) + 1..=ended / (5 * SECOND)).map(|count| Hlc::last_of_micros(count * 5 * SECOND).0);
    any.chain(kept).collect()
}

/// The names of the packs on the disk.
fn packs_of(machine: &SimMachine) -> Vec<String> {
    machine.disk.list().unwrap().into_iter().filter(|name| name.starts_with("pack-")).collect()
}

/// Rounds of the test with crashes; `FRIEZE_PACK_ROUNDS` plays more.
fn rounds() -> u64 {
    std::env::var("FRIEZE_PACK_ROUNDS").ok().and_then(|count| count.parse().ok()).unwrap_or(20)
}

#[test]
fn no_crash_while_records_are_packed_changes_an_answer() {
    let (mut machine, mut client) = thinning(7);
    let began = client.server.newest().micros();
    let mut rng = Rng::new(3);
    let (mut crashes, mut packed) = (0, 0);
    for round in 0..rounds() {
        scribble(&machine, &mut client, &mut rng, 25);
        prepare(&machine, &mut client).unwrap();
        let instants = instants(&client, began, &mut rng);
        let expected = answers(&mut client, &instants);
        machine.disk.fail_after(round + 1);
        let done = client.server.pack().and_then(|_| client.server.pack());
        crashes += u64::from(done.is_err());
        drop(client);
        match round % 3 {
            0 => machine.crash(CrashKind::Process),
            _ => machine.lose_power(),
        }
        client = machine.serve();
        // Before anything is found dead again, and after.
        same(&answers(&mut client, &instants), &expected, &format!("round {round}, after the start"));
        client.server.reclaim().unwrap();
        client.server.thin().unwrap();
        same(&answers(&mut client, &instants), &expected, &format!("round {round}, after a pass"));
        packed = packed.max(client.server.packs());
        let found = client.server.check_up();
        assert_eq!((found.wrong, found.scrub.findings.len()), (Vec::<String>::new(), 0), "round {round}");
    }
    assert!(crashes > rounds() / 2 && packed > 0, "{crashes} crashes, {packed} packs");
    // Whatever the last round packed, something is due now.
    scribble(&machine, &mut client, &mut rng, 200);
    prepare(&machine, &mut client).unwrap();
    // What is made anew comes before what is new.
    let freed: u64 = (0..10).map(|_| client.server.pack().unwrap()).sum();
    assert!(freed > 0, "space comes back");
}

#[test]
fn a_damaged_pack_is_reported_by_file_and_its_index_is_made_whole_from_the_other() {
    let (machine, mut client) = thinning(8);
    let began = client.server.newest().micros();
    let mut rng = Rng::new(4);
    scribble(&machine, &mut client, &mut rng, 200);
    prepare(&machine, &mut client).unwrap();
    client.server.pack().unwrap();
    client.server.pack().unwrap();
    let names = packs_of(&machine);
    assert!(!names.is_empty());
    assert_eq!(client.scrub().damaged, 0);
    let instants = instants(&client, began, &mut rng);
    let expected = answers(&mut client, &instants);
    // The first index lies behind the payloads; its place is in the head.
    let file = machine.disk.open(&names[0]).unwrap();
    let long = |at: u64| {
        let mut bytes = [0; 8];
        file.read_at(at, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    };
    let (places_end, first_index) = (long(32), long(56));
    let (second_index, directory, table) = (long(64), long(80), long(72));
    for at in [20, 4096 + 20, first_index + 4, second_index + 4, first_index + directory + 1, second_index + table + 1]
    {
        machine.disk.flip_bit(&names[0], at, 2).unwrap();
        drop(client);
        client = machine.serve();
        same(&answers(&mut client, &instants), &expected, &format!("with damage at byte {at}"));
        assert!(client.server.check_up().wrong.iter().any(|words| words.contains(&names[0])), "byte {at}");
        // The check has mended it.
        let words = client.server.repairs().join("; ");
        assert!(words.contains("is whole again"), "byte {at}: {words}");
        assert_eq!(client.server.check_up().found(), 0, "byte {at}");
    }
    // A block of both indexes: its files cannot be read, and all else goes on.
    for at in [first_index + 4, second_index + 4] {
        machine.disk.flip_bit(&names[0], at, 2).unwrap();
    }
    drop(client);
    client = machine.serve();
    let found = answers(&mut client, &instants);
    assert!(found.iter().any(|(.., answer)| *answer == Err(Reason::Corrupt)));
    let reply = client.scrub();
    assert!(reply.findings.iter().any(|finding| finding.kind() == FindingKind::Index), "{reply:?}");
    for at in [first_index + 4, second_index + 4] {
        machine.disk.flip_bit(&names[0], at, 2).unwrap();
    }
    assert_eq!(client.scrub().damaged, 0);
    // A byte of a payload.
    machine.disk.flip_bit(&names[0], (8192 + places_end) / 2, 5).unwrap();
    let refused = answers(&mut client, &instants).into_iter().filter(|(.., answer)| *answer == Err(Reason::Corrupt));
    assert!(refused.count() > 0, "no state shows it");
    let reply = client.scrub();
    assert!(reply.damaged > 0);
    for finding in &reply.findings {
        assert!(PATHS.iter().any(|path| path.as_bytes() == finding.path), "{finding:?}");
        assert_eq!(finding.kind(), FindingKind::Data, "{finding:?}");
    }
    machine.disk.flip_bit(&names[0], (8192 + places_end) / 2, 5).unwrap();
    assert_eq!(client.scrub().damaged, 0);
    same(&answers(&mut client, &instants), &expected, "whole again");
    // Without the pack the server does not start: what it had would read as if it had never been.
    client.server.stop().unwrap();
    drop(client);
    machine.disk.rename(&names[0], "elsewhere").unwrap();
    let refused = machine.try_serve().map(drop).unwrap_err();
    assert!(refused.reason == Reason::Corrupt && refused.message.contains("serve_damaged"), "{refused}");
    machine.disk.rename("elsewhere", &names[0]).unwrap();
    same(&answers(&mut machine.serve(), &instants), &expected, "with the pack again");
}

#[test]
fn a_list_of_packs_that_is_missing_or_damaged_costs_no_pack() {
    let (machine, mut client) = thinning(12);
    let began = client.server.newest().micros();
    let mut rng = Rng::new(8);
    for _ in 0..2 {
        scribble(&machine, &mut client, &mut rng, 150);
        prepare(&machine, &mut client).unwrap();
        client.server.pack().unwrap();
        client.server.pack().unwrap();
    }
    let instants = instants(&client, began, &mut rng);
    let expected = answers(&mut client, &instants);
    client.server.stop().unwrap();
    drop(client);
    // A start removes those that newer ones took the place of.
    machine.serve().server.stop().unwrap();
    let packs = packs_of(&machine);
    assert!(!packs.is_empty());
    machine.disk.rename("packs", "apart").unwrap();
    for _ in 0..2 {
        let refused = machine.try_serve().map(drop).unwrap_err();
        assert!(refused.reason == Reason::Corrupt && refused.message.contains("the list of packs"), "{refused}");
        assert_eq!(packs_of(&machine), packs, "all are there");
    }
    machine.disk.rename("apart", "packs").unwrap();
    // Either slot: the other has the same list.
    for slot in [0, 256 << 10] {
        machine.disk.flip_bit("packs", slot + 24, 3).unwrap();
        let mut client = machine.serve();
        same(&answers(&mut client, &instants), &expected, &format!("slot at {slot}"));
        client.server.stop().unwrap();
        assert_eq!(packs_of(&machine), packs, "all are there");
    }
}

#[test]
fn the_space_of_packed_records_comes_back_when_the_readers_of_each_pack_have_ended() {
    const READERS_NS: u64 = 20_000_000_000;
    let (machine, mut client) = thinning(13);
    // All that may be packed: what is made anew comes before what is new.
    let pack =
        |client: &TestConnection| -> u64 { (0..3).map(|_| client.server.pack_with_readers(READERS_NS).unwrap()).sum() };
    overwrite(&machine, &mut client);
    prepare(&machine, &mut client).unwrap();
    assert_eq!(pack(&client), 0, "their wait begins");
    overwrite(&machine, &mut client);
    // 30 s pass, and what comes next is packed when the first wait is over.
    prepare(&machine, &mut client).unwrap();
    let packs = client.server.packs();
    assert!(pack(&client) > 0, "of the first packs");
    // Files are thinned again beside it: what was packed a moment ago stays all the same.
    client.server.thin().unwrap();
    machine.time.advance_us(READERS_NS / 2000);
    assert_eq!(pack(&client), 0, "the others still wait, though packs became one");
    assert_eq!(client.server.packs(), packs);
    machine.time.advance_us(READERS_NS / 2000);
    assert!(pack(&client) > 0);
    assert_eq!(pack(&client), 0, "once");
    // A start has no readers: nothing waits.
    overwrite(&machine, &mut client);
    prepare(&machine, &mut client).unwrap();
    assert_eq!(pack(&client), 0);
    client.server.stop().unwrap();
    drop(client);
    let client = machine.serve();
    assert!(pack(&client) > 0);
}

#[test]
fn a_full_disk_is_not_packed_and_answers_as_before() {
    let mut machine = SimMachine::new(11);
    machine.disk = SimDisk::with_capacity(11, 256 << 20);
    machine.settings.shelve_segments = 1;
    let mut client = machine.serve();
    client.mkdir("/t");
    client.set_retention("/t", "all 5s, 1/s 1min, 1/5s forever").unwrap();
    PATHS.iter().for_each(|path| drop(client.make(path)));
    let began = client.server.newest().micros();
    let mut rng = Rng::new(7);
    scribble(&machine, &mut client, &mut rng, 200);
    prepare(&machine, &mut client).unwrap();
    let instants = instants(&client, began, &mut rng);
    let expected = answers(&mut client, &instants);
    let free = machine.disk.space().unwrap().free_bytes;
    machine.disk.create("ballast", free - machine.settings.reserve_bytes - (64 << 10)).unwrap();
    let refused = client.server.pack().unwrap_err();
    assert!(refused.reason == Reason::NoSpace && refused.message.contains("no room for a pack"), "{refused}");
    assert_eq!((client.server.packs(), packs_of(&machine).len()), (0, 0));
    same(&answers(&mut client, &instants), &expected, "full");
    machine.disk.remove("ballast").unwrap();
    client.server.pack().unwrap();
    assert!(client.server.packs() > 0);
    same(&answers(&mut client, &instants), &expected, "packed");
}

#[test]
fn a_full_disk_says_which_policy_would_free_how_much() {
    let mut machine = SimMachine::new(12);
    machine.disk = SimDisk::with_capacity(12, 256 << 20);
    let mut client = machine.serve();
    client.make("/a");
    let file = client.open("/a").unwrap();
    let bytes = vec![7; 250_000];
    for _ in 0..80 {
        client.write(&file, Some(0), &bytes).unwrap();
    }
    machine.time.advance_us(7200 * SECOND);
    client.server.advise_on_space().unwrap();
    let free = machine.disk.space().unwrap().free_bytes;
    machine.disk.create("ballast", free - machine.settings.reserve_bytes).unwrap();
    client.server.advise_on_space().unwrap();
    let mut client = machine.connect(client.server.clone(), Caller::root());
    let file = client.open("/a").unwrap();
    let fault = loop {
        if let Err(fault) = client.write(&file, Some(0), &bytes) {
            break fault;
        }
    };
    assert_eq!(fault.reason, Reason::NoSpace);
    // What was just written is kept by each policy; the 79 versions before it are not.
    let words = "`frieze retention set 'all 1h, 1/h 1d, 1/day 30d' /` would free 18 MiB";
    assert!(fault.message.contains(words), "{fault}");
}

#[test]
fn packs_become_few_and_small_as_history_is_thinned_further() {
    let mut machine = SimMachine::new(9);
    machine.settings.shelve_segments = 1;
    let mut client = machine.serve();
    client.mkdir("/t");
    client.set_retention("/t", "all 1s, 1/s 1min, 1/1min forever").unwrap();
    PATHS.iter().for_each(|path| drop(client.make(path)));
    let mut rng = Rng::new(5);
    let mut sizes = Vec::new();
    for _ in 0..12 {
        scribble(&machine, &mut client, &mut rng, 60);
        prepare(&machine, &mut client).unwrap();
        client.server.pack().unwrap();
        client.server.pack().unwrap();
        sizes.push(client.server.packs());
    }
    let chains = client.server.chains().len().max(1);
    machine.time.advance_us(200 * SECOND);
    prepare(&machine, &mut client).unwrap();
    for _ in 0..3 {
        client.server.pack().unwrap();
    }
    assert!(client.server.packs() <= 5 * chains.max(16), "{sizes:?}");
    assert_eq!(packs_of(&machine).len(), client.server.packs(), "nothing else is left on the disk");
    assert_eq!(client.server.check_up().found(), 0);
}

#[test]
fn the_versions_of_a_file_are_listed_as_before() {
    let (machine, mut client) = thinning(10);
    scribble(&machine, &mut client, &mut Rng::new(6), 200);
    let file = client.open("/t/a").unwrap();
    for number in 0..100_u8 {
        machine.time.advance_us(SECOND / 20);
        client.write(&file, Some(0), &[number; 3000]).unwrap();
    }
    prepare(&machine, &mut client).unwrap();
    let listed = |client: &mut TestConnection| -> Vec<u64> {
        let ask = Log { target: Target::path("/t/a"), count_max: 1000, ..Log::default() };
        let Reply::Log(log) = client.ask(Request::Log(ask)).unwrap() else { panic!("no log") };
        log.versions.iter().map(|version| version.stamp).collect()
    };
    let before = listed(&mut client);
    assert!(before.len() > 20);
    let inode = InodeId(client.stat("/t/a", View::NOW).unwrap().attr.inode);
    client.server.pack().unwrap();
    assert_eq!(listed(&mut client), before);
    // An undo asks whether others wrote, also where what they wrote is not there any more.
    let losses = client.server.losses(inode).unwrap();
    assert!(!losses.is_empty() && losses.iter().all(|(by, ..)| by.is_some()), "{losses:?}");
    client.server.pack().unwrap();
    drop(client);
    let mut client = machine.serve();
    assert_eq!(listed(&mut client), before);
    assert_eq!(client.server.losses(inode).unwrap(), losses);
}
