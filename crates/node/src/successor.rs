//! A later identity of the cluster: one server recovered it alone, and this server belongs to the identity before.
//!
//! A server of the new identity refuses this one's connection and then proves it: the secret of the new identity is a
//! keyed hash of the old one ([`frieze_storage::secret_after`]), so a server with the old secret verifies a proof by
//! the new one, and a stranger at that address cannot give it.
//!
//! Guarantees: this server ends only if that was proven within [`PROVEN_FOR_NS`], if its own metalog has no entry
//! stamped above the recovery (a majority of the identity before was there afterwards, and one server that left it does
//! not end it), and if for [`LEADERLESS_NS`] it had no leader and received messages from less than a majority.
//! Otherwise it stays up, and reports that there are two clusters. Nothing is recorded in the directory: an operator
//! may start the server again. ADR 0056 has the reasons.
//! Leaves to others: ending the process (its owner).

use frieze_base::{ClusterId, Fault, MonoTime, NodeId, Reason};
use frieze_hlc::{Hlc, format_instant};
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_net::ServerAddr;
use frieze_service::NodeKeys;
use frieze_wire::message::{FormerCluster, HelloReply};

/// The later identity of the cluster, as a server of it has proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Successor {
    /// The identity that the server at `address` has now.
    pub(crate) cluster: ClusterId,
    /// Server that recovered the cluster.
    pub(crate) from: NodeId,
    /// Stamp of the recovery.
    pub(crate) at: Hlc,
    /// Address of the server that has proven it.
    pub(crate) address: String,
}

/// The proofs of a later identity.
#[derive(Default)]
pub(crate) struct Successors(Mutex<levels::SuccessorProof, Option<Proven>>);

/// A proof of a later identity.
#[derive(Clone)]
pub(crate) struct Proven {
    pub(crate) successor: Successor,
    /// First and last proof.
    pub(crate) since: MonoTime,
    pub(crate) last: MonoTime,
}

/// Facts by which a server decides whether it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Stamp of the recovery.
    pub(crate) at: Hlc,
    /// Stamp of the newest entry of its own metalog.
    pub(crate) newest: Hlc,
    /// Nanoseconds without a leader; `None` with one.
    pub(crate) leaderless_ns: Option<u64>,
    /// Nanoseconds since the first proof, and since the last.
    pub(crate) proven_ns: (u64, u64),
    /// Voters, and those of them that sent a message lately.
    pub(crate) voters: usize,
    pub(crate) heard: usize,
}

impl Standing {
    /// True if a majority of the identity before was there after the recovery.
    pub(crate) fn is_contested(&self) -> bool {
        self.newest > self.at || self.leaderless_ns.is_none() || self.heard > self.voters / 2
    }

    pub(crate) fn is_over(&self) -> bool {
        let (since_ns, last_ns) = self.proven_ns;
        let waited_ns = self.leaderless_ns.unwrap_or(0).min(since_ns);
        !self.is_contested() && last_ns < PROVEN_FOR_NS && waited_ns >= LEADERLESS_NS
    }
}

impl Successor {
    /// Verifies the greeting of the server at `address`, which answers `nonce`, for a server of `cluster` with `keys`.
    /// `None`: its cluster did not follow from `cluster`.
    ///
    /// # Errors
    /// `Unproven` if it claims to follow from `cluster` and does not hold the secret of that.
    pub(crate) fn of(
        reply: &HelloReply,
        nonce: &[u8],
        cluster: ClusterId,
        keys: &NodeKeys,
        address: &ServerAddr,
    ) -> Result<Option<Successor>, Fault> {
        let identity = |former: &FormerCluster| former.cluster.parse::<ClusterId>().ok();
        let Some(place) = reply.former.iter().position(|former| identity(former) == Some(cluster)) else {
            return Ok(None);
        };
        let malformed = || Fault::new(Reason::BadFrame, "malformed frame: the identity of a cluster is none");
        let now: ClusterId = reply.cluster.parse().map_err(|_| malformed())?;
        let later = reply.former[place + 1..].iter().map(|former| identity(former).ok_or_else(malformed));
        let mut path = later.collect::<Result<Vec<ClusterId>, Fault>>()?;
        path.push(now);
        if !keys.after(path.into_iter()).is_receiver(&reply.challenge, nonce, &reply.proof) {
            let words = format!("the server at {address} says that cluster {cluster} went on, and does not prove it");
            return Err(Fault::new(Reason::Unproven, words));
        }
        let FormerCluster { node, at, .. } = reply.former[place];
        Ok(Some(Successor { cluster: now, from: NodeId(node), at: Hlc(at), address: address.to_string() }))
    }

    /// Description for people.
    pub(crate) fn words(&self, cluster: ClusterId) -> String {
        let Successor { cluster: now, from, at, address } = self;
        let at = format_instant(*at);
        format!(
            "cluster {cluster} went on from server {from} alone at {at}, as cluster {now}: the server at {address} has \
             proven it"
        )
    }

    pub(crate) fn remedy(&self, directory: &std::path::Path) -> String {
        let (directory, address) = (directory.display(), &self.address);
        format!(
            "start this server on an empty directory with '--join {address}'; 'frieze export {directory}' reads the \
             files of the old cluster"
        )
    }
}

impl Successors {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Proven>> {
        self.0.lock()
    }
}

/// A proof counts for so long. A link to a server that refuses this one asks again each second.
pub(crate) const PROVEN_FOR_NS: u64 = 10_000_000_000;
/// A server ends after so long without a majority: many elections long, and long enough for servers that are started
/// together.
const LEADERLESS_NS: u64 = 15_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: ClusterId = ClusterId(7);
    const SECRET: [u8; 32] = [3; 32];
    const NONCE: [u8; 32] = [1; 32];
    const CHALLENGE: [u8; 32] = [2; 32];

    /// The answer of a server with the secret of `keys` and this history.
    fn answer(keys: &NodeKeys, former: &[ClusterId], cluster: ClusterId) -> HelloReply {
        let former = former.iter().map(|id| FormerCluster { cluster: id.to_string(), node: 3, at: 50 }).collect();
        HelloReply {
            cluster: cluster.to_string(),
            node: 3,
            challenge: CHALLENGE.to_vec(),
            proof: keys.prove_receiver(&CHALLENGE, &NONCE),
            former,
            ..HelloReply::default()
        }
    }

    fn read(reply: &HelloReply) -> Result<Option<ClusterId>, Reason> {
        let address = "db3:7470".parse().expect("an address");
        let read = Successor::of(reply, &NONCE, OLD, &NodeKeys::of(SECRET), &address);
        read.map(|found| found.map(|found| found.cluster)).map_err(|fault| fault.reason)
    }

    #[test]
    fn a_later_identity_is_proven_by_the_secret_that_follows_from_the_old_one() {
        let old = NodeKeys::of(SECRET);
        let (once, twice) = (ClusterId(8), ClusterId(9));
        let keys = old.after([once].into_iter());
        assert_eq!(read(&answer(&keys, &[OLD], once)), Ok(Some(once)));
        // Recovered twice, and another time before this cluster got its identity.
        let keys = old.after([once, twice].into_iter());
        assert_eq!(read(&answer(&keys, &[ClusterId(1), OLD, once], twice)), Ok(Some(twice)));
        assert_eq!(read(&answer(&keys, &[ClusterId(1)], twice)), Ok(None), "another cluster");
        // A stranger, and one that knows only the right history.
        let stranger = NodeKeys::of([9; 32]);
        assert_eq!(read(&answer(&stranger, &[OLD], once)), Err(Reason::Unproven));
        assert_eq!(read(&answer(&keys, &[OLD], twice)), Err(Reason::Unproven));
    }

    #[test]
    fn a_server_ends_only_where_no_majority_of_the_old_identity_is_or_was_afterwards() {
        let (long, over) = (LEADERLESS_NS, |standing: Standing| (standing.is_over(), standing.is_contested()));
        let lost = Standing {
            at: Hlc(50),
            newest: Hlc(40),
            leaderless_ns: Some(long),
            proven_ns: (long, 0),
            voters: 3,
            heard: 1,
        };
        assert_eq!(over(lost), (true, false));
        assert_eq!(over(Standing { leaderless_ns: Some(long - 1), ..lost }), (false, false), "others may be starting");
        assert_eq!(over(Standing { proven_ns: (long - 1, 0), ..lost }), (false, false));
        assert_eq!(
            over(Standing { proven_ns: (2 * long, PROVEN_FOR_NS), ..lost }),
            (false, false),
            "it was there once"
        );
        assert_eq!(over(Standing { newest: Hlc(51), ..lost }), (false, true), "a majority committed something since");
        assert_eq!(over(Standing { leaderless_ns: None, ..lost }), (false, true));
        assert_eq!(over(Standing { heard: 2, ..lost }), (false, true), "two of three are there and elect");
    }
}
