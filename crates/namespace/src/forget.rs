//! What was given up: instants before which inodes cannot be read any more, and the snapshots that are kept all the same.
//!
//! Guarantees: [`Horizons::expired`] is the one place that says whether an inode may be read at an instant; what it has
//! once refused it refuses for ever; a snapshot that was there when an instant was forgotten stays readable until it is
//! deleted, and is never readable again after.
//! Leaves to others: which inodes lie below a path (`node`), giving back the space (`node`, `multilog`).
//!
//! Versions of names and inodes stay where they are: they are small, and the index of time and the walk through them stay
//! exact. What goes is bytes. An inode is forgotten as *named* at the instant, and then reads at or after it go on as
//! before; or as *nameless*, deleted by then, and then nothing of it can be read but what a snapshot shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_wire::forget::{Forgotten, Horizon, decode_ids, encode_ids};
use prost::Message;

use crate::apply::{Done, Run};
use crate::error::Error;
use crate::history::History;
use crate::inode::Inode;
use crate::key::Key;
use crate::namespace::Namespace;
use crate::patch::PatchSource;
use crate::stored::{StoredForgotten, StoredForgottenInodes, StoredInode, decode};

/// Inodes under one key of the store.
const PAGE_INODES: usize = 8192;
/// Inodes that one transaction forgets; more take several.
pub const FORGET_INODES_MAX: usize = 1 << 20;

/// One forgetting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forgetting {
    /// Instants before it are not kept.
    pub before: Hlc,
    /// Instants before it that are: those of snapshots.
    pub pins: BTreeSet<Hlc>,
    /// The file or directory that was named.
    pub root: InodeId,
    /// Its path.
    pub path: Vec<u8>,
    /// Who asked.
    pub uid: u32,
}

/// What one inode has forgotten: stamps of forgettings, and whether the last of them left nothing but pins. Inodes that
/// were forgotten together share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lost {
    by: Vec<Hlc>,
    gone: bool,
}

/// All that was forgotten.
#[derive(Clone, Debug, Default)]
pub struct Horizons {
    /// By the stamp of the transaction.
    forgettings: BTreeMap<Hlc, Forgetting>,
    inodes: Runs,
}

/// What inodes have forgotten, those that follow each other and have forgotten the same as one: first, last. Files that come and
/// go are forgotten together, and for ever.
#[derive(Clone, Debug, Default, PartialEq)]
struct Runs(BTreeMap<InodeId, (InodeId, Arc<Lost>)>);

impl Runs {
    fn run_of(&self, id: InodeId) -> Option<(InodeId, InodeId, &Arc<Lost>)> {
        let (&first, (last, lost)) = self.0.range(..=id).next_back()?;
        (*last >= id).then_some((first, *last, lost))
    }

    fn get(&self, id: InodeId) -> Option<&Arc<Lost>> {
        self.run_of(id).map(|(_, _, lost)| lost)
    }

    fn set(&mut self, id: InodeId, lost: Arc<Lost>) {
        let (before, after) = (InodeId(id.0.saturating_sub(1)), InodeId(id.0.saturating_add(1)));
        if let Some((first, last, old)) = self.run_of(id).map(|(first, last, old)| (first, last, Arc::clone(old))) {
            self.0.remove(&first);
            if first < id {
                self.0.insert(first, (before, Arc::clone(&old)));
            }
            if id < last {
                self.0.insert(after, (last, old));
            }
        }
        let (mut first, mut last) = (id, id);
        if let Some((start, _, _)) = self.run_of(before).filter(|(_, _, same)| **same == lost) {
            first = start;
        }
        if let Some((_, end, _)) = self.run_of(after).filter(|(_, _, same)| **same == lost) {
            last = end;
            self.0.remove(&after);
        }
        self.0.insert(first, (last, lost));
    }
}

/// Answers alike, however it came to be.
impl PartialEq for Horizons {
    fn eq(&self, other: &Horizons) -> bool {
        self.forgettings == other.forgettings && self.inodes == other.inodes
    }
}

impl Horizons {
    /// True if nothing was ever forgotten.
    pub fn is_empty(&self) -> bool {
        self.inodes.0.is_empty()
    }

    /// Why an inode cannot be read at an instant (`None`: now); `None` if it can.
    ///
    /// # Cost
    /// A search in the runs of inodes that forgot the same; nothing while nothing was ever forgotten.
    pub fn expired(&self, id: InodeId, at: Option<Hlc>) -> Option<Forgotten> {
        if self.inodes.0.is_empty() {
            return None;
        }
        let lost = self.inodes.get(id)?;
        let newest = lost.by.last();
        let refused = |stamp: &Hlc| {
            let forgetting = &self.forgettings[stamp];
            let pinned = at.is_some_and(|at| forgetting.pins.contains(&at));
            let all = lost.gone && newest == Some(stamp);
            !pinned && (all || at.is_some_and(|at| at < forgetting.before))
        };
        lost.by.iter().any(refused).then(|| self.told(lost))
    }

    /// What an inode has forgotten.
    pub fn of(&self, id: InodeId) -> Option<Forgotten> {
        self.inodes.get(id).map(|lost| self.told(lost))
    }

    /// True if nothing of the inode is left but what snapshots show.
    pub fn is_gone(&self, id: InodeId) -> bool {
        self.inodes.get(id).is_some_and(|lost| lost.gone)
    }

    /// The instants before its horizon at which an inode is readable all the same.
    pub fn pins(&self, id: InodeId) -> BTreeSet<Hlc> {
        let Some(lost) = self.inodes.get(id) else { return BTreeSet::new() };
        let all = lost.by.iter().flat_map(|stamp| &self.forgettings[stamp].pins);
        all.filter(|pin| self.expired(id, Some(**pin)).is_none()).copied().collect()
    }

    /// Every inode that has forgotten something, by number.
    pub fn inodes(&self) -> impl Iterator<Item = InodeId> + '_ {
        self.inodes.0.iter().flat_map(|(first, (last, _))| (first.0..=last.0).map(InodeId))
    }

    /// Every forgetting, by stamp.
    pub fn forgettings(&self) -> impl Iterator<Item = (Hlc, &Forgetting)> {
        self.forgettings.iter().map(|(stamp, forgetting)| (*stamp, forgetting))
    }

    /// Notes a forgetting of these inodes, as a transaction at `stamp` does or would do.
    pub fn add(&mut self, stamp: Hlc, forgetting: Forgetting, named: &[InodeId], nameless: &[InodeId]) {
        self.forgettings.insert(stamp, forgetting);
        self.add_inodes(stamp, named, false);
        self.add_inodes(stamp, nameless, true);
    }

    fn add_inodes(&mut self, stamp: Hlc, ids: &[InodeId], gone: bool) {
        let Horizons { forgettings, inodes } = self;
        let new = &forgettings[&stamp];
        let mut made: BTreeMap<Option<Arc<Lost>>, Arc<Lost>> = BTreeMap::new();
        for &id in ids {
            let old = inodes.get(id).cloned();
            if old.as_ref().is_some_and(|lost| lost.gone) {
                continue;
            }
            let lost = made.entry(old.clone()).or_insert_with(|| {
                let before = old.as_deref();
                // An older forgetting that refuses nothing that the new one does not is left out.
                let adds = |stamp: &&Hlc| {
                    let old = &forgettings[stamp];
                    old.before > new.before || new.pins.range(..old.before).any(|pin| !old.pins.contains(pin))
                };
                let mut by: Vec<Hlc> = before.map_or(Vec::new(), |lost| lost.by.iter().filter(adds).copied().collect());
                by.push(stamp);
                Arc::new(Lost { by, gone })
            });
            inodes.set(id, Arc::clone(lost));
        }
    }

    fn told(&self, lost: &Lost) -> Forgotten {
        let newest = lost.by.iter().max_by_key(|stamp| self.forgettings[stamp].before).expect("it was forgotten");
        let forgetting = &self.forgettings[newest];
        Forgotten { before: forgetting.before.0, stamp: newest.0, uid: forgetting.uid }
    }
}

impl Namespace {
    /// What was forgotten.
    pub fn horizons(&self) -> &Horizons {
        &self.horizons
    }

    /// The one question before an inode is read at an instant (`None`: now).
    ///
    /// # Errors
    /// `HistoryExpired`, with the earliest instant that is kept: final.
    pub fn check_kept(&self, id: InodeId, at: Option<Hlc>) -> Result<(), Fault> {
        Ok(self.kept(id, at)?)
    }

    /// As [`Namespace::check_kept`], and the words name `path`: the caller has to be allowed to know it.
    ///
    /// # Errors
    /// As [`Namespace::check_kept`].
    pub fn check_kept_called(&self, id: InodeId, at: Option<Hlc>, path: &[u8]) -> Result<(), Fault> {
        Ok(self.kept(id, at).map_err(|error| error.called(path))?)
    }

    pub(crate) fn kept(&self, id: InodeId, at: Option<Hlc>) -> Result<(), Error> {
        match self.horizons.expired(id, at) {
            None => Ok(()),
            Some(Forgotten { before, stamp, uid }) => Err(Error::Forgotten {
                inode: id,
                path: None,
                at,
                before: Hlc(before),
                stamp: Hlc(stamp),
                uid,
                gone: self.horizons.is_gone(id),
            }),
        }
    }

    pub(crate) fn forget(&mut self, run: &mut Run<'_>, op: &Horizon) -> Result<Done, Error> {
        let before = Hlc(op.before);
        if before > run.stamp {
            return Err(Error::Future { at: before, now: run.stamp });
        }
        let ids = |bytes: &[u8]| {
            let ids = decode_ids(bytes).ok_or(Error::InvalidArgument { why: "not a list of inodes" })?;
            Ok::<_, Error>(ids.into_iter().map(InodeId).collect::<Vec<InodeId>>())
        };
        let (mut named, deleted) = (ids(&op.named)?, ids(&op.nameless)?);
        if named.len() + deleted.len() > FORGET_INODES_MAX {
            return Err(Error::EditTooLarge { steps: named.len() + deleted.len(), steps_max: FORGET_INODES_MAX });
        }
        // What was without a name then may have been given one since, or be written to by a handle that is still open.
        let (nameless, back): (Vec<InodeId>, Vec<InodeId>) = deleted.into_iter().partition(|id| {
            self.inodes
                .get(*id)
                .is_none_or(|inode| inode.orphaned().is_some_and(|since| since <= before) && inode.grants().is_empty())
        });
        named.extend(back);
        named.sort_unstable();
        let pins = self.snapshots.values().map(|snapshot| snapshot.at).filter(|at| *at < before).collect();
        let forgetting =
            Forgetting { before, pins, root: InodeId(op.root), path: op.path.clone(), uid: run.caller.uid };
        run.change(Key::Forgotten(run.stamp, 0), Some(StoredForgotten::of(&forgetting).encode_to_vec()));
        let all = named.iter().map(|id| (*id, false)).chain(nameless.iter().map(|id| (*id, true)));
        let all: Vec<(InodeId, bool)> = all.collect();
        for (page, ids) in (1u32..).zip(all.chunks(PAGE_INODES)) {
            let pack =
                |wanted: bool| encode_ids(ids.iter().filter(|(_, nameless)| *nameless == wanted).map(|(id, _)| id.0));
            let stored = StoredForgottenInodes { named: pack(false), nameless: pack(true) };
            run.change(Key::Forgotten(run.stamp, page), Some(stored.encode_to_vec()));
        }
        self.horizons.add(run.stamp, forgetting, &named, &nameless);
        for id in nameless {
            // Nobody is answered about it any more.
            let file = self.inodes.get(id).filter(|inode| !inode.is_directory());
            if let Some(since) = file.and_then(Inode::orphaned) {
                self.orphans.remove(&(since, id));
                self.forget_if_done(id);
            }
        }
        Ok(Done { id: op.root, ..Done::default() })
    }

    /// A snapshot at `at` is no more: unless another has the instant too, what was forgotten is now forgotten there too.
    pub(crate) fn unpin(&mut self, run: &mut Run<'_>, at: Hlc) {
        if self.snapshots.values().any(|snapshot| snapshot.at == at) {
            return;
        }
        for (stamp, forgetting) in &mut self.horizons.forgettings {
            if forgetting.pins.remove(&at) {
                run.change(Key::Forgotten(*stamp, 0), Some(StoredForgotten::of(forgetting).encode_to_vec()));
            }
        }
    }

    pub(crate) fn load_forgotten(&mut self, stamp: Hlc, page: u32, value: &[u8]) -> Result<(), Error> {
        let corrupt = Error::Corrupt { what: "forgotten instant" };
        if page == 0 {
            let stored: StoredForgotten = decode(value, "forgotten instant")?;
            self.horizons.forgettings.insert(stamp, stored.read());
            return Ok(());
        }
        if !self.horizons.forgettings.contains_key(&stamp) {
            return Err(corrupt);
        }
        let stored: StoredForgottenInodes = decode(value, "forgotten inodes")?;
        for (bytes, gone) in [(&stored.named, false), (&stored.nameless, true)] {
            let ids: Vec<InodeId> = decode_ids(bytes).ok_or(corrupt.clone())?.into_iter().map(InodeId).collect();
            self.horizons.add_inodes(stamp, &ids, gone);
        }
        Ok(())
    }
}

/// A stretch of time in which a file shares bytes of older states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedState {
    /// From when on.
    pub from: Hlc,
    /// Until just before; [`Hlc::MAX`] while it is so.
    pub until: Hlc,
    /// What it shares: file, instant, first byte, end.
    pub sources: Vec<(InodeId, Hlc, u64, u64)>,
}

/// Every version of every inode that shares bytes, by inode, oldest first.
///
/// # Errors
/// `Corrupt`; those of the store.
///
/// # Cost
/// A pass over all versions of all inodes: about a second for a million.
pub fn shared_states(history: &dyn History) -> Result<BTreeMap<InodeId, Vec<SharedState>>, Fault> {
    let mut found: BTreeMap<InodeId, Vec<SharedState>> = BTreeMap::new();
    let mut broken = Ok(());
    // The state that the next version of the same inode ends.
    let mut open: Option<InodeId> = None;
    history.versions(b"I", &[], Hlc::ZERO, Hlc::MAX, &mut |key, stamp, value| {
        let Some(Key::Inode(id)) = Key::decode(key) else {
            broken = Err(Error::Corrupt { what: "key of an inode" });
            return false;
        };
        if open.take_if(|open| *open == id).is_some()
            && let Some(last) = found.get_mut(&id).and_then(|states| states.last_mut())
        {
            last.until = stamp;
        }
        let Some(value) = value else { return true };
        let inode = match StoredInode::read(stamp, value, Arc::new) {
            Ok((inode, _)) => inode,
            Err(error) => {
                broken = Err(error);
                return false;
            }
        };
        let shared = inode.patches().iter().filter_map(|patch| match patch.source {
            PatchSource::Hole => None,
            PatchSource::Shared { inode, offset, at } => {
                Some((inode, at, offset, offset.saturating_add(patch.end - patch.start)))
            }
        });
        let sources: Vec<_> = shared.collect();
        if !sources.is_empty() {
            open = Some(id);
            found.entry(id).or_default().push(SharedState { from: stamp, until: Hlc::MAX, sources });
        }
        true
    })?;
    broken?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use frieze_base::Rng;

    use super::*;

    #[test]
    fn runs_say_of_each_inode_what_was_last_set_and_are_as_few_as_can_be() {
        let mut rng = Rng::new(5);
        let losts: Vec<Arc<Lost>> =
            (1..4).map(|stamp| Arc::new(Lost { by: vec![Hlc(stamp)], gone: stamp == 3 })).collect();
        for _ in 0..20 {
            let (mut runs, mut known) = (Runs::default(), BTreeMap::new());
            for _ in 0..300 {
                let (id, lost) = (InodeId(1 + rng.below(40)), rng.choose(&losts));
                // Equal, though not the same.
                runs.set(id, Arc::new(Lost::clone(lost)));
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
