//! The gateway with a server behind it, and a client that speaks HTTP and nothing of Hadoop's.

use std::io::{Read, Write};
use std::net::TcpStream;

use frieze_client::{CallKind, Gateway, Reason, Recorder, RingSettings};
use frieze_hdfs::proto::{SAFEMODE_ENTER, SetSafeModeRequest};
use frieze_hdfs::{Account, Calls, RemoteUser};
use frieze_trace::read_ring;
use serde_json::{Value, json};

mod fixture;

use fixture::{GO_ON, WebHdfsFixture, bytes, options};

use super::{Error, Trust, WebHdfsGateway};

#[test]
fn a_file_is_made_read_and_appended_to_in_two_steps() {
    let opened = WebHdfsFixture::new();
    let data = bytes(1_700_001);
    let first = opened.ask("PUT", "/a/b/file?op=CREATE&permission=600");
    let location = first.location.clone().unwrap();
    assert_eq!((first.status, first.body.len()), (307, 0));
    assert_eq!(location, opened.url("/a/b/file?op=CREATE&permission=600&data=true"));
    assert_eq!(opened.refused("GET", "/a/b/file?op=OPEN"), (404, "FileNotFoundException".to_owned()), "not yet");
    let made = opened.send("PUT", &location, &data);
    let at = opened.gateway.address();
    assert_eq!((made.status, made.location), (201, Some(format!("webhdfs://{at}/a/b/file"))));
    assert_eq!(opened.read("/a/b/file"), data);
    let part = opened.two_steps("GET", "/a/b/file?op=OPEN&offset=1699999&length=100", b"");
    assert_eq!((part.status, part.body.as_slice()), (200, &data[1_699_999..]));
    assert_eq!(opened.two_steps("GET", "/a/b/file?op=OPEN&offset=1700001", b"").body, b"", "at the end");
    let beyond = opened.two_steps("GET", "/a/b/file?op=OPEN&offset=1700002", b"");
    assert_eq!(beyond.refused(), (403, "EOFException".to_owned()));
    let told = opened.get("/a/b/file?op=OPEN&noredirect=true");
    assert_eq!(told, json!({ "Location": opened.url("/a/b/file?op=OPEN&noredirect=true&data=true") }));
    assert_eq!(opened.two_steps("POST", "/a/b/file?op=APPEND", b"more").status, 200);
    assert!(opened.read("/a/b/file").ends_with(b"more"));
    let status = opened.get("/a/b/file?op=GETFILESTATUS")["FileStatus"].clone();
    assert_eq!(status["length"], 1_700_005);
    assert_eq!((status["permission"].as_str(), status["type"].as_str()), (Some("600"), Some("FILE")));
    assert_eq!((status["pathSuffix"].as_str(), status["blockSize"].as_u64()), (Some(""), Some(128 << 20)));
    opened.stop();
}

#[test]
fn a_recorder_has_one_event_for_each_operation_and_piece_of_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let settings =
        RingSettings { bytes: 1 << 20, dir: dir.path().join("rings"), program: "web".to_owned(), is_live: false };
    let recorder = Recorder::create(&settings).unwrap();
    let opened = WebHdfsFixture::recorded(Some(recorder.clone()));
    let data = bytes(700_000);
    opened.write("/file", &data);
    assert_eq!(opened.read("/file"), data);
    opened.ask("PUT", "/dir?op=MKDIRS");
    opened.refused("GET", "/none?op=LISTSTATUS");
    opened.stop();
    let ring = read_ring(recorder.path()).unwrap();
    let of = |call: CallKind| ring.events.iter().filter(move |event| event.call == call);
    assert!(ring.events.iter().all(|event| event.gateway == Gateway::WebHdfs), "{:?}", ring.events);
    let moved = |call| of(call).map(|event| event.got).sum::<u64>();
    assert_eq!((moved(CallKind::Append), moved(CallKind::Read)), (700_000, 700_000));
    assert_eq!((of(CallKind::Read).count(), of(CallKind::Mkdir).count(), of(CallKind::Create).count()), (2, 1, 1));
    assert!(of(CallKind::Read).all(|event| event.inode != 0 && event.result == 0));
    let failed: Vec<u16> = of(CallKind::List).map(|event| event.result).collect();
    assert_eq!(failed, [Reason::NotFound as u32 as u16]);
}

#[test]
fn an_existing_file_is_replaced_only_with_overwrite() {
    let opened = WebHdfsFixture::new();
    opened.write("/file", b"first");
    let again = opened.two_steps("PUT", "/file?op=CREATE", b"second");
    assert_eq!(again.refused(), (403, "FileAlreadyExistsException".to_owned()));
    assert_eq!(opened.read("/file"), b"first");
    assert_eq!(opened.two_steps("PUT", "/file?op=CREATE&createflag=create,overwrite", b"third").status, 201);
    assert_eq!(opened.read("/file"), b"third");
    let no_parent = opened.two_steps("PUT", "/none/file?op=CREATE&createparent=false", b"");
    assert_eq!(no_parent.refused(), (404, "FileNotFoundException".to_owned()));
    assert_eq!(opened.refused("POST", "/none?op=APPEND"), (404, "FileNotFoundException".to_owned()));
    let small = opened.ask("PUT", "/file?op=CREATE&overwrite=true&blocksize=1&data=true");
    assert_eq!(small.refused(), (403, "IOException".to_owned()));
    opened.stop();
}

#[test]
fn directories_are_listed_whole_and_in_pages() {
    let opened = WebHdfsFixture::new();
    assert_eq!(opened.get("/?op=LISTSTATUS"), json!({ "FileStatuses": { "FileStatus": [] } }));
    assert_eq!(opened.ask("PUT", "/many?op=MKDIRS&permission=750").json(), json!({ "boolean": true }));
    let fs = opened.client.fs();
    for number in 0..2100 {
        let target = frieze_client::Target::path(format!("/many/{number:04}"));
        fs.mkdir(&target, 0o755).unwrap();
    }
    let all = opened.get("/many?op=LISTSTATUS");
    let all = all["FileStatuses"]["FileStatus"].as_array().unwrap();
    assert_eq!(all.len(), 2100);
    assert!(all.iter().enumerate().all(|(at, status)| status["pathSuffix"] == format!("{at:04}")));
    let (mut count, mut after) = (0, String::new());
    loop {
        let page = opened.get(&format!("/many?op=LISTSTATUS_BATCH&startAfter={after}"))["DirectoryListing"].clone();
        let listed = page["partialListing"]["FileStatuses"]["FileStatus"].as_array().unwrap().clone();
        count += listed.len();
        if page["remainingEntries"] == 0 {
            break;
        }
        after = listed.last().unwrap()["pathSuffix"].as_str().unwrap().to_owned();
    }
    assert_eq!(count, 2100);
    assert_eq!(opened.refused("GET", "/none?op=LISTSTATUS"), (404, "FileNotFoundException".to_owned()));
    opened.write("/file", b"x");
    let one = opened.get("/file?op=LISTSTATUS")["FileStatuses"]["FileStatus"].clone();
    assert_eq!((one.as_array().unwrap().len(), one[0]["pathSuffix"].as_str()), (1, Some("")));
    opened.stop();
}

#[test]
fn answers_about_a_file_are_those_of_hadoop() {
    let opened = WebHdfsFixture::new();
    opened.write("/d/file", b"abc");
    let summary = opened.get("/d?op=GETCONTENTSUMMARY")["ContentSummary"].clone();
    assert_eq!(
        (&summary["directoryCount"], &summary["fileCount"], &summary["length"]),
        (&json!(1), &json!(1), &json!(3))
    );
    assert_eq!((&summary["quota"], &summary["spaceConsumed"]), (&json!(-1), &json!(3)));
    assert_eq!(opened.get("/d?op=GETQUOTAUSAGE")["QuotaUsage"]["fileAndDirectoryCount"], 2);
    assert_eq!(opened.ask("PUT", "/d?op=SETQUOTA&namespacequota=7").status, 200);
    assert_eq!(opened.ask("PUT", "/d?op=SETQUOTA&storagespacequota=8").status, 200);
    let usage = opened.get("/d?op=GETQUOTAUSAGE")["QuotaUsage"].clone();
    assert_eq!((&usage["quota"], &usage["spaceQuota"], &usage["spaceConsumed"]), (&json!(7), &json!(8), &json!(3)));
    let sum = opened.two_steps("GET", "/d/file?op=GETFILECHECKSUM", b"").json()["FileChecksum"].clone();
    assert_eq!((&sum["algorithm"], &sum["length"]), (&json!("MD5-of-0MD5-of-512CRC32C"), &json!(28)));
    assert!(sum["bytes"].as_str().unwrap().starts_with("000002000000000000000000"));
    let home = opened.get("/?op=GETHOMEDIRECTORY")["Path"].as_str().unwrap().to_owned();
    assert!(home.starts_with("/user/"), "{home}");
    assert_eq!(opened.get("/?op=GETTRASHROOT"), json!({ "Path": format!("{home}/.Trash") }));
    assert_eq!(opened.get("/?op=GETTRASHROOTS"), json!({ "Paths": [] }));
    assert_eq!(opened.get("/?op=GETSERVERDEFAULTS")["FsServerDefaults"]["blockSize"], 128 << 20);
    assert!(opened.get("/?op=GETSTATUS")["FsStatus"]["capacity"].as_u64() > Some(0));
    assert_eq!(opened.get("/?op=GETDELEGATIONTOKEN"), json!({ "Token": null }));
    let blocks = opened.get("/d/file?op=GETFILEBLOCKLOCATIONS")["BlockLocations"]["BlockLocation"].clone();
    assert_eq!(
        (&blocks[0]["length"], &blocks[0]["offset"], &blocks[0]["hosts"]),
        (&json!(3), &json!(0), &json!(["127.0.0.1"]))
    );
    assert_eq!(blocks[0]["names"], json!([opened.gateway.address().to_string()]));
    let none = opened.get("/d/file?op=GETFILEBLOCKLOCATIONS&offset=3");
    assert_eq!(none["BlockLocations"]["BlockLocation"], json!([]));
    let located = opened.get("/d/file?op=GET_BLOCK_LOCATIONS")["LocatedBlocks"].clone();
    assert_eq!((&located["fileLength"], &located["locatedBlocks"][0]["block"]["numBytes"]), (&json!(3), &json!(3)));
    assert_eq!(located["locatedBlocks"][0]["blockToken"]["urlString"], "AAAAAA");
    assert_eq!(opened.get("/d/file?op=GETFILELINKSTATUS")["FileStatus"]["length"], 3);
    assert_eq!(opened.get("/d/file?op=GETSTORAGEPOLICY")["BlockStoragePolicy"]["name"], "HOT");
    assert_eq!(opened.get("/?op=GETALLSTORAGEPOLICY")["BlockStoragePolicies"]["BlockStoragePolicy"][0]["id"], 7);
    assert_eq!(opened.get("/?op=GETECPOLICIES")["ErasureCodingPolicies"]["ErasureCodingPolicyInfo"], json!([]));
    assert_eq!(opened.get("/?op=GETSNAPSHOTTABLEDIRECTORYLIST"), json!({ "SnapshottableDirectoryList": [] }));
    opened.stop();
}

#[test]
fn access_lists_are_changed_and_listed() {
    let opened = WebHdfsFixture::new();
    opened.write("/d/f", b"one");
    let acl = |path: &str| {
        let told = opened.get(&format!("{path}?op=GETACLSTATUS"))["AclStatus"].clone();
        (told["permission"].clone(), told["entries"].clone())
    };
    let done = |path: &str, query: &str| {
        let answer = opened.ask("PUT", &format!("{path}?op={query}"));
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{query}: {answer:?}");
    };
    let status = |path: &str| opened.get(&format!("{path}?op=GETFILESTATUS"))["FileStatus"].clone();
    assert_eq!(status("/d/f")["aclBit"], Value::Null);
    done("/d/f", "MODIFYACLENTRIES&aclspec=user:4711:rw-,group:4712:r-x");
    let entries = json!(["user:4711:rw-", "group::r--", "group:4712:r-x"]);
    assert_eq!(acl("/d/f"), (json!("674"), entries));
    let told = status("/d/f");
    assert_eq!((&told["aclBit"], &told["permission"]), (&json!(true), &json!("674")));
    done("/d/f", "REMOVEACLENTRIES&aclspec=group:4712:");
    assert_eq!(acl("/d/f"), (json!("664"), json!(["user:4711:rw-", "group::r--"])));
    done("/d/f", "SETACL&aclspec=user::rwx,user:4711:r--,group::---,other::---");
    assert_eq!(acl("/d/f"), (json!("740"), json!(["user:4711:r--", "group::---"])));
    done("/d/f", "REMOVEACL");
    assert_eq!(acl("/d/f"), (json!("700"), json!([])));
    done("/d", "MODIFYACLENTRIES&aclspec=default:user:4711:rwx");
    let defaults = json!([
        "default:user::rwx",
        "default:user:4711:rwx",
        "default:group::r-x",
        "default:mask::rwx",
        "default:other::r-x"
    ]);
    assert_eq!(acl("/d"), (json!("755"), defaults));
    let made = opened.ask("PUT", "/d/below?op=MKDIRS&permission=700&unmaskedpermission=770");
    assert_eq!(made.json(), json!({ "boolean": true }));
    assert_eq!(acl("/d/below").0, json!("770"));
    done("/d", "REMOVEDEFAULTACL");
    assert_eq!(acl("/d"), (json!("755"), json!([])));
    for (query, exception) in [
        ("SETACL&aclspec=user:4711:rw-", "AclException"),
        ("SETACL&aclspec=user::rw", "HadoopIllegalArgumentException"),
        ("MODIFYACLENTRIES&aclspec=someone:4711:rw-", "HadoopIllegalArgumentException"),
    ] {
        let answer = opened.ask("PUT", &format!("/d/f?op={query}"));
        assert_eq!(answer.json()["RemoteException"]["exception"], json!(exception), "{query}: {answer:?}");
    }
}

#[test]
fn names_and_attributes_are_changed() {
    let opened = WebHdfsFixture::new();
    opened.write("/d/one", b"one");
    opened.write("/d/two", b"two");
    let yes = json!({ "boolean": true });
    let no = json!({ "boolean": false });
    assert_eq!(opened.ask("PUT", "/d/one?op=RENAME&destination=/d/three").json(), yes);
    assert_eq!(opened.ask("PUT", "/d/one?op=RENAME&destination=/d/four").json(), no, "it is not there");
    assert_eq!(opened.ask("PUT", "/d/three?op=RENAME&destination=/d/two&renameoptions=OVERWRITE").status, 200);
    assert_eq!(opened.read("/d/two"), b"one");
    for query in [
        "op=SETPERMISSION&permission=1640",
        "op=SETTIMES&modificationtime=1000000000000",
        "op=SETXATTR&xattr.name=user.a&xattr.value=0x00ff&flag=CREATE",
        "op=SETXATTR&xattr.name=user.b&xattr.value=%22text%22",
    ] {
        let answer = opened.ask("PUT", &format!("/d/two?{query}"));
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{query}: {answer:?}");
    }
    let status = opened.get("/d/two?op=GETFILESTATUS")["FileStatus"].clone();
    assert_eq!((&status["permission"], &status["modificationTime"]), (&json!("1640"), &json!(1_000_000_000_000_u64)));
    let acl = opened.get("/d/two?op=GETACLSTATUS")["AclStatus"].clone();
    assert_eq!((&acl["permission"], &acl["stickyBit"], &acl["entries"]), (&json!("640"), &json!(true), &json!([])));
    let listed = opened.get("/d/two?op=GETXATTRS&encoding=base64");
    let values = json!([{ "name": "user.a", "value": "0sAP8=" }, { "name": "user.b", "value": "0sdGV4dA==" }]);
    assert_eq!(listed, json!({ "XAttrs": values }));
    let one = opened.get("/d/two?op=GETXATTRS&xattr.name=user.b");
    assert_eq!(one, json!({ "XAttrs": [{ "name": "user.b", "value": "\"text\"" }] }));
    assert_eq!(opened.get("/d/two?op=LISTXATTRS"), json!({ "XAttrNames": "[\"user.a\",\"user.b\"]" }));
    assert_eq!(opened.ask("PUT", "/d/two?op=REMOVEXATTR&xattr.name=user.a").status, 200);
    assert_eq!(opened.get("/d/two?op=LISTXATTRS"), json!({ "XAttrNames": "[\"user.b\"]" }));
    assert_eq!(opened.ask("POST", "/d/two?op=TRUNCATE&newlength=2").json(), yes);
    opened.write("/d/more", b"more");
    assert_eq!(opened.ask("POST", "/d/two?op=CONCAT&sources=/d/more").status, 200);
    assert_eq!(opened.read("/d/two"), b"onmore");
    assert_eq!(opened.ask("PUT", "/d/two?op=SETREPLICATION&replication=3").json(), yes);
    assert_eq!(opened.ask("GET", "/d/two?op=CHECKACCESS&fsaction=rw-").status, 200);
    assert_eq!(opened.refused("DELETE", "/d?op=DELETE"), (403, "PathIsNotEmptyDirectoryException".to_owned()));
    assert_eq!(opened.ask("DELETE", "/d?op=DELETE&recursive=true").json(), yes);
    assert_eq!(opened.ask("DELETE", "/d?op=DELETE&recursive=true").json(), no);
    opened.stop();
}

#[test]
fn a_directory_has_snapshots() {
    let opened = WebHdfsFixture::new();
    opened.write("/d/file", b"one");
    assert_eq!(opened.ask("PUT", "/d?op=ALLOWSNAPSHOT").status, 200);
    let made = opened.ask("PUT", "/d?op=CREATESNAPSHOT&snapshotname=s1").json();
    assert_eq!(made, json!({ "Path": "/d/.snapshot/s1" }));
    opened.write("/d/new", b"new");
    assert_eq!(opened.ask("DELETE", "/d/file?op=DELETE").status, 200);
    assert_eq!(opened.read("/d/.snapshot/s1/file"), b"one");
    let report = opened.get("/d?op=GETSNAPSHOTDIFF&oldsnapshotname=s1&snapshotname=");
    let of = |kind: &str, path: &str| json!({ "sourcePath": path, "targetPath": "", "type": kind });
    let told = &report["SnapshotDiffReport"];
    assert_eq!(told["diffList"], json!([of("MODIFY", ""), of("DELETE", "file"), of("CREATE", "new")]));
    assert_eq!((&told["fromSnapshot"], &told["snapshotRoot"]), (&json!("s1"), &json!("/d")));
    assert_eq!(opened.ask("PUT", "/d?op=RENAMESNAPSHOT&oldsnapshotname=s1&snapshotname=s2").status, 200);
    let list = opened.get("/d?op=GETSNAPSHOTLIST")["SnapshotList"].clone();
    assert_eq!((&list[0]["dirStatus"]["pathSuffix"], &list[0]["deletionStatus"]), (&json!("s2"), &json!("ACTIVE")));
    assert_eq!((&list[0]["parentFullPath"], &list[1]), (&json!("/d"), &json!(null)));
    let all = opened.get("/?op=GETSNAPSHOTTABLEDIRECTORYLIST")["SnapshottableDirectoryList"].clone();
    assert_eq!((&all[0]["dirStatus"]["pathSuffix"], &all[0]["snapshotNumber"]), (&json!("d"), &json!(1)));
    assert_eq!(opened.refused("PUT", "/d?op=DISALLOWSNAPSHOT").1, "SnapshotException");
    assert_eq!(opened.refused("DELETE", "/d?op=DELETE&recursive=true").1, "SnapshotException");
    assert_eq!(opened.ask("DELETE", "/d?op=DELETESNAPSHOT&snapshotname=s2").status, 200);
    assert_eq!(opened.refused("DELETE", "/d?op=DELETESNAPSHOT&snapshotname=s2").1, "SnapshotException");
    assert_eq!(opened.ask("PUT", "/d?op=DISALLOWSNAPSHOT").status, 200);
    opened.stop();
}

#[test]
fn what_frieze_has_not_is_refused_by_name() {
    let opened = WebHdfsFixture::new();
    for (method, ops) in [
        ("GET", "GETSNAPSHOTDIFFLISTING GETLINKTARGET"),
        (
            "PUT",
            "CREATESYMLINK SETSTORAGEPOLICY SATISFYSTORAGEPOLICY \
             SETECPOLICY ENABLEECPOLICY DISABLEECPOLICY \
             SETQUOTABYSTORAGETYPE RENEWDELEGATIONTOKEN CANCELDELEGATIONTOKEN",
        ),
        ("POST", "UNSETSTORAGEPOLICY UNSETECPOLICY"),
    ] {
        for op in ops.split_whitespace() {
            let answer = opened.ask(method, &format!("/?op={op}"));
            assert_eq!(answer.refused(), (400, "UnsupportedOperationException".to_owned()), "{op}");
            assert_eq!(answer.json()["RemoteException"]["javaClassName"], "java.lang.UnsupportedOperationException");
        }
    }
    opened.stop();
}

/// The bytes of a file, or how it is refused.
type Expected = Result<&'static [u8], (u16, &'static str)>;

#[test]
fn every_instant_is_read_as_it_was() {
    let opened = WebHdfsFixture::new();
    assert_eq!(opened.ask("PUT", "/logs?op=MKDIRS").status, 200);
    let before = opened.now();
    opened.write("/logs/x", b"first");
    let first = opened.now();
    opened.two_steps("POST", "/logs/x?op=APPEND", b" second");
    let second = opened.now();
    assert_eq!(opened.read(&format!("/logs/.at/{first}/x")), b"first", "in any directory");
    assert_eq!(opened.ask("PUT", "/logs/x?op=RENAME&destination=/logs/y").status, 200);
    let renamed = opened.now();
    assert_eq!(opened.ask("DELETE", "/logs?op=DELETE&recursive=true").status, 200);
    let deleted = opened.now();
    assert_eq!(opened.ask("PUT", "/logs?op=MKDIRS").status, 200);

    let not_there = (404, "FileNotFoundException");
    // Where; then what is read there, or how it is refused.
    let cases: &[(String, Expected)] = &[
        (format!("/.at/{before}/logs/x"), Err(not_there)),
        (format!("/.at/{first}/logs/x"), Ok(b"first")),
        (format!("/.at/{second}/logs/x"), Ok(b"first second")),
        (format!("/.at/{renamed}/logs/x"), Err(not_there)),
        (format!("/.at/{renamed}/logs/y"), Ok(b"first second")),
        (format!("/.at/{deleted}/logs/y"), Err(not_there)),
        // A directory that was made anew is another one.
        (format!("/logs/.at/{first}/x"), Err(not_there)),
        ("/.at/now/logs/y".to_owned(), Err(not_there)),
        ("/.at/1970-01-01T00%3A00%3A10Z/logs/x".to_owned(), Err((403, "IOException"))),
        ("/.at/hlc-fffffffffffffffe/logs/x".to_owned(), Err((403, "IOException"))),
        ("/.at/2099-01-01T00%3A00%3A00Z/logs/x".to_owned(), Err((403, "IOException"))),
        ("/.at/2099-01-01T00:00:00Z/logs/x".to_owned(), Err((403, "IOException"))),
        ("/.at/2999-01-01T00:00:00Z/logs/x".to_owned(), Err((400, "InvalidPathException"))),
        ("/.at/hlc-xyz/logs/x".to_owned(), Err((400, "InvalidPathException"))),
        ("/.at/99-ago/logs/x".to_owned(), Err((400, "InvalidPathException"))),
        ("/.at/no-such-snapshot/logs/x".to_owned(), Err(not_there)),
        (format!("/.at/{first}/.at/{second}/logs/x"), Err((400, "InvalidPathException"))),
        (format!("/.at/{first}/logs"), Err(not_there)),
    ];
    for (path, expected) in cases {
        let answer = opened.two_steps("GET", &format!("{path}?op=OPEN"), b"");
        match expected {
            Ok(bytes) => assert_eq!((answer.status, answer.body.as_slice()), (200, *bytes), "{path}"),
            Err((status, class)) => assert_eq!(answer.refused(), (*status, (*class).to_owned()), "{path}: {answer:?}"),
        }
    }
    let listed = opened.get(&format!("/.at/{second}/logs?op=LISTSTATUS"))["FileStatuses"]["FileStatus"].clone();
    assert_eq!((&listed[0]["pathSuffix"], &listed[0]["length"]), (&json!("x"), &json!(12)));
    assert_eq!(opened.get(&format!("/.at/{first}?op=GETCONTENTSUMMARY"))["ContentSummary"]["length"], 5);
    for (method, query) in [
        ("PUT", "op=MKDIRS"),
        ("PUT", "op=SETPERMISSION"),
        ("DELETE", "op=DELETE"),
        ("POST", "op=TRUNCATE&newlength=0"),
        ("PUT", "op=RENAME&destination=/x"),
        ("PUT", "op=CREATE&data=true"),
    ] {
        let refused = opened.refused(method, &format!("/.at/{first}/logs/x?{query}"));
        assert_eq!(refused, (403, "SnapshotAccessControlException".to_owned()), "{query}");
    }
    opened.stop();
}

#[test]
fn a_name_that_moves_is_an_exact_instant_from_the_first_step_on() {
    let opened = WebHdfsFixture::new();
    opened.write("/d/a%20b", b"old");
    let web_request = opened.ask("GET", "/.at/now/d/a%20b?op=OPEN");
    let location = web_request.location.unwrap();
    assert!(location.contains("/webhdfs/v1/.at/hlc-") && location.contains("/d/a%20b?op=OPEN&data=true"), "{location}");
    opened.write("/d/a%20b", b"new");
    assert_eq!(opened.send("GET", &location, b"").body, b"old");
    assert_eq!(opened.read("/d/a%20b"), b"new");
    assert_eq!(opened.read("/.at/now/d/a%20b"), b"new", "each request means its own now");
    opened.stop();
}

#[test]
fn names_that_urls_do_not_like_go_there_and_back() {
    let opened = WebHdfsFixture::new();
    for (escaped, shown) in [
        ("a%20b", "a b"),
        ("%C3%A9", "é"),
        ("a+b", "a+b"),
        ("100%25", "100%"),
        ("q%3Fx%23y", "q?x#y"),
        ("a&b=c;d", "a&b=c;d"),
        // A colon is shown as Hadoop's clients can say it, and taken in both ways.
        ("at:12", "at%3A12"),
        ("at%253A13", "at%3A13"),
    ] {
        opened.write(&format!("/names/{escaped}"), shown.as_bytes());
        let listed = opened.get("/names?op=LISTSTATUS")["FileStatuses"]["FileStatus"].clone();
        assert_eq!(listed[0]["pathSuffix"], shown);
        let again: String = shown.bytes().map(|byte| format!("%{byte:02x}")).collect();
        assert_eq!(opened.read(&format!("/names/{again}")), shown.as_bytes());
        assert_eq!(opened.ask("DELETE", &format!("/names/{escaped}?op=DELETE")).json(), json!({ "boolean": true }));
    }
    opened.stop();
}

#[test]
fn wrong_requests_are_refused_with_the_reason() {
    let opened = WebHdfsFixture::new();
    opened.write("/file", b"x");
    let argument = (400, "IllegalArgumentException");
    let path = (400, "InvalidPathException");
    let long = format!("/{}?op=OPEN", "x".repeat(9000));
    let cases: &[(&str, &str, (u16, &str))] = &[
        ("GET", "/file", argument),
        ("GET", "/file?op=", argument),
        ("GET", "/file?op=NOSUCH", argument),
        ("GET", "/file?op=MKDIRS", argument),
        ("PUT", "/file?op=OPEN", argument),
        ("POST", "/file?op=DELETE", argument),
        ("DELETE", "/file?op=CREATE", argument),
        ("GET", "/file?op=OPEN&offset=-1", argument),
        ("GET", "/file?op=OPEN&length=many", argument),
        ("GET", "/file?op=OPEN&offset=99999999999999999999", argument),
        ("GET", "/file?op=GETFILESTATUS&permission=999", argument),
        ("POST", "/file?op=TRUNCATE", argument),
        ("POST", "/file?op=CONCAT", argument),
        ("POST", "/file?op=CONCAT&sources=", argument),
        ("POST", "/file?op=CONCAT&sources=/file", (400, "HadoopIllegalArgumentException")),
        ("POST", "/file?op=TRUNCATE&newlength=2", (400, "HadoopIllegalArgumentException")),
        ("PUT", "/file?op=RENAME", argument),
        ("PUT", "/file?op=RENAME&destination=x", path),
        ("PUT", "/file?op=RENAME&destination=/x&renameoptions=MAYBE", argument),
        ("PUT", "/file?op=SETOWNER", argument),
        ("PUT", "/file?op=SETOWNER&owner=nobody-of-that-name", (403, "IOException")),
        ("PUT", "/file?op=SETTIMES", argument),
        ("PUT", "/file?op=SETTIMES&accesstime=x", argument),
        ("PUT", "/file?op=SETXATTR&xattr.value=x", argument),
        ("PUT", "/file?op=SETXATTR&xattr.name=a&xattr.value=x", (400, "HadoopIllegalArgumentException")),
        ("PUT", "/file?op=SETXATTR&xattr.name=user.a&xattr.value=0xq", argument),
        ("PUT", "/file?op=SETXATTR&xattr.name=user.a&flag=MAYBE", argument),
        ("GET", "/file?op=GETXATTRS&xattr.name=user.none", (403, "IOException")),
        ("GET", "/file?op=CHECKACCESS", argument),
        ("GET", "/file?op=CHECKACCESS&fsaction=rwt", argument),
        ("PUT", "/new?op=CREATE&createflag=maybe", argument),
        ("PUT", "/new?op=CREATE&createflag=append&data=true", (400, "HadoopIllegalArgumentException")),
        ("GET", "/%zz?op=OPEN", argument),
        ("GET", "/%ff?op=OPEN", argument),
        ("GET", "/a/%2e%2e/file?op=GETFILESTATUS", path),
        ("GET", "/a/..%2ffile?op=GETFILESTATUS", path),
        ("GET", "/a%00b?op=GETFILESTATUS", path),
        ("GET", "/file?op=GETFILESTATUS&doas=%", argument),
        ("GET", &long, path),
        ("PUT", "/file/below?op=MKDIRS", (403, "ParentNotDirectoryException")),
        ("PUT", "/file?op=MKDIRS", (403, "FileAlreadyExistsException")),
        ("GET", "/?op=OPEN", (404, "FileNotFoundException")),
    ];
    for (method, query, (status, class)) in cases {
        // As it is, for a client library would mend it.
        let request = format!(
            "{method} /webhdfs/v1{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        );
        let mut told = opened.raw(request.as_bytes());
        if let Some(at) =
            told.strip_prefix("HTTP/1.1 307").and_then(|rest| rest.split("ocation: http://localhost").nth(1))
        {
            let target = at.split_whitespace().next().unwrap();
            told = opened.raw(
                format!(
                    "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
                )
                .as_bytes(),
            );
        }
        assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {query}: {told}");
        assert!(told.contains(&format!("\"exception\":\"{class}\"")), "{method} {query}: {told}");
    }
    assert!(
        opened
            .raw(b"OPTIONS /webhdfs/v1/file?op=OPEN HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .starts_with("HTTP/1.1 400")
    );
    assert!(
        opened
            .raw(b"GET /index.html HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .starts_with("HTTP/1.1 404")
    );
    assert_eq!(opened.read("/file"), b"x");
    opened.stop();
}

#[test]
fn malformed_requests_affect_no_other_client() {
    let opened = WebHdfsFixture::new();
    let head = "GET /webhdfs/v1/?op=LISTSTATUS HTTP/1.1\r\nHost: localhost\r\n";
    for (bytes, begins) in [
        (vec![0xff; 3000], "HTTP/1.1 400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), "HTTP/1.1 400"),
        (b"hrpc\x09\x00\x00".to_vec(), "HTTP/1.1 400"),
        (b"GET / HTTP/9.9\r\n\r\n".to_vec(), "HTTP/1.1 400"),
        (format!("{head}{}\r\n", "X: y\r\n".repeat(200)).into_bytes(), "HTTP/1.1 431"),
        (format!("{head}X: {}\r\n\r\n", "y".repeat(1 << 20)).into_bytes(), "HTTP/1.1 431"),
        (format!("{head}Content-Length: -1\r\n\r\n").into_bytes(), "HTTP/1.1 400"),
        (
            format!("{head}Connection: close\r\nHost: [::\r\n\r\n").replace("Host: localhost\r\n", "").into_bytes(),
            "HTTP/1.1 400",
        ),
        // Two requests in one: the second is its own.
        (format!("{head}\r\n{head}Connection: close\r\n\r\n").into_bytes(), "HTTP/1.1 200"),
        (b"GET /webhdfs/v1/?op=LISTSTATUS HTTP/1.0\r\n\r\n".to_vec(), "HTTP/1.0 200"),
    ] {
        let told = opened.raw(&bytes);
        let shown: String = String::from_utf8_lossy(&bytes).chars().take(60).collect();
        assert!(told.starts_with(begins) && told.is_empty() == begins.is_empty(), "{shown} of {}: {told}", bytes.len());
    }
    assert_eq!(opened.get("/?op=LISTSTATUS"), json!({ "FileStatuses": { "FileStatus": [] } }));
    opened.stop();
}

#[test]
fn what_came_of_a_body_that_breaks_off_is_in_the_file_and_the_file_is_closed() {
    let opened = WebHdfsFixture::new();
    let part = bytes(900_000);
    for ending in ["Content-Length: 2000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"] {
        let head = "PUT /webhdfs/v1/cut?op=CREATE&overwrite=true&data=true HTTP/1.1\r\nHost: localhost\r\n\
                    Expect: 100-continue\r\n";
        let mut stream = TcpStream::connect(opened.gateway.address()).unwrap();
        stream.write_all(format!("{head}{ending}").as_bytes()).unwrap();
        stream.read_exact(&mut [0; GO_ON.len()]).unwrap();
        if ending.contains("chunked") {
            stream.write_all(b"1e8480\r\n").unwrap();
        }
        stream.write_all(&part).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut told = String::new();
        stream.read_to_string(&mut told).unwrap();
        assert!(told.is_empty() || told.contains("broke off"), "{told}");
        // It has no lease any more: it can be appended to.
        assert_eq!(opened.two_steps("POST", "/cut?op=APPEND", b"!").status, 200);
        assert_eq!(opened.read("/cut"), [part.as_slice(), b"!"].concat());
    }
    opened.stop();
}

#[test]
fn a_file_has_one_writer_until_it_closes_or_vanishes() {
    let opened = WebHdfsFixture::new();
    let mut first = TcpStream::connect(opened.gateway.address()).unwrap();
    let head = "PUT /webhdfs/v1/file?op=CREATE&data=true HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\
                Expect: 100-continue\r\n\r\n";
    first.write_all(head.as_bytes()).unwrap();
    // It is asked to go on when the file is open.
    let mut go_on = [0; GO_ON.len()];
    first.read_exact(&mut go_on).unwrap();
    assert_eq!(&go_on, GO_ON);
    for query in ["op=CREATE&data=true", "op=CREATE"] {
        let second = opened.two_steps("PUT", &format!("/file?{query}"), b"other");
        assert_eq!(second.refused(), (403, "AlreadyBeingCreatedException".to_owned()));
    }
    assert_eq!(
        opened.two_steps("POST", "/file?op=APPEND", b"x").refused(),
        (403, "AlreadyBeingCreatedException".to_owned())
    );
    first.write_all(b"mine").unwrap();
    let mut answer = [0; 20];
    first.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 201 Created");
    assert_eq!(opened.read("/file"), b"mine");
    assert_eq!(opened.two_steps("POST", "/file?op=APPEND", b"!").status, 200);
    // A client that overwrites a file takes it from its writer, whose next write is refused.
    let mut loser = TcpStream::connect(opened.gateway.address()).unwrap();
    loser.write_all(head.replace("/file?", "/taken?").as_bytes()).unwrap();
    loser.read_exact(&mut go_on).unwrap();
    opened.write("/taken", b"new");
    loser.write_all(b"late").unwrap();
    let mut told = [0; 22];
    loser.read_exact(&mut told).unwrap();
    assert_eq!(&told, b"HTTP/1.1 403 Forbidden");
    assert_eq!(opened.read("/taken"), b"new");
    opened.stop();
}

#[test]
fn a_connection_serves_one_request_after_the_other_whatever_they_come_to() {
    let opened = WebHdfsFixture::new();
    let mut stream = TcpStream::connect(opened.gateway.address()).unwrap();
    for (web_request, status) in [
        ("GET /webhdfs/v1/none?op=GETFILESTATUS", 404),
        ("PUT /webhdfs/v1/d?op=MKDIRS", 200),
        ("GET /webhdfs/v1/d?op=GETFILESTATUS", 200),
        ("GET /webhdfs/v1/d?op=NOSUCH", 400),
    ] {
        stream
            .write_all(format!("{web_request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").as_bytes())
            .unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(char::from(byte[0]));
        }
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{web_request}: {head}");
        let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap().parse().unwrap();
        let mut body = vec![0; len];
        stream.read_exact(&mut body).unwrap();
    }
    // A gateway that is closed ends it.
    opened.stop();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn a_user_name_is_believed_as_at_the_hdfs_gateway() {
    let opened = WebHdfsFixture::new();
    let uid = opened.client.hello().uid;
    let own = format!("user.name={uid}");
    assert_eq!(opened.ask("PUT", &format!("/own?op=MKDIRS&permission=700&{own}")).status, 200);
    assert_eq!(
        opened.refused("GET", "/?op=LISTSTATUS&user.name=nobody-of-that-name"),
        (403, "AuthorizationException".to_owned())
    );
    assert_eq!(opened.refused("GET", "/?op=LISTSTATUS&delegation=x"), (401, "SecurityException".to_owned()));
    let other = opened.ask("GET", &format!("/own?op=LISTSTATUS&user.name={}", uid + 4711));
    if uid == 0 {
        // Root may name others, with their rights, and none beyond.
        assert_eq!(other.refused(), (403, "AccessControlException".to_owned()));
        assert_eq!(opened.refused("GET", "/own?op=LISTSTATUS&doas=4711"), (403, "AccessControlException".to_owned()));
        assert_eq!(opened.refused("GET", "/own/x?op=OPEN&user.name=4711"), (403, "AccessControlException".to_owned()));
        let two = opened.refused("GET", "/?op=LISTSTATUS&user.name=4711&doas=4712");
        assert_eq!(two, (403, "AuthorizationException".to_owned()));
        assert_eq!(opened.get("/?op=GETHOMEDIRECTORY&user.name=4711"), json!({ "Path": "/user/4711" }));
        opened.ask("PUT", "/all?op=MKDIRS&permission=1777");
        opened.ask("PUT", "/all?op=SETPERMISSION&permission=1777");
        let made = opened.two_steps("PUT", "/all/theirs?op=CREATE&doas=4711", b"theirs");
        assert_eq!(made.status, 201, "{made:?}");
        let owner = opened.get("/all/theirs?op=GETFILESTATUS")["FileStatus"]["owner"].clone();
        assert_eq!(owner, "4711");
    } else {
        assert_eq!(other.refused(), (403, "AuthorizationException".to_owned()));
    }
    opened.stop();
}

#[test]
fn a_web_page_of_another_place_asks_for_nothing() {
    let opened = WebHdfsFixture::new();
    opened.write("/file", b"kept");
    let at = opened.gateway.address();
    for (header, status) in [
        (format!("Host: {at}"), 200),
        (format!("Host: localhost:{}", at.port()), 200),
        (format!("Host: {at}\r\nOrigin: http://{at}"), 200),
        (format!("Host: {at}\r\nOrigin: http://elsewhere.example"), 403),
        (format!("Host: {at}\r\nOrigin: null"), 403),
        (format!("Host: {at}\r\nSec-Fetch-Site: none"), 200),
        (format!("Host: {at}\r\nSec-Fetch-Site: cross-site"), 403),
        ("Host: elsewhere.example".to_owned(), 403),
        (format!("Host: elsewhere.example:{}\r\nOrigin: http://elsewhere.example:{}", at.port(), at.port()), 403),
    ] {
        let request = format!(
            "POST /webhdfs/v1/file?op=TRUNCATE&newlength=4 HTTP/1.1\r\n{header}\r\nConnection: close\r\n\
             Content-Length: 0\r\n\r\n"
        );
        let told = opened.raw(request.as_bytes());
        assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{header}: {told}");
    }
    opened.stop();
}

#[test]
fn safe_mode_holds_at_this_gateway_too() {
    let opened = WebHdfsFixture::new();
    opened.write("/file", b"x");
    let caller = frieze_client::user_of(opened.client.hello().uid).unwrap();
    let ip = opened.gateway.address().ip();
    let user = RemoteUser { account: Account { name: "operator".to_owned(), caller }, reached: ip, peer: ip };
    let enter = SetSafeModeRequest { action: SAFEMODE_ENTER };
    opened.calls.ask::<frieze_hdfs::proto::ResultResponse>(&user, "setSafeMode", &enter).unwrap();
    let safe = (403, "SafeModeException".to_owned());
    assert_eq!(opened.refused("PUT", "/d?op=MKDIRS"), safe);
    assert_eq!(opened.two_steps("PUT", "/new?op=CREATE", b"").refused(), safe);
    assert_eq!(opened.two_steps("POST", "/file?op=APPEND", b"").refused(), safe);
    assert_eq!(opened.read("/file"), b"x");
    opened.stop();
}

#[test]
fn beyond_this_machine_it_opens_only_where_names_are_to_be_believed() {
    let never = |_| -> Result<Calls, Error> { panic!("it does not listen") };
    assert!(matches!(WebHdfsGateway::open(&options("0.0.0.0:0", Trust::Kernel), never), Err(Error::Beyond { .. })));
    assert!(matches!(WebHdfsGateway::open(&options("nowhere", Trust::Kernel), never), Err(Error::Listen { .. })));
}

#[test]
fn refusals_say_what_to_do() {
    let opened = WebHdfsFixture::new();
    let told = opened.ask("GET", "/none?op=GETFILESTATUS").message();
    assert_eq!(told, "File does not exist: /none");
    assert!(opened.ask("GET", "/?op=NOSUCH").message().contains("\"op\": NOSUCH"));
    opened.stop();
}
