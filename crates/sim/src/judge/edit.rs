//! Allowed answers of an edit, and the check that the tree is then as requested.

use frieze_base::{Fault, Reason};
use frieze_hlc::Hlc;
use frieze_wire::edit::{ActionKind, CloneTree, CopyRange, EditAction, EditReply, Restore, Undo};
use frieze_wire::message::{Reply, Request};
use frieze_wire::txn::Target;

use crate::exchange::{ClientRequest, Handle};
use crate::model::RequestEffect;
use crate::model::bytes::{Cut, FileBytes};
use crate::model::tree::{Mismatch, ROOT};
use crate::violation::{Rule, Verdict, broken};
use crate::witness::{Witness, is_dry_run};

impl Witness {
    pub(super) fn judge_edit(
        &mut self,
        ask: &ClientRequest,
        request: &Request,
        logged: bool,
        did: Option<&RequestEffect>,
        result: &Result<Reply, Fault>,
        at_once: bool,
    ) -> Verdict {
        let late = self.is_behind(ask);
        let wrong = |expected: &dyn std::fmt::Debug| {
            broken(Rule::Linearizable, format!("{request:?} answered {result:?}, expected {expected:?}"))
        };
        match (did, result) {
            (Some(RequestEffect::Txn { stamp, result: Ok(done) }), Ok(Reply::Edited(reply)))
                if logged || reply.repeated =>
            {
                if (reply.stamp, reply.id, reply.repeated) != (stamp.0, done.id, !logged) {
                    return wrong(&(stamp, done, logged));
                }
                self.note_answered(ask.header.session.0, ask.header.seq.0, false);
                if at_once && logged { self.check_edited(ask, request, reply) } else { Ok(()) }
            }
            (Some(RequestEffect::Txn { result: Err(reason), .. }), Err(fault)) if fault.reason == *reason => Ok(()),
            // Late duplicates of an acknowledged edit are planned anew, and then refused, or there is nothing to do.
            (_, Err(fault)) if !logged && late && fault.reason != Reason::Internal => Ok(()),
            (_, Ok(Reply::Edited(reply))) if !logged && reply.stamp == 0 && (late || did.is_none()) => {
                match at_once && !late && !is_dry_run(request) {
                    true => self.check_edited(ask, request, reply),
                    false => Ok(()),
                }
            }
            (None, Err(fault)) if !logged => {
                let refusals = self.refusals_of_edit(ask, request);
                let copies = matches!(request, Request::CopyRange(_)) && COPY_REFUSALS.contains(&fault.reason);
                // Out of too many pieces; or the clock was set back behind the instant.
                let other = fault.reason == Reason::TooLarge || (fault.reason == Reason::Future && self.excuses.clock);
                // The past that it copies from may have expired.
                let lost = fault.reason == Reason::HistoryExpired && self.takes_from_lost(ask, request);
                if copies || other || lost || refusals.contains(&fault.reason) { Ok(()) } else { wrong(&refusals) }
            }
            (did, _) => wrong(&did),
        }
    }

    /// Checks in the model, right after an edit, that the result is as requested.
    fn check_edited(&self, ask: &ClientRequest, request: &Request, reply: &EditReply) -> Verdict {
        let left = |action: &EditAction| action.kind() == ActionKind::Left;
        if reply.actions.len() as u64 != reply.count || reply.actions.iter().any(left) {
            return Ok(());
        }
        let found = match request {
            Request::Clone(clone) => self.check_clone(clone, reply),
            Request::Restore(restore) => self.check_restore(restore),
            Request::Undo(undo) => self.check_undone(undo),
            Request::CopyRange(copy) => self.check_copied(ask, copy, reply),
            _ => None,
        };
        match found {
            Some(words) => broken(Rule::Linearizable, format!("after {request:?}, {reply:?}: {words}")),
            None => self.model.tree.check(Hlc::MAX).or_else(|words| broken(Rule::Tree, words)),
        }
    }

    /// True if an edit reads history that may have expired.
    fn takes_from_lost(&self, ask: &ClientRequest, request: &Request) -> bool {
        let horizons = &self.model.tree.horizons;
        let handle_lost = |handle: &Option<Handle>| {
            let lost = |handle: &Handle| horizons.expired(handle.inode, handle.view.instant().unwrap_or(Hlc::MAX));
            handle.as_ref().is_some_and(lost)
        };
        match request {
            Request::Clone(ask) => ask.at != 0 && horizons.reach(Hlc(ask.at)),
            Request::Restore(ask) => horizons.reach(Hlc(ask.at)),
            Request::Undo(ask) => horizons.reach(Hlc(ask.after)),
            Request::CopyRange(_) => handle_lost(&ask.source) || handle_lost(&ask.handle),
            _ => false,
        }
    }

    fn check_clone(&self, ask: &CloneTree, reply: &EditReply) -> Option<String> {
        let tree = &self.model.tree;
        let at = Hlc(reply.at);
        let source = tree.resolve(&ask.source, at);
        let copy = tree.resolve(&Target { follow: false, ..ask.target.clone() }, Hlc::MAX);
        match (source, copy) {
            // A copy of a directory is compared as it was before names were put into it: it is not its own copy.
            (Ok(source), Ok(_)) if self.holds_lost(source, at) => Some("what is forgotten was cloned".to_owned()),
            (Ok(source), Ok(copy)) => tree.compare((source, at), (copy, Hlc::MAX), Mismatch::Nothing),
            found => Some(format!("{found:?}")),
        }
    }

    fn check_restore(&self, ask: &Restore) -> Option<String> {
        let tree = &self.model.tree;
        let target = Target { follow: false, ..ask.target.clone() };
        let differs = if ask.delete { Mismatch::Nothing } else { Mismatch::MoreNames };
        match (tree.resolve(&target, Hlc(ask.at)), tree.resolve(&target, Hlc::MAX)) {
            (Ok(then), Ok(now)) => tree.compare((then, Hlc(ask.at)), (now, Hlc::MAX), differs),
            (Err(_), Err(_)) => None,
            found => Some(format!("{found:?}")),
        }
    }

    /// If an undo removed all changes of all users from the whole tree, the tree is as before.
    fn check_undone(&self, ask: &Undo) -> Option<String> {
        let everything = ask.sessions.is_empty() && ask.upto == 0;
        let target = Target { follow: false, ..ask.target.clone() };
        if !everything || self.model.tree.resolve(&target, Hlc::MAX) != Ok(ROOT) {
            return None;
        }
        self.model.tree.compare((ROOT, Hlc(ask.after)), (ROOT, Hlc::MAX), Mismatch::Nothing)
    }

    fn check_copied(&self, ask: &ClientRequest, copy: &CopyRange, reply: &EditReply) -> Option<String> {
        let (Some(source), Some(target)) = (&ask.source, &ask.handle) else { return None };
        let before = Hlc(reply.stamp).previous();
        let upto = source.view.instant().unwrap_or(before);
        let wanted = self.model.tree.bytes(source.inode).read(cut(upto), copy.source_offset, copy.len);
        let found = self.model.tree.bytes(target.inode).read(Cut::NOW, copy.target_offset, reply.len);
        let kept = |bytes: &FileBytes, upto: Hlc, from: u64, len: u64| bytes.read(cut(upto), from, len);
        let bytes = self.model.tree.bytes(target.inode);
        let behind = copy.target_offset + reply.len;
        let around = [(0, copy.target_offset.min(NEAR_BYTES)), (behind, NEAR_BYTES)];
        let changed = around.into_iter().find(|(from, len)| {
            let (old, new) = (kept(bytes, before, *from, *len), kept(bytes, Hlc::MAX, *from, *len));
            old.iter().zip(&new).any(|(old, new)| old != new)
        });
        match (reply.stamp, wanted == found, changed) {
            (0, ..) | (_, true, None) => None,
            (_, equal, changed) => Some(format!("equal: {equal}, changed beside it: {changed:?}")),
        }
    }
}

fn cut(upto: Hlc) -> Cut<'static> {
    Cut { upto, without: &[] }
}

/// Bytes beside a copied range that are read.
const NEAR_BYTES: u64 = 1 << 20;
/// Why a range may have to be copied byte by byte, or not at all.
const COPY_REFUSALS: [Reason; 7] = [
    Reason::StaleHandle,
    Reason::AccessDenied,
    Reason::UnknownSession,
    Reason::Unsupported,
    Reason::ReadOnly,
    Reason::NotFound,
    Reason::InvalidArgument,
];
