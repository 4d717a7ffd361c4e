//! The index of old records on disk: writing index runs, fetching files from them, evicting index memory.
//!
//! Guarantees: an index run is used once it is on stable storage under its name; a damaged run is rebuilt from the
//! footers of its segments, and until then no query uses it. Files in use are in memory; others are evicted when the
//! index exceeds its limit. Leaves to others: the content of a run (`multilog`), when to write one (`service`, `gc`).

use std::sync::Arc;

use frieze_base::{ErrorKind, Fault, InodeId, Reason, SegmentId};
use frieze_disk::{Disk, DiskFile};
use frieze_hlc::Hlc;
use frieze_locks::RwLockReadGuard;
use frieze_multilog::{
    ChainTip, Error, IndexRun, IndexSource, MultiLog, RunBuilder, RunKey, RunMerge, RunSource, check_index_run,
};

use super::{Device, FileKey, PageSpan, PinnedPages};
use frieze_tier::Heat;

/// Most segments of a newly written run: their records are sorted in memory at once.
const RUN_SEGMENTS_MAX: usize = 16;
const RUN_RECORDS_MAX: usize = 1 << 18;
/// Attempts to find files in memory before the reader locks out eviction.
const TRIES: u32 = 4;
/// Name of an index run that is being written.
const UNFINISHED: &str = "shelf-unfinished";

/// The name of a run's file.
pub(super) fn index_run_name(key: RunKey) -> String {
    format!("shelf-{:016x}-{:016x}", key.first.0, key.last.0)
}

/// The run of that name.
pub(super) fn index_run_of(name: &str) -> Option<RunKey> {
    let (first, last) = name.strip_prefix("shelf-")?.split_once('-')?;
    let id = |text: &str| (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten().map(SegmentId);
    Some(RunKey { first: id(first)?, last: id(last)? })
}

/// Removes an unfinished index run that a crash left.
pub(super) fn remove_unfinished(disk: &dyn Disk) -> Result<(), Fault> {
    if disk.list()?.iter().any(|name| name == UNFINISHED) {
        disk.remove(UNFINISHED)?;
    }
    Ok(())
}

impl RunSource for &Device {
    fn read(&mut self, key: RunKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let file =
            self.index_run_file(key).ok_or_else(|| Fault::new(Reason::NotFound, format!("index run {key} is gone")))?;
        // A scan: a merge or a check reads all of it, once.
        self.read_index_run(key, &*file, offset, into, Heat::Scan)
    }
}

impl Device {
    /// The index, for queries about these files: evicted files are fetched first.
    ///
    /// # Errors
    /// The disk's; `Corrupt` if a run cannot be read and neither can the footers of its segments.
    ///
    /// # Cost
    /// A table lookup for each file that is in memory. For an evicted file, a disk read for each run that may contain
    /// it, and about half a microsecond for each of its records.
    pub fn log_of(
        &self,
        files: impl IntoIterator<Item = InodeId> + Clone,
    ) -> Result<RwLockReadGuard<'_, MultiLog>, Fault> {
        for _ in 0..TRIES {
            let log = self.log();
            if !files.clone().into_iter().any(|inode| log.is_evicted(inode)) {
                return Ok(log);
            }
            let evicted: Vec<InodeId> = files.clone().into_iter().filter(|inode| log.is_evicted(*inode)).collect();
            drop(log);
            self.fetch_all(&evicted)?;
            self.evict_to_budget(|inode| evicted.contains(&inode));
        }
        // Other readers fetch so much that files are evicted before they are used: they have to wait.
        let _kept = self.evicting.lock();
        loop {
            let log = self.log();
            let evicted: Vec<InodeId> = files.clone().into_iter().filter(|inode| log.is_evicted(*inode)).collect();
            if evicted.is_empty() {
                return Ok(log);
            }
            drop(log);
            self.fetch_all(&evicted)?;
        }
    }

    /// Files with records stamped in `(after, upto]`, out of the given ones, by number, and how many entries of the
    /// time index that read.
    ///
    /// # Errors
    /// As [`Device::log_of`].
    pub fn files_written(
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

    /// An instant in the interval such that about `records_max` records lie between its start and the instant; the end
    /// of the interval if there are fewer.
    pub fn reach(&self, after: Hlc, upto: Hlc, records_max: usize) -> Hlc {
        self.log().reach(after, upto, records_max)
    }

    /// As [`Device::reach`], backwards from the end of the interval.
    pub fn reach_back(&self, after: Hlc, upto: Hlc, records_max: usize) -> Hlc {
        self.log().reach_back(after, upto, records_max)
    }

    fn fetch_all(&self, inodes: &[InodeId]) -> Result<(), Fault> {
        inodes.iter().try_for_each(|inode| self.fetch(*inode))
    }

    /// Reads a file's index into memory.
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
            while let Some((source, offset, len)) = fetch.next_read() {
                let key = match source {
                    IndexSource::Run(key) => key,
                    IndexSource::Pack(pack) => {
                        // A newer pack may have taken its place.
                        let read = self.read_pack_index(pack, offset, len, &mut |bytes| fetch.accepts(bytes));
                        match read {
                            Err(fault) if fault.reason == Reason::NotFound => continue 'anew,
                            bytes => fetch.take(&bytes?)?,
                        }
                        continue;
                    }
                };
                // Merged meanwhile: another run has its content.
                let Some(file) = self.index_run_file(key) else { continue 'anew };
                bytes.resize(len, 0);
                let read = self.read_index_run(key, &*file, offset, &mut bytes, Heat::Wanted)?;
                if fetch.take(&bytes[..read]).is_err() {
                    let one = self.index_run_lock.lock();
                    self.rebuild_run(key)?;
                    drop(one);
                    continue 'anew;
                }
            }
            if !self.log.write().number(&mut fetch) {
                return Err(Fault::new(
                    Reason::Corrupt,
                    format!("the index of inode {inode} names a segment that is not in the log"),
                ));
            }
            fetch.build();
            if self.log.write().put_back(fetch) {
                return Ok(());
            }
        }
    }

    /// Evicts index memory if the index exceeds its limit, except files that `keep` names as in use.
    pub(crate) fn evict_to_budget(&self, keep: impl Fn(InodeId) -> bool) {
        // Images are part of the index, but are not evicted.
        let bytes_max = self.budget.index_bytes_max.saturating_sub(self.images().heap_bytes());
        if self.log().stats().index_bytes <= bytes_max {
            return;
        }
        // Another thread is evicting.
        let Some(_one) = self.evicting.try_lock() else { return };
        // Evicts somewhat more than needed, so that not every fetch has to visit all files.
        let mut leave = self.log().to_evict(bytes_max / 8 * 7);
        leave.retain(|inode| !keep(*inode));
        for some in leave.chunks(EVICT_AT_ONCE) {
            self.log.write().evict(some);
        }
    }

    /// Writes an index run of some sealed segments, if there are enough, and merges runs. `keep` returns the dedupe
    /// image to store beside them, for the last record of each chain; if it returns none, no run is written. True if
    /// there may be more to do.
    ///
    /// # Errors
    /// The disk's. Then nothing has changed.
    pub fn write_index_runs(&self, keep: &dyn Fn(&[ChainTip]) -> Option<Vec<u8>>) -> Result<bool, Fault> {
        let _one = self.index_run_lock.lock();
        let shelved = self.write_next_run(keep)?;
        let keys = self.log().to_merge();
        let merged = keys.map_or(Ok(false), |keys| self.merge(&keys))?;
        self.evict_to_budget(|_| false);
        Ok(shelved || merged)
    }

    fn write_next_run(&self, keep: &dyn Fn(&[ChainTip]) -> Option<Vec<u8>>) -> Result<bool, Fault> {
        let segments = self.log().segments_to_index();
        if segments.len() < self.budget.shelve_segments.max(1) {
            return Ok(false);
        }
        let builder = self.collect(&segments)?;
        let mut tips = self.tips();
        tips.extend(builder.tips().into_iter().map(|tip| (tip.chain, tip)));
        let all: Vec<ChainTip> = tips.values().copied().collect();
        let Some(companion) = keep(&all) else { return Ok(false) };
        let Some((run, bytes)) = builder.finish(&companion) else { return Ok(false) };
        if !self.has_room(bytes.len() as u64) {
            return Ok(false);
        }
        self.write_run(bytes.len() as u64, |file| Ok(file.write_at(0, &[&bytes])?), |_| Ok(run.clone()))?;
        self.log.write().add_index_run(run);
        *self.companion.lock() = companion;
        *self.tips.lock() = tips;
        Ok(true)
    }

    /// Reads back the footers of segments: the first ones that are complete, up to the size of one run.
    fn collect(&self, segments: &[SegmentId]) -> Result<RunBuilder, Fault> {
        let mut builder = RunBuilder::default();
        let most = self.budget.shelve_segments.max(RUN_SEGMENTS_MAX);
        for &id in segments.iter().take(most) {
            if builder.records() >= RUN_RECORDS_MAX {
                break;
            }
            let Some(sealed) = self.log().sealed(id) else { break };
            let file = self.file(id)?;
            // After a power loss the segment must still have what the run says.
            file.sync()?;
            let mut footer = vec![0; (sealed.bytes - sealed.footer_at) as usize];
            let found = file.read_at(sealed.footer_at, &mut footer)?;
            self.tiers.note_untracked(FileKey::Segment(id));
            if found != footer.len() || !self.log().add_to_index_run(id, &footer, &mut builder) {
                break;
            }
        }
        Ok(builder)
    }

    /// Writes a run of at most `bytes_max` bytes, durable under its name on return.
    fn write_run(
        &self,
        bytes_max: u64,
        write: impl FnOnce(&dyn DiskFile) -> Result<(), Fault>,
        run: impl FnOnce(&dyn DiskFile) -> Result<IndexRun, Fault>,
    ) -> Result<IndexRun, Fault> {
        remove_unfinished(&*self.disk)?;
        let file = self.disk.create(UNFINISHED, bytes_max)?;
        write(&*file)?;
        let run = run(&*file)?;
        file.sync()?;
        self.tiers.drop_file_pages(FileKey::IndexRun(run.key()), &*file, file.len()?);
        let name = index_run_name(run.key());
        self.disk.rename(UNFINISHED, &name)?;
        // Opened by its new name, which its errors print.
        let file = self.disk.open(&name)?;
        self.disk.sync_dir()?;
        self.index_runs.write().insert(run.key(), file);
        Ok(run)
    }

    /// Merges these runs into one. The caller has `index_run_lock`.
    fn merge(&self, keys: &[RunKey]) -> Result<bool, Fault> {
        let mut source = self;
        let discarded = self.log().discarded().to_vec();
        let merge = match RunMerge::begin(&mut source, keys, &discarded) {
            Err(Error::DamagedIndexRun { run }) => return self.rebuild_run(run).map(|()| true),
            merge => merge?,
        };
        if !self.has_room(merge.bytes_max()) {
            return Ok(false);
        }
        let mut damaged = None;
        let merged = self.write_run(
            merge.bytes_max(),
            |_| Ok(()),
            |file| {
                let mut sink = |offset: u64, part: &[u8]| Ok(file.write_at(offset, &[part])?);
                merge.run(&mut source, &mut sink).map_err(|error| {
                    if let Error::DamagedIndexRun { run } = error {
                        damaged = Some(run);
                    }
                    error.into()
                })
            },
        );
        match (merged, damaged) {
            (_, Some(run)) => self.rebuild_run(run)?,
            (merged, None) => self.replace(keys, vec![merged?])?,
        }
        Ok(true)
    }

    /// Rebuilds a damaged run from the footers of its segments. The caller has `index_run_lock`.
    ///
    /// # Errors
    /// `Corrupt` if a footer is damaged too; the disk's.
    fn rebuild_run(&self, key: RunKey) -> Result<(), Fault> {
        if self.index_run_file(key).is_none() {
            return Ok(());
        }
        let mut segments = self.log().segments_of(key);
        let companion = self.companion.lock().clone();
        let mut made = Vec::new();
        while !segments.is_empty() {
            let builder = self.collect(&segments)?;
            let Some((run, bytes)) = builder.finish(&companion) else {
                return Err(Fault::new(
                    Reason::Corrupt,
                    format!("the index of segments {key} is damaged, and so is the footer of segment {}", segments[0]),
                ));
            };
            segments.retain(|id| *id > run.key().last);
            // The name may be that of the damaged run, which no query uses any more.
            made.push(self.write_run(
                bytes.len() as u64,
                |file| Ok(file.write_at(0, &[&bytes])?),
                |_| Ok(run.clone()),
            )?);
        }
        self.repairs
            .lock()
            .push(format!("the index of segments {key} was damaged and has been made anew from their footers"));
        self.replace(&[key], made)
    }

    /// Replaces runs by others of the same segments, and removes files without users.
    fn replace(&self, old: &[RunKey], new: Vec<IndexRun>) -> Result<(), Fault> {
        let keys: Vec<RunKey> = new.iter().map(IndexRun::key).collect();
        self.log.write().replace_index_runs(old, new);
        for key in old.iter().filter(|key| !keys.contains(key)) {
            self.index_runs.write().remove(key);
            self.tiers.forget_file(FileKey::IndexRun(*key));
            self.disk.remove(&index_run_name(*key))?;
        }
        Ok(())
    }

    /// Reads every run and returns those that differ from what was written.
    ///
    /// # Errors
    /// The disk's.
    pub fn damaged_index_runs(&self) -> Result<Vec<RunKey>, Fault> {
        let _one = self.index_run_lock.lock();
        let keys: Vec<RunKey> = self.log().index_runs().map(IndexRun::key).collect();
        let mut damaged = Vec::new();
        for key in keys {
            match check_index_run(&mut &*self, key) {
                Err(Error::DamagedIndexRun { run }) => damaged.push(run),
                sound => sound?,
            }
        }
        Ok(damaged)
    }

    /// Reads a part of a run; only parts that are requested again stay in memory.
    fn read_index_run(
        &self,
        key: RunKey,
        file: &dyn DiskFile,
        offset: u64,
        into: &mut [u8],
        heat: Heat,
    ) -> Result<usize, Fault> {
        let mut pinned = PinnedPages::default();
        let (key, end) = (FileKey::IndexRun(key), offset + into.len() as u64);
        if !into.is_empty() {
            self.tiers.pin(&[PageSpan { key, file, old_end: u64::MAX, start: offset, end }], heat, &mut pinned);
        }
        let read = file.read_at(offset, into);
        self.unpin(pinned, read.is_err());
        Ok(read?)
    }

    /// Reads every run from the medium, and rebuilds damaged ones. `pace` receives the count of bytes read, and returns
    /// whether to continue.
    ///
    /// # Errors
    /// The disk's, if a run cannot be written.
    pub fn check_index_runs(&self, pace: &mut dyn FnMut(u64) -> bool) -> Result<CheckedIndexRuns, Fault> {
        let mut checked = CheckedIndexRuns::default();
        let keys: Vec<RunKey> = self.log().index_runs().map(IndexRun::key).collect();
        for key in keys {
            let Some(file) = self.index_run_file(key) else { continue };
            let mut medium = RunOnMedium { file: &*file, pace, stopped: false };
            let found = check_index_run(&mut medium, key);
            if medium.stopped {
                break;
            }
            let Err(Error::DamagedIndexRun { .. } | Error::Source(_)) = found else {
                found?;
                continue;
            };
            // Not while it is read at a scrub's pace: other runs are written meanwhile.
            let _one = self.index_run_lock.lock();
            // Merged meanwhile: the next scrub checks the merged run.
            if self.index_run_file(key).is_none() {
                continue;
            }
            match self.rebuild_run(key) {
                Ok(()) => checked.rebuilt += 1,
                Err(fault) if fault.kind() == ErrorKind::Corrupt => checked.lost.push((key, fault)),
                Err(fault) => return Err(fault),
            }
        }
        Ok(checked)
    }

    pub(super) fn index_run_file(&self, key: RunKey) -> Option<Arc<dyn DiskFile>> {
        self.index_runs.read().get(&key).cloned()
    }

    /// Damage found and repaired since the last call, as sentences.
    pub fn take_repairs(&self) -> Vec<String> {
        std::mem::take(&mut *self.repairs.lock())
    }
}

/// Result of a check of all runs.
#[derive(Default)]
pub struct CheckedIndexRuns {
    /// Damaged runs that were rebuilt.
    pub rebuilt: u64,
    /// Damaged runs whose footers are damaged too.
    pub lost: Vec<(RunKey, Fault)>,
}

/// A run's file, read from the medium and not from memory.
struct RunOnMedium<'a> {
    file: &'a dyn DiskFile,
    pace: &'a mut dyn FnMut(u64) -> bool,
    stopped: bool,
}

impl RunSource for RunOnMedium<'_> {
    fn read(&mut self, _: RunKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let read = self.file.read_direct_at(offset, into)?;
        self.stopped |= !(self.pace)(into.len() as u64);
        if self.stopped { Err(Reason::Unavailable.into()) } else { Ok(read) }
    }
}

/// Files that are evicted under one lock.
const EVICT_AT_ONCE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_run_is_read_back_and_is_that_of_earlier_versions() {
        let key = RunKey { first: SegmentId(0x1a), last: SegmentId(0x2b) };
        let name = index_run_name(key);
        assert_eq!(name, "shelf-000000000000001a-000000000000002b");
        assert_eq!(index_run_of(&name), Some(key));
        assert_eq!(index_run_of(UNFINISHED), None);
    }
}
