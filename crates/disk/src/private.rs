//! Restricting a directory to its owner.
//!
//! Guarantees: after [`tighten`] no file and no directory below it gives its group or others a right, whatever the mode
//! that it was created with. Sockets keep their mode: the kernel checks the peers of a connection. Leaves to others:
//! the mode of the directory itself, which its administrator chose; files created later, which the server creates with
//! [`FILE_MODE`] and [`DIRECTORY_MODE`], and a library under the umask of the process.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{DiskOp, Error, Result};
use crate::syscalls::{io, open_directory, retry};

/// Mode of a file below a data directory.
pub const FILE_MODE: u32 = 0o600;
/// Mode of a directory below a data directory.
pub const DIRECTORY_MODE: u32 = 0o700;
/// Depth of directories that are visited. A store has three.
const DEPTH_MAX: usize = 16;
/// The rights of all users but the owner.
const OF_OTHERS: u32 = 0o077;

/// Removes the rights of group and others from everything below `path`. Returns how many files and directories had
/// some.
///
/// A file of another user, with a second name, or a symbolic link is left alone: it may have been put there to change
/// the rights of another file.
///
/// # Errors
/// `Io` naming the file that could not be read or changed.
///
/// # Cost
/// One `stat(2)` a file.
pub fn tighten(path: &Path) -> Result<u64> {
    let dir = open_directory(path).map_err(io(DiskOp::Tighten, &path.display().to_string()))?;
    let mut count = 0;
    below(&dir, &path.display().to_string(), DEPTH_MAX, &mut count)?;
    Ok(count)
}

fn below(dir: &OwnedFd, here: &str, depth: usize, count: &mut u64) -> Result<()> {
    let own = rustix::process::geteuid().as_raw();
    for entry in Dir::read_from(dir).map_err(io(DiskOp::List, here))? {
        let entry = entry.map_err(io(DiskOp::List, here))?;
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        let shown = format!("{here}/{}", name.to_string_lossy());
        let failed = |errno| Error::Io { op: DiskOp::Tighten, name: shown.clone(), errno };
        let stat = match retry(|| rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)) {
            Err(Errno::NOENT) => continue,
            found => found.map_err(failed)?,
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_directory = kind == FileType::Directory;
        if stat.st_uid != own || !(is_directory || kind == FileType::RegularFile && stat.st_nlink == 1) {
            continue;
        }
        let is_loose = stat.st_mode & OF_OTHERS != 0;
        if !is_directory && !is_loose {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match retry(|| rustix::fs::openat(dir, name, flags, Mode::empty())) {
            // Not even its owner may read it: the server did not create it.
            Err(Errno::ACCESS | Errno::NOENT | Errno::LOOP) => continue,
            opened => opened.map_err(failed)?,
        };
        if is_loose {
            let mode = if is_directory { DIRECTORY_MODE } else { FILE_MODE };
            retry(|| rustix::fs::fchmod(opened.as_fd(), Mode::from_raw_mode(mode))).map_err(failed)?;
            *count += 1;
        }
        if is_directory && depth > 1 {
            below(&opened, &shown, depth - 1, count)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn files_below_lose_the_rights_of_others_and_files_of_other_owners_keep_them() {
        let place = tempfile::tempdir().unwrap();
        let (dir, outside) = (place.path().join("d"), place.path().join("outside"));
        fs::create_dir_all(dir.join("store/tables")).unwrap();
        for file in [&dir.join("state"), &dir.join("store/tables/1"), &outside] {
            fs::write(file, b"x").unwrap();
            fs::set_permissions(file, Permissions::from_mode(0o666)).unwrap();
        }
        symlink(&outside, dir.join("link")).unwrap();
        let twice = dir.join("twice");
        fs::hard_link(&outside, &twice).unwrap();
        for directory in [dir.clone(), dir.join("store"), dir.join("store/tables")] {
            fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
        }
        let _socket = UnixListener::bind(dir.join("socket")).unwrap();
        fs::set_permissions(dir.join("socket"), Permissions::from_mode(0o666)).unwrap();

        assert_eq!(tighten(&dir).unwrap(), 4);
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
        let modes = ["state", "store", "store/tables", "store/tables/1", "socket"].map(|name| mode(&dir.join(name)));
        assert_eq!(modes, [0o600, 0o700, 0o700, 0o600, 0o666]);
        assert_eq!((mode(&dir), mode(&outside)), (0o755, 0o666));
        assert_eq!(tighten(&dir).unwrap(), 0);
    }
}
