//! The threads that work beside the connections: flushing, upkeep, reclaiming, scrubbing, images, checkpoints.
//!
//! Guarantees: each thread ends soon after the server stops; one that fails logs each reason once, and continues.
//! Leaves to others: the work itself (the parts), connections, the threads of a cluster ([`super::cluster_threads`]).

use std::sync::atomic::Ordering;
use std::time::Duration;

use frieze_base::Fault;
use frieze_storage::Wake;
use tracing::{debug, error, warn};

use super::shared::{Shared, TEND_EVERY_NS};

/// Interval at which unused buffers are freed.
const TRIM_EVERY_NS: u64 = 10_000_000_000;
/// Threads that serve requests run first if there are not enough processors.
const SCRUB_NICE: i32 = 15;
/// No request waits for a checkpoint.
const CHECKPOINT_NICE: i32 = 19;
/// A requested scrub begins within this time.
const SCRUB_LOOK_EVERY: Duration = Duration::from_millis(100);

/// Interval of the upkeep of chains with several members: a closed timestamp may be so late for a reader of recent
/// bytes.
const CHAINS_EVERY: Duration = Duration::from_millis(20);

/// The name of a thread, and what it runs.
type UpkeepThread = (&'static str, fn(&Shared));

/// All of these threads.
pub(super) const ALL: [UpkeepThread; 10] = [
    ("flush", flush),
    ("journal", journal),
    ("beat", metalog_timers),
    ("stock", stock),
    ("chains", chain_timers),
    ("reclaim", reclaim),
    ("scrub", scrub),
    ("image", image),
    ("checkpoint", checkpoint),
    ("changes", changes),
];

/// Answers the clients that wait for changes.
fn changes(shared: &Shared) {
    while !shared.stopping.load(Ordering::Acquire) {
        shared.parts.planes.end_waits();
    }
}

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
    let (mut tended, mut flushed) = (frieze_net::mono(), frieze_net::mono());
    let mut failed = false;
    let mut servers = shared.parts.servers();
    while !shared.stopping.load(Ordering::Acquire) {
        let planes = &shared.parts.planes;
        shared.wakes.flush.wait(planes.flush_wait(flushed));
        if !planes.wants_flush(flushed) {
            continue;
        }
        flushed = frieze_net::mono();
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
        let upkeep = &shared.parts.service.upkeep;
        note_fault(&mut said, upkeep.tend_history().err(), "giving back what was forgotten");
        let found = upkeep.drop_remains().and_then(|()| upkeep.give_back_remains()).err();
        note_fault(&mut left, found, "giving back what other servers have by now");
        shelve(shared, &mut trouble);
        note_fault(&mut untidy, upkeep.keep_to_memory().err(), "giving memory back");
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
    let goes_on = |wait| goes_on(shared, &shared.wakes.scrub, wait);
    let mut said = None;
    while goes_on(SCRUB_LOOK_EVERY) {
        note_fault(&mut said, shared.parts.service.upkeep.scrub(&goes_on).err(), "scrubbing");
    }
}

/// Makes images of pages that consist of many pieces, in a thread of its own.
fn image(shared: &Shared) {
    // For this thread alone, as for scrubbing.
    let _ = rustix::process::nice(SCRUB_NICE);
    let goes_on = |wait| goes_on(shared, &shared.wakes.image, wait);
    let mut said = None;
    while goes_on(Duration::from_nanos(TEND_EVERY_NS)) {
        loop {
            let found = shared.parts.service.upkeep.image(&goes_on);
            let more = matches!(found, Ok(true));
            note_fault(&mut said, found.err(), "making images of old states");
            if !more || !goes_on(Duration::ZERO) {
                break;
            }
        }
    }
}

/// Writes checkpoints of the names, for the next start.
fn checkpoint(shared: &Shared) {
    // For this thread alone, as for scrubbing.
    let _ = rustix::process::nice(CHECKPOINT_NICE);
    let goes_on = |wait| goes_on(shared, &shared.wakes.checkpoint, wait);
    let mut said = None;
    while goes_on(Duration::from_nanos(TEND_EVERY_NS)) {
        let found = shared.parts.planes.checkpoint(&goes_on).err();
        note_fault(&mut said, found, "writing a checkpoint of the names");
    }
}

/// Waits for so long, or until `wake`. False if the server stops.
fn goes_on(shared: &Shared, wake: &Wake, wait: Duration) -> bool {
    if !wait.is_zero() {
        wake.wait(wait);
    }
    !shared.stopping.load(Ordering::Acquire)
}

/// Logs a fault, unless it is the one before.
fn note_fault(said: &mut Option<Fault>, found: Option<Fault>, doing: &str) {
    if let Some(fault) = found.as_ref().filter(|fault| said.as_ref() != Some(*fault)) {
        warn!("{doing} failed: {fault}");
    }
    *said = found;
}

/// Moves the index of old records to the disk, as long as there is work.
fn shelve(shared: &Shared, said: &mut Option<Fault>) {
    loop {
        let found = shared.parts.service.upkeep.shelve();
        for words in shared.parts.service.upkeep.mended() {
            warn!("{words}");
        }
        let more = matches!(found, Ok(true)) && !shared.stopping.load(Ordering::Acquire);
        note_fault(said, found.err(), "moving the index to the disk");
        if !more {
            return;
        }
    }
}
