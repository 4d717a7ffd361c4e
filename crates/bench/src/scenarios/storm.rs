//! Many gets at once: their total rate, the longest wait, and the memory of the server meanwhile.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use frieze_base::ByteRange;
use frieze_client::{Client, OpenFlags, Target as Path};

use super::sequential::{make, per_gib, write_all};
use super::{CEILING_BYTES, LARGE, progress, settle, spend};
use crate::report::BenchReport;
use crate::stopwatch::Stopwatch;
use crate::target::BenchTarget;
use crate::{BenchOptions, ceiling};

/// Gets, and the bytes of each: as TFS measured it.
const GETS: u64 = 1000;
const GET_MIB: u64 = 10;
/// Files that they are of: more would measure the disk.
const FILES: u64 = 16;
/// Clients that they come from, each with connections of its own.
pub(super) const CLIENTS: usize = 8;
/// Requests in flight of one get.
const DEPTH: usize = 2;

/// Gets that begin at the same moment.
#[derive(Clone, Copy)]
pub(super) struct Storm {
    pub(super) gets: u64,
    /// Bytes of each.
    pub(super) bytes: u64,
}

/// Milliseconds from the common beginning to the end of each get, in order of size.
pub(super) struct StormTimes(Vec<f64>);

impl StormTimes {
    pub(super) fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    pub(super) fn at(&self, share: f64) -> f64 {
        self.0[((self.0.len() - 1) as f64 * share) as usize]
    }
}

impl Storm {
    /// What TFS measured, or a tenth of it.
    pub(super) fn of(options: &BenchOptions) -> Storm {
        Storm { gets: options.scaled(options.ops, GETS), bytes: options.mib.unwrap_or(GET_MIB) << 20 }
    }

    fn files(self) -> u64 {
        FILES.min(self.gets)
    }

    /// Writes and flushes the files.
    pub(super) fn prepare(self, client: &Client, data: &[u8]) -> Result<()> {
        for number in 0..self.files() {
            let file = make(client, &format!("/storm-{number}"))?;
            write_all(&file, data, self.bytes, "preparing")?;
            file.close()?;
        }
        settle(client).map(drop)
    }

    /// Makes the gets from all of these clients at once. `measured` calls what it is given once, which begins and ends
    /// all gets.
    pub(super) fn run<T>(
        self,
        clients: &[Client],
        measured: impl FnOnce(Box<dyn FnOnce() -> Result<()> + '_>) -> Result<T>,
    ) -> Result<(T, StormTimes)> {
        let Storm { gets, bytes } = self;
        // Opening a session within the measurement would be measured too.
        clients.iter().try_for_each(|client| client.session().map(drop))?;
        let (begun, taken_us) = (Barrier::new(gets as usize + 1), Vec::from_iter((0..gets).map(|_| AtomicU64::new(0))));
        let (watch, begun_us) = (Stopwatch::start(), AtomicU64::new(0));
        let us = || (watch.seconds() * 1e6) as u64;
        let bar = progress("get-storm", gets);
        let found = std::thread::scope(|scope| -> Result<T> {
            let threads: Vec<_> = (0..gets)
                .map(|number| {
                    let client = &clients[number as usize % clients.len()];
                    let (begun, begun_us, us, taken_us, bar) = (&begun, &begun_us, &us, &taken_us, &bar);
                    let get = move || -> Result<()> {
                        begun.wait();
                        let name = format!("/storm-{}", number % self.files());
                        let file = client.fs().open(&Path::path(name), OpenFlags { read: true, write: false })?;
                        let all = ByteRange::new(0, bytes);
                        let got = file.read_stream::<frieze_client::Error>(all, DEPTH, |_| Ok(()))?;
                        anyhow::ensure!(got == bytes, "got {got} of {bytes} bytes");
                        // From when all began: a thread that was not awake before others were served has waited, too.
                        let taken = us() - begun_us.load(Ordering::Relaxed);
                        taken_us[number as usize].store(taken, Ordering::Relaxed);
                        bar.inc(1);
                        Ok(())
                    };
                    let small = std::thread::Builder::new().stack_size(256 << 10);
                    small.spawn_scoped(scope, get).context("no more threads")
                })
                .collect::<Result<_>>()?;
            measured(Box::new(|| {
                begun_us.store(us(), Ordering::Relaxed);
                begun.wait();
                threads.into_iter().try_for_each(|thread| {
                    thread.join().unwrap_or_else(|_| anyhow::bail!("a thread that gets panicked"))
                })
            }))
        })?;
        bar.finish_and_clear();
        let mut taken: Vec<f64> = taken_us.iter().map(|us| us.load(Ordering::Relaxed) as f64 / 1e3).collect();
        taken.sort_by(f64::total_cmp);
        Ok((found, StormTimes(taken)))
    }
}

/// A thousand gets of 10 MiB begin at the same moment.
pub(crate) fn get_storm(options: &BenchOptions) -> Result<BenchReport> {
    let storm = Storm::of(options);
    let Storm { gets, bytes } = storm;
    let target = BenchTarget::start(options)?;
    let client = target.client()?;
    let data = ceiling::cold_data();
    storm.prepare(&client, &data)?;
    let directory = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let bare = ceiling::stormed(&directory, &data, gets, storm.files(), bytes)?;
    let loopback = ceiling::loopback_unpaced(LARGE, options.scaled(None, CEILING_BYTES))?;
    let clients = options.clients.unwrap_or(CLIENTS).max(1);
    let clients = (0..clients).map(|_| target.client()).collect::<Result<Vec<_>>>()?;
    let (spent, taken) = storm.run(&clients, |load| spend(&target, &client, load))?;
    let status = client.status()?;
    let bytes_max = status.memory.map_or(0, |memory| memory.bytes_max);
    let more = vec![
        ("bare_gib_s", bare, "GiB/s (of a bare program: as many connections, read, check, send, check)"),
        ("over_bare", (gets * bytes) as f64 / ceiling::GIB / spent.seconds / bare, ""),
        ("mean_ms", taken.mean(), "ms a get"),
        ("p50_ms", taken.at(0.5), "ms"),
        ("p99_ms", taken.at(0.99), "ms"),
        ("p99_over_mean", taken.at(0.99) / taken.mean(), ""),
        (
            "grown_mib",
            (spent.after.resident_bytes - spent.before.resident_bytes) / f64::from(1 << 20),
            "MiB of the server, after",
        ),
        ("memory_max_mib", bytes_max as f64 / f64::from(1 << 20), "MiB that it may use"),
    ];
    Ok(per_gib("get-storm", gets * bytes, &spent, loopback, "loopback, 1 MiB messages, not paced", more))
}
