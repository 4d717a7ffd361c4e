//! The wave: a hundred cameras over a tank of water, and three films of it (FFFS §7.1, figure 1).
//!
//! A simulated wave in a square tank is filmed by 10 by 10 cameras, each with 10 by 10 cells in sight. They stream into
//! frieze over 100 connections that delay every image by a time of their own. Afterwards the same hundred frames are
//! wanted back, one every 100 ms: copied from the live files while it happened, read at instants of system time, and
//! read at instants of user time. The first film is torn, the second shows what the server had at each instant, the
//! third is the wave itself, to the last bit.
//!
//! The paper's "100x100 mesh of small 10x10 images" (§7.1) and "100 10x10 image streams" (§1) agree if the mesh of the
//! simulation has 100 by 100 points: a hundred images of 10 by 10. That is how it is read here.
//!
//! A frame goes this way: `water` -> `camera` -> `stream` (delays from `schedule`, real time from `pace`) -> frieze ->
//! `shoot` -> `film` -> `judge` (torn frames by the log, seams and errors by `recompute.py`) -> `picture`.
//!
//! Tearing shows in images of another instant, and as seams between images. The error does not tell it from age: a
//! copied film is some milliseconds younger than one of instants, and so nearer to the wave, though it shows what never
//! was.

mod beside;
mod camera;
mod canvas;
mod film;
mod judge;
mod pace;
mod picture;
#[cfg(test)]
mod rehearsal;
mod schedule;
mod shoot;
mod stream;
mod surface;
mod water;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use frieze_client::{Client, Options};
use indicatif::{ProgressBar, ProgressStyle};

use crate::camera::CAMERAS;
use crate::film::{FIRST_SAMPLE, FRAMES, Film, SAMPLES, SAMPLES_PER_FRAME};
use crate::judge::FilmVerdict;
use crate::pace::StreamPace;
use crate::picture::ShownFilm;
use crate::stream::Cameras;

/// Streams a simulated wave into frieze over a hundred connections and reads three films of it back.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct WaveOptions {
    /// Server: HOST:PORT or unix:PATH.
    #[arg(long, env = "FRIEZE_SERVER", default_value = "127.0.0.1:7470")]
    server: String,
    /// Directory of the file system that the cameras write into; made if it is not there.
    #[arg(long, default_value = "/wave")]
    directory: String,
    /// Local directory for films and pictures.
    #[arg(long, default_value = "out/wave")]
    out: PathBuf,
    /// Judge the films, paint no pictures.
    #[arg(long)]
    films_only: bool,
    /// Seed of the drops and of the delays.
    #[arg(long, default_value_t = 16)]
    seed: u64,
    /// Only paint the films that this file describes: for beside_hdfs.py.
    #[arg(long, hide = true, value_name = "JSON")]
    paint: Option<PathBuf>,
}

/// The frame that is shown in the picture, as in the paper.
const SHOWN_FRAME: usize = 37;
/// From connecting to the first image: time for a hundred threads to start.
const LEAD: Duration = Duration::from_millis(300);

fn main() -> anyhow::Result<()> {
    let args = WaveOptions::parse();
    if let Some(about) = &args.paint {
        return beside::paint(about);
    }
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let samples = water::simulate(args.seed, SAMPLES);

    let options = Options { server: args.server.parse()?, command: "wave".to_owned(), ..Options::default() };
    let client = Client::connect(options.clone()).context("is the server running?")?;
    let fs = client.fs();
    stream::prepare(&fs, &args.directory)?;
    let cameras = Cameras::connect(&options, &args.directory)?;

    let pace = StreamPace::starting_in(LEAD);
    let now = client.now()?;
    let begins_us = now.micros() + LEAD.as_micros() as u64;
    println!(
        "streaming {SAMPLES} images from each of {CAMERAS} cameras, 20 a second, delayed by up to {} ms",
        schedule::DELAY_MS_MAX
    );
    let bar = frames_bar("streaming")?;
    let copies = args.out.join("live");
    let copying = || shoot::copied(&fs, &args.directory, &copies, begins_us, &pace, || bar.inc(1));
    let (stamps, copied) = cameras.stream(&pace, args.seed, begins_us, &samples, copying)?;
    bar.finish_and_clear();
    println!("wrote {} images; now reading the same {FRAMES} frames back from the past, twice", CAMERAS * SAMPLES);

    let log = stream::read_log(&fs, &args.directory, now, begins_us, &stamps)?;
    let (by_system_time, instants) = shoot::by_system_time(&fs, &args.directory, begins_us)?;
    let by_user_time = shoot::by_user_time(&fs, &args.directory, begins_us)?;
    let strays = [judge::strays(&copied, &log)?, judge::strays(&by_system_time, &log)?, Vec::new()];
    judge::check_cuts(&by_system_time, &instants, &log)?;

    println!("computing the simulation again from its seed with recompute.py");
    let films = [copied, by_system_time, by_user_time];
    let verdicts = verdicts(&films, args.seed, &args.out)?;
    let shown =
        [0, 1, 2].map(|film: usize| ShownFilm { film: &films[film], verdict: &verdicts[film], strays: &strays[film] });
    print_figures(&shown, args.seed)?;
    println!("{}", sentence_about(log.iter().flatten().map(|version| version.delay_us()).collect()));

    client.close()?;
    if args.films_only {
        return Ok(());
    }
    let truth = &samples[FIRST_SAMPLE + (SHOWN_FRAME - 1) * SAMPLES_PER_FRAME];
    let pictures = paint(&shown, truth, &args.out)?;
    println!("pictures:");
    for path in pictures {
        println!("  {}", path.display());
    }
    Ok(())
}

/// Saves the films for `recompute.py` and lets it judge them.
fn verdicts(films: &[Film], seed: u64, out: &Path) -> anyhow::Result<Vec<FilmVerdict>> {
    let mut paths = Vec::new();
    for film in films {
        let path = out.join(film.kind.word()).with_extension("film");
        film.save(seed, &path).with_context(|| format!("cannot write {}", path.display()))?;
        paths.push(path);
    }
    let verdicts = judge::recompute(&paths)?;
    let judged = verdicts.iter().map(|verdict| verdict.film.as_str());
    ensure!(judged.eq(films.iter().map(|film| film.kind.word())), "recompute.py judged other films");
    Ok(verdicts)
}

/// Prints the figures of the demo.
///
/// # Errors
/// If a figure is not what frieze promises.
fn print_figures(shown: &[ShownFilm<'_>; 3], seed: u64) -> anyhow::Result<()> {
    println!();
    println!(
        "{:<30} {:>12} {:>26} {:>10} {:>10}",
        "film", "torn frames", "images of another instant", "seams", "error"
    );
    for film in shown {
        let verdict = film.verdict;
        let mm = |value: f64| if verdict.values_differing == 0 { "0".to_owned() } else { format!("{value:.3} mm") };
        println!(
            "{:<30} {:>12} {:>26} {:>10} {:>10}",
            film.film.kind.caption(),
            format!("{} of {FRAMES}", film.torn()),
            format!("{} of {}", film.images_of_another_instant(), FRAMES * CAMERAS),
            mm(verdict.seams_rms_mm),
            mm(verdict.error_rms_mm)
        );
    }
    let [copied, system, user] = shown;
    println!(
        "(against the stamps in the log, and the wave computed again from seed {seed} by other code; root mean squares)"
    );
    if copied.verdict.error_rms_mm < system.verdict.error_rms_mm {
        println!(
            "(a copied frame is younger than one of an instant, so its error is smaller, although it shows what never \
             was)"
        );
    }
    ensure!(system.torn() == 0, "a frame by system time shows a state that never existed");
    ensure!(system.verdict.values_differing > 0, "the film by system time shows no jitter: nothing was delayed");
    ensure!(user.verdict.values_differing == 0, "the film by user time is not the wave that was recorded");
    Ok(())
}

/// A sentence about the delay of the images.
fn sentence_about(mut delays_us: Vec<i64>) -> String {
    delays_us.sort_unstable();
    let ms = |part: f64| delays_us[(part * (delays_us.len() - 1) as f64) as usize] as f64 / 1000.0;
    format!(
        "(the server stamped the images {:.0} to {:.0} ms after they were taken, half of them within {:.0} ms)",
        ms(0.0),
        ms(1.0),
        ms(0.5)
    )
}

/// Paints one frame of the films as a sheet, and all of them as a GIF.
fn paint(shown: &[ShownFilm<'_>; 3], truth: &[f64], out: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let sheet = out.join(format!("frame-{SHOWN_FRAME}.png"));
    picture::frame_of_films(shown, SHOWN_FRAME, truth).save(&sheet)?;
    let films = out.join("films.gif");
    let bar = frames_bar("painting")?;
    picture::gif(shown, &films, || bar.inc(1))?;
    bar.finish_and_clear();
    Ok(vec![sheet, films])
}

/// Progress over the frames of a film.
fn frames_bar(doing: &'static str) -> anyhow::Result<ProgressBar> {
    let style = ProgressStyle::with_template("  {prefix} {wide_bar} {pos}/{len} frames")?;
    Ok(ProgressBar::new(FRAMES as u64).with_style(style).with_prefix(doing))
}
