//! How many records of a chunk lie up to an instant.

use frieze_hlc::Hlc;

use super::chunk::Record;
use super::push_slim;

/// Every 16th stamp of a growing list of records: a search over a million of them stays in the cache but for its last
/// steps. The stamps rise, equal ones allowed.
#[derive(Debug, Default)]
pub(super) struct Stamps(Vec<Hlc>);

impl Stamps {
    /// Takes in the stamp of record number `at`, the next one, and returns by how much the memory grew.
    pub(super) fn push(&mut self, at: usize, stamp: Hlc) -> usize {
        if at.is_multiple_of(RUN) && at > 0 { push_slim(&mut self.0, stamp) } else { 0 }
    }

    /// How many of the records are stamped at most `at`.
    pub(super) fn count_upto(&self, at: Hlc, records: &[Record]) -> usize {
        if records.last().is_none_or(|newest| newest.stamp <= at) {
            return records.len();
        }
        let run = self.0.partition_point(|stamp| *stamp <= at) * RUN;
        let end = records.len().min(run + RUN);
        run + records[run..end].partition_point(|record| record.stamp <= at)
    }
}

const RUN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecordKind;
    use crate::index::Place;

    #[test]
    fn an_instant_counts_every_stamp_up_to_and_with_it() {
        let (mut stamps, mut records) = (Stamps::default(), Vec::new());
        assert_eq!(stamps.count_upto(Hlc::MAX, &records), 0);
        for number in 0..500u64 {
            // Pairs of equal stamps.
            let stamp = Hlc(number / 2 * 10 + 10);
            stamps.push(records.len(), stamp);
            records.push(Record::new(RecordKind::Write, stamp, Place { slot: 0, at: 0, head: 0 }, 0, 1));
            for at in [0, 9, 10, 11, 640, 645, number * 5, number * 5 + 10] {
                let expect = records.iter().filter(|record| record.stamp.0 <= at).count();
                assert_eq!(stamps.count_upto(Hlc(at), &records), expect, "{} stamps up to {at}", number + 1);
            }
        }
    }
}
