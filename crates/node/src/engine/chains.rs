//! The engine's part in chains of several members: configurations and status of the chains, and what must be known here
//! before and after a read of now.
//!
//! Guarantees: a read of now shows all that was committed when it began, and is answered only under a lease that still
//! holds when everything has been read; if this server lacks a part of the data, it does not answer from its own copy.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use frieze_base::{ByteRange, ChainId, ChunkId, Fault, InodeId, MonoTime, NodeId, SessionId};
use frieze_cluster::LostInterval;
use frieze_hlc::Hlc;
use frieze_namespace::{Inode, PatchSource};
use frieze_wire::chain::Configuration;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{Read, ReplicaStatus, Reply, Request, View};

use super::requests::Sees;
use super::{Engine, Responder, done};
use crate::elsewhere::Elsewhere;
use crate::seen::{Layer, Look, Seen, Sources, layout_of, parts, spread_of};
use crate::settling::{chains_of_grants, granted_chains};
use frieze_replication::{ChainEnd, ChainEvent, Gather, Layout, REACH_BYTES_MAX};
use frieze_service::Presenter;

impl Engine {
    /// Applies configurations of chains that the control plane has decided. Durable on return.
    ///
    /// # Errors
    /// The disk's: then no configuration is applied.
    pub fn configure(&self, configurations: &[(ChainId, Configuration)]) -> Result<(), Fault> {
        self.data.configure(configurations)
    }

    /// Renews the lease for chains of several members until `until`, by this node's own monotonic clock.
    pub fn renew_lease(&self, until: MonoTime) {
        self.data.lease().renew(until);
    }

    /// The connection with a node broke: messages that may have been lost are sent again.
    pub fn lost(&self, node: NodeId) {
        self.data.on_disconnect(node);
    }

    /// Sets the receiver of reports about chains: the control plane. To be called once.
    pub fn report_chains_to(&self, reports: Box<dyn Fn(ChainEvent) + Send + Sync>) {
        self.data.set_reports(reports);
    }

    /// Advances timers of chains of several members; to be called about every 20 ms.
    pub fn tick_chains(&self) {
        self.data.tick();
        if self.data.take_discarded() {
            // The index was built anew: records that were marked dead in it have to be marked again.
            self.reclaim.want();
        }
    }

    /// True if the cluster made this node a member of chains.
    pub fn is_in_chains(&self) -> bool {
        self.data.is_shared()
    }

    /// The next member that will receive the payload of a request of `len` bytes as a record, as far as that is known
    /// before the request is checked.
    pub(crate) fn goes_to(&self, header: &FrameHeader, request: &Request, len: usize) -> Option<(ChainId, NodeId)> {
        let Request::Write(ask) = request else { return None };
        if ask.append {
            return None;
        }
        let capability = self
            .mint
            .open(&ask.capability, Presenter::of_now(header.session))
            .ok()
            .filter(|capability| capability.write)?;
        let layout = layout_of(capability.inode, &self.current(capability.inode).ok()?);
        let end = ask.offset.checked_add(len as u64)?;
        let chunk = u32::try_from(ask.offset / layout.chunk_bytes).ok()?;
        let fits = end <= (u64::from(chunk) + 1) * layout.chunk_bytes;
        let chain = fits.then(|| layout.chain(chunk))?;
        Some((chain, self.data.successor_of(chain)?))
    }

    /// The next member that receives records of this chain from here.
    pub(crate) fn next_of(&self, chain: ChainId) -> Option<NodeId> {
        self.data.successor_of(chain)
    }

    /// Status of the chains that the cluster made this node a member of.
    pub fn chains(&self) -> Vec<ReplicaStatus> {
        self.data.status()
    }

    /// Where the log of each chain ends here: for the choice among members that have all restarted, and for the
    /// founding of a cluster, whose first configurations are above these.
    pub fn chain_ends(&self) -> Vec<ChainEnd> {
        self.data.ends()
    }

    /// Number of sessions with state here, of their requests or of their connections: for `status`, and tests.
    pub fn sessions_remembered(&self) -> usize {
        let mut known = self.data.sessions();
        known.extend(self.sessions.known());
        known.len()
    }

    /// True if acknowledged writes of these chains, or of any, may have been lost at an instant.
    pub(crate) fn in_gap(&self, at: Hlc, chains: Option<&BTreeSet<ChainId>>) -> bool {
        let mut is_lost = self.keeper.with(|identity| identity.in_gap(at));
        if self.meta.is_member() {
            self.meta.look_at_control(&mut |state| {
                let mut asked = state.chains().filter(|chain| chains.is_none_or(|chains| chains.contains(&chain.id)));
                is_lost |= asked.any(|chain| chain.gaps.iter().any(|gap| gap.touches(at.0)));
            });
        }
        is_lost
    }

    /// What chains lost when they continued from stale copies; `None` if no chain ever had to.
    pub(crate) fn losses(&self) -> Option<Losses> {
        let mut losses = None;
        self.meta.look_at_control(&mut |state| {
            if state.is_behind() {
                losses = Some(Losses(state.chains().filter_map(|chain| Some((chain.id, chain.behind?))).collect()));
            }
        });
        losses
    }

    /// Number of chains that continued from a stale copy.
    pub(crate) fn chains_behind(&self) -> u64 {
        self.losses().map_or(0, |losses| losses.0.len() as u64)
    }

    /// True if a range of a file, as it is seen, may lack acknowledged bytes since a chain continued from a stale copy:
    /// no record known to lie above the loss covers the range, and the file is older than the loss.
    ///
    /// # Errors
    /// Those of [`Engine::sources`] and [`Engine::look_with`].
    pub(crate) fn may_lack(&self, losses: &Losses, seen: &Seen, ask: &Read) -> Result<bool, Fault> {
        let end = ask.offset.saturating_add(ask.len.into());
        let sources = self.sources(&seen.inode, ask.offset, end)?;
        let look = self.look_with(&[seen], &[&sources], Elsewhere::unasked(seen, self.chains_elsewhere(None)))?;
        Ok(losses.may_miss(&look, seen.layer(), &sources, (ask.offset, end), &|chain| self.data.is_member(chain)))
    }

    /// The intervals in which writes may have been lost, oldest first: of this machine while it was alone, and of every
    /// chain.
    pub(crate) fn all_gaps(&self) -> Vec<(Hlc, Hlc)> {
        let mut gaps: BTreeSet<(Hlc, Hlc)> = self.keeper.with(|identity| identity.gaps().collect());
        self.meta.look_at_control(&mut |state| {
            gaps.extend(state.chains().flat_map(|chain| &chain.gaps).map(|gap| (Hlc(gap.from), Hlc(gap.to))));
        });
        gaps.into_iter().collect()
    }

    /// The newest instant at which no write is missing that was lost since; ZERO if there is no loss.
    pub(crate) fn last_whole(&self) -> Hlc {
        let mut whole = Hlc(self.keeper.with(|identity| identity.last_whole));
        // A chain that lost all its records was whole before the first one.
        let made = self.earliest();
        self.meta.look_at_control(&mut |state| {
            let newest: Vec<_> = state.chains().filter_map(|chain| chain.gaps.last()).collect();
            // Gaps of one crash overlap between chains.
            if let Some(last) = newest.iter().max_by_key(|gap| gap.to) {
                let together = newest.iter().filter(|gap| gap.to > last.from);
                whole = together.map(|gap| Hlc(gap.from).max(made)).min().unwrap_or(whole);
            }
        });
        before_all(whole, &self.all_gaps())
    }

    /// True if the answer tells of bytes, or lengths of files, as they are now: then it needs a lease.
    pub(super) fn needs_lease(&self, session: SessionId, sees: Sees<'_>) -> bool {
        let is_present = |capability: &[u8]| {
            let opened = self.mint.open(capability, Presenter::of_now(session));
            opened.is_ok_and(|capability| capability.view.at.is_none())
        };
        self.data.is_shared()
            && match sees {
                Sees::Nothing | Sees::Names => false,
                Sees::Bytes | Sees::Lengths => true,
                Sees::BytesBy(capability) => is_present(capability),
                Sees::Range(ask) => is_present(&ask.capability),
            }
    }

    /// Sees to it that what a request sees of now is known here.
    pub(super) fn look_now(&self, session: SessionId, sees: Sees<'_>) -> Result<(), Fault> {
        let all = || (0..self.data.chain_count()).map(ChainId).filter(|chain| self.data.is_member(*chain));
        match sees {
            Sees::Range(ask) => match self.mint.open(&ask.capability, Presenter::of_now(session)) {
                Ok(capability) => {
                    let id = capability.inode;
                    // The read itself refuses a file that is not known here.
                    let Some(chunks) = self.meta.file_chunks(id) else {
                        return self.data.await_tails([].into_iter());
                    };
                    // The read itself asks other servers about writes on their chains.
                    let layout = spread_of(id, chunks.layout);
                    let mut chains = chains_of_range(layout, ask);
                    let before = parts_before(layout, chunks.reaches_from, ask).into_iter().map(|(chain, ..)| chain);
                    let others = before.chain(chains_of_grants(id, &chunks));
                    chains.extend(others.filter(|chain| self.data.is_member(*chain)));
                    if chunks.is_patched && chunks.has_writers {
                        self.meta.current(id).map_or(Ok(()), |inode| self.order_seen(id, &inode))?;
                    }
                    // By user time the newest record counts, on any chain.
                    if !chunks.is_patched
                        && capability.view.user_at.is_none()
                        && self.data.has_to_query_tail(chains.iter().copied())
                        && let Some(inode) = self.meta.current(id).filter(|inode| inode.patches().is_empty())
                        && self.is_clean_there(id, inode, ask)?
                    {
                        return Ok(());
                    }
                    self.data.await_tails(chains.into_iter())
                }
                // The read itself refuses it.
                Err(_) => Ok(()),
            },
            // The handler looks at what it finds.
            Sees::Nothing | Sees::Names | Sees::Lengths => Ok(()),
            Sees::Bytes | Sees::BytesBy(_) => self.data.await_tails(all()),
        }
    }

    /// Ensures that this server knows how far writers have extended a file by now.
    pub(crate) fn look_at_length(&self, id: InodeId, inode: &Inode, view: View) -> Result<(), Fault> {
        if !self.data.is_shared() || view.at.is_some() || inode.grants().is_empty() {
            return Ok(());
        }
        // A chain that is not here is refused where its part is read.
        self.data.await_tails(granted_chains(id, inode).into_iter().filter(|chain| self.data.is_member(*chain)))
    }

    /// True if this server knows all that a read of now asks of a file without patches, though writes are in flight on
    /// its chains: the read ends before the file does, and the writes in flight lie outside its range.
    fn is_clean_there(&self, id: InodeId, inode: Inode, ask: &Read) -> Result<bool, Fault> {
        let (start, end) = (ask.offset, ask.offset.saturating_add(ask.len.into()));
        let seen = Seen::at(id, inode, None);
        // No server is asked for this: the file may be longer than this server knows, not shorter.
        let elsewhere = Elsewhere::unasked(&seen, self.chains_elsewhere(None));
        if ask.len == 0 || end > self.look_with(&[&seen], &[], elsewhere)?.extent(&seen).size {
            return Ok(false);
        }
        let layout = layout_of(id, &seen.inode);
        let before = parts_before(layout, seen.inode.reaches_from(), ask)
            .into_iter()
            .filter(|(chain, ..)| self.data.is_member(*chain));
        let parts = parts_of(layout, start, end);
        Ok(parts.is_some_and(|parts| self.data.is_clean_in(parts.into_iter().chain(before))))
    }

    /// The chains that have to be closed for a read at an instant: those of its range; all, if writers may have
    /// extended the file.
    pub(crate) fn chains_to_close(&self, id: InodeId, ask: &Read) -> Option<BTreeSet<ChainId>> {
        let settled = self.meta.file_chunks(id).filter(|chunks| !chunks.has_writers);
        settled.map(|chunks| chains_of_read(spread_of(id, chunks.layout), chunks.reaches_from, ask))
    }

    /// The chains with bytes of a file, as far as this server knows; all chains for an unknown file.
    pub(crate) fn chains_of_file(&self, id: InodeId) -> BTreeSet<ChainId> {
        let Some(chunks) = self.meta.file_chunks(id) else {
            return (0..self.data.chain_count()).map(ChainId).collect();
        };
        let layout = spread_of(id, chunks.layout);
        let end = u32::try_from(chunks.size.div_ceil(layout.chunk_bytes)).unwrap_or(u32::MAX);
        let mut chains = chains_of_chunks(layout, 0..end);
        chains.extend(chains_of_grants(id, &chunks));
        chains
    }

    /// Checks that this server has everything that a read covers at its instant.
    ///
    /// # Errors
    /// `Elsewhere` if the client has to ask another server.
    pub(crate) fn check_read_here(&self, id: InodeId, inode: &Inode, view: View, ask: &Read) -> Result<(), Fault> {
        if !self.data.is_shared() {
            return Ok(());
        }
        let mut chains = chains_of_range(layout_of(id, inode), ask).into_iter();
        chains.try_for_each(|chain| self.data.check_here(chain, view.instant()))
    }

    /// Answers when everything acknowledged so far is on stable storage at all members of this node's chains, and of
    /// the remote chains of the file.
    pub(crate) fn sync_members(&self, header: &frieze_wire::FrameHeader, id: InodeId, responder: &Arc<dyn Responder>) {
        let (request, reply_to) = (*header, responder.clone());
        let away = self.chains_elsewhere(None);
        // Both sets come from one look: each chain is either asked about or one of this node's.
        let asked = self.chains_of_file(id).intersection(&away).copied().collect();
        if let Err(fault) = self.persist_elsewhere(asked) {
            return reply_to.respond(&request, Err(fault), &[], 0);
        }
        let here = (0..self.data.chain_count()).map(ChainId).filter(|chain| !away.contains(chain)).collect();
        let reply = move |result: Result<(), Fault>| reply_to.respond(&request, result.map(|()| done()), &[], 0);
        let all = Gather::new(2, Box::new(reply));
        let flushed = all.clone();
        self.durability.when_durable(self.ticket(), Box::new(move |result| flushed.add(result)));
        self.data.barrier(Some(&here), Box::new(move |result| all.add(result)));
    }
}

/// The chains that a read covers: those of its range, and those of the chunks that decide the length of the file.
fn chains_of_read(layout: Layout, reaches_from: Option<u32>, ask: &Read) -> BTreeSet<ChainId> {
    let mut chains = chains_of_range(layout, ask);
    chains.extend(parts_before(layout, reaches_from, ask).into_iter().map(|(chain, ..)| chain));
    chains
}

/// The chains of its range.
fn chains_of_range(layout: Layout, ask: &Read) -> BTreeSet<ChainId> {
    chains_of_extent(layout, ask.offset, ask.len.into())
}

/// The chains of the chunks of a byte range, or of one position.
pub(crate) fn chains_of_extent(layout: Layout, offset: u64, len: u64) -> BTreeSet<ChainId> {
    let chunk_of = |offset: u64| u32::try_from(offset / layout.chunk_bytes).unwrap_or(u32::MAX);
    let last = offset.saturating_add(len.max(1)) - 1;
    chains_of_chunks(layout, chunk_of(offset)..chunk_of(last).saturating_add(1))
}

/// The parts of chunks before a read's range whose records may reach into it, beyond the ends of those chunks.
fn parts_before(layout: Layout, reaches_from: Option<u32>, ask: &Read) -> Vec<(ChainId, ChunkId, ByteRange)> {
    let first = u32::try_from(ask.offset / layout.chunk_bytes).unwrap_or(u32::MAX);
    let chunk_start = u64::from(first) * layout.chunk_bytes;
    let end = ask.offset.saturating_add(ask.len.into()).min(chunk_start + REACH_BYTES_MAX);
    if ask.offset >= end {
        return Vec::new();
    }
    let part = |index: u32| {
        let start = u64::from(index) * layout.chunk_bytes;
        let range = ByteRange::new(ask.offset - start, end - start);
        (layout.chain(index), ChunkId { inode: layout.inode, index }, range)
    };
    let reaches = |index: &u32| reaches_from.is_some_and(|from| from <= *index);
    layout.reached_by(first).filter(reaches).map(part).collect()
}

/// The chains of chunks of a file.
fn chains_of_chunks(layout: Layout, chunks: Range<u32>) -> BTreeSet<ChainId> {
    match u64::from(chunks.end.saturating_sub(chunks.start)) > u64::from(8 * layout.chain_count) {
        // So many chunks may be on all chains.
        true => (0..layout.chain_count).map(ChainId).collect(),
        false => chunks.map(|index| layout.chain(index)).collect(),
    }
}

/// The newest instant up to `whole` that lies in no gap: if a loss follows another before the data was whole again,
/// their gaps touch.
fn before_all(whole: Hlc, gaps: &[(Hlc, Hlc)]) -> Hlc {
    let newest_first = gaps.iter().rev();
    newest_first.fold(whole, |whole, (from, to)| if *from < whole && whole <= *to { *from } else { whole })
}

/// What chains lost when they continued from stale copies.
#[derive(PartialEq, Eq)]
pub(crate) struct Losses(BTreeMap<ChainId, LostInterval>);

impl Losses {
    /// True if a range of a layer may lack lost bytes.
    fn may_miss(
        &self,
        look: &Look<'_>,
        layer: Layer<'_>,
        sources: &Sources,
        (start, end): (u64, u64),
        is_here: &dyn Fn(ChainId) -> bool,
    ) -> bool {
        let layout = layout_of(layer.id, layer.inode);
        parts(layer.inode, start, end).into_iter().any(|(start, end, patch)| {
            let hidden_upto = patch.map_or(Hlc::ZERO, |patch| patch.at);
            // Beyond what a file can hold there is nothing.
            let Some(chunks) = parts_of(layout, start, end) else { return false };
            let covers = |(chain, chunk, range): &(ChainId, ChunkId, ByteRange), after: Hlc| {
                let upto = look.shown_upto_of(layer, chunk.index);
                is_here(*chain) && look.log.data_in(*chunk, *range, upto, after) == range.len()
            };
            // Which part of a chain's loss can concern this layer: a later patch hides it, an older instant precedes
            // it.
            let lost_to = |chain: &ChainId| {
                let lost = self.0.get(chain)?;
                let is_older = layer.inode.born.0 < lost.to && hidden_upto.0 < lost.to;
                (is_older && layer.upto.is_none_or(|upto| upto.0 > lost.from)).then_some(Hlc(lost.to))
            };
            let ask = Read { offset: start, len: (end - start).min(REACH_BYTES_MAX) as u32, ..Read::default() };
            let reaching = parts_before(layout, layer.inode.reaches_from(), &ask);
            let misses = |part: &(ChainId, ChunkId, ByteRange)| lost_to(&part.0).is_some_and(|to| !covers(part, to));
            if chunks.iter().any(misses) || reaching.iter().any(|(chain, ..)| lost_to(chain).is_some()) {
                return true;
            }
            let Some(PatchSource::Shared { inode, offset, at }) = patch.map(|patch| patch.source) else { return false };
            if chunks.iter().all(|part| covers(part, hidden_upto)) {
                return false;
            }
            let Some(version) = sources.get(&(inode, at)) else { return false };
            let source = Layer { id: inode, inode: version, upto: Some(at) };
            self.may_miss(look, source, sources, (offset, offset.saturating_add(end - start)), is_here)
        })
    }
}

/// The parts of chunks of `start..end` of a file.
fn parts_of(layout: Layout, start: u64, end: u64) -> Option<Vec<(ChainId, ChunkId, ByteRange)>> {
    let part = |index: u64| {
        let first = index * layout.chunk_bytes;
        let range = ByteRange::new(start.max(first) - first, end.min(first + layout.chunk_bytes) - first);
        let index = u32::try_from(index).ok()?;
        Some((layout.chain(index), ChunkId { inode: layout.inode, index }, range))
    };
    (start / layout.chunk_bytes..end.div_ceil(layout.chunk_bytes)).map(part).collect()
}

/// The answer, unless the lease has ended since the look-up, or this server has joined or left a chain since it had
/// done so `turns` times. A server that left a chain still gets a lease, as soon as it knows that it left, but for the
/// other chains only: the lease alone does not protect the answer.
pub(super) fn under_lease(engine: &Engine, answer: Result<Reply, Fault>, turns: u64) -> Result<Reply, Fault> {
    let reply = answer?;
    engine.data.check_lease_and_membership(turns)?;
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(whole: u64, gaps: &[(u64, u64)]) -> u64 {
        let gaps: Vec<_> = gaps.iter().map(|(from, to)| (Hlc(*from), Hlc(*to))).collect();
        before_all(Hlc(whole), &gaps).0
    }

    #[test]
    fn an_instant_at_which_a_gap_ends_and_the_next_begins_is_not_whole() {
        assert_eq!(whole(20, &[(20, 30)]), 20);
        assert_eq!(whole(30, &[(20, 30), (30, 40)]), 20);
        assert_eq!(whole(25, &[(20, 30), (25, 40)]), 20);
        assert_eq!(whole(30, &[(5, 20), (20, 30), (30, 40)]), 5);
        // The data was whole between the losses.
        assert_eq!(whole(35, &[(20, 30), (35, 40)]), 35);
        assert_eq!(whole(0, &[]), 0);
    }
}
