//! The part of the tree that a query about the past covers, and the changes that may lie in it.
//!
//! Guarantees: a query about a small part costs the changes in it, however many there were in other trees; one about a
//! large part costs all changes anywhere, each once.
//! Leaves to others: the changes (`change_feed`), their meaning (`diff`).

use frieze_base::{FastMap, Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_namespace::{ChangeSubject, PlaceName, Resolved, TreeAt, TreeExtent};
use frieze_storage::Device;

use crate::history::History;
use crate::history::tree_pair::CutPair;
use crate::history::tree_pair::Interval;

/// Records read for each event of a page of activity, and at least for a page: most are part of a longer run of writes,
/// or lie outside the scope.
const RECORDS_PER_EVENT: usize = 4;
const RECORDS_MIN: usize = 4096;
/// Most versions of names and inodes in a small part of the tree: each page of an answer finds them again.
const EXTENT_MAX: usize = 1 << 14;
/// Most records of a small part that are listed one by one.
const EXTENT_RECORDS_MAX: usize = 1 << 16;

/// Which part of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The whole tree.
    Everything,
    /// Inodes that are, at the start or at the end of the interval, this inode or below it.
    Within(InodeId),
    /// This directory and the names in it, without the tree below them.
    Names(InodeId),
}

/// A part of the tree during an interval.
pub(crate) struct Area {
    pub(crate) scope: Scope,
    /// Everything that was ever in the part, if that is little.
    extent: Option<TreeExtent>,
    /// Stamps of the records of its files, in order, if they are few.
    records: Option<Vec<Hlc>>,
    /// Length of the cells of time that runs of writes end with, in us; 0: they end with no cell.
    pub(crate) cell_us: u64,
}

impl Area {
    /// The transactions of an interval that may have changed the part; `None`: any may.
    pub(crate) fn stamps(&self, interval: Interval) -> Option<&[Hlc]> {
        self.extent.as_ref().map(|extent| extent.stamps(interval.after, interval.upto))
    }

    /// False if this inode was never in the part.
    pub(crate) fn may_hold(&self, inode: InodeId) -> bool {
        self.extent.as_ref().is_none_or(|extent| extent.holds(inode))
    }

    /// True if the transactions read for the part are all there were.
    pub(crate) fn is_everything_that_changed(&self) -> bool {
        self.extent.is_none() && !matches!(self.scope, Scope::Names(_))
    }

    /// An instant of the interval up to which about `max` records follow its start; its end if there are no more.
    pub(crate) fn reach(&self, device: &Device, interval: Interval, max: usize) -> Hlc {
        let Interval { after, upto } = interval;
        let Some(records) = &self.records else { return device.reach(after, upto, max) };
        let start = records.partition_point(|stamp| *stamp <= after);
        records.get(start + max).map_or(upto, |stamp| (*stamp).min(upto))
    }

    /// As [`Area::reach`], back from the end of the interval: its start if there are no more.
    pub(crate) fn reach_back(&self, device: &Device, interval: Interval, max: usize) -> Hlc {
        let Interval { after, upto } = interval;
        let Some(records) = &self.records else { return device.reach_back(after, upto, max) };
        let end = records.partition_point(|stamp| *stamp <= upto);
        end.checked_sub(max).map_or(after, |first| records[first].previous().max(after))
    }
}

impl History {
    /// A part of the tree, with everything that was ever in it if that is less than the changes anywhere in `interval`.
    ///
    /// # Errors
    /// Those of the store and of the device.
    ///
    /// # Cost
    /// At most [`EXTENT_MAX`] versions and [`EXTENT_RECORDS_MAX`] records.
    pub(crate) fn area(&self, scope: Scope, interval: Interval, cell_us: u64) -> Result<Area, Fault> {
        let nothing = Area { scope, extent: None, records: None, cell_us };
        let Interval { after, upto } = interval;
        let Scope::Within(root) = scope else { return Ok(nothing) };
        let history = self.planes.meta.history();
        let is_quiet = history.has_few_changes((after, upto), self.planes.settings.few_changes)?;
        if is_quiet && self.planes.data.device().reach(after, upto, RECORDS_MIN) >= upto {
            return Ok(nothing);
        }
        let Some(extent) = history.extent(root, (after, upto), EXTENT_MAX)? else { return Ok(nothing) };
        let records = self.records_within(&extent, interval)?;
        Ok(Area { extent: Some(extent), records, ..nothing })
    }

    /// Stamps of the writes to the files of an extent; `None` if they are too many, or other servers have some of them.
    fn records_within(&self, extent: &TreeExtent, interval: Interval) -> Result<Option<Vec<Hlc>>, Fault> {
        let (Interval { after, upto }, device) = (interval, self.planes.data.device());
        if !self.files.remote_chains(Some(upto)).is_empty() {
            return Ok(None);
        }
        let (files, _) = device.files_written(after, upto, &|inode| extent.holds(inode))?;
        let mut stamps = Vec::new();
        for inode in files {
            let left = EXTENT_RECORDS_MAX - stamps.len();
            let records = device.log_of([inode])?.versions(inode, after, upto, left + 1);
            if records.len() > left {
                return Ok(None);
            }
            stamps.extend(records.iter().map(|record| record.stamp));
        }
        stamps.sort_unstable();
        Ok(Some(stamps))
    }
}

/// Records read for a page of about `max` events, and transactions, visible to the caller or not.
pub(crate) fn records_max(max: usize) -> usize {
    (RECORDS_PER_EVENT * max).max(RECORDS_MIN)
}

pub(crate) fn scope_of(found: &Resolved, recursive: bool) -> Scope {
    match recursive {
        true if found.id == InodeId::ROOT => Scope::Everything,
        true => Scope::Within(found.id),
        false => Scope::Names(found.id),
    }
}

impl Scope {
    /// True if it is the file or directory that the scope is named by: its own names belong to the scope.
    pub(crate) fn is_root(self, id: InodeId) -> bool {
        matches!(self, Scope::Within(root) | Scope::Names(root) if root == id)
    }

    /// True if a name belongs to the scope at the instant of `cut`.
    pub(crate) fn holds(self, cut: &mut TreeAt<'_>, named: &PlaceName) -> Result<bool, Fault> {
        match self {
            Scope::Everything => Ok(true),
            Scope::Names(directory) => Ok(named.parent == directory),
            Scope::Within(root) => cut.is_within(named.parent, root),
        }
    }
}

/// Membership in a scope at either end of an interval.
pub(crate) struct Within {
    scope: Scope,
    known: FastMap<InodeId, bool>,
}

impl Within {
    pub(crate) fn new(scope: Scope) -> Within {
        Within { scope, known: FastMap::default() }
    }

    /// True if changes of this inode (of a directory: of its names, too) belong to the scope.
    pub(crate) fn holds(&mut self, cuts: &mut CutPair<'_>, id: InodeId) -> Result<bool, Fault> {
        match self.scope {
            Scope::Everything => Ok(true),
            Scope::Names(directory) => Ok(id == directory),
            Scope::Within(_) => self.holds_file(cuts, id),
        }
    }

    /// True if this file has a name in the scope.
    pub(crate) fn holds_file(&mut self, cuts: &mut CutPair<'_>, id: InodeId) -> Result<bool, Fault> {
        let root = match self.scope {
            Scope::Everything => return Ok(true),
            Scope::Within(root) | Scope::Names(root) => root,
        };
        if let Some(&known) = self.known.get(&id) {
            return Ok(known);
        }
        let mut answer = id == root;
        for end in [&mut cuts.before, &mut cuts.after] {
            if answer {
                break;
            }
            answer = match self.scope {
                Scope::Names(directory) => end.names(id)?.iter().any(|named| named.parent == directory),
                _ => is_within(end, id, root)?,
            };
        }
        self.known.insert(id, answer);
        Ok(answer)
    }
}

pub(crate) fn is_name(own_names: &[PlaceName], subject: &ChangeSubject) -> bool {
    let named = |own: &PlaceName| match subject {
        ChangeSubject::Entry { parent, name } => *parent == own.parent && *name == own.name,
        _ => false,
    };
    own_names.iter().any(named)
}

/// True if an inode was `root` or lay below it.
fn is_within(cut: &mut TreeAt<'_>, id: InodeId, root: InodeId) -> Result<bool, Fault> {
    if id == root {
        return Ok(true);
    }
    let Some(inode) = cut.inode(id)? else { return Ok(false) };
    if inode.is_directory() {
        return cut.is_within(id, root);
    }
    for named in cut.names(id)? {
        if cut.is_within(named.parent, root)? {
            return Ok(true);
        }
    }
    Ok(false)
}
