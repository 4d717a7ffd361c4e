//! What tracing costs: five loads, each with and without a recorder, in turn.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use frieze_client::{Client, CreateMode, OpenFlags, Recorder, RingSettings, Target as FsPath};

use super::mount::BenchMount;
use super::{LARGE, SMALL, progress};
use crate::BenchOptions;
use crate::report::BenchReport;
use crate::stopwatch::Stopwatch;
use crate::target::BenchTarget;

/// Rounds of each load, with and without.
const ROUNDS: usize = 7;
/// Bytes of a ring: small enough to stay in memory.
const RING_BYTES: u64 = 64 << 20;
/// Bytes of a file that programs make on a mount.
const FILE_BYTES: usize = 1024;

/// Names of the figures of a load: its processor time and its rate, with a recorder over without.
type LoadNames = (&'static str, &'static str);
const STAT: LoadNames = ("stat_cpu", "stat_rate");
const CREATE: LoadNames = ("create_cpu", "create_rate");
const APPEND: LoadNames = ("append_4k_cpu", "append_4k_rate");
const READ: LoadNames = ("read_1m_cpu", "read_1m_rate");
const MOUNT: LoadNames = ("mount_create_1k_cpu", "mount_create_1k_rate");

/// A load: so many operations by a client.
type TracedLoad<'a> = &'a mut dyn FnMut(&Client, u64) -> Result<()>;

/// Processor time of an operation, all processes together, and operations a second.
#[derive(Clone, Copy)]
struct LoadCost {
    cpu_us: f64,
    rate: f64,
}

pub(crate) fn trace(options: &BenchOptions) -> Result<BenchReport> {
    let target = BenchTarget::start(options)?;
    let directory = tempfile::Builder::new().prefix("frieze-bench-trace-").tempdir()?;
    let rings = directory.path().join("rings");
    let settings = RingSettings { bytes: RING_BYTES, dir: rings.clone(), program: "bench".to_owned(), is_live: false };
    let clients = [target.client()?, target.traced_client(Recorder::create(&settings)?)?];
    let control = target.client()?;
    let scale = |usual| options.scaled(options.ops, usual);
    let files = 1000;
    control.fs().mkdir(&FsPath::path("/d"), 0o777)?;
    for at in 0..files {
        control.fs().create(&FsPath::path(format!("/d/f{at}")), 0o644, CreateMode::Exclusive)?.close()?;
    }
    let large = control.fs().create(&FsPath::path("/large"), 0o644, CreateMode::Exclusive)?;
    (0..64).try_for_each(|at| large.write_at(at * LARGE as u64, &vec![7; LARGE]).map(drop))?;
    large.close()?;
    let mut number = 0;
    let mut fresh = || {
        number += 1;
        number
    };
    let bar = progress("trace", 5 * ROUNDS as u64);
    let mut more = Vec::new();
    let mut worst = 0.0_f64;
    let mut stat_us = 0.0;
    let measured: [(LoadNames, u64, TracedLoad<'_>); 4] = [
        (STAT, scale(60_000), &mut |client, count| {
            let fs = client.fs();
            (0..count).try_for_each(|at| Ok(fs.stat(&FsPath::path(format!("/d/f{}", at % files))).map(drop)?))
        }),
        (CREATE, scale(15_000), &mut |client, count| {
            let (fs, round) = (client.fs(), fresh());
            fs.mkdir(&FsPath::path(format!("/c{round}")), 0o755)?;
            (0..count).try_for_each(|at| {
                let file = fs.create(&FsPath::path(format!("/c{round}/f{at}")), 0o644, CreateMode::Exclusive)?;
                Ok(file.close()?)
            })
        }),
        (APPEND, scale(40_000), &mut |client, count| {
            let path = FsPath::path("/appended");
            let file = client.fs().create(&path, 0o644, CreateMode::OpenExisting)?;
            (0..count).try_for_each(|_| file.append(&[5; SMALL]).map(drop))?;
            Ok(file.close()?)
        }),
        (READ, scale(4000), &mut |client, count| {
            let file = client.fs().open(&FsPath::path("/large"), OpenFlags { read: true, write: false })?;
            let mut into = vec![0; LARGE];
            (0..count).try_for_each(|at| Ok(file.read_at(at % 64 * LARGE as u64, &mut into).map(drop)?))
        }),
    ];
    for (names, count, load) in measured {
        let ratios = in_turn(|traced| {
            if traced {
                bar.inc(1);
            }
            cost(&target, &control, count, None, || load(&clients[usize::from(traced)], count))
        })?;
        if names == STAT {
            stat_us = ratios.without_cpu_us;
        }
        worst = worst.max(ratios.cpu);
        more.extend([(names.0, ratios.cpu, "of untraced"), (names.1, ratios.rate, "of untraced")]);
    }
    let paths = ["plain", "traced"].map(|name| directory.path().join(name));
    paths.iter().try_for_each(std::fs::create_dir)?;
    let ring = format!("{}M", RING_BYTES >> 20);
    let rings = rings.to_str().context("the system's temporary directory has a name that is text")?;
    let mounts = [
        BenchMount::of(&target, &paths[0])?,
        BenchMount::with(&target, &paths[1], &["--trace-ring", &ring, "--trace-dir", rings])?,
    ];
    let count = scale(6000);
    let ratios = in_turn(|traced| {
        if traced {
            bar.inc(1);
        }
        let mounted = &mounts[usize::from(traced)];
        let root = mounted.path.join(format!("m{}", fresh()));
        cost(&target, &control, count, Some(mounted.pid()), || create_files(&root, count))
    })?;
    worst = worst.max(ratios.cpu);
    more.extend([(MOUNT.0, ratios.cpu, "of untraced"), (MOUNT.1, ratios.rate, "of untraced")]);
    bar.finish_and_clear();
    Ok(BenchReport {
        scenario: "trace",
        value: worst,
        unit: "processor time of the dearest of five loads, traced over untraced",
        ceiling: 1.0,
        ceiling_name: "untraced",
        cpu_client_s: stat_us / 1e3,
        cpu_server_s: 0.0,
        cpu_per: "1,000 stats untraced, client and server together",
        server_peak_mib: target.usage(&control)?.peak_mib,
        more,
    })
}

fn create_files(root: &Path, count: u64) -> Result<()> {
    std::fs::create_dir(root)?;
    (0..count).try_for_each(|at| {
        let mut file = OpenOptions::new().write(true).create_new(true).open(root.join(format!("f{at}")))?;
        Ok(file.write_all(&[b'x'; FILE_BYTES])?)
    })
}

/// Medians over the rounds of a load.
struct TraceRatios {
    cpu: f64,
    rate: f64,
    without_cpu_us: f64,
}

/// Plays a load without and with a recorder, in turn.
fn in_turn(mut load: impl FnMut(bool) -> Result<LoadCost>) -> Result<TraceRatios> {
    // The first of each warms up.
    load(false)?;
    load(true)?;
    let (mut cpu, mut rate, mut without_us) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (without, with) = (load(false)?, load(true)?);
        cpu.push(with.cpu_us / without.cpu_us);
        rate.push(with.rate / without.rate);
        without_us.push(without.cpu_us);
    }
    Ok(TraceRatios { cpu: median(cpu), rate: median(rate), without_cpu_us: median(without_us) })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The cost of `count` operations in this process, the server and, if there is one, a mount.
fn cost(
    target: &BenchTarget,
    control: &Client,
    count: u64,
    mount: Option<u32>,
    load: impl FnOnce() -> Result<()>,
) -> Result<LoadCost> {
    let mount_s = || mount.map_or(Ok(0.0), cpu_seconds_of);
    let (server, other) = (target.usage(control)?.cpu_s, mount_s()?);
    let watch = Stopwatch::start();
    load()?;
    let (seconds, own) = (watch.seconds(), watch.cpu_seconds());
    let spent = own + target.usage(control)?.cpu_s - server + mount_s()? - other;
    Ok(LoadCost { cpu_us: spent * 1e6 / count as f64, rate: count as f64 / seconds })
}

/// Processor seconds of another process, in hundredths.
fn cpu_seconds_of(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).context("the mount has ended")?;
    // Fields 14 and 15, counted from the first; the second is a name in parentheses.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
