//! History that is larger than memory: half a million writes into one chunk, then reads of its old states from the
//! disk, and what is in use beside a scan of everything.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use frieze_base::Rng;
use frieze_client::{Client, CreateMode, File, Hlc, OpenFlags, Target as Path};

use super::{progress, settle};
use crate::ceiling;
use crate::report::BenchReport;
use crate::target::BenchTarget;
use crate::{BenchOptions, stopwatch::Stopwatch};

/// The chunk and the writes of FFFS §7.4, 25 times as many of them.
const CHUNK_BYTES: u64 = 64 << 20;
const WRITE_BYTES: u64 = 32 << 10;
const WRITES: u64 = 500_000;
const SLOTS: u64 = CHUNK_BYTES / WRITE_BYTES;
/// What the server may use of memory, copies of its files that the kernel keeps included.
const MEMORY_MIB: f64 = 512.0;
const READS: u64 = 400;
const READ_BYTES: usize = 64 << 10;
/// The hot set: 12.5 MiB of records, in 200 places of as many states.
const HOT: usize = 200;
/// Reads that show what the disk can give a scan: half a gigabyte.
const SCAN_READS: usize = 16_384;
const SCAN_STEP: usize = 1 << 20;

/// The memory of the server, looked at now and then.
struct Watch<'a> {
    target: &'a BenchTarget,
    client: &'a Client,
    peak_bytes: f64,
    cached_peak_bytes: f64,
}

impl Watch<'_> {
    /// The process and what the kernel keeps of its files.
    fn look(&mut self) -> Result<()> {
        let cached = self.target.cached_bytes()?;
        let resident = self.target.usage(self.client)?.resident_bytes;
        self.cached_peak_bytes = self.cached_peak_bytes.max(cached);
        self.peak_bytes = self.peak_bytes.max(cached + resident);
        Ok(())
    }
}

/// Reads of one place of one old state.
struct HotPlace {
    file: File,
    at: u64,
}

/// Times of reads, and which part of them was in memory.
struct Round {
    p50_ms: f64,
    hit_percent: f64,
}

/// Reads of 64 KiB at random instants, nothing of the log in the page cache, beside two random reads of the disk; then
/// what is read again and again, before, while and after all of history is read once.
pub(crate) fn beyond(options: &BenchOptions) -> Result<BenchReport> {
    anyhow::ensure!(options.server.is_none(), "beyond empties the page cache of its server's directory: not --server");
    let writes = options.scaled(options.ops, WRITES);
    let target = BenchTarget::start_with(options, &format!("memory_bytes_max = {}\n", (MEMORY_MIB as u64) << 20))?;
    let client = target.client()?;
    let mut watch = Watch { target: &target, client: &client, peak_bytes: 0.0, cached_peak_bytes: 0.0 };
    let mut rng = Rng::new(7);
    let stamps = write(&client, writes, &mut rng, &mut watch)?;
    let before = target.usage(&client)?;
    let one_ms = target.random_read_ms(1 << 30, WRITE_BYTES as usize, READS)?;
    let many = target.random_reads(1 << 30, WRITE_BYTES as usize, SCAN_READS)?;
    target.forget_cached()?;
    let mut bare = ceiling::FetchCeiling::start(&target.data()?)?;
    let (mut times, mut bare_times) = (Vec::new(), Vec::new());
    let bar = progress("reading", READS);
    let mut buffer = vec![0; READ_BYTES];
    for i in 0..READS {
        let place = place(&client, &stamps, &mut rng)?;
        times.push(read(&place, &mut buffer)?);
        bare_times.push(bare.read(&mut rng)?);
        if i % 50 == 0 {
            watch.look()?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    bare.end()?;
    times.sort_by(f64::total_cmp);
    bare_times.sort_by(f64::total_cmp);
    let (p50_ms, bare_p50_ms) = (times[times.len() / 2], bare_times[bare_times.len() / 2]);
    let after = target.usage(&client)?;

    let hot = (0..HOT).map(|_| place(&client, &stamps, &mut rng)).collect::<Result<Vec<_>>>()?;
    let cold = round(&client, &hot)?;
    round(&client, &hot)?;
    let in_use = round(&client, &hot)?;
    let done = AtomicBool::new(false);
    let (mut beside, scan_s, scanned) = std::thread::scope(|scope| -> Result<_> {
        let scan = scope.spawn(|| {
            let scanned = scan(&target, &stamps, writes);
            done.store(true, Ordering::Release);
            scanned
        });
        let mut beside = Vec::new();
        let clock = Stopwatch::start();
        while !done.load(Ordering::Acquire) {
            beside.push(round(&client, &hot)?);
            watch.look()?;
        }
        let scan_s = clock.seconds();
        let scanned = scan.join().ok().context("the scan panicked")??;
        Ok((beside, scan_s, scanned))
    })?;
    let afterwards = round(&client, &hot)?;
    beside.sort_by(|a, b| a.hit_percent.total_cmp(&b.hit_percent));
    let during = beside.first().context("the scan was over before anything else was read")?;
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    Ok(BenchReport {
        scenario: "beyond",
        value: p50_ms,
        unit: "ms",
        ceiling: 2.0 * one_ms,
        ceiling_name: "two random reads of 32 KiB from the disk",
        cpu_client_s: 0.0,
        cpu_server_s: after.cpu_s - before.cpu_s,
        cpu_per: "400 reads",
        server_peak_mib: after.peak_mib,
        more: vec![
            ("log_gib", after.log_bytes / ceiling::GIB, "GiB"),
            ("read_p99_ms", times[times.len() * 99 / 100], "ms"),
            ("bare_p50_ms", bare_p50_ms, "ms (a bare program that is asked for two such pieces of the same files)"),
            ("bare_p99_ms", bare_times[bare_times.len() * 99 / 100], "ms"),
            ("over_bare", p50_ms / bare_p50_ms, "(of the bare program's p50)"),
            ("bare_over_two_reads", bare_p50_ms / (2.0 * one_ms), "(of two random reads)"),
            ("index_mib", mib(after.index_bytes), "MiB"),
            ("resident_mib", mib(after.resident_bytes), "MiB"),
            ("files_cached_peak_mib", mib(watch.cached_peak_bytes), "MiB"),
            ("peak_over_budget", mib(watch.peak_bytes) / MEMORY_MIB, "(of 512 MiB, files cached included)"),
            ("hot_at_first_hit", cold.hit_percent, "%"),
            ("hot_at_first_p50_ms", cold.p50_ms, "ms"),
            ("hot_in_use_hit", in_use.hit_percent, "%"),
            ("hot_in_use_p50_ms", in_use.p50_ms, "ms"),
            ("hot_during_scan_worst_hit", during.hit_percent, "%"),
            ("hot_during_scan_p50_ms", during.p50_ms, "ms"),
            ("hot_after_scan_hit", afterwards.hit_percent, "%"),
            ("hot_after_scan_p50_ms", afterwards.p50_ms, "ms"),
            ("scan_gib", scanned as f64 / ceiling::GIB, "GiB"),
            ("scan_gib_s", scanned as f64 / ceiling::GIB / scan_s, "GiB/s"),
            ("disk_random_gib_s", many, "GiB/s (random reads of 32 KiB, 64 in flight)"),
        ],
    })
}

/// Writes the history; returns some of its instants, at each of which the chunk is full.
fn write(client: &Client, writes: u64, rng: &mut Rng, watch: &mut Watch<'_>) -> Result<Vec<Hlc>> {
    let file = client.fs().create(&Path::path("/chunk"), 0o644, CreateMode::OpenExisting)?;
    let mut data = vec![0u8; WRITE_BYTES as usize];
    let mut stamps: Vec<Hlc> = Vec::new();
    let bar = progress("writing", writes);
    for i in 0..writes {
        // Every slot once first: each state holds data everywhere.
        let slot = if i < SLOTS { i } else { rng.below(SLOTS) };
        data[..8].copy_from_slice(&i.to_le_bytes());
        let at = file.write_at(slot * WRITE_BYTES, &data)?;
        if i >= SLOTS && i % 50 == 0 {
            stamps.push(at);
        }
        if i % 5000 == 0 {
            watch.look()?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    file.close()?;
    settle(client)?;
    anyhow::ensure!(!stamps.is_empty(), "{writes} writes do not fill the chunk: at least {} are needed", SLOTS + 50);
    Ok(stamps)
}

fn open(client: &Client, at: Hlc) -> Result<File> {
    Ok(client.fs().at(at).open(&Path::path("/chunk"), OpenFlags { read: true, write: false })?)
}

/// A place of a state, drawn.
fn place(client: &Client, stamps: &[Hlc], rng: &mut Rng) -> Result<HotPlace> {
    let file = open(client, *rng.choose(stamps))?;
    Ok(HotPlace { file, at: rng.below(SLOTS - 1) * WRITE_BYTES })
}

/// Reads it; returns the time that took, in milliseconds.
fn read(place: &HotPlace, buffer: &mut [u8]) -> Result<f64> {
    let one = Stopwatch::start();
    let read = place.file.read_at(place.at, buffer)?;
    let ms = one.seconds() * 1e3;
    anyhow::ensure!(read == buffer.len(), "an old state has {read} bytes at {}", place.at);
    Ok(ms)
}

/// Reads each of these once.
fn round(client: &Client, hot: &[HotPlace]) -> Result<Round> {
    let wanted = || -> Result<(u64, u64)> {
        let memory = client.status()?.memory.context("the server does not tell what is in memory")?;
        Ok((memory.wanted_hit_bytes, memory.wanted_missed_bytes))
    };
    let (hit, missed) = wanted()?;
    let mut buffer = vec![0; READ_BYTES];
    let mut times = hot.iter().map(|place| read(place, &mut buffer)).collect::<Result<Vec<_>>>()?;
    times.sort_by(f64::total_cmp);
    let (hit, missed) = (wanted()?.0 - hit, wanted()?.1 - missed);
    Ok(Round { p50_ms: times[times.len() / 2], hit_percent: hit as f64 * 100.0 / (hit + missed).max(1) as f64 })
}

/// Reads whole states from front to back, one after the other over all of history, until as many bytes were read as
/// were written. Returns how many.
fn scan(target: &BenchTarget, stamps: &[Hlc], writes: u64) -> Result<u64> {
    let client = target.client()?;
    let states = (writes * WRITE_BYTES).div_ceil(CHUNK_BYTES).max(1);
    let mut buffer = vec![0; SCAN_STEP];
    let mut bytes = 0;
    for state in 0..states {
        let file = open(&client, stamps[(state * stamps.len() as u64 / states) as usize])?;
        for at in (0..CHUNK_BYTES).step_by(SCAN_STEP) {
            bytes += file.read_at(at, &mut buffer)? as u64;
        }
    }
    Ok(bytes)
}
