//! Transactions: changes of names, attributes, grants and sessions.
//!
//! Guarantees: a client makes only changes that are its to make; the answer carries what the client may cache.

use std::sync::Arc;

use frieze_base::{AT_NAME, Fault, InodeId, Reason, SessionId};
use frieze_coherence::CacheKey;
use frieze_metadata::holds_grant;
use frieze_namespace::{Cached, Inode};
use frieze_planes::Principal;

use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{Durability as When, PATH_XATTR, Reply, Txn, TxnReply, View};
use frieze_wire::txn::{Grant, MakeKind, MakeNameless, Op, RENAME_EXCHANGE, RemoveXattr, SetXattr, Transaction};
use frieze_wire::writers::WRITERS_XATTR;

use crate::session::cache_leases::CacheLeaseRequest;
use crate::session::capability::{Bearer, Capability};
use crate::session::connection::Conn;
use crate::session::responder::Responder;
use crate::write::{Writers, check_numbered, check_one_writer};
use frieze_usertime::{BINDING_XATTR, TimePlugin};

/// Largest value of an extended attribute (Linux).
const XATTR_BYTES_MAX: usize = 64 << 10;

impl Writers {
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
        let refused = |words: &str| Err(Fault::new(Reason::NotPermitted, words));
        match &mut op {
            Op::Format(_) => return refused("a file system is made by the server itself, once"),
            Op::Edit(_) | Op::StageEdit(_) => {
                return refused("an edit is planned by the server: ask for what it is to do");
            }
            Op::Forget(_) => {
                return refused("the server finds what a forgetting is about: ask for a path and an instant");
            }
            Op::EraseSessions(_) => {
                return refused("sessions that changed nothing are erased by the server, a while after they end");
            }
            Op::RaiseMarks(_) | Op::ExpireRemoved(_) => return refused("the server thins history, as policies say"),
            Op::StopWriting(_) => return refused("a session is stopped from writing by the server: close it"),
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
                return refused("the path of a file is read, not set: rename the file instead");
            }
            Op::SetXattr(SetXattr { name, .. }) | Op::RemoveXattr(RemoveXattr { name, .. })
                if name == WRITERS_XATTR =>
            {
                return refused("the writers of a file are read, not set");
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
            // Each by name: whether a client may ask for an operation is decided before a server knows it.
            Op::Make(_)
            | Op::MakeNameless(_)
            | Op::Link(_)
            | Op::Remove(_)
            | Op::Rename(_)
            | Op::SetAttr(_)
            | Op::SetAcl(_)
            | Op::SetXattr(_)
            | Op::RemoveXattr(_)
            | Op::Settle(_)
            | Op::SettleAll(_)
            | Op::DeleteSnapshot(_) => {}
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
            self.give_parents(asking, &parents, &mut reply)?;
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
    fn give_parents(&self, asking: &CacheLeaseRequest, parents: &[InodeId], reply: &mut TxnReply) -> Result<(), Fault> {
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

fn check_binding(text: &[u8]) -> Result<(), Fault> {
    let text = std::str::from_utf8(text)
        .map_err(|_| Fault::new(Reason::InvalidArgument, "a time plug-in is written in UTF-8"))?;
    text.parse::<TimePlugin>().map(|_| ())
}
