//! History that is larger than memory: half a million writes into one chunk, then reads of its old states from the disk.

use anyhow::Result;
use frieze_base::Rng;
use frieze_client::{CreateMode, Hlc, OpenFlags, Target as Path};

use super::{progress, settle};
use crate::ceiling;
use crate::report::Report;
use crate::target::Target;
use crate::{Options, stopwatch::Stopwatch};

/// The chunk and the writes of FFFS §7.4, 25 times as many of them.
const CHUNK_BYTES: u64 = 64 << 20;
const WRITE_BYTES: u64 = 32 << 10;
const WRITES: u64 = 500_000;
/// What the server's own memory may come to, and how much of it is for the index.
const MEMORY_MIB: f64 = 512.0;
const INDEX_BYTES: u64 = 384 << 20;
const READS: u64 = 400;
const READ_BYTES: usize = 64 << 10;

/// Reads of 64 KiB at random instants, nothing of the log in the page cache, beside two random reads of the disk.
pub(crate) fn beyond(options: &Options) -> Result<Report> {
    anyhow::ensure!(options.server.is_none(), "beyond empties the page cache of its server's directory: not --server");
    let writes = options.scaled(options.ops, WRITES);
    let target = Target::start_with(options, &format!("index_bytes_max = {INDEX_BYTES}\n"))?;
    let client = target.client()?;
    let file = client.fs().create(&Path::path("/chunk"), 0o644, CreateMode::OpenExisting)?;
    let mut rng = Rng::new(7);
    let mut data = vec![0u8; WRITE_BYTES as usize];
    let mut stamps: Vec<Hlc> = Vec::new();
    let slots = CHUNK_BYTES / WRITE_BYTES;
    let bar = progress("writing", writes);
    for i in 0..writes {
        // Every slot once first: each state holds data everywhere.
        let slot = if i < slots { i } else { rng.below(slots) };
        data[..8].copy_from_slice(&i.to_le_bytes());
        let at = file.write_at(slot * WRITE_BYTES, &data)?;
        if i >= slots && i % 50 == 0 {
            stamps.push(at);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    file.close()?;
    settle(&client)?;
    let before = target.usage(&client)?;
    let one_ms = target.random_read_ms(1 << 30, WRITE_BYTES as usize, READS)?;
    target.forget_cached()?;
    let (mut times, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
    let bar = progress("reading", READS);
    for _ in 0..READS {
        let at = stamps[rng.below(stamps.len() as u64) as usize];
        let past = client.fs().at(at).open(&Path::path("/chunk"), OpenFlags { read: true, write: false })?;
        let from = rng.below(slots - 1) * WRITE_BYTES;
        let one = Stopwatch::start();
        let read = past.read_at(from, &mut buffer)?;
        times.push(one.seconds() * 1e3);
        anyhow::ensure!(read == READ_BYTES, "state {at} has {read} bytes at {from}");
        bar.inc(1);
    }
    bar.finish_and_clear();
    times.sort_by(f64::total_cmp);
    let after = target.usage(&client)?;
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    Ok(Report {
        scenario: "beyond",
        value: times[times.len() / 2],
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
            ("index_mib", mib(after.index_bytes), "MiB"),
            ("resident_mib", mib(after.resident_bytes), "MiB"),
            ("peak_over_budget", after.peak_mib / MEMORY_MIB, "(of 512 MiB)"),
        ],
    })
}
