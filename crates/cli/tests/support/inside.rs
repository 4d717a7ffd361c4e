//! Mounts of a server within the test's own process, and clients of it by its socket.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use frieze_client::{Client, Options};
use frieze_fuse::{MountHandle, MountOptions, mount};
use frieze_harness::requirements;
use frieze_testkit::local::LocalServer;
use frieze_testkit::wait::wait_until;

/// A server with mounts, each by a client of its own: `mnt0`, `mnt1` and so on.
pub(crate) struct LocalMounts {
    server: LocalServer,
    mounts: Vec<Option<MountHandle>>,
}

impl LocalMounts {
    /// `None`, with a line that says why, where there is no FUSE.
    pub(crate) fn new(mounts: usize) -> Option<LocalMounts> {
        LocalMounts::with_timeout(mounts, TIMEOUT)
    }

    /// As `new`, with clients that wait at most so long for the server.
    pub(crate) fn with_timeout(mounts: usize, timeout: Duration) -> Option<LocalMounts> {
        if !requirements::fuse() {
            return None;
        }
        let mut mounted = LocalMounts { server: LocalServer::at_socket(), mounts: Vec::new() };
        for index in 0..mounts {
            let mountpoint = mounted.mountpoint(index);
            fs::create_dir(&mountpoint).unwrap();
            let mount = mount(mounted.connect(timeout), &mountpoint, MountOptions::default()).unwrap();
            mounted.mounts.push(Some(mount));
        }
        // A mount caches nothing before its first question about recalls is answered.
        for index in 0..mounts {
            mounted.wait_for_lease(index);
        }
        Some(mounted)
    }

    fn wait_for_lease(&self, index: usize) {
        let path = self.path(index, "lease");
        wait_until("the mount caches", || {
            fs::write(&path, "").unwrap();
            fs::remove_file(&path).unwrap();
            self.server.cache_leases() > index
        });
    }

    /// A client of the server.
    pub(crate) fn connect(&self, timeout: Duration) -> Client {
        let server = self.server.socket().parse().unwrap();
        Client::connect(Options { server, timeout, ..Options::default() }).unwrap()
    }

    /// A path of the test's own files.
    pub(crate) fn local(&self, name: &str) -> PathBuf {
        self.server.path(name)
    }

    pub(crate) fn mountpoint(&self, mount: usize) -> PathBuf {
        self.local(&format!("mnt{mount}"))
    }

    /// A path below a mountpoint.
    pub(crate) fn path(&self, mount: usize, path: &str) -> PathBuf {
        self.mountpoint(mount).join(path)
    }

    pub(crate) fn stop_server(&mut self) {
        self.server.stop();
    }

    pub(crate) fn start_server(&mut self) {
        self.server.start();
    }

    pub(crate) fn unmount(&mut self, mount: usize) {
        self.mounts[mount].take().unwrap().unmount().unwrap();
    }
}

impl Drop for LocalMounts {
    fn drop(&mut self) {
        // Before their server, or they would wait for it.
        self.mounts.clear();
    }
}

/// How long clients wait for the server.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
