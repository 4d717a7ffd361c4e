//! Bytes of a block on their way to a reader, in packets, each with the checksums of its bytes.
//!
//! What a file of the system holds, and whose checksums are kept since it was written ([`crate::kept`]), does not come into the process: the system hands
//! it from the page cache to the socket. The reader compares it with what the writer sent, end to end.
//!
//! Guarantees: bytes that were not verified here go out only beside checksums that are older than they are; all else is verified first. A packet
//! begins where a checksum's span begins.
//! Leaves to others: which bytes ([`crate::data_service`]), where they lie (the client library).

use std::io::{self, IoSlice, Write};
use std::net::TcpStream;

use frieze_base::{ByteRange, InodeId};
use frieze_client::{File, Lies, Piece};
use rustix::net::SendFlags;

use crate::data_service::Ended;
use crate::kept::{Kept, Record};
use crate::proto::PacketHeader;
use crate::transfer::{self, CHUNK_BYTES, Sums};

/// Data of a packet that is sent.
const PACKET_DATA_BYTES: usize = 256 << 10;
/// Heads of the packets of what is read at once, with their checksums.
const OUT_BYTES: usize = 16 << 10;
/// Requests in flight of what is read.
const DEPTH: usize = 4;
const SPAN: usize = CHUNK_BYTES as usize;

/// A reader, and how far he is.
pub(crate) struct Sending<'a> {
    stream: &'a TcpStream,
    file: &'a File,
    inode: InodeId,
    sums: Sums,
    kept: &'a Kept,
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

impl<'a> Sending<'a> {
    /// Bytes `range` of the block that begins at `start` of a file.
    pub(crate) fn new(
        stream: &'a TcpStream,
        (file, inode): (&'a File, InodeId),
        (sums, kept): (Sums, &'a Kept),
        start: u64,
        range: ByteRange,
    ) -> Sending<'a> {
        let out = Vec::with_capacity(OUT_BYTES);
        let (at, upto) = (range.start(), range.end());
        Sending { stream, file, inode, sums, kept, start, at, upto, number: 0, out, begun: Vec::new() }
    }

    /// Sends all of it. `verifies`: nothing goes out that was not verified here.
    ///
    /// # Errors
    /// `Short` if the file ends before; the connection's and the server's.
    pub(crate) fn send(mut self, verifies: bool) -> Result<(), Ended> {
        let range = ByteRange::new(self.start + self.at, self.start + self.upto);
        if verifies || self.sums == Sums::None {
            self.file.read_stream(range, DEPTH, |bytes| self.put(bytes))?;
        } else {
            self.file.hand_on(range, |piece| match piece {
                Piece::Read(bytes) => self.put(bytes),
                Piece::Lies(lies) => self.put_lying(lies),
            })?;
        }
        if self.at != self.upto {
            return Err(Ended::Short);
        }
        self.out.clear();
        transfer::put_head(&packet_header(self.at, self.number, 0, true), &[], self.sums, &mut self.out);
        Ok(self.stream.write_all(&self.out)?)
    }

    /// Sends bytes that were verified.
    fn put(&mut self, bytes: &[u8]) -> Result<(), Ended> {
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

    /// Hands on bytes that nobody has looked at, if their checksums are kept, and else reads them.
    fn put_lying(&mut self, lies: &Lies) -> Result<(), Ended> {
        let at = self.start + self.at;
        // One that begins before the file does is of another file, from which this one has it.
        let begins = at.checked_sub(lies.skip.into());
        let record = begins.map(|start| Record { inode: self.inode, stamp: lies.stamp, start });
        let is_aligned = self.begun.is_empty()
            && self.at.is_multiple_of(SPAN as u64)
            && (lies.len.is_multiple_of(SPAN) || self.is_end(lies.len));
        let Some(record) = record.filter(|_| is_aligned) else { return self.read(lies.len, None) };
        let mut sums = Vec::new();
        if !self.kept.add_to(&mut sums, &record, lies.skip.into(), lies.len) {
            return self.read(lies.len, (lies.skip == 0).then_some(record));
        }
        let spans = PACKET_DATA_BYTES / SPAN * transfer::SUM_BYTES;
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

    /// Reads what was not read, and keeps the checksums if it is the beginning of a `record`.
    fn read(&mut self, len: usize, record: Option<Record>) -> Result<(), Ended> {
        let range = ByteRange::new(self.start + self.at, self.start + self.at + len as u64);
        let mut sums = Vec::new();
        self.file.read_stream(range, DEPTH, |bytes| {
            if record.is_some() {
                self.sums.put(bytes, &mut sums);
            }
            self.put(bytes)
        })?;
        if let Some(record) = record {
            self.kept.put(record, &sums);
        }
        Ok(())
    }

    /// Sends bytes from a span's beginning on.
    fn send_packets(&mut self, bytes: &[u8]) -> Result<(), Ended> {
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
