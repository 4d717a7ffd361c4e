//! Paths as tools are given them, and the tree that they must not leave.
//!
//! Guarantees: a [`ScopedPath`] lies at or below the root of its [`ToolScope`] by its names.
//! [`ToolScope::target`] walks it name by name, by inode, so that no symbolic link leads out, even one that is made
//! meanwhile.

use std::fmt;

use frieze_base::{InodeId, PATH_BYTES_MAX, Reason};
use frieze_client::{FileKind, Fs, Target};

use crate::error::ToolError;
use crate::words::lossy;

/// The tree that tools reach.
#[derive(Clone, Debug)]
pub(crate) struct ToolScope {
    root: ScopedPath,
    /// Where the file system is mounted for the agent, without a `/` at its end.
    mount: Option<Vec<u8>>,
}

/// An absolute path of plain names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScopedPath(Vec<Vec<u8>>);

impl ToolScope {
    /// The tree at `root`, of a file system that the agent has at `mount`.
    ///
    /// # Errors
    /// `Path` if one of them is no plain absolute path.
    pub(crate) fn new(root: &str, mount: Option<&str>) -> Result<ToolScope, ToolError> {
        let absolute = |text: &str| match text.starts_with('/') {
            true => ScopedPath::of_names(text.as_bytes()),
            false => Err(ScopedPath::refused(text.as_bytes(), "not an absolute path: begin it with /")),
        };
        let mount = mount.map(absolute).transpose()?.map(|mount| mount.to_string_bytes());
        Ok(ToolScope { root: absolute(root)?, mount: mount.filter(|mount| mount != b"/") })
    }

    /// The root of the tree.
    pub(crate) fn root(&self) -> &ScopedPath {
        &self.root
    }

    /// Reads a path: absolute in the file system, absolute in the agent's mount, or relative to the root.
    ///
    /// # Errors
    /// `Path` with the reason; `Outside` if it lies outside the tree.
    pub(crate) fn path(&self, given: &[u8]) -> Result<ScopedPath, ToolError> {
        let below_mount = self.mount.as_deref().and_then(|mount| given.strip_prefix(mount));
        let path = match below_mount.filter(|rest| rest.is_empty() || rest.starts_with(b"/")) {
            Some(rest) => ScopedPath::of_names(rest)?,
            None if given.starts_with(b"/") => ScopedPath::of_names(given)?,
            None => ScopedPath([&self.root.0[..], &ScopedPath::of_names(given)?.0].concat()),
        };
        match self.holds(&path.0) {
            true => Ok(path),
            false => Err(ToolError::Outside { path: path.to_string(), root: self.root.to_string() }),
        }
    }

    /// True if a path of the server's answers lies in the tree.
    pub(crate) fn shows(&self, path: &[u8]) -> bool {
        self.root.0.is_empty() || self.holds(&path.split(|&byte| byte == b'/').skip(1).collect::<Vec<_>>())
    }

    fn holds<N: AsRef<[u8]>>(&self, names: &[N]) -> bool {
        let root = &self.root.0;
        names.len() >= root.len() && root.iter().zip(names).all(|(one, other)| one == other.as_ref())
    }

    /// The object of a path, as requests name it, by the first of `views` that has the directory above it. If the tree
    /// is a part of the file system, the directories on the way are looked up one by one.
    ///
    /// # Errors
    /// `Link` if one of them is a symbolic link; `Client` as a look-up.
    pub(crate) fn target(&self, views: &[Fs], path: &ScopedPath) -> Result<Target, ToolError> {
        if self.root.0.is_empty() {
            return Ok(Target { follow: false, ..Target::path(path.to_string_bytes()) });
        }
        let mut missing = None;
        for fs in views {
            match self.walk(fs, path) {
                Err(error) if error.is(Reason::NotFound) => missing = missing.or(Some(error)),
                found => return found,
            }
        }
        Err(missing.unwrap_or_else(|| ScopedPath::refused(&path.to_string_bytes(), "no view of it")))
    }

    fn walk(&self, fs: &Fs, path: &ScopedPath) -> Result<Target, ToolError> {
        let Some((last, above)) = path.0.split_last() else { return Ok(Target::inode(InodeId::ROOT)) };
        let mut here = InodeId::ROOT;
        for (depth, name) in above.iter().enumerate() {
            let found = fs.stat(&Target::under(here, name.clone())).map_err(ToolError::about(path.to_string()))?;
            // Above the tree, too: an operator writes the root out.
            if found.attr.kind() == FileKind::Symlink {
                let link = ScopedPath(path.0[..=depth].to_vec()).to_string();
                return Err(ToolError::Link { path: path.to_string(), link, root: self.root.to_string() });
            }
            here = InodeId(found.attr.inode);
        }
        Ok(Target::under(here, last.clone()))
    }
}

impl ScopedPath {
    fn of_names(text: &[u8]) -> Result<ScopedPath, ToolError> {
        if text.len() > PATH_BYTES_MAX {
            return Err(ScopedPath::refused(&text[..SHOWN_BYTES], "it is longer than 4096 bytes"));
        }
        if text.contains(&0) {
            return Err(ScopedPath::refused(text, "a path has no NUL byte"));
        }
        let names: Vec<Vec<u8>> =
            text.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).map(<[u8]>::to_vec).collect();
        match names.iter().any(|name| name == b"..") {
            true => Err(ScopedPath::refused(text, "'..' is not allowed: write the path out from /")),
            false => Ok(ScopedPath(names)),
        }
    }

    fn refused(text: &[u8], why: &'static str) -> ToolError {
        ToolError::Path { path: lossy(text), why }
    }

    /// The whole path as bytes.
    pub(crate) fn to_string_bytes(&self) -> Vec<u8> {
        match self.0.is_empty() {
            true => b"/".to_vec(),
            false => self.0.iter().flat_map(|name| [b"/", &name[..]].concat()).collect(),
        }
    }
}

impl fmt::Display for ScopedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&lossy(&self.to_string_bytes()))
    }
}

/// Bytes of a path that is too long, as its refusal repeats them.
const SHOWN_BYTES: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(root: &str, mount: Option<&str>, path: &str) -> String {
        match ToolScope::new(root, mount).unwrap().path(path.as_bytes()) {
            Ok(path) => path.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_path_is_absolute_or_below_the_root_or_below_the_mount() {
        assert_eq!(read("/", None, "/a//b/./c/"), "/a/b/c");
        assert_eq!(read("/p", None, "src/x"), "/p/src/x");
        assert_eq!(read("/p", None, ""), "/p");
        assert_eq!(read("/p", Some("/mnt/f"), "/mnt/f/p/x"), "/p/x");
        assert_eq!(read("/", Some("/mnt/f/"), "/mnt/f"), "/");
        assert_eq!(read("/", Some("/mnt/f"), "/mnt/fx"), "/mnt/fx");
    }

    #[test]
    fn a_path_that_leaves_the_tree_is_refused() {
        for path in ["/", "/q", "/pp/x", "/q/p/x"] {
            assert!(read("/p", None, path).contains("lies outside \"/p\""), "{path}");
        }
        for path in ["/p/../q", "..", "../p", "/p/a/..", "a/../../q"] {
            assert!(read("/p", None, path).contains("'..' is not allowed"), "{path}");
        }
        assert!(read("/p", Some("/mnt"), "/mnt/q").contains("outside"));
        assert!(read("/", None, "/a\0").contains("NUL"));
        assert!(read("/", None, &"/x".repeat(3000)).contains("longer than"));
        assert!(ToolScope::new("p", None).unwrap_err().to_string().contains("absolute"));
    }

    #[test]
    fn names_above_and_beside_the_tree_are_not_shown() {
        let scope = ToolScope::new("/p/q", None).unwrap();
        assert!(scope.shows(b"/p/q") && scope.shows(b"/p/q/x"));
        assert!(!scope.shows(b"/p") && !scope.shows(b"/p/qq") && !scope.shows(b"/"));
        assert!(ToolScope::new("/", None).unwrap().shows(b"/any"));
    }
}
