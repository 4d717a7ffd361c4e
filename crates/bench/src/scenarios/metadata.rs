//! Loads on names: make, stat, list; and many clients on one file.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use frieze_client::{CreateMode, Durability, OpenFlags, Target as Path};
use indicatif::ProgressBar;

use super::{CEILING_ROUNDS, SMALL, Spent, on_clients, progress, spend};
use crate::BenchOptions;
use crate::ceiling;
use crate::report::BenchReport;
use crate::stopwatch::{Latencies, Stopwatch};
use crate::target::BenchTarget;

/// Connections of a metadata load.
const CLIENTS: usize = 32;
/// About what a request and an answer of metadata take on the wire.
pub(super) const REQUEST_BYTES: usize = 140;
const REPLY_BYTES: usize = 220;

pub(super) fn report(scenario: &'static str, ops: u64, spent: &Spent, ceiling: f64) -> BenchReport {
    BenchReport {
        scenario,
        value: ops as f64 / spent.seconds,
        unit: "ops/s",
        ceiling,
        ceiling_name: "ping-pong of such messages, as many connections",
        cpu_client_s: spent.client_s * 1000.0 / ops as f64,
        cpu_server_s: spent.server_s * 1000.0 / ops as f64,
        cpu_per: "1,000 operations",
        server_peak_mib: spent.after.peak_mib,
        more: Vec::new(),
    }
}

fn rpc_ceiling(clients: usize) -> Result<f64> {
    Ok(ceiling::ping_pong(REQUEST_BYTES, REPLY_BYTES, clients, 4 * CEILING_ROUNDS / clients as u64)?.0)
}

pub(crate) fn create(options: &BenchOptions) -> Result<BenchReport> {
    let clients = options.clients.unwrap_or(CLIENTS);
    let each = options.scaled(options.ops, 200_000) / clients as u64;
    let target = BenchTarget::start(options)?;
    let client = target.client()?;
    for i in 0..clients {
        client.fs().mkdir(&Path::path(format!("/d{i}")), 0o755)?;
    }
    let ceiling = rpc_ceiling(clients)?;
    let bar = progress("create", each * clients as u64);
    let mut latencies = Latencies::default();
    let spent = spend(&target, &client, || {
        latencies = make_files(&target, clients, "f", each, Durability::Async, &bar)?;
        Ok(())
    })?;
    bar.finish_and_clear();
    let mut report = report("create", each * clients as u64, &spent, ceiling);
    let (half, most, worst) = latencies.quantiles();
    report.more.push(("p50_ms", half, "ms, half of the files"));
    report.more.push(("p99_ms", most, "ms, 99 of 100"));
    // Beside it the server writes checkpoints and tables: the worst second shows what they cost a client.
    report.more.push(("p99_worst_second_ms", worst, "ms, 99 of 100 in the worst second"));
    if options.sync {
        return Ok(report);
    }
    // The same with each acknowledged on stable storage, a tenth of the load.
    let each = each.div_ceil(10);
    let bar = progress("create, sync", each * clients as u64);
    let synced = spend(&target, &client, || {
        make_files(&target, clients, "s", each, Durability::Sync, &bar)?;
        Ok(())
    })?;
    bar.finish_and_clear();
    report.more.push(("sync_ops_s", (each * clients as u64) as f64 / synced.seconds, "ops/s, each durable"));
    Ok(report)
}

/// Every client makes and closes empty files in a directory of its own. Returns how long each file took.
pub(super) fn make_files(
    target: &BenchTarget,
    clients: usize,
    prefix: &str,
    each: u64,
    durability: Durability,
    bar: &ProgressBar,
) -> Result<Latencies> {
    let watch = Stopwatch::start();
    let all = Mutex::new(Latencies::default());
    on_clients(target, clients, |index, client| {
        let fs = client.fs();
        let fs = if durability == Durability::Sync { fs.with_durability(durability) } else { fs };
        let mut latencies = Latencies::default();
        for i in 0..each {
            let begun = watch.seconds();
            let file = fs.create(&Path::path(format!("/d{index}/{prefix}{i}")), 0o644, CreateMode::Exclusive)?;
            file.close().context("closing")?;
            let ended = watch.seconds();
            latencies.add(ended, (ended - begun) * 1e3);
            bar.inc(1);
        }
        all.lock().expect("no client panicked").append(latencies);
        Ok(())
    })?;
    Ok(all.into_inner().expect("no client panicked"))
}

pub(crate) fn stat(options: &BenchOptions) -> Result<BenchReport> {
    let clients = options.clients.unwrap_or(CLIENTS);
    let each = options.scaled(options.ops, 400_000) / clients as u64;
    let files = 1000;
    let target = BenchTarget::start(options)?;
    let client = target.client()?;
    client.fs().mkdir(&Path::path("/d"), 0o755)?;
    for i in 0..files {
        client.fs().create(&Path::path(format!("/d/f{i}")), 0o644, CreateMode::Exclusive)?.close()?;
    }
    let ceiling = rpc_ceiling(clients)?;
    let bar = progress("stat", each * clients as u64);
    let spent = spend(&target, &client, || {
        on_clients(&target, clients, |index, client| {
            let fs = client.fs();
            for i in 0..each {
                fs.stat(&Path::path(format!("/d/f{}", (i * 7 + index as u64) % files)))?;
                bar.inc(1);
            }
            Ok(())
        })
    })?;
    bar.finish_and_clear();
    Ok(report("stat", each * clients as u64, &spent, ceiling))
}

pub(crate) fn list(options: &BenchOptions) -> Result<BenchReport> {
    let files = options.scaled(options.ops, 10_000);
    let rounds = 20;
    let target = BenchTarget::start(options)?;
    let client = target.client()?;
    client.fs().mkdir(&Path::path("/d"), 0o755)?;
    let bar = progress("preparing", files);
    for i in 0..files {
        client.fs().create(&Path::path(format!("/d/f{i:06}")), 0o644, CreateMode::Exclusive)?.close()?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    // A page of 1,000 entries of about 20 bytes comes in one answer.
    let (pages, _) = ceiling::ping_pong(REQUEST_BYTES, 20 * 1000, 1, 5_000)?;
    let spent = spend(&target, &client, || {
        for _ in 0..rounds {
            let found = client.fs().entries(&Path::path("/d"))?.len() as u64;
            anyhow::ensure!(found == files, "listed {found} of {files} names");
        }
        Ok(())
    })?;
    let mut report = report("list", rounds * files, &spent, pages * 1000.0);
    report.unit = "names/s";
    report.ceiling_name = "ping-pong of pages of 1,000 names";
    report.cpu_per = "1,000 names";
    Ok(report)
}

pub(crate) fn append(options: &BenchOptions) -> Result<BenchReport> {
    let clients = options.clients.unwrap_or(8);
    let each = options.scaled(options.ops, 80_000) / clients as u64;
    let bytes = options.write_bytes.unwrap_or(SMALL as u64);
    anyhow::ensure!((1..=1 << 20).contains(&bytes), "appends of {bytes} bytes: from 1 to 1048576 can be measured");
    let target = BenchTarget::start(options)?;
    let client = target.client()?;
    client.fs().create(&Path::path("/log"), 0o666, CreateMode::Exclusive)?.close()?;
    let (ceiling, _) = ceiling::ping_pong(bytes as usize + 200, 120, clients, CEILING_ROUNDS / clients as u64)?;
    let bar = progress("append", each * clients as u64);
    let overlaps = AtomicU64::new(0);
    let spent = spend(&target, &client, || {
        on_clients(&target, clients, |index, client| {
            let file = client.fs().open(&Path::path("/log"), OpenFlags { read: false, write: true })?;
            let data = vec![index as u8; bytes as usize];
            for _ in 0..each {
                let written = file.append(&data)?;
                if written.offset % bytes != 0 {
                    overlaps.fetch_add(1, Ordering::Relaxed);
                }
                bar.inc(1);
            }
            file.close().context("closing")
        })
    })?;
    bar.finish_and_clear();
    let total = each * clients as u64;
    let size = client.fs().stat(&Path::path("/log"))?.attr.size;
    anyhow::ensure!(size == total * bytes, "{total} appends left {size} bytes");
    anyhow::ensure!(overlaps.load(Ordering::Relaxed) == 0, "appends overlapped");
    let mut report = report("append", total, &spent, ceiling);
    report.ceiling_name = "ping-pong of such messages, as many connections";
    Ok(report)
}
