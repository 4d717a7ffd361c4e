//! Responses to transfers.

use std::io::{self, Write};
use std::net::TcpStream;

use prost::Message;

use crate::proto::{self, BlockOpResponse, checksum, status};
use crate::transfer::{CHUNK_BYTES, ChecksumKind};
use crate::transfer_error::TransferError;

/// Sends a response.
pub(crate) fn respond(mut stream: &TcpStream, response: &BlockOpResponse) -> io::Result<()> {
    stream.write_all(&response.encode_length_delimited_to_vec())
}

/// A response that refuses, and why.
pub(crate) fn refused(status: i32, words: &str) -> BlockOpResponse {
    BlockOpResponse { status, message: Some(words.to_owned()), ..BlockOpResponse::default() }
}

/// Refuses a token that is forged, expired, or of another block: the client requests another, and retries.
pub(crate) fn forbid(stream: &TcpStream) -> Result<bool, TransferError> {
    respond(stream, &refused(status::ERROR_ACCESS_TOKEN, "the token is not valid for this block"))?;
    Ok(false)
}

/// The response that precedes the packets of a block: their checksums, and where the first begins.
pub(crate) fn begun(sums: ChecksumKind, from: u64) -> BlockOpResponse {
    let kind = if sums == ChecksumKind::None { checksum::NULL } else { checksum::CRC32C };
    let info = proto::ReadOpChecksumInfo {
        checksum: Some(proto::Checksum { kind, bytes_per_checksum: CHUNK_BYTES }),
        chunk_offset: from,
    };
    BlockOpResponse { read_op_checksum_info: Some(info), ..BlockOpResponse::default() }
}
