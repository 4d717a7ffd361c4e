//! Servers of one cluster, each a process of its own.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use frieze_client::{ByteRange, Client, ClusterReply, CreateMode, OpenFlags, Target};
use frieze_testkit::process::ChildProcess;
use frieze_testkit::wait::eventually;
use tempfile::TempDir;

use crate::support::client;

/// A short lease, so that the test need not wait for long; small segments, so that several are shipped.
pub(crate) const SETTINGS: &str = "lease = \"1s\"\nsegment_bytes = 8388608\nchunk_bytes = 1048576\n";

/// The servers of a cluster, each with a directory of its own.
pub(crate) struct ServedCluster {
    // Before the directory with their logs.
    pub(crate) servers: Vec<Option<ChildProcess>>,
    pub(crate) directory: TempDir,
    pub(crate) addresses: Vec<String>,
}

impl ServedCluster {
    pub(crate) fn of(count: usize) -> ServedCluster {
        ServedCluster::with(count, "")
    }

    /// The same, with more settings.
    pub(crate) fn with(count: usize, settings: &str) -> ServedCluster {
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("settings.toml"), format!("{SETTINGS}{settings}")).unwrap();
        let mut cluster = ServedCluster { directory, servers: Vec::new(), addresses: Vec::new() };
        for _ in 0..count {
            cluster.grow();
        }
        cluster
    }

    /// One more server joins.
    pub(crate) fn grow(&mut self) {
        let number = self.servers.len();
        let (server, address) = start(self.directory.path(), number, "127.0.0.1:0", self.addresses.first());
        self.servers.push(Some(server));
        self.addresses.push(address);
    }

    /// The server of this number has its own settings from its next start on.
    pub(crate) fn configure(&self, number: usize, settings: &str) {
        let path = self.directory.path().join(format!("{number}.toml"));
        std::fs::write(path, format!("{SETTINGS}{settings}")).unwrap();
    }

    /// What the server of this number has logged.
    pub(crate) fn log(&self, number: usize) -> String {
        std::fs::read_to_string(self.directory.path().join(format!("{number}.log"))).unwrap_or_default()
    }

    /// The command, asked of the server of this number.
    pub(crate) fn frieze(&self, number: usize, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frieze"));
        command.args(["--server", &self.addresses[number]]).args(args).output().unwrap()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, number: usize) {
        drop(self.servers[number].take());
    }

    pub(crate) fn start_again(&mut self, number: usize) {
        let (server, _) = start(self.directory.path(), number, &self.addresses[number], None);
        self.servers[number] = Some(server);
    }

    pub(crate) fn client(&self, number: usize) -> Client {
        client(&self.addresses[number])
    }

    /// Waits until every chain has all of the servers that there are.
    pub(crate) fn await_whole(&self, number: usize) -> ClusterReply {
        self.await_whole_of(number, self.servers.iter().flatten().count())
    }

    pub(crate) fn await_whole_of(&self, number: usize, alive: usize) -> ClusterReply {
        let client = self.client(number);
        eventually("every chain has every server that is there", || {
            let reply = client.cluster(None).ok()?;
            let serving = |chain: &frieze_client::ClusterChain| {
                chain.targets.iter().filter(|target| target.state == "serving").count() == alive
                    && chain.waits.is_empty()
            };
            // Until it votes, the loss of another server may stop the cluster.
            let has_vote = |node: &frieze_client::ClusterNodeStatus| {
                node.state != "up" || matches!(node.metalog.as_str(), "voter" | "learner")
            };
            let is_whole = !reply.chains.is_empty() && reply.chains.iter().all(serving);
            (is_whole && reply.nodes.iter().all(has_vote)).then_some(reply)
        })
    }
}

pub(crate) fn start(directory: &Path, number: usize, listen: &str, join: Option<&String>) -> (ChildProcess, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frieze"));
    command.current_dir(directory).stdin(Stdio::null());
    let (dir, name) = (format!("{number}"), format!("db{}", number + 1));
    let own = format!("{number}.toml");
    let config = if directory.join(&own).exists() { own.as_str() } else { "settings.toml" };
    command.args(["serve", "--dir", &dir, "--listen", listen, "--name", &name, "--config", config]);
    // Each a different number, so that each server's figure can be recognised.
    command.args(["--memory", &memory_mib(number).to_string()]);
    if let Some(join) = join {
        command.args(["--join", join]);
    }
    await_ready(command, &directory.join(format!("{number}.log")))
}

/// Of the server of this number.
pub(crate) fn memory_mib(number: usize) -> u64 {
    256 + number as u64
}

pub(crate) fn await_ready(command: Command, log: &Path) -> (ChildProcess, String) {
    let mut process = ChildProcess::start(command, log);
    let address = process.await_line("ready ");
    (process, address)
}

pub(crate) fn write(client: &Client, path: &str, bytes: &[u8]) {
    let file = client.fs().create(&Target::path(path), 0o644, CreateMode::OpenExisting).unwrap();
    file.write_at(0, bytes).unwrap();
    file.close().unwrap();
}

pub(crate) fn read(client: &Client, path: &str) -> Vec<u8> {
    let file = client.fs().open(&Target::path(path), OpenFlags::READ).unwrap();
    let mut bytes = Vec::new();
    let all = ByteRange::new(0, file.attr().size);
    file.read_stream::<frieze_client::Error>(all, 4, |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })
    .unwrap();
    bytes
}
