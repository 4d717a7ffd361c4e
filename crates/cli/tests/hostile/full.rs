//! A full disk: writes are refused in words, and everything that frees space, looks or restarts works.

use std::fs;
use std::io::Write;
use std::path::Path;

use frieze_base::Reason;
use frieze_client::{Client, CreateMode, Error, Hlc, OpenFlags, RenameMode, SetAttr, Target};
use frieze_harness::requirements;
use frieze_testkit::bytes::random_bytes;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;

use super::{KEPT, get, put};
use crate::support::served::Served;
use crate::support::{Mount, client};

const MIB: usize = 1 << 20;
/// Small segments, and a reserve that holds a few of the metalog's.
const SETTINGS: &str = "chunk_bytes = 1048576\nsegment_bytes = 8388608\nreserve_bytes = 41943040\n";

/// Writes until nothing more goes in. Returns how many MiB did, and what was said then.
fn fill(client: &Client, path: &str) -> (usize, Error) {
    let file = client.fs().create(&Target::path(path), 0o644, CreateMode::OpenExisting).unwrap();
    for n in 0..1000 {
        if let Err(error) = file.write_at((n * MIB) as u64, &random_bytes(n as u64, MIB)) {
            file.close().unwrap();
            return (n, error);
        }
    }
    panic!("a disk of a few dozen MiB takes 1000");
}

fn check_filled(client: &Client, path: &str, mib: usize, at: Option<Hlc>) {
    let fs = at.map_or(client.fs(), |at| client.fs().at(at));
    let file = fs.open(&Target::path(path), OpenFlags::READ).unwrap();
    assert_eq!(file.attr().size as usize, mib * MIB);
    let mut bytes = vec![0; MIB];
    for n in 0..mib {
        file.read_at((n * MIB) as u64, &mut bytes).unwrap();
        assert!(bytes == random_bytes(n as u64, MIB), "MiB {n}");
    }
}

fn check_no_space(error: &Error) {
    assert_eq!(error.reason(), Reason::NoSpace, "{error}");
    let words = error.to_string();
    assert!(words.contains("no space") && words.contains("frieze forget --before"), "{words}");
}

/// What has to go on when nothing can be written.
fn check_full(server: &mut Served, mount: Option<&Mount>) {
    let client = client(&server.address);
    put(&client, "/kept", KEPT);
    let (mib, error) = fill(&client, "/big");
    check_no_space(&error);
    assert!(mib >= 16, "some was written before: {mib} MiB");
    let full = client.now().unwrap();
    check_filled(&client, "/big", mib, None);

    // Every door says so.
    let fs = client.fs();
    let file = fs.create(&Target::path("/more"), 0o644, CreateMode::Exclusive).unwrap();
    check_no_space(&file.write_at(0, &random_bytes(1, MIB)).unwrap_err());
    check_no_space(&file.append(&random_bytes(1, MIB)).unwrap_err());
    file.sync().unwrap();
    file.close().unwrap();
    let local = server.local_file("local", random_bytes(1, 2 * MIB));
    let said = server.fails(1, &["put", &local, "/from-local"]);
    assert!(said.starts_with("frieze: put: ") && said.contains("no space"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    if let Some(mount) = mount {
        let mut file = fs::File::create(mount.path("through-the-mount")).unwrap();
        let error = file.write_all(&random_bytes(1, 2 * MIB)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::ENOSPC as i32), "{error}");
        drop(file);
        fs::remove_file(mount.path("through-the-mount")).unwrap();
        assert_eq!(fs::read(mount.path("kept")).unwrap(), KEPT);
    }
    let status = client.status().unwrap();
    assert!(status.free_bytes < 8 << 20, "{} bytes free", status.free_bytes);
    assert!(!status.fenced);
    assert!(status.health.starts_with("the disk is full"), "{}", status.health);
    assert_eq!(server.run(&["status"]).status, 1);

    // What changes names and lengths goes on, and so does what makes it durable.
    for n in 0..500 {
        let path = format!("/d{n}");
        fs.mkdir(&Target::path(&path[..]), 0o755).unwrap();
        fs.rename(&Target::path(&path[..]), &Target::path(format!("/e{n}")), RenameMode::NoReplace).unwrap();
        fs.rmdir(&Target::path(format!("/e{n}"))).unwrap();
    }
    fs.set_attr(SetAttr { target: Target::path("/big"), mode: Some(0o600), ..SetAttr::default() }).unwrap();
    fs.set_attr(SetAttr { target: Target::path("/big"), size: Some(MIB as u64), ..SetAttr::default() }).unwrap();
    check_filled(&client, "/big", 1, None);
    fs.unlink(&Target::path("/more")).unwrap();
    server.ok(&["mv", "/big", "/renamed"]);
    fs.sync_all().unwrap();
    let cut = client.now().unwrap();
    server.ok(&["rm", "/renamed"]);

    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let ended = server.restart(signal);
        assert_eq!(ended, (signal == Signal::SIGTERM).then_some(0));
        let client = crate::support::client(&server.address);
        assert!(client.status().unwrap().health.starts_with("the disk is full"), "still");
        assert_eq!(get(&client, "/kept"), KEPT);
        check_filled(&client, "/big", mib, Some(full));
        check_filled(&client, "/renamed", 1, Some(cut));
        assert_eq!(client.fs().stat(&Target::path("/renamed")).unwrap_err().reason(), Reason::NotFound);
        let (_, error) = fill(&client, "/again");
        check_no_space(&error);
        client.fs().unlink(&Target::path("/again")).unwrap();
        client.fs().sync_all().unwrap();
    }

    // What was before is given up, and there is room again.
    let client = crate::support::client(&server.address);
    let before = client.now().unwrap().to_string();
    let would = server.ok(&["forget", "--before", &before, "/", "--dry-run"]);
    assert!(would.contains("would forget") && would.contains("/renamed (deleted)"), "{would}");
    let said = server.ok(&["forget", "--before", &before, "/"]);
    assert!(said.contains("forgot ") && said.contains("free again"), "{said}");
    let refused = client.fs().at(full).stat(&Target::path("/big")).unwrap_err();
    assert_eq!(refused.reason(), Reason::HistoryExpired, "{refused}");
    assert_eq!(get(&client, "/kept"), KEPT);
    let (again, _) = fill(&client, "/after");
    assert!(again + 8 >= mib, "{again} MiB of {mib} go in again");
    check_filled(&client, "/after", again, None);
    assert_eq!(server.restart(Signal::SIGKILL), None);
    let client = crate::support::client(&server.address);
    check_filled(&client, "/after", again, None);
    assert_eq!(get(&client, "/kept"), KEPT);
}

#[test]
fn a_full_disk_refuses_writes_and_nothing_else() {
    let capacity = format!("{SETTINGS}capacity_bytes_max = {}\n", 96 * MIB);
    let mut server = Served::with(&capacity, "127.0.0.1:0");
    let mount = Mount::of(&server);
    check_full(&mut server, mount.as_ref());
    // With more room the same server goes on as if nothing had been.
    let more = format!("{SETTINGS}capacity_bytes_max = {}\n", 160 * MIB);
    fs::write(server.local("config.toml"), more).unwrap();
    assert_eq!(server.restart(Signal::SIGTERM), Some(0));
    let client = client(&server.address);
    let (mib, error) = fill(&client, "/big");
    check_no_space(&error);
    assert!(mib >= 32, "{mib} MiB went in");
    check_filled(&client, "/big", mib, None);
}

/// A small file system in memory; gone when dropped.
struct SmallDisk<'a>(&'a Path);

impl SmallDisk<'_> {
    fn at(path: &Path, mib: usize) -> Option<SmallDisk<'_>> {
        fs::create_dir(path).unwrap();
        let size = format!("size={mib}m");
        match mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), Some(size.as_str())) {
            Ok(()) => Some(SmallDisk(path)),
            Err(errno) => {
                let what = format!("a small file system in memory, which cannot be mounted: {errno}");
                requirements::missing("tmpfs", &what, "run the tests as root, with the right to mount");
                None
            }
        }
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.0, MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_disk_filled_by_another_program_refuses_writes_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("disk");
    let Some(_disk) = SmallDisk::at(&path, 160) else { return };
    let mut server = Served::on(&path.join("data"), SETTINGS, "127.0.0.1:0");
    // Without a request to the server: the room it counted on is gone.
    fs::write(path.join("filler"), vec![1; 40 * MIB]).unwrap();
    check_full(&mut server, None);
}
