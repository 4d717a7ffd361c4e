//! Frames over a stream: limits, payloads and headers that reader and writer share.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use frieze_base::crc32c;
use frieze_wire::FrameHeader;

use crate::{Error, Stream};

/// How long one end of a connection waits for the other.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until a frame begins; `None` waits for ever (an idle client).
    pub idle: Option<Duration>,
    /// For a frame, once begun, to be complete; and for the peer to receive a frame.
    pub frame: Duration,
}

impl Limits {
    /// While a connection shakes hands: everything within 10 s.
    pub const HANDSHAKE: Limits = Limits { idle: Some(Duration::from_secs(10)), frame: Duration::from_secs(10) };
    /// A server after the handshake: any time between frames, 30 s for a frame.
    pub const SERVING: Limits = Limits { idle: None, frame: Duration::from_secs(30) };
}

/// What follows the body of a frame.
#[derive(Clone, Copy, Debug)]
pub enum FramePayload<'a> {
    /// Nothing.
    None,
    /// These bytes; the writer computes their checksum.
    Bytes(&'a [u8]),
    /// These pieces one after the other, with their checksum, which is combined from those of stored blocks.
    Checked {
        /// The pieces.
        pieces: &'a [&'a [u8]],
        /// CRC32C of all of them.
        crc: u32,
    },
}

/// A part of a payload that is sent step by step.
#[derive(Clone, Copy, Debug)]
pub enum FramePart<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// A range of a file, unverified: the system sends it.
    File {
        /// The file.
        file: BorrowedFd<'a>,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Length in bytes.
        len: usize,
    },
}

impl FramePart<'_> {
    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no caller needs it")]
    pub fn len(&self) -> usize {
        match self {
            FramePart::Bytes(bytes) => bytes.len(),
            FramePart::File { len, .. } => *len,
        }
    }
}

pub(crate) fn broken(stream: &Stream, doing: &'static str, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Error::Closed { peer: stream.peer().to_owned() },
        _ => Error::Broken { peer: stream.peer().to_owned(), doing, source },
    }
}

/// Appends a frame to `frames`, for [`FrameWriter::send_encoded`](crate::FrameWriter::send_encoded).
///
/// # Panics
/// If the body or payload is longer than a frame may hold.
pub fn encode_frame(header: FrameHeader, body: &[u8], payload: &[u8], frames: &mut Vec<u8>) {
    let payload_crc = if payload.is_empty() { 0 } else { crc32c(payload) };
    frames.extend_from_slice(&filled(header, body, payload.len(), payload_crc).encode());
    frames.extend_from_slice(body);
    frames.extend_from_slice(payload);
}

/// The header with the lengths and checksums of what follows it.
pub(crate) fn filled(header: FrameHeader, body: &[u8], payload_len: usize, payload_crc: u32) -> FrameHeader {
    assert!(body.len() <= frieze_wire::frame::BODY_BYTES_MAX as usize, "a body of {} bytes", body.len());
    assert!(payload_len <= frieze_wire::frame::PAYLOAD_BYTES_MAX as usize, "a payload of {payload_len} bytes");
    FrameHeader {
        body_len: body.len() as u32,
        payload_len: payload_len as u32,
        body_crc: crc32c(body),
        payload_crc,
        ..header
    }
}

/// Bytes of a checksum behind a payload.
pub const CRC_BYTES: usize = 4;
