//! Which files sessions have open: a deleted file that somebody reads is not forgotten whole.
//!
//! Guarantees: a file that was opened, now and not at an instant, by a session that says what it has open, is held
//! until it says that it is closed, or has ended. What such a session of an earlier life of the server has open is not
//! known until it has said so: until then it may be anything. Leaves to others: rights (`views`); files open for
//! writing, which write grants hold too (`namespace`).
//!
//! A session that keeps asking for recalls, as a mount does, says with its questions what it has open. Others never say
//! that they have closed a file: what they opened would be held as long as they live, and with it the space of a full
//! disk, so it is not held. A list is made before it arrives: what was opened since the list before it stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use frieze_base::{FastMap, InodeId, SessionId};

/// Files known to be open in one session; beyond, every file may be, until it ends.
const FILES_MAX: usize = 65_536;

/// See the module.
#[derive(Default)]
pub struct OpenFiles(Mutex<OpenState>);

#[derive(Default)]
struct OpenState {
    sessions: BTreeMap<SessionId, OpenHandles>,
    /// Sessions of an earlier life that have not said yet what they have open.
    unheard: BTreeSet<SessionId>,
}

#[derive(Default)]
struct OpenHandles {
    /// After how many lists each was opened.
    files: FastMap<InodeId, u64>,
    lists: u64,
    /// It asks for recalls, and says what it has open.
    tells: bool,
    /// The client's number of the newest list.
    newest: u64,
    too_many: bool,
}

impl OpenFiles {
    /// These sessions are from an earlier life of the server.
    pub fn found(&self, sessions: impl IntoIterator<Item = SessionId>) {
        self.lock().unheard.extend(sessions);
    }

    /// The session has opened a file.
    pub fn add(&self, session: SessionId, id: InodeId) {
        let mut state = self.lock();
        let held = state.sessions.entry(session).or_default();
        if held.files.len() >= FILES_MAX && !held.files.contains_key(&id) {
            held.too_many = true;
            return;
        }
        held.files.insert(id, held.lists);
    }

    /// A question for recalls: all that the session has open, as its client says under a number that rises; 0 says that
    /// it cannot tell now.
    pub fn told(&self, session: SessionId, number: u64, open: &[u64]) {
        let mut state = self.lock();
        let held = state.sessions.entry(session).or_default();
        held.tells = true;
        if number <= held.newest {
            return;
        }
        let open: BTreeSet<u64> = open.iter().copied().collect();
        let last = held.lists;
        held.files.retain(|id, after| *after == last || open.contains(&id.0));
        held.lists += 1;
        held.newest = number;
    }

    /// The session has opened anew what it had open in an earlier life of the server.
    pub fn settled(&self, session: SessionId) {
        self.lock().unheard.remove(&session);
    }

    /// The session is over.
    pub fn ended(&self, session: SessionId) {
        let mut state = self.lock();
        state.sessions.remove(&session);
        state.unheard.remove(&session);
    }

    /// True if somebody who says so has the file open, or may.
    pub fn holds(&self, id: InodeId) -> bool {
        let state = self.lock();
        let holds = |held: &OpenHandles| held.tells && (held.too_many || held.files.contains_key(&id));
        !state.unheard.is_empty() || state.sessions.values().any(holds)
    }

    fn lock(&self) -> MutexGuard<'_, OpenState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId(1);
    const FILE: InodeId = InodeId(7);

    #[test]
    fn what_was_opened_since_the_list_before_stays_whatever_a_list_says() {
        let opened = OpenFiles::default();
        opened.add(ONE, FILE);
        assert!(!opened.holds(FILE), "nobody would say that it is closed");
        // Made before the file was opened, as far as anybody knows.
        opened.told(ONE, 1, &[]);
        assert!(opened.holds(FILE));
        opened.told(ONE, 2, &[FILE.0]);
        opened.told(ONE, 1, &[]);
        opened.told(ONE, 0, &[]);
        assert!(opened.holds(FILE), "an old list and none say nothing");
        opened.told(ONE, 3, &[]);
        assert!(!opened.holds(FILE));
    }

    #[test]
    fn nobody_holds_what_he_did_not_open() {
        let opened = OpenFiles::default();
        opened.add(ONE, FILE);
        opened.told(ONE, 1, &[8, 9]);
        assert!(!opened.holds(InodeId(8)));
    }

    #[test]
    fn a_session_of_before_may_have_anything_open_until_it_says_or_ends() {
        for says in [OpenFiles::settled, OpenFiles::ended] {
            let opened = OpenFiles::default();
            opened.found([ONE]);
            assert!(opened.holds(FILE));
            says(&opened, ONE);
            assert!(!opened.holds(FILE));
        }
    }

    #[test]
    fn more_than_is_kept_holds_everything_until_the_end() {
        let opened = OpenFiles::default();
        opened.told(ONE, 1, &[]);
        (0..=FILES_MAX as u64).for_each(|id| opened.add(ONE, InodeId(id)));
        assert!(opened.holds(InodeId(u64::MAX)));
        opened.ended(ONE);
        assert!(!opened.holds(InodeId(u64::MAX)));
    }
}
