//! A name among many: short ones, nearly all, need no allocation.

use std::fmt;

/// Longest name kept without an allocation: fills the 24 bytes that the long form takes anyway.
const SHORT_BYTES_MAX: usize = 22;

#[derive(Clone)]
pub(super) enum EntryName {
    Short { len: u8, bytes: [u8; SHORT_BYTES_MAX] },
    Long(Box<[u8]>),
}

impl EntryName {
    pub(super) fn new(name: &[u8]) -> EntryName {
        if name.len() > SHORT_BYTES_MAX {
            return EntryName::Long(name.into());
        }
        let mut bytes = [0; SHORT_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name);
        EntryName::Short { len: name.len() as u8, bytes }
    }

    pub(super) fn is_long(&self) -> bool {
        matches!(self, EntryName::Long(_))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            EntryName::Short { len, bytes } => &bytes[..usize::from(*len)],
            EntryName::Long(bytes) => bytes,
        }
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
    fn names_of_every_length_keep_their_bytes() {
        assert_eq!(size_of::<EntryName>(), 24);
        for len in 0..=255 {
            let name = vec![b'n'; len];
            assert_eq!(EntryName::new(&name).bytes(), name);
        }
    }
}
