//! Sessions that cache names under grants, beside clients that cache nothing and resolve paths, over a network that
//! delays, reorders and loses messages, on a server that crashes and restarts: whenever the server answers, no other
//! session caches a state older than the answer shows.
//!
//! The believers do what a mount does with its kernel: they use their grants until their lease ends by their own clock,
//! drop what is recalled, do not cache an answer that a recall has overtaken, and acknowledge with the next poll.

use std::collections::BTreeMap;

use frieze_base::{Reason, Rng, Seq, SessionId};
use frieze_disk::CrashKind;
use frieze_wire::Holds;
use frieze_wire::frame::{FrameHeader, FrameKind};
use frieze_wire::holding::Recalls;
use frieze_wire::message::{Now, Reply, Request, RequestBody, Stat, Txn, View};
use frieze_wire::txn::{Make, MakeKind, Op, OpenSession, Remove, Target};

use crate::exchange::{ConnId, MachineResponse};
use crate::machine::{Hardware, Machine, user};
use crate::violation::{Rule, Verdict, broken};
use crate::world::{WALL_US, settings};

const CACHING_CLIENTS: usize = 3;
/// After them come those that believe nothing, and ask by path as programs without a mount do.
const CLIENTS: usize = CACHING_CLIENTS + 2;
/// A symbolic link to the root, through which some paths go.
const LINK: &str = "up";
/// Names that are looked up, in the root and in each directory that a client creates.
const NAMES: u32 = 3;
/// Directories that are looked into: the last that were made.
const DIRECTORIES: u32 = 3;
const STEPS: usize = 1500;
/// A question that is not answered by then was lost.
const LOST_US: u64 = 1_500_000;

/// A name: the number of its directory, 0 for the root, and its number in it.
type CachedName = (u32, u32);

/// The inode of each name; absent names are missing.
type NameTable = BTreeMap<CachedName, u64>;

#[derive(Default)]
struct CachingClient {
    conn: ConnId,
    session: u64,
    seq: u64,
    life: u64,
    acked: u64,
    lease_until_us: u64,
    /// The question for recalls that waits, and when it was sent.
    question: Option<(u64, u64)>,
    /// An answer to a question from before this many recalls is not cached any more.
    recalls: u64,
    /// Its own changes in flight: answers that arrive meanwhile may be older.
    changing: u32,
    cached: BTreeMap<CachedName, (Option<u64>, u64)>,
}

enum SentQuestion {
    Look {
        name: CachedName,
        began: u64,
        sent_us: u64,
        state: usize,
    },
    Change {
        name: CachedName,
        state: usize,
    },
    /// A new directory: while it is empty, the session that created it may have a grant on its names.
    MakeDirectory {
        number: u32,
        began: u64,
        sent_us: u64,
    },
    Recalls {
        sent_us: u64,
    },
}

struct CacheRun {
    rng: Rng,
    now_us: u64,
    machine: Machine,
    clients: Vec<CachingClient>,
    /// Every state the names have had.
    states: Vec<NameTable>,
    /// The directories that were made.
    directories: Vec<u64>,
    /// Grants on an empty new directory that a believer cached.
    promises: u64,
    questions: BTreeMap<u64, (usize, SentQuestion)>,
    to_server: Vec<(u64, ConnId, FrameHeader, RequestBody)>,
    to_client: Vec<(u64, MachineResponse)>,
    last_id: u64,
    last_conn: u64,
}

/// Recalls are lost and cross the answers they forbid.
pub(crate) fn recalls_lost_and_crossed(seed: u64) -> Verdict {
    let mut promises = 0;
    for round in 0..ROUNDS {
        let mut run = CacheRun::new(seed.wrapping_mul(ROUNDS).wrapping_add(round))?;
        run.run()?;
        promises += run.promises;
    }
    match promises {
        0 => broken(Rule::Live, "nobody was ever shown that a new directory is empty"),
        _ => Ok(()),
    }
}

const ROUNDS: u64 = 8;

impl CacheRun {
    fn new(seed: u64) -> Verdict<CacheRun> {
        let mut rng = Rng::new(seed);
        let hardware = Hardware { seed: rng.next(), settings: settings(), wall_us: WALL_US, breakage: None };
        let mut machine = Machine::new(hardware);
        if let Err(fault) = machine.start() {
            return broken(Rule::Restarts, format!("the first start: {fault}")).map(|()| unreachable!("it is broken"));
        }
        let mut run = CacheRun {
            rng,
            now_us: 0,
            machine,
            clients: Vec::new(),
            states: vec![NameTable::default()],
            directories: Vec::new(),
            promises: 0,
            questions: BTreeMap::new(),
            to_server: Vec::new(),
            to_client: Vec::new(),
            last_id: 0,
            last_conn: 0,
        };
        for _ in 0..CLIENTS {
            let conn = run.connect();
            let op = Op::OpenSession(OpenSession { command: "cache".into(), host: "sim".into(), uid: 0, keeps: false });
            let session = run.at_once(&CachingClient { conn, ..CachingClient::default() }, op);
            run.clients.push(CachingClient { conn, session, ..CachingClient::default() });
        }
        let kind = Some(MakeKind::Symlink(b"/".to_vec()));
        let make = Make { target: Target::path(LINK), mode: 0o777, or_open: false, kind, ..Make::default() };
        let mut last = run.clients.pop().unwrap_or_default();
        last.seq = 1;
        run.at_once(&last, Op::Make(make));
        run.clients.push(last);
        Ok(run)
    }

    fn run(&mut self) -> Verdict {
        for _ in 0..STEPS {
            let passes_us = match self.rng.below(60) {
                0 => 1_200_000,
                _ => self.rng.below(12_000),
            };
            self.now_us += passes_us;
            self.machine.time.advance_us(passes_us);
            let who = self.rng.below(CLIENTS as u64) as usize;
            let name = self.name();
            match self.rng.below(48) {
                0..20 => self.look(who, name),
                20..28 => self.change(who, name),
                28 if who < CACHING_CLIENTS => self.make_directory(who),
                _ => {}
            }
            for who in 0..CACHING_CLIENTS {
                self.ask_for_recalls(who);
            }
            if self.rng.below(400) == 0 {
                self.restart()?;
            }
            self.deliver()?;
            if self.machine.tend().is_err() {
                return broken(Rule::Live, "the server cannot look after itself");
            }
            self.collect()?;
        }
        Ok(())
    }

    /// Runs a transaction before the play begins: the id that it answers.
    fn at_once(&mut self, client: &CachingClient, op: Op) -> u64 {
        let header = FrameHeader {
            session: SessionId(client.session),
            seq: Seq(client.seq),
            ..FrameHeader::of(FrameKind::Request)
        };
        let body = body(Request::Txn(Txn { durability: 0, op: Some(op) }));
        self.machine.handle(client.conn, &header, body, &[]);
        match self.machine.take_answers().pop().map(|answer| answer.result) {
            Some(Ok(Reply::Txn(reply))) => reply.id,
            _ => 0,
        }
    }

    fn connect(&mut self) -> ConnId {
        self.last_conn += 1;
        let conn = ConnId(self.last_conn);
        self.machine.connect(conn, user());
        conn
    }

    fn restart(&mut self) -> Verdict {
        self.machine.die(CrashKind::Process);
        if let Err(fault) = self.machine.start() {
            return broken(Rule::Restarts, format!("after a death: {fault}"));
        }
        let wait_us = self.machine.restart_wait_us();
        self.now_us += wait_us;
        self.machine.time.advance_us(wait_us);
        self.questions.clear();
        for who in 0..CLIENTS {
            self.clients[who].conn = self.connect();
            let client = &mut self.clients[who];
            client.question = None;
            // A mount would send its change again until it is answered.
            if std::mem::take(&mut client.changing) > 0 {
                client.recalls += 1;
                client.cached.clear();
            }
        }
        self.observe();
        Ok(())
    }

    /// One of the names, often in a recently created directory: the answer may not have reached its creator yet.
    fn name(&mut self) -> CachedName {
        let newest = self.directories.len() as u32;
        let directory = match self.rng.chance(2) {
            true => 0,
            false => newest - self.rng.below(DIRECTORIES.min(newest + 1).into()) as u32,
        };
        (directory, self.rng.below(NAMES.into()) as u32)
    }

    /// As this client names it.
    fn target_of(&mut self, who: usize, (directory, name): CachedName) -> Target {
        if who < CACHING_CLIENTS {
            return self.target((directory, name));
        }
        let mut path = if self.rng.chance(3) { format!("/{LINK}") } else { String::new() };
        if directory != 0 {
            path.push_str(&format!("/d{directory}"));
        }
        Target::path(format!("{path}/n{name}"))
    }

    /// As a mount names it: by directory and name.
    fn target(&self, (directory, name): CachedName) -> Target {
        let base = if directory == 0 { 1 } else { self.directories[directory as usize - 1] };
        Target { base, path: format!("n{name}").into_bytes(), follow: false }
    }

    fn look(&mut self, who: usize, name: CachedName) {
        let began = self.clients[who].recalls;
        let stat = Stat { target: self.target_of(who, name), view: View::NOW, ..Stat::default() };
        let question = SentQuestion::Look { name, began, sent_us: self.now_us, state: 0 };
        self.send(who, 0, Request::Stat(stat), question);
    }

    fn make_directory(&mut self, who: usize) {
        let number = self.directories.len() as u32 + 1;
        let client = &mut self.clients[who];
        client.recalls += 1;
        client.changing += 1;
        client.cached.retain(|(directory, _), _| *directory != number);
        let began = client.recalls;
        let kind = Some(MakeKind::Directory(true));
        let make = Make { target: directory(number), mode: 0o755, or_open: false, kind, ..Make::default() };
        self.txn(who, Op::Make(make), SentQuestion::MakeDirectory { number, began, sent_us: self.now_us });
    }

    fn change(&mut self, who: usize, name: CachedName) {
        let target = self.target_of(who, name);
        let op = match self.rng.chance(2) {
            true => Op::Make(Make {
                target,
                mode: 0o644,
                or_open: false,
                kind: Some(MakeKind::File(false)),
                ..Make::default()
            }),
            false => Op::Remove(Remove { target, directory: false }),
        };
        let client = &mut self.clients[who];
        // It drops what it changes itself from its cache.
        client.recalls += 1;
        client.changing += 1;
        client.cached.remove(&name);
        self.txn(who, op, SentQuestion::Change { name, state: 0 });
    }

    fn txn(&mut self, who: usize, op: Op, question: SentQuestion) {
        self.clients[who].seq += 1;
        let seq = self.clients[who].seq;
        self.send(who, seq, Request::Txn(Txn { durability: 0, op: Some(op) }), question);
    }

    fn ask_for_recalls(&mut self, who: usize) {
        let client = &self.clients[who];
        if client.question.is_some_and(|(_, sent_us)| self.now_us - sent_us < LOST_US) {
            return;
        }
        let request = Request::Recalls(Recalls { acked: client.acked, life: client.life, ..Recalls::default() });
        let sent_us = self.now_us;
        let id = self.send(who, 0, request, SentQuestion::Recalls { sent_us });
        self.clients[who].question = Some((id, sent_us));
    }

    fn send(&mut self, who: usize, seq: u64, request: Request, question: SentQuestion) -> u64 {
        self.last_id += 1;
        let client = &self.clients[who];
        let header = FrameHeader {
            request_id: self.last_id,
            session: SessionId(client.session),
            seq: Seq(seq),
            acked: Seq(seq),
            holds: if who < CACHING_CLIENTS { Holds::ASKED } else { Holds::NONE },
            ..FrameHeader::of(FrameKind::Request)
        };
        let at = self.now_us + self.rng.below(40_000);
        self.questions.insert(self.last_id, (who, question));
        // A request that is retried until its answer is sent once here, and not lost.
        if seq > 0 || self.rng.below(12) > 0 {
            self.to_server.push((at, client.conn, header, body(request)));
        }
        self.last_id
    }

    fn deliver(&mut self) -> Verdict {
        let now_us = self.now_us;
        let requests: Vec<_> = self.to_server.extract_if(.., |(at, ..)| *at <= now_us).collect();
        for (_, conn, header, body) in requests {
            if !self.machine.is_connected(conn) {
                continue;
            }
            // A lookup sees the present state, or one that follows before its answer.
            if let Some((_, SentQuestion::Look { state, .. })) = self.questions.get_mut(&header.request_id) {
                *state = self.states.len() - 1;
            }
            self.machine.handle(conn, &header, body, &[]);
            let answers = self.machine.take_answers();
            if let Some((_, SentQuestion::MakeDirectory { number, .. })) = self.questions.get(&header.request_id)
                && *number as usize > self.directories.len()
                && let Some(Reply::Stat(reply)) = self.machine.look(Request::Stat(Stat {
                    target: directory(*number),
                    view: View::NOW,
                    ..Stat::default()
                }))
            {
                self.directories.push(reply.attr.inode);
            }
            self.observe();
            if let Some((_, SentQuestion::Change { state, .. })) = self.questions.get_mut(&header.request_id) {
                *state = self.states.len() - 1;
            }
            self.answered(answers)?;
        }
        let answers: Vec<_> = self.to_client.extract_if(.., |(at, _)| *at <= now_us).collect();
        for (_, answer) in answers {
            self.on_response(answer);
        }
        Ok(())
    }

    fn collect(&mut self) -> Verdict {
        let answers = self.machine.take_answers();
        self.answered(answers)
    }

    /// Reads the present state of the names.
    fn observe(&mut self) {
        // At an exact instant: a question about now would wait as every client's does.
        let at = match self.machine.look(Request::Now(Now::default())) {
            Some(Reply::Now(now)) => now.at,
            _ => return,
        };
        let view = View { at: Some(at), user_at: None };
        // No client changes older directories any more.
        let mut state = self.states.last().cloned().unwrap_or_default();
        let newest = self.directories.len() as u32;
        let oldest = (newest + 1).saturating_sub(2 * DIRECTORIES);
        for directory in [0].into_iter().chain(oldest.max(1)..=newest) {
            for name in (0..NAMES).map(|number| (directory, number)) {
                let stat = Stat { target: self.target(name), view, ..Stat::default() };
                match self.machine.look(Request::Stat(stat)) {
                    Some(Reply::Stat(reply)) => drop(state.insert(name, reply.attr.inode)),
                    _ => drop(state.remove(&name)),
                }
            }
        }
        if self.states.last() != Some(&state) {
            self.states.push(state);
        }
    }

    /// The server answers: from now on every other client may know what the answers show.
    fn answered(&mut self, answers: Vec<MachineResponse>) -> Verdict {
        for answer in answers {
            let known = match self.questions.get(&answer.header.request_id) {
                Some((who, SentQuestion::Look { name, state, .. })) => Some((*who, *name, *state)),
                // A refusal shows whether the name exists, too.
                Some((who, SentQuestion::Change { name, state })) if answers_a_name(&answer) => {
                    Some((*who, *name, *state))
                }
                _ => None,
            };
            if let Some((who, name, state)) = known {
                self.judge(who, name, state)?;
            }
            if answer.header.seq.0 > 0 || self.rng.below(10) > 0 {
                self.to_client.push((self.now_us + self.rng.below(40_000), answer));
            }
        }
        Ok(())
    }

    fn judge(&self, by: usize, name: CachedName, state: usize) -> Verdict {
        for (who, client) in self.clients.iter().enumerate().filter(|(who, _)| *who != by) {
            let Some((cached, until_us)) = client.cached.get(&name) else { continue };
            if *until_us > self.now_us && !self.states[state..].iter().any(|state| state.get(&name) == cached.as_ref())
            {
                let shown = self.states[state].get(&name);
                return broken(
                    Rule::Linearizable,
                    format!(
                        "at {} us client {who} goes on with {cached:?} for name {name:?} until {until_us} us, and \
                         client {by} is shown of {shown:?}",
                        self.now_us
                    ),
                );
            }
        }
        Ok(())
    }

    fn on_response(&mut self, answer: MachineResponse) {
        let Some((who, question)) = self.questions.remove(&answer.header.request_id) else { return };
        let client = &mut self.clients[who];
        match (question, answer.result) {
            (SentQuestion::Look { name, began, sent_us, .. }, result) => {
                let found = match result {
                    Ok(Reply::Stat(reply)) => Some(reply.attr.inode),
                    Err(fault) if fault.reason == Reason::NotFound => None,
                    _ => return,
                };
                let until_us = sent_us + u64::from(answer.header.holds.names_ms) * 1000;
                let holds = answer.header.holds;
                if began == client.recalls && client.changing == 0 && ![Holds::NONE, Holds::ASKED].contains(&holds) {
                    client.cached.insert(name, (found, until_us.min(client.lease_until_us)));
                }
            }
            (SentQuestion::MakeDirectory { number, began, sent_us }, result) => {
                let empty_ms = match result {
                    Ok(Reply::Txn(reply)) if !reply.existed => reply.empty_ms,
                    _ => 0,
                };
                if empty_ms > 0 && began == client.recalls && client.changing == 1 {
                    let until_us = (sent_us + u64::from(empty_ms) * 1000).min(client.lease_until_us);
                    client.cached.extend((0..NAMES).map(|name| ((number, name), (None, until_us))));
                    self.promises += 1;
                }
                client.recalls += 1;
                client.changing -= 1;
            }
            (SentQuestion::Change { .. }, _) => {
                client.recalls += 1;
                client.changing -= 1;
            }
            (SentQuestion::Recalls { sent_us }, Ok(Reply::Recalls(reply))) => {
                if client.question.is_none_or(|(id, _)| id != answer.header.request_id) {
                    return;
                }
                client.question = None;
                let is_new = reply.life != client.life;
                if is_new || reply.everything || !reply.directories.is_empty() {
                    client.recalls += 1;
                    client.cached.clear();
                }
                if is_new || reply.number != 0 {
                    client.acked = reply.number;
                }
                client.life = reply.life;
                client.lease_until_us = sent_us + u64::from(reply.lease_ms) * 950;
            }
            (SentQuestion::Recalls { .. }, _) => client.question = None,
        }
    }
}

fn body(request: Request) -> RequestBody {
    RequestBody { caller: None, trace: None, request: Some(request) }
}

fn answers_a_name(answer: &MachineResponse) -> bool {
    match &answer.result {
        Ok(_) => true,
        Err(fault) => matches!(fault.reason, Reason::Exists | Reason::NotFound),
    }
}

fn directory(number: u32) -> Target {
    Target { base: 1, path: format!("d{number}").into_bytes(), follow: false }
}
