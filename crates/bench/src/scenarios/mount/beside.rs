//! The reference of a mount: the same calls through a FUSE file system that only passes them on, or else in a plain
//! directory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::BenchOptions;
use crate::stopwatch::Stopwatch;

/// A directory to do the same in.
pub(super) struct ReferenceTree {
    path: TempDir,
    pub(super) name: &'static str,
    _passthrough: Option<Passthrough>,
}

impl ReferenceTree {
    /// The one named with `--peer`; else a `bindfs` mount, where that is installed; else a plain directory.
    pub(super) fn of(options: &BenchOptions) -> Result<ReferenceTree> {
        if let Some(peer) = &options.peer {
            let path = made(peer).with_context(|| format!("cannot write to {}", peer.display()))?;
            return Ok(ReferenceTree { path, name: "the same through the peer", _passthrough: None });
        }
        let base = options.dir.clone().unwrap_or_else(std::env::temp_dir);
        let Some(passthrough) = Passthrough::start(&base)? else {
            let path = made(&base)?;
            return Ok(ReferenceTree { path, name: "the same in a plain directory", _passthrough: None });
        };
        let path = made(passthrough.mountpoint.path())?;
        Ok(ReferenceTree {
            path,
            name: "the same through a FUSE passthrough (bindfs)",
            _passthrough: Some(passthrough),
        })
    }

    pub(super) fn path(&self) -> &Path {
        self.path.path()
    }
}

/// A directory of this machine, mounted a second time by `bindfs`.
struct Passthrough {
    process: Child,
    mountpoint: TempDir,
    _origin: TempDir,
}

impl Passthrough {
    /// `None` where `bindfs` is not installed.
    fn start(base: &Path) -> Result<Option<Passthrough>> {
        let origin = tempfile::Builder::new().prefix("frieze-bench-origin-").tempdir_in(base)?;
        let mountpoint = tempfile::Builder::new().prefix("frieze-bench-passthrough-").tempdir()?;
        let started = Command::new("bindfs")
            .args(["-f", "--multithreaded"])
            .args([origin.path(), mountpoint.path()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let process = match started {
            Ok(process) => process,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context("cannot start bindfs"),
        };
        let mut passthrough = Passthrough { process, mountpoint, _origin: origin };
        let parent = device(passthrough.mountpoint.path().parent().unwrap_or(Path::new("/")))?;
        let watch = Stopwatch::start();
        while device(passthrough.mountpoint.path())? == parent {
            if watch.seconds() > MOUNTED_WITHIN_S {
                bail!("bindfs has not mounted {} within {MOUNTED_WITHIN_S} s", passthrough.mountpoint.path().display());
            }
            if let Some(status) = passthrough.process.try_wait()? {
                bail!("bindfs ended before it was ready: {status}");
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        Ok(Some(passthrough))
    }
}

impl Drop for Passthrough {
    fn drop(&mut self) {
        unmount(self.mountpoint.path(), &mut self.process);
    }
}

fn made(directory: &Path) -> std::io::Result<TempDir> {
    tempfile::Builder::new().prefix("frieze-bench-beside-").tempdir_in(directory)
}

/// Unmounts, and waits for the process behind it.
pub(super) fn unmount(path: &Path, process: &mut Child) {
    let unmounted = Command::new("umount").arg(path).status().is_ok_and(|status| status.success());
    if !unmounted && process.kill().is_err() {
        eprintln!("frieze bench: {} could not be unmounted", path.display());
    }
    if process.wait().is_err() {
        eprintln!("frieze bench: a mount could not be waited for");
    }
}

/// A passthrough that takes longer to mount will not.
const MOUNTED_WITHIN_S: f64 = 10.0;

/// Number of the device that a path is on.
fn device(path: &Path) -> Result<u64> {
    let path: PathBuf = path.to_owned();
    Ok(std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(&path)?))
}
