//! The server under load: one of its own in a temporary directory, or one that runs already.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use frieze_client::{Client, Durability, Options as ClientOptions, Recorder, ServerAddr, StatusReply};

use crate::BenchOptions;

/// A server and how to reach it.
pub(crate) struct BenchTarget {
    address: String,
    durability: Durability,
    server: Option<Child>,
    directory: Option<tempfile::TempDir>,
}

/// Resources that the server has used up to a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerUsage {
    pub(crate) cpu_s: f64,
    pub(crate) resident_bytes: f64,
    pub(crate) peak_mib: f64,
    pub(crate) log_bytes: f64,
    pub(crate) index_bytes: f64,
}

impl BenchTarget {
    /// Starts a server (this same program with `serve`), or takes the one named.
    pub(crate) fn start(options: &BenchOptions) -> Result<BenchTarget> {
        BenchTarget::start_with(options, "")
    }

    /// The same, with lines of a server's configuration for the one that is started.
    pub(crate) fn start_with(options: &BenchOptions, config: &str) -> Result<BenchTarget> {
        let durability = if options.sync { Durability::Sync } else { Durability::Async };
        if let Some(address) = &options.server {
            return Ok(BenchTarget { address: address.clone(), durability, server: None, directory: None });
        }
        let base = options.dir.clone().unwrap_or_else(std::env::temp_dir);
        let directory = tempfile::Builder::new().prefix("frieze-bench-").tempdir_in(&base)?;
        std::fs::write(directory.path().join(CONFIG), config)?;
        let (server, address) = serve(directory.path())?;
        Ok(BenchTarget { address, durability, server: Some(server), directory: Some(directory) })
    }

    /// CPU seconds that the thread of the server with this name has used; 0 if unknown.
    pub(crate) fn thread_cpu_s(&self, name: &str) -> f64 {
        let Some(server) = &self.server else { return 0.0 };
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", server.id())) else { return 0.0 };
        let of_task = |task: &Path| -> Option<f64> {
            let is_it = std::fs::read_to_string(task.join("comm")).ok()?.trim_end() == name;
            let spent = std::fs::read_to_string(task.join("schedstat")).ok()?;
            is_it.then(|| spent.split(' ').next()?.parse::<f64>().ok().map(|ns| ns / 1e9)).flatten()
        };
        tasks.flatten().filter_map(|task| of_task(&task.path())).sum()
    }

    /// Where its data lies.
    pub(crate) fn data(&self) -> Result<std::path::PathBuf> {
        Ok(self.own_directory()?.join(DATA))
    }

    /// Kills the server as the kernel would: nothing is flushed.
    pub(crate) fn kill(&mut self) -> Result<()> {
        if let Some(mut server) = self.server.take() {
            server.kill()?;
            server.wait()?;
        }
        Ok(())
    }

    /// Stops the server in good order.
    pub(crate) fn stop(&mut self) -> Result<()> {
        if let Some(mut server) = self.server.take() {
            let pid = rustix::process::Pid::from_child(&server);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
            let status = server.wait()?;
            anyhow::ensure!(status.success(), "the server did not stop in good order: {status}");
        }
        Ok(())
    }

    /// Bytes of the files in its data directory, as the disk counts them.
    pub(crate) fn disk_bytes(&self) -> Result<u64> {
        use std::os::unix::fs::MetadataExt;
        let (mut bytes, mut directories) = (0, vec![self.own_directory()?.join(DATA)]);
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory)? {
                let (path, meta) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
                bytes += meta.blocks() * 512;
                if meta.is_dir() {
                    directories.push(path);
                }
            }
        }
        Ok(bytes)
    }

    /// Starts the server that was killed, on its directory.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        let (server, address) = serve(self.own_directory()?)?;
        (self.server, self.address) = (Some(server), address);
        Ok(())
    }

    /// Kills the server and starts one on its directory with these lines of configuration.
    pub(crate) fn start_with_config(&mut self, config: &str) -> Result<()> {
        self.kill()?;
        std::fs::write(self.own_directory()?.join(CONFIG), config)?;
        self.start_again()
    }

    /// Takes everything in the data directory out of the page cache, as a loss of power would.
    pub(crate) fn forget_cached(&self) -> Result<()> {
        let mut directories = vec![self.own_directory()?.join(DATA)];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    directories.push(entry.path());
                } else if entry.file_type()?.is_file() {
                    let file = std::fs::File::open(entry.path())?;
                    rustix::fs::fdatasync(&file)?;
                    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
                }
            }
        }
        Ok(())
    }

    /// Bytes of the data directory's files that the kernel keeps in memory.
    pub(crate) fn cached_bytes(&self) -> Result<f64> {
        let cached = frieze_disk::cached_below(&self.own_directory()?.join(DATA))?;
        Ok(cached.context("this kernel does not tell what it keeps in memory (Linux 6.5 does)")? as f64)
    }

    /// How fast the disk reads `bytes` that are not in memory, one after the other, GiB/s.
    pub(crate) fn read_cold(&self, bytes: u64) -> Result<f64> {
        crate::ceiling::cold_read(self.own_directory()?, bytes)
    }

    /// Median of random reads of `len` bytes of a file of `bytes` that is not in memory, milliseconds.
    pub(crate) fn random_read_ms(&self, bytes: u64, len: usize, count: u64) -> Result<f64> {
        crate::ceiling::random_read_ms(self.own_directory()?, bytes, len, count)
    }

    /// GiB/s of the same, many in flight.
    pub(crate) fn random_reads(&self, bytes: u64, len: usize, count: usize) -> Result<f64> {
        crate::ceiling::random_reads(self.own_directory()?, bytes, len, count)
    }

    /// The rate of a bare program that sends states from all over the page cache, beside the same bytes from one place.
    pub(crate) fn scattered(
        &self,
        bytes: u64,
        piece: usize,
        writes: u64,
        states: u64,
    ) -> Result<crate::ceiling::Scattered> {
        let directory = match &self.directory {
            Some(directory) => directory.path().to_owned(),
            None => std::env::temp_dir(),
        };
        crate::ceiling::scattered(&directory, bytes, piece, writes, states)
    }

    fn own_directory(&self) -> Result<&Path> {
        Ok(self.directory.as_ref().context("the server is not of this program")?.path())
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// A client of its own with its own session and connections.
    pub(crate) fn client(&self) -> Result<Client> {
        self.client_with(None)
    }

    /// The same; its calls are recorded.
    pub(crate) fn traced_client(&self, trace: Recorder) -> Result<Client> {
        self.client_with(Some(trace))
    }

    fn client_with(&self, trace: Option<Recorder>) -> Result<Client> {
        let mut servers = ServerAddr::parse_list(&self.address)?;
        let options = ClientOptions {
            server: servers.remove(0),
            others: servers,
            command: "frieze bench".to_owned(),
            durability: self.durability,
            trace,
            ..ClientOptions::default()
        };
        Ok(Client::connect(options)?)
    }

    /// Resources that the server has used so far.
    pub(crate) fn usage(&self, client: &Client) -> Result<ServerUsage> {
        let status: StatusReply = client.status()?;
        Ok(ServerUsage {
            cpu_s: status.cpu_ns as f64 / 1e9,
            resident_bytes: status.resident_bytes as f64,
            peak_mib: status.resident_bytes_peak as f64 / f64::from(1 << 20),
            log_bytes: status.log_bytes as f64,
            index_bytes: status.index_bytes as f64,
        })
    }
}

fn serve(directory: &Path) -> Result<(Child, String)> {
    let program = std::env::current_exe().context("cannot find this program to start it as a server")?;
    let mut server = Command::new(program)
        .args(["serve", "--listen", "127.0.0.1:0", "--dir"])
        .arg(directory.join(DATA))
        .arg("--config")
        .arg(directory.join(CONFIG))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start a server")?;
    let mut lines = BufReader::new(server.stdout.take().context("the server has no output")?).lines();
    let Some(line) = lines.next().transpose()? else {
        let status = server.wait()?;
        bail!("the server ended before it was ready: {status}");
    };
    let Some(address) = line.strip_prefix("ready").and_then(|rest| rest.split_whitespace().last()) else {
        bail!("the server said {line:?} instead of ready");
    };
    Ok((server, address.to_owned()))
}

impl Drop for BenchTarget {
    fn drop(&mut self) {
        let Some(server) = &mut self.server else { return };
        // Its directory goes away with it: nothing has to be flushed.
        if server.kill().is_ok() && server.wait().is_err() {
            eprintln!("frieze bench: the server could not be waited for");
        }
    }
}

/// In the directory of a server of our own: its data, and its configuration.
const DATA: &str = "data";
const CONFIG: &str = "bench.toml";
