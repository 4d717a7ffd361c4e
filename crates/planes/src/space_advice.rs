//! What a full disk refuses ends with: which policy of retention would free how much.

use frieze_base::{Fault, InodeId, MonoTime};
use frieze_wire::txn::Caller;
use tracing::warn;

use crate::planes::Planes;

/// Policies that are tried, the one that keeps most first.
const POLICIES: [&str; 4] =
    ["all 30d, 1/day 52w", "all 1d, 1/h 30d, 1/day 52w", "all 1h, 1/h 1d, 1/day 30d", "all 1min, 1/min 1h, 1/h 1d"];
/// A policy that frees so much of the disk, one part in so many, is enough.
const ENOUGH_PART: u64 = 10;
/// Time between two looks, ns: each reads the index of all files.
const LOOK_EVERY_NS: u64 = 600_000_000_000;

impl Planes {
    /// While the disk is full, looks now and then which policy of retention would free how much, for the words of its
    /// refusals. Call it now and then, on a thread that may block for long; `goes_on` is asked at each file.
    ///
    /// # Errors
    /// Those of the store and of the device: then refusals say no more than they did.
    pub fn advise_on_space(&self, goes_on: &dyn Fn() -> bool) -> Result<(), Fault> {
        let (device, now) = (self.data.device(), self.clock.reading().mono);
        if !device.is_full() && !device.refuses_names() {
            return Ok(());
        }
        {
            let mut state = self.gc.lock();
            if now < state.advise_after {
                return Ok(());
            }
            state.advise_after = MonoTime(now.0 + LOOK_EVERY_NS);
        }
        let enough = device.space()?.capacity_bytes / ENOUGH_PART;
        let (mut words, mut most) = (String::new(), 0);
        for policy in POLICIES {
            let freed = self.preview(&Caller::root(), InodeId::ROOT, &policy.parse()?, goes_on)?.freed_bytes;
            if !goes_on() {
                return Ok(());
            }
            // One that keeps less has to be worth it.
            if freed > most + most / 4 {
                most = freed;
                words = format!(
                    "`frieze retention set '{policy}' /` would free {} MiB here (`frieze retention preview '{policy}' \
                     /` says of what)",
                    freed >> 20
                );
            }
            if freed >= enough {
                break;
            }
        }
        if !words.is_empty() {
            warn!("the disk is full: {words}");
        }
        device.set_space_advice(words);
        Ok(())
    }
}
