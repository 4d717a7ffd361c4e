//! Chains that this server has no part in: what it has to know of them it asks their members.
//!
//! Guarantees: what is told of such a chain was told by a member that had a part in it, and a lease where it is about now, after
//! everything was looked up; so it is what that member would have answered a client. Who cannot be asked is not guessed.
//! Leaves to others: which servers those are (`cluster`), how questions and answers travel ([`crate::questions`]).
//!
//! A cluster of more servers than copies has no server with everything. Bytes are asked for by clients, chunk by chunk, where they
//! are. The length of a file with open writers, and what orders a change of names among writes, is asked for here, of one member for
//! as many chains as it has.

mod records;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use frieze_base::{ChainId, ErrorKind, Fault, InodeId, LogIndex, NodeId, Reason};
use frieze_hlc::Hlc;
use frieze_multilog::Tail;
use frieze_wire::message::FileKind;
use frieze_wire::peer::{
    About, CloseAfter, FileReach, FileTail, PersistAsk, Question, QuestionAnswer, ReachAsk, Told, TouchedAsk,
};

use crate::data::{Gather, Layout};
use crate::engine::Engine;
use crate::meta::idle_until;
use crate::peers::{PeerPayload, Peers};
use crate::questions::Answered;
use crate::seen::{Seen, layout_of};

/// What other servers say of files, for one look at them.
#[derive(Clone, Default)]
pub(crate) struct Elsewhere {
    /// The chains that are not read here.
    pub(crate) chains: BTreeSet<ChainId>,
    /// How far files reach in the chunks of these chains that writers may write.
    pub(crate) tails: BTreeMap<InodeId, Tail>,
    /// Everything in them that is stamped up to this was counted; `None` if nobody was asked.
    pub(crate) complete: Option<Hlc>,
}

/// Which records of a file count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Counted {
    /// What is committed now.
    Committed,
    /// What is not as well.
    All,
    /// What is stamped up to an instant.
    Upto(Hlc),
}

impl Counted {
    fn of(seen: &Seen) -> Counted {
        match seen.upto {
            None => Counted::Committed,
            Some(Hlc::MAX) => Counted::All,
            Some(at) => Counted::Upto(at),
        }
    }

    fn instant(self) -> Option<Hlc> {
        match self {
            Counted::Committed | Counted::All => None,
            Counted::Upto(at) => Some(at),
        }
    }
}

/// Chunks of files whose reach is asked for.
type Files = Vec<(InodeId, FileReach, BTreeSet<ChainId>)>;

impl Engine {
    /// The chains that cannot be read here at `at`, or now.
    pub(crate) fn chains_elsewhere(&self, at: Option<Hlc>) -> BTreeSet<ChainId> {
        if !self.data.is_shared() {
            return BTreeSet::new();
        }
        let chains = (0..self.data.chain_count()).map(ChainId);
        chains.filter(|chain| self.data.check_here(*chain, at.filter(|at| *at != Hlc::MAX)).is_err()).collect()
    }

    /// What others have to say of how long these files are. Not to be called with a lock in hand: it asks them.
    ///
    /// # Errors
    /// `Unavailable` if nobody who knows answers.
    pub(crate) fn reach_elsewhere(&self, seen: &[&Seen]) -> Result<Elsewhere, Fault> {
        let mut elsewhere = Elsewhere::default();
        if !self.data.is_shared() {
            return Ok(elsewhere);
        }
        let mut asked: BTreeMap<Counted, Files> = BTreeMap::new();
        for seen in seen.iter().filter(|seen| seen.inode.kind() == FileKind::File) {
            let away = self.chains_elsewhere(seen.upto);
            let ranges = seen.inode.grants().iter().flat_map(|grant| &grant.chunks).filter(|chunks| !chunks.is_empty());
            let runs: Vec<(u32, u32)> = ranges.map(|chunks| (chunks.start, chunks.end - 1)).collect();
            let (layout, after) = (layout_of(seen.id, &seen.inode), seen.inode.size_as_of);
            let (files, chains) = files_of(layout, after, &runs, &away);
            elsewhere.chains.extend(away);
            if !chains.is_empty() {
                asked.entry(Counted::of(seen)).or_default().push((seen.id, files, chains));
            }
        }
        for (counted, files) in asked {
            self.ask_reach(counted, files, &mut elsewhere)?;
        }
        Ok(elsewhere)
    }

    /// How far a file reaches in all of its chunks that are elsewhere, committed or not, counting records stamped after `after`.
    ///
    /// # Errors
    /// As [`Engine::reach_elsewhere`].
    pub(crate) fn whole_reach_elsewhere(&self, layout: Layout, after: Hlc) -> Result<Elsewhere, Fault> {
        let away = self.chains_elsewhere(None);
        let mut elsewhere = Elsewhere::default();
        if !away.is_empty() {
            let (files, chains) = files_of(layout, after, &[(0, u32::MAX)], &away);
            elsewhere.chains.extend(away);
            self.ask_reach(Counted::All, vec![(layout.inode, files, chains)], &mut elsewhere)?;
        }
        Ok(elsewhere)
    }

    /// Whether somebody wrote to one of these files, where it is elsewhere, after `since`.
    ///
    /// # Errors
    /// As [`Engine::reach_elsewhere`].
    pub(crate) fn is_written_elsewhere_since(&self, files: &[InodeId], since: Hlc) -> Result<bool, Fault> {
        for &id in files {
            let Some(inode) = self.meta.namespace().current(id).cloned() else { continue };
            let seen = Seen::at(id, inode, Some(Hlc::MAX));
            let elsewhere = self.reach_elsewhere(&[&seen])?;
            if elsewhere.tails.values().any(|tail| tail.newest.is_some_and(|newest| newest > since)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn ask_reach(&self, counted: Counted, files: Files, into: &mut Elsewhere) -> Result<(), Fault> {
        let all: BTreeSet<ChainId> = files.iter().flat_map(|(_, _, chains)| chains).copied().collect();
        let about = |chains: &BTreeSet<ChainId>| {
            let concerned = files.iter().filter(|(_, _, of)| !of.is_disjoint(chains));
            let files = concerned.map(|(_, file, _)| file.clone()).collect();
            About::Reach(ReachAsk { files, uncommitted: counted == Counted::All })
        };
        let ask = Inquiry { at: counted.instant(), about: &about };
        for (chains, (answer, _)) in self.ask_members(all, &ask)? {
            let concerned: Vec<_> = files.iter().filter(|(_, _, of)| !of.is_disjoint(&chains)).collect();
            if concerned.len() != answer.tails.len() {
                return Err(Fault::new(
                    Reason::BadFrame,
                    "malformed frame: an answer about other files than were asked about",
                ));
            }
            for ((id, _, _), found) in concerned.into_iter().zip(&answer.tails) {
                let tail = into.tails.entry(*id).or_default();
                tail.highest = tail.highest.max(found.chunk.map(|chunk| (chunk, found.end)));
                tail.newest = tail.newest.max(found.newest.map(Hlc));
            }
            let complete = into.complete.unwrap_or(Hlc::MAX).min(Hlc(answer.complete));
            into.complete = Some(complete);
        }
        Ok(())
    }

    /// Orders a change of metadata among the writes of these chains, whoever has them.
    ///
    /// # Errors
    /// `Unavailable` if a chain's servers do not answer: ask again.
    pub(crate) fn order(&self, at: Hlc, entry: LogIndex, chains: &BTreeSet<ChainId>) -> Result<(), Fault> {
        let away = self.order_elsewhere(at, entry, chains)?;
        let here: BTreeSet<ChainId> = chains.difference(&away).copied().collect();
        self.data.order(at, entry, &here)
    }

    /// The same of those that this server has no part in. Returns which those are.
    ///
    /// # Errors
    /// As [`Engine::order`].
    pub(crate) fn order_elsewhere(
        &self,
        at: Hlc,
        entry: LogIndex,
        chains: &BTreeSet<ChainId>,
    ) -> Result<BTreeSet<ChainId>, Fault> {
        let away: BTreeSet<ChainId> = self.chains_elsewhere(None).intersection(chains).copied().collect();
        if !away.is_empty() {
            let about = |_: &BTreeSet<ChainId>| About::Order(CloseAfter { at: at.0, entry: entry.0 });
            self.ask_members(away.clone(), &Inquiry { at: None, about: &about })?;
        }
        Ok(away)
    }

    /// Returns when everything acknowledged so far of these chains, which this server has no part in, is on stable storage at their
    /// members.
    ///
    /// # Errors
    /// `Unavailable` if one of them does not answer; what a flush there failed with.
    pub(crate) fn persist_elsewhere(&self, away: BTreeSet<ChainId>) -> Result<(), Fault> {
        if away.is_empty() {
            return Ok(());
        }
        let about = |_: &BTreeSet<ChainId>| About::Persist(PersistAsk {});
        self.ask_members(away, &Inquiry { at: None, about: &about }).map(drop)
    }

    /// The files that chains which are not here have records of, stamped in `(after, upto]`; and perhaps others.
    ///
    /// # Errors
    /// As [`Engine::reach_elsewhere`].
    pub(crate) fn touched_elsewhere(&self, after: Hlc, upto: Hlc) -> Result<BTreeSet<InodeId>, Fault> {
        let away = self.chains_elsewhere(Some(upto));
        if away.is_empty() {
            return Ok(BTreeSet::new());
        }
        let about = |_: &BTreeSet<ChainId>| About::Touched(TouchedAsk { after: after.0, upto: upto.0 });
        let answers = self.ask_members(away, &Inquiry { at: Some(upto), about: &about })?;
        Ok(answers.into_iter().flat_map(|(_, (answer, _))| answer.inodes).map(InodeId).collect())
    }

    /// Whether every chunk that a file has bytes in can be read here: for what is asked of the whole of a file at one server.
    ///
    /// # Errors
    /// `Unsupported` if it cannot.
    pub(crate) fn check_whole_here(&self, seen: &Seen) -> Result<(), Fault> {
        let away = self.chains_elsewhere(seen.upto);
        if away.is_empty() || seen.inode.kind() != FileKind::File {
            return Ok(());
        }
        let layout = layout_of(seen.id, &seen.inode);
        let granted = seen.inode.grants().iter().flat_map(|grant| grant.chunks.iter().cloned().flatten());
        let settled = 0..u32::try_from(seen.inode.size.div_ceil(layout.chunk_bytes)).unwrap_or(u32::MAX);
        let met = settled.take(EVERY_CHAIN_MAX).chain(granted.take(EVERY_CHAIN_MAX)).map(|index| layout.chain(index));
        if met.into_iter().any(|chain| away.contains(&chain)) {
            return Err(not_whole_here(seen.id));
        }
        Ok(())
    }

    /// Asks for each of these chains a member of it, as few as there can be, until all have answered.
    fn ask_members(
        &self,
        chains: BTreeSet<ChainId>,
        ask: &Inquiry<'_>,
    ) -> Result<Vec<(BTreeSet<ChainId>, Answered)>, Fault> {
        crate::reading::check_none_held();
        let began = self.clock.reading().mono;
        let (mut left, mut answers, mut round) = (chains, Vec::new(), 0u32);
        let mut why = None;
        while !left.is_empty() {
            if self.clock.reading().mono.since_ns(began) > PATIENCE.as_nanos() as u64 {
                return Err(why.unwrap_or_else(|| nobody_answers(&left)));
            }
            let asked: Vec<(u64, NodeId, BTreeSet<ChainId>)> = self
                .members_for(&left, round)
                .into_iter()
                .map(|(node, chains)| {
                    let id = self.questions.begin();
                    let about = Some((ask.about)(&chains));
                    let named = chains.iter().map(|chain| chain.0).collect();
                    let question = Question { id, chains: named, at: ask.at.map(|at| at.0), about };
                    self.way.tell(node, Told::Question(question), PeerPayload::none());
                    (id, node, chains)
                })
                .collect();
            if let (true, Some(chain)) = (asked.is_empty(), left.first()) {
                return Err(frieze_chain::Error::NotMember { chain: *chain }.into());
            }
            let ids: Vec<u64> = asked.iter().map(|(id, _, _)| *id).collect();
            self.await_answers(&ids);
            let before = left.len();
            let told: Vec<_> =
                asked.into_iter().map(|(id, node, chains)| (self.questions.end(id), node, chains)).collect();
            for (answered, node, chains) in told {
                let Some((answer, payload)) = answered else { continue };
                match answer.refused.clone().map(Fault::from) {
                    None => {
                        left.retain(|chain| !chains.contains(chain));
                        answers.push((chains, (answer, payload)));
                    }
                    // It may have a part in them no more, or not yet, or be behind: another knows.
                    Some(fault) if matches!(fault.kind(), ErrorKind::Unavailable | ErrorKind::StaleEpoch) => {
                        tracing::debug!(%node, "a server does not answer for chains: {fault}");
                        why = Some(fault);
                    }
                    Some(fault) => return Err(fault),
                }
            }
            if left.len() == before {
                self.pause();
            }
            round += 1;
        }
        Ok(answers)
    }

    /// Waits for answers to these questions, as long as another server is given.
    fn await_answers(&self, ids: &[u64]) {
        match self.meta.idle().get() {
            Some(idle) => {
                let look = || self.questions.have_come(ids).then_some(());
                let _in_time = idle_until(idle, &|| self.clock.reading().mono, ROUND, look);
            }
            None => self.questions.wait(ids, ROUND),
        }
    }

    /// Nobody could answer: who has a part in what changes soon.
    fn pause(&self) {
        match self.meta.idle().get() {
            Some(idle) => drop(idle_until(idle, &|| self.clock.reading().mono, PAUSE, || None::<()>)),
            None => self.questions.rest(PAUSE),
        }
    }

    /// Whom to ask about these chains: few servers, each for all it has. After the first round one of each chain is asked, another
    /// each time.
    fn members_for(&self, chains: &BTreeSet<ChainId>, round: u32) -> Vec<(NodeId, BTreeSet<ChainId>)> {
        let me = self.node();
        let mut members: BTreeMap<ChainId, Vec<NodeId>> = BTreeMap::new();
        self.meta.look_at_control(&mut |state| {
            for chain in chains.iter().filter_map(|id| state.chain(*id)) {
                let serving = chain.serving().filter(|target| state.is_alive(target)).map(|target| target.node);
                let mut nodes: Vec<NodeId> = serving.filter(|node| *node != me).collect();
                if !nodes.is_empty() {
                    let first = round as usize % nodes.len();
                    nodes.rotate_left(first);
                    members.insert(chain.id, nodes);
                }
            }
        });
        let mut asked: BTreeMap<NodeId, BTreeSet<ChainId>> = BTreeMap::new();
        while !members.is_empty() {
            let mut counts: BTreeMap<NodeId, usize> = BTreeMap::new();
            for nodes in members.values() {
                nodes.iter().take(if round == 0 { usize::MAX } else { 1 }).for_each(|node| {
                    *counts.entry(*node).or_default() += 1;
                });
            }
            let Some((&node, _)) = counts.iter().max_by_key(|(node, count)| (**count, std::cmp::Reverse(**node)))
            else {
                break;
            };
            let may =
                |nodes: &Vec<NodeId>| if round == 0 { nodes.contains(&node) } else { nodes.first() == Some(&node) };
            let taken: BTreeSet<ChainId> =
                members.iter().filter(|(_, nodes)| may(nodes)).map(|(chain, _)| *chain).collect();
            members.retain(|chain, _| !taken.contains(chain));
            asked.entry(node).or_default().extend(taken);
        }
        asked.into_iter().collect()
    }

    /// Answers what other servers ask, until this one stops: for threads of their own.
    pub fn answer_questions(&self) {
        while let Some((from, question)) = self.questions.next() {
            self.answer_question(from, &question);
        }
    }

    /// The same for a process with one thread: what there is now.
    pub fn answer_what_is_asked(&self) {
        while let Some((from, question)) = self.questions.take() {
            self.answer_question(from, &question);
        }
    }

    /// Ends [`Engine::answer_questions`].
    pub fn stop_answering(&self) {
        self.questions.stop();
    }

    fn answer_question(&self, from: NodeId, question: &Question) {
        let id = question.id;
        let (answer, payload) = self.answer_to(question).unwrap_or_else(|fault| {
            let refused = Some(fault.into());
            (QuestionAnswer { refused, ..QuestionAnswer::default() }, Vec::new())
        });
        let payload = PeerPayload { bytes: payload.into(), crc: None };
        self.way.tell(from, Told::QuestionAnswer(QuestionAnswer { id, ..answer }), payload);
        self.questions.done(from, id);
    }

    fn answer_to(&self, question: &Question) -> Result<Answered, Fault> {
        let count = self.data.chain_count();
        let chains: BTreeSet<ChainId> = question.chains.iter().map(|chain| ChainId(*chain)).collect();
        let Some(about) = question.about.as_ref().filter(|_| chains.iter().all(|chain| chain.0 < count)) else {
            return Err(Fault::new(Reason::Unsupported, "a question of a kind that this server does not know"));
        };
        let at = question.at.map(Hlc);
        self.know(&chains, at)?;
        let mut answer = QuestionAnswer::default();
        match about {
            About::Reach(ask) => {
                let complete = match at {
                    Some(at) => at,
                    None => self.data.complete_upto(&chains)?,
                };
                answer.complete = complete.0;
                let tails = ask.files.iter().map(|file| self.tail_of(file, &chains, at, ask.uncommitted));
                answer.tails = tails.collect::<Result<_, _>>()?;
            }
            About::Order(after) => {
                if self.meta.appended().0 < after.entry {
                    return Err(Fault::new(Reason::Unavailable, "this server has not executed the change yet"));
                }
                self.data.order(Hlc(after.at), LogIndex(after.entry), &chains)?;
            }
            About::Persist(_) => self.persist_here(&chains)?,
            About::Touched(ask) => {
                let (files, _) = self.data.device().touched(Hlc(ask.after), Hlc(ask.upto))?;
                answer.inodes = files.into_iter().map(|id| id.0).collect();
            }
            About::Records(ask) => self.records_of(ask, &chains, &mut answer)?,
            About::Bytes(_) => {
                return Err(Fault::new(Reason::Unsupported, "a question of a kind that this server does not answer"));
            }
        }
        self.knew(&chains, at)?;
        Ok((answer, Vec::new()))
    }

    /// Sees to it that what these chains hold at `at`, or now, is known here.
    fn know(&self, chains: &BTreeSet<ChainId>, at: Option<Hlc>) -> Result<(), Fault> {
        match at {
            None => self.data.look_and_wait(chains.iter().copied())?,
            Some(at) => self.data.close_of(at, Some(chains)).map(|_| ())?,
        }
        self.check_all_here(chains, at)
    }

    /// It was known here all the time. Asked when everything has been read.
    fn knew(&self, chains: &BTreeSet<ChainId>, at: Option<Hlc>) -> Result<(), Fault> {
        self.check_all_here(chains, at)?;
        if at.is_none() { self.data.check_lease() } else { Ok(()) }
    }

    fn check_all_here(&self, chains: &BTreeSet<ChainId>, at: Option<Hlc>) -> Result<(), Fault> {
        chains.iter().try_for_each(|chain| self.data.check_here(*chain, at))
    }

    fn tail_of(
        &self,
        file: &FileReach,
        chains: &BTreeSet<ChainId>,
        at: Option<Hlc>,
        uncommitted: bool,
    ) -> Result<FileTail, Fault> {
        let inode = InodeId(file.inode);
        let layout = Layout { chunk_bytes: 1, chain_count: file.chain_count.max(1), inode };
        let log = self.data.device().log_of([inode])?;
        let cuts = self.data.cuts();
        let mut tail = Tail::default();
        for run in file.chunks.chunks_exact(2) {
            for index in log.chunks_in(inode, run[0]..=run[1]) {
                let chain = layout.chain(index);
                if !chains.contains(&chain) {
                    continue;
                }
                let upto = match at {
                    Some(at) => at,
                    None if uncommitted => Hlc::MAX,
                    None => cuts.of(chain),
                };
                let found = log.newest_in(inode, index..=index, Hlc(file.after), upto);
                tail.highest = tail.highest.max(found.highest);
                tail.newest = tail.newest.max(found.newest);
            }
        }
        let (chunk, end) = tail.highest.unzip();
        Ok(FileTail { chunk, end: end.unwrap_or(0), newest: tail.newest.map(|newest| newest.0) })
    }

    /// Waits until everything acknowledged so far of these chains is on stable storage, here and at their other members.
    fn persist_here(&self, chains: &BTreeSet<ChainId>) -> Result<(), Fault> {
        self.data.await_reply(|reply| {
            let both = Gather::new(2, reply);
            let here = both.clone();
            self.durability.when_durable(self.ticket(), Box::new(move |result| here.one(result)));
            self.data.barrier(Some(chains), Box::new(move |result| both.one(result)));
        })
    }
}

/// What is asked of each server, about some of the chains.
struct Inquiry<'a> {
    at: Option<Hlc>,
    about: &'a dyn Fn(&BTreeSet<ChainId>) -> About,
}

/// The reach of a file in these runs of chunks as others are asked for it, and the chains among `away` that it touches.
fn files_of(
    layout: Layout,
    after: Hlc,
    runs: &[(u32, u32)],
    away: &BTreeSet<ChainId>,
) -> (FileReach, BTreeSet<ChainId>) {
    let mut chains = BTreeSet::new();
    for &(first, last) in runs {
        match last - first < EVERY_CHAIN_MAX as u32 {
            true => chains.extend((first..=last).map(|index| layout.chain(index))),
            // So many chunks may be on all chains.
            false => chains.extend((0..layout.chain_count).map(ChainId)),
        }
    }
    chains.retain(|chain| away.contains(chain));
    let file = FileReach {
        inode: layout.inode.0,
        chain_count: layout.chain_count,
        after: after.0,
        chunks: runs.iter().flat_map(|(first, last)| [*first, *last]).collect(),
    };
    (file, chains)
}

fn nobody_answers(chains: &BTreeSet<ChainId>) -> Fault {
    let named: Vec<String> = chains.iter().take(4).map(ChainId::to_string).collect();
    let more = if chains.len() > named.len() { " and others" } else { "" };
    let words = format!("no server with chain {}{more} answers just now: try again", named.join(", "));
    Fault::new(Reason::Unavailable, words)
}

/// What is asked of the whole of a file needs it at one server.
pub(crate) fn not_whole_here(id: InodeId) -> Fault {
    Fault::new(
        Reason::Unsupported,
        format!(
            "inode {id} has bytes that this server has no copy of, and in this version what is asked needs all of them at one server; ask for as many copies as there are servers (frieze cluster replicas N), or for less at a time"
        ),
    )
}

/// Chunks that are looked at one by one.
const EVERY_CHAIN_MAX: usize = 1024;
/// How long a question is asked of all who may know.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one of them is waited for before another is asked.
const ROUND: Duration = Duration::from_millis(500);
/// How long until it is tried again if nobody could answer.
const PAUSE: Duration = Duration::from_millis(20);
