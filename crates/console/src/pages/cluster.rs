//! The servers: health, space, chains, clocks, what was lost, what is slow.

use askama::Template;
use frieze_client::{ClusterReply, Hlc, Reason, StatusReply};
use serde_json::json;

use crate::assets;
use crate::error::{PageRefusal, about};
use crate::frame::{Frame, render};
use crate::reply::ConsoleReply;
use crate::visit::Visit;
use crate::words::{bytes, duration_ms, grouped, time_of};

/// Chains and gaps that the page lists.
const CHAINS_MAX: usize = 64;
const GAPS_MAX: usize = 20;

/// A trouble and what to do.
struct TroubleRow {
    what: String,
    remedy: String,
}

/// A figure with its name.
struct ShownFigure {
    name: &'static str,
    value: String,
    /// What it means, in a sentence.
    words: &'static str,
}

/// A server of the cluster.
struct NodeRow {
    name: String,
    place: String,
    address: String,
    state: String,
    is_well: bool,
    clock: String,
    chains: String,
    capacity: String,
    trouble: String,
}

/// A chain: its members and what they do.
struct ChainRow {
    chain: u32,
    epoch: u64,
    members: Vec<(String, String)>,
    waits: String,
    is_well: bool,
}

/// An interval whose records a crash lost.
struct GapRow {
    from: String,
    to: String,
    href: String,
}

/// How a disk is divided, in hundredths.
struct SpaceBar {
    used_width: u64,
    other_width: u64,
    used: String,
    other: String,
    free: String,
    capacity: String,
}

#[derive(Template)]
#[template(path = "cluster.html")]
struct ClusterPage {
    frame: Frame,
    health: String,
    is_healthy: bool,
    /// The server answers without a cluster.
    is_alone: bool,
    troubles: Vec<TroubleRow>,
    figures: Vec<ShownFigure>,
    slow: Vec<ShownFigure>,
    space: SpaceBar,
    servers: Vec<NodeRow>,
    chains: Vec<ChainRow>,
    /// How many chains are not listed; empty if all are.
    more_chains: String,
    gaps: Vec<GapRow>,
    last_whole: String,
    software: String,
    plot: String,
    plot_css: String,
    script: String,
}

pub(super) fn page(visit: &Visit<'_>) -> Result<ConsoleReply, PageRefusal> {
    let status = visit.client().status().map_err(about("the server"))?;
    let cluster = cluster_of(visit)?;
    let mut troubles = Vec::new();
    let all = status.troubles.iter().chain(cluster.iter().flat_map(|cluster| &cluster.troubles));
    for trouble in all {
        if !troubles.iter().any(|known: &TroubleRow| known.what == trouble.what) {
            troubles.push(TroubleRow { what: trouble.what.clone(), remedy: trouble.remedy.clone() });
        }
    }
    let (servers, chains) =
        cluster.as_ref().map_or_else(Default::default, |cluster| (servers(cluster), chains(cluster)));
    let is_healthy = troubles.is_empty() && status.health == "healthy";
    let (listed, unlisted) = (chains.len().min(CHAINS_MAX), chains.len().saturating_sub(CHAINS_MAX));
    Ok(render(&ClusterPage {
        frame: Frame::new(visit, "cluster", "Cluster"),
        health: if is_healthy { "healthy".to_owned() } else { status.health.clone() },
        is_healthy,
        is_alone: cluster.is_none(),
        troubles,
        figures: figures_of(&status),
        slow: slow(&status, cluster.as_ref()),
        space: space(&status),
        servers,
        chains: chains.into_iter().take(listed).collect(),
        more_chains: if unlisted > 0 { grouped(unlisted as u64) } else { String::new() },
        gaps: status.gaps.iter().rev().take(GAPS_MAX).map(gap).collect(),
        last_whole: if status.last_whole == 0 { String::new() } else { time_of(Hlc(status.last_whole)) },
        software: status.software.clone(),
        plot: assets::address("uplot.js"),
        plot_css: assets::address("uplot.css"),
        script: assets::address("cluster.js"),
    }))
}

/// What the page plots: totals, of which its script takes differences.
pub(super) fn figures(visit: &Visit<'_>) -> Result<ConsoleReply, PageRefusal> {
    let status = visit.client().status().map_err(about("the server"))?;
    Ok(ConsoleReply::json(&json!({
        "us": visit.now().micros(),
        "log_bytes": status.log_bytes,
        "free_bytes": status.free_bytes,
        "dirty_bytes": status.dirty_bytes,
        "resident_bytes": status.resident_bytes,
        "records": status.records,
        "changes": status.metalog_index,
        "cpu_ns": status.cpu_ns,
        "connections": status.connections,
        "health": status.health,
    })))
}

/// The cluster as its leader knows it, else as this server does; `None` if the server is alone.
fn cluster_of(visit: &Visit<'_>) -> Result<Option<ClusterReply>, PageRefusal> {
    match visit.client().cluster(None) {
        Ok(reply) if reply.cluster.is_empty() => Ok(None),
        Ok(reply) => Ok(Some(reply)),
        Err(error) if matches!(error.reason(), Reason::Unsupported | Reason::InvalidArgument) => Ok(None),
        Err(error) => Err(PageRefusal::of("the cluster", &error)),
    }
}

fn figures_of(status: &StatusReply) -> Vec<ShownFigure> {
    let clock = match status.clock_error_us {
        u64::MAX => "unknown".to_owned(),
        us => format!("± {} µs", grouped(us)),
    };
    let behind = |stamp: u64| {
        let us = Hlc(status.newest).micros().saturating_sub(Hlc(stamp).micros());
        if stamp == 0 { "unknown".to_owned() } else { duration_ms(us / 1000) }
    };
    let figure = |name, value, words| ShownFigure { name, value, words };
    vec![
        figure("Clock error", clock, "How precise a stamp is, as the kernel estimates its clock."),
        figure("Closed", behind(status.stable), "How long after a change its instant can be read everywhere."),
        figure("Files", grouped(status.inodes), "Files and directories that are there now."),
        figure("Versions", grouped(status.records), "Records of data, history included."),
        figure("Sessions", grouped(status.sessions), "Programs that are connected."),
        figure(
            "Memory",
            format!("{} (peak {})", bytes(status.resident_bytes), bytes(status.resident_bytes_peak)),
            "Of the server's process.",
        ),
        figure("Since", duration_ms(status.uptime_ms), "How long this server has been serving."),
        figure("First instant", time_of(Hlc(status.earliest)), "History begins here."),
    ]
}

/// What makes readers and writers wait, or will.
fn slow(status: &StatusReply, cluster: Option<&ClusterReply>) -> Vec<ShownFigure> {
    let figure = |name, value, words| ShownFigure { name, value, words };
    let mut rows = vec![
        figure(
            "Not yet on disk",
            format!("{}, the oldest for {}", bytes(status.dirty_bytes), duration_ms(status.dirty_age_ms)),
            "Acknowledged to writers that did not ask for more.",
        ),
        figure(
            "One flush",
            format!("{} (median of {})", bytes(status.flush_bytes_median), grouped(status.flushes)),
            "Bytes that reach stable storage together: small flushes cost a disk much.",
        ),
    ];
    if let Some(memory) = &status.memory {
        let (hit, missed) = (memory.wanted_hit_bytes, memory.wanted_missed_bytes);
        if hit + missed > 0 {
            let share = hit as f64 * 100.0 / (hit + missed) as f64;
            rows.push(figure(
                "Old records in memory",
                format!("{share:.1} %"),
                "Of the bytes that were read at random.",
            ));
        }
    }
    if let Some(images) = &status.images
        && images.wishes > 0
    {
        let words = "Read from many places until they get an image.";
        rows.push(figure("Pages in pieces", grouped(images.wishes), words));
    }
    if status.scrub_all_bytes > 0 {
        let done = status.scrub_done_bytes as f64 * 100.0 / status.scrub_all_bytes as f64;
        rows.push(figure("Scrub", format!("{done:.0} %"), "Everything stored is being read and checked."));
    }
    if status.forgotten_waiting_bytes > 0 {
        rows.push(figure("To give back", bytes(status.forgotten_waiting_bytes), "Forgotten, and not free yet."));
    }
    let syncing = cluster.map_or(0, |cluster| {
        cluster.chains.iter().flat_map(|chain| &chain.targets).filter_map(|target| target.left_bytes).sum()
    });
    if syncing > 0 {
        rows.push(figure("Copies to make", bytes(syncing), "What members of chains still lack."));
    }
    rows
}

fn space(status: &StatusReply) -> SpaceBar {
    let capacity = status.capacity_bytes.max(1);
    let used = status.log_bytes.min(capacity);
    let other = capacity.saturating_sub(status.free_bytes).saturating_sub(used);
    let width = |part: u64| (u128::from(part) * 100 / u128::from(capacity)) as u64;
    SpaceBar {
        used_width: width(used),
        other_width: width(other),
        used: bytes(used),
        other: bytes(other),
        free: bytes(status.free_bytes),
        capacity: bytes(status.capacity_bytes),
    }
}

fn servers(cluster: &ClusterReply) -> Vec<NodeRow> {
    let row = |node: &frieze_client::ClusterNodeStatus| {
        let mut state = node.state.clone();
        if node.node == cluster.leader {
            state.push_str(", leads");
        }
        NodeRow {
            name: format!("{} ({})", node.name, node.node),
            place: [node.site.as_str(), node.machine.as_str()].join(" / ").trim_matches([' ', '/']).to_owned(),
            address: node.address.clone(),
            is_well: node.state == "up" && node.trouble.is_empty() && !node.is_full && !node.has_failed,
            state,
            clock: node.clock_offset_us.map_or_else(String::new, |us| format!("{us:+} µs")),
            chains: format!("{} of {}, heads {}", node.serving, node.targets, node.heads),
            capacity: bytes(node.capacity_bytes),
            trouble: match (node.is_full, node.has_failed) {
                (_, true) => "its disk has failed".to_owned(),
                (true, _) => "its disk is full".to_owned(),
                _ => node.trouble.clone(),
            },
        }
    };
    cluster.nodes.iter().map(row).collect()
}

fn chains(cluster: &ClusterReply) -> Vec<ChainRow> {
    let name = |node: u32| {
        let found = cluster.nodes.iter().find(|status| status.node == node);
        found.map_or_else(|| node.to_string(), |status| status.name.clone())
    };
    let row = |chain: &frieze_client::ClusterChain| {
        let member = |target: &frieze_client::ClusterTargetStatus| {
            let left = target.left_bytes.map_or_else(String::new, |left| format!(", {} to go", bytes(left)));
            (name(target.node), format!("{}{left}", target.state))
        };
        let serving = chain.targets.iter().filter(|target| target.state == "serving").count();
        ChainRow {
            chain: chain.chain,
            epoch: chain.epoch,
            members: chain.targets.iter().map(member).collect(),
            waits: chain.waits.clone(),
            is_well: chain.waits.is_empty() && serving as u32 >= cluster.copies_wanted && cluster.copies_wanted > 0,
        }
    };
    let mut rows: Vec<ChainRow> = cluster.chains.iter().map(row).collect();
    // Those that need attention come first.
    rows.sort_by_key(|row| (row.is_well, row.chain));
    rows
}

fn gap(gap: &frieze_client::Gap) -> GapRow {
    GapRow { from: time_of(Hlc(gap.from)), to: time_of(Hlc(gap.to)), href: format!("/files/?at={}", Hlc(gap.from)) }
}
