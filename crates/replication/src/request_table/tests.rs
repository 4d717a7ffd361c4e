//! One rule of the table each, and a model of clients, a network and two chains, in which each rule can be left out.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::Rng;

use super::*;

const SESSION: SessionId = SessionId(7);

fn key(seq: u64) -> NumberedRequest {
    (SESSION, Seq(seq))
}

#[test]
fn a_number_below_the_floor_is_too_old_and_the_floor_never_falls() {
    let mut table = RequestTable::default();
    assert_eq!(table.recall(key(9), Seq(5)), KnownRequest::Unknown);
    assert_eq!(table.recall(key(4), Seq(1)), KnownRequest::TooOld(Seq(5)));
    assert_eq!(table.recall(key(5), Seq(0)), KnownRequest::Unknown, "the floor itself has no answer yet");
    assert_eq!(table.recall((SessionId(8), Seq(1)), Seq(0)), KnownRequest::Unknown, "another session has its own");
}

#[test]
fn a_request_does_not_raise_the_floor_above_itself() {
    let mut table = RequestTable::default();
    assert_eq!(table.recall(key(3), Seq(100)), KnownRequest::Unknown);
    assert_eq!(table.recall(key(2), Seq(0)), KnownRequest::TooOld(Seq(3)));
}

#[test]
fn a_request_in_flight_is_joined_until_it_is_answered() {
    let mut table = RequestTable::default();
    table.begin(key(1), 40);
    assert_eq!(table.recall(key(1), Seq(1)), KnownRequest::InFlight(40));
    assert!(table.is_in_flight(key(1)));
    table.finish(key(1));
    assert_eq!(table.recall(key(1), Seq(1)), KnownRequest::Unknown, "from here on the chains know its record");
    assert!(!table.is_in_flight(key(1)));
}

#[test]
fn a_refusal_is_remembered_until_the_client_has_its_answer() {
    let mut table = RequestTable::default();
    table.refuse(key(1)).unwrap();
    assert_eq!(table.recall(key(1), Seq(1)), KnownRequest::Refused);
    table.recall(key(2), Seq(2));
    assert_eq!(table.recall(key(1), Seq(1)), KnownRequest::TooOld(Seq(2)));
    table.refuse(key(1)).expect("below the floor it cannot run in any case");
    assert_eq!(table.sessions[&SESSION].requests.len(), 0, "nothing is kept below the floor");
}

#[test]
fn a_refusal_outlives_a_run_under_the_same_number() {
    let mut table = RequestTable::default();
    table.refuse(key(1)).unwrap();
    table.begin(key(1), 40);
    assert_eq!(table.recall(key(1), Seq(0)), KnownRequest::InFlight(40));
    table.finish(key(1));
    assert_eq!(table.recall(key(1), Seq(0)), KnownRequest::Refused);
}

#[test]
fn refusals_of_a_session_are_bounded_and_one_that_is_remembered_is_given_again() {
    let mut table = RequestTable::default();
    (1..=REFUSED_MAX as u64).for_each(|seq| table.refuse(key(seq)).unwrap());
    assert_eq!(table.refuse(key(1000)), Err(RefusalsFull));
    assert_eq!(table.refuse(key(1)), Ok(()), "it is remembered");
    assert_eq!(table.refuse((SessionId(8), Seq(1))), Ok(()), "another session has room of its own");
    table.recall(key(1000), Seq(3));
    assert_eq!(table.refuse(key(1000)), Ok(()), "two were acknowledged");
}

#[test]
fn a_session_ends_once_nothing_of_it_is_in_flight() {
    let mut table = RequestTable::default();
    table.recall(key(5), Seq(5));
    table.begin(key(5), 40);
    table.end_session(SESSION);
    assert_eq!(table.recall(key(5), Seq(0)), KnownRequest::InFlight(40), "a duplicate may still come");
    table.finish(key(5));
    assert_eq!(table.sessions().collect::<Vec<_>>(), [SESSION]);
    table.end_session(SESSION);
    assert_eq!(table.sessions().count(), 0);
}

/// What keeps an append from running twice, or after it was refused for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A number below the floor does not run.
    Floor,
    /// A duplicate of a request in flight waits for its answer.
    InFlight,
    /// A refused number does not run.
    Refusal,
    /// A request that runs, or has a record, is not refused.
    RefusesUnknownOnly,
    /// A refusal that cannot be remembered is not given.
    RefusalsFull,
    /// Every chain is asked for a record, not only the one where the append would go.
    AllChains,
}

const RULES: [Rule; 6] =
    [Rule::Floor, Rule::InFlight, Rule::Refusal, Rule::RefusesUnknownOnly, Rule::RefusalsFull, Rule::AllChains];

/// A copy of a request on its way to the server: its number, and the client's smallest unanswered one.
#[derive(Clone, Copy)]
struct Copy {
    seq: u64,
    acked: u64,
}

/// A client that appends, a network that loses, delays and duplicates, and a server with the table and two chains.
struct Model {
    rng: Rng,
    without: Option<Rule>,
    /// How often in a hundred the server has to refuse, for the file ends elsewhere.
    refuses: u64,
    net: Vec<Copy>,
    /// Numbers without an answer, each with the acknowledgement of its first request.
    unanswered: BTreeSet<u64>,
    next_seq: u64,
    /// A number whose answers are lost until the end, if there is one: the floor stays below it.
    stuck: Option<u64>,
    table: RequestTable,
    /// Committed requests of each chain, which drops those below what it has seen acknowledged.
    chains: [BTreeSet<u64>; 2],
    /// Running appends: the chain of each, by group.
    running: BTreeMap<u64, (u64, usize)>,
    next_group: u64,
    /// Effects of each number, and the numbers that were refused for good.
    effects: BTreeMap<u64, u64>,
    refused: BTreeSet<u64>,
}

impl Model {
    fn new(seed: u64, without: Option<Rule>) -> Model {
        let mut rng = Rng::new(seed);
        let refuses = [10, 90][rng.below(2) as usize];
        let stuck = (refuses > 50).then_some(1);
        Model {
            rng,
            without,
            refuses,
            net: Vec::new(),
            unanswered: BTreeSet::new(),
            next_seq: 1,
            stuck,
            table: RequestTable::default(),
            chains: Default::default(),
            running: BTreeMap::new(),
            next_group: 1,
            effects: BTreeMap::new(),
            refused: BTreeSet::new(),
        }
    }

    fn holds(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn acked(&self) -> u64 {
        self.unanswered.first().copied().unwrap_or(self.next_seq)
    }

    /// One step of any party. Returns a violation.
    fn step(&mut self) -> Option<String> {
        match self.rng.below(10) {
            0..=1 if self.unanswered.len() < 6 => {
                self.unanswered.insert(self.next_seq);
                self.net.push(Copy { seq: self.next_seq, acked: self.acked() });
                self.next_seq += 1;
            }
            2..=3 if !self.unanswered.is_empty() => {
                // The client sends an unanswered one again.
                let at = self.rng.below(self.unanswered.len() as u64) as usize;
                let seq = *self.unanswered.iter().nth(at)?;
                self.net.push(Copy { seq, acked: self.acked() });
            }
            4 if !self.running.is_empty() => {
                let at = self.rng.below(self.running.len() as u64) as usize;
                let (&group, &(seq, chain)) = self.running.iter().nth(at)?;
                self.running.remove(&group);
                self.table.finish(key(seq));
                self.chains[chain].insert(seq);
                self.answer(seq);
            }
            _ if !self.net.is_empty() => {
                let at = self.rng.below(self.net.len() as u64) as usize;
                let copy = if self.rng.chance(4) { self.net[at] } else { self.net.swap_remove(at) };
                self.on_request(copy);
            }
            _ => {}
        }
        let twice = self.effects.iter().find(|(_, count)| **count > 1).map(|(seq, _)| format!("{seq} ran twice"));
        twice.or_else(|| {
            let both = self.refused.iter().find(|seq| self.effects.contains_key(seq));
            both.map(|seq| format!("{seq} was refused for good and ran"))
        })
    }

    /// The client has an answer that ends the number, unless it is lost.
    fn answer(&mut self, seq: u64) {
        if self.stuck != Some(seq) && !self.rng.chance(4) {
            self.unanswered.remove(&seq);
        }
    }

    fn on_request(&mut self, Copy { seq, acked }: Copy) {
        let known = self.table.recall(key(seq), Seq(acked));
        let is_done = self.chains.iter().any(|chain| chain.contains(&seq));
        let refuses = self.rng.below(100) < self.refuses && seq != 1;
        if refuses && self.rng.chance(2) {
            // Refused before the request is looked up, as where the end of the file is found to lie elsewhere.
            return self.refuse(seq, is_done);
        }
        match known {
            KnownRequest::TooOld(_) if self.holds(Rule::Floor) => return,
            KnownRequest::InFlight(_) if self.holds(Rule::InFlight) => return,
            KnownRequest::Refused if self.holds(Rule::Refusal) => return self.answer(seq),
            _ => {}
        }
        let chain = self.rng.below(2) as usize;
        if is_done && self.holds(Rule::AllChains) || self.chains[chain].contains(&seq) {
            return self.answer(seq);
        }
        if refuses {
            return self.refuse(seq, is_done);
        }
        *self.effects.entry(seq).or_default() += 1;
        // A chain forgets what it has seen acknowledged.
        self.chains[chain] = self.chains[chain].split_off(&acked.min(seq));
        let floor = self.table.sessions.get(&SESSION).map_or(Seq(0), |known| known.floor);
        if Seq(seq) >= floor {
            self.table.begin(key(seq), self.next_group);
        }
        self.running.insert(self.next_group, (seq, chain));
        self.next_group += 1;
    }

    fn refuse(&mut self, seq: u64, is_done: bool) {
        let is_known = self.table.is_in_flight(key(seq)) || is_done;
        if is_known && self.holds(Rule::RefusesUnknownOnly)
            || self.table.refuse(key(seq)).is_err() && self.holds(Rule::RefusalsFull)
        {
            // The client sends the same number again.
            return;
        }
        if self.unanswered.contains(&seq) {
            self.refused.insert(seq);
        }
        self.answer(seq);
    }
}

fn violation(without: Option<Rule>) -> Option<String> {
    (0..120).find_map(|seed| {
        let mut model = Model::new(seed, without);
        (0..1200).find_map(|_| model.step()).map(|what| format!("seed {seed}: {what}"))
    })
}

#[test]
fn an_append_runs_once_and_never_after_it_was_refused_for_good() {
    assert_eq!(violation(None), None);
}

#[test]
fn each_rule_is_needed() {
    let needless: Vec<Rule> = RULES.into_iter().filter(|rule| violation(Some(*rule)).is_none()).collect();
    assert!(needless.is_empty(), "nothing goes wrong without {needless:?}");
}
