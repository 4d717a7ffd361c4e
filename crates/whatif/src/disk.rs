//! The queue of one disk: when each request begins and ends.
//!
//! Guarantees: the disk never rests while a request waits; the same requests give the same times.
//! Leaves to others: which disk a file lies on (`simulation`), and what is read at all (`tier`).
//!
//! # The algorithm
//! Files take turns, a slice of bytes each. Within a file requests are served upward from the last one, then from the
//! lowest again (C-SCAN). A request right behind the last one of its file costs its transfer alone; at another place of
//! the file a seek of the distance over the bandwidth comes first, at most a whole seek; in another file a whole seek.
//! The head keeps its place while the disk is idle, and a distance backward counts as one forward.
//!
//! # Source
//! Harter et al. (FAST'14), §3.2. Cases computed by hand: `testdata/disk.txt`.

use std::collections::VecDeque;

use frieze_base::FastMap;

use crate::rules::{RuleSet, SimRule};
use crate::workload::IoPurpose;

/// How long a disk takes. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskModel {
    /// A seek to another file.
    pub seek_ns: u64,
    /// Transfer, in bytes a second.
    pub bytes_per_s: f64,
    /// Bytes of a file that are served before another file has its turn.
    pub slice_bytes: u64,
}

/// A run of adjacent pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRequest {
    /// When it arrives, in nanoseconds since the trace began.
    pub at_ns: u64,
    /// First byte, in the local file.
    pub offset: u64,
    /// The local file.
    pub file: u32,
    /// Bytes.
    pub bytes: u32,
    /// Pages, for sums over pages.
    pub pages: u32,
    /// What for.
    pub purpose: IoPurpose,
    /// True if it counts in sums.
    pub counts: bool,
    /// True if a get waits for it.
    pub foreground: bool,
    /// The call that waits for this and for other requests; 0 if it waits for this one alone.
    pub call: u32,
    /// Nanoseconds that the network takes in addition.
    pub hop_ns: u32,
}

/// A request that was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedRequest {
    /// The request.
    pub request: DiskRequest,
    /// When the head set out for it.
    pub begin_ns: u64,
    /// Nanoseconds of the seek.
    pub seek_ns: u64,
    /// When its last byte was there.
    pub end_ns: u64,
}

/// What waits for one disk, and where its head stands.
#[derive(Clone, Debug)]
pub struct DiskQueue {
    model: DiskModel,
    ns_per_byte: f64,
    rules: RuleSet,
    free_at_ns: u64,
    busy_ns: u64,
    head_file: u32,
    head_offset: u64,
    slice_left: u64,
    /// Indices of the files that wait, the one whose turn it is first.
    turn: VecDeque<u32>,
    files: Vec<WaitingFile>,
    free_files: Vec<u32>,
    by_file: FastMap<u32, u32>,
    waiting: usize,
}

#[derive(Clone, Debug, Default)]
struct WaitingFile {
    file: u32,
    /// Where its sweep stands.
    offset: u64,
    /// By offset; those of one offset by arrival.
    requests: VecDeque<DiskRequest>,
}

impl DiskQueue {
    /// An idle disk whose head stands nowhere.
    pub fn new(model: DiskModel, rules: RuleSet) -> DiskQueue {
        DiskQueue {
            model,
            ns_per_byte: 1e9 / model.bytes_per_s,
            rules,
            free_at_ns: 0,
            busy_ns: 0,
            head_file: NO_FILE,
            head_offset: 0,
            slice_left: model.slice_bytes,
            turn: VecDeque::new(),
            files: Vec::new(),
            free_files: Vec::new(),
            by_file: FastMap::default(),
            waiting: 0,
        }
    }

    /// A request arrives; requests arrive in the order of their times. What is served before it goes to `served`.
    ///
    /// # Cost
    /// O(log n) for n requests of its file that wait, O(1) on an idle disk.
    #[inline]
    pub fn arrive(&mut self, request: DiskRequest, served: &mut impl FnMut(ServedRequest)) {
        if !self.rules.has(SimRule::Waiting) {
            self.free_at_ns = request.at_ns;
        }
        if self.waiting == 0 && self.free_at_ns <= request.at_ns {
            let goes_on = self.head_file == request.file && self.slice_left > 0;
            if !goes_on {
                self.slice_left = self.model.slice_bytes;
            }
            self.serve(request, served);
            return;
        }
        self.advance(request.at_ns, served);
        self.wait(request);
    }

    /// Serves what begins before `until_ns`.
    pub fn advance(&mut self, until_ns: u64, served: &mut impl FnMut(ServedRequest)) {
        while self.waiting > 0 && self.free_at_ns < until_ns {
            let request = self.choose();
            self.serve(request, served);
        }
    }

    /// Serves everything.
    pub fn drain(&mut self, served: &mut impl FnMut(ServedRequest)) {
        self.advance(u64::MAX, served);
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Nanoseconds during which it worked.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    fn wait(&mut self, request: DiskRequest) {
        self.waiting += 1;
        let index = match self.by_file.get(&request.file) {
            Some(index) => *index,
            None => {
                let index = self.free_files.pop().unwrap_or_else(|| {
                    self.files.push(WaitingFile::default());
                    self.files.len() as u32 - 1
                });
                let file = &mut self.files[index as usize];
                file.file = request.file;
                file.offset = if self.head_file == request.file { self.head_offset } else { 0 };
                self.by_file.insert(request.file, index);
                // The file under the head goes on until its slice ends.
                let goes_on = self.slice_left > 0 || !self.rules.has(SimRule::Slices);
                if self.head_file == request.file && goes_on {
                    self.turn.push_front(index);
                } else {
                    self.turn.push_back(index);
                }
                index
            }
        };
        let requests = &mut self.files[index as usize].requests;
        let at = match requests.back() {
            Some(last) if last.offset > request.offset && self.rules.has(SimRule::SweepUpward) => {
                requests.partition_point(|there| there.offset <= request.offset)
            }
            _ => requests.len(),
        };
        requests.insert(at, request);
    }

    fn choose(&mut self) -> DiskRequest {
        let first = self.turn[0];
        let is_current = self.files[first as usize].file == self.head_file;
        if is_current && self.slice_left == 0 && self.rules.has(SimRule::Slices) {
            self.turn.rotate_left(1);
        }
        if !self.rules.has(SimRule::RoundRobin) && (!is_current || self.slice_left == 0) {
            let highest = (0..self.turn.len()).max_by_key(|at| self.files[self.turn[*at] as usize].file);
            self.turn.swap(0, highest.expect("a file waits"));
        }
        let index = self.turn[0];
        let file = &mut self.files[index as usize];
        if file.file != self.head_file || self.slice_left == 0 {
            self.slice_left = self.model.slice_bytes;
        }
        let mut at = 0;
        if self.rules.has(SimRule::SweepUpward) {
            at = file.requests.partition_point(|request| request.offset < file.offset);
            if at == file.requests.len() {
                at = 0;
            }
        }
        let request = file.requests.remove(at).expect("a file in turn has requests");
        file.offset = request.offset + u64::from(request.bytes);
        self.waiting -= 1;
        if file.requests.is_empty() {
            self.by_file.remove(&file.file);
            self.turn.pop_front();
            self.free_files.push(index);
        }
        request
    }

    fn serve(&mut self, request: DiskRequest, served: &mut impl FnMut(ServedRequest)) {
        let seek_ns = self.seek_ns(&request);
        let transfer =
            if self.rules.has(SimRule::Transfer) { f64::from(request.bytes) * self.ns_per_byte } else { 0.0 };
        let begin_ns = self.free_at_ns.max(request.at_ns);
        let end_ns = begin_ns + seek_ns + transfer.round() as u64;
        self.busy_ns += end_ns - begin_ns;
        self.free_at_ns = end_ns;
        self.head_file = request.file;
        self.head_offset = request.offset + u64::from(request.bytes);
        self.slice_left = self.slice_left.saturating_sub(request.bytes.into());
        served(ServedRequest { request, begin_ns, seek_ns, end_ns });
    }

    fn seek_ns(&self, request: &DiskRequest) -> u64 {
        if self.head_file != request.file {
            return if self.rules.has(SimRule::SeekToOtherFile) { self.model.seek_ns } else { 0 };
        }
        let distance = self.head_offset.abs_diff(request.offset);
        if distance > 0 && !self.rules.has(SimRule::SeekByDistance) {
            return self.model.seek_ns;
        }
        ((distance as f64 * self.ns_per_byte).round() as u64).min(self.model.seek_ns)
    }
}

impl ServedRequest {
    /// Nanoseconds that its pages waited, summed: a page waits for the seek and for the pages before it.
    #[inline]
    pub fn queue_ns_of_pages(&self) -> u64 {
        let pages = u64::from(self.request.pages);
        let wait = self.begin_ns - self.request.at_ns;
        let moved = (pages - 1) * self.seek_ns + self.transfer_ns() * (pages - 1) / 2;
        pages.saturating_mul(wait).saturating_add(moved)
    }

    /// Nanoseconds that the disk spent on its pages, summed.
    #[inline]
    pub fn exec_ns(&self) -> u64 {
        self.end_ns - self.begin_ns
    }

    /// Nanoseconds from arrival to the end of each page, summed.
    #[inline]
    pub fn latency_ns_of_pages(&self) -> u64 {
        self.queue_ns_of_pages().saturating_add(self.exec_ns())
    }

    fn transfer_ns(&self) -> u64 {
        self.exec_ns() - self.seek_ns
    }
}

/// The head stands nowhere yet.
const NO_FILE: u32 = u32::MAX - 1;
