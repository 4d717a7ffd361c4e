//! Loads that make history and read it.

use anyhow::Result;
use frieze_base::{ByteRange, Rng};
use frieze_client::{CreateMode, Hlc, OpenFlags, Target as Path};

use super::{CEILING_BYTES, LARGE, SMALL, progress, settle, spend};
use crate::ceiling::{self, FIRST, GIB, PLAIN, SECOND, Scattered};
use crate::report::BenchReport;
use crate::target::BenchTarget;
use crate::{BenchOptions, stopwatch::Stopwatch};

/// The chunk of FFFS §7.4.
const CHUNK_BYTES: u64 = 64 << 20;
/// Its writes.
const WRITE_BYTES: usize = 32 << 10;
/// One state in so many is read back.
const WRITES_PER_STATE: u64 = 200;

/// Random 32 KiB writes into one chunk, then its states: each read twice, the first time against the second.
pub(crate) fn snapshots(options: &BenchOptions) -> Result<BenchReport> {
    let writes = options.scaled(options.ops, 100_000);
    let states = (writes / WRITES_PER_STATE).max(2);
    let target = BenchTarget::start(options)?;
    let client = target.client()?;
    let file = client.fs().create(&Path::path("/chunk"), 0o644, CreateMode::OpenExisting)?;
    let mut rng = Rng::new(7);
    let mut data = vec![0u8; WRITE_BYTES];
    rng.fill(&mut data);
    let bar = progress("writing", writes);
    let mut base = 0;
    file.write_stream::<frieze_client::Error>(0, 4, |buffer| {
        buffer.resize(LARGE, 1);
        base += LARGE as u64;
        Ok(base < CHUNK_BYTES)
    })?;
    let mut stamps: Vec<Hlc> = Vec::new();
    for _ in 0..writes {
        let slot = rng.below(CHUNK_BYTES / WRITE_BYTES as u64);
        stamps.push(file.write_at(slot * WRITE_BYTES as u64, &data)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    file.close()?;
    // A chunk that was written once, front to back.
    let plain = client.fs().create(&Path::path("/plain"), 0o644, CreateMode::OpenExisting)?;
    let mut written = 0;
    plain.write_stream::<frieze_client::Error>(0, 4, |buffer| {
        buffer.resize(LARGE, 2);
        written += LARGE as u64;
        Ok(written < CHUNK_BYTES)
    })?;
    settle(&client)?;
    let ceiling = ceiling::loopback(LARGE, options.scaled(None, CEILING_BYTES))?;
    let bare = target.scattered(CHUNK_BYTES, WRITE_BYTES, writes, states)?;
    let mut times = Scattered { bytes: CHUNK_BYTES, ..Scattered::default() };
    let bar = progress("reading", states);
    let spent = spend(&target, &client, || {
        for i in 0..states {
            let at = stamps[(i * (writes - 1) / (states - 1).max(1)) as usize];
            let mut seconds = [0.0; 3];
            for (seconds, plain) in seconds.iter_mut().zip([None, None, Some(&plain)]) {
                let past = client.fs().at(at).open(&Path::path("/chunk"), OpenFlags { read: true, write: false })?;
                let watch = Stopwatch::start();
                let read = plain.unwrap_or(&past).read_stream::<frieze_client::Error>(
                    ByteRange::new(0, CHUNK_BYTES),
                    4,
                    |_| Ok(()),
                )?;
                *seconds = watch.seconds();
                anyhow::ensure!(read == CHUNK_BYTES, "state {at} has {read} bytes");
            }
            times.seconds.push(seconds);
            bar.inc(1);
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    let gib = 3.0 * states as f64 * CHUNK_BYTES as f64 / GIB;
    let (first, (slowest, fastest)) = (times.speed(FIRST), times.extremes());
    let (bare_slowest, bare_fastest) = bare.extremes();
    Ok(BenchReport {
        scenario: "snapshots",
        value: first,
        unit: "GiB/s",
        ceiling,
        ceiling_name: "loopback, 1 MiB messages",
        cpu_client_s: spent.client_s / gib,
        cpu_server_s: spent.server_s / gib,
        cpu_per: "GiB",
        server_peak_mib: spent.after.peak_mib,
        more: vec![
            ("first_over_second", times.beside(FIRST, SECOND), "(first read of a state over the second)"),
            ("slowest_over_fastest", slowest / fastest, "(states, without the slowest and fastest of a hundred)"),
            ("over_plain", times.beside(FIRST, PLAIN), "(a state over a chunk without history)"),
            (
                "over_bare",
                first / bare.speed(FIRST),
                "(of a bare program: pread and send, or sendfile; whoever receives computes a checksum)",
            ),
            ("bare_first_over_second", bare.beside(FIRST, SECOND), ""),
            ("bare_slowest_over_fastest", bare_slowest / bare_fastest, ""),
            ("bare_over_plain", bare.beside(FIRST, PLAIN), ""),
            ("bare_gib_s", bare.speed(FIRST), "GiB/s"),
            ("plain_gib_s", times.speed(PLAIN), "GiB/s"),
            ("slowest_state_gib_s", slowest, "GiB/s"),
            ("fastest_state_gib_s", fastest, "GiB/s"),
        ],
    })
}

/// Sizes of the random writes of `memory`, and what each is called there.
const MEMORY_SIZES: [(usize, &str); 8] = [
    (512, "x_512_b"),
    (1 << 10, "x_1_kib"),
    (2 << 10, "x_2_kib"),
    (4 << 10, "x_4_kib"),
    (8 << 10, "x_8_kib"),
    (16 << 10, "x_16_kib"),
    (32 << 10, "x_32_kib"),
    (64 << 10, "x_64_kib"),
];
/// Writes in flight, so that many small ones take no time.
const MEMORY_DEPTH: usize = 32;

/// Memory for random writes of 512 B to 64 KiB and for sequential ones. Records lie in the page cache and on disk, so
/// they are counted beside the server's own memory: everything that a byte written costs while nothing is evicted. The
/// figure is the worst from 4 KiB up.
pub(crate) fn memory(options: &BenchOptions) -> Result<BenchReport> {
    let bytes = options.scaled(options.mib, 256) << 20;
    let (mut more, mut worst) = (Vec::new(), 0.0f64);
    let (mut client_s, mut server_s, mut peak_mib) = (0.0, 0.0, 0.0f64);
    for (size, name) in MEMORY_SIZES.into_iter().chain([(LARGE, "x_sequential")]) {
        // Each begins with a server that has used no memory yet.
        let target = BenchTarget::start(options)?;
        let client = target.client()?;
        let file = client.fs().create(&Path::path("/memory"), 0o644, CreateMode::OpenExisting)?;
        file.write_at(CHUNK_BYTES - 1, &[1])?;
        let mut rng = Rng::new(3);
        let data = vec![9u8; size];
        let bar = progress(name, bytes);
        let spent = spend(&target, &client, || {
            let mut written = 0;
            file.write_many::<frieze_client::Error>(if size == LARGE { 4 } else { MEMORY_DEPTH }, |buffer| {
                buffer.extend_from_slice(&data);
                let at = if size == LARGE { written } else { rng.below(CHUNK_BYTES / size as u64) * size as u64 };
                written += size as u64;
                bar.inc(size as u64);
                Ok((written <= bytes).then_some(at))
            })?;
            Ok(())
        })?;
        bar.finish_and_clear();
        file.close()?;
        let grown = (spent.after.resident_bytes - spent.before.resident_bytes).max(0.0);
        let logged = spent.after.log_bytes - spent.before.log_bytes;
        let ratio = (grown + logged) / bytes as f64;
        more.push((name, ratio, "x"));
        if size == SMALL {
            let indexed = spent.after.index_bytes - spent.before.index_bytes;
            more.push(("index_bytes_per_4_kib_write", indexed / (bytes / size as u64) as f64, "bytes"));
        }
        if size >= SMALL {
            worst = worst.max(ratio);
        }
        client_s += spent.client_s;
        server_s += spent.server_s;
        peak_mib = peak_mib.max(spent.after.peak_mib);
    }
    let gib = 9.0 * bytes as f64 / GIB;
    Ok(BenchReport {
        scenario: "memory",
        value: worst,
        unit: "x",
        ceiling: 1.0,
        ceiling_name: "the bytes themselves",
        cpu_client_s: client_s / gib,
        cpu_server_s: server_s / gib,
        cpu_per: "GiB",
        server_peak_mib: peak_mib,
        more,
    })
}
