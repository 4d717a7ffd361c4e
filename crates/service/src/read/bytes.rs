//! Reading bytes: one state of the file, its pieces from memory or the disk, and prefetch for the next read.

use frieze_base::{ByteRange, Fault, Reason};
use frieze_multilog::{FragmentedPage, Piece};
use frieze_planes::{DEPTH_MAX, Fetch, FileVersion, ThroughImages};
use frieze_storage::{PinnedPages, ReaderKey};
use frieze_tier::{Habit, Heat};
use frieze_wire::frame::PAYLOAD_BYTES_MAX;
use frieze_wire::message::{Read, ReadReply};

use crate::read::Reader;
use crate::session::capability::{Bearer, Presenter};
use crate::session::reply_stream::{Unread, can_step};
use crate::session::request_class::is_claim;
use crate::session::scratch::Scratch;

impl Reader {
    /// Reads into `scratch.payload`; returns the reply and the CRC32C of the bytes. If the answer may go out in steps,
    /// what is to be read is left in `scratch.unread` instead.
    pub fn read(&self, by: Presenter, ask: &Read, scratch: &mut Scratch) -> Result<(ReadReply, u32), Fault> {
        let capability = self.sessions.mint.open_shown(&ask.capability, by, &mut scratch.shown)?;
        if !capability.read {
            return Err(Fault::new(Reason::AccessDenied, "the file was not opened for reading"));
        }
        if ask.len > PAYLOAD_BYTES_MAX {
            return Err(Fault::new(
                Reason::InvalidArgument,
                format!("a read of {} bytes; at most {PAYLOAD_BYTES_MAX} at once", ask.len),
            ));
        }
        let id = capability.inode;
        let chains = capability.at().and_then(|_| self.files.chains_to_close(id, ask));
        if let Bearer::Session(session) = capability.bearer
            && ask.len == 0
        {
            // So a session renews its claim that the file is open, after a restart of the server or at the next leader.
            self.sessions.opened.add(session, id);
        }
        if is_claim(ask) {
            scratch.payload.clear();
            return Ok((ReadReply { end_of_file: true, ..ReadReply::default() }, 0));
        }
        let mut answered = self.planes.answer_about(capability.view, chains.as_ref())?;
        for attempt in 0..=PLANS_MAX {
            let expiries = capability.view.is_past().then(|| self.planes.meta.expiry_changes());
            let before = self.planes.inode_at(id, capability.at())?;
            let version = before.from;
            self.files.check_read_here(id, &before, capability.view, ask)?;
            let seen = self.version(id, before, capability.view)?;
            answered.user_time_open = seen.user_time_open;
            // If truncates overtake a reader again and again, it reads with writers kept out.
            let held = (attempt >= MIXED_MAX).then(|| self.files.hold_alone()).flatten();
            let is_alone = held.is_some();
            let view = capability.view;
            // Before the read: a write that begins later cannot hide a loss that this answer shows.
            let losses = self.planes.losses();
            if let Some(losses) = &losses {
                answered.incomplete |= self.files.may_lack(losses, &seen, ask)?;
            }
            let reader = match capability.bearer {
                Bearer::Session(session) => session.0,
                Bearer::User(_) => ask.reader,
            };
            let who = ReaderKey { reader, inode: id, at: (view.at, view.user_at) };
            let placed = self.planes.data.device().log().changes();
            let read = self.read_version(&seen, ask, Some(who), scratch);
            drop(held);
            if read.is_err() && self.planes.data.device().log().changes() != placed {
                // Records were packed meanwhile: they lie elsewhere.
                continue;
            }
            if read.is_err() {
                // The chunk may have moved to other servers.
                self.files.check_read_here(id, &seen.inode, capability.view, ask)?;
                // The range may have expired since the request began, and its bytes may be freed.
                self.planes.check_kept(id, capability.at())?;
            }
            let (end_of_file, crc) = read?;
            if expiries.is_some_and(|before| self.planes.meta.expiry_changes() != before) {
                // What died between the check and the plan is not in the plan.
                self.planes.check_kept(id, capability.at())?;
            }
            // The plan and the version that it was made for belong together only if no truncate came between.
            let unchanged = capability.view.is_past()
                || (attempt > MIXED_MAX && is_alone)
                || self.planes.meta.version_stamp(id) == Some(version);
            if unchanged && self.planes.losses() == losses {
                return Ok((ReadReply { end_of_file, answered, ..ReadReply::default() }, crc));
            }
        }
        Err(Fault::new(
            Reason::Unavailable,
            "the file is truncated again and again while it is read: try again in a moment",
        ))
    }

    /// Reads into `scratch.payload`; returns whether the file ends there, and the CRC32C of the bytes. Under the reader
    /// key the prefetcher tracks the reader's sequence of ranges.
    pub(crate) fn read_version(
        &self,
        seen: &FileVersion,
        ask: &Read,
        who: Option<ReaderKey>,
        scratch: &mut Scratch,
    ) -> Result<(bool, u32), Fault> {
        let device = self.planes.data.device();
        if let Some(before) = scratch.unread.take() {
            // Of a plan that a truncate overtook.
            device.unpin(before.lease, false);
        }
        let asked_end = ask.offset.saturating_add(ask.len.into());
        scratch.fetch.clear();
        let (range, size) = loop {
            scratch.pieces.clear();
            scratch.crowded.clear();
            let Scratch { pieces, crowded, fetch, .. } = &mut *scratch;
            let (range, size) = self.plan_version(seen, ask.offset, asked_end, pieces, crowded, Some(fetch))?;
            let len = range.len() as usize;
            if scratch.may_step && can_step(&scratch.pieces, len) {
                // Each step has a buffer of its own, which is large enough.
                break (range, size);
            }
            if scratch.payload.len() < len {
                scratch.payload.resize(len, 0);
            }
            scratch.fetch.fill(&scratch.pieces, range.start(), &mut scratch.payload[..len]);
            // An image that could not be used is not planned again.
            if device.read_images(&scratch.pieces, &mut scratch.payload[..len], &mut scratch.block) {
                break (range, size);
            }
        };
        scratch.fetch.clear();
        device.request_images(&scratch.crowded);
        let lease = self.prefetch(seen, range, who, &scratch.pieces);
        let len = range.len() as usize;
        if scratch.may_step && can_step(&scratch.pieces, len) {
            let dest_slot = ask.dest_slot;
            scratch.unread = Some(Unread { start: range.start(), len, lease, dest_slot });
            return Ok((asked_end >= size, 0));
        }
        scratch.payload.truncate(len);
        let read = device.read(&scratch.pieces, range.start(), &mut scratch.payload, &mut scratch.block);
        device.unpin(lease, read.is_err());
        Ok((asked_end >= size, read?))
    }

    /// Requests the parts of `pieces`, which are `range` of a file, that are not in memory, and the next range of the
    /// reader if it reads sequentially. The caller passes the result to
    /// [`Device::unpin`](frieze_storage::Device::unpin) after reading.
    fn prefetch(&self, seen: &FileVersion, range: ByteRange, who: Option<ReaderKey>, pieces: &[Piece]) -> PinnedPages {
        let device = self.planes.data.device();
        // Young records are in memory: no prefetch is needed.
        if !device.may_need_disk(pieces) {
            return device.pin_young(pieces);
        }
        let habit = who.map_or(Habit::default(), |who| device.tiers().observe(who, range));
        let lease = device.pin(pieces, if habit.is_sequential { Heat::Scan } else { Heat::Wanted });
        if let Some(ahead) = habit.ahead {
            self.read_ahead(seen, ahead);
        }
        lease
    }

    /// Appends to `out` what a read of `start..end` has to fetch, up to the end of the file. Returns the range that it
    /// covers, and the size of the file. Pages of many pieces come from images; pages that still have too many are
    /// added to `crowded`. Ranges of other servers are fetched into `fetch`; without `fetch` a plan that needs them
    /// fails.
    fn plan_version(
        &self,
        seen: &FileVersion,
        start: u64,
        end: u64,
        out: &mut Vec<Piece>,
        crowded: &mut Vec<FragmentedPage>,
        mut fetch: Option<&mut Fetch>,
    ) -> Result<(ByteRange, u64), Fault> {
        let sources = self.files.sources(&seen.inode, start, end)?;
        let remote = self.files.remote_reach_upto(seen, end)?;
        let first = (out.len(), crowded.len());
        for _ in 0..=FETCHES_MAX {
            let (range, size) = {
                // Length and places in one `Look`, over however many chunks: the answer is one state.
                let look = self.files.look_with(&[seen], &[&sources], remote.clone())?;
                let size = look.extent(seen).size;
                let range = ByteRange::new(start.min(size), end.min(size));
                let images = self.planes.data.device().images();
                let through = ThroughImages { images: &images, crowded: &mut *crowded, fetch: fetch.as_deref_mut() };
                look.plan_to_read(seen, &sources, range, through, out)?;
                (range, size)
            };
            match &mut fetch {
                Some(fetch) if fetch.lacks() => self.files.fetch(fetch)?,
                _ => return Ok((range, size)),
            }
            out.truncate(first.0);
            crowded.truncate(first.1);
        }
        Err(Fault::new(Reason::Unavailable, "what the range shares moves from server to server: try again in a moment"))
    }

    /// Prefetches a range that the reader is about to ask for. Errors are ignored: the read itself will report them.
    fn read_ahead(&self, seen: &FileVersion, ahead: ByteRange) {
        let mut pieces = Vec::new();
        let planned = self.plan_version(seen, ahead.start(), ahead.end(), &mut pieces, &mut Vec::new(), None);
        let Ok((range, _)) = planned else { return };
        let device = self.planes.data.device();
        let lease = device.pin(&pieces, Heat::Scan);
        device.tiers().read_ahead(range.len());
        device.unpin(lease, false);
    }
}

/// Times a read of now starts again because the file was truncated meanwhile, before it keeps writers out.
const MIXED_MAX: u32 = 8;
/// Most fetches from other servers for a range: once for each state behind another, and now and then once more.
const FETCHES_MAX: u32 = 4 * DEPTH_MAX;
/// Most attempts in all: one of several servers cannot keep writers out.
const PLANS_MAX: u32 = 64;
