//! Traces of other programs: logs and tables, line by line, as events of a trace.
//!
//! An import fills what its source knows. What cannot be followed is counted in the manifest's notes; a line that is
//! none of the format is counted, and an input without any line of the format is refused.

mod block;
mod hadoop;
mod htfs;
mod libcachesim;
mod strace;
mod strace_line;
mod target;

use std::path::PathBuf;

use self::target::ImportTarget;
use crate::error::TraceFileError;
use crate::writer::{TraceNames, TraceWriter};

pub(crate) use libcachesim::REQUEST_BYTES;
pub use target::{ImportFormat, ImportSettings};

/// Adds inputs to a trace and returns its words. `progress` receives the number of bytes as they are read.
///
/// # Errors
/// `System`; `Bad` for an input without any line of the format, or with more than 8,388,608 paths.
pub fn import(
    settings: &ImportSettings,
    inputs: &[PathBuf],
    trace: &mut TraceWriter,
    progress: &mut dyn FnMut(u64),
) -> Result<TraceNames, TraceFileError> {
    let mut target = ImportTarget { trace, hasher: settings.hasher, names: TraceNames::default(), rows: 0 };
    target.trace.manifest().key = Some(format!("{:016x}", settings.hasher.fingerprint()));
    for input in inputs {
        let before = target.rows;
        match settings.format {
            ImportFormat::Strace => strace::import(settings, input, &mut target, progress)?,
            ImportFormat::HdfsAudit => hadoop::import_audit(settings, input, &mut target, progress)?,
            ImportFormat::ClientTrace => hadoop::import_transfers(settings, input, &mut target, progress)?,
            ImportFormat::Htfs => htfs::import(settings, input, &mut target, progress)?,
            ImportFormat::Msr | ImportFormat::Tencent | ImportFormat::Alibaba => {
                block::import(settings.format, input, &mut target, progress)?;
            }
            ImportFormat::LibCacheSim => libcachesim::import(settings, input, &mut target, progress)?,
        }
        if target.rows == before {
            let why = format!("it has no call in the format {}", settings.format.name());
            return Err(TraceFileError::bad(input, why));
        }
    }
    Ok(target.names)
}
