//! Joining files: the bytes of several are shared behind those of one, and their names go.
//!
//! Nothing is copied. It is one change for each file, in an order in which nothing is ever lost: first all bytes are behind
//! the target's, then names go. What fails before leaves the target as it was.

use frieze_client::{Error, File, Fs, InodeId, OpenFlags, Target};

use crate::exception::Exception;
use crate::proto::ConcatRequest;
use crate::service::{Asked, Service};
use crate::writing::Found;

impl Service {
    /// Joins files, in the order they are named in.
    pub(crate) fn concat(&self, asked: Asked<'_>, request: &ConcatRequest) -> Result<(), Exception> {
        let path = &request.target;
        if request.sources.is_empty() || request.sources.len() > SOURCES_MAX {
            return Err(Exception::illegal_argument(format!(
                "concat: of {} files; 1 to {SOURCES_MAX} can be joined to another at once",
                request.sources.len()
            )));
        }
        let Found { fs, attr, .. } = self.free_file(asked, path, "concat")?;
        let mut joined = vec![attr.inode];
        let mut sources = Vec::with_capacity(request.sources.len());
        for source in &request.sources {
            let found = self.free_file(asked, source, "concat")?;
            if joined.contains(&found.attr.inode) {
                return Err(Exception::illegal_argument(format!(
                    "concat: the src file {source} is the same with the target {path}, or named twice"
                )));
            }
            joined.push(found.attr.inode);
            let file = fs.open(&Target::inode(InodeId(found.attr.inode)), OpenFlags::READ);
            sources.push((source, found.target, file.map_err(|error| Exception::of(error, source))?));
        }
        let failed = |error| Exception::of(error, path);
        let target = fs.open(&Target::inode(InodeId(attr.inode)), OpenFlags::WRITE).map_err(failed)?;
        let begins = target.stat().map_err(failed)?.attr.size;
        let files = sources.iter().map(|(_, _, file)| file);
        if let Err(error) = share(files, &target, begins).and_then(|()| remove_all(&fs, &sources)) {
            // Names that are gone already cannot be without their bytes.
            if sources.iter().all(|(_, name, _)| fs.stat(name).is_ok()) {
                target.set_len(begins).map_err(failed)?;
            }
            return Err(failed(error));
        }
        target.close().map_err(failed)
    }
}

/// Shares all bytes of `files` from `at` on.
fn share<'f>(files: impl Iterator<Item = &'f File>, target: &File, mut at: u64) -> Result<(), Error> {
    for file in files {
        let size = file.stat()?.attr.size;
        let mut from = 0;
        while from < size {
            let count = file.copy_range(from, target, at, size - from)?;
            if count == 0 {
                break;
            }
            (from, at) = (from + count, at + count);
        }
    }
    Ok(())
}

fn remove_all(fs: &Fs, sources: &[(&String, Target, File)]) -> Result<(), Error> {
    sources.iter().try_for_each(|(_, name, _)| fs.unlink(&Target { follow: false, ..name.clone() }).map(|_| ()))
}

/// Files that are joined to another at once; each is open meanwhile.
const SOURCES_MAX: usize = 1024;
