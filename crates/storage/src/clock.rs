//! The server's clock: the core clock behind one lock, the machine's time below it, and the durable bound.
//!
//! Guarantees: no stamp leaves before the bound that covers it is on stable storage.

use std::sync::Arc;

use frieze_base::{Fault, LogIndex, MonoTime};
use frieze_disk::{StateFile, TimeSource};
use frieze_hlc::{ClockHealth, ClockReading, Error, Hlc, HlcClock};
use frieze_locks::{Mutex, MutexGuard, levels};
use prost::Message;

use crate::identity::Identity;
use crate::ticket::Ticket;

/// Owner of the identity record and its file.
pub struct IdentityStore {
    inner: Mutex<levels::IdentityRecord, (Identity, StateFile)>,
}

impl IdentityStore {
    /// An owner that writes `identity` to `file`.
    pub fn new(identity: Identity, file: StateFile) -> IdentityStore {
        IdentityStore { inner: Mutex::new((identity, file)) }
    }

    /// Changes the record; durable on return.
    ///
    /// # Errors
    /// The disk's. The record in memory stays as before.
    pub fn update(&self, change: impl FnOnce(&mut Identity)) -> Result<(), Fault> {
        let mut inner = self.inner.lock();
        let mut changed = inner.0.clone();
        change(&mut changed);
        inner.1.write(&changed.encode_to_vec())?;
        inner.0 = changed;
        Ok(())
    }

    /// Reads the record.
    pub fn with<R>(&self, look: impl FnOnce(&Identity) -> R) -> R {
        look(&self.inner.lock().0)
    }
}

/// The clock shared by all parts of a server.
pub struct NodeClock {
    clock: Mutex<levels::NodeClock, HlcClock>,
    source: Arc<dyn TimeSource>,
    keeper: Arc<IdentityStore>,
}

impl NodeClock {
    /// A server's clock over the machine's time.
    pub fn new(clock: HlcClock, source: Arc<dyn TimeSource>, keeper: Arc<IdentityStore>) -> NodeClock {
        NodeClock { clock: Mutex::new(clock), source, keeper }
    }

    #[track_caller]
    fn lock(&self) -> MutexGuard<'_, HlcClock> {
        self.clock.lock()
    }

    /// One reading of the machine's clocks.
    pub fn reading(&self) -> ClockReading {
        self.source.reading()
    }

    /// Runs `ask` on the clock, and makes the bound durable as often as `ask` needs it.
    fn with_bound<T>(&self, mut ask: impl FnMut(&mut HlcClock, ClockReading) -> Result<T, Error>) -> Result<T, Fault> {
        let mut clock = self.lock();
        loop {
            match ask(&mut clock, self.source.reading()) {
                Err(Error::BoundNeeded(bound)) => {
                    self.keeper.update(|identity| identity.clock_bound = identity.clock_bound.max(bound.0))?;
                    clock.bound_persisted(bound);
                }
                other => return other.map_err(Fault::from),
            }
        }
    }

    /// The first of `count` consecutive fresh stamps.
    ///
    /// # Errors
    /// `Fenced` while the clock is not trusted; the disk's if the bound cannot be made durable.
    pub fn tick_many(&self, count: u64) -> Result<Hlc, Fault> {
        self.with_bound(|clock, reading| clock.tick_many(reading, count))
    }

    /// A fresh stamp, and the monotonic time of the clock reading that it is based on.
    ///
    /// # Errors
    /// As [`NodeClock::tick_many`].
    pub fn tick(&self) -> Result<(Hlc, MonoTime), Fault> {
        self.with_bound(|clock, reading| Ok((clock.tick_many(reading, 1)?, reading.mono)))
    }

    /// Adopts the newest stamp that a client has received.
    ///
    /// # Errors
    /// `Future` if it lies too far ahead; it is not adopted.
    pub fn observe(&self, remote: Hlc) -> Result<(), Fault> {
        let mut clock = self.lock();
        // The usual case: nothing new, and no reading of the machine's clock.
        if remote <= clock.newest() {
            return Ok(());
        }
        clock.observe(self.source.reading(), remote).map_err(Fault::from)
    }

    /// Adopts the newest stamp that another member of a chain names: a stamp of its records, or a promise that has to
    /// hold across a restart of all members. The durable bound covers it on return.
    ///
    /// # Errors
    /// `Future` if it lies too far ahead; it is not adopted. The disk's.
    pub fn adopt(&self, remote: Hlc) -> Result<(), Fault> {
        self.with_bound(|clock, reading| clock.adopt(reading, remote))
    }

    /// Promises that every later stamp lies above `at`.
    ///
    /// # Errors
    /// `Future` if `at` lies ahead.
    pub fn close(&self, at: Hlc) -> Result<(), Fault> {
        self.with_bound(|clock, reading| clock.close(reading, at))
    }

    /// An instant that covers everything stamped so far.
    pub fn now(&self) -> Hlc {
        let clock = self.lock();
        clock.now(self.source.reading())
    }

    /// The newest stamp given or adopted.
    pub fn newest(&self) -> Hlc {
        self.lock().newest()
    }

    /// Whether the clock is trusted, and its precision.
    pub fn health(&self) -> ClockHealth {
        self.lock().health(self.source.reading())
    }

    /// The error bound in microseconds; `u64::MAX` if nothing disciplines the machine's clock.
    pub fn precision_us(&self) -> u64 {
        self.source.reading().error_us.unwrap_or(u64::MAX)
    }

    /// The entry of the metalog up to which records here may have died; see [`Identity::expired_index`].
    pub fn expired_index(&self) -> LogIndex {
        LogIndex(self.keeper.with(|identity| identity.expired_index))
    }

    /// Raises [`NodeClock::expired_index`]. Durable on return.
    ///
    /// # Errors
    /// The disk's.
    pub fn raise_expired_index(&self, index: LogIndex) -> Result<(), Fault> {
        self.keeper.update(|identity| identity.expired_index = identity.expired_index.max(index.0))
    }

    /// Reads the machine's clocks, and extends the durable bound in the background when half of it is used. The write
    /// includes `frontier` and `durable`.
    ///
    /// # Errors
    /// The disk's.
    pub fn look(&self, frontier: Hlc, durable: Ticket) -> Result<(), Fault> {
        let wanted = {
            let mut clock = self.lock();
            let reading = self.source.reading();
            clock.look(reading);
            clock.wants_bound(reading)
        };
        let Some(bound) = wanted else { return Ok(()) };
        self.keeper.update(|identity| {
            identity.clock_bound = identity.clock_bound.max(bound.0);
            identity.frontier = identity.frontier.max(frontier.0);
            identity.set_durable(durable);
        })?;
        self.lock().bound_persisted(bound);
        Ok(())
    }
}
