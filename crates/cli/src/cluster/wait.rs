//! `cluster wait`: until the cluster is as a script needs it.
//!
//! The leader's knowledge of a server that was killed just now is a lease old. So a server counts as online when it has
//! renewed its lease since the command began: heartbeats are numbered, and only a live process sends another one.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Error, Result};
use frieze_base::ErrorKind;
use frieze_client::{Client, ClusterNodeStatus, ClusterReply};

use super::reply::{LOOK_EVERY, alone, to_json};
use crate::args::{ClusterCommand, Goal, WaitArgs};
use crate::failure::{self, UsageError};
use crate::run::CommandRun;

/// Of each server, by its number, its process and the newest heartbeat at the first look.
type Beats = BTreeMap<u32, (u64, Option<u64>)>;

/// Waits, and prints what is missing whenever that changes: at first that no server answers, if that is so.
pub(super) fn wait(run: &mut CommandRun, what: &ClusterCommand, args: &WaitArgs) -> Result<()> {
    let limit = Duration::from_secs(run.common.timeout.into());
    let began = frieze_client::mono();
    let mut first: Option<Beats> = None;
    let mut last = String::new();
    loop {
        let waited = Duration::from_nanos(frieze_client::mono().since_ns(began));
        let (words, detail) = match ask(run, limit.saturating_sub(waited)) {
            Ok((_, reply)) if reply.cluster.is_empty() && args.goal == Goal::Joined => {
                let name = args.node.as_deref().unwrap_or("another");
                (format!("the server is alone: {name} has not joined it yet"), String::new())
            }
            Ok((client, reply)) if reply.cluster.is_empty() => return alone(run, &client, Some(what)),
            Ok((_, reply)) => {
                let first = first.get_or_insert_with(|| beats(&reply));
                match lacking(&reply, args, first)? {
                    None => return reached(run, args, &reply),
                    Some(words) => (words, String::new()),
                }
            }
            Err(error) => match failure::fault_of(&error) {
                Some(fault) if fault.kind() == ErrorKind::Unavailable => {
                    let what = match error.downcast_ref() {
                        Some(frieze_client::Error::Unanswered { refused: true, .. }) => {
                            "the cluster does not answer yet"
                        }
                        _ => "no server of the cluster answers",
                    };
                    (what.to_owned(), format!(": {}", failure::words(&error)))
                }
                _ => return Err(error),
            },
        };
        if words != last && !run.common.quiet {
            run.say(&format!("{words}{detail}"));
        }
        last = words;
        let waited = Duration::from_nanos(frieze_client::mono().since_ns(began));
        // A last request with no time left for its answer would only hide the earlier findings.
        if waited + LOOK_EVERY >= limit {
            return Err(Error::msg(format!("not within {} s (--timeout): {last}", limit.as_secs())));
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Asks how the cluster is, within `left`; connects first if that has not been possible yet.
fn ask(run: &mut CommandRun, left: Duration) -> Result<(Client, ClusterReply)> {
    let client = run.client()?.clone();
    // No call retries for longer than that.
    client.end_within(left);
    let reply = client.cluster(None)?;
    Ok((client, reply))
}

fn beats(reply: &ClusterReply) -> Beats {
    reply.nodes.iter().map(|node| (node.node, (node.incarnation, node.heartbeat))).collect()
}

/// True if a process of the server has spoken since.
fn has_spoken(node: &ClusterNodeStatus, first: &Beats) -> bool {
    let before = first.get(&node.node).copied().unwrap_or_default();
    node.heartbeat.is_some() && (node.incarnation, node.heartbeat) > before
}

/// What is missing, as text; `None` if the goal is reached.
///
/// # Errors
/// [`UsageError`] or words if it cannot come to be.
fn lacking(reply: &ClusterReply, args: &WaitArgs, first: &Beats) -> Result<Option<String>> {
    if reply.leader == 0 || reply.told_by != reply.leader {
        return Ok(Some("no server leads at the moment".to_owned()));
    }
    let name = args.node.as_deref();
    let is_named =
        |node: &&ClusterNodeStatus| name.is_none_or(|name| node.name == name || name.parse() == Ok(node.node));
    let mut named = reply.nodes.iter().filter(is_named).peekable();
    match args.goal {
        Goal::Whole => {
            let missing = reply.chains.len().saturating_sub(reply.whole as usize);
            if missing > 0 {
                let why = reply.troubles.iter().map(|trouble| trouble.what.as_str()).next();
                return Ok(Some(why.map_or_else(|| format!("{missing} chains are not whole"), str::to_owned)));
            }
            // A server between two leases has a trouble: "whole" is not said of it.
            let has_lease = |node: &ClusterNodeStatus| node.lease_left_ms.is_some_and(|left| left > 0);
            // By its own words, which come with its heartbeats: they may be older than its lease.
            let lacked_lease = |node: &ClusterNodeStatus| node.trouble.contains(ClusterNodeStatus::NO_LEASE);
            let is_silent =
                |node: &&ClusterNodeStatus| !has_spoken(node, first) || !has_lease(node) || lacked_lease(node);
            let silent = reply.nodes.iter().filter(|node| node.state == "up").find(is_silent);
            if let Some(node) = silent {
                return Ok(Some(format!("{} has not renewed its lease yet", node.name)));
            }
            // Until it votes, the cluster may not survive the loss of another server.
            let has_no_vote_yet = |node: &&ClusterNodeStatus| matches!(node.metalog.as_str(), "" | "joining");
            let joining = reply.nodes.iter().filter(|node| node.state == "up").find(has_no_vote_yet);
            Ok(joining.map(|node| format!("{} has joined and does not vote yet", node.name)))
        }
        Goal::Joined => {
            if let (Some(name), None) = (name, named.peek()) {
                return Ok(Some(format!("{name} is none of the cluster yet")));
            }
            let away = named.find(|node| !matches!(node.state.as_str(), "up" | "draining") || !has_spoken(node, first));
            Ok(away.map(|node| match node.state.as_str() {
                "up" | "draining" => format!("{} has not renewed its lease yet", node.name),
                state => format!("{} is {state}", node.name),
            }))
        }
        Goal::Drained => match named.next() {
            // It was removed meanwhile.
            None if first.len() > reply.nodes.len() => Ok(None),
            None => {
                let names: Vec<&str> = reply.nodes.iter().map(|node| node.name.as_str()).collect();
                let name = name.unwrap_or_default();
                Err(UsageError(format!("there is no server {name:?} in this cluster, only {}", names.join(", ")))
                    .into())
            }
            Some(node) if node.state == "up" => Err(Error::msg(format!(
                "{} does not drain: 'frieze cluster drain {}' has it give its chains away",
                node.name, node.name
            ))),
            Some(node) if node.targets == 0 => Ok(None),
            Some(node) => Ok(Some(format!("{} has {} chains left to give away", node.name, node.targets))),
        },
    }
}

fn reached(run: &mut CommandRun, args: &WaitArgs, reply: &ClusterReply) -> Result<()> {
    let words = || match (args.goal, &args.node) {
        (Goal::Whole, _) => {
            format!(
                "whole: {} chains with {} of {} copies",
                reply.chains.len(),
                reply.copies_wanted,
                reply.copies_wanted
            )
        }
        (Goal::Joined, Some(name)) => format!("joined: {name}"),
        (Goal::Joined, None) => format!("joined: {} servers", reply.nodes.len()),
        (Goal::Drained, name) => format!("drained: {}", name.as_deref().unwrap_or_default()),
    };
    run.item(|| to_json(reply), || Some(words()))
}

#[cfg(test)]
mod tests {
    use frieze_client::ClusterChain;

    use super::*;

    fn node(number: u32, state: &str, heartbeat: Option<u64>) -> ClusterNodeStatus {
        let name = format!("db{number}");
        ClusterNodeStatus {
            node: number,
            name,
            state: state.to_owned(),
            incarnation: 4,
            heartbeat,
            lease_left_ms: Some(1_500),
            metalog: "voter".to_owned(),
            ..ClusterNodeStatus::default()
        }
    }

    fn reply(nodes: Vec<ClusterNodeStatus>) -> ClusterReply {
        let chains = vec![ClusterChain::default(); 8];
        ClusterReply { leader: 1, told_by: 1, nodes, chains, whole: 8, copies_wanted: 3, ..ClusterReply::default() }
    }

    fn words(reply: &ClusterReply, goal: Goal, name: Option<&str>, first: &Beats) -> Result<Option<String>, String> {
        let args = WaitArgs { goal, node: name.map(str::to_owned) };
        lacking(reply, &args, first).map_err(|error| error.to_string())
    }

    #[test]
    fn a_cluster_is_whole_when_every_server_has_spoken_since_it_was_asked() {
        let before = reply(vec![node(1, "up", Some(7)), node(2, "up", Some(9))]);
        let first = beats(&before);
        let said = |reply: &ClusterReply| words(reply, Goal::Whole, None, &first);
        assert_eq!(said(&before), Ok(Some("db1 has not renewed its lease yet".to_owned())));
        let mut now = reply(vec![node(1, "up", Some(8)), node(2, "up", Some(9))]);
        assert_eq!(said(&now), Ok(Some("db2 has not renewed its lease yet".to_owned())));
        // Another process of it counts from its first heartbeat, and only when the log knows it.
        (now.nodes[1].incarnation, now.nodes[1].heartbeat) = (5, None);
        assert!(said(&now).unwrap().is_some());
        now.nodes[1].heartbeat = Some(1);
        assert_eq!(said(&now), Ok(None));
        for ended in [Some(0), None] {
            now.nodes[0].lease_left_ms = ended;
            assert_eq!(said(&now), Ok(Some("db1 has not renewed its lease yet".to_owned())));
        }
        now.nodes[0].lease_left_ms = Some(900);
        now.nodes[0].trouble =
            format!("a disk; {}: this server answers for none of its chains", ClusterNodeStatus::NO_LEASE);
        assert_eq!(said(&now), Ok(Some("db1 has not renewed its lease yet".to_owned())));
        now.nodes[0].trouble = "a disk".to_owned();
        for before_it_votes in ["", "joining"] {
            now.nodes[1].metalog = before_it_votes.to_owned();
            assert_eq!(said(&now), Ok(Some("db2 has joined and does not vote yet".to_owned())));
        }
        now.nodes[1].metalog = "learner".to_owned();
        assert_eq!(said(&now), Ok(None), "five others vote");
        now.whole = 7;
        assert_eq!(said(&now), Ok(Some("1 chains are not whole".to_owned())));
        (now.whole, now.told_by) = (8, 2);
        assert_eq!(said(&now), Ok(Some("no server leads at the moment".to_owned())));
    }

    #[test]
    fn a_server_has_joined_when_it_is_up_and_has_spoken() {
        let first = beats(&reply(vec![node(1, "up", Some(7))]));
        let now = reply(vec![node(1, "up", Some(8)), node(2, "offline", None)]);
        let said = |name| words(&now, Goal::Joined, name, &first);
        assert_eq!(said(Some("db1")), Ok(None));
        assert_eq!(said(Some("db2")), Ok(Some("db2 is offline".to_owned())));
        assert_eq!(said(Some("2")), Ok(Some("db2 is offline".to_owned())));
        assert_eq!(said(Some("db3")), Ok(Some("db3 is none of the cluster yet".to_owned())));
        assert_eq!(said(None), Ok(Some("db2 is offline".to_owned())));
    }

    #[test]
    fn a_server_is_drained_when_it_has_no_chains_and_cannot_be_if_it_does_not_drain() {
        let mut now = reply(vec![node(1, "up", Some(8)), node(2, "draining", Some(3))]);
        now.nodes[1].targets = 2;
        let first = beats(&now);
        let said = |now: &ClusterReply, name: &str| words(now, Goal::Drained, Some(name), &first);
        assert_eq!(said(&now, "db2"), Ok(Some("db2 has 2 chains left to give away".to_owned())));
        assert!(said(&now, "db1").unwrap_err().contains("does not drain"));
        assert!(said(&now, "db9").unwrap_err().contains("there is no server"));
        now.nodes[1].targets = 0;
        assert_eq!(said(&now, "db2"), Ok(None));
        now.nodes.pop();
        assert_eq!(said(&now, "db2"), Ok(None), "it was removed");
    }
}
