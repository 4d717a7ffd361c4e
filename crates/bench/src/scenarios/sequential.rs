//! Parts of sequential loads.

use std::path::Path as FilePath;

use anyhow::Result;
use frieze_client::{Client, CreateMode, File, Target as Path};

use super::{Spent, progress};
use crate::ceiling::{self, GIB};
use crate::report::BenchReport;

pub(super) fn per_gib(
    scenario: &'static str,
    bytes: u64,
    spent: &Spent,
    ceiling: f64,
    ceiling_name: &'static str,
    more: Vec<(&'static str, f64, &'static str)>,
) -> BenchReport {
    let gib = bytes as f64 / GIB;
    BenchReport {
        scenario,
        value: gib / spent.seconds,
        unit: "GiB/s",
        ceiling,
        ceiling_name,
        cpu_client_s: spent.client_s / gib,
        cpu_server_s: spent.server_s / gib,
        cpu_per: "GiB",
        server_peak_mib: spent.after.peak_mib,
        more,
    }
}

/// Writes `bytes` from the start of the file: the client cuts what it is given into requests of 1 MiB, several in
/// flight.
pub(super) fn write_all(file: &File, data: &[u8], bytes: u64, what: &str) -> Result<()> {
    let bar = progress(what, bytes);
    let mut at = 0;
    while at < bytes {
        let piece = &data[..(bytes - at).min(data.len() as u64) as usize];
        file.write_at(at, piece)?;
        at += piece.len() as u64;
        bar.inc(piece.len() as u64);
    }
    bar.finish_and_clear();
    Ok(())
}

pub(super) fn make(client: &Client, name: &str) -> Result<File> {
    Ok(client.fs().create(&Path::path(name), 0o644, CreateMode::OpenExisting)?)
}

/// Bytes written before the measurement starts.
pub(super) const WARM_BYTES: u64 = 64 << 20;

/// Before each load that is compared with another: memory that was used before, for the bytes written and for those
/// sent. Memory that was untouched for seconds is read at a third of the rate the first time, by any reader.
pub(super) fn ready(directory: &FilePath, bytes: u64, data: &[u8]) -> Result<()> {
    ceiling::warm_memory(directory, bytes)?;
    std::hint::black_box(frieze_base::crc32c(data));
    Ok(())
}
