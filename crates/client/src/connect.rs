//! Connecting: the first server that answers, a nearer way to it, and the map of its cluster.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use frieze_base::{Reason, Seq, SessionId};
use frieze_net::{InProcessTransport, ServerAddr, SocketTransport, Transport, TransportReply, mono, random_nonce};
use frieze_wire::message::{ClusterMap, HelloReply, Reply, Request, RequestBody};
use frieze_wire::{FrameHeader, FrameKind};

use crate::client_core::ClientCore;
use crate::connection::{Connection, name_of};
use crate::pool::ConnectionPool;
use crate::request::RpcRequest;
use crate::rpc::MAP_WAIT;
use crate::servers::{MapAge, Servers};
use crate::{Error, Options};

impl ClientCore {
    /// Connects to the first of the named servers that answers.
    pub(crate) fn connect(mut options: Options) -> Result<ClientCore, Error> {
        let (server, connection, hello) = first_that_answers(&options)?;
        options.server = server;
        let near = match options.prefers_socket && options.in_process.is_none() {
            true => near(&options, &hello),
            false => None,
        };
        // With a nearer way the connection by the usual one is not kept.
        let connection = near.is_none().then_some(connection);
        let (address, connections_max) = (options.server.clone(), options.connections_max);
        let home = ConnectionPool::by(address, transport(&options), near, connections_max);
        let salt = random_nonce()?;
        let reader = u64::from_le_bytes([salt[4], salt[5], salt[6], salt[7], salt[8], salt[9], salt[10], salt[11]]);
        let salt = u32::from_le_bytes([salt[0], salt[1], salt[2], salt[3]]);
        let core = ClientCore::new(options, hello, Servers::new(home, connections_max, salt), reader);
        if let Ok(mut pooled) = core.servers.home().take(mono()) {
            pooled.connection = connection.map(Box::new);
            pooled.give_back();
        }
        if core.hello.map_version > 0 {
            core.refresh_map(MapAge::default(), core.options.timeout);
        }
        Ok(core)
    }

    /// Asks the servers, one after the other, for a map that is newer than `age`, until one has it.
    pub(crate) fn refresh_map(&self, age: MapAge, left: Duration) {
        let Some(_refreshing) = self.servers.begin_refresh(age) else { return };
        let body = RequestBody { caller: None, trace: None, request: Some(Request::ClusterMap(ClusterMap {})) };
        let request = RpcRequest::new(body, SessionId(0), Seq(0), &[]);
        let servers = self.servers.all();
        // A single known server is given all the time: without its map no other server is known when it is lost.
        let limit = if servers.len() == 1 { left } else { left.min(MAP_WAIT) };
        for pool in servers {
            // A new connection: the idle ones may be as dead as the one that failed.
            let reply = self.open(&pool, limit).and_then(|(mut connection, _)| {
                let id = self.send(&mut connection, &request)?;
                self.receive(&mut connection, id)?.result.map_err(Error::Refused)
            });
            match reply {
                Ok(Reply::ClusterMap(map)) => {
                    if self.servers.learn(&map) {
                        // The thread that waits for recalls waits at the wrong server.
                        self.recalls.cancel();
                    }
                    *self.another_cluster.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    // A server that lags behind does not know better.
                    if MapAge::of(&map).is_newer_than(age) && map.leader != 0 {
                        return;
                    }
                }
                Ok(other) => {
                    tracing::debug!(found = name_of(&other), server = %pool.address(), "no map of the cluster")
                }
                Err(error) => {
                    tracing::debug!(%error, server = %pool.address(), "no map of the cluster");
                    if let Error::Refused(fault) = error
                        && fault.reason == Reason::WrongCluster
                    {
                        *self.another_cluster.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
                    }
                }
            }
        }
    }

    /// Opens a connection to a server; if the server's map is newer than the known one, requests it. Servers
    /// close the connections of clients when others join or leave, so that clients know the others when one is lost.
    pub(crate) fn greet(&self, pool: &ConnectionPool, limit: Duration) -> Result<Connection, Error> {
        let (connection, map_version) = self.open(pool, limit)?;
        let age = self.servers.age();
        if map_version > age.version {
            self.refresh_map(age, limit);
        }
        Ok(connection)
    }

    /// Opens a connection to a server, by the nearer way if it works. Returns it with the version of the server's map.
    pub(crate) fn open(&self, pool: &ConnectionPool, limit: Duration) -> Result<(Connection, u64), Error> {
        let open = |transport: &dyn Transport| {
            let (connection, hello) = Connection::open(transport, &self.options, &self.hello.cluster, limit)?;
            Ok((connection, hello.map_version))
        };
        let Some(near) = pool.near() else { return open(pool.transport()) };
        match open(near) {
            // No server listens there, or another one.
            Err(error @ (Error::Transport(frieze_net::Error::Connect { .. }) | Error::Refused(_))) => {
                tracing::debug!(%error, near = near.server(), "connecting to the server's usual address");
                open(pool.transport())
            }
            done => done,
        }
    }
}

/// The usual way to the server that the options name.
fn transport(options: &Options) -> Arc<dyn Transport> {
    match &options.in_process {
        Some(server) => Arc::new(InProcessTransport::new(server.clone(), options.server.to_string())),
        None => Arc::new(SocketTransport::new(options.server.clone())),
    }
}

/// The first of the named servers that answers and accepts this caller.
fn first_that_answers(options: &Options) -> Result<(ServerAddr, Connection, HelloReply), Error> {
    if options.in_process.is_some() {
        let (connection, hello) = Connection::open(&*transport(options), options, "", options.timeout)?;
        return Ok((options.server.clone(), connection, hello));
    }
    let connect = |server: &ServerAddr, limit| {
        let (connection, hello) = Connection::open(&SocketTransport::new(server.clone()), options, "", limit)?;
        Ok((server.clone(), connection, hello))
    };
    if options.others.is_empty() {
        return connect(&options.server, options.timeout);
    }
    let (mut tried, mut reason, mut unled) = (Vec::new(), Reason::Unavailable, None);
    for server in std::iter::once(&options.server).chain(&options.others) {
        match connect(server, options.timeout.min(NEXT_WAIT)) {
            Ok((server, mut connection, hello)) => {
                if !options.prefers_led || is_led(&mut connection, &hello) {
                    return Ok((server, connection, hello));
                }
                tracing::debug!(%server, "the server knows no leader: trying the next");
                unled.get_or_insert((server, connection, hello));
            }
            Err(error) => {
                let why = match &error {
                    Error::Transport(error) => error.why(),
                    other => other.to_string(),
                };
                tracing::debug!(%server, why, "trying the next server");
                tried.push((server.to_string(), why));
                reason = error.reason();
            }
        }
    }
    unled.ok_or(Error::NoneAnswers { tried, reason })
}

/// True if the server is alone or knows the leader of its cluster. A server of a lost majority, or of an identity that
/// has ended, knows none.
fn is_led(connection: &mut Connection, hello: &HelloReply) -> bool {
    if hello.map_version == 0 {
        return true;
    }
    let body = RequestBody { caller: None, trace: None, request: Some(Request::ClusterMap(ClusterMap {})) };
    let header = FrameHeader::of(FrameKind::Request);
    let reply = connection.send(&header, &body, &[]).and_then(|()| connection.receive());
    matches!(reply, Ok(TransportReply { result: Ok(Reply::ClusterMap(map)), .. }) if map.leader != 0)
}

/// The Unix socket that the server offers to callers on its machine, if it belongs to the same server and the caller
/// has the same identity there.
fn near(options: &Options, hello: &HelloReply) -> Option<Arc<dyn Transport>> {
    if hello.socket.is_empty() || matches!(options.server, ServerAddr::Unix(_)) {
        return None;
    }
    let near = SocketTransport::new(ServerAddr::Unix(hello.socket.clone().into()));
    let (_, there) = Connection::open(&near, options, &hello.cluster, options.timeout).ok()?;
    let is_same = (there.uid, there.may_impersonate, there.node) == (hello.uid, hello.may_impersonate, hello.node);
    is_same.then(|| Arc::new(near) as Arc<dyn Transport>)
}

/// How long one of several named servers may take to answer before the next is tried.
const NEXT_WAIT: Duration = Duration::from_secs(3);
