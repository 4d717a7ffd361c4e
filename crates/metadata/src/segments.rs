//! The files of a log on a disk: found, mended, written and flushed as a core of `frieze_metalog` asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frieze_base::{Fault, Reason, SegmentId};
use frieze_disk::{Disk, DiskFile};
use frieze_metalog::{JournalSegment, Mend, SEGMENT_FILE_PREFIX, SegmentSource, segment_file_name};

use frieze_storage::write_surely;

/// The segments of the journal of a member.
pub struct SegmentFiles {
    disk: Arc<dyn Disk>,
    files: BTreeMap<SegmentId, Arc<dyn DiskFile>>,
    dirty: BTreeSet<SegmentId>,
    directory_dirty: bool,
}

/// What was written since the last flush began.
pub struct Unflushed {
    directory: Option<Arc<dyn Disk>>,
    files: Vec<Arc<dyn DiskFile>>,
}

impl SegmentFiles {
    /// The segments on `disk`; none is known before they are listed.
    pub fn new(disk: Arc<dyn Disk>) -> SegmentFiles {
        SegmentFiles { disk, files: BTreeMap::new(), dirty: BTreeSet::new(), directory_dirty: false }
    }

    /// Writes at `offset` of `segment`, after making it if it is new.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(
        &mut self,
        roll: Option<JournalSegment>,
        segment: SegmentId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        if let Some(roll) = roll {
            let name = segment_file_name(roll.segment);
            let file = match roll.recycle {
                Some(old) => {
                    self.disk.rename(&segment_file_name(old), &name)?;
                    self.dirty.remove(&old);
                    self.files.remove(&old).map_or_else(|| self.disk.open(&name), Ok)?
                }
                None => self.disk.create(&name, roll.bytes)?,
            };
            self.files.insert(roll.segment, file.clone());
            self.dirty.insert(roll.segment);
            self.directory_dirty = true;
            file.write_at(0, &[&roll.header])?;
        }
        let file = self.files.get(&segment).ok_or_else(|| {
            Fault::new(Reason::Internal, format!("the metalog writes to segment {segment}, which is not open"))
        })?;
        file.write_at(offset, &[bytes])?;
        self.dirty.insert(segment);
        Ok(())
    }

    /// Removes a segment, if it is there.
    ///
    /// # Errors
    /// The disk's.
    pub fn remove(&mut self, segment: SegmentId) -> Result<(), Fault> {
        self.files.remove(&segment);
        self.dirty.remove(&segment);
        self.directory_dirty = true;
        match self.disk.remove(&segment_file_name(segment)).map_err(Fault::from) {
            // A file that was never made need not go.
            Err(fault) if fault.reason == Reason::NotFound => Ok(()),
            other => other,
        }
    }

    /// Writes zeros over what a failed append may have left.
    ///
    /// # Errors
    /// The disk's.
    pub fn erase(&mut self, segment: SegmentId, offset: u64, len: u64) -> Result<(), Fault> {
        if let Some(file) = self.files.get(&segment) {
            write_surely(&**file, offset, &vec![0u8; len as usize])?;
            self.dirty.insert(segment);
        }
        Ok(())
    }

    /// Does what recovery asks for, durably: what was cut must not come back.
    ///
    /// # Errors
    /// The disk's.
    pub fn mend(&mut self, mend: &[Mend]) -> Result<(), Fault> {
        for one in mend {
            match one {
                Mend::Erase { segment, offset, len } => {
                    let file = self.files.get(segment).expect("recovery mends only files it was shown");
                    file.write_at(*offset, &[&vec![0u8; *len as usize]])?;
                    file.sync()?;
                }
                Mend::Remove { segment } => {
                    self.files.remove(segment);
                    self.disk.remove(&segment_file_name(*segment))?;
                }
            }
        }
        Ok(self.disk.sync_dir()?)
    }

    /// Gives the files of a damaged journal other names, durably: they are for an inspection by hand.
    ///
    /// # Errors
    /// The disk's.
    pub fn set_aside(&mut self, damaged: &[SegmentId]) -> Result<(), Fault> {
        for segment in damaged {
            let name = segment_file_name(*segment);
            self.files.remove(segment);
            self.disk.rename(&name, &format!("lost-{name}"))?;
        }
        if damaged.is_empty() { Ok(()) } else { Ok(self.disk.sync_dir()?) }
    }

    /// Makes every file durable, whatever was written to it and when: what was read may be in the page cache only.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync_all(&mut self) -> Result<(), Fault> {
        self.doubt_all();
        self.take_unflushed().flush()
    }

    /// Counts every file as written and not flushed: what was read may be in the page cache only.
    pub(crate) fn doubt_all(&mut self) {
        self.dirty = self.files.keys().copied().collect();
        self.directory_dirty = true;
    }

    /// Removes every segment, known or not, durably: nothing of the log is left.
    ///
    /// # Errors
    /// The disk's.
    pub fn remove_all(&mut self) -> Result<(), Fault> {
        for name in self.disk.list()? {
            if segment_of(&name).is_some() {
                self.disk.remove(&name)?;
            }
        }
        self.files.clear();
        self.dirty.clear();
        Ok(self.disk.sync_dir()?)
    }

    /// What has been written since the last call. The caller flushes it while more is written.
    pub fn take_unflushed(&mut self) -> Unflushed {
        let dirty = std::mem::take(&mut self.dirty);
        let files = dirty.iter().filter_map(|segment| self.files.get(segment).cloned()).collect();
        let directory = std::mem::take(&mut self.directory_dirty).then(|| self.disk.clone());
        Unflushed { directory, files }
    }

    /// The files: the page cache may hold copies of them.
    pub(crate) fn files(&self) -> Vec<Arc<dyn DiskFile>> {
        self.files.values().cloned().collect()
    }
}

impl SegmentSource for SegmentFiles {
    fn segments(&mut self) -> Result<Vec<(SegmentId, u64)>, Fault> {
        let mut found = Vec::new();
        for name in self.disk.list()? {
            let Some(segment) = segment_of(&name) else { continue };
            let file = self.disk.open(&name)?;
            found.push((segment, file.len()?));
            self.files.insert(segment, file);
        }
        Ok(found)
    }

    fn read(&mut self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let file = self.files.get(&segment).expect("only segments that were listed are read");
        Ok(file.read_at(offset, into)?)
    }
}

impl Unflushed {
    /// Brings it to stable storage.
    ///
    /// # Errors
    /// The disk's: what failed to reach it may be lost.
    pub fn flush(&self) -> Result<(), Fault> {
        if let Some(directory) = &self.directory {
            directory.sync_dir()?;
        }
        for file in &self.files {
            file.sync()?;
        }
        Ok(())
    }
}

fn segment_of(name: &str) -> Option<SegmentId> {
    name.strip_prefix(SEGMENT_FILE_PREFIX).and_then(|hex| u64::from_str_radix(hex, 16).ok()).map(SegmentId)
}
