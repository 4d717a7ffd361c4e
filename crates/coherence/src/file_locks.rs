//! Locks on ranges of files: one table for fcntl(2) and flock(2), as on NFS.
//!
//! Guarantees: two owners never hold ranges that exclude each other; waiting requests are served in the order of
//! arrival as soon as no lock conflicts; a wait that could never end is refused; the locks of a session end with it,
//! and if the session has a lease (`grants`), with the lease: a mount that hangs does not block other sessions any
//! longer. After a restart no lock is granted before the sessions that may have held a conflicting one had time to
//! reclaim it. Leaves to others: messages to the sessions that waited (`service`), files and rights (a session with the
//! file open may lock it).
//!
//! An owner is a number that the kernel of a client assigns (one per process for fcntl, one per open file for flock),
//! within its session. Its locks on a file do not overlap: a new one replaces what it covers.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{InodeId, MonoTime, SessionId};
use frieze_wire::holding::{LockKind, LockOutcome, LockRange};

/// Most locks in total, 56 bytes each.
const LOCKS_MAX: usize = 1 << 17;
/// Most waiting lock requests in total.
const WAITS_MAX: usize = 1 << 14;

/// Consecutive checks that find a session without a lease before its locks end.
const LOOKS_MISSED_MAX: u32 = 2;

/// A session's owner.
type Owner = (SessionId, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeldLock {
    owner: Owner,
    exclusive: bool,
    start: u64,
    /// Inclusive.
    end: u64,
    pid: u32,
}

#[derive(Clone, Copy, Debug)]
struct LockWait {
    /// Position in the queue.
    order: u64,
    inode: InodeId,
    wanted: HeldLock,
}

/// All locks.
#[derive(Debug, Default)]
pub struct FileLocks {
    files: BTreeMap<InodeId, Vec<HeldLock>>,
    count: usize,
    waits: BTreeMap<(SessionId, u64), LockWait>,
    next: u64,
    /// Sessions whose locks end with their lease, and how many consecutive checks found them without one.
    leased: BTreeMap<SessionId, u32>,
    /// Sessions that may have held locks under an earlier process of the server, and the end of their time to reclaim
    /// them.
    early: BTreeMap<SessionId, MonoTime>,
}

/// Waits that have ended with a lock: the session and its number of the wait.
pub type GrantedLocks = Vec<(SessionId, u64)>;

impl FileLocks {
    /// Until `until` only these sessions get locks: they may reclaim those they held.
    pub fn found(&mut self, sessions: impl IntoIterator<Item = SessionId>, until: MonoTime) {
        self.early = sessions.into_iter().map(|session| (session, until)).collect();
    }

    /// The session has reclaimed all its locks.
    pub fn settled(&mut self, session: SessionId) {
        self.early.remove(&session);
    }

    /// True while sessions other than `session` may still reclaim locks.
    pub fn is_early(&mut self, at: MonoTime, session: SessionId) -> bool {
        self.early.retain(|_, until| *until > at);
        self.early.keys().any(|other| *other != session)
    }

    /// Locks, unlocks, or waits under the number `wait` if it is not 0. `served` receives the waits that this ends.
    pub fn lock(&mut self, session: SessionId, ask: &LockRange, wait: u64, served: &mut GrantedLocks) -> LockOutcome {
        let inode = InodeId(ask.inode);
        let wanted = lock_of(session, ask);
        if ask.kind() == LockKind::Unlock {
            self.clear(inode, &wanted);
            self.serve(inode, served);
            return LockOutcome::Held;
        }
        if self.blockers(inode, &wanted).next().is_none() {
            if self.count + 2 > LOCKS_MAX {
                return LockOutcome::Full;
            }
            self.waits.remove(&(session, wait));
            self.put(inode, wanted);
            // A shared lock in place of an exclusive one admits other owners.
            self.serve(inode, served);
            return LockOutcome::Held;
        }
        if wait == 0 {
            return LockOutcome::Refused;
        }
        if self.waits.contains_key(&(session, wait)) {
            return LockOutcome::Waiting;
        }
        if self.would_wait_for_itself(inode, &wanted) {
            return LockOutcome::Deadlock;
        }
        if self.waits.len() >= WAITS_MAX {
            return LockOutcome::Full;
        }
        self.next += 1;
        self.waits.insert((session, wait), LockWait { order: self.next, inode, wanted });
        LockOutcome::Waiting
    }

    /// The first lock that conflicts with `ask`.
    pub fn test(&self, session: SessionId, ask: &LockRange) -> Option<LockRange> {
        let wanted = lock_of(session, ask);
        let first = self.blockers(InodeId(ask.inode), &wanted).min_by_key(|held| held.start)?;
        let kind = if first.exclusive { LockKind::Exclusive } else { LockKind::Shared };
        // The number of a process on another machine could be mistaken for one of this machine.
        let pid = if first.owner.0 == session { first.pid } else { 0 };
        let HeldLock { start, end, .. } = *first;
        Some(LockRange { inode: ask.inode, owner: first.owner.1, kind: kind as i32, start, end, pid })
    }

    /// Cancels a wait. A lock granted meanwhile stays.
    pub fn cancel(&mut self, session: SessionId, wait: u64) -> LockOutcome {
        match self.waits.remove(&(session, wait)) {
            Some(_) => LockOutcome::Cancelled,
            None => LockOutcome::Held,
        }
    }

    /// The session has a lease: its locks and waits end with that.
    pub fn lease(&mut self, session: SessionId) {
        self.leased.insert(session, 0);
    }

    /// Ends the locks of sessions whose lease has expired; called about twice a second. The sessions may reclaim them
    /// when they return. The first check only counts: if the server itself hung, the polls of the sessions have arrived
    /// by the next check.
    pub fn lapse(&mut self, has_lease: impl Fn(SessionId) -> bool, served: &mut GrantedLocks) {
        let mut lapsed = Vec::new();
        for (session, missed) in &mut self.leased {
            *missed = if has_lease(*session) { 0 } else { *missed + 1 };
            if *missed >= LOOKS_MISSED_MAX {
                lapsed.push(*session);
            }
        }
        lapsed.into_iter().for_each(|session| self.ended(session, served));
    }

    /// Ends all locks and waits of a session that has ended.
    pub fn ended(&mut self, session: SessionId, served: &mut GrantedLocks) {
        self.early.remove(&session);
        self.leased.remove(&session);
        self.waits.retain(|(waiting, _), _| *waiting != session);
        let mut freed = Vec::new();
        for (inode, locks) in &mut self.files {
            let before = locks.len();
            locks.retain(|held| held.owner.0 != session);
            if locks.len() < before {
                self.count -= before - locks.len();
                freed.push(*inode);
            }
        }
        for inode in freed {
            self.serve(inode, served);
        }
    }

    fn blockers<'a>(&'a self, inode: InodeId, wanted: &'a HeldLock) -> impl Iterator<Item = &'a HeldLock> {
        self.files.get(&inode).into_iter().flatten().filter(|held| held.excludes(wanted))
    }

    /// Removes the range from the locks of its owner.
    fn clear(&mut self, inode: InodeId, range: &HeldLock) {
        let Some(locks) = self.files.get_mut(&inode) else { return };
        let before = locks.len();
        let mut rest = Vec::new();
        locks.retain(|held| {
            if held.owner != range.owner || held.end < range.start || range.end < held.start {
                return true;
            }
            if held.start < range.start {
                rest.push(HeldLock { end: range.start - 1, ..*held });
            }
            if held.end > range.end {
                rest.push(HeldLock { start: range.end + 1, ..*held });
            }
            false
        });
        locks.append(&mut rest);
        self.count = self.count + locks.len() - before;
        if locks.is_empty() {
            self.files.remove(&inode);
        }
    }

    fn put(&mut self, inode: InodeId, wanted: HeldLock) {
        self.clear(inode, &wanted);
        let locks = self.files.entry(inode).or_default();
        let mut merged = wanted;
        let before = locks.len();
        locks.retain(|held| {
            let touches = held.owner == merged.owner
                && held.exclusive == merged.exclusive
                && held.start <= merged.end.saturating_add(1)
                && merged.start <= held.end.saturating_add(1);
            if touches {
                merged.start = merged.start.min(held.start);
                merged.end = merged.end.max(held.end);
            }
            !touches
        });
        locks.push(merged);
        self.count = self.count + locks.len() - before;
    }

    /// Grants what is free now to the requests that wait for it, in their order.
    fn serve(&mut self, inode: InodeId, served: &mut GrantedLocks) {
        let mut line: Vec<(u64, (SessionId, u64))> =
            self.waits.iter().filter(|(_, wait)| wait.inode == inode).map(|(id, wait)| (wait.order, *id)).collect();
        line.sort_unstable();
        for (_, id) in line {
            let Some(LockWait { wanted, .. }) = self.waits.get(&id).copied() else { continue };
            if self.blockers(inode, &wanted).next().is_none() && self.count + 2 <= LOCKS_MAX {
                self.waits.remove(&id);
                self.put(inode, wanted);
                served.push(id);
            }
        }
    }

    /// True if a request that `wanted` would wait for waits, directly or through others, for the owner of `wanted`.
    fn would_wait_for_itself(&self, inode: InodeId, wanted: &HeldLock) -> bool {
        let mut seen = BTreeSet::new();
        let mut ahead: Vec<Owner> = self.blockers(inode, wanted).map(|held| held.owner).collect();
        while let Some(owner) = ahead.pop() {
            if owner == wanted.owner {
                return true;
            }
            if !seen.insert(owner) {
                continue;
            }
            for wait in self.waits.values().filter(|wait| wait.wanted.owner == owner) {
                ahead.extend(self.blockers(wait.inode, &wait.wanted).map(|held| held.owner));
            }
        }
        false
    }
}

impl HeldLock {
    fn excludes(&self, other: &HeldLock) -> bool {
        self.owner != other.owner
            && (self.exclusive || other.exclusive)
            && self.start <= other.end
            && other.start <= self.end
    }
}

fn lock_of(session: SessionId, ask: &LockRange) -> HeldLock {
    HeldLock {
        owner: (session, ask.owner),
        exclusive: ask.kind() == LockKind::Exclusive,
        start: ask.start,
        end: ask.end.max(ask.start),
        pid: ask.pid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId(1);
    const TWO: SessionId = SessionId(2);

    fn range(owner: u64, kind: LockKind, start: u64, end: u64) -> LockRange {
        LockRange { inode: 7, owner, kind: kind as i32, start, end, pid: 9 }
    }

    fn shared(start: u64, end: u64) -> LockRange {
        range(1, LockKind::Shared, start, end)
    }

    fn exclusive(start: u64, end: u64) -> LockRange {
        range(1, LockKind::Exclusive, start, end)
    }

    fn unlock(start: u64, end: u64) -> LockRange {
        range(1, LockKind::Unlock, start, end)
    }

    fn ask(locks: &mut FileLocks, session: SessionId, range: LockRange, wait: u64) -> (LockOutcome, GrantedLocks) {
        let mut served = Vec::new();
        (locks.lock(session, &range, wait, &mut served), served)
    }

    #[test]
    fn shared_locks_keep_out_exclusive_ones_only_and_only_where_they_overlap() {
        let mut locks = FileLocks::default();
        assert_eq!(ask(&mut locks, ONE, shared(0, 9), 0).0, LockOutcome::Held);
        assert_eq!(ask(&mut locks, TWO, shared(5, 15), 0).0, LockOutcome::Held);
        assert_eq!(ask(&mut locks, TWO, exclusive(0, 4), 0).0, LockOutcome::Refused);
        assert_eq!(ask(&mut locks, TWO, exclusive(10, 15), 0).0, LockOutcome::Held);
        assert_eq!(locks.test(ONE, &shared(0, u64::MAX)).map(|found| (found.start, found.end)), Some((10, 15)));
        assert_eq!(locks.test(TWO, &shared(0, u64::MAX)), None);
    }

    #[test]
    fn an_owner_replaces_splits_and_joins_its_own() {
        let mut locks = FileLocks::default();
        for (start, end) in [(0, 99), (50, 59), (100, 109)] {
            assert_eq!(ask(&mut locks, ONE, exclusive(start, end), 0).0, LockOutcome::Held);
        }
        assert_eq!((locks.count, locks.files[&InodeId(7)].len()), (1, 1), "they touch, so they are one");
        ask(&mut locks, ONE, shared(20, 29), 0);
        ask(&mut locks, ONE, unlock(70, 79), 0);
        let mut ranges: Vec<_> = locks.files[&InodeId(7)].iter().map(|l| (l.start, l.end, l.exclusive)).collect();
        ranges.sort_unstable();
        assert_eq!(ranges, [(0, 19, true), (20, 29, false), (30, 69, true), (80, 109, true)]);
        assert_eq!(locks.count, 4);
        ask(&mut locks, ONE, unlock(0, u64::MAX), 0);
        assert!(locks.files.is_empty() && locks.count == 0);
    }

    #[test]
    fn waiters_get_free_locks_in_order() {
        let mut locks = FileLocks::default();
        ask(&mut locks, ONE, exclusive(0, 9), 0);
        assert_eq!(ask(&mut locks, TWO, range(5, LockKind::Exclusive, 0, 9), 50).0, LockOutcome::Waiting);
        assert_eq!(ask(&mut locks, TWO, range(6, LockKind::Shared, 0, 0), 60).0, LockOutcome::Waiting);
        assert_eq!(
            ask(&mut locks, TWO, range(5, LockKind::Exclusive, 0, 9), 50).0,
            LockOutcome::Waiting,
            "asked twice"
        );
        let (_, served) = ask(&mut locks, ONE, unlock(0, 9), 0);
        assert_eq!(served, [(TWO, 50)]);
        let (_, served) = ask(&mut locks, TWO, range(5, LockKind::Shared, 0, 9), 0);
        assert_eq!(served, [(TWO, 60)], "a lock made weaker lets others in");
        assert_eq!(locks.cancel(TWO, 60), LockOutcome::Held);
    }

    #[test]
    fn a_cancelled_wait_gets_nothing() {
        let mut locks = FileLocks::default();
        ask(&mut locks, ONE, exclusive(0, 9), 0);
        ask(&mut locks, TWO, exclusive(0, 9), 50);
        assert_eq!(locks.cancel(TWO, 50), LockOutcome::Cancelled);
        assert_eq!(ask(&mut locks, ONE, unlock(0, 9), 0).1, []);
        assert_eq!(ask(&mut locks, ONE, exclusive(0, 9), 0).0, LockOutcome::Held);
    }

    #[test]
    fn waiting_in_a_circle_is_refused() {
        let mut locks = FileLocks::default();
        ask(&mut locks, ONE, exclusive(0, 0), 0);
        ask(&mut locks, TWO, exclusive(1, 1), 0);
        ask(&mut locks, TWO, range(3, LockKind::Exclusive, 2, 2), 0);
        assert_eq!(ask(&mut locks, ONE, exclusive(1, 1), 10).0, LockOutcome::Waiting);
        assert_eq!(ask(&mut locks, TWO, range(3, LockKind::Exclusive, 0, 0), 20).0, LockOutcome::Waiting);
        assert_eq!(ask(&mut locks, TWO, exclusive(0, 0), 30).0, LockOutcome::Deadlock);
        assert_eq!(ask(&mut locks, TWO, exclusive(2, 2), 31).0, LockOutcome::Deadlock, "a circle of three");
        assert_eq!(ask(&mut locks, TWO, range(4, LockKind::Shared, 0, 2), 40).0, LockOutcome::Waiting, "a line");
    }

    #[test]
    fn locks_end_with_their_session() {
        let mut locks = FileLocks::default();
        ask(&mut locks, ONE, exclusive(0, 9), 0);
        ask(&mut locks, TWO, exclusive(0, 9), 50);
        ask(&mut locks, ONE, range(8, LockKind::Exclusive, 0, 0), 80);
        let mut served = Vec::new();
        locks.ended(ONE, &mut served);
        assert_eq!(served, [(TWO, 50)]);
        assert_eq!((locks.count, locks.waits.len()), (1, 0));
    }

    #[test]
    fn locks_end_with_the_lease_of_a_session_that_keeps_one() {
        let mut locks = FileLocks::default();
        ask(&mut locks, ONE, exclusive(0, 9), 0);
        assert_eq!(ask(&mut locks, TWO, exclusive(0, 9), 50).0, LockOutcome::Waiting);
        let mut served = Vec::new();
        locks.lapse(|_| false, &mut served);
        assert_eq!(served, [], "it never had a lease");
        locks.lease(ONE);
        locks.lapse(|session| session == ONE, &mut served);
        assert_eq!(served, []);
        locks.lapse(|_| false, &mut served);
        assert_eq!(served, [], "the server itself may have hung");
        locks.lapse(|_| false, &mut served);
        assert_eq!(served, [(TWO, 50)]);
        assert_eq!(ask(&mut locks, ONE, exclusive(0, 9), 0).0, LockOutcome::Refused);
    }

    #[test]
    fn after_a_restart_new_locks_wait_for_sessions_that_may_have_had_locks() {
        let mut locks = FileLocks::default();
        locks.found([ONE], MonoTime(100));
        assert!(locks.is_early(MonoTime(50), TWO) && !locks.is_early(MonoTime(50), ONE));
        locks.settled(ONE);
        assert!(!locks.is_early(MonoTime(50), TWO));
        locks.found([ONE], MonoTime(100));
        assert!(!locks.is_early(MonoTime(100), TWO));
    }
}
