use frieze_client::{DirEntry, Holds, RecallsReply};

use super::*;
use crate::notify::KernelNotifier;

const DIR: InodeId = InodeId(5);
const USER: FuseCaller = FuseCaller { uid: 1, gid: 2, thread: 3 };
/// Names `f00` to `f19`, inodes 100 to 119.
const FILES: u64 = 20;

struct PrefetchedDirectory {
    cache: KernelCache,
    local_changes: LocalChanges,
    prefetch: AttrPrefetch,
    directory: InodeId,
    /// How many names it has.
    names: u64,
    /// Requests for one name, and for several.
    asked: (u32, u32),
}

impl PrefetchedDirectory {
    fn new() -> PrefetchedDirectory {
        let prefetched = PrefetchedDirectory {
            cache: KernelCache::default(),
            local_changes: LocalChanges::default(),
            prefetch: AttrPrefetch::default(),
            directory: DIR,
            names: FILES,
            asked: (0, 0),
        };
        prefetched.cache.begin(KernelNotifier::silent());
        prefetched.take(RecallsReply::default());
        prefetched
    }

    fn take(&self, recall: RecallsReply) {
        self.cache.take(&RecallsReply { lease_ms: 5000, life: 1, ..recall }, mono(), false);
    }

    fn promise(&self, names_ms: u16) -> CachePromise {
        let holds = Holds { names_ms, files_ms: names_ms };
        CachePromise::of_listing(&self.cache, self.directory, holds)
    }

    /// Looks a name up as the mount does. True if it was known.
    fn look_up(&mut self, file: u64) -> bool {
        self.look_up_granted(file, 4000)
    }

    fn look_up_granted(&mut self, file: u64, names_ms: u16) -> bool {
        let name = name(file);
        match self.prefetch.next(&self.cache, &self.local_changes, self.directory, &name) {
            PrefetchStep::Known(known) => {
                assert_eq!(known.0.inode, 100 + file);
                return true;
            }
            PrefetchStep::Ask => self.asked.0 += 1,
            PrefetchStep::List { after, names } => {
                self.asked.1 += 1;
                let all = (0..self.names).filter(|file| self::name(*file) > after).take(names as usize).map(entry);
                let all: Vec<DirEntry> = all.collect();
                let still = self.local_changes.still().unwrap();
                let promise = self.promise(names_ms);
                let asked = LookupRequest { who: USER, directory: self.directory, name: &name, after, still };
                let reply = ListReply { more: all.len() == names as usize, entries: all, ..ListReply::default() };
                let found = self.prefetch.found(&self.cache, asked, reply, promise);
                assert!(found.is_none_or(|(attr, _)| attr.inode == 100 + file));
            }
        }
        false
    }
}

fn name(file: u64) -> Box<[u8]> {
    format!("f{file:02}").into_bytes().into()
}

fn entry(file: u64) -> DirEntry {
    let attr = Some(Attr { inode: 100 + file, ..Attr::default() });
    DirEntry { name: name(file).into(), inode: 100 + file, attr, ..DirEntry::default() }
}

#[test]
fn a_walk_through_a_directory_costs_a_few_requests() {
    let mut prefetched = PrefetchedDirectory::new();
    for file in 0..FILES {
        prefetched.look_up(file);
    }
    assert_eq!(prefetched.asked, (1, 1), "one name, then the rest");
}

#[test]
fn a_walk_through_a_tree_costs_a_request_a_directory() {
    let mut prefetched = PrefetchedDirectory::new();
    for directory in 0..5 {
        prefetched.directory = InodeId(DIR.0 + directory);
        for file in 0..FILES {
            prefetched.look_up(file);
        }
    }
    assert_eq!(prefetched.asked, (2, 5));
    // One that does not begin with its first name ends it.
    prefetched.directory = InodeId(DIR.0 + 5);
    prefetched.names = 100;
    prefetched.look_up(90);
    prefetched.directory = InodeId(DIR.0 + 6);
    prefetched.look_up(0);
    assert_eq!(prefetched.asked, (3, 6));
}

#[test]
fn random_lookups_prefetch_nothing() {
    let mut prefetched = PrefetchedDirectory::new();
    for file in [3, 1, 9, 2, 19, 0, 7, 18, 4, 11, 5] {
        prefetched.look_up(file);
    }
    assert_eq!(prefetched.asked.1, 1, "one list is the price");
    let mut prefetched = PrefetchedDirectory::new();
    for file in (0..FILES).rev() {
        prefetched.look_up(file);
    }
    assert_eq!(prefetched.asked, (FILES as u32, 0));
}

#[test]
fn cached_attributes_are_returned_once() {
    let mut prefetched = PrefetchedDirectory::new();
    for file in 0..4 {
        prefetched.look_up(file);
    }
    assert!(prefetched.look_up(4));
    assert!(!prefetched.look_up(4), "it may be another by now");
}

#[test]
fn nothing_is_known_after_what_may_have_changed_it() {
    let changes: [fn(&PrefetchedDirectory); 5] = [
        |prefetched| drop(prefetched.local_changes.touch(InodeId(77))),
        |prefetched| std::mem::forget(prefetched.local_changes.touch(InodeId(77))),
        |prefetched| prefetched.take(RecallsReply { number: 1, directories: vec![DIR.0], ..RecallsReply::default() }),
        |prefetched| prefetched.take(RecallsReply { number: 1, files: vec![104], ..RecallsReply::default() }),
        |prefetched| prefetched.take(RecallsReply { number: 1, everything: true, ..RecallsReply::default() }),
    ];
    for (which, change) in changes.iter().enumerate() {
        let mut prefetched = PrefetchedDirectory::new();
        for file in 0..4 {
            prefetched.look_up(file);
        }
        change(&prefetched);
        let next = prefetched.prefetch.next(&prefetched.cache, &prefetched.local_changes, DIR, &name(4));
        assert!(!matches!(next, PrefetchStep::Known(_)), "{which}: {next:?}");
    }
}

#[test]
fn a_directory_of_which_nothing_is_granted_is_asked_name_by_name() {
    let mut prefetched = PrefetchedDirectory::new();
    for file in 0..8 {
        assert!(!prefetched.look_up_granted(file, 0));
    }
    assert_eq!(prefetched.asked, (7, 1));
}

#[test]
fn a_name_that_is_not_there_is_asked_for() {
    let mut prefetched = PrefetchedDirectory::new();
    for file in 0..FILES {
        prefetched.look_up(file);
    }
    assert!(!prefetched.look_up(FILES));
}

#[test]
fn only_unchanged_directories_count_as_still() {
    let own = LocalChanges::default();
    let before = own.still().unwrap();
    let touching = own.touch(InodeId(77));
    assert_eq!(own.still(), None);
    drop(touching);
    assert_ne!(own.still(), Some(before));
    assert!(own.still().is_some());
}

#[test]
fn directories_are_bounded() {
    let prefetched = PrefetchedDirectory::new();
    for directory in 0..=DIRECTORIES_MAX as u64 {
        prefetched.prefetch.next(&prefetched.cache, &prefetched.local_changes, InodeId(directory), b"name");
    }
    assert_eq!(prefetched.prefetch.lock().directories.len(), 1);
}

#[test]
fn after_a_walk_through_a_directory_its_listing_needs_no_request() {
    let mut prefetched = PrefetchedDirectory::new();
    for directory in 0..3 {
        prefetched.directory = InodeId(DIR.0 + directory);
        for file in 0..FILES {
            prefetched.look_up(file);
        }
    }
    let listing = |prefetched: &PrefetchedDirectory, directory: u64, who: FuseCaller| {
        let listed =
            prefetched.prefetch.listing(&prefetched.cache, &prefetched.local_changes, InodeId(DIR.0 + directory), who);
        listed.map(|(reply, _)| reply.entries.len() as u64)
    };
    assert_eq!(listing(&prefetched, 0, USER), None, "the first name is missing");
    assert_eq!(listing(&prefetched, 2, USER), Some(FILES));
    assert_eq!(listing(&prefetched, 2, FuseCaller { uid: 7, ..USER }), None, "another has other rights");
    drop(prefetched.local_changes.touch(InodeId(77)));
    assert_eq!(listing(&prefetched, 2, USER), None);
}
