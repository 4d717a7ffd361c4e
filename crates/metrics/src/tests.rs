mod alerts;
mod dashboard;
mod panels;

use std::collections::BTreeSet;
use std::path::Path;

use super::*;

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
    assert!(found == page, "docs/metrics.md is made from the table: UPDATE_EXPECT=1 cargo test -p frieze-metrics");
}

const PAGE: &str = "\
# Metrics of a server

`frieze serve --metrics ADDR` serves metrics at `http://ADDR/metrics` in Prometheus' text format;
[operating.md](operating.md) describes the setup and the first alerts. Times are in seconds, sizes in bytes. Counters
start at 0 with the process. Only a server of a cluster exports metrics of the metalog's leader, of leases, chains and
other servers; with more than 1,024 chains it exports only their sums. This page is generated from
`crates/metrics/src/lib.rs`: change it there.

| name | kind | labels | what it is | alert when |
|---|---|---|---|---|
";
