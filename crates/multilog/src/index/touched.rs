//! Which files the records of an interval touch: the part of the index of time that belongs to a device.

use frieze_base::InodeId;
use frieze_hlc::Hlc;

use super::{heap_bytes, push_slim, reserve_slim};
use crate::varint;

/// The files of every run of 256 records, each once, sorted and as differences: about a byte or two a record, and one a
/// run where a file is streamed. Records come in the order of their stamps.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    runs: Vec<Run>,
    files: Vec<u8>,
    /// Files of the run that is not full.
    open: Vec<InodeId>,
    open_first: Hlc,
    open_records: u32,
}

/// Records from `first` on, until the next run.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: Hlc,
    /// Where its files begin.
    at: u64,
}

impl Touched {
    /// Takes in the next record.
    pub(crate) fn push(&mut self, inode: InodeId, stamp: Hlc) {
        if self.open_records == 0 {
            self.open_first = stamp;
        }
        self.open_records += 1;
        if self.open.last() != Some(&inode) {
            push_slim(&mut self.open, inode);
        }
        if self.open_records == RUN {
            self.close();
        }
    }

    /// Adds to `out` every file with a record stamped in `(after, upto]`, and perhaps some with none: those that share a
    /// run with one that has. Returns how many entries were looked at.
    pub(crate) fn files(&self, after: Hlc, upto: Hlc, out: &mut Vec<InodeId>) -> u64 {
        if after >= upto {
            return 0;
        }
        let before = out.len();
        // A run may begin with the stamp that the one before ended with, so the last that begins at or before counts.
        let from = self.runs.partition_point(|run| run.first <= after).saturating_sub(1);
        for (number, run) in self.runs.iter().enumerate().skip(from).take_while(|(_, run)| run.first <= upto) {
            let end = self.runs.get(number + 1).map_or(self.files.len(), |next| next.at as usize);
            let mut rest = &self.files[run.at as usize..end];
            let mut inode = 0;
            while let Some(more) = varint::take(&mut rest) {
                inode += more;
                out.push(InodeId(inode));
            }
        }
        if self.open_records > 0 && self.open_first <= upto {
            out.extend_from_slice(&self.open);
        }
        let looked_at = (out.len() - before) as u64;
        out[before..].sort_unstable();
        let mut kept: Vec<InodeId> = out.split_off(before);
        kept.dedup();
        out.append(&mut kept);
        looked_at
    }

    /// Memory held, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        heap_bytes(self.runs.capacity() * size_of::<Run>())
            + heap_bytes(self.files.capacity())
            + heap_bytes(self.open.capacity() * size_of::<InodeId>())
    }

    /// Adds what another one says of later records. Nothing is open in either.
    pub(crate) fn append(&mut self, later: &Touched) {
        assert!(self.open_records == 0 && later.open_records == 0, "the index of time of a part is closed");
        let before = self.files.len() as u64;
        reserve_slim(&mut self.runs, later.runs.len());
        self.runs.extend(later.runs.iter().map(|run| Run { at: before + run.at, ..*run }));
        reserve_slim(&mut self.files, later.files.len());
        self.files.extend_from_slice(&later.files);
    }

    /// As bytes; what is open is left out.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(10 + 4 * self.runs.len() + self.files.len());
        varint::put(&mut bytes, self.runs.len() as u64);
        let (mut first, mut at) = (0, 0);
        for run in &self.runs {
            varint::put_difference(&mut bytes, first, run.first.0);
            varint::put(&mut bytes, run.at - at);
            (first, at) = (run.first.0, run.at);
        }
        bytes.extend_from_slice(&self.files);
        bytes
    }

    /// From bytes; `None` if they are none.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Touched> {
        let mut touched = Touched::default();
        let (mut first, mut at) = (0, 0u64);
        for _ in 0..varint::take(&mut bytes)? {
            first = varint::take_difference(&mut bytes, first)?;
            at = at.checked_add(varint::take(&mut bytes)?)?;
            push_slim(&mut touched.runs, Run { first: Hlc(first), at });
        }
        touched.files = bytes.to_vec();
        (at <= touched.files.len() as u64).then_some(touched)
    }

    /// Ends the run that is not full.
    pub(crate) fn close(&mut self) {
        if self.open_records == 0 {
            return;
        }
        push_slim(&mut self.runs, Run { first: self.open_first, at: self.files.len() as u64 });
        self.open.sort_unstable();
        self.open.dedup();
        reserve_slim(&mut self.files, self.open.len() * 10);
        let mut last = 0;
        for inode in self.open.drain(..) {
            varint::put(&mut self.files, inode.0 - last);
            last = inode.0;
        }
        self.open_records = 0;
    }
}

/// Records in a run: more cost a look at a short interval, fewer cost memory.
const RUN: u32 = 256;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use frieze_base::Rng;

    use super::*;

    #[test]
    fn every_file_of_an_interval_is_found() {
        let mut rng = Rng::new(11);
        let mut touched = Touched::default();
        let mut records: Vec<(Hlc, InodeId)> = Vec::new();
        for number in 0..5000u64 {
            // Stamps come in pairs, so that some lie on both sides of a run's edge.
            let record = (Hlc(10 + number / 2 * 5), InodeId(rng.below(40) * rng.below(1 << 30) + 1));
            touched.push(record.1, record.0);
            records.push(record);
        }
        for _ in 0..300 {
            let after = Hlc(rng.below(13_000));
            let upto = Hlc(after.0 + rng.below(3000));
            let mut found = Vec::new();
            let looked_at = touched.files(after, upto, &mut found);
            let in_interval = records.iter().filter(|(stamp, _)| *stamp > after && *stamp <= upto);
            let expect: BTreeSet<InodeId> = in_interval.clone().map(|(_, inode)| *inode).collect();
            let found_set: BTreeSet<InodeId> = found.iter().copied().collect();
            assert_eq!(found.len(), found_set.len(), "each once");
            assert!(expect.is_subset(&found_set), "({after}, {upto}]");
            assert!(looked_at <= in_interval.count() as u64 + 2 * u64::from(RUN), "{looked_at}");
        }
    }

    #[test]
    fn a_record_costs_a_byte_or_two() {
        let mut touched = Touched::default();
        for number in 0..100_000u64 {
            touched.push(InodeId(1000 + number), Hlc(number));
        }
        assert!(touched.heap_bytes() < 150_000, "{} bytes for small files", touched.heap_bytes());
        let mut streams = Touched::default();
        for number in 0..100_000u64 {
            streams.push(InodeId(number % 8), Hlc(number));
        }
        assert!(streams.heap_bytes() < 20_000, "{} bytes for streams", streams.heap_bytes());
    }
}
