//! How a client connects.

use std::sync::Arc;
use std::time::Duration;

use frieze_fabric::{FabricChoice, FabricHost, HostOptions};
use frieze_net::{InProcess, Key, ServerAddr};
use frieze_trace::{Gateway, Recorder, Tracer};
use frieze_wire::message::Durability;

/// How a client connects and how long it waits.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server. Default `127.0.0.1:7470`.
    pub server: ServerAddr,
    /// More servers of the same cluster, tried one after the other if `server` does not answer while the client
    /// connects. From then on the cluster's map names the servers. Default none.
    pub others: Vec<ServerAddr>,
    /// Of several named servers, connects to the first that knows a leader or is alone; if there is none, to the first
    /// that answers. `false`: to the first that answers, to query the state of one server. Default `true`.
    pub prefers_led: bool,
    /// Program or command line, which `sessions` and `log` show to this user and to administrators until the history of
    /// its changes expires. Default: the arguments of this process.
    pub command: String,
    /// When writes and changes are acknowledged. Default `Async`: when they are in the server's memory.
    pub durability: Durability,
    /// Proves the identity of a caller on another machine, where the kernel cannot. Default none.
    pub key: Option<Key>,
    /// How long a call may take, reconnecting included, before it fails as `Unavailable`. Default 30 s. More survives
    /// longer restarts; less reports failures sooner.
    pub timeout: Duration,
    /// Open connections at most; a call beyond them waits for one. Default 64. Each costs the server a thread.
    pub connections_max: usize,
    /// Uses a Unix socket if the server runs on this machine and offers one: small requests cost less processor time
    /// than over TCP. Default `false`; a mount sets it.
    pub prefers_socket: bool,
    /// The session may hold cache leases and locks in a cluster: a new leader waits for the leases of such a client.
    /// Default `false`; a mount sets it.
    pub keeps: bool,
    /// The server that `server` names, if it runs in this process: requests run on the calling threads, without a
    /// socket. Default none; the gateways of a server set it.
    pub in_process: Option<Arc<dyn InProcess>>,
    /// One-sided transfers for large payloads, where the server has the same fabric. Default: what the environment
    /// says (`FRIEZE_FABRIC`, `FRIEZE_FABRIC_ADDRESS`).
    pub fabric: Arc<FabricHost>,
    /// Records every call of this client into a ring. Default none.
    pub trace: Option<Recorder>,
    /// Makes spans of sampled requests. Default: the tracer of the process, if it has one ([`Tracer::installed`]).
    pub spans: Option<Tracer>,
    /// Where calls arrive, for traces. Default the library.
    pub gateway: Gateway,
}

impl Default for Options {
    fn default() -> Options {
        let mut command: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
        command.truncate(16);
        let mut command = command.join(" ");
        command.truncate(command.floor_char_boundary(COMMAND_BYTES_MAX));
        Options {
            server: ServerAddr::default(),
            others: Vec::new(),
            prefers_led: true,
            command,
            durability: Durability::Async,
            key: None,
            timeout: Duration::from_secs(30),
            connections_max: 64,
            prefers_socket: false,
            keeps: false,
            in_process: None,
            fabric: Arc::new(fabric_of_environment()),
            trace: None,
            spans: Tracer::installed(),
            gateway: Gateway::Library,
        }
    }
}

/// The fabric that `FRIEZE_FABRIC` names, with the address in `FRIEZE_FABRIC_ADDRESS` ([`fabric_named`]).
fn fabric_of_environment() -> FabricHost {
    fabric_named(&std::env::var("FRIEZE_FABRIC").unwrap_or_default(), std::env::var("FRIEZE_FABRIC_ADDRESS").ok())
}

/// The fabric of this name: `auto` or nothing, `none`, or a provider of libfabric; `address` is that of this machine on
/// its network. Nothing is opened before it is needed.
pub fn fabric_named(name: &str, address: Option<String>) -> FabricHost {
    let (choice, address) = (FabricChoice::of(name), address.filter(|address| !address.is_empty()));
    // Slots are registered apart: a client needs no rooms.
    FabricHost::new(HostOptions { choice, address, rooms_max: 0, for_servers: false })
}

/// A command line longer than this is truncated: it identifies a session.
const COMMAND_BYTES_MAX: usize = 200;
