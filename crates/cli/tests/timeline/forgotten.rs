//! `forget` by the command, and then every way of asking for what was before: refused with the instant that is kept, or
//! as it was.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::sys::signal::Signal;
use rustix::io::Errno;

use crate::support::Mount;
use crate::support::served::Served;

/// What a file holds in its state `number`: enough of it that its space comes back in pages.
fn state(number: u8) -> Vec<u8> {
    frieze_testkit::bytes::random_bytes(number.into(), 300_000)
}

/// Reads below the mountpoint at an instant.
fn read_at(mount: &Mount, at: &str, path: &str) -> std::io::Result<Vec<u8>> {
    fs::read(mount.path(Path::new(".at").join(at).join(path)))
}

/// Everything that was before is refused or left out, with words; everything else is as it was.
fn check(server: &Served, mount: Option<&Mount>, instants: &[String], kept: &str) {
    let (old, horizon) = (&instants[0], &instants[2]);
    // What a person reads names the instant to ask for instead.
    let asked: [&[&str]; 6] = [
        &["cat", "/d/f", "--at", old],
        &["ls", "/d", "--at", old],
        &["diff", "/d", "--from", old],
        &["clone", "/d", "/copy", "--at", old],
        &["restore", "/d", "--to", old],
        &["undo", "--path", "/d", "--from", old, "--user", "me"],
    ];
    let me = nix::unistd::getuid().to_string();
    for args in asked {
        let args: Vec<&str> = args.iter().map(|arg| if *arg == "me" { me.as_str() } else { arg }).collect();
        let said = server.run(&args);
        assert!(said.status != 0, "{args:?}: {said:?}");
        assert!(said.err.contains("forgot") && said.err.contains(horizon), "{args:?}: {}", said.err);
        assert!(said.err.contains("history of /d"), "{args:?}: {}", said.err);
    }
    let found = server.ok(&["find", "/other", "--from", "2001-01-01T00:00:00Z", "--to", &instants[3]]);
    assert!(found.contains("/other/f"), "{found}");
    let log = server.ok(&["log", "/d/f"]);
    assert!(log.contains("forgotten by"), "{log}");
    let told = server.json(&["log", "/d/f", "--json"]);
    let forgotten: Vec<_> = told.iter().filter(|line| line["kind"] == "forgotten").collect();
    assert_eq!(forgotten.len(), 1, "{told:?}");
    assert_eq!(forgotten[0]["before"], horizon.as_str());
    // From the horizon on, and wherever nothing was forgotten, nothing has changed.
    for (number, at) in instants.iter().enumerate() {
        let bytes = &server.run(&["cat", "/other/f", "--at", at]).bytes;
        assert!(*bytes == state(number as u8), "state {number} of a file elsewhere");
        let said = server.run(&["cat", "/d/f", "--at", at]);
        // State 1 is what the snapshot shows.
        assert_eq!(said.status == 0, number >= 1, "state {number}: {}", said.err);
        assert!(said.status != 0 || said.bytes == state(number as u8), "state {number}");
    }
    let said = server.run(&["cat", "/d/f", "--at", kept]);
    assert!(said.status == 0 && said.bytes == state(1), "a snapshot stays readable: {}", said.err);
    let diff = server.ok(&["diff", "/d", "--from", horizon, "--to", &instants[3]]);
    assert!(diff.contains("/d/f"), "{diff}");
    let Some(mount) = mount else { return };
    for path in ["d/f", "d/gone"] {
        let refused = read_at(mount, old, path).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::RANGE.raw_os_error()), "{path}: {refused}");
    }
    let refused =
        fs::read_dir(mount.path(Path::new(".at").join(old).join("d"))).and_then(|mut all| all.next().unwrap());
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(Errno::RANGE.raw_os_error()));
    for number in [2, 3] {
        assert!(read_at(mount, &instants[number], "d/f").unwrap() == state(number as u8), "state {number}");
    }
    assert!(read_at(mount, kept, "d/f").unwrap() == state(1), "a snapshot on the mount");
    assert!(read_at(mount, old, "other/f").unwrap() == state(0));
    assert!(fs::read(mount.path("d/f")).unwrap() == state(3));
}

#[test]
fn what_was_forgotten_is_refused_everywhere_and_what_was_kept_is_as_before() {
    let mut server = Served::start();
    server.ok(&["mkdir", "-p", "/d", "/other"]);
    server.put("/d/gone", state(9));
    let mut instants: Vec<String> = Vec::new();
    for number in 0..4 {
        if number == 2 {
            server.ok(&["rm", "/d/gone"]);
        }
        server.put("/d/f", state(number));
        server.put("/other/f", state(number));
        instants.push(server.now());
    }
    server.ok(&["snapshot", "create", "kept", "--at", &instants[1]]);
    let mount = Mount::of(&server);
    if let Some(mount) = &mount {
        // A reader of before, with the file open and in the kernel's cache, is refused what it has not read.
        assert!(read_at(mount, &instants[0], "d/f").unwrap() == state(0));
    }

    let dry = server.json(&["forget", "--before", &instants[2], "/d", "--dry-run", "--json"]);
    let (files, dry) = dry.split_at(dry.len() - 1);
    assert_eq!(dry[0]["dry_run"], true);
    // Two states of /d/f were before, one of which the snapshot shows; of /d/gone the snapshot shows all there is.
    assert_eq!((dry[0]["bytes"].as_u64(), dry[0]["held_bytes"].as_u64()), (Some(300_000), Some(600_000)), "{dry:?}");
    assert_eq!((files.len(), &files[0]["path"]), (1, &serde_json::json!("/d/f")), "{files:?}");
    assert!(server.run(&["cat", "/d/f", "--at", &instants[0]]).bytes == state(0), "a dry run forgets nothing");

    let done = server.json(&["forget", "--before", &instants[2], "/d", "--json"]);
    let done = done.last().unwrap();
    assert_eq!((done["dry_run"].as_bool(), done["bytes"].as_u64()), (Some(false), Some(300_000)), "{done}");
    assert_eq!((&done["before"], &done["snapshots"]), (&instants[2].as_str().into(), &serde_json::json!(["kept"])));
    assert!(done["freed_bytes"].as_u64().unwrap() > 290_000, "{done}");
    check(&server, mount.as_ref(), &instants, "kept");
    // Again there is nothing to do, and it says so.
    let again = server.ok(&["forget", "--before", &instants[2], "/d"]);
    assert!(again.contains("stays readable at snapshots: kept"), "{again}");
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        server.restart(signal);
        check(&server, None, &instants, "kept");
    }
}

#[test]
fn a_program_keeps_reading_an_open_deleted_file_whose_history_expired() {
    let mut server = Served::start();
    server.ok(&["mkdir", "/d"]);
    server.put("/d/f", state(1));
    server.put("/d/f", state(2));
    let Some(mount) = Mount::of(&server) else { return };
    let file = fs::File::open(mount.path("d/f")).unwrap();
    fs::remove_file(mount.path("d/f")).unwrap();
    let before = server.now();
    let forget = |server: &Served| server.json(&["forget", "--before", &before, "/d", "--json"]).pop().unwrap();
    let done = forget(&server);
    assert_eq!((&done["open"], &done["bytes"]), (&1.into(), &300_000.into()), "{done}");
    server.restart(Signal::SIGKILL);
    assert_eq!(forget(&server)["open"], 1);
    let mut read = vec![0; 400_000];
    let len = file.read_at(&mut read, 0).unwrap();
    assert!(read[..len] == state(2), "{len} bytes");
    drop(file);
    // The mount says with its next question that it is closed, and with the one after that the server believes it.
    let freed = (0..2000).find_map(|_| {
        let done = forget(&server);
        (done["open"] == 0).then_some(done)
    });
    assert_eq!(freed.expect("it is closed")["bytes"], 300_000);
}
