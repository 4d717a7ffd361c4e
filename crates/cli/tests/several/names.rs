//! Names, attributes and bytes: what one mount has done is seen by the other when the call returns.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::Duration;

use frieze_client::Target;

use crate::inside::TIMEOUT;
use crate::{LocalMounts, clock, while_server_is_down};

/// How often each story is told: the first round meets warm caches, the next ones directories that are hot.
const ROUNDS: usize = 40;

#[test]
fn what_one_mount_does_the_other_sees_when_the_call_returns() {
    let Some(mounts) = LocalMounts::new(2) else { return };
    fs::create_dir(mounts.path(0, "d")).unwrap();
    for round in 0..ROUNDS {
        let (one, two) = (round % 2, 1 - round % 2);
        let name = format!("d/f{}", round % 3);
        let (here, there) = (mounts.path(one, &name), mounts.path(two, &name));
        let moved = there.with_extension("moved");
        // Both have looked: one caches that there is nothing, or what there was.
        assert!(!there.exists() && !moved.exists() && !here.exists());
        let text = format!("round {round}");
        fs::write(&here, &text).unwrap();
        assert_eq!(fs::read_to_string(&there).unwrap(), text);
        assert_eq!(fs::metadata(&there).unwrap().len(), text.len() as u64);
        fs::set_permissions(&here, fs::Permissions::from_mode(0o600 + round as u32 % 8)).unwrap();
        assert_eq!(fs::metadata(&there).unwrap().mode() & 0o777, 0o600 + round as u32 % 8);
        fs::rename(&here, here.with_extension("moved")).unwrap();
        assert!(!there.exists() && moved.exists());
        let listed: Vec<_> = fs::read_dir(mounts.path(two, "d")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(listed, [moved.file_name().unwrap()]);
        fs::remove_file(&moved).unwrap();
        assert!(!here.with_extension("moved").exists());
    }
}

#[test]
fn warm_caches_are_recalled_and_not_waited_out() {
    let Some(mounts) = LocalMounts::new(2) else { return };
    let (here, there) = (mounts.path(0, "file"), mounts.path(1, "file"));
    for round in 0..3 {
        fs::write(&here, "before").unwrap();
        // Left alone long enough, both may cache again.
        crate::pass(Duration::from_millis(1100));
        assert_eq!(fs::metadata(&there).unwrap().len(), 6);
        assert!(!mounts.path(1, "other").exists());
        let began = clock();
        fs::write(&here, "and after").unwrap();
        fs::write(mounts.path(0, "other"), "").unwrap();
        let took = clock() - began;
        assert_eq!(fs::metadata(&there).unwrap().len(), 9, "round {round}");
        assert!(mounts.path(1, "other").exists(), "round {round}");
        assert!(took < Duration::from_secs(2), "the lease was waited out: {took:?}");
        fs::remove_file(mounts.path(0, "other")).unwrap();
    }
}

#[test]
fn an_open_file_shows_what_the_other_mount_writes() {
    let Some(mounts) = LocalMounts::new(2) else { return };
    fs::write(mounts.path(0, "file"), vec![b'a'; 100_000]).unwrap();
    let mut reader = OpenOptions::new().read(true).open(mounts.path(1, "file")).unwrap();
    let writer = OpenOptions::new().write(true).open(mounts.path(0, "file")).unwrap();
    let mut content = Vec::new();
    for round in 0..ROUNDS {
        content.clear();
        reader.seek(SeekFrom::Start(0)).unwrap();
        reader.read_to_end(&mut content).unwrap();
        assert_eq!(content.len(), 100_000);
        let byte = b'b' + round as u8;
        writer.write_all_at(&[byte], 50_000).unwrap();
        let mut one = [0];
        reader.read_exact_at(&mut one, 50_000).unwrap();
        assert_eq!(one[0], byte, "round {round}");
    }
    writer.set_len(10).unwrap();
    assert_eq!(reader.metadata().unwrap().len(), 10);
}

#[test]
fn both_create_in_one_directory_at_once_and_neither_loses_a_name_or_stalls() {
    let Some(mounts) = LocalMounts::new(2) else { return };
    fs::create_dir(mounts.path(0, "d")).unwrap();
    let began = clock();
    std::thread::scope(|scope| {
        for mount in 0..2 {
            let root = mounts.path(mount, "d");
            scope.spawn(move || {
                for i in 0..200 {
                    let new = |name: String| OpenOptions::new().write(true).create_new(true).open(root.join(name));
                    let mut file = new(format!("{mount}-{i}")).unwrap();
                    file.write_all(format!("d/{mount}-{i}").as_bytes()).unwrap();
                    // The same name by both: one wins.
                    let _ = new(format!("both-{i}"));
                }
            });
        }
    });
    assert!((clock() - began) < Duration::from_secs(20), "{:?}", (clock() - began));
    for mount in 0..2 {
        assert_eq!(fs::read_dir(mounts.path(mount, "d")).unwrap().count(), 600);
        for other in 0..2 {
            for i in 0..200 {
                let name = format!("d/{other}-{i}");
                assert_eq!(fs::read_to_string(mounts.path(mount, &name)).unwrap(), name);
            }
        }
    }
}

#[test]
fn a_client_without_a_mount_changes_what_mounts_cache() {
    let Some(mounts) = LocalMounts::new(1) else { return };
    let fs = mounts.connect(TIMEOUT).fs();
    for round in 0..ROUNDS {
        let path = mounts.path(0, "file");
        assert!(!path.exists());
        fs.mkdir(&Target::path("/file"), 0o700).unwrap();
        assert!(path.is_dir(), "round {round}");
        fs.rmdir(&Target::path("/file")).unwrap();
    }
}

#[test]
fn a_cached_name_costs_no_request() {
    let Some(mut mounts) = LocalMounts::new(1) else { return };
    let (path, nothing) = (mounts.path(0, "file"), mounts.path(0, "nothing"));
    fs::write(&path, "x").unwrap();
    let look = || {
        assert_eq!(fs::metadata(&path).unwrap().len(), 1);
        assert!(!nothing.exists());
    };
    while_server_is_down(&mut mounts, look, look);
}

#[test]
fn a_name_never_looked_for_is_absent_without_a_request_where_the_directory_is_known() {
    let Some(mut mounts) = LocalMounts::new(1) else { return };
    let (made, listed) = (mounts.path(0, "made"), mounts.path(0, "listed"));
    fs::create_dir(&listed).unwrap();
    fs::write(listed.join("file"), "").unwrap();
    fs::create_dir(&made).unwrap();
    fs::write(made.join("file"), "").unwrap();
    assert_eq!(fs::read_dir(&listed).unwrap().count(), 1);
    // Both directories themselves are known to the kernel.
    let know = || {
        fs::metadata(&made).unwrap();
        fs::metadata(&listed).unwrap();
    };
    while_server_is_down(&mut mounts, know, || {
        assert!(!made.join("nothing").exists());
        assert!(!listed.join("nothing").exists());
    });
}

#[test]
fn a_directory_known_whole_shows_what_others_make_in_it_at_once() {
    let Some(mounts) = LocalMounts::new(2) else { return };
    let client = mounts.connect(TIMEOUT).fs();
    for round in 0..ROUNDS {
        let directory = format!("d{round}");
        fs::create_dir(mounts.path(0, &directory)).unwrap();
        let name = |name: &str| mounts.path(0, &directory).join(name);
        assert!(!name("a").exists());
        fs::write(mounts.path(1, &directory).join("a"), "").unwrap();
        assert!(name("a").exists(), "round {round}: made by another mount");

        assert_eq!(fs::read_dir(mounts.path(0, &directory)).unwrap().count(), 1);
        assert!(!name("b").exists());
        client.create(&Target::path(format!("/{directory}/b")), 0o600, frieze_client::CreateMode::Exclusive).unwrap();
        assert!(name("b").exists(), "round {round}: made without a mount");

        // Its own changes, of names never looked for.
        fs::hard_link(name("b"), name("c")).unwrap();
        fs::rename(name("c"), name("e")).unwrap();
        std::os::unix::fs::symlink("e", name("f")).unwrap();
        assert!(!name("c").exists() && name("e").exists() && name("f").exists());
        fs::remove_file(name("e")).unwrap();
        fs::write(name("c"), "").unwrap();
        assert!(name("c").exists() && !name("e").exists());
    }
}
