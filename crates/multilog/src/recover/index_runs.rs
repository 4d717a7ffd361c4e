//! Recovery by index runs: the segments that they index are not read.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use frieze_base::SegmentId;

use super::{LogRecovery, RecoveredItem};
use crate::error::Error;
use crate::header::{LogPosition, SegmentLink};
use crate::index_run::{ChainTip, SegmentFacts};

impl LogRecovery<'_> {
    /// Takes in as many of the oldest segments of `order`, which names the newest first, as index runs index: returns
    /// how many.
    pub(super) fn take_index_runs(&mut self, order: &[SegmentId]) -> Result<usize, Error> {
        let mut keys = self.reader.index_runs()?;
        // The widest first: what was merged into it may still be there.
        keys.sort_by_key(|key| (key.first, Reverse(key.last)));
        let oldest_first: Vec<SegmentId> = order.iter().rev().copied().collect();
        let mut tips = BTreeMap::new();
        let mut companion = Vec::new();
        for key in keys {
            let rest = &oldest_first[self.log.indexed..];
            if rest.first() != Some(&key.first) {
                self.report.free_index_runs.push((key, None));
                continue;
            }
            let (index_run, mut contents) = match self.reader.index_run(key) {
                Ok(read) => read,
                Err(Error::DamagedIndexRun { .. }) => {
                    self.report.free_index_runs.push((key, Some("it is damaged")));
                    continue;
                }
                Err(Error::IndexRunVersion { .. }) => {
                    self.report.free_index_runs.push((key, Some("another build of frieze wrote it")));
                    continue;
                }
                Err(error) => return Err(error),
            };
            if !self.fits(&contents.facts, rest) {
                self.report.free_index_runs.push((key, Some("it does not fit the segments")));
                continue;
            }
            contents.leave_out(&self.log.discarded);
            for SegmentFacts { header, end, stamp, records, entries_bytes } in &contents.facts {
                let candidate = self.candidates.remove(&header.id).expect("it fits the segments");
                self.open(&candidate);
                let segment = self.segment();
                (segment.end, segment.stamp, segment.records) = (*end, *stamp, *records);
                (segment.entries_bytes, segment.numbers) = (*entries_bytes, None);
                segment.close();
                self.log.tip = self.segment().link();
            }
            self.report.records += index_run.records();
            self.report.run_records += index_run.records();
            self.log.take_contents(&contents);
            self.log.add_index_run(index_run);
            tips.extend(contents.chains.iter().map(|tip| (tip.chain, *tip)));
            companion = contents.companion;
        }
        if self.log.indexed > 0 {
            let chains: Vec<ChainTip> = tips.into_values().collect();
            let newest = chains.iter().map(|tip| tip.stamp).max().unwrap_or_default();
            (self.on_recovered)(RecoveredItem::Indexed { chains: &chains, newest, companion: &companion });
        }
        Ok(self.log.indexed)
    }

    /// True if an index run is about the first of `segments` as they are found, and the last of them is known to be
    /// whole.
    fn fits(&self, facts: &[SegmentFacts], segments: &[SegmentId]) -> bool {
        facts.len() <= segments.len()
            && facts.iter().zip(segments).enumerate().all(|(at, (facts, id))| {
                let candidate = &self.candidates[id];
                let follower = segments.get(at + 1).map(|after| self.candidates[after].header.previous);
                let link = SegmentLink { end: LogPosition { segment: *id, offset: facts.end }, stamp: facts.stamp };
                let sealed = candidate.trailer.is_some_and(|trailer| {
                    trailer.closed
                        && (trailer.end, trailer.records, trailer.stamp) == (facts.end, facts.records, facts.stamp)
                });
                // What a later segment follows, or the last footer says, is what the index run was made of.
                candidate.header == facts.header && follower.map_or(sealed, |follower| follower == link)
            })
    }
}
