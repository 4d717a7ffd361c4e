//! Messages of a mount to its kernel that make it drop cached state: written to `/dev/fuse` without a request.
//!
//! The `fuser` crate knows some of them, but not the epoch, and hides its channel; each is one write of a few bytes.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use frieze_base::InodeId;

use crate::page_invalidation::PageInvalidation;

/// The kernel's side of a mount.
#[derive(Debug)]
pub(crate) struct KernelNotifier {
    channel: Option<File>,
    /// It can drop all names at once.
    pub(crate) has_epochs: bool,
    pages: Option<SyncSender<Arc<PageInvalidation>>>,
}

impl KernelNotifier {
    /// Speaks over a descriptor of the mount's `/dev/fuse`.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub(crate) fn new(channel: OwnedFd) -> io::Result<KernelNotifier> {
        let channel = File::from(channel);
        let (pages, dropped) = sync_channel::<Arc<PageInvalidation>>(PAGES_MAX);
        let second = channel.try_clone()?;
        let drops = move || dropped.iter().for_each(|dropping| dropping.work(|inode| drop_pages(&second, inode)));
        thread::Builder::new().name("frieze-pages".to_owned()).spawn(drops)?;
        let has_epochs = raise_epoch(&channel).is_ok();
        if !has_epochs {
            tracing::info!("this kernel cannot drop names at once (Linux 6.16 can): names are looked up every time");
        }
        Ok(KernelNotifier { channel: Some(channel), has_epochs, pages: Some(pages) })
    }

    /// A kernel that receives nothing.
    #[cfg(test)]
    pub(crate) fn silent() -> KernelNotifier {
        KernelNotifier { channel: None, has_epochs: true, pages: None }
    }

    /// A kernel that only records its messages in the file; it does not drop pages.
    #[cfg(test)]
    pub(crate) fn recording(channel: File) -> KernelNotifier {
        KernelNotifier { channel: Some(channel), has_epochs: true, pages: None }
    }

    /// Drops all names: every name is looked up again.
    pub(crate) fn forget_names(&self) {
        if let Some(channel) = &self.channel
            && self.has_epochs
            && let Err(error) = raise_epoch(channel)
        {
            tracing::debug!(%error, "the mount has ended");
        }
    }

    /// Drops attributes and pages of these inodes: both are requested again.
    pub(crate) fn forget_files(&self, inodes: &[InodeId]) {
        inodes.iter().for_each(|inode| self.forget_attributes(*inode));
        self.drop_pages(inodes);
    }

    /// Drops the attributes of this inode. It takes no lock, so a request on the file may wait for it.
    pub(crate) fn forget_attributes(&self, inode: InodeId) {
        let Some(channel) = &self.channel else { return };
        if let Err(error) = forget_inode(channel, inode, ATTRIBUTES_ONLY) {
            tracing::trace!(%error, %inode, "no attributes to forget");
        }
    }

    /// Drops the pages of these files, and waits for that, but not long: a page that a request has locked is dropped
    /// only when that is answered, and its answer may wait for this thread.
    fn drop_pages(&self, inodes: &[InodeId]) {
        let Some(pages) = self.pages.as_ref().filter(|_| !inodes.is_empty()) else { return };
        let dropping = Arc::new(PageInvalidation::new(inodes.to_vec()));
        // A full queue belongs to a stuck thread: another takes its place below.
        let _ = pages.try_send(dropping.clone());
        let another = || {
            let channel = self.channel.as_ref()?.try_clone().ok()?;
            let dropping = dropping.clone();
            let drops = move || dropping.work(|inode| drop_pages(&channel, inode));
            thread::Builder::new().name("frieze-pages".to_owned()).spawn(drops).ok().map(drop)
        };
        let left = dropping.wait(another);
        if left > 0 {
            // A file that is left out is checked at every read(2) all the same.
            tracing::debug!(?inodes, left, "pages are held by requests");
        }
    }
}

/// Drops the pages of a file, which waits for requests that hold them.
fn drop_pages(channel: &File, inode: InodeId) {
    if let Err(error) = forget_inode(channel, inode, FROM_THE_START) {
        tracing::trace!(%error, %inode, "no pages to drop");
    }
}

fn raise_epoch(channel: &File) -> io::Result<()> {
    send(channel, INC_EPOCH, &[])
}

fn forget_inode(channel: &File, inode: InodeId, offset: i64) -> io::Result<()> {
    let mut body = [0u8; INODE_BYTES];
    body[..8].copy_from_slice(&inode.0.to_ne_bytes());
    body[8..16].copy_from_slice(&offset.to_ne_bytes());
    send(channel, INVAL_INODE, &body)
}

/// A header as that of an answer (`fuse_out_header`), to request 0 and with the code in place of an error, and a body.
fn send(mut channel: &File, code: i32, body: &[u8]) -> io::Result<()> {
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend_from_slice(&((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&code.to_ne_bytes());
    message.extend_from_slice(&0u64.to_ne_bytes());
    message.extend_from_slice(body);
    channel.write_all(&message)
}

const HEADER_BYTES: usize = 16;
/// A `fuse_notify_inval_inode_out`: inode, offset, length.
const INODE_BYTES: usize = 24;
// From <linux/fuse.h>: enum fuse_notify_code.
const INVAL_INODE: i32 = 2;
const INC_EPOCH: i32 = 8;
/// A negative offset: the kernel keeps the pages.
const ATTRIBUTES_ONLY: i64 = -1;
const FROM_THE_START: i64 = 0;
/// Recalls whose pages wait to be dropped.
const PAGES_MAX: usize = 64;
