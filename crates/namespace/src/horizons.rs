//! Which inodes cannot be read any more at which instants, and the snapshots that are kept all the same.
//!
//! Guarantees: [`Expiries::expired`] is the one place that says whether an inode may be read at an instant; what it has
//! once refused it refuses for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frieze_base::InodeId;
use frieze_hlc::Hlc;
use frieze_wire::forget::{ANYBODY, ForgottenHistory};

use crate::model::NamedInstant;

/// One forgetting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Instants before it are not kept.
    pub before: Hlc,
    /// Instants before it that are: those of snapshots. None, if it went through them.
    pub pins: Pins,
    /// It takes from inodes without a name, too, what earlier ones had left to snapshots.
    pub through: bool,
    /// The file or directory that was named.
    pub root: InodeId,
    /// Its path.
    pub path: Vec<u8>,
    /// The user that asked for it.
    pub uid: u32,
}

/// Instants of snapshots, and the makers of the snapshots of each.
///
/// A snapshot holds back what its maker may hold back: what belongs to him, and everything if he is the superuser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins(BTreeMap<Hlc, BTreeSet<u32>>);

impl Pins {
    /// Those of snapshots of instants before `before`.
    pub fn of<'a>(snapshots: impl Iterator<Item = &'a NamedInstant>, before: Hlc) -> Pins {
        let mut pins = Pins::default();
        for snapshot in snapshots.filter(|snapshot| snapshot.at < before) {
            pins.add(snapshot.at, snapshot.uid);
        }
        pins
    }

    pub(crate) fn add(&mut self, at: Hlc, maker: u32) {
        self.0.entry(at).or_default().insert(maker);
    }

    pub(crate) fn remove(&mut self, at: Hlc, maker: u32) -> bool {
        let Some(makers) = self.0.get_mut(&at) else { return false };
        let was_there = makers.remove(&maker);
        if makers.is_empty() {
            self.0.remove(&at);
        }
        was_there
    }

    /// True if they keep what these users own at the instant.
    pub fn hold(&self, at: Hlc, owners: &[u32]) -> bool {
        self.0.get(&at).is_some_and(|makers| may_hold(makers, owners))
    }

    /// The instants at which they keep what these users own.
    fn instants<'a>(&'a self, owners: &'a [u32]) -> impl Iterator<Item = Hlc> + 'a {
        self.0.iter().filter(|(_, makers)| may_hold(makers, owners)).map(|(at, _)| *at)
    }

    /// Each instant with each maker of a snapshot of it.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Hlc, u32)> {
        self.0.iter().flat_map(|(at, makers)| makers.iter().map(|maker| (*at, *maker)))
    }

    /// Of owners those that have a snapshot: inodes that no snapshot holds back expire alike, whatever their owner.
    pub fn counting(&self, mut owners: Owners) -> Owners {
        let makers: BTreeSet<u32> = self.0.values().flatten().copied().collect();
        let counts = |uid: &u32| makers.contains(uid) || (*uid == ANYBODY && !makers.is_empty());
        owners.retain(|_, users| {
            users.retain(counts);
            !users.is_empty()
        });
        owners
    }
}

fn may_hold(makers: &BTreeSet<u32>, owners: &[u32]) -> bool {
    makers.contains(&SUPERUSER) || owners.iter().any(|owner| *owner == ANYBODY || makers.contains(owner))
}

/// The snapshots of this user hold back everything.
const SUPERUSER: u32 = 0;

/// What one inode has forgotten. Inodes that were forgotten together, and belong to the same users, share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ExpiredState {
    by: Vec<ExpiryRef>,
}

/// One forgetting of an inode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ExpiryRef {
    stamp: Hlc,
    /// It left nothing but pins.
    gone: bool,
    /// Users whose snapshots count, beside the superuser's: of those that had made one by then, in order.
    owners: Vec<u32>,
}

impl ExpiredState {
    fn is_wholly_expired(&self) -> bool {
        self.by.iter().any(|by| by.gone)
    }
}

/// The inodes that are forgotten together, as a transaction names them.
#[derive(Clone, Copy, Debug)]
pub struct ExpiredInodes<'a> {
    /// Those with a name at the instant.
    pub named: &'a [InodeId],
    /// Those that had lost their last one.
    pub nameless: &'a [InodeId],
    /// By inode the users whose snapshots count, beside the superuser's.
    pub owners: &'a Owners,
}

/// Users by the inodes that are theirs: of a directory also the owners of what had a name in it.
pub type Owners = BTreeMap<InodeId, BTreeSet<u32>>;

/// All that was forgotten.
#[derive(Clone, Debug, Default)]
pub struct Expiries {
    /// By the stamp of the transaction.
    pub(crate) forgettings: BTreeMap<Hlc, Expiry>,
    inodes: InodeRuns<Arc<ExpiredState>>,
    /// Removed files that policies of retention let go of.
    removed: InodeRuns<()>,
    /// Stamp of the newest transaction that let go of some.
    removed_newest: Hlc,
}

/// What is known of inodes, those that follow each other and have the same as one: first, last. Files that come and go
/// expire together, and for ever.
#[derive(Clone, Debug, PartialEq)]
struct InodeRuns<T>(BTreeMap<InodeId, (InodeId, T)>);

impl<T> Default for InodeRuns<T> {
    fn default() -> InodeRuns<T> {
        InodeRuns(BTreeMap::new())
    }
}

impl<T: Clone + PartialEq> InodeRuns<T> {
    fn run_of(&self, id: InodeId) -> Option<(InodeId, InodeId, &T)> {
        let (&first, (last, lost)) = self.0.range(..=id).next_back()?;
        (*last >= id).then_some((first, *last, lost))
    }

    fn get(&self, id: InodeId) -> Option<&T> {
        self.run_of(id).map(|(_, _, known)| known)
    }

    fn set(&mut self, id: InodeId, known: T) {
        let (before, after) = (InodeId(id.0.saturating_sub(1)), InodeId(id.0.saturating_add(1)));
        if let Some((first, last, old)) = self.run_of(id).map(|(first, last, old)| (first, last, old.clone())) {
            self.0.remove(&first);
            if first < id {
                self.0.insert(first, (before, old.clone()));
            }
            if id < last {
                self.0.insert(after, (last, old));
            }
        }
        let (mut first, mut last) = (id, id);
        if let Some((start, _, _)) = self.run_of(before).filter(|(_, _, same)| **same == known) {
            first = start;
        }
        if let Some((_, end, _)) = self.run_of(after).filter(|(_, _, same)| **same == known) {
            last = end;
            self.0.remove(&after);
        }
        self.0.insert(first, (last, known));
    }
}

/// Answers alike, however it came to be.
impl PartialEq for Expiries {
    fn eq(&self, other: &Expiries) -> bool {
        let same = (&self.forgettings, &self.removed) == (&other.forgettings, &other.removed);
        same && self.inodes == other.inodes
    }
}

impl Expiries {
    /// True if nothing was ever forgotten, and policies of retention let go of no removed file.
    pub fn is_empty(&self) -> bool {
        self.inodes.0.is_empty() && self.removed.0.is_empty()
    }

    /// True if an inode is a removed file that policies of retention let go of: nothing of its bytes is left. Its name
    /// and attributes stay in history.
    pub fn is_removal_expired(&self, id: InodeId) -> bool {
        self.removed.get(id).is_some()
    }

    /// True if there is a removed file that policies of retention let go of.
    pub fn has_expired_removals(&self) -> bool {
        !self.removed.0.is_empty()
    }

    /// Stamp of the newest transaction by which policies let go of removed files; zero if there was none.
    pub fn newest_expired_removal(&self) -> Hlc {
        self.removed_newest
    }

    pub(crate) fn add_removed(&mut self, stamp: Hlc, ids: &[InodeId]) {
        ids.iter().for_each(|id| self.removed.set(*id, ()));
        self.removed_newest = self.removed_newest.max(stamp);
    }

    /// Why an inode cannot be read at an instant (`None`: now); `None` if it can.
    ///
    /// # Cost
    /// A search in the runs of inodes that forgot the same; nothing while nothing was ever forgotten.
    pub fn expired(&self, id: InodeId, at: Option<Hlc>) -> Option<ForgottenHistory> {
        if self.inodes.0.is_empty() {
            return None;
        }
        let lost = self.inodes.get(id)?;
        lost.by.iter().any(|by| self.refuses(by, at)).then(|| self.forgotten_history(lost))
    }

    fn refuses(&self, by: &ExpiryRef, at: Option<Hlc>) -> bool {
        let forgetting = &self.forgettings[&by.stamp];
        let pinned = at.is_some_and(|at| forgetting.pins.hold(at, &by.owners));
        !pinned && (by.gone || at.is_some_and(|at| at < forgetting.before))
    }

    /// What an inode has forgotten.
    pub fn of(&self, id: InodeId) -> Option<ForgottenHistory> {
        self.inodes.get(id).map(|lost| self.forgotten_history(lost))
    }

    /// True if nothing of the inode is left but what snapshots show.
    pub fn is_wholly_expired(&self, id: InodeId) -> bool {
        self.inodes.get(id).is_some_and(|lost| lost.is_wholly_expired())
    }

    /// The instants before its horizon at which an inode is readable all the same.
    pub fn pins(&self, id: InodeId) -> BTreeSet<Hlc> {
        let Some(lost) = self.inodes.get(id) else { return BTreeSet::new() };
        let all = lost.by.iter().flat_map(|by| self.forgettings[&by.stamp].pins.instants(&by.owners));
        all.filter(|pin| !lost.by.iter().any(|by| self.refuses(by, Some(*pin)))).collect()
    }

    /// Every inode that has forgotten something, by number.
    pub fn inodes(&self) -> impl Iterator<Item = InodeId> + '_ {
        self.inodes.0.iter().flat_map(|(first, (last, _))| (first.0..=last.0).map(InodeId))
    }

    /// Every forgetting, by stamp.
    pub fn forgettings(&self) -> impl Iterator<Item = (Hlc, &Expiry)> {
        self.forgettings.iter().map(|(stamp, forgetting)| (*stamp, forgetting))
    }

    /// Notes a forgetting of these inodes, as a transaction at `stamp` does or would do.
    pub fn add(&mut self, stamp: Hlc, forgetting: Expiry, of: ExpiredInodes<'_>) {
        self.forgettings.insert(stamp, forgetting);
        self.add_inodes(stamp, of.named, of.owners, false);
        self.add_inodes(stamp, of.nameless, of.owners, true);
    }

    pub(crate) fn add_inodes(&mut self, stamp: Hlc, ids: &[InodeId], owners: &Owners, gone: bool) {
        let Expiries { forgettings, inodes, .. } = self;
        let new = &forgettings[&stamp];
        // By what they had forgotten before, and whose they are.
        type Alike = (Option<Arc<ExpiredState>>, Vec<u32>);
        let mut made: BTreeMap<Alike, Arc<ExpiredState>> = BTreeMap::new();
        for &id in ids {
            let old = inodes.get(id).cloned();
            if old.as_ref().is_some_and(|lost| lost.is_wholly_expired()) && !new.through {
                continue;
            }
            let owners: Vec<u32> = owners.get(&id).into_iter().flatten().copied().collect();
            let lost = made.entry((old.clone(), owners)).or_insert_with_key(|(before, owners)| {
                let new_by = ExpiryRef { stamp, gone, owners: owners.clone() };
                // An older forgetting that refuses nothing that the new one does not is left out.
                let adds = |by: &&ExpiryRef| {
                    let old = &forgettings[&by.stamp];
                    let reaches = |pin: Hlc| by.gone || pin < old.before;
                    old.before > new.before
                        || (by.gone && !gone)
                        || new.pins.instants(&new_by.owners).any(|pin| reaches(pin) && !old.pins.hold(pin, &by.owners))
                };
                let kept = before.as_deref().map_or(&[][..], |lost| &lost.by);
                let by: Vec<ExpiryRef> = kept.iter().filter(adds).cloned().collect();
                Arc::new(ExpiredState { by: by.into_iter().chain([new_by]).collect() })
            });
            inodes.set(id, Arc::clone(lost));
        }
    }

    fn forgotten_history(&self, lost: &ExpiredState) -> ForgottenHistory {
        let newest = lost.by.iter().map(|by| by.stamp).max_by_key(|stamp| self.forgettings[stamp].before);
        let newest = newest.expect("it was forgotten");
        let forgetting = &self.forgettings[&newest];
        ForgottenHistory { before: forgetting.before.0, stamp: newest.0, uid: forgetting.uid }
    }
}

#[cfg(test)]
mod tests {
    use frieze_base::Rng;

    use super::*;

    #[test]
    fn runs_say_of_each_inode_what_was_last_set_and_are_as_few_as_can_be() {
        let mut rng = Rng::new(5);
        let losts: Vec<Arc<ExpiredState>> = (1..4)
            .map(|stamp| ExpiryRef { stamp: Hlc(stamp), gone: stamp == 3, owners: Vec::new() })
            .map(|by| Arc::new(ExpiredState { by: vec![by] }))
            .collect();
        for _ in 0..20 {
            let (mut runs, mut known) = (InodeRuns::default(), BTreeMap::new());
            for _ in 0..300 {
                let (id, lost) = (InodeId(1 + rng.below(40)), rng.choose(&losts));
                // Equal, though not the same.
                runs.set(id, Arc::new(ExpiredState::clone(lost)));
                known.insert(id, Arc::clone(lost));
                for id in (1..=42).map(InodeId) {
                    assert_eq!(runs.get(id), known.get(&id), "{id}");
                }
                let ids: Vec<InodeId> = known.keys().copied().collect();
                let joins = |pair: &[InodeId]| pair[0].0 + 1 == pair[1].0 && known[&pair[0]] == known[&pair[1]];
                assert_eq!(runs.0.len(), ids.len() - ids.windows(2).filter(|pair| joins(pair)).count(), "{runs:?}");
            }
        }
    }
}
