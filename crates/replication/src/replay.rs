//! Chains at the start of a process: fresh replicas, and recovered records replayed into them.

use frieze_base::{ChainEpoch, ChainId, Fault, NodeId, Reason};
use frieze_chain::Replica;
use frieze_multilog::RecordHeader;
use frieze_wire::chain::Configuration;

use crate::config_store::ConfigStore;

/// Configuration number of a new file system. Each start is a configuration of its own, so a record number that a power
/// loss took is never used twice in one configuration.
pub(crate) const FIRST_EPOCH: ChainEpoch = ChainEpoch(1);
/// The node that creates a file system. Until other nodes join it is the only member of all chains.
pub(crate) const FIRST_NODE: NodeId = NodeId(1);

/// Fresh chains of node `me` for recovery to replay into. If the control plane has configured a chain, this node has no
/// role in it until a newer configuration names it.
pub fn new_chains(count: u32, me: NodeId, config_store: &ConfigStore) -> Vec<Replica> {
    let configuration = |chain| match config_store.epoch(chain) {
        Some(epoch) => Configuration { epoch, ..Configuration::default() },
        None if me == FIRST_NODE => Configuration { epoch: FIRST_EPOCH, members: vec![me], ..Configuration::default() },
        None => Configuration::default(),
    };
    let settings = frieze_chain::Settings::default();
    (0..count).map(ChainId).map(|id| Replica::member(id, me, configuration(id), settings.clone())).collect()
}

/// Chains without a role.
pub(crate) fn fresh(count: u32, me: NodeId) -> Vec<Replica> {
    let settings = frieze_chain::Settings::default();
    let nobody = Configuration::default;
    (0..count).map(|id| Replica::member(ChainId(id), me, nobody(), settings.clone())).collect()
}

/// Replays a recovered record into its chain. Returns how many records of the chain are missing before it.
///
/// # Errors
/// `Corrupt` if the record cannot follow what the chain holds.
pub fn replay(chains: &mut [Replica], header: &RecordHeader) -> Result<u64, Fault> {
    let Some(chain) = chains.get_mut(header.chain.0 as usize) else {
        return Err(Fault::new(
            Reason::Corrupt,
            format!("a record of chain {} was found, but this directory has {} chains", header.chain, chains.len()),
        ));
    };
    chain.replay(header).map_err(Fault::from)
}
