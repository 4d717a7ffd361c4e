//! Values by key with every version, so that a state can be read just below any position.

use std::collections::BTreeMap;

use frieze_calvin::Position;

/// Versions of keys.
#[derive(Clone, Debug)]
pub(super) struct VersionedMap<K, V>(BTreeMap<K, BTreeMap<Position, Option<V>>>);

impl<K, V> Default for VersionedMap<K, V> {
    fn default() -> VersionedMap<K, V> {
        VersionedMap(BTreeMap::new())
    }
}

impl<K: Copy + Ord, V: Clone> VersionedMap<K, V> {
    /// Sets the version of a position.
    pub(super) fn set(&mut self, key: K, at: Position, value: Option<V>) {
        self.0.entry(key).or_default().insert(at, value);
    }

    /// The newest one.
    pub(super) fn newest(&self, key: K) -> Option<V> {
        self.0.get(&key)?.last_key_value()?.1.clone()
    }

    /// The newest one below a position.
    pub(super) fn before(&self, key: K, at: Position) -> Option<V> {
        self.0.get(&key)?.range(..at).next_back()?.1.clone()
    }

    /// The newest ones.
    pub(super) fn all(&self) -> impl Iterator<Item = (K, V)> + '_ {
        self.0.iter().filter_map(|(key, versions)| Some((*key, versions.last_key_value()?.1.clone()?)))
    }

    /// Those below a position.
    pub(super) fn all_before(&self, at: Position) -> BTreeMap<K, V> {
        let of = |(key, versions): (&K, &BTreeMap<Position, Option<V>>)| {
            Some((*key, versions.range(..at).next_back()?.1.clone()?))
        };
        self.0.iter().filter_map(of).collect()
    }

    /// Drops what is at or above a position.
    pub(super) fn cut(&mut self, at: Position) {
        self.0.values_mut().for_each(|versions| drop(versions.split_off(&at)));
    }
}
