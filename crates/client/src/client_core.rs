//! The state that all handles of one client share.
//!
//! Calls are in `rpc`, the session in `sessions`, connecting in `connect`, requests without a waiting call in
//! `deferred`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use frieze_base::{Fault, MonoTime};
use frieze_hlc::Hlc;
use frieze_net::mono;
use frieze_trace::Program;
use frieze_wire::message::{HelloReply, Reply};

use crate::buffers::Buffers;
use crate::cache_leases::RecallConnection;
use crate::close::CloseQueue;
use crate::connection::name_of;
use crate::open_files::OpenFileList;
use crate::retry::RetryBudget;
use crate::sequence::Sequence;
use crate::servers::Servers;
use crate::write_grants::WriteGrants;
use crate::{Error, Options};

/// The core of a client.
#[derive(Debug)]
pub(crate) struct ClientCore {
    pub(crate) options: Options,
    pub(crate) hello: HelloReply,
    pub(crate) sequence: Arc<Sequence>,
    pub(crate) grants: WriteGrants,
    pub(crate) close_queue: Arc<CloseQueue>,
    /// True if a thread settles the files in it; set by the first of them.
    pub(crate) is_settling: OnceLock<bool>,
    pub(crate) open_files: OpenFileList,
    pub(crate) servers: Servers,
    pub(crate) recalls: RecallConnection,
    pub(crate) buffers: Buffers,
    /// 0 until a session is needed.
    pub(crate) session: AtomicU64,
    /// Held while a session is opened, so that there is one.
    pub(crate) opening: Mutex<()>,
    newest: AtomicU64,
    pub(crate) epoch: AtomicU64,
    pub(crate) last_request: AtomicU64,
    /// Deadline of every call ([`MonoTime`]); the largest number while the program sets none.
    ends_at: AtomicU64,
    /// Something may be missing from what was read of a file.
    pub(crate) met_loss: AtomicBool,
    /// Number of this client for reads of the past, which need no session.
    pub(crate) reader: u64,
    /// Until then ([`MonoTime`]) directories are read as they were last known, because no server leads.
    pub(crate) recent_until: AtomicU64,
    /// The last refusal of a server that belongs to another cluster.
    pub(crate) another_cluster: Mutex<Option<Fault>>,
    /// This program, for traces; `None` without a recorder.
    pub(crate) program: Option<Program>,
}

impl ClientCore {
    pub(crate) fn new(options: Options, hello: HelloReply, servers: Servers, reader: u64) -> ClientCore {
        let program = options.trace.as_ref().map(|recorder| recorder.program(&options.command));
        ClientCore {
            program,
            options,
            hello,
            sequence: Arc::default(),
            grants: WriteGrants::default(),
            close_queue: Arc::default(),
            is_settling: OnceLock::new(),
            open_files: OpenFileList::default(),
            servers,
            recalls: RecallConnection::default(),
            buffers: Buffers::default(),
            session: AtomicU64::new(0),
            opening: Mutex::new(()),
            newest: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            last_request: AtomicU64::new(0),
            ends_at: AtomicU64::new(u64::MAX),
            met_loss: AtomicBool::new(false),
            reader,
            recent_until: AtomicU64::new(0),
            another_cluster: Mutex::default(),
        }
    }

    /// The newest stamp in any reply.
    pub(crate) fn newest(&self) -> Hlc {
        Hlc(self.newest.load(Ordering::Relaxed))
    }

    /// Notes the stamp of a reply: later requests carry it.
    pub(crate) fn note_stamp(&self, stamp: Hlc) {
        self.newest.fetch_max(stamp.0, Ordering::Relaxed);
    }

    /// The refusal of a server of another cluster, if no server of this one has answered since.
    pub(crate) fn another_cluster(&self) -> Option<Fault> {
        self.another_cluster.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A budget for one call.
    pub(crate) fn retry_budget(&self) -> RetryBudget {
        let deadline = MonoTime(mono().0.saturating_add(self.options.timeout.as_nanos() as u64)).min(self.ends_at());
        RetryBudget::until(deadline)
    }

    /// Pauses before the next attempt of a call.
    ///
    /// # Errors
    /// `Unanswered` when the time is over; `Refused` with `WrongCluster` if only servers of another cluster answer;
    /// `Closed`.
    pub(crate) fn wait_to_retry(&self, budget: &mut RetryBudget, last: Error) -> Result<(), Error> {
        budget.deadline = budget.deadline.min(self.ends_at());
        if matches!(last, Error::Refused(_)) {
            budget.refused = Some(last.to_string());
        }
        if budget.left() <= budget.pause {
            if let Some(fault) = self.another_cluster() {
                return Err(Error::Refused(fault));
            }
            let is_cut_short = matches!(last, Error::Transport(frieze_net::Error::Silent { .. }));
            let answer = budget.refused.take().filter(|_| is_cut_short || matches!(last, Error::Refused(_)));
            let (server, waited, refused) = (self.server(), budget.waited(), answer.is_some());
            let last = answer.unwrap_or_else(|| last.to_string());
            return Err(Error::Unanswered { server, waited, last, refused });
        }
        tracing::debug!(error = %last, "retrying");
        self.pause(budget.pause);
        if self.is_closed() {
            return Err(Error::Closed);
        }
        budget.back_off(self.servers.age().is_alone());
        Ok(())
    }

    /// The deadline of every call.
    pub(crate) fn ends_at(&self) -> MonoTime {
        MonoTime(self.ends_at.load(Ordering::Acquire))
    }

    /// Limits every call, those in flight included, to `limit` from now.
    pub(crate) fn end_within(&self, limit: Duration) {
        let at = mono().0.saturating_add(limit.as_nanos() as u64);
        self.ends_at.fetch_min(at, Ordering::AcqRel);
    }

    /// The server that the options name, for messages.
    pub(crate) fn server(&self) -> String {
        self.options.server.to_string()
    }

    /// The error of a reply of another kind than the request asks for.
    pub(crate) fn unexpected(&self, asked: &'static str, found: &Reply) -> Error {
        Error::Protocol { server: self.server(), asked, found: name_of(found).to_owned() }
    }

    /// True once the client was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.servers.is_closed()
    }

    /// Waits, and ends early when the client is closed.
    pub(crate) fn pause(&self, duration: Duration) {
        self.servers.pause(duration);
    }

    /// True if several calls are in flight: one more request takes time from them. Otherwise a request costs nothing,
    /// and the server is awake for the next.
    pub(crate) fn is_busy(&self) -> bool {
        self.servers.busy() >= BUSY_CALLS
    }
}

/// Calls in flight that compete.
const BUSY_CALLS: usize = 2;
