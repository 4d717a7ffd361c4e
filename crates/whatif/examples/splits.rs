//! What a server's memory serves under recorded loads, by how it is divided: the figures of ADR 72
//! (`bench/papers/memory_splits.py` runs this and draws them).
//!
//! Arguments are directories of traces. Output, a line each: trace, sweep, memory in bytes, the part of the load's data
//! that this is, young part, part of the small queue, first and longest step of read-ahead in bytes (empty: the
//! server's), bytes asked for, and the parts of them that were young, found in memory, and read from the device.

use std::io::Write;
use std::path::Path;

use frieze_tier::AheadSteps;
use frieze_whatif::{ServerMemory, TraceLoad, simulate_server};

/// Memory for records, as parts of the bytes of all files.
const PARTS: [f64; 4] = [0.02, 0.05, 0.15, 0.4];
/// Below, frames of 64 KiB are too few for queues of them, and no server has less.
const BYTES_MIN: u64 = 8 << 20;
/// First and longest steps of read-ahead that are tried, in KiB; the first is none.
const AHEAD_KIB: [(u64, u64); 8] =
    [(128, 0), (128, 128), (128, 512), (128, 1024), (128, 4096), (128, 16384), (32, 4096), (512, 4096)];
/// A hit is a page that stayed: nothing is read ahead.
const NO_AHEAD: AheadSteps = AheadSteps { first_bytes: 0, bytes_max: 0 };

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for dir in std::env::args().skip(1) {
        let name = Path::new(&dir).file_name().map_or_else(|| dir.clone(), |name| name.to_string_lossy().into_owned());
        let load = TraceLoad::open(Path::new(&dir))?.read_apart()?;
        let data = load.bytes_of_files();
        let mut tried: Vec<(&str, f64, ServerMemory)> = Vec::new();
        let mut last = 0;
        for part in PARTS {
            let bytes = ((data as f64 * part) as u64).max(BYTES_MIN);
            if std::mem::replace(&mut last, bytes) == bytes {
                continue;
            }
            for step in 0..=20 {
                let memory =
                    ServerMemory { ahead: Some(NO_AHEAD), ..ServerMemory::split(bytes, f64::from(step) / 20.0) };
                tried.push(("young", part, memory));
            }
            for young in [0.0, 0.25, 0.5] {
                let memory = ServerMemory { ahead: Some(NO_AHEAD), ..ServerMemory::split(bytes, young) };
                for small in [0.02, 0.05, 0.1, 0.2, 0.3, 0.5] {
                    tried.push(("small", part, ServerMemory { small_share: Some(small), ..memory }));
                }
            }
            for (first, max) in AHEAD_KIB {
                let memory = ServerMemory::split(bytes, 0.5);
                // Never more than a quarter of the small queue, as in the server.
                let ahead = AheadSteps { first_bytes: first << 10, bytes_max: (max << 10).min(memory.old_bytes / 40) };
                tried.push(("ahead", part, ServerMemory { ahead: Some(ahead), ..memory }));
            }
        }
        let memories: Vec<ServerMemory> = tried.iter().map(|(.., memory)| *memory).collect();
        let found = simulate_server(&load, &memories);
        for ((sweep, part, memory), hits) in tried.iter().zip(found) {
            let part_of = |share: Option<f64>| share.map_or_else(String::new, |share| format!("{share:.5}"));
            let (first, max) = memory.ahead.map_or((String::new(), String::new()), |ahead| {
                (ahead.first_bytes.to_string(), ahead.bytes_max.to_string())
            });
            writeln!(
                out,
                "{name},{sweep},{},{part},{:.2},{},{first},{max},{},{},{},{}",
                memory.young_bytes + memory.old_bytes,
                memory.young_share(),
                part_of(memory.small_share),
                hits.asked_bytes(),
                part_of(hits.young_share()),
                part_of(hits.waited_share().map(|waited| 1.0 - waited)),
                part_of(hits.served_share().map(|served| 1.0 - served)),
            )?;
        }
    }
    Ok(())
}
