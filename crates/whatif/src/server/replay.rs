//! The requests that a server recorded at its device, decided about again.

use frieze_tier::Heat;
use frieze_trace::{CallKind, DeviceFile, EventFlags, Gateway};
use frieze_tracefile::TraceRow;

use super::placement::ReadSpan;
use super::{ServedFile, ServerHits, ServerMemory, ServerModel};
use crate::error::WhatIfError;
use crate::trace::{EVENTS_SORTED_MAX, TraceLoad};

/// A server's own decisions, and those of the simulation about the same requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceReplay {
    /// The memory that the server had.
    pub memory: ServerMemory,
    /// What its reads found.
    pub counted: ServerHits,
    /// What they find by the simulation.
    pub simulated: ServerHits,
    /// Requests for bytes.
    pub fetches: u64,
}

impl DeviceReplay {
    /// Replays the device events of a trace with the memory that the server had; `None` if the trace has none.
    ///
    /// # Errors
    /// `Trace` with file, column and row.
    pub fn of(trace: &TraceLoad) -> Result<Option<DeviceReplay>, WhatIfError> {
        let mut replaying = Replaying::default();
        if trace.manifest().events <= EVENTS_SORTED_MAX {
            trace.reader.rows()?.iter().for_each(|row| replaying.row(row));
        } else {
            trace.reader.for_each_group(|rows| -> Result<(), WhatIfError> {
                rows.iter().for_each(|row| replaying.row(row));
                Ok(())
            })?;
        }
        let Replaying { server, counted, fetches, .. } = replaying;
        Ok(server.filter(|_| fetches > 0).map(|(memory, _, model)| DeviceReplay {
            memory,
            counted,
            simulated: model.hits(),
            fetches,
        }))
    }
}

#[derive(Default)]
struct Replaying {
    /// Its memory, the bytes of a segment, and the decisions.
    server: Option<(ServerMemory, u64, ServerModel)>,
    counted: ServerHits,
    /// End of the log, and its durable end.
    end: u64,
    durable: u64,
    fetches: u64,
}

impl Replaying {
    fn row(&mut self, row: &TraceRow) {
        if row.gateway != Gateway::Device || row.result != 0 {
            return;
        }
        let number = |of: Option<u64>| of.unwrap_or(0);
        let (offset, asked, got) = (number(row.offset), number(row.asked), number(row.got));
        let is_shares = row.call == CallKind::DeviceShares;
        if !is_shares && (asked > REQUEST_BYTES_MAX || got > REQUEST_BYTES_MAX) {
            // No device has such a request.
            return;
        }
        if is_shares && self.server.is_none() {
            let memory = ServerMemory { young_bytes: asked, old_bytes: got, small_share: None, ahead: None };
            let segment_bytes = number(row.inode).max(1);
            self.server = Some((memory, segment_bytes, ServerModel::new(&memory, offset)));
        }
        // What lies before the first sight of the limits cannot be decided about.
        let Some((_, segment_bytes, model)) = &mut self.server else { return };
        let file = DeviceFile::from_number(number(row.inode));
        let base = match file {
            DeviceFile::Segment(segment) => Some(segment.saturating_mul(*segment_bytes)),
            DeviceFile::IndexRun { .. } | DeviceFile::Pack(_) => None,
        };
        let position = base.unwrap_or(0).saturating_add(offset);
        match row.call {
            CallKind::DeviceAppend => self.end = self.end.max(position.saturating_add(got)),
            CallKind::DeviceFlush => {
                self.durable = self.durable.max(position);
                model.grow(self.end.max(position), self.durable);
            }
            CallKind::DeviceRemove => model.old.remove_file(ServedFile::Device(file)),
            CallKind::DeviceFetch => {
                self.fetches += 1;
                let is_young = row.flags.has(EventFlags::FROM_CACHE);
                let is_scan = row.flags.has(EventFlags::SEQUENTIAL);
                let heat = if is_scan { Heat::Scan } else { Heat::Wanted };
                let found = if is_scan { &mut self.counted.scanned } else { &mut self.counted.wanted };
                match is_young {
                    true => self.counted.young_bytes += asked,
                    false => {
                        found.hit_bytes += asked.saturating_sub(got);
                        found.missed_bytes += got;
                    }
                }
                let end = offset.saturating_add(asked);
                let span =
                    ReadSpan { file: ServedFile::Device(file), base, data_position: position, start: offset, end };
                let is_young = base.is_some() && position >= model.window.edge();
                match is_young {
                    true => model.young_bytes += span.page_bytes(),
                    false => _ = model.request(&span, heat),
                }
            }
            _ => {}
        }
    }
}

/// Largest request of a device, bytes: a segment, many times over.
const REQUEST_BYTES_MAX: u64 = 1 << 32;
