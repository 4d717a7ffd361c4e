//! The lock of the appender, and the writes whose bytes are copied outside of it.
//!
//! Guarantees: the holder of [`DataPlane::lock_appender`] sees no such write under way, so everything stamped is in the
//! log; a write that is ordered beside others is in another file than each of them. Leaves to others: the place in the
//! log and the order in which records become visible (`storage`), the steps of a write (`write`).
//!
//! A write to a known offset within one chunk is stamped and gets its place in the log under the lock, gives the lock
//! back while its bytes are copied, and takes it again to publish; so does a record of a predecessor. Meanwhile only
//! such writes to other files are ordered, and messages handled that change nothing in the log. Any other holder of the
//! lock waits until all of them are published, and keeps new ones out until then.

use frieze_base::InodeId;
use frieze_locks::MutexGuard;

use crate::appender::Appender;
use crate::plane::DataPlane;

impl DataPlane {
    /// Locks out every write, and waits for those under way: for operations of the namespace that decide what present
    /// bytes are.
    #[track_caller]
    pub fn lock_appender(&self) -> MutexGuard<'_, Appender> {
        let appender = self.lock_among_fills();
        self.await_fills(appender, 0)
    }

    /// The lock for a write beside those that are under way in other files.
    pub(crate) fn lock_beside_fills(&self, inode: InodeId) -> MutexGuard<'_, Appender> {
        let waits = |appender: &mut Appender| appender.fills.closers > 0 || appender.fills.open.contains(&inode);
        self.fill_ended.wait_while(self.lock_among_fills(), waits)
    }

    /// The lock for a write that is under way, and for messages that a replica handles between the request for an
    /// append and its end. Writes may be under way.
    #[track_caller]
    pub(crate) fn lock_among_fills(&self) -> MutexGuard<'_, Appender> {
        self.appender.lock()
    }

    /// Waits until at most `own` writes are under way, those of the caller. No other begins meanwhile.
    pub(crate) fn await_fills<'a>(
        &'a self,
        mut appender: MutexGuard<'a, Appender>,
        own: usize,
    ) -> MutexGuard<'a, Appender> {
        if appender.fills.open.len() <= own {
            return appender;
        }
        appender.fills.closers += 1;
        let waits = |appender: &mut Appender| appender.fills.open.len() > own;
        let mut appender = self.fill_ended.wait_while(appender, waits);
        appender.fills.closers -= 1;
        // For writes that were kept out.
        self.fill_ended.notify_all();
        appender
    }
}
