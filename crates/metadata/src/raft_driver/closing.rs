//! Instants are closed: no transaction will be stamped at or below them any more.

use std::sync::atomic::Ordering;
use std::time::Duration;

use frieze_base::{Fault, Reason};
use frieze_hlc::{Hlc, format_instant};
use frieze_metalog::{MemberInput, RaftRole};
use frieze_wire::peer::ServerMessage;
use frieze_wire::peer::metalog::MetalogClose;

use super::super::state::AppliedState;
use super::driver::{InputReply, RaftCore, RaftDriver};
use frieze_net::PeerPayload;

/// How long an instant waits to be closed while no leader is known: an election takes a fraction of it.
const LEADERLESS: Duration = Duration::from_secs(1);
/// A question to the leader about an instant goes out again after so long, and a newer one after [`CLOSE_EVERY_NS`].
const CLOSE_AGAIN_NS: u64 = 100_000_000;
const CLOSE_EVERY_NS: u64 = 20_000_000;

impl RaftDriver {
    /// See [`crate::Metadata::close`].
    pub(crate) fn close(&self, state: &AppliedState, at: Hlc) -> Result<bool, Fault> {
        if at <= self.closed() {
            return Ok(true);
        }
        if let Some(closed) = self.close_alone(at) {
            return closed.map(|()| false);
        }
        // Refuses what has not come yet.
        self.clock.close(at)?;
        let began = self.clock.reading().mono;
        let closed = self.wait(|| {
            if at <= self.closed() {
                return Some(Ok(false));
            }
            self.promise(state, at);
            let waited = u128::from(self.clock.reading().mono.since_ns(began));
            if self.leader().is_none() && waited >= LEADERLESS.as_nanos() {
                return Some(Err(self.not_closed(at)));
            }
            self.lock().failed.clone().map(Err)
        });
        closed.unwrap_or_else(|| Err(self.not_closed(at)))
    }

    pub(super) fn not_closed(&self, at: Hlc) -> Fault {
        let closed = self.closed();
        let words = format!(
            "the metalog cannot close {at} yet: no majority of its members answers; what can be read here without one \
             is {closed} ({}) and before",
            format_instant(closed)
        );
        Fault::new(Reason::NotYetClosed, words)
    }

    /// On a server that is alone, promises that nothing will be stamped at or below `at`: every entry is executed while
    /// the core is locked, and the clock, whose bound is durable, gives no such stamp. `None` if it is not alone.
    pub(crate) fn close_alone(&self, at: Hlc) -> Option<Result<(), Fault>> {
        let core = self.lock();
        if !self.is_alone() {
            return None;
        }
        Some(self.clock.close(at).and_then(|()| match core.proposed.is_empty() {
            true => {
                self.seen.closed.fetch_max(at.0, Ordering::AcqRel);
                Ok(())
            }
            false => Err(Fault::new(Reason::NotYetClosed, format!("the metalog cannot close {at} yet"))),
        }))
    }

    /// Sees to it that `at` is closed before long, and waits for nothing. True if what of it can be done here is done.
    pub(crate) fn promise(&self, state: &AppliedState, at: Hlc) -> bool {
        if at <= self.closed() {
            return true;
        }
        if let Some(closed) = self.close_alone(at) {
            return closed.is_ok();
        }
        let mut core = self.lock();
        core.wanted = core.wanted.max(at);
        if core.member.role() == RaftRole::Leader {
            self.close_wanted(&mut core, state);
            return true;
        }
        let now = self.clock.reading().mono;
        let due = core.asked_close.is_none_or(|(asked, when)| {
            let since = now.since_ns(when);
            since >= CLOSE_AGAIN_NS || (core.wanted > asked && since >= CLOSE_EVERY_NS)
        });
        if let Some(leader) = core.member.leader().filter(|_| due) {
            core.asked_close = Some((core.wanted, now));
            let told = ServerMessage::MetalogClose(MetalogClose { at: core.wanted.0 });
            self.way.send(leader, told, PeerPayload::none());
        }
        true
    }

    /// At the leader, one instant after the other: what is wanted meanwhile is the next.
    pub(super) fn close_wanted(&self, core: &mut RaftCore, state: &AppliedState) {
        if core.closing.is_some() || core.wanted <= core.member.closed() || core.serves_from.is_none() {
            return;
        }
        let at = core.wanted;
        // Entries on their way that are stamped above it close it.
        let stamp = match self.clock.close(at).and_then(|()| self.stamp(core, 1)) {
            Ok(stamp) => stamp,
            Err(_) => {
                // It lies ahead of the clock here, or the clock is not trusted: a waiting thread asks again.
                core.wanted = Hlc::ZERO;
                return;
            }
        };
        core.closing = Some(at);
        self.step(core, state, stamp, MemberInput::Close { at }, InputReply::Close);
    }
}
