//! Clones, restores, undos and shared copies: planned by reading, run as one transaction.
//!
//! Guarantees: an edit runs whole, at one stamp, or not at all; it runs only if everything it was planned on is
//! unchanged, otherwise it is planned again; if the plan depends on the bytes of a file, no write falls between reading
//! them and the decision. Leaves to others: what to plan (`change`, `clone`, `restore`, `undo`, …), checking it
//! (`namespace`), the bytes (`seen`).
//!
//! # Source
//! OLLP, Thomson et al., Calvin (SIGMOD'12) §3.2.1 and CalvinFS (FAST'15) §2.1: the read and write set is found by
//! looking, without isolation, and validated when the transaction runs.

mod change;
mod clone;
mod copy_range;
mod join;
mod names;
mod remove;
mod restore;
mod undo;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frieze_base::{ByteRange, Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_metadata::EditPlan;
use frieze_namespace::{Inode, ListedEntry, PATCHES_MAX, check_edit_bytes};
use frieze_planes::{DEPTH_MAX, FileVersion, Files, Planes, Principal};
use frieze_wire::acl::{ACCESS_ACL_XATTR, DEFAULT_ACL_XATTR};
use frieze_wire::edit::{ActionKind, Edit, EditAction, EditKind, EditReply, NEW, NewInode, SetName, SetState, Share};
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::View;
use frieze_wire::txn::{Op, Transaction};
use prost::Message;

use crate::history::History;
use crate::read::Reader;
use crate::session::Sessions;
use crate::upkeep::Upkeep;
use crate::write::{Writers, check_numbered};

/// Times an edit is planned again because something changed while it was planned.
const PLANS_MAX: u32 = 16;
/// Least bytes of a name in an edit: two numbers, a name of one byte, and what separates them. A changed inode takes
/// more.
const NAME_BYTES_LEAST: usize = 13;
/// Bytes of actions that one answer lists; a frame's body holds 8 MiB.
const TOLD_BYTES_MAX: usize = 4 << 20;
/// Entries that one read of a directory returns.
const LIST_PAGE: usize = 4096;
/// A range that comes from at most so many states is shared from them directly, not from the file that shares them.
const ORIGINS_FEW: usize = 4;

/// Clones, restores, undo, removal of trees, their mode and owner, and copies that share bytes.
pub struct TreeOps {
    /// Names and bytes.
    pub planes: Arc<Planes>,
    /// Files over both planes.
    pub files: Arc<Files>,
    /// Sessions and what they hold.
    pub sessions: Arc<Sessions>,
    /// Answers about what is.
    pub read: Arc<Reader>,
    /// Changes of bytes and names.
    pub write: Arc<Writers>,
    /// What has happened.
    pub history: Arc<History>,
    /// Work in the background.
    pub upkeep: Arc<Upkeep>,
}

/// The inode of a name before and after the edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Naming {
    /// The inode it names; 0 for none.
    pub(crate) expect: InodeId,
    /// The inode it is to name, or [`NEW`] and an index; 0 for none.
    pub(crate) inode: u64,
}

/// An edit as it is being planned.
pub(crate) struct Plan {
    pub(crate) kind: EditKind,
    /// The closed instant up to which the plan reads.
    pub(crate) now: Hlc,
    /// The instant that the plan takes old state from; ZERO for none.
    pub(crate) at: Hlc,
    pub(crate) names: BTreeMap<(InodeId, Vec<u8>), Naming>,
    /// Inodes that do not get back a name they had, since other inodes have it: they keep their last name.
    pub(crate) displaced: BTreeSet<InodeId>,
    pub(crate) new: Vec<NewInode>,
    pub(crate) states: BTreeMap<InodeId, SetState>,
    pub(crate) actions: Vec<EditAction>,
    /// Bytes that a copied range has.
    pub(crate) len: u64,
    /// Files that are removed with their names while another file shares their bytes: nothing may be written to them
    /// until the edit runs.
    pub(crate) taken: BTreeSet<InodeId>,
    /// The policy of retention that inodes get.
    pub(crate) policy: String,
    /// Files that get bytes which do not depend on their old bytes: these may change until the edit runs.
    pub(crate) adds: BTreeSet<InodeId>,
}

impl Plan {
    pub(crate) fn new(kind: EditKind, now: Hlc, at: Hlc) -> Plan {
        Plan {
            kind,
            now,
            at,
            names: BTreeMap::new(),
            displaced: BTreeSet::new(),
            new: Vec::new(),
            states: BTreeMap::new(),
            actions: Vec::new(),
            len: 0,
            taken: BTreeSet::new(),
            policy: String::new(),
            adds: BTreeSet::new(),
        }
    }

    /// Makes an inode; the returned number denotes it in this edit.
    pub(crate) fn make(&mut self, inode: NewInode) -> u64 {
        self.new.push(inode);
        NEW | (self.new.len() as u64 - 1)
    }

    /// The change of an inode, begun if there was none.
    pub(crate) fn state(&mut self, id: InodeId, version: &Inode) -> &mut SetState {
        let fresh = || SetState { inode: id.0, expect: version.from.0, ..SetState::default() };
        self.states.entry(id).or_insert_with(fresh)
    }

    pub(crate) fn note_action(
        &mut self,
        kind: ActionKind,
        path: &[u8],
        inode: u64,
        words: impl Into<String>,
    ) -> &mut EditAction {
        let inode = if inode & NEW == 0 { inode } else { 0 };
        self.actions.push(EditAction {
            kind: kind as i32,
            path: path.to_vec(),
            inode,
            words: words.into(),
            ..EditAction::default()
        });
        self.actions.last_mut().expect("just pushed")
    }

    /// Leaves a name as it is, and lists why.
    pub(crate) fn leave(&mut self, path: &[u8], inode: u64, words: impl Into<String>) -> &mut EditAction {
        let names = [ActionKind::Name, ActionKind::Unname, ActionKind::Replace, ActionKind::Make];
        let below = [path, b"/"].concat();
        self.actions.retain(|action| match action.kind() {
            // A copy that gets no name is not made, nor its contents.
            ActionKind::Make if action.path.starts_with(&below) => false,
            kind => action.path != path || !names.contains(&kind),
        });
        self.note_action(ActionKind::Left, path, inode, words)
    }

    /// Drops new inodes that get no name, and their contents.
    fn forget_unnamed(&mut self) {
        let index = |inode: u64| (inode & NEW != 0).then_some((inode & !NEW) as usize);
        let mut kept = vec![false; self.new.len()];
        loop {
            let mut found = false;
            for ((directory, _), naming) in &self.names {
                let held = index(directory.0).is_none_or(|index| kept[index]);
                if let Some(index) = index(naming.inode).filter(|index| held && !kept[*index]) {
                    (kept[index], found) = (true, true);
                }
            }
            if !found {
                break;
            }
        }
        if kept.iter().all(|kept| *kept) {
            return;
        }
        let mut count = 0;
        let numbers: Vec<u64> = kept.iter().map(|kept| (NEW | count, count += u64::from(*kept)).0).collect();
        let number = |inode: u64| index(inode).map_or(inode, |index| numbers[index]);
        let names = std::mem::take(&mut self.names).into_iter();
        let names = names.filter(|((directory, _), _)| index(directory.0).is_none_or(|index| kept[index]));
        self.names = names
            .map(|((directory, name), naming)| {
                ((InodeId(number(directory.0)), name), Naming { inode: number(naming.inode), ..naming })
            })
            .collect();
        let mut kept = kept.into_iter();
        self.new.retain(|_| kept.next().unwrap_or_default());
    }

    /// # Errors
    /// `TooLarge` if the plan has more than is changed at once. A name is counted with the least that it can take: the
    /// whole plan is measured when it is complete.
    pub(crate) fn check_size(&self) -> Result<(), Fault> {
        check_edit_bytes((self.names.len() + self.states.len()) * NAME_BYTES_LEAST)
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.states.is_empty()
    }
}

/// The transaction of a plan, and the files that must not be written to since.
struct Drafted {
    edit: Edit,
    /// The instant of the plan's reads.
    now: Hlc,
    /// Files whose length or bytes it decides.
    decided: Vec<InodeId>,
    /// Files that it was planned on.
    watched: Vec<InodeId>,
}

impl TreeOps {
    /// Plans and runs an edit. `plan` gets a closed instant and reads the state at that instant.
    ///
    /// # Errors
    /// Those of the plan; `Busy` if the state that it reads keeps changing; `TooLarge` for more than one transaction
    /// holds; those of the transaction.
    pub(crate) fn edit(
        &self,
        principal: &Principal,
        header: &FrameHeader,
        dry_run: bool,
        plan: &dyn Fn(Hlc) -> Result<Plan, Fault>,
    ) -> Result<EditReply, Fault> {
        if !dry_run {
            self.planes.check_changeable()?;
            check_numbered(header)?;
        }
        // Old state that the edit shares does not expire before it is shared.
        let _kept = self.upkeep.forgetting.read();
        let mut former = None;
        for _ in 0..PLANS_MAX {
            let remembered = self.planes.meta.remembered(header.session, header.seq);
            if let Some(outcome) = remembered.filter(|_| !dry_run) {
                let outcome = outcome.into_result()?;
                self.files.order_again(Hlc(outcome.stamp))?;
                return Ok(EditReply { stamp: outcome.stamp, id: outcome.id, repeated: true, ..EditReply::default() });
            }
            let now = self.planes.clock.now();
            let went = self.planes.data.detach_count();
            self.planes.answer(View::exact(now))?;
            let plan = plan(now);
            if self.planes.has_lost_chains_since(went) {
                continue;
            }
            let mut plan = plan?;
            let mut reply = EditReply { at: plan.at.0, len: plan.len, ..EditReply::default() };
            plan.actions.sort_by(|a, b| (&a.path, a.kind, a.offset).cmp(&(&b.path, b.kind, b.offset)));
            reply.count = plan.actions.len() as u64;
            let mut told = 0;
            reply.actions = std::mem::take(&mut plan.actions);
            let fits = reply.actions.iter().position(|action| {
                told += action.encoded_len() + 8;
                told > TOLD_BYTES_MAX
            });
            reply.actions.truncate(fits.unwrap_or(usize::MAX));
            if plan.is_empty() {
                return Ok(reply);
            }
            if dry_run {
                let kind = plan.kind;
                let check =
                    |drafted: Drafted| self.planes.meta.check_edit(&principal.caller, &drafted.edit, now.next());
                match self.draft(plan).and_then(check) {
                    Err(fault) if fault.reason == Reason::Superseded => continue,
                    Err(fault) => reply.refuse(fault, kind),
                    Ok(()) => {}
                }
                return Ok(reply);
            }
            let drafted = self.draft(plan)?;
            match self.run(principal, header, drafted, former.replace(now))? {
                Some(outcome) => {
                    (reply.stamp, reply.id) = outcome;
                    return Ok(reply);
                }
                None => continue,
            }
        }
        Err(Fault::new(
            Reason::Busy,
            format!(
                "what is to be changed has changed {PLANS_MAX} times while it was looked at: try again when it is \
                 quieter, or take a smaller part"
            ),
        ))
    }

    /// The transaction of a plan.
    fn draft(&self, plan: Plan) -> Result<Drafted, Fault> {
        let Plan { kind, now, at, names, new, states, taken, adds, policy, .. } = plan;
        let named = names.values().map(|naming| naming.inode).filter(|inode| *inode != 0 && inode & NEW == 0);
        let brought = self.planes.meta.nameless_inodes(&named.map(InodeId).chain(states.keys().copied()).collect())?;
        let decided: Vec<InodeId> = states
            .values()
            .filter(|state| state.size.is_some() || !state.shares.is_empty())
            .map(|state| InodeId(state.inode))
            .collect();
        let names = names.into_iter().map(|((directory, name), naming)| SetName {
            directory: directory.0,
            name,
            expect: naming.expect.0,
            inode: naming.inode,
        });
        let edit = Edit {
            kind: kind as i32,
            at: at.0,
            brought,
            new,
            names: names.collect(),
            states: states.into_values().collect(),
            keeps_times: true,
            staged: None,
            policy,
        };
        check_edit_bytes(edit.encoded_len())?;
        let watched = decided.iter().copied().filter(|id| !adds.contains(id)).chain(taken).collect();
        Ok(Drafted { edit, now, decided, watched })
    }

    /// Runs an edit; `None` if its plan is out of date. `former` is the plan before this one.
    fn run(
        &self,
        principal: &Principal,
        header: &FrameHeader,
        drafted: Drafted,
        former: Option<Hlc>,
    ) -> Result<Option<(u64, u64)>, Fault> {
        let Drafted { edit, now, decided, watched } = drafted;
        let plan = EditPlan { session: header.session, request: header.seq, must_see: header.hlc, plan: now, former };
        let edit = self.planes.meta.stage_edit(edit, self.planes.settings.edit_part_bytes, plan)?;
        let transaction = Transaction {
            session: header.session.0,
            seq: header.seq.0,
            acked: header.acked.0,
            caller: principal.caller.clone(),
            must_see: header.hlc.0,
            op: Some(Op::Edit(edit)),
        };
        // Held until it has run: no write falls between reading a file and the decision about it.
        let held = self.files.hold_for_change()?;
        let written = {
            let log = self.planes.data.device().log_of(watched.iter().copied())?;
            watched.iter().any(|&id| log.newest_in(id, 0..=u32::MAX, now, Hlc::MAX).newest.is_some())
        };
        if written || self.files.is_written_remotely_since(&watched, now)? {
            return Ok(None);
        }
        let outcome = self.planes.meta.execute_with_room(transaction, None)?;
        drop(held);
        if outcome.reason == Reason::Superseded as u32 {
            return Ok(None);
        }
        let outcome = outcome.into_result()?;
        self.files.order_writers(Hlc(outcome.stamp), &decided)?;
        Ok(Some((outcome.stamp, outcome.id)))
    }

    /// Visits the entries of a directory at an instant.
    fn each_entry(
        &self,
        directory: InodeId,
        at: Hlc,
        visit: &mut dyn FnMut(ListedEntry) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut after = Vec::new();
        loop {
            let listed = self.planes.meta.list(directory, Some(at), &after, LIST_PAGE)?;
            let Some(last) = listed.last() else { return Ok(()) };
            after.clone_from(&last.name);
            listed.into_iter().try_for_each(&mut *visit)?;
        }
    }

    /// A file that becomes wholly what it was at `at` (`then`) has the user times of that instant, and continues from
    /// them.
    ///
    /// # Errors
    /// Of the device, where the index of the file has to be fetched.
    fn take_times(&self, plan: &mut Plan, then: &FileVersion, at: Hlc, version: &Inode) -> Result<(), Fault> {
        if version.plugin().is_empty() {
            return Ok(());
        }
        let (origin, origin_at) = self.read.time_origin(then, at)?.unwrap_or_default();
        let state = plan.state(then.id, version);
        (state.times_anew, state.origin, state.origin_at) = (true, origin.0, origin_at.0);
        Ok(())
    }

    /// What a range that begins at `to` has to share to show `range` of a file as `seen` shows it.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn shares(&self, seen: &FileVersion, range: ByteRange, to: u64) -> Result<Vec<Share>, Fault> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let at = seen.upto.unwrap_or(Hlc::MAX);
        let direct = Share { start: to, len: range.len(), inode: seen.id.0, offset: range.start(), at: at.0 };
        if seen.inode.patches().is_empty() {
            return Ok(vec![direct]);
        }
        let sources = self.files.sources(&seen.inode, range.start(), range.end())?;
        let origins = self.files.look_through(&[seen], &[&sources])?.origins(seen, &sources, range)?;
        let depth = origins.iter().map(|origin| origin.depth).max().unwrap_or(0);
        if depth < DEPTH_MAX && origins.len() > ORIGINS_FEW {
            return Ok(vec![direct]);
        }
        if origins.len() > PATCHES_MAX {
            return Err(Fault::new(
                Reason::TooLarge,
                format!(
                    "inode {} is put together from {} ranges of older states: copy its bytes instead of sharing them",
                    seen.id,
                    origins.len()
                ),
            ));
        }
        let shares = origins.iter().map(|origin| Share {
            start: to + (origin.start - range.start()),
            len: origin.end - origin.start,
            inode: origin.inode.0,
            offset: origin.offset,
            at: origin.at.0,
        });
        Ok(shares.collect())
    }
}

/// The text for an extended attribute in the list of actions.
fn attribute_words(name: &[u8]) -> String {
    match name {
        ACCESS_ACL_XATTR => "access list".to_owned(),
        DEFAULT_ACL_XATTR => "default access list".to_owned(),
        name => format!("attribute {}", String::from_utf8_lossy(name)),
    }
}
