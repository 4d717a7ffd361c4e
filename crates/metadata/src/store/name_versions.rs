//! The history of the namespace: what entries of the metalog change goes into the store as they are executed.
//!
//! Guarantees: a memtable of the store is sealed behind an entry, together with all that the entries up to it changed,
//! so a table is the state after one entry. Readers find a change from the moment at which it is added.
//!
//! Three kinds of items wait here in memory until a memtable is sealed, because most of them never need to be stored:
//! the newest value of a key that keeps no history (most outcomes are acknowledged, and removed, before), changes that
//! have not filled a page of the index of time, and stamps that have not filled a page of their directory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use frieze_base::{Fault, LogIndex, Reason};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, levels};
use frieze_namespace::{
    KeyVersion, VersionHistory, entry_stamps_of, erases, inode_key, is_rewritten, is_timed, keeps_versions,
};

use super::batch::StoreBatch;
use super::entry_pages::WaitingPages;
use super::keys::{decode_value, encode_in_place, encode_value_into, stored_key, stored_key_into};
use super::time_index::{self, PAGE_CHANGES};
use super::version_store::VersionStore;

/// The history of the namespace, in a store.
pub struct NameVersions {
    pub(super) store: Box<dyn VersionStore>,
    young: Mutex<levels::YoungVersions, YoungVersions>,
    pub(super) waiting: WaitingPages,
    /// Stamp of the newest change of which readers find all that came before and with it.
    newest: AtomicU64,
}

/// What was added since the last memtable was sealed, as far as it is not in the store.
#[derive(Default)]
pub(super) struct YoungVersions {
    /// Used again for each entry.
    batch: StoreBatch,
    /// Stamps and keys of changes that no page of the index of time names.
    unpaged: Vec<(Hlc, Vec<u8>)>,
    /// Stamp of the newest change that the index of time names.
    newest: Hlc,
    /// The keys of unpaged changes of that stamp, once they are many: those of a change of many names.
    of_newest: BTreeSet<Vec<u8>>,
    /// The newest value of keys that keep no history, as they are stored; `None`: the store has one, which goes.
    in_place: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Keys without history that the store has.
    in_store: BTreeSet<Vec<u8>>,
    /// The last entry added.
    added: LogIndex,
    /// The last entry of the memtable that was sealed last.
    sealed: LogIndex,
    /// What a start has to replay of the entries since, in bytes.
    replay_bytes: u64,
    /// Changes since the log was last durable up to `added`.
    unsettled: usize,
}

/// What replaying an entry and a change costs, in bytes of keys and values.
const ENTRY_BYTES: u64 = 64;
const CHANGE_BYTES: u64 = 64;
/// Changes of one stamp that are searched one by one.
const SEARCHED_MAX: usize = 32;

impl NameVersions {
    /// The history in `store`, of a process that begins.
    ///
    /// # Errors
    /// The store's.
    pub fn open(store: Box<dyn VersionStore>) -> Result<NameVersions, Fault> {
        store.begin()?;
        let young = YoungVersions::read(&*store)?;
        let newest = AtomicU64::new(young.newest.0);
        Ok(NameVersions { store, young: Mutex::new(young), waiting: WaitingPages::default(), newest })
    }

    /// The store alone.
    pub fn into_store(self) -> Box<dyn VersionStore> {
        self.store
    }

    /// The index up to which the tables of the store are complete.
    ///
    /// # Errors
    /// The store's.
    pub fn applied(&self) -> Result<LogIndex, Fault> {
        self.store.applied()
    }

    /// Adds the changes of the metalog entry `index`: they are readable from now on. Several changes of one entry under
    /// one stamp and key count as one, the last.
    ///
    /// A version may be written again under its old stamp: it replaces the older value, and the index of time, which
    /// names the change already, gets no other entry.
    pub fn add(&self, index: LogIndex, changes: Vec<KeyVersion>) {
        let mut guard = self.young.lock();
        let young = &mut *guard;
        young.batch.clear();
        young.replay_bytes += ENTRY_BYTES;
        young.unsettled += changes.len();
        young.added = index;
        for change in changes {
            let value_bytes = change.value.as_ref().map_or(0, Vec::len);
            young.replay_bytes += (change.key.len() + value_bytes) as u64 + CHANGE_BYTES;
            if let Some(directory) = entry_stamps_of(&change.key) {
                if young.note_time(change.stamp, inode_key(directory)) {
                    self.waiting.push(directory, &change);
                }
                continue;
            }
            let KeyVersion { key, stamp, value } = change;
            if !keeps_versions(&key) {
                young.put_in_place(&key, stamp, value.as_deref());
            } else if value.is_none() && is_rewritten(&key) && erases(&key, stamp) {
                young.batch.remove_with(|bytes| stored_key_into(&key, stamp, bytes));
            } else {
                let (write_key, write_value) = (
                    |bytes: &mut Vec<u8>| stored_key_into(&key, stamp, bytes),
                    |bytes: &mut Vec<u8>| encode_value_into(value.as_deref(), bytes),
                );
                young.batch.put_with(write_key, write_value);
                if is_timed(&key) {
                    let _is_new = young.note_time(stamp, key);
                }
            }
        }
        let is_page = young.unpaged.len() >= PAGE_CHANGES;
        if is_page {
            young.put_pages();
        }
        self.waiting.put_full(&mut young.batch);
        let bytes = if young.batch.is_empty() { 0 } else { self.store.insert(&young.batch) };
        if is_page {
            young.drop_unpaged();
        }
        self.waiting.drop_full();
        self.newest.store(young.newest.0, Ordering::Release);
        if bytes.max(young.replay_bytes) >= self.store.memtable_bytes_max() {
            self.seal(young);
        }
    }

    /// Closes the memtable behind the last entry.
    fn seal(&self, young: &mut YoungVersions) {
        if young.added <= young.sealed {
            return;
        }
        young.batch.clear();
        young.put_pages();
        self.waiting.put_all(&mut young.batch);
        for (key, value) in std::mem::take(&mut young.in_place) {
            match value {
                Some(value) => {
                    young.batch.put(&key, &value);
                    young.in_store.insert(key);
                }
                None => {
                    young.batch.remove(&key);
                    young.in_store.remove(&key);
                }
            }
        }
        self.store.seal(&young.batch, young.added);
        young.drop_unpaged();
        self.waiting.drop_all();
        (young.sealed, young.replay_bytes) = (young.added, 0);
    }

    /// Number of changes whose entries may not be durable.
    pub fn unsettled(&self) -> usize {
        self.young.lock().unsettled
    }

    /// The log is durable up to `durable`. Returns how far the tables are complete.
    ///
    /// # Errors
    /// The store's; nothing is lost: the changes stay in memory, and the store tries again.
    pub fn settle(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        {
            let mut young = self.young.lock();
            if durable >= young.added {
                young.unsettled = 0;
            }
        }
        self.store.settle(durable)
    }

    /// Waits until tables hold all entries up to that of the last [`NameVersions::settle`].
    ///
    /// # Errors
    /// See [`VersionStore::persist`]; nothing is lost.
    pub fn persist(&self) -> Result<(), Fault> {
        self.seal(&mut self.young.lock());
        self.store.persist()
    }

    /// See [`VersionStore::check_room`].
    pub fn check_room(&self) -> Result<(), Fault> {
        self.store.check_room()
    }

    /// See [`VersionStore::is_overfull`].
    pub fn is_overfull(&self) -> bool {
        self.store.is_overfull()
    }

    /// See [`VersionStore::keep_cached`].
    pub fn keep_cached(&self, bytes_max: u64) -> Result<u64, Fault> {
        self.store.keep_cached(bytes_max)
    }

    /// See [`VersionStore::rest`].
    pub fn rest(&self) {
        self.store.rest();
    }

    /// See [`VersionStore::read_both`].
    pub fn read_both(&self, one: &mut (dyn FnMut() + Send), other: &mut (dyn FnMut() + Send)) {
        self.store.read_both(one, other);
    }

    /// Changes that no page names, of the time after `after`, in order of stamp.
    pub(super) fn unpaged_since(&self, after: Hlc) -> Vec<(Hlc, Vec<u8>)> {
        let young = self.young.lock();
        let begin = young.unpaged.partition_point(|(stamp, _)| *stamp <= after);
        young.unpaged[begin..].to_vec()
    }

    /// The value of the version of a key with exactly this stamp; `None`: it says that the key is absent.
    ///
    /// # Errors
    /// `Corrupt` if there is no such version; the store's.
    pub(crate) fn version(&self, key: &[u8], stamp: Hlc) -> Result<Option<Vec<u8>>, Fault> {
        if let Some(stored) = self.store.get(&stored_key(key, stamp))? {
            return Ok(decode_value(&stored).map(<[u8]>::to_vec));
        }
        // A directory whose entries changed has no version of its own at that stamp.
        match self.newest(key, stamp)? {
            Some((found, value)) if found == stamp => Ok(value),
            _ => {
                let words = format!("the namespace's store lacks the version of {key:02x?} at {stamp}, which it names");
                Err(Fault::new(Reason::Corrupt, words))
            }
        }
    }

    /// Closes the memtable behind the last entry: the index of that entry, and the stamp of the newest change that the
    /// index of time names.
    pub(crate) fn seal_last(&self) -> (LogIndex, Hlc) {
        let mut young = self.young.lock();
        self.seal(&mut young);
        (young.added, young.newest)
    }

    /// Closes the memtable behind the last entry, which is `through` or comes before, and calls `take` before another
    /// is added.
    pub(super) fn sealed_at<T>(&self, through: LogIndex, take: impl FnOnce(&dyn VersionStore) -> T) -> T {
        let mut young = self.young.lock();
        assert!(young.added <= through, "entry {} was executed, which comes after {through}", young.added);
        self.seal(&mut young);
        take(&*self.store)
    }

    /// Another state has taken the place of the store's: what waits in memory is of the former one.
    ///
    /// # Errors
    /// Those of `replace`, which puts it there while nothing can be added; the store's.
    pub(super) fn replace(&self, replace: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
        let mut young = self.young.lock();
        replace()?;
        self.waiting.drop_all();
        *young = YoungVersions::read(&*self.store)?;
        self.newest.store(young.newest.0, Ordering::Release);
        Ok(())
    }

    /// Calls `read` while nothing is added and nothing goes from memory to the store.
    pub(super) fn while_nothing_is_added<T>(&self, read: impl FnOnce() -> T) -> T {
        let young = self.young.lock();
        let answer = read();
        drop(young);
        answer
    }

    /// Stamp of the newest change of which a reader finds all that came before and with it, from now on.
    pub(crate) fn newest_change(&self) -> Hlc {
        Hlc(self.newest.load(Ordering::Acquire))
    }
}

impl YoungVersions {
    /// Nothing but what the store has.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn read(store: &dyn VersionStore) -> Result<YoungVersions, Fault> {
        let mut in_store = BTreeSet::new();
        for letter in (0..u8::MAX).filter(|letter| !keeps_versions(&[*letter])) {
            store.visit(&[letter], &[letter + 1], &mut |key, _| {
                if key.first() == Some(&letter) {
                    in_store.insert(key.to_vec());
                }
                Ok(())
            })?;
        }
        let page = store.last_in(&time_index::page_key(Hlc::ZERO), &time_index::page_key(Hlc::MAX))?;
        let newest = page.map_or(Ok(Hlc::ZERO), |page| time_index::last_stamp(&page))?;
        let applied = store.applied()?;
        Ok(YoungVersions { in_store, newest, added: applied, sealed: applied, ..YoungVersions::default() })
    }

    fn put_in_place(&mut self, key: &[u8], stamp: Hlc, value: Option<&[u8]>) {
        let key = stored_key(key, Hlc::ZERO);
        match value {
            Some(value) => drop(self.in_place.insert(key, Some(encode_in_place(stamp, value)))),
            None if self.in_store.contains(&key) => drop(self.in_place.insert(key, None)),
            None => drop(self.in_place.remove(&key)),
        }
    }

    /// Notes a change for the index of time, unless it was noted already: then false. Stamps of new changes never fall.
    fn note_time(&mut self, stamp: Hlc, key: Vec<u8>) -> bool {
        let is_again = stamp < self.newest || stamp == self.newest && self.is_noted(&key);
        if !is_again {
            if stamp > self.newest {
                self.of_newest.clear();
                self.newest = stamp;
            } else if !self.of_newest.is_empty() {
                self.of_newest.insert(key.clone());
            }
            self.unpaged.push((stamp, key));
        }
        !is_again
    }

    /// True if the index of time has a change of this key at the newest stamp, or may have paged it.
    fn is_noted(&mut self, key: &[u8]) -> bool {
        if !self.of_newest.is_empty() {
            return self.of_newest.contains(key);
        }
        let mut same = self.unpaged.iter().rev().take_while(|(noted, _)| *noted == self.newest);
        let count = same.clone().take(SEARCHED_MAX + 1).count();
        if count <= SEARCHED_MAX {
            return count == 0 || same.any(|(_, noted)| noted == key);
        }
        self.of_newest = same.map(|(_, key)| key.clone()).collect();
        self.of_newest.contains(key)
    }

    /// All changes are in pages.
    fn drop_unpaged(&mut self) {
        self.unpaged.clear();
        self.of_newest.clear();
    }

    /// Adds pages of all changes that no page names to the batch.
    fn put_pages(&mut self) {
        for (key, value) in time_index::pages_of(&self.unpaged) {
            self.batch.put(&key, &value);
        }
    }
}
