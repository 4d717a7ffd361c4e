//! How a client connects.

use std::sync::Arc;
use std::time::Duration;

use frieze_net::{InProcess, Key, ServerAddr};
use frieze_wire::message::Durability;

/// How a client connects and how long it waits.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server. Default `127.0.0.1:7470`.
    pub server: ServerAddr,
    /// More servers of the same cluster, asked one after the other where `server` does not answer while the client connects. Which
    /// others there are it is told then. Default none.
    pub others: Vec<ServerAddr>,
    /// Of several servers that are named the first that knows a leader is taken, or is alone; if there is none, the first that answers. `false`:
    /// the first that answers, for what one server says of itself. Default `true`.
    pub prefers_led: bool,
    /// Program or command line, which `sessions` and `log` show to this user and to administrators, until its changes are forgotten.
    /// Default: the arguments of this process.
    pub command: String,
    /// When writes and changes are acknowledged. Default `Async`: when they are in the server's memory.
    pub durability: Durability,
    /// Proves the caller where the kernel cannot: from another machine. Default none.
    pub key: Option<Key>,
    /// How long a call may take, reconnecting included, before it fails as `Unavailable`. Default 30 s. More rides out
    /// longer restarts; less tells a program sooner.
    pub timeout: Duration,
    /// Connections held at most; a call beyond them waits for one. Default 64. Each costs the server a thread.
    pub connections_max: usize,
    /// Goes on over a Unix socket where the server runs on this machine and offers one: small requests cost less processor time
    /// than over TCP. Default `false`; a mount does.
    pub prefers_socket: bool,
    /// Asks to be allowed to cache, and for locks, in a cluster too: what such a client holds is waited for when another server
    /// takes over the lead. Default `false`; a mount does.
    pub keeps: bool,
    /// The server that `server` names runs in this process and is asked without a socket, on the threads that call. Default none; the
    /// doors of a server do.
    pub within: Option<Arc<dyn InProcess>>,
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
            within: None,
        }
    }
}

/// A command line longer than this is cut: it names a session, it is not kept to be run again.
const COMMAND_BYTES_MAX: usize = 200;
