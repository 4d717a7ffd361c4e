//! Faults: which kinds a seed has, how often, and the effect of each.

use std::collections::BTreeSet;

use frieze_base::NodeId;
use frieze_disk::CrashKind;
use frieze_metalog::{MemberChange, MemberInput};

use super::fault_plan::{MEMBERS_MAX, MetalogFault};
use super::world::{MetalogEvent, MetalogWorld};
use crate::violation::Verdict;

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
