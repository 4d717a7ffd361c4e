//! A page of packed inodes: those of 64 consecutive numbers that have nothing that few inodes have.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | format, 1 |
//! | 8 | a bit for each number that is here |
//! | 8 | stamp that births are differences to: the birth of the first inode that came |
//! | 8 | the directory of most of them: that of the first |
//! | 1 | owners: how many, then 13 bytes each: uid (4), gid (4), mode (2), kind (1), number of the layout (2) |
//! | 1 each | lengths of the records |
//! | | records, by number |
//!
//! A record is two bytes of flags, then what the flags do not say: birth, `from`, `ctime`, stamp of the modification
//! time, stamp of the length, stamp of the name, modification time, access time, links, directory, length, owner.
//! Stamps are differences to the birth, in microseconds, and a counter if there is one. All integers are little-endian
//! or varints.
//!
//! A file that was made and closed takes 5 to 8 bytes.

use std::num::NonZeroU64;
use std::sync::Arc;

use frieze_base::{InodeId, varint};
use frieze_hlc::Hlc;
use frieze_wire::message::FileKind;

use super::bytes::{PACKED_BYTES_MAX, PackedBytes, put_stamp, take_stamp};
use crate::inode::{FileLayout, Inode};

/// Numbers of a page.
pub(super) const PAGE_INODES: u64 = 64;

const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 26;
const OWNERS_AT: usize = HEADER_BYTES - 1;
const OWNER_BYTES: usize = 13;
/// Owners that a page may have beyond one for each inode, before it is packed anew without those that no inode has.
const OWNERS_SPARE_MAX: usize = 8;
const OWNERS_MAX: usize = PAGE_INODES as usize + OWNERS_SPARE_MAX;

const FROM_IS_BORN: u16 = 1;
const CTIME_SHIFT: u32 = 1;
const MTIME_STAMP_SHIFT: u32 = 3;
const SIZE_AS_OF_SHIFT: u32 = 5;
const ATIME_SHIFT: u32 = 7;
/// The modification time is not that of its stamp.
const MTIME: u16 = 1 << 9;
const LINKS: u16 = 1 << 10;
const PARENT: u16 = 1 << 11;
const SIZE: u16 = 1 << 12;
const OWNER: u16 = 1 << 13;
const NAMED_SHIFT: u32 = 14;

/// What two bits of flags say of a stamp or a time.
const IS_BORN: u16 = 0;
const IS_FROM: u16 = 1;
/// The modification time, or its stamp; of the name, none.
const IS_ANOTHER: u16 = 2;
const IS_OTHER: u16 = 3;

/// A page of packed inodes.
#[derive(Clone)]
pub(super) struct InodePage {
    bytes: PackedBytes,
    /// A bit for each number that is here, as in the bytes: which numbers a cold page has needs no look at it.
    present: NonZeroU64,
}

/// What a page has of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlainInode {
    born: Hlc,
    from: Hlc,
    ctime: Hlc,
    mtime_stamp: Hlc,
    size_as_of: Hlc,
    named: Hlc,
    mtime_ns: i64,
    atime_ns: i64,
    links: u32,
    parent: InodeId,
    size: u64,
    pub(super) owner: InodeOwner,
}

/// What a page has once for all its inodes in which it is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InodeOwner {
    uid: u32,
    gid: u32,
    mode: u16,
    kind: u8,
    /// Number of the layout.
    pub(super) layout: u16,
}

/// The parts of a page.
#[derive(Clone, Copy)]
struct PageParts<'a> {
    present: u64,
    born: Hlc,
    parent: InodeId,
    owners: &'a [[u8; OWNER_BYTES]],
    lengths: &'a [u8],
    records: &'a [u8],
}

// As many bytes as handle and bits: absence takes none.
const _: () = assert!(size_of::<Option<InodePage>>() == size_of::<PackedBytes>() + 8);

impl InodePage {
    /// A bit for each number that is here.
    #[inline]
    pub(super) fn present(&self) -> u64 {
        self.present.get()
    }

    /// The inode at `index`, which is here.
    #[inline]
    pub(super) fn get(&self, index: u32) -> PlainInode {
        PageParts::read(self.bytes.fetched()).expect("a page holds what was packed").record(index)
    }

    /// The bytes of the page.
    pub(super) fn bytes(&self) -> &PackedBytes {
        &self.bytes
    }

    /// The same, to be placed or evicted.
    pub(super) fn bytes_mut(&mut self) -> &mut PackedBytes {
        &mut self.bytes
    }

    /// Packs an inode at `index`, where none is. `scratch` is overwritten.
    pub(super) fn put(page: &mut Option<InodePage>, index: u32, inode: &PlainInode, scratch: &mut Vec<u8>) {
        let Some(old) = page else {
            let base = PageParts { born: inode.born, parent: inode.parent, ..PageParts::EMPTY };
            base.with(index, inode, scratch);
            *page = InodePage::of(scratch);
            return;
        };
        let parts = old.parts();
        if !parts.has_room_for(inode.owner) {
            let all: Vec<(u32, PlainInode)> = bits(parts.present).map(|index| (index, parts.record(index))).collect();
            *page = None;
            all.iter().for_each(|(index, inode)| InodePage::put(page, *index, inode, scratch));
            return InodePage::put(page, index, inode, scratch);
        }
        let present = old.present | 1 << index;
        parts.with(index, inode, scratch);
        old.bytes.store(scratch);
        old.present = present;
    }

    /// Takes the inode at `index`, which is here, out of the page. `scratch` is overwritten.
    pub(super) fn take(page: &mut Option<InodePage>, index: u32, scratch: &mut Vec<u8>) -> PlainInode {
        let old = page.as_mut().expect("the caller found it here");
        let parts = old.parts();
        let inode = parts.record(index);
        match NonZeroU64::new(old.present.get() & !(1 << index)) {
            Some(present) => {
                parts.without(index, scratch);
                old.bytes.store(scratch);
                old.present = present;
            }
            None => *page = None,
        }
        inode
    }

    /// Reads a page from bytes of unknown origin; `None` unless they are the content of one. `has_layout` says which
    /// layouts have numbers.
    pub(super) fn load(content: &[u8], has_layout: impl Fn(u16) -> bool) -> Option<InodePage> {
        if content.len() > PACKED_BYTES_MAX {
            return None;
        }
        let parts = PageParts::read(content)?;
        // An owner that no inode has any more may have a layout that no inode has.
        let are_owners = parts
            .owners
            .iter()
            .enumerate()
            .all(|(at, bytes)| InodeOwner::read(bytes).is_some() && !parts.owners[..at].contains(bytes));
        if !are_owners || parts.present == 0 || parts.owners.len() > OWNERS_MAX {
            return None;
        }
        let (mut rest, mut again) = (parts.records, Vec::new());
        for length in parts.lengths {
            let record = varint::take_bytes(&mut rest, usize::from(*length))?;
            let inode = parts.unpack(record)?;
            again.clear();
            inode.pack(&parts, parts.owner_at(inode.owner)?, &mut again);
            if again != record || !has_layout(inode.owner.layout) {
                return None;
            }
        }
        if rest.is_empty() { InodePage::of(content) } else { None }
    }

    /// The page with other numbers of the layouts; `None` if one has none.
    pub(super) fn with_layouts(&self, mut number_of: impl FnMut(u16) -> Option<u16>) -> Option<InodePage> {
        let parts = self.parts();
        let mut owners = Vec::with_capacity(parts.owners.len());
        for owner in parts.owners {
            let owner = InodeOwner::read(owner).expect("a page holds what was packed");
            owners.push(InodeOwner { layout: number_of(owner.layout)?, ..owner }.bytes());
        }
        let mut content = self.bytes.content().to_vec();
        content[HEADER_BYTES..][..owners.len() * OWNER_BYTES].copy_from_slice(owners.as_flattened());
        InodePage::of(&content)
    }

    /// The page of these bytes; `None` if no inode is in them.
    fn of(content: &[u8]) -> Option<InodePage> {
        let present = NonZeroU64::new(PageParts::read(content)?.present)?;
        Some(InodePage { bytes: PackedBytes::new(content), present })
    }

    #[inline]
    fn parts(&self) -> PageParts<'_> {
        PageParts::read(self.bytes.content()).expect("a page holds what was packed")
    }
}

/// The set bits of a page's numbers, lowest first.
pub(super) fn bits(mut set: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(bit)
    })
}

/// How many of the numbers before `index` are in a set.
#[inline]
pub(super) fn rank(set: u64, index: u32) -> usize {
    (set & ((1 << index) - 1)).count_ones() as usize
}

impl<'a> PageParts<'a> {
    const EMPTY: PageParts<'static> =
        PageParts { present: 0, born: Hlc::ZERO, parent: InodeId(0), owners: &[], lengths: &[], records: &[] };

    #[inline]
    fn read(content: &'a [u8]) -> Option<PageParts<'a>> {
        let (header, rest) = content.split_first_chunk::<HEADER_BYTES>()?;
        let word = |at: usize| u64::from_le_bytes(*header[at..].first_chunk().expect("within the header"));
        let (present, born, parent) = (word(1), Hlc(word(9)), InodeId(word(17)));
        let (owners, rest) = rest.split_at_checked(usize::from(header[OWNERS_AT]) * OWNER_BYTES)?;
        let (lengths, records) = rest.split_at_checked(present.count_ones() as usize)?;
        let parts = PageParts { present, born, parent, owners: owners.as_chunks().0, lengths, records };
        (header[0] == FORMAT).then_some(parts)
    }

    /// Where the record of `index` is, or would be: how many are before it, and its offset.
    #[inline]
    fn place(&self, index: u32) -> (usize, usize) {
        let before = rank(self.present, index);
        let offset = self.lengths[..before].iter().map(|length| u32::from(*length)).sum::<u32>() as usize;
        (before, offset)
    }

    #[inline]
    fn record(&self, index: u32) -> PlainInode {
        let (before, offset) = self.place(index);
        let record = &self.records[offset..][..usize::from(self.lengths[before])];
        self.unpack(record).expect("a page holds what was packed")
    }

    fn owner_at(&self, owner: InodeOwner) -> Option<u8> {
        let bytes = owner.bytes();
        self.owners.iter().position(|known| *known == bytes).and_then(|at| u8::try_from(at).ok())
    }

    /// False if the page has too many owners that no inode has any more.
    fn has_room_for(&self, owner: InodeOwner) -> bool {
        self.owners.len() < self.lengths.len() + OWNERS_SPARE_MAX || self.owner_at(owner).is_some()
    }

    /// Writes the page with one inode more.
    fn with(&self, index: u32, inode: &PlainInode, page: &mut Vec<u8>) {
        let (before, offset) = self.place(index);
        self.put_header(self.present | 1 << index, page);
        let owner = self.owner_at(inode.owner).unwrap_or_else(|| {
            page[OWNERS_AT] += 1;
            page.extend_from_slice(&inode.owner.bytes());
            page[OWNERS_AT] - 1
        });
        page.extend_from_slice(&self.lengths[..before]);
        let length_at = page.len();
        page.push(0);
        page.extend_from_slice(&self.lengths[before..]);
        page.extend_from_slice(&self.records[..offset]);
        let start = page.len();
        inode.pack(self, owner, page);
        page[length_at] = u8::try_from(page.len() - start).expect("a record has at most 100 bytes");
        page.extend_from_slice(&self.records[offset..]);
    }

    /// Writes the page with one inode less. Its owner stays, until a new one finds too many.
    fn without(&self, index: u32, page: &mut Vec<u8>) {
        let (before, offset) = self.place(index);
        let length = usize::from(self.lengths[before]);
        self.put_header(self.present & !(1 << index), page);
        page.extend_from_slice(&self.lengths[..before]);
        page.extend_from_slice(&self.lengths[before + 1..]);
        page.extend_from_slice(&self.records[..offset]);
        page.extend_from_slice(&self.records[offset + length..]);
    }

    /// Writes header and owners.
    fn put_header(&self, present: u64, page: &mut Vec<u8>) {
        page.clear();
        page.push(FORMAT);
        page.extend_from_slice(&present.to_le_bytes());
        page.extend_from_slice(&self.born.0.to_le_bytes());
        page.extend_from_slice(&self.parent.0.to_le_bytes());
        page.push(u8::try_from(self.owners.len()).expect("at most one for each inode, and the spare ones"));
        page.extend_from_slice(self.owners.as_flattened());
    }

    /// Reads a record; `None` if it is none.
    #[inline]
    fn unpack(&self, record: &[u8]) -> Option<PlainInode> {
        let (flags, mut rest) = record.split_first_chunk()?;
        let rest = &mut rest;
        let flags = u16::from_le_bytes(*flags);
        let code = |shift: u32| flags >> shift & 3;
        let born = take_stamp(rest, self.born)?;
        let from = if flags & FROM_IS_BORN != 0 { born } else { take_stamp(rest, born)? };
        let mut stamp = |code: u16, other: Hlc| match code {
            IS_BORN => Some(born),
            IS_FROM => Some(from),
            IS_ANOTHER => Some(other),
            _ => take_stamp(rest, born),
        };
        let ctime = stamp(code(CTIME_SHIFT), born)?;
        let mtime_stamp = stamp(code(MTIME_STAMP_SHIFT), born)?;
        let size_as_of = stamp(code(SIZE_AS_OF_SHIFT), mtime_stamp)?;
        let named = stamp(code(NAMED_SHIFT), Hlc::ZERO)?;
        let ns = born.unix_ns() as u64;
        let mtime_ns = match flags & MTIME {
            0 => mtime_stamp.unix_ns(),
            _ => varint::take_difference(rest, ns)? as i64,
        };
        let atime_ns = match code(ATIME_SHIFT) {
            IS_BORN => born.unix_ns(),
            IS_ANOTHER => mtime_ns,
            _ => varint::take_difference(rest, ns)? as i64,
        };
        let links = if flags & LINKS == 0 { 1 } else { u32::try_from(varint::take(rest)?).ok()? };
        let parent = match flags & PARENT {
            0 => self.parent,
            _ => InodeId(varint::take_difference(rest, self.parent.0)?),
        };
        let size = if flags & SIZE == 0 { 0 } else { varint::take(rest)? };
        let owner = if flags & OWNER == 0 { 0 } else { varint::take(rest)? };
        let owner = InodeOwner::read(self.owners.get(usize::try_from(owner).ok()?)?)?;
        let inode = PlainInode {
            born,
            from,
            ctime,
            mtime_stamp,
            size_as_of,
            named,
            mtime_ns,
            atime_ns,
            links,
            parent,
            size,
            owner,
        };
        rest.is_empty().then_some(inode)
    }
}

impl PlainInode {
    /// What a page would have of an inode; `None` if it has what a page has no room for. Directories stay unpacked:
    /// every walk reads them. `layout` is the number of its layout.
    pub(super) fn of(inode: &Inode, layout: u16) -> Option<PlainInode> {
        let Inode {
            from,
            born,
            ctime,
            mtime_ns,
            mtime_stamp,
            atime_ns,
            size,
            size_as_of,
            named,
            parent,
            layout: _,
            links,
            uid,
            gid,
            mode,
            kind,
            extra: None,
        } = *inode
        else {
            return None;
        };
        let owner = InodeOwner { uid, gid, mode, kind, layout };
        let plain = PlainInode {
            born,
            from,
            ctime,
            mtime_stamp,
            size_as_of,
            named,
            mtime_ns,
            atime_ns,
            links,
            parent,
            size,
            owner,
        };
        (kind != FileKind::Directory as u8 && mode <= 0o7777).then_some(plain)
    }

    /// The inode.
    #[inline]
    pub(super) fn unpacked(self, layout: Arc<FileLayout>) -> Inode {
        let InodeOwner { uid, gid, mode, kind, layout: _ } = self.owner;
        Inode {
            from: self.from,
            born: self.born,
            ctime: self.ctime,
            mtime_ns: self.mtime_ns,
            mtime_stamp: self.mtime_stamp,
            atime_ns: self.atime_ns,
            size: self.size,
            size_as_of: self.size_as_of,
            named: self.named,
            parent: self.parent,
            layout,
            links: self.links,
            uid,
            gid,
            mode,
            kind,
            extra: None,
        }
    }

    /// Appends the record; `owner` is the index of its owner in the page.
    fn pack(&self, page: &PageParts<'_>, owner: u8, record: &mut Vec<u8>) {
        let PlainInode {
            born,
            from,
            ctime,
            mtime_stamp,
            size_as_of,
            named,
            mtime_ns,
            atime_ns,
            links,
            parent,
            size,
            ..
        } = *self;
        let code = |stamp: Hlc, other: Option<Hlc>| match stamp {
            _ if stamp == born => IS_BORN,
            _ if stamp == from => IS_FROM,
            _ if Some(stamp) == other => IS_ANOTHER,
            _ => IS_OTHER,
        };
        let (ctime_code, mtime_code, size_code) =
            (code(ctime, None), code(mtime_stamp, None), code(size_as_of, Some(mtime_stamp)));
        let named_code = code(named, Some(Hlc::ZERO));
        let atime_code = match atime_ns {
            _ if atime_ns == born.unix_ns() => IS_BORN,
            _ if atime_ns == mtime_ns => IS_ANOTHER,
            _ => IS_OTHER,
        };
        let has_mtime = mtime_ns != mtime_stamp.unix_ns();
        let mut flags = ctime_code << CTIME_SHIFT
            | mtime_code << MTIME_STAMP_SHIFT
            | size_code << SIZE_AS_OF_SHIFT
            | atime_code << ATIME_SHIFT
            | named_code << NAMED_SHIFT;
        for (flag, is_set) in [
            (FROM_IS_BORN, from == born),
            (MTIME, has_mtime),
            (LINKS, links != 1),
            (PARENT, parent != page.parent),
            (SIZE, size != 0),
            (OWNER, owner != 0),
        ] {
            flags |= if is_set { flag } else { 0 };
        }
        record.extend_from_slice(&flags.to_le_bytes());
        put_stamp(record, page.born, born);
        if from != born {
            put_stamp(record, born, from);
        }
        let stamps = [(ctime_code, ctime), (mtime_code, mtime_stamp), (size_code, size_as_of), (named_code, named)];
        for (code, stamp) in stamps {
            if code == IS_OTHER {
                put_stamp(record, born, stamp);
            }
        }
        let ns = born.unix_ns() as u64;
        if has_mtime {
            varint::put_difference(record, ns, mtime_ns as u64);
        }
        if atime_code == IS_OTHER {
            varint::put_difference(record, ns, atime_ns as u64);
        }
        if links != 1 {
            varint::put(record, links.into());
        }
        if parent != page.parent {
            varint::put_difference(record, page.parent.0, parent.0);
        }
        if size != 0 {
            varint::put(record, size);
        }
        if owner != 0 {
            varint::put(record, owner.into());
        }
    }
}

impl InodeOwner {
    fn bytes(self) -> [u8; OWNER_BYTES] {
        let mut bytes = [0; OWNER_BYTES];
        bytes[..4].copy_from_slice(&self.uid.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.gid.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.mode.to_le_bytes());
        bytes[10] = self.kind;
        bytes[11..].copy_from_slice(&self.layout.to_le_bytes());
        bytes
    }

    #[inline]
    fn read(bytes: &[u8; OWNER_BYTES]) -> Option<InodeOwner> {
        let [u0, u1, u2, u3, g0, g1, g2, g3, m0, m1, kind, l0, l1] = *bytes;
        let owner = InodeOwner {
            uid: u32::from_le_bytes([u0, u1, u2, u3]),
            gid: u32::from_le_bytes([g0, g1, g2, g3]),
            mode: u16::from_le_bytes([m0, m1]),
            kind,
            layout: u16::from_le_bytes([l0, l1]),
        };
        let is_kind = FileKind::try_from(i32::from(kind)).is_ok_and(|kind| kind != FileKind::Directory);
        (is_kind && owner.mode <= 0o7777).then_some(owner)
    }
}

#[cfg(test)]
mod tests;
