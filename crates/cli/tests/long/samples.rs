//! What the server takes, over time.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::client;

/// Samples of memory and disk, and what happened between them.
pub(crate) struct Samples {
    data: PathBuf,
    all: Vec<Sample>,
    notes: Vec<(usize, String)>,
}

struct Sample {
    at: Duration,
    resident_bytes: u64,
    index_bytes: u64,
    log_bytes: u64,
    records: u64,
    disk_bytes: u64,
    sessions: u64,
    inodes: u64,
}

impl Samples {
    pub(crate) fn new(data: &Path) -> Samples {
        Samples { data: data.to_owned(), all: Vec::new(), notes: Vec::new() }
    }

    /// Something that happened just now.
    pub(crate) fn note(&mut self, words: String) {
        self.notes.push((self.all.len(), words));
    }

    pub(crate) fn take(&mut self, at: Duration, address: &str) {
        let status = client(address).status().unwrap();
        assert_eq!(status.health, "healthy");
        self.all.push(Sample {
            at,
            resident_bytes: status.resident_bytes,
            index_bytes: status.index_bytes,
            log_bytes: status.log_bytes,
            records: status.records,
            disk_bytes: disk_bytes(&self.data),
            sessions: status.sessions,
            inodes: status.inodes,
        });
    }

    /// By how many bytes a line through the resident memory since `from` rises from there to the end, and by how many
    /// it may.
    pub(crate) fn rise_of_memory(&self, from: Duration) -> (i64, i64) {
        let points: Vec<(f64, f64)> = self
            .all
            .iter()
            .filter(|sample| sample.at >= from)
            .map(|sample| (sample.at.as_secs_f64(), sample.resident_bytes as f64))
            .collect();
        let count = points.len() as f64;
        let middle = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (middle_x, middle_y) = (middle(|point| point.0), middle(|point| point.1));
        let together: f64 = points.iter().map(|(x, y)| (x - middle_x) * (y - middle_y)).sum();
        let spread: f64 = points.iter().map(|(x, _)| (x - middle_x).powi(2)).sum();
        let length = points.last().map_or(0.0, |last| last.0) - points.first().map_or(0.0, |first| first.0);
        let allowed = (middle_y * SHARE_ALLOWED).max(BYTES_ALLOWED);
        ((together / spread * length) as i64, allowed as i64)
    }
}

const SHARE_ALLOWED: f64 = 0.05;
const BYTES_ALLOWED: f64 = 4.0 * MIB;
const MIB: f64 = 1048576.0;

/// What a directory takes of the disk, holes left out.
fn disk_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let bytes = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        // Files come and go meanwhile.
        let meta = std::fs::symlink_metadata(&path).ok()?;
        Some(if meta.is_dir() { disk_bytes(&path) } else { meta.blocks() * 512 })
    };
    entries.filter_map(bytes).sum()
}

/// A line of bars, each the share of the largest.
fn bars(values: impl Iterator<Item = u64> + Clone) -> String {
    let largest = values.clone().max().unwrap_or(0).max(1);
    values.map(|value| char::from_u32(0x2581 + (value * 7 / largest) as u32).unwrap_or('?')).collect()
}

impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "   time   resident   index   records     log   on disk  sessions  inodes")?;
        let step = self.all.len().div_ceil(LINES).max(1);
        for (number, sample) in self.all.iter().enumerate() {
            for (_, words) in self.notes.iter().filter(|(before, _)| *before == number) {
                writeln!(f, "          {words}")?;
            }
            if (number + 1) % step != 0 {
                continue;
            }
            let mib = |bytes: u64| bytes as f64 / MIB;
            writeln!(
                f,
                "{:>5} s {:>6.1} MiB {:>5.1} MiB {:>7} {:>5.0} MiB {:>5.0} MiB {:>6} {:>9}",
                sample.at.as_secs(),
                mib(sample.resident_bytes),
                mib(sample.index_bytes),
                sample.records,
                mib(sample.log_bytes),
                mib(sample.disk_bytes),
                sample.sessions,
                sample.inodes,
            )?;
        }
        for (_, words) in self.notes.iter().filter(|(before, _)| *before == self.all.len()) {
            writeln!(f, "          {words}")?;
        }
        writeln!(f, "resident {}", bars(self.all.iter().map(|sample| sample.resident_bytes)))?;
        writeln!(f, "on disk  {}", bars(self.all.iter().map(|sample| sample.disk_bytes)))?;
        let third = self.all.last().map_or(Duration::ZERO, |last| last.at / 3);
        let (rise, allowed) = self.rise_of_memory(third);
        write!(
            f,
            "over the last two thirds resident memory rises by {:.1} MiB; {:.1} MiB are allowed",
            rise as f64 / MIB,
            allowed as f64 / MIB
        )
    }
}

/// Lines of the table.
const LINES: usize = 20;
