//! Integers in as few bytes as they need: seven bits a byte, low bits first.

/// Where bytes are appended.
pub trait VarintSink {
    /// Appends a byte.
    fn push(&mut self, byte: u8);
}

impl VarintSink for Vec<u8> {
    #[inline]
    fn push(&mut self, byte: u8) {
        Vec::push(self, byte);
    }
}

/// Appends an integer.
#[inline]
pub fn put(bytes: &mut impl VarintSink, value: u64) {
    let mut rest = value;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

/// Appends how far `value` is from `last`: small differences of either sign take few bytes.
#[inline]
pub fn put_difference(bytes: &mut impl VarintSink, last: u64, value: u64) {
    let difference = value.wrapping_sub(last) as i64;
    put(bytes, (difference << 1 ^ difference >> 63) as u64);
}

/// Takes an integer off the front; `None` if there is none, or in more bytes than it needs: each integer has one form.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            let is_shortest = (byte != 0 || shift == 0) && (shift < 63 || byte == 1);
            return is_shortest.then_some(value);
        }
        shift += 7;
        if shift > 63 {
            return None;
        }
    }
}

/// Takes what [`put_difference`] appended.
#[inline]
pub fn take_difference(bytes: &mut &[u8], last: u64) -> Option<u64> {
    let value = take(bytes)?;
    Some(last.wrapping_add((value >> 1) ^ (value & 1).wrapping_neg()))
}

/// Takes `len` bytes off the front.
#[inline]
pub fn take_bytes<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(head)
}

/// Takes a little-endian integer of four bytes off the front.
#[inline]
pub fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_back_and_damage_is_noticed() {
        for value in [0, 1, 0x7f, 0x80, 300, 1 << 35, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            put_difference(&mut bytes, 500, value);
            put_difference(&mut bytes, value, 500);
            let rest = &mut bytes.as_slice();
            assert_eq!(take(rest), Some(value));
            assert_eq!(take_difference(rest, 500), Some(value));
            assert_eq!(take_difference(rest, value), Some(500));
            assert_eq!(take(rest), None);
        }
        assert_eq!(take(&mut &[0xff; 11][..]), None, "more than 64 bits");
        assert_eq!(take(&mut &[0x80][..]), None, "cut off");
        assert_eq!(take(&mut &[0x81, 0][..]), None, "a byte more than it needs");
        let beyond = [&[0xff; 9][..], &[2]].concat();
        assert_eq!(take(&mut &*beyond), None, "more than 64 bits");
    }

    #[test]
    fn any_bytes_are_integers_or_cut_off() {
        let decode = |mut bytes: &[u8]| {
            let mut found = Vec::new();
            while !bytes.is_empty() {
                found.push((take(&mut bytes)?, take_difference(&mut bytes, found.len() as u64 * 1000)?));
            }
            Some(found)
        };
        let encode = |found: &Vec<(u64, u64)>| {
            let mut bytes = Vec::new();
            for (at, (value, difference)) in found.iter().enumerate() {
                put(&mut bytes, *value);
                put_difference(&mut bytes, at as u64 * 1000, *difference);
            }
            bytes
        };
        frieze_harness::fuzz!([encode(&vec![(7, 0), (u64::MAX, u64::MAX), (300, 1 << 35)])], |bytes: &[u8]| {
            frieze_harness::check_stable(bytes, decode, encode);
            let rest = &mut &*bytes;
            assert!(take_bytes(rest, bytes.len() + 1).is_none() && take_u32(rest).is_some() == (bytes.len() >= 4));
        });
    }
}
