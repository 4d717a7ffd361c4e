//! `run`: a command on a mount and a session of its own.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;

use anyhow::{Context, Result};
use frieze_client::{Client, Options, SessionId};
use frieze_fuse::{MountOptions, Unmount};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::args::RunWithArgs;
use crate::failure::ChildFailed;
use crate::format;
use crate::mount::{is_frieze_mount, is_mounted};
use crate::run::CommandRun;
use crate::serve::stop_signals;

/// Where the command finds the mount.
const VARIABLE: &str = "FRIEZE_MOUNT";
/// Where the command finds the number of its session.
const SESSION_VARIABLE: &str = "FRIEZE_SESSION";

/// `frieze run`.
pub(crate) fn run_with(run: &mut CommandRun, args: &RunWithArgs) -> Result<()> {
    // Before any thread is made: each inherits that these are for us to wait for, and sees the same mounts.
    let signals = stop_signals();
    let before = SigSet::thread_get_mask()?;
    signals.thread_block()?;
    if let Err(why) = own_mounts() {
        run.say_more(&format!("the mount is not private ({why}): the directory it is at is"));
    }
    let place = MountPlace::make(args.at_dir.as_deref())?;
    let line = command_line(&args.command);
    let described = args.name.as_ref().map_or(line.clone(), |name| name.describe(&line));
    let options = Options { command: described, ..run.options()? };
    let client = Client::connect(options)?;
    let session = client.session()?;
    let mounted = frieze_fuse::mount(client.clone(), &place.path, MountOptions::default())?;
    let directory = same_place(&place.path);
    if directory.is_none() && mounted_here().is_some() {
        run.say(&format!(
            "the present directory is on another mount: what the command does there is not in the session; \
             ${VARIABLE} leads to the session's own"
        ));
    }
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).env(VARIABLE, &place.path).env(SESSION_VARIABLE, session.to_string());
    if let Some(directory) = directory {
        command.env("PWD", &directory).current_dir(directory);
    }
    // A command begins with the signals that this one began with: one that is blocked would be so for it and all that
    // it starts.
    before.thread_set_mask()?;
    let child = command.spawn();
    signals.thread_block()?;
    let child = match child.with_context(|| format!("cannot run {}", format::printable(args.command[0].as_bytes()))) {
        Ok(child) => child,
        Err(error) => {
            mounted.unmount()?;
            client.close()?;
            return Err(error);
        }
    };
    let ended = wait(child, signals)?;
    let unmounted = mounted.unmounter().unmount()?;
    mounted.join()?;
    if unmounted == Unmount::Detached {
        run.say("something that the command started still uses the mount: it is cut off from it now");
    }
    client.close()?;
    print_session(run, args, session, ended, &place.path)?;
    drop(place);
    match status_of(ended) {
        0 => Ok(()),
        status => Err(ChildFailed(status).into()),
    }
}

/// Where in the mount at `place` the present directory lies, if it is one of the same file system.
fn same_place(place: &Path) -> Option<PathBuf> {
    let (mountpoint, here) = mounted_here()?;
    let there = place.join(here.strip_prefix(mountpoint).ok()?);
    let (one, other) = (fs::metadata(&here).ok()?, fs::metadata(&there).ok()?);
    // Of another file system, or of the past, it would be another directory, or not as it is now.
    let is_same = one.ino() == other.ino() && (one.ctime(), one.ctime_nsec()) == (other.ctime(), other.ctime_nsec());
    is_same.then_some(there)
}

/// The mount of frieze that the present directory lies on, and the directory.
fn mounted_here() -> Option<(PathBuf, PathBuf)> {
    let here = std::env::current_dir().ok()?;
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mountpoint = here.ancestors().find(|place| is_mounted(&table, place))?;
    is_frieze_mount(&table, mountpoint).then(|| (mountpoint.to_path_buf(), here.clone()))
}

/// Gives this process a table of mounts of its own: only its children see its mounts.
fn own_mounts() -> nix::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
}

/// A directory to mount on; one made for it goes again.
struct MountPlace {
    path: PathBuf,
    is_ours: bool,
}

impl MountPlace {
    fn make(asked: Option<&Path>) -> Result<MountPlace> {
        if let Some(asked) = asked {
            return Ok(MountPlace { path: std::path::absolute(asked)?, is_ours: false });
        }
        let base = std::env::temp_dir();
        let mut number = 0;
        loop {
            let path = base.join(format!("frieze-run-{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(MountPlace { path, is_ours: true }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
                Err(error) => return Err(error).with_context(|| format::local(&path)),
            }
        }
    }
}

impl Drop for MountPlace {
    fn drop(&mut self) {
        if self.is_ours {
            // If something is still mounted there it stays, empty for every other process.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Waits for the command. A signal that asks this process to end is passed on; the mount goes after the command.
fn wait(mut child: Child, signals: SigSet) -> Result<ExitStatus> {
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while let Ok(signal) = signals.wait() {
            // A terminal sends SIGINT to the command itself.
            if signal == Signal::SIGTERM {
                let _ = kill(pid, signal);
            }
        }
    })?;
    Ok(child.wait()?)
}

fn status_of(ended: ExitStatus) -> u8 {
    let signal = ended.signal().map(|signal| 128 + signal);
    u8::try_from(ended.code().or(signal).unwrap_or(1)).unwrap_or(1)
}

fn print_session(
    run: &mut CommandRun,
    args: &RunWithArgs,
    session: SessionId,
    ended: ExitStatus,
    place: &Path,
) -> Result<()> {
    if run.json() {
        let (status, name) = (status_of(ended), args.name.as_ref().map(ToString::to_string));
        let item = json!({ "session": session.0, "name": name, "status": status, "mountpoint": format::local(place) });
        return run.print_json(item);
    }
    run.say(&format!("session {session} ('frieze undo --session {session}' takes back what it changed)"));
    Ok(())
}

fn command_line(words: &[OsString]) -> String {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    words.join(" ")
}
