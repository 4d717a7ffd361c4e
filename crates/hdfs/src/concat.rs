//! Joins files: shares the bytes of several behind those of one, and removes their names.
//!
//! No bytes are copied, and it is one change: a failure leaves everything as it was.

use frieze_client::{InodeId, OpenFlags, Target};

use crate::exception::Exception;
use crate::exclusive_file::{ExclusiveFile, exclusive_file};
use crate::file_names::FileNames;
use crate::file_writers::FileWriters;
use crate::proto::ConcatRequest;
use crate::remote_user::CallContext;

/// Joins files, in the order of the request.
pub(crate) fn concat(
    names: &FileNames,
    writers: &FileWriters,
    context: CallContext<'_>,
    request: &ConcatRequest,
) -> Result<(), Exception> {
    let path = &request.target;
    if request.sources.is_empty() || request.sources.len() > SOURCES_MAX {
        return Err(Exception::illegal_argument(format!(
            "concat: of {} files; 1 to {SOURCES_MAX} can be joined to another at once",
            request.sources.len()
        )));
    }
    let ExclusiveFile { fs, attr, .. } = exclusive_file(names, writers, context, path, "concat")?;
    let mut joined = vec![attr.inode];
    let mut sources = Vec::with_capacity(request.sources.len());
    for source in &request.sources {
        let found = exclusive_file(names, writers, context, source, "concat")?;
        if joined.contains(&found.attr.inode) {
            return Err(Exception::illegal_argument(format!(
                "concat: the src file {source} is the same with the target {path}, or named twice"
            )));
        }
        joined.push(found.attr.inode);
        sources.push(Target { follow: false, ..found.target });
    }
    let failed = |error| Exception::of(error, path);
    let target = fs.open(&Target::inode(InodeId(attr.inode)), OpenFlags::WRITE).map_err(failed)?;
    target.join(&sources).map_err(failed)?;
    target.close().map_err(failed)
}

/// Files joined by one call.
const SOURCES_MAX: usize = 1024;
