//! Scrubbing through the engine: damage is named by file, range and instant, and stays a finding until it is repaired.

use std::cell::Cell;
use std::ops::Range;
use std::time::Duration;

use super::*;
use frieze_wire::scrub::{Finding, FindingKind, Scrub, ScrubAction, ScrubReply, ScrubState};

const FIRST_SEGMENT: &str = "seg-0000000000000001";

impl Served {
    fn scrub_asked(&mut self, action: ScrubAction) -> Result<ScrubReply, Fault> {
        let ask = Scrub { action: action as i32, bytes_per_s: 0, with_findings: true };
        match self.ask(Request::Scrub(ask))? {
            Reply::Scrub(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn scrub_state(&mut self) -> ScrubReply {
        self.scrub_asked(ScrubAction::Look).unwrap()
    }

    /// Scrubs to the end.
    pub(crate) fn scrub(&mut self) -> ScrubReply {
        self.scrub_asked(ScrubAction::Start).unwrap();
        self.engine.service.upkeep.scrub(&|_| true).unwrap();
        let reply = self.scrub_state();
        assert_eq!((reply.state(), reply.trouble.as_str()), (ScrubState::Finished, ""));
        assert_eq!(reply.done_bytes, reply.all_bytes);
        reply
    }

    fn health(&mut self) -> (String, u64) {
        match self.ask(Request::Status(Status {})) {
            Ok(Reply::Status(status)) => (status.health, status.damaged),
            other => panic!("{other:?}"),
        }
    }
}

impl Machine {
    /// Where these bytes lie in a segment.
    pub(crate) fn find(&self, needle: &[u8]) -> (String, u64) {
        for name in self.disk.list().unwrap().into_iter().filter(|name| name.starts_with("seg-")) {
            let file = self.disk.open(&name).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_at(0, &mut bytes).unwrap();
            if let Some(at) = bytes.windows(needle.len()).position(|window| window == needle) {
                return (name, at as u64);
            }
        }
        panic!("nowhere");
    }

    /// Flips a bit of what `bytes` holds at `at`.
    pub(crate) fn rot(&self, bytes: &[u8], at: usize) {
        let (name, start) = self.find(&bytes[..64]);
        self.disk.flip_bit(&name, start + at as u64, 3).unwrap();
    }
}

/// Path, range, from, until, deleted.
fn told(finding: &Finding) -> (String, Range<u64>, u64, u64, u64) {
    let path = String::from_utf8(finding.path.clone()).unwrap();
    (path, finding.start..finding.end, finding.from, finding.until, finding.deleted)
}

/// Bytes that repeat nowhere.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = frieze_base::Rng::new(seed);
    (0..len).map(|_| rng.next() as u8).collect()
}

#[test]
fn a_sound_device_has_nothing_to_tell() {
    let machine = Machine::new();
    let mut served = machine.serve();
    assert_eq!(served.scrub_state().state(), ScrubState::Never);
    assert!(!machine.disk.list().unwrap().contains(&"scrub".to_owned()), "nothing to remember yet");
    let file = served.make("/f");
    for n in 0..40 {
        served.write(&file, Some(n * 100), &noise(50_000, n)).unwrap();
    }
    let reply = served.scrub();
    assert_eq!((reply.damaged, reply.findings.len(), reply.records), (0, 0, 40));
    assert!(reply.done_bytes > 40 * 50_000 && reply.finished >= reply.started, "{reply:?}");
    assert_eq!(served.health(), ("healthy".to_owned(), 0));
}

#[test]
fn a_flipped_bit_is_named_by_file_range_and_instants_and_never_read() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/d");
    let file = served.make("/d/f");
    let (one, two) = (noise(60_000, 1), noise(60_000, 2));
    let (from, _) = served.write(&file, Some(100), &one).unwrap();
    // In the second block of the payload.
    machine.rot(&one, 20_000);
    served.rename("/d/f", "/d/g").unwrap();
    let reply = served.scrub();
    assert_eq!(reply.damaged, 1);
    let range = 100 + 16_384..100 + 32_768;
    assert_eq!(told(&reply.findings[0]), ("/d/g".to_owned(), range.clone(), from, 0, 0));
    assert_eq!(reply.findings[0].kind(), FindingKind::Data);
    let (health, damaged) = served.health();
    assert!(health.contains("damaged in 1 place") && damaged == 1, "{health}");
    let fault = served.read("/d/g", View::NOW).unwrap_err();
    assert_eq!(fault.reason, Reason::Corrupt);
    assert!(fault.message.contains("is not returned"), "{}", fault.message);

    // Overwritten, it shows only at the instants in between; deleted, it keeps its former name.
    let file = served.open("/d/g").unwrap();
    let (over, _) = served.write(&file, Some(100), &two).unwrap();
    let reply = served.scrub();
    assert_eq!(told(&reply.findings[0]), ("/d/g".to_owned(), range.clone(), from, over, 0));
    assert_eq!(served.read("/d/g", View::NOW).unwrap()[100..], two[..]);
    assert_eq!(served.at("/d/g", over).unwrap()[100..], two[..]);
    assert_eq!(served.at("/d/g", over - 1).unwrap_err().reason, Reason::Corrupt);
    assert_eq!(served.at("/d/f", from - 1).unwrap(), b"", "before it was written there is nothing to miss");
    let gone = served.remove("/d/g", false).unwrap();
    let reply = served.scrub();
    assert_eq!(told(&reply.findings[0]), ("/d/g".to_owned(), range, from, over, gone));
}

#[test]
fn a_truncate_ends_the_instants_at_which_damage_shows() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let one = noise(40_000, 1);
    let (from, _) = served.write(&file, Some(0), &one).unwrap();
    machine.rot(&one, 39_000);
    let until = served.cut_to("/f", 30_000);
    let reply = served.scrub();
    assert_eq!(told(&reply.findings[0]), ("/f".to_owned(), 32_768..40_000, from, until, 0));
}

#[test]
fn findings_outlive_a_restart_and_go_when_a_later_scrub_finds_none() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let one = noise(40_000, 1);
    served.write(&file, Some(0), &one).unwrap();
    machine.rot(&one, 5);
    let before = served.scrub();
    assert_eq!(before.damaged, 1);
    served.engine.stop().unwrap();
    drop(served);
    let mut served = machine.serve();
    assert_eq!(served.scrub_state(), before);
    assert_eq!(served.health().1, 1);
    // An operator repairs it by hand: it stays a finding until the next scrub.
    let (name, at) = machine.find(&one[64..128]);
    machine.disk.flip_bit(&name, at - 64 + 5, 3).unwrap();
    assert_eq!(served.scrub_state().damaged, 1);
    assert_eq!(served.scrub().damaged, 0);
    assert_eq!(served.health(), ("healthy".to_owned(), 0));
    drop(served);
    assert_eq!(machine.serve().scrub_state().damaged, 0);
}

#[test]
fn what_was_forgotten_is_no_damage() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    for n in 0..20 {
        served.write(&file, Some(0), &noise(60_000, n)).unwrap();
    }
    let now = served.engine.planes.newest().0;
    served.close();
    let reply = served.forget("/f", now);
    assert!(reply.freed_bytes > 900_000, "{reply:?}");
    assert_eq!(served.scrub().damaged, 0);
    drop(served);
    // The first scrub of a new life has to know it too.
    let mut served = machine.serve();
    assert_eq!(served.scrub().damaged, 0);
    assert_eq!(served.scrub_state().records, 1);
}

#[test]
fn damage_of_the_log_itself_is_named_and_harms_no_reader() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let one = noise(60_000, 1);
    // More than a segment: the first gets its footer.
    for n in 0..150u64 {
        let bytes = if n == 0 { one.clone() } else { noise(60_000, 1000 + n) };
        served.write(&file, Some(0), &bytes).unwrap();
    }
    served.engine.planes.flush().unwrap();
    assert_eq!(served.scrub().damaged, 0);
    let (name, payload) = machine.find(&one[..64]);
    assert_eq!(name, FIRST_SEGMENT);
    let checks =
        [(8u64, FindingKind::SegmentHeader), (payload - 20, FindingKind::Header), ((8 << 20) - 1, FindingKind::Footer)];
    for (at, kind) in checks {
        machine.disk.flip_bit(FIRST_SEGMENT, at, 1).unwrap();
        let reply = served.scrub();
        assert_eq!((reply.damaged, reply.findings[0].kind()), (1, kind), "{reply:?}");
        assert!((reply.findings[0].at..reply.findings[0].at + reply.findings[0].len).contains(&at));
        assert!(served.read("/f", View::NOW).is_ok());
        machine.disk.flip_bit(FIRST_SEGMENT, at, 1).unwrap();
    }
    assert_eq!(served.scrub().damaged, 0);
}

#[test]
fn what_the_device_cannot_read_is_told_in_its_words_and_the_rest_is_looked_at() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let other = served.make("/other");
    let (one, two) = (noise(60_000, 1), noise(60_000, 2));
    served.write(&file, Some(0), &one).unwrap();
    served.write(&other, Some(0), &two).unwrap();
    let (name, at) = machine.find(&one[..64]);
    machine.rot(&two, 0);
    machine.disk.wear_out(&name, at + 40_000..at + 40_001).unwrap();
    let reply = served.scrub();
    let paths: Vec<_> = reply.findings.iter().map(|finding| told(finding).0).collect();
    assert_eq!(paths, ["/f", "/other"]);
    assert!(reply.findings[0].unread.contains("cannot read"), "{}", reply.findings[0].unread);
    assert_eq!((reply.findings[0].start, reply.findings[0].end), (32_768, 49_152));
    assert_eq!(reply.findings[1].unread, "");
}

#[test]
fn a_scrub_is_stopped_and_one_that_a_restart_cut_goes_on_where_it_was() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    for n in 0..400u64 {
        served.write(&file, Some(0), &noise(60_000, n)).unwrap();
    }
    served.engine.planes.flush().unwrap();
    let all = served.scrub();
    let (reads, most) = (Cell::new(0), Cell::new(Duration::ZERO));
    let count = |wait: Duration| {
        reads.set(reads.get() + 1);
        most.set(most.get().max(wait));
        reads.get() <= 12
    };
    served.scrub_asked(ScrubAction::Start).unwrap();
    served.engine.service.upkeep.scrub(&count).unwrap();
    let half = served.scrub_state();
    assert_eq!(half.state(), ScrubState::Running);
    assert!(half.done_bytes > 0 && half.done_bytes < half.all_bytes, "{half:?}");
    // A mebibyte takes a sixty-fourth of a second.
    assert!(most.get() > Duration::from_millis(15) && most.get() < Duration::from_millis(17), "{:?}", most.get());
    served.engine.stop().unwrap();
    drop(served);
    machine.time.advance_us(60_000_000);
    let mut served = machine.serve();
    assert_eq!(served.scrub_state().state(), ScrubState::Running);
    served.engine.service.upkeep.scrub(&|_| true).unwrap();
    let reply = served.scrub_state();
    assert_eq!((reply.state(), reply.records, reply.damaged), (ScrubState::Finished, all.records, 0));

    served.scrub_asked(ScrubAction::Start).unwrap();
    reads.set(0);
    served.engine.service.upkeep.scrub(&count).unwrap();
    let stopped = served.scrub_asked(ScrubAction::Stop).unwrap();
    assert_eq!(stopped.state(), ScrubState::Stopped);
    served.engine.service.upkeep.scrub(&|_| panic!("there is nothing to go on with")).unwrap();
    assert_eq!(served.scrub_state().finished, reply.finished, "the last that saw everything");
}

#[test]
fn only_administrators_scrub_or_are_told() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let one = noise(40_000, 1);
    served.write(&file, Some(0), &one).unwrap();
    machine.rot(&one, 5);
    served.scrub();
    let engine = served.engine.clone();
    let mut other = machine.connect(engine, Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    for action in [ScrubAction::Look, ScrubAction::Start, ScrubAction::Stop] {
        let fault = other.scrub_asked(action).unwrap_err();
        assert_eq!(fault.reason, Reason::NotPermitted);
        assert!(fault.message.contains("only root"), "{}", fault.message);
    }
    let (health, damaged) = other.health();
    assert!(damaged == 1 && !health.contains("/f"), "how many, not which: {health}");
}

#[test]
fn more_places_than_are_remembered_are_counted() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let all: Vec<Vec<u8>> = (0..530).map(|n| noise(100, n)).collect();
    for (n, bytes) in all.iter().enumerate() {
        served.write(&file, Some(100 * n as u64), bytes).unwrap();
    }
    let (name, first) = machine.find(&all[0]);
    let stride = machine.find(&all[1]).1 - first;
    for n in 0..530 {
        machine.disk.flip_bit(&name, first + n * stride, 1).unwrap();
    }
    for _ in 0..2 {
        let reply = served.scrub();
        assert_eq!((reply.damaged, reply.findings.len()), (530, 500));
    }
    for n in 0..530 {
        machine.disk.flip_bit(&name, first + n * stride, 1).unwrap();
    }
    assert_eq!(served.scrub().damaged, 0);
}

#[test]
fn what_is_forgotten_while_a_scrub_reads_is_no_damage() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    for n in 0..40 {
        served.write(&file, Some(0), &noise(60_000, n)).unwrap();
    }
    let now = served.engine.planes.newest().0;
    served.close();
    let mut other = machine.connect(served.engine.clone(), Caller::root());
    let forgotten = Cell::new(0);
    served.scrub_asked(ScrubAction::Start).unwrap();
    let other = std::cell::RefCell::new(&mut other);
    let engine = served.engine.clone();
    let forget = |_| {
        // When the first mebibyte has been read, not the rest.
        if forgotten.get() == 0 {
            forgotten.set(other.borrow_mut().forget("/f", now).freed_bytes);
        }
        true
    };
    engine.service.upkeep.scrub(&forget).unwrap();
    assert!(forgotten.get() > 2_000_000, "{}", forgotten.get());
    assert_eq!(served.scrub_state().damaged, 0);
}

#[test]
fn writes_to_an_inode_that_never_was_and_names_of_it_are_found_by_a_checkup() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.write(&file, Some(0), &noise(1000, 1)).unwrap();
    served.engine.stop().unwrap();
    assert_eq!(served.engine.check_up().wrong, Vec::<String>::new());
    let inode = served.stat("/f", View::NOW).unwrap().attr.inode;
    drop(served);
    // Every version of the inode goes: its number lies behind the letter, zeros escaped.
    let prefix = [&b"I"[..], &[0, 0xff].repeat(7), &[inode as u8]].concat();
    let versions: Vec<Vec<u8>> =
        machine.store.items(&prefix, &[&prefix[..], &[0xff; 20]].concat()).map(|item| item.unwrap().0).collect();
    assert!(!versions.is_empty());
    machine.store.commit(Vec::new(), versions, machine.store.applied().unwrap()).unwrap();
    let wrong = machine.serve().engine.check_up().wrong;
    let all = wrong.join("\n");
    assert!(all.contains(&format!("there are writes to inode {inode}, which there never was")), "{all}");
    assert!(all.contains(&format!("names inode {inode}, which there is not")), "{all}");
}

/// The shelves of a machine that makes one for each segment, over files with writes in two segments.
fn shelved(machine: &Machine) -> (Served, Vec<String>) {
    let mut served = machine.serve();
    for round in 0..2 {
        for name in ["/a", "/b"] {
            let file = match round {
                0 => served.make(name),
                _ => served.open(name).unwrap(),
            };
            served.write(&file, Some(round * 100_000), &noise(50_000, round + 7)).unwrap();
        }
        served.engine.service.upkeep.close_segment();
        served.fsync();
        served.fsync();
        while served.engine.service.upkeep.shelve().unwrap() {}
    }
    let names = machine.disk.list().unwrap().into_iter().filter(|name| name.starts_with("shelf-")).collect();
    (served, names)
}

#[test]
fn a_scrub_reads_the_index_on_disk_and_makes_anew_what_is_damaged_of_it() {
    let mut machine = Machine::new();
    machine.settings.shelve_segments = 1;
    let (mut served, names) = shelved(&machine);
    let before = [served.read("/a", View::NOW).unwrap(), served.read("/b", View::NOW).unwrap()];
    assert_eq!(served.scrub().mended, 0);
    // Rot in a block of one, a sector of another that cannot be read.
    machine.disk.flip_bit(&names[0], 300, 2).unwrap();
    if let Some(other) = names.get(1) {
        machine.disk.wear_out(other, 0..512).unwrap();
    }
    let reply = served.scrub();
    assert_eq!((reply.mended, reply.damaged), (names.len() as u64, 0), "{reply:?}");
    assert_eq!(served.engine.service.upkeep.mended().len(), names.len());
    let reply = served.scrub();
    assert_eq!((reply.mended, reply.damaged), (0, 0), "{reply:?}");
    assert!(before == [served.read("/a", View::NOW).unwrap(), served.read("/b", View::NOW).unwrap()]);
    // If the footer of its segment is lost too, a shelf cannot be rebuilt: that is reported, and does not keep a scrub
    // from ending.
    let names: Vec<String> =
        machine.disk.list().unwrap().into_iter().filter(|name| name.starts_with("shelf-")).collect();
    machine.disk.flip_bit(&names[0], 300, 2).unwrap();
    let len = machine.disk.open(FIRST_SEGMENT).unwrap().len().unwrap();
    machine.disk.flip_bit(FIRST_SEGMENT, len - 130, 1).unwrap();
    let reply = served.scrub();
    let mut kinds: Vec<FindingKind> = reply.findings.iter().map(Finding::kind).collect();
    kinds.sort_unstable();
    assert_eq!((reply.mended, kinds), (0, vec![FindingKind::Footer, FindingKind::Index]), "{reply:?}");
}

#[test]
fn what_a_reader_meets_is_looked_at_and_told_without_a_scrub() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.make("/f");
    let (file, bytes) = (served.open("/f").unwrap(), noise(100_000, 3));
    let (stamp, _) = served.write(&file, Some(5000), &bytes).unwrap();
    served.fsync();
    machine.rot(&bytes, 70_000);
    let reads = |served: &mut Served| match served.ask(Request::Status(Status {})) {
        Ok(Reply::Status(status)) => (status.corrupt_reads, status.damaged),
        other => panic!("{other:?}"),
    };
    assert_eq!(reads(&mut served), (0, 0));
    for count in 1..=3 {
        assert_eq!(served.read("/f", View::NOW).unwrap_err().reason, Reason::Corrupt);
        assert_eq!(reads(&mut served), (count, 0), "nobody has looked yet");
    }
    // As the scrub thread does it, stopped at first.
    served.engine.service.upkeep.scrub(&|_| false).unwrap();
    assert_eq!(reads(&mut served).1, 0);
    let looks = Cell::new(0);
    let look = |_| {
        looks.set(looks.get() + 1);
        true
    };
    served.engine.service.upkeep.scrub(&look).unwrap();
    let reply = served.scrub_state();
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
    assert_eq!(served.read("/f", View::NOW).unwrap_err().reason, Reason::Corrupt);
    served.engine.service.upkeep.scrub(&look).unwrap();
    assert_eq!((looks.get(), reads(&mut served)), (0, (4, 1)));
    // Known over a restart, until a scrub has found it whole.
    drop(served);
    let mut served = machine.serve();
    assert_eq!(reads(&mut served), (0, 1));
    machine.rot(&bytes, 70_000);
    assert_eq!(served.scrub().damaged, 0);
}

#[test]
fn a_scrub_begins_by_itself_once_in_a_while_and_reads_slowly() {
    let mut machine = Machine::new();
    machine.settings.scrub_every = Duration::from_secs(3600);
    let mut served = machine.serve();
    served.make("/f");
    let file = served.open("/f").unwrap();
    for _ in 0..15 {
        served.write(&file, Some(0), &noise(200_000, 1)).unwrap();
    }
    let due = |served: &mut Served| match served.ask(Request::Status(Status {})) {
        Ok(Reply::Status(status)) => frieze_hlc::Hlc(status.scrub_due).micros(),
        other => panic!("{other:?}"),
    };
    let first = due(&mut served);
    let now = served.engine.planes.newest().micros();
    assert!(first > now + 3_500_000_000 && first <= now + 3_600_000_000, "{first} at {now}");
    served.engine.service.upkeep.scrub(&|_| true).unwrap();
    assert_eq!(served.scrub_state().state(), ScrubState::Never);
    machine.time.advance_us(3_601_000_000);
    // It is stopped after a while, and the next call continues.
    served.engine.service.upkeep.scrub(&|_| false).unwrap();
    let reply = served.scrub_state();
    assert_eq!((reply.state(), reply.bytes_per_s), (ScrubState::Running, 1 << 20), "{reply:?}");
    assert_eq!(due(&mut served), 0);
    let waited = Cell::new(Duration::ZERO);
    let pace = |wait: Duration| {
        waited.set(waited.get() + wait);
        machine.time.advance_us(wait.as_micros() as u64);
        true
    };
    served.engine.service.upkeep.scrub(&pace).unwrap();
    assert_eq!(served.scrub_state().state(), ScrubState::Finished);
    assert!(waited.get() > Duration::from_secs(2), "{:?}", waited.get());
    let next = due(&mut served);
    assert!(next > first + 3_600_000_000, "{next}");
    // An operator ended the scrub: the next is due as late as after one that finished.
    machine.time.advance_us(3_700_000_000);
    served.engine.service.upkeep.scrub(&|_| false).unwrap();
    served.scrub_asked(ScrubAction::Stop).unwrap();
    served.engine.service.upkeep.scrub(&|_| true).unwrap();
    assert_eq!(served.scrub_state().state(), ScrubState::Stopped);
    drop(served);
    // And never where it is not wanted.
    machine.settings.scrub_every = Duration::ZERO;
    let mut served = machine.serve();
    machine.time.advance_us(100_000_000_000);
    served.engine.service.upkeep.scrub(&|_| true).unwrap();
    assert_eq!((served.scrub_state().state(), due(&mut served)), (ScrubState::Stopped, 0));
}
