//! Pages of stamps at which entries of directories changed: those that wait in memory, and all of them in their order.
//!
//! A change of entries goes to the page of its directory in memory. A page becomes an item of the store when it is
//! full, and when a memtable is sealed. It stays in memory until the store has it, so that a reader that looks first
//! here and then there misses none; it may find some twice.

use std::iter::Peekable;
use std::vec;

use frieze_base::{FastMap, Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, levels};
use frieze_namespace::{
    ENTRY_STAMPS, EntryStamp, EntryStampPage, KeyVersion, entry_stamps_key, entry_stamps_of, newest_entry_stamp,
    visit_entry_stamps,
};

use super::batch::StoreBatch;
use super::keys::{
    decode_value, encode_value_into, malformed, parse_stored_key, prefix_end, start, stored_key, stored_key_into,
};
use super::version_store::{StoreItem, VersionStore};

/// A page as it is read: the directory, the stamp of the first change, the value.
pub(super) type FoundPage = (InodeId, Hlc, Vec<u8>);

/// Pages that the store does not have.
#[derive(Default)]
pub(super) struct WaitingPages {
    pages: Mutex<levels::EntryStamps, Pages>,
}

#[derive(Default)]
struct Pages {
    /// Those that take further changes, one a directory.
    open: FastMap<InodeId, EntryStampPage>,
    /// Those that are full, in the order in which they became so: of the entry that is being added.
    full: Vec<(InodeId, EntryStampPage)>,
}

impl Pages {
    fn all(&self) -> impl Iterator<Item = (InodeId, &EntryStampPage)> {
        self.full.iter().map(|(id, page)| (*id, page)).chain(self.open.iter().map(|(id, page)| (*id, page)))
    }
}

impl WaitingPages {
    /// Adds the changes of a page that a transaction made.
    pub(super) fn push(&self, directory: InodeId, made: &KeyVersion) {
        let value = made.value.as_deref().expect("a page of stamps does not go");
        let mut pages = self.pages.lock();
        let Pages { open, full } = &mut *pages;
        visit_entry_stamps(directory, made.stamp, value, &mut |change| {
            match open.get_mut(&directory) {
                Some(page) => page.push(change),
                None => drop(open.insert(directory, EntryStampPage::new(change))),
            }
            if open.get(&directory).is_some_and(EntryStampPage::is_full) {
                full.extend(open.remove(&directory).map(|page| (directory, page)));
            }
            true
        })
        .expect("a transaction makes pages that can be read");
    }

    /// Notes puts of full pages. They stay until [`WaitingPages::drop_full`].
    pub(super) fn put_full(&self, batch: &mut StoreBatch) {
        self.pages.lock().full.iter().for_each(|(directory, page)| put(batch, *directory, page));
    }

    /// The store has the full pages.
    pub(super) fn drop_full(&self) {
        self.pages.lock().full.clear();
    }

    /// Notes puts of all pages. They stay until [`WaitingPages::drop_all`].
    pub(super) fn put_all(&self, batch: &mut StoreBatch) {
        self.pages.lock().all().for_each(|(directory, page)| put(batch, directory, page));
    }

    /// The store has all pages, or another state has taken its place.
    pub(super) fn drop_all(&self) {
        let dropped = std::mem::take(&mut *self.pages.lock());
        drop(dropped);
    }

    /// The pages of one directory, or of all, by directory and time.
    pub(super) fn pages(&self, directory: Option<InodeId>) -> Vec<FoundPage> {
        let found = |(id, page): (InodeId, &EntryStampPage)| (id, page.first(), page.bytes().to_vec());
        let pages = self.pages.lock();
        let Some(directory) = directory else {
            let mut all: Vec<FoundPage> = pages.all().map(found).collect();
            drop(pages);
            all.sort_unstable_by_key(|(directory, first, _)| (*directory, *first));
            return all;
        };
        let full = pages.full.iter().filter(|(id, _)| *id == directory).map(|(id, page)| (*id, page));
        full.chain(pages.open.get(&directory).map(|page| (directory, page))).map(found).collect()
    }

    /// The newest change of a directory's entries stamped <= `at`; `None` if there is none.
    ///
    /// # Errors
    /// `Corrupt`: a page is malformed. The store's.
    ///
    /// # Cost
    /// A seek, and the changes of one page.
    pub(super) fn newest(
        &self,
        store: &dyn VersionStore,
        directory: InodeId,
        at: Hlc,
    ) -> Result<Option<EntryStamp>, Fault> {
        let waiting = self.pages(Some(directory)).into_iter().rfind(|(_, first, _)| *first <= at);
        let page = match waiting {
            Some(page) => Some(page),
            None => {
                let key = entry_stamps_key(directory);
                let last = store.last_in(&stored_key(&key, Hlc::ZERO), &stored_key(&key, at))?;
                last.map(found_page).transpose()?
            }
        };
        page.map_or(Ok(None), |(_, first, page)| newest_entry_stamp(directory, first, &page, at))
    }
}

fn put(batch: &mut StoreBatch, directory: InodeId, page: &EntryStampPage) {
    batch.put_with(
        |bytes| stored_key_into(&entry_stamps_key(directory), page.first(), bytes),
        |bytes| encode_value_into(Some(page.bytes()), bytes),
    );
}

pub(super) fn found_page((stored, value): StoreItem) -> Result<FoundPage, Fault> {
    let (key, first) = parse_stored_key(&stored)?;
    let directory = entry_stamps_of(&key).ok_or_else(|| malformed(&stored))?;
    let page = decode_value(&value).ok_or_else(|| {
        let what = format!("the page of entry stamps of directory {directory} from {first} has no value");
        Fault::new(Reason::Corrupt, what)
    })?;
    Ok((directory, first, page.to_vec()))
}

/// Changes of entries in the order of directories and stamps, each once.
pub(super) struct EntryChanges<'a> {
    store: Peekable<Box<dyn Iterator<Item = Result<StoreItem, Fault>> + 'a>>,
    waiting: Peekable<vec::IntoIter<FoundPage>>,
    after: Hlc,
    /// The directory asked for last.
    directory: InodeId,
    /// Up to which of its changes were shown, or are not wanted.
    last: Hlc,
    /// The changes of the page that was read last, which is of that directory.
    changes: Peekable<vec::IntoIter<EntryStamp>>,
}

impl<'a> EntryChanges<'a> {
    /// The changes stamped above `after` of one directory.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn of(
        pages: &WaitingPages,
        store: &'a dyn VersionStore,
        directory: InodeId,
        after: Hlc,
    ) -> Result<EntryChanges<'a>, Fault> {
        let waiting = pages.pages(Some(directory));
        let key = entry_stamps_key(directory);
        // The page that begins at or before may reach beyond.
        let first = store.last_in(&stored_key(&key, Hlc::ZERO), &stored_key(&key, after))?;
        let from = first.map_or_else(|| stored_key(&key, after), |(stored, _)| stored);
        Ok(EntryChanges::new(store.items(&from, &stored_key(&key, Hlc::MAX)), waiting, after))
    }

    /// The same of the directories whose keys as inodes begin with `prefix` and come after the whole key `above`.
    pub(super) fn of_all(
        pages: &WaitingPages,
        store: &'a dyn VersionStore,
        (prefix, above): (&[u8], &[u8]),
        after: Hlc,
    ) -> EntryChanges<'a> {
        let as_pages = |inodes: &[u8]| match inodes {
            [] => Vec::new(),
            [_, rest @ ..] => [&[ENTRY_STAMPS], rest].concat(),
        };
        let waiting = pages.pages(None);
        let prefix = as_pages(prefix);
        EntryChanges::new(store.items(&start(&prefix, &as_pages(above)), &prefix_end(&prefix)), waiting, after)
    }

    fn new(
        store: Box<dyn Iterator<Item = Result<StoreItem, Fault>> + 'a>,
        waiting: Vec<FoundPage>,
        after: Hlc,
    ) -> EntryChanges<'a> {
        EntryChanges {
            store: store.peekable(),
            waiting: waiting.into_iter().peekable(),
            after,
            directory: InodeId(0),
            last: after,
            changes: Vec::new().into_iter().peekable(),
        }
    }

    /// The next change of a directory, if it is stamped <= `upto`. Directories are asked for in their order: a change
    /// of one before is not found any more.
    ///
    /// # Errors
    /// `Corrupt`: a page is malformed. The store's.
    pub(super) fn next_of(&mut self, directory: InodeId, upto: Hlc) -> Result<Option<EntryStamp>, Fault> {
        if self.directory != directory {
            (self.directory, self.last) = (directory, self.after);
            self.changes = Vec::new().into_iter().peekable();
        }
        loop {
            while self.changes.next_if(|change| change.stamp <= self.last).is_some() {}
            if self.changes.peek().is_some() {
                let next = self.changes.next_if(|change| change.stamp <= upto);
                self.last = next.map_or(self.last, |change| change.stamp);
                return Ok(next);
            }
            let Some((_, first, page)) = self.next_page(directory)? else { return Ok(None) };
            let mut changes = Vec::new();
            visit_entry_stamps(directory, first, &page, &mut |change| {
                changes.push(change);
                true
            })?;
            self.changes = changes.into_iter().peekable();
        }
    }

    /// The next page of a directory: of the store, then of those that wait. Pages of directories before are left out.
    fn next_page(&mut self, directory: InodeId) -> Result<Option<FoundPage>, Fault> {
        let key = entry_stamps_key(directory);
        let end = stored_key(&key, Hlc::MAX);
        while let Some(item) = self.store.next_if(|item| item.as_ref().map_or(true, |(stored, _)| *stored <= end)) {
            let page = found_page(item?)?;
            if page.0 == directory {
                return Ok(Some(page));
            }
        }
        while self.waiting.next_if(|(before, ..)| *before < directory).is_some() {}
        Ok(self.waiting.next_if(|(of, ..)| *of == directory))
    }
}

#[cfg(test)]
pub(super) mod tests;
