//! The everyday calls of programs on a mount: make, stat, read, move and remove small files, by one thread and by
//! eight.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

mod beside;
mod bytes;
mod tree;

use self::beside::ReferenceTree;
pub(crate) use self::bytes::mount_seq;
pub(crate) use self::tree::mount_tree;
use super::{Spent, spend};
use crate::BenchOptions;
use crate::report::BenchReport;
use crate::stopwatch::Stopwatch;
use crate::target::BenchTarget;

/// Bytes of a small file.
const FILE_BYTES: usize = 1024;
/// Threads of the crowd.
const CROWD: usize = 8;

/// One round of calls by some threads: calls a second of each kind, in the order of [`CallNames`].
struct MountFigures {
    create: f64,
    stat: f64,
    read: f64,
    rename: f64,
    unlink: f64,
}

pub(crate) fn mount(options: &BenchOptions) -> Result<BenchReport> {
    let files = options.scaled(options.ops, 20_000) as usize;
    let target = BenchTarget::start(options)?;
    let client = target.client()?;
    let directory = tempfile::Builder::new().prefix("frieze-bench-mount-").tempdir()?;
    let mounted = BenchMount::of(&target, directory.path())?;
    let beside = ReferenceTree::of(options)?;
    let beside_alone = calls(beside.path(), 1, files)?;
    let beside_crowd = calls(beside.path(), CROWD, files)?;
    let alone = calls(&mounted.path, 1, files)?;
    let mut crowd = None;
    let spent: Spent = spend(&target, &client, || {
        crowd = Some(calls(&mounted.path, CROWD, files)?);
        Ok(())
    })?;
    let crowd = crowd.context("the load did not run")?;
    let each = crowd.named(EIGHT).chain(alone.named(ONE));
    let each = each.chain(beside_crowd.named(BESIDE_EIGHT)).chain(beside_alone.named(BESIDE_ONE));
    Ok(BenchReport {
        scenario: "mount",
        value: crowd.create,
        unit: "files/s made, written and closed by 8",
        ceiling: beside_crowd.create,
        ceiling_name: beside.name,
        cpu_client_s: spent.client_s * 1000.0 / files as f64,
        cpu_server_s: spent.server_s * 1000.0 / files as f64,
        cpu_per: "1,000 files made, looked at 10 times, read, moved and removed",
        server_peak_mib: spent.after.peak_mib,
        more: each.map(|(name, value)| (name, value, "calls/s")).collect(),
    })
}

type CallNames = [&'static str; 5];
const ONE: CallNames = ["create_1", "stat_1", "open_read_close_1", "rename_1", "unlink_1"];
const EIGHT: CallNames = ["create_8", "stat_8", "open_read_close_8", "rename_8", "unlink_8"];
const BESIDE_ONE: CallNames =
    ["beside_create_1", "beside_stat_1", "beside_open_read_close_1", "beside_rename_1", "beside_unlink_1"];
const BESIDE_EIGHT: CallNames =
    ["beside_create_8", "beside_stat_8", "beside_open_read_close_8", "beside_rename_8", "beside_unlink_8"];

impl MountFigures {
    fn named(&self, names: CallNames) -> impl Iterator<Item = (&'static str, f64)> {
        names.into_iter().zip([self.create, self.stat, self.read, self.rename, self.unlink])
    }
}

/// `files` small files in all, a directory for each thread.
fn calls(root: &Path, threads: usize, files: usize) -> Result<MountFigures> {
    let each = (files / threads).max(1);
    let directory = |thread: usize| root.join(format!("{threads}-{thread}"));
    for thread in 0..threads {
        fs::create_dir(directory(thread))?;
    }
    let path = |thread: usize, file: usize| directory(thread).join(format!("f{file}"));
    let moved = |thread: usize, file: usize| directory(thread).join(format!("g{file}"));
    let create = together(threads, each, |thread, file| {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path(thread, file))?;
        Ok(file.write_all(&[b'x'; FILE_BYTES])?)
    })?;
    // A working set that programs look at again and again.
    let looked_at = each.min(1000);
    let stat = together(threads, each * 10, |thread, file| {
        fs::metadata(path(thread, file % looked_at))?;
        Ok(())
    })?;
    let read = together(threads, each, |thread, file| {
        let mut content = [0; FILE_BYTES];
        Ok(File::open(path(thread, file))?.read_exact(&mut content)?)
    })?;
    let rename = together(threads, each, |thread, file| Ok(fs::rename(path(thread, file), moved(thread, file))?))?;
    let unlink = together(threads, each, |thread, file| Ok(fs::remove_file(moved(thread, file))?))?;
    Ok(MountFigures { create, stat, read, rename, unlink })
}

/// Calls a second, all threads together.
fn together(threads: usize, each: usize, call: impl Fn(usize, usize) -> Result<()> + Sync) -> Result<f64> {
    let watch = Stopwatch::start();
    std::thread::scope(|scope| {
        let call = &call;
        let running: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || (0..each).try_for_each(|number| call(thread, number))))
            .collect();
        running.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => done,
            Err(_) => bail!("a thread of the load panicked"),
        })
    })?;
    Ok((threads * each) as f64 / watch.seconds())
}

/// A mount by a process of its own: this program with `mount`.
pub(super) struct BenchMount {
    pub(super) path: PathBuf,
    process: Child,
}

impl BenchMount {
    pub(super) fn of(target: &BenchTarget, path: &Path) -> Result<BenchMount> {
        BenchMount::with(target, path, &[])
    }

    /// The same with more options.
    pub(super) fn with(target: &BenchTarget, path: &Path, options: &[&str]) -> Result<BenchMount> {
        let program = std::env::current_exe().context("cannot find this program to mount with it")?;
        let mut process = Command::new(program)
            .args(["--server", target.address(), "mount", "--foreground"])
            .args(options)
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a mount")?;
        let mut lines = BufReader::new(process.stdout.take().context("the mount has no output")?).lines();
        if lines.next().transpose()?.is_none() {
            bail!("the mount ended before it was ready: {}", process.wait()?);
        }
        Ok(BenchMount { path: path.to_owned(), process })
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for BenchMount {
    fn drop(&mut self) {
        beside::unmount(&self.path, &mut self.process);
    }
}
