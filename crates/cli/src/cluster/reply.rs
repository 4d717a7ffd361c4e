//! Replies about a cluster: as JSON, and of a single server.

use std::time::Duration;

use anyhow::{Error, Result};
use frieze_client::{Client, ClusterChain, ClusterNodeStatus, ClusterOp, ClusterReply, Hlc};
use serde_json::{Value, json};

use crate::args::{ClusterCommand, Goal};
use crate::format;
use crate::run::CommandRun;
use crate::server::troubles_to_json;

/// Interval between two requests for the progress.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The only operation on a single server: the number of copies once other servers join it. Everything else needs a
/// cluster.
pub(super) fn alone(run: &mut CommandRun, client: &Client, what: Option<&ClusterCommand>) -> Result<()> {
    const ALONE: &str =
        "the server is alone: start another with 'frieze serve --dir DIR --join ADDR' to begin a cluster";
    let reply = match what.unwrap_or(&ClusterCommand::Status) {
        ClusterCommand::Replicas { count } => client.cluster(Some(ClusterOp::Replicas(*count)))?,
        // Every copy that is wanted is there.
        ClusterCommand::Status | ClusterCommand::Nodes | ClusterCommand::Chains => client.cluster(None)?,
        ClusterCommand::Wait(args) if args.goal == Goal::Whole => client.cluster(None)?,
        _ => return Err(Error::msg(ALONE)),
    };
    // A server of an older version, or one that has founded a cluster meanwhile, does not report it.
    let copies = match reply.replicas {
        0 => String::new(),
        1 => "; everything is to have 1 copy then".to_owned(),
        copies => format!("; everything is to have {copies} copies then, or as many as there are servers"),
    };
    run.item(|| json!({ "cluster": null, "replicas": reply.replicas }), || Some(format!("{ALONE}{copies}")))
}

pub(super) fn to_json(reply: &ClusterReply) -> Value {
    json!({
        "cluster": reply.cluster,
        "leader": reply.leader,
        "told_by": reply.told_by,
        "version": reply.version,
        "replicas": reply.replicas,
        "balancing": reply.is_balancing,
        "copies_wanted": reply.copies_wanted,
        "whole": reply.whole,
        "troubles": troubles_to_json(&reply.troubles),
        "sync_bytes_per_s": reply.sync_bytes_per_s,
        "nodes": reply.nodes.iter().map(node_json).collect::<Vec<_>>(),
        "chains": reply.chains.iter().map(chain_json).collect::<Vec<_>>(),
    })
}

pub(super) fn node_json(node: &ClusterNodeStatus) -> Value {
    json!({
        "node": node.node,
        "name": node.name,
        "machine": node.machine,
        "site": node.site,
        "address": node.address,
        "state": node.state,
        "metalog": (!node.metalog.is_empty()).then_some(&node.metalog),
        "lease_left_ms": node.lease_left_ms,
        "clock_offset_us": node.clock_offset_us,
        "targets": node.targets,
        "serving": node.serving,
        "heads": node.heads,
        "to_drain": node.to_drain,
        "capacity_bytes": node.capacity_bytes,
        "remains_chains": node.remains_chains,
        "remains_bytes": node.remains_bytes,
        "incarnation": node.incarnation,
        "heartbeat": node.heartbeat,
        "offline_since": (node.offline_since > 0).then(|| Hlc(node.offline_since).to_string()),
        "last_contact": node.last_contact_us.map(|us| format::time_of(Hlc::first_of_micros(us))),
        "trouble": (!node.trouble.is_empty()).then_some(&node.trouble),
        "disk_full": node.is_full,
        "disk_failed": node.has_failed,
    })
}

pub(super) fn chain_json(chain: &ClusterChain) -> Value {
    let target = |target: &frieze_client::ClusterTargetStatus| {
        json!({
            "node": target.node,
            "state": target.state,
            "left_bytes": target.left_bytes,
            "left_s": target.left_s,
            "bytes_per_s": target.bytes_per_s,
        })
    };
    let stamp = |stamp: u64| Hlc(stamp).to_string();
    let (from, to) = (chain.behind_from, chain.behind_to);
    let lost = (to > 0).then(|| json!({ "from": stamp(from), "to": stamp(to) }));
    json!({
        "chain": chain.chain,
        "epoch": chain.epoch,
        "waits": chain.waits,
        "waits_for": chain.waits_for,
        "lost": lost,
        "targets": chain.targets.iter().map(target).collect::<Vec<_>>(),
    })
}
