//! Cache leases: which session caches what, and what has to be recalled before a change is answered (protocols §6).
//!
//! Guarantees: a change is answered only when every other session with a grant on what it changed has acknowledged the
//! recall, or its grant has expired; a session receives no grant on a key for which its recall is pending; everything
//! is bounded, and what does not fit is not granted.
//! Leaves to others: messages and waiting requests (`service`), what a change touches (`namespace`), kernels (`fuse`).
//!
//! A session has grants while it keeps polling for recalls: each poll renews its lease. A grant ends with the lease as
//! it was when the grant was made, so it needs no renewal and no return, and the cached state of a stopped client
//! expires by itself. The grants of a session are in two generations: when the younger is a lease old, the older has
//! expired as a whole and is dropped.
//!
//! A change removes the grants of all other sessions and adds a *due* (pending recall) for each: the due ends with the
//! acknowledgement, or when the grant would have expired. Answers wait for dues: the answer of the change for those it
//! added, answers of readers for dues on what they read. So no client learns of a change while any client, the reader's
//! own machine included, may still show the state before it.
//!
//! The session that makes a change keeps its grants, and may show the state before the change until the answer has
//! arrived. So what it changed is *marked*: the first answer that shows the change to another session removes the
//! grant, as a change would, and waits.
//!
//! A key that is changed while other sessions cache it is *hot*: other sessions receive no grant on it until it was
//! unchanged for a second, and the session that changes it receives none until it was the only user for a second. So
//! two writers do not recall each other with every change.

use std::collections::BTreeMap;

use frieze_base::{FastMap, FastSet, MonoTime, Seq, SessionId};

use crate::cache_lease_types::{
    AnswerKeys, AnswerTicket, CacheKey, CacheLeaseSettings, LeaseEffect, PollId, Recall, RequestKey,
};

/// A grant that was removed and may still be in use.
#[derive(Clone, Debug)]
struct PendingRecall {
    session: SessionId,
    /// Number of its recall.
    number: u64,
    until: MonoTime,
    /// The changes that removed it.
    by: Vec<RequestKey>,
}

/// The session and number whose acknowledgement a request waits for, and the end of the wait.
#[derive(Clone, Copy, Debug)]
struct AwaitedAnswer {
    session: SessionId,
    number: u64,
    until: MonoTime,
}

#[derive(Debug, Default)]
struct LeaseHolder {
    lease_until: MonoTime,
    /// It may have a grant on any key, from an earlier process of the server.
    everything_until: MonoTime,
    /// Younger and older generation: expiry of each grant.
    young: FastMap<CacheKey, MonoTime>,
    old: FastMap<CacheKey, MonoTime>,
    turned: MonoTime,
    /// Keys with a grant that the session changed itself, in this lease and the one before.
    changed: FastSet<CacheKey>,
    changed_before: FastSet<CacheKey>,
    /// Number of the next recall.
    next: u64,
    queue: RecallBatch,
    /// Recalls sent and not acknowledged.
    sent: Vec<(u64, RecallBatch)>,
    poll: Option<(PollId, MonoTime)>,
}

#[derive(Clone, Debug, Default)]
struct RecallBatch {
    everything: bool,
    keys: Vec<CacheKey>,
    locked: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Contended {
    by: SessionId,
    since: MonoTime,
    until: MonoTime,
}

/// All cache leases, by session.
#[derive(Debug)]
pub struct CacheLeases {
    settings: CacheLeaseSettings,
    holders: BTreeMap<SessionId, LeaseHolder>,
    dues: FastMap<CacheKey, Vec<PendingRecall>>,
    waiting: BTreeMap<AnswerTicket, Vec<AwaitedAnswer>>,
    hot: FastMap<CacheKey, Contended>,
    /// Until then no grants are made: too many keys were hot.
    cooling_until: MonoTime,
    /// First recall number of a new session: above all that any session has acknowledged.
    numbers_from: u64,
}

impl CacheLeases {
    /// A table without leases.
    pub fn new(settings: CacheLeaseSettings) -> CacheLeases {
        CacheLeases {
            settings,
            holders: BTreeMap::new(),
            dues: FastMap::default(),
            waiting: BTreeMap::new(),
            hot: FastMap::default(),
            cooling_until: MonoTime(0),
            numbers_from: 1,
        }
    }

    /// Lifetimes and limits of leases.
    pub fn settings(&self) -> &CacheLeaseSettings {
        &self.settings
    }

    /// Adds sessions that cached under an earlier process of the server: their keys are unknown.
    pub fn found(&mut self, at: MonoTime, sessions: impl IntoIterator<Item = SessionId>) {
        let until = after(at, self.settings.lease_ns);
        for session in sessions {
            let holder = LeaseHolder { everything_until: until, next: 1, turned: at, ..LeaseHolder::default() };
            self.holders.insert(session, holder);
        }
    }

    /// Adds sessions that cached under another server until now: their keys are unknown here.
    pub fn take_over(&mut self, at: MonoTime, sessions: impl IntoIterator<Item = SessionId>) {
        let until = after(at, self.settings.lease_ns);
        for session in sessions {
            let new = || LeaseHolder { next: 1, turned: at, ..LeaseHolder::default() };
            let holder = self.holders.entry(session).or_insert_with(new);
            holder.everything_until = holder.everything_until.max(until);
        }
    }

    /// Sessions that have a cache, or may have one.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.holders.keys().copied()
    }

    /// Count of grants in this lease and the one before.
    pub fn count(&self) -> usize {
        self.holders.values().map(|holder| holder.young.len() + holder.old.len()).sum()
    }

    /// True if no request waits and nothing is due.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.dues.is_empty()
    }

    /// Grants `key` to a session until its current lease ends. Returns the duration, 0 for no grant. The caller reads
    /// the state to be cached afterwards, or under a lock that excludes changes.
    pub fn give(&mut self, at: MonoTime, session: SessionId, key: CacheKey) -> u64 {
        if at < self.cooling_until {
            return 0;
        }
        if let Some(hot) = self.hot.get(&key)
            && at < hot.until
            && (hot.by != session || at.since_ns(hot.since) < self.settings.hot_ns)
        {
            return 0;
        }
        // Until it has acknowledged the recall it cannot distinguish the new grant from the old.
        if self.dues.get(&key).is_some_and(|dues| dues.iter().any(|due| due.session == session)) {
            return 0;
        }
        let Some(holder) = self.holders.get_mut(&session) else { return 0 };
        holder.turn(at, self.settings.lease_ns);
        if at >= holder.lease_until || holder.queue.everything || holder.everything_until > at {
            return 0;
        }
        if holder.young.len() >= self.settings.grants_max && !holder.young.contains_key(&key) {
            return 0;
        }
        holder.young.insert(key, holder.lease_until);
        holder.lease_until.since_ns(at)
    }

    /// A request is about to change `keys`, or has changed them before any reader could see it.
    pub fn change(&mut self, at: MonoTime, by: RequestKey, keys: &[CacheKey], out: &mut Vec<LeaseEffect>) {
        let settings = self.settings;
        for key in keys {
            let mut others = false;
            for (session, holder) in &mut self.holders {
                if *session == by.0 {
                    holder.mark(at, *key);
                    continue;
                }
                let Some((until, everything)) = holder.take(at, *key) else { continue };
                others = true;
                if everything && !holder.queue.everything {
                    holder.queue.everything = true;
                } else if !everything {
                    holder.queue(*key, &settings);
                }
                let due = PendingRecall { session: *session, number: holder.next, until, by: vec![by] };
                add_due(self.dues.entry(*key).or_default(), due);
            }
            if let Some(dues) = self.dues.get_mut(key) {
                for due in dues.iter_mut().filter(|due| due.session != by.0 && !due.by.contains(&by)) {
                    due.by.push(by);
                }
            }
            self.heat(at, by.0, *key, others);
        }
        // In one recall: a second part would be acknowledged a round trip later.
        for holder in self.holders.values_mut() {
            holder.answer_poll(out);
        }
    }

    /// An answer that shows `told`, or answers `request`, is ready: it is sent with its `Release`, which comes at once
    /// if nothing is due.
    pub fn answer(
        &mut self,
        at: MonoTime,
        request: RequestKey,
        told: &AnswerKeys,
        ticket: AnswerTicket,
        out: &mut Vec<LeaseEffect>,
    ) {
        self.take_marked(at, request.0, told, out);
        let mut awaited: Vec<AwaitedAnswer> = Vec::new();
        let awaits = |due: &PendingRecall| AwaitedAnswer { session: due.session, number: due.number, until: due.until };
        let lasts = |due: &&PendingRecall| due.until > at;
        if told.everything {
            awaited.extend(self.dues.values().flatten().filter(lasts).map(awaits));
        }
        for key in told.keys.iter().filter(|_| !told.everything) {
            let dues = self.dues.get(key).into_iter().flatten();
            awaited.extend(dues.filter(lasts).map(awaits));
        }
        // A change under an earlier process may be known only from its log: sessions that may cache the state before it
        // have to poll first.
        for (session, holder) in &self.holders {
            if holder.everything_until > at {
                let told = holder.sent.iter().find(|(_, batch)| batch.everything).map(|(number, _)| *number);
                awaited.push(AwaitedAnswer {
                    session: *session,
                    number: told.unwrap_or(holder.next),
                    until: holder.everything_until,
                });
            }
        }
        if request.1 != Seq(0) {
            let dues = self.dues.values().flatten();
            awaited.extend(dues.filter(|due| due.by.contains(&request) && due.until > at).map(awaits));
        }
        if awaited.is_empty() {
            out.push(LeaseEffect::Release(ticket));
        } else {
            self.waiting.insert(ticket, awaited);
        }
    }

    /// Removes the grants of all sessions but `reader` on keys that an answer shows and that they changed themselves:
    /// the answers to their changes may not have arrived yet.
    fn take_marked(&mut self, at: MonoTime, reader: SessionId, told: &AnswerKeys, out: &mut Vec<LeaseEffect>) {
        let settings = self.settings;
        for (session, holder) in self.holders.iter_mut().filter(|(session, _)| **session != reader) {
            if holder.changed.is_empty() && holder.changed_before.is_empty() {
                continue;
            }
            let marked: Vec<CacheKey> = match told.everything {
                true => holder.changed.iter().chain(&holder.changed_before).copied().collect(),
                false => told.keys.iter().copied().filter(|key| holder.is_marked(*key)).collect(),
            };
            for key in marked {
                holder.unmark(key);
                let Some((until, everything)) = holder.take(at, key) else { continue };
                match everything {
                    true => holder.queue.everything = true,
                    false => holder.queue(key, &settings),
                }
                let due = PendingRecall { session: *session, number: holder.next, until, by: Vec::new() };
                add_due(self.dues.entry(key).or_default(), due);
            }
            holder.answer_poll(out);
        }
    }

    /// The only caching session has made a change without a note of its keys: all that it caches may be stale.
    pub fn changed_unnoted(&mut self, at: MonoTime, session: SessionId, out: &mut Vec<LeaseEffect>) {
        let Some(holder) = self.holders.get_mut(&session).filter(|holder| holder.lease_until > at) else { return };
        holder.everything_until = holder.everything_until.max(holder.lease_until);
        holder.queue.everything = true;
        holder.answer_poll(out);
    }

    /// A session polls for recalls: drops everything up to `acked`, and renews its lease. An older poll of it is
    /// answered with an empty recall. False if `session` was not known to cache.
    pub fn poll(
        &mut self,
        at: MonoTime,
        session: SessionId,
        poll: PollId,
        acked: u64,
        out: &mut Vec<LeaseEffect>,
    ) -> bool {
        let known = self.holders.contains_key(&session);
        let numbers_from = self.numbers_from;
        let lease_until = after(at, self.settings.lease_ns);
        let holder = self.holders.entry(session).or_insert_with(|| LeaseHolder {
            next: numbers_from,
            turned: at,
            ..LeaseHolder::default()
        });
        if let Some((older, _)) = holder.poll.take() {
            out.push(LeaseEffect::Tell { poll: older, recall: Recall::default() });
        }
        holder.lease_until = lease_until;
        if holder.everything_until > at && holder.sent.is_empty() {
            holder.queue.everything = true;
        }
        // Recalls that were sent and not acknowledged were lost: they are sent again.
        let mut acked_keys = Vec::new();
        let mut acked_everything = false;
        for (number, batch) in std::mem::take(&mut holder.sent) {
            if number <= acked {
                acked_everything |= batch.everything;
                acked_keys.extend(batch.keys);
            } else {
                holder.queue.merge(batch);
            }
        }
        if acked_everything {
            holder.everything_until = MonoTime(0);
        }
        holder.poll = Some((poll, at));
        holder.answer_poll(out);
        self.forgive(session, acked, &acked_keys, acked_everything);
        self.release(|awaited| awaited.session == session && awaited.number <= acked, out);
        known
    }

    /// Answers a waiting poll of a session, with an empty recall.
    pub fn hurry(&mut self, session: SessionId, out: &mut Vec<LeaseEffect>) {
        let poll = self.holders.get_mut(&session).and_then(|holder| holder.poll.take());
        out.extend(poll.map(|(poll, _)| LeaseEffect::Tell { poll, recall: Recall::default() }));
    }

    /// A lock that the session waited for is granted: sent like a recall.
    pub fn notify_locked(&mut self, session: SessionId, wait: u64, out: &mut Vec<LeaseEffect>) {
        if let Some(holder) = self.holders.get_mut(&session) {
            holder.queue.locked.push(wait);
            holder.answer_poll(out);
        }
    }

    /// Time passes: answers polls that waited long enough, drops what has expired.
    pub fn tick(&mut self, at: MonoTime, out: &mut Vec<LeaseEffect>) {
        for holder in self.holders.values_mut() {
            holder.turn(at, self.settings.lease_ns);
            if let Some((poll, _)) = holder.poll.take_if(|(_, since)| at.since_ns(*since) >= self.settings.renew_ns) {
                out.push(LeaseEffect::Tell { poll, recall: Recall::default() });
            }
        }
        self.holders.retain(|_, holder| {
            if holder.is_over(at) {
                self.numbers_from = self.numbers_from.max(holder.next);
            }
            !holder.is_over(at)
        });
        self.dues.retain(|_, dues| {
            dues.retain(|due| due.until > at);
            !dues.is_empty()
        });
        self.hot.retain(|_, hot| hot.until > at);
        self.release(|awaited| awaited.until <= at, out);
    }

    /// The session has ended, and caches nothing any more.
    pub fn ended(&mut self, session: SessionId, out: &mut Vec<LeaseEffect>) {
        if let Some(LeaseHolder { poll: Some((poll, _)), .. }) = self.holders.remove(&session) {
            out.push(LeaseEffect::Tell { poll, recall: Recall::default() });
        }
        self.forgive(session, u64::MAX, &[], true);
        self.release(|awaited| awaited.session == session, out);
    }

    fn heat(&mut self, at: MonoTime, by: SessionId, key: CacheKey, others: bool) {
        let until = after(at, self.settings.hot_ns);
        match self.hot.get_mut(&key) {
            Some(hot) if hot.until > at => {
                if hot.by != by {
                    (hot.by, hot.since) = (by, at);
                }
                hot.until = until;
            }
            _ if !others => {}
            _ => {
                if self.hot.len() >= self.settings.hot_max {
                    self.hot.retain(|_, hot| hot.until > at);
                }
                if self.hot.len() >= self.settings.hot_max {
                    self.cooling_until = until;
                } else {
                    self.hot.insert(key, Contended { by, since: at, until });
                }
            }
        }
    }

    /// Removes the dues of a session up to a number, on `keys` or on everything.
    fn forgive(&mut self, session: SessionId, acked: u64, keys: &[CacheKey], everything: bool) {
        let is_over = |due: &PendingRecall| due.session == session && due.number <= acked;
        if everything {
            self.dues.retain(|_, dues| {
                dues.retain(|due| !is_over(due));
                !dues.is_empty()
            });
            return;
        }
        for key in keys {
            if let Some(dues) = self.dues.get_mut(key) {
                dues.retain(|due| !is_over(due));
                if dues.is_empty() {
                    self.dues.remove(key);
                }
            }
        }
    }

    fn release(&mut self, is_over: impl Fn(&AwaitedAnswer) -> bool, out: &mut Vec<LeaseEffect>) {
        self.waiting.retain(|ticket, awaited| {
            awaited.retain(|awaited| !is_over(awaited));
            if awaited.is_empty() {
                out.push(LeaseEffect::Release(*ticket));
            }
            !awaited.is_empty()
        });
    }
}

impl LeaseHolder {
    /// Drops the older generation when all of it has expired.
    fn turn(&mut self, at: MonoTime, lease_ns: u64) {
        if at.since_ns(self.turned) < lease_ns {
            return;
        }
        // Idle for two leases: the younger has expired as well.
        let idle = at.since_ns(self.turned) >= 2 * lease_ns;
        self.old = std::mem::take(&mut self.young);
        self.changed_before = std::mem::take(&mut self.changed);
        if idle {
            self.old.clear();
            self.changed_before.clear();
        }
        self.turned = at;
    }

    /// Removes a grant. Returns its expiry, and whether it was only part of a grant on everything.
    fn take(&mut self, at: MonoTime, key: CacheKey) -> Option<(MonoTime, bool)> {
        self.unmark(key);
        let granted = self.young.remove(&key).max(self.old.remove(&key)).filter(|until| *until > at);
        if self.everything_until > at {
            return Some((self.everything_until.max(granted.unwrap_or_default()), true));
        }
        granted.map(|until| (until, false))
    }

    /// Marks a key that the session has changed under its own grant.
    fn mark(&mut self, at: MonoTime, key: CacheKey) {
        let lasts = |until: &MonoTime| *until > at;
        if self.young.get(&key).is_some_and(lasts) || self.old.get(&key).is_some_and(lasts) {
            self.changed.insert(key);
        }
    }

    fn is_marked(&self, key: CacheKey) -> bool {
        self.changed.contains(&key) || self.changed_before.contains(&key)
    }

    fn unmark(&mut self, key: CacheKey) {
        self.changed.remove(&key);
        self.changed_before.remove(&key);
    }

    fn queue(&mut self, key: CacheKey, settings: &CacheLeaseSettings) {
        if self.queue.everything {
            return;
        }
        if self.queue.keys.len() + self.sent.iter().map(|(_, batch)| batch.keys.len()).sum::<usize>()
            >= settings.recalls_max
        {
            self.queue.everything = true;
            return;
        }
        self.queue.keys.push(key);
    }

    /// Answers the waiting poll, if there is a recall.
    fn answer_poll(&mut self, out: &mut Vec<LeaseEffect>) {
        if self.queue.is_empty() {
            return;
        }
        let Some((poll, _)) = self.poll.take() else { return };
        let batch = std::mem::take(&mut self.queue);
        let number = self.next;
        self.next += 1;
        let mut recall = Recall { number, everything: batch.everything, ..Recall::default() };
        for key in &batch.keys {
            let list = if key.is_names() { &mut recall.directories } else { &mut recall.files };
            list.push(key.inode_id());
        }
        recall.locked.clone_from(&batch.locked);
        self.sent.push((number, batch));
        out.push(LeaseEffect::Tell { poll, recall });
    }

    /// True if no grant of the session is left and it does not poll.
    fn is_over(&self, at: MonoTime) -> bool {
        self.poll.is_none() && self.lease_until <= at && self.everything_until <= at
    }
}

impl RecallBatch {
    fn is_empty(&self) -> bool {
        !self.everything && self.keys.is_empty() && self.locked.is_empty()
    }

    fn merge(&mut self, older: RecallBatch) {
        self.everything |= older.everything;
        self.keys.extend(older.keys);
        self.locked.extend(older.locked);
    }
}

/// A session has one due per key: the later one counts.
fn add_due(dues: &mut Vec<PendingRecall>, due: PendingRecall) {
    match dues.iter_mut().find(|known| known.session == due.session) {
        Some(known) => {
            known.number = due.number;
            known.until = known.until.max(due.until);
            known.by.extend(due.by);
        }
        None => dues.push(due),
    }
}

fn after(at: MonoTime, ns: u64) -> MonoTime {
    MonoTime(at.0.saturating_add(ns))
}

#[cfg(test)]
mod tests;
