//! Names and directories where FUSE file systems are known to stumble: open files that are renamed over or removed,
//! positions in directories that change, names of every byte.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};

use frieze_testkit::bytes::random_bytes;
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;

use crate::mount_server;
use crate::support::Mount;

#[test]
fn an_open_file_outlives_its_name_replaced_from_either_mount() {
    let Some(mounted) = mount_server() else { return };
    let second = Mount::at(&mounted.server, "second").unwrap();
    for (round, mount) in [&mounted.mount, &second].into_iter().enumerate() {
        let (name, beside) = (mount.path("f"), mount.path("f.new"));
        fs::write(mounted.path("f"), format!("old {round}")).unwrap();
        let mut open = OpenOptions::new().read(true).append(true).open(mounted.path("f")).unwrap();
        let inode = open.metadata().unwrap().ino();
        fs::write(&beside, "new").unwrap();
        fs::rename(&beside, &name).unwrap();
        assert_eq!(fs::read_to_string(mounted.path("f")).unwrap(), "new");
        open.write_all(b", and more").unwrap();
        open.sync_all().unwrap();
        let metadata = open.metadata().unwrap();
        assert_eq!((metadata.nlink(), metadata.ino(), metadata.len()), (0, inode, 15), "round {round}");
        let mut bytes = [0; 15];
        open.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, *format!("old {round}, and more").as_bytes());
        assert_eq!(fs::read_to_string(mounted.path("f")).unwrap(), "new");
    }
}

#[test]
fn an_open_file_without_a_name_can_still_be_used_in_every_way() {
    let Some(mounted) = mount_server() else { return };
    let second = Mount::at(&mounted.server, "second").unwrap();
    let file = mounted.file("f");
    fs::hard_link(mounted.path("f"), mounted.path("g")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 2);
    fs::remove_file(mounted.path("f")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    fs::remove_file(second.path("g")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.set_len(1 << 20).unwrap();
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE, 0, 9)
        .unwrap();
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO));
    let metadata = file.metadata().unwrap();
    assert_eq!((metadata.len(), metadata.mode() & 0o777), (1 << 20, 0o600));
    // Back into the tree by a link of the descriptor is refused, as for any file without a name.
    let link = rustix::fs::linkat(&file, "", rustix::fs::CWD, mounted.path("h"), rustix::fs::AtFlags::EMPTY_PATH);
    assert!(link.is_err());
    assert!(fs::read_dir(&mounted.mount.path).unwrap().next().is_none());
}

#[test]
fn a_removed_directory_that_is_somebodys_current_one_is_empty_and_takes_nothing() {
    let Some(mounted) = mount_server() else { return };
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    let open = File::open(&dir).unwrap();
    fs::remove_dir(&dir).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    let made = rustix::fs::openat(&open, "f", OFlags::CREATE | OFlags::WRONLY, 0o644.into());
    assert_eq!(made.map(drop), Err(Errno::NOENT));
    assert_eq!(rustix::fs::mkdirat(&open, "e", 0o755.into()), Err(Errno::NOENT));
    let names: Vec<_> = rustix::fs::Dir::read_from(&open).unwrap().collect();
    assert!(names.iter().flatten().all(|entry| matches!(entry.file_name().to_bytes(), b"." | b"..")), "{names:?}");
}

#[test]
fn links_are_counted_directories_by_those_in_them() {
    let Some(mounted) = mount_server() else { return };
    let links = |path: &str| fs::symlink_metadata(mounted.path(path)).unwrap().nlink();
    fs::create_dir_all(mounted.path("d/a")).unwrap();
    fs::create_dir(mounted.path("d/b")).unwrap();
    fs::write(mounted.path("d/f"), "").unwrap();
    assert_eq!((links("d"), links("d/a"), links("d/f")), (4, 2, 1));
    fs::rename(mounted.path("d/b"), mounted.path("b")).unwrap();
    assert_eq!((links("d"), links("b")), (3, 2));
    fs::create_dir(mounted.path("d/empty")).unwrap();
    fs::rename(mounted.path("b"), mounted.path("d/empty")).unwrap();
    assert_eq!(links("d"), 4);
    for n in 0..300 {
        fs::hard_link(mounted.path("d/f"), mounted.path(&format!("link-{n}"))).unwrap();
    }
    assert_eq!(links("d/f"), 301);
    fs::rename(mounted.path("link-1"), mounted.path("link-2")).unwrap();
    assert_eq!(links("d/f"), 301, "a rename to another name of the same file does nothing");
    assert!(mounted.path("link-1").exists());
}

#[test]
fn a_name_may_hold_every_byte_but_two() {
    let Some(mounted) = mount_server() else { return };
    let names: BTreeSet<OsString> =
        (1..=255u8).filter(|byte| *byte != b'/').map(|byte| OsString::from_vec(vec![b'n', byte])).collect();
    for name in &names {
        fs::write(mounted.mount.path.join(name), name.as_encoded_bytes()).unwrap();
    }
    let listed: BTreeSet<OsString> =
        fs::read_dir(&mounted.mount.path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(listed, names);
    for name in &names {
        assert_eq!(fs::read(mounted.mount.path.join(name)).unwrap(), name.as_encoded_bytes());
    }
    let longest = OsString::from_vec(vec![0xff; 255]);
    fs::write(mounted.mount.path.join(&longest), "x").unwrap();
    fs::rename(mounted.mount.path.join(&longest), mounted.path("x")).unwrap();
    let text = OsString::from_vec((0..4095u32).map(|n| (n % 255 + 1) as u8).collect());
    symlink(&text, mounted.path("link")).unwrap();
    assert_eq!(fs::read_link(mounted.path("link")).unwrap().into_os_string(), text);
    assert_eq!(fs::symlink_metadata(mounted.path("link")).unwrap().len(), 4095);
    let too_long = symlink(OsString::from_vec(vec![b'x'; 4096]), mounted.path("long")).unwrap_err();
    assert_eq!(Errno::from_io_error(&too_long), Some(Errno::NAMETOOLONG));
}

/// Names as a reader of the directory sees them, with the position after each.
fn read(dir: &mut rustix::fs::Dir) -> Option<(String, i64)> {
    let entry = dir.read()?.unwrap();
    Some((entry.file_name().to_str().unwrap().to_owned(), entry.offset()))
}

#[test]
fn positions_in_a_directory_stay_what_they_were_while_it_changes() {
    let Some(mounted) = mount_server() else { return };
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    for n in 0..3000 {
        File::create(dir.join(format!("name-{n:04}"))).unwrap();
    }
    let open = File::open(&dir).unwrap();
    let mut listing = rustix::fs::Dir::read_from(&open).unwrap();
    let mut entries = Vec::new();
    while let Some(entry) = read(&mut listing) {
        entries.push(entry);
    }
    assert_eq!(entries.len(), 3002);
    // Back to any place: what follows it is what followed it.
    for at in [2, 1500, 2999, 5, 2048, 2049, 2050] {
        listing.seek(entries[at].1).unwrap();
        assert_eq!(read(&mut listing), Some(entries[at + 1].clone()), "after {at}");
    }
    // Names that go and come elsewhere lose no other.
    listing.seek(entries[1000].1).unwrap();
    for (n, (name, _)) in entries[2..].iter().enumerate() {
        if n % 2 == 0 {
            fs::remove_file(dir.join(name)).unwrap();
            File::create(dir.join(format!("added-{n:04}"))).unwrap();
        }
    }
    let mut seen = BTreeSet::new();
    while let Some((name, _)) = read(&mut listing) {
        assert!(seen.insert(name.clone()), "{name} twice");
    }
    let stayed = entries[1001..].iter().map(|(name, _)| name).filter(|name| dir.join(name).exists());
    for name in stayed {
        assert!(seen.contains(name), "{name} was there all the time and is not seen");
    }
    listing.rewind();
    let mut again = BTreeSet::new();
    while let Some((name, _)) = read(&mut listing) {
        again.insert(name);
    }
    assert_eq!(again.len(), 3002);
    assert!(again.contains("added-0000"));
}

#[test]
fn ten_thousand_names_are_removed_while_they_are_read() {
    let Some(mounted) = mount_server() else { return };
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    for n in 0..10_000 {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.join(n.to_string()),
            rustix::fs::FileType::RegularFile,
            0o644.into(),
            0,
        )
        .unwrap();
    }
    let mut removed = 0;
    for entry in fs::read_dir(&dir).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        removed += 1;
    }
    assert_eq!(removed, 10_000);
    fs::remove_dir(&dir).unwrap();
}

#[test]
fn a_file_that_never_had_a_name_is_refused_or_works() {
    let Some(mounted) = mount_server() else { return };
    let made =
        OpenOptions::new().read(true).write(true).custom_flags(OFlags::TMPFILE.bits() as i32).open(&mounted.mount.path);
    // Programs go on with a name of their own when they are told so.
    assert_eq!(Errno::from_io_error(&made.unwrap_err()), Some(Errno::OPNOTSUPP));
    let temporary = tempfile::tempfile_in(&mounted.mount.path).unwrap();
    let bytes = random_bytes(9, 70_000);
    (&temporary).write_all(&bytes).unwrap();
    assert_eq!((temporary.metadata().unwrap().len(), temporary.metadata().unwrap().nlink()), (70_000, 0));
}

#[test]
fn a_change_after_opening_a_directory_shows_in_its_listing() {
    let Some(mounted) = mount_server() else { return };
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    for name in ["deleted", "left", "made-again", "moved", "other-mode", "taken", "written"] {
        fs::write(dir.join(name), b"1234").unwrap();
    }
    fs::set_permissions(dir.join("other-mode"), fs::Permissions::from_mode(0o500)).unwrap();
    let open = fs::read_dir(&dir).unwrap();
    fs::remove_file(dir.join("deleted")).unwrap();
    fs::remove_file(dir.join("made-again")).unwrap();
    fs::write(dir.join("made-again"), b"123456").unwrap();
    fs::rename(dir.join("moved"), dir.join("taken")).unwrap();
    fs::set_permissions(dir.join("other-mode"), fs::Permissions::from_mode(0o200)).unwrap();
    fs::write(dir.join("written"), b"12345678").unwrap();
    let inode = |name: &str| fs::metadata(dir.join(name)).map(|found| found.ino());
    let (taken, again) = (inode("taken").unwrap(), inode("made-again").unwrap());

    // The names may be those of the moment of opening; but reading them must not bring back what has gone.
    assert!(open.count() >= 4);
    assert!(inode("deleted").is_err() && inode("moved").is_err());
    assert_eq!((inode("taken").unwrap(), inode("made-again").unwrap()), (taken, again));
    let mode = fs::metadata(dir.join("other-mode")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o200);
    assert_eq!(fs::metadata(dir.join("written")).unwrap().len(), 8);
    assert_eq!(fs::read(dir.join("made-again")).unwrap(), b"123456");
    fs::OpenOptions::new().create(true).write(true).truncate(false).open(dir.join("deleted")).unwrap();
    assert!(inode("deleted").is_ok(), "it is a new file");
}
