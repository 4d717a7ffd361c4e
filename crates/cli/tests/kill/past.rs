//! Loads that hold the server to what it said of the past: instants asked again, files that are gone.

use frieze_base::{Rng, crc32c};
use frieze_testkit::bytes::random_bytes;

use frieze_client::{Client, CreateMode, Durability, HistoryInterval, Hlc, Reason, Target};

use crate::library::read;
use crate::loads::Load;

/// What was answered about one instant, in few bytes.
pub(crate) struct Memory {
    at: Hlc,
    question: Question,
    answer: (u64, u32),
}

#[derive(Clone, Copy, Debug)]
enum Question {
    Bytes(&'static str),
    Names(&'static str),
    /// What changed since this instant.
    Changes(Hlc),
}

/// What other loads work on.
const FILES: [&str; 4] = ["/async", "/sync", "/appended", "/replaced"];
const DIRECTORIES: [&str; 3] = ["/", "/names", "/coming"];
/// Instants that are remembered: of more, one is asked for the last time.
const MEMORIES_MAX: u64 = 2000;

impl Memory {
    fn of(client: &Client, at: Hlc, question: Question) -> Memory {
        let answer = match question {
            Question::Bytes(path) => match client.fs().at(at).stat(&Target::path(path)) {
                Ok(_) => {
                    let bytes = read(client, path, Some(at));
                    (bytes.len() as u64, crc32c(&bytes))
                }
                Err(error) if error.reason() == Reason::NotFound => (u64::MAX, 0),
                Err(error) => panic!("{path} at {at}: {error}"),
            },
            Question::Names(path) => match client.fs().at(at).entries_with_attrs(&Target::path(path)) {
                Ok(entries) => digest(entries.iter().map(|entry| format!("{entry:?}"))),
                Err(error) if error.reason() == Reason::NotFound => (u64::MAX, 0),
                Err(error) => panic!("{path} at {at}: {error}"),
            },
            Question::Changes(since) => {
                let interval = HistoryInterval { after: since, upto: at };
                let diff = client.fs().diff(&Target::path("/"), interval, 0, 0).unwrap();
                digest(diff.differences.iter().map(|difference| format!("{difference:?}")))
            }
        };
        Memory { at, question, answer }
    }

    /// The same question has the same answer.
    pub(crate) fn check(&self, client: &Client) {
        let now = Memory::of(client, self.at, self.question);
        assert_eq!(now.answer, self.answer, "what is answered about {:?} at {} is another", self.question, self.at);
    }
}

fn digest(lines: impl Iterator<Item = String>) -> (u64, u32) {
    let lines: Vec<String> = lines.collect();
    (lines.len() as u64, crc32c(lines.concat().as_bytes()))
}

/// Asks about the present and about instants of the past, and now and then again.
pub(crate) fn remember(load: &Load<'_>, client: &Client, mut rng: Rng) -> Vec<Memory> {
    let first = client.now().unwrap();
    let mut memories: Vec<Memory> = Vec::new();
    loop {
        let now = client.now().unwrap();
        // Often just now; else any instant since the beginning.
        let at = if rng.chance(2) { now } else { Hlc(rng.between(first.0, now.0)) };
        let question = match rng.below(8) {
            0..=3 => Question::Bytes(FILES[rng.below(4) as usize]),
            4..=6 => Question::Names(DIRECTORIES[rng.below(3) as usize]),
            _ => {
                let recent = Hlc::first_of_micros(at.micros().saturating_sub(RECENT_US));
                Question::Changes(Hlc(rng.between(first.max(recent).0, at.0)))
            }
        };
        let memory = Memory::of(client, at, question);
        if (memories.len() as u64) < MEMORIES_MAX {
            memories.push(memory);
        } else {
            let index = rng.below(MEMORIES_MAX) as usize;
            std::mem::replace(&mut memories[index], memory).check(client);
        }
        memories[rng.below(memories.len() as u64) as usize].check(client);
        if !load.goes_on() {
            return memories;
        }
    }
}

/// So long at most is the interval whose changes are asked for: what the others wait for stays small.
const RECENT_US: u64 = 200_000;

/// Files that were made, written and mostly removed again.
pub(crate) struct Gone {
    directory: String,
    /// Number, when it had its bytes, and when it was removed.
    removed: Vec<(u64, Hlc, Hlc)>,
    left: Vec<(u64, Hlc)>,
}

impl Gone {
    pub(crate) fn removed(&self) -> usize {
        self.removed.len()
    }

    fn path(&self, number: u64) -> String {
        format!("{}/{number}", self.directory)
    }
}

fn bytes_of(number: u64) -> Vec<u8> {
    random_bytes(number ^ 0x0060_6e65, (number * 4099 % 20_000) as usize)
}

/// Makes files, durably or not, and removes one of them once there are several.
pub(crate) fn come_and_go(load: &Load<'_>, client: &Client, directory: &str, mut rng: Rng) -> Gone {
    let fs = client.fs();
    fs.mkdir(&Target::path(directory), 0o755).unwrap();
    let mut gone = Gone { directory: directory.to_owned(), removed: Vec::new(), left: Vec::new() };
    for number in 0.. {
        let durability = if rng.chance(4) { Durability::Sync } else { Durability::Async };
        let path = Target::path(gone.path(number));
        let file = fs.with_durability(durability).create(&path, 0o644, CreateMode::Exclusive).unwrap();
        let bytes = bytes_of(number);
        let (head, tail) = bytes.split_at(rng.below(bytes.len() as u64 + 1) as usize);
        file.append(head).unwrap();
        file.append(tail).unwrap();
        if rng.chance(6) {
            file.sync().unwrap();
        }
        file.close().unwrap();
        gone.left.push((number, client.now().unwrap()));
        if gone.left.len() > 5 {
            let (number, whole) = gone.left.swap_remove(rng.below(5) as usize);
            let done = fs.unlink(&Target::path(gone.path(number))).unwrap();
            gone.removed.push((number, whole, Hlc(done.stamp)));
        }
        if !load.goes_on() {
            break;
        }
    }
    gone
}

/// What is left is whole; what was removed is not there, and was there, whole, from when it was written until just
/// before.
pub(crate) fn check_gone(client: &Client, gone: &Gone, rng: &mut Rng) {
    for (number, whole) in &gone.left {
        for at in [None, Some(*whole)] {
            assert!(read(client, &gone.path(*number), at) == bytes_of(*number), "{} at {at:?}", gone.path(*number));
        }
    }
    for (number, whole, removed) in &gone.removed {
        if !rng.chance(1 + gone.removed.len() as u64 / 200) {
            continue;
        }
        let path = gone.path(*number);
        for at in [*whole, removed.previous()] {
            assert!(read(client, &path, Some(at)) == bytes_of(*number), "{path} at {at}");
        }
        for at in [None, Some(*removed)] {
            let fs = at.map_or(client.fs(), |at| client.fs().at(at));
            let found = fs.stat(&Target::path(path.as_str()));
            assert_eq!(found.unwrap_err().reason(), Reason::NotFound, "{path} at {at:?}");
        }
    }
    let mut left: Vec<u64> = gone.left.iter().map(|(number, _)| *number).collect();
    let found = client.fs().entries(&Target::path(gone.directory.as_str())).unwrap();
    let mut found: Vec<u64> =
        found.into_iter().map(|entry| String::from_utf8(entry.name).unwrap().parse().unwrap()).collect();
    left.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, left, "{}", gone.directory);
}
