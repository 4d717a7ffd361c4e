//! The life of a request: the proof of its caller, its row in the table, its handler, its answer.
//!
//! Guarantees: the caller is proven before its request has an effect; an answer of now is made under a lease that still
//! holds when everything has been read. Leaves to others: what a request does (its handler), sockets and threads
//! (`frieze_node`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frieze_base::{ChainId, Fault, MonoTime, NodeId, Reason, Seq, SessionId};
use frieze_coherence::{CacheLeaseSettings, FileLocks};
use frieze_locks::RwLock;
use frieze_metadata::OpenSessions;
use frieze_net::ReceivedPayload;
use frieze_planes::{
    Files, Planes, Principal, ThinningPass, chains_of_grants, chains_of_range, parts_before, spread_of, went_meanwhile,
};
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{
    Cluster, ClusterMapReply, ClusterReply, HelloReply, Join, JoinReply, Reply, Request, RequestBody, StatusReply,
};
use frieze_wire::txn::Caller;

use crate::history::{History, Unshown};
use crate::read::Reader;
use crate::session::cache_leases::CacheLeaseRequest;
use crate::session::capability::Presenter;
use crate::session::connection::Conn;
use crate::session::request_class::{AnswerPlace, RequestClass, Sees};
use crate::session::responder::Responder;
use crate::session::scratch::Scratch;
use crate::session::{Sessions, unknown_session};
use crate::table::{self, RunningRequest, class_of};
use crate::tree_ops::TreeOps;
use crate::upkeep::{Remains, Scrub, Upkeep};
use crate::write::Writers;
use crate::write::ending::Ending;

/// What requests ask of the process and of its part in a cluster.
pub trait ClusterHost {
    /// What the server says of itself in a greeting.
    fn greeting(&self) -> HelloReply;
    /// Refuses a client that expects a former cluster of this server.
    ///
    /// # Errors
    /// `WrongCluster`.
    fn check_former(&self, expected: &str) -> Result<(), Fault>;
    /// Checks that a node that has proven itself belongs to the cluster.
    ///
    /// # Errors
    /// `Removed`.
    fn check_is_node(&self, node: NodeId) -> Result<(), Fault>;
    /// Checks that this server leads.
    ///
    /// # Errors
    /// `Elsewhere`, `Unavailable`: it does not; the fault names the leader, or the missing majority.
    fn check_leads(&self) -> Result<(), Fault>;
    /// `fault` with the words of a lost majority, if that is the cause.
    fn name_majority(&self, fault: Fault) -> Fault;
    /// Status of the server, after the majority was asked.
    fn status(&self) -> StatusReply;
    /// Which servers answer for which chains.
    fn cluster_map(&self) -> ClusterMapReply;
    /// Admits a server to the cluster.
    ///
    /// # Errors
    /// `NotPermitted`, `Elsewhere`, or why the newcomer is refused.
    fn admit_node(&self, principal: &Principal, ask: Join) -> Result<JoinReply, Fault>;
    /// Status of the cluster, after the requested change has been decided.
    ///
    /// # Errors
    /// `NotPermitted`, `Elsewhere`, or why the change is refused.
    fn cluster(&self, principal: &Principal, ask: Cluster) -> Result<ClusterReply, Fault>;
}

/// A request as its connection received it.
pub struct ReceivedRequest<'a> {
    /// The head of its frame.
    pub header: &'a FrameHeader,
    /// What it asks for.
    pub body: RequestBody,
    /// Its payload, not verified yet.
    pub payload: ReceivedPayload<'a>,
}

/// The rooms that answer requests, over the same planes.
pub struct Service {
    /// Names and bytes.
    pub planes: Arc<Planes>,
    /// Files over both planes.
    pub files: Arc<Files>,
    /// Sessions and what they hold.
    pub sessions: Arc<Sessions>,
    /// Answers about names, attributes and bytes.
    pub read: Arc<Reader>,
    /// Changes of bytes and names.
    pub write: Arc<Writers>,
    /// What has happened.
    pub history: Arc<History>,
    /// Work in the background.
    pub upkeep: Arc<Upkeep>,
    /// Clones, restores, undo, removal of trees.
    pub tree_ops: Arc<TreeOps>,
    /// How often this server had begun to lead the metalog at the last look.
    pub reigns: AtomicU64,
}

impl Service {
    /// The rooms over these planes.
    pub fn new(planes: &Arc<Planes>, sessions: Sessions, unshown: Unshown, scrub: Scrub) -> Service {
        let planes = planes.clone();
        let files = Arc::new(Files::new(planes.clone()));
        let sessions = Arc::new(sessions);
        let read = Arc::new(Reader { planes: planes.clone(), files: files.clone(), sessions: sessions.clone() });
        let write = Arc::new(Writers {
            planes: planes.clone(),
            files: files.clone(),
            sessions: sessions.clone(),
            read: read.clone(),
            ending: Ending::default(),
        });
        let history = Arc::new(History { planes: planes.clone(), files: files.clone(), read: read.clone(), unshown });
        let upkeep = Arc::new(Upkeep {
            planes: planes.clone(),
            files: files.clone(),
            sessions: sessions.clone(),
            read: read.clone(),
            write: write.clone(),
            remains: Remains::default(),
            thinning: ThinningPass::default(),
            scrub,
            forgetting: RwLock::default(),
            files_cached: AtomicU64::new(0),
        });
        let tree_ops = Arc::new(TreeOps {
            planes: planes.clone(),
            files: files.clone(),
            sessions: sessions.clone(),
            read: read.clone(),
            write: write.clone(),
            history: history.clone(),
            upkeep: upkeep.clone(),
        });
        Service { planes, files, sessions, read, write, history, upkeep, tree_ops, reigns: AtomicU64::new(0) }
    }

    /// Answers a request through `responder`, at once or when it is durable.
    pub fn handle(
        &self,
        host: &dyn ClusterHost,
        conn: &Conn,
        ReceivedRequest { header, body, payload }: ReceivedRequest<'_>,
        responder: &Arc<dyn Responder>,
        scratch: &mut Scratch,
    ) {
        let class = body.request.as_ref().map(|request| class_of(header, request));
        let (gate, reads) = match &class {
            Some(class) if class.is_of_now() => self.sessions.gate(header, class.gated_on, responder),
            _ => (None, None),
        };
        let ungated = class.is_some_and(|class| class.is_of_now()) && gate.is_none();
        let responder = gate.as_ref().unwrap_or(responder);
        scratch.asking = CacheLeaseRequest::of(header, reads);
        // An answer that has to wait for others is kept whole.
        scratch.may_step = ungated && class.is_some_and(|class| class.may_stream);
        scratch.unread = None;
        let sees_now = class.is_some_and(|class| self.needs_lease(header.session, class.sees));
        let (turns, went) = (self.planes.data.membership_count(), self.planes.data.detach_count());
        let sees_instants = class.is_some_and(|class| class.sees_instants);
        let answer = match body.request {
            Some(Request::Hello(hello)) => host
                .check_former(&hello.cluster)
                .and_then(|()| conn.hello(hello, &self.sessions.nodes, host.greeting()))
                .map(Reply::Hello),
            Some(Request::Prove(prove)) => {
                let proven = conn.prove(&prove, &self.sessions.keys, &self.sessions.nodes, host.greeting());
                let is_one_of_us = || conn.node().map_or(Ok(()), |node| host.check_is_node(node));
                let greeted = proven.and_then(|reply| is_one_of_us().map(|()| reply));
                greeted.inspect_err(|_| conn.disown()).map(Reply::Hello)
            }
            Some(request) => match self.admit(conn, header, body.caller).and_then(|principal| {
                // The client may cache nothing of it unless this server learns of every change first.
                scratch.asking.session = scratch.asking.session.filter(|session| self.may_keep(*session));
                let class = class_of(header, &request);
                self.check_place(host, header, &class)?;
                if sees_now {
                    self.look_now(header.session, class.sees)?;
                }
                Ok(principal)
            }) {
                Ok(principal) => {
                    let service = self;
                    let principal = &principal;
                    let call = RunningRequest {
                        service,
                        host,
                        conn,
                        principal,
                        header,
                        payload,
                        responder,
                        scratch: &mut *scratch,
                    };
                    match table::run(call, request) {
                        Some(answer) => answer,
                        None => return,
                    }
                }
                Err(fault) => Err(fault),
            },
            None => Err(Fault::new(
                Reason::Unsupported,
                "the request is of a kind that this server does not know: it may be older than the client",
            )),
        };
        let answer = if sees_now { under_lease(&self.planes, answer, turns) } else { answer };
        // An error, too, may come from the chains that were lost.
        let lost = sees_instants && self.planes.has_lost_chains_since(went);
        let answer = if lost { Err(went_meanwhile()) } else { answer };
        let header = FrameHeader { holds: scratch.asking.holds, ..*header };
        let late = self.sessions.late_gate(&header, responder).filter(|_| ungated);
        let answer = match (answer, scratch.unread.take()) {
            (Ok(reply), Some(unread)) => {
                let mut steps = scratch.steps(self.planes.data.device(), unread);
                return match late {
                    Some(gate) => gate.respond_in_steps(&header, reply, &mut steps),
                    None => responder.respond_in_steps(&header, reply, &mut steps),
                };
            }
            (answer, None) => answer,
            (Err(fault), Some(unread)) => {
                self.planes.data.device().unpin(unread.lease, true);
                Err(fault)
            }
        };
        let responder: &dyn Responder = match &late {
            Some(gate) => gate,
            None => &**responder,
        };
        match &answer {
            Ok(Reply::Read(_)) => {
                responder.respond_with(&header, answer, &mut scratch.payload, scratch.payload_crc);
            }
            _ => responder.respond(&header, answer, &[], 0),
        }
    }

    /// Checks the caller and its session.
    pub fn admit(&self, conn: &Conn, header: &FrameHeader, named: Option<Caller>) -> Result<Principal, Fault> {
        let principal = conn.principal(named)?;
        self.planes.clock.observe(header.hlc)?;
        if header.session != SessionId(0) && conn.session() != Some(header.session) {
            let owner = || self.planes.meta.session_user(header.session);
            let known = match owner() {
                // Another server may have opened it a moment ago.
                None => {
                    self.planes.meta.linearizable()?;
                    owner()
                }
                known => known,
            };
            match known {
                Some(uid) if uid == principal.uid => {
                    self.sessions.table.attach(conn, header.session, self.planes.clock.reading().mono);
                }
                // The same words for both, so that no client can probe for sessions of other users.
                Some(_) | None => return Err(unknown_session(header.session)),
            }
        }
        Ok(principal)
    }

    /// True if the answer tells of bytes, or lengths of files, as they are now: then it needs a lease.
    pub fn needs_lease(&self, session: SessionId, sees: Sees<'_>) -> bool {
        let is_present = |capability: &[u8]| {
            let opened = self.sessions.mint.open(capability, Presenter::of_now(session));
            opened.is_ok_and(|capability| capability.view.at.is_none())
        };
        self.planes.data.is_shared()
            && match sees {
                Sees::Nothing | Sees::Names => false,
                Sees::Bytes | Sees::Lengths => true,
                Sees::BytesBy(capability) => is_present(capability),
                Sees::Range(ask) => is_present(&ask.capability),
            }
    }

    /// Sees to it that what a request sees of now is known here.
    pub fn look_now(&self, session: SessionId, sees: Sees<'_>) -> Result<(), Fault> {
        let all =
            || (0..self.planes.data.chain_count()).map(ChainId).filter(|chain| self.planes.data.is_member(*chain));
        match sees {
            Sees::Range(ask) => match self.sessions.mint.open(&ask.capability, Presenter::of_now(session)) {
                Ok(capability) => {
                    let id = capability.inode;
                    // The read itself refuses a file that is not known here.
                    let Some(chunks) = self.planes.meta.file_chunks(id) else {
                        return self.planes.data.await_tails([].into_iter());
                    };
                    // The read itself asks other servers about writes on their chains.
                    let layout = spread_of(id, chunks.layout);
                    let mut chains = chains_of_range(layout, ask);
                    let before = parts_before(layout, chunks.reaches_from, ask).into_iter().map(|(chain, ..)| chain);
                    let others = before.chain(chains_of_grants(id, &chunks));
                    chains.extend(others.filter(|chain| self.planes.data.is_member(*chain)));
                    if chunks.is_patched && chunks.has_writers {
                        self.planes.meta.current(id).map_or(Ok(()), |inode| self.files.order_patches(id, &inode))?;
                    }
                    // By user time the newest record counts, on any chain.
                    if !chunks.is_patched
                        && capability.view.user_at.is_none()
                        && self.planes.data.has_to_query_tail(chains.iter().copied())
                        && let Some(inode) = self.planes.meta.current(id).filter(|inode| inode.patches().is_empty())
                        && self.files.is_clean_there(id, inode, ask)?
                    {
                        return Ok(());
                    }
                    self.planes.data.await_tails(chains.into_iter())
                }
                // The read itself refuses it.
                Err(_) => Ok(()),
            },
            // The handler looks at what it finds.
            Sees::Nothing | Sees::Names | Sees::Lengths => Ok(()),
            Sees::Bytes | Sees::BytesBy(_) => self.planes.data.await_tails(all()),
        }
    }

    /// Ensures that this server may answer a request: that it leads, if the request is one for the leader, and that it
    /// knows of everything that any client learned before, if the answer is about now. A single server always may.
    ///
    /// # Errors
    /// `Elsewhere`, `Unavailable`: ask the leader, or again.
    pub fn check_place(
        &self,
        host: &dyn ClusterHost,
        header: &FrameHeader,
        class: &RequestClass<'_>,
    ) -> Result<(), Fault> {
        if self.has_begun_to_lead() {
            self.take_over();
        }
        if class.place == AnswerPlace::Leader {
            host.check_leads()?;
        }
        // A change is ordered after everything that anybody was told.
        match header.seq == Seq(0) && class.is_of_now() {
            true => self.planes.meta.linearizable().map_err(|fault| host.name_majority(fault)),
            false => Ok(()),
        }
    }

    /// True if the session may get a cache lease or a lock: in a cluster, only one that declared this when it was
    /// opened, so that the next leader knows of it.
    pub fn may_keep(&self, session: SessionId) -> bool {
        self.planes.meta.may_keep(session)
    }

    /// True if this server has begun to lead and has not run [`Service::take_over`] since.
    pub fn has_begun_to_lead(&self) -> bool {
        self.planes.meta.leader_terms() != self.reigns.load(Ordering::Acquire) && self.planes.meta.leads()
    }

    /// Runs once after this server has begun to lead. The earlier leader knew which sessions are connected. What they
    /// hold is unknown until they have reported it.
    pub fn take_over(&self) {
        let reigns = self.planes.meta.leader_terms();
        if !self.planes.meta.leads() || reigns == 0 {
            return;
        }
        let now = self.planes.clock.reading().mono;
        let OpenSessions { all: sessions, keeping } = self.planes.meta.sessions();
        // The sessions opened since as well: their clients may not know this server yet.
        sessions.iter().for_each(|session| self.sessions.table.found(*session, now));
        if self.reigns.swap(reigns, Ordering::AcqRel) == reigns {
            return;
        }
        self.sessions.table.renew(now);
        self.write.forget_ending();
        let until = MonoTime(now.0 + CacheLeaseSettings::default().lease_ns);
        let mut locks = self.sessions.locks.lock();
        // Sessions may have released the locks that they held when this server led the last time.
        *locks = FileLocks::default();
        locks.found(keeping.iter().copied(), until);
        drop(locks);
        self.sessions.opened.found(keeping);
    }
}

/// The answer, unless the lease has ended since the look-up, or this server has joined or left a chain since it had
/// done so `turns` times. A server that left a chain still gets a lease, as soon as it knows that it left, but for the
/// other chains only: the lease alone does not protect the answer.
pub(super) fn under_lease(planes: &Planes, answer: Result<Reply, Fault>, turns: u64) -> Result<Reply, Fault> {
    let reply = answer?;
    planes.data.check_lease_and_membership(turns)?;
    Ok(reply)
}
