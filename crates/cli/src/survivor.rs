//! `cluster recover`, `new-identity` and `moved`: operations on a data directory while no server runs on it.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use frieze_client::{NodeId, ServerAddr, cluster_at};
use frieze_hlc::Hlc;
use frieze_node::{LeftBehind, WentOn};
use serde_json::{Value, json};

use crate::failure::CheckFailed;
use crate::format::{self, TextTable};
use crate::run::CommandRun;

/// `frieze cluster recover`.
pub(crate) fn recover(run: &mut CommandRun, dir: &Path, yes: bool, is_copy: bool) -> Result<()> {
    let left = frieze_node::survey(dir).map_err(|fault| CheckFailed(fault.message))?;
    let answers = ask_others(&left);
    if !run.json() {
        lines(&left, &answers).iter().try_for_each(|line| run.print(line))?;
    }
    if yes && !left.is_sole() && !is_copy {
        refuse_while_others_answer(&left, &answers)?;
    }
    let went_on = if yes { Some(frieze_node::recover(dir, &left)?) } else { None };
    if run.json() {
        return run.print_json(to_json(&left, &answers, went_on.as_ref()));
    }
    let dir = dir.display();
    match went_on {
        None if left.is_sole() => {
            run.print("")?;
            run.print(
                "No majority is lost: this server is the only one of its cluster. Nothing was changed; start it:",
            )?;
            run.print(&format!("  frieze serve --dir {dir} ..."))
        }
        None => {
            run.print("")?;
            run.print(
                "Nothing was changed. If the others are stopped and their disks are lost for good, recover from \
                 this server:",
            )?;
            run.print(&format!("  frieze cluster recover --dir {dir} --yes --accept-loss"))
        }
        Some(WentOn { cluster, from, to }) => {
            run.print("")?;
            run.print(&format!("This server is the only one of cluster {cluster} now."))?;
            run.print(&format!("The gap: from {} to {}.", format::time_of(from), format::time_of(to)))?;
            run.print(&format!(
                "Start it: frieze serve --dir {dir} ... Let others join it with empty directories; servers of before \
                 are refused."
            ))
        }
    }
}

/// `frieze cluster new-identity`.
pub(crate) fn new_identity(run: &mut CommandRun, dir: &Path) -> Result<()> {
    let cluster = frieze_node::rename_copy(dir)?;
    run.item(
        || json!({ "cluster": cluster.to_string() }),
        || Some(format!("{} is cluster {cluster} now", dir.display())),
    )
}

/// `frieze cluster moved`.
pub(crate) fn moved(run: &mut CommandRun, dir: &Path) -> Result<()> {
    frieze_node::take_moved(dir)?;
    run.item(|| json!({}), || Some(format!("a server starts on {} again", dir.display())))
}

/// For how long another server is waited for.
const ASK_FOR: Duration = Duration::from_secs(3);

/// Which of the other servers answer at the addresses that they had, as servers of the same cluster.
fn ask_others(left: &LeftBehind) -> BTreeSet<NodeId> {
    let cluster = left.cluster.to_string();
    let answers = |address: &str| {
        let server = ServerAddr::parse_list(address).ok().and_then(|servers| servers.into_iter().next());
        server.is_some_and(|server| cluster_at(&server, ASK_FOR).is_ok_and(|found| found == cluster))
    };
    thread::scope(|scope| {
        let asked: Vec<_> =
            left.others.iter().map(|other| (other.node, scope.spawn(|| answers(&other.address)))).collect();
        let answered =
            asked.into_iter().filter_map(|(node, asked)| asked.join().is_ok_and(|answers| answers).then_some(node));
        answered.collect()
    })
}

fn refuse_while_others_answer(left: &LeftBehind, answers: &BTreeSet<NodeId>) -> Result<()> {
    let there = left.others.iter().filter(|other| answers.contains(&other.node));
    let there: Vec<String> = there.map(|other| format!("{} at {}", other.name, other.address)).collect();
    if there.is_empty() {
        return Ok(());
    }
    bail!(
        "{} of this cluster {}: with a majority of the servers nothing is lost, so start this one again beside them. \
         If they are too few, \
         stop them first. A copy of a directory becomes another cluster with --copy",
        there.join(", "),
        if there.len() == 1 { "answers" } else { "answer" }
    )
}

fn lines(left: &LeftBehind, answers: &BTreeSet<NodeId>) -> Vec<String> {
    let mut table = TextTable::new(&[false, false]);
    let mut row = |name: &str, words: String| table.row([name.to_owned(), words]);
    row("cluster", left.cluster.to_string());
    row("server", format!("{} ({})", left.node, if left.name.is_empty() { "removed" } else { &left.name }));
    let voters: Vec<String> = left.voters.iter().map(ToString::to_string).collect();
    row(
        "metalog",
        match &voters[..] {
            [one] => format!("kept by {one} alone"),
            several => format!("kept by {}, a majority of which is needed", several.join(", ")),
        },
    );
    let (entry, stamp) = left.known;
    row(
        "known",
        format!("up to entry {entry}, of {}: whatever is newer the others may have without this one", time(stamp)),
    );
    if left.kept() > 0 {
        let changes = format::count(left.kept(), "entry");
        row(
            "kept",
            format!("{changes} more, up to {}, of {}: not known to be committed", left.last.0, time(left.last.1)),
        );
    }
    for other in &left.others {
        row(
            "other",
            format!(
                "{} ({}) at {}, {} as far as this server knows; {} now",
                other.node,
                other.name,
                other.address,
                other.state,
                if answers.contains(&other.node) { "answers" } else { "does not answer" }
            ),
        );
    }
    if let Some((cluster, at)) = left.went_on_from {
        row("before", format!("recovered from cluster {cluster} at {}", time(at)));
    }
    let mut lines: Vec<String> = table.lines().collect();
    lines.push(String::new());
    let mut chains = TextTable::new(&[true, false, true, false, false]);
    chains.row(["CHAIN", "COPY", "RECORDS", "NEWEST", "WHOLE UP TO"].map(str::to_owned));
    for chain in &left.chains {
        let (newest, whole) = (time(chain.newest), time(chain.whole));
        chains.row([chain.chain.to_string(), chain.copy.word().to_owned(), chain.last.to_string(), newest, whole]);
    }
    lines.extend(chains.lines());
    lines
}

fn time(stamp: Hlc) -> String {
    if stamp == Hlc::ZERO { "-".to_owned() } else { format::time_of(stamp) }
}

fn to_json(left: &LeftBehind, answers: &BTreeSet<NodeId>, went_on: Option<&WentOn>) -> Value {
    let others = left.others.iter().map(|other| {
        let answers = answers.contains(&other.node);
        json!({ "node": other.node.0, "name": other.name, "address": other.address, "state": other.state,
                "answers": answers })
    });
    let chains = left.chains.iter().map(|chain| {
        json!({ "chain": chain.chain.0, "copy": chain.copy.word(), "last": chain.last,
                "newest": chain.newest.to_string(), "whole": chain.whole.to_string() })
    });
    let went_on_from =
        left.went_on_from.map(|(cluster, at)| json!({ "cluster": cluster.to_string(), "at": at.to_string() }));
    let went_on = went_on.map(|WentOn { cluster, from, to }| {
        json!({ "cluster": cluster.to_string(), "from": from.to_string(), "to": to.to_string() })
    });
    json!({
        "cluster": left.cluster.to_string(),
        "node": left.node.0,
        "name": left.name,
        "others": others.collect::<Vec<_>>(),
        "is_sole": left.is_sole(),
        "went_on_from": went_on_from,
        "voters": left.voters.iter().map(|voter| voter.0).collect::<Vec<_>>(),
        "known_entry": left.known.0.0,
        "known": left.known.1.to_string(),
        "known_time": format::time_of(left.known.1),
        "last_entry": left.last.0.0,
        "last": left.last.1.to_string(),
        "kept": left.kept(),
        "chains": chains.collect::<Vec<_>>(),
        "went_on": went_on,
    })
}
