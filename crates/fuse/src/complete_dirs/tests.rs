use frieze_base::MonoTime;
use frieze_client::{RecallsReply, mono};

use super::*;
use crate::notify::KernelNotifier;

const DIR: InodeId = InodeId(5);
const OTHER: InodeId = InodeId(6);

struct World {
    cache: KernelCache,
    complete_dirs: CompleteDirs,
}

impl World {
    /// `DIR` holds `a` and `b`, and the mount has listed it.
    fn listed() -> World {
        let world = World { cache: KernelCache::default(), complete_dirs: CompleteDirs::default() };
        world.cache.begin(KernelNotifier::silent());
        world.take(RecallsReply::default());
        world.list();
        world
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
    let world = World::listed();
    assert!(world.is_absent(b"c"));
    assert!(!world.is_absent(b"a"));
    assert!(world.complete_dirs.is_absent(&world.cache, OTHER, b"c").is_none(), "nobody has listed it");
    assert!(!world.is_absent(&[b'x'; NAME_BYTES_MAX + 1]), "the server has another answer for it");
}

#[test]
fn a_recall_ends_a_complete_listing() {
    let world = World::listed();
    world.take(RecallsReply { number: 1, directories: vec![OTHER.0], ..RecallsReply::default() });
    assert!(world.is_absent(b"c"));
    world.take(RecallsReply { number: 2, directories: vec![DIR.0], ..RecallsReply::default() });
    assert!(!world.is_absent(b"c"));
}

#[test]
fn a_recall_overtakes_the_listing_that_is_under_way() {
    let world = World::listed();
    let looking = world.complete_dirs.look();
    let promise = world.promise(4000);
    world.take(RecallsReply { number: 1, directories: vec![DIR.0], ..RecallsReply::default() });
    looking.complete(promise, std::iter::empty());
    assert!(!world.is_absent(b"c"));
}

#[test]
fn own_changes_are_known_when_they_have_run_and_nothing_is_said_before() {
    let world = World::listed();
    let changing = world.complete_dirs.change(DIR, None);
    assert!(!world.is_absent(b"c") && !world.is_absent(b"d"));
    changing.done(&[(DIR, EntryChange::Adds(b"c"))], Vec::new());
    assert!(!world.is_absent(b"c"));
    assert!(world.is_absent(b"d"));
    world
        .complete_dirs
        .change(DIR, Some(DIR))
        .done(&[(DIR, EntryChange::Removes(b"a")), (DIR, EntryChange::Adds(b"d"))], Vec::new());
    assert!(world.is_absent(b"a"));
    assert!(!world.is_absent(b"d"));
}

#[test]
fn a_change_that_may_have_failed_ends_a_complete_listing() {
    let world = World::listed();
    drop(world.complete_dirs.change(OTHER, Some(DIR)));
    assert!(!world.is_absent(b"c"));
    world.list();
    assert!(world.is_absent(b"c"));
}

#[test]
fn a_listing_that_an_own_change_overlapped_is_no_use() {
    let overlaps: [fn(&World); 3] = [
        // Begun before the listing and ended after it.
        |world| {
            let changing = world.complete_dirs.change(DIR, None);
            world.list();
            changing.done(&[(DIR, EntryChange::Adds(b"c"))], Vec::new());
        },
        // Ended while it was under way.
        |world| {
            let changing = world.complete_dirs.change(DIR, None);
            let looking = world.complete_dirs.look();
            changing.done(&[(DIR, EntryChange::Adds(b"c"))], Vec::new());
            looking.complete(world.promise(4000), std::iter::empty());
        },
        // Run while it was under way.
        |world| {
            let looking = world.complete_dirs.look();
            world.complete_dirs.change(DIR, None).done(&[(DIR, EntryChange::Adds(b"c"))], Vec::new());
            looking.complete(world.promise(4000), std::iter::empty());
        },
    ];
    for (which, overlap) in overlaps.iter().enumerate() {
        let world = World::listed();
        drop(world.complete_dirs.change(DIR, None));
        overlap(&world);
        assert!(!world.is_absent(b"c"), "{which}");
    }
}

#[test]
fn a_grant_is_prolonged_only_while_it_lasts() {
    let world = World::listed();
    let newer = CachePromise::clone(&world.promise(5000));
    world.complete_dirs.prolong(&world.cache, &newer);
    assert!(world.complete_dirs.is_absent(&world.cache, DIR, b"c") == Some(newer));

    world.take(RecallsReply { number: 1, directories: vec![DIR.0], ..RecallsReply::default() });
    world.complete_dirs.prolong(&world.cache, &world.promise(5000));
    assert!(!world.is_absent(b"c"), "somebody changed it in between");
}

#[test]
fn leases_are_renewed_before_they_expire_and_expired_ones_dropped() {
    let world = World::listed();
    world.complete_dirs.look().complete(world.promise(900), std::iter::empty());
    assert!(!world.is_absent(b"c"));
    world.complete_dirs.prolong(&world.cache, &world.promise(4000));
    assert!(world.is_absent(b"c"), "prolonged in time");

    let long_ago = MonoTime(mono().0 - 4_900_000_000);
    world.cache.take(&RecallsReply { lease_ms: 5000, life: 1, ..RecallsReply::default() }, long_ago, false);
    assert!(!world.is_absent(b"c"));
    world.take(RecallsReply::default());
    world.complete_dirs.prolong(&world.cache, &world.promise(4000));
    assert!(!world.is_absent(b"c"), "there was a gap");
}

#[test]
fn the_table_is_bounded() {
    let world = World::listed();
    let names: Vec<Vec<u8>> = (0..NAMES_MAX).map(|name| name.to_string().into_bytes()).collect();
    world.complete_dirs.look().complete(world.promise(4000), names.iter().map(|name| &name[..]));
    assert!(world.is_absent(b"c") && !world.is_absent(b"77"));
    world.complete_dirs.change(DIR, None).done(&[(DIR, EntryChange::Adds(b"one more"))], Vec::new());
    assert!(!world.is_absent(b"c"));
    assert_eq!(world.complete_dirs.lock().names, 0);
}

/// What a change of `DIR` says of it, in two ways.
fn said(world: &World, links: u32) -> Vec<(Attr, CachePromise)> {
    let promise = world.promise(0);
    let holds = frieze_client::Holds { files_ms: 4000, ..frieze_client::Holds::NONE };
    let kind = FileKind::Directory as i32;
    vec![(Attr { inode: DIR.0, kind, links, ..Attr::default() }, promise.of_inode(DIR, holds))]
}

fn links(world: &World) -> Option<u32> {
    world.complete_dirs.attributes(&world.cache, DIR).map(|(attr, _)| attr.links)
}

#[test]
fn a_directory_is_known_as_the_last_change_left_it() {
    let world = World::listed();
    assert_eq!(links(&world), None);
    world.complete_dirs.change(DIR, None).done(&[], said(&world, 2));
    assert_eq!(links(&world), Some(2));
    let changing = world.complete_dirs.change(DIR, None);
    assert_eq!(links(&world), None, "it may have run");
    changing.done(&[], said(&world, 3));
    assert_eq!(links(&world), Some(3));
    world.complete_dirs.change(DIR, None).done(&[], Vec::new());
    assert_eq!(links(&world), None, "the server said nothing of it");
}

#[test]
fn a_directory_is_not_known_after_what_may_have_changed_it_otherwise() {
    let ends: [fn(&World); 5] = [
        |world| drop(world.complete_dirs.change(DIR, None)),
        |world| world.complete_dirs.forget_attributes(DIR),
        |world| world.complete_dirs.forget_all_attributes(),
        |world| world.take(RecallsReply { number: 1, files: vec![DIR.0], ..RecallsReply::default() }),
        |world| world.complete_dirs.change(OTHER, Some(DIR)).done(&[], Vec::new()),
    ];
    for (which, end) in ends.iter().enumerate() {
        let world = World::listed();
        world.complete_dirs.change(DIR, None).done(&[], said(&world, 2));
        assert_eq!(links(&world), Some(2), "{which}");
        end(&world);
        assert_eq!(links(&world), None, "{which}");
    }
}

#[test]
fn overlapping_changes_have_no_known_last_one() {
    let world = World::listed();
    let (one, other) = (world.complete_dirs.change(DIR, None), world.complete_dirs.change(DIR, None));
    one.done(&[], said(&world, 3));
    assert_eq!(links(&world), None);
    other.done(&[], said(&world, 2));
    assert_eq!(links(&world), None);
    world.complete_dirs.change(DIR, None).done(&[], said(&world, 4));
    assert_eq!(links(&world), Some(4), "alone again");
}

#[test]
fn directories_known_are_bounded() {
    let world = World::listed();
    for directory in 0..=ATTRIBUTES_MAX as u64 {
        let promise = said(&world, 2)[0].1;
        let now = vec![(Attr { inode: 100 + directory, ..Attr::default() }, promise)];
        world.complete_dirs.change(InodeId(100 + directory), None).done(&[], now);
    }
    assert_eq!(world.complete_dirs.lock().attributes.len(), 1);
}

const FILE: InodeId = InodeId(9);

/// The mount looks at a file, which the server says has so many names.
fn look_at_file(world: &World, links: u32) {
    let still = world.complete_dirs.local_changes.still();
    know_file(world, links, still);
}

fn know_file(world: &World, links: u32, still: Option<Still>) {
    let holds = frieze_client::Holds { files_ms: 4000, ..frieze_client::Holds::NONE };
    let promise = world.promise(0).of_inode(FILE, holds);
    world.complete_dirs.know(&Attr { inode: FILE.0, links, ..Attr::default() }, promise, still);
}

fn file_links(world: &World) -> Option<u32> {
    world.complete_dirs.attributes(&world.cache, FILE).map(|(attr, _)| attr.links)
}

#[test]
fn a_file_is_known_as_it_was_looked_at_but_not_while_anything_changes() {
    let world = World::listed();
    look_at_file(&world, 2);
    assert_eq!(file_links(&world), Some(2));
    let removing = world.complete_dirs.change(DIR, None);
    assert_eq!(file_links(&world), None, "it may be the file that loses a name");
    removing.done(&[(DIR, EntryChange::Removes(b"a"))], Vec::new());
    assert_eq!(file_links(&world), Some(2), "it was another");
    let writing = world.complete_dirs.touch(OTHER);
    assert_eq!(file_links(&world), None);
    drop(writing);
    assert_eq!(file_links(&world), Some(2));
}

#[test]
fn a_file_is_not_known_after_what_may_have_changed_it() {
    let ends: [fn(&World); 5] = [
        |world| drop(world.complete_dirs.touch(FILE)),
        |world| drop(world.complete_dirs.change(DIR, None)),
        |world| world.complete_dirs.forget_attributes(FILE),
        |world| world.take(RecallsReply { number: 1, files: vec![FILE.0], ..RecallsReply::default() }),
        |world| world.complete_dirs.change(FILE, None).done(&[], Vec::new()),
    ];
    for (which, end) in ends.iter().enumerate() {
        let world = World::listed();
        look_at_file(&world, 1);
        assert_eq!(file_links(&world), Some(1), "{which}");
        end(&world);
        assert_eq!(file_links(&world), None, "{which}");
    }
}

#[test]
fn an_own_change_overtakes_the_look_at_a_file_that_is_under_way() {
    let world = World::listed();
    let still = world.complete_dirs.local_changes.still();
    drop(world.complete_dirs.touch(FILE));
    know_file(&world, 1, still);
    assert_eq!(file_links(&world), None, "it was changed since");
    let touching = world.complete_dirs.touch(FILE);
    let still = world.complete_dirs.local_changes.still();
    drop(touching);
    know_file(&world, 1, still);
    assert_eq!(file_links(&world), None, "a change was under way");
}
