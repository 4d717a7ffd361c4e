//! Which context of an endpoint belongs to which transfer, and how long the memory of a transfer is kept. Decides only:
//! it calls no provider.
//!
//! Guarantees: what [`TransferTable::begin`] was given stays until the transfer has ended or all are ended together,
//! however long ago its thread stopped waiting; a completion that comes a second time ends no other transfer, unless
//! as many as are allowed at once have begun since the first.
//!
//! A completion names a context, and nothing else of its transfer. So there are twice as many contexts as transfers
//! under way, and the context that has been free longest is the next.

use std::collections::VecDeque;

/// Transfers under way, each with what is kept for it.
#[derive(Clone, Debug)]
pub struct TransferTable<T> {
    /// Free contexts, the one that has been free longest first.
    free: VecDeque<usize>,
    under_way: Vec<Option<T>>,
}

impl<T> TransferTable<T> {
    /// A table of up to `transfers_max` transfers.
    pub fn new(transfers_max: usize) -> TransferTable<T> {
        let contexts = 2 * transfers_max;
        TransferTable { free: (0..contexts).collect(), under_way: (0..contexts).map(|_| None).collect() }
    }

    /// How many contexts there are.
    pub fn contexts(&self) -> usize {
        self.under_way.len()
    }

    /// Gives a transfer a context; gives it back if as many as are allowed are under way.
    pub fn begin(&mut self, transfer: T) -> Result<usize, T> {
        if self.under_way_count() >= self.contexts() / 2 {
            return Err(transfer);
        }
        let Some(context) = self.free.pop_front() else { return Err(transfer) };
        self.under_way[context] = Some(transfer);
        Ok(context)
    }

    /// A completion names this context. None if no transfer under way has it.
    pub fn end(&mut self, context: usize) -> Option<T> {
        let ended = self.under_way.get_mut(context)?.take()?;
        self.free.push_back(context);
        Some(ended)
    }

    /// The endpoint is closed: none is under way any more.
    pub fn end_all(&mut self) -> Vec<T> {
        (0..self.contexts()).filter_map(|context| self.end(context)).collect()
    }

    /// True if no transfer is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way_count() == 0
    }

    fn under_way_count(&self) -> usize {
        self.contexts() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_completion_ends_no_other_transfer() {
        let mut table = TransferTable::new(3);
        let first = table.begin(0).expect("a context");
        assert_eq!(table.end(first), Some(0));
        for transfer in 1..=3 {
            table.begin(transfer).expect("a context");
            assert_eq!(table.end(first), None, "after {transfer} others");
        }
        assert_eq!(table.begin(4), Err(4), "three are under way");
        assert_eq!(table.end_all().len(), 3);
        assert!(table.is_idle());
        assert_eq!(table.end(usize::MAX), None, "no context of this table");
    }
}
