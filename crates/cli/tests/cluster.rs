//! Three servers as an operator starts them: one, and two that join it. They are killed, and what was acknowledged
//! stays.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[expect(dead_code, reason = "shared with tests that need more of it")]
mod support;
#[path = "cluster/survivor.rs"]
mod survivor;

#[path = "cluster/ended.rs"]
mod ended;
#[path = "cluster/export.rs"]
mod export;
#[path = "cluster/fabric.rs"]
mod fabric;
#[path = "cluster/health.rs"]
mod health;
#[path = "cluster/minority.rs"]
mod minority;
#[path = "cluster/removed.rs"]
mod removed;
#[path = "cluster/scripts.rs"]
mod scripts;
#[path = "cluster/served_cluster.rs"]
mod served_cluster;
#[path = "cluster/survivors.rs"]
mod survivors;
#[path = "cluster/watch.rs"]
mod watch;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use frieze_client::{Client, ClusterOp, ClusterReply, CreateMode, OpenFlags, Options, Target, WritePart};
use frieze_testkit::bytes::random_bytes;
use frieze_testkit::wait::{SetOnDrop, eventually};
use served_cluster::{SETTINGS, ServedCluster, await_ready, memory_mib, read, start, write};

#[test]
fn a_machine_that_was_alone_grows_and_every_server_gives_the_same_of_every_instant() {
    let mut cluster = ServedCluster::of(1);
    let client = cluster.client(0);
    write(&client, "/before", &random_bytes(1, 3_000_000));
    let alone = client.now().unwrap();
    write(&client, "/before", &random_bytes(2, 1_000_000));
    cluster.grow();
    cluster.grow();
    let reply = cluster.await_whole(2);
    let names: Vec<&str> = reply.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["db1", "db2", "db3"]);
    write(&client, "/after", &random_bytes(3, 5_000_000));
    let then = client.now().unwrap();
    write(&client, "/after", &random_bytes(4, 6_000_000));
    for number in 0..3 {
        let client = cluster.client(number);
        let bytes = |at, path: &str| {
            let file = client.fs().at(at).open(&Target::path(path), OpenFlags::READ).unwrap();
            let mut bytes = vec![0; file.attr().size as usize];
            assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
            bytes
        };
        assert_eq!(bytes(alone, "/before"), random_bytes(1, 3_000_000), "server {number}");
        assert_eq!(bytes(then, "/after"), random_bytes(3, 5_000_000), "server {number}");
        assert_eq!(read(&client, "/after"), random_bytes(4, 6_000_000), "server {number}");
        // What was longer before keeps its end.
        assert_eq!(read(&client, "/before")[..1_000_000], random_bytes(2, 1_000_000)[..], "server {number}");
    }
}

#[test]
fn acknowledged_writes_survive_the_kill_of_any_server_and_writers_continue() {
    let mut cluster = ServedCluster::of(3);
    cluster.await_whole(0);
    let (over, round) = (AtomicBool::new(false), AtomicU64::new(0));
    let written = std::thread::scope(|scope| {
        let ends = SetOnDrop(&over);
        let writers: Vec<_> = (0..2)
            .map(|writer: u64| {
                let (client, over, round) = (cluster.client(writer as usize), &over, &round);
                scope.spawn(move || {
                    let mut count = 0;
                    while !over.load(Ordering::Acquire) {
                        // Each is acknowledged: the client asks again until it is.
                        write(&client, &format!("/w{writer}-{count}"), &random_bytes(writer << 32 | count, 300_000));
                        count += 1;
                        round.fetch_add(1, Ordering::AcqRel);
                    }
                    count
                })
            })
            .collect();
        // The leader and head, then each of the others.
        for number in 0..3 {
            let before = round.load(Ordering::Acquire);
            cluster.kill(number);
            eventually("writers go on without it", || (round.load(Ordering::Acquire) > before + 4).then_some(()));
            cluster.start_again(number);
            cluster.await_whole((number + 1) % 3);
        }
        drop(ends);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<u64>>()
    });
    for number in 0..3 {
        let client = cluster.client(number);
        for (writer, count) in (0..).zip(&written) {
            for at in 0..*count {
                let found = read(&client, &format!("/w{writer}-{at}"));
                assert!(
                    found == random_bytes(writer << 32 | at, 300_000),
                    "server {number}: /w{writer}-{at} is not whole"
                );
            }
        }
    }
}

/// A client that connected while the server was alone, and has not connected again since.
#[test]
fn a_client_of_a_founder_continues_when_the_cluster_loses_the_founder() {
    let mut cluster = ServedCluster::of(1);
    let client = cluster.client(0);
    write(&client, "/before", b"alone");
    cluster.grow();
    cluster.grow();
    cluster.await_whole(0);
    // The server ends its connections within a second or so, and each new connection gets the map.
    eventually("the client knows of others", || {
        write(&client, "/between", b"three");
        (!client.is_alone()).then_some(())
    });
    cluster.kill(0);
    write(&client, "/after", b"two of three");
    assert_eq!(read(&client, "/before"), b"alone");
}

/// Over the boundary of two chunks of one file, and in another.
#[test]
fn an_atomic_write_is_whole_at_every_server_after_the_kill_of_any() {
    const AT: u64 = (1 << 20) - 5_000;
    let mut cluster = ServedCluster::of(3);
    cluster.await_whole(0);
    let (over, round) = (AtomicBool::new(false), AtomicU64::new(0));
    let stamps = std::thread::scope(|scope| {
        let ends = SetOnDrop(&over);
        let (client, over, round) = (cluster.client(0), &over, &round);
        let writer = scope.spawn(move || {
            let fs = client.fs();
            let open = |path| fs.create(&Target::path(path), 0o644, CreateMode::OpenExisting).unwrap();
            let (one, other) = (open("/one"), open("/other"));
            let mut stamps = Vec::new();
            while !over.load(Ordering::Acquire) {
                let data = [stamps.len() as u8; 10_000];
                let parts = [
                    WritePart { file: &one, offset: AT, data: &data },
                    WritePart { file: &other, offset: 0, data: &data },
                ];
                stamps.push(fs.write_atomically(&parts).unwrap());
                round.fetch_add(1, Ordering::AcqRel);
            }
            stamps
        });
        // Until then it may know no other server than the one that is killed first.
        eventually("the writer has written", || (round.load(Ordering::Acquire) > 0).then_some(()));
        for number in 0..3 {
            let before = round.load(Ordering::Acquire);
            cluster.kill(number);
            eventually("the writer goes on without it", || (round.load(Ordering::Acquire) > before + 4).then_some(()));
            cluster.start_again(number);
            cluster.await_whole((number + 1) % 3);
        }
        drop(ends);
        writer.join().unwrap()
    });
    for number in 0..3 {
        let client = cluster.client(number);
        let read = |path, at: u64, stamp| {
            let file = client.fs().at(stamp).open(&Target::path(path), OpenFlags::READ).unwrap();
            let mut bytes = vec![0; 10_000];
            assert_eq!(file.read_at(at, &mut bytes).unwrap(), 10_000);
            bytes
        };
        for (count, stamp) in stamps.iter().enumerate().rev().take(300) {
            let shown = |stamp| (read("/one", AT, stamp), read("/other", 0, stamp));
            let all = |count: usize| vec![count as u8; 10_000];
            assert!(shown(*stamp) == (all(count), all(count)), "server {number}: {count} is not whole at {stamp}");
            if count > 0 {
                let before = stamp.previous();
                assert!(
                    shown(before) == (all(count - 1), all(count - 1)),
                    "server {number}: {count} shows before {stamp}"
                );
            }
        }
    }
}

#[test]
fn a_drained_server_can_be_removed_and_its_name_is_not_given_again() {
    let mut cluster = ServedCluster::of(3);
    let reply = cluster.await_whole(0);
    let client = cluster.client(0);
    write(&client, "/kept", &random_bytes(9, 2_000_000));
    let third = reply.nodes.iter().find(|node| node.name == "db3").unwrap().node;
    // With one copy fewer wanted it may go.
    client.cluster(Some(ClusterOp::Replicas(2))).unwrap();
    client.cluster(Some(ClusterOp::Drain(third))).unwrap();
    eventually("it has given its chains away", || {
        let reply = client.cluster(None).ok()?;
        let node = reply.nodes.iter().find(|node| node.node == third)?;
        (node.targets == 0).then_some(())
    });
    client.cluster(Some(ClusterOp::Remove(third))).unwrap();
    assert_eq!(client.cluster(None).unwrap().nodes.len(), 2);
    cluster.kill(2);
    assert_eq!(read(&cluster.client(1), "/kept"), random_bytes(9, 2_000_000));
    // A name is given once.
    let refused = |name: &str| {
        let joined = Command::new(env!("CARGO_BIN_EXE_frieze"))
            .current_dir(cluster.directory.path())
            .args(["serve", "--dir", name, "--listen", "127.0.0.1:0", "--name", name])
            .args(["--config", "settings.toml", "--memory", "256", "--join", &cluster.addresses[0]])
            .output()
            .unwrap();
        assert!(!joined.status.success());
        String::from_utf8_lossy(&joined.stderr).into_owned()
    };
    let words = refused("db1");
    assert!(words.contains("db1"), "{words}");
    // A server that is alone has no cluster, and founds none for being asked.
    assert!(ServedCluster::of(1).client(0).cluster(None).unwrap().cluster.is_empty());
}

/// Two copies of each chain; one server is away while another writes on, and is all that is left when that one is gone
/// for good.
#[test]
fn reads_report_the_gap_of_a_chain_that_continued_from_an_older_copy() {
    let mut cluster = ServedCluster::with(3, "replicas = 2\nchain_count = 9\n");
    let admin = cluster.client(0);
    admin.cluster(Some(ClusterOp::Balance(true))).unwrap();
    let reply = await_spread(&admin, 2, 6);
    let (stays, goes) = (1, 2);
    let node = |name: &str| reply.nodes.iter().find(|node| node.name == name).unwrap().node;
    let (behind, lost) = (node("db2"), node("db3"));
    let names: Vec<String> = (0..24).map(|number| format!("/f{number}")).collect();
    for name in &names {
        write(&admin, name, b"first");
    }
    cluster.kill(stays);
    // Everybody goes on without it.
    for name in &names {
        write(&admin, name, b"since");
    }
    cluster.kill(goes);
    std::fs::remove_dir_all(cluster.directory.path().join(goes.to_string())).unwrap();
    cluster.start_again(stays);
    eventually("the loss is accepted", || admin.cluster(Some(ClusterOp::DeclareLost(lost))).ok());
    let reply = eventually("every chain is served again", || {
        let reply = admin.cluster(None).ok()?;
        reply.chains.iter().all(|chain| chain.targets.iter().any(|target| target.state == "serving")).then_some(reply)
    });
    let only_behind = reply.chains.iter().filter(|chain| chain.targets.iter().all(|target| target.node == behind));
    assert!(only_behind.count() < 9, "some chains are at the server that was there all the while");
    let lacks = |name: &str| {
        let file = admin.fs().open(&Target::path(name), OpenFlags::READ).unwrap();
        let mut bytes = [0; 16];
        let count = eventually("it is read", || file.read_at(0, &mut bytes).ok());
        match (file.may_lack(), &bytes[..count]) {
            (false, b"since") => false,
            (true, _) => true,
            (false, other) => {
                panic!("{name} is {:?}, and nothing is said to be missing", String::from_utf8_lossy(other))
            }
        }
    };
    let (lacking, whole): (Vec<&String>, Vec<&String>) = names.iter().partition(|name| lacks(name));
    assert!(!lacking.is_empty() && !whole.is_empty(), "{lacking:?} {whole:?}");
    assert!(admin.met_loss());
    let cat = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frieze"));
        let said = command.args(["--server", &cluster.addresses[0], "cat", name]).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stderr).unwrap()
    };
    let words = cat(lacking[0]);
    assert!(words.starts_with("frieze: cat: warning: acknowledged writes may be missing"), "{words}");
    assert_eq!((words.lines().count(), cat(whole[0])), (1, String::new()));
    // What is written over it is there, and nothing of it is missing: once stamps are above what a clock may have been
    // ahead.
    eventually("what is written anew is whole", || {
        write(&admin, lacking[0], b"anew, and longer");
        let file = admin.fs().open(&Target::path(lacking[0].as_str()), OpenFlags::READ).unwrap();
        let mut bytes = [0; 16];
        assert_eq!((file.read_at(0, &mut bytes).unwrap(), &bytes), (16, b"anew, and longer"));
        (!file.may_lack()).then_some(())
    });
}

/// Waits until every chain has so many copies that serve, none is on its way, and no server has more than its share.
fn await_spread(client: &Client, copies: usize, share_max: u64) -> ClusterReply {
    eventually("every chain has its copies, spread over the servers", || {
        let reply = client.cluster(None).ok()?;
        let settled = |chain: &frieze_client::ClusterChain| {
            chain.targets.len() == copies && chain.targets.iter().all(|target| target.state == "serving")
        };
        let spread = reply.nodes.iter().all(|node| u64::from(node.targets) <= share_max);
        (reply.chains.iter().all(settled) && spread).then_some(reply)
    })
}

#[test]
fn five_servers_with_three_copies_answer_as_one_that_has_everything() {
    let mut cluster = ServedCluster::with(5, "replicas = 3\nchain_count = 10\n");
    let admin = cluster.client(0);
    admin.cluster(Some(ClusterOp::Balance(true))).unwrap();
    // Ten chains of three: six each.
    let reply = await_spread(&admin, 3, 6);
    assert_eq!(reply.nodes.len(), 5);
    let names: Vec<String> = (0..8).map(|number| format!("/f{number}")).collect();
    let first = |number: u64| random_bytes(number, 3_000_000 + number as usize * 1_000);
    for (number, name) in (0..).zip(&names) {
        write(&cluster.client(number as usize % 5), name, &first(number));
    }
    let then = admin.now().unwrap();
    // Two clients append to one file over several chunks, and each line is there once, whole.
    std::thread::scope(|scope| {
        for writer in 0..2u8 {
            let client = cluster.client(writer as usize * 2 + 1);
            scope.spawn(move || {
                let file = client.fs().create(&Target::path("/log"), 0o644, CreateMode::OpenExisting).unwrap();
                for line in 0..60u8 {
                    let mut bytes = vec![b'a' + writer; 50_000];
                    bytes[0] = line;
                    file.append(&bytes).unwrap();
                }
                // What a writer has not closed yet is as long for everybody.
                let seen = client.fs().stat(&Target::path("/log")).unwrap().attr.size;
                assert!(seen >= 60 * 50_000, "{seen}");
                file.sync().unwrap();
                file.close().unwrap();
            });
        }
    });
    let check_log = |client: &Client| {
        let bytes = read(client, "/log");
        assert_eq!(bytes.len(), 120 * 50_000);
        let mut lines: Vec<(u8, u8)> = Vec::new();
        for line in bytes.chunks(50_000) {
            assert!(line[2..].iter().all(|byte| *byte == line[1]), "a line is not whole");
            lines.push((line[1], line[0]));
        }
        lines.sort_unstable();
        let each: Vec<(u8, u8)> = [b'a', b'b'].into_iter().flat_map(|by| (0..60).map(move |line| (by, line))).collect();
        assert!(lines == each, "each is there once");
        // Over the end of a chunk as well.
        let versions =
            client.fs().log(&Target::path("/log"), frieze_client::HistoryInterval::WHOLE, 1_000).unwrap().versions;
        let written: Vec<u64> = versions.iter().map(|version| version.len).filter(|len| *len > 0).collect();
        assert_eq!(written, [50_000; 120], "every write is told of, whoever has it");
    };
    let shorter = admin.fs().open(&Target::path("/f1"), OpenFlags::READ_WRITE).unwrap();
    shorter.set_len(1_500_000).unwrap();
    shorter.close().unwrap();
    let check_all = |cluster: &ServedCluster, live: &[usize]| {
        for number in live {
            let client = cluster.client(*number);
            check_log(&client);
            for (number, name) in (0..).zip(&names) {
                let was = client.fs().at(then).open(&Target::path(name.as_str()), OpenFlags::READ).unwrap();
                let mut bytes = vec![0; was.attr().size as usize];
                assert_eq!(was.read_at(0, &mut bytes).unwrap(), bytes.len());
                assert!(bytes == first(number), "{name} as it was");
                let is = read(&client, name);
                let wanted = if number == 1 { first(1)[..1_500_000].to_vec() } else { first(number) };
                assert!(is == wanted, "{name} as it is");
            }
        }
    };
    check_all(&cluster, &[0, 1, 2, 3, 4]);
    // What clones, restored files and copied ranges share lies on chains of other servers as often as not.
    let changed = Target::path("/f3");
    let over = admin.fs().open(&changed, OpenFlags::READ_WRITE).unwrap();
    over.write_at(900_000, &random_bytes(88, 400_000)).unwrap();
    over.close().unwrap();
    let mut expect: Vec<(String, Vec<u8>)> = Vec::new();
    for (number, name) in (0..).zip(&names) {
        let (source, copy) = (Target::path(name.as_str()), format!("/clone{number}"));
        admin.fs().at(then).clone_tree(&source, &Target::path(copy.as_str()), false).unwrap();
        let mut bytes = first(number);
        if number % 2 == 0 {
            // Over a boundary of chunks, so that own bytes and shared ones lie side by side on both.
            let client = cluster.client(number as usize % 5);
            let file = client.fs().open(&Target::path(copy.as_str()), OpenFlags::READ_WRITE).unwrap();
            file.write_at(1_000_000, &random_bytes(100 + number, 100_000)).unwrap();
            file.close().unwrap();
            bytes[1_000_000..1_100_000].copy_from_slice(&random_bytes(100 + number, 100_000));
        }
        expect.push((copy.clone(), bytes.clone()));
        // A clone of the clone, which has bytes of its own and shared ones.
        let second = format!("/second{number}");
        admin.fs().clone_tree(&Target::path(copy.as_str()), &Target::path(second.as_str()), false).unwrap();
        expect.push((second, bytes));
    }
    admin.fs().restore(&changed, then, false, false).unwrap();
    expect.push(("/f3".into(), first(3)));
    {
        let (from, into) = (Target::path("/clone2"), Target::path("/joined"));
        let from = admin.fs().open(&from, OpenFlags::READ).unwrap();
        let into = admin.fs().create(&into, 0o644, CreateMode::Exclusive).unwrap();
        into.write_at(0, &random_bytes(5, 10)).unwrap();
        assert_eq!(from.copy_range(950_000, &into, 10, 200_000).unwrap(), 200_000);
        into.close().unwrap();
        let copied = [&random_bytes(5, 10)[..], &expect[4].1[950_000..1_150_000]].concat();
        assert_eq!(expect[4].0, "/clone2");
        expect.push(("/joined".into(), copied));
    }
    let check_shared = |cluster: &ServedCluster, live: &[usize]| {
        for number in live {
            let client = cluster.client(*number);
            for (name, bytes) in &expect {
                assert!(read(&client, name) == *bytes, "{name} at server {number}");
            }
        }
    };
    check_shared(&cluster, &[0, 1, 2, 3, 4]);
    // One is lost for good: writers go on, and each of its chains gets another server.
    cluster.kill(4);
    let writer = cluster.client(1);
    write(&writer, "/while-away", &random_bytes(77, 2_500_000));
    let fifth = reply.nodes.iter().find(|node| node.name == "db5").unwrap().node;
    eventually("it is known to be gone", || admin.cluster(Some(ClusterOp::DeclareDead(fifth))).ok());
    eventually("its chains have three servers again", || {
        let reply = admin.cluster(None).ok()?;
        let whole = |chain: &frieze_client::ClusterChain| {
            chain.targets.iter().filter(|target| target.state == "serving" && target.node != fifth).count() == 3
        };
        reply.chains.iter().all(whole).then_some(())
    });
    check_all(&cluster, &[0, 1, 2, 3]);
    check_shared(&cluster, &[0, 1, 2, 3]);
    assert_eq!(read(&cluster.client(3), "/while-away"), random_bytes(77, 2_500_000));
    // Another gives its part away and goes.
    let fourth = reply.nodes.iter().find(|node| node.name == "db4").unwrap().node;
    admin.cluster(Some(ClusterOp::Drain(fourth))).unwrap();
    eventually("it has given its chains away", || {
        let reply = admin.cluster(None).ok()?;
        (reply.nodes.iter().find(|node| node.node == fourth)?.targets == 0).then_some(())
    });
    admin.cluster(Some(ClusterOp::Remove(fourth))).unwrap();
    cluster.kill(3);
    check_all(&cluster, &[0, 1, 2]);
}

#[test]
fn a_disk_that_is_added_to_a_machine_takes_its_part_and_is_found_again() {
    let cluster = ServedCluster::of(1);
    let client = cluster.client(0);
    write(&client, "/before", &random_bytes(7, 5_000_000));
    let add = |listen: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frieze"));
        command.current_dir(cluster.directory.path()).stdin(Stdio::null());
        command.args(["--server", &cluster.addresses[0], "cluster", "add-device", "disk2", "--memory", "256"]);
        command.args(["--config", "settings.toml", "--name", "second"]);
        if !listen.is_empty() {
            command.args(["--listen", listen]);
        }
        await_ready(command, &cluster.directory.path().join("second.log"))
    };
    let (second, address) = add("127.0.0.1:0");
    let nodes = client.cluster(None).unwrap().nodes;
    assert_eq!((nodes.len(), &nodes[0].machine), (2, &nodes[1].machine), "both are on this one");
    cluster.await_whole_of(0, 2);
    client.cluster(Some(ClusterOp::Replicas(1))).unwrap();
    client.cluster(Some(ClusterOp::Balance(true))).unwrap();
    let reply = await_spread(&client, 1, 4);
    assert!(reply.nodes.iter().all(|node| node.targets == 4), "{:?}", reply.nodes);
    assert!(read(&client, "/before") == random_bytes(7, 5_000_000));
    drop(second);
    // Without an address to listen at or to join: it is where it was.
    let (_second, again) = add("");
    assert_eq!(again, address);
    assert!(read(&support::client(&address), "/before") == random_bytes(7, 5_000_000));
}

/// Five of them vote. The first three have the bytes.
#[test]
fn seven_servers_serve_without_two_and_not_without_three() {
    let mut cluster = ServedCluster::with(0, "replicas = 3\n");
    (0..7).for_each(|_| cluster.grow());
    cluster.await_whole_of(6, 3);
    // Votes come one after the other: with four of them two could not be lost.
    eventually("five servers vote", || {
        let nodes = cluster.client(6).cluster(None).ok()?.nodes;
        let count = |part: &str| nodes.iter().filter(|node| node.metalog == part).count();
        (count("voter") == 5 && count("learner") == 2).then_some(())
    });
    write(&cluster.client(6), "/seven", &random_bytes(7, 3_000_000));
    for number in 0..7 {
        assert!(read(&cluster.client(number), "/seven") == random_bytes(7, 3_000_000), "server {number}");
    }
    // The leader, and another one that votes and has everything.
    cluster.kill(0);
    cluster.kill(1);
    write(&cluster.client(6), "/five", b"written without two");
    for number in 2..7 {
        assert_eq!(read(&cluster.client(number), "/five"), b"written without two", "server {number}");
    }
    // Four servers are left, and two of them vote: no majority of five.
    cluster.kill(2);
    let options = |number: usize| Options {
        server: cluster.addresses[number].parse().unwrap(),
        timeout: Duration::from_secs(3),
        ..Options::default()
    };
    for number in 3..7 {
        let made = Client::connect(options(number))
            .and_then(|client| client.fs().create(&Target::path("/four"), 0o644, CreateMode::Exclusive).map(drop));
        assert!(made.is_err(), "server {number}");
    }
    cluster.start_again(2);
    write(&cluster.client(6), "/five again", b"written without two");
    for number in 2..7 {
        assert!(read(&cluster.client(number), "/seven") == random_bytes(7, 3_000_000), "server {number}");
        assert_eq!(read(&cluster.client(number), "/five again"), b"written without two", "server {number}");
    }
}

/// Bytes that the records of a server take of its disk.
fn on_disk(cluster: &ServedCluster, number: usize) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let directory = cluster.directory.path().join(number.to_string());
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let segments = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("seg-"));
    segments.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.blocks() * 512).sum()
}

#[test]
fn a_drained_server_gives_its_disk_back_and_comes_back_whole() {
    let mut cluster = ServedCluster::with(4, "replicas = 3\nchain_count = 8\n");
    let admin = cluster.client(0);
    admin.cluster(Some(ClusterOp::Balance(true))).unwrap();
    let reply = await_spread(&admin, 3, 6);
    let fourth = reply.nodes.iter().find(|node| node.name == "db4").unwrap().node;
    let bytes_of = |round: u64, number: u64| random_bytes(round * 100 + number, 3_000_000 + number as usize * 1_000);
    let name = |number: u64| format!("/f{number}");
    let mut rounds = Vec::new();
    for round in 0..3 {
        for number in 0..6 {
            // Chunk by chunk: heads are still given their shares.
            let path = name(number);
            let client = cluster.client(number as usize % 4);
            let file = client.fs().create(&Target::path(path.as_str()), 0o644, CreateMode::OpenExisting).unwrap();
            for (index, part) in (0..).zip(bytes_of(round, number).chunks(1 << 20)) {
                file.write_at(index << 20, part).unwrap();
            }
            file.close().unwrap();
        }
        rounds.push(admin.now().unwrap());
    }
    let check = |cluster: &ServedCluster, live: &[usize]| {
        for client in live.iter().map(|server| cluster.client(*server)) {
            for (round, at) in (0..).zip(&rounds) {
                for number in 0..6 {
                    let was = client.fs().at(*at).open(&Target::path(name(number)), OpenFlags::READ).unwrap();
                    let mut bytes = vec![0; was.attr().size as usize];
                    assert_eq!(was.read_at(0, &mut bytes).unwrap(), bytes.len());
                    assert!(bytes == bytes_of(round, number), "{} in round {round}", name(number));
                }
            }
            (0..6).for_each(|number| assert!(read(&client, &name(number)) == bytes_of(2, number)));
        }
    };
    check(&cluster, &[3]);
    let node_of = |client: &Client| {
        let reply = client.cluster(None).ok()?;
        reply.nodes.into_iter().find(|node| node.node == fourth)
    };
    let before = on_disk(&cluster, 3);
    assert!(before > 24_000_000, "{before}");
    // A client writes and reads all the time, and has no failure.
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let ends = SetOnDrop(&stop);
        scope.spawn(|| {
            let client = cluster.client(3);
            let file = client.fs().create(&Target::path("/busy"), 0o644, CreateMode::OpenExisting).unwrap();
            while !stop.load(Ordering::Relaxed) {
                let number = written.load(Ordering::Relaxed);
                file.write_at(number % 400 * 8192, &random_bytes(number, 8192)).unwrap();
                let read = || {
                    let mut back = vec![0; 8192];
                    let len = file.read_at(number % 400 * 8192, &mut back).unwrap();
                    (len, back == random_bytes(number, 8192))
                };
                let found = read();
                // Whether it is there a moment later tells what was lost from what was read too early.
                assert!(found == (8192, true), "write {number}: {found:?}, then {:?}", [(); 5].map(|()| read()));
                written.store(number + 1, Ordering::Relaxed);
            }
            file.close().unwrap();
        });
        admin.cluster(Some(ClusterOp::Drain(fourth))).unwrap();
        eventually("it has given its chains away, and nothing of them is left", || {
            let node = node_of(&admin)?;
            let is_left = node.targets > 0 || node.remains_chains != Some(0) || node.remains_bytes? > 64 << 10;
            (!is_left && on_disk(&cluster, 3) < before / 6).then_some(())
        });
        check(&cluster, &[3, 0]);
        drop(ends);
    });
    assert!(written.into_inner() > 20);
    let said = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_frieze"))
            .args(["--server", &cluster.addresses[0], "cluster"])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(said(&["nodes"]).contains("TO GIVE BACK"));
    assert!(said(&["status", "--json"]).contains("\"remains_chains\":0"));
    // It stays so, whatever stops it, and what is left of its directory is sound.
    cluster.kill(3);
    let directory = cluster.directory.path().join("3");
    let fsck = Command::new(env!("CARGO_BIN_EXE_frieze")).arg("fsck").arg(&directory).output().unwrap();
    assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stdout));
    cluster.start_again(3);
    check(&cluster, &[3]);
    assert!(on_disk(&cluster, 3) < before / 3);
    // It takes its part again, from nothing, and another one goes for good.
    eventually("it may keep what it has", || admin.cluster(Some(ClusterOp::Undrain(fourth))).ok());
    eventually("chains are moved to it", || admin.cluster(Some(ClusterOp::Balance(true))).ok());
    eventually("it has its share again", || {
        let node = node_of(&admin)?;
        (node.targets >= 5 && node.serving == node.targets).then_some(())
    });
    await_spread(&admin, 3, 8);
    check(&cluster, &[3]);
    cluster.kill(1);
    check(&cluster, &[3, 2]);
    cluster.kill(3);
    let fsck = Command::new(env!("CARGO_BIN_EXE_frieze")).arg("fsck").arg(&directory).output().unwrap();
    assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stdout));
}
