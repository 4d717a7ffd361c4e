//! The overlay: versions of entries that are not durable in the metalog.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use frieze_base::{Fault, LogIndex};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, RwLock, levels};
use frieze_namespace::{KeyVersion, erases, is_rewritten, keeps_versions};

use super::keys::{encode_in_place, encode_value, stored_key, stored_key_into};
use super::time_index;
use super::version_store::{CleanStartImage, CurrentVersions, VersionStore};

/// The history of the namespace: the overlay over the store.
pub struct NameVersions {
    pub(super) store: Box<dyn VersionStore>,
    pub(super) overlay: RwLock<levels::VersionOverlay, BTreeMap<Vec<u8>, Vec<u8>>>,
    pub(super) waiting: Mutex<levels::UnsettledChanges, UnsettledChanges>,
    /// Held while versions are handed to the store: one at a time, so that it can be looked at in between.
    pub(super) settling: Mutex<levels::SettlingTurn, ()>,
}

#[derive(Default)]
pub(super) struct UnsettledChanges {
    pub(super) batches: VecDeque<(LogIndex, Arc<[KeyVersion]>)>,
    pub(super) changes: usize,
}

impl NameVersions {
    /// An empty overlay over `store`.
    pub fn new(store: Box<dyn VersionStore>) -> NameVersions {
        NameVersions { store, overlay: RwLock::default(), waiting: Mutex::default(), settling: Mutex::default() }
    }

    /// The store without the overlay.
    pub fn into_store(self) -> Box<dyn VersionStore> {
        self.store
    }

    /// The index up to which the store on disk is complete.
    pub fn applied(&self) -> Result<LogIndex, Fault> {
        self.store.applied()
    }

    /// Takes the changes of the metalog entry `index` into the overlay: they are readable from now.
    pub fn add(&self, index: LogIndex, changes: Vec<KeyVersion>) {
        {
            let mut overlay = self.overlay.write();
            for change in changes.iter().filter(|change| keeps_versions(&change.key)) {
                overlay.insert(stored_key(&change.key, change.stamp), encode_value(change.value.as_deref()));
            }
        }
        let mut waiting = self.waiting.lock();
        waiting.changes += changes.len();
        waiting.batches.push_back((index, changes.into()));
    }

    /// Number of changes that wait in RAM for their metalog entries to become durable.
    pub fn waiting(&self) -> usize {
        self.waiting.lock().changes
    }

    /// Moves the changes of all entries up to `durable` from the overlay into the store. Returns how far the store is.
    ///
    /// # Errors
    /// The store's; nothing is lost: the changes stay in the overlay and the next call tries again.
    pub fn settle(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        let _one = self.settling.lock();
        self.settle_locked(durable)
    }

    pub(super) fn settle_locked(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        // They stay in the queue until the store has them, so that the index of time misses none meanwhile.
        let taken: Vec<(LogIndex, Arc<[KeyVersion]>)> = {
            let waiting = self.waiting.lock();
            waiting.batches.iter().take_while(|(index, _)| *index <= durable).cloned().collect()
        };
        let Some(applied) = taken.last().map(|(index, _)| *index) else {
            return self.store.applied();
        };
        let mut puts = Vec::new();
        // What may be written several times, of which the last counts.
        let mut in_place: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        let changes = || taken.iter().flat_map(|(_, changes)| changes.iter());
        for KeyVersion { key, stamp, value } in changes() {
            let value = value.as_deref();
            if !keeps_versions(key) {
                in_place.insert(stored_key(key, Hlc::ZERO), value.map(|value| encode_in_place(*stamp, value)));
            } else if is_rewritten(key) {
                let erased = value.is_none() && erases(key, *stamp);
                in_place.insert(stored_key(key, *stamp), (!erased).then(|| encode_value(value)));
            } else {
                puts.push((stored_key(key, *stamp), encode_value(value)));
            }
        }
        let mut removals = Vec::new();
        for (key, value) in in_place {
            match value {
                Some(value) => puts.push((key, value)),
                None => removals.push(key),
            }
        }
        puts.extend(time_index::pages(changes()));
        self.store.commit(puts, removals, applied)?;
        {
            let mut waiting = self.waiting.lock();
            while let Some((_, changes)) = waiting.batches.pop_front_if(|(index, _)| *index <= applied) {
                waiting.changes -= changes.len();
            }
        }
        let mut key = Vec::new();
        let mut overlay = self.overlay.write();
        for change in changes().filter(|change| keeps_versions(&change.key)) {
            stored_key_into(&change.key, change.stamp, &mut key);
            // What was written again in its place meanwhile waits for its own entry.
            let is_newer = |value: &Vec<u8>| *value != encode_value(change.value.as_deref());
            if !is_rewritten(&change.key) || !overlay.get(&key).is_some_and(is_newer) {
                overlay.remove(&key);
            }
        }
        Ok(applied)
    }

    /// See [`VersionStore::keep_cached`].
    pub fn keep_cached(&self, bytes_max: u64) -> Result<u64, Fault> {
        self.store.keep_cached(bytes_max)
    }

    /// Makes the store durable up to what was settled.
    pub fn persist(&self) -> Result<(), Fault> {
        self.store.persist()
    }

    /// See [`VersionStore::rest`].
    pub fn rest(&self) -> Result<(), Fault> {
        self.store.rest()
    }

    /// See [`VersionStore::write_clean_start_image`]: of a namespace into which nothing was executed that is not in the
    /// store.
    pub fn write_clean_start_image(&self, newest: &CurrentVersions<'_>) -> Result<(), Fault> {
        self.store.write_clean_start_image(newest)
    }

    /// See [`VersionStore::clean_start_image`].
    pub fn clean_start_image(&self) -> Result<Option<CleanStartImage<'_>>, Fault> {
        self.store.clean_start_image()
    }

    /// See [`VersionStore::read_both`].
    pub fn read_both(&self, one: &mut (dyn FnMut() + Send), other: &mut (dyn FnMut() + Send)) {
        self.store.read_both(one, other);
    }
}
