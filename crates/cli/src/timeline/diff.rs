//! `diff` and `find`: what is different between two instants.

use anyhow::{Error, Result};
use frieze_base::Reason;
use frieze_client::{ChangedSpan, Difference, FileKind, Fs, Hlc, Interval, flags};

use super::compare::{Compared, Comparer};
use super::{Change, Commands, Who, details, named, paths, to_json};
use crate::args::{Diff, Find};
use crate::copy::{self, target};
use crate::failure::Usage;
use crate::format::{self, Table};
use crate::path::FsPath;
use crate::progress::Progress;
use crate::run::Run;

/// Differences asked for at once.
const PAGE: u32 = 2000;
/// Lines of a table that line up with each other.
const ROWS_MAX: usize = 2000;

/// `frieze diff`.
pub(crate) fn diff(run: &mut Run, args: &Diff) -> Result<()> {
    let path = FsPath::parse(&args.path)?;
    let interval = interval(run, &args.from, args.to.as_deref())?;
    let fs = run.fs()?;
    run.show(|wanted| Progress::items(wanted, "differences"));
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
        Ok(Some(Line {
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

/// What is printed of a difference.
struct Line {
    cells: [String; 3],
    by: Option<String>,
    text: Option<String>,
    spans: Vec<String>,
}

fn cells(run: &mut Run, difference: &Difference) -> [String; 3] {
    [Change::of(difference).letter().to_string(), paths(difference), details(run, difference)]
}

fn by(run: &mut Run, who: &Who, difference: &Difference) -> String {
    let words = who.words(run, difference.uid, difference.session);
    format!("   {} by {words}", format::time_of(Hlc(difference.stamp)))
}

/// Where the bytes of the one file that is asked about differ.
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
    args: &Diff,
    interval: Interval,
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
            if difference.flags == 0 && Change::of(&difference) == Change::Modified {
                return Ok(None);
            }
        }
        Compared::Unknown => {}
    }
    Ok(Some(difference))
}

/// Shows every difference to `line`, and prints what it makes of them in columns.
fn each(
    run: &mut Run,
    fs: &Fs,
    path: &FsPath,
    interval: Interval,
    commands: Commands,
    mut line: impl FnMut(&mut Run, &Who, Difference) -> Result<Option<Line>>,
) -> Result<()> {
    let (mut who, mut skip) = (Who::new(commands), 0);
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

fn print(run: &mut Run, lines: Vec<Line>) -> Result<()> {
    let mut table = Table::new(&[false, false, false]);
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
pub(crate) fn find(run: &mut Run, args: &Find) -> Result<()> {
    let paths = copy::parse_all(&args.paths)?;
    args.old.refuse()?;
    let Some(from) = &args.from else {
        return Err(Usage("say when: --from INSTANT, and --to INSTANT if not up to now".to_owned()).into());
    };
    let interval = interval(run, from, args.to.as_deref())?;
    let wanted = [
        (args.added, Change::Added),
        (args.removed, Change::Removed),
        (args.renamed, Change::Renamed),
        (args.modified, Change::Modified),
    ];
    let any = wanted.iter().all(|(asked, _)| !asked);
    let fs = run.fs()?;
    run.show(|shown| Progress::items(shown, "names"));
    for path in &paths {
        let found = each(run, &fs, path, interval, Commands::of(args.full), |run, who, difference| {
            let change = Change::of(&difference);
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
fn interval(run: &mut Run, from: &str, to: Option<&str>) -> Result<Interval> {
    let after = run.instant(from)?;
    let upto = match to {
        Some(to) => run.instant(to)?,
        None => run.client()?.now()?,
    };
    if after > upto {
        let words =
            format!("the interval ends ({}) before it begins ({})", format::time_of(upto), format::time_of(after));
        return Err(Usage(words).into());
    }
    run.say_more(&format!("from {after} ({}) to {upto} ({})", format::time_of(after), format::time_of(upto)));
    Ok(Interval { after, upto })
}

fn absent(error: Error) -> Error {
    match error.downcast_ref::<frieze_client::Error>() {
        Some(refused) if refused.reason() == Reason::NotFound => {
            Error::msg("no such file or directory at either instant")
        }
        _ => error,
    }
}
