//! Appends of all writers: those of this node's clients, and the records of predecessors.
//!
//! Guarantees: the bytes of a large group are copied without the appender's lock; a group is published, and completed
//! by its caller, under one hold of the lock, in the order of the places; caches are recalled before its bytes are
//! visible. Leaves to others: the order of the places (the caller reserves under the lock), the log (`storage`).

use frieze_base::{Fault, InodeId, Reason, Seq, SessionId};
use frieze_locks::MutexGuard;
use frieze_multilog::LogPosition;
use frieze_wire::chain::RecordHeader;

use crate::appender::Appender;
use crate::observer::PublishGuard;
use crate::plane::DataPlane;

/// Smallest group whose bytes are copied without the appender's lock: a copy of this size takes about ten
/// microseconds, a lock that another thread waits for about as long.
const UNLOCKED_BYTES_MIN: usize = if cfg!(test) { 512 } else { 64 << 10 };

/// Records that become visible together, each with its payload.
pub(crate) struct RecordGroup<'a> {
    pub(crate) request: (SessionId, Seq),
    pub(crate) inode: InodeId,
    pub(crate) headers: &'a [RecordHeader],
    pub(crate) payloads: &'a [&'a [u8]],
    /// Checksums of the blocks of each payload.
    pub(crate) block_crcs: &'a [Vec<u32>],
}

/// The appender's lock after an append, for the steps that complete it. [`DataPlane::end_append`] ends it.
#[must_use = "other writes wait for its end"]
pub(crate) struct AppendLock<'a> {
    pub(crate) appender: MutexGuard<'a, Appender>,
    publishing: Option<PublishGuard<'a>>,
    /// The file whose write was copied without the lock.
    filled: Option<InodeId>,
}

impl DataPlane {
    /// Appends a group whose replicas expect it, and makes it visible. If `is_beside`, the caller has the lock beside
    /// writes of other files ([`DataPlane::lock_beside_fills`]), and the lock may be free while the bytes are copied.
    /// `is_expected` says after a wait whether the replicas still expect the group.
    ///
    /// # Errors
    /// As [`frieze_storage::Device::append`], and `InputOutput` if the group is not expected any more. Nothing is
    /// visible.
    pub(crate) fn append<'a>(
        &'a self,
        mut appender: MutexGuard<'a, Appender>,
        group: &RecordGroup<'_>,
        is_beside: bool,
        is_expected: impl Fn(&Appender) -> bool,
    ) -> (Result<LogPosition, Fault>, AppendLock<'a>) {
        let bytes: usize = group.payloads.iter().map(|payload| payload.len()).sum();
        if !is_beside || bytes < UNLOCKED_BYTES_MIN && appender.fills.is_empty() {
            let publishing = self.publish_guard(group);
            let appended = self.device.append(group.headers, group.payloads, group.block_crcs);
            return (appended, AppendLock { appender, publishing, filled: None });
        }
        appender.fills.begin(group.inode);
        let reserved = loop {
            match self.device.reserve(group.headers) {
                Ok(Some(reserved)) => break Ok(reserved),
                // Others have to end first. No write is stamped meanwhile: places have the order of stamps.
                Ok(None) => {
                    appender = self.await_fills(appender, 1);
                    if !is_expected(&appender) {
                        let words = "the write before it in its chain failed, and this one with it: retry";
                        break Err(Fault::new(Reason::InputOutput, words));
                    }
                }
                Err(fault) => break Err(fault),
            }
        };
        let filled = Some(group.inode);
        match reserved {
            Ok(mut reserved) => {
                drop(appender);
                self.device.fill(&mut reserved, group.payloads, group.block_crcs);
                self.device.await_turn(&reserved);
                let appender = self.lock_among_fills();
                let publishing = self.publish_guard(group);
                (self.device.publish(reserved), AppendLock { appender, publishing, filled })
            }
            Err(fault) => (Err(fault), AppendLock { appender, publishing: None, filled }),
        }
    }

    /// Ends an append that is completed or withdrawn.
    pub(crate) fn end_append(&self, lock: AppendLock<'_>) {
        let AppendLock { mut appender, publishing, filled } = lock;
        drop(publishing);
        let Some(inode) = filled else { return };
        appender.fills.end(inode);
        drop(appender);
        self.fill_ended.notify_all();
    }

    /// The observer recalls caches before the bytes become visible. The caller has the appender's lock until it is
    /// dropped.
    fn publish_guard(&self, group: &RecordGroup<'_>) -> Option<PublishGuard<'_>> {
        self.observer.get().map(|observer| PublishGuard::of(&**observer, group.request, group.inode))
    }
}
