//! Attribute prefetch: a program that walks through the names of a directory in order gets several entries per request.
//!
//! Programs stat every file of a tree in order (`git status`, `rsync`, `make`), and the kernel's cached entries have
//! expired. Each would be a request to the server. So the second name in a row is requested together with those that
//! follow it, which are kept here for a moment.
//!
//! Guarantees: an entry returned from here was valid when the kernel asked, as far as it can be known: the answer came
//! with a grant that has not expired and was not recalled, and this mount has changed nothing at all since before its
//! request. Each entry is used once. A program that does not walk on pays for one request and triggers no further
//! prefetch. Leaves to others: whether a grant is still valid ([`crate::cache`]), requests to the server
//! ([`crate::tree`]).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::{FastMap, InodeId, MonoTime};
use frieze_client::{Attr, ListReply, mono};

use crate::cache::{CachePromise, KernelCache};
use crate::local_changes::{LocalChanges, Still};
use crate::operations::FuseCaller;

/// The directories that are walked through. Bounded by [`DIRECTORIES_MAX`] times [`NAMES_MAX`].
#[derive(Debug, Default)]
pub(crate) struct AttrPrefetch(Mutex<Walks>);

#[derive(Debug, Default)]
struct Walks {
    directories: FastMap<InodeId, DirWalk>,
    /// Directories walked through one after the other.
    in_a_row: u32,
}

#[derive(Debug)]
struct DirWalk {
    /// The name of the last request, and its time.
    last: Box<[u8]>,
    at: MonoTime,
    /// Number of names to request next; 0: no walk in this directory.
    names: u32,
    page: Option<PrefetchedPage>,
}

#[derive(Debug)]
struct PrefetchedPage {
    reply: ListReply,
    /// Which of its entries were used.
    said: Vec<bool>,
    used: usize,
    /// User and group of the request, if the page has all names of the directory.
    whole_for: Option<(u32, u32)>,
    promise: CachePromise,
    still: Still,
    asked: MonoTime,
}

/// A question for several names, when nothing was under way.
#[derive(Debug)]
pub(crate) struct LookupRequest<'a> {
    /// The caller.
    pub(crate) who: FuseCaller,
    /// The directory.
    pub(crate) directory: InodeId,
    /// The name to look up.
    pub(crate) name: &'a [u8],
    /// The name before the first.
    pub(crate) after: Box<[u8]>,
    /// Where the mount's own changes stood.
    pub(crate) still: Still,
}

/// Next step for a name that the kernel looks up.
#[derive(Debug)]
pub(crate) enum PrefetchStep {
    /// Ask the server for it.
    Ask,
    /// Ask the server for `names` names from after this one; it is among them, most likely.
    List {
        /// A name before it.
        after: Box<[u8]>,
        /// How many.
        names: u32,
    },
    /// It is known.
    Known(Box<(Attr, CachePromise)>),
}

impl AttrPrefetch {
    /// Next step for `name` in `directory`.
    pub(crate) fn next(
        &self,
        cache: &KernelCache,
        own: &LocalChanges,
        directory: InodeId,
        name: &[u8],
    ) -> PrefetchStep {
        let now = mono();
        let mut walks = self.lock();
        let Walks { directories, in_a_row } = &mut *walks;
        if !directories.contains_key(&directory) && directories.len() >= DIRECTORIES_MAX {
            directories.clear();
        }
        let walk = directories.entry(directory).or_insert_with(DirWalk::new);
        if now.since_ns(walk.at) > MOMENT.as_nanos() as u64 {
            *walk = DirWalk::new();
        }
        walk.at = now;
        let last = std::mem::replace(&mut walk.last, Box::from(name));
        if let Some(page) = &mut walk.page {
            if page.is_good(cache, own, now)
                && let Some(attr) = page.say(name)
            {
                if page.used == page.said.len().div_ceil(2).max(2) {
                    *in_a_row += 1;
                }
                let promise = page.promise.about(InodeId(attr.inode));
                return if cache.is_kept(&promise) {
                    PrefetchStep::Known(Box::new((attr, promise)))
                } else {
                    PrefetchStep::Ask
                };
            }
            walk.names = if page.used * 2 >= page.said.len() { (walk.names * 4).min(NAMES_MAX) } else { 0 };
            walk.page = None;
        }
        // A walk through a tree begins each directory with its first name.
        let begins = last.is_empty() && *in_a_row >= IN_A_ROW;
        if walk.names == 0 || *last >= *name || (last.is_empty() && !begins) {
            return PrefetchStep::Ask;
        }
        PrefetchStep::List { after: last, names: walk.names }
    }

    /// Stores the answer to [`PrefetchStep::List`]; returns its entry for the name.
    pub(crate) fn found(
        &self,
        cache: &KernelCache,
        asked: LookupRequest<'_>,
        reply: ListReply,
        promise: CachePromise,
    ) -> Option<(Attr, CachePromise)> {
        let mut walks = self.lock();
        let Walks { directories, in_a_row } = &mut *walks;
        let walk = directories.get_mut(&asked.directory)?;
        let is_whole = asked.after.is_empty() && !reply.more;
        let whole_for = is_whole.then_some((asked.who.uid, asked.who.gid));
        let said = vec![false; reply.entries.len()];
        let mut page = PrefetchedPage { reply, said, used: 0, whole_for, promise, still: asked.still, asked: mono() };
        let attr = page.say(asked.name);
        if cache.names_left(&promise).is_zero() || attr.is_none() {
            walk.names = 0;
            *in_a_row = 0;
        } else {
            walk.page = Some(page);
        }
        attr.map(|attr| {
            let promise = promise.about(InodeId(attr.inode));
            (attr, promise)
        })
    }

    /// All names of a directory, if the same user requested them a moment ago.
    pub(crate) fn listing(
        &self,
        cache: &KernelCache,
        own: &LocalChanges,
        directory: InodeId,
        who: FuseCaller,
    ) -> Option<(ListReply, CachePromise)> {
        let walks = self.lock();
        let page = walks.directories.get(&directory)?.page.as_ref()?;
        let is_theirs = page.whole_for == Some((who.uid, who.gid));
        (is_theirs && page.is_good(cache, own, mono())).then(|| (page.reply.clone(), page.promise))
    }

    /// The directory cannot be listed: names are looked up one by one.
    pub(crate) fn stop_walk(&self, directory: InodeId) {
        if let Some(walk) = self.lock().directories.get_mut(&directory) {
            walk.names = 0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Walks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DirWalk {
    fn new() -> DirWalk {
        DirWalk { last: Box::default(), at: MonoTime(0), names: NAMES_FIRST, page: None }
    }
}

impl PrefetchedPage {
    /// Takes the entry of a name, once.
    fn say(&mut self, name: &[u8]) -> Option<Attr> {
        let at = self.reply.entries.binary_search_by(|entry| entry.name[..].cmp(name)).ok()?;
        if std::mem::replace(&mut self.said[at], true) {
            return None;
        }
        self.used += 1;
        self.reply.entries[at].attr.clone()
    }

    fn is_good(&self, cache: &KernelCache, own: &LocalChanges, now: MonoTime) -> bool {
        own.still() == Some(self.still)
            && now.since_ns(self.asked) <= MOMENT.as_nanos() as u64
            && !cache.names_left(&self.promise).is_zero()
            && cache.is_kept(&self.promise)
    }
}

/// Longer than a program takes from one name to the next.
const MOMENT: Duration = Duration::from_secs(1);
/// Names of the first request: the cost of a few single lookups.
const NAMES_FIRST: u32 = 32;
/// So many directories walked through, and the next is walked through as well.
const IN_A_ROW: u32 = 2;
/// Names of a request, at most.
const NAMES_MAX: u32 = 256;
/// Directories remembered.
const DIRECTORIES_MAX: usize = 256;

#[cfg(test)]
mod tests;
