//! Looking ahead: who walks through the names of a directory in order gets several at a time.
//!
//! Programs look at every file of a tree in order (`git status`, `rsync`, `make`), and what the kernel was told of them has
//! run out. Each would be a request to the server. So the second name in a row is asked for together with those that follow
//! it, which are kept here for the moment.
//!
//! Guarantees: what is said was so when the kernel asked, as far as anybody can tell: the answer came with a grant that lasts
//! still and was not recalled, and this mount has changed nothing at all since before it asked. Each name is said once.
//! Who does not walk on pays one request and is left alone.
//! Leaves to others: whether a grant still holds ([`crate::cache`]), asking the server ([`crate::tree`]).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::{FastMap, InodeId, MonoTime};
use frieze_client::{Attr, ListReply, mono};

use crate::cache::{Cache, Promise};
use crate::operations::Who;
use crate::own::{Own, Still};

/// The directories that are walked through. Bounded by [`DIRECTORIES_MAX`] times [`NAMES_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Ahead(Mutex<Walks>);

#[derive(Debug, Default)]
struct Walks {
    directories: FastMap<InodeId, Walk>,
    /// Directories walked through one after the other.
    in_a_row: u32,
}

#[derive(Debug)]
struct Walk {
    /// The name that was asked for last, and when.
    last: Box<[u8]>,
    at: MonoTime,
    /// How many names to ask for next; 0: nobody walks here.
    names: u32,
    page: Option<Page>,
}

#[derive(Debug)]
struct Page {
    reply: ListReply,
    /// Which of its entries were used.
    said: Vec<bool>,
    used: usize,
    /// For whom it was asked, if it holds all names of the directory.
    whole_for: Option<(u32, u32)>,
    promise: Promise,
    still: Still,
    asked: MonoTime,
}

/// A question for several names, when nothing was under way.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    /// Who asks.
    pub(crate) who: Who,
    /// The directory.
    pub(crate) directory: InodeId,
    /// The name that is looked for.
    pub(crate) name: &'a [u8],
    /// The name before the first.
    pub(crate) after: Box<[u8]>,
    /// Where the mount's own changes stood.
    pub(crate) still: Still,
}

/// What to do for a name that the kernel asks for.
#[derive(Debug)]
pub(crate) enum Next {
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
    Known(Box<(Attr, Promise)>),
}

impl Ahead {
    /// What to do for `name` in `directory`.
    pub(crate) fn next(&self, cache: &Cache, own: &Own, directory: InodeId, name: &[u8]) -> Next {
        let now = mono();
        let mut walks = self.lock();
        let Walks { directories, in_a_row } = &mut *walks;
        if !directories.contains_key(&directory) && directories.len() >= DIRECTORIES_MAX {
            directories.clear();
        }
        let walk = directories.entry(directory).or_insert_with(Walk::new);
        if now.since_ns(walk.at) > MOMENT.as_nanos() as u64 {
            *walk = Walk::new();
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
                return if cache.is_kept(&promise) { Next::Known(Box::new((attr, promise))) } else { Next::Ask };
            }
            walk.names = if page.used * 2 >= page.said.len() { (walk.names * 4).min(NAMES_MAX) } else { 0 };
            walk.page = None;
        }
        // Who walks through a tree begins each directory with its first name.
        let begins = last.is_empty() && *in_a_row >= IN_A_ROW;
        if walk.names == 0 || *last >= *name || (last.is_empty() && !begins) {
            return Next::Ask;
        }
        Next::List { after: last, names: walk.names }
    }

    /// The answer to [`Next::List`]; what it says of the name.
    pub(crate) fn found(
        &self,
        cache: &Cache,
        asked: Asked<'_>,
        reply: ListReply,
        promise: Promise,
    ) -> Option<(Attr, Promise)> {
        let mut walks = self.lock();
        let Walks { directories, in_a_row } = &mut *walks;
        let walk = directories.get_mut(&asked.directory)?;
        let is_whole = asked.after.is_empty() && !reply.more;
        let whole_for = is_whole.then_some((asked.who.uid, asked.who.gid));
        let said = vec![false; reply.entries.len()];
        let mut page = Page { reply, said, used: 0, whole_for, promise, still: asked.still, asked: mono() };
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

    /// All names of a directory, if they were asked for by the same user a moment ago.
    pub(crate) fn listing(
        &self,
        cache: &Cache,
        own: &Own,
        directory: InodeId,
        who: Who,
    ) -> Option<(ListReply, Promise)> {
        let walks = self.lock();
        let page = walks.directories.get(&directory)?.page.as_ref()?;
        let is_theirs = page.whole_for == Some((who.uid, who.gid));
        (is_theirs && page.is_good(cache, own, mono())).then(|| (page.reply.clone(), page.promise))
    }

    /// The directory cannot be listed: names are asked for one by one.
    pub(crate) fn give_up(&self, directory: InodeId) {
        if let Some(walk) = self.lock().directories.get_mut(&directory) {
            walk.names = 0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Walks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Walk {
    fn new() -> Walk {
        Walk { last: Box::default(), at: MonoTime(0), names: NAMES_FIRST, page: None }
    }
}

impl Page {
    /// What it says of a name, once.
    fn say(&mut self, name: &[u8]) -> Option<Attr> {
        let at = self.reply.entries.binary_search_by(|entry| entry.name[..].cmp(name)).ok()?;
        if std::mem::replace(&mut self.said[at], true) {
            return None;
        }
        self.used += 1;
        self.reply.entries[at].attr.clone()
    }

    fn is_good(&self, cache: &Cache, own: &Own, now: MonoTime) -> bool {
        own.still() == Some(self.still)
            && now.since_ns(self.asked) <= MOMENT.as_nanos() as u64
            && !cache.names_left(&self.promise).is_zero()
            && cache.is_kept(&self.promise)
    }
}

/// Longer than a program takes from one name to the next.
const MOMENT: Duration = Duration::from_secs(1);
/// Names that are asked for at first: what a few of them alone would cost.
const NAMES_FIRST: u32 = 32;
/// So many directories walked through, and the next is walked through as well.
const IN_A_ROW: u32 = 2;
/// Names that are asked for at a time, at most.
const NAMES_MAX: u32 = 256;
/// Directories remembered.
const DIRECTORIES_MAX: usize = 256;

#[cfg(test)]
mod tests;
