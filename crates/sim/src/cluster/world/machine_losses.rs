//! Events of one machine, once in some seeds: it is lost for good, its disk rots, or it joins during the work of the
//! others.

use std::sync::PoisonError;

use frieze_base::NodeId;
use frieze_disk::CrashKind;
use frieze_wire::message::JoinReply;

use super::super::node::SimNode;
use super::{ClusterEvent, ClusterWorld, newcomer, settings_of};
use crate::violation::{Rule, Verdict, broken};

impl ClusterWorld {
    /// Loses a machine with all its data, once other machines have all of it: until then the event is repeated. A
    /// machine with a damaged disk is given up earlier. If it does not start, nothing else is waited for: a server that
    /// joins waits for a leader, and an election after a loss of power waits for the machine or its declaration (ADR
    /// 75).
    pub(super) fn lose(&mut self, node: usize) -> Verdict {
        let SimNode { id, is_gone, is_rotten, .. } = self.nodes[node];
        if is_gone || self.calm && !is_rotten {
            return Ok(());
        }
        // A machine that cannot start is lost even if it has the only copy.
        let (only, is_down) = (self.only_at(node), self.nodes[node].engine.is_none());
        let may_go = if is_rotten { is_down || only.is_empty() } else { self.is_whole() };
        // One after the other.
        if !may_go || self.nodes.len() < self.machines && !is_down {
            self.after(100_000, ClusterEvent::Lose(node));
            return Ok(());
        }
        *self.counts.faults.entry("loss of a machine").or_default() += 1;
        self.say(|| format!("{id} is lost for ever"));
        if is_down {
            let now_us = self.now_us;
            let (short, ruined): (Vec<u32>, Vec<u32>) =
                only.into_iter().partition(|chain| self.has_durable_copy(node, *chain));
            let mut history = self.history();
            history.buried_us.get_or_insert(now_us);
            // Other nodes may have the durable part; answers have to report what is ruined.
            history.lost.extend(short.into_iter().map(|chain| (now_us, chain)));
            history.ruined.extend((!ruined.is_empty()).then_some(now_us + 1));
            history.lost.extend(ruined.into_iter().map(|chain| (now_us + 1, chain)));
        } else {
            let now_us = self.now_us;
            self.history().buried_us.get_or_insert(now_us);
            self.die(node, CrashKind::Power);
        }
        (self.nodes[node].is_gone, self.nodes[node].failed) = (true, false);
        self.nodes[node].refuses = false;
        // Two operators: a server may join before the lost one is declared dead, but not if no leader comes before.
        self.add_client(self.clients.len(), self.swarm.mix, move |worker| worker.bury(id));
        self.unreplaced += 1;
        self.replace();
        Ok(())
    }

    /// Another machine asks to take the place of one that is lost, when those before it have been taken in.
    pub(super) fn replace(&mut self) {
        if self.nodes.len() < self.machines {
            return self.after(100_000, ClusterEvent::Replace);
        }
        let next = newcomer(self.machines);
        self.machines += 1;
        self.unreplaced -= 1;
        self.add_client(self.clients.len(), self.swarm.mix, move |worker| worker.replace(next));
    }

    /// Another server joins, when those before it have been taken in.
    pub(super) fn ask_to_join(&mut self) {
        if self.nodes.len() < self.machines {
            return self.after(100_000, ClusterEvent::Join);
        }
        *self.counts.faults.entry("another server").or_default() += 1;
        let (next, index) = (newcomer(self.machines), self.clients.len());
        self.machines += 1;
        self.say(|| format!("{} asks to join", next.name));
        self.add_client(index, self.swarm.mix, move |worker| worker.join(next));
    }

    /// Flips a bit that a node has written, once all others have that data on stable storage. After a while the machine
    /// is replaced: nothing repairs its disk.
    pub(super) fn rot(&mut self, node: usize) -> Verdict {
        if self.calm || self.nodes[node].is_gone {
            return Ok(());
        }
        let is_dirty = self.nodes.iter().any(|node| node.serving().is_some_and(|engine| engine.planes.is_dirty()));
        if is_dirty || !self.is_whole() {
            self.after(5_000, ClusterEvent::Rot(node));
            return Ok(());
        }
        let draw = self.rng.next();
        let Some((name, offset)) = self.nodes[node].written_byte(draw) else { return Ok(()) };
        let bit = (draw >> 60) as u8 % 8;
        if self.nodes[node].disk.flip_bit(&name, offset, bit).is_ok() {
            let id = self.nodes[node].id;
            *self.counts.faults.entry("rot").or_default() += 1;
            self.say(|| format!("a bit of {name} of {id} rots at {offset}"));
            self.nodes[node].is_rotten = true;
            let unnoticed_us = self.rng.between(500_000, 6_000_000);
            self.after(unnoticed_us, ClusterEvent::Lose(node));
        }
        Ok(())
    }

    /// A machine that joins, or takes the place of one that is lost, begins.
    pub(super) fn add_node(&mut self, reply: JoinReply) -> Verdict {
        let (joiner, id) = (self.nodes.len(), NodeId(reply.node));
        if self.index_of(id) != joiner {
            return broken(Rule::Whole, format!("who is taken in after {joiner} others is called {id}"));
        }
        let mut node = SimNode::new(id, self.rng.split(), &settings_of(&self.plan), &self.post, self.plan.breakage);
        node.advance(self.now_us);
        self.nodes.push(node);
        for client in &self.clients {
            let nodes = self.nodes.iter().filter(|node| !node.is_gone).map(|node| node.id).collect();
            client.port.lock().unwrap_or_else(PoisonError::into_inner).nodes = Some(nodes);
        }
        self.begin_joined(joiner, reply)
    }
}
