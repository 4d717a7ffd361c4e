//! Shoots the three films: from the live files, at instants of system time, at instants of user time.

use std::path::Path;

use anyhow::{Context, ensure};
use frieze_client::{Fs, InstantInfo, OpenFlags, Target, UserTime};
use frieze_hlc::Hlc;

use crate::camera::{self, CAMERAS, CameraRecord, RECORD_BYTES};
use crate::film::{FRAMES, Film, FilmFrame, FilmKind, shows_us};
use crate::pace::StreamPace;
use crate::stream;

/// Copies the live files to the local directory `copies` once for each frame, as fast as it goes, one after the other.
///
/// # Errors
/// The server's error, or that of a stream.
pub(crate) fn copied(
    fs: &Fs,
    directory: &str,
    copies: &Path,
    begins_us: u64,
    pace: &StreamPace,
    mut on_frame: impl FnMut(),
) -> anyhow::Result<Film> {
    std::fs::create_dir_all(copies).with_context(|| format!("cannot make {}", copies.display()))?;
    let mut frames = Vec::with_capacity(FRAMES);
    for frame in 0..FRAMES {
        pace.wait_until(shows_us(frame))?;
        for camera in 0..CAMERAS {
            copy(fs, &stream::file(directory, camera), &copies.join(camera::name(camera)))?;
        }
        let record = |camera| {
            let bytes = std::fs::read(copies.join(camera::name(camera)))?;
            parse(camera, &bytes)
        };
        let records = (0..CAMERAS).map(record).collect::<anyhow::Result<_>>()?;
        frames.push(FilmFrame { at_us: begins_us + shows_us(frame), records });
        on_frame();
    }
    std::fs::remove_dir_all(copies)?;
    Ok(Film { kind: FilmKind::Copied, frames })
}

/// Copies a file as `cp` does: asks what it is, opens it, reads until there is nothing more, writes.
fn copy(fs: &Fs, from: &Target, to: &Path) -> anyhow::Result<()> {
    let size = fs.stat(from)?.attr.size;
    let file = fs.open(from, OpenFlags::READ)?;
    let mut bytes = Vec::with_capacity(size as usize);
    let mut part = [0; 4096];
    loop {
        let len = file.read_at(bytes.len() as u64, &mut part)?;
        if len == 0 {
            break;
        }
        bytes.extend_from_slice(&part[..len]);
    }
    std::fs::write(to, &bytes).with_context(|| format!("cannot write {}", to.display()))
}

/// Reads each frame at its instant of system time; answers the instants too.
///
/// # Errors
/// The server's error, or its answer is of another instant.
pub(crate) fn by_system_time(fs: &Fs, directory: &str, begins_us: u64) -> anyhow::Result<(Film, Vec<Hlc>)> {
    let mut frames = Vec::with_capacity(FRAMES);
    let mut instants = Vec::with_capacity(FRAMES);
    for frame in 0..FRAMES {
        let at_us = begins_us + shows_us(frame);
        let instant = Hlc::last_of_micros(at_us);
        let past = fs.at(instant);
        let record = |camera| {
            let (record, answered) = read(&past, directory, camera)?;
            ensure!(Hlc(answered.at) == instant, "asked for {instant}, answered for {}", Hlc(answered.at));
            Ok(record)
        };
        frames.push(FilmFrame { at_us, records: (0..CAMERAS).map(record).collect::<anyhow::Result<_>>()? });
        instants.push(instant);
    }
    Ok((Film { kind: FilmKind::SystemTime, frames }, instants))
}

/// Reads each frame at its instant of user time.
///
/// # Errors
/// The server's error, or an answer is not final although later images exist.
pub(crate) fn by_user_time(fs: &Fs, directory: &str, begins_us: u64) -> anyhow::Result<Film> {
    let mut frames = Vec::with_capacity(FRAMES);
    for frame in 0..FRAMES {
        let at_us = begins_us + shows_us(frame);
        let past = fs.user_at(UserTime(at_us as i64 * 1000));
        let record = |camera| {
            let (record, answered) = read(&past, directory, camera)?;
            ensure!(!answered.user_time_open, "frame {frame}, camera {camera}: the answer is not final");
            Ok(record)
        };
        frames.push(FilmFrame { at_us, records: (0..CAMERAS).map(record).collect::<anyhow::Result<_>>()? });
    }
    Ok(Film { kind: FilmKind::UserTime, frames })
}

/// Reads a camera's file as the view has it.
fn read(fs: &Fs, directory: &str, camera: usize) -> anyhow::Result<(CameraRecord, InstantInfo)> {
    let file = fs.open(&stream::file(directory, camera), OpenFlags::READ)?;
    let mut bytes = [0; RECORD_BYTES];
    let len = file.read_at(0, &mut bytes)?;
    Ok((parse(camera, &bytes[..len])?, file.answered()))
}

fn parse(camera: usize, bytes: &[u8]) -> anyhow::Result<CameraRecord> {
    let len = bytes.len();
    camera::parse(bytes).with_context(|| format!("the file of camera {camera} holds {len} bytes instead of a record"))
}
