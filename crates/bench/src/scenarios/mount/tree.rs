//! A source tree on a mount: unpacked by tar, checked by git, removed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::beside::ReferenceTree;
use super::{BenchMount, Spent, spend};
use crate::BenchOptions;
use crate::report::BenchReport;
use crate::stopwatch::Stopwatch;
use crate::target::BenchTarget;

/// Files of one directory of the tree.
const FILES_EACH: u64 = 20;

/// Seconds for each.
#[derive(Default)]
struct Times {
    unpack: f64,
    add: f64,
    status: f64,
    remove: f64,
}

pub(crate) fn mount_tree(options: &BenchOptions) -> Result<BenchReport> {
    let files = options.scaled(options.ops, 5_000);
    let target = BenchTarget::start(options)?;
    let client = target.client()?;
    let packed = tempfile::Builder::new().prefix("frieze-bench-tree-").tempdir()?;
    let archive = packed.path().join("tree.tar");
    make(&packed.path().join("tree"), files)?;
    run(Command::new("tar").arg("cf").arg(&archive).arg("-C").arg(packed.path()).arg("tree"))?;
    let directory = tempfile::Builder::new().prefix("frieze-bench-mount-").tempdir()?;
    let mounted = BenchMount::of(&target, directory.path())?;
    let beside = ReferenceTree::of(options)?;
    let peer = live(&archive, beside.path())?;
    let mut ours = Times::default();
    let spent: Spent = spend(&target, &client, || {
        ours = live(&archive, &mounted.path)?;
        Ok(())
    })?;
    let rows = [
        ("unpack", ours.unpack),
        ("git_add", ours.add),
        ("git_status", ours.status),
        ("rm", ours.remove),
        ("beside_unpack", peer.unpack),
        ("beside_git_add", peer.add),
        ("beside_git_status", peer.status),
        ("beside_rm", peer.remove),
    ];
    Ok(BenchReport {
        scenario: "mount-tree",
        value: files as f64 / ours.unpack,
        unit: "files/s unpacked",
        ceiling: files as f64 / peer.unpack,
        ceiling_name: beside.name,
        cpu_client_s: spent.client_s,
        cpu_server_s: spent.server_s,
        cpu_per: "tree (the mount's own not counted)",
        server_peak_mib: spent.after.peak_mib,
        more: rows.into_iter().map(|(name, value)| (name, value, "s")).collect(),
    })
}

/// The life of a tree in a directory.
fn live(archive: &Path, directory: &Path) -> Result<Times> {
    let tree = directory.join("tree");
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(&tree).args(arguments);
        // No user's settings, and no work in the background.
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        timed(&mut command)
    };
    let unpack = timed(Command::new("tar").arg("xf").arg(archive).arg("-C").arg(directory))?;
    git(&["init", "-q"])?;
    let add = git(&["add", "-A"])?;
    let status = git(&["status", "--short"])?;
    let remove = timed(Command::new("rm").arg("-rf").arg(&tree))?;
    ensure!(!tree.exists(), "the tree is still there");
    Ok(Times { unpack, add, status, remove })
}

/// Makes a tree of small files, most of some KiB as sources are, the same every time.
fn make(tree: &Path, files: u64) -> Result<()> {
    for file in 0..files {
        let directory = tree.join(format!("part{}/src{}", file / FILES_EACH / 10, file / FILES_EACH));
        if file % FILES_EACH == 0 {
            fs::create_dir_all(&directory)?;
        }
        let line = format!("fn f{file}() {{ assert_eq!({file}, {file}); }}\n");
        let lines = 5 + file * file % 400;
        fs::write(directory.join(format!("f{file}.rs")), line.repeat(lines as usize))?;
    }
    Ok(())
}

fn timed(command: &mut Command) -> Result<f64> {
    let watch = Stopwatch::start();
    run(command)?;
    Ok(watch.seconds())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot run {}", command.get_program().display()))?;
    ensure!(status.success(), "{} ended with {status}", command.get_program().display());
    Ok(())
}
