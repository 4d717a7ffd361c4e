//! `frieze run`: a mount and a session for one command.

use std::fs::OpenOptions;

use crate::support::served::{Served, lines_of_json};

#[test]
fn a_command_runs_on_a_mount_of_its_own_and_its_session_tells_what_it_did() {
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        eprintln!("skipped: this test mounts a file system, and /dev/fuse cannot be opened here: {error}");
        return;
    }
    let server = Served::start();
    server.put("/kept", "kept");
    let before = server.now();
    let script = "cd \"$FRIEZE_MOUNT\" && cat kept && echo made > made && rm kept && exit 7";
    let said = server.run(&["run", "--", "sh", "-c", script]);
    assert_eq!((said.status, said.out().as_str()), (7, "kept"), "{said:?}");
    assert!(said.err.starts_with("frieze: run: session "), "{said:?}");
    let session: u64 = said.err.split(' ').nth(3).unwrap().parse().unwrap();

    let events = server.json(&["log", "-R", "/", "--since", &before, "--json"]);
    let told: Vec<(&str, &str)> =
        events.iter().map(|event| (event["change"].as_str().unwrap(), event["path"].as_str().unwrap())).collect();
    assert_eq!(told, [("added", "/made"), ("modified", "/made"), ("removed", "/kept")]);
    for event in &events {
        assert_eq!(event["session"], session);
        assert_eq!(event["command"], format!("sh -c {script}"));
    }
    let sessions = server.json(&["sessions", "--json"]);
    let own = sessions.iter().find(|own| own["session"] == session).unwrap();
    assert!(own["ended"].is_string(), "the session ends with the command: {own}");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("frieze-run"), "nothing stays mounted");

    // Where it is told to, and a command that cannot be run, or that a signal ends.
    std::fs::create_dir(server.local("here")).unwrap();
    let here = server.local("here").to_str().unwrap().to_owned();
    let said = server.run(&["run", "--json", "--at-dir", "here", "--", "sh", "-c", "echo $FRIEZE_MOUNT"]);
    assert_eq!(said.status, 0, "{said:?}");
    let out = said.out();
    let (first, rest) = out.split_once('\n').unwrap();
    assert_eq!(first, here);
    assert_eq!(lines_of_json(rest)[0]["mountpoint"], here);
    assert!(server.fails(1, &["run", "--", "/no/such/program"]).contains("cannot run /no/such/program"));
    assert_eq!(server.run(&["run", "--", "sh", "-c", "kill -9 $$"]).status, 137);
}
