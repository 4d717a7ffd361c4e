//! The mount end to end: a server, a client and the kernel, on the table of cases of design §4 and on what programs
//! expect of a file system. Without /dev/fuse each test says so and passes.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[path = "support/inside.rs"]
mod inside;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use frieze_client::{Client, Hlc};
use frieze_fuse::{Error, MountHandle, MountOptions, mount};
use frieze_harness::requirements;
use frieze_testkit::bytes::random_bytes;
use rustix::fs::{CWD, FallocateFlags, RenameFlags, SeekFrom as Seeking, XattrFlags};
use rustix::io::Errno;

use inside::{LocalMounts, TIMEOUT};

/// One mount, and a client beside it.
struct MountAndClient {
    client: Client,
    mounts: LocalMounts,
}

impl MountAndClient {
    /// `None`, with a line that says why, where there is no FUSE.
    fn new() -> Option<MountAndClient> {
        if !requirements::fuse() {
            return None;
        }
        let mounts = LocalMounts::new(1)?;
        Some(MountAndClient { client: mounts.connect(TIMEOUT), mounts })
    }

    fn path(&self, path: &str) -> PathBuf {
        self.mounts.path(0, path)
    }

    /// `path` of the present at an instant: `a/b` at t is `.at/t/a/b`.
    fn at(&self, at: Hlc, path: &str) -> PathBuf {
        self.path(&format!(".at/{at}/{path}"))
    }

    fn now(&self) -> Hlc {
        self.client.now().unwrap()
    }

    /// A second mount of the same server, by a client of its own.
    fn second(&self, options: MountOptions) -> (PathBuf, MountHandle) {
        let mountpoint = self.mounts.local("second");
        fs::create_dir_all(&mountpoint).unwrap();
        let mounted = mount(self.mounts.connect(TIMEOUT), &mountpoint, options).unwrap();
        (mountpoint, mounted)
    }

    fn restart(&mut self) {
        self.mounts.stop_server();
        self.mounts.start_server();
    }
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Errno {
    Errno::from_io_error(&result.unwrap_err()).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().unwrap()
}

#[test]
fn bytes_come_back_as_written_at_any_offset_and_size() {
    let Some(fixture) = MountAndClient::new() else { return };
    let path = fixture.path("file");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    // Larger than a chunk, a page and a request; not aligned to any.
    let content = random_bytes(1, 3_333_333);
    file.write_all(&content).unwrap();
    assert_eq!(fs::read(&path).unwrap(), content);
    let patch = random_bytes(2, 70_001);
    file.write_all_at(&patch, 1_000_003).unwrap();
    let mut expected = content;
    expected[1_000_003..1_000_003 + patch.len()].copy_from_slice(&patch);
    let mut read = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut read).unwrap();
    assert!(read == expected);
    assert_eq!(fs::metadata(&path).unwrap().len(), 3_333_333);
    let mut direct = vec![0; 4096];
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&path).unwrap();
    file.read_exact_at(&mut direct, 1_048_576).unwrap();
    assert!(direct == expected[1_048_576..1_048_576 + 4096]);
}

#[test]
fn appending_truncating_and_extending_do_what_they_say() {
    let Some(fixture) = MountAndClient::new() else { return };
    let path = fixture.path("log");
    let mut one = OpenOptions::new().append(true).create(true).open(&path).unwrap();
    let mut other = OpenOptions::new().append(true).open(&path).unwrap();
    for line in 0..50 {
        writeln!(one, "one {line}").unwrap();
        writeln!(other, "other {line}").unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 100);
    assert_eq!(text.lines().nth(99), Some("other 49"));

    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.set_len(5).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one 0");
    file.set_len(8).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one 0\0\0\0");
    fs::write(&path, b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    drop(OpenOptions::new().write(true).truncate(true).open(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn holes_are_zeros_take_no_room_and_are_found() {
    let Some(fixture) = MountAndClient::new() else { return };
    let path = fixture.path("sparse");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    file.write_all_at(b"data", 10 << 20).unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!(metadata.len(), (10 << 20) + 4);
    assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
    let mut hole = [1u8; 100];
    file.read_exact_at(&mut hole, 5 << 20).unwrap();
    assert_eq!(hole, [0; 100]);
    assert_eq!(rustix::fs::seek(&file, Seeking::Data(0)), Ok(10 << 20));
    assert_eq!(rustix::fs::seek(&file, Seeking::Hole(0)), Ok(0));
    assert_eq!(rustix::fs::seek(&file, Seeking::Hole(10 << 20)), Ok((10 << 20) + 4));
    assert_eq!(rustix::fs::seek(&file, Seeking::Data((10 << 20) + 4)), Err(Errno::NXIO));

    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 12 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 12 << 20);
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 14 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 12 << 20);
    assert_eq!(rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 60), Err(Errno::NOSPC));
}

#[test]
fn names_are_made_moved_linked_and_removed_as_posix_says() {
    let Some(fixture) = MountAndClient::new() else { return };
    fs::create_dir(fixture.path("dir")).unwrap();
    fs::write(fixture.path("dir/a"), b"a").unwrap();
    fs::write(fixture.path("b"), b"b").unwrap();
    assert_eq!(errno(fs::create_dir(fixture.path("dir"))), Errno::EXIST);
    assert_eq!(errno(File::create_new(fixture.path("b"))), Errno::EXIST);
    assert_eq!(errno(fs::remove_dir(fixture.path("dir"))), Errno::NOTEMPTY);
    assert_eq!(errno(fs::remove_file(fixture.path("dir"))), Errno::ISDIR);
    assert_eq!(errno(fs::read(fixture.path("none"))), Errno::NOENT);
    assert_eq!(errno(fs::read(fixture.path("b/x"))), Errno::NOTDIR);
    assert_eq!(errno(fs::create_dir(fixture.path(&"n".repeat(256)))), Errno::NAMETOOLONG);
    fs::create_dir(fixture.path(&"n".repeat(255))).unwrap();
    assert_eq!(errno(fs::rename(fixture.path("dir"), fixture.path("dir/into-itself"))), Errno::INVAL);

    let rename =
        |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, fixture.path(from), CWD, fixture.path(to), flags);
    assert_eq!(rename("b", "dir/a", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("b", "dir/a", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(fixture.path("b")).unwrap(), b"a");
    assert_eq!(fs::read(fixture.path("dir/a")).unwrap(), b"b");
    rename("b", "dir/c", RenameFlags::NOREPLACE).unwrap();
    fs::rename(fixture.path("dir/c"), fixture.path("dir/a")).unwrap();
    assert_eq!(fs::read(fixture.path("dir/a")).unwrap(), b"a");
    assert_eq!(names(&fixture.path("dir")), ["a"]);

    fs::hard_link(fixture.path("dir/a"), fixture.path("hard")).unwrap();
    let (one, other) = (fs::metadata(fixture.path("dir/a")).unwrap(), fs::metadata(fixture.path("hard")).unwrap());
    assert_eq!((one.ino(), one.nlink()), (other.ino(), 2));
    symlink("dir/a", fixture.path("soft")).unwrap();
    assert_eq!(fs::read_link(fixture.path("soft")).unwrap(), Path::new("dir/a"));
    assert_eq!(fs::read(fixture.path("soft")).unwrap(), b"a");
    rustix::fs::mknodat(CWD, fixture.path("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert_eq!(fs::symlink_metadata(fixture.path("fifo")).unwrap().mode(), 0o10_600);

    fs::remove_file(fixture.path("dir/a")).unwrap();
    fs::remove_file(fixture.path("hard")).unwrap();
    fs::remove_dir(fixture.path("dir")).unwrap();
    assert_eq!(errno(fs::read(fixture.path("soft"))), Errno::NOENT);
}

#[test]
fn a_file_removed_while_open_is_usable_until_it_is_closed() {
    let Some(fixture) = MountAndClient::new() else { return };
    let path = fixture.path("open");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(b"first ").unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(b"second").unwrap();
    assert_eq!(errno(fs::metadata(&path)), Errno::NOENT);
    let metadata = file.metadata().unwrap();
    assert_eq!((metadata.len(), metadata.nlink()), (12, 0));
    let mut read = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut read).unwrap();
    assert_eq!(read, "first second");
    file.set_len(3).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3);
    file.sync_all().unwrap();
}

#[test]
fn attributes_are_right_after_a_read_and_whatever_changed_them_since() {
    let Some(fixture) = MountAndClient::new() else { return };
    let (path, other, third) = (fixture.path("file"), fixture.path("other"), fixture.path("third"));
    fs::write(&path, b"abcd").unwrap();
    fs::write(&third, b"three").unwrap();
    let (file, replaced) = (File::open(&path).unwrap(), File::open(&third).unwrap());
    // The kernel asks anew after a read, for the time of the last access.
    let read_and_look = |file: &File| {
        file.read_exact_at(&mut [0; 1], 0).unwrap();
        file.metadata().unwrap();
        file.read_exact_at(&mut [0; 1], 0).unwrap();
        file.metadata().unwrap()
    };
    let before = read_and_look(&file);
    assert_eq!((before.len(), before.nlink()), (4, 1));
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"ef").unwrap();
    let written = read_and_look(&file);
    assert_eq!(written.len(), 6);
    assert!(written.modified().unwrap() > before.modified().unwrap());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(read_and_look(&file).mode() & 0o7777, 0o640);
    fs::hard_link(&path, &other).unwrap();
    assert_eq!(read_and_look(&file).nlink(), 2);
    fs::remove_file(&other).unwrap();
    assert_eq!(read_and_look(&file).nlink(), 1);
    assert_eq!(read_and_look(&replaced).nlink(), 1);
    let moved = read_and_look(&file);
    fs::rename(&path, &third).unwrap();
    assert_eq!(read_and_look(&replaced).nlink(), 0, "another took its name");
    let named = read_and_look(&file);
    assert!((named.ctime(), named.ctime_nsec()) > (moved.ctime(), moved.ctime_nsec()), "a rename changes the file");
    OpenOptions::new().write(true).truncate(true).open(&third).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    // A second mount.
    let (second, mounted) = fixture.second(MountOptions::default());
    fs::write(second.join("third"), b"by another").unwrap();
    assert_eq!(read_and_look(&file).len(), 10);
    fs::remove_file(second.join("third")).unwrap();
    assert_eq!(read_and_look(&file).nlink(), 0);
    mounted.unmount().unwrap();
}

#[test]
fn attributes_times_and_extended_attributes_are_kept() {
    let Some(fixture) = MountAndClient::new() else { return };
    let path = fixture.path("file");
    fs::write(&path, b"x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let file = File::open(&path).unwrap();
    let (then, before_1970) = (1_234_567_890_123_456_789i128, -1_500_000_000i128);
    for ns in [then, before_1970] {
        let time = rustix::fs::Timespec {
            tv_sec: ns.div_euclid(1_000_000_000) as i64,
            tv_nsec: ns.rem_euclid(1_000_000_000) as _,
        };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&file, &times).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.mode(), 0o100_640);
        assert_eq!(i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()), ns);
        assert_eq!(i128::from(metadata.atime()) * 1_000_000_000 + i128::from(metadata.atime_nsec()), ns);
    }
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    set("user.color", b"blue", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.color", b"red", XattrFlags::CREATE), Err(Errno::EXIST));
    set("user.color", b"green", XattrFlags::REPLACE).unwrap();
    let mut value = vec![0u8; 100];
    let len = rustix::fs::getxattr(&path, "user.color", value.as_mut_slice()).unwrap();
    assert_eq!(&value[..len], b"green");
    assert_eq!(rustix::fs::getxattr(&path, "user.color", &mut value[..2]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::getxattr(&path, "user.none", value.as_mut_slice()), Err(Errno::NODATA));
    let len = rustix::fs::listxattr(&path, value.as_mut_slice()).unwrap();
    assert_eq!(&value[..len], b"user.color\0");
    rustix::fs::removexattr(&path, "user.color").unwrap();
    assert_eq!(rustix::fs::listxattr(&path, value.as_mut_slice()), Ok(0));
    let room = rustix::fs::statvfs(&path).unwrap();
    assert!(room.f_blocks > 0 && room.f_bfree <= room.f_blocks && room.f_namemax == 255);
}

#[test]
fn a_large_directory_lists_every_name_once_and_is_removed_while_it_is_read() {
    let Some(fixture) = MountAndClient::new() else { return };
    let dir = fixture.path("large");
    fs::create_dir(&dir).unwrap();
    for n in 0..5000 {
        File::create(dir.join(format!("file-{n:05}"))).unwrap();
    }
    let listed = names(&dir);
    assert_eq!(listed.len(), 5000);
    assert!(listed.windows(2).all(|pair| pair[0] < pair[1]));
    let at = fixture.now();
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(errno(fs::metadata(&dir)), Errno::NOENT);
    assert_eq!(names(&fixture.at(at, "large")), listed);
}

#[test]
fn shared_mappings_are_written_back_and_visible() {
    let Some(fixture) = MountAndClient::new() else { return };
    // SQLite in WAL mode maps its index shared; Python is the shortest program here that maps.
    let path = fixture.path("mapped");
    fs::write(&path, vec![0u8; 8192]).unwrap();
    let program = "import mmap,sys\nf=open(sys.argv[1],'r+b')\nm=mmap.mmap(f.fileno(),8192)\n\
                   m[5000:5005]=b'hello'\nm.flush()\nm.close()";
    if !requirements::program("python3") {
        return;
    }
    let output = Command::new("python3").args(["-c", program]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(&fs::read(&path).unwrap()[5000..5005], b"hello");
}

#[test]
fn the_past_shows_what_was_there_whatever_happened_since() {
    let Some(fixture) = MountAndClient::new() else { return };
    let before = fixture.now();
    fs::create_dir(fixture.path("dir")).unwrap();
    fs::write(fixture.path("dir/removed"), b"removed").unwrap();
    fs::write(fixture.path("dir/renamed"), b"renamed").unwrap();
    fs::write(fixture.path("dir/replaced"), b"replaced").unwrap();
    fs::write(fixture.path("dir/truncated"), b"truncated").unwrap();
    fs::write(fixture.path("dir/overwritten"), b"overwritten").unwrap();
    fs::set_permissions(fixture.path("dir/overwritten"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("removed", fixture.path("dir/link")).unwrap();
    let then = fixture.now();
    fs::remove_file(fixture.path("dir/removed")).unwrap();
    fs::rename(fixture.path("dir/renamed"), fixture.path("dir/other")).unwrap();
    fs::write(fixture.path("new"), b"new").unwrap();
    fs::rename(fixture.path("new"), fixture.path("dir/replaced")).unwrap();
    OpenOptions::new().write(true).open(fixture.path("dir/truncated")).unwrap().set_len(2).unwrap();
    fs::write(fixture.path("dir/overwritten"), b"OVER").unwrap();
    fs::set_permissions(fixture.path("dir/overwritten"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::rename(fixture.path("dir"), fixture.path("moved")).unwrap();

    assert_eq!(errno(fs::metadata(fixture.at(before, "dir"))), Errno::NOENT);
    assert_eq!(names(&fixture.at(then, "dir")), ["link", "overwritten", "removed", "renamed", "replaced", "truncated"]);
    for name in ["overwritten", "removed", "renamed", "replaced", "truncated"] {
        assert_eq!(fs::read_to_string(fixture.at(then, &format!("dir/{name}"))).unwrap(), name);
    }
    assert_eq!(fs::read_link(fixture.at(then, "dir/link")).unwrap(), Path::new("removed"));
    assert_eq!(fs::read_to_string(fixture.at(then, "dir/link")).unwrap(), "removed");
    assert_eq!(fs::metadata(fixture.at(then, "dir/overwritten")).unwrap().mode() & 0o777, 0o600);
    // The same directory under its name of now, at its own past.
    let inside = fixture.path(&format!("moved/.at/{then}/removed"));
    assert_eq!(fs::read(inside).unwrap(), b"removed");
    assert_eq!(fs::read(fixture.path("moved/truncated")).unwrap(), b"tr");
}

#[test]
fn a_hundred_instants_stay_as_they_were_recorded() {
    let Some(mut fixture) = MountAndClient::new() else { return };
    fs::create_dir(fixture.path("parent")).unwrap();
    let path = fixture.path("parent/file");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    let mut recorded = Vec::new();
    for n in 0..100u64 {
        file.write_all_at(&random_bytes(n, 3000), n * 1000).unwrap();
        recorded.push((fixture.now(), fs::read(&path).unwrap()));
    }
    let check = |fixture: &MountAndClient, when: &str| {
        for (n, (at, bytes)) in recorded.iter().enumerate() {
            assert!(fs::read(fixture.at(*at, "parent/file")).unwrap() == *bytes, "instant {n} {when}");
        }
    };
    check(&fixture, "at once");
    for n in 0..1000 {
        file.write_all_at(&random_bytes(n, 100), n * 97 % 90_000).unwrap();
    }
    check(&fixture, "after 1000 writes");
    drop(file);
    fs::remove_file(&path).unwrap();
    fs::rename(fixture.path("parent"), fixture.path("renamed")).unwrap();
    check(&fixture, "after a deletion and the rename of the parent");
    fixture.restart();
    check(&fixture, "after a restart");
}

#[test]
fn an_instant_equal_to_a_stamp_holds_that_write_and_the_one_before_does_not() {
    let Some(fixture) = MountAndClient::new() else { return };
    fs::write(fixture.path("file"), b"old").unwrap();
    let target = frieze_client::Target::path("/file");
    let file = fixture.client.fs().open(&target, frieze_client::OpenFlags::WRITE).unwrap();
    let stamp = file.write_at(0, b"new").unwrap();
    assert_eq!(fs::read(fixture.at(stamp, "file")).unwrap(), b"new");
    assert_eq!(fs::read(fixture.at(stamp.previous(), "file")).unwrap(), b"old");
    // The file's own mtime names a state that holds the write.
    let mtime = fs::metadata(fixture.path("file")).unwrap();
    let named = format!("@{}.{:09}", mtime.mtime(), mtime.mtime_nsec());
    assert_eq!(fs::read(fixture.path(&format!(".at/{named}/file"))).unwrap(), b"new");
}

#[test]
fn nothing_is_written_below_dot_at() {
    let Some(fixture) = MountAndClient::new() else { return };
    fs::write(fixture.path("file"), b"x").unwrap();
    let at = fixture.now();
    let past = |path: &str| fixture.at(at, path);
    assert_eq!(errno(fs::create_dir(fixture.path(".at"))), Errno::EXIST);
    assert_eq!(errno(File::create_new(fixture.path(".at"))), Errno::EXIST);
    assert_eq!(errno(fs::write(past("file"), b"y")), Errno::ROFS);
    assert_eq!(errno(fs::write(past("new"), b"y")), Errno::ROFS);
    assert_eq!(errno(fs::create_dir(past("new"))), Errno::ROFS);
    assert_eq!(errno(fs::create_dir(fixture.path(".at/new"))), Errno::ROFS);
    assert_eq!(errno(fs::remove_file(past("file"))), Errno::ROFS);
    assert_eq!(errno(fs::rename(past("file"), past("other"))), Errno::ROFS);
    assert_eq!(errno(fs::rename(past("file"), fixture.path("other"))), Errno::ROFS);
    assert_eq!(errno(fs::rename(fixture.path("file"), past("other"))), Errno::ROFS);
    assert_eq!(errno(symlink("x", past("link"))), Errno::ROFS);
    assert_eq!(errno(fs::set_permissions(past("file"), fs::Permissions::from_mode(0o777))), Errno::ROFS);
    assert_eq!(rustix::fs::setxattr(past("file"), "user.a", b"b", XattrFlags::empty()), Err(Errno::ROFS));
    assert_eq!(errno(fs::remove_dir(fixture.path(".at"))), Errno::ROFS);
    assert_eq!(errno(fs::rename(fixture.path(".at"), fixture.path("other"))), Errno::ROFS);
    assert_eq!(names(&fixture.path("")), ["file"], ".at is hidden");
    fs::remove_dir_all(fixture.path("file")).unwrap_err();
    assert_eq!(fs::read(fixture.path("file")).unwrap(), b"x");
}

#[test]
fn a_name_that_is_no_readable_instant_gets_the_errno_that_says_why() {
    let Some(fixture) = MountAndClient::new() else { return };
    fs::write(fixture.path("file"), b"x").unwrap();
    let look = |name: &str| errno(fs::metadata(fixture.path(&format!(".at/{name}/"))));
    assert_eq!(look("2026-99-99T00:00:00Z"), Errno::INVAL);
    assert_eq!(look("2026-99-99T00:00:00"), Errno::INVAL, "without a zone");
    assert_eq!(look("1999-01-01T00:00:00"), Errno::RANGE, "without a zone");
    assert_eq!(look("hlc-xyz"), Errno::INVAL);
    assert_eq!(look("user-tuesday"), Errno::INVAL);
    assert_eq!(look("no-such-snapshot"), Errno::NOENT);
    assert_eq!(look("2100-01-01T00:00:00Z"), Errno::RANGE);
    assert_eq!(look("hlc-ffffffffffffffff"), Errno::RANGE);
    assert_eq!(look("1999-01-01T00:00:00Z"), Errno::RANGE);
    let past = fixture.now();
    assert_eq!(look(&format!("{past}/.at/5m-ago")), Errno::INVAL);
    assert_eq!(look(&format!("{past}/.at/{past}")), Errno::INVAL);
    assert_eq!(errno(fs::read(fixture.path(&format!(".at/{past}/.at/user-5ns/file")))), Errno::NODATA);
    assert_eq!(errno(fs::read(fixture.path(".at/user-5ns/file"))), Errno::NODATA);
}

#[test]
fn a_moving_name_is_a_link_that_means_one_instant_to_one_process() {
    let Some(fixture) = MountAndClient::new() else { return };
    let link = fixture.path(".at/now");
    assert!(fs::symlink_metadata(&link).unwrap().file_type().is_symlink());
    let first = fs::read_link(&link).unwrap();
    assert!(first.to_str().unwrap().starts_with("hlc-"), "{first:?}");
    fs::write(fixture.path("later"), b"x").unwrap();
    assert_eq!(fs::read_link(&link).unwrap(), first, "the same process, the same instant");
    assert!(!fixture.path(".at/now/later").exists());
    // Another process asks later: it sees the file. And a tree copied by one process is one cut.
    let copied = fixture.mounts.local("copy");
    let output = run("cp", &["-r", fixture.path(".at/now").to_str().unwrap(), copied.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let output = run("cat", &[fixture.path(".at/now/later").to_str().unwrap()]);
    assert_eq!(output.stdout, b"x");
    let seen = run("readlink", &[fixture.path(".at/yesterday").to_str().unwrap()]);
    assert!(seen.stdout.starts_with(b"hlc-"), "{seen:?}");
}

#[test]
fn files_of_the_past_have_ids_of_their_own_so_that_they_can_be_copied_back() {
    let Some(fixture) = MountAndClient::new() else { return };
    fs::write(fixture.path("file"), b"then").unwrap();
    let (one, other) = (fixture.now(), fixture.now().next());
    let ids = [
        fixture.path("file"),
        fixture.at(one, "file"),
        fixture.at(other, "file"),
        fixture.path(""),
        fixture.at(one, ""),
    ];
    let ids: Vec<u64> = ids.iter().map(|path| fs::metadata(path).unwrap().ino()).collect();
    let distinct: std::collections::BTreeSet<u64> = ids.iter().copied().collect();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");
    let listed = fs::read_dir(fixture.at(one, "")).unwrap().next().unwrap().unwrap();
    assert_eq!(std::os::unix::fs::DirEntryExt::ino(&listed), ids[1]);
    fs::write(fixture.path("file"), b"now!").unwrap();
    let output = run("cp", &[fixture.at(one, "file").to_str().unwrap(), fixture.path("file").to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read(fixture.path("file")).unwrap(), b"then");
}

#[test]
fn snapshots_are_listed_in_dot_at_and_are_directories() {
    let Some(fixture) = MountAndClient::new() else { return };
    fs::create_dir(fixture.path("dir")).unwrap();
    fs::write(fixture.path("dir/file"), b"then").unwrap();
    fixture.client.make_snapshot("before-upgrade", None).unwrap();
    fs::write(fixture.path("dir/file"), b"now").unwrap();
    assert_eq!(names(&fixture.path(".at")), ["before-upgrade"]);
    assert_eq!(names(&fixture.path("dir/.at")), ["before-upgrade"]);
    assert!(fs::symlink_metadata(fixture.path(".at/before-upgrade")).unwrap().is_dir());
    assert_eq!(fs::read(fixture.path("dir/.at/before-upgrade/file")).unwrap(), b"then");
    fixture.client.delete_snapshot("before-upgrade").unwrap();
    assert_eq!(errno(fs::metadata(fixture.path(".at/before-upgrade"))), Errno::NOENT);
    assert!(names(&fixture.path(".at")).is_empty());
}

#[test]
fn a_directory_with_user_time_is_cut_by_it() {
    let Some(fixture) = MountAndClient::new() else { return };
    fs::create_dir(fixture.path("sensor")).unwrap();
    let binding = "binary:offset=0,width=8,order=little,signed=false,epoch=unix,unit=us";
    rustix::fs::setxattr(fixture.path("sensor"), "user.frieze.time", binding.as_bytes(), XattrFlags::empty()).unwrap();
    let file = File::create(fixture.path("sensor/data")).unwrap();
    let record = |time_us: u64, value: u8| {
        let mut record = time_us.to_le_bytes().to_vec();
        record.extend([value; 8]);
        record
    };
    let mut between = Hlc::ZERO;
    for n in 0..10u64 {
        file.write_all_at(&record(1000 * (n + 1), n as u8), 16 * n).unwrap();
        if n == 4 {
            between = fixture.now();
        }
    }
    assert_eq!(errno(file.write_all_at(&record(500, 9), 160)), Errno::INVAL, "user time runs backwards");
    let len = |path: String| fs::read(fixture.path(&path)).unwrap().len();
    assert_eq!(len("sensor/.at/user-3000000ns/data".to_owned()), 48);
    assert_eq!(len("sensor/.at/user-3999999ns/data".to_owned()), 48);
    assert_eq!(len("sensor/.at/user-999999ns/data".to_owned()), 0, "before the first");
    assert_eq!(len("sensor/.at/user-99000000ns/data".to_owned()), 160);
    assert_eq!(len(format!("sensor/.at/{between}/.at/user-99000000ns/data")), 80, "both");
    assert_eq!(len(format!("sensor/.at/{between}/.at/user-2000000ns/data")), 32);
    assert_eq!(errno(fs::write(fixture.path("sensor/.at/user-3000000ns/data"), b"x")), Errno::ROFS);
    assert_eq!(errno(fs::metadata(fixture.path("sensor/.at/user-3000000ns/.at"))), Errno::NOENT);
}

#[test]
fn a_mount_of_an_instant_is_that_instant_and_read_only() {
    let Some(fixture) = MountAndClient::new() else { return };
    fs::create_dir(fixture.path("dir")).unwrap();
    fs::write(fixture.path("dir/file"), b"then").unwrap();
    let at = fixture.now();
    fs::write(fixture.path("dir/file"), b"now").unwrap();
    fs::write(fixture.path("dir/new"), b"now").unwrap();
    let (second, mounted) = fixture.second(MountOptions { at: Some(at), ..MountOptions::default() });
    assert_eq!(fs::read(second.join("dir/file")).unwrap(), b"then");
    assert_eq!(names(&second.join("dir")), ["file"]);
    let listed = run("ls", &["-l", second.join("dir").to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains(" 4 "), "{listed:?}");
    assert_eq!(errno(fs::write(second.join("dir/file"), b"x")), Errno::ROFS);
    assert_eq!(errno(fs::create_dir(second.join("x"))), Errno::ROFS);
    assert_eq!(errno(fs::metadata(second.join(format!(".at/{at}")))), Errno::INVAL);
    mounted.unmount().unwrap();
    let future = MountOptions { at: Some(Hlc(u64::MAX - 1)), ..MountOptions::default() };
    let refused = mount(fixture.mounts.connect(TIMEOUT), &second, future).unwrap_err();
    assert!(matches!(refused, Error::Root(_)), "{refused}");
}

#[test]
fn two_mounts_see_each_others_changes_at_once() {
    let Some(fixture) = MountAndClient::new() else { return };
    let (second, _mounted) = fixture.second(MountOptions::default());
    let (here, there) = (fixture.path("file"), second.join("file"));
    for round in 0..50u32 {
        let text = format!("round {round}");
        fs::write(&here, &text).unwrap();
        assert_eq!(fs::read_to_string(&there).unwrap(), text);
        let file = OpenOptions::new().write(true).open(&there).unwrap();
        file.write_all_at(b"ROUND", 0).unwrap();
        assert_eq!(fs::read_to_string(&here).unwrap(), text.to_uppercase());
        fs::remove_file(&there).unwrap();
        assert!(!here.exists());
    }
    // Appends through two mounts never cover one another.
    let mut one = OpenOptions::new().append(true).create(true).open(&here).unwrap();
    let mut other = OpenOptions::new().append(true).open(&there).unwrap();
    for _ in 0..100 {
        one.write_all(b"one\n").unwrap();
        other.write_all(b"two\n").unwrap();
    }
    assert_eq!(fs::read_to_string(&here).unwrap(), "one\ntwo\n".repeat(100));
    assert_eq!(fs::read_to_string(&there).unwrap(), "one\ntwo\n".repeat(100));
}

#[test]
fn an_open_file_is_usable_again_when_the_server_is_back() {
    let Some(mut fixture) = MountAndClient::new() else { return };
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(fixture.path("file")).unwrap();
    file.write_all(b"before ").unwrap();
    fixture.restart();
    file.write_all(b"after").unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(fixture.path("file")).unwrap(), b"before after");
    assert_eq!(names(&fixture.path("")), ["file"]);
}

/// Runs a shell command as another user; `None` where this process or this machine cannot.
fn as_user(uid: u32, groups: &str, command: &str) -> Option<Output> {
    if !requirements::root() || !requirements::program("setpriv") {
        return None;
    }
    let groups = if groups.is_empty() { "--clear-groups".to_owned() } else { format!("--groups={groups}") };
    let uid = uid.to_string();
    Command::new("setpriv").args(["--reuid", &uid, "--regid", &uid, &groups, "sh", "-c", command]).output().ok()
}

#[test]
fn other_users_have_their_own_rights_now_and_in_the_past() {
    let Some(fixture) = MountAndClient::new() else { return };
    let shell = |uid: u32, groups: &str, command: &str| {
        let command = format!("cd {} && {command}", fixture.path("").display());
        Some(as_user(uid, groups, &command)?.status.success())
    };
    fs::write(fixture.path("secret"), b"s").unwrap();
    fs::set_permissions(fixture.path("secret"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(fixture.path("secret"), Some(1001), Some(2002)).unwrap();
    let Some(owner) = shell(1001, "", "cat secret && echo x >> secret") else { return };
    assert!(owner);
    assert_eq!(shell(1002, "", "cat secret"), Some(false));
    assert_eq!(shell(1002, "2002,3003", "cat secret"), Some(true), "by a supplementary group");
    assert_eq!(shell(1002, "2002", "echo x >> secret"), Some(false));
    let open = fixture.now();
    fs::set_permissions(fixture.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let past = format!("cat .at/{open}/secret");
    assert_eq!(shell(1002, "2002", &past), Some(false), "the rights of now count in the past as well");
    assert_eq!(shell(1001, "", &past), Some(true));

    // The root directory is open to all and sticky: a file belongs to the user that made it.
    assert_eq!(shell(1001, "", "echo mine > mine"), Some(true));
    assert_eq!(fs::metadata(fixture.path("mine")).unwrap().uid(), 1001);
    assert_eq!(shell(1002, "", "rm -f mine"), Some(false));
    assert_eq!(shell(1002, "", "chmod 777 mine"), Some(false));
    assert_eq!(shell(1001, "2002", "chgrp 2002 mine"), Some(true), "to a group of its own");
    assert_eq!(shell(1001, "", "chgrp 3003 mine"), Some(false));
}

#[test]
fn a_write_by_another_user_ends_the_set_id_bits() {
    let Some(fixture) = MountAndClient::new() else { return };
    let path = fixture.path("program");
    fs::write(&path, b"x").unwrap();
    for _ in 0..2 {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        let Some(output) = as_user(1001, "", &format!("echo y >> {}", path.display())) else { return };
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
    }
}

#[test]
fn a_program_without_the_right_to_read_it_runs() {
    let Some(fixture) = MountAndClient::new() else { return };
    let path = fixture.path("true");
    fs::copy("/bin/true", &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o711)).unwrap();
    let Some(output) = as_user(1001, "", &path.display().to_string()) else { return };
    assert!(output.status.success(), "{output:?}");
    let Some(output) = as_user(1001, "", &format!("cat {}", path.display())) else { return };
    assert!(!output.status.success());
}

#[test]
fn a_mountpoint_in_use_is_refused_and_a_mount_in_use_is_detached() {
    let Some(mut fixture) = MountAndClient::new() else { return };
    let mountpoint = fixture.path("");
    let again = mount(fixture.mounts.connect(TIMEOUT), &mountpoint, MountOptions::default()).unwrap_err();
    assert!(matches!(again, Error::InUse { .. }), "{again}");
    assert!(again.to_string().contains("a frieze file system is mounted there already"), "{again}");
    let mut file = File::create(fixture.path("held")).unwrap();
    file.write_all(b"x").unwrap();
    fixture.mounts.unmount(0);
    assert!(!fixture.path("held").exists(), "it is out of the tree");
    drop(file);
    let mounted = mount(fixture.mounts.connect(TIMEOUT), &mountpoint, MountOptions::default()).unwrap();
    assert_eq!(fs::read(fixture.path("held")).unwrap(), b"x", "and what was written is there");
    // By umount, as a user would.
    let output = run("umount", &[mountpoint.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    mounted.join().unwrap();
}

#[test]
fn copy_file_range_shares_and_falls_back_to_copying() {
    let Some(fixture) = MountAndClient::new() else { return };
    let bytes = random_bytes(11, 3 << 20);
    fs::write(fixture.path("from"), &bytes).unwrap();
    let log_bytes = || fixture.client.status().unwrap().log_bytes;
    let before = log_bytes();
    // std::fs::copy asks the kernel for copy_file_range.
    assert_eq!(fs::copy(fixture.path("from"), fixture.path("to")).unwrap(), 3 << 20);
    assert!(log_bytes() - before < 1 << 20, "{} bytes were written", log_bytes() - before);
    assert!(fs::read(fixture.path("to")).unwrap() == bytes);
    // Too short to be worth a range of the file, and into the middle.
    let (from, to) =
        (File::open(fixture.path("from")).unwrap(), OpenOptions::new().write(true).open(fixture.path("to")).unwrap());
    let (mut at, mut into) = (1000u64, 5u64);
    assert_eq!(rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut into), 777).unwrap(), 777);
    let mut expected = bytes.clone();
    expected[5..782].copy_from_slice(&bytes[1000..1777]);
    assert!(fs::read(fixture.path("to")).unwrap() == expected);
    // From the past.
    let then = fixture.now();
    fs::write(fixture.path("from"), b"changed").unwrap();
    fs::copy(fixture.at(then, "from"), fixture.path("back")).unwrap();
    assert!(fs::read(fixture.path("back")).unwrap() == bytes);
}
