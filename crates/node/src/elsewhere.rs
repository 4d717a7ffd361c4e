//! Chains that this server has no part in: what it has to know of them it asks their members.
//!
//! Guarantees: what is told of such a chain was told by a member that had a part in it, and a lease where it is about
//! now, after everything was looked up; so it is what that member would have answered a client. Who cannot be asked is
//! not guessed. Leaves to others: which servers those are (`cluster`), how questions and answers travel
//! ([`crate::questions`]).
//!
//! A cluster of more servers than copies has no server with everything. Bytes are asked for by clients, chunk by chunk,
//! where they are. The length of a file with open writers, and what orders a change of names among writes, is asked for
//! here, of one member for as many chains as it has.

mod answering;
mod asking;
mod bytes;
mod records;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frieze_base::{ChainId, Fault, InodeId, LogIndex, Reason};
use frieze_hlc::Hlc;
use frieze_multilog::Tail;
use frieze_wire::message::FileKind;
use frieze_wire::peer::{CloseAfter, FileReach, PeerRequestKind, PersistAsk, ReachAsk, TouchedAsk};

use self::asking::Inquiry;
pub(crate) use self::bytes::{Fetch, Wanted};
pub(crate) use self::records::record_in;
use crate::engine::Engine;
use crate::seen::{Seen, layout_of, spread_of};
use frieze_replication::Layout;

/// What other servers say of files, for one look at them.
#[derive(Clone, Default)]
pub(crate) struct Elsewhere {
    /// By file and instant: what is not read here.
    files: BTreeMap<(InodeId, Option<Hlc>), Away>,
    /// Everything that is elsewhere and stamped up to this was counted; `None` if nobody was asked.
    pub(crate) complete: Option<Hlc>,
}

/// What is not read here of one file at one instant.
#[derive(Clone)]
struct Away {
    chains: Arc<BTreeSet<ChainId>>,
    /// How far it reaches in the chunks of these chains that writers may write.
    tail: Tail,
}

impl Elsewhere {
    /// Chains that are not read here, and of which nobody was asked: the file may be longer.
    pub(crate) fn unasked(seen: &Seen, chains: BTreeSet<ChainId>) -> Elsewhere {
        let away = Away { chains: Arc::new(chains), tail: Tail::default() };
        Elsewhere { files: BTreeMap::from([((seen.id, seen.upto), away)]), complete: None }
    }

    /// What was said of a file with all that is not committed, as what is so now.
    pub(crate) fn of_now(&self, id: InodeId) -> Elsewhere {
        let files = self.files.get(&(id, Some(Hlc::MAX))).map(|away| ((id, None), away.clone()));
        Elsewhere { files: files.into_iter().collect(), complete: self.complete }
    }

    /// The chains of this file that are not read here, and how far it reaches in them; `None` if there is none.
    pub(crate) fn of(&self, seen: &Seen) -> Option<(&BTreeSet<ChainId>, Tail)> {
        let away = self.files.get(&(seen.id, seen.upto))?;
        Some((&away.chains, away.tail))
    }

    /// True if this chain of the file is not read here.
    pub(crate) fn has(&self, seen: &Seen, chain: ChainId) -> bool {
        self.of(seen).is_some_and(|(chains, _)| chains.contains(&chain))
    }
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

    /// As [`Seen::upto`].
    fn upto(self) -> Option<Hlc> {
        match self {
            Counted::Committed => None,
            Counted::All => Some(Hlc::MAX),
            Counted::Upto(at) => Some(at),
        }
    }
}

/// A file whose reach is asked for, and the chains that it is asked of.
type Asked = (InodeId, FileReach, BTreeSet<ChainId>);

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
    ///
    /// # Cost
    /// None for files that nobody may write, or whose chunks that somebody may write are all here; else one round trip
    /// for all of them at one instant.
    pub(crate) fn reach_elsewhere(&self, seen: &[&Seen]) -> Result<Elsewhere, Fault> {
        let mut elsewhere = Elsewhere::default();
        if !self.data.is_shared() {
            return Ok(elsewhere);
        }
        let mut away: BTreeMap<Option<Hlc>, Arc<BTreeSet<ChainId>>> = BTreeMap::new();
        let mut asked: BTreeMap<Counted, Vec<Asked>> = BTreeMap::new();
        let is_written = |seen: &&&Seen| seen.inode.kind() == FileKind::File && !seen.inode.grants().is_empty();
        for seen in seen.iter().filter(is_written) {
            let away = away.entry(seen.upto).or_insert_with(|| Arc::new(self.chains_elsewhere(seen.upto)));
            if away.is_empty() {
                continue;
            }
            let none = Away { chains: away.clone(), tail: Tail::default() };
            elsewhere.files.insert((seen.id, seen.upto), none);
            let ranges = seen.inode.grants().iter().flat_map(|grant| &grant.chunks).filter(|chunks| !chunks.is_empty());
            let runs: Vec<(u32, u32)> = ranges.map(|chunks| (chunks.start, chunks.end - 1)).collect();
            let (file, chains) = file_of(layout_of(seen.id, &seen.inode), seen.inode.size_as_of, &runs, away);
            if !chains.is_empty() {
                asked.entry(Counted::of(seen)).or_default().push((seen.id, file, chains));
            }
        }
        for (counted, files) in asked {
            let (tails, complete) = self.ask_reach(counted, &files)?;
            for (id, tail) in tails {
                if let Some(away) = elsewhere.files.get_mut(&(id, counted.upto())) {
                    away.tail = tail;
                }
            }
            elsewhere.complete = Some(elsewhere.complete.unwrap_or(Hlc::MAX).min(complete));
        }
        Ok(elsewhere)
    }

    /// The same for what only needs to know whether the file reaches beyond `end`: nobody is asked if that is known
    /// here.
    ///
    /// # Errors
    /// As [`Engine::reach_elsewhere`], and as [`Engine::look`].
    pub(crate) fn reach_elsewhere_upto(&self, seen: &Seen, end: u64) -> Result<Elsewhere, Fault> {
        if !self.data.is_shared() || seen.inode.grants().is_empty() {
            return Ok(Elsewhere::default());
        }
        let away = self.chains_elsewhere(seen.upto);
        if away.is_empty() {
            return Ok(Elsewhere::default());
        }
        let unasked = Elsewhere::unasked(seen, away);
        let known = self.look_with(&[seen], &[], unasked.clone())?.extent(seen).size;
        if end < known { Ok(unasked) } else { self.reach_elsewhere(&[seen]) }
    }

    /// The chains that cannot be read here now, and how far a file reaches in all of its chunks on them, committed or
    /// not, counting records stamped after `after`.
    ///
    /// # Errors
    /// As [`Engine::reach_elsewhere`].
    pub(crate) fn whole_reach_elsewhere(&self, layout: Layout, after: Hlc) -> Result<(BTreeSet<ChainId>, Tail), Fault> {
        let away = self.chains_elsewhere(None);
        let (file, chains) = file_of(layout, after, &[(0, u32::MAX)], &away);
        if chains.is_empty() {
            return Ok((away, Tail::default()));
        }
        let (tails, _) = self.ask_reach(Counted::All, &[(layout.inode, file, chains)])?;
        Ok((away, tails.get(&layout.inode).copied().unwrap_or_default()))
    }

    /// Whether somebody wrote to one of these files, where it is elsewhere, after `since`.
    ///
    /// # Errors
    /// As [`Engine::reach_elsewhere`].
    pub(crate) fn is_written_elsewhere_since(&self, files: &[InodeId], since: Hlc) -> Result<bool, Fault> {
        for &id in files {
            let Some(layout) = self.meta.current_layout(id) else { continue };
            let (_, tail) = self.whole_reach_elsewhere(spread_of(id, layout), since)?;
            if tail.newest.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How far these files reach where they are elsewhere, and up to which stamp everything was counted.
    fn ask_reach(&self, counted: Counted, files: &[Asked]) -> Result<(BTreeMap<InodeId, Tail>, Hlc), Fault> {
        let all: BTreeSet<ChainId> = files.iter().flat_map(|(_, _, chains)| chains).copied().collect();
        let concerned = |chains: &BTreeSet<ChainId>| -> Vec<&Asked> {
            files.iter().filter(|(_, _, of)| !of.is_disjoint(chains)).collect()
        };
        let about = |chains: &BTreeSet<ChainId>| {
            let files = concerned(chains).into_iter().map(|(_, file, _)| file.clone()).collect();
            PeerRequestKind::Reach(ReachAsk { files, uncommitted: counted == Counted::All })
        };
        let (mut tails, mut complete) = (BTreeMap::<InodeId, Tail>::new(), Hlc::MAX);
        for heard in
            self.ask_members(all, &Inquiry { at: counted.upto().filter(|at| *at != Hlc::MAX), about: &about })?
        {
            let concerned = concerned(&heard.asked);
            if concerned.len() != heard.answer.tails.len() {
                let words = "malformed frame: an answer about other files than were asked about";
                return Err(Fault::new(Reason::BadFrame, words));
            }
            for ((id, _, _), found) in concerned.into_iter().zip(&heard.answer.tails) {
                let tail = tails.entry(*id).or_default();
                tail.highest = tail.highest.max(found.chunk.map(|chunk| (chunk, found.end)));
                tail.newest = tail.newest.max(found.newest.map(Hlc));
            }
            complete = complete.min(Hlc(heard.answer.complete));
        }
        Ok((tails, complete))
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
            let about = |_: &BTreeSet<ChainId>| PeerRequestKind::Order(CloseAfter { at: at.0, entry: entry.0 });
            self.ask_members(away.clone(), &Inquiry { at: None, about: &about })?;
        }
        Ok(away)
    }

    /// Returns when everything acknowledged so far of these chains, which this server has no part in, is on stable
    /// storage at their members.
    ///
    /// # Errors
    /// `Unavailable` if one of them does not answer; what a flush there failed with.
    pub(crate) fn persist_elsewhere(&self, away: BTreeSet<ChainId>) -> Result<(), Fault> {
        if away.is_empty() {
            return Ok(());
        }
        let about = |_: &BTreeSet<ChainId>| PeerRequestKind::Persist(PersistAsk {});
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
        let (mut todo, mut files) = (vec![(away, 0)], BTreeSet::new());
        while let Some((chains, above)) = todo.pop() {
            let about =
                |_: &BTreeSet<ChainId>| PeerRequestKind::Touched(TouchedAsk { after: after.0, upto: upto.0, above });
            for heard in self.ask_members(chains, &Inquiry { at: Some(upto), about: &about })? {
                files.extend(heard.answer.inodes.into_iter().map(InodeId));
                todo.extend(heard.answer.more_after.map(|above| (heard.chains, above)));
            }
        }
        Ok(files)
    }

    /// Whether every chunk that a file has bytes in can be read here: for what is asked of the whole of a file at one
    /// server.
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
        // Chunks that follow each other are on chains that do: among so many every chain is met.
        let every = layout.chain_count as usize;
        let met = settled.take(every).chain(granted.take(GRANTED_MAX)).map(|index| layout.chain(index));
        if met.into_iter().any(|chain| away.contains(&chain)) {
            return Err(not_whole_here(seen.id));
        }
        Ok(())
    }
}

/// The reach of a file in these runs of chunks as others are asked for it, and the chains among `away` that it touches.
fn file_of(
    layout: Layout,
    after: Hlc,
    runs: &[(u32, u32)],
    away: &BTreeSet<ChainId>,
) -> (FileReach, BTreeSet<ChainId>) {
    let mut chains = BTreeSet::new();
    for &(first, last) in runs {
        match last - first < layout.chain_count {
            true => chains.extend((first..=last).map(|index| layout.chain(index))),
            // Chunks that follow each other are on chains that do.
            false => chains.extend((0..layout.chain_count).map(ChainId)),
        }
    }
    chains.retain(|chain| away.contains(chain));
    let file = FileReach {
        inode: layout.inode.0,
        chain_count: layout.chain_count,
        after: after.0,
        chunks: runs.iter().flat_map(|(first, last)| [*first, *last]).collect(),
        chunk_bytes: layout.chunk_bytes,
    };
    (file, chains)
}

/// What is asked of the whole of a file needs it at one server.
pub(crate) fn not_whole_here(id: InodeId) -> Fault {
    Fault::new(
        Reason::Unsupported,
        format!(
            "inode {id} has bytes that this server has no copy of, and in this version what is asked needs all of them \
             at one server; ask for as many copies as there are servers (frieze cluster replicas N), or for less at a \
             time"
        ),
    )
}

/// Chunks that sessions may write in one file, of those that are looked at one by one: a plan looks at the rest.
const GRANTED_MAX: usize = 65_536;
