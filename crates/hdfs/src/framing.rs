//! Reading frames and messages from a connection: memory grows with the bytes received, not with the length announced.

use std::io::{self, Read};

use crate::transfer::MESSAGE_BYTES_MAX;

/// Fills `into`; false if the connection ends before the first byte.
pub(crate) fn read_or_end(reader: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    let first = loop {
        match reader.read(into) {
            Ok(count) => break count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    };
    if first == 0 {
        return Ok(into.is_empty());
    }
    reader.read_exact(&mut into[first..]).map(|()| true)
}

/// Reads `len` bytes. The buffer grows as they arrive.
pub(crate) fn read_frame(reader: &mut impl Read, len: usize) -> io::Result<Vec<u8>> {
    let mut frame = Vec::with_capacity(len.min(64 << 10));
    if reader.take(len as u64).read_to_end(&mut frame)? < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(frame)
}

/// Reads a message that its length precedes.
pub(crate) fn read_message(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "a message of an impossible length");
    let mut len = 0_usize;
    for shift in (0..).step_by(7).take(LENGTH_BYTES_MAX) {
        let mut byte = [0];
        reader.read_exact(&mut byte)?;
        len |= usize::from(byte[0] & 0x7f) << shift;
        if byte[0] & 0x80 == 0 {
            return if len <= MESSAGE_BYTES_MAX { read_frame(reader, len) } else { Err(malformed()) };
        }
    }
    Err(malformed())
}

/// Bytes of a length up to 2^28.
const LENGTH_BYTES_MAX: usize = 4;
