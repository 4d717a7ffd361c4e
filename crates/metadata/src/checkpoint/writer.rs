//! Writes a checkpoint under its temporary name.

use std::sync::Arc;

use frieze_base::{Fault, Reason, crc32c};
use frieze_disk::{Disk, DiskFile};
use frieze_namespace::{PresentSnapshot, VisitPiece};

use super::format::{Footer, Header, Section, UNFINISHED, piece_head};

/// Bytes of a write: larger ones gain nothing, and one is in memory. Tests have small files and many writes.
const WRITE_BYTES: usize = if cfg!(test) { 256 } else { 1 << 20 };
/// Bytes between two flushes: what a flush of the log may have to wait for behind a checkpoint, 10 ms of a disk that
/// writes 800 MB/s.
const FLUSH_BYTES: u64 = 8 * WRITE_BYTES as u64;

/// Visits all pieces of a section.
type Pieces<'a> = &'a dyn Fn(&mut VisitPiece<'_>) -> bool;

/// Counts the pieces of a snapshot.
pub(super) fn count(present: &PresentSnapshot) -> (Section, Section) {
    let (mut inodes, mut names) = (Section::default(), Section::default());
    present.inode_lengths(&mut |bytes| inodes.add(bytes));
    present.name_lengths(&mut |bytes| names.add(bytes));
    (inodes, names)
}

/// Writes the checkpoint of this header under its temporary name, in the place of one that was left there, and returns
/// the file. Durable on return, but for the name.
///
/// # Errors
/// `NoSpace`, the disk's: nothing is left of it.
///
/// # Cost
/// The bytes of the present, some 20 to 35 for each file, written once; a buffer of 1 MiB.
pub(super) fn write(disk: &dyn Disk, header: &Header, present: &PresentSnapshot) -> Result<Arc<dyn DiskFile>, Fault> {
    remove_unfinished(disk)?;
    let bytes = header.file_bytes().ok_or_else(|| Fault::new(Reason::Internal, "a checkpoint without a length"))?;
    let written = disk.create(UNFINISHED, bytes).map_err(Fault::from).and_then(|file| {
        write_all(&*file, header, present)?;
        // A start reads it, and whatever is cold.
        let _ignored = file.advise_dont_need(0, bytes);
        let _ignored = file.hint_random_reads();
        Ok(file)
    });
    written.inspect_err(|_| {
        // What there is of it takes room; the next one removes it otherwise.
        let _failed_too = remove_unfinished(disk);
    })
}

/// Removes what an interrupted write left.
///
/// # Errors
/// The disk's.
pub(super) fn remove_unfinished(disk: &dyn Disk) -> Result<(), Fault> {
    match disk.remove(UNFINISHED).map_err(Fault::from) {
        Err(fault) if fault.reason == Reason::NotFound => Ok(()),
        removed => removed,
    }
}

fn write_all(file: &dyn DiskFile, header: &Header, present: &PresentSnapshot) -> Result<(), Fault> {
    let head = header.encode();
    let mut out = PieceWriter::new(file);
    out.buffer.extend_from_slice(&head);
    let inodes = out.section(header.inodes, &|visit| present.inode_pieces(visit))?;
    let names = out.section(header.names, &|visit| present.name_pieces(visit))?;
    let footer = Footer { index: header.index, inodes, names, header: crc32c(&head) };
    out.buffer.extend_from_slice(&footer.encode());
    out.write()?;
    Ok(file.sync()?)
}

struct PieceWriter<'a> {
    file: &'a dyn DiskFile,
    buffer: Vec<u8>,
    /// Where the buffer goes.
    offset: u64,
    flushed: u64,
    /// Of the section that is being written.
    section: Section,
    checksum: u32,
    failed: Option<Fault>,
}

impl PieceWriter<'_> {
    fn new(file: &dyn DiskFile) -> PieceWriter<'_> {
        let buffer = Vec::with_capacity(WRITE_BYTES + (WRITE_BYTES >> 3));
        PieceWriter { file, buffer, offset: 0, flushed: 0, section: Section::default(), checksum: 0, failed: None }
    }

    /// Writes a section that was counted before; returns its checksum.
    fn section(&mut self, counted: Section, pieces: Pieces<'_>) -> Result<u32, Fault> {
        (self.section, self.checksum) = (Section::default(), 0);
        pieces(&mut |piece| self.put(piece));
        match self.failed.take() {
            Some(fault) => Err(fault),
            None => {
                assert_eq!(self.section, counted, "a snapshot never changes");
                Ok(self.checksum)
            }
        }
    }

    /// Writes a piece; false if that failed.
    fn put(&mut self, piece: &[u8]) -> bool {
        let (head, checksum) = piece_head(self.checksum, piece);
        self.checksum = checksum;
        self.section.add(piece.len());
        self.buffer.extend_from_slice(&head);
        self.buffer.extend_from_slice(piece);
        if self.buffer.len() >= WRITE_BYTES {
            self.failed = self.write().err();
        }
        self.failed.is_none()
    }

    fn write(&mut self) -> Result<(), Fault> {
        self.file.write_at(self.offset, &[&self.buffer])?;
        let bytes = self.buffer.len() as u64;
        self.file.begin_sync(self.offset, bytes);
        self.offset += bytes;
        self.buffer.clear();
        if self.offset - self.flushed >= FLUSH_BYTES {
            self.flushed = self.offset;
            self.file.sync()?;
        }
        Ok(())
    }
}
