//! Which numbers of which chains a segment holds.

use frieze_base::ChainId;

use crate::record::RecordMeta;

/// Which numbers of a chain a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainNumbers {
    pub(crate) chain: ChainId,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// Notes a record among those of its segment.
pub(crate) fn note(numbers: &mut Vec<ChainNumbers>, meta: &RecordMeta) {
    match numbers.iter_mut().find(|known| known.chain == meta.chain) {
        Some(known) => (known.first, known.last) = (known.first.min(meta.n), known.last.max(meta.n)),
        None => numbers.push(ChainNumbers { chain: meta.chain, first: meta.n, last: meta.n }),
    }
}
