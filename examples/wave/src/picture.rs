//! The pictures of the demo: one frame of the three films side by side, and each film as a GIF.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use image::codecs::gif::{GifEncoder, Repeat};
use image::{Delay, DynamicImage, Frame as GifFrame};

use crate::camera::{CAMERAS, CameraRecord, MESH};
use crate::canvas::{Canvas, Font, Light, blend, colour, ramp};
use crate::film::{FRAME_US, FRAMES, Film, FilmFrame, FilmKind, shows_us};
use crate::judge::FilmVerdict;
use crate::surface::{self, BACKGROUND, MARK};
use crate::water::CELLS;

/// A film and all that is known of it.
pub(crate) struct ShownFilm<'a> {
    /// The film.
    pub(crate) film: &'a Film,
    /// The verdict of the other code.
    pub(crate) verdict: &'a FilmVerdict,
    /// Of each frame the cameras that show another instant than the others; empty for a film by user time, whose
    /// frames are cuts of the data's own time.
    pub(crate) strays: &'a [Vec<usize>],
}

impl ShownFilm<'_> {
    /// Frames that show a state which never existed.
    pub(crate) fn torn(&self) -> usize {
        self.strays.iter().filter(|frame| !frame.is_empty()).count()
    }

    /// Images in all its frames that are of another instant than the others of their frame.
    pub(crate) fn images_of_another_instant(&self) -> usize {
        self.strays.iter().map(Vec::len).sum()
    }

    fn strays(&self, frame: usize) -> &[usize] {
        self.strays.get(frame).map_or(&[], Vec::as_slice)
    }
}

/// A film in a sheet of several side by side.
pub(crate) struct FilmColumn<'a> {
    pub(crate) caption: &'a str,
    pub(crate) surface: &'a [f64],
    /// Cameras that show another instant than the others, or than the frame's.
    pub(crate) strays: &'a [usize],
    /// What is known of the frame.
    pub(crate) lines: Vec<(String, Light)>,
    /// The frame, if it is known how old its images are.
    pub(crate) frame: Option<&'a FilmFrame>,
}

/// Paints frame number `number` (the first is 1) of the films side by side. `truth` is the surface it should show.
pub(crate) fn frame_of_films(films: &[ShownFilm<'_>], number: usize, truth: &[f64]) -> DynamicImage {
    let index = number - 1;
    let about = format!(
        "Frame {number} of {FRAMES}. Each camera sees 10 x 10 cells and sends 20 images a second over a jittering \
         connection of its own.",
    );
    let surfaces: Vec<Vec<f64>> = films.iter().map(|shown| shown.film.frames[index].surface()).collect();
    let columns = films.iter().zip(&surfaces).map(|(shown, surface)| FilmColumn {
        caption: shown.film.kind.caption(),
        surface,
        strays: shown.strays(index),
        lines: sentences(shown, index).into(),
        frame: Some(&shown.film.frames[index]),
    });
    let columns: Vec<FilmColumn<'_>> = columns.collect();
    sheet("A wave, streamed by a hundred cameras and read back three ways", &about, &columns, truth)
}

/// Paints films side by side: the water, what is known of it, the cameras from above, and how far each height is from
/// `truth`.
pub(crate) fn sheet(title: &str, about: &str, columns: &[FilmColumn<'_>], truth: &[f64]) -> DynamicImage {
    let width = (SHEET_WIDTH - 2 * MARGIN - (columns.len() - 1) * GAP) / columns.len();
    let map = (width.saturating_sub(GAP) / 2).min(MAP_MAX) / MESH * MESH;
    let lines = columns.iter().map(|column| column.lines.len()).max().unwrap_or(0);
    let caption = 132 + width * 3 / 4;
    let maps = caption + 36 + 28 * lines + 20;
    let mut sheet = Canvas::new(SHEET_WIDTH, maps + 26 + map + 52, colour(BACKGROUND));
    sheet.text(MARGIN, 30, Font::Title, colour(BRIGHT), title);
    sheet.text(MARGIN, 76, Font::Body, colour(DIM), about);
    for (number, column) in columns.iter().enumerate() {
        let left = MARGIN + number * (width + GAP);
        let middle = left + width / 2;
        sheet.paste(left, 120, &surface::paint(column.surface, column.strays, width, width * 3 / 4, 4));
        sheet.text_centred(middle, caption, Font::Heading, colour(BRIGHT), column.caption);
        for (line, (words, light)) in column.lines.iter().enumerate() {
            sheet.text_centred(middle, caption + 36 + 28 * line, Font::Body, *light, words);
        }
        let right = left + width - map;
        let of_cameras = if column.frame.is_some() { "age of each image" } else { "of another instant" };
        sheet.text(left, maps, Font::Small, colour(DIM), of_cameras);
        sheet.text(right, maps, Font::Small, colour(DIM), "distance from truth");
        let (top, below) = (maps + 26, maps + 26 + map + 12);
        match column.frame {
            Some(frame) => {
                paint_ages(&mut sheet, left, top, map, frame, column.strays);
                paint_scale(&mut sheet, left, below, map, &ages(), &format!("{OLD_MS} ms"));
            }
            None => paint_strays(&mut sheet, left, top, map, column.strays),
        }
        paint_errors(&mut sheet, right, top, map, column.surface, truth);
        paint_scale(&mut sheet, right, below, map, &errors(), &format!("{WRONG_MM} mm"));
    }
    DynamicImage::ImageRgb8(sheet.to_image())
}

/// Writes the films side by side as one GIF that runs for ever in real time; `done` is called after each frame.
///
/// # Errors
/// The error of the operating system or of the encoder.
pub(crate) fn gif(films: &[ShownFilm<'_>], path: &Path, done: impl Fn()) -> anyhow::Result<()> {
    let mut encoder = GifEncoder::new_with_speed(BufWriter::new(File::create(path)?), GIF_SPEED);
    encoder.set_repeat(Repeat::Infinite)?;
    let frames = films.first().map_or(0, |shown| shown.film.frames.len());
    for index in 0..frames {
        // A thread a film: the surfaces take most of the time.
        let panes: Vec<Canvas> = std::thread::scope(|scope| {
            let threads: Vec<_> = films.iter().map(|shown| scope.spawn(move || pane(shown, index))).collect();
            threads.into_iter().map(|thread| thread.join().expect("painting does not panic")).collect()
        });
        let mut picture = Canvas::new(PANE_WIDTH * films.len(), PANE_HEIGHT + 30, colour(BACKGROUND));
        for (number, pane) in panes.iter().enumerate() {
            picture.paste(number * PANE_WIDTH, 0, pane);
        }
        let seconds = format!("the wave at {:4.1} s", shows_us(index) as f64 / 1e6);
        picture.text_centred(picture.width() / 2, PANE_HEIGHT + 4, Font::Small, colour(DIM), &seconds);
        let image = DynamicImage::ImageRgb8(picture.to_image()).into_rgba8();
        let delay = Delay::from_numer_denom_ms(FRAME_US as u32 / 1000, 1);
        encoder.encode_frame(GifFrame::from_parts(image, 0, 0, delay))?;
        done();
    }
    Ok(())
}

/// One film's part of a frame of the GIF, with what there is to say of it.
fn pane(shown: &ShownFilm<'_>, index: usize) -> Canvas {
    let strays = shown.strays(index);
    let mut pane = Canvas::new(PANE_WIDTH, PANE_HEIGHT, colour(BACKGROUND));
    let middle = PANE_WIDTH / 2;
    pane.text_centred(middle, 10, Font::Body, colour(BRIGHT), shown.film.kind.caption());
    let frame = &shown.film.frames[index];
    pane.paste(0, 36, &surface::paint(&frame.surface(), strays, PANE_WIDTH, PANE_HEIGHT - 104, 2));
    paint_ages(&mut pane, PANE_WIDTH - 82, 40, 70, frame, strays);
    let (words, light) = sentences(shown, index)[0].clone();
    pane.text_centred(middle, PANE_HEIGHT - 62, Font::Small, light, &words);
    let torn = (0..=index).filter(|index| !shown.strays(*index).is_empty()).count();
    let so_far = match shown.film.kind {
        FilmKind::UserTime => "the wave itself, to the last bit".to_owned(),
        _ => format!("frames torn so far: {torn} of {}", index + 1),
    };
    pane.text_centred(
        middle,
        PANE_HEIGHT - 38,
        Font::Small,
        if torn > 0 { colour(MARK) } else { colour(GOOD) },
        &so_far,
    );
    pane
}

/// Two lines about a frame: whether it ever existed, and what it is beside the truth.
fn sentences(shown: &ShownFilm<'_>, index: usize) -> [(String, Light); 2] {
    let strays = shown.strays(index).len();
    let first = match shown.film.kind {
        FilmKind::UserTime => ("every image taken at this very instant".to_owned(), colour(GOOD)),
        // A machine that is busy with other things copies what the cameras sent since.
        FilmKind::Copied if late_us(&shown.film.frames[index]) >= FRAME_US => {
            let seconds = late_us(&shown.film.frames[index]) as f64 / 1e6;
            (format!("copied {seconds:.1} s late, {strays} images of another instant"), colour(MARK))
        }
        _ if strays > 0 => (format!("torn: {strays} images of another instant"), colour(MARK)),
        _ => ("whole: the files stood exactly so".to_owned(), colour(GOOD)),
    };
    let (seams, rms) = (shown.verdict.frames_seams_mm[index], shown.verdict.frames_rms_mm[index]);
    let second = if rms == 0.0 {
        ("seams and error exactly 0".to_owned(), colour(GOOD))
    } else {
        (format!("seams {seams:.3} mm, error {rms:.3} mm"), colour(WARM))
    };
    [first, second]
}

/// How long after the instant that a frame is to show its newest image was taken.
fn late_us(frame: &FilmFrame) -> u64 {
    frame.records.iter().map(|record| record.taken_us).max().unwrap_or(0).saturating_sub(frame.at_us)
}

/// Paints the mesh of cameras in the colour of how old each image is; strays are outlined.
fn paint_ages(canvas: &mut Canvas, left: usize, top: usize, size: usize, frame: &FilmFrame, strays: &[usize]) {
    let tile = size / MESH;
    let stops = ages();
    let newest = frame.records.iter().map(|record| record.taken_us).max().unwrap_or(0);
    for camera in 0..CAMERAS {
        let (x, y) = (left + camera % MESH * tile, top + camera / MESH * tile);
        let age_ms = age_ms(&frame.records[camera], newest.max(frame.at_us));
        canvas.fill(x, y, tile - 1, tile - 1, ramp(&stops, age_ms / OLD_MS));
        if strays.contains(&camera) {
            canvas.frame(x, y, tile - 1, tile - 1, (tile / 9).max(1), colour(MARK));
        }
    }
}

fn age_ms(record: &CameraRecord, now_us: u64) -> f32 {
    now_us.saturating_sub(record.taken_us) as f32 / 1000.0
}

/// Paints the mesh of cameras and fills those that show another instant.
fn paint_strays(canvas: &mut Canvas, left: usize, top: usize, size: usize, strays: &[usize]) {
    let tile = size / MESH;
    for camera in 0..CAMERAS {
        let (x, y) = (left + camera % MESH * tile, top + camera / MESH * tile);
        let light = if strays.contains(&camera) { colour(MARK) } else { ages()[0].1 };
        canvas.fill(x, y, tile - 1, tile - 1, light);
    }
}

/// Paints how far every height is from what it should be.
fn paint_errors(canvas: &mut Canvas, left: usize, top: usize, size: usize, surface: &[f64], truth: &[f64]) {
    let stops = errors();
    for y in 0..size {
        for x in 0..size {
            let cell = y * CELLS / size * CELLS + x * CELLS / size;
            let error_mm = ((surface[cell] - truth[cell]).abs() * 1000.0) as f32;
            canvas.set(left + x, top + y, ramp(&stops, error_mm / WRONG_MM));
        }
    }
}

fn paint_scale(canvas: &mut Canvas, left: usize, top: usize, size: usize, stops: &[(f32, Light)], high: &str) {
    for x in 0..size {
        let light = ramp(stops, x as f32 / size as f32);
        canvas.fill(left + x, top, 1, 8, light);
    }
    canvas.text(left, top + 12, Font::Small, colour(DIM), "0");
    let width = high.chars().count() * Font::Small.letter_width();
    canvas.text(left + size - width, top + 12, Font::Small, colour(DIM), high);
}

fn ages() -> [(f32, Light); 4] {
    [(0.0, colour(0x12_4a_52)), (0.35, colour(0x3f_8f_7f)), (0.7, colour(0xe0_b4_4e)), (1.0, colour(0xf2_6d_3d))]
}

fn errors() -> [(f32, Light); 4] {
    let dark = blend(colour(BACKGROUND), colour(0x2a_35_50), 0.6);
    [(0.0, dark), (0.25, colour(0x5b_3a_8c)), (0.6, colour(0xd6_4f_77)), (1.0, colour(0xff_d9_8a))]
}

/// Age in ms at which the colours end: jitter and two samples.
const OLD_MS: f32 = 200.0;
/// Error in mm at which the colours end.
const WRONG_MM: f32 = 0.8;
const SHEET_WIDTH: usize = 1920;
const MARGIN: usize = 40;
const GAP: usize = 35;
/// Widest map of cameras or errors.
const MAP_MAX: usize = 270;
/// A film in the GIF.
const PANE_WIDTH: usize = 400;
const PANE_HEIGHT: usize = 410;
/// 1 is best and slow, 30 fast: at 10 the films take about ten seconds and look the same.
const GIF_SPEED: i32 = 10;
const BRIGHT: u32 = 0xee_f4_ff;
pub(crate) const DIM: u32 = 0x93_a1_ba;
const GOOD: u32 = 0x7d_d8_a5;
const WARM: u32 = 0xf0_b8_6a;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rehearsal;

    #[test]
    fn the_sheet_and_the_films_are_painted() {
        let mut rehearsal = rehearsal::play(16);
        let truth = rehearsal.truth(37);
        let sheet = frame_of_films(&rehearsal.shown(), 37, &truth);
        // The middle of the first surface is water, not background.
        let pixel = |x: usize, y: usize| sheet.as_rgb8().expect("eight bits a channel").get_pixel(x as u32, y as u32).0;
        assert_ne!(pixel(MARGIN + 300, 335), pixel(0, 0));

        let dir = tempfile::tempdir().expect("a temporary directory");
        // Set FRIEZE_WAVE_KEEP to a directory to look at the pictures.
        let keep = std::env::var_os("FRIEZE_WAVE_KEEP");
        let dir = keep.as_deref().map_or(dir.path(), Path::new);
        sheet.save(dir.join("frame-37.png")).expect("the sheet is saved");
        rehearsal.films.iter_mut().for_each(|film| film.frames.truncate(5));
        let path = dir.join("films.gif");
        let painted = std::cell::Cell::new(0);
        gif(&rehearsal.shown(), &path, || painted.set(painted.get() + 1)).expect("the films are saved");
        let bytes = std::fs::read(&path).expect("it is there");
        assert!(bytes.starts_with(b"GIF89a") && bytes.len() > 150_000 && painted.get() == 5, "{} bytes", bytes.len());
    }
}
