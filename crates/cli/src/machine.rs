//! What this machine has, and what may be taken of it.

use anyhow::{Context, Result};
use frieze_whatif::WhatIfError;

/// Memory of the machine, bytes.
///
/// # Errors
/// If `/proc/meminfo` cannot be read.
pub(crate) fn memory_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("cannot read how much memory the machine has")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).context("/proc/meminfo has no MemTotal")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("/proc/meminfo has no number at MemTotal")?;
    Ok(kib << 10)
}

/// Most bytes that a simulation may take: four fifths of the machine's memory.
///
/// # Errors
/// As [`memory_bytes`].
pub(crate) fn simulation_bytes_max() -> Result<u64> {
    Ok(memory_bytes()? / 10 * 8)
}

/// Refuses a simulation that would take more than [`simulation_bytes_max`].
///
/// # Errors
/// `TooMuchMemory`, with what would take less.
pub(crate) fn within_memory(needed_bytes: u64) -> Result<()> {
    let allowed_bytes = simulation_bytes_max()?;
    let advice = "trace for a shorter time, or take a sample of the files".to_owned();
    match needed_bytes <= allowed_bytes {
        true => Ok(()),
        false => Err(WhatIfError::TooMuchMemory { needed_bytes, allowed_bytes, advice }.into()),
    }
}
