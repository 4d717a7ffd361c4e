//! What callers of [`crate::CacheLeases`] name: keys, answers, polls, effects, and the settings.

use frieze_base::{InodeId, Seq, SessionId};

/// Bounds and times.
#[derive(Clone, Copy, Debug)]
pub struct CacheLeaseSettings {
    /// Lifetime of grants without a poll of their session. More: a caching client polls less often. Less: a change
    /// waits less for a session that is dead or stopped.
    pub lease_ns: u64,
    /// A poll is answered after this long without a recall, in nanoseconds.
    pub(crate) renew_ns: u64,
    /// How long a contended key stays hot, in nanoseconds.
    pub(crate) hot_ns: u64,
    /// Most grants of one session in one generation: 16 bytes each.
    pub(crate) grants_max: usize,
    /// Most recalls in flight to one session; beyond, everything is recalled at once.
    pub(crate) recalls_max: usize,
    /// Most hot keys; beyond, no grants are made for a while.
    pub(crate) hot_max: usize,
}

impl Default for CacheLeaseSettings {
    fn default() -> CacheLeaseSettings {
        CacheLeaseSettings {
            lease_ns: 10_000_000_000,
            renew_ns: 1_000_000_000,
            hot_ns: 1_000_000_000,
            grants_max: 1 << 20,
            recalls_max: 4096,
            hot_max: 1 << 16,
        }
    }
}

/// Key of a grant, one word, so that a grant is two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey(pub(crate) u64);

impl CacheKey {
    /// The names of a directory.
    pub fn names(directory: InodeId) -> CacheKey {
        CacheKey(directory.0 << 1 | 1)
    }

    /// Attributes and bytes of an inode.
    pub fn inode(id: InodeId) -> CacheKey {
        CacheKey(id.0 << 1)
    }

    pub(crate) fn inode_id(self) -> u64 {
        self.0 >> 1
    }

    pub(crate) fn is_names(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Keys whose state an answer shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerKeys {
    /// Keys that were read.
    pub keys: Vec<CacheKey>,
    /// The answer shows more than `keys`.
    pub everything: bool,
}

/// A request: the cause of a due, and what waits for dues.
pub type RequestKey = (SessionId, Seq);

/// An answer that waits for dues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnswerTicket(pub u64);

/// A poll that waits for recalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PollId(pub u64);

/// Effect that the caller carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEffect {
    /// Answer a poll.
    Tell {
        /// The poll.
        poll: PollId,
        /// Its answer.
        recall: Recall,
    },
    /// All dues that an answer waited for have ended.
    Release(AnswerTicket),
}

/// Cached state that a session must drop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recall {
    /// Number to acknowledge; 0 if there is nothing.
    pub number: u64,
    /// Drop everything.
    pub everything: bool,
    /// Names of these directories.
    pub directories: Vec<u64>,
    /// Attributes and bytes of these inodes.
    pub files: Vec<u64>,
    /// Waits for locks that were granted.
    pub locked: Vec<u64>,
}
