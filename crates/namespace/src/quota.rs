//! Quotas of directories: how many files and bytes may lie below one.
//!
//! Guarantees: what is counted is a function of the state alone; a change that would bring more than a directory above
//! may hold is refused whole, with the same words on every replica; where no directory has a quota this costs a
//! comparison.
//! Leaves to others: bytes that are being written. They count once they are settled, and a writer is asked at each new
//! chunk, so a quota of bytes is overrun by at most the chunks that writers hold at that moment.
//!
//! Nor is a name kept from going: a file with several counts where its next one is, when the one goes where it counted.
//!
//! What counts: every inode with a name, once, in its home and in all directories above; a directory also in itself.
//! Its bytes are those of a regular file's length, whatever of it are holes, shared or copies on other servers. The
//! quota is an extended attribute of the directory, so it has versions as all else has; what is used is not stored, and
//! counted anew after a restart.
//!
//! # Source
//! HDFS's name and space quotas (HdfsQuotaAdminGuide of Hadoop 3.4): a directory counts itself, a quota below what is
//! used is taken, and what is there stays. Asking at each chunk instead of each write: CephFS's quotas and HDFS's
//! `addBlock`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use frieze_base::InodeId;
use frieze_wire::message::FileKind;
use frieze_wire::quota::{QUOTA_XATTR, Quota, TreeUsage};

use crate::edit::Draft;
use crate::error::Error;
use crate::inode::Inode;
use crate::namespace::Namespace;
use crate::quotas::{QuotaCharge, QuotaLimit};
use crate::state_item::StateItem;

impl Namespace {
    /// The quota of a directory, and what is used of it; `None` where it has none.
    ///
    /// # Cost
    /// O(1); right after a restart, before the first change, as much as lies below the directory.
    pub fn quota(&self, directory: InodeId) -> Option<(Quota, TreeUsage)> {
        let limit = self.quotas.limits.get(&directory)?;
        Some((limit.quota, limit.used.unwrap_or_else(|| self.weigh(directory))))
    }

    /// The directories with a bound of the bytes that are kept below, with the bounds.
    pub fn kept_quotas(&self) -> impl Iterator<Item = (InodeId, u64)> + '_ {
        self.quotas.limits.iter().filter_map(|(id, limit)| Some((*id, limit.quota.kept_max?)))
    }

    /// The directories above an inode in memory that bound the bytes kept below, with the bounds.
    pub fn kept_quotas_above(&self, id: InodeId) -> Vec<(InodeId, u64)> {
        if self.quotas.limits.is_empty() {
            return Vec::new();
        }
        let above = self.inodes.get(id).map_or(Vec::new(), |inode| self.above(inode.parent));
        let bound = |directory: InodeId| Some((directory, self.quotas.limits[&directory].quota.kept_max?));
        above.into_iter().filter_map(bound).collect()
    }

    /// Counts the changes of quotas, and the moves from below one to below another, since the start.
    pub fn quota_changes(&self) -> u64 {
        self.quotas.changes
    }

    /// An inode's attributes may hold another quota than they did.
    pub(crate) fn quota_changed(&mut self, id: InodeId) {
        let text = self.xattrs.get(&id).and_then(|all| all.get(QUOTA_XATTR));
        match text.and_then(|text| Quota::parse(text).ok()).filter(|quota| *quota != Quota::default()) {
            Some(quota) => {
                self.quotas.changes += 1;
                let used = self.quotas.limits.get(&id).and_then(|limit| limit.used);
                self.quotas.limits.insert(id, QuotaLimit { quota, used });
                self.quotas.uncounted.extend(used.is_none().then_some(id));
            }
            None => self.quotas.changes += u64::from(self.quotas.limits.remove(&id).is_some()),
        }
    }

    /// Notes what an inode counts for before this transaction changes it.
    pub(crate) fn count_before(&mut self, id: InodeId) {
        if !self.quotas.limits.is_empty() && !self.quotas.before.contains_key(&id) {
            let counted = self.charge(id);
            self.quotas.before.insert(id, counted);
        }
    }

    /// Notes that an inode did not count before this transaction, which makes it.
    pub(crate) fn count_made(&mut self, id: InodeId) {
        if !self.quotas.limits.is_empty() {
            self.quotas.before.insert(id, None);
        }
    }

    /// Counts what has not been counted yet: before a transaction that may be refused for it.
    pub(crate) fn count_quotas(&mut self) {
        while let Some(id) = self.quotas.uncounted.pop() {
            // It may have been taken away again.
            if self.quotas.limits.contains_key(&id) {
                let used = Some(self.weigh(id));
                self.quotas.limits.entry(id).and_modify(|limit| limit.used = used);
            }
        }
    }

    /// A transaction was refused: it changed nothing.
    pub(crate) fn count_nothing(&mut self) {
        self.quotas.before.clear();
    }

    /// Counts what a transaction changed. `at_once`: all its names changed at once, so a directory that moved may have
    /// gained or lost something as well, and what was above it may have moved too.
    pub(crate) fn count_changes(&mut self, at_once: bool) {
        if self.scope.as_ref().is_some_and(|scope| scope.outside().is_some()) {
            // It does not count, and what was changed need not even be a tree any more.
            return self.count_nothing();
        }
        let before = std::mem::take(&mut self.quotas.before);
        let changed = before.into_iter().map(|(id, was)| (id, was, self.charge(id)));
        let changed: Vec<_> = changed.filter(|(_, was, is)| was != is).collect();
        let moved = |was: &Option<QuotaCharge>, is: &Option<QuotaCharge>| {
            was.zip(*is).is_some_and(|(was, is)| was.is_directory && was.home != is.home)
        };
        let leaves = |was: &Option<QuotaCharge>, is: &Option<QuotaCharge>| {
            let homes = was.zip(*is).map(|(was, is)| (was.home, is.home)).filter(|(was, is)| was != is);
            homes.is_some_and(|(was, is)| self.above(was) != self.above(is))
        };
        let moves = changed.iter().filter(|(_, was, is)| leaves(was, is)).count();
        self.quotas.changes += moves as u64;
        if at_once && changed.iter().any(|(_, was, is)| moved(was, is)) {
            self.quotas.limits.values_mut().for_each(|limit| limit.used = None);
            self.quotas.uncounted = self.quotas.limits.keys().copied().collect();
        } else {
            for (id, was, is) in changed {
                let all = moved(&was, &is).then(|| self.weigh(id));
                if let Some(was) = was {
                    for directory in self.holders(id, was) {
                        self.look_at(|| StateItem::Usage(directory));
                        let used = self.quotas.limits.get_mut(&directory).and_then(|limit| limit.used.as_mut());
                        used.into_iter().for_each(|used| *used = beyond(*used, all.unwrap_or(was.usage())));
                    }
                }
                if let Some(is) = is {
                    for directory in self.holders(id, is) {
                        self.look_at(|| StateItem::Usage(directory));
                        let used = self.quotas.limits.get_mut(&directory).and_then(|limit| limit.used.as_mut());
                        used.into_iter().for_each(|used| *used = sum(*used, all.unwrap_or(is.usage())));
                    }
                }
            }
        }
        self.count_quotas();
    }

    /// Refuses what would bring more to a directory than it or one above may hold. `from`: where it comes from, and
    /// counts already.
    pub(crate) fn check_room(&self, into: InodeId, more: TreeUsage, from: Option<InodeId>) -> Result<(), Error> {
        if self.quotas.limits.is_empty() {
            return Ok(());
        }
        let counts_already = from.map_or(Vec::new(), |from| self.above(from));
        for directory in self.above(into).into_iter().filter(|directory| !counts_already.contains(directory)) {
            self.check_limit(directory, more)?;
        }
        Ok(())
    }

    fn check_limit(&self, directory: InodeId, more: TreeUsage) -> Result<(), Error> {
        self.look_at(|| StateItem::Usage(directory));
        let QuotaLimit { quota, used } = self.quotas.limits[&directory];
        let used = used.unwrap_or_else(|| self.weigh(directory));
        let is_over = |used: u64, more: u64, max: Option<u64>| more > 0 && max.is_some_and(|max| used + more > max);
        if is_over(used.files, more.files, quota.files_max) {
            return Err(Error::FilesQuota { directory, used: used.files, max: quota.files_max.unwrap_or_default() });
        }
        if is_over(used.bytes, more.bytes, quota.bytes_max) {
            return Err(Error::BytesQuota { directory, used: used.bytes, max: quota.bytes_max.unwrap_or_default() });
        }
        Ok(())
    }

    /// Refuses to let a range of a file of `size` bytes be written where nothing is left to write. What is there may be
    /// written anew.
    pub(crate) fn check_room_to_write(&self, home: InodeId, size: u64, range: Range<u64>) -> Result<(), Error> {
        if self.quotas.limits.is_empty() || home.0 == 0 || range.end <= size {
            return Ok(());
        }
        let more = range.start.saturating_sub(size) + 1;
        self.check_room(home, TreeUsage { files: 0, bytes: more }, None)
    }

    /// Refuses a rename that brings more to a directory than may be there.
    pub(crate) fn check_room_to_move(
        &self,
        (moved, from): (InodeId, InodeId),
        (replaced, to): (Option<InodeId>, InodeId),
        exchange: bool,
    ) -> Result<(), Error> {
        if self.quotas.limits.is_empty() || from == to || self.above(from) == self.above(to) {
            return Ok(());
        }
        // Of a file with several names the home alone counts it, so it comes and goes with that.
        let weight = |id: InodeId, place: InodeId| match self.charge(id) {
            Some(counted) if counted.is_directory => self.weigh(id),
            Some(counted) if counted.home == place => counted.usage(),
            _ => TreeUsage::default(),
        };
        // What is replaced goes only with its last name; until then it counts where its next one is, which may be here.
        let is_last = |id: &InodeId| {
            exchange || self.inodes.get(*id).is_some_and(|inode| inode.is_directory() || inode.links == 1)
        };
        let goes = replaced.filter(is_last).map_or(TreeUsage::default(), |id| weight(id, to));
        let comes = weight(moved, from);
        self.check_room(to, beyond(comes, goes), Some(from))?;
        match exchange {
            true => self.check_room(from, beyond(goes, comes), Some(to)),
            false => Ok(()),
        }
    }

    /// Refuses an edit that brings more files or bytes than may be there. What a directory that moves takes along is
    /// not asked for.
    pub(crate) fn check_room_to_edit(&self, draft: &Draft<'_>) -> Result<(), Error> {
        if self.quotas.limits.is_empty() {
            return Ok(());
        }
        let mut more: BTreeMap<InodeId, (i128, i128)> = BTreeMap::new();
        let mut add = |home: InodeId, files: i128, bytes: i128| -> Result<(), Error> {
            for directory in self.above_drafted(draft, home)? {
                let sum = more.entry(directory).or_default();
                *sum = (sum.0 + files, sum.1 + bytes);
            }
            Ok(())
        };
        let length = |inode: &Inode| if inode.kind() == FileKind::File { i128::from(inode.size) } else { 0 };
        for (&id, tally) in draft.tallies() {
            let inode = self.drafted(draft, id)?;
            match (QuotaCharge::of(&inode), tally.gains.last(), self.names_after(draft, id)?) {
                (None, Some(&home), _) => add(home, 1, length(&inode))?,
                (Some(counted), None, 0) => add(counted.home, -1, -length(&inode))?,
                _ => {}
            }
        }
        for (id, size) in draft.lengths() {
            let inode = self.drafted(draft, id)?;
            let home = draft.gain_of(id).or(QuotaCharge::of(&inode).map(|counted| counted.home));
            if let Some(home) = home {
                add(home, 0, i128::from(size) - length(&inode))?;
            }
        }
        for (directory, (files, bytes)) in more {
            let some = |more: i128| u64::try_from(more).unwrap_or(0);
            self.check_limit(directory, TreeUsage { files: some(files), bytes: some(bytes) })?;
        }
        Ok(())
    }

    fn charge(&self, id: InodeId) -> Option<QuotaCharge> {
        self.inodes.get(id).and_then(|inode| QuotaCharge::of(&inode))
    }

    /// The directories with a quota that count an inode.
    fn holders(&self, id: InodeId, counted: QuotaCharge) -> Vec<InodeId> {
        let mut holders = self.above(counted.home);
        if counted.is_directory && id != counted.home && self.quotas.limits.contains_key(&id) {
            holders.push(id);
        }
        holders
    }

    /// The directory, if it has a quota, and those above it that have one.
    fn above(&self, directory: InodeId) -> Vec<InodeId> {
        let mut found = Vec::new();
        let mut here = directory;
        loop {
            if self.quotas.limits.contains_key(&here) {
                found.push(here);
            }
            match self.inodes.get(here) {
                Some(inode) if here != InodeId::ROOT => here = inode.parent,
                _ => return found,
            }
        }
    }

    /// The same as it will be after an edit.
    fn above_drafted(&self, draft: &Draft<'_>, directory: InodeId) -> Result<Vec<InodeId>, Error> {
        let mut found = Vec::new();
        let mut here = directory;
        loop {
            if self.quotas.limits.contains_key(&here) {
                found.push(here);
            }
            if here == InodeId::ROOT || here.0 == 0 {
                return Ok(found);
            }
            here = match draft.gain_of(here) {
                Some(parent) => parent,
                None => self.drafted(draft, here)?.parent,
            };
        }
    }

    /// Counts what lies below a directory, itself included.
    fn weigh(&self, directory: InodeId) -> TreeUsage {
        let mut all = TreeUsage::default();
        let mut left = vec![directory];
        // Of a file with several names in one directory.
        let mut seen = BTreeSet::new();
        while let Some(here) = left.pop() {
            all.files += 1;
            self.look_at(|| StateItem::AllDirectories(here));
            self.look_at(|| StateItem::AllFiles(here));
            let Some(names) = self.directories.get(here) else { continue };
            let mut cursor = names.cursor();
            while let Some((_, entry)) = cursor.next_name() {
                let id = entry.inode();
                if entry.kind() == FileKind::Directory {
                    left.push(id);
                    continue;
                }
                let Some(inode) = self.inodes.get(id) else { continue };
                let Some(counted) = QuotaCharge::of(&inode) else { continue };
                if counted.home == here && (inode.links == 1 || seen.insert(id)) {
                    all = sum(all, counted.usage());
                }
            }
        }
        all
    }
}

fn sum(one: TreeUsage, other: TreeUsage) -> TreeUsage {
    TreeUsage { files: one.files + other.files, bytes: one.bytes + other.bytes }
}

/// What is more in one than in the other.
fn beyond(one: TreeUsage, other: TreeUsage) -> TreeUsage {
    TreeUsage { files: one.files.saturating_sub(other.files), bytes: one.bytes.saturating_sub(other.bytes) }
}
