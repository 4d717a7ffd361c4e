//! Programs that people run, on a real mount: what verifies every byte it wrote (fio, fsx), what knows POSIX by heart
//! (pjdfstest), what builds and stores source (cargo, git), what trusts a file system with its tables (SQLite,
//! PostgreSQL), what wears it down (stress-ng, dbench).
//!
//! Each part says so and passes where its program or /dev/fuse is missing; `scripts/bootstrap.sh --tests` installs
//! them.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[expect(dead_code, reason = "shared with tests that need more of it")]
mod support;

#[path = "programs/build.rs"]
mod build;
#[path = "programs/fio.rs"]
mod fio;
#[path = "programs/fsx.rs"]
mod fsx;
#[path = "programs/pjdfstest.rs"]
mod pjdfstest;
#[path = "programs/postgres.rs"]
mod postgres;
#[path = "programs/stores.rs"]
mod stores;
#[path = "programs/stress.rs"]
mod stress;

use std::process::{Command, Output};

use support::MountedServer;

/// Chunks smaller than the files, so that writes cross them, and segments that are filled in a moment.
const SETTINGS: &str = "chunk_bytes = 1048576\nsegment_bytes = 16777216\n";

fn mount_server() -> Option<MountedServer> {
    MountedServer::with(SETTINGS)
}

/// Runs a program that has to succeed.
#[track_caller]
fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
