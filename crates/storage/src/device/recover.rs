//! Opening a device: recovery reads its segments, and removes files that would block new segments.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, RwLock};

use frieze_base::{Fault, Reason, SegmentId};
use frieze_disk::{Disk, DiskFile};
use frieze_hlc::Hlc;
use frieze_multilog::{
    Corruption, Discards, LogCutReason, LogPosition, LogSource, MultiLog, RECORD_MARK_BYTES, RecoveryReport, RunKey,
    SegmentKey,
};

use super::images::{ImageBudget, ImageStore};
use super::shelves::{remove_unfinished, shelf_name, shelf_of};
use frieze_tier::Shares;

use super::{Device, Dirty, FileKey, SpareSegments, Tiers, segment_name, segment_of};
use crate::read_errors::ReadErrors;

/// Source of segments for recovery.
struct Segments<'a> {
    disk: &'a dyn Disk,
    files: BTreeMap<SegmentKey, Arc<dyn DiskFile>>,
    shelves: BTreeMap<RunKey, Arc<dyn DiskFile>>,
    discarded: &'a [Discards],
}

impl LogSource for Segments<'_> {
    fn segments(&mut self) -> Result<Vec<(SegmentKey, u64)>, Fault> {
        let mut found = Vec::new();
        for id in self.disk.list()?.iter().filter_map(|name| segment_of(name)) {
            let file = self.disk.open(&segment_name(id))?;
            found.push((SegmentKey(id.0), file.len()?));
            self.files.insert(SegmentKey(id.0), file);
        }
        Ok(found)
    }

    fn read(&mut self, key: SegmentKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let file = self.files.get(&key).expect("only segments that were listed are read");
        Ok(file.read_at(offset, into)?)
    }

    fn discarded(&mut self) -> Vec<Discards> {
        self.discarded.to_vec()
    }

    fn index_runs(&mut self) -> Result<Vec<RunKey>, Fault> {
        for key in self.disk.list()?.iter().filter_map(|name| shelf_of(name)) {
            self.shelves.insert(key, self.disk.open(&shelf_name(key))?);
        }
        Ok(self.shelves.keys().copied().collect())
    }

    fn read_index_run(&mut self, key: RunKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let file = self.shelves.get(&key).expect("only shelves that were listed are read");
        Ok(file.read_at(offset, into)?)
    }
}

/// Limits of recovery.
#[derive(Clone, Copy)]
pub struct Reach {
    /// Records with later stamps are cut off, where no footer covers them; `MAX` for none.
    pub upto: Hlc,
    /// The log was on stable storage up to here.
    pub durable: LogPosition,
    /// Footers of this and later segments may have been written without a sync when the server ended.
    pub footers_from: SegmentId,
    /// Serve the remaining records of a damaged directory.
    pub serve_damaged: bool,
}

/// Resource limits of a device.
#[derive(Clone, Copy)]
pub struct Budget {
    /// Bytes of the disk that data may not use.
    pub reserve_bytes: u64,
    /// Limit of the index in memory, in bytes.
    pub index_bytes_max: u64,
    /// Full segments that one index run covers.
    pub shelve_segments: usize,
    /// Limits of memory by use.
    pub shares: Shares,
    /// Limits of images.
    pub images: ImageBudget,
}

/// Result of recovery.
pub struct Recovered {
    /// The device, ready to append.
    pub device: Device,
    /// End of the last whole record.
    pub end: LogPosition,
    /// Stamp of the last whole record; zero if there is none.
    pub newest: Hlc,
    /// Cut or corrupt parts, as sentences.
    pub notes: Vec<String>,
}

impl Device {
    /// Recovers the log on `disk` except the discarded records; `on_recovered` receives the records in log order.
    /// Records stamped after `upto` that no footer covers are cut off for good.
    ///
    /// # Errors
    /// The disk's; `Corrupt` if a segment header has another format, or records are missing that were durable: then
    /// nothing is changed.
    pub fn recover(
        disk: Arc<dyn Disk>,
        settings: frieze_multilog::LogSettings,
        budget: Budget,
        reach: &Reach,
        discarded: &[Discards],
        on_recovered: &mut dyn FnMut(frieze_multilog::RecoveredItem<'_>),
    ) -> Result<Recovered, Fault> {
        let mut newest = Hlc::ZERO;
        let (mut last_companion, mut tips) = (Vec::new(), BTreeMap::new());
        remove_unfinished(&*disk)?;
        let mut source = Segments { disk: &*disk, files: BTreeMap::new(), shelves: BTreeMap::new(), discarded };
        let (log, report) = MultiLog::recover_upto(settings.clone(), &mut source, reach.upto, &mut |recovered| {
            newest = newest.max(match recovered {
                frieze_multilog::RecoveredItem::Record(meta) => meta.stamp,
                frieze_multilog::RecoveredItem::Indexed { newest, companion, chains } => {
                    last_companion = companion.to_vec();
                    tips = chains.iter().map(|tip| (tip.chain, *tip)).collect();
                    newest
                }
            });
            on_recovered(recovered);
        })?;
        let mut notes: Vec<String> = report.corrupt.iter().map(|damage| words_of(damage, reach)).collect();
        if let Some(loss) = loss_in(&report, reach) {
            notes.push(not_whole(reach.serve_damaged, "device log", &loss)?);
        }
        if let Some(cut) = &report.cut {
            notes.push(format!("the device log ends at byte {} of segment {}: {:?}", cut.offset, cut.segment, cut.why));
        }
        let mut files = BTreeMap::new();
        for (segment, key) in &report.files {
            let file = source.files.remove(key).expect("recovery names only files it was shown");
            files.insert(*segment, file);
        }
        if let Some((next, free)) = report.next
            && let Some(file) = files.get(&next.segment)
        {
            wipe(&**file, next.offset, free.min(RECORD_MARK_BYTES as u64) as usize)?;
        }
        let mut shelves = std::mem::take(&mut source.shelves);
        for (key, why) in &report.free_index_runs {
            shelves.remove(key);
            disk.remove(&shelf_name(*key))?;
            if let Some(why) = why {
                notes.push(format!("the index of segments {key} is made anew: {why}; their footers were read instead"));
            }
        }
        // A file without log content would block a new segment: it becomes a spare, or is removed.
        drop(source);
        let spares = SpareSegments::recover(&*disk, settings.segment_bytes)?;
        let lost_before = report.cut.as_ref().is_some_and(|cut| cut.why == LogCutReason::LostBeforeLaterSegment);
        for key in &report.free {
            let name = segment_name(SegmentId(key.0));
            if lost_before {
                // It holds a part of the log that nothing references any more: renamed, for inspection by hand.
                disk.rename(&name, &format!("lost-{name}"))?;
            } else if !spares.put(&*disk, &name, settings.segment_bytes)? {
                disk.remove(&name)?;
            }
        }
        let named_apart = report.files.iter().any(|(segment, key)| segment.0 != key.0);
        if named_apart {
            return Err(Fault::new(
                Reason::Corrupt,
                "a segment file of the device log holds another segment than its name says: files were moved by hand",
            ));
        }
        if !report.free.is_empty() {
            disk.sync_dir()?;
        }
        let tiers = Tiers::new(&budget.shares, settings.segment_bytes, report.end);
        // Drops pages that recovery has read, or that an earlier process left in memory, except the youngest records.
        for (id, file) in &files {
            tiers.let_go_file(FileKey::Segment(*id), &**file, settings.segment_bytes);
        }
        for (key, file) in &shelves {
            tiers.let_go_file(FileKey::Shelf(*key), &**file, file.len()?);
        }
        let images = ImageStore::recover(&*disk, budget.images, &mut notes)?;
        let device = Device {
            disk,
            tiers,
            settings,
            budget,
            log: RwLock::new(log),
            // What recovery read may be in the page cache only: the first flush makes it durable.
            dirty: Mutex::new(Dirty { segments: files.keys().copied().collect(), directory: true }),
            files: RwLock::new(files),
            spares,
            dirty_bytes: AtomicU64::new(0),
            since_checkpoint: AtomicU64::new(0),
            served: AtomicU64::new(0),
            refused: Mutex::default(),
            has_refused: AtomicBool::new(false),
            shelves: RwLock::new(shelves),
            shelving: Mutex::default(),
            tips: Mutex::new(tips),
            evicting: Mutex::default(),
            companion: Mutex::new(last_companion),
            mended: Mutex::default(),
            noticed: ReadErrors::default(),
            known: super::checksum_cache::ChecksumCache::default(),
            images,
            flushed: Mutex::default(),
        };
        Ok(Recovered { device, end: report.end, newest, notes })
    }
}

/// Sentence about damage. A footer that was being written is reported as normal after a crash.
fn words_of(damage: &Corruption, reach: &Reach) -> String {
    match damage.segment.filter(|segment| damage.may_be_torn && *segment >= reach.footers_from) {
        Some(segment) => format!(
            "the footer of segment {segment} was being written when the server ended: its records are read instead"
        ),
        None => damage.what.clone(),
    }
}

/// Sentence about records missing from the device log.
fn loss_in(report: &RecoveryReport, reach: &Reach) -> Option<String> {
    if let Some(damage) = report.corrupt.iter().find(|damage| damage.loses) {
        return Some(format!("{} at byte {}: {}", segment_name(SegmentId(damage.key.0)), damage.offset, damage.what));
    }
    let (end, durable) = (report.end, reach.durable);
    (reach.upto == Hlc::MAX && end < durable).then(|| {
        format!(
            "it ends at byte {} of segment {}, and was on stable storage up to byte {} of segment {}",
            end.offset, end.segment, durable.offset, durable.segment
        )
    })
}

/// Decides about a log with missing records: refuse, or report and continue.
///
/// # Errors
/// `Corrupt`, unless damaged directories are to be served.
pub fn not_whole(serve_damaged: bool, log: &str, loss: &str) -> Result<String, Fault> {
    if serve_damaged {
        return Ok(format!("the {log} is corrupt and served all the same: {loss}"));
    }
    Err(Fault::new(
        Reason::Corrupt,
        format!(
            "the {log} is corrupt, records are missing: {loss}. Put back what is missing, or set serve_damaged = true \
             to serve what is left, where bytes that are gone read as zeros or as older ones"
        ),
    ))
}

/// Erases a record head, durably. Otherwise the next head could complete one that a power loss has torn: the same
/// record, sent again to the same place, has the same bytes except its stamp and its checksum, which is erased.
pub(super) fn wipe(file: &dyn DiskFile, offset: u64, len: usize) -> Result<(), Fault> {
    let mut left = vec![0u8; len];
    file.read_at(offset, &mut left)?;
    if left.iter().any(|&byte| byte != 0) {
        file.write_at(offset, &[&vec![0u8; len]])?;
        file.sync()?;
    }
    Ok(())
}
