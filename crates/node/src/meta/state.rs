//! What the log makes: the namespace and its history, changed by executing entries in their order.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use frieze_base::{Fault, InodeId, LogIndex, Reason, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_metalog::Entry;
use frieze_namespace::{Change, Namespace, NoReadSet, ReadSet};
use frieze_wire::txn::{Batch, Outcome, Transaction};
use prost::Message;

use crate::caching::Caching;
use crate::reading::{NAMESPACE, Reading};
use crate::store::Versions;

/// The namespace, its history, and who has to be told of changes before anybody sees them.
pub(super) struct State {
    pub(super) namespace: RwLock<Namespace>,
    pub(super) versions: Versions,
    caching: OnceLock<Arc<Caching>>,
}

impl State {
    /// Loads the namespace from the store under `versions`.
    ///
    /// # Errors
    /// `Corrupt`, and the store's.
    pub(super) fn load(versions: Versions) -> Result<State, Fault> {
        versions.complete()?;
        let namespace = load(&versions)?;
        Ok(State { namespace: RwLock::new(namespace), versions, caching: OnceLock::new() })
    }

    /// From now on `caching` is told of every change before anybody sees it.
    pub(super) fn watch(&self, caching: Arc<Caching>) {
        // Called once, at the start.
        let _ = self.caching.set(caching);
    }

    /// The namespace as it is now.
    pub(super) fn read(&self) -> Reading<'_, Namespace> {
        Reading::of(&self.namespace, &NAMESPACE)
    }

    /// Executes a batch whose transactions are asked for by somebody here: `reads` hear what they read, and the caches of
    /// others are recalled before anybody can see a change.
    pub(super) fn run<'a>(
        &self,
        place: (LogIndex, Hlc),
        batch: &Batch,
        reads: impl Iterator<Item = &'a dyn ReadSet>,
    ) -> Vec<Outcome> {
        let mut namespace = self.namespace.write().unwrap_or_else(PoisonError::into_inner);
        // Told while nobody can read: who sees the change sees what it recalled.
        let told = |by: &Transaction, changes: &[Change]| {
            if let Some(caching) = self.caching.get() {
                caching.changed((SessionId(by.session), Seq(by.seq)), changes);
            }
        };
        apply(&mut namespace, &self.versions, place, batch, reads, &told)
    }

    /// Executes an entry that nobody here waits for.
    pub(super) fn follow(&self, entry: &Entry) -> Result<(), Fault> {
        let batch = decode(entry)?;
        let reads = std::iter::repeat::<&dyn ReadSet>(&NoReadSet);
        let mut namespace = self.namespace.write().unwrap_or_else(PoisonError::into_inner);
        apply(&mut namespace, &self.versions, (entry.index, entry.stamp), &batch, reads, &|_, _| {});
        Ok(())
    }
}

/// The namespace as the store under `versions` has it.
pub(super) fn load(versions: &Versions) -> Result<Namespace, Fault> {
    let mut namespace = Namespace::new();
    let mut failed: Option<Fault> = None;
    versions.load(&mut |key, stamp, value| {
        if failed.is_none() {
            failed = namespace.load(key, stamp, value).err();
        }
    })?;
    failed.map_or(Ok(namespace), Err)
}

pub(super) fn decode(entry: &Entry) -> Result<Batch, Fault> {
    Batch::decode(entry.body.as_slice()).map_err(|error| {
        Fault::new(
            Reason::Corrupt,
            format!("entry {} of the metalog passes its checksum but is no batch: {error}", entry.index),
        )
    })
}

fn apply<'a>(
    namespace: &mut Namespace,
    versions: &Versions,
    (index, stamp): (LogIndex, Hlc),
    batch: &Batch,
    reads: impl Iterator<Item = &'a dyn ReadSet>,
    told: &dyn Fn(&Transaction, &[Change]),
) -> Vec<Outcome> {
    let mut changes: Vec<Change> = Vec::new();
    namespace.skip_ids(InodeId(batch.ids_above));
    let outcomes = batch
        .transactions
        .iter()
        .zip(stamp.0..)
        .zip(reads)
        .map(|((transaction, stamp), reads)| {
            let before = changes.len();
            let outcome = namespace.apply(transaction, Hlc(stamp), &mut changes, reads);
            told(transaction, &changes[before..]);
            outcome
        })
        .collect();
    versions.add(index, changes);
    outcomes
}
