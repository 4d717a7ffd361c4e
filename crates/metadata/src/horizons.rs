//! Questions about what was forgotten.
//!
//! Guarantees: as in `reader`.

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_namespace::{ExpiredInodes, Expiries, Expiry, Inode, InodeRetention, Pins};
use frieze_retention::{KeptSet, MarkedPolicy, PolicyNumber, RetentionEpoch, Thinning};
use frieze_wire::forget::ForgottenHistory;

use super::facts::{ForgettingCount, InodeHorizon};
use super::metadata::Metadata;

impl Metadata {
    /// Whether an inode can be read at an instant (`None`: now).
    ///
    /// # Errors
    /// `HistoryExpired`, with the earliest instant that is kept.
    pub fn check_kept(&self, id: InodeId, at: Option<Hlc>) -> Result<(), Fault> {
        self.state.read().check_kept(id, at)
    }

    /// As [`Metadata::check_kept`]; the fault names `path`, which the caller has to be allowed to know.
    ///
    /// # Errors
    /// As [`Metadata::check_kept`].
    pub fn check_kept_called(&self, id: InodeId, at: Option<Hlc>, path: &[u8]) -> Result<(), Fault> {
        self.state.read().check_kept_called(id, at, path)
    }

    /// True if a file ever had a policy of retention.
    pub fn has_policies(&self) -> bool {
        self.state.read().has_policies()
    }

    /// Counts the changes of policies and of what they keep, but for marks; since the start.
    pub fn policy_changes(&self) -> u64 {
        self.state.read().policy_changes()
    }

    /// Counts the transactions by which records may die, since the start.
    pub fn expiry_changes(&self) -> u64 {
        self.state.read().expiry_changes()
    }

    /// Counts the edits that share bytes of older states, since the start.
    pub fn share_changes(&self) -> u64 {
        self.state.read().share_changes()
    }

    /// The newest instant at or before `at` that every policy of retention keeps.
    ///
    /// # Errors
    /// As [`frieze_namespace::Namespace::newest_kept`].
    pub fn newest_kept(&self, at: Hlc) -> Result<Hlc, Fault> {
        self.state.read().newest_kept(at)
    }

    /// True if a mark is due when everything is closed up to `closed`.
    pub fn has_marks_due(&self, closed: Hlc) -> bool {
        self.state.read().has_marks_due(closed)
    }

    /// Every policy that files have or had, with its marks.
    pub fn policies(&self) -> Vec<(PolicyNumber, MarkedPolicy)> {
        self.state.read().policies()
    }

    /// What is kept of an inode: its policy, and what was thinned.
    pub fn retention_of(&self, inode: &Inode) -> InodeRetention {
        self.state.read().retention_of(inode)
    }

    /// The kept instants of a file; `None` if they are all.
    ///
    /// # Errors
    /// As [`frieze_namespace::Namespace::kept_set`].
    pub fn kept_set(&self, id: InodeId) -> Result<Option<KeptSet>, Fault> {
        self.state.read().kept_set(&self.state.versions, id)
    }

    /// As [`Metadata::kept_set`], and [`Metadata::share_changes`] of the same moment.
    ///
    /// # Errors
    /// As [`Metadata::kept_set`].
    pub fn kept_set_and_shares(&self, id: InodeId) -> Result<(Option<KeptSet>, u64), Fault> {
        let namespace = self.state.read();
        Ok((namespace.kept_set(&self.state.versions, id)?, namespace.share_changes()))
    }

    /// The kept instants of a file as they would be if these marks were raised, too.
    pub fn kept_set_with(&self, inode: &Inode, marks: Thinning) -> KeptSet {
        self.state.read().kept_set_with(inode, marks)
    }

    /// The epoch of an instant of a file that policies do not keep; `None` if they do.
    ///
    /// # Errors
    /// As [`frieze_namespace::Namespace::thinned_epoch`].
    pub fn thinned_epoch(&self, id: InodeId, at: Hlc) -> Result<Option<RetentionEpoch>, Fault> {
        self.state.read().thinned_epoch(&self.state.versions, id, at)
    }

    /// Everything that was forgotten. A copy: for work that looks at all of it.
    pub fn horizons(&self) -> Expiries {
        self.state.read().horizons().clone()
    }

    /// True if something was ever forgotten.
    pub fn has_horizons(&self) -> bool {
        !self.state.read().horizons().is_empty()
    }

    /// What would be forgotten after a transaction at `stamp` with this horizon. Its pins are the snapshots of now,
    /// unless it goes through them.
    pub fn horizons_after(
        &self,
        stamp: Hlc,
        forgetting: Expiry,
        ExpiredInodes { named, nameless, owners }: ExpiredInodes<'_>,
    ) -> Expiries {
        let namespace = self.state.read();
        let pins = match forgetting.through {
            true => Pins::default(),
            false => Pins::of(namespace.snapshots(), forgetting.before),
        };
        let owners = pins.counting(owners.clone());
        let mut horizons = namespace.horizons().clone();
        let of = ExpiredInodes { named, nameless, owners: &owners };
        horizons.add(stamp, Expiry { pins, ..forgetting }, of);
        horizons
    }

    /// True if nothing of an inode is left but what snapshots show.
    pub fn is_wholly_expired(&self, id: InodeId) -> bool {
        self.state.read().horizons().is_wholly_expired(id)
    }

    /// True if an inode is a removed file that policies of retention let go of: nothing of its bytes is left.
    pub fn is_removal_expired(&self, id: InodeId) -> bool {
        self.state.read().horizons().is_removal_expired(id)
    }

    /// Stamp of the newest transaction by which policies let go of removed files; zero if there was none.
    pub fn newest_expired_removal(&self) -> Hlc {
        self.state.read().horizons().newest_expired_removal()
    }

    /// What an inode has forgotten.
    pub fn inode_horizon(&self, id: InodeId) -> InodeHorizon {
        let namespace = self.state.read();
        let horizons = namespace.horizons();
        InodeHorizon {
            is_wholly_expired: horizons.is_wholly_expired(id),
            forgotten: horizons.of(id),
            pins: horizons.pins(id),
        }
    }

    /// The horizon of the inode, of these, that has forgotten most.
    pub fn newest_horizon(&self, ids: impl Iterator<Item = InodeId>) -> Option<ForgottenHistory> {
        let namespace = self.state.read();
        ids.filter_map(|id| namespace.horizons().of(id)).max_by_key(|forgotten| forgotten.before)
    }

    /// How many transactions have forgotten something.
    pub fn forgetting_count(&self) -> ForgettingCount {
        let namespace = self.state.read();
        let add =
            |sum: ForgettingCount, (stamp, _): (Hlc, &Expiry)| ForgettingCount { count: sum.count + 1, last: stamp };
        namespace.horizons().forgettings().fold(ForgettingCount::default(), add)
    }
}
