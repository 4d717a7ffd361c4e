//! Which server or client an event concerns, and the call that it makes.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frieze_node::{ClusterState, ServerParts};

use super::super::breakage;
use super::super::chain_text;
use super::super::client::OutgoingRequest;
use super::super::net::Envelope;
use super::{ClusterEvent, ClusterWorld};
use crate::violation::Verdict;

impl ClusterWorld {
    pub(super) fn handle_event(&mut self, event: ClusterEvent) -> Verdict {
        let node = match &event {
            ClusterEvent::Beat(node, life)
            | ClusterEvent::Control(node, life)
            | ClusterEvent::Pulse(node, life)
            | ClusterEvent::Tend(node, life)
            | ClusterEvent::Flush(node, life)
            | ClusterEvent::Journal(node, life)
            | ClusterEvent::Serve(node, life) => {
                if self.nodes[*node].life != *life {
                    return Ok(());
                }
                Some(*node)
            }
            ClusterEvent::Start(node) | ClusterEvent::Link { node, .. } => Some(*node),
            ClusterEvent::Told { envelope, .. } => Some(self.index_of(envelope.to)),
            ClusterEvent::Ask { outgoing, .. } => Some(self.index_of(outgoing.to)),
            ClusterEvent::Gone { node, .. } => Some(self.index_of(*node)),
            ClusterEvent::Answered(_)
            | ClusterEvent::Ended { .. }
            | ClusterEvent::Alarm { .. }
            | ClusterEvent::Heal(_) => None,
            ClusterEvent::Join | ClusterEvent::Lose(_) | ClusterEvent::Replace => None,
            ClusterEvent::Rot(_) | ClusterEvent::Audit => None,
        };
        let Some(node) = node else {
            self.all_clocks();
            return self.handle_world_event(event);
        };
        self.nodes[node].advance(self.now_us);
        let paused_until_us = self.nodes[node].paused_until_us.max(self.nodes[node].ahead_until_us);
        if paused_until_us > self.now_us {
            self.after(paused_until_us - self.now_us, event);
            return Ok(());
        }
        self.handle_node_event(node, event)?;
        self.settle_node(node)
    }

    fn handle_world_event(&mut self, event: ClusterEvent) -> Verdict {
        match event {
            ClusterEvent::Answered(mut answer) => {
                if let Some(broken) = self.plan.breakage {
                    breakage::answer(broken, self.has_gone_on, &mut answer);
                }
                let index = answer.client;
                let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
                let words = || format!("<- c{index} r{} from {} {:?}", answer.request_id, answer.node, answer.result);
                let reason = answer.result.as_ref().err().map_or(0, |fault| fault.reason as u64);
                let crc = frieze_base::crc32c(&answer.payload).into();
                let numbers = [index as u64, answer.request_id, answer.node.0.into(), reason, crc, answer.hlc.0];
                self.history.lock().unwrap_or_else(PoisonError::into_inner).trace.numbers(&numbers, words);
                client.port.lock().unwrap_or_else(PoisonError::into_inner).answers.push(*answer);
                return self.wake(index);
            }
            ClusterEvent::Ended { client, conn } => {
                let Some(task) = self.clients.get_mut(client) else { return Ok(()) };
                task.port.lock().unwrap_or_else(PoisonError::into_inner).over.push(conn);
                return self.wake(client);
            }
            ClusterEvent::Alarm { client, at_us } => {
                let due = {
                    let port = self.clients[client].port.lock().unwrap_or_else(PoisonError::into_inner);
                    port.alarm_us == at_us
                };
                if due {
                    return self.wake(client);
                }
            }
            ClusterEvent::Heal(healing) => self.heal(healing),
            ClusterEvent::Join => self.ask_to_join(),
            ClusterEvent::Lose(node) => return self.lose(node),
            ClusterEvent::Replace => self.replace(),
            ClusterEvent::Rot(node) => return self.rot(node),
            ClusterEvent::Audit => {
                self.audit()?;
                self.judge_health()?;
                self.after(1_000_000, ClusterEvent::Audit);
            }
            _ => {}
        }
        Ok(())
    }

    fn handle_node_event(&mut self, node: usize, event: ClusterEvent) -> Verdict {
        match event {
            ClusterEvent::Start(_) => return self.start(node),
            ClusterEvent::Serve(..) => return self.serve(node),
            _ => {}
        }
        if let ClusterEvent::Ask { outgoing, client } = &event
            && self.nodes[node].rejects(outgoing.conn)
        {
            let delay_us = 50 + self.rng.below(200);
            self.after(delay_us, ClusterEvent::Ended { client: *client, conn: outgoing.conn });
            return Ok(());
        }
        let life = self.nodes[node].life;
        let Some(engine) = self.nodes[node].serving().cloned() else { return Ok(()) };
        match event {
            ClusterEvent::Beat(..) => {
                let next = engine.beat().unwrap_or(Duration::from_millis(100));
                self.after(next.as_micros() as u64, ClusterEvent::Beat(node, life));
            }
            ClusterEvent::Control(..) => {
                let next = engine.beat_control().unwrap_or(Duration::from_millis(100));
                self.after(next.as_micros() as u64, ClusterEvent::Control(node, life));
                let node = &mut self.nodes[node];
                let busy = node.control_busy.clone();
                if !busy.swap(true, Ordering::Relaxed) {
                    node.begin(move |engine| {
                        engine.do_control_jobs();
                        busy.store(false, Ordering::Relaxed);
                    });
                }
            }
            ClusterEvent::Pulse(..) => {
                engine.tick_chains();
                engine.service.sessions.tick();
                self.after(20_000, ClusterEvent::Pulse(node, life));
                if self.nodes[node].flush_at_us.is_none() && !self.nodes[node].failed && engine.planes.is_dirty() {
                    self.flush_after(node, self.swarm.flush_delay_us);
                }
            }
            ClusterEvent::Tend(..) => {
                self.after(500_000, ClusterEvent::Tend(node, life));
                let broken = self.plan.breakage;
                let checkpoint_flushes = self.rng.chance(3).then(|| self.rng.below(4));
                let names_bytes_max = self.rng.chance(2).then(|| *self.rng.choose(&[0, 0, 500, 3000]));
                let node = &mut self.nodes[node];
                let busy = node.tend_busy.clone();
                let needed = node.needed.clone();
                if !busy.swap(true, Ordering::Relaxed) {
                    node.may_detach = true;
                    node.begin(move |engine| {
                        // A failed step is retried the next time.
                        let _tended = engine.tend();
                        chain_text::lock(&needed).clear();
                        let judge = |state: &ClusterState, chain, node| {
                            if let Some(words) = chain_text::why_needed(state, chain, node) {
                                chain_text::lock(&needed).insert(chain, words);
                            }
                        };
                        let _given_up = breakage::ClusterBreakState::detach(broken, engine, judge);
                        let _given_back = engine.service.upkeep.give_back_remains();
                        // Damage that readers met is repaired from other members.
                        let _looked = engine.service.upkeep.scrub(&|_| true);
                        if let Some(mut flushes) = checkpoint_flushes {
                            // One whose tables are not complete yet is dropped; that a flush fails, the next one says.
                            let _dropped = engine.planes.meta.checkpoint(&mut || {
                                flushes = flushes.saturating_sub(1);
                                flushes > 0 && engine.planes.flush().is_ok()
                            });
                        }
                        if let Some(bytes_max) = names_bytes_max {
                            engine.planes.meta.evict_names(bytes_max);
                        }
                        busy.store(false, Ordering::Relaxed);
                    });
                }
            }
            ClusterEvent::Flush(..) if self.nodes[node].flush_at_us.is_some_and(|at| at <= self.now_us) => {
                self.nodes[node].flush_at_us = None;
                let flushed = engine.planes.flush();
                self.flushed(node, flushed);
            }
            ClusterEvent::Journal(..) if self.nodes[node].journal_at_us.is_some_and(|at| at <= self.now_us) => {
                self.nodes[node].journal_at_us = None;
                let flushed = engine.journal(Duration::ZERO);
                self.flushed(node, flushed);
            }
            ClusterEvent::Told { envelope, connection } if self.net.arrives(envelope.from, envelope.to, connection) => {
                let asks = matches!(envelope.message, frieze_wire::peer::ServerMessage::Question(_));
                self.on_message(&engine, envelope);
                if asks {
                    self.nodes[node].begin(|engine| engine.service.files.answer_what_is_asked());
                }
            }
            ClusterEvent::Link { other, stands, .. } => engine.link_changed(other, stands),
            ClusterEvent::Ask { outgoing, client } => {
                let OutgoingRequest { conn, mut header, mut body, payload, .. } = *outgoing;
                if let Some(broken) = self.plan.breakage {
                    self.broken.ask(broken, &mut header, &mut body, &engine);
                }
                self.nodes[node].request(client, conn, header, body, payload);
            }
            ClusterEvent::Gone { conn, .. } => self.nodes[node].disconnect(conn),
            _ => {}
        }
        Ok(())
    }

    fn on_message(&mut self, engine: &ServerParts, envelope: Box<Envelope>) {
        self.counts.peer_messages += 1;
        let envelope = match self.plan.breakage {
            Some(broken) => self.broken.on_message(broken, envelope, engine),
            None => Some(envelope),
        };
        let Some(envelope) = envelope else { return };
        if self.plan.keep_trace && !matches!(envelope.message, frieze_wire::peer::ServerMessage::Metalog(_)) {
            self.history().trace.words(format!("      {} to {}: {:?}", envelope.from, envelope.to, envelope.message));
        }
        let Envelope { from, header, message, payload, .. } = *envelope;
        if let Err(fault) = engine.on_peer_message(from, &header, message, (&payload.bytes).into()) {
            self.say(|| format!("{from} was not heard: {fault}"));
        }
    }
}
