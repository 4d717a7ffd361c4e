//! Why a version of an inode was made.

use frieze_wire::message::VersionKind;

/// Why a version of an inode was made, as `log` tells it. A version for bookkeeping (a grant, a settled length, an
/// entry in a directory) has none.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StoredCause {
    #[prost(enumeration = "VersionKind", tag = "1")]
    pub(crate) kind: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) name: Vec<u8>,
}

impl StoredCause {
    pub(crate) fn new(kind: VersionKind, name: &[u8]) -> StoredCause {
        StoredCause { kind: kind as i32, name: name.to_vec() }
    }
}
