//! The bytes of a block of names ([`super::name_block`]): how they are searched, read and spliced.

use std::cmp::Ordering;
use std::ops::Range;

use frieze_base::InodeId;
use frieze_base::varint;
use frieze_wire::message::FileKind;

use super::bytes::{put_stamp, take_stamp};
use super::row::{ROWS_END, id_at, row_of};
use crate::model::NameEntry;

pub(super) const HEADER_BYTES: usize = 4;
pub(super) const RUN_BYTES: usize = 3;
/// Names of a run before the block is built anew.
pub(super) const RUN_NAMES_MAX: usize = 16;
/// Bytes of a run that has more than one name, before the block is built anew.
pub(super) const RUN_BYTES_MAX: usize = 640;

const FORMAT: u8 = 1;
/// Lengths before the bytes of a name.
const NAME_HEADER_BYTES: usize = 3;
/// Bits of the kind beside the number.
const KIND_BITS: u32 = 3;

/// The parts of a block.
#[derive(Clone, Copy)]
pub(super) struct BlockParts<'a> {
    pub(super) count: u16,
    pub(super) runs: &'a [[u8; RUN_BYTES]],
    pub(super) names: &'a [u8],
}

/// Where a name is in a block, or would be.
pub(super) struct NamePlace<'a> {
    pub(super) run: usize,
    /// Offset of the name, or of the one after it.
    pub(super) at: usize,
    /// Bytes that it shares with the name before.
    pub(super) shared: usize,
    /// False for the first name of a run.
    pub(super) has_before: bool,
    /// What the names of the run are differences to.
    pub(super) base: NameEntry,
    /// The name itself, if it is there.
    pub(super) found: Option<CodedName<'a>>,
    /// The name after it in the run, with the bytes that it shares with this one.
    pub(super) next: Option<(CodedName<'a>, usize)>,
}

/// A name as it is in a block.
#[derive(Clone, Copy)]
pub(super) struct CodedName<'a> {
    pub(super) shared: usize,
    pub(super) rest: &'a [u8],
    /// What it stands for, as a difference to the base of its run.
    pub(super) value: &'a [u8],
    /// Offset behind it.
    pub(super) end: usize,
}

/// Reads a run.
#[derive(Clone, Copy)]
pub(super) struct RunWalk<'a> {
    pub(super) names: &'a [u8],
    pub(super) at: usize,
    pub(super) end: usize,
    pub(super) base: NameEntry,
}

/// What a change does to the table of runs.
pub(super) enum RunsChange {
    Count(u8),
    /// A run of one name behind this one.
    NewAfter,
    Gone,
}

impl<'a> BlockParts<'a> {
    #[inline]
    pub(super) fn read(content: &'a [u8]) -> Option<BlockParts<'a>> {
        let (&[format, low, high, runs], rest) = content.split_first_chunk()?;
        let (runs, names) = rest.split_at_checked(usize::from(runs) * RUN_BYTES)?;
        let parts = BlockParts { count: u16::from_le_bytes([low, high]), runs: runs.as_chunks().0, names };
        (format == FORMAT).then_some(parts)
    }

    pub(super) fn run_names(&self, run: usize) -> usize {
        usize::from(self.runs[run][2])
    }

    #[inline]
    pub(super) fn start(&self, run: usize) -> usize {
        let [low, high, _] = self.runs[run];
        usize::from(u16::from_le_bytes([low, high]))
    }

    pub(super) fn span(&self, run: usize) -> Range<usize> {
        let end = if run + 1 < self.runs.len() { self.start(run + 1) } else { self.names.len() };
        self.start(run)..end
    }

    pub(super) fn has_long_run(&self, run: usize) -> bool {
        let names = self.run_names(run);
        names > RUN_NAMES_MAX || names > 1 && self.span(run).len() > RUN_BYTES_MAX
    }

    #[inline]
    pub(super) fn walk(&self, run: usize) -> RunWalk<'a> {
        RunWalk::read(self.names, self.span(run)).expect("a block holds what was packed")
    }

    #[inline]
    pub(super) fn first_name(&self, run: usize) -> &'a [u8] {
        let start = self.start(run);
        let name = &self.names[start + 1 + usize::from(self.names[start])..];
        &name[NAME_HEADER_BYTES..][..usize::from(name[1])]
    }

    /// The last run whose first name is not behind `name`, or the first run.
    #[inline]
    pub(super) fn run_of(&self, name: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.runs.len());
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            match compare(self.first_name(middle), name) {
                Ordering::Greater => high = middle,
                _ => low = middle,
            }
        }
        low
    }

    pub(super) fn find(&self, name: &[u8]) -> NamePlace<'a> {
        let run = self.run_of(name);
        let mut walk = self.walk(run);
        let (at, base) = (walk.at, walk.base);
        let mut place = NamePlace { run, at, shared: 0, has_before: false, base, found: None, next: None };
        while let Some(coded) = walk.next() {
            let (order, common) = match coded.shared.cmp(&place.shared) {
                Ordering::Greater => (Ordering::Less, place.shared),
                Ordering::Less => (Ordering::Greater, coded.shared),
                Ordering::Equal => {
                    let rest = &name[place.shared..];
                    let common = common(coded.rest, rest);
                    (coded.rest[common..].first().cmp(&rest[common..].first()), place.shared + common)
                }
            };
            match order {
                Ordering::Less => (place.at, place.shared, place.has_before) = (walk.at, common, true),
                Ordering::Equal => {
                    place.found = Some(coded);
                    place.next = walk.next().map(|next| (next, next.shared));
                    break;
                }
                Ordering::Greater => {
                    place.next = Some((coded, common));
                    break;
                }
            }
        }
        place
    }

    /// Writes the block with `range` of its names, which is in `run`, replaced.
    pub(super) fn splice(
        &self,
        block: &mut Vec<u8>,
        run: usize,
        change: RunsChange,
        range: Range<usize>,
        patch: &[u8],
    ) {
        let names = self.run_names(run);
        let (more, runs) = match change {
            RunsChange::Count(now) => (usize::from(now) as isize - names as isize, self.runs.len()),
            RunsChange::NewAfter => (1, self.runs.len() + 1),
            RunsChange::Gone => (-1, self.runs.len() - 1),
        };
        block.clear();
        put_header(block, (self.count as isize + more) as u16, runs);
        block.extend_from_slice(self.runs[..run].as_flattened());
        match change {
            RunsChange::Count(now) => block.extend_from_slice(&run_row(self.start(run), now)),
            RunsChange::NewAfter => {
                block.extend_from_slice(&self.runs[run]);
                block.extend_from_slice(&run_row(range.start, 1));
            }
            RunsChange::Gone => {}
        }
        for after in run + 1..self.runs.len() {
            let start = self.start(after) + patch.len() - range.len();
            block.extend_from_slice(&run_row(start, self.runs[after][2]));
        }
        block.extend_from_slice(&self.names[..range.start]);
        block.extend_from_slice(patch);
        block.extend_from_slice(&self.names[range.end..]);
    }
}

impl<'a> RunWalk<'a> {
    pub(super) const EMPTY: RunWalk<'static> = RunWalk { names: &[], at: 0, end: 0, base: NameEntry::NONE };

    /// Begins to read a run; `None` if it has no base.
    #[inline]
    pub(super) fn read(names: &'a [u8], span: Range<usize>) -> Option<RunWalk<'a>> {
        let (len, rest) = names.get(span.clone())?.split_first()?;
        let base = take_value(rest.get(..usize::from(*len))?, NameEntry::NONE)?;
        Some(RunWalk { names, at: span.start + 1 + usize::from(*len), end: span.end, base })
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<CodedName<'a>> {
        (self.at < self.end).then(|| self.next_or_damage().expect("a block holds what was packed"))
    }

    /// Reads a name; `None` if it is none.
    #[inline]
    pub(super) fn next_or_damage(&mut self) -> Option<CodedName<'a>> {
        let ([shared, len, value_len], rest) = self.names.get(self.at..self.end)?.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(usize::from(*len))?;
        let (value, rest) = rest.split_at_checked(usize::from(*value_len))?;
        self.at = self.end - rest.len();
        Some(CodedName { shared: usize::from(*shared), rest: name, value, end: self.at })
    }
}

impl CodedName<'_> {
    /// What it stands for.
    #[inline]
    pub(super) fn entry(&self, base: NameEntry) -> NameEntry {
        take_value(self.value, base).expect("a block holds what was packed")
    }
}

/// Reads what a name stands for; `None` if it is nothing.
#[inline]
pub(super) fn take_value(value: &[u8], base: NameEntry) -> Option<NameEntry> {
    let rest = &mut &*value;
    let head = varint::take(rest)?;
    let kind = FileKind::try_from((head & ((1 << KIND_BITS) - 1)) as i32).ok()?;
    let zigzag = head >> KIND_BITS;
    let number = number_in(base, base.inode()).wrapping_add((zigzag >> 1) ^ (zigzag & 1).wrapping_neg());
    let inode = match base.inode() {
        InodeId(0) => Some(InodeId(number)).filter(|id| *id <= InodeId::MAX)?,
        _ => (number < ROWS_END).then(|| id_at(number))?,
    };
    let from = take_stamp(rest, base.from)?;
    rest.is_empty().then(|| NameEntry::new(inode, kind, from))
}

/// Appends the base of a run, which its first name follows.
pub(super) fn put_base(names: &mut Vec<u8>, base: NameEntry) {
    let at = names.len();
    names.push(0);
    put_value(names, NameEntry::NONE, base);
    names[at] = (names.len() - at - 1) as u8;
}

/// Appends a name and what it stands for.
pub(super) fn put_entry(names: &mut Vec<u8>, shared: usize, rest: &[u8], base: NameEntry, entry: NameEntry) {
    let at = names.len();
    put_name(names, shared, &[rest], &[]);
    put_value(names, base, entry);
    names[at + 2] = (names.len() - at - NAME_HEADER_BYTES - rest.len()) as u8;
}

/// Appends a name whose value is encoded.
pub(super) fn put_name(names: &mut Vec<u8>, shared: usize, rest: &[&[u8]], value: &[u8]) {
    let len: usize = rest.iter().map(|part| part.len()).sum();
    let bytes = [shared, len, value.len()].map(|count| u8::try_from(count).expect("names and values are short"));
    names.extend_from_slice(&bytes);
    rest.iter().for_each(|part| names.extend_from_slice(part));
    names.extend_from_slice(value);
}

/// What is written of an inode: of a base its number, which is shorter, and of others the row, for those of neighbours
/// differ less.
#[inline]
fn number_in(base: NameEntry, id: InodeId) -> u64 {
    if base.inode() == InodeId(0) { id.0 } else { row_of(id) }
}

fn put_value(names: &mut Vec<u8>, base: NameEntry, entry: NameEntry) {
    let difference = number_in(base, entry.inode()).wrapping_sub(number_in(base, base.inode())) as i64;
    let zigzag = (difference << 1 ^ difference >> 63) as u64;
    varint::put(names, zigzag << KIND_BITS | entry.kind() as u64);
    put_stamp(names, base.from, entry.from);
}

pub(super) fn put_header(block: &mut Vec<u8>, count: u16, runs: usize) {
    block.push(FORMAT);
    block.extend_from_slice(&count.to_le_bytes());
    block.push(u8::try_from(runs).expect("a block is split before it has that many"));
}

pub(super) fn run_row(start: usize, names: u8) -> [u8; RUN_BYTES] {
    let [low, high] = u16::try_from(start).expect("a block is split before it is that large").to_le_bytes();
    [low, high, names]
}

/// Bytes that two names begin with.
#[inline]
pub(super) fn common(one: &[u8], other: &[u8]) -> usize {
    let (ones, others) = (one.as_chunks::<8>().0, other.as_chunks::<8>().0);
    let words = ones.iter().zip(others).take_while(|(one, other)| one == other).count() * 8;
    words + one[words..].iter().zip(&other[words..]).take_while(|(one, other)| one == other).count()
}

/// The order of two names, without a call for the short ones that names are.
#[inline]
pub(super) fn compare(one: &[u8], other: &[u8]) -> Ordering {
    let (ones, others) = (one.as_chunks::<8>().0, other.as_chunks::<8>().0);
    for (one, other) in ones.iter().zip(others) {
        let (one, other) = (u64::from_be_bytes(*one), u64::from_be_bytes(*other));
        if one != other {
            return one.cmp(&other);
        }
    }
    let words = ones.len().min(others.len()) * 8;
    for (one, other) in one[words..].iter().zip(&other[words..]) {
        if one != other {
            return one.cmp(other);
        }
    }
    one.len().cmp(&other.len())
}
