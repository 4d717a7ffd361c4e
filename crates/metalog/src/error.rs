//! Why the log refuses, or cannot be recovered.

use frieze_base::{ErrorKind, Fault, LogIndex, NodeId, Reason, SegmentId};
use frieze_hlc::Hlc;

use crate::message::DataEnd;

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
        "metalog segment {segment} has format version {found}, this build of frieze reads {expected} only: read it \
         with the build that wrote it"
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
        "metalog segment {segment} is damaged at byte {offset}: record {record} was on stable storage and fails its \
         checksum"
    )]
    Damaged {
        /// The segment.
        segment: SegmentId,
        /// Where in it.
        offset: u64,
        /// The record expected there.
        record: LogIndex,
    },
    /// A file is shorter than it was made.
    #[error("metalog segment {segment} has {found} bytes and was made with {expected}: it has been truncated")]
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
            | Error::NeverBegun
            | Error::Missing { .. }
            | Error::NoSegment { .. }
            | Error::Damaged { .. }
            | Error::Truncated { .. }
            | Error::DataMissing { .. } => Reason::Corrupt,
            Error::Source(fault) => fault.reason,
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
