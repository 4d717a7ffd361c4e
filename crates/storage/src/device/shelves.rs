//! The index of old records on disk: making shelves, fetching files from them, giving memory back.
//!
//! Guarantees: a shelf is used once it is on stable storage under its name; one that is damaged is made anew from the
//! footers of its segments, and until then nothing of it is answered. What is in use is in memory; what is not leaves
//! it when the index is larger than it may be. Leaves to others: what a shelf says (`multilog`), when to make one
//! (`engine`).

use std::sync::{Arc, PoisonError};

use frieze_base::{ErrorKind, Fault, InodeId, Reason, SegmentId};
use frieze_disk::{Disk, DiskFile};
use frieze_hlc::Hlc;
use frieze_multilog::{ChainTip, Error, IndexRun, MultiLog, RunBuilder, RunKey, RunMerge, RunSource, check_index_run};

use super::{Device, FileKey, Lease, Span};
use crate::lock_order::Reading;
use frieze_tier::Heat;

/// Most segments and records of one shelf as it is first made: what is sorted in memory at once.
const SHELVE_SEGMENTS_MAX: usize = 16;
const SHELVE_RECORDS_MAX: usize = 1 << 18;
/// Looks for files in memory before others are kept from giving memory back meanwhile.
const TRIES: u32 = 4;
/// A shelf in the making.
const UNFINISHED: &str = "shelf-unfinished";

/// The name of a shelf's file.
pub(super) fn shelf_name(key: RunKey) -> String {
    format!("shelf-{:016x}-{:016x}", key.first.0, key.last.0)
}

/// The shelf of that name.
pub(super) fn shelf_of(name: &str) -> Option<RunKey> {
    let (first, last) = name.strip_prefix("shelf-")?.split_once('-')?;
    let id = |text: &str| (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten().map(SegmentId);
    Some(RunKey { first: id(first)?, last: id(last)? })
}

/// Removes what a crash left of a shelf in the making.
pub(super) fn remove_unfinished(disk: &dyn Disk) -> Result<(), Fault> {
    if disk.list()?.iter().any(|name| name == UNFINISHED) {
        disk.remove(UNFINISHED)?;
    }
    Ok(())
}

impl RunSource for &Device {
    fn read(&mut self, key: RunKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let file = self.shelf_file(key).ok_or_else(|| Fault::new(Reason::NotFound, format!("shelf {key} is gone")))?;
        // All of it, once: merged, or looked at.
        self.read_index_run(key, &*file, offset, into, Heat::Scan)
    }
}

impl Device {
    /// The index, for questions about these files: what is away of them comes back first.
    ///
    /// # Errors
    /// The disk's; `Corrupt` if neither a shelf nor the footers it was made of can be read.
    ///
    /// # Cost
    /// A look at a table for each file that is in memory. For one that is not, a read of the disk for each shelf that
    /// may hold it, and about half a microsecond for each of its records.
    pub fn log_of(&self, files: impl IntoIterator<Item = InodeId> + Clone) -> Result<Reading<'_, MultiLog>, Fault> {
        for _ in 0..TRIES {
            let log = self.log();
            if !files.clone().into_iter().any(|inode| log.is_evicted(inode)) {
                return Ok(log);
            }
            let away: Vec<InodeId> = files.clone().into_iter().filter(|inode| log.is_evicted(*inode)).collect();
            drop(log);
            self.fetch_all(&away)?;
            self.keep_to_budget(|inode| away.contains(&inode));
        }
        // Others fetch so much that it is gone before it is looked at: they have to wait.
        let _kept = self.evicting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let log = self.log();
            let away: Vec<InodeId> = files.clone().into_iter().filter(|inode| log.is_evicted(*inode)).collect();
            if away.is_empty() {
                return Ok(log);
            }
            drop(log);
            self.fetch_all(&away)?;
        }
    }

    /// Files with records stamped in `(after, upto]`, of those that are asked about, by number, and how many entries of
    /// the index of time that took.
    ///
    /// # Errors
    /// As [`Device::log_of`].
    pub fn touched(
        &self,
        after: Hlc,
        upto: Hlc,
        is_asked: &dyn Fn(InodeId) -> bool,
    ) -> Result<(Vec<InodeId>, u64), Fault> {
        let (candidates, looked_at) = self.log().files_with_records(after, upto);
        let mut files = Vec::new();
        for inode in candidates.into_iter().filter(|inode| is_asked(*inode)) {
            if self.log_of([inode])?.has_records(inode, after, upto) {
                files.push(inode);
            }
        }
        Ok((files, looked_at))
    }

    /// An instant in the interval up to which about `records_max` records follow its start; its end if there are no
    /// more.
    pub fn reach(&self, after: Hlc, upto: Hlc, records_max: usize) -> Hlc {
        self.log().reach(after, upto, records_max)
    }

    /// As [`Device::reach`], back from the end of the interval.
    pub fn reach_back(&self, after: Hlc, upto: Hlc, records_max: usize) -> Hlc {
        self.log().reach_back(after, upto, records_max)
    }

    fn fetch_all(&self, inodes: &[InodeId]) -> Result<(), Fault> {
        inodes.iter().try_for_each(|inode| self.fetch(*inode))
    }

    /// Brings a file into memory.
    pub(super) fn fetch(&self, inode: InodeId) -> Result<(), Fault> {
        let mut bytes = Vec::new();
        'anew: loop {
            let mut fetch = {
                let log = self.log();
                if !log.is_evicted(inode) {
                    return Ok(());
                }
                log.fetch(inode)
            };
            while let Some((key, offset, len)) = fetch.next_read() {
                // Merged meanwhile: what it said is said by another.
                let Some(file) = self.shelf_file(key) else { continue 'anew };
                bytes.resize(len, 0);
                let read = self.read_index_run(key, &*file, offset, &mut bytes, Heat::Wanted)?;
                if fetch.take(&bytes[..read]).is_err() {
                    let one = self.shelving.lock().unwrap_or_else(PoisonError::into_inner);
                    self.mend(key)?;
                    drop(one);
                    continue 'anew;
                }
            }
            if !self.log.write().unwrap_or_else(PoisonError::into_inner).number(&mut fetch) {
                return Err(Fault::new(
                    Reason::Corrupt,
                    format!("the index of inode {inode} names a segment that is not in the log"),
                ));
            }
            fetch.build();
            if self.log.write().unwrap_or_else(PoisonError::into_inner).put_back(fetch) {
                return Ok(());
            }
        }
    }

    /// Gives memory back if the index holds more than it may, but none of files that `keep` says are wanted now.
    pub(crate) fn keep_to_budget(&self, keep: impl Fn(InodeId) -> bool) {
        // Images are of the index too, but do not leave memory.
        let bytes_max = self.budget.index_bytes_max.saturating_sub(self.images().heap_bytes());
        if self.log().stats().index_bytes <= bytes_max {
            return;
        }
        // Somebody does it already.
        let Ok(_one) = self.evicting.try_lock() else { return };
        // A little more than asked for, so that not every fetch looks at all files.
        let mut leave = self.log().to_evict(bytes_max / 8 * 7);
        leave.retain(|inode| !keep(*inode));
        for some in leave.chunks(EVICT_AT_ONCE) {
            self.log.write().unwrap_or_else(PoisonError::into_inner).evict(some);
        }
    }

    /// Shelves some sealed segments, if there are enough, and merges shelves. `keep` gives what is to be kept beside
    /// them, by the last shelved record of each chain; nothing is shelved if it gives none. True if there may be more
    /// to do.
    ///
    /// # Errors
    /// The disk's. Everything is as before then.
    pub fn shelve(&self, keep: &dyn Fn(&[ChainTip]) -> Option<Vec<u8>>) -> Result<bool, Fault> {
        let _one = self.shelving.lock().unwrap_or_else(PoisonError::into_inner);
        let shelved = self.shelve_some(keep)?;
        let keys = self.log().to_merge();
        let merged = keys.map_or(Ok(false), |keys| self.merge(&keys))?;
        self.keep_to_budget(|_| false);
        Ok(shelved || merged)
    }

    fn shelve_some(&self, keep: &dyn Fn(&[ChainTip]) -> Option<Vec<u8>>) -> Result<bool, Fault> {
        let segments = self.log().segments_to_index();
        if segments.len() < self.budget.shelve_segments.max(1) {
            return Ok(false);
        }
        let builder = self.collect(&segments)?;
        let mut tips = self.tips();
        tips.extend(builder.tips().into_iter().map(|tip| (tip.chain, tip)));
        let all: Vec<ChainTip> = tips.values().copied().collect();
        let Some(companion) = keep(&all) else { return Ok(false) };
        let Some((shelf, bytes)) = builder.finish(&companion) else { return Ok(false) };
        if !self.has_room(bytes.len() as u64) {
            return Ok(false);
        }
        self.write_shelf(bytes.len() as u64, |file| Ok(file.write_at(0, &[&bytes])?), |_| Ok(shelf.clone()))?;
        self.log.write().unwrap_or_else(PoisonError::into_inner).add_index_run(shelf);
        *self.companion.lock().unwrap_or_else(PoisonError::into_inner) = companion;
        *self.tips.lock().unwrap_or_else(PoisonError::into_inner) = tips;
        Ok(true)
    }

    /// Reads back the footers of some segments, as many of the first as there are whole ones, and as one shelf is made
    /// of.
    fn collect(&self, segments: &[SegmentId]) -> Result<RunBuilder, Fault> {
        let mut builder = RunBuilder::default();
        let most = self.budget.shelve_segments.max(SHELVE_SEGMENTS_MAX);
        for &id in segments.iter().take(most) {
            if builder.records() >= SHELVE_RECORDS_MAX {
                break;
            }
            let Some(sealed) = self.log().sealed(id) else { break };
            let file = self.file(id)?;
            // What a shelf says must be said by the segment after a loss of power.
            file.sync()?;
            let mut footer = vec![0; (sealed.bytes - sealed.footer_at) as usize];
            let found = file.read_at(sealed.footer_at, &mut footer)?;
            self.tiers.touched(FileKey::Segment(id));
            if found != footer.len() || !self.log().add_to_index_run(id, &footer, &mut builder) {
                break;
            }
        }
        Ok(builder)
    }

    /// True if there is room for a file that is not data.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.disk.space().is_ok_and(|space| space.free_bytes >= self.budget.reserve_bytes + bytes)
    }

    /// Writes a shelf of at most `bytes_max` bytes, durable under its name when this returns.
    fn write_shelf(
        &self,
        bytes_max: u64,
        write: impl FnOnce(&dyn DiskFile) -> Result<(), Fault>,
        shelf: impl FnOnce(&dyn DiskFile) -> Result<IndexRun, Fault>,
    ) -> Result<IndexRun, Fault> {
        remove_unfinished(&*self.disk)?;
        let file = self.disk.create(UNFINISHED, bytes_max)?;
        write(&*file)?;
        let shelf = shelf(&*file)?;
        file.sync()?;
        self.tiers.let_go_file(FileKey::Shelf(shelf.key()), &*file, file.len()?);
        let name = shelf_name(shelf.key());
        self.disk.rename(UNFINISHED, &name)?;
        // By its new name, which is what its errors say.
        let file = self.disk.open(&name)?;
        self.disk.sync_dir()?;
        self.shelves.write().unwrap_or_else(PoisonError::into_inner).insert(shelf.key(), file);
        Ok(shelf)
    }

    /// Makes these shelves one. The caller shelves alone.
    fn merge(&self, keys: &[RunKey]) -> Result<bool, Fault> {
        let mut source = self;
        let discarded = self.log().discarded().to_vec();
        let merge = match RunMerge::begin(&mut source, keys, &discarded) {
            Err(Error::DamagedIndexRun { run: shelf }) => return self.mend(shelf).map(|()| true),
            merge => merge?,
        };
        if !self.has_room(merge.bytes_max()) {
            return Ok(false);
        }
        let mut damaged = None;
        let merged = self.write_shelf(
            merge.bytes_max(),
            |_| Ok(()),
            |file| {
                let mut sink = |offset: u64, part: &[u8]| Ok(file.write_at(offset, &[part])?);
                merge.run(&mut source, &mut sink).map_err(|error| {
                    if let Error::DamagedIndexRun { run: shelf } = error {
                        damaged = Some(shelf);
                    }
                    error.into()
                })
            },
        );
        match (merged, damaged) {
            (_, Some(shelf)) => self.mend(shelf)?,
            (merged, None) => self.replace(keys, vec![merged?])?,
        }
        Ok(true)
    }

    /// Makes a damaged shelf anew from the footers of its segments. The caller shelves alone.
    ///
    /// # Errors
    /// `Corrupt` if a footer is damaged too; the disk's.
    fn mend(&self, key: RunKey) -> Result<(), Fault> {
        if self.shelf_file(key).is_none() {
            return Ok(());
        }
        let mut segments = self.log().segments_of(key);
        let companion = self.companion.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut made = Vec::new();
        while !segments.is_empty() {
            let builder = self.collect(&segments)?;
            let Some((shelf, bytes)) = builder.finish(&companion) else {
                return Err(Fault::new(
                    Reason::Corrupt,
                    format!("the index of segments {key} is damaged, and so is the footer of segment {}", segments[0]),
                ));
            };
            segments.retain(|id| *id > shelf.key().last);
            // The name may be that of the damaged one, which is not asked any more.
            made.push(self.write_shelf(
                bytes.len() as u64,
                |file| Ok(file.write_at(0, &[&bytes])?),
                |_| Ok(shelf.clone()),
            )?);
        }
        self.mended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(format!("the index of segments {key} was damaged and has been made anew from their footers"));
        self.replace(&[key], made)
    }

    /// Uses other shelves of the same segments, and removes those that nobody needs any more.
    fn replace(&self, old: &[RunKey], new: Vec<IndexRun>) -> Result<(), Fault> {
        let keys: Vec<RunKey> = new.iter().map(IndexRun::key).collect();
        self.log.write().unwrap_or_else(PoisonError::into_inner).replace_index_runs(old, new);
        for key in old.iter().filter(|key| !keys.contains(key)) {
            self.shelves.write().unwrap_or_else(PoisonError::into_inner).remove(key);
            self.tiers.gone(FileKey::Shelf(*key));
            self.disk.remove(&shelf_name(*key))?;
        }
        Ok(())
    }

    /// Reads every shelf and returns those that are not what was written.
    ///
    /// # Errors
    /// The disk's.
    pub fn damaged_shelves(&self) -> Result<Vec<RunKey>, Fault> {
        let _one = self.shelving.lock().unwrap_or_else(PoisonError::into_inner);
        let keys: Vec<RunKey> = self.log().index_runs().map(IndexRun::key).collect();
        let mut damaged = Vec::new();
        for key in keys {
            match check_index_run(&mut &*self, key) {
                Err(Error::DamagedIndexRun { run: shelf }) => damaged.push(shelf),
                sound => sound?,
            }
        }
        Ok(damaged)
    }

    /// Reads a part of a shelf, of which only what is asked for again stays in memory.
    fn read_index_run(
        &self,
        key: RunKey,
        file: &dyn DiskFile,
        offset: u64,
        into: &mut [u8],
        heat: Heat,
    ) -> Result<usize, Fault> {
        let mut lease = Lease::default();
        let (key, end) = (FileKey::Shelf(key), offset + into.len() as u64);
        if !into.is_empty() {
            self.tiers.ready(&[Span { key, file, old_end: u64::MAX, start: offset, end }], heat, &mut lease);
        }
        let read = file.read_at(offset, into);
        self.done(lease, read.is_err());
        Ok(read?)
    }

    /// Reads every shelf as it lies on the medium, and makes anew what is damaged. `pace` is told how many bytes were
    /// read, and says whether to go on.
    ///
    /// # Errors
    /// The disk's, where a shelf cannot be written.
    pub fn check_shelves(&self, pace: &mut dyn FnMut(u64) -> bool) -> Result<CheckedShelves, Fault> {
        let mut checked = CheckedShelves::default();
        let keys: Vec<RunKey> = self.log().index_runs().map(IndexRun::key).collect();
        for key in keys {
            let _one = self.shelving.lock().unwrap_or_else(PoisonError::into_inner);
            // Merged meanwhile: what it became is looked at by the next scrub.
            let Some(file) = self.shelf_file(key) else { continue };
            let mut medium = ShelfOnMedium { file: &*file, pace, stopped: false };
            let found = check_index_run(&mut medium, key);
            if medium.stopped {
                break;
            }
            let Err(Error::DamagedIndexRun { .. } | Error::Source(_)) = found else {
                found?;
                continue;
            };
            match self.mend(key) {
                Ok(()) => checked.mended += 1,
                Err(fault) if fault.kind() == ErrorKind::Corrupt => checked.lost.push((key, fault)),
                Err(fault) => return Err(fault),
            }
        }
        Ok(checked)
    }

    pub(super) fn shelf_file(&self, key: RunKey) -> Option<Arc<dyn DiskFile>> {
        self.shelves.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// What was found damaged and mended since the last call, in words.
    pub fn take_mended(&self) -> Vec<String> {
        std::mem::take(&mut *self.mended.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a look at all shelves found.
#[derive(Default)]
pub struct CheckedShelves {
    /// Damaged and made anew.
    pub mended: u64,
    /// Damaged, and their footers too.
    pub lost: Vec<(RunKey, Fault)>,
}

/// A shelf's file, past the copies in memory.
struct ShelfOnMedium<'a> {
    file: &'a dyn DiskFile,
    pace: &'a mut dyn FnMut(u64) -> bool,
    stopped: bool,
}

impl RunSource for ShelfOnMedium<'_> {
    fn read(&mut self, _: RunKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let read = self.file.read_medium_at(offset, into)?;
        self.stopped |= !(self.pace)(into.len() as u64);
        if self.stopped { Err(Reason::Unavailable.into()) } else { Ok(read) }
    }
}

/// Files that leave memory under one lock.
const EVICT_AT_ONCE: usize = 64;
