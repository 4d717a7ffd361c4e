//! How far files reach on chains of other servers, and the order of a change of names among the writes there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frieze_base::{ChainId, Fault, InodeId, LogIndex, Reason};
use frieze_hlc::Hlc;
use frieze_multilog::Tail;
use frieze_replication::Layout;
use frieze_wire::message::FileKind;
use frieze_wire::peer::{CloseAfter, FileReach, PeerRequestKind, PersistAsk, ReachAsk, TouchedAsk};

use super::client::Inquiry;
use crate::file_version::{FileVersion, layout_of, spread_of};
use crate::files::Files;
use crate::remote_reach::{Away, RemoteReach, not_whole_here};

/// Which records of a file count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Counted {
    /// The records that are committed now.
    Committed,
    /// The uncommitted records as well.
    All,
    /// The records stamped up to an instant.
    Upto(Hlc),
}

impl Counted {
    fn of(seen: &FileVersion) -> Counted {
        match seen.upto {
            None => Counted::Committed,
            Some(Hlc::MAX) => Counted::All,
            Some(at) => Counted::Upto(at),
        }
    }

    /// As [`FileVersion::upto`].
    fn upto(self) -> Option<Hlc> {
        match self {
            Counted::Committed => None,
            Counted::All => Some(Hlc::MAX),
            Counted::Upto(at) => Some(at),
        }
    }
}

/// A file whose reach is asked for, and the chains that the request covers.
type Asked = (InodeId, FileReach, BTreeSet<ChainId>);

impl Files {
    /// The chains that cannot be read here at `at`, or now.
    pub fn remote_chains(&self, at: Option<Hlc>) -> BTreeSet<ChainId> {
        let chains = (0..self.planes.data.chain_count()).map(ChainId);
        chains.filter(|chain| self.planes.data.check_here(*chain, at.filter(|at| *at != Hlc::MAX)).is_err()).collect()
    }

    /// How long these files are according to other servers. Not to be called with a lock held: it sends requests.
    ///
    /// # Errors
    /// `Unavailable` if no server that knows answers.
    ///
    /// # Cost
    /// None for files that no session may write, or whose writable chunks are all here; otherwise one round trip for
    /// all of them at one instant.
    pub fn remote_reach(&self, seen: &[&FileVersion]) -> Result<RemoteReach, Fault> {
        let mut remote = RemoteReach::default();
        let mut away: BTreeMap<Option<Hlc>, Arc<BTreeSet<ChainId>>> = BTreeMap::new();
        let mut asked: BTreeMap<Counted, Vec<Asked>> = BTreeMap::new();
        let is_written = |seen: &&&FileVersion| seen.inode.kind() == FileKind::File && !seen.inode.grants().is_empty();
        for seen in seen.iter().filter(is_written) {
            let away = away.entry(seen.upto).or_insert_with(|| Arc::new(self.remote_chains(seen.upto)));
            if away.is_empty() {
                continue;
            }
            let none = Away { chains: away.clone(), tail: Tail::default() };
            remote.files.insert((seen.id, seen.upto), none);
            let ranges = seen.inode.granted_chunks().into_iter();
            let runs: Vec<(u32, u32)> = ranges.map(|chunks| (chunks.start, chunks.end - 1)).collect();
            let (file, chains) = file_of(layout_of(seen.id, &seen.inode), seen.inode.size_as_of, &runs, away);
            if !chains.is_empty() {
                asked.entry(Counted::of(seen)).or_default().push((seen.id, file, chains));
            }
        }
        for (counted, files) in asked {
            let (tails, complete) = self.ask_reach(counted, &files)?;
            for (id, tail) in tails {
                if let Some(away) = remote.files.get_mut(&(id, counted.upto())) {
                    away.tail = tail;
                }
            }
            remote.complete = Some(remote.complete.unwrap_or(Hlc::MAX).min(complete));
        }
        Ok(remote)
    }

    /// The same for a caller that only needs to know whether the file reaches beyond `end`: no server is asked if this
    /// one knows.
    ///
    /// # Errors
    /// As [`Files::remote_reach`], and as [`Files::look`].
    pub fn remote_reach_upto(&self, seen: &FileVersion, end: u64) -> Result<RemoteReach, Fault> {
        if seen.inode.grants().is_empty() {
            return Ok(RemoteReach::default());
        }
        let away = self.remote_chains(seen.upto);
        if away.is_empty() {
            return Ok(RemoteReach::default());
        }
        let unasked = RemoteReach::unasked(seen, away);
        let known = self.look_with(&[seen], &[], unasked.clone())?.extent(seen).size;
        if end < known { Ok(unasked) } else { self.remote_reach(&[seen]) }
    }

    /// The chains that cannot be read here now, and how far a file reaches in all of its chunks on them, committed or
    /// not, counting records stamped after `after`.
    ///
    /// # Errors
    /// As [`Files::remote_reach`].
    pub fn whole_remote_reach(&self, layout: Layout, after: Hlc) -> Result<(BTreeSet<ChainId>, Tail), Fault> {
        let away = self.remote_chains(None);
        let (file, chains) = file_of(layout, after, &[(0, u32::MAX)], &away);
        if chains.is_empty() {
            return Ok((away, Tail::default()));
        }
        let (tails, _) = self.ask_reach(Counted::All, &[(layout.inode, file, chains)])?;
        Ok((away, tails.get(&layout.inode).copied().unwrap_or_default()))
    }

    /// Whether the remote chains of one of these files have a record stamped after `since`.
    ///
    /// # Errors
    /// As [`Files::remote_reach`].
    pub fn is_written_remotely_since(&self, files: &[InodeId], since: Hlc) -> Result<bool, Fault> {
        for &id in files {
            let Some(layout) = self.planes.meta.current_layout(id) else { continue };
            let (_, tail) = self.whole_remote_reach(spread_of(id, layout), since)?;
            if tail.newest.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How far these files reach on remote chains, and up to which stamp every record was counted.
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
        for reply in
            self.ask_members(all, &Inquiry { at: counted.upto().filter(|at| *at != Hlc::MAX), about: &about })?
        {
            let concerned = concerned(&reply.asked);
            if concerned.len() != reply.answer.tails.len() {
                let words = "malformed frame: an answer about other files than were asked about";
                return Err(Fault::new(Reason::BadFrame, words));
            }
            for ((id, _, _), found) in concerned.into_iter().zip(&reply.answer.tails) {
                let tail = tails.entry(*id).or_default();
                tail.highest = tail.highest.max(found.chunk.map(|chunk| (chunk, found.end)));
                tail.newest = tail.newest.max(found.newest.map(Hlc));
            }
            complete = complete.min(Hlc(reply.answer.complete));
        }
        Ok((tails, complete))
    }

    /// Orders a change of metadata among the writes of these chains, here and on other servers.
    ///
    /// # Errors
    /// `Unavailable` if a chain's servers do not answer: ask again.
    pub fn order(&self, at: Hlc, entry: LogIndex, chains: &BTreeSet<ChainId>) -> Result<(), Fault> {
        if !self.planes.meta.is_member() {
            // It was ordered when it ran ([`Files::hold_alone`]).
            return Ok(());
        }
        let away = self.order_remote(at, entry, chains)?;
        let here: BTreeSet<ChainId> = chains.difference(&away).copied().collect();
        self.planes.data.order_change(at, entry, &here)
    }

    /// The same for the chains that this server is no member of. Returns which ones those are.
    ///
    /// # Errors
    /// As [`Files::order`].
    pub fn order_remote(
        &self,
        at: Hlc,
        entry: LogIndex,
        chains: &BTreeSet<ChainId>,
    ) -> Result<BTreeSet<ChainId>, Fault> {
        let away: BTreeSet<ChainId> = self.remote_chains(None).intersection(chains).copied().collect();
        if !away.is_empty() {
            let about = |_: &BTreeSet<ChainId>| PeerRequestKind::Order(CloseAfter { at: at.0, entry: entry.0 });
            self.ask_members(away.clone(), &Inquiry { at: None, about: &about })?;
        }
        Ok(away)
    }

    /// Returns when everything acknowledged so far on these remote chains is on stable storage at their members.
    ///
    /// # Errors
    /// `Unavailable` if one of them does not answer; the fault of a flush there.
    pub fn persist_remote(&self, away: BTreeSet<ChainId>) -> Result<(), Fault> {
        if away.is_empty() {
            return Ok(());
        }
        let about = |_: &BTreeSet<ChainId>| PeerRequestKind::Persist(PersistAsk {});
        self.ask_members(away, &Inquiry { at: None, about: &about }).map(drop)
    }

    /// The files that have records on remote chains, stamped in `(after, upto]`; perhaps some files without one.
    ///
    /// # Errors
    /// As [`Files::remote_reach`].
    pub fn touched_remotely(&self, after: Hlc, upto: Hlc) -> Result<BTreeSet<InodeId>, Fault> {
        let away = self.remote_chains(Some(upto));
        if away.is_empty() {
            return Ok(BTreeSet::new());
        }
        let (mut todo, mut files) = (vec![(away, 0)], BTreeSet::new());
        while let Some((chains, above)) = todo.pop() {
            let about =
                |_: &BTreeSet<ChainId>| PeerRequestKind::Touched(TouchedAsk { after: after.0, upto: upto.0, above });
            for reply in self.ask_members(chains, &Inquiry { at: Some(upto), about: &about })? {
                files.extend(reply.answer.inodes.into_iter().map(InodeId));
                todo.extend(reply.answer.more_after.map(|above| (reply.chains, above)));
            }
        }
        Ok(files)
    }

    /// Whether this server can read every chunk that a file has bytes in: for requests that need the whole file at one
    /// server.
    ///
    /// # Errors
    /// `Unsupported` if it cannot.
    pub fn check_whole_here(&self, seen: &FileVersion) -> Result<(), Fault> {
        let away = self.remote_chains(seen.upto);
        if away.is_empty() || seen.inode.kind() != FileKind::File {
            return Ok(());
        }
        let layout = layout_of(seen.id, &seen.inode);
        let granted = seen.inode.granted_chunks().into_iter().flatten();
        let settled = 0..u32::try_from(seen.inode.size.div_ceil(layout.chunk_bytes)).unwrap_or(u32::MAX);
        // Consecutive chunks are on consecutive chains: so many chunks cover every chain.
        let every = layout.chain_count as usize;
        let met = settled.take(every).chain(granted.take(GRANTED_MAX)).map(|index| layout.chain(index));
        if met.into_iter().any(|chain| away.contains(&chain)) {
            return Err(not_whole_here(seen.id));
        }
        Ok(())
    }
}

/// The reach of a file in these runs of chunks, as a request to other servers, and the chains among `away` that it
/// touches.
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
            // Consecutive chunks are on consecutive chains.
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

/// Chunks that sessions may write in one file and that are looked at one by one: a plan covers the rest.
const GRANTED_MAX: usize = 65_536;
