//! Where the versions of the namespace live: an overlay in RAM for what is not yet durable in the metalog, and a
//! key-value store on disk for the rest.
//!
//! Guarantees: the store never holds a version whose metalog entry could still be lost, because entries move into it
//! only once they are durable; every commit carries the index it brings the store to, atomically. So after a crash the
//! store is the state of some durable prefix of the metalog, and the rest is replayed.
//!
//! A stored key is the namespace's key with its zero bytes escaped (`00` → `00 ff`), a terminator (`00 00`) and the
//! stamp, big-endian: byte order is key order, then time order. Keys that keep no history (remembered outcomes, `R…`)
//! have stamp 0 and are overwritten and removed in place; their stamp stands before the value.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError, RwLock};

use frieze_base::{Fault, LogIndex, Reason};
use frieze_hlc::Hlc;
use frieze_namespace::{Change, History, VisitValue, VisitVersion, keeps_versions};

/// A sorted map on stable storage, the seam under the namespace's history.
pub trait VersionStore: Send + Sync {
    /// The last item with a key in `from..=to`.
    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<Item>, Fault>;
    /// All items with a key in `from..=to`, in order.
    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Item, Fault>> + '_>;
    /// Adds `puts`, removes `removals` and records that the metalog is applied up to `applied`: all or nothing.
    fn commit(&self, puts: Vec<Item>, removals: Vec<Vec<u8>>, applied: LogIndex) -> Result<(), Fault>;
    /// The index of the last commit.
    fn applied(&self) -> Result<LogIndex, Fault>;
    /// Makes every commit so far durable.
    fn persist(&self) -> Result<(), Fault>;
}

/// Takes a key, the stamp of its newest version, and the value.
type LoadVersion<'a> = dyn FnMut(&[u8], Hlc, &[u8]) + 'a;

/// A stored key and value.
pub type Item = (Vec<u8>, Vec<u8>);

const PRESENT: u8 = 1;
const ABSENT: u8 = 0;
/// Present, of a key that keeps no history: the stamp follows, big-endian, then the value.
const PRESENT_SINCE: u8 = 2;

fn escape_into(key: &[u8], out: &mut Vec<u8>) {
    for &byte in key {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
}

fn stored_key(key: &[u8], stamp: Hlc) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 18);
    escape_into(key, &mut out);
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&stamp.0.to_be_bytes());
    out
}

fn parse_stored_key(stored: &[u8]) -> Result<(Vec<u8>, Hlc), Fault> {
    let corrupt = || Fault::new(Reason::Corrupt, format!("the namespace's store holds a malformed key {stored:02x?}"));
    let escaped = stored.len().checked_sub(10).map(|end| &stored[..end]).ok_or_else(corrupt)?;
    if stored[escaped.len()..escaped.len() + 2] != [0, 0] {
        return Err(corrupt());
    }
    let mut key = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(&byte) = bytes.next() {
        key.push(byte);
        if byte == 0 && bytes.next() != Some(&0xff) {
            return Err(corrupt());
        }
    }
    let mut stamp = [0u8; 8];
    stamp.copy_from_slice(&stored[stored.len() - 8..]);
    Ok((key, Hlc(u64::from_be_bytes(stamp))))
}

/// First stored key above every key that starts with `prefix`; keys are far shorter than the run of `ff` added.
fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = Vec::with_capacity(prefix.len() + 24);
    escape_into(prefix, &mut end);
    end.extend_from_slice(&[0xff; 320]);
    end
}

fn encode_value(value: Option<&[u8]>) -> Vec<u8> {
    match value {
        None => vec![ABSENT],
        Some(value) => {
            let mut bytes = Vec::with_capacity(value.len() + 1);
            bytes.push(PRESENT);
            bytes.extend_from_slice(value);
            bytes
        }
    }
}

fn encode_in_place(stamp: Hlc, value: &[u8]) -> Vec<u8> {
    [&[PRESENT_SINCE][..], &stamp.0.to_be_bytes(), value].concat()
}

/// The stamp and value of a stored item, wherever its stamp stands; `None` if it says that the key is absent.
fn decode_item(stamp: Hlc, stored: &[u8]) -> Option<(Hlc, &[u8])> {
    match stored.split_first()? {
        (&PRESENT, value) => Some((stamp, value)),
        (&PRESENT_SINCE, rest) => {
            let (since, value) = rest.split_first_chunk()?;
            Some((Hlc(u64::from_be_bytes(*since)), value))
        }
        _ => None,
    }
}

fn decode_value(stored: &[u8]) -> Option<&[u8]> {
    match stored.split_first() {
        Some((&PRESENT, value)) => Some(value),
        _ => None,
    }
}

/// The history of the namespace: the overlay over the store.
pub(crate) struct Versions {
    store: Box<dyn VersionStore>,
    overlay: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    batches: std::collections::VecDeque<(LogIndex, Vec<Change>)>,
    changes: usize,
}

impl Versions {
    /// An empty overlay over `store`.
    pub(crate) fn new(store: Box<dyn VersionStore>) -> Versions {
        Versions { store, overlay: RwLock::default(), waiting: Mutex::default() }
    }

    /// The store without the overlay.
    pub(crate) fn into_store(self) -> Box<dyn VersionStore> {
        self.store
    }

    /// The index up to which the store on disk is complete.
    pub(crate) fn applied(&self) -> Result<LogIndex, Fault> {
        self.store.applied()
    }

    /// Takes the changes of the metalog entry `index` into the overlay: they are readable from now.
    pub(crate) fn add(&self, index: LogIndex, changes: Vec<Change>) {
        {
            let mut overlay = self.overlay.write().unwrap_or_else(PoisonError::into_inner);
            for change in changes.iter().filter(|change| keeps_versions(&change.key)) {
                overlay.insert(stored_key(&change.key, change.stamp), encode_value(change.value.as_deref()));
            }
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.changes += changes.len();
        waiting.batches.push_back((index, changes));
    }

    /// Number of changes that wait in RAM for their metalog entries to become durable.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).changes
    }

    /// Moves the changes of all entries up to `durable` from the overlay into the store. Returns how far the store is.
    ///
    /// # Errors
    /// The store's; nothing is lost: the changes stay in the overlay and the next call tries again.
    pub(crate) fn settle(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        let mut taken: Vec<(LogIndex, Vec<Change>)> = Vec::new();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            while waiting.batches.front().is_some_and(|(index, _)| *index <= durable) {
                let batch = waiting.batches.pop_front().expect("the front was looked at");
                waiting.changes -= batch.1.len();
                taken.push(batch);
            }
        }
        let Some(applied) = taken.last().map(|(index, _)| *index) else {
            return self.store.applied();
        };
        let mut puts = Vec::new();
        let mut in_place: BTreeMap<&[u8], Option<(Hlc, &[u8])>> = BTreeMap::new();
        for change in taken.iter().flat_map(|(_, changes)| changes) {
            if keeps_versions(&change.key) {
                puts.push((stored_key(&change.key, change.stamp), encode_value(change.value.as_deref())));
            } else {
                in_place.insert(&change.key, change.value.as_deref().map(|value| (change.stamp, value)));
            }
        }
        let mut removals = Vec::new();
        for (key, value) in in_place {
            match value {
                Some((stamp, value)) => puts.push((stored_key(key, Hlc::ZERO), encode_in_place(stamp, value))),
                None => removals.push(stored_key(key, Hlc::ZERO)),
            }
        }
        if let Err(fault) = self.store.commit(puts, removals, applied) {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            for batch in taken.into_iter().rev() {
                waiting.changes += batch.1.len();
                waiting.batches.push_front(batch);
            }
            return Err(fault);
        }
        let mut overlay = self.overlay.write().unwrap_or_else(PoisonError::into_inner);
        for change in taken.iter().flat_map(|(_, changes)| changes).filter(|change| keeps_versions(&change.key)) {
            overlay.remove(&stored_key(&change.key, change.stamp));
        }
        Ok(applied)
    }

    /// Makes the store durable up to what was settled.
    pub(crate) fn persist(&self) -> Result<(), Fault> {
        self.store.persist()
    }

    /// Calls `load` with the newest version of every key that is present: what a restart begins with.
    pub(crate) fn load(&self, load: &mut LoadVersion<'_>) -> Result<(), Fault> {
        let mut newest: Option<(Vec<u8>, Hlc, Vec<u8>)> = None;
        let mut flush = |item: Option<(Vec<u8>, Hlc, Vec<u8>)>| {
            if let Some((key, stamp, stored)) = item
                && let Some((stamp, value)) = decode_item(stamp, &stored)
            {
                load(&key, stamp, value);
            }
        };
        for item in self.store.items(&[], &[0xff; 320]) {
            let (stored, value) = item?;
            let (key, stamp) = parse_stored_key(&stored)?;
            if newest.as_ref().is_some_and(|(last, _, _)| *last != key) {
                flush(newest.take());
            }
            newest = Some((key, stamp, value));
        }
        flush(newest);
        Ok(())
    }

    /// All versions with a stored key in `from..=to`, overlay and store merged.
    fn merged(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), Fault> {
        // An item may be in both for a moment; the store is opened second, so nothing falls between the two.
        let overlay: Vec<Item> = {
            let overlay = self.overlay.read().unwrap_or_else(PoisonError::into_inner);
            overlay.range(from.to_vec()..=to.to_vec()).map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let mut young = overlay.into_iter().peekable();
        for item in self.store.items(from, to) {
            let (key, value) = item?;
            while let Some((young_key, young_value)) = young.next_if(|(young_key, _)| *young_key <= key) {
                if young_key != key && !visit(&young_key, &young_value) {
                    return Ok(());
                }
            }
            if !visit(&key, &value) {
                return Ok(());
            }
        }
        for (key, value) in young {
            if !visit(&key, &value) {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl History for Versions {
    fn newest(&self, key: &[u8], at: Hlc) -> Result<Option<(Hlc, Option<Vec<u8>>)>, Fault> {
        let (from, to) = (stored_key(key, Hlc::ZERO), stored_key(key, at));
        let young = {
            let overlay = self.overlay.read().unwrap_or_else(PoisonError::into_inner);
            overlay.range(from.clone()..=to.clone()).next_back().map(|(key, value)| (key.clone(), value.clone()))
        };
        let old = self.store.last_in(&from, &to)?;
        let Some((stored, value)) = young.into_iter().chain(old).max_by(|a, b| a.0.cmp(&b.0)) else {
            return Ok(None);
        };
        let (_, stamp) = parse_stored_key(&stored)?;
        Ok(Some((stamp, decode_value(&value).map(<[u8]>::to_vec))))
    }

    fn scan(&self, prefix: &[u8], after: &[u8], at: Hlc, visit: &mut VisitValue<'_>) -> Result<(), Fault> {
        let mut from = Vec::new();
        if after.is_empty() {
            escape_into(prefix, &mut from);
        } else {
            // Every version of `after` itself lies below its terminator followed by a full stamp.
            from = stored_key(after, Hlc::MAX);
            from.push(0);
        }
        let mut newest: Option<(Vec<u8>, Hlc, Vec<u8>)> = None;
        let mut stopped = false;
        let mut failed = None;
        self.merged(&from, &prefix_end(prefix), &mut |stored, value| {
            let (key, stamp) = match parse_stored_key(stored) {
                Ok(parsed) => parsed,
                Err(fault) => {
                    failed = Some(fault);
                    return false;
                }
            };
            if stamp > at {
                return true;
            }
            if let Some((last, last_stamp, last_value)) = newest.take_if(|(last, _, _)| *last != key)
                && let Some(present) = decode_value(&last_value)
                && !visit(&last, last_stamp, present)
            {
                stopped = true;
                return false;
            }
            newest = Some((key, stamp, value.to_vec()));
            true
        })?;
        if let Some(fault) = failed {
            return Err(fault);
        }
        if let Some((key, stamp, value)) = newest
            && !stopped
            && let Some(present) = decode_value(&value)
        {
            visit(&key, stamp, present);
        }
        Ok(())
    }

    fn versions(&self, prefix: &[u8], after: Hlc, upto: Hlc, visit: &mut VisitVersion<'_>) -> Result<(), Fault> {
        let mut from = Vec::new();
        escape_into(prefix, &mut from);
        let mut failed = None;
        self.merged(&from, &prefix_end(prefix), &mut |stored, value| match parse_stored_key(stored) {
            Ok((key, stamp)) if stamp > after && stamp <= upto => visit(&key, stamp, decode_value(value)),
            Ok(_) => true,
            Err(fault) => {
                failed = Some(fault);
                false
            }
        })?;
        failed.map_or(Ok(()), Err)
    }
}

/// The store of a real server: an LSM tree in a directory of its own.
pub struct LsmStore {
    database: fjall::Database,
    versions: fjall::Keyspace,
    progress: fjall::Keyspace,
}

const APPLIED_KEY: &[u8] = b"applied";
/// Blocks of history kept in RAM: enough for the directories somebody is looking at, small beside the data.
const CACHE_BYTES: u64 = 32 << 20;

fn store_fault(doing: &'static str) -> impl Fn(fjall::Error) -> Fault {
    move |error| {
        let reason = match &error {
            fjall::Error::Io(cause) if cause.kind() == std::io::ErrorKind::StorageFull => Reason::NoSpace,
            _ => Reason::InputOutput,
        };
        Fault::new(reason, format!("the namespace's store failed while {doing}: {error}"))
    }
}

impl LsmStore {
    /// Opens or makes the store in `directory`.
    pub fn open(directory: &std::path::Path) -> Result<LsmStore, Fault> {
        let failed = store_fault("opening");
        let database = fjall::Database::builder(directory)
            .cache_size(CACHE_BYTES)
            .manual_journal_persist(true)
            .worker_threads(1)
            .open()
            .map_err(&failed)?;
        let versions = database.keyspace("versions", fjall::KeyspaceCreateOptions::default).map_err(&failed)?;
        let progress = database.keyspace("progress", fjall::KeyspaceCreateOptions::default).map_err(&failed)?;
        Ok(LsmStore { database, versions, progress })
    }
}

impl VersionStore for LsmStore {
    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<Item>, Fault> {
        let Some(guard) = self.versions.range(from.to_vec()..=to.to_vec()).next_back() else {
            return Ok(None);
        };
        let (key, value) = guard.into_inner().map_err(store_fault("reading"))?;
        Ok(Some((key.to_vec(), value.to_vec())))
    }

    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Item, Fault>> + '_> {
        Box::new(self.versions.range(from.to_vec()..=to.to_vec()).map(|guard| {
            let (key, value) = guard.into_inner().map_err(store_fault("reading"))?;
            Ok((key.to_vec(), value.to_vec()))
        }))
    }

    fn commit(&self, puts: Vec<Item>, removals: Vec<Vec<u8>>, applied: LogIndex) -> Result<(), Fault> {
        let mut batch = self.database.batch();
        for (key, value) in puts {
            batch.insert(&self.versions, key, value);
        }
        for key in removals {
            batch.remove(&self.versions, key);
        }
        batch.insert(&self.progress, APPLIED_KEY, applied.0.to_be_bytes());
        batch.commit().map_err(store_fault("committing"))
    }

    fn applied(&self) -> Result<LogIndex, Fault> {
        let stored = self.progress.get(APPLIED_KEY).map_err(store_fault("reading"))?;
        let Some(stored) = stored else { return Ok(LogIndex(0)) };
        let bytes: [u8; 8] = stored.as_ref().try_into().map_err(|_| {
            Fault::new(Reason::Corrupt, "the namespace's store holds a malformed applied index".to_owned())
        })?;
        Ok(LogIndex(u64::from_be_bytes(bytes)))
    }

    fn persist(&self) -> Result<(), Fault> {
        self.database.persist(fjall::PersistMode::SyncAll).map_err(store_fault("persisting"))
    }
}

/// A store in memory with the crash behaviour of the real one, for the simulator: what was not persisted may be lost,
/// whole commits at a time, newest first. Clones are the same store.
#[derive(Clone, Default)]
pub struct MemoryStore {
    state: std::sync::Arc<Mutex<MemoryState>>,
}

#[derive(Default)]
struct MemoryState {
    items: BTreeMap<Vec<u8>, Vec<u8>>,
    applied: LogIndex,
    persisted: (BTreeMap<Vec<u8>, Vec<u8>>, LogIndex),
}

impl MemoryStore {
    /// Forgets everything after the last persist, as a loss of power may.
    pub fn lose_power(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.items, state.applied) = state.persisted.clone();
    }
}

impl VersionStore for MemoryStore {
    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<Item>, Fault> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(state.items.range(from.to_vec()..=to.to_vec()).next_back().map(|(k, v)| (k.clone(), v.clone())))
    }

    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Item, Fault>> + '_> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let items: Vec<_> =
            state.items.range(from.to_vec()..=to.to_vec()).map(|(k, v)| Ok((k.clone(), v.clone()))).collect();
        Box::new(items.into_iter())
    }

    fn commit(&self, puts: Vec<Item>, removals: Vec<Vec<u8>>, applied: LogIndex) -> Result<(), Fault> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.items.extend(puts);
        for key in removals {
            state.items.remove(&key);
        }
        state.applied = applied;
        Ok(())
    }

    fn applied(&self) -> Result<LogIndex, Fault> {
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner).applied)
    }

    fn persist(&self) -> Result<(), Fault> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.persisted = (state.items.clone(), state.applied);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
