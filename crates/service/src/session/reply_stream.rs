//! Large replies that are sent while they are read.
//!
//! A payload that is read, verified and sent a piece at a time stays in the cache of the core that does it, and the
//! client receives the first bytes while the last are still on disk. The checksum is sent behind the payload, chosen so
//! that the whole payload has a checksum that the header can state before a byte is read
//! ([`CRC32C_BEHIND`](frieze_base::CRC32C_BEHIND)).
//!
//! Whole blocks of a record in a file of the system need not be copied: the system sends them, and their stored
//! checksums combine into the checksum of the payload. This server does not verify them, so the client detects damage.
//! A gateway in this process receives their places, and sends them itself, beside checksums of its own.
//!
//! Guarantees: a client never uses damaged bytes. Either the server verifies a block before it is sent, and if one
//! fails the payload ends early and the connection is closed; or the client verifies it against the checksum that was
//! stored with it. In both cases the client asks again, and that reply is read and verified as a whole.

use frieze_base::{Fault, crc32c_combine};
use frieze_multilog::{Piece, PieceSource, StoredSpan};
use frieze_net::{CRC_BYTES, FramePart};
use frieze_storage::{Device, PinnedPages, SENDFILE_BYTES_MIN, UnverifiedSpan};
use frieze_wire::RemoteMemory;
use frieze_wire::frame::PAYLOAD_BYTES_MAX;

/// Bytes of one step: with its checksum behind it, it stays in the second-level cache of a core of today. Smaller ones
/// are more calls, and more moments in which the other side is woken (ADR 0016).
const STEP_BYTES: usize = 512 << 10;
/// Least bytes of a payload that is sent in steps.
const LEAST_BYTES: usize = 256 << 10;

/// A payload that is planned and not read yet.
pub(crate) struct Unread {
    /// Offset in the file of its first byte.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) len: usize,
    /// Prefetch of its pieces.
    pub(crate) lease: PinnedPages,
    /// Memory of the client that it may be written into.
    pub(crate) dest_slot: Option<RemoteMemory>,
}

/// Receives bytes, and with the last ones the CRC32C of all.
type ByteSink<'a> = dyn FnMut(&[u8], Option<u32>) -> Result<(), Fault> + 'a;
/// Receives parts, and with the last one the CRC32C of all.
type Sink<'a> = dyn FnMut(FramePart<'_>, Option<u32>) -> Result<(), Fault> + 'a;

/// Receives portions, and with the last one the CRC32C of all.
type PortionSink<'a> = dyn FnMut(Portion<'_>, Option<u32>) -> Result<(), Fault> + 'a;

/// Part of a payload.
pub enum Portion<'a> {
    /// Bytes that were read and verified.
    Read(&'a [u8]),
    /// Bytes of a record in a file, not verified.
    UnverifiedSpan {
        /// The file, and the place in it.
        held: &'a UnverifiedSpan,
        /// The checksums that were stored with it.
        stored: &'a StoredSpan,
        /// Bytes.
        len: usize,
    },
}

/// Produces a payload piece by piece.
pub struct Steps<'a> {
    /// Bytes, without the checksum.
    pub len: usize,
    /// Memory of the client that they may be written into instead of being sent.
    pub dest_slot: Option<RemoteMemory>,
    start: u64,
    device: &'a Device,
    pieces: &'a [Piece],
    buffer: &'a mut Vec<u8>,
    block: &'a mut Vec<u8>,
    lease: PinnedPages,
    failed: bool,
}

impl<'a> Steps<'a> {
    /// Steps of `unread`, which consists of `pieces`; each is read into `buffer`, with `block` as scratch space.
    pub(crate) fn of(
        device: &'a Device,
        Unread { start, len, lease, dest_slot }: Unread,
        pieces: &'a [Piece],
        [buffer, block]: [&'a mut Vec<u8>; 2],
    ) -> Steps<'a> {
        Steps { len, dest_slot, start, device, pieces, buffer, block, lease, failed: false }
    }

    /// Uses this buffer from now on, and returns the one before in its place.
    pub fn exchange_buffer(&mut self, buffer: &mut Vec<u8>) {
        std::mem::swap(self.buffer, buffer);
    }

    /// Passes every byte to `sink`, in order, and with the last ones the CRC32C of all.
    ///
    /// # Errors
    /// `Corrupt` if stored bytes fail their checksum, before they are passed on; the disk's; those of `sink`.
    pub(crate) fn bring(&mut self, sink: &mut ByteSink<'_>) -> Result<(), Fault> {
        self.bring_portions(false, &mut |portion, crc| match portion {
            Portion::Read(bytes) => sink(bytes, crc),
            Portion::UnverifiedSpan { .. } => unreachable!("nothing is handed on"),
        })
    }

    /// As [`Steps::bring`], but whole blocks in files are named instead of read.
    ///
    /// # Errors
    /// As [`Steps::bring`], for the bytes that are read.
    pub fn hand_on(&mut self, sink: &mut Sink<'_>) -> Result<(), Fault> {
        self.bring_portions(true, &mut |portion, crc| match portion {
            Portion::Read(bytes) => sink(FramePart::Bytes(bytes), crc),
            Portion::UnverifiedSpan { held, len, .. } => {
                let file = held.file.handle().expect("it has one");
                sink(FramePart::File { file, offset: held.offset, len }, crc)
            }
        })
    }

    /// As [`Steps::hand_on`], for a gateway that sends the blocks itself.
    ///
    /// # Errors
    /// As [`Steps::bring`], for the bytes that are read.
    pub fn portions(&mut self, sink: &mut PortionSink<'_>) -> Result<(), Fault> {
        self.bring_portions(true, sink)
    }

    /// Drops the record that the payload ends inside of, unless that is most of the payload: a client that continues
    /// there then asks for the whole record. True if bytes were dropped.
    pub fn end_with_a_record(&mut self) -> bool {
        let end = self.start + self.len as u64;
        let cut = self.pieces.iter().find(|piece| piece.at < end && piece.end() >= end);
        let Some(Piece { at, source: PieceSource::Data(stored), .. }) = cut else { return false };
        let is_whole = u64::from(stored.skip) + (end - at) == u64::from(stored.record_len);
        let left = at.saturating_sub(self.start) as usize;
        let leaves_out = !is_whole && left > self.len / 2;
        if leaves_out {
            self.len = left;
        }
        leaves_out
    }

    fn bring_portions(&mut self, may_hand_on: bool, sink: &mut PortionSink<'_>) -> Result<(), Fault> {
        let (mut crc, mut at) = (0, self.start);
        let end = self.start + self.len as u64;
        let add = |before: u32, at: u64, crc: u32, len: u64| {
            if at == self.start { crc } else { crc32c_combine(before, crc, len) }
        };
        let mut window = Vec::new();
        while at < end {
            if let Some((stored, len)) = stored_as_wanted(self.pieces, at, end).filter(|_| may_hand_on)
                && let Some(held) = self.device.unverified_span(&stored, len)?
            {
                crc = add(crc, at, held.crc, len);
                at += len;
                let portion = Portion::UnverifiedSpan { held: &held, stored: &stored, len: len as usize };
                sink(portion, (at == end).then_some(crc))?;
                continue;
            }
            let upto = step_end(self.pieces, at, end);
            cut(self.pieces, at, upto, &mut window);
            let len = (upto - at) as usize;
            if self.buffer.len() < len {
                self.buffer.resize(len, 0);
            }
            let bytes = &mut self.buffer[..len];
            let step = self.device.read(&window, at, bytes, self.block);
            self.failed |= step.is_err();
            let step = step?;
            crc = add(crc, at, step, len as u64);
            sink(Portion::Read(bytes), (upto == end).then_some(crc))?;
            at = upto;
        }
        Ok(())
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        self.device.unpin(std::mem::take(&mut self.lease), self.failed);
    }
}

/// True if a payload of `len` bytes that consists of `pieces` is worth several steps. Payloads with images are not: an
/// image may turn out to be unusable, so it is read before the header is sent.
pub(crate) fn can_step(pieces: &[Piece], len: usize) -> bool {
    let fits = (LEAST_BYTES..=PAYLOAD_BYTES_MAX as usize - CRC_BYTES).contains(&len);
    fits && !pieces.iter().any(|piece| matches!(piece.source, PieceSource::Image(_) | PieceSource::External(_)))
}

/// The whole blocks of a record at the beginning of `at..end`, if they are many, and how many bytes they are.
fn stored_as_wanted(pieces: &[Piece], at: u64, end: u64) -> Option<(StoredSpan, u64)> {
    let piece = pieces.get(pieces.partition_point(|piece| piece.end() <= at)).filter(|piece| piece.at <= at)?;
    let PieceSource::Data(stored) = piece.part(at, piece.end().min(end)).source else { return None };
    let block = u64::from(stored.block_bytes);
    let (skip, wanted) = (u64::from(stored.skip), piece.end().min(end) - at);
    let is_rest = skip + wanted == u64::from(stored.record_len);
    let len = if is_rest { wanted } else { wanted / block * block };
    (skip % block == 0 && len >= SENDFILE_BYTES_MIN).then_some((stored, len))
}

/// Where a step that begins at `at` ends: at the end of a block where it cuts a record, so that no block is read twice.
fn step_end(pieces: &[Piece], at: u64, end: u64) -> u64 {
    let wanted = (at + STEP_BYTES as u64).min(end);
    let cuts = pieces.get(pieces.partition_point(|piece| piece.end() <= wanted)).filter(|piece| piece.at < wanted);
    let Some(Piece { at: begins, source: PieceSource::Data(stored), .. }) = cuts else { return wanted };
    let in_record = u64::from(stored.skip) + (wanted - begins);
    let back = in_record % u64::from(stored.block_bytes);
    if wanted - back > at { wanted - back } else { wanted }
}

/// The parts of `pieces` within `at..upto`.
fn cut(pieces: &[Piece], at: u64, upto: u64, into: &mut Vec<Piece>) {
    let first = pieces.partition_point(|piece| piece.end() <= at);
    into.clear();
    into.extend(pieces[first..].iter().take_while(|piece| piece.at < upto).map(|piece| piece.part(at, upto)));
}
