//! Whether a write may be stamped here, and whether there is room for it.
//!
//! Guarantees: only the head of a chain stamps, under a lease; a chain's uncommitted bytes are bounded.

use std::sync::atomic::Ordering;

use frieze_base::{ChainId, Fault, Reason};

use crate::appender::Appender;
use crate::fault::no_lease;
use crate::plane::DataPlane;

impl DataPlane {
    /// Checks that a write to these chains can be stamped here.
    pub(crate) fn check_stamps(&self, appender: &Appender, chains: impl Iterator<Item = ChainId>) -> Result<(), Fault> {
        for chain in chains {
            let (replica, state) = (&appender.chains[chain.0 as usize], &appender.states[chain.0 as usize]);
            if !state.shared {
                continue;
            }
            if !replica.is_head() {
                let head = replica.configuration().head();
                return Err(frieze_chain::Error::NotHead { chain, head }.into());
            }
            if !self.lease.holds(self.clock.reading().mono) {
                return Err(no_lease());
            }
        }
        Ok(())
    }

    /// Waits until the chain's uncommitted bytes are below the limit.
    ///
    /// # Errors
    /// `Overloaded` if that takes too long: the members behind this one do not keep up.
    pub(crate) fn await_room(&self, chain: ChainId) -> Result<(), Fault> {
        let is_full = || self.views.in_flight[chain.0 as usize].load(Ordering::Relaxed) >= self.bounds.flight_bytes_max;
        if !is_full() {
            return Ok(());
        }
        let held = self.room_lock.lock();
        let (_held, waited) = self.room.wait_timeout_while(held, self.bounds.wait, |()| is_full());
        if waited.timed_out() {
            let max = self.bounds.flight_bytes_max >> 20;
            let words = format!("chain {chain} has {max} MiB that its other members do not have yet: send again later");
            return Err(Fault::new(Reason::Overloaded, words));
        }
        Ok(())
    }
}
