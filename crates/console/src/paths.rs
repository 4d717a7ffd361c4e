//! Paths in addresses of pages: bytes, escaped.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

use crate::error::PageRefusal;
use crate::words::shown;

/// Bytes of a path that are escaped. `/` stays.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'\'')
    .add(b'+')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// An absolute path in the file system, without `.`, `..` and empty parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PagePath(Vec<u8>);

impl PagePath {
    /// The path behind the name of a page, as in `/files/logs/today`.
    ///
    /// # Errors
    /// 400 for a path with `.`, `..` or NUL.
    pub(crate) fn parse(escaped: &str) -> Result<PagePath, PageRefusal> {
        let bytes: Vec<u8> = percent_decode_str(escaped).collect();
        let mut path = Vec::with_capacity(bytes.len() + 1);
        for part in bytes.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            if part == b"." || part == b".." || part.contains(&0) {
                return Err(PageRefusal::bad(format!(
                    "{} is not a path: it has a part {:?}",
                    shown(&bytes),
                    shown(part)
                )));
            }
            path.push(b'/');
            path.extend_from_slice(part);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Ok(PagePath(path))
    }

    /// A path of an answer.
    pub(crate) fn of(bytes: &[u8]) -> PagePath {
        PagePath(if bytes.is_empty() { b"/".to_vec() } else { bytes.to_vec() })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0 == b"/"
    }

    /// The last part; `/` of the root.
    pub(crate) fn name(&self) -> &[u8] {
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(slash) if !self.is_root() => &self.0[slash + 1..],
            _ => b"/",
        }
    }

    pub(crate) fn parent(&self) -> PagePath {
        let slash = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        PagePath::of(&self.0[..slash])
    }

    pub(crate) fn join(&self, name: &[u8]) -> PagePath {
        let base = if self.is_root() { &[][..] } else { &self.0 };
        PagePath([base, b"/", name].concat())
    }

    /// As people read it.
    pub(crate) fn shown(&self) -> String {
        shown(&self.0)
    }

    /// As addresses have it.
    pub(crate) fn escaped(&self) -> String {
        escaped(&self.0)
    }

    /// The directories above, from the root, and itself: name and address.
    pub(crate) fn crumbs(&self) -> Vec<(String, String)> {
        let mut crumbs = vec![("/".to_owned(), "/".to_owned())];
        for (index, byte) in self.0.iter().enumerate().skip(1) {
            if *byte == b'/' {
                crumbs.push(crumb(&self.0[..index]));
            }
        }
        if !self.is_root() {
            crumbs.push(crumb(&self.0));
        }
        crumbs
    }
}

fn crumb(path: &[u8]) -> (String, String) {
    let path = PagePath(path.to_vec());
    (shown(path.name()), path.escaped())
}

/// Bytes as an address has them.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    percent_encode(bytes, ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<u8> {
        PagePath::parse(text).expect("it is a path").0
    }

    #[test]
    fn paths_go_into_addresses_and_come_back() {
        for path in [&b"/"[..], b"/a b", b"/\xff\xfe/x", b"/q?x=1&y#z", b"/%41", b"/<script>'\""] {
            assert_eq!(parsed(&escaped(path)), path);
        }
        assert_eq!(parsed(""), b"/");
        assert_eq!(parsed("//a///b/"), b"/a/b");
    }

    #[test]
    fn a_path_that_climbs_is_refused() {
        for path in ["/../etc", "/a/..", "/./a", "/%2e%2e/a", "/a%00b"] {
            assert!(PagePath::parse(path).is_err(), "{path}");
        }
    }

    #[test]
    fn crumbs_lead_to_every_directory_above() {
        let crumbs = PagePath::of(b"/a/b c").crumbs();
        let expected = [("/", "/"), ("a", "/a"), ("b c", "/a/b%20c")];
        assert_eq!(crumbs, expected.map(|(name, path)| (name.to_owned(), path.to_owned())));
        assert_eq!(PagePath::of(b"/a/b").parent(), PagePath::of(b"/a"));
        assert_eq!(PagePath::of(b"/a").parent(), PagePath::of(b"/"));
        assert_eq!(PagePath::of(b"/").join(b"x"), PagePath::of(b"/x"));
    }
}
