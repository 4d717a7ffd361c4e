//! What a trace says at a glance: calls, bytes, times.

use std::collections::BTreeMap;

use crate::event::Event;
use crate::kinds::{CallKind, Gateway};

/// Counts over events.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Start of the first event and end of the last, ns since 1970; `None` without events.
    pub span_ns: Option<(i64, i64)>,
    /// By gateway and call.
    pub calls: BTreeMap<(Gateway, CallKind), CallSummary>,
    /// Bytes moved, by inode, of files whose bytes were read or written.
    pub bytes_of: BTreeMap<u64, FileTraffic>,
}

/// Counts over the events of one call of one gateway.
#[derive(Clone, Debug, Default)]
pub struct CallSummary {
    /// Calls.
    pub count: u64,
    /// Calls that ended with a fault.
    pub failed: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Durations, ns, each with how many calls took as long; sorted by [`Summary::of`].
    durations_ns: Vec<(u32, u32)>,
}

/// Bytes of a file that were moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTraffic {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Keyed hash of a path by which it was called; 0: none.
    pub path: u64,
}

impl Summary {
    /// Counts events.
    pub fn of<'e>(events: impl IntoIterator<Item = &'e Event>) -> Summary {
        let mut summary = Summary::default();
        for event in events {
            summary.add(event);
        }
        summary.calls.values_mut().for_each(|call| call.durations_ns.sort_unstable());
        summary
    }

    fn add(&mut self, event: &Event) {
        let end = event.start_ns.saturating_add(event.duration_ns.into());
        let (first, last) = self.span_ns.unwrap_or((event.start_ns, end));
        self.span_ns = Some((first.min(event.start_ns), last.max(end)));
        let call = self.calls.entry((event.gateway, event.call)).or_default();
        call.count += u64::from(event.count.max(1));
        call.failed += u64::from(event.result != 0);
        // Of collapsed calls the mean is known.
        let count = u32::from(event.count.max(1));
        call.durations_ns.push((event.duration_ns / count, count));
        if event.call.moves_bytes() {
            call.bytes += event.got;
            let file = self.bytes_of.entry(event.inode).or_default();
            let moved = if event.call == CallKind::Read { &mut file.read } else { &mut file.written };
            *moved += event.got;
        }
        if event.path != 0 && event.inode != 0 {
            self.bytes_of.entry(event.inode).or_default().path = event.path;
        }
    }

    /// The files with most bytes moved, at most `count`.
    pub fn top_files(&self, count: usize) -> Vec<(u64, FileTraffic)> {
        let moved = |file: &FileTraffic| file.read.saturating_add(file.written);
        let mut files: Vec<(u64, FileTraffic)> =
            self.bytes_of.iter().filter(|(_, file)| moved(file) > 0).map(|(inode, file)| (*inode, *file)).collect();
        files.sort_by_key(|(inode, file)| (std::cmp::Reverse(moved(file)), *inode));
        files.truncate(count);
        files
    }
}

impl CallSummary {
    /// The duration that `percent` of the calls do not exceed, ns; 0 without calls.
    pub fn duration_ns(&self, percent: f64) -> u32 {
        let rank = ((percent / 100.0 * self.count as f64).ceil() as u64).max(1);
        let mut passed = 0;
        let at = self.durations_ns.iter().find(|(_, count)| {
            passed += u64::from(*count);
            passed >= rank
        });
        at.or(self.durations_ns.last()).map_or(0, |(duration, _)| *duration)
    }
}
