//! How long a server waits for other servers. The heartbeats and leases of cores are not here: their models fix them.

use std::time::Duration;

/// Longest wait of one request of a client for other servers: a majority of the metalog, an instant to close, members
/// of a chain, servers that have a missing part. After it the request fails with `Unavailable`, and the client sends it
/// again. More: a server that stopped blocks its clients for longer. Less: a failover (a lease of 2 s and an election)
/// fails requests that a short wait would have served.
pub const PEER_WAIT_MAX: Duration = Duration::from_secs(5);

/// A connection between servers on which nothing arrives, or nothing can be sent, for so long is closed: the requests
/// that were open when the silence began have ended by then.
pub const PEER_SILENCE_MAX: Duration = PEER_WAIT_MAX;

/// Longest wait of an operator's request. The leader decides or refuses each one earlier, and says why
/// (`frieze_cluster::Settings::request_ns`); this limits the wait for a leader that does not.
pub const OPERATOR_WAIT_MAX: Duration = Duration::from_secs(15);
