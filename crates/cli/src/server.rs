//! `status` and `time`: the state of a server, and where data keeps its own time.

use std::ffi::OsString;

use anyhow::{Error, Result};
use frieze_base::{Fault, Reason};
use frieze_client::{FabricStatus, FileKind, Hlc, ImageStatus, MemoryUse, StatusReply, Trouble, XattrMode};
use serde_json::{Value, json};

use crate::args;
use crate::copy::{self, target};
use crate::entry;
use crate::failure::ReportedError;
use crate::format::{self, TextTable};
use crate::path::FsPath;
use crate::run::CommandRun;

/// Extended attribute that binds a time plug-in to a directory.
const TIME_XATTR: &[u8] = b"user.frieze.time";

/// `frieze status`.
pub(crate) fn status(run: &mut CommandRun) -> Result<()> {
    let client = run.client()?;
    let (status, server) = (client.status()?, client.options().server.to_string());
    let healthy = status.health == "healthy" && !status.fenced;
    if run.json() {
        let item = status_to_json(&server, &status, healthy);
        run.print_json(item)?;
    } else {
        status_table(&server, &status).lines().try_for_each(|line| run.print(&line))?;
    }
    // The status shows it already: a script gets it by the exit status.
    if healthy { Ok(()) } else { Err(ReportedError.into()) }
}

/// `frieze sync`.
pub(crate) fn sync(run: &mut CommandRun, args: &args::SyncArgs) -> Result<()> {
    args.no_past.refuse()?;
    let root = [OsString::from("/")];
    let paths = copy::parse_all(if args.paths.is_empty() { &root } else { &args.paths })?;
    let fs = run.fs()?;
    let mut there = Vec::new();
    for path in paths {
        match fs.stat(&target(&path, true)) {
            Ok(_) => there.push(path),
            Err(error) => run.report(&path.to_string(), error.into())?,
        }
    }
    if there.is_empty() {
        return Ok(());
    }
    fs.sync_all()?;
    // Of the server that was asked to make everything durable.
    let durable = Hlc(run.client()?.status_of_leader()?.durable);
    run.say_more(&format!("everything up to {durable} ({}) is on stable storage", format::time_of(durable)));
    for path in there {
        run.item(|| json!({ "path": path.to_string(), "durable": durable.to_string() }), || None)?;
    }
    Ok(())
}

fn status_to_json(server: &str, status: &StatusReply, healthy: bool) -> Value {
    let stamp = |stamp: u64| Hlc(stamp).to_string();
    let time = |stamp: u64| format::time_of(Hlc(stamp));
    let known = |stamp: u64| (stamp != 0).then_some(stamp);
    let gaps: Vec<Value> = status
        .gaps
        .iter()
        .map(|gap| {
            let (from, to) = (gap.from, gap.to);
            json!({ "from": stamp(from), "from_time": time(from), "to": stamp(to), "to_time": time(to) })
        })
        .collect();
    let told = status.images.as_deref().copied().unwrap_or_default();
    let images = json!({
        "count": told.count,
        "bytes": told.bytes,
        "bytes_max": told.bytes_max,
        "pieces_max": told.pieces_max,
        "pieces_most": told.pieces_most,
        "looked_upto": known(told.looked_upto).map(stamp),
        "looked_upto_time": known(told.looked_upto).map(time),
        "wishes": told.wishes,
        "lost": told.lost,
    });
    let troubles = troubles_to_json(&status.troubles);
    let mut item = json!({
        "health": status.health,
        "healthy": healthy,
        "troubles": troubles,
        "fenced": status.fenced,
        "server": server,
        "software": status.software,
        "cluster": status.cluster,
        "uptime_ms": status.uptime_ms,
        "clock_error_us": format::precision_json(status.clock_error_us),
        "newest": stamp(status.newest),
        "newest_time": time(status.newest),
        "earliest": stamp(status.earliest),
        "earliest_time": time(status.earliest),
        "stable": stamp(status.stable),
        "stable_time": time(status.stable),
        "durable": stamp(status.durable),
        "durable_time": time(status.durable),
        "dirty_bytes": status.dirty_bytes,
        "dirty_age_ms": status.dirty_age_ms,
        "flushes": status.flushes,
        "flush_bytes_median": status.flush_bytes_median,
        "capacity_bytes": status.capacity_bytes,
        "free_bytes": status.free_bytes,
        "log_bytes": status.log_bytes,
        "forgotten_bytes": status.forgotten_bytes,
        "forgotten_waiting_bytes": status.forgotten_waiting_bytes,
        "packs": status.thinned.as_ref().map_or(0, |thinned| thinned.packs),
        "packed_bytes": status.thinned.as_ref().map_or(0, |thinned| thinned.packed_bytes),
        "unpacked_dead_bytes": status.thinned.as_ref().map_or(0, |thinned| thinned.unpacked_dead_bytes),
        "thinning_files_left": status.thinned.as_ref().map_or(0, |thinned| thinned.files_left),
        "index_bytes": status.index_bytes,
        "index_bytes_max": status.index_bytes_max,
        "shelved_records": status.shelved_records,
        "shelf_bytes": status.shelf_bytes,
        "records": status.records,
        "inodes": status.inodes,
        "sessions": status.sessions,
        "connections": status.connections,
        "metalog_index": status.metalog_index,
        "resident_bytes": status.resident_bytes,
        "resident_bytes_peak": status.resident_bytes_peak,
        "cpu_ns": status.cpu_ns,
        "damaged": status.damaged,
        "corrupt_reads": status.corrupt_reads,
        "scrub_due": known(status.scrub_due).map(stamp),
        "scrub_due_time": known(status.scrub_due).map(time),
        "scrubbed": known(status.scrubbed).map(stamp),
        "scrubbed_time": known(status.scrubbed).map(time),
        "last_whole": known(status.last_whole).map(stamp),
        "last_whole_time": known(status.last_whole).map(time),
        "gaps": gaps,
    });
    item["images"] = images;
    item["fabric"] = json!(status.fabric.as_deref().map(fabric_to_json));
    item["memory"] = json!(status.memory.as_deref().map(memory_to_json));
    item
}

fn fabric_to_json(fabric: &FabricStatus) -> Value {
    json!({
        "provider": known_text(&fabric.provider),
        "trouble": known_text(&fabric.trouble),
        "writes": fabric.writes,
        "reads": fabric.reads,
        "server_reads": fabric.server_reads,
        "bytes": fabric.bytes,
        "failures": fabric.failures,
        "registered_bytes": fabric.registered_bytes,
        "registrations": fabric.registrations,
    })
}

fn known_text(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// How large payloads travel, in words for people.
fn fabric_row(fabric: Option<&FabricStatus>) -> String {
    match fabric {
        Some(fabric) if !fabric.provider.is_empty() => {
            let transfers = fabric.writes + fabric.reads + fabric.server_reads;
            let failed = match fabric.failures {
                0 => String::new(),
                failures => format!(", {} failed and went by TCP", format::count(failures, "transfer")),
            };
            format!(
                "{} where the other end has it: {} of {}{failed}; {} registered",
                fabric.provider,
                format::count(transfers, "transfer"),
                format::size(fabric.bytes),
                format::size(fabric.registered_bytes)
            )
        }
        _ => "TCP".to_owned(),
    }
}

fn memory_to_json(memory: &MemoryUse) -> Value {
    json!({
        "bytes_max": memory.bytes_max,
        "program_bytes_max": memory.program_bytes_max,
        "store_bytes_max": memory.store_bytes_max,
        "files_bytes_max": memory.files_bytes_max,
        "files_bytes": memory.files_bytes,
        "names_bytes_max": memory.names_bytes_max,
        "names_bytes": memory.names_bytes,
        "names_cold_bytes": memory.names_cold_bytes,
        "names_loads": memory.names_loads,
        "dirty_bytes_max": memory.dirty_bytes_max,
        "young_bytes_max": memory.young_bytes_max,
        "young_bytes": memory.young_bytes,
        "old_bytes_max": memory.old_bytes_max,
        "old_bytes": memory.old_bytes,
        "wanted_hit_bytes": memory.wanted_hit_bytes,
        "wanted_missed_bytes": memory.wanted_missed_bytes,
        "scanned_hit_bytes": memory.scanned_hit_bytes,
        "scanned_missed_bytes": memory.scanned_missed_bytes,
        "ahead_bytes": memory.ahead_bytes,
        "admitted": memory.admitted,
        "evicted": memory.evicted,
        "refused": memory.refused,
        "healed": memory.healed,
        "unbounded": memory.unbounded,
    })
}

/// Troubles, for programs.
pub(crate) fn troubles_to_json(troubles: &[Trouble]) -> Vec<Value> {
    troubles.iter().map(|trouble| json!({ "what": trouble.what, "remedy": trouble.remedy })).collect()
}

/// The memory in words for people: its limit, its content, and the hit rates.
fn memory_rows(memory: &MemoryUse) -> Vec<(&'static str, String)> {
    let size = format::size;
    let unbounded = if memory.unbounded { "; the system does not let go of all it should" } else { "" };
    let parts = format!(
        "not yet on disk {}, names {}, their history {}, program {}",
        size(memory.dirty_bytes_max),
        size(memory.names_bytes_max),
        size(memory.store_bytes_max + memory.files_bytes_max),
        size(memory.program_bytes_max)
    );
    let found = |hit: u64, missed: u64| match hit + missed {
        0 => "nothing asked for".to_owned(),
        all => format!("{:.1} % of {} found there", hit as f64 * 100.0 / all as f64, size(all)),
    };
    let mut rows = vec![
        ("memory", format!("{} at most{unbounded}: {parts}", size(memory.bytes_max))),
        (
            "names",
            format!(
                "{} of {}, {} more on disk, {} read again",
                size(memory.names_bytes),
                size(memory.names_bytes_max),
                size(memory.names_cold_bytes),
                memory.names_loads
            ),
        ),
        ("young", format!("{} of {} of the newest records", size(memory.young_bytes), size(memory.young_bytes_max))),
        (
            "old",
            format!(
                "{} of {}, {}; by scans {}, {} ahead",
                size(memory.old_bytes),
                size(memory.old_bytes_max),
                found(memory.wanted_hit_bytes, memory.wanted_missed_bytes),
                found(memory.scanned_hit_bytes, memory.scanned_missed_bytes),
                size(memory.ahead_bytes)
            ),
        ),
    ];
    if memory.refused > 0 {
        rows.push(("refused", format!("{} parts of older records: their share is too small", memory.refused)));
    }
    if memory.healed > 0 {
        let times = format::count(memory.healed, "time");
        rows.push(("healed", format!("memory held wrong bytes {times}, the disk the right ones: test the memory")));
    }
    rows
}

fn status_table(server: &str, status: &StatusReply) -> TextTable {
    let at = |stamp: u64| format!("{}  {}", format::time_of(Hlc(stamp)), Hlc(stamp));
    let mut table = TextTable::new(&[true, false]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    match &status.troubles[..] {
        [] if status.gaps.is_empty() => row("health", status.health.clone()),
        // Nothing is left to do about a loss of before; that there was one stays true.
        [] => row("health", format!("{}; what was acknowledged in a gap may be missing (below)", status.health)),
        troubles => {
            for (place, trouble) in troubles.iter().enumerate() {
                row(if place == 0 { "health" } else { "and" }, trouble.what.clone());
                row("remedy", trouble.remedy.clone());
            }
        }
    }
    row("server", format!("{server}, {}, up {}", status.software, format::duration_ms(status.uptime_ms)));
    row("cluster", status.cluster.clone());
    row("clock", format::precision(status.clock_error_us));
    row("newest", at(status.newest));
    row("stable", at(status.stable));
    row("earliest", at(status.earliest));
    let dirty = match status.dirty_bytes {
        0 => "nothing waits to be written to disk".to_owned(),
        bytes => format!(
            "{} acknowledged and not yet on disk, for {}",
            format::size(bytes),
            format::duration_ms(status.dirty_age_ms)
        ),
    };
    row("durable", format!("{}, {dirty}", at(status.durable)));
    row("space", format!("{} free of {}", format::size(status.free_bytes), format::size(status.capacity_bytes)));
    row(
        "history",
        format!(
            "{} in {} records, metalog at {}",
            format::size(status.log_bytes),
            status.records,
            status.metalog_index
        ),
    );
    let memory = format!("{} of {} of memory", format::size(status.index_bytes), format::size(status.index_bytes_max));
    let over =
        if status.index_bytes > status.index_bytes_max { " (more than it may: see index_bytes_max)" } else { "" };
    let shelved = format!("{} on disk for {} records", format::size(status.shelf_bytes), status.shelved_records);
    row("index", format!("{memory}{over}, {shelved}"));
    if let Some(memory) = &status.memory {
        for (name, value) in memory_rows(memory) {
            row(name, value);
        }
    }
    row("images", images(&status.images.as_deref().copied().unwrap_or_default()));
    if status.forgotten_bytes > 0 {
        let waiting = match status.forgotten_waiting_bytes {
            0 => String::new(),
            bytes => format!(", {} of it not given back yet", format::size(bytes)),
        };
        row("forgotten", format!("{} of the history{waiting}", format::size(status.forgotten_bytes)));
    }
    if let Some(thinned) = &status.thinned {
        let packs = format!("{} in {}", format::size(thinned.packed_bytes), format::count(thinned.packs, "pack"));
        let left = match thinned.files_left {
            0 => String::new(),
            files => format!("; {} still to look at", format::count(files, "file")),
        };
        let dead = format::size(thinned.unpacked_dead_bytes);
        row("thinned", format!("{packs}; {dead} died since, and are not packed{left}"));
    }
    if status.scrub_all_bytes > 0 {
        let (done, all) = (status.scrub_done_bytes, status.scrub_all_bytes);
        row("scrub", format!("under way, {} of {} looked at", format::size(done), format::size(all)));
    }
    let next = match status.scrub_due {
        0 => String::new(),
        due => format!(", the next begins by {}", format::time_of(Hlc(due))),
    };
    match (status.scrubbed, next.is_empty()) {
        (0, true) => {}
        (0, false) => row("scrubbed", format!("never{next}")),
        (scrubbed, _) => {
            let found = match status.damaged {
                0 => "no damage is known".to_owned(),
                places => format!("{} known", format::count(places, "damaged place")),
            };
            row("scrubbed", format!("{}, {found}{next}", at(scrubbed)));
        }
    }
    if status.corrupt_reads > 0 {
        let reads = format::count(status.corrupt_reads, "read");
        row("refused", format!("{reads} since the start, because what is stored is damaged"));
    }
    row("files", format!("{} inodes", status.inodes));
    row(
        "clients",
        format!("{}, {}", format::count(status.sessions, "session"), format::count(status.connections, "connection")),
    );
    row("payloads", fabric_row(status.fabric.as_deref()));
    row(
        "process",
        format!(
            "{} of memory, {} at most, {} of processor",
            format::size(status.resident_bytes),
            format::size(status.resident_bytes_peak),
            format::duration_ms(status.cpu_ns / 1_000_000)
        ),
    );
    if status.last_whole != 0 {
        row("last whole", at(status.last_whole));
    }
    for gap in &status.gaps {
        row("gap", format!("{} to {}", at(gap.from), at(gap.to)));
    }
    table
}

/// Number and cost of images, and the largest number of pieces of a page.
fn images(told: &ImageStatus) -> String {
    let space = format!("{} of {}", format::size(told.bytes), format::size(told.bytes_max));
    let mut words = format!("{} in {space}", told.count);
    if told.looked_upto != 0 {
        let (most, wanted) = (told.pieces_most, told.pieces_max);
        let upto = format::time_of(Hlc(told.looked_upto));
        words += &format!("; no page consists of more than {most} pieces at any instant up to {upto}");
        words += &match most > wanted {
            true => format!(" ({wanted} are wanted: there is not space enough for all images)"),
            false => format!(" ({wanted} are wanted)"),
        };
    }
    if told.wishes > 0 {
        words += &format!("; {} wanted by readers", told.wishes);
    }
    if told.lost > 0 {
        words += &format!("; {} found damaged and dropped, with no loss", told.lost);
    }
    words
}

/// `frieze time`.
pub(crate) fn time(run: &mut CommandRun, command: &args::TimeCommand) -> Result<()> {
    match command {
        args::TimeCommand::Bind { path, spec } => {
            let path = FsPath::parse(path)?;
            let bound = bind(run, &path, Some(spec));
            said(run, &path, bound, Some(spec))
        }
        args::TimeCommand::Unbind { path } => {
            let path = FsPath::parse(path)?;
            let unbound = bind(run, &path, None);
            said(run, &path, unbound, None)
        }
        args::TimeCommand::Show { paths, past } => {
            let paths = copy::parse_all(paths)?;
            let fs = run.view(past)?;
            for path in &paths {
                match fs.stat(&target(path, true)) {
                    Ok(reply) => {
                        run.note_answered(&reply.answered);
                        let plugin = entry::plugin(&reply.attr);
                        run.item(
                            || json!({ "path": path.to_string(), "time_plugin": plugin }),
                            || Some(format!("{path}: {}", plugin.unwrap_or("no time of its own"))),
                        )?;
                    }
                    Err(error) => run.report(&path.to_string(), error.into())?,
                }
            }
            Ok(())
        }
    }
}

fn bind(run: &mut CommandRun, path: &FsPath, spec: Option<&String>) -> Result<()> {
    let fs = run.fs()?;
    let directory = target(path, true);
    if fs.stat(&directory)?.attr.kind() != FileKind::Directory {
        return Err(Fault::new(Reason::NotDirectory, "not a directory: a time plug-in is bound to one").into());
    }
    match spec {
        Some(spec) => fs.set_xattr(&directory, TIME_XATTR, spec.as_bytes(), XattrMode::Any).map(drop)?,
        None => match fs.remove_xattr(&directory, TIME_XATTR) {
            Err(error) if error.reason() == Reason::NoAttribute => {
                return Err(Error::msg("no time plug-in is bound to it"));
            }
            removed => removed.map(drop)?,
        },
    }
    Ok(())
}

fn said(run: &mut CommandRun, path: &FsPath, done: Result<()>, spec: Option<&String>) -> Result<()> {
    match done {
        Ok(()) => run.item(|| json!({ "path": path.to_string(), "time_plugin": spec }), || None),
        Err(error) => run.report(&path.to_string(), error),
    }
}

#[cfg(test)]
mod tests {
    use frieze_client::StatusReply;

    use super::*;

    fn status() -> StatusReply {
        StatusReply {
            health: "healthy".to_owned(),
            software: "frieze/0.1.0".to_owned(),
            dirty_bytes: 2048,
            dirty_age_ms: 40,
            gaps: vec![frieze_wire::message::Gap { from: 1 << 12, to: 2 << 12 }],
            ..StatusReply::default()
        }
    }

    #[test]
    fn a_status_shows_what_is_not_yet_on_disk_and_every_gap() {
        let lines: Vec<String> = status_table("here:1", &status()).lines().collect();
        assert_eq!(lines[0], "  health  healthy; what was acknowledged in a gap may be missing (below)");
        assert!(
            lines.iter().any(|line| line.contains("2.0 KiB acknowledged and not yet on disk, for 40ms")),
            "{lines:#?}"
        );
        assert!(lines.last().unwrap().contains("hlc-0000000000001000 to 1970-01-01T00:00:00.000002Z"), "{lines:#?}");
    }

    #[test]
    fn a_status_says_everything_that_is_wrong_and_what_to_do() {
        let trouble = |what: &str, remedy: &str| Trouble { what: what.to_owned(), remedy: remedy.to_owned() };
        let troubles = vec![trouble("the disk is full", "forget some"), trouble("db3 is away", "start it")];
        let status = StatusReply { health: "the disk is full; db3 is away".to_owned(), troubles, ..status() };
        let lines: Vec<String> = status_table("here:1", &status).lines().take(4).collect();
        assert_eq!(
            lines,
            ["  health  the disk is full", "  remedy  forget some", "     and  db3 is away", "  remedy  start it"]
        );
        let item = status_to_json("here:1", &status, false);
        assert_eq!(item["troubles"][1], json!({ "what": "db3 is away", "remedy": "start it" }));
    }

    #[test]
    fn a_status_as_json_has_null_for_unknown_values() {
        let item = status_to_json("here:1", &status(), true);
        assert_eq!(item["last_whole"], Value::Null);
        assert_eq!(item["gaps"][0]["to"], "hlc-0000000000002000");
    }
}
