//! What was given up: instants before which inodes cannot be read any more, and the snapshots that are kept all the same.
//!
//! Guarantees: [`Horizons::expired`] is the one place that says whether an inode may be read at an instant; what it has
//! once refused it refuses for ever; a snapshot that was there when an instant was forgotten keeps what its maker may keep
//! ([`Pins::hold`]) readable until it is deleted, and that is never readable again after.
//! Leaves to others: which inodes lie below a path (`node`), giving back the space (`node`, `multilog`).
//!
//! Versions of names and inodes stay where they are: they are small, and the index of time and the walk through them stay
//! exact. What goes is bytes. An inode is forgotten as *named* at the instant, and then reads at or after it go on as
//! before; or as *nameless*, deleted by then, and then nothing of it can be read but what a snapshot shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frieze_base::{Fault, InodeId, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::forget::{ANYBODY, ForgottenHistory, Horizon, OwnedInodes, decode_ids, encode_ids};
use prost::Message;

use crate::apply::{Done, Run};
use crate::error::Error;
use crate::history::{Change, History};
use crate::inode::Inode;
use crate::key::Key;
use crate::namespace::{Namespace, Snapshot};
use crate::patch::PatchSource;
use crate::stored::{StoredForgotten, StoredForgottenInodes, StoredInode, StoredSession, decode};

/// Inodes under one key of the store.
const PAGE_INODES: usize = 8192;
/// Inodes that one transaction forgets; more take several.
pub const FORGET_INODES_MAX: usize = 1 << 20;

/// One forgetting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forgetting {
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
    /// Who asked.
    pub uid: u32,
}

/// Instants of snapshots, and who made a snapshot of each.
///
/// A snapshot holds back what its maker may hold back: what belongs to him, and everything if he is the superuser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins(BTreeMap<Hlc, BTreeSet<u32>>);

impl Pins {
    /// Those of snapshots of instants before `before`.
    pub fn of<'a>(snapshots: impl Iterator<Item = &'a Snapshot>, before: Hlc) -> Pins {
        let mut pins = Pins::default();
        for snapshot in snapshots.filter(|snapshot| snapshot.at < before) {
            pins.add(snapshot.at, snapshot.uid);
        }
        pins
    }

    pub(crate) fn add(&mut self, at: Hlc, maker: u32) {
        self.0.entry(at).or_default().insert(maker);
    }

    fn remove(&mut self, at: Hlc, maker: u32) -> bool {
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

    /// Each instant with each user who made a snapshot of it.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Hlc, u32)> {
        self.0.iter().flat_map(|(at, makers)| makers.iter().map(|maker| (*at, *maker)))
    }

    /// Of owners those whom it matters to: inodes that nobody's snapshot holds back forget alike, whosever they are.
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
struct Lost {
    by: Vec<By>,
}

/// One forgetting of an inode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct By {
    stamp: Hlc,
    /// It left nothing but pins.
    gone: bool,
    /// Users whose snapshots count, beside the superuser's: of those who have made one that was there, in order.
    owners: Vec<u32>,
}

impl Lost {
    fn is_gone(&self) -> bool {
        self.by.iter().any(|by| by.gone)
    }
}

/// The inodes that are forgotten together, as a transaction names them.
#[derive(Clone, Copy, Debug)]
pub struct ForgottenInodes<'a> {
    /// Those with a name at the instant.
    pub named: &'a [InodeId],
    /// Those that had lost their last one.
    pub nameless: &'a [InodeId],
    /// By inode the users whose snapshots count, beside the superuser's.
    pub owners: &'a Owners,
}

/// Users by the inodes that are theirs: of a directory also those who own what had a name in it.
pub type Owners = BTreeMap<InodeId, BTreeSet<u32>>;

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
    pub fn expired(&self, id: InodeId, at: Option<Hlc>) -> Option<ForgottenHistory> {
        if self.inodes.0.is_empty() {
            return None;
        }
        let lost = self.inodes.get(id)?;
        lost.by.iter().any(|by| self.refuses(by, at)).then(|| self.told(lost))
    }

    fn refuses(&self, by: &By, at: Option<Hlc>) -> bool {
        let forgetting = &self.forgettings[&by.stamp];
        let pinned = at.is_some_and(|at| forgetting.pins.hold(at, &by.owners));
        !pinned && (by.gone || at.is_some_and(|at| at < forgetting.before))
    }

    /// What an inode has forgotten.
    pub fn of(&self, id: InodeId) -> Option<ForgottenHistory> {
        self.inodes.get(id).map(|lost| self.told(lost))
    }

    /// True if nothing of the inode is left but what snapshots show.
    pub fn is_gone(&self, id: InodeId) -> bool {
        self.inodes.get(id).is_some_and(|lost| lost.is_gone())
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
    pub fn forgettings(&self) -> impl Iterator<Item = (Hlc, &Forgetting)> {
        self.forgettings.iter().map(|(stamp, forgetting)| (*stamp, forgetting))
    }

    /// Notes a forgetting of these inodes, as a transaction at `stamp` does or would do.
    pub fn add(&mut self, stamp: Hlc, forgetting: Forgetting, of: ForgottenInodes<'_>) {
        self.forgettings.insert(stamp, forgetting);
        self.add_inodes(stamp, of.named, of.owners, false);
        self.add_inodes(stamp, of.nameless, of.owners, true);
    }

    fn add_inodes(&mut self, stamp: Hlc, ids: &[InodeId], owners: &Owners, gone: bool) {
        let Horizons { forgettings, inodes } = self;
        let new = &forgettings[&stamp];
        // By what they had forgotten before, and whose they are.
        type Alike = (Option<Arc<Lost>>, Vec<u32>);
        let mut made: BTreeMap<Alike, Arc<Lost>> = BTreeMap::new();
        for &id in ids {
            let old = inodes.get(id).cloned();
            if old.as_ref().is_some_and(|lost| lost.is_gone()) && !new.through {
                continue;
            }
            let owners: Vec<u32> = owners.get(&id).into_iter().flatten().copied().collect();
            let lost = made.entry((old.clone(), owners)).or_insert_with_key(|(before, owners)| {
                let new_by = By { stamp, gone, owners: owners.clone() };
                // An older forgetting that refuses nothing that the new one does not is left out.
                let adds = |by: &&By| {
                    let old = &forgettings[&by.stamp];
                    let reaches = |pin: Hlc| by.gone || pin < old.before;
                    old.before > new.before
                        || (by.gone && !gone)
                        || new.pins.instants(&new_by.owners).any(|pin| reaches(pin) && !old.pins.hold(pin, &by.owners))
                };
                let kept = before.as_deref().map_or(&[][..], |lost| &lost.by);
                let by: Vec<By> = kept.iter().filter(adds).cloned().collect();
                Arc::new(Lost { by: by.into_iter().chain([new_by]).collect() })
            });
            inodes.set(id, Arc::clone(lost));
        }
    }

    fn told(&self, lost: &Lost) -> ForgottenHistory {
        let newest = lost.by.iter().map(|by| by.stamp).max_by_key(|stamp| self.forgettings[stamp].before);
        let newest = newest.expect("it was forgotten");
        let forgetting = &self.forgettings[&newest];
        ForgottenHistory { before: forgetting.before.0, stamp: newest.0, uid: forgetting.uid }
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
            Some(ForgottenHistory { before, stamp, uid }) => Err(Error::Forgotten {
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
        let pins = match op.with_snapshots {
            true => Pins::default(),
            false => Pins::of(self.snapshots.values(), before),
        };
        let owners = pins.counting(unpack_owners(&op.owners)?);
        let (root, path, uid) = (InodeId(op.root), op.path.clone(), run.caller.uid);
        let forgetting = Forgetting { before, pins, through: op.with_snapshots, root, path, uid };
        for session in &op.sessions {
            self.forget_command(run, SessionId(session.id), session.uid);
        }
        run.change(Key::Forgotten(run.stamp, 0), Some(StoredForgotten::of(&forgetting).encode_to_vec()));
        let all = named.iter().map(|id| (*id, false)).chain(nameless.iter().map(|id| (*id, true)));
        let all: Vec<(InodeId, bool)> = all.collect();
        for (page, ids) in (1u32..).zip(all.chunks(PAGE_INODES)) {
            let pack =
                |wanted: bool| encode_ids(ids.iter().filter(|(_, nameless)| *nameless == wanted).map(|(id, _)| id.0));
            let stored = StoredForgottenInodes {
                named: pack(false),
                nameless: pack(true),
                owners: pack_owners(ids.iter().map(|(id, _)| *id), &owners),
            };
            run.change(Key::Forgotten(run.stamp, page), Some(stored.encode_to_vec()));
        }
        let of = ForgottenInodes { named: &named, nameless: &nameless, owners: &owners };
        self.horizons.add(run.stamp, forgetting, of);
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

    /// What a session called itself goes from the one version that says it: that is written anew, in its place, so no instant and no
    /// restart shows it, and tables lose the old bytes when they are merged.
    fn forget_command(&self, run: &mut Run<'_>, id: SessionId, uid: u32) {
        if self.sessions.contains_key(&id) {
            return;
        }
        // Of one that changed nothing that version says when it ended, too.
        let ended = self.ended.end_of(id).unwrap_or_default().0;
        let stored = StoredSession { uid, unchanging: ended != 0, ended, ..StoredSession::default() };
        let (key, stamp) = (Key::Session(id).encode(), Hlc(id.0));
        run.changes.push(Change { key, stamp, value: Some(stored.encode_to_vec()) });
    }

    /// A snapshot of `at` is no more that `maker` had made: unless he has made another of the instant, what he alone kept is now
    /// forgotten there too.
    pub(crate) fn unpin(&mut self, run: &mut Run<'_>, at: Hlc, maker: u32) {
        if self.snapshots.values().any(|snapshot| (snapshot.at, snapshot.uid) == (at, maker)) {
            return;
        }
        for (stamp, forgetting) in &mut self.horizons.forgettings {
            if forgetting.pins.remove(at, maker) {
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
        let owners = unpack_owners(&stored.owners).map_err(|_| corrupt.clone())?;
        for (bytes, gone) in [(&stored.named, false), (&stored.nameless, true)] {
            let ids: Vec<InodeId> = decode_ids(bytes).ok_or(corrupt.clone())?.into_iter().map(InodeId).collect();
            self.horizons.add_inodes(stamp, &ids, &owners, gone);
        }
        Ok(())
    }
}

fn unpack_owners(packed: &[OwnedInodes]) -> Result<Owners, Error> {
    let mut owners = Owners::new();
    for owned in packed {
        let ids = decode_ids(&owned.inodes).ok_or(Error::InvalidArgument { why: "not a list of inodes" })?;
        for id in ids {
            owners.entry(InodeId(id)).or_default().insert(owned.uid);
        }
    }
    Ok(owners)
}

/// Owners as messages and the store have them, of these inodes.
pub fn pack_owners(ids: impl Iterator<Item = InodeId>, owners: &Owners) -> Vec<OwnedInodes> {
    let mut of: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for id in ids {
        for uid in owners.get(&id).into_iter().flatten() {
            of.entry(*uid).or_default().insert(id.0);
        }
    }
    of.into_iter().map(|(uid, ids)| OwnedInodes { uid, inodes: encode_ids(ids.into_iter()) }).collect()
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

/// What is shown of an inode: itself, its newest version's directory, and each session that changed it.
pub type VisitAuthors<'a> = dyn FnMut(InodeId, &Inode, &BTreeSet<SessionId>) + 'a;

/// Shows of every inode which sessions ever changed it: every change of names, attributes and bytes leaves a version of an inode that
/// names its session, for bytes that of the grant to write them.
///
/// # Errors
/// `Corrupt`; those of the store.
///
/// # Cost
/// As [`shared_states`].
pub fn visit_authors(history: &dyn History, visit: &mut VisitAuthors<'_>) -> Result<(), Fault> {
    let mut broken = Ok(());
    let mut open: Option<(InodeId, Inode, BTreeSet<SessionId>)> = None;
    history.versions(b"I", &[], Hlc::ZERO, Hlc::MAX, &mut |key, stamp, value| {
        let Some(Key::Inode(id)) = Key::decode(key) else {
            broken = Err(Error::Corrupt { what: "key of an inode" });
            return false;
        };
        let Some(value) = value else { return true };
        let (inode, stored) = match StoredInode::read(stamp, value, Arc::new) {
            Ok(read) => read,
            Err(error) => {
                broken = Err(error);
                return false;
            }
        };
        let mut sessions = match open.take() {
            Some((last, _, sessions)) if last == id => sessions,
            Some((last, inode, sessions)) => {
                visit(last, &inode, &sessions);
                BTreeSet::new()
            }
            None => BTreeSet::new(),
        };
        sessions.insert(SessionId(stored.session));
        open = Some((id, inode, sessions));
        true
    })?;
    broken?;
    if let Some((id, inode, sessions)) = open {
        visit(id, &inode, &sessions);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use frieze_base::Rng;

    use super::*;

    #[test]
    fn runs_say_of_each_inode_what_was_last_set_and_are_as_few_as_can_be() {
        let mut rng = Rng::new(5);
        let losts: Vec<Arc<Lost>> = (1..4)
            .map(|stamp| By { stamp: Hlc(stamp), gone: stamp == 3, owners: Vec::new() })
            .map(|by| Arc::new(Lost { by: vec![by] }))
            .collect();
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
