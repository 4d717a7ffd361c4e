//! What a trace says beyond the bytes that move: what programs wait for, which instants they read, how soon what they
//! write is removed.
//!
//! Guarantees: memory is bounded, and what finds no room is counted. Leaves to others: what follows (`advice`).

use std::collections::BTreeMap;

use frieze_base::FastMap;
use frieze_trace::{CallKind, EventFlags, Gateway};
use frieze_tracefile::{TraceNames, TraceReader, TraceRow};

use crate::error::WhatIfError;

/// Files that are followed until they are removed, at most: some 200 MiB.
const FILES_MAX: usize = 4 << 20;
/// Programs that are told apart.
const PROGRAMS_MAX: usize = 1000;
/// A file that is removed sooner is short-lived, ns.
const SHORT_LIFE_NS: i64 = 3_600_000_000_000;
/// A directory that has this part of something stands for it.
const MAIN_PART: f64 = 0.8;

/// Calls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallSums {
    /// Calls.
    pub calls: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Time that their callers waited, ns.
    pub waited_ns: u64,
}

impl CallSums {
    fn add(&mut self, row: &TraceRow) {
        self.calls += u64::from(row.count);
        self.bytes = self.bytes.saturating_add(row.got.unwrap_or(0));
        self.waited_ns = self.waited_ns.saturating_add(row.duration_ns.unwrap_or(0));
    }
}

/// What one program does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramFacts {
    /// All its calls.
    pub all: CallSums,
    /// Its writes and appends.
    pub writes: CallSums,
    /// Its calls that waited for stable storage.
    pub syncs: CallSums,
}

/// What a trace says beyond the bytes that move.
#[derive(Clone, Debug, Default)]
pub struct LoadFacts {
    /// Calls by kind.
    pub by_call: BTreeMap<CallKind, CallSums>,
    /// Programs by name and arguments; those of unknown programs under "".
    pub programs: BTreeMap<String, ProgramFacts>,
    /// Reads of the present, and of the past.
    pub present_reads: CallSums,
    /// See `present_reads`.
    pub past_reads: CallSums,
    /// Bytes written into files.
    pub written_bytes: u64,
    /// Of them, those into files that were removed within an hour.
    pub short_lived_bytes: u64,
    /// By directory: bytes of such files.
    short_lived: BTreeMap<Vec<u8>, u64>,
    /// Files that were not followed.
    pub not_followed: u64,
}

#[derive(Clone, Copy, Debug)]
struct FollowedFile {
    directory: Option<u64>,
    bytes: u64,
    born_ns: i64,
}

impl LoadFacts {
    /// Reads them from a trace.
    ///
    /// # Errors
    /// `Trace` with file, column and row.
    pub fn read(reader: &TraceReader) -> Result<LoadFacts, WhatIfError> {
        let names = reader.names()?;
        let mut reading = FactsReading { names: &names, facts: LoadFacts::default(), files: FastMap::default() };
        reader.for_each_group(|rows| -> Result<(), WhatIfError> {
            rows.iter().for_each(|row| reading.row(row));
            Ok(())
        })?;
        Ok(reading.facts)
    }

    /// Time that all callers waited, ns.
    pub fn waited_ns(&self) -> u64 {
        self.by_call.values().map(|sums| sums.waited_ns).fold(0, u64::saturating_add)
    }

    /// The deepest directory below which most of the short-lived bytes lie, and these bytes.
    pub fn main_directory(&self) -> (Vec<u8>, u64) {
        let (mut at, mut bytes) = (Vec::new(), self.short_lived_bytes);
        loop {
            let mut below: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            for (directory, bytes) in &self.short_lived {
                let Some(rest) = directory.strip_prefix(at.as_slice()).and_then(|rest| rest.strip_prefix(b"/")) else {
                    continue;
                };
                let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
                if end > 0 {
                    let child = directory[..at.len() + 1 + end].to_vec();
                    *below.entry(child).or_default() += bytes;
                }
            }
            match below.into_iter().max_by_key(|(_, bytes)| *bytes) {
                Some((child, of_child)) if of_child as f64 >= MAIN_PART * self.short_lived_bytes.max(1) as f64 => {
                    (at, bytes) = (child, of_child);
                }
                _ => break,
            }
        }
        if at.is_empty() {
            at.push(b'/');
        }
        (at, bytes)
    }
}

struct FactsReading<'a> {
    names: &'a TraceNames,
    facts: LoadFacts,
    files: FastMap<u64, FollowedFile>,
}

impl FactsReading<'_> {
    fn row(&mut self, row: &TraceRow) {
        // Events of devices lie below what users called.
        if row.gateway == Gateway::Device {
            return;
        }
        self.facts.by_call.entry(row.call).or_default().add(row);
        let is_write = matches!(row.call, CallKind::Write | CallKind::Append);
        let waits = row.call == CallKind::Sync || row.flags.has(EventFlags::SYNCHRONOUS);
        let program = self.program(row);
        program.all.add(row);
        if is_write {
            program.writes.add(row);
        }
        if waits {
            program.syncs.add(row);
        }
        if row.result != 0 {
            return;
        }
        match row.call {
            CallKind::Read if row.flags.has(EventFlags::PAST) => self.facts.past_reads.add(row),
            CallKind::Read => self.facts.present_reads.add(row),
            CallKind::Create => self.follow(row),
            CallKind::Unlink => self.end(row),
            _ if is_write => self.write(row),
            _ => {}
        }
    }

    fn program(&mut self, row: &TraceRow) -> &mut ProgramFacts {
        let actor = row.actor.and_then(|actor| self.names.actors.get(&actor));
        let name = actor.and_then(|actor| actor.program.as_deref()).unwrap_or_default();
        let has_room = self.facts.programs.len() < PROGRAMS_MAX || self.facts.programs.contains_key(name);
        let name = if has_room { name } else { "" };
        if !self.facts.programs.contains_key(name) {
            self.facts.programs.insert(name.to_owned(), ProgramFacts::default());
        }
        self.facts.programs.get_mut(name).expect("it was just made")
    }

    fn follow(&mut self, row: &TraceRow) {
        let Some(key) = row.inode.or(row.path) else { return };
        if self.files.len() >= FILES_MAX {
            self.facts.not_followed += 1;
            return;
        }
        let directory = row.path.and_then(|path| self.names.paths.get(&path)?.parent);
        self.files.insert(key, FollowedFile { directory, bytes: 0, born_ns: row.start_ns });
    }

    fn write(&mut self, row: &TraceRow) {
        let bytes = row.got.unwrap_or(0);
        self.facts.written_bytes = self.facts.written_bytes.saturating_add(bytes);
        let key = row.inode.or(row.path).unwrap_or(0);
        if let Some(file) = self.files.get_mut(&key) {
            file.bytes = file.bytes.saturating_add(bytes);
        }
    }

    fn end(&mut self, row: &TraceRow) {
        let by_inode = row.inode.and_then(|inode| self.files.remove(&inode));
        let Some(file) = by_inode.or_else(|| self.files.remove(&row.path?)) else { return };
        if row.start_ns.saturating_sub(file.born_ns) > SHORT_LIFE_NS || file.bytes == 0 {
            return;
        }
        self.facts.short_lived_bytes = self.facts.short_lived_bytes.saturating_add(file.bytes);
        let text = file.directory.and_then(|hash| self.names.paths.get(&hash)?.text.clone());
        if let Some(text) = text.filter(|_| self.facts.short_lived.len() < FILES_MAX) {
            *self.facts.short_lived.entry(text).or_default() += file.bytes;
        }
    }
}
