use std::fs::File;
use std::process::Command;

use frieze_base::Reason;
use tempfile::TempDir;

use super::*;
use crate::device::LOCK_NAME;

fn new_disk() -> (TempDir, FileDisk) {
    let dir = tempfile::tempdir().unwrap();
    let disk = FileDisk::open(dir.path(), FileDiskSettings::default()).unwrap();
    (dir, disk)
}

fn limited(bytes: u64) -> (TempDir, FileDisk) {
    let dir = tempfile::tempdir().unwrap();
    let disk = FileDisk::open(dir.path(), FileDiskSettings { capacity_bytes_max: Some(bytes) }).unwrap();
    (dir, disk)
}

fn bytes_of(file: &dyn DiskFile) -> Vec<u8> {
    let mut bytes = vec![0xff; file.len().unwrap() as usize + 10];
    let read = file.read_at(0, &mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

#[test]
fn a_new_file_reads_as_zero_and_has_its_space_reserved() {
    let (dir, disk) = new_disk();
    let file = disk.create("a", 1 << 20).unwrap();
    assert_eq!(bytes_of(&*file), vec![0; 1 << 20]);
    let stat = rustix::fs::stat(dir.path().join("a")).unwrap();
    assert!(stat.st_blocks as u64 * 512 >= 1 << 20, "{} blocks", stat.st_blocks);
}

#[test]
fn written_bytes_are_read_back_also_by_a_later_process() {
    let (dir, disk) = new_disk();
    let file = disk.create("a", 100).unwrap();
    file.write_at(10, &[b"one", b"", b"two"]).unwrap();
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    drop((file, disk));
    let disk = FileDisk::open(dir.path(), FileDiskSettings::default()).unwrap();
    let file = disk.open("a").unwrap();
    assert_eq!(file.len(), Ok(100));
    assert_eq!(&bytes_of(&*file)[8..20], b"\0\0onetwo\0\0\0\0");
}

#[test]
fn a_write_of_more_parts_than_one_system_call_takes_is_whole() {
    let (_dir, disk) = new_disk();
    let file = disk.create("a", 10_000).unwrap();
    let pieces: Vec<[u8; 3]> = (0..3000u32).map(|i| [i as u8, (i >> 8) as u8, 7]).collect();
    let parts: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
    file.write_at(1, &parts).unwrap();
    assert_eq!(bytes_of(&*file)[1..9001], pieces.concat()[..]);
}

#[test]
fn writing_nothing_writes_nothing() {
    let (_dir, disk) = new_disk();
    let file = disk.create("a", 3).unwrap();
    file.write_at(3, &[]).unwrap();
    file.write_at(0, &[b"", b""]).unwrap();
    file.write_at(0, &[b"", b"one", b""]).unwrap();
    assert_eq!(bytes_of(&*file), b"one");
}

#[test]
fn a_write_beyond_the_end_is_refused_whole() {
    let (_dir, disk) = new_disk();
    let file = disk.create("a", 10).unwrap();
    let error = file.write_at(8, &[b"abc"]).unwrap_err();
    assert_eq!(error.to_string(), "cannot write 3 bytes at 8 of a: it was created with 10 bytes");
    assert_eq!(error.reason(), Reason::InvalidArgument);
    assert!(file.write_at(u64::MAX, &[b"a"]).is_err());
    assert_eq!(bytes_of(&*file), [0; 10]);
}

#[test]
fn a_read_at_the_end_is_short_and_beyond_it_empty() {
    let (_dir, disk) = new_disk();
    let file = disk.create("a", 10).unwrap();
    assert_eq!(file.read_at(7, &mut [0; 8]), Ok(3));
    assert_eq!(file.read_at(10, &mut [0; 8]), Ok(0));
    assert_eq!(file.read_at(1 << 40, &mut [0; 8]), Ok(0));
}

#[test]
fn files_are_listed_in_order_without_foreign_files() {
    let (dir, disk) = new_disk();
    for name in ["b", "c", "a"] {
        disk.create(name, 1).unwrap();
    }
    std::fs::create_dir(dir.path().join("meta")).unwrap();
    std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
    assert_eq!(disk.list().unwrap(), ["a", "b", "c"]);
    disk.rename("c", "a").unwrap();
    disk.remove("b").unwrap();
    assert_eq!(disk.list().unwrap(), ["a"]);
}

#[test]
fn a_name_that_is_taken_or_missing_is_an_error_with_the_operation_and_the_name() {
    let (_dir, disk) = new_disk();
    disk.create("a", 1).unwrap().write_at(0, &[b"x"]).unwrap();
    let taken = disk.create("a", 5).err().unwrap();
    assert_eq!(taken.reason(), Reason::Exists);
    assert!(taken.to_string().starts_with("cannot create a: "), "{taken}");
    assert_eq!(bytes_of(&*disk.open("a").unwrap()), b"x", "the file that was there is untouched");
    for error in [disk.open("no").err().unwrap(), disk.remove("no").unwrap_err(), disk.rename("no", "b").unwrap_err()] {
        assert_eq!(error.reason(), Reason::NotFound, "{error}");
        assert!(error.to_string().contains(" no: "), "{error}");
    }
}

#[test]
fn names_that_could_leave_the_directory_are_refused() {
    let (_dir, disk) = new_disk();
    for name in ["", ".", "..", "../a", "/etc/passwd", "a/b", ".making", "a\0b"] {
        assert!(matches!(disk.create(name, 1).err().unwrap(), Error::BadName { .. }), "{name:?}");
        assert!(matches!(disk.open(name).err().unwrap(), Error::BadName { .. }), "{name:?}");
        assert!(matches!(disk.remove(name).unwrap_err(), Error::BadName { .. }), "{name:?}");
        assert!(matches!(disk.rename("lock", name).unwrap_err(), Error::BadName { .. }), "{name:?}");
    }
    assert!(disk.create("lock", 1).is_err() && disk.remove("lock").is_err(), "the lock is no file of the device");
}

#[test]
fn a_directory_in_use_is_refused_naming_the_process() {
    let (dir, disk) = new_disk();
    let error = FileDisk::open(dir.path(), FileDiskSettings::default()).unwrap_err();
    assert_eq!(error.reason(), Reason::Busy);
    let pid = std::process::id();
    let words = format!("{} is in use by a running server (pid {pid})", dir.path().display());
    assert!(error.to_string().starts_with(&words), "{error}");
    drop(disk);
    FileDisk::open(dir.path(), FileDiskSettings::default()).expect("the lock ends with its holder");
}

#[test]
fn a_directory_is_made_if_it_is_missing_but_a_file_is_no_directory() {
    let (dir, _disk) = new_disk();
    let inner = dir.path().join("inner");
    FileDisk::open(&inner, FileDiskSettings::default()).unwrap();
    let mode = rustix::fs::stat(&inner).unwrap().st_mode;
    assert_eq!(mode & 0o077, 0, "no other user can read the files: {mode:o}");
    std::fs::write(dir.path().join("plain"), b"").unwrap();
    let error = FileDisk::open(&dir.path().join("plain"), FileDiskSettings::default()).unwrap_err();
    assert_eq!(error.reason(), Reason::NotDirectory, "{error}");
    assert!(FileDisk::open(&dir.path().join("no/such"), FileDiskSettings::default()).is_err());
}

#[test]
fn a_full_device_refuses_new_files_and_takes_them_again_after_a_removal() {
    let (dir, disk) = limited(10_000);
    disk.create("a", 6_000).unwrap();
    let error = disk.create("b", 6_000).err().unwrap();
    assert_eq!(error.reason(), Reason::NoSpace);
    assert!(error.to_string().contains("4000 bytes are free"), "{error}");
    assert_eq!(disk.space().unwrap(), Space { capacity_bytes: 10_000, free_bytes: 4_000 });
    disk.open("a").unwrap().write_at(0, &[&[1; 6_000]]).expect("reserved space cannot run out");
    drop(disk);
    let disk = FileDisk::open(dir.path(), FileDiskSettings { capacity_bytes_max: Some(10_000) }).unwrap();
    assert_eq!(disk.space().unwrap().free_bytes, 4_000, "counted again at the start");
    disk.remove("a").unwrap();
    disk.create("b", 6_000).unwrap();
    disk.create("c", 4_000).unwrap();
    disk.rename("b", "c").unwrap();
    assert_eq!(disk.space().unwrap().free_bytes, 4_000, "a replaced file gives its space back");
}

#[test]
fn an_unfinished_file_of_a_killed_process_is_removed_at_the_next_start() {
    let (dir, disk) = new_disk();
    drop(disk);
    std::fs::write(dir.path().join(UNFINISHED_NAME), b"half").unwrap();
    let disk = FileDisk::open(dir.path(), FileDiskSettings::default()).unwrap();
    assert!(disk.list().unwrap().is_empty());
    assert!(!dir.path().join(UNFINISHED_NAME).exists());
}

#[test]
fn without_fallocate_space_is_reserved_by_writing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let fd = OwnedFd::from(File::create_new(&path).unwrap());
    let len = (2 << 20) + 5;
    write_zeroes(&fd, len).unwrap();
    let stat = rustix::fs::stat(&path).unwrap();
    assert_eq!(stat.st_size as u64, len);
    assert!(stat.st_blocks as u64 * 512 >= len);
}

#[test]
fn a_failed_sync_is_never_followed_by_a_successful_one() {
    // A descriptor that cannot be synced stands for a device that failed once.
    let (_dir, disk) = new_disk();
    let (pipe, _other_end) = std::io::pipe().unwrap();
    let again = pipe.try_clone().unwrap();
    let file = disk.handle("a", pipe.into(), DiskOp::Open).unwrap();
    assert_eq!(file.sync().unwrap_err().reason(), Reason::InputOutput);
    let reopened = disk.handle("a", again.into(), DiskOp::Open).unwrap();
    for file in [file, reopened] {
        let second = file.sync().unwrap_err();
        assert!(matches!(second, Error::SyncLost { .. }), "{second}");
    }
}

#[test]
fn errors_of_the_system_become_the_reasons_that_doors_understand() {
    let reason = |errno| io(DiskOp::Write, "a")(errno).reason();
    assert_eq!(reason(Errno::NOSPC), Reason::NoSpace);
    assert_eq!(reason(Errno::DQUOT), Reason::NoSpace);
    assert_eq!(reason(Errno::IO), Reason::InputOutput);
    assert_eq!(reason(Errno::MFILE), Reason::Unavailable);
    let full = io(DiskOp::Create, "seg-7")(Errno::NOSPC);
    assert_eq!(full.to_string(), "cannot create seg-7: No space left on device (os error 28)");
}

#[test]
fn two_processes_cannot_lock_one_directory() {
    let (dir, disk) = new_disk();
    let lock = dir.path().join(LOCK_NAME);
    let held = |path: &Path| Command::new("flock").arg("-n").arg(path).arg("true").status();
    let Ok(status) = held(&lock) else { return }; // a machine without util-linux
    assert!(!status.success());
    drop(disk);
    assert!(held(&lock).unwrap().success());
}

#[test]
fn a_direct_read_returns_the_written_bytes_from_any_offset() {
    let (_dir, disk) = new_disk();
    let len = 3 * 4096 + 700;
    let file = disk.create("a", len as u64).unwrap();
    let bytes: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
    file.write_at(0, &[&bytes]).unwrap();
    for (from, want) in [(0, len), (1, 10), (4095, 2), (4096, 4096), (5000, len), (len - 1, 1), (len, 5)] {
        let mut found = vec![0xee; want];
        let read = file.read_direct_at(from as u64, &mut found).unwrap();
        assert_eq!(found[..read], bytes[from..len.min(from + want)], "{want} bytes from {from}");
    }
}

#[test]
fn two_parts_read_at_once_are_the_stored_bytes_wherever_the_file_ends() {
    let (_dir, disk) = new_disk();
    let file = disk.create("a", 100).unwrap();
    let bytes: Vec<u8> = (1..=100).collect();
    file.write_at(0, &[&bytes]).unwrap();
    for (from, one, two) in [(0, 10, 20), (7, 0, 5), (7, 5, 0), (80, 10, 10), (80, 10, 30), (90, 30, 5), (100, 1, 1)] {
        let (mut first, mut second) = (vec![0; one], vec![0; two]);
        let found = file.read_two_at(from as u64, &mut first, &mut second).unwrap();
        assert_eq!(found, (one + two).min(100 - from), "{one} and {two} bytes from {from}");
        first.extend(second);
        assert_eq!(first[..found], bytes[from..from + found], "{one} and {two} bytes from {from}");
    }
}
