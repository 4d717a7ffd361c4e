//! Snapshots as Hadoop's programs make them: of a directory, each under a name of that directory.
//!
//! A snapshot of frieze is a name for an instant of the whole tree. One that this gateway makes of the directory `/d`
//! is such a name, with the inode number of the directory in it: `hdfs-17-s1` (ADR 0044). So it pins history, `frieze
//! snapshot list` and every `.at` list it, and it follows the directory through renames. Below `/d/.snapshot` it is
//! called `s1`; snapshots without a directory have their own names there.
//!
//! Every directory can have snapshots, without `allowSnapshot`.

pub(crate) mod diff;
pub(crate) mod directory;
pub(crate) mod names;

use std::collections::{BTreeMap, BTreeSet};

use frieze_client::{Attr, Error, Fs, InodeId, Reason, Snapshot, Target, ZonePolicy};
use frieze_hlc::Hlc;

use crate::attributes::is_absent;
use crate::exception::Exception;
use crate::file_names::FileNames;
use crate::paths::{SNAPSHOT_NAME, shown, split};
use crate::proto;
use crate::remote_user::CallContext;
use crate::snapshots::directory::{own_directory, owns, path_of};
use crate::snapshots::names::{check_name, own_name, owner, unnamed};

/// Limit of snapshots of a directory that clients see: the limit of all snapshots.
const SNAPSHOTS_MAX: u32 = 65_536;
/// Creates a snapshot of the present.
pub(crate) fn create_snapshot(
    names: &FileNames,
    context: CallContext<'_>,
    request: &proto::CreateSnapshotRequest,
) -> Result<proto::CreateSnapshotResponse, Exception> {
    let root = &request.snapshot_root;
    let (fs, attr) = own_directory(names, context, root)?;
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

/// Deletes a snapshot. The instant can be read as long as history is kept.
pub(crate) fn delete_snapshot(
    names: &FileNames,
    context: CallContext<'_>,
    request: &proto::DeleteSnapshotRequest,
) -> Result<(), Exception> {
    let (root, name) = (&request.snapshot_root, &request.snapshot_name);
    let (fs, attr) = own_directory(names, context, root)?;
    forget(names, &fs, attr.inode, name).map_err(|error| match error.reason() {
        Reason::NotFound => {
            Exception::snapshot(format!("Cannot delete snapshot {name} from path {root}: the snapshot does not exist."))
        }
        _ => Exception::of(error, &path_below(root, name)),
    })
}

/// Renames a snapshot.
pub(crate) fn rename_snapshot(
    names: &FileNames,
    context: CallContext<'_>,
    request: &proto::RenameSnapshotRequest,
) -> Result<(), Exception> {
    let proto::RenameSnapshotRequest { snapshot_root: root, old_name: old, new_name: new } = request;
    let (fs, attr) = own_directory(names, context, root)?;
    check_name(new)?;
    let failed = |error, name: &str| Exception::of(error, &path_below(root, name));
    let at = match names.client.resolve(&own_name(attr.inode, old), ZonePolicy::Refuse) {
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
    // For a moment under both names, never under none.
    match fs.make_snapshot(&own_name(attr.inode, new), Some(at)) {
        Ok(_) => {}
        Err(error) if error.reason() == Reason::Exists => {
            let words = format!("The snapshot {new} already exists for directory {root}");
            return Err(Exception::snapshot(words));
        }
        Err(error) => return Err(failed(error, new)),
    }
    match forget(names, &fs, attr.inode, old) {
        Ok(()) => Ok(()),
        // Another client has deleted it meanwhile.
        Err(error) if error.reason() == Reason::NotFound => Ok(()),
        Err(error) => Err(failed(error, old)),
    }
}

/// Deletes a snapshot: the owner of the directory may, also if another user made it.
fn forget(names: &FileNames, fs: &Fs, directory: u64, name: &str) -> Result<(), Error> {
    match fs.delete_snapshot(&own_name(directory, name)) {
        Err(error) if error.reason() == Reason::NotPermitted => {
            names.client.delete_snapshot(&own_name(directory, name))
        }
        done => done,
    }
}

/// Succeeds for every directory that exists.
pub(crate) fn allow_snapshot(names: &FileNames, context: CallContext<'_>, path: &str) -> Result<(), Exception> {
    own_directory(names, context, path).map(drop)
}

/// Fails while the directory has snapshots.
pub(crate) fn disallow_snapshot(names: &FileNames, context: CallContext<'_>, path: &str) -> Result<(), Exception> {
    let (_, attr) = own_directory(names, context, path)?;
    let snapshots = names.client.snapshots().map_err(|error| Exception::of(error, path))?;
    if snapshots.iter().any(|snapshot| owner(&snapshot.name).is_some_and(|(of, _)| of == attr.inode)) {
        return Err(has_snapshots(path));
    }
    Ok(())
}

/// The directories with snapshots that the caller owns; all of them for the superuser.
pub(crate) fn snapshotted_directories(
    names: &FileNames,
    context: CallContext<'_>,
) -> Result<proto::GetSnapshottableDirListingResponse, Exception> {
    let failed = |error| Exception::of(error, "/");
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    for snapshot in names.client.snapshots().map_err(failed)? {
        if let Some((directory, _)) = owner(&snapshot.name) {
            *counts.entry(directory).or_default() += 1;
        }
    }
    let fs = names.fs(context);
    let mut listed = Vec::new();
    for (directory, snapshot_number) in counts {
        let attr = match fs.stat(&Target::inode(InodeId(directory))) {
            Ok(found) => found.attr,
            Err(error) if is_absent(&error) => continue,
            Err(error) => return Err(failed(error)),
        };
        if !owns(names, context, &attr) {
            continue;
        }
        let Some(path) = path_of(&fs, directory).map_err(failed)? else { continue };
        let (parent, name) = split(&path);
        listed.push(proto::SnapshottableDirectoryStatus {
            dir_status: Some(names.status(&attr, name)),
            snapshot_quota: SNAPSHOTS_MAX,
            snapshot_number,
            parent_fullpath: shown(parent),
        });
    }
    let list = proto::SnapshottableDirectoryListing { listing: listed };
    // As in HDFS: no list if there is none.
    Ok(proto::GetSnapshottableDirListingResponse { list: (!list.listing.is_empty()).then_some(list) })
}

/// The snapshots of a directory, oldest first.
pub(crate) fn snapshot_listing(
    names: &FileNames,
    context: CallContext<'_>,
    path: &str,
) -> Result<proto::GetSnapshotListingResponse, Exception> {
    let (_, attr) = own_directory(names, context, path)?;
    let snapshots = names.client.snapshots().map_err(|error| Exception::of(error, path))?;
    let mut own: Vec<(&str, &Snapshot)> = Vec::new();
    for snapshot in &snapshots {
        if let Some((_, name)) = owner(&snapshot.name).filter(|(of, _)| *of == attr.inode) {
            own.push((name, snapshot));
        }
    }
    own.sort_by_key(|(_, snapshot)| snapshot.at);
    // A client inserts `.snapshot` between this and the name.
    let parent_fullpath = if path == "/" { path } else { path.trim_end_matches('/') }.as_bytes().to_vec();
    let listed = (0..).zip(own).map(|(snapshot_id, (name, snapshot))| {
        let made = Attr { mtime_ns: Hlc(snapshot.at).unix_ns(), ..attr.clone() };
        proto::SnapshotStatus {
            dir_status: Some(names.status(&made, name.as_bytes())),
            snapshot_id,
            parent_fullpath: parent_fullpath.clone(),
            is_deleted: false,
        }
    });
    let list = proto::SnapshotListing { listing: listed.collect() };
    Ok(proto::GetSnapshotListingResponse { list: Some(list) })
}

/// Checks that no directory below one that is to be removed has snapshots.
///
/// # Errors
/// `SnapshotException`, as in HDFS; those of the look-ups.
pub(crate) fn check_no_snapshots(names: &FileNames, attr: &Attr, path: &str) -> Result<(), Exception> {
    let failed = |error| Exception::of(error, path);
    let snapshots = names.client.snapshots().map_err(failed)?;
    let directories: BTreeSet<u64> = snapshots.iter().filter_map(|one| owner(&one.name)).map(|(of, _)| of).collect();
    // From each directory with snapshots up to the root: they are few, and the tree may be large. The caller may not
    // see all of them.
    let fs = names.client.fs();
    for mut directory in directories {
        match fs.stat(&Target::inode(InodeId(directory))) {
            Ok(found) if found.attr.links > 0 => {}
            // Another gateway has removed it.
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

fn path_below(root: &str, name: &str) -> String {
    format!("{}/{SNAPSHOT_NAME}/{name}", root.trim_end_matches('/'))
}

fn has_snapshots(path: &str) -> Exception {
    Exception::snapshot(format!(
        "The directory {path} has snapshot(s). Please redo the operation after removing all the snapshots."
    ))
}
