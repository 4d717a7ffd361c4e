//! Every expression of the dashboard and of the alerts, parsed by Prometheus' grammar and compared with the metrics of
//! real servers: names, kinds and labels.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use frieze_client::{CreateMode, Target};
use frieze_harness::requirements;
use frieze_testkit::wait::eventually;
use promql_parser::parser::{self, AggregateExpr, Call, Expr, LabelModifier, VectorSelector};
use serde_json::Value;
use tempfile::TempDir;

use super::MeteredServer;
use super::support::client;

/// A family of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Family {
    kind: String,
    labels: BTreeSet<String>,
}

type Families = BTreeMap<String, Family>;

/// An expression, its place, and the labels that texts beside it name.
struct Placed {
    place: String,
    text: String,
    named: Vec<String>,
}

/// Functions of the increase of a counter, and of the change of a gauge.
const OF_COUNTERS: [&str; 5] = ["rate", "irate", "increase", "resets", "absent_over_time"];
const OF_GAUGES: [&str; 5] = ["delta", "deriv", "changes", "predict_linear", "max_over_time"];

#[test]
fn expressions_fit_the_metrics_of_real_servers() {
    let directory = TempDir::new().unwrap();
    let first = MeteredServer::start(directory.path(), &["--metrics", "0", "--name", "db1"]);
    let join = first.address.clone();
    let second = MeteredServer::start(directory.path(), &["--metrics", "0", "--name", "db2", "--join", &join]);
    let client = client(&first.address);
    let file = client.fs().create(&Target::path("/file"), 0o644, CreateMode::OpenExisting).unwrap();
    file.write_at(0, &[7; 70_000]).unwrap();
    // Bytes that servers send are counted by kind of request, too.
    assert_eq!(file.read_at(0, &mut [0; 70_000]).unwrap(), 70_000);
    assert!(client.fs().stat(&Target::path("/nothing")).is_err());
    let documented = documented();
    let absent = eventually("the servers export what there is", || {
        let mut exported = families(&first.figures());
        exported.extend(families(&second.figures()));
        for (name, family) in &exported {
            assert_eq!(Some(family), documented.get(name), "docs/metrics.md has {name} otherwise");
        }
        // Counts of a fabric and of spans are exported only where there are any.
        let absent = documented
            .keys()
            .filter(|name| !exported.contains_key(*name) && !name.contains("_fabric_") && !name.contains("_spans_"));
        let absent: Vec<String> = absent.cloned().collect();
        absent.is_empty().then_some(absent)
    });
    assert!(absent.is_empty(), "{absent:?}");
    let placed: Vec<Placed> = dashboard().into_iter().chain(alerts()).collect();
    assert!(placed.len() > 100, "{} expressions", placed.len());
    let wrong: Vec<String> = placed.iter().filter_map(|placed| check(placed, &documented).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn wrong_expressions_are_found() {
    let families = documented();
    let judge = |text: &str, named: &[&str]| {
        let named = named.iter().map(|label| (*label).to_owned()).collect();
        check(&Placed { place: "here".to_owned(), text: text.to_owned(), named }, &families)
    };
    for (text, named) in [
        ("rate(frieze_flushes_total[5m])", &["instance"][..]),
        ("sum by (kind) (rate(frieze_request_duration_seconds_count[5m]))", &["kind"]),
        ("histogram_quantile(0.9, sum by (le) (rate(frieze_request_duration_seconds_bucket[5m])))", &[]),
        ("up == 0", &["instance"]),
    ] {
        assert_eq!(judge(text, named), Ok(()), "{text}");
    }
    for (text, named, words) in [
        ("rate(frieze_healthy[5m])", &[][..], "counter"),
        ("frieze_flushes_total > 1", &[], "rate"),
        ("delta(frieze_flushes_total[5m])", &[], "gauge"),
        ("frieze_unknown", &[], "no metric"),
        ("frieze_chains{rôle=\"head\"}", &[], "here"),
        ("frieze_chains{part=\"head\"}", &[], "label part"),
        ("sum by (part) (frieze_chains)", &[], "label part"),
        ("sum(frieze_chains)", &["instance"], "label instance"),
        ("frieze_request_duration_seconds", &[], "histogram"),
        ("histogram_quantile(0.9, sum by (kind) (rate(frieze_request_duration_seconds_bucket[5m])))", &[], "le"),
        ("histogram_quantile(0.9, sum by (kind) (rate(frieze_request_duration_seconds_sum[5m])))", &[], "_bucket"),
        ("sum(", &[], "here"),
    ] {
        let error = judge(text, named).expect_err(text);
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn promtool_accepts_the_rules_and_their_examples() {
    if Command::new("promtool").arg("--version").output().is_err() {
        requirements::missing("promtool", "promtool", "`apt-get install prometheus` has it");
        return;
    }
    let rules = root().join("contrib/prometheus");
    for words in [["check", "rules", "frieze.rules.yml"], ["test", "rules", "frieze.rules.test.yml"]] {
        let ran = Command::new("promtool").args(words).current_dir(&rules).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "promtool {words:?}: {said}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The expressions of the dashboard, with the variables of Grafana replaced.
fn dashboard() -> Vec<Placed> {
    let text = std::fs::read_to_string(root().join("contrib/grafana/frieze.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let rows = dashboard["panels"].as_array().unwrap();
    let within = rows.iter().filter_map(|row| row["panels"].as_array()).flatten();
    let mut placed = Vec::new();
    for panel in rows.iter().chain(within) {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let legend = target["legendFormat"].as_str().unwrap();
            let text = target["expr"].as_str().unwrap();
            placed.push(Placed {
                place: format!("panel {}", panel["title"]),
                text: text.replace("$__rate_interval", "5m"),
                named: labels_between(legend, "{{", "}}"),
            });
        }
    }
    placed
}

/// The expressions of the alerts. Texts are in double quotes, as JSON has them.
fn alerts() -> Vec<Placed> {
    let text = std::fs::read_to_string(root().join("contrib/prometheus/frieze.rules.yml")).unwrap();
    let mut placed: Vec<Placed> = Vec::new();
    let mut name = String::new();
    for line in text.lines().map(str::trim) {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        match key {
            "- alert" => name = value.to_owned(),
            "expr" => placed.push(Placed {
                place: format!("alert {name}"),
                text: serde_json::from_str(value).unwrap(),
                named: Vec::new(),
            }),
            "summary" | "description" => {
                let alert = placed.last_mut().unwrap();
                let labels = labels_between(value, "$labels.", " ");
                alert.named.extend(labels);
            }
            _ => {}
        }
    }
    placed
}

/// The words between each `open` and the next `close`.
fn labels_between(text: &str, open: &str, close: &str) -> Vec<String> {
    text.split(open).skip(1).filter_map(|rest| rest.split(close).next()).map(str::to_owned).collect()
}

/// The families of docs/metrics.md, which is made from the table of the server.
fn documented() -> Families {
    let page = std::fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels = cells[3].split(", ").map(|label| label.trim_matches('`').to_owned());
        let labels = labels.filter(|label| !label.is_empty()).collect();
        (cells[1].trim_matches('`').to_owned(), Family { kind: cells[2].to_owned(), labels })
    })
    .collect()
}

/// The families of a page of metrics.
fn families(page: &str) -> Families {
    let mut families = Families::new();
    for line in page.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').unwrap();
            families.insert(name.to_owned(), Family { kind: kind.to_owned(), labels: BTreeSet::new() });
        } else if let Some((name, rest)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let family = families.iter_mut().find(|(family, _)| family_of(name) == **family || name == **family);
            let names = rest.split("\",").filter_map(|label| label.split_once("=\"")).map(|(label, _)| label);
            let (_, family) = family.unwrap_or_else(|| panic!("{line} is of no family"));
            family.labels.extend(names.filter(|label| *label != "le").map(str::to_owned));
        }
    }
    families
}

/// The name without the end of a series of a histogram.
fn family_of(name: &str) -> &str {
    ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

/// What is wrong with an expression.
fn check(placed: &Placed, families: &Families) -> Result<(), String> {
    let inner = || {
        let labels = Checker { families }.labels(&parser::parse(&placed.text)?)?;
        match placed.named.iter().find(|label| !labels.contains(*label)) {
            Some(label) => Err(format!("the result has no label {label}, only {labels:?}")),
            None => Ok(()),
        }
    };
    inner().map_err(|error| format!("{}: {}: {error}", placed.place, placed.text))
}

struct Checker<'a> {
    families: &'a Families,
}

impl Checker<'_> {
    /// The labels of the result.
    fn labels(&self, expression: &Expr) -> Result<BTreeSet<String>, String> {
        match expression {
            Expr::Aggregate(aggregate) => self.aggregated(aggregate),
            Expr::Unary(unary) => self.labels(&unary.expr),
            Expr::Paren(paren) => self.labels(&paren.expr),
            Expr::Binary(binary) => {
                let (left, right) = (self.labels(&binary.lhs)?, self.labels(&binary.rhs)?);
                match (is_scalar(&binary.lhs), is_scalar(&binary.rhs)) {
                    (true, _) => Ok(right),
                    (_, true) => Ok(left),
                    _ if left != right => Err(format!("no series of {left:?} match any of {right:?}")),
                    _ => Ok(left),
                }
            }
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Ok(BTreeSet::new()),
            Expr::VectorSelector(selector) => match self.kind(selector)?.as_str() {
                "gauge" => self.selected(selector),
                kind => Err(format!("{:?} is a {kind}: only its rate is of use", selector.name)),
            },
            Expr::MatrixSelector(_) => Err("a range outside a function".to_owned()),
            Expr::Call(call) => self.called(call),
            Expr::Subquery(_) | Expr::Extension(_) => Err("not used here".to_owned()),
        }
    }

    fn aggregated(&self, aggregate: &AggregateExpr) -> Result<BTreeSet<String>, String> {
        let within = self.labels(&aggregate.expr)?;
        let keeps = matches!(aggregate.op.to_string().as_str(), "topk" | "bottomk");
        match &aggregate.modifier {
            None if keeps => Ok(within),
            None => Ok(BTreeSet::new()),
            Some(LabelModifier::Include(labels)) => match labels.labels.iter().find(|label| !within.contains(*label)) {
                Some(label) => Err(format!("there is no label {label} to sum by")),
                None => Ok(labels.labels.iter().cloned().collect()),
            },
            Some(LabelModifier::Exclude(_)) => Err("name the labels that stay".to_owned()),
        }
    }

    fn called(&self, call: &Call) -> Result<BTreeSet<String>, String> {
        let name = call.func.name;
        let arguments = &call.args.args;
        if name == "histogram_quantile" {
            let mut labels = self.labels(&arguments[1])?;
            if !format!("{}", arguments[1]).contains("_bucket") {
                return Err("a quantile is made of _bucket".to_owned());
            }
            return if labels.remove("le") { Ok(labels) } else { Err("a quantile needs the label le".to_owned()) };
        }
        let range = arguments.iter().find_map(|argument| match &**argument {
            Expr::MatrixSelector(range) => Some(&range.vs),
            _ => None,
        });
        let Some(selector) = range else {
            let of_all = arguments.iter().map(|argument| self.labels(argument));
            return of_all.reduce(|all, one| Ok(&all? | &one?)).unwrap_or(Ok(BTreeSet::new()));
        };
        let kind = self.kind(selector)?;
        let wanted = match (OF_COUNTERS.contains(&name), OF_GAUGES.contains(&name)) {
            (true, _) => "counter",
            (_, true) => "gauge",
            _ => return Err(format!("{name} is not known here")),
        };
        if kind != wanted {
            return Err(format!("{name} is for a {wanted}, and {:?} is a {kind}", selector.name));
        }
        self.selected(selector)
    }

    /// What a series of the selector is: those of a histogram count up.
    fn kind(&self, selector: &VectorSelector) -> Result<String, String> {
        let name = selector.name.as_deref().unwrap_or_default();
        if name == "up" {
            return Ok("gauge".to_owned());
        }
        match (self.families.get(name), self.families.get(family_of(name))) {
            (Some(family), _) => Ok(family.kind.clone()),
            (None, Some(family)) if family.kind == "histogram" => Ok("counter".to_owned()),
            _ => Err(format!("there is no metric {name}")),
        }
    }

    /// The labels of the selected series; those that it compares are among them.
    fn selected(&self, selector: &VectorSelector) -> Result<BTreeSet<String>, String> {
        let name = selector.name.as_deref().unwrap_or_default();
        let mut labels: BTreeSet<String> = ["job", "instance"].map(str::to_owned).into();
        if let Some(family) = self.families.get(family_of(name)) {
            labels.extend(family.labels.iter().cloned());
        }
        if name.ends_with("_bucket") {
            labels.insert("le".to_owned());
        }
        match selector.matchers.matchers.iter().find(|matcher| !labels.contains(&matcher.name)) {
            Some(matcher) => Err(format!("{name} has no label {}", matcher.name)),
            None => Ok(labels),
        }
    }
}

/// True for a number without labels: a literal, the time of the evaluation, or what is computed of these.
fn is_scalar(expression: &Expr) -> bool {
    match expression {
        Expr::NumberLiteral(_) => true,
        Expr::Call(call) => call.func.name == "time",
        Expr::Paren(paren) => is_scalar(&paren.expr),
        Expr::Binary(binary) => is_scalar(&binary.lhs) && is_scalar(&binary.rhs),
        _ => false,
    }
}
