//! The journal is flushed.

use std::sync::Arc;

use frieze_base::{Fault, LogIndex, Reason};
use frieze_disk::DiskFile;
use frieze_metalog::MemberInput;

use super::super::state::AppliedState;
use super::driver::RaftDriver;

impl RaftDriver {
    /// The files of the journal.
    pub(crate) fn journal_files(&self) -> Vec<Arc<dyn DiskFile>> {
        self.lock().journal.files()
    }

    /// The last record written, which a flush that begins now covers.
    pub(crate) fn written(&self) -> LogIndex {
        self.lock().written
    }

    /// True if something of the journal is to be flushed, or the member has failed.
    pub(crate) fn is_unflushed(&self) -> bool {
        let core = self.lock();
        core.written > core.persisted || core.failed.is_some()
    }

    /// True if it may be of an entry that names data: those come to stable storage before.
    pub(crate) fn unflushed_names_data(&self) -> bool {
        let core = self.lock();
        core.names_data > core.persisted
    }

    /// Makes the journal durable up to the record `through`, or all of it.
    ///
    /// # Errors
    /// The disk's, now or before: the member is silent.
    pub(crate) fn flush(&self, state: &AppliedState, through: Option<LogIndex>) -> Result<(), Fault> {
        let _one = self.flushing.lock();
        let (through, unflushed) = {
            let mut core = self.lock();
            if let Some(fault) = &core.failed {
                return Err(fault.clone());
            }
            let through = through.unwrap_or(core.written);
            if through <= core.persisted {
                return Ok(());
            }
            (through, core.journal.take_unflushed())
        };
        let flushed = unflushed.flush().and_then(|()| self.note_flushed(through));
        let mut core = self.lock();
        match &flushed {
            Ok(()) => {
                core.persisted = core.persisted.max(through);
                self.feed(&mut core, state, MemberInput::Persisted { record: through });
            }
            Err(fault) => self.feed(&mut core, state, MemberInput::DeviceFailed { reason: fault.reason }),
        }
        flushed
    }

    /// The device of the data can no longer keep what it is given: neither can this member.
    pub(crate) fn device_failed(&self, state: &AppliedState, reason: Reason) {
        self.feed(&mut self.lock(), state, MemberInput::DeviceFailed { reason });
    }
}
