//! Several mounts of one server show one truth, at once: names, attributes and bytes under cache grants, locks, and
//! what happens while the server is away. Without /dev/fuse each test says so and passes.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[path = "several/away.rs"]
mod away;
#[path = "several/directories.rs"]
mod directories;
#[path = "support/inside.rs"]
mod inside;
#[path = "several/locks.rs"]
mod locks;
#[path = "several/names.rs"]
mod names;
#[path = "several/nearby.rs"]
mod nearby;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use frieze_client::Client;
use frieze_fuse::{MountHandle, MountOptions, mount};
use frieze_harness::requirements;
use frieze_node::Server;
use tempfile::TempDir;

use inside::{connect, start};

/// A server with several mounts, each by a client of its own.
pub(crate) struct World {
    dir: TempDir,
    server: Option<Server>,
    mounts: Vec<Option<MountHandle>>,
}

impl World {
    /// `None`, with a line that says why, where there is no FUSE.
    pub(crate) fn new(mounts: usize) -> Option<World> {
        World::with_timeout(mounts, Duration::from_secs(30))
    }

    pub(crate) fn with_timeout(mounts: usize, timeout: Duration) -> Option<World> {
        if !requirements::fuse() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let server = start(dir.path());
        let mut world = World { dir, server: Some(server), mounts: Vec::new() };
        for index in 0..mounts {
            let mountpoint = world.dir.path().join(format!("mnt{index}"));
            fs::create_dir(&mountpoint).unwrap();
            let mounted = mount(connect(world.dir.path(), timeout), &mountpoint, MountOptions::default()).unwrap();
            world.mounts.push(Some(mounted));
        }
        // A mount caches nothing before its first question about recalls is answered.
        for index in 0..mounts {
            world.wait_for_lease(index);
        }
        Some(world)
    }

    fn wait_for_lease(&self, index: usize) {
        let path = self.path(index, "lease");
        let caches = || {
            fs::write(&path, "").unwrap();
            fs::remove_file(&path).unwrap();
            self.server.as_ref().unwrap().parts().service.sessions.grants() > index
        };
        while !caches() {
            pass(Duration::from_millis(5));
        }
    }

    pub(crate) fn path(&self, mount: usize, path: &str) -> PathBuf {
        self.dir.path().join(format!("mnt{mount}")).join(path)
    }

    pub(crate) fn client(&self) -> Client {
        connect(self.dir.path(), Duration::from_secs(30))
    }

    pub(crate) fn stop_server(&mut self) {
        self.server.take().unwrap().stop().unwrap();
    }

    pub(crate) fn start_server(&mut self) {
        self.server = Some(start(self.dir.path()));
    }

    /// Does what may need the server, and then, while there is none, what may not. What mounts keep they keep for three
    /// seconds: on a machine so busy that the server takes one to stop, all of it is done again.
    pub(crate) fn while_nobody_is_asked(&mut self, before: impl Fn(), meanwhile: impl Fn()) {
        let stops_in_time = |world: &mut World| {
            before();
            let began = clock();
            world.stop_server();
            let is_in_time = clock() - began < Duration::from_secs(1);
            if is_in_time {
                meanwhile();
            }
            world.start_server();
            is_in_time
        };
        assert!((0..10).any(|_| stops_in_time(self)), "the server never stops within a second");
    }

    pub(crate) fn unmount(&mut self, mount: usize) {
        self.mounts[mount].take().unwrap().unmount().unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // In this order, or the mounts would wait for their server.
        self.mounts.clear();
        if let Some(server) = self.server.take() {
            server.stop().unwrap();
        }
    }
}

/// Time since some moment in the past.
pub(crate) fn clock() -> Duration {
    Duration::from_nanos(frieze_client::mono().0)
}

/// Lets time pass: for what must *not* happen meanwhile, and for grants that come back after a second.
pub(crate) fn pass(duration: Duration) {
    let until = clock() + duration;
    while let Some(left) = until.checked_sub(clock()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}
