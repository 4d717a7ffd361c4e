//! Hadoop's data transfers as bytes: requests, and packets of blocks. No sockets here.
//!
//! A request is a version of two bytes, the number of the operation, and a message that its length precedes. A packet
//! is a length of four bytes (of itself, the checksums and the data), a length of two, a header, checksums, data.
//!
//! Guarantees: any bytes yield a value or a [`PacketError`]; no announced length is trusted.

use crc_fast::CrcAlgorithm;
use frieze_base::{crc32c, crc32c_combine};
use prost::Message;

use crate::proto::{PacketHeader, checksum};

/// Version of the protocol since Hadoop 0.23.
pub(crate) const VERSION: u16 = 28;
/// Number of the operation that writes a block.
pub(crate) const WRITE: u8 = 80;
/// Our own operation: a query from another gateway ([`crate::peer_gateways`]). Hadoop's end at 89; 127 marks none.
pub(crate) const QUESTION: u8 = 120;
/// Longest message before packets: a token, which mostly consists of groups, and some locations. It is read before the
/// token is verified.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Longest packet: the limit of Hadoop's own clients.
pub(crate) const PACKET_BYTES_MAX: usize = 16 << 20;
/// Longest header of a packet. It has 25 to 27 bytes.
const HEADER_BYTES_MAX: usize = 256;
/// Bytes whose checksums are verified together.
const TOGETHER_BYTES: usize = 16 << 10;
/// Bytes that one checksum covers.
pub(crate) const CHUNK_BYTES: u32 = 512;
/// Bytes of a checksum.
pub(crate) const SUM_BYTES: usize = 4;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Write a block.
    Write,
    /// Read a block.
    Read,
    /// Checksum of a block.
    Checksum,
    /// Copy a block to another location.
    Copy,
    /// A query of another gateway.
    Question,
    /// Another operation of Hadoop's, by its number.
    Other(u8),
}

/// Why bytes are no request or no packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PacketError {
    /// Another version, or another protocol.
    #[error("version {found} of the data transfer protocol: {VERSION} is served")]
    Version {
        /// The version of the request.
        found: u16,
    },
    /// A length that is too large, or less than its content.
    #[error("malformed packet: {part} of {len} bytes")]
    Length {
        /// Which length.
        part: &'static str,
        /// Its value.
        len: i64,
    },
    /// Data that leave a gap, or exceed the block.
    #[error("{len} bytes at {at} of a block of at most {len_max}, of which {received} are here")]
    Place {
        /// Their offset.
        at: u64,
        /// Their length.
        len: usize,
        /// Bytes of the block received before.
        received: u64,
        /// Longest block.
        len_max: u64,
    },
    /// A message that cannot be decoded.
    #[error("malformed {part}: {why}")]
    Malformed {
        /// Which part.
        part: &'static str,
        /// The decoder's reason.
        why: String,
    },
    /// Data that do not match their checksums.
    #[error("the data of packet {seqno} fail their checksums")]
    Checksum {
        /// Sequence number of the packet.
        seqno: i64,
    },
}

/// Parses version and operation.
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

/// Decodes a message.
///
/// # Errors
/// `Malformed`.
pub(crate) fn message<M: Message + Default>(bytes: &[u8], part: &'static str) -> Result<M, PacketError> {
    M::decode(bytes).map_err(|error| PacketError::Malformed { part, why: error.to_string() })
}

/// The kind of checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChecksumKind {
    /// None.
    None,
    /// CRC32C over this many bytes each: what this gateway sends.
    Crc32c(u32),
    /// CRC32, the older one, over this many bytes each: a writer may send it.
    Crc32(u32),
}

impl ChecksumKind {
    /// Parses a client's request; `None` for another kind.
    pub(crate) fn read(kind: i32, chunk_bytes: u32) -> Option<ChecksumKind> {
        let is_usable = (1..=CHUNK_BYTES_MAX).contains(&chunk_bytes);
        match kind {
            checksum::NULL => Some(ChecksumKind::None),
            checksum::CRC32C if is_usable => Some(ChecksumKind::Crc32c(chunk_bytes)),
            checksum::CRC32 if is_usable => Some(ChecksumKind::Crc32(chunk_bytes)),
            _ => None,
        }
    }

    /// Bytes of the checksums of `data` bytes.
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

    /// True if these are the checksums of `data`.
    fn verify(self, sums: &[u8], data: &[u8]) -> bool {
        if let ChecksumKind::Crc32c(chunk_bytes) = self {
            return verify_together(sums, data, chunk_bytes as usize);
        }
        self.each().is_none_or(|(chunk_bytes, sum)| {
            data.chunks(chunk_bytes).zip(sums.chunks(SUM_BYTES)).all(|(chunk, found)| sum(chunk).to_be_bytes() == found)
        })
    }

    /// Bytes per checksum, and the function.
    fn each(self) -> Option<(usize, CrcFunction)> {
        match self {
            ChecksumKind::None => None,
            ChecksumKind::Crc32c(chunk_bytes) => Some((chunk_bytes as usize, crc32c)),
            ChecksumKind::Crc32(chunk_bytes) => Some((chunk_bytes as usize, crc32)),
        }
    }
}

/// Verifies CRC32C. Neighbours are combined and compared with one checksum over all their bytes: SIMD is faster on
/// longer input, by a third in all. It misses what a checksum misses, one in 2^32.
fn verify_together(sums: &[u8], data: &[u8], chunk_bytes: usize) -> bool {
    let chunks = (TOGETHER_BYTES / chunk_bytes).max(1);
    data.chunks(chunks * chunk_bytes).zip(sums.chunks(chunks * SUM_BYTES)).all(|(data, sums)| {
        let mut left = data.len();
        let together = sums.chunks_exact(SUM_BYTES).fold(0, |before, sum| {
            let len = left.min(chunk_bytes);
            left -= len;
            crc32c_combine(before, u32::from_be_bytes([sum[0], sum[1], sum[2], sum[3]]), len as u64)
        });
        crc32c(data) == together
    })
}

/// Computes a checksum.
type CrcFunction = fn(&[u8]) -> u32;

/// The CRC32 of Ethernet and gzip. It is only verified, never cached.
fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

/// The two lengths at the beginning of a packet.
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
    /// Parses them.
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

/// A parsed packet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DataPacket<'b> {
    /// The header.
    pub(crate) header: PacketHeader,
    /// The checksums.
    pub(crate) sums: &'b [u8],
    /// The data.
    pub(crate) data: &'b [u8],
}

/// Parses header and body of a packet, and verifies the checksums.
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
    if !sums.verify(found, data) {
        return Err(PacketError::Checksum { seqno: header.seqno });
    }
    Ok(DataPacket { header, sums: found, data })
}

/// The header as Hadoop's own clients encode it, all fields in order: every packet has one. `None`: decode it as a
/// message.
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

/// Appends the beginning of a packet: all but the data.
pub(crate) fn put_head(header: &PacketHeader, data: &[u8], sums: ChecksumKind, out: &mut Vec<u8>) {
    put_lengths(header, sums.len(data.len()) + data.len(), out);
    sums.put(data, out);
}

/// The same for data elsewhere in the kernel, with given checksums.
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

/// Longer spans do not occur.
const CHUNK_BYTES_MAX: u32 = 1 << 20;

#[cfg(test)]
mod tests;
