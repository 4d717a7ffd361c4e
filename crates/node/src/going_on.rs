//! Writes of a door that go on where its last one ended, as the engine sees them.
//!
//! Whoever streams into a file sends one small write after the other, and each is allowed for the reasons that the one before was. So
//! what that looked at is noted: which transactions had been executed, and, in the data plane, who had held the appender. While
//! both are as they were, only what can change by itself is looked at: whether the server still takes changes, whether the disk
//! keeps up, whether somebody caches the file. Everything else goes the usual way ([`Engine::handle`]), and so does what is refused
//! here, so that it is refused in the usual words.

use frieze_hlc::Hlc;
use frieze_net::WriteOn;

use crate::data::{Ended, GoOn};
use crate::engine::{Engine, Scratch};

/// What the last write of a connection found, and where it ended.
pub(crate) struct GoesOn {
    /// Everything executed when it began to look.
    pub(crate) executed: Hlc,
    pub(crate) ended: Ended,
}

impl Engine {
    /// Writes on where the last write of the connection of `scratch` ended. `None`: nothing has happened, and the write is to go the
    /// usual way.
    pub fn write_on(&self, scratch: &mut Scratch, ask: &WriteOn<'_>) -> Option<Hlc> {
        let on = scratch.goes_on.as_mut()?;
        // What was shown last may be of a read, and of another file.
        let (session, inode) = on.ended.of();
        let is_shown = ask.session == session && scratch.shown.writes(ask.capability, session, inode);
        let takes_changes = self.check_changeable().is_ok() && self.hold_back().is_ok();
        if !is_shown || !takes_changes {
            return None;
        }
        let executed = on.executed;
        let still = || self.meta.executed() == executed;
        let &WriteOn { seq, acked, seen, offset, payload, crc, .. } = ask;
        self.data.go_on(&mut on.ended, &GoOn { seq, acked, seen, offset, payload, crc, still: &still })
    }
}
