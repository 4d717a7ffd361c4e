//! `kill -9` of the server at random moments, under load: whatever was acknowledged is there, once, in order and whole.
//!
//! The loads never stop for a kill: their clients ride out the restart and send again what was not answered. So every
//! call succeeds, and at the end the file system must hold exactly what the calls said. Each test prints its seed;
//! `FRIEZE_SEED` sets another, and `FRIEZE_KILLS` how often the server of the library's loads is killed:
//! `make kill-cycles` does it 500 times.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[expect(dead_code, reason = "shared with tests that need more of it")]
mod support;

#[path = "kill/library.rs"]
mod library;
#[path = "kill/loads.rs"]
mod loads;
#[path = "kill/mount.rs"]
mod mount;
#[path = "kill/past.rs"]
mod past;

use frieze_testkit::bytes::random_bytes;

/// Small chunks and segments, so that groups of records and changes of segment are frequent; little memory for the
/// index, so that shelves are made, merged and read under the kills; little memory at all, so that memtables of the
/// store of names become tables.
const SETTINGS: &str = "chunk_bytes = 65536\nsegment_bytes = 8388608\nindex_bytes_max = 262144\nshelve_segments = \
    2\nmemory_bytes_max = 115343360\nsession_timeout = \"20m\"\n";

fn seed() -> u64 {
    let seed = std::env::var("FRIEZE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_121);
    eprintln!("FRIEZE_SEED={seed}");
    seed
}

/// How often the server is killed under the loads of the library.
fn kills() -> u64 {
    std::env::var("FRIEZE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS)
}

const KILLS: u64 = 8;

/// The content of a version of a file that is replaced as a whole: its number, then bytes that follow from it.
fn version(number: u64) -> Vec<u8> {
    let mut bytes = random_bytes(number, 8 + (number * 7919 % 150_000) as usize);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// The number of the version that `bytes` are, all of them.
fn number_of(bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("a version begins with its number"));
    assert!(bytes == version(number), "version {number} is not whole: {} bytes", bytes.len());
    number
}
