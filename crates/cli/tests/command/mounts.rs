//! `mount` and `umount`, where this machine lets a process mount.

use std::fs;
use std::path::Path;

use frieze_harness::requirements;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::served::Served;

fn is_mounted(mountpoint: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == mountpoint.to_str())
}

#[test]
fn a_mount_goes_to_the_background_and_shows_present_and_past() {
    if !requirements::fuse() {
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
    if !requirements::fuse() {
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
    if !requirements::fuse() {
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

#[test]
fn a_mount_is_named_by_its_server_and_takes_the_options_of_mount() {
    if !requirements::fuse() {
        return;
    }
    if !requirements::root() {
        return;
    }
    let server = Served::start();
    fs::create_dir(server.local("mnt")).unwrap();
    let line = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mountpoint = server.local("mnt");
        table.lines().find(|line| line.split(' ').nth(4) == mountpoint.to_str()).unwrap().to_owned()
    };
    let has = |word: &str| line().split(' ').nth(5).unwrap().split(',').any(|flag| flag == word);
    let mounted = &server.json(&["mount", "--json", "mnt"])[0];
    let source = format!(" - fuse.frieze {} rw", mounted["server"].as_str().unwrap());
    assert!(line().contains(&source), "{}", line());
    assert!(has("nosuid") && has("nodev") && has("noatime"), "{}", line());
    server.ok(&["mount", "-o", "remount,suid", "mnt"]);
    assert!(!has("nosuid") && has("nodev") && has("noatime"), "{}", line());
    server.ok(&["mount", "-o", "remount,nosuid,dev", "mnt"]);
    assert!(has("nosuid") && !has("nodev"), "{}", line());
    server.ok(&["mount", "-o", "remount,ro,noexec", "mnt"]);
    assert!(fs::write(server.local("mnt/f"), "x").is_err());
    server.ok(&["mount", "-o", "remount,rw", "mnt"]);
    fs::write(server.local("mnt/f"), "x").unwrap();
    assert!(has("noexec") && !has("nodev"), "the rest stays: {}", line());
    server.ok(&["umount", "mnt"]);
    let none = server.fails(1, &["mount", "-o", "remount,suid", "mnt"]);
    assert!(none.contains("no frieze file system is mounted there"), "{none}");

    server.ok(&["mount", "-o", "suid,dev", "-o", "ro", "mnt"]);
    assert!(!has("nosuid") && !has("nodev") && has("ro"), "{}", line());
    server.ok(&["umount", "mnt"]);

    // As mount(8) and fstab call it, with words that are not for frieze.
    let helper = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/mount.fuse.frieze");
    let mount = |options: &str| {
        let mut command = std::process::Command::new("sh");
        command.arg(&helper).arg(mounted["server"].as_str().unwrap()).arg(server.local("mnt"));
        let said = command.args(["-n", "-o", options]).env("FRIEZE", env!("CARGO_BIN_EXE_frieze")).output().unwrap();
        assert!(said.status.success(), "{options}: {said:?}");
    };
    mount("rw,suid,_netdev,x-systemd.automount,user_id=0");
    assert!(line().contains(&source) && !has("nosuid") && has("nodev"), "{}", line());
    mount("remount,ro,nosuid,user_id=0");
    assert!(has("nosuid") && has("ro"), "{}", line());
    server.ok(&["umount", "mnt"]);
}
