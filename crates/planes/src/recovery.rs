//! Opening the planes: recovery of a data directory, or a new one; clock first, then the logs, then the metadata.
//!
//! Guarantees: no stamp of an earlier life is given again; records that depend on lost metadata are cut off; what a
//! crash of the machine may have lost is a gap, and listed. Leaves to others: sessions (`frieze_service`), the start of
//! a cluster (`frieze_node`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use frieze_base::{ChunkId, Fault, InodeId, SegmentId, SessionId};
use frieze_disk::{Disk, StateFile, TimeSource};
use frieze_hlc::{ClockSettings, Hlc, HlcClock, format_instant};
use frieze_metadata::{Metadata, MetadataHost, NameVersions, RecoverUpto, VersionStore};
use frieze_metalog::{DataEnd, MemberSettings};
use frieze_multilog::{LogSettings, RecoveredItem};
use frieze_net::PeersCell;
use frieze_replication::{self as data, ClosedRecord, ConfigStore, DataPlane};
use frieze_storage::{
    Budget, Device, FORMAT_VERSION, Identity, IdentityStore, ImageBudget, NodeClock, RecoveryLimits, STATE_FILE, Ticket,
};

use crate::durability::Durability;
use crate::gc_state::GcState;
use crate::kept_bytes::BoundedTrees;
use crate::open_requests::OpenRequests;
use crate::peer_rpc::PeerRpc;
use crate::planes::Planes;
use crate::settings::Settings;

/// Where the planes live, and what they need of the process.
pub struct PlaneHost<'a> {
    /// Where logs and identity live.
    pub disk: Arc<dyn Disk>,
    /// The machine's clocks.
    pub time: Arc<dyn TimeSource>,
    /// Where the namespace's history lives.
    pub store: Box<dyn VersionStore>,
    /// Names the boot of the machine: while it is the same, the page cache has survived.
    pub boot: &'a str,
    /// 64 fresh random bytes: identity and keys of a new directory, seeds of segments and of the metalog.
    pub entropy: &'a [u8; 64],
    /// Wakes the flusher.
    pub wake: Arc<dyn Fn() + Send + Sync>,
    /// The user that the server runs as.
    pub owner_uid: u32,
}

impl Planes {
    /// Opens a data directory, or makes it if it is new, and recovers it after a crash. Returns the planes, and notes
    /// of recovery in words. The settings are valid and have memory divided.
    ///
    /// # Errors
    /// `WrongVersion`, `Corrupt`, `NoSpace`, and the disk's, each with what to do.
    pub fn open(settings: Settings, host: PlaneHost<'_>) -> Result<(Planes, Vec<String>), Fault> {
        let PlaneHost { disk, time, store, boot, entropy, wake, owner_uid } = host;
        let (identity, file, fresh) = match Identity::load(&*disk)? {
            Some((identity, file)) => (identity, file, false),
            None => {
                let file = StateFile::open_or_create(&*disk, STATE_FILE)?;
                (new_identity(&settings, entropy), file, true)
            }
        };
        let log_settings = LogSettings {
            segment_bytes: identity.segment_bytes,
            seed: u64::from_le_bytes(entropy[48..56].try_into().expect("eight bytes")),
            ..LogSettings::default()
        };
        let keeper = Arc::new(IdentityStore::new(identity.clone(), file));
        let went_down = !fresh && !identity.clean && identity.boot != boot;
        let clock_bound = Hlc(identity.clock_bound);
        let roles = ConfigStore::load(disk.clone())?;
        let way = Arc::new(PeersCell::default());
        let wanted = Arc::new(AtomicBool::new(false));
        let hurry: Arc<dyn Fn() + Send + Sync> = {
            let (wanted, wake) = (wanted.clone(), wake.clone());
            Arc::new(move || {
                wanted.store(true, Ordering::Release);
                wake();
            })
        };
        let mut recovery = Recovery {
            roles: &roles,
            settings: &settings,
            identity: &identity,
            keeper: &keeper,
            log_settings,
            went_down,
            clock_bound,
            way: way.clone(),
            seed: u64::from_le_bytes(entropy[56..64].try_into().expect("eight bytes")),
            wake: wake.clone(),
        };
        let mut logs = recovery.recover(&disk, &time, store, Hlc::MAX)?;
        if logs.meta.awaits_format() {
            // An interrupted first start: no client has seen a stamp, so there is none to wait for.
            recovery.clock_bound = Hlc::ZERO;
            logs = recovery.recover(&disk, &time, logs.meta.into_store(), Hlc::MAX)?;
        }
        let mut notes = std::mem::take(&mut logs.notes);
        let bound = logs.bound;
        // A damaged log of names is whole once it was salvaged.
        let mut lost_after = logs.meta.lost_after();
        if logs.first_orphan().is_some() {
            // The records cut off now were on stable storage: the next start must not report them as missing.
            keeper.update(|identity| identity.set_durable(Ticket::default()))?;
        }
        while let Some(orphan) = logs.first_orphan() {
            // Its grant was lost with the power, so the metadata has no trace of it: the records after it are cut off
            // with it.
            logs = recovery.recover(&disk, &time, logs.meta.into_store(), orphan.previous())?;
            notes.append(&mut logs.notes);
            lost_after = lost_after.or(logs.meta.lost_after());
        }
        let newest_whole = logs.newest_whole();
        let identity = named_by_the_log(&keeper, &logs.meta)?;
        let Logs { clock, device, chains, meta, .. } = logs;
        // If a chain of several members lacks records here, other members may have them: that is unknown until it runs
        // again.
        let shared = chains.iter().filter(|replica| roles.epoch(replica.chain()).is_some());
        let is_shared = !roles.is_empty() || identity.has_joined;
        if went_down {
            let frontier = Hlc(identity.frontier);
            let whole = |last: Hlc| if settings.serve_damaged { frontier } else { frontier.max(last) };
            let lost = shared.map(|replica| (replica.chain(), whole(replica.newest()).min(bound), bound));
            let lost: Vec<_> = lost.collect();
            if !lost.is_empty() {
                roles.record_lost(&lost)?;
            }
        }
        let data = DataPlane::new(device, clock.clone(), chains, (identity.node_id(), roles), way.clone(), hurry);
        data.set_idle(meta.idle().clone());
        data.limit_catch_up(settings.sync_bytes_per_s);
        let remembered = Arc::new(ClosedRecord::load(disk.clone())?);
        data.load_closed_record(&remembered);
        keeper.update(|identity| {
            if went_down {
                // The machine crashed with the server: unflushed records may be lost. Both logs are whole up to the
                // frontier. Each is whole up to its last record, too, unless damage is to be served.
                let frontier = Hlc(identity.frontier);
                let whole = if settings.serve_damaged { frontier } else { frontier.max(newest_whole) };
                identity.is_returning = true;
                let (from, to) = (format_instant(whole), format_instant(bound));
                if is_shared {
                    notes.push(format!(
                        "the machine went down: writes between {from} and {to} that were not synced here come again \
                         from other servers, if they have them"
                    ));
                } else {
                    identity.add_gap(whole.min(bound), bound);
                    identity.last_whole = whole.0;
                    notes.push(format!(
                        "the machine went down: writes between {from} and {to} that were not synced may be lost"
                    ));
                }
            }
            if let Some(after) = lost_after.filter(|_| !is_shared && went_down) {
                identity.last_whole = identity.last_whole.min(after.0);
            }
            if settings.serve_damaged {
                // By now the missing records are known.
                identity.set_durable(Ticket::default());
            }
            identity.clean = false;
            identity.incarnation += 1;
            boot.clone_into(&mut identity.boot);
            identity.clock_bound = bound.0;
        })?;
        meta.begin()?;
        let last_request = u64::from_le_bytes(entropy[32..40].try_into().expect("eight bytes"));
        let open = OpenRequests::new(last_request, clock.clone(), meta.idle().clone());
        let planes = Planes {
            settings,
            clock,
            keeper,
            data,
            remembered,
            meta,
            durability: Durability::new(wake, wanted),
            peers: way,
            peer_rpc: Arc::new(PeerRpc::new(open)),
            gc: GcState::default(),
            kept: BoundedTrees::default(),
            changes: Arc::default(),
            owner_uid,
            earliest: OnceLock::new(),
        };
        Ok((planes, notes))
    }
}

/// The inputs of recovery.
struct Recovery<'a> {
    roles: &'a ConfigStore,
    settings: &'a Settings,
    identity: &'a Identity,
    keeper: &'a Arc<IdentityStore>,
    log_settings: LogSettings,
    /// The machine crashed with the server: the ends of the logs may not fit together.
    went_down: bool,
    /// Upper bound of all stamps given so far.
    clock_bound: Hlc,
    /// Connections to the other nodes.
    way: Arc<PeersCell>,
    /// Seed for the randomness of a member of the metalog.
    seed: u64,
    /// Wakes the thread that flushes.
    wake: Arc<dyn Fn() + Send + Sync>,
}

/// Both logs as recovery found them.
struct Logs {
    clock: Arc<NodeClock>,
    device: Arc<Device>,
    chains: Vec<frieze_chain::Replica>,
    meta: Metadata,
    /// Upper bound of all stamps so far, inclusive.
    bound: Hlc,
    notes: Vec<String>,
    /// Stamp of the last record of the device log.
    newest_record: Hlc,
    /// Records that may be younger than the end of the metalog.
    tail: Vec<(Hlc, SessionId, ChunkId)>,
}

impl Recovery<'_> {
    /// Recovers both logs; the device log up to records stamped `upto`.
    fn recover(
        &self,
        disk: &Arc<dyn Disk>,
        time: &Arc<dyn TimeSource>,
        store: Box<dyn VersionStore>,
        upto: Hlc,
    ) -> Result<Logs, Fault> {
        let mut chains =
            data::new_chains(settings_chain_count(self.settings, self.identity), self.identity.node_id(), self.roles);
        let mut refused = None;
        let mut missing_records = 0;
        let mut tail = Vec::new();
        let log_settings = self.log_settings.clone();
        let Settings { reserve_bytes, index_bytes_max, shelve_segments, image_percent, image_pieces_max, .. } =
            *self.settings;
        let shares = self.settings.memory(0)?;
        let images = ImageBudget { pieces_max: image_pieces_max, percent: image_percent };
        let budget =
            Budget { reserve_bytes, index_bytes_max, shelve_segments: shelve_segments as usize, shares, images };
        let serve_damaged = self.settings.serve_damaged;
        let durable = self.identity.durable();
        let reach = RecoveryLimits { upto, durable: durable.data, footers_from: self.footers_from(), serve_damaged };
        let recovered =
            Device::recover(disk.clone(), log_settings, budget, &reach, &self.roles.discarded(), &mut |recovered| {
                let meta = match recovered {
                    RecoveredItem::Record(meta) => meta,
                    RecoveredItem::Indexed { chains: tips, companion, .. } => {
                        // Footers cover these records, and a footer is written once the metadata before it is durable:
                        // none of them depends on lost metadata.
                        refused = data::resume(&mut chains, tips, companion).err();
                        return;
                    }
                };
                // The other members have this record of their chain, whatever this node knows of the namespace by now.
                let is_own = self.roles.epoch(meta.chain).is_none();
                if self.went_down && is_own && meta.stamp > Hlc(self.identity.frontier) {
                    tail.push((meta.stamp, meta.session, meta.chunk));
                }
                if refused.is_none() {
                    match data::replay(&mut chains, meta) {
                        Ok(missing) => missing_records += missing,
                        Err(fault) => refused = Some(fault),
                    }
                }
            })?;
        if let Some(fault) = refused {
            return Err(fault);
        }
        let mut notes = recovered.notes;
        if missing_records > 0 {
            notes.push(format!("{missing_records} records are missing from the middle of the device log"));
        }
        let bound = self.clock_bound.max(recovered.newest);
        let offset_us = self.settings.max_clock_offset.as_micros() as u64;
        let clock_settings =
            ClockSettings { max_clock_offset_us: offset_us, error_us_max: offset_us, ..ClockSettings::default() };
        let clock = Arc::new(NodeClock::new(HlcClock::new(clock_settings, bound), time.clone(), self.keeper.clone()));
        let device = Arc::new(recovered.device);
        let host = MetadataHost {
            clock: clock.clone(),
            keeper: self.keeper.clone(),
            device: device.clone(),
            disk: disk.clone(),
            way: self.way.clone(),
            seed: self.seed,
            incarnation: self.identity.incarnation + 1,
            kept_memory: !self.went_down && !self.identity.is_returning,
            stamp_bound: self.clock_bound,
            wake: self.wake.clone(),
            lease: self.settings.lease,
            // If there is little room for one log there is little for the other.
            segment_bytes: MemberSettings::default().segment_bytes.min(self.log_settings.segment_bytes / 4),
        };
        let (meta, cuts) = Metadata::recover(
            host,
            NameVersions::open(store)?,
            &RecoverUpto {
                data_end: DataEnd { segment: recovered.end.segment, offset: recovered.end.offset },
                durable: durable.meta,
                // Cutting records off on purpose may cut off entries with them.
                is_cut: upto != Hlc::MAX,
                serve_damaged,
            },
        )?;
        notes.extend(cuts);
        let newest_record = recovered.newest;
        Ok(Logs { clock, device, chains, meta, bound, notes, newest_record, tail })
    }

    /// The first segment whose footer may have been written without being synced. A footer is synced by the flush after
    /// the one that wrote it, so it lies no further back than two flushes can reach.
    fn footers_from(&self) -> SegmentId {
        if self.identity.clean {
            return SegmentId(u64::MAX);
        }
        let flushed = 2 * self.settings.dirty_bytes_max / self.log_settings.segment_bytes + 2;
        SegmentId(self.identity.durable().data.segment.0.saturating_sub(flushed))
    }
}

impl Logs {
    /// Newest stamp up to which no record can be missing: a lost record is newer than every record that the log has.
    /// When the file system was made there was no other record.
    fn newest_whole(&self) -> Hlc {
        let made = self.meta.birth_stamp(InodeId::ROOT).unwrap_or(Hlc::ZERO);
        self.newest_record.min(self.meta.newest()).max(made)
    }

    /// Stamp of the first record that depends on lost metadata: the rest gives its session no right to write there.
    /// Records up to the newest grant that cannot be lost had their grants when they were written.
    fn first_orphan(&self) -> Option<Hlc> {
        let kept = self.meta.grants_kept_upto();
        let mut young = self.tail.iter().filter(|(stamp, _, _)| *stamp > kept);
        young.find(|(_, session, chunk)| !self.meta.has_grant(*session, *chunk)).map(|(stamp, _, _)| *stamp)
    }
}

/// The identity of the directory: the log of decisions has the cluster's name. A crash may fall between the decision to
/// continue from this server under another name and the writing of that name into the directory.
fn named_by_the_log(keeper: &IdentityStore, meta: &Metadata) -> Result<Identity, Fault> {
    let mut name = None;
    let before = keeper.with(Identity::cluster_id);
    meta.look_at_control(&mut |state| name = state.former(before).map(|_| state.cluster()));
    if let Some(cluster) = name {
        keeper.update(|identity| *identity = identity.clone().renamed(cluster))?;
    }
    Ok(keeper.with(Clone::clone))
}

fn new_identity(settings: &Settings, entropy: &[u8; 64]) -> Identity {
    Identity {
        format_version: FORMAT_VERSION,
        cluster: entropy[..16].to_vec(),
        node: 1,
        capability_key: entropy[16..48].to_vec(),
        clean: true,
        segment_bytes: settings.segment_bytes,
        chain_count: settings.chain_count,
        ..Identity::default()
    }
}

/// The number of chains was fixed when the directory was made.
fn settings_chain_count(settings: &Settings, identity: &Identity) -> u32 {
    if identity.chain_count == 0 { settings.chain_count } else { identity.chain_count }
}
