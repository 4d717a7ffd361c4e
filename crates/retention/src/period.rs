//! The periods that a policy may have.

use std::fmt;

use frieze_hlc::Hlc;

/// A distance between two kept instants: a step of one ladder on which each period divides all longer ones.
///
/// The grid of a period is its multiples since 1970 in UTC: a day begins at midnight, a week on a Thursday. The state
/// at a grid point has all stamps with a physical part at or below it.
///
/// Periods that are free numbers do not do: of 1/7min for one file and 1/10min for another one no multiple of the
/// coarser period need be kept for both. On a ladder every multiple of the coarsest period is kept for all files, and
/// two patterns together are the coarser one at each instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GridPeriod(u8);

const SECOND: u64 = 1;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const WEEK: u64 = 7 * DAY;

/// Every period in seconds, and how it is written after `1/`.
const LADDER: [(u64, &str); GridPeriod::COUNT] = [
    (SECOND, "s"),
    (5 * SECOND, "5s"),
    (15 * SECOND, "15s"),
    (30 * SECOND, "30s"),
    (MINUTE, "min"),
    (5 * MINUTE, "5min"),
    (15 * MINUTE, "15min"),
    (30 * MINUTE, "30min"),
    (HOUR, "h"),
    (2 * HOUR, "2h"),
    (6 * HOUR, "6h"),
    (12 * HOUR, "12h"),
    (DAY, "day"),
    (WEEK, "week"),
    (4 * WEEK, "4w"),
    (52 * WEEK, "52w"),
];

impl GridPeriod {
    /// Periods on the ladder.
    pub const COUNT: usize = 16;
    /// The shortest period: a second.
    pub const SHORTEST: GridPeriod = GridPeriod(0);

    /// Every period, the shortest first.
    pub fn all() -> impl DoubleEndedIterator<Item = GridPeriod> {
        (0..Self::COUNT as u8).map(GridPeriod)
    }

    /// The period of exactly this many seconds, if the ladder has it.
    pub fn of_seconds(seconds: u64) -> Option<GridPeriod> {
        Self::all().find(|period| period.seconds() == seconds)
    }

    /// The longest period of at most this many seconds, and the shortest of more.
    pub fn around(seconds: u64) -> (Option<GridPeriod>, Option<GridPeriod>) {
        let below = Self::all().rfind(|period| period.seconds() <= seconds);
        (below, Self::all().find(|period| period.seconds() > seconds))
    }

    /// Its place on the ladder, from 0.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Its length, in seconds.
    pub fn seconds(self) -> u64 {
        LADDER[self.index()].0
    }

    /// Its length, in microseconds.
    pub fn micros(self) -> u64 {
        self.seconds() * 1_000_000
    }

    /// True if `at` is a grid point.
    pub fn has(self, at: Hlc) -> bool {
        at == Hlc::last_of_micros(at.micros()) && at.micros().is_multiple_of(self.micros())
    }

    /// The newest grid point at or below `at`; `None` before the first of 1970.
    pub fn last_at_or_below(self, at: Hlc) -> Option<Hlc> {
        let is_last = at == Hlc::last_of_micros(at.micros());
        let micros = if is_last { at.micros() } else { at.micros().checked_sub(1)? };
        Some(Hlc::last_of_micros(micros - micros % self.micros()))
    }

    /// The oldest grid point at or above `at`; `None` beyond the last that a stamp can have.
    pub fn first_at_or_above(self, at: Hlc) -> Option<Hlc> {
        let micros = at.micros().checked_next_multiple_of(self.micros())?;
        (micros <= Hlc::MICROS_MAX).then(|| Hlc::last_of_micros(micros))
    }
}

/// As a policy writes it: `1/15min`.
impl fmt::Display for GridPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1/{}", LADDER[self.index()].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_period_divides_every_longer_one() {
        let periods: Vec<u64> = GridPeriod::all().map(GridPeriod::seconds).collect();
        for pair in periods.windows(2) {
            assert!(pair[0] < pair[1] && pair[1].is_multiple_of(pair[0]), "{pair:?}");
        }
    }

    #[test]
    fn a_grid_point_has_every_stamp_of_its_microsecond() {
        let minute = GridPeriod::of_seconds(60).unwrap();
        let point = Hlc::last_of_micros(120_000_000);
        assert!(minute.has(point) && !minute.has(point.previous()) && !minute.has(point.next()));
        assert_eq!(minute.last_at_or_below(point.next()), Some(point));
        assert_eq!(minute.last_at_or_below(point), Some(point));
        assert_eq!(minute.last_at_or_below(point.previous()), Some(Hlc::last_of_micros(60_000_000)));
        assert_eq!(minute.first_at_or_above(point.previous()), Some(point));
        assert_eq!(minute.first_at_or_above(point.next()), Some(Hlc::last_of_micros(180_000_000)));
        assert_eq!(minute.last_at_or_below(Hlc::ZERO), None);
        assert_eq!(minute.first_at_or_above(Hlc::MAX), None);
    }
}
