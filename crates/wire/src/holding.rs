//! State that a session has at the server for a while: cache grants and their recalls, locks on files.
//!
//! A client asks for grants by the `holds` of a request's header and learns from the answer's how long it may be
//! cached. It keeps one [`Recalls`] waiting at the server, on a connection of its own: the answer lists what must not
//! be used any more, and the next [`Recalls`] acknowledges it.

/// Renews the lease of the session's grants and waits for recalls, a second at most.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Recalls {
    /// Everything recalled under numbers up to it is dropped, and used no more.
    #[prost(uint64, tag = "1")]
    pub acked: u64,
    /// Life of the server that gave `acked`; 0 at first. A server of another life recalls everything.
    #[prost(uint64, tag = "2")]
    pub life: u64,
    /// Number of the list `open`, which rises from list to list; 0: there is none.
    #[prost(uint64, tag = "3")]
    pub list: u64,
    /// Every file that the session has open: a file that it opened and does not list is closed.
    #[prost(uint64, repeated, tag = "4")]
    pub open: Vec<u64>,
}

/// Grants that are recalled.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RecallsReply {
    /// To be acknowledged; 0 if nothing is recalled.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// Identifies this run of the server: after a restart, locks have to be claimed again.
    #[prost(uint64, tag = "2")]
    pub life: u64,
    /// How long the grants live, counted from when the question was sent.
    #[prost(uint32, tag = "3")]
    pub lease_ms: u32,
    /// Everything that was granted is recalled.
    #[prost(bool, tag = "4")]
    pub everything: bool,
    /// Directories whose names are recalled.
    #[prost(uint64, repeated, tag = "5")]
    pub directories: Vec<u64>,
    /// Inodes whose attributes and bytes are recalled.
    #[prost(uint64, repeated, tag = "6")]
    pub files: Vec<u64>,
    /// Locks that were waited for and are granted now, by the client's number.
    #[prost(uint64, repeated, tag = "7")]
    pub locked: Vec<u64>,
}

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum LockKind {
    /// Shared: keeps out exclusive ones.
    Shared = 0,
    /// Excludes all other locks.
    Exclusive = 1,
    /// None: the owner's locks of the range are released.
    Unlock = 2,
}

/// A range of a file that an owner locks. One table for fcntl(2) and flock(2), as on NFS.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LockRange {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// The owner within the session: the kernel's lock owner.
    #[prost(uint64, tag = "2")]
    pub owner: u64,
    /// The kind.
    #[prost(enumeration = "LockKind", tag = "3")]
    pub kind: i32,
    /// First byte.
    #[prost(uint64, tag = "4")]
    pub start: u64,
    /// Last byte, inclusive.
    #[prost(uint64, tag = "5")]
    pub end: u64,
    /// Process that asks, for processes that test the lock.
    #[prost(uint32, tag = "6")]
    pub pid: u32,
}

/// Locks or unlocks a range.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Lock {
    /// The range.
    #[prost(message, required, tag = "1")]
    pub range: LockRange,
    /// Not 0: wait in line if the range is locked, under this number of the session's choice; [`RecallsReply`] reports
    /// the grant. 0: do not wait.
    #[prost(uint64, tag = "2")]
    pub wait: u64,
    /// The lock was granted by an earlier run of the server.
    #[prost(bool, tag = "3")]
    pub again: bool,
}

/// Outcome of a lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum LockOutcome {
    /// Granted, or for an unlock: released.
    Held = 0,
    /// It is waited for.
    Waiting = 1,
    /// The range is locked, and waiting was not asked for.
    Refused = 2,
    /// Waiting would never end: the owner of the lock waits for this owner.
    Deadlock = 3,
    /// The wait is over without the lock.
    Cancelled = 4,
    /// There is no room for another lock or wait.
    Full = 5,
}

/// The outcome.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LockReply {
    /// See [`LockOutcome`].
    #[prost(enumeration = "LockOutcome", tag = "1")]
    pub outcome: i32,
}

/// Asks which lock prevents a range from being locked.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TestLock {
    /// The range to lock.
    #[prost(message, required, tag = "1")]
    pub range: LockRange,
}

/// The conflicting lock.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TestLockReply {
    /// The first lock in the way; absent if there is none. `pid` is 0 if it is another session's.
    #[prost(message, optional, tag = "1")]
    pub held: Option<LockRange>,
}

/// Waits no longer.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CancelLock {
    /// Number of the wait. A lock that was granted since is kept: the answer reports it.
    #[prost(uint64, tag = "1")]
    pub wait: u64,
}
