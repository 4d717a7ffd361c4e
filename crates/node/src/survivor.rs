//! Recovery of a cluster from one server, if the majority is lost for good.
//!
//! Guarantees: a survey changes nothing. The recovery keeps everything that this server has, including entries that are
//! not known to be committed. Writes that a majority may have acknowledged beyond become a gap of every chain and of
//! the names, up to a stamp above all that is known of the lost servers. The cluster gets another identity, so messages
//! of the old members are refused. One durable write makes the recovery effective. ADR 0056 has the reasons.
//! Leaves to others: whether the other servers are really lost (an operator), and the start afterwards (as after a
//! restart of a cluster of one).

use std::path::Path;
use std::sync::Arc;

use frieze_base::{ChainEpoch, ChainId, ClusterId, Fault, LogIndex, NodeId, Reason};
use frieze_cluster::{ClusterRecovery, ClusterState, Decision, NodeDevice, NodeInfo, TargetRole};
use frieze_disk::{Disk, FileDisk, FileDiskSettings, MachineTime, TimeSource, ViewDisk};
use frieze_hlc::Hlc;
use frieze_metadata::{NameVersions, StoreCopy, SurvivorJournal, SurvivorStore, VersionStore, check_store};
use frieze_storage::{Identity, MetalogRole, Ticket};
use prost::Message;

use crate::offline;
use crate::parts::ServerParts;

/// How far the clock of a lost server may have been ahead of this machine's, in microseconds: as far as clocks of a
/// cluster may differ.
const AHEAD_US: u64 = 500_000;

/// The state of a cluster at one server.
#[derive(Clone, Debug)]
pub struct Left {
    /// The cluster.
    pub cluster: ClusterId,
    /// This server's number.
    pub node: NodeId,
    /// Its name; empty if it is not a server of the cluster any more.
    pub name: String,
    /// The other servers, as far as this one knows.
    pub others: Vec<Other>,
    /// Voters of the metalog.
    pub voters: Vec<NodeId>,
    /// Last entry of the metalog that is known to be committed, and its stamp: later entries of other servers are
    /// unknown here.
    pub known: (LogIndex, Hlc),
    /// Last entry that it has, and the newest stamp: entries beyond the known ones are kept.
    pub last: (LogIndex, Hlc),
    /// Every chain.
    pub chains: Vec<LeftChain>,
    /// The cluster that this one was recovered from, and when, if it was.
    pub went_on_from: Option<(ClusterId, Hlc)>,
    /// No stamp that this server gave or adopted lies above it.
    pub bound: Hlc,
    epoch: ChainEpoch,
    told: NodeInfo,
    store: SurvivorStore,
    /// What is left of a damaged directory was surveyed.
    is_damaged: bool,
}

/// Another server of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// Its number.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Its last address.
    pub address: String,
    /// Its state in the metalog: up, draining, offline.
    pub state: &'static str,
}

/// The state of a chain at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftChain {
    /// The chain.
    pub chain: ChainId,
    /// The replica of this server.
    pub copy: Copy,
    /// Number of the last record here.
    pub last: u64,
    /// Its stamp; ZERO without one.
    pub newest: Hlc,
    /// Every acknowledged record stamped up to this is here. Lost records were stamped later.
    pub whole: Hlc,
}

/// A server's replica of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// It was a full member, as far as it knows.
    Full,
    /// It was being brought up to date, or had been removed from the chain.
    Stale,
    /// Nothing.
    None,
}

impl Copy {
    /// The state in one word.
    pub fn word(self) -> &'static str {
        match self {
            Copy::Full => "full",
            Copy::Stale => "stale",
            Copy::None => "none",
        }
    }
}

/// A cluster recovered from one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WentOn {
    /// Its identity from now on.
    pub cluster: ClusterId,
    /// Start of the gap: up to this instant nothing is missing, provided there was a full replica.
    pub from: Hlc,
    /// Every stamp from now on lies above this.
    pub to: Hlc,
}

/// Reads the state in the data directory of a server that does not run. Nothing is changed.
///
/// # Errors
/// `InvalidArgument` if the server is the only one: nothing is lost with others. `Busy` if a server runs on it.
/// `NotFound` if it is no data directory. `Corrupt` if it cannot be served.
pub fn survey(dir: &Path) -> Result<Left, Fault> {
    let disk: Arc<dyn Disk> = Arc::new(ViewDisk::open(dir)?);
    check_store(&*disk, dir)?;
    let left = StoreCopy::of(dir)?.open(|store| Left::look(disk, store, Arc::new(MachineTime::new()), false));
    left.map_err(|fault| match fault.reason {
        Reason::Corrupt => {
            Fault::new(fault.reason, format!("{} ('frieze fsck' and 'frieze export' show what is left)", fault.message))
        }
        _ => fault,
    })
}

/// Recovers the cluster from the server of this data directory, which was surveyed before: makes it the only member of
/// the metalog and of every chain, under another identity. Durable on return.
///
/// # Errors
/// As [`survey`]; `InvalidArgument` if it is the only server of its cluster already; `Superseded` if the directory has
/// changed since the survey; the disk's: the directory is as before, or recovered already.
pub fn recover(dir: &Path, left: &Left) -> Result<WentOn, Fault> {
    if left.is_sole() {
        let words = "this server is the only one of its cluster, so that no majority is lost: start it with 'frieze \
            serve'; a copy of it is made another cluster with 'frieze cluster new-identity --dir DIR'";
        return Err(Fault::new(Reason::InvalidArgument, words));
    }
    go_on(dir, left)
}

fn go_on(dir: &Path, left: &Left) -> Result<WentOn, Fault> {
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::open(dir, FileDiskSettings::default())?);
    let now_us = MachineTime::new().reading().wall_us;
    let went_on = left.go_on(&disk, offline::new_cluster()?, now_us)?;
    offline::own_alike(dir)?;
    Ok(went_on)
}

/// Makes another cluster of a copied directory of a single server, or of the only one of its cluster: the copy gets
/// another identity and another secret; nothing is lost. Durable on return. Returns the identity.
///
/// # Errors
/// `InvalidArgument` for one of several members of a cluster, whose copy is recovered by [`recover`]; `NotFound`,
/// `Busy`; the disk's.
pub fn rename_copy(dir: &Path) -> Result<ClusterId, Fault> {
    let cluster = offline::new_cluster()?;
    if is_member(dir)? {
        let left = survey(dir)?;
        if left.is_sole() {
            return Ok(go_on(dir, &left)?.cluster);
        }
    }
    change(dir, |identity| match identity.standing() {
        MetalogRole::Alone => Ok(identity.renamed(cluster)),
        MetalogRole::Joining | MetalogRole::Member => Err(Fault::new(
            Reason::InvalidArgument,
            "this is the directory of a member of a cluster: a copy goes on as another cluster by 'frieze cluster \
             recover --copy --dir DIR'",
        )),
    })?;
    Ok(cluster)
}

/// Lets a server start on a directory that was moved: the original is used no more. Durable on return.
///
/// # Errors
/// `NotFound`, `Busy`; the disk's.
pub fn take_moved(dir: &Path) -> Result<(), Fault> {
    change(dir, |identity| Ok(Identity { place: String::new(), ..identity }))
}

fn is_member(dir: &Path) -> Result<bool, Fault> {
    let disk = ViewDisk::open(dir)?;
    offline::check_is_one(&disk, dir)?;
    Ok(Identity::load(&disk)?.is_some_and(|(identity, _)| identity.standing() == MetalogRole::Member))
}

fn change(dir: &Path, change: impl FnOnce(Identity) -> Result<Identity, Fault>) -> Result<(), Fault> {
    offline::check_is_one(&ViewDisk::open(dir)?, dir)?;
    let disk = FileDisk::open(dir, FileDiskSettings::default())?;
    let Some((identity, file)) = Identity::load(&disk)? else {
        return Err(Fault::new(Reason::NotFound, "the directory was made and never used: a server makes it its own"));
    };
    file.write(&change(identity)?.encode_to_vec())?;
    offline::own_alike(dir)
}

impl Left {
    /// As [`survey`], for any disk and store, both read-only or copies: it does with them what a start does.
    /// `serve_damaged`: survey what is left of them, if something is damaged.
    ///
    /// # Errors
    /// As [`survey`].
    pub fn look(
        disk: Arc<dyn Disk>,
        store: Box<dyn VersionStore>,
        time: Arc<dyn TimeSource>,
        serve_damaged: bool,
    ) -> Result<Left, Fault> {
        let Some((identity, _)) = Identity::load(&*disk)? else {
            return Err(Fault::new(Reason::NotFound, "the directory was made and never used: nothing is left in it"));
        };
        match identity.standing() {
            MetalogRole::Member => {}
            MetalogRole::Alone => {
                let words = "this server is alone, so that no majority is lost: start it with 'frieze serve'; a copy \
                    of it is made another cluster with 'frieze cluster new-identity --dir DIR'";
                return Err(Fault::new(Reason::InvalidArgument, words));
            }
            MetalogRole::Joining => {
                let words = "this server was joining and has nothing yet: go on from another one";
                return Err(Fault::new(Reason::InvalidArgument, words));
            }
        }
        let versions = NameVersions::open(store)?;
        let store = SurvivorStore::read(identity.node_id(), &versions)?;
        let journal = SurvivorJournal::read(&disk, &identity, &store, serve_damaged)?;
        let parts = offline::open(disk, versions.into_store(), time, serve_damaged)?;
        let chains = (parts.planes.data.ends(), parts.planes.data.lost_intervals());
        let mut left = None;
        parts.planes.meta.look_at_control(&mut |state| {
            left = Some(Left::of(state, &identity, &journal, (&parts, &store), &chains));
        });
        let left = left.expect("it is looked at once")?;
        Ok(Left { is_damaged: serve_damaged, ..left })
    }

    fn of(
        state: &ClusterState,
        identity: &Identity,
        journal: &SurvivorJournal,
        (parts, store): (&ServerParts, &SurvivorStore),
        (ends, power): &(Vec<frieze_replication::ChainEnd>, Vec<(ChainId, Hlc, Hlc)>),
    ) -> Result<Left, Fault> {
        if !state.is_founded() {
            let words = "this server has nothing of its cluster yet: go on from another one";
            return Err(Fault::new(Reason::InvalidArgument, words));
        }
        let me = identity.node_id();
        let known = (journal.known(), journal.known_stamp());
        let chain = |end: &frieze_replication::ChainEnd| {
            let target = state.chain(end.chain).and_then(|chain| chain.target(me));
            let (copy, whole) = match target {
                None => (Copy::None, Hlc::ZERO),
                // A later entry than those it knows decided a configuration without it.
                Some(target) if target.role == TargetRole::Serving => (Copy::Full, known.1),
                Some(target) if target.left > 0 => (Copy::Stale, known.1.min(end.newest).min(Hlc(target.left))),
                Some(_) => (Copy::Stale, known.1.min(end.newest)),
            };
            let took = power.iter().filter(|(chain, _, _)| *chain == end.chain).map(|(_, from, _)| *from).min();
            let whole = took.map_or(whole, |from| whole.min(from));
            LeftChain { chain: end.chain, copy, last: end.n, newest: end.newest, whole }
        };
        let chains: Vec<LeftChain> = ends.iter().map(chain).collect();
        let configured = state.chains().map(|chain| chain.epoch).max();
        let taken = ends.iter().map(|end| end.epoch.max(end.taken)).max();
        let newest = chains.iter().map(|chain| chain.newest).max().unwrap_or_default();
        let bound = Hlc(identity.clock_bound).max(newest).max(journal.newest());
        let node = state.node(me).ok();
        let other = |node: &frieze_cluster::ClusterNode| Other {
            node: node.id,
            name: node.info.name.clone(),
            address: node.info.address.clone(),
            state: match (node.is_dead, node.is_offline, node.is_draining) {
                (true, ..) => "dead",
                (_, true, _) => "offline",
                (_, _, true) => "draining",
                _ => "up",
            },
        };
        Ok(Left {
            cluster: state.cluster(),
            node: me,
            name: node.map(|node| node.info.name.clone()).unwrap_or_default(),
            others: state.others(me).map(other).collect(),
            voters: journal.members().voters.clone(),
            known,
            last: (journal.last(), journal.newest()),
            chains,
            went_on_from: state.formers().last().map(|former| (former.cluster, Hlc(former.at))),
            bound,
            epoch: ChainEpoch(configured.max(taken).unwrap_or_default().0 + 1),
            told: last_reported_info(node, identity, parts),
            store: store.clone(),
            is_damaged: false,
        })
    }

    /// True if there is no other voter and no other member of any chain: no majority can be lost.
    pub fn is_sole(&self) -> bool {
        self.voters == [self.node] && self.others.is_empty()
    }

    /// Entries that are kept and not known to be committed.
    pub fn kept(&self) -> u64 {
        self.last.0.0 - self.known.0.0
    }

    /// Recovers, under this identity. `now_us`: the wall clock.
    ///
    /// # Errors
    /// As [`recover`].
    pub fn go_on(&self, disk: &Arc<dyn Disk>, cluster: ClusterId, now_us: u64) -> Result<WentOn, Fault> {
        let Some((identity, file)) = Identity::load(&**disk)? else {
            return Err(Fault::new(Reason::NotFound, "the directory was made and never used: nothing is left in it"));
        };
        let journal = SurvivorJournal::read(disk, &identity, &self.store, self.is_damaged)?;
        if identity.cluster_id() != self.cluster || journal.last() != self.last.0 {
            let words = "the data directory has changed since it was looked at: run the command again";
            return Err(Fault::new(Reason::Superseded, words));
        }
        // Above every known stamp, and above what the clocks of the other servers can have been.
        let to = Hlc::last_of_micros(now_us.saturating_add(AHEAD_US).max(self.bound.micros() + 1));
        let decision = Decision::Recover(ClusterRecovery {
            cluster,
            node: self.node,
            info: self.told.clone(),
            epoch: self.epoch,
            // No other server can have acknowledged a record that a sole member lacks.
            whole: self.chains.iter().map(|chain| if self.is_sole() { to.0 } else { chain.whole.0 }).collect(),
        });
        journal.go_on(to, &decision)?;
        // If a crash comes before this, the next start repairs it: the log holds the new identity.
        let mut changed = Identity { clock_bound: identity.clock_bound.max(to.0), ..identity };
        if self.is_damaged {
            // What was on stable storage is lost and said: the next start does not miss it.
            changed.set_durable(Ticket::default());
        }
        file.write(&changed.renamed(cluster).encode_to_vec())?;
        let full = self.chains.iter().filter(|chain| chain.copy == Copy::Full);
        let from = full.map(|chain| chain.whole).min().unwrap_or_default();
        Ok(WentOn { cluster, from, to })
    }
}

/// The node info that the server last reported; for a server that is none of the cluster any more, what is known of it.
fn last_reported_info(
    node: Option<&frieze_cluster::ClusterNode>,
    identity: &Identity,
    parts: &ServerParts,
) -> NodeInfo {
    let incarnation = identity.incarnation;
    match node {
        Some(node) => NodeInfo { incarnation: incarnation.max(node.incarnation()), ..node.info.clone() },
        None => NodeInfo {
            name: format!("node{}", identity.node),
            site: String::new(),
            machine: String::new(),
            // Until the server is started.
            address: "localhost:0".to_owned(),
            token: identity.cluster_id().0 ^ u128::from(identity.node),
            incarnation,
            devices: vec![NodeDevice {
                device: 0,
                capacity_bytes: parts.planes.data.device().space().map_or(1, |space| space.capacity_bytes.max(1)),
                has_failed: false,
                is_full: false,
            }],
        },
    }
}
