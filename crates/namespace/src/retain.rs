//! Policies of retention: which instants of files their marks leave.
//!
//! Guarantees: an instant that was refused is refused for ever; the answer is a function of the transactions, so every
//! server that executed the same ones refuses the same instants, however much space was freed.
//! Leaves to others: whether anything was lost at an instant that is not kept (`planes`, from records), when marks are
//! raised, freeing space (`service`).
//!
//! An inode has the number of its regime in its layout, which files of one directory share. A named instant pins the
//! state of every file, so only an instant that every policy keeps may be named.

use std::sync::Arc;

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_retention::{KeptSet, MarkedPolicy, PolicyNumber, RegimeNumber, RetentionEpoch, RetentionPolicy, Thinning};
use frieze_wire::message::FileKind;
use frieze_wire::txn::RaiseMarks;
use prost::Message;

use crate::apply::{OpResult, TxnRun};
use crate::error::Error;
use crate::history::VersionHistory;
use crate::inode::{FileLayout, Inode};
use crate::key::VersionKey;
use crate::namespace::Namespace;
use crate::regimes::{StoredPolicy, StoredRegime};
use crate::stored::decode;

/// What is kept of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeRetention {
    /// Its policy; `None`: everything for ever.
    pub policy: Option<RetentionPolicy>,
    /// What it and the policies before it have thinned.
    pub thinning: Thinning,
}

impl Namespace {
    /// True if a file ever had a policy.
    pub fn has_policies(&self) -> bool {
        !self.retention.table.is_empty()
    }

    /// True if some policy has a mark that is due when everything is closed up to `closed`.
    pub fn has_marks_due(&self, closed: Hlc) -> bool {
        !self.retention.table.marks_due(closed).is_empty()
    }

    /// Counts what changes the kept instants of files beside marks, since the start: inodes that get another policy,
    /// instants that lose their last name.
    pub fn policy_changes(&self) -> u64 {
        self.retention.changes.policies
    }

    /// Counts the transactions by which records may die, since the start.
    pub fn expiry_changes(&self) -> u64 {
        self.retention.changes.expiries
    }

    /// Counts the edits that share bytes of older states, since the start.
    pub fn share_changes(&self) -> u64 {
        self.retention.changes.shares
    }

    /// Every policy that files have or had, with its marks.
    pub fn policies(&self) -> Vec<(PolicyNumber, MarkedPolicy)> {
        self.retention.table.policies().map(|(number, marked)| (number, marked.clone())).collect()
    }

    /// What is kept of an inode.
    pub fn retention_of(&self, inode: &Inode) -> InodeRetention {
        let table = &self.retention.table;
        let regime = RegimeNumber(inode.layout.regime);
        let policy = table.policy(table.policy_of(regime)).map(|marked| marked.policy.clone());
        InodeRetention { policy, thinning: table.thinning(regime) }
    }

    /// The kept instants of a file, by its newest version; `None` if they are all.
    ///
    /// Instants of a file with a time plug-in are all kept: reads by user time are of stamps on no grid. So are those
    /// of directories and links, which have no bytes.
    ///
    /// # Errors
    /// `StaleHandle` if it never was; the store's.
    pub fn kept_set(&self, history: &dyn VersionHistory, id: InodeId) -> Result<Option<KeptSet>, Fault> {
        if !self.has_policies() {
            return Ok(None);
        }
        let regime = match self.inodes.get(id) {
            Some(inode) => thinned_regime(&inode),
            None => thinned_regime(&self.inode(history, id, None)?),
        };
        let thinning = regime.map(|regime| self.retention.table.thinning(regime)).unwrap_or_default();
        let is_thinned = thinning != Thinning::default();
        Ok(is_thinned.then(|| KeptSet::new(thinning, Arc::clone(&self.retention.pins))))
    }

    /// The kept instants of a file as they would be if these marks were raised, too.
    pub fn kept_set_with(&self, inode: &Inode, marks: Thinning) -> KeptSet {
        let Some(regime) = thinned_regime(inode) else { return KeptSet::default() };
        let mut thinning = self.retention.table.thinning(regime);
        thinning.join(&marks);
        KeptSet::new(thinning, Arc::clone(&self.retention.pins))
    }

    /// The epoch of an instant of a file that is not kept; `None` if it is.
    ///
    /// # Errors
    /// As [`Namespace::kept_set`].
    ///
    /// # Cost
    /// A look at the inode, and a step for each period that thins; nothing while no file has a policy.
    pub fn thinned_epoch(
        &self,
        history: &dyn VersionHistory,
        id: InodeId,
        at: Hlc,
    ) -> Result<Option<RetentionEpoch>, Fault> {
        let kept = self.kept_set(history, id)?.filter(|kept| !kept.is_kept(at));
        Ok(kept.map(|kept| kept.epoch_of(at)))
    }

    /// The newest instant at or before `at` that every policy keeps.
    ///
    /// # Errors
    /// `HistoryExpired` if there is none, with the oldest that is.
    pub fn newest_kept(&self, at: Hlc) -> Result<Hlc, Fault> {
        let kept = KeptSet::new(self.retention.table.thinning_of_all(), Arc::clone(&self.retention.pins));
        let found = kept.last_at_or_below(at);
        Ok(found.ok_or_else(|| Error::NoneKept { at, first: kept.first_at_or_above(at) })?)
    }

    /// Refuses a name for an instant that some policy does not keep, with the next ones that all keep.
    pub(crate) fn check_pinnable(&self, at: Hlc) -> Result<(), Error> {
        let all = self.retention.table.thinning_of_all();
        let is_pinned = self.retention.pins.contains_key(&at);
        if is_pinned || all.is_kept(at) {
            return Ok(());
        }
        Err(Error::Unpinnable { at, before: all.last_at_or_below(at), after: all.first_at_or_above(at) })
    }

    /// An instant has one name more.
    pub(crate) fn pin(&mut self, at: Hlc) {
        *Arc::make_mut(&mut self.retention.pins).entry(at).or_default() += 1;
    }

    /// An instant has one name less.
    pub(crate) fn unpin_instant(&mut self, at: Hlc) {
        let pins = Arc::make_mut(&mut self.retention.pins);
        if let Some(count) = pins.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&at);
                self.retention.changes.policies += 1;
                self.retention.changes.expiries += 1;
            }
        }
    }

    /// Raises every mark that is due. A mark of an older leader changes nothing.
    pub(crate) fn raise_marks(&mut self, run: &mut TxnRun<'_>, op: RaiseMarks) -> Result<OpResult, Error> {
        let closed = Hlc(op.closed);
        if closed > run.stamp {
            return Err(Error::Future { at: closed, now: run.stamp });
        }
        let table = &mut self.retention.table;
        self.retention.changes.expiries += 1;
        for mark in table.marks_due(closed) {
            table.raise(mark)?;
            let marked = table.policy(mark.policy).expect("its mark was just raised");
            run.change(VersionKey::Policy(mark.policy.0), Some(StoredPolicy::of(marked).encode_to_vec()));
        }
        Ok(OpResult::default())
    }

    /// Checks a policy that inodes are to get; nothing has changed yet.
    pub(crate) fn check_policy(&self, text: &str) -> Result<(), Error> {
        self.retention.table.number_of(&text.parse()?)?;
        Ok(self.retention.table.check_room()?)
    }

    /// The number of a policy that was checked, which is made if it is new.
    pub(crate) fn take_policy(&mut self, run: &mut TxnRun<'_>, text: &str) -> PolicyNumber {
        let policy: RetentionPolicy = text.parse().expect("it was checked");
        let table = &mut self.retention.table;
        let number = table.number_of(&policy).expect("it was checked");
        if table.policy(number).is_none() {
            table.add_policy(number, policy).expect("the number is free");
            let marked = table.policy(number).expect("it was just made");
            run.change(VersionKey::Policy(number.0), Some(StoredPolicy::of(marked).encode_to_vec()));
        }
        number
    }

    /// Gives a policy to an inode, with what the policies before it have thinned.
    pub(crate) fn bind_policy(&mut self, run: &mut TxnRun<'_>, id: InodeId, policy: PolicyNumber) {
        let old = Arc::clone(&self.inodes.get(id).expect("it was checked").layout);
        let table = &mut self.retention.table;
        let regime = table.successor(RegimeNumber(old.regime), policy).expect("there was room when it was checked");
        if regime.0 == old.regime {
            return;
        }
        if let Some(made) = table.regime(regime) {
            run.change(VersionKey::Regime(regime.0), Some(StoredRegime::of(made).encode_to_vec()));
        }
        let layout = self.share(FileLayout { regime: regime.0, ..FileLayout::clone(&old) });
        self.edit(run, id).layout = layout;
        self.retention.changes.policies += 1;
        self.retention.changes.expiries += 1;
    }

    pub(crate) fn load_policy(&mut self, number: u32, value: &[u8]) -> Result<(), Error> {
        let stored: StoredPolicy = decode(value, "policy of retention")?;
        self.retention.table.load_policy(PolicyNumber(number), stored.read()?);
        Ok(())
    }

    pub(crate) fn load_regime(&mut self, number: u32, value: &[u8]) -> Result<(), Error> {
        let stored: StoredRegime = decode(value, "regime of retention")?;
        self.retention.table.load_regime(RegimeNumber(number), stored.read()?);
        Ok(())
    }
}

/// The regime of an inode whose bytes are thinned.
fn thinned_regime(inode: &Inode) -> Option<RegimeNumber> {
    (inode.kind() == FileKind::File && inode.plugin().is_empty()).then_some(RegimeNumber(inode.layout.regime))
}
