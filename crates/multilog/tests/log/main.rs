//! The multi-log through its public interface, on files in memory.

mod model;
mod support;
