//! Trees that are removed.

use super::*;

fn remove(path: &str) -> DeleteRequest {
    DeleteRequest { src: path.to_owned(), recursive: true }
}

#[test]
fn who_writes_in_a_tree_that_is_removed_writes_no_more() {
    let opened = Opened::new();
    let mut client = opened.connect();
    client.write("/t/a/b/f", b"four");
    client.create("/t/a/open", "w");
    client.create("/kept", "w");
    assert!(client.call::<ResultResponse>("delete", &remove("/t")).result);
    assert!(client.info("/t").is_none());
    let add = |path: &str| AddBlockRequest {
        src: path.to_owned(),
        client_name: "w".to_owned(),
        ..AddBlockRequest::default()
    };
    assert_eq!(client.refused("addBlock", &add("/t/a/open")), "LeaseExpiredException");
    client.add_block("/kept", "w", None);
    assert!(!client.call::<ResultResponse>("delete", &remove("/t")).result);
    opened.stop();
}

#[test]
fn a_tree_of_which_something_may_not_be_removed_stays_whole() {
    if !nix::unistd::geteuid().is_root() {
        // There is one user alone.
        return;
    }
    let opened = Opened::new();
    let mut client = opened.connect();
    client.write("/t/a/f", b"four");
    client.write("/t/closed/f", b"four");
    let open =
        |path: &str| SetPermissionRequest { src: path.to_owned(), permission: Some(FsPermission { perm: 0o777 }) };
    for path in ["/", "/t", "/t/a"] {
        client.ask("setPermission", &open(path)).unwrap();
    }
    let mut other = opened.connect_as("daemon", 0);
    assert_eq!(other.refused("delete", &remove("/t")), "AccessControlException");
    for path in ["/t/a/f", "/t/closed/f"] {
        assert!(client.info(path).is_some(), "{path}");
    }
    client.ask("setPermission", &open("/t/closed")).unwrap();
    assert!(other.call::<ResultResponse>("delete", &remove("/t")).result);
    opened.stop();
}
