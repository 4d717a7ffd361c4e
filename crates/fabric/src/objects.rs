//! The objects of libfabric behind an endpoint, and the calls on them.
//!
//! Guarantees: everything is closed in the order that libfabric asks for; the calls are made by any thread, because the
//! objects are opened for that (`FI_THREAD_SAFE`).
//! Leaves to others: memory and its lifetime (`endpoint`, `registration`), which operations are under way.

#![expect(unsafe_code, reason = "all of libfabric is reached through pointers; `ffi` declares them")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::ptr::{null, null_mut};

use crate::FabricError;
use crate::endpoint::EndpointOptions;
use crate::ffi;
use crate::library::Library;

/// Which way a transfer goes, as the side that makes it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferDirection {
    /// From memory of this process into the peer's.
    Write,
    /// From the peer's memory into that of this process.
    Read,
}

/// What may reach registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryAccess {
    /// This endpoint alone, as the local end of transfers.
    Local,
    /// Also peers, for reading.
    RemoteRead,
    /// Also peers, for reading and writing.
    RemoteReadWrite,
}

/// One transfer as libfabric takes it.
#[derive(Debug)]
pub(crate) struct TransferPost {
    pub(crate) direction: TransferDirection,
    pub(crate) peer: u64,
    pub(crate) local: *mut u8,
    pub(crate) len: usize,
    pub(crate) descriptor: usize,
    pub(crate) remote: u64,
    pub(crate) key: u64,
    pub(crate) context: *mut c_void,
}

/// What libfabric says of a registration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    pub(crate) handle: *mut ffi::MemoryFid,
    /// Address of its first byte for peers.
    pub(crate) base: u64,
    pub(crate) key: u64,
    pub(crate) descriptor: usize,
}

// SAFETY: a handle that any thread may use.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

/// A completion.
#[derive(Debug)]
pub(crate) struct Completed {
    pub(crate) context: *mut c_void,
    pub(crate) result: Result<(), String>,
}

/// An open endpoint with everything below it.
#[derive(Debug)]
pub(crate) struct Objects {
    library: &'static Library,
    pub(crate) provider: String,
    info: *mut ffi::Info,
    fabric: *mut ffi::FabricFid,
    domain: *mut ffi::DomainFid,
    addresses: *mut ffi::AddressFid,
    queue: *mut ffi::QueueFid,
    endpoint: *mut ffi::EndpointFid,
    /// Readable when the queue may have completions; none if the provider has no such descriptor.
    pub(crate) queue_fd: Option<RawFd>,
}

// SAFETY: the objects are opened with FI_THREAD_SAFE: libfabric serializes calls by itself.
unsafe impl Send for Objects {}
// SAFETY: as above.
unsafe impl Sync for Objects {}

impl Objects {
    /// Opens an endpoint of a provider.
    pub(crate) fn open(options: &EndpointOptions) -> Result<Objects, FabricError> {
        let library = Library::get()?;
        let mut objects = Objects {
            library,
            provider: options.provider.clone(),
            info: null_mut(),
            fabric: null_mut(),
            domain: null_mut(),
            addresses: null_mut(),
            queue: null_mut(),
            endpoint: null_mut(),
            queue_fd: None,
        };
        // What was opened before an error is closed by `drop`.
        objects.find(options)?;
        objects.open_all()?;
        Ok(objects)
    }

    fn check(&self, code: c_int, what: &'static str) -> Result<(), FabricError> {
        if code == 0 { Ok(()) } else { Err(self.error(code as isize, what)) }
    }

    fn error(&self, code: isize, what: &'static str) -> FabricError {
        FabricError::Provider { provider: self.provider.clone(), what, words: self.library.words(code) }
    }

    /// Asks for an endpoint of reliable datagrams with one-sided transfers.
    fn find(&mut self, options: &EndpointOptions) -> Result<(), FabricError> {
        let invalid = |_| FabricError::Provider {
            provider: options.provider.clone(),
            what: "name of a provider, or address",
            words: "it contains a zero byte".to_owned(),
        };
        let provider = CString::new(options.provider.as_str()).map_err(invalid)?;
        let bind = options.address.as_deref().map(CString::new).transpose().map_err(invalid)?;
        // SAFETY: `hints` is made and freed by the library; its parts are there, and their texts are of `malloc`.
        let code = unsafe {
            let hints = (self.library.dupinfo)(null());
            if hints.is_null() {
                return Err(FabricError::Library("no memory".to_owned()));
            }
            let wanted = &mut *hints;
            wanted.caps = ffi::MSG | ffi::RMA | ffi::READ | ffi::WRITE | ffi::REMOTE_READ | ffi::REMOTE_WRITE;
            wanted.mode = ffi::CONTEXT | ffi::CONTEXT2;
            (*wanted.ep_attr).kind = ffi::EP_RDM;
            (*wanted.domain_attr).mr_mode =
                ffi::MR_LOCAL | ffi::MR_VIRT_ADDR | ffi::MR_ALLOCATED | ffi::MR_PROV_KEY | ffi::MR_ENDPOINT;
            (*wanted.domain_attr).threading = ffi::THREAD_SAFE;
            (*wanted.fabric_attr).prov_name = libc::strdup(provider.as_ptr());
            let node = bind.as_ref().map_or(null(), |bind| bind.as_ptr());
            let flags = if bind.is_some() { ffi::SOURCE } else { 0 };
            let code = (self.library.getinfo)(ffi::VERSION, node, null(), flags, hints, &mut self.info);
            (self.library.freeinfo)(hints);
            code
        };
        self.check(code, "no endpoint for one-sided transfers")
    }

    fn open_all(&mut self) -> Result<(), FabricError> {
        // SAFETY: each object is opened with those before it, which are open; attributes are complete structures.
        unsafe {
            let code = (self.library.fabric)((*self.info).fabric_attr, &mut self.fabric, null_mut());
            self.check(code, "opening the fabric")?;
            let code = ((*(*self.fabric).ops).domain)(self.fabric, self.info, &mut self.domain, null_mut());
            self.check(code, "opening the domain")?;
            let ops = &*(*self.domain).ops;
            let mut address = ffi::AddressAttr {
                kind: ffi::AV_TABLE,
                rx_ctx_bits: 0,
                count: 0,
                ep_per_node: 0,
                name: null(),
                map_addr: null_mut(),
                flags: 0,
            };
            if (ops.av_open)(self.domain, &mut address, &mut self.addresses, null_mut()) != 0 {
                address.kind = ffi::AV_UNSPEC;
                let code = (ops.av_open)(self.domain, &mut address, &mut self.addresses, null_mut());
                self.check(code, "opening the table of addresses")?;
            }
            let mut queue = ffi::QueueAttr {
                size: 0,
                flags: 0,
                format: ffi::CQ_FORMAT_DATA,
                wait_obj: ffi::WAIT_FD,
                signaling_vector: 0,
                wait_cond: 0,
                wait_set: null_mut(),
            };
            let waits = (ops.cq_open)(self.domain, &mut queue, &mut self.queue, null_mut()) == 0;
            if !waits {
                queue.wait_obj = ffi::WAIT_NONE;
                let code = (ops.cq_open)(self.domain, &mut queue, &mut self.queue, null_mut());
                self.check(code, "opening the completion queue")?;
            }
            let code = (ops.endpoint)(self.domain, self.info, &mut self.endpoint, null_mut());
            self.check(code, "opening the endpoint")?;
            let endpoint = self.endpoint.cast::<ffi::Fid>();
            let bind = (*(*endpoint).ops).bind;
            self.check(bind(endpoint, self.addresses.cast::<ffi::Fid>(), 0), "binding the table of addresses")?;
            let both = ffi::TRANSMIT | ffi::RECV;
            self.check(bind(endpoint, self.queue.cast::<ffi::Fid>(), both), "binding the completion queue")?;
            let enabled = ((*(*endpoint).ops).control)(endpoint, ffi::CONTROL_ENABLE, null_mut());
            self.check(enabled, "enabling the endpoint")?;
            let mut fd: c_int = -1;
            let fid = self.queue.cast::<ffi::Fid>();
            if waits && ((*(*fid).ops).control)(fid, ffi::CONTROL_GETWAIT, (&raw mut fd).cast()) == 0 && fd >= 0 {
                self.queue_fd = Some(fd);
            }
            let name = (*(*self.info).fabric_attr).prov_name;
            if !name.is_null() {
                self.provider = CStr::from_ptr(name).to_string_lossy().into_owned();
            }
        }
        Ok(())
    }

    /// Number of the provider's protocol: endpoints of one protocol reach each other.
    pub(crate) fn protocol(&self) -> u32 {
        // SAFETY: the attributes of an open endpoint.
        unsafe { (*(*self.info).ep_attr).protocol }
    }

    /// Most bytes of one transfer.
    pub(crate) fn transfer_bytes_max(&self) -> usize {
        // SAFETY: as above.
        unsafe { (*(*self.info).ep_attr).max_msg_size }
    }

    /// Most transfers under way.
    pub(crate) fn transfers_max(&self) -> usize {
        // SAFETY: as above.
        unsafe { (*(*self.info).tx_attr).size }
    }

    fn memory_mode(&self) -> c_int {
        // SAFETY: as above.
        unsafe { (*(*self.info).domain_attr).mr_mode }
    }

    /// The address that peers insert.
    pub(crate) fn address(&self) -> Result<Vec<u8>, FabricError> {
        let mut len = 0usize;
        // SAFETY: the first call asks for the length, the second fills so many bytes.
        unsafe {
            let fid = self.endpoint.cast::<ffi::Fid>();
            let getname = (*(*self.endpoint).cm).getname;
            getname(fid, null_mut(), &mut len);
            let mut address = vec![0u8; len];
            self.check(getname(fid, address.as_mut_ptr().cast(), &mut len), "asking for the endpoint's address")?;
            address.truncate(len);
            Ok(address)
        }
    }

    /// Inserts the address of a peer.
    pub(crate) fn insert(&self, address: &[u8]) -> Result<u64, FabricError> {
        let mut peer = u64::MAX;
        // SAFETY: the caller has checked that the bytes are as long as an address of this endpoint.
        let count = unsafe {
            let insert = (*(*self.addresses).ops).insert;
            insert(self.addresses, address.as_ptr().cast(), 1, &mut peer, 0, null_mut())
        };
        if count == 1 && peer != u64::MAX { Ok(peer) } else { Err(self.error(count as isize, "inserting an address")) }
    }

    /// Removes a peer: a later one with the same address is another.
    pub(crate) fn remove(&self, mut peer: u64) {
        // SAFETY: a number that `insert` returned, removed once.
        let code = unsafe { ((*(*self.addresses).ops).remove)(self.addresses, &mut peer, 1, 0) };
        if code != 0 {
            tracing::debug!("{}: an address was not removed: {}", self.provider, self.library.words(code as isize));
        }
    }

    /// Registers memory. `random` is asked for a key where the provider takes any.
    pub(crate) fn register(
        &self,
        start: *mut u8,
        len: usize,
        access: MemoryAccess,
        mut random: impl FnMut() -> u64,
    ) -> Result<Registered, FabricError> {
        let mode = self.memory_mode();
        let flags = ffi::READ
            | ffi::WRITE
            | match access {
                MemoryAccess::Local => 0,
                MemoryAccess::RemoteRead => ffi::REMOTE_READ,
                MemoryAccess::RemoteReadWrite => ffi::REMOTE_READ | ffi::REMOTE_WRITE,
            };
        let mut handle: *mut ffi::MemoryFid = null_mut();
        // SAFETY: the caller keeps the memory mapped until it has closed the registration.
        unsafe {
            let key_bytes = (*(*self.info).domain_attr).mr_key_size;
            let mask = if key_bytes >= 8 { u64::MAX } else { (1u64 << (8 * key_bytes)) - 1 };
            let domain = self.domain.cast::<ffi::Fid>();
            let reg = (*(*self.domain).mr).reg;
            let mut code = -ffi::ENOKEY;
            for _ in 0..KEYS_TRIED {
                let key = if mode & ffi::MR_PROV_KEY != 0 { 0 } else { random() & mask };
                code = reg(domain, start.cast(), len, flags, 0, key, 0, &mut handle, null_mut());
                if code != -ffi::ENOKEY {
                    break;
                }
            }
            self.check(code, "registering memory")?;
            if mode & ffi::MR_ENDPOINT != 0 {
                let fid = handle.cast::<ffi::Fid>();
                let bound = ((*(*fid).ops).bind)(fid, self.endpoint.cast::<ffi::Fid>(), 0);
                let enabled =
                    if bound == 0 { ((*(*fid).ops).control)(fid, ffi::CONTROL_ENABLE, null_mut()) } else { bound };
                if enabled != 0 {
                    self.close_fid(fid, "a registration");
                    return Err(self.error(enabled as isize, "enabling a registration"));
                }
            }
            let base = if mode & ffi::MR_VIRT_ADDR != 0 { start as u64 } else { 0 };
            let (key, descriptor) = ((*handle).key, (*handle).mem_desc as usize);
            Ok(Registered { handle, base, key, descriptor })
        }
    }

    /// Closes a registration: its key is of no use from now on.
    pub(crate) fn deregister(&self, registered: Registered) {
        // SAFETY: an open handle, closed once.
        unsafe { self.close_fid(registered.handle.cast::<ffi::Fid>(), "a registration") };
    }

    /// Hands a transfer to the provider. False: it cannot take it now.
    pub(crate) fn post(&self, post: &TransferPost) -> Result<bool, FabricError> {
        let local = libc::iovec { iov_base: post.local.cast(), iov_len: post.len };
        let mut descriptor = post.descriptor as *mut c_void;
        let remote = ffi::RemoteVec { addr: post.remote, len: post.len, key: post.key };
        let message = ffi::TransferMsg {
            msg_iov: &local,
            desc: &mut descriptor,
            iov_count: 1,
            addr: post.peer,
            rma_iov: &remote,
            rma_iov_count: 1,
            context: post.context,
            data: 0,
        };
        // SAFETY: the provider copies the message; memory and context stay until the completion or the close.
        let code = unsafe {
            let ops = &*(*self.endpoint).rma;
            match post.direction {
                TransferDirection::Read => (ops.readmsg)(self.endpoint, &message, ffi::COMPLETION),
                // The reply that names the bytes must not overtake them.
                TransferDirection::Write => {
                    (ops.writemsg)(self.endpoint, &message, ffi::COMPLETION | ffi::DELIVERY_COMPLETE)
                }
            }
        };
        match code {
            0 => Ok(true),
            code if code == -ffi::EAGAIN => Ok(false),
            code => Err(self.error(code, "posting a transfer")),
        }
    }

    /// Appends the completions that are there to `into`, and lets the provider work. False if there was none.
    pub(crate) fn complete(&self, into: &mut Vec<Completed>) -> bool {
        let nothing = ffi::QueueEntry { op_context: null_mut(), flags: 0, len: 0, buf: null_mut(), data: 0 };
        let mut entries = [nothing; COMPLETIONS_AT_ONCE];
        // SAFETY: room for so many entries of the format that the queue was opened with.
        let count = unsafe { ((*(*self.queue).ops).read)(self.queue, entries.as_mut_ptr().cast(), entries.len()) };
        if count > 0 {
            let found = entries[..count as usize].iter();
            into.extend(found.map(|entry| Completed { context: entry.op_context, result: Ok(()) }));
            return true;
        }
        count == -ffi::EAVAIL && self.complete_with_error(into)
    }

    fn complete_with_error(&self, into: &mut Vec<Completed>) -> bool {
        // SAFETY: the structure is valid with zeros, and longer than the library's.
        let mut error: ffi::QueueError = unsafe { std::mem::zeroed() };
        // SAFETY: as above; the words lie in the provider or in `words`, and have their end.
        unsafe {
            let ops = &*(*self.queue).ops;
            if (ops.readerr)(self.queue, &mut error, 0) <= 0 {
                return false;
            }
            let mut words = [0 as c_char; 256];
            let detail = (ops.strerror)(self.queue, error.prov_errno, error.err_data, words.as_mut_ptr(), words.len());
            let mut text = self.library.words(error.err as isize);
            if !detail.is_null() {
                let detail = CStr::from_ptr(detail).to_string_lossy();
                text = format!("{text}: {detail}");
            }
            into.push(Completed { context: error.op_context, result: Err(text) });
        }
        true
    }

    /// True if waiting for the descriptor of the queue misses nothing.
    pub(crate) fn may_wait(&self) -> bool {
        // SAFETY: the queue belongs to the fabric.
        unsafe {
            let mut fids = [self.queue.cast::<ffi::Fid>()];
            ((*(*self.fabric).ops).trywait)(self.fabric, fids.as_mut_ptr(), 1) == 0
        }
    }

    /// Closes the endpoint: the provider touches no memory for it any more.
    pub(crate) fn close_endpoint(&mut self) {
        let endpoint = std::mem::replace(&mut self.endpoint, null_mut());
        if !endpoint.is_null() {
            // SAFETY: open, and closed once.
            unsafe { self.close_fid(endpoint.cast::<ffi::Fid>(), "the endpoint") };
        }
    }

    /// # Safety
    /// The object is open, and is not used after this.
    unsafe fn close_fid(&self, fid: *mut ffi::Fid, what: &str) {
        // SAFETY: the caller's.
        let code = unsafe { ((*(*fid).ops).close)(fid) };
        if code != 0 {
            tracing::debug!("{}: {what} was not closed: {}", self.provider, self.library.words(code as isize));
        }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.close_endpoint();
        // SAFETY: what is open is closed once, users before what they use.
        unsafe {
            if !self.queue.is_null() {
                self.close_fid(self.queue.cast::<ffi::Fid>(), "the completion queue");
            }
            if !self.addresses.is_null() {
                self.close_fid(self.addresses.cast::<ffi::Fid>(), "the table of addresses");
            }
            if !self.domain.is_null() {
                self.close_fid(self.domain.cast::<ffi::Fid>(), "the domain");
            }
            if !self.fabric.is_null() {
                self.close_fid(self.fabric.cast::<ffi::Fid>(), "the fabric");
            }
            if !self.info.is_null() {
                (self.library.freeinfo)(self.info);
            }
        }
    }
}

/// Keys that are tried for a registration before it fails: the provider has another under the same.
const KEYS_TRIED: usize = 8;
/// Completions that are taken with one call.
const COMPLETIONS_AT_ONCE: usize = 32;
