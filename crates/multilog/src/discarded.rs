//! Records that lie in the log and are not their chain's.

use frieze_base::ChainId;

use crate::header::LogPosition;
use crate::record::RecordHeader;

/// Records of a chain that are not the chain's: it took another way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discards {
    /// The chain.
    pub chain: ChainId,
    /// Number of the last record that stays.
    pub after: u64,
    /// Those that begin before this place; what comes later with these numbers is the chain's. All before it was
    /// durable when they were discarded, so that nothing else can come to lie there.
    pub before: LogPosition,
}

impl Discards {
    fn holds(&self, header: &RecordHeader, at: LogPosition) -> bool {
        header.chain == self.chain && header.n > self.after && at < self.before
    }
}

/// True if a record that begins at `at` was discarded. What was discarded is sorted by chain.
pub(crate) fn is_discarded(discarded: &[Discards], header: &RecordHeader, at: LogPosition) -> bool {
    of_chain(discarded, header.chain).any(|one| one.holds(header, at))
}

/// What was discarded of a chain.
pub(crate) fn of_chain(discarded: &[Discards], chain: ChainId) -> impl Iterator<Item = &Discards> {
    let from = discarded.partition_point(|one| one.chain < chain);
    discarded[from..].iter().take_while(move |one| one.chain == chain)
}

/// Sorted by chain, as [`is_discarded`] needs it.
pub(crate) fn sorted(mut discarded: Vec<Discards>) -> Vec<Discards> {
    discarded.sort_by_key(|one| one.chain);
    discarded
}
