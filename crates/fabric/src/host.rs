//! The fabric of a process: opened when it is first needed, and opened again after it has failed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frieze_locks::{Mutex, levels};
use frieze_wire::fabric::FabricOffer;
use frieze_wire::message::FabricStatus;

use crate::FabricError;
use crate::endpoint::{Endpoint, EndpointCore, EndpointCounts, EndpointOptions, PeerRole};
use crate::rooms::RoomPool;

/// Which fabric a process uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FabricChoice {
    /// The first provider with hardware that passes the test of an endpoint.
    #[default]
    Auto,
    /// None: payloads go by TCP.
    None,
    /// This provider.
    Provider(String),
}

impl FabricChoice {
    /// The choice that a setting names: `auto`, `none`, or a provider as `fi_info` lists it.
    pub fn of(setting: &str) -> FabricChoice {
        match setting {
            "" | "auto" => FabricChoice::Auto,
            "none" => FabricChoice::None,
            provider => FabricChoice::Provider(provider.to_owned()),
        }
    }
}

/// Providers with hardware behind them, the best first. `tcp` is used only if it is named: it is slower than TCP.
const WITH_HARDWARE: [&str; 3] = ["cxi", "efa", "verbs;ofi_rxm"];

/// How a process opens its fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostOptions {
    /// Which fabric.
    pub choice: FabricChoice,
    /// Address of this machine on the fabric's network; none: the provider's choice.
    pub address: Option<String>,
    /// Most rooms of a mebibyte.
    pub rooms_max: usize,
    /// Opens an endpoint for other servers, too, by which they read rooms. Clients have another: no key of theirs is
    /// of use there.
    pub for_servers: bool,
}

/// An open fabric: its endpoint, and registered memory for payloads.
#[derive(Debug)]
pub struct Fabric {
    rooms: Arc<RoomPool>,
    endpoint: Endpoint,
    for_servers: Option<Endpoint>,
}

impl Fabric {
    /// Its endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its endpoint for other servers, if it has one.
    pub fn for_servers(&self) -> Option<&Endpoint> {
        self.for_servers.as_ref()
    }

    pub(crate) fn core(&self, kind: PeerRole) -> Option<&EndpointCore> {
        match kind {
            PeerRole::Client => Some(self.endpoint.core()),
            PeerRole::Server => self.for_servers.as_ref().map(|endpoint| &**endpoint.core()),
        }
    }

    fn is_stuck(&self) -> bool {
        self.endpoint.is_stuck() || self.for_servers.as_ref().is_some_and(Endpoint::is_stuck)
    }

    fn close(&self) {
        self.endpoint.close();
        self.for_servers.iter().for_each(Endpoint::close);
    }

    /// Its rooms.
    pub fn rooms(&self) -> &Arc<RoomPool> {
        &self.rooms
    }
}

/// The fabric of a process.
#[derive(Debug)]
pub struct FabricHost {
    options: HostOptions,
    state: Mutex<levels::FabricHost, HostState>,
}

#[derive(Debug)]
enum HostState {
    Closed,
    Open { fabric: Arc<Fabric>, since: Instant },
    Failed { error: FabricError, since: Instant, wait: Duration },
}

/// What a process says of its fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FabricReport {
    /// Name of the provider; empty without one.
    pub provider: String,
    /// Why there is none, though one was asked for.
    pub trouble: String,
    /// What it has done since it was last opened: transfers with clients, of a client with servers.
    pub counts: EndpointCounts,
    /// Transfers from other servers.
    pub for_servers: EndpointCounts,
    /// Bytes that are registered for payloads.
    pub registered_bytes: u64,
}

impl FabricReport {
    /// As a server's status has it.
    pub fn to_wire(&self) -> FabricStatus {
        let (clients, servers) = (self.counts, self.for_servers);
        FabricStatus {
            provider: self.provider.clone(),
            trouble: self.trouble.clone(),
            writes: clients.writes,
            reads: clients.reads,
            server_reads: servers.reads,
            bytes: clients.bytes + servers.bytes,
            failures: clients.failures + clients.timeouts + servers.failures + servers.timeouts,
            registered_bytes: self.registered_bytes,
            registrations: clients.registrations + servers.registrations,
        }
    }
}

impl FabricHost {
    /// A host that opens nothing yet.
    pub fn new(options: HostOptions) -> FabricHost {
        FabricHost { options, state: Mutex::new(HostState::Closed) }
    }

    /// True if no fabric is ever used.
    pub fn is_off(&self) -> bool {
        self.options.choice == FabricChoice::None
    }

    /// True if the process would use this provider.
    pub fn takes(&self, provider: &str) -> bool {
        match &self.options.choice {
            FabricChoice::None => false,
            FabricChoice::Auto => WITH_HARDWARE.contains(&provider),
            // A name may be the first of those that the library puts together: `tcp` is `tcp;ofi_rxm`.
            FabricChoice::Provider(name) => name == provider || provider.split(';').next() == Some(name.as_str()),
        }
    }

    /// The open fabric; opens it if there is none, or if a transfer of the one before never ended.
    ///
    /// # Errors
    /// Those of [`Endpoint::open`]: the same again without an attempt until a wait of 1 to 60 s is over.
    pub fn get(&self) -> Result<Arc<Fabric>, FabricError> {
        let mut state = self.state.lock();
        let wait = match &*state {
            HostState::Open { fabric, .. } if !fabric.is_stuck() => return Ok(fabric.clone()),
            HostState::Open { fabric, .. } => {
                // Connections may still refer to it: they see that it is closed, and ask for the next.
                tracing::warn!(
                    "{}: a transfer has not ended: the endpoint is opened again",
                    fabric.endpoint.provider()
                );
                fabric.close();
                WAIT_MIN
            }
            HostState::Failed { error, since, wait } if since.elapsed() < *wait => return Err(error.clone()),
            HostState::Failed { wait, .. } => (*wait * 2).min(WAIT_MAX),
            HostState::Closed => WAIT_MIN,
        };
        match self.open() {
            Ok(fabric) => {
                let fabric = Arc::new(fabric);
                *state = HostState::Open { fabric: fabric.clone(), since: now() };
                Ok(fabric)
            }
            Err(error) => {
                tracing::debug!("no fabric: {error}");
                *state = HostState::Failed { error: error.clone(), since: now(), wait };
                Err(error)
            }
        }
    }

    /// Another fabric in place of one by which a new peer could not be reached: an error of a transfer leaves some
    /// providers without a way to that address, for as long as the endpoint lives. The same one if it was opened just
    /// now: a peer that cannot be reached at all must not cost the others their transfers again and again.
    ///
    /// # Errors
    /// As [`FabricHost::get`].
    pub fn reopen(&self, failed: &Arc<Fabric>) -> Result<Arc<Fabric>, FabricError> {
        let mut state = self.state.lock();
        if let HostState::Open { fabric, since } = &*state
            && Arc::ptr_eq(fabric, failed)
            && since.elapsed() >= REOPEN_AFTER
        {
            tracing::info!("{}: a peer cannot be reached: the endpoint is opened again", fabric.endpoint.provider());
            fabric.close();
            *state = HostState::Closed;
        }
        drop(state);
        self.get()
    }

    fn open(&self) -> Result<Fabric, FabricError> {
        let names: &[&str] = match &self.options.choice {
            FabricChoice::Auto => &WITH_HARDWARE,
            FabricChoice::None => &[],
            FabricChoice::Provider(name) => &[name.as_str()],
        };
        let mut last = FabricError::Closed;
        for name in names {
            let options = EndpointOptions { provider: (*name).to_owned(), address: self.options.address.clone() };
            match Endpoint::open(&options) {
                Ok(endpoint) => {
                    // The provider was tested just now.
                    let for_servers =
                        self.options.for_servers.then(|| Endpoint::open_untested(&options)).transpose()?;
                    let rooms = RoomPool::new(&endpoint, for_servers.as_ref(), self.options.rooms_max);
                    return Ok(Fabric { rooms, endpoint, for_servers });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The endpoint that peers may connect to, if there is one.
    pub fn offer(&self) -> Option<FabricOffer> {
        if self.is_off() {
            return None;
        }
        Some(self.get().ok()?.endpoint().offer())
    }

    /// What is wrong: a provider that was named cannot be used.
    pub fn trouble(&self) -> Option<String> {
        let FabricChoice::Provider(name) = &self.options.choice else { return None };
        let trouble = self.report().trouble;
        (!trouble.is_empty())
            .then(|| format!("all payloads go by TCP, for the fabric {name} cannot be used: {trouble}"))
    }

    /// What there is to say, without opening anything.
    pub fn report(&self) -> FabricReport {
        match &*self.state.lock() {
            HostState::Closed => FabricReport::default(),
            HostState::Failed { error, .. } => FabricReport { trouble: error.to_string(), ..FabricReport::default() },
            HostState::Open { fabric, .. } => FabricReport {
                provider: fabric.endpoint.provider().to_owned(),
                trouble: String::new(),
                counts: fabric.endpoint.counts(),
                for_servers: fabric.for_servers.as_ref().map(Endpoint::counts).unwrap_or_default(),
                registered_bytes: fabric.rooms.registered_bytes(),
            },
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the wait before another attempt; nothing else depends on it")]
fn now() -> Instant {
    Instant::now()
}

/// Least life of an endpoint that is given up because a peer cannot be reached.
const REOPEN_AFTER: Duration = Duration::from_secs(3);
/// Wait before a fabric that could not be opened is tried again.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);
