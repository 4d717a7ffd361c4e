//! An endpoint: transfers that any thread makes, and one thread that completes them.
//!
//! Guarantees: memory of a transfer is neither reused nor unmapped before the transfer has completed or the endpoint is
//! closed; a completion that comes twice, or that no thread waits for, changes nothing (`transfer_table`); every wait
//! is bounded.
//! Leaves to others: what is transferred, and what follows a failure (`peer`, `slots`, `host`).

#![expect(unsafe_code, reason = "contexts of transfers are memory of the provider while a transfer is under way")]

use std::any::Any;
use std::cell::UnsafeCell;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use frieze_locks::{Mutex, RwLock, levels};
use frieze_wire::fabric::FabricOffer;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::FabricError;
use crate::ffi::ProviderContext;
use crate::objects::{Completed, MemoryAccess, Objects, Registered, TransferDirection, TransferPost};
use crate::pages::MappedPages;
use crate::transfer_table::TransferTable;

/// Which endpoint to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointOptions {
    /// Name of the provider, as `fi_info` lists it: `verbs;ofi_rxm`, `efa`, `cxi`, `tcp`.
    pub provider: String,
    /// Address of this machine on the fabric's network; none: the provider's choice.
    pub address: Option<String>,
}

/// Which of a server's endpoints a peer is reached by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerRole {
    Client,
    Server,
}

/// What an endpoint has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounts {
    /// Completed transfers into memory of peers.
    pub writes: u64,
    /// Completed transfers from memory of peers.
    pub reads: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Transfers that failed.
    pub failures: u64,
    /// Transfers that did not complete in time.
    pub timeouts: u64,
    /// Completions that belong to no transfer under way.
    pub strays: u64,
    /// Registrations made.
    pub registrations: u64,
}

/// Longest wait for one transfer, once the provider has taken it.
pub const TRANSFER_MAX: Duration = Duration::from_secs(1);
/// Longest wait until the provider takes it, which may make a connection first.
const TAKE_MAX: Duration = Duration::from_secs(2);
/// Endpoints of this process that were left open because closing them is not safe, and how many there may be.
static GIVEN_UP: AtomicU64 = AtomicU64::new(0);
const GIVEN_UP_MAX: u64 = 4;

/// An open endpoint of a fabric. Dropping it closes it.
#[derive(Debug)]
pub struct Endpoint {
    core: Arc<EndpointCore>,
    thread: Mutex<levels::FabricThread, Option<JoinHandle<()>>>,
}

/// What the threads of an endpoint share.
pub(crate) struct EndpointCore {
    /// None once the endpoint is closed.
    objects: RwLock<levels::FabricObjects, Option<Objects>>,
    provider: String,
    protocol: u32,
    address: Vec<u8>,
    transfer_bytes_max: usize,
    contexts: Contexts,
    operations: Mutex<levels::FabricOperations, TransferTable<PostedTransfer>>,
    registrations: Mutex<levels::FabricRegistrations, Vec<Option<Registered>>>,
    /// Addresses of peers with which a transfer has failed.
    failed_addresses: Mutex<levels::FailedAddresses, BTreeSet<Vec<u8>>>,
    wake: OwnedFd,
    closes: AtomicBool,
    /// A transfer did not end in time, or was not taken by the provider: closing may crash it.
    is_unsettled: AtomicBool,
    counts: Counters,
}

impl std::fmt::Debug for EndpointCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an endpoint of provider {}", self.provider)
    }
}

/// Scratch space of the provider for each transfer under way, at fixed addresses.
#[derive(Debug)]
pub(crate) struct Contexts(Box<[UnsafeCell<ProviderContext>]>);

// SAFETY: only the provider touches what is inside, between a post and its completion.
unsafe impl Send for Contexts {}
// SAFETY: as above.
unsafe impl Sync for Contexts {}

impl Contexts {
    pub(crate) fn new(count: usize) -> Contexts {
        let empty = || UnsafeCell::new(ProviderContext { internal: [std::ptr::null_mut(); 8] });
        Contexts((0..count).map(|_| empty()).collect())
    }

    pub(crate) fn address(&self, index: usize) -> *mut c_void {
        self.0[index].get().cast()
    }

    /// The index of a context that a completion names; none for any other address.
    pub(crate) fn index(&self, address: *mut c_void) -> Option<usize> {
        let offset = (address as usize).checked_sub(self.0.as_ptr() as usize)?;
        let size = size_of::<ProviderContext>();
        (offset % size == 0 && offset / size < self.0.len()).then_some(offset / size)
    }
}

/// A transfer under way, as the table keeps it.
#[derive(Debug)]
struct PostedTransfer {
    state: Arc<TransferState>,
    direction: TransferDirection,
    len: usize,
    /// Its memory, which must stay as long as the provider may touch it.
    _memory: Arc<dyn Any + Send + Sync>,
}

#[derive(Debug)]
struct TransferState {
    status: AtomicU8,
    words: OnceLock<String>,
    waiter: Thread,
}

const UNDER_WAY: u8 = 0;
const SUCCEEDED: u8 = 1;
const FAILED: u8 = 2;

#[derive(Debug, Default)]
struct Counters {
    writes: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    timeouts: AtomicU64,
    strays: AtomicU64,
    registrations: AtomicU64,
}

/// A transfer under way. The thread that began it waits for it.
#[derive(Debug)]
pub(crate) struct Transfer<'a> {
    core: &'a EndpointCore,
    state: Arc<TransferState>,
    deadline: Instant,
}

/// Memory of this process that an endpoint knows. Dropping it closes the registration, then frees the memory.
#[derive(Debug)]
pub(crate) struct RegisteredMemory {
    core: Arc<EndpointCore>,
    id: usize,
    of: Registered,
    pages: Arc<MappedPages>,
}

impl Endpoint {
    /// Opens an endpoint, without a test of what it refuses ([`Endpoint::open`] in `probe`).
    pub(crate) fn open_untested(options: &EndpointOptions) -> Result<Endpoint, FabricError> {
        if GIVEN_UP.load(Ordering::Relaxed) >= GIVEN_UP_MAX {
            let words = format!("{GIVEN_UP_MAX} endpoints did not settle; start the process again");
            return Err(FabricError::Library(words));
        }
        let objects = Objects::open(options)?;
        let count = objects.transfers_max().clamp(1, TRANSFERS_MAX);
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| FabricError::Library(format!("no event descriptor: {errno}")))?;
        let operations = TransferTable::new(count);
        let core = Arc::new(EndpointCore {
            provider: objects.provider.clone(),
            protocol: objects.protocol(),
            address: objects.address()?,
            transfer_bytes_max: objects.transfer_bytes_max(),
            objects: RwLock::new(Some(objects)),
            contexts: Contexts::new(operations.contexts()),
            operations: Mutex::new(operations),
            registrations: Mutex::default(),
            failed_addresses: Mutex::default(),
            wake,
            closes: AtomicBool::new(false),
            is_unsettled: AtomicBool::new(false),
            counts: Counters::default(),
        });
        let runner = core.clone();
        let thread = std::thread::Builder::new().name("frieze-fabric".to_owned()).spawn(move || runner.run());
        let thread = thread.map_err(|error| FabricError::Library(format!("no thread for the endpoint: {error}")))?;
        Ok(Endpoint { core, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn core(&self) -> &Arc<EndpointCore> {
        &self.core
    }

    /// Name of the provider in full.
    pub fn provider(&self) -> &str {
        &self.core.provider
    }

    /// Number of the provider's protocol. Endpoints of the same protocol reach each other.
    pub fn protocol(&self) -> u32 {
        self.core.protocol
    }

    /// Address for peers.
    pub fn address(&self) -> &[u8] {
        &self.core.address
    }

    /// It as peers know it.
    pub fn offer(&self) -> FabricOffer {
        let (provider, protocol) = (self.provider().to_owned(), self.protocol());
        FabricOffer { provider, protocol, address: self.address().to_vec() }
    }

    /// What it has done.
    pub fn counts(&self) -> EndpointCounts {
        let Counters { writes, reads, bytes, failures, timeouts, strays, registrations } = &self.core.counts;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        EndpointCounts {
            writes: of(writes),
            reads: of(reads),
            bytes: of(bytes),
            failures: of(failures),
            timeouts: of(timeouts),
            strays: of(strays),
            registrations: of(registrations),
        }
    }

    /// True if a transfer did not complete in time and still has its memory: only closing the endpoint gives it back.
    pub fn is_stuck(&self) -> bool {
        self.core.counts.timeouts.load(Ordering::Relaxed) > 0
    }
}

impl Endpoint {
    /// Closes it, also for those that still refer to it: transfers under way fail, and keys are of no use.
    pub(crate) fn close(&self) {
        self.core.closes.store(true, Ordering::Release);
        self.core.wake();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic of the thread is in the log already.
            let _ = thread.join();
        }
        self.core.close();
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close();
    }
}

impl EndpointCore {
    /// Registers memory of `len` bytes.
    pub(crate) fn register(
        self: &Arc<EndpointCore>,
        len: usize,
        access: MemoryAccess,
    ) -> Result<RegisteredMemory, FabricError> {
        let pages = MappedPages::map(len).map_err(|errno| FabricError::Library(format!("no memory: {errno}")))?;
        self.register_again(&Arc::new(pages), access)
    }

    /// Registers memory that another endpoint of this process may know already.
    pub(crate) fn register_again(
        self: &Arc<EndpointCore>,
        pages: &Arc<MappedPages>,
        access: MemoryAccess,
    ) -> Result<RegisteredMemory, FabricError> {
        let guard = self.objects.read();
        let objects = guard.as_ref().ok_or(FabricError::Closed)?;
        let of = objects.register(pages.start(), pages.len(), access, random_key)?;
        self.counts.registrations.fetch_add(1, Ordering::Relaxed);
        let mut registrations = self.registrations.lock();
        let id = registrations.iter().position(Option::is_none).unwrap_or(registrations.len());
        if id == registrations.len() {
            registrations.push(None);
        }
        registrations[id] = Some(of);
        drop(registrations);
        Ok(RegisteredMemory { core: self.clone(), id, of, pages: pages.clone() })
    }

    /// Inserts a peer.
    pub(crate) fn insert(&self, address: &[u8]) -> Result<u64, FabricError> {
        let is_same_kind = address.len() == self.address.len() && address.get(..2) == self.address.get(..2);
        if !is_same_kind {
            return Err(FabricError::Provider {
                provider: self.provider.clone(),
                what: "inserting an address",
                words: format!("{} bytes that are no address of this provider", address.len()),
            });
        }
        self.objects.read().as_ref().ok_or(FabricError::Closed)?.insert(address)
    }

    /// Notes that a transfer with the peer at this address has failed.
    pub(crate) fn note_failed(&self, address: &[u8]) {
        let mut failed = self.failed_addresses.lock();
        if failed.len() < FAILED_MAX {
            failed.insert(address.to_vec());
        }
    }

    /// True if a transfer with the peer at this address has failed before.
    pub(crate) fn has_failed(&self, address: &[u8]) -> bool {
        self.failed_addresses.lock().contains(address)
    }

    pub(crate) fn remove(&self, peer: u64) {
        if let Some(objects) = self.objects.read().as_ref() {
            objects.remove(peer);
        }
    }

    /// Begins a transfer between `len` bytes at `local` and the same number at `remote`. `memory` owns the local
    /// bytes: it is kept until the provider has finished.
    ///
    /// # Safety
    /// `local` is within registered memory that lives as long as `memory`, and until the transfer has completed nothing
    /// else writes there, nor, if it is the destination, reads.
    pub(crate) unsafe fn begin(
        &self,
        direction: TransferDirection,
        peer: u64,
        (local, len, descriptor): (*mut u8, usize, usize),
        (remote, key): (u64, u64),
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Result<Transfer<'_>, FabricError> {
        if len > self.transfer_bytes_max {
            return Err(FabricError::Transfer(format!("{len} bytes; at most {}", self.transfer_bytes_max)));
        }
        let deadline = now() + TAKE_MAX;
        let state = Arc::new(TransferState {
            status: AtomicU8::new(UNDER_WAY),
            words: OnceLock::new(),
            waiter: std::thread::current(),
        });
        let mut operation = PostedTransfer { state: state.clone(), direction, len, _memory: memory };
        let index = loop {
            let begun = self.operations.lock().begin(operation);
            match begun {
                Ok(index) => break index,
                Err(full) => operation = full,
            }
            self.pause(deadline)?;
        };
        let context = self.contexts.address(index);
        let post = TransferPost { direction, peer, local, len, descriptor, remote, key, context };
        loop {
            let posted =
                self.objects.read().as_ref().ok_or(FabricError::Closed).and_then(|objects| objects.post(&post));
            let ended = match posted {
                Ok(true) => return Ok(Transfer { core: self, state, deadline: now() + TRANSFER_MAX }),
                // The provider waits for a connection or for room; after the end of a peer some do so for ever.
                Ok(false) => self.pause(deadline),
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                // It was never taken by the provider.
                let refused = self.operations.lock().end(index);
                drop(refused);
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                return Err(error);
            }
        }
    }

    fn pause(&self, deadline: Instant) -> Result<(), FabricError> {
        if self.closes.load(Ordering::Acquire) {
            return Err(FabricError::Closed);
        }
        if now() >= deadline {
            self.is_unsettled.store(true, Ordering::Release);
            return Err(FabricError::Transfer("the provider did not take it in time".to_owned()));
        }
        self.wake();
        std::thread::park_timeout(PAUSE);
        Ok(())
    }

    fn wake(&self) {
        // A full counter wakes as well.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// The thread of the endpoint.
    fn run(&self) {
        let mut completed = Vec::new();
        while !self.closes.load(Ordering::Acquire) {
            let (found, queue, may_wait) = {
                let objects = self.objects.read();
                let Some(objects) = objects.as_ref() else { return };
                let found = objects.complete(&mut completed);
                (found, objects.queue_fd, !found && objects.queue_fd.is_some() && objects.may_wait())
            };
            // Memory of transfers that have ended may close its registration: nothing is locked here.
            completed.drain(..).for_each(|one| self.end(one));
            if found {
                continue;
            }
            match queue {
                Some(fd) if may_wait => {
                    // SAFETY: the queue, and with it its descriptor, is closed after this thread has ended.
                    let queue = unsafe { BorrowedFd::borrow_raw(fd) };
                    self.wait(Some(queue), if self.is_busy() { BUSY_TICK } else { IDLE_TICK });
                }
                Some(_) => {}
                // Without a descriptor the thread looks again after a moment.
                None => self.wait(None, if self.is_busy() { LOOK_AGAIN } else { IDLE_LOOK }),
            }
        }
    }

    fn is_busy(&self) -> bool {
        !self.operations.lock().is_idle()
    }

    fn wait(&self, queue: Option<BorrowedFd<'_>>, limit: Duration) {
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let wake = PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN);
        let mut fds = [wake.clone(), wake];
        let count = match queue {
            Some(queue) => {
                fds[1] = PollFd::from_borrowed_fd(queue, PollFlags::IN);
                2
            }
            None => 1,
        };
        // An interrupted wait is a look too many.
        let _ = poll(&mut fds[..count], Some(&limit));
        if fds[0].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        }
    }

    fn end(&self, completed: Completed) {
        let ended = self.contexts.index(completed.context).and_then(|index| self.operations.lock().end(index));
        let Some(PostedTransfer { state, direction, len, .. }) = ended else {
            self.counts.strays.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let status = match completed.result {
            Ok(()) => {
                let done = if direction == TransferDirection::Write { &self.counts.writes } else { &self.counts.reads };
                done.fetch_add(1, Ordering::Relaxed);
                self.counts.bytes.fetch_add(len as u64, Ordering::Relaxed);
                SUCCEEDED
            }
            Err(words) => {
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                let _ = state.words.set(words);
                FAILED
            }
        };
        state.status.store(status, Ordering::Release);
        state.waiter.unpark();
    }

    /// Closes everything. The provider then touches no memory, so that of transfers under way is given back.
    ///
    /// An endpoint that has not settled is left open instead, with the memory of its transfers: libfabric up to 2.4 may
    /// use freed memory while it closes a connection that is being made. Its keys are closed all the same.
    fn close(self: &Arc<EndpointCore>) {
        let mut objects = self.objects.write();
        let Some(mut open) = objects.take() else { return };
        // Keys first: a late write of a peer is refused.
        self.registrations.lock().iter_mut().filter_map(Option::take).for_each(|of| open.deregister(of));
        if self.is_unsettled.load(Ordering::Acquire) {
            GIVEN_UP.fetch_add(1, Ordering::Relaxed);
            std::mem::forget((open, self.clone()));
            return;
        }
        open.close_endpoint();
        let left = self.operations.lock().end_all();
        drop(open);
        drop(objects);
        for operation in left {
            let _ = operation.state.words.set("the endpoint was closed".to_owned());
            operation.state.status.store(FAILED, Ordering::Release);
            operation.state.waiter.unpark();
        }
    }
}

impl Transfer<'_> {
    /// Waits for the end of the transfer.
    ///
    /// # Errors
    /// `Transfer` if it was refused; `Timeout` if it is still under way: its memory then stays out of use.
    pub(crate) fn wait(self) -> Result<(), FabricError> {
        loop {
            match self.state.status.load(Ordering::Acquire) {
                SUCCEEDED => return Ok(()),
                FAILED => {
                    let words = self.state.words.get().map_or("without a reason", String::as_str);
                    return Err(FabricError::Transfer(words.to_owned()));
                }
                _ => {}
            }
            let left = self.deadline.saturating_duration_since(now());
            if left.is_zero() {
                self.core.counts.timeouts.fetch_add(1, Ordering::Relaxed);
                self.core.is_unsettled.store(true, Ordering::Release);
                return Err(FabricError::Timeout(TRANSFER_MAX.as_millis() as u64));
            }
            std::thread::park_timeout(left);
        }
    }
}

impl RegisteredMemory {
    /// Its memory.
    pub(crate) fn pages(&self) -> &Arc<MappedPages> {
        &self.pages
    }

    /// Address of its first byte for peers.
    pub(crate) fn base(&self) -> u64 {
        self.of.base
    }

    /// Key for peers.
    pub(crate) fn key(&self) -> u64 {
        self.of.key
    }

    /// What a transfer passes for memory of this registration.
    pub(crate) fn descriptor(&self) -> usize {
        self.of.descriptor
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        let objects = self.core.objects.read();
        let of = self.core.registrations.lock()[self.id].take();
        if let (Some(objects), Some(of)) = (objects.as_ref(), of) {
            objects.deregister(of);
        }
        // The fields are dropped after this: the memory is unmapped once the key is of no use.
    }
}

/// A key that cannot be guessed.
pub(crate) fn random_key() -> u64 {
    let mut key = [0u8; 8];
    // The system's generator does not fail for so few bytes once it has started; zeros are refused as any other key
    // that exists.
    let _ = rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(key)
}

#[expect(clippy::disallowed_methods, reason = "the endpoint measures its own waits; nothing else depends on them")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Most addresses that are noted as failed.
const FAILED_MAX: usize = 4096;
/// Most transfers under way on one endpoint.
const TRANSFERS_MAX: usize = 256;
/// Pause before a transfer is offered to the provider again.
const PAUSE: Duration = Duration::from_micros(50);
/// Longest wait of the thread while transfers are under way, and while there are none.
const BUSY_TICK: Duration = Duration::from_millis(10);
const IDLE_TICK: Duration = Duration::from_secs(1);
/// The same without a descriptor to wait for.
const LOOK_AGAIN: Duration = Duration::from_micros(50);
const IDLE_LOOK: Duration = Duration::from_millis(2);
