//! Lengths of files as the data plane knows them, on their way into the namespace; and the changes of metadata that
//! decide what bytes are.
//!
//! Guarantees: a settled length forgets no write that was acknowledged; a truncate, once it is answered, hides every
//! write acknowledged before it and none begun after it, whatever the clocks; a session is over only when nothing of it
//! can be acknowledged any more. Leaves to others: what a transaction does (`namespace`), how a chain is made to close
//! an instant (`data::ordered`).
//!
//! A machine that is alone keeps writers out while it measures a file and runs the transaction. A member of a cluster
//! cannot: they write at other heads. It measures what is committed, and says up to which instant it has counted
//! everything; whatever is newer counts beside the settled length as long as its writer holds a grant. Was the length
//! settled by another transaction meanwhile, this one changes nothing and is measured again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use frieze_base::{ChainEpoch, ChainId, Fault, InodeId, Reason, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::Inode;
use frieze_wire::message::FileKind;
use frieze_wire::txn::{Caller, CloseSession, Op, Outcome, Settle, StopWriting, Transaction};
use tracing::debug;

use crate::caching::Asking;
use crate::engine::{Engine, unknown_session};
use crate::seen::{Seen, layout_of, spread_of};
use crate::session::Principal;
use frieze_metadata::FileChunks;
use frieze_replication::{Appender, Layout, file_bytes_max};

/// Files settled in one transaction.
const SETTLED_MAX: usize = 256;
/// Times a file is measured again because its length was settled meanwhile.
const MEASURED_MAX: u32 = 16;

/// Whether writers go on while a file is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writers {
    /// They are kept out until the transaction has run.
    Out,
    /// They write, here and at other heads.
    Racing,
}

/// Sessions that have had no connection for too long and were stopped from writing: whether all heads know that, then
/// nothing more of them is acknowledged. Nothing while they are being told.
#[derive(Default)]
pub(crate) struct Ending(Mutex<Stopped>);

type Stopped = BTreeMap<SessionId, Arc<OnceLock<bool>>>;

/// Of each chain the configuration under which this server has looked at everything that was decided before: a file may
/// have been cut while another was head.
#[derive(Default)]
pub(crate) struct CaughtUp(Mutex<BTreeMap<ChainId, ChainEpoch>>);

impl CaughtUp {
    fn held(&self) -> MutexGuard<'_, BTreeMap<ChainId, ChainEpoch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Keeps every write out, where this server decides alone what they and the namespace come to. One of several may
    /// not: what it orders has to be heard and flushed elsewhere and here first, and what writes do holds that up; and
    /// heads on other servers would go on all the same.
    pub(crate) fn hold_alone(&self) -> Option<MutexGuard<'_, Appender>> {
        let held = self.data.hold_writes();
        // Founding waits for whoever holds it.
        (!self.meta.is_member()).then_some(held)
    }

    /// Runs a transaction that settles lengths, or sets one.
    ///
    /// # Errors
    /// Those of the transaction; `Busy` if the file is settled by others again and again; `Unavailable` if the heads of
    /// its chains do not answer: it has run, and under the same number it is not run again.
    pub(crate) fn execute_settling(
        &self,
        principal: &Principal,
        transaction: Transaction,
        asking: &Asking,
    ) -> Result<Outcome, Fault> {
        for _ in 0..MEASURED_MAX {
            let mut transaction = transaction.clone();
            let held = self.hold_alone();
            let writers = if held.is_some() { Writers::Out } else { Writers::Racing };
            self.fill_in(principal, transaction.op.as_mut(), writers, asking)?;
            let truncates = matches!(&transaction.op, Some(Op::SetAttr(_)));
            let outcome = self.meta.execute(transaction, asking.shared_reads())?;
            drop(held);
            if outcome.reason == Reason::Superseded as u32 {
                continue;
            }
            let outcome = outcome.into_result()?;
            if truncates {
                self.order_writers(Hlc(outcome.stamp), &[InodeId(outcome.id)])?;
            }
            return Ok(outcome);
        }
        Err(Fault::new(
            Reason::Busy,
            format!("others have changed the file's length {MEASURED_MAX} times while it was settled: try again"),
        ))
    }

    /// What the data plane knows goes into the operation.
    fn fill_in(
        &self,
        principal: &Principal,
        op: Option<&mut Op>,
        writers: Writers,
        asking: &Asking,
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
                        // Others have to be asked: what is left out here would be forgotten.
                        Err(fault) if self.meta.is_member() && fault.kind() == frieze_base::ErrorKind::Unavailable => {
                            return Err(fault);
                        }
                        // What is gone needs no settling.
                        Err(_) => {}
                    }
                }
                all.files = files;
            }
            Some(Op::SetAttr(set)) if set.size.is_some() => {
                set.times_anew = set.size == Some(0);
                // What cannot be found may be a retry of what has run, and was renamed since: the transaction knows.
                if let Ok(at) = self.resolve(principal, &set.target, None, asking.reads()) {
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

    /// The length and modification time of a file as the data plane knows them now.
    fn measure(&self, id: InodeId, keep_grant: bool, writers: Writers) -> Result<Settle, Fault> {
        // Whoever gets a grant that is not looked at here gets it, and writes, above this.
        let executed = self.meta.executed();
        let inode = self.current(id)?;
        let (extent, complete) = match writers {
            Writers::Out => (self.current_extent(id, &inode)?, None),
            Writers::Racing => {
                let seen = Seen::at(id, inode.clone(), None);
                let turns = self.data.turns();
                let elsewhere = self.reach_elsewhere(&[&seen])?;
                let mut chains = granted_chains(id, &inode);
                chains.retain(|chain| !elsewhere.has(&seen, *chain));
                // What was acknowledged counts, whether this member has heard that it was or not: the grant by which it
                // would count later may go with this.
                self.data.look_and_wait(chains.iter().copied())?;
                let complete = self.data.complete_upto(&chains)?.min(executed);
                let complete = complete.min(elsewhere.complete.unwrap_or(complete));
                // What is not committed is not settled: it would be shown, and may be lost.
                let extent = self.look_with(&[&seen], &[], elsewhere)?.extent(&seen);
                // Of a chain that has gone meanwhile nobody was asked. One that is still here without a lease may go on
                // elsewhere, with writes that this would forget.
                match chains.is_empty() {
                    true => self.data.check_turns(turns)?,
                    false => self.data.check_still(turns)?,
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

    /// A change stamped `at` decides what bytes of these files are: orders it among the writes of their writers, at
    /// whatever heads they write. Where the server is alone it was so when the change had run.
    ///
    /// # Errors
    /// `Unavailable` if the head of one of their chains does not answer: the change has happened, and is to be ordered
    /// before anybody is told so.
    pub(crate) fn order_writers(&self, at: Hlc, files: &[InodeId]) -> Result<(), Fault> {
        if !self.meta.is_member() {
            return Ok(());
        }
        let chains: BTreeSet<ChainId> = {
            let granted = |(id, chunks): &(InodeId, FileChunks)| chains_of_grants(*id, chunks);
            self.meta.chunks_of_files(files).iter().flat_map(granted).collect()
        };
        self.order(at, self.meta.appended(), &chains)
    }

    /// The same of a change that has run before, of which nobody knows whether it was ordered, nor which files it was
    /// about.
    ///
    /// # Errors
    /// As [`Engine::order_writers`].
    pub(crate) fn order_again(&self, at: Hlc) -> Result<(), Fault> {
        if !self.meta.is_member() {
            return Ok(());
        }
        let chains: BTreeSet<ChainId> = (0..self.data.chain_count()).map(ChainId).collect();
        if self.data.has_closed(at, &chains) {
            return Ok(());
        }
        self.order(at, self.meta.appended(), &chains)
    }

    /// Sees to it, once under each configuration of a chain, that this server has executed all that anybody was told
    /// before: the head before it may have ordered a change that is not known here.
    ///
    /// # Errors
    /// `Elsewhere`, `Unavailable`: no majority answers.
    pub(crate) fn catch_up_once(&self, chains: &BTreeSet<ChainId>) -> Result<(), Fault> {
        let new = {
            let known = self.caught_up.held();
            let now = chains.iter().map(|chain| (*chain, self.data.epoch_of(*chain)));
            now.filter(|(chain, epoch)| known.get(chain) != Some(epoch)).collect::<Vec<_>>()
        };
        if new.is_empty() {
            return Ok(());
        }
        self.meta.linearizable()?;
        self.caught_up.held().extend(new);
        Ok(())
    }

    /// Whether the configurations in force are those that [`Engine::catch_up_once`] has looked under. While no other
    /// write can run, none comes: what is written now is written under them.
    ///
    /// # Errors
    /// `Unavailable` if there are others by now: look again.
    pub(crate) fn check_caught_up(&self, chains: &BTreeSet<ChainId>) -> Result<(), Fault> {
        let known = self.caught_up.held();
        match chains.iter().find(|chain| known.get(chain) != Some(&self.data.epoch_of(**chain))) {
            None => Ok(()),
            Some(chain) => {
                let words = format!("the members of chain {chain} have just changed: send it again");
                Err(Fault::new(Reason::Unavailable, words))
            }
        }
    }

    /// A file that was cut is about to be told of: the change may have had nobody who ordered it. A write that begins
    /// after this answer must not lie before it.
    ///
    /// # Errors
    /// As [`Engine::order_writers`].
    pub(crate) fn order_seen(&self, id: InodeId, inode: &Inode) -> Result<(), Fault> {
        if !self.meta.is_member() || inode.grants().is_empty() || inode.patches().is_empty() {
            return Ok(());
        }
        let at = inode.patches().iter().map(|patch| patch.at).max().unwrap_or(Hlc::ZERO);
        let chains = granted_chains(id, inode);
        if self.data.has_closed(at, &chains) {
            return Ok(());
        }
        self.order(at, self.meta.appended(), &chains)
    }

    /// Ends a session: settles what it wrote, takes its grants back, forgets its numbers.
    pub(crate) fn close_session(
        &self,
        session: SessionId,
        seq: Seq,
        acked: Seq,
        caller: &Caller,
    ) -> Result<Hlc, Fault> {
        self.close_session_of((session, seq, acked), caller, false)
    }

    /// The same; `only_stopped`: unless it writes again.
    fn close_session_of(
        &self,
        (session, seq, acked): (SessionId, Seq, Seq),
        caller: &Caller,
        only_stopped: bool,
    ) -> Result<Hlc, Fault> {
        for _ in 0..MEASURED_MAX {
            let held = self.hold_alone();
            let writers = if held.is_some() { Writers::Out } else { Writers::Racing };
            let grants = self.meta.session_grants(session);
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
            let outcome = self.meta.execute(transaction, None)?;
            drop(held);
            if writers == Writers::Racing && [Reason::Superseded as u32, Reason::Busy as u32].contains(&outcome.reason)
            {
                // A file was settled, or granted, since they were measured.
                continue;
            }
            let outcome = outcome.into_result()?;
            self.data.end_session(session);
            self.ending().remove(&session);
            self.sessions.forget(session);
            self.let_go(session);
            return Ok(Hlc(outcome.stamp));
        }
        Err(Fault::new(Reason::Busy, "the files of the session change all the time: close it again"))
    }

    /// Ends a session that has had no connection for too long. In a cluster its client may still reach heads and write
    /// there: first it is stopped from writing, and its session ends when all heads know of that. Until then it is
    /// called again and again.
    ///
    /// What a head that does not know yet acknowledges counts all the same: the grants are settled only at the end. So
    /// the client may be back meanwhile, and finds what it has written; it asks for the right to write again, and the
    /// session goes on.
    ///
    /// # Errors
    /// Those of the transactions.
    pub(crate) fn end_expired(&self, session: SessionId) -> Result<(), Fault> {
        let is_member = self.meta.is_member();
        let close = || {
            // Its own number of the request: above any that a client counted up to.
            self.close_session_of((session, Seq(u64::MAX), Seq(u64::MAX)), &Caller::root(), is_member).map(drop)
        };
        if !is_member {
            return close();
        }
        let known = self.ending().get(&session).map(|known| known.get().copied());
        let grants = self.meta.session_grants(session);
        match known {
            Some(None) => Ok(()),
            Some(Some(true)) if !grants.may_write => close(),
            _ if grants.files.is_empty() => close(),
            // Not begun, or a head did not answer, or the client was back and has asked for the right again.
            None | Some(Some(_)) => self.stop_writing(session),
        }
    }

    /// Forgets what is kept of sessions that have ended, whichever server ended them. What their client sends from now
    /// on is refused by the namespace here, which knows that they have.
    pub(crate) fn sweep_sessions(&self) {
        if !self.meta.is_member() {
            return;
        }
        // A session is named after the stamp of its first transaction: one that is not known here may still come.
        let executed = self.meta.executed();
        let mut known = self.data.sessions();
        known.extend(self.sessions.known());
        known.retain(|session| session.0 <= executed.0);
        for session in self.meta.closed_sessions(known.into_iter()) {
            self.data.end_session(session);
            self.ending().remove(&session);
            self.sessions.forget(session);
            self.let_go(session);
        }
    }

    fn ending(&self) -> MutexGuard<'_, Stopped> {
        self.ending.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops a session from writing, and has all heads told.
    fn stop_writing(&self, session: SessionId) -> Result<(), Fault> {
        let granted = self.meta.session_grants(session).files;
        let mut at = Hlc::ZERO;
        for some in granted.chunks(SETTLED_MAX) {
            let stop = Op::StopWriting(StopWriting { inodes: some.iter().map(|id| id.0).collect() });
            at = Hlc(self.meta.execute(self.own(session, stop), None)?.into_result()?.stamp);
        }
        let known = Arc::new(OnceLock::new());
        self.ending().insert(session, known.clone());
        // With what was granted until they were stopped.
        let chains: BTreeSet<ChainId> = {
            let chains = |(id, chunks): &(InodeId, FileChunks)| chains_of_grants(*id, chunks);
            self.meta.chunks_of_files(&granted).iter().flat_map(chains).collect()
        };
        let entry = self.meta.appended();
        match self.order_elsewhere(at, entry, &chains) {
            Ok(away) => {
                let here = chains.difference(&away).copied().collect();
                let done = move |result: Result<(), Fault>| {
                    // It is told once.
                    let _ = known.set(result.is_ok());
                };
                self.data.order_then(at, entry, &here, Box::new(done));
            }
            Err(fault) => {
                debug!("not every head knows that session {session} may write no more: {fault}");
                let _ = known.set(false);
            }
        }
        Ok(())
    }

    /// What other leaders have done since is not known: sessions that were about to end begin to end anew.
    pub(crate) fn forget_ending(&self) {
        self.ending().clear();
    }

    /// A transaction of the server's own, about a session.
    pub(crate) fn own(&self, session: SessionId, op: Op) -> Transaction {
        let caller = Caller::root();
        Transaction { session: session.0, seq: 0, acked: 0, caller, must_see: 0, op: Some(op) }
    }
}

/// The chains of the chunks of a file that sessions may write.
pub(crate) fn granted_chains(id: InodeId, inode: &Inode) -> BTreeSet<ChainId> {
    chains_of_ranges(layout_of(id, inode), inode.grants().iter().flat_map(|grant| &grant.chunks))
}

/// The same, by the chunks of the file.
pub(crate) fn chains_of_grants(id: InodeId, chunks: &FileChunks) -> BTreeSet<ChainId> {
    chains_of_ranges(spread_of(id, chunks.layout), chunks.granted.iter())
}

fn chains_of_ranges<'a>(layout: Layout, ranges: impl Iterator<Item = &'a Range<u32>>) -> BTreeSet<ChainId> {
    let mut chains = BTreeSet::new();
    for range in ranges {
        if u64::from(range.end - range.start) > u64::from(8 * layout.chain_count) {
            // So many chunks may be on all chains.
            chains.extend((0..layout.chain_count).map(ChainId));
        } else {
            chains.extend(range.clone().map(|index| layout.chain(index)));
        }
    }
    chains
}
