//! Freeing the space of records that no read needs.
//!
//! Guarantees: a range is freed only if a durable footer covers its segment: without the records only the footer says
//! what the segment holds. Leaves to others: which records are dead (`multilog`, the caller), when to free them.

use std::collections::BTreeMap;

use frieze_base::{Fault, SegmentId};

use super::{Device, FileKey};

impl Device {
    /// Frees the space of ranges of a segment that hold only dead or discarded records, and of the range after its last
    /// record. Returns how many bytes the device has gained; `None` while no footer covers the whole segment.
    ///
    /// # Errors
    /// The disk's; `Unsupported` if it cannot free parts of files.
    pub fn punch_dead<'a>(
        &self,
        segment: SegmentId,
        dead_records: impl Iterator<Item = (&'a u64, &'a u64)>,
    ) -> Result<Option<u64>, Fault> {
        let Some(sealed) = self.log().sealed(segment) else { return Ok(None) };
        let file = self.file(segment)?;
        // The footer must be on stable storage: without the records only the footer says what the segment holds.
        file.sync()?;
        let mut footer = vec![0; (sealed.bytes - sealed.footer_at) as usize];
        let found = file.read_at(sealed.footer_at, &mut footer)?;
        self.tiers.note_untracked(FileKey::Segment(segment));
        if found != footer.len() {
            return Ok(None);
        }
        let Some(mut runs) = self.log().discarded_in(segment, Some(&footer)) else { return Ok(None) };
        merge_ranges(&mut runs, dead_records);
        if runs.is_empty() {
            return Ok(Some(0));
        }
        let mut behind = sealed.end;
        let mut freed = 0;
        for (&start, &end) in &runs {
            freed += file.punch(start, end - start)?;
            behind = if end == sealed.end { start } else { behind };
        }
        // Preallocated space that is no longer needed: no history, and the next segment reserves as much.
        file.punch(behind, sealed.footer_at - behind)?;
        Ok(Some(freed))
    }
}

/// Adds ranges to `runs`; ranges that overlap or touch are merged.
fn merge_ranges<'a>(runs: &mut BTreeMap<u64, u64>, others: impl Iterator<Item = (&'a u64, &'a u64)>) {
    for (&start, &end) in others {
        let (mut start, mut end) = (start, end);
        while let Some((&from, &upto)) = runs.range(..=end).next_back()
            && upto >= start
        {
            runs.remove(&from);
            (start, end) = (start.min(from), end.max(upto));
        }
        runs.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_merged() {
        let joined = |others: &[(u64, u64)]| {
            let mut runs = BTreeMap::from([(10, 20), (30, 40), (50, 60)]);
            merge_ranges(&mut runs, others.iter().map(|(start, end)| (start, end)));
            runs.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(joined(&[]), [(10, 20), (30, 40), (50, 60)]);
        assert_eq!(joined(&[(20, 30)]), [(10, 40), (50, 60)]);
        assert_eq!(joined(&[(5, 35), (45, 46)]), [(5, 40), (45, 46), (50, 60)]);
        assert_eq!(joined(&[(12, 18), (60, 70), (0, 1)]), [(0, 1), (10, 20), (30, 40), (50, 70)]);
        assert_eq!(joined(&[(0, 100)]), [(0, 100)]);
    }
}
