//! The servers of a cluster: the one that answers a request, and the connections to each.
//!
//! Guarantees: a server that is alone costs nothing of this. The map is requested when the first server says that there
//! is one, when a server says that another answers, and when one does not answer; every server that answers has it.
//! Leaves to others: what a call does with an error (`rpc`), connections (`pool`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use frieze_base::{ChainId, ChunkId, MonoTime, NodeId};
use frieze_net::{ServerAddr, mono};
use frieze_wire::message::ClusterMapReply;

use crate::pool::{ConnectionPool, PooledConnection};
use crate::route::ServerRoute;

/// How new a map is: its version, 0 where there is one server, and the term of the leader it names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapAge {
    pub(crate) version: u64,
    pub(crate) term: u64,
}

impl MapAge {
    /// How new `map` is.
    pub(crate) fn of(map: &ClusterMapReply) -> MapAge {
        MapAge { version: map.version, term: map.term }
    }

    /// There is no map: the server is alone.
    pub(crate) fn is_alone(self) -> bool {
        self.version == 0
    }

    /// True if something in it may be newer than in `other`.
    pub(crate) fn is_newer_than(self, other: MapAge) -> bool {
        self.version > other.version || self.term > other.term
    }
}

/// All known servers.
#[derive(Debug)]
pub(crate) struct Servers {
    /// The server that the options name: tried first, and while no other is known.
    home: Arc<ConnectionPool>,
    connections_max: usize,
    known: RwLock<ClusterView>,
    /// Held while the map is requested, so that one call does it for all.
    refreshing: Mutex<()>,
    /// When a call that waited for a reply last requested the map.
    refreshed: AtomicU64,
    /// Spreads the readers of one chunk over its servers.
    salt: u32,
}

#[derive(Debug, Default)]
struct ClusterView {
    age: MapAge,
    leader: Option<NodeId>,
    pools: BTreeMap<NodeId, Arc<ConnectionPool>>,
    chains: Vec<Vec<NodeId>>,
    /// Servers that did not answer, and when: until a newer map, or for [`SILENT_FOR`].
    silent: Vec<(ServerAddr, MonoTime)>,
}

impl Servers {
    pub(crate) fn new(home: ConnectionPool, connections_max: usize, salt: u32) -> Servers {
        let (known, refreshing, refreshed) = (RwLock::default(), Mutex::default(), AtomicU64::new(0));
        Servers { home: Arc::new(home), connections_max, known, refreshing, refreshed, salt }
    }

    /// The server that the options name.
    pub(crate) fn home(&self) -> &Arc<ConnectionPool> {
        &self.home
    }

    /// How new the map is.
    pub(crate) fn age(&self) -> MapAge {
        self.read().age
    }

    /// The connections to the server that is to answer, as far as it is known.
    pub(crate) fn pool(&self, route: ServerRoute) -> Arc<ConnectionPool> {
        let known = self.read();
        if known.age.is_alone() || route == ServerRoute::Named {
            return self.home.clone();
        }
        let node = known.node(route, self.salt).or(known.leader);
        let pool = node.and_then(|node| known.pools.get(&node)).unwrap_or(&self.home);
        if route != ServerRoute::Any && node.is_some() || !known.is_silent(pool) {
            return pool.clone();
        }
        // No leader is known or reached: any server that answers, the one that the options name first.
        let mut others = std::iter::once(&self.home).chain(known.pools.values());
        others.find(|other| !known.is_silent(other)).unwrap_or(pool).clone()
    }

    /// The connections to a server that serves the chunk to be read and is none of `passed`.
    pub(crate) fn another(&self, route: ServerRoute, passed: &[ServerAddr]) -> Option<Arc<ConnectionPool>> {
        let ServerRoute::Read(chunk) = route else { return None };
        let known = self.read();
        let pools = || known.serving(chunk).unwrap_or_default().iter().filter_map(|node| known.pools.get(node));
        let mut fresh = pools().filter(|pool| !passed.contains(pool.address().as_ref()));
        let answering = fresh.clone().find(|pool| !known.is_silent(pool));
        answering.or_else(|| fresh.next()).cloned()
    }

    /// True if one server answers both.
    pub(crate) fn is_same(&self, one: ServerRoute, other: ServerRoute) -> bool {
        let known = self.read();
        known.age.is_alone() || known.node(one, self.salt) == known.node(other, self.salt)
    }

    /// The servers to request the map from, the likeliest first.
    pub(crate) fn all(&self) -> Vec<Arc<ConnectionPool>> {
        let known = self.read();
        let first = known.leader.and_then(|leader| known.pools.get(&leader));
        let mut all: Vec<Arc<ConnectionPool>> =
            first.into_iter().chain(known.pools.values()).chain([&self.home]).cloned().collect();
        let mut seen = Vec::new();
        all.retain(|pool| {
            let is_new = !seen.contains(pool.address());
            seen.push(pool.address().clone());
            is_new
        });
        all
    }

    /// True once in each `pause`, for one of the calls that wait.
    pub(crate) fn may_refresh(&self, now: MonoTime, pause: Duration) -> bool {
        let refreshed = self.refreshed.load(Ordering::Relaxed);
        let is_due = now.since_ns(MonoTime(refreshed)) >= pause.as_nanos() as u64;
        is_due && self.refreshed.compare_exchange(refreshed, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Held by the call that requests the map; `None` if another call has received one newer than `age` meanwhile.
    pub(crate) fn begin_refresh(&self, age: MapAge) -> Option<MutexGuard<'_, ()>> {
        let guard = self.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        (self.age() == age).then_some(guard)
    }

    /// Adopts the map that a server sent, but for those parts that are older than the known ones. True if another
    /// server leads now.
    pub(crate) fn learn(&self, map: &ClusterMapReply) -> bool {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // A map that is no newer does not say which servers answer: while a majority is lost there is no newer one.
        if MapAge::of(map).is_newer_than(known.age) {
            known.silent.clear();
        }
        if map.version == 0 {
            return false;
        }
        let before = known.leader;
        if map.term >= known.age.term {
            known.age.term = map.term;
            known.leader = Some(NodeId(map.leader)).filter(|leader| *leader != NodeId(0));
        }
        let is_led_anew = known.leader.is_some() && known.leader != before;
        if map.version < known.age.version {
            return is_led_anew;
        }
        let mut pools = BTreeMap::new();
        for node in &map.nodes {
            let Ok(address) = node.address.parse::<ServerAddr>() else {
                tracing::warn!(node.node, node.address, "the cluster's map holds a malformed address");
                continue;
            };
            let id = NodeId(node.node);
            let pool = match known.pools.remove(&id).filter(|pool| **pool.address() == address) {
                Some(pool) => pool,
                None if **self.home.address() == address => self.home.clone(),
                None => Arc::new(ConnectionPool::new(address, self.connections_max)),
            };
            pools.insert(id, pool);
        }
        let chain =
            |chain: &frieze_wire::message::ChainMembers| chain.serving.iter().map(|node| NodeId(*node)).collect();
        known.age.version = map.version;
        known.pools = pools;
        known.chains = map.chains.iter().map(chain).collect();
        is_led_anew
    }

    /// Notes that the server at `address` did not answer: others are tried first.
    pub(crate) fn note_silent(&self, address: &ServerAddr) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.silent.retain(|(other, _)| other != address);
        known.silent.push((address.clone(), mono()));
    }

    /// The servers of the cluster with their addresses, those first that serve most of `chunks`, and last those that do
    /// not answer. Empty if the server is alone.
    pub(crate) fn holders(&self, chunks: impl Iterator<Item = ChunkId>) -> Vec<(NodeId, ServerAddr)> {
        let known = self.read();
        let mut held: BTreeMap<NodeId, usize> = known.pools.keys().map(|node| (*node, 0)).collect();
        for node in chunks.filter_map(|chunk| known.serving(chunk)).flatten() {
            held.entry(*node).and_modify(|count| *count += 1);
        }
        let mut nodes: Vec<(NodeId, usize)> = held.into_iter().collect();
        nodes.sort_by_key(|(node, count)| (known.is_silent_node(*node), std::cmp::Reverse(*count), *node));
        nodes.iter().filter_map(|(node, _)| Some((*node, known.pools.get(node)?.address().as_ref().clone()))).collect()
    }

    /// Borrows an idle connection of any server with replies that no call waits for.
    pub(crate) fn take_owing(&self) -> Option<PooledConnection> {
        self.all().iter().find_map(ConnectionPool::take_owing)
    }

    /// The number of borrowed connections.
    pub(crate) fn busy(&self) -> usize {
        let known = self.read();
        if known.age.is_alone() { self.home.busy() } else { known.pools.values().map(|pool| pool.busy()).sum() }
    }

    /// Waits before another attempt; ends early when the client is closed.
    pub(crate) fn pause(&self, duration: Duration) {
        self.home.pause(duration);
    }

    /// True once [`Servers::close`] was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.home.is_closed()
    }

    /// Closes all connections and lends none from now on.
    pub(crate) fn close(&self) {
        self.home.close();
        self.all().iter().for_each(|pool| pool.close());
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, ClusterView> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClusterView {
    /// True if the server of `pool` did not answer lately.
    fn is_silent(&self, pool: &ConnectionPool) -> bool {
        self.silent.iter().any(|(address, since)| {
            address == pool.address().as_ref() && u128::from(mono().since_ns(*since)) < SILENT_FOR.as_nanos()
        })
    }

    fn is_silent_node(&self, node: NodeId) -> bool {
        self.pools.get(&node).is_some_and(|pool| self.is_silent(pool))
    }

    /// The servers of a chunk, its head first.
    fn serving(&self, chunk: ChunkId) -> Option<&[NodeId]> {
        let ChainId(chain) = chunk.chain(u32::try_from(self.chains.len()).ok().filter(|count| *count > 0)?);
        self.chains.get(chain as usize).map(Vec::as_slice)
    }

    fn node(&self, route: ServerRoute, salt: u32) -> Option<NodeId> {
        match route {
            ServerRoute::Lead | ServerRoute::Any => self.leader,
            ServerRoute::Named => None,
            ServerRoute::Write(chunk) => self.serving(chunk)?.first().copied(),
            ServerRoute::Read(chunk) => {
                let serving = self.serving(chunk)?;
                let answering = || serving.iter().filter(|node| !self.is_silent_node(**node));
                let count = answering().count();
                // Neighbouring chunks are read from different servers: a reader of a whole file uses all of them.
                let at = salt.wrapping_add(chunk.index) as usize;
                if count == 0 { serving.first().copied() } else { answering().nth(at % count).copied() }
            }
        }
    }
}

/// How long a server that did not answer is tried after the others. It may answer again before a newer map exists.
const SILENT_FOR: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use frieze_base::InodeId;
    use frieze_wire::message::{ChainMembers, NodeAddress};

    use super::*;

    fn address(node: u32) -> ServerAddr {
        format!("host{node}:7470").parse().expect("an address")
    }

    fn map(version: u64, leader: u32, chains: &[&[u32]]) -> ClusterMapReply {
        ClusterMapReply {
            version,
            leader,
            term: leader.into(),
            nodes: (1..=3).map(|node| NodeAddress { node, address: address(node).to_string() }).collect(),
            chains: chains.iter().map(|serving| ChainMembers { serving: serving.to_vec() }).collect(),
        }
    }

    fn servers() -> Servers {
        Servers::new(ConnectionPool::new(address(2), 4), 4, 0)
    }

    fn asked(servers: &Servers, route: ServerRoute) -> String {
        servers.pool(route).address().to_string()
    }

    /// A chunk of chain `chain` of two.
    fn chunk_on(chain: u32) -> ChunkId {
        let chunks = (0..).map(|index| ChunkId { inode: InodeId(7), index });
        chunks.into_iter().find(|chunk| chunk.chain(2) == ChainId(chain)).expect("chunks alternate")
    }

    #[test]
    fn a_server_that_is_alone_answers_everything() {
        let servers = servers();
        for route in [ServerRoute::Lead, ServerRoute::Write(chunk_on(0)), ServerRoute::Read(chunk_on(1))] {
            assert_eq!(asked(&servers, route), "host2:7470");
        }
        servers.learn(&map(0, 1, &[&[1]]));
        assert!(servers.age().is_alone());
        assert_eq!(asked(&servers, ServerRoute::Lead), "host2:7470");
    }

    #[test]
    fn names_go_to_the_leader_and_writes_to_the_head() {
        let servers = servers();
        servers.learn(&map(3, 1, &[&[3, 1], &[2, 3]]));
        assert_eq!(asked(&servers, ServerRoute::Lead), "host1:7470");
        assert_eq!(asked(&servers, ServerRoute::Write(chunk_on(0))), "host3:7470");
        assert_eq!(asked(&servers, ServerRoute::Write(chunk_on(1))), "host2:7470");
        assert!(!servers.is_same(ServerRoute::Write(chunk_on(0)), ServerRoute::Write(chunk_on(1))));
    }

    #[test]
    fn the_state_of_a_server_is_read_from_that_server() {
        let servers = servers();
        servers.learn(&map(3, 1, &[&[3, 1], &[2, 3]]));
        assert_eq!(asked(&servers, ServerRoute::Named), "host2:7470");
        // Even while it does not answer.
        servers.note_silent(servers.pool(ServerRoute::Named).address());
        assert_eq!(asked(&servers, ServerRoute::Named), "host2:7470");
    }

    #[test]
    fn older_parts_of_a_map_change_nothing() {
        let servers = servers();
        let asked = || (asked(&servers, ServerRoute::Lead), asked(&servers, ServerRoute::Write(chunk_on(0))));
        let hosts = |lead: u32, head: u32| (address(lead).to_string(), address(head).to_string());
        servers.learn(&map(3, 2, &[&[3, 1], &[3, 1]]));
        assert_eq!(asked(), hosts(2, 3));
        servers.learn(&map(2, 1, &[&[2, 1], &[2, 1]]));
        assert_eq!(asked(), hosts(2, 3));
        // The chains are older than the leader.
        servers.learn(&map(2, 3, &[&[2, 1], &[2, 1]]));
        assert_eq!((asked(), servers.age()), (hosts(3, 3), MapAge { version: 3, term: 3 }));
        // And the other way round.
        servers.learn(&map(4, 2, &[&[1], &[1]]));
        assert_eq!((asked(), servers.age()), (hosts(3, 1), MapAge { version: 4, term: 3 }));
    }

    #[test]
    fn holders_are_sorted_by_count_and_silent_ones_are_last() {
        let servers = servers();
        let holders = |chunks: &[ChunkId]| -> Vec<u32> {
            servers.holders(chunks.iter().copied()).iter().map(|(node, _)| node.0).collect()
        };
        assert_eq!(holders(&[chunk_on(0)]), [], "alone");
        servers.learn(&map(3, 1, &[&[3, 2], &[3, 1]]));
        assert_eq!(holders(&[chunk_on(0)]), [2, 3, 1]);
        assert_eq!(holders(&[chunk_on(0), chunk_on(1)]), [3, 1, 2]);
        servers.note_silent(servers.pool(ServerRoute::Write(chunk_on(1))).address());
        assert_eq!(holders(&[chunk_on(0), chunk_on(1)]), [1, 2, 3]);
    }

    #[test]
    fn a_request_to_any_server_goes_to_a_remaining_one_when_leader_and_named_server_are_lost() {
        let servers = servers();
        let lost = map(3, 1, &[&[1, 2, 3]]);
        servers.learn(&lost);
        assert_eq!(asked(&servers, ServerRoute::Any), "host1:7470", "the leader is never behind");
        // The leader and the server that the options name are lost; the remaining one knows no newer map.
        for node in [1, 2] {
            servers.note_silent(&address(node));
            servers.learn(&lost);
        }
        assert_eq!(asked(&servers, ServerRoute::Any), "host3:7470");
        servers.learn(&ClusterMapReply { leader: 0, term: 2, ..lost.clone() });
        assert_eq!(asked(&servers, ServerRoute::Any), "host2:7470", "the map is newer: every server may answer again");
        servers.note_silent(&address(2));
        assert_eq!(asked(&servers, ServerRoute::Any), "host1:7470");
        servers.note_silent(&address(1));
        assert_eq!(
            (asked(&servers, ServerRoute::Any), asked(&servers, ServerRoute::Lead)),
            ("host3:7470".into(), "host3:7470".into())
        );
    }

    #[test]
    fn readers_use_every_server_of_a_chain_but_silent_ones() {
        let servers = servers();
        servers.learn(&map(1, 1, &[&[1, 2, 3]]));
        let read = |servers: &Servers| -> Vec<String> {
            let chunk = |index| ChunkId { inode: InodeId(7), index };
            let mut found: Vec<String> = (0..12).map(|index| asked(servers, ServerRoute::Read(chunk(index)))).collect();
            found.sort();
            found.dedup();
            found
        };
        assert_eq!(read(&servers).len(), 3);
        servers.note_silent(&address(1));
        assert_eq!(read(&servers), ["host2:7470", "host3:7470"]);
        // If all are silent, they are tried all the same.
        servers.note_silent(&address(2));
        servers.note_silent(&address(3));
        assert_eq!(read(&servers), ["host1:7470"]);
        servers.learn(&map(1, 1, &[&[1, 2, 3]]));
        assert_eq!(read(&servers), ["host1:7470"], "a map that says nothing new");
        servers.learn(&map(2, 1, &[&[1, 2, 3]]));
        assert_eq!(read(&servers).len(), 3, "a newer map ends the silence of every server");
    }

    #[test]
    fn the_connections_to_a_server_outlive_a_change_of_the_map() {
        let servers = servers();
        servers.learn(&map(1, 1, &[&[1, 2, 3]]));
        let before = servers.pool(ServerRoute::Lead);
        servers.learn(&map(2, 1, &[&[2, 3]]));
        assert!(Arc::ptr_eq(&before, &servers.pool(ServerRoute::Lead)));
        assert!(
            Arc::ptr_eq(servers.home(), &servers.pool(ServerRoute::Write(chunk_on(0)))),
            "it was connected to already"
        );
    }
}
