//! `mount` and `umount`, where this machine lets a process mount.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::served::Served;

/// True if this process may mount; says so if not.
fn may_mount() -> bool {
    let may = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !may {
        eprintln!("skipped: /dev/fuse cannot be opened here");
    }
    may
}

fn is_mounted(mountpoint: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == mountpoint.to_str())
}

#[test]
fn a_mount_goes_to_the_background_and_shows_present_and_past() {
    if !may_mount() {
        return;
    }
    let server = Served::start();
    server.put("/f", "v1");
    let then = server.now();
    let mountpoint = server.local("mnt");
    fs::create_dir(&mountpoint).unwrap();
    // The command returns though the mount lives on: its output is closed.
    let mounted = &server.json(&["mount", "--json", "mnt"])[0];
    assert_eq!((&mounted["mounted"], &mounted["mountpoint"]), (&true.into(), &mountpoint.to_str().unwrap().into()));
    assert!(is_mounted(&mountpoint));
    fs::write(mountpoint.join("f"), "v2 through the mount").unwrap();
    assert_eq!(server.ok(&["cat", "/f"]), "v2 through the mount");
    assert_eq!(fs::read_to_string(mountpoint.join(".at").join(&then).join("f")).unwrap(), "v1");

    let again = server.fails(1, &["mount", "mnt"]);
    assert!(again.starts_with("frieze: mount: "), "{again}");

    server.ok(&["umount", "mnt"]);
    assert!(!is_mounted(&mountpoint));
    assert_eq!(server.fails(1, &["umount", "mnt"]), "frieze: umount: mnt: no frieze file system is mounted there\n");
}

#[test]
fn a_mount_of_an_instant_is_of_that_instant_and_read_only() {
    if !may_mount() {
        return;
    }
    let server = Served::start();
    server.put("/f", "v1");
    let then = server.now();
    server.put("/f", "v2");
    server.put("/g", "later");
    let mountpoint = server.local("mnt");
    fs::create_dir(&mountpoint).unwrap();
    server.ok(&["mount", "mnt", "--at", &then]);
    assert_eq!(fs::read_to_string(mountpoint.join("f")).unwrap(), "v1");
    assert!(!mountpoint.join("g").exists());
    let refused = fs::write(mountpoint.join("f"), "no").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(nix::errno::Errno::EROFS as i32));
    server.ok(&["umount", "mnt"]);
}

#[test]
fn a_signal_unmounts() {
    if !may_mount() {
        return;
    }
    let server = Served::start();
    let mountpoint = server.local("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let mut mount = server.command(&["mount", "--foreground", "mnt"]);
    let mut child = mount.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line).unwrap();
    assert_eq!(line, format!("mounted {}\n", mountpoint.display()));
    assert!(is_mounted(&mountpoint));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!is_mounted(&mountpoint));
}
