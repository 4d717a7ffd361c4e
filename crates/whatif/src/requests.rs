//! What waits for requests: calls of several parts, and an object store that answers each by itself.

use frieze_base::FastMap;

use crate::hardware::HardwareProfile;
use crate::latency::TailedLatency;
use crate::outcome::{ObjectSums, SimOutcome};

/// An object store below the caches.
#[derive(Debug)]
pub(crate) struct ObjectStore {
    pub(crate) latency: TailedLatency,
    pub(crate) part_bytes: u64,
    pub(crate) sums: ObjectSums,
    /// The part that was written last, by file.
    pub(crate) parts: FastMap<u32, u64>,
}

/// What waits for a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestWait {
    /// True if it counts in sums.
    pub(crate) counts: bool,
    /// True if a get waits.
    pub(crate) foreground: bool,
    /// The call that waits for several requests, or 0.
    pub(crate) call: u32,
    /// Nanoseconds of the network.
    pub(crate) hop_ns: u32,
}

/// Calls that wait for several requests.
#[derive(Debug, Default)]
pub(crate) struct OpenCalls {
    pub(crate) last: u32,
    open: FastMap<u32, OpenPartCall>,
}

#[derive(Clone, Copy, Debug, Default)]
struct OpenPartCall {
    at_ns: u64,
    pages: u64,
    latest_ns: u64,
    /// Requests that are not served yet, and one more while accesses of the call may come.
    left: u32,
    counts: bool,
}

impl ObjectStore {
    /// That of a profile, if it has one.
    pub(crate) fn of(hardware: &HardwareProfile) -> Option<ObjectStore> {
        let latency = TailedLatency::of(hardware, "object")?;
        let part_bytes = hardware.object_part_bytes().max(1);
        Some(ObjectStore { latency, part_bytes, sums: ObjectSums::default(), parts: FastMap::default() })
    }
}

impl OpenCalls {
    /// The call before is complete, and another begins.
    pub(crate) fn begin(&mut self, at_ns: u64, counts: bool, outcome: &mut SimOutcome) {
        self.close(outcome);
        self.last = self.last.wrapping_add(1).max(1);
        self.open.insert(self.last, OpenPartCall { at_ns, latest_ns: at_ns, left: 1, counts, pages: 0 });
    }

    /// The last call reads pages more, and waits until `until_ns` at least.
    pub(crate) fn add(&mut self, pages: u64, until_ns: u64) {
        if let Some(call) = self.open.get_mut(&self.last) {
            (call.pages, call.latest_ns) = (call.pages + pages, call.latest_ns.max(until_ns));
        }
    }

    /// A request of the call went to a disk.
    pub(crate) fn sent(&mut self, call: u32) {
        if let Some(call) = self.open.get_mut(&call) {
            call.left += 1;
        }
    }

    pub(crate) fn served(&mut self, number: u32, end_ns: u64, outcome: &mut SimOutcome) {
        let Some(call) = self.open.get_mut(&number) else { return };
        call.latest_ns = call.latest_ns.max(end_ns);
        call.left -= 1;
        if call.left == 0 {
            if call.counts {
                outcome.called(call.pages, call.latest_ns - call.at_ns);
            }
            self.open.remove(&number);
        }
    }

    /// No more accesses of the last call come.
    pub(crate) fn close(&mut self, outcome: &mut SimOutcome) {
        self.served(self.last, 0, outcome);
        self.last = self.last.wrapping_add(1).max(1);
    }
}
