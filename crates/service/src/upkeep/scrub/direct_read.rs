//! Reads of the medium, at a limited rate.
//!
//! Guarantees: reads bypass the page cache, keep to a rate, and yield to requests.
//! Leaves to others: the expected bytes (`multilog`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use frieze_base::MonoTime;
use frieze_disk::DiskFile;
use frieze_multilog::{CheckStop, SegmentBytes};
use frieze_storage::MediumWindow;

use crate::upkeep::Upkeep;

/// Bytes of one read.
const WINDOW_BYTES: usize = 1 << 20;
/// While the device serves requests, a scrub takes one part in this many of the time.
const PART_WHEN_BUSY: u32 = 4;

/// Waits between reads.
pub(super) struct Pace<'a> {
    upkeep: &'a Upkeep,
    /// The scrub that reads; none for the check of a segment where a reader met damage.
    run: Option<u64>,
    pause: &'a dyn Fn(Duration) -> bool,
    /// Requests that the device had served at the last pause.
    served: u64,
    /// End of the last pause.
    resumed: MonoTime,
}

impl<'a> Pace<'a> {
    pub(super) fn new(upkeep: &'a Upkeep, run: Option<u64>, pause: &'a dyn Fn(Duration) -> bool) -> Pace<'a> {
        let served = upkeep.planes.data.device().served();
        let resumed = upkeep.planes.clock.reading().mono;
        Pace { upkeep, run, pause, served, resumed }
    }

    /// Waits for as long as reading `bytes` may take, or longer while the device serves requests.
    pub(super) fn wait(&mut self, bytes: u64) -> Result<(), CheckStop> {
        // Reading these bytes, and checking those before.
        let took = Duration::from_nanos(self.upkeep.planes.clock.reading().mono.since_ns(self.resumed));
        let rate = match (self.run, self.upkeep.scrub.under_way()) {
            (None, _) => self.upkeep.planes.settings.scrub_bytes_per_s,
            (Some(run), Some((now, rate))) if run == now => rate,
            _ => return Err(CheckStop::Stop),
        };
        let due = Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64);
        let served = self.upkeep.planes.data.device().served();
        let busy = served != self.served;
        self.served = served;
        let due = if busy { due.max(took * PART_WHEN_BUSY) } else { due };
        let goes_on = (self.pause)(due.saturating_sub(took));
        self.resumed = self.upkeep.planes.clock.reading().mono;
        if goes_on { Ok(()) } else { Err(CheckStop::Stop) }
    }
}

/// A segment's file as it lies on the medium, read through windows.
pub(super) struct Medium<'a> {
    pace: Pace<'a>,
    file: &'a dyn DiskFile,
    /// End of the records: the footer behind them is read beside them.
    end: u64,
    /// One for the records, and one for the footer.
    windows: [MediumWindow; 2],
}

impl<'a> Medium<'a> {
    pub(super) fn new(pace: Pace<'a>, file: &'a dyn DiskFile, end: u64) -> Medium<'a> {
        Medium { pace, file, end, windows: Default::default() }
    }
}

impl SegmentBytes for Medium<'_> {
    fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8], CheckStop> {
        let which = usize::from(offset >= self.end);
        let end = offset + len as u64;
        if !self.windows[which].holds(offset, end) {
            let (file, window) = (self.file, &mut self.windows[which]);
            let region_end = if which == 0 { self.end } else { u64::MAX };
            let upto = (offset + WINDOW_BYTES as u64).min(region_end).max(end);
            // If a window has a bad sector, only the requested bytes are read again.
            let filled = window.fill(file, offset, upto).or_else(|_| window.fill(file, offset, end));
            let bytes = window.len();
            if which == 0 && self.pace.run.is_some() {
                self.pace.upkeep.scrub.within.store(offset, Ordering::Relaxed);
            }
            self.pace.wait(bytes)?;
            if let Err(fault) = filled {
                return Err(CheckStop::Failed(fault));
            }
        }
        Ok(self.windows[which].part(offset, len))
    }
}
