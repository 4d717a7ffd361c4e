//! Two of three servers are lost for good: what is left is looked at, gone on from, and those that were lost never mix
//! with it. Files are read out of directories that no server uses.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use frieze_client::{Hlc, OpenFlags, Target};
use frieze_testkit::bytes::random_bytes;
use frieze_testkit::wait::eventually;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::client;
use super::{ServedCluster, await_ready, read, start, write};

/// What a command says: exit status, standard output, standard error.
pub(super) fn run(directory: &Path, args: &[&str]) -> (i32, Vec<u8>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frieze"));
    let output = command.current_dir(directory).args(args).stdin(Stdio::null()).output().unwrap();
    (output.status.code().unwrap(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
}

pub(super) fn json(said: &[u8]) -> Value {
    serde_json::from_slice(said).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(said)))
}

pub(super) fn stop(cluster: &mut ServedCluster, number: usize) {
    let mut server = cluster.servers[number].take().unwrap();
    server.signal(Signal::SIGTERM);
    server.wait();
}

pub(super) fn read_at(client: &frieze_client::Client, at: Hlc, path: &str) -> Vec<u8> {
    let file = client.fs().at(at).open(&Target::path(path), OpenFlags::READ).unwrap();
    let mut bytes = vec![0; file.attr().size as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn is_incomplete(client: &frieze_client::Client, at: Hlc) -> bool {
    client.fs().at(at).stat(&Target::path("/kept")).unwrap().answered.incomplete
}

#[test]
fn one_survivor_of_three_recovers_and_the_lost_servers_never_rejoin_it() {
    let mut cluster = ServedCluster::of(3);
    let place = cluster.directory.path().to_owned();
    cluster.await_whole(0);
    let before = cluster.client(0);
    write(&before, "/kept", &random_bytes(1, 3_000_000));
    let then = before.now().unwrap();
    write(&before, "/kept", &random_bytes(2, 3_000_000));
    write(&before, "/also", &random_bytes(3, 200_000));
    drop(before);
    cluster.kill(0);
    cluster.kill(1);
    // It runs: it is not looked at.
    let (status, _, words) = run(&place, &["cluster", "recover", "--dir", "2"]);
    assert_eq!(status, 2, "{words}");
    assert!(words.contains("in use") || words.contains("uses"), "{words}");
    cluster.kill(2);
    let (status, said, words) = run(&place, &["cluster", "recover", "--dir", "2", "--json"]);
    assert_eq!((status, words.as_str()), (0, ""), "a look");
    let left = json(&said);
    assert_eq!((&left["node"], &left["name"], &left["went_on"]), (&3.into(), &"db3".into(), &Value::Null), "{left}");
    assert_eq!(left["others"].as_array().unwrap().len(), 2, "{left}");
    assert!(left["chains"].as_array().unwrap().iter().all(|chain| chain["copy"] == "full"), "{left}");
    // One of the others is there: with it nothing is lost.
    cluster.start_again(1);
    let (status, _, words) = run(&place, &["cluster", "recover", "--dir", "2", "--yes", "--accept-loss"]);
    assert!(status == 1 && words.contains("db2 at") && words.contains("answers"), "{status} {words}");
    cluster.kill(1);
    // The deliberate words are two.
    assert_eq!(run(&place, &["cluster", "recover", "--dir", "2", "--yes"]).0, 2);
    let (status, said, words) = run(&place, &["cluster", "recover", "--dir", "2", "--yes", "--accept-loss", "--json"]);
    assert_eq!((status, words.as_str()), (0, ""));
    let went_on = json(&said)["went_on"].clone();
    let stamp = |of: &Value| of.as_str().unwrap().parse::<Hlc>().unwrap();
    let (from, to) = (stamp(&went_on["from"]), stamp(&went_on["to"]));
    assert!(then <= from && from < to);
    // It has gone on: no majority is lost any more.
    let (status, said, words) = run(&place, &["cluster", "recover", "--dir", "2", "--json"]);
    let sole = json(&said);
    assert!(
        status == 0 && sole["is_sole"] == true && sole["went_on_from"]["cluster"] == left["cluster"],
        "{words} {sole}"
    );
    let (status, _, words) = run(&place, &["cluster", "recover", "--dir", "2", "--yes", "--accept-loss"]);
    assert!(status == 1 && words.contains("no majority is lost"), "{status} {words}");
    // What is read out of it names what may be missing.
    let (status, _, words) = run(&place, &["export", "2", "/also", "--to", "out-2"]);
    assert!(status == 0 && words.contains("may be missing"), "{status} {words}");
    assert!(fs::read(place.join("out-2/also")).unwrap() == random_bytes(3, 200_000));
    // A copy of it becomes another cluster without a loss of its own.
    assert!(Command::new("cp").current_dir(&place).args(["-a", "2", "6"]).status().unwrap().success());
    let (status, said, words) = run(&place, &["cluster", "new-identity", "--dir", "6", "--yes", "--json"]);
    assert!(status == 0 && json(&said)["cluster"] != went_on["cluster"], "{words}");
    let (_, _, words) = run(&place, &["export", "6", "/also", "--to", "out-6"]);
    assert_eq!(words.matches("may be missing").count(), 1, "{words}");
    cluster.start_again(2);
    let survivor = eventually("the survivor serves", || {
        let survivor = cluster.client(2);
        survivor.fs().stat(&Target::path("/kept")).is_ok().then_some(survivor)
    });
    assert_ne!(survivor.cluster(None).unwrap().cluster, left["cluster"].as_str().unwrap(), "another identity");
    assert_eq!(read_at(&survivor, then, "/kept"), random_bytes(1, 3_000_000), "the past");
    assert_eq!(read(&survivor, "/kept"), random_bytes(2, 3_000_000));
    assert_eq!(read(&survivor, "/also"), random_bytes(3, 200_000));
    write(&survivor, "/new", &random_bytes(4, 1_500_000));
    let now = survivor.now().unwrap();
    assert!(now > to, "new stamps lie above all that the lost ones may have given");
    assert!(!is_incomplete(&survivor, then) && is_incomplete(&survivor, Hlc(from.0 + 1)));
    assert!(is_incomplete(&survivor, Hlc(to.0 - 1)) && !is_incomplete(&survivor, now));
    assert_eq!(survivor.resolve("last-whole", frieze_client::ZonePolicy::Refuse).unwrap(), from);
    // Bytes of before are said to lack something wherever they are read, now and at an instant of now.
    let server = format!("--server={}", cluster.addresses[2]);
    for args in [&[&*server, "cat", "/kept"][..], &[&server, "cat", "--at", "now", "/kept"]] {
        let (status, bytes, words) = run(&place, args);
        assert!(
            status == 0 && bytes == random_bytes(2, 3_000_000) && words.contains("may be missing"),
            "{args:?}: {words}"
        );
    }
    let (status, _, words) = run(&place, &[&server, "cat", "--at", "now", "/new"]);
    assert_eq!((status, words.as_str()), (0, ""));
    let (status, said, _) = run(&place, &[&server, "status"]);
    assert!(status == 0 && String::from_utf8_lossy(&said).contains("in a gap may be missing"));
    // One that was lost comes back, with its disk.
    cluster.start_again(0);
    eventually("it hears what has happened", || {
        let log = fs::read_to_string(place.join("0.log")).unwrap();
        log.contains("went on from server 3").then_some(())
    });
    assert!(cluster.client(2).cluster(None).unwrap().nodes.len() == 1, "it is none of this cluster");
    cluster.kill(0);
    // What it has is read where it is.
    let (status, _, words) = run(&place, &["export", "0", "/kept", "--to", "out-0"]);
    assert_eq!(status, 0, "{words}");
    assert!(fs::read(place.join("out-0/kept")).unwrap() == random_bytes(2, 3_000_000));
    // A fresh one joins, and gets everything.
    cluster.addresses.swap(0, 2);
    let (server, address) = start(&place, 3, "127.0.0.1:0", cluster.addresses.first());
    cluster.addresses.swap(0, 2);
    cluster.servers.push(Some(server));
    cluster.addresses.push(address);
    let reply = cluster.await_whole_of(3, 2);
    let nodes: Vec<u32> = reply.nodes.iter().map(|node| node.node).collect();
    assert_eq!(nodes, [3, 4], "numbers of before are not given again");
    let fresh = cluster.client(3);
    assert_eq!(read_at(&fresh, then, "/kept"), random_bytes(1, 3_000_000));
    assert_eq!(read(&fresh, "/new"), random_bytes(4, 1_500_000));
    assert!(is_incomplete(&fresh, Hlc(from.0 + 1)));
}

#[test]
fn a_copy_of_the_directory_of_a_member_does_not_start_beside_it_and_a_moved_one_does_when_that_is_said() {
    let mut cluster = ServedCluster::of(2);
    let place = cluster.directory.path().to_owned();
    cluster.await_whole(0);
    write(&cluster.client(0), "/kept", &random_bytes(1, 100_000));
    stop(&mut cluster, 1);
    let copied = Command::new("cp").current_dir(&place).args(["-a", "1", "7"]).status().unwrap();
    assert!(copied.success());
    let serve = ["serve", "--dir", "7", "--listen", "127.0.0.1:0", "--name", "db2", "--config", "settings.toml"];
    let (status, _, words) = run(&place, &serve);
    assert_eq!(status, 1, "{words}");
    assert!(words.contains("is a copy of the directory of server 2"), "{words}");
    assert!(run(&place, &["cluster", "new-identity", "--dir", "7", "--yes"]).2.contains("cluster recover"));
    // The original is used no more.
    fs::remove_dir_all(place.join("1")).unwrap();
    assert_eq!(run(&place, &["cluster", "moved", "--dir", "7", "--yes"]).0, 0);
    fs::rename(place.join("7"), place.join("1")).unwrap();
    cluster.start_again(1);
    cluster.await_whole(0);
    assert_eq!(read(&cluster.client(1), "/kept"), random_bytes(1, 100_000));
}

/// A server that is alone, with all kinds of things on it. Returns an instant at which some of it was otherwise.
fn filled(cluster: &ServedCluster) -> Hlc {
    let client = cluster.client(0);
    let fs = client.fs();
    fs.mkdir(&Target::path("/dir"), 0o750).unwrap();
    write(&client, "/dir/file", &random_bytes(1, 2_500_000));
    write(&client, &format!("/dir/{}", "n".repeat(200)), b"a long name");
    let then = client.now().unwrap();
    write(&client, "/dir/file", &random_bytes(2, 2_500_000));
    write(&client, "/dir/later", b"later");
    let place = cluster.directory.path();
    let server = format!("--server={}", cluster.addresses[0]);
    assert_eq!(run(place, &[&server, "ln", "/dir/file", "/second"]).0, 0);
    assert_eq!(run(place, &[&server, "ln", "-s", "dir/file", "/link"]).0, 0);
    then
}

#[test]
fn files_come_out_of_a_directory_that_no_server_uses_now_and_at_an_instant() {
    let mut cluster = ServedCluster::of(1);
    let place = cluster.directory.path().to_owned();
    let then = filled(&cluster).to_string();
    assert_eq!(run(&place, &["export", "0", "--list"]).0, 2, "a server uses it");
    stop(&mut cluster, 0);
    let (status, said, words) = run(&place, &["export", "0", "--to", "out", "--json"]);
    assert_eq!((status, words.as_str()), (0, ""));
    let said = json(&said);
    assert_eq!((&said["files"], &said["directories"], &said["links"]), (&4.into(), &2.into(), &1.into()), "{said}");
    let out = place.join("out");
    assert!(fs::read(out.join("dir/file")).unwrap() == random_bytes(2, 2_500_000));
    let (file, second) = (fs::metadata(out.join("dir/file")).unwrap(), fs::metadata(out.join("second")).unwrap());
    assert_eq!((file.ino(), file.nlink()), (second.ino(), 2), "one file of two names");
    assert_eq!(fs::read_link(out.join("link")).unwrap(), Path::new("dir/file"));
    assert_eq!(fs::metadata(out.join("dir")).unwrap().permissions().mode() & 0o7777, 0o750);
    // Nothing is made where a server would refuse to start then.
    for to in ["--to=0/out", "--to=0/new/out", "--output=0/out.tar", "--to=out/../0/out"] {
        let (status, _, words) = run(&place, &["export", "0", to]);
        assert!(status == 2 && words.contains("lies in the data directory"), "{to}: {words}");
    }
    // Nothing is overwritten.
    let (status, _, words) = run(&place, &["export", "0", "--to", "out"]);
    assert!(status == 1 && words.contains("not empty"), "{words}");
    // At an instant, of a part, as a tar.
    let (status, tar, words) = run(&place, &["export", "0", "/dir", "--at", &then]);
    assert_eq!((status, words.as_str()), (0, ""));
    fs::write(place.join("then.tar"), tar).unwrap();
    fs::create_dir(place.join("then")).unwrap();
    let untar = Command::new("tar").current_dir(place.join("then")).args(["-xpf", "../then.tar"]).status().unwrap();
    assert!(untar.success());
    assert!(fs::read(place.join("then/dir/file")).unwrap() == random_bytes(1, 2_500_000));
    assert_eq!(fs::read(place.join("then/dir").join("n".repeat(200))).unwrap(), b"a long name");
    assert!(!place.join("then/dir/later").exists());
    let (status, listed, _) = run(&place, &["export", "0", "--list", "--json"]);
    assert_eq!((status, listed.iter().filter(|byte| **byte == b'\n').count()), (0, 7));
    // It serves on as if nothing had been.
    cluster.start_again(0);
    assert_eq!(read(&cluster.client(0), "/dir/later"), b"later");
    // A copy of it goes on as another cluster.
    let of = client(&cluster.addresses[0]).status().unwrap().cluster;
    stop(&mut cluster, 0);
    assert!(Command::new("cp").current_dir(&place).args(["-a", "0", "9"]).status().unwrap().success());
    let (status, said, _) = run(&place, &["cluster", "new-identity", "--dir", "9", "--yes", "--json"]);
    assert_eq!(status, 0);
    let mut serve = Command::new(env!("CARGO_BIN_EXE_frieze"));
    serve.current_dir(&place).stdin(Stdio::null());
    serve.args(["serve", "--dir", "9", "--listen", "127.0.0.1:0", "--config", "settings.toml", "--memory", "256"]);
    let (_server, address) = await_ready(serve, &place.join("9.log"));
    let other = client(&address);
    let named = other.status().unwrap().cluster;
    assert!(named != of && named == json(&said)["cluster"].as_str().unwrap(), "{named}");
    assert!(read(&other, "/dir/file") == random_bytes(2, 2_500_000));
}

#[test]
fn bytes_that_cannot_be_read_are_named_and_the_rest_comes_out() {
    let mut cluster = ServedCluster::of(1);
    let place = cluster.directory.path().to_owned();
    write(&cluster.client(0), "/whole", &random_bytes(1, 100_000));
    write(&cluster.client(0), "/damaged", &random_bytes(2, 300_000));
    stop(&mut cluster, 0);
    // A byte of the second file's is another one.
    let wanted = &random_bytes(2, 300_000)[200_000..200_064];
    let segment = fs::read_dir(place.join("0")).unwrap().map(|entry| entry.unwrap().path()).find_map(|path| {
        let is_segment = path.file_name().unwrap().to_string_lossy().starts_with("seg-");
        let bytes = is_segment.then(|| fs::read(&path).unwrap())?;
        let at = bytes.windows(wanted.len()).position(|found| found == wanted)?;
        Some((path, bytes, at))
    });
    let (path, mut bytes, at) = segment.unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
    let (status, said, words) = run(&place, &["export", "0", "--to", "out", "--json"]);
    assert_eq!(status, 1, "{words}");
    assert!(words.contains("/damaged") && words.contains("cannot be read"), "{words}");
    assert!(fs::read(place.join("out/whole")).unwrap() == random_bytes(1, 100_000));
    let said = json(&said);
    let wrong = &said["wrong"][0];
    let (start, end) = (wrong["start"].as_u64().unwrap() as usize, wrong["end"].as_u64().unwrap() as usize);
    assert!(wrong["path"] == "/damaged" && start <= 200_000 && end > 200_000 && end - start < 100_000, "{wrong}");
    let (out, whole) = (fs::read(place.join("out/damaged")).unwrap(), random_bytes(2, 300_000));
    assert!(out.len() == whole.len() && out[..start] == whole[..start] && out[end..] == whole[end..]);
    assert!(out[start..end].iter().all(|byte| *byte == 0), "zeros are in its place");
}

#[test]
fn what_is_left_of_a_member_with_a_damaged_log_of_names_comes_out_and_it_does_not_serve() {
    let mut cluster = ServedCluster::of(3);
    let place = cluster.directory.path().to_owned();
    cluster.await_whole(0);
    let client = cluster.client(0);
    for n in 0..40 {
        client.fs().mkdir(&Target::path(format!("/dir-{n:03}")), 0o755).unwrap();
        // Each member has flushed it by the time that the next ones are.
        client.fs().sync_all().unwrap();
    }
    drop(client);
    for number in 0..3 {
        cluster.kill(number);
    }
    let whole = |path: &Path| fs::read(path).unwrap().windows(7).position(|found| found == b"dir-020");
    let paths = fs::read_dir(place.join("2")).unwrap().map(|entry| entry.unwrap().path());
    let of_names = |path: &Path| path.file_name().unwrap().to_string_lossy().starts_with("raft-");
    let (log, at) =
        paths.filter(|path| of_names(path)).find_map(|path| Some((path.clone(), whole(&path)?))).expect("a name in it");
    let mut bytes = fs::read(&log).unwrap();
    bytes[at] ^= 1;
    fs::write(&log, &bytes).unwrap();
    // It is no survivor to go on from.
    let (status, _, words) = run(&place, &["cluster", "recover", "--dir", "2"]);
    assert!(status == 2 && words.contains("raft-") && words.contains("'frieze export"), "{status} {words}");
    let (status, said, words) = run(&place, &["export", "2", "--list"]);
    let listed = String::from_utf8(said).unwrap();
    let names: Vec<&str> = listed.lines().filter(|line| line.contains("dir-")).collect();
    assert!(status == 1 && (1..=20).contains(&names.len()), "{status} {names:?} {words}");
    assert!(words.contains("the directory is damaged, this is what is left"), "{words}");
    assert!(fs::read(&log).unwrap() == bytes, "an export changes nothing");
    // It serves nothing, whatever is set.
    let serve = ["serve", "--dir", "2", "--listen", "127.0.0.1:0", "--memory", "256"];
    for settings in ["", "serve_damaged = true\n"] {
        fs::write(place.join("damaged.toml"), settings).unwrap();
        let (status, _, words) = run(&place, &[&serve[..], &["--config", "damaged.toml"]].concat());
        assert!(status != 0 && words.contains("join anew with an empty one"), "{status} {words}");
    }
    assert!(fs::read(&log).unwrap() == bytes);
    // The others have a majority, and everything.
    cluster.start_again(0);
    cluster.start_again(1);
    eventually("the others serve", || {
        let entries = cluster.client(0).fs().entries(&Target::path("/")).ok()?;
        (entries.len() == 40).then_some(())
    });
}
