//! Where the versions of the namespace live: an overlay in RAM for what is not yet durable in the metalog, and a
//! key-value store on disk for the rest.
//!
//! Guarantees: the store never holds a version whose metalog entry could still be lost, because entries move into it
//! only once they are durable; every commit carries the index it brings the store to, atomically. So after a crash the
//! store is the state of some durable prefix of the metalog, and the rest is replayed.
//!
//! A stored key is the namespace's key with its zero bytes escaped (`00` → `00 ff`), a terminator (`00 00`) and the
//! stamp, big-endian: byte order is key order, then time order. Keys that keep no history (remembered outcomes, `R…`)
//! have stamp 0 and are overwritten and removed in place; their stamp stands before the value. The one version of a session is written
//! again in its place, and removed, as long as nothing names the session.
//!
//! Beside the versions lies the *index of time* (module `times`): which keys changed when, so that the changes of an
//! interval are read without walking the tree. A store from before it had one gets it when it is opened.

mod checkpoint;
mod lsm;
mod memory;
mod other;
mod times;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use frieze_base::{Fault, LogIndex, Reason};
use frieze_hlc::Hlc;
use frieze_namespace::{
    ENTRIES, INODES, KeyVersion, LINKS, VersionHistory, VisitChanged, VisitValue, VisitVersion, erases, inode_between,
    is_rewritten, is_timed, keeps_versions, link_of,
};

pub use checkpoint::{Left, Newest, Section, ShowNewest};
pub use lsm::LsmStore;
pub use memory::MemoryStore;
pub(crate) use other::page_of;
use times::TIMES;

/// A sorted map on stable storage, the seam under the namespace's history.
pub trait VersionStore: Send + Sync {
    /// The last item with a key in `from..=to`.
    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<Item>, Fault>;
    /// All items with a key in `from..=to`, in order.
    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Item, Fault>> + '_>;
    /// Calls `visit` with all items with a key in `from..=to`, in order, where they lie, until it fails.
    fn visit(&self, from: &[u8], to: &[u8], visit: &mut VisitItem<'_>) -> Result<(), Fault> {
        self.items(from, to).try_for_each(|item| item.and_then(|(key, value)| visit(&key, &value)))
    }
    /// Runs two that read, both at once where the store is read by several threads.
    fn read_both(&self, one: &mut (dyn FnMut() + Send), other: &mut (dyn FnMut() + Send)) {
        one();
        other();
    }
    /// Adds `puts`, removes `removals` and records that the metalog is applied up to `applied`: all or nothing.
    fn commit(&self, puts: Vec<Item>, removals: Vec<Vec<u8>>, applied: LogIndex) -> Result<(), Fault>;
    /// The index of the last commit.
    fn applied(&self) -> Result<LogIndex, Fault>;
    /// Makes every commit so far durable.
    fn persist(&self) -> Result<(), Fault>;
    /// Nothing is committed any more, and every commit is durable: what the next start would read one by one is put where it need
    /// not. Whether that succeeds changes only how long the next start takes.
    ///
    /// # Errors
    /// The store's.
    fn rest(&self) -> Result<(), Fault> {
        Ok(())
    }
    /// Leaves the newest versions of entries and inodes for the next start, after [`VersionStore::rest`]. Whether that succeeds changes only
    /// how long it takes.
    ///
    /// # Errors
    /// The disk's.
    fn leave(&self, newest: &Newest<'_>) -> Result<(), Fault> {
        let _ = newest;
        Ok(())
    }
    /// What was left, if nothing has been committed since. What fails its checksum there is an error: the versions are here, too.
    fn left(&self) -> Result<Option<Left<'_>>, Fault> {
        Ok(None)
    }
    /// Gives back copies of its files that the kernel keeps, if they are more than `bytes_max`. Returns how many bytes there
    /// are; 0 where nobody knows, or there are none.
    fn keep_cached(&self, bytes_max: u64) -> Result<u64, Fault> {
        let _ = bytes_max;
        Ok(0)
    }

    /// The store as it is now, whatever is committed afterwards.
    fn view(&self) -> Result<Box<dyn StoreView>, Fault> {
        Err(no_other())
    }

    /// Begins to take in another state beside this one. What there is of an earlier other one goes.
    fn begin_other(&self) -> Result<(), Fault> {
        Err(no_other())
    }

    /// Adds items to the other state.
    fn put_other(&self, items: Vec<Item>) -> Result<(), Fault> {
        let _ = items;
        Err(no_other())
    }

    /// The other state as far as it has come.
    fn other(&self) -> Result<Box<dyn StoreView>, Fault> {
        Err(no_other())
    }

    /// Puts the other state in the place of this one, complete up to `applied` and under `name`: all at once, and durably.
    fn take_other(&self, applied: LogIndex, name: &[u8]) -> Result<(), Fault> {
        let _ = (applied, name);
        Err(no_other())
    }

    /// The name under which the state was put here that came from elsewhere; `None` if none did.
    fn name(&self) -> Result<Option<Vec<u8>>, Fault> {
        Ok(None)
    }
}

/// A store as it was at one moment.
pub trait StoreView: Send {
    /// All items with a key in `from..=to`, in order.
    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Item, Fault>> + '_>;
    /// As [`VersionStore::visit`].
    fn visit(&self, from: &[u8], to: &[u8], visit: &mut VisitItem<'_>) -> Result<(), Fault> {
        self.items(from, to).try_for_each(|item| item.and_then(|(key, value)| visit(&key, &value)))
    }
}

fn no_other() -> Fault {
    Fault::new(Reason::Unsupported, "this store cannot take over the state of another server")
}

/// The keys that a restart reads, in three parts, of which the first two are about as large and can be read at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Directory entries, and the inodes from this key on.
    Apart(Vec<u8>),
    /// The inodes before that key, and all else up to them.
    First(Vec<u8>),
    /// What goes with inodes, and what has nothing to do with them.
    Last,
}

impl Part {
    /// From where to where its keys lie, both beside every key as it is stored. Names by inode and the index of time stay where they are.
    fn ranges(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let after = |letter: u8| vec![letter + 1];
        match self {
            Part::Apart(inode) => vec![(vec![ENTRIES], after(ENTRIES)), (start(inode, &[]), after(INODES))],
            Part::First(inode) => vec![(vec![], vec![ENTRIES]), (after(ENTRIES), start(inode, &[]))],
            Part::Last => {
                vec![(after(INODES), vec![LINKS]), (after(LINKS), vec![TIMES]), (after(TIMES), vec![0xff; 320])]
            }
        }
    }
}

/// Takes a key, the stamp of its newest version, and the value.
pub type LoadVersion<'a> = dyn FnMut(&[u8], Hlc, &[u8]) + 'a;

/// Takes a stored key and value.
pub type VisitItem<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), Fault> + 'a;

/// A stored key and value.
pub type Item = (Vec<u8>, Vec<u8>);

/// Items of one commit while an old store gets its index.
const ITEMS_AT_ONCE: usize = 16_384;
const PRESENT: u8 = 1;
const ABSENT: u8 = 0;
/// Present, of a key that keeps no history: the stamp follows, big-endian, then the value.
const PRESENT_SINCE: u8 = 2;

fn escape_into(key: &[u8], out: &mut Vec<u8>) {
    let mut rest = key;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        out.extend_from_slice(&rest[..=zero]);
        out.push(0xff);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
}

fn stored_key(key: &[u8], stamp: Hlc) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 18);
    stored_key_into(key, stamp, &mut out);
    out
}

fn stored_key_into(key: &[u8], stamp: Hlc, out: &mut Vec<u8>) {
    out.clear();
    escape_into(key, out);
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&stamp.0.to_be_bytes());
}

fn parse_stored_key(stored: &[u8]) -> Result<(Vec<u8>, Hlc), Fault> {
    let (escaped, stamp) = split_stored_key(stored)?;
    let mut key = Vec::with_capacity(escaped.len());
    unescape_into(escaped, &mut key)?;
    Ok((key, stamp))
}

/// The key as it is stored, and the stamp behind it.
fn split_stored_key(stored: &[u8]) -> Result<(&[u8], Hlc), Fault> {
    let split = stored.split_last_chunk().and_then(|(rest, stamp)| Some((rest.strip_suffix(&[0, 0])?, *stamp)));
    let (escaped, stamp) = split.ok_or_else(|| malformed(stored))?;
    Ok((escaped, Hlc(u64::from_be_bytes(stamp))))
}

/// Appends the key that was stored as `escaped`.
fn unescape_into(escaped: &[u8], key: &mut Vec<u8>) -> Result<(), Fault> {
    let mut rest = escaped;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        if rest.get(zero + 1) != Some(&0xff) {
            return Err(malformed(escaped));
        }
        key.extend_from_slice(&rest[..=zero]);
        rest = &rest[zero + 2..];
    }
    key.extend_from_slice(rest);
    Ok(())
}

fn malformed(stored: &[u8]) -> Fault {
    Fault::new(Reason::Corrupt, format!("the namespace's store holds a malformed key {stored:02x?}"))
}

/// First stored key above every key that starts with `prefix`; keys are far shorter than the run of `ff` added.
fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = Vec::with_capacity(prefix.len() + 24);
    escape_into(prefix, &mut end);
    end.extend_from_slice(&[0xff; 320]);
    end
}

/// First stored key of those that start with `prefix` and are greater than the whole key `after` (empty: all).
fn start(prefix: &[u8], after: &[u8]) -> Vec<u8> {
    if after.is_empty() {
        let mut from = Vec::new();
        escape_into(prefix, &mut from);
        return from;
    }
    // Every version of `after` itself lies below its terminator followed by a full stamp.
    let mut from = stored_key(after, Hlc::MAX);
    from.push(0);
    from
}

fn encode_value(value: Option<&[u8]>) -> Vec<u8> {
    match value {
        None => vec![ABSENT],
        Some(value) => {
            let mut bytes = Vec::with_capacity(value.len() + 1);
            bytes.push(PRESENT);
            bytes.extend_from_slice(value);
            bytes
        }
    }
}

fn encode_in_place(stamp: Hlc, value: &[u8]) -> Vec<u8> {
    [&[PRESENT_SINCE][..], &stamp.0.to_be_bytes(), value].concat()
}

/// The stamp and value of a stored item, wherever its stamp stands; `None` if it says that the key is absent.
fn decode_item(stamp: Hlc, stored: &[u8]) -> Option<(Hlc, &[u8])> {
    match stored.split_first()? {
        (&PRESENT, value) => Some((stamp, value)),
        (&PRESENT_SINCE, rest) => {
            let (since, value) = rest.split_first_chunk()?;
            Some((Hlc(u64::from_be_bytes(*since)), value))
        }
        _ => None,
    }
}

fn decode_value(stored: &[u8]) -> Option<&[u8]> {
    match stored.split_first() {
        Some((&PRESENT, value)) => Some(value),
        _ => None,
    }
}

/// The history of the namespace: the overlay over the store.
pub(crate) struct Versions {
    store: Box<dyn VersionStore>,
    overlay: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
    waiting: Mutex<Waiting>,
    /// Held while versions are handed to the store: one at a time, so that it can be looked at in between.
    settling: Mutex<()>,
}

#[derive(Default)]
struct Waiting {
    batches: VecDeque<(LogIndex, Arc<[KeyVersion]>)>,
    changes: usize,
}

impl Versions {
    /// An empty overlay over `store`.
    pub(crate) fn new(store: Box<dyn VersionStore>) -> Versions {
        Versions { store, overlay: RwLock::default(), waiting: Mutex::default(), settling: Mutex::default() }
    }

    /// The store without the overlay.
    pub(crate) fn into_store(self) -> Box<dyn VersionStore> {
        self.store
    }

    /// The index up to which the store on disk is complete.
    pub(crate) fn applied(&self) -> Result<LogIndex, Fault> {
        self.store.applied()
    }

    /// Takes the changes of the metalog entry `index` into the overlay: they are readable from now.
    pub(crate) fn add(&self, index: LogIndex, changes: Vec<KeyVersion>) {
        {
            let mut overlay = self.overlay.write().unwrap_or_else(PoisonError::into_inner);
            for change in changes.iter().filter(|change| keeps_versions(&change.key)) {
                overlay.insert(stored_key(&change.key, change.stamp), encode_value(change.value.as_deref()));
            }
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.changes += changes.len();
        waiting.batches.push_back((index, changes.into()));
    }

    /// Number of changes that wait in RAM for their metalog entries to become durable.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).changes
    }

    /// Moves the changes of all entries up to `durable` from the overlay into the store. Returns how far the store is.
    ///
    /// # Errors
    /// The store's; nothing is lost: the changes stay in the overlay and the next call tries again.
    pub(crate) fn settle(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        let _one = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        self.settle_held(durable)
    }

    fn settle_held(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        // They stay in the queue until the store has them, so that the index of time misses none meanwhile.
        let taken: Vec<(LogIndex, Arc<[KeyVersion]>)> = {
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.batches.iter().take_while(|(index, _)| *index <= durable).cloned().collect()
        };
        let Some(applied) = taken.last().map(|(index, _)| *index) else {
            return self.store.applied();
        };
        let mut puts = Vec::new();
        // What may be written several times, of which the last counts.
        let mut in_place: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        let changes = || taken.iter().flat_map(|(_, changes)| changes.iter());
        for KeyVersion { key, stamp, value } in changes() {
            let value = value.as_deref();
            if !keeps_versions(key) {
                in_place.insert(stored_key(key, Hlc::ZERO), value.map(|value| encode_in_place(*stamp, value)));
            } else if is_rewritten(key) {
                let erased = value.is_none() && erases(key, *stamp);
                in_place.insert(stored_key(key, *stamp), (!erased).then(|| encode_value(value)));
            } else {
                puts.push((stored_key(key, *stamp), encode_value(value)));
            }
        }
        let mut removals = Vec::new();
        for (key, value) in in_place {
            match value {
                Some(value) => puts.push((key, value)),
                None => removals.push(key),
            }
        }
        puts.extend(times::pages(changes()));
        self.store.commit(puts, removals, applied)?;
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            while let Some((_, changes)) = waiting.batches.pop_front_if(|(index, _)| *index <= applied) {
                waiting.changes -= changes.len();
            }
        }
        let mut key = Vec::new();
        let mut overlay = self.overlay.write().unwrap_or_else(PoisonError::into_inner);
        for change in changes().filter(|change| keeps_versions(&change.key)) {
            stored_key_into(&change.key, change.stamp, &mut key);
            // What was written again in its place meanwhile waits for its own entry.
            let is_newer = |value: &Vec<u8>| *value != encode_value(change.value.as_deref());
            if !is_rewritten(&change.key) || !overlay.get(&key).is_some_and(is_newer) {
                overlay.remove(&key);
            }
        }
        Ok(applied)
    }

    /// See [`VersionStore::keep_cached`].
    pub(crate) fn keep_cached(&self, bytes_max: u64) -> Result<u64, Fault> {
        self.store.keep_cached(bytes_max)
    }

    /// Makes the store durable up to what was settled.
    pub(crate) fn persist(&self) -> Result<(), Fault> {
        self.store.persist()
    }

    /// See [`VersionStore::rest`].
    pub(crate) fn rest(&self) -> Result<(), Fault> {
        self.store.rest()
    }

    /// See [`VersionStore::leave`]: of a namespace into which nothing was executed that is not in the store.
    pub(crate) fn leave(&self, newest: &Newest<'_>) -> Result<(), Fault> {
        self.store.leave(newest)
    }

    /// See [`VersionStore::left`].
    pub(crate) fn left(&self) -> Result<Option<Left<'_>>, Fault> {
        self.store.left()
    }

    /// See [`VersionStore::read_both`].
    pub(crate) fn read_both(&self, one: &mut (dyn FnMut() + Send), other: &mut (dyn FnMut() + Send)) {
        self.store.read_both(one, other);
    }

    /// The key of an inode between two parts of those that a restart reads.
    pub(crate) fn inode_between(&self) -> Result<Vec<u8>, Fault> {
        inode_between_of(self.store.last_in(&[INODES], &[INODES + 1])?)
    }

    /// Calls `load` with the newest version of every key of a part that is present: what a restart begins with.
    pub(crate) fn load(&self, part: &Part, load: &mut LoadVersion<'_>) -> Result<(), Fault> {
        load_newest(part, &|from, to, visit| self.store.visit(from, to, visit), load)
    }

    /// Makes the index of time and the names by inode of a store that has none yet: one from before they were kept.
    ///
    /// # Errors
    /// Those of the store; what was made so far is made again the next time.
    ///
    /// # Cost
    /// One look at a store that has them; else a pass over all versions.
    pub(crate) fn complete(&self) -> Result<(), Fault> {
        if self.store.last_in(&[TIMES], &[TIMES])?.is_some() {
            return Ok(());
        }
        let applied = self.store.applied()?;
        let mut timed: Vec<(Hlc, Vec<u8>)> = Vec::new();
        let mut links: Vec<Item> = Vec::new();
        let mut last: Option<(Vec<u8>, Vec<u8>)> = None;
        for item in self.store.items(&[], &[TIMES]) {
            let (stored, value) = item?;
            let (key, stamp) = parse_stored_key(&stored)?;
            if is_timed(&key) {
                timed.push((stamp, key.clone()));
            }
            let link = decode_value(&value).and_then(|value| link_of(&key, value)).map(|(link, _)| link);
            // The entry of before stood for something else.
            let gone =
                last.take_if(|(entry, _)| *entry == key).map(|(_, link)| link).filter(|old| Some(old) != link.as_ref());
            links.extend(gone.map(|old| (stored_key(&old, stamp), encode_value(None))));
            if let Some(link) = link {
                links.push((stored_key(&link, stamp), encode_value(Some(&[]))));
                last = Some((key, link));
            }
            if links.len() >= ITEMS_AT_ONCE {
                self.store.commit(std::mem::take(&mut links), Vec::new(), applied)?;
            }
        }
        for item in self.store.items(&[TIMES + 1], &[0xff; 320]) {
            let (key, stamp) = parse_stored_key(&item?.0)?;
            if is_timed(&key) {
                timed.push((stamp, key));
            }
        }
        timed.sort();
        let timed: Vec<(Hlc, &[u8])> = timed.iter().map(|(stamp, key)| (*stamp, key.as_slice())).collect();
        let mut pages = times::pages_of(&timed);
        while !pages.is_empty() {
            let rest = pages.split_off(pages.len().min(ITEMS_AT_ONCE / 64));
            self.store.commit(std::mem::replace(&mut pages, rest), Vec::new(), applied)?;
        }
        links.push((vec![TIMES], Vec::new()));
        self.store.commit(links, Vec::new(), applied)
    }

    /// All versions with a stored key in `from..=to`, overlay and store merged.
    fn merged(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), Fault> {
        // An item may be in both for a moment, or be written again: the younger counts. The store is opened second, so nothing falls
        // between the two.
        let overlay: Vec<Item> = {
            let overlay = self.overlay.read().unwrap_or_else(PoisonError::into_inner);
            overlay.range(from.to_vec()..=to.to_vec()).map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let mut young = overlay.into_iter().peekable();
        for item in self.store.items(from, to) {
            let (key, value) = item?;
            let mut is_old = false;
            while let Some((young_key, young_value)) = young.next_if(|(young_key, _)| *young_key <= key) {
                is_old |= young_key == key;
                if is_erasure(&young_key, &young_value)? {
                    continue;
                }
                if !visit(&young_key, &young_value) {
                    return Ok(());
                }
            }
            if !is_old && !visit(&key, &value) {
                return Ok(());
            }
        }
        for (key, value) in young {
            if !is_erasure(&key, &value)? && !visit(&key, &value) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// True if an item of the overlay says that the version in the store goes: once it has gone nothing is left of either.
fn is_erasure(stored: &[u8], value: &[u8]) -> Result<bool, Fault> {
    if decode_value(value).is_some() || !is_rewritten(stored) {
        return Ok(false);
    }
    let (key, stamp) = parse_stored_key(stored)?;
    Ok(erases(&key, stamp))
}

/// As [`Versions::inode_between`], where the last inode is in this item.
fn inode_between_of(last: Option<Item>) -> Result<Vec<u8>, Fault> {
    let key = last.map(|(stored, _)| parse_stored_key(&stored)).transpose()?.map(|(key, _)| key);
    Ok(inode_between(&key.unwrap_or_default()))
}

/// Visits the items of a range.
type VisitRange<'a> = dyn Fn(&[u8], &[u8], &mut VisitItem<'_>) -> Result<(), Fault> + 'a;

/// Calls `load` with the newest version of every key of a part that is present.
fn load_newest(part: &Part, range: &VisitRange<'_>, load: &mut LoadVersion<'_>) -> Result<(), Fault> {
    // Of the key that is looked at: as it is stored, the stamp of its newest version so far, and that. Nothing before the first.
    let (mut escaped, mut stamp, mut newest) = (Vec::new(), Hlc::ZERO, Vec::new());
    let mut key = Vec::new();
    let mut hand_over = |escaped: &[u8], stamp: Hlc, newest: &[u8]| {
        let Some((stamp, value)) = decode_item(stamp, newest) else { return Ok(()) };
        key.clear();
        unescape_into(escaped, &mut key)?;
        load(&key, stamp, value);
        Ok(())
    };
    for (from, to) in part.ranges() {
        range(&from, &to, &mut |stored, value| {
            if stored == [TIMES] {
                return Ok(());
            }
            let (next, its_stamp) = split_stored_key(stored)?;
            if next != escaped {
                hand_over(&escaped, stamp, &newest)?;
                escaped.clear();
                escaped.extend_from_slice(next);
            }
            stamp = its_stamp;
            newest.clear();
            newest.extend_from_slice(value);
            Ok(())
        })?;
    }
    hand_over(&escaped, stamp, &newest)
}

impl VersionHistory for Versions {
    fn newest(&self, key: &[u8], at: Hlc) -> Result<Option<(Hlc, Option<Vec<u8>>)>, Fault> {
        let (from, to) = (stored_key(key, Hlc::ZERO), stored_key(key, at));
        let young = {
            let overlay = self.overlay.read().unwrap_or_else(PoisonError::into_inner);
            overlay.range(from.clone()..=to.clone()).next_back().map(|(key, value)| (key.clone(), value.clone()))
        };
        let old = self.store.last_in(&from, &to)?;
        let Some((stored, value)) = old.into_iter().chain(young).max_by(|a, b| a.0.cmp(&b.0)) else {
            return Ok(None);
        };
        if is_erasure(&stored, &value)? {
            // It was the only version.
            return Ok(None);
        }
        let (_, stamp) = parse_stored_key(&stored)?;
        Ok(Some((stamp, decode_value(&value).map(<[u8]>::to_vec))))
    }

    fn scan(&self, prefix: &[u8], after: &[u8], at: Hlc, visit: &mut VisitValue<'_>) -> Result<(), Fault> {
        let from = start(prefix, after);
        let mut newest: Option<(Vec<u8>, Hlc, Vec<u8>)> = None;
        let mut stopped = false;
        let mut failed = None;
        self.merged(&from, &prefix_end(prefix), &mut |stored, value| {
            let (key, stamp) = match parse_stored_key(stored) {
                Ok(parsed) => parsed,
                Err(fault) => {
                    failed = Some(fault);
                    return false;
                }
            };
            if stamp > at {
                return true;
            }
            if let Some((last, last_stamp, last_value)) = newest.take_if(|(last, _, _)| *last != key)
                && let Some(present) = decode_value(&last_value)
                && !visit(&last, last_stamp, present)
            {
                stopped = true;
                return false;
            }
            newest = Some((key, stamp, value.to_vec()));
            true
        })?;
        if let Some(fault) = failed {
            return Err(fault);
        }
        if let Some((key, stamp, value)) = newest
            && !stopped
            && let Some(present) = decode_value(&value)
        {
            visit(&key, stamp, present);
        }
        Ok(())
    }

    fn versions(
        &self,
        prefix: &[u8],
        above: &[u8],
        after: Hlc,
        upto: Hlc,
        visit: &mut VisitVersion<'_>,
    ) -> Result<(), Fault> {
        let from = start(prefix, above);
        let mut failed = None;
        self.merged(&from, &prefix_end(prefix), &mut |stored, value| match parse_stored_key(stored) {
            Ok((key, stamp)) if stamp > after && stamp <= upto => visit(&key, stamp, decode_value(value)),
            Ok(_) => true,
            Err(fault) => {
                failed = Some(fault);
                false
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn versions_of(&self, key: &[u8], after: Hlc, upto: Hlc, visit: &mut VisitVersion<'_>) -> Result<(), Fault> {
        if after >= upto {
            return Ok(());
        }
        let mut failed = None;
        let (from, to) = (stored_key(key, after.next()), stored_key(key, upto));
        self.merged(&from, &to, &mut |stored, value| match parse_stored_key(stored) {
            Ok((key, stamp)) => visit(&key, stamp, decode_value(value)),
            Err(fault) => {
                failed = Some(fault);
                false
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn changed(&self, after: Hlc, upto: Hlc, visit: &mut VisitChanged<'_>) -> Result<u64, Fault> {
        if after >= upto {
            return Ok(0);
        }
        // What waits is taken first: a batch that is settled meanwhile is found in both places, never in none.
        let waiting = self.waiting_since(after);
        let mut read = 0;
        let mut seen = after;
        let mut stopped = false;
        let mut show = |stamp: Hlc, key: &[u8]| {
            if stamp <= after {
                return true;
            }
            seen = seen.max(stamp);
            stopped = stamp > upto || !visit(stamp, key);
            !stopped
        };
        // The page that begins at or before may reach into the interval.
        let first = self.store.last_in(&times::page_key(Hlc::ZERO), &times::page_key(after))?;
        let from = first.map_or_else(|| times::page_key(after), |(key, _)| key);
        for page in self.store.items(&from, &times::page_key(upto)) {
            let (goes_on, count) = times::read(&page?, &mut show)?;
            read += count;
            if !goes_on {
                return Ok(read);
            }
        }
        let settled = seen;
        for change in waiting.iter().flat_map(|changes| changes.iter()).filter(|change| change.stamp > settled) {
            if change.stamp > upto {
                break;
            }
            if is_timed(&change.key) {
                read += 1;
                if !visit(change.stamp, &change.key) {
                    break;
                }
            }
        }
        Ok(read)
    }

    fn changed_back(&self, after: Hlc, upto: Hlc, visit: &mut VisitChanged<'_>) -> Result<u64, Fault> {
        if after >= upto {
            return Ok(0);
        }
        // As above: what waits first.
        let waiting = self.waiting_since(after);
        let first_waiting = waiting.first().and_then(|changes| changes.first()).map(|change| change.stamp);
        let mut read = 0;
        for change in waiting.iter().rev().flat_map(|changes| changes.iter().rev()) {
            if change.stamp > after && change.stamp <= upto && is_timed(&change.key) {
                read += 1;
                if !visit(change.stamp, &change.key) {
                    return Ok(read);
                }
            }
        }
        let mut end = first_waiting.map_or(upto, |first| upto.min(first.previous()));
        while end > after {
            let Some(page) = self.store.last_in(&times::page_key(Hlc::ZERO), &times::page_key(end))? else { break };
            let mut changes: Vec<(Hlc, Vec<u8>)> = Vec::new();
            let (_, count) = times::read(&page, &mut |stamp, key| {
                changes.push((stamp, key.to_vec()));
                true
            })?;
            read += count;
            let Some(first) = changes.first().map(|(stamp, _)| *stamp) else { break };
            for (stamp, key) in changes.iter().rev().filter(|(stamp, _)| *stamp <= end) {
                if *stamp <= after || !visit(*stamp, key) {
                    return Ok(read);
                }
            }
            end = first.previous();
        }
        Ok(read)
    }
}

impl Versions {
    /// Changes that wait in RAM, of the batches that have some later than `after`, in order of stamp.
    fn waiting_since(&self, after: Hlc) -> Vec<Arc<[KeyVersion]>> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let young =
            |(_, changes): &&(LogIndex, Arc<[KeyVersion]>)| changes.iter().rev().any(|change| change.stamp > after);
        waiting.batches.iter().filter(young).map(|(_, changes)| changes.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
