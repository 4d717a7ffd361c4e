//! The tree at one instant as one caller may see it: where an inode lies, what it is called, whether that may be told.
//!
//! Guarantees: rights of then and of now are both asked (design §12); nothing below a directory that the caller may not
//! search is shown to him, nor a name in one that he may not read.
//! Leaves to others: closing the instant.

use std::rc::Rc;
use std::sync::Arc;

use frieze_base::{FastMap, Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_wire::txn::Caller;

use crate::history::History;
use crate::inode::{Inode, MAY_EXECUTE, MAY_READ, allows};
use crate::key::Key;
use crate::stored::StoredInode;
use crate::timeline::{Named, names_at};

/// Directories deeper than this do not exist: a path in a request has at most 4,096 bytes, a walk by inode a few more.
const DEPTH_MAX: usize = 65_536;

/// One instant, one caller. What was looked up is remembered, so that a thousand changes in a directory ask once.
pub struct Cut<'a> {
    history: &'a dyn History,
    at: Hlc,
    caller: &'a Caller,
    inodes: FastMap<InodeId, Option<Rc<Inode>>>,
    paths: FastMap<InodeId, Option<Rc<[u8]>>>,
    searchable: FastMap<InodeId, bool>,
    readable: FastMap<InodeId, bool>,
}

impl<'a> Cut<'a> {
    /// The tree at `at`, which has to be closed. Everything comes from the history, so nobody is kept from changing names
    /// meanwhile.
    pub fn new(history: &'a dyn History, at: Hlc, caller: &'a Caller) -> Cut<'a> {
        Cut {
            history,
            at,
            caller,
            inodes: FastMap::default(),
            paths: FastMap::default(),
            searchable: FastMap::default(),
            readable: FastMap::default(),
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
    pub fn is_within(&mut self, directory: InodeId, ancestor: InodeId) -> Result<bool, Fault> {
        self.is_below(directory, &|here| here == ancestor)
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
    pub fn last_names(&mut self, id: InodeId) -> Result<Option<(Hlc, Vec<Named>)>, Fault> {
        let Some(gone) = self.inode(id)?.and_then(|inode| inode.orphaned()) else { return Ok(None) };
        let last = gone.previous();
        Ok(Some((last, names_at(self.history, id, last)?)))
    }

    /// The path of a directory, beginning with `/` and ending without one (the root's is empty); `None` if it had no
    /// name. No rights are asked: see [`Cut::may_list`].
    ///
    /// # Errors
    /// Those of the store.
    pub fn path(&mut self, directory: InodeId) -> Result<Option<Rc<[u8]>>, Fault> {
        let mut below = Vec::new();
        let mut here = directory;
        let mut path: Rc<[u8]> = loop {
            if here == InodeId::ROOT {
                break Rc::from(&b""[..]);
            }
            if let Some(known) = self.paths.get(&here) {
                match known {
                    Some(path) => break Rc::clone(path),
                    None => return Ok(None),
                }
            }
            let alive = self.inode(here)?.is_some_and(|inode| inode.links > 0);
            let name = if alive { names_at(self.history, here, self.at)?.pop() } else { None };
            let Some(Named { parent, name }) = name.filter(|_| below.len() < DEPTH_MAX) else {
                self.paths.insert(here, None);
                return Ok(None);
            };
            below.push((here, name));
            here = parent;
        };
        for (id, name) in below.into_iter().rev() {
            path = Rc::from([&path[..], b"/", &name].concat());
            self.paths.insert(id, Some(Rc::clone(&path)));
        }
        Ok(Some(path))
    }

    /// The names that an inode had.
    ///
    /// # Errors
    /// Those of the store.
    pub fn names(&self, id: InodeId) -> Result<Vec<Named>, Fault> {
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
        let mut way = Vec::new();
        let mut here = directory;
        let mut answer = loop {
            if let Some(&known) = self.searchable.get(&here) {
                break known;
            }
            way.push(here);
            match self.parent(here)? {
                _ if here == InodeId::ROOT => break true,
                Some(parent) if way.len() < DEPTH_MAX => here = parent,
                // A directory without a name is come to by nobody.
                _ => break false,
            }
        };
        for id in way.into_iter().rev() {
            answer = answer && self.allows(id, MAY_EXECUTE)?;
            self.searchable.insert(id, answer);
        }
        Ok(answer)
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

    /// True if the mode bits of then and of now both allow it.
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

fn inode_at(history: &dyn History, id: InodeId, at: Hlc) -> Result<Option<Inode>, Fault> {
    match history.newest(&Key::Inode(id).encode(), at)? {
        Some((from, Some(value))) => Ok(Some(StoredInode::read(from, &value, Arc::new)?.0)),
        _ => Ok(None),
    }
}
