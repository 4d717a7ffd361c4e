//! Values by key with every version, and sums of what came and went, so that a state can be read just below any
//! position.

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

/// Sums by key: what was added, by when. It need not be added in the order of positions.
#[derive(Clone, Debug)]
pub(super) struct VersionedSums<K>(BTreeMap<K, BTreeMap<Position, i64>>);

impl<K> Default for VersionedSums<K> {
    fn default() -> VersionedSums<K> {
        VersionedSums(BTreeMap::new())
    }
}

impl<K: Copy + Ord> VersionedSums<K> {
    pub(super) fn add(&mut self, key: K, at: Position, count: i64) {
        *self.0.entry(key).or_default().entry(at).or_default() += count;
    }

    /// The sum below a position.
    pub(super) fn before(&self, key: K, at: Position) -> i64 {
        self.0.get(&key).into_iter().flat_map(|sums| sums.range(..at)).map(|(_, count)| count).sum()
    }

    /// Keys that something was added to below a position.
    pub(super) fn keys_before(&self, at: Position) -> impl Iterator<Item = K> + '_ {
        self.0.iter().filter(move |(_, sums)| sums.range(..at).next().is_some()).map(|(key, _)| *key)
    }

    /// Drops what is at or above a position.
    pub(super) fn cut(&mut self, at: Position) {
        self.0.values_mut().for_each(|sums| drop(sums.split_off(&at)));
    }
}
