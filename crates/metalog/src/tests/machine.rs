//! A server in small: it carries out the log's effects on files in memory, crashes and starts again.

use std::collections::BTreeMap;

use frieze_base::{Fault, LogIndex, Reason, Rng, SegmentId};

use crate::error::Error;
use crate::message::{DataEnd, JournalSegment};
use crate::recover::{FoundRecord, Mend, MetalogCutReason, MissingData, RecoveredSegments, SegmentSource};
use crate::segment_log::{RecordWrite, SegmentLog, SegmentSettings, WithdrawStep};

/// Files by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MachineFiles(pub(super) BTreeMap<SegmentId, Vec<u8>>);

impl MachineFiles {
    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) {
        let file = self.0.get_mut(&segment).expect("the segment has been made");
        file[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn begin(&mut self, new: &JournalSegment) {
        let file = match new.recycle {
            Some(old) => self.0.remove(&old).expect("a spare file is there"),
            None => vec![0; new.bytes as usize],
        };
        assert_eq!(file.len() as u64, new.bytes);
        assert!(self.0.insert(new.segment, file).is_none(), "segment {} is there already", new.segment);
        self.write(new.segment, 0, &new.header);
    }
}

impl SegmentSource for MachineFiles {
    fn segments(&mut self) -> Result<Vec<(SegmentId, u64)>, Fault> {
        Ok(self.0.iter().rev().map(|(segment, bytes)| (*segment, bytes.len() as u64)).collect())
    }

    fn read(&mut self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let file = self.0.get(&segment).ok_or(Reason::NotFound)?;
        let rest = file.get(offset as usize..).unwrap_or_default();
        // At most 50 bytes at a time: a short read is not the end of the file.
        let len = rest.len().min(into.len()).min(50);
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

/// Segments of a journal, and their files.
pub(super) struct SegmentMachine {
    pub(super) log: SegmentLog,
    pub(super) settings: SegmentSettings,
    /// As programs see them.
    pub(super) files: MachineFiles,
    /// As they are on stable storage.
    pub(super) stable: MachineFiles,
    /// What was appended and not withdrawn, from record 1 on.
    pub(super) records: Vec<FoundRecord>,
    count: u64,
    pub(super) data_end: DataEnd,
    /// Last record that is not needed any more.
    pub(super) known: LogIndex,
    /// What the log had written when it asked.
    pending: Vec<RecordWrite>,
}

impl SegmentMachine {
    pub(super) fn new(segment_bytes: u64) -> SegmentMachine {
        let settings = SegmentSettings { segment_bytes, body_bytes_max: 32 << 20, spare_max: 1 };
        SegmentMachine {
            log: SegmentLog::new(settings.clone()),
            settings,
            files: MachineFiles::default(),
            stable: MachineFiles::default(),
            records: Vec::new(),
            count: 0,
            data_end: DataEnd::default(),
            known: LogIndex(0),
            pending: Vec::new(),
        }
    }

    /// Appends a record of `len` bytes; nothing is written yet.
    pub(super) fn propose(&mut self, len: usize) -> LogIndex {
        self.count += 1;
        self.data_end.offset += 100;
        let body: Vec<u8> = (0..len).map(|i| (self.count as usize + i) as u8).collect();
        let written = self.log.append(&body, self.data_end).expect("it is not too large");
        let number = written.number;
        assert_eq!(number, self.log.last);
        self.records.push(FoundRecord { number, data_end: self.data_end, body });
        self.pending.push(written);
        number
    }

    /// Puts the oldest appended record into its file.
    pub(super) fn write_one(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let pending = self.pending.remove(0);
        self.put(&pending, usize::MAX);
        self.log.on_written(pending.number);
    }

    /// The oldest appended record fails after `written` bytes have reached the file; those after it were written whole
    /// before that was known.
    pub(super) fn fail_one(&mut self, written: usize, others_too: bool) {
        if self.pending.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        let number = pending[0].number;
        self.put(&pending[0], written);
        for later in pending[1..].iter().filter(|_| others_too) {
            if later.roll.is_some() || self.files.0.contains_key(&later.segment) {
                self.put(later, usize::MAX);
            }
        }
        for step in self.log.withdraw(number) {
            match step {
                WithdrawStep::Erase { segment, offset, len } => {
                    self.files.write(segment, offset, &vec![0; len as usize]);
                }
                WithdrawStep::Remove { segment } => drop(self.files.0.remove(&segment)),
            }
        }
        self.records.retain(|record| record.number < number);
    }

    fn put(&mut self, pending: &RecordWrite, written: usize) {
        if let Some(new) = &pending.roll {
            self.files.begin(new);
        }
        let len = pending.bytes.len().min(written);
        self.files.write(pending.segment, pending.offset, &pending.bytes[..len]);
    }

    pub(super) fn append(&mut self, len: usize) -> LogIndex {
        let number = self.propose(len);
        self.write_one();
        number
    }

    /// Flushes everything.
    pub(super) fn flush(&mut self) {
        self.stable = self.files.clone();
        self.log.on_persisted(self.log.written);
        assert_eq!(self.log.durable, self.log.written);
    }

    /// Everything durable up to `number` is not needed any more.
    pub(super) fn let_go(&mut self, number: LogIndex) {
        self.known = self.known.max(number.min(self.log.durable));
        for segment in self.log.truncate(self.known) {
            self.files.0.remove(&segment);
        }
    }

    /// The process dies: its files stay as programs saw them.
    pub(super) fn kill(&mut self) -> RecoveredSegments {
        let data_end = self.data_end;
        self.recover(data_end).expect("what a killed process leaves can be recovered")
    }

    /// The power fails: of what was not flushed, each 32 bytes and each name may be there or not.
    pub(super) fn lose_power(&mut self, rng: &mut Rng) {
        let mut after = self.stable.clone();
        for (segment, now) in &self.files.0 {
            match after.0.get_mut(segment) {
                Some(file) => {
                    for (kept, new) in file.chunks_mut(32).zip(now.chunks(32)) {
                        if rng.chance(2) {
                            kept.copy_from_slice(new);
                        }
                    }
                }
                None if rng.chance(2) => {
                    let mut file = now.clone();
                    for piece in file.chunks_mut(32) {
                        if rng.chance(2) {
                            piece.fill(0);
                        }
                    }
                    after.0.insert(*segment, file);
                }
                None => {}
            }
        }
        for segment in self.stable.0.keys().filter(|segment| !self.files.0.contains_key(segment)) {
            if rng.chance(2) {
                after.0.remove(segment);
            }
        }
        self.files = after;
    }

    /// Starts again from the files, mends them, and checks that what came back is a prefix of what was appended.
    pub(super) fn recover(&mut self, data_end: DataEnd) -> Result<RecoveredSegments, Error> {
        let mut found = Vec::new();
        let recovered = SegmentLog::recover(self.settings.clone(), self.known, &mut self.files, &mut |record| {
            if record.data_end > data_end {
                return Err(MissingData { needed: record.data_end, found: data_end });
            }
            found.push(record);
            Ok(())
        })?;
        assert_eq!(recovered.report.records, found.len() as u64);
        let last = LogIndex(self.known.0 + found.len() as u64);
        assert_eq!(recovered.report.last, last);
        let expected = self.records.get(self.known.0 as usize..last.0 as usize);
        assert_eq!(Some(&found[..]), expected, "records after {} come back as a prefix", self.known);
        Ok(recovered)
    }

    /// Goes on with a recovered log.
    pub(super) fn go_on(&mut self, recovered: RecoveredSegments) {
        for mend in &recovered.mend {
            match mend {
                Mend::Erase { segment, offset, len } => self.files.write(*segment, *offset, &vec![0; *len as usize]),
                Mend::Remove { segment } => assert!(self.files.0.remove(segment).is_some()),
            }
        }
        self.log = recovered.log;
        self.pending.clear();
        self.records.truncate(recovered.report.last.0 as usize);
        self.flush();
    }
}

/// Why recovery cut the log, if it did.
pub(super) fn cut(recovered: &RecoveredSegments) -> Option<(LogIndex, MetalogCutReason)> {
    recovered.report.cut.map(|cut| (cut.record, cut.why))
}
