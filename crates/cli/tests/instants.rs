//! A hundred instants, recorded outside of the system when they were written, read back through every door before and
//! after all that may happen to a file system later.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[expect(dead_code, reason = "shared with tests that need more of it")]
mod support;

use std::collections::BTreeMap;
use std::fs;

use frieze_base::Rng;
use frieze_client::{Client, CreateMode, File, Hlc, OpenFlags, Reason, RenameMode, Target};
use frieze_testkit::bytes::random_bytes;
use nix::sys::signal::Signal;

use support::served::Served;
use support::{Mount, client};

/// Small chunks and segments, so that files span several of both.
const SETTINGS: &str = "chunk_bytes = 65536\nsegment_bytes = 8388608\n";
const INSTANTS: usize = 100;
const LATER_WRITES: usize = 1000;

/// What the directory `/a/b` held at an instant.
struct Recorded {
    at: Hlc,
    files: BTreeMap<String, Vec<u8>>,
}

/// The files as they are written, and beside them what they should hold.
struct Story {
    client: Client,
    now: BTreeMap<String, Vec<u8>>,
    recorded: Vec<Recorded>,
    rng: Rng,
}

impl Story {
    fn new(client: Client) -> Story {
        for path in ["/a", "/a/b"] {
            client.fs().mkdir(&Target::path(path), 0o755).unwrap();
        }
        Story { client, now: BTreeMap::new(), recorded: Vec::new(), rng: Rng::new(0x1457a9) }
    }

    fn create(&self, name: &str) -> File {
        self.client.fs().create(&Target::path(format!("/a/b/{name}")), 0o644, CreateMode::OpenExisting).unwrap()
    }

    /// Writes through to both. Returns the stamp.
    fn write(&mut self, file: &File, name: &str, offset: usize, bytes: &[u8]) -> Hlc {
        let held = self.now.entry(name.to_owned()).or_default();
        held.resize(held.len().max(offset + bytes.len()), 0);
        held[offset..offset + bytes.len()].copy_from_slice(bytes);
        file.write_at(offset as u64, bytes).unwrap()
    }

    fn record(&mut self, at: Hlc) {
        self.recorded.push(Recorded { at, files: self.now.clone() });
    }

    /// One step: every kind of change takes its turn, and `/a/b/main` differs after each.
    fn step(&mut self, step: usize, main: &File) {
        let mut bytes = random_bytes(step as u64, self.rng.between(1, 20_000) as usize);
        bytes[0] = step as u8;
        match step % 5 {
            // A name that comes and goes.
            0 => {
                let name = format!("only-{step}");
                let file = self.create(&name);
                self.write(&file, &name, 0, &bytes);
                file.close().unwrap();
            }
            1 => {
                let name = format!("only-{}", step - 1);
                self.client.fs().unlink(&Target::path(format!("/a/b/{name}"))).unwrap();
                self.now.remove(&name);
            }
            // Written beside and renamed into place.
            2 => {
                let file = self.create("next");
                self.write(&file, "next", 0, &bytes);
                file.close().unwrap();
                let path = |name: &str| Target::path(format!("/a/b/{name}"));
                self.client.fs().rename(&path("next"), &path("replaced"), RenameMode::Replace).unwrap();
                let held = self.now.remove("next").unwrap();
                self.now.insert("replaced".to_owned(), held);
            }
            3 => {
                let len = self.rng.below(self.now["main"].len() as u64) as usize;
                main.set_len(len as u64).unwrap();
                self.now.get_mut("main").unwrap().truncate(len);
            }
            _ => {
                let file = self.create("grown");
                let end = self.now.get("grown").map_or(0, Vec::len);
                assert_eq!(file.append(&bytes).unwrap().offset, end as u64);
                self.now.entry("grown".to_owned()).or_default().extend_from_slice(&bytes);
            }
        }
        let offset = self.rng.below(200_000) as usize;
        let stamp = self.write(main, "main", offset, &bytes);
        // The stamp of the write is an instant like any other, and so is the one that a client is told is now.
        let at = if step.is_multiple_of(2) { stamp } else { self.client.now().unwrap() };
        self.record(at);
    }
}

/// The past through every door that there is.
struct Doors<'a> {
    server: &'a Served,
    mount: Option<&'a Mount>,
    client: &'a Client,
}

impl Doors<'_> {
    /// Reads every instant through every door.
    fn check(&self, recorded: &[Recorded], when: &str) {
        for instant in recorded {
            self.check_api(instant, when);
            self.check_command(instant, when);
            if let Some(mount) = self.mount {
                check_mount(mount, instant, when);
            }
        }
    }

    fn check_api(&self, instant: &Recorded, when: &str) {
        let fs = self.client.fs().at(instant.at);
        let names: Vec<String> = fs
            .entries(&Target::path("/a/b"))
            .unwrap()
            .into_iter()
            .map(|entry| String::from_utf8(entry.name).unwrap())
            .collect();
        assert!(names.iter().eq(instant.files.keys()), "{when}: {names:?} at {}", instant.at);
        for (name, expected) in &instant.files {
            let read = read_at(self.client, &format!("/a/b/{name}"), instant.at);
            assert!(&read == expected, "{when}: the library reads {name} at {} otherwise", instant.at);
        }
    }

    fn check_command(&self, instant: &Recorded, when: &str) {
        let at = instant.at.to_string();
        let mut line = vec!["cat".to_owned(), "--at".to_owned(), at.clone()];
        line.extend(instant.files.keys().map(|name| format!("/a/b/{name}")));
        let said = self.server.run(&line);
        assert_eq!((said.status, said.err.as_str()), (0, ""), "{when}: at {at}");
        let expected: Vec<u8> = instant.files.values().flatten().copied().collect();
        assert!(said.bytes == expected, "{when}: frieze cat reads otherwise at {at}");
    }
}

fn check_mount(mount: &Mount, instant: &Recorded, when: &str) {
    let directory = mount.path(format!(".at/{}/a/b", instant.at));
    let mut names: Vec<String> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert!(names.iter().eq(instant.files.keys()), "{when}: {names:?} in {}", directory.display());
    for (name, expected) in &instant.files {
        let path = directory.join(name);
        assert!(&fs::read(&path).unwrap() == expected, "{when}: {} reads otherwise", path.display());
    }
}

fn read_at(client: &Client, path: &str, at: Hlc) -> Vec<u8> {
    let file = client.fs().at(at).open(&Target::path(path), OpenFlags::READ).unwrap();
    assert!(!file.answered().incomplete, "nothing was lost");
    let mut bytes = vec![0; file.attr().size as usize + 1];
    let len = file.read_at(0, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn a_hundred_instants_read_the_same_through_every_gateway_forever() {
    let mut server = Served::with(SETTINGS, "127.0.0.1:0");
    let client = client(&server.address);
    let mount = Mount::of(&server);

    let mut story = Story::new(client.clone());
    let main = story.create("main");
    for step in 0..INSTANTS {
        story.step(step, &main);
    }
    let recorded = std::mem::take(&mut story.recorded);
    assert_eq!(recorded.len(), INSTANTS);
    assert!(recorded.is_sorted_by(|a, b| a.at < b.at), "every instant is another");
    let contents: std::collections::BTreeSet<&Vec<u8>> =
        recorded.iter().map(|instant| &instant.files["main"]).collect();
    assert_eq!(contents.len(), INSTANTS, "no two states of the file are the same");
    assert!(!contents.contains(&Vec::new()), "and none is empty");
    let doors = Doors { server: &server, mount: mount.as_ref(), client: &client };
    doors.check(&recorded, "just after");

    // A thousand writes, then all of it goes: the files, and the name of the directory above.
    for n in 0..LATER_WRITES {
        let bytes = random_bytes(n as u64, 1 + n % 3000);
        main.write_at((n * 199 % 200_000) as u64, &bytes).unwrap();
    }
    main.close().unwrap();
    doors.check(&recorded, "after a thousand writes");
    let fs = client.fs();
    for name in story.now.keys() {
        fs.unlink(&Target::path(format!("/a/b/{name}"))).unwrap();
    }
    fs.rename(&Target::path("/a"), &Target::path("/z"), RenameMode::Replace).unwrap();
    fs.rmdir(&Target::path("/z/b")).unwrap();
    assert_eq!(fs.stat(&Target::path("/a")).unwrap_err().reason(), Reason::NotFound);
    doors.check(&recorded, "after a deletion and the rename of a parent");

    assert_eq!(server.restart(Signal::SIGTERM), Some(0), "a stop is clean");
    let doors = Doors { server: &server, mount: mount.as_ref(), client: &client };
    doors.check(&recorded, "after a restart");

    // Something to recover, then a crash.
    let later = fs.create(&Target::path("/z/later"), 0o644, CreateMode::Exclusive).unwrap();
    later.write_at(0, b"written just before the crash").unwrap();
    assert_eq!(server.restart(Signal::SIGKILL), None, "it is killed");
    let doors = Doors { server: &server, mount: mount.as_ref(), client: &client };
    doors.check(&recorded, "after a recovery");
    assert_eq!(read_at(&client, "/z/later", client.now().unwrap()), b"written just before the crash");
}

#[test]
fn a_write_is_in_the_instant_of_its_stamp_and_not_in_the_one_before() {
    let mut server = Served::with(SETTINGS, "127.0.0.1:0");
    let client = client(&server.address);
    let file = client.fs().create(&Target::path("/f"), 0o644, CreateMode::Exclusive).unwrap();
    let mut states = Vec::new();
    let mut content: Vec<u8> = Vec::new();
    for n in 0..INSTANTS {
        // Over the boundary of a chunk, so that the write is a group of records.
        let bytes = random_bytes(n as u64, 500);
        let offset = 65536 - 250 + 10 * n;
        let before = content.clone();
        content.resize(content.len().max(offset + bytes.len()), 0);
        content[offset..offset + bytes.len()].copy_from_slice(&bytes);
        states.push((file.write_at(offset as u64, &bytes).unwrap(), before, content.clone()));
    }
    file.close().unwrap();
    let check = || {
        for (stamp, before, after) in &states {
            assert!(&read_at(&client, "/f", *stamp) == after, "at {stamp}");
            assert!(&read_at(&client, "/f", stamp.previous()) == before, "just before {stamp}");
        }
    };
    check();
    assert_eq!(server.restart(Signal::SIGKILL), None);
    check();
}
