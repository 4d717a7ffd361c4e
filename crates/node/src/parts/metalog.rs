//! The server as a member of the metalog: how it becomes one, what its threads do for it, its status.

use std::sync::atomic::Ordering;
use std::time::Duration;

use frieze_base::{ClusterId, Fault, LogIndex, NodeId, Reason};
use frieze_disk::StateFile;
use frieze_hlc::{Hlc, format_instant};
use frieze_metadata::MetalogStatus;
use frieze_metalog::MemberChange;
use frieze_planes::Settings;
use frieze_storage::{FORMAT_VERSION, Identity, MetalogRole, STATE_FILE};
use prost::Message;

use super::{Seams, ServerParts};

/// What a server that joins a cluster receives from it.
pub struct Joining {
    /// The cluster.
    pub cluster: ClusterId,
    /// The id of the new node: one that no node ever had.
    pub node: NodeId,
    /// The secret of the cluster's capabilities and nodes.
    pub secret: [u8; 32],
    /// Number of chains that chunks are spread over.
    pub chain_count: u32,
    /// The present nodes and their addresses, as `id@host:port`.
    pub known: Vec<String>,
}

impl ServerParts {
    /// Opens an empty directory as that of another node: it has no state, and waits for the state, until a leader adds
    /// it. If an earlier call made it so, it continues.
    ///
    /// # Errors
    /// `InvalidArgument` if the directory belongs to another node, or to a single server; as [`ServerParts::open`].
    pub fn join(settings: Settings, seams: Seams, joining: &Joining) -> Result<ServerParts, Fault> {
        match Identity::load(&*seams.disk)? {
            None => {
                settings.validate()?;
                let mut identity = Identity {
                    format_version: FORMAT_VERSION,
                    cluster: joining.cluster.0.to_be_bytes().to_vec(),
                    node: joining.node.0,
                    capability_key: joining.secret.to_vec(),
                    clean: true,
                    segment_bytes: settings.segment_bytes,
                    chain_count: joining.chain_count,
                    standing: MetalogRole::Joining as i32,
                    has_joined: true,
                    ..Identity::default()
                };
                identity.set_known_first(&joining.known);
                StateFile::open_or_create(&*seams.disk, STATE_FILE)?.write(&identity.encode_to_vec())?;
                seams.disk.sync_dir()?;
            }
            Some((identity, _)) => {
                let same = identity.cluster_id() == joining.cluster && identity.node_id() == joining.node;
                if !same || identity.standing() == MetalogRole::Alone {
                    let words =
                        "the data directory is not that of this node: use an empty one, or start without joining";
                    return Err(Fault::new(Reason::InvalidArgument, words));
                }
            }
        }
        ServerParts::open(settings, seams)
    }

    /// Turns a single server into the first member of a metalog to which others can be added. Requests wait meanwhile.
    /// False if it is a member already: nothing is done.
    ///
    /// # Errors
    /// The disk's: it is alone as before, or changes nothing until it is restarted.
    pub fn found_metalog(&self) -> Result<bool, Fault> {
        let founded = self.planes.durability.found(&self.planes.data, &self.planes.meta)?;
        if founded {
            // From now on other servers may answer writes to files.
            self.service.sessions.caching.take_back();
            // No other server has led meanwhile: sessions keep their locks and leases here.
            self.service.reigns.store(self.planes.meta.leader_terms(), Ordering::Release);
        }
        Ok(founded)
    }

    /// Adds a node to the members of the metalog, as the leader: it receives the state and the log, and does not vote
    /// yet. Returns when a majority has logged that.
    ///
    /// # Errors
    /// `Elsewhere`, `Unavailable`: ask the leader. `Busy`: another change is under way. `InvalidArgument`: it is a
    /// member.
    pub fn add_member(&self, node: NodeId) -> Result<(), Fault> {
        self.planes.meta.change_members(MemberChange::Add(node))
    }

    /// Lets a member of the metalog vote that has caught up, as the leader.
    ///
    /// # Errors
    /// As [`ServerParts::add_member`]. `Busy` also if it has not caught up yet; `InvalidArgument`: it votes, is no
    /// member, or there are as many voters as allowed.
    pub fn promote_member(&self, node: NodeId) -> Result<(), Fault> {
        self.planes.meta.change_members(MemberChange::Promote(node))
    }

    /// Removes a node from the members of the metalog, for ever.
    ///
    /// # Errors
    /// As [`ServerParts::add_member`]. A leader that is removed itself transfers leadership and answers `Elsewhere`:
    /// ask the next leader.
    pub fn remove_member(&self, node: NodeId) -> Result<(), Fault> {
        self.planes.meta.change_members(MemberChange::Remove(node))
    }

    /// Transfers leadership to another member, if this server leads. It has not happened yet when this returns.
    ///
    /// # Errors
    /// `Elsewhere`: another leads. `InvalidArgument`: the other does not vote.
    pub fn hand_over(&self, to: NodeId) -> Result<(), Fault> {
        self.planes.meta.transfer_leadership(to)
    }

    /// Transfers leadership to the member of the metalog that could lead soonest, if this server leads and there is
    /// one. Never waits.
    pub fn step_aside(&self) {
        self.planes.meta.resign();
    }

    /// Ends the waits of requests for other servers, since this one stops. To be called when no flush and no message of
    /// this server follows any more.
    pub fn end_waits(&self) {
        self.planes.meta.stop_waits();
    }

    /// Proposes decisions about nodes and chains to the log; they may be dropped: only the leader of the metalog can
    /// decide, in its term. Never waits.
    pub fn decide(&self, term: u64, decisions: &[frieze_cluster::Decision]) {
        self.planes.meta.decide(term, decisions);
    }

    /// Reads the log's decisions about nodes and chains.
    pub fn look_at_control(&self, look: &mut dyn FnMut(&frieze_cluster::ClusterState)) {
        self.planes.meta.look_at_control(look);
    }

    /// What decisions have changed since the last call. After a start, and after a state was received, everything may
    /// have changed.
    pub fn take_control_news(&self) -> Vec<frieze_cluster::ClusterChange> {
        self.planes.meta.take_control_changes()
    }

    /// How often this server has begun to lead the metalog, if it leads it now.
    pub fn reign(&self) -> Option<u64> {
        Some(self.planes.meta.leader_terms()).filter(|reigns| *reigns > 0 && self.planes.meta.leads())
    }

    /// Advances time for the metalog. To be called again after the returned duration; `None`: the server is alone and
    /// needs no timer.
    pub fn beat(&self) -> Option<Duration> {
        self.planes.meta.tick()
    }

    /// Waits until the journal of the metalog is to be flushed, `timeout` at most, and flushes it. To be called again
    /// and again, on a thread of its own.
    ///
    /// # Errors
    /// The disk's: the server continues read-only, and another leads.
    pub fn journal(&self, timeout: Duration) -> Result<(), Fault> {
        if self.planes.meta.await_journal(timeout) {
            self.planes.durability.flush_journal(&self.planes.clock, &self.planes.data, &self.planes.meta)?;
        }
        Ok(())
    }

    /// Ends the wait of [`ServerParts::journal`].
    pub fn stop_journal(&self) {
        self.planes.meta.wake_journal();
    }

    /// True if this server orders changes: it is alone, or leads and has everything that was committed before.
    pub fn leads(&self) -> bool {
        self.planes.meta.leads()
    }

    /// The leader of the metalog; `None` if this server is alone, or does not know.
    pub fn leader(&self) -> Option<NodeId> {
        self.planes.meta.leader()
    }

    /// Status of this server in the metalog; `None` if it is alone.
    pub fn metalog(&self) -> Option<MetalogStatus> {
        self.planes.meta.status()
    }

    /// Waits until this server knows of everything that any client learned before the call.
    ///
    /// # Errors
    /// `Elsewhere`, `Unavailable`: no majority answers, or the server is no member any more.
    pub fn linearizable(&self) -> Result<(), Fault> {
        self.planes.meta.linearizable()
    }

    /// The last entry executed here, and a number that is the same on every server that has executed the same.
    ///
    /// # Errors
    /// The store's.
    pub fn digest(&self) -> Result<(LogIndex, u64), Fault> {
        self.planes.meta.digest()
    }

    /// Sets what runs in place of a sleep during waits for other servers: where one thread runs several servers.
    pub fn while_waiting(&self, idle: Box<dyn Fn() + Send + Sync>) {
        // Called once, at the start.
        let _ = self.planes.meta.idle().set(idle);
    }

    /// Refuses a client that expects the former cluster of this server, from before it continued alone, and says what
    /// happened.
    ///
    /// # Errors
    /// `WrongCluster`.
    pub(crate) fn check_former(&self, expected: &str) -> Result<(), Fault> {
        let Ok(expected) = expected.parse::<ClusterId>() else { return Ok(()) };
        let mut ended = None;
        self.planes
            .meta
            .look_at_control(&mut |state| ended = state.former(expected).map(|former| (former, state.cluster())));
        let Some((former, now)) = ended else { return Ok(()) };
        let at = format_instant(Hlc(former.at));
        let words = format!(
            "cluster {expected} has ended: its majority was lost for good, and an operator went on from server {} at \
             {at}, as cluster {now}; a server of before cannot come back with its data ('frieze export DIR' reads \
             them): let it join anew with an empty directory; a client or mount connects anew",
            former.node
        );
        Err(Fault::new(Reason::WrongCluster, words))
    }
}
