//! The data plane of one device: its fields, its constructor, and the appender's lock.
//!
//! Leaves to others: every step, each in a file of its own: writes (`write`), messages of members (`inbound`), effects
//! (`effects`), reads (`reads`, `visibility`), durability (`persist`), periodic work (`tick`).

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use frieze_base::{ChainEpoch, ChainId, MonoTime, NodeId};
use frieze_chain::{Moment, Replica, ReplicaInput};
use frieze_hlc::Hlc;
use frieze_locks::{Condvar, Mutex, RwLock, levels};
use frieze_net::{Idle, PeersCell};
use frieze_storage::{Device, NodeClock};
use frieze_wire::chain::Configuration;

use crate::appender::Appender;
use crate::bounds::{Bounds, ServingLease};
use crate::chain_state::DriverState;
use crate::config_store::ConfigStore;
use crate::fills::Fills;
use crate::observer::PublishObserver;
use crate::replay::{FIRST_EPOCH, FIRST_NODE};
use crate::report::ChainEvent;
use crate::request_table::RequestTable;

/// The chains of one device and the device.
pub struct DataPlane {
    pub(crate) device: Arc<Device>,
    pub(crate) clock: Arc<NodeClock>,
    pub(crate) epoch: ChainEpoch,
    /// This node's id among the members of chains.
    pub(crate) me: NodeId,
    pub(crate) appender: Mutex<levels::Appender, Appender>,
    /// Notified when a write whose bytes were copied outside of the lock has ended.
    pub(crate) fill_ended: Condvar,
    /// For each chain the instant at which a read of now reads: `MAX`, or below its first dirty record. The holder of
    /// the appender's lock changes it for all chains of a group at once.
    pub(crate) cuts: RwLock<levels::ReadCuts, Vec<Hlc>>,
    pub(crate) closed: AtomicU64,
    pub(crate) observer: OnceLock<Arc<dyn PublishObserver>>,
    pub(crate) config_store: ConfigStore,
    pub(crate) lease: ServingLease,
    pub(crate) bounds: Bounds,
    pub(crate) pace: crate::supply::CatchUpPace,
    /// See [`DataPlane::catch_up_bytes`].
    pub(crate) supplied: AtomicU64,
    /// See [`DataPlane::expired_index`].
    pub(crate) expired_index: AtomicU64,
    pub(crate) views: crate::chain_view::ChainViews,
    /// Notified when a chain has more room.
    pub(crate) room: Condvar,
    pub(crate) room_lock: Mutex<levels::ChainRoom, ()>,
    pub(crate) peers: Arc<PeersCell>,
    /// Receiver of reports: the control plane.
    pub(crate) reports: OnceLock<Box<dyn Fn(ChainEvent) + Send + Sync>>,
    /// Called when a request waits for a flush.
    pub(crate) wake: Arc<dyn Fn() + Send + Sync>,
    /// Called in place of blocking on other members, when a single thread drives the whole cluster (simulator).
    pub(crate) idle: OnceLock<Idle>,
}

impl DataPlane {
    /// The data plane over a recovered device and its chains.
    pub fn new(
        device: Arc<Device>,
        clock: Arc<NodeClock>,
        mut chains: Vec<Replica>,
        (me, config_store): (NodeId, ConfigStore),
        peers: Arc<PeersCell>,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> DataPlane {
        let last = chains.iter().map(Replica::epoch).max().unwrap_or(FIRST_EPOCH);
        let epoch = ChainEpoch(last.0 + 1);
        let moment = Moment { mono: clock.reading().mono, hlc: clock.newest() };
        let expired_index = AtomicU64::new(clock.expired_index().0);
        let mut states = Vec::with_capacity(chains.len());
        for chain in &mut chains {
            let shared = me != FIRST_NODE || config_store.epoch(chain.chain()).is_some();
            if !shared {
                let alone = Configuration { epoch, members: vec![me], ..Configuration::default() };
                chain.step(moment, ReplicaInput::Configure(alone), &mut Vec::new());
            }
            states.push(DriverState::of(shared));
        }
        let any_shared = states.iter().any(|state| state.shared);
        let views = crate::chain_view::ChainViews::new(&chains, any_shared);
        let cuts = RwLock::new(chains.iter().map(Replica::now_cut).collect());
        let closed = chains.iter().map(|chain| chain.closed().0).min().unwrap_or(0);
        let appender = Mutex::new(Appender {
            chains,
            states,
            waiters: BTreeMap::new(),
            next_waiter: 1,
            barriers_asked: MonoTime(0),
            last_message: BTreeMap::new(),
            groups: BTreeMap::new(),
            requests: RequestTable::default(),
            next_group: 1,
            fills: Fills::default(),
        });
        let plane = DataPlane {
            device,
            clock,
            epoch,
            me,
            appender,
            fill_ended: Condvar::new(),
            cuts,
            closed: AtomicU64::new(closed),
            observer: OnceLock::new(),
            config_store,
            lease: ServingLease::new(any_shared),
            bounds: Bounds::default(),
            pace: crate::supply::CatchUpPace::default(),
            supplied: AtomicU64::new(0),
            expired_index,
            views,
            room: Condvar::new(),
            room_lock: Mutex::new(()),
            peers,
            reports: OnceLock::new(),
            wake,
            idle: OnceLock::new(),
        };
        {
            let appender = plane.lock_appender();
            plane.publish_cuts(&appender, (0..appender.chains.len()).map(|chain| ChainId(chain as u32)));
        }
        plane
    }

    /// Sets the receiver of chain reports. Once only.
    pub fn set_reports(&self, reports: Box<dyn Fn(ChainEvent) + Send + Sync>) {
        // Called once, at the start.
        let _ = self.reports.set(reports);
    }

    /// Sets the function that runs in place of blocking on other members. Once only.
    pub fn set_idle(&self, idle: Idle) {
        // Called once, at the start.
        let _ = self.idle.set(idle);
    }

    /// Sets `observer` as the observer of every write before it becomes visible.
    pub fn set_observer(&self, observer: Arc<dyn PublishObserver>) {
        // Called once, at the start.
        let _ = self.observer.set(observer);
    }

    /// The configuration in force.
    pub fn epoch(&self) -> ChainEpoch {
        self.epoch
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The lease.
    pub fn lease(&self) -> &ServingLease {
        &self.lease
    }
}
