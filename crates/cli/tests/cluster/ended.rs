//! One server went on from a cluster under another identity: those of the identity before end or say that there are
//! two, and clients find the one that has a leader.

use std::os::unix::fs::DirBuilderExt;

use frieze_harness::requirements;

use super::minority::Unmounted;
use super::removed::await_end;
use super::*;

/// Goes on from the stopped server of this number, and starts it.
fn go_on_from(cluster: &mut ServedCluster, number: usize, more: &[&str]) {
    let dir = number.to_string();
    let args = ["cluster", "recover", "--dir", &dir, "--yes", "--accept-loss"];
    let recovered = Command::new(env!("CARGO_BIN_EXE_frieze"))
        .current_dir(cluster.directory.path())
        .args(args)
        .args(more)
        .output()
        .unwrap();
    assert!(recovered.status.success(), "{recovered:?}");
    cluster.start_again(number);
}

/// The first trouble of `status` at this server, once its words contain `what`.
fn await_trouble(cluster: &ServedCluster, number: usize, command: &[&str], what: &str) -> String {
    eventually(what, || {
        let output = cluster.frieze(number, command);
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let trouble = found["troubles"].get(0)?;
        trouble["what"].as_str()?.contains(what).then(|| trouble["remedy"].as_str().unwrap().to_owned())
    })
}

#[test]
fn a_server_whose_cluster_has_ended_says_so_and_ends_and_clients_go_to_the_new_one() {
    let mut cluster = ServedCluster::of(2);
    cluster.await_whole(0);
    write(&cluster.client(0), "/kept", b"kept");
    let mountpoint = cluster.directory.path().join("old");
    std::fs::DirBuilder::new().mode(0o755).create(&mountpoint).unwrap();
    let log = cluster.directory.path().join("mount.log");
    let mount = requirements::fuse().then(|| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frieze"));
        command.args(["--server", &cluster.addresses[1], "--timeout", "2", "mount", "--log", log.to_str().unwrap()]);
        let mounted = command.arg(&mountpoint).stdin(Stdio::null()).output().unwrap();
        assert!(mounted.status.success(), "{mounted:?}");
        Unmounted(mountpoint.clone())
    });
    cluster.kill(0);
    cluster.kill(1);
    go_on_from(&mut cluster, 1, &[]);
    eventually("the survivor serves", || (read(&cluster.client(1), "/kept") == b"kept").then_some(()));
    if mount.is_some() {
        let failed = std::fs::read(mountpoint.join("kept")).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(nix::libc::ESTALE), "{failed}");
        let log = std::fs::read_to_string(&log).unwrap();
        assert!(log.matches("unmount and mount anew: cluster ").count() == 1 && log.contains(", as cluster "), "{log}");
    }
    // Whatever it is to join: it finds out by itself.
    let (old, new) = (cluster.addresses[0].clone(), cluster.addresses[1].clone());
    let (server, _) = start(cluster.directory.path(), 0, &old, Some(&new));
    cluster.servers[0] = Some(server);
    let remedy = await_trouble(&cluster, 0, &["status", "--json"], "the cluster has ended");
    assert!(remedy.contains(&format!("--join {new}")) && remedy.contains("frieze export 0"), "{remedy}");
    assert_eq!(cluster.frieze(0, &["status"]).status.code(), Some(1));
    await_trouble(&cluster, 0, &["cluster", "--json"], "the cluster has ended");
    // The first that is named answers, and knows no leader.
    let servers = format!("{old},{new}");
    let listed = Command::new(env!("CARGO_BIN_EXE_frieze"))
        .env("FRIEZE_SERVER", &servers)
        .args(["ls", "/", "--timeout", "5"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "kept\n", "{listed:?}");
    assert_eq!(await_end(&mut cluster, 0).code(), Some(4));
    let log = cluster.log(0);
    let said = log.lines().find(|line| line.contains("this server ends, for its cluster has ended")).unwrap();
    assert!(said.contains("ERROR") && said.contains(&new) && said.contains("frieze export 0"), "{said}");
    assert!(log.contains("WARN") && !log.contains("start the servers that are away"), "{log}");
}

/// It was cut off and recovered as a cluster of its own, while the others were a majority.
#[test]
fn a_living_majority_outlives_a_server_that_recovered_without_it() {
    let mut cluster = ServedCluster::of(3);
    cluster.await_whole(0);
    cluster.kill(2);
    // Not allowed, while the others answer; it is declared a copy.
    go_on_from(&mut cluster, 2, &["--copy"]);
    let stray = cluster.client(2).now().unwrap();
    let client = cluster.client(0);
    eventually("the majority goes on", || (client.now().ok()? > stray).then_some(()));
    write(&client, "/kept", b"kept");
    let remedy = await_trouble(&cluster, 0, &["status", "--json"], "two clusters go on from one");
    assert!(remedy.contains("stop every server of the other"), "{remedy}");
    assert!(cluster.log(0).contains("two clusters go on from one"));
    // One of the majority is restarted: the other hears of the stray one only, and waits for it.
    cluster.kill(1);
    eventually("there is no majority, and two clusters all the same", || {
        let output = cluster.frieze(0, &["status"]);
        let words = String::from_utf8_lossy(&output.stdout);
        (words.contains("db2 was last heard from") && words.contains("two clusters go on from one")).then_some(())
    });
    cluster.start_again(1);
    assert_eq!(read(&cluster.client(1), "/kept"), b"kept");
    assert!(cluster.servers[0].as_mut().unwrap().ended().is_none());
}

#[test]
fn join_with_the_servers_of_another_cluster_is_refused_and_named_where_one_is_silent() {
    let (cluster, mut other) = (ServedCluster::of(1), ServedCluster::of(1));
    other.kill(0);
    let (address, silent) = (&cluster.addresses[0], format!("127.0.0.1:{}", minority::free_port()));
    let serve = |join: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frieze"));
        command.current_dir(other.directory.path()).stdin(Stdio::null());
        command.args([
            "serve",
            "--dir",
            "0",
            "--listen",
            "127.0.0.1:0",
            "--config",
            "settings.toml",
            "--memory",
            "256",
        ]);
        command.args(["--join", join]);
        command
    };
    let refused = serve(address).output().unwrap();
    let words = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{words}");
    assert!(words.contains("--join names servers of another cluster: 0 is of a server that is alone"), "{words}");
    let log = other.directory.path().join("log");
    let (_server, _) = await_ready(serve(&format!("{address},{silent}")), &log);
    let words = std::fs::read_to_string(&log).unwrap();
    assert!(words.contains("WARN") && words.contains("names servers of another cluster"), "{words}");
}
