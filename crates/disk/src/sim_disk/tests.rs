use frieze_base::Reason;

use super::*;

fn crash(disk: &SimDisk, kind: CrashKind) {
    disk.crash(kind);
    disk.restart();
}

fn bytes_of(disk: &SimDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// A device with a durable file `a` of `sectors` sectors, each filled with 1.
fn with_file(seed: u64, sectors: usize) -> SimDisk {
    let disk = SimDisk::new(seed);
    let file = disk.create("a", (sectors * SECTOR_BYTES) as u64).unwrap();
    file.write_at(0, &[&vec![1; sectors * SECTOR_BYTES]]).unwrap();
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    disk
}

#[test]
fn written_bytes_are_read_back_across_sectors() {
    let disk = SimDisk::new(1);
    let file = disk.create("a", 2000).unwrap();
    file.write_at(500, &[b"one", b"", &[7; 1000]]).unwrap();
    let bytes = bytes_of(&disk, "a");
    assert_eq!(&bytes[499..504], b"\0one\x07");
    assert_eq!(&bytes[1500..1505], &[7, 7, 7, 0, 0]);
    assert_eq!(file.read_at(1990, &mut [0; 100]), Ok(10));
    assert_eq!(file.read_at(5000, &mut [0; 100]), Ok(0));
}

#[test]
fn a_dead_process_leaves_everything_it_wrote() {
    let disk = SimDisk::new(1);
    let file = disk.create("a", 5000).unwrap();
    file.write_at(0, &[&[5; 5000]]).unwrap();
    disk.rename("a", "b").unwrap();
    crash(&disk, CrashKind::Process);
    assert_eq!(bytes_of(&disk, "b"), vec![5; 5000]);
    assert_eq!(disk.list().unwrap(), ["b"]);
}

#[test]
fn a_loss_of_power_never_loses_synced_bytes() {
    for seed in 0..50 {
        let disk = with_file(seed, 8);
        crash(&disk, CrashKind::Power);
        assert_eq!(bytes_of(&disk, "a"), vec![1; 8 * SECTOR_BYTES], "seed {seed}");
    }
}

#[test]
fn a_loss_of_power_leaves_each_unsynced_sector_old_or_new_in_every_shape() {
    let (mut none, mut all, mut prefixes, mut others) = (0, 0, 0, 0);
    for seed in 0..400 {
        let disk = with_file(seed, 8);
        let file = disk.open("a").unwrap();
        for sector in 0..8 {
            file.write_at(sector * SECTOR_BYTES as u64, &[&[9; SECTOR_BYTES]]).unwrap();
        }
        crash(&disk, CrashKind::Power);
        let bytes = bytes_of(&disk, "a");
        let new: Vec<bool> = bytes
            .chunks(SECTOR_BYTES)
            .map(|sector| {
                assert!(sector.iter().all(|&byte| byte == sector[0]), "a sector is never torn");
                sector[0] == 9
            })
            .collect();
        let kept = new.iter().filter(|&&new| new).count();
        match kept {
            0 => none += 1,
            8 => all += 1,
            _ if new[..kept].iter().all(|&new| new) => prefixes += 1,
            _ => others += 1,
        }
    }
    assert!(none > 30 && all > 30 && prefixes > 30 && others > 30, "{none} {all} {prefixes} {others}");
}

#[test]
fn only_what_was_written_after_the_sync_is_at_risk() {
    for seed in 0..100 {
        let disk = with_file(seed, 2);
        let file = disk.open("a").unwrap();
        file.write_at(0, &[&[2; SECTOR_BYTES]]).unwrap();
        file.sync().unwrap();
        file.write_at(0, &[&[3; SECTOR_BYTES]]).unwrap();
        file.write_at(0, &[&[4; SECTOR_BYTES]]).unwrap();
        crash(&disk, CrashKind::Power);
        assert!(matches!(bytes_of(&disk, "a")[0], 2 | 4), "seed {seed}: what was synced or the newest");
    }
}

#[test]
fn names_survive_a_loss_of_power_as_a_prefix_of_their_changes_and_wholly_once_synced() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let disk = with_file(seed, 1);
        disk.create("b", 1).unwrap();
        disk.rename("b", "c").unwrap();
        disk.remove("a").unwrap();
        crash(&disk, CrashKind::Power);
        seen.insert(disk.list().unwrap().concat());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["a", "ab", "ac", "c"]);
    for seed in 0..50 {
        let disk = with_file(seed, 1);
        disk.rename("a", "b").unwrap();
        disk.sync_dir().unwrap();
        crash(&disk, CrashKind::Power);
        assert_eq!(disk.list().unwrap(), ["b"], "seed {seed}");
    }
}

#[test]
fn a_removed_file_that_comes_back_has_its_bytes() {
    for seed in 0..50 {
        let disk = with_file(seed, 1);
        disk.remove("a").unwrap();
        crash(&disk, CrashKind::Power);
        if let Some(name) = disk.list().unwrap().first() {
            assert_eq!(bytes_of(&disk, name), vec![1; SECTOR_BYTES]);
            return;
        }
    }
    panic!("the removal survived in every run");
}

#[test]
fn the_device_stops_in_the_middle_of_the_chosen_change() {
    let mut torn = 0;
    for seed in 0..100 {
        let disk = with_file(seed, 4);
        let file = disk.open("a").unwrap();
        disk.fail_after(2);
        file.write_at(0, &[&[2; SECTOR_BYTES]]).unwrap();
        let error = file.write_at(0, &[&[3; 1000], &[3; 1000]]).unwrap_err();
        assert!(matches!(error, Error::Crashed { op: DiskOp::Write, .. }), "{error}");
        assert!(disk.is_crashed());
        assert!(file.read_at(0, &mut [0]).is_err() && disk.list().is_err() && disk.open("a").is_err());
        crash(&disk, CrashKind::Process);
        let written = bytes_of(&disk, "a").iter().filter(|&&byte| byte == 3).count();
        torn += usize::from(written > 0 && written < 2000);
    }
    assert!(torn > 50, "{torn}");
}

#[test]
fn every_kind_of_change_can_be_cut() {
    type Change = fn(&SimDisk) -> Result<()>;
    let changes: [(&str, Change); 6] = [
        ("create", |disk| disk.create("b", 10).map(drop)),
        ("rename", |disk| disk.rename("a", "b")),
        ("remove", |disk| disk.remove("a")),
        ("sync_dir", |disk| disk.sync_dir()),
        ("sync", |disk| disk.open("a")?.sync()),
        ("write", |disk| disk.open("a")?.write_at(0, &[b"x"])),
    ];
    for (what, change) in changes {
        let disk = with_file(1, 1);
        let before = disk.changes();
        change(&disk).unwrap();
        assert_eq!(disk.changes(), before + 1, "{what} is one change");
        let disk = with_file(1, 1);
        disk.fail_after(1);
        assert!(matches!(change(&disk), Err(Error::Crashed { .. })), "{what}");
    }
}

#[test]
fn handles_of_a_dead_process_stay_dead() {
    let disk = with_file(1, 1);
    let file = disk.open("a").unwrap();
    crash(&disk, CrashKind::Process);
    assert!(matches!(file.write_at(0, &[b"x"]), Err(Error::Crashed { .. })));
    assert!(matches!(file.read_at(0, &mut [0]), Err(Error::Crashed { .. })));
    assert!(matches!(file.sync(), Err(Error::Crashed { .. })));
    disk.open("a").unwrap().write_at(0, &[b"x"]).unwrap();
}

#[test]
fn a_full_device_refuses_and_a_removal_makes_room() {
    let disk = SimDisk::with_capacity(1, 1000);
    disk.create("a", 800).unwrap();
    assert_eq!(disk.create("b", 300).err().unwrap().reason(), Reason::NoSpace);
    assert_eq!(disk.space().unwrap(), Space { capacity_bytes: 1000, free_bytes: 200 });
    disk.remove("a").unwrap();
    disk.create("b", 300).unwrap();
}

#[test]
fn a_flipped_bit_stays_flipped_whatever_crashes() {
    for (seed, unsynced) in [(1, false), (2, true), (3, true), (4, true), (5, true)] {
        let disk = with_file(seed, 1);
        if unsynced {
            disk.open("a").unwrap().write_at(0, &[&[1; SECTOR_BYTES]]).unwrap();
        }
        disk.flip_bit("a", 5, 1).unwrap();
        assert_eq!(bytes_of(&disk, "a")[5], 3);
        crash(&disk, CrashKind::Power);
        assert_eq!(bytes_of(&disk, "a")[4..7], [1, 3, 1], "seed {seed}");
    }
    assert!(with_file(1, 1).flip_bit("a", 512, 0).is_err());
    assert!(with_file(1, 1).flip_bit("b", 0, 0).is_err());
}

#[test]
fn a_failed_sync_is_never_followed_by_a_successful_one_in_the_same_process() {
    let disk = with_file(1, 1);
    let file = disk.open("a").unwrap();
    disk.fail_syncs(1);
    assert_eq!(file.sync().unwrap_err().reason(), Reason::InputOutput);
    assert!(matches!(file.sync(), Err(Error::SyncLost { .. })));
    assert!(matches!(disk.open("a").unwrap().sync(), Err(Error::SyncLost { .. })), "the file, not the handle");
    crash(&disk, CrashKind::Process);
    disk.open("a").unwrap().sync().unwrap();
}

#[test]
fn the_same_seed_and_calls_leave_the_same_bytes() {
    let run = |seed: u64| {
        let disk = with_file(seed, 16);
        disk.open("a").unwrap().write_at(100, &[&[8; 7000]]).unwrap();
        crash(&disk, CrashKind::Power);
        bytes_of(&disk, "a")
    };
    assert_eq!(run(11), run(11));
    assert!((0..10).any(|seed| run(seed) != run(seed + 10)));
}

#[test]
fn errors_are_those_of_a_real_device() {
    let disk = with_file(1, 1);
    assert_eq!(disk.create("a", 1).err().unwrap().reason(), Reason::Exists);
    assert_eq!(disk.open("b").err().unwrap().reason(), Reason::NotFound);
    assert_eq!(disk.remove("b").unwrap_err().reason(), Reason::NotFound);
    assert_eq!(disk.rename("b", "c").unwrap_err().reason(), Reason::NotFound);
    assert!(matches!(disk.create("a/b", 1).err().unwrap(), Error::BadName { .. }));
    let beyond = disk.open("a").unwrap().write_at(510, &[b"abc"]).unwrap_err();
    assert_eq!(beyond.to_string(), "cannot write 3 bytes at 510 of a: it was created with 512 bytes");
}

#[test]
fn a_worn_sector_fails_every_read_of_it_until_it_is_written() {
    let disk = with_file(1, 4);
    let file = disk.open("a").unwrap();
    disk.wear_out("a", 600..601).unwrap();
    let mut bytes = [0; 512];
    for (at, fails) in [(0, false), (1, true), (511, true), (512, true), (1023, true), (1024, false)] {
        let read = file.read_at(at, &mut bytes);
        assert_eq!(read.is_err(), fails, "at {at}");
        assert_eq!(file.read_direct_at(at, &mut bytes), read);
    }
    assert_eq!(file.read_at(600, &mut bytes).unwrap_err().reason(), Reason::InputOutput);
    file.write_at(700, &[b"x"]).unwrap();
    assert_eq!(file.read_at(600, &mut bytes), Ok(512));
    assert!(disk.wear_out("b", 0..1).is_err());
}

#[test]
fn reads_and_writes_fail_as_often_as_configured() {
    let disk = with_file(1, 4);
    let file = disk.open("a").unwrap();
    disk.fail_reads(1);
    let mut bytes = [0; 4];
    assert_eq!(file.read_at(0, &mut bytes).unwrap_err().reason(), Reason::InputOutput);
    assert_eq!(file.read_at(0, &mut bytes), Ok(4));
    let mut lens = std::collections::BTreeSet::new();
    for _ in 0..40 {
        file.write_at(0, &[&[0; 100]]).unwrap();
        disk.fail_writes(1, 1);
        file.write_at(200, &[b"goes well"]).unwrap();
        assert_eq!(file.write_at(0, &[&[1; 100]]).unwrap_err().reason(), Reason::InputOutput);
        let found = bytes_of(&disk, "a");
        let written = found[..100].iter().take_while(|byte| **byte == 1).count();
        assert!(found[written..100].iter().all(|byte| *byte == 0), "what is written is the beginning");
        lens.insert(written);
    }
    assert!(lens.contains(&0) && lens.contains(&100) && lens.len() > 5, "{lens:?}");
}
