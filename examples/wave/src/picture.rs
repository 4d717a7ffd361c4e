//! The pictures of the demo: one frame of the three films side by side, and each film as a GIF.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use image::codecs::gif::{GifEncoder, Repeat};
use image::{Delay, DynamicImage, Frame as GifFrame};

use crate::camera::{CAMERAS, MESH, Record};
use crate::canvas::{Canvas, Font, Light, blend, colour, ramp};
use crate::film::{FRAME_US, FRAMES, Film, Frame, Kind, shows_us};
use crate::judge::Verdict;
use crate::surface::{self, BACKGROUND, MARK};
use crate::water::CELLS;

/// A film and all that is known of it.
pub(crate) struct Shown<'a> {
    /// The film.
    pub(crate) film: &'a Film,
    /// What the other code says of it.
    pub(crate) verdict: &'a Verdict,
    /// Of each frame the cameras that show another instant than the others; empty for a film by user time, whose
    /// frames are cuts of the data's own time.
    pub(crate) strays: &'a [Vec<usize>],
}

impl Shown<'_> {
    /// Frames that show a state which never existed.
    pub(crate) fn torn(&self) -> usize {
        self.strays.iter().filter(|frame| !frame.is_empty()).count()
    }

    fn strays(&self, frame: usize) -> &[usize] {
        self.strays.get(frame).map_or(&[], Vec::as_slice)
    }
}

/// Paints frame number `number` (the first is 1) of the films side by side. `truth` is the surface it should show.
pub(crate) fn sheet(films: &[Shown<'_>], number: usize, truth: &[f64]) -> DynamicImage {
    let index = number - 1;
    let mut sheet = Canvas::new(SHEET_WIDTH, SHEET_HEIGHT, colour(BACKGROUND));
    sheet.text(
        MARGIN,
        30,
        Font::Title,
        colour(BRIGHT),
        "A wave, streamed by a hundred cameras and read back three ways",
    );
    let about = format!(
        "Frame {number} of {FRAMES}. Each camera sees 10 x 10 cells and sends 20 images a second over a jittering \
         connection of its own.",
    );
    sheet.text(MARGIN, 76, Font::Body, colour(DIM), &about);
    for (column, shown) in films.iter().enumerate() {
        let left = MARGIN + column * (COLUMN + GAP);
        let middle = left + COLUMN / 2;
        let frame = &shown.film.frames[index];
        let strays = shown.strays(index);
        sheet.paste(left, 120, &surface::paint(&frame.surface(), strays, COLUMN, 430, 4));
        sheet.text_centred(middle, 562, Font::Heading, colour(BRIGHT), shown.film.kind.caption());
        let (first, second) = sentences(shown, index);
        sheet.text_centred(middle, 598, Font::Body, first.1, &first.0);
        sheet.text_centred(middle, 626, Font::Body, second.1, &second.0);
        let right = left + COLUMN - MAP;
        sheet.text(left, 672, Font::Small, colour(DIM), "age of each image");
        paint_ages(&mut sheet, left, 698, MAP, frame, strays);
        sheet.text(right, 672, Font::Small, colour(DIM), "distance from the truth");
        paint_errors(&mut sheet, right, 698, frame, truth);
        let below = 698 + MAP + 12;
        paint_scale(&mut sheet, left, below, &ages(), "0", &format!("{OLD_MS} ms"));
        paint_scale(&mut sheet, right, below, &errors(), "0", &format!("{WRONG_MM} mm"));
    }
    DynamicImage::ImageRgb8(sheet.to_image())
}

/// Writes a film as a GIF that runs for ever in real time.
///
/// # Errors
/// As the operating system or the encoder says.
pub(crate) fn gif(shown: &Shown<'_>, path: &Path) -> anyhow::Result<()> {
    let mut encoder = GifEncoder::new_with_speed(BufWriter::new(File::create(path)?), GIF_SPEED);
    encoder.set_repeat(Repeat::Infinite)?;
    for (index, frame) in shown.film.frames.iter().enumerate() {
        let strays = shown.strays(index);
        let mut picture = Canvas::new(GIF_WIDTH, GIF_HEIGHT, colour(BACKGROUND));
        picture.paste(0, 0, &surface::paint(&frame.surface(), strays, GIF_WIDTH, GIF_HEIGHT - 44, 2));
        paint_ages(&mut picture, GIF_WIDTH - 92, 12, 80, frame, strays);
        picture.text(14, GIF_HEIGHT - 34, Font::Body, colour(BRIGHT), shown.film.kind.caption());
        let seconds = shows_us(index) as f64 / 1e6;
        picture.text(GIF_WIDTH - 78, GIF_HEIGHT - 34, Font::Body, colour(DIM), &format!("{seconds:4.1} s"));
        if !strays.is_empty() {
            picture.text(14, 14, Font::Body, colour(MARK), "torn");
        }
        let image = DynamicImage::ImageRgb8(picture.to_image()).into_rgba8();
        let delay = Delay::from_numer_denom_ms(FRAME_US as u32 / 1000, 1);
        encoder.encode_frame(GifFrame::from_parts(image, 0, 0, delay))?;
    }
    Ok(())
}

/// Two lines about a frame: whether it ever existed, and how far it is from the truth.
fn sentences(shown: &Shown<'_>, index: usize) -> ((String, Light), (String, Light)) {
    let strays = shown.strays(index).len();
    let first = match shown.film.kind {
        Kind::UserTime => ("every image taken at this very instant".to_owned(), colour(GOOD)),
        _ if strays > 0 => (format!("torn: {strays} images belong to another instant"), colour(MARK)),
        _ => ("whole: the files stood exactly so".to_owned(), colour(GOOD)),
    };
    let rms = shown.verdict.frames_rms_mm[index];
    let second = if rms == 0.0 {
        ("error exactly 0".to_owned(), colour(GOOD))
    } else {
        (format!("error {rms:.3} mm (root mean square)"), colour(WARM))
    };
    (first, second)
}

/// Paints the mesh of cameras in the colour of how old each image is; strays are outlined.
fn paint_ages(canvas: &mut Canvas, left: usize, top: usize, size: usize, frame: &Frame, strays: &[usize]) {
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

fn age_ms(record: &Record, now_us: u64) -> f32 {
    now_us.saturating_sub(record.taken_us) as f32 / 1000.0
}

/// Paints how far every height is from what it should be.
fn paint_errors(canvas: &mut Canvas, left: usize, top: usize, frame: &Frame, truth: &[f64]) {
    let stops = errors();
    let surface = frame.surface();
    for y in 0..MAP {
        for x in 0..MAP {
            let cell = y * CELLS / MAP * CELLS + x * CELLS / MAP;
            let error_mm = ((surface[cell] - truth[cell]).abs() * 1000.0) as f32;
            canvas.set(left + x, top + y, ramp(&stops, error_mm / WRONG_MM));
        }
    }
}

fn paint_scale(canvas: &mut Canvas, left: usize, top: usize, stops: &[(f32, Light)], low: &str, high: &str) {
    for x in 0..MAP {
        let light = ramp(stops, x as f32 / MAP as f32);
        canvas.fill(left + x, top, 1, 8, light);
    }
    canvas.text(left, top + 12, Font::Small, colour(DIM), low);
    let width = high.chars().count() * Font::Small.letter_width();
    canvas.text(left + MAP - width, top + 12, Font::Small, colour(DIM), high);
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
const SHEET_HEIGHT: usize = 1030;
const MARGIN: usize = 40;
const GAP: usize = 35;
const COLUMN: usize = (SHEET_WIDTH - 2 * MARGIN - 2 * GAP) / 3;
const MAP: usize = 270;
const GIF_WIDTH: usize = 480;
const GIF_HEIGHT: usize = 400;
/// 1 is best and slow, 30 fast: at 10 a film takes about five seconds and looks the same.
const GIF_SPEED: i32 = 10;
const BRIGHT: u32 = 0xee_f4_ff;
const DIM: u32 = 0x93_a1_ba;
const GOOD: u32 = 0x7d_d8_a5;
const WARM: u32 = 0xf0_b8_6a;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rehearsal;

    #[test]
    fn the_sheet_and_the_films_are_painted() {
        let mut rehearsal = rehearsal::play(16);
        let sheet = sheet(&rehearsal.shown(), 37, &rehearsal.truth(37));
        assert_eq!((sheet.width(), sheet.height()), (SHEET_WIDTH as u32, SHEET_HEIGHT as u32));
        // The middle of the first surface is water, not background.
        let pixel = |x: usize, y: usize| sheet.as_rgb8().expect("eight bits a channel").get_pixel(x as u32, y as u32).0;
        assert_ne!(pixel(MARGIN + COLUMN / 2, 335), pixel(0, 0));

        let dir = tempfile::tempdir().expect("a temporary directory");
        // Set FRIEZE_WAVE_KEEP to a directory to look at the pictures.
        let keep = std::env::var_os("FRIEZE_WAVE_KEEP");
        let dir = keep.as_deref().map_or(dir.path(), Path::new);
        sheet.save(dir.join("frame-37.png")).expect("the sheet is saved");
        rehearsal.films.iter_mut().for_each(|film| film.frames.truncate(5));
        for shown in rehearsal.shown() {
            let path = dir.join(shown.film.kind.word()).with_extension("gif");
            gif(&shown, &path).expect("the film is saved");
            let bytes = std::fs::read(&path).expect("it is there");
            assert!(bytes.starts_with(b"GIF89a") && bytes.len() > 50_000, "{} bytes", bytes.len());
        }
    }
}
