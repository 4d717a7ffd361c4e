//! A state that comes from another server, and one that goes to another: whole stores, beside the one in use.
//!
//! Guarantees: what is sent is the store as it was after one entry, whatever is committed meanwhile; what is received
//! is not visible before all of it is here, and then takes the place of the old at once.

use frieze_base::{Fault, LogIndex};
use frieze_namespace::{ENTRY_STAMPS, keeps_versions, visit_entry_stamps};

use super::entry_pages::{FoundPage, found_page};
use super::load::{LoadPart, load_newest};
use super::name_versions::NameVersions;
use super::time_index::TIMES;
use super::version_store::{LoadVersion, StoreItem, StoreView};

/// Larger than every key in a store.
const LAST_KEY: [u8; 320] = [0xff; 320];

impl NameVersions {
    /// The store as it is after the entry `through`, which has been executed, as have all before it and none after it.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn view(&self, through: LogIndex) -> Result<Box<dyn StoreView>, Fault> {
        // A memtable that is sealed holds what otherwise waits in memory.
        self.sealed_at(through, |store| store.view())
    }

    /// Begins to receive another state.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn begin_snapshot(&self) -> Result<(), Fault> {
        self.store.begin_snapshot()
    }

    /// Takes items of the other state.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn put_snapshot(&self, items: Vec<StoreItem>) -> Result<(), Fault> {
        self.store.put_snapshot(items)
    }

    /// As [`NameVersions::load`], of the other state.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn load_snapshot(&self, part: &LoadPart, load: &mut LoadVersion<'_>) -> Result<(), Fault> {
        let other = self.store.received_snapshot()?;
        load_newest(part, &|from, to, visit| other.visit(from, to, visit), load)
    }

    /// Puts the other state in the place of this one. Readers find the one or the other.
    ///
    /// # Errors
    /// The store's: it is as before.
    pub(crate) fn install_snapshot(&self, applied: LogIndex, name: &[u8]) -> Result<(), Fault> {
        self.replace(|| self.store.install_snapshot(applied, name))
    }

    /// The name of the state that was received last.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn name(&self) -> Result<Option<Vec<u8>>, Fault> {
        self.store.name()
    }

    /// A number that is the same for equal histories, whatever of them is in tables already.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn digest(&self) -> Result<u64, Fault> {
        let mut hasher = blake3::Hasher::new();
        // How changes lie in pages depends on when memtables were sealed. Those of the index of time repeat what
        // versions say; of the others each change counts, in any order. Outcomes are kept in place, and are in the
        // namespace too.
        let mut entry_changes = 0_u64;
        let mut add_page = |(directory, first, page): FoundPage| {
            visit_entry_stamps(directory, first, &page, &mut |change| {
                let mut one = blake3::Hasher::new();
                for part in [directory.0, change.stamp.0, change.session.0, change.uid.into()] {
                    one.update(&part.to_le_bytes());
                }
                entry_changes = entry_changes.wrapping_add(start_of(&one));
                true
            })
        };
        self.while_nothing_is_added(|| {
            self.waiting.pages(None).into_iter().try_for_each(&mut add_page)?;
            self.store.visit(&[], &LAST_KEY, &mut |key, value| {
                if key.first() == Some(&ENTRY_STAMPS) {
                    add_page(found_page((key.to_vec(), value.to_vec()))?)?;
                } else if key.first() != Some(&TIMES) && keeps_versions(key) {
                    for part in [key, value] {
                        hasher.update(&(part.len() as u64).to_le_bytes());
                        hasher.update(part);
                    }
                }
                Ok(())
            })
        })?;
        hasher.update(&entry_changes.to_le_bytes());
        Ok(start_of(&hasher))
    }
}

fn start_of(hasher: &blake3::Hasher) -> u64 {
    u64::from_le_bytes(hasher.finalize().as_bytes()[..8].try_into().expect("eight of 32 bytes"))
}

/// Items of a view after the key `after` (empty: from the first), about `bytes_max` bytes of them and one at least;
/// none at the end.
///
/// # Errors
/// The store's.
pub(crate) fn page_of(view: &dyn StoreView, after: &[u8], bytes_max: usize) -> Result<Vec<StoreItem>, Fault> {
    let mut from = after.to_vec();
    if !after.is_empty() {
        from.push(0);
    }
    let (mut items, mut bytes) = (Vec::new(), 0);
    for item in view.items(&from, &LAST_KEY) {
        let (key, value) = item?;
        bytes += key.len() + value.len();
        items.push((key, value));
        if bytes >= bytes_max {
            break;
        }
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{MemoryStore, StoreBatch, VersionStore};

    fn item(number: u8) -> StoreItem {
        (vec![number; 3], vec![number; 10])
    }

    #[test]
    fn a_view_shows_what_was_there_when_it_was_taken_page_by_page() {
        let store = MemoryStore::default();
        let mut batch = StoreBatch::default();
        (1..=9).map(item).for_each(|(key, value)| batch.put(&key, &value));
        store.insert(&batch);
        let view = store.view().unwrap();
        batch.clear();
        batch.put(&item(10).0, &item(10).1);
        batch.remove(&item(3).0);
        store.insert(&batch);
        let (mut found, mut after) = (Vec::new(), Vec::new());
        loop {
            let page = page_of(&*view, &after, 30).unwrap();
            let Some(last) = page.last() else { break };
            after = last.0.clone();
            found.extend(page);
        }
        assert_eq!(found, (1..=9).map(item).collect::<Vec<_>>());
    }
}
