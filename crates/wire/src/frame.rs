//! The fixed header before every message: 80 bytes, little-endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `FRZ1` |
//! | 4 | 1 | kind: 1 request, 2 reply, 3 refusal, 4 peer |
//! | 5 | 1 | protocol version |
//! | 6 | 2 | reserved, 0 |
//! | 8 | 4 | body length |
//! | 12 | 4 | payload length |
//! | 16 | 8 | request id, chosen by the client, echoed by the reply |
//! | 24 | 8 | session, 0 before one is opened |
//! | 32 | 8 | seq: number of a state-changing request, 0 for reads |
//! | 40 | 8 | acked: every seq below it has been answered and may be forgotten |
//! | 48 | 8 | chain epoch the sender knows |
//! | 56 | 8 | newest `Hlc` the sender has seen |
//! | 64 | 4 | CRC32C of the body |
//! | 68 | 4 | CRC32C of the payload |
//! | 72 | 4 | request: 1 asks for cache grants, else 0; reply: how long names (low 16 bits) and attributes (high 16 bits) hold, ms |
//! | 76 | 4 | CRC32C of bytes 0..76 |

use frieze_base::{ChainEpoch, Fault, Reason, Seq, SessionId, crc32c};
use frieze_hlc::Hlc;

/// Length of the header in bytes.
pub const FRAME_HEADER_BYTES: usize = 80;
/// Version spoken by this code. A peer of another version is refused with a sentence that names both.
pub const PROTOCOL_VERSION: u8 = 1;
/// Largest body: a listing page or a batch of metadata stays far below it.
pub const BODY_BYTES_MAX: u32 = 8 << 20;
/// Largest payload: the largest write or read of one request.
pub const PAYLOAD_BYTES_MAX: u32 = 4 << 20;

const MAGIC: [u8; 4] = *b"FRZ1";

/// Content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A [`crate::message::Request`].
    Request = 1,
    /// A [`crate::message::Reply`].
    Reply = 2,
    /// A [`crate::message::Refusal`]: the request failed, or the connection is about to be closed (request id 0).
    Refusal = 3,
    /// A [`crate::peer::PeerBody`]: a message from one server to another, without a reply.
    Peer = 4,
}

/// The header of a frame. Field meanings are in the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Content of the body.
    pub kind: FrameKind,
    /// Bytes of body that follow the header.
    pub body_len: u32,
    /// Bytes of payload that follow the body.
    pub payload_len: u32,
    /// Chosen by the client, echoed by the reply.
    pub request_id: u64,
    /// Session the request belongs to.
    pub session: SessionId,
    /// Number of a state-changing request within the session.
    pub seq: Seq,
    /// Every seq below it has been answered.
    pub acked: Seq,
    /// Chain configuration known to the sender.
    pub epoch: ChainEpoch,
    /// The sender's newest known stamp: how causality crosses processes.
    pub hlc: Hlc,
    /// CRC32C of the body.
    pub body_crc: u32,
    /// CRC32C of the payload.
    pub payload_crc: u32,
    /// In a request: [`Holds::ASKED`] asks for cache grants. In an answer: how long it may be cached.
    pub holds: Holds,
}

/// How long an answer may be cached without asking again: the remaining time of a cache grant, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Names of the directory of the request: those found, and those found absent.
    pub names_ms: u16,
    /// Attributes and bytes of the file, or files, in the answer.
    pub files_ms: u16,
}

impl Holds {
    /// The answer may not be cached, or no grant was asked for.
    pub const NONE: Holds = Holds { names_ms: 0, files_ms: 0 };
    /// In a request: the sender keeps a cache and answers recalls.
    pub const ASKED: Holds = Holds { names_ms: 1, files_ms: 0 };

    fn to_bits(self) -> u32 {
        u32::from(self.names_ms) | u32::from(self.files_ms) << 16
    }

    fn of_bits(bits: u32) -> Holds {
        Holds { names_ms: bits as u16, files_ms: (bits >> 16) as u16 }
    }
}

impl FrameHeader {
    /// A header of `kind` with everything else zero.
    pub fn of(kind: FrameKind) -> FrameHeader {
        FrameHeader {
            kind,
            body_len: 0,
            payload_len: 0,
            request_id: 0,
            session: SessionId(0),
            seq: Seq(0),
            acked: Seq(0),
            epoch: ChainEpoch(0),
            hlc: Hlc::ZERO,
            body_crc: 0,
            payload_crc: 0,
            holds: Holds::NONE,
        }
    }

    /// The bytes that go first on the wire.
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0u8; FRAME_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[5] = PROTOCOL_VERSION;
        bytes[8..12].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.request_id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.session.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.seq.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.acked.0.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.hlc.0.to_le_bytes());
        bytes[64..68].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes[68..72].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[72..76].copy_from_slice(&self.holds.to_bits().to_le_bytes());
        let crc = crc32c(&bytes[..76]);
        bytes[76..80].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// `BadFrame` for a wrong magic, checksum, kind or length; `WrongVersion` for a peer of another protocol version.
    /// Either way the connection is unusable: send a [`FrameKind::Refusal`] and close it.
    pub fn decode(bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<FrameHeader, Fault> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let bad = |what: String| Fault::new(Reason::BadFrame, format!("malformed frame: {what}"));
        if bytes[0..4] != MAGIC {
            return Err(bad(format!("starts with {:02x?}, not with the magic of frieze {MAGIC:02x?}", &bytes[0..4])));
        }
        if crc32c(&bytes[..76]) != word(76) {
            return Err(bad("header checksum does not match".to_owned()));
        }
        if bytes[5] != PROTOCOL_VERSION {
            return Err(Fault::new(
                Reason::WrongVersion,
                format!(
                    "the peer speaks protocol version {}, this process {PROTOCOL_VERSION}: upgrade the older",
                    bytes[5]
                ),
            ));
        }
        let kind = match bytes[4] {
            1 => FrameKind::Request,
            2 => FrameKind::Reply,
            3 => FrameKind::Refusal,
            4 => FrameKind::Peer,
            other => return Err(bad(format!("unknown kind {other}"))),
        };
        let (body_len, payload_len) = (word(8), word(12));
        if body_len > BODY_BYTES_MAX {
            return Err(bad(format!("body of {body_len} bytes; at most {BODY_BYTES_MAX} are allowed")));
        }
        if payload_len > PAYLOAD_BYTES_MAX {
            return Err(bad(format!("payload of {payload_len} bytes; at most {PAYLOAD_BYTES_MAX} are allowed")));
        }
        Ok(FrameHeader {
            kind,
            body_len,
            payload_len,
            request_id: long(16),
            session: SessionId(long(24)),
            seq: Seq(long(32)),
            acked: Seq(long(40)),
            epoch: ChainEpoch(long(48)),
            hlc: Hlc(long(56)),
            body_crc: word(64),
            payload_crc: word(68),
            holds: Holds::of_bits(word(72)),
        })
    }
}
