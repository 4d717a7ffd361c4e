//! `cargo xtask deps`: every arrow between crates of the workspace points the way the table says.
//!
//! Doors use servers, servers use drivers and cores, those use words, words use the ground. Cores do not know each
//! other, nor any crate that does I/O; a server does not know a client; a door does not know a server, unless it starts
//! one. What a crate needs only for its tests may be any crate below it in the table, and the fixtures of `testkit`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

/// A crate's place: its layer, and which crates of the workspace it may use.
struct CratePlace {
    name: &'static str,
    layer: &'static str,
    may_use: &'static [&'static str],
}

const fn place(layer: &'static str, name: &'static str, may_use: &'static [&'static str]) -> CratePlace {
    CratePlace { name, layer, may_use }
}

/// What tests of every crate may use, whatever it stands on.
const TESTKIT: &str = "frieze-testkit";
const WORDS: &[&str] = &["frieze-wire", "frieze-hlc", "frieze-base"];
/// What a crate with threads uses below its own field: only crates of the server have locks with levels.
const WORDS_AND_LOCKS: &[&str] = &["frieze-wire", "frieze-hlc", "frieze-locks", "frieze-base"];
const CLIENTS: &[&str] = &["frieze-client", "frieze-trace", "frieze-wire", "frieze-hlc", "frieze-base"];

/// The table, from the top down. An arrow in the tests of a crate may go to any crate below it.
const PLACES: &[CratePlace] = &[
    place("chores", "xtask", &[]),
    // Fixtures: only tests use it, and those of every crate.
    place(
        "tests",
        TESTKIT,
        &["frieze-node", "frieze-cluster", "frieze-disk", "frieze-wire", "frieze-hlc", "frieze-base"],
    ),
    place(
        "evidence",
        "frieze-sim",
        // The log of metadata tells it what an edit was.
        &[
            "frieze-node",
            "frieze-client",
            "frieze-fabric",
            "frieze-net",
            "frieze-disk",
            "frieze-metalog",
            "frieze-calvin",
            "frieze-namespace",
            "frieze-usertime",
            "frieze-wire",
            "frieze-hlc",
            "frieze-locks",
            "frieze-base",
        ],
    ),
    place("examples", "frieze-flights", CLIENTS),
    place("examples", "frieze-wave", CLIENTS),
    // It starts servers and mounts, and runs the benchmarks.
    place(
        "doors",
        "frieze-cli",
        &[
            "frieze-node",
            "frieze-otlp",
            "frieze-fuse",
            "frieze-http",
            "frieze-hdfs",
            "frieze-console",
            "frieze-bench",
            "frieze-client",
            "frieze-fabric",
            "frieze-load",
            "frieze-tracefile",
            "frieze-whatif",
            "frieze-tier",
            "frieze-trace",
            "frieze-wire",
            "frieze-hlc",
            "frieze-base",
        ],
    ),
    // It counts what the kernel keeps of a server's files, and what a simulation and a bare transfer cost.
    place(
        "evidence",
        "frieze-bench",
        &[
            "frieze-node",
            "frieze-client",
            "frieze-fabric",
            "frieze-disk",
            "frieze-whatif",
            "frieze-wire",
            "frieze-hlc",
            "frieze-base",
        ],
    ),
    // Policies of the server under recorded loads.
    place("evidence", "frieze-whatif", &["frieze-tier", "frieze-tracefile", "frieze-trace", "frieze-base"]),
    // It makes events; what writes or replays them is above.
    place("evidence", "frieze-load", &["frieze-base"]),
    place("evidence", "frieze-tracefile", &["frieze-trace", "frieze-hlc", "frieze-base"]),
    place("doors", "frieze-fuse", CLIENTS),
    place("doors", "frieze-mcp", &["frieze-client", "frieze-wire", "frieze-hlc", "frieze-base"]),
    // It says the calls of the HDFS door in another language.
    place(
        "doors",
        "frieze-http",
        &["frieze-hdfs", "frieze-client", "frieze-httpd", "frieze-wire", "frieze-hlc", "frieze-base"],
    ),
    place("doors", "frieze-console", &["frieze-client", "frieze-httpd", "frieze-wire", "frieze-hlc", "frieze-base"]),
    place("doors", "frieze-hdfs", CLIENTS),
    place("doors", "frieze-python", &["frieze-client", "frieze-wire", "frieze-hlc", "frieze-base"]),
    // It sends what tracers make; a process that exports nothing does without it.
    place("doors", "frieze-otlp", &["frieze-trace", "frieze-hlc", "frieze-base"]),
    place(
        "clients",
        "frieze-client",
        &["frieze-fabric", "frieze-net", "frieze-trace", "frieze-wire", "frieze-hlc", "frieze-base"],
    ),
    place(
        "servers",
        "frieze-node",
        &[
            "frieze-service",
            "frieze-planes",
            "frieze-metadata",
            "frieze-coherence",
            "frieze-replication",
            "frieze-storage",
            "frieze-trace",
            "frieze-httpd",
            "frieze-metrics",
            "frieze-fabric",
            "frieze-net",
            "frieze-disk",
            "frieze-metalog",
            "frieze-namespace",
            "frieze-chain",
            "frieze-cluster",
            "frieze-multilog",
            "frieze-tier",
            "frieze-wire",
            "frieze-hlc",
            "frieze-locks",
            "frieze-base",
        ],
    ),
    // It answers requests; its rooms have arrows of their own (`service_rooms`). A handler gets its room, never the
    // server.
    place(
        "servers",
        "frieze-service",
        &[
            "frieze-usertime",
            "frieze-planes",
            "frieze-metadata",
            "frieze-coherence",
            "frieze-replication",
            "frieze-storage",
            "frieze-net",
            "frieze-disk",
            "frieze-namespace",
            "frieze-cluster",
            "frieze-multilog",
            "frieze-tier",
            "frieze-retention",
            "frieze-wire",
            "frieze-hlc",
            "frieze-locks",
            "frieze-base",
        ],
    ),
    // Names and bytes as one: closed in both, read as one version. It knows no session and no right.
    place(
        "servers",
        "frieze-planes",
        &[
            "frieze-metadata",
            "frieze-replication",
            "frieze-storage",
            "frieze-net",
            "frieze-disk",
            "frieze-metalog",
            "frieze-namespace",
            "frieze-chain",
            "frieze-cluster",
            "frieze-multilog",
            "frieze-tier",
            "frieze-retention",
            "frieze-wire",
            "frieze-hlc",
            "frieze-locks",
            "frieze-base",
        ],
    ),
    // Names and their history; it asks no chain, and what reads them is called through a trait of its own.
    place(
        "drivers",
        "frieze-metadata",
        &[
            "frieze-storage",
            "frieze-net",
            "frieze-disk",
            "frieze-metalog",
            "frieze-namespace",
            "frieze-cluster",
            "frieze-retention",
            "frieze-wire",
            "frieze-hlc",
            "frieze-locks",
            "frieze-base",
        ],
    ),
    // Chains over one device; it tells the other members through a trait of `net`.
    place(
        "drivers",
        "frieze-replication",
        &[
            "frieze-storage",
            "frieze-net",
            "frieze-disk",
            "frieze-chain",
            "frieze-multilog",
            "frieze-tier",
            "frieze-wire",
            "frieze-hlc",
            "frieze-locks",
            "frieze-base",
        ],
    ),
    // One data directory: it runs the cores that decide where records lie and what of them is in memory.
    place(
        "drivers",
        "frieze-storage",
        &[
            "frieze-trace",
            "frieze-disk",
            "frieze-multilog",
            "frieze-tier",
            "frieze-wire",
            "frieze-hlc",
            "frieze-locks",
            "frieze-base",
        ],
    ),
    // WebHDFS and the page of metrics stand on it.
    place("drivers", "frieze-httpd", &["frieze-net", "frieze-wire", "frieze-hlc", "frieze-base"]),
    // It is called within every call of a client, and knows none of them.
    place("drivers", "frieze-trace", &["frieze-hlc", "frieze-base"]),
    place("drivers", "frieze-disk", WORDS_AND_LOCKS),
    place("drivers", "frieze-fabric", WORDS_AND_LOCKS),
    place("drivers", "frieze-net", WORDS_AND_LOCKS),
    // It is called by many threads at once.
    place("cores", "frieze-coherence", WORDS_AND_LOCKS),
    place("cores", "frieze-metalog", WORDS),
    place("cores", "frieze-namespace", &["frieze-retention", "frieze-wire", "frieze-hlc", "frieze-base"]),
    // What a transaction means is not its business: positions and names of requests are enough.
    place("cores", "frieze-calvin", &["frieze-base"]),
    place("cores", "frieze-chain", WORDS),
    place("cores", "frieze-cluster", WORDS),
    place("cores", "frieze-multilog", WORDS),
    place("cores", "frieze-tier", WORDS),
    // Pure functions of the bytes of a record.
    place("cores", "frieze-usertime", &["frieze-hlc", "frieze-base"]),
    // Marks, instants and numbers of records are enough: it knows neither messages nor files on disk.
    place("words", "frieze-retention", &["frieze-hlc", "frieze-base"]),
    // Names for operators; it uses nothing.
    place("words", "frieze-metrics", &[]),
    place("words", "frieze-wire", &["frieze-hlc", "frieze-base"]),
    place("ground", "frieze-hlc", &["frieze-base"]),
    place("ground", "frieze-locks", &[]),
    place("ground", "frieze-base", &[]),
    // For tests alone: no crate above may use it in what is shipped.
    place("tests", "frieze-harness", &[]),
];

/// The layers whose crates do no I/O, whatever they stand on.
const PURE_LAYERS: &[&str] = &["cores", "words", "ground"];

/// What does I/O, reads a clock, starts threads or draws unseeded numbers.
const IMPURE: &[&str] = &[
    "fuser",
    "getrandom",
    "io-uring",
    "libc",
    "lsm-tree",
    "mio",
    "nix",
    "rand",
    "rayon",
    "rustix",
    "socket2",
    "tokio",
];

/// What impure a crate of a pure layer stands on all the same: through which package, what, and why that does no harm.
struct Excuse {
    name: &'static str,
    through: &'static str,
    impure: &'static [&'static str],
}

/// The Raft core draws election timeouts from `rand`. `metalog` puts its own, seeded ones in their place after every
/// step, and a test plays a seed twice and compares.
///
/// Our own `rand_core` has no `getrandom`; cargo's metadata gives it the one that `bolero` turns on in tests, and the
/// Raft core really has one, so what is shipped does not tell the two apart.
const EXCUSES: &[Excuse] = &[
    Excuse { name: "frieze-metalog", through: "raft", impure: &["getrandom", "libc", "rand"] },
    Excuse { name: "frieze-metalog", through: "rand_core", impure: &["getrandom"] },
];

/// The workspace as cargo sees it.
#[derive(Clone, Debug, Default)]
struct Graph {
    /// By name of the package.
    crates: BTreeMap<String, Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// Crates of the workspace that it uses, at run time or while it is built.
    uses: BTreeSet<String>,
    /// Crates of the workspace that only its tests use.
    tests_use: BTreeSet<String>,
    /// Every package that it stands on, itself left out.
    tree: BTreeSet<String>,
}

/// Checks the workspace at `root` and draws its arrows. Returns what is wrong, a line each.
pub(crate) fn run(root: &Path) -> anyhow::Result<Vec<String>> {
    let graph = read(root)?;
    print!("{}", draw(&graph));
    let mut wrong = check(&graph);
    wrong.extend(crate::service_rooms::check(root)?);
    if wrong.is_empty() {
        println!("every crate uses only crates below it, and every room of service only rooms below it");
    }
    Ok(wrong)
}

fn read(root: &Path) -> anyhow::Result<Graph> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .exec()
        .context("cargo metadata does not know the workspace")?;
    let resolve = metadata.resolve.as_ref().context("cargo metadata resolved nothing")?;
    let names: BTreeMap<&PackageId, String> =
        metadata.packages.iter().map(|package| (&package.id, package.name.to_string())).collect();
    let edges: BTreeMap<&PackageId, Edges<'_>> = resolve.nodes.iter().map(|node| (&node.id, Edges::of(node))).collect();
    let members: BTreeSet<&PackageId> = metadata.workspace_members.iter().collect();
    let mut graph = Graph::default();
    for member in &metadata.workspace_members {
        let edges_of = &edges[member];
        let in_workspace = |ids: &BTreeSet<&PackageId>| {
            ids.iter().filter(|id| members.contains(*id)).map(|id| names[id].clone()).collect::<BTreeSet<_>>()
        };
        let uses = in_workspace(&edges_of.shipped);
        let tests_use = in_workspace(&edges_of.tests).difference(&uses).cloned().collect();
        let excused = |package: &PackageId| {
            EXCUSES.iter().find(|excuse| excuse.name == names[member] && excuse.through == names[package])
        };
        let tree = stands_on(member, &edges, &|from, to| {
            excused(from).is_some_and(|excuse| excuse.impure.contains(&names[to].as_str()))
        });
        let mut tree: BTreeSet<String> = tree.into_iter().map(|id| names[id].clone()).collect();
        if tree.iter().any(|package| IMPURE.contains(&package.as_str())) {
            // The graph of the workspace has the features that any test asks for; what is shipped has fewer.
            let shipped = shipped_edges(root, &names[member])?;
            tree = stands_on_shipped(&names[member], &shipped);
        }
        graph.crates.insert(names[member].clone(), Node { uses, tests_use, tree });
    }
    anyhow::ensure!(!graph.crates.is_empty(), "the workspace has no members: {}", described(&metadata));
    Ok(graph)
}

/// The arrows out of one package.
struct Edges<'a> {
    shipped: BTreeSet<&'a PackageId>,
    tests: BTreeSet<&'a PackageId>,
}

impl<'a> Edges<'a> {
    fn of(node: &'a cargo_metadata::Node) -> Edges<'a> {
        let mut edges = Edges { shipped: BTreeSet::new(), tests: BTreeSet::new() };
        for dependency in &node.deps {
            for kind in &dependency.dep_kinds {
                match kind.kind {
                    DependencyKind::Development => edges.tests.insert(&dependency.pkg),
                    _ => edges.shipped.insert(&dependency.pkg),
                };
            }
        }
        edges
    }
}

/// The arrows between packages that are built into this one with its own features, as cargo resolves them without
/// tests.
fn shipped_edges(root: &Path, package: &str) -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
    let tree = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root)
        .args(["tree", "--edges", "normal,build", "--prefix", "depth", "--format", " {p}", "--package", package])
        .output()
        .context("cargo tree does not run")?;
    anyhow::ensure!(tree.status.success(), "cargo tree: {}", String::from_utf8_lossy(&tree.stderr));
    let (mut edges, mut path) = (BTreeMap::<String, BTreeSet<String>>::new(), Vec::<String>::new());
    for line in String::from_utf8_lossy(&tree.stdout).lines() {
        let mut words = line.split_whitespace();
        let Some(depth) = words.next().and_then(|depth| depth.parse::<usize>().ok()) else { continue };
        // Two versions of a package have features of their own.
        let name = words.take(2).collect::<Vec<_>>().join(" ");
        path.truncate(depth);
        if let Some(parent) = path.last() {
            edges.entry(parent.clone()).or_default().insert(name.clone());
        }
        path.push(name);
    }
    Ok(edges)
}

/// As [`stands_on`], over those arrows.
fn stands_on_shipped(start: &str, edges: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let plain = |package: &str| package.split(' ').next().unwrap_or_default().to_owned();
    let excused = |from: &str, to: &str| {
        let mut excuses = EXCUSES.iter().filter(|excuse| excuse.name == start && excuse.through == plain(from));
        excuses.any(|excuse| excuse.impure.contains(&plain(to).as_str()))
    };
    let (mut found, mut open) = (BTreeSet::new(), Vec::new());
    open.extend(edges.keys().filter(|package| plain(package) == start).cloned());
    while let Some(name) = open.pop() {
        for next in edges.get(&name).into_iter().flatten() {
            if !excused(&name, next) && found.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    found.iter().map(|package| plain(package)).collect()
}

fn described(metadata: &Metadata) -> String {
    metadata.workspace_root.to_string()
}

/// Everything that is built into `start`, itself left out, and what is there only through an arrow that is `excused`.
fn stands_on<'a>(
    start: &'a PackageId,
    edges: &BTreeMap<&'a PackageId, Edges<'a>>,
    excused: &dyn Fn(&PackageId, &PackageId) -> bool,
) -> BTreeSet<&'a PackageId> {
    let mut seen = BTreeSet::new();
    let mut open = vec![start];
    while let Some(id) = open.pop() {
        for next in edges.get(id).into_iter().flat_map(|edges| &edges.shipped) {
            if !excused(id, next) && seen.insert(*next) {
                open.push(next);
            }
        }
    }
    seen
}

/// What is wrong, a line each.
fn check(graph: &Graph) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, node) in &graph.crates {
        let Some(rank) = PLACES.iter().position(|place| place.name == name) else {
            wrong.push(format!("{name} has no place in the table of xtask/src/deps.rs: give it a layer"));
            continue;
        };
        let place = &PLACES[rank];
        for used in node.uses.iter().filter(|used| !place.may_use.contains(&used.as_str())) {
            wrong.push(format!("{name} ({}) must not use {used}{}", place.layer, layer_of(used)));
        }
        let is_below = |used: &String| used == TESTKIT || PLACES[rank..].iter().any(|lower| lower.name == used);
        for used in node.tests_use.iter().filter(|used| !is_below(used)) {
            wrong.push(format!("the tests of {name} ({}) must not use {used}{}", place.layer, layer_of(used)));
        }
        if PURE_LAYERS.contains(&place.layer) {
            for impure in node.tree.iter().filter(|package| IMPURE.contains(&package.as_str())) {
                wrong.push(format!("{name} ({}) must not stand on {impure}: it does no I/O", place.layer));
            }
        }
    }
    for place in PLACES.iter().filter(|place| !graph.crates.contains_key(place.name)) {
        wrong.push(format!("{} has a place in the table of xtask/src/deps.rs and is no crate", place.name));
    }
    wrong
}

fn layer_of(name: &str) -> String {
    PLACES.iter().find(|place| place.name == name).map_or(String::new(), |place| format!(" ({})", place.layer))
}

/// The arrows as a table: a line for each crate, a column for each that is used.
fn draw(graph: &Graph) -> String {
    let known = PLACES.iter().filter(|place| graph.crates.contains_key(place.name));
    let rows: Vec<(&str, &str)> = known.map(|place| (place.layer, place.name)).collect();
    let short = |name: &str| name.trim_start_matches("frieze-").to_owned();
    let columns: Vec<&str> = rows
        .iter()
        .map(|(_, name)| *name)
        .filter(|name| graph.crates.values().any(|node| node.uses.contains(*name)))
        .collect();
    let mut drawn = format!("{:9} {:10}", "", "");
    for column in &columns {
        drawn += &format!(" {}", short(column));
    }
    let mut arrows = 0;
    let mut last_layer = "";
    for (layer, name) in rows {
        drawn += &format!("\n{:9} {:10}", if layer == last_layer { "" } else { layer }, short(name));
        last_layer = layer;
        for column in &columns {
            let used = graph.crates[name].uses.contains(*column);
            arrows += usize::from(used);
            let mark = if used { "→" } else { "·" };
            drawn += &format!(" {mark:^width$}", width = short(column).len());
        }
        while drawn.ends_with(' ') {
            drawn.pop();
        }
    }
    drawn + &format!("\n{arrows} arrows\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace with every crate of the table and every arrow that it allows.
    fn allowed() -> Graph {
        let node = |place: &CratePlace| Node {
            uses: place.may_use.iter().map(|name| (*name).to_owned()).collect(),
            ..Node::default()
        };
        Graph { crates: PLACES.iter().map(|place| (place.name.to_owned(), node(place))).collect() }
    }

    fn with(change: impl FnOnce(&mut BTreeMap<String, Node>)) -> Vec<String> {
        let mut graph = allowed();
        change(&mut graph.crates);
        check(&graph)
    }

    fn with_arrow(from: &str, to: &str) -> Vec<String> {
        with(|crates| {
            crates.get_mut(from).expect("it is in the table").uses.insert(to.to_owned());
        })
    }

    #[test]
    fn the_arrows_of_the_table_are_allowed() {
        assert_eq!(check(&allowed()), Vec::<String>::new());
    }

    #[test]
    fn the_table_points_down() {
        for (rank, place) in PLACES.iter().enumerate() {
            for used in place.may_use {
                assert!(PLACES[rank + 1..].iter().any(|lower| lower.name == *used), "{} → {used}", place.name);
            }
        }
    }

    #[test]
    fn a_core_that_knows_another_core_is_caught() {
        assert_eq!(
            with_arrow("frieze-chain", "frieze-multilog"),
            ["frieze-chain (cores) must not use frieze-multilog (cores)"]
        );
    }

    #[test]
    fn a_core_that_knows_a_driver_is_caught() {
        assert_eq!(
            with_arrow("frieze-metalog", "frieze-disk"),
            ["frieze-metalog (cores) must not use frieze-disk (drivers)"]
        );
    }

    #[test]
    fn a_gateway_that_knows_a_server_is_caught() {
        for door in ["frieze-fuse", "frieze-hdfs", "frieze-http", "frieze-mcp", "frieze-python", "frieze-wave"] {
            assert_eq!(with_arrow(door, "frieze-node").len(), 1, "{door}");
        }
        assert_eq!(with_arrow("frieze-cli", "frieze-node"), Vec::<String>::new());
        assert_eq!(with_arrow("frieze-bench", "frieze-node"), Vec::<String>::new());
    }

    #[test]
    fn a_server_that_knows_a_client_is_caught() {
        assert_eq!(
            with_arrow("frieze-node", "frieze-client"),
            ["frieze-node (servers) must not use frieze-client (clients)"]
        );
    }

    #[test]
    fn a_core_that_stands_on_io_is_caught_however_deep() {
        for impure in ["tokio", "rustix", "lsm-tree", "fuser", "nix", "mio", "socket2"] {
            let found = with(|crates| {
                crates.get_mut("frieze-namespace").expect("it is in the table").tree.insert(impure.to_owned());
            });
            assert_eq!(found, [format!("frieze-namespace (cores) must not stand on {impure}: it does no I/O")]);
        }
        let driver = with(|crates| {
            crates.get_mut("frieze-disk").expect("it is in the table").tree.insert("rustix".to_owned());
        });
        assert_eq!(driver, Vec::<String>::new());
    }

    #[test]
    fn an_excuse_holds_for_one_crate_and_one_way() {
        let node =
            |tree: &[&str]| Node { tree: tree.iter().map(|name| (*name).to_owned()).collect(), ..Node::default() };
        let read = read(&crate::root()).expect("cargo knows this workspace");
        assert!(!read.crates["frieze-metalog"].tree.contains("rand"), "it is there through the Raft core alone");
        assert!(read.crates["frieze-metalog"].tree.contains("raft"));
        let found = with(|crates| {
            crates.insert("frieze-metalog".to_owned(), node(&["raft", "rand"]));
        });
        assert_eq!(found, ["frieze-metalog (cores) must not stand on rand: it does no I/O"]);
    }

    #[test]
    fn tests_may_use_what_lies_below_and_nothing_above() {
        let found = with(|crates| {
            let chain = crates.get_mut("frieze-chain").expect("it is in the table");
            chain.tests_use = ["frieze-multilog".to_owned(), "frieze-node".to_owned()].into();
        });
        assert_eq!(found, ["the tests of frieze-chain (cores) must not use frieze-node (servers)"]);
    }

    #[test]
    fn every_test_may_use_the_fixtures_and_no_crate_may_ship_with_them() {
        let found = with(|crates| {
            crates.get_mut("frieze-base").expect("it is in the table").tests_use.insert(TESTKIT.to_owned());
        });
        assert_eq!(found, Vec::<String>::new());
        assert_eq!(with_arrow("frieze-cli", TESTKIT), ["frieze-cli (doors) must not use frieze-testkit (tests)"]);
    }

    #[test]
    fn a_crate_without_a_place_is_caught() {
        let found = with(|crates| {
            crates.insert("frieze-utils".to_owned(), Node::default());
            crates.remove("frieze-hlc");
        });
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("frieze-utils has no place"));
        assert!(found[1].starts_with("frieze-hlc has a place"));
    }

    #[test]
    fn a_table_draws_every_arrow() {
        let drawn = draw(&allowed());
        let arrows: usize = PLACES.iter().map(|place| place.may_use.len()).sum();
        assert_eq!(drawn.matches('→').count(), arrows);
        assert!(drawn.contains("cores     coherence"), "{drawn}");
    }

    #[test]
    fn this_workspace_is_read_whole() {
        let graph = read(&crate::root()).expect("cargo knows this workspace");
        let node = &graph.crates["frieze-node"];
        assert!(node.uses.contains("frieze-chain"));
        assert!(node.tree.contains("frieze-base") && node.tree.contains("lsm-tree"), "the tree is followed to its end");
        assert!(!graph.crates["frieze-chain"].tree.contains("proptest"), "tests are no part of it");
        assert!(check(&graph).is_empty(), "{:?}", check(&graph));
    }
}
