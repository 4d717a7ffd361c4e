//! Ends the sessions whose clients are silent for longer than the timeout.

use frieze_base::{ErrorKind, Fault, Reason};

use super::Upkeep;

impl Upkeep {
    /// Ends sessions without a connection for longer than the timeout, on the server that orders changes; another
    /// server reports to it which sessions are connected here. To be called about twice a second.
    ///
    /// # Errors
    /// The disk's.
    pub fn end_expired_sessions(&self) -> Result<(), Fault> {
        let mut failed = Ok(());
        let timeout_ns = self.planes.settings.session_timeout.as_nanos() as u64;
        // The server that orders changes ends sessions.
        let now = self.planes.clock.reading().mono;
        let expired = match self.planes.meta.leads() {
            true => self.sessions.table.expired(now, timeout_ns),
            false => {
                self.sessions.report_attached(now, timeout_ns);
                Vec::new()
            }
        };
        for session in expired {
            // Ending one takes a while: the client of the next may be back by then.
            if !self.sessions.table.has_expired(session, self.planes.clock.reading().mono, timeout_ns) {
                continue;
            }
            match self.write.end_expired(session) {
                Ok(()) => {}
                Err(fault) if fault.reason == Reason::UnknownSession => self.sessions.table.forget(session),
                // The disk refuses the write: report it.
                Err(fault) if fault.reason == Reason::InputOutput => failed = failed.and(Err(fault)),
                // No other server answers, or another leads, or the clock is not trusted: tried again.
                Err(fault) if matches!(fault.kind(), ErrorKind::Unavailable | ErrorKind::Conflict) => {}
                Err(fault) => failed = failed.and(Err(fault)),
            }
        }
        failed
    }
}
