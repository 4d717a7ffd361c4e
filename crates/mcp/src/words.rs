//! Values as text: instants, bytes of names, kinds.

use frieze_client::Hlc;

/// The wall-clock time of a stamp: RFC 3339, UTC, microseconds.
pub(crate) fn time_of(stamp: Hlc) -> String {
    frieze_hlc::format_instant(stamp)
}

/// Bytes of a name as text: what is not UTF-8 becomes the replacement character.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The hexadecimal form of bytes that are not UTF-8; none if the text says all of them.
pub(crate) fn hex_unless_text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).is_err().then(|| data_encoding::HEXLOWER.encode(bytes))
}

/// `1 change`, `2 changes`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
