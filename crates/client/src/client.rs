//! A client of a server or cluster.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frieze_base::{ByteRange, ChunkId, InodeId, NodeId, Seq, SessionId};
use frieze_hlc::{Hlc, Instant, ZonePolicy};
use frieze_net::{ServerAddr, mono};
use frieze_trace::{CallKind, CallScope, Gateway};
use frieze_wire::message::{
    Attr, Cluster, ClusterMap, ClusterOp, ClusterReply, HelloReply, Now, NowReply, Reply, Request, RequestBody,
    Snapshot, Snapshots, SnapshotsReply, Status, StatusReply,
};
use frieze_wire::scrub::{Scrub, ScrubAction, ScrubReply};

use crate::client_core::ClientCore;
use crate::request::RpcRequest;
use crate::route::ServerRoute;
use crate::rpc::QueryOptions;
use crate::servers::MapAge;
use crate::{Error, Fs, Options};

/// A client of one server. Cheap to clone; clones share connections and session. Its session ends with the last clone,
/// file system and file.
#[derive(Clone, Debug)]
pub struct Client(Arc<ClientCore>);

impl Client {
    /// Connects to a server and proves the identity of the caller.
    ///
    /// # Errors
    /// `Transport` if no server answers at that address; the message names the remedy. `Refused` if the server refuses
    /// the caller.
    pub fn connect(options: Options) -> Result<Client, Error> {
        Ok(Client(Arc::new(ClientCore::connect(options)?)))
    }

    pub(crate) fn shared(&self) -> Arc<ClientCore> {
        self.0.clone()
    }

    /// The file system as it is now, for the proven user.
    pub fn fs(&self) -> Fs {
        Fs::new(self.0.clone())
    }

    /// A scope around a call of a gateway's user, for traces: the requests within it, on this thread, add to its event.
    pub fn scope(&self, call: CallKind) -> CallScope<'_> {
        self.0.scope(call)
    }

    /// As [`Client::scope`], for a gateway that shares this client with another one.
    pub fn scope_at(&self, gateway: Gateway, call: CallKind) -> CallScope<'_> {
        match &self.0.options.trace {
            Some(recorder) => recorder.scope(gateway, call),
            None => CallScope::off(),
        }
    }

    /// The greeting of the server: its identity, and this caller's.
    pub fn hello(&self) -> &HelloReply {
        &self.0.hello
    }

    /// The options it was connected with.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// The session, opened when it is first needed.
    ///
    /// # Errors
    /// As any call.
    pub fn session(&self) -> Result<SessionId, Error> {
        self.0.session()
    }

    /// The newest stamp in any reply so far: everything this client did or read lies at or before it.
    pub fn newest(&self) -> Hlc {
        self.0.newest()
    }

    /// True if bytes may be missing from what was read of any file: see [`crate::File::may_lack`].
    pub fn met_loss(&self) -> bool {
        self.0.met_loss.load(Ordering::Relaxed)
    }

    /// The instant of now: a read at it holds everything that happened before this request.
    ///
    /// # Errors
    /// As any call.
    pub fn now(&self) -> Result<Hlc, Error> {
        Ok(Hlc(self.clock()?.at))
    }

    /// The instant of now with the server's clock-error bound, and the span of instants that can be read.
    ///
    /// # Errors
    /// As any call.
    pub fn clock(&self) -> Result<NowReply, Error> {
        self.instant_named("")
    }

    /// The exact instant that a text means: `5m-ago`, `2026-11-21T10:00:00Z`, `last-whole`, the name of a snapshot.
    /// A moving text is resolved now; use the result for all reads, so that they are of one cut.
    ///
    /// # Errors
    /// `Instant` for a text that names no instant; `Refused` with `NotFound` for a snapshot that does not exist.
    pub fn resolve(&self, text: &str, zone: ZonePolicy) -> Result<Hlc, Error> {
        let instant = Instant::parse(text, zone)?;
        match &instant {
            Instant::System(at) => Ok(*at),
            Instant::Named(name) => Ok(Hlc(self.instant_named(name)?.at)),
            Instant::LastWhole => Ok(Hlc(self.instant_named("last-whole")?.at)),
            moving => {
                let now = self.now()?;
                Ok(moving.resolve(now).unwrap_or(now))
            }
        }
    }

    /// The newest instant at or before `at` that every policy of retention keeps: the whole tree can be read at it.
    ///
    /// # Errors
    /// `Refused` with `HistoryExpired` if none is kept, with the first that is.
    pub fn nearest_kept(&self, at: Hlc) -> Result<Hlc, Error> {
        Ok(Hlc(self.ask_now(Now { nearest: at.0, ..Now::default() })?.at))
    }

    fn instant_named(&self, name: &str) -> Result<NowReply, Error> {
        self.ask_now(Now { name: name.to_owned(), ..Now::default() })
    }

    fn ask_now(&self, ask: Now) -> Result<NowReply, Error> {
        match self.0.query(None, Request::Now(ask), QueryOptions::default())? {
            Reply::Now(reply) => Ok(reply),
            other => Err(self.0.unexpected("the time", &other)),
        }
    }

    /// The status of the server that this client was connected to ([`Options::server`] of [`Client::options`]), leader
    /// or not.
    ///
    /// # Errors
    /// As any call.
    pub fn status(&self) -> Result<StatusReply, Error> {
        self.status_at(ServerRoute::Named)
    }

    /// The status of the leader, which orders changes.
    ///
    /// # Errors
    /// As any call.
    pub fn status_of_leader(&self) -> Result<StatusReply, Error> {
        self.status_at(ServerRoute::Lead)
    }

    fn status_at(&self, route: ServerRoute) -> Result<StatusReply, Error> {
        let body = RequestBody { caller: None, trace: None, request: Some(Request::Status(Status {})) };
        let request = RpcRequest::new(body, self.0.current_session(), Seq(0), &[]).to(route);
        match self.0.call(&request, &mut [])?.0 {
            Reply::Status(reply) => Ok(*reply),
            other => Err(self.0.unexpected("the status", &other)),
        }
    }

    /// True while the server is known to be alone: no other server is tried.
    pub fn is_alone(&self) -> bool {
        self.0.servers.age().is_alone()
    }

    /// The state of the cluster, after `op`, if any, was decided. Empty from a server that is alone.
    ///
    /// # Errors
    /// `Refused` with `NotPermitted` if the caller of a change is no administrator, or with the reason against the
    /// change; as any call.
    pub fn cluster(&self, op: Option<ClusterOp>) -> Result<ClusterReply, Error> {
        let reply = self.cluster_at_leader(op)?;
        if op.is_some() || reply.leader == 0 || reply.told_by == reply.leader {
            return Ok(reply);
        }
        // Every server answers with what it knows, and this reply is of a time without a known leader.
        self.0.refresh_map(self.0.servers.age(), self.0.retry_budget().left());
        self.cluster_at_leader(op)
    }

    fn cluster_at_leader(&self, op: Option<ClusterOp>) -> Result<ClusterReply, Error> {
        match self.0.query(None, Request::Cluster(Cluster { op }), QueryOptions::default())? {
            Reply::Cluster(reply) => Ok(reply),
            other => Err(self.0.unexpected("how the cluster is", &other)),
        }
    }

    /// The servers of the cluster by a map that is a few seconds old at most: those first that hold most of `range` of
    /// a file, and last those that did not answer lately. Empty for a server that is alone.
    ///
    /// # Cost
    /// None, but for one call every two seconds.
    pub fn holders(&self, attr: &Attr, range: ByteRange) -> Vec<(NodeId, ServerAddr)> {
        self.refresh_map();
        let servers = &self.0.servers;
        let chunk_bytes = if attr.chunk_bytes == 0 { self.0.hello.chunk_bytes } else { attr.chunk_bytes }.max(1);
        let index = |at: u64| u32::try_from(at / chunk_bytes).unwrap_or(u32::MAX);
        let last = index(range.end().saturating_sub(1).max(range.start()));
        let chunks = (index(range.start())..=last).map(|index| ChunkId { inode: InodeId(attr.inode), index });
        servers.holders(chunks.take(HELD_CHUNKS_MAX))
    }

    /// True if the server is one of several, by a map that is a few seconds old at most. [`Client::is_alone`] goes by
    /// the last replies, and a server that leads from the beginning on does not report others that join.
    ///
    /// # Cost
    /// None, but for one call every two seconds.
    pub fn has_others(&self) -> bool {
        if self.is_alone() {
            self.refresh_map();
        }
        !self.is_alone()
    }

    /// The leader answers every call, so no reply reports servers that joined. A map that is not newer changes nothing.
    fn refresh_map(&self) {
        let servers = &self.0.servers;
        if servers.may_refresh(mono(), MAP_AGE)
            && let Ok(Reply::ClusterMap(map)) =
                self.0.query(None, Request::ClusterMap(ClusterMap {}), QueryOptions::default())
            && MapAge::of(&map).is_newer_than(servers.age())
        {
            servers.learn(&map);
        }
    }

    /// Starts or stops a scrub of everything stored, or neither, and returns its progress and the damage found.
    /// `bytes_per_s` limits a scrub that starts; 0 for the server's setting. If one is running, starting changes its
    /// rate.
    ///
    /// # Errors
    /// `Refused` with `NotPermitted` if the caller is no administrator; as any call.
    pub fn scrub(&self, action: ScrubAction, bytes_per_s: u64, with_findings: bool) -> Result<ScrubReply, Error> {
        let scrub = Scrub { action: action.into(), bytes_per_s, with_findings };
        match self.0.query(None, Request::Scrub(scrub), QueryOptions::default())? {
            Reply::Scrub(reply) => Ok(reply),
            other => Err(self.0.unexpected("a scrub", &other)),
        }
    }

    /// The named instants in order of name.
    ///
    /// # Errors
    /// As any call.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, Error> {
        self.ask_snapshots(false)
    }

    /// The same with the bytes that only each snapshot references: live at its instant and not now. The server computes
    /// them from the changes since.
    ///
    /// # Errors
    /// As any call.
    pub fn snapshots_with_bytes(&self) -> Result<Vec<Snapshot>, Error> {
        self.ask_snapshots(true)
    }

    fn ask_snapshots(&self, with_bytes: bool) -> Result<Vec<Snapshot>, Error> {
        let mut snapshots: Vec<Snapshot> = Vec::new();
        loop {
            let after = snapshots.last().map_or(String::new(), |last| last.name.clone());
            let request = Request::Snapshots(Snapshots { with_bytes, after, count_max: 0 });
            let reply = match self.0.query(None, request, QueryOptions::default())? {
                Reply::Snapshots(reply) => reply,
                other => return Err(self.0.unexpected("the snapshots", &other)),
            };
            let SnapshotsReply { snapshots: mut page, more } = reply;
            let is_last = !more || page.is_empty();
            snapshots.append(&mut page);
            if is_last {
                return Ok(snapshots);
            }
        }
    }

    /// Creates a snapshot: names an instant, `None` for the present, and pins its history. Returns the instant.
    ///
    /// # Errors
    /// `Refused` with `Exists` if the name is taken, `InvalidArgument` if it could be read as an instant.
    pub fn make_snapshot(&self, name: &str, at: Option<Hlc>) -> Result<Hlc, Error> {
        self.fs().make_snapshot(name, at)
    }

    /// Deletes a snapshot. Its instant can be read as long as history is kept.
    ///
    /// # Errors
    /// `Refused` with `NotFound` if there is no such name.
    pub fn delete_snapshot(&self, name: &str) -> Result<(), Error> {
        self.fs().delete_snapshot(name)
    }

    /// For a program that is about to end and may have much to close: every call, those in flight included, fails with
    /// `Unanswered` after `limit` from now.
    pub fn end_within(&self, limit: Duration) {
        self.0.end_within(limit);
    }

    /// Ends the session and every connection. Calls that wait, and all later ones, fail with `Closed`.
    ///
    /// # Errors
    /// If the server was not reached; the client is closed all the same.
    pub fn close(&self) -> Result<(), Error> {
        self.0.close()
    }
}

/// Chunks of a range whose holders are counted at most.
const HELD_CHUNKS_MAX: usize = 64;
/// How old the map may be by which holders are named.
const MAP_AGE: Duration = Duration::from_secs(2);
