//! The `frieze` command: a server, a mount, and a command for each thing one does with files, now and in the past.
//!
//! Guarantees: an exit status as `--help` says; each failure is one line on standard error; with `--json` standard
//! output is JSON and nothing else; if the reader of the output is gone, the command ends in silence. Leaves to others:
//! everything about the file system (`client`, `node`, `fuse`) and about loads (`bench`).
//!
//! A subcommand is a function of [`run::CommandRun`] and its arguments from [`args`]. It parses every path and instant
//! first, so that a wrong command line does nothing; then it goes through its paths, reporting failures one by one.

// The JSON of `status` has more fields than the default depth of the macro that writes it.
#![recursion_limit = "256"]

mod advise;
mod allocator;
mod analyze;
mod args;
mod attributes;
mod bench;
mod change;
mod cluster;
mod config;
mod console;
mod copy;
mod device;
mod entry;
mod export;
mod failure;
mod forget;
mod format;
mod fsck;
mod history;
mod list;
mod load;
mod machine;
mod manual;
mod mode;
mod mount;
mod notify;
mod past;
mod path;
mod progress;
mod quota;
mod retention;
mod rings;
mod run;
mod scrub;
mod serve;
mod server;
mod sharing;
mod spans;
mod survivor;
mod timeline;
mod top;
mod trace;
mod trace_dirs;
mod watch;
mod what_if;

#[cfg(test)]
mod help_tests;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Error, Result};
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command};
use crate::failure::{
    CheckFailed, ChildFailed, ClusterEnded, EXIT_INTERRUPTED, OutputClosed, ReportedError, ServerRemoved, UsageError,
    WorkInterrupted,
};
use crate::run::CommandRun;
use crate::spans::SpanExport;

/// Something failed.
const EXIT_FAILURE: u8 = 1;
/// The command line is wrong, and clap ends with the same; or the check could not run.
const EXIT_USAGE: u8 = 2;
/// A server was removed from its cluster: to start it again is of no use.
const EXIT_REMOVED: u8 = 3;
/// The cluster of a server has ended: to start it again on the same directory is of no use.
const EXIT_ENDED: u8 = 4;

#[expect(unsafe_code, reason = "libfabric reads its settings from the environment, which only one thread may change")]
fn main() -> ExitCode {
    // SAFETY: no other thread runs yet.
    unsafe { frieze_fabric::prepare_environment() };
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        // Help goes to standard output with 0, errors to standard error with 2.
        Err(error) => error.exit(),
    };
    let name = cli.command.name();
    log_to_stderr(match cli.command {
        Command::Serve(_) => "info",
        // A line of the log would stand in the middle of the screen, which says itself that a server is away.
        Command::Top(_) => "off",
        _ => "warn",
    });
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(exit_status(name, &error)),
    }
}

fn run(cli: Cli) -> Result<()> {
    let export = SpanExport::begin(&cli.common, cli.command.name())?;
    let mut run = CommandRun::new(cli.command.name(), cli.common);
    let done = match &cli.command {
        Command::Serve(args) => serve::serve(&mut run, args),
        Command::Mount(args) => mount::mount(&mut run, args),
        Command::Umount(args) => mount::umount(&mut run, args),
        Command::Ls(args) if args.deleted => timeline::ls_deleted(&mut run, args),
        Command::Ls(args) => list::ls(&mut run, args),
        Command::Stat(args) => list::stat(&mut run, args),
        Command::Cat(args) => list::cat(&mut run, args),
        Command::Put(args) => copy::put(&mut run, args),
        Command::Get(args) => copy::get(&mut run, args),
        Command::Cp(args) => copy::cp(&mut run, args),
        Command::Mv(args) => change::mv(&mut run, args),
        Command::Ln(args) => change::ln(&mut run, args),
        Command::Rm(args) => change::rm(&mut run, args),
        Command::Mkdir(args) => change::mkdir(&mut run, args),
        Command::Rmdir(args) => change::rmdir(&mut run, args),
        Command::Chmod(args) => attributes::chmod(&mut run, args),
        Command::Chown(args) => attributes::chown(&mut run, args),
        Command::Touch(args) => attributes::touch(&mut run, args),
        Command::Df(args) => quota::df(&mut run, args),
        Command::Du(args) if args.history => timeline::du_history(&mut run, args),
        Command::Du(args) => list::du(&mut run, args),
        Command::Quota(args) => quota::quota(&mut run, args),
        Command::Clone(args) => sharing::clone(&mut run, args),
        Command::Restore(args) => sharing::restore(&mut run, args),
        Command::Undo(args) => sharing::undo(&mut run, args),
        Command::Forget(args) => forget::forget(&mut run, args),
        Command::Retention(command) => retention::retention(&mut run, command),
        Command::Log(args) => timeline::log(&mut run, args),
        Command::Watch(args) => watch::watch(&mut run, args),
        Command::Diff(args) => timeline::diff(&mut run, args),
        Command::Find(args) => timeline::find(&mut run, args),
        Command::Sessions(args) => timeline::sessions(&mut run, args),
        Command::Run(args) => timeline::run_with(&mut run, args),
        Command::Now(args) => history::now(&mut run, args),
        Command::Snapshot(command) => history::snapshot(&mut run, command),
        Command::Time(command) => server::time(&mut run, command),
        Command::Sync(args) => server::sync(&mut run, args),
        Command::Status(_) => server::status(&mut run),
        Command::Top(args) => top::top(&mut run, args),
        Command::Trace(command) => trace::trace(&mut run, command),
        Command::WhatIf(args) => what_if::what_if(&mut run, args),
        Command::Load(command) => load::load(&mut run, command),
        Command::Analyze(args) => analyze::analyze(&mut run, args),
        Command::Advise(args) => advise::advise(&mut run, args),
        Command::Fsck(args) => fsck::fsck(&mut run, args),
        Command::Export(args) => export::export(&mut run, args),
        Command::Scrub(args) => scrub::scrub(&mut run, args),
        Command::Cluster(args) => cluster::cluster(&mut run, args),
        Command::Console(command) => console::console(&mut run, command),
        Command::Bench(args) => bench::bench(&mut run, args),
        Command::Completion(args) => manual::completion(&mut run, args),
        Command::Man(args) => manual::man(&mut run, args),
    };
    let done = match done {
        Ok(()) => run.finish(),
        // Output from before the failure is still wanted; the first failure is reported.
        Err(error) => {
            let _ = run.finish();
            Err(error)
        }
    };
    export.finish(done.is_err());
    done
}

/// Prints `error` unless it was reported, and returns its exit status.
fn exit_status(command: &str, error: &Error) -> u8 {
    if error.is::<OutputClosed>() {
        return 0;
    }
    if error.is::<ReportedError>() {
        return EXIT_FAILURE;
    }
    if let Some(ChildFailed(status)) = error.downcast_ref::<ChildFailed>() {
        return *status;
    }
    let usage = error.is::<UsageError>();
    let hint = if usage { format!("\nTry 'frieze {command} --help'.") } else { String::new() };
    // If standard error is closed there is no receiver.
    let _ = writeln!(io::stderr(), "frieze: {command}: {}{hint}", failure::words(error));
    match () {
        () if usage || error.is::<CheckFailed>() => EXIT_USAGE,
        () if error.is::<ServerRemoved>() => EXIT_REMOVED,
        () if error.is::<ClusterEnded>() => EXIT_ENDED,
        () if error.is::<WorkInterrupted>() => EXIT_INTERRUPTED,
        () => EXIT_FAILURE,
    }
}

impl Command {
    /// The subcommand as it is typed.
    fn name(&self) -> &'static str {
        match self {
            Command::Serve(_) => "serve",
            Command::Mount(_) => "mount",
            Command::Umount(_) => "umount",
            Command::Ls(_) => "ls",
            Command::Stat(_) => "stat",
            Command::Cat(_) => "cat",
            Command::Put(_) => "put",
            Command::Get(_) => "get",
            Command::Cp(_) => "cp",
            Command::Mv(_) => "mv",
            Command::Ln(_) => "ln",
            Command::Rm(_) => "rm",
            Command::Mkdir(_) => "mkdir",
            Command::Rmdir(_) => "rmdir",
            Command::Chmod(_) => "chmod",
            Command::Chown(_) => "chown",
            Command::Touch(_) => "touch",
            Command::Du(_) => "du",
            Command::Df(_) => "df",
            Command::Quota(_) => "quota",
            Command::Log(_) => "log",
            Command::Watch(_) => "watch",
            Command::Clone(_) => "clone",
            Command::Restore(_) => "restore",
            Command::Undo(_) => "undo",
            Command::Forget(_) => "forget",
            Command::Retention(_) => "retention",
            Command::Diff(_) => "diff",
            Command::Find(_) => "find",
            Command::Sessions(_) => "sessions",
            Command::Run(_) => "run",
            Command::Now(_) => "now",
            Command::Snapshot(_) => "snapshot",
            Command::Time(_) => "time",
            Command::Sync(_) => "sync",
            Command::Status(_) => "status",
            Command::Top(_) => "top",
            Command::Trace(_) => "trace",
            Command::WhatIf(_) => "what-if",
            Command::Load(_) => "load",
            Command::Analyze(_) => "analyze",
            Command::Advise(_) => "advise",
            Command::Console(_) => "console",
            Command::Fsck(_) => "fsck",
            Command::Export(_) => "export",
            Command::Scrub(_) => "scrub",
            Command::Cluster(_) => "cluster",
            Command::Bench(_) => "bench",
            Command::Completion(_) => "completion",
            Command::Man(_) => "man",
        }
    }
}

fn log_to_stderr(default: &str) {
    let asked = std::env::var("FRIEZE_LOG").ok().filter(|text| !text.is_empty());
    let filter = match asked.as_deref().map(EnvFilter::try_new) {
        Some(Ok(filter)) => filter,
        Some(Err(error)) => {
            let _ = writeln!(io::stderr(), "frieze: FRIEZE_LOG is no filter of log lines ({error}): using {default}");
            EnvFilter::new(default)
        }
        // A command that meets a loss reports it itself.
        None if default == "warn" => EnvFilter::new(format!("warn,{}=off", frieze_client::LOSS_LOG)),
        None => EnvFilter::new(default),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .log_internal_errors(false)
        .init();
}

/// The whole command line, as `--help` and the tests of it see it.
#[cfg(test)]
fn command_line() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}
