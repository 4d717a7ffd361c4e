//! Parts of edits that are too long for one transaction.
//!
//! Guarantees: their bytes are counted.
//! Leaves to others: when they come and go (`edit::staging`).

use std::collections::BTreeMap;

use frieze_base::{Fault, Reason, Seq, SessionId};

/// Bytes of one edit. A name to be removed takes about 20 bytes and its own length; while the edit runs, twenty times
/// as much.
const EDIT_BYTES_MAX: usize = 64 << 20;
/// Bytes of the staged parts of all sessions together, in memory and in the store: room for the longest edit, and for
/// what its parts take beside their bytes.
pub const STAGED_BYTES_MAX: usize = EDIT_BYTES_MAX + (1 << 20);
/// What a part takes beside its bytes.
pub(crate) const PART_BYTES: usize = 128;

/// The plan of a request.
pub(crate) type PlanId = (SessionId, Seq, u64);

/// The parts that are staged now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StagedEdits {
    pub(crate) plans: BTreeMap<PlanId, BTreeMap<u32, Vec<u8>>>,
    /// Of all parts.
    pub(crate) bytes: usize,
}

impl StagedEdits {
    pub(crate) fn insert(&mut self, plan: PlanId, part: u32, bytes: Vec<u8>) {
        self.bytes += bytes.len() + PART_BYTES;
        if let Some(before) = self.plans.entry(plan).or_default().insert(part, bytes) {
            self.bytes -= before.len() + PART_BYTES;
        }
    }

    /// Bytes of the parts of a plan.
    pub(crate) fn bytes_of(&self, plan: &PlanId) -> usize {
        let parts = self.plans.get(plan).into_iter().flat_map(BTreeMap::values);
        parts.map(|part| part.len() + PART_BYTES).sum()
    }

    /// Bytes of one part; 0 if it is not staged.
    pub(crate) fn part_bytes(&self, plan: &PlanId, part: u32) -> usize {
        self.plans.get(plan).and_then(|parts| parts.get(&part)).map_or(0, |bytes| bytes.len() + PART_BYTES)
    }

    /// Drops a plan. Returns its parts.
    pub(crate) fn remove(&mut self, plan: &PlanId) -> impl Iterator<Item = u32> + use<> {
        self.bytes -= self.bytes_of(plan);
        self.plans.remove(plan).unwrap_or_default().into_keys()
    }
}

/// # Errors
/// `TooLarge` if an edit takes more bytes than one may.
pub fn check_edit_bytes(bytes: usize) -> Result<(), Fault> {
    if bytes <= EDIT_BYTES_MAX {
        return Ok(());
    }
    Err(Fault::new(
        Reason::TooLarge,
        format!(
            "more changes than are made at once: at most {} MiB of them are allowed, a name takes about 20 bytes and \
             its own length; take one directory after the other",
            EDIT_BYTES_MAX >> 20
        ),
    ))
}
