//! What was given up: instants before which inodes cannot be read any more, and the snapshots that are kept all the
//! same.
//!
//! Guarantees: [`Expiries::expired`] is the one place that says whether an inode may be read at an instant; what it has
//! once refused it refuses for ever; a snapshot that was there when an instant was forgotten keeps what its maker may
//! keep ([`Pins::hold`]) readable until it is deleted, and that is never readable again after.
//! Leaves to others: which inodes lie below a path (`node`), giving back the space (`node`, `multilog`).
//!
//! Versions of names and inodes stay where they are: they are small, and the index of time and the walk through them
//! stay exact. What goes is bytes. An inode is forgotten as *named* at the instant, and then reads at or after it go on
//! as before; or as *nameless*, deleted by then, and then nothing of it can be read but what a snapshot shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frieze_base::{Fault, InodeId, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::forget::{ForgottenHistory, Horizon, OwnedInodes, decode_ids, encode_ids};
use prost::Message;

use crate::apply::{OpResult, TxnRun};
use crate::error::Error;
use crate::history::{KeyVersion, VersionHistory};
use crate::horizons::{ExpiredInodes, Expiries, Expiry, Owners, Pins};
use crate::inode::Inode;
use crate::key::VersionKey;
use crate::namespace::Namespace;
use crate::patch::PatchSource;
use crate::stored::{StoredForgotten, StoredForgottenInodes, StoredInode, StoredSession, decode};

/// Inodes under one key of the store.
const PAGE_INODES: usize = 8192;
/// Inodes that one transaction forgets; more take several.
pub const FORGET_INODES_MAX: usize = 1 << 20;

impl Namespace {
    /// What was forgotten.
    pub fn horizons(&self) -> &Expiries {
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
            // Its past is refused by its kept instants, which are named.
            None if at.is_none() && self.horizons.is_removal_expired(id) => Err(Error::RemovalExpired { inode: id }),
            None => Ok(()),
            Some(ForgottenHistory { before, stamp, uid }) => Err(Error::Forgotten {
                inode: id,
                path: None,
                at,
                before: Hlc(before),
                stamp: Hlc(stamp),
                uid,
                gone: self.horizons.is_wholly_expired(id),
            }),
        }
    }

    pub(crate) fn forget(&mut self, run: &mut TxnRun<'_>, op: &Horizon) -> Result<OpResult, Error> {
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
        let forgetting = Expiry { before, pins, through: op.with_snapshots, root, path, uid };
        for session in &op.sessions {
            self.forget_command(run, SessionId(session.id), session.uid);
        }
        run.change(VersionKey::Forgotten(run.stamp, 0), Some(StoredForgotten::of(&forgetting).encode_to_vec()));
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
            run.change(VersionKey::Forgotten(run.stamp, page), Some(stored.encode_to_vec()));
        }
        let of = ExpiredInodes { named: &named, nameless: &nameless, owners: &owners };
        self.horizons.add(run.stamp, forgetting, of);
        self.retention.changes.expiries += 1;
        // No question about them is answered any more.
        self.drop_expired_orphans(&nameless);
        Ok(OpResult { id: op.root, ..OpResult::default() })
    }

    /// What a session called itself goes from the one version that says it: that is written anew, in its place, so no
    /// instant and no restart shows it, and tables lose the old bytes when they are merged.
    fn forget_command(&self, run: &mut TxnRun<'_>, id: SessionId, uid: u32) {
        if self.sessions.contains_key(&id) {
            return;
        }
        // Of one that changed nothing that version says when it ended, too.
        let ended = self.ended.end_of(id).unwrap_or_default().0;
        let stored = StoredSession { uid, unchanging: ended != 0, ended, ..StoredSession::default() };
        let (key, stamp) = (VersionKey::Session(id).encode(), Hlc(id.0));
        run.changes.push(KeyVersion { key, stamp, value: Some(stored.encode_to_vec()) });
    }

    /// A snapshot of `at` is no more that `maker` had made: unless he has made another of the instant, what he alone
    /// kept is now forgotten there too.
    pub(crate) fn unpin(&mut self, run: &mut TxnRun<'_>, at: Hlc, maker: u32) {
        if self.snapshots.values().any(|snapshot| (snapshot.at, snapshot.uid) == (at, maker)) {
            return;
        }
        for (stamp, forgetting) in &mut self.horizons.forgettings {
            if forgetting.pins.remove(at, maker) {
                self.retention.changes.expiries += 1;
                run.change(VersionKey::Forgotten(*stamp, 0), Some(StoredForgotten::of(forgetting).encode_to_vec()));
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
pub fn shared_states(history: &dyn VersionHistory) -> Result<BTreeMap<InodeId, Vec<SharedState>>, Fault> {
    let mut found: BTreeMap<InodeId, Vec<SharedState>> = BTreeMap::new();
    let mut broken = Ok(());
    // The state that the next version of the same inode ends.
    let mut open: Option<InodeId> = None;
    history.versions(b"I", &[], Hlc::ZERO, Hlc::MAX, &mut |key, stamp, value| {
        let Some(VersionKey::Inode(id)) = VersionKey::decode(key) else {
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

/// Shows of every inode which sessions ever changed it: every change of names, attributes and bytes leaves a version of
/// an inode that names its session, for bytes that of the grant to write them.
///
/// # Errors
/// `Corrupt`; those of the store.
///
/// # Cost
/// As [`shared_states`].
pub fn visit_authors(history: &dyn VersionHistory, visit: &mut VisitAuthors<'_>) -> Result<(), Fault> {
    let mut broken = Ok(());
    let mut open: Option<(InodeId, Inode, BTreeSet<SessionId>)> = None;
    history.versions(b"I", &[], Hlc::ZERO, Hlc::MAX, &mut |key, stamp, value| {
        let Some(VersionKey::Inode(id)) = VersionKey::decode(key) else {
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
