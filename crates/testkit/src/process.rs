//! Child processes of a test: started, watched, and ended by their own id.
//!
//! A child never outlives its test. What it wrote to standard error is in a file; a test that fails prints it.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A child process and the file of its standard error.
pub struct ChildProcess {
    child: Child,
    stdout: BufReader<ChildStdout>,
    log: PathBuf,
}

impl ChildProcess {
    /// Starts a process whose standard error is appended to `log`, and whose standard output is read by the test.
    pub fn start(mut command: Command, log: &Path) -> ChildProcess {
        let errors = OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        ChildProcess { child, stdout, log: log.to_owned() }
    }

    /// Waits for the next line of standard output; empty if the process has ended.
    pub fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// Waits for a line that begins so, which is the next one; returns its rest without the end of the line.
    #[track_caller]
    pub fn await_line(&mut self, prefix: &str) -> String {
        let line = self.next_line();
        let rest = line.strip_prefix(prefix).unwrap_or_else(|| panic!("{line:?} is not {prefix:?}: {}", self.log()));
        rest.trim_end().to_owned()
    }

    /// What the process has written to standard error, and others that had the same file.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// True if the process has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// The exit status if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Sends a signal and waits for the end; the exit status, none if the signal killed the process.
    pub fn end(&mut self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        self.wait().code()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // It may have ended, and then there is no process of this id to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = self.log();
        if std::thread::panicking() {
            eprintln!("{}:\n{log}", self.log.display());
        } else {
            assert!(!log.contains("panicked"), "a thread of the process panicked:\n{log}");
        }
    }
}
