//! The FUSE mount: frieze as a directory, its past in the `.at` of every directory.
//!
//! ```text
//! echo v1 > /mnt/f/report.txt;  sleep 60;  echo v2 > /mnt/f/report.txt
//! cat /mnt/f/.at/30s-ago/report.txt        # v1
//! ```
//!
//! `.at/<exact instant>` and `.at/<snapshot>` are directories, `.at/<moving name>` a symbolic link to the exact instant
//! it means to the process that asks, `.at/user-<instant>` the directory cut by user time. `.at` is hidden from
//! listings.
//!
//! Guarantees: the present is the server's present (names and attributes are not cached; bytes only while the server
//! says they have not changed); an exact instant reads the same for ever; below `.at` nothing can be written (EROFS); a
//! write has happened when write(2) returns. Leaves to others: rights (the kernel and the server), connections and
//! retries (`client`), daemonising and signals (`cli`).
//!
//! The way of a request: `fuser` reads it on one of some threads, [`kernel`] turns it into a call of
//! [`operations::Operations`], [`tree`] answers it with calls of the client. `.at` is in [`past`] and [`at`], ids in
//! [`node`], errno in [`errno`].

mod acl_cache;
mod at;
mod attr_prefetch;
mod attributes;
mod cache;
mod complete_dirs;
mod errno;
mod error;
mod files;
mod handle;
mod kernel;
mod links;
mod listing;
mod local_changes;
mod locking;
mod lookup;
mod mountpoint;
mod moving_names;
mod node;
mod notify;
mod open;
mod operations;
mod page_invalidation;
mod page_states;
mod past;
mod process;
mod recalls;
mod recorded;
mod refusals;
mod room;
mod rpc;
mod tree;

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use nix::mount::{MntFlags, umount2};

use frieze_client::{Client, Target};
use frieze_hlc::{Hlc, UserTime};

pub use errno::errno_of;
pub use error::Error;

use kernel::KernelAdapter;
use node::ViewTime;
use operations::Operations;
use recorded::RecordedOperations;
use tree::MountTree;

/// How to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Shows this instant instead of the present, read-only. Default: the present.
    pub at: Option<Hlc>,
    /// Cuts every file at this user time, read-only. Default: not.
    pub user_at: Option<UserTime>,
    /// Below `.at`, an instant that policies of retention do not keep is a link to the newest before it that all keep.
    /// Default: it is refused where something of it is not kept.
    pub nearest: bool,
    /// Allows users other than the mounting one. Default: yes if the server lets this client impersonate users and the
    /// mounting user is root; a mount that cannot distinguish users is its owner's alone.
    pub allow_other: Option<bool>,
    /// Requests worked on at one time. Each may wait for the server; more costs a thread and a connection each. Default
    /// 16.
    pub threads: usize,
    /// Programs run with their set-user-id and set-group-id bits. Only root can mount so. Default: not.
    pub suid: bool,
    /// Device files act as devices. Only root can mount so. Default: not.
    pub dev: bool,
    /// Nothing is changed through it. Default: only a mount of an instant.
    pub read_only: bool,
    /// No program on it runs. Default: not.
    pub noexec: bool,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            at: None,
            user_at: None,
            nearest: false,
            allow_other: None,
            threads: 16,
            suid: false,
            dev: false,
            read_only: false,
            noexec: false,
        }
    }
}

/// A mount. Dropped, it is unmounted.
pub struct MountHandle {
    operations: Arc<dyn Operations>,
    ended: Receiver<MountEnd>,
    unmounter: Unmounter,
    over: bool,
}

/// Unmounts from another thread than the one that waits.
#[derive(Clone, Debug)]
pub struct Unmounter {
    mountpoint: PathBuf,
    session: Arc<Mutex<SessionUnmounter>>,
    ended: Sender<MountEnd>,
}

/// How an unmount went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// It was unused: it is unmounted.
    Clean,
    /// It was in use: it is out of the tree, and its open files are closed.
    Detached,
}

/// Why [`MountHandle::join`] returns.
#[derive(Debug)]
enum MountEnd {
    /// The kernel ended the session, or it broke.
    Session(io::Result<()>),
    /// It was detached; the kernel continues to send requests of its open files, until this process ends.
    Detached,
}

/// Mounts the file system behind `client` on `mountpoint`. When it returns, the mount can be used.
///
/// # Errors
/// `InUse`, `Dead`, `NotDirectory`, `MountpointUnreadable`: choose another mountpoint or clear this one. `NoFuse`,
/// `Refused`: the machine does not allow it. `Root`: the instant cannot be read, or the server is away.
///
/// # Example
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use frieze_client::{Client, Options};
/// use frieze_fuse::{MountOptions, mount};
///
/// let client = Client::connect(Options::default())?;
/// let mounted = mount(client, "/mnt/f".as_ref(), MountOptions::default())?;
/// mounted.join()?; // until it is unmounted
/// # Ok(())
/// # }
/// ```
pub fn mount(client: Client, mountpoint: &Path, options: MountOptions) -> Result<MountHandle, Error> {
    let mountpoint = mountpoint::check(mountpoint)?;
    let base = ViewTime { at: options.at, user_at: options.user_at };
    let fs = client.fs();
    let fs = base.at.map_or(fs.clone(), |at| fs.at(at));
    let fs = base.user_at.map_or(fs.clone(), |user_at| fs.user_at(user_at));
    fs.stat(&Target::path("/")).map_err(|error| Error::Root(error.into()))?;
    let root = nix::unistd::geteuid().is_root();
    if let Err(source) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        return Err(Error::NoFuse { source });
    }
    let allow_other = options.allow_other.unwrap_or(client.hello().may_impersonate && root);
    let source = client.options().server.to_string();
    let config = config(base, &source, allow_other, &options);
    let tree = Arc::new(MountTree::new(client, base, options.nearest));
    start(tree, base, mountpoint, &config)
}

fn config(base: ViewTime, source: &str, allow_other: bool, options: &MountOptions) -> Config {
    let mut config = Config::default();
    // A comma would end the value in the list of options for fusermount3.
    let source = if source.contains([',', '\\']) { "frieze" } else { source };
    config.mount_options = vec![
        MountOption::FSName(source.to_owned()),
        MountOption::CUSTOM("subtype=frieze".to_owned()),
        MountOption::DefaultPermissions,
        if options.suid { MountOption::Suid } else { MountOption::NoSuid },
        if options.dev { MountOption::Dev } else { MountOption::NoDev },
        // A read makes no record: the flags of statfs show it too.
        MountOption::NoAtime,
    ];
    if base.is_past() || options.read_only {
        config.mount_options.push(MountOption::RO);
    }
    if options.noexec {
        config.mount_options.push(MountOption::NoExec);
    }
    config.acl = if allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    config
}

fn start(
    operations: Arc<MountTree>,
    base: ViewTime,
    mountpoint: PathBuf,
    config: &Config,
) -> Result<MountHandle, Error> {
    let refused = |source| Error::Refused { path: mountpoint.clone(), source };
    let recorder = operations.client.options().trace.clone();
    let recorded = RecordedOperations::new(operations.clone(), recorder, base.is_past());
    let kernel = KernelAdapter::new(Arc::new(recorded), base.is_past());
    let mut session = Session::new(kernel, &mountpoint, config).map_err(refused)?;
    if !base.is_past() {
        let channel = session.as_fd().try_clone_to_owned().map_err(refused)?;
        operations.cache.begin(notify::KernelNotifier::new(channel).map_err(refused)?);
        let (client, cache) = (operations.client.clone(), operations.cache.clone());
        recalls::watch(client, cache, operations.locking.clone()).map_err(refused)?;
    }
    mountpoint::read_ahead(&mountpoint, READ_AHEAD_KIB);
    let (sender, ended) = mpsc::channel();
    let unmounter = Unmounter {
        mountpoint: mountpoint.clone(),
        session: Arc::new(Mutex::new(session.unmount_callable())),
        ended: sender.clone(),
    };
    thread::Builder::new()
        .name("frieze-mount".to_owned())
        .spawn(move || {
            let ended = panic::catch_unwind(AssertUnwindSafe(|| session.run()))
                .unwrap_or_else(|_| Err(io::Error::other("a thread of the mount panicked")));
            // The receiver may have given up waiting: then the result is dropped.
            let _ = sender.send(MountEnd::Session(ended));
        })
        .map_err(refused)?;
    Ok(MountHandle { operations, ended, unmounter, over: false })
}

impl MountHandle {
    /// Where it is mounted, the full name.
    pub fn mountpoint(&self) -> &Path {
        &self.unmounter.mountpoint
    }

    /// Unmounts from another thread while this one waits in [`MountHandle::join`].
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Waits until it is unmounted, by [`Unmounter::unmount`] or by `umount`, and everything open is closed.
    ///
    /// # Errors
    /// `Ended` if the connection to the kernel broke.
    pub fn join(mut self) -> Result<(), Error> {
        self.wait()
    }

    /// Unmounts, and waits until everything open is closed. A mount that is in use is taken out of the tree at once,
    /// and programs that hold files of it lose them.
    ///
    /// # Errors
    /// `Unmount` if even that is refused.
    pub fn unmount(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        self.unmounter.unmount()?;
        self.wait()
    }

    fn wait(&mut self) -> Result<(), Error> {
        self.over = true;
        let ended = match self.ended.recv() {
            Ok(MountEnd::Session(ended)) => ended,
            Ok(MountEnd::Detached) => {
                self.operations.destroy();
                Ok(())
            }
            Err(mpsc::RecvError) => Err(io::Error::other("the mount's thread has ended")),
        };
        ended.map_err(|source| Error::Ended { path: self.mountpoint().to_owned(), source })
    }
}

impl Drop for MountHandle {
    fn drop(&mut self) {
        if !self.over
            && let Err(error) = self.end()
        {
            tracing::warn!("{error}");
        }
    }
}

impl fmt::Debug for MountHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mounted").field("unmounter", &self.unmounter).finish_non_exhaustive()
    }
}

impl Unmounter {
    /// Unmounts; from then on [`MountHandle::join`] returns.
    ///
    /// # Errors
    /// `Unmount` if the kernel refuses.
    pub fn unmount(&self) -> Result<Unmount, Error> {
        let clean = self.session.lock().unwrap_or_else(PoisonError::into_inner).unmount();
        match clean {
            Ok(()) => Ok(Unmount::Clean),
            Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EBUSY as i32) => {
                umount2(&self.mountpoint, MntFlags::MNT_DETACH)
                    .map_err(|errno| Error::Unmount { path: self.mountpoint.clone(), source: errno.into() })?;
                tracing::info!("{} was in use and is detached", self.mountpoint.display());
                // The receiver may have given up waiting: then the result is dropped.
                let _ = self.ended.send(MountEnd::Detached);
                Ok(Unmount::Detached)
            }
            Err(source) => Err(Error::Unmount { path: self.mountpoint.clone(), source }),
        }
    }
}

/// Read-ahead of one file: four of the largest requests in flight keep one connection's link full.
const READ_AHEAD_KIB: u32 = 4096;

#[cfg(test)]
frieze_harness::count_allocations!();
