//! Counts what is stored of the trees whose quota bounds that, and admits writes to them.
//!
//! Guarantees: those of [`crate::kept_bytes`]. Leaves to others: which directories have such a quota (`namespace`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frieze_base::{ChainId, FastMap, Fault, InodeId, MonoTime, Reason};
use frieze_hlc::Hlc;
use frieze_wire::peer::{KeptAsk, PeerRequestKind};
use tracing::debug;

use crate::file_version::spread_of;
use crate::files::Files;
use crate::kept_bytes::{CountBasis, CountPass, TreeBound, TreeCounts};
use crate::planes::Planes;
use crate::remote_chains::client::Inquiry;

/// Time of one step of a count, ns.
const STEP_NS: u64 = 100_000_000;
/// Least time between two counts, ns.
const COUNT_EVERY_NS: u64 = 5_000_000_000;
/// A count is followed by so many times its own length without one.
const REST: u64 = 20;

impl Planes {
    /// The bounds of what is stored of a file in memory: those of the directories above it.
    ///
    /// # Cost
    /// None while there is no quota; else a look at each directory above.
    pub fn bounds_of(&self, id: InodeId) -> Vec<TreeBound> {
        let above = self.meta.kept_quotas_above(id);
        if above.is_empty() {
            return Vec::new();
        }
        let mut counts = self.kept.lock();
        let mut tree = |root| Arc::clone(counts.trees.entry(root).or_default());
        above.into_iter().map(|(root, max)| TreeBound { root, max, tree: tree(root) }).collect()
    }

    /// Admits a write of so many bytes to a file with these bounds, or none of it.
    ///
    /// # Errors
    /// `BytesQuota`, with the directory and what makes room.
    pub fn admit(&self, bounds: &[TreeBound], bytes: u64) -> Result<(), Fault> {
        for TreeBound { root, max, tree } in bounds {
            let stored = tree.stored();
            if stored.saturating_add(bytes) > *max {
                let path = self.path_of(*root, &[self.clock.now()])?;
                let path = String::from_utf8_lossy(&path);
                let words = format!(
                    "the files below {path} take {stored} bytes with their history, of at most {max}, and this would \
                     be {bytes} more: `frieze forget {path}` or `frieze retention set POLICY {path}` frees history, \
                     and the superuser changes the bound (`frieze quota --kept SIZE {path}`)"
                );
                return Err(Fault::new(Reason::BytesQuota, words));
            }
        }
        for TreeBound { tree, .. } in bounds {
            tree.here.fetch_add(bytes, Ordering::Relaxed);
            tree.admitted.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The directories of `quotas` that an inode lies in, or lay in before it lost its last name. `known` has those of
    /// directories.
    fn quotas_above(
        &self,
        id: InodeId,
        quotas: &BTreeMap<InodeId, u64>,
        known: &mut FastMap<InodeId, Arc<[InodeId]>>,
    ) -> Result<Arc<[InodeId]>, Fault> {
        let (mut here, mut way) = (self.home_of(id)?, Vec::new());
        let mut found = loop {
            if let Some(known) = known.get(&here) {
                break known.to_vec();
            }
            // A file that never had a name lies nowhere.
            if here.0 == 0 || way.contains(&here) {
                break Vec::new();
            }
            way.push(here);
            here = if here == InodeId::ROOT { InodeId(0) } else { self.home_of(here)? };
        };
        let mut all: Arc<[InodeId]> = found.as_slice().into();
        for directory in way.into_iter().rev() {
            if quotas.contains_key(&directory) {
                found.push(directory);
                all = found.as_slice().into();
            }
            known.insert(directory, Arc::clone(&all));
        }
        Ok(all)
    }

    /// The directory that an inode lies in, or lay in before it lost its last name; 0: none.
    fn home_of(&self, id: InodeId) -> Result<InodeId, Fault> {
        match self.meta.inode(id, None) {
            Err(fault) if matches!(fault.reason, Reason::NotFound | Reason::StaleHandle) => Ok(InodeId(0)),
            inode => Ok(inode?.parent),
        }
    }

    fn count_basis(&self) -> CountBasis {
        let end = self.data.device().log().end();
        CountBasis {
            end,
            dead_bytes: self.gc.bytes().0,
            quota_changes: self.meta.quota_changes(),
            memberships: self.data.membership_count(),
        }
    }
}

impl Files {
    /// A step of counting what is stored of the trees whose quota bounds that. Call it about twice a second, on a
    /// thread that may block; not with a lock held: it sends requests where chains are on other servers only.
    ///
    /// # Errors
    /// Those of the store and the disk's: the next call tries again.
    ///
    /// # Cost
    /// A step is 100 ms; a count looks at each record of files, once in 5 seconds at most, and 1/20 of the time.
    pub fn count_kept(&self) -> Result<(), Fault> {
        let (planes, quotas) = (&self.planes, self.planes.meta.kept_quotas());
        let began = planes.clock.reading().mono;
        self.ask_kept(&quotas, began);
        let basis = planes.count_basis();
        let mut pass = {
            let mut counts = planes.kept.lock();
            counts.trees.retain(|root, _| quotas.contains_key(root));
            if quotas.is_empty() {
                *counts = TreeCounts::default();
                return Ok(());
            }
            let begun = counts.pass.take().filter(|pass| pass.basis.quota_changes == basis.quota_changes);
            let is_known = counts.counted.is_some_and(|counted| counted.quota_changes == basis.quota_changes);
            match begun {
                Some(pass) => pass,
                None if counts.counted == Some(basis) || (is_known && began < counts.next) => return Ok(()),
                None => {
                    for root in quotas.keys() {
                        counts.trees.entry(*root).or_default().admitted.store(0, Ordering::Relaxed);
                    }
                    CountPass::new(basis)
                }
            }
        };
        if pass.files.is_empty() {
            pass.files = planes.data.device().log().files_with_records(Hlc::ZERO, Hlc::MAX).0;
        }
        while let Some(id) = pass.files.pop() {
            match self.count_file(id, &quotas, &mut pass) {
                // Its index is damaged, as a scrub reports: the others are counted.
                Err(fault) if fault.reason == Reason::Corrupt => {}
                counted => counted?,
            }
            if planes.clock.reading().mono.since_ns(began) > STEP_NS && !pass.files.is_empty() {
                pass.spent_ns += planes.clock.reading().mono.since_ns(began);
                planes.kept.lock().pass = Some(pass);
                return Ok(());
            }
        }
        let spent_ns = pass.spent_ns + planes.clock.reading().mono.since_ns(began);
        let mut counts = planes.kept.lock();
        for (root, tree) in &counts.trees {
            let here: u64 = pass.sums.get(root).into_iter().flatten().map(|(_, bytes)| bytes).sum();
            tree.here.store(here + tree.admitted.load(Ordering::Relaxed), Ordering::Relaxed);
            tree.is_counted.store(true, Ordering::Release);
        }
        counts.by_chain = pass.sums;
        counts.counted = Some(pass.basis);
        counts.next = MonoTime(began.0 + (REST * spent_ns).max(COUNT_EVERY_NS));
        Ok(())
    }

    fn count_file(&self, id: InodeId, quotas: &BTreeMap<InodeId, u64>, pass: &mut CountPass) -> Result<(), Fault> {
        let above = self.planes.quotas_above(id, quotas, &mut pass.above)?;
        if above.is_empty() {
            return Ok(());
        }
        let layout = spread_of(id, self.planes.meta.layout(id)?);
        let device = self.planes.data.device();
        for (index, records) in device.log_of([id])?.records_of_chunks(id, Hlc::ZERO, Hlc::MAX) {
            let live = records.iter().filter(|record| !record.is_dead);
            let bytes: u64 = live.map(|record| record.range.len()).sum();
            let chain = layout.chain(index);
            if self.planes.data.is_member(chain) {
                for root in &*above {
                    *pass.sums.entry(*root).or_default().entry(chain).or_default() += bytes;
                }
            }
        }
        Ok(())
    }

    /// Asks for what is stored in chains that are on other servers only, as those last counted it.
    fn ask_kept(&self, quotas: &BTreeMap<InodeId, u64>, now: MonoTime) {
        let chains = (0..self.planes.data.chain_count()).map(ChainId);
        let away: BTreeSet<ChainId> = chains.filter(|chain| !self.planes.data.is_member(*chain)).collect();
        if quotas.is_empty() || now < self.planes.kept.lock().next_ask {
            return;
        }
        let mut sums: BTreeMap<InodeId, u64> = BTreeMap::new();
        if !away.is_empty() {
            let trees: Vec<u64> = quotas.keys().map(|root| root.0).collect();
            let about = |_: &BTreeSet<ChainId>| PeerRequestKind::Kept(KeptAsk { trees: trees.clone() });
            match self.ask_members(away, &Inquiry { at: None, about: &about }) {
                Ok(replies) => {
                    for reply in replies {
                        for (root, bytes) in quotas.keys().zip(reply.answer.kept) {
                            *sums.entry(*root).or_default() += bytes;
                        }
                    }
                }
                Err(fault) => {
                    // What they said last holds. The wait for them keeps this thread from its other work.
                    debug!("other servers do not say what they keep: {fault}");
                    let spent_ns = self.planes.clock.reading().mono.since_ns(now);
                    let rest_ns = (REST * spent_ns).max(COUNT_EVERY_NS);
                    self.planes.kept.lock().next_ask = MonoTime(now.0 + rest_ns);
                    return;
                }
            }
        }
        let mut counts = self.planes.kept.lock();
        for (root, tree) in &counts.trees {
            tree.remote.store(sums.get(root).copied().unwrap_or(0), Ordering::Relaxed);
        }
        counts.next_ask = MonoTime(now.0 + COUNT_EVERY_NS);
    }
}
