//! Whether what is stored of names and inodes can be true: for `fsck`.
//!
//! Guarantees: every version is read; the tree of an instant is compared with itself from both sides. Nothing is
//! changed, and memory does not grow with it.
//! Leaves to others: bytes of files (`multilog`), the repair of a finding.

use std::sync::Arc;

use frieze_base::{Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_wire::edit::Edit;
use frieze_wire::forget::decode_ids;
use frieze_wire::message::FileKind;

use prost::Message;

use crate::entry_stamps::{entry_stamps_of, visit_entry_stamps};
use crate::error::Error;
use crate::expired_removals::decode_removed;
use crate::history::VersionHistory;
use crate::inode::Inode;
use crate::key::{ENTRY_STAMPS, VersionKey, keeps_versions};
use crate::patch::PatchSource;
use crate::regimes::{StoredPolicy, StoredRegime};
use crate::stored::{
    StoredEntry, StoredForgotten, StoredForgottenInodes, StoredFormat, StoredInode, StoredSession, StoredSnapshot,
    StoredXattr, decode, read_loss,
};
use crate::timeline::{PlaceName, names_at};

/// A key, and what its value reads as.
type MergedKey<T> = (Vec<u8>, Option<T>);

/// How many of each there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckCounts {
    /// Versions of everything.
    pub versions: u64,
    /// Inodes at the instant, those without a name included.
    pub inodes: u64,
    /// Names at the instant.
    pub names: u64,
}

/// Reads every version, and compares names and inodes at `at` with each other. What cannot be true is told to `wrong`,
/// a sentence each.
///
/// # Errors
/// Those of the history: what lies behind is not looked at.
///
/// # Cost
/// A pass over all versions, and some lookups for each name and inode of the instant.
pub fn check_history(
    history: &dyn VersionHistory,
    at: Hlc,
    wrong: &mut dyn FnMut(String),
) -> Result<CheckCounts, Fault> {
    let mut check = HistoryCheck { history, at, wrong, counts: CheckCounts::default() };
    check.versions()?;
    check.inodes()?;
    check.names()?;
    Ok(check.counts)
}

struct HistoryCheck<'a> {
    history: &'a dyn VersionHistory,
    at: Hlc,
    wrong: &'a mut dyn FnMut(String),
    counts: CheckCounts,
}

impl HistoryCheck<'_> {
    fn versions(&mut self) -> Result<(), Fault> {
        let HistoryCheck { history, wrong, counts, .. } = self;
        // Pages of stamps come first, so that each damaged one is named: the versions of a directory that has one
        // cannot be read, which ends the check. The index of time has its own form, and can be made again.
        let letters =
            (b'A'..=b'Z').filter(|letter| ![ENTRY_STAMPS, b'T'].contains(letter) && keeps_versions(&[*letter]));
        for letter in [ENTRY_STAMPS].into_iter().chain(letters) {
            history.versions(&[letter], &[], Hlc::ZERO, Hlc::MAX, &mut |key, stamp, value| {
                // A page is no version: those that it stands for are shown as versions of inodes.
                counts.versions += u64::from(letter != ENTRY_STAMPS);
                let damage = match (entry_stamps_of(key), value) {
                    (Some(directory), Some(page)) => {
                        visit_entry_stamps(directory, stamp, page, &mut |_| true).err().map(|fault| fault.to_string())
                    }
                    _ => read(key, stamp, value).err().map(|error| error.to_string()),
                };
                if let Some(damage) = damage {
                    wrong(format!("{} at {stamp} cannot be read: {damage}", shown(key)));
                }
                true
            })?;
        }
        // Its pages say themselves when they are damaged.
        history.changed(Hlc::ZERO, Hlc::MAX, &mut |_, _| true).map(drop)
    }

    fn inode(&self, id: InodeId, at: Hlc) -> Result<Option<Inode>, Fault> {
        match self.history.newest(&VersionKey::Inode(id).encode(), at)? {
            // One that cannot be read was told already.
            Some((from, Some(value))) => Ok(StoredInode::read(from, &value, Arc::new).ok().map(|(inode, _)| inode)),
            _ => Ok(None),
        }
    }

    fn inodes(&mut self) -> Result<(), Fault> {
        let mut after = Vec::new();
        while let Some((key, inode)) = self
            .next(b'I', &after, |stamp, value| StoredInode::read(stamp, value, Arc::new).ok().map(|(inode, _)| inode))?
        {
            if let (Some(VersionKey::Inode(id)), Some(inode)) = (VersionKey::decode(&key), inode) {
                self.counts.inodes += 1;
                self.one_inode(id, &inode)?;
            }
            after = key;
        }
        Ok(())
    }

    fn one_inode(&mut self, id: InodeId, inode: &Inode) -> Result<(), Fault> {
        let Some(names) = self.names_of(id)? else { return Ok(()) };
        let count = names.len() as u64;
        let should = match (id, inode.orphaned(), inode.is_directory()) {
            (InodeId::ROOT, ..) | (_, Some(_), _) => 0,
            (_, None, true) => 1,
            (_, None, false) => u64::from(inode.links),
        };
        if count != should {
            (self.wrong)(format!("inode {id} has {count} names, and should have {should}"));
        }
        if inode.is_directory() && inode.orphaned().is_none() {
            self.one_directory(id, inode, names.first().map(|named| named.parent))?;
        }
        for patch in inode.patches() {
            if let PatchSource::Shared { inode: source, at, .. } = patch.source
                && self.inode(source, at)?.is_none()
            {
                (self.wrong)(format!("inode {id} shares bytes of inode {source} at {at}, where there was none"));
            }
        }
        Ok(())
    }

    fn one_directory(&mut self, id: InodeId, inode: &Inode, named_in: Option<InodeId>) -> Result<(), Fault> {
        if named_in.is_some_and(|parent| parent != inode.parent) {
            (self.wrong)(format!("directory {id} lies in another directory than it says, {}", inode.parent));
        }
        let mut directories = 0;
        let prefix = VersionKey::Entry(id, b"").encode();
        self.history.scan(&prefix, &[], self.at, &mut |_, _, value| {
            let kind = decode::<StoredEntry>(value, "name").map(|entry| entry.kind());
            directories += u64::from(kind == Ok(FileKind::Directory));
            true
        })?;
        if u64::from(inode.links) != directories + 2 {
            let links = inode.links;
            (self.wrong)(format!("directory {id} counts {links} links, and has {directories} directories in it"));
        }
        let (mut here, mut steps) = (inode.parent, 0);
        while here != InodeId::ROOT && id != InodeId::ROOT {
            let above = self.inode(here, self.at)?.filter(|above| above.is_directory() && above.orphaned().is_none());
            match above {
                Some(above) if here != id && steps < DEPTH_MAX => (here, steps) = (above.parent, steps + 1),
                _ => {
                    (self.wrong)(format!("directory {id} does not lie below the root"));
                    break;
                }
            }
        }
        Ok(())
    }

    fn names(&mut self) -> Result<(), Fault> {
        let mut after = Vec::new();
        let mut directory: Option<InodeId> = None;
        while let Some((key, entry)) = self.next(b'E', &after, |_, value| decode::<StoredEntry>(value, "name").ok())? {
            if let (Some(VersionKey::Entry(parent, name)), Some(entry)) = (VersionKey::decode(&key), entry) {
                self.counts.names += 1;
                if directory.replace(parent) != Some(parent) {
                    let lives = |inode: &Inode| inode.is_directory() && inode.orphaned().is_none();
                    if !self.inode(parent, self.at)?.as_ref().is_some_and(lives) {
                        (self.wrong)(format!("there are names in inode {parent}, which is no directory"));
                    }
                }
                self.one_name(parent, name, &entry)?;
            }
            after = key;
        }
        Ok(())
    }

    fn one_name(&mut self, parent: InodeId, name: &[u8], entry: &StoredEntry) -> Result<(), Fault> {
        let id = InodeId(entry.inode);
        let shown = String::from_utf8_lossy(name).into_owned();
        match self.inode(id, self.at)? {
            None => (self.wrong)(format!("{shown:?} in directory {parent} names inode {id}, which there is not")),
            Some(inode) if inode.kind() != entry.kind() || inode.orphaned().is_some() => (self.wrong)(format!(
                "{shown:?} in directory {parent} names inode {id}, which is of another kind or has no name"
            )),
            Some(_) => {}
        }
        let named = PlaceName { parent, name: name.to_vec() };
        if self.names_of(id)?.is_some_and(|names| !names.contains(&named)) {
            (self.wrong)(format!("inode {id} does not know that it is called {shown:?} in directory {parent}"));
        }
        Ok(())
    }

    /// The names of an inode; `None` if a version of it or of a name cannot be read: the versions are reported.
    fn names_of(&self, id: InodeId) -> Result<Option<Vec<PlaceName>>, Fault> {
        match names_at(self.history, id, self.at) {
            Err(fault) if fault.reason == Reason::Corrupt => Ok(None),
            names => names.map(Some),
        }
    }

    /// The first key of a letter above `after` that has a value at the instant, and what `read` makes of it. One at a
    /// time: nothing may be asked of a history while it shows something.
    fn next<T>(
        &self,
        letter: u8,
        after: &[u8],
        mut read: impl FnMut(Hlc, &[u8]) -> Option<T>,
    ) -> Result<Option<MergedKey<T>>, Fault> {
        let mut found = None;
        self.history.scan(&[letter], after, self.at, &mut |key, stamp, value| {
            found = Some((key.to_vec(), read(stamp, value)));
            false
        })?;
        Ok(found)
    }
}

/// Reads one version and forgets it.
fn read(key: &[u8], stamp: Hlc, value: Option<&[u8]>) -> Result<(), Error> {
    let key = VersionKey::decode(key).ok_or(Error::Corrupt { what: "key" })?;
    let Some(value) = value else { return Ok(()) };
    match key {
        VersionKey::Entry(..) => decode::<StoredEntry>(value, "name").and_then(|entry| match entry.inode {
            0 => Err(Error::Corrupt { what: "name" }),
            _ => Ok(()),
        }),
        VersionKey::Loss => read_loss(value).map(drop),
        VersionKey::Format => decode::<StoredFormat>(value, "format").map(drop),
        VersionKey::Policy(_) => {
            decode::<StoredPolicy>(value, "policy of retention").and_then(|stored| stored.read()).map(drop)
        }
        VersionKey::Regime(_) => {
            decode::<StoredRegime>(value, "regime of retention").and_then(|stored| stored.read()).map(drop)
        }
        VersionKey::Removed(_) => decode_removed(value).map(drop),
        VersionKey::Forgotten(_, 0) => decode::<StoredForgotten>(value, "forgotten instant").map(drop),
        VersionKey::Forgotten(..) => {
            let stored: StoredForgottenInodes = decode(value, "forgotten inodes")?;
            let owners = stored.owners.iter().map(|owned| &owned.inodes);
            let whole =
                [&stored.named, &stored.nameless].into_iter().chain(owners).all(|ids| decode_ids(ids).is_some());
            if whole { Ok(()) } else { Err(Error::Corrupt { what: "forgotten inodes" }) }
        }
        VersionKey::Inode(_) => StoredInode::read(stamp, value, Arc::new).map(drop),
        // A page is read as one.
        VersionKey::EntryStamps(_) | VersionKey::Link(..) | VersionKey::Outcome(..) => Ok(()),
        VersionKey::Staged(..) => match Edit::decode(value) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Corrupt { what: "part of an edit" }),
        },
        VersionKey::Snapshot(_) => decode::<StoredSnapshot>(value, "snapshot").map(drop),
        VersionKey::Session(_) => decode::<StoredSession>(value, "session").map(drop),
        VersionKey::Xattr(..) => decode::<StoredXattr>(value, "extended attribute").map(drop),
    }
}

/// A key in words.
fn shown(key: &[u8]) -> String {
    match VersionKey::decode(key) {
        Some(VersionKey::Entry(parent, name)) => {
            format!("the name {:?} in directory {parent}", String::from_utf8_lossy(name))
        }
        Some(VersionKey::Inode(id)) => format!("inode {id}"),
        Some(VersionKey::EntryStamps(id)) => format!("the page of entry stamps of directory {id}"),
        Some(VersionKey::Xattr(id, name)) => format!("attribute {:?} of inode {id}", String::from_utf8_lossy(name)),
        Some(key) => format!("{key:?}"),
        None => format!("the key {key:02x?}"),
    }
}

/// Directories are not deeper than this.
const DEPTH_MAX: u32 = 65_536;
