//! Answers requests of other servers about chains that this one is a member of.
//!
//! Guarantees: an answer is what a client of this server would get: its chains were looked at, or closed at the
//! instant, before the answer was made, and after that this server still was a member of them, with a lease if the
//! answer is about now. A record, named by its number and stamp, is the same on every server, so every server that has
//! it may send it. A thread waits for one request no longer than [`LEARNING_MAX`]; no thread waits for a flush or for
//! the head of a chain.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use frieze_base::{ChainId, ChunkId, Fault, InodeId, LogIndex, NodeId, Reason};
use frieze_hlc::Hlc;
use frieze_multilog::Tail;
use frieze_net::{PeerPayload, Peers, PeersCell};
use frieze_replication::{Gather, Layout};
use frieze_wire::peer::{
    CloseAfter, FileReach, FileTail, PeerRequest, PeerRequestKind, PeerResponse, ServerMessage, TouchedAsk,
};

use crate::files::Files;
use crate::peer_rpc::{PeerReply, PeerRpc};

/// The sender of a request, and where its answer goes.
struct Asker {
    way: Arc<PeersCell>,
    rpc: Arc<PeerRpc>,
    node: NodeId,
    id: u64,
}

impl Asker {
    fn respond(&self, answered: Result<PeerReply, Fault>) {
        let (answer, payload) = answered.unwrap_or_else(|fault| {
            let refused = Some(fault.into());
            (PeerResponse { refused, ..PeerResponse::default() }, Vec::new())
        });
        let payload = PeerPayload { bytes: payload.into(), ..PeerPayload::default() };
        self.way.send(self.node, ServerMessage::QuestionAnswer(PeerResponse { id: self.id, ..answer }), payload);
        self.rpc.done(self.node, self.id);
    }
}

impl Files {
    /// Answers requests of other servers until this one stops: for threads of their own.
    pub fn answer_questions(&self) {
        while let Some((from, question)) = self.planes.peer_rpc.next() {
            self.answer_question(from, &question);
        }
    }

    /// The same for a process with one thread: answers the requests that are queued now.
    pub fn answer_what_is_asked(&self) {
        while let Some((from, question)) = self.planes.peer_rpc.take() {
            self.answer_question(from, &question);
        }
    }

    /// Ends [`Files::answer_questions`].
    pub fn stop_answering(&self) {
        self.planes.peer_rpc.stop();
    }

    fn answer_question(&self, node: NodeId, question: &PeerRequest) {
        let asker = Asker { way: self.planes.peers.clone(), rpc: self.planes.peer_rpc.clone(), node, id: question.id };
        let count = self.planes.data.chain_count();
        let chains: BTreeSet<ChainId> = question.chains.iter().map(|chain| ChainId(*chain)).collect();
        let Some(about) = question.about.as_ref().filter(|_| chains.iter().all(|chain| chain.0 < count)) else {
            // A newer server may know this kind, among the members of these chains.
            return asker.respond(Err(Fault::new(
                Reason::Unavailable,
                "a question of a kind that this server does not know: it may be older than who asks",
            )));
        };
        match about {
            PeerRequestKind::Order(after) => self.order_for(asker, *after, &chains),
            PeerRequestKind::Persist(_) => self.persist_for(asker, &chains),
            PeerRequestKind::Record(ask) => asker.respond(self.one_record(*ask, &chains)),
            about => asker.respond(self.answer_to(about, &chains, question.at.map(Hlc))),
        }
    }

    fn answer_to(
        &self,
        about: &PeerRequestKind,
        chains: &BTreeSet<ChainId>,
        at: Option<Hlc>,
    ) -> Result<PeerReply, Fault> {
        let turns = self.planes.data.membership_count();
        self.planes.data.refresh(chains, at, LEARNING_MAX)?;
        self.check_all_here(chains, at)?;
        let (mut answer, mut payload) = (PeerResponse::default(), Vec::new());
        match (about, at) {
            (PeerRequestKind::Reach(ask), _) => {
                let complete = match at {
                    Some(at) => at,
                    None => self.planes.data.complete_upto(chains)?,
                };
                answer.complete = complete.0;
                let tails = ask.files.iter().map(|file| self.tail_of(file, chains, at, ask.uncommitted));
                answer.tails = tails.collect::<Result<_, _>>()?;
            }
            (PeerRequestKind::Touched(ask), _) => self.touched_of(ask, &mut answer)?,
            (PeerRequestKind::Records(ask), _) => self.records_of(ask, chains, &mut answer)?,
            (PeerRequestKind::Bytes(ask), _) => (answer.holes, payload) = self.bytes_of(ask, chains, at)?,
            (PeerRequestKind::Kept(ask), _) => answer = self.planes.kept.answer(ask, chains),
            // Answered when they complete, or by any server that has the record.
            (PeerRequestKind::Order(_) | PeerRequestKind::Persist(_) | PeerRequestKind::Record(_), _) => {
                return Err(Fault::new(Reason::Unsupported, "a question of a kind that this server does not answer"));
            }
        }
        if at.is_some() {
            // After it was read: what has died meanwhile counts.
            answer.expired_index = self.planes.data.expired_index().0;
        }
        // Everything is read; check that it was known here all the time.
        if at.is_none() {
            self.planes.data.check_lease_and_membership(turns)?;
        }
        self.check_all_here(chains, at)?;
        Ok((answer, payload))
    }

    fn check_all_here(&self, chains: &BTreeSet<ChainId>, at: Option<Hlc>) -> Result<(), Fault> {
        chains.iter().try_for_each(|chain| self.planes.data.check_here(*chain, at))
    }

    fn tail_of(
        &self,
        file: &FileReach,
        chains: &BTreeSet<ChainId>,
        at: Option<Hlc>,
        uncommitted: bool,
    ) -> Result<FileTail, Fault> {
        let inode = InodeId(file.inode);
        let log = self.planes.data.device().log_of([inode])?;
        let cuts = self.planes.data.cuts();
        let mut tail = Tail::default();
        for run in file.chunks.chunks_exact(2) {
            for index in log.chunks_in(inode, run[0]..=run[1]) {
                let chain = ChunkId { inode, index }.chain(file.chain_count.max(1));
                if !chains.contains(&chain) {
                    continue;
                }
                let upto = match at {
                    Some(at) => at,
                    None if uncommitted => Hlc::MAX,
                    None => cuts.of(chain),
                };
                let found = log.newest_in(inode, index..=index, Hlc(file.after), upto);
                let layout = Layout { chunk_bytes: file.chunk_bytes, chain_count: file.chain_count, inode };
                let end_of = |end| if file.chunk_bytes == 0 { end } else { layout.end_in_chunk(end) };
                tail.highest = tail.highest.max(found.highest.map(end_of));
                tail.newest = tail.newest.max(found.newest);
            }
        }
        let (chunk, end) = tail.highest.unzip();
        Ok(FileTail { chunk, end: end.unwrap_or(0), newest: tail.newest.map(|newest| newest.0) })
    }

    fn touched_of(&self, ask: &TouchedAsk, answer: &mut PeerResponse) -> Result<(), Fault> {
        let (files, _) = self.planes.data.device().files_written(Hlc(ask.after), Hlc(ask.upto), &|_| true)?;
        let mut inodes: Vec<u64> = files.into_iter().map(|id| id.0).filter(|id| *id > ask.above).collect();
        inodes.sort_unstable();
        inodes.dedup();
        if inodes.len() > TOUCHED_PAGE {
            inodes.truncate(TOUCHED_PAGE);
            answer.more_after = inodes.last().copied();
        }
        answer.inodes = inodes;
        Ok(())
    }

    /// Orders a change of metadata among the writes of these chains, and answers when that is done.
    fn order_for(&self, asker: Asker, after: CloseAfter, chains: &BTreeSet<ChainId>) {
        if self.planes.meta.appended().0 < after.entry {
            let words = "this server has not executed the change yet";
            return asker.respond(Err(Fault::new(Reason::Unavailable, words)));
        }
        let reply = Box::new(move |result: Result<(), Fault>| asker.respond(result.map(|()| PeerReply::default())));
        match self.check_all_here(chains, None) {
            Ok(()) => self.planes.data.order_change_then(Hlc(after.at), LogIndex(after.entry), chains, reply),
            refused => reply(refused),
        }
    }

    /// Answers when everything acknowledged so far on these chains is on stable storage, here and at their other
    /// members.
    fn persist_for(&self, asker: Asker, chains: &BTreeSet<ChainId>) {
        let all = Gather::new(2, Box::new(move |result| asker.respond(result.map(|()| PeerReply::default()))));
        let flushed = all.clone();
        self.planes.durability.when_durable(self.planes.ticket(), Box::new(move |result| flushed.add(result)));
        self.planes.data.barrier(Some(chains), Box::new(move |result| all.add(result)));
    }
}

/// How long to wait for the other members of a chain to learn what is committed on it: after that the asking server has
/// sent its request to another one.
const LEARNING_MAX: Duration = Duration::from_millis(500);
/// Files in one answer: some 500 KB.
const TOUCHED_PAGE: usize = 65_536;
