//! The real and the simulated device give the same results for every operation, as long as nothing crashes.

use std::sync::Arc;

use frieze_base::{Reason, Rng};
use frieze_disk::{Disk, DiskFile, FileDisk, FileDiskSettings, Result, SimDisk};

const CAPACITY_BYTES: u64 = 10_000;

/// One random operation, drawn the same for both devices, and its result.
fn step(disk: &dyn Disk, open: &mut Vec<Arc<dyn DiskFile>>, rng: &mut Rng) -> String {
    let names = ["a", "b", "c", "..", "d"];
    let (name, other) = (*rng.choose(&names), *rng.choose(&names));
    let (offset, len) = (rng.below(6_000), rng.below(3_000) as usize);
    let byte = rng.next() as u8;
    let which = rng.next() as usize;
    let kind = rng.below(10);
    let shown = |result: Result<String>| result.unwrap_or_else(|error| format!("{:?}", error.reason()));
    if open.len() > 8 {
        open.clear();
    }
    let handle = |open: &[Arc<dyn DiskFile>]| open.get(which % open.len().max(1)).cloned();
    match kind {
        0 | 1 => {
            let made = disk.create(name, offset + 1).inspect(|file| open.push(Arc::clone(file)));
            shown(made.and_then(|file| Ok(format!("{}", file.len()?))))
        }
        2 => {
            let opened = disk.open(name).inspect(|file| open.push(Arc::clone(file)));
            shown(opened.and_then(|file| Ok(format!("{}", file.len()?))))
        }
        3 => shown(disk.rename(name, other).map(|()| "renamed".to_owned())),
        4 => shown(disk.remove(name).map(|()| "removed".to_owned())),
        5 => shown(disk.list().map(|names| names.join(" "))),
        6 => shown(disk.space().map(|space| format!("{} of {}", space.free_bytes, space.capacity_bytes))),
        // One in eight, because the real device takes milliseconds for it.
        7 if byte < 32 => handle(open).map_or_else(String::new, |file| {
            shown(file.sync().and_then(|()| disk.sync_dir()).map(|()| "synced".to_owned()))
        }),
        7 | 8 => handle(open).map_or_else(String::new, |file| {
            let bytes = vec![byte; len];
            let (first, second) = bytes.split_at(len / 3);
            shown(file.write_at(offset, &[first, second]).map(|()| "written".to_owned()))
        }),
        _ => handle(open).map_or_else(String::new, |file| {
            let mut bytes = vec![0; len];
            shown(file.read_at(offset, &mut bytes).map(|read| format!("{:?}", &bytes[..read])))
        }),
    }
}

#[test]
fn the_simulated_device_answers_like_the_real_one() {
    let mut reasons = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let settings = FileDiskSettings { capacity_bytes_max: Some(CAPACITY_BYTES) };
        let real = FileDisk::open(dir.path(), settings).unwrap();
        let simulated = SimDisk::with_capacity(seed, CAPACITY_BYTES);
        let (mut real_open, mut simulated_open) = (Vec::new(), Vec::new());
        let (mut real_rng, mut simulated_rng) = (Rng::new(seed), Rng::new(seed));
        for number in 0..300 {
            let expected = step(&real, &mut real_open, &mut real_rng);
            let found = step(&simulated, &mut simulated_open, &mut simulated_rng);
            assert_eq!(found, expected, "seed {seed}, operation {number}");
            reasons.insert(expected);
        }
    }
    for reason in [Reason::Exists, Reason::NotFound, Reason::NoSpace, Reason::InvalidArgument] {
        assert!(reasons.contains(&format!("{reason:?}")), "{reason:?} was never answered");
    }
}
