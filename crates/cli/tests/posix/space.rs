//! Holes, lengths and room.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use frieze_harness::requirements;
use frieze_testkit::bytes::random_bytes;
use frieze_testkit::wait::eventually;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use crate::support::Mount;
use crate::{CHUNK, mount_server};

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// Every border between data and hole.
fn borders(path: &Path) -> Vec<u64> {
    let file = File::open(path).unwrap();
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        let what = if found.len() % 2 == 0 { SeekFrom::Data(at) } else { SeekFrom::Hole(at) };
        match seek(&file, what) {
            Ok(next) => at = next,
            Err(Errno::NXIO) => return found,
            Err(errno) => panic!("{errno}"),
        }
        found.push(at);
    }
}

fn blocks(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks()
}

#[test]
fn a_punched_hole_reads_as_zeros_takes_no_room_and_is_there_in_the_past() {
    let Some(mounted) = mount_server() else { return };
    let (path, file) = (mounted.path("f"), mounted.file("f"));
    let bytes = random_bytes(1, 5 * CHUNK as usize);
    file.write_all_at(&bytes, 0).unwrap();
    let before = mounted.server.now();
    fallocate(&file, PUNCH, 1000, 3 * CHUNK).unwrap();

    let mut expected = bytes.clone();
    expected[1000..1000 + 3 * CHUNK as usize].fill(0);
    assert!(fs::read(&path).unwrap() == expected);
    assert_eq!((fs::metadata(&path).unwrap().len(), blocks(&path)), (5 * CHUNK, 2 * CHUNK / 512));
    assert_eq!(borders(&path), [0, 1000, 1000 + 3 * CHUNK, 5 * CHUNK]);

    let past = mounted.past(&before, "f");
    assert!(fs::read(&past).unwrap() == bytes);
    assert_eq!((borders(&past), blocks(&past)), (vec![0, 5 * CHUNK], 5 * CHUNK / 512));
    let log = mounted.server.ok(&["log", "/f"]);
    let punched = log.lines().find(|line| line.contains(" punch ")).expect(&log);
    assert!(punched.contains(" 1000 ") && punched.contains(&(3 * CHUNK).to_string()), "{log}");

    // Written again, in the middle of the hole.
    file.write_all_at(b"again", 2 * CHUNK).unwrap();
    assert_eq!(borders(&path), [0, 1000, 2 * CHUNK, 2 * CHUNK + 5, 1000 + 3 * CHUNK, 5 * CHUNK]);
    // All of it, and far beyond the end, as programs do.
    fallocate(&file, PUNCH, 0, 1 << 62).unwrap();
    assert_eq!((borders(&path), blocks(&path)), (vec![], 0));
    assert_eq!(fs::metadata(&path).unwrap().len(), 5 * CHUNK);
    fallocate(&file, PUNCH, 6 * CHUNK, 100).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 5 * CHUNK);
}

#[test]
fn a_hole_punched_through_one_mount_shows_through_the_other_at_once() {
    let Some(mounted) = mount_server() else { return };
    let second = Mount::at(&mounted.server, "second").unwrap();
    let (path, file) = (second.path("f"), mounted.file("f"));
    for round in 0..20u64 {
        let bytes = random_bytes(round, 3 * CHUNK as usize);
        file.write_all_at(&bytes, 0).unwrap();
        let reader = File::open(&path).unwrap();
        let mut found = vec![0; bytes.len()];
        reader.read_exact_at(&mut found, 0).unwrap();
        assert!(found == bytes, "round {round}");
        fallocate(&file, PUNCH, CHUNK + 10 * round, CHUNK).unwrap();
        let mut expected = bytes;
        expected[(CHUNK + 10 * round) as usize..][..CHUNK as usize].fill(0);
        reader.read_exact_at(&mut found, 0).unwrap();
        assert!(found == expected, "through the same descriptor, round {round}");
        assert_eq!(blocks(&path), 2 * CHUNK / 512);
        fallocate(&file, FallocateFlags::ZERO_RANGE, 3 * CHUNK, 100 * (round + 1)).unwrap();
        assert_eq!(reader.metadata().unwrap().len(), 3 * CHUNK + 100 * (round + 1));
        assert_eq!(borders(&path), [0, CHUNK + 10 * round, 2 * CHUNK + 10 * round, 3 * CHUNK]);
    }
}

#[test]
fn a_file_that_shares_bytes_is_changed_like_any_other_and_its_source_stays() {
    let Some(mounted) = mount_server() else { return };
    let bytes = random_bytes(7, 3 * CHUNK as usize);
    fs::write(mounted.path("source"), &bytes).unwrap();
    // By copy_file_range, which shares.
    fs::copy(mounted.path("source"), mounted.path("f")).unwrap();
    let (path, file) = (mounted.path("f"), File::options().write(true).open(mounted.path("f")).unwrap());
    assert_eq!(blocks(&path), 3 * CHUNK / 512);
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fallocate(&file, PUNCH, CHUNK, CHUNK).unwrap();
    assert_eq!((borders(&path), blocks(&path)), (vec![0, CHUNK, 2 * CHUNK, 3 * CHUNK], 2 * CHUNK / 512));
    file.set_len(2 * CHUNK + 10).unwrap();
    file.write_all_at(b"new", 5).unwrap();
    let mut expected = bytes.clone();
    expected.truncate(2 * CHUNK as usize + 10);
    expected[CHUNK as usize..2 * CHUNK as usize].fill(0);
    expected[5..8].copy_from_slice(b"new");
    assert!(fs::read(&path).unwrap() == expected);
    assert!(fs::read(mounted.path("source")).unwrap() == bytes);
}

#[test]
fn zeroing_a_range_extends_the_file_unless_keep_size_is_set() {
    let Some(mounted) = mount_server() else { return };
    let (path, file) = (mounted.path("f"), mounted.file("f"));
    let bytes = random_bytes(2, 3000);
    file.write_all_at(&bytes, 0).unwrap();
    let zero = FallocateFlags::ZERO_RANGE;
    fallocate(&file, zero, 100, 200).unwrap();
    fallocate(&file, zero | FallocateFlags::KEEP_SIZE, 2900, 5000).unwrap();
    let mut expected = bytes;
    expected[100..300].fill(0);
    expected[2900..].fill(0);
    assert!(fs::read(&path).unwrap() == expected);
    fallocate(&file, zero, 2000, 5000).unwrap();
    expected[2000..].fill(0);
    expected.resize(7000, 0);
    assert!(fs::read(&path).unwrap() == expected);
    fallocate(&file, zero, 1 << 20, 10).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), (1 << 20) + 10);
    assert_eq!(borders(&path), [0, 100, 300, 2000]);
}

#[test]
fn allocating_checks_the_room_and_never_shortens() {
    let Some(mounted) = mount_server() else { return };
    let file = mounted.file("f");
    file.write_all_at(b"abc", 0).unwrap();
    let len = || file.metadata().unwrap().len();
    fallocate(&file, FallocateFlags::empty(), 0, 2).unwrap();
    assert_eq!(len(), 3);
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert_eq!(len(), 3);
    fallocate(&file, FallocateFlags::empty(), 10, 20).unwrap();
    assert_eq!(len(), 30);
    for flags in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE] {
        assert_eq!(fallocate(&file, flags, 0, 1 << 60), Err(Errno::NOSPC));
    }
    for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE, FallocateFlags::UNSHARE_RANGE] {
        assert_eq!(fallocate(&file, flags, 0, 4096), Err(Errno::OPNOTSUPP), "{flags:?}");
    }
    assert_eq!(fallocate(File::open(mounted.path("f")).unwrap(), PUNCH, 0, 1), Err(Errno::BADF));
    assert_eq!(len(), 30);
}

#[test]
fn blocks_are_those_that_hold_data_behind_truncates_and_in_the_past() {
    let Some(mounted) = mount_server() else { return };
    let (path, file) = (mounted.path("f"), mounted.file("f"));
    file.write_all_at(&random_bytes(3, 4 * CHUNK as usize), 0).unwrap();
    let full = mounted.server.now();
    file.set_len(CHUNK).unwrap();
    file.set_len(1 << 40).unwrap();
    assert_eq!((blocks(&path), borders(&path)), (CHUNK / 512, vec![0, CHUNK]));
    file.write_all_at(&[1; 512], 1 << 39).unwrap();
    assert_eq!((blocks(&path), borders(&path)), (CHUNK / 512 + 1, vec![0, CHUNK, 1 << 39, (1 << 39) + 512]));
    assert_eq!(blocks(&mounted.past(&full, "f")), 4 * CHUNK / 512);
    // Replaced as editors do, and as shells do.
    fs::write(&path, [2; 1024]).unwrap();
    assert_eq!((blocks(&path), borders(&path)), (2, vec![0, 1024]));
}

#[test]
fn a_file_ends_where_the_largest_file_ends() {
    let Some(mounted) = mount_server() else { return };
    let file = mounted.file("f");
    // Chunks are counted in 32 bits.
    let max = CHUNK * u64::from(u32::MAX);
    file.set_len(max).unwrap();
    file.write_all_at(b"end", max - 3).unwrap();
    assert_eq!(borders(&mounted.path("f")), [max - 3, max]);
    let mut end = [0; 8];
    assert_eq!(file.read_at(&mut end, max - 3).unwrap(), 3);
    for offset in [max - 2, max, (1 << 62) + 1] {
        let refused = file.write_all_at(b"end", offset).unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::FBIG), "at {offset}");
    }
    let refused = file.set_len(max + 1).unwrap_err();
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::FBIG));
    assert_eq!(fallocate(&file, FallocateFlags::empty(), max, 10), Err(Errno::FBIG));
    assert_eq!(file.metadata().unwrap().len(), max);
}

#[test]
fn df_shows_what_a_quota_above_leaves_to_write() {
    let Some(mounted) = mount_server() else { return };
    if !requirements::root() {
        return;
    }
    fs::create_dir_all(mounted.path("d/sub")).unwrap();
    let of = |path: &str| {
        let found = rustix::fs::statvfs(mounted.path(path)).unwrap();
        let bytes = |blocks: u64| blocks * found.f_frsize;
        ((bytes(found.f_blocks), bytes(found.f_bavail)), (found.f_files, found.f_favail))
    };
    let device = of("d/sub");
    mounted.server.ok(&["quota", "/d", "--bytes", "8388608", "--files", "10"]);
    File::create(mounted.path("d/sub/f")).unwrap().write_all_at(&vec![1; 1 << 20], 0).unwrap();
    // The length is settled a moment after the file is closed.
    eventually("a length under a quota", || (of("d").0.1 == 7 << 20).then_some(()));
    for path in ["d", "d/sub", "d/sub/f"] {
        assert_eq!(of(path), ((8 << 20, 7 << 20), (10, 7)), "{path}");
    }
    assert_eq!(of("").0.0, device.0.0, "above it there is none");
    // The nearest one is not the narrowest.
    mounted.server.ok(&["quota", "/d/sub", "--bytes", "1073741824"]);
    assert_eq!(of("d/sub/f").0, (8 << 20, 7 << 20));
    let full = fs::write(mounted.path("d/sub/g"), vec![1; 9 << 20]).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(Errno::DQUOT.raw_os_error()));
}
