//! A server of its own for a test, and the command run against it.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use frieze_testkit::process::ChildProcess;
use nix::sys::signal::Signal;
use serde_json::Value;

/// `frieze serve` on a temporary directory.
pub(crate) struct Served {
    // Before the directory with its log.
    child: ChildProcess,
    directory: tempfile::TempDir,
    /// Its command line after `serve`.
    options: Vec<String>,
    /// Where it listens: the first address.
    pub(crate) address: String,
    /// Where it listens: all addresses.
    pub(crate) addresses: Vec<String>,
}

/// What a run of the command said.
#[derive(Debug)]
pub(crate) struct Said {
    /// Exit status.
    pub(crate) status: i32,
    /// Standard output.
    pub(crate) bytes: Vec<u8>,
    /// Standard error.
    pub(crate) err: String,
}

impl Served {
    /// A new, empty file system at a free port.
    pub(crate) fn start() -> Served {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        Served::begin(directory, &data, vec!["--listen".to_owned(), "127.0.0.1:0".to_owned()])
    }

    /// A new, empty file system with these settings (TOML), at a socket in its directory, which stays where it is when
    /// the server is restarted, and at `also`.
    pub(crate) fn with(settings: &str, also: &str) -> Served {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        Served::configured(directory, &data, settings, also)
    }

    /// A new, empty file system with these settings (TOML) at a free port, which records into a ring in `rings`.
    pub(crate) fn recorded(settings: &str) -> Served {
        let directory = tempfile::tempdir().unwrap();
        let (data, config) = (directory.path().join("data"), directory.path().join("config.toml"));
        std::fs::write(&config, settings).unwrap();
        std::fs::set_permissions(&config, Permissions::from_mode(0o600)).unwrap();
        let rings = directory.path().join("rings");
        let (config, rings) = (config.to_str().unwrap(), rings.to_str().unwrap());
        let options = ["--config", config, "--listen", "127.0.0.1:0", "--trace-ring", "64M", "--trace-dir", rings];
        let options = options.map(str::to_owned).to_vec();
        Served::begin(directory, &data, options)
    }

    /// As [`Served::with`], with its data elsewhere.
    pub(crate) fn on(data: &Path, settings: &str, also: &str) -> Served {
        Served::configured(tempfile::tempdir().unwrap(), data, settings, also)
    }

    fn configured(directory: tempfile::TempDir, data: &Path, settings: &str, also: &str) -> Served {
        let config = directory.path().join("config.toml");
        // Other users begin in the root.
        std::fs::write(&config, format!("root_mode = 0o1777\n{settings}")).unwrap();
        std::fs::set_permissions(&config, Permissions::from_mode(0o600)).unwrap();
        let socket = format!("unix:{}", directory.path().join("socket").display());
        let options = ["--config", config.to_str().unwrap(), "--listen", &socket, "--listen", also];
        Served::begin(directory, data, options.map(str::to_owned).to_vec())
    }

    fn begin(directory: tempfile::TempDir, data: &Path, mut options: Vec<String>) -> Served {
        options.extend(["--dir".to_owned(), data.to_str().unwrap().to_owned()]);
        let child = spawn(directory.path(), &options);
        let mut server = Served { directory, child, options, address: String::new(), addresses: Vec::new() };
        server.await_ready();
        server
    }

    /// Waits until the server says that it serves, and where.
    fn await_ready(&mut self) {
        let addresses = self.child.await_line("ready ");
        self.addresses = addresses.split(' ').map(str::to_owned).collect();
        self.address.clone_from(&self.addresses[0]);
    }

    /// A local path for the test's own files.
    pub(crate) fn local(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.local("data")
    }

    /// A local file with these bytes that no other user may read.
    pub(crate) fn private_file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.local_file(name, bytes);
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// A local file with these bytes.
    pub(crate) fn local_file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.local(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Ends the server by `signal` and starts it again on the same directory; answers how it ended.
    pub(crate) fn restart(&mut self, signal: Signal) -> Option<i32> {
        let ended = self.end(signal);
        self.start_again();
        ended
    }

    /// Starts the server again after [`Served::end`], and waits until it serves.
    pub(crate) fn start_again(&mut self) {
        self.spawn_again();
        self.await_ready();
    }

    /// Starts the server again without waiting for it.
    pub(crate) fn spawn_again(&mut self) {
        self.child = spawn(self.directory.path(), &self.options);
    }

    /// Starts a server on the same directory, where it is refused; what it said.
    #[track_caller]
    pub(crate) fn serve_in_vain(&self) -> Said {
        self.serve_for_a_look().expect("it is refused")
    }

    /// Starts a server on the same directory: what it said if it was refused, nothing if it serves. It ends either way.
    pub(crate) fn serve_for_a_look(&self) -> Option<Said> {
        let mut child = serve(&self.options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            return Some(child.wait_with_output().unwrap().into());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        None
    }

    /// True if the server's process is there.
    pub(crate) fn is_up(&mut self) -> bool {
        self.child.is_running()
    }

    /// What the server has said on its standard error since the first start.
    pub(crate) fn complaints(&self) -> String {
        std::fs::read_to_string(self.local(COMPLAINTS)).unwrap()
    }

    /// Ends the server by `signal`; its exit status, none if it was killed.
    pub(crate) fn end(&mut self, signal: Signal) -> Option<i32> {
        self.child.end(signal)
    }

    /// The command against this server.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = frieze(args);
        command.env("FRIEZE_SERVER", &self.address).current_dir(self.directory.path());
        command
    }

    /// Runs the command.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Said {
        self.run_with(args, b"")
    }

    /// Runs the command with these bytes on its standard input.
    pub(crate) fn run_with<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8]) -> Said {
        let mut child =
            self.command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // Of its own: the command may print more than a pipe holds before it has read all.
        let writer = std::thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
        let said = child.wait_with_output().unwrap().into();
        writer.join().unwrap();
        said
    }

    /// Runs a command that succeeds and says nothing on standard error; its standard output.
    #[track_caller]
    pub(crate) fn ok<S: AsRef<OsStr>>(&self, args: &[S]) -> String {
        self.run(args).ok()
    }

    /// Stores a text.
    #[track_caller]
    pub(crate) fn put(&self, path: &str, text: impl AsRef<[u8]>) {
        assert_eq!(self.run_with(&["put", "-", path], text.as_ref()).ok(), "");
    }

    /// The present, as an exact stamp.
    #[track_caller]
    pub(crate) fn now(&self) -> String {
        self.ok(&["now"]).trim_end().to_owned()
    }

    /// What a file holds, at an instant.
    #[track_caller]
    pub(crate) fn cat_at(&self, path: &str, at: &str) -> String {
        self.ok(&["cat", path, "--at", at])
    }

    /// The names in a directory, at an instant.
    #[track_caller]
    pub(crate) fn names_at(&self, path: &str, at: &str) -> Vec<String> {
        self.ok(&["ls", path, "--at", at]).lines().map(str::to_owned).collect()
    }

    /// Runs a command that fails with `status`; its lines on standard error.
    #[track_caller]
    pub(crate) fn fails<S: AsRef<OsStr>>(&self, status: i32, args: &[S]) -> String {
        let said = self.run(args);
        assert_eq!(said.status, status, "{said:?}");
        assert!(!said.err.is_empty(), "a failure says why");
        said.err
    }

    /// The JSON lines of a command that succeeds.
    #[track_caller]
    pub(crate) fn json<S: AsRef<OsStr>>(&self, args: &[S]) -> Vec<Value> {
        lines_of_json(&self.ok(args))
    }
}

impl Said {
    /// Standard output as text.
    pub(crate) fn out(&self) -> String {
        String::from_utf8(self.bytes.clone()).expect("the output is text")
    }

    /// Standard output of a run that succeeded and complained of nothing.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert!(self.status == 0 && self.err.is_empty(), "{self:?}");
        self.out()
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        Said {
            status: output.status.code().expect("the command is not killed"),
            bytes: output.stdout,
            err: String::from_utf8(output.stderr).expect("what it says is text"),
        }
    }
}

/// Every line as JSON.
pub(crate) fn lines_of_json(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// The command, with nothing of this process's surroundings.
pub(crate) fn frieze<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frieze"));
    command.args(args).env_remove("FRIEZE_SERVER").env_remove("FRIEZE_KEY").env_remove("FRIEZE_LOG").env("TZ", "UTC");
    // Nothing of the user that runs the tests.
    command.env("FRIEZE_CLIENT", "");
    command
}

/// Where a server's standard error goes, in the directory of its test.
const COMPLAINTS: &str = "complaints";

/// A server on the directory of a test.
fn spawn(directory: &Path, options: &[String]) -> ChildProcess {
    ChildProcess::start(serve(options), &directory.join(COMPLAINTS))
}

/// The command that serves.
fn serve(options: &[String]) -> Command {
    let mut command = frieze(&["serve"]);
    command.args(options).env("FRIEZE_LOG", "error");
    command
}
