//! User time in files (protocols §8): the state that answers for a user time; for rows, the user time of a write, and
//! the end of a read.
//!
//! Guarantees: the same file at the same instant ends at the same byte for the same user time, whatever writes its rows
//! came in and however it was restarted; no row runs backwards in a file that only grows. A clone answers as its origin
//! did at its instant, and goes on with what is written to it; so does a file that was restored, of which it is itself
//! the origin. A file that was cut to nothing has no origin: its times begin anew ([ADR
//! 59](../../../docs/adr/0059-begin-user-times-anew.md)). Leaves to others: what a row is
//! ([`frieze_usertime::rows`]), which record a user time lies in (`multilog`).
//!
//! The log keeps one mark for each record, the time of the last row that ends in it. The rows of the one record in
//! which a user time lies are read again at each query: at most one write, so marks for rows take no memory.

use frieze_base::{Fault, InodeId, Reason};
use frieze_hlc::{Hlc, UserTime};
use frieze_multilog::UserCut;
use frieze_namespace::Inode;
use frieze_planes::FileVersion;
use frieze_wire::message::Read;

use crate::read::Reader;
use crate::session::scratch::Scratch;
use frieze_usertime::TimePlugin;
use frieze_usertime::rows::{ROW_BYTES_MAX, Rows, ends_lines_by_returns, lone_returns};

/// Most records of one write.
const PARTS_MAX: usize = 256;

impl Reader {
    /// The file in the version to read at a user time, as known at `at` (`None`: now).
    ///
    /// # Errors
    /// `NoUserTime` for a file without; `HistoryExpired` if the state that answers has expired.
    pub(crate) fn version_by_user_time(
        &self,
        id: InodeId,
        inode: Inode,
        user: UserTime,
        at: Option<Hlc>,
    ) -> Result<FileVersion, Fault> {
        let rows = match inode.plugin() {
            "" => None,
            text => Some(text.parse::<TimePlugin>()?).filter(TimePlugin::has_rows),
        };
        let mut scratch = Scratch::default();
        let (mut id, mut inode, mut at, mut open) = (id, inode, at, None);
        let mut asked = None;
        loop {
            let cut = self
                .files
                .with_log_of(id, |log| log.by_user_time(id, user, inode.times_after(), at.unwrap_or(Hlc::MAX)))?;
            if let Some(cut) = cut {
                self.close_here(id, cut.next.unwrap_or(cut.stamp))?;
            }
            // Before its own first user time a clone shows its origin, and a restored file its former state.
            let is_before = cut.is_none_or(|cut| cut.stamp == Hlc::ZERO);
            let below = match inode.origin().filter(|_| is_before) {
                None => None,
                Some(origin) => self.newest_of_origin(origin)?.map(|newest| (origin, newest)),
            };
            let Some(((from, then), newest)) = below else {
                let is_last = cut.is_none_or(|cut| cut.next.is_none());
                let last = match rows.as_ref().filter(|plugin| is_last && plugin.has_lines()) {
                    Some(plugin) => self.last_row(plugin, id, &inode, user, &mut scratch)?,
                    None => None,
                };
                let seen = match (last, cut, &rows) {
                    (Some(seen), ..) => seen,
                    (_, None, _) => return Err(no_user_time(id, user)),
                    (_, Some(cut), Some(plugin)) => self.version_of_rows(plugin, id, inode, user, cut, &mut scratch)?,
                    (_, Some(cut), None) => self.file_of_records(id, inode, at, cut)?,
                };
                let seen = match asked.filter(|_| seen.empty) {
                    // As old as the file itself, not as its origin.
                    Some((id, inode, at)) => FileVersion { empty: true, ..FileVersion::at(id, inode, at) },
                    None => seen,
                };
                return Ok(FileVersion { user_time_open: open.unwrap_or(seen.user_time_open), ..seen });
            };
            // The file asked for decides, whatever was written to its origin since.
            let open = match open {
                Some(open) => open,
                None => {
                    let own =
                        self.files.with_log_of(id, |log| log.newest_user_time(id, inode.times_after(), Hlc::MAX))?;
                    *open.insert(own.unwrap_or(newest) <= user)
                }
            };
            if let (Some(plugin), Some(next)) = (&rows, cut.and_then(|cut| cut.next))
                && newest <= user
                && let Some(seen) = self.version_within(plugin, id, user, next, false, &mut scratch)?
            {
                return Ok(FileVersion { user_time_open: open, ..seen });
            }
            let below = self.planes.inode_at(from, Some(then))?;
            asked.get_or_insert((id, std::mem::replace(&mut inode, below), at));
            (id, at) = (from, Some(then));
        }
    }

    /// Closes the chains of the file that are here up to a stamp: the stamp of the state that answers for a user time
    /// is not named by the client, so nothing has closed it yet. Other servers are asked for the chains that are not
    /// here.
    fn close_here(&self, id: InodeId, at: Hlc) -> Result<(), Fault> {
        let mut chains = self.files.chains_of_file(id);
        chains.retain(|chain| self.planes.data.is_member(*chain));
        self.planes.close_chains(at, Some(&chains)).map(drop)
    }

    /// The newest user time that a file has from its origin, while it has none of its own after `times_after`.
    ///
    /// # Errors
    /// Of the device, where the index of a file has to be fetched; of the store, where the origin has to be read.
    pub(crate) fn inherited_user_time(
        &self,
        id: InodeId,
        times_after: Hlc,
        origin: Option<(InodeId, Hlc)>,
    ) -> Result<Option<UserTime>, Fault> {
        let Some(origin) = origin else { return Ok(None) };
        if self.files.with_log_of(id, |log| log.newest_user_time(id, times_after, Hlc::MAX))?.is_some() {
            return Ok(None);
        }
        self.newest_of_origin(origin)
    }

    /// The newest user time that a file had at an instant. It counts, whether that instant is still readable or not.
    fn newest_of_origin(&self, (from, then): (InodeId, Hlc)) -> Result<Option<UserTime>, Fault> {
        let after = self.planes.meta.inode(from, Some(then))?.times_after();
        self.files.with_log_of(from, |log| log.newest_user_time(from, after, then))
    }

    /// Where the user times of a clone of `seen` at `at`, or of what is restored to it, begin: in the file itself, or
    /// where its own begin.
    ///
    /// # Errors
    /// Of the device, where the index of the file has to be fetched.
    pub(crate) fn time_origin(&self, seen: &FileVersion, at: Hlc) -> Result<Option<(InodeId, Hlc)>, Fault> {
        Ok(
            match self.files.with_log_of(seen.id, |log| log.newest_user_time(seen.id, seen.inode.times_after(), at))? {
                Some(_) => Some((seen.id, at)),
                // It may end with its only row, and be written to.
                None => seen.inode.origin().or((!seen.inode.plugin().is_empty()).then_some((seen.id, at))),
            },
        )
    }

    /// The user time of the last row that ends in a write of `payload` at `offset`; `None` if no row does. Called while
    /// no other write can run.
    ///
    /// # Errors
    /// `BackwardUserTime` with the row's offset; `InvalidArgument` for a row without a time, or a write beyond the end.
    pub(crate) fn newest_row(
        &self,
        plugin: &TimePlugin,
        id: InodeId,
        inode: Inode,
        offset: u64,
        payload: &[u8],
        inherited: Option<UserTime>,
    ) -> Result<Option<UserTime>, Fault> {
        let own = self.planes.data.device().log_of([id])?.newest_user_time(id, inode.times_after(), Hlc::MAX);
        let newest = own.or(inherited);
        // Including writes on their way to the disk: the row may have begun there.
        let seen = FileVersion::at(id, inode, Some(Hlc::MAX));
        let size = self.files.look(&[&seen])?.extent(&seen).size;
        if offset > size {
            return Err(Fault::new(
                Reason::InvalidArgument,
                format!("a write at {offset}, beyond the end at {size}, would leave a hole between two rows of {id}"),
            ));
        }
        plugin.check_whole(offset, payload.len() as u64)?;
        let mut scratch = Scratch::default();
        let mut bytes = self.row_begun(plugin, &seen, offset, &mut scratch)?;
        let start = offset - bytes.len() as u64;
        if plugin.has_lines()
            && memchr::memchr(b'\n', payload).is_none()
            && bytes.len() + payload.len() <= ROW_BYTES_MAX
        {
            let is_table = plugin.is_table();
            return if is_table && ends_lines_by_returns(payload) { Err(lone_returns()) } else { Ok(None) };
        }
        let rows = if bytes.is_empty() {
            payload
        } else {
            bytes.extend_from_slice(payload);
            &bytes
        };
        self.rows_of(plugin, &seen, start, rows, &mut scratch, |found| found.check(rows, start, newest))
    }

    /// A file of records at a user time.
    fn file_of_records(&self, id: InodeId, inode: Inode, at: Option<Hlc>, cut: UserCut) -> Result<FileVersion, Fault> {
        let UserCut { stamp, open, .. } = cut;
        if stamp == Hlc::ZERO {
            return Ok(FileVersion { empty: true, user_time_open: open, ..FileVersion::at(id, inode, at) });
        }
        // A read at a user time is a read at the stamp of the last record that it needs.
        let inode = self.planes.inode_at(id, Some(stamp))?;
        Ok(FileVersion { user_time_open: open, ..FileVersion::at(id, inode, Some(stamp)) })
    }

    /// A file of rows at a user time.
    fn version_of_rows(
        &self,
        plugin: &TimePlugin,
        id: InodeId,
        inode: Inode,
        user: UserTime,
        cut: UserCut,
        scratch: &mut Scratch,
    ) -> Result<FileVersion, Fault> {
        let UserCut { stamp, next, open } = cut;
        if let Some(next) = next
            && let Some(seen) = self.version_within(plugin, id, user, next, stamp == Hlc::ZERO, scratch)?
        {
            return Ok(FileVersion { user_time_open: open, ..seen });
        }
        if stamp == Hlc::ZERO {
            return Ok(FileVersion { empty: true, user_time_open: open, ..FileVersion::at(id, inode, Some(stamp)) });
        }
        let seen = FileVersion::at(id, self.planes.inode_at(id, Some(stamp))?, Some(stamp));
        let size = self.files.look(&[&seen])?.extent(&seen).size;
        // An unfinished row belongs to the write that ends it.
        let begun = self.row_begun(plugin, &seen, size, scratch)?.len() as u64;
        Ok(FileVersion { size_max: Some(size - begun), user_time_open: open, ..seen })
    }

    /// The whole file, if its last row has no line break and counts at `user`: without a writer the row is complete.
    /// `None`: the file ends otherwise, a session may write, the row is later, or it cannot be read. If such a later
    /// row is the only one, nothing of the file is shown.
    fn last_row(
        &self,
        plugin: &TimePlugin,
        id: InodeId,
        inode: &Inode,
        user: UserTime,
        scratch: &mut Scratch,
    ) -> Result<Option<FileVersion>, Fault> {
        // A clone without writes of its own ends as its origin did at its instant: a session may have been writing
        // then.
        let mut writer = (id, inode.clone());
        while let (id, Some((from, then)), true) = (writer.0, writer.1.origin(), writer.1.grants().is_empty()) {
            let (after, upto) = (writer.1.times_after(), writer.1.from);
            if self.files.with_log_of(id, |log| log.newest_in(id, 0..=u32::MAX, after, upto).newest.is_some())? {
                break;
            }
            writer = (from, self.planes.inode_at(from, Some(then))?);
        }
        if !writer.1.grants().is_empty() {
            return Ok(None);
        }
        // The file has no record since this state of it began.
        let at = inode.from;
        self.close_here(id, at)?;
        let seen = FileVersion::at(id, inode.clone(), Some(at));
        let size = self.files.look(&[&seen])?.extent(&seen).size;
        let row = self.row_begun(plugin, &seen, size, scratch)?;
        if row.is_empty() {
            return Ok(None);
        }
        let begin = size - row.len() as u64;
        let time = self.rows_of(plugin, &seen, begin, &row, scratch, |rows| Ok(rows.time_of_last(&row, begin)));
        let newest = self.files.with_log_of(id, |log| log.newest_user_time(id, inode.times_after(), at))?;
        match time.ok().flatten() {
            Some(time) if time <= user => Ok(Some(FileVersion { user_time_open: true, ..seen })),
            Some(_) if newest.is_none() => Ok(Some(FileVersion { empty: true, ..seen })),
            _ => Ok(None),
        }
    }

    /// The file at the record of `next`, up to the last of its rows that belongs to the answer. `None` if none does, or
    /// if the record was not appended: an overwrite shows wholly or not at all.
    fn version_within(
        &self,
        plugin: &TimePlugin,
        id: InodeId,
        user: UserTime,
        next: Hlc,
        first: bool,
        scratch: &mut Scratch,
    ) -> Result<Option<FileVersion>, Fault> {
        let seen = FileVersion::at(id, self.planes.inode_at(id, Some(next))?, Some(next));
        let chunk_bytes = seen.inode.chunk_bytes();
        let records = self.files.records(id, next.previous(), next, PARTS_MAX)?;
        let offset_of = |record: &frieze_multilog::RecordHeader| {
            u64::from(record.chunk.index) * chunk_bytes + u64::from(record.offset)
        };
        let start = records.iter().map(offset_of).min();
        let end = records.iter().map(|record| offset_of(record) + u64::from(record.len)).max();
        let (Some(start), Some(end)) = (start, end) else { return Ok(None) };
        let before = FileVersion::at(id, self.planes.inode_at(id, Some(next.previous()))?, Some(next.previous()));
        let appended = {
            let look = self.files.look(&[&before, &seen])?;
            start >= look.extent(&before).size && end == look.extent(&seen).size
        };
        if !appended {
            return Ok(None);
        }
        let mut bytes = self.row_begun(plugin, &seen, start, scratch)?;
        let begin = start - bytes.len() as u64;
        self.read_range(&seen, start, end, scratch, &mut bytes)?;
        let (len, any) =
            self.rows_of(plugin, &seen, begin, &bytes, scratch, |rows| Ok(rows.end_of(&bytes, begin, user)))?;
        if !any && first {
            return Ok(None);
        }
        Ok(Some(FileVersion { size_max: Some(begin + len as u64), ..seen }))
    }

    /// Parses rows of a file, whose columns are named in its first line: in `bytes`, if they begin at offset 0.
    fn rows_of<T>(
        &self,
        plugin: &TimePlugin,
        seen: &FileVersion,
        at: u64,
        bytes: &[u8],
        scratch: &mut Scratch,
        ask: impl FnOnce(&Rows<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        if !plugin.has_header() {
            return ask(&plugin.rows(b"")?);
        }
        let first_line = |bytes: &[u8]| memchr::memchr(b'\n', bytes).map(|len| bytes[..len].to_vec());
        let mut found = None;
        if at == 0 {
            found = first_line(bytes);
        } else {
            let mut head = Vec::new();
            for len in [4096, ROW_BYTES_MAX as u64] {
                head.clear();
                self.read_range(seen, 0, len, scratch, &mut head)?;
                found = first_line(&head);
                if found.is_some() {
                    break;
                }
            }
        }
        let line = found.ok_or_else(|| {
            Fault::new(
                Reason::InvalidArgument,
                format!("no user time: the first line of {} should name the columns, but does not end", seen.id),
            )
        })?;
        ask(&plugin.rows(&line)?)
    }

    /// The bytes before `offset` of the row that `offset` lies in: empty if a row begins there.
    fn row_begun(
        &self,
        plugin: &TimePlugin,
        seen: &FileVersion,
        offset: u64,
        scratch: &mut Scratch,
    ) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        if let Some(size) = plugin.record_bytes() {
            self.read_range(seen, offset - offset % u64::from(size), offset, scratch, &mut bytes)?;
            return Ok(bytes);
        }
        for back in [1, 4096, ROW_BYTES_MAX as u64 + 1] {
            let start = offset.saturating_sub(back);
            bytes.clear();
            self.read_range(seen, start, offset, scratch, &mut bytes)?;
            if let Some(last) = memchr::memrchr(b'\n', &bytes) {
                bytes.drain(..=last);
                return Ok(bytes);
            }
            if start == 0 {
                return Ok(bytes);
            }
        }
        Err(Fault::new(
            Reason::InvalidArgument,
            format!("no user time: the row before offset {offset} is longer than {ROW_BYTES_MAX} bytes"),
        ))
    }

    /// Appends the bytes `start..end` of a file, up to its end, to `out`.
    fn read_range(
        &self,
        seen: &FileVersion,
        start: u64,
        end: u64,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        if start < end {
            let ask = Read {
                capability: Vec::new(),
                offset: start,
                len: (end - start) as u32,
                in_steps: false,
                ..Read::default()
            };
            self.read_version(seen, &ask, None, scratch)?;
            out.extend_from_slice(&scratch.payload);
        }
        Ok(())
    }
}

fn no_user_time(id: InodeId, user: UserTime) -> Fault {
    Fault::new(
        Reason::NoUserTime,
        format!(
            "inode {id} holds no user time, so it cannot be read at {user}: bind its directory with `frieze time bind` \
             before writing"
        ),
    )
}
