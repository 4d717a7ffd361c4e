//! Payloads by one-sided transfers, over libfabric's provider `tcp`: servers and clients as users start them.

use std::process::{Command, Stdio};
use std::sync::Arc;

use frieze_client::{Client, Options, fabric_named};
use frieze_harness::requirements::missing;
use frieze_testkit::bytes::random_bytes;
use frieze_testkit::wait::{eventually, patience};

use super::served_cluster::{ServedCluster, read, write};

const FABRIC: &str = "fabric = \"tcp\"\nfabric_address = \"127.0.0.1\"\n";
const ADDRESS: &str = "127.0.0.1";

/// Servers with a fabric; none where libfabric is not installed.
fn servers(count: usize) -> Option<ServedCluster> {
    if let Err(error) = frieze_fabric::library_version() {
        missing("libfabric", &error.to_string(), "`scripts/bootstrap.sh --tests` installs it");
        return None;
    }
    let cluster = ServedCluster::with(count, FABRIC);
    if count > 1 {
        cluster.await_whole(0);
    }
    Some(cluster)
}

/// A client of one server, whose fabric is open.
fn client(cluster: &ServedCluster, number: usize, fabric: &str) -> Client {
    let fabric = Arc::new(fabric_named(fabric, Some(ADDRESS.to_owned())));
    if !fabric.is_off() {
        fabric.get().unwrap();
    }
    let server = cluster.addresses[number].parse().unwrap();
    Client::connect(Options { server, timeout: patience(), fabric, ..Options::default() }).unwrap()
}

/// Transfers into and from memory of clients, and from other servers.
fn transfers(cluster: &ServedCluster, number: usize) -> (u64, u64, u64) {
    let status = client(cluster, number, "none").status().unwrap();
    let fabric = status.fabric.expect("the settings do not exclude it");
    assert_eq!((fabric.provider.starts_with("tcp"), fabric.trouble.as_str()), (true, ""));
    (fabric.writes, fabric.reads, fabric.server_reads)
}

#[test]
fn payloads_are_transferred_between_clients_and_servers_and_down_the_chain() {
    let Some(cluster) = servers(3) else { return };
    let with = client(&cluster, 0, "tcp");
    let bytes = random_bytes(1, 24 << 20);
    // The first pieces may go by TCP, until the connection has been tested.
    eventually("writes and hops are transferred", || {
        write(&with, "/f", &bytes);
        let all: Vec<_> = (0..3).map(|number| transfers(&cluster, number)).collect();
        let (fetched, hops) = all.iter().fold((0, 0), |(fetched, hops), of| (fetched + of.1, hops + of.2));
        (fetched > 10 && hops > 10).then_some(())
    });
    eventually("reads are transferred", || {
        assert!(read(&with, "/f") == bytes);
        ((0..3).map(|number| transfers(&cluster, number).0).sum::<u64>() > 10).then_some(())
    });
    for number in 0..3 {
        assert!(read(&client(&cluster, number, "none"), "/f") == bytes, "by TCP");
        assert!(read(&client(&cluster, number, "tcp"), "/f") == bytes);
    }
}

#[test]
fn a_client_killed_in_a_transfer_leaves_a_server_that_goes_on() {
    let Some(cluster) = servers(1) else { return };
    let with = client(&cluster, 0, "tcp");
    let bytes = random_bytes(2, 64 << 20);
    write(&with, "/f", &bytes);
    for _ in 0..5 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frieze"));
        command.args(["--server", &cluster.addresses[0], "--fabric", "tcp", "--fabric-address", ADDRESS, "cat", "/f"]);
        let mut reader = command.stdout(Stdio::piped()).spawn().unwrap();
        std::io::Read::read_exact(&mut reader.stdout.take().unwrap(), &mut vec![0; 5 << 20]).unwrap();
        reader.kill().unwrap();
        reader.wait().unwrap();
    }
    assert!(read(&with, "/f") == bytes, "the connection of before");
    assert!(read(&client(&cluster, 0, "tcp"), "/f") == bytes, "a new one");
}

#[test]
fn what_was_acknowledged_outlives_a_server_that_is_killed_under_transfers() {
    let Some(mut cluster) = servers(3) else { return };
    let with = client(&cluster, 0, "tcp");
    let bytes = |round: u64| random_bytes(10 + round, 6 << 20);
    for round in 0..6 {
        if round == 2 {
            cluster.kill(2);
        }
        if round == 4 {
            cluster.start_again(2);
        }
        write(&with, &format!("/f{round}"), &bytes(round));
    }
    cluster.await_whole(0);
    for number in 0..3 {
        let client = client(&cluster, number, "tcp");
        for round in 0..6 {
            assert!(read(&client, &format!("/f{round}")) == bytes(round), "file {round} at server {number}");
        }
    }
}

#[test]
fn a_fabric_that_was_named_and_is_none_is_a_trouble_and_payloads_go_by_tcp() {
    let cluster = ServedCluster::with(1, "fabric = \"no-such-provider\"\n");
    let plain = client(&cluster, 0, "none");
    let bytes = random_bytes(3, 3 << 20);
    write(&plain, "/f", &bytes);
    assert!(read(&plain, "/f") == bytes);
    let status = plain.status().unwrap();
    let what = &status.troubles[0].what;
    assert!(what.contains("no-such-provider") && what.contains("go by TCP"), "{what}");
    assert_ne!(status.health, "healthy");
}
