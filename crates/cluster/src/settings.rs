//! How patient the control plane is, and its limits.

/// [`Settings::clock_offset_us_max`] of every cluster: decisions rest on it, so it is no node's own.
pub(crate) const CLOCK_OFFSET_US_MAX: u64 = 500_000;

/// Times and limits. The same on every node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Length of a lease in nanoseconds. More: a lost node is missed for longer. Less: a short pause of a node or of
    /// the network costs it its chains.
    pub lease_ns: u64,
    /// Time between two heartbeats of a node in nanoseconds: several to a lease, so that one that is lost costs
    /// nothing.
    pub heartbeat_ns: u64,
    /// Least time between two heartbeats, in nanoseconds, however many reports are pending.
    pub hurried_ns: u64,
    /// How much the rates of two monotonic clocks may differ, in millionths. Of the leader's clock: it counts leases
    /// longer by this.
    pub rate_error_ppm: u64,
    /// Time in nanoseconds after which a node whose heartbeats arrive, but that receives no answers, gets no lease any
    /// more.
    pub deaf_ns: u64,
    /// Time in nanoseconds until a question or a proposal without an answer is repeated.
    pub again_ns: u64,
    /// Time in nanoseconds that a chain whose full members all restarted, or are dead, waits for members that have not
    /// reported their logs.
    pub return_patience_ns: u64,
    /// Time in nanoseconds until a node that is offline is replaced in its chains.
    pub replace_after_ns: u64,
    /// Time in nanoseconds without progress after which a syncing target makes room for a waiting one.
    pub sync_patience_ns: u64,
    /// Syncs at a time from or to one node. More: each chain is exposed for a shorter time, and other requests are
    /// slower.
    pub syncs_per_node_max: usize,
    /// Targets on the move at a time while the cluster is balanced.
    pub moves_max: usize,
    /// Decisions in one proposal.
    pub decisions_max: usize,
    /// Requests of operators under way.
    pub requests_max: usize,
    /// Time in nanoseconds until such a request is answered that it was not decided in time.
    pub request_ns: u64,
    /// The limit of a node's clock offset from the other nodes, in microseconds.
    pub clock_offset_us_max: u64,
    /// Longest time in nanoseconds between two tries of a node that was refused.
    pub back_off_ns_max: u64,
}

const MS: u64 = 1_000_000;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lease_ns: 2000 * MS,
            heartbeat_ns: 400 * MS,
            hurried_ns: 5 * MS,
            // Crystals differ by less than 200 ppm, kernels that slew a clock by up to 500: twice that, and room.
            rate_error_ppm: 5000,
            deaf_ns: 2000 * MS,
            again_ns: 1000 * MS,
            return_patience_ns: 30_000 * MS,
            replace_after_ns: 600_000 * MS,
            sync_patience_ns: 60_000 * MS,
            syncs_per_node_max: 4,
            moves_max: 8,
            decisions_max: 256,
            requests_max: 64,
            request_ns: 10_000 * MS,
            clock_offset_us_max: CLOCK_OFFSET_US_MAX,
            back_off_ns_max: 10_000 * MS,
        }
    }
}

impl Settings {
    /// The default settings with leases of another length, and the durations derived from it.
    pub fn with_lease_ns(lease_ns: u64) -> Settings {
        Settings { lease_ns, heartbeat_ns: lease_ns / 5, deaf_ns: lease_ns, ..Settings::default() }
    }

    /// After so long by the granter's clock, a lease has ended by the holder's clock.
    pub fn lease_ended_ns(&self) -> u64 {
        // Parts of a millionth that are left out are made up for by one nanosecond.
        self.lease_ns + (self.lease_ns / 1_000_000 + 1) * self.rate_error_ppm + 1
    }
}
