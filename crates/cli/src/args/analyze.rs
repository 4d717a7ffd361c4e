//! The command that analyses traces.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What computes the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineArg {
    Duckdb,
    Spark,
}

/// Analyse traces: what is read and written, by which files, how near, how often
///
/// Writes DIR/report.html, one file that needs no network: I/O and data at each layer, types, sizes and lifetimes of
/// files, a locality map and the heat of reads, rates, bursts and latencies. Beside it each table as CSV and Parquet,
/// and each picture as SVG. A run that was stopped continues at its last stage.
///
/// The first run needs Python (3.10 or newer) and a network: it installs DuckDB, Ibis and Altair, some 300 MB, into
/// $XDG_CACHE_HOME/frieze. `FRIEZE_PYTHON` names another interpreter; if that has the packages, nothing is installed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze analyze trace                        read frieze-report/report.html then
  frieze analyze node1 node2 node3 --out all  several traces as one load
  frieze analyze trace --json | jq .figures.heat.words
  frieze analyze big --engine spark           on PySpark: needs a JDK of version 17

Exit status: 2 if a trace can not be analysed: a message names file, column or version.

JSON: one document: traces, events, begin_ns, end_ns, purposes, sampled, assumptions (a list of
what, count), figures (by name: title, paper, words, missing, rows).")]
pub(crate) struct AnalyzeArgs {
    /// Directories of traces.
    #[arg(value_name = "TRACE", required = true)]
    pub(crate) traces: Vec<PathBuf>,

    /// Directory of the report.
    #[arg(long, value_name = "DIR", default_value = "frieze-report")]
    pub(crate) out: PathBuf,

    /// What computes the tables: duckdb (in the process) or spark (for traces that outgrow one machine; SPARK_MASTER
    /// names the cluster).
    #[arg(long, value_name = "ENGINE", default_value = "duckdb", hide_possible_values = true)]
    pub(crate) engine: EngineArg,

    /// Leave out files that are not whole, and report how many there are.
    #[arg(long)]
    pub(crate) partial: bool,

    /// Memory of the engine; beyond it, work spills into DIR.
    #[arg(long, value_name = "SIZE", default_value = "4GB")]
    pub(crate) memory: String,

    /// Copies of each file below the calls, for the layers below them.
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    pub(crate) replicas: u32,

    /// Bytes that the disks hold, for the share that is never touched.
    #[arg(long, value_name = "BYTES")]
    pub(crate) stored: Option<u64>,

    /// Count data in pages of so many bytes, a power of two, as a cache sees it; 1 is exact to the byte.
    #[arg(long, value_name = "BYTES", default_value_t = 1)]
    pub(crate) page: u64,
}
