//! A year of flights from New York's three airports, appended row by row, and asked what was known when, of which time.
//!
//! Each airport writes a file of its own, bound to the column `event_time`. Then the past is asked in three ways: by
//! user time (which flights had left by noon of a day), by system time (what the files held at an instant), and by both
//! (which flights that had left by then were known then). Every answer is compared byte for byte with the table itself.
//! Last, the rows in the package's own order, which runs backwards: the write with the first such row is refused, with
//! its offset.

mod table;

use std::path::PathBuf;
use std::thread;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use frieze_base::Rng;
use frieze_client::{
    Client, CreateMode, ErrorKind, Fs, Hlc, OpenFlags, Options, Reason, Target, UserTime, XattrMode, ZonePolicy,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::table::FlightTable;

/// Appends a year of flights to frieze row by row and asks what was known when, of which time.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct FlightsOptions {
    /// Directory with the tables that `table.py` made.
    tables: PathBuf,
    /// Server: HOST:PORT or unix:PATH.
    #[arg(long, env = "FRIEZE_SERVER", default_value = "127.0.0.1:7470")]
    server: String,
    /// Directory of the file system for the files; made if it is not there.
    #[arg(long, default_value = "/flights")]
    directory: String,
    /// Rows of each airport at most.
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    rows: usize,
    /// Questions of each kind.
    #[arg(long, default_value_t = 40)]
    questions: u32,
    /// Seed of the questions.
    #[arg(long, default_value_t = 13)]
    seed: u64,
}

const AIRPORTS: [&str; 3] = ["EWR", "JFK", "LGA"];
/// The question that is printed.
const SHOWN_TIME: &str = "2013-07-04T16:00:00Z";

/// One airport: its table, and when each of its rows was written.
struct Airport {
    name: &'static str,
    table: FlightTable,
    /// When its first line was appended.
    header: Hlc,
    stamps: Vec<Hlc>,
}

impl Airport {
    /// How many rows the file held at an instant, by the answers to its writer.
    fn known(&self, at: Hlc) -> usize {
        self.stamps.partition_point(|stamp| *stamp <= at)
    }
}

fn main() -> anyhow::Result<()> {
    let args = FlightsOptions::parse();
    let options = Options { server: args.server.parse()?, command: "flights".to_owned(), ..Options::default() };
    let client = Client::connect(options.clone()).context("is the server running?")?;
    let fs = client.fs();
    prepare(&fs, &args.directory)?;
    let airports = write(&args, &options)?;

    let mut rng = Rng::new(args.seed);
    let mut times = vec![SHOWN_TIME.to_owned()];
    let mut instants = Vec::new();
    for _ in 0..args.questions {
        let airport = &airports[rng.below(3) as usize];
        let row = |rng: &mut Rng| rng.below(airport.stamps.len() as u64) as usize;
        times.push(airport.table.time(row(&mut rng)).to_owned());
        instants.push(airport.stamps[row(&mut rng)]);
    }
    let middle = airports[0].stamps[airports[0].stamps.len() / 2];
    println!(
        "questions: how many flights had left?                 {}",
        AIRPORTS.map(|name| format!("{name:>8}")).concat()
    );
    let all = |airport: &Airport| airport.stamps.len();
    ask(&airports, &fs, &args.directory, &format!("by {SHOWN_TIME} (user time)"), SHOWN_TIME, |airport| {
        airport.table.upto(all(airport), SHOWN_TIME)
    })?;
    let then = fs.at(middle);
    show(&airports, &then, &args.directory, &format!("known at {middle} (system time)"), |airport| {
        airport.known(middle)
    })?;
    ask(&airports, &then, &args.directory, "both: known then, left by then", SHOWN_TIME, |airport| {
        airport.table.upto(airport.known(middle), SHOWN_TIME)
    })?;

    let mut equal = [0; 3];
    for time in &times {
        let counts = |airport: &Airport| airport.table.upto(all(airport), time);
        equal[0] += compare(&airports, &fs.user_at(user_time(time)?), &args.directory, counts)?.len();
    }
    for &at in &instants {
        equal[1] += compare(&airports, &fs.at(at), &args.directory, |airport| airport.known(at))?.len();
    }
    for (time, &at) in times.iter().zip(&instants) {
        let counts = |airport: &Airport| airport.table.upto(airport.known(at), time);
        equal[2] += compare(&airports, &fs.at(at).user_at(user_time(time)?), &args.directory, counts)?.len();
    }
    println!(
        "compared with the table, byte for byte: {} answers by user time, {} by system time, {} by both: all equal",
        equal[0], equal[1], equal[2]
    );
    refusal(&args, &fs)?;
    client.close()?;
    Ok(())
}

fn prepare(fs: &Fs, directory: &str) -> anyhow::Result<()> {
    let target = Target::path(directory);
    match fs.mkdir(&target, 0o755) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Exists => {}
        Err(error) => return Err(error).with_context(|| format!("cannot make {directory}")),
    }
    fs.set_xattr(&target, b"user.frieze.time", b"csv:event_time", XattrMode::Any)
        .with_context(|| format!("cannot bind {directory} to the column event_time"))?;
    Ok(())
}

fn file(directory: &str, name: &str) -> Target {
    Target::path(format!("{}/{name}.csv", directory.trim_end_matches('/')))
}

/// Every airport appends its rows, one request a row.
fn write(args: &FlightsOptions, options: &Options) -> anyhow::Result<Vec<Airport>> {
    let tables: Vec<FlightTable> = AIRPORTS
        .iter()
        .map(|name| FlightTable::read(&args.tables.join(name).with_extension("csv")))
        .collect::<Result<_, _>>()?;
    let total: usize = tables.iter().map(|table| table.count().min(args.rows)).sum();
    let bar = ProgressBar::new(total as u64)
        .with_style(ProgressStyle::with_template("  {wide_bar} {pos}/{len} rows, {eta} left")?);
    let airports = thread::scope(|scope| {
        let running: Vec<_> = AIRPORTS
            .into_iter()
            .zip(tables)
            .map(|(name, table)| {
                let bar = &bar;
                scope.spawn(move || append(args, options, name, table, bar))
            })
            .collect();
        running.into_iter().map(|airport| airport.join().ok().context("an airport panicked")?).collect()
    });
    let seconds = bar.elapsed().as_secs_f64();
    bar.finish_and_clear();
    println!("appended {total} rows one by one in {seconds:.1} s: {:.0} a second", total as f64 / seconds);
    airports
}

fn append(
    args: &FlightsOptions,
    options: &Options,
    name: &'static str,
    table: FlightTable,
    bar: &ProgressBar,
) -> anyhow::Result<Airport> {
    let client = Client::connect(Options { command: format!("flights {name}"), ..options.clone() })?;
    let target = file(&args.directory, name);
    let file =
        client.fs().create(&target, 0o644, CreateMode::Exclusive).with_context(|| format!("cannot make {target:?}"))?;
    let header = Hlc(file.append(table.header().as_bytes())?.stamp);
    let mut stamps = Vec::with_capacity(table.count());
    for row in 0..table.count().min(args.rows) {
        stamps.push(Hlc(file.append(table.row(row).as_bytes())?.stamp));
        if row % 1000 == 999 {
            bar.inc(1000);
        }
    }
    file.close()?;
    client.close()?;
    Ok(Airport { name, table, header, stamps })
}

fn user_time(text: &str) -> anyhow::Result<UserTime> {
    Ok(UserTime::parse(text, ZonePolicy::Refuse)?)
}

/// Prints a question at a user time and its answers.
fn ask(
    airports: &[Airport],
    fs: &Fs,
    directory: &str,
    question: &str,
    time: &str,
    expected: impl Fn(&Airport) -> usize,
) -> anyhow::Result<()> {
    show(airports, &fs.user_at(user_time(time)?), directory, question, expected)
}

fn show(
    airports: &[Airport],
    fs: &Fs,
    directory: &str,
    question: &str,
    expected: impl Fn(&Airport) -> usize,
) -> anyhow::Result<()> {
    let counts = compare(airports, fs, directory, expected)?;
    let counts: String = counts.iter().map(|count| format!("{count:>8}")).collect();
    println!("  {question:<52}{counts}");
    Ok(())
}

/// Reads every airport in a view and compares it with the first so many rows of its table; answers the counts of rows.
fn compare(
    airports: &[Airport],
    fs: &Fs,
    directory: &str,
    expected: impl Fn(&Airport) -> usize,
) -> anyhow::Result<Vec<usize>> {
    let mut counts = Vec::new();
    for airport in airports {
        let count = expected(airport);
        let target = file(directory, airport.name);
        let file = match fs.open(&target, OpenFlags { read: true, write: false }) {
            Ok(file) => file,
            // Before the first row there is no user time to ask for.
            Err(error) if count == 0 && matches!(error.reason(), Reason::NoUserTime | Reason::NotFound) => {
                counts.push(0);
                continue;
            }
            Err(error) => return Err(error).with_context(|| format!("cannot open {}", airport.name)),
        };
        let mut bytes = vec![0; file.attr().size as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(filled as u64, &mut bytes[filled..])? {
                0 => break,
                read => filled += read,
            }
        }
        let by_user_time = fs.view().user_at.is_some();
        // Made, and still without its first line.
        let is_new = fs.view().at.is_some_and(|at| at < airport.header.0);
        let wanted = if count == 0 && (by_user_time || is_new) { "" } else { airport.table.first(count) };
        if bytes != wanted.as_bytes() {
            bail!(
                "{} holds {} bytes in {:?}, the table says {count} rows of {} bytes",
                airport.name,
                bytes.len(),
                fs.view(),
                wanted.len()
            );
        }
        counts.push(count);
    }
    Ok(counts)
}

/// Appends the rows as they are packaged until one runs backwards.
fn refusal(args: &FlightsOptions, fs: &Fs) -> anyhow::Result<()> {
    let table = FlightTable::read(&args.tables.join("packaged.csv"))?;
    let backward = table.first_backward().context("the package's own order never runs backwards")?;
    let file = fs.create(&file(&args.directory, "packaged"), 0o644, CreateMode::Exclusive)?;
    file.append(table.header().as_bytes())?;
    for row in 0..table.count() {
        match file.append(table.row(row).as_bytes()) {
            Ok(_) => ensure!(row < backward, "row {row} was taken, though it runs backwards"),
            Err(error) if error.reason() == Reason::BackwardUserTime => {
                ensure!(row == backward, "row {row} was refused, the first backward one is {backward}");
                let words = error.to_string();
                let offset = format!("offset {}", table.offset(row));
                ensure!(words.contains(&offset), "the refusal does not name {offset}: {words}");
                println!("in the package's own order, flight {} is refused:\n  {words}", row + 1);
                file.close()?;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
    bail!("the rows in the package's own order were all taken")
}
