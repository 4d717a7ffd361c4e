//! The write path: bytes, transactions, barriers.
//!
//! Guarantees: the right to write was proven at open and is in the capability; a write without a grant is refused; a
//! change that decides the contents of present bytes is ordered among the writes (`size_commit`).

mod append;
mod bytes;
pub mod ending;
mod punch_hole;
mod size_commit;
mod transact;

use std::collections::BTreeSet;
use std::sync::Arc;

use frieze_base::{ChainId, Fault, InodeId, NodeId, Reason, Seq, SessionId};
use frieze_metadata::{MissingGrant, OtherWriter};
use frieze_planes::{Files, Planes, Principal, layout_of};
use frieze_replication::Gather;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::Request;
use frieze_wire::txn::{Op, Transaction};

use crate::read::Reader;
use crate::session::capability::{Capability, Presenter};
use crate::session::responder::{Responder, done};
use crate::session::{Sessions, unknown_session};
use crate::write::ending::Ending;
pub(crate) use crate::write::transact::check_new_name;
use frieze_usertime::TimePlugin;

/// Chunks that one grant covers at most (protocols §4).
pub(crate) const GRANT_CHUNKS_MAX: u32 = 16;

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
        let all = Gather::new(2, self.planes.keep_frontier_after(id, Box::new(reply)));
        let flushed = all.clone();
        self.planes.durability.when_durable(self.planes.ticket(), Box::new(move |result| flushed.add(result)));
        self.planes.data.barrier(here.as_ref(), Box::new(move |result| all.add(result)));
    }
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

pub(crate) fn no_grant(session: SessionId, id: InodeId, chunk: u32) -> Fault {
    let words = format!("session {session} holds no write grant on chunk {id}.{chunk}: ask for one, then write");
    Fault::new(Reason::Busy, words)
}

/// A file of lines has one writing session at a time: a half row of one writer would be ended by another (protocols
/// §8).
pub(crate) fn check_one_writer(id: InodeId, other: Option<OtherWriter>) -> Result<(), Fault> {
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
