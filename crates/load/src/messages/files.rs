//! What a load does with files: compactions, begun by the ratio rule or by their period, played run by run and ended by
//! one rename; and every event as it leaves.

use super::{LoadRun, LoadTask, ns};
use crate::error::LoadError;
use crate::event::{FilePlace, LoadCall, LoadEvent, LoadFile, LoadPurpose};
use crate::stores::{FileTable, StoreFile};

/// Blocks that a compaction reads or writes at a time: 50 pages (table 1: compaction's requests over its seeks).
const RUN_BLOCKS: u32 = 4;

#[derive(Clone, Debug)]
pub(super) struct CompactionInput {
    pub(super) file: u32,
    pub(super) next_block: u32,
    pub(super) stream: u64,
}

#[derive(Clone, Debug)]
pub(super) struct CompactionJob {
    pub(super) store: u32,
    pub(super) inputs: Vec<CompactionInput>,
    pub(super) output: u32,
    pub(super) stream: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_read: u64,
    pub(super) next_block: u32,
}

impl<E: From<LoadError>, F: FnMut(&LoadEvent<'_>) -> Result<(), E>> LoadRun<'_, F> {
    pub(super) fn compact_if_due(&mut self, store: usize) -> Result<(), E> {
        if self.stores[store].is_busy {
            return Ok(());
        }
        match self.select(store) {
            Some(range) => self.begin_compaction(store, range),
            None => Ok(()),
        }
    }

    pub(super) fn major(&mut self, store: u32) -> Result<(), E> {
        let files = self.stores[store as usize].files.len();
        if self.stores[store as usize].is_busy {
            // As soon as the other compaction has ended.
            self.schedule(self.now_ns + ns(60.0), LoadTask::Major { store });
            return Ok(());
        }
        let period = ns(self.load.parameters.major_days * 86_400.0);
        self.schedule(self.now_ns.saturating_add(period), LoadTask::Major { store });
        self.begin_compaction(store as usize, 0..files)
    }

    pub(super) fn begin_compaction(&mut self, store: usize, range: std::ops::Range<usize>) -> Result<(), E> {
        let inputs = self.stores[store].files[range].to_vec();
        self.stores[store].is_busy = true;
        let (bytes_in, size, span) = self.merged(&inputs);
        let StoreFile { region, family, .. } = self.files.files[inputs[0] as usize];
        let output = self.files.add(region, family, size, span)?;
        let stream = self.create(&self.files.files[output as usize].clone(), LoadPurpose::Compaction)?;
        let mut opened = Vec::with_capacity(inputs.len());
        for file in inputs {
            let stream = self.files.next_stream();
            let of = self.files.files[file as usize];
            self.emit_call(LoadCall::Open, &of, stream, LoadPurpose::Compaction, FilePlace::Store)?;
            opened.push(CompactionInput { file, next_block: 0, stream });
        }
        let store = store as u32;
        let job = CompactionJob { store, inputs: opened, output, stream, bytes_in, bytes_read: 0, next_block: 0 };
        let at = match self.free_jobs.pop() {
            Some(at) => {
                self.jobs[at as usize] = job;
                at
            }
            None => {
                self.jobs.push(job);
                (self.jobs.len() - 1) as u32
            }
        };
        self.schedule(self.now_ns, LoadTask::Compact { job: at });
        Ok(())
    }

    /// Reads one run of the input that is least far, and writes what that gives.
    pub(super) fn compact(&mut self, at: u32) -> Result<(), E> {
        let done = |input: &CompactionInput, files: &FileTable| {
            f64::from(input.next_block) / f64::from(files.files[input.file as usize].blocks)
        };
        let job = &mut self.jobs[at as usize];
        let least = (job.inputs.iter_mut())
            .min_by(|a, b| done(a, &self.files).total_cmp(&done(b, &self.files)))
            .filter(|input| done(input, &self.files) < 1.0);
        let Some(input) = least else {
            return self.end_compaction(at);
        };
        let (file, stream, block) = (self.files.files[input.file as usize], input.stream, input.next_block);
        let end = file.blocks.min(block + RUN_BLOCKS);
        input.next_block = end;
        let len = file.block_offset(end, self.block_bytes) - file.block_offset(block, self.block_bytes);
        job.bytes_read += len;
        let (output, out_stream, first) = (self.files.files[job.output as usize], job.stream, job.next_block);
        let share = job.bytes_read as f64 / job.bytes_in.max(1) as f64;
        // Blocks that are full by now; the last ones follow at the end.
        let full = ((share * f64::from(output.blocks)) as u32).min(output.blocks);
        let write = full >= first + RUN_BLOCKS;
        if write {
            job.next_block = full;
        }
        self.emit_blocks(LoadCall::Read, &file, block, end, stream, LoadPurpose::Compaction, FilePlace::Store)?;
        if write {
            let place = FilePlace::Temporary;
            self.emit_blocks(LoadCall::Write, &output, first, full, out_stream, LoadPurpose::Compaction, place)?;
        }
        let speed = self.load.parameters.compaction_mb_per_second * 1e6 * self.load.slice;
        self.schedule(self.now_ns + ns(len as f64 / speed), LoadTask::Compact { job: at });
        Ok(())
    }

    pub(super) fn end_compaction(&mut self, at: u32) -> Result<(), E> {
        let CompactionJob { store, inputs, output, stream, next_block, .. } = self.jobs[at as usize].clone();
        self.free_jobs.push(at);
        let file = self.files.files[output as usize];
        if next_block < file.blocks {
            let (end, place) = (file.blocks, FilePlace::Temporary);
            self.emit_blocks(LoadCall::Write, &file, next_block, end, stream, LoadPurpose::Compaction, place)?;
        }
        self.publish(&file, stream, LoadPurpose::Compaction)?;
        let store = store as usize;
        let first = self.stores[store].files.iter().position(|&file| file == inputs[0].file);
        let first = first.expect("files of a store leave it by the end of their compaction alone");
        self.stores[store].files.splice(first..first + inputs.len(), [output]);
        self.stores[store].is_busy = false;
        let removed_ns = self.now_ns + ns(self.load.parameters.archive_seconds);
        for input in inputs {
            let file = self.files.files[input.file as usize];
            let StoreFile { number, region, family, .. } = file;
            self.emit_call(LoadCall::Close, &file, input.stream, LoadPurpose::Compaction, FilePlace::Store)?;
            let to = Some(FilePlace::Archive);
            self.emit_name(LoadCall::Rename, number, region, family, FilePlace::Store, to)?;
            self.schedule(removed_ns, LoadTask::Remove { file: number, region, family });
            self.files.remove(input.file);
        }
        self.compact_if_due(store)
    }
}

/// In place of a family's number: the log.
pub(super) const LOG_FAMILY: u8 = u8::MAX;
/// Bytes of one call to the log: 821 KB/s by three replicas over 104,100 requests a minute (table 1). HTFS puts small
/// stream writes together up to 4,096 bytes: an event of the log is several calls.
const LOG_CALL_BYTES: f64 = 1420.0;

impl<E: From<LoadError>, F: FnMut(&LoadEvent<'_>) -> Result<(), E>> LoadRun<'_, F> {
    pub(super) fn emit(&mut self, event: &LoadEvent<'_>) -> Result<(), E> {
        // What is played before the load begins is no part of it.
        if self.now_ns < 0 {
            return Ok(());
        }
        let families = &self.load.parameters.families;
        let index = event.file.family_index.min(families.len());
        let family = families.get(index).map(|family| family.name.as_str());
        let file = LoadFile { family, family_index: index, ..event.file };
        (self.sink)(&LoadEvent { file, ..event.clone() })
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of an event, all of them different things")]
    pub(super) fn emit_blocks(
        &mut self,
        call: LoadCall,
        file: &StoreFile,
        first: u32,
        end: u32,
        stream: u64,
        purpose: LoadPurpose,
        place: FilePlace,
    ) -> Result<(), E> {
        let offset = file.block_offset(first, self.block_bytes);
        let event = LoadEvent {
            t_ns: self.now_ns,
            call,
            file: unnamed(file.number, file.region, file.family),
            place,
            to: None,
            offset,
            len: file.block_offset(end, self.block_bytes) - offset,
            count: end - first,
            stream,
            purpose,
            blocks: file.first_block + u64::from(first)..file.first_block + u64::from(end),
        };
        self.emit(&event)
    }

    pub(super) fn emit_call(
        &mut self,
        call: LoadCall,
        file: &StoreFile,
        stream: u64,
        purpose: LoadPurpose,
        place: FilePlace,
    ) -> Result<(), E> {
        let file = unnamed(file.number, file.region, file.family);
        let t_ns = self.now_ns;
        self.emit(&LoadEvent {
            t_ns,
            call,
            file,
            place,
            to: None,
            offset: 0,
            len: 0,
            count: 1,
            stream,
            purpose,
            blocks: 0..0,
        })
    }

    pub(super) fn emit_name(
        &mut self,
        call: LoadCall,
        number: u64,
        region: u32,
        family: u8,
        place: FilePlace,
        to: Option<FilePlace>,
    ) -> Result<(), E> {
        let file = unnamed(number, region, family);
        let purpose = match (place, family) {
            (FilePlace::Log | FilePlace::OldLog, _) => LoadPurpose::Log,
            _ => LoadPurpose::Compaction,
        };
        let t_ns = self.now_ns;
        self.emit(&LoadEvent {
            t_ns,
            call,
            file,
            place,
            to,
            offset: 0,
            len: 0,
            count: 1,
            stream: 0,
            purpose,
            blocks: 0..0,
        })
    }

    pub(super) fn emit_log(&mut self, call: LoadCall, len: u64) -> Result<(), E> {
        let (t_ns, offset, stream) = (self.now_ns, self.log.size, self.log.stream);
        let file = unnamed(self.log.number, 0, LOG_FAMILY);
        self.log.size += len;
        let count = ((len as f64 / LOG_CALL_BYTES).round() as u32).max(1);
        let place = FilePlace::Log;
        self.emit(&LoadEvent {
            t_ns,
            call,
            file,
            place,
            to: None,
            offset,
            len,
            count,
            stream,
            purpose: LoadPurpose::Log,
            blocks: 0..0,
        })
    }
}

/// The name of its family follows where the event leaves.
fn unnamed(number: u64, region: u32, family: u8) -> LoadFile<'static> {
    LoadFile { number, region, family: None, family_index: family.into() }
}
