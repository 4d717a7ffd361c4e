//! The reasons why rows and records of user time were refused. A program gets an errno; people find the reason in an
//! extended attribute of the file, and in one line of the mount's log.
//!
//! Guarantees: the words are those of the newest refusal by this mount, until a write of the file is taken; memory and
//! log are bounded.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::{FastMap, InodeId, MonoTime, Reason};
use frieze_client::{Error, mono};

/// The extended attribute. It is read by name and not listed, so that no copy takes it along.
pub(crate) const REFUSED_XATTR: &[u8] = b"user.frieze.refused";

/// Files of which a refusal is remembered.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<FastMap<InodeId, TimeRefusal>>);

struct TimeRefusal {
    words: String,
    at: MonoTime,
    logged: MonoTime,
}

impl Refusals {
    /// A write of a file with user time was not taken.
    pub(crate) fn note(&self, inode: InodeId, error: &Error) {
        if !matches!(
            error.reason(),
            Reason::InvalidArgument | Reason::BackwardUserTime | Reason::NoUserTime | Reason::Busy
        ) {
            return;
        }
        let (words, now) = (error.to_string(), mono());
        let mut files = self.lock();
        let before = files.get(&inode);
        let is_new = before.is_none_or(|before| {
            before.words != words || Duration::from_nanos(now.since_ns(before.logged)) >= LOG_EVERY
        });
        if is_new {
            tracing::warn!("a write to inode {inode} was refused: {words}");
        }
        let logged = before.filter(|_| !is_new).map_or(now, |before| before.logged);
        if before.is_none() && files.len() >= FILES_MAX {
            let oldest = files.iter().min_by_key(|(_, refusal)| refusal.at).map(|(inode, _)| *inode);
            oldest.and_then(|oldest| files.remove(&oldest));
        }
        files.insert(inode, TimeRefusal { words, at: now, logged });
    }

    /// A write of it was taken.
    pub(crate) fn clear(&self, inode: InodeId) {
        self.lock().remove(&inode);
    }

    /// Why the last write of the file was refused.
    pub(crate) fn words(&self, inode: InodeId) -> Option<Vec<u8>> {
        self.lock().get(&inode).map(|refusal| refusal.words.clone().into_bytes())
    }

    fn lock(&self) -> MutexGuard<'_, FastMap<InodeId, TimeRefusal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Files whose refusals are remembered: beyond them the oldest is dropped.
const FILES_MAX: usize = 1024;
/// The same words of the same file are logged once in so long.
const LOG_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use frieze_base::Fault;

    use super::*;

    #[test]
    fn the_newest_refusals_are_remembered_until_a_write_is_taken() {
        let refusals = Refusals::default();
        let refused = |reason, words: &str| Error::Refused(Fault::new(reason, words.to_owned()));
        for inode in 0..2 * FILES_MAX as u64 {
            refusals.note(InodeId(inode), &refused(Reason::BackwardUserTime, "too early"));
        }
        assert_eq!(refusals.lock().len(), FILES_MAX);
        let last = InodeId(2 * FILES_MAX as u64 - 1);
        let words = String::from_utf8(refusals.words(last).unwrap_or_default()).unwrap_or_default();
        assert!(words.contains("too early"), "{words}");
        assert_eq!(refusals.words(InodeId(0)), None, "the oldest went");
        // A full disk is no fault of the row.
        refusals.clear(last);
        refusals.note(last, &refused(Reason::NoSpace, "full"));
        assert_eq!(refusals.words(last), None);
    }
}
