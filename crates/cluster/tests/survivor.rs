//! A model of the way on from one survivor, before any of its code: members with logs, a chain of records,
//! acknowledgements, the loss of a majority, the survivor that goes on, and the lost ones that come back. Every rule of
//! [ADR 56](../../../docs/adr/0056-one-survivor.md) can be taken out, and each is found to be missing.
//!
//! What is promised: an answer at an instant that is not marked incomplete holds every acknowledged record up to then
//! and nothing else, and never changes; a record that a survivor has and a reader was answered from is not dropped;
//! nothing of the former cluster enters the recovered one.

use std::collections::BTreeSet;

use frieze_base::Rng;

/// How far clocks may be ahead, in units of the model.
const AHEAD: u64 = 10;

/// A rule of the way on; a model without one of them is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// What may be lost is a gap.
    NotesTheGap,
    /// The gap begins where the survivor knows what was committed, not where its log ends.
    GapFromTheKnown,
    /// Entries that are not known to be committed are kept.
    KeepsTheTail,
    /// The cluster has another identity.
    ChangesIdentity,
    /// The gap ends, and stamps go on, above what clocks that are ahead may have stamped.
    StampsAbove,
    /// A copy that is no full member vouches for no more than it has.
    StaleVouchesForItself,
}

const RULES: [Rule; 6] = [
    Rule::NotesTheGap,
    Rule::GapFromTheKnown,
    Rule::KeepsTheTail,
    Rule::ChangesIdentity,
    Rule::StampsAbove,
    Rule::StaleVouchesForItself,
];

type Set = BTreeSet<usize>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    stamp: u64,
    term: u64,
    /// The members of the chain from here on, head first; empty: no change.
    chain: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
struct Member {
    identity: u64,
    /// Whose majority commits.
    voters: Set,
    term: u64,
    log: Vec<Entry>,
    /// Entries that it knows to be committed.
    known: usize,
    /// Stamps of the chain's records here.
    records: BTreeSet<u64>,
    ahead: u64,
    newest: u64,
}

struct SurvivorModel {
    rng: Rng,
    members: Vec<Member>,
    alive: Set,
    time: u64,
    /// Acknowledged to clients of the cluster that goes on, and of it before.
    entries: BTreeSet<Entry>,
    records: BTreeSet<u64>,
    /// The leader of each term of each cluster.
    elected: BTreeSet<(u64, u64, usize)>,
    survivor: Option<usize>,
    gap: Option<(u64, u64)>,
    chain_gap: Option<(u64, u64)>,
}

impl Member {
    fn stamp(&mut self, time: u64) -> u64 {
        self.newest = (time + self.ahead).max(self.newest + 1);
        self.newest
    }

    fn last(&self) -> (u64, usize) {
        (self.log.last().map_or(0, |entry| entry.term), self.log.len())
    }

    fn chain(&self) -> Vec<usize> {
        let named = self.log[..self.known].iter().rev().find(|entry| !entry.chain.is_empty());
        named.map_or_else(|| self.voters.iter().copied().collect(), |entry| entry.chain.clone())
    }
}

impl SurvivorModel {
    fn new(seed: u64) -> SurvivorModel {
        let mut rng = Rng::new(seed);
        let count = if rng.below(2) == 0 { 3 } else { 5 };
        let voters: Set = (0..count).collect();
        let mut member =
            || Member { identity: 1, voters: voters.clone(), ahead: rng.below(AHEAD + 1), ..Member::default() };
        let members = (0..count).map(|_| member()).collect();
        SurvivorModel {
            rng,
            members,
            alive: voters,
            time: 100,
            entries: BTreeSet::new(),
            records: BTreeSet::new(),
            elected: BTreeSet::new(),
            survivor: None,
            gap: None,
            chain_gap: None,
        }
    }

    fn below(&mut self, count: usize) -> usize {
        self.rng.below(count as u64) as usize
    }

    fn any(&mut self) -> usize {
        let alive: Vec<usize> = self.alive.iter().copied().collect();
        *self.rng.choose(&alive)
    }

    /// Those that take what this one says.
    fn heard_by(&self, one: usize) -> Set {
        let is_heard = |other: &usize| self.members[*other].identity == self.members[one].identity;
        self.alive.iter().copied().filter(is_heard).collect()
    }

    fn is_majority(&self, one: usize, of: &Set) -> bool {
        2 * of.intersection(&self.members[one].voters).count() > self.members[one].voters.len()
    }

    /// Leads if a majority votes for it. Some do not hear of it: an old leader goes on for a while.
    fn elect(&mut self) {
        let one = self.any();
        let last = self.members[one].last();
        let heard = self.heard_by(one);
        let can_vote = |voter: &usize| self.members[*voter].last() <= last;
        let mut voters: Set = heard.into_iter().filter(can_vote).collect();
        let deaf = self.any();
        if deaf != one && self.is_majority(one, &voters.iter().copied().filter(|voter| *voter != deaf).collect()) {
            voters.remove(&deaf);
        }
        let term = voters.iter().map(|voter| self.members[*voter].term).max().unwrap_or(0) + 1;
        if self.is_majority(one, &voters) {
            voters.iter().for_each(|voter| self.members[*voter].term = term);
            // A new leader's first entry holds nothing.
            self.members[one].log.push(Entry { stamp: 0, term, chain: Vec::new() });
            self.elected.insert((self.members[one].identity, term, one));
        }
    }

    /// It leads, or has led and does not know better.
    fn leads(&self, one: usize) -> bool {
        let Member { identity, term, .. } = self.members[one];
        self.elected.contains(&(identity, term, one))
    }

    fn propose(&mut self, changes_chain: bool) {
        let (one, time) = (self.any(), self.time);
        if !self.leads(one) {
            return;
        }
        let mut chain = Vec::new();
        if changes_chain {
            let there: Vec<usize> = self.heard_by(one).into_iter().collect();
            let count = 1 + self.below(there.len());
            let from = self.below(there.len());
            chain = (0..count).map(|at| there[(from + at) % there.len()]).collect();
        }
        let term = self.members[one].term;
        let stamp = self.members[one].stamp(time);
        self.members[one].log.push(Entry { stamp, term, chain });
    }

    fn replicate(&mut self) {
        let (leader, follower) = (self.any(), self.any());
        let is_taken = self.leads(leader) && self.heard_by(leader).contains(&follower);
        if !is_taken || leader == follower || self.members[follower].term > self.members[leader].term {
            return;
        }
        let Member { log, term, known, .. } = self.members[leader].clone();
        let knows = self.rng.below(2) == 0;
        let more = self.rng.next();
        let to = &mut self.members[follower];
        let same = log.iter().zip(&to.log).take_while(|(one, other)| one == other).count();
        let upto = same + (more % ((log.len() - same) as u64 + 1)) as usize;
        if same < to.log.len() && same < log.len() {
            to.log.truncate(same);
        }
        let from = to.log.len();
        to.log.extend_from_slice(log.get(from..upto).unwrap_or_default());
        (to.term, to.newest) = (term, to.newest.max(to.log.iter().map(|entry| entry.stamp).max().unwrap_or(0)));
        to.known = to.known.min(to.log.len());
        if knows {
            to.known = to.known.max(known.min(to.log.len()));
        }
    }

    /// True if what this one's cluster acknowledges counts for a reader at the survivor.
    fn counts(&self, one: usize) -> bool {
        self.survivor.is_none_or(|survivor| self.members[survivor].identity == self.members[one].identity)
    }

    fn commit(&mut self) {
        let one = self.any();
        let log = self.members[one].log.clone();
        if !self.leads(one) {
            return;
        }
        let holds = |other: &usize| self.members[*other].log.get(..log.len()) == Some(&log[..]);
        let holders: Set = self.heard_by(one).into_iter().filter(holds).collect();
        if !self.is_majority(one, &holders) {
            return;
        }
        let given = self.members[one].chain();
        let before = given.iter().flat_map(|member| self.members[*member].records.clone()).collect::<BTreeSet<_>>();
        for entry in &log[self.members[one].known..] {
            // A configuration counts when those that it names have what the chain has; they stamp above it.
            for member in &entry.chain {
                self.members[*member].records.extend(&before);
                self.members[*member].newest = self.members[*member].newest.max(entry.stamp);
            }
        }
        self.members[one].known = log.len();
        if self.counts(one) {
            self.entries.extend(log.into_iter().filter(|entry| entry.stamp > 0));
        }
    }

    /// A record of the chain's head, under the newest configuration that a leader knows to be committed.
    fn write(&mut self) {
        let (one, time) = (self.any(), self.time);
        let newest = self
            .members
            .iter()
            .filter(|other| other.identity == self.members[one].identity)
            .map(|other| other.known)
            .max();
        if !self.leads(one) || newest != Some(self.members[one].known) {
            return;
        }
        let (chain, heard) = (self.members[one].chain(), self.heard_by(one));
        if !heard.contains(&chain[0]) {
            return;
        }
        let stamp = self.members[chain[0]].stamp(time);
        for member in chain.iter().filter(|member| heard.contains(member)) {
            self.members[*member].records.insert(stamp);
            self.members[*member].newest = self.members[*member].newest.max(stamp);
        }
        if chain.iter().all(|member| heard.contains(member)) && self.counts(one) {
            self.records.insert(stamp);
        }
    }

    fn step(&mut self) {
        self.time += self.rng.below(3);
        match self.below(14) {
            0 => self.elect(),
            1..4 => self.propose(false),
            4 => self.propose(true),
            5..9 => self.replicate(),
            9..11 => self.commit(),
            _ => self.write(),
        }
    }

    /// A majority is lost, and one that is left goes on.
    fn recover(&mut self, without: Option<Rule>) -> Result<(), String> {
        let keeps = |rule| without != Some(rule);
        let survivor = self.any();
        self.alive = [survivor].into();
        let before = self.members[survivor].clone();
        let stamp_of = |log: &[Entry]| log.iter().map(|entry| entry.stamp).max().unwrap_or(0);
        let (known, last) = (stamp_of(&before.log[..before.known]), stamp_of(&before.log));
        // Above what it gave and what clocks that are ahead may have given.
        let ahead = if keeps(Rule::StampsAbove) { AHEAD + 1 } else { 0 };
        let to = (self.time + ahead).max(before.newest + 1);
        let from = if keeps(Rule::GapFromTheKnown) { known } else { last };
        let is_full = before.chain().contains(&survivor) || !keeps(Rule::StaleVouchesForItself);
        let whole =
            if is_full { known } else { self.left_at(survivor).min(before.records.last().copied().unwrap_or(0)) };
        let member = &mut self.members[survivor];
        if !keeps(Rule::KeepsTheTail) {
            member.log.truncate(member.known);
        }
        if let Some(entry) = self.entries.iter().find(|entry| before.log.contains(entry) && !member.log.contains(entry))
        {
            return Err(format!("{entry:?} was acknowledged, was here, and was dropped"));
        }
        (member.newest, member.term, member.voters) = (to, member.term + 1, [survivor].into());
        let entry = Entry { stamp: to, term: member.term, chain: vec![survivor] };
        member.log.push(entry.clone());
        member.known = member.log.len();
        member.identity = if keeps(Rule::ChangesIdentity) { 2 } else { 1 };
        self.elected.insert((member.identity, member.term, survivor));
        if keeps(Rule::NotesTheGap) {
            (self.gap, self.chain_gap) = (Some((from, to)), Some((whole.min(known), to)));
        }
        self.entries.insert(entry);
        self.survivor = Some(survivor);
        Ok(())
    }

    /// Stamp of the entry that took its part in the chain, as far as it knows.
    fn left_at(&self, member: usize) -> u64 {
        let log = &self.members[member].log[..self.members[member].known];
        let had = log.iter().rposition(|entry| entry.chain.contains(&member)).map_or(0, |place| place + 1);
        log[had..].iter().find(|entry| !entry.chain.is_empty()).map_or(u64::MAX, |entry| entry.stamp)
    }

    /// What the survivor answers at every instant, against what was acknowledged.
    fn check(&self) -> Result<(), String> {
        let Some(survivor) = self.survivor else { return Ok(()) };
        let member = &self.members[survivor];
        let touches = |gap: Option<(u64, u64)>, at: u64| gap.is_some_and(|(from, to)| from < at && at < to);
        // What lies in the gap may be there or not, and answers after it show what survived.
        let shown =
            member.log[..member.known].iter().filter(|entry| entry.stamp > 0 && !touches(self.gap, entry.stamp));
        let shown: BTreeSet<&Entry> = shown.collect();
        let acknowledged: BTreeSet<&Entry> =
            self.entries.iter().filter(|entry| !touches(self.gap, entry.stamp)).collect();
        if let Some(entry) = acknowledged.difference(&shown).next() {
            return Err(format!("{entry:?} is missing, and answers do not say so"));
        }
        if let Some(entry) = shown
            .iter()
            .find(|entry| self.gap.is_some_and(|(from, _)| entry.stamp <= from) && !self.entries.contains(**entry))
        {
            return Err(format!("{entry:?} is shown, was never acknowledged, and answers do not say so"));
        }
        let lacks = |stamp: &&u64| !touches(self.chain_gap, **stamp) && !member.records.contains(stamp);
        match self.records.iter().find(lacks) {
            Some(stamp) => Err(format!("record {stamp} is missing, and answers do not say so")),
            None => Ok(()),
        }
    }
}

fn life(seed: u64, without: Option<Rule>) -> Result<(), String> {
    let mut model = SurvivorModel::new(seed);
    let steps = 20 + model.below(200);
    (0..steps).for_each(|_| model.step());
    model.recover(without)?;
    model.check()?;
    for _ in 0..10 {
        model.step();
        model.check()?;
    }
    // Those of before come back, with all that they had.
    model.alive = (0..model.members.len()).collect();
    for _ in 0..100 {
        model.step();
        model.check()?;
    }
    Ok(())
}

#[test]
fn what_a_survivor_answers_is_whole_or_says_that_it_is_not() {
    for seed in 0..1500 {
        life(seed, None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn each_rule_that_is_taken_out_is_found_to_be_missing() {
    for rule in RULES {
        let found = (0..4000).find(|seed| life(*seed, Some(rule)).is_err());
        assert!(found.is_some(), "{rule:?} is not missed");
    }
}
