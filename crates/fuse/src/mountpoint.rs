//! Checks of a mountpoint before and after: mounted file systems from `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::Error;

/// One line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MountEntry {
    /// `major:minor`.
    device: String,
    path: PathBuf,
    kind: String,
    source: String,
}

/// Checks that `path` is a directory with nothing mounted on it, and gives its full name.
///
/// # Errors
/// `InUse`, `Dead`, `NotDirectory` or `MountpointUnreadable`: choose another or mend it.
pub(crate) fn check(path: &Path) -> Result<PathBuf, Error> {
    let unreadable = |source| Error::MountpointUnreadable { path: path.to_owned(), source };
    let full = match fs::canonicalize(path) {
        Ok(full) => full,
        Err(error) if error.raw_os_error() == Some(Errno::ENOTCONN as i32) => {
            return Err(Error::Dead { path: path.to_owned() });
        }
        Err(error) => return Err(unreadable(error)),
    };
    if let Some(mounted) = find(&full).map_err(unreadable)? {
        let by = match mounted.kind.as_str() {
            "fuse.frieze" => "a frieze file system".to_owned(),
            kind => format!("{} (type {kind})", mounted.source),
        };
        // A mount without a process answers canonicalize from the kernel's memory, and ENOTCONN to the first question.
        return match fs::metadata(&full) {
            Err(error) if error.raw_os_error() == Some(Errno::ENOTCONN as i32) => Err(Error::Dead { path: full }),
            _ => Err(Error::InUse { path: full, by }),
        };
    }
    match fs::metadata(&full) {
        Ok(metadata) if metadata.is_dir() => Ok(full),
        Ok(_) => Err(Error::NotDirectory { path: full }),
        Err(error) => Err(unreadable(error)),
    }
}

/// Lets the kernel read ahead further than the 128 KiB that FUSE begins with, if this process may set it. Left as it is
/// otherwise: reads are right either way.
pub(crate) fn read_ahead(mountpoint: &Path, kib: u32) {
    let device = match find(mountpoint) {
        Ok(Some(mounted)) => mounted.device,
        _ => return,
    };
    let setting = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = fs::write(&setting, kib.to_string()) {
        tracing::debug!("{setting} stays as it is: {error}");
    }
}

/// The topmost mount on `path`, a full name.
fn find(path: &Path) -> io::Result<Option<MountEntry>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(last_on(&table, path))
}

fn last_on(table: &[u8], path: &Path) -> Option<MountEntry> {
    table.split(|&byte| byte == b'\n').filter_map(parse).rfind(|mounted| mounted.path == path)
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`
fn parse(line: &[u8]) -> Option<MountEntry> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let text = |index: usize| fields.get(index).map(|field| String::from_utf8_lossy(&unescape(field)).into_owned());
    Some(MountEntry {
        device: text(2)?,
        path: PathBuf::from(OsString::from_vec(unescape(fields.get(4)?))),
        kind: text(dash + 1)?,
        source: text(dash + 2)?,
    })
}

/// Space, tab, newline and backslash are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let digits =
            tail.get(..3).filter(|digits| byte == b'\\' && digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        match digits {
            Some(digits) => {
                plain.push(digits.iter().fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &tail[3..];
            }
            None => {
                plain.push(byte);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        40 22 0:44 / /mnt/with\\040space rw,nosuid,nodev - fuse.frieze 127.0.0.1:7470 rw,user_id=0\n\
        41 22 0:45 / /mnt/twice rw shared:7 master:3 - tmpfs tmpfs rw\n\
        42 41 0:46 / /mnt/twice rw - fuse.frieze 127.0.0.1:7470 rw\n";

    #[test]
    fn the_topmost_mount_on_a_path_is_found() {
        let found = last_on(TABLE, Path::new("/mnt/with space")).unwrap();
        assert_eq!((found.kind.as_str(), found.device.as_str()), ("fuse.frieze", "0:44"));
        assert_eq!(last_on(TABLE, Path::new("/mnt/twice")).unwrap().device, "0:46");
        assert_eq!(last_on(TABLE, Path::new("/mnt")), None);
    }

    #[test]
    fn a_plain_directory_is_free_and_a_mountpoint_or_a_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(check(dir.path()).unwrap(), dir.path().canonicalize().unwrap());
        let file = dir.path().join("file");
        fs::write(&file, b"x").unwrap();
        assert!(matches!(check(&file), Err(Error::NotDirectory { .. })));
        assert!(matches!(check(&dir.path().join("none")), Err(Error::MountpointUnreadable { .. })));
        let used = check(Path::new("/proc")).unwrap_err();
        assert!(used.to_string().contains("mounted there already"), "{used}");
        assert_eq!(used.reason(), frieze_base::Reason::Busy);
    }

    #[test]
    fn escapes_are_octal() {
        assert_eq!(unescape(b"a\\040b\\134c\\x"), b"a b\\c\\x");
        assert_eq!(unescape(b"\\"), b"\\");
    }

    #[test]
    fn any_bytes_are_a_table_of_mounts() {
        frieze_harness::fuzz!([TABLE.to_vec(), b"1 2 3:4 / /a\\040b\\777 rw - x y z".to_vec()], |bytes: &[u8]| {
            let last = last_on(bytes, Path::new("/"));
            assert!(last.is_none_or(|mounted| mounted.path == Path::new("/")));
            for entry in bytes.split(|&byte| byte == b'\n').filter_map(parse) {
                assert!(
                    !entry.kind.is_empty() || !entry.source.is_empty() || entry.path.as_os_str().len() < bytes.len()
                );
            }
        });
    }
}
