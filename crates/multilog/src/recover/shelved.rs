//! Recovery by shelves: the segments that they index are not read.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use frieze_base::SegmentId;

use super::{Recovered, Recovery};
use crate::error::Error;
use crate::header::{Link, LogPosition};
use crate::shelf::{ChainTip, Facts};

impl Recovery<'_> {
    /// Takes in as many of the oldest segments of `order`, which names the newest first, as shelves index: returns how many.
    pub(super) fn take_shelves(&mut self, order: &[SegmentId]) -> Result<usize, Error> {
        let mut keys = self.reader.shelves()?;
        // The widest first: what was merged into it may still be there.
        keys.sort_by_key(|key| (key.first, Reverse(key.last)));
        let oldest_first: Vec<SegmentId> = order.iter().rev().copied().collect();
        let mut tips = BTreeMap::new();
        let mut companion = Vec::new();
        for key in keys {
            let rest = &oldest_first[self.log.shelved..];
            if rest.first() != Some(&key.first) {
                self.report.free_shelves.push((key, None));
                continue;
            }
            let (shelf, mut contents) = match self.reader.shelf(key) {
                Ok(read) => read,
                Err(Error::DamagedShelf { .. }) => {
                    self.report.free_shelves.push((key, Some("it is damaged")));
                    continue;
                }
                Err(Error::ShelfVersion { .. }) => {
                    self.report.free_shelves.push((key, Some("another build of frieze wrote it")));
                    continue;
                }
                Err(error) => return Err(error),
            };
            if !self.fits(&contents.facts, rest) {
                self.report.free_shelves.push((key, Some("it does not fit the segments")));
                continue;
            }
            contents.leave_out(&self.log.discarded);
            for Facts { header, end, stamp, records, entries_bytes } in &contents.facts {
                let candidate = self.candidates.remove(&header.id).expect("it fits the segments");
                self.open(&candidate);
                let segment = self.segment();
                (segment.end, segment.stamp, segment.records) = (*end, *stamp, *records);
                (segment.entries_bytes, segment.numbers) = (*entries_bytes, None);
                segment.close();
                self.log.tip = self.segment().link();
            }
            self.report.records += shelf.records();
            self.report.shelved_records += shelf.records();
            self.log.take_contents(&contents);
            self.log.add_shelf(shelf);
            tips.extend(contents.chains.iter().map(|tip| (tip.chain, *tip)));
            companion = contents.companion;
        }
        if self.log.shelved > 0 {
            let chains: Vec<ChainTip> = tips.into_values().collect();
            let newest = chains.iter().map(|tip| tip.stamp).max().unwrap_or_default();
            (self.on_recovered)(Recovered::Shelved { chains: &chains, newest, companion: &companion });
        }
        Ok(self.log.shelved)
    }

    /// True if a shelf is about the first of `segments` as they are found, and the last of them is known to be whole.
    fn fits(&self, facts: &[Facts], segments: &[SegmentId]) -> bool {
        facts.len() <= segments.len()
            && facts.iter().zip(segments).enumerate().all(|(at, (facts, id))| {
                let candidate = &self.candidates[id];
                let follower = segments.get(at + 1).map(|after| self.candidates[after].header.previous);
                let link = Link { end: LogPosition { segment: *id, offset: facts.end }, stamp: facts.stamp };
                let sealed = candidate.trailer.is_some_and(|trailer| {
                    trailer.closed
                        && (trailer.end, trailer.records, trailer.stamp) == (facts.end, facts.records, facts.stamp)
                });
                // What a later segment follows, or the last footer says, is what the shelf was made of.
                candidate.header == facts.header && follower.map_or(sealed, |follower| follower == link)
            })
    }
}
