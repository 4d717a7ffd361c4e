//! Records that rot at one server are repaired from other servers.

use std::sync::Arc;

use frieze_base::{NodeId, Reason};
use frieze_disk::Disk;
use frieze_testkit::cluster::{FailoverClient, TestCluster};
use frieze_wire::chain::Configuration;

use crate::remote_heads::{chunk_headed_by, spread};
use crate::writers::{file, offset};
use crate::{ONE, THREE, TWO};

const BYTES: &[u8] = b"what was written here once";
const LEN: u32 = BYTES.len() as u32;

/// A cluster in which a chunk of the chain of nodes 2 and 3 holds [`BYTES`], on stable storage of both, a client that
/// may read it, and its place.
fn written(seed: u64) -> (Arc<TestCluster>, FailoverClient, Vec<u8>, u64) {
    let cluster = spread(seed);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    let chunk = chunk_headed_by(inode, TWO, 1);
    client.grant(inode, chunk, 1);
    client.write_at(TWO, &capability, offset(chunk), BYTES).unwrap();
    cluster.run(100);
    (cluster, client, capability, offset(chunk))
}

/// Where the [`BYTES`] lie on a node's disk.
fn place(cluster: &TestCluster, node: NodeId) -> (String, u64) {
    let disk = cluster.disk(node);
    let names = disk.list().unwrap().into_iter().filter(|name| name.starts_with("seg-"));
    let found = names.filter_map(|name| {
        let mut bytes = vec![0; 256 << 10];
        disk.open(&name).unwrap().read_direct_at(0, &mut bytes).unwrap();
        bytes.windows(BYTES.len()).position(|here| here == BYTES).map(|at| (name, at as u64))
    });
    let places: Vec<(String, u64)> = found.collect();
    assert_eq!(places.len(), 1, "it lies there once: {places:?}");
    places[0].clone()
}

/// A bit turns, so far from the first of the [`BYTES`] as they lie on a node's disk: what is before them is their
/// checksum.
fn turn(cluster: &TestCluster, node: NodeId, place: &(String, u64), from_first: i64) {
    cluster.disk(node).flip_bit(&place.0, place.1.checked_add_signed(from_first).unwrap(), 3).unwrap();
}

/// How far the log of the second chain goes at a node.
fn last(cluster: &TestCluster, node: NodeId) -> u64 {
    cluster.server(node).chains()[1].last
}

#[test]
fn a_joining_member_gets_a_record_damaged_at_its_supplier_from_another_member() {
    // A byte, and their checksum.
    for from_first in [5, -2] {
        let (cluster, mut client, capability, at) = written(301);
        turn(&cluster, TWO, &place(&cluster, TWO), from_first);
        // Node 3 is out of the chain, and has all of it still.
        let of = |members: &[NodeId], syncing| Configuration {
            members: members.to_vec(),
            syncing,
            ..Configuration::default()
        };
        cluster.set_chains(&[of(&[ONE, TWO], None), of(&[TWO], Some(ONE)), of(&[ONE, TWO], None)]);
        cluster.run(2000);
        assert!(last(&cluster, ONE) < last(&cluster, TWO), "nobody is given what is damaged");
        let refused = client.read_from(TWO, &capability, at, LEN).unwrap_err();
        assert_eq!(refused.reason, Reason::Corrupt, "{refused}");
        cluster.server(TWO).scrub(&|_| true).unwrap();
        assert_eq!(client.read_from(TWO, &capability, at, LEN).unwrap(), BYTES, "{from_first}");
        cluster.until("node 1 has all of it", || last(&cluster, ONE) == last(&cluster, TWO));
    }
}

#[test]
fn a_record_without_a_whole_copy_is_not_repaired_and_requested_again_later() {
    let (cluster, mut client, capability, at) = written(302);
    let places = [(TWO, place(&cluster, TWO)), (THREE, place(&cluster, THREE))];
    places.iter().for_each(|(node, place)| turn(&cluster, *node, place, node.0.into()));
    for _ in 0..3 {
        for node in [TWO, THREE] {
            let refused = client.read_from(node, &capability, at, LEN).unwrap_err();
            assert_eq!(refused.reason, Reason::Corrupt, "{refused}");
            cluster.server(node).scrub(&|_| true).unwrap();
        }
        cluster.run(100);
    }
    // One of them is put right.
    turn(&cluster, THREE, &places[1].1, THREE.0.into());
    cluster.run(10_000);
    cluster.server(TWO).scrub(&|_| true).unwrap();
    assert_eq!(client.read_from(TWO, &capability, at, LEN).unwrap(), BYTES);
}
