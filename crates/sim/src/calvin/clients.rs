//! Clients and their front-ends: what they ask for, how they repeat it, and edits in parts.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{Seq, SessionId};
use frieze_calvin::{Position, RequestName, TxnEnvelope};

use super::breakage::CalvinBreak;
use super::op::{Answer, Body, ChangePath, EditChange, Ino, Name, TreeOp};
use super::stages::{EditId, NameRange, StagedRange};
use super::world::CalvinWorld;
use crate::violation::{Rule, Verdict, broken};

/// A request of a client that has no answer yet.
#[derive(Clone, Debug)]
pub(super) struct AskedChange {
    op: TreeOp,
    attempt: u32,
    /// Its shard had no room.
    gathers: bool,
    /// When it was last sent.
    sent: u64,
    /// How often it was sent again.
    repeats: u32,
}

/// An edit of a client: a change of a tree that is staged in parts.
#[derive(Clone, Debug)]
pub(super) struct OpenEdit {
    change: EditChange,
    /// Which plan this is, from 1.
    plans: u32,
    parts: Vec<Vec<NameRange>>,
    sent: usize,
    answered: usize,
    /// The commit is sent before its stages are answered.
    early: bool,
    /// A stage found no room.
    overloaded: bool,
    /// A commit, or what drops the edit, is sent.
    ends: bool,
}

#[derive(Debug, Default)]
pub(super) struct NamesClient {
    next: u64,
    pub(super) open: BTreeMap<u64, AskedChange>,
    newest_edit: u64,
    pub(super) edits: BTreeMap<u64, OpenEdit>,
    /// It has asked for the end of its session.
    ends: bool,
}

impl CalvinWorld {
    /// A client asks for something new, or sends what is next of an edit.
    pub(super) fn ask_or_go_on(&mut self) {
        let sessions: Vec<_> = self.clients.keys().copied().collect();
        let session = *self.rng.choose(&sessions);
        let client = &self.clients[&session];
        if client.open.len() >= OPEN_MAX || client.ends {
            return;
        }
        let edits: Vec<u64> = client.edits.keys().copied().collect();
        if !edits.is_empty() && (self.asks_left == 0 || self.rng.chance(2)) {
            let edit = *self.rng.choose(&edits);
            self.go_on(session, edit);
        } else if self.asks_left > 0 {
            self.asks_left -= 1;
            if self.rng.chance(EDIT_ONE_IN) {
                self.begin_edit(session);
            } else {
                let op = self.draw_op();
                self.clients.get_mut(&session).expect("it was chosen").ends = op == TreeOp::EndSession;
                // A limit above the new place of a directory waits until the directory is there.
                let limit = match &op {
                    TreeOp::Rename(_, to) if self.rng.chance(LIMIT_ONE_IN) => self.above(to.base),
                    _ => None,
                };
                self.ask(session, op);
                if let Some(target) = limit {
                    // A limit that is there already goes, so that the next one is new.
                    let place = (target.base, target.name);
                    let is_there =
                        self.oracle.entries.get(&place).is_some_and(|ino| self.oracle.limits.contains_key(ino));
                    self.ask(session, TreeOp::Limit(target, (!is_there).then_some(LIMIT_MAX)));
                }
            }
        }
    }

    /// A request with a new number.
    fn ask(&mut self, session: SessionId, op: TreeOp) {
        let client = self.clients.get_mut(&session).expect("it is a client's");
        client.next += 1;
        let seq = client.next;
        client.open.insert(seq, AskedChange { op, attempt: 1, gathers: false, sent: self.now_ms, repeats: 0 });
        self.send(session, seq);
    }

    fn begin_edit(&mut self, session: SessionId) {
        let target = self.named(true);
        let change = match self.rng.below(3) {
            0 => EditChange::Chmod(target, !self.rng.chance(3)),
            _ => EditChange::Remove(target),
        };
        self.plan_edit(session, change, 1);
    }

    /// A front-end says which directories there are; the client divides them, and their names, into parts.
    fn plan_edit(&mut self, session: SessionId, change: EditChange, plans: u32) {
        let mut ranges = Vec::new();
        for directory in self.look_below(change.target()) {
            let whole = NameRange { directory, from: Name::MIN, to: Name::MAX };
            if self.rng.chance(2) {
                ranges.push(whole);
            } else {
                ranges.extend([NameRange { to: 1, ..whole }, NameRange { from: 2, ..whole }]);
            }
        }
        let of_part = self.rng.between(1, 4) as usize;
        let parts: Vec<Vec<NameRange>> = ranges.chunks(of_part).map(<[NameRange]>::to_vec).collect();
        let early = self.rng.chance(8);
        let client = self.clients.get_mut(&session).expect("it is a client's");
        client.newest_edit += 1;
        let edit = OpenEdit { change, plans, parts, sent: 0, answered: 0, early, overloaded: false, ends: false };
        client.edits.insert(client.newest_edit, edit);
    }

    /// Sends the next stage of an edit, or commits it, or gives it up.
    fn go_on(&mut self, session: SessionId, number: u64) {
        let client = self.clients.get_mut(&session).expect("it was chosen");
        let edit = client.edits.get_mut(&number).expect("it was chosen");
        let id = EditId { session, number };
        let are_answered = edit.answered == edit.sent;
        let op = if edit.overloaded && are_answered && !edit.ends {
            edit.ends = true;
            TreeOp::DropEdit(id)
        } else if edit.overloaded || edit.ends {
            return;
        } else if let Some(part) = edit.parts.get(edit.sent) {
            edit.sent += 1;
            TreeOp::Stage(id, edit.sent as u32 - 1, part.clone())
        } else if are_answered || edit.early {
            (edit.ends, edit.early) = (true, false);
            TreeOp::Commit(id, edit.parts.len() as u32, edit.change.clone())
        } else {
            return;
        };
        self.ask(session, op);
    }

    /// A client sends a request again, which may be on its way, by another front-end.
    pub(super) fn repeat(&mut self) {
        let open: Vec<_> =
            self.clients.iter().flat_map(|(session, client)| client.open.keys().map(|seq| (*session, *seq))).collect();
        if open.is_empty() {
            return;
        }
        let (session, seq) = *self.rng.choose(&open);
        let request = self.clients.get_mut(&session).and_then(|client| client.open.get_mut(&seq)).expect("it is open");
        // Servers that are slow are not helped by more requests.
        if self.now_ms < request.sent + (REPEAT_MS << request.repeats.min(REPEATS_COUNTED)) {
            return;
        }
        (request.sent, request.repeats) = (self.now_ms, request.repeats + 1);
        match self.breakage {
            Some(CalvinBreak::AttemptUnproven) => request.attempt += 1,
            Some(CalvinBreak::RetryIsNew) => {
                let request = request.clone();
                let client = self.clients.get_mut(&session).expect("it is open");
                client.next += 1;
                let number = client.next;
                client.open.remove(&seq);
                client.open.insert(number, request);
                let first = self.aliases.get(&(session, seq)).copied().unwrap_or(seq);
                self.aliases.insert((session, number), first);
                return self.send(session, number);
            }
            _ => {}
        }
        self.send(session, seq);
    }

    /// A front-end looks the names up, somewhere, and proposes the request.
    fn send(&mut self, session: SessionId, seq: u64) {
        let client = &self.clients[&session];
        let request = client.open[&seq].clone();
        let acked = Seq(*client.open.keys().next().expect("this one is open"));
        let expects = match &request.op {
            TreeOp::Unlink(target) | TreeOp::Set(target, _) => [self.look(target), None],
            TreeOp::Link(from, _) => [self.look(from), None],
            TreeOp::Rename(from, to) => [self.look(from), self.look(to)],
            _ => [None; 2],
        };
        let part = match &request.op {
            TreeOp::Stage(_, _, ranges) => ranges.iter().map(|range| self.look_range(*range)).collect(),
            _ => Vec::new(),
        };
        let name = RequestName { session, seq: Seq(seq), attempt: request.attempt };
        self.trace
            .line(|| format!("{session}.{seq} attempt {} acked {acked}: {:?} {expects:?}", name.attempt, request.op));
        self.proposed.push((
            TxnEnvelope { request: name, acked },
            Body { session, op: request.op, expects, part, gathers: request.gathers },
        ));
    }

    fn look(&mut self, target: &ChangePath) -> Option<Ino> {
        let trunk = self.rng.below(self.servers.len() as u64) as usize;
        let place = self.servers[trunk].trunk.look(target)?;
        let with = self.servers.iter().filter(|server| server.has(place.0.slot())).collect::<Vec<_>>();
        let server = *self.rng.choose(&with);
        server.files.names.newest(place)
    }

    /// The directories that a front-end sees below a path, and the one that it leads to.
    fn look_below(&mut self, target: &ChangePath) -> BTreeSet<Ino> {
        let trunk = self.rng.below(self.servers.len() as u64) as usize;
        let names: BTreeMap<_, _> = self.servers[trunk].trunk.names.all().collect();
        let top = self.servers[trunk].trunk.look(target).and_then(|place| names.get(&place).copied());
        let (mut found, mut todo) = (BTreeSet::new(), Vec::from_iter(top));
        while let Some(directory) = todo.pop() {
            todo.extend(names.iter().filter(|((parent, _), _)| *parent == directory).map(|(_, ino)| *ino));
            found.insert(directory);
        }
        found
    }

    /// What a front-end sees in a range, its directory's mode and its files at two servers.
    fn look_range(&mut self, NameRange { directory, from, to }: NameRange) -> StagedRange {
        let trunk = self.rng.below(self.servers.len() as u64) as usize;
        let open = self.servers[trunk].trunk.directories.newest(directory).is_some_and(|(_, open)| open);
        let with = self.servers.iter().filter(|server| server.has(directory.slot())).collect::<Vec<_>>();
        let names = self.rng.choose(&with).files.names.all();
        let here = names.filter(|((parent, name), _)| *parent == directory && (from..=to).contains(name));
        StagedRange { directory, open, files: here.map(|((_, name), ino)| (name, ino)).collect() }
    }

    fn draw_op(&mut self) -> TreeOp {
        match self.rng.below(22) {
            0..4 => TreeOp::Make(self.target()),
            4..7 => TreeOp::Mkdir(self.target()),
            7..9 => TreeOp::Rmdir(self.named(true)),
            9..11 => TreeOp::Unlink(self.named(false)),
            11..13 => TreeOp::Set(self.named(false), self.rng.next()),
            18 if self.rng.chance(END_ONE_IN) => TreeOp::EndSession,
            19 => {
                let limit = if self.rng.chance(6) { None } else { Some(self.rng.below(LIMIT_MAX)) };
                TreeOp::Limit(self.named(true), limit)
            }
            13 => TreeOp::Chmod(self.named(true), !self.rng.chance(4)),
            14 => TreeOp::Rename(self.named(true), self.inside()),
            15 | 16 => TreeOp::Rename(self.with_files(), self.inside()),
            17 => TreeOp::Rename(self.named(false), self.target()),
            _ => TreeOp::Link(self.named(false), self.target()),
        }
    }

    /// Any name, there or not.
    fn target(&mut self) -> ChangePath {
        let known: Vec<Ino> = self.oracle.directories.keys().copied().collect();
        let limited: Vec<Ino> = self.oracle.limits.keys().copied().collect();
        let base = match self.rng.below(6) {
            0 | 1 => Ino::ROOT,
            2 | 3 if !limited.is_empty() => *self.rng.choose(&limited),
            _ => *self.rng.choose(&known),
        };
        let depth = if self.rng.chance(3) { self.rng.between(1, 2) } else { 0 };
        let way = (0..depth).map(|_| self.rng.below(NAMES) as Name).collect();
        ChangePath { base, way, name: self.rng.below(NAMES) as Name }
    }

    /// A name in a directory that is there: where a directory moves to, below itself perhaps.
    fn inside(&mut self) -> ChangePath {
        let known: Vec<Ino> = self.oracle.directories.keys().copied().collect();
        ChangePath { base: *self.rng.choose(&known), way: Vec::new(), name: self.rng.below(NAMES) as Name }
    }

    /// A directory that is above another one.
    fn above(&mut self, mut directory: Ino) -> Option<ChangePath> {
        let mut above = Vec::new();
        while let Some((parent, _)) = self.oracle.directories.get(&directory).filter(|_| directory != Ino::ROOT) {
            above.push(directory);
            directory = *parent;
        }
        let directory = *above.get(self.rng.below(above.len().max(1) as u64) as usize)?;
        let found = self.oracle.entries.iter().find(|(_, ino)| **ino == directory);
        let (base, name) = *found.expect("each directory but the root has a name").0;
        Some(ChangePath { base, way: Vec::new(), name })
    }

    /// The name of a directory that has files, as a rule.
    fn with_files(&mut self) -> ChangePath {
        let parents: BTreeSet<Ino> =
            self.oracle.entries.iter().filter(|(_, ino)| !ino.is_directory()).map(|((parent, _), _)| *parent).collect();
        let entries = self.oracle.entries.iter().filter(|(_, ino)| parents.contains(ino));
        let known: Vec<(Ino, Name)> = entries.map(|(place, _)| *place).collect();
        if known.is_empty() {
            return self.named(true);
        }
        let (base, name) = *self.rng.choose(&known);
        ChangePath { base, way: Vec::new(), name }
    }

    /// A name that a directory or a file has, as a rule.
    fn named(&mut self, of_directory: bool) -> ChangePath {
        let entries = self.oracle.entries.iter().filter(|(_, ino)| ino.is_directory() == of_directory);
        let known: Vec<(Ino, Name)> = entries.map(|(place, _)| *place).collect();
        if known.is_empty() || self.rng.chance(5) {
            return self.target();
        }
        let (base, name) = *self.rng.choose(&known);
        ChangePath { base, way: Vec::new(), name }
    }

    /// A front-end answers its client, or tries again with what the names have now.
    pub(super) fn answer(&mut self, at: Position, answer: Answer) -> Verdict {
        let RequestName { session, seq: Seq(seq), attempt } = self.requests[&at];
        if answer.is_change() {
            let known = self.aliases.get(&(session, seq)).copied().unwrap_or(seq);
            let first = *self.effects.entry((session, known)).or_insert(at);
            if first != at {
                return broken(Rule::Once, format!("request {known} of {session} ran at {first} and at {at}"));
            }
        }
        let Some(client) = self.clients.get_mut(&session) else { return Ok(()) };
        let Some(request) = client.open.get_mut(&seq).filter(|request| request.attempt == attempt) else {
            return Ok(());
        };
        let is_edit = matches!(request.op, TreeOp::Stage(..) | TreeOp::Commit(..) | TreeOp::DropEdit(_));
        if matches!(answer, Answer::Superseded | Answer::NeedsRoom) && !is_edit {
            request.attempt += 1;
            request.gathers |= answer == Answer::NeedsRoom;
            request.sent = self.now_ms;
            self.send(session, seq);
            return Ok(());
        }
        let request = client.open.remove(&seq).expect("it is open");
        self.counts.answered += 1;
        if answer == Answer::UnknownSession || request.op == TreeOp::EndSession {
            // The client gives up what has no answer yet, and begins anew.
            self.clients.remove(&session);
            self.newest_session += 1;
            self.clients.insert(SessionId(self.newest_session), NamesClient::default());
        } else if is_edit {
            self.answer_edit(session, request.op, answer);
        }
        Ok(())
    }

    /// What a client does with the answer to a part of an edit.
    fn answer_edit(&mut self, session: SessionId, op: TreeOp, answer: Answer) {
        let (TreeOp::Stage(id, ..) | TreeOp::Commit(id, ..) | TreeOp::DropEdit(id)) = &op else { return };
        let edits = &mut self.clients.get_mut(&session).expect("it has an answer").edits;
        // An edit goes on until its commit is answered, but a broken client has a second one on its way.
        let Some(edit) = edits.get_mut(&id.number) else { return };
        match (&op, answer) {
            (TreeOp::Stage(..), answer) => {
                edit.answered += 1;
                edit.overloaded |= answer == Answer::Overloaded;
            }
            (TreeOp::Commit(..), Answer::StagesMissing) => edit.ends = false,
            (TreeOp::Commit(..), Answer::Superseded) => {
                let OpenEdit { change, plans, .. } = edits.remove(&id.number).expect("it is there");
                if plans == self.plans_max {
                    self.counts.busy += 1;
                } else {
                    self.counts.replanned += 1;
                    self.plan_edit(session, change, plans + 1);
                }
            }
            _ => {
                self.counts.overloaded += u64::from(edit.overloaded);
                edits.remove(&id.number);
            }
        }
    }
}

/// Names in a directory: few, so that changes meet.
const NAMES: u64 = 4;
/// A client waits so long before it sends a request again, and twice as long each time.
const REPEAT_MS: u64 = 60;
/// But no longer than after so many times.
const REPEATS_COUNTED: u32 = 4;
/// Limits are lower.
const LIMIT_MAX: u64 = 6;
/// Of renames, so many come with a limit above their new place.
const LIMIT_ONE_IN: u64 = 4;
/// Requests of a client without an answer.
const OPEN_MAX: usize = 6;
/// Of what clients ask for, so many are one edit.
const EDIT_ONE_IN: u64 = 10;
/// Of links, so many end a session instead.
const END_ONE_IN: u64 = 6;
