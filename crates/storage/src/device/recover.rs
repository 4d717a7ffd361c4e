//! Opening a device: recovery reads its segments, and removes files that would block new segments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use frieze_base::{Fault, Reason, SegmentId};
use frieze_disk::{Disk, DiskFile};
use frieze_hlc::Hlc;
use frieze_locks::{Condvar, Mutex, RwLock};
use frieze_multilog::{
    Corruption, Discards, LogCutReason, LogPosition, LogSource, MultiLog, PackIndex, RECORD_MARK_BYTES,
    RESERVED_BYTES_MAX, RecoveryReport, RunKey, SegmentKey,
};

use super::images::{ImageBudget, ImageStore};
use super::index_runs::{index_run_name, index_run_of, remove_unfinished};
use super::pack_list::FoundPacks;
use super::segment_file::{segment_name, segment_of, wipe};
use frieze_tier::Shares;

use super::{Device, DirtyFiles, FileKey, SpareSegments, Tiers};
use crate::read_errors::ReadErrors;

/// Source of segments for recovery.
struct SegmentDirectory<'a> {
    disk: &'a dyn Disk,
    files: BTreeMap<SegmentKey, Arc<dyn DiskFile>>,
    index_runs: BTreeMap<RunKey, Arc<dyn DiskFile>>,
    discarded: &'a [Discards],
    packs: Vec<PackIndex>,
}

impl LogSource for SegmentDirectory<'_> {
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

    fn packs(&mut self) -> Vec<PackIndex> {
        std::mem::take(&mut self.packs)
    }

    fn index_runs(&mut self) -> Result<Vec<RunKey>, Fault> {
        for key in self.disk.list()?.iter().filter_map(|name| index_run_of(name)) {
            self.index_runs.insert(key, self.disk.open(&index_run_name(key))?);
        }
        Ok(self.index_runs.keys().copied().collect())
    }

    fn read_index_run(&mut self, key: RunKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let file = self.index_runs.get(&key).expect("only index runs that were listed are read");
        Ok(file.read_at(offset, into)?)
    }
}

/// Limits of recovery.
#[derive(Clone, Copy)]
pub struct RecoveryLimits {
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
        limits: &RecoveryLimits,
        discarded: &[Discards],
        on_recovered: &mut dyn FnMut(frieze_multilog::RecoveredItem<'_>),
    ) -> Result<Recovered, Fault> {
        let mut newest = Hlc::ZERO;
        let (mut last_companion, mut tips) = (Vec::new(), BTreeMap::new());
        remove_unfinished(&*disk)?;
        let mut notes = Vec::new();
        let FoundPacks { list, indexes: packs } =
            FoundPacks::open(&*disk, discarded, limits.serve_damaged, &mut notes)?;
        let (files, index_runs) = (BTreeMap::new(), BTreeMap::new());
        let mut source = SegmentDirectory { disk: &*disk, files, index_runs, discarded, packs };
        let (log, report) = MultiLog::recover_upto(settings.clone(), &mut source, limits.upto, &mut |recovered| {
            newest = newest.max(match recovered {
                frieze_multilog::RecoveredItem::Record(header) => header.stamp,
                frieze_multilog::RecoveredItem::Indexed { newest, companion, chains } => {
                    last_companion = companion.to_vec();
                    tips = chains.iter().map(|tip| (tip.chain, *tip)).collect();
                    newest
                }
            });
            on_recovered(recovered);
        })?;
        notes.extend(report.corrupt.iter().map(|damage| words_of(damage, limits)));
        if let Some(loss) = missing_records(&report, limits) {
            notes.push(damaged_log(limits.serve_damaged, &DEVICE_LOG, &loss)?);
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
            // The next head could complete one that is torn: the same record, sent again to the same place, has the
            // same bytes except its checksum. And a whole record behind it would come back with it.
            let mark = free.min(RECORD_MARK_BYTES as u64);
            wipe(&**file, next.offset, mark as usize)?;
            let (begin, end) = (report.torn_end.unwrap_or(next.offset), next.offset + free);
            wipe(&**file, begin, end.saturating_sub(begin).min(RESERVED_BYTES_MAX) as usize)?;
        }
        let mut index_runs = std::mem::take(&mut source.index_runs);
        for (key, why) in &report.free_index_runs {
            index_runs.remove(key);
            disk.remove(&index_run_name(*key))?;
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
            tiers.drop_file_pages(FileKey::Segment(*id), &**file, settings.segment_bytes);
        }
        for (key, file) in &index_runs {
            tiers.drop_file_pages(FileKey::IndexRun(*key), &**file, file.len()?);
        }
        let segments = files.keys().copied().collect();
        for (id, payloads) in list.payloads() {
            tiers.drop_file_pages(FileKey::Segment(id), &*payloads, payloads.len()?);
            files.insert(id, payloads);
        }
        let images = ImageStore::recover(&*disk, budget.images, &mut notes)?;
        let device = Device {
            disk,
            tiers,
            settings,
            budget,
            log: RwLock::new(log),
            // What recovery read may be in the page cache only: the first flush makes it durable.
            dirty: Mutex::new(DirtyFiles { segments, directory: true }),
            files: RwLock::new(files),
            spares,
            refuses_names: AtomicBool::new(false),
            space_advice: Mutex::default(),
            dirty_bytes: AtomicU64::new(0),
            since_checkpoint: AtomicU64::new(0),
            served: AtomicU64::new(0),
            unerased: Mutex::default(),
            has_unerased: AtomicBool::new(false),
            turn: Condvar::new(),
            turn_lock: Mutex::default(),
            index_runs: RwLock::new(index_runs),
            index_run_lock: Mutex::default(),
            tips: Mutex::new(tips),
            evicting: Mutex::default(),
            companion: Mutex::new(last_companion),
            repairs: Mutex::default(),
            read_errors: ReadErrors::default(),
            checksums: super::checksum_cache::SpanChecksums::default(),
            images,
            packs: Mutex::new(list),
            removals: AtomicU64::new(0),
            flushed: Mutex::default(),
        };
        device.watch_space()?;
        Ok(Recovered { device, end: report.end, newest, notes })
    }
}

/// Sentence about damage. A footer that was being written is reported as normal after a crash.
fn words_of(damage: &Corruption, limits: &RecoveryLimits) -> String {
    match damage.segment.filter(|segment| damage.may_be_torn && *segment >= limits.footers_from) {
        Some(segment) => format!(
            "the footer of segment {segment} was being written when the server ended: its records are read instead"
        ),
        None => damage.what.clone(),
    }
}

/// Sentence about records missing from the device log.
fn missing_records(report: &RecoveryReport, limits: &RecoveryLimits) -> Option<String> {
    if let Some(damage) = report.corrupt.iter().find(|damage| damage.loses) {
        return Some(format!("{} at byte {}: {}", segment_name(SegmentId(damage.key.0)), damage.offset, damage.what));
    }
    let (end, durable) = (report.end, limits.durable);
    (limits.upto == Hlc::MAX && end < durable).then(|| {
        format!(
            "it ends at byte {} of segment {}, and was on stable storage up to byte {} of segment {}",
            end.offset, end.segment, durable.offset, durable.segment
        )
    })
}

/// A log of which records may be missing.
pub struct DamagedLog {
    /// Its name.
    pub log: &'static str,
    /// What is missing, or wrong, in what is left.
    pub left: &'static str,
}

/// The device log.
const DEVICE_LOG: DamagedLog =
    DamagedLog { log: "device log", left: "bytes that are gone read as zeros or as older ones" };

/// Decides about a log with missing records: refuse, or report and continue.
///
/// # Errors
/// `Corrupt`, unless damaged directories are to be served.
pub fn damaged_log(serve_damaged: bool, what: &DamagedLog, loss: &str) -> Result<String, Fault> {
    let DamagedLog { log, left } = what;
    if serve_damaged {
        return Ok(format!("the {log} is corrupt and served all the same: {loss}"));
    }
    Err(Fault::new(
        Reason::Corrupt,
        format!(
            "the {log} is corrupt, records are missing: {loss}. Put back what is missing; or read what is left with \
             'frieze export DIR'; or set serve_damaged = true to serve what is left, where {left}"
        ),
    ))
}
