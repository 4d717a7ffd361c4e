//! `cargo xtask tidy`: the rules of the house that no compiler knows.
//!
//! | rule | where |
//! |---|---|
//! | no mark of unfinished work | every text file |
//! | no path of a developer's machine | every text file but test data, whose paths are frieze's |
//! | a module doc at the top | every Rust file but `tests.rs`, which is about the file beside it |
//! | at most 1,000 lines, or a line `// one idea: …` | every Rust file |
//! | no `unwrap()` | Rust outside tests |
//! | no `sleep` | Rust tests |
//! | sources that a document names exist | documents |
//! | a description | every package |
//! | a row of ADR 4 for each dependency, see [`crate::dependencies`] | the workspace |
//! | the ratchets of [`crate::house`] | the workspace |

use std::path::Path;

use anyhow::Context;
use cargo_metadata::MetadataCommand;

use crate::files;

/// Lines of a Rust file beyond which it has to say that it is one idea.
const LINES_MAX: usize = 1000;
/// Marks of unfinished work: an issue says it better. Written in halves, so that this file passes its own rule.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Ends the process where an error belongs.
const UNWRAP: &str = concat!(".unw", "rap()");
/// Waits by time.
const SLEEP: &str = concat!("sl", "eep");
/// Fixtures are tests, though they lie in the sources of a crate.
const FIXTURES: &str = "crates/testkit/src/";
/// Prefixes of paths on a developer's machine.
const OWN_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// A file as the rules see it.
struct SourceFile<'a> {
    /// From the root of the workspace, with `/`.
    path: &'a str,
    text: &'a str,
}

/// Checks the workspace at `root`. Returns what is wrong, a line each.
pub(crate) fn run(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut paths = Vec::new();
    files::collect(root, &mut paths)?;
    paths.sort();
    let mut wrong = Vec::new();
    let mut files = 0;
    for path in paths {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let name = path.strip_prefix(root).context("a file lies in the workspace")?.to_string_lossy().into_owned();
        wrong.extend(check(&SourceFile { path: &name, text: &text }));
        if name.ends_with(".md") && name != "CHANGELOG.md" {
            let exists = |source: &str| root.join(source).exists() || root.join("crates").join(source).exists();
            wrong.extend(missing_sources(&name, &text, &exists));
        }
        files += 1;
    }
    wrong.extend(descriptions(root)?);
    wrong.extend(crate::dependencies::check(root)?);
    wrong.extend(crate::house::check(root)?);
    println!("{files} files read");
    Ok(wrong)
}

fn check(file: &SourceFile<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let at = format!("{}:{}", file.path, number + 1);
        if let Some(mark) = MARKS.iter().find(|mark| has_word(line, mark)) {
            wrong.push(format!("{at}: {mark}: do it, or link an issue in a sentence"));
        }
        let is_data = file.path.split('/').any(|part| part == "testdata");
        if let Some(own) = OWN_PATHS.iter().find(|own| !is_data && begins_path(line, own)) {
            wrong.push(format!("{at}: {own}…: a path of somebody's own machine"));
        }
    }
    if file.path.ends_with(".rs") {
        wrong.extend(check_rust(file));
    }
    wrong
}

/// Sources in backticks, such as `node/src/serve.rs`, that are not there.
fn missing_sources(path: &str, text: &str, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let quoted = line.split('`').skip(1).step_by(2);
        let is_source = |name: &&str| {
            name.ends_with(".rs")
                && (name.contains("/src/") || name.contains("/tests/"))
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "_/.-".contains(c))
        };
        let missing = quoted.filter(is_source).filter(|name| !exists(name));
        wrong.extend(missing.map(|name| format!("{path}:{}: {name} is not there", number + 1)));
    }
    wrong
}

fn check_rust(file: &SourceFile<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    let first = file.text.lines().find(|line| !line.starts_with("#!"));
    if !file.path.ends_with("/tests.rs") && !first.is_some_and(|line| line.starts_with("//!")) {
        wrong.push(format!("{}:1: no module doc: say what it is for, what it guarantees, what it leaves", file.path));
    }
    let count = file.text.lines().count();
    if count > LINES_MAX && !file.text.lines().any(|line| line.starts_with("// one idea:")) {
        wrong.push(format!("{}: {count} lines: split it, or say `// one idea: …`", file.path));
    }
    let tests_from = tests_from(file);
    for (number, line) in file.text.lines().enumerate() {
        let at = format!("{}:{}", file.path, number + 1);
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        let in_tests = number >= tests_from;
        if !in_tests && code.contains(UNWRAP) {
            wrong.push(format!("{at}: {UNWRAP}: expect(\"why it holds\"), or an error"));
        }
        if in_tests && has_word(code, SLEEP) {
            wrong.push(format!("{at}: {SLEEP} in a test: wait for the event, or use simulated time"));
        }
    }
    wrong
}

/// The line from which a file is tests: its first if all of it is, else that of its test module, which comes last.
fn tests_from(file: &SourceFile<'_>) -> usize {
    let mut parts = file.path.split('/');
    if file.path.starts_with(FIXTURES) || parts.any(|part| part == "tests" || part.ends_with("tests.rs")) {
        return 0;
    }
    let lines: Vec<&str> = file.text.lines().collect();
    let module = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod "));
    // A test module in a file of its own does not make the rest of this one a test.
    match module {
        Some(at) if lines[at + 1].ends_with('{') => at,
        _ => usize::MAX,
    }
}

/// True if `word` stands in `line` by itself.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part_of_name) && !after.is_some_and(part_of_name)
    })
}

/// True if `path` begins an absolute path in `line`.
fn begins_path(line: &str, path: &str) -> bool {
    let within_path = |c: char| c.is_alphanumeric() || "._-~/}*)".contains(c);
    line.match_indices(path).any(|(at, _)| !line[..at].chars().next_back().is_some_and(within_path))
}

/// Packages that do not say what they are.
fn descriptions(root: &Path) -> anyhow::Result<Vec<String>> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("cargo metadata does not know the workspace")?;
    let described = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.trim().is_empty());
    let silent = metadata.packages.iter().filter(|package| !described(&package.description));
    Ok(silent.map(|package| format!("{}: no description in its Cargo.toml", package.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&SourceFile { path, text })
    }

    fn nothing(path: &str, text: &str) {
        assert_eq!(found(path, text), Vec::<String>::new());
    }

    /// Exactly one thing is wrong, and the message holds `words`.
    fn one(path: &str, text: &str, words: &str) {
        let found = found(path, text);
        assert!(found.len() == 1 && found[0].contains(words), "{words:?} in {found:?}");
    }

    #[test]
    fn marks_of_unfinished_work_are_found_as_words() {
        for mark in MARKS {
            one("docs/a.md", &format!("fine\n{mark}: later\n"), "docs/a.md:2");
        }
        nothing("docs/a.md", concat!("a TO", "DOS file, and hlc-XX", "XX\n"));
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        for own in OWN_PATHS {
            one("scripts/a.sh", &format!("cd {own}x\n"), "own machine");
            one("scripts/a.sh", &format!("cd \"{own}x\"\n"), "own machine");
            nothing("scripts/a.sh", &format!("cd $DIR{{x}}{own}x\ncd ./a{own}x\n"));
        }
        nothing("README.md", "frieze ls /reports/2026\n");
        nothing("crates/a/testdata/a.txt", &format!("mkdir {}ann\n", OWN_PATHS[2]));
    }

    #[test]
    fn sources_that_a_document_names_exist() {
        let exists = |name: &str| name == "node/src/serve.rs";
        let text = "`node/src/serve.rs` and `serve.rs`\n`node/src/gone.rs`, `node/src/{a,b}.rs`\n";
        assert_eq!(missing_sources("a.md", text, &exists), ["a.md:2: node/src/gone.rs is not there"]);
    }

    #[test]
    fn a_rust_file_begins_with_its_doc() {
        nothing("crates/a/src/lib.rs", "#![expect(unsafe_code, reason = \"x\")]\n//! What it is.\n");
        one("crates/a/src/lib.rs", "use std::fmt;\n", "no module doc");
        one("crates/a/src/lib.rs", "", "no module doc");
        nothing("crates/a/src/b/tests.rs", "use super::*;\n");
        nothing("docs/a.md", "no doc needed\n");
    }

    #[test]
    fn a_long_file_says_that_it_is_one_idea() {
        let long = format!("//! Long.\n{}", "// line\n".repeat(LINES_MAX));
        one("crates/a/src/lib.rs", &long, "1001 lines");
        nothing("crates/a/src/lib.rs", &format!("{long}// one idea: a codec\n"));
        nothing("crates/a/src/lib.rs", &long.replacen("// line\n", "", 1));
    }

    #[test]
    fn unwrap_is_found_outside_tests_only() {
        let call = format!("fn a() {{ b(){UNWRAP}; }}\n");
        let code = format!("//! A.\n{call}");
        one("crates/a/src/a.rs", &code, "crates/a/src/a.rs:2: .unw");
        for path in [
            "crates/a/src/tests.rs",
            "crates/a/src/a_tests.rs",
            "crates/a/tests/a.rs",
            "crates/a/src/tests/b.rs",
            "crates/testkit/src/a.rs",
        ] {
            nothing(path, &code);
        }
        nothing("crates/a/src/a.rs", &format!("//! A.\n#[cfg(test)]\nmod tests {{\n    {call}}}\n"));
        nothing("crates/a/src/a.rs", &format!("//! A.\n// c{UNWRAP} is not ours\n"));
        one("crates/a/src/a.rs", &format!("//! A.\n#[cfg(test)]\nmod tests;\n{call}"), "a.rs:4: .unw");
        nothing("crates/a/src/a.rs", "//! A.\nfn a() { b().unwrap_or_default(); }\n");
    }

    #[test]
    fn sleep_is_found_in_tests_only() {
        let code = format!("//! A.\nfn a() {{ std::thread::{SLEEP}(b); }}\n");
        one("crates/a/tests/a.rs", &code, "in a test");
        nothing("crates/a/src/a.rs", &code);
        nothing("crates/a/tests/a.rs", "//! A.\nfn nobody_sleeps() {}\n");
    }

    #[test]
    fn the_workspace_is_walked_and_its_packages_are_described() {
        let mut paths = Vec::new();
        files::collect(&crate::root(), &mut paths).expect("the workspace can be listed");
        assert!(paths.iter().any(|path| path.ends_with("xtask/src/tidy.rs")));
        assert!(paths.iter().any(|path| path.ends_with("Makefile")));
        assert!(!paths.iter().any(|path| path.iter().any(|part| part == "target")));
        assert_eq!(descriptions(&crate::root()).expect("cargo knows the workspace"), Vec::<String>::new());
    }
}
