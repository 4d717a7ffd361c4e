//! Open files and directories of the mount.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use frieze_client::File;

use crate::cache::CachePromise;
use crate::listing::DirListing;
use crate::node::FuseNode;

/// An open file.
pub(crate) struct FileHandle {
    pub(crate) file: File,
    /// True if it was opened to write.
    pub(crate) writes: bool,
    pub(crate) reads: bool,
    /// User id that opened it.
    pub(crate) opener: u32,
    /// A failed fsync stays failed: a retry does not write what was lost (protocols §7).
    pub(crate) sync_failed: AtomicBool,
    /// Set once the mount has found the file without set-id bits.
    pub(crate) unprivileged: Mutex<Option<Unprivileged>>,
    /// The state in which it was opened, until the kernel has read through it, if its pages held another.
    pub(crate) fresh: AtomicBool,
    /// Writes go past the kernel's pages.
    pub(crate) direct: bool,
    pub(crate) changed: u64,
    pub(crate) promise: Option<CachePromise>,
}

/// How long a file is known to have no set-id bits: until this mount sets some on a file, and as long as the grant of
/// that answer lasts, for another mount may set some.
#[derive(Clone, Copy)]
pub(crate) struct Unprivileged {
    /// The count of [`crate::tree::MountTree::privileges_given`] before the request.
    pub(crate) given: u64,
    pub(crate) promise: CachePromise,
}

/// An open directory.
pub(crate) struct DirHandle {
    pub(crate) node: FuseNode,
    pub(crate) listing: Mutex<DirListing>,
    /// The validity of the entries of the current page.
    pub(crate) promise: Mutex<Option<CachePromise>>,
}

impl FileHandle {
    pub(crate) fn unprivileged(&self) -> Option<Unprivileged> {
        *self.unprivileged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DirHandle {
    pub(crate) fn promise(&self) -> Option<CachePromise> {
        *self.promise.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
