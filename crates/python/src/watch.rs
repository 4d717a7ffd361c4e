//! A feed of changes in a thread of its own, so that a wait ends soon after a signal, whatever the server does.
//!
//! Guarantees: a wait without the interpreter's lock checks for signals every [`SLICE`]; an answer that comes after an
//! interrupted wait is the next one. A batch has the changes up to a mark, and the mark.
//! Leaves to others: which of them were given to the program, and where a fork or a pickle goes on
//! (`python/frieze/frieze/watch.py`).

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::{InodeId, MonoTime};
use frieze_client::{ChangeFeed, Difference, Error, Fs, Hlc, Reason, SessionInfo, Target, WatchItem, mono};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::client::PythonClient;
use crate::columns;
use crate::errors::{exception, fault};
use crate::per_process::PerProcess;

/// Changes, their sessions, and what follows them: its word and its stamp.
type BatchRow<'py> = (Bound<'py, PyDict>, Bound<'py, PyDict>, &'static str, Option<u64>);

/// A feed of changes of this process.
#[pyclass(name = "Feed", module = "frieze._frieze", frozen)]
pub(crate) struct PythonFeed {
    board: PerProcess<FeedBoard>,
    path: Vec<u8>,
    inode: u64,
}

/// Begins a feed of the changes after `after`, up to `upto`: of the object at `path`, or of the one with this number.
#[pyfunction]
#[pyo3(signature = (client, path, after, upto=None, inode=None))]
pub(crate) fn open_feed(
    client: &Bound<'_, PythonClient>,
    path: &[u8],
    after: u64,
    upto: Option<u64>,
    inode: Option<u64>,
) -> PyResult<PythonFeed> {
    let py = client.py();
    let feed = client.get().call(py, None, path, |fs: &Fs, named| {
        let target = inode.map_or(named, |inode| Target::inode(InodeId(inode)));
        let feed = fs.watch(&target, Hlc(after))?;
        Ok(match upto {
            Some(upto) => feed.until(Hlc(upto)),
            None => feed,
        })
    })?;
    let inode = feed.inode().0;
    let board = Arc::new(FeedBoard::default());
    let thread = std::thread::Builder::new().name("frieze-feed".to_owned());
    let started = thread.spawn({
        let board = board.clone();
        move || board.serve(feed)
    });
    let words = |error| format!("the system has no thread for a watch: {error}");
    started.map_err(|error| fault(py, Reason::Overloaded, words(error), Some(path)))?;
    Ok(PythonFeed { board: PerProcess::new(board), path: path.to_vec(), inode })
}

#[pymethods]
impl PythonFeed {
    /// The number of the object.
    #[getter]
    fn inode(&self) -> u64 {
        self.inode
    }

    /// The next changes and what follows them; `None`: nothing came for `timeout` seconds, or the feed was closed.
    #[pyo3(signature = (timeout=None))]
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<BatchRow<'py>>> {
        let Some(board) = self.board.get() else { return Ok(None) };
        let wait = timeout.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX));
        let until = wait.map(|wait| MonoTime(mono().0.saturating_add(wait.as_nanos().min(u64::MAX.into()) as u64)));
        loop {
            let left = until.map_or(SLICE, |until| Duration::from_nanos(until.since_ns(mono())).min(SLICE));
            match py.detach(|| board.take(left)) {
                Some(Ok(batch)) => return batch.row(py).map(Some),
                Some(Err(error)) => return Err(exception(py, error, Some(&self.path))),
                None => py.check_signals()?,
            }
            if left < SLICE || board.lock().is_closed {
                return Ok(None);
            }
        }
    }

    /// Ends the feed, also under a wait of another thread.
    fn close(&self) {
        if let Some(board) = self.board.take() {
            board.close();
        }
    }
}

impl Drop for PythonFeed {
    fn drop(&mut self) {
        self.close();
    }
}

/// What the feed's thread and the program's exchange.
#[derive(Debug, Default)]
struct FeedBoard {
    state: Mutex<FeedState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct FeedState {
    /// The program waits for an answer, or has waited and was interrupted.
    is_wanted: bool,
    answer: Option<Result<FeedBatch, Error>>,
    is_closed: bool,
}

impl FeedBoard {
    /// The next answer, if there is one within `wait`.
    fn take(&self, wait: Duration) -> Option<Result<FeedBatch, Error>> {
        let mut state = self.lock();
        if state.answer.is_none() && !state.is_wanted {
            state.is_wanted = true;
            self.changed.notify_all();
        }
        if state.answer.is_none() && !state.is_closed {
            let is_waiting = |state: &mut FeedState| state.answer.is_none() && !state.is_closed;
            let waited = self.changed.wait_timeout_while(state, wait, is_waiting);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.answer.take()
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Answers until the program closes it: the life of the thread.
    fn serve(&self, mut feed: ChangeFeed) {
        loop {
            let mut state = self.lock();
            while !state.is_wanted && !state.is_closed {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.is_closed {
                return;
            }
            drop(state);
            let answer = self.batch(&mut feed);
            let mut state = self.lock();
            (state.answer, state.is_wanted) = (answer, false);
            self.changed.notify_all();
        }
    }

    /// The changes up to a mark; `None` if the program has closed it.
    fn batch(&self, feed: &mut ChangeFeed) -> Option<Result<FeedBatch, Error>> {
        let mut batch = FeedBatch::default();
        loop {
            match feed.next(FEED_SLICE) {
                Ok(Some(WatchItem::Event { change, session })) => {
                    batch.sessions.extend(session.map(|session| (session.id, session)));
                    batch.changes.push(*change);
                }
                Ok(Some(item)) => {
                    batch.end = Some(item);
                    return Some(Ok(batch));
                }
                Ok(None) if feed.has_ended() => return Some(Ok(batch)),
                Ok(None) if self.lock().is_closed => return None,
                Ok(None) => {}
                // Changes are followed by their mark without a request in between, so none is lost here.
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes up to a mark, or up to another item; without any the feed has ended.
#[derive(Debug, Default)]
struct FeedBatch {
    changes: Vec<Difference>,
    sessions: BTreeMap<u64, SessionInfo>,
    end: Option<WatchItem>,
}

impl FeedBatch {
    fn row(self, py: Python<'_>) -> PyResult<BatchRow<'_>> {
        let sessions: Vec<SessionInfo> = self.sessions.into_values().collect();
        let (word, stamp) = match self.end {
            Some(WatchItem::Resolved(at)) => ("resolved", Some(at.0)),
            Some(WatchItem::Forgotten(forgotten)) => ("forgotten", Some(forgotten.before)),
            Some(WatchItem::LeftOut(true)) => ("forgotten", None),
            Some(WatchItem::LeftOut(false)) => ("not-permitted", None),
            Some(WatchItem::Removed) => ("removed", None),
            Some(WatchItem::Event { .. }) | None => ("ended", None),
        };
        Ok((columns::differences(py, &self.changes)?, columns::sessions(py, &sessions)?, word, stamp))
    }
}

/// A wait of the program checks for signals this often.
const SLICE: Duration = Duration::from_millis(100);
/// The feed's thread looks this often whether the program has closed the feed.
const FEED_SLICE: Duration = Duration::from_millis(500);
