//! A mount's memory of the directories it changes: their attributes are those of the server, whichever client changed
//! them last and how.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use frieze_client::{Client, Target};
use rustix::fs::{CWD, RenameFlags, XattrFlags};

use crate::inside::TIMEOUT;
use crate::{LocalMounts, while_server_is_down};

/// Mode, links, modification and change time.
type Seen = (u32, u64, i64, i64);

fn through_the_mount(mounts: &LocalMounts, mount: usize, path: &str) -> Seen {
    let found = fs::metadata(mounts.path(mount, path)).unwrap();
    let ns = |seconds: i64, ns: i64| seconds * 1_000_000_000 + ns;
    let times = (ns(found.mtime(), found.mtime_nsec()), ns(found.ctime(), found.ctime_nsec()));
    (found.mode() & 0o7777, found.nlink(), times.0, times.1)
}

fn at_the_server(client: &Client, path: &str) -> Seen {
    let found = client.fs().stat(&Target::path(format!("/{path}"))).unwrap().attr;
    (found.mode & 0o7777, found.links.into(), found.mtime_ns, found.ctime_ns)
}

/// Both directories look through the mount as they are.
fn compare(mounts: &LocalMounts, client: &Client, after: &str) {
    for directory in ["a", "b", "a/inner", "b/inner"] {
        if mounts.path(0, directory).is_dir() {
            let (here, there) = (through_the_mount(mounts, 0, directory), at_the_server(client, directory));
            assert_eq!(here, there, "{directory} after {after}");
        }
    }
}

#[test]
fn a_directory_looks_as_the_last_change_left_it() {
    let Some(mounts) = LocalMounts::new(1) else { return };
    let client = mounts.connect(TIMEOUT);
    let at = |path: &str| mounts.path(0, path);
    for directory in ["a", "b", "a/inner", "b/inner"] {
        fs::create_dir(at(directory)).unwrap();
    }
    type Step<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let exchange = |one: &str, other: &str| {
        rustix::fs::renameat_with(CWD, at(one), CWD, at(other), RenameFlags::EXCHANGE).unwrap();
    };
    let steps: Vec<Step<'_>> = vec![
        ("create", Box::new(|| drop(fs::File::create_new(at("a/file")).unwrap()))),
        ("link", Box::new(|| fs::hard_link(at("a/file"), at("b/link")).unwrap())),
        ("symlink", Box::new(|| symlink("file", at("a/symlink")).unwrap())),
        ("rename within", Box::new(|| fs::rename(at("a/file"), at("a/moved")).unwrap())),
        ("rename across", Box::new(|| fs::rename(at("a/moved"), at("b/moved")).unwrap())),
        ("rename over", Box::new(|| fs::rename(at("b/moved"), at("b/link")).unwrap())),
        ("chmod", Box::new(|| fs::set_permissions(at("b"), Permissions::from_mode(0o711)).unwrap())),
        ("unlink", Box::new(|| fs::remove_file(at("b/link")).unwrap())),
        ("unlink of the other name", Box::new(|| fs::remove_file(at("b/moved")).unwrap())),
        ("mkdir", Box::new(|| fs::create_dir(at("a/new")).unwrap())),
        ("create below", Box::new(|| drop(fs::File::create_new(at("a/inner/file")).unwrap()))),
        ("rename of a directory", Box::new(|| fs::rename(at("b/inner"), at("a/other")).unwrap())),
        ("rename of a directory that was changed", Box::new(|| fs::rename(at("a/inner"), at("b/inner")).unwrap())),
        ("exchange", Box::new(|| exchange("a/other", "b/inner"))),
        ("rename over a directory", Box::new(|| fs::rename(at("a/new"), at("b/inner")).unwrap())),
        ("setxattr", Box::new(|| rustix::fs::setxattr(at("a"), "user.colour", b"red", XattrFlags::empty()).unwrap())),
        ("removexattr", Box::new(|| rustix::fs::removexattr(at("a"), "user.colour").unwrap())),
        ("rmdir", Box::new(|| fs::remove_dir(at("b/inner")).unwrap())),
    ];
    for (name, step) in &steps {
        step();
        compare(&mounts, &client, name);
    }
}

#[test]
fn a_change_by_another_mount_shows_in_a_directory_at_once() {
    let Some(mounts) = LocalMounts::new(2) else { return };
    let client = mounts.connect(TIMEOUT);
    fs::create_dir(mounts.path(0, "a")).unwrap();
    for round in 0..20 {
        fs::write(mounts.path(0, &format!("a/mine{round}")), "").unwrap();
        fs::create_dir(mounts.path(1, &format!("a/theirs{round}"))).unwrap();
        assert_eq!(through_the_mount(&mounts, 0, "a"), at_the_server(&client, "a"), "round {round}");
        fs::set_permissions(mounts.path(1, "a"), Permissions::from_mode(0o700 + round % 8)).unwrap();
        assert_eq!(through_the_mount(&mounts, 0, "a"), at_the_server(&client, "a"), "round {round}");
        if round % 5 == 4 {
            // Left alone long enough, the directory is granted again.
            crate::pass(std::time::Duration::from_millis(1100));
        }
    }
}

#[test]
fn threads_that_change_one_directory_leave_it_as_the_server_has_it() {
    let Some(mounts) = LocalMounts::new(1) else { return };
    let client = mounts.connect(TIMEOUT);
    fs::create_dir(mounts.path(0, "a")).unwrap();
    for round in 0..20 {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let directory = mounts.path(0, "a");
                scope.spawn(move || {
                    let at = |name: &str| directory.join(format!("{name}-{round}-{thread}"));
                    fs::write(at("file"), "").unwrap();
                    fs::set_permissions(&directory, Permissions::from_mode(0o700 + thread)).unwrap();
                    fs::rename(at("file"), at("moved")).unwrap();
                    fs::create_dir(at("directory")).unwrap();
                    fs::remove_file(at("moved")).unwrap();
                });
            }
        });
        assert_eq!(through_the_mount(&mounts, 0, "a"), at_the_server(&client, "a"), "round {round}");
    }
}

#[test]
fn a_walk_through_a_tree_shows_concurrent_changes() {
    let Some(mounts) = LocalMounts::new(2) else { return };
    for directory in 0..4 {
        fs::create_dir(mounts.path(0, &format!("d{directory}"))).unwrap();
        for file in 0..40 {
            fs::write(mounts.path(0, &format!("d{directory}/f{file:02}")), "x").unwrap();
        }
    }
    // After a quiet time, everything is granted to any reader.
    crate::pass(std::time::Duration::from_millis(1100));
    let len = |mount: usize, path: &str| fs::metadata(mounts.path(mount, path)).map(|found| found.len()).ok();
    for directory in 0..4 {
        // First no mount changes anything, then the other mount bytes, then names, and at last this one.
        let changer = usize::from(directory == 3);
        for file in 0..40 {
            let path = format!("d{directory}/f{file:02}");
            let next = mounts.path(changer, &format!("d{directory}/f{:02}", (file + 3) % 40));
            match (directory, file % 4) {
                (1 | 3, 2) => fs::write(&next, format!("longer {file}")).unwrap(),
                (2 | 3, 0) => fs::remove_file(&next).unwrap(),
                (2 | 3, 1) => fs::rename(&next, next.with_extension("moved")).unwrap(),
                (3, 3) => fs::set_permissions(&next, Permissions::from_mode(0o600)).unwrap_or_default(),
                _ => {}
            }
            assert_eq!(len(1, &path), len(0, &path), "{path}");
            let mode = |mount| fs::metadata(mounts.path(mount, &path)).map(|found| found.mode()).ok();
            assert_eq!(mode(1), mode(0), "{path}");
        }
        let names = |mount: usize| {
            let listed = fs::read_dir(mounts.path(mount, &format!("d{directory}"))).unwrap();
            let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(1), names(0), "d{directory}");
    }
}

#[test]
fn a_walk_through_a_tree_asks_less_than_once_a_name() {
    let Some(mut mounts) = LocalMounts::new(2) else { return };
    for directory in 0..4 {
        fs::create_dir(mounts.path(0, &format!("d{directory}"))).unwrap();
        for file in 0..30 {
            fs::write(mounts.path(0, &format!("d{directory}/f{file:02}")), "x").unwrap();
        }
    }
    crate::pass(std::time::Duration::from_millis(1100));
    let directories: [_; 4] = std::array::from_fn(|directory| mounts.path(1, &format!("d{directory}")));
    let look = |files: std::ops::Range<usize>| {
        for directory in &directories {
            for file in files.clone() {
                assert_eq!(fs::metadata(directory.join(format!("f{file:02}"))).unwrap().len(), 1);
            }
        }
    };
    let begin = || {
        for directory in &directories {
            fs::metadata(directory).unwrap();
        }
        look(0..2);
    };
    // The others are then known without being asked for.
    while_server_is_down(&mut mounts, begin, || look(2..30));
}
