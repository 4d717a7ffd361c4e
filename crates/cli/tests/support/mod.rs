//! What the acceptance tests share: a server, clients and a mount of it, and waiting for what can be seen.

#[path = "../command/served.rs"]
pub(crate) mod served;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use frieze_client::{Client, Options};
use frieze_harness::requirements;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::time::{ClockId, clock_gettime};

use served::Served;

/// How long a test waits for something that takes far less on any machine: 60 s, or `FRIEZE_PATIENCE` seconds, for runs
/// that take long on machines that have other things to do.
pub(crate) fn patience() -> Duration {
    let told = std::env::var("FRIEZE_PATIENCE").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(told.unwrap_or(60))
}

/// Time since some moment in the past.
pub(crate) fn clock() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Looks again and again until `look` finds something, for at most [`patience`].
///
/// The one place where the acceptance tests let time pass: what they wait for happens in another process, whose state
/// can only be looked at.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = clock();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(clock() - began < patience(), "{what}: not within {:?}", patience());
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// A client of `address` that rides out restarts.
pub(crate) fn client(address: &str) -> Client {
    let server = address.parse().unwrap();
    Client::connect(Options { server, timeout: patience(), ..Options::default() }).unwrap()
}

/// A mount by a process of its own, as a user has it.
pub(crate) struct Mount {
    pub(crate) path: PathBuf,
    process: Child,
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
        let mut command = server.command(&["mount", "--foreground", "--timeout", &timeout, name]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted "), "{line:?}");
        Some(Mount { path, process })
    }

    /// Kills its process, as the kernel does when memory runs out; the dead mount stays where it was.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Stops its process, or lets it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id() as i32), signal).unwrap();
    }

    /// A path below the mountpoint.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path.join(path)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // First out of the tree, so that nothing can wait for a process that is gone.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Bytes that look random and are the same for the same seed.
pub(crate) fn scrambled(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    frieze_base::Rng::new(seed).fill(&mut bytes);
    bytes
}
