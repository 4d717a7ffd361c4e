//! The change feed of an interval: every version of names, inodes and attributes, and every range of bytes written,
//! read from the indexes of time of both planes.
//!
//! Guarantees: complete for a closed interval, and the same whenever it is asked again; what it reads grows with the
//! changes of the interval and not with the tree.
//! Leaves to others: what a caller may see of it (`changed`), taking changes back.

#![expect(dead_code, reason = "the requests that ask for it come with the commands of time")]

use frieze_base::{ByteRange, FastMap, Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_multilog::{RecordKind, RecordMeta};
use frieze_namespace::{Changed, Cut, Named, Subject, SubjectChange};
use frieze_wire::message::View;
use frieze_wire::txn::Caller;

use crate::engine::Engine;

/// Changes of one feed: beyond, the caller asks for a shorter interval. About 200 bytes each: 200 MiB.
pub(crate) const CHANGES_MAX: usize = 1 << 20;
/// Records of one file in a feed.
const RECORDS_MAX: usize = 1 << 20;

/// (after, upto]: what was stamped later than the one and not later than the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    /// Exclusive start.
    pub(crate) after: Hlc,
    /// Inclusive end.
    pub(crate) upto: Hlc,
}

/// Which part of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of it.
    Everything,
    /// What is, at the start or at the end of the interval, this inode or below it.
    Within(InodeId),
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
    /// In order of stamp; what one session appended to its own last write is one.
    pub(crate) writes: Vec<Written>,
}

/// Bytes that one session wrote one after the other, or punched out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// In bytes of the file.
    pub(crate) range: ByteRange,
    /// Punched out.
    pub(crate) punch: bool,
    /// Stamp of the first of its records.
    pub(crate) first: Hlc,
    /// Stamp of the last.
    pub(crate) last: Hlc,
    /// By which session.
    pub(crate) session: SessionId,
    /// On whose behalf.
    pub(crate) uid: u32,
}

impl Engine {
    /// Everything that changed in `interval` within `scope`. No rights are asked.
    ///
    /// Whether something lies within the scope is a question about the two ends of the interval, where names lead then.
    ///
    /// # Errors
    /// As [`Engine::answer`] for the end of the interval, which is closed by this; `Overloaded` for more than
    /// [`CHANGES_MAX`] changes.
    ///
    /// # Cost
    /// The changes of the interval in the whole file system, and for those within the scope their versions.
    pub(crate) fn changes(&self, scope: Scope, interval: Interval) -> Result<Changes, Fault> {
        self.answer(View { at: Some(interval.upto.0), user_at: None })?;
        let history = self.meta.versions();
        let nobody = Caller::root();
        let mut ends = [Cut::new(history, interval.after, &nobody), Cut::new(history, interval.upto, &nobody)];
        // The names of the scope itself lie in directories above it.
        let own_names: Vec<Named> = match scope {
            Scope::Everything => Vec::new(),
            Scope::Within(root) => [ends[0].names(root)?, ends[1].names(root)?].concat(),
        };
        let mut known: FastMap<InodeId, bool> = FastMap::default();
        let mut within = |id: InodeId| -> Result<bool, Fault> {
            let Scope::Within(root) = scope else { return Ok(true) };
            if let Some(&known) = known.get(&id) {
                return Ok(known);
            }
            let answer = is_within(&mut ends[0], id, root)? || is_within(&mut ends[1], id, root)?;
            known.insert(id, answer);
            Ok(answer)
        };
        let changed = Changed::read(history, interval.after, interval.upto, CHANGES_MAX, &mut |subject| {
            let named = |own: &Named| matches!(subject, Subject::Entry { parent, name } if *parent == own.parent && *name == own.name);
            Ok(own_names.iter().any(named) || within(subject.inode())?)
        })?;
        let mut entries_read = changed.index_entries + changed.versions;
        let (touched, looked_at) = self.data.device().log().touched(interval.after, interval.upto);
        entries_read += looked_at;
        let mut files = Vec::new();
        for inode in touched {
            if within(inode)? {
                let (change, records) = self.written(inode, interval)?;
                entries_read += records;
                files.push(change);
            }
        }
        Ok(Changes { subjects: changed.subjects, files, entries_read })
    }

    /// What was written to a file in `interval`, whatever a truncate hides of it now, and how many records that are.
    ///
    /// # Errors
    /// `Overloaded` for more than 1,048,576 records: ask for a shorter interval.
    pub(crate) fn written(&self, inode: InodeId, interval: Interval) -> Result<(FileChange, u64), Fault> {
        // The layout of a file is that of its birth.
        let version = self.meta.namespace().inode(self.meta.versions(), inode, None)?;
        let chunk_bytes = version.chunk_bytes();
        let records = self.data.device().log().versions(inode, interval.after, interval.upto, RECORDS_MAX + 1);
        if records.len() > RECORDS_MAX {
            return Err(Fault::new(
                Reason::Overloaded,
                format!("more than {RECORDS_MAX} writes to inode {inode} in the interval: ask for a shorter one"),
            ));
        }
        let mut writes: Vec<Written> = Vec::new();
        for record in &records {
            let next = Written::of(record, chunk_bytes);
            match writes.last_mut() {
                Some(last) if last.goes_on_in(&next) => {
                    last.range = ByteRange::new(last.range.start(), next.range.end());
                    last.last = next.last;
                }
                _ => writes.push(next),
            }
        }
        Ok((FileChange { inode, writes }, records.len() as u64))
    }
}

impl Written {
    fn of(record: &RecordMeta, chunk_bytes: u64) -> Written {
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

    fn goes_on_in(&self, next: &Written) -> bool {
        let who = |written: &Written| (written.session, written.uid, written.punch);
        who(self) == who(next) && self.range.end() == next.range.start()
    }
}

/// True if an inode was `root` or lay below it.
fn is_within(cut: &mut Cut<'_>, id: InodeId, root: InodeId) -> Result<bool, Fault> {
    if id == root {
        return Ok(true);
    }
    let Some(inode) = cut.inode(id)? else { return Ok(false) };
    if inode.is_directory() {
        return cut.is_within(id, root);
    }
    for named in cut.names(id)? {
        if cut.is_within(named.parent, root)? {
            return Ok(true);
        }
    }
    Ok(false)
}
