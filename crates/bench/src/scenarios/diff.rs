//! Requests and edits about time: the differences between two instants, and their undo.

use anyhow::Result;
use frieze_client::{Client, CreateMode, Durability, EditReply, Fs, HistoryInterval, Hlc, OpenFlags, RenameMode};
use frieze_client::{Target as Path, Undo};

use super::metadata::{REQUEST_BYTES, make_files, report};
use super::{Spent, past, progress, settle, spend};
use crate::BenchOptions;
use crate::ceiling;
use crate::report::BenchReport;
use crate::stopwatch::Stopwatch;
use crate::target::BenchTarget;

/// Files that do not change, and changes beside them.
const UNCHANGED: u64 = 100_000;
const CHANGES: u64 = 1000;
/// Directories that they are in.
const DIRECTORIES: u64 = 8;

/// A large tree.
pub(super) struct BenchTree {
    pub(super) target: BenchTarget,
    pub(super) client: Client,
    pub(super) unchanged: u64,
    /// How many of its files are changed.
    pub(super) changes: u64,
    /// When it was whole and nothing had been changed.
    pub(super) made: Hlc,
}

impl BenchTree {
    pub(super) fn make(options: &BenchOptions) -> Result<BenchTree> {
        let files = options.scaled(options.ops, UNCHANGED);
        let target = BenchTarget::start(options)?;
        let client = target.client()?;
        let each = files / DIRECTORIES;
        let bar = progress("preparing", each * DIRECTORIES);
        for index in 0..DIRECTORIES {
            client.fs().mkdir(&Path::path(format!("/d{index}")), 0o755)?;
        }
        make_files(&target, DIRECTORIES as usize, "f", each, Durability::Async, &bar)?;
        bar.finish_and_clear();
        let made = settle(&client)?;
        Ok(BenchTree { target, client, unchanged: each * DIRECTORIES, changes: CHANGES.min(files / 4), made })
    }

    /// Changes a fourth each in bytes, by a new name, by a removal and by a rename.
    pub(super) fn change(&self, fs: &Fs) -> Result<()> {
        for i in 0..self.changes {
            let directory = i % DIRECTORIES;
            let old = Path::path(format!("/d{directory}/f{}", i / DIRECTORIES));
            match i % 4 {
                0 => {
                    let file = fs.open(&old, OpenFlags::WRITE)?;
                    file.write_at(0, b"changed")?;
                    file.close()?;
                }
                1 => {
                    let new = Path::path(format!("/d{directory}/n{i}"));
                    fs.create(&new, 0o644, CreateMode::Exclusive)?.close()?;
                }
                2 => drop(fs.unlink(&old)?),
                _ => {
                    let to = Path::path(format!("/d{directory}/r{i}"));
                    fs.rename(&old, &to, RenameMode::NoReplace).map(drop)?;
                }
            }
        }
        Ok(())
    }

    /// All differences of an interval, page by page: how many, and the entries of indexes that were read for them.
    pub(super) fn differences(&self, interval: HistoryInterval) -> Result<(u64, u64)> {
        let (mut found, mut read) = (0, 0);
        loop {
            let page = self.client.fs().diff(&Path::path("/"), interval, found, 0)?;
            found += page.differences.len() as u64;
            read += page.entries_read;
            if !page.more {
                return Ok((found, read));
            }
        }
    }
}

/// The difference of two instants with 1,000 changes between them in a tree of 100,000 files, and what it and the other
/// questions about the past cost with ten and a hundred times as many.
pub(crate) fn diff(options: &BenchOptions) -> Result<BenchReport> {
    let rounds = 20;
    let tree = BenchTree::make(options)?;
    tree.change(&tree.client.fs())?;
    let interval = HistoryInterval { after: tree.made, upto: settle(&tree.client)? };
    let pages = pages()?;
    let mut entries_read = 0;
    let mut seconds = Vec::new();
    let spent = spend(&tree.target, &tree.client, || {
        for _ in 0..rounds {
            let watch = Stopwatch::start();
            let (found, read) = tree.differences(interval)?;
            seconds.push(watch.seconds());
            entries_read = read;
            anyhow::ensure!(found == tree.changes, "{found} of {} differences", tree.changes);
        }
        Ok(())
    })?;
    seconds.sort_by(f64::total_cmp);
    let mut report = of_changes("diff", rounds * tree.changes, &spent, pages);
    report.more.push(("median_ms", seconds[seconds.len() / 2] * 1000.0, "ms for all of them, median"));
    report.more.push(("entries_read", entries_read as f64, "entries of indexes, versions and records read"));
    report.more.push(("unchanged", tree.unchanged as f64, "files beside them"));
    report.more.extend(past::figures(&tree.target, &tree.client, DIRECTORIES, tree.changes)?);
    Ok(report)
}

/// A tree of 100,000 files made what it was before 1,000 changes.
pub(crate) fn restore(options: &BenchOptions) -> Result<BenchReport> {
    taken_back("restore", options, |tree, _| Ok(tree.client.fs().restore(&Path::path("/"), tree.made, true, false)?))
}

/// 1,000 changes of a session taken back in a tree of 100,000 files.
pub(crate) fn undo(options: &BenchOptions) -> Result<BenchReport> {
    taken_back("undo", options, |tree, actor| {
        let session = actor.session()?.0;
        let (target, sessions) = (Path::path("/"), vec![session]);
        let undo = Undo { target, sessions, uid: None, after: 0, upto: 0, dry_run: false };
        Ok(tree.client.fs().undo(undo)?)
    })
}

/// Changes a tree by a session of its own and has that taken back, some times; the median.
fn taken_back(
    name: &'static str,
    options: &BenchOptions,
    take_back: impl Fn(&BenchTree, &Client) -> Result<EditReply>,
) -> Result<BenchReport> {
    let tree = BenchTree::make(options)?;
    let pages = pages()?;
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let actor = tree.target.client()?;
        tree.change(&actor.fs())?;
        settle(&tree.client)?;
        let mut actions = 0;
        rounds.push(spend(&tree.target, &tree.client, || {
            actions = take_back(&tree, &actor)?.count;
            Ok(())
        })?);
        let interval = HistoryInterval { after: tree.made, upto: settle(&tree.client)? };
        let (left, _) = tree.differences(interval)?;
        anyhow::ensure!(left == 0 && actions > 0, "{left} differences are left after {actions} actions");
    }
    rounds.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let spent = &rounds[rounds.len() / 2];
    let mut report = of_changes(name, tree.changes, spent, pages);
    report.more.push(("median_ms", spent.seconds * 1000.0, "ms for all of them, median"));
    Ok(report)
}

/// Pages of 1,000 differences of about 100 bytes, a second.
fn pages() -> Result<f64> {
    Ok(ceiling::ping_pong(REQUEST_BYTES, 100 * 1000, 1, 5_000)?.0)
}

fn of_changes(name: &'static str, changes: u64, spent: &Spent, pages: f64) -> BenchReport {
    let mut report = report(name, changes, spent, pages * 1000.0);
    report.unit = "differences/s";
    report.ceiling_name = "ping-pong of pages of 1,000 differences";
    report.cpu_per = "1,000 differences";
    report
}
