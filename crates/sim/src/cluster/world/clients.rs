//! Clients in the world: their start and resumption, the transport of their messages, and the notice of ended
//! connections.

use std::sync::{Arc, Mutex, PoisonError};

use frieze_base::NodeId;
use frieze_wire::frame::FrameHeader;

use super::super::client::{ClusterClient, Port, client_of};
use super::super::outbox::NodeConnId;
use super::super::swarm::ClientDelivery;
use super::super::tasks::Task;
use super::super::work::{ClusterMix, Worker};
use super::{ClientTask, ClusterEvent, ClusterWorld};
use crate::violation::Verdict;

impl ClusterWorld {
    pub(super) fn add_client(&mut self, index: usize, mix: ClusterMix, life: impl FnOnce(Worker) + Send + 'static) {
        let port: Arc<Mutex<Port>> = Arc::default();
        let ids = self.nodes.iter().filter(|node| !node.is_gone).map(|node| node.id).collect();
        let client = ClusterClient::new(index, self.rng.split(), port.clone(), ids);
        let worker = Worker::new(client, self.history.clone(), mix);
        let task = Task::new(move || life(worker));
        self.clients.push(ClientTask { port, task: Some(task) });
        let at_us = self.now_us + 1 + index as u64 * 100;
        self.after(1 + index as u64 * 100, ClusterEvent::Alarm { client: index, at_us });
        let mut port = self.clients[index].port.lock().unwrap_or_else(PoisonError::into_inner);
        (port.alarm_us, port.disks_rot, port.patience_us) = (at_us, self.plan.rots, self.swarm.patience_us);
    }

    /// Resumes a client.
    pub(super) fn wake(&mut self, index: usize) -> Verdict {
        let client = &mut self.clients[index];
        let Some(task) = &mut client.task else { return Ok(()) };
        self.has_woken = true;
        {
            let mut port = client.port.lock().unwrap_or_else(PoisonError::into_inner);
            (port.now_us, port.calm) = (self.now_us, self.calm);
        }
        if task.resume() {
            client.task = None;
        }
        let (outgoing, closed, joined, alarm_us) = {
            let mut port = client.port.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut port.outgoing), std::mem::take(&mut port.closed), port.joined.take(), port.alarm_us)
        };
        for outgoing in outgoing {
            self.counts.requests += 1;
            let words = || {
                let FrameHeader { request_id, session, seq, .. } = outgoing.header;
                format!("-> c{index} r{request_id} to {} {session}/{seq} {:?}", outgoing.to, outgoing.body.request)
            };
            let FrameHeader { request_id, seq, hlc, payload_crc, .. } = outgoing.header;
            let numbers = [index as u64, request_id, outgoing.to.0.into(), seq.0, hlc.0, payload_crc.into()];
            self.history.lock().unwrap_or_else(PoisonError::into_inner).trace.numbers(&numbers, words);
            if let Some(delay_us) = self.client_delay(outgoing.to, index, outgoing.conn) {
                self.after(delay_us, ClusterEvent::Ask { outgoing: Box::new(outgoing), client: index });
            }
        }
        for (node, conn) in closed {
            self.after(300, ClusterEvent::Gone { node, conn });
        }
        let delay_us = alarm_us.saturating_sub(self.now_us).max(1);
        let at_us = self.now_us + delay_us;
        self.clients[index].port.lock().unwrap_or_else(PoisonError::into_inner).alarm_us = at_us;
        self.after(delay_us, ClusterEvent::Alarm { client: index, at_us });
        joined.map_or(Ok(()), |reply| self.add_node(reply))
    }

    /// How long a message between a client and a node takes, if it arrives.
    pub(super) fn client_delay(&mut self, node: NodeId, client: usize, conn: NodeConnId) -> Option<u64> {
        match self.swarm.delivery(&mut self.rng, self.calm, node) {
            ClientDelivery::Arrives => return Some(50 + self.rng.below(200)),
            ClientDelivery::Breaks => {
                let noticed_us = self.rng.between(100, 20_000);
                self.after(noticed_us, ClusterEvent::Ended { client, conn });
                self.after(300, ClusterEvent::Gone { node, conn });
            }
            ClientDelivery::Vanishes => {}
        }
        None
    }

    /// Notifies the other ends of ended connections to a node.
    pub(super) fn notify_ended(&mut self, node: usize) {
        for conn in self.nodes[node].take_ended() {
            let delay_us = self.rng.between(50, 2_000);
            self.after(delay_us, ClusterEvent::Ended { client: client_of(conn), conn });
        }
    }
}
