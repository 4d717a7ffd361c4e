//! The state machine that the simulated members replicate: it counts what it executes, each request once.

use std::collections::BTreeMap;

use frieze_base::LogIndex;
use frieze_hlc::Hlc;
use frieze_metalog::LogEntry;

/// A request of a client: session and number.
pub(super) type PutId = (u64, u64);

/// State of a member after an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MemberState {
    /// The last entry in it.
    pub(super) applied: LogIndex,
    /// Stands for everything executed, in order.
    pub(super) digest: u64,
    /// How many.
    pub(super) count: u64,
    /// Which place among them each request has.
    pub(super) done: BTreeMap<PutId, u64>,
    pub(super) stamp: Hlc,
}

impl MemberState {
    /// Executes an entry. `again`: requests that were executed before are executed again, which is wrong.
    pub(super) fn execute(&mut self, entry: &LogEntry, again: bool) {
        self.stamp = entry.stamp;
        let Some(ask) = decode(&entry.body) else { return };
        if self.done.contains_key(&ask) && !again {
            return;
        }
        self.count += 1;
        self.digest = mix(mix(mix(self.digest, ask.0), ask.1), self.count);
        self.done.insert(ask, self.count);
    }
}

/// The body of a batch with one request in it, and bytes to fill segments.
pub(super) fn encode(ask: PutId, filling: usize) -> Vec<u8> {
    let mut body = ask.0.to_le_bytes().to_vec();
    body.extend_from_slice(&ask.1.to_le_bytes());
    body.resize(16 + filling, 0x5a);
    body
}

pub(super) fn decode(body: &[u8]) -> Option<PutId> {
    let long = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
    Some((long(0)?, long(8)?))
}

/// Two numbers as one: stable, not strong.
pub(super) fn mix(a: u64, b: u64) -> u64 {
    (a.rotate_left(23) ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}
