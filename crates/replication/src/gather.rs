//! One reply for a count of results.
//!
//! Guarantees: the reply is called once, after the last result, with the first fault among them. Leaves to others: the
//! end of the wait for a result that never comes (`tick`).

use std::sync::Arc;

use frieze_base::Fault;
use frieze_locks::{Mutex, levels};

use crate::chain_state::ResultCallback;

/// Replies when all of a count of results have arrived.
pub struct Gather(Mutex<levels::GatheredResults, GatherState>);

/// Results that have not arrived, the first error, and the callback.
type GatherState = (usize, Result<(), Fault>, Option<ResultCallback>);

impl Gather {
    /// Replies after [`Gather::add`] was called `count` times, with the first fault among the results.
    pub fn new(count: usize, reply: ResultCallback) -> Arc<Gather> {
        Arc::new(Gather(Mutex::new((count, Ok(()), Some(reply)))))
    }

    /// Adds one result.
    pub fn add(&self, result: Result<(), Fault>) {
        let mut inner = self.0.lock();
        inner.0 -= 1;
        if inner.1.is_ok() {
            inner.1 = result;
        }
        if inner.0 == 0
            && let Some(reply) = inner.2.take()
        {
            let result = inner.1.clone();
            drop(inner);
            reply(result);
        }
    }
}
