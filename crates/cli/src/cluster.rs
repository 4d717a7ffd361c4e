//! `cluster`: the servers of a cluster, their state, and operations on them.

mod reply;
mod wait;

use anyhow::{Error, Result};
use frieze_base::Reason;
use frieze_client::{Client, ClusterChain, ClusterNodeStatus, ClusterOp, ClusterReply, Hlc};

use self::reply::{LOOK_EVERY, alone, chain_json, node_json, to_json};
use crate::args::{ClusterArgs, ClusterCommand};
use crate::device;
use crate::failure::{self, ReportedError, UsageError};
use crate::format::{self, TextTable};
use crate::progress::ProgressLine;
use crate::run::CommandRun;
use crate::survivor;

/// How often the lease of a server is looked at that has yet to end: far longer than one takes.
const LEASE_LOOKS_MAX: u32 = 100;
/// The last heartbeat of a server that is away may count after a look, and servers know of it one after the other.
const RENEWALS_MAX: u32 = 2;

/// `frieze cluster`.
pub(crate) fn cluster(run: &mut CommandRun, args: &ClusterArgs) -> Result<()> {
    run_command(run, args).map_err(|error| match failure::fault_of(&error) {
        // The server's words name the users that may, and the obstacles.
        Some(fault) if matches!(fault.reason, Reason::NotPermitted | Reason::Busy | Reason::NotFound) => {
            Error::msg(fault.message)
        }
        _ => error,
    })
}

fn run_command(run: &mut CommandRun, args: &ClusterArgs) -> Result<()> {
    match &args.what {
        Some(ClusterCommand::AddDevice(args)) => return device::add(run, args),
        Some(ClusterCommand::Recover { dir, yes, copy, .. }) => return survivor::recover(run, dir, *yes, *copy),
        Some(ClusterCommand::NewIdentity { dir, .. }) => return survivor::new_identity(run, dir),
        Some(ClusterCommand::Moved { dir, .. }) => return survivor::moved(run, dir),
        Some(what @ ClusterCommand::Wait(args)) => return wait::wait(run, what, args),
        _ => {}
    }
    let client = run.client()?.clone();
    let reply = client.cluster(None)?;
    if reply.cluster.is_empty() {
        return alone(run, &client, args.what.as_ref());
    }
    let node = |name: &str| find(&reply, name);
    let op = match args.what.as_ref().unwrap_or(&ClusterCommand::Status) {
        // The status shows it already: a script gets it by the exit status.
        ClusterCommand::Status => {
            status(run, &reply)?;
            return if reply.troubles.is_empty() { Ok(()) } else { Err(ReportedError.into()) };
        }
        ClusterCommand::Nodes => return nodes(run, &reply),
        ClusterCommand::Chains => return chains(run, &reply),
        ClusterCommand::Drain { node: name, .. } => {
            let id = node(name)?;
            if is(&reply, id, |node| node.state == "draining" && node.targets == 0) {
                return Err(Error::msg(format!(
                    "{name} is drained already: nothing is left to do ('frieze cluster remove {name}')"
                )));
            }
            ClusterOp::Drain(id)
        }
        ClusterCommand::Undrain { node: name } => {
            let id = node(name)?;
            // One that is away may drain all the same.
            if is(&reply, id, |node| node.state == "up") {
                return Err(Error::msg(format!("{name} does not drain: nothing was changed")));
            }
            ClusterOp::Undrain(id)
        }
        ClusterCommand::Remove { node: name } => ClusterOp::Remove(node(name)?),
        ClusterCommand::DeclareDead { node: name, accept_loss: false, .. } => ClusterOp::DeclareDead(node(name)?),
        ClusterCommand::DeclareDead { node: name, accept_loss: true, .. } => ClusterOp::DeclareLost(node(name)?),
        ClusterCommand::Balance { on } => ClusterOp::Balance(on == "on"),
        ClusterCommand::Replicas { count } => ClusterOp::Replicas(*count),
        ClusterCommand::AddDevice(_)
        | ClusterCommand::Wait(_)
        | ClusterCommand::Recover { .. }
        | ClusterCommand::NewIdentity { .. }
        | ClusterCommand::Moved { .. } => unreachable!("done above"),
    };
    let mut reply = match op {
        ClusterOp::DeclareDead(node) | ClusterOp::DeclareLost(node) => declare_dead(&client, op, node)?,
        _ => client.cluster(Some(op))?,
    };
    if let (ClusterOp::Drain(node), Some(ClusterCommand::Drain { background: false, .. })) = (op, &args.what) {
        reply = wait_drained(run, &client, node)?;
    }
    status(run, &reply)
}

/// Declares a node dead. A leader that was just elected counts a lease for every server: one that is away is declared
/// dead when its lease has ended and the log says so. A server that renews its lease is there.
fn declare_dead(client: &Client, op: ClusterOp, node: u32) -> Result<ClusterReply> {
    let (mut before, mut looks, mut renewals, mut is_offline) = (u64::MAX, 0, 0, false);
    loop {
        let refused = match client.cluster(Some(op)).map_err(Error::from) {
            Err(error) if failure::fault_of(&error).is_some_and(|fault| fault.reason == Reason::Busy) => error,
            answer => return answer,
        };
        let reply = client.cluster(None)?;
        match reply.nodes.iter().find(|status| status.node == node) {
            Some(status) if status.state == "offline" && !is_offline => {
                is_offline = true;
                continue;
            }
            // Without a leader there are no leases.
            Some(status) if !is_offline && reply.leader != 0 && renewals <= RENEWALS_MAX && looks < LEASE_LOOKS_MAX => {
                let left = status.lease_left_ms.unwrap_or(0);
                renewals += u32::from(left > before);
                (before, looks) = (left, looks + 1);
            }
            _ => return Err(refused),
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

fn is(reply: &ClusterReply, id: u32, look: impl Fn(&ClusterNodeStatus) -> bool) -> bool {
    reply.nodes.iter().any(|node| node.node == id && look(node))
}

/// The number of the node that an operator means.
fn find(reply: &ClusterReply, name: &str) -> Result<u32> {
    let named = reply.nodes.iter().find(|node| node.name == name);
    let numbered = || reply.nodes.iter().find(|node| name.parse() == Ok(node.node));
    match named.or_else(numbered) {
        Some(node) => Ok(node.node),
        None => {
            let names: Vec<&str> = reply.nodes.iter().map(|node| node.name.as_str()).collect();
            Err(UsageError(format!("there is no server {name:?} in this cluster, only {}", names.join(", "))).into())
        }
    }
}

/// Waits until a node has given its chains away, and shows how far it is.
fn wait_drained(run: &mut CommandRun, client: &Client, node: u32) -> Result<ClusterReply> {
    run.show(|wanted| ProgressLine::known(wanted, "chains"));
    if run.is_shown() {
        run.say("the drain continues if this command ends; `frieze cluster undrain` lets the server keep the rest");
    }
    let mut most = 0;
    loop {
        let reply = client.cluster(None)?;
        let Some(status) = reply.nodes.iter().find(|status| status.node == node) else { return Ok(reply) };
        let left = u64::from(status.to_drain);
        most = left.max(most);
        run.progress(|progress| progress.is_at(most - left, most));
        if left == 0 && status.targets == 0 || status.state != "draining" {
            return Ok(reply);
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

fn status(run: &mut CommandRun, reply: &ClusterReply) -> Result<()> {
    if run.json() {
        return run.print_json(to_json(reply));
    }
    let leader = reply.nodes.iter().find(|node| node.node == reply.leader);
    let count = |state: &str| reply.nodes.iter().filter(|node| node.state == state).count();
    let mut states = format!("{} up", count("up"));
    for state in ["draining", "offline", "unknown"] {
        if count(state) > 0 {
            states.push_str(&format!(", {} {state}", count(state)));
        }
    }
    let chains = reply.chains.len() as u64;
    let whole = match (u64::from(reply.whole), chains) {
        (whole, all) if whole == all => "all whole".to_owned(),
        (whole, all) => format!("{} not whole", all - whole),
    };
    let leader = leader.map_or("none at the moment".to_owned(), |node| format!("{} ({})", node.name, node.address));
    let mut table = TextTable::new(&[false, false]);
    let mut row = |name: &str, words: String| table.row([name.to_owned(), words]);
    row("cluster", reply.cluster.clone());
    row("leader", leader);
    row("servers", format!("{}: {states}", reply.nodes.len()));
    let copies = if reply.copies_wanted == 1 { "1 copy".to_owned() } else { format!("{} copies", reply.copies_wanted) };
    let asked = match reply.replicas > reply.copies_wanted {
        true => format!(" (as many as there are servers; {} are asked for)", reply.replicas),
        false => String::new(),
    };
    row("chains", format!("{chains}, {copies} of each wanted{asked}, {whole}"));
    for trouble in &reply.troubles {
        row("trouble", trouble.what.clone());
        row("remedy", trouble.remedy.clone());
    }
    if reply.is_balancing {
        row("balancing", "chains are moved until every server has its share".to_owned());
    }
    if let Some(words) = syncing(reply) {
        row("syncing", words);
    }
    for node in reply.nodes.iter() {
        if let Some(words) = remains(node) {
            row("giving back", format!("{} {words}", node.name));
        }
    }
    for chain in reply.chains.iter().filter(|chain| !chain.waits.is_empty()) {
        row("waiting", format!("chain {} for {} ({})", chain.chain, names(reply, &chain.waits_for), chain.waits));
    }
    for (loss, chains) in losses(&reply.chains) {
        row("lost", format!("{} {loss}", chains_of(&chains)));
    }
    table.lines().try_for_each(|line| run.print(&line))
}

/// Possible losses of chains that resumed from stale copies: each as text, with the chains that share it.
fn losses(chains: &[ClusterChain]) -> Vec<(String, Vec<u32>)> {
    let mut losses: Vec<(String, Vec<u32>)> = Vec::new();
    for chain in chains.iter().filter(|chain| chain.behind_to > 0) {
        let loss = loss(chain);
        match losses.iter_mut().find(|(words, _)| *words == loss) {
            Some((_, chains)) => chains.push(chain.chain),
            None => losses.push((loss, vec![chain.chain])),
        }
    }
    losses
}

/// "chain 3", "chains 0 to 7", "chains 1, 4".
fn chains_of(numbers: &[u32]) -> String {
    match numbers {
        [number] => format!("chain {number}"),
        [first, .., last] if numbers.len() > 2 && (last - first) as usize + 1 == numbers.len() => {
            format!("chains {first} to {last}")
        }
        _ => format!("chains {}", numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// The possible loss of a chain that resumed from a stale copy.
fn loss(chain: &ClusterChain) -> String {
    let to = format::time_of(Hlc(chain.behind_to));
    match chain.behind_from {
        0 => format!("resumed empty: everything written there until {to} is lost"),
        from => {
            format!(
                "resumed from a copy that may have been stale: acknowledged writes from {} to {to} may be missing",
                format::time_of(Hlc(from))
            )
        }
    }
}

/// Progress of the running syncs; `None` if there is none.
fn syncing(reply: &ClusterReply) -> Option<String> {
    let targets = || reply.chains.iter().flat_map(|chain| &chain.targets).filter(|target| target.state == "syncing");
    let count = targets().count() as u64;
    let left: u64 = targets().filter_map(|target| target.left_bytes).sum();
    let rate: u64 = targets().filter_map(|target| target.bytes_per_s).sum();
    let mut words =
        format!("{} brought up to date, about {} left", format::count(count, "replica"), format::size(left));
    // All receive at the same time, so they share the rate.
    if let Some(left_s) = left.checked_div(rate).filter(|_| left > 0) {
        words += &format!(", {} at {}/s", format::duration_ms(left_s * 1000), format::size(rate));
    }
    if reply.sync_bytes_per_s > 0 {
        words += &format!(" (at most {}/s from each server, as this one is set)", format::size(reply.sync_bytes_per_s));
    }
    (count > 0).then_some(words)
}

/// Replica garbage of a server; `None` if there is none, or it is not known here.
fn remains(node: &ClusterNodeStatus) -> Option<String> {
    let (chains, bytes) = (node.remains_chains.unwrap_or(0), node.remains_bytes.unwrap_or(0));
    let left = format!("has {} left of chains that others have", format::size(bytes));
    let kept = format!("keeps {} until their new servers all serve", format::count(chains.into(), "chain"));
    match (chains, bytes) {
        (0, 0) => None,
        (0, _) => Some(left),
        (_, 0) => Some(kept),
        _ => Some(format!("{left}, and {kept}")),
    }
}

fn names(reply: &ClusterReply, nodes: &[u32]) -> String {
    let name = |id: &u32| {
        reply.nodes.iter().find(|node| node.node == *id).map_or(format!("node {id}"), |node| node.name.clone())
    };
    nodes.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn nodes(run: &mut CommandRun, reply: &ClusterReply) -> Result<()> {
    if run.json() {
        return reply.nodes.iter().try_for_each(|node| run.print_json(node_json(node)));
    }
    let mut table =
        TextTable::new(&[true, false, false, false, false, false, false, true, true, true, true, true, true]);
    table.row(
        [
            "NODE",
            "NAME",
            "MACHINE",
            "SITE",
            "ADDRESS",
            "STATE",
            "METALOG",
            "LEASE",
            "CLOCK",
            "CHAINS",
            "SERVING",
            "HEADS",
            "TO GIVE BACK",
        ]
        .map(str::to_owned),
    );
    for node in &reply.nodes {
        let leads = if node.node == reply.leader { ", leads" } else { "" };
        table.row([
            node.node.to_string(),
            node.name.clone(),
            node.machine.clone(),
            node.site.clone(),
            node.address.clone(),
            format!("{}{leads}", state(node)),
            node.metalog.clone(),
            node.lease_left_ms.map(format::duration_ms).unwrap_or_default(),
            node.clock_offset_us.map(|us| format!("{us:+} us")).unwrap_or_default(),
            node.targets.to_string(),
            node.serving.to_string(),
            node.heads.to_string(),
            given_back(node),
        ]);
    }
    table.lines().try_for_each(|line| run.print(&line))
}

/// The state of a server, since when it is away, and whether its disk is out of its chains.
fn state(node: &ClusterNodeStatus) -> String {
    // To the second: it rests on leases.
    let at = |us: u64| {
        format::time_of(Hlc::first_of_micros(us)).split('.').next().map(|at| format!("{at}Z")).unwrap_or_default()
    };
    let since = match (node.state.as_str(), node.offline_since, node.last_contact_us) {
        ("offline", 1.., _) => format!(" since {}", at(Hlc(node.offline_since).micros())),
        ("unknown", _, Some(us)) => format!(", last contact at {}", at(us)),
        _ => String::new(),
    };
    let disk = match (node.has_failed, node.is_full) {
        (true, _) => ", disk failed",
        (false, true) => ", disk full",
        (false, false) => "",
    };
    format!("{}{since}{disk}", node.state)
}

/// The same in a word or two.
fn given_back(node: &ClusterNodeStatus) -> String {
    match (node.remains_chains.unwrap_or(0), node.remains_bytes) {
        (0, None | Some(0)) => String::new(),
        (0, Some(bytes)) => format::size(bytes),
        (chains, _) => format::count(chains.into(), "chain"),
    }
}

fn chains(run: &mut CommandRun, reply: &ClusterReply) -> Result<()> {
    if run.json() {
        return reply.chains.iter().try_for_each(|chain| run.print_json(chain_json(chain)));
    }
    let mut table = TextTable::new(&[true, true, false, false]);
    table.row(["CHAIN", "EPOCH", "HEAD TO TAIL", "OTHERS"].map(str::to_owned));
    for chain in &reply.chains {
        let (serving, others): (Vec<_>, Vec<_>) = chain.targets.iter().partition(|target| target.state == "serving");
        let members = serving.iter().map(|target| names(reply, &[target.node])).collect::<Vec<_>>().join(" > ");
        let other = |target: &&frieze_client::ClusterTargetStatus| {
            let left = target.left_bytes.filter(|left| *left > 0).map(|left| format!(", {} left", format::size(left)));
            format!("{} {}{}", names(reply, &[target.node]), target.state, left.unwrap_or_default())
        };
        let mut others = others.iter().map(other).collect::<Vec<_>>().join("; ");
        if !chain.waits.is_empty() {
            others = format!("{others} (waits for {}: {})", names(reply, &chain.waits_for), chain.waits);
        }
        table.row([chain.chain.to_string(), chain.epoch.to_string(), members, others.trim().to_owned()]);
    }
    table.lines().try_for_each(|line| run.print(&line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_that_lost_the_same_are_named_together() {
        let chain =
            |chain, behind_from, behind_to| ClusterChain { chain, behind_from, behind_to, ..ClusterChain::default() };
        let chains = [chain(0, 1 << 20, 5 << 20), chain(1, 1 << 20, 5 << 20), chain(2, 0, 0), chain(3, 0, 5 << 20)];
        let losses = losses(&chains);
        assert_eq!(losses.iter().map(|(_, chains)| chains_of(chains)).collect::<Vec<_>>(), ["chains 0, 1", "chain 3"]);
        assert_eq!(chains_of(&[4, 5, 6]), "chains 4 to 6");
        assert_eq!(chains_of(&[4, 6, 7]), "chains 4, 6, 7");
    }
}
