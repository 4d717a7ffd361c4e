//! Hadoop's data transfers as bytes: what is asked of a block, and the packets that its bytes travel in. No sockets here.
//!
//! A request is a version of two bytes, a number of the operation, and a message with its length in front. A packet is a
//! length of four bytes (of itself, the checksums and the data), a length of two, a header, checksums, data.
//!
//! Guarantees: whatever bytes come, the answer is a value or an [`PacketError`]; no length is taken on trust.

use crc_fast::CrcAlgorithm;
use frieze_base::{crc32c, crc32c_combine};
use prost::Message;

use crate::proto::{PacketHeader, checksum};

/// Version of the protocol since Hadoop 0.23.
pub(crate) const VERSION: u16 = 28;
/// Number of the operation that writes a block.
pub(crate) const WRITE: u8 = 80;
/// Number of our own: one door asks another who writes a file ([`crate::peer_gateways`]). Hadoop's end at 89; 127 is its mark of none.
pub(crate) const QUESTION: u8 = 120;
/// Longest message that is read in front of packets: a token, whose groups are most of it, and some places. It is read before it is known
/// whether the token is any.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Longest packet: what Hadoop's own clients take.
pub(crate) const PACKET_BYTES_MAX: usize = 16 << 20;
/// Longest header of a packet. It has 25 to 27 bytes.
const HEADER_BYTES_MAX: usize = 256;
/// Bytes whose checksums are compared together.
const TOGETHER_BYTES: usize = 16 << 10;
/// Bytes that a checksum is over.
pub(crate) const CHUNK_BYTES: u32 = 512;
/// Bytes of a checksum.
pub(crate) const SUM_BYTES: usize = 4;

/// What is asked of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// To write it.
    Write,
    /// To read it.
    Read,
    /// Its checksum.
    Checksum,
    /// To send it to another place.
    Copy,
    /// Who writes it: of another door.
    Question,
    /// Anything else that Hadoop knows, by its number.
    Other(u8),
}

/// Bytes that are no request or no packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PacketError {
    /// Another version of the protocol, or something else.
    #[error("version {found} of the data transfer protocol: {VERSION} is served")]
    Version {
        /// What it said.
        found: u16,
    },
    /// A length that is too much, or less than what it has to hold.
    #[error("malformed packet: {part} of {len} bytes")]
    Length {
        /// Of what.
        part: &'static str,
        /// What it said.
        len: i64,
    },
    /// Data that do not follow those before them, or reach over the end of the block.
    #[error("{len} bytes at {at} of a block of at most {len_max}, of which {received} are here")]
    Place {
        /// Where they are to go.
        at: u64,
        /// How many.
        len: usize,
        /// Bytes before them that are here.
        received: u64,
        /// Most bytes that the block may have.
        len_max: u64,
    },
    /// No message.
    #[error("malformed {part}: {why}")]
    Malformed {
        /// What.
        part: &'static str,
        /// Why.
        why: String,
    },
    /// The bytes are not what their checksums say.
    #[error("the data of packet {seqno} fail their checksums")]
    Checksum {
        /// Which.
        seqno: i64,
    },
}

/// Reads version and operation.
///
/// # Errors
/// `Version`.
pub(crate) fn operation(bytes: [u8; 3]) -> Result<Operation, PacketError> {
    let found = u16::from_be_bytes([bytes[0], bytes[1]]);
    if found != VERSION {
        return Err(PacketError::Version { found });
    }
    Ok(match bytes[2] {
        WRITE => Operation::Write,
        81 => Operation::Read,
        86 => Operation::Copy,
        85 => Operation::Checksum,
        QUESTION => Operation::Question,
        other => Operation::Other(other),
    })
}

/// Reads a message whose length has been read.
///
/// # Errors
/// `Malformed`.
pub(crate) fn message<M: Message + Default>(bytes: &[u8], part: &'static str) -> Result<M, PacketError> {
    M::decode(bytes).map_err(|error| PacketError::Malformed { part, why: error.to_string() })
}

/// How checksums are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChecksumKind {
    /// There are none.
    None,
    /// CRC32C over so many bytes each: what this door sends.
    Crc32c(u32),
    /// CRC32, the older one, over so many bytes each: what a writer may send.
    Crc32(u32),
}

impl ChecksumKind {
    /// As a client names it; `None` if it is another kind than these.
    pub(crate) fn read(kind: i32, chunk_bytes: u32) -> Option<ChecksumKind> {
        let is_usable = (1..=CHUNK_BYTES_MAX).contains(&chunk_bytes);
        match kind {
            checksum::NULL => Some(ChecksumKind::None),
            checksum::CRC32C if is_usable => Some(ChecksumKind::Crc32c(chunk_bytes)),
            checksum::CRC32 if is_usable => Some(ChecksumKind::Crc32(chunk_bytes)),
            _ => None,
        }
    }

    /// Bytes of the checksums of so much data.
    pub(crate) fn len(self, data: usize) -> usize {
        self.each().map_or(0, |(chunk_bytes, _)| data.div_ceil(chunk_bytes) * SUM_BYTES)
    }

    /// Appends the checksums of `data`.
    pub(crate) fn put(self, data: &[u8], out: &mut Vec<u8>) {
        if let Some((chunk_bytes, sum)) = self.each() {
            out.reserve(self.len(data.len()));
            data.chunks(chunk_bytes).for_each(|chunk| out.extend_from_slice(&sum(chunk).to_be_bytes()));
        }
    }

    /// Makes sure that these are the checksums of `data`: the CRC32C of all of it, if that was made, or `None` if they are not.
    fn verify(self, sums: &[u8], data: &[u8]) -> Option<VerifiedData> {
        if let ChecksumKind::Crc32c(chunk_bytes) = self {
            return verify_together(sums, data, chunk_bytes as usize);
        }
        let hold = self.each().is_none_or(|(chunk_bytes, sum)| {
            data.chunks(chunk_bytes).zip(sums.chunks(SUM_BYTES)).all(|(chunk, found)| sum(chunk).to_be_bytes() == found)
        });
        hold.then_some(VerifiedData { crc: None })
    }

    /// Over how many bytes each is, and how it is made.
    fn each(self) -> Option<(usize, CrcFunction)> {
        match self {
            ChecksumKind::None => None,
            ChecksumKind::Crc32c(chunk_bytes) => Some((chunk_bytes as usize, crc32c)),
            ChecksumKind::Crc32(chunk_bytes) => Some((chunk_bytes as usize, crc32)),
        }
    }
}

/// The data are what their checksums say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct VerifiedData {
    /// The CRC32C of all of them, if one was made.
    crc: Option<u32>,
}

/// Compares CRC32C. Those of neighbours are put together and compared with one over all their bytes: SIMD is faster the further it goes, by a
/// third in all. It misses what a checksum misses, one in 2^32.
fn verify_together(sums: &[u8], data: &[u8], chunk_bytes: usize) -> Option<VerifiedData> {
    let chunks = (TOGETHER_BYTES / chunk_bytes).max(1);
    let is_one = data.len() <= chunks * chunk_bytes;
    let mut all = 0;
    let hold = data.chunks(chunks * chunk_bytes).zip(sums.chunks(chunks * SUM_BYTES)).all(|(data, sums)| {
        let mut left = data.len();
        let together = sums.chunks_exact(SUM_BYTES).fold(0, |before, sum| {
            let len = left.min(chunk_bytes);
            left -= len;
            crc32c_combine(before, u32::from_be_bytes([sum[0], sum[1], sum[2], sum[3]]), len as u64)
        });
        all = crc32c(data);
        all == together
    });
    hold.then_some(VerifiedData { crc: is_one.then_some(all) })
}

/// Makes a checksum.
type CrcFunction = fn(&[u8]) -> u32;

/// The CRC32 of Ethernet and gzip. Nothing is kept under it: it is verified when it comes.
fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

/// The two lengths that a packet begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lengths {
    /// Of the header.
    pub(crate) header: usize,
    /// Of checksums and data.
    pub(crate) body: usize,
}

/// Bytes of the lengths.
pub(crate) const LENGTHS_BYTES: usize = 6;

impl Lengths {
    /// Reads them.
    ///
    /// # Errors
    /// `Length`.
    pub(crate) fn read(bytes: [u8; LENGTHS_BYTES]) -> Result<Lengths, PacketError> {
        let [a, b, c, d, e, f] = bytes;
        let whole = i32::from_be_bytes([a, b, c, d]);
        let header = usize::from(u16::from_be_bytes([e, f]));
        let body = usize::try_from(whole).ok().and_then(|whole| whole.checked_sub(4));
        match body {
            Some(body) if body <= PACKET_BYTES_MAX && header <= HEADER_BYTES_MAX => Ok(Lengths { header, body }),
            Some(body) if body <= PACKET_BYTES_MAX => Err(PacketError::Length { part: "header", len: header as i64 }),
            _ => Err(PacketError::Length { part: "packet", len: whole.into() }),
        }
    }
}

/// A packet that was read: the rest of its bytes are data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DataPacket<'b> {
    /// What it says of itself.
    pub(crate) header: PacketHeader,
    /// Their checksums.
    pub(crate) sums: &'b [u8],
    /// Its bytes.
    pub(crate) data: &'b [u8],
    /// Their CRC32C, if it was made.
    pub(crate) crc: Option<u32>,
}

/// Reads header and body of a packet, and verifies its checksums.
///
/// # Errors
/// `Malformed`, `Length`, `Checksum`.
pub(crate) fn packet<'b>(header: &[u8], body: &'b [u8], sums: ChecksumKind) -> Result<DataPacket<'b>, PacketError> {
    let header = match usual_header(header) {
        Some(header) => header,
        None => message(header, "header of a packet")?,
    };
    let wrong = PacketError::Length { part: "data", len: header.data_len.into() };
    let data_len = usize::try_from(header.data_len).map_err(|_| wrong.clone())?;
    if header.offset_in_block < 0 || data_len > body.len() || sums.len(data_len) + data_len != body.len() {
        return Err(wrong);
    }
    let (found, data) = body.split_at(body.len() - data_len);
    let Some(VerifiedData { crc }) = sums.verify(found, data) else {
        return Err(PacketError::Checksum { seqno: header.seqno });
    };
    Ok(DataPacket { header, sums: found, data, crc })
}

/// The header as Hadoop's own clients write it, all fields in their order: each packet has one. `None`: it is to be read as any message.
fn usual_header(bytes: &[u8]) -> Option<PacketHeader> {
    let bytes: &[u8; 27] = bytes.try_into().ok()?;
    let [9, offset @ .., 17, _, _, _, _, _, _, _, _, 24, last, 37, _, _, _, _, 40, sync] = bytes else { return None };
    let (offset, rest): (&[u8; 8], &[u8]) = (offset, &bytes[10..]);
    let seqno: &[u8; 8] = rest.first_chunk()?;
    let data_len: &[u8; 4] = rest[11..].first_chunk()?;
    if *last > 1 || *sync > 1 {
        return None;
    }
    Some(PacketHeader {
        offset_in_block: i64::from_le_bytes(*offset),
        seqno: i64::from_le_bytes(*seqno),
        last_packet_in_block: *last == 1,
        data_len: i32::from_le_bytes(*data_len),
        sync_block: Some(*sync == 1),
    })
}

/// Appends what a packet of `data` begins with: all but the data.
pub(crate) fn put_head(header: &PacketHeader, data: &[u8], sums: ChecksumKind, out: &mut Vec<u8>) {
    put_lengths(header, sums.len(data.len()) + data.len(), out);
    sums.put(data, out);
}

/// The same of data that is not here, with checksums that are.
pub(crate) fn put_head_with(header: &PacketHeader, sums: &[u8], out: &mut Vec<u8>) {
    put_lengths(header, sums.len() + header.data_len as usize, out);
    out.extend_from_slice(sums);
}

fn put_lengths(header: &PacketHeader, body: usize, out: &mut Vec<u8>) {
    out.extend((4 + body as u32).to_be_bytes());
    out.extend((header.encoded_len() as u16).to_be_bytes());
    header.encode(out).expect("a vector grows");
}

/// Appends a packet.
#[cfg(test)]
pub(crate) fn put_packet(header: &PacketHeader, data: &[u8], sums: ChecksumKind, out: &mut Vec<u8>) {
    put_head(header, data, sums, out);
    out.extend(data);
}

/// Checksums over more than this nobody makes.
const CHUNK_BYTES_MAX: u32 = 1 << 20;

#[cfg(test)]
mod tests;
