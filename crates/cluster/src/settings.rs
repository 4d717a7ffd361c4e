//! How patient the control plane is, and its limits.

/// [`Settings::clock_offset_us_max`] of every cluster: decisions rest on it, so it is no node's own.
pub(crate) const CLOCK_OFFSET_US_MAX: u64 = 500_000;

/// Times and limits. The same on every node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Length of a lease in nanoseconds. More: a lost node is missed for longer. Less: a short pause of a node or of the network
    /// costs it its chains.
    pub lease_ns: u64,
    /// Time between two heartbeats of a node in nanoseconds: several to a lease, so that one that is lost costs nothing.
    pub heartbeat_ns: u64,
    /// Least time between two heartbeats, in nanoseconds, however much there is to tell.
    pub hurried_ns: u64,
    /// How much the rates of two monotonic clocks may differ, in millionths. Of the leader's clock: it counts leases longer by
    /// this.
    pub rate_error_ppm: u64,
    /// Time in nanoseconds after which a node that is heard, but hears nothing, gets no lease any more.
    pub deaf_ns: u64,
    /// Time in nanoseconds until a question or a proposal without an answer is repeated.
    pub again_ns: u64,
    /// Time in nanoseconds that a chain whose full members all restarted, or are dead, waits for those that have not told what
    /// their logs hold.
    pub return_patience_ns: u64,
    /// Time in nanoseconds until a node that is offline is replaced in its chains.
    pub replace_after_ns: u64,
    /// Time in nanoseconds without progress after which who is syncing makes room for another who waits.
    pub sync_patience_ns: u64,
    /// Targets brought up to date at a time from or to one node. More: shorter, and slower for everybody else.
    pub syncs_per_node_max: usize,
    /// Targets on the move at a time while the cluster is balanced.
    pub moves_max: usize,
    /// Decisions in one proposal.
    pub decisions_max: usize,
    /// Requests of operators under way.
    pub asks_max: usize,
    /// Time in nanoseconds until such a request is answered that it was not decided in time.
    pub ask_ns: u64,
    /// How far a node's clock may be from those of the others, in microseconds.
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
            asks_max: 64,
            ask_ns: 10_000 * MS,
            clock_offset_us_max: CLOCK_OFFSET_US_MAX,
            back_off_ns_max: 10_000 * MS,
        }
    }
}

impl Settings {
    /// The same with leases of another length, and what follows from it.
    pub fn with_lease_ns(lease_ns: u64) -> Settings {
        Settings { lease_ns, heartbeat_ns: lease_ns / 5, deaf_ns: lease_ns, ..Settings::default() }
    }

    /// After so long, by the clock of whoever gave it, a lease has ended by that of who has it.
    pub fn lease_ended_ns(&self) -> u64 {
        // Parts of a millionth that are left out are made up for by one nanosecond.
        self.lease_ns + (self.lease_ns / 1_000_000 + 1) * self.rate_error_ppm + 1
    }
}
