//! What the library has ready, turned into effects in the order that keeps it safe.
//!
//! What a member may not forget is written before anything is said that rests on it: answers and votes are held back
//! until the record is on stable storage. A leader's entries go to the others beside its own writing; it counts itself
//! only when that is done.

use frieze_base::LogIndex;
use raft::eraftpb::{Entry as RaftEntry, EntryType, Message};
use raft::{Ready, StateRole};

use super::member::{HeldBack, RaftMember};
use super::message::{BatchDurability, MemberEffect, PeerEntry, PeerMessage};
use super::peer;
use super::record::{self, EntryData, JournalBase, JournalRecord};
use crate::error::Error;
use crate::message::LogEntry;

impl RaftMember {
    /// Brings out everything that is ready, until nothing more is. What is committed comes last: a state that is to be
    /// sent is the one before it.
    pub(super) fn settle(&mut self, out: &mut Vec<MemberEffect>) -> Result<(), Error> {
        let mut last = Vec::new();
        loop {
            while self.node.has_ready() {
                let ready = self.node.ready();
                self.take(ready, out, &mut last)?;
            }
            let (written, stable) = (self.journal.written(), self.journal.durable());
            let is_due = |held: &mut HeldBack| held.written <= written && held.stable <= stable;
            let Some(held) = self.held_back.pop_front_if(is_due) else { break };
            self.node.on_persist_ready(held.number);
            if let Some(index) = held.installed {
                self.node.advance_apply_to(index);
            }
            for message in held.messages {
                self.send(message, out);
            }
        }
        out.append(&mut last);
        Ok(())
    }

    fn take(
        &mut self,
        mut ready: Ready,
        out: &mut Vec<MemberEffect>,
        last: &mut Vec<MemberEffect>,
    ) -> Result<(), Error> {
        for message in messages_out(ready.take_messages()) {
            self.send(message, out);
        }
        if ready.ss().is_some() {
            self.on_role(out);
        }
        for read in ready.take_read_states() {
            if let Some(question) = self.take_read(&read.request_ctx) {
                out.push(MemberEffect::ReadAt { token: question.token, index: LogIndex(read.index) });
            }
        }

        let mut record = JournalRecord::default();
        let mut installed = None;
        if !ready.snapshot().is_empty() {
            let meta = peer::meta_of(ready.snapshot());
            installed = Some(meta.index.0);
            self.newest = self.newest.max(meta.stamp);
            self.committed_stamp = self.committed_stamp.max(meta.stamp);
            self.node.mut_store().install(meta.clone());
            record.base = Some(JournalBase { meta: meta.clone(), anew: true, needed: 0 });
            let changed = MemberEffect::Changed { index: meta.index, members: meta.members.clone() };
            out.extend([MemberEffect::Install { meta }, changed]);
        }
        let entries = ready.take_entries();
        self.node.mut_store().append(&entries);
        for entry in &entries {
            self.newest = self.newest.max(record::stamp_of(&entry.data).unwrap_or_default());
        }
        record.entries = entries.iter().map(peer::entry_out).collect::<Vec<PeerEntry>>();
        if ready.must_sync() {
            let state = self.node.raft.hard_state();
            let is_stable_first = (state.term, state.vote) != self.recorded_vote
                || installed.is_some()
                || record.entries.iter().any(|entry| entry.durability() == BatchDurability::Stable);
            self.write(record, out)?;
            if is_stable_first {
                self.stable_first = self.journal.last();
            }
        }
        // Without a record of its own it waits for those before it: what it says may rest on them.
        let mut messages = messages_out(ready.take_persisted_messages());
        self.ask_voters_to_be(&mut messages);
        let (written, stable) = (self.journal.last(), self.stable_first);
        let held = HeldBack { number: ready.number(), written, stable, messages, installed };
        self.held_back.push_back(held);

        let committed = ready.take_committed_entries();
        self.node.advance_append_async(ready);
        self.commit(&committed, last)
    }

    pub(super) fn send(&self, mut message: PeerMessage, out: &mut Vec<MemberEffect>) {
        self.sign(&mut message);
        out.push(match message.snapshot.clone() {
            Some(meta) => MemberEffect::SendSnapshot { meta, message },
            None => MemberEffect::Send(message),
        });
    }

    fn on_role(&mut self, out: &mut Vec<MemberEffect>) {
        let lost_after = if self.leads() { self.begin_leading(out) } else { None };
        out.push(MemberEffect::Role { role: self.role(), term: self.term(), leader: self.leader(), lost_after });
        self.report_flushed(false, out);
        if self.node.raft.state != StateRole::Leader {
            let error = Error::NotLeader { leader: self.leader() };
            out.extend(self.closing.drain(..).map(|at| MemberEffect::NotClosed { at, error: error.clone() }));
        }
    }

    fn commit(&mut self, committed: &[RaftEntry], out: &mut Vec<MemberEffect>) -> Result<(), Error> {
        let Some(last) = committed.last() else { return Ok(()) };
        let mut entries = Vec::new();
        let mut changes = Vec::new();
        for entry in committed {
            if record::durability_of(peer::kind_of(entry), &entry.data) == BatchDurability::Stable {
                self.memory.stable = entry.index;
            }
            match entry.get_entry_type() {
                EntryType::EntryNormal => match record::decode_batch(entry.index, entry.term, &entry.data) {
                    EntryData::Nothing => {}
                    EntryData::Batch(batch) => {
                        self.committed_stamp = self.committed_stamp.max(batch.last_stamp());
                        if entry.index > self.applied_before && batch.count > 0 {
                            entries.push(batch);
                        }
                    }
                    EntryData::Unknown => {
                        return Err(Error::BadRecord { record: LogIndex(entry.index), what: record::OTHER_BUILD });
                    }
                },
                EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => changes.push(entry),
            }
        }
        if last.index > self.applied_before {
            out.push(MemberEffect::Committed { through: LogIndex(last.index), entries });
        }
        let committed_stamp = self.committed_stamp;
        out.extend(self.closing.extract_if(.., |at| *at <= committed_stamp).map(|at| MemberEffect::Closed { at }));
        for change in changes {
            self.change_members(change, out);
        }
        Ok(())
    }

    fn change_members(&mut self, entry: &RaftEntry, out: &mut Vec<MemberEffect>) {
        // Every member reads the same bytes with the same members before it: all take it, or none does.
        let Some(change) = peer::decode_change(&entry.data) else { return };
        let Ok(state) = self.node.apply_conf_change(&change) else { return };
        let members = peer::members_of(&state);
        self.node.mut_store().change_members(entry.index, members.clone());
        if !members.voters.contains(&self.id) && self.node.raft.state == StateRole::Leader {
            // The library leaves a leader that has no vote in office, and trips over it if it is no member.
            let term = self.node.raft.term;
            self.node.raft.become_follower(term, 0);
        }
        out.push(MemberEffect::Changed { index: LogIndex(entry.index), members });
    }
}

fn messages_out(messages: Vec<Message>) -> Vec<PeerMessage> {
    messages.iter().filter_map(peer::message_out).collect()
}

impl LogEntry {
    /// Newest stamp of its transactions.
    fn last_stamp(&self) -> frieze_hlc::Hlc {
        record::last_stamp(self.stamp, self.count)
    }
}
