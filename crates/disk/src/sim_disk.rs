//! A device in memory that loses what real ones lose.
//!
//! Guarantees: those of [`Disk`], and nothing more: on a loss of power every file keeps what was synced and a seeded
//! choice of the sectors written since (none, all, the first ones written, or any), and the names keep what was synced
//! and a prefix of the changes since, as a journalling file system does. The same seed and calls give the same bytes.
//! Leaves to others: when to crash, and what must hold then (`sim`).
//!
//! A file is a sparse map of sectors as they read now, and beside it, for each sector written since the last sync, what
//! it was before. Sync forgets the old ones; a loss of power brings some of them back.

mod file;

use std::collections::BTreeMap;
use std::sync::Arc;

use frieze_base::Rng;
use frieze_locks::{Mutex, MutexGuard, levels};
use rustix::io::Errno;

use crate::device::{PAGE_BYTES, check_name, pages_within};
use crate::{Disk, DiskFile, DiskOp, Error, Result, Space};

use file::{SECTOR_BYTES, SimFile, blank, sectors_of};

/// What a crash loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    /// The process dies: everything written stays, as in a page cache.
    Process,
    /// The machine loses power: writes without a sync may be lost, whole or in part.
    Power,
}

/// A simulated device. Clones are the same device, as seen by one process; handles opened before a crash are dead.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Mutex<levels::SimDisk, SimDiskState>>,
}

struct SimDiskState {
    rng: Rng,
    capacity_bytes: u64,
    files: BTreeMap<FileId, SimFile>,
    names: BTreeMap<String, FileId>,
    durable_names: BTreeMap<String, FileId>,
    /// Changes of names since the last `sync_dir`, oldest first.
    name_changes: Vec<NameChange>,
    next_id: FileId,
    /// Number of the process that uses the disk: handles of an earlier one are dead.
    incarnation: u64,
    crashed: bool,
    /// Changing operations until the device stops in the middle of one.
    fuse: Option<u64>,
    changes: u64,
    sync_errors: u32,
    /// Writes that succeed before some fail, and how many fail.
    write_errors: (u32, u32),
    /// Times that a thread gives up its processor before each write.
    write_yields: u32,
    read_errors: u32,
    /// Count of reads from the medium of a run of pages without a copy in memory.
    fetches: u64,
}

type FileId = u64;

enum NameChange {
    Create { name: String, id: FileId },
    Rename { from: String, to: String },
    Remove { name: String },
}

struct SimHandle {
    shared: Arc<Mutex<levels::SimDisk, SimDiskState>>,
    name: String,
    id: FileId,
    len: u64,
    incarnation: u64,
}

impl SimDisk {
    /// An empty device whose losses are drawn from `seed`, with unlimited capacity.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::with_capacity(seed, u64::MAX / 2)
    }

    /// An empty device that is full when its files together have `capacity_bytes`.
    pub fn with_capacity(seed: u64, capacity_bytes: u64) -> SimDisk {
        let state = SimDiskState {
            rng: Rng::new(seed),
            capacity_bytes,
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            next_id: 0,
            incarnation: 0,
            crashed: false,
            fuse: None,
            changes: 0,
            sync_errors: 0,
            write_errors: (0, 0),
            write_yields: 0,
            read_errors: 0,
            fetches: 0,
        };
        SimDisk { shared: Arc::new(Mutex::new(state)) }
    }

    /// Kills the process that uses the device, or the power. Every operation fails until [`SimDisk::restart`].
    pub fn crash(&self, kind: CrashKind) {
        let mut state = self.state();
        state.crashed = true;
        if kind == CrashKind::Power {
            state.lose_power();
        }
    }

    /// Starts a new process on the device. Handles opened before stay dead.
    pub fn restart(&self) {
        let mut state = self.state();
        state.crashed = false;
        state.fuse = None;
        (state.write_errors, state.read_errors) = ((0, 0), 0);
        state.incarnation += 1;
        for file in state.files.values_mut() {
            file.sync_failed = false;
        }
        state.drop_unnamed();
    }

    /// Stops the device in the middle of the `changes`-th changing operation from now (1: the next). That one is half
    /// done, it and all later operations fail. Follow it by [`SimDisk::crash`] and [`SimDisk::restart`].
    pub fn fail_after(&self, changes: u64) {
        assert!(changes > 0, "the next changing operation is number 1");
        self.state().fuse = Some(changes);
    }

    /// Makes the next `count` syncs of files fail with an input/output error, as a failing device does. Such a file
    /// fails every later sync too, until a restart.
    pub fn fail_syncs(&self, count: u32) {
        self.state().sync_errors = count;
    }

    /// Makes `count` writes fail with an input/output error after `after` that succeed. Of each failing write a part is
    /// written: nothing, some or all of it.
    pub fn fail_writes(&self, after: u32, count: u32) {
        self.state().write_errors = (after, count);
    }

    /// Lets a thread give up its processor `count` times before each of its writes: threads of a test overlap there.
    pub fn yield_before_writes(&self, count: u32) {
        self.state().write_yields = count;
    }

    /// Makes the next `count` reads fail with an input/output error; the bytes stay intact.
    pub fn fail_reads(&self, count: u32) {
        self.state().read_errors = count;
    }

    /// Returns how many reads were still to fail, and clears that.
    pub fn spare_reads(&self) -> u32 {
        std::mem::take(&mut self.state().read_errors)
    }

    /// Limits the bytes of all files together.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.state().capacity_bytes = capacity_bytes;
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset`, on the medium and in the cache: bit rot. Works at any time.
    ///
    /// # Errors
    /// `NotFound`; `InvalidArgument` beyond the end.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) -> Result<()> {
        assert!(bit < 8, "a byte has 8 bits");
        let mut state = self.state();
        let id = *state.names.get(name).ok_or_else(|| io(DiskOp::Open, name, Errno::NOENT))?;
        let file = state.file(id);
        if offset >= file.len {
            return Err(Error::Beyond { name: name.to_owned(), offset, len: 1, file_bytes: file.len });
        }
        let (sector, within) = (offset / SECTOR_BYTES as u64, (offset % SECTOR_BYTES as u64) as usize);
        file.sectors.entry(sector).or_insert_with(blank)[within] ^= 1 << bit;
        if let Some(unsynced) = file.unsynced.get_mut(&sector) {
            unsynced.before.get_or_insert_with(blank)[within] ^= 1 << bit;
        }
        Ok(())
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset` in the copy in memory, until the copy is dropped: the medium
    /// stays intact.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn stain(&self, name: &str, offset: u64, bit: u8) -> Result<()> {
        assert!(bit < 8, "a byte has 8 bits");
        let mut state = self.state();
        let id = *state.names.get(name).ok_or_else(|| io(DiskOp::Open, name, Errno::NOENT))?;
        let file = state.file(id);
        file.copies.insert(offset / PAGE_BYTES);
        *file.stains.entry(offset).or_default() ^= 1 << bit;
        Ok(())
    }

    /// Count of reads from the medium of pages without a copy in memory: a run of them counts once.
    pub fn fetches(&self) -> u64 {
        self.state().fetches
    }

    /// Makes every read of the sectors of these bytes of a file fail with an input/output error until they are
    /// rewritten, as a worn medium does.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn wear_out(&self, name: &str, bytes: std::ops::Range<u64>) -> Result<()> {
        let mut state = self.state();
        let id = *state.names.get(name).ok_or_else(|| io(DiskOp::Open, name, Errno::NOENT))?;
        state.file(id).unreadable.extend(sectors_of(bytes.start, bytes.end - bytes.start));
        Ok(())
    }

    /// Changing operations so far (create, write, punch, sync, rename, remove, sync of names): the places for a crash.
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// True after a crash, until the restart.
    pub fn is_crashed(&self) -> bool {
        self.state().crashed
    }

    #[track_caller]
    fn state(&self) -> MutexGuard<'_, SimDiskState> {
        self.shared.lock()
    }

    fn handle(&self, state: &SimDiskState, name: &str, id: FileId, len: u64) -> Arc<dyn DiskFile> {
        let shared = Arc::clone(&self.shared);
        Arc::new(SimHandle { shared, name: name.to_owned(), id, len, incarnation: state.incarnation })
    }
}

impl Disk for SimDisk {
    fn list(&self) -> Result<Vec<String>> {
        let state = self.state();
        state.alive(DiskOp::List, "files")?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str, len: u64) -> Result<Arc<dyn DiskFile>> {
        check_name(name)?;
        let mut state = self.state();
        state.alive(DiskOp::Create, name)?;
        if state.names.contains_key(name) {
            return Err(io(DiskOp::Create, name, Errno::EXIST));
        }
        let free_bytes = state.free_bytes();
        if len > free_bytes {
            return Err(Error::Full { name: name.to_owned(), wanted_bytes: len, free_bytes });
        }
        let cut = state.change();
        if !cut || state.rng.chance(2) {
            let id = state.next_id;
            state.next_id += 1;
            state.files.insert(id, SimFile { len, ..SimFile::default() });
            state.change_names(NameChange::Create { name: name.to_owned(), id });
        }
        state.alive(DiskOp::Create, name)?;
        let id = state.names[name];
        Ok(self.handle(&state, name, id, len))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        check_name(name)?;
        let mut state = self.state();
        state.alive(DiskOp::Open, name)?;
        let id = *state.names.get(name).ok_or_else(|| io(DiskOp::Open, name, Errno::NOENT))?;
        let len = state.file(id).len;
        Ok(self.handle(&state, name, id, len))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        let mut state = self.state();
        state.alive(DiskOp::Rename, from)?;
        if !state.names.contains_key(from) {
            return Err(io(DiskOp::Rename, from, Errno::NOENT));
        }
        let cut = state.change();
        if !cut || state.rng.chance(2) {
            state.change_names(NameChange::Rename { from: from.to_owned(), to: to.to_owned() });
        }
        state.alive(DiskOp::Rename, from)
    }

    fn remove(&self, name: &str) -> Result<()> {
        check_name(name)?;
        let mut state = self.state();
        state.alive(DiskOp::Remove, name)?;
        if !state.names.contains_key(name) {
            return Err(io(DiskOp::Remove, name, Errno::NOENT));
        }
        let cut = state.change();
        if !cut || state.rng.chance(2) {
            state.change_names(NameChange::Remove { name: name.to_owned() });
        }
        state.alive(DiskOp::Remove, name)
    }

    fn sync_dir(&self) -> Result<()> {
        let mut state = self.state();
        state.alive(DiskOp::SyncDir, "files")?;
        let cut = state.change();
        let pending = state.name_changes.len() as u64;
        let done = if cut { state.rng.between(0, pending) } else { pending };
        state.settle_names(done as usize);
        state.alive(DiskOp::SyncDir, "files")
    }

    fn space(&self) -> Result<Space> {
        let state = self.state();
        state.alive(DiskOp::Space, "files")?;
        Ok(Space { capacity_bytes: state.capacity_bytes, free_bytes: state.free_bytes() })
    }
}

impl DiskFile for SimHandle {
    fn len(&self) -> Result<u64> {
        self.alive(DiskOp::Len).map(|_| self.len)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let yields = self.alive(DiskOp::Write)?.write_yields;
        (0..yields).for_each(|_| std::thread::yield_now());
        let mut state = self.alive(DiskOp::Write)?;
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::Beyond { name: self.name.clone(), offset, len, file_bytes: self.len });
        }
        let cut = state.change();
        let fails = state.write_fails();
        let mut left = match (cut, fails) {
            (false, false) => len,
            // Often nothing of it, or all.
            (false, true) if state.rng.chance(2) => len * state.rng.below(2),
            _ => state.rng.between(0, len),
        };
        let mut at = offset;
        let file = state.file(self.id);
        for part in parts {
            let part = &part[..part.len().min(left as usize)];
            file.write(at, part);
            at += part.len() as u64;
            left -= part.len() as u64;
        }
        state.alive(DiskOp::Write, &self.name)?;
        if fails { Err(io(DiskOp::Write, &self.name, Errno::IO)) } else { Ok(()) }
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.read_either(offset, into, true)
    }

    fn read_direct_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.read_either(offset, into, false)
    }

    fn prefetch(&self, offset: u64, len: u64) -> Result<()> {
        let mut state = self.alive(DiskOp::Read)?;
        let len = len.min(self.len.saturating_sub(offset));
        // An unreadable page is not copied to memory: the next read returns the error.
        if state.file(self.id).unreadable.range(sectors_of(offset, len)).next().is_none() {
            state.fetch(self.id, offset, len);
        }
        Ok(())
    }

    fn advise_dont_need(&self, offset: u64, len: u64) -> Result<()> {
        let mut state = self.alive(DiskOp::Advise)?;
        let (start, end) = pages_within(offset, len);
        state.file(self.id).advise_dont_need(start / PAGE_BYTES..end / PAGE_BYTES);
        Ok(())
    }

    fn hint_random_reads(&self) -> Result<()> {
        // There is no read-ahead to switch off.
        self.alive(DiskOp::Advise).map(drop)
    }

    fn cached_bytes(&self) -> Result<Option<u64>> {
        Ok(Some(self.alive(DiskOp::Read)?.file(self.id).copies.len() as u64 * PAGE_BYTES))
    }

    fn punch(&self, offset: u64, len: u64) -> Result<u64> {
        let mut state = self.alive(DiskOp::Punch)?;
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::Beyond { name: self.name.clone(), offset, len, file_bytes: self.len });
        }
        let (start, end) = pages_within(offset, len);
        let pages = (end - start) / PAGE_BYTES;
        let cut = state.change();
        let done = if cut { state.rng.between(0, pages) } else { pages };
        let file = state.file(self.id);
        let freed = file.punch(start / PAGE_BYTES..start / PAGE_BYTES + done) * PAGE_BYTES;
        state.alive(DiskOp::Punch, &self.name)?;
        Ok(freed)
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.alive(DiskOp::Sync)?;
        if state.file(self.id).sync_failed {
            return Err(Error::SyncLost { name: self.name.clone() });
        }
        let cut = state.change();
        if state.sync_errors > 0 && !cut {
            state.sync_errors -= 1;
            let file = state.file(self.id);
            file.sync_failed = true;
            return Err(io(DiskOp::Sync, &self.name, Errno::IO));
        }
        let SimDiskState { rng, files, .. } = &mut *state;
        let file = files.get_mut(&self.id).expect("a file lives while a handle of this process is alive");
        if cut {
            file.unsynced.retain(|_, _| rng.chance(2));
        } else {
            file.unsynced.clear();
        }
        state.alive(DiskOp::Sync, &self.name)
    }
}

impl SimHandle {
    /// Reads the copy in memory, fetching it first, or the medium.
    fn read_either(&self, offset: u64, into: &mut [u8], is_copy: bool) -> Result<usize> {
        let mut state = self.alive(DiskOp::Read)?;
        let len = (into.len() as u64).min(self.len.saturating_sub(offset)) as usize;
        if state.read_errors > 0 {
            state.read_errors -= 1;
            return Err(io(DiskOp::Read, &self.name, Errno::IO));
        }
        let file = state.file(self.id);
        if len > 0 && file.unreadable.range(sectors_of(offset, len as u64)).next().is_some() {
            return Err(io(DiskOp::Read, &self.name, Errno::IO));
        }
        file.read(offset, &mut into[..len]);
        if is_copy {
            file.stain(offset, &mut into[..len]);
            state.fetch(self.id, offset, len as u64);
        }
        Ok(len)
    }

    fn alive(&self, op: DiskOp) -> Result<MutexGuard<'_, SimDiskState>> {
        let state = self.shared.lock();
        state.alive(op, &self.name)?;
        if state.incarnation != self.incarnation {
            return Err(Error::Crashed { op, name: self.name.clone() });
        }
        Ok(state)
    }
}

impl SimDiskState {
    fn alive(&self, op: DiskOp, name: &str) -> Result<()> {
        if self.crashed { Err(Error::Crashed { op, name: name.to_owned() }) } else { Ok(()) }
    }

    /// Fetches the pages of these bytes into memory.
    fn fetch(&mut self, id: FileId, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let file = self.file(id);
        let (mut runs, mut was_missing) = (0, false);
        for page in offset / PAGE_BYTES..=(offset + len - 1) / PAGE_BYTES {
            let missing = file.copies.insert(page);
            runs += u64::from(missing && !was_missing);
            was_missing = missing;
        }
        self.fetches += runs;
    }

    /// Counts a changing operation; true if the device stops in the middle of it.
    fn change(&mut self) -> bool {
        self.changes += 1;
        let Some(left) = self.fuse.as_mut() else { return false };
        *left -= 1;
        self.crashed = *left == 0;
        self.crashed
    }

    /// Counts a write; true if it is to fail.
    fn write_fails(&mut self) -> bool {
        let (after, count) = &mut self.write_errors;
        if *after > 0 {
            *after -= 1;
            return false;
        }
        let fails = *count > 0;
        *count = count.saturating_sub(1);
        fails
    }

    fn file(&mut self, id: FileId) -> &mut SimFile {
        // Files leave the map only at a restart, which kills every handle.
        self.files.get_mut(&id).expect("a file lives while a name or a handle of this process has it")
    }

    /// Free bytes of the capacity.
    fn free_bytes(&self) -> u64 {
        let named = self.names.values().filter_map(|id| self.files.get(id));
        self.capacity_bytes.saturating_sub(named.map(SimFile::taken_bytes).sum())
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.name_changes.push(change);
    }

    /// Makes the oldest `count` changes of names durable.
    fn settle_names(&mut self, count: usize) {
        for change in self.name_changes.drain(..count) {
            change.apply(&mut self.durable_names);
        }
    }

    fn lose_power(&mut self) {
        let kept = self.rng.between(0, self.name_changes.len() as u64);
        self.settle_names(kept as usize);
        self.name_changes.clear();
        self.names = self.durable_names.clone();
        for file in self.files.values_mut() {
            file.lose_power(&mut self.rng);
        }
    }

    fn drop_unnamed(&mut self) {
        let mut kept: Vec<FileId> = self.names.values().chain(self.durable_names.values()).copied().collect();
        kept.extend(self.name_changes.iter().filter_map(|change| match change {
            NameChange::Create { id, .. } => Some(*id),
            _ => None,
        }));
        kept.sort_unstable();
        self.files.retain(|id, _| kept.binary_search(id).is_ok());
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, FileId>) {
        match self {
            NameChange::Create { name, id } => {
                names.insert(name.clone(), *id);
            }
            NameChange::Rename { from, to } => {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }
            NameChange::Remove { name } => {
                names.remove(name);
            }
        }
    }
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        f.debug_struct("SimDisk").field("files", &state.names.len()).field("crashed", &state.crashed).finish()
    }
}

fn io(op: DiskOp, name: &str, errno: Errno) -> Error {
    Error::Io { op, name: name.to_owned(), errno }
}

#[cfg(test)]
mod tests;
