//! Storage drivers: devices of files, the clock of the machine, and their simulated twins.
//!
//! Guarantees: the one place of frieze that touches files of the server and the machine's clocks. Two implementations
//! of each seam, real ([`FileDisk`], [`MachineTime`]) and simulated ([`SimDisk`], [`SimTime`]), so that the whole
//! server runs under a seeded crash model. An error names the operation, the file and the cause.
//! Leaves to others: formats and checksums of what is stored (`multilog`, `metalog`), threads (`node`).

mod adjtime;
mod device;
mod directory_lock;
mod error;
mod file_disk;
mod page_cache;
mod private;
mod sim_disk;
mod state_file;
mod syscalls;
mod time;
mod view;
mod window;

pub use device::{Disk, DiskFile, PAGE_BYTES, Space};
pub use error::{DiskOp, Error, Result};
pub use file_disk::{FileDisk, FileDiskSettings};
pub use page_cache::{cached_below, drop_cached_below};
pub use private::{DIRECTORY_MODE, FILE_MODE, tighten};
pub use sim_disk::{CrashKind, SimDisk};
pub use state_file::{STATE_BYTES_MAX, StateFile};
pub use time::{MachineTime, SimTime, TimeSource};
pub use view::{TreeCopy, ViewDisk};

pub use frieze_hlc::ClockReading;

#[cfg(test)]
frieze_harness::count_allocations!();
