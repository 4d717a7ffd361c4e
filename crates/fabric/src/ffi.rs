//! The structures of libfabric's interface 1.17 that are used here, declared by hand.
//!
//! All of libfabric but six functions is reached through tables of functions in these structures. A structure that is
//! only passed on is opaque. Tables and structures end behind the last member that is used, if the library makes them;
//! structures that are made here are complete. `tests/headers.rs` compares sizes and offsets with the headers, where
//! those and a C compiler are installed.

use std::ffi::{c_char, c_int, c_void};

/// Head of every object of libfabric.
#[repr(C)]
#[derive(Debug)]
pub struct Fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *mut FidOps,
}

/// `struct fi_ops`.
#[repr(C)]
#[derive(Debug)]
pub struct FidOps {
    pub size: usize,
    pub close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
}

/// `struct fi_info`.
#[repr(C)]
#[derive(Debug)]
pub struct Info {
    pub next: *mut Info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut Fid,
    pub tx_attr: *mut TransmitAttr,
    pub rx_attr: *mut c_void,
    pub ep_attr: *mut EndpointAttr,
    pub domain_attr: *mut DomainAttr,
    pub fabric_attr: *mut FabricAttr,
    pub nic: *mut c_void,
}

/// `struct fi_tx_attr`, up to `size`.
#[repr(C)]
#[derive(Debug)]
pub struct TransmitAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
}

/// `struct fi_ep_attr`, up to `max_msg_size`.
#[repr(C)]
#[derive(Debug)]
pub struct EndpointAttr {
    pub kind: u32,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
}

/// `struct fi_domain_attr`, up to `mr_key_size`.
#[repr(C)]
#[derive(Debug)]
pub struct DomainAttr {
    pub domain: *mut c_void,
    pub name: *mut c_char,
    pub threading: u32,
    pub control_progress: u32,
    pub data_progress: u32,
    pub resource_mgmt: u32,
    pub av_type: u32,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
}

/// `struct fi_fabric_attr`.
#[repr(C)]
#[derive(Debug)]
pub struct FabricAttr {
    pub fabric: *mut c_void,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

/// `struct fid_fabric`, up to `ops`.
#[repr(C)]
#[derive(Debug)]
pub struct FabricFid {
    pub fid: Fid,
    pub ops: *mut FabricOps,
}

/// `struct fi_ops_fabric`, up to `trywait`.
#[repr(C)]
#[derive(Debug)]
pub struct FabricOps {
    pub size: usize,
    pub domain: unsafe extern "C" fn(*mut FabricFid, *mut Info, *mut *mut DomainFid, *mut c_void) -> c_int,
    pub passive_ep: *const c_void,
    pub eq_open: *const c_void,
    pub wait_open: *const c_void,
    pub trywait: unsafe extern "C" fn(*mut FabricFid, *mut *mut Fid, c_int) -> c_int,
}

/// `struct fid_domain`.
#[repr(C)]
#[derive(Debug)]
pub struct DomainFid {
    pub fid: Fid,
    pub ops: *mut DomainOps,
    pub mr: *mut MemoryOps,
}

/// `struct fi_ops_domain`, up to `endpoint`.
#[repr(C)]
#[derive(Debug)]
pub struct DomainOps {
    pub size: usize,
    pub av_open: unsafe extern "C" fn(*mut DomainFid, *mut AddressAttr, *mut *mut AddressFid, *mut c_void) -> c_int,
    pub cq_open: unsafe extern "C" fn(*mut DomainFid, *mut QueueAttr, *mut *mut QueueFid, *mut c_void) -> c_int,
    pub endpoint: unsafe extern "C" fn(*mut DomainFid, *mut Info, *mut *mut EndpointFid, *mut c_void) -> c_int,
}

/// `struct fi_ops_mr`, up to `reg`.
#[repr(C)]
#[derive(Debug)]
pub struct MemoryOps {
    pub size: usize,
    pub reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut MemoryFid,
        *mut c_void,
    ) -> c_int,
}

/// `struct fid_mr`.
#[repr(C)]
#[derive(Debug)]
pub struct MemoryFid {
    pub fid: Fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

/// `struct fi_av_attr`.
#[repr(C)]
#[derive(Debug)]
pub struct AddressAttr {
    pub kind: u32,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

/// `struct fid_av`.
#[repr(C)]
#[derive(Debug)]
pub struct AddressFid {
    pub fid: Fid,
    pub ops: *mut AddressOps,
}

/// `struct fi_ops_av`, up to `remove`.
#[repr(C)]
#[derive(Debug)]
pub struct AddressOps {
    pub size: usize,
    pub insert: unsafe extern "C" fn(*mut AddressFid, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int,
    pub insertsvc: *const c_void,
    pub insertsym: *const c_void,
    pub remove: unsafe extern "C" fn(*mut AddressFid, *mut u64, usize, u64) -> c_int,
}

/// `struct fi_cq_attr`.
#[repr(C)]
#[derive(Debug)]
pub struct QueueAttr {
    pub size: usize,
    pub flags: u64,
    pub format: u32,
    pub wait_obj: u32,
    pub signaling_vector: c_int,
    pub wait_cond: u32,
    pub wait_set: *mut c_void,
}

/// `struct fid_cq`.
#[repr(C)]
#[derive(Debug)]
pub struct QueueFid {
    pub fid: Fid,
    pub ops: *mut QueueOps,
}

/// `struct fi_ops_cq`, up to `strerror`.
#[repr(C)]
#[derive(Debug)]
pub struct QueueOps {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut QueueFid, *mut c_void, usize) -> isize,
    pub readfrom: *const c_void,
    pub readerr: unsafe extern "C" fn(*mut QueueFid, *mut QueueError, u64) -> isize,
    pub sread: *const c_void,
    pub sreadfrom: *const c_void,
    pub signal: *const c_void,
    pub strerror: unsafe extern "C" fn(*mut QueueFid, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

/// `struct fi_cq_data_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QueueEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
}

/// `struct fi_cq_err_entry`, with room for members of later versions.
#[repr(C)]
#[derive(Debug)]
pub struct QueueError {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
    pub later: [u64; 8],
}

/// `struct fid_ep`, up to `rma`.
#[repr(C)]
#[derive(Debug)]
pub struct EndpointFid {
    pub fid: Fid,
    pub ops: *mut c_void,
    pub cm: *mut ConnectionOps,
    pub msg: *mut c_void,
    pub rma: *mut TransferOps,
}

/// `struct fi_ops_cm`, up to `getname`.
#[repr(C)]
#[derive(Debug)]
pub struct ConnectionOps {
    pub size: usize,
    pub setname: *const c_void,
    pub getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
}

/// `struct fi_ops_rma`, up to `writemsg`.
#[repr(C)]
#[derive(Debug)]
pub struct TransferOps {
    pub size: usize,
    pub read: *const c_void,
    pub readv: *const c_void,
    pub readmsg: unsafe extern "C" fn(*mut EndpointFid, *const TransferMsg, u64) -> isize,
    pub write: *const c_void,
    pub writev: *const c_void,
    pub writemsg: unsafe extern "C" fn(*mut EndpointFid, *const TransferMsg, u64) -> isize,
}

/// `struct fi_msg_rma`.
#[repr(C)]
#[derive(Debug)]
pub struct TransferMsg {
    pub msg_iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: u64,
    pub rma_iov: *const RemoteVec,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_rma_iov`.
#[repr(C)]
#[derive(Debug)]
pub struct RemoteVec {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

/// `struct fi_context2`: scratch space of the provider while an operation is under way.
#[repr(C)]
#[derive(Debug)]
pub struct ProviderContext {
    pub internal: [*mut c_void; 8],
}

pub const MSG: u64 = 1 << 1;
pub const RMA: u64 = 1 << 2;
pub const READ: u64 = 1 << 8;
pub const WRITE: u64 = 1 << 9;
pub const RECV: u64 = 1 << 10;
pub const TRANSMIT: u64 = 1 << 11;
pub const REMOTE_READ: u64 = 1 << 12;
pub const REMOTE_WRITE: u64 = 1 << 13;
pub const COMPLETION: u64 = 1 << 24;
pub const DELIVERY_COMPLETE: u64 = 1 << 28;
pub const CONTEXT2: u64 = 1 << 52;
pub const SOURCE: u64 = 1 << 57;
pub const CONTEXT: u64 = 1 << 59;

pub const MR_LOCAL: c_int = 1 << 2;
pub const MR_VIRT_ADDR: c_int = 1 << 4;
pub const MR_ALLOCATED: c_int = 1 << 5;
pub const MR_PROV_KEY: c_int = 1 << 6;
pub const MR_ENDPOINT: c_int = 1 << 9;

pub const EP_RDM: u32 = 3;
pub const THREAD_SAFE: u32 = 1;
pub const AV_UNSPEC: u32 = 0;
pub const AV_TABLE: u32 = 2;
pub const WAIT_NONE: u32 = 0;
pub const WAIT_FD: u32 = 3;
pub const CQ_FORMAT_DATA: u32 = 3;
pub const CONTROL_GETWAIT: c_int = 5;
pub const CONTROL_ENABLE: c_int = 6;

pub const EAGAIN: isize = 11;
pub const EAVAIL: isize = 259;
pub const ENOKEY: c_int = 266;

/// The version of the interface that is asked for: 1.17.
pub const VERSION: u32 = 1 << 16 | 17;
