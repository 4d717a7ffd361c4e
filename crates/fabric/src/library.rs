//! libfabric itself, opened at run time.
//!
//! Six functions are symbols; everything else is called through tables. The symbols are taken with their versions
//! (`dlvsym`), because version 2 of the library has newer layouts under the same names.

#![expect(unsafe_code, reason = "symbols of a shared library have no types; this file gives them theirs")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::FabricError;
use crate::ffi::{FabricAttr, FabricFid, Info};

type GetInfo = unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const Info, *mut *mut Info) -> c_int;
type FreeInfo = unsafe extern "C" fn(*mut Info);
type DupInfo = unsafe extern "C" fn(*const Info) -> *mut Info;
type OpenFabric = unsafe extern "C" fn(*mut FabricAttr, *mut *mut FabricFid, *mut c_void) -> c_int;
type LibraryVersion = unsafe extern "C" fn() -> u32;
type Words = unsafe extern "C" fn(c_int) -> *const c_char;

/// The functions that are symbols.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) getinfo: GetInfo,
    pub(crate) freeinfo: FreeInfo,
    pub(crate) dupinfo: DupInfo,
    pub(crate) fabric: OpenFabric,
    version: LibraryVersion,
    strerror: Words,
}

/// Variables that libfabric reads when it is first used, and their values. Registrations that were closed stay valid in
/// its cache otherwise; and its default size of a completion queue is larger than soft-RoCE has.
const ENVIRONMENT: [(&str, &str); 2] = [("FI_MR_CACHE_MAX_COUNT", "0"), ("FI_UNIVERSE_SIZE", "16")];

/// Sets the variables of the environment that libfabric has to find, unless the user has set them.
///
/// # Safety
/// No other thread runs yet: call this first in `main`.
pub unsafe fn prepare_environment() {
    for (name, value) in ENVIRONMENT {
        if std::env::var_os(name).is_none() {
            // SAFETY: the caller guarantees that there is one thread.
            unsafe { std::env::set_var(name, value) };
        }
    }
}

impl Library {
    /// The library, opened once in a process and never closed.
    ///
    /// # Errors
    /// `Library` if it is not installed or lacks a symbol; the same at each later call.
    pub(crate) fn get() -> Result<&'static Library, FabricError> {
        static LIBRARY: OnceLock<Result<Library, FabricError>> = OnceLock::new();
        LIBRARY.get_or_init(Library::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Library, FabricError> {
        // SAFETY: a constant text with its end. Constructors of the library run; it has no other effect.
        let handle = unsafe { libc::dlopen(c"libfabric.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(FabricError::Library(last_error()));
        }
        let symbol = |name: &CStr, version: &CStr| {
            // SAFETY: an open library and constant texts.
            let found = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
            let words = || format!("no {}@{}", name.to_string_lossy(), version.to_string_lossy());
            if found.is_null() { Err(FabricError::Library(words())) } else { Ok(found) }
        };
        // SAFETY: the types are those of the interface's versions that the symbols name.
        unsafe {
            Ok(Library {
                getinfo: std::mem::transmute::<*mut c_void, GetInfo>(symbol(c"fi_getinfo", c"FABRIC_1.3")?),
                freeinfo: std::mem::transmute::<*mut c_void, FreeInfo>(symbol(c"fi_freeinfo", c"FABRIC_1.3")?),
                dupinfo: std::mem::transmute::<*mut c_void, DupInfo>(symbol(c"fi_dupinfo", c"FABRIC_1.3")?),
                fabric: std::mem::transmute::<*mut c_void, OpenFabric>(symbol(c"fi_fabric", c"FABRIC_1.1")?),
                version: std::mem::transmute::<*mut c_void, LibraryVersion>(symbol(c"fi_version", c"FABRIC_1.0")?),
                strerror: std::mem::transmute::<*mut c_void, Words>(symbol(c"fi_strerror", c"FABRIC_1.0")?),
            })
        }
    }

    /// Words for an error number of libfabric.
    pub(crate) fn words(&self, code: isize) -> String {
        let code = c_int::try_from(code.unsigned_abs()).unwrap_or(c_int::MAX);
        // SAFETY: the library returns a constant text for every number.
        let words = unsafe { (self.strerror)(code) };
        if words.is_null() {
            return format!("error {code}");
        }
        // SAFETY: not null, and with its end.
        let words = unsafe { CStr::from_ptr(words) }.to_string_lossy();
        format!("{words} ({code})")
    }

    /// LibraryVersion of the interface of the library, as `1.17`.
    pub(crate) fn version(&self) -> String {
        // SAFETY: it takes nothing and returns a number.
        let version = unsafe { (self.version)() };
        format!("{}.{}", version >> 16, version & 0xffff)
    }
}

fn last_error() -> String {
    // SAFETY: it returns a text of this thread, or null.
    let words = unsafe { libc::dlerror() };
    if words.is_null() {
        return "it cannot be opened".to_owned();
    }
    // SAFETY: not null, and with its end; copied before another call.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
}

/// LibraryVersion of the installed libfabric, as `1.17`.
///
/// # Errors
/// `Library` if there is none that can be used.
pub fn library_version() -> Result<String, FabricError> {
    Library::get().map(Library::version)
}
