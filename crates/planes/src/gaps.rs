//! Intervals in which acknowledged writes may have been lost, and the instants at which nothing is missing.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::ChainId;
use frieze_cluster::LostInterval;
use frieze_hlc::Hlc;

use crate::planes::Planes;

/// What chains lost when they continued from stale copies.
#[derive(PartialEq, Eq)]
pub struct Losses(pub BTreeMap<ChainId, LostInterval>);

impl Planes {
    /// True if acknowledged writes of these chains, or of any, may have been lost at an instant.
    pub fn in_gap(&self, at: Hlc, chains: Option<&BTreeSet<ChainId>>) -> bool {
        let mut is_lost = self.keeper.with(|identity| identity.in_gap(at));
        if self.meta.is_member() {
            self.meta.look_at_control(&mut |state| {
                let mut asked = state.chains().filter(|chain| chains.is_none_or(|chains| chains.contains(&chain.id)));
                is_lost |= asked.any(|chain| chain.gaps.iter().any(|gap| gap.touches(at.0)));
            });
        }
        is_lost
    }

    /// What chains lost when they continued from stale copies; `None` if no chain ever had to.
    pub fn losses(&self) -> Option<Losses> {
        let mut losses = None;
        self.meta.look_at_control(&mut |state| {
            if state.is_behind() {
                losses = Some(Losses(state.chains().filter_map(|chain| Some((chain.id, chain.behind?))).collect()));
            }
        });
        losses
    }

    /// Number of chains that continued from a stale copy.
    pub fn chains_behind(&self) -> u64 {
        self.losses().map_or(0, |losses| losses.0.len() as u64)
    }

    /// The intervals in which writes may have been lost, oldest first: of this machine while it was alone, and of every
    /// chain.
    pub fn all_gaps(&self) -> Vec<(Hlc, Hlc)> {
        let mut gaps: BTreeSet<(Hlc, Hlc)> = self.keeper.with(|identity| identity.gaps().collect());
        self.meta.look_at_control(&mut |state| {
            gaps.extend(state.chains().flat_map(|chain| &chain.gaps).map(|gap| (Hlc(gap.from), Hlc(gap.to))));
        });
        gaps.into_iter().collect()
    }

    /// The newest instant at which no write is missing that was lost since; ZERO if there is no loss.
    pub fn last_whole(&self) -> Hlc {
        let mut whole = Hlc(self.keeper.with(|identity| identity.last_whole));
        // A chain that lost all its records was whole before the first one.
        let made = self.earliest();
        self.meta.look_at_control(&mut |state| {
            let newest: Vec<_> = state.chains().filter_map(|chain| chain.gaps.last()).collect();
            // Gaps of one crash overlap between chains.
            if let Some(last) = newest.iter().max_by_key(|gap| gap.to) {
                let together = newest.iter().filter(|gap| gap.to > last.from);
                whole = together.map(|gap| Hlc(gap.from).max(made)).min().unwrap_or(whole);
            }
        });
        before_all(whole, &self.all_gaps())
    }
}

/// The newest instant up to `whole` that lies in no gap: if a loss follows another before the data was whole again,
/// their gaps touch.
fn before_all(whole: Hlc, gaps: &[(Hlc, Hlc)]) -> Hlc {
    let newest_first = gaps.iter().rev();
    newest_first.fold(whole, |whole, (from, to)| if *from < whole && whole <= *to { *from } else { whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(whole: u64, gaps: &[(u64, u64)]) -> u64 {
        let gaps: Vec<_> = gaps.iter().map(|(from, to)| (Hlc(*from), Hlc(*to))).collect();
        before_all(Hlc(whole), &gaps).0
    }

    #[test]
    fn an_instant_at_which_a_gap_ends_and_the_next_begins_is_not_whole() {
        assert_eq!(whole(20, &[(20, 30)]), 20);
        assert_eq!(whole(30, &[(20, 30), (30, 40)]), 20);
        assert_eq!(whole(25, &[(20, 30), (25, 40)]), 20);
        assert_eq!(whole(30, &[(5, 20), (20, 30), (30, 40)]), 5);
        // The data was whole between the losses.
        assert_eq!(whole(35, &[(20, 30), (35, 40)]), 35);
        assert_eq!(whole(0, &[]), 0);
    }
}
