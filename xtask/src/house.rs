//! `cargo xtask house`: what the ratchets of the house count, crate by crate.
//!
//! Guarantees: `tidy` fails if one of [`RATCHETS`] is passed. A ratchet only tightens: a commit that loosens one
//! changes its line here. Leaves to others: the rules that hold for each line (`tidy`), arrows between crates (`deps`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Result;
use syn::visit::Visit;

use crate::rooms::{self, Crate};

/// The most that is allowed of each count.
pub(crate) struct Ratchets {
    /// Lines of `crates/node` without tests.
    pub(crate) node_lines: usize,
    /// Lines of the largest crate of the server without tests.
    pub(crate) server_crate_lines: usize,
    /// Modules of the largest ring inside one crate.
    pub(crate) ring: usize,
    /// Types that share their name with another type of the workspace.
    pub(crate) shared_names: usize,
    /// Comment lines with a word of [`RIDDLES`].
    pub(crate) riddles: usize,
    /// Lines over [`COLUMNS_MAX`] in Rust sources.
    pub(crate) wide_source: usize,
    /// Lines over [`COLUMNS_MAX`] in documents, tables and links apart.
    pub(crate) wide_docs: usize,
    /// Files over [`FILE_LINES_MAX`] lines without tests, [`LONG_FILES`] apart.
    pub(crate) long_files: usize,
    /// Functions and modules whose name contains a word of [`BAD_WORDS`].
    pub(crate) bad_names: usize,
    /// Mentions of [`STD_LOCKS`] of `std` in crates of [`LOCKS_WITH_LEVELS`]: such a lock has no level.
    pub(crate) std_locks: usize,
    /// Tests of whether the server is alone ([`LONE_TESTS`]) in [`PATHS_OF_SEVERAL`].
    pub(crate) lone_tests: usize,
}

pub(crate) const RATCHETS: Ratchets = Ratchets {
    node_lines: 7092,
    server_crate_lines: 12400,
    ring: 2,
    shared_names: 30,
    riddles: 1,
    wide_source: 0,
    wide_docs: 0,
    long_files: 0,
    bad_names: 0,
    std_locks: 0,
    lone_tests: 10,
};

/// Calls that ask whether the server is alone: each is a path that a cluster never takes, or never leaves (ADR 65).
const LONE_TESTS: &[&str] = &["data.is_shared()", "self.is_shared()", "meta.is_member()", "is_in_chains()"];
/// Crates that run one server by the paths of several.
const PATHS_OF_SEVERAL: &[&str] = &["node", "service", "planes", "replication"];

/// Lines of a file without tests beyond which it is split.
pub(crate) const FILE_LINES_MAX: usize = 600;
/// Files that a library forces to be one table.
pub(crate) const LONG_FILES: &[&str] = &["crates/fuse/src/kernel.rs"];
/// The formatter's width.
const COLUMNS_MAX: usize = 120;
/// Subjects that name no thing.
const RIDDLES: &[&str] = &["who", "whoever", "whom", "nobody", "somebody"];
/// Words of speech and of motion that say nothing about what a function does: `send`, `receive`, `flush`, `drop` do.
const BAD_WORDS: &[&str] = &[
    "told",
    "tell",
    "heard",
    "hear",
    "elsewhere",
    "gone",
    "held",
    "seen",
    "door",
    "brought",
    "take_in",
    "give_up",
    "let_go",
    "whoever",
];
/// Crates that a server is built of.
const SERVER: &[&str] = &["node", "service", "storage", "replication", "metadata", "coherence", "net", "disk"];

/// Crates whose locks are those of `crates/locks`: a server is built of them.
const LOCKS_WITH_LEVELS: &[&str] = &[
    "base",
    "chain",
    "cluster",
    "coherence",
    "disk",
    "hlc",
    "httpd",
    "metadata",
    "metalog",
    "multilog",
    "namespace",
    "net",
    "node",
    "planes",
    "replication",
    "service",
    "storage",
    "tier",
    "wire",
];
/// Types of `std::sync` that have a level in `crates/locks`.
const STD_LOCKS: &[&str] = &["Mutex", "RwLock", "Condvar"];

/// Counts of one crate.
#[derive(Debug, Default)]
pub(crate) struct CrateCounts {
    pub(crate) lines: usize,
    pub(crate) rings: Vec<Vec<String>>,
    pub(crate) arrows: Vec<String>,
    /// Types, and the file of each.
    types: Vec<(String, String)>,
    pub(crate) riddles: Vec<String>,
    pub(crate) wide: Vec<String>,
    pub(crate) long: Vec<String>,
    /// Functions and modules with a word of [`BAD_WORDS`], and the file of each.
    pub(crate) bad_names: Vec<String>,
    pub(crate) std_locks: Vec<String>,
    pub(crate) lone_tests: Vec<String>,
}

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct House {
    pub(crate) rooms: BTreeMap<String, CrateCounts>,
    pub(crate) docs_wide: Vec<String>,
    /// Names of more than one type, with the files of each.
    pub(crate) shared: BTreeMap<String, Vec<String>>,
}

impl House {
    pub(crate) fn read(root: &Path) -> Result<House> {
        let mut house = House::default();
        let mut folders = vec![("xtask".to_owned(), root.join("xtask"))];
        for folder in ["crates", "examples"] {
            for entry in fs::read_dir(root.join(folder))? {
                let path = entry?.path();
                if path.join("Cargo.toml").exists() {
                    folders.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path));
                }
            }
        }
        for (name, folder) in folders {
            house.rooms.insert(name, room(root, &folder)?);
        }
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for room in house.rooms.values() {
            for (name, file) in &room.types {
                names.entry(name.clone()).or_default().push(file.clone());
            }
        }
        names.retain(|_, files| files.len() > 1);
        house.shared = names;
        let mut documents = Vec::new();
        crate::files::collect(root, &mut documents)?;
        for path in documents.iter().filter(|path| path.extension().is_some_and(|end| end == "md")) {
            let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
            house.docs_wide.extend(wide_in_document(&name, &fs::read_to_string(path)?));
        }
        Ok(house)
    }

    fn shared_count(&self) -> usize {
        self.shared.values().map(Vec::len).sum()
    }

    /// Each count beside what is allowed.
    pub(crate) fn counts(&self) -> Vec<(&'static str, usize, usize)> {
        let sum = |count: fn(&CrateCounts) -> usize| self.rooms.values().map(count).sum::<usize>();
        let lines = |name: &&str| self.rooms.get(*name).map_or(0, |room| room.lines);
        let ring = self.rooms.values().flat_map(|room| &room.rings).map(Vec::len).max().unwrap_or(0);
        vec![
            ("source lines of crates/node without tests", lines(&"node"), RATCHETS.node_lines),
            (
                "source lines of the largest crate of the server",
                SERVER.iter().map(lines).max().unwrap_or(0),
                RATCHETS.server_crate_lines,
            ),
            ("modules of the largest ring inside one crate", ring, RATCHETS.ring),
            ("types that share their name with another", self.shared_count(), RATCHETS.shared_names),
            (
                "comment lines with who, whoever, whom, nobody, somebody",
                sum(|room| room.riddles.len()),
                RATCHETS.riddles,
            ),
            ("source lines over 120 columns", sum(|room| room.wide.len()), RATCHETS.wide_source),
            ("lines of documents over 120 columns", self.docs_wide.len(), RATCHETS.wide_docs),
            ("files over 600 lines without tests", sum(|room| room.long.len()), RATCHETS.long_files),
            (
                "functions and modules named with told, tell, hear, gone, held, seen, ...",
                sum(|room| room.bad_names.len()),
                RATCHETS.bad_names,
            ),
            (
                "locks of std in crates of the server",
                LOCKS_WITH_LEVELS
                    .iter()
                    .filter_map(|name| self.rooms.get(*name))
                    .map(|room| room.std_locks.len())
                    .sum(),
                RATCHETS.std_locks,
            ),
            (
                "tests of whether the server is alone",
                PATHS_OF_SEVERAL
                    .iter()
                    .filter_map(|name| self.rooms.get(*name))
                    .map(|room| room.lone_tests.len())
                    .sum(),
                RATCHETS.lone_tests,
            ),
        ]
    }
}

/// What passes a ratchet, a line each.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let house = House::read(root)?;
    let passed = house.counts().into_iter().filter(|(_, count, most)| count > most);
    let said =
        passed.map(|(what, count, most)| format!("{what}: {count}, at most {most} (`cargo xtask house` lists them)"));
    Ok(said.collect())
}

/// Prints the counts; with the name of a crate, every place that counts there.
pub(crate) fn print(root: &Path, only: Option<&str>) -> Result<Vec<String>> {
    let house = House::read(root)?;
    if let Some(only) = only {
        let Some(room) = house.rooms.get(only) else {
            return Ok(vec![format!("{only} is no crate: name one of {:?}", house.rooms.keys().collect::<Vec<_>>())]);
        };
        let std_locks = room.std_locks.iter().filter(|_| LOCKS_WITH_LEVELS.contains(&only));
        let lines = room.riddles.iter().chain(&room.wide).chain(&room.long).chain(&room.bad_names);
        let lone_tests = room.lone_tests.iter().filter(|_| PATHS_OF_SEVERAL.contains(&only));
        for line in lines.chain(std_locks).chain(lone_tests) {
            println!("{line}");
        }
        for ring in &room.rings {
            println!("ring of {}: {}", ring.len(), ring.join(" "));
        }
        for arrow in &room.arrows {
            println!("  {arrow}");
        }
        let own: BTreeSet<&String> = room.types.iter().map(|(name, _)| name).collect();
        for (name, files) in house.shared.iter().filter(|(name, _)| own.contains(name)) {
            println!("type {name}: {}", files.join(" "));
        }
        return Ok(Vec::new());
    }
    println!(
        "{:12} {:>7} {:>6} {:>7} {:>8} {:>5} {:>5} {:>9}",
        "crate", "lines", "ring", "shared", "who etc", "wide", "long", "bad names"
    );
    for (name, room) in &house.rooms {
        let ring = room.rings.first().map_or(0, Vec::len);
        let shared = room.types.iter().filter(|(name, _)| house.shared.contains_key(name)).count();
        let (riddles, wide, long, bad) = (room.riddles.len(), room.wide.len(), room.long.len(), room.bad_names.len());
        println!("{name:12} {:>7} {ring:>6} {shared:>7} {riddles:>8} {wide:>5} {long:>5} {bad:>9}", room.lines);
    }
    let types: usize = house.rooms.values().map(|room| room.types.len()).sum();
    println!("\n{types} types");
    for (what, count, most) in house.counts() {
        let most = if most == usize::MAX { "-".to_owned() } else { most.to_string() };
        println!("{count:>7} of at most {most:>6}: {what}");
    }
    Ok(Vec::new())
}

/// Counts what lies in the crate at `folder`.
fn room(root: &Path, folder: &Path) -> Result<CrateCounts> {
    let name_of = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    let mut room = CrateCounts::default();
    for (module, path) in rooms::sources(folder)? {
        let text = fs::read_to_string(&path)?;
        let lines = lines_without_tests(&text);
        room.lines += lines;
        let name = name_of(&path);
        if lines > FILE_LINES_MAX && !LONG_FILES.contains(&name.as_str()) {
            room.long.push(format!("{name}: {lines} lines"));
        }
        let source = syn::parse_file(&text)?;
        let mut locks = StdLocks::default();
        locks.visit_file(&source);
        room.std_locks.extend(locks.found.into_iter().map(|(line, lock)| format!("{name}:{line}: {lock} of std")));
        let asks = |line: &(usize, &str)| LONE_TESTS.iter().any(|test| line.1.contains(test));
        let lone = text.lines().enumerate().filter(asks);
        room.lone_tests.extend(lone.map(|(line, asks)| format!("{name}:{}: {}", line + 1, asks.trim())));
        let mut types = DeclaredNames::default();
        types.visit_file(&source);
        let functions = types.functions.iter().filter(|function| has_bad_word(function));
        room.bad_names.extend(functions.map(|function| format!("{name}: fn {function}")));
        room.bad_names
            .extend(module.last().filter(|stem| has_bad_word(stem)).map(|stem| format!("{name}: mod {stem}")));
        room.types.extend(types.types.into_iter().map(|found| (found, name.clone())));
    }
    let read = Crate::read(folder)?;
    room.rings = read.rings();
    room.arrows = room.rings.iter().flat_map(|ring| read.arrows_of(ring)).collect();
    let mut all = Vec::new();
    crate::files::collect(folder, &mut all)?;
    all.sort();
    for path in all.iter().filter(|path| path.extension().is_some_and(|end| end == "rs")) {
        let (name, text) = (name_of(path), fs::read_to_string(path)?);
        for (number, line) in text.lines().enumerate() {
            let at = format!("{name}:{}", number + 1);
            if line.trim_start().starts_with("//") && has_riddle(line) {
                room.riddles.push(format!("{at}: {}", line.trim()));
            }
            if line.chars().count() > COLUMNS_MAX && !is_table_or_link(line) {
                room.wide.push(format!("{at}: {} columns", line.chars().count()));
            }
        }
    }
    Ok(room)
}

/// Lines of a source, those of its test module left out.
fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let module = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod "));
    match module {
        Some(at) if lines[at + 1].ends_with('{') => at,
        _ => lines.len(),
    }
}

fn has_riddle(line: &str) -> bool {
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.into_iter().any(|word| RIDDLES.contains(&word.to_lowercase().as_str()))
}

/// True if `name` contains a word of [`BAD_WORDS`] as a word of its own.
fn has_bad_word(name: &str) -> bool {
    let name = format!("_{name}_");
    BAD_WORDS.iter().any(|word| name.contains(&format!("_{word}_")))
}

/// True if a line is a row of a table, or cannot be broken because of an address.
fn is_table_or_link(line: &str) -> bool {
    let text = line.trim_start().trim_start_matches(['/', '!']).trim_start();
    text.starts_with('|') || line.contains("](") || line.contains("://")
}

/// Lines of a document that are too wide, code blocks included.
fn wide_in_document(name: &str, text: &str) -> Vec<String> {
    let wide =
        text.lines().enumerate().filter(|(_, line)| line.chars().count() > COLUMNS_MAX && !is_table_or_link(line));
    wide.map(|(number, line)| format!("{name}:{}: {} columns", number + 1, line.chars().count())).collect()
}

/// Names of the types and functions of one file, tests left out.
#[derive(Default)]
struct DeclaredNames {
    types: Vec<String>,
    functions: Vec<String>,
}

impl<'ast> Visit<'ast> for DeclaredNames {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !rooms::is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !rooms::is_test(&item.attrs) {
            self.functions.push(item.sig.ident.to_string());
            syn::visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !rooms::is_test(&item.attrs) {
            self.functions.push(item.sig.ident.to_string());
            syn::visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.functions.push(item.sig.ident.to_string());
        syn::visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if !rooms::is_test(&item.attrs) {
            self.types.push(item.ident.to_string());
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if !rooms::is_test(&item.attrs) {
            self.types.push(item.ident.to_string());
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if !rooms::is_test(&item.attrs) {
            self.types.push(item.ident.to_string());
            syn::visit::visit_item_trait(self, item);
        }
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        if !rooms::is_test(&item.attrs) {
            self.types.push(item.ident.to_string());
        }
    }
}

/// Mentions of [`STD_LOCKS`] of `std` in one file with their lines, tests left out.
#[derive(Default)]
struct StdLocks {
    found: Vec<(usize, String)>,
}

impl StdLocks {
    fn add(&mut self, path: &[String], line: usize) {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        if let ["std", "sync", lock] | ["sync", lock] = path[..]
            && (lock == "*" || STD_LOCKS.contains(&lock))
        {
            self.found.push((line, lock.to_owned()));
        }
    }

    fn add_tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let mut path = before.to_vec();
        let (last, rest) = match tree {
            syn::UseTree::Path(tree) => (&tree.ident, Some(&*tree.tree)),
            syn::UseTree::Name(tree) => (&tree.ident, None),
            syn::UseTree::Rename(tree) => (&tree.ident, None),
            syn::UseTree::Group(tree) => return tree.items.iter().for_each(|item| self.add_tree(before, item)),
            syn::UseTree::Glob(tree) => {
                path.push("*".to_owned());
                return self.add(&path, tree.star_token.spans[0].start().line);
            }
        };
        path.push(last.to_string());
        match rest {
            Some(rest) => self.add_tree(&path, rest),
            None => self.add(&path, last.span().start().line),
        }
    }
}

impl<'ast> Visit<'ast> for StdLocks {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !rooms::is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let is_short = path.segments.first().is_some_and(|segment| segment.ident == "sync");
        let count = if is_short { 2 } else { 3 };
        let names: Vec<String> = path.segments.iter().take(count).map(|segment| segment.ident.to_string()).collect();
        if let Some(first) = path.segments.first() {
            self.add(&names, first.ident.span().start().line);
        }
        syn::visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_std_are_found_where_they_are_imported_or_named() {
        let text = "use std::sync::{Arc, Mutex, atomic::AtomicU64};
use std::{io, sync::{Condvar as Signal, MutexGuard}};
use frieze_locks::RwLock;
struct A { held: std::sync::RwLock<Vec<std::sync::Mutex<u8>>> }
fn a() { std::sync::Mutex::new(0); }
use std::sync::{self, *};
fn b() { sync::RwLock::new(0); }
#[cfg(test)]
mod tests { use std::sync::Mutex; }";
        let mut locks = StdLocks::default();
        locks.visit_file(&syn::parse_file(text).expect("it is Rust"));
        let found: Vec<(usize, &str)> = locks.found.iter().map(|(line, lock)| (*line, lock.as_str())).collect();
        assert_eq!(
            found,
            [(1, "Mutex"), (2, "Condvar"), (4, "RwLock"), (4, "Mutex"), (5, "Mutex"), (6, "*"), (7, "RwLock")]
        );
    }

    #[test]
    fn a_riddle_is_a_word() {
        assert!(has_riddle("/// Whoever asks"));
        assert!(has_riddle("// told by nobody."));
        assert!(!has_riddle("/// the whole `whoami`"));
    }

    #[test]
    fn a_bad_word_is_a_whole_part_of_a_name() {
        assert!(
            has_bad_word("tell") && has_bad_word("was_seen") && has_bad_word("let_go_of") && has_bad_word("held_by")
        );
        assert!(!has_bad_word("unseen") && !has_bad_word("teller") && !has_bad_word("give_back"));
        let mut names = DeclaredNames::default();
        let text =
            "fn tell() {} impl A { fn gone(&self) {} } trait B { fn hear(); } #[cfg(test)] mod t { fn seen() {} }";
        names.visit_file(&syn::parse_file(text).expect("it is Rust"));
        assert_eq!(names.functions, ["tell", "gone", "hear"]);
    }

    #[test]
    fn tables_and_links_may_be_wide() {
        let long = "x".repeat(COLUMNS_MAX);
        assert_eq!(wide_in_document("a.md", &format!("{long}\nx{long}\n")), ["a.md:2: 121 columns"]);
        assert!(wide_in_document("a.md", &format!("| {long} |\n[a]({long})\nhttps://a/{long}\n")).is_empty());
        assert!(is_table_or_link(&format!("    //! | {long} |")));
    }

    #[test]
    fn a_test_module_is_no_line_of_source() {
        assert_eq!(lines_without_tests("a\nb\n#[cfg(test)]\nmod tests {\n}\n"), 2);
        assert_eq!(lines_without_tests("a\n#[cfg(test)]\nmod tests;\nb\n"), 4);
    }

    #[test]
    fn types_of_tests_do_not_count() {
        let mut types = DeclaredNames::default();
        let text = "struct A; enum B {} trait C {} type D = A; #[cfg(test)] struct E; #[cfg(test)] mod t { struct F; }";
        types.visit_file(&syn::parse_file(text).expect("it is Rust"));
        assert_eq!(types.types, ["A", "B", "C", "D"]);
    }
}
