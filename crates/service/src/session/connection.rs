//! The peer of a connection: its identity and rights; and which sessions are alive.

use std::collections::BTreeMap;

use frieze_base::{Fault, MonoTime, NodeId, Reason, SessionId};
use frieze_locks::{Mutex, levels};
use frieze_net::{Key, NOBODY, Origin};
use frieze_planes::Principal;
use frieze_wire::message::{Hello, HelloReply, Prove};
use frieze_wire::txn::Caller;

use crate::session::node_keys::NodeKeys;

/// A key and the rights of its bearer.
#[derive(Clone, Debug)]
pub struct KeyRight {
    /// The key.
    pub key: Key,
    /// User of the bearer.
    pub caller: Caller,
    /// True: the bearer may also send requests for other users.
    pub may_impersonate: bool,
}

/// One connection as the sessions sees it.
pub struct Conn {
    challenge: [u8; 32],
    state: Mutex<levels::ConnectionState, ConnState>,
}

struct ConnState {
    greeted: bool,
    proven: bool,
    caller: Caller,
    may_impersonate: bool,
    hello: Option<Hello>,
    session: Option<SessionId>,
    /// Node of the cluster at the other end.
    node: Option<NodeId>,
}

impl Conn {
    /// A connection whose peer the kernel has proven to be `caller`, or not. `challenge` is fresh randomness.
    pub fn new(caller: Option<Caller>, challenge: [u8; 32]) -> Conn {
        let nobody = Caller { uid: NOBODY, gid: NOBODY, groups: Vec::new() };
        let state = ConnState {
            greeted: false,
            proven: caller.is_some(),
            may_impersonate: caller.as_ref().is_some_and(|caller| caller.uid == 0),
            caller: caller.unwrap_or(nobody),
            hello: None,
            session: None,
            node: None,
        };
        Conn { challenge, state: Mutex::new(state) }
    }

    /// Handles the greeting. The reply names the user whose rights the peer has.
    ///
    /// # Errors
    /// `WrongCluster` if the client expects another cluster.
    pub fn hello(&self, hello: Hello, nodes: &NodeKeys, server: HelloReply) -> Result<HelloReply, Fault> {
        if !hello.cluster.is_empty() && hello.cluster != server.cluster {
            return Err(Fault::new(
                Reason::WrongCluster,
                format!("this server belongs to cluster {}, the client expects {}", server.cluster, hello.cluster),
            ));
        }
        let mut state = self.state.lock();
        state.greeted = true;
        let is_node = hello.node != 0;
        let wants_key = is_node || !hello.key_name.is_empty();
        let proof = if is_node { nodes.prove_receiver(&self.challenge, &hello.nonce) } else { Vec::new() };
        state.hello = Some(hello);
        // A peer on another machine cannot use a path of this one, and need not know it.
        let socket = if state.proven { server.socket } else { String::new() };
        let former = if is_node { server.former } else { Vec::new() };
        Ok(HelloReply {
            socket,
            former,
            challenge: if wants_key { self.challenge.to_vec() } else { Vec::new() },
            uid: state.caller.uid,
            may_impersonate: state.may_impersonate,
            proof,
            ..server
        })
    }

    /// Verifies the peer's proof of a key. The reply names the user whose rights the peer has now.
    ///
    /// # Errors
    /// `Unproven` for an unknown key or a wrong answer, in the same words.
    pub fn prove(
        &self,
        prove: &Prove,
        keys: &BTreeMap<String, KeyRight>,
        nodes: &NodeKeys,
        server: HelloReply,
    ) -> Result<HelloReply, Fault> {
        let mut state = self.state.lock();
        let refused =
            || Fault::new(Reason::Unproven, "the key was not accepted: check its name and secret on both ends");
        let hello = state.hello.take().ok_or_else(refused)?;
        if hello.node != 0 {
            if !nodes.is_sender(&self.challenge, &hello.nonce, &prove.mac) {
                return Err(Fault::new(
                    Reason::Unproven,
                    format!("node {} does not hold the secret of this cluster: it belongs to another", hello.node),
                ));
            }
            state.node = Some(NodeId(hello.node));
            return Ok(HelloReply { socket: String::new(), former: Vec::new(), ..server });
        }
        let right = keys.get(&hello.key_name).ok_or_else(refused)?;
        if !right.key.verify(&self.challenge, &hello.nonce, &prove.mac) {
            return Err(refused());
        }
        state.proven = true;
        state.caller = right.caller.clone();
        state.may_impersonate = right.may_impersonate;
        let (uid, may_impersonate) = (state.caller.uid, state.may_impersonate);
        Ok(HelloReply { uid, may_impersonate, socket: String::new(), former: Vec::new(), ..server })
    }

    /// The users of a request, given the caller that it names.
    ///
    /// # Errors
    /// `BadFrame` before the greeting; `Unproven` if nothing proves the peer's identity; `NotPermitted` if the request
    /// names a user that the peer may not act for.
    pub(crate) fn principal(&self, named: Option<Caller>) -> Result<Principal, Fault> {
        let state = self.state.lock();
        if !state.greeted {
            return Err(Fault::new(
                Reason::BadFrame,
                "malformed frame: the first message of a connection must be Hello",
            ));
        }
        if !state.proven {
            return Err(Fault::new(
                Reason::Unproven,
                "the caller is not proven: connect from this machine over loopback or a Unix socket, or use a key \
                 (--key)",
            ));
        }
        let caller = match named {
            None => state.caller.clone(),
            Some(caller) if state.may_impersonate => caller,
            Some(caller) if caller.uid == state.caller.uid && within(&caller, &state.caller) => caller,
            Some(caller) => {
                return Err(Fault::new(
                    Reason::NotPermitted,
                    format!(
                        "user {} may not speak for user {}: only root or a key with that right may",
                        state.caller.uid, caller.uid
                    ),
                ));
            }
        };
        Ok(Principal { uid: state.caller.uid, caller, privileged: state.may_impersonate })
    }

    /// Revokes the peer's proof that it is a node.
    pub(crate) fn disown(&self) {
        self.state.lock().node = None;
    }

    /// Owner of the connection, once the peer has greeted and proven its identity.
    pub fn origin(&self) -> Option<Origin> {
        let state = self.state.lock();
        match state.node {
            Some(_) => Some(Origin::Server),
            None => (state.greeted && state.proven).then_some(Origin::User(state.caller.uid)),
        }
    }

    /// The peer's node, if it has proven to be one.
    pub fn node(&self) -> Option<NodeId> {
        self.state.lock().node
    }

    /// The session last found to belong to this connection's user.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.state.lock().session
    }

    /// Notes that `session` belongs to this connection's user. Returns the one noted before.
    fn adopt(&self, session: SessionId) -> Option<SessionId> {
        self.state.lock().session.replace(session)
    }
}

/// True if every group of `asked` is one that the kernel or the user database gave `proven`.
fn within(asked: &Caller, proven: &Caller) -> bool {
    std::iter::once(&asked.gid).chain(&asked.groups).all(|group| proven.in_group(*group))
}

/// SessionTable with connections, and since when the other sessions have none.
#[derive(Default)]
pub struct SessionTable {
    alive: Mutex<levels::SessionTimes, BTreeMap<SessionId, LiveSession>>,
}

struct LiveSession {
    connections: u32,
    idle_since: MonoTime,
}

impl LiveSession {
    fn is_expired(&self, now: MonoTime, timeout_ns: u64) -> bool {
        self.connections == 0 && now.since_ns(self.idle_since) > timeout_ns
    }
}

impl SessionTable {
    /// Counts a connection that uses `session`, whose owner has been checked.
    pub(crate) fn attach(&self, conn: &Conn, session: SessionId, now: MonoTime) {
        let before = conn.adopt(session);
        if before == Some(session) {
            return;
        }
        let mut alive = self.alive.lock();
        alive.entry(session).or_insert(LiveSession { connections: 0, idle_since: now }).connections += 1;
        if let Some(before) = before {
            leave(&mut alive, before, now);
        }
    }

    /// Uncounts a closed connection.
    pub(crate) fn detach(&self, conn: &Conn, now: MonoTime) {
        if let Some(session) = conn.session() {
            leave(&mut self.alive.lock(), session, now);
        }
    }

    /// Adds a session that recovery found: it has no connection yet.
    pub fn found(&self, session: SessionId, now: MonoTime) {
        let mut alive = self.alive.lock();
        alive.entry(session).or_insert(LiveSession { connections: 0, idle_since: now });
    }

    /// Another server has connections of these sessions.
    pub fn connected_remotely(&self, sessions: impl Iterator<Item = SessionId>, now: MonoTime) {
        let mut alive = self.alive.lock();
        for session in sessions {
            if let Some(state) = alive.get_mut(&session) {
                state.idle_since = now;
            }
        }
    }

    /// Restarts the timeout of every known session: other servers know which of them were connected there meanwhile.
    pub(crate) fn renew(&self, now: MonoTime) {
        let mut alive = self.alive.lock();
        alive.values_mut().for_each(|state| state.idle_since = now);
    }

    /// SessionTable with a connection here.
    pub(crate) fn connected(&self) -> Vec<SessionId> {
        let alive = self.alive.lock();
        alive.iter().filter(|(_, state)| state.connections > 0).map(|(id, _)| *id).collect()
    }

    /// The session has ended.
    pub fn forget(&self, session: SessionId) {
        self.alive.lock().remove(&session);
    }

    /// Every known session.
    pub(crate) fn known(&self) -> Vec<SessionId> {
        self.alive.lock().keys().copied().collect()
    }

    /// SessionTable without a connection for longer than `timeout_ns`.
    pub fn expired(&self, now: MonoTime, timeout_ns: u64) -> Vec<SessionId> {
        let alive = self.alive.lock();
        alive.iter().filter(|(_, state)| state.is_expired(now, timeout_ns)).map(|(id, _)| *id).collect()
    }

    /// True if this session has had no connection for longer than `timeout_ns`.
    pub fn has_expired(&self, session: SessionId, now: MonoTime, timeout_ns: u64) -> bool {
        let alive = self.alive.lock();
        alive.get(&session).is_some_and(|state| state.is_expired(now, timeout_ns))
    }
}

fn leave(alive: &mut BTreeMap<SessionId, LiveSession>, session: SessionId, now: MonoTime) {
    if let Some(state) = alive.get_mut(&session) {
        state.connections = state.connections.saturating_sub(1);
        state.idle_since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32) -> Caller {
        Caller { uid, gid: uid, groups: vec![50] }
    }

    fn nodes() -> NodeKeys {
        NodeKeys::of([5; 32])
    }

    fn greeted(caller: Option<Caller>) -> Conn {
        let conn = Conn::new(caller, [7; 32]);
        conn.hello(Hello::default(), &nodes(), HelloReply::default()).expect("greets");
        conn
    }

    #[test]
    fn only_root_speaks_for_others() {
        assert_eq!(greeted(Some(Caller::root())).principal(Some(user(5))).map(|p| p.caller), Ok(user(5)));
        let conn = greeted(Some(user(5)));
        assert!(conn.principal(Some(user(6))).is_err());
        assert!(conn.principal(Some(Caller { uid: 5, gid: 0, groups: vec![] })).is_err(), "a group it is not in");
        assert_eq!(conn.principal(None).map(|p| p.uid), Ok(5));
    }

    #[test]
    fn an_unproven_caller_is_refused_until_a_key_proves_it() {
        let conn = Conn::new(None, [7; 32]);
        let key = Key::new("k", b"0123456789abcdef".to_vec()).expect("a key");
        let right = KeyRight { key: key.clone(), caller: user(9), may_impersonate: false };
        let keys = BTreeMap::from([("k".to_owned(), right)]);
        let hello = Hello { key_name: "k".to_owned(), nonce: vec![1; 32], ..Hello::default() };
        let reply = conn.hello(hello, &nodes(), HelloReply::default()).expect("greets");
        assert_eq!(conn.principal(None).map(|p| p.uid).unwrap_err().reason, Reason::Unproven);
        let mac = key.prove(&reply.challenge, &[1; 32]).to_vec();
        conn.prove(&Prove { mac: mac.clone() }, &keys, &nodes(), HelloReply::default()).expect("proves");
        assert_eq!(conn.principal(None).map(|p| p.uid), Ok(9));
        assert!(conn.prove(&Prove { mac }, &keys, &nodes(), HelloReply::default()).is_err(), "an answer is good once");
    }

    #[test]
    fn a_node_proves_itself_by_the_secret_of_the_cluster_and_is_proven_to() {
        let (ours, others) = (nodes(), NodeKeys::of([6; 32]));
        let (hello, challenge) = (Hello { node: 3, nonce: vec![1; 32], ..Hello::default() }, [7; 32]);
        // Root on this machine is no node by that alone.
        let conn = Conn::new(Some(Caller::root()), challenge);
        let reply = conn.hello(hello.clone(), &ours, HelloReply::default()).expect("greets");
        assert!(ours.is_receiver(&reply.challenge, &hello.nonce, &reply.proof));
        assert!(!others.is_receiver(&reply.challenge, &hello.nonce, &reply.proof));
        let wrong = others.prove_sender(&reply.challenge, &hello.nonce);
        let told = conn.prove(&Prove { mac: wrong }, &BTreeMap::new(), &ours, HelloReply::default());
        assert_eq!((told.map(drop).unwrap_err().reason, conn.node()), (Reason::Unproven, None));

        let conn = Conn::new(None, challenge);
        let reply = conn.hello(hello.clone(), &ours, HelloReply::default()).expect("greets");
        // The server's own proof, reflected, proves no peer to it.
        let reflected = conn.prove(&Prove { mac: reply.proof }, &BTreeMap::new(), &ours, HelloReply::default());
        assert_eq!((reflected.is_err(), conn.node()), (true, None));
        let conn = Conn::new(None, challenge);
        conn.hello(hello.clone(), &ours, HelloReply::default()).expect("greets");
        let mac = ours.prove_sender(&challenge, &hello.nonce);
        conn.prove(&Prove { mac }, &BTreeMap::new(), &ours, HelloReply::default()).expect("proves");
        assert_eq!(conn.node(), Some(NodeId(3)));
        assert!(conn.principal(None).is_err(), "a node asks for nobody");
    }

    #[test]
    fn a_session_expires_only_without_connections() {
        let sessions = SessionTable::default();
        let (one, two) = (greeted(Some(user(5))), greeted(Some(user(5))));
        sessions.attach(&one, SessionId(1), MonoTime(0));
        sessions.attach(&two, SessionId(1), MonoTime(0));
        sessions.detach(&one, MonoTime(10));
        assert!(sessions.expired(MonoTime(1000), 100).is_empty());
        sessions.detach(&two, MonoTime(20));
        assert!(sessions.expired(MonoTime(120), 100).is_empty());
        assert_eq!(sessions.expired(MonoTime(121), 100), [SessionId(1)]);
        assert!(sessions.has_expired(SessionId(1), MonoTime(121), 100));
        // The session is connected again while others are being ended.
        sessions.attach(&greeted(Some(user(5))), SessionId(1), MonoTime(130));
        assert!(!sessions.has_expired(SessionId(1), MonoTime(300), 100));
    }
}
