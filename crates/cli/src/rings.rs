//! Where rings of recorded calls are, and what `--trace-ring` and `--trace` begin.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use frieze_client::{Recorder, RingSettings};
use frieze_tracefile::{LiveSettings, LiveTrace, TRACE_BYTES};

use crate::args::CommonArgs;
use crate::failure::UsageError;
use crate::format;

/// Ring of `--trace` without `--trace-ring`: a million events.
const LIVE_RING: &str = "64M";

/// What records the calls of a run.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// The ring; `None` without `--trace-ring` and `--trace`.
    pub(crate) recorder: Option<Recorder>,
    /// Writes into the directory of `--trace`.
    live: Option<(PathBuf, LiveTrace)>,
}

impl Recording {
    /// Begins to record as the options ask.
    ///
    /// # Errors
    /// [`UsageError`] for a size that is none; why no ring can be made, or no trace written.
    pub(crate) fn begin(common: &CommonArgs, program: &str) -> Result<Recording> {
        // An empty variable of the environment asks for nothing.
        let into = common.trace_into.as_ref().filter(|dir| !dir.as_os_str().is_empty());
        let default = into.map(|_| LIVE_RING.to_owned());
        let Some(text) = common.trace_ring.clone().or(default) else { return Ok(Recording::default()) };
        let bytes =
            parse_size(&text).ok_or_else(|| UsageError(format!("--trace-ring {text}: give a size, such as 256M")))?;
        let dir = rings_dir(common.trace_dir.as_deref())?;
        let settings = RingSettings { bytes, dir, program: program.to_owned(), is_live: into.is_some() };
        let recorder = Recorder::create(&settings).context("--trace-ring")?;
        let Some(dir) = into else { return Ok(Recording { recorder: Some(recorder), live: None }) };
        let bytes_max = parse_size(&common.trace_max).filter(|bytes| TRACE_BYTES.contains(bytes));
        let bytes_max = bytes_max.ok_or_else(|| {
            UsageError(format!("--trace-max {}: give a size from 1M on, such as 10G", common.trace_max))
        })?;
        let settings = LiveSettings { dir: dir.clone(), bytes_max };
        let begun = LiveTrace::begin(&recorder, &settings, |error| {
            tracing::warn!("--trace: {error}; events are kept in the ring meanwhile");
        });
        let live = begun.with_context(|| format!("--trace {}", format::local(dir)))?;
        Ok(Recording { recorder: Some(recorder), live: Some((dir.clone(), live)) })
    }

    /// Writes what is left into the directory of `--trace`. A fault is a warning: the command itself has done its work.
    pub(crate) fn finish(self) {
        let Some((dir, live)) = self.live else { return };
        if let Err(error) = live.finish() {
            let dir = format::local(&dir);
            tracing::warn!("--trace {dir}: {error}; its end is in the ring, and 'frieze analyze {dir}' adds it");
        }
    }
}

/// The directory of rings.
///
/// # Errors
/// [`UsageError`] if none is given and there is no home to put it in.
pub(crate) fn rings_dir(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(dir) = given {
        return Ok(dir.to_owned());
    }
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    // Not in /tmp: another user may have made a directory of that name first.
    let state =
        state.ok_or_else(|| UsageError("--trace-dir: name the directory of rings; there is no HOME".to_owned()))?;
    Ok(state.join("frieze/trace"))
}

/// `256M`: a number of bytes, or of powers of 1024.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// The rings in a directory, those of traces that are recorded among them, by name; none if there is no such directory.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn rings_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut rings = rings_right_in(dir)?;
    rings.extend(rings_right_in(&dir.join("live"))?);
    rings.sort();
    Ok(rings)
}

fn rings_right_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot read {}", format::local(dir)))?,
    };
    let mut rings = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", format::local(dir)))?.path();
        if path.extension().is_some_and(|extension| extension == "ring") {
            rings.push(path);
        }
    }
    Ok(rings)
}

/// Words for a directory without rings.
pub(crate) fn none_found(dir: &Path) -> String {
    format!("no ring in {}: record one with --trace-ring 256M", format::local(dir))
}

/// The rings with these names or paths; all of this user if none is named.
///
/// # Errors
/// If there is none.
pub(crate) fn named_rings(common: &CommonArgs, named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let dir = rings_dir(common.trace_dir.as_deref())?;
    let paths: Vec<PathBuf> = match named.is_empty() {
        true => rings_in(&dir)?,
        // A name in the directory, as `trace list` shows it, or a path.
        false => named.iter().map(|ring| if ring.exists() { ring.clone() } else { dir.join(ring) }).collect(),
    };
    match paths.is_empty() {
        true => anyhow::bail!(none_found(&dir)),
        false => Ok(paths),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_with_a_unit() {
        let sizes = ["256M", "1g", "64KiB", "4096", "16B"].map(parse_size);
        assert_eq!(sizes, [Some(256 << 20), Some(1 << 30), Some(64 << 10), Some(4096), Some(16)]);
        assert!(
            ["", "M", "-1M", "1T", "1.5G", "99999999999999999999", "99999999999G"]
                .iter()
                .all(|text| { parse_size(text).is_none() })
        );
    }
}
