//! ADR 4 against the manifests: every dependency has a row, every row is a dependency.
//!
//! Guarantees: three sets are equal, or `tidy` names the differences: the rows of `docs/adr/0004-dependencies.md`, the
//! entries of `[workspace.dependencies]` outside the workspace, and the dependencies that the packages of the workspace
//! declare (those of tests and build scripts too). Leaves to others: licences and advisories (`cargo deny`).

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;

/// The record that lists every dependency.
const RECORD: &str = "docs/adr/0004-dependencies.md";

/// Differences in the workspace at `root`, a line each.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("cargo metadata does not know the workspace")?;
    let members: BTreeSet<String> = metadata.packages.iter().map(|package| package.name.to_string()).collect();
    let mut declared = BTreeSet::new();
    for dependency in metadata.packages.iter().flat_map(|package| &package.dependencies) {
        declared.insert(dependency.name.clone());
    }
    let read = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("{name} cannot be read"));
    let without_members = |names: BTreeSet<String>| names.difference(&members).cloned().collect::<BTreeSet<String>>();
    Ok(differences(&rows(&read(RECORD)?), &without_members(entries(&read("Cargo.toml")?)), &without_members(declared)))
}

fn differences(rows: &BTreeSet<String>, entries: &BTreeSet<String>, declared: &BTreeSet<String>) -> Vec<String> {
    let used: BTreeSet<String> = entries.union(declared).cloned().collect();
    let mut wrong = Vec::new();
    for name in used.difference(rows) {
        wrong.push(format!("{RECORD}: no row for {name}, which a Cargo.toml of the workspace names"));
    }
    for name in rows.difference(&used) {
        wrong.push(format!("{RECORD}: the row for {name} has no dependency: delete the row"));
    }
    for name in declared.difference(entries) {
        wrong.push(format!("{name}: a package declares it without [workspace.dependencies] of the root Cargo.toml"));
    }
    for name in entries.difference(declared) {
        wrong.push(format!("{name}: [workspace.dependencies] has it and no package declares it: delete the entry"));
    }
    wrong
}

/// Names in the first column of the table: `` | `name` | ``.
fn rows(record: &str) -> BTreeSet<String> {
    let first = record.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    first.map(|(name, _)| name.to_owned()).collect()
}

/// Names of the entries of `[workspace.dependencies]`.
fn entries(manifest: &str) -> BTreeSet<String> {
    let section = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let entries = section.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    entries.filter_map(|line| Some(line.split_once(" = ")?.0.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn this_workspace_and_its_record_agree() {
        assert_eq!(check(&crate::root()).expect("cargo knows the workspace"), Vec::<String>::new());
    }

    #[test]
    fn a_dependency_without_a_row_and_a_row_without_one_are_found() {
        let found = differences(&set(&["a", "gone"]), &set(&["a", "b"]), &set(&["a", "b"]));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("no row for b") && found[1].contains("the row for gone"), "{found:?}");
    }

    #[test]
    fn an_entry_without_use_and_a_use_without_an_entry_are_found() {
        let found = differences(&set(&["a", "b"]), &set(&["a"]), &set(&["b"]));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("b: a package") && found[1].starts_with("a: [workspace"), "{found:?}");
    }

    #[test]
    fn names_are_read_from_the_table_and_the_manifest() {
        assert_eq!(rows("# 4.\n| crate | for |\n|---|---|\n| `a-b` | x | `c` |\n`d` | e\n"), set(&["a-b"]));
        let manifest = "[workspace]\nx = 1\n\n[workspace.dependencies]\n# y = 2\na = \"1\"\nb-c = { path = \"b\" }\n\n\
                        [profile.dev]\nd = 1\n";
        assert_eq!(entries(manifest), set(&["a", "b-c"]));
    }
}
