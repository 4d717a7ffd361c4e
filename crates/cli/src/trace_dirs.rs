//! `trace save`, `export`, `import`: rings and foreign formats as traces, and traces for others.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use frieze_base::PATH_BYTES_MAX;
use frieze_trace::PathHasher;
use frieze_trace::read_ring;
use frieze_tracefile::{
    ExportFormat, ImportFormat, ImportSettings, KindRules, Manifest, RingImporter, TraceFileError, TraceNames,
    TraceReader, TraceState, TraceWriter, export_blocks, export_without_names, recover_trace,
};
use serde_json::json;

use crate::args::{TraceExportArgs, TraceExportFormat, TraceImportArgs, TraceImportFormat, TraceSaveArgs};
use crate::failure::UsageError;
use crate::format;
use crate::progress::ProgressLine;
use crate::rings::{named_rings, parse_size, rings_dir};
use crate::run::CommandRun;

/// Smallest and largest block of an export.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 512..=1 << 30;

/// `frieze trace save`.
pub(crate) fn save(run: &mut CommandRun, args: &TraceSaveArgs) -> Result<()> {
    let since_ns = match &args.last {
        None => i64::MIN,
        Some(text) => {
            let span: jiff::SignedDuration =
                text.parse().map_err(|_| UsageError(format!("--last {text}: give a time such as 10m or 2h")))?;
            let since = jiff::Timestamp::now().saturating_sub(span).map_err(|error| UsageError(error.to_string()))?;
            i64::try_from(since.as_nanosecond()).unwrap_or(i64::MIN)
        }
    };
    let paths = named_rings(&run.common, &args.rings)?;
    let trace = TraceWriter::create(&args.trace, Manifest::new("ring"))?;
    let (manifest, names) = add_rings(run, trace, &paths, since_ns)?;
    let words = || format!("{} in {}", format::count(manifest.events, "event"), format::local(&args.trace));
    run.item(
        || {
            json!({
                "trace": format::local(&args.trace), "events": manifest.events,
                "overwritten": manifest.lost.overwritten, "torn": manifest.lost.torn,
                "unknown": manifest.lost.unknown, "paths": names.paths.len(),
            })
        },
        || Some(words()),
    )
}

/// Writes what these rings hold from `since_ns` on, and ends the trace; of a fault nothing is left.
pub(crate) fn add_rings(
    run: &mut CommandRun,
    mut trace: TraceWriter,
    rings: &[PathBuf],
    since_ns: i64,
) -> Result<(Manifest, TraceNames)> {
    let (mut names, mut key) = (TraceNames::default(), None);
    run.show(|wanted| ProgressLine::known(wanted, "rings"));
    for (number, path) in rings.iter().enumerate() {
        run.progress(|line| line.is_at(number as u64, rings.len() as u64));
        let added = read_ring(path).map_err(TraceFileError::from).and_then(|ring| {
            // Rings of another directory have another key: then no fingerprint is that of all hashes.
            key = Some(key.map_or(Some(ring.key), |known: Option<u64>| known.filter(|known| *known == ring.key)));
            let mut importer = RingImporter::default();
            importer.add(&mut trace, &ring, since_ns)?;
            importer.name(&mut names, trace.manifest());
            Ok(())
        });
        match added {
            // One that was never whole says nothing about the others.
            Err(TraceFileError::Ring(error)) if rings.len() > 1 => run.say(&format!("note: left out: {error}")),
            Err(error) => {
                trace.abandon();
                return Err(error.into());
            }
            Ok(()) => {}
        }
    }
    trace.manifest().key = key.flatten().map(|key| format!("{key:016x}"));
    Ok((finish(trace, &names)?, names))
}

fn finish(trace: TraceWriter, names: &TraceNames) -> Result<Manifest> {
    Ok(trace.finish(names, &KindRules::built_in(), true)?)
}

/// `frieze trace export`.
pub(crate) fn export(run: &mut CommandRun, args: &TraceExportArgs) -> Result<()> {
    recover(run, std::slice::from_ref(&args.trace))?;
    let trace = TraceReader::open(&args.trace)?;
    let format = match args.format {
        TraceExportFormat::Trace => {
            let manifest = export_without_names(&trace, &args.to, args.names)?;
            let to = format::local(&args.to);
            let with = if args.names { "with" } else { "without" };
            let words = format!("{} in {to}, {with} names", format::count(manifest.events, "event"));
            return run.item(|| json!({ "trace": to, "events": manifest.events }), || Some(words));
        }
        TraceExportFormat::Libcachesim => ExportFormat::LibCacheSim,
        TraceExportFormat::Cachebench => ExportFormat::CacheBench,
    };
    let block = parse_size(&args.block).filter(|bytes| BLOCK_BYTES.contains(bytes));
    let block = block.ok_or_else(|| UsageError(format!("--block {}: give 512 to 1G, such as 4K", args.block)))?;
    let requests = export_blocks(&trace, &args.to, format, block, args.writes)?;
    let to = format::local(&args.to);
    let words = format!("{} in {to}", format::count(requests, "request"));
    run.item(|| json!({ "file": to, "requests": requests }), || Some(words))
}

/// `frieze trace import`.
pub(crate) fn import(run: &mut CommandRun, args: &TraceImportArgs) -> Result<()> {
    let format = match args.format {
        TraceImportFormat::Strace => ImportFormat::Strace,
        TraceImportFormat::HdfsAudit => ImportFormat::HdfsAudit,
        TraceImportFormat::HdfsClienttrace => ImportFormat::ClientTrace,
        TraceImportFormat::Htfs => ImportFormat::Htfs,
        TraceImportFormat::Msr => ImportFormat::Msr,
        TraceImportFormat::Tencent => ImportFormat::Tencent,
        TraceImportFormat::Alibaba => ImportFormat::Alibaba,
        TraceImportFormat::Libcachesim => ImportFormat::LibCacheSim,
    };
    if !(-24.0..=24.0).contains(&args.zone) {
        return Err(UsageError(format!("--zone {}: give hours from -24 to 24", args.zone)).into());
    }
    let begin = args.begin.as_deref().map(|text| {
        let time: jiff::Timestamp = text
            .parse()
            .map_err(|_| UsageError(format!("--begin {text}: give a time such as 2026-11-28T12:00:00Z")))?;
        Ok::<_, anyhow::Error>(i64::try_from(time.as_nanosecond()).unwrap_or(0))
    });
    let settings = ImportSettings {
        format,
        hasher: hasher(run)?,
        under: args.under.as_deref().map(absolute).transpose()?,
        blocks: args.blocks.clone(),
        zone_ns: -(args.zone * 3.6e12) as i64,
        begin_ns: begin.transpose()?.unwrap_or(0),
    };
    let bytes = |path: &PathBuf| Ok(std::fs::metadata(path).with_context(|| format::local(path))?.len());
    let all: u64 = args.files.iter().map(bytes).sum::<Result<u64>>()?;
    let mut trace = TraceWriter::create(&args.to, Manifest::new(format.name()))?;
    run.show(ProgressLine::bytes);
    run.progress(|line| line.expect(all));
    let imported = frieze_tracefile::import(&settings, &args.files, &mut trace, &mut |read| {
        run.progress(|line| line.advance(read));
    });
    let names = match imported {
        Ok(names) => names,
        Err(error) => {
            trace.abandon();
            return Err(error.into());
        }
    };
    let manifest = finish(trace, &names)?;
    let to = format::local(&args.to);
    if !run.json() {
        for note in &manifest.notes {
            run.say(&format!("note: {} times: {}", note.count, note.what));
        }
    }
    let words = format!(
        "{} on {} in {to}",
        format::count(manifest.events, "event"),
        format::count(names.paths.len() as u64, "path")
    );
    run.item(
        || {
            json!({
                "trace": to, "events": manifest.events, "paths": names.paths.len(), "notes": manifest.notes,
                "absent": manifest.absent,
            })
        },
        || Some(words),
    )
}

/// The key of this user's rings, so that paths have one hash in all traces.
fn hasher(run: &CommandRun) -> Result<PathHasher> {
    let dir = rings_dir(run.common.trace_dir.as_deref())?;
    Ok(PathHasher::of_rings(&dir)?)
}

/// A path from the root, without a slash at its end.
fn absolute(path: &Path) -> Result<Vec<u8>> {
    let path = std::path::absolute(path)?;
    let bytes = path.as_os_str().as_encoded_bytes();
    Ok(bytes.strip_suffix(b"/").unwrap_or(bytes).to_vec())
}

/// The trace that is named; without a name, or with `-`, the first line of standard input names it, as `frieze load`
/// prints it.
pub(crate) fn trace_path(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = named.filter(|path| path.as_os_str() != "-") {
        return Ok(path.to_owned());
    }
    if std::io::stdin().is_terminal() {
        return Err(UsageError(
            "name the directory of a trace, or let 'frieze load' print one: | frieze what-if -".to_owned(),
        )
        .into());
    }
    let mut line = String::new();
    std::io::stdin().take(PATH_BYTES_MAX as u64).read_to_string(&mut line).context("standard input")?;
    match line.lines().next().map(str::trim).filter(|line| !line.is_empty()) {
        Some(path) => Ok(PathBuf::from(path)),
        None => Err(UsageError("standard input names no trace: give the directory of one".to_owned()).into()),
    }
}

/// Adds what a killed program left in its ring to the traces that are about to be read.
///
/// # Errors
/// Why one is no trace, or cannot be written: to read what is there, copy the directory.
pub(crate) fn recover(run: &mut CommandRun, traces: &[PathBuf]) -> Result<()> {
    for dir in traces {
        let state = recover_trace(dir)?;
        let dir = format::local(dir);
        let note = match state {
            TraceState::Whole => continue,
            TraceState::InUse => format!("a program records into {dir}: its last minute is not in it yet"),
            TraceState::Unwritable => format!(
                "{dir} cannot be written, and the program that recorded into it did not end it: what was last is \
                 missing; copy it, and read the copy"
            ),
            TraceState::Completed(manifest) => format!(
                "the program that recorded into {dir} did not end it; with what it left in its ring it has {}",
                format::count(manifest.events, "event")
            ),
            TraceState::EndLost(_) => format!(
                "the program that recorded into {dir} was killed, and its ring is not there any more: its last minute \
                 is lost"
            ),
        };
        run.say(&format!("note: {note}"));
    }
    Ok(())
}
