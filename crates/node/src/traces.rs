//! Which sessions have left nothing that can still be read, so that what they called themselves may go; and the end of
//! those that changed nothing.
//!
//! Guarantees: a session that is named here has ended, and every change of it lies before the horizon of what it
//! changed, at every instant that is kept, those of snapshots included. Leaves to others: giving the words up
//! (`namespace`).

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::Expiries;
use frieze_wire::forget::ForgottenSession;
use frieze_wire::txn::{EraseSessions, Op, Outcome};
use tracing::debug;

use crate::engine::Engine;
use crate::session::Principal;
use frieze_metadata::InodeHome;

/// Sessions whose words one forgetting gives up; the next one gives up more.
const SESSIONS_FORGOTTEN_MAX: usize = 65_536;
/// Transactions that erase sessions, one after the other: all that there can be.
const ERASURES_MAX: usize = 16;
/// Sessions read at once.
const PAGE: usize = 4096;

/// True of an inode that a forgetting is about.
type IsAbout<'a> = dyn Fn(InodeId, InodeHome) -> bool + 'a;

/// A session that has ended, by its number: when, and its user.
type Ended = BTreeMap<SessionId, (Hlc, u32)>;

impl Engine {
    /// Sessions that ended before `before` and changed nothing that `horizons` leave readable: those that changed
    /// something that `is_about` is true of; without it all. A user forgets the user's own.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// A pass over the sessions there ever were; if one has ended and still has its words, over the versions of all
    /// inodes.
    pub(crate) fn without_trace(
        &self,
        horizons: &Expiries,
        before: Hlc,
        principal: &Principal,
        is_about: Option<&IsAbout<'_>>,
    ) -> Result<Vec<ForgottenSession>, Fault> {
        let ended = self.ended_with_words(before, principal)?;
        if ended.is_empty() {
            return Ok(Vec::new());
        }
        let (mut about, mut readable) = (BTreeSet::new(), BTreeSet::new());
        self.meta.history().visit_authors(&mut |id, home, sessions| {
            for session in sessions {
                let Some((until, _)) = ended.get(session) else { continue };
                if is_about.is_none_or(|is_about| is_about(id, home)) {
                    about.insert(*session);
                }
                if is_shown(horizons, (id, home), *until) {
                    readable.insert(*session);
                }
            }
        })?;
        let is_forgotten = |id: &SessionId| (is_about.is_none() || about.contains(id)) && !readable.contains(id);
        let forgotten = ended.into_iter().filter(|(id, _)| is_forgotten(id));
        let forgotten = forgotten.map(|(id, (_, uid))| ForgottenSession { id: id.0, uid });
        Ok(forgotten.take(SESSIONS_FORGOTTEN_MAX).collect())
    }

    /// Erases sessions that changed nothing and ended so long ago that they are listed no more. For who orders changes.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn erase_sessions(&self) -> Result<(), Fault> {
        if !self.meta.leads() {
            return Ok(());
        }
        let kept_us = self.settings.ended_sessions_kept.as_micros() as u64;
        let before = Hlc::first_of_micros(self.clock.now().micros().saturating_sub(kept_us));
        for _ in 0..ERASURES_MAX {
            if !self.meta.has_ended_before(before) {
                break;
            }
            let op = Op::EraseSessions(EraseSessions { before: before.0 });
            match self.meta.execute(self.own(SessionId(0), op), None).and_then(Outcome::into_result) {
                Ok(_) => {}
                Err(fault) if fault.reason == Reason::InputOutput => return Err(fault),
                // Another leads, a clock is not trusted, or the device is full: it is tried again.
                Err(fault) => {
                    debug!("sessions that changed nothing stay for now: {fault}");
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sessions that the caller may forget, of which it is still known what they called themselves.
    fn ended_with_words(&self, before: Hlc, principal: &Principal) -> Result<Ended, Fault> {
        let mut ended = Ended::new();
        let mut after = SessionId(0);
        loop {
            let page = self.meta.history().sessions(after, Hlc::ZERO, PAGE)?;
            let is_last = page.len() < PAGE;
            after = page.last().map_or(after, |last| last.id);
            for session in page {
                let may = principal.caller.uid == 0 || principal.caller.uid == session.uid;
                let has_words = !session.command.is_empty() || !session.host.is_empty();
                if let Some(at) = session.ended.filter(|at| *at < before && may && has_words) {
                    ended.insert(session.id, (at, session.uid));
                }
            }
            if is_last {
                return Ok(ended);
            }
        }
    }
}

/// True if what a session changed of an inode can be told: an instant before its last change can still be read, so that
/// a difference from there on may name it. What a file was is not told where its directory has forgotten it, whether
/// the file had something to lose or not.
fn is_shown(horizons: &Expiries, (id, home): (InodeId, InodeHome), until: Hlc) -> bool {
    let forgot =
        |id: InodeId| horizons.is_gone(id) || horizons.of(id).is_some_and(|forgotten| Hlc(forgotten.before) > until);
    let forgetful = if forgot(id) {
        id
    } else if !home.is_directory && forgot(home.parent) {
        home.parent
    } else {
        return true;
    };
    horizons.pins(forgetful).range(..until).next().is_some()
}
