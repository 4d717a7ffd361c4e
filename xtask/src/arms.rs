//! Which arms of the cores' matches a simulation came to.
//!
//! Guarantees: every arm of every `match` in a core's sources is counted, tests left out; one counts as reached if the
//! compiler's own counter at the start of its body does (`-C instrument-coverage`, read with the LLVM tools of the same
//! toolchain). Leaves to others: whether a check judges a reached arm (the broken rules, `--mutants`).

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use syn::spanned::Spanned;
use syn::visit::Visit;

/// The crates whose matches are looked at: decisions are made there, and nothing else is done.
const CORES: &[&str] = &["calvin", "chain", "cluster", "metalog", "multilog", "namespace", "tier"];

/// Runs `frieze-sim ARGS` with counters built in, and prints what they tell.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    let tools = tools()?;
    let target = cargo_metadata::MetadataCommand::new().current_dir(root).no_deps().exec()?.target_directory;
    let target = target.join("coverage").into_std_path_buf();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let built = Command::new(cargo)
        .current_dir(root)
        .args(["build", "--quiet", "--package", "frieze-sim", "--target-dir"])
        .arg(&target)
        .env("RUSTFLAGS", format!("{flags} -C instrument-coverage"))
        // Build scripts and macros count as well, and would leave that where they ran.
        .env("LLVM_PROFILE_FILE", target.join("build.profraw"))
        .status()
        .context("cannot run cargo")?;
    ensure!(built.success(), "the simulator does not build with counters in it");
    let (program, raw) = (target.join("debug/frieze-sim"), target.join("sim.profraw"));
    // The simulator prints a line a seed, which would hide the report.
    let ran =
        Command::new(&program).args(args).env("LLVM_PROFILE_FILE", &raw).status().context("cannot run frieze-sim")?;
    let (merged, counts) = (target.join("sim.profdata"), target.join("sim.json"));
    run_tool(&tools, "llvm-profdata", &["merge", "-sparse", "-o", path(&merged)?, path(&raw)?])?;
    let instr = format!("--instr-profile={}", path(&merged)?);
    let sources: Vec<PathBuf> = CORES.iter().map(|core| root.join("crates").join(core).join("src")).collect();
    let mut export = vec!["export", "--format=text", "--skip-functions", &instr, path(&program)?];
    for source in &sources {
        export.push(path(source)?);
    }
    fs::write(&counts, run_tool(&tools, "llvm-cov", &export)?)?;
    let read: Value = serde_json::from_slice(&fs::read(&counts)?)?;
    let files = counted(&read)?;
    let mut cores = Vec::new();
    for (core, source) in CORES.iter().zip(&sources) {
        let mut found = Vec::new();
        for file in sources_in(source)? {
            let text = fs::read_to_string(&file)?;
            let arms = arms_of(&text).with_context(|| format!("{} does not read as Rust", file.display()))?;
            // A file without a counter was not linked at all: nothing in it was reached.
            let segments = files.get(path(&file)?).map_or(&[][..], Vec::as_slice);
            let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            found.extend(arms.into_iter().map(|arm| MatchArm {
                file: name.clone(),
                reached: is_reached(segments, &arm.body),
                arm,
            }));
        }
        cores.push((*core, found));
    }
    print!("{}", report(&cores));
    Ok(ExitCode::from(ran.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// An arm, and whether it was reached.
struct MatchArm {
    file: String,
    reached: bool,
    arm: Arm,
}

/// What is printed: a line for each core, then each arm that was not reached.
fn report(cores: &[(&str, Vec<MatchArm>)]) -> String {
    let mut lines = format!("{:<12}{:>6}{:>9}{:>8}\n", "core", "arms", "reached", "share");
    let mut line = |name: &str, arms: usize, reached: usize| {
        let percent = if arms == 0 { 100.0 } else { 100.0 * reached as f64 / arms as f64 };
        lines += &format!("{name:<12}{arms:>6}{reached:>9}{percent:>7.1}%\n");
    };
    let reached_of = |found: &[MatchArm]| found.iter().filter(|seen| seen.reached).count();
    for (core, found) in cores {
        line(core, found.len(), reached_of(found));
    }
    let all = cores.iter().map(|(_, found)| found.len()).sum();
    line("together", all, cores.iter().map(|(_, found)| reached_of(found)).sum());
    let missed = cores.iter().flat_map(|(_, found)| found).filter(|seen| !seen.reached);
    let missed: Vec<String> =
        missed.map(|MatchArm { file, arm, .. }| format!("  {file}:{}: {}\n", arm.line, arm.pattern)).collect();
    if !missed.is_empty() {
        lines += &format!("\nnot reached:\n{}", missed.concat());
    }
    lines
}

/// An arm of a `match`.
#[derive(Debug, PartialEq, Eq)]
struct Arm {
    /// Where it begins, and what that line says.
    line: usize,
    pattern: String,
    /// Lines and columns where its body begins and ends, from 1.
    body: Range<(u64, u64)>,
}

/// Every arm of a source, those of tests left out.
fn arms_of(text: &str) -> Result<Vec<Arm>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut finder = Finder { lines: &lines, arms: Vec::new() };
    finder.visit_file(&syn::parse_file(text)?);
    Ok(finder.arms)
}

struct Finder<'a> {
    lines: &'a [&'a str],
    arms: Vec<Arm>,
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let (begin, body) = (arm.span().start(), arm.body.span());
        let pattern = self.lines.get(begin.line - 1).map_or("", |line| line.trim()).to_owned();
        let place = |at: proc_macro2::LineColumn| (at.line as u64, at.column as u64 + 1);
        self.arms.push(Arm { line: begin.line, pattern, body: place(body.start())..place(body.end()) });
        syn::visit::visit_arm(self, arm);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !is_for_tests(&function.attrs) {
            syn::visit::visit_item_fn(self, function);
        }
    }
}

/// True for what carries `#[cfg(test)]`.
fn is_for_tests(attrs: &[syn::Attribute]) -> bool {
    attrs
        .iter()
        .any(|attr| attr.path().is_ident("cfg") && attr.parse_args::<syn::Ident>().is_ok_and(|ident| ident == "test"))
}

/// The sources below a directory, those of tests left out, in the order of their names.
fn sources_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut entries = fs::read_dir(directory)
        .with_context(|| format!("cannot list {}", directory.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    entries.sort();
    for entry in entries {
        let stem = entry.file_stem().unwrap_or_default();
        if stem == "tests" {
            continue;
        }
        if entry.is_dir() {
            found.extend(sources_in(&entry)?);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
    Ok(found)
}

/// From a line and a column on, this many times; `None` where nothing is counted.
type Segment = ((u64, u64), Option<u64>);

/// What was counted in each file, in the order of its places.
fn counted(read: &Value) -> Result<BTreeMap<String, Vec<Segment>>> {
    let files = read["data"][0]["files"].as_array().context("llvm-cov tells of no file")?;
    let number = |value: &Value| value.as_u64().context("a place that is no number");
    let mut all = BTreeMap::new();
    for file in files {
        let name = file["filename"].as_str().context("a file without a name")?;
        let mut segments = Vec::new();
        for segment in file["segments"].as_array().context("a file without counters")? {
            let place = (number(&segment[0])?, number(&segment[1])?);
            let count = if segment[3].as_bool() == Some(true) { Some(number(&segment[2])?) } else { None };
            segments.push((place, count));
        }
        all.insert(name.to_owned(), segments);
    }
    Ok(all)
}

/// True if something between these places was run. The counter of a block begins behind its brace, and one without
/// statements has none of its own.
fn is_reached(segments: &[Segment], body: &Range<(u64, u64)>) -> bool {
    let from = segments.partition_point(|(begin, _)| *begin < body.start);
    let upto = segments.partition_point(|(begin, _)| *begin < body.end);
    let mut within = segments[from..upto].iter().filter_map(|(_, count)| *count).peekable();
    if within.peek().is_some() {
        return within.any(|count| count > 0);
    }
    from.checked_sub(1).and_then(|at| segments[at].1).is_some_and(|count| count > 0)
}

/// Where the toolchain keeps what reads its counters.
fn tools() -> Result<PathBuf> {
    let rustc = |args: &[&str]| -> Result<String> {
        let found = Command::new("rustc").args(args).output().context("cannot run rustc")?;
        Ok(String::from_utf8(found.stdout)?)
    };
    let about = rustc(&["-vV"])?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc does not name its host")?;
    let tools = Path::new(rustc(&["--print", "sysroot"])?.trim()).join("lib/rustlib").join(host).join("bin");
    if !tools.join("llvm-cov").exists() {
        bail!("the tools that read counters are not installed: rustup component add llvm-tools");
    }
    Ok(tools)
}

fn run_tool(tools: &Path, name: &str, args: &[&str]) -> Result<Vec<u8>> {
    let done = Command::new(tools.join(name)).args(args).output().with_context(|| format!("cannot run {name}"))?;
    ensure!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr).trim());
    Ok(done.stdout)
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is no UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
fn one(x: u32) -> u32 {
    match x {
        0 => 1,
        n if n > 5 => {
            match n { 6 => 2, _ => 3 }
        }
        _ => 4,
    }
}
#[cfg(test)]
mod tests {
    fn two(x: u32) -> u32 { match x { _ => 1 } }
}
";

    #[test]
    fn every_arm_is_found_and_none_of_a_test() {
        let found: Vec<(usize, Range<(u64, u64)>)> =
            arms_of(SOURCE).unwrap().into_iter().map(|arm| (arm.line, arm.body)).collect();
        let wanted = [
            (3, (3, 14)..(3, 15)),
            (4, (4, 23)..(6, 10)),
            (5, (5, 28)..(5, 29)),
            (5, (5, 36)..(5, 37)),
            (7, (7, 14)..(7, 15)),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn an_arm_is_reached_if_the_counter_at_its_body_was() {
        let read = serde_json::json!({ "data": [{ "files": [{
            "filename": "one.rs",
            "segments": [
                [1, 1, 9, true, true, false], [3, 14, 0, true, true, false], [3, 15, 9, true, false, false],
                [4, 23, 0, false, false, true], [5, 13, 7, true, true, false], [5, 28, 0, true, true, false],
                [5, 29, 7, true, false, false], [6, 10, 0, true, false, false], [9, 2, 0, false, false, false],
            ],
        }] }] });
        let files = counted(&read).unwrap();
        let reached: Vec<bool> =
            arms_of(SOURCE).unwrap().iter().map(|arm| is_reached(&files["one.rs"], &arm.body)).collect();
        assert_eq!(reached, [false, true, false, true, false]);
        assert!(!is_reached(&[], &((1, 1)..(2, 1))), "nothing is known of it");
    }

    #[test]
    fn what_was_missed_is_named() {
        let arm = |line, pattern: &str| Arm { line, pattern: pattern.to_owned(), body: (1, 1)..(1, 2) };
        let known = |reached, arm| MatchArm { file: "a.rs".to_owned(), reached, arm };
        let found = vec![known(true, arm(3, "0 => 1,")), known(false, arm(4, "_ => 2,"))];
        let report = report(&[("chain", found), ("tier", Vec::new())]);
        let lines: Vec<&str> = report.lines().collect();
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["chain", "2", "1", "50.0%"]);
        assert_eq!(lines[3].split_whitespace().collect::<Vec<_>>(), ["together", "2", "1", "50.0%"]);
        assert_eq!(lines.last(), Some(&"  a.rs:4: _ => 2,"));
    }
}
