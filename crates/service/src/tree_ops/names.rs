//! Names in a plan: their places, and which of them cannot change as planned.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_metadata::TreeNode;
use frieze_namespace::Paths;
use frieze_wire::edit::NEW;
use frieze_wire::message::FileKind;
use frieze_wire::txn::Caller;

use super::Plan;
use crate::tree_ops::TreeOps;

/// A name: directory and name in it.
pub(super) type NameKey = (InodeId, Vec<u8>);
/// The nodes that a plan names, and the directories above.
type Nodes = BTreeMap<InodeId, TreeNode>;

impl TreeOps {
    /// The inode of a name at a closed instant.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn entry_at(&self, directory: InodeId, name: &[u8], at: Hlc) -> Result<Option<InodeId>, Fault> {
        self.planes.meta.history().entry(directory, name, at)
    }

    /// The path of a name, as it was at a closed instant; by the number of its directory if that had no name.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn path_at(&self, directory: InodeId, name: &[u8], at: Hlc) -> Result<Vec<u8>, Fault> {
        self.planes.meta.history().paths(&[at], &Caller::root()).of(directory, name)
    }

    /// Drops from a plan the names that cannot change as planned: what others have built on stays. Each is listed as
    /// left.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn settle_names(&self, plan: &mut Plan, paths: &mut Paths<'_>) -> Result<(), Fault> {
        let mut kept: BTreeSet<InodeId> = BTreeSet::new();
        loop {
            let named = plan.names.iter().flat_map(|(key, naming)| [key.0, InodeId(naming.inode), naming.expect]);
            let dropped = conflicts(&self.planes.meta.tree_nodes(named), plan, &mut kept);
            if dropped.is_empty() {
                return Ok(());
            }
            for (key, words) in dropped {
                let Some(naming) = plan.names.remove(&key) else { continue };
                let path = paths.of(key.0, &key.1)?;
                let inode = if naming.inode == 0 { naming.expect.0 } else { naming.inode };
                plan.leave(&path, inode, words);
            }
            plan.forget_unnamed();
        }
    }
}

/// Names of the plan that cannot change, and why. `kept` are inodes that could not get a planned name: they keep the
/// names they have.
fn conflicts(nodes: &Nodes, plan: &Plan, kept: &mut BTreeSet<InodeId>) -> Vec<(NameKey, String)> {
    let mut gains: BTreeMap<u64, Vec<&NameKey>> = BTreeMap::new();
    let mut losses: BTreeMap<InodeId, Vec<&NameKey>> = BTreeMap::new();
    let mut children: BTreeMap<InodeId, i64> = BTreeMap::new();
    for (key, naming) in plan.names.iter().filter(|(_, naming)| naming.expect.0 != naming.inode) {
        if naming.inode != 0 {
            gains.entry(naming.inode).or_default().push(key);
        }
        if naming.expect.0 != 0 {
            losses.entry(naming.expect).or_default().push(key);
        }
        *children.entry(key.0).or_default() += i64::from(naming.inode != 0) - i64::from(naming.expect.0 != 0);
    }
    let is_directory = |id: u64| match id & NEW {
        0 => nodes.get(&InodeId(id)).is_some_and(|node| node.is_directory),
        _ => plan.new[(id & !NEW) as usize].kind == FileKind::Directory as i32,
    };
    let names_after = |id: u64| {
        let now = match nodes.get(&InodeId(id)).filter(|_| id & NEW == 0) {
            Some(node) if node.is_directory => usize::from(node.links > 0),
            Some(node) => node.links as usize,
            // New, or without a name for so long that it is no longer in memory.
            None => 0,
        };
        let gained = gains.get(&id).map_or(0, Vec::len);
        (now + gained).saturating_sub(losses.get(&InodeId(id)).map_or(0, Vec::len))
    };
    let mut dropped: BTreeMap<NameKey, String> = BTreeMap::new();
    for (&id, keys) in &gains {
        let brought_directory = !nodes.contains_key(&InodeId(id)) && keys.len() > 1 && id & NEW == 0;
        if (is_directory(id) && names_after(id) > 1) || brought_directory {
            kept.insert(InodeId(id));
            for key in keys {
                dropped.insert((*key).clone(), "the directory has another name now: a directory has only one".into());
            }
        }
    }
    for (&id, keys) in &losses {
        if kept.contains(&id) || (plan.displaced.contains(&id) && names_after(id.0) == 0) {
            for key in keys {
                dropped.insert((*key).clone(), "it could not get back the name it had".into());
            }
            continue;
        }
        let entry_count = nodes.get(&id).map_or(0, |node| node.entry_count);
        let held = entry_count as i64 + children.get(&id).copied().unwrap_or(0);
        if is_directory(id.0) && names_after(id.0) == 0 && held > 0 {
            kept.insert(id);
            for key in keys {
                dropped.insert((*key).clone(), format!("the directory holds {held} names made or kept by others"));
            }
        }
    }
    for (key, naming) in plan.names.iter().filter(|(_, naming)| naming.inode != 0) {
        if let Some(words) = unrooted(nodes, key.0, &gains, &names_after) {
            kept.insert(InodeId(naming.inode));
            dropped.insert(key.clone(), words);
        }
    }
    dropped.into_iter().collect()
}

/// Why a directory would have no path to the root after the edit; `None` if it has one.
fn unrooted(
    nodes: &Nodes,
    directory: InodeId,
    gains: &BTreeMap<u64, Vec<&NameKey>>,
    names_after: &dyn Fn(u64) -> usize,
) -> Option<String> {
    let mut way = BTreeSet::new();
    let mut here = directory;
    while here != InodeId::ROOT {
        if !way.insert(here) {
            return Some("a directory would lie below itself".to_owned());
        }
        if names_after(here.0) == 0 {
            return Some("its directory is gone".to_owned());
        }
        here = match gains.get(&here.0).and_then(|keys| keys.last()) {
            Some((parent, _)) => *parent,
            None => nodes.get(&here)?.parent,
        };
    }
    None
}
