//! Policies of retention: a server that thins beside one that keeps everything and does the same.

use std::collections::BTreeSet;

use frieze_base::Rng;
use frieze_wire::holding::Recalls;
use frieze_wire::message::Now;
use frieze_wire::txn::{DeleteSnapshot, MakeSnapshot};

use super::*;

const SECOND: u64 = 1_000_000;

/// The instant with every stamp of a microsecond.
fn instant(micros: u64) -> u64 {
    frieze_hlc::Hlc::last_of_micros(micros).0
}

/// A server that thins, and one that does not: both get the same calls at the same microseconds.
struct Twins {
    machines: [SimMachine; 2],
    clients: Vec<TestConnection>,
    /// Refused instants, by path.
    refused: BTreeSet<(String, u64)>,
}

impl Twins {
    fn new() -> Twins {
        let mut machines = [SimMachine::new(7), SimMachine::new(7)];
        machines.iter_mut().for_each(|machine| machine.settings.shelve_segments = 1);
        let clients = machines.iter().map(SimMachine::serve).collect();
        Twins { machines, clients, refused: BTreeSet::new() }
    }

    fn now(&self) -> u64 {
        frieze_hlc::Hlc(self.clients[0].server.newest().0).micros()
    }

    fn advance(&self, us: u64) {
        self.machines.iter().for_each(|machine| machine.time.advance_us(us));
    }

    fn both(&mut self, mut call: impl FnMut(&mut TestConnection)) {
        self.advance(1);
        self.clients.iter_mut().for_each(&mut call);
    }

    fn thin(&mut self) {
        self.clients[0].fsync();
        self.clients[0].server.thin().unwrap();
    }

    /// Packs what died, and gives back what was packed before.
    fn pack(&mut self) {
        let server = &self.clients[0].server;
        server.close_segment();
        self.thin();
        self.clients[0].fsync();
        let server = &self.clients[0].server;
        server.shelve_all();
        server.reclaim().unwrap();
        server.pack().unwrap();
    }

    fn restart(&mut self) {
        // What is removed and still written to by a session stays.
        self.both(TestConnection::close_session);
        for (machine, client) in self.machines.iter().zip(&mut self.clients) {
            client.server.stop().unwrap();
            *client = machine.serve();
        }
    }

    /// The state that the thinning server shows is that of the other one, or it is refused, for ever, with kept
    /// instants on both sides. Returns whether it was shown.
    fn check(&mut self, path: &str, micros: u64) -> bool {
        let at = instant(micros);
        let [thinned, whole] = &mut self.clients[..] else { unreachable!() };
        let expected = whole.at(path, at);
        let answer = thinned.retention(path, at);
        match thinned.at(path, at) {
            Err(fault) if fault.reason == Reason::HistoryExpired => {
                self.refused.insert((path.to_owned(), at));
                let words = fault.to_string();
                let is_known = words.contains("instants beside it") || words.contains("keeps no instant that shows it");
                assert!(is_known, "{words}");
                if let Ok(instant) = answer.map(|answer| answer.instant.unwrap()) {
                    assert!(!instant.is_exact && instant.before < at && at < instant.after, "{path} {at}: {instant:?}");
                    for beside in [instant.before, instant.after].into_iter().filter(|beside| *beside != 0) {
                        let (found, expected) = (thinned.at(path, beside), whole.at(path, beside));
                        let same = match (&found, &expected) {
                            (Err(a), Err(b)) => a.reason == b.reason,
                            (a, b) => a == b,
                        };
                        assert!(same, "{path} at {beside}, named beside {at}: {found:?}, {expected:?}");
                    }
                }
                false
            }
            found => {
                assert!(!self.refused.contains(&(path.to_owned(), at)), "{path} at {at} was refused before");
                match (&found, &expected) {
                    (Err(a), Err(b)) => assert_eq!(a.reason, b.reason, "{path} at {at}"),
                    (a, b) => assert!(a == b, "{path} at {at}: {:?}, {:?}", a.as_ref().ok(), b.as_ref().ok()),
                }
                true
            }
        }
    }
}

/// Histories of the test; `FRIEZE_RETENTION_HISTORIES` plays more.
fn histories() -> u64 {
    std::env::var("FRIEZE_RETENTION_HISTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(24)
}

#[test]
fn what_a_policy_keeps_is_shown_and_the_rest_is_shown_or_refused_for_ever() {
    let (mut refused, mut packs) = (0, 0);
    for seed in 0..histories() {
        let mut rng = Rng::new(seed);
        let mut twins = Twins::new();
        twins.both(|client| client.mkdir("/t"));
        twins.both(|client| client.mkdir("/u"));
        // Every tenth second is kept by both.
        twins.clients[0].set_retention("/t", "all 5s, 1/s 1min, 1/5s forever").unwrap();
        let paths = ["/t/a", "/t/b", "/u/c"];
        let began = twins.now();
        twins.both(|client| paths.iter().for_each(|path| drop(client.make(path))));
        twins.both(|client| drop(client.make("/t/log")));
        let (mut log_bytes, mut kept_everywhere, mut snapshots, mut copies) = (0, Vec::new(), 0, Vec::new());
        for step in 0..160 {
            twins.advance(rng.below(SECOND));
            for _ in 0..4 {
                let micros = twins.now() - 1 - rng.below(60 * SECOND).min(twins.now() - began - 1);
                let micros = if rng.below(2) == 0 { micros } else { micros / SECOND * SECOND };
                let path = *rng.choose(&paths);
                twins.check(path, micros.max(began));
            }
            let path = *rng.choose(&paths);
            let (offset, len, byte) = (rng.below(60_000), 1 + rng.below(30_000), rng.next() as u8);
            match rng.below(24) {
                0..=9 => twins.both(|client| {
                    if let Ok(file) = client.open(path) {
                        client.write(&file, Some(offset), &vec![byte; len as usize]).unwrap();
                    }
                }),
                10 => twins.both(|client| drop(client.try_truncate(path, offset))),
                11 => twins.both(|client| {
                    if let Ok(file) = client.open(path) {
                        client.punch(&file, offset, len).unwrap();
                    }
                }),
                12 => twins.both(|client| drop(client.remove(path, false))),
                13 => twins.both(|client| drop(client.try_make(path, MakeKind::File(true), true))),
                14 => {
                    let log = vec![byte; 1000];
                    twins.both(|client| {
                        let file = client.open("/t/log").unwrap();
                        client.write(&file, Some(log_bytes), &log).unwrap();
                    });
                    log_bytes += 1000;
                }
                15 => twins.thin(),
                16 => twins.restart(),
                17 if step > 20 => {
                    let policy =
                        if rng.below(2) == 0 { "all 2s, 1/5s 10min" } else { "all 5s, 1/s 1min, 1/5s forever" };
                    let tree = if rng.below(2) == 0 { "/u" } else { "/t" };
                    twins.clients[0].set_retention(tree, policy).unwrap();
                }
                18 => {
                    snapshots += 1;
                    let name = format!("s{snapshots}");
                    let at = twins.now();
                    twins.advance(1);
                    let make = Op::MakeSnapshot(MakeSnapshot { name, at: instant(at), count_max: 0 });
                    if twins.clients[0].txn(make).is_ok() {
                        kept_everywhere.push(at);
                    }
                }
                19 if step > 30 => {
                    // A removed file comes back, and a changed one becomes what it was, at an instant that is kept.
                    let at = instant((twins.now() - 10 * SECOND).max(began + 5 * SECOND) / (5 * SECOND) * 5 * SECOND);
                    twins.advance(1);
                    let done = twins.clients[0].restore(path, at, false);
                    let expected = twins.clients[1].restore(path, at, false);
                    match (done, expected) {
                        (Ok(_), Ok(_)) => {}
                        (a, b) => assert_eq!(a.unwrap_err().reason, b.unwrap_err().reason, "{path} at {at}"),
                    }
                }
                19 => twins.clients[0].server.shelve_all(),
                20 => twins.thin(),
                21 => twins.pack(),
                _ => {
                    // A copy keeps what it shares, whatever becomes of the instant.
                    let at = instant(twins.now() - rng.below(30 * SECOND).min(twins.now() - began));
                    let to = format!("/u/copy{}", copies.len());
                    twins.advance(1);
                    let made = twins.clients[0].clone_tree(path, at, &to);
                    let expected = twins.clients[1].clone_tree(path, at, &to);
                    match (made, expected) {
                        (Ok(_), Ok(_)) => copies.push(to),
                        (Err(a), Ok(_)) => {
                            assert_eq!(a.reason, Reason::HistoryExpired);
                            twins.clients[1].remove(&to, false).unwrap();
                        }
                        (a, b) => assert_eq!(a.unwrap_err().reason, b.unwrap_err().reason),
                    }
                }
            }
        }
        twins.advance(20 * SECOND);
        twins.thin();
        let ended = twins.now();
        let mut instants: Vec<u64> = (0..60).map(|_| began + rng.below(ended - began)).collect();
        instants.extend((began / (5 * SECOND) + 1..=ended / (5 * SECOND)).map(|count| count * 5 * SECOND));
        for round in 0..3 {
            for micros in &instants {
                for path in paths {
                    let shown = twins.check(path, *micros);
                    let is_kept = micros.is_multiple_of(5 * SECOND) || kept_everywhere.contains(micros);
                    assert!(shown || !is_kept, "seed {seed}: {path} at {micros} is kept");
                }
                assert!(twins.check("/t/log", *micros), "seed {seed}: nothing dies of what is only appended to");
            }
            for micros in kept_everywhere.clone() {
                for path in paths {
                    assert!(twins.check(path, micros), "seed {seed}: {path} at {micros} has a name");
                }
            }
            for path in copies.iter().map(String::as_str).chain(paths) {
                let [thinned, whole] = &mut twins.clients[..] else { unreachable!() };
                let (found, expected) = (thinned.read(path, View::NOW), whole.read(path, View::NOW));
                match (&found, &expected) {
                    (Err(a), Err(b)) => assert_eq!(a.reason, b.reason, "seed {seed}: {path}"),
                    (a, b) => assert!(a == b, "seed {seed}: {path} as it is now"),
                }
            }
            packs += twins.clients[0].server.packs();
            match round {
                // Before anything is found dead again, the same instants are refused.
                0 => twins.restart(),
                _ => twins.pack(),
            }
        }
        refused += twins.refused.len();
        let checkup = twins.clients[0].server.check_up();
        assert_eq!(checkup.found(), 0, "{checkup:?}");
    }
    assert!(refused > 100, "{refused} instants were refused");
    assert!(packs > 20, "{packs} packs");
}

#[test]
fn policies_and_marks_are_there_after_a_restart() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/t");
    client.set_retention("/t", "all 5s, 1/s 1min, 1/5s forever").unwrap();
    let file = client.make("/t/a");
    client.write(&file, Some(0), b"one").unwrap();
    machine.time.advance_us(200 * SECOND);
    client.fsync();
    client.server.thin().unwrap();
    let before = client.retention("/t/a", 0).unwrap();
    assert_eq!(before.classes.len(), 2, "{before:?}");
    client.server.stop().unwrap();
    drop(client);
    let mut client = machine.serve();
    let after = client.retention("/t/a", 0).unwrap();
    assert_eq!((after.policy, after.classes), (before.policy, before.classes));
}

#[test]
fn what_no_kept_instant_shows_gives_its_space_back() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/t");
    client.set_retention("/t", "all 5s, 1/5s 2min").unwrap();
    let (file, removed) = (client.make("/t/a"), client.make("/t/removed"));
    let mut rng = Rng::new(3);
    let mut newest_of = BTreeMap::new();
    for number in 0..400_u64 {
        machine.time.advance_us(SECOND / 10);
        let page = rng.below(16);
        client.write(&file, Some(page * 4096), &vec![number as u8; 4096]).unwrap();
        // What a kept instant shows: the newest of each page in each stretch of five seconds.
        let stretch = (client.server.newest().micros() - 1) / (5 * SECOND);
        newest_of.insert((page, stretch), number);
        if number < 100 {
            client.write(&removed, Some(page * 4096), &vec![number as u8; 4096]).unwrap();
        }
    }
    client.remove("/t/removed", false).unwrap();
    client.close_session();
    machine.time.advance_us(40 * SECOND);
    client.fsync();
    client.server.close_segment();
    let file = client.open("/t/a").unwrap();
    client.write(&file, Some(0), b"next").unwrap();
    client.fsync();
    client.server.thin().unwrap();
    let survivors = newest_of.len() as u64;
    let (dead, waiting) = client.server.dead_bytes();
    // A record of 4 KiB takes a header and checksums beside.
    assert!(dead >= (400 - survivors) * 4096 + 60 * 4096, "{dead} bytes are dead, {survivors} writes survive");
    assert!(dead < (500 - survivors) * 4200, "{dead} bytes are dead, {survivors} writes survive");
    assert!(waiting < dead / 10, "{waiting} of {dead} bytes wait");
    // Behind the last age nothing is kept but the newest.
    machine.time.advance_us(200 * SECOND);
    client.fsync();
    client.server.thin().unwrap();
    let (dead, _) = client.server.dead_bytes();
    // No kept instant shows the removed file any more.
    assert!(dead >= (400 - 16) * 4096 + 100 * 4096, "{dead}");
    assert_eq!(client.read("/t/a", View::NOW).unwrap().len(), 16 * 4096);
}

#[test]
fn an_instant_that_a_policy_does_not_keep_gets_no_name_and_no_status() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/t");
    let file = client.make("/t/a");
    client.set_retention("/t", "all 5s, 1/5s forever").unwrap();
    let mut stamps = Vec::new();
    for number in 0..30 {
        machine.time.advance_us(SECOND);
        stamps.push(client.write(&file, Some(0), &[number; 100]).unwrap().0);
    }
    client.fsync();
    client.server.thin().unwrap();
    let at = stamps[3];
    assert_eq!(client.reason_at("/t/a", at), Reason::HistoryExpired);
    let past = View { at: Some(at), user_at: None };
    assert_eq!(client.stat("/t/a", past).unwrap_err().reason, Reason::HistoryExpired);
    let snapshot = |name: &str, at: u64| Op::MakeSnapshot(MakeSnapshot { name: name.into(), at, count_max: 0 });
    let fault = client.txn(snapshot("s", at)).unwrap_err();
    assert_eq!(fault.reason, Reason::HistoryExpired);
    assert!(fault.message.contains("name ") && fault.message.contains("which they keep"), "{fault}");
    let instant = client.retention("/t/a", at).unwrap().instant.unwrap();
    assert!(!instant.is_exact && instant.before < at && at < instant.after, "{instant:?}");
    client.txn(snapshot("s", instant.after)).unwrap();
    // The directory shows its names at each instant.
    assert!(client.retention("/t", at).unwrap().instant.unwrap().is_exact);
    assert!(client.inode("/t", past).is_some());
    // What has a name is kept, whatever policy comes.
    client.set_retention("/t", "all 1s").unwrap();
    machine.time.advance_us(60 * SECOND);
    client.fsync();
    client.server.thin().unwrap();
    assert!(client.at("/t/a", instant.after).is_ok());
    client.txn(Op::DeleteSnapshot(DeleteSnapshot { name: "s".into() })).unwrap();
    client.server.thin().unwrap();
    assert_eq!(client.reason_at("/t/a", instant.after), Reason::HistoryExpired);
}

#[test]
fn a_policy_is_set_by_the_owner_and_refused_with_what_to_write_instead() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/t");
    client.make("/t/a");
    for (policy, instead) in [
        ("all 1h, 1/7min 1d", "write 1/5min or 1/15min"),
        ("1/min 1d", "begin with `all`"),
        ("all 0s", "write an age"),
        ("all 1h, 1/min 1h", "1/min"),
        ("", "begin with `all`"),
    ] {
        let fault = client.set_retention("/t", policy).unwrap_err();
        assert_eq!(fault.reason, Reason::InvalidArgument, "{policy}");
        assert!(fault.message.contains(instead), "{policy}: {fault}");
    }
    assert_eq!(client.set_retention("/never", "all 1h").unwrap_err().reason, Reason::NotFound);
    drop(client);
    let mut other = machine.serve_as(Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    assert_eq!(other.set_retention("/t", "all 1h").unwrap_err().reason, Reason::NotPermitted);
    assert_eq!(other.retention("/t", 0).unwrap().policy, "");
    drop(other);
    let mut client = machine.serve();
    let ctime = client.stat("/t/a", View::NOW).unwrap().attr.ctime_ns;
    client.set_retention("/", "all 1h").unwrap();
    let stat = client.stat("/t/a", View::NOW).unwrap();
    assert_eq!(stat.attr.ctime_ns, ctime, "no attribute changes with a policy");
    client.make("/t/later");
    for path in ["/", "/t", "/t/a", "/t/later"] {
        assert_eq!(client.retention(path, 0).unwrap().policy, "all 1h", "{path}");
    }
    let again = client.set_retention("/", "all 60min").unwrap();
    assert_eq!(again.stamp, 0, "the same policy changes nothing");
    let refused = client.txn(Op::RaiseMarks(frieze_wire::txn::RaiseMarks { closed: 1 })).unwrap_err();
    assert_eq!(refused.reason, Reason::NotPermitted);
}

/// Stamps of the versions of a file that are listed.
fn listed(client: &mut TestConnection, path: &str) -> Vec<u64> {
    let ask = Log { target: Target::path(path), count_max: 1000, ..Log::default() };
    let Reply::Log(log) = client.ask(Request::Log(ask)).unwrap() else { panic!("no log") };
    log.versions.iter().map(|version| version.stamp).collect()
}

#[test]
fn the_versions_of_a_file_are_those_that_are_kept_before_and_after_their_space_is_free() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/t");
    let file = client.make("/t/a");
    let mut stamps = Vec::new();
    for number in 0..100_u8 {
        machine.time.advance_us(SECOND / 10);
        stamps.push(client.write(&file, Some(0), &[number; 5000]).unwrap().0);
    }
    let all = listed(&mut client, "/t/a");
    assert!(stamps.iter().all(|stamp| all.contains(stamp)));
    client.set_retention("/t", "all 5s, 1/s 1min").unwrap();
    machine.time.advance_us(30 * SECOND);
    client.fsync();
    client.server.thin().unwrap();
    let kept = listed(&mut client, "/t/a");
    let writes = stamps.iter().filter(|stamp| kept.contains(stamp)).count();
    assert!((10..=12).contains(&writes), "one write a second is listed: {writes}");
    client.server.stop().unwrap();
    drop(client);
    let mut client = machine.serve();
    assert_eq!(listed(&mut client, "/t/a"), kept, "nothing is dead again yet");
    client.server.thin().unwrap();
    assert_eq!(listed(&mut client, "/t/a"), kept);
}

#[test]
fn a_scrub_and_a_check_after_a_restart_find_no_damage_where_history_was_thinned() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/t");
    client.set_retention("/t", "all 5s, 1/5s 1min").unwrap();
    let file = client.make("/t/a");
    for number in 0..200_u8 {
        machine.time.advance_us(SECOND / 10);
        client.write(&file, Some(0), &[number; 60_000]).unwrap();
    }
    machine.time.advance_us(30 * SECOND);
    client.fsync();
    client.server.close_segment();
    client.write(&file, Some(0), b"next").unwrap();
    client.fsync();
    client.server.thin().unwrap();
    let (dead, waiting) = client.server.dead_bytes();
    assert!(dead > 10_000_000 && waiting < dead / 10, "{dead}, {waiting}");
    client.server.stop().unwrap();
    drop(client);
    let mut client = machine.serve();
    client.server.reclaim().unwrap();
    let scrub = client.scrub();
    assert_eq!(scrub.damaged, 0, "{scrub:?}");
    assert_eq!(client.server.check_up().found(), 0);
    assert_eq!(client.server.dead_bytes().0, dead, "what was dead is dead again");
}

#[test]
fn what_was_removed_comes_back_with_its_last_bytes_by_an_undo() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/t");
    client.set_retention("/t", "all 2s, 1/5s 1min").unwrap();
    for path in ["/t/removed", "/t/replaced", "/t/other"] {
        client.write_file(path, &[b'A'; 50_000]);
    }
    // A kept instant shows them.
    machine.time.advance_us(6 * SECOND);
    for (number, byte) in (b'B'..b'H').enumerate() {
        machine.time.advance_us(SECOND / 10);
        for path in ["/t/removed", "/t/replaced"] {
            let file = client.open(path).unwrap();
            client.write(&file, Some(number as u64 * 5000), &[byte; 10_000]).unwrap();
        }
    }
    let last = client.read("/t/removed", View::NOW).unwrap();
    client.new_session();
    client.remove("/t/removed", false).unwrap();
    client.rename("/t/other", "/t/replaced").unwrap();
    let actor = client.session.0;
    client.new_session();
    machine.time.advance_us(30 * SECOND);
    client.fsync();
    client.server.close_segment();
    client.make("/t/next");
    client.write_file("/t/next", b"next");
    client.fsync();
    client.server.thin().unwrap();
    client.undo(&[actor]).unwrap();
    for round in 0..2 {
        for path in ["/t/removed", "/t/replaced"] {
            assert!(client.read(path, View::NOW).unwrap() == last, "{path}, round {round}");
        }
        assert_eq!(client.read("/t/other", View::NOW).unwrap(), [b'A'; 50_000]);
        client.server.stop().unwrap();
        drop(client);
        client = machine.serve();
    }
    assert_eq!(client.scrub().damaged, 0);
}

#[test]
fn a_removed_file_that_no_kept_instant_shows_gives_its_space_back_unless_it_is_open() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/t");
    client.set_retention("/t", "all 2s, 1/30s 10min").unwrap();
    machine.time.advance_us(31 * SECOND - client.server.newest().micros() % (30 * SECOND));
    let full = |byte: u8| vec![byte; 100_000];
    let instants: Vec<(String, u64)> = (0..10)
        .map(|number| {
            let path = format!("/t/brief{number}");
            let at = client.write_file(&path, &full(b'x'));
            machine.time.advance_us(SECOND / 2);
            client.remove(&path, false).unwrap();
            (path, at)
        })
        .collect();
    for (path, byte) in [("/t/open", b'o'), ("/t/cloned", b'c'), ("/t/written", b'w'), ("/t/long", b'l')] {
        client.write_file(path, &full(byte));
    }
    let now = client.server.newest().0;
    client.clone_tree("/t/cloned", now, "/t/copy").unwrap();
    client.close_session();
    let mut writer = machine.connect(client.server.clone(), Caller::root());
    let written = writer.open("/t/written").unwrap();
    let mut reader = machine.connect(client.server.clone(), Caller::root());
    reader.open_session();
    let open = reader.open_to_read("/t/open", View::NOW).unwrap();
    let inode = client.inode("/t/open", View::NOW).unwrap();
    let list = |list, open: &[u64]| Request::Recalls(Recalls { list, open: open.to_vec(), ..Recalls::default() });
    reader.send(list(1, &[inode]), &[], 0);
    for path in ["/t/open", "/t/cloned", "/t/written"] {
        client.remove(path, false).unwrap();
    }
    // A kept instant shows this one.
    machine.time.advance_us(40 * SECOND);
    client.remove("/t/long", false).unwrap();
    let began = frieze_hlc::Hlc(instants[0].1).micros();
    let kept = instant(began.div_ceil(30 * SECOND) * 30 * SECOND);
    let thin = |client: &mut TestConnection, path: &str, us: u64| {
        machine.time.advance_us(us);
        client.fsync();
        client.server.close_segment();
        client.write_file(path, b"next");
        client.fsync();
        client.server.thin().unwrap();
        client.server.dead_bytes().0
    };
    let dead = thin(&mut client, "/t/1", 10 * SECOND);
    assert!((1_000_000..1_100_000).contains(&dead), "{dead}");
    assert_eq!(reader.read_open(&open, 0, 1 << 20).unwrap(), full(b'o'));
    assert_eq!(writer.read_open(&written, 0, 1 << 20).unwrap(), full(b'w'));
    assert_eq!(client.read("/t/copy", View::NOW).unwrap(), full(b'c'));
    // They are closed.
    for number in [2, 3] {
        reader.send(list(number, &[]), &[], 0);
    }
    writer.close_session();
    let more = thin(&mut client, "/t/2", 30 * SECOND);
    assert!((dead + 200_000..dead + 210_000).contains(&more), "{more}, {dead}");
    assert!(reader.read_open(&open, 0, 1 << 20).is_err());
    reader.close_session();
    drop((reader, writer));
    for round in 0..2 {
        for (path, at) in &instants {
            let fault = client.at(path, *at).unwrap_err();
            assert_eq!(fault.reason, Reason::HistoryExpired, "{path} in round {round}");
            assert!(fault.message.contains(path) && fault.message.contains("was removed"), "{fault}");
            // Its name stays in history.
            let view = View { at: Some(*at), user_at: None };
            let Ok(Reply::List(list)) =
                client.ask(Request::List(List { target: Target::path("/t"), view, ..List::default() }))
            else {
                panic!("no list")
            };
            assert!(list.entries.iter().any(|entry| path.as_bytes().ends_with(&entry.name)), "{path}");
        }
        assert_eq!(client.at("/t/long", kept).unwrap(), full(b'l'));
        // A session of before a start may have anything open until it has said what.
        client.close_session();
        client.server.stop().unwrap();
        drop(client);
        client = machine.serve();
        client.server.reclaim().unwrap();
    }
    // What is before the oldest kept instant goes, too.
    let all = thin(&mut client, "/t/3", 700 * SECOND);
    assert!(all >= more + 100_000, "{all}, {more}");
    assert_eq!(client.at("/t/long", kept).unwrap_err().reason, Reason::HistoryExpired);
    assert_eq!(client.read("/t/copy", View::NOW).unwrap(), full(b'c'));
    assert_eq!((client.scrub().damaged, client.server.check_up().found()), (0, 0));
}

#[test]
fn the_nearest_kept_instant_is_the_newest_before_that_all_policies_keep() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let nearest =
        |client: &mut TestConnection, at: u64| match client.ask(Request::Now(Now { nearest: at, ..Now::default() })) {
            Ok(Reply::Now(reply)) => Ok(reply.at),
            Err(fault) => Err(fault),
            other => panic!("{other:?}"),
        };
    client.mkdir("/t");
    client.mkdir("/u");
    let began = client.server.newest().micros();
    assert_eq!(nearest(&mut client, instant(began) - 7).unwrap(), instant(began) - 7, "without a policy all is kept");
    client.set_retention("/t", "all 5s, 1/5s 1min").unwrap();
    client.set_retention("/u", "all 5s, 1/15s 1min").unwrap();
    machine.time.advance_us(50 * SECOND);
    client.fsync();
    client.server.thin().unwrap();
    let at = began + 20 * SECOND;
    let expected = instant(at / (15 * SECOND) * 15 * SECOND);
    assert_eq!(nearest(&mut client, instant(at)).unwrap(), expected);
    assert_eq!(nearest(&mut client, expected).unwrap(), expected);
    let now = client.server.newest().0;
    assert_eq!(nearest(&mut client, now).unwrap(), now, "what is young is kept");
    machine.time.advance_us(100 * SECOND);
    client.fsync();
    client.server.thin().unwrap();
    let fault = nearest(&mut client, instant(at)).unwrap_err();
    assert_eq!(fault.reason, Reason::HistoryExpired);
    assert!(fault.message.contains("is the first instant that all keep"), "{fault}");
}
