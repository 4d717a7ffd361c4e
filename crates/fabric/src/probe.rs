//! The test of an endpoint before it is used: it transfers, and it refuses what it has to refuse.
//!
//! Some providers keep the registration of freed memory valid, or check no keys at all. Then a late write of a peer
//! would land in memory that has another use by now. Such a provider is not used.

use std::sync::Arc;

use crate::FabricError;
use crate::endpoint::{Endpoint, EndpointCore, EndpointOptions, RegisteredMemory};
use crate::objects::{MemoryAccess, TransferDirection};

/// Providers that reach other processes of this machine by their addresses, whatever the key. A process that tests
/// itself does not notice.
const WITHIN_A_MACHINE: [&str; 3] = ["shm", "sm2", "lpp"];
/// Bytes of the memory that is tested: two pages.
const PROBE_BYTES: usize = 8192;
/// Bytes of a transfer of the test.
const PART_BYTES: usize = 4096;

impl Endpoint {
    /// Opens an endpoint of a provider, after tests on others that are closed again: transfers in both directions, and
    /// transfers with a wrong key, with the key of a closed registration, and beyond the end of the memory, which the
    /// provider has to refuse.
    ///
    /// # Errors
    /// `Library`, `Provider`; `Unsafe` if it accepted one of the last three.
    ///
    /// # Cost
    /// Some milliseconds; up to a second for each refusal that comes as a time-out.
    pub fn open(options: &EndpointOptions) -> Result<Endpoint, FabricError> {
        let family = options.provider.split(';').next().unwrap_or_default();
        if WITHIN_A_MACHINE.contains(&family) {
            let what = "addresses of memory in other processes without a key";
            return Err(FabricError::Unsafe { provider: options.provider.clone(), what });
        }
        check_refuses_harm(options)?;
        let endpoint = Endpoint::open_untested(options)?;
        let peer = endpoint.core().insert(endpoint.address())?;
        let done = transfers(endpoint.core(), peer);
        endpoint.core().remove(peer);
        done.map(|()| endpoint)
    }
}

/// Memory of the test: what peers reach, and the local end.
struct Ends {
    remote: Arc<RegisteredMemory>,
    local: Arc<RegisteredMemory>,
}

impl Ends {
    fn new(core: &Arc<EndpointCore>) -> Result<Ends, FabricError> {
        let remote = Arc::new(core.register(PROBE_BYTES, MemoryAccess::RemoteReadWrite)?);
        Ok(Ends { remote, local: Arc::new(core.register(PROBE_BYTES, MemoryAccess::Local)?) })
    }

    /// Transfers one part, to or from `at` in the remote memory.
    #[expect(unsafe_code, reason = "the memory of the test is used by one transfer at a time")]
    fn transfer(
        &self,
        core: &EndpointCore,
        direction: TransferDirection,
        peer: u64,
        at: u64,
        key: u64,
    ) -> Result<(), FabricError> {
        let local = (self.local.pages().start(), PART_BYTES, self.local.descriptor());
        let remote = (self.remote.base() + at, key);
        // SAFETY: both ends are registered, kept by the transfer, and not touched until it has ended.
        unsafe { core.begin(direction, peer, local, remote, self.local.clone()) }?.wait()
    }

    #[expect(unsafe_code, reason = "as above")]
    fn fill(&self, value: u8) {
        // SAFETY: no transfer is under way.
        unsafe { self.local.pages().bytes_mut(0..PART_BYTES) }.fill(value);
    }

    /// True if all of the remote memory has this value in `range`.
    #[expect(unsafe_code, reason = "as above")]
    fn remote_is(&self, range: std::ops::Range<usize>, value: u8) -> bool {
        // SAFETY: no transfer is under way.
        unsafe { self.remote.pages().bytes(range) }.iter().all(|byte| *byte == value)
    }

    #[expect(unsafe_code, reason = "as above")]
    fn local_is(&self, value: u8) -> bool {
        // SAFETY: no transfer is under way.
        unsafe { self.local.pages().bytes(0..PART_BYTES) }.iter().all(|byte| *byte == value)
    }
}

fn transfers(core: &Arc<EndpointCore>, peer: u64) -> Result<(), FabricError> {
    let ends = Ends::new(core)?;
    ends.fill(1);
    ends.transfer(core, TransferDirection::Write, peer, 0, ends.remote.key())?;
    ends.fill(2);
    ends.transfer(core, TransferDirection::Read, peer, 0, ends.remote.key())?;
    let arrived = ends.remote_is(0..PART_BYTES, 1) && ends.remote_is(PART_BYTES..PROBE_BYTES, 0) && ends.local_is(1);
    if arrived { Ok(()) } else { Err(FabricError::Transfer("what was transferred is not what arrived".to_owned())) }
}

/// Checks that a provider refuses a transfer of `harm`. On an endpoint of its own: some providers end a connection with
/// an error, or never use one to the same address again, and what fails then is no refusal.
fn check_refuses(
    options: &EndpointOptions,
    what: &'static str,
    harm: impl FnOnce(&Arc<EndpointCore>, &mut Ends) -> Result<(u64, u64), FabricError>,
) -> Result<(), FabricError> {
    let endpoint = Endpoint::open_untested(options)?;
    let core = endpoint.core();
    let peer = core.insert(endpoint.address())?;
    transfers(core, peer)?;
    let mut ends = Ends::new(core)?;
    let (at, key) = harm(core, &mut ends)?;
    ends.fill(9);
    let done = ends.transfer(core, TransferDirection::Write, peer, at, key);
    if done.is_ok() || !ends.remote_is(0..PROBE_BYTES, 0) {
        return Err(FabricError::Unsafe { provider: endpoint.provider().to_owned(), what });
    }
    Ok(())
}

fn check_refuses_harm(options: &EndpointOptions) -> Result<(), FabricError> {
    check_refuses(options, "a wrong key", |_, ends| Ok((0, ends.remote.key() ^ 0x5a5a)))?;
    check_refuses(options, "a transfer beyond the end of the memory", |_, ends| {
        Ok(((PROBE_BYTES - PART_BYTES + 1) as u64, ends.remote.key()))
    })?;
    check_refuses(options, "the key of a closed registration", |core, ends| {
        let (address, key) = (ends.remote.base(), ends.remote.key());
        // The same addresses without a registration: other memory takes its place in the test.
        ends.remote = Arc::new(core.register(PROBE_BYTES, MemoryAccess::Local)?);
        Ok((address.wrapping_sub(ends.remote.base()), key))
    })
}
