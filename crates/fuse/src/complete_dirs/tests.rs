use frieze_base::MonoTime;
use frieze_client::{RecallsReply, mono};

use super::*;
use crate::notify::KernelNotifier;

const DIR: InodeId = InodeId(5);
const OTHER: InodeId = InodeId(6);

struct ListedDirectory {
    cache: KernelCache,
    complete_dirs: CompleteDirs,
}

impl ListedDirectory {
    /// `DIR` holds `a` and `b`, and the mount has listed it.
    fn listed() -> ListedDirectory {
        let listed = ListedDirectory { cache: KernelCache::default(), complete_dirs: CompleteDirs::default() };
        listed.cache.begin(KernelNotifier::silent());
        listed.take(RecallsReply::default());
        listed.list();
        listed
    }

    fn take(&self, recall: RecallsReply) {
        self.cache.take(&RecallsReply { lease_ms: 5000, life: 1, ..recall }, mono(), false);
    }

    fn promise(&self, names_ms: u32) -> CachePromise {
        self.cache.ask(&self.complete_dirs.local_changes).unwrap().promise_of_empty(DIR, names_ms)
    }

    fn list(&self) {
        let looking = self.complete_dirs.look();
        looking.complete(self.promise(4000), [&b"a"[..], b"b"].into_iter());
    }

    fn is_absent(&self, name: &[u8]) -> bool {
        self.complete_dirs.is_absent(&self.cache, DIR, name).is_some()
    }
}

#[test]
fn a_name_that_was_not_listed_is_absent() {
    let listed = ListedDirectory::listed();
    assert!(listed.is_absent(b"c"));
    assert!(!listed.is_absent(b"a"));
    assert!(listed.complete_dirs.is_absent(&listed.cache, OTHER, b"c").is_none(), "nobody has listed it");
    assert!(!listed.is_absent(&[b'x'; NAME_BYTES_MAX + 1]), "the server has another answer for it");
}

#[test]
fn a_recall_ends_a_complete_listing() {
    let listed = ListedDirectory::listed();
    listed.take(RecallsReply { number: 1, directories: vec![OTHER.0], ..RecallsReply::default() });
    assert!(listed.is_absent(b"c"));
    listed.take(RecallsReply { number: 2, directories: vec![DIR.0], ..RecallsReply::default() });
    assert!(!listed.is_absent(b"c"));
}

#[test]
fn a_recall_overtakes_the_listing_that_is_under_way() {
    let listed = ListedDirectory::listed();
    let looking = listed.complete_dirs.look();
    let promise = listed.promise(4000);
    listed.take(RecallsReply { number: 1, directories: vec![DIR.0], ..RecallsReply::default() });
    looking.complete(promise, std::iter::empty());
    assert!(!listed.is_absent(b"c"));
}

#[test]
fn own_changes_are_known_when_they_have_run_and_nothing_is_said_before() {
    let listed = ListedDirectory::listed();
    let changing = listed.complete_dirs.change(DIR, None);
    assert!(!listed.is_absent(b"c") && !listed.is_absent(b"d"));
    changing.done(&[(DIR, EntryChange::Adds(b"c"))], Vec::new());
    assert!(!listed.is_absent(b"c"));
    assert!(listed.is_absent(b"d"));
    listed
        .complete_dirs
        .change(DIR, Some(DIR))
        .done(&[(DIR, EntryChange::Removes(b"a")), (DIR, EntryChange::Adds(b"d"))], Vec::new());
    assert!(listed.is_absent(b"a"));
    assert!(!listed.is_absent(b"d"));
}

#[test]
fn a_change_that_may_have_failed_ends_a_complete_listing() {
    let listed = ListedDirectory::listed();
    drop(listed.complete_dirs.change(OTHER, Some(DIR)));
    assert!(!listed.is_absent(b"c"));
    listed.list();
    assert!(listed.is_absent(b"c"));
}

#[test]
fn a_listing_that_an_own_change_overlapped_is_no_use() {
    let overlaps: [fn(&ListedDirectory); 3] = [
        // Begun before the listing and ended after it.
        |listed| {
            let changing = listed.complete_dirs.change(DIR, None);
            listed.list();
            changing.done(&[(DIR, EntryChange::Adds(b"c"))], Vec::new());
        },
        // Ended while it was under way.
        |listed| {
            let changing = listed.complete_dirs.change(DIR, None);
            let looking = listed.complete_dirs.look();
            changing.done(&[(DIR, EntryChange::Adds(b"c"))], Vec::new());
            looking.complete(listed.promise(4000), std::iter::empty());
        },
        // Run while it was under way.
        |listed| {
            let looking = listed.complete_dirs.look();
            listed.complete_dirs.change(DIR, None).done(&[(DIR, EntryChange::Adds(b"c"))], Vec::new());
            looking.complete(listed.promise(4000), std::iter::empty());
        },
    ];
    for (which, overlap) in overlaps.iter().enumerate() {
        let listed = ListedDirectory::listed();
        drop(listed.complete_dirs.change(DIR, None));
        overlap(&listed);
        assert!(!listed.is_absent(b"c"), "{which}");
    }
}

#[test]
fn a_grant_is_prolonged_only_while_it_lasts() {
    let listed = ListedDirectory::listed();
    let newer = CachePromise::clone(&listed.promise(5000));
    listed.complete_dirs.prolong(&listed.cache, &newer);
    assert!(listed.complete_dirs.is_absent(&listed.cache, DIR, b"c") == Some(newer));

    listed.take(RecallsReply { number: 1, directories: vec![DIR.0], ..RecallsReply::default() });
    listed.complete_dirs.prolong(&listed.cache, &listed.promise(5000));
    assert!(!listed.is_absent(b"c"), "somebody changed it in between");
}

#[test]
fn leases_are_renewed_before_they_expire_and_expired_ones_dropped() {
    let listed = ListedDirectory::listed();
    listed.complete_dirs.look().complete(listed.promise(900), std::iter::empty());
    assert!(!listed.is_absent(b"c"));
    listed.complete_dirs.prolong(&listed.cache, &listed.promise(4000));
    assert!(listed.is_absent(b"c"), "prolonged in time");

    let long_ago = MonoTime(mono().0 - 4_900_000_000);
    listed.cache.take(&RecallsReply { lease_ms: 5000, life: 1, ..RecallsReply::default() }, long_ago, false);
    assert!(!listed.is_absent(b"c"));
    listed.take(RecallsReply::default());
    listed.complete_dirs.prolong(&listed.cache, &listed.promise(4000));
    assert!(!listed.is_absent(b"c"), "there was a gap");
}

#[test]
fn the_table_is_bounded() {
    let listed = ListedDirectory::listed();
    let names: Vec<Vec<u8>> = (0..NAMES_MAX).map(|name| name.to_string().into_bytes()).collect();
    listed.complete_dirs.look().complete(listed.promise(4000), names.iter().map(|name| &name[..]));
    assert!(listed.is_absent(b"c") && !listed.is_absent(b"77"));
    listed.complete_dirs.change(DIR, None).done(&[(DIR, EntryChange::Adds(b"one more"))], Vec::new());
    assert!(!listed.is_absent(b"c"));
    assert_eq!(listed.complete_dirs.lock().names, 0);
}

/// What a change of `DIR` says of it, in two ways.
fn said(listed: &ListedDirectory, links: u32) -> Vec<(Attr, CachePromise)> {
    let promise = listed.promise(0);
    let holds = frieze_client::Holds { files_ms: 4000, ..frieze_client::Holds::NONE };
    let kind = FileKind::Directory as i32;
    vec![(Attr { inode: DIR.0, kind, links, ..Attr::default() }, promise.of_inode(DIR, holds))]
}

fn links(listed: &ListedDirectory) -> Option<u32> {
    listed.complete_dirs.attributes(&listed.cache, DIR).map(|(attr, _)| attr.links)
}

#[test]
fn a_directory_is_known_as_the_last_change_left_it() {
    let listed = ListedDirectory::listed();
    assert_eq!(links(&listed), None);
    listed.complete_dirs.change(DIR, None).done(&[], said(&listed, 2));
    assert_eq!(links(&listed), Some(2));
    let changing = listed.complete_dirs.change(DIR, None);
    assert_eq!(links(&listed), None, "it may have run");
    changing.done(&[], said(&listed, 3));
    assert_eq!(links(&listed), Some(3));
    listed.complete_dirs.change(DIR, None).done(&[], Vec::new());
    assert_eq!(links(&listed), None, "the server said nothing of it");
}

#[test]
fn a_directory_is_not_known_after_what_may_have_changed_it_otherwise() {
    let ends: [fn(&ListedDirectory); 5] = [
        |listed| drop(listed.complete_dirs.change(DIR, None)),
        |listed| listed.complete_dirs.forget_attributes(DIR),
        |listed| listed.complete_dirs.forget_all_attributes(),
        |listed| listed.take(RecallsReply { number: 1, files: vec![DIR.0], ..RecallsReply::default() }),
        |listed| listed.complete_dirs.change(OTHER, Some(DIR)).done(&[], Vec::new()),
    ];
    for (which, end) in ends.iter().enumerate() {
        let listed = ListedDirectory::listed();
        listed.complete_dirs.change(DIR, None).done(&[], said(&listed, 2));
        assert_eq!(links(&listed), Some(2), "{which}");
        end(&listed);
        assert_eq!(links(&listed), None, "{which}");
    }
}

#[test]
fn overlapping_changes_have_no_known_last_one() {
    let listed = ListedDirectory::listed();
    let (one, other) = (listed.complete_dirs.change(DIR, None), listed.complete_dirs.change(DIR, None));
    one.done(&[], said(&listed, 3));
    assert_eq!(links(&listed), None);
    other.done(&[], said(&listed, 2));
    assert_eq!(links(&listed), None);
    listed.complete_dirs.change(DIR, None).done(&[], said(&listed, 4));
    assert_eq!(links(&listed), Some(4), "alone again");
}

#[test]
fn directories_known_are_bounded() {
    let listed = ListedDirectory::listed();
    for directory in 0..=ATTRIBUTES_MAX as u64 {
        let promise = said(&listed, 2)[0].1;
        let now = vec![(Attr { inode: 100 + directory, ..Attr::default() }, promise)];
        listed.complete_dirs.change(InodeId(100 + directory), None).done(&[], now);
    }
    assert_eq!(listed.complete_dirs.lock().attributes.len(), 1);
}

const FILE: InodeId = InodeId(9);

/// The mount looks at a file, which the server says has so many names.
fn look_at_file(listed: &ListedDirectory, links: u32) {
    let still = listed.complete_dirs.local_changes.still();
    know_file(listed, links, still);
}

fn know_file(listed: &ListedDirectory, links: u32, still: Option<Still>) {
    let holds = frieze_client::Holds { files_ms: 4000, ..frieze_client::Holds::NONE };
    let promise = listed.promise(0).of_inode(FILE, holds);
    listed.complete_dirs.know(&Attr { inode: FILE.0, links, ..Attr::default() }, promise, still);
}

fn file_links(listed: &ListedDirectory) -> Option<u32> {
    listed.complete_dirs.attributes(&listed.cache, FILE).map(|(attr, _)| attr.links)
}

#[test]
fn a_file_is_known_as_it_was_looked_at_but_not_while_anything_changes() {
    let listed = ListedDirectory::listed();
    look_at_file(&listed, 2);
    assert_eq!(file_links(&listed), Some(2));
    let removing = listed.complete_dirs.change(DIR, None);
    assert_eq!(file_links(&listed), None, "it may be the file that loses a name");
    removing.done(&[(DIR, EntryChange::Removes(b"a"))], Vec::new());
    assert_eq!(file_links(&listed), Some(2), "it was another");
    let writing = listed.complete_dirs.touch(OTHER);
    assert_eq!(file_links(&listed), None);
    drop(writing);
    assert_eq!(file_links(&listed), Some(2));
}

#[test]
fn a_file_is_not_known_after_what_may_have_changed_it() {
    let ends: [fn(&ListedDirectory); 5] = [
        |listed| drop(listed.complete_dirs.touch(FILE)),
        |listed| drop(listed.complete_dirs.change(DIR, None)),
        |listed| listed.complete_dirs.forget_attributes(FILE),
        |listed| listed.take(RecallsReply { number: 1, files: vec![FILE.0], ..RecallsReply::default() }),
        |listed| listed.complete_dirs.change(FILE, None).done(&[], Vec::new()),
    ];
    for (which, end) in ends.iter().enumerate() {
        let listed = ListedDirectory::listed();
        look_at_file(&listed, 1);
        assert_eq!(file_links(&listed), Some(1), "{which}");
        end(&listed);
        assert_eq!(file_links(&listed), None, "{which}");
    }
}

#[test]
fn an_own_change_overtakes_the_look_at_a_file_that_is_under_way() {
    let listed = ListedDirectory::listed();
    let still = listed.complete_dirs.local_changes.still();
    drop(listed.complete_dirs.touch(FILE));
    know_file(&listed, 1, still);
    assert_eq!(file_links(&listed), None, "it was changed since");
    let touching = listed.complete_dirs.touch(FILE);
    let still = listed.complete_dirs.local_changes.still();
    drop(touching);
    know_file(&listed, 1, still);
    assert_eq!(file_links(&listed), None, "a change was under way");
}
