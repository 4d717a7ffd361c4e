//! Rings that are written by threads, read in use, overtaken and killed.

use std::path::Path;
use std::time::Duration;

use frieze_base::Rng;
use frieze_hlc::Hlc;
use tempfile::TempDir;

use crate::event::{SLOT_WORDS, lap_of};
use crate::follower::RingFollower;
use crate::ring::{BLOCK_SLOTS, HEADER_WORDS};
use crate::words::{WORD_BYTES_MAX, WordKind, WordParts};
use crate::*;

/// Any bytes, and a ring of which some are changed, are read or refused, within memory.
#[test]
fn any_bytes_are_a_ring_or_refused() {
    let dir = TempDir::new().unwrap();
    let recorder = ring(&dir, 1 << 20);
    (0..70).for_each(|number| recorder.record(&Event { path2: number % 2, ..event(number) }));
    let mut whole = std::fs::read(recorder.path()).unwrap();
    // A header that names one block.
    whole.truncate(HEADER_WORDS * 8 + 2 * 64 * BLOCK_SLOTS as usize);
    whole[crate::ring::BLOCKS_WORD * 8..][..8].copy_from_slice(&2_u64.to_le_bytes());
    frieze_harness::fuzz!([whole], |bytes: &[u8]| {
        if let Ok(content) = decoded(bytes) {
            let paths = content.paths();
            for event in &content.events {
                let _ = paths.path_of(event.path);
            }
        }
    });
}

fn decoded(bytes: &[u8]) -> Result<RingContent, String> {
    Ok(RingFollower::of_bytes(bytes)?.read_to_end())
}

fn ring(dir: &TempDir, bytes: u64) -> Recorder {
    let settings =
        RingSettings { bytes, dir: dir.path().join("rings"), program: "make -j2".to_owned(), is_live: false };
    Recorder::create(&settings).expect("a directory on a file system that writes in place")
}

fn event(number: u64) -> Event {
    Event {
        start_ns: number as i64,
        duration_ns: 17,
        flags: EventFlags::SEQUENTIAL.with(EventFlags::PAST),
        inode: number,
        offset: number << 20,
        asked: 4096,
        got: number & 0xffff_ffff,
        stream: 9,
        actor: 0xdead_beef,
        path: number << 32 | 5,
        result: 2,
        count: 3,
        ..Event::new(CallKind::Read, Gateway::Mount)
    }
}

#[test]
fn the_bytes_of_an_event_are_the_format() {
    let event = Event { start_ns: 1_700_000_000_123_456_789, ..event(0x0102_0304) };
    let slot = event.encode(0x0a0b);
    let bytes: String = slot.iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("{byte:02x}")).collect();
    let expected = concat!(
        "15cd853dfe9c9717", // start
        "11000000",         // duration
        "03020900",         // call, gateway, flags
        "0403020100000000", // inode
        "0000403020100000", // offset
        "0010000004030201", // asked, got
        "09000000efbeadde", // stream, actor
        "0500000004030201", // path
        "020003000b0a",     // result, count, lap
    );
    assert_eq!(&bytes[..expected.len()], expected);
    assert_eq!(Event::decode(&slot), Some((event, false)));
    assert_eq!(lap_of(&slot), Some(0x0a0b));
    for bit in 0..SLOT_WORDS * 64 {
        let mut damaged = slot;
        damaged[bit / 64] ^= 1 << (bit % 64);
        assert_ne!(lap_of(&damaged), Some(0x0a0b), "bit {bit}");
    }
}

#[test]
fn an_event_with_more_to_say_takes_a_second_slot() {
    let large = Event { asked: 3 << 32 | 7, got: 2 << 32 | 9, path2: 77, view: Hlc(0x0102_0304_0506_0708), ..event(5) };
    let bytes: String =
        large.encode_second(1).iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("{byte:02x}")).collect();
    let expected = concat!(
        "0300000002000000", // high halves of asked and got
        "00000000fc000000", // the kind of slot
        "4d00000000000000", // second path
        "0807060504030201", // view
    );
    assert_eq!(&bytes[..expected.len()], expected);
    let dir = TempDir::new().unwrap();
    let recorder = ring(&dir, 1 << 20);
    // Around the end of a block, which both slots share.
    let all: Vec<Event> = (0..200)
        .map(|number| if number % 3 == 0 { Event { start_ns: number, ..large } } else { event(number as u64) })
        .collect();
    all.iter().for_each(|event| recorder.record(event));
    let read = read_ring(recorder.path()).unwrap();
    assert_eq!((read.events, read.torn, read.unknown), (all, 0, 0));
}

#[test]
fn small_calls_behind_each_other_are_one_event_that_is_whole_at_any_time() {
    let dir = TempDir::new().unwrap();
    let recorder = ring(&dir, 1 << 20);
    let append = |offset: u64, bytes: u64| Event {
        start_ns: 1_000_000 + offset as i64,
        duration_ns: 10,
        inode: 5,
        stream: 1,
        offset,
        asked: bytes,
        got: bytes,
        ..Event::new(CallKind::Append, Gateway::Library)
    };
    let found = || read_ring(recorder.path()).unwrap();
    for number in 0..64 {
        recorder.record(&append(number * 100, 100));
        let now = found();
        assert_eq!((now.events.len(), now.torn), (1, 0));
        let event = now.events[0];
        assert_eq!(
            (event.count, event.got, event.duration_ns),
            (number as u16 + 1, 100 * (number + 1), 10 * (number as u32 + 1))
        );
        assert_eq!((event.offset, event.flags.has(EventFlags::COLLAPSED)), (0, number > 0));
    }
    // Beyond 64; elsewhere; a large one; of another file; that failed; late: each begins an event of its own.
    let next = append(6400, 100);
    let others = [
        next,
        append(9000, 100),
        append(9100, 1 << 20),
        Event { inode: 6, ..append(9100 + (1 << 20), 100) },
        Event { inode: 6, result: 2, ..append(9200 + (1 << 20), 100) },
        Event { inode: 6, start_ns: 20_000_000, ..append(9300 + (1 << 20), 100) },
    ];
    others.iter().for_each(|event| recorder.record(event));
    let counts: Vec<u16> = found().events.iter().map(|event| event.count).collect();
    assert_eq!(counts, [64, 1, 1, 1, 1, 1, 1]);
    // A call of another kind in between ends a run.
    recorder.record(&append(1 << 30, 10));
    recorder.record(&Event { start_ns: 20_000_001, inode: 5, ..Event::new(CallKind::Sync, Gateway::Library) });
    recorder.record(&append((1 << 30) + 10, 10));
    assert_eq!(found().events.iter().filter(|event| event.offset >= 1 << 30).count(), 2);
}

#[test]
fn a_path_from_a_directory_is_whole_if_the_directory_was_made_or_looked_up() {
    let dir = TempDir::new().unwrap();
    let recorder = ring(&dir, 1 << 20);
    let made = recorder.path_hash(1, b"src");
    let below = recorder.path_hash(7, b"inner/a.rs");
    let unknown = recorder.path_hash(8, b"b.rs");
    let circle = recorder.path_hash(9, b"c");
    recorder.record(&Event { inode: 7, path: made, ..Event::new(CallKind::Mkdir, Gateway::Mount) });
    recorder.record(&Event { inode: 9, path: circle, ..Event::new(CallKind::Lookup, Gateway::Mount) });
    let ring = read_ring(recorder.path()).unwrap();
    let text = |hash| ring.paths().path_of(hash).map(|path| String::from_utf8(path).unwrap());
    assert_eq!(text(below).as_deref(), Some("/src/inner/a.rs"));
    assert_eq!(text(unknown).as_deref(), Some("inode 8/b.rs"));
    assert_eq!(text(circle), None, "a directory below itself ends, too");
}

#[test]
fn numbers_of_the_closed_lists_stay() {
    let calls: Vec<String> = CallKind::ALL.iter().map(|call| format!("{} {}", *call as u8, call.name())).collect();
    assert_eq!(calls.first().map(String::as_str), Some("1 open"));
    assert_eq!(calls.last().map(String::as_str), Some("44 device_shares"));
    assert!(CallKind::ALL.iter().enumerate().all(|(at, call)| usize::from(*call as u8) == at + 1));
    assert!(CallKind::ALL.iter().all(|call| CallKind::from_number(*call as u8) == Some(*call)));
    assert_eq!((CallKind::from_number(0), CallKind::from_number(45)), (None, None));
    let gateways: Vec<&str> = Gateway::ALL.iter().map(|gateway| gateway.name()).collect();
    assert_eq!(gateways, ["library", "mount", "hdfs", "webhdfs", "command", "device", "import"]);
}

#[test]
fn threads_write_beside_each_other_and_nothing_is_missing() {
    const THREADS: u64 = 4;
    const EVENTS: u64 = 3000;
    let dir = TempDir::new().expect("a directory");
    let recorder = ring(&dir, 4 << 20);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let recorder = &recorder;
            scope.spawn(move || (0..EVENTS).for_each(|at| recorder.record(&event(thread * EVENTS + at))));
        }
    });
    let content = read_ring(recorder.path()).expect("a ring");
    assert_eq!(content.events, (0..THREADS * EVENTS).map(event).collect::<Vec<_>>());
    assert_eq!((content.overwritten, content.torn, content.unknown), (0, 0, 0));
    assert_eq!((content.program.as_str(), content.process), ("make -j2", std::process::id()));
    assert_eq!(content.clocks.len(), 1);
}

#[test]
fn a_ring_that_is_full_keeps_the_newest_and_counts_the_others() {
    let dir = TempDir::new().expect("a directory");
    let recorder = ring(&dir, 1 << 20);
    let slots = (1 << 20) / SLOT_BYTES as u64;
    let count = 5 * slots + 100;
    (0..count).for_each(|at| recorder.record(&event(at)));
    let content = read_ring(recorder.path()).expect("a ring");
    let first = content.events[0].inode;
    assert_eq!(content.events, (first..count).map(event).collect::<Vec<_>>(), "a run without a gap, to the newest");
    assert!(content.events.len() as u64 > slots - BLOCK_SLOTS);
    assert_eq!(content.overwritten, first);
}

#[test]
fn a_thread_that_rested_while_the_ring_went_around_writes_over_no_event_of_others() {
    let dir = TempDir::new().expect("a directory");
    let recorder = ring(&dir, 1 << 20);
    let slots = (1 << 20) / SLOT_BYTES as u64;
    recorder.record(&event(0));
    std::thread::scope(|scope| {
        scope.spawn(|| (1..=slots).for_each(|at| recorder.record(&event(at))));
    });
    recorder.record(&event(slots + 1));
    let content = read_ring(recorder.path()).expect("a ring");
    let found: Vec<u64> = content.events.iter().map(|event| event.inode).collect();
    assert!(found.ends_with(&[slots - 1, slots, slots + 1]), "{:?}", &found[found.len() - 4..]);
    assert!(found.windows(2).all(|pair| pair[0] + 1 == pair[1]), "no event in the middle is missing");
}

#[test]
fn the_outermost_scope_of_a_thread_writes_one_event_with_what_those_within_know() {
    let dir = TempDir::new().expect("a directory");
    let recorder = ring(&dir, 1 << 20);
    {
        let outer = recorder.scope(Gateway::Mount, CallKind::Read);
        outer.range(10, 300);
        for (offset, moved) in [(10, 100), (110, 150)] {
            let inner = recorder.scope(Gateway::Library, CallKind::Stat);
            inner.inode(77);
            inner.range(offset, 150);
            inner.path(&recorder, 1, b"/data/./x.csv");
            inner.moved(moved);
            inner.result(if offset == 10 { 5 } else { 0 });
        }
    }
    {
        let outer = recorder.scope(Gateway::Hdfs, CallKind::Create);
        outer.result(6);
        recorder.scope(Gateway::Library, CallKind::Write).result(0);
    }
    drop(CallScope::off());
    let content = read_ring(recorder.path()).expect("a ring");
    let [read, create] = &content.events[..] else { panic!("{:?}", content.events) };
    assert_eq!((read.call, read.gateway, read.inode), (CallKind::Read, Gateway::Mount, 77));
    assert_eq!((read.offset, read.asked, read.got, read.result), (10, 300, 250, 0));
    assert_eq!(content.paths().path_of(read.path), Some(b"/data/x.csv".to_vec()));
    assert_eq!((create.call, create.gateway, create.result, create.path), (CallKind::Create, Gateway::Hdfs, 6, 0));
    let wall = crate::recorder::wall_ns();
    assert!((wall - read.start_ns).unsigned_abs() < 60_000_000_000, "ns since 1970");
}

#[test]
fn names_are_found_by_hashes_that_depend_on_the_key_and_the_directory() {
    let (first, second) = (TempDir::new().expect("a directory"), TempDir::new().expect("a directory"));
    let (one, again, other) = (ring(&first, 1 << 20), ring(&first, 1 << 20), ring(&second, 1 << 20));
    let long = vec![b'n'; WORD_BYTES_MAX];
    let path = [b"/a/b/", &long[..]].concat();
    let hash = one.path_hash(1, &path);
    assert_eq!(hash, again.path_hash(1, &path), "one key for all rings of a directory");
    assert_ne!(hash, other.path_hash(1, &path));
    assert_ne!(one.path_hash(1, b"/a/x"), one.path_hash(1, b"/b/x"));
    let below = one.path_hash(44, b"x");
    let program = one.program("cc -c a.c");
    let (user, root) = (one.actor(&program, 1000), one.actor(&program, 0));
    assert_ne!(user, root);
    let content = read_ring(one.path()).expect("a ring");
    let paths = content.paths();
    assert_eq!(paths.path_of(hash), Some(path));
    assert_eq!(paths.path_of(below), Some(b"inode 44/x".to_vec()));
    assert_eq!(paths.path_of(one.path_hash(1, b"/")), Some(b"/".to_vec()));
    assert_eq!(paths.path_of(12345), None);
    let actor = content.words.iter().find(|word| word.kind == WordKind::Actor && word.hash as u32 == user);
    let of = |hash| content.words.iter().find(|word| word.hash == hash).map(|word| word.bytes.as_slice());
    assert_eq!(actor.and_then(|actor| of(actor.parent)), Some(&b"cc -c a.c"[..]));
}

#[test]
fn words_stay_in_a_ring_that_goes_around() {
    let dir = TempDir::new().expect("a directory");
    let recorder = ring(&dir, 1 << 20);
    let slots = (1 << 20) / SLOT_BYTES as u64;
    for at in 0..6 * slots {
        let path = recorder.path_hash(1, b"/always/here");
        recorder.record(&Event { path, ..event(at) });
    }
    let content = read_ring(recorder.path()).expect("a ring");
    assert_eq!(content.paths().path_of(content.events[0].path), Some(b"/always/here".to_vec()));
    assert!(content.words.len() == 2, "{:?}", content.words);
}

#[test]
fn a_recorded_call_allocates_nothing() {
    let dir = TempDir::new().expect("a directory");
    let recorder = ring(&dir, 1 << 20);
    let program = recorder.program("cc");
    let call = |number: u64| {
        let scope = recorder.scope(Gateway::Library, CallKind::Stat);
        scope.path(&recorder, 1, format!("/{number}").as_bytes());
        scope.actor(recorder.actor(&program, 1000));
        scope.inode(number);
    };
    call(1);
    let bytes = frieze_harness::peak_bytes(|| {
        for number in 0..200 {
            let scope = recorder.scope(Gateway::Library, CallKind::Stat);
            scope.path(&recorder, 1, b"/a/name/that/was/not/there");
            scope.actor(recorder.actor(&program, number));
            scope.inode(number.into());
        }
    });
    assert_eq!(bytes, 0);
}

#[test]
fn a_process_that_is_killed_leaves_every_whole_event() {
    const DIR: &str = "FRIEZE_TRACE_TEST_DIR";
    const THREADS: u64 = 3;
    const EVENTS: u64 = 340_000;
    if let Some(dir) = std::env::var_os(DIR) {
        // The child: writes until the ring is full, and waits to be killed.
        let settings = RingSettings { bytes: 64 << 20, dir: dir.into(), program: "child".to_owned(), is_live: false };
        let recorder = Recorder::create(&settings).expect("a ring");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let recorder = &recorder;
                scope.spawn(move || (0..EVENTS).for_each(|at| recorder.record(&event(thread << 40 | at))));
            }
        });
        loop {
            std::thread::park();
        }
    }
    for round in 0..3 {
        let dir = TempDir::new().expect("a directory");
        let mut child = std::process::Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "tests::a_process_that_is_killed_leaves_every_whole_event"])
            .env(DIR, dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("a child");
        let began = crate::recorder::mono_ns();
        let path = loop {
            let found = std::fs::read_dir(dir.path()).expect("readable").flatten().map(|entry| entry.path());
            let found = found.into_iter().find(|path| path.extension().is_some_and(|ext| ext == "ring"));
            match found {
                Some(path) if claimed(&path) > 100 << (3 * round) => break path,
                _ => assert!(crate::recorder::mono_ns() - began < 60_000_000_000, "the child writes"),
            }
        };
        // In use it can be read as well.
        read_ring(&path).expect("a ring in use");
        child.kill().expect("a child that runs");
        child.wait().expect("a child that ended");
        let content = read_ring(&path).expect("a ring");
        assert!(content.torn <= THREADS, "{} torn", content.torn);
        for thread in 0..THREADS {
            let of = |event: &&Event| event.inode >> 40 == thread;
            let numbers: Vec<u64> = content.events.iter().filter(of).map(|event| event.inode).collect();
            assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "no event of a thread is missing");
        }
        assert!(content.events.iter().all(|found| *found == event(found.inode)), "no event is a mixture");
    }
}

fn claimed(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes.get(24..32).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight")))
}

#[test]
fn rings_of_ended_processes_do_not_fill_the_directory() {
    let dir = TempDir::new().expect("a directory");
    let rings = dir.path().join("rings");
    std::fs::create_dir(&rings).expect("writable");
    // No process has such a number.
    let name = |number: u32| rings.join(format!("old-{}-1.ring", u32::MAX - number));
    for number in 0..20 {
        let file = std::fs::File::create(name(number)).expect("writable");
        let age = Duration::from_secs(1000 - u64::from(number));
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000) - age).expect("its own file");
    }
    let (first, second) = (ring(&dir, 1 << 20), ring(&dir, 1 << 20));
    assert!(first.path().exists() && second.path().exists(), "rings in use stay");
    let left: Vec<u32> = (0..20).filter(|number| name(*number).exists()).collect();
    assert_eq!(left, (12..20).collect::<Vec<_>>());
}

#[test]
fn a_file_that_is_no_ring_is_refused_with_the_cause() {
    let dir = TempDir::new().expect("a directory");
    let recorder = ring(&dir, 1 << 20);
    recorder.record(&event(1));
    let whole = std::fs::read(recorder.path()).expect("readable");
    let cause = |bytes: &[u8]| decoded(bytes).err().unwrap_or_default();
    assert_eq!(cause(b""), "it does not begin as one");
    assert_eq!(cause(&whole[..whole.len() - 1]).split(',').next(), Some("its header names 256 blocks"));
    let mut newer = whole.clone();
    newer[8] = 2;
    assert!(cause(&newer).starts_with("version 2"));
    let huge = dir.path().join("huge.ring");
    std::fs::File::create(&huge).and_then(|file| file.set_len(RING_BYTES_MAX + 4097)).expect("a sparse file");
    let refused = read_ring(&huge).expect_err("it would fill the memory");
    assert!(refused.to_string().contains("the largest ring 1073741824"), "{refused}");
    let missing = read_ring(&dir.path().join("none")).expect_err("there is no file");
    assert!(missing.to_string().starts_with("cannot read"), "{missing}");
    let settings = |bytes| RingSettings { bytes, dir: dir.path().to_owned(), program: String::new(), is_live: false };
    let small = Recorder::create(&settings(10)).expect_err("too small");
    assert!(small.to_string().contains("give 1048576 to"), "{small}");
    let key = dir.path().join("key");
    std::fs::write(&key, b"short").expect("writable");
    let foreign = Recorder::create(&settings(1 << 20)).expect_err("a key is damaged");
    assert!(foreign.to_string().contains("a key has 16 bytes"), "{foreign}");
    let proc = RingSettings { dir: "/proc/self".into(), ..settings(1 << 20) };
    assert!(Recorder::create(&proc).is_err(), "no ring can be made there");
}

#[test]
fn bytes_of_any_kind_are_read_as_a_ring_or_refused() {
    let dir = TempDir::new().expect("a directory");
    let recorder = ring(&dir, 1 << 20);
    (0..500).for_each(|at| {
        let path = recorder.path_hash(1, format!("/dir-{at}/file").as_bytes());
        recorder.record(&Event { path, ..event(at) });
    });
    let mut whole = std::fs::read(recorder.path()).expect("readable");
    // Two blocks: damage meets slots that count.
    whole.truncate(HEADER_WORDS * 8 + 2 * 64 * SLOT_BYTES);
    whole[16..24].copy_from_slice(&2_u64.to_le_bytes());
    whole[24..32].copy_from_slice(&2_u64.to_le_bytes());
    let sound = decoded(&whole).expect("a ring");
    assert!(sound.events.len() > 20 && sound.torn == 0);
    let mut rng = Rng::new(3);
    for _ in 0..2000 {
        let mut damaged = whole.clone();
        for _ in 0..rng.between(1, 40) {
            let at = rng.below(damaged.len() as u64) as usize;
            damaged[at] = rng.next() as u8;
        }
        if let Ok(found) = decoded(&damaged) {
            assert!(found.events.len() <= 128);
            found.events.iter().for_each(|event| drop(found.paths().path_of(event.path)));
        }
    }
}

#[test]
fn a_follower_gives_each_event_once_while_threads_write_and_after_a_restart() {
    let dir = TempDir::new().expect("a directory");
    let recorder = ring(&dir, 4 << 20);
    let mut follower = RingFollower::of(&recorder).expect("a ring");
    let (mut events, mut words) = (Vec::new(), 0);
    let threads: Vec<_> = (0..4_u64)
        .map(|thread| {
            let recorder = recorder.clone();
            std::thread::spawn(move || {
                (0..9_000).for_each(|number| {
                    let path = recorder.path_hash(1, format!("/{thread}/{}", number / 100).as_bytes());
                    let path2 = u64::from(number % 5 == 0);
                    recorder.record(&Event { path, path2, ..event(thread << 32 | number) });
                });
            })
        })
        .collect();
    while threads.iter().any(|thread| !thread.is_finished()) {
        let new = follower.read();
        assert_eq!((new.torn, new.unknown), (0, 0));
        words += new.words.len();
        events.extend(new.events);
    }
    threads.into_iter().for_each(|thread| thread.join().expect("it records"));
    let new = follower.read();
    words += new.words.len();
    events.extend(new.events);
    let growing = follower.place().growing.len();
    assert!((1..=4).contains(&growing), "the last event of each thread may change: {growing}");
    // Another process reads the file from that place on.
    let mut later = RingFollower::open(recorder.path(), follower.place().clone()).expect("a ring");
    let rest = later.read_to_end();
    assert!((1..=4).contains(&rest.events.len()) && rest.overwritten == 0, "{}", rest.events.len());
    events.extend(rest.events);
    let mut inodes: Vec<u64> = events.iter().map(|event| event.inode).collect();
    inodes.sort_unstable();
    let all: Vec<u64> = (0..4_u64).flat_map(|thread| (0..9_000).map(move |number| thread << 32 | number)).collect();
    assert_eq!(inodes, all);
    assert!(events.iter().all(|event| event.path2 == u64::from((event.inode as u32).is_multiple_of(5))));
    assert!(words >= 4 * 91, "{words}");
    assert_eq!(follower.read().events.len(), 0, "nothing is given twice");
}

#[test]
fn a_follower_waits_for_calls_that_may_join_an_event_and_counts_what_it_came_too_late_for() {
    let dir = TempDir::new().expect("a directory");
    let recorder = ring(&dir, 1 << 20);
    let append = |offset: u64| {
        let call = Event::new(CallKind::Append, Gateway::Library);
        Event { inode: 5, stream: 1, offset, asked: 100, got: 100, ..call }
    };
    let mut follower = RingFollower::of(&recorder).expect("a ring");
    recorder.record(&append(0));
    assert_eq!(follower.read().events, [], "the next append may join it");
    recorder.record(&append(100));
    recorder.record(&event(1));
    assert_eq!(follower.read().events[..1], [append(0).collapsed_with(&append(100)).expect("they meet")]);
    // More than a lap: 256 blocks of 64 slots.
    (0..3 * 256 * 64).for_each(|number| recorder.record(&event(number)));
    let late = follower.read();
    assert!(late.events.len() >= 255 * 64 && late.overwritten >= 2 * 255 * 64, "{}", late.overwritten);
    let all = late.events.len() as u64 + late.overwritten;
    assert!((3 * 256 * 64..=3 * 256 * 64 + 64).contains(&all), "{all}");
    // A block that a thread left long ago is read to its end.
    let long = recorder.clone();
    std::thread::spawn(move || long.record(&event(77))).join().expect("it records");
    assert!(!follower.read().events.iter().any(|event| event.inode == 77));
    (0..250 * 64).for_each(|number| recorder.record(&event(number << 8)));
    assert!(follower.read().events.iter().any(|event| event.inode == 77));
}

#[test]
fn a_word_whose_slots_are_not_all_there_is_left_out() {
    let bytes = vec![b'w'; 100];
    let slots: Vec<_> = words::encode(WordKind::Name, 9, 1, &bytes, 1).collect();
    assert_eq!(slots.len(), 3);
    let put = |order: &[usize]| {
        let mut parts = WordParts::default();
        order.iter().filter_map(|at| parts.put(&slots[*at])).map(|word| word.bytes).collect::<Vec<_>>()
    };
    assert_eq!(put(&[0, 1, 2]), vec![bytes.clone()]);
    assert_eq!(put(&[1, 2]), Vec::<Vec<u8>>::new());
    assert_eq!(put(&[0, 2]), Vec::<Vec<u8>>::new());
    assert_eq!(put(&[0, 1, 0, 1, 2]), vec![bytes]);
}

#[test]
fn a_summary_counts_calls_bytes_and_times() {
    let read = |got, duration_ns| Event { got, duration_ns, result: 0, count: 1, ..event(5) };
    let mut events: Vec<Event> = (1..=100).map(|at| read(10, at)).collect();
    events.push(Event { result: 2, got: 0, duration_ns: 1000, ..read(0, 0) });
    events.push(Event { call: CallKind::Write, inode: 6, got: 5000, ..read(0, 7) });
    let summary = Summary::of(&events);
    let reads = &summary.calls[&(Gateway::Mount, CallKind::Read)];
    assert_eq!((reads.count, reads.failed, reads.bytes), (101, 1, 1000));
    assert_eq!((reads.duration_ns(50.0), reads.duration_ns(99.0), reads.duration_ns(100.0)), (51, 100, 1000));
    let top: Vec<(u64, u64, u64)> =
        summary.top_files(5).into_iter().map(|(inode, file)| (inode, file.read, file.written)).collect();
    assert_eq!(top, [(6, 0, 5000), (5, 1000, 0)]);
    assert!(Summary::of(&[]).span_ns.is_none() && Summary::of(&[]).top_files(5).is_empty());
    assert_eq!(CallSummary::default().duration_ns(99.0), 0);
}
