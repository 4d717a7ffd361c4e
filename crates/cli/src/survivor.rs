//! `cluster recover`, `new-identity` and `moved`: what is done with a data directory while no server runs on it.

use std::path::Path;

use anyhow::Result;
use frieze_hlc::Hlc;
use frieze_node::{LeftBehind, WentOn};
use serde_json::{Value, json};

use crate::failure::NotLooked;
use crate::format::{self, Table};
use crate::run::Run;

/// `frieze cluster recover`.
pub(crate) fn recover(run: &mut Run, dir: &Path, yes: bool) -> Result<()> {
    let left = frieze_node::survey(dir).map_err(|fault| NotLooked(fault.message))?;
    if !run.json() {
        lines(&left).iter().try_for_each(|line| run.print(line))?;
    }
    let went_on = if yes { Some(frieze_node::recover(dir, &left)?) } else { None };
    if run.json() {
        return run.print(&to_json(&left, went_on.as_ref()).to_string());
    }
    let dir = dir.display();
    match went_on {
        None => {
            run.print("")?;
            run.print("Nothing was changed. If the others are stopped and their disks are lost for good, go on from this server:")?;
            run.print(&format!("  frieze cluster recover --dir {dir} --yes --accept-loss"))
        }
        Some(WentOn { cluster, from, to }) => {
            run.print("")?;
            run.print(&format!("This server is the only one of cluster {cluster} now."))?;
            run.print(&format!("The gap: from {} to {}.", format::time_of(from), format::time_of(to)))?;
            run.print(&format!(
                "Start it: frieze serve --dir {dir} ... Let others join it with empty directories; servers of before are refused."
            ))
        }
    }
}

/// `frieze cluster new-identity`.
pub(crate) fn new_identity(run: &mut Run, dir: &Path) -> Result<()> {
    let cluster = frieze_node::rename_copy(dir)?;
    run.item(
        || json!({ "cluster": cluster.to_string() }),
        || Some(format!("{} is cluster {cluster} now", dir.display())),
    )
}

/// `frieze cluster moved`.
pub(crate) fn moved(run: &mut Run, dir: &Path) -> Result<()> {
    frieze_node::take_moved(dir)?;
    run.item(|| json!({}), || Some(format!("a server starts on {} again", dir.display())))
}

fn lines(left: &LeftBehind) -> Vec<String> {
    let mut table = Table::new(&[false, false]);
    let mut row = |name: &str, words: String| table.row([name.to_owned(), words]);
    row("cluster", left.cluster.to_string());
    row("server", format!("{} ({})", left.node, if left.name.is_empty() { "removed" } else { &left.name }));
    let voters: Vec<String> = left.voters.iter().map(ToString::to_string).collect();
    row("metalog", format!("kept by {}, a majority of which is needed", voters.join(", ")));
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
                "{} ({}) at {}, {} as far as this server knows",
                other.node, other.name, other.address, other.state
            ),
        );
    }
    let mut lines: Vec<String> = table.lines().collect();
    lines.push(String::new());
    let mut chains = Table::new(&[true, false, true, false, false]);
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

fn to_json(left: &LeftBehind, went_on: Option<&WentOn>) -> Value {
    let others = left.others.iter().map(
        |other| json!({ "node": other.node.0, "name": other.name, "address": other.address, "state": other.state }),
    );
    let chains = left.chains.iter().map(|chain| {
        json!({ "chain": chain.chain.0, "copy": chain.copy.word(), "last": chain.last, "newest": chain.newest.to_string(),
                "whole": chain.whole.to_string() })
    });
    let went_on = went_on.map(|WentOn { cluster, from, to }| {
        json!({ "cluster": cluster.to_string(), "from": from.to_string(), "to": to.to_string() })
    });
    json!({
        "cluster": left.cluster.to_string(),
        "node": left.node.0,
        "name": left.name,
        "others": others.collect::<Vec<_>>(),
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
