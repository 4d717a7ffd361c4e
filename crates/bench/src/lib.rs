//! Loads with the machine's ceilings beside them, run by `frieze bench`.
//!
//! Guarantees: every figure stands beside a ceiling measured in the same run (raw loopback TCP with the same message
//! size, raw disk, memcpy, ping-pong), with the CPU time of client and server apart; medians where a run is repeated.
//! Leaves to others: judging. A figure is printed, never asserted: the machine is shared and noisy.

mod ceiling;
mod fleet;
mod relay;
mod report;
mod scenarios;
mod stopwatch;
mod target;

use std::ffi::OsString;

use anyhow::{Context, Result};
use clap::Parser;

pub use report::BenchReport;

/// Scenarios and options of `frieze bench`.
#[derive(Parser, Debug, Clone)]
#[command(
    name = "frieze bench",
    about = "Measure frieze beside the machine's own ceiling",
    long_about = "Runs a load against a server of its own in a temporary directory (or the one named with --server) \
        and \
                  prints its figure, the ceiling of this machine measured in the same run, their ratio, what client \
                  and \
                  server took of the processor, and the server's peak memory.",
    after_help = "Examples:\n  frieze bench seq-write\n  frieze bench latency --json\n  frieze bench create --repeat \
        5\n  frieze bench all --quick"
)]
pub struct BenchOptions {
    /// The scenario; `all` runs every scenario, `ceilings` only the machine.
    #[arg(value_enum)]
    scenario: BenchScenario,
    /// One JSON line for each scenario: scenario, value, unit, ceiling, ceiling_name, ratio, cpu_client_s,
    /// cpu_server_s, cpu_per, server_peak_mib, and the scenario's own fields.
    #[arg(long)]
    json: bool,
    /// Measure an existing server instead of one of its own.
    #[arg(long, value_name = "ADDR,...")]
    server: Option<String>,
    /// Bytes to move, in MiB, where a scenario moves bytes (seq-*: 4096, with --sync 2048, persist: 3072, flush: 4096,
    /// memory: 256 for each size, mount-seq: 1024, get-storm, fabric: 10 for each get, replicated-write: 1024,
    /// replica-reads: 100 a second, rejoin: 64).
    #[arg(long, value_name = "MIB")]
    mib: Option<u64>,
    /// seq-write: bytes the server may hold that are not on disk yet, in MiB (default: all that is written; a server's
    /// own default is 1024). Less shows how fast the disk takes them.
    #[arg(long, value_name = "MIB")]
    dirty_mib: Option<u64>,
    /// Operations, where a scenario counts them.
    #[arg(long, value_name = "COUNT")]
    ops: Option<u64>,
    /// rejoin: what every server held before, in MiB (default: four times what is missed).
    #[arg(long, value_name = "MIB")]
    held_mib: Option<u64>,
    /// append, images: bytes of one write (4096; 1024).
    #[arg(long, value_name = "BYTES")]
    write_bytes: Option<u64>,
    /// Connections, where a scenario uses several.
    #[arg(long, value_name = "COUNT")]
    clients: Option<usize>,
    /// fabric: the provider, as fi_info lists it.
    #[arg(long, value_name = "NAME", default_value = "tcp")]
    provider: String,
    /// fabric: IP address of this machine on its network (default: 127.0.0.1 for tcp, else the provider's choice).
    #[arg(long, value_name = "IP", overrides_with = "fabric_address")]
    fabric_address: Option<String>,
    /// Acknowledge when durable instead of when in memory.
    #[arg(long)]
    sync: bool,
    /// Repeat and print the median of each figure.
    #[arg(long, default_value_t = 1, value_name = "TIMES")]
    repeat: usize,
    /// A tenth of the usual load: to see that it works.
    #[arg(long)]
    quick: bool,
    /// Directory for the data of the server that is started (default: the system's temporary directory).
    #[arg(long, value_name = "DIR")]
    dir: Option<std::path::PathBuf>,
    /// mount*: a directory of another mounted file system to do the same in (default: a bindfs mount, where that is
    /// installed, else a plain directory).
    #[arg(long, value_name = "DIR")]
    peer: Option<std::path::PathBuf>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum BenchScenario {
    /// Every scenario below, in order.
    All,
    /// The machine alone: loopback, disk, memory, ping-pong.
    Ceilings,
    /// One client writes in 1 MiB requests; with --sync each waits for the disk, 8 in flight.
    SeqWrite,
    /// One client reads in 1 MiB requests.
    SeqRead,
    /// Writes at 0.7 of the top rate, with the data on disk and in memory: what persistence costs (FFFS §7.3).
    Persist,
    /// Writes of 128 KiB: how large the flushes are.
    Flush,
    /// One client writes 4 KiB after 4 KiB, each visible to readers at once: one at a time, then 16 in flight.
    Visible,
    /// Random 4 KiB writes, 32 in flight.
    RandWrite,
    /// Random 4 KiB reads.
    RandRead,
    /// One 4 KiB write, one 4 KiB read, against a 4 KiB ping-pong.
    Latency,
    /// Random 32 KiB writes into one chunk, then reads of its states (FFFS §7.4).
    Snapshots,
    /// Memory for random writes of 512 B to 64 KiB and for sequential ones (FFFS figure 12).
    Memory,
    /// Many connections make and close empty files, a directory each.
    Create,
    /// Many connections stat files.
    Stat,
    /// Listings of a directory.
    List,
    /// Many clients append to one file.
    Append,
    /// Programs make, stat, read, move and remove small files on a mount, beside a FUSE passthrough (needs /dev/fuse).
    Mount,
    /// A program writes a large file on a mount, reads it twice, and twice as it was before it was overwritten.
    MountSeq,
    /// A tree of 5,000 files on a mount: unpacked by tar, added and checked by git, removed.
    MountTree,
    /// The difference of two instants: 1,000 changes in a tree of 100,000 files; --ops 5000000 takes so many files.
    /// Then that, `ls --deleted` and `log -R` with 1,000, 10,000 and 100,000 changes: time and processor for each
    /// change shown (`find` sends the request of `diff`).
    Diff,
    /// Such a tree restored to its state before the changes.
    Restore,
    /// The changes of a session undone in such a tree.
    Undo,
    /// Events a second of a watch beside the differences of the same interval (20,000 changes), and how far its marks
    /// are behind, on one server and on three.
    Watch,
    /// Five million writes (10 GiB), `kill -9`, and the time until the server answers again from a cold disk.
    Restart,
    /// A million empty files in directories of 1,000 (--ops: how many): memory for a file, and starts with all of them
    /// after a clean stop and after `kill -9`.
    Files,
    /// A million entries in one directory (--ops: how many) beside 1,000 in another: listing and lookup of one.
    Directory,
    /// A tree of a million files (--ops: how many) that is renamed, changed and removed at one instant each, beside
    /// clients that work elsewhere.
    Trees,
    /// Half a million writes of 32 KiB into one chunk (15 GiB), then 64 KiB of random old states from a cold disk.
    Beyond,
    /// Random small writes into one chunk (300,000 of 1 KiB), then 64 KiB of random old states from a cold disk: with
    /// images of pages that consist of many pieces, and without.
    Images,
    /// 1,000 gets of 10 MiB at once (TFS, figure 9): all of them together, the unluckiest, the server's memory.
    GetStorm,
    /// Gets and puts of 10 MiB by one-sided transfers and by TCP, beside bare transfers of the same provider: rates, a
    /// storm of gets, latency, processor, sizes of requests, with one, three and four servers (needs libfabric).
    Fabric,
    /// Writes of 1 MiB to three replicas beside the same to one: their cost in all processes, and their latency.
    ReplicatedWrite,
    /// Reads from three servers each of which gives a fixed rate (100 MiB/s; --mib), beside one.
    ReplicaReads,
    /// Servers killed one after the other (--ops: how often): for how long writers and readers wait.
    Failover,
    /// A server comes back after a while: the bytes sent to it beside those that it missed (64 MiB; --mib).
    Rejoin,
    /// Reads at 50 ms ago, from every replica: their latency, and the messages between servers.
    YoungCuts,
    /// Five loads with and without `--trace-ring`, in turn: what tracing costs (needs /dev/fuse).
    Trace,
    /// Simulated accesses a second of one core, of two caches and of one with flash and disks, beside a bare walk of
    /// tables of the same size (5 million accesses; --ops).
    WhatIf,
}

const EVERY: [BenchScenario; 17] = [
    BenchScenario::SeqWrite,
    BenchScenario::SeqRead,
    BenchScenario::Persist,
    BenchScenario::Flush,
    BenchScenario::Visible,
    BenchScenario::RandWrite,
    BenchScenario::RandRead,
    BenchScenario::Latency,
    BenchScenario::Snapshots,
    BenchScenario::Memory,
    BenchScenario::Create,
    BenchScenario::Stat,
    BenchScenario::List,
    BenchScenario::Append,
    BenchScenario::Diff,
    BenchScenario::Restore,
    BenchScenario::Undo,
];

/// Parses the arguments after `frieze bench` and runs the scenario.
///
/// # Errors
/// Wrong arguments, a server that cannot be started or reached, a load that failed.
pub fn run(args: Vec<OsString>) -> Result<()> {
    let options = BenchOptions::try_parse_from(std::iter::once(OsString::from("frieze bench")).chain(args));
    let options = match options {
        Ok(options) => options,
        // Help and wrong arguments print themselves with the right exit code.
        Err(error) => error.exit(),
    };
    let scenarios: &[BenchScenario] = match &options.scenario {
        BenchScenario::All => &EVERY,
        one => std::slice::from_ref(one),
    };
    for &scenario in scenarios {
        if scenario == BenchScenario::Ceilings {
            scenarios::ceilings(&options)?;
            continue;
        }
        let mut rows: Vec<Vec<BenchReport>> = Vec::new();
        for _ in 0..options.repeat.max(1) {
            let reports = reports(scenario, &options).with_context(|| format!("scenario {scenario:?}"))?;
            rows.resize_with(reports.len(), Vec::new);
            rows.iter_mut().zip(reports).for_each(|(row, report)| row.push(report));
        }
        for row in rows {
            BenchReport::median(row).context("nothing was run")?.print(options.json)?;
        }
    }
    Ok(())
}

/// The rows of a scenario: the same number in the same order in each run.
fn reports(scenario: BenchScenario, options: &BenchOptions) -> Result<Vec<BenchReport>> {
    match scenario {
        BenchScenario::Fabric => scenarios::fabric(options),
        one_row => Ok(vec![one(one_row, options)?]),
    }
}

fn one(scenario: BenchScenario, options: &BenchOptions) -> Result<BenchReport> {
    match scenario {
        BenchScenario::SeqWrite => scenarios::seq_write(options),
        BenchScenario::SeqRead => scenarios::seq_read(options),
        BenchScenario::Persist => scenarios::persist(options),
        BenchScenario::Flush => scenarios::flush(options),
        BenchScenario::Visible => scenarios::visible(options),
        BenchScenario::RandWrite => scenarios::rand_write(options),
        BenchScenario::RandRead => scenarios::rand_read(options),
        BenchScenario::Latency => scenarios::latency(options),
        BenchScenario::Snapshots => scenarios::snapshots(options),
        BenchScenario::Memory => scenarios::memory(options),
        BenchScenario::Create => scenarios::create(options),
        BenchScenario::Stat => scenarios::stat(options),
        BenchScenario::List => scenarios::list(options),
        BenchScenario::Append => scenarios::append(options),
        BenchScenario::Mount => scenarios::mount(options),
        BenchScenario::MountSeq => scenarios::mount_seq(options),
        BenchScenario::MountTree => scenarios::mount_tree(options),
        BenchScenario::Diff => scenarios::diff(options),
        BenchScenario::Restore => scenarios::restore(options),
        BenchScenario::Undo => scenarios::undo(options),
        BenchScenario::Watch => scenarios::watch(options),
        BenchScenario::Restart => scenarios::restart(options),
        BenchScenario::Files => scenarios::files(options),
        BenchScenario::Directory => scenarios::directory(options),
        BenchScenario::Trees => scenarios::trees(options),
        BenchScenario::Beyond => scenarios::beyond(options),
        BenchScenario::Images => scenarios::images(options),
        BenchScenario::GetStorm => scenarios::get_storm(options),
        BenchScenario::ReplicatedWrite => scenarios::replicated_write(options),
        BenchScenario::ReplicaReads => scenarios::replica_reads(options),
        BenchScenario::Failover => scenarios::failover(options),
        BenchScenario::Rejoin => scenarios::rejoin(options),
        BenchScenario::YoungCuts => scenarios::young_cuts(options),
        BenchScenario::Trace => scenarios::trace(options),
        BenchScenario::WhatIf => scenarios::what_if(options),
        BenchScenario::All | BenchScenario::Ceilings | BenchScenario::Fabric => unreachable!("has rows of its own"),
    }
}

impl BenchOptions {
    /// `usual`, unless an option is given; a tenth with `--quick`.
    fn scaled(&self, told: Option<u64>, usual: u64) -> u64 {
        told.unwrap_or(if self.quick { usual.div_ceil(10) } else { usual })
    }
}
