//! The servers of a cluster: which of them answers what, and the connections to each.
//!
//! Guarantees: a server that is alone costs nothing of this. The map is asked for when the first server says that there is
//! one, when a server says that another answers, and when one does not answer; whichever server answers has it.
//! Leaves to others: what a call does with an error (`call`), connections (`pool`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use frieze_base::{ChainId, ChunkId, MonoTime, NodeId};
use frieze_net::{ServerAddr, mono};
use frieze_wire::message::ClusterMapReply;

use crate::pool::Pool;

/// Who is to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Route {
    /// Names, sessions, locks: whoever leads.
    #[default]
    Lead,
    /// What every server can answer, an instant of the past above all: whoever leads, who is never behind, else any that answers.
    Any,
    /// Bytes of this chunk are written: the head of its chain.
    Write(ChunkId),
    /// Bytes of this chunk are read: any server of its chain.
    Read(ChunkId),
    /// What one server says of itself: the one that the caller named, whoever leads.
    Named,
}

/// How new a map is: its version, 0 where there is one server, and the term of the leader it names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Age {
    pub(crate) version: u64,
    pub(crate) term: u64,
}

impl Age {
    /// How new `map` is.
    pub(crate) fn of(map: &ClusterMapReply) -> Age {
        Age { version: map.version, term: map.term }
    }

    /// There is no map: the server is alone.
    pub(crate) fn is_alone(self) -> bool {
        self.version == 0
    }

    /// True if something in it may be newer than in `other`.
    pub(crate) fn is_newer_than(self, other: Age) -> bool {
        self.version > other.version || self.term > other.term
    }
}

/// All servers that are known.
#[derive(Debug)]
pub(crate) struct Servers {
    /// As the caller named it: asked first, and when nobody else is known.
    home: Arc<Pool>,
    connections_max: usize,
    known: RwLock<Known>,
    /// Held while the map is asked for, so that one call does it for all.
    asking: Mutex<()>,
    /// When somebody who waited for an answer looked around last.
    looked: AtomicU64,
    /// Spreads the readers of one chunk over its servers.
    salt: u32,
}

#[derive(Debug, Default)]
struct Known {
    age: Age,
    leader: Option<NodeId>,
    pools: BTreeMap<NodeId, Arc<Pool>>,
    chains: Vec<Vec<NodeId>>,
    /// Servers that did not answer, and when: until a newer map, or for [`SILENT_FOR`].
    silent: Vec<(ServerAddr, MonoTime)>,
}

impl Servers {
    pub(crate) fn new(home: Pool, connections_max: usize, salt: u32) -> Servers {
        let (known, asking, looked) = (RwLock::default(), Mutex::default(), AtomicU64::new(0));
        Servers { home: Arc::new(home), connections_max, known, asking, looked, salt }
    }

    /// The server that the caller named.
    pub(crate) fn home(&self) -> &Arc<Pool> {
        &self.home
    }

    /// How new the map is.
    pub(crate) fn age(&self) -> Age {
        self.read().age
    }

    /// The connections to whoever is to answer, as far as that is known.
    pub(crate) fn pool(&self, route: Route) -> Arc<Pool> {
        let known = self.read();
        if known.age.is_alone() || route == Route::Named {
            return self.home.clone();
        }
        let node = known.node(route, self.salt).or(known.leader);
        let pool = node.and_then(|node| known.pools.get(&node)).unwrap_or(&self.home);
        if route != Route::Any && node.is_some() || !known.is_silent(pool) {
            return pool.clone();
        }
        // Nobody is known to lead, or nobody hears who does: whoever answers, those first that the caller has named.
        let mut others = std::iter::once(&self.home).chain(known.pools.values());
        others.find(|other| !known.is_silent(other)).unwrap_or(pool).clone()
    }

    /// The connections to a server that has what is to be read and is none of `passed`.
    pub(crate) fn another(&self, route: Route, passed: &[ServerAddr]) -> Option<Arc<Pool>> {
        let Route::Read(chunk) = route else { return None };
        let known = self.read();
        let pools = || known.serving(chunk).unwrap_or_default().iter().filter_map(|node| known.pools.get(node));
        let mut fresh = pools().filter(|pool| !passed.contains(pool.address()));
        let answering = fresh.clone().find(|pool| !known.is_silent(pool));
        answering.or_else(|| fresh.next()).cloned()
    }

    /// True if both are answered by one server.
    pub(crate) fn is_same(&self, one: Route, other: Route) -> bool {
        let known = self.read();
        known.age.is_alone() || known.node(one, self.salt) == known.node(other, self.salt)
    }

    /// The servers to ask for the map, the likeliest first.
    pub(crate) fn all(&self) -> Vec<Arc<Pool>> {
        let known = self.read();
        let first = known.leader.and_then(|leader| known.pools.get(&leader));
        let mut all: Vec<Arc<Pool>> =
            first.into_iter().chain(known.pools.values()).chain([&self.home]).cloned().collect();
        let mut seen = Vec::new();
        all.retain(|pool| {
            let is_new = !seen.contains(pool.address());
            seen.push(pool.address().clone());
            is_new
        });
        all
    }

    /// True once in each `pause`, for one of all those that wait.
    pub(crate) fn may_look(&self, now: MonoTime, pause: Duration) -> bool {
        let looked = self.looked.load(Ordering::Relaxed);
        let is_due = now.since_ns(MonoTime(looked)) >= pause.as_nanos() as u64;
        is_due && self.looked.compare_exchange(looked, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Held by the call that asks for the map; `None` if another has brought one newer than `age` meanwhile.
    pub(crate) fn asking(&self, age: Age) -> Option<MutexGuard<'_, ()>> {
        let guard = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        (self.age() == age).then_some(guard)
    }

    /// A server answered with this map. What is older in it than is known changes nothing. True if another server leads now.
    pub(crate) fn learn(&self, map: &ClusterMapReply) -> bool {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // One that is no newer says nothing of who answers: while a majority is lost there is no other.
        if Age::of(map).is_newer_than(known.age) {
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
                tracing::warn!(node.node, node.address, "the cluster's map names an address that is none");
                continue;
            };
            let id = NodeId(node.node);
            let pool = match known.pools.remove(&id).filter(|pool| *pool.address() == address) {
                Some(pool) => pool,
                None if *self.home.address() == address => self.home.clone(),
                None => Arc::new(Pool::new(address, None, self.connections_max)),
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

    /// The server behind `pool` did not answer: others are asked while there are any.
    pub(crate) fn was_silent(&self, pool: &Pool) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.silent.retain(|(address, _)| address != pool.address());
        known.silent.push((pool.address().clone(), mono()));
    }

    /// The servers of the cluster, those first that serve most of `chunks`, with their addresses; who does not answer comes
    /// last. Empty where the server is alone.
    pub(crate) fn holders(&self, chunks: impl Iterator<Item = ChunkId>) -> Vec<(NodeId, ServerAddr)> {
        let known = self.read();
        let mut held: BTreeMap<NodeId, usize> = known.pools.keys().map(|node| (*node, 0)).collect();
        for node in chunks.filter_map(|chunk| known.serving(chunk)).flatten() {
            held.entry(*node).and_modify(|count| *count += 1);
        }
        let mut nodes: Vec<(NodeId, usize)> = held.into_iter().collect();
        nodes.sort_by_key(|(node, count)| (known.is_silent_node(*node), std::cmp::Reverse(*count), *node));
        nodes.iter().filter_map(|(node, _)| Some((*node, known.pools.get(node)?.address().clone()))).collect()
    }

    /// An idle connection of any server on which answers wait that nobody reads.
    pub(crate) fn take_owing(&self) -> Option<crate::pool::Place> {
        self.all().iter().find_map(Pool::take_owing)
    }

    /// Connections that calls have borrowed now.
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

    /// No call gets a connection any more.
    pub(crate) fn close(&self) {
        self.home.close();
        self.all().iter().for_each(|pool| pool.close());
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// True if the server behind `pool` did not answer lately.
    fn is_silent(&self, pool: &Pool) -> bool {
        self.silent.iter().any(|(address, since)| {
            address == pool.address() && u128::from(mono().since_ns(*since)) < SILENT_FOR.as_nanos()
        })
    }

    fn is_silent_node(&self, node: NodeId) -> bool {
        self.pools.get(&node).is_some_and(|pool| self.is_silent(pool))
    }

    /// Who serves a chunk, its head first.
    fn serving(&self, chunk: ChunkId) -> Option<&[NodeId]> {
        let ChainId(chain) = chunk.chain(u32::try_from(self.chains.len()).ok().filter(|count| *count > 0)?);
        self.chains.get(chain as usize).map(Vec::as_slice)
    }

    fn node(&self, route: Route, salt: u32) -> Option<NodeId> {
        match route {
            Route::Lead | Route::Any => self.leader,
            Route::Named => None,
            Route::Write(chunk) => self.serving(chunk)?.first().copied(),
            Route::Read(chunk) => {
                let serving = self.serving(chunk)?;
                let answering = || serving.iter().filter(|node| !self.is_silent_node(**node));
                let count = answering().count();
                // Neighbouring chunks go to different servers: a reader of a whole file uses all of them.
                let at = salt.wrapping_add(chunk.index) as usize;
                if count == 0 { serving.first().copied() } else { answering().nth(at % count).copied() }
            }
        }
    }
}

/// For so long a server that did not answer is asked after the others: until then it may be back without a newer map.
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
        Servers::new(Pool::new(address(2), None, 4), 4, 0)
    }

    fn asked(servers: &Servers, route: Route) -> String {
        servers.pool(route).address().to_string()
    }

    /// A chunk that lies on chain `chain` of two.
    fn chunk_on(chain: u32) -> ChunkId {
        let chunks = (0..).map(|index| ChunkId { inode: InodeId(7), index });
        chunks.into_iter().find(|chunk| chunk.chain(2) == ChainId(chain)).expect("they go round")
    }

    #[test]
    fn a_server_that_is_alone_answers_everything() {
        let servers = servers();
        for route in [Route::Lead, Route::Write(chunk_on(0)), Route::Read(chunk_on(1))] {
            assert_eq!(asked(&servers, route), "host2:7470");
        }
        servers.learn(&map(0, 1, &[&[1]]));
        assert!(servers.age().is_alone());
        assert_eq!(asked(&servers, Route::Lead), "host2:7470");
    }

    #[test]
    fn names_go_to_the_leader_and_writes_to_the_head() {
        let servers = servers();
        servers.learn(&map(3, 1, &[&[3, 1], &[2, 3]]));
        assert_eq!(asked(&servers, Route::Lead), "host1:7470");
        assert_eq!(asked(&servers, Route::Write(chunk_on(0))), "host3:7470");
        assert_eq!(asked(&servers, Route::Write(chunk_on(1))), "host2:7470");
        assert!(!servers.is_same(Route::Write(chunk_on(0)), Route::Write(chunk_on(1))));
    }

    #[test]
    fn what_a_server_says_of_itself_it_is_asked_itself_whoever_leads() {
        let servers = servers();
        servers.learn(&map(3, 1, &[&[3, 1], &[2, 3]]));
        assert_eq!(asked(&servers, Route::Named), "host2:7470");
        // Nor is another asked while it does not answer.
        servers.was_silent(&servers.pool(Route::Named));
        assert_eq!(asked(&servers, Route::Named), "host2:7470");
    }

    #[test]
    fn what_is_older_in_a_map_changes_nothing() {
        let servers = servers();
        let asked = || (asked(&servers, Route::Lead), asked(&servers, Route::Write(chunk_on(0))));
        let hosts = |lead: u32, head: u32| (address(lead).to_string(), address(head).to_string());
        servers.learn(&map(3, 2, &[&[3, 1], &[3, 1]]));
        assert_eq!(asked(), hosts(2, 3));
        servers.learn(&map(2, 1, &[&[2, 1], &[2, 1]]));
        assert_eq!(asked(), hosts(2, 3));
        // Chains of before the leader of now.
        servers.learn(&map(2, 3, &[&[2, 1], &[2, 1]]));
        assert_eq!((asked(), servers.age()), (hosts(3, 3), Age { version: 3, term: 3 }));
        // And the other way round.
        servers.learn(&map(4, 2, &[&[1], &[1]]));
        assert_eq!((asked(), servers.age()), (hosts(3, 1), Age { version: 4, term: 3 }));
    }

    #[test]
    fn holders_are_those_first_that_have_most_and_last_those_that_are_silent() {
        let servers = servers();
        let holders = |chunks: &[ChunkId]| -> Vec<u32> {
            servers.holders(chunks.iter().copied()).iter().map(|(node, _)| node.0).collect()
        };
        assert_eq!(holders(&[chunk_on(0)]), [], "alone");
        servers.learn(&map(3, 1, &[&[3, 2], &[3, 1]]));
        assert_eq!(holders(&[chunk_on(0)]), [2, 3, 1]);
        assert_eq!(holders(&[chunk_on(0), chunk_on(1)]), [3, 1, 2]);
        servers.was_silent(&servers.pool(Route::Write(chunk_on(1))));
        assert_eq!(holders(&[chunk_on(0), chunk_on(1)]), [1, 2, 3]);
    }

    #[test]
    fn what_any_server_answers_is_asked_of_one_that_is_left_whoever_named_the_lost_ones_as_leader() {
        let servers = servers();
        let lost = map(3, 1, &[&[1, 2, 3]]);
        servers.learn(&lost);
        assert_eq!(asked(&servers, Route::Any), "host1:7470", "who leads is never behind");
        // The leader and the one that the caller named are lost; the one that is left knows of no newer map.
        for node in [1, 2] {
            servers.was_silent(&Pool::new(address(node), None, 1));
            servers.learn(&lost);
        }
        assert_eq!(asked(&servers, Route::Any), "host3:7470");
        servers.learn(&ClusterMapReply { leader: 0, term: 2, ..lost.clone() });
        assert_eq!(asked(&servers, Route::Any), "host2:7470", "something is new: all may answer again");
        servers.was_silent(&Pool::new(address(2), None, 1));
        assert_eq!(asked(&servers, Route::Any), "host1:7470");
        servers.was_silent(&Pool::new(address(1), None, 1));
        assert_eq!(
            (asked(&servers, Route::Any), asked(&servers, Route::Lead)),
            ("host3:7470".into(), "host3:7470".into())
        );
    }

    #[test]
    fn readers_use_every_server_of_a_chain_but_those_that_are_silent() {
        let servers = servers();
        servers.learn(&map(1, 1, &[&[1, 2, 3]]));
        let read = |servers: &Servers| -> Vec<String> {
            let chunk = |index| ChunkId { inode: InodeId(7), index };
            let mut found: Vec<String> = (0..12).map(|index| asked(servers, Route::Read(chunk(index)))).collect();
            found.sort();
            found.dedup();
            found
        };
        assert_eq!(read(&servers).len(), 3);
        servers.was_silent(&Pool::new(address(1), None, 1));
        assert_eq!(read(&servers), ["host2:7470", "host3:7470"]);
        // When all are, they are asked all the same.
        servers.was_silent(&Pool::new(address(2), None, 1));
        servers.was_silent(&Pool::new(address(3), None, 1));
        assert_eq!(read(&servers), ["host1:7470"]);
        servers.learn(&map(1, 1, &[&[1, 2, 3]]));
        assert_eq!(read(&servers), ["host1:7470"], "a map that says nothing new");
        servers.learn(&map(2, 1, &[&[1, 2, 3]]));
        assert_eq!(read(&servers).len(), 3, "a newer map from anybody clears their names");
    }

    #[test]
    fn the_connections_to_a_server_outlive_a_change_of_the_map() {
        let servers = servers();
        servers.learn(&map(1, 1, &[&[1, 2, 3]]));
        let before = servers.pool(Route::Lead);
        servers.learn(&map(2, 1, &[&[2, 3]]));
        assert!(Arc::ptr_eq(&before, &servers.pool(Route::Lead)));
        assert!(Arc::ptr_eq(servers.home(), &servers.pool(Route::Write(chunk_on(0)))), "it was connected to already");
    }
}
