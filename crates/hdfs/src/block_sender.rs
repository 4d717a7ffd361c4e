//! Bytes of a block on their way to a reader, in packets with checksums.
//!
//! Bytes that a system file holds, and whose checksums are cached since they were written ([`crate::checksum_cache`]),
//! do not enter the process: the kernel copies them from the page cache to the socket. The reader compares them with
//! what the writer sent, end to end.
//!
//! Guarantees: unverified bytes are sent only beside checksums that are older than they are; all others are verified
//! first. A packet begins where a checksum's span begins. A slow reader holds no connection to the server, and memory
//! only within a budget: none for bytes that the kernel copies.
//! Leaves to others: which bytes to send ([`crate::block_reader`]), where they lie (the client library).

use std::io::{self, IoSlice, Write};
use std::net::TcpStream;

use frieze_base::{ByteRange, InodeId};
use frieze_client::{File, FileRange, PayloadPart};
use rustix::net::SendFlags;

use crate::budget::{BudgetShare, MemoryBudget};
use crate::checksum_cache::{BlockChecksumCache, ChecksumKey};
use crate::proto::PacketHeader;
use crate::transfer::{self, CHUNK_BYTES, ChecksumKind, SUM_BYTES};
use crate::transfer_error::TransferError;

/// Data bytes of a packet.
const PACKET_DATA_BYTES: usize = 256 << 10;
/// Bytes of the headers and checksums of one read.
const OUT_BYTES: usize = 16 << 10;
/// Bytes of one read: half of the second-level cache of a current core.
const READ_BYTES: usize = 256 << 10;
/// The same while everything before was copied by the kernel.
const HANDED_BYTES: usize = 1 << 20;
const SPAN: usize = CHUNK_BYTES as usize;

/// A reader, and the position of its transfer.
pub(crate) struct BlockSender<'a> {
    stream: &'a TcpStream,
    file: &'a File,
    inode: InodeId,
    sums: ChecksumKind,
    cache: &'a BlockChecksumCache,
    share: BudgetShare<'a>,
    /// Offset of the block in the file.
    start: u64,
    /// Bytes of the block that are sent or in `begun`.
    at: u64,
    upto: u64,
    /// Number of the next packet.
    number: i64,
    out: Vec<u8>,
    /// The beginning of an incomplete span.
    begun: Vec<u8>,
}

/// A span that the kernel copies, and the position of its checksums in those of the window.
struct HandedSpan<'l> {
    lies: &'l FileRange,
    sums: std::ops::Range<usize>,
}

impl<'a> BlockSender<'a> {
    /// Sends bytes `range` of the block that begins at `start` of a file. Bytes that are read are within the `budget`.
    pub(crate) fn new(
        stream: &'a TcpStream,
        (file, inode): (&'a File, InodeId),
        (sums, cache): (ChecksumKind, &'a BlockChecksumCache),
        budget: &'a MemoryBudget,
        start: u64,
        range: ByteRange,
    ) -> BlockSender<'a> {
        let (out, share) = (Vec::with_capacity(OUT_BYTES), budget.none());
        let (at, upto) = (range.start(), range.end());
        BlockSender { stream, file, inode, sums, cache, share, start, at, upto, number: 0, out, begun: Vec::new() }
    }

    /// Sends all of it. `verifies`: every byte is verified here first.
    ///
    /// # Errors
    /// `Short` if the file ends early; errors of the connection and of the server.
    pub(crate) fn send(mut self, verifies: bool) -> Result<(), TransferError> {
        let verifies = verifies || self.sums == ChecksumKind::None;
        let (mut payload, mut lots, mut sums, mut room) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut window = READ_BYTES;
        while self.at < self.upto {
            let (at, len) = (self.at, (self.upto - self.at).min(window as u64) as usize);
            // Before it takes a connection to the server: a sender that waits here holds none.
            self.share.add(len);
            window = READ_BYTES;
            if verifies {
                self.put(read(self.file, self.start + at, len, &mut room)?)?;
            } else {
                let found = self.file.read_ranges(self.start + at, len, &mut payload, &mut lots)?;
                if lots.is_empty() {
                    self.put(&payload)?;
                } else if let Some(handed) = self.handed(&lots, &mut sums) {
                    if payload.is_empty() {
                        self.share.release();
                        window = HANDED_BYTES;
                    }
                    self.put_lots(&lots, &payload, &handed, &sums)?;
                } else {
                    let bytes = read(self.file, self.start + at, found, &mut room)?;
                    self.keep(&lots, bytes);
                    self.put(bytes)?;
                }
            }
            self.share.release();
            if self.at == at {
                return Err(TransferError::Short);
            }
        }
        self.out.clear();
        transfer::put_head(&packet_header(self.at, self.number, 0, true), &[], self.sums, &mut self.out);
        Ok(self.stream.write_all(&self.out)?)
    }

    /// Appends the checksums of everything that lies in files to `sums`. `None` if some are not cached, or if they do
    /// not begin and end at spans of the reader.
    fn handed<'l>(&self, lots: &'l [PayloadPart], sums: &mut Vec<u8>) -> Option<Vec<HandedSpan<'l>>> {
        sums.clear();
        let (mut at, mut handed) = (self.at, Vec::new());
        for lot in lots {
            let end = at + lot.len() as u64;
            if let PayloadPart::File(lies) = lot {
                let ends_well = end.is_multiple_of(SPAN as u64) || end == self.upto;
                let record = self.record(lies, at).filter(|_| at.is_multiple_of(SPAN as u64) && ends_well)?;
                let from = sums.len();
                if !self.cache.add_to(sums, &record, lies.skip.into(), lies.len) {
                    return None;
                }
                handed.push(HandedSpan { lies, sums: from..sums.len() });
            }
            at = end;
        }
        Some(handed)
    }

    /// Caches the checksums of what had to be read.
    fn keep(&self, lots: &[PayloadPart], bytes: &[u8]) {
        let (mut at, mut rest) = (self.at, bytes);
        for lot in lots {
            let Some(of_lot) = rest.split_off(..lot.len()) else { return };
            if let PayloadPart::File(lies) = lot
                && let Some(record) = self.record(lies, at).filter(|_| at.is_multiple_of(SPAN as u64))
            {
                let mut sums = Vec::with_capacity(of_lot.len().div_ceil(SPAN) * SUM_BYTES);
                self.sums.put(of_lot, &mut sums);
                self.cache.put_at(record, lies.skip.into(), &sums);
            }
            at += lot.len() as u64;
        }
    }

    /// The record at `at` of the block. `None` if it begins before the file does: then it belongs to another file,
    /// which shares it.
    fn record(&self, lies: &FileRange, at: u64) -> Option<ChecksumKey> {
        let start = (self.start + at).checked_sub(lies.skip.into())?;
        Some(ChecksumKey { inode: self.inode, stamp: lies.stamp, start })
    }

    fn put_lots(
        &mut self,
        lots: &[PayloadPart],
        mut bytes: &[u8],
        handed: &[HandedSpan<'_>],
        sums: &[u8],
    ) -> Result<(), TransferError> {
        let mut handed = handed.iter();
        for lot in lots {
            match lot {
                PayloadPart::Read(len) => self.put(bytes.split_off(..*len).unwrap_or_default())?,
                PayloadPart::File(_) => {
                    let HandedSpan { lies, sums: own } = handed.next().expect("one for each that lies");
                    self.put_lying(lies, &sums[own.clone()])?;
                }
            }
        }
        Ok(())
    }

    /// Sends verified bytes.
    fn put(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        let (filling, bytes) = bytes.split_at(self.missing().min(bytes.len()));
        if !filling.is_empty() {
            self.begun.extend_from_slice(filling);
            if self.missing() > 0 && !self.is_end(filling.len()) {
                self.at += filling.len() as u64;
                return Ok(());
            }
            let begun = std::mem::take(&mut self.begun);
            // They precede the bytes at hand.
            self.at -= (begun.len() - filling.len()) as u64;
            self.send_packets(&begun)?;
        }
        let rest = if self.is_end(bytes.len()) { 0 } else { bytes.len() % SPAN };
        let (whole, rest) = bytes.split_at(bytes.len() - rest);
        self.send_packets(whole)?;
        self.begun.extend_from_slice(rest);
        self.at += rest.len() as u64;
        Ok(())
    }

    /// Has the kernel send unverified bytes, from the beginning of a span.
    fn put_lying(&mut self, lies: &FileRange, sums: &[u8]) -> Result<(), TransferError> {
        debug_assert!(self.begun.is_empty(), "what comes before ends where a span does");
        let spans = PACKET_DATA_BYTES / SPAN * SUM_BYTES;
        let (mut offset, mut left) = (lies.offset, lies.len);
        for sums in sums.chunks(spans) {
            let len = left.min(PACKET_DATA_BYTES);
            self.out.clear();
            transfer::put_head_with(&packet_header(self.at, self.number, len, false), sums, &mut self.out);
            send_more(self.stream, &self.out)?;
            hand_on(self.stream, lies, &mut offset, len)?;
            (self.at, self.number, left) = (self.at + len as u64, self.number + 1, left - len);
        }
        Ok(())
    }

    /// Sends bytes from the beginning of a span.
    fn send_packets(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        self.out.clear();
        let mut begins = Vec::with_capacity(bytes.len().div_ceil(PACKET_DATA_BYTES));
        for data in bytes.chunks(PACKET_DATA_BYTES) {
            begins.push(self.out.len());
            let header = packet_header(self.at, self.number, data.len(), false);
            transfer::put_head(&header, data, self.sums, &mut self.out);
            (self.at, self.number) = (self.at + data.len() as u64, self.number + 1);
        }
        // The data are sent from the buffer that they were read into.
        let ends = begins.iter().skip(1).copied().chain([self.out.len()]);
        let heads = begins.iter().zip(ends).map(|(&begin, end)| &self.out[begin..end]);
        let mut parts: Vec<IoSlice<'_>> = heads
            .zip(bytes.chunks(PACKET_DATA_BYTES))
            .flat_map(|(head, data)| [IoSlice::new(head), IoSlice::new(data)])
            .collect();
        Ok(write_parts(self.stream, &mut parts)?)
    }

    /// Bytes that the incomplete span lacks.
    fn missing(&self) -> usize {
        if self.begun.is_empty() { 0 } else { SPAN - self.begun.len() }
    }

    /// True if `len` more bytes complete the range.
    fn is_end(&self, len: usize) -> bool {
        self.at + len as u64 == self.upto
    }
}

/// Reads up to `len` bytes, verified.
fn read<'r>(file: &File, at: u64, len: usize, room: &'r mut Vec<u8>) -> Result<&'r [u8], frieze_client::Error> {
    if room.len() < len {
        room.resize(len, 0);
    }
    let count = file.read_at(at, &mut room[..len])?;
    Ok(&room[..count])
}

fn packet_header(at: u64, number: i64, len: usize, is_last: bool) -> PacketHeader {
    PacketHeader {
        offset_in_block: at as i64,
        seqno: number,
        last_packet_in_block: is_last,
        data_len: len as i32,
        sync_block: Some(false),
    }
}

/// Writes all parts, one after the other.
fn write_parts(mut stream: &TcpStream, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !parts.is_empty() {
        match stream.write_vectored(parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut parts, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes bytes with the flag that more follow.
fn send_more(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::net::send(stream, bytes, SendFlags::MORE | SendFlags::NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Has the kernel send the next `len` bytes of a file.
fn hand_on(stream: &TcpStream, lies: &FileRange, offset: &mut u64, len: usize) -> io::Result<()> {
    let mut left = len;
    while left > 0 {
        match rustix::fs::sendfile(stream, lies.file.as_fd(), Some(offset), left) {
            // The file was cut: its content is not needed any more.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => left -= count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
