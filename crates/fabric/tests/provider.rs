//! Transfers over a real provider: `tcp`, or the one that `FRIEZE_TEST_FABRIC` names, as `make test-rdma` does in its
//! guest with soft-RoCE. Without libfabric the tests are skipped, with a sentence.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::time::Duration;

use frieze_base::crc32c;
use frieze_fabric::{
    BareLoop, ClientSlots, EndpointOptions, Fabric, FabricChoice, FabricError, FabricHost, FabricPeer, HostOptions,
    ROOM_BYTES, SlotEnd, SlotReply,
};
use frieze_harness::requirements::missing;
use frieze_wire::RemoteMemory;

const MIB: usize = 1 << 20;

fn provider() -> String {
    std::env::var("FRIEZE_TEST_FABRIC").unwrap_or_else(|_| "tcp".to_owned())
}

fn host(rooms_max: usize) -> FabricHost {
    let address = std::env::var("FRIEZE_TEST_FABRIC_ADDRESS").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let choice = FabricChoice::Provider(provider());
    FabricHost::new(HostOptions { choice, address: Some(address), rooms_max, for_servers: false })
}

/// Two open fabrics, as of a server and a client; none where libfabric is not installed.
fn ends() -> Option<(Arc<Fabric>, Arc<Fabric>)> {
    if let Err(error) = frieze_fabric::library_version() {
        missing("libfabric", &error.to_string(), "`scripts/bootstrap.sh --tests` installs it");
        return None;
    }
    Some((host(16).get().unwrap(), host(0).get().unwrap()))
}

/// A server's view of a client with slots.
fn connected(server: &Arc<Fabric>, client: &Arc<Fabric>) -> (FabricPeer, ClientSlots) {
    let peer = FabricPeer::new(server, client.endpoint().address()).unwrap();
    (peer, ClientSlots::new(client, server.endpoint().address()).unwrap())
}

fn payload(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9).wrapping_add(seed) >> 7) as u8).collect()
}

/// A reply that says that `bytes` lie in the slot.
fn landed(bytes: &[u8]) -> SlotReply {
    SlotReply { landed: bytes.len(), landed_crc: crc32c(bytes), is_abandoned: false }
}

/// Writes `bytes` into a slot in parts of 300,000.
fn write(peer: &FabricPeer, slot: RemoteMemory, bytes: &[u8]) -> Result<usize, FabricError> {
    let mut writer = peer.write_into(slot, bytes.len())?;
    for part in bytes.chunks(300_000) {
        writer.next(part.len()).copy_from_slice(part);
        writer.send(part.len())?;
    }
    writer.finish()
}

#[test]
fn payloads_are_written_into_slots_and_fetched_from_them() {
    let Some((server, client)) = ends() else { return };
    let (peer, mut slots) = connected(&server, &client);
    let registered = server.endpoint().counts().registrations;
    for round in 0..20 {
        let bytes = payload([1, 4096, 100_001, MIB][round % 4], round as u64);
        let id = round as u64;
        let slot = slots.lend(id, bytes.len()).unwrap();
        assert_eq!(write(&peer, slot, &bytes), Ok(bytes.len()));
        assert_eq!(slots.end(id, landed(&bytes)), SlotEnd::Landed);
        assert!(slots.is_intact(crc32c(&bytes)));
        assert_eq!(slots.landed(), Some(&bytes[..]));
        slots.release();
        let slot = slots.fill(id, &bytes).unwrap();
        assert_eq!(peer.fetch(&slot, bytes.len()).unwrap(), bytes);
        assert_eq!(slots.end(id, SlotReply::default()), SlotEnd::Free);
    }
    let counts = server.endpoint().counts();
    assert!(counts.registrations <= registered + 1, "memory is registered once: {counts:?}");
    assert_eq!((counts.reads, counts.failures, counts.strays), (21, 0, 0), "one of the test of the endpoint");
}

#[test]
fn what_the_peer_must_not_reach_is_refused_and_others_go_on() {
    let Some((_, client)) = ends() else { return };
    let host = host(16);
    let bytes = payload(4096, 1);
    let harm: [fn(RemoteMemory) -> RemoteMemory; 3] = [
        |slot| RemoteMemory { key: slot.key ^ 0x5a5a, ..slot },
        |slot| RemoteMemory { address: slot.address + (ROOM_BYTES - 4095) as u64, ..slot },
        |slot| RemoteMemory { address: slot.address.wrapping_sub(4096), ..slot },
    ];
    for harmful in harm {
        let server = host.get().unwrap();
        let (peer, mut slots) = connected(&server, &client);
        let slot = slots.lend(1, bytes.len()).unwrap();
        let refused = write(&peer, harmful(slot), &bytes);
        assert!(matches!(refused, Err(FabricError::Transfer(_) | FabricError::Timeout(_))), "{refused:?}");
        assert!(!peer.is_up());
        let abandoned = SlotReply { is_abandoned: true, ..SlotReply::default() };
        assert_eq!(slots.end(1, abandoned), SlotEnd::AllClosed, "its memory is of no use");
        drop((peer, slots));
        let works = (0..100).any(|_| {
            let works = works(&host.get().unwrap(), &client);
            host.replace(&server);
            works
        });
        assert!(works, "another connection, tested until it works, by a new endpoint if need be");
    }
}

/// True if a new connection writes into a slot. Some providers need a moment after a refusal, others a new endpoint.
fn works(server: &Arc<Fabric>, client: &Arc<Fabric>) -> bool {
    let bytes = payload(4096, 5);
    let (peer, mut slots) = connected(server, client);
    let slot = slots.lend(2, bytes.len()).unwrap();
    let works = write(&peer, slot, &bytes) == Ok(bytes.len());
    if !works {
        std::thread::park_timeout(Duration::from_millis(50));
        return false;
    }
    slots.end(2, landed(&bytes)) == SlotEnd::Landed && slots.is_intact(crc32c(&bytes))
}

#[test]
fn the_key_of_a_slot_ends_with_its_connection() {
    let Some((server, client)) = ends() else { return };
    let (peer, mut slots) = connected(&server, &client);
    let slot = slots.lend(1, 4096).unwrap();
    drop(slots);
    let late = write(&peer, slot, &payload(4096, 2));
    assert!(matches!(late, Err(FabricError::Transfer(_) | FabricError::Timeout(_))), "{late:?}");
    assert!(!peer.is_up());
}

#[test]
fn a_peer_that_ended_costs_a_bounded_wait_and_an_error() {
    let Some((server, client)) = ends() else { return };
    let (peer, mut slots) = connected(&server, &client);
    let slot = slots.fill(1, &payload(MIB, 3)).unwrap();
    assert_eq!(peer.fetch(&slot, MIB).unwrap().len(), MIB);
    drop(slots);
    drop(client);
    let gone = peer.fetch(&slot, MIB);
    assert!(matches!(gone, Err(FabricError::Transfer(_) | FabricError::Timeout(_))), "{gone:?}");
    let (_, other) = ends().unwrap();
    let (peer, mut slots) = connected(&server, &other);
    let slot = slots.fill(2, b"another").unwrap();
    assert_eq!(&peer.fetch(&slot, 7).unwrap()[..], b"another");
}

#[test]
fn addresses_and_sizes_that_make_no_sense_are_refused() {
    let Some((server, client)) = ends() else { return };
    for address in [&[][..], &[7], &[0xff; 16], &[0xff; 300]] {
        assert!(matches!(FabricPeer::new(&server, address), Err(FabricError::Provider { .. })), "{address:?}");
    }
    let (peer, mut slots) = connected(&server, &client);
    let slot = RemoteMemory { len: 100, ..slots.lend(1, 100).unwrap() };
    let refused = peer.write_into(slot, 101).map(drop);
    assert_eq!(refused, Err(FabricError::SlotTooSmall { slot: 100, len: 101 }));
    let long = RemoteMemory { len: u32::MAX, ..slot };
    assert_eq!(
        peer.fetch(&long, ROOM_BYTES + 1).map(drop),
        Err(FabricError::SlotTooSmall { slot: ROOM_BYTES as u64, len: ROOM_BYTES as u64 + 1 })
    );
    assert!(slots.lend(2, ROOM_BYTES + 1).is_none() && slots.fill(2, &vec![0; ROOM_BYTES + 1]).is_none());
    assert!(peer.is_up(), "none of it is a failure of the fabric");
    assert_eq!(peer.fetch(&RemoteMemory { len: 0, ..slot }, 0).unwrap().len(), 0);
    let beyond = RemoteMemory { address: u64::MAX - 5, len: 8192, ..slot };
    let mut writer = peer.write_into(beyond, 8192).unwrap();
    let sent: Vec<_> = (0..2).map(|_| writer.send(4096)).collect();
    assert!(sent.iter().any(Result::is_err) || writer.finish().is_err(), "no address overflows");
    let more = SlotReply { landed: ROOM_BYTES + 1, ..SlotReply::default() };
    assert_eq!((slots.end(1, more), slots.landed().is_none()), (SlotEnd::Lost, true), "more than a slot");
    assert_eq!(slots.lend(3, 1), None);
}

#[test]
fn rooms_are_bounded_and_return_when_their_bytes_are_dropped() {
    let Some((server, client)) = ends() else { return };
    let (peer, mut slots) = connected(&server, &client);
    let slot = slots.fill(1, b"x").unwrap();
    let kept: Vec<_> = (0..16).map(|_| peer.fetch(&slot, 1).unwrap()).collect();
    assert_eq!(peer.fetch(&slot, 1), Err(FabricError::Full(16 << 20)));
    assert!(peer.is_up());
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| peer.fetch(&slot, 1));
        std::thread::park_timeout(Duration::from_millis(50));
        drop(kept);
        assert_eq!(&fetch.join().unwrap().unwrap()[..], b"x", "it has waited for a room");
    });
    assert_eq!(&peer.fetch(&slot, 1).unwrap()[..], b"x");
    assert_eq!(server.rooms().registered_bytes(), 16 << 20);
}

#[test]
fn many_threads_transfer_at_once() {
    let Some((server, client)) = ends() else { return };
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (peer, mut slots) = connected(&server, &client);
            scope.spawn(move || {
                for round in 0..30 {
                    let bytes = payload(1000 * (thread as usize + 1) + round, thread);
                    let slot = slots.fill(round as u64, &bytes).unwrap();
                    assert_eq!(peer.fetch(&slot, bytes.len()).unwrap(), bytes);
                    assert_eq!(slots.end(round as u64, SlotReply::default()), SlotEnd::Free);
                }
            });
        }
    });
}

#[test]
fn a_provider_that_is_none_is_named_and_asked_again_later() {
    if ends().is_none() {
        return;
    }
    let options = EndpointOptions { provider: "no-such-provider".to_owned(), address: None };
    let host = FabricHost::new(HostOptions {
        choice: FabricChoice::Provider(options.provider.clone()),
        ..HostOptions::default()
    });
    let error = host.get().unwrap_err();
    assert!(error.to_string().contains("no-such-provider"), "{error}");
    assert_eq!(host.get().unwrap_err(), error);
    assert_eq!((host.offer(), host.report().trouble), (None, error.to_string()));
}

#[test]
fn a_provider_within_a_machine_is_left_out_by_its_name() {
    if ends().is_none() {
        return;
    }
    // Shared memory of one machine: the address of memory is enough to write there.
    let options = EndpointOptions { provider: "shm".to_owned(), address: None };
    let error = frieze_fabric::Endpoint::open(&options).map(drop).unwrap_err();
    assert!(matches!(error, FabricError::Unsafe { .. }), "{error}");
}

#[test]
fn a_bare_loop_transfers_both_ways_and_refuses_what_it_has_no_memory_for() {
    if ends().is_none() {
        return;
    }
    let address = std::env::var("FRIEZE_TEST_FABRIC_ADDRESS").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let mut bare = BareLoop::open(&EndpointOptions { provider: provider(), address: Some(address) }).unwrap();
    for (len, count) in [(1, 1), (4096, 100), (MIB, 40)] {
        assert_eq!(bare.write(len, count), Ok(()));
        assert_eq!(bare.read(len, count), Ok(()));
    }
    let refused = bare.write(MIB + 1, 1);
    assert_eq!(refused, Err(FabricError::SlotTooSmall { slot: MIB as u64, len: MIB as u64 + 1 }));
    assert_eq!(bare.read(MIB, 1), Ok(()));
}
