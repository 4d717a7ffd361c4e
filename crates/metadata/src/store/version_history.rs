//! The history as it is read: versions, and the changes of an interval.

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_namespace::{DirectoryVersion, INODES, VersionHistory, VisitChanged, VisitValue, VisitVersion};

use super::entry_pages::EntryChanges;
use super::keys::{decode_value, parse_stored_key, prefix_end, split_stored_key, start, stored_key};
use super::name_versions::NameVersions;
use super::time_index;
use super::version_store::StoreItem;

/// Takes a stored key and value. False ends the visit.
type VisitWhile<'a> = dyn FnMut(&[u8], &[u8]) -> Result<bool, Fault> + 'a;

impl NameVersions {
    /// All versions with a stored key in `from..=to`, until `visit` answers false.
    pub(super) fn visit_while(&self, from: &[u8], to: &[u8], visit: &mut VisitWhile<'_>) -> Result<(), Fault> {
        for item in self.store.items(from, to) {
            let (key, value) = item?;
            if !visit(&key, &value)? {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The stored versions of inodes, and among those of directories the ones that pages of stamps stand for.
struct InodeVersions<'a> {
    after: Hlc,
    upto: Hlc,
    /// A later change may follow a version that is not among those that are read.
    changes_upto: Hlc,
    changes: EntryChanges<'a>,
    /// The last stored version, if it is of a directory.
    directory: Option<StoredDirectory>,
}

/// A stored version of a directory's inode.
struct StoredDirectory {
    id: InodeId,
    key: Vec<u8>,
    from: Hlc,
    value: Vec<u8>,
    /// What the value says, if that was needed.
    version: Option<DirectoryVersion>,
}

impl InodeVersions<'_> {
    /// Calls `visit` with the versions stamped in (`after`, `upto`], where `items` has all that count for those, by key
    /// and stamp.
    fn visit(
        mut self,
        items: impl Iterator<Item = Result<StoreItem, Fault>>,
        visit: &mut VisitVersion<'_>,
    ) -> Result<(), Fault> {
        for item in items {
            let (stored, value) = item?;
            let (key, stamp) = parse_stored_key(&stored)?;
            let is_same = self.directory.as_ref().is_some_and(|directory| directory.key == key);
            if !self.changes_until(if is_same { stamp.previous() } else { Hlc::MAX }, visit)? {
                return Ok(());
            }
            let value = decode_value(&value);
            if stamp > self.after && stamp <= self.upto && !visit(&key, stamp, value) {
                return Ok(());
            }
            self.directory = DirectoryVersion::directory_of(&key, value).map(|id| StoredDirectory {
                id,
                key,
                from: stamp,
                value: value.unwrap_or_default().to_vec(),
                version: None,
            });
        }
        self.changes_until(Hlc::MAX, visit).map(drop)
    }

    /// Shows the changes of the last version's entries stamped <= `until`. False if the visit ended.
    fn changes_until(&mut self, until: Hlc, visit: &mut VisitVersion<'_>) -> Result<bool, Fault> {
        let Some(StoredDirectory { id, key, from, value, version }) = &mut self.directory else { return Ok(true) };
        while let Some(change) = self.changes.next_of(*id, until.min(self.changes_upto))? {
            let version = match version {
                Some(version) => version,
                None => version.insert(DirectoryVersion::read(*id, *from, value)?),
            };
            if !visit(key, change.stamp, Some(&version.at(change)?)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl NameVersions {
    /// Stamp and value of a directory's inode after the newest change of its entries stamped <= `at`, where `version`
    /// is the newest stored one up to there, or later; `None` if that is no directory's, or the newest.
    fn after_entry_change(
        &self,
        key: &[u8],
        (stamp, value): (Hlc, Option<&[u8]>),
        at: Hlc,
    ) -> Result<Option<(Hlc, Vec<u8>)>, Fault> {
        let (Some(directory), Some(value)) = (DirectoryVersion::directory_of(key, value), value) else {
            return Ok(None);
        };
        match self.waiting.newest(&*self.store, directory, at)? {
            Some(change) if change.stamp > stamp => {
                let version = DirectoryVersion::read(directory, stamp, value)?;
                Ok(Some((change.stamp, version.at(change)?)))
            }
            _ => Ok(None),
        }
    }
}

impl VersionHistory for NameVersions {
    fn newest(&self, key: &[u8], at: Hlc) -> Result<Option<(Hlc, Option<Vec<u8>>)>, Fault> {
        let known = self.newest_change();
        let (from, to) = (stored_key(key, Hlc::ZERO), stored_key(key, at));
        let Some((stored, value)) = self.store.last_in(&from, &to)? else {
            return Ok(None);
        };
        let (_, stamp) = split_stored_key(&stored)?;
        let value = decode_value(&value);
        Ok(Some(match self.after_entry_change(key, (stamp, value), at.min(known))? {
            Some((stamp, value)) => (stamp, Some(value)),
            None => (stamp, value.map(<[u8]>::to_vec)),
        }))
    }

    fn scan(&self, prefix: &[u8], after: &[u8], at: Hlc, visit: &mut VisitValue<'_>) -> Result<(), Fault> {
        let known = self.newest_change();
        let mut show = |key: &[u8], stamp: Hlc, stored: &[u8]| {
            let Some(value) = decode_value(stored) else { return Ok(true) };
            Ok::<bool, Fault>(match self.after_entry_change(key, (stamp, Some(value)), at.min(known))? {
                Some((stamp, value)) => visit(key, stamp, &value),
                None => visit(key, stamp, value),
            })
        };
        let from = start(prefix, after);
        let mut newest: Option<(Vec<u8>, Hlc, Vec<u8>)> = None;
        let mut stopped = false;
        self.visit_while(&from, &prefix_end(prefix), &mut |stored, value| {
            let (key, stamp) = parse_stored_key(stored)?;
            if stamp > at {
                return Ok(true);
            }
            if let Some((last, last_stamp, last_value)) = newest.take_if(|(last, _, _)| *last != key)
                && !show(&last, last_stamp, &last_value)?
            {
                stopped = true;
                return Ok(false);
            }
            newest = Some((key, stamp, value.to_vec()));
            Ok(true)
        })?;
        if let Some((key, stamp, value)) = newest
            && !stopped
        {
            show(&key, stamp, &value)?;
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
        let known = self.newest_change();
        let (from, to) = (start(prefix, above), prefix_end(prefix));
        if prefix.first() != Some(&INODES) {
            return self.visit_while(&from, &to, &mut |stored, value| {
                let (key, stamp) = parse_stored_key(stored)?;
                Ok(stamp <= after || stamp > upto || visit(&key, stamp, decode_value(value)))
            });
        }
        let items = self.store.items(&from, &to);
        let changes = EntryChanges::of_all(&self.waiting, &*self.store, (prefix, above), after);
        let merge = InodeVersions { after, upto, changes_upto: upto.min(known), changes, directory: None };
        merge.visit(items, visit)
    }

    fn versions_of(&self, key: &[u8], after: Hlc, upto: Hlc, visit: &mut VisitVersion<'_>) -> Result<(), Fault> {
        if after >= upto {
            return Ok(());
        }
        let known = self.newest_change();
        let (from, to) = (stored_key(key, after.next()), stored_key(key, upto));
        let mut items = self.store.items(&from, &to).peekable();
        // What is asked about first says whether it is a directory; of that the version before counts, too.
        let is_of_directory = |item: &StoreItem| DirectoryVersion::directory_of(key, decode_value(&item.1));
        let is_inode = key.first() == Some(&INODES);
        let mut before = None;
        let directory = match items.peek() {
            Some(Ok(item)) if is_inode => is_of_directory(item),
            None if is_inode => {
                before = self.store.last_in(&stored_key(key, Hlc::ZERO), &stored_key(key, after))?;
                before.as_ref().and_then(is_of_directory)
            }
            _ => None,
        };
        let Some(directory) = directory else {
            for item in items {
                let (stored, value) = item?;
                let (_, stamp) = split_stored_key(&stored)?;
                if !visit(key, stamp, decode_value(&value)) {
                    break;
                }
            }
            return Ok(());
        };
        if before.is_none() {
            before = self.store.last_in(&stored_key(key, Hlc::ZERO), &stored_key(key, after))?;
        }
        let changes = EntryChanges::of(&self.waiting, &*self.store, directory, after)?;
        let merge = InodeVersions { after, upto, changes_upto: upto.min(known), changes, directory: None };
        merge.visit(before.map(Ok).into_iter().chain(items), visit)
    }

    fn changed(&self, after: Hlc, upto: Hlc, visit: &mut VisitChanged<'_>) -> Result<u64, Fault> {
        if after >= upto {
            return Ok(0);
        }
        // What no page names is taken first: a change that comes into a page meanwhile is found in both places, never
        // in none.
        let unpaged = self.unpaged_since(after);
        let mut read = 0;
        let mut seen = after;
        let mut stopped = false;
        let mut show = |stamp: Hlc, key: &[u8]| {
            if stamp <= after {
                return true;
            }
            seen = seen.max(stamp);
            stopped = stamp > upto || !visit(stamp, key);
            !stopped
        };
        // The page that begins at or before may reach into the interval.
        let first = self.store.last_in(&time_index::page_key(Hlc::ZERO), &time_index::page_key(after))?;
        let from = first.map_or_else(|| time_index::page_key(after), |(key, _)| key);
        for page in self.store.items(&from, &time_index::page_key(upto)) {
            let (goes_on, count) = time_index::read(&page?, &mut show)?;
            read += count;
            if !goes_on {
                return Ok(read);
            }
        }
        let paged = seen;
        for (stamp, key) in unpaged.iter().filter(|(stamp, _)| *stamp > paged) {
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
        if after >= upto {
            return Ok(0);
        }
        // As above.
        let unpaged = self.unpaged_since(after);
        let mut read = 0;
        for (stamp, key) in unpaged.iter().rev().filter(|(stamp, _)| *stamp <= upto) {
            read += 1;
            if !visit(*stamp, key) {
                return Ok(read);
            }
        }
        // The first may share its stamp with none before: a page ends with a transaction.
        let mut end = unpaged.first().map_or(upto, |(first, _)| upto.min(first.previous()));
        while end > after {
            let Some(page) = self.store.last_in(&time_index::page_key(Hlc::ZERO), &time_index::page_key(end))? else {
                break;
            };
            let mut changes: Vec<(Hlc, Vec<u8>)> = Vec::new();
            let (_, count) = time_index::read(&page, &mut |stamp, key| {
                changes.push((stamp, key.to_vec()));
                true
            })?;
            read += count;
            let Some(first) = changes.first().map(|(stamp, _)| *stamp) else { break };
            for (stamp, key) in changes.iter().rev().filter(|(stamp, _)| *stamp <= end) {
                if *stamp <= after || !visit(*stamp, key) {
                    return Ok(read);
                }
            }
            end = first.previous();
        }
        Ok(read)
    }
}
