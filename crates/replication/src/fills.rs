//! The writes whose bytes are copied outside of the appender's lock (`appender_lock`).

use frieze_base::InodeId;

/// The writes that are under way, by their files.
#[derive(Default)]
pub(crate) struct Fills {
    pub(crate) open: Vec<InodeId>,
    /// Threads that wait until all have ended: no further write begins.
    pub(crate) closers: usize,
}

impl Fills {
    /// True if no write is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// A write begins. Its file is that of no other.
    pub(crate) fn begin(&mut self, inode: InodeId) {
        assert!(!self.open.contains(&inode), "two writes of one file are under way");
        self.open.push(inode);
    }

    /// A write has ended, published or not.
    pub(crate) fn end(&mut self, inode: InodeId) {
        let at = self.open.iter().position(|open| *open == inode).expect("a write that has begun");
        self.open.swap_remove(at);
    }
}
