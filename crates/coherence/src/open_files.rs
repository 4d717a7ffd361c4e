//! Open files of sessions: the bytes of a deleted file stay while a client reads it.
//!
//! Guarantees: a file that was opened (now, not at an instant) by a session that reports its open files stays until the
//! session reports that it is closed, or has ended. The open files of such a session under an earlier process of the
//! server are unknown until it has reported them: until then every file may be open. Leaves to others: rights
//! (`service`); files open for writing, which write grants keep too (`namespace`).
//!
//! A session that polls for recalls, as a mount does, reports its open files with its polls. Other sessions never
//! report a close: their files would stay for as long as the sessions live, and with them the space of a full disk, so
//! they are not tracked. A list is made before it arrives: files opened since the list before it stay.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{FastMap, InodeId, SessionId};
use frieze_locks::{Mutex, MutexGuard, levels};

/// Most files tracked for one session; beyond, every file counts as open until it ends.
const FILES_MAX: usize = 65_536;

/// Open files, by session.
#[derive(Default)]
pub struct OpenFiles(Mutex<levels::OpenFiles, OpenState>);

#[derive(Default)]
struct OpenState {
    sessions: BTreeMap<SessionId, OpenHandles>,
    /// Sessions of an earlier process that have not reported their open files yet.
    unheard: BTreeSet<SessionId>,
}

#[derive(Default)]
struct OpenHandles {
    /// Files, with the count of lists before each was opened.
    files: FastMap<InodeId, u64>,
    lists: u64,
    /// It polls for recalls, and reports its open files.
    tells: bool,
    /// The client's number of the newest list.
    newest: u64,
    too_many: bool,
}

impl OpenFiles {
    /// Adds sessions of an earlier process of the server.
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

    /// Handles the list in a poll: all open files of the session, under a number that rises with each list; 0 means
    /// that the client cannot list them now.
    pub fn update(&self, session: SessionId, number: u64, open: &[u64]) {
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

    /// The session has reopened all its files from before the server's restart.
    pub fn settled(&self, session: SessionId) {
        self.lock().unheard.remove(&session);
    }

    /// The session has ended.
    pub fn ended(&self, session: SessionId) {
        let mut state = self.lock();
        state.sessions.remove(&session);
        state.unheard.remove(&session);
    }

    /// True if a session that reports its open files has the file open, or may.
    pub fn holds(&self, id: InodeId) -> bool {
        let state = self.lock();
        let holds = |held: &OpenHandles| held.tells && (held.too_many || held.files.contains_key(&id));
        !state.unheard.is_empty() || state.sessions.values().any(holds)
    }

    #[track_caller]
    fn lock(&self) -> MutexGuard<'_, OpenState> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId(1);
    const FILE: InodeId = InodeId(7);

    #[test]
    fn files_opened_since_the_last_list_stay_open_if_the_next_list_omits_them() {
        let opened = OpenFiles::default();
        opened.add(ONE, FILE);
        assert!(!opened.holds(FILE), "nobody would say that it is closed");
        // The list may have been made before the file was opened.
        opened.update(ONE, 1, &[]);
        assert!(opened.holds(FILE));
        opened.update(ONE, 2, &[FILE.0]);
        opened.update(ONE, 1, &[]);
        opened.update(ONE, 0, &[]);
        assert!(opened.holds(FILE), "an old list and none say nothing");
        opened.update(ONE, 3, &[]);
        assert!(!opened.holds(FILE));
    }

    #[test]
    fn a_session_has_only_the_files_that_it_opened() {
        let opened = OpenFiles::default();
        opened.add(ONE, FILE);
        opened.update(ONE, 1, &[8, 9]);
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
        opened.update(ONE, 1, &[]);
        (0..=FILES_MAX as u64).for_each(|id| opened.add(ONE, InodeId(id)));
        assert!(opened.holds(InodeId(u64::MAX)));
        opened.ended(ONE);
        assert!(!opened.holds(InodeId(u64::MAX)));
    }
}
