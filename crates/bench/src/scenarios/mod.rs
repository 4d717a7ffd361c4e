//! The loads.

mod beyond;
mod bytes;
mod diff;
mod fabric;
mod failures;
mod history;
mod images;
mod metadata;
mod mount;
mod past;
mod persistence;
mod population;
mod replicated;
mod restart;
mod sequential;
mod simulated;
mod storm;
mod traced;
mod trees;
mod watch;

use std::io::Write;

use anyhow::Result;
use frieze_client::{Client, Hlc};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::stopwatch::Stopwatch;
use crate::target::{BenchTarget, ServerUsage};
use crate::{BenchOptions, ceiling};

pub(crate) use beyond::beyond;
pub(crate) use bytes::{latency, rand_read, rand_write, seq_read, seq_write, visible};
pub(crate) use diff::{diff, restore, undo};
pub(crate) use fabric::fabric;
pub(crate) use failures::{failover, rejoin};
pub(crate) use history::{memory, snapshots};
pub(crate) use images::images;
pub(crate) use metadata::{append, create, list, stat};
pub(crate) use mount::{mount, mount_seq, mount_tree};
pub(crate) use persistence::{flush, persist};
pub(crate) use population::{directory, files};
pub(crate) use replicated::{replica_reads, replicated_write, young_cuts};
pub(crate) use restart::restart;
pub(crate) use simulated::what_if;
pub(crate) use storm::get_storm;
pub(crate) use traced::trace;
pub(crate) use trees::trees;
pub(crate) use watch::watch;

/// Bytes of a large request.
const LARGE: usize = 1 << 20;
/// Bytes of a small one.
const SMALL: usize = 4096;
/// Bytes moved to find the loopback ceiling.
const CEILING_BYTES: u64 = 4 << 30;
/// Round trips, for each connection, to find the ping-pong ceiling.
const CEILING_ROUNDS: u64 = 20_000;

/// Prints what the machine can do.
pub(crate) fn ceilings(options: &BenchOptions) -> Result<()> {
    let directory = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let bytes = options.scaled(None, CEILING_BYTES);
    let figures = [
        ("loopback 1 MiB messages", ceiling::loopback(LARGE, bytes)?, "GiB/s"),
        ("the same, not paced by the system", ceiling::loopback_unpaced(LARGE, bytes)?, "GiB/s"),
        ("disk, sequential, not synced", ceiling::disk(&directory, 1 << 30, false)?, "GiB/s"),
        ("disk, sequential, each MiB synced", ceiling::disk(&directory, 256 << 20, true)?, "GiB/s"),
        ("memcpy", ceiling::memcpy(), "GiB/s"),
        ("ping-pong of 4 KiB", ceiling::ping_pong(SMALL, SMALL, 1, CEILING_ROUNDS)?.1, "us"),
    ];
    let mut out = std::io::stdout().lock();
    for (name, value, unit) in figures {
        if options.json {
            writeln!(
                out,
                "{}",
                serde_json::json!({"scenario": "ceilings", "name": name, "value": value, "unit": unit})
            )?;
        } else {
            writeln!(out, "{name:<36} {:>8} {unit}", crate::report::figure(value))?;
        }
    }
    Ok(())
}

/// Progress on standard error, if it is a terminal.
fn progress(what: &str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:>14} {wide_bar} {percent:>3} % {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()).with_style(style);
    bar.set_message(what.to_owned());
    bar
}

/// Wall time and CPU of both ends while `load` runs.
struct Spent {
    seconds: f64,
    client_s: f64,
    server_s: f64,
    before: ServerUsage,
    after: ServerUsage,
}

fn spend(target: &BenchTarget, client: &Client, load: impl FnOnce() -> Result<()>) -> Result<Spent> {
    let before = target.usage(client)?;
    let watch = Stopwatch::start();
    load()?;
    let (seconds, client_s) = (watch.seconds(), watch.cpu_seconds());
    let after = target.usage(client)?;
    Ok(Spent { seconds, client_s, server_s: after.cpu_s - before.cpu_s, before, after })
}

/// Runs `each` on as many threads as there are clients, each with a client of its own, and waits for all.
fn on_clients(
    target: &BenchTarget,
    count: usize,
    each: impl Fn(usize, &Client) -> Result<()> + Send + Sync,
) -> Result<()> {
    let clients = (0..count).map(|_| target.client()).collect::<Result<Vec<_>>>()?;
    let each = &each;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            clients.iter().enumerate().map(|(i, client)| scope.spawn(move || each(i, client))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a client thread panicked"))))
    })
}

/// Flushes the server, so that one load does not pay for another.
fn settle(client: &Client) -> Result<Hlc> {
    client.fs().sync_all()?;
    Ok(client.now()?)
}
