//! `cargo xtask test`: `cargo test`, and in the end its ten slowest tests.
//!
//! Guarantees: prints what cargo and the tests print, in their order; the exit code is cargo's. Leaves to others: what
//! is tested (arguments go to `cargo test`).
//!
//! The stable harness says when a test ends and not when it began. It starts tests in the order of their names, as many
//! at once as there are processors, and the next one whenever one ends: so test number k begins when the end number
//! k - processors is printed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};

/// Tests in the list.
const SLOWEST: usize = 10;

/// A test that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TestEnd {
    name: String,
    at: Duration,
}

/// A test and how long it ran.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TimedTest {
    took: Duration,
    binary: String,
    name: String,
}

/// Tests of one binary while they run.
#[derive(Debug, Default)]
struct BinaryRun {
    binary: String,
    began: Duration,
    ends: Vec<TestEnd>,
}

/// Runs `cargo test` with `arguments` in the workspace at `root`.
pub(crate) fn run(root: &Path, arguments: impl Iterator<Item = String>) -> ExitCode {
    match tested(root, arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn tested(root: &Path, arguments: impl Iterator<Item = String>) -> Result<ExitCode> {
    // One pipe for both, so that lines keep their order.
    let (output, into) = std::io::pipe().context("no pipe for the output of the tests")?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg("test").args(arguments).current_dir(root);
    command.stdout(into.try_clone().context("no second end of the pipe")?).stderr(into);
    let mut cargo = command.spawn().context("cargo does not start")?;
    // It holds the writing ends: with them the output would never end.
    drop(command);
    let began = clock();
    let threads = std::env::var("RUST_TEST_THREADS").ok().and_then(|text| text.parse().ok());
    let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let mut slowest = Slowest { threads, ..Slowest::default() };
    let mut output = BufReader::new(output);
    let (mut line, mut out) = (Vec::new(), std::io::stdout().lock());
    while output.read_until(b'\n', &mut line).context("the output of the tests cannot be read")? > 0 {
        out.write_all(&line)?;
        slowest.read(String::from_utf8_lossy(&line).trim_end(), clock() - began);
        line.clear();
    }
    let status = cargo.wait().context("cargo cannot be waited for")?;
    write!(out, "{}", slowest.list())?;
    Ok(match status.code() {
        Some(0) => ExitCode::SUCCESS,
        Some(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        None => ExitCode::FAILURE,
    })
}

#[expect(clippy::disallowed_methods, reason = "a stopwatch of the tests, which decide nothing by it")]
fn clock() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// What was found in the output so far.
#[derive(Debug, Default)]
struct Slowest {
    threads: usize,
    run: BinaryRun,
    tests: Vec<TimedTest>,
}

impl Slowest {
    /// Reads a line of the output that came at `at`.
    fn read(&mut self, line: &str, at: Duration) {
        if let Some(binary) = running(line) {
            self.end();
            self.run = BinaryRun { binary, began: at, ends: Vec::new() };
        } else if line.starts_with("running ") {
            self.run.began = at;
        } else if let Some(name) = ended(line) {
            self.run.ends.push(TestEnd { name: name.to_owned(), at });
        } else if line.starts_with("test result: ") {
            self.end();
        }
    }

    /// Adds the tests of the binary that ended.
    fn end(&mut self) {
        let BinaryRun { binary, began, ends } = std::mem::take(&mut self.run);
        // Ends are in the order of time; starts in the order of names.
        let mut started: Vec<&TestEnd> = ends.iter().collect();
        started.sort_by(|a, b| a.name.cmp(&b.name));
        for (number, test) in started.into_iter().enumerate() {
            let start = number.checked_sub(self.threads.max(1)).map_or(began, |end| ends[end].at);
            let (took, name) = (test.at.saturating_sub(start), test.name.clone());
            self.tests.push(TimedTest { took, binary: binary.clone(), name });
        }
        self.run.binary = binary;
    }

    fn list(mut self) -> String {
        self.end();
        self.tests.sort_by(|a, b| (b.took, &a.name).cmp(&(a.took, &b.name)));
        let sum: Duration = self.tests.iter().map(|test| test.took).sum();
        let mut list = format!("\nThe slowest of {} tests, which took {:.0} s:\n", self.tests.len(), sum.as_secs_f64());
        for TimedTest { took, binary, name } in self.tests.iter().take(SLOWEST) {
            list += &format!("{:>8.1} s  {binary}  {name}\n", took.as_secs_f64());
        }
        list
    }
}

/// The binary that begins with this line of cargo: `crate tests/name.rs` or `crate`.
fn running(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(doc) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{doc} (documentation)"));
    }
    let (what, path) = line.strip_prefix("Running ")?.split_once(" (")?;
    let file = path.trim_end_matches(')').rsplit('/').next()?;
    let name = file.rsplit_once('-').map_or(file, |(name, _)| name);
    Some(match what.strip_prefix("unittests ") {
        Some(_) => name.to_owned(),
        None => what.to_owned(),
    })
}

/// The test that ended with this line.
fn ended(line: &str) -> Option<&str> {
    let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let is_outcome = ["ok", "FAILED", "ignored"].iter().any(|word| outcome.starts_with(word));
    is_outcome.then(|| name.trim_end_matches(" - should panic"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(threads: usize, lines: &[(&str, u64)]) -> Vec<(String, u64)> {
        let mut slowest = Slowest { threads, ..Slowest::default() };
        for (line, ms) in lines {
            slowest.read(line, Duration::from_millis(*ms));
        }
        slowest.end();
        slowest.tests.iter().map(|test| (test.name.clone(), test.took.as_millis() as u64)).collect()
    }

    #[test]
    fn a_test_begins_when_the_one_ends_whose_place_it_takes() {
        // Two at once: a and b begin, b ends, c begins, a ends, d begins.
        let lines = [
            ("running 4 tests", 100),
            ("test b ... ok", 150),
            ("test a - should panic ... ok", 400),
            ("test d ... FAILED", 410),
            ("test c has been running for over 60 seconds", 500),
            ("test c ... ok", 950),
            ("test result: FAILED. 3 passed; 1 failed", 950),
        ];
        let took = |name: &str, ms| (name.to_owned(), ms);
        assert_eq!(read(2, &lines), [took("a", 300), took("b", 50), took("c", 800), took("d", 10)]);
    }

    #[test]
    fn one_after_the_other_where_there_is_one_processor() {
        let lines = [("running 2 tests", 0), ("test a ... ok", 30), ("test b ... ignored", 31)];
        assert_eq!(read(1, &lines), [("a".to_owned(), 30), ("b".to_owned(), 1)]);
    }

    #[test]
    fn lines_of_cargo_name_the_binary() {
        let line = "     Running unittests src/lib.rs (target/debug/deps/frieze_base-0123456789abcdef)";
        assert_eq!(running(line).as_deref(), Some("frieze_base"));
        assert_eq!(running("     Running tests/mount.rs (/t/deps/mount-01)").as_deref(), Some("tests/mount.rs"));
        assert_eq!(running("   Doc-tests frieze_base").as_deref(), Some("frieze_base (documentation)"));
        assert_eq!(running("Running out of words"), None);
        assert_eq!(ended("test result: ok. 5 passed"), None);
        assert_eq!(ended("test a::b ... ok"), Some("a::b"));
    }

    #[test]
    fn the_list_has_the_slowest_first() {
        let mut slowest = Slowest { threads: 1, ..Slowest::default() };
        slowest.read("     Running unittests src/lib.rs (target/debug/deps/frieze_base-01)", Duration::ZERO);
        for number in 0..12u64 {
            slowest.read(&format!("test t{number:02} ... ok"), Duration::from_secs(number * (number + 1)));
        }
        let list = slowest.list();
        let lines: Vec<&str> = list.lines().skip(1).collect();
        assert_eq!((lines[0], lines.len()), ("The slowest of 12 tests, which took 132 s:", 11));
        assert_eq!(lines[1], "    22.0 s  frieze_base  t11");
    }
}
