//! Files that are being written: who holds each, and which block of it is being written where.
//!
//! Guarantees: a file has one writer at this door; another one is refused until the first has been silent for
//! [`SOFT_NS`] or a client asks to recover the lease. A write under a lease that was taken away is refused.
//! Leaves to others: writers at other doors ([`crate::peer_gateways`]); those that are not Hadoop's, who are not held up.
//!
//! Leases live in memory. What has to be known of those that are a second old is noted ([`crate::lease_store`]). A server that is alone takes a
//! lease of the process before up when its holder, or anybody else, asks for its file; in a cluster any door takes it over
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
use crate::lease::{FileLease, WriteProgress, none_held};
use crate::lease_record::LeaseRecord;
use crate::lease_store::LeaseStore;

/// Silence after which another writer may take a file over: as HDFS has it.
pub(crate) const SOFT_NS: u64 = 60_000_000_000;
/// Silence after which a file is closed by itself: as HDFS has it.
const HARD_NS: u64 = 20 * 60_000_000_000;

/// All leases.
pub(crate) struct Leases {
    table: Mutex<LeaseTable>,
    client: Client,
    notes: LeaseStore,
    /// Something is noted that nobody has asked for yet.
    any_noted: AtomicBool,
    /// Held by who takes leases up: another one who asks for one waits until it is there.
    taking: Mutex<()>,
}

#[derive(Debug, Default)]
struct LeaseTable {
    by_inode: BTreeMap<u64, Arc<FileLease>>,
    /// When each holder was last heard of.
    heard: BTreeMap<String, MonoTime>,
    last: u64,
    /// Of the process before, by file, as long as nobody has asked for it.
    noted: BTreeMap<u64, LeaseRecord>,
    /// When this process began.
    began: MonoTime,
}

/// When another door is to have a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revocation<'a> {
    /// Not at all: it asks.
    Nothing,
    /// If nothing was heard of its writer for long.
    Silent,
    /// In any case.
    Any,
    /// If this one writes it, who asks from now on at that door.
    Of(&'a str),
}

/// Who has a file here.
pub(crate) enum LeaseHolder {
    /// Nobody.
    Nobody,
    /// This one, and keeps it.
    By(String),
    /// Somebody had it, and has it no more.
    Ended(Arc<FileLease>),
}

/// What a lease is to be.
pub(crate) struct LeaseRequest {
    pub(crate) inode: u64,
    pub(crate) path: String,
    pub(crate) holder: String,
    pub(crate) block_bytes: u64,
    pub(crate) file: File,
    pub(crate) caller: Caller,
    /// Where its writer is; not known of one that began at another door, or before a restart.
    pub(crate) machine: Option<IpAddr>,
    /// Where the first block begins.
    pub(crate) next: u64,
}

/// A file that is being written, to be told of.
pub(crate) struct OpenFileInfo {
    pub(crate) inode: u64,
    /// When it was opened.
    pub(crate) path: String,
    pub(crate) holder: String,
    pub(crate) machine: Option<IpAddr>,
}

impl Leases {
    /// None, but for what the process before has noted.
    pub(crate) fn new(client: Client, notes: LeaseStore) -> io::Result<Leases> {
        let noted: BTreeMap<u64, LeaseRecord> = notes.all()?.into_iter().map(|note| (note.inode, note)).collect();
        // Numbers of this process are above those of the one before: an old token names no new lease.
        let table = LeaseTable { last: wall_ns(), began: mono(), noted, ..LeaseTable::default() };
        let any_noted = AtomicBool::new(!table.noted.is_empty());
        Ok(Leases { table: Mutex::new(table), client, notes, any_noted, taking: Mutex::default() })
    }

    /// Gives a lease. Whoever held the file before holds it no more.
    ///
    /// # Errors
    /// `IOException` if too many files are open; `IllegalArgumentException` for a holder of a very long name.
    pub(crate) fn give(&self, wanted: LeaseRequest) -> Result<Arc<FileLease>, Exception> {
        if wanted.holder.len() > HOLDER_BYTES_MAX {
            return Err(Exception::illegal_argument(format!("a client name of more than {HOLDER_BYTES_MAX} bytes")));
        }
        let mut table = self.lock();
        let now = mono();
        let silent = table.end_silent(now);
        if table.by_inode.len() + table.noted.len() >= LEASES_MAX {
            drop(table);
            self.all_over(silent);
            return Err(Exception::io(format!("{LEASES_MAX} files are open for writing: no more are opened")));
        }
        table.last += 1;
        let (id, next) = (table.last, wanted.next);
        let progress = WriteProgress { next, ..WriteProgress::default() };
        let (lease, before) = table.insert(wanted, id, progress, now);
        let noted = table.noted.remove(&lease.inode);
        drop(table);
        self.all_over(before.into_iter().chain(silent));
        noted.inspect(|note| self.notes.remove(note.inode, note.id));
        Ok(lease)
    }

    /// Takes up what the process before has noted, where `is_it` says so. What cannot be opened just now stays noted.
    fn take_up(&self, is_it: impl Fn(&LeaseRecord) -> bool) {
        if !self.any_noted.load(Ordering::Acquire) {
            return;
        }
        let _one = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        if self.client.has_others() {
            // Noted while the server was alone: others cannot have known, and may have had the file since.
            let forgotten = std::mem::take(&mut self.lock().noted);
            forgotten.values().for_each(|note| self.notes.remove(note.inode, note.id));
            self.any_noted.store(false, Ordering::Release);
            return;
        }
        let wanted: Vec<LeaseRecord> = self.lock().noted.values().filter(|note| is_it(note)).cloned().collect();
        for note in wanted {
            let opened = self.open(&note);
            if let Err(error) = &opened
                && matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Conflict)
            {
                continue;
            }
            let mut table = self.lock();
            // Somebody may have taken the file meanwhile.
            if table.noted.remove(&note.inode).is_none() {
                continue;
            }
            match opened {
                Ok((file, size)) => {
                    let (block, last) = (note.block(size), note.last());
                    let (caller, began) = (note.caller(), table.began);
                    let progress =
                        WriteProgress { next: note.next, block, last, noted: true, ..WriteProgress::default() };
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
        self.any_noted.store(!self.lock().noted.is_empty(), Ordering::Release);
    }

    fn open(&self, note: &LeaseRecord) -> Result<(File, u64), Error> {
        let fs = self.client.fs().as_caller(note.caller());
        let file = fs.open(&Target::inode(InodeId(note.inode)), OpenFlags::WRITE)?;
        let size = file.stat()?.attr.size;
        Ok((file, size))
    }

    /// Another door asks who has a file here, and takes it from him if it is to.
    pub(crate) fn query(&self, inode: u64, takes: Revocation<'_>) -> LeaseHolder {
        let mut table = self.lock();
        let (holder, silence) = match (table.by_inode.get(&inode), table.noted.get(&inode)) {
            (Some(lease), _) => (lease.holder.clone(), table.silence(&lease.holder)),
            (None, Some(note)) => (note.holder.clone(), mono().since_ns(table.began)),
            (None, None) => return LeaseHolder::Nobody,
        };
        let ends = match takes {
            Revocation::Nothing => false,
            Revocation::Silent => silence > SOFT_NS,
            Revocation::Any => true,
            Revocation::Of(wanted) => *wanted == holder,
        };
        if !ends {
            return LeaseHolder::By(holder);
        }
        let (lease, noted) = (table.take(inode), table.noted.remove(&inode));
        drop(table);
        noted.inspect(|note| self.notes.remove(note.inode, note.id));
        if let (Revocation::Of(_), Some(lease)) = (takes, &lease) {
            // By what is noted it goes on there.
            let mut progress = lease.progress();
            self.put(lease, &mut progress, 0);
            (progress.is_over, progress.noted) = (true, false);
        }
        self.all_over(lease.clone());
        lease.map_or(LeaseHolder::Nobody, LeaseHolder::Ended)
    }

    /// Notes the leases that were given `age_ns` ago or before, and are not noted yet.
    pub(crate) fn note(&self, age_ns: u64) {
        if !self.notes.are_kept() {
            return;
        }
        let now = mono();
        let forgotten = {
            let mut table = self.lock();
            let is_late = now.since_ns(table.began) > HARD_NS;
            if is_late { std::mem::take(&mut table.noted) } else { BTreeMap::new() }
        };
        forgotten.values().for_each(|note| self.notes.remove(note.inode, note.id));
        let old: Vec<Arc<FileLease>> =
            self.lock().by_inode.values().filter(|lease| now.since_ns(lease.given) >= age_ns).cloned().collect();
        for lease in old {
            let mut progress = lease.progress();
            if !progress.noted {
                self.put(&lease, &mut progress, 0);
            }
        }
    }

    /// Notes all of them: this door ends. For a while nobody else gets those files.
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

    /// The writer has begun another block: what is noted of it has to say so.
    pub(crate) fn note_block(&self, lease: &FileLease, progress: &mut WriteProgress) {
        if progress.noted {
            self.put(lease, progress, 0);
        }
    }

    fn put(&self, lease: &FileLease, progress: &mut WriteProgress, left_ns: u64) {
        // Where bytes of a block that was given up lie behind, the file does not say how far its writer is.
        let may = !progress.is_over && !progress.is_own && !progress.left_behind;
        let put = may.then(|| self.notes.put(&LeaseRecord { left_ns, ..lease.note(progress) }));
        if let Some(Err(error)) = &put {
            tracing::warn!(path = lease.path, "a lease cannot be noted, and would be over after a restart: {error}");
        }
        let noted = matches!(put, Some(Ok(())));
        if progress.noted && !noted {
            self.notes.remove(lease.inode, lease.id);
        }
        progress.noted = noted;
    }

    /// Nothing is written any more under these. Waits for a write that is under way.
    fn all_over(&self, leases: impl IntoIterator<Item = Arc<FileLease>>) {
        for lease in leases {
            let mut progress = lease.progress();
            progress.is_over = true;
            if std::mem::take(&mut progress.noted) {
                self.notes.remove(lease.inode, lease.id);
            }
        }
    }

    /// Who holds a file that another one wants to write: `Ok(())` if nobody does, or its holder has been silent for long.
    ///
    /// # Errors
    /// `AlreadyBeingCreatedException`.
    pub(crate) fn check_free(&self, inode: u64, path: &str, wants: &str) -> Result<(), Exception> {
        self.take_up(|note| note.inode == inode);
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
    pub(crate) fn held(&self, inode: u64, path: &str, holder: &str) -> Result<Arc<FileLease>, Exception> {
        self.take_up(|note| note.holder == holder);
        let mut table = self.lock();
        let by_path = || table.by_inode.values().find(|lease| lease.path == path && lease.holder == holder);
        let found = if inode == 0 { by_path() } else { table.by_inode.get(&inode) };
        let found = found.filter(|lease| lease.holder == holder).cloned().ok_or_else(|| none_held(path, holder))?;
        table.hear(holder);
        Ok(found)
    }

    /// The file of which `holder` writes a block, as far as that is known here.
    pub(crate) fn file_of(&self, block: u64, holder: &str) -> Option<u64> {
        self.take_up(|note| note.holder == holder);
        let held: Vec<Arc<FileLease>> =
            self.lock().by_inode.values().filter(|lease| lease.holder == holder).cloned().collect();
        // Asked without the table: a write may be under way.
        let writes =
            |lease: &Arc<FileLease>| lease.progress().block.is_some_and(|at| block_id(lease.inode, at.start) == block);
        held.iter().find(|lease| writes(lease)).map(|lease| lease.inode)
    }

    /// True if a file has a lease here, whoever holds it.
    pub(crate) fn has(&self, inode: u64) -> bool {
        self.lock().by_inode.contains_key(&inode)
    }

    /// What is noted of a lease that is given up elsewhere is so of this one, which goes on where that one was.
    pub(crate) fn go_on(&self, lease: &FileLease, note: &LeaseRecord, size: u64) -> Result<(), Exception> {
        let mut progress = lease.writing()?;
        progress.next = note.next;
        progress.block = note.block(size);
        progress.last = note.last();
        self.put(lease, &mut progress, 0);
        Ok(())
    }

    /// Where leases are noted.
    pub(crate) fn notes(&self) -> &LeaseStore {
        &self.notes
    }

    /// The lease of that number on a file.
    pub(crate) fn numbered(&self, inode: u64, id: u64) -> Option<Arc<FileLease>> {
        self.take_up(|note| note.id == id);
        self.lock().by_inode.get(&inode).filter(|lease| lease.id == id).cloned()
    }

    /// The file of a block that is being written, and how many bytes of the block have come; `None` if it is not, here.
    pub(crate) fn received(&self, block: u64) -> Option<(u64, u64)> {
        let leases: Vec<Arc<FileLease>> = self.lock().by_inode.values().cloned().collect();
        // Asked without the table: a write may be under way.
        leases.into_iter().find_map(|lease| {
            let written = lease.progress().block?;
            (block_id(lease.inode, written.start) == block).then_some((lease.inode, written.received))
        })
    }

    /// True if a file is being written.
    pub(crate) fn is_held(&self, inode: u64) -> bool {
        let table = self.lock();
        table.by_inode.contains_key(&inode) || table.noted.contains_key(&inode)
    }

    /// The files that are being written.
    pub(crate) fn files(&self) -> Vec<u64> {
        self.lock().by_inode.keys().copied().collect()
    }

    /// The files of numbers above that are being written, in their order; those of the process before among them, as long as their
    /// writers may go on.
    pub(crate) fn open_after(&self, inode: u64) -> Vec<OpenFileInfo> {
        let table = self.lock();
        let above = (Bound::Excluded(inode), Bound::Unbounded);
        let noted = table.noted.range(above).map(|(_, note)| OpenFileInfo {
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
        let mut all: Vec<OpenFileInfo> = held.chain(noted).collect();
        all.sort_by_key(|open| open.inode);
        all
    }

    /// A holder is still there.
    pub(crate) fn renew(&self, holder: &str) {
        self.take_up(|note| note.holder == holder);
        let mut table = self.lock();
        table.hear(holder);
        let silent = table.end_silent(mono());
        drop(table);
        self.all_over(silent);
    }

    /// Takes a lease away: what is written under it from now on is refused. Waits for a write that is under way.
    pub(crate) fn end(&self, inode: u64) -> Option<Arc<FileLease>> {
        let mut table = self.lock();
        let (lease, noted) = (table.take(inode), table.noted.remove(&inode));
        drop(table);
        noted.inspect(|note| self.notes.remove(note.inode, note.id));
        self.all_over(lease.clone());
        lease
    }

    /// Ends this lease, unless another one has taken its place.
    pub(crate) fn end_this(&self, lease: &Arc<FileLease>) {
        let mut table = self.lock();
        if table.by_inode.get(&lease.inode).is_some_and(|held| held.id == lease.id) {
            table.take(lease.inode);
        }
        drop(table);
        self.all_over([lease.clone()]);
    }

    fn lock(&self) -> MutexGuard<'_, LeaseTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaseTable {
    /// A lease in its place, and the one that was there.
    fn insert(
        &mut self,
        wanted: LeaseRequest,
        id: u64,
        progress: WriteProgress,
        heard: MonoTime,
    ) -> (Arc<FileLease>, Option<Arc<FileLease>>) {
        let LeaseRequest { inode, path, holder, block_bytes, file, caller, machine, .. } = wanted;
        let last = self.heard.entry(holder.clone()).or_insert(heard);
        *last = heard.max(*last);
        let progress = Mutex::new(progress);
        let lease =
            Arc::new(FileLease { id, inode, path, holder, block_bytes, file, caller, machine, given: heard, progress });
        let before = self.by_inode.insert(inode, lease.clone());
        (lease, before)
    }

    fn take(&mut self, inode: u64) -> Option<Arc<FileLease>> {
        let lease = self.by_inode.remove(&inode)?;
        if !self.by_inode.values().any(|other| other.holder == lease.holder) {
            self.heard.remove(&lease.holder);
        }
        Some(lease)
    }

    fn hear(&mut self, holder: &str) {
        if let Some(heard) = self.heard.get_mut(holder) {
            *heard = mono();
        }
    }

    fn silence(&self, holder: &str) -> u64 {
        self.heard.get(holder).map_or(u64::MAX, |heard| mono().0.saturating_sub(heard.0))
    }

    /// Forgets those of whom nothing was heard for very long, and gives them back. Holders are few; files that they write may be many.
    fn end_silent(&mut self, now: MonoTime) -> Vec<Arc<FileLease>> {
        if self.heard.values().all(|heard| now.since_ns(*heard) <= HARD_NS) {
            return Vec::new();
        }
        let is_silent =
            |lease: &&Arc<FileLease>| self.heard.get(&lease.holder).is_none_or(|heard| now.since_ns(*heard) > HARD_NS);
        let silent: Vec<u64> = self.by_inode.values().filter(is_silent).map(|lease| lease.inode).collect();
        let silent: Vec<Arc<FileLease>> = silent.into_iter().filter_map(|inode| self.take(inode)).collect();
        for lease in &silent {
            let (path, holder) = (&lease.path, &lease.holder);
            tracing::warn!(path, holder, "a file is closed: nothing was heard of its writer");
        }
        silent
    }
}

/// A file is wanted that somebody writes.
pub(crate) fn owned(path: &str, wants: &str, holder: &str) -> Exception {
    Exception::already_being_created(format!(
        "Failed to CREATE_FILE {path} for {wants} because this file lease is currently owned by {holder}"
    ))
}

/// Bytes of a holder's name at most: Hadoop's clients have some sixty.
const HOLDER_BYTES_MAX: usize = 1024;
/// Files that may be open for writing at one time.
const LEASES_MAX: usize = 65_536;
