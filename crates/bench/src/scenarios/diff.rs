//! A question about time: what is different between two instants.

use anyhow::Result;
use frieze_client::{CreateMode, Durability, Interval, OpenFlags, RenameMode, Target as Path};

use super::metadata::{REQUEST_BYTES, make_files, report};
use super::{progress, settle, spend};
use crate::Options;
use crate::ceiling;
use crate::report::Report;
use crate::stopwatch::Stopwatch;
use crate::target::Target;

/// Files that do not change, and changes beside them.
const UNCHANGED: u64 = 100_000;
const CHANGES: u64 = 1000;

/// The difference of two instants with 1,000 changes between them in a tree of 100,000 files.
pub(crate) fn diff(options: &Options) -> Result<Report> {
    let files = options.scaled(options.ops, UNCHANGED);
    let changes = CHANGES.min(files / 4);
    let rounds = 20;
    let clients = 8;
    let target = Target::start(options)?;
    let client = target.client()?;
    let each = files / clients as u64;
    let bar = progress("preparing", each * clients as u64);
    for index in 0..clients {
        client.fs().mkdir(&Path::path(format!("/d{index}")), 0o755)?;
    }
    make_files(&target, clients, "f", each, Durability::Async, &bar)?;
    bar.finish_and_clear();
    let after = settle(&client)?;
    let fs = client.fs();
    for i in 0..changes {
        let old = |i: u64| Path::path(format!("/d{}/f{}", i % clients as u64, i / clients as u64));
        match i % 4 {
            0 => {
                let file = fs.open(&old(i), OpenFlags::WRITE)?;
                file.write_at(0, b"changed")?;
                file.close()?;
            }
            1 => fs
                .create(&Path::path(format!("/d{}/n{i}", i % clients as u64)), 0o644, CreateMode::Exclusive)?
                .close()?,
            2 => drop(fs.unlink(&old(i))?),
            _ => {
                let to = Path::path(format!("/d{}/r{i}", i % clients as u64));
                fs.rename(&old(i), &to, RenameMode::NoReplace).map(drop)?;
            }
        }
    }
    let interval = Interval { after, upto: settle(&client)? };
    // Pages of 1,000 differences of about 100 bytes.
    let (pages, _) = ceiling::ping_pong(REQUEST_BYTES, 100 * 1000, 1, 5_000)?;
    let mut entries_read = 0;
    let mut seconds = Vec::new();
    let spent = spend(&target, &client, || {
        for _ in 0..rounds {
            let watch = Stopwatch::start();
            let mut found = 0;
            loop {
                let page = fs.diff(&Path::path("/"), interval, found, 0)?;
                found += page.differences.len() as u64;
                entries_read = page.entries_read;
                if !page.more {
                    break;
                }
            }
            seconds.push(watch.seconds());
            anyhow::ensure!(found == changes, "{found} of {changes} differences");
        }
        Ok(())
    })?;
    seconds.sort_by(f64::total_cmp);
    let mut report = report("diff", rounds * changes, &spent, pages * 1000.0);
    report.unit = "differences/s";
    report.ceiling_name = "ping-pong of pages of 1,000 differences";
    report.cpu_per = "1,000 differences";
    report.more.push(("median_ms", seconds[seconds.len() / 2] * 1000.0, "ms for all of them, median"));
    report.more.push(("entries_read", entries_read as f64, "entries of indexes, versions and records read"));
    Ok(report)
}
