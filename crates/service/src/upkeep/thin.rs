//! Policies of retention: raises their marks, and buries what no kept instant shows.
//!
//! Guarantees: a mark is raised only when names and all chains are closed up to the instant that ages count from, so no
//! record comes below a mark. What shared ranges need stays, and the last state of each file. Without a lease nothing
//! dies: a head that was replaced has records that the chain never will, and nothing may die by those.
//! Leaves to others: refusing instants and the rule (`planes`, `retention`), which instants are kept (`namespace`).
//!
//! # The algorithm
//! Raising a mark costs one entry of the log, whatever the number of files. Then a pass looks at the files with records
//! in the stretch that the mark has coarsened. The leader looks at the files that were removed in it, too: those that
//! no kept instant shows any more are let go of by an entry of the log, since the leader alone knows which are open.

use std::sync::atomic::Ordering;

use frieze_base::{Fault, InodeId, Reason, SessionId};
use frieze_planes::{PassState, RemovalScan};
use frieze_wire::forget::encode_ids;
use frieze_wire::message::View;
use frieze_wire::txn::{ExpireRemoved, Op, Outcome, RaiseMarks};
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
        if self.planes.data.check_lease().is_err() {
            return Ok(false);
        }
        let mut pass = self.thinning.lock();
        let has_more = self.expire_removed(&mut pass)? | self.bury_removed(&mut pass)?;
        if pass.files.is_empty() && !pass.begin(&self.planes)? {
            self.planes.gc.thinned.store(true, Ordering::Release);
            return Ok(has_more);
        }
        let (needs, shares) = pass.needs(&self.planes, &|| self.files.needs(&self.planes.meta.horizons()))?;
        let began = self.planes.clock.reading().mono;
        let mut state = self.planes.gc.lock();
        while let Some(id) = pass.files.pop_first() {
            let Some(dead) = self.planes.thinned_records(&needs, shares, id)? else {
                pass.files.insert(id);
                break;
            };
            if !dead.graves.is_empty() {
                self.planes.mark_dead(&mut state, id, &dead)?;
                self.planes.data.device().forget_images([id])?;
            }
            if self.planes.clock.reading().mono.since_ns(began) > STEP_NS {
                break;
            }
        }
        self.planes.gc.thinning_left.store(pass.files.len() as u64, Ordering::Relaxed);
        self.planes.gc.note(&state);
        self.planes.give_back(&mut state)?;
        Ok(true)
    }

    /// Lets go of removed files that no kept instant shows, if this server leads. Returns whether there may be more.
    fn expire_removed(&self, pass: &mut PassState) -> Result<bool, Fault> {
        let removals = &mut pass.removals;
        if !self.planes.meta.leads() {
            *removals = RemovalScan::default();
            return Ok(false);
        }
        let (open, mut due): (Vec<InodeId>, Vec<InodeId>) =
            removals.next(&self.planes)?.into_iter().partition(|id| self.sessions.opened.holds(*id));
        removals.wait_for(open);
        let Some(_alone) = self.without_edits().filter(|_| !due.is_empty()) else {
            removals.wait_for(due);
            return Ok(removals.has_more());
        };
        // An edit may have brought one back since.
        let mut removed_upto = 0;
        for id in std::mem::take(&mut due) {
            match self.planes.removed_and_due(id) {
                Ok(None) => {}
                Ok(Some(since)) => {
                    removed_upto = since.0.max(removed_upto);
                    due.push(id);
                }
                Err(fault) => {
                    debug!("whether inode {id} can go is not known: {fault}");
                    removals.wait_for(vec![id]);
                }
            }
        }
        if due.is_empty() {
            return Ok(removals.has_more());
        }
        let op = ExpireRemoved { inodes: encode_ids(due.iter().map(|id| id.0)), removed_upto };
        let transaction = self.write.own(SessionId(0), Op::ExpireRemoved(op));
        let done = self.planes.meta.execute(transaction, None).and_then(Outcome::into_result);
        // Some may be written to by a handle that is still open.
        due.retain(|id| !self.planes.meta.is_removal_expired(*id));
        removals.wait_for(due);
        match done {
            Err(fault) if fault.reason == Reason::InputOutput => Err(fault),
            Err(fault) => {
                debug!("removed files wait: {fault}");
                Ok(false)
            }
            Ok(_) => Ok(removals.has_more()),
        }
    }

    /// Buries what is stored of removed files that the leader has let go of. Returns whether there may be more.
    fn bury_removed(&self, pass: &mut PassState) -> Result<bool, Fault> {
        let mut state = self.planes.gc.lock();
        // What was let go of before the start is found by the pass over all that has expired.
        let is_known = self.planes.gc.known.load(Ordering::Acquire);
        if !is_known || self.planes.meta.newest_expired_removal() <= state.removals_upto {
            return Ok(false);
        }
        let horizons = self.planes.meta.horizons();
        let (needs, _) = pass.needs(&self.planes, &|| self.files.needs(&horizons))?;
        let began = self.planes.clock.reading().mono;
        // More may have been let go of since the horizons were read.
        let upto = horizons.newest_expired_removal();
        let removals = self.planes.meta.history().expired_removals(state.removals_upto)?.into_iter();
        for (stamp, ids) in removals.take_while(|(stamp, _)| *stamp <= upto) {
            for &id in &ids {
                let dead = self.files.dead_of(&horizons, &needs, id)?;
                self.planes.mark_dead(&mut state, id, &dead)?;
            }
            self.planes.data.device().forget_images(ids)?;
            state.removals_upto = stamp;
            if self.planes.clock.reading().mono.since_ns(began) > STEP_NS {
                break;
            }
        }
        self.planes.gc.note(&state);
        self.planes.give_back(&mut state)?;
        Ok(self.planes.meta.newest_expired_removal() > state.removals_upto)
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
