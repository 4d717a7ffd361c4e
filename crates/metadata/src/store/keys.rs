//! Keys and values as they are stored.

use frieze_base::{Fault, Reason};
use frieze_hlc::Hlc;

const PRESENT: u8 = 1;
const ABSENT: u8 = 0;
/// Present, of a key that keeps no history: the stamp follows, big-endian, then the value.
const PRESENT_SINCE: u8 = 2;

pub(super) fn escape_into(key: &[u8], out: &mut Vec<u8>) {
    let mut rest = key;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        out.extend_from_slice(&rest[..=zero]);
        out.push(0xff);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
}

pub(super) fn stored_key(key: &[u8], stamp: Hlc) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 18);
    stored_key_into(key, stamp, &mut out);
    out
}

/// Appends the stored key.
pub(super) fn stored_key_into(key: &[u8], stamp: Hlc, out: &mut Vec<u8>) {
    escape_into(key, out);
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&stamp.0.to_be_bytes());
}

pub(super) fn parse_stored_key(stored: &[u8]) -> Result<(Vec<u8>, Hlc), Fault> {
    let (escaped, stamp) = split_stored_key(stored)?;
    let mut key = Vec::with_capacity(escaped.len());
    unescape_into(escaped, &mut key)?;
    Ok((key, stamp))
}

/// The key as it is stored, and the stamp behind it.
pub(super) fn split_stored_key(stored: &[u8]) -> Result<(&[u8], Hlc), Fault> {
    let split = stored.split_last_chunk().and_then(|(rest, stamp)| Some((rest.strip_suffix(&[0, 0])?, *stamp)));
    let (escaped, stamp) = split.ok_or_else(|| malformed(stored))?;
    Ok((escaped, Hlc(u64::from_be_bytes(stamp))))
}

/// Appends the key that was stored as `escaped`.
pub(super) fn unescape_into(escaped: &[u8], key: &mut Vec<u8>) -> Result<(), Fault> {
    let mut rest = escaped;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        if rest.get(zero + 1) != Some(&0xff) {
            return Err(malformed(escaped));
        }
        key.extend_from_slice(&rest[..=zero]);
        rest = &rest[zero + 2..];
    }
    key.extend_from_slice(rest);
    Ok(())
}

pub(super) fn malformed(stored: &[u8]) -> Fault {
    Fault::new(Reason::Corrupt, format!("the namespace's store holds a malformed key {stored:02x?}"))
}

/// First stored key above every key that starts with `prefix`; keys are far shorter than the run of `ff` added.
pub(super) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = Vec::with_capacity(prefix.len() + 24);
    escape_into(prefix, &mut end);
    end.extend_from_slice(&[0xff; 320]);
    end
}

/// First stored key of those that start with `prefix` and are greater than the whole key `after` (empty: all).
pub(super) fn start(prefix: &[u8], after: &[u8]) -> Vec<u8> {
    if after.is_empty() {
        let mut from = Vec::new();
        escape_into(prefix, &mut from);
        return from;
    }
    // Every version of `after` itself lies below its terminator followed by a full stamp.
    let mut from = stored_key(after, Hlc::MAX);
    from.push(0);
    from
}

/// Appends the stored form of a value that has a version of its own.
pub(super) fn encode_value_into(value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        None => out.push(ABSENT),
        Some(value) => {
            out.push(PRESENT);
            out.extend_from_slice(value);
        }
    }
}

pub(super) fn encode_in_place(stamp: Hlc, value: &[u8]) -> Vec<u8> {
    [&[PRESENT_SINCE][..], &stamp.0.to_be_bytes(), value].concat()
}

/// The stamp and value of a stored item, wherever its stamp stands; `None` if it says that the key is absent.
pub(super) fn decode_item(stamp: Hlc, stored: &[u8]) -> Option<(Hlc, &[u8])> {
    match stored.split_first()? {
        (&PRESENT, value) => Some((stamp, value)),
        (&PRESENT_SINCE, rest) => {
            let (since, value) = rest.split_first_chunk()?;
            Some((Hlc(u64::from_be_bytes(*since)), value))
        }
        _ => None,
    }
}

pub(super) fn decode_value(stored: &[u8]) -> Option<&[u8]> {
    match stored.split_first() {
        Some((&PRESENT, value)) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_a_stored_key_or_malformed() {
        let seeds = [stored_key(b"Eab\0cd\0\0", Hlc(77)), stored_key(b"", Hlc::MAX), stored_key(b"S\xff", Hlc(0))];
        frieze_harness::fuzz!(seeds, |bytes: &[u8]| {
            let decode = |bytes: &[u8]| parse_stored_key(bytes).ok();
            if let Some((key, stamp)) =
                frieze_harness::check_stable(bytes, decode, |(key, stamp)| stored_key(key, *stamp))
            {
                assert!(stored_key(&key, stamp).starts_with(&start(&key, b"")), "a key begins with its prefix");
            }
            prefix_end(bytes);
        });
    }

    fn encode_value(value: Option<&[u8]>) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_value_into(value, &mut bytes);
        bytes
    }

    #[test]
    fn any_bytes_are_a_stored_value_or_none() {
        let seeds = [encode_value(Some(b"value")), encode_value(None), encode_in_place(Hlc(77), b"value")];
        frieze_harness::fuzz!(seeds, |bytes: &[u8]| {
            if let Some((stamp, value)) = decode_item(Hlc(5), bytes) {
                assert!(encode_value(Some(value)) == bytes || encode_in_place(stamp, value) == bytes);
            }
            decode_value(bytes);
        });
    }
}
