//! Which files the records of an interval touch: the part of the index of time that belongs to a device.

use frieze_base::{InodeId, varint};
use frieze_hlc::Hlc;

use crate::slim::{heap_bytes, push_slim, reserve_slim};

/// The files of every run of 256 records, each once, sorted and as differences: about a byte or two a record, and one a
/// run where a file is streamed. Records come nearly in the order of their stamps; where a chain brings its history
/// they do not, so every run knows the stamps of its first and last, and every 64 runs do, and those that cannot hold
/// any of an interval are passed over.
#[derive(Debug, Default)]
pub(crate) struct TimeRuns {
    runs: Vec<TimeRun>,
    /// The stamps of every 64 runs.
    spans: Vec<(Hlc, Hlc)>,
    files: Vec<u8>,
    /// Files of the run that is not full.
    open: Vec<InodeId>,
    open_first: Hlc,
    open_last: Hlc,
    open_records: u32,
}

/// Records stamped from `first` to `last`.
#[derive(Clone, Copy, Debug)]
struct TimeRun {
    first: Hlc,
    last: Hlc,
    /// Where its files begin.
    at: u64,
}

impl TimeRuns {
    /// Adds the next record.
    pub(crate) fn push(&mut self, inode: InodeId, stamp: Hlc) {
        if self.open_records == 0 {
            (self.open_first, self.open_last) = (stamp, stamp);
        }
        (self.open_first, self.open_last) = (self.open_first.min(stamp), self.open_last.max(stamp));
        self.open_records += 1;
        if self.open.last() != Some(&inode) {
            push_slim(&mut self.open, inode);
        }
        if self.open_records == RUN {
            self.close();
        }
    }

    /// Adds to `out` every file with a record stamped in `(after, upto]`, and perhaps some with none: those that share
    /// a run with one that has. Returns how many entries were looked at.
    pub(crate) fn files(&self, after: Hlc, upto: Hlc, out: &mut Vec<InodeId>) -> u64 {
        if after >= upto {
            return 0;
        }
        let before = out.len();
        let spans = self.spans_in(after, upto);
        let numbers = spans.flat_map(|(span, _)| span * SPAN..self.runs.len().min((span + 1) * SPAN));
        for (number, run) in numbers
            .map(|number| (number, self.runs[number]))
            .filter(|(_, run)| meets((run.first, run.last), after, upto))
        {
            let end = self.runs.get(number + 1).map_or(self.files.len(), |next| next.at as usize);
            let mut rest = &self.files[run.at as usize..end];
            let mut inode = 0;
            while let Some(more) = varint::take(&mut rest) {
                inode += more;
                out.push(InodeId(inode));
            }
        }
        if self.open_in(after, upto).next().is_some() {
            out.extend_from_slice(&self.open);
        }
        let looked_at = (out.len() - before) as u64;
        out[before..].sort_unstable();
        let mut kept: Vec<InodeId> = out.split_off(before);
        kept.dedup();
        out.append(&mut kept);
        looked_at
    }

    /// An instant in `(after, upto]` up to which about `records_max` records follow `after`, or more where so many
    /// share a stretch of time; `upto` if there are no more.
    pub(crate) fn reach(&self, after: Hlc, upto: Hlc, records_max: usize) -> Hlc {
        let wanted = records_max / RUN as usize + 1;
        let mut spans: Vec<(Hlc, usize)> = self.spans_in(after, upto).map(|(span, (first, _))| (first, span)).collect();
        spans.sort_unstable();
        let mut firsts: Vec<Hlc> = self.open_in(after, upto).map(|(first, _)| first).collect();
        for (position, &(_, span)) in spans.iter().enumerate() {
            firsts.extend(self.runs_in(span, after, upto).map(|run| run.first));
            // Runs of the spans that follow begin no earlier.
            let is_enough = |next: &(Hlc, usize)| firsts.iter().filter(|first| **first <= next.0).count() > wanted;
            if spans.get(position + 1).is_some_and(is_enough) {
                break;
            }
        }
        firsts.sort_unstable();
        let beyond = firsts.iter().skip(wanted).find(|first| first.previous() > after);
        beyond.map_or(upto, |first| first.previous())
    }

    /// As [`TimeRuns::reach`], back from `upto`: an instant not before `after` from which about `records_max` records
    /// follow up to `upto`; `after` if there are no more.
    pub(crate) fn reach_back(&self, after: Hlc, upto: Hlc, records_max: usize) -> Hlc {
        let wanted = records_max / RUN as usize + 1;
        let mut spans: Vec<(Hlc, usize)> = self.spans_in(after, upto).map(|(span, (_, last))| (last, span)).collect();
        spans.sort_unstable_by(|one, other| other.cmp(one));
        let mut lasts: Vec<Hlc> = self.open_in(after, upto).map(|(_, last)| last).collect();
        for (position, &(_, span)) in spans.iter().enumerate() {
            lasts.extend(self.runs_in(span, after, upto).map(|run| run.last));
            let is_enough = |next: &(Hlc, usize)| lasts.iter().filter(|last| **last >= next.0).count() > wanted;
            if spans.get(position + 1).is_some_and(is_enough) {
                break;
            }
        }
        lasts.sort_unstable_by(|one, other| other.cmp(one));
        lasts.iter().skip(wanted).copied().find(|last| *last < upto).map_or(after, |last| last.max(after))
    }

    /// The spans that may have a run in `(after, upto]`, and their stamps.
    fn spans_in(&self, after: Hlc, upto: Hlc) -> impl Iterator<Item = (usize, (Hlc, Hlc))> {
        self.spans.iter().copied().enumerate().filter(move |(_, span)| meets(*span, after, upto))
    }

    fn runs_in(&self, span: usize, after: Hlc, upto: Hlc) -> impl Iterator<Item = &TimeRun> {
        let end = self.runs.len().min((span + 1) * SPAN);
        self.runs[span * SPAN..end].iter().filter(move |run| meets((run.first, run.last), after, upto))
    }

    /// The stamps of the run that is not full, if it may have a record in `(after, upto]`.
    fn open_in(&self, after: Hlc, upto: Hlc) -> impl Iterator<Item = (Hlc, Hlc)> {
        let open = (self.open_first, self.open_last);
        (self.open_records > 0 && meets(open, after, upto)).then_some(open).into_iter()
    }

    /// Memory held, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        heap_bytes(self.runs.capacity() * size_of::<TimeRun>())
            + heap_bytes(self.spans.capacity() * size_of::<(Hlc, Hlc)>())
            + heap_bytes(self.files.capacity())
            + heap_bytes(self.open.capacity() * size_of::<InodeId>())
    }

    /// Adds what another one says of later records. Nothing is open in either.
    pub(crate) fn append(&mut self, later: &TimeRuns) {
        assert!(self.open_records == 0 && later.open_records == 0, "the index of time of a part is closed");
        let before = self.files.len() as u64;
        // What an older server has kept does not say where its last run ends; what it kept next begins there.
        if let (Some(run), Some(next)) = (self.runs.last_mut(), later.runs.first())
            && run.last == Hlc::MAX
            && next.first >= run.first
        {
            run.last = next.first;
        }
        reserve_slim(&mut self.runs, later.runs.len());
        for run in &later.runs {
            self.add(TimeRun { at: before + run.at, ..*run });
        }
        reserve_slim(&mut self.files, later.files.len());
        self.files.extend_from_slice(&later.files);
    }

    /// As bytes; what is open is left out. A run says where it begins, and ends where the next begins. Where that is
    /// not so, a run without files comes between them.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut told: Vec<(Hlc, u64)> = Vec::with_capacity(self.runs.len() + 1);
        for (number, run) in self.runs.iter().enumerate() {
            told.push((run.first, run.at));
            let next = self.runs.get(number + 1);
            if run.last != Hlc::MAX && next.is_none_or(|next| next.first < run.last) {
                told.push((run.last, next.map_or(self.files.len() as u64, |next| next.at)));
            }
        }
        let mut bytes = Vec::with_capacity(10 + 4 * told.len() + self.files.len());
        varint::put(&mut bytes, told.len() as u64);
        let (mut first, mut at) = (0, 0);
        for (stamp, begins) in told {
            varint::put_difference(&mut bytes, first, stamp.0);
            varint::put(&mut bytes, begins - at);
            (first, at) = (stamp.0, begins);
        }
        bytes.extend_from_slice(&self.files);
        bytes
    }

    /// From bytes; `None` if they are none.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<TimeRuns> {
        let mut told: Vec<(Hlc, u64)> = Vec::new();
        let (mut first, mut at) = (0, 0u64);
        for _ in 0..varint::take(&mut bytes)? {
            first = varint::take_difference(&mut bytes, first)?;
            at = at.checked_add(varint::take(&mut bytes)?)?;
            told.push((Hlc(first), at));
        }
        let mut time_runs = TimeRuns { files: bytes.to_vec(), ..TimeRuns::default() };
        let end = time_runs.files.len() as u64;
        for (number, &(first, at)) in told.iter().enumerate() {
            let next = told.get(number + 1);
            if at < next.map_or(end, |next| next.1) {
                let last = next.map(|next| next.0).filter(|next| *next >= first).unwrap_or(Hlc::MAX);
                time_runs.add(TimeRun { first, last, at });
            }
        }
        (at <= end).then_some(time_runs)
    }

    fn add(&mut self, run: TimeRun) {
        if self.runs.len().is_multiple_of(SPAN) {
            push_slim(&mut self.spans, (run.first, run.last));
        }
        if let Some(span) = self.spans.last_mut() {
            *span = (span.0.min(run.first), span.1.max(run.last));
        }
        push_slim(&mut self.runs, run);
    }

    /// Ends the run that is not full.
    pub(crate) fn close(&mut self) {
        if self.open_records == 0 {
            return;
        }
        self.add(TimeRun { first: self.open_first, last: self.open_last, at: self.files.len() as u64 });
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

/// True if records stamped from the first of `stamps` to the last may be in `(after, upto]`.
fn meets(stamps: (Hlc, Hlc), after: Hlc, upto: Hlc) -> bool {
    stamps.0 <= upto && stamps.1 > after
}

/// Records in a run: more cost a look at a short interval, fewer cost memory.
const RUN: u32 = 256;
/// Runs that are passed over at once.
const SPAN: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use frieze_base::Rng;

    use super::*;

    #[test]
    fn a_reach_holds_about_as_many_records_as_asked_for_and_all_reaches_all_of_them() {
        for disorder in [1, 2000] {
            let mut rng = Rng::new(7);
            let mut time_runs = TimeRuns::default();
            let mut stamps: Vec<Hlc> = Vec::new();
            for number in 0..100_000u64 {
                let stamp = Hlc(1000 + number * 10 + rng.below(disorder));
                time_runs.push(InodeId(number % 50), stamp);
                stamps.push(stamp);
            }
            stamps.sort_unstable();
            let count =
                |after: Hlc, upto: Hlc| stamps.iter().filter(|stamp| **stamp > after && **stamp <= upto).count();
            let (end, bound) = (Hlc(2_000_000), 4096 + 4 * RUN as usize);
            let (mut at, mut back, mut pages) = (Hlc::ZERO, end, 0);
            while at < end {
                let next = time_runs.reach(at, end, 4096);
                assert!(next > at && count(at, next) <= bound, "{at} {next} {}", count(at, next));
                let earlier = time_runs.reach_back(Hlc::ZERO, back, 4096);
                assert!(earlier < back || back == Hlc::ZERO, "{earlier} {back}");
                assert!(count(earlier, back) <= bound, "{earlier} {back} {}", count(earlier, back));
                (at, back, pages) = (next, earlier, pages + 1);
            }
            assert!(back == Hlc::ZERO && (20..40).contains(&pages), "{pages} pages, {back}");
            assert_eq!(TimeRuns::default().reach(Hlc(5), Hlc(9), 1), Hlc(9));
            assert_eq!(TimeRuns::default().reach_back(Hlc(5), Hlc(9), 1), Hlc(5));
        }
    }

    #[test]
    fn every_file_of_an_interval_is_found() {
        let mut rng = Rng::new(11);
        let mut time_runs = TimeRuns::default();
        let mut records: Vec<(Hlc, InodeId)> = Vec::new();
        for number in 0..5000u64 {
            // Stamps come in pairs, so that some lie on both sides of a run's edge.
            let record = (Hlc(10 + number / 2 * 5), InodeId(rng.below(40) * rng.below(1 << 30) + 1));
            time_runs.push(record.1, record.0);
            records.push(record);
        }
        for _ in 0..300 {
            let after = Hlc(rng.below(13_000));
            let upto = Hlc(after.0 + rng.below(3000));
            let mut found = Vec::new();
            let looked_at = time_runs.files(after, upto, &mut found);
            let in_interval = records.iter().filter(|(stamp, _)| *stamp > after && *stamp <= upto);
            let expect: BTreeSet<InodeId> = in_interval.clone().map(|(_, inode)| *inode).collect();
            let found_set: BTreeSet<InodeId> = found.iter().copied().collect();
            assert_eq!(found.len(), found_set.len(), "each once");
            assert!(expect.is_subset(&found_set), "({after}, {upto}]");
            assert!(looked_at <= in_interval.count() as u64 + 2 * u64::from(RUN), "{looked_at}");
        }
    }

    #[test]
    fn files_are_found_wherever_a_chain_put_its_history() {
        let mut rng = Rng::new(12);
        let mut index_runs: Vec<TimeRuns> = Vec::new();
        let mut records: Vec<(Hlc, InodeId)> = Vec::new();
        for index_run in 0..4u64 {
            let mut time_runs = TimeRuns::default();
            for number in 0..3000u64 {
                // What is new, and what is old, by turns.
                let stamp = if number % 2 == 0 {
                    1_000_000 + (index_run * 3000 + number) * 10
                } else {
                    (index_run * 3000 + number) * 7
                };
                let record = (Hlc(stamp + rng.below(50)), InodeId(rng.below(500) + 1));
                time_runs.push(record.1, record.0);
                records.push(record);
            }
            time_runs.close();
            index_runs.push(time_runs);
        }
        let mut all = TimeRuns::default();
        for index_run in &index_runs {
            let mut read = TimeRuns::default();
            read.append(&TimeRuns::decode(&index_run.encode()).expect("what was encoded"));
            all.append(&TimeRuns::decode(&read.encode()).expect("what was encoded again"));
        }
        for _ in 0..300 {
            let after = Hlc(rng.below(1_200_000));
            let upto = Hlc(after.0 + rng.below(5000));
            let mut found = Vec::new();
            all.files(after, upto, &mut found);
            let in_interval = records.iter().filter(|(stamp, _)| *stamp > after && *stamp <= upto);
            assert!(in_interval.clone().all(|(_, inode)| found.contains(inode)), "({after}, {upto}]");
        }
        let mut found = Vec::new();
        assert_eq!(all.files(Hlc(2_000_000), Hlc::MAX, &mut found), 0, "nothing is as new");
    }

    #[test]
    fn a_record_costs_a_byte_or_two() {
        let mut time_runs = TimeRuns::default();
        for number in 0..100_000u64 {
            time_runs.push(InodeId(1000 + number), Hlc(number));
        }
        assert!(time_runs.heap_bytes() < 150_000, "{} bytes for small files", time_runs.heap_bytes());
        let mut streams = TimeRuns::default();
        for number in 0..100_000u64 {
            streams.push(InodeId(number % 8), Hlc(number));
        }
        assert!(streams.heap_bytes() < 20_000, "{} bytes for streams", streams.heap_bytes());
    }

    #[test]
    fn any_bytes_are_an_index_of_time_or_none() {
        let mut rng = Rng::new(9);
        let mut time_runs = TimeRuns::default();
        for number in 0..1500 {
            time_runs.push(InodeId(rng.below(50)), Hlc(1000 + number * 10 + rng.below(100)));
        }
        time_runs.close();
        frieze_harness::fuzz!([time_runs.encode()], |bytes: &[u8]| {
            if let Some(decoded) = TimeRuns::decode(bytes) {
                let again = decoded.encode();
                let decoded = TimeRuns::decode(&again).expect("what was encoded");
                assert_eq!(decoded.encode(), again);
            }
        });
    }
}
