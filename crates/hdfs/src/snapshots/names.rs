//! The names of snapshots of a directory, in frieze and below its `.snapshot`.

use std::collections::BTreeMap;

use frieze_base::Fault;
use frieze_client::{Client, Error, Instant, Reason, Snapshot, ZonePolicy};
use frieze_hlc::Hlc;

use crate::exception::Exception;

/// Prefix of the names of snapshots of directories.
const PREFIX: &str = "hdfs-";

/// The name in frieze of a snapshot of a directory.
pub(crate) fn own_name(directory: u64, name: &str) -> String {
    format!("{PREFIX}{directory}-{name}")
}

/// The directory of a snapshot, and the name of the snapshot there.
pub(crate) fn owner(name: &str) -> Option<(u64, &str)> {
    let (directory, name) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some((directory.parse().ok()?, name))
}

/// The instant of the snapshot with this name below the `.snapshot` of a directory.
///
/// # Errors
/// `Refused` with `NotFound` if there is none.
pub(crate) fn instant(client: &Client, directory: u64, name: &str) -> Result<Hlc, Error> {
    let none = || Error::Refused(Fault::new(Reason::NotFound, format!("there is no snapshot {name}")));
    let resolve = |name: &str| match Instant::parse(name, ZonePolicy::Refuse) {
        // A name that looks like an instant, or is invalid, is no snapshot's.
        Ok(Instant::Named(_)) => client.resolve(name, ZonePolicy::Refuse),
        _ => Err(none()),
    };
    match resolve(&own_name(directory, name)) {
        Err(error) if error.reason() == Reason::NotFound && owner(name).is_none() => resolve(name),
        other => other,
    }
}

/// The snapshots below the `.snapshot` of a directory, by their names there: its own, and those of the whole tree. In
/// order.
pub(crate) fn below(snapshots: Vec<Snapshot>, directory: u64) -> BTreeMap<String, Snapshot> {
    let mut all = BTreeMap::new();
    for snapshot in snapshots {
        match owner(&snapshot.name) {
            Some((of, name)) if of == directory => drop(all.insert(name.to_owned(), snapshot)),
            Some(_) => {}
            // The directory's own comes first.
            None => drop(all.entry(snapshot.name.clone()).or_insert(snapshot)),
        }
    }
    all
}

/// Checks the name of a snapshot.
pub(crate) fn check_name(name: &str) -> Result<(), Exception> {
    if name.is_empty() || [".", ".."].contains(&name) || name.contains(['/', ':', '\0']) {
        return Err(Exception::illegal_argument(format!("Invalid snapshot name: {name}")));
    }
    frieze_hlc::check_snapshot_name(&own_name(u64::MAX, name))
        .map_err(|error| Exception::illegal_argument(format!("Invalid snapshot name: {name}: {error}")))
}

/// The default name of a snapshot, as HDFS makes it, in UTC.
pub(crate) fn unnamed() -> String {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    now.strftime("s%Y%m%d-%H%M%S.%3f").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_belongs_to_its_directory_and_no_other() {
        assert_eq!(owner(&own_name(17, "s-1")), Some((17, "s-1")));
        for other in ["hdfs-", "hdfs-x-s", "hdfs-17", "s1", "hdfs--s"] {
            assert_eq!(owner(other), None, "{other}");
        }
        let snapshot = |name: &str| Snapshot { name: name.to_owned(), ..Snapshot::default() };
        let names = ["all", "hdfs-17-all", "hdfs-17-s", "hdfs-18-t", "u"];
        let all = below(names.map(snapshot).to_vec(), 17);
        let seen: Vec<_> = all.iter().map(|(name, one)| (name.as_str(), one.name.as_str())).collect();
        assert_eq!(seen, [("all", "hdfs-17-all"), ("s", "hdfs-17-s"), ("u", "u")]);
        for wrong in ["", ".", "a/b", "a:b", "5m-ago"] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
        check_name(&unnamed()).unwrap();
        check_name("2026-11-24").unwrap();
    }
}
