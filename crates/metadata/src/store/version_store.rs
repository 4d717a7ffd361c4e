//! The seam under the history: a sorted map on stable storage.

use frieze_base::{Fault, LogIndex, Reason};
use frieze_hlc::Hlc;

/// A sorted map on stable storage, the seam under the namespace's history.
pub trait VersionStore: Send + Sync {
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
    /// Adds `puts`, removes `removals` and records that the metalog is applied up to `applied`: all or nothing.
    fn commit(&self, puts: Vec<StoreItem>, removals: Vec<Vec<u8>>, applied: LogIndex) -> Result<(), Fault>;
    /// The index of the last commit.
    fn applied(&self) -> Result<LogIndex, Fault>;
    /// Makes every commit so far durable.
    fn persist(&self) -> Result<(), Fault>;
    /// Nothing is committed any more, and every commit is durable: what the next start would read one by one is put
    /// where it need not. Whether that succeeds changes only how long the next start takes.
    ///
    /// # Errors
    /// The store's.
    fn rest(&self) -> Result<(), Fault> {
        Ok(())
    }
    /// Leaves the newest versions of entries and inodes for the next start, after [`VersionStore::rest`]. Whether that
    /// succeeds changes only how long it takes.
    ///
    /// # Errors
    /// The disk's.
    fn write_clean_start_image(&self, newest: &CurrentVersions<'_>) -> Result<(), Fault> {
        let _ = newest;
        Ok(())
    }
    /// What was left, if nothing has been committed since. What fails its checksum there is an error: the versions are
    /// here, too.
    fn clean_start_image(&self) -> Result<Option<CleanStartImage<'_>>, Fault> {
        Ok(None)
    }
    /// Gives back copies of its files that the kernel keeps, if they are more than `bytes_max`. Returns how many bytes
    /// there are; 0 if that is unknown.
    fn keep_cached(&self, bytes_max: u64) -> Result<u64, Fault> {
        let _ = bytes_max;
        Ok(0)
    }

    /// The store as it is now, whatever is committed afterwards.
    fn view(&self) -> Result<Box<dyn StoreView>, Fault> {
        Err(no_snapshots())
    }

    /// Begins to take in another state beside this one. What there is of an earlier other one goes.
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
    /// durably.
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

/// Shows versions, in the order of their keys.
pub type ShowVersions<'a> = dyn Fn(&mut LoadVersion<'_>) + Sync + 'a;
/// Calls `load` with versions, in the order of their keys.
pub type ImageSection<'a> = Box<dyn FnMut(&mut LoadVersion<'_>) -> Result<(), Fault> + Send + 'a>;

/// One to be left.
pub struct CurrentVersions<'a> {
    /// The largest inode number given.
    pub last_id: u64,
    /// Directory entries.
    pub entries: &'a ShowVersions<'a>,
    /// Inodes.
    pub inodes: &'a ShowVersions<'a>,
}

/// One that was left.
pub struct CleanStartImage<'a> {
    /// The largest inode number given.
    pub last_id: u64,
    /// Directory entries.
    pub entries: ImageSection<'a>,
    /// Inodes.
    pub inodes: ImageSection<'a>,
}
