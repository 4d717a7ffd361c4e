//! The command that tries a recorded load on other hardware.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What a recorded load would cost on other hardware and under other policies
///
/// Reads a trace directory ('frieze trace --help' says how one is made) and simulates memory, flash and disks under it:
/// how long reads wait, what caches serve, how fast flash wears out, what a system costs, which are worth their price.
/// The answer comes in words first, then as a table. With `--sweep` all combinations are tried on all cores; Ctrl-C
/// ends the run with those that are done, and exit status 130. Nothing is sent anywhere, and no server is asked.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze what-if trace/                                        the load on the study's hardware
  frieze what-if trace/ --sweep ram=10,30,100 flash=0,60,120,240 disks=10,15,20
  frieze what-if trace/ --profile hdd-nvme --set disk.seek=6ms --set flash=200
  frieze what-if trace/ --set flash=60 --on-flash-hit keep --writes hints
  frieze what-if trace/ --fast14 --report report               one page, report/what-if.html
  frieze what-if trace/ --as-server --memory 8G                what a server with so much memory serves from it
  frieze what-if trace/ --figures --out report                 figures 9 to 15, 18 and 20 of the study, on this load

Profiles: fast14 (the study's hardware), hdd-nvme, hdd-qlc, or a file in TOML like them: every number with its source.
Settings: ram.size, ram.price, ram.afr, flash.size, flash.latency, flash.bandwidth, flash.cycles, flash.amplification,
flash.utilisation, flash.price, disk.count, disk.seek, disk.bandwidth, disk.slice, disk.price, disk.afr, net.latency,
net.sigma, net.tail, net.alpha, object.latency, object.sigma, object.tail, object.alpha, object.part,
object.get_price, object.put_price, object.price; ram, flash and disks for the sizes. With disks=0 files lie in an
object store.

JSON: answer (a list of label and words), assumptions, systems (a list of name, ram_gb, flash_gb, disks, foreground_ms,
foreground_slow_ms, p99_ms, hit_ratio, ram_hit_ratio, utilisation, flash_years, capex, opex, opex_with_ram, justified,
overloaded, object_gets_a_year, object_rent, hit_ratio_error of a sample, table1). With --as-server: young_bytes,
old_bytes, memory, calls, device (simulated, counted), splits, assumptions; of each: asked_bytes, young_bytes, wanted,
scanned, ahead, evicted, young_share, found_share, served_share, waited_share.")]
pub(crate) struct WhatIfArgs {
    /// Directory of the trace [default, and '-': the first line of standard input names it].
    #[arg(value_name = "TRACE")]
    pub(crate) trace: Option<PathBuf>,

    /// The study's hardware, and without --sweep its 36 systems.
    #[arg(long, conflicts_with = "profile")]
    pub(crate) fast14: bool,

    /// Hardware: a name, or a file in TOML [default: fast14].
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<String>,

    /// Change a number of the hardware, such as disk.seek=8ms. May be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,

    /// Try all combinations, such as ram=10,30,100 flash=0,60 disks=10,15.
    #[arg(long, value_name = "NAME=VALUE,...", num_args = 1..)]
    pub(crate) sweep: Vec<String>,

    /// Which page leaves a cache.
    #[arg(long, value_enum, default_value = "lru")]
    pub(crate) policy: PolicyArg,

    /// What writes do to caches: come in, do not, or do where a flush or a file compacted within the hour is written.
    #[arg(long, value_enum, default_value = "no-write-allocate")]
    pub(crate) writes: WritesArg,

    /// What a read does that finds its page in flash.
    #[arg(long, value_enum, default_value = "promote")]
    pub(crate) on_flash_hit: OnFlashHitArg,

    /// Place files that are written in the background and are smaller than so many MB in flash, whole.
    #[arg(long, value_name = "MB")]
    pub(crate) buffer_below: Option<u64>,

    /// Write all logs to one file on a disk of its own.
    #[arg(long)]
    pub(crate) combined_log: bool,

    /// Count what a put waits for its log.
    #[arg(long)]
    pub(crate) durable_puts: bool,

    /// Seconds at the beginning that fill caches and are not counted.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) warm_up: u64,

    /// Decide about pages of 4 KiB, not about frames of 64 KiB: exact, slower, more memory.
    #[arg(long)]
    pub(crate) pages: bool,

    /// How files are replicated.
    #[arg(long, value_enum, default_value = "hdfs")]
    pub(crate) model: ModelArg,

    /// Data and parity parts of --model erasure-coded, and KiB that a part takes before the next has its turn.
    #[arg(long, value_name = "DATA+PARITY[:KIB]", default_value = "6+3:4", value_parser = code)]
    pub(crate) code: (u8, u8, u32),

    /// Copies of each file.
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) replicas: u8,

    /// The trace has one in so many files of a machine, by which memory, flash and disks are divided [default: as the
    /// trace says].
    #[arg(long, value_name = "FILES", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) scale: Option<u32>,

    /// Begin every call later by a random time of up to so many milliseconds: does the network's latency matter?
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 0,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u64).range(..=60_000)
    )]
    pub(crate) jitter: u64,

    /// End the trace early, so many days before its end: was it long enough? Such as -2; fractions are allowed.
    #[arg(long, value_name = "-DAYS", allow_negative_numbers = true)]
    pub(crate) finish: Option<f64>,

    /// Simulate caches alone under one in so many frames, such as 1/64, in caches as much smaller: hits with their
    /// error, no latencies.
    #[arg(long, value_name = "1/N", value_parser = sample, conflicts_with_all = ["figures", "report"])]
    pub(crate) sample: Option<u32>,

    /// Threads [default: the processor's].
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<usize>,

    /// Simulate the systems of figures 9 to 15, 18 and 20 of the study as well, and write a table of each: needs --out.
    #[arg(long, requires = "out")]
    pub(crate) figures: bool,

    /// What a server of frieze finds in its memory: predicted by its own policies, beside what a recorded server
    /// counted.
    #[arg(long, conflicts_with_all = ["fast14", "profile", "set", "sweep", "sample", "figures", "report", "out"])]
    pub(crate) as_server: bool,

    /// Memory of that server for everything, such as 512M [default: as the trace says, else as on this machine].
    #[arg(long, value_name = "SIZE", requires = "as_server")]
    pub(crate) memory: Option<String>,

    /// The part of its memory for records that the youngest have, such as 0.25 or 25% [default: the server's].
    #[arg(long, value_name = "SHARE", requires = "as_server")]
    pub(crate) young: Option<String>,

    /// Write the answer, the tables and a picture of prices to this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Write the answer as one page to this directory: systems by cost and latency, with prices to move.
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyArg {
    Lru,
    Fifo,
    Clock,
    Sieve,
    S3Fifo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WritesArg {
    WriteAllocate,
    NoWriteAllocate,
    Hints,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFlashHitArg {
    Promote,
    Keep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModelArg {
    /// The program reads the replica on its own machine.
    Hdfs,
    /// Chains of frieze: any replica serves a read; chunks of 64 MiB.
    Chains,
    /// Every replica is on another machine.
    Remote,
    /// Every replica compacts its own copy.
    LocalCompaction,
    /// No copies, but the parts of a code (--code), each on a machine of its own; a read waits for the slowest.
    ErasureCoded,
}

/// `6+3:4`.
fn code(text: &str) -> Result<(u8, u8, u32), String> {
    let (parts, cell) = text.split_once(':').unwrap_or((text, "4"));
    let read = parts
        .split_once('+')
        .and_then(|(data, parity)| Some((data.parse().ok()?, parity.parse().ok()?, cell.parse::<u32>().ok()?)));
    match read {
        Some((data @ 1..=24, parity @ 0..=8, cell @ 1..=65_536)) => Ok((data, parity, cell)),
        _ => Err("give 1 to 24 data parts, 0 to 8 of parity and 1 to 65536 KiB a cell, such as 6+3:1024".to_owned()),
    }
}

/// `1/64`.
fn sample(text: &str) -> Result<u32, String> {
    match text.strip_prefix("1/").and_then(|count| count.parse().ok()) {
        Some(count @ 2..=65_536) => Ok(count),
        _ => Err("give 1/2 to 1/65536, such as 1/64".to_owned()),
    }
}
