//! What a mount tells its kernel to forget: messages that are written to `/dev/fuse` without having been asked.
//!
//! The `fuser` crate knows some of them, but not the epoch, and hides its channel; each is one write of a few bytes.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use frieze_base::InodeId;

/// The kernel's side of a mount.
#[derive(Debug)]
pub(crate) struct Kernel {
    channel: Option<File>,
    /// It can drop all names at once.
    pub(crate) has_epochs: bool,
    pages: Option<SyncSender<InodeId>>,
}

impl Kernel {
    /// Speaks over a descriptor of the mount's `/dev/fuse`.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub(crate) fn new(channel: OwnedFd) -> io::Result<Kernel> {
        let channel = File::from(channel);
        let (pages, dropped) = sync_channel(PAGES_MAX);
        let second = channel.try_clone()?;
        thread::Builder::new().name("frieze-pages".to_owned()).spawn(move || drop_pages(&second, &dropped))?;
        let has_epochs = raise_epoch(&channel).is_ok();
        if !has_epochs {
            tracing::info!("this kernel cannot drop names at once (Linux 6.16 can): names are looked up every time");
        }
        Ok(Kernel { channel: Some(channel), has_epochs, pages: Some(pages) })
    }

    /// A kernel that hears nothing.
    #[cfg(test)]
    pub(crate) fn deaf() -> Kernel {
        Kernel { channel: None, has_epochs: true, pages: None }
    }

    /// Every name is looked up again.
    pub(crate) fn forget_names(&self) {
        if let Some(channel) = &self.channel
            && self.has_epochs
            && let Err(error) = raise_epoch(channel)
        {
            tracing::debug!(%error, "the mount is gone");
        }
    }

    /// Attributes of these inodes are asked for again; their pages are dropped soon.
    pub(crate) fn forget_attributes(&self, inodes: &[InodeId]) {
        let Some(channel) = &self.channel else { return };
        let mut unknown = Vec::new();
        for inode in inodes {
            if let Err(error) = forget_inode(channel, *inode, ATTRIBUTES_ONLY)
                && error.kind() == io::ErrorKind::NotFound
            {
                unknown.push(*inode);
            }
        }
        if !unknown.is_empty() {
            // A program may be about to take up an answer that makes the inode known, and was given before the recall.
            thread::park_timeout(TAKEN_UP);
            for inode in unknown {
                // Still unknown: there is nothing to forget.
                let _ = forget_inode(channel, inode, ATTRIBUTES_ONLY);
            }
        }
        if let Some(pages) = &self.pages {
            for inode in inodes {
                // A read(2) looks at the attributes first: what is left out here is late for mappings only.
                let _ = pages.try_send(*inode);
            }
        }
    }
}

/// Drops pages, which waits for requests that hold them.
fn drop_pages(channel: &File, dropped: &Receiver<InodeId>) {
    for inode in dropped {
        if let Err(error) = forget_inode(channel, inode, FROM_THE_START) {
            tracing::trace!(%error, %inode, "no pages to drop");
        }
    }
}

fn raise_epoch(channel: &File) -> io::Result<()> {
    send(channel, INC_EPOCH, &[])
}

fn forget_inode(channel: &File, inode: InodeId, offset: i64) -> io::Result<()> {
    let mut body = [0u8; 24];
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
// From <linux/fuse.h>: enum fuse_notify_code.
const INVAL_INODE: i32 = 2;
const INC_EPOCH: i32 = 8;
/// A negative offset: the kernel keeps the pages.
const ATTRIBUTES_ONLY: i64 = -1;
const FROM_THE_START: i64 = 0;
/// Inodes whose pages wait to be dropped.
const PAGES_MAX: usize = 4096;
/// Longer than a program takes from being woken by an answer to having taken it up, but on the busiest machine.
const TAKEN_UP: Duration = Duration::from_millis(20);
