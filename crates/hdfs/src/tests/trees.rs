//! Trees that are removed, and files that become one, by one change.

use super::*;

fn remove(path: &str) -> DeleteRequest {
    DeleteRequest { src: path.to_owned(), recursive: true }
}

#[test]
fn writers_in_a_removed_tree_lose_their_leases() {
    let opened = HdfsFixture::new();
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
fn a_tree_that_may_not_be_removed_completely_stays_whole() {
    if !frieze_harness::requirements::root() {
        // There is one user alone.
        return;
    }
    let opened = HdfsFixture::new();
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

#[test]
fn files_are_joined_and_nothing_is_lost_where_they_cannot_be() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    let data = bytes(300_000);
    client.write("/all", &data[..100_001]);
    client.write("/b", &data[100_001..250_000]);
    client.write("/c", &data[250_000..]);
    let concat = |sources: &[&str]| ConcatRequest {
        target: "/all".to_owned(),
        sources: sources.iter().map(|&source| source.to_owned()).collect(),
    };
    for sources in [&[][..], &["/all"], &["/b", "/b"]] {
        assert_eq!(client.refused("concat", &concat(sources)), "HadoopIllegalArgumentException", "{sources:?}");
    }
    assert_eq!(client.refused("concat", &concat(&["/b", "/none"])), "FileNotFoundException");
    client.create("/open", "w");
    assert_eq!(client.refused("concat", &concat(&["/b", "/open"])), "AlreadyBeingCreatedException");
    assert_eq!(client.info("/all").unwrap().length, 100_001, "as it was");
    assert!(client.read("/b") == data[100_001..250_000]);
    client.call::<()>("concat", &concat(&["/b", "/c"]));
    assert!(client.read("/all") == data);
    assert_eq!((client.info("/b"), client.info("/c")), (None, None));
    opened.stop();
}
