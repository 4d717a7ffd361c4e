mod alerts;
mod dashboard;
mod panels;

use std::collections::BTreeSet;
use std::path::Path;

use super::*;

fn chain(members: &[u32], syncing: u32, joining: bool) -> ReplicaStatus {
    ReplicaStatus { members: members.to_vec(), syncing, joining, ..ReplicaStatus::default() }
}

#[test]
fn a_server_has_one_role_in_a_chain() {
    let role = |members: &[u32], syncing, joining| role_of(NodeId(2), &chain(members, syncing, joining));
    assert_eq!(role(&[2], 0, false), "only");
    assert_eq!(role(&[2, 1], 0, false), "head");
    assert_eq!(role(&[1, 2, 3], 0, false), "middle");
    assert_eq!(role(&[1, 2], 3, false), "tail");
    assert_eq!(role(&[1, 2], 0, true), "joining");
    assert_eq!(role(&[1, 3], 2, false), "syncing");
    assert_eq!(role(&[1, 3], 0, false), "none");
}

#[test]
fn chains_are_told_one_by_one_unless_there_are_too_many() {
    let told = |count: usize| {
        let chains: Vec<ReplicaStatus> = (0..count)
            .map(|number| ReplicaStatus {
                chain: number as u32,
                last: 7,
                clean: 5,
                behind: 3,
                failed: if number == 0 { "its device".to_owned() } else { String::new() },
                ..chain(&[1, 2], 0, false)
            })
            .collect();
        let mut values = Values::default();
        of_chains(NodeId(1), &chains, &mut values);
        values.0
    };
    let find = |told: &[(&Figure, Vec<String>, f64)], name: &str, labels: &[&str]| {
        told.iter().find(|(figure, found, _)| figure.name == name && found == labels).map(|(_, _, value)| *value)
    };
    let two = told(2);
    assert_eq!(find(&two, "frieze_chain_dirty_records", &["1"]), Some(2.0));
    assert_eq!(find(&two, "frieze_chain_failed", &["0"]), Some(1.0));
    assert_eq!(find(&two, "frieze_chain_role", &["1", "head"]), Some(1.0));
    assert_eq!(find(&two, "frieze_sync_left_records", &[]), Some(6.0));
    let many = told(CHAINS_EXPORTED_MAX + 1);
    assert_eq!(find(&many, "frieze_chain_epoch", &["0"]), None);
    assert_eq!(find(&many, "frieze_chains", &["head"]), Some(CHAINS_EXPORTED_MAX as f64 + 1.0));
}

#[test]
fn names_follow_the_conventions_of_prometheus() {
    let mut seen = BTreeSet::new();
    for figure in FIGURES {
        let Figure { name, kind, labels, help, .. } = figure;
        assert!(seen.insert(name), "{name} is there twice");
        assert!(name.starts_with("frieze_") || name.starts_with("process_"), "{name}");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}: counters, and only those, end so");
        assert!(!["_ms", "_us", "_ns", "_mib"].iter().any(|unit| name.ends_with(unit)), "{name}: seconds and bytes");
        assert!(labels.iter().all(|label| *label != "le"), "{name}");
        assert!(help.ends_with('.'), "{name}: {help}");
    }
}

#[test]
fn the_page_of_the_documentation_lists_every_figure() {
    let mut page = String::from(PAGE);
    for Figure { name, kind, labels, help, alarm } in FIGURES {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let kind = format!("{kind:?}").to_lowercase();
        page += &format!("| `{name}` | {kind} | {} | {help} | {alarm} |\n", labels.join(", "));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page, "docs/metrics.md is made from the table: UPDATE_EXPECT=1 cargo test -p frieze-node metrics");
}

const PAGE: &str = "\
# Metrics of a server

`frieze serve --metrics ADDR` serves metrics at `http://ADDR/metrics` in Prometheus' text format;
[operating.md](operating.md) describes the setup and the first alerts. Times are in seconds, sizes in bytes. Counters
start at 0 with the process. Only a server of a cluster exports metrics of the metalog's leader, of leases, chains and
other servers; with more than 1,024 chains it exports only their sums. This page is generated from
`crates/node/src/metrics.rs`: change it there.

| name | kind | labels | what it is | alert when |
|---|---|---|---|---|
";
