//! Configurations of chains, as the control plane decides them.
//!
//! Guarantees: a configuration is on stable storage before it is used. Leaves to others: membership and leases (the
//! caller, and [`crate::ServingLease::renew`]).

use std::sync::atomic::Ordering;

use frieze_base::{ChainId, Fault, Reason};
use frieze_chain::ReplicaInput;
use frieze_wire::chain::Configuration;

use crate::chain_state::DeferredWork;
use crate::plane::DataPlane;

impl DataPlane {
    /// Takes configurations of the control plane. An older or equal one is a delayed message and changes nothing. It is
    /// durable before it is used: after a restart this node does not take a configuration again that it had before.
    ///
    /// # Errors
    /// The disk's: then none is taken. `InvalidArgument` for an unknown chain.
    pub fn configure(&self, configurations: &[(ChainId, Configuration)]) -> Result<(), Fault> {
        let mut appender = self.lock_appender();
        let count = appender.chains.len();
        if let Some((chain, _)) = configurations.iter().find(|(chain, _)| chain.0 as usize >= count) {
            return Err(Fault::new(Reason::InvalidArgument, format!("there is no chain {chain}, only {count}")));
        }
        let newer: Vec<&(ChainId, Configuration)> =
            configurations.iter().filter(|(chain, to)| to.epoch > appender.chains[chain.0 as usize].epoch()).collect();
        if newer.is_empty() {
            return Ok(());
        }
        let taken = newer.iter().map(|(chain, to)| (*chain, to.epoch, to.members.contains(&self.me)));
        self.config_store.record_configurations(&taken.collect::<Vec<_>>())?;
        self.views.any_shared.store(true, Ordering::SeqCst);
        self.lease.limit();
        let mut out = DeferredWork::default();
        for (chain, configuration) in newer {
            let state = &mut appender.states[chain.0 as usize];
            (state.shared, state.supply) = (true, None);
            self.drop_closed(*chain);
            self.step(&mut appender, *chain, ReplicaInput::Configure(configuration.clone()), &mut out);
        }
        drop(appender);
        self.run_deferred(out);
        Ok(())
    }
}
