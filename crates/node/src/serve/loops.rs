//! The threads that work beside the connections: flushing, tending, reclaiming, scrubbing, making images.
//!
//! Guarantees: each ends soon after the server is told to stop; one that fails says so once for each reason, and goes
//! on. Leaves to others: what the work is (the engine); connections, and the threads of a cluster
//! ([`super::together`]).

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frieze_base::Fault;
use tracing::{debug, error, warn};

use super::{Shared, TEND_EVERY_NS};

/// Buffers that nobody uses are given back so often.
const TRIM_EVERY_NS: u64 = 10_000_000_000;
/// Whoever serves goes first where there are not enough processors.
const SCRUB_NICE: i32 = 15;
/// How soon a scrub that is asked for begins.
const SCRUB_LOOK_EVERY: Duration = Duration::from_millis(100);

/// Flushes what is to be durable, and looks after clock, sessions and the clients' knowledge of the cluster.
pub(super) fn flush(shared: &Shared) {
    let mut tended = frieze_net::mono();
    let mut failed = false;
    let mut servers = shared.engine.servers();
    while !shared.stopping.load(Ordering::Acquire) {
        let woken = shared.wake.wait(shared.engine.flush_delay());
        shared.engine.tick();
        if !failed
            && (woken || shared.engine.is_dirty())
            && let Err(fault) = shared.engine.flush()
        {
            error!("flush failed, the server is read-only from now on: {fault}");
            failed = true;
        }
        if frieze_net::mono().since_ns(tended) > TEND_EVERY_NS {
            tended = frieze_net::mono();
            if let Err(fault) = shared.engine.tend() {
                warn!("looking after clock and sessions failed: {fault}");
            }
            let now = shared.engine.servers();
            if now != servers {
                servers = now;
                end_conversations_with_clients(shared);
            }
        }
    }
}

/// Ends the connections of clients, each after the requests that it has brought: who greets again hears that the
/// servers are others than before, and whom to ask when this one is lost. One that is idle would never hear.
fn end_conversations_with_clients(shared: &Shared) {
    let open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
    let of_clients = open.values().filter(|open| open.conn.node().is_none());
    let count = of_clients.map(|open| open.stream.shut_in()).count();
    debug!(count, "the servers of the cluster are others than before: clients greet again");
}

/// Flushes the journal of a member of the metalog as soon as there is something to flush: what comes meanwhile is the
/// next flush.
pub(super) fn journal(shared: &Shared) {
    let mut failed = false;
    while !shared.stopping.load(Ordering::Acquire) {
        match shared.engine.journal(Duration::from_nanos(TEND_EVERY_NS)) {
            Err(fault) if !failed => {
                error!("the metalog's journal cannot be written, the server is read-only from now on: {fault}");
                failed = true;
            }
            _ => {}
        }
    }
}

/// Gives back what was forgotten, and what others have by now, and shelves the index of what is old, beside everything
/// else: both may look at all of the history.
pub(super) fn reclaim(shared: &Shared) {
    let (mut said, mut left, mut trouble, mut untidy) = (None, None, None, None);
    let mut trimmed = frieze_net::mono();
    while !shared.stopping.load(Ordering::Acquire) {
        let found = shared.engine.reclaim().err();
        if let Some(fault) = found.as_ref().filter(|fault| said.as_ref() != Some(*fault)) {
            warn!("giving back what was forgotten failed: {fault}");
        }
        said = found;
        let found = shared.engine.give_up_remains().and_then(|()| shared.engine.give_back_remains()).err();
        if let Some(fault) = found.as_ref().filter(|fault| left.as_ref() != Some(*fault)) {
            warn!("giving back what other servers have by now failed: {fault}");
        }
        left = found;
        shelve(shared, &mut trouble);
        let found = shared.engine.keep_to_memory().err();
        if let Some(fault) = found.as_ref().filter(|fault| untidy.as_ref() != Some(*fault)) {
            warn!("giving memory back failed: {fault}");
        }
        untidy = found;
        if frieze_net::mono().since_ns(trimmed) > TRIM_EVERY_NS {
            trimmed = frieze_net::mono();
            shared.pool.trim();
        }
        shared.rest.wait(Duration::from_nanos(TEND_EVERY_NS));
    }
}

/// Looks at everything stored, when somebody asks for it.
pub(super) fn scrub(shared: &Shared) {
    // Of this thread alone. Without it, it only yields by waiting.
    let _ = rustix::process::nice(SCRUB_NICE);
    let goes_on = |wait: Duration| {
        if !wait.is_zero() {
            shared.breath.wait(wait);
        }
        !shared.stopping.load(Ordering::Acquire)
    };
    let mut said = None;
    while goes_on(SCRUB_LOOK_EVERY) {
        let found = shared.engine.scrub(&goes_on).err();
        if let Some(fault) = found.as_ref().filter(|fault| said.as_ref() != Some(*fault)) {
            warn!("scrubbing failed: {fault}");
        }
        said = found;
    }
}

/// Makes images of pages that consist of many pieces, beside everything else.
pub(super) fn image(shared: &Shared) {
    // As scrubbing: of this thread alone.
    let _ = rustix::process::nice(SCRUB_NICE);
    let goes_on = |wait: Duration| {
        if !wait.is_zero() {
            shared.leisure.wait(wait);
        }
        !shared.stopping.load(Ordering::Acquire)
    };
    let mut said = None;
    while goes_on(Duration::from_nanos(TEND_EVERY_NS)) {
        loop {
            let found = shared.engine.image(&goes_on);
            if let Some(fault) = found.as_ref().err().filter(|fault| said.as_ref() != Some(*fault)) {
                warn!("making images of old states failed: {fault}");
            }
            let more = matches!(found, Ok(true));
            said = found.err();
            if !more || !goes_on(Duration::ZERO) {
                break;
            }
        }
    }
}

/// Moves the index of old records to the disk, as far as there is something to do.
fn shelve(shared: &Shared, said: &mut Option<Fault>) {
    loop {
        let found = shared.engine.shelve();
        for words in shared.engine.mended() {
            warn!("{words}");
        }
        match found {
            Ok(true) if !shared.stopping.load(Ordering::Acquire) => {}
            Ok(_) => {
                *said = None;
                return;
            }
            Err(fault) => {
                if said.as_ref() != Some(&fault) {
                    warn!("moving the index to the disk failed: {fault}");
                }
                *said = Some(fault);
                return;
            }
        }
    }
}
