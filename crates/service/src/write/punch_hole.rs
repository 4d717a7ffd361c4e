//! Holes: a range that reads as zeros from an instant on, and as before at earlier instants.
//!
//! Guarantees: a hole is ordered, stamped, deduplicated and made durable like a write, and needs the same right; it
//! never changes a length. The chunks that one request reaches are one group, visible as a whole or not at all. Leaves
//! to others: ranges of more chunks than a request reaches (`client`), the effect of a hole on older bytes
//! (`multilog`).

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use frieze_base::{ChainId, Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_namespace::{Inode, PatchSource};
use frieze_planes::{Principal, layout_of};
use frieze_replication::{
    Content, HOLE_PARTS_MAX, Spread, WriteAsk, WriteCallback as Answer, WritePlace, WriteResult, split_hole,
};
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{Durability as When, FileKind, Punch, PunchReply, Reply};
use frieze_wire::txn::{Grant, Op};

use crate::session::capability::Presenter;
use crate::session::responder::Responder;
use crate::session::write_context::WriteContexts;
use crate::write::{GRANT_CHUNKS_MAX, Writers, check_granted, check_numbered, check_writable};

/// Stretches of a file: first byte, end.
type Ranges = Vec<(u64, u64)>;

/// What is computed for a hole before other requests have to wait for it.
struct Prepared {
    id: InodeId,
    /// The user that opened the file.
    uid: u32,
    inode: Inode,
    /// The result of [`Writers::once_shared`].
    shared: Ranges,
    /// The chains on which this server knows all earlier decisions.
    looked: BTreeSet<ChainId>,
}

impl Writers {
    pub(crate) fn punch(
        &self,
        principal: &Principal,
        header: &FrameHeader,
        ask: &Punch,
        responder: &Arc<dyn Responder>,
    ) {
        let when = When::try_from(ask.durability).unwrap_or(When::Async);
        let (request, reply_to) = (*header, responder.clone());
        let ask = &self.within_one_chunk(header, ask);
        let upto_max = ask.offset.saturating_add(ask.len);
        let reply = Box::new(move |result: Result<WriteResult, Fault>| {
            let result = result
                .map(|written| Reply::Punch(PunchReply { stamp: written.stamp.0, upto: written.end.min(upto_max) }));
            reply_to.respond(&request, result, &[], 0);
        });
        if let Err((reply, fault)) = self.try_punch(principal, header, ask, when, reply) {
            reply(Err(fault));
        }
        if when == When::Sync {
            self.planes.durability.hurry();
        }
    }

    /// If this server lacks some chains, it knows neither the contents of other chunks nor their servers: it punches in
    /// the first chunk, and the client sends requests for the rest.
    fn within_one_chunk(&self, header: &FrameHeader, ask: &Punch) -> Punch {
        let opened = || {
            self.sessions
                .mint
                .open(&ask.capability, Presenter::of_now(header.session))
                .and_then(|opened| self.planes.current(opened.inode))
        };
        let mut part = ask.clone();
        if !self.files.remote_chains(None).is_empty()
            && let Ok(inode) = opened()
        {
            let chunk_bytes = inode.chunk_bytes();
            part.len = part.len.min(chunk_bytes - part.offset % chunk_bytes);
        }
        part
    }

    /// An early refusal returns the reply to the caller.
    fn try_punch(
        &self,
        principal: &Principal,
        header: &FrameHeader,
        ask: &Punch,
        when: When,
        reply: Answer,
    ) -> Result<(), (Answer, Fault)> {
        let Prepared { id, uid, inode, shared, looked } = match self.prepare_punch(principal, header, ask) {
            Ok(ready) => ready,
            Err(fault) => return Err((reply, fault)),
        };
        let layout = layout_of(id, &inode);
        // A record that reaches into a chunk is of another chain, with stamps of another clock.
        let is_reached = inode.reaches_over((ask.offset.saturating_add(ask.len) / layout.chunk_bytes) as u32);
        let turns = self.planes.data.membership_count();
        let elsewhere = match is_reached.then(|| self.files.written_remotely(id, &inode)).transpose() {
            Ok(elsewhere) => elsewhere,
            Err(fault) => return Err((reply, fault)),
        };
        let place = || {
            self.files.check_caught_up(&looked)?;
            let inode = self.planes.meta.writable_inode(id)?;
            let spread = self.spread_of_hole(id, &inode, ask, &shared)?;
            let chunks = spread.parts.iter().map(|part| part.chunk);
            check_granted(id, header.session, self.planes.meta.missing_grant(&inode, header.session, chunks))?;
            let above = match &elsewhere {
                Some(elsewhere) => {
                    let (_, _, newest) = self.files.current_extent_with(id, &inode, elsewhere.clone())?;
                    self.planes.data.check_lease_and_membership(turns)?;
                    newest.unwrap_or_default().max(inode.size_as_of)
                }
                None => Hlc::ZERO,
            };
            Ok(WritePlace { spread, user_time: None, inherited: None, times_after: Hlc::ZERO, above })
        };
        self.planes.data.write(
            WriteAsk {
                session: header.session,
                seq: header.seq,
                acked: header.acked,
                epoch: header.epoch,
                seen: header.hlc,
                inode: id,
                layout,
                known_offset: Some(ask.offset),
                at_end: None,
                place: &place,
                recalled: &|_| Ok(()),
                content: Content::Hole,
                uid,
                durability: when,
            },
            reply,
        );
        Ok(())
    }

    /// Checks the right, and ensures the grants: only the server knows which chunks a hole touches.
    fn prepare_punch(&self, principal: &Principal, header: &FrameHeader, ask: &Punch) -> Result<Prepared, Fault> {
        self.planes.check_changeable()?;
        check_numbered(header)?;
        let capability = self.sessions.mint.open(&ask.capability, Presenter::of_any(header.session, principal.uid))?;
        check_writable(&capability)?;
        let id = capability.inode;
        let range = (ask.offset, ask.len);
        let (_, looked) = self.context(id, header.session, range, false, &mut WriteContexts::default())?;
        let inode = self.planes.current(id)?;
        if inode.kind() != FileKind::File {
            return Err(Reason::InvalidArgument.into());
        }
        if ask.len == 0 {
            return Err(Fault::new(Reason::InvalidArgument, "a hole of no bytes"));
        }
        self.planes.hold_back()?;
        let shared = self.once_shared(id, &inode)?;
        let spread = self.spread_of_hole(id, &inode, ask, &shared)?;
        let missing = spread.parts.iter().map(|part| part.chunk);
        let missing = missing.filter(|chunk| !inode.may_write_chunk(header.session, *chunk));
        for run in runs(missing) {
            let grant = Grant { inode: id.0, first: *run.start(), count: run.end() - run.start() + 1 };
            self.grant(principal, header.session, Op::Grant(grant))?;
        }
        Ok(Prepared { id, uid: capability.opener.unwrap_or(principal.caller.uid), inode, shared, looked })
    }

    /// Ranges that read as zeros now and once showed bytes of another state: a truncate, a restore or an undo made
    /// holes of them. A punch there is their last change, and an undo of the punch must see it.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// A read of the history for each layer of holes, [`LAYERS_MAX`] at most; none for a file that was never cut.
    fn once_shared(&self, id: InodeId, inode: &Inode) -> Result<Ranges, Fault> {
        let (mut found, mut looked_at) = (Vec::new(), 0);
        let holes = |inode: &Inode, start, end| -> Vec<(u64, u64, Hlc)> {
            let patches = inode.patches_in(start, end).filter(|patch| patch.source == PatchSource::Hole);
            patches.map(|patch| (patch.start, patch.end, patch.at)).collect()
        };
        let mut todo = holes(inode, 0, u64::MAX);
        while let Some((start, end, at)) = todo.pop() {
            looked_at += 1;
            if looked_at > LAYERS_MAX {
                break;
            }
            let before = match self.planes.meta.inode(id, Some(at.previous())) {
                Err(fault) if fault.reason == Reason::NotFound => continue,
                before => before?,
            };
            let shared = before.patches_in(start, end).filter(|patch| patch.source != PatchSource::Hole);
            found.extend(shared.map(|patch| (patch.start, patch.end)));
            todo.extend(holes(&before, start, end));
        }
        Ok(found)
    }

    /// `shared`: the result of [`Writers::once_shared`].
    fn spread_of_hole(&self, id: InodeId, inode: &Inode, ask: &Punch, shared: &[(u64, u64)]) -> Result<Spread, Fault> {
        let layout = layout_of(id, inode);
        let log = self.planes.data.device().log_of([id])?;
        split_hole(ask.offset, ask.len, layout, |chunks| {
            let mut found: BTreeSet<u32> = log.chunks_in(id, chunks.clone()).take(HOLE_PARTS_MAX).collect();
            // A record that reaches into a chunk is none of that chunk's records.
            for index in log.chunks_in(id, chunks.start().saturating_sub(layout.reach())..=*chunks.end()) {
                let highest =
                    inode.reaches_over(index).then(|| log.newest_in(id, index..=index, Hlc::ZERO, Hlc::MAX).highest);
                let reached = highest.flatten().map_or(index, |end| layout.end_in_chunk(end).0);
                found.extend((index + 1..=reached).filter(|reached| chunks.contains(reached)));
            }
            // Shared bytes show where the file has no record of its own.
            let bytes = |chunk: u32| u64::from(chunk) * layout.chunk_bytes;
            let (start, end) = (bytes(*chunks.start()), bytes(*chunks.end()).saturating_add(layout.chunk_bytes));
            let shows = inode.patches_in(start, end).filter(|patch| patch.source != PatchSource::Hole);
            let shows = shows.map(|patch| (patch.start, patch.end));
            for (from, to) in shows.chain(shared.iter().map(|(from, to)| ((*from).max(start), (*to).min(end)))) {
                if from < to {
                    let part = (from / layout.chunk_bytes) as u32..=((to - 1) / layout.chunk_bytes) as u32;
                    found.extend(part.take(HOLE_PARTS_MAX));
                }
            }
            found.into_iter().take(HOLE_PARTS_MAX).collect()
        })
    }
}

/// Layers of holes under each other that a search for once shared bytes reads.
const LAYERS_MAX: u32 = 256;

/// Runs of consecutive chunks, none longer than one grant.
fn runs(chunks: impl Iterator<Item = u32>) -> Vec<RangeInclusive<u32>> {
    let mut runs: Vec<RangeInclusive<u32>> = Vec::new();
    for chunk in chunks {
        match runs.last_mut() {
            Some(run) if run.end() + 1 == chunk && chunk - run.start() < GRANT_CHUNKS_MAX => {
                *run = *run.start()..=chunk;
            }
            _ => runs.push(chunk..=chunk),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_of_neighbours_and_fit_into_a_grant() {
        assert_eq!(runs([].into_iter()), []);
        assert_eq!(runs([3, 4, 5, 9, 11, 12].into_iter()), [3..=5, 9..=9, 11..=12]);
        assert_eq!(runs(0..40), [0..=15, 16..=31, 32..=39]);
    }
}
