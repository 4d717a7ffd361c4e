//! What the device does, as events beside the calls of users.
//!
//! Guarantees: without a recorder each of these costs one branch, and no clock is read; without a sampled request on
//! its thread a span costs one load.
//! Leaves to others: the meaning of an event's fields ([`DeviceFile`]), and where the ring is (`trace`).

use std::sync::OnceLock;

use frieze_multilog::LogPosition;
use frieze_tier::Heat;
use frieze_trace::{CallKind, DeviceFile, Event, EventFlags, EventStart, Gateway, OpenSpan, Recorder, SpanKind, child};

use super::FileKey;

/// Records events of one device, once it has a recorder.
#[derive(Default)]
pub(super) struct DeviceTrace(OnceLock<Recorder>);

/// A request for bytes of a file, and what of it memory lacked.
pub(super) struct FetchEvent {
    pub(super) key: FileKey,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) missed_bytes: u64,
    pub(super) flags: EventFlags,
}

impl DeviceTrace {
    /// Records from now on. Later calls change nothing.
    pub(super) fn begin(&self, recorder: Recorder) {
        let _ = self.0.set(recorder);
    }

    /// Reads the clock if events are recorded.
    pub(super) fn start(&self) -> Option<EventStart> {
        self.0.get().map(Recorder::start)
    }

    /// True if events are recorded.
    pub(super) fn is_on(&self) -> bool {
        self.0.get().is_some()
    }

    /// Bytes of a group were written at the end of the log.
    pub(super) fn append(&self, began: Option<EventStart>, key: FileKey, offset: u64, bytes: u64) {
        self.write(began, CallKind::DeviceAppend, key, offset, (bytes, bytes), EventFlags::default());
    }

    /// The span of a write of so many bytes at the end of the log, if its request is sampled.
    pub(super) fn append_span(&self, bytes: usize) -> Option<OpenSpan> {
        Some(child(SpanKind::Internal, "device append")?.with_number("frieze.bytes", bytes as u64))
    }

    /// The span of a flush that the thread of a sampled request runs.
    pub(super) fn flush_span(&self) -> Option<OpenSpan> {
        child(SpanKind::Internal, "device flush")
    }

    /// The log became durable up to `end`.
    pub(super) fn flush(&self, began: Option<EventStart>, end: LogPosition, bytes: u64) {
        let key = FileKey::Segment(end.segment);
        self.write(began, CallKind::DeviceFlush, key, end.offset, (bytes, bytes), EventFlags::SYNCHRONOUS);
    }

    /// Bytes were requested.
    pub(super) fn fetch(&self, began: Option<EventStart>, fetch: &FetchEvent) {
        let (start, end) = page_bounds(fetch.start, fetch.end);
        let moved = (end - start, fetch.missed_bytes);
        self.write(began, CallKind::DeviceFetch, fetch.key, start, moved, fetch.flags);
    }

    /// Pages were dropped from memory.
    pub(super) fn dropped(&self, began: Option<EventStart>, key: FileKey, offset: u64, bytes: u64) {
        self.write(began, CallKind::DeviceDrop, key, offset, (bytes, bytes), EventFlags::default());
    }

    /// A file was removed, and what memory has of it with it.
    pub(super) fn removed(&self, key: FileKey) {
        self.write(self.start(), CallKind::DeviceRemove, key, 0, (0, 0), EventFlags::default());
    }

    /// The limits that decisions follow, and the edge of the young window.
    pub(super) fn shares(&self, segment_bytes: u64, edge: u64, young_bytes: u64, old_bytes: u64) {
        let Some(recorder) = self.0.get() else { return };
        let event = Event {
            inode: segment_bytes,
            offset: edge,
            asked: young_bytes,
            got: old_bytes,
            ..Event::new(CallKind::DeviceShares, Gateway::Device)
        };
        recorder.record_since(recorder.start(), &event);
    }

    fn write(
        &self,
        began: Option<EventStart>,
        call: CallKind,
        key: FileKey,
        offset: u64,
        (asked, got): (u64, u64),
        flags: EventFlags,
    ) {
        // `began` is there if there was a recorder then.
        let (Some(began), Some(recorder)) = (began, self.0.get()) else { return };
        let inode = device_file(key).number();
        recorder.record_since(began, &Event { inode, offset, asked, got, flags, ..Event::new(call, Gateway::Device) });
    }
}

/// Flags of requests with this heat.
pub(super) fn flags_of(heat: Heat) -> EventFlags {
    match heat {
        Heat::Wanted => EventFlags::default(),
        Heat::Scan => EventFlags::SEQUENTIAL,
    }
}

fn device_file(key: FileKey) -> DeviceFile {
    match key {
        FileKey::Segment(segment) => match segment.pack_serial() {
            Some(serial) => DeviceFile::Pack(serial),
            None => DeviceFile::Segment(segment.0),
        },
        FileKey::IndexRun(run) => DeviceFile::IndexRun { first: run.first.0, last: run.last.0 },
    }
}

/// The first byte of the first page, and the first byte after the last page.
fn page_bounds(start: u64, end: u64) -> (u64, u64) {
    let page = frieze_disk::PAGE_BYTES;
    (start / page * page, end.next_multiple_of(page))
}
