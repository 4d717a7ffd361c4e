//! The demo without a server, for tests: the answers of frieze, computed from the schedule.

use frieze_hlc::Hlc;

use crate::camera::{self, CAMERAS, CameraRecord};
use crate::film::{FIRST_SAMPLE, FRAMES, Film, FilmFrame, FilmKind, SAMPLES, SAMPLES_PER_FRAME, shows_us};
use crate::judge::{self, FileRevision, FilmVerdict};
use crate::picture::ShownFilm;
use crate::schedule;
use crate::water::{SAMPLE_US, simulate};

/// Microseconds that the copy of one file takes.
const COPY_US: u64 = 150;

/// A demo that was played.
pub(crate) struct Rehearsal {
    pub(crate) films: Vec<Film>,
    pub(crate) log: Vec<Vec<FileRevision>>,
    pub(crate) instants: Vec<Hlc>,
    verdicts: Vec<FilmVerdict>,
    strays: Vec<Vec<Vec<usize>>>,
    truth: Vec<Vec<f64>>,
}

impl Rehearsal {
    pub(crate) fn shown(&self) -> Vec<ShownFilm<'_>> {
        let parts = self.films.iter().zip(&self.verdicts).zip(&self.strays);
        parts.map(|((film, verdict), strays)| ShownFilm { film, verdict, strays }).collect()
    }

    pub(crate) fn truth(&self, number: usize) -> Vec<f64> {
        self.truth[FIRST_SAMPLE + (number - 1) * SAMPLES_PER_FRAME].clone()
    }
}

/// Plays the demo of a seed.
pub(crate) fn play(seed: u64) -> Rehearsal {
    let truth = simulate(seed, SAMPLES);
    let arrivals: Vec<Vec<u64>> = (0..CAMERAS).map(|camera| schedule::arrivals(seed, camera)).collect();
    let stamp = |at_us: u64, camera: usize| Hlc(Hlc::first_of_micros(at_us).0 + camera as u64);
    let version = |camera: usize, sample: usize| FileRevision {
        stamp: stamp(arrivals[camera][sample], camera),
        taken_us: sample as u64 * SAMPLE_US,
    };
    let log: Vec<Vec<FileRevision>> =
        (0..CAMERAS).map(|camera| (0..SAMPLES).map(|sample| version(camera, sample)).collect()).collect();
    let image = |camera: usize, sample: usize| {
        camera::parse(&camera::record(camera, sample as u64 * SAMPLE_US, &truth[sample])).expect("a record")
    };
    let newest = |camera: usize, at: Hlc| -> CameraRecord {
        image(camera, log[camera].partition_point(|version| version.stamp <= at) - 1)
    };
    let film = |kind: FilmKind, record: &dyn Fn(usize, usize) -> CameraRecord| Film {
        kind,
        frames: (0..FRAMES)
            .map(|frame| FilmFrame {
                at_us: shows_us(frame),
                records: (0..CAMERAS).map(|camera| record(frame, camera)).collect(),
            })
            .collect(),
    };
    let at = |frame: usize, late_us: u64| Hlc::last_of_micros(shows_us(frame) + late_us);
    let films = vec![
        film(FilmKind::Copied, &|frame, camera| newest(camera, at(frame, camera as u64 * COPY_US))),
        film(FilmKind::SystemTime, &|frame, camera| newest(camera, at(frame, 0))),
        film(FilmKind::UserTime, &|frame, camera| image(camera, FIRST_SAMPLE + frame * SAMPLES_PER_FRAME)),
    ];
    let dir = tempfile::tempdir().expect("a temporary directory");
    let paths: Vec<_> = films.iter().map(|film| dir.path().join(film.kind.word())).collect();
    for (film, path) in films.iter().zip(&paths) {
        film.save(seed, path).expect("the film is saved");
    }
    let verdicts = judge::recompute(&paths).expect("python3 judges the films");
    let strays = |film: &Film| judge::strays(film, &log).expect("every image is in the log");
    let strays = vec![strays(&films[0]), strays(&films[1]), Vec::new()];
    Rehearsal { instants: (0..FRAMES).map(|frame| at(frame, 0)).collect(), films, verdicts, strays, truth, log }
}

#[test]
fn only_user_time_gives_the_wave_back_exactly() {
    let rehearsal = play(1);
    let shown = rehearsal.shown();
    let [copied, system, user] = &shown[..] else { panic!("three films") };
    assert!(copied.torn() > 50, "{} torn frames", copied.torn());
    assert_eq!(system.torn(), 0);
    assert!(copied.verdict.error_rms_mm > 0.01 && system.verdict.error_rms_mm > 0.01);
    assert_eq!((user.verdict.values_differing, user.verdict.error_max_mm), (0, 0.0));
    judge::check_cuts(system.film, &rehearsal.instants, &rehearsal.log).expect("the cuts are those of the log");
    assert!(judge::check_cuts(copied.film, &rehearsal.instants, &rehearsal.log).is_err());
}
