//! Paints films that other programs made, side by side: those of HDFS's snapshots beside frieze's (`beside_hdfs.py`).

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::canvas::colour;
use crate::picture::{DIM, FilmColumn, sheet};
use crate::surface::MARK;
use crate::water::CELLS;

/// What to paint.
#[derive(Deserialize)]
struct FilmCaption {
    title: String,
    about: String,
    /// Number of the frame, the first is 0.
    shown: usize,
    /// The last is the wave itself.
    films: Vec<Described>,
    out: PathBuf,
}

/// A film as it was judged.
#[derive(Deserialize)]
struct Described {
    title: String,
    film: PathBuf,
    /// Cameras whose images are of another instant than that of the shown frame.
    strays: Vec<usize>,
    lines: Vec<String>,
}

/// Paints the films that the file `about` describes.
///
/// # Errors
/// Names the file that cannot be read or is no film.
pub(crate) fn paint(about: &Path) -> anyhow::Result<()> {
    let file = File::open(about).with_context(|| format!("cannot read {}", about.display()))?;
    let about: FilmCaption = serde_json::from_reader(BufReader::new(file)).context("what to paint")?;
    let surfaces: Vec<Vec<f64>> =
        about.films.iter().map(|film| surface(&film.film, about.shown)).collect::<anyhow::Result<_>>()?;
    let columns = about.films.iter().zip(&surfaces).map(|(film, surface)| {
        let light = |line: usize| if line == 0 && !film.strays.is_empty() { colour(MARK) } else { colour(DIM) };
        let lines = film.lines.iter().enumerate().map(|(line, words)| (words.clone(), light(line))).collect();
        FilmColumn { caption: &film.title, surface, strays: &film.strays, lines, frame: None }
    });
    let columns: Vec<FilmColumn<'_>> = columns.collect();
    let truth = surfaces.last().context("no films")?;
    sheet(&about.title, &about.about, &columns, truth).save(&about.out)?;
    Ok(())
}

/// The heights of one frame of a film: a line of JSON, then the doubles of every frame.
fn surface(path: &Path, frame: usize) -> anyhow::Result<Vec<f64>> {
    let unread = || format!("cannot read the film {}", path.display());
    let mut file = BufReader::new(File::open(path).with_context(unread)?);
    file.read_until(b'\n', &mut Vec::new()).with_context(unread)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).with_context(unread)?;
    let (doubles, _) = bytes.as_chunks();
    let cells = CELLS * CELLS;
    ensure!(doubles.len() >= (frame + 1) * cells, "the film {} ends before frame {frame}", path.display());
    Ok(doubles[frame * cells..(frame + 1) * cells].iter().map(|double| f64::from_le_bytes(*double)).collect())
}

#[cfg(test)]
mod tests {
    use crate::rehearsal;

    #[test]
    fn films_of_other_programs_are_painted_and_those_that_end_early_are_refused() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let keep = std::env::var_os("FRIEZE_WAVE_KEEP");
        let folder = keep.as_deref().map_or(dir.path(), std::path::Path::new);
        let rehearsal = rehearsal::play(16);
        let mut described = Vec::new();
        for shown in rehearsal.shown() {
            let path = dir.path().join(shown.film.kind.word());
            shown.film.save(16, &path).expect("the film is saved");
            let words = ["41 images of another instant", "60 ms behind, up to 120 ms apart", "error 0.21 mm"];
            described.push(serde_json::json!({
                "title": shown.film.kind.caption(), "film": path, "strays": [3, 44, 45], "lines": words,
            }));
        }
        let (out, about) = (folder.join("beside.png"), dir.path().join("about"));
        let mut wanted = serde_json::json!({
            "title": "The same wave", "about": "Frame 37 of 100", "shown": 36, "films": described, "out": out,
        });
        std::fs::write(&about, wanted.to_string()).expect("it is written");
        super::paint(&about).expect("it is painted");
        assert!(std::fs::read(&out).expect("it is there").starts_with(b"\x89PNG"));
        wanted["shown"] = 100.into();
        std::fs::write(&about, wanted.to_string()).expect("it is written");
        let words = super::paint(&about).expect_err("there are 100 frames").to_string();
        assert!(words.contains("ends before frame 100"), "{words}");
    }
}
