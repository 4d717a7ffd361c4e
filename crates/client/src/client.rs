//! A connection to a frieze server as a program sees it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frieze_base::{ByteRange, ChunkId, InodeId, NodeId, Seq, SessionId};
use frieze_hlc::{Hlc, Instant, ZonePolicy};
use frieze_net::{ServerAddr, mono};
use frieze_wire::message::{
    Attr, Cluster, ClusterMap, ClusterOp, ClusterReply, HelloReply, Now, NowReply, Reply, Request, RequestBody,
    Snapshot, Snapshots, SnapshotsReply, Status, StatusReply,
};
use frieze_wire::scrub::{Scrub, ScrubAction, ScrubReply};

use crate::call::{Ask, Shared};
use crate::servers::{Age, Route};
use crate::{Error, Fs, Options};

/// A client of one server. Cheap to clone; clones share connections and session. Its session ends with the last clone,
/// file system and file.
#[derive(Clone, Debug)]
pub struct Client(Arc<Shared>);

impl Client {
    /// Connects to a server and proves who is calling.
    ///
    /// # Errors
    /// `Transport` if nobody answers at that address; it says what to do. `Refused` if the server turns this caller away.
    pub fn connect(options: Options) -> Result<Client, Error> {
        Ok(Client(Arc::new(Shared::connect(options)?)))
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.0.clone()
    }

    /// The file system as it is now, for the proven user.
    pub fn fs(&self) -> Fs {
        Fs::new(self.0.clone())
    }

    /// What the server said of itself and of this caller when it was first reached.
    pub fn hello(&self) -> &HelloReply {
        &self.0.hello
    }

    /// How the client was connected.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// The session, which is opened when it is first needed.
    ///
    /// # Errors
    /// As any call.
    pub fn session(&self) -> Result<SessionId, Error> {
        self.0.session()
    }

    /// The newest stamp in any answer so far: everything this client did or saw lies at or before it.
    pub fn newest(&self) -> Hlc {
        self.0.newest()
    }

    /// True if what was read of any file may lack something: see [`crate::File::may_lack`].
    pub fn met_loss(&self) -> bool {
        self.0.met_loss.load(Ordering::Relaxed)
    }

    /// The instant of now: a read at it holds everything that happened before the question.
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
    /// A moving text is resolved now; pass the result on, so that everything sees one cut.
    ///
    /// # Errors
    /// `Instant` for a text that is none; `Refused` with `NotFound` for a snapshot that is not there.
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

    fn instant_named(&self, name: &str) -> Result<NowReply, Error> {
        match self.0.query(None, Request::Now(Now { name: name.to_owned() }))? {
            Reply::Now(reply) => Ok(reply),
            other => Err(self.0.unexpected("the time", &other)),
        }
    }

    /// How the server is that this client was connected to ([`Options::server`] of [`Client::options`]): its own figures, whoever leads.
    ///
    /// # Errors
    /// As any call.
    pub fn status(&self) -> Result<StatusReply, Error> {
        self.status_at(Route::Named)
    }

    /// How the server is that orders changes.
    ///
    /// # Errors
    /// As any call.
    pub fn status_of_leader(&self) -> Result<StatusReply, Error> {
        self.status_at(Route::Lead)
    }

    fn status_at(&self, route: Route) -> Result<StatusReply, Error> {
        let body = RequestBody { caller: None, request: Some(Request::Status(Status {})) };
        let ask = Ask::new(body, self.0.current_session(), Seq(0), &[]).to(route);
        match self.0.ask(&ask, &mut [])?.0 {
            Reply::Status(reply) => Ok(*reply),
            other => Err(self.0.unexpected("the status", &other)),
        }
    }

    /// True while the server has been known to be alone: no other one is asked, or waited for.
    pub fn is_alone(&self) -> bool {
        self.0.servers.age().is_alone()
    }

    /// How the cluster is, after `op` has been decided, if there is one. Empty from a server that is alone.
    ///
    /// # Errors
    /// `Refused` with `NotPermitted` for whoever is not an administrator and asks for a change; with what speaks against it; as
    /// any call.
    pub fn cluster(&self, op: Option<ClusterOp>) -> Result<ClusterReply, Error> {
        let reply = self.cluster_at_leader(op)?;
        if op.is_some() || reply.leader == 0 || reply.told_by == reply.leader {
            return Ok(reply);
        }
        // Any server answers, with what it knows, and this one was asked when nobody was known to lead.
        self.0.look_around(self.0.servers.age(), self.0.patience().left());
        self.cluster_at_leader(op)
    }

    fn cluster_at_leader(&self, op: Option<ClusterOp>) -> Result<ClusterReply, Error> {
        match self.0.query(None, Request::Cluster(Cluster { op }))? {
            Reply::Cluster(reply) => Ok(reply),
            other => Err(self.0.unexpected("how the cluster is", &other)),
        }
    }

    /// The servers of the cluster, those first that hold most of `range` of a file, as a map of at most some seconds ago
    /// says it; who did not answer lately comes last. Empty for a server that is alone.
    ///
    /// # Cost
    /// None, but for one call every two seconds.
    pub fn holders(&self, attr: &Attr, range: ByteRange) -> Vec<(NodeId, ServerAddr)> {
        self.look_at_map();
        let servers = &self.0.servers;
        let chunk_bytes = if attr.chunk_bytes == 0 { self.0.hello.chunk_bytes } else { attr.chunk_bytes }.max(1);
        let index = |at: u64| u32::try_from(at / chunk_bytes).unwrap_or(u32::MAX);
        let last = index(range.end().saturating_sub(1).max(range.start()));
        let chunks = (index(range.start())..=last).map(|index| ChunkId { inode: InodeId(attr.inode), index });
        servers.holders(chunks.take(HELD_CHUNKS_MAX))
    }

    /// True if the server is one of several, as a map of at most some seconds ago says it. [`Client::is_alone`] tells what the last answers
    /// said of it, and who leads from the beginning on says nothing of others that have come.
    ///
    /// # Cost
    /// None, but for one call every two seconds.
    pub fn has_others(&self) -> bool {
        if self.is_alone() {
            self.look_at_map();
        }
        !self.is_alone()
    }

    /// Who leads answers every call and is never told that there are others now. A map that is no newer changes nothing.
    fn look_at_map(&self) {
        let servers = &self.0.servers;
        if servers.may_look(mono(), MAP_AGE)
            && let Ok(Reply::ClusterMap(map)) = self.0.query(None, Request::ClusterMap(ClusterMap {}))
            && Age::of(&map).is_newer_than(servers.age())
        {
            servers.learn(&map);
        }
    }

    /// Begins or ends a scrub of everything stored, or neither, and tells how far it is and what is damaged.
    /// `bytes_per_s` is for one that begins: at most so many; 0 for the server's setting. Where one is under way, starting
    /// gives it that rate.
    ///
    /// # Errors
    /// `Refused` with `NotPermitted` for whoever is not an administrator; as any call.
    pub fn scrub(&self, action: ScrubAction, bytes_per_s: u64, with_findings: bool) -> Result<ScrubReply, Error> {
        let ask = Scrub { action: action.into(), bytes_per_s, with_findings };
        match self.0.query(None, Request::Scrub(ask))? {
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

    /// The same with the bytes that each holds back: live at its instant and not now. The server looks at what changed
    /// since.
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
            let reply = match self.0.query(None, Request::Snapshots(Snapshots { with_bytes, after, count_max: 0 }))? {
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

    /// Names an instant and pins its history; `None` names the present. Returns the instant.
    ///
    /// # Errors
    /// `Refused` with `Exists` if the name is taken, `InvalidArgument` if it could be read as an instant.
    pub fn make_snapshot(&self, name: &str, at: Option<Hlc>) -> Result<Hlc, Error> {
        self.fs().make_snapshot(name, at)
    }

    /// Forgets a named instant. The instant can be read as long as history is kept.
    ///
    /// # Errors
    /// `Refused` with `NotFound` if there is no such name.
    pub fn delete_snapshot(&self, name: &str) -> Result<(), Error> {
        self.fs().delete_snapshot(name)
    }

    /// Waits until a file was closed by [`File::close_later`](crate::File::close_later), for `moment` more so that others
    /// may follow, and settles them. False once the client was closed. One thread calls it again and again.
    pub fn settle_closed(&self, moment: Duration) -> bool {
        if !self.0.closing.wait() {
            return false;
        }
        self.0.pause(moment);
        if let Some(closed) = self.0.closing.take()
            && let Err(error) = self.0.settle(&closed)
        {
            tracing::debug!("files are settled at the end of the session: {error}");
        }
        true
    }

    /// For a program that is to end, which may have much to close: from now on no call goes on trying for longer than until `limit`
    /// from now, those that are under way already included. They fail with `Unanswered`.
    pub fn end_within(&self, limit: Duration) {
        self.0.end_within(limit);
    }

    /// Ends the session and every connection. Calls that wait end with `Closed`, as does everything afterwards.
    ///
    /// # Errors
    /// If the server could not be told; the client is closed all the same.
    pub fn close(&self) -> Result<(), Error> {
        self.0.close()
    }
}

/// Chunks of a range whose holders are counted: more say no more.
const HELD_CHUNKS_MAX: usize = 64;
/// How old the map may be by which holders are told.
const MAP_AGE: Duration = Duration::from_secs(2);
