//! The simulated store of the namespace: a sorted map that ends with the process, and that a power loss reverts to what
//! was persisted.
//!
//! Guarantees: those of [`VersionStore`] and nothing more: a power loss keeps what was persisted and a seeded prefix of
//! the commits since, as a journalling store does. Nothing is changed once the device under it has stopped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frieze_base::{Fault, LogIndex, Reason, Rng};
use frieze_disk::{CrashKind, SimDisk};
use frieze_node::{StoreItem, VersionStore};

/// The store. Clones are the same store.
#[derive(Clone)]
pub(crate) struct SimStore {
    disk: SimDisk,
    state: Arc<Mutex<SimStoreState>>,
}

struct SimStoreState {
    rng: Rng,
    items: BTreeMap<Vec<u8>, Vec<u8>>,
    applied: LogIndex,
    /// Commits since the last persist, with the values they replaced.
    young: VecDeque<Commit>,
    /// Commits and persists until the process dies in one.
    fuse: Option<u64>,
    /// Every so many commits one is forgotten, though it says that it was done: a store that lies.
    forgets_every: Option<u64>,
    commits: u64,
}

struct Commit {
    before: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    applied_before: LogIndex,
}

impl SimStore {
    /// An empty store that dies together with `disk`.
    pub(crate) fn new(disk: SimDisk, seed: u64) -> SimStore {
        let state = SimStoreState {
            rng: Rng::new(seed),
            items: BTreeMap::new(),
            applied: LogIndex(0),
            young: VecDeque::new(),
            fuse: None,
            forgets_every: None,
            commits: 0,
        };
        SimStore { disk, state: Arc::new(Mutex::new(state)) }
    }

    /// Lets the process die in the `changes`-th commit or persist from now (1: the next).
    pub(crate) fn fail_after(&self, changes: u64) {
        self.state().fuse = Some(changes);
    }

    /// Makes a liar of it: every `every`-th commit is forgotten.
    pub(crate) fn forget_commits(&self, every: u64) {
        self.state().forgets_every = Some(every);
    }

    /// Takes back commits that were not persisted, newest first, as many as the seed says.
    pub(crate) fn lose_power(&self) {
        let mut state = self.state();
        let young = state.young.len() as u64;
        let lost = if state.rng.chance(2) { young } else { state.rng.between(0, young) };
        for _ in 0..lost {
            let Some(commit) = state.young.pop_back() else { break };
            for (key, before) in commit.before.into_iter().rev() {
                match before {
                    Some(value) => state.items.insert(key, value),
                    None => state.items.remove(&key),
                };
            }
            state.applied = commit.applied_before;
        }
        state.young.clear();
    }

    /// Lets a new process use it.
    pub(crate) fn restart(&self) {
        self.state().fuse = None;
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

    /// True if the process dies before the change is done; an error if it dies just after.
    fn burn(&self, state: &mut SimStoreState) -> bool {
        let Some(left) = state.fuse.as_mut() else { return false };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return false;
        }
        self.disk.crash(CrashKind::Process);
        state.rng.chance(2)
    }
}

impl VersionStore for SimStore {
    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<StoreItem>, Fault> {
        self.alive()?;
        let state = self.state();
        Ok(state.items.range(from.to_vec()..=to.to_vec()).next_back().map(|(k, v)| (k.clone(), v.clone())))
    }

    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoreItem, Fault>> + '_> {
        if let Err(fault) = self.alive() {
            return Box::new(std::iter::once(Err(fault)));
        }
        let state = self.state();
        let range = state.items.range(from.to_vec()..=to.to_vec());
        let items: Vec<_> = range.map(|(k, v)| Ok((k.clone(), v.clone()))).collect();
        Box::new(items.into_iter())
    }

    fn commit(&self, puts: Vec<StoreItem>, removals: Vec<Vec<u8>>, applied: LogIndex) -> Result<(), Fault> {
        self.alive()?;
        let mut state = self.state();
        if self.burn(&mut state) {
            return self.alive();
        }
        state.commits += 1;
        let mut commit = Commit { before: Vec::new(), applied_before: state.applied };
        state.applied = applied;
        if state.forgets_every.is_none_or(|every| !state.commits.is_multiple_of(every)) {
            for (key, value) in puts {
                let before = state.items.insert(key.clone(), value);
                commit.before.push((key, before));
            }
            for key in removals {
                let before = state.items.remove(&key);
                commit.before.push((key, before));
            }
        }
        state.young.push_back(commit);
        self.alive()
    }

    fn applied(&self) -> Result<LogIndex, Fault> {
        self.alive()?;
        Ok(self.state().applied)
    }

    fn persist(&self) -> Result<(), Fault> {
        self.alive()?;
        let mut state = self.state();
        if !self.burn(&mut state) {
            state.young.clear();
        }
        self.alive()
    }
}
