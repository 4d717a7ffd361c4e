//! The versions of one file or directory: those that metadata records, and those that writes made.
//!
//! Guarantees: a page costs about as much as it contains, with the oldest versions first or the newest; the versions of
//! one stamp are in one page. Leaves to others: the events in a directory and below it (`activity`).

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_multilog::{RecordHeader, RecordKind};
use frieze_namespace::{Cached, MAY_READ};
use frieze_planes::Principal;
use frieze_wire::message::{Log, LogReply, Version, VersionKind, View};

use crate::history::History;
use crate::history::tree_pair::Interval;
use crate::read::page;
use crate::session::cache_leases::CacheLeaseRequest;

/// A search for the newest versions of a file begins with one second, and doubles the stretch as long as it contains
/// too few.
const STRETCH_US: u64 = 1_000_000;
const STRETCH_GROWTH: u64 = 4;

/// A page of versions.
struct VersionPage {
    /// Oldest first.
    versions: Vec<Version>,
    /// There are more, later than the last of these.
    more: bool,
}

impl History {
    pub(crate) fn log(&self, principal: &Principal, ask: &Log, asking: &CacheLeaseRequest) -> Result<LogReply, Fault> {
        self.planes.answer(ask.view)?;
        let upto = if ask.upto == 0 { Hlc::MAX } else { Hlc(ask.upto) };
        // An upper bound before the earliest instant was closed long ago.
        if upto != Hlc::MAX && upto >= self.planes.earliest() {
            self.planes.answer(View { at: Some(upto.0), user_at: None })?;
        }
        let at = ask.view.instant();
        let found = self.planes.resolve(principal, &ask.target, at, asking.reads())?;
        asking.reads().add(Cached::Inode(found.id));
        asking.reads().add(Cached::Names(found.id));
        self.planes.check(principal, found.id, at, MAY_READ)?;
        let max = page(ask.count_max);
        let forgotten = self.planes.forgotten(found.id, &found.inode).filter(|forgotten| forgotten.before > ask.after);
        let start = forgotten.map_or(Hlc(ask.after), |forgotten| Hlc(forgotten.before).previous());
        let mut whole = Interval { after: start, upto };
        let chunk_bytes = found.inode.chunk_bytes();
        if ask.newest_first {
            whole.after = self.newest_versions_since(found.id, whole, max)?;
        }
        let mut told = self.versions_of(found.id, chunk_bytes, whole, max)?;
        while let Some(last) = told.versions.last().map(|last| Hlc(last.stamp))
            && ask.newest_first
            && told.more
        {
            whole.after = last;
            told = self.versions_of(found.id, chunk_bytes, whole, max)?;
        }
        let VersionPage { mut versions, mut more } = told;
        if ask.newest_first {
            versions.reverse();
            more = whole.after > start;
        }
        let sessions = self.infos(principal, versions.iter().map(|version| version.session))?;
        let after = if ask.newest_first { whole.after.0 } else { 0 };
        Ok(LogReply { versions, more, sessions, forgotten, after })
    }

    /// The oldest versions of an interval: at most `max`, or as many as the last of those shares its stamp with.
    fn versions_of(&self, id: InodeId, chunk_bytes: u64, whole: Interval, max: usize) -> Result<VersionPage, Fault> {
        let Interval { after, upto } = whole;
        let mut versions = self.planes.meta.log(id, after, upto, max.saturating_add(1))?;
        let (records, all) = self.version_records(id, whole, max)?;
        let mut more = !all || versions.len() > max;
        // Changes of metadata after the last record that was read go into the page of the records that follow.
        let end = if all { upto } else { records.last().map_or(upto, |last| last.stamp.previous()) };
        let mut last: Option<(Hlc, usize)> = None;
        for record in records.iter().filter(|record| record.stamp <= end) {
            // The parts of a write count once.
            if let Some((stamp, index)) = last
                && stamp == record.stamp
            {
                versions[index].len += u64::from(record.len);
                continue;
            }
            last = Some((record.stamp, versions.len()));
            versions.push(version_of(record, chunk_bytes));
        }
        versions.retain(|version| version.stamp <= end.0);
        versions.sort_by_key(|version| version.stamp);
        if let Some(last) = versions.get(max.saturating_sub(1)).map(|version| version.stamp) {
            let kept = versions.partition_point(|version| version.stamp <= last);
            more |= kept < versions.len();
            versions.truncate(kept);
        }
        Ok(VersionPage { versions, more })
    }

    /// Records of more than `max` writes, and whether these are all of the interval. A write may have many parts.
    fn version_records(&self, id: InodeId, whole: Interval, max: usize) -> Result<(Vec<RecordHeader>, bool), Fault> {
        let mut records_max = 2 * max + 2;
        loop {
            let records = self.files.kept_records(id, (whole.after, whole.upto), records_max)?.0;
            let is_next = |pair: &&[RecordHeader]| pair[0].stamp != pair[1].stamp;
            let writes = records.windows(2).filter(is_next).count() + 1;
            let all = records.len() < records_max;
            // The last may lack some of its parts.
            if all || writes > max + 1 {
                return Ok((records, all));
            }
            records_max *= 2;
        }
    }

    /// An instant after which about `max` versions of the interval follow, which are its newest; its start if there are
    /// no more.
    fn newest_versions_since(&self, id: InodeId, whole: Interval, max: usize) -> Result<Hlc, Fault> {
        let Interval { after, upto } = whole;
        let after = self.planes.meta.history().newest_changes_since(id, (after, upto), max)?;
        let upto = upto.min(self.planes.clock.newest());
        let is_enough = |from: Hlc| Ok::<bool, Fault>(self.files.kept_records(id, (from, upto), max)?.0.len() >= max);
        let (mut enough, mut few, mut stretch_us) = (after, upto, STRETCH_US);
        loop {
            let from = upto.micros().checked_sub(stretch_us).map_or(after, Hlc::last_of_micros).max(after);
            if from == after {
                break;
            }
            if is_enough(from)? {
                enough = from;
                break;
            }
            few = few.min(from);
            stretch_us = stretch_us.saturating_mul(STRETCH_GROWTH);
        }
        // Between the two, until it is no more than twice as many.
        while enough < few.previous() && self.files.kept_records(id, (enough, upto), 2 * max)?.0.len() >= 2 * max {
            let middle = Hlc(enough.0 + (few.0 - enough.0) / 2);
            match is_enough(middle)? {
                true => enough = middle,
                false => few = middle,
            }
        }
        Ok(enough)
    }
}

fn version_of(record: &RecordHeader, chunk_bytes: u64) -> Version {
    let kind = match record.kind {
        RecordKind::Punch => VersionKind::Punch,
        _ => VersionKind::Write,
    };
    Version {
        kind: kind as i32,
        stamp: record.stamp.0,
        user_time: record.user_time.map(|time| time.0),
        session: record.session.0,
        uid: record.uid,
        offset: u64::from(record.chunk.index) * chunk_bytes + u64::from(record.offset),
        len: record.len.into(),
        name: Vec::new(),
    }
}
