//! Snapshots as Hadoop's programs make them: of a directory, each under a name that is the directory's own.
//!
//! A snapshot of frieze is a name for an instant of the whole tree. One that is made by this door of the directory `/d` is such a name,
//! with the directory's number in it: `hdfs-17-s1` (ADR 0044). So it pins history, is listed by `frieze snapshot list` and below every
//! `.at`, and goes with the directory when that is renamed. Below `/d/.snapshot` it is called `s1`, as are those without a directory,
//! made by others, by the names they have.
//!
//! Every directory can have snapshots: nobody has to allow it.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::Fault;
use frieze_client::{
    Attr, Client, Difference, Error, FileKind, Fs, InodeId, Instant, Interval, Reason, Side, Snapshot, Target,
    ZonePolicy, flags,
};
use frieze_hlc::Hlc;

use crate::exception::Exception;
use crate::paths::{SNAPSHOT_NAME, shown, split};
use crate::proto::{self, SnapshotDiffReportEntry};
use crate::queries::is_absent;
use crate::service::{CallContext, Service};

/// How the names of snapshots begin that belong to a directory.
const PREFIX: &str = "hdfs-";
/// Snapshots of a directory at most, as clients are told: as many as there may be at all.
const SNAPSHOTS_MAX: u32 = 65_536;
/// Lines of a report of differences at most: it is one answer.
const REPORT_MAX: usize = 200_000;

/// What a snapshot of a directory is called in frieze.
fn own_name(directory: u64, name: &str) -> String {
    format!("{PREFIX}{directory}-{name}")
}

/// The directory that a snapshot belongs to, and what it is called there.
fn owner(name: &str) -> Option<(u64, &str)> {
    let (directory, name) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some((directory.parse().ok()?, name))
}

/// The instant of a snapshot that is called so below the `.snapshot` of a directory.
///
/// # Errors
/// `Refused` with `NotFound` if there is none.
pub(crate) fn instant(client: &Client, directory: u64, name: &str) -> Result<Hlc, Error> {
    let none = || Error::Refused(Fault::new(Reason::NotFound, format!("there is no snapshot {name}")));
    let resolve = |name: &str| match Instant::parse(name, ZonePolicy::Refuse) {
        // What is written like an instant, or can be no name, is none of a snapshot.
        Ok(Instant::Named(_)) => client.resolve(name, ZonePolicy::Refuse),
        _ => Err(none()),
    };
    match resolve(&own_name(directory, name)) {
        Err(error) if error.reason() == Reason::NotFound && owner(name).is_none() => resolve(name),
        other => other,
    }
}

/// The snapshots below the `.snapshot` of a directory by the names they have there: its own, and those of the whole tree. In order.
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

impl Service {
    /// Names the present of a directory.
    pub(crate) fn create_snapshot(
        &self,
        context: CallContext<'_>,
        request: &proto::CreateSnapshotRequest,
    ) -> Result<proto::CreateSnapshotResponse, Exception> {
        let root = &request.snapshot_root;
        let (fs, attr) = self.own_directory(context, root)?;
        let name = match request.snapshot_name.as_deref() {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => unnamed(),
        };
        check_name(&name)?;
        match fs.make_snapshot(&own_name(attr.inode, &name), None) {
            Ok(_) => Ok(proto::CreateSnapshotResponse { snapshot_path: path_below(root, &name) }),
            Err(error) if error.reason() == Reason::Exists => Err(Exception::snapshot(format!(
                "Failed to add snapshot: there is already a snapshot with the same name \"{name}\"."
            ))),
            Err(error) => Err(Exception::of(error, &path_below(root, &name))),
        }
    }

    /// Forgets a snapshot of a directory. The instant can be read as long as history is kept.
    pub(crate) fn delete_snapshot(
        &self,
        context: CallContext<'_>,
        request: &proto::DeleteSnapshotRequest,
    ) -> Result<(), Exception> {
        let (root, name) = (&request.snapshot_root, &request.snapshot_name);
        let (fs, attr) = self.own_directory(context, root)?;
        self.forget(&fs, attr.inode, name).map_err(|error| match error.reason() {
            Reason::NotFound => Exception::snapshot(format!(
                "Cannot delete snapshot {name} from path {root}: the snapshot does not exist."
            )),
            _ => Exception::of(error, &path_below(root, name)),
        })
    }

    /// Gives a snapshot of a directory another name.
    pub(crate) fn rename_snapshot(
        &self,
        context: CallContext<'_>,
        request: &proto::RenameSnapshotRequest,
    ) -> Result<(), Exception> {
        let proto::RenameSnapshotRequest { snapshot_root: root, old_name: old, new_name: new } = request;
        let (fs, attr) = self.own_directory(context, root)?;
        check_name(new)?;
        let failed = |error, name: &str| Exception::of(error, &path_below(root, name));
        let at = match self.client.resolve(&own_name(attr.inode, old), ZonePolicy::Refuse) {
            Ok(at) => at,
            Err(Error::Refused(fault)) if fault.reason != Reason::NotFound => {
                return Err(failed(Error::Refused(fault), old));
            }
            Err(Error::Refused(_) | Error::Instant(_)) => {
                let words = format!("The snapshot {old} does not exist for directory {root}");
                return Err(Exception::snapshot(words));
            }
            Err(error) => return Err(failed(error, old)),
        };
        if old == new {
            return Ok(());
        }
        // Under both names for a moment, never under none.
        match fs.make_snapshot(&own_name(attr.inode, new), Some(at)) {
            Ok(_) => {}
            Err(error) if error.reason() == Reason::Exists => {
                let words = format!("The snapshot {new} already exists for directory {root}");
                return Err(Exception::snapshot(words));
            }
            Err(error) => return Err(failed(error, new)),
        }
        match self.forget(&fs, attr.inode, old) {
            Ok(()) => Ok(()),
            // Another one has forgotten it meanwhile.
            Err(error) if error.reason() == Reason::NotFound => Ok(()),
            Err(error) => Err(failed(error, old)),
        }
    }

    /// Whoever owns a directory may, whoever made its snapshot.
    fn forget(&self, fs: &Fs, directory: u64, name: &str) -> Result<(), Error> {
        match fs.delete_snapshot(&own_name(directory, name)) {
            Err(error) if error.reason() == Reason::NotPermitted => {
                self.client.delete_snapshot(&own_name(directory, name))
            }
            done => done,
        }
    }

    /// Every directory can have snapshots: true of one that is there.
    pub(crate) fn allow_snapshot(&self, context: CallContext<'_>, path: &str) -> Result<(), Exception> {
        self.own_directory(context, path).map(drop)
    }

    /// What Hadoop's administrators do when a directory is to have no snapshots any more: refused while it has.
    pub(crate) fn disallow_snapshot(&self, context: CallContext<'_>, path: &str) -> Result<(), Exception> {
        let (_, attr) = self.own_directory(context, path)?;
        let snapshots = self.client.snapshots().map_err(|error| Exception::of(error, path))?;
        if snapshots.iter().any(|snapshot| owner(&snapshot.name).is_some_and(|(of, _)| of == attr.inode)) {
            return Err(has_snapshots(path));
        }
        Ok(())
    }

    /// The directories that have snapshots: those of the caller, all to who may do everything.
    pub(crate) fn snapshotted_directories(
        &self,
        context: CallContext<'_>,
    ) -> Result<proto::GetSnapshottableDirListingResponse, Exception> {
        let failed = |error| Exception::of(error, "/");
        let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
        for snapshot in self.client.snapshots().map_err(failed)? {
            if let Some((directory, _)) = owner(&snapshot.name) {
                *counts.entry(directory).or_default() += 1;
            }
        }
        let fs = self.fs(context);
        let mut listed = Vec::new();
        for (directory, snapshot_number) in counts {
            let attr = match fs.stat(&Target::inode(InodeId(directory))) {
                Ok(found) => found.attr,
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(failed(error)),
            };
            if !self.owns(context, &attr) {
                continue;
            }
            let Some(path) = path_of(&fs, directory).map_err(failed)? else { continue };
            let (parent, name) = split(&path);
            listed.push(proto::SnapshottableDirectoryStatus {
                dir_status: Some(self.status(&attr, name)),
                snapshot_quota: SNAPSHOTS_MAX,
                snapshot_number,
                parent_fullpath: shown(parent),
            });
        }
        let list = proto::SnapshottableDirectoryListing { listing: listed };
        // As in HDFS: no list where there is nothing.
        Ok(proto::GetSnapshottableDirListingResponse { list: (!list.listing.is_empty()).then_some(list) })
    }

    /// The snapshots of a directory, oldest first.
    pub(crate) fn snapshot_listing(
        &self,
        context: CallContext<'_>,
        path: &str,
    ) -> Result<proto::GetSnapshotListingResponse, Exception> {
        let (_, attr) = self.own_directory(context, path)?;
        let snapshots = self.client.snapshots().map_err(|error| Exception::of(error, path))?;
        let mut own: Vec<(&str, &Snapshot)> = Vec::new();
        for snapshot in &snapshots {
            if let Some((_, name)) = owner(&snapshot.name).filter(|(of, _)| *of == attr.inode) {
                own.push((name, snapshot));
            }
        }
        own.sort_by_key(|(_, snapshot)| snapshot.at);
        // A client puts `.snapshot` between this and the name.
        let parent_fullpath = if path == "/" { path } else { path.trim_end_matches('/') }.as_bytes().to_vec();
        let listed = (0..).zip(own).map(|(snapshot_id, (name, snapshot))| {
            let made = Attr { mtime_ns: Hlc(snapshot.at).unix_ns(), ..attr.clone() };
            proto::SnapshotStatus {
                dir_status: Some(self.status(&made, name.as_bytes())),
                snapshot_id,
                parent_fullpath: parent_fullpath.clone(),
                is_deleted: false,
            }
        });
        let list = proto::SnapshotListing { listing: listed.collect() };
        Ok(proto::GetSnapshotListingResponse { list: Some(list) })
    }

    /// What is different in a directory between two of its snapshots, or one and now, in the words of HDFS.
    pub(crate) fn snapshot_diff(
        &self,
        context: CallContext<'_>,
        request: &proto::GetSnapshotDiffReportRequest,
    ) -> Result<proto::GetSnapshotDiffReportResponse, Exception> {
        let root = &request.snapshot_root;
        let failed = |error| Exception::of(error, root);
        let fs = self.fs(context);
        let directory = directory_of(&fs, self.change(context, root)?, root)?;
        let instant = |name: &str| {
            if name.is_empty() {
                return self.client.now().map_err(failed);
            }
            instant(&self.client, directory.inode, name).map_err(|error| match error.reason() {
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
            let interval = Interval { after: earlier, upto: later };
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

    /// A directory that is to be removed with all that is in it: nobody's snapshots are of one of them.
    ///
    /// # Errors
    /// `SnapshotException`, as in HDFS; as what has to be looked up.
    pub(crate) fn check_no_snapshots(&self, attr: &Attr, path: &str) -> Result<(), Exception> {
        let failed = |error| Exception::of(error, path);
        let snapshots = self.client.snapshots().map_err(failed)?;
        let directories: BTreeSet<u64> =
            snapshots.iter().filter_map(|one| owner(&one.name)).map(|(of, _)| of).collect();
        // From each up to the root: they are few, and much may be below what is removed. Whoever removes may not see all of them.
        let fs = self.client.fs();
        for mut directory in directories {
            match fs.stat(&Target::inode(InodeId(directory))) {
                Ok(found) if found.attr.links > 0 => {}
                // Another door has removed it.
                Ok(_) => continue,
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(failed(error)),
            }
            while directory != attr.inode && InodeId(directory) != InodeId::ROOT {
                match fs.list(&Target::inode(InodeId(directory)), b"", 1, false) {
                    Ok(page) => directory = page.parent,
                    Err(error) if is_absent(&error) => break,
                    Err(error) => return Err(failed(error)),
                }
            }
            if directory == attr.inode {
                return Err(has_snapshots(path));
            }
        }
        Ok(())
    }

    /// A directory of which the caller decides: owner, or who may do everything.
    fn own_directory(&self, context: CallContext<'_>, path: &str) -> Result<(Fs, Attr), Exception> {
        let fs = self.fs(context);
        let attr = directory_of(&fs, self.change(context, path)?, path)?;
        if !self.owns(context, &attr) {
            return Err(Exception::access_control(format!(
                "Permission denied. user={} is not the owner of inode={path}",
                context.user.account.name
            )));
        }
        Ok((fs, attr))
    }

    fn owns(&self, context: CallContext<'_>, attr: &Attr) -> bool {
        [0, self.client.hello().uid, attr.uid].contains(&context.user.account.caller.uid)
    }
}

/// Where a directory was at each end of an interval.
struct Roots {
    before: Vec<u8>,
    after: Vec<u8>,
}

/// A line of a report: its letter, the path, and where that moved to.
type DiffLine = (u8, Vec<u8>, Option<Vec<u8>>);

/// Differences in HDFS's words: each directory in which names came or went as changed, and with it what came (`+`), went (`-`), moved
/// (`R`) or changed (`M`) there; of what came or went as a whole only the topmost. All paths are of the earlier end, but those where
/// something moved to: where a directory has moved, what changed in it is told below its old name.
fn report(differences: &[Difference], roots: &Roots) -> Vec<SnapshotDiffReportEntry> {
    let before = |side: &Side| relative(&side.path, &roots.before);
    let after = |side: &Side| relative(&side.path, &roots.after);
    // Directories that moved, by where they are now.
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
    // What a path of the later end is called at the earlier one.
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
    // By directory; where the directory itself changed first.
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
    // Of a directory that came nothing else is told.
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

/// Of a relative path the directory.
fn parent(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|&byte| byte == b'/').unwrap_or(0)]
}

/// The path of a directory in a view; `None` if it is not there, or the caller may not look on the way.
fn path_of(fs: &Fs, directory: u64) -> Result<Option<Vec<u8>>, Error> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut at = directory;
    let is_hidden = |error: &Error| is_absent(error) || error.reason() == Reason::AccessDenied;
    while InodeId(at) != InodeId::ROOT {
        let parent = match fs.list(&Target::inode(InodeId(at)), b"", 1, false) {
            Ok(page) => page.parent,
            Err(error) if is_hidden(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut after = Vec::new();
        let name = loop {
            let page = match fs.list(&Target::inode(InodeId(parent)), &after, 0, false) {
                Ok(page) => page,
                Err(error) if is_hidden(&error) => return Ok(None),
                Err(error) => return Err(error),
            };
            if let Some(entry) = page.entries.iter().find(|entry| entry.inode == at) {
                break entry.name.clone();
            }
            match page.entries.last().filter(|_| page.more) {
                Some(last) => after.clone_from(&last.name),
                // It went, or moved, meanwhile.
                None => return Ok(None),
            }
        };
        names.push(name);
        at = parent;
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend(name);
    }
    Ok(Some(path))
}

fn directory_of(fs: &Fs, target: Target, path: &str) -> Result<Attr, Exception> {
    let target = Target { follow: true, ..target };
    let attr = fs.stat(&target).map_err(|error| match error.reason() {
        Reason::NotFound => Exception::not_found(format!("Directory does not exist: {path}")),
        _ => Exception::of(error, path),
    })?;
    match attr.attr.kind() {
        FileKind::Directory => Ok(attr.attr),
        _ => Err(Exception::not_a_directory(format!("Path is not a directory: {path}"))),
    }
}

fn path_below(root: &str, name: &str) -> String {
    format!("{}/{SNAPSHOT_NAME}/{name}", root.trim_end_matches('/'))
}

fn has_snapshots(path: &str) -> Exception {
    Exception::snapshot(format!(
        "The directory {path} has snapshot(s). Please redo the operation after removing all the snapshots."
    ))
}

/// What can be a name of a snapshot.
fn check_name(name: &str) -> Result<(), Exception> {
    if name.is_empty() || [".", ".."].contains(&name) || name.contains(['/', ':', '\0']) {
        return Err(Exception::illegal_argument(format!("Invalid snapshot name: {name}")));
    }
    frieze_hlc::check_snapshot_name(&own_name(u64::MAX, name))
        .map_err(|error| Exception::illegal_argument(format!("Invalid snapshot name: {name}: {error}")))
}

/// The name of a snapshot that was given none, as HDFS makes it: of the time by UTC.
fn unnamed() -> String {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    now.strftime("s%Y%m%d-%H%M%S.%3f").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(path: &str, inode: u64, kind: FileKind) -> Option<Side> {
        Some(Side { path: path.into(), inode, kind: kind as i32, ..Side::default() })
    }

    fn told(differences: &[Difference]) -> Vec<String> {
        let roots = Roots { before: b"/old/d".to_vec(), after: b"/d".to_vec() };
        let line = |entry: &SnapshotDiffReportEntry| {
            let target = entry.target_path.as_ref().map(|path| format!(" -> {}", String::from_utf8_lossy(path)));
            let path = String::from_utf8_lossy(&entry.fullpath).into_owned();
            format!("{} ./{path}{}", entry.modification_label, target.unwrap_or_default())
        };
        report(differences, &roots).iter().map(line).collect()
    }

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

    #[test]
    fn differences_are_told_as_hdfs_tells_them() {
        let (file, directory) = (FileKind::File, FileKind::Directory);
        let of = |before, after, flags| Difference { before, after, flags, ..Difference::default() };
        let told = told(&[
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
            told,
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
