//! Instants in paths: which exact instant a name means, and to which program.
//!
//! An exact name, and the name of a snapshot, mean the same to every program. A moving name (`5m-ago`, `yesterday`) is
//! resolved on its first use by a program, and keeps that meaning for the program, so that one copy of a tree sees one
//! cut.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use frieze_base::{Fault, MonoTime, Reason};
use frieze_client::{Client, Error, Fs, InodeId, Instant, Target, UserTime, ZonePolicy, mono};
use frieze_hlc::{Hlc, looks_like_instant};

use crate::paths::PastPath;
use crate::snapshots::names as snapshot_names;

/// The meaning of moving names, for each program that used one.
#[derive(Debug, Default)]
pub(crate) struct MovingInstants(Mutex<BTreeMap<(Vec<u8>, String), ResolvedInstant>>);

#[derive(Clone, Copy, Debug)]
struct ResolvedInstant {
    at: Hlc,
    said: MonoTime,
}

impl MovingInstants {
    /// The exact instant that `name` means to `program`; an empty program resolves it now.
    fn resolve(&self, client: &Client, program: &[u8], name: &str) -> Result<Hlc, Error> {
        let instant = Instant::parse(name, ZonePolicy::Refuse)?;
        if program.is_empty() || matches!(instant, Instant::System(_) | Instant::Named(_)) {
            return client.resolve(name, ZonePolicy::Refuse);
        }
        let key = (program.to_vec(), name.to_owned());
        let now = mono();
        if let Some(meaning) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&key) {
            meaning.said = now;
            return Ok(meaning.at);
        }
        let at = client.resolve(name, ZonePolicy::Refuse)?;
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.len() >= CACHED_MAX {
            table.retain(|_, meaning| now.0.saturating_sub(meaning.said.0) < CACHED_NS);
        }
        if table.len() >= CACHED_MAX {
            let words = format!("{name}: programs have said {CACHED_MAX} moving names lately: say an exact instant");
            return Err(Error::Refused(Fault::new(Reason::Overloaded, words)));
        }
        // Of two concurrent calls of one program the first one's meaning counts.
        Ok(table.entry(key).or_insert(ResolvedInstant { at, said: now }).at)
    }
}

/// The view and the target of a name of the past, for the caller of `fs`.
pub(crate) fn view(
    client: &Client,
    moving: &MovingInstants,
    program: &[u8],
    fs: &Fs,
    past: &PastPath,
) -> Result<(Fs, Target), Error> {
    // The last known state, if there is no leader: the way to the past needs none.
    let directory = fs.recent().stat(&Target::path(past.directory.clone()))?.attr;
    let mut view = fs.clone();
    if past.is_snapshot {
        view = view.at(snapshot_names::instant(client, directory.inode, &past.when)?);
    }
    let when = Some(&past.when).filter(|_| !past.is_snapshot);
    for name in [when, past.then.as_ref()].into_iter().flatten() {
        view = match name.strip_prefix("user-") {
            Some(time) if view.view().user_at.is_none() => view.user_at(UserTime::parse(time, ZonePolicy::Refuse)?),
            None if view.view().at.is_none() && view.view().user_at.is_none() => {
                let at = moving.resolve(client, program, name).map_err(|error| unknown(name, error))?;
                if at == Hlc::MAX {
                    return Err(Error::Refused(Fault::new(Reason::Future, format!("{name} lies in the future"))));
                }
                view.at(at)
            }
            _ => {
                let words = format!("{name}: this directory is past already");
                return Err(Error::Refused(Fault::new(Reason::InvalidInstant, words)));
            }
        };
    }
    let target = Target { base: directory.inode, path: past.path.clone(), follow: true };
    Ok((view, if past.path.is_empty() { Target::inode(InodeId(directory.inode)) } else { target }))
}

/// A name that neither looks like an instant nor is a snapshot's does not exist; one that looks like an instant and is
/// none is invalid.
fn unknown(name: &str, error: Error) -> Error {
    match error {
        Error::Instant(_) if !looks_like_instant(name) && !name.ends_with("-ago") => {
            Error::Refused(Fault::new(Reason::NotFound, format!("there is no {name} in .at")))
        }
        error => error,
    }
}

/// How long an unused meaning is kept when there are many.
const CACHED_NS: u64 = 3600 * 1_000_000_000;
/// Meanings kept at most.
const CACHED_MAX: usize = 16_384;
