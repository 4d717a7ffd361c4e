//! One run of the command: the connection made when first needed, its output to standard output and standard error, and
//! whether anything failed.

use std::cell::OnceCell;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use frieze_base::Reason;
use frieze_client::{
    Client, Fs, Gateway, Key, Options, PrivateFile, PrivateFileError, Recorder, ServerAddr, fabric_named,
};
use serde_json::Value;

use crate::args::{CommonArgs, DurabilityArg};
use crate::config::{self, Config};
use crate::failure::{self, OutputClosed, ReportedError, UsageError};
use crate::format::{UserNames, exact};
use crate::path::FsPath;
use crate::progress::ProgressLine;
use crate::rings::Recording;

/// One run of one subcommand.
#[derive(Debug)]
pub(crate) struct CommandRun {
    /// The subcommand, as failures name it.
    command: &'static str,
    /// Options of every command.
    pub(crate) common: CommonArgs,
    /// Names of users and groups.
    pub(crate) names: UserNames,
    /// Notes about the instant that were printed already.
    pub(crate) told: PrintedNotes,
    out: BufWriter<Stdout>,
    client: Option<Client>,
    progress: Option<ProgressLine>,
    failed: bool,
    recording: OnceCell<Recording>,
}

/// Notes that are printed once a run, not once a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PrintedNotes {
    /// The instant used.
    pub(crate) instant: bool,
    /// That it lies inside a gap.
    pub(crate) gap: bool,
    /// That the answering server does not know later declarations.
    pub(crate) unvouched: bool,
}

impl CommandRun {
    /// A run that has done nothing yet.
    pub(crate) fn new(command: &'static str, common: CommonArgs) -> CommandRun {
        CommandRun {
            command,
            common,
            names: UserNames::default(),
            told: PrintedNotes::default(),
            out: BufWriter::new(io::stdout()),
            client: None,
            progress: None,
            failed: false,
            recording: OnceCell::new(),
        }
    }

    /// The recorder of this run's calls, begun when first needed; `None` if they are not to be recorded.
    ///
    /// # Errors
    /// Why they cannot be.
    pub(crate) fn recorder(&self) -> Result<Option<Recorder>> {
        if self.recording.get().is_none() {
            // A run has one thread.
            let _is_first = self.recording.set(Recording::begin(&self.common, self.command)?);
        }
        Ok(self.recording.get().and_then(|recording| recording.recorder.clone()))
    }

    /// The connection to the server, made at the first call.
    ///
    /// # Errors
    /// If there is no server, or it does not accept the caller. The words name the address.
    pub(crate) fn client(&mut self) -> Result<&Client> {
        if self.client.is_none() {
            self.client = Some(Client::connect(self.options()?)?);
        }
        Ok(self.client.as_ref().expect("it was just made"))
    }

    /// The file system of now.
    ///
    /// # Errors
    /// As [`CommandRun::client`].
    pub(crate) fn fs(&mut self) -> Result<Fs> {
        Ok(self.client()?.fs())
    }

    /// How a client of this run connects.
    ///
    /// # Errors
    /// [`UsageError`] if an address, the key file or the file of the client's settings cannot be read as one.
    pub(crate) fn options(&self) -> Result<Options> {
        Ok(Options { trace: self.recorder()?, ..self.options_unrecorded()? })
    }

    /// As [`CommandRun::options`], for calls that are no part of any load.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn options_unrecorded(&self) -> Result<Options> {
        let lacks_some = !self.common.server_told || self.common.key.is_none();
        let told = if lacks_some { config::load()? } else { Config::default() };
        let typed = Some(&self.common.server);
        let server = if self.common.server_told { typed } else { told.server.as_ref().or(typed) };
        let servers = ServerAddr::parse_list(server.map_or("", String::as_str));
        let mut servers = servers.map_err(|error| UsageError(format!("--server {error}")))?;
        let key = match self.common.key.as_ref().or(told.key.as_ref()) {
            None => None,
            Some(file) => {
                let secret = match PrivateFile::read_secret(file) {
                    Err(error @ PrivateFileError::Open { .. }) => {
                        return Err(UsageError(format!("--key: {error}")).into());
                    }
                    read => read.with_context(|| format!("--key {}", file.display()))?,
                };
                Some(key_of(&secret.text).map_err(|words| UsageError(format!("--key {}: {words}", file.display())))?)
            }
        };
        Ok(Options {
            server: servers.remove(0),
            others: servers,
            prefers_led: !matches!(self.command, "status" | "top"),
            durability: self.common.durability.into(),
            key,
            timeout: Duration::from_secs(self.common.timeout.into()),
            // It lives long and asks often.
            prefers_socket: self.command == "mount",
            keeps: matches!(self.command, "mount" | "run"),
            gateway: if self.command == "mount" { Gateway::Mount } else { Gateway::Command },
            fabric: Arc::new(fabric_named(
                self.common.fabric.as_deref().unwrap_or_default(),
                self.common.fabric_address.clone(),
            )),
            ..Options::default()
        })
    }

    /// True if items are printed as JSON.
    pub(crate) fn json(&self) -> bool {
        self.common.json
    }

    /// Prints one item: as JSON, or as the line of `text`.
    ///
    /// # Errors
    /// If standard output fails; [`OutputClosed`] if its reader is gone.
    pub(crate) fn item(&mut self, json: impl FnOnce() -> Value, text: impl FnOnce() -> Option<String>) -> Result<()> {
        if self.common.json {
            return self.print_json(json());
        }
        match text() {
            Some(line) => self.print(&line),
            None => Ok(()),
        }
    }

    /// Prints a line of JSON; numbers that many readers of JSON cannot hold are strings in it ([`exact`]).
    ///
    /// # Errors
    /// If standard output fails; [`OutputClosed`] if its reader is gone.
    pub(crate) fn print_json(&mut self, line: impl Into<Value>) -> Result<()> {
        self.print(&exact(line.into()).to_string())
    }

    /// Prints a line to standard output.
    ///
    /// # Errors
    /// If standard output fails; [`OutputClosed`] if its reader is gone.
    pub(crate) fn print(&mut self, line: &str) -> Result<()> {
        self.bytes(line.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Prints a name; `null`: as it is, with a zero byte behind it, for `xargs -0`.
    ///
    /// # Errors
    /// As [`CommandRun::bytes`].
    pub(crate) fn name(&mut self, name: &[u8], null: bool) -> Result<()> {
        if null { self.bytes(&[name, b"\0"].concat()) } else { self.print(&crate::format::printable(name)) }
    }

    /// Writes bytes to standard output as they are.
    ///
    /// # Errors
    /// If standard output fails; [`OutputClosed`] if its reader is gone.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(output_failed)
    }

    /// Passes buffered output on.
    ///
    /// # Errors
    /// If standard output fails; [`OutputClosed`] if its reader is gone.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(output_failed)
    }

    /// Prints a line on standard error: `frieze: ls: TEXT`.
    pub(crate) fn say(&mut self, text: &str) {
        let line = format!("frieze: {}: {text}\n", self.command);
        // In the order of events where both go to one terminal. If either is closed there is no receiver.
        let write = |out: &mut BufWriter<Stdout>| {
            let _ = out.flush();
            let _ = io::stderr().write_all(line.as_bytes());
        };
        match &self.progress {
            Some(progress) => progress.aside(|| write(&mut self.out)),
            None => write(&mut self.out),
        }
    }

    /// Prints a line on standard error if `--verbose` is given.
    pub(crate) fn say_more(&mut self, text: &str) {
        if self.common.verbose {
            self.say(text);
        }
    }

    /// Reports the failure of one item, after which the command continues with the next: exit status 1 at the end.
    ///
    /// # Errors
    /// `error` itself, if continuing is pointless: the reader of the output is gone, or the server is unreachable.
    pub(crate) fn report(&mut self, subject: &str, error: Error) -> Result<()> {
        if error.is::<OutputClosed>() || error.is::<UsageError>() || failure::is(&error, Reason::Unavailable) {
            return Err(error);
        }
        self.failed = true;
        // A failure below a tree was reported where it happened.
        if !error.is::<ReportedError>() {
            self.say(&failure::line(subject, &error));
        }
        Ok(())
    }

    /// As [`CommandRun::report`], for the only item of the command: returns the error to return.
    pub(crate) fn reported(&mut self, subject: &FsPath, error: Error) -> Error {
        match self.report(&subject.to_string(), error) {
            Ok(()) => ReportedError.into(),
            Err(error) => error,
        }
    }

    /// The end: everything printed.
    ///
    /// # Errors
    /// [`ReportedError`] if anything failed on the way.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.progress = None;
        self.flush()?;
        if self.client.as_ref().is_some_and(|client| client.met_loss()) {
            self.say(
                "warning: acknowledged writes may be missing from the bytes read: a chain resumed from a stale copy \
                 ('frieze cluster status' names it)",
            );
        }
        // What the connection still does is in the trace.
        self.client = None;
        if let Some(recording) = self.recording.take() {
            recording.finish();
        }
        match self.failed {
            true => Err(ReportedError.into()),
            false => Ok(()),
        }
    }

    /// Shows progress from now on; without a terminal or with `--quiet` it stays hidden.
    pub(crate) fn show(&mut self, make: impl FnOnce(bool) -> ProgressLine) {
        self.progress = Some(make(!self.common.quiet && io::stderr().is_terminal()));
    }

    /// True if progress may be seen.
    pub(crate) fn is_shown(&self) -> bool {
        self.progress.as_ref().is_some_and(ProgressLine::is_wanted)
    }

    /// Updates the progress of this run, if any is shown.
    pub(crate) fn progress(&mut self, tell: impl FnOnce(&mut ProgressLine)) {
        if let Some(progress) = &mut self.progress {
            tell(progress);
        }
    }
}

impl From<DurabilityArg> for frieze_client::Durability {
    fn from(durability: DurabilityArg) -> frieze_client::Durability {
        match durability {
            DurabilityArg::Async => frieze_client::Durability::Async,
            DurabilityArg::Sync => frieze_client::Durability::Sync,
        }
    }
}

/// The key in a line `NAME:SECRET`, the secret as the server's settings have it.
fn key_of(text: &str) -> Result<Key, String> {
    let (name, secret) = text.trim().split_once(':').ok_or("expected one line NAME:SECRET")?;
    Key::new(name, secret).map_err(|_| {
        "expected NAME:SECRET: a name of letters, digits, . _ - and a secret of at least 16 characters".to_owned()
    })
}

fn output_failed(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => OutputClosed.into(),
        _ => Error::new(error).context("standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_holds_the_secret_as_the_settings_of_the_server_have_it() {
        let key = key_of("laptop:correct horse battery: staple\n").unwrap();
        assert_eq!(key, Key::new("laptop", "correct horse battery: staple").unwrap());
        for text in ["", "laptop", "laptop:short", "a b:correct horse battery staple"] {
            assert!(key_of(text).unwrap_err().contains("NAME:SECRET"), "{text}");
        }
    }
}
