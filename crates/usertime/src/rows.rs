//! Rows: one line is one row, with its user time in a column or at a JSON pointer (protocols §8); or a row is a binary
//! record, all of one size.
//!
//! Guarantees: the same bytes give the same rows for ever, whatever writes they came in. A row counts for the write
//! that ends it; a line cut off at the end waits for the next write, and counts as it is while nobody may write to the
//! file. Headers and blank lines take the time of the row before them. Leaves to others: finding where the row begins
//! that a write goes on with, and reading bytes (`node`, `timed`).
//!
//! A byte order mark of UTF-8 in front of the first line is no part of it; lines end with a line feed, or with a
//! carriage return and a line feed.
//!
//! A field of a table may be quoted (RFC 4180) but not hold a line break: a reader that starts in the middle of a file
//! could not distinguish such a break from the end of a row.

use frieze_base::{Fault, Reason};
use frieze_hlc::UserTime;

use crate::{Column, TimePlace, TimePlugin, wrong};

/// Longest row in bytes, its line break included.
pub const ROW_BYTES_MAX: usize = 1 << 20;

/// The column of the user time in a file of rows, found in its first line where the plug-in names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows<'a> {
    plugin: &'a TimePlugin,
    /// Counted from 0; 0 for JSON lines.
    column: usize,
}

impl TimePlugin {
    /// Length of the first row of `bytes`, which begin where one begins; `None` if it does not end in them.
    pub(crate) fn row_len(&self, bytes: &[u8]) -> Option<usize> {
        match self.record_bytes() {
            Some(size) => (bytes.len() >= size as usize).then_some(size as usize),
            None => memchr::memchr(b'\n', bytes).map(|at| at + 1),
        }
    }

    /// Checks that a write holds whole records, if all have the same size.
    ///
    /// # Errors
    /// `InvalidArgument` with where the write begins, or the record that it ends in.
    pub fn check_whole(&self, offset: u64, len: u64) -> Result<(), Fault> {
        let Some(size) = self.record_bytes().map(u64::from) else { return Ok(()) };
        let what = if !offset.is_multiple_of(size) {
            format!("begins in the midst of the record at offset {}", offset - offset % size)
        } else if !len.is_multiple_of(size) {
            format!("ends in the midst of the record at offset {}", offset + len - len % size)
        } else {
            return Ok(());
        };
        Err(wrong(format!(
            "a write of {len} bytes at offset {offset} {what}: records have {size} bytes (size={size}), and a write \
             holds whole ones; nothing of it was taken"
        )))
    }

    /// True if the first line of a file names its columns.
    pub fn has_header(&self) -> bool {
        matches!(self.place, TimePlace::Csv { header: true, .. })
    }

    /// The rows of a file with this first line (line break included or not; empty where the plug-in has no header).
    ///
    /// # Errors
    /// `InvalidArgument` if no column has the name that the plug-in gives.
    pub fn rows(&self, first_line: &[u8]) -> Result<Rows<'_>, Fault> {
        let first_line = without_mark(first_line)?;
        let column = match &self.place {
            TimePlace::Csv { column: Column::Numbered(number), .. } => *number as usize - 1,
            TimePlace::Csv { column: Column::Named(name), delimiter, .. } => {
                let mut found = None;
                let mut names = Vec::new();
                each_field(without_break(first_line)?, delimiter.entry().2, |number, field| {
                    let field = String::from_utf8_lossy(field).trim().to_owned();
                    if field == *name && found.is_none() {
                        found = Some(number);
                    }
                    names.push(field);
                })?;
                found.ok_or_else(|| {
                    wrong(format!(
                        "the first line names no column {name:?}; it names {}",
                        names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
                    ))
                })?
            }
            _ => 0,
        };
        Ok(Rows { plugin: self, column })
    }
}

impl Rows<'_> {
    /// Checks `bytes`, which begin where a row begins, at `at` in the file, and returns the user time of the last whole
    /// row, if there is one. No row may lie before `newest`, nor before a row above it.
    ///
    /// # Errors
    /// `BackwardUserTime` with the offset of the row and both times; `InvalidArgument` with the offset for a row
    /// without a time that can be read, or of more than [`ROW_BYTES_MAX`].
    pub fn check(&self, bytes: &[u8], at: u64, mut newest: Option<UserTime>) -> Result<Option<UserTime>, Fault> {
        let mut last = None;
        let mut start = 0;
        while let Some(len) = self.plugin.row_len(&bytes[start..]) {
            let line = &bytes[start..start + len];
            let offset = at + start as u64;
            let time = self.time(line, offset)?;
            // A blank line takes the time of the row above it.
            last = time.or(newest).or(last);
            if let Some(time) = time {
                if newest.is_some_and(|newest| time < newest) {
                    let newest = newest.unwrap_or_default();
                    return Err(Fault::new(
                        Reason::BackwardUserTime,
                        format!(
                            "the row at offset {offset} has user time {time}, before {newest} of the row above it: \
                             nothing of this write was taken; sort the rows, or write late ones into a file of their \
                             own"
                        ),
                    ));
                }
                newest = Some(time);
            }
            start += line.len();
        }
        if bytes.len() - start > ROW_BYTES_MAX {
            return Err(too_long(at + start as u64));
        }
        Ok(last)
    }

    /// Where the rows up to and with a user time end, counted from the start of `bytes`, which begin where a row
    /// begins, at `at` in the file: before the first row with a later one, and else after the last whole line. True if
    /// there is such a row at all. A row that cannot be read ends the answer before it.
    pub fn end_of(&self, bytes: &[u8], at: u64, user: UserTime) -> (usize, bool) {
        let (mut start, mut any) = (0, false);
        while let Some(len) = self.plugin.row_len(&bytes[start..]) {
            let line = &bytes[start..start + len];
            match self.time(line, at + start as u64) {
                Ok(None) => {}
                Ok(Some(time)) if time <= user => any = true,
                Ok(Some(_)) | Err(_) => break,
            }
            start += line.len();
        }
        (start, any)
    }

    /// The user time of a row that ends with the file and without a line break; `None` if it has none, or none that can
    /// be read.
    pub fn time_of_last(&self, row: &[u8], offset: u64) -> Option<UserTime> {
        self.time(row, offset).ok().flatten()
    }

    /// The user time of a line at `offset`; `None` for a header or a blank line.
    fn time(&self, line: &[u8], offset: u64) -> Result<Option<UserTime>, Fault> {
        if line.len() > ROW_BYTES_MAX {
            return Err(too_long(offset));
        }
        let row = if offset == 0 && self.plugin.has_lines() { without_mark(line)? } else { line };
        let row = match self.plugin.place {
            TimePlace::Csv { .. } => without_break(row)?,
            _ => row,
        };
        if self.plugin.record_bytes().is_some() {
            return self.plugin.user_time(row).map(Some);
        }
        if row.iter().all(u8::is_ascii_whitespace) || (offset == 0 && self.plugin.has_header()) {
            return Ok(None);
        }
        let time = match &self.plugin.place {
            TimePlace::JsonLines { pointer } => self.plugin.json_time(row, pointer),
            TimePlace::Csv { delimiter, .. } => self.field(row, delimiter.entry().2),
            _ => unreachable!("only tables and JSON lines have rows"),
        };
        time.map(Some).map_err(|fault| {
            Fault::new(
                fault.reason,
                format!("{} (row at offset {offset}; nothing of this write was taken)", fault.message),
            )
        })
    }

    fn field(&self, row: &[u8], delimiter: u8) -> Result<UserTime, Fault> {
        let mut time = None;
        let mut count = 0;
        each_field(row, delimiter, |number, field| {
            count = number + 1;
            if number == self.column {
                time = Some(self.cell(field));
            }
        })?;
        time.unwrap_or_else(|| {
            Err(wrong(format!("the row has {count} columns, the time is in column {}", self.column + 1)))
        })
    }

    fn cell(&self, field: &[u8]) -> Result<UserTime, Fault> {
        let text = std::str::from_utf8(field).map_err(|_| wrong("the time is not UTF-8".to_owned()))?.trim();
        self.plugin.number_time(text).unwrap_or_else(|| self.plugin.text_time(text))
    }
}

/// Calls `each` with every field of one row, in order.
fn each_field(row: &[u8], delimiter: u8, mut each: impl FnMut(usize, &[u8])) -> Result<(), Fault> {
    if memchr::memchr(b'"', row).is_none() {
        // No quotes: the fields are the text between the delimiters.
        for (number, field) in row.split(|byte| *byte == delimiter).enumerate() {
            each(number, field);
        }
        return Ok(());
    }
    let line = [row, b"\n"].concat();
    let mut fields = vec![0u8; line.len()];
    let mut ends = vec![0usize; line.len()];
    let mut reader = csv_core::ReaderBuilder::new().delimiter(delimiter).build();
    let (result, _, _, count) = reader.read_record(&line, &mut fields, &mut ends);
    if result != csv_core::ReadRecordResult::Record {
        return Err(wrong("a quoted field goes on in the next line; a row has to be one line".to_owned()));
    }
    let mut start = 0;
    for (number, end) in ends[..count].iter().enumerate() {
        each(number, &fields[start..*end]);
        start = *end;
    }
    Ok(())
}

/// A line of a table without what ends it.
///
/// # Errors
/// `InvalidArgument` if it contains a lone carriage return: the plug-in does not accept such line ends.
fn without_break(line: &[u8]) -> Result<&[u8], Fault> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if ends_lines_by_returns(line) { Err(lone_returns()) } else { Ok(line) }
}

/// True if a carriage return stands in the midst of `bytes` and not before a line break. Within quotes it is text.
pub fn ends_lines_by_returns(bytes: &[u8]) -> bool {
    let is_lone = |at: usize| bytes.get(at + 1).is_some_and(|next| !matches!(next, b'\r' | b'\n'));
    memchr::memchr_iter(b'\r', bytes).any(is_lone) && memchr::memchr(b'"', bytes).is_none()
}

/// The refusal of a file whose lines end with carriage returns alone.
pub fn lone_returns() -> Fault {
    wrong("its lines end with a carriage return alone: convert it, as with tr '\\r' '\\n'".to_owned())
}

/// The beginning of a file without its byte order mark.
///
/// # Errors
/// `InvalidArgument` for a file in UTF-16.
pub(super) fn without_mark(bytes: &[u8]) -> Result<&[u8], Fault> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(wrong("it is in UTF-16: convert it to UTF-8, as with iconv -f UTF-16 -t UTF-8".to_owned()));
    }
    Ok(bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes))
}

fn too_long(offset: u64) -> Fault {
    wrong(format!("the row at offset {offset} is longer than {ROW_BYTES_MAX} bytes; is there a line break missing?"))
}
