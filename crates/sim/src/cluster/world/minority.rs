//! A majority of the servers is lost when everything is whole: each server that is left answers for the past, at once
//! and in full, and for nothing that it cannot know.
//!
//! Checks: an instant that a server named as now is readable two and a half seconds later whatever was lost since (two
//! that are promised, and the clocks' difference here); names and bytes equal the answers of all servers; nothing is
//! reported as missing where nothing was lost; an answer says that its server has no lease; an instant that only a
//! majority could close is refused.

use std::collections::BTreeSet;

use frieze_base::{ChunkId, Fault, InodeId, NodeId, Reason, Seq};
use frieze_disk::CrashKind;
use frieze_hlc::Hlc;
use frieze_node::WentOn;
use frieze_wire::message::{InstantInfo, List, Now, Open, Read, Reply, Request, View};
use frieze_wire::txn::Target;

use super::super::client::Route;
use super::super::history::{Cells, FileInfo};
use super::super::plan::CHAINS;
use super::super::work::{CELL_BYTES, CELLS, CELLS_PER_CHUNK, ClusterMix, FILES, Worker, chunk_of, offset_of};
use super::audit::is_whole_member;
use super::{CALM_US_MAX, ClusterEvent, ClusterWorld};
use crate::violation::{Rule, Verdict, broken};

/// An instant closes within so long of when it was named as now, by whichever clock.
const CLOSES_US: u64 = 2_500_000;
/// Time after which every lease of the lost servers has ended, in microseconds.
const LEASES_US: u64 = 3_000_000;
/// Time within which a server with the bytes answers, in microseconds: it waits for no other server.
const ANSWERS_US: u64 = 1_000_000;

/// A server that is left, and the chains that it has whole.
#[derive(Clone, Debug)]
struct MinorityServer {
    node: NodeId,
    chains: BTreeSet<u32>,
}

impl ClusterWorld {
    /// Loses a majority, checks the rest, and restarts all servers.
    pub(super) fn lose_majority(&mut self, mix: ClusterMix) -> Verdict {
        let index = self.clients.len();
        self.add_client(index, mix, Worker::name_an_instant);
        self.until(CALM_US_MAX, "somebody says what time it is", ClusterWorld::is_idle)?;
        let Some(at) = self.history().named else { return Ok(()) };
        self.run_for(CLOSES_US)?;
        let mut left: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].serving().is_some()).collect();
        if left.is_empty() {
            return Ok(());
        }
        let survive = self.rng.between(1, ((left.len() as u64 - 1) / 2).max(1)) as usize;
        while left.len() > survive {
            let lost = self.rng.below(left.len() as u64) as usize;
            let lost = left.swap_remove(lost);
            self.nodes[lost].stays_away = true;
            self.die(lost, CrashKind::Process);
        }
        let node = *self.rng.choose(&left);
        let left: Vec<MinorityServer> = left.into_iter().map(|node| self.left(node)).collect();
        self.say(|| format!("a majority is lost: {left:?} are left, and are asked about {at}"));
        self.run_for(LEASES_US)?;
        let is_lost = self.leader().is_none();
        if self.rng.chance(2) {
            // They know what they have closed after a restart, too, without a leader that sends them their role.
            let kind = if self.rng.chance(2) { CrashKind::Process } else { CrashKind::Power };
            let restarted: Vec<usize> = left.iter().map(|left| self.index_of(left.node)).collect();
            restarted.iter().for_each(|node| self.die(*node, kind));
            let serve = move |world: &ClusterWorld| restarted.iter().all(|node| world.nodes[*node].serving().is_some());
            self.until(CALM_US_MAX, "those that are left serve again", serve)?;
        }
        let index = self.clients.len();
        let may_lack = self.history().buried_us.is_some();
        self.add_client(index, mix, move |worker| worker.ask_minority(&left, at, is_lost, may_lack));
        self.until(CALM_US_MAX, "the past is answered by those that are left", ClusterWorld::is_idle)?;
        if self.plan.goes_on_alone {
            return self.go_on_alone(node, mix, at);
        }
        for node in 0..self.nodes.len() {
            if std::mem::take(&mut self.nodes[node].stays_away) {
                self.after(0, ClusterEvent::Start(node));
            }
        }
        self.until(CALM_US_MAX, "every chain is whole again", ClusterWorld::is_whole)
    }

    /// All other servers are lost for good: this one continues alone.
    fn go_on_alone(&mut self, node: usize, mix: ClusterMix, at: Hlc) -> Verdict {
        for lost in 0..self.nodes.len() {
            self.nodes[lost].stays_away = true;
            if self.nodes[lost].engine.is_some() {
                self.die(lost, CrashKind::Process);
            }
            self.nodes[lost].is_gone = lost != node;
        }
        let (id, now_us) = (self.nodes[node].id, self.now_us);
        let (went_on, full) = match self.nodes[node].go_on_alone() {
            Ok(went_on) => went_on,
            Err(fault) => return broken(Rule::Past, format!("{id} cannot go on alone: {:?}: {fault}", fault.reason)),
        };
        self.say(|| format!("{id} goes on alone: {went_on:?}, with chains {full:?}"));
        self.has_gone_on = true;
        // What was lost before may be missing at any later instant.
        let may_lack = {
            let mut history = self.history();
            let may_lack = history.buried_us.is_some();
            history.buried_us.get_or_insert(now_us);
            let lacks: Vec<u32> = (0..CHAINS).filter(|chain| !full.contains(chain)).collect();
            history.ruined.extend((!lacks.is_empty()).then_some(now_us));
            history.lost.extend(lacks.into_iter().map(|chain| (now_us, chain)));
            may_lack
        };
        self.nodes[node].stays_away = false;
        self.after(0, ClusterEvent::Start(node));
        self.until(CALM_US_MAX, "the one that is left is whole by itself", ClusterWorld::is_whole)?;
        let (index, left) = (self.clients.len(), MinorityServer { node: id, chains: full });
        self.add_client(index, mix, move |worker| worker.ask_survivor(&left, at, went_on, may_lack));
        self.until(CALM_US_MAX, "the one that is left answers", ClusterWorld::is_idle)
    }

    fn left(&self, node: usize) -> MinorityServer {
        let id = self.nodes[node].id;
        let chains = self.nodes[node].engine.as_ref().map_or_else(Vec::new, |engine| engine.planes.chains());
        let whole = chains.iter().filter(|status| is_whole_member(id, status)).map(|status| status.chain).collect();
        MinorityServer { node: id, chains: whole }
    }
}

/// Why an answer of a remaining server is wrong.
type Wrong = String;

impl Worker {
    /// Asks a server for the present instant, as `frieze now` does.
    fn name_an_instant(mut self) {
        let node = self.client.any_node();
        if let Ok((Reply::Now(reply), ..)) =
            self.client.call(Route::At(node), &Request::Now(Now::default()), &[], Seq(0))
        {
            self.history().named = Some(Hlc(reply.at));
        }
        self.client.port().doing.clear();
    }

    fn ask_minority(mut self, left: &[MinorityServer], at: Hlc, is_lost: bool, may_lack: bool) {
        for left in left {
            if let Err(wrong) = self.ask_left(left, at, is_lost, may_lack) {
                let what = format!("a majority is lost, and {}: {wrong}", left.node);
                self.history().note::<()>(broken(Rule::Past, what));
                break;
            }
        }
        self.client.port().doing.clear();
    }

    fn ask_survivor(mut self, left: &MinorityServer, at: Hlc, went_on: WentOn, may_lack: bool) {
        let asked = self.read_alone(left, at).and_then(|incomplete| match incomplete {
            // Of a file that is open for writing every chain may hold some: one without a copy here speaks for it, too.
            Some(true) if at <= went_on.from && !may_lack && left.chains.len() == CHAINS as usize => {
                Err(format!("what is whole up to {} is incomplete at {at}", went_on.from))
            }
            _ => Ok(()),
        });
        let asked = asked.and_then(|()| match self.read_alone(left, went_on.to.previous())? {
            None | Some(true) => Ok(()),
            Some(false) => Err(format!("nothing is missing just before {}, of which nobody can know", went_on.to)),
        });
        if let Err(wrong) = asked {
            let what = format!("{} goes on alone ({went_on:?}), and: {wrong}", left.node);
            self.history().note::<()>(broken(Rule::Past, what));
        }
        self.client.port().doing.clear();
    }

    /// Reads the first cells of every file at an instant. Returns whether an answer reports that something may be
    /// missing, if there is an answer; bytes reported as complete equal the earlier ones.
    fn read_alone(&mut self, left: &MinorityServer, at: Hlc) -> Result<Option<bool>, Wrong> {
        let mut is_incomplete = None;
        for file in 0..FILES {
            let FileInfo { path, inode } = self.file(file);
            let chunk = ChunkId { inode: InodeId(inode), index: chunk_of(0) };
            if !left.chains.contains(&chunk.chain(CHAINS).0) {
                continue;
            }
            let cells = Cells { file, first: 0, count: CELLS_PER_CHUNK - 1 };
            let view = View { at: Some(at.0), user_at: None };
            let open = Open { target: Target::path(path.clone()), view, read: true, write: false, made_at: 0 };
            let refused = |fault: Fault| format!("{path} at {at} is refused: {:?}: {fault}", fault.reason);
            let Reply::Open(opened) =
                self.client.ask_one(left.node, &Request::Open(open), ANSWERS_US).map_err(refused)?.0
            else {
                return Err("it answers something else".to_owned());
            };
            let len = cells.count * CELL_BYTES;
            let read = Read { capability: opened.capability, offset: 0, len: len as u32, ..Read::default() };
            let (Reply::Read(reply), mut payload) =
                self.client.ask_one(left.node, &Request::Read(read), ANSWERS_US).map_err(refused)?
            else {
                return Err("it answers something else".to_owned());
            };
            payload.resize(len as usize, 0);
            is_incomplete = Some(is_incomplete == Some(true) || reply.answered.incomplete);
            if let Some(values) = self.values(cells, &payload, left.node)
                && !reply.answered.incomplete
            {
                self.history().remember_cells(cells, at, &values, left.node);
            }
        }
        Ok(is_incomplete)
    }

    fn ask_left(&mut self, left: &MinorityServer, at: Hlc, is_lost: bool, may_lack: bool) -> Result<(), Wrong> {
        let says = |answered: &InstantInfo| match answered {
            InstantInfo { incomplete: true, .. } if !may_lack => {
                Err(format!("something was lost before {at}: {answered:?}"))
            }
            InstantInfo { without_lease: false, .. } if is_lost => Err(format!("it vouches for all of {answered:?}")),
            _ => Ok(()),
        };
        let refused = |what: &str, fault: Fault| format!("{what} at {at} is refused: {:?}: {fault}", fault.reason);
        let view = View { at: Some(at.0), user_at: None };
        let list = |view| List { target: Target::path("/names"), view, count_max: 10_000, ..List::default() };
        match self.client.ask_one(left.node, &Request::List(list(view)), ANSWERS_US) {
            Ok((Reply::List(reply), _)) => {
                says(&reply.answered)?;
                let names = reply.entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned());
                let names = names.collect();
                self.history().remember_names(at, names, left.node);
            }
            Ok(_) => return Err("it answers something else".to_owned()),
            Err(fault) => return Err(refused("a listing", fault)),
        }
        for file in 0..FILES {
            let FileInfo { path, inode } = self.file(file);
            let open = |view| Open { target: Target::path(path.clone()), view, read: true, write: false, made_at: 0 };
            let opened = match self.client.ask_one(left.node, &Request::Open(open(view)), ANSWERS_US) {
                Ok((Reply::Open(reply), _)) => reply,
                Ok(_) => return Err("it answers something else".to_owned()),
                // How long it is the servers know that have its chunks.
                Err(_) if left.chains.len() < CHAINS as usize => continue,
                Err(fault) => return Err(refused(&path, fault)),
            };
            // Those at the beginning of each chunk, and the one at its end.
            let begins = (0..CELLS).step_by(CELLS_PER_CHUNK as usize);
            let ranges = begins.flat_map(|first| [(first, CELLS_PER_CHUNK - 1), (first + CELLS_PER_CHUNK - 1, 1)]);
            for (first, count) in ranges {
                let chunk = ChunkId { inode: InodeId(inode), index: chunk_of(first) };
                if !left.chains.contains(&chunk.chain(CHAINS).0) {
                    continue;
                }
                let cells = Cells { file, first, count };
                let capability = opened.capability.clone();
                let len = count * CELL_BYTES;
                let read = Read { capability, offset: offset_of(first), len: len as u32, ..Read::default() };
                match self.client.ask_one(left.node, &Request::Read(read), ANSWERS_US) {
                    Ok((Reply::Read(reply), mut payload)) => {
                        says(&reply.answered)?;
                        payload.resize(len as usize, 0);
                        if let Some(values) = self.values(cells, &payload, left.node)
                            && !reply.answered.incomplete
                        {
                            self.history().remember_cells(cells, at, &values, left.node);
                        }
                    }
                    Ok(_) => return Err("it answers something else".to_owned()),
                    // Another chain, which is not here, has a part of it.
                    Err(_) if left.chains.len() < CHAINS as usize => {}
                    Err(fault) => return Err(refused(&format!("a read of chunk {} of {path}", chunk.index), fault)),
                }
            }
        }
        if !is_lost {
            return Ok(());
        }
        // A minority cannot close the present instant.
        let now = match self.client.ask_one(left.node, &Request::Now(Now::default()), ANSWERS_US) {
            Ok((Reply::Now(reply), _)) => reply.at,
            Ok(_) => return Err("it answers something else".to_owned()),
            Err(fault) => return Err(refused("the time", fault)),
        };
        let view = View { at: Some(now), user_at: None };
        match self.client.ask_one(left.node, &Request::List(list(view)), ANSWERS_US) {
            Ok(_) => Err(format!("it answers for {}, which nobody has closed", Hlc(now))),
            Err(fault) if fault.reason == Reason::Internal => Err(refused("an instant that is not closed", fault)),
            Err(_) => Ok(()),
        }
    }
}
