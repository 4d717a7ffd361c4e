//! A store in memory with the crash behaviour of the real one.

use std::collections::BTreeMap;
use std::sync::Arc;

use frieze_base::{Fault, LogIndex};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, levels};

use super::version_store::{
    CleanStartImage, CurrentVersions, ImageSection, LoadVersion, StoreItem, StoreView, VersionStore,
};

/// A store in memory with the crash behaviour of the real one, for the simulator: what was not persisted may be lost,
/// whole commits at a time, newest first. Clones are the same store.
#[derive(Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<levels::MemoryStore, MemoryState>>,
}

type StoreItems = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Default)]
struct MemoryState {
    items: Arc<StoreItems>,
    applied: LogIndex,
    /// How far it was when it was persisted last, and what has changed since, as it was then.
    persisted: LogIndex,
    before: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// A state that is being received.
    other: StoreItems,
    /// Of the one that was received last.
    name: Option<Vec<u8>>,
    image: Option<MemoryImage>,
}

/// What was image for the next start, and how far the store was.
#[derive(Clone)]
struct MemoryImage {
    applied: LogIndex,
    last_id: u64,
    entries: Vec<ImageItem>,
    inodes: Vec<ImageItem>,
}

type ImageItem = (Vec<u8>, Hlc, Vec<u8>);

fn section(items: Vec<ImageItem>) -> ImageSection<'static> {
    Box::new(move |load: &mut LoadVersion<'_>| {
        items.iter().for_each(|(key, stamp, value)| load(key, *stamp, value));
        Ok(())
    })
}

impl MemoryStore {
    /// Forgets everything after the last persist, as a loss of power may.
    pub fn lose_power(&self) {
        let mut state = self.state.lock();
        state.other.clear();
        let before = std::mem::take(&mut state.before);
        let items = Arc::make_mut(&mut state.items);
        for (key, value) in before {
            match value {
                Some(value) => drop(items.insert(key, value)),
                None => drop(items.remove(&key)),
            }
        }
        state.applied = state.persisted;
    }
}

impl VersionStore for MemoryStore {
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

    fn commit(&self, puts: Vec<StoreItem>, removals: Vec<Vec<u8>>, applied: LogIndex) -> Result<(), Fault> {
        let mut state = self.state.lock();
        state.image = None;
        let MemoryState { items, before, .. } = &mut *state;
        let items = Arc::make_mut(items);
        for (key, value) in puts {
            let old = items.insert(key.clone(), value);
            before.entry(key).or_insert(old);
        }
        for key in removals {
            let old = items.remove(&key);
            before.entry(key).or_insert(old);
        }
        state.applied = applied;
        Ok(())
    }

    fn applied(&self) -> Result<LogIndex, Fault> {
        Ok(self.state.lock().applied)
    }

    fn write_clean_start_image(&self, newest: &CurrentVersions<'_>) -> Result<(), Fault> {
        let (mut entries, mut inodes) = (Vec::new(), Vec::new());
        (newest.entries)(&mut |key, stamp, value| entries.push((key.to_vec(), stamp, value.to_vec())));
        (newest.inodes)(&mut |key, stamp, value| inodes.push((key.to_vec(), stamp, value.to_vec())));
        let mut state = self.state.lock();
        state.image = Some(MemoryImage { applied: state.applied, last_id: newest.last_id, entries, inodes });
        Ok(())
    }

    fn clean_start_image(&self) -> Result<Option<CleanStartImage<'_>>, Fault> {
        let state = self.state.lock();
        let image = state.image.clone().filter(|image| image.applied == state.applied);
        Ok(image.map(|MemoryImage { last_id, entries, inodes, .. }| CleanStartImage {
            last_id,
            entries: section(entries),
            inodes: section(inodes),
        }))
    }

    fn persist(&self) -> Result<(), Fault> {
        let mut state = self.state.lock();
        state.before.clear();
        state.persisted = state.applied;
        Ok(())
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
        state.items = Arc::new(std::mem::take(&mut state.other));
        state.image = None;
        state.applied = applied;
        state.name = Some(name.to_vec());
        state.before.clear();
        state.persisted = applied;
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
