//! Loads that make history and read it.

use anyhow::Result;
use frieze_base::{ByteRange, Rng};
use frieze_client::{CreateMode, Hlc, OpenFlags, Target as Path};

use super::{CEILING_BYTES, LARGE, SMALL, progress, settle, spend};
use crate::ceiling::{self, GIB};
use crate::report::Report;
use crate::target::Target;
use crate::{Options, stopwatch::Stopwatch};

/// The chunk of FFFS §7.4.
const CHUNK_BYTES: u64 = 64 << 20;
/// Its writes.
const WRITE_BYTES: usize = 32 << 10;
/// States read back.
const STATES: u64 = 50;

/// Random 32 KiB writes into one chunk, then its states: each read twice, the first time against the second.
pub(crate) fn snapshots(options: &Options) -> Result<Report> {
    let writes = options.scaled(options.ops, 20_000);
    let target = Target::start(options)?;
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
    settle(&client)?;
    let ceiling = ceiling::loopback(LARGE, options.scaled(None, CEILING_BYTES))?;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let bar = progress("reading", STATES);
    let spent = spend(&target, &client, || {
        for i in 0..STATES {
            let at = stamps[(i * (writes - 1) / (STATES - 1)) as usize];
            for times in [&mut first, &mut second] {
                let past = client.fs().at(at).open(&Path::path("/chunk"), OpenFlags { read: true, write: false })?;
                let watch = Stopwatch::start();
                let read = past.read_stream::<frieze_client::Error>(ByteRange::new(0, CHUNK_BYTES), 4, |_| Ok(()))?;
                times.push(watch.seconds());
                anyhow::ensure!(read == CHUNK_BYTES, "state {at} has {read} bytes");
            }
            bar.inc(1);
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    let speed = |times: &mut Vec<f64>, share: f64| {
        times.sort_by(f64::total_cmp);
        CHUNK_BYTES as f64 / GIB / times[((times.len() - 1) as f64 * share) as usize]
    };
    let gib = 2.0 * STATES as f64 * CHUNK_BYTES as f64 / GIB;
    let (first_speed, second_speed) = (speed(&mut first, 0.5), speed(&mut second, 0.5));
    Ok(Report {
        scenario: "snapshots",
        value: first_speed,
        unit: "GiB/s",
        ceiling,
        ceiling_name: "loopback, 1 MiB messages",
        cpu_client_s: spent.client_s / gib,
        cpu_server_s: spent.server_s / gib,
        cpu_per: "GiB",
        server_peak_mib: spent.after.peak_mib,
        more: vec![
            ("first_over_second", first_speed / second_speed, "(first read of a state over the second)"),
            ("slowest_state_gib_s", speed(&mut first, 1.0), "GiB/s"),
            ("fastest_state_gib_s", speed(&mut first, 0.0), "GiB/s"),
        ],
    })
}

/// Memory for random 4 KiB writes. Records lie in the page cache and on disk, so they are counted beside the server's
/// own memory: everything that a byte written costs while nothing is evicted.
pub(crate) fn memory(options: &Options) -> Result<Report> {
    let bytes = options.scaled(options.mib, 256) << 20;
    let ops = bytes / SMALL as u64;
    let target = Target::start(options)?;
    let client = target.client()?;
    let file = client.fs().create(&Path::path("/memory"), 0o644, CreateMode::OpenExisting)?;
    file.write_at(CHUNK_BYTES - 1, &[1])?;
    let mut rng = Rng::new(3);
    let data = vec![9u8; SMALL];
    let bar = progress("memory", ops);
    let spent = spend(&target, &client, || {
        for _ in 0..ops {
            file.write_at(rng.below(CHUNK_BYTES / SMALL as u64) * SMALL as u64, &data)?;
            bar.inc(1);
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    file.close()?;
    let grown = (spent.after.resident_bytes - spent.before.resident_bytes).max(0.0);
    let logged = spent.after.log_bytes - spent.before.log_bytes;
    let indexed = spent.after.index_bytes - spent.before.index_bytes;
    Ok(Report {
        scenario: "memory",
        value: (grown + logged) / bytes as f64,
        unit: "x",
        ceiling: 1.0,
        ceiling_name: "the bytes themselves",
        cpu_client_s: spent.client_s * 1000.0 / ops as f64,
        cpu_server_s: spent.server_s * 1000.0 / ops as f64,
        cpu_per: "1,000 operations",
        server_peak_mib: spent.after.peak_mib,
        more: vec![
            ("rss_over_bytes", grown / bytes as f64, "x (growth of the server's own memory)"),
            ("log_over_bytes", logged / bytes as f64, "x (records in the page cache and on disk)"),
            ("index_bytes_per_write", indexed / ops as f64, "bytes"),
        ],
    })
}
