//! Policies of retention: raises their marks, and buries what no kept instant shows.
//!
//! Guarantees: a mark is raised only when names and all chains are closed up to the instant that ages count from, so no
//! record comes below a mark. What shared ranges need stays, and the last state of each file.
//! Leaves to others: refusing instants and the rule (`planes`, `retention`), which instants are kept (`namespace`).
//!
//! # The algorithm
//! Raising a mark costs one entry of the log, whatever the number of files. Then a pass looks at the files with records
//! in the stretch that the mark has coarsened.

use std::sync::atomic::Ordering;

use frieze_base::{Fault, Reason, SessionId};
use frieze_wire::message::View;
use frieze_wire::txn::{Op, RaiseMarks};
use tracing::debug;

use crate::upkeep::Upkeep;

/// Time of one step of a pass, ns; other work of the thread comes between.
const STEP_NS: u64 = 200_000_000;

impl Upkeep {
    /// Raises marks that are due, if this server leads, and does a step of the pass. Returns whether there may be
    /// more to do. Call it about twice a second, on a thread that may block for long.
    ///
    /// # Errors
    /// Those of the store and the disk's: the next call continues.
    pub fn thin(&self) -> Result<bool, Fault> {
        if self.planes.durability.failure().is_some() || !self.planes.meta.has_policies() {
            return Ok(false);
        }
        self.raise_marks()?;
        let mut pass = self.thinning.lock();
        if pass.files.is_empty() && !pass.begin(&self.planes)? {
            self.planes.gc.thinned.store(true, Ordering::Release);
            return Ok(false);
        }
        let (needs, shares) = pass.needs(&self.planes, &|| self.needs(&self.planes.meta.horizons()))?;
        let began = self.planes.clock.reading().mono;
        let mut state = self.planes.gc.lock();
        while let Some(id) = pass.files.pop_first() {
            let Some(dead) = self.planes.thinned_records(&needs, shares, id)? else {
                pass.files.insert(id);
                break;
            };
            if !dead.graves.is_empty() {
                self.mark_dead(&mut state, id, &dead)?;
                self.planes.data.device().forget_images([id])?;
            }
            if self.planes.clock.reading().mono.since_ns(began) > STEP_NS {
                break;
            }
        }
        self.planes.gc.note(&state);
        self.give_back(&mut state)?;
        Ok(true)
    }

    fn raise_marks(&self) -> Result<(), Fault> {
        let closed = self.planes.clock.now();
        if !self.planes.meta.leads() || !self.planes.meta.has_marks_due(closed) {
            return Ok(());
        }
        let op = Op::RaiseMarks(RaiseMarks { closed: closed.0 });
        let raise = || self.planes.meta.execute(self.write.own(SessionId(0), op), None)?.into_result();
        let is_closed = self.planes.answer(View::exact(closed));
        // No clone, restore or undo that was planned on an instant thinned now may run after it.
        let Some(_alone) = self.without_edits() else { return Ok(()) };
        match is_closed.and_then(|_| raise()) {
            Ok(_) => Ok(()),
            Err(fault) if fault.reason == Reason::InputOutput => Err(fault),
            // Another server leads, a clock is not trusted, or the device is full: a later call tries again.
            Err(fault) => {
                debug!("marks of retention wait: {fault}");
                Ok(())
            }
        }
    }
}
