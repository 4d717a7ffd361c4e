//! Small sequential writes, copied into mapped pages of a file rather than written by a system call each.
//!
//! The next pages are written as zeros and mapped, [`WINDOW_BYTES`] at a time; a write within them is then a copy. The
//! copy has the effect of `pwrite`: bytes in the page cache, visible to every read, intact after the process dies, on
//! the medium after the next sync. A call costs 3 to 6 us, most of it for a page that was not cached; here 64 pages
//! share that, and a write takes 1.3 to 1.6 us. (Without the zeros the kernel reads ahead into large folios, and checks
//! all of one for each of its pages: 3 to 5 us.)
//!
//! Zeros are written only where the file's owner has declared that no data is in use ([`MappedWriter::declare_free`])
//! and no write has followed: every write is noted here before it is made.
//!
//! If a mapped page cannot be written when it is touched, the process ends, where a call would have returned an error.
//! So only file systems are mapped ([`may_map`]) that write in place and allocate nothing more for a page that they
//! have allocated before; and pages are allocated by `MADV_POPULATE_WRITE`, which returns an error: then, and for ever,
//! the file is written by calls.

#![expect(unsafe_code, reason = "a copy into a shared mapping has no safe wrapper; this file is all of it")]

use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr;

use rustix::fs::FsWord;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::device::PAGE_BYTES;
use crate::syscalls::retry;

/// Bytes that are mapped ahead at once. More: less time for each write, more zeros that a sync in between writes to the
/// medium too.
const WINDOW_BYTES: u64 = 256 << 10;
/// Larger writes cost less by a call: their cost is not the copy.
const SMALL_BYTES: u64 = 8 << 10;
/// After this many small sequential writes without a sync in between, more are expected.
const MANY: u32 = 16;
static ZEROS: [u8; WINDOW_BYTES as usize] = [0; WINDOW_BYTES as usize];
/// `statfs` types of ext4 (and of ext3 and ext2, which Linux serves by the same code) and of tmpfs.
const WRITES_IN_PLACE: [FsWord; 2] = [0xef53, 0x0102_1994];

/// True if files in this directory may be mapped.
pub(crate) fn may_map(dir: impl AsFd) -> bool {
    rustix::fs::fstatfs(dir).is_ok_and(|found| WRITES_IN_PLACE.contains(&found.f_type))
}

/// State of sequential writes in one file.
#[derive(Debug, Default)]
pub(crate) struct MappedWriter {
    /// Range without data in use.
    free: Range<u64>,
    window: Option<MappedWindow>,
    /// End of the last small write.
    end: u64,
    /// Count of small sequential writes since the last sync.
    run: u32,
    /// A sync since the window was mapped has made its pages clean: they are populated again, all at once.
    is_clean: bool,
    /// The file cannot be mapped.
    is_refused: bool,
}

impl MappedWriter {
    /// Declares that this range holds no data in use, and that small sequential writes will start at its beginning.
    pub(crate) fn declare_free(&mut self, free: Range<u64>) {
        (self.free, self.window, self.run) = (free, None, 0);
    }

    /// Copies a write of `parts`, `len` bytes together, if it is small, and within the window or a new one. False:
    /// nothing was written, and the caller has to use a call.
    pub(crate) fn put(&mut self, file: impl AsFd, offset: u64, parts: &[&[u8]], len: u64) -> bool {
        let is_sequential = offset == self.end;
        self.run = if is_sequential { self.run.saturating_add(1) } else { 0 };
        self.end = offset + len;
        let is_within = self.window.as_ref().is_some_and(|window| window.contains(offset, len));
        if !is_sequential && !is_within {
            // A write outside of the window ends its use, as when a segment's footer is written: its pages are
            // unmapped.
            self.window = None;
        }
        let is_copied = len <= SMALL_BYTES && !self.is_refused && self.find(file, is_within, offset, len);
        if let (true, Some(window)) = (is_copied, &mut self.window) {
            window.copy(offset, parts);
        }
        self.note(offset, offset + len);
        is_copied
    }

    /// Maps a window that contains the range, if there is none.
    fn find(&mut self, file: impl AsFd, is_within: bool, offset: u64, len: u64) -> bool {
        if let (true, Some(window)) = (is_within, &self.window) {
            let is_populated = !self.is_clean || window.populate(offset);
            self.is_clean = false;
            return is_populated || self.refuse();
        }
        let begin = offset / PAGE_BYTES * PAGE_BYTES;
        let end = (begin + WINDOW_BYTES).min(self.free.end / PAGE_BYTES * PAGE_BYTES);
        if self.run < MANY || offset < self.free.start || end < offset + len {
            return false;
        }
        (self.window, self.is_clean) = (None, false);
        self.window = MappedWindow::new(file, begin..end, offset.next_multiple_of(PAGE_BYTES));
        self.window.is_some() || self.refuse()
    }

    /// Notes data in this range: what was free before it, or behind it, stays free.
    fn note(&mut self, begin: u64, end: u64) {
        let Range { start, end: upto } = self.free;
        if end <= start || upto <= begin {
            return;
        }
        self.free = if begin.saturating_sub(start) < upto.saturating_sub(end) { end..upto } else { start..begin };
    }

    /// All earlier writes are on the medium.
    pub(crate) fn synced(&mut self) {
        self.is_clean = true;
        if self.run < MANY {
            self.window = None;
        }
        self.run = 0;
    }

    fn refuse(&mut self) -> bool {
        (self.window, self.is_refused) = (None, true);
        false
    }
}

/// A mapped part of a file, in whole pages.
#[derive(Debug)]
struct MappedWindow {
    at: ptr::NonNull<u8>,
    begin: u64,
    end: u64,
}

// SAFETY: the mapping belongs to this value alone and is the same memory from every thread.
unsafe impl Send for MappedWindow {}

impl MappedWindow {
    /// `None` if it cannot be mapped, or a page cannot be allocated. From `zeros` on no data is in use.
    fn new(file: impl AsFd, Range { start: begin, end }: Range<u64>, zeros: u64) -> Option<MappedWindow> {
        let len = usize::try_from(end - begin).ok()?;
        let mut at = zeros;
        while at < end {
            let count = retry(|| rustix::io::pwrite(&file, &ZEROS[..(end - at) as usize], at)).ok()?;
            at += (count > 0).then_some(count as u64)?;
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory that is in use.
        let at = unsafe { rustix::mm::mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, begin) }.ok()?;
        let window = MappedWindow { at: ptr::NonNull::new(at.cast())?, begin, end };
        window.populate(begin).then_some(window)
    }

    fn contains(&self, offset: u64, len: u64) -> bool {
        self.begin <= offset && offset + len <= self.end
    }

    /// Populates the pages from the one of `from` on for writing.
    fn populate(&self, from: u64) -> bool {
        let skipped = (from / PAGE_BYTES * PAGE_BYTES - self.begin) as usize;
        let len = (self.end - self.begin) as usize - skipped;
        // SAFETY: the range lies within the mapping, and the advice changes none of its bytes.
        unsafe { rustix::mm::madvise(self.at.as_ptr().add(skipped).cast(), len, Advice::LinuxPopulateWrite) }.is_ok()
    }

    fn copy(&mut self, offset: u64, parts: &[&[u8]]) {
        let mut at = offset;
        for part in parts {
            assert!(self.contains(at, part.len() as u64), "only what the window holds is copied there");
            // SAFETY: just asserted: it is within the mapping, which no reference of ours points into.
            unsafe {
                let to = self.at.as_ptr().add((at - self.begin) as usize);
                ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
            }
            at += part.len() as u64;
        }
    }
}

impl Drop for MappedWindow {
    fn drop(&mut self) {
        // SAFETY: it is ours, whole, and nothing points into it any more.
        let _unmapped = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), (self.end - self.begin) as usize) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use frieze_base::Rng;

    use super::*;
    use crate::{Disk, FileDisk, FileDiskSettings};

    const FILE_BYTES: u64 = 2 << 20;

    /// A file of ones, without data in use from `free` on; `None` if files are not mapped.
    fn file(dir: &Path, free: u64) -> Option<(File, MappedWriter)> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(dir.join("f")).unwrap();
        file.write_all_at(&vec![1; FILE_BYTES as usize], 0).unwrap();
        let mut writer = MappedWriter::default();
        writer.declare_free(free..FILE_BYTES);
        may_map(File::open(dir).unwrap()).then_some((file, writer))
    }

    /// Writes as a device's file does: by a call where the window refuses. True if the window took it.
    fn write(file: &File, writer: &mut MappedWriter, offset: u64, bytes: &[u8]) -> bool {
        let (first, second) = bytes.split_at(bytes.len() / 3);
        let is_copied = writer.put(file, offset, &[first, second], bytes.len() as u64);
        if !is_copied {
            file.write_all_at(bytes, offset).unwrap();
        }
        is_copied
    }

    #[test]
    fn bytes_copied_into_pages_equal_bytes_written_by_calls() {
        let dir = tempfile::tempdir().unwrap();
        let mut rng = Rng::new(3);
        let mut put = 0;
        for round in 0..20 {
            let free = rng.below(100_000);
            let Some((file, mut writer)) = file(dir.path(), free) else { return };
            let mut wanted = vec![1; FILE_BYTES as usize];
            // A range without data in use may be as it was, or zeros.
            let mut is_free: Vec<bool> = (0..FILE_BYTES).map(|at| at >= free).collect();
            let mut at = free;
            for number in 0..1500_u32 {
                match rng.below(100) {
                    0 => {
                        file.sync_data().unwrap();
                        writer.synced();
                    }
                    // Another use of the file: before, behind, or within the free range.
                    1 => {
                        let offset = rng.below(FILE_BYTES - 20_000);
                        let bytes = vec![number as u8; rng.between(1, 20_000) as usize];
                        write(&file, &mut writer, offset, &bytes);
                        wanted[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
                        is_free[offset as usize..][..bytes.len()].fill(false);
                    }
                    2 if round % 2 == 0 => at = rng.between(free, FILE_BYTES / 2),
                    _ => {
                        let len = if rng.chance(30) { rng.between(1, 30_000) } else { rng.between(1, 900) };
                        if at + len > FILE_BYTES {
                            break;
                        }
                        let bytes = vec![number as u8 | 2; len as usize];
                        put += u64::from(write(&file, &mut writer, at, &bytes));
                        wanted[at as usize..][..bytes.len()].copy_from_slice(&bytes);
                        is_free[at as usize..][..bytes.len()].fill(false);
                        at += len;
                    }
                }
            }
            let mut found = vec![0; FILE_BYTES as usize];
            file.read_exact_at(&mut found, 0).unwrap();
            let wrong = found
                .iter()
                .zip(&wanted)
                .zip(&is_free)
                .position(|((found, wanted), is_free)| found != wanted && !(*is_free && [0, 1].contains(found)));
            assert_eq!(wrong, None, "round {round}");
        }
        assert!(put > 5000, "only {put} writes were put into pages");
    }

    #[test]
    fn few_writes_between_two_syncs_are_calls_and_write_no_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let Some((file, mut writer)) = file(dir.path(), 0) else { return };
        for at in 0..200 {
            assert!(!write(&file, &mut writer, at * 10, &[7; 10]), "write {at}");
            if at % 10 == 9 {
                writer.synced();
            }
        }
        let mut found = vec![0; FILE_BYTES as usize];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found[2000..].iter().all(|byte| *byte == 1), "later bytes are unchanged");
    }

    #[test]
    fn pages_are_unmapped_when_the_file_is_written_outside_of_them_or_rarely() {
        let dir = tempfile::tempdir().unwrap();
        let Some((file, mut writer)) = file(dir.path(), 0) else { return };
        let mut at = 0;
        let mut stream = |writer: &mut MappedWriter| {
            let put = (0..40).filter(|_| {
                at += 10;
                write(&file, writer, at - 10, &[7; 10])
            });
            assert!(put.count() > 20 && writer.window.is_some());
        };
        stream(&mut writer);
        write(&file, &mut writer, FILE_BYTES - 100_000, &[9; 100_000]);
        assert!(writer.window.is_none(), "a footer");
        stream(&mut writer);
        writer.synced();
        assert!(writer.window.is_some(), "after many writes the window outlives one sync");
        writer.synced();
        assert!(writer.window.is_none());
    }

    #[test]
    fn bytes_not_declared_free_are_never_overwritten_with_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let Some((file, mut writer)) = file(dir.path(), FILE_BYTES) else { return };
        let put = (0..200).filter(|at| write(&file, &mut writer, at * 10, &[7; 10])).count();
        assert_eq!(put, 0);
    }

    #[test]
    fn a_file_that_cannot_be_mapped_is_written_by_calls() {
        let dir = tempfile::tempdir().unwrap();
        let Some((_, mut writer)) = file(dir.path(), 0) else { return };
        // Opened for writing alone, no page of it can be mapped.
        let write_only = File::options().write(true).open(dir.path().join("f")).unwrap();
        for at in 0..100 {
            assert!(!write(&write_only, &mut writer, at * 10, &[7; 10]));
        }
        assert!(writer.is_refused);
    }

    #[test]
    fn a_killed_process_leaves_the_bytes_that_it_copied_into_pages() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FileDisk::open(dir.path(), FileDiskSettings::default()).unwrap();
        let file = disk.create("a", FILE_BYTES).unwrap();
        file.hint_writes(0..FILE_BYTES);
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at * 7) as u8).collect();
        for (number, piece) in bytes.chunks(500).enumerate() {
            file.write_at(number as u64 * 500, &[piece]).unwrap();
        }
        let mut found = vec![0; bytes.len()];
        // Through another open file description, while the first is open and its pages are mapped.
        File::open(dir.path().join("a")).unwrap().read_exact_at(&mut found, 0).unwrap();
        assert!(found == bytes);
        file.sync().unwrap();
        file.write_at(100_000, &[b"more"]).unwrap();
        assert_eq!(file.read_at(99_999, &mut found[..6]), Ok(6));
        assert_eq!(&found[1..6], b"more\0");
    }
}
