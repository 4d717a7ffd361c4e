//! Status of the chains: roles, ends of their logs, and figures for operators.

use std::sync::atomic::Ordering;

use frieze_base::{ChainEpoch, ChainId, NodeId};
use frieze_hlc::Hlc;
use frieze_wire::chain::Configuration;
use frieze_wire::message::ReplicaStatus;

use crate::appender::Appender;
use crate::chain_view::LocalRead;
use crate::plane::DataPlane;
use crate::report::ChainEnd;

impl DataPlane {
    /// True if the control plane configures any chain here: then a read of now asks first, and needs a lease.
    pub fn is_shared(&self) -> bool {
        self.views.any_shared.load(Ordering::Relaxed)
    }

    /// Count of chains.
    pub fn chain_count(&self) -> u32 {
        self.views.closed.len() as u32
    }

    /// True if this node is a member of the chain.
    pub fn is_member(&self, chain: ChainId) -> bool {
        self.views.local_read(chain) != LocalRead::NotMember
    }

    /// The last number of the chain that is known to be committed here.
    pub fn committed(&self, chain: ChainId) -> u64 {
        self.lock_appender().chains[chain.0 as usize].clean()
    }

    /// The chain's current configuration here. It does not change while the appender is locked.
    pub fn epoch_of(&self, chain: ChainId) -> ChainEpoch {
        ChainEpoch(self.views.epochs[chain.0 as usize].load(Ordering::SeqCst))
    }

    /// True if records appended to the chain are forwarded. A hint: the writer copies the payload before it takes the
    /// lock.
    pub(crate) fn forwards(&self, chain: ChainId) -> bool {
        self.successor_of(chain).is_some()
    }

    /// True if records appended to any chain are forwarded. A hint, as above.
    pub fn forwards_any(&self) -> bool {
        self.views.forwarding.load(Ordering::Relaxed) > 0
    }

    /// True if no other node has any of the chain: the control plane has not configured it.
    pub fn is_sole(&self, chain: ChainId) -> bool {
        self.views.local_read(chain) == LocalRead::Sole
    }

    /// The member that receives what is appended to the chain, as far as known without the appender.
    pub fn successor_of(&self, chain: ChainId) -> Option<NodeId> {
        let successor = self.views.successors.get(chain.0 as usize)?.load(Ordering::Relaxed);
        (successor != 0).then_some(NodeId(successor))
    }

    /// True if records were discarded from the log since the last call.
    pub fn take_discarded(&self) -> bool {
        self.views.discarded.swap(false, Ordering::AcqRel)
    }

    /// End of the log of each chain here.
    pub fn ends(&self) -> Vec<ChainEnd> {
        ends_of(&self.lock_appender())
    }

    /// The same without waiting for a write; `None` while the appender is locked or a write is under way.
    pub fn ends_now(&self) -> Option<Vec<ChainEnd>> {
        self.appender.try_lock().filter(|appender| appender.fills.is_empty()).map(|appender| ends_of(&appender))
    }

    /// Stamps before and after the records of chains of several members that a power loss took and no member has
    /// supplied since.
    pub fn lost_intervals(&self) -> Vec<(ChainId, Hlc, Hlc)> {
        self.config_store.lost_intervals()
    }

    /// Status of the chains that the control plane configures.
    pub fn status(&self) -> Vec<ReplicaStatus> {
        let appender = self.lock_appender();
        let shared = appender.chains.iter().zip(&appender.states).filter(|(_, state)| state.shared);
        let status = shared.map(|(replica, state)| {
            let Configuration { epoch, members, syncing, joining } = replica.configuration();
            ReplicaStatus {
                chain: replica.chain().0,
                epoch: epoch.0,
                members: members.iter().map(|node| node.0).collect(),
                syncing: syncing.map_or(0, |node| node.0),
                joining: *joining,
                last: replica.last(),
                clean: replica.clean(),
                in_flight_bytes: state.uncommitted_bytes,
                closed: replica.closed().0,
                behind: state.supply.map_or(0, |supply| replica.clean().saturating_sub(supply.sent)),
                failed: replica.failure().map_or(String::new(), |reason| reason.words().to_owned()),
            }
        });
        status.collect()
    }
}

/// End of the log of each chain.
fn ends_of(appender: &Appender) -> Vec<ChainEnd> {
    let ends = appender.chains.iter().map(|replica| ChainEnd {
        chain: replica.chain(),
        taken: replica.epoch(),
        epoch: replica.last_epoch(),
        n: replica.last(),
        newest: replica.newest(),
    });
    ends.collect()
}
