//! Periodic work for chains of several members, and lost connections.
//!
//! Guarantees: a message that may be lost is repeated; every wait for other members ends.

use std::time::Duration;

use frieze_base::{ChainId, MonoTime, NodeId};
use frieze_chain::ReplicaInput;

use crate::appender::Appender;
use crate::chain_state::{NOBODY, Out};
use crate::fault::no_answer;
use crate::plane::DataPlane;
use crate::report::Report;

impl DataPlane {
    /// A connection with a node broke: repeats the messages that may be lost with it.
    pub fn lost(&self, node: NodeId) {
        let mut out = Out::default();
        let mut appender = self.hold_writes();
        for chain in 0..appender.chains.len() {
            let configuration = appender.chains[chain].configuration();
            let concerns = configuration.holds(node) || configuration.syncing == Some(node);
            if appender.members[chain].shared && concerns {
                self.step(&mut appender, ChainId(chain as u32), ReplicaInput::Again, None, &mut out);
            }
        }
        drop(appender);
        self.finish_out(out);
    }

    /// Periodic work for chains of several members: repeats unanswered messages, promises while a reader is active,
    /// ends waits that are over their limit. Called about every 20 ms.
    pub fn tick(&self) {
        if !self.is_shared() {
            return;
        }
        let reading = self.clock.reading();
        let now = reading.mono;
        let mut out = Out::default();
        let mut appender = self.hold_writes();
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
            self.settle_barriers(&mut appender, &mut out);
            self.ask_barriers(&appender);
        }
        let instant = self.clock.now();
        let is_recent = |at: Option<MonoTime>| at.is_some_and(|at| !is_late(at, READ_RECENTLY));
        for chain in (0..appender.chains.len()).map(|chain| ChainId(chain as u32)) {
            let at = chain.0 as usize;
            let Appender { chains, members, heard, .. } = &mut *appender;
            let (replica, member) = (&chains[at], &mut members[at]);
            if !member.shared {
                continue;
            }
            let supplied = member.supply.map_or(0, |supply| supply.held);
            let come = (replica.epoch(), replica.last(), replica.clean(), replica.closed(), supplied);
            let is_supplying = member.supply.is_some_and(|supply| supply.is_under_way());
            let bound = if is_supplying { self.bounds.supply_again } else { self.bounds.again };
            // Other progress of the chain, such as promises while it is idle, is no progress of its catch-up.
            let mut again = member.supply.as_mut().is_some_and(|supply| supply.stands_still(now, bound));
            if !replica.waits() || member.come != come {
                (member.come, member.since, member.waits_since, member.silent) = (come, now, now, None);
            } else if is_late(member.since, bound) {
                (member.since, again) = (now, true);
            }
            if let Some(next) = replica.successor().filter(|next| member.silent != Some(*next))
                && is_late(heard.get(&next).copied().unwrap_or_default().max(member.waits_since), self.bounds.silent)
            {
                member.silent = Some(next);
                out.reports.push(Report::Silent { chain, node: Some(next) });
            }
            if member.supply.as_mut().is_some_and(|supply| supply.goes_on(&self.pace, now)) {
                out.supplies.push(chain);
            }
            let is_member = replica.configuration().holds(self.me);
            let orders = !member.ordered.is_empty();
            let (read, asked) = (is_recent(member.read_at), is_recent(member.asked_at));
            let promises = replica.is_head() && (read || asked);
            // The head continues to promise, for the readers here.
            let asks = is_member && !replica.is_head() && read && !asked;
            if asks {
                member.asked_at = Some(now);
            }
            if again {
                self.step(&mut appender, chain, ReplicaInput::Again, None, &mut out);
            }
            if orders {
                self.go_on_ordering(&mut appender, chain, &mut out);
            }
            if (promises || asks) && self.clock.close(instant).is_ok() {
                match promises {
                    true => self.promise_of(&mut appender, chain, instant, &mut out),
                    false => {
                        self.step(
                            &mut appender,
                            chain,
                            ReplicaInput::Close { request: NOBODY, at: instant },
                            None,
                            &mut out,
                        );
                    }
                }
            }
        }
        drop(appender);
        self.finish_out(out);
    }
}

/// For this long after a read at an instant the head of the chain promises continuously.
const READ_RECENTLY: Duration = Duration::from_secs(1);
