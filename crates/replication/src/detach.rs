//! Detaching chains of which this node has records but is no member, after the control plane has confirmed that other
//! members have them.
//!
//! Guarantees: a chain is detached only while no configuration here names this node; afterwards the node has none of
//! its records, as if it had never been a member, and can join it from nothing. A reader detects a detach during its
//! read ([`DataPlane::went`]). Leaves to others: whether other members have the records (`crate::remains`).

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use frieze_base::{ChainEpoch, ChainId, Fault};
use frieze_chain::{Moment, Replica, ReplicaInput};
use frieze_multilog::Discards;

use crate::chain_state::Out;
use crate::config_store::Room;
use crate::plane::{Appender, DataPlane};

impl DataPlane {
    /// The chains of which this node has records and, by the newest configuration it knows, is no member; with that
    /// configuration.
    pub fn remains(&self) -> Vec<(ChainId, ChainEpoch)> {
        if !self.is_shared() {
            return Vec::new();
        }
        let appender = self.hold_writes();
        let chains = (0..appender.chains.len() as u32).map(ChainId).filter(|chain| self.remain(&appender, *chain));
        chains.map(|chain| (chain, appender.chains[chain.0 as usize].epoch())).collect()
    }

    fn remain(&self, appender: &Appender, chain: ChainId) -> bool {
        let (replica, member) = (&appender.chains[chain.0 as usize], &appender.members[chain.0 as usize]);
        let configuration = replica.configuration();
        let is_named = configuration.holds(self.me) || configuration.syncing == Some(self.me);
        member.shared && !is_named && replica.last() > 0
    }

    /// Detaches those of these chains of which this node still knows no newer configuration. Returns the detached
    /// chains. Durable on return: their space may be given back.
    ///
    /// # Errors
    /// `Busy`: retry. The disk's: then nothing has changed.
    pub fn take_out(&self, chains: &[(ChainId, ChainEpoch)]) -> Result<BTreeSet<ChainId>, Fault> {
        // All records of these chains lie before this position: a node that is no member appends nothing to them.
        let before = self.device.flush()?;
        let mut out = Out::default();
        let mut appender = self.hold_writes();
        let is_same = |chain: &ChainId, epoch: ChainEpoch| appender.chains[chain.0 as usize].epoch() == epoch;
        let still = chains.iter().filter(|(chain, epoch)| is_same(chain, *epoch) && self.remain(&appender, *chain));
        let still: BTreeSet<ChainId> = still.map(|(chain, _)| *chain).collect();
        if still.is_empty() {
            return Ok(still);
        }
        for chain in &still {
            self.forget_closed_for_good(*chain)?;
        }
        // This comes before the first record is discarded: a reader checks both values after it has read everything.
        still.iter().for_each(|chain| self.shown.closed[chain.0 as usize].store(0, Ordering::SeqCst));
        self.shown.went.fetch_add(1, Ordering::SeqCst);
        let discarded: Vec<Discards> = still.iter().map(|chain| Discards { chain: *chain, after: 0, before }).collect();
        let taken = self.device.remove_chains(&still, &mut || self.roles.discard_all(&discarded));
        if let Err(fault) = taken {
            self.show(&appender, still.iter().copied());
            return Err(fault);
        }
        let mut fresh: Vec<Option<Replica>> =
            crate::plane::fresh(appender.chains.len() as u32, self.me).into_iter().map(Some).collect();
        let mut follows = Vec::new();
        for chain in &still {
            let at = Moment { mono: self.clock.reading().mono, hlc: self.clock.newest() };
            let configuration = appender.chains[chain.0 as usize].configuration().clone();
            let mut replica = fresh[chain.0 as usize].take().expect("each chain is there once");
            let mut effects = Vec::new();
            replica.step(at, ReplicaInput::Configure(configuration), &mut effects);
            appender.chains[chain.0 as usize] = replica;
            appender.members[chain.0 as usize].forget();
            follows.push((*chain, effects));
        }
        self.show(&appender, still.iter().copied());
        follows.into_iter().for_each(|(chain, effects)| self.carry(&mut appender, chain, effects, None, &mut out));
        drop(appender);
        self.finish_out(out);
        Ok(still)
    }

    /// Count of detached chains: a read at an instant that overlaps a detach may lack their records.
    pub fn went(&self) -> u64 {
        self.shown.went.load(Ordering::SeqCst)
    }

    /// Discarded records whose space is not given back yet.
    pub fn room(&self) -> Option<Room> {
        self.roles.room()
    }

    /// See [`crate::Roles::gave_back`].
    ///
    /// # Errors
    /// The disk's.
    pub fn gave_back(&self, room: Room, upto: frieze_base::SegmentId) -> Result<(), Fault> {
        self.roles.gave_back(room, upto)
    }
}
