//! Frees what is dead.
//!
//! Guarantees: space is freed only when the horizon is on stable storage.
//! Leaves to others: which records are dead (`service`, `thinning`), packing what is left (`packing`).

use frieze_base::{Fault, InodeId, Reason, SegmentId};

use crate::gc_state::{DeadRecords, DeadSpace, ExpiryCount};
use crate::planes::Planes;

impl Planes {
    /// The expiries up to now.
    pub fn expiries(&self) -> ExpiryCount {
        ExpiryCount { forgettings: self.meta.forgetting_count().count, policies: self.meta.policy_changes() }
    }

    /// Marks the records of `dead`: no plan names them, and their space is due. [`GcState::note`] publishes it.
    ///
    /// # Errors
    /// Of the device, where the index of the inode has to be fetched.
    pub fn mark_dead(&self, state: &mut DeadSpace, id: InodeId, dead: &DeadRecords) -> Result<(), Fault> {
        if !dead.graves.is_empty() || dead.is_all {
            let changes = Some(self.meta.expiry_changes());
            if state.noted_changes != changes {
                // After a crash the names may be behind what has died here: nothing of the past is shown meanwhile.
                let executed = self.meta.appended();
                self.flush()?;
                self.data.raise_expired_index(executed)?;
                state.noted_changes = changes;
            }
            self.data.device().mark_dead(id, dead.upto, &dead.graves, dead.is_all, &dead.kept)?;
            state.add(&dead.graves);
        }
        Ok(())
    }

    /// Frees what is due in closed segments. Returns the bytes freed on the device.
    ///
    /// # Errors
    /// The disk's. What was not freed stays due.
    pub fn give_back(&self, state: &mut DeadSpace) -> Result<u64, Fault> {
        if state.due.is_empty() {
            return Ok(0);
        }
        // The horizon is durable before the bytes are freed: after a crash no read may ask for them.
        self.flush()?;
        let device = self.data.device();
        let open = device.log().end().segment;
        if state.due.get(&open).is_some_and(|bytes| *bytes >= device.worth_closing()) {
            self.close_segment();
            self.flush()?;
        }
        let due: Vec<SegmentId> = state.due.keys().copied().collect();
        let mut freed = 0;
        for segment in due {
            match device.punch_dead(segment, state.graves.get(&segment).into_iter().flatten()) {
                Ok(None) => {}
                Ok(Some(bytes)) => {
                    freed += bytes;
                    state.due.remove(&segment);
                    state.trouble = None;
                }
                Err(fault) if fault.reason == Reason::Unsupported => {
                    let words = format!(
                        "the file system below the data directory cannot free parts of files, so what was forgotten \
                         still takes its space (ext4, xfs, btrfs and tmpfs can): {}",
                        fault.message
                    );
                    state.trouble = Some(Fault::new(Reason::Unsupported, words));
                    break;
                }
                Err(fault) => return Err(fault),
            }
        }
        self.gc.note(state);
        Ok(freed)
    }

    /// The next write begins a new segment, so that the old one can be shelved or freed after the next flushes. The
    /// rest of the old segment stays unused.
    pub fn close_segment(&self) {
        let _held = self.data.lock_appender();
        self.data.device().close_open();
    }
}
