//! What `frieze export` keeps of each kind of file, as a tar and below a directory, now and at an instant; and of a
//! server that was removed.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use frieze_client::{Hlc, Special, XattrMode};

use super::survivor::{json, run, stop};
use super::*;

const FIFO: u32 = 0o010_000;
const CHAR_DEVICE: u32 = 0o020_000;
const SOCKET: u32 = 0o140_000;
/// `/dev/null`.
const NULL_DEVICE: u32 = 0x103;
/// Bytes of the file with holes, and where something is in it.
const SPARSE_BYTES: u64 = 40 << 20;
const SPARSE_AT: u64 = 30 << 20;

/// A file of every kind. Returns an instant at which an attribute was another, and there was no pipe.
fn filled(client: &Client) -> Hlc {
    let fs = client.fs();
    let color = |value: &[u8]| {
        let set = fs.set_xattr(&Target::path("/plain"), b"user.color", value, XattrMode::Any);
        set.unwrap();
    };
    write(client, "/plain", b"plain");
    color(b"red\0blue");
    fs.link(&Target::path("/plain"), &Target::path("/second")).unwrap();
    fs.symlink(b"plain", &Target::path("/link")).unwrap();
    let then = client.now().unwrap();
    color(b"green");
    for (path, file_type, rdev) in [("/pipe", FIFO, 0), ("/null", CHAR_DEVICE, NULL_DEVICE), ("/socket", SOCKET, 0)] {
        fs.special(&Target::path(path), 0o640, Special { file_type, rdev }).unwrap();
    }
    let file = fs.create(&Target::path("/sparse"), 0o600, CreateMode::Exclusive).unwrap();
    file.write_at(SPARSE_AT, b"island").unwrap();
    file.set_len(SPARSE_BYTES).unwrap();
    file.close().unwrap();
    then
}

fn color(path: &Path) -> Option<Vec<u8>> {
    let mut value = vec![0; 64];
    let len = rustix::fs::lgetxattr(path, "user.color", &mut value).ok()?;
    value.truncate(len);
    Some(value)
}

fn check_now(out: &Path) {
    let at = |name: &str| fs::symlink_metadata(out.join(name)).unwrap();
    assert_eq!(fs::read(out.join("plain")).unwrap(), b"plain");
    assert_eq!((at("plain").ino(), at("plain").nlink()), (at("second").ino(), 2), "one file of two names");
    assert_eq!(fs::read_link(out.join("link")).unwrap(), Path::new("plain"));
    assert!(at("pipe").file_type().is_fifo() && at("pipe").mode() & 0o7777 == 0o640);
    let bytes = fs::read(out.join("sparse")).unwrap();
    assert_eq!(bytes.len() as u64, SPARSE_BYTES);
    let island = SPARSE_AT as usize..SPARSE_AT as usize + 6;
    assert_eq!(&bytes[island.clone()], b"island");
    assert!(bytes[..island.start].iter().chain(&bytes[island.end..]).all(|byte| *byte == 0));
    if rustix::process::geteuid().is_root() {
        assert!(at("null").file_type().is_char_device() && at("null").rdev() == u64::from(NULL_DEVICE));
    }
}

#[test]
fn every_kind_of_file_comes_out_as_it_is_and_as_it_was() {
    let mut cluster = ServedCluster::of(1);
    let place = cluster.directory.path().to_owned();
    let then = filled(&cluster.client(0)).to_string();
    stop(&mut cluster, 0);
    let is_root = rustix::process::geteuid().is_root();

    let (status, said, words) = run(&place, &["export", "0", "--to", "out", "--json"]);
    assert_eq!(status, i32::from(!is_root), "{words} {}", json(&said));
    let out = place.join("out");
    check_now(&out);
    assert!(fs::symlink_metadata(out.join("socket")).unwrap().file_type().is_socket());
    let sparse = fs::metadata(out.join("sparse")).unwrap();
    assert!(sparse.blocks() * 512 < SPARSE_BYTES / 4, "{} blocks of a file with holes", sparse.blocks());
    // Where the tests lie there may be no attributes.
    let keeps = rustix::fs::lsetxattr(&out, "user.color", b"x", rustix::fs::XattrFlags::empty()).is_ok();
    if keeps {
        assert_eq!(color(&out.join("plain")).unwrap(), b"green");
    }

    // A socket has no place in a tar: that is said.
    let (status, _, words) = run(&place, &["export", "0", "--output", "now.tar"]);
    assert!(status == 1 && words.contains("/socket") && words.contains("no place in a tar"), "{status} {words}");
    let untar = |tar: &str, into: &str| {
        fs::create_dir(place.join(into)).unwrap();
        let mut command = Command::new("tar");
        command.current_dir(place.join(into)).args(["--xattrs", "--xattrs-include=*", "-xpf", &format!("../{tar}")]);
        assert!(command.status().unwrap().success());
    };
    untar("now.tar", "now");
    check_now(&place.join("now"));
    assert!(!place.join("now/socket").exists());
    let bytes = fs::read(place.join("now.tar")).unwrap();
    let holds = |bytes: &[u8], wanted: &[u8]| bytes.windows(wanted.len()).any(|found| found == wanted);
    assert!(holds(&bytes, b"SCHILY.xattr.user.color=green"));

    // As it was: another value, and no pipe.
    let (status, said, words) = run(&place, &["export", "0", "--to", "then", "--at", &then, "--json"]);
    assert_eq!((status, words.as_str()), (0, ""), "{}", json(&said));
    assert!(place.join("then/second").exists() && !place.join("then/pipe").exists());
    if keeps {
        assert_eq!(color(&place.join("then/plain")).unwrap(), b"red\0blue");
    }
    let (status, tar, _) = run(&place, &["export", "0", "--at", &then]);
    assert!(status == 0 && holds(&tar, b"SCHILY.xattr.user.color=red\0blue") && !holds(&tar, b"pipe"));
}

/// A file of two versions in a cluster of three. Returns the instant of the first.
fn twice(cluster: &ServedCluster) -> String {
    cluster.await_whole(0);
    let client = cluster.client(0);
    write(&client, "/kept", &random_bytes(1, 2_000_000));
    let then = client.now().unwrap().to_string();
    write(&client, "/kept", &random_bytes(2, 2_000_000));
    client.fs().sync_all().unwrap();
    then
}

#[test]
fn files_come_out_of_the_directory_of_a_server_that_was_declared_dead() {
    let mut cluster = ServedCluster::of(3);
    let place = cluster.directory.path().to_owned();
    let then = twice(&cluster);
    cluster.kill(2);
    // It waits for the end of the lease.
    let declared = cluster.frieze(0, &["cluster", "declare-dead", "db3", "--yes"]);
    assert!(declared.status.success(), "{declared:?}");
    write(&cluster.client(0), "/later", b"without it");
    let (_, said, words) = run(&place, &["export", "2", "--to", "out", "--json"]);
    assert!(json(&said)["files"] == 1, "{said:?} {words}");
    assert!(fs::read(place.join("out/kept")).unwrap() == random_bytes(2, 2_000_000), "{words}");
    let (_, _, words) = run(&place, &["export", "2", "--to", "then", "--at", &then]);
    assert!(fs::read(place.join("then/kept")).unwrap() == random_bytes(1, 2_000_000), "{words}");
}

#[test]
fn what_a_server_gave_back_before_it_was_removed_is_named_when_its_directory_is_read() {
    let mut cluster = ServedCluster::of(3);
    let place = cluster.directory.path().to_owned();
    let then = twice(&cluster);
    assert!(cluster.frieze(0, &["cluster", "replicas", "2"]).status.success());
    assert!(cluster.frieze(0, &["cluster", "drain", "db3"]).status.success());
    assert!(cluster.frieze(0, &["cluster", "remove", "db3"]).status.success());
    let server = cluster.servers[2].as_mut().unwrap();
    eventually("it ends by itself", || server.ended());
    cluster.servers[2] = None;
    // A drained server gives its copies back when it comes to it: what it still has is whole, and what it has not is
    // named.
    for (to, at, seed) in [("out", "now", 2), ("then", then.as_str(), 1)] {
        let mut args = vec!["export", "2", "--to", to, "--json"];
        if at != "now" {
            args.extend(["--at", at]);
        }
        let (status, said, words) = run(&place, &args);
        let is_whole = fs::read(place.join(to).join("kept")).unwrap() == random_bytes(seed, 2_000_000);
        let wrong = json(&said)["wrong"].to_string();
        assert!(is_whole || status == 1 && wrong.contains("/kept") && words.contains("/kept"), "{words} {wrong}");
    }
}
