//! The commands about traces.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Look at what programs did with the file system
///
/// With `--trace DIR` (or `FRIEZE_TRACE`) `frieze mount`, `frieze serve` for its Hadoop clients, and every other
/// command record each call that they serve: what, when, how long, which file, which bytes. Never what is in a file.
/// DIR becomes a trace for 'frieze analyze' and 'frieze what-if', while the program runs and after it was killed.
/// A server also records what it does at its device.
///
/// With `--trace-ring SIZE` (or `FRIEZE_TRACE_RING`) the newest calls stay in a file of that size, 64 bytes each:
/// 'frieze trace save' makes a trace of it after something odd.
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  frieze mount /mnt/f --trace ~/traces/f      record all calls, for 'frieze analyze ~/traces/f'
  frieze mount /mnt/f --trace-ring 256M       record four million calls, the newest
  frieze trace list                           the rings of this user
  frieze trace summary                        what was called, how often, how long it took, which files
  frieze trace save ~/traces/monday           the rings as a trace: Parquet files that stay
  frieze trace import --format strace build.strace --to ~/traces/build
  frieze trace export ~/traces/monday --to ~/public/monday    without the names of files, users and programs
  FRIEZE_TRACE_RING=16M frieze get -r /data . record one command")]
pub(crate) enum TraceCommand {
    List(TraceListArgs),
    Summary(TraceSummaryArgs),
    Save(TraceSaveArgs),
    Export(TraceExportArgs),
    Import(TraceImportArgs),
}

/// List the rings that programs have recorded
///
/// A ring stays when its program has ended; the newest eight of ended programs are kept.
#[derive(Debug, Args)]
#[command(after_long_help = "\
JSON: one line a ring: ring, program, pid, running, events, overwritten, torn, first, last.")]
pub(crate) struct TraceListArgs {}

/// Summarize rings: calls, bytes, times, the files with most bytes
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze trace summary                        all rings of this user
  frieze trace summary mount-4711-1.ring      one of them
  frieze trace summary --top 50 --json | jq .files

JSON: rings, events, overwritten, torn, unknown, first, last, calls (a list of gateway, call, count, failed, bytes,
p50_ns, p90_ns, p99_ns, max_ns), files (a list of inode, path, read, written).")]
pub(crate) struct TraceSummaryArgs {
    /// Ring files, or names in the directory of the rings [default: all in it].
    #[arg(value_name = "RING")]
    pub(crate) rings: Vec<PathBuf>,

    /// Files with most bytes to name.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) top: usize,
}

/// Save rings as a trace: a directory of Parquet files
///
/// Rings are written over; a trace stays. DuckDB, Spark, Polars and pandas read its files as they are
/// (docs/formats.md). Programs that record go on.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze trace save ~/traces/monday                      all rings of this user
  frieze trace save --last 10m ~/traces/odd mount-4711-1.ring

JSON: trace, events, overwritten, torn, unknown, paths.")]
pub(crate) struct TraceSaveArgs {
    /// Directory of the trace: empty, or not there yet.
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,

    /// Ring files, or names in the directory of the rings [default: all in it].
    #[arg(value_name = "RING")]
    pub(crate) rings: Vec<PathBuf>,

    /// Only events of the last such time, such as 10m or 2h.
    #[arg(long, value_name = "TIME")]
    pub(crate) last: Option<String>,
}

/// Copy a trace to give it away, or in the format of a simulator
///
/// A copy has no name of a file, user, program or machine: paths are keyed hashes, and the key stays here. What kind of
/// file a path is (a log, a table, a source) was decided before, and is in the copy.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze trace export monday --to monday-public
  frieze trace export monday --to monday.oracle --format libcachesim --block 64K
  frieze trace export monday --to monday.csv --format cachebench --writes

JSON: trace or file, events or requests.")]
pub(crate) struct TraceExportArgs {
    /// The trace.
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,

    /// Directory or file to write, which must not be there.
    #[arg(long, value_name = "PATH")]
    pub(crate) to: PathBuf,

    /// What to write.
    #[arg(long, value_enum, default_value_t = TraceExportFormat::Trace)]
    pub(crate) format: TraceExportFormat,

    /// Keep names of files, users, programs and machines.
    #[arg(long)]
    pub(crate) names: bool,

    /// Bytes of a block, for simulators.
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    pub(crate) block: String,

    /// Writes as well as reads, for simulators.
    #[arg(long)]
    pub(crate) writes: bool,
}

/// What an export writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceExportFormat {
    /// A trace without names.
    Trace,
    /// Requests of libCacheSim (oracleGeneral, 24 bytes each).
    Libcachesim,
    /// A table that CacheBench replays.
    Cachebench,
}

/// Make a trace of what another program recorded
///
/// An import fills what its source knows; 'manifest.json' of the trace names the columns that stay empty, and counts
/// what could not be followed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strace -f -ttt -T -y -e trace=file,desc,process -o build.strace make
  frieze trace import --format strace --under ~/project build.strace --to build
  frieze trace import --format hdfs-audit hdfs-audit.log --to names
  hdfs fsck / -files -blocks > blocks.txt
  frieze trace import --format hdfs-clienttrace --blocks blocks.txt datanode-*.log --to bytes
  frieze trace import --format msr hm_0.csv --to hm

JSON: trace, events, paths, notes (a list of what, count), absent (columns).")]
pub(crate) struct TraceImportArgs {
    /// What the files are.
    #[arg(long, value_enum)]
    pub(crate) format: TraceImportFormat,

    /// Files to read, in the order of time.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// Directory of the trace: empty, or not there yet.
    #[arg(long, value_name = "TRACE")]
    pub(crate) to: PathBuf,

    /// Only calls on paths below this one, which becomes the root (strace).
    #[arg(long, value_name = "PATH")]
    pub(crate) under: Option<PathBuf>,

    /// Output of 'hdfs fsck / -files -blocks': names the files of blocks (hdfs-clienttrace).
    #[arg(long, value_name = "FILE")]
    pub(crate) blocks: Option<PathBuf>,

    /// Hours that the zone of the log is ahead of UTC (hdfs-audit, hdfs-clienttrace).
    #[arg(long, value_name = "HOURS", default_value_t = 0.0, allow_negative_numbers = true)]
    pub(crate) zone: f64,

    /// When the program began, for times that begin with it (htfs, libcachesim): RFC 3339.
    #[arg(long, value_name = "TIME")]
    pub(crate) begin: Option<String>,
}

/// What an import reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceImportFormat {
    /// strace -f -ttt -T -y -e trace=file,desc,process
    Strace,
    /// The NameNode's audit log: calls on names
    HdfsAudit,
    /// 'clienttrace' lines of DataNodes: bytes
    HdfsClienttrace,
    /// HTFS, the tracing file system of Facebook's Hadoop
    Htfs,
    /// Block traces of Microsoft Research Cambridge
    Msr,
    /// Block traces of Tencent
    Tencent,
    /// Block traces of Alibaba
    Alibaba,
    /// Requests of libCacheSim (oracleGeneral, not compressed)
    Libcachesim,
}
