//! The kept instants of one file, and the epochs between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use frieze_hlc::Hlc;

use crate::thinning::Thinning;

/// The instants of a file that are kept: those that its marks leave, and those that are pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptSet {
    thinning: Thinning,
    /// How many snapshots, clones and holds pin each instant.
    pins: Arc<BTreeMap<Hlc, u32>>,
}

/// The stretch between two neighbouring kept instants of a file: stamps above `after`, up to and with `upto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetentionEpoch {
    /// The kept instant before it; `None`: it is the oldest.
    pub after: Option<Hlc>,
    /// The kept instant at its end.
    pub upto: Hlc,
}

impl KeptSet {
    /// What `thinning` leaves, and `pins`, each with how many pin it.
    pub fn new(thinning: Thinning, pins: impl Into<Arc<BTreeMap<Hlc, u32>>>) -> KeptSet {
        KeptSet { thinning, pins: pins.into() }
    }

    /// The instant at and above which marks thin nothing.
    pub fn end(&self) -> Hlc {
        self.thinning.end()
    }

    /// What marks leave.
    pub fn thinning(&self) -> &Thinning {
        &self.thinning
    }

    /// As this, with these instants pinned, too.
    pub fn with(mut self, pins: impl Iterator<Item = Hlc>) -> KeptSet {
        let all = Arc::make_mut(&mut self.pins);
        for pin in pins {
            *all.entry(pin).or_default() += 1;
        }
        self
    }

    /// True if the instant is kept.
    pub fn is_kept(&self, at: Hlc) -> bool {
        self.pins.contains_key(&at) || self.thinning.is_kept(at)
    }

    /// The newest kept instant at or below `at`.
    pub fn last_at_or_below(&self, at: Hlc) -> Option<Hlc> {
        let pin = self.pins.range(..=at).next_back().map(|(pin, _)| *pin);
        self.thinning.last_at_or_below(at).max(pin)
    }

    /// The oldest kept instant at or above `at`.
    pub fn first_at_or_above(&self, at: Hlc) -> Hlc {
        let left = self.thinning.first_at_or_above(at);
        self.pins.range(at..).next().map_or(left, |(pin, _)| left.min(*pin))
    }

    /// The epoch of a stamp. The kept instant at its end names it.
    pub fn epoch_of(&self, stamp: Hlc) -> RetentionEpoch {
        let after = if stamp == Hlc::ZERO { None } else { self.last_at_or_below(stamp.previous()) };
        RetentionEpoch { after, upto: self.first_at_or_above(stamp) }
    }
}
