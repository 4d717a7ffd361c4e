//! Loads on the way to stable storage: what waits for it, what does not, and in how large pieces it is written.

use anyhow::{Context, Result};
use frieze_client::File;
use indicatif::ProgressBar;

use super::sequential::{WARM_BYTES, make, per_gib, ready, write_all};
use super::{LARGE, Spent, progress, settle, spend};
use crate::BenchOptions;
use crate::ceiling::{self, GIB, Synced};
use crate::report::BenchReport;
use crate::stopwatch::{Stopwatch, at_intervals};
use crate::target::BenchTarget;

/// Requests in flight of a writer whose every request waits for the disk.
pub(super) const SYNCED_DEPTH: usize = 8;
/// What they are held against.
pub(super) const RAW_DIRECT: &str = "raw direct writes of 1 MiB, 8 in flight";

/// Each request is answered when it is on stable storage; those in flight together share a flush.
pub(super) fn seq_write_synced(options: &BenchOptions) -> Result<BenchReport> {
    let bytes = options.scaled(options.mib, 2048) << 20;
    let target = BenchTarget::start(options)?;
    let client = target.client()?;
    let directory = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    ceiling::warm_memory(&directory, bytes)?;
    let ceiling = ceiling::disk_direct(&directory, bytes, SYNCED_DEPTH as u64)?;
    let flushed = ceiling::disk_direct_flushed(&directory, bytes, SYNCED_DEPTH as u64)?;
    let file = make(&client, "/seq")?;
    let data = ceiling::cold_data();
    ready(&directory, bytes, &data)?;
    let bar = progress("seq-write, synced", bytes);
    let spent = spend(&target, &client, || stream(&file, &data, LARGE, SYNCED_DEPTH, bytes, &bar))?;
    bar.finish_and_clear();
    file.close()?;
    settle(&client)?;
    // A program that does nothing else, in both of the ways that there are.
    let bare = |how| {
        ready(&directory, bytes, &data)?;
        ceiling::stored_synced(&directory, &data, bytes, SYNCED_DEPTH as u64, how)
    };
    let (together, direct) = (bare(Synced::Together)?, bare(Synced::Direct)?);
    let over_bare = bytes as f64 / GIB / spent.seconds / together.max(direct);
    let more = vec![
        ("over_bare", over_bare, "(of the faster bare program: receive, check, store, flush, acknowledge)"),
        ("bare_together_gib_s", together, "GiB/s (through the page cache, flushed together)"),
        ("bare_direct_gib_s", direct, "GiB/s (past the page cache, flushed each)"),
        ("over_flushed", bytes as f64 / GIB / spent.seconds / flushed, "(of the same raw writes, each flushed)"),
        ("raw_flushed_gib_s", flushed, "GiB/s"),
    ];
    Ok(per_gib("seq-write", bytes, &spent, ceiling, RAW_DIRECT, more))
}

/// Writes `bytes` of `data`, over and over, in requests of `len`, so many in flight.
fn stream(file: &File, data: &[u8], len: usize, depth: usize, bytes: u64, bar: &ProgressBar) -> Result<()> {
    let mut at = 0;
    file.write_stream::<frieze_client::Error>(0, depth, |buffer| {
        let from = at as usize % data.len();
        buffer.extend_from_slice(&data[from..from + len]);
        at += len as u64;
        bar.inc(len as u64);
        Ok(at < bytes)
    })?;
    Ok(())
}

/// Of the rate that the server takes at most, what it is asked for while its latency is looked at.
const SHARE_OF_TOP: f64 = 0.7;

/// Writes at 0.7 of the top rate, with the data on disk and with the data in memory: what persistence costs a client,
/// and what it costs the server.
pub(crate) fn persist(options: &BenchOptions) -> Result<BenchReport> {
    let bytes = options.scaled(options.mib, 3072) << 20;
    let config = format!("dirty_bytes_max = {}\n", 3 * bytes);
    let memory = BenchOptions { dir: Some("/dev/shm".into()), server: None, ..options.clone() };
    let disk = BenchOptions { server: None, ..options.clone() };
    let mut interval = 0.0;
    let mut runs = Vec::new();
    for place in [&memory, &disk] {
        let target = BenchTarget::start_with(place, &config)?;
        let client = target.client()?;
        let file = make(&client, "/paced")?;
        let data = ceiling::cold_data();
        ceiling::warm_memory(place.dir.as_deref().unwrap_or(&std::env::temp_dir()), bytes)?;
        write_all(&file, &data, WARM_BYTES, "warming up")?;
        settle(&client)?;
        if runs.is_empty() {
            let top = paced(&file, &data, bytes / 4, 0.0)?;
            // The median: making the next segment ahead of need takes long in memory, and belongs to no write.
            interval = top.p50_ms / 1e3 / SHARE_OF_TOP;
            settle(&client)?;
        }
        let flushed = target.thread_cpu_s("frieze-flush");
        let mut run = None;
        let spent = spend(&target, &client, || {
            run = Some(paced(&file, &data, bytes, interval)?);
            Ok(())
        })?;
        settle(&client)?;
        let flush_s = target.thread_cpu_s("frieze-flush") - flushed;
        runs.push((run.context("it was not run")?, spent, flush_s));
    }
    // What the same rate makes clients of a bare program wait, in the same two places.
    let (mut bare, data) = (Vec::new(), vec![7u8; LARGE]);
    for place in [&memory, &disk] {
        let directory = place.dir.clone().unwrap_or_else(std::env::temp_dir);
        bare.push(ceiling::paced(&directory, &data, bytes / LARGE as u64, interval)?);
    }
    let gib = bytes as f64 / GIB;
    let [(without, ..), (with, spent, flush_s)] = &runs[..] else { anyhow::bail!("two runs") };
    let more = vec![
        ("p99_ms", with.p99_ms, "ms"),
        ("p99_without_ms", without.p99_ms, "ms"),
        ("p99_bare_ms", at(&bare[1], 0.99), "ms (a bare program that stores on disk and flushes)"),
        ("p99_bare_without_ms", at(&bare[0], 0.99), "ms (it stores in memory)"),
        ("p50_ms", with.p50_ms, "ms"),
        ("p50_without_ms", without.p50_ms, "ms"),
        ("flush_cpu_s_per_gib", flush_s / gib, "s (the thread that flushes)"),
    ];
    let without = gib / without.seconds;
    let with_persistence = Spent { seconds: with.seconds, ..*spent };
    Ok(per_gib("persist", bytes, &with_persistence, without, "the same rate asked for, data in memory", more))
}

struct Paced {
    seconds: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// Writes of 1 MiB one after the other, each begun `interval` seconds after the one before, or when that is done.
fn paced(file: &File, data: &[u8], bytes: u64, interval: f64) -> Result<Paced> {
    let bar = progress("paced", bytes);
    let watch = Stopwatch::start();
    let times = at_intervals(bytes / LARGE as u64, interval, |index| {
        let from = index as usize * LARGE % data.len();
        file.write_at(index * LARGE as u64, &data[from..from + LARGE])?;
        bar.inc(LARGE as u64);
        Ok(())
    })?;
    let seconds = watch.seconds();
    bar.finish_and_clear();
    Ok(Paced { seconds, p50_ms: at(&times, 0.5), p99_ms: at(&times, 0.99) })
}

/// What a share of the times does not exceed; they are in order, and there is one at least.
fn at(times: &[f64], share: f64) -> f64 {
    times[((times.len() - 1) as f64 * share) as usize]
}

/// Bytes of the writes that flushes are made of.
const FLUSHED_WRITE_BYTES: usize = 128 << 10;
/// Of them so many are in flight.
const FLUSHED_DEPTH: usize = 16;

/// How large the flushes are that writes of 128 KiB end in.
pub(crate) fn flush(options: &BenchOptions) -> Result<BenchReport> {
    let bytes = options.scaled(options.mib, 4096) << 20;
    let target = BenchTarget::start(options)?;
    let client = target.client()?;
    let file = make(&client, "/flushed")?;
    let directory = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    ceiling::warm_memory(&directory, bytes.min(2 << 30))?;
    let device = BlockDevice::of(&target.data()?);
    let before = device.as_ref().and_then(BlockDevice::written);
    let bar = progress("flush", bytes);
    let data = ceiling::cold_data();
    let spent = spend(&target, &client, || {
        stream(&file, &data, FLUSHED_WRITE_BYTES, FLUSHED_DEPTH, bytes, &bar)?;
        settle(&client).map(drop)
    })?;
    bar.finish_and_clear();
    let after = device.as_ref().and_then(BlockDevice::written);
    let per_request = match (before, after) {
        (Some((requests, sectors)), Some((requests_after, sectors_after))) if requests_after > requests => {
            (sectors_after - sectors) as f64 / 2048.0 / (requests_after - requests) as f64
        }
        _ => 0.0,
    };
    let status = client.status()?;
    let mut report =
        per_gib("flush", bytes, &spent, 2.0, "2 MiB, below which an SSD is not filled (FFFS §5.2)", Vec::new());
    report.more = vec![
        ("gib_s", report.value, "GiB/s"),
        ("flushes", status.flushes as f64, "flushes since the server started"),
        ("mib_per_device_request", per_request, "MiB a request that the device saw, mean, others' included"),
    ];
    report.value = status.flush_bytes_median as f64 / f64::from(1 << 20);
    report.unit = "MiB";
    file.close()?;
    Ok(report)
}

/// The block device that a directory is on, as the kernel counts its requests.
struct BlockDevice(std::path::PathBuf);

impl BlockDevice {
    fn of(directory: &std::path::Path) -> Option<BlockDevice> {
        let device = rustix::fs::stat(directory).ok()?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let path = std::path::PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        path.exists().then_some(BlockDevice(path))
    }

    /// Requests and sectors written so far.
    fn written(&self) -> Option<(u64, u64)> {
        let stat = std::fs::read_to_string(&self.0).ok()?;
        let mut fields = stat.split_whitespace().skip(4);
        let requests = fields.next()?.parse().ok()?;
        Some((requests, fields.nth(1)?.parse().ok()?))
    }
}
