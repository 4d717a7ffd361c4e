//! The change feed of an interval: every version of names, inodes and attributes, and every range of bytes written,
//! read from the indexes of time of both planes.
//!
//! Guarantees: complete for a closed interval, and the same at every query; the work grows with the changes of the
//! interval and not with the tree.
//! Leaves to others: what a caller may see of it (`diff`), undoing changes.

use std::collections::BTreeSet;

use frieze_base::{ByteRange, Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_multilog::{RecordHeader, RecordKind};
use frieze_namespace::{PlaceName, SubjectChange, TxnChanges};
use frieze_wire::message::View;

use crate::history::History;
use crate::history::scope::{Area, Scope, Within, is_name};
use crate::history::tree_pair::{CutPair, Interval};

/// Most changes of one feed: beyond, the caller asks for a shorter interval. About 200 bytes each: 200 MiB.
pub(crate) const CHANGES_MAX: usize = 1 << 20;
/// Most records of one file in a feed.
const RECORDS_MAX: usize = 1 << 20;

/// Granularity of a file's writes in a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Appends of a session to its own last write are one entry, within a cell of so many us; 0: within the interval.
    Runs(u64),
    /// One entry for each record: a caller that looks up the file's names or its expiry between them needs each stamp.
    Records,
}

/// What changed in an interval.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    /// Names, inodes and attributes, in this order.
    pub(crate) subjects: Vec<SubjectChange>,
    /// Files whose bytes were written, by number.
    pub(crate) files: Vec<FileChange>,
    /// Entries of indexes, versions and records that were read to find out.
    pub(crate) entries_read: u64,
}

/// What was written to a file in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileChange {
    /// The file.
    pub(crate) inode: InodeId,
    /// In order of stamp; with [`Detail::Runs`] what one session appended to its own last write is one.
    pub(crate) writes: Vec<Written>,
    /// There may be more, known only as such: the history of the file at the time has expired.
    pub(crate) lost: bool,
}

/// Bytes that one session wrote one after the other, or punched out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes of the file.
    pub(crate) range: ByteRange,
    /// Punched out.
    pub(crate) punch: bool,
    /// Stamp of the first of its records.
    pub(crate) first: Hlc,
    /// Stamp of the last.
    pub(crate) last: Hlc,
    /// Session of the writer.
    pub(crate) session: SessionId,
    /// User on whose behalf the session wrote.
    pub(crate) uid: u32,
}

impl History {
    /// Everything that changed in `interval`, whose ends are `cuts`, within `scope`. Rights are not checked.
    ///
    /// Whether a change lies within the scope depends on the names at the two ends of the interval.
    ///
    /// # Errors
    /// As [`Planes::answer`] for the end of the interval, which is closed by this; `Overloaded` for more than
    /// [`CHANGES_MAX`] changes.
    ///
    /// # Cost
    /// The versions of what changed within the scope; to find these, the names below it if they are few
    /// ([`History::area`]), or else the changes of the interval in the whole file system.
    pub(crate) fn changes(&self, scope: Scope, interval: Interval, cuts: &mut CutPair<'_>) -> Result<Changes, Fault> {
        self.planes.answer(View::exact(interval.upto))?;
        let history = self.planes.meta.history();
        // The names of the scope itself lie in directories above it.
        let own_names: Vec<PlaceName> = match scope {
            Scope::Everything => Vec::new(),
            Scope::Within(root) | Scope::Names(root) => [interval.after, interval.upto]
                .map(|at| history.names(root, at))
                .into_iter()
                .collect::<Result<Vec<_>, _>>()?
                .concat(),
        };
        let area = self.area(scope, interval, 0)?;
        let mut within = Within::new(scope);
        let Interval { after, upto } = interval;
        let stamps = area.stamps(interval);
        let changed = history.changed((after, upto), stamps, CHANGES_MAX, &mut |subject| {
            Ok(is_name(&own_names, subject) || within.holds(cuts, subject.inode())?)
        })?;
        let (files, records) = self.files_changed(&area, interval, cuts, &|_| false)?;
        let entries_read = changed.index_entries + changed.versions + records;
        Ok(Changes { subjects: changed.subjects, files, entries_read })
    }

    /// What one transaction changed of names, inodes and attributes within `scope`; `cuts` are just before and after.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn changes_by(
        &self,
        transaction: &TxnChanges,
        scope: Scope,
        cuts: &mut CutPair<'_>,
    ) -> Result<Changes, Fault> {
        let mut own_names: Vec<PlaceName> = Vec::new();
        if let Some(root) = transaction.inodes().find(|id| scope.is_root(*id)) {
            // Any change of an inode's name makes a version of the inode.
            own_names = [cuts.before.names(root)?, cuts.after.names(root)?].concat();
        }
        let mut within = Within::new(scope);
        let changed = self.planes.meta.history().changed_by(transaction, &mut |subject| {
            Ok(is_name(&own_names, subject) || within.holds(cuts, subject.inode())?)
        })?;
        Ok(Changes { subjects: changed.subjects, files: Vec::new(), entries_read: changed.versions })
    }

    /// The part of [`History::changes`] that the device knows, and how many entries were read for it; the interval has
    /// to be closed, and `cuts` are its ends. `also`: files that count although they may lie within the scope at
    /// neither end, in every detail.
    ///
    /// # Errors
    /// As [`History::written`]; those of the store.
    pub(crate) fn files_changed(
        &self,
        area: &Area,
        interval: Interval,
        cuts: &mut CutPair<'_>,
        also: &dyn Fn(InodeId) -> bool,
    ) -> Result<(Vec<FileChange>, u64), Fault> {
        let (touched, mut entries_read) = self.touched(interval, &|inode| area.may_hold(inode))?;
        let (mut within, mut files) = (Within::new(area.scope), Vec::new());
        let expires = self.planes.meta.forgetting_count().count > 0;
        for inode in touched {
            if within.holds_file(cuts, inode)? || also(inode) {
                let mut by_record = also(inode);
                // Of what has expired, a snapshot may keep an instant in the middle of a run.
                if expires && !by_record {
                    let names = [cuts.before.names(inode)?, cuts.after.names(inode)?].concat();
                    let newest = self.planes.meta.newest_horizon(names.iter().map(|name| name.parent).chain([inode]));
                    by_record = newest.is_some_and(|horizon| horizon.before > interval.after.0);
                }
                let detail = if by_record { Detail::Records } else { Detail::Runs(area.cell_us) };
                let (change, records) = self.written(inode, interval, detail)?;
                entries_read += records;
                files.push(change);
            }
        }
        Ok((files, entries_read))
    }

    /// The files, of those that are asked about, that have records stamped in an interval, whichever server has these;
    /// and how many entries of the index of time that took.
    ///
    /// # Errors
    /// Of the device; `Unavailable` if no server that has some of them answers.
    pub(crate) fn touched(
        &self,
        interval: Interval,
        is_asked: &dyn Fn(InodeId) -> bool,
    ) -> Result<(BTreeSet<InodeId>, u64), Fault> {
        let (touched, looked_at) = self.planes.data.device().files_written(interval.after, interval.upto, is_asked)?;
        let mut files: BTreeSet<InodeId> = touched.into_iter().collect();
        let remote = self.files.touched_remotely(interval.after, interval.upto)?;
        files.extend(remote.into_iter().filter(|inode| is_asked(*inode)));
        Ok((files, looked_at))
    }

    /// The writes to a file in `interval`, including those that a truncate hides now, and the number of their records.
    ///
    /// # Errors
    /// `Overloaded` for more than 1,048,576 records: ask for a shorter interval.
    pub(crate) fn written(
        &self,
        inode: InodeId,
        Interval { after, upto }: Interval,
        detail: Detail,
    ) -> Result<(FileChange, u64), Fault> {
        // The layout of a file is that of its birth.
        let chunk_bytes = self.planes.meta.layout(inode)?.chunk_bytes;
        let (records, thinned) = self.files.kept_records(inode, (after, upto), RECORDS_MAX + 1)?;
        let dropped = self.planes.data.device().log_of([inode])?.dropped_records(inode, after, upto);
        let lost = thinned || !dropped.is_empty() || self.files.may_be_forgotten_remotely(inode, after);
        if records.len() > RECORDS_MAX {
            let words =
                format!("more than {RECORDS_MAX} writes to inode {inode} in the interval: ask for a shorter one");
            return Err(Fault::new(Reason::Overloaded, words));
        }
        let mut writes: Vec<Written> = Vec::new();
        for record in &records {
            let next = Written::of(record, chunk_bytes);
            match writes.last_mut() {
                Some(last) if last.goes_on_in(&next, detail) => {
                    last.range = ByteRange::new(last.range.start(), next.range.end());
                    last.last = next.last;
                }
                _ => writes.push(next),
            }
        }
        Ok((FileChange { inode, writes, lost }, records.len() as u64))
    }
}

impl Written {
    fn of(record: &RecordHeader, chunk_bytes: u64) -> Written {
        let start = u64::from(record.chunk.index) * chunk_bytes + u64::from(record.offset);
        Written {
            range: ByteRange::new(start, start + u64::from(record.len)),
            punch: record.kind == RecordKind::Punch,
            first: record.stamp,
            last: record.stamp,
            session: record.session,
            uid: record.uid,
        }
    }

    fn goes_on_in(&self, next: &Written, detail: Detail) -> bool {
        let Detail::Runs(cell_us) = detail else { return false };
        let who = |written: &Written| (written.session, written.uid, written.punch);
        let is_same = who(self) == who(next) && self.range.end() == next.range.start();
        is_same && is_one_cell(self.last, next.last, cell_us)
    }
}

/// True if two stamps lie in one cell of time.
pub(crate) fn is_one_cell(one: Hlc, other: Hlc, cell_us: u64) -> bool {
    cell_us == 0 || one.micros() / cell_us == other.micros() / cell_us
}
