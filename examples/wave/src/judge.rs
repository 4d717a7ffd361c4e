//! Judges films by other code than that which made them: errors by `recompute.py`, torn frames by the stamps in the
//! log.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use frieze_hlc::Hlc;

use crate::film::Film;

/// Verdict of `recompute.py` on a film, against the simulation that it computed again from the seed.
#[derive(Clone, Debug, serde::Deserialize)]
pub(crate) struct FilmVerdict {
    /// Which film.
    pub(crate) film: String,
    /// Heights compared.
    #[cfg(test)]
    pub(crate) values: u64,
    /// Heights of which any bit differs.
    pub(crate) values_differing: u64,
    /// Largest difference, millimetres.
    #[cfg(test)]
    pub(crate) error_max_mm: f64,
    /// Root mean square of the differences, millimetres.
    pub(crate) error_rms_mm: f64,
    /// The same for each frame.
    pub(crate) frames_rms_mm: Vec<f64>,
    /// Root mean square of what the steps at the borders of two images differ from those of the wave, millimetres.
    pub(crate) seams_rms_mm: f64,
    /// The same for each frame.
    pub(crate) frames_seams_mm: Vec<f64>,
}

/// A version of a camera's file in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileRevision {
    /// When the server took it in.
    pub(crate) stamp: Hlc,
    /// When the camera took it.
    pub(crate) taken_us: u64,
}

impl FileRevision {
    /// Microseconds from when the camera took the image to when the server took it in.
    pub(crate) fn delay_us(&self) -> i64 {
        self.stamp.micros() as i64 - self.taken_us as i64
    }
}

/// Computes the simulation again with Python and compares the films with it.
///
/// # Errors
/// If `python3` cannot be started or refuses a film.
pub(crate) fn recompute(films: &[PathBuf]) -> anyhow::Result<Vec<FilmVerdict>> {
    let mut python = Command::new("python3")
        .arg("-")
        .args(films)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("python3 is needed to compute the simulation a second time")?;
    let mut input = python.stdin.take().context("python3 has no standard input")?;
    input.write_all(include_str!("../recompute.py").as_bytes())?;
    drop(input);
    let output = python.wait_with_output()?;
    ensure!(output.status.success(), "recompute.py ended with {}", output.status);
    let lines = std::str::from_utf8(&output.stdout)?;
    lines.lines().map(|line| serde_json::from_str(line).context("a line of recompute.py")).collect()
}

/// The cameras of each frame whose image belongs to another instant than the others: none if the frame is whole.
///
/// `log` holds the versions of each camera's file in order of stamp. A frame is whole if there was an instant at which
/// the image shown of every camera was its newest; the log says from when to when each was. A torn frame shows a state
/// that never existed; the strays are the fewest cameras without which the rest did exist together.
///
/// # Errors
/// If a frame shows an image that the log does not know.
pub(crate) fn strays(film: &Film, log: &[Vec<FileRevision>]) -> anyhow::Result<Vec<Vec<usize>>> {
    let mut all = Vec::with_capacity(film.frames.len());
    for (index, frame) in film.frames.iter().enumerate() {
        let mut spans = Vec::with_capacity(frame.records.len());
        for (camera, (record, versions)) in frame.records.iter().zip(log).enumerate() {
            let at = versions
                .iter()
                .position(|version| version.taken_us == record.taken_us)
                .with_context(|| format!("frame {index} shows an image of camera {camera} that is not in the log"))?;
            let end = versions.get(at + 1).map_or(Hlc::MAX, |next| next.stamp);
            spans.push((versions[at].stamp, end));
        }
        let holds = |at: Hlc, span: &(Hlc, Hlc)| span.0 <= at && at < span.1;
        // The cameras agree most just after one of them has written.
        let instants = spans.iter().map(|span| span.0);
        let best = instants.max_by_key(|&at| (spans.iter().filter(|span| holds(at, span)).count(), at));
        let best = best.context("a frame without cameras")?;
        all.push((0..spans.len()).filter(|&camera| !holds(best, &spans[camera])).collect());
    }
    Ok(all)
}

/// Checks that every frame of a film by system time shows what the log demands: of each camera the image with the
/// newest stamp up to the frame's instant.
///
/// # Errors
/// Names the first frame and camera that show something else.
pub(crate) fn check_cuts(film: &Film, instants: &[Hlc], log: &[Vec<FileRevision>]) -> anyhow::Result<()> {
    for (index, (frame, &at)) in film.frames.iter().zip(instants).enumerate() {
        for (camera, (record, versions)) in frame.records.iter().zip(log).enumerate() {
            let upto = versions.partition_point(|version| version.stamp <= at);
            let wanted = versions[..upto].last().map(|version| version.taken_us);
            ensure!(
                wanted == Some(record.taken_us),
                "frame {index} at {at}, camera {camera}: shows the image taken at {} us, the log says {wanted:?}",
                record.taken_us,
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::{CAMERAS, CameraRecord};
    use crate::film::{FIRST_SAMPLE, FRAMES, FilmFrame, FilmKind, SAMPLES_PER_FRAME, shows_us};
    use crate::water::simulate;

    const SEED: u64 = 7;

    /// The film of `frames` frames in which every camera shows the sample of the frame, `late` samples late.
    fn film(frames: usize, late: usize) -> Film {
        let truth = simulate(SEED, FIRST_SAMPLE + frames * SAMPLES_PER_FRAME);
        let frame = |frame: usize| {
            let sample = FIRST_SAMPLE + frame * SAMPLES_PER_FRAME - late;
            let bytes = |camera| crate::camera::record(camera, sample as u64, &truth[sample]);
            let records = (0..CAMERAS).map(|camera| crate::camera::parse(&bytes(camera)).expect("a record")).collect();
            FilmFrame { at_us: shows_us(frame), records }
        };
        Film { kind: FilmKind::UserTime, frames: (0..frames).map(frame).collect() }
    }

    fn verdict(film: &Film) -> FilmVerdict {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("test.film");
        film.save(SEED, &path).expect("the film is saved");
        recompute(&[path]).expect("python3 judges the film").remove(0)
    }

    #[test]
    fn other_code_computes_the_same_water_to_the_last_bit() {
        let verdict = verdict(&film(FRAMES, 0));
        assert_eq!((verdict.values, verdict.values_differing), (1_000_000, 0));
        assert_eq!((verdict.error_max_mm, verdict.error_rms_mm), (0.0, 0.0));
    }

    #[test]
    fn one_wrong_bit_is_found() {
        let mut film = film(3, 0);
        let height = &mut film.frames[2].records[99].heights[99];
        *height = f64::from_bits(height.to_bits() ^ 1);
        let verdict = verdict(&film);
        assert_eq!(verdict.values_differing, 1);
        assert!(verdict.error_max_mm > 0.0);
    }

    #[test]
    fn a_film_that_lags_has_an_error_and_one_that_is_torn_has_seams() {
        let verdict = verdict(&film(3, 1));
        assert!(verdict.error_rms_mm > 0.01, "{verdict:?}");
        let late_alike = verdict.seams_rms_mm;

        let mut torn = film(3, 0);
        let late = film(3, 1);
        for (frame, late) in torn.frames.iter_mut().zip(late.frames) {
            let odd = late.records.into_iter().enumerate().filter(|(camera, _)| (camera / 10 + camera) % 2 == 1);
            odd.for_each(|(camera, record)| frame.records[camera] = record);
        }
        let torn = self::verdict(&torn);
        // Half the images are right, so the error is smaller; and every border is one of two instants.
        assert!(torn.error_rms_mm < verdict.error_rms_mm && torn.seams_rms_mm > 2.0 * late_alike, "{torn:?}");
    }

    /// Camera c wrote image i at stamp 10 i + c.
    fn log() -> Vec<Vec<FileRevision>> {
        let version = |camera: u64, image: u64| FileRevision { stamp: Hlc(10 * image + camera), taken_us: image };
        (0..3).map(|camera| (0..5).map(|image| version(camera, image)).collect()).collect()
    }

    fn frame_of(images: [u64; 3]) -> Film {
        let records = images.map(|image| CameraRecord { taken_us: image, heights: Vec::new() }).to_vec();
        Film { kind: FilmKind::Copied, frames: vec![FilmFrame { at_us: 0, records }] }
    }

    #[test]
    fn a_frame_is_torn_if_no_instant_had_all_its_images() {
        const NONE: [usize; 0] = [];
        let torn = |images| strays(&frame_of(images), &log()).expect("every image is in the log").remove(0);
        assert_eq!(torn([1, 1, 1]), NONE);
        assert_eq!(torn([2, 1, 1]), NONE, "at stamp 20 the first camera was ahead");
        assert_eq!(torn([1, 2, 2]), [0], "the first camera wrote image 2 before the others did");
        assert_eq!(torn([4, 4, 3]), NONE);
        assert_eq!(torn([4, 2, 4]), [1]);
        assert!(strays(&frame_of([1, 9, 1]), &log()).is_err());
    }

    #[test]
    fn a_cut_shows_the_newest_image_up_to_its_instant() {
        let check = |images, at| check_cuts(&frame_of(images), &[Hlc(at)], &log());
        assert!(check([2, 1, 1], 20).is_ok());
        assert!(check([2, 2, 1], 21).is_ok());
        assert!(check([2, 1, 1], 21).is_err());
        assert!(check([1, 1, 1], 20).is_err());
    }
}
