//! A recorded load as the simulator takes it: calls that move bytes, and facts about files.
//!
//! Guarantees: calls are in the order of their times; every file's size, writer, birth and end are known before a
//! simulation begins, as in the study, whose policies look at them.
//! Leaves to others: how a trace is read (`trace`), and what the calls mean at one machine (`local`).

use frieze_base::Rng;

use crate::error::WhatIfError;

/// What a call was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum IoPurpose {
    /// A user's read.
    Read = 0,
    /// A log of changes that are not flushed yet.
    Log = 1,
    /// Output of a flush, and every other write of a user's data.
    Flush = 2,
    /// Input or output of a compaction.
    Compaction = 3,
}

impl IoPurpose {
    /// All of them.
    pub const ALL: [IoPurpose; 4] = [IoPurpose::Read, IoPurpose::Log, IoPurpose::Flush, IoPurpose::Compaction];

    /// Its word in tables.
    pub fn name(self) -> &'static str {
        match self {
            IoPurpose::Read => "read",
            IoPurpose::Log => "log",
            IoPurpose::Flush => "flush",
            IoPurpose::Compaction => "compaction",
        }
    }

    /// By its number.
    pub(crate) fn of(number: u8) -> IoPurpose {
        IoPurpose::ALL[usize::from(number & 3)]
    }
}

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// Bytes were read.
    Read,
    /// Bytes were written.
    Write,
    /// The file was removed.
    Remove,
}

/// A call that moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataCall {
    /// Microseconds since the trace began.
    pub at_us: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u32,
    /// The file, numbered densely.
    pub file: u32,
    /// Read, written or removed.
    pub movement: Movement,
    /// What for.
    pub purpose: IoPurpose,
    /// The machine whose program called, numbered densely.
    pub machine: u8,
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileFacts {
    /// The largest end of a call, in bytes.
    pub bytes: u64,
    /// The machine whose program wrote it, or read it first.
    pub machine: u8,
    /// What its first write was for; `None` if the trace has none.
    pub written_for: Option<IoPurpose>,
    /// Microseconds of its first write.
    pub born_us: u64,
    /// Microseconds of its removal; `u64::MAX` if it outlives the trace.
    pub removed_us: u64,
}

/// A recorded load.
#[derive(Clone, Debug, Default)]
pub struct RecordedLoad {
    calls: Vec<DataCall>,
    files: Vec<FileFacts>,
    span_us: u64,
    machines: u8,
    assumptions: Vec<String>,
}

impl RecordedLoad {
    /// A load of these calls. They are sorted by time; `span_us` is how long the trace lasted, at least until its last
    /// call. `assumptions` are sentences for the answer.
    ///
    /// # Errors
    /// `TooManyFiles` above 2^26 files: sample the trace.
    pub fn new(mut calls: Vec<DataCall>, span_us: u64, assumptions: Vec<String>) -> Result<RecordedLoad, WhatIfError> {
        calls.sort_by_key(|call| call.at_us);
        let count = calls.iter().map(|call| call.file as usize + 1).max().unwrap_or(0);
        if count > FILES_MAX {
            return Err(WhatIfError::TooManyFiles { count, max: FILES_MAX });
        }
        let mut files: Vec<FileFacts> = vec![FileFacts { removed_us: u64::MAX, ..FileFacts::default() }; count];
        let mut known = vec![false; count];
        let mut machines = 1;
        for call in &calls {
            let file = &mut files[call.file as usize];
            machines = machines.max(call.machine.saturating_add(1));
            if !std::mem::replace(&mut known[call.file as usize], true) {
                file.machine = call.machine;
            }
            match call.movement {
                Movement::Remove => file.removed_us = call.at_us,
                Movement::Write if file.written_for.is_none() => {
                    (file.written_for, file.born_us) = (Some(call.purpose), call.at_us);
                }
                _ => {}
            }
            if call.movement != Movement::Remove {
                file.bytes = file.bytes.max(call.offset.saturating_add(call.bytes.into()));
            }
        }
        let span_us = span_us.max(calls.last().map_or(0, |call| call.at_us));
        Ok(RecordedLoad { calls, files, span_us, machines, assumptions })
    }

    /// The same with every call later by a uniform random time below `jitter_us`: does latency of the network matter?
    #[must_use]
    pub fn jittered(mut self, jitter_us: u64, seed: u64) -> RecordedLoad {
        let mut rng = Rng::new(seed);
        for call in &mut self.calls {
            call.at_us += rng.below(jitter_us.max(1));
        }
        self.calls.sort_by_key(|call| call.at_us);
        self.span_us = self.span_us.max(self.calls.last().map_or(0, |call| call.at_us));
        if jitter_us > 0 {
            self.assumptions.push(format!("every call is later by up to {} ms, at random", jitter_us as f64 / 1e3));
        }
        self
    }

    /// The part before `end_us`, as if the trace had ended there: was it long enough?
    #[must_use]
    pub fn until(self, end_us: u64) -> RecordedLoad {
        let RecordedLoad { mut calls, mut assumptions, span_us, .. } = self;
        calls.retain(|call| call.at_us < end_us);
        if end_us < span_us {
            assumptions.push(format!("the trace ends {:.2} days early", (span_us - end_us) as f64 / 86_400e6));
        }
        RecordedLoad::new(calls, span_us.min(end_us), assumptions).expect("a part has no more files than the whole")
    }

    /// Calls by time.
    pub fn calls(&self) -> &[DataCall] {
        &self.calls
    }

    /// Facts by file.
    pub fn files(&self) -> &[FileFacts] {
        &self.files
    }

    /// Microseconds that the trace lasted.
    pub fn span_us(&self) -> u64 {
        self.span_us
    }

    /// Machines whose programs called.
    pub fn machines(&self) -> u8 {
        self.machines.max(1)
    }

    /// Sentences for the answer: what was assumed while the trace was read.
    pub fn assumptions(&self) -> &[String] {
        &self.assumptions
    }

    /// Bytes that files have on average over the trace, each from its first write to its removal.
    pub fn stored_bytes(&self) -> f64 {
        let bytes_us = self.files.iter().map(|file| {
            let until = file.removed_us.min(self.span_us);
            file.bytes as f64 * until.saturating_sub(file.born_us) as f64
        });
        bytes_us.sum::<f64>() / (self.span_us as f64).max(1.0)
    }

    /// Bytes of all files.
    pub fn bytes_of_files(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Keys of frames have 28 bits for a local file, and a file may be several.
const FILES_MAX: usize = 1 << 26;
