//! The fabric of a process: opened when it is first needed, and opened again after it has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use frieze_locks::{Condvar, Mutex, levels};
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

    pub(crate) fn core(&self, role: PeerRole) -> Option<&EndpointCore> {
        match role {
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
pub struct FabricHost(Arc<HostShared>);

#[derive(Debug)]
struct HostShared {
    options: HostOptions,
    state: Mutex<levels::FabricHost, HostState>,
    /// The state is not `Opening` any more.
    opened: Condvar,
    /// How many were replaced because a peer could not be reached.
    replaced: AtomicU32,
    has_warned: AtomicBool,
}

#[derive(Debug)]
enum HostState {
    Closed,
    /// A thread opens it.
    Opening,
    Open {
        fabric: Arc<Fabric>,
        since: Instant,
    },
    Failed {
        error: FabricError,
        since: Instant,
        wait: Duration,
    },
}

/// An attempt to open a fabric: the one that it replaces, and the wait after a failure.
struct OpenAttempt {
    old: Option<Arc<Fabric>>,
    wait: Duration,
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
        FabricHost(Arc::new(HostShared {
            options,
            state: Mutex::new(HostState::Closed),
            opened: Condvar::new(),
            replaced: AtomicU32::new(0),
            has_warned: AtomicBool::new(false),
        }))
    }

    /// The provider that was named, the first time that this is asked: for a warning that it is not in use.
    pub fn named_once(&self) -> Option<&str> {
        match &self.0.options.choice {
            FabricChoice::Provider(name) if !self.0.has_warned.swap(true, Ordering::Relaxed) => Some(name),
            _ => None,
        }
    }

    /// True if no fabric is ever used.
    pub fn is_off(&self) -> bool {
        self.0.options.choice == FabricChoice::None
    }

    /// True if the process would use this provider.
    pub fn takes(&self, provider: &str) -> bool {
        match &self.0.options.choice {
            FabricChoice::None => false,
            FabricChoice::Auto => WITH_HARDWARE.contains(&provider),
            // A name may be the first of those that the library puts together: `tcp` is `tcp;ofi_rxm`.
            FabricChoice::Provider(name) => name == provider || provider.split(';').next() == Some(name.as_str()),
        }
    }

    /// The open fabric. If there is none, or a transfer of it never ended, another is opened, and waited for.
    ///
    /// # Errors
    /// Those of [`Endpoint::open`]: the same again without an attempt until a wait of 1 to 60 s is over. `Closed` if
    /// that takes longer than [`OPEN_MAX`].
    pub fn get(&self) -> Result<Arc<Fabric>, FabricError> {
        let mut state = self.0.state.lock();
        if let Some(attempt) = state.begin_if_due() {
            self.0.spawn(&mut state, attempt);
        }
        let opens = |state: &mut HostState| matches!(state, HostState::Opening);
        match &*self.0.opened.wait_timeout_while(state, OPEN_MAX, opens).0 {
            HostState::Open { fabric, .. } => Ok(fabric.clone()),
            HostState::Failed { error, .. } => Err(error.clone()),
            HostState::Closed | HostState::Opening => Err(FabricError::Closed),
        }
    }

    /// The open fabric, if there is one now. If there is none, a thread opens it for later calls, as
    /// [`FabricHost::get`] does. Never waits.
    pub fn current(&self) -> Option<Arc<Fabric>> {
        if self.is_off() {
            return None;
        }
        let mut state = self.0.state.lock();
        if let Some(attempt) = state.begin_if_due() {
            self.0.spawn(&mut state, attempt);
        }
        match &*state {
            HostState::Open { fabric, .. } => Some(fabric.clone()),
            _ => None,
        }
    }

    /// As [`FabricHost::current`]; but a provider that was named is waited for, where the first of several that might
    /// do is not worth a wait.
    pub fn current_or_named(&self) -> Option<Arc<Fabric>> {
        match &self.0.options.choice {
            FabricChoice::Provider(_) => self.get().ok(),
            FabricChoice::Auto | FabricChoice::None => self.current(),
        }
    }

    /// Has another fabric opened in place of one by which a peer could not be reached again after a failure: an error
    /// of a transfer leaves some providers without a way to that address, for as long as the endpoint lives. Each
    /// endpoint lives twice as long as the one before at least: a peer that fails again and again must not cost the
    /// others their transfers each time.
    pub fn replace(&self, failed: &Arc<Fabric>) {
        let life = LIFE_MIN * (1 << self.0.replaced.load(Ordering::Relaxed).min(LIFE_DOUBLINGS_MAX));
        let mut state = self.0.state.lock();
        let old = match &*state {
            HostState::Open { fabric, since } if Arc::ptr_eq(fabric, failed) && since.elapsed() >= life => {
                fabric.clone()
            }
            _ => return,
        };
        self.0.replaced.fetch_add(1, Ordering::Relaxed);
        tracing::info!("{}: a peer cannot be reached: the endpoint is opened again", old.endpoint.provider());
        *state = HostState::Opening;
        self.0.spawn(&mut state, OpenAttempt { old: Some(old), wait: WAIT_MIN });
    }

    /// The endpoint that peers may connect to, if there is one now.
    pub fn offer(&self) -> Option<FabricOffer> {
        Some(self.current()?.endpoint().offer())
    }

    /// What is wrong: a provider that was named cannot be used.
    pub fn trouble(&self) -> Option<String> {
        let FabricChoice::Provider(name) = &self.0.options.choice else { return None };
        let trouble = self.report().trouble;
        (!trouble.is_empty())
            .then(|| format!("all payloads go by TCP, for the fabric {name} cannot be used: {trouble}"))
    }

    /// What there is to say, without opening anything.
    pub fn report(&self) -> FabricReport {
        match &*self.0.state.lock() {
            HostState::Closed | HostState::Opening => FabricReport::default(),
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

impl HostState {
    /// An attempt, if one is due. The caller runs it.
    fn begin_if_due(&mut self) -> Option<OpenAttempt> {
        let attempt = match self {
            HostState::Opening => return None,
            HostState::Open { fabric, .. } if !fabric.is_stuck() => return None,
            HostState::Open { fabric, .. } => OpenAttempt { old: Some(fabric.clone()), wait: WAIT_MIN },
            HostState::Failed { since, wait, .. } if since.elapsed() < *wait => return None,
            HostState::Failed { wait, .. } => OpenAttempt { old: None, wait: (*wait * 2).min(WAIT_MAX) },
            HostState::Closed => OpenAttempt { old: None, wait: WAIT_MIN },
        };
        *self = HostState::Opening;
        Some(attempt)
    }
}

impl HostShared {
    /// Runs an attempt on a thread of its own.
    fn spawn(self: &Arc<HostShared>, state: &mut HostState, attempt: OpenAttempt) {
        let shared = self.clone();
        let spawned =
            std::thread::Builder::new().name("frieze-fabric-open".to_owned()).spawn(move || shared.run(attempt));
        if let Err(error) = spawned {
            let error = FabricError::Library(format!("no thread to open it: {error}"));
            *state = HostState::Failed { error, since: now(), wait: WAIT_MIN };
        }
    }

    /// Closes the fabric of before, and opens another.
    fn run(&self, attempt: OpenAttempt) {
        if let Some(old) = attempt.old {
            // Connections may still refer to it: they see that it is closed, and ask for the next.
            tracing::warn!("{}: the endpoint is opened again", old.endpoint.provider());
            old.close();
        }
        let opened = match self.open() {
            Ok(fabric) => HostState::Open { fabric: Arc::new(fabric), since: now() },
            Err(error) => {
                tracing::debug!("no fabric: {error}");
                HostState::Failed { error, since: now(), wait: attempt.wait }
            }
        };
        let before = std::mem::replace(&mut *self.state.lock(), opened);
        self.opened.notify_all();
        drop(before);
    }

    fn open(&self) -> Result<Fabric, FabricError> {
        let names: &[&str] = match &self.options.choice {
            // libfabric loads the libraries of all its providers: not for nothing.
            FabricChoice::Auto if !has_device() => return Err(FabricError::NoDevice(DEVICES.join(" or "))),
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
}

#[expect(clippy::disallowed_methods, reason = "the wait before another attempt; nothing else depends on it")]
fn now() -> Instant {
    Instant::now()
}

/// True if the machine has hardware that a provider might use.
fn has_device() -> bool {
    DEVICES.iter().any(|class| std::fs::read_dir(class).is_ok_and(|mut devices| devices.next().is_some()))
}

/// Where the kernel lists them: InfiniBand, RoCE and EFA; Slingshot.
const DEVICES: [&str; 2] = ["/sys/class/infiniband", "/sys/class/cxi"];
/// Least life of the first endpoint that is replaced because a peer cannot be reached, and how often it doubles.
const LIFE_MIN: Duration = Duration::from_secs(2);
const LIFE_DOUBLINGS_MAX: u32 = 8;
/// Longest wait for a fabric to be opened.
const OPEN_MAX: Duration = Duration::from_secs(10);
/// Wait before a fabric that could not be opened is tried again.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);
