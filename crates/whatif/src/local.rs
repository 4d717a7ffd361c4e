//! What the calls of a load mean at one machine: local files, accesses to frames, bytes over the network.
//!
//! Guarantees: a load is lowered once and simulated many times; an [`FrameAccess`] takes 20 bytes.
//! Leaves to others: caches and disks (`simulation`).
//!
//! # The algorithm
//! HDFS cuts a file into blocks, each a local file at every replica. The first replica lies beside the program that
//! writes, the others at machines that follow from a hash of file and block. Of nine traced machines the one that is
//! simulated takes part of the others' writes. Where one machine was traced, its own writes stand for those that
//! arrive from others: as many local files more as there are remote replicas, some time later, so that bursts of one
//! machine do not meet in themselves.
//!
//! # Source
//! Harter et al. (FAST'14), §3.2 and §6.2.

use std::ops::Range;

use frieze_base::FastMap;

use crate::rules::{RuleSet, SimRule};
use crate::workload::{DataCall, IoPurpose, Movement, RecordedLoad};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a frame, of which an access has a mask of pages.
pub const FRAME_BYTES: u64 = 16 * PAGE_BYTES;

/// How calls become local I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplicationModel {
    /// HDFS beside the program: reads are served by the first replica, which lies on the same machine.
    #[default]
    Hdfs,
    /// Chains of frieze: any replica serves a read.
    Chains,
    /// HDFS after the program moved to another machine: every replica is remote.
    Remote,
    /// Every replica compacts its own copy: more reads, less network.
    LocalCompaction,
    /// No copies: each file is cut into cells that the data parts of an erasure code take in turn, and parity parts are
    /// as long; each part is on a machine of its own, the first beside the program. A read touches the data parts that
    /// its bytes are in.
    ErasureCoded(CodeParts),
}

/// An erasure code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeParts {
    /// Parts that have the data, 1 to 24.
    pub data: u8,
    /// Parts beside them, any of which stands in for one, 0 to 8.
    pub parity: u8,
    /// Bytes that a part takes before the next one has its turn.
    pub cell_bytes: u32,
}

impl CodeParts {
    /// Bytes of data part `part` among the first `bytes` of a file.
    fn bytes_in(&self, bytes: u64, part: u8) -> u64 {
        let cell = u64::from(self.cell_bytes);
        let row = cell * u64::from(self.data);
        bytes / row * cell + (bytes % row).saturating_sub(u64::from(part) * cell).min(cell)
    }

    /// The bytes of part `part` that a call from `begin` to `end` of a file touches; a parity part has all rows that
    /// any data part has. Empty where it touches none.
    fn range_in(&self, begin: u64, end: u64, part: u8) -> Range<u64> {
        let of = |part: u8| self.bytes_in(begin, part)..self.bytes_in(end, part);
        if part < self.data {
            return of(part);
        }
        let touched = (0..self.data).map(of).filter(|range| !range.is_empty());
        touched.reduce(|one, other| one.start.min(other.start)..one.end.max(other.end)).unwrap_or(0..0)
    }
}

/// How files are replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicationSettings {
    /// The model.
    pub model: ReplicationModel,
    /// Copies, the first included.
    pub replicas: u8,
    /// Bytes of a block of HDFS, or of a chunk.
    pub block_bytes: u64,
    /// The machine that is simulated.
    pub machine: u8,
    /// Microseconds by which the stand-ins for another machine's replicas are later, where one machine was traced.
    pub shift_us: u64,
    /// Microseconds within which a file is removed that was "soon compacted".
    pub soon_us: u64,
    /// Rules that are followed.
    pub rules: RuleSet,
}

impl Default for ReplicationSettings {
    fn default() -> ReplicationSettings {
        ReplicationSettings {
            model: ReplicationModel::Hdfs,
            replicas: 3,
            block_bytes: 256 << 20,
            machine: 0,
            shift_us: 7 * 60 * 1_000_000,
            soon_us: 3600 * 1_000_000,
            rules: RuleSet::ALL,
        }
    }
}

impl ReplicationSettings {
    /// The erasure code, if files have one instead of copies.
    fn code(&self) -> Option<CodeParts> {
        match self.model {
            ReplicationModel::ErasureCoded(code) if self.rules.has(SimRule::PartsOfCode) => Some(code),
            _ => None,
        }
    }
}

/// An access to pages of one frame of a local file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameAccess {
    /// The local file.
    pub file: u32,
    /// The frame in it.
    pub frame: u32,
    /// Microseconds after the access before.
    pub delta_us: u32,
    /// Bytes asked for.
    pub bytes: u32,
    /// A bit for each page; 0 for what moves no bytes.
    pub pages: u16,
    /// A [`IoPurpose`].
    pub purpose: u8,
    /// What it does, see [`FrameAccess::is_write`] and others.
    pub flags: u8,
}

/// A local file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalFile {
    /// Bytes that it has in the end.
    pub bytes: u64,
    /// Bytes that the whole file has in the end, of which this is a block.
    pub bytes_of_all: u64,
    /// What it was written for.
    pub written_for: Option<IoPurpose>,
    /// True if the writer would say that it is read soon.
    pub hinted: bool,
}

/// The load of one machine, ready to be simulated.
#[derive(Clone, Debug, Default)]
pub struct LocalLoad {
    pub(crate) accesses: Vec<FrameAccess>,
    pub(crate) files: Vec<LocalFile>,
    pub(crate) span_us: u64,
    pub(crate) stored_bytes: f64,
}

const WRITE: u8 = 1;
const REMOVE: u8 = 2;
const REMOTE: u8 = 4;
const COPY: u8 = 8;
const PART: u8 = 16;
const FIRST_PART: u8 = 32;

impl FrameAccess {
    /// True if pages are written.
    #[inline]
    pub fn is_write(&self) -> bool {
        self.flags & WRITE != 0
    }

    /// True if the file is removed.
    #[inline]
    pub fn is_removal(&self) -> bool {
        self.flags & REMOVE != 0
    }

    /// True if its bytes cross the network.
    #[inline]
    pub fn is_remote(&self) -> bool {
        self.flags & REMOTE != 0
    }

    /// True if it is of a copy that is not the first one.
    #[inline]
    pub fn is_copy(&self) -> bool {
        self.flags & COPY != 0
    }

    /// True if its call waits for other accesses as well, those that follow up to the next first one.
    #[inline]
    pub fn is_part(&self) -> bool {
        self.flags & PART != 0
    }

    /// True if it is the first of them.
    #[inline]
    pub fn is_first_part(&self) -> bool {
        self.flags & FIRST_PART != 0
    }

    /// The key of its frame in caches.
    #[inline]
    pub fn key(&self) -> u64 {
        u64::from(self.file) << 36 | u64::from(self.frame) << 4
    }
}

impl LocalLoad {
    /// What `load` means at the machine of `settings`.
    ///
    /// # Cost
    /// One pass; 20 bytes for each 64 KiB or part that a call touches.
    pub fn lower(load: &RecordedLoad, settings: &ReplicationSettings) -> LocalLoad {
        Lowering::new(load, settings).run()
    }

    /// Bytes that [`LocalLoad::lower`] will take, at most.
    pub fn memory_bytes(load: &RecordedLoad, settings: &ReplicationSettings) -> u64 {
        let frames = |call: &DataCall| u64::from(call.bytes) / FRAME_BYTES + 2;
        let copies = settings.code().map_or(settings.replicas, |code| code.data + code.parity);
        let accesses: u64 = load.calls().iter().map(frames).sum::<u64>() * u64::from(copies);
        // A vector that doubles.
        accesses * 2 * size_of::<FrameAccess>() as u64 + load.files().len() as u64 * 200
    }

    /// The accesses to one in `one_in` frames, chosen by a hash: a miniature of the load, for caches as much smaller.
    /// Disks cannot be simulated under it: runs over several frames are torn.
    ///
    /// # Source
    /// Waldspurger et al., Cache Modeling and Optimization using Miniature Simulations (ATC'17).
    #[must_use]
    pub fn sampled(&self, one_in: u32) -> LocalLoad {
        let mut local = LocalLoad { files: self.files.clone(), accesses: Vec::new(), ..*self };
        let mut delta = 0u64;
        for access in &self.accesses {
            delta += u64::from(access.delta_us);
            let is_chosen = mix(SAMPLE_SEED, access.key()).is_multiple_of(u64::from(one_in.max(1)));
            if is_chosen || access.is_removal() {
                local.accesses.extend(idle(&mut delta));
                local.accesses.push(FrameAccess { delta_us: delta as u32, ..*access });
                delta = 0;
            }
        }
        local
    }

    /// Accesses by time.
    pub fn accesses(&self) -> &[FrameAccess] {
        &self.accesses
    }

    /// Local files by number.
    pub fn files(&self) -> &[LocalFile] {
        &self.files
    }

    /// Microseconds that the trace lasted.
    pub fn span_us(&self) -> u64 {
        self.span_us
    }

    /// Bytes of one copy of all files, on average over the trace.
    pub fn stored_bytes(&self) -> f64 {
        self.stored_bytes
    }

    /// Frames that the files have: the most that a cache can have entries for.
    pub fn frames_max(&self) -> u64 {
        let of_files: u64 = self.files.iter().map(|file| file.bytes.div_ceil(FRAME_BYTES)).sum();
        of_files.min(self.accesses.len() as u64)
    }
}

struct Lowering<'a> {
    load: &'a RecordedLoad,
    settings: &'a ReplicationSettings,
    numbers: FastMap<(u32, u64), u32>,
    local: LocalLoad,
    now_us: u64,
}

impl<'a> Lowering<'a> {
    fn new(load: &'a RecordedLoad, settings: &'a ReplicationSettings) -> Lowering<'a> {
        let local = LocalLoad { span_us: load.span_us(), stored_bytes: load.stored_bytes(), ..LocalLoad::default() };
        Lowering { load, settings, numbers: FastMap::default(), local, now_us: 0 }
    }

    fn run(mut self) -> LocalLoad {
        let calls = self.load.calls();
        if self.load.machines() > 1 {
            for call in calls {
                for role in 0..self.replicas() {
                    self.call(call, role, call.at_us);
                }
            }
            return self.local;
        }
        // One pass for each replica, merged by their times.
        let shift_us = if self.has(SimRule::ReplicasShifted) {
            self.settings.shift_us.min(self.load.span_us() / SHIFT_PART)
        } else {
            0
        };
        let mut next = vec![0usize; self.replicas().into()];
        let time = |role: usize, at: usize| calls.get(at).map(|call| call.at_us + role as u64 * shift_us);
        while let Some((at_us, role)) =
            next.iter().enumerate().filter_map(|(role, at)| Some((time(role, *at)?, role))).min()
        {
            self.call(&calls[next[role]], role as u8, at_us);
            next[role] += 1;
        }
        self.local
    }

    fn has(&self, rule: SimRule) -> bool {
        self.settings.rules.has(rule)
    }

    fn replicas(&self) -> u8 {
        if let Some(code) = self.settings.code() {
            return code.data + code.parity;
        }
        if self.has(SimRule::Replicas) { self.settings.replicas } else { 1 }
    }

    /// A call, as the replica `role` of each of its blocks takes it.
    fn call(&mut self, call: &DataCall, role: u8, at_us: u64) {
        if let Some(code) = self.settings.code() {
            return self.call_of_parts(call, code, role, at_us);
        }
        let facts = &self.load.files()[call.file as usize];
        let block_bytes = if self.has(SimRule::Blocks) { self.settings.block_bytes } else { u64::MAX >> 1 };
        let (begin, end) = match call.movement {
            Movement::Remove => (0, facts.bytes.max(1)),
            _ => (call.offset, call.offset.saturating_add(u64::from(call.bytes).max(1))),
        };
        for block in begin / block_bytes..=(end - 1) / block_bytes {
            if !self.is_here(call, role, block) || !self.serves(call, role, block) {
                continue;
            }
            let base = block * block_bytes;
            let bytes_of_block = facts.bytes.saturating_sub(base).min(block_bytes);
            let file = self.number(call, role, block, bytes_of_block);
            if call.movement == Movement::Remove {
                self.push(at_us, FrameAccess { file, flags: REMOVE, ..FrameAccess::default() });
                continue;
            }
            if call.bytes > 0 {
                let last = end.min(base.saturating_add(block_bytes));
                self.frames(call, role, at_us, file, begin.max(base) - base, last - base);
            }
        }
    }

    /// A call, as part `role` of its file's code takes it; the parts of a read belong together, and are read when the
    /// first one is.
    fn call_of_parts(&mut self, call: &DataCall, code: CodeParts, role: u8, at_us: u64) {
        let size = self.load.files()[call.file as usize].bytes;
        let bytes_of = |part: u8| code.range_in(0, size, part).end;
        match call.movement {
            Movement::Remove if self.is_here(call, role, 0) => {
                let file = self.number(call, role, 0, bytes_of(role));
                self.push(at_us, FrameAccess { file, flags: REMOVE, ..FrameAccess::default() });
            }
            Movement::Remove => {}
            Movement::Read if role > 0 => {}
            Movement::Read | Movement::Write => {
                let parts = if call.movement == Movement::Read { 0..code.data } else { role..role + 1 };
                let first = self.local.accesses.len();
                for part in parts {
                    let range = code.range_in(call.offset, call.offset.saturating_add(call.bytes.into()), part);
                    if !range.is_empty() && self.is_here(call, part, 0) {
                        let file = self.number(call, part, 0, bytes_of(part));
                        self.frames(call, part, at_us, file, range.start, range.end);
                    }
                }
                if call.movement == Movement::Read {
                    let of_call = self.local.accesses.iter_mut().skip(first).filter(|access| access.pages != 0);
                    for (number, access) in of_call.enumerate() {
                        access.flags |= if number == 0 { PART | FIRST_PART } else { PART };
                    }
                }
            }
        }
    }

    /// The bytes from `begin` to `end` of a local file, frame by frame.
    fn frames(&mut self, call: &DataCall, role: u8, at_us: u64, file: u32, begin: u64, end: u64) {
        let is_write = call.movement == Movement::Write;
        let mut flags = if is_write { WRITE } else { 0 };
        if role > 0 && self.settings.code().is_none() {
            flags |= COPY;
        }
        if self.is_remote(call, role) {
            flags |= REMOTE;
        }
        for frame in begin / FRAME_BYTES..=(end - 1) / FRAME_BYTES {
            let base = frame * FRAME_BYTES;
            let (from, to) = (begin.max(base) - base, end.min(base + FRAME_BYTES) - base);
            let (first, last) = (from / PAGE_BYTES, (to - 1) / PAGE_BYTES);
            let pages = (u32::MAX >> (31 - (last - first)) << first) as u16;
            self.push(
                at_us,
                FrameAccess {
                    file,
                    frame: u32::try_from(frame).unwrap_or(u32::MAX),
                    bytes: (to - from) as u32,
                    pages,
                    purpose: call.purpose as u8,
                    flags,
                    delta_us: 0,
                },
            );
        }
    }

    /// True if the replica `role` of the block lies at this machine.
    fn is_here(&self, call: &DataCall, role: u8, block: u64) -> bool {
        let machines = self.load.machines();
        if machines == 1 {
            return true;
        }
        let home = self.load.files()[call.file as usize].machine;
        if role == 0 {
            return home == self.settings.machine;
        }
        // The other machines in an order that a hash chooses, each at most once.
        let others = machines - 1;
        let start = mix(u64::from(call.file), block) % u64::from(others);
        let place = (start + u64::from(role) - 1) % u64::from(others);
        role <= others && (u64::from(home) + 1 + place) % u64::from(machines) == u64::from(self.settings.machine)
    }

    /// True if the replica `role` takes part in the call.
    fn serves(&self, call: &DataCall, role: u8, block: u64) -> bool {
        if call.movement != Movement::Read {
            return true;
        }
        match self.settings.model {
            ReplicationModel::Chains => {
                mix(u64::from(call.file) ^ call.offset << 20, block ^ call.at_us) % u64::from(self.replicas())
                    == u64::from(role)
            }
            ReplicationModel::LocalCompaction
                if call.purpose == IoPurpose::Compaction && self.has(SimRule::CompactionReadsEverywhere) =>
            {
                true
            }
            _ => role == 0 || !self.has(SimRule::ReadsAtFirstReplica),
        }
    }

    fn is_remote(&self, call: &DataCall, role: u8) -> bool {
        if !self.has(SimRule::NetworkOfReplicas) {
            return false;
        }
        let is_compaction = call.purpose == IoPurpose::Compaction;
        match self.settings.model {
            ReplicationModel::Remote => true,
            ReplicationModel::LocalCompaction if is_compaction && self.has(SimRule::CompactionSendsNothing) => false,
            _ => role > 0,
        }
    }

    /// The number of a local file, the next one at first sight.
    fn number(&mut self, call: &DataCall, role: u8, block: u64, bytes: u64) -> u32 {
        let facts = &self.load.files()[call.file as usize];
        let next = self.local.files.len() as u32;
        let number = *self.numbers.entry((call.file, block << 5 | u64::from(role))).or_insert(next);
        if number == next {
            let is_soon = facts.removed_us.saturating_sub(facts.born_us) <= self.settings.soon_us;
            let is_soon = facts.written_for == Some(IoPurpose::Flush) || is_soon || !self.has(SimRule::HintsBySoon);
            let has_data = self.settings.code().map_or(1, |code| code.data);
            let is_first = role < has_data || !self.has(SimRule::HintsAtFirstReplica);
            self.local.files.push(LocalFile {
                bytes,
                bytes_of_all: facts.bytes,
                written_for: facts.written_for,
                hinted: is_first && is_soon && facts.written_for != Some(IoPurpose::Log),
            });
        }
        number
    }

    fn push(&mut self, at_us: u64, access: FrameAccess) {
        let mut delta = at_us.saturating_sub(self.now_us);
        self.now_us += delta;
        self.local.accesses.extend(idle(&mut delta));
        self.local.accesses.push(FrameAccess { delta_us: delta as u32, ..access });
    }
}

/// Accesses that move nothing, for a time longer than one access can have; `delta` is what is left.
fn idle(delta: &mut u64) -> impl Iterator<Item = FrameAccess> {
    let whole = *delta / u64::from(u32::MAX);
    *delta %= u64::from(u32::MAX);
    (0..whole).map(|_| FrameAccess { delta_us: u32::MAX, ..FrameAccess::default() })
}

fn mix(left: u64, right: u64) -> u64 {
    let mixed = (left.rotate_left(32) ^ right).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

/// The same frames in each run.
const SAMPLE_SEED: u64 = 0x5a11;
/// Stand-ins of remote replicas are at most this part of the trace later, so that a short trace does not lose them.
const SHIFT_PART: u64 = 100;
