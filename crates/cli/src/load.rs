//! `load`: loads as traces, or as calls in a directory.

mod calls;
mod rows;

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use frieze_load::{LoadError, LoadSize, Measures, MessagesLoad, MessagesParameters, PaperSource, compare};
use frieze_tracefile::{KindRules, Manifest, TraceWriter};
use serde_json::json;

use crate::args::{LoadCommand, LoadMessagesArgs};
use crate::failure::UsageError;
use crate::format::{self, TextTable};
use crate::progress::ProgressLine;
use crate::run::CommandRun;

use self::calls::{ReplayPace, replay};
use self::rows::LoadRows;

/// Events between two updates of the progress.
const SHOWN_EVENTS: u64 = 8192;

/// `frieze load`.
pub(crate) fn load(run: &mut CommandRun, command: &LoadCommand) -> Result<()> {
    match command {
        LoadCommand::Messages(args) => messages(run, args),
    }
}

fn messages(run: &mut CommandRun, args: &LoadMessagesArgs) -> Result<()> {
    let scale = parse_scale(&args.scale)?;
    let size = LoadSize { scale, days: args.days, seed: args.seed };
    let parameters = match &args.parameters {
        None => MessagesParameters::built_in(),
        Some(path) => {
            let named = || format!("--parameters {}", format::local(path));
            let text = std::fs::read_to_string(path).with_context(named)?;
            MessagesParameters::parse(&text).with_context(named)?
        }
    };
    let load = MessagesLoad::new(parameters, size).map_err(|error| match error {
        LoadError::OutOfRange { .. } | LoadError::TooLarge { .. } => anyhow::Error::from(UsageError(error.to_string())),
        error => error.into(),
    })?;
    match &args.against {
        Some(dir) => {
            let pace = ReplayPace::new(args.speed, args.seconds)?;
            replay(run, &load, dir, pace)
        }
        None if args.compare => print_comparison(run, load),
        None => write_trace(run, &load, args),
    }
}

/// `1/225`, or `0.01`.
fn parse_scale(text: &str) -> Result<f64> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let scale = match text.split_once('/') {
        None => number(text),
        Some((part, whole)) => number(part).zip(number(whole)).map(|(part, whole)| part / whole),
    };
    let scale = scale.filter(|scale| scale.is_finite());
    Ok(scale.ok_or_else(|| UsageError(format!("--scale {text}: give a part of one machine, such as 1/225")))?)
}

fn write_trace(run: &mut CommandRun, load: &MessagesLoad, args: &LoadMessagesArgs) -> Result<()> {
    let LoadSize { scale, days, seed } = load.size();
    let dir = match &args.out {
        Some(dir) => dir.clone(),
        None => cached_trace(load)?,
    };
    let one_in = (1.0 / scale).round().clamp(1.0, u32::MAX.into()) as u32;
    let mut writer = TraceWriter::create(&dir, Manifest { one_in, ..Manifest::new("messages") })?;
    let mut rows = LoadRows::new();
    run.show(|wanted| ProgressLine::known(wanted, "minutes of load"));
    run.progress(|progress| progress.at(format!("writing {}", format::local(&dir))));
    let minutes = (days * 1440.0) as u64;
    let mut events = 0u64;
    let made = load.run(|event| -> Result<()> {
        events += 1;
        if events.is_multiple_of(SHOWN_EVENTS) {
            run.progress(|progress| progress.is_at((event.t_ns / 60_000_000_000) as u64, minutes));
        }
        Ok(writer.push(rows.row(event))?)
    });
    if let Err(error) = made {
        writer.abandon();
        return Err(error.context(format!("the trace {} was removed", format::local(&dir))));
    }
    let manifest = writer.finish(&rows.into_names(), &KindRules::built_in(), true)?;
    let printed = format::local(&dir);
    match run.json() {
        true => run.print_json(json!({
            "trace": printed, "events": manifest.events, "days": days, "scale": scale, "seed": seed,
            "regions": load.regions(), "slice": load.slice(),
        })),
        // Exactly this line: `what-if` reads it.
        false => run.print(&printed),
    }
}

/// A directory in the user's cache that is not there yet.
fn cached_trace(load: &MessagesLoad) -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let cache =
        cache.ok_or_else(|| UsageError("--out: name the directory of the trace; there is no HOME".to_owned()))?;
    let loads = cache.join("frieze/loads");
    std::fs::create_dir_all(&loads).with_context(|| format!("cannot create {}", format::local(&loads)))?;
    let LoadSize { scale, days, seed } = load.size();
    free_name(&loads, &format!("messages-{:.0}th-{days}d-seed{seed}", 1.0 / scale))
}

fn free_name(parent: &Path, stem: &str) -> Result<PathBuf> {
    for number in 1..10_000 {
        let dir = parent.join(if number == 1 { stem.to_owned() } else { format!("{stem}-{number}") });
        // The name is taken by its creation: another run may look at the same time.
        match std::fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("cannot create {}", format::local(&dir))),
        }
    }
    anyhow::bail!("{} is full of loads named {stem}: remove some, or give --out", format::local(parent))
}

fn print_comparison(run: &mut CommandRun, load: MessagesLoad) -> Result<()> {
    let load = load.with_log_bursts();
    let mut measures = Measures::new(&load);
    run.show(|wanted| ProgressLine::known(wanted, "minutes of load"));
    run.progress(|progress| progress.at("measuring".to_owned()));
    let minutes = (load.size().days * 1440.0) as u64;
    load.run(|event| -> Result<()> {
        measures.add(event);
        if measures.events().is_multiple_of(SHOWN_EVENTS) {
            run.progress(|progress| progress.is_at((event.t_ns / 60_000_000_000) as u64, minutes));
        }
        Ok(())
    })?;
    let comparisons = compare(&measures.numbers());
    let mut table = TextTable::new(&[false, true, true, false, false, false]);
    table.row(["NUMBER", "MODEL", "STUDY", "TOLERANCE", "MET", "WHAT"].map(str::to_owned));
    for comparison in &comparisons {
        let number = comparison.number;
        let source = match number.source {
            PaperSource::Printed => "printed",
            PaperSource::Derived => "derived",
        };
        if run.json() {
            run.print_json(json!({
                "name": number.name, "about": number.about, "model": comparison.model, "paper": number.paper,
                "tolerance": number.tolerance.to_string(), "source": source, "met": comparison.is_met(),
            }))?;
            continue;
        }
        table.row([
            number.name.to_owned(),
            comparison.model.map_or_else(|| "-".to_owned(), short),
            short(number.paper),
            number.tolerance.to_string(),
            if comparison.is_met() { "yes" } else { "no" }.to_owned(),
            number.about.to_owned(),
        ]);
    }
    if run.json() {
        return Ok(());
    }
    table.lines().try_for_each(|line| run.print(&line))?;
    let met = comparisons.iter().filter(|comparison| comparison.is_met()).count();
    run.print(&format!("{met} of {} numbers are within their tolerance", comparisons.len()))
}

/// Four digits.
fn short(number: f64) -> String {
    match number.abs() {
        large if large >= 1000.0 => format!("{number:.0}"),
        middle if middle >= 10.0 => format!("{number:.1}"),
        small if small >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_parts_or_numbers() {
        let scale = |text: &str| parse_scale(text).ok();
        assert_eq!(scale("1/4"), Some(0.25));
        assert_eq!(scale("0.5"), Some(0.5));
        assert_eq!(scale("-1"), Some(-1.0), "the range is for the load to check");
        for wrong in ["", "x", "1/0", "1/", "/2", "nan", "inf", "1/2/3"] {
            assert_eq!(scale(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn cached_traces_never_share_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<PathBuf> = (0..3).map(|_| free_name(dir.path(), "load").unwrap()).collect();
        assert_eq!(names, ["load", "load-2", "load-3"].map(|name| dir.path().join(name)));
    }
}
