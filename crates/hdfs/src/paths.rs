//! Paths as Hadoop writes them, and the names of the past in them.
//!
//! A path of a call is absolute and has neither `.` nor `..`. Its first `.at` begins the past of the directory before
//! it, and the next name is the instant: `/logs/.at/20151117T210000.100Z/x`. Hadoop's clients reject a colon in a name:
//! it is written `%3A` in both directions.

use crate::exception::Exception;

/// The hidden directory of every directory: its past.
pub(crate) use frieze_base::AT_NAME;
/// The hidden directory of every directory with its snapshots, as HDFS calls it.
pub(crate) const SNAPSHOT_NAME: &str = ".snapshot";
/// Longest path of a call, as in HDFS. The server's limit may be lower.
const PATH_BYTES_MAX: usize = 8000;

/// The meaning of a path of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ParsedPath {
    /// A file of the present, by its path.
    Now(Vec<u8>),
    /// The directory `.at` of the directory at this path.
    At(Vec<u8>),
    /// The directory `.snapshot` of the directory at this path.
    Snapshots(Vec<u8>),
    /// A file of the past.
    Past(PastPath),
}

/// A file of the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PastPath {
    /// Path of the directory whose past it is, in the present.
    pub(crate) directory: Vec<u8>,
    /// The name of an instant, or `user-` and a user time.
    pub(crate) when: String,
    /// `when` is the name of a snapshot below `.snapshot`.
    pub(crate) is_snapshot: bool,
    /// In that view a further name, by user time.
    pub(crate) then: Option<String>,
    /// Path below that directory at that time; empty for itself.
    pub(crate) path: Vec<u8>,
}

/// Parses a path.
///
/// # Errors
/// `InvalidPathException` if it is not absolute, or has a part that cannot be a name.
pub(crate) fn place(path: &str) -> Result<ParsedPath, Exception> {
    let invalid = || Exception::invalid_path(format!("Invalid path name {path}"));
    if path.len() > PATH_BYTES_MAX {
        return Err(Exception::invalid_path(format!("a path of {} bytes: at most {PATH_BYTES_MAX}", path.len())));
    }
    let rest = path.strip_prefix('/').ok_or_else(invalid)?;
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    if parts.iter().any(|part| [".", ".."].contains(part) || part.contains('\0')) {
        return Err(invalid());
    }
    let joined =
        |parts: &[&str]| parts.iter().map(|part| name_of_shown(part)).collect::<Vec<_>>().join("/").into_bytes();
    let absolute = |parts: &[&str]| [b"/".as_slice(), &joined(parts)].concat();
    let Some(at) = parts.iter().position(|part| [AT_NAME, SNAPSHOT_NAME].contains(part)) else {
        return Ok(ParsedPath::Now(absolute(&parts)));
    };
    let (directory, is_snapshot) = (absolute(&parts[..at]), parts[at] == SNAPSHOT_NAME);
    let Some(when) = parts.get(at + 1) else {
        return Ok(if is_snapshot { ParsedPath::Snapshots(directory) } else { ParsedPath::At(directory) });
    };
    let mut path = &parts[at + 2..];
    let mut then = None;
    // In a directory at an instant, its files by user time.
    if let [AT_NAME, name, rest @ ..] = path {
        (then, path) = (Some(name_of_shown(name)), rest);
    }
    Ok(ParsedPath::Past(PastPath { directory, when: name_of_shown(when), is_snapshot, then, path: joined(path) }))
}

/// The inode number that a path begins with, and the rest of the path: `/.reserved/.inodes/42/x`, as in HDFS.
pub(crate) fn numbered(path: &str) -> Option<(u64, &str)> {
    let rest = path.strip_prefix("/.reserved/.inodes/")?;
    let (number, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    Some((number.parse().ok()?, rest))
}

/// The path of a file of the past, with another instant.
pub(crate) fn pinned(past: &PastPath, when: &str) -> String {
    let shown_path = |path: &[u8]| String::from_utf8_lossy(&shown(path)).into_owned();
    let directory = shown_path(&past.directory);
    // The name of a user time follows the instant, whichever came first.
    let when_by_user = Some(&past.when).filter(|_| !past.is_snapshot);
    let user = [when_by_user, past.then.as_ref()].into_iter().flatten().find(|name| name.starts_with("user-"));
    let then = user.map_or(String::new(), |user| format!("/{AT_NAME}/{}", shown_path(user.as_bytes())));
    let path = if past.path.is_empty() { String::new() } else { format!("/{}", shown_path(&past.path)) };
    format!("{}/{AT_NAME}/{when}{then}{path}", directory.trim_end_matches('/'))
}

/// A name as clients get it: without colons.
pub(crate) fn shown(name: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.len());
    for (at, &byte) in name.iter().enumerate() {
        match byte {
            b':' => text.extend(b"%3A"),
            b'%' if is_written(&name[at + 1..]) => text.extend(b"%25"),
            byte => text.push(byte),
        }
    }
    text
}

/// The name of a text that a client sends.
fn name_of_shown(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let (before, from) = rest.split_at(at);
        name.push_str(before);
        let behind = &from[1..];
        if behind.starts_with("3A") || behind.starts_with("3a") {
            name.push(':');
            rest = &behind[2..];
        } else if behind.starts_with("25") && is_written(&behind.as_bytes()[2..]) {
            name.push('%');
            rest = &behind[2..];
        } else {
            name.push('%');
            rest = behind;
        }
    }
    name + rest
}

/// True if `%` and this text would read as a colon, or as `%` before one.
fn is_written(mut behind: &[u8]) -> bool {
    while let Some(rest) = behind.strip_prefix(b"25") {
        behind = rest;
    }
    behind.starts_with(b"3A") || behind.starts_with(b"3a")
}

/// The path of the directory, and the last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    let (directory, name) = (&path[..at], path.get(at + 1..).unwrap_or_default());
    (if directory.is_empty() { b"/" } else { directory }, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(path: &str) -> ParsedPath {
        ParsedPath::Now(path.as_bytes().to_vec())
    }

    #[test]
    fn paths_of_now_are_taken_as_they_are() {
        assert_eq!(place("/"), Ok(now("/")));
        assert_eq!(place("/a//b/"), Ok(now("/a/b")));
        assert_eq!(split(b"/a/b"), (b"/a".as_slice(), b"b".as_slice()));
        assert_eq!(split(b"/a"), (b"/".as_slice(), b"a".as_slice()));
        for path in ["", "a", "/a/../b", "/./a", "/a\0"] {
            assert!(place(path).is_err(), "{path:?}");
        }
        let long = |bytes: usize| format!("/{}", "x".repeat(bytes - 1));
        assert!(place(&long(PATH_BYTES_MAX)).is_ok() && place(&long(PATH_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn the_first_at_begins_the_past_of_its_directory() {
        assert_eq!(place("/a/.at"), Ok(ParsedPath::At(b"/a".to_vec())));
        let past = |directory: &str, when: &str, then: Option<&str>, path: &str| {
            let (when, then) = (when.to_owned(), then.map(str::to_owned));
            Ok(ParsedPath::Past(PastPath {
                directory: directory.into(),
                when,
                is_snapshot: false,
                then,
                path: path.into(),
            }))
        };
        assert_eq!(place("/.at/20151117T210000.100Z/l/x"), past("/", "20151117T210000.100Z", None, "l/x"));
        assert_eq!(place("/a/.at/2015-11-17T21%3A00%3A00Z"), past("/a", "2015-11-17T21:00:00Z", None, ""));
        assert_eq!(place("/.at/x/.at/user-5/f"), past("/", "x", Some("user-5"), "f"));
    }

    #[test]
    fn a_snapshot_is_below_its_directory() {
        assert_eq!(place("/a/.snapshot"), Ok(ParsedPath::Snapshots(b"/a".to_vec())));
        assert_eq!(place("/.snapshot/"), Ok(ParsedPath::Snapshots(b"/".to_vec())));
        let Ok(ParsedPath::Past(past)) = place("/a/.snapshot/user-s1/l/.at/x") else { panic!("it is the past") };
        assert_eq!((past.is_snapshot, past.when.as_str(), past.path.as_slice()), (true, "user-s1", &b"l/.at/x"[..]));
        assert_eq!(pinned(&PastPath { path: b"l".to_vec(), ..past }, "hlc-1"), "/a/.at/hlc-1/l");
    }

    #[test]
    fn a_path_of_the_past_is_written_with_another_instant() {
        let told = |path: &str| match place(path) {
            Ok(ParsedPath::Past(past)) => pinned(&past, "hlc-1"),
            other => panic!("{other:?}"),
        };
        assert_eq!(told("/.at/5m-ago/l/a%3Ab"), "/.at/hlc-1/l/a%3Ab");
        assert_eq!(told("/a/.at/5m-ago"), "/a/.at/hlc-1");
        assert_eq!(told("/a/.at/5m-ago/.at/user-5/x"), "/a/.at/hlc-1/.at/user-5/x");
        assert_eq!(told("/a/.at/user-5/.at/5m-ago/x"), "/a/.at/hlc-1/.at/user-5/x");
    }

    #[test]
    fn a_colon_goes_there_and_back_and_so_does_what_looks_like_one() {
        for name in ["a:b", "%3A", "%253A", "%25253a", "%", "%25", "%2", "100%", "a%3", "::", "%3A:", "é:%"] {
            let text = String::from_utf8(shown(name.as_bytes())).unwrap();
            assert!(!text.contains(':'), "{text}");
            assert_eq!(name_of_shown(&text), name, "shown as {text}");
        }
        assert_eq!(name_of_shown("100%25"), "100%25", "nothing else is escaped");
    }
}
