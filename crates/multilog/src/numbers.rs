//! Which numbers of which chains a segment holds.

use frieze_base::ChainId;

use crate::record::RecordHeader;

/// Which numbers of a chain a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainNumbers {
    pub(crate) chain: ChainId,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// Notes a record among those of its segment.
pub(crate) fn note(numbers: &mut Vec<ChainNumbers>, header: &RecordHeader) {
    match numbers.iter_mut().find(|known| known.chain == header.chain) {
        Some(known) => (known.first, known.last) = (known.first.min(header.n), known.last.max(header.n)),
        None => numbers.push(ChainNumbers { chain: header.chain, first: header.n, last: header.n }),
    }
}
