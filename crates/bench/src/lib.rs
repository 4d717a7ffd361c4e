//! Loads with the machine's ceilings beside them: what `frieze bench` runs.
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

pub use report::Report;

/// Scenarios and options of `frieze bench`.
#[derive(Parser, Debug, Clone)]
#[command(
    name = "frieze bench",
    about = "Measure frieze beside the machine's own ceiling",
    long_about = "Runs a load against a server of its own in a temporary directory (or the one named with --server) and \
                  prints its figure, the ceiling of this machine measured in the same run, their ratio, what client and \
                  server took of the processor, and the server's peak memory.",
    after_help = "Examples:\n  frieze bench seq-write\n  frieze bench latency --json\n  frieze bench create --repeat 5\n  frieze bench all --quick"
)]
pub struct Options {
    /// What to run; `all` runs every scenario, `ceilings` only the machine.
    #[arg(value_enum)]
    scenario: Scenario,
    /// One JSON line for each scenario: scenario, value, unit, ceiling, ceiling_name, ratio, cpu_client_s,
    /// cpu_server_s, cpu_per, server_peak_mib, and what the scenario adds.
    #[arg(long)]
    json: bool,
    /// Measure an existing server instead of one of its own.
    #[arg(long, value_name = "ADDR,...")]
    server: Option<String>,
    /// Bytes to move, in MiB, where a scenario moves bytes (seq-*: 4096, with --sync 2048, persist: 3072, flush:
    /// 4096, memory: 256 for each size, mount-seq: 1024, get-storm: 10 for each get, replicated-write: 1024, replica-reads:
    /// 100 a second, rejoin: 64).
    #[arg(long, value_name = "MIB")]
    mib: Option<u64>,
    /// seq-write: bytes the server may hold that are not on disk yet, in MiB (default: all that is written; a server's own
    /// default is 1024). Less shows how fast the disk takes them.
    #[arg(long, value_name = "MIB")]
    dirty_mib: Option<u64>,
    /// Operations, where a scenario counts them.
    #[arg(long, value_name = "COUNT")]
    ops: Option<u64>,
    /// rejoin: what every server held before, in MiB (default: four times what is missed).
    #[arg(long, value_name = "MIB")]
    held_mib: Option<u64>,
    /// images: bytes of one write (1024).
    #[arg(long, value_name = "BYTES")]
    write_bytes: Option<u64>,
    /// Connections, where a scenario uses several.
    #[arg(long, value_name = "COUNT")]
    clients: Option<usize>,
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
enum Scenario {
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
    /// A tree of 5,000 files on a mount: unpacked by tar, added and looked through by git, removed.
    MountTree,
    /// The difference of two instants: 1,000 changes in a tree of 100,000 files; --ops 5000000 takes so many files. Then that, `ls
    /// --deleted` and `log -R` with 1,000, 10,000 and 100,000 changes: time and processor for each change shown (`find` asks what
    /// `diff` does).
    Diff,
    /// Such a tree made what it was before the changes.
    Restore,
    /// The changes of a session undone in such a tree.
    Undo,
    /// Five million writes (10 GiB), `kill -9`, and the time until the server answers again from a cold disk.
    Restart,
    /// Half a million writes of 32 KiB into one chunk (15 GiB), then 64 KiB of random old states from a cold disk.
    Beyond,
    /// Random small writes into one chunk (300,000 of 1 KiB), then 64 KiB of random old states from a cold disk: with images
    /// of pages that consist of many pieces, and without.
    Images,
    /// 1,000 gets of 10 MiB at once (TFS, figure 9): all of them together, the unluckiest, the server's memory.
    GetStorm,
    /// Writes of 1 MiB to three replicas beside the same to one: what they cost all processes, and how long one takes.
    ReplicatedWrite,
    /// Reads from three servers each of which gives a fixed rate (100 MiB/s; --mib), beside one.
    ReplicaReads,
    /// Servers killed one after the other (--ops: how often): for how long writers and readers wait.
    Failover,
    /// A server comes back after a while: what it is sent beside what it missed (64 MiB; --mib).
    Rejoin,
    /// Reads of what was 50 ms ago, from every replica: how long they take, and what servers ask each other for them.
    YoungCuts,
}

const EVERY: [Scenario; 17] = [
    Scenario::SeqWrite,
    Scenario::SeqRead,
    Scenario::Persist,
    Scenario::Flush,
    Scenario::Visible,
    Scenario::RandWrite,
    Scenario::RandRead,
    Scenario::Latency,
    Scenario::Snapshots,
    Scenario::Memory,
    Scenario::Create,
    Scenario::Stat,
    Scenario::List,
    Scenario::Append,
    Scenario::Diff,
    Scenario::Restore,
    Scenario::Undo,
];

/// Parses the arguments after `frieze bench` and runs what they ask for.
///
/// # Errors
/// Wrong arguments, a server that cannot be started or reached, a load that failed.
pub fn run(args: Vec<OsString>) -> Result<()> {
    let options = Options::try_parse_from(std::iter::once(OsString::from("frieze bench")).chain(args));
    let options = match options {
        Ok(options) => options,
        // Help and wrong arguments print themselves with the right exit code.
        Err(error) => error.exit(),
    };
    let scenarios: &[Scenario] = match &options.scenario {
        Scenario::All => &EVERY,
        one => std::slice::from_ref(one),
    };
    for &scenario in scenarios {
        if scenario == Scenario::Ceilings {
            scenarios::ceilings(&options)?;
            continue;
        }
        let mut reports = Vec::with_capacity(options.repeat.max(1));
        for _ in 0..options.repeat.max(1) {
            reports.push(one(scenario, &options).with_context(|| format!("scenario {scenario:?}"))?);
        }
        Report::median(reports).context("nothing was run")?.print(options.json)?;
    }
    Ok(())
}

fn one(scenario: Scenario, options: &Options) -> Result<Report> {
    match scenario {
        Scenario::SeqWrite => scenarios::seq_write(options),
        Scenario::SeqRead => scenarios::seq_read(options),
        Scenario::Persist => scenarios::persist(options),
        Scenario::Flush => scenarios::flush(options),
        Scenario::Visible => scenarios::visible(options),
        Scenario::RandWrite => scenarios::rand_write(options),
        Scenario::RandRead => scenarios::rand_read(options),
        Scenario::Latency => scenarios::latency(options),
        Scenario::Snapshots => scenarios::snapshots(options),
        Scenario::Memory => scenarios::memory(options),
        Scenario::Create => scenarios::create(options),
        Scenario::Stat => scenarios::stat(options),
        Scenario::List => scenarios::list(options),
        Scenario::Append => scenarios::append(options),
        Scenario::Mount => scenarios::mount(options),
        Scenario::MountSeq => scenarios::mount_seq(options),
        Scenario::MountTree => scenarios::mount_tree(options),
        Scenario::Diff => scenarios::diff(options),
        Scenario::Restore => scenarios::restore(options),
        Scenario::Undo => scenarios::undo(options),
        Scenario::Restart => scenarios::restart(options),
        Scenario::Beyond => scenarios::beyond(options),
        Scenario::Images => scenarios::images(options),
        Scenario::GetStorm => scenarios::get_storm(options),
        Scenario::ReplicatedWrite => scenarios::replicated_write(options),
        Scenario::ReplicaReads => scenarios::replica_reads(options),
        Scenario::Failover => scenarios::failover(options),
        Scenario::Rejoin => scenarios::rejoin(options),
        Scenario::YoungCuts => scenarios::young_cuts(options),
        Scenario::All | Scenario::Ceilings => unreachable!("expanded by run"),
    }
}

impl Options {
    /// `usual`, unless told otherwise; a tenth with `--quick`.
    fn scaled(&self, told: Option<u64>, usual: u64) -> u64 {
        told.unwrap_or(if self.quick { usual.div_ceil(10) } else { usual })
    }
}
