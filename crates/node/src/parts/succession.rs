//! The end of this server: it was removed from its cluster, or its cluster has a later identity.

use frieze_base::{Fault, Reason};
use frieze_cluster::{ClusterState, ClusterStatus, ClusterTrouble, ReachableVotes};
use frieze_wire::message::FormerCluster;
use tracing::{error, warn};

use super::ServerParts;
use crate::successor::{PROVEN_FOR_NS, Proven, Standing, Successor};

impl ServerParts {
    /// Handles the refusal of another server, which has proven to be one of the cluster: this server is none any more.
    pub(crate) fn removed(&self, fault: Fault) {
        let Some(call) = self.removal.begin(&fault) else { return };
        if let Err(failed) = self.planes.keeper.update(|identity| identity.is_removed = true) {
            warn!("that this server was removed could not be kept for its next start: {failed}");
        }
        error!("this server was removed from its cluster, and ends: {}", fault.message);
        call(fault);
    }

    /// The identities that the cluster had before, for a server of one of them.
    pub(crate) fn former_clusters(&self) -> Vec<FormerCluster> {
        let mut formers = Vec::new();
        let former = |former: &frieze_cluster::FormerIdentity| FormerCluster {
            cluster: former.cluster.to_string(),
            node: former.node.0,
            at: former.at,
        };
        self.planes
            .meta
            .look_at_control(&mut |state: &ClusterState| formers = state.formers().iter().map(former).collect());
        formers
    }

    /// Records the proof of a server that the cluster has a later identity.
    pub(crate) fn went_on(&self, successor: Successor) {
        let now = self.planes.clock.reading().mono;
        let is_new = {
            let mut proven = self.successors.lock();
            match &mut *proven {
                Some(known) if known.successor == successor && now.since_ns(known.last) < PROVEN_FOR_NS => {
                    known.last = now;
                    false
                }
                proven => {
                    *proven = Some(Proven { successor: successor.clone(), since: now, last: now });
                    true
                }
            }
        };
        if is_new {
            let trouble = self.trouble_of_successor().map(|(trouble, _)| trouble);
            trouble.inspect(|trouble| warn!("{}: {}", trouble.what, trouble.remedy));
        }
    }

    /// Ends this server if its cluster has ended; see the module.
    pub(crate) fn end_if_succeeded(&self) {
        let Some((successor, standing)) = self.successor() else { return };
        if !standing.is_over() {
            return;
        }
        let words = format!(
            "this server ends, for its cluster has ended: {}; {}",
            successor.words(self.planes.cluster()),
            successor.remedy(&self.planes.settings.dir)
        );
        let fault = Fault::new(Reason::WrongCluster, words);
        if let Some(call) = self.removal.begin(&fault) {
            error!("{}", fault.message);
            call(fault);
        }
    }

    /// Troubles of the cluster as this server knows it.
    pub(crate) fn troubles_of_cluster(&self, status: &ClusterStatus) -> Vec<ClusterTrouble> {
        match self.trouble_of_successor() {
            // An ended cluster has no other trouble worth a repair.
            Some((trouble, false)) => vec![trouble],
            Some((trouble, true)) => std::iter::once(trouble).chain(self.troubles_without_successor(status)).collect(),
            None => self.troubles_without_successor(status),
        }
    }

    fn troubles_without_successor(&self, status: &ClusterStatus) -> Vec<ClusterTrouble> {
        let mut troubles = status.troubles();
        troubles.extend(self.trouble_of_votes(status));
        troubles
    }

    /// The trouble of a later identity, and whether a majority of this one was there after the recovery.
    pub(crate) fn trouble_of_successor(&self) -> Option<(ClusterTrouble, bool)> {
        let (successor, standing) = self.successor()?;
        let words = successor.words(self.planes.cluster());
        Some(match standing.is_contested() {
            true => {
                let what = format!("two clusters go on from one: {words}; a majority of this one was there afterwards");
                let remedy = "decide which of the two is to stay, and stop every server of the other: what was written \
                    to one is not in the other";
                (ClusterTrouble::new(what, remedy), true)
            }
            false => (
                ClusterTrouble::new(
                    format!("the cluster has ended: {words}"),
                    successor.remedy(&self.planes.settings.dir),
                ),
                false,
            ),
        })
    }

    fn successor(&self) -> Option<(Successor, Standing)> {
        let Proven { successor, since, last } = self.successors.lock().clone()?;
        let now = self.planes.clock.reading().mono;
        if now.since_ns(last) >= PROVEN_FOR_NS {
            return None;
        }
        let ReachableVotes { reachable, voters, leaderless_ns } = self.votes();
        let standing = Standing {
            at: successor.at,
            newest: self.planes.meta.newest(),
            leaderless_ns,
            proven_ns: (now.since_ns(since), now.since_ns(last)),
            voters,
            heard: reachable,
        };
        Some((successor, standing))
    }
}
