//! Traces as directories of Parquet files: events by the hour, kinds of paths, and words that may be left out.
//!
//! [`TraceWriter`] writes one, [`LiveTrace`] while a program runs, [`TraceReader`] reads it; DuckDB, Spark, Polars and
//! pandas read its files as they are.
//! Guarantees: a directory with a manifest is whole; events are sorted by their start within each file; names of paths,
//! users and machines are in files of their own, and nothing else has them.
//! Leaves to others: recording (`trace`), analysis (`python/frieze_traces`), simulation (`whatif`).

mod columns;
mod error;
mod export;
mod import;
mod kinds;
mod live;
mod manifest;
mod reader;
mod rings;
mod row;
mod writer;

pub use error::TraceFileError;
pub use export::{ExportFormat, export_blocks, export_without_names};
pub use import::{ImportFormat, ImportSettings, import};
pub use kinds::{KindRules, PathKind};
pub use live::{LiveSettings, LiveTrace, TRACE_BYTES, TraceState, recover_trace};
pub use manifest::{LostEvents, LostTime, Manifest, RecordedRing, TRACE_VERSION, TraceNote, TracePart, TracedProgram};
pub use reader::TraceReader;
pub use rings::RingImporter;
pub use row::{Purpose, TraceRow};
pub use writer::{TraceNames, TraceWriter, TracedActor, TracedPath};

#[cfg(test)]
frieze_harness::count_allocations!();
#[cfg(test)]
mod import_tests;
#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod tests;
