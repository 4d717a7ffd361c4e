//! `what-if --as-server`: what a server of frieze finds in its memory under a recorded load.

use std::path::Path;

use anyhow::{Context, Result};
use frieze_tier::{HitCounts, MemoryDemand};
use frieze_whatif::{DeviceReplay, ServerHits, ServerMemory, TraceLoad, WhatIfError, simulate_server};
use serde_json::{Value, json};

use crate::args::WhatIfArgs;
use crate::failure::UsageError;
use crate::format::{self, TextTable};
use crate::machine::{memory_bytes, within_memory};
use crate::rings::parse_size;
use crate::run::CommandRun;
use crate::trace_dirs::{recover, trace_path};

/// `frieze what-if --as-server`.
pub(super) fn as_server(run: &mut CommandRun, args: &WhatIfArgs) -> Result<()> {
    let young = args.young.as_deref().map(young_share).transpose()?;
    let given = args.memory.as_deref().map(|text| memory_of(text, young)).transpose()?;
    let path = trace_path(args.trace.as_deref())?;
    recover(run, std::slice::from_ref(&path))?;
    let trace = TraceLoad::open(&path)?;
    within_memory(trace.memory_bytes())?;
    let scale = args.scale.unwrap_or(trace.one_in());
    let in_trace = || format!("trace {}", format::local(&path));
    let device = DeviceReplay::of(&trace).with_context(in_trace)?;
    let load = match trace.read_apart() {
        // A recording of a server alone has no calls of users.
        Err(WhatIfError::EmptyTrace) if device.is_some() => None,
        load => Some(load.with_context(in_trace)?),
    };
    // That of the machine whose load this is; a trace of one in so many files gets as large a part of it.
    let (memory, source) = match (given, &device) {
        (Some(memory), _) => (memory, MemorySource::Given),
        (None, Some(device)) => (split_anew(device.memory, young), MemorySource::Recorded),
        (None, None) => {
            let demand = MemoryDemand { machine: memory_bytes()?, ..MemoryDemand::default() };
            (split_anew(ServerMemory::of_shares(&demand.divide()?), young), MemorySource::Machine)
        }
    };
    let records_bytes = memory.young_bytes + memory.old_bytes;
    let mut tried = vec![memory];
    tried.extend(SPLITS.map(|share| ServerMemory::split(records_bytes, share)));
    let shrunk: Vec<ServerMemory> = tried.iter().map(|memory| memory.shrunk(scale)).collect();
    let hits = load.as_ref().map(|load| simulate_server(load, &shrunk)).unwrap_or_default();
    let mut assumptions = assumptions(device.as_ref());
    if let Some(load) = &load {
        assumptions.extend(load.assumptions().iter().cloned());
    }
    let answer = ServerAnswer { memory, source, scale, device, hits, assumptions };
    if run.json() {
        return run.print_json(answer.json(&path));
    }
    answer.lines().iter().try_for_each(|line| run.print(line))
}

/// Where the sizes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemorySource {
    Given,
    Recorded,
    Machine,
}

struct ServerAnswer {
    memory: ServerMemory,
    source: MemorySource,
    scale: u32,
    device: Option<DeviceReplay>,
    /// Under the calls of users: of the memory, then of each split; none if the trace has no such calls.
    hits: Vec<ServerHits>,
    assumptions: Vec<String>,
}

impl ServerAnswer {
    fn lines(&self) -> Vec<String> {
        let size = format::size;
        let whence = match self.source {
            MemorySource::Given => "as given",
            MemorySource::Recorded => "as the recorded server had it",
            MemorySource::Machine => "as a server on this machine has it",
        };
        let scaled = if self.scale > 1 { format!(", each divided by {}", self.scale) } else { String::new() };
        let mut lines = vec![format!(
            "Memory for records: {} for the youngest, {} for older ones, {whence}{scaled}",
            size(self.memory.young_bytes),
            size(self.memory.old_bytes)
        )];
        let mut table = TextTable::new(&[false, true, true, true, true, true]);
        table.row(["", "ASKED FOR", "YOUNG", "OLD, RANDOM", "OLD, SCANNED", "ALL FOUND"].map(str::to_owned));
        let mut row = |name: &str, hits: &ServerHits| {
            table.row([
                name.to_owned(),
                size(hits.asked_bytes() + hits.ahead.asked_bytes()),
                percent(hits.young_share()),
                of_bytes(hits.wanted),
                of_bytes(hits.scanned),
                percent(hits.found_share()),
            ]);
        };
        if let Some(hits) = self.hits.first() {
            row("predicted from the users' calls", hits);
        }
        if let Some(device) = &self.device {
            row("predicted from the device's events", &device.simulated);
            row("counted by the server", &device.counted);
        }
        lines.extend(table.lines());
        if let [_, splits @ ..] = &self.hits[..]
            && !splits.is_empty()
        {
            lines.push(String::new());
            let mut table = TextTable::new(&[true, true, true]);
            table.row(["YOUNG PART", "FROM MEMORY", "WAITED FOR"].map(str::to_owned));
            for (share, hits) in SPLITS.iter().zip(splits) {
                table.row([
                    format!("{:.0} %", share * 100.0),
                    percent(hits.served_share()),
                    percent(hits.waited_share()),
                ]);
            }
            lines.extend(table.lines());
        }
        lines.push(String::new());
        lines.push("It assumes:".to_owned());
        lines.extend(self.assumptions.iter().map(|words| format!("  {words}")));
        lines
    }

    fn json(&self, trace: &Path) -> Value {
        let splits = SPLITS.iter().zip(self.hits.iter().skip(1)).map(|(share, hits)| {
            let mut of_split = hits_json(hits);
            of_split["young_part"] = json!(share);
            of_split
        });
        json!({
            "trace": format::local(trace),
            "scale": self.scale,
            "young_bytes": self.memory.young_bytes,
            "old_bytes": self.memory.old_bytes,
            "memory": match self.source {
                MemorySource::Given => "given",
                MemorySource::Recorded => "recorded",
                MemorySource::Machine => "machine",
            },
            "calls": self.hits.first().map(hits_json),
            "device": self.device.as_ref().map(|device| json!({
                "fetches": device.fetches, "simulated": hits_json(&device.simulated),
                "counted": hits_json(&device.counted),
            })),
            "splits": splits.collect::<Vec<_>>(),
            "assumptions": self.assumptions,
        })
    }
}

fn hits_json(hits: &ServerHits) -> Value {
    let counts = |of: &HitCounts| {
        let HitCounts { hit_bytes, missed_bytes } = of;
        json!({ "hit_bytes": hit_bytes, "missed_bytes": missed_bytes, "ratio": of.ratio() })
    };
    json!({
        "asked_bytes": hits.asked_bytes(), "young_bytes": hits.young_bytes, "wanted": counts(&hits.wanted),
        "scanned": counts(&hits.scanned), "ahead": counts(&hits.ahead), "evicted": hits.evicted,
        "young_share": hits.young_share(), "found_share": hits.found_share(), "served_share": hits.served_share(),
        "waited_share": hits.waited_share(),
    })
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn of_bytes(counts: HitCounts) -> String {
    match counts.ratio() {
        None => "-".to_owned(),
        Some(ratio) => format!("{:.1} % of {}", ratio * 100.0, format::size(counts.asked_bytes())),
    }
}

fn assumptions(device: Option<&DeviceReplay>) -> Vec<String> {
    let mut all = vec![
        "what is written is durable at once; removed files keep their place in the log, as history".to_owned(),
        "the programs of a machine that read a file are one reader; reads of the past are reads of now".to_owned(),
        "reads of index runs, images and other servers are not in it, except among the device's events".to_owned(),
    ];
    match device {
        None => all.push("the trace has no events of a server's device: nothing was counted by one".to_owned()),
        Some(_) => {
            all.push("the device's events begin with nothing of the older records in memory".to_owned());
            all.push("the device's events do not say what was read ahead: it is among what was read".to_owned());
        }
    }
    all
}

/// The memory for records of a server with so many bytes for everything.
fn memory_of(text: &str, young: Option<f64>) -> Result<ServerMemory> {
    let total =
        parse_size(text).ok_or_else(|| UsageError(format!("--memory {text}: give a size, such as 512M or 8G")))?;
    let shares = MemoryDemand { total: Some(total), ..MemoryDemand::default() }.divide();
    let shares = shares.map_err(|error| UsageError(format!("--memory {text}: {error}")))?;
    Ok(split_anew(ServerMemory::of_shares(&shares), young))
}

fn split_anew(memory: ServerMemory, young: Option<f64>) -> ServerMemory {
    young.map_or(memory, |share| ServerMemory::split(memory.young_bytes + memory.old_bytes, share))
}

/// `0.25`, or `25%`.
fn young_share(text: &str) -> Result<f64> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number.trim(), 100.0));
    let share = number.parse().ok().map(|number: f64| number / unit).filter(|share| (0.0..=1.0).contains(share));
    Ok(share.ok_or_else(|| UsageError(format!("--young {text}: give a part of the memory, such as 0.25 or 25%")))?)
}

/// Parts for young records that are tried beside.
const SPLITS: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_number_or_a_percentage() {
        let part = |text: &str| young_share(text).ok();
        assert_eq!(["0.25", "25%", "25 %", "0", "1", "100%"].map(part), [0.25, 0.25, 0.25, 0.0, 1.0, 1.0].map(Some));
        assert_eq!(["", "%", "-1", "1.5", "150%", "NaN", "half", "1e30"].map(part), [None; 8]);
    }

    #[test]
    fn memory_is_divided_as_a_server_divides_it() {
        let memory = memory_of("512M", None).unwrap();
        let shares = MemoryDemand { total: Some(512 << 20), ..MemoryDemand::default() }.divide().unwrap();
        assert_eq!((memory.young_bytes, memory.old_bytes), (shares.young, shares.old));
        let uneven = memory_of("512M", Some(0.1)).unwrap();
        assert_eq!(uneven.young_bytes + uneven.old_bytes, shares.young + shares.old);
        assert!(uneven.young_bytes < shares.young / 2);
        let words = |text: &str| memory_of(text, None).unwrap_err().to_string();
        assert_eq!(words("much"), "--memory much: give a size, such as 512M or 8G");
        assert!(words("1M").contains("are too little"), "{}", words("1M"));
    }
}
