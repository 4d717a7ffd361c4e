//! What this machine has.

use anyhow::{Context, Result};

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
