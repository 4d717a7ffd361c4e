//! One LSM tree in a directory of its own: an open memtable, sealed ones, and tables.
//!
//! Guarantees: a reader finds all items of a batch or none. Tables hold whole memtables, in their order, and with them
//! the progress item of the newest: the entry of the log up to which they are complete.
//!
//! *Sequence numbers.* A batch has one, which rises; of several items of one key a reader takes the youngest below the
//! number that was visible when it began. The tree numbers its own changes (a table is added, tables are merged) with
//! the same counter, and keeps the former lists of memtables and tables for readers that began before. They are
//! forgotten while no reader is between the look at the number and the list that it gets: `snapshots` is that fence.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frieze_base::{Fault, LogIndex, Reason};
use frieze_locks::{Mutex, RwLock, levels};
use lsm_tree::compaction::Leveled;
use lsm_tree::compaction::filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict};
use lsm_tree::config::{
    BlockSizePolicy, CompressionPolicy, FilterPolicy, PartitioningPolicy, PinningPolicy, RestartIntervalPolicy,
};
use lsm_tree::{
    AbstractTree, AnyTree, Cache, CompressionType, Config, DescriptorTable, Guard, InternalValue, Memtable,
    SequenceNumberCounter, ValueType,
};

use super::super::batch::StoreBatch;
use super::super::version_store::{StoreItem, StoreView, VisitItem};
use super::table_files;

/// Bytes of a block of a table before it is compressed: a start reads all of them, one after the other, and a question
/// about the past reads one.
const BLOCK_BYTES: u32 = 16 << 10;
/// Table files that are open at once, at most.
const OPEN_FILES_MAX: usize = 256;
/// Key of the item that says how far the tree is complete. No stored key is below [`FIRST_KEY`].
const PROGRESS_KEY: [u8; 1] = [0];
const FIRST_KEY: [u8; 2] = [0, 0];
/// Steps of merging one after the other, at most: each looks for what is due anew.
const MERGES_MAX: usize = 64;

/// What trees of one store share.
pub(super) struct TreeSetup {
    pub(super) cache: Arc<Cache>,
    pub(super) table_bytes: u64,
}

/// How far a tree is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) applied: LogIndex,
    /// The name of the state that was received, if one was.
    pub(super) name: Option<Vec<u8>>,
}

/// A memtable that is complete up to an entry of the log.
#[derive(Clone)]
pub(super) struct SealedMemtable {
    pub(super) memtable: Arc<Memtable>,
    pub(super) through: LogIndex,
}

/// A tree. Its directory goes with the last reader, once it was told to.
pub(super) struct VersionTree {
    tree: AnyTree,
    path: PathBuf,
    pub(super) number: u64,
    numbers: SequenceNumberCounter,
    open: Mutex<levels::OpenMemtable, Arc<Memtable>>,
    /// Batches and changes of the tree below it are visible.
    visible: AtomicU64,
    snapshots: RwLock<levels::TreeSnapshots, ()>,
    /// Numbers at which views were taken, and how many.
    views: Mutex<levels::TreeViews, BTreeMap<u64, usize>>,
    strategy: Arc<Leveled>,
    stop: Arc<MergeStop>,
    is_removed: AtomicBool,
}

/// Ends a merge between two items: the tree has no other way to do so.
#[derive(Default)]
struct MergeStop(AtomicBool);

struct StoppableMerge(Arc<MergeStop>);

impl Factory for StoppableMerge {
    fn name(&self) -> &str {
        "stop"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(StoppableMerge(self.0.clone()))
    }
}

impl CompactionFilter for StoppableMerge {
    fn filter_item(&mut self, _: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        match self.0.0.load(Ordering::Relaxed) {
            false => Ok(Verdict::Keep),
            true => Err(lsm_tree::Error::Io(io::ErrorKind::Interrupted.into())),
        }
    }
}

impl VersionTree {
    /// Opens or makes the tree with this number in the store's directory.
    ///
    /// # Errors
    /// `Corrupt`, naming the damaged file; the system's.
    pub(super) fn open(directory: &Path, number: u64, setup: &TreeSetup) -> Result<VersionTree, Fault> {
        let path = super::manifest::tree_directory(directory, number);
        if path.join("current").exists() {
            table_files::check_root(&path)?;
        }
        let numbers = SequenceNumberCounter::default();
        let stop = Arc::<MergeStop>::default();
        // No version is asked for by its whole key, so nothing would ask a filter; and while tables are merged, a
        // filter in the making takes 8 bytes for each key.
        let config = Config::new(&path, numbers.clone(), SequenceNumberCounter::default())
            .use_cache(setup.cache.clone())
            .use_descriptor_table(Some(Arc::new(DescriptorTable::new(OPEN_FILES_MAX))))
            .with_compaction_filter_factory(Some(Arc::new(StoppableMerge(stop.clone()))))
            .filter_policy(FilterPolicy::disabled())
            .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
            .data_block_restart_interval_policy(RestartIntervalPolicy::new([10, 16]))
            .index_block_pinning_policy(PinningPolicy::new([true, true, false]))
            .index_block_partitioning_policy(PartitioningPolicy::new([false, false, false, true]))
            .data_block_compression_policy(CompressionPolicy::new([
                CompressionType::None,
                CompressionType::None,
                CompressionType::Lz4,
            ]));
        let tree = config
            .open()
            .map_err(|error| table_files::fault("opening", &path, &error, || table_files::unreadable(&path)))?;
        let next = tree.get_highest_seqno().map_or(1, |highest| highest + 1);
        numbers.fetch_max(next);
        Ok(VersionTree {
            open: Mutex::new(tree.active_memtable()),
            tree,
            path,
            number,
            numbers,
            visible: AtomicU64::new(next),
            snapshots: RwLock::default(),
            views: Mutex::default(),
            strategy: Arc::new(Leveled::default().with_table_target_size(setup.table_bytes)),
            stop,
            is_removed: AtomicBool::new(false),
        })
    }

    /// Adds a batch to the open memtable. Returns the bytes of the memtable.
    pub(super) fn insert(&self, batch: &StoreBatch) -> u64 {
        let open = self.open.lock();
        let number = self.numbers.next();
        add(&open, batch, number);
        self.visible.fetch_max(number + 1, Ordering::AcqRel);
        open.size()
    }

    /// Adds a batch and the progress to the open memtable, and closes it.
    pub(super) fn seal(&self, batch: &StoreBatch, progress: &Progress) -> SealedMemtable {
        let mut open = self.open.lock();
        let number = self.numbers.next();
        add(&open, batch, number);
        add_progress(&open, progress, number);
        self.visible.fetch_max(number + 1, Ordering::AcqRel);
        let memtable = self.tree.rotate_memtable().expect("it has an item: the progress");
        *open = self.tree.active_memtable();
        SealedMemtable { memtable, through: progress.applied }
    }

    /// Writes a memtable, the oldest of those that are sealed, into a table, durably.
    ///
    /// # Errors
    /// The disk's: the memtable stays; [`VersionTree::sweep`] removes what was written.
    pub(super) fn write_table(&self, sealed: &SealedMemtable) -> Result<(), Fault> {
        self.try_write_table(&sealed.memtable).map_err(|error| self.fault("writing tables", &error))?;
        self.forget_former_lists();
        Ok(())
    }

    fn try_write_table(&self, memtable: &Memtable) -> lsm_tree::Result<()> {
        let mut last = None;
        // The youngest of a key comes first. The older ones are for readers that began before, which have the memtable.
        let youngest = memtable.iter().filter(|item| {
            let is_first = last.as_ref() != Some(&item.key.user_key);
            if is_first {
                last = Some(item.key.user_key.clone());
            }
            is_first
        });
        if let Some((tables, _)) = self.tree.flush_to_tables(youngest.map(Ok))? {
            self.tree.register_tables(&tables, None, None, &[memtable.id()], 0)?;
        }
        Ok(())
    }

    /// The id of the next table.
    pub(super) fn next_table(&self) -> u64 {
        self.tree.next_table_id()
    }

    /// After a table could not be written or registered: removes the files of tables that no list names, of ids from
    /// `from` on. No table is being written meanwhile.
    ///
    /// # Errors
    /// `Internal`: the disk failed in a step after which only a restart knows what is on it.
    pub(super) fn sweep(&self, from: u64) -> Result<(), Fault> {
        let current = self.tree.current_version();
        if table_files::root_number(&self.path) != Some(current.id()) {
            let words = format!(
                "the disk failed while the list of tables in {} was replaced: restart the server",
                self.path.display()
            );
            return Err(Fault::new(Reason::Internal, words));
        }
        for id in from..self.tree.next_table_id() {
            if current.iter_tables().all(|table| table.id() != id) {
                // One that was never made, or that cannot be removed now: the next start does.
                let _later = fs::remove_file(table_files::table_path(&self.path, id));
            }
        }
        Ok(())
    }

    /// Merges tables as far as it is due, until [`VersionTree::stop_merging`].
    ///
    /// # Errors
    /// The disk's, or `Corrupt`, naming the damaged file: the tables stay what they were; [`VersionTree::sweep`]
    /// removes what was written.
    pub(super) fn merge(&self) -> Result<(), Fault> {
        for _ in 0..MERGES_MAX {
            if self.stop.0.load(Ordering::Acquire) {
                break;
            }
            let list = self.tree.current_version().id();
            let watermark = self.forget_former_lists();
            let merged = self.tree.compact(self.strategy.clone(), watermark);
            merged.map_err(|error| self.fault("merging tables", &error))?;
            self.forget_former_lists();
            if self.tree.current_version().id() == list {
                break;
            }
        }
        Ok(())
    }

    /// No tables are merged any more; a merge under way ends soon, with an error.
    pub(super) fn stop_merging(&self) {
        self.stop.0.store(true, Ordering::Release);
    }

    /// True after [`VersionTree::stop_merging`].
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.0.load(Ordering::Acquire)
    }

    /// Makes the last change of the tree visible and forgets lists of memtables and tables that no reader needs any
    /// more. Returns the number below which only the youngest item of a key is needed.
    fn forget_former_lists(&self) -> u64 {
        // No batch is in the middle, so all numbers given are visible.
        let open = self.open.lock();
        let visible = self.visible.fetch_max(self.numbers.get(), Ordering::AcqRel).max(self.numbers.get());
        drop(open);
        // Readers that looked at the number before have their lists.
        let fence = self.snapshots.write();
        let watermark = self.views.lock().keys().next().map_or(visible, |oldest| visible.min(*oldest));
        if let Err(error) = self.tree.get_version_history_lock().maintenance(&self.path, watermark) {
            tracing::debug!("a former list of tables is not removed: {error}");
        }
        drop(fence);
        watermark
    }

    /// The value under a key, as it is visible now.
    ///
    /// # Errors
    /// `Corrupt`, naming the damaged file; the disk's.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let fence = self.snapshots.read();
        let found = self.tree.get(key, self.visible.load(Ordering::Acquire));
        drop(fence);
        Ok(found.map_err(|error| self.fault("reading", &error))?.map(|value| value.to_vec()))
    }

    /// Items between two keys, as they are visible now.
    pub(super) fn items(self: &Arc<Self>, from: &[u8], to: &[u8]) -> TreeItems {
        let fence = self.snapshots.read();
        let items = self.range(from, to, self.visible.load(Ordering::Acquire));
        drop(fence);
        TreeItems { items, tree: self.clone() }
    }

    fn range(&self, from: &[u8], to: &[u8], number: u64) -> GuardIter {
        let from = from.max(&FIRST_KEY);
        match from <= to {
            true => self.tree.range(from..=to, number, None),
            false => Box::new(std::iter::empty()),
        }
    }

    /// The tree as it is now.
    pub(super) fn view(self: &Arc<Self>) -> TreeView {
        let fence = self.snapshots.read();
        let number = self.visible.load(Ordering::Acquire);
        *self.views.lock().entry(number).or_insert(0) += 1;
        drop(fence);
        TreeView { tree: self.clone(), number }
    }

    /// What the progress item of the newest table says.
    ///
    /// # Errors
    /// `Corrupt`; the disk's.
    pub(super) fn progress(&self) -> Result<Progress, Fault> {
        let number = self.visible.load(Ordering::Acquire);
        let item = self.tree.get(PROGRESS_KEY, number).map_err(|error| self.fault("opening", &error))?;
        let Some(item) = item else { return Ok(Progress::default()) };
        decode_progress(&item).ok_or_else(|| {
            let words = format!("the tables in {} do not say which entry they are complete up to", self.path.display());
            Fault::new(Reason::Corrupt, words)
        })
    }

    /// The number of the youngest item in tables; `None` if memtables hold items.
    pub(super) fn last_change(&self) -> Option<u64> {
        match self.tree.get_highest_memtable_seqno() {
            Some(_) => None,
            None => Some(self.tree.get_highest_persisted_seqno().unwrap_or(0)),
        }
    }

    /// Sorted runs of tables that no merge has reached yet. A reader looks into each.
    pub(super) fn young_runs(&self) -> usize {
        self.tree.l0_run_count()
    }

    #[cfg(test)]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    #[cfg(test)]
    pub(super) fn merged_tables(&self) -> usize {
        (1..7).map(|level| self.tree.level_table_count(level).unwrap_or(0)).sum()
    }

    /// Removes the directory when the last reader is gone.
    pub(super) fn remove(&self) {
        self.is_removed.store(true, Ordering::Release);
    }

    fn fault(&self, doing: &str, error: &lsm_tree::Error) -> Fault {
        table_files::fault(doing, &self.path, error, || {
            let current = self.tree.current_version();
            let tables: Vec<_> = current.iter_tables().map(|table| (table.id(), table.checksum())).collect();
            table_files::damaged_of(&self.path, tables.into_iter())
        })
    }
}

impl Drop for VersionTree {
    fn drop(&mut self) {
        if self.is_removed.load(Ordering::Acquire)
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::debug!("{} is left to the next start: {error}", self.path.display());
        }
    }
}

fn add(memtable: &Memtable, batch: &StoreBatch, number: u64) {
    for (key, value) in batch.iter() {
        memtable.insert(match value {
            Some(value) => InternalValue::from_components(key, value, number, ValueType::Value),
            None => InternalValue::new_tombstone(key, number),
        });
    }
}

fn add_progress(memtable: &Memtable, progress: &Progress, number: u64) {
    let value = encode_progress(progress);
    memtable.insert(InternalValue::from_components(PROGRESS_KEY, value, number, ValueType::Value));
}

/// The index of the entry, big-endian, and the name behind it, if there is one.
fn encode_progress(progress: &Progress) -> Vec<u8> {
    let name = progress.name.as_ref().map(|name| [&[1], name.as_slice()].concat());
    [&progress.applied.0.to_be_bytes()[..], &name.unwrap_or_default()].concat()
}

fn decode_progress(bytes: &[u8]) -> Option<Progress> {
    let (applied, rest) = bytes.split_first_chunk()?;
    let name = match rest.split_first() {
        None => None,
        Some((1, name)) => Some(name.to_vec()),
        Some(_) => return None,
    };
    Some(Progress { applied: LogIndex(u64::from_be_bytes(*applied)), name })
}

type GuardIter = Box<dyn DoubleEndedIterator<Item = lsm_tree::IterGuardImpl> + Send>;

/// Items of a tree, which stays as long as they are read.
pub(super) struct TreeItems {
    items: GuardIter,
    tree: Arc<VersionTree>,
}

impl TreeItems {
    /// Shows all of them where they lie.
    ///
    /// # Errors
    /// That of `visit`; `Corrupt`, naming the damaged file; the disk's.
    pub(super) fn visit(self, visit: &mut VisitItem<'_>) -> Result<(), Fault> {
        let TreeItems { mut items, tree } = self;
        items.try_for_each(|guard| {
            let (key, value) = guard.into_inner().map_err(|error| tree.fault("reading", &error))?;
            visit(&key, &value)
        })
    }

    fn item(&self, guard: lsm_tree::IterGuardImpl) -> Result<StoreItem, Fault> {
        let (key, value) = guard.into_inner().map_err(|error| self.tree.fault("reading", &error))?;
        Ok((key.to_vec(), value.to_vec()))
    }
}

impl Iterator for TreeItems {
    type Item = Result<StoreItem, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        self.items.next().map(|guard| self.item(guard))
    }
}

impl DoubleEndedIterator for TreeItems {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.items.next_back().map(|guard| self.item(guard))
    }
}

/// A tree as it was when the view was taken.
pub(super) struct TreeView {
    tree: Arc<VersionTree>,
    number: u64,
}

impl TreeView {
    fn range(&self, from: &[u8], to: &[u8]) -> TreeItems {
        TreeItems { items: self.tree.range(from, to, self.number), tree: self.tree.clone() }
    }
}

impl StoreView for TreeView {
    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoreItem, Fault>> + '_> {
        Box::new(self.range(from, to))
    }

    fn visit(&self, from: &[u8], to: &[u8], visit: &mut VisitItem<'_>) -> Result<(), Fault> {
        self.range(from, to).visit(visit)
    }
}

impl Drop for TreeView {
    fn drop(&mut self) {
        let mut views = self.tree.views.lock();
        if let Some(count) = views.get_mut(&self.number) {
            *count -= 1;
            if *count == 0 {
                views.remove(&self.number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_a_progress_or_none() {
        let of =
            |name: Option<&[u8]>| encode_progress(&Progress { applied: LogIndex(7), name: name.map(<[u8]>::to_vec) });
        assert_eq!(of(Some(b"name")), *b"\0\0\0\0\0\0\0\x07\x01name");
        frieze_harness::fuzz!([of(None), of(Some(b"")), of(Some(b"name"))], |bytes: &[u8]| {
            frieze_harness::check_stable(bytes, decode_progress, encode_progress);
        });
    }
}
