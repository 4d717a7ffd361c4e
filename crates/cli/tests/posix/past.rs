//! Trees of the past, for programs that know nothing of it: numbers of files, links that lead out of a directory.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use frieze_harness::requirements;

use crate::{MountedServer, mount_server};

fn now(mounted: &MountedServer) -> String {
    mounted.server.now()
}

#[test]
fn files_of_the_past_have_inode_numbers_exact_in_doubles() {
    let Some(mounted) = mount_server() else { return };
    let mut instants = Vec::new();
    for round in 0..3 {
        fs::create_dir_all(mounted.path("d/sub")).unwrap();
        for file in 0..20 {
            fs::write(mounted.path(&format!("d/f{round}-{file}")), "text").unwrap();
        }
        instants.push(now(&mounted));
    }
    let mut exact = BTreeSet::new();
    let mut doubles = BTreeSet::new();
    let mut see = |directory: &Path| {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let number = entry.metadata().unwrap().ino();
            assert_eq!(entry.ino(), number, "{:?}", entry.path());
            exact.insert(number);
            doubles.insert((number as f64) as u64);
        }
    };
    see(&mounted.path("d"));
    for at in &instants {
        see(&mounted.past(at, "d"));
        see(&mounted.path(&format!("d/.at/{at}")));
    }
    // Each of 21 + 41 + 61 by two doors, and 61 of now.
    assert_eq!(exact.len(), 2 * (21 + 41 + 61) + 61);
    assert_eq!(exact, doubles);
}

#[test]
fn a_relative_link_leads_to_what_it_led_to_then_by_whatever_at_it_is_reached() {
    let Some(mounted) = mount_server() else { return };
    fs::create_dir_all(mounted.path("a/d/deep")).unwrap();
    fs::create_dir_all(mounted.path("a/other")).unwrap();
    fs::write(mounted.path("a/other/file"), "then").unwrap();
    fs::write(mounted.path("a/d/inside"), "inside").unwrap();
    symlink("../other/file", mounted.path("a/d/up")).unwrap();
    symlink("../../../a/other", mounted.path("a/d/deep/far")).unwrap();
    symlink("../inside", mounted.path("a/d/deep/near")).unwrap();
    symlink("deep/../../other/file", mounted.path("a/d/around")).unwrap();
    let at = now(&mounted);
    // What it led to has another name now, and the name leads elsewhere.
    fs::rename(mounted.path("a/other"), mounted.path("a/former")).unwrap();
    fs::create_dir(mounted.path("a/other")).unwrap();
    fs::write(mounted.path("a/other/file"), "now").unwrap();
    fs::rename(mounted.path("a"), mounted.path("b")).unwrap();

    for reached in [format!(".at/{at}/a/d"), format!("b/.at/{at}/d"), format!("b/d/.at/{at}")] {
        let read =
            |path: &str| fs::read_to_string(mounted.path(&format!("{reached}/{path}"))).map_err(|error| error.kind());
        assert_eq!(read("up").as_deref(), Ok("then"), "{reached}");
        assert_eq!(read("around").as_deref(), Ok("then"), "{reached}");
        assert_eq!(read("deep/far/file").as_deref(), Ok("then"), "{reached}");
        assert_eq!(read("deep/near").as_deref(), Ok("inside"), "{reached}");
    }
    let deep = format!("b/d/deep/.at/{at}");
    assert_eq!(fs::read_to_string(mounted.path(&format!("{deep}/far/file"))).unwrap(), "then");
    assert_eq!(fs::read_to_string(mounted.path(&format!("{deep}/near"))).unwrap(), "inside");
    // Out of the mount there is no past.
    fs::write(mounted.server.local("outside"), "beside the mount").unwrap();
    symlink("../../outside", mounted.path("b/out")).unwrap();
    let at = now(&mounted);
    for reached in [format!(".at/{at}/b"), format!("b/.at/{at}")] {
        let outside = fs::read_to_string(mounted.path(&format!("{reached}/out")));
        assert_eq!(outside.unwrap(), "beside the mount", "{reached}");
    }
}

#[test]
fn a_copy_of_a_directory_of_the_past_holds_the_links_as_they_were() {
    let Some(mounted) = mount_server() else { return };
    if !requirements::root() {
        return;
    }
    fs::create_dir_all(mounted.path("d")).unwrap();
    fs::write(mounted.path("file"), "text").unwrap();
    symlink("../file", mounted.path("d/up")).unwrap();
    let at = now(&mounted);
    let then = mounted.path(&format!("d/.at/{at}"));
    assert_eq!(fs::read_link(then.join("up")).unwrap(), Path::new("../file"));
    let copied = Command::new("cp").arg("-a").arg(then).arg(mounted.path("copy")).status().unwrap();
    assert!(copied.success());
    assert_eq!(fs::read_link(mounted.path("copy/up")).unwrap(), Path::new("../file"));
    assert_eq!(fs::read_to_string(mounted.path("copy/up")).unwrap(), "text");
}

#[test]
fn a_time_without_a_zone_means_in_dot_at_what_it_means_to_the_command() {
    let Some(mounted) = mount_server() else { return };
    fs::write(mounted.path("f"), "then").unwrap();
    let then = &mounted.server.json(&["now", "--json"])[0]["at_time"];
    fs::write(mounted.path("f"), "now").unwrap();
    let local = Command::new("date")
        .args(["-d", then.as_str().unwrap(), "+%Y-%m-%dT%H:%M:%S.%6N"])
        .env("TZ", "Asia/Tokyo")
        .output()
        .unwrap();
    let local = String::from_utf8(local.stdout).unwrap().trim_end().to_owned();
    for (zone, holds) in [("Asia/Tokyo", Some("then")), ("JST-9", Some("then")), ("UTC", None)] {
        let by_command = mounted.server.command(&["cat", "/f", "--at", &local]).env("TZ", zone).output().unwrap();
        let path = mounted.path(&format!(".at/{local}/f"));
        let by_mount = Command::new("cat").arg(path).env("TZ", zone).output().unwrap();
        for said in [by_command, by_mount] {
            let held = said.status.success().then(|| String::from_utf8(said.stdout.clone()).unwrap());
            assert_eq!(held.as_deref(), holds, "{zone}: {said:?}");
        }
    }
    let user = mounted.path(".at/user-2026-01-15T10:00:00.5");
    let read = Command::new("readlink").arg(&user).env("TZ", "Asia/Tokyo").output().unwrap();
    assert_eq!(read.stdout, b"user-2026-01-15T01:00:00.5Z\n");
    let target = fs::read_link(&user).unwrap();
    assert_eq!(fs::symlink_metadata(&user).unwrap().len(), target.as_os_str().len() as u64);
}

/// Sets the modification time of something, in seconds since 1970.
fn touch(path: &Path, seconds: u64) {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn directories_that_come_back_or_are_cloned_have_their_times_of_then() {
    let Some(mounted) = mount_server() else { return };
    let times = |top: &str| {
        ["", "/sub", "/sub/f", "/sub/empty"]
            .map(|path| fs::metadata(mounted.path(&format!("{top}{path}"))).unwrap().mtime())
    };
    let then = [978_307_203, 978_307_202, 978_307_201, 978_307_200];
    fs::create_dir_all(mounted.path("s/sub/empty")).unwrap();
    fs::write(mounted.path("s/sub/f"), "x").unwrap();
    for (path, seconds) in ["s/sub/empty", "s/sub/f", "s/sub", "s"].into_iter().zip(978_307_200..) {
        touch(&mounted.path(path), seconds);
    }
    let at = now(&mounted);
    mounted.server.ok(&["clone", "/s", "/clone"]);
    assert_eq!(times("clone"), then);
    fs::remove_file(mounted.path("s/sub/f")).unwrap();
    fs::remove_dir(mounted.path("s/sub/empty")).unwrap();
    mounted.server.ok(&["restore", "/s", "--to", &at]);
    assert_eq!(times("s"), then, "directories that were there");
    fs::remove_dir_all(mounted.path("s")).unwrap();
    mounted.server.ok(&["restore", "/s", "--to", &at]);
    assert_eq!(times("s"), then, "directories that were gone");
    let again = mounted.server.run(&["restore", "/s", "--to", &at]);
    assert!((again.out() + &again.err).contains("nothing to do"), "{again:?}");
    let script = "cd \"$FRIEZE_MOUNT\" && touch s/temporary && rm -r s/temporary s/sub && mkdir s/sub && mkdir s/sub/g";
    let ran = mounted.server.run(&["run", "--", "sh", "-c", script]);
    mounted.server.ok(&["undo", "--session", ran.err.split(' ').nth(3).unwrap()]);
    assert_eq!(times("s"), then, "directories that an undo brings back");
    // What holds more than it held has changed since.
    fs::remove_file(mounted.path("s/sub/f")).unwrap();
    fs::write(mounted.path("s/sub/since"), "").unwrap();
    mounted.server.ok(&["restore", "/s", "--to", &at]);
    let mixed = times("s");
    assert_eq!((mixed[0], mixed[2]), (then[0], then[2]));
    assert!(mixed[1] > then[1]);
    mounted.server.ok(&["restore", "/s", "--to", &at, "--delete"]);
    assert_eq!(times("s"), then, "with what was made since taken away");
    // As a copy, because what was there lives elsewhere.
    fs::create_dir(mounted.path("elsewhere")).unwrap();
    fs::rename(mounted.path("s/sub"), mounted.path("elsewhere/sub")).unwrap();
    mounted.server.ok(&["restore", "/s", "--to", &at]);
    assert_eq!(times("s"), then, "directories that are copied");
}

#[test]
fn a_user_restores_names_in_a_directory_of_another_owner() {
    let Some(mounted) = mount_server() else { return };
    if !requirements::root() {
        return;
    }
    use std::os::unix::fs::{PermissionsExt, chown};
    fs::create_dir(mounted.path("d")).unwrap();
    fs::set_permissions(mounted.path("d"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(mounted.path("d/f"), "x").unwrap();
    chown(mounted.path("d/f"), Some(1001), Some(1001)).unwrap();
    touch(&mounted.path("d"), 978_307_200);
    let at = now(&mounted);
    fs::remove_file(mounted.path("d/f")).unwrap();
    let by_owner = mounted.server.command(&["restore", "/d/f", "--to", &at]).output().unwrap();
    assert!(by_owner.status.success(), "{by_owner:?}");
    let fs_of = frieze_client::Caller { uid: 1001, gid: 1001, groups: Vec::new() };
    fs::remove_file(mounted.path("d/f")).unwrap();
    let client = crate::support::client(&mounted.server.address);
    let ask = frieze_client::Target::path("/d");
    client.fs().as_caller(fs_of).restore(&ask, at.parse().unwrap(), false, false).unwrap();
    assert_eq!(fs::read_to_string(mounted.path("d/f")).unwrap(), "x");
}
