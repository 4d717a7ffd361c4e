//! A sample as JSON, with the fields that `frieze top --help` lists.

use serde_json::{Value, json};

use super::rates::{OpRate, Rates, ServerRate};
use super::sample::{Sample, ServerSample};
use crate::server::troubles_to_json;

/// A sample and what happened since the one before.
pub(super) fn to_json(sample: &Sample, rates: &Rates) -> Value {
    let none = ServerRate::default();
    let servers = sample.servers.iter().enumerate();
    let servers: Vec<Value> =
        servers.map(|(index, server)| server_json(server, rates.servers.get(index).unwrap_or(&none))).collect();
    let of_all = |value: fn(&ServerSample) -> Option<f64>| sample.servers.iter().filter_map(value).reduce(|a, b| a + b);
    json!({
        "time": sample.time,
        "server": sample.server,
        "cluster": (!sample.cluster.is_empty()).then_some(&sample.cluster),
        "leader": sample.leader,
        "healthy": sample.health == "healthy",
        "troubles": troubles_to_json(&sample.troubles),
        "interval_s": rates.interval_s,
        "requests_per_s": rates.sum(|operation| operation.per_s),
        "refused_per_s": rates.sum(|operation| operation.refused_per_s),
        "received_bytes_per_s": rates.sum(|operation| operation.received_bytes_per_s),
        "sent_bytes_per_s": rates.sum(|operation| operation.sent_bytes_per_s),
        "operations": rates.operations.as_ref().map(|all| all.iter().map(operation_json).collect::<Vec<_>>()),
        "space": {
            "capacity_bytes": whole(of_all(|server| server.capacity_bytes)),
            "free_bytes": whole(of_all(|server| server.free_bytes)),
            "live_bytes": sample.live_bytes,
            "records_bytes": whole(of_all(|server| server.records_bytes)),
        },
        "chains": {
            "count": sample.chains.count,
            "whole": sample.chains.whole,
            "waiting": sample.chains.waiting,
            "catch_up_bytes": sample.chains.catch_up_bytes,
            "uncommitted_bytes": whole(sample.chains.uncommitted_bytes),
        },
        "servers": servers,
    })
}

fn operation_json(operation: &OpRate) -> Value {
    json!({
        "kind": operation.kind,
        "per_s": operation.per_s,
        "refused_per_s": operation.refused_per_s,
        "received_bytes_per_s": operation.received_bytes_per_s,
        "sent_bytes_per_s": operation.sent_bytes_per_s,
        "mean_s": operation.mean_s,
        "p50_s": operation.p50_s,
        "p99_s": operation.p99_s,
        "count": whole(Some(operation.count)),
    })
}

fn server_json(server: &ServerSample, rate: &ServerRate) -> Value {
    json!({
        "name": server.name,
        "address": server.address,
        "state": server.state,
        "leads": server.leads,
        "metrics": server.has_page.then_some(&server.metrics),
        "trouble": server.trouble,
        "uptime_s": server.uptime_s,
        "requests_per_s": rate.per_s,
        "p99_s": rate.p99_s,
        "cpu": rate.cpu,
        "resident_bytes": whole(server.resident_bytes),
        "memory_max_bytes": whole(server.memory_max_bytes),
        "capacity_bytes": whole(server.capacity_bytes),
        "free_bytes": whole(server.free_bytes),
        "records_bytes": whole(server.records_bytes),
        "dirty_bytes": whole(server.dirty_bytes),
        "dirty_age_s": server.dirty_age_s,
        "connections": whole(server.connections),
        "sessions": whole(server.sessions),
        // JSON has no infinity.
        "clock_error_s": server.clock_error_s.filter(|error| error.is_finite()),
        "clock_ahead_s": server.clock_ahead_s,
        "clock_offset_s": server.clock_offset_s,
        "heads": server.heads,
        "chains": server.chains,
        "lease_left_s": server.lease_left_s,
    })
}

/// A whole number, as counters and sizes are.
fn whole(number: Option<f64>) -> Option<u64> {
    number.filter(|number| *number >= 0.0).map(|number| number as u64)
}
