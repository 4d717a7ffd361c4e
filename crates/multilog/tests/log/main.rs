//! The multi-log through its public interface, on files in memory.

mod burying;
mod chains;
mod check;
mod cost;
mod golden;
mod images;
mod model;
mod recovery;
mod shelves;
mod support;
