//! Detaching chains of which this node has records but is no member, after the control plane has confirmed that other
//! members have them.
//!
//! Guarantees: a chain is detached only while no configuration here names this node; afterwards the node has none of
//! its records, as if it had never been a member, and can join it from nothing. A reader detects a detach during its
//! read ([`DataPlane::detach_count`]). Leaves to others: whether other members have the records (`crate::remains`).

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use frieze_base::{ChainEpoch, ChainId, Fault};
use frieze_chain::{Moment, Replica, ReplicaInput};
use frieze_multilog::Discards;

use crate::appender::Appender;
use crate::chain_state::DeferredWork;
use crate::config_store::DiscardedSpace;
use crate::plane::DataPlane;

impl DataPlane {
    /// The chains of which this node has records and, by the newest configuration it knows, is no member; with that
    /// configuration.
    pub fn detachable(&self) -> Vec<(ChainId, ChainEpoch)> {
        let appender = self.lock_appender();
        let chains =
            (0..appender.chains.len() as u32).map(ChainId).filter(|chain| self.is_detachable(&appender, *chain));
        chains.map(|chain| (chain, appender.chains[chain.0 as usize].epoch())).collect()
    }

    fn is_detachable(&self, appender: &Appender, chain: ChainId) -> bool {
        let (replica, state) = (&appender.chains[chain.0 as usize], &appender.states[chain.0 as usize]);
        let configuration = replica.configuration();
        let is_named = configuration.holds(self.me) || configuration.syncing == Some(self.me);
        state.shared && !is_named && replica.last() > 0
    }

    /// Detaches those of these chains of which this node still knows no newer configuration. Returns the detached
    /// chains. Durable on return: their space may be given back.
    ///
    /// # Errors
    /// `Busy`: retry. The disk's: then nothing has changed.
    pub fn detach(&self, chains: &[(ChainId, ChainEpoch)]) -> Result<BTreeSet<ChainId>, Fault> {
        // All records of these chains lie before this position: a node that is no member appends nothing to them.
        let before = self.device.flush()?;
        let mut out = DeferredWork::default();
        let mut appender = self.lock_appender();
        let is_same = |chain: &ChainId, epoch: ChainEpoch| appender.chains[chain.0 as usize].epoch() == epoch;
        let still =
            chains.iter().filter(|(chain, epoch)| is_same(chain, *epoch) && self.is_detachable(&appender, *chain));
        let still: BTreeSet<ChainId> = still.map(|(chain, _)| *chain).collect();
        if still.is_empty() {
            return Ok(still);
        }
        for chain in &still {
            self.drop_closed_durably(*chain)?;
        }
        // This comes before the first record is discarded: a reader checks both values after it has read everything.
        still.iter().for_each(|chain| self.views.closed[chain.0 as usize].store(0, Ordering::SeqCst));
        self.views.detach_count.fetch_add(1, Ordering::SeqCst);
        let discarded: Vec<Discards> = still.iter().map(|chain| Discards { chain: *chain, after: 0, before }).collect();
        let taken = self.device.remove_chains(&still, &mut || self.config_store.record_discards(&discarded));
        if let Err(fault) = taken {
            self.publish_cuts(&appender, still.iter().copied());
            return Err(fault);
        }
        let mut fresh: Vec<Option<Replica>> =
            crate::replay::fresh(appender.chains.len() as u32, self.me).into_iter().map(Some).collect();
        let mut follows = Vec::new();
        for chain in &still {
            let at = Moment { mono: self.clock.reading().mono, hlc: self.clock.newest() };
            let configuration = appender.chains[chain.0 as usize].configuration().clone();
            let mut replica = fresh[chain.0 as usize].take().expect("each chain is there once");
            let mut effects = Vec::new();
            replica.step(at, ReplicaInput::Configure(configuration), &mut effects);
            appender.chains[chain.0 as usize] = replica;
            appender.states[chain.0 as usize].forget();
            follows.push((*chain, effects));
        }
        self.publish_cuts(&appender, still.iter().copied());
        follows.into_iter().for_each(|(chain, effects)| self.apply_effects(&mut appender, chain, effects, &mut out));
        drop(appender);
        self.run_deferred(out);
        Ok(still)
    }

    /// Count of detached chains: a read at an instant that overlaps a detach may lack their records.
    pub fn detach_count(&self) -> u64 {
        self.views.detach_count.load(Ordering::SeqCst)
    }

    /// Discarded records whose space is not given back yet.
    pub fn discarded_space(&self) -> Option<DiscardedSpace> {
        self.config_store.discarded_space()
    }

    /// See [`crate::ConfigStore::mark_reclaimed`].
    ///
    /// # Errors
    /// The disk's.
    pub fn mark_reclaimed(&self, room: DiscardedSpace, upto: frieze_base::SegmentId) -> Result<(), Fault> {
        self.config_store.mark_reclaimed(room, upto)
    }
}
