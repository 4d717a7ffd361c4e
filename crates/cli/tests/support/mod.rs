//! What the acceptance tests share: a server, clients and a mount of it, and waiting for what can be seen.

#[path = "../command/served.rs"]
pub(crate) mod served;

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use frieze_client::{Client, Options};
use frieze_harness::requirements;
use frieze_testkit::process::ChildProcess;
use frieze_testkit::wait::patience;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::Signal;

use served::Served;

/// A client of `address` that rides out restarts.
pub(crate) fn client(address: &str) -> Client {
    let server = address.parse().unwrap();
    Client::connect(Options { server, timeout: patience(), ..Options::default() }).unwrap()
}

/// A mount by a process of its own, as a user has it.
pub(crate) struct Mount {
    pub(crate) path: PathBuf,
    process: ChildProcess,
}

impl Mount {
    /// Mounts `server`; `None`, with a line that says why, where there is no FUSE.
    pub(crate) fn of(server: &Served) -> Option<Mount> {
        Mount::at(server, "mnt")
    }

    /// As [`Mount::of`], on a mountpoint of this name: there may be several.
    pub(crate) fn at(server: &Served, name: &str) -> Option<Mount> {
        if !requirements::fuse() {
            return None;
        }
        let path = server.local(name);
        fs::create_dir(&path).unwrap();
        let timeout = patience().as_secs().to_string();
        let command = server.command(&["mount", "--foreground", "--timeout", &timeout, name]);
        let mut process = ChildProcess::start(command, &server.local(&format!("{name}.log")));
        process.await_line("mounted ");
        Some(Mount { path, process })
    }

    /// Kills its process, as the kernel does when memory runs out; the dead mount stays where it was.
    pub(crate) fn kill(&mut self) {
        self.process.end(Signal::SIGKILL);
    }

    /// Stops its process, or lets it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// A path below the mountpoint.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path.join(path)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // First out of the tree, so that nothing can wait for a process that has ended.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
    }
}

/// A server, and a mount of it.
pub(crate) struct MountedServer {
    // Before the server it needs.
    pub(crate) mount: Mount,
    pub(crate) server: Served,
}

impl MountedServer {
    /// With these settings (TOML); `None`, with a line that says why, where there is no FUSE.
    pub(crate) fn with(settings: &str) -> Option<MountedServer> {
        let server = Served::with(settings, "127.0.0.1:0");
        let mount = Mount::of(&server)?;
        Some(MountedServer { mount, server })
    }

    /// A path below the mountpoint.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.mount.path(path)
    }

    /// `path` as it was at an instant.
    pub(crate) fn past(&self, at: &str, path: &str) -> PathBuf {
        self.mount.path(format!(".at/{at}/{path}"))
    }

    /// A new file, open to read and write.
    pub(crate) fn file(&self, path: &str) -> File {
        OpenOptions::new().read(true).write(true).create_new(true).open(self.path(path)).unwrap()
    }
}
