//! `diff` and `find`: the differences between two instants.

use anyhow::{Error, Result};
use frieze_base::Reason;
use frieze_client::{ChangedSpan, Difference, FileKind, Fs, HistoryInterval, Hlc, flags};

use super::compare::{Compared, Comparer};
use super::{ChangeKind, Commands, SessionNames, details, named, paths, to_json};
use crate::args::{DiffArgs, FindArgs};
use crate::copy::{self, target};
use crate::failure::UsageError;
use crate::format::{self, TextTable};
use crate::path::FsPath;
use crate::progress::ProgressLine;
use crate::run::CommandRun;

/// Differences requested at once.
const PAGE: u32 = 2000;
/// Lines of a table that line up with each other.
const ROWS_MAX: usize = 2000;

/// `frieze diff`.
pub(crate) fn diff(run: &mut CommandRun, args: &DiffArgs) -> Result<()> {
    let path = FsPath::parse(&args.path)?;
    let interval = interval(run, &args.from, args.to.as_deref())?;
    let fs = run.fs()?;
    run.show(|wanted| ProgressLine::items(wanted, "differences"));
    let mut compared = 0u64;
    let shown = each(run, &fs, &path, interval, Commands::of(args.full), |run, who, difference| {
        let Some(difference) = exactly(&fs, args, interval, &path, difference)? else { return Ok(None) };
        compared += 1;
        let text = match args.text {
            true => Comparer::new(&fs, interval).text(&difference)?,
            false => None,
        };
        if run.json() {
            let mut item = to_json(run, who, &difference);
            if args.text {
                item.insert("text".to_owned(), text.into());
            }
            run.print_json(item)?;
            return Ok(None);
        }
        Ok(Some(DiffRow {
            by: args.by.then(|| by(run, who, &difference)),
            text,
            cells: cells(run, &difference),
            spans: spans(&path, &difference),
        }))
    });
    match shown {
        Ok(()) => {
            run.say_more(&format!("{compared} differences between {} and {}", interval.after, interval.upto));
            Ok(())
        }
        Err(error) => run.report(&path.to_string(), absent(error)),
    }
}

/// The printed form of a difference.
struct DiffRow {
    cells: [String; 3],
    by: Option<String>,
    text: Option<String>,
    spans: Vec<String>,
}

fn cells(run: &mut CommandRun, difference: &Difference) -> [String; 3] {
    [ChangeKind::of(difference).letter().to_string(), paths(difference), details(run, difference)]
}

fn by(run: &mut CommandRun, who: &SessionNames, difference: &Difference) -> String {
    let words = who.words(run, difference.uid, difference.session);
    format!("   {} by {words}", format::time_of(Hlc(difference.stamp)))
}

/// Where the bytes of the one requested file differ.
fn spans(asked: &FsPath, difference: &Difference) -> Vec<String> {
    let is_it = |path: &[u8]| path == asked.as_bytes();
    let sides = [&difference.before, &difference.after];
    if !sides.into_iter().flatten().any(|side| is_it(&side.path) && side.kind() == FileKind::File) {
        return Vec::new();
    }
    let line = |span: &ChangedSpan| format!("   {} bytes at {}", span.len, span.offset);
    let more = difference.more_spans.then(|| "   and more".to_owned());
    difference.spans.iter().map(line).chain(more).collect()
}

/// The difference with the bytes that really differ, where they are compared: with `--exact`, and of a single file.
fn exactly(
    fs: &Fs,
    args: &DiffArgs,
    interval: HistoryInterval,
    asked: &FsPath,
    mut difference: Difference,
) -> Result<Option<Difference>> {
    let is_asked = named(&difference).path == asked.as_bytes();
    let written = flags::CONTENT | flags::REPLACED;
    if difference.flags & written == 0 || !(args.exact || is_asked) {
        return Ok(Some(difference));
    }
    match Comparer::new(fs, interval).bytes(&difference)? {
        Compared::Differ { spans, more } => {
            difference.flags |= flags::CONTENT;
            (difference.spans, difference.more_spans) = (spans, more);
        }
        Compared::Same => {
            difference.flags &= !written;
            (difference.spans, difference.more_spans) = (Vec::new(), false);
            if difference.flags == 0 && ChangeKind::of(&difference) == ChangeKind::Modified {
                return Ok(None);
            }
        }
        Compared::Unknown => {}
    }
    Ok(Some(difference))
}

/// Shows every difference to `line`, and prints what it makes of them in columns.
fn each(
    run: &mut CommandRun,
    fs: &Fs,
    path: &FsPath,
    interval: HistoryInterval,
    commands: Commands,
    mut line: impl FnMut(&mut CommandRun, &SessionNames, Difference) -> Result<Option<DiffRow>>,
) -> Result<()> {
    let (mut who, mut skip) = (SessionNames::new(commands), 0);
    let mut told_hidden = false;
    loop {
        let mut page = fs.diff(&target(path, false), interval, skip, PAGE)?;
        if page.incomplete && !std::mem::replace(&mut run.told.gap, true) {
            run.say("warning: an end of the interval lies inside a gap: there it is compared with what was left");
        }
        if page.hidden && !std::mem::replace(&mut told_hidden, true) {
            run.say("something else changed in directories that you may not read");
        }
        run.say_more(&format!("the server read {} entries", page.entries_read));
        who.learn(std::mem::take(&mut page.sessions));
        skip += page.differences.len() as u64;
        let is_last = !page.more || page.differences.is_empty();
        let mut lines = Vec::new();
        for difference in page.differences {
            run.progress(|progress| progress.advance(1));
            lines.extend(line(run, &who, difference)?);
            if lines.len() >= ROWS_MAX {
                print(run, std::mem::take(&mut lines))?;
            }
        }
        print(run, lines)?;
        if is_last {
            return Ok(());
        }
    }
}

fn print(run: &mut CommandRun, lines: Vec<DiffRow>) -> Result<()> {
    let mut table = TextTable::new(&[false, false, false]);
    for line in &lines {
        table.row(line.cells.clone());
    }
    for (row, line) in table.lines().zip(&lines) {
        run.print(&row)?;
        for more in line.by.iter().chain(&line.spans) {
            run.print(more)?;
        }
        if let Some(text) = &line.text {
            run.bytes(text.as_bytes())?;
        }
    }
    Ok(())
}

/// `frieze find`.
pub(crate) fn find(run: &mut CommandRun, args: &FindArgs) -> Result<()> {
    let paths = copy::parse_all(&args.paths)?;
    args.old.refuse()?;
    let Some(from) = &args.from else {
        return Err(UsageError("say when: --from INSTANT, and --to INSTANT if not up to now".to_owned()).into());
    };
    let interval = interval(run, from, args.to.as_deref())?;
    let wanted = [
        (args.added, ChangeKind::Added),
        (args.removed, ChangeKind::Removed),
        (args.renamed, ChangeKind::Renamed),
        (args.modified, ChangeKind::Modified),
    ];
    let any = wanted.iter().all(|(asked, _)| !asked);
    let fs = run.fs()?;
    run.show(|shown| ProgressLine::items(shown, "names"));
    for path in &paths {
        let found = each(run, &fs, path, interval, Commands::of(args.full), |run, who, difference| {
            let change = ChangeKind::of(&difference);
            if !any && !wanted.contains(&(true, change)) {
                return Ok(None);
            }
            if run.json() {
                let item = to_json(run, who, &difference);
                run.print_json(item)?;
            } else {
                run.name(&named(&difference).path, args.null)?;
            }
            Ok(None)
        });
        if let Err(error) = found {
            run.report(&path.to_string(), absent(error))?;
        }
    }
    Ok(())
}

/// Both ends made exact, in the order of time.
fn interval(run: &mut CommandRun, from: &str, to: Option<&str>) -> Result<HistoryInterval> {
    let after = run.instant(from)?;
    let upto = match to {
        Some(to) => run.instant(to)?,
        None => run.client()?.now()?,
    };
    if after > upto {
        let words =
            format!("the interval ends ({}) before it begins ({})", format::time_of(upto), format::time_of(after));
        return Err(UsageError(words).into());
    }
    run.say_more(&format!("from {after} ({}) to {upto} ({})", format::time_of(after), format::time_of(upto)));
    Ok(HistoryInterval { after, upto })
}

fn absent(error: Error) -> Error {
    match error.downcast_ref::<frieze_client::Error>() {
        Some(refused) if refused.reason() == Reason::NotFound => {
            Error::msg("no such file or directory at either instant")
        }
        _ => error,
    }
}
