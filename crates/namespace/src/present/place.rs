//! Where a checkpoint has bytes that may leave memory, and how they come back.
//!
//! A piece of a checkpoint ([`super::snapshot`]) is a letter, a number, and the content. Its place is one word: offset,
//! length, length of letter and number, and some bits of the number, which have to be those of the piece that is found
//! there. The checksum is beside the piece in the file.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use frieze_base::varint;

/// Says in the word of a place that the bytes were read since the last pass of evictions.
pub(super) const USED: u64 = 1 << 63;

const OFFSET_BITS: u32 = 40;
const LENGTH_BITS: u32 = 13;
const HEAD_BITS: u32 = 4;
const LENGTH_SHIFT: u32 = OFFSET_BITS;
const HEAD_SHIFT: u32 = LENGTH_SHIFT + LENGTH_BITS;
const NUMBER_SHIFT: u32 = HEAD_SHIFT + HEAD_BITS;
const NUMBER_MASK: u64 = 0x3f;
/// Bytes that are read at once if pieces are read in their order.
const READ_AHEAD_BYTES: usize = 1 << 20;

/// Reads pieces of a checkpoint again.
///
/// A piece that cannot be read must never become an answer or the outcome of a transaction: an implementation that
/// fails, or finds a wrong checksum, does not return. It stops the server.
pub trait ColdSource: Send + Sync + fmt::Debug {
    /// The piece of `piece_bytes` at `offset`, read by `window` or found in it.
    ///
    /// # Panics
    /// If the file cannot be read, or does not have the piece that it had: the process is to end.
    fn read<'a>(&self, offset: u64, piece_bytes: usize, window: &'a mut PieceWindow) -> &'a [u8];
}

/// Bytes of a file of pieces that were read last.
#[derive(Debug, Default)]
pub struct PieceWindow {
    /// Offset of the first one in the file.
    pub offset: u64,
    /// The bytes from there on.
    pub bytes: Vec<u8>,
    /// Bytes worth reading beyond a piece, because those after it are needed next; 0: none.
    pub read_ahead_bytes: usize,
}

/// A checkpoint from which pieces can be read again, and what was read.
#[derive(Debug)]
pub struct ColdFile {
    source: Box<dyn ColdSource>,
    loads: Arc<PieceLoads>,
}

/// Pieces of a present that were read again since it was loaded.
#[derive(Debug, Default)]
pub struct PieceLoads {
    count: AtomicU64,
    /// Memory that they took then.
    bytes: AtomicI64,
}

/// Where a piece is in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PiecePlace(u64);

/// Reads cold bytes without a change of the present.
pub(super) struct ColdReader {
    window: PieceWindow,
    /// The file that the window is of.
    file: Option<Arc<ColdFile>>,
}

impl ColdFile {
    /// A file of pieces of the present that counts by `loads`.
    pub fn new(source: Box<dyn ColdSource>, loads: &Arc<PieceLoads>) -> Arc<ColdFile> {
        Arc::new(ColdFile { source, loads: Arc::clone(loads) })
    }

    /// What counts its loads.
    pub(super) fn loads(&self) -> &Arc<PieceLoads> {
        &self.loads
    }

    pub(super) fn count_load(&self, memory_bytes: i64) {
        self.loads.count.fetch_add(1, Ordering::Relaxed);
        self.loads.bytes.fetch_add(memory_bytes, Ordering::Relaxed);
    }
}

impl PieceLoads {
    /// How many there were, and how much memory they took then.
    pub(super) fn counts(&self) -> (u64, i64) {
        (self.count.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

impl PiecePlace {
    /// The place of a piece whose letter and number take `head_bytes` of its `piece_bytes`; `None` beyond what a word
    /// has room for: a terabyte. Such a piece stays in memory.
    pub(super) fn new(offset: u64, piece_bytes: usize, head_bytes: usize, number: u64) -> Option<PiecePlace> {
        if offset >> OFFSET_BITS != 0 || piece_bytes >> LENGTH_BITS != 0 || head_bytes >> HEAD_BITS != 0 {
            return None;
        }
        let lengths = (piece_bytes as u64) << LENGTH_SHIFT | (head_bytes as u64) << HEAD_SHIFT;
        Some(PiecePlace(offset | lengths | number_bits(number) << NUMBER_SHIFT))
    }

    pub(super) fn of_word(word: u64) -> PiecePlace {
        PiecePlace(word & !USED)
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// Bytes of the piece without letter and number.
    pub(super) fn content_bytes(self) -> usize {
        self.piece_bytes() - self.head_bytes()
    }

    fn offset(self) -> u64 {
        self.0 & ((1 << OFFSET_BITS) - 1)
    }

    fn piece_bytes(self) -> usize {
        (self.0 >> LENGTH_SHIFT) as usize & ((1 << LENGTH_BITS) - 1)
    }

    fn head_bytes(self) -> usize {
        (self.0 >> HEAD_SHIFT) as usize & ((1 << HEAD_BITS) - 1)
    }
}

impl ColdReader {
    /// For one piece.
    pub(super) fn of_one() -> ColdReader {
        ColdReader { window: PieceWindow::default(), file: None }
    }

    /// For pieces in the order of their file.
    pub(super) fn of_many() -> ColdReader {
        let window = PieceWindow { read_ahead_bytes: READ_AHEAD_BYTES, ..PieceWindow::default() };
        ColdReader { window, file: None }
    }

    /// The content of the piece at a place.
    pub(super) fn content(&mut self, file: &Arc<ColdFile>, place: PiecePlace) -> &[u8] {
        if self.file.as_ref().is_none_or(|of| !Arc::ptr_eq(of, file)) {
            self.file = Some(Arc::clone(file));
            self.window.bytes.clear();
        }
        let piece = file.source.read(place.offset(), place.piece_bytes(), &mut self.window);
        let (head, content) = piece.split_at(place.head_bytes());
        let number = head.get(1..).and_then(|mut head| varint::take(&mut head).filter(|_| head.is_empty()));
        assert_eq!(
            number.map(number_bits),
            Some(place.0 >> NUMBER_SHIFT & NUMBER_MASK),
            "at {} of {:?} is another piece than was written there",
            place.offset(),
            file.source
        );
        content
    }
}

/// Of the number of a page, whose lowest 6 bits are zero, or of a directory.
fn number_bits(number: u64) -> u64 {
    (number ^ number >> 6) & NUMBER_MASK
}
