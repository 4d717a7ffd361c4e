//! How long a connection without a proof of its peer's identity may last.

use std::time::Duration;

use frieze_base::MonoTime;
use frieze_net::Limits;

/// From its beginning on, however slowly it sends.
const PROOF_MAX: Duration = Limits::HANDSHAKE.frame;
/// A greeting, a proof, and some mistakes: each has a response that the peer has to read.
const UNPROVEN_REQUESTS_MAX: u32 = 16;

/// Progress of a connection whose peer has not proven its identity yet.
pub(super) struct Handshake {
    since: MonoTime,
    requests: u32,
}

impl Handshake {
    /// Begins now.
    pub(super) fn new() -> Handshake {
        Handshake { since: frieze_net::mono(), requests: 0 }
    }

    /// Counts a request that proved nothing.
    pub(super) fn count_request(&mut self) {
        self.requests += 1;
    }

    /// Limits for the rest of its time; `None` if that is over, or it has sent too many requests.
    pub(super) fn limits(&self) -> Option<Limits> {
        let left = PROOF_MAX.saturating_sub(Duration::from_nanos(frieze_net::mono().since_ns(self.since)));
        let goes_on = !left.is_zero() && self.requests < UNPROVEN_REQUESTS_MAX;
        goes_on.then_some(Limits { idle: Some(left), frame: left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_proves_nothing_has_a_time_in_all_and_a_few_requests() {
        let mut handshake = Handshake::new();
        let began = handshake.limits().expect("it may go on");
        assert!(began.frame <= PROOF_MAX && began.idle.is_some());
        for _ in 0..UNPROVEN_REQUESTS_MAX {
            assert!(handshake.limits().is_some());
            handshake.count_request();
        }
        assert!(handshake.limits().is_none(), "it has asked too often");
        let late = Handshake { since: MonoTime(0), requests: 0 };
        assert!(frieze_net::mono().0 < PROOF_MAX.as_nanos() as u64 || late.limits().is_none(), "its time is over");
    }
}
