//! The seam under the history: a sorted map of which the log is the journal.

use frieze_base::{Fault, LogIndex, Reason};
use frieze_hlc::Hlc;

use super::batch::StoreBatch;

/// A sorted map, the seam under the namespace's history. The metalog is its journal.
///
/// What is inserted lies in a memtable: readable at once, and lost with the process. [`VersionStore::seal`] closes a
/// memtable behind an entry of the log. Once the log is durable up to that entry ([`VersionStore::settle`]), the store
/// writes the memtable into a table, durably, with the index of the entry. So the tables are the state after some
/// durable entry, all of it and nothing more, and a start replays the log from there.
///
/// An item may be inserted again under its key: the younger one counts, wherever the older one lies. So a version may
/// be written again in its place, under its old stamp.
pub trait VersionStore: Send + Sync {
    /// A process begins with the store: memtables of an earlier use are dropped. Returns the entry up to which the
    /// tables are complete.
    ///
    /// # Errors
    /// `Corrupt`: a file is damaged, and the fault names it. The disk's.
    fn begin(&self) -> Result<LogIndex, Fault>;
    /// The value of the item with this key.
    ///
    /// # Errors
    /// `Corrupt`, naming the damaged file; the disk's.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.last_in(key, key)?.map(|(_, value)| value))
    }
    /// The last item with a key in `from..=to`.
    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<StoreItem>, Fault>;
    /// All items with a key in `from..=to`, in order.
    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoreItem, Fault>> + '_>;
    /// Calls `visit` with all items with a key in `from..=to`, in order, where they lie, until it fails.
    fn visit(&self, from: &[u8], to: &[u8], visit: &mut VisitItem<'_>) -> Result<(), Fault> {
        self.items(from, to).try_for_each(|item| item.and_then(|(key, value)| visit(&key, &value)))
    }
    /// Runs two that read, both at once where the store is read by several threads.
    fn read_both(&self, one: &mut (dyn FnMut() + Send), other: &mut (dyn FnMut() + Send)) {
        one();
        other();
    }
    /// Adds a batch to the open memtable: a reader finds all of it or nothing. Returns the bytes of the memtable.
    fn insert(&self, batch: &StoreBatch) -> u64;
    /// Bytes of a memtable at which it is sealed.
    fn memtable_bytes_max(&self) -> u64;
    /// Adds a batch to the open memtable and closes it: the store has all entries up to `through` and nothing of a
    /// later one.
    fn seal(&self, batch: &StoreBatch, through: LogIndex);
    /// The log is durable up to `durable`: memtables sealed at or below become tables from now on. Returns the entry up
    /// to which the tables are complete, durably: the log is needed from there.
    ///
    /// # Errors
    /// What kept a memtable from becoming a table. The memtable stays, and the store tries again.
    fn settle(&self, durable: LogIndex) -> Result<LogIndex, Fault>;
    /// The entry up to which the tables are complete.
    fn applied(&self) -> Result<LogIndex, Fault>;
    /// Waits until every memtable is a table that is sealed at or below the entry of the last
    /// [`VersionStore::settle`].
    ///
    /// # Errors
    /// As [`VersionStore::settle`]; `Unavailable`: the disk takes too long.
    fn persist(&self) -> Result<(), Fault>;
    /// Waits for room for more memtables, a few seconds at most. To be called without locks, before a change is
    /// ordered.
    ///
    /// # Errors
    /// `NoSpace`: the disk is full, and memory is for memtables that have no room there. `Overloaded`: the disk is too
    /// slow. Nothing was changed: ask again later.
    fn check_room(&self) -> Result<(), Fault> {
        Ok(())
    }
    /// True if memtables take so much memory that not even what was ordered already fits.
    fn is_overfull(&self) -> bool {
        false
    }
    /// The server stops: nothing is rearranged on the disk any more, so that the process ends soon.
    fn rest(&self) {}
    /// Gives back copies of its files that the kernel keeps, if they are more than `bytes_max`. Returns how many bytes
    /// there are; 0 if that is unknown.
    fn keep_cached(&self, bytes_max: u64) -> Result<u64, Fault> {
        let _ = bytes_max;
        Ok(0)
    }

    /// The store as it is now, whatever is inserted afterwards.
    fn view(&self) -> Result<Box<dyn StoreView>, Fault> {
        Err(no_snapshots())
    }

    /// Begins to receive another state beside this one. What there is of an earlier other one goes.
    fn begin_snapshot(&self) -> Result<(), Fault> {
        Err(no_snapshots())
    }

    /// Adds items to the other state.
    fn put_snapshot(&self, items: Vec<StoreItem>) -> Result<(), Fault> {
        let _ = items;
        Err(no_snapshots())
    }

    /// The other state as far as it has come.
    fn received_snapshot(&self) -> Result<Box<dyn StoreView>, Fault> {
        Err(no_snapshots())
    }

    /// Puts the other state in the place of this one, complete up to `applied` and under `name`: all at once, and
    /// durably. Memtables of this one are dropped.
    fn install_snapshot(&self, applied: LogIndex, name: &[u8]) -> Result<(), Fault> {
        let _ = (applied, name);
        Err(no_snapshots())
    }

    /// The name under which the state was put here that came from elsewhere; `None` if none did.
    fn name(&self) -> Result<Option<Vec<u8>>, Fault> {
        Ok(None)
    }
}

/// A store as it was at one moment.
pub trait StoreView: Send {
    /// All items with a key in `from..=to`, in order.
    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoreItem, Fault>> + '_>;
    /// As [`VersionStore::visit`].
    fn visit(&self, from: &[u8], to: &[u8], visit: &mut VisitItem<'_>) -> Result<(), Fault> {
        self.items(from, to).try_for_each(|item| item.and_then(|(key, value)| visit(&key, &value)))
    }
}

fn no_snapshots() -> Fault {
    Fault::new(Reason::Unsupported, "this store cannot take over the state of another server")
}

/// Takes a key, the stamp of its newest version, and the value.
pub type LoadVersion<'a> = dyn FnMut(&[u8], Hlc, &[u8]) + 'a;

/// Takes a stored key and value.
pub type VisitItem<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), Fault> + 'a;

/// A stored key and value.
pub type StoreItem = (Vec<u8>, Vec<u8>);
