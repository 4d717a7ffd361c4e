//! Expired history in the model: a list, read for every question; and everything below a path, from the names alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use frieze_base::Reason;
use frieze_hlc::Hlc;
use frieze_wire::forget::{ANYBODY, Horizon};

use super::{InodeVersion, Tree};
use crate::machine::{SUPERUSER, USER};
use crate::model::bytes::{Cut, FileBytes};

/// One forgetting.
#[derive(Clone, Debug)]
struct ExpiryRecord {
    before: Hlc,
    /// Instants of snapshots and their creators: the instants stay readable.
    pins: BTreeSet<(Hlc, u32)>,
    /// True: nothing of it is left except at pins.
    inodes: BTreeMap<u64, bool>,
    /// Directories that lead to a part that the expiry does not cover: readable at every pin.
    ways_out: BTreeSet<u64>,
}

impl ExpiryRecord {
    /// True if a snapshot holds an inode back: every inode of a simulated server belongs to the same user.
    fn holds(&self, id: u64, at: Hlc) -> bool {
        let may = |maker: u32| maker == SUPERUSER || maker == USER || self.ways_out.contains(&id);
        self.pins.iter().any(|(pin, maker)| *pin == at && may(*maker))
    }
}

/// All that was forgotten.
#[derive(Clone, Debug, Default)]
pub(crate) struct Horizons(Vec<ExpiryRecord>);

impl Horizons {
    /// True if an inode cannot be read at an instant ([`Hlc::MAX`]: now).
    pub(crate) fn expired(&self, id: u64, at: Hlc) -> bool {
        self.0.iter().any(|one| {
            let record = one.inodes.get(&id);
            record.is_some_and(|is_whole| !one.holds(id, at) && (*is_whole || at < one.before))
        })
    }

    /// Instants of the inode before it are not kept; ZERO if all are.
    pub(crate) fn before(&self, id: u64) -> Hlc {
        let of = self.0.iter().filter(|one| one.inodes.contains_key(&id));
        of.map(|one| one.before).max().unwrap_or(Hlc::ZERO)
    }

    /// True if anything was forgotten before an instant above `at`.
    pub(crate) fn reach(&self, at: Hlc) -> bool {
        self.0.iter().any(|one| one.before > at)
    }

    /// True if nothing of the inode is left except at pins.
    pub(crate) fn is_erased(&self, id: u64) -> bool {
        self.0.iter().any(|one| one.inodes.get(&id) == Some(&true))
    }

    /// True if an earlier forgetting of the inode left something before `before` to snapshots.
    fn is_left_to_pins(&self, id: u64, before: Hlc) -> bool {
        let pins = self.0.iter().filter(|one| one.inodes.contains_key(&id)).flat_map(|one| &one.pins);
        let mut early = pins.filter(|(at, _)| *at < before);
        early.any(|(at, _)| {
            self.0.iter().any(|one| one.inodes.contains_key(&id) && one.holds(id, *at)) && !self.expired(id, *at)
        })
    }

    /// The last snapshot of an instant that one user had made is gone.
    pub(crate) fn unpin(&mut self, pin: (Hlc, u32)) {
        for one in &mut self.0 {
            one.pins.remove(&pin);
        }
    }
}

/// Everything below a path at an instant.
#[derive(Debug, Default)]
pub(crate) struct Subtree {
    /// True: it had lost its last name by then and has had none since.
    inodes: BTreeMap<u64, bool>,
    directories: BTreeSet<u64>,
    /// Files with names outside, too.
    left: u64,
    /// Those of them that have no history left.
    left_erased: u64,
}

impl Tree {
    /// Refuses an inode at an instant at which it is forgotten.
    pub(crate) fn kept(&self, id: u64, at: Hlc) -> Result<(), Reason> {
        if self.horizons.expired(id, at) { Err(Reason::HistoryExpired) } else { Ok(()) }
    }

    /// Puts a horizon in force. `granted`: inodes with open write grants.
    pub(crate) fn forget(&mut self, op: &Horizon, pins: BTreeSet<(Hlc, u32)>, granted: &BTreeSet<u64>) {
        let ids = |bytes: &[u8]| frieze_wire::forget::decode_ids(bytes).expect("the server packed them");
        let before = Hlc(op.before);
        let named = ids(&op.named).into_iter().map(|id| (id, false));
        let nameless =
            ids(&op.nameless).into_iter().map(|id| (id, self.is_nameless(id, before) && !granted.contains(&id)));
        let is_new = |id: u64| op.with_snapshots || !self.horizons.is_erased(id);
        let inodes = named.chain(nameless).filter(|(id, _)| is_new(*id)).collect();
        let ways_out = self.ways_out(&self.below(op.root, before).directories, before);
        self.horizons.0.push(ExpiryRecord { before, pins, inodes, ways_out });
    }

    /// Of these directories those in which another directory ever had a name, up to an instant, or one that leads to
    /// such a one.
    fn ways_out(&self, directories: &BTreeSet<u64>, at: Hlc) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        loop {
            let leads = |id: &u64| {
                let names = self.entries.get(id).into_iter().flat_map(BTreeMap::values);
                let mut named = names.flat_map(|versions| versions.upto(at)).filter_map(|named| *named);
                named.any(|child| {
                    let is_directory = self.node(child, at).is_some_and(InodeVersion::is_directory);
                    is_directory && (found.contains(&child) || !directories.contains(&child))
                })
            };
            let more: Vec<u64> = directories.iter().filter(|id| !found.contains(*id) && leads(id)).copied().collect();
            if more.is_empty() {
                return found;
            }
            found.extend(more);
        }
    }

    /// The directories that an inode has names in at an instant; if it has none any more, in which it had the last.
    pub(crate) fn homes(&self, id: u64, at: Hlc) -> BTreeSet<u64> {
        let (mut now, mut last) = (BTreeSet::new(), (Hlc::ZERO, BTreeSet::new()));
        for (parent, versions) in
            self.entries.iter().flat_map(|(parent, names)| names.values().map(move |v| (*parent, v)))
        {
            if versions.at(at) == Some(&Some(id)) {
                now.insert(parent);
            }
            if let Some(until) = versions.ended(at, |named| *named == Some(id)) {
                if until > last.0 {
                    last = (until, BTreeSet::new());
                }
                if until == last.0 {
                    last.1.insert(parent);
                }
            }
        }
        if now.is_empty() { last.1 } else { now }
    }

    /// True if it had lost its last name at an instant and has had none since.
    fn is_nameless(&self, id: u64, at: Hlc) -> bool {
        let mut versions = self.entries.values().flat_map(BTreeMap::values);
        let links = self.node(id, at).map_or(0, |node| node.links);
        links == 0
            && id != super::ROOT
            && !versions.any(|versions| versions.holds_after(at, |named| *named == Some(id)))
    }

    /// Everything below `root` at an instant, including names deleted by then.
    pub(crate) fn below(&self, root: u64, at: Hlc) -> Subtree {
        let mut below = Subtree::default();
        below.inodes.insert(root, self.is_nameless(root, at));
        let mut todo = Vec::new();
        if self.node(root, at).is_some_and(InodeVersion::is_directory) {
            below.directories.insert(root);
            todo.push(root);
        }
        let (mut visited, mut linked): (BTreeSet<u64>, Vec<u64>) = ([root].into(), Vec::new());
        while let Some(directory) = todo.pop() {
            let names = self.entries.get(&directory).into_iter().flat_map(BTreeMap::values);
            let ids: BTreeSet<u64> = names.flat_map(|versions| versions.upto(at)).filter_map(|named| *named).collect();
            for id in ids {
                let Some(node) = self.node(id, at).filter(|_| !visited.contains(&id)) else { continue };
                let many = !node.is_directory() && node.links > 1;
                if !many && !self.homes(id, at).contains(&directory) {
                    continue;
                }
                visited.insert(id);
                if many {
                    linked.push(id);
                    continue;
                }
                below.inodes.insert(id, self.is_nameless(id, at));
                if node.is_directory() {
                    below.directories.insert(id);
                    todo.push(id);
                }
            }
        }
        for id in linked {
            match self.homes(id, at).is_subset(&below.directories) {
                true => drop(below.inodes.insert(id, false)),
                false => {
                    below.left += 1;
                    below.left_erased += u64::from(self.horizons.is_erased(id));
                }
            }
        }
        below
    }

    /// Checks that a horizon covers everything below its root: all that has not expired already, except files without
    /// history to lose.
    pub(crate) fn check_horizon(&self, op: &Horizon, chunk_bytes: u64) -> Result<(), String> {
        let before = Hlc(op.before);
        let below = self.below(op.root, before);
        let ids = |bytes: &[u8]| frieze_wire::forget::decode_ids(bytes).unwrap_or_default();
        let listed: BTreeMap<u64, bool> = ids(&op.named)
            .into_iter()
            .map(|id| (id, false))
            .chain(ids(&op.nameless).into_iter().map(|id| (id, true)))
            .collect();
        if let Some((id, is_nameless)) =
            listed.iter().find(|(id, is_nameless)| below.inodes.get(id) != Some(is_nameless))
        {
            return Err(format!("inode {id} is forgotten (without a name: {is_nameless}); below there is {below:?}"));
        }
        let left_to_pins = |id: u64| op.with_snapshots && self.horizons.is_left_to_pins(id, before);
        let missing = below.inodes.iter().find(|(id, is_nameless)| {
            let forgotten = self.horizons.is_erased(**id) || (!**is_nameless && self.horizons.before(**id) >= before);
            let known = forgotten && !left_to_pins(**id);
            let keeps =
                |id: u64| self.bytes(id).keeps_all(**is_nameless, before, self.horizons.before(id), chunk_bytes);
            // Two names that were deleted at once, one of them outside: the server decides which was the last.
            let here = self.homes(**id, before).is_subset(&below.directories) || **id == op.root;
            let loses = below.directories.contains(id) || !keeps(**id) || left_to_pins(**id);
            here && !known && !listed.contains_key(id) && loses
        });
        let ways_out = self.ways_out(&below.directories, before);
        let mut owners: BTreeSet<(u32, u64)> = listed.keys().map(|id| (USER, *id)).collect();
        owners.extend(ways_out.into_iter().filter(|id| listed.contains_key(id)).map(|id| (ANYBODY, id)));
        let of = op.owners.iter().flat_map(|of| ids(&of.inodes).into_iter().map(|id| (of.uid, id)));
        let told_owners: BTreeSet<(u32, u64)> = of.collect();
        if told_owners != owners {
            return Err(format!("the inodes belong to {told_owners:?}, expected {owners:?}"));
        }
        match missing {
            Some((id, is_nameless)) => Err(format!("inode {id} (without a name: {is_nameless}) is left out")),
            None => Ok(()),
        }
    }

    /// How many files an expiry leaves alone because they have names outside, at least and at most: a server does not
    /// look at files that have no history left, once the last of their bytes are dropped.
    pub(crate) fn left_alone(&self, root: u64, before: Hlc) -> RangeInclusive<u64> {
        let Subtree { left, left_erased, .. } = self.below(root, before);
        left - left_erased..=left
    }
}

impl FileBytes {
    /// True if no record stamped up to `before` could be dropped: each is visible at it or now, or was dropped before,
    /// when the history before `known` expired. A file that is `gone` has none.
    fn keeps_all(&self, is_nameless: bool, before: Hlc, known: Hlc, chunk_bytes: u64) -> bool {
        let all = Cut { upto: before, without: &[] };
        let mut records = self.writes(all).flat_map(|(stamp, write)| {
            let chunks = write.offset / chunk_bytes..=(write.end() - 1) / chunk_bytes;
            chunks.map(move |chunk| {
                let start = write.offset.max(chunk * chunk_bytes);
                (stamp, start, write.end().min((chunk + 1) * chunk_bytes))
            })
        });
        let [before, now, then] = [before, Hlc::MAX, known].map(|upto| self.tops(0, u64::MAX, upto));
        let shows = |tops: &[(u64, u64, Hlc)], (stamp, start, end): (Hlc, u64, u64)| {
            tops.iter().any(|(from, to, top)| *top == stamp && (*from).max(start) < (*to).min(end))
        };
        records.all(|record| {
            let shown = !is_nameless && (shows(&before, record) || shows(&now, record));
            shown || (record.0 <= known && !shows(&then, record))
        })
    }
}
