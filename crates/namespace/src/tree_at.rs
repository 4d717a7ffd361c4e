//! The tree at one instant as one caller may see it: where an inode lies, what it is called, whether that may be told.
//!
//! Guarantees: rights of then and of now are both asked (design §12); nothing below a directory that the caller may not
//! search is shown to him, nor a name in one that he may not read. Each directory on the way up is read once, however
//! many changes lie below it, also while the cut moves from one transaction to the next ([`TreeAt::advance`]).
//! Leaves to others: closing the instant.

use std::rc::Rc;
use std::sync::Arc;

use frieze_base::{FastMap, Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_wire::txn::Caller;

use crate::history::VersionHistory;
use crate::inode::{Inode, MAY_EXECUTE, MAY_READ, allows};
use crate::key::VersionKey;
use crate::stored::StoredInode;
use crate::timeline::{PlaceName, names_at};

/// Directories deeper than this do not exist: a path in a request has at most 4,096 bytes, a walk by inode a few more.
const DEPTH_MAX: usize = 65_536;

/// One instant, one caller. What was looked up is remembered, so that a thousand changes in a directory ask once.
pub struct TreeAt<'a> {
    history: &'a dyn VersionHistory,
    at: Hlc,
    caller: &'a Caller,
    inodes: FastMap<InodeId, Option<Rc<Inode>>>,
    /// Where directories lie; only of those in `inodes`.
    places: FastMap<InodeId, Option<Rc<PlaceName>>>,
    /// What is known of directories from the way up; only of those in `inodes`.
    ways: FastMap<InodeId, PathToRoot>,
    readable: FastMap<InodeId, bool>,
}

/// What the directories above say of a directory.
#[derive(Clone, Debug, Default)]
struct PathToRoot {
    /// The directory last asked about, and whether it is that one or lies below it.
    is_within: Option<(InodeId, bool)>,
    /// The caller may come to it and search it.
    is_searchable: Option<bool>,
    /// The directory above it, among whose `below` it is.
    parent: Option<InodeId>,
    /// Directories in it whose ways lead through it: what is known of them ends with what is known of this one.
    below: Vec<InodeId>,
}

impl<'a> TreeAt<'a> {
    /// The tree at `at`, which has to be closed. Everything comes from the history, so no change of names waits for it
    /// meanwhile.
    pub fn new(history: &'a dyn VersionHistory, at: Hlc, caller: &'a Caller) -> TreeAt<'a> {
        TreeAt {
            history,
            at,
            caller,
            inodes: FastMap::default(),
            places: FastMap::default(),
            ways: FastMap::default(),
            readable: FastMap::default(),
        }
    }

    /// Moves to `at`, which has to be closed and not before the instant of this cut. `changed`: every inode with a
    /// version stamped in between, each once.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// A version for each directory among `changed` that was looked at; what lies below is forgotten only if the
    /// directory was moved or its mode, owner or access list changed.
    pub fn advance(&mut self, at: Hlc, changed: impl IntoIterator<Item = InodeId>) -> Result<(), Fault> {
        assert!(at >= self.at, "a cut moves forwards in time: {at} is before {}", self.at);
        self.at = at;
        for id in changed {
            let Some(old) = self.inodes.remove(&id) else { continue };
            self.places.remove(&id);
            self.readable.remove(&id);
            let is_way = self.ways.contains_key(&id);
            let new = if is_way { self.inode(id)? } else { None };
            let facts = |inode: &Option<Rc<Inode>>| {
                let rights = |inode: &Inode| (inode.mode, inode.uid, inode.gid, inode.acl().cloned());
                inode.as_ref().map(|inode| (inode.parent, inode.links > 0, rights(inode)))
            };
            if is_way && facts(&old) != facts(&new) {
                self.forget_below(id);
            }
        }
        Ok(())
    }

    /// Forgets the ways of a directory and of all below it.
    fn forget_below(&mut self, directory: InodeId) {
        let mut rest = vec![directory];
        while let Some(id) = rest.pop() {
            self.readable.remove(&id);
            rest.extend(self.ways.remove(&id).into_iter().flat_map(|way| way.below));
        }
    }

    /// Notes something about the directories of a way up, the lowest first; `above` is the one that it led to.
    fn note(&mut self, way: &[InodeId], above: Option<InodeId>, fact: impl Fn(&mut PathToRoot, InodeId)) {
        let parents = way.iter().skip(1).copied().map(Some).chain([above]);
        for (&id, parent) in way.iter().zip(parents) {
            let known = self.ways.entry(id).or_default();
            fact(known, id);
            if let Some(parent) = parent.filter(|parent| known.parent != Some(*parent)) {
                known.parent = Some(parent);
                self.ways.entry(parent).or_default().below.push(id);
            }
        }
    }

    /// The instant.
    pub fn at(&self) -> Hlc {
        self.at
    }

    /// The version of an inode, with or without a name; `None` if there was none yet.
    ///
    /// # Errors
    /// Those of the store.
    pub fn inode(&mut self, id: InodeId) -> Result<Option<Rc<Inode>>, Fault> {
        if let Some(known) = self.inodes.get(&id) {
            return Ok(known.clone());
        }
        let found = inode_at(self.history, id, self.at)?.map(Rc::new);
        self.inodes.insert(id, found.clone());
        Ok(found)
    }

    /// The directory that a directory lay in, if it had a name.
    fn parent(&mut self, id: InodeId) -> Result<Option<InodeId>, Fault> {
        let inode = self.inode(id)?;
        Ok(inode.filter(|inode| inode.is_directory() && inode.links > 0).map(|inode| inode.parent))
    }

    /// True if a directory was `ancestor` or lay below it.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// Each directory on the way up is read once, as long as it is asked about the same `ancestor`.
    pub fn is_within(&mut self, directory: InodeId, ancestor: InodeId) -> Result<bool, Fault> {
        let (mut way, mut here) = (Vec::new(), directory);
        let (answer, above) = loop {
            let known = self.ways.get(&here).and_then(|way| way.is_within);
            if let Some((_, known)) = known.filter(|(about, _)| *about == ancestor) {
                break (known, Some(here));
            }
            way.push(here);
            if here == ancestor {
                break (self.inode(here)?.is_some_and(|inode| inode.links > 0), None);
            }
            match self.parent(here)? {
                Some(parent) if here != InodeId::ROOT && way.len() < DEPTH_MAX => here = parent,
                _ => break (false, None),
            }
        };
        self.note(&way, above, |way, _| way.is_within = Some((ancestor, answer)));
        Ok(answer)
    }

    /// True if a directory was one of those that `is_root` knows, or lay below one.
    ///
    /// # Errors
    /// Those of the store.
    pub fn is_below(&mut self, directory: InodeId, is_root: &dyn Fn(InodeId) -> bool) -> Result<bool, Fault> {
        let mut here = directory;
        for _ in 0..DEPTH_MAX {
            if is_root(here) {
                return Ok(self.inode(here)?.is_some_and(|inode| inode.links > 0));
            }
            match self.parent(here)? {
                Some(parent) if here != InodeId::ROOT => here = parent,
                _ => break,
            }
        }
        Ok(false)
    }

    /// The names that an inode which has none had last, and until when; `None` if it has one, or never had.
    ///
    /// # Errors
    /// Those of the store.
    pub fn last_names(&mut self, id: InodeId) -> Result<Option<(Hlc, Vec<PlaceName>)>, Fault> {
        let Some(gone) = self.inode(id)?.and_then(|inode| inode.orphaned()) else { return Ok(None) };
        let last = gone.previous();
        Ok(Some((last, names_at(self.history, id, last)?)))
    }

    /// The path of a directory, beginning with `/` and ending without one (the root's is empty); `None` if it had no
    /// name. No rights are asked: see [`TreeAt::may_list`].
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// Each directory on the way up is read once; then the length of the path.
    pub fn path(&mut self, directory: InodeId) -> Result<Option<Vec<u8>>, Fault> {
        let (mut way, mut here) = (Vec::new(), directory);
        while here != InodeId::ROOT {
            let Some(named) = self.place(here)?.filter(|_| way.len() < DEPTH_MAX) else { return Ok(None) };
            here = named.parent;
            way.push(named);
        }
        let mut path = Vec::with_capacity(way.iter().map(|named| named.name.len() + 1).sum());
        for named in way.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(&named.name);
        }
        Ok(Some(path))
    }

    /// The name of a directory that has one.
    fn place(&mut self, directory: InodeId) -> Result<Option<Rc<PlaceName>>, Fault> {
        if let Some(known) = self.places.get(&directory) {
            return Ok(known.clone());
        }
        let alive = self.inode(directory)?.is_some_and(|inode| inode.links > 0);
        let name = if alive { self.names(directory)?.pop().map(Rc::new) } else { None };
        self.places.insert(directory, name.clone());
        Ok(name)
    }

    /// The names that an inode had.
    ///
    /// # Errors
    /// Those of the store.
    pub fn names(&self, id: InodeId) -> Result<Vec<PlaceName>, Fault> {
        names_at(self.history, id, self.at)
    }

    /// True if the caller may come to the directory and search it, then and now.
    ///
    /// # Errors
    /// Those of the store.
    pub fn may_search(&mut self, directory: InodeId) -> Result<bool, Fault> {
        if self.caller.uid == 0 {
            return Ok(true);
        }
        let (mut way, mut here) = (Vec::new(), directory);
        let (mut answer, above) = loop {
            if let Some(known) = self.ways.get(&here).and_then(|way| way.is_searchable) {
                break (known, Some(here));
            }
            way.push(here);
            match self.parent(here)? {
                _ if here == InodeId::ROOT => break (true, None),
                Some(parent) if way.len() < DEPTH_MAX => here = parent,
                // No path leads to a directory without a name.
                _ => break (false, None),
            }
        };
        let mut allowed = vec![false; way.len()];
        for (&id, allowed) in way.iter().zip(&mut allowed).rev() {
            answer = answer && self.allows(id, MAY_EXECUTE)?;
            *allowed = answer;
        }
        let places: FastMap<InodeId, bool> = way.iter().copied().zip(allowed).collect();
        self.note(&way, above, |way, id| way.is_searchable = places.get(&id).copied());
        Ok(self.ways.get(&directory).and_then(|way| way.is_searchable).unwrap_or(answer))
    }

    /// True if the caller may learn the names in a directory, then and now.
    ///
    /// # Errors
    /// Those of the store.
    pub fn may_list(&mut self, directory: InodeId) -> Result<bool, Fault> {
        if self.caller.uid == 0 {
            return Ok(true);
        }
        if let Some(&known) = self.readable.get(&directory) {
            return Ok(known);
        }
        let answer = self.may_search(directory)? && self.allows(directory, MAY_READ)?;
        self.readable.insert(directory, answer);
        Ok(answer)
    }

    /// True if the rights of then and of now both allow it.
    ///
    /// # Errors
    /// Those of the store.
    pub fn allows(&mut self, id: InodeId, mask: u32) -> Result<bool, Fault> {
        let Some(then) = self.inode(id)? else { return Ok(false) };
        if !allows(&then, self.caller, mask) {
            return Ok(false);
        }
        let newest = inode_at(self.history, id, Hlc::MAX)?;
        Ok(newest.is_some_and(|newest| newest.from == then.from || allows(&newest, self.caller, mask)))
    }
}

fn inode_at(history: &dyn VersionHistory, id: InodeId, at: Hlc) -> Result<Option<Inode>, Fault> {
    match history.newest(&VersionKey::Inode(id).encode(), at)? {
        Some((from, Some(value))) => Ok(Some(StoredInode::read(from, &value, Arc::new)?.0)),
        _ => Ok(None),
    }
}
