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

use std::fs::{File, OpenOptions};
use std::path::PathBuf;

use support::Mount;
use support::served::Served;

/// Chunks of 64 KiB, so that small files have several.
const SETTINGS: &str = "chunk_bytes = 65536\nsegment_bytes = 16777216\n";
const CHUNK: u64 = 65536;

/// A server, and a mount of it.
struct World {
    // Before the server it needs.
    mount: Mount,
    server: Served,
}

impl World {
    /// `None`, with a line that says why, where there is no FUSE.
    fn new() -> Option<World> {
        let server = Served::with(SETTINGS, "127.0.0.1:0");
        let mount = Mount::of(&server)?;
        Some(World { mount, server })
    }

    fn path(&self, path: &str) -> PathBuf {
        self.mount.path(path)
    }

    /// `path` as it was at an instant.
    fn past(&self, at: &str, path: &str) -> PathBuf {
        self.mount.path(format!(".at/{at}/{path}"))
    }

    /// A new file, open to read and write.
    fn file(&self, path: &str) -> File {
        OpenOptions::new().read(true).write(true).create_new(true).open(self.path(path)).unwrap()
    }
}
