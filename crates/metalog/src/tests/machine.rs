//! A server in small: it carries out the log's effects on files in memory, crashes and starts again.

use std::collections::BTreeMap;

use frieze_base::{Fault, LogIndex, Reason, Rng, SegmentId};
use frieze_hlc::Hlc;

use crate::{
    DataEnd, Error, JournalSegment, LogEntry, Mend, Metalog, MetalogCutReason, MetalogEffect, MetalogInput,
    MetalogSettings, RecoverFrom, RecoveredMetalog, SegmentSource,
};

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

/// The log and its files.
pub(super) struct MetalogMachine {
    pub(super) log: Metalog,
    pub(super) settings: MetalogSettings,
    /// As programs see them.
    pub(super) files: MachineFiles,
    /// As they are on stable storage.
    pub(super) stable: MachineFiles,
    /// What was proposed and not withdrawn, from entry 1 on.
    pub(super) entries: Vec<LogEntry>,
    pub(super) hlc: u64,
    pub(super) data_end: DataEnd,
    /// Last entry that the store holds.
    pub(super) applied: LogIndex,
    /// What the log had written when it asked.
    pending: Vec<PendingAppend>,
}

struct PendingAppend {
    index: LogIndex,
    roll: Option<JournalSegment>,
    segment: SegmentId,
    offset: u64,
    bytes: Vec<u8>,
}

impl MetalogMachine {
    pub(super) fn new(segment_bytes: u64) -> MetalogMachine {
        let settings = MetalogSettings { segment_bytes, spare_max: 1, ..MetalogSettings::default() };
        MetalogMachine {
            log: Metalog::new(settings.clone()),
            settings,
            files: MachineFiles::default(),
            stable: MachineFiles::default(),
            entries: Vec::new(),
            hlc: 1000,
            data_end: DataEnd::default(),
            applied: LogIndex(0),
            pending: Vec::new(),
        }
    }

    pub(super) fn step(&mut self, input: MetalogInput) -> Vec<MetalogEffect> {
        let mut out = Vec::new();
        self.log.step(Hlc(self.hlc), input, &mut out);
        for effect in &out {
            match effect {
                MetalogEffect::Append { index, roll, segment, offset, bytes, .. } => self.pending.push(PendingAppend {
                    index: *index,
                    roll: roll.clone(),
                    segment: *segment,
                    offset: *offset,
                    bytes: bytes.clone(),
                }),
                MetalogEffect::Erase { segment, offset, len } => {
                    self.files.write(*segment, *offset, &vec![0; *len as usize]);
                }
                MetalogEffect::Remove { segment } => {
                    self.files.0.remove(segment);
                }
                MetalogEffect::Withdrawn { index, .. } => {
                    self.entries.retain(|entry| entry.index != *index);
                    self.pending.retain(|pending| pending.index != *index);
                }
                _ => {}
            }
        }
        out
    }

    /// Proposes a batch of `len` bytes; nothing is written yet.
    pub(super) fn propose(&mut self, len: usize) -> LogIndex {
        self.hlc += 10;
        self.data_end.offset += 100;
        let index = LogIndex(self.log.last().0 + 1);
        let body: Vec<u8> = (0..len).map(|i| (self.hlc as usize + i) as u8).collect();
        let count = 1 + (len % 3) as u32;
        self.entries.push(LogEntry {
            index,
            term: self.log.term(),
            stamp: Hlc(self.hlc),
            count,
            data_end: self.data_end,
            body: body.clone(),
        });
        let out = self.step(MetalogInput::Propose { body, count, data_end: self.data_end });
        assert!(matches!(out[..], [MetalogEffect::Append { index: found, .. }] if found == index), "{out:?}");
        index
    }

    /// Puts the oldest proposed batch into its file.
    pub(super) fn write_one(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let pending = self.pending.remove(0);
        self.put(&pending, usize::MAX);
        let index = pending.index;
        assert_eq!(self.step(MetalogInput::Appended { index }), vec![MetalogEffect::Committed { index }]);
    }

    /// The oldest proposed batch fails after `written` bytes have reached the file; those after it were written whole
    /// before that was known.
    pub(super) fn fail_one(&mut self, written: usize, others_too: bool) {
        if self.pending.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        let index = pending[0].index;
        self.put(&pending[0], written);
        for later in pending[1..].iter().filter(|_| others_too) {
            if later.roll.is_some() || self.files.0.contains_key(&later.segment) {
                self.put(later, usize::MAX);
            }
        }
        self.step(MetalogInput::AppendFailed { index, reason: Reason::InputOutput });
    }

    fn put(&mut self, pending: &PendingAppend, written: usize) {
        if let Some(new) = &pending.roll {
            self.files.begin(new);
        }
        let len = pending.bytes.len().min(written);
        self.files.write(pending.segment, pending.offset, &pending.bytes[..len]);
    }

    pub(super) fn append(&mut self, len: usize) -> LogIndex {
        let index = self.propose(len);
        self.write_one();
        index
    }

    /// Flushes everything.
    pub(super) fn flush(&mut self) {
        self.stable = self.files.clone();
        let index = self.log.committed();
        self.step(MetalogInput::Persisted { index });
        assert_eq!(self.log.durable(), index);
    }

    /// The store takes everything durable up to `index`.
    pub(super) fn apply(&mut self, index: LogIndex) {
        self.applied = self.applied.max(index.min(self.log.durable()));
        self.step(MetalogInput::Truncate { through: self.applied });
    }

    /// The process dies: its files stay as programs saw them.
    pub(super) fn kill(&mut self) -> RecoveredMetalog {
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

    /// Starts again from the files, mends them, and checks that what came back is a prefix of what was proposed.
    pub(super) fn recover(&mut self, data_end: DataEnd) -> Result<RecoveredMetalog, Error> {
        let mut found = Vec::new();
        let from = RecoverFrom { applied: self.applied, data_end };
        let recovered = Metalog::recover(self.settings.clone(), from, &mut self.files, &mut |entry| found.push(entry))?;
        assert_eq!(recovered.report.entries, found.len() as u64);
        let last = LogIndex(self.applied.0 + found.len() as u64);
        assert_eq!(recovered.report.last, last);
        let expected = self.entries.get(self.applied.0 as usize..last.0 as usize);
        assert_eq!(Some(&found[..]), expected, "entries after {} come back as a prefix", self.applied);
        Ok(recovered)
    }

    /// Goes on with a recovered log.
    pub(super) fn go_on(&mut self, recovered: RecoveredMetalog) {
        for mend in &recovered.mend {
            match mend {
                Mend::Erase { segment, offset, len } => self.files.write(*segment, *offset, &vec![0; *len as usize]),
                Mend::Remove { segment } => assert!(self.files.0.remove(segment).is_some()),
            }
        }
        self.log = recovered.log;
        self.pending.clear();
        self.entries.truncate(recovered.report.last.0 as usize);
        self.flush();
    }
}

/// Why recovery cut the log, if it did.
pub(super) fn cut(recovered: &RecoveredMetalog) -> Option<(LogIndex, MetalogCutReason)> {
    recovered.report.cut.map(|cut| (cut.index, cut.why))
}
