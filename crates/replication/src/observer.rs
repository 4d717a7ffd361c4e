//! What has to happen before bytes are seen by every reader.

use frieze_base::{InodeId, Seq, SessionId};

/// Hears of bytes before a reader can see them, so that whoever caches the state before is recalled first.
pub trait PublishObserver: Send + Sync {
    /// A request is about to show new bytes of a file. Until [`PublishObserver::published`] the state before is given
    /// to no cache. One at a time: the appender is held.
    fn publishing(&self, by: (SessionId, Seq), inode: InodeId);

    /// The same of writes that waited for the disk.
    fn publishing_all(&self, writes: &mut dyn Iterator<Item = ((SessionId, Seq), InodeId)>);

    /// The bytes are visible.
    fn published(&self);
}

/// Bytes are about to be visible; dropped, they are.
pub(crate) struct Publishing<'a>(&'a dyn PublishObserver);

impl<'a> Publishing<'a> {
    pub(crate) fn of(observer: &'a dyn PublishObserver, by: (SessionId, Seq), inode: InodeId) -> Publishing<'a> {
        observer.publishing(by, inode);
        Publishing(observer)
    }

    pub(crate) fn of_all(
        observer: &'a dyn PublishObserver,
        mut writes: impl Iterator<Item = ((SessionId, Seq), InodeId)>,
    ) -> Publishing<'a> {
        observer.publishing_all(&mut writes);
        Publishing(observer)
    }
}

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        self.0.published();
    }
}
