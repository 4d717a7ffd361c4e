//! Paths in the answers about a change of a tree.
//!
//! Guarantees: a file is called by a name that the caller gave, or may list; without one, by its number.
//! Leaves to others: closing the instants; whether the caller may learn a name that is asked for by its directory.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_wire::txn::Caller;

use crate::history::VersionHistory;
use crate::tree_at::TreeAt;

/// The superuser: [`Paths::of`] asks for no rights.
static ROOT: Caller = Caller { uid: 0, gid: 0, groups: Vec::new() };

/// Paths at several instants: the first instant with a path counts. A directory without a name at any of them is listed
/// by its future name, or else by its last one.
pub struct Paths<'a> {
    /// Every name.
    cuts: Vec<TreeAt<'a>>,
    /// The names that the caller may list, at the same instants.
    listable: Vec<TreeAt<'a>>,
    /// Names that inodes are to get: directory and name in it.
    coming: BTreeMap<InodeId, (InodeId, Vec<u8>)>,
    /// Names of inodes that the caller gave, or made.
    known: BTreeMap<InodeId, (InodeId, Vec<u8>)>,
}

impl<'a> Paths<'a> {
    /// Paths for `caller` at closed instants.
    pub fn new(history: &'a dyn VersionHistory, instants: &[Hlc], caller: &'a Caller) -> Paths<'a> {
        let cuts_of = |caller| instants.iter().map(|&at| TreeAt::new(history, at, caller)).collect();
        Paths { cuts: cuts_of(&ROOT), listable: cuts_of(caller), coming: BTreeMap::new(), known: BTreeMap::new() }
    }

    /// Names that inodes are to get: directory and name in it.
    pub fn set_coming(&mut self, coming: BTreeMap<InodeId, (InodeId, Vec<u8>)>) {
        self.coming = coming;
    }

    /// Notes a name of an inode that the caller knows: directory and name in it.
    pub fn note_known(&mut self, id: InodeId, name: (InodeId, Vec<u8>)) {
        self.known.insert(id, name);
    }

    /// The path of a name; by the number of its directory if that never had a name. No rights are asked.
    ///
    /// # Errors
    /// Those of the store.
    pub fn of(&mut self, directory: InodeId, name: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut below = vec![name.to_vec()];
        let (mut here, mut way) = (directory, BTreeSet::new());
        let top = 'up: loop {
            for cut in &mut self.cuts {
                if let Some(path) = cut.path(here)? {
                    break 'up path.clone();
                }
            }
            match self.other_name(here)? {
                Some((parent, name)) if way.insert(here) => {
                    below.push(name);
                    here = parent;
                }
                _ => break format!("inode {here}").into_bytes(),
            }
        };
        below.push(top);
        below.reverse();
        Ok(below.join(&b'/'))
    }

    /// The path of an inode by a name that the caller knows or may list; by its number if there is none.
    ///
    /// # Errors
    /// Those of the store.
    pub fn of_inode(&mut self, id: InodeId) -> Result<Vec<u8>, Fault> {
        if id == InodeId::ROOT {
            return Ok(b"/".to_vec());
        }
        if let Some((parent, name)) = self.known.get(&id).cloned() {
            return self.of(parent, &name);
        }
        for (cut, listable) in self.cuts.iter().zip(&mut self.listable) {
            for named in cut.names(id)? {
                if listable.may_list(named.parent)? {
                    return self.of(named.parent, &named.name);
                }
            }
        }
        Ok(format!("inode {id}").into_bytes())
    }

    /// The future name of an inode, or the last that it had.
    fn other_name(&mut self, id: InodeId) -> Result<Option<(InodeId, Vec<u8>)>, Fault> {
        if let Some(key) = self.coming.get(&id) {
            return Ok(Some(key.clone()));
        }
        let Some(cut) = self.cuts.first_mut() else { return Ok(None) };
        let last = cut.last_names(id)?.and_then(|(_, names)| names.into_iter().next());
        Ok(last.map(|named| (named.parent, named.name)))
    }
}
