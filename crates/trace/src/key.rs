//! The key of hashes, one for all rings of a directory: the same path has the same hash in each of them.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::error::TraceError;
use crate::words::HashKey;

const KEY_FILE: &str = "key";
const KEY_BYTES: usize = 16;

/// Reads the key of a directory, or makes both. The directory is for its owner alone: names of rings have names of
/// programs.
///
/// # Errors
/// `System`. `Foreign`: the file is no key; remove it, and hashes of older rings do not match those of newer ones.
pub(crate) fn load(dir: &Path) -> Result<HashKey, TraceError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| TraceError::System { what: "create", path: dir.to_owned(), error })?;
    let path = dir.join(KEY_FILE);
    let system = |what, error| TraceError::System { what, path: path.clone(), error };
    for _ in 0..2 {
        match std::fs::read(&path) {
            Ok(bytes) => {
                let bytes: [u8; KEY_BYTES] = bytes.try_into().map_err(|_| TraceError::Foreign {
                    path: path.clone(),
                    why: format!("a key has {KEY_BYTES} bytes"),
                })?;
                let key = u128::from_le_bytes(bytes);
                return Ok((key as u64, (key >> 64) as u64));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(system("read", error)),
        }
        let mut key = [0; KEY_BYTES];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| system("draw random bytes for", error.into()))?;
        // Written under another name first: another process may read it at the same time.
        let made = dir.join(format!("{KEY_FILE}.{}", std::process::id()));
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&made);
        file.and_then(|mut file| file.write_all(&key)).map_err(|error| system("write", error))?;
        let linked = std::fs::hard_link(&made, &path);
        std::fs::remove_file(&made).map_err(|error| system("write", error))?;
        match linked {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(system("write", error)),
            _ => {}
        }
    }
    Err(system("read", std::io::ErrorKind::NotFound.into()))
}
