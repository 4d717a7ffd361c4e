//! Calls of administrators beside names and bytes: open files, damaged files, statistics of blocks.
//!
//! Guarantees: only the superuser and the user of the gateway see files of others.
//! Leaves to others: finding damage (scrub and reads), leases ([`crate::leases`]). A gateway lists its own writers, and
//! the damage that its server knows.

use std::collections::BTreeSet;

use frieze_client::{InodeId, ScrubAction};

use crate::exception::Exception;
use crate::file_names::FileNames;
use crate::leases::{Leases, OpenFileInfo};
use crate::paths::shown;
use crate::proto::{
    CorruptFileBlocks, GetFsEcBlockGroupStatsResponse, GetFsReplicatedBlockStatsResponse, ListCorruptFileBlocksRequest,
    ListCorruptFileBlocksResponse, ListOpenFilesRequest, ListOpenFilesResponse, OpenFilesBatch, open_files,
};
use crate::remote_user::CallContext;

/// Files in one answer, as in HDFS.
const OPEN_FILES: usize = 1000;
const CORRUPT_FILES: usize = 100;

/// Missing copies are always 0: `frieze cluster status` lists missing members of chains. Damage is counted.
pub(crate) fn replicated_block_stats(names: &FileNames) -> Result<GetFsReplicatedBlockStatsResponse, Exception> {
    Ok(GetFsReplicatedBlockStatsResponse {
        corrupt_blocks: damaged(names)?,
        highest_prio_low_redundancy_blocks: Some(0),
        ..GetFsReplicatedBlockStatsResponse::default()
    })
}

/// Nothing is erasure-coded.
pub(crate) fn erasure_coded_stats() -> GetFsEcBlockGroupStatsResponse {
    GetFsEcBlockGroupStatsResponse { highest_prio_low_redundancy_blocks: Some(0), ..Default::default() }
}

/// Known damaged places.
pub(crate) fn damaged(names: &FileNames) -> Result<u64, Exception> {
    let told = names.client.scrub(ScrubAction::Look, 0, false).map_err(|error| Exception::of(error, "/"))?;
    Ok(told.damaged)
}

/// The files that are open for writing at this gateway, by inode number.
pub(crate) fn open_files(
    names: &FileNames,
    leases: &Leases,
    context: CallContext<'_>,
    request: &ListOpenFilesRequest,
) -> Result<ListOpenFilesResponse, Exception> {
    names.check_operator(context)?;
    let types = request.types.clone();
    // The other kind are files that block the decommission of a DataNode, which frieze does not have.
    if !types.is_empty() && !types.contains(&open_files::ALL) {
        return Ok(ListOpenFilesResponse { entries: Vec::new(), has_more: false, types });
    }
    let below = request.path.as_deref().unwrap_or("/");
    let mut entries = Vec::new();
    for open in leases.open_after(u64::try_from(request.id).unwrap_or(0)) {
        let OpenFileInfo { inode, path, holder, machine } = open;
        // The file may have been renamed since it was opened.
        let now =
            names.fs(context).path_of(InodeId(inode)).ok().and_then(|found| String::from_utf8(shown(&found)).ok());
        let path = now.unwrap_or(path);
        if !lies_below(&path, below) {
            continue;
        }
        if entries.len() == OPEN_FILES {
            return Ok(ListOpenFilesResponse { entries, has_more: true, types });
        }
        let client_machine = machine.map(|ip| ip.to_string()).unwrap_or_default();
        entries.push(OpenFilesBatch { id: inode as i64, path, client_name: holder, client_machine });
    }
    Ok(ListOpenFilesResponse { entries, has_more: false, types })
}

/// Files of the present below a path that are known to be damaged.
pub(crate) fn corrupt_files(
    names: &FileNames,
    context: CallContext<'_>,
    request: &ListCorruptFileBlocksRequest,
) -> Result<ListCorruptFileBlocksResponse, Exception> {
    names.check_operator(context)?;
    let told = names.client.scrub(ScrubAction::Look, 0, true).map_err(|error| Exception::of(error, &request.path))?;
    let is_now = told.findings.iter().filter(|finding| finding.deleted == 0 && finding.until == 0);
    let paths: BTreeSet<String> = is_now
        .filter(|finding| !finding.path.is_empty())
        .filter_map(|finding| String::from_utf8(shown(&finding.path)).ok())
        .filter(|path| lies_below(path, &request.path))
        .collect();
    let seen = request.cookie.as_deref().and_then(|cookie| cookie.parse().ok()).unwrap_or(0);
    let files: Vec<String> = paths.into_iter().skip(seen).take(CORRUPT_FILES).collect();
    let cookie = (seen + files.len()).to_string();
    Ok(ListCorruptFileBlocksResponse { corrupt: CorruptFileBlocks { files, cookie } })
}

/// True if a path equals another one, or lies below it.
fn lies_below(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_a_directory_does_not_only_begin_like_it() {
        for (path, directory) in [("/a/b", "/a"), ("/a/b", "/a/"), ("/a", "/a"), ("/a", "/"), ("/a", "")] {
            assert!(lies_below(path, directory), "{path} {directory}");
        }
        for (path, directory) in [("/ab", "/a"), ("/", "/a"), ("/b/a", "/a")] {
            assert!(!lies_below(path, directory), "{path} {directory}");
        }
    }
}
