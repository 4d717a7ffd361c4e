//! `frieze top`: a server or a cluster live on the terminal, or as samples for scripts.
//!
//! Guarantees: the screen goes on where a server goes away, says so, and shows the server again when it is back; the
//! terminal is as before whenever the command ends. Leaves to others: the figures (`frieze status`, `frieze cluster`
//! and the metrics of the servers, which it reads).

mod app;
mod columns;
mod json;
mod page;
mod rates;
mod sample;
mod view;

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use anyhow::{Context, Result};
use frieze_client::Options;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::{Terminal, backend::TestBackend};

use self::app::Screen;
use self::json::to_json;
use self::rates::Rates;
use self::sample::{Sample, Sampler};
use crate::args::TopArgs;
use crate::failure::UsageError;
use crate::run::CommandRun;

/// How long keys are awaited before new samples are looked for.
const KEY_WAIT: Duration = Duration::from_millis(50);
/// How long an absent server is asked before the screen says that it is away.
const AWAY_AFTER: Duration = Duration::from_secs(2);
/// Columns of a sample that is printed as text.
const PRINTED_COLUMNS: u16 = 120;
/// Lines of it at most.
const PRINTED_LINES_MAX: u16 = 200;
/// Shortest and longest interval, s.
const INTERVAL_S: std::ops::RangeInclusive<f64> = 0.1..=3600.0;

/// `frieze top`.
pub(crate) fn top(run: &mut CommandRun, args: &TopArgs) -> Result<()> {
    if !INTERVAL_S.contains(&args.interval) {
        let (least, most) = (INTERVAL_S.start(), INTERVAL_S.end());
        return Err(UsageError(format!("--interval {}: expected {least} to {most} seconds", args.interval)).into());
    }
    let interval = Duration::from_secs_f64(args.interval);
    let options = run.options_unrecorded()?;
    let is_live = !args.once && !run.json() && io::stdout().is_terminal();
    if is_live {
        let options = Options { timeout: options.timeout.min(AWAY_AFTER), ..options };
        return live(Sampler::new(options, args.metrics.clone()), interval);
    }
    let mut sampler = Sampler::new(options, args.metrics.clone());
    let mut former = sampler.take(now_s())?;
    let (_kept, never) = mpsc::channel::<()>();
    loop {
        // Unlike a parked thread, it does not wake up early.
        let _ = never.recv_timeout(interval);
        let sample = sampler.take(now_s())?;
        let rates = Rates::between(&former, &sample);
        match run.json() {
            true => run.print_json(to_json(&sample, &rates))?,
            false => printed(sample.clone(), rates)?.iter().try_for_each(|line| run.print(line))?,
        }
        run.flush()?;
        // Text goes on on terminals only: a pipe gets one sample, as of `top -b -n 1`.
        if args.once || !run.json() {
            return Ok(());
        }
        former = sample;
    }
}

fn now_s() -> f64 {
    frieze_client::mono().0 as f64 / 1e9
}

/// Draws until the reader quits.
fn live(sampler: Sampler, interval: Duration) -> Result<()> {
    let (samples, receiver) = mpsc::channel();
    let (stop, stopped) = mpsc::channel();
    let mut terminal = ratatui::try_init().context("this terminal cannot be drawn on: use --once")?;
    let sampling = std::thread::spawn(move || take_all(sampler, interval, &samples, &stopped));
    let mut screen = Screen::new();
    let drawn = loop {
        while let Ok(sample) = receiver.try_recv() {
            screen.on_sample(sample);
        }
        if let Err(error) = terminal.draw(|frame| view::draw(frame, &screen)) {
            break Err(error);
        }
        if let Err(error) = handle_keys(&mut screen) {
            break Err(error);
        }
        if screen.has_ended {
            break Ok(());
        }
    };
    ratatui::restore();
    // A sample that is being taken ends with its own time limits; nothing waits for it.
    drop((stop, sampling));
    drawn.context("the terminal")
}

/// Handles the keys that were pressed, or waits for one.
fn handle_keys(screen: &mut Screen) -> io::Result<()> {
    let mut wait = KEY_WAIT;
    while event::poll(wait)? {
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            screen.on_key(key);
        }
        wait = Duration::ZERO;
    }
    Ok(())
}

/// Takes samples until the screen ends.
fn take_all(mut sampler: Sampler, interval: Duration, samples: &Sender<Result<Sample>>, stopped: &Receiver<()>) {
    loop {
        let sample = sampler.take(now_s());
        if samples.send(sample).is_err() {
            return;
        }
        match stopped.recv_timeout(interval) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
    }
}

/// The lines of a sample, without colours.
fn printed(sample: Sample, rates: Rates) -> Result<Vec<String>> {
    let rows = sample.servers.len() + rates.operations.as_ref().map_or(2, Vec::len) + 2 * sample.troubles.len();
    // Headers, sums, titles; as many lines again as the thirds of the layout may take.
    let height = u16::try_from(rows * 3 + 14).unwrap_or(PRINTED_LINES_MAX).min(PRINTED_LINES_MAX);
    let mut screen = Screen::new();
    screen.latest = Some((sample, rates));
    let mut lines = lines_of(&screen, PRINTED_COLUMNS, height)?;
    // The keys are of no use in print.
    lines.pop();
    lines.dedup_by(|next, line| next.is_empty() && line.is_empty());
    Ok(lines)
}

/// The screen as text.
fn lines_of(screen: &Screen, width: u16, height: u16) -> Result<Vec<String>> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).context("a screen in memory")?;
    terminal.draw(|frame| view::draw(frame, screen)).context("a screen in memory")?;
    Ok(text_of(terminal.backend().buffer()))
}

fn text_of(buffer: &Buffer) -> Vec<String> {
    let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..buffer.area.height).map(line).collect()
}

#[cfg(test)]
mod tests;
