//! The write path: bytes, transactions, barriers.
//!
//! Guarantees: the right to write was proven at open and is in the capability; a write without a grant is refused; a
//! change that decides the contents of present bytes is ordered among the writes (`settling`).

pub mod ending;
mod punch_hole;
mod size_commit;

use std::collections::BTreeSet;
use std::sync::Arc;

use frieze_base::{AT_NAME, ChainId, Fault, InodeId, NodeId, Reason, Seq, SessionId};
use frieze_coherence::CacheKey;
use frieze_hlc::Hlc;
use frieze_metadata::{MissingGrant, OtherWriter, WriteRight, WriteTarget, holds_grant};
use frieze_namespace::{Cached, Inode};
use frieze_net::ReceivedPayload;
use frieze_planes::{
    FileVersion, Files, Planes, Principal, RemoteReach, chains_of_extent, granted_chains, layout_of, spread_of,
};
use frieze_replication::{
    Content, Gather, WriteAsk, WriteCallback as Answer, WritePlace, WriteResult, in_one_record, split,
};
use frieze_wire::frame::{FrameHeader, PAYLOAD_BYTES_MAX};
use frieze_wire::message::{
    Durability as When, FileKind, PATH_XATTR, Reply, Request, Txn, TxnReply, View, Write, WriteReply,
};
use frieze_wire::txn::{Grant, MakeKind, MakeNameless, Op, RENAME_EXCHANGE, RemoveXattr, SetXattr, Transaction};
use frieze_wire::writers::WRITERS_XATTR;

use crate::read::Reader;
use crate::session::cache_leases::CacheLeaseRequest;
use crate::session::capability::{Bearer, Capability, Presenter};
use crate::session::connection::Conn;
use crate::session::responder::{Responder, done};
use crate::session::scratch::Scratch;
use crate::session::{Sessions, unknown_session};
use crate::time_plugin::{BINDING_XATTR, TimePlugin};
use crate::write::ending::Ending;

/// Chunks that one grant covers at most (protocols §4).
pub(crate) const GRANT_CHUNKS_MAX: u32 = 16;
/// Largest value of an extended attribute (Linux).
const XATTR_BYTES_MAX: usize = 64 << 10;

/// Changes of bytes and names.
pub struct Writers {
    /// Names and bytes.
    pub planes: Arc<Planes>,
    /// Files over both planes.
    pub files: Arc<Files>,
    /// Sessions and what they hold.
    pub sessions: Arc<Sessions>,
    /// Answers about what is.
    pub read: Arc<Reader>,
    /// Sessions that are being ended.
    pub ending: Ending,
}

impl Writers {
    /// The next member that will receive the payload of a request of `len` bytes as a record, as far as that is known
    /// before the request is checked.
    pub fn goes_to(&self, header: &FrameHeader, request: &Request, len: usize) -> Option<(ChainId, NodeId)> {
        let Request::Write(ask) = request else { return None };
        if ask.append {
            return None;
        }
        let capability = self
            .sessions
            .mint
            .open(&ask.capability, Presenter::of_now(header.session))
            .ok()
            .filter(|capability| capability.write)?;
        let layout = layout_of(capability.inode, &self.planes.current(capability.inode).ok()?);
        let end = ask.offset.checked_add(len as u64)?;
        let chunk = u32::try_from(ask.offset / layout.chunk_bytes).ok()?;
        let fits = end <= (u64::from(chunk) + 1) * layout.chunk_bytes;
        let chain = fits.then(|| layout.chain(chunk))?;
        Some((chain, self.planes.data.successor_of(chain)?))
    }

    pub(crate) fn write(
        &self,
        principal: &Principal,
        header: &FrameHeader,
        ask: &Write,
        payload: ReceivedPayload<'_>,
        responder: &Arc<dyn Responder>,
        scratch: &mut Scratch,
    ) {
        let request = *header;
        let reply_to = responder.clone();
        let reply = Box::new(move |result: Result<WriteResult, Fault>| {
            let result =
                result.map(|WriteResult { stamp, offset, .. }| Reply::Write(WriteReply { stamp: stamp.0, offset }));
            reply_to.respond(&request, result, &[], 0);
        });
        if let Err((reply, fault)) = self.try_write(principal, header, ask, payload, scratch, reply) {
            reply(Err(fault));
        }
        if when_of(ask) == When::Sync {
            self.planes.durability.hurry();
        }
    }

    /// An early refusal returns the reply to the caller.
    fn try_write(
        &self,
        principal: &Principal,
        header: &FrameHeader,
        ask: &Write,
        payload: ReceivedPayload<'_>,
        scratch: &mut Scratch,
        reply: Answer,
    ) -> Result<(), (Answer, Fault)> {
        macro_rules! check {
            ($result:expr) => {
                match $result {
                    Ok(value) => value,
                    Err(fault) => return Err((reply, fault)),
                }
            };
        }
        check!(self.planes.check_changeable());
        check!(check_numbered(header));
        let capability = check!(self.sessions.mint.open_shown(
            &ask.capability,
            Presenter::of_any(header.session, principal.uid),
            &mut scratch.shown
        ));
        check!(check_writable(&capability));
        if payload.is_empty() || payload.len() > PAYLOAD_BYTES_MAX as usize {
            return Err((
                reply,
                Fault::new(
                    Reason::InvalidArgument,
                    format!("a write of {} bytes; 1 to {PAYLOAD_BYTES_MAX} at once", payload.len()),
                ),
            ));
        }
        let id = capability.inode;
        let looked = check!(self.catch_up(id, header.session, (ask.offset, payload.len() as u64), ask.append));
        let WriteTarget { kind, layout, timed } = check!(self.planes.meta.write_target(id));
        let layout = spread_of(id, layout);
        if kind != FileKind::File {
            return Err((reply, Reason::InvalidArgument.into()));
        }
        let plugin: Option<TimePlugin> = match &timed {
            None => None,
            Some(inode) => Some(check!(inode.plugin().parse())),
        };
        let rows = plugin.as_ref().filter(|plugin| plugin.has_rows());
        let record_time = match plugin.as_ref().filter(|plugin| !plugin.has_rows()) {
            Some(plugin) => Some(check!(plugin.user_time(&payload).map_err(|fault| at_offset(fault, ask, id)))),
            None => None,
        };
        check!(self.planes.hold_back());
        let at_end = (ask.append && self.planes.data.is_shared())
            .then(|| layout.chain(u32::try_from(ask.offset / layout.chunk_bytes).unwrap_or(u32::MAX)));
        if let Some(inode) = &timed {
            // Times in a file only increase: all of its times are compared.
            check!(self.check_times_here(id, inode));
        }
        let turns = self.planes.data.membership_count();
        // Asked before other writes have to wait for this one. Writes on other servers from now on are concurrent with
        // this one.
        let elsewhere = match (ask.append, at_end) {
            (true, Some(chain)) => match self.end_elsewhere(id, chain) {
                // A retry gets the stored result, wherever the file ends by now.
                Err(_) if self.planes.data.has_record(header.session, header.seq) => RemoteReach::default(),
                elsewhere => check!(elsewhere),
            },
            _ => RemoteReach::default(),
        };
        if ask.append {
            // A record needs the right to its own chunk; it may reach over the end of that chunk.
            let len = if at_end.is_some() { 0 } else { payload.len() as u64 };
            if let Err(fault) = self.grant_tail(principal, header.session, id, len, &elsewhere)
                && !(at_end.is_some() && self.planes.data.has_record(header.session, header.seq))
            {
                let request = (header.session, header.seq);
                let fault = match at_end {
                    Some(chain) => self.planes.data.refuse_append(chain, request, header.acked, fault),
                    None => fault,
                };
                return Err((reply, fault));
            }
        }
        let place = || {
            self.files.check_caught_up(&looked)?;
            let (offset, above, inode) = match (ask.append, at_end) {
                (true, Some(chain)) => {
                    let mut seen = FileVersion::at(id, self.planes.meta.writable_inode(id)?, None);
                    let (offset, above) = self.files.append_end(&mut seen, chain, &elsewhere)?;
                    // If this server left a chain since the remote ends were collected, no member of that chain was
                    // asked. Without a lease the chain may have another head, so the file may be longer.
                    self.planes.data.check_lease_and_membership(turns)?;
                    (offset, above, Some(seen.inode))
                }
                (true, None) => {
                    let seen = FileVersion::at(id, self.planes.meta.writable_inode(id)?, Some(Hlc::MAX));
                    let offset = self.files.look_with(&[&seen], &[], elsewhere.clone())?.extent(&seen).size;
                    (offset, Hlc::ZERO, Some(seen.inode))
                }
                (false, _) => (ask.offset, Hlc::ZERO, None),
            };
            let spread = match at_end {
                Some(_) => in_one_record(offset, payload.len(), layout),
                None => split(offset, payload.len(), layout),
            };
            let parts = spread.as_ref().map_or(&[][..], |spread| &spread.parts);
            let chunks = || parts.iter().map(|part| part.chunk);
            let right = match inode {
                // The end of the file was computed from this version, and so was the right to write there.
                Some(inode) => WriteRight {
                    missing: self.planes.meta.missing_grant(&inode, header.session, chunks()),
                    origin: inode.origin(),
                    times_after: inode.times_after(),
                    inode: Some(inode),
                },
                None => self.planes.meta.write_right(id, header.session, chunks(), rows.is_some())?,
            };
            let spread = spread?;
            check_granted(id, header.session, right.missing)?;
            if let (Some(chain_end), Some(inode)) = (spread.parts.first().filter(|_| at_end.is_some()), &right.inode)
                && offset + payload.len() as u64 > (u64::from(chain_end.chunk) + 1) * layout.chunk_bytes
                && !inode.reaches_over(chain_end.chunk)
            {
                return Err(no_grant(header.session, id, chain_end.chunk));
            }
            let WriteRight { origin, times_after, inode, .. } = right;
            let inherited = self.read.inherited_user_time(id, times_after, origin)?;
            let user_time = match rows.zip(inode) {
                Some((plugin, inode)) => self.read.newest_row(plugin, id, inode, offset, &payload, inherited)?,
                None => record_time,
            };
            Ok(WritePlace { spread, user_time, inherited, times_after, above })
        };
        self.planes.data.write(
            WriteAsk {
                session: header.session,
                seq: header.seq,
                acked: header.acked,
                epoch: header.epoch,
                seen: header.hlc,
                inode: id,
                layout,
                known_offset: (!ask.append).then_some(ask.offset),
                at_end,
                place: &place,
                content: Content::Bytes(payload, payload.expected(header.payload_crc)),
                uid: capability.opener.unwrap_or(principal.caller.uid),
                durability: when_of(ask),
            },
            reply,
        );
        Ok(())
    }

    /// The end of a file according to other servers, before an append to a chunk of `chain`. Writes in flight through
    /// other chains of this server are looked at here.
    fn end_elsewhere(&self, id: InodeId, chain: ChainId) -> Result<RemoteReach, Fault> {
        let inode = self.planes.current(id)?;
        let elsewhere = self.files.written_remotely(id, &inode)?;
        let mut others = granted_chains(id, &inode);
        others.retain(|other| *other != chain && self.planes.data.is_member(*other));
        if self.planes.data.has_to_query_tail(others.iter().copied())
            && self.files.append_end(&mut FileVersion::at(id, inode.clone(), None), chain, &elsewhere).is_err()
        {
            self.planes.data.await_tails(others.into_iter())?;
        }
        let tail_of = |elsewhere: &RemoteReach, upto| {
            elsewhere.of(&FileVersion::at(id, inode.clone(), upto)).and_then(|(_, tail)| tail.highest)
        };
        if let Some(last) = tail_of(&elsewhere, Some(Hlc::MAX))
            && u64::from(last.0) * inode.chunk_bytes() + u64::from(last.1)
                >= self.files.current_extent_with(id, &inode, elsewhere.clone())?.0
            && tail_of(&self.files.remote_reach(&[&FileVersion::at(id, inode.clone(), None)])?, None) < Some(last)
        {
            let words = "what the file ends with is not committed yet where it is: try again";
            return Err(Fault::new(Reason::Unavailable, words));
        }
        Ok(elsewhere)
    }

    /// Checks that this server has all user times of a file: its own and those of its clone origin.
    fn check_times_here(&self, id: InodeId, inode: &Inode) -> Result<(), Fault> {
        self.files.check_whole_here(&FileVersion::at(id, inode.clone(), None))?;
        let Some((from, then)) = inode.origin() else { return Ok(()) };
        // The origin's times count even if the origin may no longer be read.
        let origin = self.planes.meta.inode(from, Some(then))?;
        self.files.check_whole_here(&FileVersion::at(from, origin, None))
    }

    /// Ensures that this server, one of several, knows the file and the session's right to write there, if the leader
    /// granted it: both may be only moments old. An append needs the right to the chunk in which the file is believed
    /// to end, and the record may reach over the end of that chunk. This server must also know what was decided while
    /// another server was head: a right that it knows may have been revoked, and the length may have been settled
    /// without the bytes of this write.
    ///
    /// Returns the chains of the range, for [`Files::check_caught_up`].
    pub(crate) fn catch_up(
        &self,
        id: InodeId,
        session: SessionId,
        (offset, len): (u64, u64),
        appends: bool,
    ) -> Result<BTreeSet<ChainId>, Fault> {
        let layout = match self.planes.meta.current_layout(id) {
            Some(layout) => layout,
            None => {
                self.planes.meta.linearizable()?;
                self.planes.meta.write_target(id)?.layout
            }
        };
        let layout = spread_of(id, layout);
        let chains = chains_of_extent(layout, offset, len);
        self.files.catch_up_once(&chains)?;
        // The leader granted every right itself, unless another server leads by now.
        if self.planes.meta.leads() {
            return Ok(chains);
        }
        if !self.planes.meta.may_write_range(id, session, (offset, len), appends) {
            self.planes.meta.linearizable()?;
        }
        Ok(chains)
    }

    /// Ensures that the session may write the chunks that an append of `len` bytes touches.
    fn grant_tail(
        &self,
        principal: &Principal,
        session: SessionId,
        id: InodeId,
        len: u64,
        elsewhere: &RemoteReach,
    ) -> Result<(), Fault> {
        let inode = self.planes.current(id)?;
        let (size, _, _) = self.files.current_extent_with(id, &inode, elsewhere.clone())?;
        let chunk_bytes = inode.chunk_bytes();
        let first = (size / chunk_bytes) as u32;
        // One chunk more than needed: another append may move the end over a boundary meanwhile.
        let last = (size.saturating_add(len) / chunk_bytes + 1).min(u32::MAX.into()) as u32;
        let appends = self.planes.data.is_shared();
        if (first..last).all(|chunk| inode.may_write_chunk(session, chunk)) && (!appends || inode.reaches_over(first)) {
            return Ok(());
        }
        if !self.planes.meta.leads() {
            // Only the leader grants: the client asks it.
            return check_granted(id, session, self.planes.meta.missing_grant(&inode, session, first..last));
        }
        check_one_writer(id, OtherWriter::of(&inode, session))?;
        for first in (first..=last).step_by(GRANT_CHUNKS_MAX as usize) {
            let grant = Grant { inode: id.0, first, count: (last - first + 1).min(GRANT_CHUNKS_MAX) };
            self.grant(principal, session, if appends { Op::GrantAppend(grant) } else { Op::Grant(grant) })?;
        }
        Ok(())
    }

    /// Lets the session write chunks. Only the server knows which ones are needed; the right was proven at open.
    pub(crate) fn grant(&self, principal: &Principal, session: SessionId, grant: Op) -> Result<(), Fault> {
        let transaction = Transaction {
            session: session.0,
            // Not one of the client's numbers: a second request gets the same grant.
            seq: 0,
            acked: 0,
            caller: principal.caller.clone(),
            must_see: 0,
            op: Some(grant),
        };
        self.planes.meta.execute(transaction, None)?.into_result().map(drop)
    }

    /// Executes a transaction; `None` if the answer follows when it is durable.
    pub(crate) fn transact(
        &self,
        conn: &Conn,
        principal: &Principal,
        header: &FrameHeader,
        ask: Txn,
        responder: &Arc<dyn Responder>,
        asking: &mut CacheLeaseRequest,
    ) -> Option<Result<TxnReply, Fault>> {
        let when = When::try_from(ask.durability).unwrap_or(When::Async);
        if when == When::Sync {
            // A `sync` change grants no cache lease, so no other request waits for this session while the change is
            // being flushed.
            asking.session = None;
        }
        let result = self.try_transact(conn, principal, header, ask, asking);
        if when == When::Async {
            return Some(result);
        }
        match result {
            Err(fault) => Some(Err(fault)),
            Ok(reply) => {
                let (request, reply_to) = (*header, responder.clone());
                let durable = Box::new(move |result: Result<(), Fault>| {
                    reply_to.respond(&request, result.map(|()| Reply::Txn(reply)), &[], 0);
                });
                self.planes.durability.when_durable(self.planes.ticket(), durable);
                None
            }
        }
    }

    fn try_transact(
        &self,
        conn: &Conn,
        principal: &Principal,
        header: &FrameHeader,
        ask: Txn,
        asking: &mut CacheLeaseRequest,
    ) -> Result<TxnReply, Fault> {
        self.planes.check_changeable()?;
        let Some(mut op) = ask.op else {
            return Err(Fault::new(Reason::Unsupported, "the transaction is of a kind that this server does not know"));
        };
        check_new_names(&op)?;
        match &mut op {
            Op::Format(_) => {
                return Err(Fault::new(Reason::NotPermitted, "a file system is made by the server itself, once"));
            }
            Op::Edit(_) => {
                return Err(Fault::new(
                    Reason::NotPermitted,
                    "an edit is planned by the server: ask for what it is to do",
                ));
            }
            Op::Forget(_) => {
                return Err(Fault::new(
                    Reason::NotPermitted,
                    "what a forgetting is about is worked out by the server: ask for a path and an instant",
                ));
            }
            Op::EraseSessions(_) => {
                let words = "sessions that changed nothing are erased by the server, a while after they end";
                return Err(Fault::new(Reason::NotPermitted, words));
            }
            Op::StopWriting(_) => {
                return Err(Fault::new(
                    Reason::NotPermitted,
                    "a session is stopped from writing by the server: close it",
                ));
            }
            Op::OpenSession(open) => open.uid = principal.uid,
            Op::MakeSnapshot(make) => {
                make.count_max =
                    if principal.caller.uid == 0 { 0 } else { self.planes.settings.snapshots_per_user_max };
            }
            Op::CloseSession(_) => {
                check_numbered(header)?;
                let outcome = self.close_session(header.session, header.seq, header.acked, &principal.caller)?;
                return Ok(TxnReply { stamp: outcome.0, id: header.session.0, ..TxnReply::default() });
            }
            Op::SetXattr(SetXattr { name, .. }) | Op::RemoveXattr(RemoveXattr { name, .. }) if name == PATH_XATTR => {
                let words = "where something lies is told, not set: rename it instead";
                return Err(Fault::new(Reason::NotPermitted, words));
            }
            Op::SetXattr(SetXattr { name, .. }) | Op::RemoveXattr(RemoveXattr { name, .. })
                if name == WRITERS_XATTR =>
            {
                return Err(Fault::new(Reason::NotPermitted, "who writes a file is told, not set"));
            }
            Op::SetXattr(set) if set.name == BINDING_XATTR => check_binding(&set.value)?,
            Op::SetXattr(set) if set.value.len() > XATTR_BYTES_MAX => {
                return Err(Fault::new(
                    Reason::TooLarge,
                    format!("an attribute of {} bytes; at most {XATTR_BYTES_MAX} are allowed", set.value.len()),
                ));
            }
            Op::Grant(grant) | Op::GrantAppend(grant) => {
                let id = InodeId(grant.inode);
                check_one_writer(id, self.planes.meta.other_writer(id, header.session))?;
            }
            _ => {}
        }
        if !matches!(op, Op::OpenSession(_)) {
            check_numbered(header)?;
        }
        if !principal.privileged {
            self.doubt(principal, header.session, &mut op, asking)?;
        }
        let settles =
            matches!(&op, Op::Settle(_) | Op::SettleAll(_)) || matches!(&op, Op::SetAttr(set) if set.size.is_some());
        // Granted before the transaction runs: later changes recall the lease.
        if let Some(directory) = new_name_in(&op) {
            self.sessions.caching.give_names(asking, directory);
        }
        let makes_directory = matches!(&op, Op::Make(make) if matches!(make.kind, Some(MakeKind::Directory(_))));
        let makes_file = match &op {
            Op::Make(make) => matches!(make.kind, Some(MakeKind::File(_))),
            op => matches!(op, Op::MakeNameless(_)),
        };
        let parents = asking.session.map_or(Vec::new(), |_| names_changed_in(&op));
        let renames = matches!(&op, Op::Rename(_));
        let transaction = Transaction {
            session: header.session.0,
            seq: header.seq.0,
            acked: header.acked.0,
            caller: principal.caller.clone(),
            must_see: header.hlc.0,
            op: Some(op),
        };
        let opens = matches!(&transaction.op, Some(Op::OpenSession(_)));
        let lets_go = matches!(&transaction.op, Some(Op::DeleteSnapshot(_)));
        let outcome = match settles {
            true => self.execute_settling(principal, transaction, asking)?,
            false => self.planes.meta.execute(transaction, asking.shared_reads())?.into_result()?,
        };
        if lets_go && self.planes.meta.has_horizons() {
            self.planes.gc.want();
        }
        if opens {
            self.sessions.table.attach(conn, SessionId(outcome.id), self.planes.clock.reading().mono);
            return Ok(TxnReply { stamp: outcome.stamp, id: outcome.id, ..TxnReply::default() });
        }
        let id = InodeId(outcome.id);
        let mut reply = TxnReply {
            stamp: outcome.stamp,
            id: outcome.id,
            existed: outcome.existed,
            replaced: outcome.replaced,
            ..TxnReply::default()
        };
        if id != InodeId(0) {
            self.read.give_inode(asking, id);
        }
        // A separate step, so that the namespace is not locked while its attributes are looked up.
        let now = self.planes.meta.current(id);
        let moves_directory = renames && now.as_ref().is_none_or(Inode::is_directory);
        if !moves_directory {
            self.tell_parents(asking, &parents, &mut reply)?;
        }
        if let Some(inode) = now {
            reply.attr = Some(self.read.attr(id, &inode, View::NOW)?.0);
        }
        if let Some(session) = asking.session.filter(|_| makes_directory && !outcome.existed) {
            // Granted first: later names in the directory recall the lease.
            let names_ms = self.sessions.caching.give(session, CacheKey::names(id));
            let names = self.planes.meta.list(id, None, b"", 1)?;
            reply.empty_ms = if names.is_empty() { names_ms.into() } else { 0 };
        }
        if makes_file && !outcome.existed {
            self.sessions.opened.add(header.session, id);
            let bearer = Bearer::Session(header.session);
            let capability = Capability {
                bearer,
                inode: id,
                read: true,
                write: true,
                view: View::NOW,
                opener: Some(principal.caller.uid),
            };
            reply.capability = self.sessions.mint.seal(&capability);
        }
        Ok(reply)
    }

    /// Lets the session of `asking` cache the attributes of directories that it has just changed.
    fn tell_parents(&self, asking: &CacheLeaseRequest, parents: &[InodeId], reply: &mut TxnReply) -> Result<(), Fault> {
        let Some(session) = asking.session else { return Ok(()) };
        // Granted first: changes after the look-up recall the lease.
        let granted = parents.iter().map(|id| self.sessions.caching.give(session, CacheKey::inode(*id))).min();
        let Some(ms) = granted.filter(|ms| *ms > 0) else { return Ok(()) };
        for id in parents {
            let now = self.planes.meta.current(*id);
            if let Some(inode) = now {
                reply.parents.push(self.read.attr(*id, &inode, View::NOW)?.0);
            }
        }
        reply.parents_ms = ms.into();
        Ok(())
    }

    /// Checks a request that claims its file was opened for writing: a forged frame can claim that. The proof is a
    /// grant that the session holds; the first grant needs a session that makes the file, or that may write it at that
    /// time.
    ///
    /// # Errors
    /// `AccessDenied` for a grant on a file that the caller may not write, and for a nameless file beside such a file:
    /// its bytes would stay in history, even those of a caller without the right to write.
    fn doubt(
        &self,
        principal: &Principal,
        session: SessionId,
        op: &mut Op,
        asking: &CacheLeaseRequest,
    ) -> Result<(), Fault> {
        match op {
            Op::Grant(Grant { inode, .. })
            | Op::GrantAppend(Grant { inode, .. })
            | Op::MakeNameless(MakeNameless { beside: inode }) => {
                let id = InodeId(*inode);
                asking.reads().add(Cached::Inode(id));
                self.planes.meta.check_grantable(id, session, &principal.caller)
            }
            Op::SetAttr(set) if set.by_handle => {
                // A target that is not found may belong to a retry of an executed request: the transaction decides.
                let found = self.planes.resolve(principal, &set.target, None, asking.reads());
                set.by_handle = found.is_ok_and(|found| holds_grant(&found.inode, session));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Answers when everything acknowledged so far is on stable storage at all members of this node's chains, and of
    /// the remote chains of the file. A barrier on one file is a barrier on all files of this node: one flush answers
    /// all waiting requests.
    pub(crate) fn sync(&self, header: &FrameHeader, id: InodeId, responder: &Arc<dyn Responder>) {
        let (request, reply_to) = (*header, responder.clone());
        let away = self.files.remote_chains(None);
        // Both sets come from one look: each chain is either asked about or one of this node's.
        let (asked, here) = match away.is_empty() {
            true => (BTreeSet::new(), None),
            false => {
                let all = (0..self.planes.data.chain_count()).map(ChainId);
                let here: BTreeSet<ChainId> = all.filter(|chain| !away.contains(chain)).collect();
                (self.files.chains_of_file(id).intersection(&away).copied().collect(), Some(here))
            }
        };
        if let Err(fault) = self.files.persist_remote(asked) {
            return reply_to.respond(&request, Err(fault), &[], 0);
        }
        let reply = move |result: Result<(), Fault>| reply_to.respond(&request, result.map(|()| done()), &[], 0);
        let all = Gather::new(2, Box::new(reply));
        let flushed = all.clone();
        self.planes.durability.when_durable(self.planes.ticket(), Box::new(move |result| flushed.add(result)));
        self.planes.data.barrier(here.as_ref(), Box::new(move |result| all.add(result)));
    }
}

/// The directories in which an operation changes nothing but names; empty if that is unknown.
fn names_changed_in(op: &Op) -> Vec<InodeId> {
    let (one, other) = match op {
        Op::Make(op) => (&op.target, None),
        Op::Link(op) => (&op.name, None),
        Op::Remove(op) => (&op.target, None),
        Op::Rename(op) if op.flags != RENAME_EXCHANGE => (&op.from, Some(&op.to).filter(|to| to.base != op.from.base)),
        _ => return Vec::new(),
    };
    let targets = [Some(one), other].into_iter().flatten();
    if targets.clone().any(|target| target.path.contains(&b'/')) {
        return Vec::new();
    }
    targets.map(|target| InodeId(target.base)).collect()
}

/// The directory in which an operation makes a name that its answer contains.
fn new_name_in(op: &Op) -> Option<InodeId> {
    let target = match op {
        Op::Make(op) => &op.target,
        Op::Link(op) => &op.name,
        _ => return None,
    };
    (!target.path.contains(&b'/')).then_some(InodeId(target.base))
}

/// Refuses an operation that assigns the reserved name. The check is here and not in the execution of transactions:
/// older servers accepted the name, and their logged transactions must replay unchanged.
fn check_new_names(op: &Op) -> Result<(), Fault> {
    match op {
        Op::Make(op) => check_new_name(&op.target.path),
        Op::Link(op) => check_new_name(&op.name.path),
        Op::Rename(op) => {
            check_new_name(&op.to.path)?;
            if op.flags == RENAME_EXCHANGE { check_new_name(&op.from.path) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

/// Refuses a path that ends in the reserved name.
pub(crate) fn check_new_name(path: &[u8]) -> Result<(), Fault> {
    let name = path.rsplit(|&byte| byte == b'/').find(|name| !name.is_empty()).unwrap_or_default();
    if name == AT_NAME.as_bytes() {
        let words = "the name .at is reserved for the past of a directory: choose another name";
        return Err(Fault::new(Reason::InvalidArgument, words));
    }
    Ok(())
}

/// When a write is to be answered.
fn when_of(ask: &Write) -> When {
    When::try_from(ask.durability).unwrap_or(When::Async)
}

pub(crate) fn check_numbered(header: &FrameHeader) -> Result<(), Fault> {
    if header.session == SessionId(0) {
        return Err(unknown_session(header.session));
    }
    if header.seq == Seq(0) {
        return Err(Fault::new(
            Reason::BadFrame,
            "malformed frame: a request that changes something needs a number (seq)",
        ));
    }
    Ok(())
}

pub(crate) fn check_writable(capability: &Capability) -> Result<(), Fault> {
    if capability.view.is_past() {
        return Err(Reason::ReadOnly.into());
    }
    if !capability.write {
        return Err(Fault::new(Reason::AccessDenied, "the file was not opened for writing"));
    }
    Ok(())
}

/// Refuses a session that may not write a chunk.
pub(crate) fn check_granted(id: InodeId, session: SessionId, missing: Option<MissingGrant>) -> Result<(), Fault> {
    match missing {
        None => Ok(()),
        // A session's grants end with the session.
        Some(MissingGrant { is_open: false, .. }) => Err(unknown_session(session)),
        Some(MissingGrant { chunk, .. }) => Err(no_grant(session, id, chunk)),
    }
}

fn no_grant(session: SessionId, id: InodeId, chunk: u32) -> Fault {
    let words = format!("session {session} holds no write grant on chunk {id}.{chunk}: ask for one, then write");
    Fault::new(Reason::Busy, words)
}

fn check_binding(text: &[u8]) -> Result<(), Fault> {
    let text = std::str::from_utf8(text)
        .map_err(|_| Fault::new(Reason::InvalidArgument, "a time plug-in is written in UTF-8"))?;
    text.parse::<TimePlugin>().map(|_| ())
}

fn at_offset(fault: Fault, ask: &Write, id: InodeId) -> Fault {
    let place = if ask.append { "appended".to_owned() } else { format!("at offset {}", ask.offset) };
    Fault::new(fault.reason, format!("write {place} to inode {id} refused: {}", fault.message))
}

/// A file of lines has one writing session at a time: a half row of one writer would be ended by another (protocols
/// §8).
fn check_one_writer(id: InodeId, other: Option<OtherWriter>) -> Result<(), Fault> {
    match other {
        Some(OtherWriter { session: writer, plugin }) if plugin.parse::<TimePlugin>()?.has_lines() => {
            let words = format!(
                "{id} has rows of user time and so one writing session at a time, now {writer}: wait until it closes \
                 the file, or write into a file of your own"
            );
            Err(Fault::new(Reason::Busy, words))
        }
        _ => Ok(()),
    }
}
