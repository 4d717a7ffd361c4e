//! One open directory: entries paged from the server, under offsets that stay put while it is read.
//!
//! Offset 0 is `.`, 1 is `..`, entry k has offset k + 2; the cookie of an entry is the offset after it. Only the page
//! being read is in memory, with a mark (offset, name before it) for each page passed, so a directory of any size costs
//! little, and deleting while reading (`rm -r`) skips nothing: pages follow one another by name, not by count. Going
//! back to 0 reads the directory anew, as `rewinddir` asks; so does the first read, where a name was made since
//! opendir.

use frieze_client::{DirEntry, ListReply};

/// A line to show, and its cookie.
pub(crate) enum ListingLine<'a> {
    /// The directory itself.
    Itself,
    /// Its parent.
    Parent,
    /// An entry.
    Entry(&'a DirEntry),
}

/// The state of an open directory.
#[derive(Default)]
pub(crate) struct DirListing {
    /// Offset of the first entry of `page`.
    first: u64,
    page: Vec<DirEntry>,
    more: bool,
    parent: u64,
    /// (offset, name that sorts just before it) of every page so far; the first is (2, "").
    marks: Vec<(u64, Vec<u8>)>,
    /// The first page was fetched when the directory was opened and has not been shown yet.
    fresh: bool,
    /// The page was fetched for the current walk.
    is_new: bool,
    /// The largest offset shown so far.
    shown: u64,
}

const DOTS: u64 = 2;

impl DirListing {
    /// A listing that begins with the page just fetched.
    pub(crate) fn opened(reply: ListReply) -> DirListing {
        let mut listing = DirListing { fresh: true, ..DirListing::default() };
        listing.start(reply);
        listing
    }

    /// The page that came with the opening is out of date: the first read fetches it anew. The caller may have rewound,
    /// which the kernel does not pass on where nothing was read before.
    pub(crate) fn outdate(&mut self) {
        self.fresh = false;
    }

    /// The directory's parent, from the server's last answer.
    pub(crate) fn parent(&self) -> u64 {
        self.parent
    }

    /// True, while [`DirListing::walk`] shows, if the page was fetched since that began.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Shows lines from `offset` until `show(line, cookie)` returns that it is full, or until the end. `fetch(name)`
    /// requests the page after a name. `is_good`: the current page equals one fetched now; if not, the rest of it is
    /// fetched anew, but after a step back, where offsets must keep their meaning.
    pub(crate) fn walk<E>(
        &mut self,
        offset: u64,
        is_good: bool,
        mut fetch: impl FnMut(&[u8]) -> Result<ListReply, E>,
        mut show: impl FnMut(&DirListing, ListingLine<'_>, u64) -> bool,
    ) -> Result<(), E> {
        self.is_new = false;
        if offset == 0 {
            if !(self.fresh && is_good) {
                let reply = fetch(b"")?;
                self.start(reply);
            }
            if show(self, ListingLine::Itself, 1) {
                return Ok(());
            }
        }
        self.fresh = false;
        if offset <= 1 && show(self, ListingLine::Parent, DOTS) {
            return Ok(());
        }
        let mut next = offset.max(DOTS);
        if next < self.first {
            self.go_back(next, &mut fetch)?;
        } else if !is_good && !self.is_new && next == self.shown {
            self.renew(next, &mut fetch)?;
        }
        loop {
            while let Some(entry) = self.page.get((next - self.first) as usize) {
                if show(self, ListingLine::Entry(entry), next + 1) {
                    return Ok(());
                }
                next += 1;
                self.shown = self.shown.max(next);
            }
            let Some(last) = self.page.last().filter(|_| self.more) else { return Ok(()) };
            let after = last.name.clone();
            let first = self.first + self.page.len() as u64;
            let reply = fetch(&after)?;
            if self.marks.last().is_none_or(|(offset, _)| *offset < first) {
                self.marks.push((first, after));
            }
            self.turn(first, reply);
        }
    }

    fn start(&mut self, reply: ListReply) {
        self.marks.clear();
        self.marks.push((DOTS, Vec::new()));
        self.shown = DOTS;
        self.turn(DOTS, reply);
    }

    fn turn(&mut self, first: u64, reply: ListReply) {
        self.first = first;
        self.more = reply.more && !reply.entries.is_empty();
        self.page = reply.entries;
        self.parent = reply.parent;
        self.is_new = true;
    }

    /// Fetches the entries from `offset` on anew, if the page has any.
    fn renew<E>(&mut self, offset: u64, fetch: &mut impl FnMut(&[u8]) -> Result<ListReply, E>) -> Result<(), E> {
        let at = (offset - self.first) as usize;
        if at >= self.page.len() {
            return Ok(());
        }
        let before = at.checked_sub(1).and_then(|before| self.page.get(before)).map(|entry| entry.name.clone());
        let mark = self.marks.last().filter(|(first, _)| *first == offset).map(|(_, name)| name.clone());
        let Some(after) = before.or(mark) else { return Ok(()) };
        let reply = fetch(&after)?;
        if self.marks.last().is_none_or(|(first, _)| *first < offset) {
            self.marks.push((offset, after));
        }
        self.turn(offset, reply);
        Ok(())
    }

    fn go_back<E>(&mut self, offset: u64, fetch: &mut impl FnMut(&[u8]) -> Result<ListReply, E>) -> Result<(), E> {
        let mark = self.marks.iter().rev().find(|(first, _)| *first <= offset);
        let (first, after) = mark.cloned().unwrap_or((DOTS, Vec::new()));
        let reply = fetch(&after)?;
        self.turn(first, reply);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use frieze_client::InstantInfo;

    use super::*;

    type Names = BTreeSet<Vec<u8>>;

    fn page(names: &Names, after: &[u8]) -> ListReply {
        let mut rest = names.iter().filter(|name| name.as_slice() > after);
        let entries: Vec<DirEntry> =
            rest.by_ref().take(3).map(|name| DirEntry { name: name.clone(), inode: 9, kind: 0, attr: None }).collect();
        let answered = InstantInfo { was_stable: true, ..InstantInfo::default() };
        ListReply { entries, more: rest.next().is_some(), answered, inode: 5, parent: 1 }
    }

    /// Reads `count` lines from `offset`: their names and the cookie of the last.
    fn read(listing: &mut DirListing, names: &Names, offset: u64, count: usize) -> (Vec<String>, u64) {
        read_if(listing, names, (offset, true), count)
    }

    fn read_if(listing: &mut DirListing, names: &Names, from: (u64, bool), count: usize) -> (Vec<String>, u64) {
        let (offset, is_good) = from;
        let (mut lines, mut cookie) = (Vec::new(), offset);
        listing
            .walk(
                offset,
                is_good,
                |after| Ok::<_, ()>(page(names, after)),
                |_, line, next| {
                    if lines.len() == count {
                        return true;
                    }
                    lines.push(match line {
                        ListingLine::Itself => ".".to_owned(),
                        ListingLine::Parent => "..".to_owned(),
                        ListingLine::Entry(entry) => String::from_utf8(entry.name.clone()).unwrap(),
                    });
                    cookie = next;
                    false
                },
            )
            .unwrap();
        (lines, cookie)
    }

    fn ten() -> Names {
        (0..10).map(|n| format!("f{n}").into_bytes()).collect()
    }

    fn opened(names: &Names) -> DirListing {
        DirListing::opened(page(names, b""))
    }

    #[test]
    fn every_entry_is_shown_once_whatever_the_buffer_holds() {
        for count in 1..14 {
            let names = ten();
            let mut listing = opened(&names);
            let (mut all, mut offset) = (Vec::new(), 0);
            loop {
                let (lines, cookie) = read(&mut listing, &names, offset, count);
                if lines.is_empty() {
                    break;
                }
                all.extend(lines);
                offset = cookie;
            }
            assert_eq!(all.len(), 12, "buffers of {count}: {all:?}");
            assert_eq!(&all[..4], [".", "..", "f0", "f1"]);
            assert_eq!(all[11], "f9");
        }
    }

    #[test]
    fn deleting_while_reading_skips_nothing() {
        let mut names = ten();
        let mut listing = opened(&names);
        let (mut all, mut offset) = (Vec::new(), 0);
        loop {
            let (lines, cookie) = read(&mut listing, &names, offset, 2);
            if lines.is_empty() {
                break;
            }
            for line in lines {
                names.remove(line.as_bytes());
                all.push(line);
            }
            offset = cookie;
        }
        assert_eq!(all.len(), 12, "{all:?}");
        assert!(names.is_empty());
    }

    #[test]
    fn going_back_to_the_start_reads_anew() {
        let mut names = ten();
        let mut listing = opened(&names);
        read(&mut listing, &names, 0, 12);
        names.insert(b"a-new-one".to_vec());
        assert_eq!(read(&mut listing, &names, 0, 3).0, [".", "..", "a-new-one"]);

        let mut names = Names::from([b"one-page".to_vec()]);
        let mut listing = opened(&names);
        assert_eq!(read(&mut listing, &names, 0, 9).0.len(), 3);
        names.clear();
        assert_eq!(read(&mut listing, &names, 0, 9).0, [".", ".."]);
    }

    #[test]
    fn a_page_that_is_out_of_date_before_the_first_read_is_fetched_anew() {
        let mut names = Names::from([b"old".to_vec()]);
        let mut listing = opened(&names);
        names.insert(b"new".to_vec());
        listing.outdate();
        assert_eq!(read(&mut listing, &names, 0, 9).0, [".", "..", "new", "old"]);
    }

    #[test]
    fn stale_pages_of_a_listing_are_read_anew_without_skips_or_repeats() {
        for count in 1..14 {
            let mut names = ten();
            let mut listing = opened(&names);
            // While the page was kept, before anything was shown of it.
            names.remove(&b"f0"[..]);
            let (mut all, mut offset) = (Vec::new(), 0);
            loop {
                let (lines, cookie) = read_if(&mut listing, &names, (offset, false), count);
                if lines.is_empty() {
                    break;
                }
                all.extend(lines);
                offset = cookie;
                // Deleted while the directory is read: the last entry disappears, if it was not shown.
                if offset >= 5 {
                    names.remove(&b"f9"[..]);
                }
            }
            let was_gone = all.last().is_some_and(|last| last == "f8");
            assert!(was_gone || count >= 11, "buffers of {count}: {all:?}");
            assert_eq!(all.len(), if was_gone { 10 } else { 11 }, "buffers of {count}: {all:?}");
            assert!(all[2..].is_sorted(), "buffers of {count}: {all:?}");
            // After a step back the offsets have the same meaning.
            assert_eq!(read_if(&mut listing, &names, (4, false), 2).0, ["f3", "f4"], "buffers of {count}");
        }
    }

    #[test]
    fn going_back_into_an_earlier_page_finds_the_same_entry() {
        let names = ten();
        let mut listing = opened(&names);
        read(&mut listing, &names, 0, 12);
        assert_eq!(read(&mut listing, &names, 6, 2).0, ["f4", "f5"]);
        assert_eq!(read(&mut listing, &names, 11, 9).0, ["f9"]);
        assert_eq!(read(&mut listing, &names, 3, 1).0, ["f1"]);
        assert_eq!(read(&mut listing, &names, 99, 1).0, [""; 0]);
    }
}
