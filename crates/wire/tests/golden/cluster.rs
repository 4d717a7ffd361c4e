//! What is asked of a cluster and told of it, one of each kind.

use frieze_wire::control;
use frieze_wire::message::*;

use super::AT;

pub(super) fn requests() -> Vec<(&'static str, Request)> {
    vec![
        ("cluster-map", Request::ClusterMap(ClusterMap {})),
        ("cluster", Request::Cluster(Cluster { op: None })),
        ("cluster.drain", Request::Cluster(Cluster { op: Some(ClusterOp::Drain(3)) })),
        ("cluster.undrain", Request::Cluster(Cluster { op: Some(ClusterOp::Undrain(3)) })),
        ("cluster.remove", Request::Cluster(Cluster { op: Some(ClusterOp::Remove(3)) })),
        ("cluster.declare_dead", Request::Cluster(Cluster { op: Some(ClusterOp::DeclareDead(3)) })),
        ("cluster.declare_lost", Request::Cluster(Cluster { op: Some(ClusterOp::DeclareLost(3)) })),
        ("cluster.balance", Request::Cluster(Cluster { op: Some(ClusterOp::Balance(true)) })),
        ("cluster.replicas", Request::Cluster(Cluster { op: Some(ClusterOp::Replicas(3)) })),
        (
            "join",
            Request::Join(Join {
                newcomer: Some(control::NodeInfoProto {
                    name: "n2".into(),
                    address: "b:7470".into(),
                    ..control::NodeInfoProto::default()
                }),
                cluster: "00ff".into(),
                wall_us: 1_763_856_000_000_000,
            }),
        ),
    ]
}

pub(super) fn replies() -> Vec<(&'static str, Reply)> {
    vec![
        ("cluster", Reply::Cluster(cluster_reply())),
        ("cluster-with-rates", Reply::Cluster(cluster_reply_with_rates())),
        ("cluster-with-remains", Reply::Cluster(cluster_reply_with_remains())),
        ("cluster-in-trouble", Reply::Cluster(cluster_reply_in_trouble())),
        (
            "join",
            Reply::Join(JoinReply {
                node: 2,
                cluster: "00ff".into(),
                secret: vec![5; 32],
                chain_count: 8,
                nodes: vec![NodeAddress { node: 1, address: "a:7470".into() }],
            }),
        ),
        (
            "cluster-map",
            Reply::ClusterMap(ClusterMapReply {
                version: 7,
                leader: 2,
                term: 9,
                nodes: vec![NodeAddress { node: 2, address: "db2:7470".into() }],
                chains: vec![ChainMembers { serving: vec![2, 300, 1] }],
            }),
        ),
    ]
}

fn cluster_reply() -> ClusterReply {
    ClusterReply {
        cluster: "00ff".into(),
        leader: 1,
        told_by: 2,
        version: 40,
        replicas: 3,
        is_balancing: true,
        nodes: vec![ClusterNodeStatus {
            node: 1,
            name: "db1".into(),
            site: "here".into(),
            machine: "box".into(),
            address: "db1:7470".into(),
            state: "up".into(),
            lease_left_ms: Some(1700),
            clock_offset_us: Some(-20),
            targets: 8,
            serving: 7,
            heads: 3,
            to_drain: 1,
            capacity_bytes: 1 << 40,
            remains_chains: None,
            remains_bytes: None,
            incarnation: 0,
            heartbeat: None,
            offline_since: 0,
            last_contact_us: None,
            trouble: String::new(),
            is_full: false,
            has_failed: false,
            metalog: String::new(),
        }],
        chains: vec![ClusterChain {
            chain: 5,
            epoch: 12,
            targets: vec![ClusterTargetStatus {
                node: 1,
                state: "syncing".into(),
                left_bytes: Some(1 << 30),
                left_s: Some(9),
                bytes_per_s: None,
            }],
            waits: "w".into(),
            waits_for: vec![2, 300],
            behind_from: 0,
            behind_to: 0,
        }],
        whole: 7,
        sync_bytes_per_s: 0,
        copies_wanted: 0,
        troubles: Vec::new(),
    }
}

/// The same of a node that others have taken chains over from.
fn cluster_reply_with_remains() -> ClusterReply {
    let mut reply = cluster_reply();
    let node = &mut reply.nodes[0];
    (node.remains_chains, node.remains_bytes) = (Some(0), Some(7 << 30));
    reply
}

/// The same of a cluster that lacks something, from a server that says what.
fn cluster_reply_in_trouble() -> ClusterReply {
    let trouble = Trouble { what: "8 chains have 2 of 3 copies".into(), remedy: "start db3".into() };
    let mut reply = ClusterReply { copies_wanted: 3, troubles: vec![trouble], ..cluster_reply() };
    let node = &mut reply.nodes[0];
    (node.incarnation, node.heartbeat, node.offline_since, node.last_contact_us) =
        (4, Some(9), AT, Some(1_763_856_000_000_000));
    (node.trouble, node.is_full, node.has_failed) = ("fenced".into(), true, true);
    reply
}

/// The same from a server that tells rates.
fn cluster_reply_with_rates() -> ClusterReply {
    let mut reply = ClusterReply { sync_bytes_per_s: 50 << 20, ..cluster_reply() };
    reply.chains[0].targets[0].bytes_per_s = Some(30 << 20);
    reply
}
