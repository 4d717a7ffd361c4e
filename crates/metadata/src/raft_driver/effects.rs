//! What the member asks for is done, in order.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use frieze_base::{Fault, NodeId};
use frieze_hlc::Hlc;
use frieze_metalog::{Error, MemberEffect, MemberInput, RaftRole};
use tracing::info;

use super::super::state::AppliedState;
use super::driver::{InputReply, ProposedBatch, RaftCore, RaftDriver, fail};

impl RaftDriver {
    /// Does what the member asks for, in order. `names`: entries that it writes may name data.
    pub(super) fn run_effects(
        &self,
        core: &mut RaftCore,
        state: &AppliedState,
        effects: Vec<MemberEffect>,
        asking: &mut InputReply<'_>,
        names: bool,
        inputs: &mut VecDeque<MemberInput>,
    ) {
        let mut has_failed = false;
        for effect in effects {
            match effect {
                // It goes with the one before it.
                MemberEffect::Append { .. } if has_failed => {}
                MemberEffect::Append { record, roll, segment, offset, bytes, urgent } => {
                    match core.journal.write(roll, segment, offset, &bytes) {
                        Ok(()) => {
                            core.written = record;
                            if names {
                                core.names_data = record;
                            }
                            inputs.push_back(MemberInput::Appended { record });
                            if urgent {
                                self.unflushed.wake();
                            }
                        }
                        Err(fault) => {
                            has_failed = true;
                            // Before anything else is written behind it.
                            inputs.push_front(MemberInput::AppendFailed { record, reason: fault.reason });
                        }
                    }
                }
                MemberEffect::Remove { segment } => {
                    // What stays is found to be old at the next start.
                    let _left = core.journal.remove(segment);
                }
                MemberEffect::Erase { segment, offset, len } => {
                    if let Err(fault) = core.journal.erase(segment, offset, len) {
                        inputs.push_front(MemberInput::DeviceFailed { reason: fault.reason });
                    }
                }
                MemberEffect::Withdrawn { after, error } => {
                    core.new_ids.withdraw(after);
                    let fault = Fault::from(error);
                    for proposed in core.proposed.split_off(&(after.0 + 1)).into_values() {
                        fail(&proposed.slots, &fault);
                    }
                }
                MemberEffect::Send(message) => core.outgoing.send(&*self.way, &message),
                MemberEffect::SendSnapshot { meta, message } => {
                    let to = message.to;
                    // One for which there is no room now is asked for again with the next heartbeat.
                    let here = self.applied() == meta.index && self.transfers.has_room(to);
                    let view = here.then(|| state.versions.view(meta.index).ok()).flatten();
                    match view {
                        Some(view) => self.transfers.begin((to, &meta), &message, view),
                        None => inputs.push_back(MemberInput::SnapshotSent { to, whole: false }),
                    }
                }
                MemberEffect::Install { meta } => match self.install_snapshot(core, state, &meta) {
                    Ok(()) => {}
                    Err(fault) => {
                        inputs.push_back(MemberInput::DeviceFailed { reason: fault.reason });
                        return;
                    }
                },
                MemberEffect::Committed { through, entries } => {
                    match self.apply_committed(core, state, through, entries) {
                        Ok(()) => inputs.push_front(MemberInput::Applied { index: through }),
                        Err(fault) => {
                            inputs.push_back(MemberInput::DeviceFailed { reason: fault.reason });
                            return;
                        }
                    }
                }
                MemberEffect::Proposed { index, term } => match std::mem::replace(asking, InputReply::Nothing) {
                    InputReply::Batch(batch, slots) => {
                        core.proposed.insert(index.0, ProposedBatch { term, batch, slots });
                    }
                    InputReply::Change(answer) => *answer = Some(Ok((index, term))),
                    InputReply::Nothing | InputReply::Close | InputReply::Read(_) => {}
                },
                MemberEffect::Refused(error) => match std::mem::replace(asking, InputReply::Nothing) {
                    InputReply::Batch(_, slots) => fail(&slots, &error.into()),
                    InputReply::Change(answer) => *answer = Some(Err(error.into())),
                    // A waiting thread asks again.
                    InputReply::Close => (core.closing, core.wanted) = (None, Hlc::ZERO),
                    InputReply::Read(token) => core.questions.answered(token, Err(error.into())),
                    // A message that was not taken: its sender says it again.
                    InputReply::Nothing => {}
                },
                MemberEffect::Closed { .. } | MemberEffect::NotClosed { .. } => core.closing = None,
                MemberEffect::ReadAt { token, index } => core.questions.answered(token, Ok(index)),
                MemberEffect::ReadFailed { token, error } => core.questions.answered(token, Err(error.into())),
                MemberEffect::Role { role, leader, lost_after, .. } => {
                    core.lost_after = lost_after;
                    self.on_role(core, state, role, leader);
                }
                MemberEffect::Durable { .. } => {
                    self.note_durable(core);
                    (self.wake)();
                }
                MemberEffect::FlushNow => self.unflushed.wake(),
                MemberEffect::UpToDate => core.is_back = true,
                MemberEffect::Changed { .. } => {}
                MemberEffect::Failed(error) => self.on_failed(core, error.into()),
            }
        }
    }

    pub(super) fn on_role(&self, core: &mut RaftCore, state: &AppliedState, role: RaftRole, leader: Option<NodeId>) {
        let before = self.leader();
        match leader {
            // The only voter always leads.
            _ if leader == before || core.member.is_only_voter() => {}
            Some(leader) => info!("node {leader} leads the metalog, in term {}", core.member.term()),
            None => info!("no server is known to lead the metalog any more"),
        }
        self.seen.leader.store(leader.map_or(0, |leader| leader.0), Ordering::Release);
        if role == RaftRole::Leader {
            // The first entry of its term is in its log already.
            core.serves_from.get_or_insert(core.member.last());
            core.new_ids.begin_after(core.member.last());
            self.unflushed.wake();
            return;
        }
        core.serves_from = None;
        core.closing = None;
        self.transfers.forget_sending();
        if self.seen.leads.swap(false, Ordering::AcqRel)
            && let Some(observer) = state.observer()
        {
            observer.resign();
        }
        self.fail_waiting(core, &Error::NotLeader { leader }.into());
    }

    pub(super) fn on_failed(&self, core: &mut RaftCore, fault: Fault) {
        core.failed = Some(fault.clone());
        core.serves_from = None;
        core.closing = None;
        core.questions.fail(&fault);
        self.seen.leads.store(false, Ordering::Release);
        self.seen.leader.store(0, Ordering::Release);
        self.fail_waiting(core, &fault);
        // The flush reports the fault.
        self.unflushed.wake();
    }

    /// After an input and all that it brought about: shows where the member is, and goes on with what waits.
    pub(super) fn publish(&self, core: &mut RaftCore, state: &AppliedState) {
        self.seen.closed.fetch_max(core.member.closed().0, Ordering::AcqRel);
        self.note_durable(core);
        self.note_back(core);
        if core.serves_from.is_some_and(|from| from <= self.applied()) && !self.leads() {
            // What sessions were given to cache by the leader before is not known: they may believe it for a lease.
            // Those that never keep anything were given nothing.
            if let Some(observer) = state.observer() {
                observer.begin_to_lead(state.keeping_sessions());
            }
            self.seen.reigns.fetch_add(1, Ordering::AcqRel);
            self.seen.leads.store(true, Ordering::Release);
        }
        if core.questions.take_again() {
            self.ask_read_index(core, state);
        }
        self.close_wanted(core, state);
        self.propose_waiting(core, state);
        self.progress.changed();
    }
}
