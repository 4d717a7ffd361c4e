//! What a session holds of the server for a while: cache grants and their recalls, locks on files.
//!
//! A client asks for grants by the `holds` of a request's header and learns from the answer's how long it may be cached.
//! It keeps one [`Recalls`] waiting at the server, on a connection of its own: the answer says what must not be used any
//! more, and the next [`Recalls`] says that it is not.

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
    /// Every file that the session has open: what it opened and does not name is closed.
    #[prost(uint64, repeated, tag = "4")]
    pub open: Vec<u64>,
}

/// What is recalled.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RecallsReply {
    /// To be acknowledged; 0 if nothing is recalled.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// Names this life of the server: at another one, locks are to be asked for again.
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
    /// Locks waited for that are held now, by the number the client gave.
    #[prost(uint64, repeated, tag = "7")]
    pub locked: Vec<u64>,
}

/// What a lock keeps others from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum LockKind {
    /// Shared: keeps out exclusive ones.
    Shared = 0,
    /// Keeps out all others.
    Exclusive = 1,
    /// None: what the owner holds of the range goes.
    Unlock = 2,
}

/// A range of a file that an owner locks. One table for fcntl(2) and flock(2), as on NFS.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LockRange {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// Who, within the session: what the kernel calls the lock owner.
    #[prost(uint64, tag = "2")]
    pub owner: u64,
    /// What for.
    #[prost(enumeration = "LockKind", tag = "3")]
    pub kind: i32,
    /// First byte.
    #[prost(uint64, tag = "4")]
    pub start: u64,
    /// Last byte, inclusive.
    #[prost(uint64, tag = "5")]
    pub end: u64,
    /// Process that asks, for whoever tests the lock.
    #[prost(uint32, tag = "6")]
    pub pid: u32,
}

/// Locks or unlocks a range.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Lock {
    /// What.
    #[prost(message, required, tag = "1")]
    pub range: LockRange,
    /// Not 0: wait in line if it is held by others, under this number of the session's choice; [`RecallsReply`] tells
    /// when it is held. 0: do not wait.
    #[prost(uint64, tag = "2")]
    pub wait: u64,
    /// The lock was held in an earlier life of the server.
    #[prost(bool, tag = "3")]
    pub again: bool,
}

/// What became of a lock asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum LockOutcome {
    /// It is held, or for an unlock: not held any more.
    Held = 0,
    /// It is waited for.
    Waiting = 1,
    /// Others hold it, and waiting was not asked for.
    Refused = 2,
    /// Waiting would never end: whoever holds it waits for this owner.
    Deadlock = 3,
    /// The wait is over without the lock.
    Cancelled = 4,
    /// There is no room for another lock or wait.
    Full = 5,
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LockReply {
    /// See [`LockOutcome`].
    #[prost(enumeration = "LockOutcome", tag = "1")]
    pub outcome: i32,
}

/// Asks who keeps a range from being locked.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TestLock {
    /// What would be locked.
    #[prost(message, required, tag = "1")]
    pub range: LockRange,
}

/// Who keeps it.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TestLockReply {
    /// The first lock in the way; absent if there is none. `pid` is 0 if it is another session's.
    #[prost(message, optional, tag = "1")]
    pub held: Option<LockRange>,
}

/// Waits no longer.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CancelLock {
    /// Number of the wait. A lock held since is kept: the answer says so.
    #[prost(uint64, tag = "1")]
    pub wait: u64,
}
