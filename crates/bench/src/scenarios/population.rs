//! Many files: the memory of a file, starts with all of them, and one directory that has all of them.

use anyhow::{Context, Result, ensure};
use frieze_base::{InodeId, Rng};
use frieze_client::{Client, CreateMode, Durability, Target as Path};

use super::{on_clients, progress, settle, spend};
use crate::report::BenchReport;
use crate::stopwatch::Stopwatch;
use crate::target::BenchTarget;
use crate::{BenchOptions, ceiling};

const FILES: u64 = 1_000_000;
/// Files of a directory.
const DIRECTORY_FILES: u64 = 1_000;
const CLIENTS: usize = 32;
/// Lookups of one name.
const LOOKUPS: u64 = 20_000;
/// What CalvinFS keeps of a file in memory, in bytes (FAST'15 §7).
const CALVIN_FILE_BYTES: f64 = 140.0;

/// A name of 20 bytes.
fn name(number: u64) -> String {
    format!("measurement-{number:08}")
}

/// Makes empty files with names of 20 bytes in directories of 1,000, then kills the server, starts it, stops it, and
/// starts it again.
pub(crate) fn files(options: &BenchOptions) -> Result<BenchReport> {
    ensure!(options.server.is_none(), "files kills its server: it takes one of its own, not --server");
    let count = options.scaled(options.ops, FILES);
    let clients = options.clients.unwrap_or(CLIENTS);
    let mut target = BenchTarget::start(options)?;
    let client = target.client()?;
    let empty = target.usage(&client)?;
    let directories = count.div_ceil(DIRECTORY_FILES);
    let watch = Stopwatch::start();
    let bar = progress("making", count);
    on_clients(&target, clients, |index, client| {
        let fs = client.fs();
        for directory in (index as u64..directories).step_by(clients) {
            fs.mkdir(&Path::path(format!("/{directory}")), 0o755)?;
            for number in directory * DIRECTORY_FILES..count.min((directory + 1) * DIRECTORY_FILES) {
                let path = format!("/{directory}/{}", name(number));
                fs.create(&Path::path(path), 0o644, CreateMode::Exclusive)?.close().context("closing")?;
            }
            bar.inc(DIRECTORY_FILES);
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    let made_s = watch.seconds();
    settle(&client)?;
    let full = target.usage(&client)?;
    drop(client);

    // The first start reads the last checkpoint that was written while files were made, and what came since.
    target.kill()?;
    let killed_s = start(&mut target)?;
    target.stop()?;
    let clean_s = start(&mut target)?;
    let client = target.client()?;
    let started = target.usage(&client)?;
    ensure!(client.fs().stat(&Path::path(format!("/0/{}", name(0)))).is_ok(), "a file is missing after the start");
    let per_file = |bytes: f64| (bytes - empty.resident_bytes) / count as f64;
    Ok(BenchReport {
        scenario: "files",
        value: per_file(started.resident_bytes),
        unit: "bytes of memory for a file, after a start",
        ceiling: CALVIN_FILE_BYTES,
        ceiling_name: "CalvinFS",
        cpu_client_s: 0.0,
        cpu_server_s: started.cpu_s,
        cpu_per: "start after a clean stop",
        server_peak_mib: full.peak_mib,
        more: vec![
            ("made_per_s", count as f64 / made_s, "files/s (making them)"),
            ("made_bytes", per_file(full.resident_bytes), "bytes of memory for a file, of the server that made them"),
            ("start_clean_s", clean_s, "s, cold, after a clean stop, until a client has an answer"),
            ("start_killed_s", killed_s, "s, cold, after kill -9"),
            ("disk_bytes", target.disk_bytes()? as f64 / count as f64, "bytes of disk for a file, log included"),
        ],
    })
}

/// Starts the server with nothing of its directory in memory. Returns the seconds until a client has an answer.
fn start(target: &mut BenchTarget) -> Result<f64> {
    target.forget_cached()?;
    let watch = Stopwatch::start();
    target.start_again()?;
    target.client()?.fs().stat(&Path::path("/"))?;
    Ok(watch.seconds())
}

/// What one entry costs in a directory, in microseconds.
struct EntryCost {
    listed: f64,
    listed_then: f64,
    looked_up: f64,
    looked_up_then: f64,
}

/// Files in one directory beside a directory of 1,000: listing and lookup of an entry, now and at an old instant.
pub(crate) fn directory(options: &BenchOptions) -> Result<BenchReport> {
    let count = options.scaled(options.ops, FILES);
    let clients = options.clients.unwrap_or(CLIENTS);
    let target = BenchTarget::start(options)?;
    let client = target.client()?;
    for directory in ["/small", "/large"] {
        client.fs().mkdir(&Path::path(directory), 0o755)?;
    }
    fill(&target, "/small", DIRECTORY_FILES, clients)?;
    fill(&target, "/large", count, clients)?;
    let then = client.now()?;
    // Each directory has one name more, so that the old instant is another state.
    for directory in ["/small", "/large"] {
        client.fs().create(&Path::path(format!("{directory}/new")), 0o644, CreateMode::Exclusive)?.close()?;
    }
    settle(&client)?;
    let small = cost(&client, "/small", DIRECTORY_FILES, then)?;
    let mut large = None;
    let spent = spend(&target, &client, || {
        large = Some(cost(&client, "/large", count, then)?);
        Ok(())
    })?;
    let large = large.context("the large directory was read")?;
    let (pages, _) = ceiling::ping_pong(100, 20 * 1000, 1, 2_000)?;
    Ok(BenchReport {
        scenario: "directory",
        value: large.listed / small.listed,
        unit: "x: listing an entry of the large directory, over one of 1,000 entries",
        ceiling: 1.0,
        ceiling_name: "the same cost",
        cpu_client_s: spent.client_s,
        cpu_server_s: spent.server_s,
        cpu_per: "all reads of the large directory",
        server_peak_mib: spent.after.peak_mib,
        more: vec![
            ("listed_then_x", large.listed_then / small.listed_then, "x, at an old instant"),
            ("looked_up_x", large.looked_up / small.looked_up, "x, lookup of a name"),
            ("looked_up_then_x", large.looked_up_then / small.looked_up_then, "x, at an old instant"),
            ("listed_us", large.listed, "us an entry, large"),
            ("listed_then_us", large.listed_then, "us an entry, large, at an old instant"),
            ("looked_up_us", large.looked_up, "us a lookup, large"),
            ("looked_up_then_us", large.looked_up_then, "us a lookup, large, at an old instant"),
            ("page_us", 1e3 / pages, "us an entry (ping-pong of pages of 1,000 names)"),
        ],
    })
}

fn fill(target: &BenchTarget, directory: &str, count: u64, clients: usize) -> Result<()> {
    let bar = progress("making", count);
    on_clients(target, clients, |index, client| {
        let fs = client.fs().with_durability(Durability::Async);
        for number in (index as u64..count).step_by(clients) {
            let path = format!("{directory}/{}", name(number));
            fs.create(&Path::path(path), 0o644, CreateMode::Exclusive)?.close().context("closing")?;
            bar.inc(1);
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    Ok(())
}

/// Lists a directory by pages as a program reads one, which keeps none of them: ten million entries in a vector would
/// measure the client's memory.
fn count_entries(fs: &frieze_client::Fs, directory: &str) -> Result<u64> {
    let mut page = fs.list(&Path::path(directory), b"", 0, false)?;
    let mut count = page.entries.len() as u64;
    while page.more
        && let Some(last) = page.entries.pop()
    {
        page = fs.list_opened(InodeId(page.inode), &last.name, 0, false)?;
        count += page.entries.len() as u64;
    }
    Ok(count)
}

fn cost(client: &Client, directory: &str, count: u64, then: frieze_client::Hlc) -> Result<EntryCost> {
    let (now, past) = (client.fs(), client.fs().at(then));
    let mut rng = Rng::new(count);
    let names: Vec<String> = (0..LOOKUPS).map(|_| format!("{directory}/{}", name(rng.below(count)))).collect();
    let list = |fs: &frieze_client::Fs, expected: u64| -> Result<f64> {
        // As many entries of either directory.
        let rounds = (FILES / 10).div_ceil(count);
        let watch = Stopwatch::start();
        for _ in 0..rounds {
            let found = count_entries(fs, directory)?;
            ensure!(found == expected, "listed {found} of {expected} names");
        }
        Ok(watch.seconds() * 1e6 / (rounds * expected) as f64)
    };
    let look_up = |fs: &frieze_client::Fs| -> Result<f64> {
        let watch = Stopwatch::start();
        names.iter().try_for_each(|path| fs.stat(&Path::path(path.as_str())).map(drop))?;
        Ok(watch.seconds() * 1e6 / names.len() as f64)
    };
    Ok(EntryCost {
        listed: list(&now, count + 1)?,
        listed_then: list(&past, count)?,
        looked_up: look_up(&now)?,
        looked_up_then: look_up(&past)?,
    })
}
