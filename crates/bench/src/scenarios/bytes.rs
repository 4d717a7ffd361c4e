//! Loads that move bytes: sequential, random, one at a time.

use anyhow::{Context, Result};
use frieze_base::{ByteRange, Rng};
use frieze_client::{File, OpenFlags, Target as Path};

use super::persistence::{RAW_DIRECT, SYNCED_DEPTH, seq_write_synced};
use super::sequential::{WARM_BYTES, make, per_gib, ready, write_all};
use super::{CEILING_BYTES, CEILING_ROUNDS, LARGE, SMALL, Spent, on_clients, progress, settle, spend};
use crate::ceiling::{self, GIB, KeptBytes};
use crate::report::BenchReport;
use crate::target::BenchTarget;
use crate::{BenchOptions, stopwatch::Stopwatch};

/// Requests in flight of a sequential load.
const DEPTH: usize = 4;

/// GiB/s of a caller that hands over 4 MiB at a time and waits for each.
fn write_in_calls(file: &File, data: &[u8], bytes: u64) -> Result<f64> {
    let watch = Stopwatch::start();
    for (number, piece) in (0..bytes / CALL_BYTES).zip(data.chunks_exact(CALL_BYTES as usize).cycle()) {
        file.write_at(number * CALL_BYTES, piece)?;
    }
    Ok(bytes as f64 / GIB / watch.seconds())
}

/// GiB/s of a server that keeps no more records in memory than may wait for the disk, and has as many: it has been
/// written to for as long as its memory lasts, and what comes goes into pages that were in use a moment ago.
fn in_used_memory(options: &BenchOptions, dirty: u64, data: &[u8], bytes: u64) -> Result<f64> {
    let config = format!("dirty_bytes_max = {dirty}\nyoung_bytes_max = {dirty}\n");
    let target = BenchTarget::start_with(options, &config)?;
    let client = target.client()?;
    let file = make(&client, "/seq")?;
    write_all(&file, data, dirty, "filling memory")?;
    settle(&client)?;
    let watch = Stopwatch::start();
    write_all(&file, data, bytes, "seq-write in used memory")?;
    Ok(bytes as f64 / GIB / watch.seconds())
}

/// What a caller of the second kind hands over at a time.
const CALL_BYTES: u64 = 4 << 20;

pub(crate) fn seq_write(options: &BenchOptions) -> Result<BenchReport> {
    if options.sync {
        return seq_write_synced(options);
    }
    let bytes = options.scaled(options.mib, 4096) << 20;
    // What is measured is the way into the server; the disk behind it has its own figures below.
    let dirty = options.dirty_mib.map_or(bytes + WARM_BYTES, |mib| mib << 20);
    let target = BenchTarget::start_with(options, &format!("dirty_bytes_max = {dirty}\n"))?;
    let client = target.client()?;
    // The first segment and connection are made outside of the measurement.
    let warm = make(&client, "/warm")?;
    let data = ceiling::cold_data();
    write_all(&warm, &data, WARM_BYTES, "warming up")?;
    settle(&client)?;
    let file = make(&client, "/seq")?;
    let directory = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let loopback = ceiling::loopback(LARGE, options.scaled(None, CEILING_BYTES))?;
    // With little memory for what is not on disk yet, a stream comes to the disk's rate.
    let (ceiling, ceiling_name) = match options.dirty_mib {
        None => (loopback, "loopback, 1 MiB messages"),
        Some(_) => (ceiling::disk_direct(&directory, bytes, SYNCED_DEPTH as u64)?, RAW_DIRECT),
    };
    let disk_synced = ceiling::disk(&directory, 256 << 20, true)?;
    let disk = ceiling::disk(&directory, 1 << 30, false)?;
    ready(&directory, bytes, &data)?;
    let spent = spend(&target, &client, || write_all(&file, &data, bytes, "seq-write"))?;
    let flush = Stopwatch::start();
    settle(&client)?;
    let flush_s = flush.seconds();
    file.close()?;
    let called = make(&client, "/calls")?;
    ready(&directory, bytes, &data)?;
    let in_calls = write_in_calls(&called, &data, bytes)?;
    settle(&client)?;
    called.close()?;
    ready(&directory, bytes, &data)?;
    let watch = Stopwatch::start();
    let bare = ceiling::stored(&directory, &data, bytes, None, KeptBytes::All)?;
    // Both of its ends are threads of this process, and nothing else of it does anything.
    let bare_cpu_s = watch.cpu_seconds() / (bytes as f64 / GIB);
    let cpu_s = (spent.client_s + spent.server_s) / (bytes as f64 / GIB);
    ready(&directory, bytes, &data)?;
    let bare_in_calls = ceiling::stored(&directory, &data, bytes, Some(CALL_BYTES), KeptBytes::All)?;
    let mut more = vec![
        ("in_4_mib_writes", in_calls / ceiling, "(of the ceiling: calls of 4 MiB, one after the other)"),
        ("in_4_mib_writes_over_bare", in_calls / bare_in_calls, "(of a bare program that waits for each 4 MiB)"),
        ("over_bare", bytes as f64 / GIB / spent.seconds / bare, "(of a bare program: receive, check, store)"),
        ("bare_gib_s", bare, "GiB/s"),
        ("bare_cpu_s_per_gib", bare_cpu_s, "s (both ends of the bare program, its flushing included)"),
        ("cpu_over_bare", cpu_s / bare_cpu_s, "(client and server over it)"),
        ("raw_disk_gib_s", disk, "GiB/s"),
        ("raw_disk_synced_gib_s", disk_synced, "GiB/s"),
        ("memcpy_gib_s", ceiling::memcpy(), "GiB/s"),
        ("fsync_after_s", flush_s, "s"),
    ];
    if options.dirty_mib.is_some() {
        // Its memory and its disk are for the one that comes now.
        drop((client, target));
        let used = in_used_memory(options, dirty, &data, bytes)?;
        let bare = ceiling::stored(&directory, &data, bytes, None, KeptBytes::Newest(dirty))?;
        more.extend([
            (
                "in_used_memory",
                used / ceiling,
                "(of the ceiling: a server that writes where it lets go of what is old)",
            ),
            ("in_used_memory_over_bare", used / bare, "(of a bare program that does so)"),
            ("bare_in_used_memory_gib_s", bare, "GiB/s"),
        ]);
    }
    Ok(per_gib("seq-write", bytes, &spent, ceiling, ceiling_name, more))
}

pub(crate) fn seq_read(options: &BenchOptions) -> Result<BenchReport> {
    let bytes = options.scaled(options.mib, 4096) << 20;
    let target = BenchTarget::start(options)?;
    let client = target.client()?;
    let file = make(&client, "/seq")?;
    write_all(&file, &ceiling::cold_data(), bytes, "preparing")?;
    settle(&client)?;
    let ceiling = ceiling::loopback(LARGE, options.scaled(None, CEILING_BYTES))?;
    let read_all = |what| -> Result<()> {
        let bar = progress(what, bytes);
        let read = file.read_stream::<frieze_client::Error>(ByteRange::new(0, bytes), DEPTH, |piece| {
            bar.inc(piece.len() as u64);
            Ok(())
        })?;
        bar.finish_and_clear();
        anyhow::ensure!(read == bytes, "read {read} of {bytes} bytes");
        Ok(())
    };
    // Hot is what is read again: memory that a virtual machine has not touched for seconds comes at a third of the
    // rate.
    read_all("warming up")?;
    let spent = spend(&target, &client, || read_all("seq-read"))?;
    let directory = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let bare = ceiling::served(&directory, &ceiling::cold_data(), bytes)?;
    let more = vec![
        ("over_bare", bytes as f64 / GIB / spent.seconds / bare, "(of a bare program: read, check, send, check)"),
        ("bare_gib_s", bare, "GiB/s"),
    ];
    Ok(per_gib("seq-read", bytes, &spent, ceiling, "loopback, 1 MiB messages", more))
}

/// Requests in flight of all random writers together.
const IN_FLIGHT: usize = 32;
/// Requests in flight of the writer whose every record is seen at once.
const VISIBLE_DEPTH: usize = 16;
/// So often another client looks for the record that was written last.
const LOOK_EVERY: u64 = 1000;

/// One writer, many small records, each readable by others when it is acknowledged (HDFS: `hflush` after each).
pub(crate) fn visible(options: &BenchOptions) -> Result<BenchReport> {
    let ops = options.scaled(options.ops, 200_000);
    let target = BenchTarget::start(options)?;
    let (client, other) = (target.client()?, target.client()?);
    let (request, reply) = (SMALL + 200, 120);
    let (_, round_us) = ceiling::ping_pong(request, reply, 1, CEILING_ROUNDS)?;
    let record = |at: u64| [(at % 251) as u8; SMALL];
    let look = |name: &str, at: u64| -> Result<()> {
        let mut seen = [0u8; SMALL];
        let file = other.fs().open(&Path::path(name), OpenFlags { read: true, write: false })?;
        let read = file.read_at(at * SMALL as u64, &mut seen)?;
        anyhow::ensure!(read == SMALL && seen == record(at), "record {at} of {name} was acknowledged and is not seen");
        Ok(())
    };
    let one = make(&client, "/one")?;
    let alone = ops / 4;
    let bar = progress("visible, one at a time", alone);
    let watch = Stopwatch::start();
    for at in 0..alone {
        one.write_at(at * SMALL as u64, &record(at))?;
        if at % LOOK_EVERY == 0 {
            look("/one", at)?;
        }
        bar.inc(1);
    }
    let alone_s = watch.seconds();
    bar.finish_and_clear();
    let many = make(&client, "/many")?;
    let bar = progress("visible, 16 in flight", ops);
    let spent = spend(&target, &client, || {
        let mut at = 0;
        many.write_many::<frieze_client::Error>(VISIBLE_DEPTH, |bytes| {
            bytes.extend_from_slice(&record(at));
            bar.inc(1);
            at += 1;
            Ok((at <= ops).then(|| (at - 1) * SMALL as u64))
        })?;
        Ok(())
    })?;
    bar.finish_and_clear();
    look("/many", ops - 1)?;
    let mib = |ops: u64, seconds: f64| (ops * SMALL as u64) as f64 / (1 << 20) as f64 / seconds;
    let ceiling = SMALL as f64 / (1 << 20) as f64 / (round_us / 1e6);
    let mut report = per_thousand("visible", ops, &spent, ceiling, "ping-pong of the same sizes, one at a time");
    report.value = mib(ops, spent.seconds);
    report.unit = "MiB/s";
    report.more =
        vec![("one_at_a_time_mib_s", mib(alone, alone_s), "MiB/s"), ("ops_s", ops as f64 / spent.seconds, "ops/s")];
    Ok(report)
}

/// Bytes of the file that random loads go to.
const RANDOM_FILE_BYTES: u64 = 1 << 30;

fn per_thousand(
    scenario: &'static str,
    ops: u64,
    spent: &Spent,
    ceiling: f64,
    ceiling_name: &'static str,
) -> BenchReport {
    BenchReport {
        scenario,
        value: ops as f64 / spent.seconds,
        unit: "ops/s",
        ceiling,
        ceiling_name,
        cpu_client_s: spent.client_s * 1000.0 / ops as f64,
        cpu_server_s: spent.server_s * 1000.0 / ops as f64,
        cpu_per: "1,000 operations",
        server_peak_mib: spent.after.peak_mib,
        more: Vec::new(),
    }
}

fn random(options: &BenchOptions, writes: bool) -> Result<BenchReport> {
    let scenario = if writes { "rand-write" } else { "rand-read" };
    let ops = options.scaled(options.ops, 200_000);
    let clients = options.clients.unwrap_or(if writes { 2 } else { 8 });
    let depth = if writes { (IN_FLIGHT / clients).max(1) } else { 1 };
    let target = BenchTarget::start(options)?;
    let client = target.client()?;
    let file = make(&client, "/random")?;
    write_all(&file, &ceiling::cold_data(), options.scaled(None, RANDOM_FILE_BYTES), "preparing")?;
    file.close()?;
    settle(&client)?;
    let (request, reply) = if writes { (SMALL + 200, 120) } else { (200, SMALL + 120) };
    let pairs = clients * depth;
    let (ceiling, _) = ceiling::ping_pong(request, reply, pairs, CEILING_ROUNDS / pairs as u64)?;
    let pages = options.scaled(None, RANDOM_FILE_BYTES) / SMALL as u64;
    let each = ops / clients as u64;
    let bar = progress(scenario, each * clients as u64);
    let spent = spend(&target, &client, || {
        on_clients(&target, clients, |index, client| {
            let file = client.fs().open(&Path::path("/random"), OpenFlags { read: !writes, write: writes })?;
            let mut rng = Rng::new(index as u64);
            let mut buffer = vec![index as u8; SMALL];
            let mut left = each;
            if writes {
                let written = file.write_many::<frieze_client::Error>(depth, |bytes| {
                    bytes.extend_from_slice(&buffer);
                    bar.inc(1);
                    left = left.wrapping_sub(1);
                    Ok((left != u64::MAX).then(|| rng.below(pages) * SMALL as u64))
                })?;
                anyhow::ensure!(written.0 == each * SMALL as u64, "wrote {} bytes", written.0);
            }
            for _ in 0..if writes { 0 } else { each } {
                let offset = rng.below(pages) * SMALL as u64;
                let read = file.read_at(offset, &mut buffer)?;
                anyhow::ensure!(read == SMALL, "read {read} bytes at {offset}");
                bar.inc(1);
            }
            file.close().context("closing")
        })
    })?;
    bar.finish_and_clear();
    Ok(per_thousand(
        scenario,
        each * clients as u64,
        &spent,
        ceiling,
        "ping-pong of the same sizes, a connection for each in flight",
    ))
}

pub(crate) fn rand_write(options: &BenchOptions) -> Result<BenchReport> {
    random(options, true)
}

pub(crate) fn rand_read(options: &BenchOptions) -> Result<BenchReport> {
    random(options, false)
}

pub(crate) fn latency(options: &BenchOptions) -> Result<BenchReport> {
    let rounds = options.scaled(options.ops, CEILING_ROUNDS);
    let target = BenchTarget::start(options)?;
    let client = target.client()?;
    let file = make(&client, "/latency")?;
    let mut buffer = vec![5u8; SMALL];
    for i in 0..1000 {
        file.write_at(i * SMALL as u64, &buffer)?;
    }
    let (_, ceiling) = ceiling::ping_pong(SMALL, SMALL, 1, rounds)?;
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    let bar = progress("latency", 2 * rounds);
    let spent = spend(&target, &client, || {
        for i in 0..rounds {
            let one = Stopwatch::start();
            file.write_at(i % 1000 * SMALL as u64, &buffer)?;
            writes.push(one.seconds() * 1e6);
        }
        bar.inc(rounds);
        for i in 0..rounds {
            let one = Stopwatch::start();
            file.read_at(i % 1000 * SMALL as u64, &mut buffer)?;
            reads.push(one.seconds() * 1e6);
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    file.close()?;
    let at = |times: &mut Vec<f64>, share: f64| {
        times.sort_by(f64::total_cmp);
        times[((times.len() - 1) as f64 * share) as usize]
    };
    let (write_us, read_us) = (at(&mut writes, 0.5), at(&mut reads, 0.5));
    let mut report = per_thousand("latency", 2 * rounds, &spent, ceiling, "ping-pong of 4 KiB, one connection");
    report.value = write_us.max(read_us);
    report.unit = "us";
    report.more = vec![
        ("write_us", write_us, "us"),
        ("read_us", read_us, "us"),
        ("write_p99_us", at(&mut writes, 0.99), "us"),
        ("read_p99_us", at(&mut reads, 0.99), "us"),
    ];
    Ok(report)
}
