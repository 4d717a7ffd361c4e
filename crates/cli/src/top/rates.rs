//! Rates and latencies between two samples.

use std::collections::BTreeMap;

use super::sample::{OpCounts, Sample, ServerSample};

/// Requests of one kind, a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OpRate {
    pub(super) kind: String,
    pub(super) per_s: f64,
    pub(super) refused_per_s: f64,
    /// Payload of the requests, bytes a second.
    pub(super) received_bytes_per_s: f64,
    /// Payload of the answers, bytes a second.
    pub(super) sent_bytes_per_s: f64,
    /// Mean duration, s; `None` if there was no request.
    pub(super) mean_s: Option<f64>,
    pub(super) p50_s: Option<f64>,
    pub(super) p99_s: Option<f64>,
    /// Requests since the servers started.
    pub(super) count: f64,
}

/// Rates of one server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ServerRate {
    /// `None`: the server exports no metrics.
    pub(super) per_s: Option<f64>,
    pub(super) p99_s: Option<f64>,
    /// Cores in use.
    pub(super) cpu: Option<f64>,
}

/// What happened between two samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) interval_s: f64,
    /// By kind, in the order of names; `None`: no server exports metrics.
    pub(super) operations: Option<Vec<OpRate>>,
    /// In the order of the servers of the later sample.
    pub(super) servers: Vec<ServerRate>,
}

impl Rates {
    /// The sum of a rate over all kinds; `None`: no server exports metrics.
    pub(super) fn sum(&self, of: impl Fn(&OpRate) -> f64) -> Option<f64> {
        Some(self.operations.as_ref()?.iter().map(of).sum())
    }

    /// The rates between an earlier sample and a later one. A server that is in one of them only counts for nothing.
    pub(super) fn between(before: &Sample, after: &Sample) -> Rates {
        let interval_s = (after.taken_s - before.taken_s).max(1e-3);
        let mut all: BTreeMap<&str, OpCounts> = BTreeMap::new();
        let mut is_exported = false;
        let mut servers = Vec::new();
        for server in &after.servers {
            let former = before.servers.iter().find(|former| former.name == server.name);
            let Some(former) = former.filter(|former| former.has_page && server.has_page) else {
                is_exported |= server.has_page;
                servers.push(ServerRate { cpu: cpu(former, server, interval_s), ..ServerRate::default() });
                continue;
            };
            is_exported = true;
            let mut of_server = OpCounts::default();
            for (kind, counts) in &server.operations {
                let since = counts.since(former.operations.get(kind));
                all.entry(kind).or_default().add(&since);
                of_server.add(&since);
            }
            servers.push(ServerRate {
                per_s: Some(of_server.count / interval_s),
                p99_s: of_server.quantile(0.99),
                cpu: cpu(Some(former), server, interval_s),
            });
        }
        let total = |kind: &str| {
            after.servers.iter().filter_map(|server| server.operations.get(kind)).map(|counts| counts.count).sum()
        };
        let rate = |(kind, counts): (&str, OpCounts)| OpRate {
            kind: kind.to_owned(),
            per_s: counts.count / interval_s,
            refused_per_s: counts.refused / interval_s,
            received_bytes_per_s: counts.received_bytes / interval_s,
            sent_bytes_per_s: counts.sent_bytes / interval_s,
            mean_s: (counts.count > 0.0).then(|| counts.seconds / counts.count),
            p50_s: counts.quantile(0.5),
            p99_s: counts.quantile(0.99),
            count: total(kind),
        };
        Rates { interval_s, operations: is_exported.then(|| all.into_iter().map(rate).collect()), servers }
    }
}

fn cpu(former: Option<&ServerSample>, server: &ServerSample, interval_s: f64) -> Option<f64> {
    Some(grown(former?.cpu_s, server.cpu_s)? / interval_s)
}

/// The growth of a counter; what it has counted since the server was restarted if it has fallen.
fn grown(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    let after = after?;
    Some(if after < before? { after } else { after - before? })
}

impl OpCounts {
    /// What was counted since `former`; all of it if the server was restarted meanwhile.
    fn since(&self, former: Option<&OpCounts>) -> OpCounts {
        let Some(former) = former.filter(|former| former.count <= self.count) else { return self.clone() };
        let before = |end: f64| former.buckets.iter().find(|(other, _)| *other == end).map_or(0.0, |(_, count)| *count);
        OpCounts {
            count: self.count - former.count,
            seconds: self.seconds - former.seconds,
            refused: (self.refused - former.refused).max(0.0),
            received_bytes: (self.received_bytes - former.received_bytes).max(0.0),
            sent_bytes: (self.sent_bytes - former.sent_bytes).max(0.0),
            buckets: self.buckets.iter().map(|(end, count)| (*end, count - before(*end))).collect(),
        }
    }

    fn add(&mut self, other: &OpCounts) {
        self.count += other.count;
        self.seconds += other.seconds;
        self.refused += other.refused;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        for (end, count) in &other.buckets {
            match self.buckets.iter_mut().find(|(own, _)| own == end) {
                Some((_, own)) => *own += count,
                None => self.buckets.push((*end, *count)),
            }
        }
    }

    /// The duration below which this share of the requests lies, s, as `histogram_quantile` of Prometheus has it: the
    /// requests of a bucket count as evenly spread.
    fn quantile(&self, share: f64) -> Option<f64> {
        let all = self.buckets.last()?.1;
        if all <= 0.0 {
            return None;
        }
        let rank = share * all;
        let at = self.buckets.iter().position(|(_, count)| *count >= rank)?;
        let (start, below) = if at == 0 { (0.0, 0.0) } else { self.buckets[at - 1] };
        let (end, upto) = self.buckets[at];
        match end.is_infinite() {
            true => Some(start),
            false => Some(start + (end - start) * (rank - below) / (upto - below)),
        }
    }
}
