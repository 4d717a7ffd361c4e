//! Patterns of kept instants, and how two become one.

use frieze_hlc::Hlc;

use crate::period::GridPeriod;

/// Which instants marks leave: for each period the instant below which only its grid is kept, and the one below which
/// nothing is. It only grows, and two together are the coarser one at each instant.
///
/// It has the same size whatever it is made of, so a file may change its policy every hour: what all of them have left
/// is 17 instants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thinning {
    /// By the index of the period; instants at or above are not thinned by it.
    grids: [Hlc; GridPeriod::COUNT],
    /// Below it nothing is kept.
    nothing: Hlc,
}

/// What is kept around an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Density {
    All,
    Grid(GridPeriod),
    Nothing,
}

impl Thinning {
    /// Thins instants below `upto` to the grid of `period`, or to nothing. A smaller instant than before changes
    /// nothing.
    pub fn raise(&mut self, period: Option<GridPeriod>, upto: Hlc) {
        let mark = self.mark_mut(period);
        *mark = (*mark).max(upto);
    }

    /// The instant below which only the grid of `period` is kept, or nothing.
    pub fn mark(&self, period: Option<GridPeriod>) -> Hlc {
        period.map_or(self.nothing, |period| self.grids[period.index()])
    }

    fn mark_mut(&mut self, period: Option<GridPeriod>) -> &mut Hlc {
        match period {
            Some(period) => &mut self.grids[period.index()],
            None => &mut self.nothing,
        }
    }

    /// Its instants: those of the periods from the shortest to the longest, then the one below which nothing is kept.
    pub fn marks(&self) -> impl Iterator<Item = Hlc> + '_ {
        self.grids.iter().copied().chain([self.nothing])
    }

    /// From what [`Thinning::marks`] gave; `None` for another number of instants.
    pub fn of_marks(marks: &[Hlc]) -> Option<Thinning> {
        let (nothing, grids) = marks.split_last()?;
        Some(Thinning { grids: grids.try_into().ok()?, nothing: *nothing })
    }

    /// The instant at and above which it thins nothing.
    pub fn end(&self) -> Hlc {
        self.marks().max().unwrap_or_default()
    }

    /// Leaves what both leave.
    pub fn join(&mut self, other: &Thinning) {
        for period in GridPeriod::all().map(Some).chain([None]) {
            self.raise(period, other.mark(period));
        }
    }

    /// True if marks leave the instant.
    pub fn is_kept(&self, at: Hlc) -> bool {
        match self.density(at) {
            Density::All => true,
            Density::Grid(period) => period.has(at),
            Density::Nothing => false,
        }
    }

    /// The newest instant at or below `at` that marks leave.
    ///
    /// # Cost
    /// A step for each period that thins something below `at`.
    pub fn last_at_or_below(&self, mut at: Hlc) -> Option<Hlc> {
        loop {
            let (period, coarser) = match self.density(at) {
                Density::All => return Some(at),
                Density::Nothing => return None,
                Density::Grid(period) => (period, self.coarser_than(period)),
            };
            match period.last_at_or_below(at) {
                Some(point) if point >= coarser => return Some(point),
                // The stretch of this period has no point at or below: the next stretch is older and coarser.
                _ if coarser == Hlc::ZERO => return None,
                _ => at = coarser.previous(),
            }
        }
    }

    /// The oldest instant at or above `at` that marks leave. There is one: no mark is above every stamp.
    ///
    /// # Cost
    /// A step for each period that thins something above `at`.
    pub fn first_at_or_above(&self, mut at: Hlc) -> Hlc {
        loop {
            let (point, end) = match self.density(at) {
                Density::All => return at,
                Density::Nothing => (None, self.nothing),
                Density::Grid(period) => (period.first_at_or_above(at), self.mark(Some(period))),
            };
            match point {
                Some(point) if point < end => return point,
                _ => at = end,
            }
        }
    }

    /// The instant below which a class thins, by its period as a policy writes it; ZERO for others.
    pub fn class_end(&self, period: &str) -> Hlc {
        let periods = GridPeriod::all().map(|period| (period.to_string(), Some(period)));
        let mut all = periods.chain([("none".to_owned(), None)]);
        all.find(|(name, _)| name == period).map_or(Hlc::ZERO, |(_, period)| self.mark(period))
    }

    /// The period that thins around an instant, as a policy writes it: `all` for none, `none` where nothing is kept.
    pub fn class_at(&self, at: Hlc) -> String {
        match self.density(at) {
            Density::All => "all".to_owned(),
            Density::Grid(period) => period.to_string(),
            Density::Nothing => "none".to_owned(),
        }
    }

    fn density(&self, at: Hlc) -> Density {
        if at < self.nothing {
            return Density::Nothing;
        }
        let thinned = GridPeriod::all().rfind(|period| at < self.grids[period.index()]);
        thinned.map_or(Density::All, Density::Grid)
    }

    /// Below this instant something coarser than `period` thins.
    fn coarser_than(&self, period: GridPeriod) -> Hlc {
        let coarser = self.grids[period.index() + 1..].iter().copied();
        coarser.chain([self.nothing]).max().unwrap_or_default()
    }
}
