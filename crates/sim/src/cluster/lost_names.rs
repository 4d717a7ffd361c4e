//! What a declared loss of names takes: changes that were answered from memory, at most. The judges take them for
//! changes without an answer, and instants within the loss are not compared.

use std::collections::BTreeSet;

use frieze_hlc::Hlc;

use super::history::{History, NameOp, Value};
use crate::violation::{Rule, Verdict, broken};

/// What may be wrong, unless names of this stamp were lost.
#[derive(Clone, Debug)]
pub(super) struct DoubtfulAnswer {
    pub(super) stamp: Hlc,
    pub(super) rule: Rule,
    pub(super) what: String,
}

impl History {
    /// True if a server declared changes of names stamped `stamp` lost.
    pub(super) fn is_lost(&self, stamp: Hlc) -> bool {
        self.names_lost.iter().any(|(from, to)| *from < stamp && stamp < *to)
    }

    /// Records something that only a loss of names explains.
    pub(super) fn doubt(&mut self, stamp: Hlc, rule: Rule, what: String) {
        self.trace.line(|| format!("in doubt: {what}"));
        self.doubts.push(DoubtfulAnswer { stamp, rule, what });
    }

    /// When the run is over: forgives what was lost, and nothing else.
    pub(super) fn forgive_lost_names(&mut self) -> Verdict {
        if let Some(doubt) = self.doubts.iter().find(|doubt| !self.is_lost(doubt.stamp)) {
            return broken(doubt.rule, doubt.what.clone());
        }
        if self.names_lost.is_empty() {
            return Ok(());
        }
        let lost = self.names_lost.clone();
        let is_lost = |stamp: Hlc| lost.iter().any(|(from, to)| *from < stamp && stamp < *to);
        for record in &mut self.names {
            if !record.sync && matches!(record.done, Some((_, Ok(stamp))) if is_lost(stamp)) {
                record.done = None;
            }
            if record.done.is_none() {
                // A change that was not answered may have been seen, and lost then.
                match record.op.clone() {
                    NameOp::Make { name } | NameOp::Remove { name } => drop(self.doubtful_names.insert(name)),
                    NameOp::Rename { from, to } => self.doubtful_names.extend([from, to]),
                }
            }
        }
        // A name that was lost is not found.
        self.names.retain(|record| match (&record.done, &record.op) {
            (Some((_, Err(()))), NameOp::Rename { from: name, .. } | NameOp::Remove { name }) => {
                !self.doubtful_names.contains(name)
            }
            _ => true,
        });
        for cut in self.cuts.iter_mut().filter(|cut| cut.done.is_some_and(|(_, stamp)| is_lost(stamp))) {
            cut.done = None;
        }
        let together: BTreeSet<Value> = self.together.iter().map(|one| one.value).collect();
        for write in self.writes.iter_mut().filter(|write| together.contains(&write.value)) {
            // The bytes are on stable storage, and the change that shows them was in memory. A reader may have seen it.
            if write.done.is_none_or(|(_, stamp)| is_lost(stamp)) {
                write.done = None;
                self.lost_values.insert(write.value);
            }
        }
        self.names_at.retain(|at, _| !is_lost(*at));
        self.cells_at.retain(|(_, _, at), _| !is_lost(*at));
        Ok(())
    }
}
