//! Hook of the cache leases: called before new bytes become visible to readers.

use frieze_base::{InodeId, Seq, SessionId};

/// Observer of writes before they become visible: it recalls the caches that have the old state.
pub trait PublishObserver: Send + Sync {
    /// A request is about to show new bytes of a file. Until [`PublishObserver::published`] no cache receives the old
    /// state. One request at a time: the caller holds the appender's lock.
    fn publishing(&self, by: (SessionId, Seq), inode: InodeId);

    /// The same for writes that waited for the disk.
    fn publishing_all(&self, writes: &mut dyn Iterator<Item = ((SessionId, Seq), InodeId)>);

    /// The bytes are visible.
    fn published(&self);
}

/// Guard of bytes that are about to be visible; dropped when they are.
pub(crate) struct PublishGuard<'a>(&'a dyn PublishObserver);

impl<'a> PublishGuard<'a> {
    pub(crate) fn of(observer: &'a dyn PublishObserver, by: (SessionId, Seq), inode: InodeId) -> PublishGuard<'a> {
        observer.publishing(by, inode);
        PublishGuard(observer)
    }

    pub(crate) fn of_all(
        observer: &'a dyn PublishObserver,
        mut writes: impl Iterator<Item = ((SessionId, Seq), InodeId)>,
    ) -> PublishGuard<'a> {
        observer.publishing_all(&mut writes);
        PublishGuard(observer)
    }
}

impl Drop for PublishGuard<'_> {
    fn drop(&mut self) {
        self.0.published();
    }
}
