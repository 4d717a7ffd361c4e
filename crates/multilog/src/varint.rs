//! Integers in as few bytes as they need: seven bits a byte, low bits first.

/// Where bytes are appended.
pub(crate) trait Bytes {
    fn push(&mut self, byte: u8);
}

impl Bytes for Vec<u8> {
    fn push(&mut self, byte: u8) {
        Vec::push(self, byte);
    }
}

/// Appends an integer.
pub(crate) fn put(bytes: &mut impl Bytes, value: u64) {
    let mut rest = value;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

/// Appends how far `value` is from `last`: small differences of either sign take few bytes.
pub(crate) fn put_difference(bytes: &mut impl Bytes, last: u64, value: u64) {
    let difference = value.wrapping_sub(last) as i64;
    put(bytes, (difference << 1 ^ difference >> 63) as u64);
}

/// Takes an integer off the front; `None` if there is none.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
        shift += 7;
        if shift > 63 {
            return None;
        }
    }
}

/// Takes what [`put_difference`] appended.
pub(crate) fn take_difference(bytes: &mut &[u8], last: u64) -> Option<u64> {
    let value = take(bytes)?;
    Some(last.wrapping_add((value >> 1) ^ (value & 1).wrapping_neg()))
}

/// Takes `len` bytes off the front.
pub(crate) fn take_bytes<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(head)
}

/// Takes a little-endian integer of four bytes off the front.
pub(crate) fn take_word(bytes: &mut &[u8]) -> Option<u32> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*head))
}
