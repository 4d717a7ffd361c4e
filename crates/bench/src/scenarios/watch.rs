//! A watch: how many events a second it reads beside the differences of the same interval, and how far it is behind.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result};
use frieze_client::{Client, CreateMode, HistoryInterval, Hlc, Target as Path, WatchItem, mono};

use super::diff::BenchTree;
use super::{progress, spend};
use crate::BenchOptions;
use crate::fleet::Fleet;
use crate::report::BenchReport;
use crate::stopwatch::Stopwatch;

/// Changes of the interval that is read.
const CHANGES: u64 = 20_000;
/// Changes whose way into a mark is measured, and the pause between two: no divisor of a cell of time.
const SINGLES: u64 = 300;
const PAUSE: Duration = Duration::from_millis(37);
/// Longest wait for a mark.
const MARK_MAX: Duration = Duration::from_secs(10);

/// Reads of an interval; then marks of one server and of three.
pub(crate) fn watch(options: &BenchOptions) -> Result<BenchReport> {
    let rounds = 5;
    let mut tree = BenchTree::make(options)?;
    tree.changes = options.scaled(None, CHANGES).min(tree.unchanged / 4);
    tree.change(&tree.client.fs())?;
    let interval = HistoryInterval { after: tree.made, upto: super::settle(&tree.client)? };
    // In turn, so that a disturbance meets both.
    let (mut differences, mut events) = (Vec::new(), Vec::new());
    let mut spent = None;
    for _ in 0..rounds {
        let one = Stopwatch::start();
        let (found, _) = tree.differences(interval)?;
        anyhow::ensure!(found == tree.changes, "{found} of {} differences", tree.changes);
        differences.push(found as f64 / one.seconds());
        let mut count = 0;
        let this = spend(&tree.target, &tree.client, || {
            count = read_all(&tree.client, interval)?;
            Ok(())
        })?;
        events.push(count as f64 / this.seconds);
        spent = Some((this, count));
    }
    let (spent, count) = spent.context("a round")?;
    let per_1000 = 1000.0 / count as f64;
    let alone = lags(&tree.client, &tree.target.client()?, options.scaled(None, SINGLES))?;
    drop(tree);
    let several = {
        let fleet = Fleet::start(options, 3, "memory_bytes_max = 1073741824\n")?;
        fleet.await_whole()?;
        lags(&fleet.client(0)?, &fleet.client(1)?, options.scaled(None, SINGLES))?
    };
    let quantile = |lags: &[f64], percent: usize| lags[(lags.len() - 1) * percent / 100];
    Ok(BenchReport {
        scenario: "watch",
        value: median(&mut events),
        unit: "events/s",
        ceiling: median(&mut differences),
        ceiling_name: "differences of the same interval a second",
        cpu_client_s: spent.client_s * per_1000,
        cpu_server_s: spent.server_s * per_1000,
        cpu_per: "1,000 events",
        server_peak_mib: spent.after.peak_mib,
        more: vec![
            ("resolved_p50_ms", quantile(&alone, 50), "ms from the request of a change to a mark behind it"),
            ("resolved_p99_ms", quantile(&alone, 99), "ms (goal: 150 at most)"),
            ("three_resolved_p50_ms", quantile(&several, 50), "ms, three servers"),
            ("three_resolved_p99_ms", quantile(&several, 99), "ms, three servers (goal: 300 at most)"),
        ],
    })
}

fn read_all(client: &Client, interval: HistoryInterval) -> Result<u64> {
    let mut feed = client.fs().watch(&Path::path("/"), interval.after)?.until(interval.upto);
    let mut count = 0;
    while let Some(item) = feed.next(MARK_MAX)? {
        count += u64::from(matches!(item, WatchItem::Event { .. }));
    }
    Ok(count)
}

/// Milliseconds from the request of a change to the mark behind it, sorted.
fn lags(writer: &Client, reader: &Client, changes: u64) -> Result<Vec<f64>> {
    writer.fs().mkdir(&Path::path("/lag"), 0o755)?;
    let mut feed = reader.fs().watch(&Path::path("/lag"), writer.now()?)?;
    let made: Mutex<Vec<(Hlc, u64)>> = Mutex::default();
    let bar = progress("watch", changes);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| -> Result<()> {
            for number in 0..changes {
                let began = mono().0;
                let name = Path::path(format!("/lag/{number}"));
                writer.fs().create(&name, 0o644, CreateMode::Exclusive)?.close()?;
                made.lock().expect("no panic").push((writer.newest(), began));
                std::thread::park_timeout(PAUSE);
            }
            Ok(())
        });
        let mut lags = Vec::new();
        while (lags.len() as u64) < changes {
            match feed.next(MARK_MAX)? {
                Some(WatchItem::Resolved(mark)) => {
                    let now = mono().0;
                    made.lock().expect("no panic").retain(|(stamp, began)| {
                        if *stamp <= mark {
                            lags.push((now - began) as f64 / 1e6);
                            bar.inc(1);
                        }
                        *stamp > mark
                    });
                }
                Some(_) => {}
                None => anyhow::ensure!(!load.is_finished(), "no mark within {MARK_MAX:?}"),
            }
        }
        bar.finish_and_clear();
        load.join().map_err(|_| anyhow::anyhow!("the load panicked"))??;
        lags.sort_by(f64::total_cmp);
        Ok(lags)
    })
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(0.0)
}
