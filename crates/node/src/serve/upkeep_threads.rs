//! The threads that work beside the connections: flushing, upkeep, reclaiming, scrubbing, making images.
//!
//! Guarantees: each thread ends soon after the server stops; one that fails logs each reason once, and continues.
//! Leaves to others: the work itself (the parts), connections, the threads of a cluster ([`super::cluster_threads`]).

use std::sync::atomic::Ordering;
use std::time::Duration;

use frieze_base::{Fault, MonoTime};
use tracing::{debug, error, warn};

use super::shared::{Shared, TEND_EVERY_NS};

/// Interval at which unused buffers are freed.
const TRIM_EVERY_NS: u64 = 10_000_000_000;
/// Threads that serve requests run first if there are not enough processors.
const SCRUB_NICE: i32 = 15;
/// A requested scrub begins within this time.
const SCRUB_LOOK_EVERY: Duration = Duration::from_millis(100);

/// Interval of the upkeep of chains with several members: a closed timestamp may be so late for a reader of recent
/// bytes.
const CHAINS_EVERY: Duration = Duration::from_millis(20);

/// The name of a thread, and what it runs.
type UpkeepThread = (&'static str, fn(&Shared));

/// All of these threads.
pub(super) const ALL: [UpkeepThread; 8] = [
    ("flush", flush),
    ("journal", journal),
    ("beat", metalog_timers),
    ("stock", stock),
    ("chains", chain_timers),
    ("reclaim", reclaim),
    ("scrub", scrub),
    ("image", image),
];

/// Advances time for the metalog.
fn metalog_timers(shared: &Shared) {
    while !shared.stopping.load(Ordering::Acquire) {
        let next = shared.parts.beat();
        shared.wakes.metalog.wait(next.unwrap_or(Duration::from_nanos(TEND_EVERY_NS)));
    }
}

/// Preallocates segments.
fn stock(shared: &Shared) {
    while !shared.stopping.load(Ordering::Acquire) {
        shared.parts.stock(Duration::from_nanos(TEND_EVERY_NS));
    }
}

/// Advances time for chains.
fn chain_timers(shared: &Shared) {
    let mut has_timers = true;
    while !shared.stopping.load(Ordering::Acquire) {
        shared.wakes.chains.wait(if has_timers { CHAINS_EVERY } else { Duration::from_nanos(TEND_EVERY_NS) });
        has_timers = shared.parts.tick_chains();
    }
}

/// Flushes records, and looks after clock, sessions and the clients' map of the cluster.
fn flush(shared: &Shared) {
    let mut tended = frieze_net::mono();
    let mut failed = false;
    let mut due = frieze_net::mono();
    let mut servers = shared.parts.servers();
    while !shared.stopping.load(Ordering::Acquire) {
        let delay = Duration::from_nanos(due.0.saturating_sub(frieze_net::mono().0));
        shared.wakes.flush.wait(delay);
        let planes = &shared.parts.planes;
        planes.reply_durable();
        let is_due = frieze_net::mono() >= due;
        if !is_due && !planes.durability.is_wanted() {
            continue;
        }
        due = MonoTime(frieze_net::mono().0 + shared.parts.flush_delay().as_nanos() as u64);
        shared.parts.service.sessions.tick();
        if !failed
            && planes.is_dirty()
            && let Err(fault) = planes.flush()
        {
            error!("flush failed, the server is read-only from now on: {fault}");
            failed = true;
        }
        if frieze_net::mono().since_ns(tended) > TEND_EVERY_NS {
            tended = frieze_net::mono();
            if let Err(fault) = shared.parts.tend() {
                warn!("looking after clock and sessions failed: {fault}");
            }
            let now = shared.parts.servers();
            if now != servers {
                servers = now;
                end_conversations_with_clients(shared);
            }
        }
    }
}

/// Closes the connections of clients, each after the requests that have arrived: a client that greets again receives
/// the new list of servers, and which server to ask when this one is lost. An idle client would never learn of it.
fn end_conversations_with_clients(shared: &Shared) {
    let open = shared.open.lock();
    let of_clients = open.values().filter(|open| open.conn.node().is_none());
    let count = of_clients.map(|open| open.stream.shut_in()).count();
    debug!(count, "the servers of the cluster are others than before: clients greet again");
}

/// Flushes the journal of a member of the metalog as soon as it has entries: entries that arrive meanwhile are in the
/// next flush.
fn journal(shared: &Shared) {
    let mut failed = false;
    while !shared.stopping.load(Ordering::Acquire) {
        match shared.parts.journal(Duration::from_nanos(TEND_EVERY_NS)) {
            Err(fault) if !failed => {
                error!("the metalog's journal cannot be written, the server is read-only from now on: {fault}");
                failed = true;
            }
            _ => {}
        }
    }
}

/// Frees expired records and dropped replicas, and moves the index of old records to shelves, in a thread of its own:
/// both may read all of the history.
fn reclaim(shared: &Shared) {
    let (mut said, mut left, mut trouble, mut untidy) = (None, None, None, None);
    let mut trimmed = frieze_net::mono();
    while !shared.stopping.load(Ordering::Acquire) {
        let found = shared.parts.service.upkeep.reclaim().err();
        if let Some(fault) = found.as_ref().filter(|fault| said.as_ref() != Some(*fault)) {
            warn!("giving back what was forgotten failed: {fault}");
        }
        said = found;
        let found = shared
            .parts
            .service
            .upkeep
            .drop_remains()
            .and_then(|()| shared.parts.service.upkeep.give_back_remains())
            .err();
        if let Some(fault) = found.as_ref().filter(|fault| left.as_ref() != Some(*fault)) {
            warn!("giving back what other servers have by now failed: {fault}");
        }
        left = found;
        shelve(shared, &mut trouble);
        let found = shared.parts.service.upkeep.keep_to_memory().err();
        if let Some(fault) = found.as_ref().filter(|fault| untidy.as_ref() != Some(*fault)) {
            warn!("giving memory back failed: {fault}");
        }
        untidy = found;
        if frieze_net::mono().since_ns(trimmed) > TRIM_EVERY_NS {
            trimmed = frieze_net::mono();
            shared.pool.trim();
        }
        shared.wakes.reclaim.wait(Duration::from_nanos(TEND_EVERY_NS));
    }
}

/// Scrubs everything stored, on request.
fn scrub(shared: &Shared) {
    // For this thread alone. If it fails, the scrub yields only by its pauses.
    let _ = rustix::process::nice(SCRUB_NICE);
    let goes_on = |wait: Duration| {
        if !wait.is_zero() {
            shared.wakes.scrub.wait(wait);
        }
        !shared.stopping.load(Ordering::Acquire)
    };
    let mut said = None;
    while goes_on(SCRUB_LOOK_EVERY) {
        let found = shared.parts.service.upkeep.scrub(&goes_on).err();
        if let Some(fault) = found.as_ref().filter(|fault| said.as_ref() != Some(*fault)) {
            warn!("scrubbing failed: {fault}");
        }
        said = found;
    }
}

/// Makes images of pages that consist of many pieces, in a thread of its own.
fn image(shared: &Shared) {
    // For this thread alone, as for scrubbing.
    let _ = rustix::process::nice(SCRUB_NICE);
    let goes_on = |wait: Duration| {
        if !wait.is_zero() {
            shared.wakes.image.wait(wait);
        }
        !shared.stopping.load(Ordering::Acquire)
    };
    let mut said = None;
    while goes_on(Duration::from_nanos(TEND_EVERY_NS)) {
        loop {
            let found = shared.parts.service.upkeep.image(&goes_on);
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

/// Moves the index of old records to the disk, as long as there is work.
fn shelve(shared: &Shared, said: &mut Option<Fault>) {
    loop {
        let found = shared.parts.service.upkeep.shelve();
        for words in shared.parts.service.upkeep.mended() {
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
