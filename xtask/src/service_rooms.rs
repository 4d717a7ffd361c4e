//! The rooms of `crates/service`, and which of them each may use: part of `cargo xtask deps`.
//!
//! Guarantees: a handler never calls a room above it; a room without a row here is an error. Leaves to others: arrows
//! between crates ([`crate::deps`]), rings of modules inside one room ([`crate::house`]).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A room: a top module of the crate, its lines of purpose, and the rooms that it may use.
struct ServiceRoom {
    name: &'static str,
    may_use: &'static [&'static str],
}

/// From the top down.
const ROOMS: &[ServiceRoom] = &[
    // The table and the life of a request know every room; nothing knows them.
    ServiceRoom { name: "service", may_use: &["table", "tree_ops", "upkeep", "history", "write", "read", "session"] },
    ServiceRoom { name: "table", may_use: &["service", "tree_ops", "upkeep", "history", "write", "read", "session"] },
    ServiceRoom { name: "tree_ops", may_use: &["upkeep", "history", "write", "read", "session"] },
    ServiceRoom { name: "upkeep", may_use: &["history", "write", "read", "session"] },
    ServiceRoom { name: "history", may_use: &["read", "session"] },
    ServiceRoom { name: "write", may_use: &["read", "session"] },
    ServiceRoom { name: "read", may_use: &["session"] },
    ServiceRoom { name: "session", may_use: &[] },
];

/// Every arrow between rooms that the table does not have, and every room that it does not have.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let source = root.join("crates/service/src");
    let mut found = Vec::new();
    let mut files = Vec::new();
    collect(&source, &mut files)?;
    for path in files {
        let name = path.strip_prefix(&source).context("below the crate")?.display().to_string();
        let top = name.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned();
        if top == "lib" {
            continue;
        }
        let Some(room) = ROOMS.iter().find(|room| room.name == top) else {
            found.push(format!("crates/service/src/{name}: the room {top} has no row in xtask/src/service_rooms.rs"));
            continue;
        };
        let text = fs::read_to_string(&path).with_context(|| name.clone())?;
        for used in rooms_used(&text) {
            if used != room.name && !room.may_use.contains(&used.as_str()) {
                found.push(format!("crates/service/src/{name}: the room {top} must not use {used}"));
            }
        }
    }
    Ok(found)
}

/// The top modules that paths from `crate::` name in code, comments apart.
fn rooms_used(text: &str) -> BTreeSet<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut used = BTreeSet::new();
    for line in code {
        for (at, _) in line.match_indices("crate::") {
            let rest = &line[at + "crate::".len()..];
            let name: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            if !name.is_empty() {
                used.insert(name);
            }
        }
    }
    used
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rooms_of_paths_in_code_count_and_those_in_comments_do_not() {
        let text = "// crate::upkeep::Upkeep\nuse crate::read::Reader;\nlet a = crate::session::unknown_session(id);\n";
        let used: Vec<String> = rooms_used(text).into_iter().collect();
        assert_eq!(used, ["read", "session"]);
    }

    #[test]
    fn no_room_but_the_table_and_the_service_stands_in_a_ring() {
        for (at, room) in ROOMS.iter().enumerate().skip(2) {
            let above: Vec<&str> = ROOMS[..at].iter().map(|room| room.name).collect();
            assert!(room.may_use.iter().all(|used| !above.contains(used)), "{} uses a room above it", room.name);
        }
    }
}
