//! Cache leases as the server uses them: the core [`CacheLeases`] with the requests that wait for it.
//!
//! Guarantees: those of the core. A waiting answer costs no thread: this module keeps it with its responder, and the
//! thread that receives the acknowledgement, or the tick, sends it. While one session alone caches and no other session
//! changes anything, every check here is one atomic load. Leaves to others: the users of sessions (`session`), reading
//! what is granted (`read`, `tree_ops`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frieze_base::{Fault, InodeId, MonoTime, Reason, SessionId};
use frieze_coherence::{
    AnswerKeys, AnswerTicket, CacheKey, CacheLeaseSettings, CacheLeases, LeaseEffect, PollId, Recall, RequestKey,
};
use frieze_locks::{Mutex, levels};
use frieze_metadata::{ChangeObserver, SharedReadSet};
use frieze_namespace::{Cached, KeyVersion, NoReadSet, ReadSet, cached_of};
use frieze_replication::PublishObserver;
use frieze_storage::NodeClock;
use frieze_wire::frame::{FrameHeader, Holds};
use frieze_wire::holding::RecallsReply;
use frieze_wire::message::Reply;

use crate::session::responder::Responder;

/// Which sessions cache, and which requests wait for them.
pub struct Caching {
    clock: Arc<NodeClock>,
    /// Number of this server process, or of its current term as the leader of others.
    life: AtomicU64,
    core: Mutex<levels::CacheLeases, Core>,
    /// 0: no session caches anything. [`MANY`]: several do, or may. Otherwise the id of the only session that does.
    sole: AtomicU64,
    /// The session that alone cached anything when it last made a change that the core did not note; 0: none.
    unnoted: AtomicU64,
    /// The inode whose bytes are being published: no session gets a lease on it until then. 0: none; [`MANY`]: several
    /// are.
    publishing: AtomicU64,
    /// Another server grants cache leases now, and the clients that poll here for recalls do not know yet.
    stands_down: AtomicBool,
}

const MANY: u64 = u64::MAX;

struct Core {
    grants: CacheLeases,
    /// Until this time the core notes every change, even those of the only session that caches: other sessions have
    /// read lately.
    noted_until: MonoTime,
    next: u64,
    polls: BTreeMap<PollId, (FrameHeader, Arc<dyn Responder>)>,
    answers: BTreeMap<AnswerTicket, Box<dyn FnOnce() + Send>>,
    effects: Vec<LeaseEffect>,
}

/// Which leases one request may grant to its session, and where it notes what its answer contains.
#[derive(Clone, Default)]
pub(crate) struct CacheLeaseRequest {
    /// The session, if the request asks for leases.
    pub(crate) session: Option<SessionId>,
    /// For how long the answer may be cached.
    pub(crate) holds: Holds,
    /// Delays the answer; `None` while no other session caches anything, or if the answer is about the past.
    pub(crate) gate: Option<Arc<Gate>>,
}

impl CacheLeaseRequest {
    pub(crate) fn of(header: &FrameHeader, gate: Option<Arc<Gate>>) -> CacheLeaseRequest {
        let asked = header.holds != Holds::NONE && header.session != SessionId(0);
        CacheLeaseRequest { session: asked.then_some(header.session), holds: Holds::NONE, gate }
    }

    /// Records the present state that is read for the answer.
    pub(crate) fn reads(&self) -> &dyn ReadSet {
        self.gate.as_deref().map_or(&NoReadSet, |gate| gate)
    }

    /// The same, for a transaction.
    pub(crate) fn shared_reads(&self) -> Option<SharedReadSet> {
        self.gate.clone().map(|gate| gate as SharedReadSet)
    }
}

impl Caching {
    /// Without any lease; `found` are the sessions to which an earlier process of this server granted leases.
    pub fn new(
        clock: Arc<NodeClock>,
        life: u64,
        settings: CacheLeaseSettings,
        found: impl IntoIterator<Item = SessionId>,
    ) -> Caching {
        let mut grants = CacheLeases::new(settings);
        grants.found(clock.reading().mono, found);
        let noted_until = MonoTime(0);
        let core = Core {
            grants,
            noted_until,
            next: 1,
            polls: BTreeMap::new(),
            answers: BTreeMap::new(),
            effects: Vec::new(),
        };
        let caching = Caching {
            clock,
            life: AtomicU64::new(life),
            core: Mutex::new(core),
            sole: AtomicU64::new(0),
            unnoted: AtomicU64::new(0),
            publishing: AtomicU64::new(0),
            stands_down: AtomicBool::new(false),
        };
        caching.with(|_, _| {});
        caching
    }

    /// This server grants cache leases from now on. It does not know the leases that the previous leader granted to
    /// these sessions.
    pub(crate) fn take_over(&self, sessions: Vec<SessionId>) {
        // Sessions that this server knew before another server led must poll anew as well.
        self.life.fetch_add(2, Ordering::AcqRel);
        self.with(|core, at| core.grants.take_over(at, sessions));
    }

    /// Recalls all leases granted so far. Changes wait until they are returned, at most for one lease.
    pub fn take_back(&self) {
        let sessions = self.core.lock().grants.sessions().collect();
        self.take_over(sessions);
    }

    /// True if a session other than this one may cache something.
    pub(crate) fn is_watched(&self, by: SessionId) -> bool {
        // In one order with `publishing`: either the publisher sees a session that begins to cache, or that session
        // sees the publisher.
        let sole = self.sole.load(Ordering::SeqCst);
        sole != 0 && sole != by.0
    }

    /// Lets the session of `asking` cache the names of a directory as they are from now on.
    pub(crate) fn give_names(&self, asking: &mut CacheLeaseRequest, directory: InodeId) {
        if let Some(session) = asking.session {
            asking.holds.names_ms = self.give(session, CacheKey::names(directory));
        }
    }

    /// Lets the session of `asking` cache an inode as it is from now on.
    pub(crate) fn give_inode(&self, asking: &mut CacheLeaseRequest, id: InodeId) {
        if let Some(session) = asking.session {
            asking.holds.files_ms = self.give(session, CacheKey::inode(id));
        }
    }

    /// For how many milliseconds the session may cache `key`; 0: not at all.
    pub(crate) fn give(&self, session: SessionId, key: CacheKey) -> u16 {
        let at = self.now();
        let mut core = self.core.lock();
        match self.publishing.load(Ordering::SeqCst) {
            0 => {}
            MANY => return 0,
            inode if key == CacheKey::inode(InodeId(inode)) => return 0,
            _ => {}
        }
        u16::try_from(core.grants.give(at, session, key) / 1_000_000).unwrap_or(u16::MAX)
    }

    /// A transaction has just run, and no session has read its result yet.
    pub(crate) fn changed(&self, by: RequestKey, changes: &[KeyVersion]) {
        if changes.is_empty() {
            return;
        }
        if !self.is_watched(by.0) {
            return self.leave_unnoted(by.0);
        }
        let mut keys: Vec<CacheKey> = changes.iter().filter_map(|change| cached_of(&change.key)).map(key_of).collect();
        keys.sort_unstable();
        keys.dedup();
        self.change(by, &keys);
    }

    fn written(&self, by: RequestKey, inode: InodeId) {
        match self.is_watched(by.0) {
            true => self.change(by, &[CacheKey::inode(inode)]),
            false => self.leave_unnoted(by.0),
        }
    }

    /// A change by the only session that caches, if any does, is not noted: the next session that reads it first waits
    /// until the leases of this one are dropped.
    fn leave_unnoted(&self, by: SessionId) {
        if self.unnoted.load(Ordering::SeqCst) != by.0 && self.sole.load(Ordering::SeqCst) == by.0 {
            self.unnoted.store(by.0, Ordering::SeqCst);
        }
    }

    fn change(&self, by: RequestKey, keys: &[CacheKey]) {
        self.with(|core, at| core.grants.change(at, by, keys, &mut core.effects));
    }

    /// Answers when no session can still read an older state of the keys in `told`, or of what `request` changed.
    fn when_recalled(&self, request: RequestKey, told: &AnswerKeys, answer: Box<dyn FnOnce() + Send>) {
        self.with(|core, at| {
            let unnoted = self.unnoted.load(Ordering::SeqCst);
            if unnoted != 0 && unnoted != request.0.0 {
                self.unnoted.store(0, Ordering::SeqCst);
                core.grants.changed_unnoted(at, SessionId(unnoted), &mut core.effects);
            }
            // Not for reads of the only session that caches: it would never be the only one again.
            if core.grants.sessions().any(|session| session != request.0) {
                core.noted_until = MonoTime(at.0.saturating_add(core.grants.settings().lease_ns));
            }
            let ticket = AnswerTicket(core.next);
            core.next += 1;
            core.answers.insert(ticket, answer);
            core.grants.answer(at, request, told, ticket, &mut core.effects);
        });
    }

    /// A session polls for recalls. The answer is sent when there is a recall, or after a timeout.
    pub(crate) fn poll(&self, header: &FrameHeader, acked: u64, life: u64, responder: &Arc<dyn Responder>) {
        let current = self.life();
        let acked = if life == current { acked } else { 0 };
        self.with(|core, at| {
            let poll = PollId(core.next);
            core.next += 1;
            core.polls.insert(poll, (*header, responder.clone()));
            core.grants.poll(at, header.session, poll, acked, &mut core.effects);
            // The first poll is answered at once: the client learns its lease time.
            if life != current && core.polls.contains_key(&poll) {
                core.grants.hurry(header.session, &mut core.effects);
            }
        });
    }

    /// Notifies sessions that locks they waited for are granted.
    pub(crate) fn notify_locked(&self, granted: &[(SessionId, u64)]) {
        if !granted.is_empty() {
            self.with(|core, _| {
                for (session, wait) in granted {
                    core.grants.notify_locked(*session, *wait, &mut core.effects);
                }
            });
        }
    }

    /// True if the session is known to keep a cache, or may keep one from an earlier process of this server.
    pub(crate) fn is_known(&self, session: SessionId) -> bool {
        self.core.lock().grants.sessions().any(|known| known == session)
    }

    /// Another server grants cache leases from now on: the next tick redirects the polling sessions to it. A change
    /// there waits for them, at most for one lease.
    pub(crate) fn stand_down(&self) {
        self.stands_down.store(true, Ordering::Release);
    }

    /// To be called a few times a second.
    pub fn tick(&self) {
        if self.stands_down.swap(false, Ordering::AcqRel) {
            let polls = std::mem::take(&mut self.core.lock().polls);
            let elsewhere =
                || Fault::new(Reason::Elsewhere, "another server gives out what may be cached: ask it for recalls");
            polls.into_values().for_each(|(header, to)| to.respond(&header, Err(elsewhere()), &[], 0));
        }
        if self.sole.load(Ordering::Acquire) != 0 {
            self.with(|core, at| core.grants.tick(at, &mut core.effects));
        }
    }

    /// The session has ended.
    pub(crate) fn ended(&self, session: SessionId) {
        if self.sole.load(Ordering::Acquire) != 0 {
            self.with(|core, _| core.grants.ended(session, &mut core.effects));
        }
    }

    /// CacheLeases given in this lease and the one before.
    pub(crate) fn count(&self) -> usize {
        self.core.lock().grants.count()
    }

    /// Number of this server process.
    pub(crate) fn life(&self) -> u64 {
        self.life.load(Ordering::Acquire)
    }

    fn now(&self) -> MonoTime {
        self.clock.reading().mono
    }

    /// Steps the core and then applies its effects outside of the lock: an answer is a system call.
    fn with(&self, step: impl FnOnce(&mut Core, MonoTime)) {
        let at = self.now();
        let mut answers = Vec::new();
        let mut told = Vec::new();
        {
            let mut core = self.core.lock();
            step(&mut core, at);
            for effect in std::mem::take(&mut core.effects) {
                match effect {
                    LeaseEffect::Release(ticket) => answers.extend(core.answers.remove(&ticket)),
                    LeaseEffect::Tell { poll, recall } => {
                        told.extend(core.polls.remove(&poll).map(|(header, to)| (header, to, recall)));
                    }
                }
            }
            let lease_ns = core.grants.settings().lease_ns;
            let mut sessions = core.grants.sessions();
            let sole = match (sessions.next(), sessions.next()) {
                (None, _) => 0,
                (Some(only), None) if at >= core.noted_until => only.0,
                (Some(_), _) => MANY,
            };
            drop(sessions);
            self.sole.store(sole, Ordering::SeqCst);
            drop(core);
            for (header, to, recall) in told {
                to.respond(&header, Ok(Reply::Recalls(self.reply(recall, lease_ns))), &[], 0);
            }
        }
        for answer in answers {
            answer();
        }
    }

    fn reply(&self, recall: Recall, lease_ns: u64) -> RecallsReply {
        let Recall { number, everything, directories, files, locked } = recall;
        RecallsReply {
            number,
            life: self.life(),
            lease_ms: (lease_ns / 1_000_000) as u32,
            everything,
            directories,
            files,
            locked,
        }
    }
}

impl ChangeObserver for Caching {
    fn changed(&self, by: RequestKey, changes: &[KeyVersion]) {
        Caching::changed(self, by, changes);
    }

    fn begin_to_lead(&self, sessions: Vec<SessionId>) {
        self.take_over(sessions);
    }

    fn resign(&self) {
        self.stand_down();
    }
}

impl PublishObserver for Caching {
    fn publishing(&self, by: RequestKey, inode: InodeId) {
        self.publishing.store(inode.0, Ordering::SeqCst);
        self.written(by, inode);
    }

    fn publishing_all(&self, writes: &mut dyn Iterator<Item = (RequestKey, InodeId)>) {
        self.publishing.store(MANY, Ordering::SeqCst);
        for (by, inode) in writes {
            self.written(by, inode);
        }
    }

    fn published(&self) {
        self.publishing.store(0, Ordering::SeqCst);
    }
}

/// The cache key of this item.
fn key_of(cached: Cached) -> CacheKey {
    match cached {
        Cached::Names(directory) => CacheKey::names(directory),
        Cached::Inode(id) => CacheKey::inode(id),
    }
}

/// Delays the answers of one request until no session can still read an older state of what they contain.
pub(crate) struct Gate {
    caching: Arc<Caching>,
    to: Arc<dyn Responder>,
    /// What the request has read so far.
    told: Mutex<levels::AnswerKeys, AnswerKeys>,
}

impl Gate {
    pub(crate) fn new(caching: Arc<Caching>, to: Arc<dyn Responder>, told: AnswerKeys) -> Gate {
        Gate { caching, to, told: Mutex::new(told) }
    }

    fn keys(&self) -> frieze_locks::MutexGuard<'_, AnswerKeys> {
        self.told.lock()
    }
}

impl ReadSet for Gate {
    fn add(&self, what: Cached) {
        self.keys().keys.push(key_of(what));
    }

    fn add_everything(&self) {
        self.keys().everything = true;
    }
}

impl Responder for Gate {
    fn respond(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &[u8], payload_crc: u32) {
        if !self.caching.is_watched(request.session) {
            return self.to.respond(request, result, payload, payload_crc);
        }
        let mut told = std::mem::take(&mut *self.keys());
        told.keys.extend(result.iter().flat_map(inodes_of).map(CacheKey::inode));
        let (to, header, payload) = (self.to.clone(), *request, payload.to_vec());
        let answer = Box::new(move || to.respond(&header, result, &payload, payload_crc));
        self.caching.when_recalled((request.session, request.seq), &told, answer);
    }
}

/// The inodes that an answer is about.
fn inodes_of(reply: &Reply) -> Vec<InodeId> {
    match reply {
        Reply::Stat(reply) => vec![InodeId(reply.attr.inode)],
        Reply::List(reply) => {
            let entries = reply.entries.iter().filter(|entry| entry.attr.is_some()).map(|entry| entry.inode);
            entries.chain([reply.inode]).map(InodeId).collect()
        }
        Reply::Open(reply) => vec![InodeId(reply.attr.inode)],
        Reply::Txn(reply) => reply.attr.iter().chain(&reply.parents).map(|attr| InodeId(attr.inode)).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use frieze_base::Seq;
    use frieze_disk::{SimDisk, SimTime, StateFile};
    use frieze_hlc::{ClockSettings, Hlc, HlcClock};
    use frieze_wire::FrameKind;

    use super::*;
    use frieze_storage::Identity;
    use frieze_storage::IdentityStore;

    const SOLE: SessionId = SessionId(1);
    const OTHER: SessionId = SessionId(2);

    struct Unheard;

    impl Responder for Unheard {
        fn respond(&self, _: &FrameHeader, _: Result<Reply, Fault>, _: &[u8], _: u32) {}
    }

    #[test]
    fn the_only_session_that_caches_is_alone_again_a_lease_after_another_has_read() {
        let time = SimTime::new(1_000_000);
        let file = StateFile::open_or_create(&SimDisk::new(1), "state").unwrap();
        let keeper = Arc::new(IdentityStore::new(Identity::default(), file));
        let clock = HlcClock::new(ClockSettings::default(), Hlc::ZERO);
        let clock = Arc::new(NodeClock::new(clock, Arc::new(time.clone()), keeper));
        let settings = CacheLeaseSettings::default();
        let caching = Caching::new(clock, 1, settings, []);
        let unheard: Arc<dyn Responder> = Arc::new(Unheard);
        let polls = || {
            let header = FrameHeader { session: SOLE, ..FrameHeader::of(FrameKind::Request) };
            caching.poll(&header, 0, 1, &unheard);
        };
        let reads = |session| caching.when_recalled((session, Seq(0)), &AnswerKeys::default(), Box::new(|| {}));
        polls();
        assert!(!caching.is_watched(SOLE) && caching.is_watched(OTHER));
        reads(OTHER);
        assert!(caching.is_watched(SOLE), "what it changes is noted from now on");
        for _ in 0..2 {
            time.advance_us(settings.lease_ns / 2_000);
            polls();
            reads(SOLE);
        }
        assert!(!caching.is_watched(SOLE), "nobody else has read for a lease");
    }
}
