//! The leases of this gateway: which client writes which file, and which block of it.
//!
//! Guarantees: a file has one writer at this gateway; another one is refused until the first has been silent for
//! [`SOFT_NS`] or a client recovers the lease. A write under a lease that has ended is refused.
//! Leaves to others: writers at other gateways ([`crate::file_writers`]); writers that are not Hadoop's, which are not
//! held up.
//!
//! Leases are in memory. Those that are a second old are stored ([`crate::lease_store`]). A single server restores a
//! lease of the process before when any client asks for its file; in a cluster any gateway takes it over
//! ([`crate::lease_takeover`]).

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frieze_base::MonoTime;
use frieze_client::{Caller, Client, Error, ErrorKind, File, InodeId, OpenFlags, Target, mono};

use crate::blocks::{block_id, wall_ns};
use crate::exception::Exception;
use crate::lease::{FileLease, WriteProgress, no_lease};
use crate::lease_record::LeaseRecord;
use crate::lease_store::LeaseStore;

/// Silence after which another writer may take a file over, as in HDFS.
pub(crate) const SOFT_NS: u64 = 60_000_000_000;
/// Silence after which a file is closed, as in HDFS.
const HARD_NS: u64 = 20 * 60_000_000_000;

/// All leases.
pub(crate) struct Leases {
    table: Mutex<LeaseTable>,
    client: Client,
    notes: LeaseStore,
    /// Some stored leases are not restored yet.
    any_stored: AtomicBool,
    /// Locked while leases are restored: a concurrent request for one waits.
    restoring: Mutex<()>,
}

#[derive(Debug, Default)]
struct LeaseTable {
    by_inode: BTreeMap<u64, Arc<FileLease>>,
    /// When each holder last made a call.
    last_calls: BTreeMap<String, MonoTime>,
    last: u64,
    /// Stored by the process before, by file, and not restored yet.
    stored: BTreeMap<u64, LeaseRecord>,
    /// Start of this process.
    began: MonoTime,
}

/// When another gateway's query ends a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revocation<'a> {
    /// Never: it only asks.
    Nothing,
    /// If the writer was silent for [`SOFT_NS`].
    Silent,
    /// Always.
    Any,
    /// If this client holds it, which continues at that gateway.
    Of(&'a str),
}

/// The answer to a query.
pub(crate) enum WriterLease {
    /// The file has no lease.
    Nobody,
    /// This client holds it, and keeps it.
    By(String),
    /// The lease has ended by this query.
    Ended(Arc<FileLease>),
}

/// A lease to give.
pub(crate) struct LeaseRequest {
    pub(crate) inode: u64,
    pub(crate) path: String,
    pub(crate) holder: String,
    pub(crate) block_bytes: u64,
    pub(crate) file: File,
    pub(crate) caller: Caller,
    /// Address of the writer; unknown for one that began at another gateway, or before a restart.
    pub(crate) machine: Option<IpAddr>,
    /// Where the first block begins.
    pub(crate) next: u64,
}

/// A file that is open for writing, for a listing.
pub(crate) struct OpenFileInfo {
    pub(crate) inode: u64,
    /// Path when it was opened.
    pub(crate) path: String,
    pub(crate) holder: String,
    pub(crate) machine: Option<IpAddr>,
}

impl Leases {
    /// Reads the stored leases; there are no others yet.
    pub(crate) fn new(client: Client, notes: LeaseStore) -> io::Result<Leases> {
        let stored: BTreeMap<u64, LeaseRecord> = notes.all()?.into_iter().map(|note| (note.inode, note)).collect();
        // Numbers of this process exceed those of the process before: an old token names no new lease.
        let table = LeaseTable { last: wall_ns(), began: mono(), stored, ..LeaseTable::default() };
        let any_stored = AtomicBool::new(!table.stored.is_empty());
        Ok(Leases { table: Mutex::new(table), client, notes, any_stored, restoring: Mutex::default() })
    }

    /// Gives a lease. A former lease on the file ends.
    ///
    /// # Errors
    /// `IOException` if too many files are open; `IllegalArgumentException` for a holder with a very long name.
    pub(crate) fn give(&self, wanted: LeaseRequest) -> Result<Arc<FileLease>, Exception> {
        if wanted.holder.len() > HOLDER_BYTES_MAX {
            return Err(Exception::illegal_argument(format!("a client name of more than {HOLDER_BYTES_MAX} bytes")));
        }
        let mut table = self.lock();
        let now = mono();
        let silent = table.end_silent(now);
        if table.by_inode.len() + table.stored.len() >= LEASES_MAX {
            drop(table);
            self.end_all(silent);
            return Err(Exception::io(format!("{LEASES_MAX} files are open for writing: no more are opened")));
        }
        table.last += 1;
        let (id, next) = (table.last, wanted.next);
        let progress = WriteProgress { next, ..WriteProgress::default() };
        let (lease, before) = table.insert(wanted, id, progress, now);
        let stored = table.stored.remove(&lease.inode);
        drop(table);
        self.end_all(before.into_iter().chain(silent));
        stored.inspect(|note| self.notes.remove(note.inode, note.id));
        Ok(lease)
    }

    /// Restores the stored leases that match. A file that cannot be opened now stays stored.
    fn restore(&self, matches: impl Fn(&LeaseRecord) -> bool) {
        if !self.any_stored.load(Ordering::Acquire) {
            return;
        }
        let _one = self.restoring.lock().unwrap_or_else(PoisonError::into_inner);
        if self.client.has_others() {
            // Stored while the server was alone: gateways that joined since did not know, and may have given the file
            // away.
            let forgotten = std::mem::take(&mut self.lock().stored);
            forgotten.values().for_each(|note| self.notes.remove(note.inode, note.id));
            self.any_stored.store(false, Ordering::Release);
            return;
        }
        let wanted: Vec<LeaseRecord> = self.lock().stored.values().filter(|note| matches(note)).cloned().collect();
        for note in wanted {
            let opened = self.open(&note);
            if let Err(error) = &opened
                && matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Conflict)
            {
                continue;
            }
            let mut table = self.lock();
            // Another client may have taken the file meanwhile.
            if table.stored.remove(&note.inode).is_none() {
                continue;
            }
            match opened {
                Ok((file, size)) => {
                    let (block, last) = (note.block(size), note.last());
                    let (caller, began) = (note.caller(), table.began);
                    let progress =
                        WriteProgress { next: note.next, block, last, stored: true, ..WriteProgress::default() };
                    let LeaseRecord { id, inode, path, holder, block_bytes, next, .. } = note;
                    let wanted = LeaseRequest { inode, path, holder, block_bytes, file, caller, machine: None, next };
                    table.insert(wanted, id, progress, began);
                }
                Err(error) => {
                    drop(table);
                    tracing::debug!(path = note.path, "a lease is not taken up: {error}");
                    self.notes.remove(note.inode, note.id);
                }
            }
        }
        self.any_stored.store(!self.lock().stored.is_empty(), Ordering::Release);
    }

    fn open(&self, note: &LeaseRecord) -> Result<(File, u64), Error> {
        let fs = self.client.fs().as_caller(note.caller());
        let file = fs.open(&Target::inode(InodeId(note.inode)), OpenFlags::WRITE)?;
        let size = file.stat()?.attr.size;
        Ok((file, size))
    }

    /// Answers another gateway's query for a file, and ends the lease if the query says so.
    pub(crate) fn query(&self, inode: u64, takes: Revocation<'_>) -> WriterLease {
        let mut table = self.lock();
        let (holder, silence) = match (table.by_inode.get(&inode), table.stored.get(&inode)) {
            (Some(lease), _) => (lease.holder.clone(), table.silence(&lease.holder)),
            (None, Some(note)) => (note.holder.clone(), mono().since_ns(table.began)),
            (None, None) => return WriterLease::Nobody,
        };
        let ends = match takes {
            Revocation::Nothing => false,
            Revocation::Silent => silence > SOFT_NS,
            Revocation::Any => true,
            Revocation::Of(wanted) => *wanted == holder,
        };
        if !ends {
            return WriterLease::By(holder);
        }
        let (lease, stored) = (table.take(inode), table.stored.remove(&inode));
        drop(table);
        stored.inspect(|note| self.notes.remove(note.inode, note.id));
        if let (Revocation::Of(_), Some(lease)) = (takes, &lease) {
            // The other gateway continues by the record.
            let mut progress = lease.progress();
            self.put(lease, &mut progress, 0);
            (progress.has_ended, progress.stored) = (true, false);
        }
        self.end_all(lease.clone());
        lease.map_or(WriterLease::Nobody, WriterLease::Ended)
    }

    /// Stores the leases that were given at least `age_ns` ago, and are not stored yet.
    pub(crate) fn note(&self, age_ns: u64) {
        if !self.notes.are_kept() {
            return;
        }
        let now = mono();
        let forgotten = {
            let mut table = self.lock();
            let is_late = now.since_ns(table.began) > HARD_NS;
            if is_late { std::mem::take(&mut table.stored) } else { BTreeMap::new() }
        };
        forgotten.values().for_each(|note| self.notes.remove(note.inode, note.id));
        let old: Vec<Arc<FileLease>> =
            self.lock().by_inode.values().filter(|lease| now.since_ns(lease.given) >= age_ns).cloned().collect();
        for lease in old {
            let mut progress = lease.progress();
            if !progress.stored {
                self.put(&lease, &mut progress, 0);
            }
        }
    }

    /// Stores all leases: this gateway ends. For a while their files are not free.
    pub(crate) fn leave(&self) {
        if !self.notes.are_kept() {
            return;
        }
        let all: Vec<Arc<FileLease>> = self.lock().by_inode.values().cloned().collect();
        for lease in all {
            let mut progress = lease.progress();
            self.put(&lease, &mut progress, wall_ns());
        }
    }

    /// Updates the record after the writer has begun another block.
    pub(crate) fn update_record(&self, lease: &FileLease, progress: &mut WriteProgress) {
        if progress.stored {
            self.put(lease, progress, 0);
        }
    }

    fn put(&self, lease: &FileLease, progress: &mut WriteProgress, ended_ns: u64) {
        // While abandoned bytes lie behind the end, the size of the file is not the writer's position.
        let may = !progress.has_ended && !progress.is_own && !progress.has_abandoned_bytes;
        let put = may.then(|| self.notes.put(&LeaseRecord { ended_ns, ..lease.note(progress) }));
        if let Some(Err(error)) = &put {
            tracing::warn!(path = lease.path, "a lease cannot be noted, and would be over after a restart: {error}");
        }
        let stored = matches!(put, Some(Ok(())));
        if progress.stored && !stored {
            self.notes.remove(lease.inode, lease.id);
        }
        progress.stored = stored;
    }

    /// Ends leases. Waits for writes that are in progress.
    fn end_all(&self, leases: impl IntoIterator<Item = Arc<FileLease>>) {
        for lease in leases {
            let mut progress = lease.progress();
            progress.has_ended = true;
            if std::mem::take(&mut progress.stored) {
                self.notes.remove(lease.inode, lease.id);
            }
        }
    }

    /// Checks that a client may open a file to write: there is no lease, or its holder has been silent for long.
    ///
    /// # Errors
    /// `AlreadyBeingCreatedException`.
    pub(crate) fn check_free(&self, inode: u64, path: &str, wants: &str) -> Result<(), Exception> {
        self.restore(|note| note.inode == inode);
        let table = self.lock();
        let Some(lease) = table.by_inode.get(&inode) else { return Ok(()) };
        if lease.holder != wants && table.silence(&lease.holder) > SOFT_NS {
            return Ok(());
        }
        Err(owned(path, wants, &lease.holder))
    }

    /// The lease of `holder` on a file.
    ///
    /// # Errors
    /// `LeaseExpiredException` if it has none.
    pub(crate) fn lease_of(&self, inode: u64, path: &str, holder: &str) -> Result<Arc<FileLease>, Exception> {
        self.restore(|note| note.holder == holder);
        let mut table = self.lock();
        let by_path = || table.by_inode.values().find(|lease| lease.path == path && lease.holder == holder);
        let found = if inode == 0 { by_path() } else { table.by_inode.get(&inode) };
        let found = found.filter(|lease| lease.holder == holder).cloned().ok_or_else(|| no_lease(path, holder))?;
        table.note_call(holder);
        Ok(found)
    }

    /// The file of which `holder` writes a block, if this gateway knows it.
    pub(crate) fn file_of(&self, block: u64, holder: &str) -> Option<u64> {
        self.restore(|note| note.holder == holder);
        let held: Vec<Arc<FileLease>> =
            self.lock().by_inode.values().filter(|lease| lease.holder == holder).cloned().collect();
        // The table is unlocked: a write may hold the lease.
        let writes =
            |lease: &Arc<FileLease>| lease.progress().block.is_some_and(|at| block_id(lease.inode, at.start) == block);
        held.iter().find(|lease| writes(lease)).map(|lease| lease.inode)
    }

    /// True if a file has a lease here.
    pub(crate) fn has(&self, inode: u64) -> bool {
        self.lock().by_inode.contains_key(&inode)
    }

    /// A lease that was taken over continues where its record says.
    pub(crate) fn resume(&self, lease: &FileLease, note: &LeaseRecord, size: u64) -> Result<(), Exception> {
        let mut progress = lease.writing()?;
        progress.next = note.next;
        progress.block = note.block(size);
        progress.last = note.last();
        self.put(lease, &mut progress, 0);
        Ok(())
    }

    /// The store of leases.
    pub(crate) fn notes(&self) -> &LeaseStore {
        &self.notes
    }

    /// The lease of that number on a file.
    pub(crate) fn numbered(&self, inode: u64, id: u64) -> Option<Arc<FileLease>> {
        self.restore(|note| note.id == id);
        self.lock().by_inode.get(&inode).filter(|lease| lease.id == id).cloned()
    }

    /// The file of a block that is being written here, and the bytes received of the block.
    pub(crate) fn received(&self, block: u64) -> Option<(u64, u64)> {
        let leases: Vec<Arc<FileLease>> = self.lock().by_inode.values().cloned().collect();
        // The table is unlocked: a write may hold the lease.
        leases.into_iter().find_map(|lease| {
            let written = lease.progress().block?;
            (block_id(lease.inode, written.start) == block).then_some((lease.inode, written.received))
        })
    }

    /// True if a file is being written.
    pub(crate) fn is_open(&self, inode: u64) -> bool {
        let table = self.lock();
        table.by_inode.contains_key(&inode) || table.stored.contains_key(&inode)
    }

    /// The files that are being written.
    pub(crate) fn files(&self) -> Vec<u64> {
        self.lock().by_inode.keys().copied().collect()
    }

    /// Files with larger inode numbers that are open for writing, in order, with stored leases that are not restored
    /// yet.
    pub(crate) fn open_after(&self, inode: u64) -> Vec<OpenFileInfo> {
        let table = self.lock();
        let above = (Bound::Excluded(inode), Bound::Unbounded);
        let stored = table.stored.range(above).map(|(_, note)| OpenFileInfo {
            inode: note.inode,
            path: note.path.clone(),
            holder: note.holder.clone(),
            machine: None,
        });
        let held = table.by_inode.range(above).map(|(_, lease)| OpenFileInfo {
            inode: lease.inode,
            path: lease.path.clone(),
            holder: lease.holder.clone(),
            machine: lease.machine,
        });
        let mut all: Vec<OpenFileInfo> = held.chain(stored).collect();
        all.sort_by_key(|open| open.inode);
        all
    }

    /// Renews all leases of a holder.
    pub(crate) fn renew(&self, holder: &str) {
        self.restore(|note| note.holder == holder);
        let mut table = self.lock();
        table.note_call(holder);
        let silent = table.end_silent(mono());
        drop(table);
        self.end_all(silent);
    }

    /// Ends a lease: later writes under it are refused. Waits for a write that is in progress.
    pub(crate) fn end(&self, inode: u64) -> Option<Arc<FileLease>> {
        let mut table = self.lock();
        let (lease, stored) = (table.take(inode), table.stored.remove(&inode));
        drop(table);
        stored.inspect(|note| self.notes.remove(note.inode, note.id));
        self.end_all(lease.clone());
        lease
    }

    /// Ends this lease, unless another one has replaced it.
    pub(crate) fn end_this(&self, lease: &Arc<FileLease>) {
        let mut table = self.lock();
        if table.by_inode.get(&lease.inode).is_some_and(|held| held.id == lease.id) {
            table.take(lease.inode);
        }
        drop(table);
        self.end_all([lease.clone()]);
    }

    fn lock(&self) -> MutexGuard<'_, LeaseTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaseTable {
    /// Inserts a lease; returns it, and the one that it replaces.
    fn insert(
        &mut self,
        wanted: LeaseRequest,
        id: u64,
        progress: WriteProgress,
        last_calls: MonoTime,
    ) -> (Arc<FileLease>, Option<Arc<FileLease>>) {
        let LeaseRequest { inode, path, holder, block_bytes, file, caller, machine, .. } = wanted;
        let last = self.last_calls.entry(holder.clone()).or_insert(last_calls);
        *last = last_calls.max(*last);
        let progress = Mutex::new(progress);
        let lease = Arc::new(FileLease {
            id,
            inode,
            path,
            holder,
            block_bytes,
            file,
            caller,
            machine,
            given: last_calls,
            progress,
        });
        let before = self.by_inode.insert(inode, lease.clone());
        (lease, before)
    }

    fn take(&mut self, inode: u64) -> Option<Arc<FileLease>> {
        let lease = self.by_inode.remove(&inode)?;
        if !self.by_inode.values().any(|other| other.holder == lease.holder) {
            self.last_calls.remove(&lease.holder);
        }
        Some(lease)
    }

    fn note_call(&mut self, holder: &str) {
        if let Some(last_calls) = self.last_calls.get_mut(holder) {
            *last_calls = mono();
        }
    }

    fn silence(&self, holder: &str) -> u64 {
        self.last_calls.get(holder).map_or(u64::MAX, |last_calls| mono().0.saturating_sub(last_calls.0))
    }

    /// Removes and returns the leases of holders that were silent for [`HARD_NS`]. Holders are few; their files may be
    /// many.
    fn end_silent(&mut self, now: MonoTime) -> Vec<Arc<FileLease>> {
        if self.last_calls.values().all(|last_calls| now.since_ns(*last_calls) <= HARD_NS) {
            return Vec::new();
        }
        let is_silent = |lease: &&Arc<FileLease>| {
            self.last_calls.get(&lease.holder).is_none_or(|last_calls| now.since_ns(*last_calls) > HARD_NS)
        };
        let silent: Vec<u64> = self.by_inode.values().filter(is_silent).map(|lease| lease.inode).collect();
        let silent: Vec<Arc<FileLease>> = silent.into_iter().filter_map(|inode| self.take(inode)).collect();
        for lease in &silent {
            let (path, holder) = (&lease.path, &lease.holder);
            tracing::warn!(path, holder, "a file is closed: nothing was heard of its writer");
        }
        silent
    }
}

/// The exception for a file that another client writes.
pub(crate) fn owned(path: &str, wants: &str, holder: &str) -> Exception {
    Exception::already_being_created(format!(
        "Failed to CREATE_FILE {path} for {wants} because this file lease is currently owned by {holder}"
    ))
}

/// Bytes of a holder's name; those of Hadoop's clients have some sixty.
const HOLDER_BYTES_MAX: usize = 1024;
/// Files open for writing at a time.
const LEASES_MAX: usize = 65_536;
