//! Why the log refuses, or cannot be recovered.

use frieze_base::{ErrorKind, Fault, LogIndex, NodeId, Reason, SegmentId};
use frieze_hlc::Hlc;

use crate::format::{SEGMENT_HEADER_BYTES, segment_file_name};
use crate::message::DataEnd;
use crate::raft::OTHER_BUILD;

/// A refused input, or a directory that holds no usable log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The batch is larger than an entry may be.
    #[error("a batch of {len} bytes is too large for the metalog: {max} at most")]
    BatchTooLarge {
        /// Its length in bytes.
        len: u64,
        /// [`crate::MemberSettings::body_bytes_max`].
        max: u64,
    },
    /// A limit of [`crate::MemberSettings`] is reached.
    #[error("too many {what}: {max} at most; send again later")]
    Overloaded {
        /// What there are too many of.
        what: &'static str,
        /// The limit.
        max: u64,
    },
    /// The instant to close lies above the clock.
    #[error("{at} cannot be closed: it lies above this server's clock {clock}")]
    CloseFuture {
        /// The instant.
        at: Hlc,
        /// The reading here.
        clock: Hlc,
    },
    /// A record could not be written: the entries in it were never proposed.
    #[error("the change could not be written to the metalog: {}", reason.words())]
    AppendFailed {
        /// From the driver.
        reason: Reason,
    },
    /// The device failed, now or before.
    #[error(
        "the metalog's device has failed ({}): nothing is changed until the server has been restarted",
        reason.words()
    )]
    DeviceFailed {
        /// From the driver.
        reason: Reason,
    },
    /// A segment has another format version: another build wrote it.
    #[error(
        "{} of the metalog has format version {found}, this build of frieze reads {expected} only: read it with the \
         build that wrote it",
        segment_file_name(*segment)
    )]
    WrongVersion {
        /// The segment.
        segment: SegmentId,
        /// Its version.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// The log does not reach back to where the store ends.
    #[error(
        "the metalog begins after entry {found}, but the store holds entries up to {applied} only: segments are missing"
    )]
    Missing {
        /// Last entry in the store.
        applied: LogIndex,
        /// Last entry before the log.
        found: LogIndex,
    },
    /// There is no segment at all, though the store holds entries.
    #[error("the store holds entries up to {applied}, but the metalog has no segment: it is missing")]
    NoSegment {
        /// Last entry in the store.
        applied: LogIndex,
    },
    /// What was on stable storage cannot be read.
    #[error(
        "{} is damaged at byte {offset}: record {record} of the metalog was on stable storage and fails its checksum",
        segment_file_name(*segment)
    )]
    Damaged {
        /// The segment.
        segment: SegmentId,
        /// Where in it.
        offset: u64,
        /// The record expected there.
        record: LogIndex,
    },
    /// A segment has records, and its header cannot be read.
    #[error(
        "{} is damaged: its header, bytes 0 to {}, fails its checksum, and records of the metalog follow it",
        segment_file_name(*segment), SEGMENT_HEADER_BYTES - 1
    )]
    HeaderDamaged {
        /// The segment.
        segment: SegmentId,
    },
    /// Records are needed that lay in a segment before this one.
    #[error(
        "the metalog begins with {} at record {record}, and records before it are needed: the file before it is \
         missing",
        segment_file_name(*segment)
    )]
    FileBeforeMissing {
        /// The first segment that is there.
        segment: SegmentId,
        /// Its first record.
        record: LogIndex,
    },
    /// Records lay in a segment between two others.
    #[error(
        "a file of the metalog is missing between {} and {}: record {record} was on stable storage",
        segment_file_name(*before), segment_file_name(*after)
    )]
    FileMissing {
        /// The segment before it.
        before: SegmentId,
        /// The segment behind it.
        after: SegmentId,
        /// The first record that is missing.
        record: LogIndex,
    },
    /// A file is shorter than it was made.
    #[error(
        "{} of the metalog has {found} bytes and was made with {expected}: it has been truncated",
        segment_file_name(*segment)
    )]
    Truncated {
        /// The segment.
        segment: SegmentId,
        /// Its length.
        found: u64,
        /// What its header says.
        expected: u64,
    },
    /// A record on stable storage names data that the data log no longer has.
    #[error(
        "metalog record {record} was on stable storage and names data up to {needed}, but the data log ends at {found}"
    )]
    DataMissing {
        /// The record.
        record: LogIndex,
        /// End of the data it names.
        needed: DataEnd,
        /// Where the data log ends.
        found: DataEnd,
    },
    /// Another member leads, or none at the moment.
    #[error(
        "this member of the metalog does not lead{}",
        leader.map_or(": there is no leader now".to_owned(), |node| format!(": node {node} does"))
    )]
    NotLeader {
        /// The leader to ask; `None`: try again in a moment.
        leader: Option<NodeId>,
    },
    /// This server has been taken out of the metalog's members.
    #[error("this server is no member of the metalog any more")]
    NotMember,
    /// The change of members makes no sense.
    #[error("the members cannot be changed so: {what}")]
    BadChange {
        /// Why.
        what: &'static str,
    },
    /// The learner cannot vote yet.
    #[error("node {node} has not caught up with the metalog, and cannot vote yet: try again when it has")]
    NotCaughtUp {
        /// The learner.
        node: NodeId,
    },
    /// A change of members is under way.
    #[error("the members are being changed: try again in a moment")]
    Changing,
    /// No answer in time.
    #[error("no majority of the metalog's members answered in time: try again")]
    NoAnswer,
    /// A message that no member sends.
    #[error("node {from} sent a message that no member of the metalog sends: {what}")]
    BadMessage {
        /// The sender.
        from: NodeId,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A leader's log lacks entries that this member has executed: the others elected without it.
    #[error(
        "the log of node {from}, which leads, lacks entries that this server has executed: the other servers went on \
         without it when it was declared dead. Set its directory aside and join with an empty one"
    )]
    Contradicted {
        /// The leader.
        from: NodeId,
    },
    /// A record of this member's journal cannot be read, or does not follow the one before it.
    #[error("cannot read record {record} of the metalog's journal: {what}")]
    BadRecord {
        /// The record.
        record: LogIndex,
        /// What is wrong.
        what: &'static str,
    },
    /// The journal holds no record: no flush ever ended, or it is gone.
    #[error("the metalog's journal holds no record of this member")]
    NeverBegun,
    /// The journal does not reach to where the store is.
    #[error("the store holds entries up to {applied}, but the metalog's journal ends at {last}: records are missing")]
    JournalBehind {
        /// Last entry in the store.
        applied: LogIndex,
        /// Last entry in the journal.
        last: LogIndex,
    },
    /// The journal ends before what its driver knows to have been on stable storage.
    #[error(
        "the metalog ends with {what} {last}{}, and was on stable storage up to {what} {durable}",
        end.map_or(String::new(), |(segment, offset)| format!(", at byte {offset} of {}", segment_file_name(segment)))
    )]
    EndMissing {
        /// What is counted: entries or records.
        what: &'static str,
        /// The last one that is there.
        last: LogIndex,
        /// The last one that was on stable storage.
        durable: LogIndex,
        /// Where the journal ends.
        end: Option<(SegmentId, u64)>,
    },
    /// A segment could not be read at all.
    #[error("the metalog could not be read: {0}")]
    Source(Fault),
}

impl Error {
    /// Why, as doors map it.
    pub fn reason(&self) -> Reason {
        match self {
            Error::BatchTooLarge { .. } => Reason::TooLarge,
            Error::Overloaded { .. } => Reason::Overloaded,
            Error::CloseFuture { .. } => Reason::Future,
            Error::AppendFailed { reason } | Error::DeviceFailed { reason } => *reason,
            Error::WrongVersion { .. } => Reason::WrongVersion,
            Error::NotLeader { leader: Some(_) } | Error::NotMember => Reason::Elsewhere,
            Error::NotLeader { leader: None } | Error::NoAnswer => Reason::Unavailable,
            Error::BadChange { .. } => Reason::InvalidArgument,
            Error::Changing | Error::NotCaughtUp { .. } => Reason::Busy,
            Error::BadMessage { .. } => Reason::BadFrame,
            Error::BadRecord { .. }
            | Error::Contradicted { .. }
            | Error::JournalBehind { .. }
            | Error::EndMissing { .. }
            | Error::NeverBegun
            | Error::Missing { .. }
            | Error::NoSegment { .. }
            | Error::Damaged { .. }
            | Error::HeaderDamaged { .. }
            | Error::FileBeforeMissing { .. }
            | Error::FileMissing { .. }
            | Error::Truncated { .. }
            | Error::DataMissing { .. } => Reason::Corrupt,
            Error::Source(fault) => fault.reason,
        }
    }

    /// True if records are lost, and [`RaftMember::salvage`](crate::RaftMember::salvage) reads what is left.
    pub fn is_loss(&self) -> bool {
        match self {
            Error::Damaged { .. }
            | Error::HeaderDamaged { .. }
            | Error::FileBeforeMissing { .. }
            | Error::FileMissing { .. }
            | Error::Truncated { .. }
            | Error::DataMissing { .. }
            | Error::JournalBehind { .. }
            | Error::EndMissing { .. }
            | Error::NoSegment { .. }
            | Error::NeverBegun => true,
            Error::BadRecord { what, .. } => *what != OTHER_BUILD,
            // Of `Missing`, the journal is whole and the store lacks entries: nothing has them.
            _ => false,
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
