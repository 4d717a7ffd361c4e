//! Requests of this server that wait for a response, each until its deadline.
//!
//! Guarantees: a request ends when its [`OpenRequest`] is dropped; a response that arrives later is dropped. Every wait
//! ends. If a single thread runs the whole cluster, a wait runs the other work meanwhile ([`Idle`]).
//! Leaves to others: what a request says, how it is sent, whether it is sent again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use frieze_base::MonoTime;
use frieze_locks::{Condvar, Mutex, levels};
use frieze_net::{Idle, idle_until};
use frieze_storage::NodeClock;

/// The open requests of one kind, by number; `R` is a response.
pub struct OpenRequests<R> {
    table: Mutex<levels::OpenRequests, ResponseTable<R>>,
    /// Notified when a response arrives.
    changed: Condvar,
    clock: Arc<NodeClock>,
    idle: Idle,
}

struct ResponseTable<R> {
    /// The number of the newest request.
    last: u64,
    /// Open requests; `None`: without a response so far.
    responses: BTreeMap<u64, Option<R>>,
}

/// A request that is open. Dropping it ends the request.
pub struct OpenRequest<'a, R> {
    requests: &'a OpenRequests<R>,
    id: u64,
    deadline: MonoTime,
}

impl<R> OpenRequests<R> {
    /// No requests. The number of the first one follows `last`.
    pub fn new(last: u64, clock: Arc<NodeClock>, idle: Idle) -> OpenRequests<R> {
        let table = Mutex::new(ResponseTable { last, responses: BTreeMap::new() });
        OpenRequests { table, changed: Condvar::new(), clock, idle }
    }

    /// Opens a request that is about to be sent. Its deadline lies `within` from now.
    pub fn begin(&self, within: Duration) -> OpenRequest<'_, R> {
        let deadline = MonoTime(self.now().0.saturating_add(within.as_nanos() as u64));
        let mut table = self.table.lock();
        table.last = table.last.wrapping_add(1);
        let id = table.last;
        table.responses.insert(id, None);
        OpenRequest { requests: self, id, deadline }
    }

    /// Stores the response to request `id`. If the request has ended, the response is dropped.
    pub fn respond(&self, id: u64, response: R) {
        if let Some(place) = self.table.lock().responses.get_mut(&id) {
            *place = Some(response);
            self.changed.notify_all();
        }
    }

    /// Waits until one of these requests has its response, at most for `patience`. Without requests, waits for
    /// `patience`. Not to be called with a lock held.
    pub fn wait_any<'a>(&self, requests: impl IntoIterator<Item = &'a OpenRequest<'a, R>>, patience: Duration)
    where
        R: 'a,
    {
        let ids: Vec<u64> = requests.into_iter().map(|request| request.id).collect();
        let has_response =
            |table: &ResponseTable<R>| ids.iter().any(|id| matches!(table.responses.get(id), Some(Some(_))));
        match self.idle.get() {
            Some(idle) => {
                let look = || has_response(&self.table.lock()).then_some(());
                let _in_time = idle_until(idle, &|| self.now(), patience, look);
            }
            None => {
                frieze_locks::check_may_wait();
                // The caller looks for a response after the wait.
                drop(self.changed.wait_timeout_while(self.table.lock(), patience, |table| !has_response(table)));
            }
        }
    }

    fn now(&self) -> MonoTime {
        self.clock.reading().mono
    }
}

impl<R> OpenRequest<'_, R> {
    /// The number of the request: the response names it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Time until the deadline; zero once it has passed.
    pub fn time_left(&self) -> Duration {
        Duration::from_nanos(self.deadline.since_ns(self.requests.now()))
    }

    /// The response, if it has arrived.
    pub fn take(&self) -> Option<R> {
        self.requests.table.lock().responses.get_mut(&self.id)?.take()
    }

    /// Waits for the response until the deadline. Not to be called with a lock held.
    pub fn wait(self) -> Option<R> {
        self.requests.wait_any([&self], self.time_left());
        self.take()
    }
}

impl<R> Drop for OpenRequest<'_, R> {
    fn drop(&mut self) {
        // The lock ends before the response does, whose bytes may be many.
        let _response = self.requests.table.lock().responses.remove(&self.id);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use frieze_disk::{SimDisk, SimTime, StateFile, TimeSource};
    use frieze_hlc::{ClockSettings, Hlc, HlcClock};
    use frieze_storage::{Identity, IdentityStore};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    pub(crate) fn open_requests<R>(last: u64, idle: Idle) -> OpenRequests<R> {
        let file = StateFile::open_or_create(&SimDisk::new(1), "state").expect("a file");
        let keeper = Arc::new(IdentityStore::new(Identity::default(), file));
        let time: Arc<dyn TimeSource> = Arc::new(SimTime::new(1_000_000));
        let clock = NodeClock::new(HlcClock::new(ClockSettings::default(), Hlc::ZERO), time, keeper);
        OpenRequests::new(last, Arc::new(clock), idle)
    }

    fn open_count<R>(requests: &OpenRequests<R>) -> usize {
        requests.table.lock().responses.len()
    }

    #[test]
    fn a_response_reaches_its_request_alone_and_once() {
        let requests = open_requests(7, Idle::default());
        let (first, second) = (requests.begin(LONG), requests.begin(LONG));
        assert_eq!((first.id(), second.id()), (8, 9));
        requests.respond(9, "second");
        requests.wait_any([&first, &second], LONG);
        assert_eq!((first.take(), second.take(), second.take()), (None, Some("second"), None));
    }

    #[test]
    fn a_request_that_is_dropped_leaves_nothing_behind() {
        let requests = open_requests(0, Idle::default());
        let (answered, cancelled) = (requests.begin(LONG), requests.begin(LONG));
        let id = cancelled.id();
        drop(cancelled);
        requests.respond(id, "too late");
        requests.respond(answered.id(), "in time");
        assert_eq!(open_count(&requests), 1);
        assert_eq!(answered.wait(), Some("in time"));
        assert_eq!(requests.begin(Duration::ZERO).wait(), None);
        assert_eq!(open_count(&requests), 0);
    }

    #[test]
    fn numbers_wrap_after_the_largest() {
        let requests = open_requests::<()>(u64::MAX, Idle::default());
        assert_eq!(requests.begin(LONG).id(), 0);
    }

    #[test]
    fn a_thread_that_runs_all_servers_runs_them_while_it_waits() {
        let idle = Idle::default();
        let requests = Arc::new(open_requests(0, idle.clone()));
        let server = Arc::downgrade(&requests);
        let run = move || server.upgrade().expect("a server that runs").respond(1, "from the other work");
        assert!(idle.set(Box::new(run)).is_ok());
        assert_eq!(requests.begin(LONG).wait(), Some("from the other work"));
    }
}
