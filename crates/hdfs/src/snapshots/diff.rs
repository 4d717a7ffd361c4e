//! What is different in a directory between two of its snapshots, in the words of HDFS.

use std::collections::{BTreeMap, BTreeSet};

use frieze_client::{Difference, FileKind, HistoryInterval, InodeId, Reason, Side, Target, flags};

use crate::exception::Exception;
use crate::file_names::FileNames;
use crate::paths::shown;
use crate::proto::{self, SnapshotDiffReportEntry};
use crate::remote_user::CallContext;
use crate::snapshots::directory::{directory_of, path_of};
use crate::snapshots::names::instant;

/// Lines of a report: it is one answer.
const REPORT_MAX: usize = 200_000;

/// The differences of a directory between two of its snapshots, or one and the present.
pub(crate) fn snapshot_diff(
    names: &FileNames,
    context: CallContext<'_>,
    request: &proto::GetSnapshotDiffReportRequest,
) -> Result<proto::GetSnapshotDiffReportResponse, Exception> {
    let root = &request.snapshot_root;
    let failed = |error| Exception::of(error, root);
    let fs = names.fs(context);
    let directory = directory_of(&fs, names.resolve_for_change(context, root)?, root)?;
    let instant = |name: &str| {
        if name.is_empty() {
            return names.client.now().map_err(failed);
        }
        instant(&names.client, directory.inode, name).map_err(|error| match error.reason() {
            Reason::NotFound => {
                Exception::snapshot(format!("Cannot find the snapshot of directory {root} with name {name}"))
            }
            _ => failed(error),
        })
    };
    let (from, to) = (instant(&request.from_snapshot)?, instant(&request.to_snapshot)?);
    let (earlier, later) = (from.min(to), from.max(to));
    let target = Target::inode(InodeId(directory.inode));
    let roots = Roots {
        before: path_of(&fs.clone().at(earlier), directory.inode).map_err(failed)?.unwrap_or_default(),
        after: path_of(&fs.clone().at(later), directory.inode).map_err(failed)?.unwrap_or_default(),
    };
    let mut differences = Vec::new();
    loop {
        let interval = HistoryInterval { after: earlier, upto: later };
        let page = fs.diff(&target, interval, differences.len() as u64, 0).map_err(failed)?;
        if page.hidden {
            return Err(Exception::access_control(format!(
                "Permission denied: user={} may not look at everything that is different below {root}",
                context.user.account.name
            )));
        }
        let is_last = !page.more || page.differences.is_empty();
        differences.extend(page.differences);
        if differences.len() > REPORT_MAX {
            return Err(Exception::io(format!(
                "{root}: more than {REPORT_MAX} names are different: ask for a directory below it, or frieze diff"
            )));
        }
        if is_last {
            break;
        }
    }
    if from > to {
        differences.iter_mut().for_each(|difference| std::mem::swap(&mut difference.before, &mut difference.after));
    }
    let roots = if from > to { Roots { before: roots.after, after: roots.before } } else { roots };
    Ok(proto::GetSnapshotDiffReportResponse {
        diff_report: Some(proto::SnapshotDiffReport {
            snapshot_root: root.clone(),
            from_snapshot: request.from_snapshot.clone(),
            to_snapshot: request.to_snapshot.clone(),
            entries: report(&differences, &roots),
        }),
    })
}

/// The path of the directory at each end of the interval.
struct Roots {
    before: Vec<u8>,
    after: Vec<u8>,
}

/// A line of a report: its letter, the path, and the target of a rename.
type DiffLine = (u8, Vec<u8>, Option<Vec<u8>>);

/// Differences in HDFS's form: each directory in which names were created or removed as modified, followed by what was
/// created (`+`), removed (`-`), renamed (`R`) or modified (`M`) in it; of a tree that was created or removed only its
/// top. All paths are those of the earlier end, except targets of renames: what changed in a renamed directory is
/// listed below its old name.
fn report(differences: &[Difference], roots: &Roots) -> Vec<SnapshotDiffReportEntry> {
    let before = |side: &Side| relative(&side.path, &roots.before);
    let after = |side: &Side| relative(&side.path, &roots.after);
    // Renamed directories, by their later path.
    let mut moved: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let (mut came, mut went) = (BTreeSet::new(), BTreeSet::new());
    for Difference { before: old, after: new, flags, .. } in differences {
        let is_directory = |side: &&Side| side.kind == FileKind::Directory as i32;
        let is_other = *flags & flags::REPLACED != 0;
        match (old.as_ref(), new.as_ref()) {
            (Some(old), Some(new)) if !is_other => {
                if is_directory(&new) && before(old) != after(new) {
                    moved.insert(after(new), before(old));
                }
            }
            (old, new) => {
                came.extend(new.filter(is_directory).map(after));
                went.extend(old.filter(is_directory).map(before));
            }
        }
    }
    // The earlier path of a later one.
    let earlier = |path: &[u8]| {
        let mut way = path;
        while !way.is_empty() {
            if let Some(old) = moved.get(way) {
                return [old, &path[way.len()..]].concat();
            }
            way = parent(way);
        }
        path.to_vec()
    };
    let is_within = |path: &[u8], whole: &BTreeSet<Vec<u8>>| whole.contains(parent(path)) && !parent(path).is_empty();
    // By directory.
    let mut lines: BTreeMap<Vec<u8>, Vec<DiffLine>> = BTreeMap::new();
    let mut changed: BTreeSet<Vec<u8>> = BTreeSet::new();
    for Difference { before: old, after: new, flags, .. } in differences {
        let is_other = *flags & flags::REPLACED != 0;
        match (old, new) {
            (Some(old), Some(new)) if !is_other => {
                let (from, to) = (before(old), after(new));
                if earlier(&to) != from || moved.contains_key(&to) {
                    changed.extend([parent(&from).to_vec(), earlier(parent(&to))]);
                    lines.entry(parent(&from).to_vec()).or_default().push((b'R', from.clone(), Some(to)));
                }
                if *flags != 0 {
                    changed.insert(from);
                }
            }
            (old, new) => {
                if let Some(path) = old.as_ref().map(before).filter(|path| !is_within(path, &went)) {
                    changed.insert(parent(&path).to_vec());
                    lines.entry(parent(&path).to_vec()).or_default().push((b'-', path, None));
                }
                if let Some(path) = new.as_ref().map(after).filter(|path| !is_within(path, &came)) {
                    let path = earlier(&path);
                    changed.insert(parent(&path).to_vec());
                    lines.entry(parent(&path).to_vec()).or_default().push((b'+', path, None));
                }
            }
        }
    }
    // A created directory has no other line.
    changed.retain(|path| !came.contains(path));
    let entry = |label: u8, path: &[u8], target: Option<Vec<u8>>| SnapshotDiffReportEntry {
        fullpath: shown(path),
        modification_label: char::from(label).to_string(),
        target_path: target.map(|target| shown(&target)),
    };
    let mut entries: Vec<SnapshotDiffReportEntry> = Vec::new();
    for path in &changed {
        entries.push(entry(b'M', path, None));
        let below = lines.remove(path).unwrap_or_default();
        entries.extend(below.into_iter().map(|(label, path, target)| entry(label, &path, target)));
    }
    let rest = lines.into_values().flatten();
    entries.extend(rest.map(|(label, path, target)| entry(label, &path, target)));
    entries
}

/// A path from a directory, without a slash at its beginning; empty for the directory itself.
fn relative(path: &[u8], root: &[u8]) -> Vec<u8> {
    let rest = path.strip_prefix(root).unwrap_or(path);
    rest.strip_prefix(b"/").unwrap_or(rest).to_vec()
}

/// The directory of a relative path.
fn parent(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|&byte| byte == b'/').unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(path: &str, inode: u64, kind: FileKind) -> Option<Side> {
        Some(Side { path: path.into(), inode, kind: kind as i32, ..Side::default() })
    }

    fn lines(differences: &[Difference]) -> Vec<String> {
        let roots = Roots { before: b"/old/d".to_vec(), after: b"/d".to_vec() };
        let line = |entry: &SnapshotDiffReportEntry| {
            let target = entry.target_path.as_ref().map(|path| format!(" -> {}", String::from_utf8_lossy(path)));
            let path = String::from_utf8_lossy(&entry.fullpath).into_owned();
            format!("{} ./{path}{}", entry.modification_label, target.unwrap_or_default())
        };
        report(differences, &roots).iter().map(line).collect()
    }

    #[test]
    fn differences_are_reported_as_in_hdfs() {
        let (file, directory) = (FileKind::File, FileKind::Directory);
        let of = |before, after, flags| Difference { before, after, flags, ..Difference::default() };
        let found = lines(&[
            of(side("/old/d/a", 2, file), side("/d/a", 2, file), flags::CONTENT),
            of(side("/old/d/gone", 3, directory), None, 0),
            of(side("/old/d/gone/x", 4, file), None, 0),
            of(None, side("/d/new", 5, directory), 0),
            of(None, side("/d/new/y", 6, file), 0),
            of(side("/old/d/from", 7, directory), side("/d/sub/to", 7, directory), 0),
            of(None, side("/d/sub/to/z", 8, file), 0),
            of(side("/old/d/same", 9, file), side("/d/same", 10, file), flags::REPLACED | flags::CONTENT),
        ]);
        assert_eq!(
            found,
            [
                "M ./",
                "- ./gone",
                "+ ./new",
                "R ./from -> sub/to",
                "- ./same",
                "+ ./same",
                "M ./a",
                "M ./from",
                "+ ./from/z",
                "M ./sub",
            ]
        );
    }
}
