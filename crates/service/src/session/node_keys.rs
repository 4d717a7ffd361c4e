//! Keys by which the servers of a cluster prove themselves to each other.

use frieze_base::ClusterId;
use frieze_net::Key;
use frieze_storage::secret_after;

/// The keys with which the nodes of a cluster prove themselves to each other.
pub struct NodeKeys {
    secret: [u8; 32],
    /// Key for the sender's proof of identity.
    teller: Key,
    /// Key for the receiver's proof of identity.
    told: Key,
}

impl NodeKeys {
    /// The keys of the cluster with this secret, which every node of it holds.
    pub fn of(secret: [u8; 32]) -> NodeKeys {
        let named = |name| Key::new(name, secret).expect("the name is legal and the secret long enough");
        NodeKeys { secret, teller: named("node"), told: named("server") }
    }

    /// The keys of the cluster after each of `clusters` succeeded the one before, one after the other.
    pub fn after(&self, clusters: impl Iterator<Item = ClusterId>) -> NodeKeys {
        NodeKeys::of(clusters.fold(self.secret, |secret, cluster| secret_after(&secret, cluster)))
    }

    /// The sender's proof.
    pub fn prove_sender(&self, challenge: &[u8], nonce: &[u8]) -> Vec<u8> {
        self.teller.prove(challenge, nonce).to_vec()
    }

    /// True if `proof` is the sender's.
    pub(crate) fn is_sender(&self, challenge: &[u8], nonce: &[u8], proof: &[u8]) -> bool {
        self.teller.verify(challenge, nonce, proof)
    }

    /// The receiver's proof, which it sends before the sender has proven itself: it reveals nothing of the sender's
    /// proof.
    pub fn prove_receiver(&self, challenge: &[u8], nonce: &[u8]) -> Vec<u8> {
        self.told.prove(nonce, challenge).to_vec()
    }

    /// True if `proof` is the receiver's.
    pub fn is_receiver(&self, challenge: &[u8], nonce: &[u8], proof: &[u8]) -> bool {
        self.told.verify(nonce, challenge, proof)
    }
}
