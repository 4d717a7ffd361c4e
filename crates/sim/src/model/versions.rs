//! Values over time.

use frieze_hlc::Hlc;

/// Values over time.
#[derive(Clone, Debug)]
pub(crate) struct Versions<T>(Vec<(Hlc, T)>);

impl<T> Default for Versions<T> {
    fn default() -> Self {
        Versions(Vec::new())
    }
}

impl<T> Versions<T> {
    /// The value at an instant.
    pub(crate) fn at(&self, at: Hlc) -> Option<&T> {
        let count = self.0.partition_point(|(from, _)| *from <= at);
        self.0[..count].last().map(|(_, value)| value)
    }

    /// The value at an instant, and since when.
    pub(crate) fn version_at(&self, at: Hlc) -> Option<&(Hlc, T)> {
        self.0[..self.0.partition_point(|(from, _)| *from <= at)].last()
    }

    /// When the newest value came.
    pub(crate) fn newest(&self) -> Option<Hlc> {
        self.0.last().map(|(from, _)| *from)
    }

    /// The values up to an instant.
    pub(super) fn upto(&self, at: Hlc) -> impl Iterator<Item = &T> {
        self.0.iter().take_while(move |(from, _)| *from <= at).map(|(_, value)| value)
    }

    /// When such a value last ended, by an instant at which it was not there.
    pub(super) fn ended(&self, at: Hlc, is_it: impl Fn(&T) -> bool) -> Option<Hlc> {
        let pairs = self.0.windows(2).take_while(|pair| pair[1].0 <= at);
        pairs.filter(|pair| is_it(&pair[0].1) && !is_it(&pair[1].1)).map(|pair| pair[1].0).last()
    }

    /// True if there was such a value at some instant after `at`.
    pub(super) fn holds_after(&self, at: Hlc, is_it: impl Fn(&T) -> bool) -> bool {
        self.at(at).is_some_and(&is_it) || self.0.iter().any(|(from, value)| *from > at && is_it(value))
    }

    /// The value from `stamp` on.
    pub(crate) fn set(&mut self, stamp: Hlc, value: T) {
        assert!(self.0.last().is_none_or(|(last, _)| *last <= stamp), "versions come in the order of stamps");
        match self.0.last_mut() {
            Some(last) if last.0 == stamp => last.1 = value,
            _ => self.0.push((stamp, value)),
        }
    }
}
