//! Shoots the three films: from the live files, at instants of system time, at instants of user time.

use anyhow::{Context, bail, ensure};
use frieze_client::{Answered, Fs, OpenFlags, UserTime};
use frieze_hlc::Hlc;

use crate::camera::{self, CAMERAS, RECORD_BYTES, Record};
use crate::film::{FRAMES, Film, Frame, Kind, shows_us};
use crate::pace::Pace;
use crate::stream;

/// Copies the live files once for each frame, as fast as it goes, one file after the other.
///
/// # Errors
/// As the server says, or when a stream failed.
pub(crate) fn copied(
    fs: &Fs,
    directory: &str,
    begins_us: u64,
    pace: &Pace,
    mut on_frame: impl FnMut(),
) -> anyhow::Result<Film> {
    let frames = (0..FRAMES).map(|frame| {
        if pace.wait_until(shows_us(frame)).is_err() {
            bail!("stopped because a stream failed");
        }
        let records = (0..CAMERAS).map(|camera| Ok(read(fs, directory, camera)?.0));
        let frame = Frame { at_us: begins_us + shows_us(frame), records: records.collect::<anyhow::Result<_>>()? };
        on_frame();
        Ok(frame)
    });
    Ok(Film { kind: Kind::Copied, frames: frames.collect::<anyhow::Result<_>>()? })
}

/// Reads each frame at its instant of system time; answers the instants too.
///
/// # Errors
/// As the server says, or if it answers for another instant.
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
        frames.push(Frame { at_us, records: (0..CAMERAS).map(record).collect::<anyhow::Result<_>>()? });
        instants.push(instant);
    }
    Ok((Film { kind: Kind::SystemTime, frames }, instants))
}

/// Reads each frame at its instant of user time.
///
/// # Errors
/// As the server says, or if an answer is not final although later images are there.
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
        frames.push(Frame { at_us, records: (0..CAMERAS).map(record).collect::<anyhow::Result<_>>()? });
    }
    Ok(Film { kind: Kind::UserTime, frames })
}

/// Opens, reads and closes a camera's file, as `cp` would.
fn read(fs: &Fs, directory: &str, camera: usize) -> anyhow::Result<(Record, Answered)> {
    let file = fs.open(&stream::file(directory, camera), OpenFlags::READ)?;
    let mut bytes = [0; RECORD_BYTES];
    let len = file.read_at(0, &mut bytes)?;
    let record = camera::parse(&bytes[..len])
        .with_context(|| format!("the file of camera {camera} holds {len} bytes instead of a record"))?;
    Ok((record, file.answered()))
}
