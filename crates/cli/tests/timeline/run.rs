//! `frieze run`: a mount and a session for one command.

use std::os::unix::fs::PermissionsExt;

use frieze_harness::requirements;

use crate::support::served::{Served, lines_of_json};

#[test]
fn a_command_runs_on_a_mount_of_its_own_and_its_session_tells_what_it_did() {
    if !requirements::fuse() {
        return;
    }
    let server = Served::start();
    server.put("/kept", "kept");
    let before = server.now();
    let script = "cd \"$FRIEZE_MOUNT\" && cat kept && echo made > made && rm kept && exit 7";
    let said = server.run(&["run", "--", "sh", "-c", script]);
    assert_eq!((said.status, said.out().as_str()), (7, "kept"), "{said:?}");
    assert!(said.err.starts_with("frieze: run: session "), "{said:?}");
    // A string in JSON: no double holds it.
    let session = said.err.split(' ').nth(3).unwrap().to_owned();
    assert!(session.parse::<u64>().unwrap() > 1 << 53);

    let events = server.json(&["log", "-R", "/", "--from", &before, "--full", "--json"]);
    let told: Vec<(&str, &str)> =
        events.iter().map(|event| (event["change"].as_str().unwrap(), event["path"].as_str().unwrap())).collect();
    assert_eq!(told, [("removed", "/kept"), ("modified", "/made"), ("added", "/made")]);
    for event in &events {
        assert_eq!(event["session"], session);
        assert_eq!(event["command"], format!("sh -c {script}"));
    }
    let short = server.json(&["log", "-R", "/", "--from", &before, "--json"]);
    assert!(short.iter().all(|event| event["command"] == "sh"), "the name of the program alone: {short:?}");
    let sessions = server.json(&["sessions", "--json"]);
    let own = sessions.iter().find(|own| own["session"] == session).unwrap();
    assert!(own["ended"].is_string(), "the session ends with the command: {own}");
    assert_eq!(own["command"], "sh", "{own}");
    let first = server.run(&["sessions", "-n", "1"]);
    assert!(first.out().lines().count() == 2 && first.err.contains("--after"), "{first:?}");
    // Forgotten with what it changed.
    server.run(&["forget", "--before", "now", "/"]);
    let sessions = server.json(&["sessions", "--full", "--json"]);
    let own = sessions.iter().find(|own| own["session"] == session).unwrap();
    assert!(own["command"].is_null() && own["host"].is_null() && own["uid"] == 0, "{own}");
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

/// Called in a mount, a command works in its own mount at the same place: what it does is its session's, and can be
/// undone.
#[test]
fn a_command_starts_where_it_was_called_and_with_the_signals_of_then() {
    let server = Served::start();
    let Some(mount) = crate::support::Mount::of(&server) else { return };
    std::fs::create_dir(mount.path.join("d")).unwrap();
    std::fs::write(mount.path.join("d/keep"), "precious").unwrap();
    let run = |script: &str| {
        // Tests that run in the background of a shell ignore SIGINT, and what they start does.
        let mut command = std::process::Command::new("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_frieze")]);
        command.args(["--server", &server.address, "run", "--", "sh", "-c", script]);
        command.current_dir(mount.path.join("d")).output().unwrap()
    };
    let said = run("rm keep; case $PWD in $FRIEZE_MOUNT/d) echo there;; esac");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "there\n", "{said:?}");
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    let session = words.split(' ').nth(3).unwrap();
    server.ok(&["undo", "--session", session]);
    assert_eq!(server.ok(&["cat", "/d/keep"]), "precious");
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        assert_eq!(run(&format!("kill -{signal} $$; echo survived")).status.code(), Some(status), "SIG{signal}");
    }
    let blocked = run("grep SigBlk /proc/self/status");
    assert!(String::from_utf8_lossy(&blocked.stdout).contains("\t0000000000000000\n"), "{blocked:?}");
}

/// An ordinary user cannot mount: `fusermount3` mounts for it. Where `/dev/fuse` is for root only, the test creates
/// one, in a table of mounts that no other process sees.
const AS_NOBODY: &str = r#"mknod "$0/fuse" c 10 229 && chmod 666 "$0/fuse" && mount --bind "$0/fuse" /dev/fuse &&
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$0/frieze" --server "$1" run -- sh -c "$2""#;

#[test]
fn an_ordinary_user_runs_a_command_as_himself() {
    if !requirements::root() || !requirements::programs(&["unshare", "setpriv", "fusermount3"]) {
        return;
    }
    let server = Served::with("", "127.0.0.1:0");
    let here = server.local("");
    // Others come as far as the socket and the program.
    std::fs::set_permissions(&here, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_frieze"), server.local("frieze")).unwrap();
    server.put("/private", "root's own");
    let private =
        server.run(&["run", "--", "sh", "-c", "chmod 600 $FRIEZE_MOUNT/private; mkdir -m 777 $FRIEZE_MOUNT/open"]);
    assert_eq!(private.status, 0, "{private:?}");
    let script = "cd $FRIEZE_MOUNT && id -u && echo mine >open/f && cat open/f && ! cat private && exit 3";
    let mut command = std::process::Command::new("unshare");
    let out =
        command.args(["--mount", "sh", "-c", AS_NOBODY]).arg(&here).args([&server.address, script]).output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    if err.contains("mknod") || err.contains("mount:") {
        requirements::missing("device", &format!("a device of its own: {err}"), "allow mknod and mounts");
        return;
    }
    assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stdout).as_ref()), (Some(3), "65534\nmine\n"), "{err}");
    assert!(err.contains("Permission denied") && err.contains("frieze: run: session "), "{err}");
    let events = server.json(&["log", "/open", "--json"]);
    let made = events.iter().find(|event| event["path"] == "/open/f").unwrap();
    assert_eq!(made["uid"], 65534, "{made}");
}
