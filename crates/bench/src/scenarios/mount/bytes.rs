//! A large file on a mount, written, read, read again, and read as it was.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Result, ensure};
use rustix::fs::{Advice, fadvise};

use super::beside::ReferenceTree;
use super::{BenchMount, Spent, spend};
use crate::BenchOptions;
use crate::report::BenchReport;
use crate::stopwatch::Stopwatch;
use crate::target::BenchTarget;

/// Bytes of one write(2) and read(2).
const BLOCK: usize = 1 << 20;

pub(crate) fn mount_seq(options: &BenchOptions) -> Result<BenchReport> {
    let bytes = options.scaled(options.mib, 1024) << 20;
    // All of it may wait for the disk, as it may in the page cache below the peer.
    let target = BenchTarget::start_with(options, &format!("dirty_bytes_max = {}\n", bytes * 4))?;
    let client = target.client()?;
    let directory = tempfile::Builder::new().prefix("frieze-bench-mount-").tempdir()?;
    let mounted = BenchMount::of(&target, directory.path())?;
    let beside = ReferenceTree::of(options)?;
    let peer = [
        write(&beside.path().join("file"), bytes, 1)?,
        read(&beside.path().join("file"), bytes, PageCacheState::Knows(false))?,
        read(&beside.path().join("file"), bytes, PageCacheState::Knows(true))?,
    ];
    let file = mounted.path.join("file");
    let mut ours = [0.0; 5];
    let spent: Spent = spend(&target, &client, || {
        ours[0] = write(&file, bytes, 1)?;
        ours[1] = read(&file, bytes, PageCacheState::Knows(false))?;
        Ok(())
    })?;
    ours[2] = read(&file, bytes, PageCacheState::Knows(true))?;
    let then = client.now()?;
    write(&file, bytes, 2)?;
    let then = mounted.path.join(".at").join(then.to_string()).join("file");
    ours[3] = read(&then, bytes, PageCacheState::Knows(false))?;
    ours[4] = read(&then, bytes, PageCacheState::Knows(true))?;
    let gib = bytes as f64 * 2.0 / f64::from(1 << 30);
    let names = ["write", "read", "read_again", "read_of_then", "read_of_then_again"];
    let beside_names = ["beside_write", "beside_read", "beside_read_again"];
    let each = names.into_iter().zip(ours).chain(beside_names.into_iter().zip(peer));
    Ok(BenchReport {
        scenario: "mount-seq",
        value: ours[0],
        unit: "GiB/s written",
        ceiling: peer[0],
        ceiling_name: beside.name,
        cpu_client_s: spent.client_s / gib,
        cpu_server_s: spent.server_s / gib,
        cpu_per: "GiB written or read (the mount's own not counted)",
        server_peak_mib: spent.after.peak_mib,
        more: each.map(|(name, value)| (name, value, "GiB/s")).collect(),
    })
}

fn write(path: &Path, bytes: u64, filler: u8) -> Result<f64> {
    let block = vec![filler; BLOCK];
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    let watch = Stopwatch::start();
    for _ in 0..bytes / BLOCK as u64 {
        file.write_all(&block)?;
    }
    drop(file);
    Ok(rate(bytes, &watch))
}

/// Whether the kernel has the pages of the file.
enum PageCacheState {
    Knows(bool),
}

fn read(path: &Path, bytes: u64, kernel: PageCacheState) -> Result<f64> {
    let mut file = File::open(path)?;
    if let PageCacheState::Knows(false) = kernel {
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    let mut block = vec![0; BLOCK];
    let watch = Stopwatch::start();
    let mut found = 0;
    loop {
        let count = file.read(&mut block)?;
        found += count as u64;
        if count == 0 {
            break;
        }
    }
    let rate = rate(bytes, &watch);
    ensure!(found == bytes, "{found} bytes instead of {bytes}");
    Ok(rate)
}

fn rate(bytes: u64, watch: &Stopwatch) -> f64 {
    bytes as f64 / f64::from(1 << 30) / watch.seconds()
}
