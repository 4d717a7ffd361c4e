//! Several servers that are one cluster, as processes of this program on this machine, each with a directory of its
//! own.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use frieze_client::{Client, ClusterReply, Options as ClientOptions};
use serde_json::Value;
use tempfile::TempDir;

use crate::BenchOptions;
use crate::relay::Relay;
use crate::stopwatch::Stopwatch;

/// The servers. They end with it, and their directories go.
pub(crate) struct Fleet {
    directory: TempDir,
    servers: Vec<FleetServer>,
}

/// One of them.
struct FleetServer {
    process: Option<Child>,
    /// Where it listens.
    listens: String,
    /// Address at which other servers reach it: its relay, if it has one.
    address: String,
    metrics: String,
    relay: Option<Relay>,
}

impl Fleet {
    /// Starts `count` servers with these lines of configuration, and waits until every chain has all of them.
    pub(crate) fn start(options: &BenchOptions, count: usize, config: &str) -> Result<Fleet> {
        Fleet::start_with(options, count, config, false)
    }

    /// The same, each reached only through a relay of this process, which can be slowed down.
    pub(crate) fn start_relayed(options: &BenchOptions, count: usize, config: &str) -> Result<Fleet> {
        Fleet::start_with(options, count, config, true)
    }

    fn start_with(options: &BenchOptions, count: usize, config: &str, relayed: bool) -> Result<Fleet> {
        ensure!(options.server.is_none(), "this scenario starts, kills and slows servers of its own: not --server");
        let base = options.dir.clone().unwrap_or_else(std::env::temp_dir);
        let directory = tempfile::Builder::new().prefix("frieze-bench-").tempdir_in(&base)?;
        std::fs::write(directory.path().join(CONFIG), config)?;
        let mut fleet = Fleet { directory, servers: Vec::new() };
        for _ in 0..count {
            fleet.grow(relayed)?;
        }
        if count > 1 {
            fleet.await_whole()?;
        }
        Ok(fleet)
    }

    /// One more server joins.
    fn grow(&mut self, relayed: bool) -> Result<()> {
        let number = self.servers.len();
        let relay = relayed.then(Relay::open).transpose()?;
        let advertised = relay.as_ref().map(Relay::address);
        let join = self.servers.first().map(|first| first.address.clone());
        let more = [("--advertise", advertised.clone()), ("--join", join)];
        let (process, ready) = spawn(self.directory.path(), number, "127.0.0.1:0", &more)?;
        if let Some(relay) = &relay {
            relay.lead_to(&ready.listens)?;
        }
        let Ready { listens, metrics } = ready;
        let address = advertised.unwrap_or_else(|| listens.clone());
        self.servers.push(FleetServer { process: Some(process), listens, address, metrics, relay });
        Ok(())
    }

    /// A client that begins with the server of this number and knows all the others.
    pub(crate) fn client(&self, number: usize) -> Result<Client> {
        self.client_with(number, ClientOptions::default())
    }

    /// The same, with these options beside the addresses.
    pub(crate) fn client_with(&self, number: usize, more: ClientOptions) -> Result<Client> {
        let mut addresses: Vec<_> =
            self.servers.iter().map(|server| server.address.parse()).collect::<Result<_, _>>()?;
        let server = addresses.remove(number);
        let command = "frieze bench".to_owned();
        Ok(Client::connect(ClientOptions { server, others: addresses, command, ..more })?)
    }

    /// The state of the cluster, from any server that answers.
    fn cluster(&self) -> Result<ClusterReply> {
        let up = self.servers.iter().position(|server| server.process.is_some()).context("no server is there")?;
        Ok(self.client(up)?.cluster(None)?)
    }

    /// Waits until every chain has every server, and the cluster has a leader. Returns the state, and the seconds that
    /// it took.
    pub(crate) fn await_whole(&self) -> Result<(ClusterReply, f64)> {
        let up = self.servers.iter().filter(|server| server.process.is_some()).count();
        let watch = Stopwatch::start();
        loop {
            // Without a leader the state is unknown.
            if let Ok(reply) = self.cluster() {
                let is_whole = |chain: &frieze_client::ClusterChain| {
                    let serving = chain.targets.iter().filter(|target| target.state == "serving").count();
                    serving == up && chain.waits.is_empty()
                };
                if reply.leader != 0 && !reply.chains.is_empty() && reply.chains.iter().all(is_whole) {
                    return Ok((reply, watch.seconds()));
                }
            }
            ensure!(watch.seconds() < WHOLE_MAX_S, "the cluster is not whole after {WHOLE_MAX_S} s");
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, number: usize) -> Result<()> {
        if let Some(mut process) = self.servers[number].process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Waits until one of those that are there leads and holds all that was decided before.
    pub(crate) fn await_leader(&self) -> Result<()> {
        let watch = Stopwatch::start();
        while self.sum("frieze_metalog_leads")? < 1.0 {
            ensure!(watch.seconds() < WHOLE_MAX_S, "nobody leads after {WHOLE_MAX_S} s");
            std::thread::park_timeout(LEADER_EVERY);
        }
        Ok(())
    }

    /// Starts one again that was killed, on its directory and at its address.
    pub(crate) fn start_again(&mut self, number: usize) -> Result<()> {
        let server = &mut self.servers[number];
        let more = [("--advertise", server.relay.as_ref().map(Relay::address))];
        let (process, ready) = spawn(self.directory.path(), number, &server.listens, &more)?;
        (server.process, server.metrics) = (Some(process), ready.metrics);
        Ok(())
    }

    /// Which of them the cluster knows by this number.
    pub(crate) fn number_of(reply: &ClusterReply, node: u32) -> Result<usize> {
        let name = reply.nodes.iter().find(|status| status.node == node).map(|status| status.name.as_str());
        let number = name.and_then(|name| name.strip_prefix("db")?.parse::<usize>().ok());
        number.context("a server of another name is in the cluster")
    }

    /// From now on each of them gives at most so many bytes a second, or as many as it can.
    pub(crate) fn limit(&self, bytes_per_s: Option<u64>) {
        self.servers.iter().filter_map(|server| server.relay.as_ref()).for_each(|relay| relay.limit(bytes_per_s));
    }

    /// The figures of one.
    pub(crate) fn figures(&self, number: usize) -> Result<ServerFigures> {
        let mut stream = TcpStream::connect(&self.servers[number].metrics)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").context("not an answer of HTTP")?;
        ensure!(head.contains(" 200 "), "a server told no figures: {head}");
        Ok(ServerFigures(body.to_owned()))
    }

    /// CPU seconds of all servers that are there.
    pub(crate) fn cpu_s(&self) -> Result<f64> {
        self.sum("process_cpu_seconds_total")
    }

    /// A figure of all servers that are there, all labels together.
    pub(crate) fn sum(&self, name: &str) -> Result<f64> {
        let up = (0..self.servers.len()).filter(|number| self.servers[*number].process.is_some());
        up.map(|number| Ok(self.figures(number)?.sum(name))).sum()
    }

    /// Largest memory of the largest server, MiB.
    pub(crate) fn peak_mib(&self) -> f64 {
        let peak = |process: &Child| -> Option<f64> {
            let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
            Some(line.trim().trim_end_matches(" kB").parse::<f64>().ok()? / 1024.0)
        };
        self.servers.iter().filter_map(|server| peak(server.process.as_ref()?)).fold(0.0, f64::max)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let Some(process) = &mut server.process else { continue };
            // Their directories go away with them: nothing has to be flushed.
            if process.kill().is_ok() && process.wait().is_err() {
                eprintln!("frieze bench: a server could not be waited for");
            }
        }
    }
}

/// The page of `/metrics`.
pub(crate) struct ServerFigures(String);

impl ServerFigures {
    /// The sum over all labels; 0 for an absent metric.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.each(name).map(|(_, value)| value).sum()
    }

    /// Of those with this label.
    pub(crate) fn of(&self, name: &str, label: &str) -> f64 {
        self.each(name).filter(|(labels, _)| labels.contains(label)).map(|(_, value)| value).sum()
    }

    fn each<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.lines().filter_map(move |line| {
            let (labels, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
            // Another name may begin so.
            (labels.is_empty() || labels.starts_with('{')).then(|| Some((labels, value.parse().ok()?))).flatten()
        })
    }
}

/// Where a server that has just begun is.
struct Ready {
    listens: String,
    metrics: String,
}

fn spawn(directory: &Path, number: usize, listen: &str, more: &[(&str, Option<String>)]) -> Result<(Child, Ready)> {
    let program = std::env::current_exe().context("cannot find this program to start it as a server")?;
    let log = File::options().create(true).append(true).open(directory.join(format!("{number}.log")))?;
    let mut command = Command::new(program);
    command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    command.args(["serve", "--json", "--metrics", "127.0.0.1:0", "--listen", listen, "--config", CONFIG]);
    command.args(["--dir", &number.to_string(), "--name", &format!("db{number}")]);
    for (option, value) in more {
        if let Some(value) = value {
            command.args([option, value.as_str()]);
        }
    }
    let mut process = command.spawn().context("cannot start a server")?;
    let mut line = String::new();
    BufReader::new(process.stdout.take().context("the server has no output")?).read_line(&mut line)?;
    if line.is_empty() {
        let status = process.wait()?;
        let log = std::fs::read_to_string(directory.join(format!("{number}.log"))).unwrap_or_default();
        bail!("a server ended before it was ready ({status}): {}", log.lines().last().unwrap_or_default());
    }
    let ready: Value = serde_json::from_str(&line).context("the server says something else than ready")?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("the server does not say where it is");
    Ok((process, Ready { listens: text(&ready["addresses"][0])?, metrics: text(&ready["metrics"])? }))
}

/// In the directory of the servers: their configuration.
const CONFIG: &str = "bench.toml";
/// Interval between two checks whether a cluster is whole.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Interval between two checks of the leader.
const LEADER_EVERY: Duration = Duration::from_millis(2);
/// Longest wait for that.
const WHOLE_MAX_S: f64 = 600.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_summed_over_its_labels_and_no_other_name() {
        let text = "# HELP a_total x\na_total{kind=\"x\"} 2\na_total{kind=\"y\"} 3\na_total_more 100\nb 1.5\n";
        let figures = ServerFigures(text.to_owned());
        assert_eq!(figures.sum("a_total"), 5.0);
        assert_eq!(figures.of("a_total", "kind=\"y\""), 3.0);
        assert_eq!((figures.sum("b"), figures.sum("c")), (1.5, 0.0));
    }
}
