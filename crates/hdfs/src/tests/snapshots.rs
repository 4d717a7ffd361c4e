//! Snapshots of directories, as Hadoop's programs make them.

use super::*;

fn snapshot_of(root: &str, name: &str) -> CreateSnapshotRequest {
    CreateSnapshotRequest { snapshot_root: root.to_owned(), snapshot_name: Some(name.to_owned()) }
}

fn names_in(client: &mut HadoopClient, path: &str) -> Vec<String> {
    let request = GetListingRequest { src: path.to_owned(), start_after: Vec::new(), need_location: false };
    let list = client.call::<GetListingResponse>("getListing", &request).dir_list.unwrap();
    list.partial_listing.into_iter().map(|entry| String::from_utf8(entry.path).unwrap()).collect()
}

fn report_of(client: &mut HadoopClient, root: &str, from: &str, to: &str) -> Vec<String> {
    let request = GetSnapshotDiffReportRequest {
        snapshot_root: root.to_owned(),
        from_snapshot: from.to_owned(),
        to_snapshot: to.to_owned(),
    };
    let report = client.call::<GetSnapshotDiffReportResponse>("getSnapshotDiffReport", &request).diff_report.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let line = |entry: &SnapshotDiffReportEntry| {
        let target = entry.target_path.as_deref().map_or(String::new(), |path| format!(" -> {}", text(path)));
        format!("{} {}{target}", entry.modification_label, text(&entry.fullpath))
    };
    report.entries.iter().map(line).collect()
}

#[test]
fn a_directory_has_snapshots_under_names_of_its_own() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.write("/d/f", b"v1");
    client.write("/d/sub/g", b"g");
    client.write("/e/f", b"other");
    let made: CreateSnapshotResponse = client.call("createSnapshot", &snapshot_of("/d", "s1"));
    assert_eq!(made.snapshot_path, "/d/.snapshot/s1");
    let _: CreateSnapshotResponse = client.call("createSnapshot", &snapshot_of("/e", "s1"));
    assert_eq!(client.refused("createSnapshot", &snapshot_of("/d", "s1")), "SnapshotException");
    client.write("/d/f", b"v2 is longer");
    client.write("/d/new", b"n");
    let rename = RenameRequest { src: "/d/sub".to_owned(), dst: "/d/moved".to_owned() };
    assert!(client.call::<ResultResponse>("rename", &rename).result);
    // A name that is given by the server, as by HDFS.
    let unnamed = CreateSnapshotRequest { snapshot_root: "/d".to_owned(), snapshot_name: None };
    let second = client.call::<CreateSnapshotResponse>("createSnapshot", &unnamed).snapshot_path;
    let second = second.strip_prefix("/d/.snapshot/s2").expect("a name of the time").to_owned();
    let second = format!("s2{second}");
    assert_eq!(names_in(&mut client, "/d/.snapshot"), ["s1".to_owned(), second.clone()]);
    assert_eq!(names_in(&mut client, "/e/.snapshot"), ["s1"]);
    assert_eq!(names_in(&mut client, "/d/.snapshot/s1"), ["f", "sub"]);
    assert_eq!(client.read("/d/.snapshot/s1/f"), b"v1");
    assert_eq!(client.read("/e/.snapshot/s1/f"), b"other");
    assert_eq!(client.info("/d/.snapshot/s9/f"), None);
    assert_eq!(client.refused("create", &create("/d/.snapshot/s1/x", "w")), "SnapshotAccessControlException");
    assert_eq!(client.refused("mkdirs", &mkdirs("/d/.snapshot/s3")), "SnapshotAccessControlException");
    let forth = report_of(&mut client, "/d", "s1", &second);
    // What is written anew is another file under that name.
    assert_eq!(forth, ["M ", "- f", "+ f", "R sub -> moved", "+ new"]);
    let back = report_of(&mut client, "/d", &second, "s1");
    assert_eq!(back, ["M ", "- f", "+ f", "R moved -> sub", "- new"]);
    assert_eq!(report_of(&mut client, "/d", &second, ""), Vec::<String>::new(), "nothing since");
    // The directory takes its snapshots along, and is not removed while it has any, nor is what it lies in.
    let rename = RenameRequest { src: "/d".to_owned(), dst: "/e/d2".to_owned() };
    assert!(client.call::<ResultResponse>("rename", &rename).result);
    assert_eq!(client.read("/e/d2/.snapshot/s1/f"), b"v1");
    let remove = |path: &str| DeleteRequest { src: path.to_owned(), recursive: true };
    let name = |root: &str, name: &str| DeleteSnapshotRequest {
        snapshot_root: root.to_owned(),
        snapshot_name: name.to_owned(),
    };
    let _: Vec<()> = vec![client.call("deleteSnapshot", &name("/e", "s1"))];
    for path in ["/e/d2", "/e"] {
        assert_eq!(client.refused("delete", &remove(path)), "SnapshotException", "{path}");
    }
    let renamed = RenameSnapshotRequest {
        snapshot_root: "/e/d2".to_owned(),
        old_name: "s1".to_owned(),
        new_name: "first".to_owned(),
    };
    let () = client.call("renameSnapshot", &renamed);
    assert_eq!(client.refused("renameSnapshot", &renamed), "SnapshotException");
    assert_eq!(client.read("/e/d2/.snapshot/first/f"), b"v1");
    let listed = client.call::<GetSnapshotListingResponse>("getSnapshotListing", &path_of("/e/d2")).list.unwrap();
    assert_eq!(listed.listing.iter().map(|one| one.snapshot_id).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(listed.listing[0].dir_status.as_ref().unwrap().path, b"first");
    let all = client.call::<GetSnapshottableDirListingResponse>("getSnapshottableDirListing", &()).list.unwrap();
    let seen: Vec<_> = all.listing.iter().map(|one| (one.parent_fullpath.as_slice(), one.snapshot_number)).collect();
    assert_eq!(seen, [(b"/e".as_slice(), 2)]);
    for snapshot in ["first", second.as_str()] {
        let () = client.call("deleteSnapshot", &name("/e/d2", snapshot));
    }
    assert_eq!(client.refused("deleteSnapshot", &name("/e/d2", "first")), "SnapshotException");
    assert_eq!(client.call::<GetSnapshottableDirListingResponse>("getSnapshottableDirListing", &()).list, None);
    assert!(client.call::<ResultResponse>("delete", &remove("/e")).result);
    opened.stop();
}

#[test]
fn the_owner_of_a_directory_manages_its_snapshots_and_lists_those_of_the_whole_tree() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.write("/d/f", b"then");
    let direct =
        frieze_client::Client::connect(Options { server: opened.local.server().nearby(), ..Options::default() })
            .unwrap();
    direct.make_snapshot("before-release", None).unwrap();
    client.write("/d/f", b"now");
    assert_eq!(names_in(&mut client, "/d/.snapshot"), ["before-release"]);
    assert_eq!(client.read("/d/.snapshot/before-release/f"), b"then");
    assert_eq!(client.info("/d/.snapshot/1m-ago/f"), None, "an instant is no snapshot");
    if frieze_harness::requirements::root() {
        let mut other = opened.connect_as("daemon", 0);
        assert_eq!(other.refused("createSnapshot", &snapshot_of("/d", "s")), "AccessControlException");
        let _: CreateSnapshotResponse = client.call("createSnapshot", &snapshot_of("/d", "s"));
        let name = DeleteSnapshotRequest { snapshot_root: "/d".to_owned(), snapshot_name: "s".to_owned() };
        assert_eq!(other.refused("deleteSnapshot", &name), "AccessControlException");
        assert_eq!(other.call::<GetSnapshottableDirListingResponse>("getSnapshottableDirListing", &()).list, None);
    }
    for (root, name, class) in [
        ("/d/f", "s9", "PathIsNotDirectoryException"),
        ("/nowhere", "s9", "FileNotFoundException"),
        ("/d", "a/b", "HadoopIllegalArgumentException"),
        ("/d/.snapshot/before-release", "s9", "SnapshotAccessControlException"),
    ] {
        assert_eq!(client.refused("createSnapshot", &snapshot_of(root, name)), class, "{root} {name}");
    }
    direct.close().unwrap();
    opened.stop();
}
