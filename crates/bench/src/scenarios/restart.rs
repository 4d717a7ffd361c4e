//! A killed server comes back: the time until it answers, and its memory then.

use anyhow::{Context, Result};
use frieze_base::Rng;
use frieze_client::{Client, CreateMode, Hlc, OpenFlags, Target as Path};

use super::{on_clients, progress, settle};
use crate::ceiling;
use crate::report::BenchReport;
use crate::target::BenchTarget;
use crate::{BenchOptions, stopwatch::Stopwatch};

/// Ten GiB in five million records.
const WRITE_BYTES: u64 = 2048;
const WRITES: u64 = 5_000_000;
/// Files that they go to, and the length of each.
const FILES: u64 = 256;
const FILE_BYTES: u64 = 16 << 20;
/// Instants read after the restart.
const READS: u64 = 200;
const READ_BYTES: u64 = 64 << 10;

/// Random writes of 2 KiB to 256 files, then `kill -9`, nothing of the directory in memory, and a start.
pub(crate) fn restart(options: &BenchOptions) -> Result<BenchReport> {
    anyhow::ensure!(options.server.is_none(), "restart kills its server: it takes one of its own, not --server");
    let writes = options.scaled(options.ops, WRITES);
    let mut target = BenchTarget::start(options)?;
    let (stamps, made_s) = fill(&target, writes, options.clients.unwrap_or(8))?;
    let client = target.client()?;
    settle(&client)?;
    rest();
    let before = target.usage(&client)?;
    drop(client);
    let log_bytes = before.log_bytes as u64;
    let read_all_s = log_bytes as f64 / ceiling::GIB / target.read_cold(options.scaled(None, 1 << 30))?;

    target.kill()?;
    target.forget_cached()?;
    let watch = Stopwatch::start();
    target.start_again()?;
    let client = target.client()?;
    let serving_s = watch.seconds();
    let fresh = target.usage(&client)?;
    let mut rng = Rng::new(5);
    let (mut times, mut buffer) = (Vec::new(), vec![0; READ_BYTES as usize]);
    let bar = progress("reading", READS);
    for _ in 0..READS {
        let at = stamps[rng.below(stamps.len() as u64) as usize];
        let name = format!("/{}", rng.below(FILES));
        let past = client.fs().at(at).open(&Path::path(name.as_str()), OpenFlags { read: true, write: false })?;
        let from = rng.below((FILE_BYTES - READ_BYTES) / WRITE_BYTES) * WRITE_BYTES;
        let one = Stopwatch::start();
        past.read_at(from, &mut buffer)?;
        times.push(one.seconds() * 1e3);
        bar.inc(1);
    }
    bar.finish_and_clear();
    times.sort_by(f64::total_cmp);
    let after = target.usage(&client)?;
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    Ok(BenchReport {
        scenario: "restart",
        value: serving_s,
        unit: "s",
        ceiling: read_all_s,
        ceiling_name: "reading the log from the disk",
        cpu_client_s: 0.0,
        cpu_server_s: fresh.cpu_s,
        cpu_per: "restart",
        server_peak_mib: fresh.peak_mib,
        more: vec![
            ("writes_per_s", writes as f64 / made_s, "(making the log)"),
            ("log_gib", log_bytes as f64 / ceiling::GIB, "GiB"),
            ("index_before_mib", mib(before.index_bytes), "MiB"),
            ("index_after_mib", mib(fresh.index_bytes), "MiB (right after the restart)"),
            ("resident_after_mib", mib(fresh.resident_bytes), "MiB"),
            ("past_read_p50_ms", times[times.len() / 2], "ms (64 KiB of a random file at a random instant, cold)"),
            ("past_read_max_ms", times[times.len() - 1], "ms"),
            ("resident_end_mib", mib(after.resident_bytes), "MiB (after those reads)"),
        ],
    })
}

/// Lets the server do what it does off the critical path with segments that are full: it looks twice a second.
#[expect(clippy::disallowed_methods, reason = "the server does this by itself and tells nobody when it is done")]
fn rest() {
    std::thread::sleep(std::time::Duration::from_secs(5));
}

/// Returns some of the instants, oldest first, and the seconds it took.
fn fill(target: &BenchTarget, writes: u64, clients: usize) -> Result<(Vec<Hlc>, f64)> {
    let first = target.client()?;
    for name in 0..FILES {
        let path = format!("/{name}");
        let file = first.fs().create(&Path::path(path), 0o644, CreateMode::OpenExisting)?;
        file.write_at(FILE_BYTES - 1, &[1])?;
        file.close()?;
    }
    let stamps = std::sync::Mutex::new(vec![first.now()?]);
    let each = writes / clients as u64;
    let bar = progress("writing", each * clients as u64);
    let watch = Stopwatch::start();
    on_clients(target, clients, |index, client: &Client| {
        let open =
            |name: u64| client.fs().open(&Path::path(format!("/{name}")), OpenFlags { read: false, write: true });
        let own: Vec<u64> = (0..FILES).filter(|name| *name % clients as u64 == index as u64).collect();
        let files = own.into_iter().map(open).collect::<std::result::Result<Vec<_>, _>>()?;
        let mut rng = Rng::new(index as u64);
        let data = vec![index as u8; WRITE_BYTES as usize];
        for i in 0..each {
            let file = &files[rng.below(files.len() as u64) as usize];
            let at = file.write_at(rng.below(FILE_BYTES / WRITE_BYTES) * WRITE_BYTES, &data)?;
            if i % 1000 == 0 {
                stamps.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(at);
                bar.inc(1000);
            }
        }
        files.into_iter().try_for_each(frieze_client::File::close).context("closing")
    })?;
    let seconds = watch.seconds();
    bar.finish_and_clear();
    let mut stamps = stamps.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    stamps.sort_unstable();
    Ok((stamps, seconds))
}
