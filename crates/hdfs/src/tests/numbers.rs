//! Files by their numbers.

use super::*;

fn numbered(file: &HdfsFileStatus) -> String {
    format!("/.reserved/.inodes/{}", file.file_id.unwrap())
}

#[test]
fn a_file_is_found_by_its_number_wherever_it_is_moved() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.write("/a/at 5:00/f", b"four");
    let file = numbered(&client.info("/a/at 5:00/f").unwrap());
    let directory = numbered(&client.info("/a").unwrap());
    assert_eq!(client.read(&file), b"four");
    assert_eq!(client.read(&format!("{directory}/at 5:00/f")), b"four");
    let moved = RenameRequest { src: "/a/at 5:00/f".to_owned(), dst: "/g".to_owned() };
    assert!(client.call::<ResultResponse>("rename", &moved).result);
    assert_eq!(client.read(&file), b"four");
    assert!(client.info(&format!("{directory}/f")).is_none());
    // It is changed by it as well.
    client.call::<ResultResponse>("mkdirs", &mkdirs(&format!("{directory}/below")));
    assert!(client.info("/a/below").is_some());
    let back = RenameRequest { src: file.clone(), dst: format!("{directory}/below/h") };
    assert!(client.call::<ResultResponse>("rename", &back).result);
    assert_eq!(client.read("/a/below/h"), b"four");
    assert_eq!(client.info("/.reserved/.inodes/1").unwrap().file_type, client.info("/").unwrap().file_type);
    client.call::<ResultResponse>("delete", &DeleteRequest { src: file.clone(), recursive: false });
    for gone in [file.as_str(), "/.reserved/.inodes/123456", "/.reserved/.inodes/x"] {
        assert!(client.info(gone).is_none(), "{gone}");
        let request = GetBlockLocationsRequest { src: gone.to_owned(), offset: 0, length: 1 };
        assert_eq!(client.refused("getBlockLocations", &request), "FileNotFoundException", "{gone}");
    }
    opened.stop();
}

#[test]
fn a_number_gives_no_right_that_its_path_does_not_give() {
    if !frieze_harness::requirements::root() {
        // There is one user alone.
        return;
    }
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.write("/closed/f", b"four");
    let file = numbered(&client.info("/closed/f").unwrap());
    let mut other = opened.connect_as("daemon", 0);
    assert_eq!(other.read(&file), b"four");
    let closed = SetPermissionRequest { src: "/closed".to_owned(), permission: Some(FsPermission { perm: 0o700 }) };
    client.ask("setPermission", &closed).unwrap();
    let read = GetBlockLocationsRequest { src: file.clone(), offset: 0, length: 1 };
    assert_eq!(other.refused("getBlockLocations", &read), "AccessControlException");
    let moved = RenameRequest { src: file.clone(), dst: "/mine".to_owned() };
    assert_eq!(other.refused("rename", &moved), "AccessControlException");
    // Nor does a refusal tell a name that could not be listed.
    let passable = SetPermissionRequest { src: "/closed".to_owned(), permission: Some(FsPermission { perm: 0o711 }) };
    client.ask("setPermission", &passable).unwrap();
    assert_eq!(other.read("/closed/f"), b"four");
    let (class, words) = other.ask("mkdirs", &mkdirs(&format!("{file}/below"))).unwrap_err();
    assert!(class.ends_with("FileNotFoundException") && !words.contains("closed"), "{class}: {words}");
    opened.stop();
}
