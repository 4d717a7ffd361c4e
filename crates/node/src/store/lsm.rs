//! The store of a real server: an LSM tree in a directory of its own.

use frieze_base::{Fault, LogIndex, Reason};

use super::{Item, VersionStore};

/// The store of a real server: an LSM tree in a directory of its own.
pub struct LsmStore {
    database: fjall::Database,
    versions: fjall::Keyspace,
    progress: fjall::Keyspace,
}

const APPLIED_KEY: &[u8] = b"applied";
/// Blocks of history kept in RAM: enough for the directories somebody is looking at, small beside the data.
const CACHE_BYTES: u64 = 32 << 20;
/// Versions that wait in RAM to be written into a table. Of directories made before this was set it is 64 MiB.
const WAITING_BYTES: u64 = 16 << 20;
/// The applied index alone: it waits no longer than the versions do, or it would hold back their journal.
const PROGRESS_BYTES: u64 = 1 << 20;
/// What is read again at each start, at most, beside a journal of 64 MB that is being filled: the least that the store takes.
/// With its default, 512 MiB, a start takes some seconds for this alone.
const JOURNALS_BYTES: u64 = 64 << 20;

fn store_fault(doing: &'static str) -> impl Fn(fjall::Error) -> Fault {
    move |error| {
        let reason = match &error {
            fjall::Error::Io(cause) if cause.kind() == std::io::ErrorKind::StorageFull => Reason::NoSpace,
            _ => Reason::InputOutput,
        };
        Fault::new(reason, format!("the namespace's store failed while {doing}: {error}"))
    }
}

impl LsmStore {
    /// Opens or makes the store in `directory`.
    pub fn open(directory: &std::path::Path) -> Result<LsmStore, Fault> {
        let failed = store_fault("opening");
        let database = fjall::Database::builder(directory)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(JOURNALS_BYTES)
            .manual_journal_persist(true)
            .worker_threads(1)
            .open()
            .map_err(&failed)?;
        let waiting = |bytes: u64| move || fjall::KeyspaceCreateOptions::default().max_memtable_size(bytes);
        let versions = database.keyspace("versions", waiting(WAITING_BYTES)).map_err(&failed)?;
        let progress = database.keyspace("progress", waiting(PROGRESS_BYTES)).map_err(&failed)?;
        Ok(LsmStore { database, versions, progress })
    }
}

impl VersionStore for LsmStore {
    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<Item>, Fault> {
        let Some(guard) = self.versions.range(from.to_vec()..=to.to_vec()).next_back() else {
            return Ok(None);
        };
        let (key, value) = guard.into_inner().map_err(store_fault("reading"))?;
        Ok(Some((key.to_vec(), value.to_vec())))
    }

    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Item, Fault>> + '_> {
        Box::new(self.versions.range(from.to_vec()..=to.to_vec()).map(|guard| {
            let (key, value) = guard.into_inner().map_err(store_fault("reading"))?;
            Ok((key.to_vec(), value.to_vec()))
        }))
    }

    fn commit(&self, puts: Vec<Item>, removals: Vec<Vec<u8>>, applied: LogIndex) -> Result<(), Fault> {
        let mut batch = self.database.batch();
        for (key, value) in puts {
            batch.insert(&self.versions, key, value);
        }
        for key in removals {
            batch.remove(&self.versions, key);
        }
        batch.insert(&self.progress, APPLIED_KEY, applied.0.to_be_bytes());
        batch.commit().map_err(store_fault("committing"))
    }

    fn applied(&self) -> Result<LogIndex, Fault> {
        let stored = self.progress.get(APPLIED_KEY).map_err(store_fault("reading"))?;
        let Some(stored) = stored else { return Ok(LogIndex(0)) };
        let bytes: [u8; 8] = stored.as_ref().try_into().map_err(|_| {
            Fault::new(Reason::Corrupt, "the namespace's store holds a malformed applied index".to_owned())
        })?;
        Ok(LogIndex(u64::from_be_bytes(bytes)))
    }

    fn persist(&self) -> Result<(), Fault> {
        self.database.persist(fjall::PersistMode::SyncAll).map_err(store_fault("persisting"))
    }
}
