//! Which sessions have connections, and since when the others have none: the expected knowledge of the server.

use std::collections::BTreeMap;

use crate::exchange::ConnId;
use frieze_base::MonoTime;

/// Which sessions have connections: the expected knowledge of the server.
#[derive(Default)]
pub(crate) struct Liveness {
    pub(super) conns: BTreeMap<ConnId, (u32, Option<u64>)>,
    pub(super) idle_since: BTreeMap<u64, MonoTime>,
    pub(super) owners: BTreeMap<u64, u32>,
}

impl Liveness {
    pub(super) fn attach(&mut self, conn: ConnId, session: u64, now: MonoTime) {
        let Some((uid, attached)) = self.conns.get_mut(&conn) else { return };
        if *attached == Some(session) {
            return;
        }
        self.owners.insert(session, *uid);
        if let Some(before) = attached.replace(session) {
            self.leave(before, now);
        }
        self.idle_since.entry(session).or_insert(now);
    }

    pub(super) fn detach(&mut self, conn: ConnId, now: MonoTime) {
        if let Some((_, Some(session))) = self.conns.remove(&conn) {
            self.leave(session, now);
        }
    }

    fn leave(&mut self, session: u64, now: MonoTime) {
        if let Some(since) = self.idle_since.get_mut(&session) {
            *since = now;
        }
    }

    pub(super) fn expired(&self, now: MonoTime, timeout_ns: u64) -> Vec<u64> {
        let connected = |session: u64| self.conns.values().any(|(_, attached)| *attached == Some(session));
        let gone = |(session, since): &(&u64, &MonoTime)| !connected(**session) && now.since_ns(**since) > timeout_ns;
        self.idle_since.iter().filter(gone).map(|(session, _)| *session).collect()
    }

    pub(super) fn forget(&mut self, session: u64) {
        self.idle_since.remove(&session);
    }
}
