//! `contrib/grafana/frieze.json` and `contrib/prometheus/frieze.rules.yml`, made from the tables beside this file.
//!
//! `UPDATE_EXPECT=1 cargo test -p frieze-metrics` writes them. Each expression is parsed and compared with
//! real servers by `crates/cli/tests/metrics/expressions.rs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::alerts::{Alert, GROUPS, Severity};
use super::panels::{Bound, LEFT_OUT, Line, Look, Panel, ROWS};
use crate::FIGURES;

/// Which servers a reader has chosen.
const SELECTOR: &str = "job=~\"$job\",instance=~\"$instance\"";
/// Columns of a dashboard.
const COLUMNS: u32 = 24;

#[test]
fn the_dashboard_is_made_from_the_table() {
    let dashboard = format!("{:#}\n", dashboard());
    compare("contrib/grafana/frieze.json", &dashboard);
}

#[test]
fn the_alerts_are_made_from_the_table() {
    compare("contrib/prometheus/frieze.rules.yml", &rules());
}

#[test]
fn every_metric_has_a_panel_or_a_reason() {
    let lines = || ROWS.iter().flat_map(|row| row.panels).flat_map(|panel| panel.lines);
    let drawn: BTreeSet<String> = lines().flat_map(|line| metrics_of(line.0)).collect();
    for figure in FIGURES {
        let is_left_out = LEFT_OUT.iter().any(|(name, _)| *name == figure.name);
        let has_panel = drawn.contains(figure.name);
        assert!(has_panel != is_left_out, "{}: a panel ({has_panel}) or a reason ({is_left_out})", figure.name);
    }
    assert!(LEFT_OUT.iter().all(|(_, reason)| reason.len() > 20));
}

#[test]
fn expressions_name_metrics_of_the_table_only() {
    let panels = ROWS.iter().flat_map(|row| row.panels).flat_map(|panel| panel.lines).map(|line| line.0);
    for expression in panels.chain(alerts().map(|alert| alert.expression)) {
        for name in metrics_of(expression) {
            assert!(name == "up" || FIGURES.iter().any(|figure| figure.name == name), "{name} of {expression}");
        }
    }
}

#[test]
fn each_alert_has_a_section_for_operators_and_each_section_an_alert() {
    let page = std::fs::read_to_string(root().join("docs/operating.md")).unwrap();
    let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("#### ")).collect();
    let names: Vec<&str> = alerts().map(|alert| alert.name).collect();
    assert_eq!(sections, names, "sections of docs/operating.md, in the order of the table");
    for section in page.split("\n#### ").skip(1) {
        let (name, text) = section.split_once('\n').unwrap();
        let text = text.split("\n## ").next().unwrap().replace('\n', " ");
        for part in ["*Means:* ", "*Look at:* ", "*Do:* "] {
            assert!(text.contains(part), "{name} lacks {part}");
        }
    }
}

fn alerts() -> impl Iterator<Item = &'static Alert> {
    GROUPS.iter().flat_map(|(_, alerts)| *alerts)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn compare(name: &str, text: &str) {
    let path = root().join(name);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "{name} is made from the table: UPDATE_EXPECT=1 cargo test -p frieze-metrics");
}

/// Names of metrics in an expression; those of a histogram without their ends.
fn metrics_of(expression: &str) -> Vec<String> {
    let mut names = Vec::new();
    each_metric(expression, |name, _| {
        let ends = ["_bucket", "_sum", "_count"];
        let family = ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        names.push(family.to_owned());
        String::new()
    });
    names
}

/// Replaces each metric of an expression, and the opening brace behind it, by what `change` makes of its name and of
/// whether it has matchers.
fn each_metric(expression: &str, mut change: impl FnMut(&str, bool) -> String) -> String {
    let (mut out, mut rest) = (String::new(), expression);
    while !rest.is_empty() {
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        if word == "up" || word.starts_with("frieze_") || word.starts_with("process_") {
            let matchers = behind.strip_prefix('{');
            out += &change(word, matchers.is_some());
            rest = matchers.unwrap_or(behind);
        } else {
            let next = behind.chars().next().map_or(0, char::len_utf8);
            out += &rest[..end + next];
            rest = &behind[next..];
        }
    }
    out
}

/// An expression as the dashboard has it.
fn with_variables(expression: &str) -> String {
    let selected = each_metric(expression, |name, has_matchers| {
        if has_matchers { format!("{name}{{{SELECTOR},") } else { format!("{name}{{{SELECTOR}}}") }
    });
    selected.replace("[R]", "[$__rate_interval]")
}

fn dashboard() -> Value {
    let (mut panels, mut id, mut y) = (Vec::new(), 0, 0);
    for (index, row) in ROWS.iter().enumerate() {
        id += 1;
        let place = json!({ "h": 1, "w": COLUMNS, "x": 0, "y": y });
        y += 1;
        let (mut children, mut x, mut tallest) = (Vec::new(), 0, 0);
        let row_id = id;
        for panel in row.panels {
            if x + panel.width > COLUMNS {
                (x, y, tallest) = (0, y + tallest, 0);
            }
            id += 1;
            let height = height(panel.look);
            children.push(drawn(panel, id, json!({ "h": height, "w": panel.width, "x": x, "y": y })));
            (x, tallest) = (x + panel.width, height.max(tallest));
        }
        y += tallest;
        // The first two rows are open; the panels of a row that is not are within it.
        let is_open = index < 2;
        let (within, beside) = if is_open { (Vec::new(), children) } else { (children, Vec::new()) };
        panels.push(json!({
            "id": row_id, "type": "row", "title": row.title, "collapsed": !is_open, "gridPos": place, "panels": within,
        }));
        panels.extend(beside);
    }
    json!({
        "title": "frieze",
        "uid": "frieze",
        "description": "Servers of frieze: requests, space, chains, clocks, damage. docs/operating.md says which alert \
            means what, docs/metrics.md what each metric is.",
        "tags": ["frieze"],
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "schemaVersion": 39,
        "time": { "from": "now-3h", "to": "now" },
        "timezone": "browser",
        "templating": { "list": [
            { "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus" },
            variable("job", "Job", "label_values(frieze_build_info, job)", false),
            variable("instance", "Server", "label_values(frieze_build_info{job=~\"$job\"}, instance)", true),
        ] },
        "annotations": { "list": [] },
        "links": [],
        "panels": panels,
    })
}

fn variable(name: &str, label: &str, query: &str, is_multiple: bool) -> Value {
    json!({
        "name": name,
        "label": label,
        "type": "query",
        "datasource": source(),
        "query": { "query": query, "refId": name },
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": is_multiple,
        "includeAll": is_multiple,
        "allValue": is_multiple.then_some(".*"),
    })
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

fn height(look: Look) -> u32 {
    match look {
        Look::Number(_) | Look::YesNo(..) => 4,
        Look::Table => 6,
        Look::Lines | Look::Stacked | Look::Heat => 8,
    }
}

fn drawn(panel: &Panel, id: u32, place: Value) -> Value {
    let letters = "ABCDEFGH".chars();
    let targets: Vec<Value> =
        panel.lines.iter().zip(letters).map(|(line, letter)| target(line, letter, panel.look)).collect();
    let is_number = matches!(panel.look, Look::Number(_) | Look::YesNo(..));
    let mut defaults = json!({ "unit": panel.unit, "custom": {} });
    let mut options = json!({});
    match panel.look {
        Look::Lines | Look::Stacked => {
            let stacking = if matches!(panel.look, Look::Stacked) { "normal" } else { "none" };
            let fill = if stacking == "normal" { 30 } else { 8 };
            defaults["custom"] = json!({
                "drawStyle": "line",
                "lineWidth": 1,
                "fillOpacity": fill,
                "showPoints": "never",
                "spanNulls": false,
                "stacking": { "mode": stacking, "group": "A" },
            });
            options = json!({
                "legend": { "displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"] },
                "tooltip": { "mode": "multi", "sort": "desc" },
            });
        }
        Look::Number(bound) => {
            let steps = match bound {
                Bound::Above(at) => json!([{ "color": "green", "value": null }, { "color": "red", "value": at }]),
                Bound::Below(at) => json!([{ "color": "red", "value": null }, { "color": "green", "value": at }]),
            };
            defaults["thresholds"] = json!({ "mode": "absolute", "steps": steps });
        }
        Look::YesNo(yes, no) => {
            defaults["mappings"] = json!([{ "type": "value", "options": {
                "1": { "text": yes, "color": "green" }, "0": { "text": no, "color": "red" },
            } }]);
        }
        Look::Heat => {
            options = json!({
                "calculate": false,
                "yAxis": { "unit": panel.unit },
                "color": { "mode": "scheme", "scheme": "Oranges", "steps": 64 },
                "tooltip": { "mode": "single", "yHistogram": true },
            });
        }
        Look::Table => {}
    }
    if is_number {
        options = json!({
            "colorMode": "value",
            "graphMode": "area",
            "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
        });
    }
    let kind = match panel.look {
        Look::Lines | Look::Stacked => "timeseries",
        Look::Number(_) | Look::YesNo(..) => "stat",
        Look::Heat => "heatmap",
        Look::Table => "table",
    };
    let mut drawn = json!({
        "id": id,
        "type": kind,
        "title": panel.title,
        "description": panel.about,
        "gridPos": place,
        "datasource": source(),
        "targets": targets,
        "fieldConfig": { "defaults": defaults, "overrides": [] },
        "options": options,
    });
    if matches!(panel.look, Look::Table) {
        drawn["transformations"] = json!([
            { "id": "joinByField", "options": { "byField": "instance", "mode": "outer" } },
            { "id": "organize", "options": { "excludeByName": {
                "Time": true, "Time 1": true, "Time 2": true, "Value #A": true, "Value #B": true,
                "__name__ 1": true, "__name__ 2": true, "job 1": true, "job 2": true,
            } } },
        ]);
    }
    drawn
}

fn target(line: &Line, letter: char, look: Look) -> Value {
    let (format, is_instant) = match look {
        Look::Table => ("table", true),
        Look::Heat => ("heatmap", false),
        _ => ("time_series", false),
    };
    json!({
        "refId": letter.to_string(),
        "datasource": source(),
        "expr": with_variables(line.0),
        "legendFormat": line.1,
        "format": format,
        "instant": is_instant,
        "range": !is_instant,
    })
}

/// The rules. Texts are in double quotes, as JSON has them: each such text is one of YAML as well.
fn rules() -> String {
    let mut text = String::from(HEAD);
    for (group, alerts) in GROUPS {
        text += &format!("  - name: {group}\n    rules:\n");
        for alert in *alerts {
            let severity = match alert.severity {
                Severity::Critical => "critical",
                Severity::Warning => "warning",
            };
            let section = format!("docs/operating.md#{}", alert.name.to_lowercase());
            text += &format!("      - alert: {}\n        expr: {}\n", alert.name, json!(alert.expression));
            if alert.lasts != "0s" {
                text += &format!("        for: {}\n", alert.lasts);
            }
            text += &format!("        labels:\n          severity: {severity}\n        annotations:\n");
            for (key, value) in
                [("summary", alert.summary), ("description", alert.description), ("runbook", section.as_str())]
            {
                text += &format!("          {key}: {}\n", json!(value));
            }
        }
    }
    text
}

const HEAD: &str = "\
# Alerts of frieze, for `rule_files` of Prometheus. The job is named `frieze`, one job for each cluster.
# docs/operating.md has a section for each alert. This file is made from crates/metrics/src/tests/alerts.rs.
groups:
";
