//! Periodic work for chains of several members, and lost connections.
//!
//! Guarantees: a message that may be lost is repeated; every wait for other members ends.

use std::time::Duration;

use frieze_base::{ChainId, MonoTime, NodeId};
use frieze_chain::ReplicaInput;

use crate::appender::Appender;
use crate::chain_state::{DeferredWork, NOBODY};
use crate::fault::no_answer;
use crate::plane::DataPlane;
use crate::report::ChainEvent;

impl DataPlane {
    /// A connection with a node broke: repeats the messages that may be lost with it.
    pub fn on_disconnect(&self, node: NodeId) {
        let mut out = DeferredWork::default();
        let mut appender = self.lock_appender();
        for chain in 0..appender.chains.len() {
            let configuration = appender.chains[chain].configuration();
            let concerns = configuration.holds(node) || configuration.syncing == Some(node);
            if appender.states[chain].shared && concerns {
                self.step(&mut appender, ChainId(chain as u32), ReplicaInput::Resend, &mut out);
            }
        }
        drop(appender);
        self.run_deferred(out);
    }

    /// Periodic work for chains of several members: repeats unanswered messages, promises while a reader is active,
    /// ends waits that are over their limit. Called about every 20 ms. False if there is no such chain: later is early
    /// enough.
    pub fn tick(&self) -> bool {
        let reading = self.clock.reading();
        let now = reading.mono;
        let mut out = DeferredWork::default();
        let mut appender = self.lock_appender();
        let is_late = |since: MonoTime, bound: Duration| u128::from(now.since_ns(since)) >= bound.as_nanos();
        let late: Vec<u64> = appender
            .waiters
            .iter()
            .filter(|(_, waiter)| is_late(waiter.since, self.bounds.wait))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            out.answer(appender.waiters.remove(&id), Err(no_answer()));
        }
        if is_late(appender.barriers_asked, self.bounds.again) {
            appender.barriers_asked = now;
            self.answer_barriers(&mut appender, &mut out);
            self.resend_barriers(&appender);
        }
        let instant = self.clock.now();
        let mut has_timers = false;
        let is_recent = |at: Option<MonoTime>| at.is_some_and(|at| !is_late(at, READ_RECENTLY));
        for chain in (0..appender.chains.len()).map(|chain| ChainId(chain as u32)) {
            let at = chain.0 as usize;
            let Appender { chains, states, last_message, .. } = &mut *appender;
            let (replica, state) = (&chains[at], &mut states[at]);
            if !state.shared {
                continue;
            }
            has_timers = true;
            let supplied = state.supply.map_or(0, |supply| supply.held);
            let progress = (replica.epoch(), replica.last(), replica.clean(), replica.closed(), supplied);
            let is_supplying = state.supply.is_some_and(|supply| supply.is_under_way());
            let bound = if is_supplying { self.bounds.supply_again } else { self.bounds.again };
            // Other progress of the chain, such as promises while it is idle, is no progress of its catch-up.
            let mut again = state.supply.as_mut().is_some_and(|supply| supply.is_stalled(now, bound));
            if !replica.has_unanswered() || state.progress != progress {
                (state.progress, state.since, state.waits_since, state.silent) = (progress, now, now, None);
            } else if is_late(state.since, bound) {
                (state.since, again) = (now, true);
            }
            if let Some(next) = replica.successor().filter(|next| state.silent != Some(*next))
                && is_late(
                    last_message.get(&next).copied().unwrap_or_default().max(state.waits_since),
                    self.bounds.silent,
                )
            {
                state.silent = Some(next);
                out.reports.push(ChainEvent::Silent { chain, node: Some(next) });
            }
            if state.supply.as_mut().is_some_and(|supply| supply.resume(&self.pace, now)) {
                out.supplies.push(chain);
            }
            let is_member = replica.configuration().holds(self.me);
            let orders = !state.ordered.is_empty();
            let (read, asked) = (is_recent(state.read_at), is_recent(state.asked_at));
            let promises = replica.is_head() && (read || asked);
            // The head continues to promise, for the readers here.
            let asks = is_member && !replica.is_head() && read && !asked;
            if asks {
                state.asked_at = Some(now);
            }
            if again {
                self.step(&mut appender, chain, ReplicaInput::Resend, &mut out);
            }
            if orders {
                self.advance_ordered(&mut appender, chain, &mut out);
            }
            if (promises || asks) && self.clock.close(instant).is_ok() {
                match promises {
                    true => self.promise_of(&mut appender, chain, instant, &mut out),
                    false => {
                        self.step(&mut appender, chain, ReplicaInput::Close { request: NOBODY, at: instant }, &mut out);
                    }
                }
            }
        }
        drop(appender);
        self.run_deferred(out);
        has_timers
    }
}

/// For this long after a read at an instant the head of the chain promises continuously.
const READ_RECENTLY: Duration = Duration::from_secs(1);
