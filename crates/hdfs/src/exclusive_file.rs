//! A file that a call is about to change: no other client writes it.

use frieze_client::{Attr, Fs, Target};

use crate::attributes::must_be_file;
use crate::exception::Exception;
use crate::file_names::FileNames;
use crate::file_writers::FileWriters;
use crate::remote_user::CallContext;

/// A file to change, as the caller sees it.
pub(crate) struct ExclusiveFile {
    pub(crate) fs: Fs,
    pub(crate) target: Target,
    pub(crate) attr: Attr,
}

/// Resolves a file to change, and checks that no other client writes it.
pub(crate) fn exclusive_file(
    names: &FileNames,
    writers: &FileWriters,
    context: CallContext<'_>,
    path: &str,
    client_name: &str,
) -> Result<ExclusiveFile, Exception> {
    let found = file_to_change(names, context, path)?;
    writers.check_free(context, found.attr.inode, path, client_name)?;
    Ok(found)
}

pub(crate) fn file_to_change(
    names: &FileNames,
    context: CallContext<'_>,
    path: &str,
) -> Result<ExclusiveFile, Exception> {
    let target = Target { follow: true, ..names.resolve_for_change(context, path)? };
    let fs = names.fs(context);
    let attr = fs.stat(&target).map_err(|error| Exception::of(error, path))?.attr;
    must_be_file(&attr, path)?;
    Ok(ExclusiveFile { fs, target, attr })
}
