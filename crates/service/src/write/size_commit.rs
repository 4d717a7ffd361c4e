//! File sizes on their way from the data plane into the namespace, and the changes of metadata that decide what the
//! bytes of a file are.
//!
//! Guarantees: a settled size omits no acknowledged write. A truncate, once it is answered, hides every write
//! acknowledged before it and none begun after it, whatever the clocks. A session ends only when none of its writes can
//! be acknowledged any more.
//! Leaves to others: the effect of a transaction (`namespace`), closing an instant on a chain (`data::ordered`).
//!
//! A single server keeps writers out while it measures a file and runs the transaction. A member of a cluster cannot:
//! clients write at other heads. It measures the committed records, and states up to which instant it has counted all
//! of them; newer records count beside the settled size as long as their writer holds a grant. If another transaction
//! settled the size meanwhile, this one changes nothing, and the file is measured again.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use frieze_base::{ChainId, Fault, InodeId, Reason, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_locks::MutexGuard;
use frieze_metadata::FileChunks;
use frieze_planes::{FileVersion, Principal, chains_of_grants, granted_chains};
use frieze_replication::file_bytes_max;
use frieze_wire::message::FileKind;
use frieze_wire::txn::{Caller, CloseSession, Op, Outcome, Settle, StopWriting, Transaction};
use tracing::debug;

use crate::session::cache_leases::CacheLeaseRequest;
use crate::session::unknown_session;
use crate::write::Writers;
use crate::write::ending::Stopped;

/// Most files settled in one transaction.
const SETTLED_MAX: usize = 256;
/// Most measurements of a file whose size other transactions settle meanwhile.
const MEASURED_MAX: u32 = 16;

/// Whether clients write while a file is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Concurrency {
    /// Writers are kept out until the transaction has run.
    Out,
    /// Clients write, here and at other heads.
    Racing,
}

impl Writers {
    /// Runs a transaction that settles sizes, or sets one.
    ///
    /// # Errors
    /// Those of the transaction; `Busy` if other transactions settle the file again and again; `Unavailable` if the
    /// heads of its chains do not answer: the transaction has run, and a retry under the same number does not run it
    /// again.
    pub(crate) fn execute_settling(
        &self,
        principal: &Principal,
        transaction: Transaction,
        asking: &CacheLeaseRequest,
    ) -> Result<Outcome, Fault> {
        for _ in 0..MEASURED_MAX {
            let mut transaction = transaction.clone();
            let held = self.files.hold_for_change()?;
            let writers = if held.is_some() { Concurrency::Out } else { Concurrency::Racing };
            self.fill_in(principal, transaction.op.as_mut(), writers, asking)?;
            let truncates = matches!(&transaction.op, Some(Op::SetAttr(_)));
            let outcome = self.planes.meta.execute_with_room(transaction, asking.shared_reads())?;
            drop(held);
            if outcome.reason == Reason::Superseded as u32 {
                continue;
            }
            let outcome = outcome.into_result()?;
            if truncates {
                self.files.order_writers(Hlc(outcome.stamp), &[InodeId(outcome.id)])?;
            }
            return Ok(outcome);
        }
        Err(Fault::new(
            Reason::Busy,
            format!("others have changed the file's length {MEASURED_MAX} times while it was settled: try again"),
        ))
    }

    /// Fills the operation with the sizes that the data plane measures.
    fn fill_in(
        &self,
        principal: &Principal,
        op: Option<&mut Op>,
        writers: Concurrency,
        asking: &CacheLeaseRequest,
    ) -> Result<(), Fault> {
        match op {
            Some(Op::Settle(settle)) => *settle = self.measure(InodeId(settle.inode), settle.keep_grant, writers)?,
            Some(Op::SettleAll(all)) => {
                if all.files.len() > SETTLED_MAX {
                    return Err(Fault::new(
                        Reason::TooLarge,
                        format!("at most {SETTLED_MAX} files are settled at once"),
                    ));
                }
                let mut files = Vec::with_capacity(all.files.len());
                for settle in &all.files {
                    match self.measure(InodeId(settle.inode), settle.keep_grant, writers) {
                        Ok(settle) => files.push(settle),
                        // Other servers have to be asked again: a file left out here would lose its size.
                        Err(fault) if fault.kind() == frieze_base::ErrorKind::Unavailable => return Err(fault),
                        // A deleted file needs no size.
                        Err(_) => {}
                    }
                }
                all.files = files;
            }
            Some(Op::SetAttr(set)) if set.size.is_some() => {
                set.times_anew = set.size == Some(0);
                // A file that is not found may have been renamed since, and this may be a retry: the transaction
                // decides.
                if let Ok(at) = self.planes.resolve(principal, &set.target, None, asking.reads()) {
                    let limit = file_bytes_max(at.inode.chunk_bytes());
                    if set.size.is_some_and(|size| size > limit) {
                        return Err(Fault::new(Reason::TooLarge, format!("a file holds at most {limit} bytes")));
                    }
                    if at.inode.kind() == FileKind::File {
                        set.settled = Some(self.measure(at.id, true, writers)?);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The current size and modification time of a file in the data plane.
    fn measure(&self, id: InodeId, keep_grant: bool, writers: Concurrency) -> Result<Settle, Fault> {
        // A client whose grant is missing in this inode gets it, and writes, above this stamp.
        let executed = self.planes.meta.executed();
        let inode = self.planes.current(id)?;
        let (extent, complete) = match writers {
            Concurrency::Out => (self.files.current_extent(id, &inode)?, None),
            Concurrency::Racing => {
                let seen = FileVersion::at(id, inode.clone(), None);
                let turns = self.planes.data.membership_count();
                let elsewhere = self.files.remote_reach(&[&seen])?;
                let mut chains = granted_chains(id, &inode);
                chains.retain(|chain| !elsewhere.has(&seen, *chain));
                // Every acknowledged write counts, even if this member has not received its acknowledgement: this
                // transaction may end the grant by which the write would count later.
                self.planes.data.await_tails(chains.iter().copied())?;
                let complete = self.planes.data.complete_upto(&chains)?.min(executed);
                let complete = complete.min(elsewhere.complete.unwrap_or(complete));
                // Uncommitted records are not settled: they would be visible, and may be lost.
                let extent = self.files.look_with(&[&seen], &[], elsewhere)?.extent(&seen);
                // If this server left a chain meanwhile, that chain was not asked. A chain still here without a lease
                // may continue on other servers, with writes that this size would omit.
                match chains.is_empty() {
                    true => self.planes.data.check_membership(turns)?,
                    false => self.planes.data.check_lease_and_membership(turns)?,
                }
                ((extent.size, extent.mtime_ns, extent.data), Some(complete.0))
            }
        };
        let (size, mtime_ns, data) = extent;
        let newer = data.is_some_and(|data| data > inode.mtime_stamp);
        Ok(Settle {
            inode: id.0,
            keep_grant,
            stamp: data.unwrap_or(inode.size_as_of).0,
            size,
            mtime_ns: if newer { mtime_ns } else { 0 },
            complete,
            since: inode.size_as_of.0,
        })
    }

    /// Ends a session: settles the files it wrote, revokes its grants, removes its request numbers.
    pub(crate) fn close_session(
        &self,
        session: SessionId,
        seq: Seq,
        acked: Seq,
        caller: &Caller,
    ) -> Result<Hlc, Fault> {
        self.close_session_of((session, seq, acked), caller, false)
    }

    /// As `close_session`; `only_stopped`: unless the session may write again.
    fn close_session_of(
        &self,
        (session, seq, acked): (SessionId, Seq, Seq),
        caller: &Caller,
        only_stopped: bool,
    ) -> Result<Hlc, Fault> {
        for _ in 0..MEASURED_MAX {
            let held = self.files.hold_for_change()?;
            let writers = if held.is_some() { Concurrency::Out } else { Concurrency::Racing };
            let grants = self.planes.meta.session_grants(session);
            if !grants.is_open {
                return Err(unknown_session(session));
            }
            if only_stopped && grants.may_write {
                return Err(Fault::new(Reason::Busy, format!("session {session} writes again: it is not over")));
            }
            let settled =
                grants.files.iter().map(|id| self.measure(*id, false, writers)).collect::<Result<Vec<_>, _>>()?;
            let transaction = Transaction {
                session: session.0,
                seq: seq.0,
                acked: acked.0,
                caller: caller.clone(),
                must_see: 0,
                op: Some(Op::CloseSession(CloseSession { settled, only_stopped })),
            };
            let outcome = self.planes.meta.execute_with_room(transaction, None)?;
            drop(held);
            if writers == Concurrency::Racing
                && [Reason::Superseded as u32, Reason::Busy as u32].contains(&outcome.reason)
            {
                // A file was settled, or granted, since the measurement.
                continue;
            }
            let outcome = outcome.into_result()?;
            self.planes.data.end_session(session);
            self.ending().remove(&session);
            self.sessions.table.forget(session);
            self.sessions.drop_session(session);
            return Ok(Hlc(outcome.stamp));
        }
        Err(Fault::new(Reason::Busy, "the files of the session change all the time: close it again"))
    }

    /// Ends a session that has had no connection for too long. In a cluster its client may still reach heads and write
    /// there: first the session is stopped from writing, and it ends when all heads know of that. Call it again and
    /// again until then.
    ///
    /// A write that a head acknowledges before it knows of the stop counts all the same: the grants are settled only at
    /// the end. So the client may connect again meanwhile, and finds its writes; it asks for the right to write again,
    /// and the session continues.
    ///
    /// # Errors
    /// Those of the transactions.
    pub fn end_expired(&self, session: SessionId) -> Result<(), Fault> {
        let is_member = self.planes.meta.is_member();
        let close = || {
            // The server's own request number: above any that a client counted up to.
            self.close_session_of((session, Seq(u64::MAX), Seq(u64::MAX)), &Caller::root(), is_member).map(drop)
        };
        if !is_member {
            return close();
        }
        let known = self.ending().get(&session).map(|known| known.get().copied());
        let grants = self.planes.meta.session_grants(session);
        match known {
            Some(None) => Ok(()),
            Some(Some(true)) if !grants.may_write => close(),
            _ if grants.files.is_empty() => close(),
            // Not begun; or a head did not answer; or the client connected again and has asked for the right again.
            None | Some(Some(_)) => self.stop_writing(session),
        }
    }

    /// Removes the state of sessions that have ended, on whichever server. The namespace here knows that they have
    /// ended, and refuses later requests of their clients.
    pub fn sweep_sessions(&self) {
        // The id of a session is the stamp of its first transaction: a session unknown here may not be executed yet.
        let executed = self.planes.meta.executed();
        let mut known = self.planes.data.sessions();
        known.extend(self.sessions.table.known());
        known.retain(|session| session.0 <= executed.0);
        for session in self.planes.meta.closed_sessions(known.into_iter()) {
            self.planes.data.end_session(session);
            self.ending().remove(&session);
            self.sessions.table.forget(session);
            self.sessions.drop_session(session);
        }
    }

    #[track_caller]
    fn ending(&self) -> MutexGuard<'_, Stopped> {
        self.ending.0.lock()
    }

    /// Stops a session from writing, and informs all heads.
    fn stop_writing(&self, session: SessionId) -> Result<(), Fault> {
        let granted = self.planes.meta.session_grants(session).files;
        let mut at = Hlc::ZERO;
        for some in granted.chunks(SETTLED_MAX) {
            let stop = Op::StopWriting(StopWriting { inodes: some.iter().map(|id| id.0).collect() });
            at = Hlc(self.planes.meta.execute(self.own(session, stop), None)?.into_result()?.stamp);
        }
        let known = Arc::new(OnceLock::new());
        self.ending().insert(session, known.clone());
        // Including the chunks granted until the stop.
        let chains: BTreeSet<ChainId> = {
            let chains = |(id, chunks): &(InodeId, FileChunks)| chains_of_grants(*id, chunks);
            self.planes.meta.chunks_of_files(&granted).iter().flat_map(chains).collect()
        };
        let entry = self.planes.meta.appended();
        match self.files.order_remote(at, entry, &chains) {
            Ok(away) => {
                let here = chains.difference(&away).copied().collect();
                let done = move |result: Result<(), Fault>| {
                    // Set once.
                    let _ = known.set(result.is_ok());
                };
                self.planes.data.order_change_then(at, entry, &here, Box::new(done));
            }
            Err(fault) => {
                debug!("not every head knows that session {session} may write no more: {fault}");
                let _ = known.set(false);
            }
        }
        Ok(())
    }

    /// Other leaders may have acted since: sessions that were about to end begin to end anew.
    pub(crate) fn forget_ending(&self) {
        self.ending().clear();
    }

    /// A transaction of the server's own, about a session.
    pub(crate) fn own(&self, session: SessionId, op: Op) -> Transaction {
        let caller = Caller::root();
        Transaction { session: session.0, seq: 0, acked: 0, caller, must_see: 0, op: Some(op) }
    }
}
