//! What POSIX and Linux promise of a file system, on a real mount, where programs rely on it and FUSE file systems are
//! known to stumble. Names and attributes call by call are the business of pjdfstest (`programs.rs`).
//!
//! Without /dev/fuse each test says so and passes.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[expect(dead_code, reason = "shared with tests that need more of it")]
mod support;

#[path = "posix/acls.rs"]
mod acls;
#[path = "posix/appends.rs"]
mod appends;
#[path = "posix/cached.rs"]
mod cached;
#[path = "posix/locks.rs"]
mod locks;
#[path = "posix/mapped.rs"]
mod mapped;
#[path = "posix/names.rs"]
mod names;
#[path = "posix/past.rs"]
mod past;
#[path = "posix/records.rs"]
mod records;
#[path = "posix/rights.rs"]
mod rights;
#[path = "posix/space.rs"]
mod space;

use support::MountedServer;

/// Chunks of 64 KiB, so that small files have several.
const SETTINGS: &str = "chunk_bytes = 65536\nsegment_bytes = 16777216\n";
const CHUNK: u64 = 65536;

fn mount_server() -> Option<MountedServer> {
    MountedServer::with(SETTINGS)
}
