//! Opens a data directory that no server uses, without changing it.
//!
//! Guarantees: the server's start runs on a view of the directory, and on a copy of the small files of the store of
//! names; no server starts on it meanwhile.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use frieze_base::{ClusterId, Fault, Reason};
use frieze_disk::{Disk, TimeSource};
use frieze_metadata::VersionStore;
use frieze_planes::{Settings, no_wake};
use frieze_wire::txn::Caller;

use crate::parts::{ProcessStats, Seams, ServerParts};

/// Refuses a directory that is not a data directory of a server.
///
/// # Errors
/// `NotFound`; the disk's.
pub(crate) fn check_is_one(disk: &dyn Disk, dir: &Path) -> Result<(), Fault> {
    let names = disk.list()?;
    let is_ours = |name: &String| *name == frieze_storage::STATE_FILE || name.starts_with("seg-");
    match names.iter().any(is_ours) {
        true => Ok(()),
        false => Err(Fault::new(
            Reason::NotFound,
            format!("{} is no data directory of a server: it holds neither its state nor a segment", dir.display()),
        )),
    }
}

/// Runs the server's start.
///
/// # Errors
/// As [`ServerParts::open`].
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    store: Box<dyn VersionStore>,
    time: Arc<dyn TimeSource>,
    serve_damaged: bool,
) -> Result<ServerParts, Fault> {
    let settings = Settings { dir: "a view".into(), serve_damaged, ..Settings::default() };
    let seams = Seams {
        disk,
        time,
        store,
        boot: boot_id(),
        // No server will serve with it.
        entropy: [0; 64],
        wake: no_wake(),
        process: Box::new(ProcessStats::default),
        keys: BTreeMap::new(),
        owner: Caller::root(),
    };
    ServerParts::open(settings, seams)
}

/// An identity that no cluster has.
///
/// # Errors
/// If the system has no random numbers to give.
pub(crate) fn new_cluster() -> Result<ClusterId, Fault> {
    let bytes = frieze_net::random_nonce()?;
    Ok(ClusterId(u128::from_be_bytes(bytes[..16].try_into().expect("16 of 32"))))
}

/// Transfers files made by root in a directory to the owner of the directory: the server runs as that user.
///
/// # Errors
/// The system's.
pub(crate) fn own_alike(dir: &Path) -> Result<(), Fault> {
    let failed = |error: std::io::Error| Fault::new(Reason::InputOutput, format!("{}: {error}", dir.display()));
    let owner = std::fs::metadata(dir).map_err(failed)?;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let found = entry.metadata().map_err(failed)?;
        if found.is_file() && found.uid() != owner.uid() {
            std::os::unix::fs::lchown(entry.path(), Some(owner.uid()), Some(owner.gid())).map_err(failed)?;
        }
    }
    Ok(())
}

/// Identifies the boot of the machine; empty if the kernel does not report it, which counts as a new boot each time.
pub(crate) fn boot_id() -> String {
    let read = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id"));
    read.map(|text| text.trim().to_owned()).unwrap_or_default()
}
