//! Scrubbing through the server: damage is named by file, range and instant, and stays a finding until it is repaired.

use std::cell::Cell;
use std::ops::Range;
use std::time::Duration;

use super::*;
use frieze_testkit::bytes::random_bytes;
use frieze_wire::scrub::{Finding, FindingKind, ScrubAction, ScrubState};

fn health(client: &mut TestConnection) -> (String, u64) {
    let status = client.status();
    (status.health, status.damaged)
}

const FIRST_SEGMENT: &str = "seg-0000000000000001";

/// Path, range, from, until, deleted.
fn told(finding: &Finding) -> (String, Range<u64>, u64, u64, u64) {
    let path = String::from_utf8(finding.path.clone()).unwrap();
    (path, finding.start..finding.end, finding.from, finding.until, finding.deleted)
}

#[test]
fn a_scrub_of_a_sound_device_has_no_findings() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    assert_eq!(client.scrub_state().state(), ScrubState::Never);
    assert!(!machine.disk.list().unwrap().contains(&"scrub".to_owned()), "nothing to remember yet");
    let file = client.make("/f");
    for n in 0..40 {
        client.write(&file, Some(n * 100), &random_bytes(n, 50_000)).unwrap();
    }
    let reply = client.scrub();
    assert_eq!((reply.damaged, reply.findings.len(), reply.records), (0, 0, 40));
    assert!(reply.done_bytes > 40 * 50_000 && reply.finished >= reply.started, "{reply:?}");
    assert_eq!(health(&mut client), ("healthy".to_owned(), 0));
}

#[test]
fn a_flipped_bit_is_named_by_file_range_and_instants_and_never_read() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/d");
    let file = client.make("/d/f");
    let (one, two) = (random_bytes(1, 60_000), random_bytes(2, 60_000));
    let (from, _) = client.write(&file, Some(100), &one).unwrap();
    // In the second block of the payload.
    machine.rot(&one, 20_000);
    client.rename("/d/f", "/d/g").unwrap();
    let reply = client.scrub();
    assert_eq!(reply.damaged, 1);
    let range = 100 + 16_384..100 + 32_768;
    assert_eq!(told(&reply.findings[0]), ("/d/g".to_owned(), range.clone(), from, 0, 0));
    assert_eq!(reply.findings[0].kind(), FindingKind::Data);
    let (health, damaged) = health(&mut client);
    assert!(health.contains("damaged in 1 place") && damaged == 1, "{health}");
    let fault = client.read("/d/g", View::NOW).unwrap_err();
    assert_eq!(fault.reason, Reason::Corrupt);
    assert!(fault.message.contains("is not returned"), "{}", fault.message);

    // Overwritten, it shows only at the instants in between; deleted, it keeps its former name.
    let file = client.open("/d/g").unwrap();
    let (over, _) = client.write(&file, Some(100), &two).unwrap();
    let reply = client.scrub();
    assert_eq!(told(&reply.findings[0]), ("/d/g".to_owned(), range.clone(), from, over, 0));
    assert_eq!(client.read("/d/g", View::NOW).unwrap()[100..], two[..]);
    assert_eq!(client.at("/d/g", over).unwrap()[100..], two[..]);
    assert_eq!(client.at("/d/g", over - 1).unwrap_err().reason, Reason::Corrupt);
    assert_eq!(client.at("/d/f", from - 1).unwrap(), b"", "before it was written there is nothing to miss");
    let gone = client.remove("/d/g", false).unwrap();
    let reply = client.scrub();
    assert_eq!(told(&reply.findings[0]), ("/d/g".to_owned(), range, from, over, gone));
}

#[test]
fn a_truncate_ends_the_instants_at_which_damage_shows() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    let one = random_bytes(1, 40_000);
    let (from, _) = client.write(&file, Some(0), &one).unwrap();
    machine.rot(&one, 39_000);
    let until = client.truncate("/f", 30_000);
    let reply = client.scrub();
    assert_eq!(told(&reply.findings[0]), ("/f".to_owned(), 32_768..40_000, from, until, 0));
}

#[test]
fn findings_outlive_a_restart_and_go_when_a_later_scrub_finds_none() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    let one = random_bytes(1, 40_000);
    client.write(&file, Some(0), &one).unwrap();
    machine.rot(&one, 5);
    let before = client.scrub();
    assert_eq!(before.damaged, 1);
    client.server.stop().unwrap();
    drop(client);
    let mut client = machine.serve();
    assert_eq!(client.scrub_state(), before);
    assert_eq!(health(&mut client).1, 1);
    // An operator repairs it by hand: it stays a finding until the next scrub.
    let (name, at) = machine.find(&one[64..128]);
    machine.disk.flip_bit(&name, at - 64 + 5, 3).unwrap();
    assert_eq!(client.scrub_state().damaged, 1);
    assert_eq!(client.scrub().damaged, 0);
    assert_eq!(health(&mut client), ("healthy".to_owned(), 0));
    drop(client);
    assert_eq!(machine.serve().scrub_state().damaged, 0);
}

#[test]
fn what_was_forgotten_is_no_damage() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    for n in 0..20 {
        client.write(&file, Some(0), &random_bytes(n, 60_000)).unwrap();
    }
    let now = client.server.newest().0;
    client.close_session();
    let reply = client.forget("/f", now);
    assert!(reply.freed_bytes > 900_000, "{reply:?}");
    assert_eq!(client.scrub().damaged, 0);
    drop(client);
    // The first scrub of a new life has to know it too.
    let mut client = machine.serve();
    assert_eq!(client.scrub().damaged, 0);
    assert_eq!(client.scrub_state().records, 1);
}

#[test]
fn damage_of_the_log_itself_is_named_and_harms_no_reader() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    let one = random_bytes(1, 60_000);
    // More than a segment: the first gets its footer.
    for n in 0..150u64 {
        let bytes = if n == 0 { one.clone() } else { random_bytes(1000 + n, 60_000) };
        client.write(&file, Some(0), &bytes).unwrap();
    }
    client.server.flush().unwrap();
    assert_eq!(client.scrub().damaged, 0);
    let (name, payload) = machine.find(&one[..64]);
    assert_eq!(name, FIRST_SEGMENT);
    let checks =
        [(8u64, FindingKind::SegmentHeader), (payload - 20, FindingKind::Header), ((8 << 20) - 1, FindingKind::Footer)];
    for (at, kind) in checks {
        machine.disk.flip_bit(FIRST_SEGMENT, at, 1).unwrap();
        let reply = client.scrub();
        assert_eq!((reply.damaged, reply.findings[0].kind()), (1, kind), "{reply:?}");
        assert!((reply.findings[0].at..reply.findings[0].at + reply.findings[0].len).contains(&at));
        assert!(client.read("/f", View::NOW).is_ok());
        machine.disk.flip_bit(FIRST_SEGMENT, at, 1).unwrap();
    }
    assert_eq!(client.scrub().damaged, 0);
}

#[test]
fn a_scrub_reports_unreadable_records_with_the_words_of_the_device_and_continues() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    let other = client.make("/other");
    let (one, two) = (random_bytes(1, 60_000), random_bytes(2, 60_000));
    client.write(&file, Some(0), &one).unwrap();
    client.write(&other, Some(0), &two).unwrap();
    let (name, at) = machine.find(&one[..64]);
    machine.rot(&two, 0);
    machine.disk.wear_out(&name, at + 40_000..at + 40_001).unwrap();
    let reply = client.scrub();
    let paths: Vec<_> = reply.findings.iter().map(|finding| told(finding).0).collect();
    assert_eq!(paths, ["/f", "/other"]);
    assert!(reply.findings[0].unread.contains("cannot read"), "{}", reply.findings[0].unread);
    assert_eq!((reply.findings[0].start, reply.findings[0].end), (32_768, 49_152));
    assert_eq!(reply.findings[1].unread, "");
}

#[test]
fn a_scrub_is_stopped_and_one_that_a_restart_cut_goes_on_where_it_was() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    for n in 0..400u64 {
        client.write(&file, Some(0), &random_bytes(n, 60_000)).unwrap();
    }
    client.server.flush().unwrap();
    let all = client.scrub();
    let (reads, most) = (Cell::new(0), Cell::new(Duration::ZERO));
    let count = |wait: Duration| {
        reads.set(reads.get() + 1);
        most.set(most.get().max(wait));
        reads.get() <= 12
    };
    client.ask_scrub(ScrubAction::Start).unwrap();
    client.server.scrub(&count).unwrap();
    let half = client.scrub_state();
    assert_eq!(half.state(), ScrubState::Running);
    assert!(half.done_bytes > 0 && half.done_bytes < half.all_bytes, "{half:?}");
    // A mebibyte takes a sixty-fourth of a second.
    assert!(most.get() > Duration::from_millis(15) && most.get() < Duration::from_millis(17), "{:?}", most.get());
    client.server.stop().unwrap();
    drop(client);
    machine.time.advance_us(60_000_000);
    let mut client = machine.serve();
    assert_eq!(client.scrub_state().state(), ScrubState::Running);
    client.server.scrub(&|_| true).unwrap();
    let reply = client.scrub_state();
    assert_eq!((reply.state(), reply.records, reply.damaged), (ScrubState::Finished, all.records, 0));

    client.ask_scrub(ScrubAction::Start).unwrap();
    reads.set(0);
    client.server.scrub(&count).unwrap();
    let stopped = client.ask_scrub(ScrubAction::Stop).unwrap();
    assert_eq!(stopped.state(), ScrubState::Stopped);
    client.server.scrub(&|_| panic!("there is nothing to go on with")).unwrap();
    assert_eq!(client.scrub_state().finished, reply.finished, "the last that saw everything");
}

#[test]
fn only_administrators_start_a_scrub_or_see_its_findings() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    let one = random_bytes(1, 40_000);
    client.write(&file, Some(0), &one).unwrap();
    machine.rot(&one, 5);
    client.scrub();
    let server = client.server.clone();
    let mut other = machine.connect(server, Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    for action in [ScrubAction::Look, ScrubAction::Start, ScrubAction::Stop] {
        let fault = other.ask_scrub(action).unwrap_err();
        assert_eq!(fault.reason, Reason::NotPermitted);
        assert!(fault.message.contains("only root"), "{}", fault.message);
    }
    let (health, damaged) = health(&mut other);
    assert!(damaged == 1 && !health.contains("/f"), "how many, not which: {health}");
}

#[test]
fn more_places_than_are_remembered_are_counted() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    let all: Vec<Vec<u8>> = (0..530).map(|n| random_bytes(n, 100)).collect();
    for (n, bytes) in all.iter().enumerate() {
        client.write(&file, Some(100 * n as u64), bytes).unwrap();
    }
    let (name, first) = machine.find(&all[0]);
    let stride = machine.find(&all[1]).1 - first;
    for n in 0..530 {
        machine.disk.flip_bit(&name, first + n * stride, 1).unwrap();
    }
    for _ in 0..2 {
        let reply = client.scrub();
        assert_eq!((reply.damaged, reply.findings.len()), (530, 500));
    }
    for n in 0..530 {
        machine.disk.flip_bit(&name, first + n * stride, 1).unwrap();
    }
    assert_eq!(client.scrub().damaged, 0);
}

#[test]
fn what_is_forgotten_while_a_scrub_reads_is_no_damage() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    for n in 0..40 {
        client.write(&file, Some(0), &random_bytes(n, 60_000)).unwrap();
    }
    let now = client.server.newest().0;
    client.close_session();
    let mut other = machine.connect(client.server.clone(), Caller::root());
    let forgotten = Cell::new(0);
    client.ask_scrub(ScrubAction::Start).unwrap();
    let other = std::cell::RefCell::new(&mut other);
    let server = client.server.clone();
    let forget = |_| {
        // When the first mebibyte has been read, not the rest.
        if forgotten.get() == 0 {
            forgotten.set(other.borrow_mut().forget("/f", now).freed_bytes);
        }
        true
    };
    server.scrub(&forget).unwrap();
    assert!(forgotten.get() > 2_000_000, "{}", forgotten.get());
    assert_eq!(client.scrub_state().damaged, 0);
}

#[test]
fn writes_to_an_inode_that_never_was_and_names_of_it_are_found_by_a_checkup() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.write(&file, Some(0), &random_bytes(1, 1000)).unwrap();
    client.server.stop().unwrap();
    assert_eq!(client.server.check_up().wrong, Vec::<String>::new());
    let inode = client.stat("/f", View::NOW).unwrap().attr.inode;
    drop(client);
    // Every version of the inode goes: its number lies behind the letter, zeros escaped.
    let escaped = |byte: u8| if byte == 0 { vec![0, 0xff] } else { vec![byte] };
    let prefix = [b"I".to_vec(), inode.to_be_bytes().into_iter().flat_map(escaped).collect()].concat();
    let versions: Vec<Vec<u8>> =
        machine.store.items(&prefix, &[&prefix[..], &[0xff; 20]].concat()).map(|item| item.unwrap().0).collect();
    assert!(!versions.is_empty());
    let mut removals = StoreBatch::default();
    versions.iter().for_each(|key| removals.remove(key));
    let applied = machine.store.applied().unwrap();
    machine.store.seal(&removals, applied);
    machine.store.settle(applied).unwrap();
    let wrong = machine.serve().server.check_up().wrong;
    let all = wrong.join("\n");
    assert!(all.contains(&format!("there are writes to inode {inode}, which there never was")), "{all}");
    assert!(all.contains(&format!("names inode {inode}, which there is not")), "{all}");
}

/// The shelves of a machine that makes one for each segment, over files with writes in two segments.
fn shelved(machine: &SimMachine) -> (TestConnection, Vec<String>) {
    let mut client = machine.serve();
    for round in 0..2 {
        for name in ["/a", "/b"] {
            let file = match round {
                0 => client.make(name),
                _ => client.open(name).unwrap(),
            };
            client.write(&file, Some(round * 100_000), &random_bytes(round + 7, 50_000)).unwrap();
        }
        client.server.close_segment();
        client.fsync();
        client.fsync();
        client.server.shelve_all();
    }
    let names = machine.disk.list().unwrap().into_iter().filter(|name| name.starts_with("shelf-")).collect();
    (client, names)
}

#[test]
fn a_scrub_reads_the_index_on_disk_and_makes_anew_what_is_damaged_of_it() {
    let mut machine = SimMachine::new(7);
    machine.settings.shelve_segments = 1;
    let (mut client, names) = shelved(&machine);
    let before = [client.read("/a", View::NOW).unwrap(), client.read("/b", View::NOW).unwrap()];
    assert_eq!(client.scrub().mended, 0);
    // Rot in a block of one, a sector of another that cannot be read.
    machine.disk.flip_bit(&names[0], 300, 2).unwrap();
    if let Some(other) = names.get(1) {
        machine.disk.wear_out(other, 0..512).unwrap();
    }
    let reply = client.scrub();
    assert_eq!((reply.mended, reply.damaged), (names.len() as u64, 0), "{reply:?}");
    assert_eq!(client.server.repairs().len(), names.len());
    let reply = client.scrub();
    assert_eq!((reply.mended, reply.damaged), (0, 0), "{reply:?}");
    assert!(before == [client.read("/a", View::NOW).unwrap(), client.read("/b", View::NOW).unwrap()]);
    // If the footer of its segment is lost too, a shelf cannot be rebuilt: that is reported, and does not keep a scrub
    // from ending.
    let names: Vec<String> =
        machine.disk.list().unwrap().into_iter().filter(|name| name.starts_with("shelf-")).collect();
    machine.disk.flip_bit(&names[0], 300, 2).unwrap();
    let len = machine.disk.open(FIRST_SEGMENT).unwrap().len().unwrap();
    machine.disk.flip_bit(FIRST_SEGMENT, len - 130, 1).unwrap();
    let reply = client.scrub();
    let mut kinds: Vec<FindingKind> = reply.findings.iter().map(Finding::kind).collect();
    kinds.sort_unstable();
    assert_eq!((reply.mended, kinds), (0, vec![FindingKind::Footer, FindingKind::Index]), "{reply:?}");
}

#[test]
fn damage_that_a_reader_meets_is_checked_and_reported_without_a_scrub() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.make("/f");
    let (file, bytes) = (client.open("/f").unwrap(), random_bytes(3, 100_000));
    let (stamp, _) = client.write(&file, Some(5000), &bytes).unwrap();
    client.fsync();
    machine.rot(&bytes, 70_000);
    let reads = |client: &mut TestConnection| match client.ask(Request::Status(Status {})) {
        Ok(Reply::Status(status)) => (status.corrupt_reads, status.damaged),
        other => panic!("{other:?}"),
    };
    assert_eq!(reads(&mut client), (0, 0));
    for count in 1..=3 {
        assert_eq!(client.read("/f", View::NOW).unwrap_err().reason, Reason::Corrupt);
        assert_eq!(reads(&mut client), (count, 0), "nobody has looked yet");
    }
    // As the scrub thread does it, stopped at first.
    client.server.scrub(&|_| false).unwrap();
    assert_eq!(reads(&mut client).1, 0);
    let looks = Cell::new(0);
    let look = |_| {
        looks.set(looks.get() + 1);
        true
    };
    client.server.scrub(&look).unwrap();
    let reply = client.scrub_state();
    assert_eq!((reply.state(), reply.damaged), (ScrubState::Never, 1), "{reply:?}");
    let finding = &reply.findings[0];
    assert_eq!(
        (finding.kind(), &finding.path[..], finding.from),
        (FindingKind::Data, &b"/f"[..], stamp),
        "{finding:?}"
    );
    assert!(finding.start <= 75_000 && 75_000 < finding.end, "{finding:?}");
    // Readers come back: it is not looked at again at once.
    looks.set(0);
    assert_eq!(client.read("/f", View::NOW).unwrap_err().reason, Reason::Corrupt);
    client.server.scrub(&look).unwrap();
    assert_eq!((looks.get(), reads(&mut client)), (0, (4, 1)));
    // Known over a restart, until a scrub has found it whole.
    drop(client);
    let mut client = machine.serve();
    assert_eq!(reads(&mut client), (0, 1));
    machine.rot(&bytes, 70_000);
    assert_eq!(client.scrub().damaged, 0);
}

#[test]
fn a_scrub_begins_by_itself_once_in_a_while_and_reads_slowly() {
    let mut machine = SimMachine::new(7);
    machine.settings.scrub_every = Duration::from_secs(3600);
    let mut client = machine.serve();
    client.make("/f");
    let file = client.open("/f").unwrap();
    for _ in 0..15 {
        client.write(&file, Some(0), &random_bytes(1, 200_000)).unwrap();
    }
    let due = |client: &mut TestConnection| match client.ask(Request::Status(Status {})) {
        Ok(Reply::Status(status)) => frieze_hlc::Hlc(status.scrub_due).micros(),
        other => panic!("{other:?}"),
    };
    let first = due(&mut client);
    let now = client.server.newest().micros();
    assert!(first > now + 3_500_000_000 && first <= now + 3_600_000_000, "{first} at {now}");
    client.server.scrub(&|_| true).unwrap();
    assert_eq!(client.scrub_state().state(), ScrubState::Never);
    machine.time.advance_us(3_601_000_000);
    // It is stopped after a while, and the next call continues.
    client.server.scrub(&|_| false).unwrap();
    let reply = client.scrub_state();
    assert_eq!((reply.state(), reply.bytes_per_s), (ScrubState::Running, 1 << 20), "{reply:?}");
    assert_eq!(due(&mut client), 0);
    let waited = Cell::new(Duration::ZERO);
    let pace = |wait: Duration| {
        waited.set(waited.get() + wait);
        machine.time.advance_us(wait.as_micros() as u64);
        true
    };
    client.server.scrub(&pace).unwrap();
    assert_eq!(client.scrub_state().state(), ScrubState::Finished);
    assert!(waited.get() > Duration::from_secs(2), "{:?}", waited.get());
    let next = due(&mut client);
    assert!(next > first + 3_600_000_000, "{next}");
    // An operator ended the scrub: the next is due as late as after one that finished.
    machine.time.advance_us(3_700_000_000);
    client.server.scrub(&|_| false).unwrap();
    client.ask_scrub(ScrubAction::Stop).unwrap();
    client.server.scrub(&|_| true).unwrap();
    assert_eq!(client.scrub_state().state(), ScrubState::Stopped);
    drop(client);
    // And never where it is not wanted.
    machine.settings.scrub_every = Duration::ZERO;
    let mut client = machine.serve();
    machine.time.advance_us(100_000_000_000);
    client.server.scrub(&|_| true).unwrap();
    assert_eq!((client.scrub_state().state(), due(&mut client)), (ScrubState::Stopped, 0));
}

#[test]
fn a_scrub_holds_no_lock_while_it_keeps_to_its_rate() {
    let mut machine = SimMachine::new(7);
    machine.settings.shelve_segments = 1;
    let mut client = machine.serve();
    let file = client.make("/f");
    for n in 0..40 {
        client.write(&file, Some(n * 100), &random_bytes(n, 50_000)).unwrap();
    }
    client.fsync();
    client.server.close_segment();
    client.write(&file, Some(0), b"next").unwrap();
    client.fsync();
    client.server.shelve_all();
    client.ask_scrub(ScrubAction::Start).unwrap();
    let pauses = std::cell::Cell::new(0);
    let pause = |_| {
        frieze_locks::check_may_await_signal();
        pauses.set(pauses.get() + 1);
        true
    };
    client.server.scrub(&pause).unwrap();
    assert!(pauses.get() > 0, "it has paused");
    assert_eq!(client.scrub_state().state(), ScrubState::Finished);
}
