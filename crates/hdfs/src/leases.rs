//! Files that are being written: who holds each, and which block of it is being written where.
//!
//! Guarantees: a file has one writer at this door; another one is refused until the first has been silent for
//! [`SOFT_NS`] or a client asks to recover the lease. A write under a lease that was taken away is refused.
//! Leaves to others: writers at other doors, who are not held up.
//!
//! Leases live in memory: a writer that is open when the server ends finds none afterwards, as Hadoop's clients find none
//! that was recovered. What it was told is in the file is there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frieze_base::MonoTime;
use frieze_client::{File, mono};

use crate::exception::Exception;

/// Silence after which another writer may take a file over: as HDFS has it.
pub(crate) const SOFT_NS: u64 = 60_000_000_000;
/// Silence after which a file is closed by itself: as HDFS has it.
const HARD_NS: u64 = 20 * 60_000_000_000;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Names it in tokens.
    pub(crate) id: u64,
    /// The file.
    pub(crate) inode: u64,
    /// Its path when it was opened.
    pub(crate) path: String,
    /// The client that writes it, as it calls itself.
    pub(crate) holder: String,
    /// Most bytes of a block.
    pub(crate) block_bytes: u64,
    /// Opened to write.
    pub(crate) file: File,
    progress: Mutex<Progress>,
}

/// How far a writer is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Where the next block begins, if none is being written.
    pub(crate) next: u64,
    /// The block that is being written.
    pub(crate) block: Option<Block>,
    /// Number of the block before, which is done; 0 if there was none.
    pub(crate) last_id: u64,
    /// Bytes of blocks that were given up may lie behind what is wanted.
    pub(crate) left_behind: bool,
    /// The lease was taken away.
    pub(crate) is_over: bool,
}

/// A block that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Where in the file it begins.
    pub(crate) start: u64,
    /// Tells a block from one that was begun at the same place before.
    pub(crate) generation: u64,
    /// Bytes of it that are in the file.
    pub(crate) received: u64,
}

impl Lease {
    /// How far it is. Held while bytes are written, so that nobody takes the lease away in between.
    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for who goes on writing.
    ///
    /// # Errors
    /// `LeaseExpiredException` if it was taken away.
    pub(crate) fn writing(&self) -> Result<MutexGuard<'_, Progress>, Exception> {
        let progress = self.progress();
        if progress.is_over { Err(none_held(&self.path, &self.holder)) } else { Ok(progress) }
    }
}

/// All leases.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    by_inode: BTreeMap<u64, Arc<Lease>>,
    /// When each holder was last heard of.
    heard: BTreeMap<String, MonoTime>,
    last: u64,
}

/// What a lease is to be.
pub(crate) struct Wanted {
    pub(crate) inode: u64,
    pub(crate) path: String,
    pub(crate) holder: String,
    pub(crate) block_bytes: u64,
    pub(crate) file: File,
    /// Where the first block begins.
    pub(crate) next: u64,
}

impl Leases {
    /// Gives a lease. Whoever held the file before holds it no more.
    ///
    /// # Errors
    /// `IOException` if too many files are open; `IllegalArgumentException` for a holder of a very long name.
    pub(crate) fn give(&self, wanted: Wanted) -> Result<Arc<Lease>, Exception> {
        let Wanted { inode, path, holder, block_bytes, file, next } = wanted;
        if holder.len() > HOLDER_BYTES_MAX {
            return Err(Exception::illegal_argument(format!("a client name of more than {HOLDER_BYTES_MAX} bytes")));
        }
        let mut table = self.lock();
        let now = mono();
        table.end_silent(now);
        if table.by_inode.len() >= LEASES_MAX {
            return Err(Exception::io(format!("{LEASES_MAX} files are open for writing: no more are opened")));
        }
        table.last += 1;
        table.heard.insert(holder.clone(), now);
        let progress = Mutex::new(Progress { next, block: None, last_id: 0, left_behind: false, is_over: false });
        let lease = Arc::new(Lease { id: table.last, inode, path, holder, block_bytes, file, progress });
        let before = table.by_inode.insert(inode, lease.clone());
        drop(table);
        before.inspect(|before| before.progress().is_over = true);
        Ok(lease)
    }

    /// Who holds a file that another one wants to write: `Ok(())` if nobody does, or its holder has been silent for long.
    ///
    /// # Errors
    /// `AlreadyBeingCreatedException`.
    pub(crate) fn check_free(&self, inode: u64, path: &str, wants: &str) -> Result<(), Exception> {
        let table = self.lock();
        let Some(lease) = table.by_inode.get(&inode) else { return Ok(()) };
        if lease.holder != wants && table.silence(&lease.holder) > SOFT_NS {
            return Ok(());
        }
        let holder = &lease.holder;
        Err(Exception::already_being_created(format!(
            "Failed to CREATE_FILE {path} for {wants} because this file lease is currently owned by {holder}"
        )))
    }

    /// The lease of `holder` on a file.
    ///
    /// # Errors
    /// `LeaseExpiredException` if it has none.
    pub(crate) fn held(&self, inode: u64, path: &str, holder: &str) -> Result<Arc<Lease>, Exception> {
        let mut table = self.lock();
        let by_path = || table.by_inode.values().find(|lease| lease.path == path && lease.holder == holder);
        let found = if inode == 0 { by_path() } else { table.by_inode.get(&inode) };
        let found = found.filter(|lease| lease.holder == holder).cloned().ok_or_else(|| none_held(path, holder))?;
        table.hear(holder);
        Ok(found)
    }

    /// The lease of `holder` of which `is_it` holds.
    ///
    /// # Errors
    /// `LeaseExpiredException` if there is none.
    pub(crate) fn of_holder(
        &self,
        holder: &str,
        is_it: impl Fn(&Lease, &Progress) -> bool,
    ) -> Result<Arc<Lease>, Exception> {
        let mut table = self.lock();
        table.hear(holder);
        let held: Vec<Arc<Lease>> = table.by_inode.values().filter(|lease| lease.holder == holder).cloned().collect();
        drop(table);
        // Asked without the table: a write may be under way.
        let found = held.into_iter().find(|lease| is_it(lease, &lease.progress()));
        found.ok_or_else(|| Exception::lease_expired(format!("{holder} does not write that block")))
    }

    /// The lease of that number on a file.
    pub(crate) fn numbered(&self, inode: u64, id: u64) -> Option<Arc<Lease>> {
        self.lock().by_inode.get(&inode).filter(|lease| lease.id == id).cloned()
    }

    /// True if a file is being written.
    pub(crate) fn is_held(&self, inode: u64) -> bool {
        self.lock().by_inode.contains_key(&inode)
    }

    /// The files that are being written.
    pub(crate) fn files(&self) -> Vec<u64> {
        self.lock().by_inode.keys().copied().collect()
    }

    /// A holder is still there.
    pub(crate) fn renew(&self, holder: &str) {
        let mut table = self.lock();
        table.hear(holder);
        table.end_silent(mono());
    }

    /// Takes a lease away: what is written under it from now on is refused. Waits for a write that is under way.
    pub(crate) fn end(&self, inode: u64) -> Option<Arc<Lease>> {
        let lease = self.lock().take(inode)?;
        lease.progress().is_over = true;
        Some(lease)
    }

    /// Ends this lease, unless another one has taken its place.
    pub(crate) fn end_this(&self, lease: &Arc<Lease>) {
        let mut table = self.lock();
        if table.by_inode.get(&lease.inode).is_some_and(|held| held.id == lease.id) {
            table.take(lease.inode);
        }
        drop(table);
        lease.progress().is_over = true;
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn take(&mut self, inode: u64) -> Option<Arc<Lease>> {
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

    /// Forgets those of whom nothing was heard for very long. Holders are few; files that they write may be many.
    fn end_silent(&mut self, now: MonoTime) {
        if self.heard.values().all(|heard| now.since_ns(*heard) <= HARD_NS) {
            return;
        }
        let is_silent =
            |lease: &&Arc<Lease>| self.heard.get(&lease.holder).is_none_or(|heard| now.since_ns(*heard) > HARD_NS);
        let silent: Vec<u64> = self.by_inode.values().filter(is_silent).map(|lease| lease.inode).collect();
        for inode in silent {
            if let Some(lease) = self.take(inode) {
                tracing::warn!(
                    path = lease.path,
                    holder = lease.holder,
                    "a file is closed: nothing was heard of its writer"
                );
                lease.progress().is_over = true;
            }
        }
    }
}

fn none_held(path: &str, holder: &str) -> Exception {
    Exception::lease_expired(format!("{path}: {holder} does not have it open for writing any more"))
}

/// Bytes of a holder's name at most: Hadoop's clients have some sixty.
const HOLDER_BYTES_MAX: usize = 1024;
/// Files that may be open for writing at one time.
const LEASES_MAX: usize = 65_536;
