//! Invariants of a metalog, under all faults of its members.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{LogIndex, NodeId};
use frieze_hlc::Hlc;
use frieze_metalog::{LogEntry, RaftMember};

use super::host::{Host, StateMark};
use super::state::{MemberState, PutId, decode, mix};
use crate::violation::{Rule, Verdict, broken};

/// The one order of entries, as executed first by any member, and the answers to clients.
#[derive(Default)]
pub(super) struct Judge {
    /// Entries after `origin`: term, stamp, and a digest of their content.
    canon: Vec<Canon>,
    /// The founders' first entry is left out.
    origin: u64,
    /// The state after each of them: digest and count.
    states: Vec<(u64, u64)>,
    /// The term of the member that executed each of them first: it was committed in it or before.
    terms: Vec<u64>,
    state: MemberState,
    leaders: BTreeMap<u64, NodeId>,
    /// The place of the newest answered request or read.
    on_response: u64,
    done: BTreeMap<PutId, u64>,
    /// Nothing may be stamped at or below it any more.
    closed: Hlc,
    /// Entries up to it were said to be durable to a client, or must never be undone and were executed.
    durable: u64,
    /// The entries themselves.
    entries: Vec<Option<LogEntry>>,
    /// Requests that a loss of power took, each from an entry that was on no stable storage.
    lost: BTreeSet<PutId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Canon {
    term: u64,
    stamp: Hlc,
    digest: u64,
}

impl Judge {
    pub(super) fn new(origin: LogIndex) -> Judge {
        Judge { origin: origin.0, ..Judge::default() }
    }

    /// Entries that are known to be committed.
    pub(super) fn last(&self) -> u64 {
        self.origin + self.canon.len() as u64
    }

    /// The newest index that any client received: a later request has to see it.
    pub(super) fn floor(&self) -> u64 {
        self.on_response
    }

    /// A member has executed entries.
    pub(super) fn executed(
        &mut self,
        host: &Host,
        (from, after): (LogIndex, StateMark),
        terms: &[Option<u64>],
        entries: &[LogEntry],
    ) -> Verdict {
        let mut entries_of_member = entries.iter().peekable();
        for (index, term) in (from.0 + 1..=after.applied.0).zip(terms) {
            let entry = entries_of_member.next_if(|entry| entry.index.0 == index);
            let found = Canon {
                term: entry.map(|entry| entry.term).or(*term).unwrap_or(0),
                stamp: entry.map_or(Hlc::ZERO, |entry| entry.stamp),
                digest: entry.map_or(0, |entry| entry.body.iter().fold(1, |sum, byte| mix(sum, (*byte).into()))),
            };
            if index > self.last() + 1 {
                return broken(
                    Rule::Prefix,
                    format!("member {} executes {index}, nobody has {}", host.id, self.last() + 1),
                );
            }
            if index == self.last() + 1 {
                if entry.is_some() && found.stamp <= self.closed {
                    return broken(
                        Rule::StampsRise,
                        format!("entry {index} is stamped {}, {} is closed", found.stamp, self.closed),
                    );
                }
                self.canon.push(found);
                self.entries.push(entry.cloned());
                if let Some(entry) = entry {
                    if entry.stamp <= self.state.stamp {
                        return broken(
                            Rule::StampsRise,
                            format!("entry {index} is stamped {} after {}", entry.stamp, self.state.stamp),
                        );
                    }
                    self.state.execute(entry, false);
                    if let Some(ask) = decode(&entry.body) {
                        self.done.entry(ask).or_insert(index);
                    }
                }
                self.states.push((self.state.digest, self.state.count));
                self.terms.push(host.member.as_ref().map_or(u64::MAX, RaftMember::term));
                continue;
            }
            let known = self.canon[(index - self.origin - 1) as usize];
            if known != found {
                return broken(
                    Rule::Durable,
                    format!("entry {index} was {known:?}, member {} executes {found:?}", host.id),
                );
            }
        }
        self.same_state(host, after)
    }

    /// The state of a member is the one that its place calls for.
    pub(super) fn same_state(&self, host: &Host, mark: StateMark) -> Verdict {
        let index = mark.applied.0;
        if index <= self.origin {
            return Ok(());
        }
        let Some((digest, count)) = self.states.get((index - self.origin - 1) as usize) else {
            return broken(Rule::Prefix, format!("member {} is at {index}, nobody was there", host.id));
        };
        if (mark.digest, mark.count) != (*digest, *count) {
            let what =
                format!("member {} holds {} requests at {index}, there are {count}, or others", host.id, mark.count);
            return broken(Rule::Once, what);
        }
        Ok(())
    }

    /// A member says that it leads.
    pub(super) fn leads(&mut self, host: &Host, term: u64) -> Verdict {
        let first = *self.leaders.entry(term).or_insert(host.id);
        if first != host.id {
            return broken(Rule::Whole, format!("members {first} and {} both lead in term {term}", host.id));
        }
        // It has everything committed in earlier terms. (Votes can come so late that other members are in later terms.)
        let before = self.terms.iter().rposition(|committed| *committed < term);
        let Some((index, canon)) = before.map(|at| (self.origin + 1 + at as u64, self.canon[at])) else {
            return Ok(());
        };
        let member = host.member.as_ref().expect("it leads");
        let entries_of_member = member.term_at(LogIndex(index));
        if index > member.base().index.0 && entries_of_member != Some(canon.term) {
            let what = format!(
                "member {} leads in term {term} without entry {index} of term {}: {entries_of_member:?}",
                host.id, canon.term
            );
            return broken(Rule::Durable, what);
        }
        Ok(())
    }

    /// A client receives the answer that its request is done.
    pub(super) fn answered(&mut self, ask: PutId) -> Verdict {
        let Some(index) = self.done.get(&ask) else {
            if self.lost.contains(&ask) {
                return Ok(());
            }
            return broken(Rule::Durable, format!("request {ask:?} is said to be done, and is nowhere"));
        };
        self.on_response = self.on_response.max(*index);
        Ok(())
    }

    /// Clients may rely on entries up to `index` from now on, whatever power is lost.
    pub(super) fn durable(&mut self, index: LogIndex) {
        self.durable = self.durable.max(index.0);
    }

    /// A new leader says that entries stamped above `after` may be lost. What it lacks is lost. Returns the last entry
    /// that is left.
    pub(super) fn lost(&mut self, host: &Host, after: Hlc) -> Verdict<u64> {
        let member = host.member.as_ref().expect("it leads");
        let base = member.base().index.0.max(self.origin);
        let has = |index: u64| {
            index <= base
                || member.term_at(LogIndex(index)) == Some(self.canon[(index - self.origin - 1) as usize].term)
        };
        let first = (self.origin + 1..=self.last()).find(|index| !has(*index)).unwrap_or(self.last() + 1);
        for index in first..=self.last() {
            let stamp = self.canon[(index - self.origin - 1) as usize].stamp;
            if index <= self.durable || (stamp > Hlc::ZERO && stamp <= after) {
                let what = format!(
                    "member {} leads without entry {index}, stamped {stamp}: up to {} all is durable, and the loss is \
                     said to begin after {after}",
                    host.id, self.durable
                );
                return broken(Rule::Durable, what);
            }
        }
        let left = (first - 1 - self.origin) as usize;
        for entry in self.entries.drain(left..).flatten() {
            self.lost.extend(decode(&entry.body));
        }
        self.canon.truncate(left);
        self.states.truncate(left);
        self.terms.truncate(left);
        self.done.retain(|_, index| *index < first);
        self.state = MemberState::default();
        for entry in self.entries.iter().flatten() {
            self.state.execute(entry, false);
        }
        self.lost.retain(|ask| !self.done.contains_key(ask));
        self.on_response = self.on_response.min(first - 1);
        Ok(first - 1)
    }

    /// A client receives a state; when it asked, everything up to `floor` had been answered.
    pub(super) fn shown(&mut self, index: LogIndex, floor: u64) -> Verdict {
        if index.0 < floor {
            return broken(
                Rule::Linearizable,
                format!("a read shows entry {index}, {floor} was told before it was asked"),
            );
        }
        self.on_response = self.on_response.max(index.0);
        Ok(())
    }

    /// An instant is closed: everything stamped up to it is committed.
    pub(super) fn closed(&mut self, at: Hlc) {
        self.closed = self.closed.max(at);
    }
}
