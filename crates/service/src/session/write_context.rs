//! What the writes of one session to one file have in common, looked up once for many of them.
//!
//! Guarantees: a context is used only while names and inodes are as they were when it was made. Leaves to others: the
//! making of contexts, and the checks of a write (`write::bytes`).

use std::sync::Arc;

use frieze_base::{InodeId, SessionId};
use frieze_metadata::WriteTarget;
use frieze_planes::TreeBound;
use frieze_replication::Layout;

use frieze_usertime::TimePlugin;

/// A file as the writes of one session see it.
pub(crate) struct WriteContext {
    pub(crate) session: SessionId,
    pub(crate) inode: InodeId,
    pub(crate) target: WriteTarget,
    pub(crate) layout: Layout,
    pub(crate) plugin: Option<TimePlugin>,
    /// Bounds of what is stored of it.
    pub(crate) bounds: Vec<TreeBound>,
}

/// Contexts of the files that one connection wrote to last, the newest at the end.
#[derive(Default)]
pub(crate) struct WriteContexts(Vec<Arc<WriteContext>>);

/// Files that a connection writes to in turn without looking them up each time.
const CONTEXTS_MAX: usize = 8;

impl WriteContexts {
    /// The context of a session and a file, if names and inodes have not changed since it was made: `change_count` is
    /// that of now.
    pub(crate) fn find(&self, session: SessionId, inode: InodeId, change_count: u64) -> Option<Arc<WriteContext>> {
        let is_it = |context: &&Arc<WriteContext>| (context.session, context.inode) == (session, inode);
        let context = self.0.iter().rev().find(is_it)?;
        (context.target.change_count == change_count).then(|| context.clone())
    }

    /// Adds a context in place of an earlier one of its session and file, or of the oldest.
    pub(crate) fn add(&mut self, context: &Arc<WriteContext>) {
        if self.0.last().is_some_and(|last| Arc::ptr_eq(last, context)) {
            return;
        }
        self.0.retain(|other| (other.session, other.inode) != (context.session, context.inode));
        if self.0.len() >= CONTEXTS_MAX {
            self.0.remove(0);
        }
        self.0.push(context.clone());
    }
}

#[cfg(test)]
mod tests {
    use frieze_metadata::ChunkLayout;
    use frieze_wire::message::FileKind;

    use super::*;

    fn context(session: u64, inode: u64, change_count: u64) -> Arc<WriteContext> {
        let layout = Layout { chunk_bytes: 1 << 20, chain_count: 4, inode: InodeId(inode) };
        let target = WriteTarget {
            kind: FileKind::File,
            layout: ChunkLayout { chunk_bytes: 1 << 20, chain_count: 4 },
            timed: None,
            granted: std::iter::once(0..1).collect(),
            is_open: true,
            reaches_from: None,
            origin: None,
            times_after: frieze_hlc::Hlc::ZERO,
            change_count,
        };
        let (session, inode) = (SessionId(session), InodeId(inode));
        Arc::new(WriteContext { session, inode, target, layout, plugin: None, bounds: Vec::new() })
    }

    #[test]
    fn a_context_is_found_by_its_session_and_file_until_something_changes() {
        let mut contexts = WriteContexts::default();
        contexts.add(&context(1, 10, 5));
        contexts.add(&context(2, 10, 5));
        let found = contexts.find(SessionId(1), InodeId(10), 5).expect("it was added");
        assert_eq!((found.session, found.inode), (SessionId(1), InodeId(10)));
        assert!(contexts.find(SessionId(1), InodeId(11), 5).is_none(), "another file");
        assert!(contexts.find(SessionId(3), InodeId(10), 5).is_none(), "another session");
        assert!(contexts.find(SessionId(1), InodeId(10), 6).is_none(), "a grant may have ended since");
        contexts.add(&context(1, 10, 6));
        assert!(contexts.find(SessionId(1), InodeId(10), 6).is_some());
        assert!(contexts.find(SessionId(1), InodeId(10), 5).is_none(), "there is one of each");
    }

    #[test]
    fn contexts_are_bounded_and_the_oldest_goes_first() {
        let mut contexts = WriteContexts::default();
        (0..2 * CONTEXTS_MAX as u64).for_each(|inode| contexts.add(&context(1, inode, 0)));
        assert_eq!(contexts.0.len(), CONTEXTS_MAX);
        let is_found = |inode| contexts.find(SessionId(1), InodeId(inode), 0).is_some();
        assert!(!is_found(CONTEXTS_MAX as u64 - 1) && is_found(CONTEXTS_MAX as u64));
    }
}
