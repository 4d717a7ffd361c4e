//! `mount` and `umount`.
//!
//! `mount -o remount` changes how the kernel takes programs and devices of a mount, and asks nothing of the process
//! behind it.
//!
//! A mount goes to the background by running itself again: the second process mounts, prints a line on its standard
//! output, which the first one reads and passes on, and leaves the terminal only then. Errors before that go to the
//! standard error that both share, so they reach the user, and the exit status is that of the second.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use anyhow::{Context, Error, Result};
use clap::ValueEnum;
use frieze_fuse::MountOptions;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags};
use serde_json::json;

use crate::args::{CommonArgs, MountArgs, MountFlag, UmountArgs};
use crate::failure::{ChildFailed, ReportedError};
use crate::format;
use crate::notify;
use crate::run::CommandRun;
use crate::serve::stop_signals;

/// `frieze mount`.
pub(crate) fn mount(run: &mut CommandRun, args: &MountArgs) -> Result<()> {
    let mountpoint = std::path::absolute(&args.mountpoint)?;
    if args.options.contains(&MountFlag::Remount) {
        return remount(run, args);
    }
    if args.foreground { in_foreground(run, args, mountpoint) } else { in_background(run, args, &mountpoint) }
}

fn in_foreground(run: &mut CommandRun, args: &MountArgs, mountpoint: PathBuf) -> Result<()> {
    // Before any thread is made: each inherits that these are for us to wait for.
    let signals = stop_signals();
    signals.thread_block()?;

    let log = args.log.as_deref().filter(|_| args.detach).map(open_log).transpose()?;
    let (at, user_at) = run.instants(&args.past)?;
    let allow_other = args.allow_other.then_some(true);
    let suid = allows(&args.options, MountFlag::Suid, MountFlag::Nosuid).unwrap_or(false);
    let dev = allows(&args.options, MountFlag::Dev, MountFlag::Nodev).unwrap_or(false);
    if (suid || dev) && !nix::unistd::geteuid().is_root() {
        return Err(Error::msg("-o suid and -o dev are for root"));
    }
    let read_only = allows(&args.options, MountFlag::Ro, MountFlag::Rw).unwrap_or(false);
    let noexec = allows(&args.options, MountFlag::Noexec, MountFlag::Exec).unwrap_or(false);
    let nearest = args.options.contains(&MountFlag::Nearest);
    let options =
        MountOptions { at, user_at, nearest, allow_other, suid, dev, read_only, noexec, ..MountOptions::default() };
    let client = run.client()?.clone();
    // Of several the one that answered.
    let server = client.options().server.to_string();
    let ending = client.clone();
    let mounted = frieze_fuse::mount(client, &mountpoint, options)?;

    let shown = format::local(&mountpoint);
    let announced = run
        .item(
            || {
                json!({
                    "mounted": true,
                    "mountpoint": shown,
                    "server": server,
                    "pid": std::process::id(),
                    "at": at.map(|at| at.to_string()),
                    "at_time": at.map(format::time_of),
                })
            },
            || Some(format!("mounted {shown}")),
        )
        .and_then(|()| run.flush());
    if let Err(error) = announced {
        // The process that started the mount has ended.
        mounted.unmount()?;
        return Err(error);
    }
    notify::ready(&format!("mounted {shown}"));
    if args.detach {
        leave_terminal(log)?;
    }
    let unmounter = mounted.unmounter();
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if let Ok(signal) = signals.wait() {
            tracing::info!(signal = signal.as_str(), "unmounting");
            notify::stopping("unmounting");
            // Open files are closed one after the other, and perhaps no server answers any more.
            ending.end_within(ending.options().timeout);
            if let Err(error) = unmounter.unmount() {
                tracing::error!(%error, "cannot unmount");
            }
        }
    })?;
    Ok(mounted.join()?)
}

/// The last of two opposite words.
fn allows(words: &[MountFlag], yes: MountFlag, no: MountFlag) -> Option<bool> {
    words.iter().rfind(|word| **word == yes || **word == no).map(|word| *word == yes)
}

/// Changes the flags of the mount that is there.
fn remount(run: &mut CommandRun, args: &MountArgs) -> Result<()> {
    let mountpoint = mounted_path(&args.mountpoint)?;
    let table = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    if !is_frieze_mount(&table, &mountpoint) {
        return Err(Error::msg("no frieze file system is mounted there"));
    }
    if args.options.contains(&MountFlag::Nearest) {
        return Err(Error::msg("-o nearest cannot be changed by -o remount: unmount, and mount again"));
    }
    let mut flags = flags_of(&table, &mountpoint);
    for (yes, no, flag) in [
        (MountFlag::Suid, MountFlag::Nosuid, MsFlags::MS_NOSUID),
        (MountFlag::Dev, MountFlag::Nodev, MsFlags::MS_NODEV),
        (MountFlag::Exec, MountFlag::Noexec, MsFlags::MS_NOEXEC),
        (MountFlag::Rw, MountFlag::Ro, MsFlags::MS_RDONLY),
    ] {
        if let Some(allows) = allows(&args.options, yes, no) {
            flags.set(flag, !allows);
        }
    }
    let none: Option<&str> = None;
    nix::mount::mount(none, &mountpoint, none, flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND, none)
        .map_err(io::Error::from)
        .with_context(|| format::local(&mountpoint))?;
    let shown = format::local(&mountpoint);
    run.item(|| json!({ "remounted": true, "mountpoint": shown }), || Some(format!("remounted {shown}")))
}

/// The flags of the topmost mount at `mountpoint`, from the table of mounts: a remount sets all of them.
fn flags_of(table: &str, mountpoint: &Path) -> MsFlags {
    let at =
        |line: &&str| line.split(' ').nth(4).is_some_and(|place| unescaped(place) == mountpoint.as_os_str().as_bytes());
    let words = table.lines().rfind(at).and_then(|line| line.split(' ').nth(5)).unwrap_or_default();
    let flag = |word: &str| match word {
        "ro" => MsFlags::MS_RDONLY,
        "nosuid" => MsFlags::MS_NOSUID,
        "nodev" => MsFlags::MS_NODEV,
        "noexec" => MsFlags::MS_NOEXEC,
        "noatime" => MsFlags::MS_NOATIME,
        "nodiratime" => MsFlags::MS_NODIRATIME,
        "relatime" => MsFlags::MS_RELATIME,
        _ => MsFlags::empty(),
    };
    words.split(',').map(flag).collect()
}

fn in_background(run: &mut CommandRun, args: &MountArgs, mountpoint: &Path) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program to run it again")?;
    let mut child = Command::new(program)
        .args(again(&run.common, args, mountpoint)?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run this program again")?;
    let stdout = child.stdout.take().expect("it was asked for as a pipe");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    if line.is_empty() {
        return Err(ended(child.wait()?));
    }
    run.print(line.trim_end())
}

fn ended(status: ExitStatus) -> Error {
    match status.code() {
        // It has printed why.
        Some(code @ 1..) => ChildFailed(code as u8).into(),
        _ => Error::msg(format!("the process of the mount ended before it mounted: {status}")),
    }
}

/// The command line of the second process.
fn again(common: &CommonArgs, args: &MountArgs, mountpoint: &Path) -> Result<Vec<OsString>> {
    let durability = common.durability.to_possible_value().expect("no variant is skipped");
    let timeout = common.timeout.to_string();
    let mut line: Vec<OsString> = ["mount", "--foreground", "--detach", "--durability"]
        .into_iter()
        .chain([durability.get_name(), "--timeout", &timeout])
        .map(OsString::from)
        .collect();
    let mut option = |name: &str, value: Option<OsString>| {
        if let Some(value) = value {
            line.extend([OsString::from(name), value]);
        }
    };
    option("--trace", common.trace_into.as_ref().map(std::path::absolute).transpose()?.map(PathBuf::into_os_string));
    option("--trace-max", Some(OsString::from(&common.trace_max)));
    option("--trace-ring", common.trace_ring.as_ref().map(OsString::from));
    // Else it finds where the server is as this process did.
    option("--server", common.server_told.then(|| OsString::from(&common.server)));
    // The working directory is left behind.
    option("--trace-dir", common.trace_dir.as_ref().map(std::path::absolute).transpose()?.map(PathBuf::into_os_string));
    option("--key", common.key.as_ref().map(std::path::absolute).transpose()?.map(PathBuf::into_os_string));
    option("--log", args.log.as_ref().map(std::path::absolute).transpose()?.map(PathBuf::into_os_string));
    option("--at", args.past.at.as_ref().map(OsString::from));
    option("--user-at", args.past.user_at.as_ref().map(OsString::from));
    for flag in &args.options {
        let value = flag.to_possible_value().expect("no variant is skipped");
        line.extend(["-o".into(), value.get_name().into()]);
    }
    for (name, given) in [
        ("--json", common.json),
        ("--verbose", common.verbose),
        ("--quiet", common.quiet),
        ("--nearest", args.past.nearest),
        ("--allow-other", args.allow_other),
    ] {
        if given {
            line.push(name.into());
        }
    }
    line.extend(["--".into(), mountpoint.into()]);
    Ok(line)
}

fn open_log(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(path).with_context(|| format!("--log {}", format::local(path)))
}

fn leave_terminal(log: Option<File>) -> Result<()> {
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    nix::unistd::setsid()?;
    std::env::set_current_dir("/")?;
    rustix::stdio::dup2_stdin(&nothing).map_err(io::Error::from)?;
    rustix::stdio::dup2_stdout(&nothing).map_err(io::Error::from)?;
    rustix::stdio::dup2_stderr(log.as_ref().unwrap_or(&nothing)).map_err(io::Error::from)?;
    Ok(())
}

/// `frieze umount`.
pub(crate) fn umount(run: &mut CommandRun, args: &UmountArgs) -> Result<()> {
    for typed in &args.mountpoints {
        let shown = format::local(typed);
        match unmount(typed, args.lazy) {
            Ok(()) => run.item(|| json!({ "unmounted": shown }), || None)?,
            Err(error) => run.report(&shown, error)?,
        }
    }
    Ok(())
}

fn unmount(typed: &Path, lazy: bool) -> Result<()> {
    let mountpoint = mounted_path(typed)?;
    let table = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    if !is_frieze_mount(&table, &mountpoint) {
        return Err(Error::msg("no frieze file system is mounted there"));
    }
    let flags = if lazy { MntFlags::MNT_DETACH } else { MntFlags::empty() };
    match nix::mount::umount2(&mountpoint, flags | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::EPERM) => by_helper(&mountpoint, lazy),
        Err(Errno::EBUSY) => Err(Error::msg("in use: close what is open in it, or use --lazy")),
        Err(errno) => Err(io::Error::from(errno).into()),
    }
}

/// The path as the kernel's table has it. The mountpoint itself is not accessed: a dead mount would not answer.
fn mounted_path(typed: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(typed)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Ok(path),
    }
}

/// Users other than root unmount through the helper of libfuse, which is set-uid.
fn by_helper(mountpoint: &Path, lazy: bool) -> Result<()> {
    let flag = if lazy { "-uz" } else { "-u" };
    for helper in ["fusermount3", "fusermount"] {
        match Command::new(helper).arg(flag).arg("--").arg(mountpoint).status() {
            Ok(status) if status.success() => return Ok(()),
            // The helper has printed why.
            Ok(_) => return Err(ReportedError.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context(helper),
        }
    }
    Err(Error::msg("operation not permitted, and there is no fusermount3 to ask: install fuse3, or be root"))
}

/// True if the table of mounts (proc(5), mountinfo) has any mount at `mountpoint`.
pub(crate) fn is_mounted(table: &str, mountpoint: &Path) -> bool {
    let mut places = table.lines().filter_map(|line| line.split(' ').nth(4));
    places.any(|place| unescaped(place) == mountpoint.as_os_str().as_bytes())
}

/// True if the table of mounts (proc(5), mountinfo) has a frieze mount at `mountpoint`, as the topmost one.
pub(crate) fn is_frieze_mount(table: &str, mountpoint: &Path) -> bool {
    let mut found = false;
    for line in table.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let Some(place) = left.split(' ').nth(4) else { continue };
        if unescaped(place) == mountpoint.as_os_str().as_bytes() {
            let mut fields = right.split(' ');
            let (kind, source) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
            found = kind == "fuse.frieze" || (kind.starts_with("fuse") && source.starts_with("frieze"));
        }
    }
    found
}

/// Blanks and backslashes stand in the table as three octal digits.
fn unescaped(field: &str) -> Vec<u8> {
    let bytes = field.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = field.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 4;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};

    const TABLE: &str = "\
36 35 98:0 / / rw,noatime shared:1 - ext4 /dev/sda1 rw
60 36 0:50 / /mnt/a\\040b rw,nosuid - fuse.frieze 127.0.0.1:7470 rw,user_id=0
61 36 0:51 / /mnt/other rw,nosuid - fuse.sshfs host: rw
62 36 0:52 / /mnt/c rw - fuse.frieze x rw
63 36 0:53 / /mnt/c rw - tmpfs tmpfs rw
";

    #[test]
    fn only_a_frieze_mount_on_top_is_unmounted() {
        assert!(is_frieze_mount(TABLE, Path::new("/mnt/a b")));
        assert!(!is_frieze_mount(TABLE, Path::new("/mnt/other")));
        assert!(!is_frieze_mount(TABLE, Path::new("/mnt/c")), "something else lies on top");
        assert!(!is_frieze_mount(TABLE, Path::new("/mnt")));
    }

    #[test]
    fn a_remount_begins_with_the_flags_that_the_mount_has() {
        let flags = |path: &str| flags_of(TABLE, Path::new(path));
        assert_eq!(flags("/mnt/a b"), MsFlags::MS_NOSUID);
        assert_eq!(flags("/mnt/c"), MsFlags::empty());
        assert_eq!(flags("/"), MsFlags::MS_NOATIME);
        let words = [MountFlag::Suid, MountFlag::Nodev, MountFlag::Nosuid];
        assert_eq!(allows(&words, MountFlag::Suid, MountFlag::Nosuid), Some(false));
        assert_eq!(allows(&words[..1], MountFlag::Dev, MountFlag::Nodev), None);
    }

    #[test]
    fn the_second_process_is_asked_for_the_same_mount() {
        let typed =
            ["frieze", "--server", "s:1", "mount", "-v", "--at", "5m-ago", "-osuid,dev", "--allow-other", "--", "-odd"];
        let cli = Cli::read(typed).unwrap();
        let Command::Mount(args) = &cli.command else { panic!("it is a mount") };
        let line = again(&cli.common, args, Path::new("/x/-odd")).unwrap();
        let second = Cli::read([OsString::from("frieze")].into_iter().chain(line)).unwrap();
        let Command::Mount(again) = &second.command else { panic!("it is a mount") };
        assert!(again.foreground && again.detach && again.allow_other && second.common.verbose);
        assert_eq!(again.options, [MountFlag::Suid, MountFlag::Dev]);
        assert_eq!((second.common.server.as_str(), again.past.at.as_deref()), ("s:1", Some("5m-ago")));
        assert_eq!(again.mountpoint, Path::new("/x/-odd"));
    }
}
