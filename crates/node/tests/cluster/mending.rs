//! Records that rot at one server are repaired from other servers.

use std::sync::Arc;

use frieze_base::{NodeId, Reason};
use frieze_disk::Disk;
use frieze_wire::chain::Configuration;

use crate::client::Client;
use crate::elsewhere::{chunk_headed_by, spread};
use crate::world::World;
use crate::writers::{file, offset};
use crate::{ONE, THREE, TWO};

const BYTES: &[u8] = b"what was written here once";
const LEN: u32 = BYTES.len() as u32;

/// A world in which a chunk of the chain of nodes 2 and 3 holds [`BYTES`], on stable storage of both; a client that may
/// read it, and where.
fn written(seed: u64) -> (Arc<World>, Client, Vec<u8>, u64) {
    let world = spread(seed);
    let mut client = Client::new(&world);
    let (inode, capability) = file(&mut client, "f");
    let chunk = chunk_headed_by(inode, TWO, 1);
    client.grant(inode, chunk, 1);
    client.write_at(TWO, &capability, offset(chunk), BYTES).unwrap();
    world.run(100);
    (world, client, capability, offset(chunk))
}

/// Where the [`BYTES`] lie on a node's disk.
fn place(world: &World, node: NodeId) -> (String, u64) {
    let disk = world.disk(node);
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
fn turn(world: &World, node: NodeId, place: &(String, u64), from_first: i64) {
    world.disk(node).flip_bit(&place.0, place.1.checked_add_signed(from_first).unwrap(), 3).unwrap();
}

/// How far the log of the second chain goes at a node.
fn last(world: &World, node: NodeId) -> u64 {
    world.engine(node).planes.chains()[1].last
}

#[test]
fn who_is_brought_up_to_date_by_a_server_with_a_damaged_record_gets_it_when_another_has_it() {
    // A byte, and their checksum.
    for from_first in [5, -2] {
        let (world, mut client, capability, at) = written(301);
        turn(&world, TWO, &place(&world, TWO), from_first);
        // Node 3 is out of the chain, and has all of it still.
        let of = |members: &[NodeId], syncing| Configuration {
            members: members.to_vec(),
            syncing,
            ..Configuration::default()
        };
        world.share(&[of(&[ONE, TWO], None), of(&[TWO], Some(ONE)), of(&[ONE, TWO], None)]);
        world.run(2000);
        assert!(last(&world, ONE) < last(&world, TWO), "nobody is given what is damaged");
        let refused = client.read_from(TWO, &capability, at, LEN).unwrap_err();
        assert_eq!(refused.reason, Reason::Corrupt, "{refused}");
        world.engine(TWO).service.upkeep.scrub(&|_| true).unwrap();
        assert_eq!(client.read_from(TWO, &capability, at, LEN).unwrap(), BYTES, "{from_first}");
        world.until("node 1 has all of it", || last(&world, ONE) == last(&world, TWO));
    }
}

#[test]
fn what_nobody_has_whole_is_not_mended_and_asked_for_again_later() {
    let (world, mut client, capability, at) = written(302);
    let places = [(TWO, place(&world, TWO)), (THREE, place(&world, THREE))];
    places.iter().for_each(|(node, place)| turn(&world, *node, place, node.0.into()));
    for _ in 0..3 {
        for node in [TWO, THREE] {
            let refused = client.read_from(node, &capability, at, LEN).unwrap_err();
            assert_eq!(refused.reason, Reason::Corrupt, "{refused}");
            world.engine(node).service.upkeep.scrub(&|_| true).unwrap();
        }
        world.run(100);
    }
    // One of them is put right.
    turn(&world, THREE, &places[1].1, THREE.0.into());
    world.run(10_000);
    world.engine(TWO).service.upkeep.scrub(&|_| true).unwrap();
    assert_eq!(client.read_from(TWO, &capability, at, LEN).unwrap(), BYTES);
}
