//! Promises that heads of chains make on their own: to stamp nothing at or below an instant any more.
//!
//! Guarantees: a chain has one promise in flight at a time, and no request waits for it. Leaves to others: when to
//! promise (`Planes::flush`, `ServerParts::tend`, [`crate::tick`]), and when a promise counts (`frieze_chain`).

use frieze_base::{ChainId, Fault};
use frieze_chain::ReplicaInput;
use frieze_hlc::Hlc;

use crate::appender::Appender;
use crate::chain_state::DeferredWork;
use crate::chain_state::NOBODY;
use crate::plane::DataPlane;

impl DataPlane {
    /// Promises for the chains whose head is here, without waiting for members.
    pub fn promise(&self, at: Hlc) -> Result<(), Fault> {
        self.promise_if(at, |_| true)
    }

    /// The same for the chains whose closed instant `is_behind`.
    pub fn promise_if(&self, at: Hlc, is_behind: impl Fn(Hlc) -> bool) -> Result<(), Fault> {
        let mut out = DeferredWork::default();
        let mut appender = self.lock_appender();
        let heads: Vec<ChainId> = appender
            .chains
            .iter()
            .filter(|replica| replica.is_head() && is_behind(replica.closed()))
            .map(|replica| replica.chain())
            .collect();
        if heads.is_empty() {
            return Ok(());
        }
        self.clock.close(at)?;
        for chain in heads {
            self.promise_of(&mut appender, chain, at, &mut out);
        }
        drop(appender);
        self.run_deferred(out);
        Ok(())
    }

    /// Promises for one chain, if its head is here.
    pub(crate) fn promise_of(&self, appender: &mut Appender, chain: ChainId, at: Hlc, out: &mut DeferredWork) {
        let (replica, state) = (&appender.chains[chain.0 as usize], &mut appender.states[chain.0 as usize]);
        // One promise is in flight at a time.
        if replica.is_head() && replica.closed() >= state.promised && replica.closed() < at {
            state.promised = at;
            self.step(appender, chain, ReplicaInput::Close { request: NOBODY, at }, out);
        }
    }
}
