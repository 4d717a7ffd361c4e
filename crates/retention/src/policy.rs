//! Policies: classes of age, and how close together the instants of each are.

use std::fmt;
use std::str::FromStr;

use frieze_hlc::Hlc;

use crate::error::RetentionError;
use crate::period::GridPeriod;
use crate::thinning::Thinning;

/// How long a class lasts, counted from the instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AgeBound {
    /// Up to an age, in seconds, of [`AgeBound::SECONDS_MAX`] at most.
    Seconds(u64),
    /// Without an end.
    Forever,
}

impl AgeBound {
    /// The largest age, 50 years: stamps reach the year 2112, and what is to outlast a career is meant for ever.
    pub const SECONDS_MAX: u64 = 50 * YEAR;
}

/// A class of a policy: from the age of the class before it up to its own, one instant of each period is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetentionClass {
    /// Distance of the kept instants.
    pub period: GridPeriod,
    /// Age at which the class ends. Behind the last class nothing is kept but what is pinned.
    pub until: AgeBound,
}

/// Which instants of a file are kept: all while they are young, then one of each period, coarser with age.
///
/// ```
/// use frieze_retention::RetentionPolicy;
///
/// let policy: RetentionPolicy = "all 1h, 1/min 1d, 1/day forever".parse()?;
/// assert_eq!(policy.to_string(), "all 1h, 1/min 1d, 1/day forever");
/// let refused = "all 1h, 1/7min 1d".parse::<RetentionPolicy>().unwrap_err();
/// assert!(refused.to_string().ends_with("write 1/5min or 1/15min"));
/// # Ok::<(), frieze_retention::RetentionError>(())
/// ```
///
/// The text: `all AGE`, then `1/PERIOD AGE` for each class, with commas between. A unit is `s`, `min`, `h`, `d`, `w`
/// (`sec`, `hour`, `day`, `week` too); an age may also be in years of 365 days (`y`), or `forever`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RetentionPolicy {
    all_until: AgeBound,
    classes: Vec<RetentionClass>,
}

impl RetentionPolicy {
    /// Most classes of a policy, the one that keeps all instants among them.
    pub const CLASSES_MAX: usize = 16;

    /// Age below which every instant is kept.
    pub fn all_until(&self) -> AgeBound {
        self.all_until
    }

    /// The classes behind that, from the young to the old.
    pub fn classes(&self) -> &[RetentionClass] {
        &self.classes
    }

    /// Classes that can have marks: 1 is the first behind the one that keeps all instants. The last one means that
    /// nothing is kept, and is missing if the policy has no end.
    pub fn marks_max(&self) -> usize {
        let last = self.classes.last().map_or(self.all_until, |class| class.until);
        self.classes.len() + usize::from(last != AgeBound::Forever)
    }

    /// The period of the instants that are kept below a mark of `class`, from 1; `None` if no instant is.
    pub(crate) fn period_below(&self, class: usize) -> Option<GridPeriod> {
        self.classes.get(class - 1).map(|class| class.period)
    }

    /// The grid on which the marks of `class` lie, from 1: its own, so that a mark is the end of an epoch. Where
    /// nothing is kept any more, that of the class before.
    pub fn mark_grid(&self, class: usize) -> GridPeriod {
        let own = self.period_below(class).or(self.classes.last().map(|class| class.period));
        own.unwrap_or(GridPeriod::SHORTEST)
    }

    /// What its marks would leave if all of them were raised with `closed`.
    pub fn thinning_at(&self, closed: Hlc) -> Thinning {
        let mut thinning = Thinning::default();
        for class in 1..=self.marks_max() {
            if let Some(upto) = self.mark_due(class, closed) {
                thinning.raise(self.period_below(class), upto);
            }
        }
        thinning
    }

    /// The newest mark of `class`, from 1, when every chain and the names are closed up to `closed`; `None` before
    /// the first.
    ///
    /// Ages count from there and from no clock: a clock that jumps makes nothing old, and no record comes below a mark.
    pub fn mark_due(&self, class: usize, closed: Hlc) -> Option<Hlc> {
        let begins = if class == 1 { self.all_until } else { self.classes[class - 2].until };
        let AgeBound::Seconds(age) = begins else { return None };
        // Of `closed` itself, not of its microsecond: another stamp of that may still come.
        let newest = closed.0.checked_sub(Hlc::first_of_micros(age * 1_000_000).0)?;
        self.mark_grid(class).last_at_or_below(Hlc(newest))
    }
}

impl fmt::Display for AgeBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AgeBound::Seconds(seconds) = *self else { return f.write_str("forever") };
        let fits = |unit: &&(&str, u64)| seconds.is_multiple_of(unit.1);
        let (name, length) = AGE_UNITS.iter().find(fits).expect("every age is of whole seconds");
        write!(f, "{}{name}", seconds / length)
    }
}

impl fmt::Display for RetentionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "all {}", self.all_until)?;
        for class in &self.classes {
            write!(f, ", {} {}", class.period, class.until)?;
        }
        Ok(())
    }
}

impl FromStr for RetentionPolicy {
    type Err = RetentionError;

    fn from_str(text: &str) -> Result<RetentionPolicy, RetentionError> {
        let count = text.split(',').count();
        if count > Self::CLASSES_MAX {
            let wrong = format!("it has {count} classes");
            return Err(ClassText { text, at: 0 }.refused(wrong, format!("write {} at most", Self::CLASSES_MAX)));
        }
        let mut policy: Option<RetentionPolicy> = None;
        let mut at = 0;
        for part in text.split(',') {
            let lead = part.len() - part.trim_start().len();
            let word = ClassText { text: part.trim(), at: at + lead };
            policy = Some(match policy {
                None => RetentionPolicy { all_until: word.all()?, classes: Vec::new() },
                Some(before) => before.with(&word)?,
            });
            at += part.len() + 1;
        }
        Ok(policy.expect("a text has a first part"))
    }
}

impl RetentionPolicy {
    fn with(mut self, word: &ClassText<'_>) -> Result<RetentionPolicy, RetentionError> {
        let class = word.class()?;
        let begins = match self.classes.last().map_or(self.all_until, |before| before.until) {
            AgeBound::Seconds(begins) => begins,
            AgeBound::Forever => {
                return Err(word.refused("the class before it has no end", "leave it out, or end that one by an age"));
            }
        };
        if let Some(before) = self.classes.last().filter(|before| before.period >= class.period) {
            let wrong = format!("its instants are not further apart than those of {} before it", before.period);
            return Err(word.refused(wrong, "write classes from the young to the old, each coarser"));
        }
        // A shorter class would keep an instant or none, as the grid lies.
        let shortest = AgeBound::Seconds(begins + class.period.seconds());
        if class.until < shortest {
            let wrong = match class.until {
                AgeBound::Seconds(until) if until <= begins => "its age does not rise",
                _ => "it lasts for less than one period, so it may keep no instant",
            };
            return Err(word.refused(wrong, format!("write {} {shortest} or more", class.period)));
        }
        self.classes.push(class);
        Ok(self)
    }
}

/// One class as it is written.
struct ClassText<'a> {
    text: &'a str,
    /// Where it begins, in bytes.
    at: usize,
}

impl ClassText<'_> {
    fn refused(&self, wrong: impl Into<String>, instead: impl Into<String>) -> RetentionError {
        const SHOWN_MAX: usize = 60;
        let mut text: String = self.text.chars().take(SHOWN_MAX).collect();
        if text.len() < self.text.len() {
            text.push('…');
        }
        RetentionError::NotPolicy { text, at: self.at, wrong: wrong.into(), instead: instead.into() }
    }

    fn all(&self) -> Result<AgeBound, RetentionError> {
        match self.text.split_once(char::is_whitespace) {
            Some(("all", age)) => self.age(age.trim()),
            _ => Err(self.refused(
                "the first class does not say how long every instant is kept",
                "begin with `all` and an age, as in `all 1h, 1/min 1d, 1/day 1y`",
            )),
        }
    }

    fn class(&self) -> Result<RetentionClass, RetentionError> {
        const EXAMPLE: &str = "write a period and an age, as in `1/min 1d`";
        let Some((period, age)) = self.text.split_once(char::is_whitespace) else {
            return Err(self.refused("it is no class", EXAMPLE));
        };
        if period == "all" {
            return Err(self.refused("only the first class keeps all instants", EXAMPLE));
        }
        let Some((count, period)) = period.split_once('/') else {
            return Err(self.refused("it has no period", EXAMPLE));
        };
        if count != "1" {
            return Err(self.refused("a class keeps one instant of each period", "write `1/` and a shorter period"));
        }
        Ok(RetentionClass { period: self.period(period)?, until: self.age(age.trim())? })
    }

    fn period(&self, text: &str) -> Result<GridPeriod, RetentionError> {
        let (count, unit) = number_and_unit(text);
        if unit.starts_with("mo") || unit.starts_with('y') {
            let wrong = "months and years differ in length, so they have no grid";
            return Err(self.refused(wrong, "write 1/4w or 1/52w"));
        }
        let (_, length) = self.unit(unit, PERIOD_UNITS)?;
        let count = if count.is_empty() { Some(1) } else { count.parse::<u64>().ok() };
        let seconds = count.and_then(|count| count.checked_mul(length)).unwrap_or(u64::MAX);
        let offered = |period: Option<GridPeriod>| period.map(|period| period.to_string());
        GridPeriod::of_seconds(seconds).ok_or_else(|| {
            let (below, above) = GridPeriod::around(seconds);
            let both: Vec<String> = offered(below).into_iter().chain(offered(above)).collect();
            let wrong = match (seconds, below, above) {
                (0, ..) => "a period of 0 is none",
                (_, _, None) => "the period is longer than every grid",
                _ => "the period does not nest with those of other policies",
            };
            self.refused(wrong, format!("write {}", both.join(" or ")))
        })
    }

    fn age(&self, text: &str) -> Result<AgeBound, RetentionError> {
        if text == "forever" {
            return Ok(AgeBound::Forever);
        }
        let (count, unit) = number_and_unit(text);
        if count.is_empty() {
            return Err(self.refused("its age has no number", "write an age as in `90d`, or `forever`"));
        }
        if unit.starts_with("mo") {
            return Err(self.refused("months differ in length", "write days, as in `30d`"));
        }
        let (_, length) = self.unit(unit, AGE_UNITS)?;
        let seconds = count.parse::<u64>().ok().and_then(|count| count.checked_mul(length)).unwrap_or(u64::MAX);
        match seconds {
            0 => Err(self.refused("its age is 0", "write an age as in `1h`")),
            1..=AgeBound::SECONDS_MAX => Ok(AgeBound::Seconds(seconds)),
            _ => Err(self.refused("its age is above 50 years", "write `forever`")),
        }
    }

    fn unit(&self, unit: &str, units: &[(&'static str, u64)]) -> Result<(&'static str, u64), RetentionError> {
        let singular = if unit.len() > 1 { unit.strip_suffix('s').unwrap_or(unit) } else { unit };
        let plain = match singular {
            "sec" | "second" => "s",
            "minute" => "min",
            "hour" => "h",
            "day" => "d",
            "week" => "w",
            "year" => "y",
            _ => singular,
        };
        let names: Vec<&str> = units.iter().rev().map(|unit| unit.0).collect();
        units.iter().find(|unit| unit.0 == plain).copied().ok_or_else(|| {
            let wrong = match unit {
                "m" => "`m` may be a minute or a month".to_owned(),
                "" => "it has no unit".to_owned(),
                unit if unit.contains(char::is_whitespace) => "a comma is missing between two classes".to_owned(),
                _ => format!("{:?} is no unit", unit.chars().take(20).collect::<String>()),
            };
            self.refused(wrong, format!("units are {}", names.join(", ")))
        })
    }
}

fn number_and_unit(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

const DAY: u64 = 24 * 60 * 60;
const YEAR: u64 = 365 * DAY;
/// Units of ages in seconds, the longest first.
const AGE_UNITS: &[(&str, u64)] = &[("y", YEAR), ("w", 7 * DAY), ("d", DAY), ("h", 3600), ("min", 60), ("s", 1)];
/// Units of periods in seconds.
const PERIOD_UNITS: &[(&str, u64)] = &[("w", 7 * DAY), ("d", DAY), ("h", 3600), ("min", 60), ("s", 1)];
