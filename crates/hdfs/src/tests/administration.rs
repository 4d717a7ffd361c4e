//! What administrators ask.

use std::collections::BTreeSet;
use std::thread;

use frieze_client::{ScrubAction, ScrubState};

use super::checksum_cache::{noise, turn_a_bit};
use super::*;

fn open_files(client: &mut HadoopClient, after: i64, path: Option<&str>) -> ListOpenFilesResponse {
    let request = ListOpenFilesRequest { id: after, types: vec![open_files::ALL], path: path.map(str::to_owned) };
    client.call("listOpenFiles", &request)
}

#[test]
fn open_files_are_listed_for_administrators() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.call::<ResultResponse>("mkdirs", &mkdirs("/a/b"));
    client.call::<ResultResponse>("mkdirs", &mkdirs("/ab"));
    for path in ["/a/b/one", "/ab/two", "/three"] {
        client.create(path, "writer");
    }
    client.write("/closed", b"bytes");
    let renamed = RenameRequest { src: "/a/b/one".to_owned(), dst: "/a/uno".to_owned() };
    assert!(client.call::<ResultResponse>("rename", &renamed).result);

    let all = open_files(&mut client, 0, None);
    let mut paths: Vec<&str> = all.entries.iter().map(|entry| entry.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!((paths, all.has_more), (vec!["/a/uno", "/ab/two", "/three"], false), "as they are named now");
    assert!(all.entries.is_sorted_by_key(|entry| entry.id));
    let first = &all.entries[0];
    assert!(first.client_name.starts_with("writer") && first.client_machine == "127.0.0.1", "{first:?}");
    let rest = open_files(&mut client, first.id, None);
    assert_eq!(rest.entries, all.entries[1..], "those behind one that was told of");
    let below: Vec<_> = all.entries.iter().filter(|entry| entry.path.starts_with("/a/")).cloned().collect();
    assert_eq!(open_files(&mut client, 0, Some("/a")).entries, below, "below a directory");
    assert_eq!(open_files(&mut client, 0, Some("/")).entries, all.entries);
    let hindering = ListOpenFilesRequest { id: 0, types: vec![2], path: None };
    assert_eq!(client.call::<ListOpenFilesResponse>("listOpenFiles", &hindering).entries, []);

    if frieze_harness::requirements::root() {
        let mut other = opened.connect_as("daemon", 0);
        let every = ListOpenFilesRequest { id: 0, types: vec![open_files::ALL], path: None };
        assert_eq!(other.refused("listOpenFiles", &every), "AccessControlException");
        let corrupt = ListCorruptFileBlocksRequest { path: "/".to_owned(), cookie: None };
        assert_eq!(other.refused("listCorruptFileBlocks", &corrupt), "AccessControlException");
    }
    opened.stop();
}

#[test]
fn open_files_are_listed_a_thousand_at_a_time() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    for number in 0..1003 {
        client.create(&format!("/f{number}"), "writer");
    }
    let first = open_files(&mut client, 0, None);
    assert_eq!((first.entries.len(), first.has_more), (1000, true));
    let rest = open_files(&mut client, first.entries[999].id, None);
    assert_eq!((rest.entries.len(), rest.has_more), (3, false));
    let all: BTreeSet<&str> = first.entries.iter().chain(&rest.entries).map(|entry| entry.path.as_str()).collect();
    assert_eq!(all.len(), 1003);
    opened.stop();
}

#[test]
fn damaged_files_are_listed_until_they_are_rewritten() {
    let opened = HdfsFixture::with(Settings { segment_bytes: 8 << 20, reserve_bytes: 16 << 20, ..Settings::default() });
    let mut client = opened.connect();
    let data = noise(3, 100_000);
    client.write("/d", &data);
    client.write("/sound", &noise(4, 100_000));
    let corrupt = |client: &mut HadoopClient, path: &str, cookie: Option<String>| {
        let request = ListCorruptFileBlocksRequest { path: path.to_owned(), cookie };
        client.call::<ListCorruptFileBlocksResponse>("listCorruptFileBlocks", &request).corrupt
    };
    let scrub = || {
        let asking =
            frieze_client::Client::connect(Options { server: opened.local.server().home(), ..Options::default() });
        let asking = asking.unwrap();
        asking.scrub(ScrubAction::Start, 0, false).unwrap();
        while asking.scrub(ScrubAction::Look, 0, false).unwrap().state() == ScrubState::Running {
            thread::yield_now();
        }
    };
    assert_eq!(corrupt(&mut client, "/", None).files, Vec::<String>::new());
    turn_a_bit(&opened, &data[..4096], 5000);
    scrub();
    let found = corrupt(&mut client, "/", None);
    assert_eq!(found.files, ["/d"]);
    assert_eq!(corrupt(&mut client, "/", Some(found.cookie)).files, Vec::<String>::new(), "there is no more");
    assert_eq!(corrupt(&mut client, "/sound", None).files, Vec::<String>::new());
    let stats: GetFsReplicatedBlockStatsResponse = client.call("getFsReplicatedBlockStats", &());
    assert!(stats.corrupt_blocks > 0 && stats.missing_blocks == 0, "{stats:?}");
    assert_eq!(client.call::<GetFsStatsResponse>("getFsStats", &()).corrupt_blocks, stats.corrupt_blocks);
    client.write("/d", &data);
    scrub();
    assert_eq!(corrupt(&mut client, "/", None).files, Vec::<String>::new(), "that is of the past");
    opened.stop();
}

#[test]
fn many_directories_are_listed_by_one_call_and_one_that_is_not_there_is_in_no_ones_way() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    for directory in ["/a", "/b", "/empty"] {
        client.call::<ResultResponse>("mkdirs", &mkdirs(directory));
    }
    for number in 0..1005 {
        client.create(&format!("/a/{number:04}"), "writer");
    }
    client.write("/b/file", b"bytes");
    let paths = ["/a", "/none", "/b", "/empty", "/b/file"].map(str::to_owned);
    let mut request = GetBatchedListingRequest { paths: paths.to_vec(), start_after: Vec::new(), need_location: true };
    let mut listings = Vec::new();
    loop {
        let page: GetBatchedListingResponse = client.call("getBatchedListing", &request);
        listings.extend(page.listings);
        request.start_after = page.start_after;
        if !page.has_more {
            break;
        }
    }
    let told: Vec<(u32, usize)> = listings.iter().map(|of| (of.parent_idx, of.partial_listing.len())).collect();
    assert_eq!(told, [(0, 1000), (0, 5), (1, 0), (2, 1), (3, 0), (4, 1)]);
    let names = listings.iter().filter(|of| of.parent_idx == 0).flat_map(|of| &of.partial_listing);
    assert_eq!(names.map(|status| &status.path).collect::<BTreeSet<_>>().len(), 1005);
    let missing = listings[2].exception.as_ref().unwrap();
    assert_eq!(missing.class_name, "java.io.FileNotFoundException");
    assert!(listings[3].partial_listing[0].locations.is_some(), "with where its blocks are");

    request.start_after = b"\xff".to_vec();
    assert_eq!(client.refused("getBatchedListing", &request), "IllegalArgumentException");
    let paths = (0..101).map(|number| format!("/{number}")).collect();
    let many = GetBatchedListingRequest { paths, start_after: Vec::new(), need_location: false };
    assert_eq!(client.refused("getBatchedListing", &many), "IllegalArgumentException");
    opened.stop();
}
