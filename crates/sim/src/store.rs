//! The simulated store of the namespace: memtables that end with the process, and tables that stay.
//!
//! Guarantees: those of [`VersionStore`] and nothing more: the end of the process loses every memtable that is no
//! table, and a memtable becomes a table some time after its entries are durable in the log, as the seed says. Nothing
//! is changed once the device under it has stopped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frieze_base::{Fault, LogIndex, Reason, Rng};
use frieze_disk::{CrashKind, SimDisk};
use frieze_node::{MemoryStore, StoreBatch, StoreItem, VersionStore};

use crate::breakage::ServerBreak;

/// Bytes of memtables: one for each entry, some, or most of a run in one.
const MEMTABLE_BYTES: [u64; 4] = [1, 1 << 10, 8 << 10, 64 << 10];

/// The store. Clones are the same store.
#[derive(Clone)]
pub(crate) struct SimStore {
    disk: SimDisk,
    memory: MemoryStore,
    state: Arc<Mutex<SimStoreState>>,
}

struct SimStoreState {
    rng: Rng,
    /// Sealed memtables and tables until the process dies in one.
    fuse: Option<u64>,
    breakage: Option<ServerBreak>,
    batches: u64,
    /// A server reads what it begins with.
    is_starting: bool,
}

impl SimStore {
    /// An empty store that dies together with `disk`, and is broken in one way, or in none.
    pub(crate) fn new(disk: SimDisk, seed: u64, breakage: Option<ServerBreak>) -> SimStore {
        let mut rng = Rng::new(seed);
        let memory = MemoryStore::default();
        memory.set_memtable_bytes_max(*rng.choose(&MEMTABLE_BYTES));
        let state = SimStoreState { rng, fuse: None, breakage, batches: 0, is_starting: false };
        SimStore { disk, memory, state: Arc::new(Mutex::new(state)) }
    }

    /// Lets the process die in the `changes`-th memtable that is sealed or becomes a table from now (1: the next).
    pub(crate) fn fail_after(&self, changes: u64) {
        self.state().fuse = Some(changes);
    }

    /// The process has ended; another may use it.
    pub(crate) fn restart(&self) {
        self.state().fuse = None;
        self.memory.lose_memory();
    }

    /// A server begins to read what is there.
    pub(crate) fn begin_start(&self) {
        self.state().is_starting = true;
    }

    /// It has read that.
    pub(crate) fn end_start(&self) {
        self.state().is_starting = false;
    }

    fn state(&self) -> MutexGuard<'_, SimStoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) -> Result<(), Fault> {
        match self.disk.is_crashed() {
            true => Err(Fault::new(Reason::InputOutput, "the process has died")),
            false => Ok(()),
        }
    }

    /// True if the process dies before the change is done; the device has stopped if it dies just after.
    fn burn(&self) -> bool {
        let mut state = self.state();
        let Some(left) = state.fuse.as_mut() else { return false };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return false;
        }
        self.disk.crash(CrashKind::Process);
        state.rng.chance(2)
    }

    /// The oldest memtable becomes a table, unless the process dies before.
    fn write_table(&self) -> Result<(), Fault> {
        self.alive()?;
        if !self.burn() {
            self.memory.write_table();
        }
        self.alive()
    }

    fn is_broken(&self, by: ServerBreak) -> bool {
        self.state().breakage == Some(by)
    }

    fn write_durable(&self, durable: LogIndex, is_all: bool) -> Result<(), Fault> {
        let durable = self.memory.note_durable(durable);
        while self.memory.sealed().first().is_some_and(|through| *through <= durable) {
            // A thread of its own writes tables: some time after it may.
            if !is_all && self.state().rng.chance(3) {
                break;
            }
            self.write_table()?;
            if self.is_broken(ServerBreak::AppliedAhead) {
                self.memory.pretend_applied(durable);
            }
        }
        Ok(())
    }
}

impl VersionStore for SimStore {
    fn begin(&self) -> Result<LogIndex, Fault> {
        self.alive()?;
        self.memory.begin()
    }

    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<StoreItem>, Fault> {
        self.alive()?;
        self.memory.last_in(from, to)
    }

    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoreItem, Fault>> + '_> {
        let hides_times = self.is_broken(ServerBreak::CheckpointAlone) && self.state().is_starting;
        match self.alive() {
            Err(fault) => Box::new(std::iter::once(Err(fault))),
            Ok(()) if hides_times && from.first() == Some(&b'T') => Box::new(std::iter::empty()),
            Ok(()) => self.memory.items(from, to),
        }
    }

    fn insert(&self, batch: &StoreBatch) -> u64 {
        let batches = {
            let mut state = self.state();
            state.batches += 1;
            state.batches
        };
        match self.is_broken(ServerBreak::StoreForgets) && batches.is_multiple_of(3) {
            true => 0,
            false => self.memory.insert(batch),
        }
    }

    fn memtable_bytes_max(&self) -> u64 {
        self.memory.memtable_bytes_max()
    }

    fn seal(&self, batch: &StoreBatch, through: LogIndex) {
        if self.alive().is_err() || self.burn() {
            return;
        }
        if self.is_broken(ServerBreak::OutcomesForgotten) {
            let mut left = StoreBatch::default();
            for (key, value) in batch.iter() {
                match value {
                    Some(_) if key.first() == Some(&b'R') => {}
                    Some(value) => left.put(key, value),
                    None => left.remove(key),
                }
            }
            return self.memory.seal(&left, through);
        }
        self.memory.seal(batch, through);
        if self.is_broken(ServerBreak::TablesEarly) {
            while self.memory.write_table() {}
        }
    }

    fn settle(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        self.alive()?;
        self.write_durable(durable, false)?;
        self.memory.applied()
    }

    fn applied(&self) -> Result<LogIndex, Fault> {
        self.alive()?;
        self.memory.applied()
    }

    fn persist(&self) -> Result<(), Fault> {
        self.alive()?;
        self.write_durable(LogIndex(0), true)
    }
}
