//! Rights and times beyond what pjdfstest asks: set-id bits, inherited groups, the umask, access time.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};

use frieze_harness::requirements;
use rustix::fs::{FallocateFlags, StatVfsMountFlags, fallocate, statvfs};

use crate::{MountedServer, mount_server};

/// Runs a shell command as another user, with these groups besides its own; `None` where only root could.
pub(crate) fn as_user(mounted: &MountedServer, uid: u32, groups: &str, command: &str) -> Option<Output> {
    if !requirements::root() {
        return None;
    }
    fs::set_permissions(mounted.server.local("."), Permissions::from_mode(0o755)).unwrap();
    let groups = if groups.is_empty() { "--clear-groups".to_owned() } else { format!("--groups={groups}") };
    let uid = uid.to_string();
    let mut shell = Command::new("setpriv");
    shell.args(["--reuid", &uid, "--regid", &uid, &groups, "sh", "-c", command]).current_dir(&mounted.mount.path);
    Some(shell.output().unwrap())
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn new_entries_of_a_set_group_id_directory_belong_to_its_group() {
    let Some(mounted) = mount_server() else { return };
    let shared = mounted.path("shared");
    fs::create_dir(&shared).unwrap();
    chown(&shared, None, Some(2002)).unwrap();
    set_mode(&shared, 0o2777);
    let make = "umask 022; echo x > shared/file; mkdir shared/dir; ln -s x shared/link; mkfifo shared/fifo";
    let Some(made) = as_user(&mounted, 1001, "", make) else { return };
    assert!(made.status.success(), "{made:?}");
    for name in ["file", "dir", "link", "fifo"] {
        assert_eq!(fs::symlink_metadata(shared.join(name)).unwrap().gid(), 2002, "{name}");
    }
    assert_eq!((mode(&shared.join("dir")), mode(&shared.join("file"))), (0o2755, 0o644));
    // And so on below.
    as_user(&mounted, 1001, "", "mkdir shared/dir/below").unwrap();
    let below = fs::metadata(shared.join("dir/below")).unwrap();
    assert_eq!((below.gid(), below.mode() & 0o7777), (2002, 0o2755));
    // A user outside the group makes no program of the group.
    let make = "python3 -c \"import os; os.close(os.open('shared/program', os.O_CREAT | os.O_WRONLY, 0o2775))\"";
    if requirements::program("python3") {
        let made = as_user(&mounted, 1001, "", make).unwrap();
        assert!(made.status.success(), "{made:?}");
        assert_eq!(mode(&shared.join("program")) & 0o2000, 0);
        fs::remove_file(shared.join("program")).unwrap();
        as_user(&mounted, 1001, "2002", &format!("umask 0; {make}")).unwrap();
        assert_eq!(mode(&shared.join("program")), 0o2775);
    }
}

#[test]
fn the_umask_of_the_caller_counts() {
    let Some(mounted) = mount_server() else { return };
    set_mode(&mounted.mount.path, 0o777);
    let make = "umask 027; echo > f; mkdir d; mkfifo p; umask 0; echo > open; mkdir wide";
    let made = Command::new("sh").args(["-c", make]).current_dir(&mounted.mount.path).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let modes = ["f", "d", "p", "open", "wide"].map(|name| mode(&mounted.path(name)));
    assert_eq!(modes, [0o640, 0o750, 0o640, 0o666, 0o777]);
}

#[test]
fn set_id_bits_end_with_whatever_changes_the_bytes() {
    let Some(mounted) = mount_server() else { return };
    let path = mounted.path("program");
    fs::write(&path, "0123456789").unwrap();
    let changes = [
        "echo x >> program",
        "echo y > program",
        "truncate -s 3 program",
        "truncate -s 100 program",
        "fallocate -p -o 0 -l 5 program",
        "fallocate -z -o 0 -l 5 program",
        "fallocate -l 5000 program",
        "dd if=/dev/zero of=program bs=1 count=1 conv=notrunc status=none",
        "cat /bin/true > program",
    ];
    for change in changes {
        set_mode(&path, 0o6777);
        let Some(done) = as_user(&mounted, 1001, "", change) else { return };
        assert!(done.status.success(), "{change}: {done:?}");
        assert_eq!(mode(&path), 0o777, "{change}");
    }
    // Without the right to execute, set-group-id meant locking, and stays.
    set_mode(&path, 0o2767);
    as_user(&mounted, 1001, "", "echo x >> program").unwrap();
    assert_eq!(mode(&path), 0o2767);
    // The superuser may, and giving the file away ends them for every caller.
    set_mode(&path, 0o6777);
    File::options().append(true).open(&path).unwrap().write_all(b"x").unwrap();
    assert_eq!(mode(&path), 0o6777);
    chown(&path, Some(1001), Some(1001)).unwrap();
    assert_eq!(mode(&path), 0o777);
    // Never of a directory.
    let dir = mounted.path("dir");
    fs::create_dir(&dir).unwrap();
    set_mode(&dir, 0o6777);
    chown(&dir, Some(1001), Some(1001)).unwrap();
    assert_eq!(mode(&dir), 0o6777);
}

#[test]
fn a_read_changes_no_time_and_statfs_says_so() {
    let Some(mounted) = mount_server() else { return };
    let path = mounted.path("f");
    fs::write(&path, "text").unwrap();
    fs::create_dir(mounted.path("d")).unwrap();
    let times = |path: &Path| {
        let metadata = fs::metadata(path).unwrap();
        (metadata.atime(), metadata.atime_nsec())
    };
    let (file, dir) = (times(&path), times(&mounted.path("d")));
    let mut text = String::new();
    File::open(&path).unwrap().read_to_string(&mut text).unwrap();
    fs::read_dir(mounted.path("d")).unwrap().count();
    assert_eq!((times(&path), times(&mounted.path("d"))), (file, dir));
    assert!(statvfs(&path).unwrap().f_flag.contains(StatVfsMountFlags::NOATIME));
    let touched = Command::new("touch").args(["-a", "-d", "2001-02-03T04:05:06Z"]).arg(&path).status().unwrap();
    assert!(touched.success());
    assert_eq!(times(&path), (981_173_106, 0));
    fs::write(&path, "more").unwrap();
    assert_eq!(times(&path), (981_173_106, 0));
}

#[test]
fn history_counts_as_used() {
    let Some(mounted) = mount_server() else { return };
    let path = mounted.path("f");
    let file = File::create(&path).unwrap();
    for round in 0..20u8 {
        file.write_all_at(&vec![round; 4 << 20], 0).unwrap();
    }
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4 << 20).unwrap();
    let status = &mounted.server.json(&["status", "--json"])[0];
    let history = status["log_bytes"].as_u64().unwrap();
    assert!(history > 80 << 20, "{status}");
    assert_eq!(fs::metadata(&path).unwrap().blocks(), 0, "nothing of it is live");
    // It is the device that is full or not, whatever of it is live.
    let (here, below) = (statvfs(&path).unwrap(), statvfs(mounted.server.data()).unwrap());
    assert_eq!(here.f_blocks * here.f_frsize, below.f_blocks * below.f_frsize);
    assert!((here.f_blocks - here.f_bfree) * here.f_frsize >= history);
    assert!(here.f_bavail * here.f_frsize <= below.f_bfree * below.f_frsize + (64 << 20), "the reserve is left out");
}

/// On any user's mount: the log shows the writer, and `undo --user` follows it.
#[test]
fn what_a_user_writes_through_the_mount_of_another_is_that_users() {
    let Some(mounted) = mount_server() else { return };
    let shared = mounted.path("shared");
    fs::create_dir(&shared).unwrap();
    set_mode(&shared, 0o777);
    fs::write(mounted.path("shared/roots"), "of root").unwrap();
    set_mode(&mounted.path("shared/roots"), 0o666);
    let write = "cd shared; echo new >made; echo more >>made; printf x | dd of=roots bs=1 seek=2 conv=notrunc \
        status=none; \
                 dd if=/dev/zero of=large bs=64k count=40 status=none; fallocate -p -o 0 -l 4096 large";
    let Some(wrote) = as_user(&mounted, 1001, "", write) else { return };
    assert!(wrote.status.success(), "{wrote:?}");
    fs::write(mounted.path("shared/made"), "and root").unwrap();
    for (name, expected) in [("made", vec![1001, 1001, 0]), ("roots", vec![0, 1001]), ("large", vec![1001])] {
        let log = mounted.server.json(&["log", &format!("/shared/{name}"), "--reverse", "--json"]);
        let mut uids: Vec<u64> = Vec::new();
        for version in log.iter().filter(|version| ["write", "punch"].contains(&version["kind"].as_str().unwrap())) {
            uids.push(version["uid"].as_u64().unwrap());
        }
        if name == "large" {
            uids.dedup();
        }
        assert_eq!(uids, expected, "{name}: {log:?}");
    }
}
