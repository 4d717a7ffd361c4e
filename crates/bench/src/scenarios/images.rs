//! Old states of what was overwritten in small pieces, from a cold disk: with the pieces where they were written, and
//! with images of them.

use std::time::Duration;

use anyhow::{Context, Result};
use frieze_base::Rng;
use frieze_client::{Client, CreateMode, Hlc, OpenFlags, StatusReply, Target as Path};

use super::{progress, settle};
use crate::report::BenchReport;
use crate::target::BenchTarget;
use crate::{BenchOptions, stopwatch::Stopwatch};

const CHUNK_BYTES: u64 = 64 << 20;
const WRITE_BYTES: u64 = 1 << 10;
const WRITES: u64 = 300_000;
const READS: u64 = 400;
const READ_BYTES: u64 = 64 << 10;
/// Space for all images, so that what they can do is seen.
const WITH: &str = "image_percent = 2000\nimage_delay = \"0ms\"\n";
const WITHOUT: &str = "image_percent = 0\n";
const PATIENCE: Duration = Duration::from_secs(1800);

/// Reads of 64 KiB at random instants, nothing of the log in the page cache, with images and without.
pub(crate) fn images(options: &BenchOptions) -> Result<BenchReport> {
    anyhow::ensure!(options.server.is_none(), "images empties the page cache of its server's directory: not --server");
    let writes = options.scaled(options.ops, WRITES);
    let write_bytes = options.write_bytes.unwrap_or(WRITE_BYTES);
    anyhow::ensure!((1..=CHUNK_BYTES / 2).contains(&write_bytes), "writes of {write_bytes} bytes");
    let mut target = BenchTarget::start_with(options, WITHOUT)?;
    let client = target.client()?;
    let file = client.fs().create(&Path::path("/chunk"), 0o644, CreateMode::OpenExisting)?;
    let mut rng = Rng::new(7);
    let mut data = vec![0u8; write_bytes.max(1 << 20) as usize];
    for at in (0..CHUNK_BYTES).step_by(1 << 20) {
        file.write_at(at, &data[..1 << 20])?;
    }
    let mut stamps: Vec<Hlc> = Vec::new();
    let bar = progress("writing", writes);
    for i in 0..writes {
        data[..8.min(write_bytes as usize)].fill(i as u8);
        let at = file.write_at(rng.below(CHUNK_BYTES - write_bytes), &data[..write_bytes as usize])?;
        // Of the second half, when every page has been written to many times.
        if i >= writes / 2 && i % 50 == 0 {
            stamps.push(at);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    file.close()?;
    settle(&client)?;
    let one_ms = target.random_read_ms(1 << 30, READ_BYTES as usize, READS)?;
    let without = reads(&target, &client, &stamps, "in pieces")?;
    drop(client);
    target.start_with_config(WITH)?;
    let client = target.client()?;
    let before = target.usage(&client)?;
    let made = Stopwatch::start();
    let last = *stamps.last().context("no write was made")?;
    let (status, images) = loop {
        let status: StatusReply = client.status()?;
        let images = status.images.as_deref().copied().unwrap_or_default();
        if images.looked_upto >= last.0 || made.seconds() > PATIENCE.as_secs_f64() {
            break (status, images);
        }
        std::thread::park_timeout(Duration::from_millis(100));
    };
    let making_s = made.seconds();
    let after = target.usage(&client)?;
    let with = reads(&target, &client, &stamps, "with images")?;
    let p = |times: &[f64], part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
    Ok(BenchReport {
        scenario: "images",
        value: p(&with, 50),
        unit: "ms",
        ceiling: one_ms,
        ceiling_name: "a random read of 64 KiB from the disk",
        cpu_client_s: 0.0,
        cpu_server_s: after.cpu_s - before.cpu_s,
        cpu_per: "all images",
        server_peak_mib: after.peak_mib,
        more: vec![
            ("p99_ms", p(&with, 99), "ms"),
            ("without_p50_ms", p(&without, 50), "ms"),
            ("without_p99_ms", p(&without, 99), "ms"),
            ("pieces_most", images.pieces_most as f64, ""),
            ("images", images.count as f64, ""),
            ("image_mib", images.bytes as f64 / f64::from(1 << 20), "MiB"),
            ("log_mib", status.log_bytes as f64 / f64::from(1 << 20), "MiB"),
            ("making_s", making_s, "s"),
        ],
    })
}

/// Milliseconds of reads at random instants, from a cold disk, sorted.
fn reads(target: &BenchTarget, client: &Client, stamps: &[Hlc], what: &str) -> Result<Vec<f64>> {
    target.forget_cached()?;
    let mut rng = Rng::new(11);
    let (mut times, mut buffer) = (Vec::new(), vec![0; READ_BYTES as usize]);
    let bar = progress(what, READS);
    for _ in 0..READS {
        let at = stamps[rng.below(stamps.len() as u64) as usize];
        let past = client.fs().at(at).open(&Path::path("/chunk"), OpenFlags { read: true, write: false })?;
        let from = rng.below(CHUNK_BYTES / READ_BYTES) * READ_BYTES;
        let one = Stopwatch::start();
        let read = past.read_at(from, &mut buffer)?;
        times.push(one.seconds() * 1e3);
        anyhow::ensure!(read == buffer.len(), "state {at} has {read} bytes at {from}");
        bar.inc(1);
    }
    bar.finish_and_clear();
    times.sort_by(f64::total_cmp);
    Ok(times)
}
