//! A name of a directory entry: short ones, nearly all, live inside the map's own nodes.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;

/// Longest name kept without an allocation: fills the 24 bytes that the long form takes anyway.
const SHORT_BYTES_MAX: usize = 22;

#[derive(Clone)]
pub(crate) enum EntryName {
    Short { len: u8, bytes: [u8; SHORT_BYTES_MAX] },
    Long(Box<[u8]>),
}

impl EntryName {
    pub(crate) fn new(name: &[u8]) -> EntryName {
        if name.len() > SHORT_BYTES_MAX {
            return EntryName::Long(name.into());
        }
        let mut bytes = [0; SHORT_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name);
        EntryName::Short { len: name.len() as u8, bytes }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            EntryName::Short { len, bytes } => &bytes[..usize::from(*len)],
            EntryName::Long(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for EntryName {
    fn borrow(&self) -> &[u8] {
        self.bytes()
    }
}

impl PartialEq for EntryName {
    fn eq(&self, other: &EntryName) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for EntryName {}

impl PartialOrd for EntryName {
    fn partial_cmp(&self, other: &EntryName) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for EntryName {
    fn cmp(&self, other: &EntryName) -> Ordering {
        self.bytes().cmp(other.bytes())
    }
}

impl fmt::Debug for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_keep_their_bytes_and_order() {
        assert_eq!(size_of::<EntryName>(), 24);
        let names: Vec<Vec<u8>> = (0..=255).map(|len| vec![b'n'; len]).collect();
        for pair in names.windows(2) {
            assert_eq!(EntryName::new(&pair[0]).bytes(), pair[0]);
            assert!(EntryName::new(&pair[0]) < EntryName::new(&pair[1]));
        }
        assert!(EntryName::new(b"b") > EntryName::new(&[b'a'; 100]));
    }
}
