//! A tree of many files that is renamed, changed and removed at one instant each, beside clients that make and look at
//! files elsewhere.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use frieze_client::{
    Client, CreateMode, EditReply, Error, ModeAction, ModeChange, RenameMode, RightsChange, Target as Path,
};

use super::{on_clients, progress, settle, spend};
use crate::BenchOptions;
use crate::report::BenchReport;
use crate::stopwatch::Stopwatch;
use crate::target::BenchTarget;

const FILES: u64 = 1_000_000;
/// Files of a directory.
const DIRECTORY_FILES: u64 = 1_000;
/// Clients that make the tree.
const MAKERS: usize = 32;
/// Clients that work elsewhere.
const OTHERS: usize = 8;
/// Between two operations of such a client: together they ask for a part of what the server can.
const PAUSE: Duration = Duration::from_millis(2);
const RENAMES: usize = 21;
/// How long the others are watched with nothing beside them.
const QUIET: Duration = Duration::from_secs(5);
/// What a change of a tree should take at most, s.
const SECONDS_MAX: f64 = 10.0;

/// What the other clients saw.
struct Others<'a> {
    watch: &'a Stopwatch,
    stop: AtomicBool,
    /// Begin of an operation and its end, s.
    seen: Mutex<Vec<(f64, f64)>>,
}

impl Others<'_> {
    /// Makes files and looks at them until `stop`.
    fn work(&self, index: usize, client: &Client) -> Result<()> {
        let (fs, mut seen) = (client.fs(), Vec::new());
        for number in 0u64.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let path = Path::path(format!("/others/{index}/{}", number / 2));
            let begun = self.watch.seconds();
            match number % 2 {
                0 => fs.create(&path, 0o644, CreateMode::Exclusive)?.close().context("closing")?,
                _ => drop(fs.stat(&path)?),
            }
            seen.push((begun, self.watch.seconds()));
            pause(PAUSE);
        }
        self.seen.lock().expect("no client panicked").append(&mut seen);
        Ok(())
    }

    /// The 99th of 100 and the longest of the operations that were under way in an interval, ms.
    fn latencies(&self, (from, to): (f64, f64)) -> (f64, f64) {
        let seen = self.seen.lock().expect("no client panicked");
        let within = seen.iter().filter(|(begun, ended)| *begun < to && *ended > from);
        let mut all: Vec<f64> = within.map(|(begun, ended)| (ended - begun) * 1e3).collect();
        all.sort_by(f64::total_cmp);
        let at = (all.len() * 99 / 100).min(all.len().saturating_sub(1));
        (all.get(at).copied().unwrap_or_default(), all.last().copied().unwrap_or_default())
    }
}

/// The change is one, and of all files.
fn check(changed: std::result::Result<EditReply, Error>, least: u64) -> Result<()> {
    let count = changed?.count;
    ensure!(count >= least, "{count} of at least {least} files were changed");
    Ok(())
}

/// Files in directories of 1,000: the tree is renamed, gets another mode and another group, and is removed.
pub(crate) fn trees(options: &BenchOptions) -> Result<BenchReport> {
    let count = options.scaled(options.ops, FILES);
    let target = BenchTarget::start(options)?;
    let client = target.client()?;
    let fs = client.fs();
    for directory in ["/tree", "/others"] {
        fs.mkdir(&Path::path(directory), 0o755)?;
    }
    (0..OTHERS).try_for_each(|index| fs.mkdir(&Path::path(format!("/others/{index}")), 0o755).map(drop))?;
    let directories = count.div_ceil(DIRECTORY_FILES);
    let bar = progress("making", count);
    on_clients(&target, MAKERS, |index, client| {
        let fs = client.fs();
        for directory in (index as u64..directories).step_by(MAKERS) {
            fs.mkdir(&Path::path(format!("/tree/{directory}")), 0o755)?;
            for number in directory * DIRECTORY_FILES..count.min((directory + 1) * DIRECTORY_FILES) {
                let path = Path::path(format!("/tree/{directory}/measurement-{number:08}"));
                fs.create(&path, 0o644, CreateMode::Exclusive)?.close().context("closing")?;
                bar.inc(1);
            }
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    settle(&client)?;
    let made = target.usage(&client)?;

    let (mut renames, mut names) = (Vec::new(), ["/tree", "/moved"]);
    for _ in 0..RENAMES {
        let watch = Stopwatch::start();
        fs.rename(&Path::path(names[0]), &Path::path(names[1]), RenameMode::Replace)?;
        renames.push(watch.seconds() * 1e3);
        names.swap(0, 1);
    }
    renames.sort_by(f64::total_cmp);

    let tree = Path::path(names[0]);
    let take = ModeChange { action: ModeAction::Take as i32, who: 0o7777, bits: 0o044, ..ModeChange::default() };
    let modes = RightsChange { modes: vec![take], ..RightsChange::default() };
    let watch = Stopwatch::start();
    let others = Others { watch: &watch, stop: AtomicBool::new(false), seen: Mutex::default() };
    let (mut intervals, mut spent) = (Vec::new(), None);
    std::thread::scope(|scope| {
        let working = scope.spawn(|| on_clients(&target, OTHERS, |index, client| others.work(index, client)));
        pause(QUIET);
        intervals.push((watch.seconds() - QUIET.as_secs_f64() / 2.0, watch.seconds()));
        let mut measure = |change: &dyn Fn() -> Result<()>| {
            let begun = watch.seconds();
            let done = spend(&target, &client, change);
            intervals.push((begun, watch.seconds()));
            pause(Duration::from_secs(2));
            done
        };
        let changed = measure(&|| check(fs.change_tree(&tree, &modes, false), count)).and_then(|first| {
            spent = Some(first);
            measure(&|| check(fs.remove_tree(&tree, false), count))
        });
        others.stop.store(true, Ordering::Relaxed);
        working.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a client thread panicked")))?;
        changed.map(drop)
    })?;
    let spent = spent.context("the mode of the tree was changed")?;
    let [quiet, changing, removing] = intervals[..] else { anyhow::bail!("three intervals were watched") };
    let seconds = |(from, to): (f64, f64)| to - from;
    let (quiet_ms, _) = others.latencies(quiet);
    let ((changing_ms, changing_most_ms), (removing_ms, removing_most_ms)) =
        (others.latencies(changing), others.latencies(removing));
    let usage = target.usage(&client)?;
    Ok(BenchReport {
        scenario: "trees",
        value: seconds(removing),
        unit: "s to remove the tree at one instant",
        ceiling: SECONDS_MAX,
        ceiling_name: "what it should take at most",
        cpu_client_s: spent.client_s,
        cpu_server_s: spent.server_s,
        cpu_per: "change of the mode of all files",
        server_peak_mib: usage.peak_mib,
        more: vec![
            ("chmod_s", seconds(changing), "s to change the mode of all files at one instant"),
            ("rename_ms", renames[RENAMES / 2], "ms to rename its directory"),
            ("others_p99_ms", quiet_ms, "ms, 99 of 100 operations of 8 other clients, with nothing beside them"),
            ("others_p99_chmod_x", changing_ms / quiet_ms, "x of that while the mode is changed"),
            ("others_p99_remove_x", removing_ms / quiet_ms, "x of that while the tree is removed"),
            ("others_most_chmod_ms", changing_most_ms, "ms, the longest while the mode is changed"),
            ("others_most_remove_ms", removing_most_ms, "ms, the longest while the tree is removed"),
            ("made_peak_mib", made.peak_mib, "MiB, the server's peak memory before"),
        ],
    })
}

#[expect(clippy::disallowed_methods, reason = "a load has a rate, and is watched for a time")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
