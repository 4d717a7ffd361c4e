//! `trace`: rings of recorded calls.

use std::path::Path;

use anyhow::Result;
use frieze_trace::{Event, RingContent, Summary, read_ring};
use serde_json::json;

use crate::args::{TraceCommand, TraceListArgs, TraceSummaryArgs};
use crate::format::{self, TextTable};
use crate::rings::{named_rings, none_found, rings_dir, rings_in};
use crate::run::CommandRun;
use crate::trace_dirs;

/// `frieze trace`.
pub(crate) fn trace(run: &mut CommandRun, command: &TraceCommand) -> Result<()> {
    match command {
        TraceCommand::List(TraceListArgs {}) => list(run),
        TraceCommand::Summary(args) => summary(run, args),
        TraceCommand::Save(args) => trace_dirs::save(run, args),
        TraceCommand::Export(args) => trace_dirs::export(run, args),
        TraceCommand::Import(args) => trace_dirs::import(run, args),
    }
}

fn list(run: &mut CommandRun) -> Result<()> {
    let dir = rings_dir(run.common.trace_dir.as_deref())?;
    let rings = rings_in(&dir)?;
    if rings.is_empty() {
        run.say(&none_found(&dir));
    }
    let mut table = TextTable::new(&[false, false, true, true, false, false]);
    table.row(["RING", "PROGRAM", "EVENTS", "OVERWRITTEN", "FIRST", "STATE"].map(str::to_owned));
    let mut any = false;
    for path in rings {
        let content = match read_ring(&path) {
            Ok(content) => content,
            Err(error) => {
                run.report(&format::local(&path), error.into())?;
                continue;
            }
        };
        let RingContent { program, process, events, overwritten, torn, .. } = &content;
        let is_running = Path::new(&format!("/proc/{process}")).exists();
        let name = path.file_name().map(|name| format::local(Path::new(name))).unwrap_or_default();
        let (first, last) = (events.first().map(start), events.last().map(start));
        if run.json() {
            run.print_json(json!({
                "ring": format::local(&path), "program": program, "pid": process, "running": is_running,
                "events": events.len(), "overwritten": overwritten, "torn": torn, "first": first, "last": last,
            }))?;
            continue;
        }
        any = true;
        let state = if is_running { "running" } else { "ended" };
        table.row([
            name,
            format::printable(format::program(program).as_bytes()),
            events.len().to_string(),
            overwritten.to_string(),
            first.unwrap_or_default(),
            state.to_owned(),
        ]);
    }
    if any { table.lines().try_for_each(|line| run.print(&line)) } else { Ok(()) }
}

fn start(event: &Event) -> String {
    format::time_ns(event.start_ns / 1000 * 1000)
}

fn summary(run: &mut CommandRun, args: &TraceSummaryArgs) -> Result<()> {
    let paths = named_rings(&run.common, &args.rings)?;
    let mut rings: Vec<RingContent> = Vec::with_capacity(paths.len());
    for path in &paths {
        match read_ring(path) {
            Ok(ring) => rings.push(ring),
            // One that was never whole says nothing about the others.
            Err(error) if paths.len() > 1 => run.say(&format!("note: left out: {error}")),
            Err(error) => return Err(error.into()),
        }
    }
    let summary = Summary::of(rings.iter().flat_map(|ring| &ring.events));
    let indexes: Vec<_> = rings.iter().map(RingContent::paths).collect();
    let path_of = |hash: u64| indexes.iter().find_map(|index| index.path_of(hash));
    let count = |of: fn(&RingContent) -> u64| rings.iter().map(of).sum::<u64>();
    let (overwritten, torn) = (count(|ring| ring.overwritten), count(|ring| ring.torn));
    let (events, unknown) = (count(|ring| ring.events.len() as u64), count(|ring| ring.unknown));
    let span = summary.span_ns.map(|(first, last)| (format::time_ns(first), format::time_ns(last)));
    let files = summary.top_files(args.top);
    if run.json() {
        let calls = summary.calls.iter().map(|((gateway, call), of)| {
            json!({
                "gateway": gateway.name(), "call": call.name(), "count": of.count, "failed": of.failed,
                "bytes": of.bytes, "p50_ns": of.duration_ns(50.0), "p90_ns": of.duration_ns(90.0),
                "p99_ns": of.duration_ns(99.0), "max_ns": of.duration_ns(100.0),
            })
        });
        let files = files.iter().map(|(inode, file)| {
            let path = path_of(file.path).map(|path| format::printable(&path));
            json!({ "inode": inode, "path": path, "read": file.read, "written": file.written })
        });
        return run.print_json(json!({
            "rings": paths.iter().map(|path| format::local(path)).collect::<Vec<_>>(), "events": events,
            "overwritten": overwritten, "torn": torn, "unknown": unknown,
            "first": span.as_ref().map(|span| &span.0), "last": span.as_ref().map(|span| &span.1),
            "calls": calls.collect::<Vec<_>>(), "files": files.collect::<Vec<_>>(),
        }));
    }
    let Some((first, last)) = span else {
        return run.print("no calls: nothing was recorded yet");
    };
    run.print(&format!("{} from {first} to {last}", format::count(events, "event")))?;
    if overwritten > 0 {
        run.print(&format!("{} written over: a larger ring keeps more", format::count(overwritten, "older slot")))?;
    }
    if torn + unknown > 0 {
        run.print(&format!("{torn} torn and {unknown} unknown slots are left out"))?;
    }
    let mut table = TextTable::new(&[false, false, true, true, true, true, true, true]);
    table.row(["GATEWAY", "CALL", "COUNT", "FAILED", "BYTES", "P50", "P99", "MAX"].map(str::to_owned));
    for ((gateway, call), of) in &summary.calls {
        let time = |percent| duration(of.duration_ns(percent));
        let bytes = if call.moves_bytes() { format::human(of.bytes) } else { String::new() };
        table.row([
            gateway.name().to_owned(),
            call.name().to_owned(),
            of.count.to_string(),
            of.failed.to_string(),
            bytes,
            time(50.0),
            time(99.0),
            time(100.0),
        ]);
    }
    table.lines().try_for_each(|line| run.print(&line))?;
    if files.is_empty() {
        return Ok(());
    }
    run.print("")?;
    let mut table = TextTable::new(&[true, true, true, false]);
    table.row(["READ", "WRITTEN", "INODE", "PATH"].map(str::to_owned));
    for (inode, file) in files {
        let path = path_of(file.path).map(|path| format::printable(&path)).unwrap_or_default();
        table.row([format::human(file.read), format::human(file.written), inode.to_string(), path]);
    }
    table.lines().try_for_each(|line| run.print(&line))
}

/// `12.3 us`.
fn duration(ns: u32) -> String {
    match ns {
        u32::MAX => "> 4.29 s".to_owned(),
        ns if ns < 1_000_000 => format!("{:.1} us", f64::from(ns) / 1e3),
        ns if ns < 1_000_000_000 => format!("{:.1} ms", f64::from(ns) / 1e6),
        ns => format!("{:.2} s", f64::from(ns) / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_or_so() {
        assert_eq!(
            [500, 12_345, 1_500_000, 2_000_000_000, u32::MAX].map(duration),
            ["0.5 us", "12.3 us", "1.5 ms", "2.00 s", "> 4.29 s"]
        );
    }
}
