//! A bare loop of transfers between two endpoints of one process: the ceiling that benchmarks set beside a server.
//!
//! Guarantees: transfers of fixed memory in both directions, [`BareLoop::DEPTH`] in flight, posted and completed by the
//! calling thread, with the flags of a server's transfers and nothing around them. After a failure it makes no more.
//! Leaves to others: measuring (`bench`), every product path.

#![expect(unsafe_code, reason = "the descriptor of the completion queue is of the library")]

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::FabricError;
use crate::endpoint::{Contexts, Endpoint, EndpointOptions, RegisteredMemory, TRANSFER_MAX, now};
use crate::objects::{Completed, MemoryAccess, Objects, Registered, TransferDirection, TransferPost};
use crate::pages::MappedPages;
use crate::rooms::ROOM_BYTES;

/// Two endpoints of a provider in this process, one of which transfers memory of the other.
///
/// The endpoint that transfers has no thread: the calls of [`BareLoop::write`] and [`BareLoop::read`] do its work, so
/// the processor time of the calling thread is that of one end. The other one has the thread of every endpoint.
#[derive(Debug)]
pub struct BareLoop {
    source: Objects,
    /// Number of the other endpoint.
    peer: u64,
    contexts: Contexts,
    local: Registered,
    pages: MappedPages,
    remote: RegisteredMemory,
    target: Endpoint,
    has_failed: bool,
}

impl BareLoop {
    /// Transfers in flight.
    pub const DEPTH: usize = 16;
    /// Most bytes of one transfer.
    pub const TRANSFER_BYTES_MAX: usize = ROOM_BYTES;

    /// Opens both endpoints and makes one transfer in each direction.
    ///
    /// # Errors
    /// Those of [`Endpoint::open`], and of a transfer.
    ///
    /// # Cost
    /// Two registrations of 16 MiB.
    pub fn open(options: &EndpointOptions) -> Result<BareLoop, FabricError> {
        let target = Endpoint::open(options)?;
        let bytes = BareLoop::DEPTH * ROOM_BYTES;
        let remote = target.core().register(bytes, MemoryAccess::RemoteReadWrite)?;
        let source = Objects::open(options)?;
        let peer = source.insert(target.address())?;
        let pages = MappedPages::map(bytes).map_err(|errno| FabricError::Library(format!("no memory: {errno}")))?;
        let key = crate::endpoint::random_key;
        let local = source.register(pages.start(), bytes, MemoryAccess::Local, key)?;
        let contexts = Contexts::new(BareLoop::DEPTH);
        let mut opened = BareLoop { source, peer, contexts, local, pages, remote, target, has_failed: false };
        // SAFETY: no transfer is under way. Pages that were never written would all be one page of zeros.
        unsafe { opened.pages.bytes_mut(0..bytes) }.fill(7);
        opened.write(ROOM_BYTES, BareLoop::DEPTH as u64)?;
        opened.read(ROOM_BYTES, BareLoop::DEPTH as u64)?;
        Ok(opened)
    }

    /// Name of the provider in full.
    pub fn provider(&self) -> &str {
        self.target.provider()
    }

    /// `count` transfers of `len` bytes into memory of the other endpoint.
    ///
    /// # Errors
    /// `SlotTooSmall`: more than [`BareLoop::TRANSFER_BYTES_MAX`]. `Transfer`, `Timeout`: the loop is of no use any
    /// more. `Closed`: it was before.
    pub fn write(&mut self, len: usize, count: u64) -> Result<(), FabricError> {
        self.make(TransferDirection::Write, len, count)
    }

    /// `count` transfers of `len` bytes from memory of the other endpoint.
    ///
    /// # Errors
    /// As [`BareLoop::write`].
    pub fn read(&mut self, len: usize, count: u64) -> Result<(), FabricError> {
        self.make(TransferDirection::Read, len, count)
    }

    fn make(&mut self, direction: TransferDirection, len: usize, count: u64) -> Result<(), FabricError> {
        if len > ROOM_BYTES {
            return Err(FabricError::SlotTooSmall { slot: ROOM_BYTES as u64, len: len as u64 });
        }
        if self.has_failed {
            return Err(FabricError::Closed);
        }
        let made = self.transfer(direction, len, count);
        // Completions of what is still under way would be taken for those of a later call.
        self.has_failed = made.is_err();
        made
    }

    fn transfer(&self, direction: TransferDirection, len: usize, count: u64) -> Result<(), FabricError> {
        let mut free: Vec<usize> = (0..BareLoop::DEPTH).rev().collect();
        let (mut posted, mut ended) = (0, 0);
        let (mut completed, mut since) = (Vec::new(), now());
        while ended < count {
            while posted < count
                && let Some(index) = free.last()
                && self.post(direction, *index, len)?
            {
                free.pop();
                posted += 1;
            }
            if self.source.complete(&mut completed) {
                for Completed { context, result } in completed.drain(..) {
                    result.map_err(FabricError::Transfer)?;
                    free.extend(self.contexts.index(context));
                    ended += 1;
                }
                since = now();
                continue;
            }
            if since.elapsed() > TRANSFER_MAX {
                return Err(FabricError::Timeout(TRANSFER_MAX.as_millis() as u64));
            }
            self.wait();
        }
        Ok(())
    }

    fn post(&self, direction: TransferDirection, index: usize, len: usize) -> Result<bool, FabricError> {
        let at = index * ROOM_BYTES;
        self.source.post(&TransferPost {
            direction,
            peer: self.peer,
            local: self.pages.start().wrapping_add(at),
            len,
            descriptor: self.local.descriptor,
            remote: self.remote.base() + at as u64,
            key: self.remote.key(),
            context: self.contexts.address(index),
        })
    }

    fn wait(&self) {
        match self.source.queue_fd {
            Some(fd) if self.source.may_wait() => {
                // SAFETY: the queue, and with it its descriptor, is closed after the borrow of `self`.
                let queue = unsafe { BorrowedFd::borrow_raw(fd) };
                let limit = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
                // An interrupted wait is a look too many.
                let _ = poll(&mut [PollFd::from_borrowed_fd(queue, PollFlags::IN)], Some(&limit));
            }
            // Completions are there, or come without a descriptor.
            _ => std::hint::spin_loop(),
        }
    }
}

impl Drop for BareLoop {
    fn drop(&mut self) {
        // The key, then the endpoint, which ends what is under way, then the memory.
        self.source.deregister(self.local);
        self.source.close_endpoint();
    }
}

/// Longest wait for the queue: a provider may refuse a transfer until it is asked again.
const TICK: Duration = Duration::from_millis(1);
