//! Faults: which kinds a seed has, how often, and the effect of each.

use std::collections::BTreeSet;

use frieze_base::{NodeId, Rng};
use frieze_disk::CrashKind;
use frieze_metalog::{MemberChange, MemberInput};

use super::world::{MetalogEvent, MetalogWorld};
use crate::violation::Verdict;

/// The faults of a run. Each seed has some of the kinds.
#[derive(Clone, Debug)]
pub(super) struct MetalogFaults {
    /// One message in so many is lost; 0: none.
    loss: u64,
    double: u64,
    slow: u64,
    kinds: Vec<MetalogFault>,
    skew: bool,
    snapshots: bool,
    /// Flushes take longer than an election, now and then.
    stalls: bool,
    /// Microseconds between two.
    pause_us: u64,
    /// A member sometimes loses power just after its vote.
    blink_voters: bool,
    /// How many there were.
    pub(super) count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetalogFault {
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

impl MetalogWorld {
    /// Something goes wrong, and the next time is set.
    pub(super) fn fault(&mut self) -> Verdict {
        if self.quiet {
            return Ok(());
        }
        let wait = self.rng.below(2 * self.faults.pause_us) + 1_000;
        self.after(wait, MetalogEvent::Fault);
        if self.faults.kinds.is_empty() {
            return Ok(());
        }
        let kind = *self.rng.choose(&self.faults.kinds);
        self.faults.count += 1;
        let ids: Vec<NodeId> = self.hosts.keys().copied().collect();
        let one = *self.rng.choose(&ids);
        // Leaders have more to lose.
        let one = if self.rng.chance(3) { self.leader().unwrap_or(one) } else { one };
        self.trace.numbers(&[one.0.into(), 82, kind as u64], || format!("{kind:?} of {one}"));
        match kind {
            MetalogFault::Split => {
                let side: BTreeSet<NodeId> = ids.iter().copied().filter(|_| self.rng.chance(2)).collect();
                self.cut(|from, to| side.contains(&from) != side.contains(&to));
            }
            MetalogFault::OneWay => {
                let out = self.rng.chance(2);
                self.cut(|from, to| if out { from == one } else { to == one });
            }
            MetalogFault::Alone => self.cut(|from, to| from == one || to == one),
            MetalogFault::Kill => self.down(one, CrashKind::Process, 1_500_000),
            // Back at once, in the middle of any event: often of an election.
            MetalogFault::Blink => ids.iter().for_each(|id| {
                if self.rng.chance(2) {
                    self.down(*id, CrashKind::Power, 2_000);
                }
            }),
            MetalogFault::PowerOff => self.down(one, CrashKind::Power, 1_500_000),
            MetalogFault::AllPowerOff => ids.iter().for_each(|id| self.down(*id, CrashKind::Power, 1_500_000)),
            MetalogFault::DiskStops => {
                let changes = self.rng.between(1, 6);
                if let Some(host) = self.hosts.get_mut(&one).filter(|host| host.member.is_some()) {
                    host.disk.fail_after(changes);
                }
            }
            MetalogFault::SyncFails => {
                if let Some(host) = self.hosts.get_mut(&one).filter(|host| host.member.is_some()) {
                    host.disk.fail_syncs(1);
                }
            }
            MetalogFault::Pause => {
                let until = self.now_us + self.rng.between(20_000, 1_200_000);
                self.paused.insert(one, until);
            }
            // It is there all the same.
            MetalogFault::HangUp => self.break_connections(one),
            MetalogFault::Contest => return self.contest(),
            MetalogFault::Add | MetalogFault::Remove | MetalogFault::Demote | MetalogFault::Transfer => {
                return self.change(kind, one);
            }
        }
        Ok(())
    }

    /// The leader steps aside for two at once: they stand in the same term.
    fn contest(&mut self) -> Verdict {
        let (Some(leader), Some(members)) = (self.leader(), self.members()) else { return Ok(()) };
        for to in members.voters.into_iter().filter(|voter| *voter != leader).take(2) {
            self.give(leader, MemberInput::Transfer { to })?;
        }
        Ok(())
    }

    fn change(&mut self, kind: MetalogFault, one: NodeId) -> Verdict {
        let (Some(leader), Some(members)) = (self.leader(), self.members()) else { return Ok(()) };
        let count = members.voters.len() + members.learners.len();
        let input = match kind {
            MetalogFault::Add if count < MEMBERS_MAX => {
                // One that waits already, or another.
                let waits = self.hosts.keys().copied().find(|id| !members.contains(*id) && self.is_new(*id));
                let id = match waits {
                    Some(id) => id,
                    None => self.add_host()?,
                };
                MemberInput::Change(MemberChange::Add(id))
            }
            MetalogFault::Remove if members.voters.len() > 3 => MemberInput::Change(MemberChange::Remove(one)),
            MetalogFault::Demote if members.voters.len() > 3 => MemberInput::Change(MemberChange::Demote(one)),
            MetalogFault::Transfer => MemberInput::Transfer { to: one },
            _ => return Ok(()),
        };
        self.give(leader, input)
    }

    /// It was never a member.
    fn is_new(&self, id: NodeId) -> bool {
        self.hosts.get(&id).and_then(|host| host.member.as_ref()).is_some_and(|member| member.last().0 == 0)
    }

    fn cut(&mut self, is_cut: impl Fn(NodeId, NodeId) -> bool) {
        let ids: Vec<NodeId> = self.hosts.keys().copied().collect();
        let pairs = ids.iter().flat_map(|from| ids.iter().map(move |to| (*from, *to)));
        let cut: BTreeSet<(NodeId, NodeId)> = pairs.filter(|(from, to)| from != to && is_cut(*from, *to)).collect();
        let number = self.faults.count;
        self.cuts.insert(number, cut);
        let wait = self.rng.between(50_000, 1_500_000);
        self.after(wait, MetalogEvent::Heal { cut: number });
    }

    /// Takes a machine down, if it is up, for a while.
    pub(super) fn down(&mut self, id: NodeId, kind: CrashKind, us_max: u64) {
        if self.hosts.get(&id).is_none_or(|host| host.member.is_none()) {
            return;
        }
        self.take_down(id, kind);
        let wait = self.rng.between(us_max / 8, us_max);
        self.after(wait, MetalogEvent::Restart { host: id });
    }
}
