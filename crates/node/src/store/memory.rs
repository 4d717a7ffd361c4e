//! A store in memory with the crash behaviour of the real one.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use frieze_base::{Fault, LogIndex};

use super::{Item, VersionStore};

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
