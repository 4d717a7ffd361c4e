//! A film: a hundred frames of the whole surface, in memory and as a file for `recompute.py`.

use std::io::{BufWriter, Write};
use std::path::Path;

use crate::camera::{self, CameraRecord};
use crate::water::{CELLS, SAMPLE_US};

/// Frames of a film.
pub(crate) const FRAMES: usize = 100;
/// Microseconds between two frames.
pub(crate) const FRAME_US: u64 = 100_000;
/// Samples between two frames.
pub(crate) const SAMPLES_PER_FRAME: usize = (FRAME_US / SAMPLE_US) as usize;
/// The sample that frame 0 shows: half a second after the first, when every camera has certainly sent something.
pub(crate) const FIRST_SAMPLE: usize = 10;
/// Samples streamed: all that the films show and half a second more, so that no camera ends before the last frame.
pub(crate) const SAMPLES: usize = FIRST_SAMPLE + FRAMES * SAMPLES_PER_FRAME + 10;

/// How a film was made; in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilmKind {
    /// The live files, copied one after the other while they were written.
    Copied,
    /// Each frame read at an instant of system time.
    SystemTime,
    /// Each frame read at an instant of user time.
    UserTime,
}

/// One frame: the image of every camera.
pub(crate) struct FilmFrame {
    /// The instant that the frame is meant to show, microseconds since the Unix epoch.
    pub(crate) at_us: u64,
    /// One a camera.
    pub(crate) records: Vec<CameraRecord>,
}

/// A film.
pub(crate) struct Film {
    /// How it was made.
    pub(crate) kind: FilmKind,
    /// In order of time.
    pub(crate) frames: Vec<FilmFrame>,
}

impl FilmKind {
    /// One word for file names.
    pub(crate) fn word(self) -> &'static str {
        match self {
            FilmKind::Copied => "copied",
            FilmKind::SystemTime => "system",
            FilmKind::UserTime => "user",
        }
    }

    /// The caption under a picture.
    pub(crate) fn caption(self) -> &'static str {
        match self {
            FilmKind::Copied => "copied from the live files",
            FilmKind::SystemTime => "read at a system time",
            FilmKind::UserTime => "read at a user time",
        }
    }
}

impl FilmFrame {
    /// Heights of the surface in metres, row by row.
    pub(crate) fn surface(&self) -> Vec<f64> {
        camera::join(&self.records)
    }
}

impl Film {
    /// Writes the film to a file: a line of JSON that describes it, then the doubles of every frame, little-endian.
    ///
    /// # Errors
    /// The operating system's error.
    pub(crate) fn save(&self, seed: u64, path: &Path) -> std::io::Result<()> {
        let mut file = BufWriter::new(std::fs::File::create(path)?);
        let about = serde_json::json!({
            "film": self.kind.word(),
            "seed": seed,
            "cells": CELLS,
            "frames": self.frames.len(),
            "first_sample": FIRST_SAMPLE,
            "samples_per_frame": SAMPLES_PER_FRAME,
        });
        writeln!(file, "{about}")?;
        for frame in &self.frames {
            for height in frame.surface() {
                file.write_all(&height.to_le_bytes())?;
            }
        }
        file.flush()
    }
}

/// Microseconds between the first sample and the instant that a frame shows.
pub(crate) fn shows_us(frame: usize) -> u64 {
    FIRST_SAMPLE as u64 * SAMPLE_US + frame as u64 * FRAME_US
}
