//! User times of one file's records, by stamp.
//!
//! Guarantees: the same records give the same marks, in whatever order chains bring them.
//! Leaves to others: since when the times of a file count (`namespace`, [ADR
//! 59](../../../../docs/adr/0059-begin-user-times-anew.md)): a question names the stamp after which they do.
//!
//! Among the records that count, a record is at or below a user time if it and all before it are. A head refuses a time
//! below the newest that counts, so within one question times rise, but for the few that two heads stamped at one time.
//! What is kept is therefore the time of each record, and where times fall: a question looks at one *run* of rising
//! times after the other, each by binary search. A table that is written over falls once, and its new rows are one run.

use frieze_hlc::{Hlc, UserTime};

use crate::slim::push_slim;

/// A user time, translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserCut {
    /// Reading at this stamp is reading at that user time; [`Hlc::ZERO`] before the first user time of the file.
    pub stamp: Hlc,
    /// Stamp of the next record with a user time: its newest lies above, rows at its beginning may not.
    pub next: Option<Hlc>,
    /// True while the file holds no later user time, of those that count: more records may still belong to the answer.
    pub open: bool,
}

/// Stamps rise; times may fall.
#[derive(Debug, Default)]
pub(crate) struct UserTimeMarks {
    marks: Vec<(Hlc, UserTime)>,
    /// Stamps of those that lie below the one before.
    falls: Vec<Hlc>,
}

impl UserTimeMarks {
    /// Adds the time of a record, and returns by how much the memory grew.
    pub(super) fn add(&mut self, stamp: Hlc, time: UserTime) -> usize {
        let at = self.marks.partition_point(|(other, _)| *other < stamp);
        let mut grown = 0;
        match self.marks.get_mut(at) {
            // The parts of a group share their mark; records of equal stamp are read together.
            Some((same, known)) if *same == stamp => *known = time.max(*known),
            _ => {
                grown += push_slim(&mut self.marks, (stamp, time));
                self.marks[at..].rotate_right(1);
            }
        }
        grown += self.note_fall(at);
        grown + self.note_fall(at + 1)
    }

    /// Forgets the marks of later records.
    pub(super) fn keep_upto(&mut self, last: Hlc) {
        self.marks.retain(|(stamp, _)| *stamp <= last);
        self.falls.retain(|stamp| *stamp <= last);
    }

    /// The stamp at which the file is read for a user time, of records stamped in `(after, upto]`; `None` if there are
    /// none.
    pub(crate) fn cut(&self, user: UserTime, after: Hlc, upto: Hlc) -> Option<UserCut> {
        let (from, to) = self.span(after, upto);
        if from == to {
            return None;
        }
        let later = self.first_above(user, from, to);
        let stamp = later.unwrap_or(to).checked_sub(1).filter(|last| *last >= from);
        Some(UserCut {
            stamp: stamp.map_or(Hlc::ZERO, |last| self.marks[last].0),
            next: later.map(|next| self.marks[next].0),
            open: self.first_above(user, from, self.marks.len()).is_none(),
        })
    }

    /// Newest time of records stamped in `(after, upto]`.
    pub(crate) fn newest(&self, after: Hlc, upto: Hlc) -> Option<UserTime> {
        let (from, to) = self.span(after, upto);
        self.runs(from, to).map(|(_, end)| self.marks[end - 1].1).max()
    }

    fn span(&self, after: Hlc, upto: Hlc) -> (usize, usize) {
        let from = self.marks.partition_point(|(stamp, _)| *stamp <= after);
        (from, from.max(self.marks.partition_point(|(stamp, _)| *stamp <= upto)))
    }

    /// The first of `from..to` whose time is above `user`.
    fn first_above(&self, user: UserTime, from: usize, to: usize) -> Option<usize> {
        let above = |(start, end): (usize, usize)| {
            let at = start + self.marks[start..end].partition_point(|(_, time)| *time <= user);
            (at < end).then_some(at)
        };
        self.runs(from, to).find_map(above)
    }

    /// The runs of rising times in `from..to`, none of them empty.
    fn runs(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, usize)> {
        let mut start = from;
        let first = self.marks.get(from).map_or(Hlc::MAX, |(stamp, _)| *stamp);
        let mut falls = self.falls[self.falls.partition_point(|fall| *fall <= first)..].iter();
        std::iter::from_fn(move || {
            let end = falls.next().map_or(to, |fall| self.marks.partition_point(|(stamp, _)| stamp < fall)).min(to);
            let run = (start < end).then_some((start, end));
            start = end;
            run
        })
    }

    /// Notes whether the mark at `at`, if there is one, lies below the one before.
    fn note_fall(&mut self, at: usize) -> usize {
        let Some((stamp, time)) = self.marks.get(at).copied() else { return 0 };
        let falls = at > 0 && time < self.marks[at - 1].1;
        match (falls, self.falls.binary_search(&stamp)) {
            (true, Err(place)) => {
                let grown = push_slim(&mut self.falls, stamp);
                self.falls[place..].rotate_right(1);
                grown
            }
            (false, Ok(place)) => {
                self.falls.remove(place);
                0
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frieze_base::Rng;

    /// Answers found mark by mark.
    fn expected(all: &[(Hlc, UserTime)], user: UserTime, after: Hlc, upto: Hlc) -> Option<UserCut> {
        let counted: Vec<_> = all.iter().filter(|(stamp, _)| *stamp > after).collect();
        let within = counted.iter().filter(|(stamp, _)| *stamp <= upto).count();
        let later = counted.iter().position(|(_, time)| *time > user);
        let below = later.unwrap_or(counted.len()).min(within);
        (within > 0).then(|| UserCut {
            stamp: below.checked_sub(1).map_or(Hlc::ZERO, |last| counted[last].0),
            next: later.filter(|next| *next < within).map(|next| counted[next].0),
            open: later.is_none(),
        })
    }

    #[test]
    fn any_order_of_arrival_answers_as_a_look_at_every_mark() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let falls = [1, 2, 20][rng.below(3) as usize];
            let mut time = 0;
            let mut all: Vec<(Hlc, UserTime)> = (1..=rng.between(1, 40))
                .map(|n| {
                    time = if rng.chance(falls) { rng.below(50) as i64 } else { time + rng.below(4) as i64 };
                    (Hlc(n * 10), UserTime(time))
                })
                .collect();
            let mut marks = UserTimeMarks::default();
            let mut order: Vec<usize> = (0..all.len()).collect();
            order.sort_by_cached_key(|at| *at as u64 + rng.below(6));
            for at in order {
                marks.add(all[at].0, all[at].1);
                if rng.chance(8) {
                    // Two records of one stamp.
                    let more = UserTime(rng.below(60) as i64);
                    marks.add(all[at].0, more);
                    all[at].1 = all[at].1.max(more);
                }
            }
            for _ in 0..200 {
                let (after, upto) = (Hlc(rng.below(420)), Hlc(rng.below(420)));
                let user = UserTime(rng.below(70) as i64 - 5);
                let found = marks.cut(user, after, upto);
                assert_eq!(found, expected(&all, user, after, upto), "seed {seed}, {user:?} in ({after}, {upto}]");
                let counted = all.iter().filter(|(stamp, _)| *stamp > after && *stamp <= upto);
                assert_eq!(marks.newest(after, upto), counted.map(|(_, time)| *time).max(), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_table_written_over_has_one_run_more_however_many_rows_it_has() {
        let mut marks = UserTimeMarks::default();
        for n in 0..1000u64 {
            marks.add(Hlc(n + 1), UserTime((n % 500) as i64));
        }
        assert_eq!(marks.falls, [Hlc(501)]);
        assert_eq!(marks.newest(Hlc(500), Hlc(600)), Some(UserTime(99)));
    }
}
