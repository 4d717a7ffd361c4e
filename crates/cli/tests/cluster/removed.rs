//! A server that was removed is told so, ends, and does not start again on what it had.

use std::process::ExitStatus;

use super::*;

/// Waits until the process of a server has ended by itself.
pub(super) fn await_end(cluster: &mut ServedCluster, number: usize) -> ExitStatus {
    let server = cluster.servers[number].as_mut().unwrap();
    let status = eventually("it ends by itself", || server.ended());
    cluster.servers[number] = None;
    status
}

/// A start of its directory, as it was started the last time.
fn start_of(cluster: &ServedCluster, number: usize) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frieze"));
    command.current_dir(cluster.directory.path()).stdin(Stdio::null());
    let (dir, listen) = (number.to_string(), cluster.addresses[number].as_str());
    command.args(["serve", "--dir", &dir, "--listen", listen, "--config", "settings.toml", "--memory", "256"]);
    command.output().unwrap()
}

fn check_refused(output: &Output) {
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{words}");
    let last = words.lines().last().unwrap();
    assert!(last.contains("removed") && last.contains("empty directory with --join"), "{words}");
    assert!(last.contains("frieze export"), "{words}");
}

#[test]
fn a_server_that_is_drained_and_removed_ends_says_why_and_is_refused_a_start() {
    let mut cluster = ServedCluster::of(3);
    cluster.await_whole(0);
    write(&cluster.client(0), "/kept", &random_bytes(3, 2_000_000));
    assert!(cluster.frieze(0, &["cluster", "replicas", "2"]).status.success());
    assert!(cluster.frieze(1, &["cluster", "drain", "db3"]).status.success());
    let again = cluster.frieze(1, &["cluster", "drain", "db3"]);
    assert_eq!(again.status.code(), Some(1), "it was drained already: {again:?}");
    assert!(cluster.frieze(1, &["cluster", "remove", "db3"]).status.success());
    assert_eq!(await_end(&mut cluster, 2).code(), Some(3));
    let log = cluster.log(2);
    assert!(log.contains("this server was removed from its cluster, and ends"), "{log}");
    assert!(!cluster.frieze(1, &["cluster", "remove", "db3"]).status.success(), "there is none of that name any more");
    check_refused(&start_of(&cluster, 2));
    // The leader goes as well as any other.
    assert!(cluster.frieze(1, &["cluster", "replicas", "1"]).status.success());
    assert!(cluster.frieze(1, &["cluster", "drain", "db1"]).status.success());
    assert!(cluster.frieze(1, &["cluster", "remove", "db1"]).status.success());
    assert_eq!(await_end(&mut cluster, 0).code(), Some(3));
    check_refused(&start_of(&cluster, 0));
    assert!(read(&cluster.client(1), "/kept") == random_bytes(3, 2_000_000));
    let whole = cluster.frieze(1, &["cluster", "wait", "--for", "whole"]);
    assert!(whole.status.success(), "{whole:?}");
}

#[test]
fn a_server_declared_dead_while_it_was_down_learns_it_when_it_comes_back() {
    let mut cluster = ServedCluster::of(3);
    cluster.await_whole(0);
    cluster.kill(2);
    // It waits for the end of the lease.
    let declared = cluster.frieze(0, &["cluster", "declare-dead", "db3", "--yes"]);
    assert!(declared.status.success(), "{declared:?}");
    eventually("it is none of the cluster any more", || {
        let reply = cluster.client(0).cluster(None).ok()?;
        (reply.nodes.len() == 2).then_some(())
    });
    // It knows of nothing, begins to serve, and ends when it reaches one of the others.
    let output = start_of(&cluster, 2);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert!(words.contains("node 3 was removed from this cluster"), "{words}");
    check_refused(&start_of(&cluster, 2));
    // Under the same name and at the same address it comes back as another server.
    std::fs::remove_dir_all(cluster.directory.path().join("2")).unwrap();
    let (server, _) = start(cluster.directory.path(), 2, &cluster.addresses[2], cluster.addresses.first());
    cluster.servers[2] = Some(server);
    cluster.await_whole(0);
}
