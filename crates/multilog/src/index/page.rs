//! One page of a chunk: 64 KiB whose every past state is a leaf and a few deltas away.

use frieze_base::varint;

use crate::slim::{heap_bytes, push_slim, reserve_slim};

/// Bytes in a page: positions within one fit in 16 bits.
pub(crate) const PAGE_BYTES: u64 = 64 << 10;

/// Bytes of a page that belong to one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    /// Number of the record in its chunk, and in the top bit whether it is a punch.
    tagged: u32,
    /// First byte in the page.
    pub(super) start: u16,
    /// Last byte in the page, inclusive: a page has 65,536 bytes.
    pub(super) last: u16,
}

impl Fragment {
    pub(super) fn new(record: u32, punch: bool, start: u16, last: u16) -> Fragment {
        Fragment { tagged: record | u32::from(punch) << 31, start, last }
    }

    /// Number of the record in its chunk.
    pub(super) fn record(self) -> u32 {
        self.tagged & !PUNCH
    }

    pub(super) fn is_punch(self) -> bool {
        self.tagged & PUNCH != 0
    }

    /// First byte after it.
    fn end(self) -> u32 {
        u32::from(self.last) + 1
    }

    fn clip(self, start: u16, last: u16) -> Fragment {
        Fragment { start: self.start.max(start), last: self.last.min(last), ..self }
    }

    /// Grown by what another touches; `None` if there is a gap between them.
    fn joined(self, other: Fragment) -> Option<Fragment> {
        let is_near = u32::from(other.start) <= self.end() && u32::from(self.start) <= other.end();
        is_near.then(|| Fragment { start: self.start.min(other.start), last: self.last.max(other.last), ..self })
    }
}

/// A page as a chunk keeps it. Most pages of streamed data are touched once: those take no memory of their own.
#[derive(Debug)]
pub(super) enum PageSlot {
    /// One record touched it.
    Once(Fragment),
    /// Several did.
    Often(Box<PageHistory>),
}

impl PageSlot {
    /// Lays a record over the page. Returns how many bytes held data there before, and by how much the memory grew.
    pub(super) fn add(&mut self, fragment: Fragment) -> (u32, usize) {
        match self {
            PageSlot::Often(page) => page.add(fragment),
            PageSlot::Once(first) => {
                let mut page = Box::<PageHistory>::default();
                let (_, grown) = page.add(*first);
                let (covered, more) = page.add(fragment);
                *self = PageSlot::Often(page);
                (covered, heap_bytes(size_of::<PageHistory>()) + grown + more)
            }
        }
    }

    /// The fragments of bytes `start..=last` visible after the records numbered below `records`, by offset. `of` tells
    /// what of the page a record touched.
    pub(super) fn visible<'a>(
        &'a self,
        records: u32,
        (start, last): (u16, u16),
        of: &dyn Fn(u32) -> Fragment,
        scratch: &'a mut Vec<Fragment>,
    ) -> impl Iterator<Item = Fragment> + 'a {
        let shown = match self {
            PageSlot::Often(page) => page.visible(records, (start, last), of, scratch),
            PageSlot::Once(first) if first.record() < records => within(std::slice::from_ref(first), start, last),
            PageSlot::Once(_) => &[],
        };
        count_touched(shown.len());
        shown.iter().map(move |fragment| fragment.clip(start, last))
    }
}

/// The page's history. A fragment visible at some time is in `now` or in a leaf's base. Punches stay there too: what
/// was punched since a patch of the file must not show what the patch shares.
#[derive(Debug, Default)]
pub(super) struct PageHistory {
    /// What is visible after all deltas, by offset.
    now: Vec<Fragment>,
    /// The numbers of all records that touch the page, in order: what of it they touch, the records say.
    pub(super) deltas: Vec<u32>,
    /// Leaves in order. Before the first, the page starts from nothing.
    leaves: Vec<Leaf>,
    /// The fragments of the leaves, leaf after leaf, in few bytes ([`put_base`]).
    bases: Vec<u8>,
    /// How many fragments the last leaf has.
    last_base: u32,
}

/// A state of the page: `bases[base..next leaf's base]` before `deltas[delta]`, which is of `record`.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    record: u32,
    delta: u32,
    base: u32,
}

impl Leaf {
    /// Where its deltas and its base start.
    fn starts(&self) -> (usize, usize) {
        (self.delta as usize, self.base as usize)
    }
}

impl PageHistory {
    fn add(&mut self, fragment: Fragment) -> (u32, usize) {
        let mut grown = 0;
        let delta = self.leaves.last().map_or(0, |leaf| leaf.starts().0);
        if self.deltas.len() - delta >= (self.last_base as usize).max(DELTAS_MIN) {
            let (delta, base) = (self.deltas.len() as u32, self.bases.len() as u32);
            let leaf = Leaf { record: fragment.record(), delta, base };
            grown += push_slim(&mut self.leaves, leaf);
            let mut bytes = Vec::with_capacity(4 * self.now.len());
            put_base(&mut bytes, leaf.record, &self.now);
            grown += reserve_slim(&mut self.bases, bytes.len());
            self.bases.extend_from_slice(&bytes);
            self.last_base = self.now.len() as u32;
        }
        grown += push_slim(&mut self.deltas, fragment.record());
        grown += reserve_slim(&mut self.now, 2);
        (overlay(&mut self.now, fragment), grown)
    }

    /// The fragments that have bytes in `start..=last` after the records numbered below `records`, by offset. `of`
    /// tells what of the page a record touched.
    pub(super) fn visible<'a>(
        &'a self,
        records: u32,
        (start, last): (u16, u16),
        of: &dyn Fn(u32) -> Fragment,
        scratch: &'a mut Vec<Fragment>,
    ) -> &'a [Fragment] {
        if self.deltas.last().is_none_or(|newest| *newest < records) {
            return within(&self.now, start, last);
        }
        let next = self.leaves.partition_point(|leaf| leaf.record <= records);
        let ends = self.leaves.get(next).map_or((self.deltas.len(), self.bases.len()), Leaf::starts);
        let leaf = next.checked_sub(1).map(|leaf| &self.leaves[leaf]);
        let starts = leaf.map_or((0, 0), Leaf::starts);
        let numbers = &self.deltas[starts.0..ends.0];
        let numbers = &numbers[..numbers.partition_point(|record| *record < records)];
        // From the newest back: nothing older than records that cover the whole range together can show.
        let mut deltas = Vec::with_capacity(numbers.len());
        let mut covered = false;
        let mut laid: Option<Fragment> = None;
        for number in numbers.iter().rev() {
            let delta = of(*number);
            deltas.push(delta);
            let joined = laid.and_then(|laid| laid.joined(delta));
            laid = joined.or(laid).or(Some(delta));
            covered = laid.is_some_and(|laid| laid.start <= start && laid.last >= last);
            if covered {
                break;
            }
        }
        scratch.clear();
        // Before the first leaf there is nothing.
        if let Some(leaf) = leaf.filter(|_| !covered) {
            let base = PageBase::new(leaf.record, &self.bases[starts.1..ends.1]);
            scratch.extend(base.filter(|fragment| fragment.last >= start && fragment.start <= last));
        }
        count_touched(scratch.len() + deltas.len());
        for delta in deltas.iter().rev().filter(|delta| delta.start <= last && delta.last >= start) {
            overlay(scratch, *delta);
        }
        scratch
    }
}

/// Appends the fragments of a leaf, sorted by offset: by how many bits lengths and gaps are shifted, and of each
/// fragment how many records before the leaf its own is, times 8, plus 1 if it follows without a gap, 2 if it is as
/// long as the one before, and 4 if it is a punch; then gap and length where that does not say them.
fn put_base(bytes: &mut Vec<u8>, leaf: u32, fragments: &[Fragment]) {
    let edges = fragments.iter().fold(0, |edges, fragment| edges | u32::from(fragment.start) | fragment.end());
    let shift = edges.trailing_zeros().min(16);
    bytes.push(shift as u8);
    let (mut at, mut len) = (0, 0);
    for fragment in fragments {
        let (gap, own) = (u32::from(fragment.start) - at, fragment.end() - u32::from(fragment.start));
        let mut flags = ADJACENT * u64::from(gap == 0);
        flags |= SAME_LEN * u64::from(own == len);
        flags |= IS_PUNCH * u64::from(fragment.is_punch());
        varint::put(bytes, u64::from(leaf - fragment.record()) << 3 | flags);
        if gap != 0 {
            varint::put(bytes, u64::from(gap >> shift));
        }
        if own != len {
            varint::put(bytes, u64::from(own >> shift));
        }
        (at, len) = (fragment.end(), own);
    }
}

/// The fragments of a leaf.
struct PageBase<'a> {
    leaf: u32,
    shift: u32,
    rest: &'a [u8],
    at: u32,
    len: u32,
}

impl<'a> PageBase<'a> {
    fn new(leaf: u32, bytes: &'a [u8]) -> PageBase<'a> {
        let (shift, rest) = bytes.split_first().expect("a leaf has fragments");
        PageBase { leaf, shift: (*shift).into(), rest, at: 0, len: 0 }
    }
}

impl Iterator for PageBase<'_> {
    type Item = Fragment;

    fn next(&mut self) -> Option<Fragment> {
        let head = varint::take(&mut self.rest)?;
        if head & ADJACENT == 0 {
            self.at += (varint::take(&mut self.rest)? as u32) << self.shift;
        }
        if head & SAME_LEN == 0 {
            self.len = (varint::take(&mut self.rest)? as u32) << self.shift;
        }
        let start = self.at;
        self.at += self.len;
        let record = self.leaf - (head >> 3) as u32;
        Some(Fragment::new(record, head & IS_PUNCH != 0, start as u16, (self.at - 1) as u16))
    }
}

/// The fragments that have bytes in `start..=last`.
fn within(fragments: &[Fragment], start: u16, last: u16) -> &[Fragment] {
    let from = fragments.partition_point(|fragment| fragment.last < start);
    let len = fragments[from..].partition_point(|fragment| fragment.start <= last);
    &fragments[from..from + len]
}

/// Lays `new` over sorted fragments; what lies under it goes, cut at its edges. Returns how many bytes of data were
/// covered.
pub(super) fn overlay(fragments: &mut Vec<Fragment>, new: Fragment) -> u32 {
    let from = fragments.partition_point(|fragment| fragment.last < new.start);
    let under = &fragments[from..];
    let under = &under[..under.partition_point(|fragment| fragment.start <= new.last)];
    let data = under.iter().filter(|old| !old.is_punch());
    let covered = data.map(|old| u32::from(old.last.min(new.last) - old.start.max(new.start)) + 1).sum();

    let mut put = [new; 3];
    let mut count = 0;
    if let Some(first) = under.first().filter(|first| first.start < new.start) {
        put[count] = Fragment { last: new.start - 1, ..*first };
        count += 1;
    }
    put[count] = new;
    count += 1;
    if let Some(end) = under.last().filter(|end| end.last > new.last) {
        put[count] = Fragment { start: new.last + 1, ..*end };
        count += 1;
    }
    let to = from + under.len();
    if count == to - from {
        fragments[from..to].copy_from_slice(&put[..count]);
    } else {
        fragments.splice(from..to, put[..count].iter().copied());
    }
    covered
}

/// Deltas after which a leaf may be due: more cost reads, fewer cost memory (3 to 8 bytes a fragment and leaf).
const DELTAS_MIN: usize = 16;
const ADJACENT: u64 = 1;
const SAME_LEN: u64 = 2;
const IS_PUNCH: u64 = 4;
const PUNCH: u32 = 1 << 31;

#[cfg(test)]
thread_local! {
    /// Entries looked at by plans of this thread.
    pub(super) static TOUCHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn count_touched(entries: usize) {
    TOUCHED.with(|time_runs| time_runs.set(time_runs.get() + entries));
}

#[cfg(not(test))]
fn count_touched(_entries: usize) {}
