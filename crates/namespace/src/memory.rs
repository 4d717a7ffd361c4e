//! A history in memory, for tests and the simulator: the reference of what [`VersionHistory`] means. It keeps the
//! versions of directories that pages of stamps stand for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;

use crate::entry_stamps::{DirectoryVersion, entry_stamps_of, visit_entry_stamps};
use crate::history::{KeyVersion, NewestVersion, VersionHistory, VisitChanged, VisitValue, VisitVersion};
use crate::key::{erases, inode_key, is_loaded, is_timed, keeps_versions};

/// Every version of every key in a sorted map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryHistory {
    keys: BTreeMap<Vec<u8>, BTreeMap<Hlc, Option<Vec<u8>>>>,
    times: BTreeSet<(Hlc, Vec<u8>)>,
    /// Pages of stamps are kept as they come: those of one part of the state, which may not have the directory.
    keeps_pages: bool,
}

impl MemoryHistory {
    /// An empty history.
    pub fn new() -> MemoryHistory {
        MemoryHistory::default()
    }

    /// An empty history of a part of the state: pages of stamps of directories stay what they are.
    pub fn of_part() -> MemoryHistory {
        MemoryHistory { keeps_pages: true, ..MemoryHistory::default() }
    }

    /// Adds the versions that `apply` made. A second version of a key with the same stamp replaces the first, so that
    /// replaying a log changes nothing.
    pub fn commit(&mut self, changes: &[KeyVersion]) {
        for change in changes {
            if let Some(directory) = entry_stamps_of(&change.key).filter(|_| !self.keeps_pages) {
                self.commit_entry_stamps(directory, change);
                continue;
            }
            if is_timed(&change.key) {
                self.times.insert((change.stamp, change.key.clone()));
            }
            if change.value.is_none() && erases(&change.key, change.stamp) {
                self.keys.remove(&change.key);
            } else if keeps_versions(&change.key) {
                self.keys.entry(change.key.clone()).or_default().insert(change.stamp, change.value.clone());
            } else if change.value.is_none() {
                self.keys.remove(&change.key);
            } else {
                self.keys.insert(change.key.clone(), BTreeMap::from([(change.stamp, change.value.clone())]));
            }
        }
    }

    /// Keeps the version of the directory that each stamp of a page stands for.
    fn commit_entry_stamps(&mut self, directory: InodeId, change: &KeyVersion) {
        let key = inode_key(directory);
        let versions = self.keys.get_mut(&key).expect("a directory has a version before its entries change");
        let page = change.value.as_deref().expect("a page of stamps does not go");
        visit_entry_stamps(directory, change.stamp, page, &mut |change| {
            let (from, value) = versions.range(..change.stamp).next_back().expect("the version comes before");
            let value = value.as_deref().expect("an inode's versions are no absences");
            let before = DirectoryVersion::read(directory, *from, value).expect("it was committed");
            let value = before.at(change).expect("it comes after");
            versions.insert(change.stamp, Some(value));
            self.times.insert((change.stamp, key.clone()));
            true
        })
        .expect("a transaction makes pages that can be read");
    }

    /// The newest version of every key that has a value, in order of keys: what `Namespace::load` takes at restart.
    pub fn current(&self) -> impl Iterator<Item = (&[u8], Hlc, &[u8])> {
        self.keys.iter().filter(|(key, _)| is_loaded(key)).filter_map(|(key, versions)| {
            let (stamp, value) = versions.last_key_value()?;
            Some((key.as_slice(), *stamp, value.as_deref()?))
        })
    }

    fn from(&self, prefix: &[u8], after: &[u8]) -> impl Iterator<Item = (&Vec<u8>, &BTreeMap<Hlc, Option<Vec<u8>>>)> {
        let start = if after > prefix { Bound::Excluded(after) } else { Bound::Included(prefix) };
        let range = self.keys.range::<[u8], _>((start, Bound::Unbounded));
        range.take_while(move |(key, _)| key.starts_with(prefix)).filter(move |(key, _)| key.as_slice() != after)
    }
}

impl VersionHistory for MemoryHistory {
    fn newest(&self, key: &[u8], at: Hlc) -> Result<NewestVersion, Fault> {
        let Some(versions) = self.keys.get(key) else { return Ok(None) };
        Ok(versions.range(..=at).next_back().map(|(stamp, value)| (*stamp, value.clone())))
    }

    fn scan(&self, prefix: &[u8], after: &[u8], at: Hlc, visit: &mut VisitValue<'_>) -> Result<(), Fault> {
        for (key, versions) in self.from(prefix, after) {
            if let Some((stamp, Some(value))) = versions.range(..=at).next_back()
                && !visit(key, *stamp, value)
            {
                break;
            }
        }
        Ok(())
    }

    fn versions(
        &self,
        prefix: &[u8],
        above: &[u8],
        after: Hlc,
        upto: Hlc,
        visit: &mut VisitVersion<'_>,
    ) -> Result<(), Fault> {
        for (key, versions) in self.from(prefix, above) {
            for (stamp, value) in versions.range((Bound::Excluded(after), Bound::Unbounded)) {
                if *stamp > upto {
                    break;
                }
                if !visit(key, *stamp, value.as_deref()) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn versions_of(&self, key: &[u8], after: Hlc, upto: Hlc, visit: &mut VisitVersion<'_>) -> Result<(), Fault> {
        let Some(versions) = self.keys.get(key) else { return Ok(()) };
        for (stamp, value) in versions.range((Bound::Excluded(after), Bound::Unbounded)) {
            if *stamp > upto || !visit(key, *stamp, value.as_deref()) {
                break;
            }
        }
        Ok(())
    }

    fn changed(&self, after: Hlc, upto: Hlc, visit: &mut VisitChanged<'_>) -> Result<u64, Fault> {
        let mut read = 0;
        for (stamp, key) in self.times.range((after.next(), Vec::new())..) {
            if *stamp > upto {
                break;
            }
            read += 1;
            if !visit(*stamp, key) {
                break;
            }
        }
        Ok(read)
    }

    fn changed_back(&self, after: Hlc, upto: Hlc, visit: &mut VisitChanged<'_>) -> Result<u64, Fault> {
        let mut read = 0;
        for (stamp, key) in self.times.range(..(upto.next(), Vec::new())).rev() {
            if *stamp <= after {
                break;
            }
            read += 1;
            if !visit(*stamp, key) {
                break;
            }
        }
        Ok(read)
    }
}
