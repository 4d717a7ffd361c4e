//! The expected state of the server, recorded a second time and as simply as possible.
//!
//! Guarantees: the model has no logs, indexes, horizons, grants of size or caches; it answers a question by folding all
//! events. So an equal answer of the server is evidence.

pub(crate) mod bytes;
mod numbers;
pub(crate) mod tree;
mod versions;

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::Reason;
use frieze_hlc::Hlc;
use frieze_wire::txn::Op;

use bytes::{FileEventKind, FilePunch, FileWrite};
use tree::Tree;

/// Everything the server should know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) tree: Tree,
    pub(crate) sessions: BTreeMap<u64, Session>,
    /// Sessions that were closed, and when.
    pub(crate) closed: BTreeMap<u64, Hlc>,
    /// By name: instant, and creator.
    pub(crate) snapshots: BTreeMap<String, (Hlc, u32)>,
}

/// A session and its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    /// Whose it is.
    uid: u32,
    /// Requests below it are forgotten by the metadata plane.
    acked: u64,
    /// Effect of every request, by number. Never dropped here, so that a second effect is noticed.
    pub(crate) ran: BTreeMap<u64, RequestEffect>,
    /// Chunks it may write, and chunks it may or may not be allowed to, by inode.
    grants: BTreeMap<u64, Grants>,
}

#[derive(Clone, Debug, Default)]
struct Grants {
    sure: BTreeSet<u64>,
    /// From this chunk on nothing is certain: an append received grants that its answer did not name.
    unsure_from: Option<u64>,
}

/// Effect of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestEffect {
    Txn { stamp: Hlc, result: Result<TxnResult, Reason> },
    Wrote { stamp: Hlc, offset: u64 },
}

/// Answer of a successful transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TxnResult {
    pub(crate) id: u64,
    pub(crate) existed: bool,
}

/// Whether a session may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantState {
    Yes,
    No,
    Perhaps,
}

impl Model {
    /// The model of a server whose root was made at `stamp`.
    pub(crate) fn format(stamp: Hlc, root_mode: u32) -> Model {
        Model { tree: Tree::format(stamp, root_mode), ..Model::default() }
    }

    /// The answer of a transaction if it runs now; `None` if it ran before and that is remembered.
    pub(crate) fn preview(&self, session: u64, seq: u64, op: &Op) -> Result<RequestEffect, Result<(), Reason>> {
        if let Op::OpenSession(_) = op {
            return Err(Ok(()));
        }
        let Some(state) = self.sessions.get(&session) else { return Err(Err(Reason::UnknownSession)) };
        if let Op::Settle(op) = op
            && self.tree.node(op.inode, Hlc::MAX).is_none()
        {
            // Measured before it is looked up whether it ran.
            return Err(Err(Reason::StaleHandle));
        }
        if seq < state.acked {
            return Err(Err(Reason::SequenceTooOld));
        }
        if let Some(ran) = state.ran.get(&seq) {
            return Ok(ran.clone());
        }
        Err(match op {
            Op::MakeSnapshot(op) if self.snapshots.contains_key(&op.name) => Err(Reason::Exists),
            Op::DeleteSnapshot(op) => match self.snapshots.get(&op.name) {
                None => Err(Reason::NotFound),
                Some((_, maker)) if ![0, *maker].contains(&state.uid) => Err(Reason::NotPermitted),
                Some(_) => Ok(()),
            },
            Op::Grant(op) if self.tree.node(op.inode, Hlc::MAX).is_none() => Err(Reason::StaleHandle),
            Op::Grant(op) if self.tree.kept(op.inode, Hlc::MAX).is_err() => Err(Reason::HistoryExpired),
            Op::CloseSession(_) | Op::MakeSnapshot(_) | Op::Grant(_) => Ok(()),
            Op::Settle(_) | Op::SettleAll(_) => Ok(()),
            Op::Forget(_) => Ok(()),
            op => self.tree.decide(op).map(|_| ()),
        })
    }

    /// Runs a transaction at `stamp`, or returns the effect of its first run.
    pub(crate) fn run(&mut self, session: u64, seq: u64, acked: u64, op: &Op, stamp: Hlc) -> RequestEffect {
        let result = match self.preview(session, seq, op) {
            Ok(ran) => return ran,
            Err(Err(reason @ (Reason::UnknownSession | Reason::SequenceTooOld))) => {
                return RequestEffect::Txn { stamp, result: Err(reason) };
            }
            Err(Err(reason)) => Err(reason),
            Err(Ok(())) => Ok(self.carry_out(session, op, stamp)),
        };
        let ran = RequestEffect::Txn { stamp, result };
        if let Some(state) = self.sessions.get_mut(&session).filter(|_| seq != 0) {
            state.acked = state.acked.max(acked).max(1);
            state.ran.insert(seq, ran.clone());
        }
        ran
    }

    fn carry_out(&mut self, session: u64, op: &Op, stamp: Hlc) -> TxnResult {
        match op {
            Op::OpenSession(op) => {
                self.sessions.insert(stamp.0, Session { uid: op.uid, ..Session::default() });
                TxnResult { id: stamp.0, existed: false }
            }
            Op::CloseSession(_) => {
                self.sessions.remove(&session);
                self.closed.insert(session, stamp);
                TxnResult { id: session, existed: false }
            }
            Op::MakeSnapshot(op) => {
                let maker = self.sessions.get(&session).map_or(0, |state| state.uid);
                self.snapshots.insert(op.name.clone(), (if op.at == 0 { stamp } else { Hlc(op.at) }, maker));
                TxnResult::default()
            }
            Op::DeleteSnapshot(op) => {
                if let Some(pin) = self.snapshots.remove(&op.name)
                    && !self.snapshots.values().any(|other| *other == pin)
                {
                    self.tree.horizons.unpin(pin);
                }
                TxnResult::default()
            }
            Op::Forget(op) => {
                let pins = match op.with_snapshots {
                    true => BTreeSet::new(),
                    false => self.snapshots.values().copied().filter(|(at, _)| at.0 < op.before).collect(),
                };
                let granted = self.sessions.values().flat_map(|state| state.grants.keys().copied()).collect();
                self.tree.forget(op, pins, &granted);
                TxnResult { id: op.root, existed: false }
            }
            Op::Grant(op) => {
                let chunks = u64::from(op.first)..u64::from(op.first) + u64::from(op.count);
                if let Some(grants) = self.grants(session, op.inode) {
                    grants.sure.extend(chunks);
                }
                TxnResult { id: op.inode, existed: false }
            }
            Op::Settle(op) => {
                if !op.keep_grant
                    && let Some(state) = self.sessions.get_mut(&session)
                {
                    state.grants.remove(&op.inode);
                }
                TxnResult { id: op.inode, existed: false }
            }
            Op::SettleAll(op) => {
                if let Some(state) = self.sessions.get_mut(&session) {
                    for settle in op.files.iter().filter(|settle| !settle.keep_grant) {
                        state.grants.remove(&settle.inode);
                    }
                }
                TxnResult { id: 0, existed: false }
            }
            op => {
                let change = self.tree.decide(op).expect("it was previewed");
                let (id, existed) = self.tree.commit(&change, stamp);
                if let Op::Make(make) = op
                    && let (Some(frieze_wire::txn::MakeKind::File(true)), false) = (&make.kind, existed)
                    && let Some(grants) = self.grants(session, id)
                {
                    grants.sure.insert(0);
                }
                TxnResult { id, existed }
            }
        }
    }

    fn grants(&mut self, session: u64, inode: u64) -> Option<&mut Grants> {
        Some(self.sessions.get_mut(&session)?.grants.entry(inode).or_default())
    }

    /// The server granted an append some chunks from `first` on.
    pub(crate) fn granted_tail(&mut self, session: u64, inode: u64, first: u64) {
        if let Some(grants) = self.grants(session, inode) {
            grants.unsure_from = Some(grants.unsure_from.map_or(first, |before| before.min(first)));
        }
    }

    /// Whether a session may write the chunks `first..=last`.
    pub(crate) fn may_write(&self, session: u64, inode: u64, first: u64, last: u64) -> GrantState {
        let Some(grants) = self.sessions.get(&session).and_then(|state| state.grants.get(&inode)) else {
            return GrantState::No;
        };
        let mut missing = (first..=last).filter(|chunk| !grants.sure.contains(chunk)).peekable();
        match (missing.peek().is_some(), grants.unsure_from) {
            (false, _) => GrantState::Yes,
            (true, Some(from)) if missing.all(|chunk| chunk >= from) => GrantState::Perhaps,
            _ => GrantState::No,
        }
    }

    /// Adds a punched hole.
    pub(crate) fn punched(&mut self, seq: u64, inode: u64, stamp: Hlc, punch: FilePunch) {
        if let Some(state) = self.sessions.get_mut(&punch.session) {
            state.ran.insert(seq, RequestEffect::Wrote { stamp, offset: punch.offset });
        }
        self.tree.write(inode, stamp, FileEventKind::Punch(punch));
    }

    /// Adds written bytes.
    pub(crate) fn wrote(&mut self, seq: u64, inode: u64, stamp: Hlc, write: FileWrite) {
        if let Some(state) = self.sessions.get_mut(&write.session) {
            state.ran.insert(seq, RequestEffect::Wrote { stamp, offset: write.offset });
        }
        self.tree.write(inode, stamp, FileEventKind::Write(write));
    }
}
