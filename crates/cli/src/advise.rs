//! `advise`: what would help a recorded load, the command for it, the gain and how sure it is. Changes nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use frieze_client::Client;
use frieze_tracefile::{Manifest, TraceWriter};
use frieze_whatif::{Advice, AdvisedServer, LoadFacts, TraceLoad, advise as advise_on};
use serde_json::json;

use crate::args::AdviseArgs;
use crate::failure::UsageError;
use crate::format;
use crate::machine::{memory_bytes, within_memory};
use crate::rings::{named_rings, parse_size};
use crate::run::CommandRun;
use crate::trace_dirs::{add_rings, recover};

/// How long the server is asked for its memory.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Memory that a machine gives a server at most, percent.
const MEMORY_PERCENT_MAX: u64 = 80;
/// The smallest `--memory`.
const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// `frieze advise`.
pub(crate) fn advise(run: &mut CommandRun, args: &AdviseArgs) -> Result<()> {
    let given = match &args.memory {
        None => None,
        Some(text) => {
            let bytes = parse_size(text).filter(|bytes| *bytes >= MEMORY_BYTES_MIN);
            Some(bytes.ok_or_else(|| UsageError(format!("--memory {text}: give a size from 64M on, such as 8G")))?)
        }
    };
    let (dir, is_ours) = match &args.trace {
        Some(trace) => (trace.clone(), false),
        None => (save_rings(run)?, true),
    };
    let advised = advise_from(run, &dir, given, is_ours);
    if is_ours {
        // What cannot be removed is in the directory of temporary files.
        drop(std::fs::remove_dir_all(&dir));
    }
    advised
}

/// The rings of this user as a trace among the temporary files.
fn save_rings(run: &mut CommandRun) -> Result<PathBuf> {
    let rings = named_rings(&run.common, &[])?;
    let dir = std::env::temp_dir().join(format!("frieze-advise-{}", std::process::id()));
    let trace = TraceWriter::create(&dir, Manifest::new("ring"))?;
    add_rings(run, trace, &rings, i64::MIN)?;
    Ok(dir)
}

fn advise_from(run: &mut CommandRun, dir: &Path, given: Option<u64>, is_ours: bool) -> Result<()> {
    recover(run, &[dir.to_owned()])?;
    let in_trace = || if is_ours { "the rings".to_owned() } else { format!("trace {}", format::local(dir)) };
    let trace = TraceLoad::open(dir).with_context(in_trace)?;
    within_memory(trace.memory_bytes())?;
    let load = trace.read_apart().with_context(in_trace)?;
    let facts = LoadFacts::read(trace.reader()).with_context(in_trace)?;
    let machine_bytes = memory_bytes()?;
    let said = if given.is_some() { None } else { ask_server(run) };
    let (memory_bytes, source) = match (given, &said) {
        (Some(bytes), _) => (bytes, "as --memory says"),
        (None, Some((bytes, _))) => (*bytes, "as the server says"),
        (None, None) => (machine_bytes / 2, "half of this machine's: no server answers"),
    };
    let server = AdvisedServer {
        memory_bytes,
        memory_bytes_max: (machine_bytes / 100 * MEMORY_PERCENT_MAX).max(memory_bytes),
        young_share: said.and_then(|(_, share)| share),
        one_in: trace.one_in(),
    };
    let advice = advise_on(&load, &facts, &server);
    if run.json() {
        return advice.iter().try_for_each(|advice| run.print_json(to_json(advice)));
    }
    let calls = format::count(load.calls().len() as u64, "read or write");
    run.print(&format!("{calls}; a server with {}, {source}", format::size(memory_bytes)))?;
    lines(&advice).iter().try_for_each(|line| run.print(line))
}

/// The memory of the server that answers, bytes, and the part of that for records that young ones have.
fn ask_server(run: &CommandRun) -> Option<(u64, Option<f64>)> {
    let options = run.options_unrecorded().ok()?;
    let client = Client::connect(frieze_client::Options { timeout: SERVER_TIMEOUT, ..options }).ok()?;
    let memory = client.status().ok()?.memory?;
    let records = memory.young_bytes_max + memory.old_bytes_max;
    let share = (records > 0).then(|| memory.young_bytes_max as f64 / records as f64);
    Some((memory.bytes_max, share))
}

fn to_json(advice: &Advice) -> serde_json::Value {
    json!({
        "topic": advice.topic.name(), "change": advice.change, "gain": advice.gain, "points": advice.points,
        "command": advice.command, "confidence": advice.confidence.name(), "because": advice.because,
    })
}

fn lines(advice: &[Advice]) -> Vec<String> {
    let mut lines = Vec::new();
    for advice in advice {
        let Some(change) = &advice.change else { continue };
        lines.extend([String::new(), format!("{}: {change}", advice.topic.name())]);
        lines.push(format!("  gain     {}", advice.gain));
        if let Some(command) = &advice.command {
            lines.push(format!("  how      {command}"));
        }
        lines.push(format!("  sure     {}: {}", advice.confidence.name(), advice.because));
    }
    let idle: Vec<&Advice> = advice.iter().filter(|advice| advice.change.is_none()).collect();
    if !idle.is_empty() {
        lines.extend([String::new(), "Nothing to gain:".to_owned()]);
        lines.extend(idle.iter().map(|advice| format!("  {:18} {}", advice.topic.name(), advice.gain)));
    }
    lines
}
