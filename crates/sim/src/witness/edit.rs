//! The effects of an edit: the transaction that the server made of it is in its log. Its execution is checked like any
//! other change; that it matches the request is checked here, and in `judge::edit`.

use frieze_base::Reason;
use frieze_hlc::Hlc;
use frieze_wire::edit::{Edit, NEW, Undo};
use frieze_wire::message::{Reply, Request, Stat, View};
use frieze_wire::txn::{Op, Target};

use super::{Expectation, Witness};
use crate::exchange::ClientRequest;
use crate::journal::{Act, Effect, LogPlace};
use crate::machine::Marks;
use crate::violation::{Rule, Verdict, broken};

/// Entries of one edit, at most: its parts and itself.
const ENTRIES_MAX: u64 = 256;

impl Witness {
    pub(super) fn account_planned(
        &mut self,
        ask: &ClientRequest,
        request: &Request,
        before: Marks,
        after: Marks,
    ) -> Verdict<Expectation> {
        let (session, seq, acked) = (ask.header.session.0, ask.header.seq.0, ask.header.acked.0);
        let (entries, records) = (after.index - before.index, after.records - before.records);
        if records > 0 || (entries > 0 && is_dry_run(request)) {
            return broken(Rule::Once, format!("{request:?} made {entries} entries and {records} records"));
        }
        let did = self.model.sessions.get(&session).and_then(|state| state.ran.get(&seq)).cloned();
        let place = |index| Effect::new(LogPlace::Meta(index), after.newest, (session, seq, acked), Act::Planned);
        let mut index = before.index + 1;
        let mut logged = None;
        while index <= after.index {
            match self.planned(&place(index), index)? {
                // The parts of a long edit come before it.
                Some((stamp, Op::StageEdit(_))) => {
                    let staged = Effect::new(LogPlace::Meta(index), stamp, (session, 0, 0), Act::Staged);
                    self.journal.effects.push(staged);
                    index += 1;
                }
                Some((_, op)) if index == after.index => {
                    logged = Some(op);
                    break;
                }
                Some((_, op)) => return broken(Rule::Once, format!("{request:?} made {op:?}, and more behind it")),
                None => break,
            }
        }
        let Some(op) = logged else {
            // Not run, or the server crashed during it: the next start shows what is in the log.
            self.doubts = (index..index + ENTRIES_MAX).map(place).collect();
            return Ok(Expectation::Planned { logged: false, did });
        };
        let effect = place(index);
        let preview = self.model.preview(session, seq, &op);
        if preview.is_err() {
            self.check_stamp(after.newest)?;
        }
        match (request, &op) {
            (Request::Undo(undo), Op::Edit(edit)) => self.check_undo(undo, edit)?,
            (Request::Forget(ask), Op::Forget(horizon)) if preview.is_err() => self.check_forget(ask, horizon)?,
            _ => {}
        }
        let made = if preview == Err(Ok(())) { self.number_of_made(&op)? } else { 0 };
        let ran = self.model.run(session, seq, acked, &op, after.newest);
        self.journal.effects.push(Effect { act: Act::Txn(Box::new(op)), made, ..effect });
        Ok(Expectation::Planned { logged: true, did: Some(ran) })
    }

    /// The number of the first inode that an edit has just made.
    pub(super) fn number_of_made_by_edit(&mut self, op: &Op, edit: &Edit) -> Verdict<u64> {
        if edit.new.is_empty() {
            return Ok(0);
        }
        let Some(set) = edit.names.iter().find(|set| set.inode & NEW != 0 && set.directory & NEW == 0) else {
            return broken(Rule::Tree, format!("an edit makes inodes without a name: {edit:?}"));
        };
        let target = Target { base: set.directory, path: set.name.clone(), follow: false };
        let Some(Reply::Stat(reply)) =
            self.machine.look(Request::Stat(Stat { target, view: View::NOW, ..Stat::default() }))
        else {
            return broken(Rule::Linearizable, format!("what an edit has made is not there: {set:?}"));
        };
        self.note_made(op, (set.inode & !NEW) as usize, reply.attr.inode)
    }

    /// An undo changes only inodes that the actor changed last.
    fn check_undo(&self, undo: &Undo, edit: &Edit) -> Verdict {
        let actor = |stamp: Hlc| {
            let by = self.journal.stamped(stamp).map(|effect| effect.session);
            stamp > Hlc(undo.after)
                && (undo.upto == 0 || stamp <= Hlc(undo.upto))
                && (undo.sessions.is_empty() || by.is_some_and(|by| undo.sessions.contains(&by)))
        };
        let tree = &self.model.tree;
        for set in edit.names.iter().filter(|set| set.directory & NEW == 0) {
            let newest = tree.named_at(set.directory, &set.name);
            if !newest.is_some_and(actor) {
                return broken(
                    Rule::Linearizable,
                    format!("{undo:?} changes {set:?}, which was changed last at {newest:?}, by another"),
                );
            }
        }
        for state in &edit.states {
            for share in &state.shares {
                let newest = tree.bytes(state.inode).newest_of(share.start, share.start + share.len);
                // A hole leaves no record where nothing ever showed, and nothing may come back there.
                let brought = tree.shared(share).pieces;
                let is_nothing = |stamp: Hlc| match self.journal.stamped(stamp).map(|effect| &effect.act) {
                    Some(Act::Punch { punch, .. }) => {
                        let (from, to) = (punch.offset, punch.offset + punch.len);
                        !brought.iter().any(|(at, bytes)| *at < to && at + bytes.len() as u64 > from)
                    }
                    _ => false,
                };
                let mut others = newest.into_iter().filter(|stamp| !actor(*stamp));
                if let Some(other) = others.find(|stamp| !is_nothing(*stamp)) {
                    return broken(
                        Rule::Linearizable,
                        format!("{undo:?} changes {share:?} of inode {}, written at {other} by another", state.inode),
                    );
                }
            }
        }
        Ok(())
    }

    /// Why an edit may be refused as things are; empty: it may not.
    pub(crate) fn refusals_of_edit(&self, ask: &ClientRequest, request: &Request) -> Vec<Reason> {
        if !self.model.sessions.contains_key(&ask.header.session.0) {
            return vec![Reason::UnknownSession];
        }
        let tree = &self.model.tree;
        let now = Hlc::MAX;
        let parent = |target: &Target| tree.place(&Target { follow: false, ..target.clone() }, false, now);
        match request {
            Request::Clone(ask) => {
                let at = if ask.at == 0 { now } else { Hlc(ask.at) };
                match (tree.resolve(&ask.source, at), parent(&ask.target)) {
                    (Err(reason), _) | (_, Err(reason)) => vec![reason],
                    (Ok(_), Ok(place)) if place.found.is_some() => vec![Reason::Exists],
                    _ => Vec::new(),
                }
            }
            Request::Restore(ask) => {
                let target = Target { follow: false, ..ask.target.clone() };
                match (parent(&target), tree.resolve(&target, Hlc(ask.at))) {
                    (Err(reason), _) => vec![reason],
                    (_, Err(reason @ (Reason::NotFound | Reason::NotDirectory))) => {
                        vec![reason, Reason::NotFound]
                    }
                    (_, Err(reason)) => vec![reason],
                    _ => Vec::new(),
                }
            }
            Request::Undo(ask) => {
                let resolved = tree.resolve(&ask.target, now).err().into_iter();
                resolved.chain(tree.resolve(&ask.target, Hlc(ask.after)).err()).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// True if nothing is to be done.
pub(crate) fn is_dry_run(request: &Request) -> bool {
    match request {
        Request::Clone(ask) => ask.dry_run,
        Request::Restore(ask) => ask.dry_run,
        Request::Undo(ask) => ask.dry_run,
        Request::Forget(ask) => ask.dry_run,
        _ => false,
    }
}
