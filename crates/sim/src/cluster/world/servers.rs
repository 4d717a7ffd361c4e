//! Servers in the world: their starts and ends, their flushes, and the messages that they send.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frieze_base::{Fault, NodeId, Reason};
use frieze_disk::CrashKind;
use frieze_node::PeerPayload;
use frieze_wire::frame::FrameHeader;

use super::super::net::{Envelope, SendOutcome};
use super::audit::is_whole_member;
use super::{ClusterEvent, ClusterWorld};
use crate::violation::{Rule, Verdict, broken};

/// Time after which a journal is flushed that nothing waits for.
const JOURNAL_IDLE_US: u64 = 500_000;

impl ClusterWorld {
    pub(super) fn flush_after(&mut self, node: usize, delay_us: u64) {
        let at_us = self.now_us + delay_us;
        if self.nodes[node].flush_at_us.is_none_or(|at| at_us < at) {
            self.nodes[node].flush_at_us = Some(at_us);
            let life = self.nodes[node].life;
            self.after(delay_us, ClusterEvent::Flush(node, life));
        }
    }

    /// If the node's call paused, its machine's clocks are ahead of all others, and it has no event until the others
    /// have caught up.
    fn stand_still(&mut self, node: usize) -> u64 {
        let stunned_us = self.nodes[node].take_stunned();
        if stunned_us > 0 {
            self.say(|| format!("a call stood still for {stunned_us} us"));
            self.nodes[node].ahead_until_us = self.nodes[node].ahead_until_us.max(self.now_us) + stunned_us;
        }
        stunned_us
    }

    pub(super) fn flushed(&mut self, node: usize, flushed: Result<(), Fault>) {
        if let Err(fault) = flushed
            && !self.nodes[node].failed
            && !self.nodes[node].disk.is_crashed()
        {
            let id = self.nodes[node].id;
            self.say(|| format!("{id} is read-only: {fault}"));
            self.nodes[node].failed = true;
        }
    }

    /// Handles the effects of every call of a server: its crash, its messages, its request for a flush, its suspended
    /// calls.
    pub(super) fn settle_node(&mut self, node: usize) -> Verdict {
        // A resumed call may send a message that others wait for.
        self.nodes[node].resume_tasks();
        self.judge_detached(node)?;
        if self.nodes[node].may_crash && self.nodes[node].disk.is_crashed() {
            self.stand_still(node);
            self.post_of_dead();
            let kind = if self.rng.chance(3) { CrashKind::Power } else { CrashKind::Process };
            self.die(node, kind);
            return Ok(());
        }
        if let Some(engine) = self.nodes[node].serving() {
            // Before its answers are sent: each carries the newest stamp of its own server.
            engine.planes.reply_durable();
        }
        let stunned_us = self.stand_still(node);
        self.carry(node, stunned_us);
        if let (Some(broken), Some(engine)) = (self.plan.breakage, self.nodes[node].serving()) {
            self.broken.after(broken, engine);
        }
        if self.plan.keep_trace {
            self.trace_chains(node);
        }
        if self.nodes[node].serving().is_none() {
            return Ok(());
        }
        if self.nodes[node].woken.swap(false, Ordering::Relaxed) && !self.nodes[node].failed {
            let delay_us = *self.rng.choose(&self.swarm.sync_us);
            self.flush_after(node, delay_us);
        }
        let meta = self.nodes[node].serving().map(|engine| &engine.planes.meta);
        let (is_woken, has_journal) =
            meta.map_or((false, false), |meta| (meta.take_journal_wake(), meta.await_journal(Duration::ZERO)));
        // Nothing wakes the thread for what waits for no flush.
        let delay_us = if is_woken { *self.rng.choose(&self.swarm.sync_us) } else { JOURNAL_IDLE_US };
        let is_sooner = self.nodes[node].journal_at_us.is_none_or(|at_us| at_us > self.now_us + delay_us);
        if is_sooner && !self.nodes[node].failed && has_journal {
            self.nodes[node].journal_at_us = Some(self.now_us + delay_us);
            let life = self.nodes[node].life;
            self.after(delay_us, ClusterEvent::Journal(node, life));
        }
        Ok(())
    }

    /// Messages of a process during its crash never leave the machine.
    fn post_of_dead(&mut self) {
        let mut post = self.post.lock().unwrap_or_else(PoisonError::into_inner);
        post.messages.clear();
        post.answers.clear();
    }

    /// Sends a node's messages, all of them after its pause, if there was one.
    fn carry(&mut self, node: usize, stunned_us: u64) {
        let (messages, answers) = {
            let mut post = self.post.lock().unwrap_or_else(PoisonError::into_inner);
            if post.messages.is_empty() && post.answers.is_empty() {
                return;
            }
            // Answers for a joining node: it waits for them itself.
            let (joining, answers) =
                std::mem::take(&mut post.answers).into_iter().partition(|answer| answer.client > usize::MAX / 2);
            post.answers = joining;
            (std::mem::take(&mut post.messages), answers)
        };
        let hlc = self.nodes[node].engine.as_ref().map(|engine| engine.planes.newest()).unwrap_or_default();
        for mut envelope in messages {
            if envelope.to.0 == 0 || envelope.to.0 as usize > self.nodes.len() {
                continue;
            }
            let PeerPayload { bytes, crc, .. } = &envelope.payload;
            let (payload_len, payload_crc) = (bytes.len() as u32, crc.unwrap_or_else(|| frieze_base::crc32c(bytes)));
            envelope.header = FrameHeader { hlc, payload_len, payload_crc, ..envelope.header };
            self.send(envelope, stunned_us);
        }
        for mut answer in answers {
            answer.hlc = hlc;
            if let Some(delay_us) = self.client_delay(answer.node, answer.client, answer.conn) {
                self.after(stunned_us + delay_us, ClusterEvent::Answered(Box::new(answer)));
            }
        }
    }

    pub(super) fn send(&mut self, envelope: Box<Envelope>, later_us: u64) {
        match self.net.send(self.now_us + later_us, &envelope) {
            SendOutcome::Arrives { at_us, connection, twice } => {
                let delay_us = at_us - self.now_us;
                if twice {
                    self.after(delay_us + 500, ClusterEvent::Told { envelope: envelope.clone(), connection });
                }
                self.after(delay_us, ClusterEvent::Told { envelope, connection });
            }
            SendOutcome::Held => {}
            SendOutcome::Broke => self.break_link(envelope.from, envelope.to),
        }
    }

    /// A connection breaks; it is made anew before long.
    pub(super) fn break_link(&mut self, one: NodeId, other: NodeId) {
        self.net.break_off(one, other);
        for (node, other) in [(one, other), (other, one)] {
            let node = self.index_of(node);
            let noticed = self.rng.between(100, 20_000);
            self.after(noticed, ClusterEvent::Link { node, other, stands: false });
            let again = self.rng.between(1_000, 200_000);
            self.after(noticed + again, ClusterEvent::Link { node, other, stands: true });
        }
    }

    pub(super) fn start(&mut self, node: usize) -> Verdict {
        let is_away = self.nodes[node].is_gone || self.nodes[node].stays_away;
        if self.nodes[node].engine.is_some() || is_away {
            return Ok(());
        }
        self.counts.restarts += 1;
        let id = self.nodes[node].id;
        self.say(|| format!("{id} starts"));
        match self.nodes[node].start() {
            Ok(()) => {
                self.after(0, ClusterEvent::Serve(node, self.nodes[node].life));
                Ok(())
            }
            Err(_) if self.nodes[node].disk.is_crashed() => {
                self.die(node, CrashKind::Process);
                Ok(())
            }
            Err(fault) if self.nodes[node].is_rotten && fault.reason == Reason::Corrupt => {
                self.say(|| format!("{id} does not start: {fault}"));
                Ok(())
            }
            Err(fault) => broken(Rule::Restarts, format!("{id} does not start: {fault}")),
        }
    }

    pub(super) fn serve(&mut self, node: usize) -> Verdict {
        let life = self.nodes[node].life;
        match self.nodes[node].serve() {
            Ok(Some(wait)) => self.after(wait.as_micros() as u64, ClusterEvent::Serve(node, life)),
            Ok(None) => {
                self.notify_ended(node);
                for event in [
                    ClusterEvent::Beat(node, life),
                    ClusterEvent::Control(node, life),
                    ClusterEvent::Pulse(node, life),
                    ClusterEvent::Tend(node, life),
                ] {
                    let delay_us = self.rng.between(0, 2_000);
                    self.after(delay_us, event);
                }
                let others: Vec<NodeId> = self.nodes.iter().map(|node| node.id).collect();
                let me = self.nodes[node].id;
                for other in others.into_iter().filter(|other| *other != me) {
                    // Messages in flight to its earlier process are lost.
                    self.net.break_off(me, other);
                    let delay_us = self.rng.between(100, 50_000);
                    let index = self.index_of(other);
                    self.after(delay_us, ClusterEvent::Link { node: index, other: me, stands: true });
                }
            }
            Err(fault) => {
                let id = self.nodes[node].id;
                return broken(Rule::Restarts, format!("{id} does not begin: {fault}"));
            }
        }
        Ok(())
    }

    pub(super) fn die(&mut self, node: usize, kind: CrashKind) {
        let id = self.nodes[node].id;
        let chains = self.nodes[node].engine.as_ref().map_or_else(Vec::new, |engine| engine.planes.chains());
        for status in &chains {
            let newest = self.epochs.entry(status.chain).or_default();
            *newest = status.epoch.max(*newest);
        }
        if kind == CrashKind::Power {
            self.note_lost(node);
            let whole = chains.iter().filter(|status| is_whole_member(id, status));
            self.nodes[node].short_at.extend(whole.map(|status| (status.chain, status.epoch)));
        }
        self.say(|| format!("{id} dies: {kind:?}"));
        self.nodes[node].die(kind);
        if kind == CrashKind::Process {
            self.notify_ended(node);
        }
        self.post_of_dead();
        let others: Vec<NodeId> = self.nodes.iter().map(|node| node.id).filter(|other| *other != id).collect();
        for other in others {
            self.net.break_off(id, other);
            let delay_us = self.rng.between(50, 2_000);
            let index = self.index_of(other);
            self.after(delay_us, ClusterEvent::Link { node: index, other: id, stands: false });
        }
        let delay_us = if self.calm { 10_000 } else { self.rng.between(10_000, self.swarm.away_us) };
        self.after(delay_us, ClusterEvent::Start(node));
    }
}
