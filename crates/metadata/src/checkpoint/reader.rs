//! Reads a checkpoint, piece by piece.

use std::sync::Arc;

use frieze_base::{Fault, Reason, crc32c};
use frieze_disk::{Disk, DiskFile};

use super::cold_pieces::CheckpointPieces;
use super::format::{FOOTER_BYTES, Footer, HEADER_BYTES, Header, PIECE_HEAD_BYTES, Section, piece_head};

/// Bytes of a read. Tests have small files, and pieces that lie across two reads.
const READ_BYTES: usize = if cfg!(test) { 256 } else { 1 << 20 };

/// An open checkpoint with a whole header and a whole footer.
pub(super) struct CheckpointReader {
    name: String,
    file: Arc<dyn DiskFile>,
    header: Header,
    footer: Footer,
}

/// Takes a piece, and its offset in the file.
pub(super) type TakePiece<'a> = dyn FnMut(&[u8], u64) -> Result<(), Fault> + 'a;

impl CheckpointReader {
    /// Opens the file.
    ///
    /// # Errors
    /// `Corrupt`: it is no whole checkpoint of this build; the fault says what is wrong. The disk's.
    pub(super) fn open(disk: &dyn Disk, name: &str) -> Result<CheckpointReader, Fault> {
        let damaged = |what: &str| damaged(name, what);
        let file = disk.open(name)?;
        let bytes = file.len()?;
        let (mut head, mut end) = ([0; HEADER_BYTES], [0; FOOTER_BYTES]);
        if bytes < (HEADER_BYTES + FOOTER_BYTES) as u64 || file.read_at(0, &mut head)? < HEADER_BYTES {
            return Err(damaged("it is cut off in its header"));
        }
        let header = Header::decode(&head).map_err(damaged)?;
        if header.file_bytes() != Some(bytes) {
            return Err(damaged("its length is not that of its header"));
        }
        let found = file.read_at(bytes - FOOTER_BYTES as u64, &mut end)?;
        let footer = Some(end).filter(|_| found == FOOTER_BYTES).and_then(|end| Footer::decode(&end));
        let footer = footer.filter(|footer| footer.index == header.index && footer.header == crc32c(&head));
        let footer = footer.ok_or_else(|| damaged("it has no whole footer"))?;
        Ok(CheckpointReader { name: name.to_owned(), file, header, footer })
    }

    /// The pieces of the file, to be read again.
    pub(super) fn pieces(&self) -> CheckpointPieces {
        CheckpointPieces::new(self.name.clone(), Arc::clone(&self.file))
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// Shows all pieces of inodes.
    ///
    /// # Errors
    /// `Corrupt`, naming the file, also if `take` refuses a piece; the disk's.
    ///
    /// # Cost
    /// A buffer of 1 MiB, or the longest piece.
    pub(super) fn inodes(&self, take: &mut TakePiece<'_>) -> Result<(), Fault> {
        self.section(HEADER_BYTES as u64, self.header.inodes, self.footer.inodes, take)
    }

    /// As [`CheckpointReader::inodes`], of names.
    ///
    /// # Errors
    /// As [`CheckpointReader::inodes`].
    pub(super) fn names(&self, take: &mut TakePiece<'_>) -> Result<(), Fault> {
        self.section(HEADER_BYTES as u64 + self.header.inodes.bytes, self.header.names, self.footer.names, take)
    }

    /// The kernel's copies of the file are needed no more: what is read again is read here and there.
    pub(super) fn drop_cached(&self) {
        let _ignored = self.file.hint_random_reads();
        let _ignored = self.file.advise_dont_need(0, self.header.file_bytes().unwrap_or(0));
    }

    fn section(&self, begin: u64, section: Section, checksum: u32, take: &mut TakePiece<'_>) -> Result<(), Fault> {
        let damaged = |what: &str| damaged(&self.name, what);
        let mut bytes =
            SectionBytes { file: &*self.file, buffer: Vec::new(), at: 0, offset: begin, end: begin + section.bytes };
        let (mut found, mut pieces) = (0, 0);
        while bytes.left() > 0 {
            let head = bytes.peek(PIECE_HEAD_BYTES)?.and_then(|head| head.first_chunk().copied());
            let [a, b, c, d] = head.ok_or_else(|| damaged("a piece is cut off"))?;
            let piece_bytes = u32::from_le_bytes([a, b, c, d]) as usize;
            let offset = bytes.end - bytes.left() + PIECE_HEAD_BYTES as u64;
            let whole = bytes.peek(PIECE_HEAD_BYTES + piece_bytes)?;
            let (head, piece) =
                whole.ok_or_else(|| damaged("a piece of an impossible length"))?.split_at(PIECE_HEAD_BYTES);
            let (expected, next) = piece_head(found, piece);
            if head != expected {
                return Err(damaged("the checksum of a piece"));
            }
            (found, pieces) = (next, pieces + 1);
            take(piece, offset)
                .map_err(|fault| damaged(&format!("a piece is none of a present, {}", fault.message)))?;
            bytes.at += PIECE_HEAD_BYTES + piece_bytes;
        }
        match (pieces, found) == (section.pieces, checksum) {
            true => Ok(()),
            false => Err(damaged("pieces are missing, or not in their order")),
        }
    }
}

/// The bytes of a section, of which the first ones that are not used yet are in memory.
struct SectionBytes<'a> {
    file: &'a dyn DiskFile,
    buffer: Vec<u8>,
    /// The first byte of the buffer that is not used.
    at: usize,
    /// What is read next.
    offset: u64,
    end: u64,
}

impl SectionBytes<'_> {
    /// Bytes that are not used.
    fn left(&self) -> u64 {
        self.end - self.offset + (self.buffer.len() - self.at) as u64
    }

    /// The next bytes; `None` if there are not so many, so that memory never grows beyond what the file has.
    fn peek(&mut self, count: usize) -> Result<Option<&[u8]>, Fault> {
        if count as u64 > self.left() {
            return Ok(None);
        }
        if self.buffer.len() - self.at < count {
            self.buffer.drain(..self.at);
            self.at = 0;
            let begun = self.buffer.len();
            let more = (self.end - self.offset).min(READ_BYTES.max(count - begun) as u64) as usize;
            self.buffer.resize(begun + more, 0);
            if self.file.read_at(self.offset, &mut self.buffer[begun..])? < more {
                return Ok(None);
            }
            self.offset += more as u64;
        }
        Ok(Some(&self.buffer[self.at..self.at + count]))
    }
}

fn damaged(name: &str, what: &str) -> Fault {
    Fault::new(Reason::Corrupt, format!("{name} is damaged: {what}"))
}
