//! What can go wrong while a log is recovered.

use frieze_base::{ErrorKind, Fault, Reason, SegmentId};

use crate::index_run::RunKey;

/// The log could not be recovered. Damage to single records or segments is no error: it is in the report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The driver could not list or read segments.
    #[error("cannot read the data log: {0}")]
    Source(Fault),
    /// A segment has another format version: another build wrote it.
    #[error(
        "segment {segment} has format version {found}, this build of frieze reads {expected} only: read it with the \
         build that wrote it"
    )]
    WrongVersion {
        /// The segment.
        segment: SegmentId,
        /// The version this code reads and writes.
        expected: u8,
        /// The version in the header.
        found: u8,
    },
    /// An index run has another format version. A restart removes it and makes it anew from the footers of its
    /// segments.
    #[error(
        "the index of segments {run} has format version {found}, this build of frieze reads {expected} only: another \
         build wrote it"
    )]
    IndexRunVersion {
        /// Its name.
        run: RunKey,
        /// The version that this code reads and writes.
        expected: u8,
        /// The version in the head.
        found: u8,
    },
    /// The index of a pack is not what was written, in none of its copies: files in it cannot be read.
    #[error("the index of {} is damaged, in both of its copies", pack.in_words())]
    DamagedPack {
        /// Its number.
        pack: SegmentId,
    },
    /// An index run is not what was written: it is rebuilt from the footers of its segments.
    #[error("the index of segments {run} is damaged")]
    DamagedIndexRun {
        /// Its name.
        run: RunKey,
    },
    /// Two files claim to be the same segment.
    #[error("files {first} and {second} both hold segment {segment}: one is a copy that does not belong here")]
    DoubleSegment {
        /// The segment.
        segment: SegmentId,
        /// Key of one file.
        first: u64,
        /// Key of the other.
        second: u64,
    },
}

impl Error {
    /// Why, for programs.
    pub fn reason(&self) -> Reason {
        match self {
            Error::Source(fault) => fault.reason,
            Error::WrongVersion { .. } | Error::IndexRunVersion { .. } => Reason::WrongVersion,
            Error::DoubleSegment { .. } | Error::DamagedIndexRun { .. } | Error::DamagedPack { .. } => Reason::Corrupt,
        }
    }

    /// What the caller does next.
    pub fn kind(&self) -> ErrorKind {
        self.reason().kind()
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::new(error.reason(), error.to_string())
    }
}
