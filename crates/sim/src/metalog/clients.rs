//! The clients, and their requests that wait at members.
//!
//! A client has one request at a time: put an entry, read, close an instant. It asks the leader that it knows, or else
//! any member, and repeats the request under the same number until it is answered.

use frieze_base::{LogIndex, NodeId};
use frieze_metalog::{BatchDurability, DataEnd, Error, MemberInput, RaftRole};

use super::breakage::MetalogBreak;
use super::host::HostEffect;
use super::requests::{MemberResponse, MetalogRequest, is_barrier, is_sync};
use super::state;
use super::world::{MetalogEvent, MetalogWorld};
use crate::violation::Verdict;

/// Time before a client asks another member, in microseconds.
const PATIENCE_US: u64 = 400_000;

impl MetalogWorld {
    pub(super) fn respond(&mut self, _from: NodeId, client: u64, attempt: u64, answer: MemberResponse) {
        for wait in self.faults.ways(&mut self.rng, self.quiet) {
            self.after(wait, MetalogEvent::Told { client, attempt, answer });
        }
    }

    /// Answers requests that wait until their entries are durable.
    pub(super) fn reply_durable(&mut self, id: NodeId) -> Verdict {
        let Some(member) = self.hosts.get(&id).and_then(|host| host.member.as_ref()) else { return Ok(()) };
        let (leads, durable) = (member.role() == RaftRole::Leader, member.durable());
        let waiting = self.waiting.entry(id).or_default();
        let ready: Vec<_> = waiting.syncs.extract_if(.., |(index, ..)| *index <= durable).collect();
        for (index, ask, (client, attempt)) in ready.into_iter().filter(|_| leads) {
            self.judge.durable(index);
            self.respond(id, client, attempt, MemberResponse::Done(ask));
        }
        Ok(())
    }

    /// Answers reads that wait for entries that are executed now.
    pub(super) fn show(&mut self, id: NodeId) {
        let Some(host) = self.hosts.get(&id) else { return };
        let applied = host.state.applied;
        let waiting = self.waiting.entry(id).or_default();
        let ready: Vec<_> = waiting.shows.extract_if(.., |show| show.0 <= applied).collect();
        for (_, client, attempt) in ready {
            self.respond(id, client, attempt, MemberResponse::Shown(applied));
        }
    }

    /// A member no longer leads: the clients that wait for it to order a request ask another member.
    pub(super) fn redirect_clients(&mut self, id: NodeId, leader: Option<NodeId>) {
        let waiting = self.waiting.entry(id).or_default();
        let puts = std::mem::take(&mut waiting.puts).into_values().flatten();
        let closes = std::mem::take(&mut waiting.closes).into_iter().map(|(_, client, attempt)| (client, attempt));
        for (client, attempt) in puts.chain(closes).collect::<Vec<_>>() {
            self.respond(id, client, attempt, MemberResponse::Hint(leader));
        }
    }

    pub(super) fn on_request(&mut self, id: NodeId, client: u64, attempt: u64, what: MetalogRequest) -> Verdict {
        let now = self.now_us;
        self.next_token += 1;
        let token = self.next_token;
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.member.is_some()) else { return Ok(()) };
        let member = host.member.as_ref().expect("it is up");
        let leads = member.role() == RaftRole::Leader;
        let input = match what {
            // Retries may come when it is done.
            MetalogRequest::Put(ask)
                if host.state.done.contains_key(&ask) && self.breakage != Some(MetalogBreak::RetriesRunAgain) =>
            {
                if is_sync(ask) && !is_barrier(ask) {
                    if !leads {
                        // Only a leader knows at once what is durable.
                        let leader = member.leader();
                        self.respond(id, client, attempt, MemberResponse::Hint(leader));
                        return Ok(());
                    }
                    let applied = host.state.applied;
                    self.waiting.entry(id).or_default().syncs.push((applied, ask, (client, attempt)));
                    self.reply_durable(id)?;
                    return self.give(id, MemberInput::FlushAll);
                }
                self.respond(id, client, attempt, MemberResponse::Done(ask));
                return Ok(());
            }
            MetalogRequest::Put(ask) => {
                let filling = self.rng.below(200) as usize;
                let is_stable = is_barrier(ask) && self.breakage != Some(MetalogBreak::BarriersFromMemory);
                let durability = if is_stable { BatchDurability::Stable } else { BatchDurability::Memory };
                let body = state::encode(ask, filling);
                MemberInput::Propose { body, count: 1, data_end: DataEnd::default(), durability }
            }
            MetalogRequest::Read => match self.breakage {
                Some(MetalogBreak::ReadsAnywhere) => return self.show_at_once(id, client, attempt),
                Some(MetalogBreak::ReadsAlone) if leads => return self.show_at_once(id, client, attempt),
                _ => MemberInput::Read { token },
            },
            MetalogRequest::Close => {
                let at = host.clock(now);
                if self.breakage == Some(MetalogBreak::ClosesEarly) && leads {
                    self.judge.closed(at);
                    self.respond(id, client, attempt, MemberResponse::Closed);
                    return Ok(());
                }
                MemberInput::Close { at }
            }
        };
        match (&input, what) {
            (_, MetalogRequest::Put(ask)) => {
                self.waiting.entry(id).or_default().puts.entry(ask).or_default().push((client, attempt));
            }
            (_, MetalogRequest::Read) => {
                self.waiting.entry(id).or_default().reads.insert(token, (client, attempt));
            }
            (MemberInput::Close { at }, _) => self.waiting.entry(id).or_default().closes.push((*at, client, attempt)),
            _ => {}
        }
        let host = self.hosts.get_mut(&id).expect("it is up");
        let doings = host.input(now, input);
        let refused = doings.iter().find_map(|doing| match doing {
            HostEffect::Refused(error) => Some(error.clone()),
            _ => None,
        });
        if let Some(error) = refused {
            self.withdraw(id, client, attempt);
            let answer = match error {
                Error::NotLeader { leader } => MemberResponse::Hint(leader),
                _ => MemberResponse::Again,
            };
            if self.breakage != Some(MetalogBreak::NoHints) {
                self.respond(id, client, attempt, answer);
            }
        }
        self.did(id, doings)
    }

    fn withdraw(&mut self, id: NodeId, client: u64, attempt: u64) {
        let waiting = self.waiting.entry(id).or_default();
        waiting.puts.values_mut().for_each(|waits| waits.retain(|wait| *wait != (client, attempt)));
        waiting.reads.retain(|_, wait| *wait != (client, attempt));
        waiting.closes.retain(|(_, c, a)| (*c, *a) != (client, attempt));
        waiting.syncs.retain(|(_, _, wait)| *wait != (client, attempt));
    }

    fn show_at_once(&mut self, id: NodeId, client: u64, attempt: u64) -> Verdict {
        let applied = self.hosts.get(&id).map_or(LogIndex(0), |host| host.state.applied);
        self.respond(id, client, attempt, MemberResponse::Shown(applied));
        Ok(())
    }

    pub(super) fn on_response(&mut self, number: u64, attempt: u64, answer: MemberResponse) -> Verdict {
        let Some(client) = self.clients.get(&number) else { return Ok(()) };
        if client.attempt != attempt || client.left == 0 {
            return Ok(());
        }
        self.trace.numbers(&[number, attempt, 81], || format!("client {number} is told {answer:?}"));
        match answer {
            MemberResponse::Done(ask) => self.judge.answered(ask)?,
            MemberResponse::Shown(index) => self.judge.shown(index, client.floor)?,
            MemberResponse::Closed => {}
            MemberResponse::Hint(leader) => {
                let next = leader.filter(|id| self.hosts.contains_key(id));
                return self.ask_again(number, next);
            }
            MemberResponse::Again => return self.ask_again(number, None),
        }
        self.answered += 1;
        let pace = if self.quiet { 2_000 } else { 110_000 };
        let wait = self.rng.below(pace);
        let client = self.clients.get_mut(&number).expect("it was there");
        client.left -= 1;
        client.host = client.on_request;
        client.attempt += 1;
        client.seq += 1;
        let session = number + 1;
        client.what = match self.rng.below(10) {
            0..6 => MetalogRequest::Put((session, client.seq)),
            6..9 => MetalogRequest::Read,
            _ => MetalogRequest::Close,
        };
        let attempt = client.attempt;
        if client.left > 0 {
            self.after(wait, MetalogEvent::Wake { client: number, attempt });
        }
        Ok(())
    }

    /// Asks after a pause: the named leader, or any member.
    fn ask_again(&mut self, number: u64, next: Option<NodeId>) -> Verdict {
        let ids: Vec<NodeId> = self.hosts.keys().copied().collect();
        let anybody = *self.rng.choose(&ids);
        let wait = if next.is_some() { 500 } else { self.rng.between(5_000, 40_000) };
        let client = self.clients.get_mut(&number).expect("it was there");
        client.host = next.unwrap_or(anybody);
        client.attempt += 1;
        let attempt = client.attempt;
        self.after(wait, MetalogEvent::Wake { client: number, attempt });
        Ok(())
    }

    /// Asks, or repeats the request after no answer.
    pub(super) fn wake(&mut self, number: u64, attempt: u64) -> Verdict {
        let floor = self.judge.floor();
        let ids: Vec<NodeId> = self.hosts.keys().copied().collect();
        let anybody = *self.rng.choose(&ids);
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        if client.attempt != attempt || client.left == 0 {
            return Ok(());
        }
        client.attempt += 1;
        client.floor = floor;
        // Now and then any member is asked to read.
        let host = if client.what == MetalogRequest::Read && attempt.is_multiple_of(3) { anybody } else { client.host };
        let (what, attempt) = (client.what, client.attempt);
        client.on_request = host;
        // If no answer arrives, the next attempt asks another member.
        client.host = anybody;
        for wait in self.faults.ways(&mut self.rng, self.quiet) {
            self.after(wait, MetalogEvent::Asked { host, client: number, attempt, what });
        }
        self.after(PATIENCE_US, MetalogEvent::Wake { client: number, attempt });
        Ok(())
    }
}
