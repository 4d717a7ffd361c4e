//! The multi-log through its public interface, on files in memory.

mod chains;
mod check;
mod cost;
mod decoders;
mod gc;
mod golden;
mod images;
mod index_runs;
mod model;
mod recovery;
mod reservations;
mod support;

frieze_harness::count_allocations!();
