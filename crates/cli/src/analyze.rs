//! `analyze`: runs the Python package `frieze_traces` on traces.
//!
//! The package is part of this command: its files are written to the user's cache under the hash of their content, and
//! its dependencies are installed once into a virtual environment beside them, with the versions that the package pins.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::args::{AnalyzeArgs, EngineArg};
use crate::failure::{CheckFailed, ChildFailed, UsageError};
use crate::format;
use crate::run::CommandRun;
use crate::trace_dirs::recover;

macro_rules! package {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../python/frieze_traces/", $name)))),*]
    };
}

/// The package's files, tests left out.
const PACKAGE: &[(&str, &str)] = package![
    "__init__.py",
    "__main__.py",
    "bench.py",
    "contract.py",
    "engine.py",
    "figures/__init__.py",
    "figures/kinds.py",
    "figures/layers.py",
    "figures/look.py",
    "figures/reads.py",
    "figures/time.py",
    "page.html",
    "pipeline.py",
    "reading.py",
    "report.py",
    "requirements-spark.txt",
    "requirements.txt",
    "stages/__init__.py",
    "stages/blocks.py",
    "stages/check.py",
    "stages/identity.py",
    "stages/io.py",
    "stages/kinds.py",
    "stages/nearby.py",
    "stages/purpose.py",
    "stages/streams.py",
    "stages/time.py",
];

/// Interpreters to try, newest first among those with a number.
const PYTHONS: &[&str] = &["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10"];
/// Oldest version that the package runs on.
const PYTHON_OLDEST: (u32, u32) = (3, 10);

/// `frieze analyze`.
pub(crate) fn analyze(run: &mut CommandRun, args: &AnalyzeArgs) -> Result<()> {
    // A wrong path is reported before anything is installed.
    for trace in &args.traces {
        if !trace.join("manifest.json").exists() {
            let dir = format::local(trace);
            let words =
                format!("{dir} is not a trace: it has no manifest.json. Make one with --trace or: frieze trace save");
            return Err(CheckFailed(words).into());
        }
    }
    recover(run, &args.traces).map_err(|error| CheckFailed(format!("{error:#}")))?;
    let cache = cache_dir()?;
    let package = write_package(&cache)?;
    let python = python_with_packages(run, &cache, &package, args.engine)?;
    let mut command = Command::new(&python);
    command.arg("-m").arg("frieze_traces").args(&args.traces).arg("--out").arg(&args.out);
    command.args(["--engine", engine_name(args.engine), "--memory", &args.memory]);
    command.args(["--replicas", &args.replicas.to_string(), "--page", &args.page.to_string()]);
    if let Some(stored) = args.stored {
        command.args(["--stored", &stored.to_string()]);
    }
    for (given, word) in [(args.partial, "--partial"), (run.json(), "--json"), (run.common.quiet, "--quiet")] {
        if given {
            command.arg(word);
        }
    }
    let status = command.env("PYTHONPATH", &package).status().with_context(|| format::local(&python))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(ChildFailed(u8::try_from(code).unwrap_or(1)).into()),
        None => bail!("the analysis was ended by a signal ({status}); run it again: it continues at its last stage"),
    }
}

fn engine_name(engine: EngineArg) -> &'static str {
    match engine {
        EngineArg::Duckdb => "duckdb",
        EngineArg::Spark => "spark",
    }
}

fn cache_dir() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let cache = cache.ok_or_else(|| UsageError("there is no HOME: name a directory with XDG_CACHE_HOME".to_owned()))?;
    Ok(cache.join("frieze/analyze"))
}

/// A short name for content: the same content has the same name.
fn hash_of<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

/// Writes the package below `cache` if it is not there yet; returns the directory to import it from.
fn write_package(cache: &Path) -> Result<PathBuf> {
    let hash = hash_of(PACKAGE.iter().flat_map(|(name, text)| [*name, *text]));
    let dir = cache.join(format!("package-{hash}"));
    if dir.exists() {
        return Ok(dir);
    }
    // Written beside and renamed, so that it is whole or absent; another run may win.
    let building = cache.join(format!("package-{hash}.{}", std::process::id()));
    for (name, text) in PACKAGE {
        let file = building.join("frieze_traces").join(name);
        let parent = file.parent().context("a file of the package lies in a directory")?;
        std::fs::create_dir_all(parent).with_context(|| format::local(parent))?;
        std::fs::write(&file, text).with_context(|| format::local(&file))?;
    }
    settle(&building, &dir)?;
    Ok(dir)
}

/// Gives a finished directory its name. If another run was first, that one's directory stays.
fn settle(building: &Path, dir: &Path) -> Result<()> {
    match std::fs::rename(building, dir) {
        Err(_) if dir.exists() => {
            std::fs::remove_dir_all(building).ok();
            Ok(())
        }
        done => done.with_context(|| format::local(dir)),
    }
}

/// An interpreter that has the pinned packages: `FRIEZE_PYTHON` if that has them, else the one in the cache.
fn python_with_packages(run: &mut CommandRun, cache: &Path, package: &Path, engine: EngineArg) -> Result<PathBuf> {
    let given = std::env::var_os("FRIEZE_PYTHON").filter(|value| !value.is_empty());
    let imports = match engine {
        EngineArg::Duckdb => "import ibis, duckdb, pyarrow, altair, vl_convert",
        EngineArg::Spark => "import ibis, duckdb, pyarrow, altair, vl_convert, pyspark",
    };
    if let Some(python) = &given {
        let has = Command::new(python).args(["-c", imports]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if has.is_ok_and(|status| status.success()) {
            return Ok(PathBuf::from(python));
        }
    }
    let (base, version) = find_python(given)?;
    let mut files = vec!["requirements.txt"];
    if engine == EngineArg::Spark {
        files.push("requirements-spark.txt");
    }
    let pins = PACKAGE.iter().filter(|(name, _)| files.contains(name)).map(|(_, text)| *text);
    let dir = cache.join(format!("python-{}", hash_of(pins.chain([version.as_str()]))));
    if !dir.exists() {
        install(run, cache, package, &base, &files, &dir)?;
    }
    Ok(dir.join("bin/python"))
}

/// The first interpreter that is new enough and can make virtual environments, and its version.
fn find_python(given: Option<OsString>) -> Result<(OsString, String)> {
    const QUESTION: &str = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])";
    let mut found = String::new();
    let candidates: Vec<OsString> = match given {
        Some(python) => vec![python],
        None => PYTHONS.iter().map(OsString::from).collect(),
    };
    for python in candidates {
        let name = format::printable(python.as_encoded_bytes());
        match Command::new(&python).args(["-c", QUESTION]).output() {
            Ok(output) if output.status.success() => {
                let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                let numbers: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
                if numbers.first().zip(numbers.get(1)).is_some_and(|(a, b)| (*a, *b) >= PYTHON_OLDEST) {
                    return Ok((python, version));
                }
                write!(found, "; {name} is of version {version}")?;
            }
            Ok(_) => write!(found, "; {name} lacks venv or ensurepip (Debian: apt install python3-venv)")?,
            Err(_) => {}
        }
    }
    let words = "Python 3.10 or newer, which computes the report, is not found".to_owned() + &found;
    Err(CheckFailed(format!(
        "{words}. Install it (Debian: apt install python3 python3-venv), or name it in FRIEZE_PYTHON"
    ))
    .into())
}

/// Makes the virtual environment `dir`: beside, then renamed, so that it is whole or absent.
fn install(
    run: &mut CommandRun,
    cache: &Path,
    package: &Path,
    base: &OsString,
    files: &[&str],
    dir: &Path,
) -> Result<()> {
    let place = format::local(cache);
    run.say(&format!("installing DuckDB, Ibis and Altair for Python into {place}: once, some 300 MB"));
    std::fs::create_dir_all(cache).with_context(|| place.clone())?;
    let building = PathBuf::from(format!("{}.{}", dir.display(), std::process::id()));
    let made = Command::new(base).args(["-m", "venv"]).arg(&building).output().context("python -m venv")?;
    if !made.status.success() {
        let words = last_line(&made.stderr).unwrap_or_else(|| last_line(&made.stdout).unwrap_or_default());
        std::fs::remove_dir_all(&building).ok();
        bail!("python -m venv {}: {words}", format::local(&building));
    }
    let mut pip = Command::new(building.join("bin/python"));
    pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet"]);
    let mut by_hand = String::new();
    for file in files {
        let file = package.join("frieze_traces").join(file);
        pip.arg("-r").arg(&file);
        write!(by_hand, " -r {}", format::local(&file))?;
    }
    let installed = pip.stdout(Stdio::null()).output().context("pip")?;
    if !installed.status.success() {
        // What pip says itself stays readable; its last line is the reason.
        let _ = std::io::stderr().write_all(&installed.stderr);
        std::fs::remove_dir_all(&building).ok();
        let reason = last_line(&installed.stderr).unwrap_or_default();
        let words = format!(
            "pip can not install what the report needs ({reason}). Where there is a network, run\n  \
             python3 -m venv DIR && DIR/bin/pip install{by_hand}\nand then this command with \
             FRIEZE_PYTHON=DIR/bin/python"
        );
        return Err(CheckFailed(words).into());
    }
    settle(&building, dir)
}

fn last_line(output: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(output);
    text.lines().rfind(|line| !line.trim().is_empty()).map(|line| format::printable(line.trim().as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::{PACKAGE, hash_of, write_package};

    /// Files below `dir` that the package consists of, as paths below `root`.
    fn files(root: &Path, dir: &Path, out: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                if !["tests", "__pycache__"].contains(&name.rsplit('/').next().unwrap()) {
                    files(root, &path, out);
                }
            } else {
                out.insert(name);
            }
        }
    }

    #[test]
    fn the_command_holds_every_file_of_the_package() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/frieze_traces");
        let mut expected = BTreeSet::new();
        files(&root, &root, &mut expected);
        let found: BTreeSet<String> = PACKAGE.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_package_is_written_once_and_whole() {
        let cache = tempfile::tempdir().unwrap();
        let dir = write_package(cache.path()).unwrap();
        let file = dir.join("frieze_traces/__init__.py");
        let first = std::fs::metadata(&file).unwrap().modified().unwrap();
        assert_eq!(write_package(cache.path()).unwrap(), dir);
        assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), first);
        assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 1);
        for (name, text) in PACKAGE {
            assert_eq!(std::fs::read_to_string(dir.join("frieze_traces").join(name)).unwrap(), *text);
        }
    }

    #[test]
    fn another_division_of_the_same_text_has_another_hash() {
        assert_ne!(hash_of(["ab", "c"].into_iter()), hash_of(["a", "bc"].into_iter()));
    }
}
