//! One sample of a server or a cluster: what its status, its cluster's status and its metrics say.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Error, Result};
use frieze_client::{Client, ClusterNodeStatus, ClusterReply, Hlc, Options, StatusReply, Target, Trouble};
use ureq::Agent;

use super::page::MetricsText;

/// Port at which servers export metrics unless `--metrics` names another, as all examples have it.
const METRICS_PORT: u16 = 9470;
/// Time for one page of metrics.
const PAGE_TIMEOUT: Duration = Duration::from_secs(1);
/// Largest page that is read: one of a thousand chains has about 1 MiB.
const PAGE_BYTES_MAX: u64 = 16 << 20;
/// Pages of directories at most whose live bytes are added up.
const PAGES_MAX: usize = 100;
/// Samples between two sums of live bytes.
const SPACE_EVERY: u64 = 10;

/// A sample.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// Monotonic time, s.
    pub(super) taken_s: f64,
    /// The newest stamp of the server, as time.
    pub(super) time: String,
    pub(super) server: String,
    /// Empty for a lone server.
    pub(super) cluster: String,
    /// Name of the leader.
    pub(super) leader: Option<String>,
    pub(super) health: String,
    pub(super) troubles: Vec<Trouble>,
    /// Bytes of the files of now; `None` in a tree that is too large to add up.
    pub(super) live_bytes: Option<u64>,
    pub(super) chains: Chains,
    pub(super) servers: Vec<ServerSample>,
}

/// Chains of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Chains {
    pub(super) count: u64,
    pub(super) whole: u64,
    pub(super) waiting: u64,
    pub(super) catch_up_bytes: u64,
    /// Largest of any server; `None`: no server exports metrics.
    pub(super) uncommitted_bytes: Option<f64>,
}

/// One server.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerSample {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) state: String,
    pub(super) leads: bool,
    /// Address of its metrics.
    pub(super) metrics: String,
    pub(super) has_page: bool,
    /// Why there is no page of metrics, or the server's own trouble.
    pub(super) trouble: Option<String>,
    pub(super) operations: BTreeMap<String, OpCounts>,
    pub(super) uptime_s: Option<f64>,
    pub(super) cpu_s: Option<f64>,
    pub(super) resident_bytes: Option<f64>,
    pub(super) memory_max_bytes: Option<f64>,
    pub(super) capacity_bytes: Option<f64>,
    pub(super) free_bytes: Option<f64>,
    pub(super) records_bytes: Option<f64>,
    pub(super) dirty_bytes: Option<f64>,
    pub(super) dirty_age_s: Option<f64>,
    pub(super) connections: Option<f64>,
    pub(super) sessions: Option<f64>,
    pub(super) clock_error_s: Option<f64>,
    pub(super) clock_ahead_s: Option<f64>,
    pub(super) clock_offset_s: Option<f64>,
    pub(super) heads: Option<u64>,
    pub(super) chains: Option<u64>,
    pub(super) lease_left_s: Option<f64>,
    /// Of the chain that has most.
    pub(super) uncommitted_bytes: Option<f64>,
}

/// Requests of one kind since the server started.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OpCounts {
    pub(super) count: f64,
    pub(super) seconds: f64,
    pub(super) refused: f64,
    pub(super) received_bytes: f64,
    pub(super) sent_bytes: f64,
    /// Upper ends of durations, s, and requests up to each.
    pub(super) buckets: Vec<(f64, f64)>,
}

/// Takes samples, over one connection as long as it lasts.
pub(super) struct Sampler {
    options: Options,
    client: Option<Client>,
    agent: Agent,
    /// Addresses of metrics that the caller named.
    metrics: Vec<String>,
    live_bytes: Option<u64>,
    taken: u64,
}

impl Sampler {
    pub(super) fn new(options: Options, metrics: Vec<String>) -> Sampler {
        let agent = Agent::config_builder().timeout_global(Some(PAGE_TIMEOUT)).max_redirects(0).build().into();
        Sampler { options, client: None, agent, metrics, live_bytes: None, taken: 0 }
    }

    /// Takes a sample at `taken_s` of the monotonic clock.
    ///
    /// # Errors
    /// No server answers: a later call connects anew.
    pub(super) fn take(&mut self, taken_s: f64) -> Result<Sample> {
        let sample = self.try_take(taken_s);
        if sample.is_err() {
            self.client = None;
        }
        sample
    }

    fn try_take(&mut self, taken_s: f64) -> Result<Sample> {
        if self.client.is_none() {
            self.client = Some(Client::connect(self.options.clone())?);
        }
        let client = self.client.as_ref().expect("it was just made");
        let (status, cluster) = (client.status()?, client.cluster(None)?);
        if self.taken.is_multiple_of(SPACE_EVERY) {
            self.live_bytes = live_bytes(client);
        }
        self.taken += 1;
        let server = client.options().server.to_string();
        let mut servers: Vec<ServerSample> = match cluster.nodes.is_empty() {
            true => vec![ServerSample { name: server.clone(), address: server.clone(), ..ServerSample::default() }],
            false => cluster.nodes.iter().map(|node| ServerSample::of_node(node, &cluster)).collect(),
        };
        if cluster.nodes.is_empty() {
            servers[0].state = "up".to_owned();
        }
        self.add_pages(&mut servers, &cluster);
        // What the answering server says of itself stands where its metrics cannot be read.
        if let Some(own) = servers.iter_mut().find(|one| cluster.nodes.is_empty() || one.address == server) {
            own.add_status(&status);
        }
        let uncommitted = servers.iter().filter_map(|server| server.uncommitted_bytes).reduce(f64::max);
        Ok(Sample {
            taken_s,
            time: crate::format::time_of(Hlc(status.newest)),
            server,
            leader: cluster.nodes.iter().find(|node| node.node == cluster.leader).map(|node| node.name.clone()),
            cluster: cluster.cluster.clone(),
            health: status.health,
            troubles: if cluster.troubles.is_empty() { status.troubles } else { cluster.troubles.clone() },
            live_bytes: self.live_bytes,
            chains: Chains::of(&cluster, uncommitted),
            servers,
        })
    }

    /// Reads the metrics of all servers at once.
    fn add_pages(&self, servers: &mut [ServerSample], cluster: &ClusterReply) {
        let addresses = match self.metrics.is_empty() {
            true => servers.iter().map(|server| beside(&server.address)).collect(),
            false => self.metrics.clone(),
        };
        let agent = &self.agent;
        let pages: Vec<Result<MetricsText>> = std::thread::scope(|scope| {
            let reads: Vec<_> =
                addresses.iter().map(|address| scope.spawn(move || read_page(agent, address))).collect();
            reads.into_iter().map(|read| read.join().unwrap_or_else(|_| Err(Error::msg("it panicked")))).collect()
        });
        for (index, (address, page)) in addresses.iter().zip(pages).enumerate() {
            let id = page.as_ref().ok().and_then(|page| page.label("frieze_node_info", "node"));
            let place = id.and_then(|id| cluster.nodes.iter().position(|node| node.node.to_string() == id));
            let Some(server) = servers.get_mut(place.unwrap_or(index)) else { continue };
            server.metrics = address.clone();
            match page {
                Ok(page) => server.add_page(&page),
                Err(error) => {
                    let words = format!("no metrics at {address}: {error:#}");
                    server.trouble.get_or_insert(words);
                }
            }
        }
    }
}

impl ServerSample {
    fn of_node(node: &ClusterNodeStatus, cluster: &ClusterReply) -> ServerSample {
        ServerSample {
            name: node.name.clone(),
            address: node.address.clone(),
            state: node.state.clone(),
            leads: node.node == cluster.leader,
            trouble: (!node.trouble.is_empty()).then(|| node.trouble.clone()),
            capacity_bytes: (node.capacity_bytes > 0).then_some(node.capacity_bytes as f64),
            clock_offset_s: node.clock_offset_us.map(|us| us as f64 / 1e6),
            heads: Some(node.heads.into()),
            chains: Some(node.serving.into()),
            lease_left_s: node.lease_left_ms.map(|ms| ms as f64 / 1e3),
            ..ServerSample::default()
        }
    }

    /// Adds what a page of metrics says.
    pub(super) fn add_page(&mut self, page: &MetricsText) {
        self.has_page = true;
        let number = |name: &str| page.value(name);
        self.uptime_s = number("frieze_uptime_seconds");
        self.cpu_s = number("process_cpu_seconds_total");
        self.resident_bytes = number("process_resident_memory_bytes");
        self.memory_max_bytes = number("frieze_memory_max_bytes");
        self.capacity_bytes = number("frieze_disk_capacity_bytes").or(self.capacity_bytes);
        self.free_bytes = number("frieze_disk_free_bytes");
        self.records_bytes = number("frieze_log_bytes");
        self.dirty_bytes = number("frieze_dirty_bytes");
        self.dirty_age_s = number("frieze_dirty_age_seconds");
        self.connections = number("frieze_connections");
        self.sessions = number("frieze_sessions");
        self.clock_error_s = number("frieze_clock_error_seconds");
        self.clock_ahead_s = number("frieze_clock_ahead_seconds");
        self.uncommitted_bytes = page.by("frieze_chain_dirty_bytes", "chain").into_values().reduce(f64::max);
        let mut operations: BTreeMap<String, OpCounts> = BTreeMap::new();
        for (name, put) in OP_SERIES {
            for (kind, value) in page.by(name, "kind") {
                put(operations.entry(kind.to_owned()).or_default(), value);
            }
        }
        for (kind, buckets) in page.buckets("frieze_request_duration_seconds_bucket", "kind") {
            operations.entry(kind.to_owned()).or_default().buckets = buckets;
        }
        self.operations = operations;
    }

    /// Adds what the server's status says and its metrics did not.
    fn add_status(&mut self, status: &StatusReply) {
        let memory = status.memory.as_deref().map(|memory| memory.bytes_max as f64);
        let error = (status.clock_error_us != u64::MAX).then_some(status.clock_error_us as f64 / 1e6);
        for (value, stated) in [
            (&mut self.uptime_s, Some(status.uptime_ms as f64 / 1e3)),
            (&mut self.cpu_s, Some(status.cpu_ns as f64 / 1e9)),
            (&mut self.resident_bytes, Some(status.resident_bytes as f64)),
            (&mut self.memory_max_bytes, memory),
            (&mut self.capacity_bytes, Some(status.capacity_bytes as f64)),
            (&mut self.free_bytes, Some(status.free_bytes as f64)),
            (&mut self.records_bytes, Some(status.log_bytes as f64)),
            (&mut self.dirty_bytes, Some(status.dirty_bytes as f64)),
            (&mut self.dirty_age_s, Some(status.dirty_age_ms as f64 / 1e3)),
            (&mut self.connections, Some(status.connections as f64)),
            (&mut self.sessions, Some(status.sessions as f64)),
            (&mut self.clock_error_s, error),
        ] {
            *value = value.or(stated);
        }
    }
}

/// Puts a value into counts.
type PutCount = fn(&mut OpCounts, f64);

/// The series of requests, and where each is kept.
const OP_SERIES: [(&str, PutCount); 5] = [
    ("frieze_request_duration_seconds_count", |counts, value| counts.count = value),
    ("frieze_request_duration_seconds_sum", |counts, value| counts.seconds = value),
    ("frieze_requests_refused_total", |counts, value| counts.refused = value),
    ("frieze_request_received_bytes_total", |counts, value| counts.received_bytes = value),
    ("frieze_request_sent_bytes_total", |counts, value| counts.sent_bytes = value),
];

impl Chains {
    fn of(cluster: &ClusterReply, uncommitted_bytes: Option<f64>) -> Chains {
        let targets = cluster.chains.iter().flat_map(|chain| &chain.targets);
        Chains {
            count: cluster.chains.len() as u64,
            whole: cluster.whole.into(),
            waiting: cluster.chains.iter().filter(|chain| !chain.waits.is_empty()).count() as u64,
            catch_up_bytes: targets.filter_map(|target| target.left_bytes).sum(),
            uncommitted_bytes,
        }
    }
}

/// The address of the metrics of a server at `address`.
fn beside(address: &str) -> String {
    // A socket is of this machine.
    match address.rsplit_once(':').filter(|_| !address.starts_with("unix:")) {
        Some((host, _)) => format!("{host}:{METRICS_PORT}"),
        None => format!("127.0.0.1:{METRICS_PORT}"),
    }
}

fn read_page(agent: &Agent, address: &str) -> Result<MetricsText> {
    let port_only = !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_digit());
    let host = if port_only { format!("127.0.0.1:{address}") } else { address.to_owned() };
    let mut reply = agent.get(format!("http://{host}/metrics")).call()?;
    let text = reply.body_mut().with_config().limit(PAGE_BYTES_MAX).read_to_string()?;
    let page = MetricsText::parse(&text);
    match page.is_foreign() {
        true => Err(Error::msg("what answers there is no server of frieze")),
        false => Ok(page),
    }
}

/// Bytes of the files of the whole tree, if it has few directories.
fn live_bytes(client: &Client) -> Option<u64> {
    let fs = client.fs();
    let (mut bytes, mut asked) = (0, 0);
    let mut open = vec![Target::path("/")];
    while let Some(directory) = open.pop() {
        let mut after = Vec::new();
        loop {
            asked += 1;
            if asked > PAGES_MAX {
                return None;
            }
            let page = fs.usage(&directory, &after).ok()?;
            bytes += page.live_bytes;
            let of_now = page.directories.iter().filter(|within| within.at == 0);
            open.extend(of_now.map(|within| Target { base: within.inode, path: Vec::new(), follow: false }));
            if page.next.is_empty() {
                break;
            }
            after = page.next;
        }
    }
    Some(bytes)
}
