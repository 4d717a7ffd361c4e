//! What of the past may be seen: rights of then and of now, asked as two users.

use frieze_base::Reason;
use frieze_client::{Caller, Client, CreateMode, Fs, HistoryInterval, Hlc, SetAttr, Target};

use crate::support::client;
use crate::support::served::Served;

const OTHER: u32 = 4242;

fn write(fs: &Fs, path: &str, text: &str) {
    let file = fs.create(&Target::path(path), 0o644, CreateMode::OpenExisting).unwrap();
    file.write_at(0, text.as_bytes()).unwrap();
    file.close().unwrap();
}

fn chmod(fs: &Fs, path: &str, mode: u32) {
    fs.set_attr(SetAttr { target: Target::path(path), mode: Some(mode), ..SetAttr::default() }).unwrap();
}

fn other(client: &Client) -> Fs {
    client.fs().as_caller(Caller { uid: OTHER, gid: OTHER, groups: Vec::new() })
}

/// Every path that an answer about the whole tree tells, and whether it says that something is hidden.
fn told(fs: &Fs, interval: HistoryInterval) -> (Vec<String>, bool) {
    let root = Target::path("/");
    let text = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
    let page = fs.diff(&root, interval, 0, 0).unwrap();
    let mut paths: Vec<String> = Vec::new();
    for side in page.differences.iter().flat_map(|difference| [&difference.before, &difference.after]).flatten() {
        paths.push(text(&side.path));
    }
    let story = fs.story(&root, interval, true, 0).unwrap();
    let mut events: Vec<String> = Vec::new();
    for side in story.events.iter().flat_map(|event| [&event.before, &event.after]).flatten() {
        events.push(text(&side.path));
    }
    for list in [&mut paths, &mut events] {
        list.sort();
        list.dedup();
    }
    assert_eq!(paths, events, "both ways of asking tell the same");
    assert_eq!(page.hidden, story.hidden);
    (paths, page.hidden)
}

#[test]
fn names_in_an_unreadable_directory_show_only_to_its_readers() {
    let server = Served::start();
    let root = client(&server.address);
    let fs = root.fs();
    for (path, mode) in [("/open", 0o755), ("/private", 0o700), ("/passage", 0o711), ("/passage/room", 0o755)] {
        fs.mkdir(&Target::path(path), mode).unwrap();
    }
    let after = root.now().unwrap();
    for path in ["/open/a", "/private/secret", "/passage/unlisted", "/passage/room/b"] {
        write(&fs, path, "text");
    }
    let interval = HistoryInterval { after, upto: root.now().unwrap() };

    let (all, hidden) = told(&fs, interval);
    assert_eq!(all, ["/open/a", "/passage/room/b", "/passage/unlisted", "/private/secret"]);
    assert!(!hidden);
    let (seen, hidden) = told(&other(&root), interval);
    assert_eq!(seen, ["/open/a", "/passage/room/b"]);
    assert!(hidden, "that there is more is said, not what");

    // By name, too.
    let stranger = other(&root);
    let reason = |error: frieze_client::Error| error.reason();
    let private = Target::path("/private");
    assert_eq!(stranger.diff(&private, interval, 0, 0).map(drop).map_err(reason), Ok(()));
    assert!(stranger.diff(&private, interval, 0, 0).unwrap().differences.is_empty());
    let events = stranger.story(&private, interval, true, 0).unwrap();
    assert!(events.events.is_empty() && events.hidden);
    assert_eq!(stranger.deleted(&private, b"", 0).map(drop).map_err(reason), Err(Reason::AccessDenied));
    assert_eq!(stranger.usage(&private, b"").map(drop).map_err(reason), Err(Reason::AccessDenied));
}

#[test]
fn changes_show_only_where_the_modes_of_then_and_of_now_allow_it() {
    let server = Served::start();
    let root = client(&server.address);
    let fs = root.fs();
    for path in ["/closed-since", "/opened-since"] {
        fs.mkdir(&Target::path(path), 0o755).unwrap();
    }
    chmod(&fs, "/opened-since", 0o700);
    let after = root.now().unwrap();
    write(&fs, "/closed-since/a", "a");
    write(&fs, "/opened-since/b", "b");
    fs.unlink(&Target::path("/closed-since/a")).unwrap();
    fs.unlink(&Target::path("/opened-since/b")).unwrap();
    let then = HistoryInterval { after, upto: root.now().unwrap() };
    chmod(&fs, "/closed-since", 0o700);
    chmod(&fs, "/opened-since", 0o755);

    let stranger = other(&root);
    let story = stranger.story(&Target::path("/"), then, true, 0).unwrap();
    assert!(story.events.is_empty() && story.hidden, "{:?}", story.events);
    // Names that went: neither of the directory that is shut, nor of the one that was.
    let names = stranger.deleted(&Target::path("/opened-since"), b"", 0).unwrap().names;
    assert!(names.is_empty(), "{names:?}");
    assert_eq!(fs.deleted(&Target::path("/opened-since"), b"", 0).unwrap().names.len(), 1);
    let last = |fs: &Fs, path: &str| {
        fs.last_existed(path.as_bytes()).map(|reply| Hlc(reply.at)).map_err(|error| error.reason())
    };
    assert!(last(&fs, "/opened-since/b").is_ok() && last(&fs, "/closed-since/a").is_ok());
    assert_eq!(last(&stranger, "/closed-since/a"), Err(Reason::AccessDenied), "as for any name in it");
    assert_eq!(last(&stranger, "/closed-since/never"), Err(Reason::AccessDenied));
    assert_eq!(last(&stranger, "/opened-since/b"), Err(Reason::NotFound), "as if it never was");
    assert_eq!(last(&stranger, "/opened-since/never"), Err(Reason::NotFound));
}

#[test]
fn changed_bytes_show_only_to_readers_of_the_file_and_of_its_path() {
    let server = Served::start();
    let root = client(&server.address);
    let fs = root.fs();
    fs.mkdir(&Target::path("/private"), 0o700).unwrap();
    fs.mkdir(&Target::path("/open"), 0o755).unwrap();
    write(&fs, "/open/secret", "secret");
    write(&fs, "/open/moved", "moved");
    chmod(&fs, "/open/secret", 0o600);
    let after = root.now().unwrap();
    write(&fs, "/open/secret", "SECRET");
    fs.rename(&Target::path("/open/moved"), &Target::path("/private/moved"), frieze_client::RenameMode::Replace)
        .unwrap();
    let interval = HistoryInterval { after, upto: root.now().unwrap() };
    let differences = |fs: &Fs| fs.diff(&Target::path("/open"), interval, 0, 0).unwrap().differences;
    let [secret, moved] = &differences(&fs)[..] else { panic!("two differences") };
    assert_eq!(
        (&secret.spans[..], moved.after.is_some()),
        (&[frieze_client::ChangedSpan { offset: 0, len: 6 }][..], true)
    );
    let [moved, secret] = &differences(&other(&root))[..] else { panic!("two differences") };
    assert_eq!((&secret.spans[..], moved.after.is_some()), (&[][..], false));
    let gone = other(&root).deleted(&Target::path("/open"), b"", 0).unwrap().names;
    assert_eq!(gone.iter().map(|gone| gone.moved_to.clone()).collect::<Vec<_>>(), [Vec::<u8>::new()]);
    let gone = fs.deleted(&Target::path("/open"), b"", 0).unwrap().names;
    assert_eq!(gone[0].moved_to, b"/private/moved");
}
