//! The file or directory that a request is about.

/// A file named by a directory (or any inode) and a path from there. An empty path is the base itself.
///
/// `path` is separated by `/`; `.` is allowed, `..` and NUL are refused. A leading `/` starts at the root of the view.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Target {
    /// Inode to start from; 1 is the root.
    #[prost(uint64, tag = "1")]
    pub base: u64,
    /// Path from there, bytes as POSIX gives them.
    #[prost(bytes = "vec", tag = "2")]
    pub path: Vec<u8>,
    /// True: a symbolic link in the last place is followed. Links before it always are.
    #[prost(bool, tag = "3")]
    pub follow: bool,
}
