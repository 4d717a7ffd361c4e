//! The cost of requests about the past for each change that they show, as the changes become ten and a hundred times as
//! many.

use anyhow::Result;
use frieze_client::{Client, CreateMode, Fs, HistoryInterval, Hlc, OpenFlags, RenameMode, Target as Path};

use super::{progress, settle, spend};
use crate::target::BenchTarget;

/// A further figure of a report: name, value, unit.
pub(super) type QueryFigure = (&'static str, f64, &'static str);

/// Times as many changes as there are first.
const TIMES: [u64; 3] = [1, 10, 100];
/// Files of the small directory beside all that changes.
const SMALL: u64 = 20;

const CHANGES: [&str; 3] = ["changes_x1", "changes_x10", "changes_x100"];
const WALL: &str = "us for each change shown";
const CPU: &str = "us of the server's processor for each change shown";
const GROWTH: &str = "(a change among a hundred times as many over one among few)";

/// A request: the names of its figures.
struct PastQuery {
    wall: [&'static str; 3],
    cpu: [&'static str; 3],
    growth: &'static str,
}

/// `find` asks for the same pages as `diff`.
const DIFF: PastQuery = PastQuery {
    wall: ["diff_us_x1", "diff_us_x10", "diff_us_x100"],
    cpu: ["diff_cpu_us_x1", "diff_cpu_us_x10", "diff_cpu_us_x100"],
    growth: "diff_growth",
};
const DELETED: PastQuery = PastQuery {
    wall: ["deleted_us_x1", "deleted_us_x10", "deleted_us_x100"],
    cpu: ["deleted_cpu_us_x1", "deleted_cpu_us_x10", "deleted_cpu_us_x100"],
    growth: "deleted_growth",
};
const LOG: PastQuery = PastQuery {
    wall: ["log_r_us_x1", "log_r_us_x10", "log_r_us_x100"],
    cpu: ["log_r_cpu_us_x1", "log_r_cpu_us_x10", "log_r_cpu_us_x100"],
    growth: "log_r_growth",
};
const BESIDE: [&str; 3] = ["log_r_small_ms_x1", "log_r_small_ms_x10", "log_r_small_ms_x100"];

/// Seconds, seconds of the server's processor, and changes shown.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    wall_s: f64,
    server_s: f64,
    shown: u64,
}

/// The figures of `base` changes, and of ten and a hundred times as many, each in an interval of its own. They are in
/// `directories` directories `/d0`, `/d1`, …, beside the files that these have.
pub(super) fn figures(target: &BenchTarget, client: &Client, directories: u64, base: u64) -> Result<Vec<QueryFigure>> {
    let fs = client.fs();
    fs.mkdir(&Path::path("/small"), 0o755)?;
    for number in 0..SMALL {
        fs.create(&Path::path(format!("/small/{number}")), 0o644, CreateMode::Exclusive)?.close()?;
    }
    let (mut figures, mut diffs, mut deleted, mut logs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (level, times) in TIMES.into_iter().enumerate() {
        let changes = base * times;
        let interval = change(client, directories, level, changes)?;
        figures.push((CHANGES[level], changes as f64, "changes in bytes, of names, and removals, a fourth each"));
        diffs.push(cost(target, client, || differences(&fs, interval))?);
        anyhow::ensure!(diffs[level].shown == changes, "{} of {changes} differences", diffs[level].shown);
        deleted.push(cost(target, client, || count_deleted(&fs, directories))?);
        logs.push(cost(target, client, || events(&fs, "/", interval))?);
        let small = cost(target, client, || events(&fs, "/small", HistoryInterval { after: Hlc::ZERO, ..interval }))?;
        anyhow::ensure!(small.shown >= SMALL, "{} events in a directory of {SMALL} files", small.shown);
        figures.push((BESIDE[level], small.wall_s * 1000.0, "ms for `log -R` of 20 files beside them"));
    }
    for (question, costs) in [(DIFF, diffs), (DELETED, deleted), (LOG, logs)] {
        let each = |cost: &Cost| cost.wall_s * 1e6 / cost.shown as f64;
        for (level, cost) in costs.iter().enumerate() {
            figures.push((question.wall[level], each(cost), WALL));
            figures.push((question.cpu[level], cost.server_s * 1e6 / cost.shown as f64, CPU));
        }
        figures.push((question.growth, each(&costs[2]) / each(&costs[0]), GROWTH));
    }
    Ok(figures)
}

/// Makes changes, a fourth each in bytes, by a new name, by a removal and by a rename; the interval that they are in.
fn change(client: &Client, directories: u64, level: usize, changes: u64) -> Result<HistoryInterval> {
    let fs = client.fs();
    let path = |number: u64, kind: &str| Path::path(format!("/d{}/{kind}{level}-{number}", number % directories));
    let bar = progress("changing", 2 * changes);
    for number in 0..changes {
        if number % 4 != 1 {
            fs.create(&path(number, "old"), 0o644, CreateMode::Exclusive)?.close()?;
        }
        bar.inc(1);
    }
    let after = settle(client)?;
    for number in 0..changes {
        let old = path(number, "old");
        match number % 4 {
            0 => {
                let file = fs.open(&old, OpenFlags::WRITE)?;
                file.write_at(0, b"changed")?;
                file.close()?;
            }
            1 => fs.create(&path(number, "new"), 0o644, CreateMode::Exclusive)?.close().map(drop)?,
            2 => drop(fs.unlink(&old)?),
            _ => drop(fs.rename(&old, &path(number, "renamed"), RenameMode::NoReplace)?),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(HistoryInterval { after, upto: settle(client)? })
}

fn cost(target: &BenchTarget, client: &Client, ask: impl FnOnce() -> Result<u64>) -> Result<Cost> {
    let mut shown = 0;
    let spent = spend(target, client, || {
        shown = ask()?;
        Ok(())
    })?;
    anyhow::ensure!(shown > 0, "nothing was shown");
    Ok(Cost { wall_s: spent.seconds, server_s: spent.server_s, shown })
}

/// All differences of an interval, page by page.
fn differences(fs: &Fs, interval: HistoryInterval) -> Result<u64> {
    let mut found = 0;
    loop {
        let page = fs.diff(&Path::path("/"), interval, found, 0)?;
        found += page.differences.len() as u64;
        if !page.more {
            return Ok(found);
        }
    }
}

/// The names that were deleted in the directories.
fn count_deleted(fs: &Fs, directories: u64) -> Result<u64> {
    let mut found = 0;
    for index in 0..directories {
        let (directory, mut after) = (Path::path(format!("/d{index}")), Vec::new());
        loop {
            let page = fs.deleted(&directory, &after, 0)?;
            found += page.names.len() as u64;
            if page.next.is_empty() {
                break;
            }
            after = page.next;
        }
    }
    Ok(found)
}

/// The events below a directory, the newest first.
fn events(fs: &Fs, path: &str, mut interval: HistoryInterval) -> Result<u64> {
    let mut found = 0;
    while interval.after < interval.upto {
        let page = fs.story_newest(&Path::path(path), interval, true, 0)?;
        found += page.events.len() as u64;
        interval.upto = Hlc(page.after).min(interval.upto.previous());
    }
    Ok(found)
}
