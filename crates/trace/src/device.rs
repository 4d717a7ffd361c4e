//! Events of a server's device: what was appended, made durable, asked for, and dropped from memory.
//!
//! They lie below the calls of users and have a gateway of their own, [`Gateway::Device`](crate::Gateway::Device). What
//! the fields of an event mean in them:
//!
//! | call | inode | offset | asked | got |
//! |---|---|---|---|---|
//! | `device_append` | file | first byte | bytes | bytes written |
//! | `device_flush` | file of the durable end | durable end | bytes | bytes made durable |
//! | `device_fetch` | file | first byte, of a page | bytes of the pages asked for | bytes of those that memory lacked |
//! | `device_drop` | file | first byte | bytes | bytes of pages that left memory |
//! | `device_remove` | file | 0 | 0 | 0 |
//! | `device_shares` | bytes of a segment | edge of the young window | bytes for young records | for older ones |
//!
//! `file` is [`DeviceFile::number`]. The flag `sequential` marks a fetch of a sequential reader, or ahead of one; the
//! flag `from_cache` a fetch of young records, which are in memory because they were written. The edge of the window is
//! a position in the log: bytes before it, each segment counted as full. The duration of a fetch is that of the request
//! to the kernel, which reads on while the server goes on.

use crate::event::Event;
use crate::recorder::{Recorder, mono_ns};
use crate::scope::saturated;

/// A file of a server's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceFile {
    /// The segment of the log with this number.
    Segment(u64),
    /// The run of the index over these segments, the last included.
    IndexRun {
        /// Number of the first segment.
        first: u64,
        /// Number of the last segment.
        last: u64,
    },
    /// The pack with this serial number.
    Pack(u64),
}

impl DeviceFile {
    /// Its number in events: that of a segment; for a run bit 63, the first segment in 39 bits, and how many segments
    /// follow it in 23 bits, as many as fit; for a pack bits 63 and 62, and its serial number.
    pub fn number(self) -> u64 {
        match self {
            DeviceFile::Segment(segment) => segment & !RUN,
            DeviceFile::Pack(serial) => PACK | (serial & !PACK),
            DeviceFile::IndexRun { first, last } => {
                RUN | (first & FIRST_MAX) << LENGTH_BITS | last.saturating_sub(first).min(LENGTH_MAX)
            }
        }
    }

    /// The file with this number.
    pub fn from_number(number: u64) -> DeviceFile {
        match number & PACK {
            PACK => DeviceFile::Pack(number & !PACK),
            kind if kind & RUN == 0 => DeviceFile::Segment(number),
            _ => {
                let first = (number & !RUN) >> LENGTH_BITS;
                DeviceFile::IndexRun { first, last: first + (number & LENGTH_MAX) }
            }
        }
    }
}

/// When something began that an event is written about.
#[derive(Clone, Copy, Debug)]
pub struct EventStart(u64);

impl Recorder {
    /// Reads the clock, for [`Recorder::record_since`].
    pub fn start(&self) -> EventStart {
        EventStart(mono_ns())
    }

    /// Writes an event about what began then and ends now; start and duration of `event` are replaced.
    ///
    /// # Cost
    /// That of [`Recorder::record`] and a reading of the clock.
    pub fn record_since(&self, began: EventStart, event: &Event) {
        let start_ns = self.wall_of(began.0);
        let duration_ns = saturated(mono_ns().saturating_sub(began.0));
        self.record(&Event { start_ns, duration_ns, ..*event });
    }
}

const RUN: u64 = 1 << 63;
const PACK: u64 = RUN | 1 << 62;
const LENGTH_BITS: u32 = 23;
const LENGTH_MAX: u64 = (1 << LENGTH_BITS) - 1;
const FIRST_MAX: u64 = (1 << (62 - LENGTH_BITS)) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_device_is_known_by_its_number() {
        let run = |first, last| DeviceFile::IndexRun { first, last };
        let packs = [DeviceFile::Pack(1), DeviceFile::Pack(1 << 40)];
        let segments = [DeviceFile::Segment(0), DeviceFile::Segment(77)];
        for file in [run(0, 0), run(5, 20), run(1 << 38, 1 << 38)].into_iter().chain(packs).chain(segments) {
            assert_eq!(DeviceFile::from_number(file.number()), file);
        }
        assert_eq!(DeviceFile::from_number(run(3, u64::MAX).number()), run(3, 3 + LENGTH_MAX));
    }
}
