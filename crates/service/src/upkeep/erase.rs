//! Sessions that left nothing readable, so that their host names and command lines may be erased; and the erasure of
//! sessions that changed nothing.
//!
//! Guarantees: a session that is named here has ended, and every change of it lies before the horizon of the changed
//! inode, at every readable instant, those of snapshots included.
//! Leaves to others: erasing the words (`namespace`).

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_metadata::InodeHome;
use frieze_namespace::Expiries;
use frieze_planes::Principal;
use frieze_wire::forget::ForgottenSession;
use frieze_wire::txn::{EraseSessions, Op, Outcome};
use tracing::debug;

use crate::upkeep::Upkeep;

/// Most sessions whose words one command erases; the next command erases more.
const SESSIONS_FORGOTTEN_MAX: usize = 65_536;
/// Most transactions that erase sessions, one after the other: there cannot be more.
const ERASURES_MAX: usize = 16;
/// Sessions read at once.
const PAGE: usize = 4096;

/// True for an inode that the command is about.
type IsAbout<'a> = dyn Fn(InodeId, InodeHome) -> bool + 'a;

/// Sessions that have ended, by number: end and user.
type Ended = BTreeMap<SessionId, (Hlc, u32)>;

impl Upkeep {
    /// Sessions that ended before `before` without a change that `horizons` leave readable: those that changed an inode
    /// for which `is_about` is true; without `is_about` all. A user erases only the user's own sessions.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// A pass over all sessions ever; if one has ended and still has its words, over the versions of all inodes.
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
        self.planes.meta.history().visit_authors(&mut |id, home, sessions| {
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

    /// Erases sessions that changed nothing and whose time in the list is over. Only the leader does it.
    ///
    /// # Errors
    /// The disk's.
    pub fn erase_sessions(&self) -> Result<(), Fault> {
        if !self.planes.meta.leads() {
            return Ok(());
        }
        let kept_us = self.planes.settings.ended_sessions_kept.as_micros() as u64;
        let before = Hlc::first_of_micros(self.planes.clock.now().micros().saturating_sub(kept_us));
        for _ in 0..ERASURES_MAX {
            if !self.planes.meta.has_ended_before(before) {
                break;
            }
            let op = Op::EraseSessions(EraseSessions { before: before.0 });
            match self.planes.meta.execute(self.write.own(SessionId(0), op), None).and_then(Outcome::into_result) {
                Ok(_) => {}
                Err(fault) if fault.reason == Reason::InputOutput => return Err(fault),
                // Another server leads, a clock is not trusted, or the device is full: a later call tries again.
                Err(fault) => {
                    debug!("sessions that changed nothing stay for now: {fault}");
                    break;
                }
            }
        }
        Ok(())
    }

    /// Ended sessions that the caller may erase and whose words are still stored.
    fn ended_with_words(&self, before: Hlc, principal: &Principal) -> Result<Ended, Fault> {
        let mut ended = Ended::new();
        let mut after = SessionId(0);
        loop {
            let page = self.planes.meta.history().sessions(after, Hlc::ZERO, PAGE)?;
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

/// True if a session's change of an inode can be shown: an instant before its last change is still readable, so a
/// difference from there on may name it. If the history of its directory has expired, a file's former state is not
/// shown, whether the file itself had expired history or not.
fn is_shown(horizons: &Expiries, (id, home): (InodeId, InodeHome), until: Hlc) -> bool {
    let forgot = |id: InodeId| {
        horizons.is_wholly_expired(id) || horizons.of(id).is_some_and(|forgotten| Hlc(forgotten.before) > until)
    };
    let forgetful = if forgot(id) {
        id
    } else if !home.is_directory && forgot(home.parent) {
        home.parent
    } else {
        return true;
    };
    horizons.pins(forgetful).range(..until).next().is_some()
}
