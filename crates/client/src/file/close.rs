//! Closing a file: its length is settled and the right to write it is returned.

use frieze_trace::CallKind;
use frieze_wire::message::Durability;
use frieze_wire::txn::{Op, Settle};

use crate::Error;
use crate::close::start_settling;
use crate::file::File;

/// What the session holds after a file is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettleMode {
    /// The grants, which other handles use.
    KeepGrant,
    /// Nothing.
    ReleaseGrant,
}

/// Whether there is a length to settle or only a grant to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteState {
    Dirty,
    Clean,
}

impl File {
    /// Closes the file. If it was written to, its length is settled when this returns. If not, its unused grant is
    /// returned a moment later, together with those of other files.
    ///
    /// # Errors
    /// As any call, for this file or those that were closed just before it. The file is closed all the same, and
    /// nothing that was acknowledged is lost.
    pub fn close(mut self) -> Result<(), Error> {
        let shared = self.shared.clone();
        let scope = shared.scope(CallKind::Close);
        scope.inode(self.inode.0);
        match self.release() {
            Some((mode, WriteState::Dirty)) => self.settle(mode),
            // An unused grant is no different from one that was taken back, so no call has to wait for its return. But
            // others may write to a file of rows only when its writer has settled it.
            Some((mode, WriteState::Clean)) if !self.has_user_time() => self.settle_later(mode),
            Some((mode, WriteState::Clean)) if !self.defer_settle(mode) => self.settle(mode),
            _ => Ok(()),
        }
    }

    /// As [`File::close`], but a written file may be settled later, too, together with others closed in the same
    /// moment. If the request is lost with the connection, the end of the session settles the file.
    ///
    /// # Errors
    /// As [`File::close`], for this file or those that were closed just before it.
    pub fn close_later(mut self) -> Result<(), Error> {
        let shared = self.shared.clone();
        let scope = shared.scope(CallKind::Close);
        scope.inode(self.inode.0);
        match self.release() {
            // Others may write to a file of rows only when its writer has settled it.
            Some((mode, _)) if !self.has_user_time() && self.shared.is_busy() => self.settle_later(mode),
            Some((mode, _)) if !self.defer_settle(mode) => self.settle(mode),
            _ => Ok(()),
        }
    }

    /// Ends this handle's part in writing, once. Returns what is to be settled, if anything.
    fn release(&mut self) -> Option<(SettleMode, WriteState)> {
        let grants = self.grants.take()?;
        let (is_dirty, holds_any) = (grants.take_dirty(), grants.holds_any());
        let settles = (is_dirty || holds_any) && !self.shared.servers.age().is_alone();
        let is_last = self.shared.grants.release(self.inode, settles);
        let mode = if is_last { SettleMode::ReleaseGrant } else { SettleMode::KeepGrant };
        match (is_dirty, mode) {
            (true, mode) => Some((mode, WriteState::Dirty)),
            (false, SettleMode::ReleaseGrant) if holds_any => Some((mode, WriteState::Clean)),
            _ => None,
        }
    }

    pub(crate) fn settle(&self, mode: SettleMode) -> Result<(), Error> {
        let op = Op::Settle(self.settlement(mode));
        let settled = self.shared.change(self.caller.as_ref(), Durability::Async, op).map(|_| ());
        if mode == SettleMode::ReleaseGrant {
            self.shared.grants.settled([self.inode]);
        }
        settled
    }

    /// Settles together with other files that are closed now.
    fn settle_later(&self, mode: SettleMode) -> Result<(), Error> {
        if !*self.shared.is_settling.get_or_init(|| start_settling(&self.shared)) {
            return if self.defer_settle(mode) { Ok(()) } else { self.settle(mode) };
        }
        match self.shared.close_queue.add(self.caller.as_ref(), self.settlement(mode)) {
            Some(batch) => self.shared.settle(&batch),
            None => Ok(()),
        }
    }

    /// Settles without waiting for the reply, if no call has to.
    fn defer_settle(&self, mode: SettleMode) -> bool {
        let op = || Op::Settle(self.settlement(mode));
        self.shared.servers.age().is_alone() && self.shared.defer(self.caller.as_ref(), &op())
    }

    fn settlement(&self, mode: SettleMode) -> Settle {
        Settle { inode: self.inode.0, keep_grant: mode == SettleMode::KeepGrant, ..Settle::default() }
    }
}

impl Drop for File {
    /// Settles without waiting. If the request is lost, the end of the session settles the file.
    fn drop(&mut self) {
        if let Some((mode, _)) = self.release()
            && !self.defer_settle(mode)
            && !self.shared.servers.age().is_alone()
            && let Err(error) = self.settle(mode)
        {
            tracing::debug!("a file is settled at the end of the session: {error}");
        }
        if self.view.at.is_none() {
            self.shared.open_files.remove(self.inode);
        }
    }
}
