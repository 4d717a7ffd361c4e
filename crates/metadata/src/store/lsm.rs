//! The store of a real server: an LSM tree in a directory of its own, without a journal.
//!
//! What is inserted goes into a memtable, once. A sealed memtable becomes a table when the log is durable up to its
//! entry; the threads of `table_work` do that. A state that is received is a tree beside the one in use, and takes its
//! place with one durable write of the manifest.
//!
//! | a crash | finds at the next start |
//! |---|---|
//! | while a table is written | the tables before it; the rest of the file is removed, and the log replayed |
//! | between a table and the list of tables | the same |
//! | while tables are merged | the tables before |
//! | while a state is received, or before the manifest names it | the former tree; the other is removed |
//! | after the manifest names it | the new tree; the former is removed |

mod manifest;
mod table_files;
mod table_work;
mod tree;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use frieze_base::{Fault, LogIndex, Reason};
use frieze_locks::{Mutex, RwLock, levels};
use lsm_tree::Cache;

use self::table_files::system_fault;
use self::table_work::TableWork;
use self::tree::{Progress, TreeSetup, VersionTree};
use super::batch::StoreBatch;
use super::version_store::{StoreItem, StoreView, VersionStore, VisitItem};

/// The store of a real server: an LSM tree in a directory of its own.
pub struct LsmStore {
    directory: PathBuf,
    setup: TreeSetup,
    memtable_bytes_max: u64,
    /// The one in use; another takes its place when a whole state was received.
    current: RwLock<levels::VersionTable, Arc<VersionTree>>,
    /// The name of the state that was received last.
    name: Mutex<levels::StateName, Option<Vec<u8>>>,
    /// A state that is being received.
    other: Mutex<levels::NextVersionTable, Option<Arc<VersionTree>>>,
    work: Arc<TableWork>,
    threads: Vec<JoinHandle<()>>,
    open_bytes: AtomicU64,
}

const FIRST_TREE: u64 = 1;
/// Bytes of a memtable: more of them make fewer, larger tables, and a longer replay of the log.
const MEMTABLE_BYTES_MAX: u64 = 16 << 20;
const MEMTABLE_BYTES_MIN: u64 = 1 << 20;
/// Bytes of a table, at most. While one is written, its index is in memory, and with it those of the blocks merged into
/// it of which the last key is not copied: what merging takes grows with the table, so that one is no larger than all
/// that the store may use. Larger tables are fewer files; smaller ones are also less to write when a few keys come in
/// between.
const TABLE_BYTES_MAX: u64 = 64 << 20;
const TABLE_BYTES_MIN: u64 = 4 << 20;
/// Memtables take twice their size: one is open while another is written. Ordered changes may take as much again.
const MEMTABLES_MAX: u64 = 2;
const MEMTABLES_OVERFULL: u64 = 4;

impl LsmStore {
    /// Opens or makes the store in `directory`, to use about `memory_bytes`: a third for blocks of history, enough for
    /// the directories that are being listed; the rest for memtables, one of them on its way to the disk.
    ///
    /// # Errors
    /// `WrongVersion`: the directory is of an older build. `Corrupt`: the fault names the damaged file. The system's.
    pub fn open(directory: &Path, memory_bytes: u64) -> Result<LsmStore, Fault> {
        let setup = TreeSetup {
            cache: Arc::new(Cache::with_capacity_bytes(memory_bytes / 3)),
            table_bytes: memory_bytes.clamp(TABLE_BYTES_MIN, TABLE_BYTES_MAX),
        };
        let (tree, number) = match manifest::read(directory)? {
            Some(number) => (VersionTree::open(directory, number, &setup)?, number),
            None => {
                manifest::make_directory(directory)?;
                manifest::remove_other_trees(directory, 0)?;
                let tree = VersionTree::open(directory, FIRST_TREE, &setup)?;
                manifest::write(directory, FIRST_TREE)?;
                (tree, FIRST_TREE)
            }
        };
        let Progress { applied, name } = tree.progress()?;
        // One that was received in part only, or one that another has taken the place of.
        manifest::remove_other_trees(directory, number)?;
        let tree = Arc::new(tree);
        let work = Arc::new(TableWork::new(tree.clone(), applied));
        let mut store = LsmStore {
            directory: directory.to_owned(),
            setup,
            memtable_bytes_max: (memory_bytes / 3).clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX),
            current: RwLock::new(tree),
            name: Mutex::new(name),
            other: Mutex::default(),
            work,
            threads: Vec::new(),
            open_bytes: AtomicU64::new(0),
        };
        remove_image(directory);
        store.begin_threads()?;
        Ok(store)
    }

    fn begin_threads(&mut self) -> Result<(), Fault> {
        let (tables, merges) = (self.work.clone(), self.work.clone());
        self.begin_thread("store-tables", move || tables.write_tables())?;
        self.begin_thread("store-merges", move || merges.merge_tables())
    }

    fn begin_thread(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.map_err(|error| system_fault("beginning threads", &self.directory, error))?);
        Ok(())
    }

    fn tree(&self) -> Arc<VersionTree> {
        self.current.read().clone()
    }

    /// All of a received state that is in memory becomes a table, on this thread.
    fn write_other(&self, other: &VersionTree, progress: &Progress) -> Result<(), Fault> {
        let sealed = other.seal(&StoreBatch::default(), progress);
        let first = other.next_table();
        other.write_table(&sealed).and_then(|()| other.merge()).inspect_err(|_| {
            // A state that cannot be received is removed as a whole; its files take no room until then.
            let _removed_with_it = other.sweep(first);
        })
    }
}

impl Drop for LsmStore {
    fn drop(&mut self) {
        self.work.close();
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ended = thread.join();
        }
        if let Some(other) = self.other.get_mut().take() {
            other.remove();
        }
    }
}

impl VersionStore for LsmStore {
    fn begin(&self) -> Result<LogIndex, Fault> {
        let tree = self.tree();
        if tree.last_change().is_none() {
            // Memtables of an earlier use: the tables alone count.
            let number = tree.number;
            self.work.pause();
            let mut current = self.current.write();
            let again = Arc::new(VersionTree::open(&self.directory, number, &self.setup)?);
            let progress = again.progress()?;
            self.work.replace(again.clone(), progress.applied);
            *self.name.lock() = progress.name;
            *current = again;
        }
        self.open_bytes.store(0, Ordering::Release);
        Ok(self.work.applied())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        self.tree().get(key)
    }

    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<StoreItem>, Fault> {
        self.tree().items(from, to).next_back().transpose()
    }

    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoreItem, Fault>> + '_> {
        Box::new(self.tree().items(from, to))
    }

    fn visit(&self, from: &[u8], to: &[u8], visit: &mut VisitItem<'_>) -> Result<(), Fault> {
        self.tree().items(from, to).visit(visit)
    }

    fn read_both(&self, one: &mut (dyn FnMut() + Send), other: &mut (dyn FnMut() + Send)) {
        thread::scope(|scope| {
            scope.spawn(one);
            other();
        });
    }

    fn insert(&self, batch: &StoreBatch) -> u64 {
        let bytes = self.tree().insert(batch);
        self.open_bytes.store(bytes, Ordering::Release);
        bytes
    }

    fn memtable_bytes_max(&self) -> u64 {
        self.memtable_bytes_max
    }

    fn seal(&self, batch: &StoreBatch, through: LogIndex) {
        let name = self.name.lock().clone();
        self.work.push(self.tree().seal(batch, &Progress { applied: through, name }));
        self.open_bytes.store(0, Ordering::Release);
    }

    fn settle(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        self.work.settle(durable)
    }

    fn applied(&self) -> Result<LogIndex, Fault> {
        Ok(self.work.applied())
    }

    fn persist(&self) -> Result<(), Fault> {
        self.work.drain()
    }

    fn check_room(&self) -> Result<(), Fault> {
        self.work.check_room(MEMTABLES_MAX * self.memtable_bytes_max, &self.open_bytes)
    }

    fn is_overfull(&self) -> bool {
        self.work.sealed_bytes() >= MEMTABLES_OVERFULL * self.memtable_bytes_max
    }

    fn keep_cached(&self, bytes_max: u64) -> Result<u64, Fault> {
        // The kernel's copies are beside the store's own: most of what it asks for again it has.
        match frieze_disk::cached_below(&self.directory)? {
            Some(bytes) if bytes <= bytes_max => Ok(bytes),
            Some(_) => {
                frieze_disk::drop_cached_below(&self.directory)?;
                Ok(frieze_disk::cached_below(&self.directory)?.unwrap_or(0))
            }
            None => frieze_disk::drop_cached_below(&self.directory).map(|()| 0).map_err(Fault::from),
        }
    }

    fn rest(&self) {
        self.work.rest();
    }

    fn view(&self) -> Result<Box<dyn StoreView>, Fault> {
        Ok(Box::new(self.tree().view()))
    }

    fn begin_snapshot(&self) -> Result<(), Fault> {
        let mut other = self.other.lock();
        let mut number = self.current.read().number + 1;
        if let Some(left) = other.take() {
            left.remove();
            number = left.number + 1;
        }
        // A reader of an earlier state may keep its directory.
        while manifest::tree_directory(&self.directory, number).exists() {
            number += 1;
        }
        *other = Some(Arc::new(VersionTree::open(&self.directory, number, &self.setup)?));
        Ok(())
    }

    fn put_snapshot(&self, items: Vec<StoreItem>) -> Result<(), Fault> {
        let other = self.other.lock();
        let other = other.as_ref().ok_or_else(not_begun)?;
        let mut batch = StoreBatch::default();
        items.iter().for_each(|(key, value)| batch.put(key, value));
        match other.insert(&batch) >= self.memtable_bytes_max {
            true => self.write_other(other, &Progress::default()),
            false => Ok(()),
        }
    }

    fn received_snapshot(&self) -> Result<Box<dyn StoreView>, Fault> {
        let other = self.other.lock();
        Ok(Box::new(other.as_ref().ok_or_else(not_begun)?.view()))
    }

    fn install_snapshot(&self, applied: LogIndex, name: &[u8]) -> Result<(), Fault> {
        let mut other = self.other.lock();
        let next = other.as_ref().ok_or_else(not_begun)?.clone();
        // All of it before what makes it count.
        self.write_other(&next, &Progress { applied, name: Some(name.to_vec()) })?;
        manifest::write(&self.directory, next.number)?;
        *other = None;
        *self.name.lock() = Some(name.to_vec());
        let mut current = self.current.write();
        self.work.replace(next.clone(), applied);
        self.open_bytes.store(0, Ordering::Release);
        // Its files go when the last reader drops them; if that fails, the next start removes them.
        std::mem::replace(&mut *current, next).remove();
        Ok(())
    }

    fn name(&self) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.name.lock().clone())
    }
}

/// Removes what builds before this one left beside the store at a clean stop, and nothing reads any more.
fn remove_image(directory: &Path) {
    let image = directory.with_extension("left");
    match fs::remove_dir_all(&image) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!("{} of an older build is of no use and cannot be removed: {error}", image.display());
        }
        _ => {}
    }
}

fn not_begun() -> Fault {
    Fault::new(Reason::Internal, "no state is being received")
}

#[cfg(test)]
mod tests;
