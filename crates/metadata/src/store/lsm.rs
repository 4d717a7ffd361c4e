//! The store of a real server: an LSM tree in a directory of its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::config::{BlockSizePolicy, FilterPolicy};
use fjall::{AbstractTree, KeyspaceCreateOptions, Readable};

use frieze_base::{Fault, LogIndex, Reason};
use frieze_locks::{Mutex, RwLock, RwLockReadGuard, levels};

use super::clean_start_image::{ImageFiles, ImageStamp};
use super::version_store::{CleanStartImage, CurrentVersions, StoreItem, StoreView, VersionStore, VisitItem};

/// The store of a real server: an LSM tree in a directory of its own.
pub struct LsmStore {
    database: fjall::Database,
    /// The one in use; another takes its place when a whole state was received.
    versions: RwLock<levels::VersionTable, fjall::Keyspace>,
    /// A state that is being received.
    other: Mutex<levels::NextVersionTable, Option<fjall::Keyspace>>,
    progress: fjall::Keyspace,
    directory: PathBuf,
    waiting_bytes_max: u64,
    table_bytes: u64,
    /// Nothing may be committed any more: see [`VersionStore::rest`].
    is_at_rest: RwLock<levels::StoreCommit, bool>,
    /// What was left for this start. It goes when something is committed.
    left: ImageFiles,
    may_be_left: AtomicBool,
}

const APPLIED_KEY: &[u8] = b"applied";
/// Which keyspace holds the versions; absent: [`FIRST_VERSIONS`].
const CURRENT_KEY: &[u8] = b"current";
/// What the state that was received last is called.
const NAME_KEY: &[u8] = b"name";
const FIRST_VERSIONS: &str = "versions";
/// Versions that wait in RAM to be written into a table: more of them make fewer, larger tables, and a longer
/// start.
const WAITING_BYTES_MAX: u64 = 16 << 20;
const WAITING_BYTES_MIN: u64 = 1 << 20;
/// The applied index alone, once for each commit: it leaves with the versions, and after so much at the latest.
const PROGRESS_BYTES: u64 = 256 << 10;
/// Bytes of a block of a table before it is compressed: a start reads all of them, one after the other, and a question
/// about the past reads one.
const BLOCK_BYTES: u32 = 16 << 10;
/// Bytes of a table, at most. While one is written, its index is in memory, and with it those of the blocks merged into
/// it of which the last key is not copied: what merging takes grows with the table, so that one is no larger than all
/// that the store may use. Larger tables are fewer files; smaller ones are also less to write when a few keys come in
/// between.
const TABLE_BYTES_MAX: u64 = 64 << 20;
const TABLE_BYTES_MIN: u64 = 4 << 20;
/// What is read again at each start, at most, beside a journal of 64 MB that is being filled: the least that the store
/// takes. With its default, 512 MiB, a start takes some seconds for this alone.
const JOURNALS_BYTES: u64 = 64 << 20;
/// What the names of the database's journals end in.
const JOURNAL_EXTENSION: &str = "jnl";
/// How long a stop waits for tables to be written. They are 16 MiB at most.
const WRITING_OUT_MAX: Duration = Duration::from_secs(5);
const WRITING_OUT_LOOKS: Duration = Duration::from_millis(2);

fn store_fault(doing: &'static str) -> impl Fn(fjall::Error) -> Fault {
    move |error| {
        let reason = match &error {
            fjall::Error::Io(cause) if cause.kind() == std::io::ErrorKind::StorageFull => Reason::NoSpace,
            _ => Reason::InputOutput,
        };
        Fault::new(reason, format!("the namespace's store failed while {doing}: {error}"))
    }
}

/// How a keyspace is made. Most of it stays what it was when the store was made.
///
/// No version is asked for by its whole key, so nothing would ask a filter; and while tables are merged, a filter in
/// the making takes 8 bytes for each key.
fn options(waiting_bytes: u64, table_bytes: u64) -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .filter_policy(FilterPolicy::disabled())
        .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
        .max_memtable_size(waiting_bytes)
        .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(table_bytes)))
}

impl LsmStore {
    /// Opens or makes the store in `directory`, to use about `memory_bytes`: a third for blocks of history, enough for
    /// the directories that are being listed; the rest for what is not written yet, some of it on its way.
    pub fn open(directory: &Path, memory_bytes: u64) -> Result<LsmStore, Fault> {
        let failed = store_fault("opening");
        let waiting_bytes_max = (memory_bytes / 3).clamp(WAITING_BYTES_MIN, WAITING_BYTES_MAX);
        let database = fjall::Database::builder(directory)
            .cache_size(memory_bytes / 3)
            .max_journaling_size(JOURNALS_BYTES)
            .manual_journal_persist(true)
            .worker_threads(1)
            .open()
            .map_err(&failed)?;
        let table_bytes = memory_bytes.clamp(TABLE_BYTES_MIN, TABLE_BYTES_MAX);
        let waiting = |bytes: u64| move || options(bytes, table_bytes);
        let progress = database.keyspace("progress", waiting(PROGRESS_BYTES)).map_err(&failed)?;
        let current = progress.get(CURRENT_KEY).map_err(&failed)?;
        let current = current.map_or_else(|| FIRST_VERSIONS.to_owned(), |name| String::from_utf8_lossy(&name).into());
        let versions = database.keyspace(&current, waiting(waiting_bytes_max)).map_err(&failed)?;
        // A state that was received in part only, or one that another has taken the place of.
        for name in database.list_keyspace_names() {
            if name.starts_with(FIRST_VERSIONS) && *name != *current {
                let left = database.keyspace(&name, waiting(waiting_bytes_max)).map_err(&failed)?;
                database.delete_keyspace(left).map_err(&failed)?;
            }
        }
        let directory = directory.to_owned();
        let (versions, other) = (RwLock::new(versions), Mutex::default());
        let is_at_rest = RwLock::new(false);
        let left = ImageFiles::new(directory.with_extension("left"));
        let may_be_left = AtomicBool::new(true);
        Ok(LsmStore {
            database,
            versions,
            other,
            progress,
            directory,
            waiting_bytes_max,
            table_bytes,
            is_at_rest,
            left,
            may_be_left,
        })
    }

    fn versions(&self) -> fjall::Keyspace {
        self.versions.read().clone()
    }

    fn keyspace(&self, name: &str) -> fjall::Result<fjall::Keyspace> {
        self.database.keyspace(name, || options(self.waiting_bytes_max, self.table_bytes))
    }

    /// To be held while something is committed.
    fn committing(&self) -> Result<RwLockReadGuard<'_, bool>, Fault> {
        let is_at_rest = self.is_at_rest.read();
        match *is_at_rest {
            false => Ok(is_at_rest),
            true => {
                Err(Fault::new(Reason::Internal, "the namespace's store is at rest: nothing is committed any more"))
            }
        }
    }

    /// Which state this is. The number of the last change rises with every one, also with those of an older server,
    /// which knows nothing of what is left.
    fn state(&self) -> Result<ImageStamp, Fault> {
        let change = self.versions().tree.get_highest_seqno().unwrap_or(0);
        Ok(ImageStamp { applied: self.applied()?.0, change })
    }

    fn remove_clean_start_image(&self) {
        if self.may_be_left.swap(false, Ordering::Relaxed)
            && let Err(error) = self.left.remove()
        {
            tracing::debug!("what was left for a start cannot be removed: {error}");
        }
    }

    /// Waits until tables hold all of a keyspace. False if that takes too long: the disk is full, or fails.
    fn write_out(&self, keyspace: &fjall::Keyspace) -> Result<bool, Fault> {
        keyspace.rotate_memtable().map_err(store_fault("writing tables"))?;
        for _ in 0..WRITING_OUT_MAX.as_millis() / WRITING_OUT_LOOKS.as_millis() {
            if keyspace.tree.get_highest_memtable_seqno().is_none() {
                return Ok(true);
            }
            // The database has no callback for a table that was written.
            thread::park_timeout(WRITING_OUT_LOOKS);
        }
        Ok(false)
    }

    /// The database has a bound of its own, which stays what it was when the store was made. One at a time: what is on
    /// its way to the disk counts too.
    ///
    /// The applied index of each commit leaves with the versions of that commit. It is a small piece of memory between
    /// theirs: what they leave free around it would stay in parts for as long as it waits, and 13,000 of them are what
    /// the store counts as 1 MiB. It would also hold back their journal.
    fn keep_waiting_few(&self, versions: &fjall::Keyspace) -> Result<(), Fault> {
        let failed = store_fault("writing tables");
        if self.database.write_buffer_size() > self.waiting_bytes_max && versions.sealed_memtable_count() == 0 {
            versions.rotate_memtable().map_err(&failed)?;
        }
        // A commit has at least one version: if fewer of those wait, they were taken away since.
        if self.progress.tree.active_memtable().len() > versions.tree.active_memtable().len() {
            self.progress.rotate_memtable().map_err(&failed)?;
        }
        Ok(())
    }
}

impl VersionStore for LsmStore {
    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<StoreItem>, Fault> {
        let Some(guard) = self.versions().range(from.to_vec()..=to.to_vec()).next_back() else {
            return Ok(None);
        };
        let (key, value) = guard.into_inner().map_err(store_fault("reading"))?;
        Ok(Some((key.to_vec(), value.to_vec())))
    }

    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoreItem, Fault>> + '_> {
        Box::new(self.versions().range(from.to_vec()..=to.to_vec()).map(|guard| {
            let (key, value) = guard.into_inner().map_err(store_fault("reading"))?;
            Ok((key.to_vec(), value.to_vec()))
        }))
    }

    fn visit(&self, from: &[u8], to: &[u8], visit: &mut VisitItem<'_>) -> Result<(), Fault> {
        visit_all(self.versions().range(from.to_vec()..=to.to_vec()), visit)
    }

    fn read_both(&self, one: &mut (dyn FnMut() + Send), other: &mut (dyn FnMut() + Send)) {
        thread::scope(|scope| {
            scope.spawn(one);
            other();
        });
    }

    fn commit(&self, puts: Vec<StoreItem>, removals: Vec<Vec<u8>>, applied: LogIndex) -> Result<(), Fault> {
        let _committing = self.committing()?;
        self.remove_clean_start_image();
        let versions = self.versions();
        let mut batch = self.database.batch();
        for (key, value) in puts {
            batch.insert(&versions, key, value);
        }
        for key in removals {
            batch.remove(&versions, key);
        }
        batch.insert(&self.progress, APPLIED_KEY, applied.0.to_be_bytes());
        batch.commit().map_err(store_fault("committing"))?;
        self.keep_waiting_few(&versions)
    }

    fn applied(&self) -> Result<LogIndex, Fault> {
        let stored = self.progress.get(APPLIED_KEY).map_err(store_fault("reading"))?;
        let Some(stored) = stored else { return Ok(LogIndex(0)) };
        let bytes: [u8; 8] = stored.as_ref().try_into().map_err(|_| {
            Fault::new(Reason::Corrupt, "the namespace's store holds a malformed applied index".to_owned())
        })?;
        Ok(LogIndex(u64::from_be_bytes(bytes)))
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

    fn persist(&self) -> Result<(), Fault> {
        self.database.persist(fjall::PersistMode::SyncAll).map_err(store_fault("persisting"))
    }

    fn rest(&self) -> Result<(), Fault> {
        let mut is_at_rest = self.is_at_rest.write();
        *is_at_rest = true;
        // What was received in part is thrown away by the next start, which has to find it for that.
        if self.other.lock().is_some() {
            return Ok(());
        }
        for keyspace in [&self.versions(), &self.progress] {
            if !self.write_out(keyspace)? {
                return Ok(());
            }
        }
        // Tables hold all that there is, durably. The database would read its journals all the same at its next start,
        // up to 128 MB of them, entry by entry. It takes an empty one for what it is: the numbers to go on with are in
        // the tables.
        let failed = |error: io::Error| store_fault("emptying its journals")(error.into());
        for file in fs::read_dir(&self.directory).map_err(failed)? {
            let path = file.map_err(failed)?.path();
            if path.extension().is_none_or(|extension| extension != JOURNAL_EXTENSION) {
                continue;
            }
            let emptied = fs::OpenOptions::new().write(true).open(&path).and_then(|journal| {
                journal.set_len(0)?;
                journal.sync_all()
            });
            match emptied {
                // The database has just removed it itself.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                emptied => emptied.map_err(failed)?,
            }
        }
        Ok(())
    }

    fn write_clean_start_image(&self, newest: &CurrentVersions<'_>) -> Result<(), Fault> {
        let is_at_rest = self.is_at_rest.read();
        // What waits in memory is written by the next start, under a number that is not known yet.
        let is_written = self.versions().tree.get_highest_memtable_seqno().is_none();
        if !*is_at_rest || !is_written {
            return Ok(());
        }
        let failed = |error: io::Error| store_fault("leaving names for the next start")(error.into());
        self.left.put(self.state()?, newest).map_err(failed)
    }

    fn clean_start_image(&self) -> Result<Option<CleanStartImage<'_>>, Fault> {
        Ok(self.left.clean_start_image(self.state()?))
    }

    fn view(&self) -> Result<Box<dyn StoreView>, Fault> {
        Ok(Box::new(LsmView { snapshot: self.database.snapshot(), versions: self.versions() }))
    }

    fn begin_snapshot(&self) -> Result<(), Fault> {
        let failed = store_fault("receiving a state");
        let _committing = self.committing()?;
        let mut other = self.other.lock();
        if let Some(left) = other.take() {
            self.database.delete_keyspace(left).map_err(&failed)?;
        }
        let current = self.versions().name().to_string();
        let number = current.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or(0u64);
        let mut names = (number + 1..).map(|number| format!("{FIRST_VERSIONS}-{number}"));
        let free = names.find(|name| !self.database.keyspace_exists(name)).expect("numbers do not end");
        *other = Some(self.keyspace(&free).map_err(&failed)?);
        Ok(())
    }

    fn put_snapshot(&self, items: Vec<StoreItem>) -> Result<(), Fault> {
        let _committing = self.committing()?;
        let other = self.other.lock();
        let other = other.as_ref().ok_or_else(not_begun)?;
        let mut batch = self.database.batch();
        for (key, value) in items {
            batch.insert(other, key, value);
        }
        batch.commit().map_err(store_fault("receiving a state"))?;
        self.keep_waiting_few(other)
    }

    fn received_snapshot(&self) -> Result<Box<dyn StoreView>, Fault> {
        let other = self.other.lock();
        let versions = other.as_ref().ok_or_else(not_begun)?.clone();
        Ok(Box::new(LsmView { snapshot: self.database.snapshot(), versions }))
    }

    fn install_snapshot(&self, applied: LogIndex, name: &[u8]) -> Result<(), Fault> {
        let failed = store_fault("taking over a state");
        let _committing = self.committing()?;
        self.remove_clean_start_image();
        let mut other = self.other.lock();
        let next = other.as_ref().ok_or_else(not_begun)?.clone();
        // All of it before what makes it count.
        self.persist()?;
        let mut batch = self.database.batch();
        batch.insert(&self.progress, APPLIED_KEY, applied.0.to_be_bytes());
        batch.insert(&self.progress, CURRENT_KEY, next.name().as_bytes());
        batch.insert(&self.progress, NAME_KEY, name);
        batch.commit().map_err(&failed)?;
        self.persist()?;
        *other = None;
        let old = std::mem::replace(&mut *self.versions.write(), next);
        // Its files go when the last reader drops them; if that fails, the next start removes them.
        let _later = self.database.delete_keyspace(old);
        Ok(())
    }

    fn name(&self) -> Result<Option<Vec<u8>>, Fault> {
        let name = self.progress.get(NAME_KEY).map_err(store_fault("reading"))?;
        Ok(name.map(|name| name.to_vec()))
    }
}

fn not_begun() -> Fault {
    Fault::new(Reason::Internal, "no state is being received")
}

struct LsmView {
    snapshot: fjall::Snapshot,
    versions: fjall::Keyspace,
}

impl StoreView for LsmView {
    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoreItem, Fault>> + '_> {
        Box::new(self.snapshot.range(&self.versions, from.to_vec()..=to.to_vec()).map(|guard| {
            let (key, value) = guard.into_inner().map_err(store_fault("reading"))?;
            Ok((key.to_vec(), value.to_vec()))
        }))
    }

    fn visit(&self, from: &[u8], to: &[u8], visit: &mut VisitItem<'_>) -> Result<(), Fault> {
        visit_all(self.snapshot.range(&self.versions, from.to_vec()..=to.to_vec()), visit)
    }
}

fn visit_all(mut items: impl Iterator<Item = fjall::Guard>, visit: &mut VisitItem<'_>) -> Result<(), Fault> {
    items.try_for_each(|guard| {
        let (key, value) = guard.into_inner().map_err(store_fault("reading"))?;
        visit(&key, &value)
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use frieze_base::Rng;

    use super::*;

    #[test]
    fn the_applied_index_of_a_commit_waits_no_longer_than_its_versions() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = LsmStore::open(directory.path(), 32 << 20).expect("opens");
        let commit = |index: u64| {
            let put = (index.to_be_bytes().to_vec(), b"version".to_vec());
            store.commit(vec![put], Vec::new(), LogIndex(index)).expect("commits");
        };
        (1..=500).for_each(commit);
        assert_eq!(store.progress.tree.active_memtable().len(), 500);
        // As the store does by itself when enough wait.
        assert_eq!(store.versions().rotate_memtable().map_err(|error| error.to_string()), Ok(true));
        commit(501);
        commit(502);
        assert!(store.progress.tree.active_memtable().len() <= 2);
        assert_eq!(store.applied(), Ok(LogIndex(502)));
        drop(store);
        let store = LsmStore::open(directory.path(), 32 << 20).expect("opens again");
        assert_eq!(store.applied(), Ok(LogIndex(502)));
        assert_eq!(store.items(&[], &[0xff; 9]).count(), 502);
    }

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "the store merges on a thread of its own: the test waits until it has"
    )]
    fn a_store_of_little_memory_merges_into_tables_of_little_size() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = LsmStore::open(directory.path(), TABLE_BYTES_MIN).expect("opens");
        let mut rng = Rng::new(20_261_124);
        let wait = |until: &dyn Fn() -> bool| {
            let began = Instant::now();
            while !until() {
                assert!(began.elapsed() < Duration::from_secs(60), "the store writes and merges no tables");
                std::thread::park_timeout(Duration::from_millis(1));
            }
        };
        for index in 1..=400 {
            let puts = (0..64).map(|_| {
                let mut value = vec![0; 1000];
                rng.fill(&mut value);
                (rng.next().to_be_bytes().to_vec(), value)
            });
            store.commit(puts.collect(), Vec::new(), LogIndex(index)).expect("commits");
            wait(&|| store.versions().sealed_memtable_count() == 0);
        }
        let merged = || (1..7).map(|level| store.versions().tree.level_table_count(level).unwrap_or(0)).sum::<usize>();
        wait(&|| store.versions().tree.l0_run_count() < 4 && merged() > 0);
        let bytes = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.and_then(|entry| entry.metadata()).map_or(0, |meta| meta.len())
        };
        let keyspaces = std::fs::read_dir(directory.path().join("keyspaces")).expect("lists").flatten();
        let tables =
            keyspaces.flat_map(|keyspace| std::fs::read_dir(keyspace.path().join("tables")).expect("lists")).map(bytes);
        let tables: Vec<u64> = tables.collect();
        assert!(tables.iter().sum::<u64>() > 4 * TABLE_BYTES_MIN, "{tables:?}");
        assert!(tables.iter().all(|bytes| *bytes < 2 * TABLE_BYTES_MIN), "{tables:?}");
    }
}
