//! Paths in the file system, as they are typed: absolute, of plain names.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use anyhow::Result;
use frieze_base::PATH_BYTES_MAX;

use crate::failure::UsageError;
use crate::format::printable;

/// An absolute path in the file system: no empty name, no `.`, no `..`, no NUL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FsPath {
    /// `/` and the names with `/` between them; the root is `/` alone.
    bytes: Vec<u8>,
    /// True if it was written with a `/` at the end: it has to be a directory.
    pub(crate) wants_directory: bool,
}

impl FsPath {
    /// Reads a path as typed.
    ///
    /// # Errors
    /// [`UsageError`] with the reason, if it is not absolute, has `..` or NUL, or is too long.
    pub(crate) fn parse(text: &OsStr) -> Result<FsPath> {
        let typed = text.as_bytes();
        let refuse = |why: &str| Err(UsageError(format!("{}: {why}", printable(typed))).into());
        if typed.is_empty() {
            return Err(UsageError("the path is empty: write / for the root directory".to_owned()).into());
        }
        if typed[0] != b'/' {
            return refuse(&format!("not an absolute path: write /{}", printable(typed.trim_ascii_start())));
        }
        if typed.contains(&0) {
            return refuse("a path cannot hold a NUL byte");
        }
        if typed.len() > PATH_BYTES_MAX {
            return refuse(&format!("a path has at most {PATH_BYTES_MAX} bytes"));
        }
        let mut path = FsPath::root();
        for name in typed.split(|&b| b == b'/') {
            match name {
                b"" | b"." => {}
                b".." => return refuse("'..' is not allowed in a path: write the path out from /"),
                name => path = path.join(name),
            }
        }
        path.wants_directory = typed.ends_with(b"/") || typed.ends_with(b"/.");
        Ok(path)
    }

    /// The root directory.
    pub(crate) fn root() -> FsPath {
        FsPath { bytes: vec![b'/'], wants_directory: true }
    }

    /// The entry `name` of this directory.
    pub(crate) fn join(&self, name: &[u8]) -> FsPath {
        let mut bytes = self.bytes.clone();
        if !self.is_root() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        FsPath { bytes, wants_directory: false }
    }

    /// The directory that holds it; none for the root.
    pub(crate) fn parent(&self) -> Option<FsPath> {
        if self.is_root() {
            return None;
        }
        let cut = self.bytes.iter().rposition(|&b| b == b'/').expect("a path begins with /");
        Some(FsPath { bytes: self.bytes[..cut.max(1)].to_vec(), wants_directory: true })
    }

    /// The last name; none for the root.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        let name = self.bytes.rsplit(|&b| b == b'/').next().expect("split gives at least one piece");
        (!name.is_empty()).then_some(name)
    }

    /// The whole path.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// True for `/`.
    pub(crate) fn is_root(&self) -> bool {
        self.bytes.len() == 1
    }

    /// True if `other` is this path or lies below it.
    pub(crate) fn holds(&self, other: &FsPath) -> bool {
        self.is_root()
            || other.bytes == self.bytes
            || (other.bytes.starts_with(&self.bytes) && other.bytes[self.bytes.len()] == b'/')
    }
}

impl fmt::Display for FsPath {
    /// As it can be shown on a terminal: control characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        match FsPath::parse(OsStr::new(text)) {
            Ok(path) => path.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_path_is_taken_without_its_empty_names_and_dots() {
        assert_eq!(parsed("/"), "/");
        assert_eq!(parsed("//a///b/./c/"), "/a/b/c");
        assert_eq!(parsed("/..a/b.."), "/..a/b..");
        assert!(FsPath::parse(OsStr::new("/a/")).unwrap().wants_directory);
        assert!(!FsPath::parse(OsStr::new("/a")).unwrap().wants_directory);
    }

    #[test]
    fn a_path_that_could_mean_two_things_is_refused_in_words() {
        assert_eq!(parsed(""), "the path is empty: write / for the root directory");
        assert_eq!(parsed("a/b"), "a/b: not an absolute path: write /a/b");
        assert_eq!(parsed("/a/../b"), "/a/../b: '..' is not allowed in a path: write the path out from /");
        assert_eq!(parsed("/a\0b"), "/a\\0b: a path cannot hold a NUL byte");
        assert!(parsed(&format!("/{}", "x/".repeat(2048))).ends_with("at most 4096 bytes"));
    }

    #[test]
    fn parents_and_names_take_a_path_apart() {
        let path = FsPath::parse(OsStr::new("/a/b")).unwrap();
        assert_eq!(path.name(), Some(b"b".as_slice()));
        let parent = path.parent().unwrap();
        assert_eq!(parent.to_string(), "/a");
        assert_eq!(parent.parent(), Some(FsPath::root()));
        assert_eq!(FsPath::root().parent(), None);
        assert_eq!(FsPath::root().name(), None);
        assert_eq!(FsPath::root().join(b"x").to_string(), "/x");
    }

    #[test]
    fn a_directory_holds_what_lies_below_it_and_not_what_begins_like_it() {
        let of = |text: &str| FsPath::parse(OsStr::new(text)).unwrap();
        assert!(of("/a").holds(&of("/a")));
        assert!(of("/a").holds(&of("/a/b")));
        assert!(!of("/a").holds(&of("/ab")));
        assert!(of("/").holds(&of("/ab")));
    }
}
