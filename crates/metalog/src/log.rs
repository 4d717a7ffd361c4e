//! The log: its state, its one `step`, and what can be asked of it.

use std::collections::VecDeque;

use frieze_base::{LogIndex, Reason, SegmentId, crc32c};
use frieze_hlc::Hlc;

use crate::error::Error;
use crate::format::{self, EntryHeader, JournalHeader, SEGMENT_HEADER_BYTES};
use crate::message::{DataEnd, JournalSegment, MetalogEffect, MetalogInput};
use crate::settings::MetalogSettings;

/// The metalog with its one member, which is leader and majority at once.
#[derive(Debug)]
pub struct Metalog {
    pub(crate) settings: MetalogSettings,
    pub(crate) term: u64,

    /// Last entry proposed.
    pub(crate) last: LogIndex,
    /// Last entry whole in its file: with one member, committed.
    pub(crate) committed: LogIndex,
    /// Last entry on stable storage.
    pub(crate) durable: LogIndex,
    /// The entries after `committed`, in order.
    appending: VecDeque<Appending>,
    /// Why the device takes no more entries.
    failed: Option<Reason>,

    /// Newest stamp of a transaction; stays when its entry is withdrawn.
    pub(crate) newest: Hlc,
    /// Nothing will be stamped at or below it.
    promised: Hlc,
    /// Instants that wait for entries to commit.
    closing: Vec<Hlc>,
    /// End of the data log as the last entry named it.
    data_end: DataEnd,

    /// Where the next entry goes; `None` before the first.
    pub(crate) tail: Option<LogTail>,
    /// The segments that are needed, oldest first; the last is that of `tail`.
    pub(crate) held: VecDeque<NeededSegment>,
    /// Files that may be used again.
    pub(crate) spare: VecDeque<Spare>,
    /// Id of the next segment: above every id that a file ever had here.
    pub(crate) next_segment: SegmentId,
}

/// An entry on its way into its file.
#[derive(Clone, Copy, Debug)]
struct Appending {
    index: LogIndex,
    stamp: Hlc,
    /// The tail to go back to if it fails.
    before: Option<LogTail>,
    /// The segment that was begun for it.
    rolled: Option<Rolled>,
}

#[derive(Clone, Copy, Debug)]
struct Rolled {
    segment: SegmentId,
    recycled: Option<SegmentId>,
}

/// The end of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogTail {
    pub(crate) segment: SegmentId,
    /// Length of its file.
    pub(crate) bytes: u64,
    /// Where the next entry goes.
    pub(crate) offset: u64,
    /// Checksum of the header before it.
    pub(crate) link: u32,
}

/// A segment whose entries are needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeededSegment {
    pub(crate) segment: SegmentId,
    pub(crate) bytes: u64,
    /// Its first entry.
    pub(crate) first: LogIndex,
}

/// A file that may be used again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    pub(crate) segment: SegmentId,
    pub(crate) bytes: u64,
}

impl Metalog {
    /// The log of an empty directory.
    pub fn new(settings: MetalogSettings) -> Metalog {
        Metalog {
            settings,
            term: 1,
            last: LogIndex(0),
            committed: LogIndex(0),
            durable: LogIndex(0),
            appending: VecDeque::new(),
            failed: None,
            newest: Hlc::ZERO,
            promised: Hlc::ZERO,
            closing: Vec::new(),
            data_end: DataEnd::default(),
            tail: None,
            held: VecDeque::new(),
            spare: VecDeque::new(),
            next_segment: SegmentId(1),
        }
    }

    /// Advances the log by one input; `out` receives what the driver has to do, in order. `at` is the node's clock: for
    /// [`MetalogInput::Propose`] a fresh tick, the first of as many as the batch has transactions.
    ///
    /// # Panics
    /// If the driver breaks its part: a tick that is not fresh, entries completed out of order, a data end that goes
    /// back.
    pub fn step(&mut self, at: Hlc, input: MetalogInput, out: &mut Vec<MetalogEffect>) {
        match input {
            MetalogInput::Propose { body, count, data_end } => match self.check_room(body.len()) {
                Ok(()) => out.push(self.append(at, &body, count, data_end)),
                Err(error) => out.push(MetalogEffect::Refused(error.into())),
            },
            // Whether it will be there after the restart is not known, so no reader may see it before.
            MetalogInput::Appended { .. } if self.failed.is_some() => {}
            MetalogInput::Appended { index } => {
                let entry = self.appending.pop_front().expect("only an entry that was proposed is appended");
                assert_eq!(entry.index, index, "entries complete in order");
                self.committed = index;
                out.push(MetalogEffect::Committed { index });
                self.answer_closing(out);
            }
            MetalogInput::AppendFailed { index, reason } => {
                self.withdraw(index, &Error::AppendFailed { reason }, out);
                self.answer_closing(out);
            }
            MetalogInput::Persisted { index } => {
                let durable = index.min(self.committed);
                if durable > self.durable && self.failed.is_none() {
                    self.durable = durable;
                    out.push(MetalogEffect::Durable { index: durable });
                }
            }
            MetalogInput::DeviceFailed { reason } => {
                let reason = *self.failed.get_or_insert(reason);
                self.closing.clear();
                out.push(MetalogEffect::Failed(Error::DeviceFailed { reason }.into()));
            }
            MetalogInput::Truncate { through } => self.truncate(through, out),
            MetalogInput::Close { at: instant } => {
                if let Err(error) = self.on_close(at, instant) {
                    out.push(MetalogEffect::Refused(error.into()));
                }
                self.answer_closing(out);
            }
        }
        self.assert_whole();
    }

    /// Term of the entries proposed now.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Last entry proposed.
    pub fn last(&self) -> LogIndex {
        self.last
    }

    /// Last entry committed: what a flush that begins now can make durable.
    pub fn committed(&self) -> LogIndex {
        self.committed
    }

    /// Last entry on stable storage.
    pub fn durable(&self) -> LogIndex {
        self.durable
    }

    /// Newest stamp of a transaction.
    pub fn newest(&self) -> Hlc {
        self.newest
    }

    /// The closed timestamp: no entry will be stamped at or below it, and those that are, are committed.
    pub fn closed(&self) -> Hlc {
        self.first_appending().map_or(self.promised, |stamp| self.promised.min(stamp.previous()))
    }

    /// The segments in use, oldest first: the files that a flush has to sync are among them.
    pub fn segments(&self) -> impl Iterator<Item = SegmentId> {
        self.held.iter().map(|held| held.segment)
    }

    fn check_room(&self, body_len: usize) -> Result<(), Error> {
        if let Some(reason) = self.failed {
            return Err(Error::DeviceFailed { reason });
        }
        let max = u64::from(self.settings.body_bytes_max);
        if body_len as u64 > max {
            return Err(Error::BatchTooLarge { len: body_len as u64, max });
        }
        let max = self.settings.in_flight_max;
        if self.appending.len() >= max {
            return Err(Error::Overloaded { what: "metadata batches in flight", max: max as u64 });
        }
        Ok(())
    }

    /// Gives the batch the next index and a place: at the tail, or at the start of a new segment if it does not fit.
    fn append(&mut self, stamp: Hlc, body: &[u8], count: u32, data_end: DataEnd) -> MetalogEffect {
        assert!(count > 0, "a batch holds at least one transaction");
        assert!(stamp > self.newest, "stamp {stamp} is not above {}, the newest of the log", self.newest);
        assert!(stamp > self.promised, "stamp {stamp} is promised not to come: {} is closed", self.promised);
        assert!(data_end >= self.data_end, "the data log went back from {:?} to {data_end:?}", self.data_end);

        let index = LogIndex(self.last.0 + 1);
        let before = self.tail;
        let size = format::entry_size(body.len());
        let fits = before.is_some_and(|tail| tail.offset + size as u64 <= tail.bytes);
        let roll = if fits { None } else { Some(self.roll(index, size)) };
        let tail = self.tail.as_mut().expect("there is a tail, or the roll has made one");
        let header = EntryHeader {
            body_len: body.len() as u32,
            index,
            term: self.term,
            stamp,
            durable: self.durable,
            data_end,
            count,
            link: tail.link,
            body_crc: crc32c(body),
        }
        .encode(tail.segment);
        let mut bytes = Vec::with_capacity(size);
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(body);
        bytes.resize(size, 0);

        let (segment, offset) = (tail.segment, tail.offset);
        tail.offset += size as u64;
        tail.link = format::link_of(&header);
        self.last = index;
        self.newest = format::last_stamp(stamp, count);
        self.data_end = data_end;
        let rolled = roll.as_ref().map(|new| Rolled { segment: new.segment, recycled: new.recycle });
        self.appending.push_back(Appending { index, stamp, before, rolled });
        MetalogEffect::Append { index, stamp, roll, segment, offset, bytes }
    }

    /// Begins a segment whose first entry is `first` and takes `size` bytes.
    fn roll(&mut self, first: LogIndex, size: usize) -> JournalSegment {
        let need = (SEGMENT_HEADER_BYTES + size) as u64;
        let fitting = self.spare.iter().position(|spare| spare.bytes >= need);
        let recycled = fitting.and_then(|place| self.spare.remove(place));
        let bytes = recycled.map_or(self.settings.segment_bytes.max(need), |spare| spare.bytes);
        let segment = self.next_segment;
        self.next_segment = SegmentId(segment.0 + 1);
        let header = JournalHeader {
            segment,
            first,
            term: self.term,
            durable: self.durable,
            stamp: self.newest,
            link: self.tail.map_or(0, |tail| tail.link),
            bytes,
        }
        .encode();
        let offset = SEGMENT_HEADER_BYTES as u64;
        self.tail = Some(LogTail { segment, bytes, offset, link: format::link_of(&header) });
        self.held.push_back(NeededSegment { segment, bytes, first });
        JournalSegment { segment, recycle: recycled.map(|spare| spare.segment), bytes, header: header.to_vec() }
    }

    /// Takes back entry `index` and all after it. The next one takes its place: links keep what these may have left in
    /// the file from following it. Stamps stay burnt. So do the ids of segments begun for them, and then the next entry
    /// begins another: the newest segment with a first index is the one that counts, should the removal be lost.
    fn withdraw(&mut self, index: LogIndex, error: &Error, out: &mut Vec<MetalogEffect>) {
        assert!(index > self.committed, "entry {index} was reported whole and then failed");
        let Some(first) = self.appending.iter().position(|entry| entry.index == index) else {
            // Withdrawn already, together with one before it.
            return;
        };
        let Appending { before, rolled, .. } = self.appending[first];
        self.tail = before;
        self.last = LogIndex(index.0 - 1);
        if let (Some(tail), None) = (before, rolled) {
            let len = format::ENTRY_HEADER_BYTES as u64;
            out.push(MetalogEffect::Erase { segment: tail.segment, offset: tail.offset, len });
        }
        for entry in self.appending.drain(first..) {
            if let Some(Rolled { segment, recycled }) = entry.rolled {
                self.tail = self.tail.map(|tail| LogTail { bytes: tail.offset, ..tail });
                self.held.retain(|held| held.segment != segment);
                // Whichever of the two names the file has: neither is part of the log.
                out.extend(recycled.into_iter().chain([segment]).map(|segment| MetalogEffect::Remove { segment }));
            }
            out.push(MetalogEffect::Withdrawn { index: entry.index, fault: error.clone().into() });
        }
    }

    /// Lets go of the segments that hold nothing after `through`. The one that follows must be durable: until then a
    /// loss of power may take it, and the log would end before what the store holds.
    fn truncate(&mut self, through: LogIndex, out: &mut Vec<MetalogEffect>) {
        assert!(through <= self.durable, "entry {through} cannot be let go: the log is durable up to {}", self.durable);
        while self.held.get(1).is_some_and(|next| next.first.0 <= through.0 + 1 && next.first <= self.durable) {
            let held = self.held.pop_front().expect("there are two");
            self.spare.push_back(Spare { segment: held.segment, bytes: held.bytes });
        }
        while self.spare.len() > self.settings.spare_max
            && let Some(spare) = self.spare.pop_front()
        {
            out.push(MetalogEffect::Remove { segment: spare.segment });
        }
    }

    fn on_close(&mut self, clock: Hlc, instant: Hlc) -> Result<(), Error> {
        if instant > clock {
            return Err(Error::CloseFuture { at: instant, clock });
        }
        if let Some(reason) = self.failed
            && self.first_appending().is_some_and(|stamp| stamp <= instant)
        {
            return Err(Error::DeviceFailed { reason });
        }
        let max = self.settings.closing_max;
        if self.closing.len() >= max {
            return Err(Error::Overloaded { what: "instants waiting to close", max: max as u64 });
        }
        self.promised = self.promised.max(instant);
        self.closing.push(instant);
        Ok(())
    }

    fn answer_closing(&mut self, out: &mut Vec<MetalogEffect>) {
        let closed = self.closed();
        out.extend(self.closing.extract_if(.., |at| *at <= closed).map(|at| MetalogEffect::Closed { at }));
    }

    fn first_appending(&self) -> Option<Hlc> {
        self.appending.front().map(|entry| entry.stamp)
    }

    /// What holds between any two inputs. Each line costs O(1), so it stays on in release.
    fn assert_whole(&self) {
        assert!(
            self.durable <= self.committed && self.committed <= self.last,
            "durable, committed, last: in this order"
        );
        assert_eq!(self.appending.len() as u64, self.last.0 - self.committed.0, "every entry under way is held");
        assert_eq!(self.held.back().map(|held| held.segment), self.tail.map(|tail| tail.segment), "the tail is held");
        assert!(self.tail.is_none_or(|tail| tail.offset <= tail.bytes), "an entry lies within its segment");
        assert!(self.held.back().is_none_or(|held| held.segment < self.next_segment), "ids of segments only rise");
    }
}
