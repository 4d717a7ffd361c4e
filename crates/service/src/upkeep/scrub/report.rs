//! Damage, in terms of files and instants.
//!
//! Guarantees: only administrators see a finding: it may name the files of any user.
//! Leaves to others: finding it (`scrub`).

use frieze_base::{Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_multilog::PieceSource;
use frieze_namespace::Inode;
use frieze_planes::{FileVersion, Layer, Principal, RemoteReach, parts};
use frieze_wire::scrub::{Finding, Scrub, ScrubAction, ScrubReply, ScrubState};
use frieze_wire::txn::Caller;

use super::findings::StoredFinding;
use crate::upkeep::Upkeep;

impl Upkeep {
    pub(crate) fn scrub_asked(&self, principal: &Principal, ask: &Scrub) -> Result<ScrubReply, Fault> {
        if !self.planes.is_administrator(principal) {
            return Err(Fault::new(
                Reason::NotPermitted,
                "only root, and the user that the server runs as, may scrub: what it finds names files of everybody",
            ));
        }
        let rate = match ask.bytes_per_s {
            0 => self.planes.settings.scrub_bytes_per_s,
            rate => rate,
        };
        match ask.action() {
            ScrubAction::Look => {}
            ScrubAction::Start => self.scrub.start(self.planes.clock.now(), rate),
            ScrubAction::Stop => self.scrub.stop(self.planes.clock.now()),
        }
        self.scrub_reply(ask.with_findings)
    }

    pub(super) fn scrub_reply(&self, with_findings: bool) -> Result<ScrubReply, Fault> {
        let all_bytes = self.stored_bytes();
        let (mut reply, found) = {
            let state = self.scrub.state.lock();
            let kept = &state.kept;
            let within = self.scrub.within.load(std::sync::atomic::Ordering::Relaxed);
            let done_bytes = kept.done_bytes + if kept.state() == ScrubState::Running { within } else { 0 };
            let reply = ScrubReply {
                state: kept.state,
                started: kept.started,
                ended: kept.ended,
                done_bytes,
                all_bytes: all_bytes.max(done_bytes),
                records: kept.records,
                bytes_per_s: kept.bytes_per_s,
                damaged: kept.damaged(),
                findings: Vec::new(),
                finished: kept.finished,
                mended: kept.mended,
                trouble: state.trouble.as_ref().map_or(String::new(), |fault| fault.message.clone()),
            };
            (reply, if with_findings { kept.found.clone() } else { Vec::new() })
        };
        reply.findings = found.into_iter().map(|found| self.finding(found)).collect::<Result<_, _>>()?;
        reply.findings.sort_by(|a, b| (&a.path, a.inode, a.start, a.from).cmp(&(&b.path, b.inode, b.start, b.from)));
        Ok(reply)
    }

    /// Bytes that a scrub looks at.
    pub fn stored_bytes(&self) -> u64 {
        let mut bytes = self.planes.data.device().pack_stats().bytes;
        let log = self.planes.data.device().log();
        let mut at = frieze_base::SegmentId(0);
        while let Some(next) = log.segment_after(at) {
            bytes += log.stored_bytes(next);
            at = next;
        }
        bytes
    }

    fn finding(&self, found: StoredFinding) -> Result<Finding, Fault> {
        let mut finding = Finding {
            kind: found.kind as i32,
            segment: found.segment,
            at: found.at,
            len: found.len,
            found: found.found,
            inode: found.inode,
            unread: found.unread.clone(),
            ..Finding::default()
        };
        if found.inode == 0 {
            return Ok(finding);
        }
        let (id, now) = (InodeId(found.inode), self.planes.clock.newest());
        let root = Caller::root();
        let inode_at = |at: Hlc| self.planes.meta.history().tree_at(at, &root).inode(id);
        let Some(newest) = inode_at(now)? else { return Ok(finding) };
        let start = u64::from(found.chunk) * newest.chunk_bytes() + found.start;
        (finding.start, finding.end, finding.from) = (start, start + found.bytes, found.stamp);
        let orphaned = newest.orphaned();
        finding.deleted = orphaned.map_or(0, |stamp| stamp.0);
        let last = orphaned.map_or(now, Hlc::previous);
        finding.path = self.planes.path_of(id, &[last, Hlc(found.stamp)])?;
        let shows = |at: Hlc| -> Result<bool, Fault> {
            match inode_at(at)? {
                Some(inode) => self.shows(id, &inode, at, (start, finding.end), &found),
                None => Ok(false),
            }
        };
        if found.bytes > 0 && !shows(now)? {
            // A byte that a file's own records hide stays hidden: a binary search finds the first such instant.
            let (mut shown, mut hidden) = (found.stamp, now.0);
            while hidden - shown > 1 {
                let middle = shown + (hidden - shown) / 2;
                *(if shows(Hlc(middle))? { &mut shown } else { &mut hidden }) = middle;
            }
            finding.until = hidden;
        }
        Ok(finding)
    }

    /// True if the file shows at `at` any byte of `range` as the record of this stamp left it.
    fn shows(
        &self,
        id: InodeId,
        inode: &Inode,
        at: Hlc,
        range: (u64, u64),
        found: &StoredFinding,
    ) -> Result<bool, Fault> {
        // The length of the file does not matter.
        let file = FileVersion::at(id, inode.clone(), Some(at));
        let look = self.files.look_with(&[&file], &[], RemoteReach::default())?;
        let layer = Layer { id, inode, upto: Some(at) };
        let mut pieces = Vec::new();
        for (start, end, patch) in parts(inode, range.0, range.1) {
            look.plan_stored(layer, start, end, patch.map_or(Hlc::ZERO, |patch| patch.at), &mut pieces);
        }
        Ok(pieces.iter().any(|piece| match &piece.source {
            PieceSource::Data(stored) => stored.stamp.0 == found.stamp && stored.segment.0 == found.segment,
            PieceSource::Hole | PieceSource::Punched(_) | PieceSource::Image(_) | PieceSource::External(_) => false,
        }))
    }
}
