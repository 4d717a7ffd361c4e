//! The two planes of a server, names and bytes, and what every request needs of both: the clock, what is durable, which
//! instants are closed.
//!
//! Guarantees: an instant is answered only when it is closed in both planes; the answer says whether it was closed
//! before the request and whether acknowledged writes may be missing. Leaves to others: files as they are seen
//! ([`crate::Files`]), what a caller may ask (`frieze_service`).

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use frieze_base::{ChainId, ClusterId, ErrorKind, Fault, InodeId, LogIndex, MonoTime, NodeId, Reason};
use frieze_hlc::{Hlc, format_instant};
use frieze_metadata::Metadata;
use frieze_namespace::{Inode, NamesMemory, NoReadSet, ReadSet, Resolved};
use frieze_net::PeersCell;
use frieze_replication::{ChainEnd, ClosedRecord, DataPlane};
use frieze_storage::{Identity, IdentityStore, NodeClock, Ticket};
use frieze_wire::message::{InstantInfo, MemoryUse, Now, NowReply, ReplicaStatus, View};
use frieze_wire::txn::Target;

use crate::change_watch::ChangeWatch;
use crate::durability::{Durability, DurableReply};
use crate::gc_state::GcState;
use crate::kept_bytes::BoundedTrees;
use crate::peer_rpc::PeerRpc;
use crate::principal::Principal;
use crate::settings::Settings;

/// Names and bytes of one server.
pub struct Planes {
    /// What the operator has set.
    pub settings: Settings,
    /// Stamps.
    pub clock: Arc<NodeClock>,
    /// The record of the data directory: its identity, bounds and gaps.
    pub keeper: Arc<IdentityStore>,
    /// Bytes: chains over the device log.
    pub data: DataPlane,
    /// The closed instants of an earlier start.
    pub remembered: Arc<ClosedRecord>,
    /// Names.
    pub meta: Metadata,
    /// The flusher.
    pub durability: Durability,
    /// Connections to the other servers.
    pub peers: Arc<PeersCell>,
    /// Requests to other servers, and requests from them.
    pub peer_rpc: Arc<PeerRpc>,
    /// Records that expired, and the space of them.
    pub gc: GcState,
    /// Bytes that are stored of trees with a quota of them.
    pub kept: BoundedTrees,
    /// Clients that wait for changes.
    pub changes: Arc<ChangeWatch>,
    /// The user that the server runs as.
    pub owner_uid: u32,
    /// See [`Planes::earliest`].
    pub earliest: OnceLock<Hlc>,
}

impl Planes {
    /// The cluster of this directory.
    pub fn cluster(&self) -> ClusterId {
        self.keeper.with(Identity::cluster_id)
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.keeper.with(Identity::node_id)
    }

    /// The newest stamp: goes into the header of every answer.
    pub fn newest(&self) -> Hlc {
        self.clock.newest()
    }

    /// What has to be durable for everything so far to be durable.
    pub fn ticket(&self) -> Ticket {
        Ticket { meta: self.meta.appended(), data: self.data.device().log().end() }
    }

    /// An inode as it is now.
    ///
    /// # Errors
    /// `StaleHandle` if it is deleted.
    pub fn current(&self, id: InodeId) -> Result<Inode, Fault> {
        self.meta.open_inode(id)
    }

    /// Makes everything appended so far durable, if there is anything.
    ///
    /// # Errors
    /// The disk's: the server continues read-only.
    pub fn flush(&self) -> Result<(), Fault> {
        // Closed timestamps keep up with the clock, so that `stable` does not lag behind on a busy server.
        let now = self.clock.newest();
        // In a cluster each closed timestamp is an entry of the log: only while there are writes.
        let writing = !self.meta.is_member() || self.data.device().dirty_bytes() > 0;
        // A change of names closes its own stamp for names, and nothing for bytes.
        if writing && now > self.meta.closed().min(self.data.closed()) && self.meta.promise(now) {
            // For the chains whose head is here; the other members follow theirs.
            self.data.promise(now)?;
        }
        self.durability.flush(&self.clock, &self.data, &self.meta)?;
        Ok(())
    }

    /// For how long nothing has to be flushed, if the last flush began at `since` and no request waits for one.
    pub fn flush_wait(&self, since: MonoTime) -> Duration {
        let passed = Duration::from_nanos(frieze_net::mono().since_ns(since));
        self.settings.flush_delay.saturating_sub(passed)
    }

    /// True if a flush is to begin now; requests that are durable by what other servers flushed are answered.
    pub fn wants_flush(&self, since: MonoTime) -> bool {
        self.reply_durable();
        self.durability.is_wanted() || self.flush_wait(since).is_zero()
    }

    /// Answers the requests that waited for other members of the metalog, and have what they waited for.
    pub fn reply_durable(&self) {
        self.durability.reply_durable(&self.meta);
    }

    /// Memory of packed names and inodes, and its limit; nothing else.
    pub fn names_use(&self) -> MemoryUse {
        let (names, names_bytes_max) = self.meta.names_memory();
        let NamesMemory { bytes: names_bytes, cold_bytes: names_cold_bytes, loads: names_loads } = names;
        MemoryUse { names_bytes_max, names_bytes, names_cold_bytes, names_loads, ..MemoryUse::default() }
    }

    /// Writes a checkpoint of the names, if one is due. To be called about twice a second, on a thread that may take
    /// long. `pause` sleeps for the given time and returns whether to continue; other threads flush meanwhile.
    ///
    /// # Errors
    /// As [`Metadata::checkpoint`], after a pause: the checkpoints before stay, and the next call tries again.
    pub fn checkpoint(&self, pause: &dyn Fn(Duration) -> bool) -> Result<(), Fault> {
        // After a failed flush nothing comes into tables any more.
        if self.durability.failure().is_some() || !self.meta.is_checkpoint_due() {
            return Ok(());
        }
        match self.meta.checkpoint(&mut || pause(TABLES_LOOK_EVERY)) {
            // A server that stops writes one then, if that is worth it.
            Err(_) if !pause(Duration::ZERO) => Ok(()),
            Err(fault) => {
                pause(CHECKPOINT_RETRY_AFTER);
                Err(fault)
            }
            Ok(_) => Ok(()),
        }
    }

    /// True if something waits to be flushed.
    pub fn is_dirty(&self) -> bool {
        let dirty = self.durability.is_dirty(&self.data, &self.meta);
        self.durability.dirty_age_ns(self.clock.reading().mono, dirty);
        dirty
    }

    /// Checks that the server accepts changes.
    ///
    /// # Errors
    /// That of the flush that failed: restart the server once the device is well.
    pub fn check_changeable(&self) -> Result<(), Fault> {
        match self.durability.failure() {
            Some(fault) => Err(Fault::new(
                fault.reason,
                format!("the server is read-only since a flush failed; restart it once the device is well: {fault}"),
            )),
            None => Ok(()),
        }
    }

    /// Back-pressure: a writer that is faster than the disk waits for the running flush, or flushes itself.
    pub fn hold_back(&self) -> Result<(), Fault> {
        let age_max_ns = self.settings.dirty_age_max.as_nanos() as u64;
        if self.data.device().dirty_bytes() > self.settings.dirty_bytes_max
            || self.durability.flushing_ns(|| self.clock.reading().mono) > age_max_ns
        {
            self.flush()?;
        }
        Ok(())
    }

    /// In a cluster instants close even without writes or requests: every server can then read the past, whatever is
    /// lost afterwards. The leader closes the names, a head its chains; each second costs a small entry of the log and
    /// a message to each member.
    ///
    /// # Errors
    /// The disk's: the clock's bound cannot be made durable.
    pub fn close_when_idle(&self) -> Result<(), Fault> {
        if !self.meta.is_member() {
            return Ok(());
        }
        let now = self.clock.now();
        let is_behind = |closed: Hlc| closed.micros() + IDLE_CLOSE_US <= now.micros();
        if self.meta.leads() && is_behind(self.meta.closed()) {
            self.meta.promise(now);
        }
        match self.data.promise_if(now, is_behind) {
            // A clock that is not trusted closes nothing; another server does.
            Err(fault) if matches!(fault.kind(), ErrorKind::Unavailable | ErrorKind::Conflict) => Ok(()),
            promised => promised,
        }
    }

    /// Before a sync of all files of a lone server: closes now in both planes. `reply` is then called after the
    /// directory notes, if the sync succeeds, that both logs are on stable storage with all that is stamped up to now:
    /// after a loss of power the gap begins behind it. If now cannot be closed, because a write with `sync` is under
    /// way, or if that cannot be noted, the gap begins earlier, and nothing is lost by it. For a sync of one file,
    /// `id`, and on a server of a cluster, where other servers may have what is missing, `reply` is as it was.
    ///
    /// # Cost
    /// One durable write of 4 KiB.
    pub fn keep_frontier_after(self: &Arc<Planes>, id: InodeId, reply: DurableReply) -> DurableReply {
        let Some(at) = Some(id).filter(|id| *id == InodeId(0)).and_then(|_| self.close_alone()) else { return reply };
        let keeper = self.keeper.clone();
        Box::new(move |result| {
            if result.is_ok() && keeper.with(|identity| identity.frontier < at.0) {
                let _earlier = keeper.update(|identity| identity.frontier = identity.frontier.max(at.0));
            }
            reply(result);
        })
    }

    /// Closes now in both planes of a lone server: what is stamped up to the returned instant is in the logs.
    fn close_alone(&self) -> Option<Hlc> {
        let now = self.clock.now();
        let is_closed = self.meta.close_alone(now) && self.data.close_of(now, None).is_ok();
        is_closed.then_some(now)
    }

    /// Stores the closed timestamps for the next start, if there are any that it needs.
    pub fn keep_closed(&self, look: impl FnOnce() -> Vec<u64>) -> Result<(), Fault> {
        match self.remembered.keep(look) {
            // On a full disk an older record serves as well.
            Err(fault) if fault.reason == Reason::NoSpace => Ok(()),
            kept => kept,
        }
    }

    /// Checks that a view can be answered, and closes its instant.
    pub fn answer(&self, view: View) -> Result<InstantInfo, Fault> {
        self.answer_about(view, None)
    }

    /// As `answer`, for these chains; for all if none are named.
    pub fn answer_about(&self, view: View, chains: Option<&BTreeSet<ChainId>>) -> Result<InstantInfo, Fault> {
        let Some(at) = view.instant() else { return Ok(InstantInfo::default()) };
        if at < self.earliest() {
            return Err(Fault::new(
                Reason::HistoryExpired,
                format!(
                    "{} lies before the earliest instant of this file system, {} ({})",
                    format_instant(at),
                    format_instant(self.earliest()),
                    self.earliest()
                ),
            ));
        }
        let meta = self.meta.close(at)?;
        let data = self.close_chains(at, chains)?;
        self.check_expiries_executed()?;
        Ok(InstantInfo {
            at: at.0,
            precision_us: self.clock.precision_us(),
            was_stable: meta && data,
            incomplete: self.in_gap(at, chains),
            user_time_open: false,
            // Without a lease this server does not know the gaps declared since.
            without_lease: self.data.check_lease().is_err(),
            executed: self.meta.closed().max(self.meta.executed()).0,
        })
    }

    /// Refuses the past while the names here are behind the expiries by which records here have died: what those refuse
    /// would be shown with holes.
    ///
    /// # Errors
    /// `Unavailable`: ask again, or another server.
    pub fn check_expiries_executed(&self) -> Result<(), Fault> {
        self.check_executed(self.data.expired_index())
    }

    /// Checks that this server has executed an entry of the metalog by which records may have died.
    pub(crate) fn check_executed(&self, needed: LogIndex) -> Result<(), Fault> {
        let executed = self.meta.appended();
        if executed >= needed {
            return Ok(());
        }
        let words = format!(
            "the names here are behind what has expired of the bytes (entry {executed} of {needed}): ask again in a \
             moment, or another server"
        );
        Err(Fault::new(Reason::Unavailable, words))
    }

    /// Closes chains at an instant, all if none are named. True if they were closed before.
    ///
    /// # Errors
    /// As [`DataPlane::close_of`]; the disk's.
    ///
    /// [`DataPlane::close_of`]: frieze_replication::DataPlane::close_of
    pub fn close_chains(&self, at: Hlc, chains: Option<&BTreeSet<ChainId>>) -> Result<bool, Fault> {
        match self.data.close_of(at, chains) {
            Err(fault) if fault.reason == Reason::NotYetClosed => {
                // Writes with `sync` up to the instant are on their way to disk: flush them.
                self.durability.flush(&self.clock, &self.data, &self.meta)?;
                self.data.close_of(at, chains)?;
                Ok(false)
            }
            other => other,
        }
    }

    /// Inode that a target led to at an instant.
    pub fn resolve_at(&self, principal: &Principal, target: &Target, at: Hlc) -> Result<Resolved, Fault> {
        self.resolve(principal, target, Some(at), &NoReadSet)
    }

    /// Inode that a target leads to; `reads` records the entries that the answer depends on.
    pub fn resolve(
        &self,
        principal: &Principal,
        target: &Target,
        at: Option<Hlc>,
        reads: &dyn ReadSet,
    ) -> Result<Resolved, Fault> {
        if target.path.len() > frieze_base::PATH_BYTES_MAX {
            return Err(Fault::new(
                Reason::NameTooLong,
                format!("path of {} bytes; at most {} are allowed", target.path.len(), frieze_base::PATH_BYTES_MAX),
            ));
        }
        let found = self.meta.resolve(target, at, &principal.caller, reads)?;
        if let Some(at) = at {
            match &target.path[..] {
                b"" => self.check_exact(found.id, at)?,
                path => self.check_exact_called(found.id, at, path)?,
            }
        }
        Ok(found)
    }

    /// An inode at an instant (`None`: now).
    ///
    /// # Errors
    /// `HistoryExpired`; those of the store.
    pub fn inode_at(&self, id: InodeId, at: Option<Hlc>) -> Result<Inode, Fault> {
        let inode = self.meta.kept_inode(id, at)?;
        at.map_or(Ok(()), |at| self.check_exact(id, at))?;
        Ok(inode)
    }

    /// Checks that the caller had these rights at an instant (`None`: now), and has them now.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub fn check(&self, principal: &Principal, id: InodeId, at: Option<Hlc>, mask: u32) -> Result<(), Fault> {
        self.meta.check_access(id, at, &principal.caller, mask)
    }

    /// An instant by its name: now, the last whole one, or a snapshot; or the nearest that policies keep.
    ///
    /// # Errors
    /// `NotFound`: no snapshot has that name. `HistoryExpired`: none so old is kept.
    pub fn now(&self, ask: &Now) -> Result<NowReply, Fault> {
        let without_lease = self.data.check_lease().is_err();
        let at = match ask.name.as_str() {
            _ if ask.nearest != 0 => self.meta.newest_kept(Hlc(ask.nearest))?,
            "" => self.clock.now(),
            "last-whole" => {
                match self.last_whole() {
                    // No loss is known: every byte is there up to now, or up to the newest instant that can be read.
                    Hlc::ZERO if without_lease => self.stable(),
                    Hlc::ZERO => self.clock.now(),
                    whole => whole,
                }
            }
            name => {
                let snapshot = self.meta.snapshot(name).ok_or_else(|| {
                    Fault::new(
                        Reason::NotFound,
                        format!(
                            "{name:?} is neither an instant nor the name of a snapshot: see `frieze snapshot list`"
                        ),
                    )
                })?;
                snapshot.at
            }
        };
        Ok(NowReply {
            at: at.0,
            precision_us: self.clock.precision_us(),
            earliest: self.earliest().0,
            stable: self.stable().0,
            without_lease,
        })
    }

    /// The newest instant that is closed here, for names and for the chains that this server is a member of, if any.
    pub fn stable(&self) -> Hlc {
        let chains = (0..self.data.chain_count()).map(ChainId);
        match chains.into_iter().any(|chain| self.data.is_readable_here(chain)) {
            true => self.data.closed().min(self.meta.closed()),
            false => self.meta.closed(),
        }
    }

    /// Stamp of the file system's first transaction: nothing is older. ZERO before there is one.
    pub fn earliest(&self) -> Hlc {
        if let Some(earliest) = self.earliest.get() {
            return *earliest;
        }
        let born = self.meta.birth_stamp(InodeId::ROOT);
        born.map_or(Hlc::ZERO, |born| *self.earliest.get_or_init(|| born))
    }

    /// True for a user that may read every file without the server: such a user may see every finding.
    pub fn is_administrator(&self, principal: &Principal) -> bool {
        principal.caller.uid == 0 || principal.caller.uid == self.owner_uid
    }

    /// True if the caller may see the command line of this user's sessions: it may hold secrets of the user.
    pub fn may_know_command(&self, principal: &Principal, uid: u32) -> bool {
        principal.caller.uid == uid || self.is_administrator(principal)
    }

    /// True if an answer for an instant has to be computed again: this server left chains while it was computed.
    pub fn has_lost_chains_since(&self, went: u64) -> bool {
        self.data.detach_count() != went
    }

    /// Status of the chains that the cluster made this node a member of.
    pub fn chains(&self) -> Vec<ReplicaStatus> {
        self.data.status()
    }

    /// Where the log of each chain ends here: for the choice among members that have all restarted, and for the
    /// founding of a cluster, whose first configurations are above these.
    pub fn chain_ends(&self) -> Vec<ChainEnd> {
        self.data.ends()
    }
}

/// Looks at whether the tables of the store of names are complete up to a checkpoint.
const TABLES_LOOK_EVERY: Duration = Duration::from_millis(50);
/// Pause after a checkpoint that failed: it may have written all names for nothing.
const CHECKPOINT_RETRY_AFTER: Duration = Duration::from_secs(30);
/// How far behind the clock, in microseconds, the closed instants may be before an idle server closes newer ones.
const IDLE_CLOSE_US: u64 = 900_000;

/// The error of a read at an instant during which this server left one of the chains.
pub fn went_meanwhile() -> Fault {
    let words = "other servers have some of what this one had while it looked: try again";
    Fault::new(Reason::Unavailable, words)
}
