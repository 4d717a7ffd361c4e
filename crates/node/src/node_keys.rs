//! Keys by which the servers of a cluster prove themselves to each other.

use frieze_base::ClusterId;
use frieze_net::Key;
use frieze_storage::secret_after;

/// What proves the nodes of a cluster to each other.
pub(crate) struct NodeKeys {
    secret: [u8; 32],
    /// By which who tells proves itself.
    teller: Key,
    /// By which who is told proves itself.
    told: Key,
}

impl NodeKeys {
    /// The keys of the cluster with this secret, which every node of it holds.
    pub(crate) fn of(secret: [u8; 32]) -> NodeKeys {
        let named = |name| Key::new(name, secret).expect("the name is legal and the secret long enough");
        NodeKeys { secret, teller: named("node"), told: named("server") }
    }

    /// The keys of the cluster after it went on as each of `clusters`, one after the other.
    pub(crate) fn after(&self, clusters: impl Iterator<Item = ClusterId>) -> NodeKeys {
        NodeKeys::of(clusters.fold(self.secret, |secret, cluster| secret_after(&secret, cluster)))
    }

    /// What who tells sends.
    pub(crate) fn prove_teller(&self, challenge: &[u8], nonce: &[u8]) -> Vec<u8> {
        self.teller.prove(challenge, nonce).to_vec()
    }

    /// True if that was it.
    pub(crate) fn is_teller(&self, challenge: &[u8], nonce: &[u8], proof: &[u8]) -> bool {
        self.teller.verify(challenge, nonce, proof)
    }

    /// What who is told sends, before the other has proven itself: it says nothing of the other proof.
    pub(crate) fn prove_told(&self, challenge: &[u8], nonce: &[u8]) -> Vec<u8> {
        self.told.prove(nonce, challenge).to_vec()
    }

    /// True if that was it.
    pub(crate) fn is_told(&self, challenge: &[u8], nonce: &[u8], proof: &[u8]) -> bool {
        self.told.verify(nonce, challenge, proof)
    }
}
