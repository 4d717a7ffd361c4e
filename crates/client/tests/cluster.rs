//! A client of several servers: the route of each request, and the loss of a server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fake_server;

use std::collections::BTreeSet;
use std::time::Duration;

use fake_server::{CHUNK, FakeAnswer, FakeServer, FakeStore, ReceivedRequest};
use frieze_base::{ByteRange, ChainId, ChunkId, InodeId, Reason};
use frieze_client::{Client, CreateMode, Error, File, OpenFlags, Options, ServerAddr, Target};
use frieze_wire::message::{ChainMembers, ClusterMapReply, NodeAddress, Reply, Request};
use frieze_wire::txn::Op;

/// Servers 1 to 3 of one store, a chain for each head.
struct FakeCluster {
    store: FakeStore,
    addresses: Vec<ServerAddr>,
    servers: Vec<Option<FakeServer>>,
}

impl FakeCluster {
    fn new() -> FakeCluster {
        let store = FakeStore::new();
        let servers: Vec<FakeServer> =
            (1..=3).map(|node| store.serve_as(node, &"127.0.0.1:0".parse().unwrap())).collect();
        let addresses = servers.iter().map(|server| server.addr.clone()).collect();
        let cluster = FakeCluster { store, addresses, servers: servers.into_iter().map(Some).collect() };
        cluster.tell(1, &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]]);
        cluster
    }

    /// Makes `leader` the leader, and these the servers of the chains.
    fn tell(&self, leader: u32, chains: &[&[u32]]) {
        let nodes = (1..).zip(&self.addresses).map(|(node, at)| NodeAddress { node, address: at.to_string() });
        let nodes = nodes.collect();
        let chains = chains.iter().map(|serving| ChainMembers { serving: serving.to_vec() }).collect();
        self.store.with(|state| {
            let before = state.map.take().unwrap_or_default();
            let term = before.term + u64::from(before.leader != leader);
            state.map = Some(ClusterMapReply { version: before.version + 1, leader, term, nodes, chains });
        });
    }

    /// Makes every server refuse requests for other servers, as real ones do.
    fn be_strict(&self) {
        let known = self.store.with(|state| state.map.clone().unwrap());
        self.store.plan(move |received| {
            if is_answered_by(&known, received) { FakeAnswer::Answer } else { FakeAnswer::Refuse(Reason::Elsewhere) }
        });
    }

    /// Breaks every connection of server `node` and refuses new ones.
    fn stop(&mut self, node: usize) {
        self.servers[node - 1].take().unwrap().stop();
    }

    fn client_of(&self, server: usize) -> Client {
        let server = self.addresses[server].clone();
        Client::connect(Options { server, timeout: Duration::from_secs(10), ..Options::default() }).unwrap()
    }
}

/// True if the map routes a request to the server that received it.
fn is_answered_by(map: &ClusterMapReply, received: &ReceivedRequest) -> bool {
    let chain = |offset: u64| {
        let chunk = ChunkId { inode: InodeId(FILE), index: (offset / CHUNK) as u32 };
        let ChainId(chain) = chunk.chain(map.chains.len() as u32);
        &map.chains[chain as usize].serving
    };
    match &received.request {
        Request::Hello(_) | Request::ClusterMap(_) => true,
        Request::Write(write) => {
            let end = write.offset + received.payload_len as u64 - 1;
            [write.offset, end].iter().all(|at| chain(*at).first() == Some(&received.node))
        }
        Request::Read(read) => chain(read.offset).contains(&received.node),
        _ => received.node == map.leader,
    }
}

fn make(client: &Client) -> File {
    let file = client.fs().create(&Target::path("/f"), 0o644, CreateMode::Exclusive).unwrap();
    assert_eq!(file.inode(), InodeId(FILE), "the chains of its chunks are those of this number");
    file
}

/// The first file that a store makes.
const FILE: u64 = 100;

fn nodes(received: &[ReceivedRequest]) -> BTreeSet<u32> {
    received.iter().map(|received| received.node).collect()
}

fn bytes(len: u64) -> Vec<u8> {
    (0..len).map(|at| (at / 7 % 251) as u8).collect()
}

#[test]
fn requests_go_to_the_right_server_from_the_beginning() {
    let cluster = FakeCluster::new();
    cluster.be_strict();
    // Not the leader.
    let client = cluster.client_of(2);
    let file = make(&client);
    let data = bytes(5 * CHUNK + 12_345);
    file.write_at(100, &data).unwrap();
    // Over the edge of a chunk, in one call.
    file.write_at(2 * CHUNK - 500, &data[..1000]).unwrap();
    let mut read = vec![0; data.len()];
    assert_eq!(file.read_at(100, &mut read).unwrap(), data.len());
    let mut few = [0; 1000];
    assert_eq!(file.read_at(2 * CHUNK - 500, &mut few).unwrap(), 1000);
    assert_eq!(few[..], data[..1000]);
    assert_eq!(nodes(&cluster.store.received(ReceivedRequest::is_write)), BTreeSet::from([1, 2, 3]));
    assert_eq!(nodes(&cluster.store.received(|received| received.op().is_some())), BTreeSet::from([1]));
    let refused = cluster.store.with(|state| state.map.clone().unwrap());
    assert!(
        cluster.store.received(|received| !is_answered_by(&refused, received)).is_empty(),
        "nobody was asked in vain"
    );
}

#[test]
fn readers_of_one_chunk_use_every_server_that_has_it() {
    let cluster = FakeCluster::new();
    cluster.tell(1, &[&[1, 2, 3]]);
    let file = make(&cluster.client_of(0));
    file.write_at(0, &bytes(1000)).unwrap();
    for _ in 0..40 {
        let client = cluster.client_of(0);
        let file = client.fs().open(&Target::path("/f"), OpenFlags::READ).unwrap();
        file.read_at(0, &mut [0; 1000]).unwrap();
    }
    assert_eq!(nodes(&cluster.store.received(ReceivedRequest::is_read)), BTreeSet::from([1, 2, 3]));
}

#[test]
fn a_chunk_that_one_server_cannot_read_is_read_from_another() {
    let cluster = FakeCluster::new();
    cluster.tell(1, &[&[1, 2, 3]]);
    let file = make(&cluster.client_of(0));
    let data = bytes(3 << 20);
    file.write_at(0, &data).unwrap();
    for sound in 1..=3 {
        for reason in [Reason::InputOutput, Reason::Corrupt] {
            cluster.store.plan(move |received| match received.is_read() && received.node != sound {
                true => FakeAnswer::Refuse(reason),
                false => FakeAnswer::Answer,
            });
            let file = cluster.client_of(0).fs().open(&Target::path("/f"), OpenFlags::READ).unwrap();
            let mut few = [0; 1000];
            assert_eq!(file.read_at(5000, &mut few).unwrap(), 1000);
            assert_eq!(few[..], data[5000..6000]);
            let mut streamed = Vec::new();
            let take = |piece: &[u8]| {
                streamed.extend_from_slice(piece);
                Ok::<(), frieze_client::Error>(())
            };
            file.read_stream(ByteRange::new(0, 3 << 20), 4, take).unwrap();
            assert!(streamed == data);
        }
    }
    // If no server can read it, each was tried once.
    cluster
        .store
        .plan(|received| if received.is_read() { FakeAnswer::Refuse(Reason::InputOutput) } else { FakeAnswer::Answer });
    let file = cluster.client_of(0).fs().open(&Target::path("/f"), OpenFlags::READ).unwrap();
    let before = cluster.store.received(ReceivedRequest::is_read).len();
    let error = file.read_at(5000, &mut [0; 1000]).unwrap_err();
    assert!(matches!(error, Error::Refused(fault) if fault.reason == Reason::InputOutput));
    assert_eq!(cluster.store.received(ReceivedRequest::is_read).len() - before, 3);
}

#[test]
fn a_write_continues_at_the_next_head_and_runs_once() {
    let cluster = FakeCluster::new();
    cluster.tell(1, &[&[2, 3, 1]]);
    let client = cluster.client_of(0);
    let file = make(&client);
    let data = bytes(2 << 20);
    file.write_at(0, &data[..1 << 20]).unwrap();
    // It runs at server 2, which leaves the chain before it answers.
    cluster.store.plan(|received| {
        if received.is_write() && received.node == 2 { FakeAnswer::RunThenClose } else { FakeAnswer::Answer }
    });
    cluster.tell(1, &[&[3, 1]]);
    file.write_at(1 << 20, &data[1 << 20..]).unwrap();
    assert_eq!(cluster.store.file("/f"), data);
    assert!(cluster.store.with(|state| state.runs.values().all(|runs| *runs == 1)));
    let asked: Vec<(u32, u64)> = cluster
        .store
        .received(ReceivedRequest::is_write)
        .iter()
        .map(|received| (received.node, received.header.seq.0))
        .collect();
    let [.., (2, first), (3, again)] = asked[..] else { panic!("asked in another order: {asked:?}") };
    assert_eq!(first, again, "under the number of the first try");
}

#[test]
fn a_stream_continues_at_the_new_head_of_its_chain() {
    let cluster = FakeCluster::new();
    cluster.tell(1, &[&[2, 3, 1]]);
    let client = cluster.client_of(0);
    let file = make(&client);
    let data = bytes(16 << 20);
    // In the middle of the stream another head takes over.
    let (mut pieces, mut writes) = (data.chunks(1 << 20), 0);
    let store = cluster.store.clone();
    store.plan(move |received| {
        writes += u32::from(received.is_write());
        if writes > 6 && received.is_write() && received.node == 2 {
            FakeAnswer::Refuse(Reason::Elsewhere)
        } else {
            FakeAnswer::Answer
        }
    });
    let (written, _) = file
        .write_stream::<frieze_client::Error>(0, 4, |buffer| {
            let Some(piece) = pieces.next() else { return Ok(false) };
            buffer.extend_from_slice(piece);
            if pieces.len() == 10 {
                cluster.tell(1, &[&[3, 1]]);
            }
            Ok(true)
        })
        .unwrap();
    assert_eq!((written, cluster.store.file("/f")), (16 << 20, data));
    assert!(cluster.store.with(|state| state.runs.values().all(|runs| *runs == 1)));
}

/// Chunks with one head when they were sent have three when they are sent again.
#[test]
fn writes_in_flight_go_to_their_own_heads_after_a_change_of_heads() {
    let cluster = FakeCluster::new();
    cluster.tell(1, &[&[1, 2, 3], &[1, 2, 3], &[1, 2, 3]]);
    cluster.be_strict();
    let client = cluster.client_of(0);
    let file = make(&client);
    // The client has its grants, and its map has one head.
    file.write_at(0, &bytes(3 * CHUNK)).unwrap();
    cluster.tell(1, &[&[3, 1, 2], &[1, 2, 3], &[2, 3, 1]]);
    cluster.be_strict();
    // Requests of two chunks are in flight when the first is refused.
    let data: Vec<u8> = bytes(CHUNK).iter().map(|byte| byte ^ 1).collect();
    for at in [CHUNK / 2, CHUNK + CHUNK / 2] {
        file.write_at(at, &data).unwrap();
        let mut read = vec![0; data.len()];
        assert_eq!(file.read_at(at, &mut read).unwrap(), data.len());
        assert!(read == data, "at {at}");
    }
}

#[test]
fn names_go_to_the_next_leader_when_one_is_lost() {
    let mut cluster = FakeCluster::new();
    let client = cluster.client_of(0);
    make(&client);
    cluster.stop(1);
    // No server leads until the map was requested a few times.
    cluster.tell(0, &[&[2, 3]]);
    let known = cluster.store.with(|state| state.map.clone().unwrap());
    let elected = ClusterMapReply { leader: 2, term: known.term + 1, ..known };
    let mut asked = 0;
    cluster.store.plan(move |received| match received.request {
        Request::ClusterMap(_) => {
            asked += 1;
            if asked > 4 {
                FakeAnswer::Instead(Box::new(Reply::ClusterMap(elected.clone())))
            } else {
                FakeAnswer::Answer
            }
        }
        _ => FakeAnswer::Answer,
    });
    client.fs().create(&Target::path("/g"), 0o644, CreateMode::Exclusive).unwrap();
    let made = cluster.store.received(|received| received.op().is_some() && received.node == 2);
    assert!(!made.is_empty(), "server 2 was asked");
}

/// The head may not know yet that the leader took back the grants of the session.
#[test]
fn an_append_requests_its_grant_from_the_leader() {
    let cluster = FakeCluster::new();
    let client = cluster.client_of(2);
    make(&client).close().unwrap();
    for round in 1..=2 {
        let file = client.fs().open(&Target::path("/f"), OpenFlags::WRITE).unwrap();
        file.append(b"one").unwrap();
        file.append(b"two").unwrap();
        file.close().unwrap();
        let granted =
            cluster.store.received(|received| matches!(received.op(), Some(Op::GrantAppend(_))) && received.node == 1);
        assert_eq!(granted.len(), round, "once for each time that it is opened");
    }
}

/// A server that is stopped or cut off does not end its connections.
#[test]
fn a_silent_server_is_abandoned_for_the_one_that_answers_now() {
    let cluster = FakeCluster::new();
    let client = cluster.client_of(0);
    let file = make(&client);
    cluster.store.plan(|received| match received.request {
        Request::Txn(_) | Request::Write(_) | Request::Read(_) if received.node == 1 => FakeAnswer::RunThenHang,
        _ => FakeAnswer::Answer,
    });
    cluster.tell(2, &[&[2, 3], &[2, 3], &[2, 3]]);
    client.fs().create(&Target::path("/g"), 0o644, CreateMode::Exclusive).unwrap();
    // Chunks on all three chains, by the old map of the client.
    let data = bytes(3 * CHUNK);
    file.write_at(0, &data).unwrap();
    let mut read = vec![0; data.len()];
    assert_eq!(file.read_at(0, &mut read).unwrap(), data.len());
    assert!(read == data);
}

#[test]
fn calls_to_a_cluster_without_an_answering_server_fail_in_time() {
    let mut cluster = FakeCluster::new();
    let server = cluster.addresses[0].clone();
    let options = Options { server, timeout: Duration::from_millis(600), ..Options::default() };
    let client = Client::connect(options).unwrap();
    let file = make(&client);
    (1..=3).for_each(|node| cluster.stop(node));
    assert!(file.write_at(0, b"lost").is_err());
    assert!(client.fs().create(&Target::path("/g"), 0o644, CreateMode::Exclusive).is_err());
}
