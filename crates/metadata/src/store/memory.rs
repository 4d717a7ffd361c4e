//! A store in memory with the crash behaviour of the real one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use frieze_base::{Fault, LogIndex};
use frieze_locks::{Mutex, levels};

use super::batch::StoreBatch;
use super::version_store::{StoreItem, StoreView, VersionStore};

/// A store in memory with the crash behaviour of the real one, for the simulator: memtables are lost with the process,
/// tables never. Clones are the same store.
#[derive(Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<levels::MemoryStore, MemoryState>>,
}

type StoreItems = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Default)]
struct MemoryState {
    /// What readers find.
    items: Arc<StoreItems>,
    /// What is left when the process ends.
    tables: Arc<StoreItems>,
    /// How far the tables are complete.
    applied: LogIndex,
    /// How far the log is durable.
    durable: LogIndex,
    open: Memtable,
    sealed: VecDeque<(Memtable, LogIndex)>,
    memtable_bytes_max: Option<u64>,
    /// A state that is being received.
    other: StoreItems,
    /// Of the one that was received last.
    name: Option<Vec<u8>>,
}

/// Items in the order in which they came; `None`: removed.
#[derive(Default)]
struct Memtable {
    items: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    bytes: u64,
}

/// Small: a test seals several.
const MEMTABLE_BYTES_MAX: u64 = 16 << 10;

fn put(items: &mut StoreItems, key: &[u8], value: Option<&[u8]>) {
    match value {
        Some(value) => drop(items.insert(key.to_vec(), value.to_vec())),
        None => drop(items.remove(key)),
    }
}

impl MemoryStore {
    /// Seals memtables of that many bytes from now on.
    pub fn set_memtable_bytes_max(&self, bytes: u64) {
        self.state.lock().memtable_bytes_max = Some(bytes);
    }

    /// Ends the process that uses it, with or without the power: what is in no table is lost.
    pub fn lose_memory(&self) {
        let mut state = self.state.lock();
        state.other.clear();
        state.items = state.tables.clone();
        (state.open, state.sealed) = (Memtable::default(), VecDeque::new());
        state.durable = state.applied;
    }

    /// The entries of memtables that wait to become tables, oldest first.
    pub fn sealed(&self) -> Vec<LogIndex> {
        self.state.lock().sealed.iter().map(|(_, through)| *through).collect()
    }

    /// The oldest sealed memtable becomes a table, whatever of the log is durable. False if there is none.
    pub fn write_table(&self) -> bool {
        self.state.lock().write_table()
    }

    /// From now on the tables are said to be complete up to `applied`.
    pub fn pretend_applied(&self, applied: LogIndex) {
        self.state.lock().applied = applied;
    }

    /// The log is durable up to `durable`, or further, as was said before; memtables stay what they are. Returns how
    /// far it is durable.
    pub fn note_durable(&self, durable: LogIndex) -> LogIndex {
        let mut state = self.state.lock();
        state.durable = state.durable.max(durable);
        state.durable
    }
}

impl MemoryState {
    fn add(&mut self, batch: &StoreBatch) -> u64 {
        let items = Arc::make_mut(&mut self.items);
        for (key, value) in batch.iter() {
            put(items, key, value);
            self.open.bytes += (key.len() + value.map_or(0, <[u8]>::len)) as u64;
            self.open.items.push((key.to_vec(), value.map(<[u8]>::to_vec)));
        }
        self.open.bytes
    }

    fn write_table(&mut self) -> bool {
        let Some((memtable, through)) = self.sealed.pop_front() else { return false };
        let tables = Arc::make_mut(&mut self.tables);
        memtable.items.iter().for_each(|(key, value)| put(tables, key, value.as_deref()));
        self.applied = through;
        true
    }
}

impl VersionStore for MemoryStore {
    fn begin(&self) -> Result<LogIndex, Fault> {
        self.lose_memory();
        self.applied()
    }

    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<StoreItem>, Fault> {
        let state = self.state.lock();
        Ok(state.items.range(from.to_vec()..=to.to_vec()).next_back().map(|(k, v)| (k.clone(), v.clone())))
    }

    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoreItem, Fault>> + '_> {
        let state = self.state.lock();
        let items: Vec<_> =
            state.items.range(from.to_vec()..=to.to_vec()).map(|(k, v)| Ok((k.clone(), v.clone()))).collect();
        Box::new(items.into_iter())
    }

    fn insert(&self, batch: &StoreBatch) -> u64 {
        self.state.lock().add(batch)
    }

    fn memtable_bytes_max(&self) -> u64 {
        self.state.lock().memtable_bytes_max.unwrap_or(MEMTABLE_BYTES_MAX)
    }

    fn seal(&self, batch: &StoreBatch, through: LogIndex) {
        let mut state = self.state.lock();
        state.add(batch);
        let sealed = std::mem::take(&mut state.open);
        state.sealed.push_back((sealed, through));
    }

    fn settle(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        let mut state = self.state.lock();
        state.durable = state.durable.max(durable);
        while state.sealed.front().is_some_and(|(_, through)| *through <= state.durable) {
            state.write_table();
        }
        Ok(state.applied)
    }

    fn applied(&self) -> Result<LogIndex, Fault> {
        Ok(self.state.lock().applied)
    }

    fn persist(&self) -> Result<(), Fault> {
        self.settle(LogIndex(0)).map(drop)
    }

    fn view(&self) -> Result<Box<dyn StoreView>, Fault> {
        let state = self.state.lock();
        Ok(Box::new(MemoryView(state.items.clone())))
    }

    fn begin_snapshot(&self) -> Result<(), Fault> {
        self.state.lock().other.clear();
        Ok(())
    }

    fn put_snapshot(&self, items: Vec<StoreItem>) -> Result<(), Fault> {
        self.state.lock().other.extend(items);
        Ok(())
    }

    fn received_snapshot(&self) -> Result<Box<dyn StoreView>, Fault> {
        let state = self.state.lock();
        Ok(Box::new(MemoryView(Arc::new(state.other.clone()))))
    }

    fn install_snapshot(&self, applied: LogIndex, name: &[u8]) -> Result<(), Fault> {
        let mut state = self.state.lock();
        state.tables = Arc::new(std::mem::take(&mut state.other));
        state.items = state.tables.clone();
        (state.open, state.sealed) = (Memtable::default(), VecDeque::new());
        (state.applied, state.durable) = (applied, applied);
        state.name = Some(name.to_vec());
        Ok(())
    }

    fn name(&self) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.state.lock().name.clone())
    }
}

struct MemoryView(Arc<StoreItems>);

impl StoreView for MemoryView {
    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoreItem, Fault>> + '_> {
        Box::new(self.0.range(from.to_vec()..=to.to_vec()).map(|(key, value)| Ok((key.clone(), value.clone()))))
    }
}
