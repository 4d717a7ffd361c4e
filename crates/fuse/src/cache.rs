//! The kernel's caches: what it may use without asking, and how that is recalled (protocols §6).
//!
//! Guarantees: the kernel may use nothing for longer than the server granted it, nor for longer than the lease by this
//! side's clock, so a stopped mount shows nothing stale beyond it; a recall is acknowledged when no answer that it
//! forbids is on its way to the kernel and the kernel has dropped its copies. Leaves to others: the grants (the
//! server), messages to the kernel ([`crate::notify`]).
//!
//! Names are recalled by raising the kernel's *epoch* (Linux 6.16): every earlier name is looked up again. It takes no
//! lock, so it waits for no request, and it covers answers that a program has not read yet. A kernel without it gets
//! names with a validity of zero. Attributes are recalled inode by inode, which takes no lock either; pages of a file
//! are checked against its attributes at every read(2), and dropped for mappings by a thread of its own.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use frieze_base::{FastMap, InodeId, MonoTime};
use frieze_client::{Attr, CacheLease, ChangedParents, Holds, RecallsReply};

use crate::local_changes::{ChangeCount, LocalChanges};
use crate::notify::KernelNotifier;

/// The kernel's cached names and attributes, and their validity.
#[derive(Default)]
pub(crate) struct KernelCache {
    state: Mutex<CacheState>,
    /// Read lock: a cacheable answer is handed to the kernel. Write lock: a recall is taken.
    giving: RwLock<()>,
    kernel: OnceLock<KernelNotifier>,
}

#[derive(Default)]
struct CacheState {
    lease_until: MonoTime,
    /// Recalls taken so far.
    recalls: u64,
    /// The last recall of each key.
    recalled: FastMap<RecallKey, u64>,
    /// Everything was recalled by it.
    floor: u64,
    /// The kernel was given names to keep since it last forgot all.
    keeps_names: bool,
    /// Inodes whose attributes the kernel may keep, in this lease and the one before.
    young: FastMap<InodeId, GivenAttributes>,
    old: FastMap<InodeId, GivenAttributes>,
    turned: MonoTime,
}

/// When the kernel was given attributes last, and until when it keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct GivenAttributes {
    at: MonoTime,
    until: MonoTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RecallKey {
    Names(InodeId),
    Inode(InodeId),
}

/// How long the name and the attributes of a promise hold from now on.
pub(crate) type Holding<'a> = dyn Fn(&CachePromise) -> (Duration, Duration) + 'a;

/// A request that asks for the right to cache its answer.
pub(crate) struct GrantRequest {
    began: u64,
    sent: MonoTime,
    change_count: ChangeCount,
    pub(crate) granted: Arc<CacheLease>,
}

/// The validity of an answer, if nothing is recalled before it reaches the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CachePromise {
    began: u64,
    /// The server counts from later than this.
    sent: MonoTime,
    directory: Option<InodeId>,
    inode: Option<InodeId>,
    holds: Holds,
    /// The mount's own changes that it knows of.
    change_count: ChangeCount,
}

impl GrantRequest {
    /// The promise that the names of a directory, none so far, are known for `names_ms`.
    pub(crate) fn promise_of_empty(&self, directory: InodeId, names_ms: u32) -> CachePromise {
        let names_ms = u16::try_from(names_ms).unwrap_or(u16::MAX);
        let holds = Holds { names_ms, ..Holds::NONE };
        CachePromise { holds, ..self.promise(Some(directory), None) }
    }

    /// The directories that a change of names has changed: their attributes, and the promises of them.
    pub(crate) fn parents(&self) -> Vec<(Attr, CachePromise)> {
        let ChangedParents { attrs, holds_ms } = self.granted.take_parents();
        let holds = Holds { files_ms: u16::try_from(holds_ms).unwrap_or(u16::MAX), ..Holds::NONE };
        let promise = self.promise(None, None);
        let of = |attr: Attr| {
            let promise = promise.of_inode(InodeId(attr.inode), holds);
            (attr, promise)
        };
        attrs.into_iter().map(of).collect()
    }

    /// The promise of an answer about a name in `directory` and about `inode`, where it has them.
    pub(crate) fn promise(&self, directory: Option<InodeId>, inode: Option<InodeId>) -> CachePromise {
        let (began, sent, change_count) = (self.began, self.sent, self.change_count);
        CachePromise { began, sent, directory, inode, holds: self.granted.holds(), change_count }
    }
}

impl CachePromise {
    /// The promise of a listing requested now.
    #[cfg(test)]
    pub(crate) fn of_listing(cache: &KernelCache, directory: InodeId, holds: Holds) -> CachePromise {
        let asking = cache.ask(&LocalChanges::default()).expect("the cache has a lease");
        CachePromise { holds, ..asking.promise(Some(directory), None) }
    }

    /// The mount's own changes that it knows of.
    pub(crate) fn change_count(&self) -> ChangeCount {
        self.change_count
    }

    /// That of an answer to a change of the mount's own, which has ended.
    pub(crate) fn after(self, own: &LocalChanges) -> CachePromise {
        CachePromise { change_count: own.count(), ..self }
    }

    /// True if it is about the attributes of this inode.
    pub(crate) fn is_of(&self, inode: InodeId) -> bool {
        self.inode == Some(inode)
    }

    /// The directory of its names.
    pub(crate) fn directory(&self) -> Option<InodeId> {
        self.directory
    }

    /// The same about an inode alone, which holds for another time.
    pub(crate) fn of_inode(self, inode: InodeId, holds: Holds) -> CachePromise {
        CachePromise { directory: None, inode: Some(inode), holds, ..self }
    }

    /// The same about another inode: of a listing, each entry.
    pub(crate) fn about(self, inode: InodeId) -> CachePromise {
        CachePromise { inode: Some(inode), ..self }
    }
}

impl KernelCache {
    /// From now on answers may be cached: `kernel` can drop them.
    pub(crate) fn begin(&self, kernel: KernelNotifier) {
        // Called once, at the start.
        let _ = self.kernel.set(kernel);
    }

    /// To be called before a request is sent; `None` if its answer could not be cached.
    pub(crate) fn ask(&self, own: &LocalChanges) -> Option<GrantRequest> {
        self.kernel.get()?;
        let change_count = own.count();
        let (state, sent) = (self.lock(), now());
        (sent < state.lease_until).then(|| GrantRequest {
            began: state.recalls,
            sent,
            change_count,
            granted: Arc::default(),
        })
    }

    /// Hands an answer to the kernel by `answer`, which asks for the validity of names and attributes: no recall is
    /// taken meanwhile, so nothing in it may wait for the server. An answer that one of the mount's own changes has
    /// overtaken has a validity of zero: the kernel drops what it knew of a directory in which a name was changed, but
    /// not what is on its way.
    pub(crate) fn giving(&self, own: &LocalChanges, answer: &mut dyn FnMut(&Holding<'_>)) {
        let _giving = self.giving.read().unwrap_or_else(PoisonError::into_inner);
        answer(&|promise| {
            let (names, files) = self.lock().holds(promise);
            let has_epochs = self.kernel.get().is_some_and(|kernel| kernel.has_epochs);
            let is_overtaken = promise.inode.is_some_and(|inode| own.has_changed_inode(promise.change_count, inode));
            (if has_epochs { names } else { Duration::ZERO }, if is_overtaken { Duration::ZERO } else { files })
        });
    }

    /// Takes a recall, the answer to a request sent at `sent`: its keys are dropped when this returns, and the lease
    /// begins anew. `is_new`: the server has restarted.
    pub(crate) fn take(&self, recall: &RecallsReply, sent: MonoTime, is_new: bool) {
        let everything = recall.everything || is_new;
        let lease_ns = u64::from(recall.lease_ms) * 1_000_000;
        let mut files: Vec<InodeId> = Vec::new();
        let mut newest = MonoTime(0);
        // Expired entries are requested again anyway: dropping them would make the answer void (below), which, if the
        // lease has lapsed, may be the first that reflects changes of other clients.
        let mut forget = |inode: InodeId, given: GivenAttributes, now: MonoTime| {
            if now.since_ns(given.until) <= TAKEN_UP.as_nanos() as u64 {
                files.push(inode);
                newest = newest.max(given.at);
            }
        };
        let mut forgets_names = everything || !recall.directories.is_empty();
        {
            // Answers given before are with the kernel, those given later know of the recall.
            let _alone = self.giving.write().unwrap_or_else(PoisonError::into_inner);
            let mut state = self.lock();
            state.turn(lease_ns);
            if forgets_names {
                forgets_names = std::mem::take(&mut state.keeps_names);
            }
            if everything || !recall.directories.is_empty() || !recall.files.is_empty() {
                state.recalls += 1;
            }
            let (recalls, now) = (state.recalls, now());
            if everything {
                state.floor = recalls;
                state.recalled.clear();
                let state = &mut *state;
                for (inode, given) in state.young.drain().chain(state.old.drain()) {
                    forget(inode, given, now);
                }
            }
            if state.recalled.len() > RECALLED_MAX {
                state.floor = recalls;
                state.recalled.clear();
            }
            for &directory in &recall.directories {
                state.recalled.insert(RecallKey::Names(InodeId(directory)), recalls);
            }
            for &file in &recall.files {
                state.recalled.insert(RecallKey::Inode(InodeId(file)), recalls);
                // The kernel need not drop what it was not given; and an answer that is on its way to it must not be
                // made void, because the kernel would continue with its former state.
                let given = state.young.remove(&InodeId(file)).max(state.old.remove(&InodeId(file)));
                if let Some(given) = given {
                    forget(InodeId(file), given, now);
                }
            }
        }
        // For the same reason answers that were just given are taken up first.
        let young = TAKEN_UP.saturating_sub(Duration::from_nanos(now().since_ns(newest)));
        if !files.is_empty() && !young.is_zero() {
            wait_until_taken_up(young);
        }
        if let Some(kernel) = self.kernel.get() {
            if forgets_names {
                kernel.forget_names();
            }
            kernel.forget_files(&files);
        }
        // Counted from before the question was sent, and a twentieth less: clocks do not run alike.
        self.lock().lease_until = MonoTime(sent.0 + lease_ns / 20 * 19);
    }

    /// The kernel requests the attributes of this inode again: the mount's own change altered attributes that the
    /// kernel does not know of.
    pub(crate) fn forget_attributes(&self, inode: InodeId) {
        if let Some(kernel) = self.kernel.get() {
            kernel.forget_attributes(inode);
        }
    }

    /// True if the lease has run out, as this side counts it.
    pub(crate) fn has_lapsed(&self) -> bool {
        now() >= self.lock().lease_until
    }

    /// True if no other client has changed the inode of the promise since it was given.
    pub(crate) fn is_kept(&self, promise: &CachePromise) -> bool {
        self.lock().is_kept(promise)
    }

    /// How long other clients cannot change the names of the promise's directory unnoticed, if none has.
    pub(crate) fn names_left(&self, promise: &CachePromise) -> Duration {
        self.lock().names_left(promise, now())
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    fn holds(&mut self, promise: &CachePromise) -> (Duration, Duration) {
        let now = now();
        let names = self.names_left(promise, now);
        let inode = promise.inode.filter(|inode| self.is_good(promise, RecallKey::Inode(*inode)));
        let files = inode.map_or(Duration::ZERO, |_| self.left(promise, promise.holds.files_ms, now));
        self.keeps_names |= !names.is_zero();
        if let Some(inode) = inode.filter(|_| !files.is_zero()) {
            let until = MonoTime(now.0 + files.as_nanos() as u64);
            self.young.insert(inode, GivenAttributes { at: now, until });
        }
        (names, files)
    }

    fn names_left(&self, promise: &CachePromise, now: MonoTime) -> Duration {
        match promise.directory {
            Some(directory) if self.is_good(promise, RecallKey::Names(directory)) => {
                self.left(promise, promise.holds.names_ms, now)
            }
            _ => Duration::ZERO,
        }
    }

    /// True if nothing of it was recalled since its request.
    fn is_good(&self, promise: &CachePromise, key: RecallKey) -> bool {
        promise.began >= self.floor && self.recalled.get(&key).is_none_or(|at| *at <= promise.began)
    }

    fn left(&self, promise: &CachePromise, ms: u16, now: MonoTime) -> Duration {
        let until = MonoTime(promise.sent.0 + u64::from(ms) * 1_000_000);
        Duration::from_nanos(self.lease_until.since_ns(now).min(until.since_ns(now)))
    }

    fn is_kept(&self, promise: &CachePromise) -> bool {
        let is_good = promise.inode.is_none_or(|inode| self.is_good(promise, RecallKey::Inode(inode)));
        is_good && promise.began >= self.floor && !self.left(promise, promise.holds.files_ms, now()).is_zero()
    }

    /// Entries from before the last lease have expired by themselves.
    fn turn(&mut self, lease_ns: u64) {
        let now = now();
        if now.since_ns(self.turned) >= lease_ns {
            self.old = std::mem::take(&mut self.young);
            self.turned = now;
        }
    }
}

fn now() -> MonoTime {
    frieze_client::mono()
}

/// Waits until programs that were woken by answers have taken them up.
fn wait_until_taken_up(left: Duration) {
    let began = now();
    let mut left = Some(left);
    while let Some(pause) = left {
        let slept_from = now();
        thread::park_timeout(pause);
        let slept = Duration::from_nanos(now().since_ns(slept_from));
        left = still_waits(slept.saturating_sub(pause), Duration::from_nanos(now().since_ns(began)));
    }
}

/// How long to wait on, if this thread, woken as those programs are, got its processor so `late`: so may they.
fn still_waits(late: Duration, waited: Duration) -> Option<Duration> {
    (late > TAKEN_UP / 2 && waited < TAKEN_UP_AT_MOST).then(|| late.clamp(TAKEN_UP, TAKEN_UP_AT_MOST))
}

/// Longer than a program takes from being woken by an answer to having taken it up, where processors are free.
const TAKEN_UP: Duration = Duration::from_millis(5);
/// A recall waits for it no longer than twice this, on the busiest machine.
const TAKEN_UP_AT_MOST: Duration = Duration::from_millis(200);
/// Recalls remembered for answers that are on their way.
const RECALLED_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId(5);
    const FILE: InodeId = InodeId(9);

    fn cache() -> KernelCache {
        let cache = KernelCache::default();
        cache.begin(KernelNotifier::silent());
        cache.take(&reply(), now(), false);
        cache
    }

    fn reply() -> RecallsReply {
        RecallsReply { lease_ms: 5000, life: 1, ..RecallsReply::default() }
    }

    fn asking(cache: &KernelCache) -> CachePromise {
        let asking = cache.ask(&LocalChanges::default()).unwrap();
        CachePromise { holds: Holds { names_ms: 3000, files_ms: 3000 }, ..asking.promise(Some(DIR), Some(FILE)) }
    }

    fn given(cache: &KernelCache, promise: &CachePromise) -> (u64, u64) {
        let mut held = (0, 0);
        cache.giving(&LocalChanges::default(), &mut |holding| {
            let (names, files) = holding(promise);
            held = (names.as_millis().div_ceil(100) as u64 * 100, files.as_millis().div_ceil(100) as u64 * 100);
        });
        held
    }

    #[test]
    fn a_lease_lasts_as_long_as_the_server_grants() {
        let cache = cache();
        assert_eq!(given(&cache, &asking(&cache)), (3000, 3000));
    }

    #[test]
    fn nothing_holds_longer_than_the_lease_as_counted_here() {
        let cache = cache();
        let promise = asking(&cache);
        let long_ago = MonoTime(now().0 - 4_000_000_000);
        cache.take(&reply(), long_ago, false);
        let (names, files) = given(&cache, &promise);
        assert!(names <= 800 && files <= 800, "{names} {files}");
        cache.take(&reply(), MonoTime(now().0 - 6_000_000_000), false);
        assert_eq!(given(&cache, &promise), (0, 0));
        assert!(cache.ask(&LocalChanges::default()).is_none());
    }

    #[test]
    fn a_recall_overtakes_the_answers_on_their_way() {
        let cache = cache();
        let promise = asking(&cache);
        cache.take(&RecallsReply { number: 1, directories: vec![DIR.0], ..reply() }, now(), false);
        assert_eq!(given(&cache, &promise), (0, 3000));
        assert_eq!(given(&cache, &asking(&cache)), (3000, 3000), "asked since");
        let promise = asking(&cache);
        cache.take(&RecallsReply { number: 2, files: vec![FILE.0], ..reply() }, now(), false);
        assert_eq!(given(&cache, &promise), (3000, 0));
    }

    #[test]
    fn what_the_mount_itself_has_changed_since_it_was_asked_for_holds_for_no_time() {
        let (cache, own) = (cache(), LocalChanges::default());
        let held = |promise: &CachePromise| {
            let mut held = (true, true);
            cache.giving(&own, &mut |holding| {
                let (names, files) = holding(promise);
                held = (!names.is_zero(), !files.is_zero());
            });
            held
        };
        let ask = || {
            let promise = cache.ask(&own).unwrap().promise(Some(DIR), Some(FILE));
            CachePromise { holds: Holds { names_ms: 3000, files_ms: 3000 }, ..promise }
        };
        let promise = ask();
        drop(own.touch(InodeId(77)));
        assert_eq!(held(&promise), (true, true));
        drop(own.touch(FILE));
        assert_eq!(held(&promise), (true, false));
        assert_eq!(held(&promise.after(&own)), (true, true), "the change's own answer");
        assert_eq!(held(&ask()), (true, true));
    }

    #[test]
    fn a_server_of_another_life_recalls_everything() {
        let cache = cache();
        let promise = asking(&cache);
        given(&cache, &promise);
        cache.take(&RecallsReply { life: 2, ..reply() }, now(), true);
        assert_eq!(given(&cache, &promise), (0, 0));
    }

    /// The inodes that the kernel has to drop by a recall of everything, `later` after it was given the file.
    fn told(later: Duration) -> Vec<InodeId> {
        let (told, kernel) = std::io::pipe().unwrap();
        let cache = KernelCache::default();
        cache.begin(KernelNotifier::recording(std::os::fd::OwnedFd::from(kernel).into()));
        // The lease and the promise began before.
        let then = MonoTime(now().0 - later.as_nanos() as u64);
        cache.lock().lease_until = MonoTime(then.0 + 3_000_000_000);
        cache.lock().young.insert(FILE, GivenAttributes { at: then, until: MonoTime(then.0 + 3_000_000_000) });
        cache.take(&RecallsReply { everything: true, ..reply() }, now(), false);
        drop(cache);
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut &told, &mut bytes).unwrap();
        // A header of sixteen bytes, the inode, a range.
        let inode = |message: &[u8]| InodeId(u64::from_ne_bytes(message[16..24].try_into().unwrap()));
        bytes.chunks(40).map(inode).collect()
    }

    #[test]
    fn the_kernel_drops_only_entries_that_it_may_still_use() {
        assert_eq!(told(Duration::ZERO), [FILE]);
        assert_eq!(told(Duration::from_millis(2900)), [FILE]);
        assert_eq!(told(Duration::from_millis(3100)), [], "an answer that is on its way would be thrown away");
    }

    #[test]
    fn a_recall_waits_longer_where_threads_get_their_processor_late() {
        let ms = Duration::from_millis;
        assert_eq!(still_waits(ms(1), ms(5)), None);
        assert_eq!(still_waits(ms(3), ms(8)), Some(TAKEN_UP));
        assert_eq!(still_waits(ms(30), ms(35)), Some(ms(30)));
        assert_eq!(still_waits(ms(3000), ms(100)), Some(TAKEN_UP_AT_MOST));
        assert_eq!(still_waits(ms(30), ms(205)), None, "it is bounded");
    }

    #[test]
    fn without_a_lease_nothing_is_asked_for() {
        assert!(KernelCache::default().ask(&LocalChanges::default()).is_none());
        let cache = KernelCache::default();
        cache.begin(KernelNotifier::silent());
        assert!(cache.ask(&LocalChanges::default()).is_none());
    }
}
