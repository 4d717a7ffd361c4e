//! The faults of a seed: which kinds, and how often.

use frieze_base::Rng;

/// The faults of a run. Each seed has some of the kinds.
#[derive(Clone, Debug)]
pub(super) struct MetalogFaults {
    /// One message in so many is lost; 0: none.
    loss: u64,
    double: u64,
    slow: u64,
    pub(super) kinds: Vec<MetalogFault>,
    skew: bool,
    snapshots: bool,
    /// Flushes take longer than an election, now and then.
    stalls: bool,
    /// Microseconds between two.
    pub(super) pause_us: u64,
    /// A member sometimes loses power just after its vote.
    blink_voters: bool,
    /// How many there were.
    pub(super) count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetalogFault {
    Split,
    OneWay,
    Alone,
    Kill,
    Blink,
    PowerOff,
    AllPowerOff,
    DiskStops,
    SyncFails,
    Pause,
    Add,
    Remove,
    Demote,
    Transfer,
    Contest,
    HangUp,
}

const KINDS: [MetalogFault; 16] = [
    MetalogFault::Split,
    MetalogFault::OneWay,
    MetalogFault::Alone,
    MetalogFault::Kill,
    MetalogFault::Blink,
    MetalogFault::PowerOff,
    MetalogFault::AllPowerOff,
    MetalogFault::DiskStops,
    MetalogFault::SyncFails,
    MetalogFault::Pause,
    MetalogFault::Add,
    MetalogFault::Remove,
    MetalogFault::Demote,
    MetalogFault::Transfer,
    MetalogFault::Contest,
    MetalogFault::HangUp,
];

/// Members, at most: two more than may vote.
pub(super) const MEMBERS_MAX: usize = 7;

impl MetalogFaults {
    /// Those of a seed.
    pub(super) fn draw(rng: &mut Rng) -> MetalogFaults {
        let mut often = |rates: &[u64]| if rng.chance(2) { *rng.choose(rates) } else { 0 };
        let (loss, double, slow) = (often(&[5, 20, 100]), often(&[5, 20, 100]), often(&[5, 20, 100]));
        let kinds: Vec<MetalogFault> = KINDS.into_iter().filter(|_| rng.chance(2)).collect();
        let calm = MetalogFaults { loss, double, skew: false, snapshots: false, ..MetalogFaults::none() };
        match rng.below(6) {
            // One election after the other, with restarts in the midst of them.
            0 => {
                let kinds = vec![
                    MetalogFault::Contest,
                    MetalogFault::Contest,
                    MetalogFault::Contest,
                    MetalogFault::Alone,
                    MetalogFault::OneWay,
                ];
                return MetalogFaults { kinds, slow: 4, pause_us: 150_000, blink_voters: true, ..calm };
            }
            // Members come and go, and get states instead of logs.
            1 => {
                let kinds = vec![
                    MetalogFault::Add,
                    MetalogFault::Add,
                    MetalogFault::Remove,
                    MetalogFault::Demote,
                    MetalogFault::Transfer,
                    MetalogFault::Alone,
                    MetalogFault::Split,
                    MetalogFault::PowerOff,
                ];
                return MetalogFaults {
                    kinds,
                    slow,
                    pause_us: 120_000,
                    snapshots: true,
                    stalls: rng.chance(2),
                    ..calm
                };
            }
            // Members lose their memory, one, some or all of them, while flushes are slow.
            2 => {
                let mut kinds = vec![
                    MetalogFault::PowerOff,
                    MetalogFault::PowerOff,
                    MetalogFault::Blink,
                    MetalogFault::Blink,
                    MetalogFault::AllPowerOff,
                    MetalogFault::Alone,
                    MetalogFault::Split,
                ];
                if rng.chance(2) {
                    kinds.extend([MetalogFault::Add, MetalogFault::Demote, MetalogFault::Transfer]);
                }
                return MetalogFaults { kinds, slow, pause_us: 150_000, stalls: true, ..calm };
            }
            _ => {}
        }
        MetalogFaults {
            loss,
            double,
            slow,
            kinds,
            skew: rng.chance(2),
            snapshots: rng.chance(2),
            stalls: rng.chance(3),
            pause_us: *rng.choose(&[100_000, 300_000, 800_000]),
            blink_voters: false,
            count: 0,
        }
    }

    /// A network and machines that work.
    pub(super) fn none() -> MetalogFaults {
        MetalogFaults {
            loss: 0,
            double: 0,
            slow: 0,
            kinds: Vec::new(),
            skew: false,
            snapshots: false,
            stalls: false,
            pause_us: 1_000_000,
            blink_voters: false,
            count: 0,
        }
    }

    /// When copies of a message arrive.
    pub(super) fn ways(&self, rng: &mut Rng, quiet: bool) -> Vec<u64> {
        let once = |rng: &mut Rng| rng.between(100, 1_500);
        if quiet {
            return vec![once(rng)];
        }
        let hits = |rng: &mut Rng, rate: u64| rate > 0 && rng.chance(rate);
        if hits(rng, self.loss) {
            return Vec::new();
        }
        let mut first = once(rng);
        if hits(rng, self.slow) {
            first += if rng.chance(2) { rng.below(5_000) } else { rng.below(600_000) };
        }
        let mut ways = vec![first];
        if hits(rng, self.double) {
            ways.push(rng.below(900_000));
        }
        ways
    }

    /// True if the member loses power just after its vote.
    pub(super) fn blinks(&self, rng: &mut Rng, quiet: bool) -> bool {
        self.blink_voters && !quiet && rng.chance(2)
    }

    pub(super) fn flush_us(&self, rng: &mut Rng, quiet: bool) -> u64 {
        if self.stalls && !quiet && rng.chance(12) {
            return rng.between(100_000, 900_000);
        }
        if rng.chance(20) { rng.between(3_000, 60_000) } else { rng.between(50, 2_000) }
    }

    /// How many entries a store keeps in the log, and when it is durable again.
    pub(super) fn store(&self, rng: &mut Rng) -> (u64, u64) {
        let kept = if self.snapshots { rng.below(12) } else { 10_000 };
        (kept, rng.between(60_000, 600_000))
    }

    pub(super) fn skew_us(&self, rng: &mut Rng) -> i64 {
        if self.skew { rng.below(800_000) as i64 - 400_000 } else { 0 }
    }
}
