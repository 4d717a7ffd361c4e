//! The cost of several replicas for a writer, and their use for readers.

use std::path::PathBuf;

use anyhow::{Context, Result};
use frieze_base::{ByteRange, Rng};
use frieze_client::{Client, File, Hlc, OpenFlags, Target as Path};

use super::sequential::{make, write_all};
use super::{CEILING_BYTES, CEILING_ROUNDS, LARGE, SMALL, progress, settle};
use crate::BenchOptions;
use crate::ceiling::{self, Chained, GIB};
use crate::fleet::Fleet;
use crate::report::BenchReport;
use crate::stopwatch::Stopwatch;

/// Replicas, as the goals have it.
const REPLICAS: usize = 3;
/// Memory of each server: several share the machine.
const MEMORY: &str = "memory_bytes_max = 1073741824\n";
/// Small chunks, so that a file of a few MiB lies on every chain and its readers ask every server.
const SMALL_CHUNKS: &str = "chunk_bytes = 1048576\n";

/// Writes that are measured one at a time.
const SINGLES: u64 = 200;

fn directory(options: &BenchOptions) -> PathBuf {
    options.dir.clone().unwrap_or_else(std::env::temp_dir)
}

/// What a writer of one kind of cluster measures.
struct WriteCost {
    gib_per_s: f64,
    cpu_client_s: f64,
    cpu_servers_s: f64,
    /// Of one write of 1 MiB.
    p50_us: f64,
    peak_mib: f64,
}

fn write(options: &BenchOptions, servers: usize, bytes: u64, data: &[u8]) -> Result<WriteCost> {
    let fleet = Fleet::start(options, servers, MEMORY)?;
    let client = fleet.client(0)?;
    let warm = make(&client, "/warm")?;
    write_all(&warm, data, 64 << 20, "warming up")?;
    settle(&client)?;
    let file = make(&client, "/streamed")?;
    let singles = options.scaled(options.ops, SINGLES);
    // Memory that was used before, for what every server is to hold: a virtual machine takes its time to give what was
    // not.
    ceiling::warm_memory(&directory(options), servers as u64 * (bytes + singles * LARGE as u64))?;
    let (cpu, watch) = (fleet.cpu_s()?, Stopwatch::start());
    write_all(&file, data, bytes, "replicated-write")?;
    let (seconds, cpu_client_s) = (watch.seconds(), watch.cpu_seconds());
    // What is acknowledged is in the memory of all; what it costs to bring it to the disk is theirs, too.
    settle(&client)?;
    let cpu_servers_s = fleet.cpu_s()? - cpu;
    let single = make(&client, "/one-by-one")?;
    let mut times = Vec::new();
    for number in 0..singles {
        let one = Stopwatch::start();
        single.write_at(number * LARGE as u64, &data[..LARGE])?;
        times.push(one.seconds() * 1e6);
    }
    let gib = bytes as f64 / GIB;
    Ok(WriteCost {
        gib_per_s: gib / seconds,
        cpu_client_s: cpu_client_s / gib,
        cpu_servers_s: cpu_servers_s / gib,
        p50_us: median(&mut times),
        peak_mib: fleet.peak_mib(),
    })
}

/// Writes of 1 MiB to three replicas, beside the same to one.
pub(crate) fn replicated_write(options: &BenchOptions) -> Result<BenchReport> {
    let bytes = options.scaled(options.mib, 1024) << 20;
    let data = ceiling::cold_data();
    let loopback = ceiling::loopback_unpaced(LARGE, options.scaled(None, CEILING_BYTES))?;
    let bare = |members: usize| -> Result<Chained> {
        let (directory, singles) = (directory(options), options.scaled(options.ops, SINGLES));
        ceiling::warm_memory(&directory, members as u64 * (bytes + singles * LARGE as u64))?;
        ceiling::chained(&directory, &data, members, bytes, singles)
    };
    let (bare_one, bare_three) = (bare(1)?, bare(REPLICAS)?);
    let one = write(options, 1, bytes, &data)?;
    let three = write(options, REPLICAS, bytes, &data)?;
    Ok(BenchReport {
        scenario: "replicated-write",
        value: three.gib_per_s,
        unit: "GiB/s",
        // The bytes go over it once for each replica.
        ceiling: loopback / REPLICAS as f64,
        ceiling_name: "a third of loopback, 1 MiB messages, not paced",
        cpu_client_s: three.cpu_client_s,
        cpu_server_s: three.cpu_servers_s,
        cpu_per: "GiB",
        server_peak_mib: three.peak_mib,
        more: vec![
            ("cpu_all_s_per_gib", three.cpu_client_s + three.cpu_servers_s, "s (client and three servers, flushed)"),
            ("cpu_one_replica_s_per_gib", one.cpu_client_s + one.cpu_servers_s, "s (client and one server)"),
            ("one_replica_gib_s", one.gib_per_s, "GiB/s"),
            ("write_1mib_us", three.p50_us, "us (one at a time, median)"),
            ("write_1mib_one_replica_us", one.p50_us, "us"),
            ("latency_over_one_replica", three.p50_us / one.p50_us, ""),
            ("bare_1mib_us", bare_three.p50_us, "us (three bare members that check, store and pass on piece by piece)"),
            ("bare_1mib_one_us", bare_one.p50_us, "us (one such member)"),
            ("bare_over_one", bare_three.p50_us / bare_one.p50_us, ""),
            ("latency_over_bare", three.p50_us / bare_three.p50_us, ""),
            ("bare_cpu_s_per_gib", bare_three.cpu_s_per_gib, "s (sender and three bare members, flushed)"),
            ("cpu_over_bare", (three.cpu_client_s + three.cpu_servers_s) / bare_three.cpu_s_per_gib, ""),
        ],
    })
}

/// Reads from servers each of which gives a fixed rate.
fn read_limited(options: &BenchOptions, servers: usize, rate: u64, seconds: f64) -> Result<(f64, f64)> {
    let fleet = Fleet::start_relayed(options, servers, &[MEMORY, SMALL_CHUNKS].concat())?;
    let client = fleet.client(0)?;
    let file = make(&client, "/read")?;
    let file_bytes = 48 << 20;
    write_all(&file, &ceiling::cold_data(), file_bytes, "preparing")?;
    settle(&client)?;
    file.close()?;
    let readers = options.clients.unwrap_or(6);
    let clients = (0..readers).map(|number| fleet.client(number % servers)).collect::<Result<Vec<_>>>()?;
    fleet.limit(Some(rate));
    let watch = Stopwatch::start();
    let bytes = std::thread::scope(|scope| -> Result<u64> {
        let threads: Vec<_> =
            clients.iter().map(|client| scope.spawn(|| read_for(client, file_bytes, &watch, seconds))).collect();
        threads.into_iter().map(|thread| thread.join().ok().context("a reader panicked")?).sum()
    })?;
    let rate = bytes as f64 / GIB / watch.seconds();
    fleet.limit(None);
    Ok((rate, fleet.peak_mib()))
}

/// Reads a file again and again, for so long. Bytes that it read.
fn read_for(client: &Client, bytes: u64, watch: &Stopwatch, seconds: f64) -> Result<u64> {
    let file: File = client.fs().open(&Path::path("/read"), OpenFlags { read: true, write: false })?;
    let mut rng = Rng::new(7);
    let mut read = 0;
    while watch.seconds() < seconds {
        // Ranges over several chunks, from anywhere.
        let from = rng.below(bytes / LARGE as u64 - 8) * LARGE as u64;
        let range = ByteRange::new(from, from + 8 * LARGE as u64);
        read += file.read_stream::<frieze_client::Error>(range, 8, |_| Ok(()))?;
    }
    Ok(read)
}

/// Three servers, each limited to a rate, beside one.
pub(crate) fn replica_reads(options: &BenchOptions) -> Result<BenchReport> {
    let rate = options.mib.unwrap_or(100) << 20;
    let seconds = if options.quick { 1.0 } else { 5.0 };
    let (one, _) = read_limited(options, 1, rate, seconds)?;
    let watch = Stopwatch::start();
    let (three, peak_mib) = read_limited(options, REPLICAS, rate, seconds)?;
    Ok(BenchReport {
        scenario: "replica-reads",
        value: three,
        unit: "GiB/s",
        ceiling: (rate * REPLICAS as u64) as f64 / GIB,
        ceiling_name: "the rates of three servers",
        cpu_client_s: watch.cpu_seconds() / (three * seconds),
        cpu_server_s: 0.0,
        cpu_per: "GiB (relays and start included)",
        server_peak_mib: peak_mib,
        more: vec![
            ("one_server_gib_s", one, "GiB/s"),
            ("over_one", three / one, "times one server"),
            ("rate_mib_s", (rate >> 20) as f64, "MiB/s that each server gives"),
        ],
    })
}

/// Kinds of messages by which a server asks another something.
const QUESTIONS: [&str; 3] = ["kind=\"ask\"", "kind=\"clean\"", "kind=\"metalog_close\""];
/// How old the cuts are.
const YOUNG_US: u64 = 50_000;

/// Reads of what was 50 ms ago, each of another cut, from all replicas.
pub(crate) fn young_cuts(options: &BenchOptions) -> Result<BenchReport> {
    let reads = options.scaled(options.ops, 2000);
    let fleet = Fleet::start(options, REPLICAS, &[MEMORY, SMALL_CHUNKS].concat())?;
    let client = fleet.client(0)?;
    let file = make(&client, "/young")?;
    let file_bytes = 24 << 20;
    write_all(&file, &ceiling::cold_data(), file_bytes, "preparing")?;
    settle(&client)?;
    file.close()?;
    let (_, ceiling) = ceiling::ping_pong(SMALL, SMALL, 1, options.scaled(None, CEILING_ROUNDS))?;
    let clients = (0..REPLICAS).map(|number| fleet.client(number)).collect::<Result<Vec<_>>>()?;
    let young = |client: &Client| -> Result<Hlc> {
        let now = client.now()?;
        Ok(Hlc::last_of_micros(now.micros().saturating_sub(YOUNG_US)))
    };
    let mut buffer = vec![0; SMALL];
    let mut read = |number: u64| -> Result<f64> {
        let client = &clients[number as usize % clients.len()];
        let past = client.fs().at(young(client)?);
        let past = past.open(&Path::path("/young"), OpenFlags { read: true, write: false })?;
        let offset = number * LARGE as u64 % file_bytes;
        let one = Stopwatch::start();
        past.read_at(offset, &mut buffer)?;
        Ok(one.seconds() * 1e6)
    };
    // The first of each chain within a second asks; all but those are measured.
    for number in 0..file_bytes / LARGE as u64 * REPLICAS as u64 {
        read(number)?;
    }
    let questions = || -> Result<f64> {
        let of = |number| -> Result<f64> {
            let figures = fleet.figures(number)?;
            Ok(QUESTIONS.iter().map(|kind| figures.of("frieze_peer_sent_messages_total", kind)).sum())
        };
        (0..REPLICAS).map(of).sum()
    };
    let all = || fleet.sum("frieze_peer_sent_messages_total");
    let bar = progress("young-cuts", reads);
    let (asked, told, watch) = (questions()?, all()?, Stopwatch::start());
    let mut times = Vec::new();
    for number in 0..reads {
        times.push(read(number)?);
        bar.inc(1);
    }
    let (seconds, asked, told) = (watch.seconds(), questions()? - asked, all()? - told);
    bar.finish_and_clear();
    let quiet = {
        // The traffic of a cluster without readers: heartbeats.
        let (before, watch) = (all()?, Stopwatch::start());
        std::thread::park_timeout(std::time::Duration::from_secs_f64(seconds.clamp(0.5, 5.0)));
        (all()? - before) / watch.seconds()
    };
    let p99 = {
        times.sort_by(f64::total_cmp);
        times[(times.len() - 1) * 99 / 100]
    };
    Ok(BenchReport {
        scenario: "young-cuts",
        value: median(&mut times),
        unit: "us",
        ceiling,
        ceiling_name: "ping-pong of 4 KiB, one connection",
        cpu_client_s: watch.cpu_seconds() * 1000.0 / reads as f64,
        cpu_server_s: 0.0,
        cpu_per: "1,000 reads (with the opening of each cut)",
        server_peak_mib: fleet.peak_mib(),
        more: vec![
            ("p99_us", p99, "us"),
            ("questions_per_read", asked / reads as f64, "(to other servers: ask, clean, metalog_close)"),
            (
                "questions_per_s",
                asked / seconds,
                "(a member asks the head of a chain that is read to go on promising, once a second)",
            ),
            ("reads_per_s", reads as f64 / seconds, "/s"),
            ("messages_per_s", told / seconds, "/s between the servers, promises included"),
            ("messages_quiet_per_s", quiet, "/s right after, without reads"),
        ],
    })
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}
