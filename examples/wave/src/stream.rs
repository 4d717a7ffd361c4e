//! Streams the images of a hundred cameras into frieze, each over a connection and session of its own.
//!
//! Every camera overwrites one record at the start of its own file, so the file holds the newest image and its past
//! holds all the others: nothing is kept by name, nothing is deleted, no snapshot is taken.

use anyhow::{Context, ensure};
use frieze_client::{Client, CreateMode, ErrorKind, File, Fs, Options, Target, VersionKind, XattrMode};
use frieze_hlc::Hlc;

use crate::camera::{self, CAMERAS, TIME_PLUGIN};
use crate::film::SAMPLES;
use crate::judge::FileRevision;
use crate::pace::{PaceStopped, StreamPace};
use crate::schedule;
use crate::water::SAMPLE_US;

/// The cameras, connected and ready.
pub(crate) struct Cameras {
    /// One a camera; the client is kept because its session ends with it.
    open: Vec<(Client, File)>,
}

/// Makes the directory that the cameras write into and binds it to the time plug-in.
///
/// # Errors
/// The server's error; an existing directory is used.
pub(crate) fn prepare(fs: &Fs, directory: &str) -> anyhow::Result<()> {
    let target = Target::path(directory);
    match fs.mkdir(&target, 0o755) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Exists => {}
        Err(error) => return Err(error).with_context(|| format!("cannot make {directory}")),
    }
    fs.set_xattr(&target, b"user.frieze.time", TIME_PLUGIN.as_bytes(), XattrMode::Any)
        .with_context(|| format!("cannot bind {directory} to the time plug-in"))?;
    Ok(())
}

/// The file of a camera.
pub(crate) fn file(directory: &str, camera: usize) -> Target {
    Target::path(format!("{}/{}", directory.trim_end_matches('/'), camera::name(camera)))
}

impl Cameras {
    /// Connects every camera and opens its file.
    ///
    /// # Errors
    /// The server's error.
    pub(crate) fn connect(options: &Options, directory: &str) -> anyhow::Result<Cameras> {
        let mut open = Vec::with_capacity(CAMERAS);
        for camera in 0..CAMERAS {
            let options = Options { command: format!("wave {}", camera::name(camera)), ..options.clone() };
            let client = Client::connect(options).with_context(|| format!("camera {camera} cannot connect"))?;
            let file = client.fs().create(&file(directory, camera), 0o644, CreateMode::OpenExisting)?;
            open.push((client, file));
        }
        Ok(Cameras { open })
    }

    /// Streams `samples`, the first taken at `begins_us`, while `meanwhile` runs; answers the stamps that the server
    /// gave to the images of each camera, and what `meanwhile` made.
    ///
    /// # Errors
    /// The error of the first camera that fails, or of `meanwhile`; every other thread stops then.
    pub(crate) fn stream<T>(
        self,
        pace: &StreamPace,
        seed: u64,
        begins_us: u64,
        samples: &[Vec<f64>],
        meanwhile: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(Vec<Vec<Hlc>>, T)> {
        let one = |camera: usize, file: &File| -> anyhow::Result<Vec<Hlc>> {
            let mut stamps = Vec::with_capacity(SAMPLES);
            for (sample, arrives_us) in schedule::arrivals(seed, camera).into_iter().enumerate() {
                pace.wait_until(arrives_us)?;
                let record = camera::record(camera, begins_us + sample as u64 * SAMPLE_US, &samples[sample]);
                let stamp = file.write_at(0, &record).with_context(|| format!("camera {camera}, image {sample}"))?;
                stamps.push(stamp);
            }
            Ok(stamps)
        };
        let stopping = |result: anyhow::Result<Vec<Hlc>>| result.inspect_err(|_| pace.stop());
        std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .open
                .into_iter()
                .enumerate()
                .map(|(camera, (client, file))| {
                    scope.spawn(move || {
                        let stamps = stopping(one(camera, &file))?;
                        file.close()?;
                        client.close()?;
                        Ok(stamps)
                    })
                })
                .collect();
            let made = meanwhile().inspect_err(|_| pace.stop());
            let mut stamps = Vec::with_capacity(CAMERAS);
            let mut errors = Vec::new();
            for thread in threads {
                match thread.join().expect("a camera does not panic") {
                    Ok(of_camera) => stamps.push(of_camera),
                    Err(error) => errors.push(error),
                }
            }
            match made {
                Ok(made) if errors.is_empty() => return Ok((stamps, made)),
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
            // The cause, not those that stopped because of it.
            let cause = errors.iter().position(|error| !error.is::<PaceStopped>()).unwrap_or(0);
            Err(errors.swap_remove(cause))
        })
    }
}

/// Reads the versions of every camera's file since `after` from the log and checks that they are what was acknowledged:
/// the same stamps, and the user times that the cameras wrote.
///
/// # Errors
/// The server's error, or the log differs from the acknowledgements.
pub(crate) fn read_log(
    fs: &Fs,
    directory: &str,
    after: Hlc,
    begins_us: u64,
    stamps: &[Vec<Hlc>],
) -> anyhow::Result<Vec<Vec<FileRevision>>> {
    let mut log = Vec::with_capacity(CAMERAS);
    for (camera, acknowledged) in stamps.iter().enumerate() {
        let found = versions(fs, &file(directory, camera), after)?;
        let taken_us = |sample: usize| begins_us + sample as u64 * SAMPLE_US;
        let wanted = acknowledged.iter().enumerate();
        let wanted: Vec<FileRevision> =
            wanted.map(|(sample, &stamp)| FileRevision { stamp, taken_us: taken_us(sample) }).collect();
        ensure!(found == wanted, "the log of camera {camera} differs from what the server acknowledged");
        log.push(found);
    }
    Ok(log)
}

fn versions(fs: &Fs, file: &Target, mut after: Hlc) -> anyhow::Result<Vec<FileRevision>> {
    let mut found = Vec::new();
    loop {
        let page =
            fs.log(file, frieze_client::HistoryInterval { after, ..frieze_client::HistoryInterval::WHOLE }, 0)?;
        for version in &page.versions {
            after = after.max(Hlc(version.stamp));
            if version.kind == VersionKind::Write as i32 {
                let taken_ns = version.user_time.context("a record in the log has no user time")?;
                found.push(FileRevision { stamp: Hlc(version.stamp), taken_us: taken_ns as u64 / 1000 });
            }
        }
        if !page.more {
            return Ok(found);
        }
    }
}
