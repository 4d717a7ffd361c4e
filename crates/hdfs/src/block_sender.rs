//! Bytes of a block on their way to a reader, in packets, each with the checksums of its bytes.
//!
//! What a file of the system holds, and whose checksums are kept since it was written ([`crate::checksum_cache`]), does not come into the process: the system hands
//! it from the page cache to the socket. The reader compares it with what the writer sent, end to end.
//!
//! Guarantees: bytes that were not verified here go out only beside checksums that are older than they are; all else is verified first. A packet
//! begins where a checksum's span begins. Who takes his bytes slowly holds no connection to the server meanwhile, and memory only within a budget:
//! none for what is handed on.
//! Leaves to others: which bytes ([`crate::data_service`]), where they lie (the client library).

use std::io::{self, IoSlice, Write};
use std::net::TcpStream;

use frieze_base::{ByteRange, InodeId};
use frieze_client::{File, Lies, Lot};
use rustix::net::SendFlags;

use crate::budget::{BudgetShare, MemoryBudget};
use crate::checksum_cache::{ChecksumCache, ChecksumKey};
use crate::proto::PacketHeader;
use crate::transfer::{self, CHUNK_BYTES, ChecksumKind, SUM_BYTES};
use crate::transfer_error::TransferError;

/// Data of a packet that is sent.
const PACKET_DATA_BYTES: usize = 256 << 10;
/// Heads of the packets of what is read at once, with their checksums.
const OUT_BYTES: usize = 16 << 10;
/// Bytes that are asked for at once where they are read: half of the second-level cache of a core of today.
const READ_BYTES: usize = 256 << 10;
/// And where all of those before were handed on.
const HANDED_BYTES: usize = 1 << 20;
const SPAN: usize = CHUNK_BYTES as usize;

/// A reader, and how far he is.
pub(crate) struct BlockSender<'a> {
    stream: &'a TcpStream,
    file: &'a File,
    inode: InodeId,
    sums: ChecksumKind,
    kept: &'a ChecksumCache,
    lent: BudgetShare<'a>,
    /// Where in the file the block begins.
    start: u64,
    /// How much of the block has been taken.
    at: u64,
    upto: u64,
    /// Of the packet to come.
    number: i64,
    out: Vec<u8>,
    /// The beginning of a span whose end has not come.
    begun: Vec<u8>,
}

/// What is handed on, and where its checksums are among those of a window.
struct HandedSpan<'l> {
    lies: &'l Lies,
    sums: std::ops::Range<usize>,
}

impl<'a> BlockSender<'a> {
    /// Bytes `range` of the block that begins at `start` of a file. What is read meanwhile is within the `budget`.
    pub(crate) fn new(
        stream: &'a TcpStream,
        (file, inode): (&'a File, InodeId),
        (sums, kept): (ChecksumKind, &'a ChecksumCache),
        budget: &'a MemoryBudget,
        start: u64,
        range: ByteRange,
    ) -> BlockSender<'a> {
        let (out, lent) = (Vec::with_capacity(OUT_BYTES), budget.none());
        let (at, upto) = (range.start(), range.end());
        BlockSender { stream, file, inode, sums, kept, lent, start, at, upto, number: 0, out, begun: Vec::new() }
    }

    /// Sends all of it. `verifies`: nothing goes out that was not verified here.
    ///
    /// # Errors
    /// `Short` if the file ends before; the connection's and the server's.
    pub(crate) fn send(mut self, verifies: bool) -> Result<(), TransferError> {
        let verifies = verifies || self.sums == ChecksumKind::None;
        let (mut payload, mut lots, mut sums, mut room) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut window = READ_BYTES;
        while self.at < self.upto {
            let (at, len) = (self.at, (self.upto - self.at).min(window as u64) as usize);
            // Before a connection to the server is taken: who waits here holds none.
            self.lent.add(len);
            window = READ_BYTES;
            if verifies {
                self.put(read(self.file, self.start + at, len, &mut room)?)?;
            } else {
                let found = self.file.hand_on(self.start + at, len, &mut payload, &mut lots)?;
                if lots.is_empty() {
                    self.put(&payload)?;
                } else if let Some(handed) = self.handed(&lots, &mut sums) {
                    if payload.is_empty() {
                        self.lent.give_back();
                        window = HANDED_BYTES;
                    }
                    self.put_lots(&lots, &payload, &handed, &sums)?;
                } else {
                    let bytes = read(self.file, self.start + at, found, &mut room)?;
                    self.keep(&lots, bytes);
                    self.put(bytes)?;
                }
            }
            self.lent.give_back();
            if self.at == at {
                return Err(TransferError::Short);
            }
        }
        self.out.clear();
        transfer::put_head(&packet_header(self.at, self.number, 0, true), &[], self.sums, &mut self.out);
        Ok(self.stream.write_all(&self.out)?)
    }

    /// The checksums of all that lies somewhere, which are added to `sums`; `None` if those of some are not here, or do not begin and end where
    /// a reader's do.
    fn handed<'l>(&self, lots: &'l [Lot], sums: &mut Vec<u8>) -> Option<Vec<HandedSpan<'l>>> {
        sums.clear();
        let (mut at, mut handed) = (self.at, Vec::new());
        for lot in lots {
            let end = at + lot.len() as u64;
            if let Lot::Lies(lies) = lot {
                let ends_well = end.is_multiple_of(SPAN as u64) || end == self.upto;
                let record = self.record(lies, at).filter(|_| at.is_multiple_of(SPAN as u64) && ends_well)?;
                let from = sums.len();
                if !self.kept.add_to(sums, &record, lies.skip.into(), lies.len) {
                    return None;
                }
                handed.push(HandedSpan { lies, sums: from..sums.len() });
            }
            at = end;
        }
        Some(handed)
    }

    /// Keeps the checksums of what was read after all.
    fn keep(&self, lots: &[Lot], bytes: &[u8]) {
        let (mut at, mut rest) = (self.at, bytes);
        for lot in lots {
            let Some(of_lot) = rest.split_off(..lot.len()) else { return };
            if let Lot::Lies(lies) = lot
                && let Some(record) = self.record(lies, at).filter(|_| at.is_multiple_of(SPAN as u64))
            {
                let mut sums = Vec::with_capacity(of_lot.len().div_ceil(SPAN) * SUM_BYTES);
                self.sums.put(of_lot, &mut sums);
                self.kept.put_at(record, lies.skip.into(), &sums);
            }
            at += lot.len() as u64;
        }
    }

    /// The record that lies at `at` of the block. `None` if it began before the file does: it is of another file, from which this one has it.
    fn record(&self, lies: &Lies, at: u64) -> Option<ChecksumKey> {
        let start = (self.start + at).checked_sub(lies.skip.into())?;
        Some(ChecksumKey { inode: self.inode, stamp: lies.stamp, start })
    }

    fn put_lots(
        &mut self,
        lots: &[Lot],
        mut bytes: &[u8],
        handed: &[HandedSpan<'_>],
        sums: &[u8],
    ) -> Result<(), TransferError> {
        let mut handed = handed.iter();
        for lot in lots {
            match lot {
                Lot::Read(len) => self.put(bytes.split_off(..*len).unwrap_or_default())?,
                Lot::Lies(_) => {
                    let HandedSpan { lies, sums: own } = handed.next().expect("one for each that lies");
                    self.put_lying(lies, &sums[own.clone()])?;
                }
            }
        }
        Ok(())
    }

    /// Sends bytes that were verified.
    fn put(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        let (filling, bytes) = bytes.split_at(self.missing().min(bytes.len()));
        if !filling.is_empty() {
            self.begun.extend_from_slice(filling);
            if self.missing() > 0 && !self.is_end(filling.len()) {
                self.at += filling.len() as u64;
                return Ok(());
            }
            let begun = std::mem::take(&mut self.begun);
            // They begin before what came now.
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

    /// Hands on bytes that nobody has looked at, from a span's beginning on.
    fn put_lying(&mut self, lies: &Lies, sums: &[u8]) -> Result<(), TransferError> {
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

    /// Sends bytes from a span's beginning on.
    fn send_packets(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        self.out.clear();
        let mut begins = Vec::with_capacity(bytes.len().div_ceil(PACKET_DATA_BYTES));
        for data in bytes.chunks(PACKET_DATA_BYTES) {
            begins.push(self.out.len());
            let header = packet_header(self.at, self.number, data.len(), false);
            transfer::put_head(&header, data, self.sums, &mut self.out);
            (self.at, self.number) = (self.at + data.len() as u64, self.number + 1);
        }
        // The data go out from where they were read.
        let ends = begins.iter().skip(1).copied().chain([self.out.len()]);
        let heads = begins.iter().zip(ends).map(|(&begin, end)| &self.out[begin..end]);
        let mut parts: Vec<IoSlice<'_>> = heads
            .zip(bytes.chunks(PACKET_DATA_BYTES))
            .flat_map(|(head, data)| [IoSlice::new(head), IoSlice::new(data)])
            .collect();
        Ok(write_parts(self.stream, &mut parts)?)
    }

    /// Bytes that the span which has begun is short of.
    fn missing(&self) -> usize {
        if self.begun.is_empty() { 0 } else { SPAN - self.begun.len() }
    }

    /// True if `len` bytes more are all.
    fn is_end(&self, len: usize) -> bool {
        self.at + len as u64 == self.upto
    }
}

/// Reads what is there of `len` bytes, verified.
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

/// Writes bytes that others follow at once.
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

/// Has the system send the next `len` bytes of a file.
fn hand_on(stream: &TcpStream, lies: &Lies, offset: &mut u64, len: usize) -> io::Result<()> {
    let mut left = len;
    while left > 0 {
        match rustix::fs::sendfile(stream, lies.file.as_fd(), Some(offset), left) {
            // The file was cut, because what it held is not wanted any more.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => left -= count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
