//! Quotas of directories, as the texts that set and report them.
//!
//! They travel as extended attributes: one that the superuser sets and that has versions, and one that is computed on
//! request.

use std::fmt;

/// The extended attribute of a directory that holds its quota, as [`Quota`] reads and writes it. Only the superuser
/// sets it.
pub const QUOTA_XATTR: &[u8] = b"trusted.frieze.quota";
/// The extended attribute, of now and never listed, that shows the quota of a directory and its use to every user that
/// may read the directory, in the format of [`format_quota`] and [`parse_quota`].
pub const USAGE_XATTR: &[u8] = b"user.frieze.usage";

/// How much may lie below a directory, itself included. As text: `files=1000 bytes=1073741824`, either alone, or
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Most inodes with a name; `None`: as many as there is room for.
    pub files_max: Option<u64>,
    /// Most bytes of files; `None`: as many as there is room for.
    pub bytes_max: Option<u64>,
}

/// Use of the tree below a directory, itself included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// Inodes with a name.
    pub files: u64,
    /// Lengths of regular files, bytes, as far as settled.
    pub bytes: u64,
}

impl Quota {
    /// Reads the text.
    ///
    /// # Errors
    /// The reason why the text is no quota.
    pub fn parse(text: &[u8]) -> Result<Quota, &'static str> {
        const WRONG: &str =
            "a quota is written as `files=1000 bytes=1073741824`, either of them alone, in whole numbers";
        let mut quota = Quota::default();
        for part in std::str::from_utf8(text).map_err(|_| WRONG)?.split_ascii_whitespace() {
            let (what, most) = part.split_once('=').ok_or(WRONG)?;
            let place = match what {
                "files" => &mut quota.files_max,
                "bytes" => &mut quota.bytes_max,
                _ => return Err(WRONG),
            };
            if place.replace(most.parse().map_err(|_| WRONG)?).is_some() {
                return Err(WRONG);
            }
        }
        Ok(quota)
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("files", self.files_max), ("bytes", self.bytes_max)];
        let mut before = "";
        for (what, most) in parts.into_iter().filter_map(|(what, most)| Some((what, most?))) {
            write!(f, "{before}{what}={most}")?;
            before = " ";
        }
        Ok(())
    }
}

impl fmt::Display for TreeUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "files={} bytes={}", self.files, self.bytes)
    }
}

/// The value of the attribute [`USAGE_XATTR`]: `files=3 bytes=10 of files=1000`.
pub fn format_quota(quota: &Quota, used: &TreeUsage) -> String {
    format!("{used} of {quota}")
}

/// Parses the text of [`format_quota`]; `None` if it is something else.
pub fn parse_quota(text: &[u8]) -> Option<(Quota, TreeUsage)> {
    let (used, quota) = std::str::from_utf8(text).ok()?.split_once(" of ")?;
    let Quota { files_max: Some(files), bytes_max: Some(bytes) } = Quota::parse(used.as_bytes()).ok()? else {
        return None;
    };
    Some((Quota::parse(quota.as_bytes()).ok()?, TreeUsage { files, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_read_as_it_is_written() {
        for text in ["", "files=0", "bytes=18446744073709551615", "files=10 bytes=20"] {
            assert_eq!(Quota::parse(text.as_bytes()).map(|quota| quota.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(
            Quota::parse(b" bytes=2  files=1 ").map(|quota| quota.to_string()),
            Ok("files=1 bytes=2".to_owned())
        );
        for text in
            ["files", "files=", "files=-1", "files=1 files=2", "inodes=1", "bytes=1k", "files=1,bytes=2", "\u{ff}"]
        {
            assert!(Quota::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(Quota::parse(b"\xff").is_err());
    }

    #[test]
    fn usage_round_trips_through_text() {
        let quota = Quota { files_max: None, bytes_max: Some(7) };
        let used = TreeUsage { files: 1, bytes: 2 };
        assert_eq!(parse_quota(format_quota(&quota, &used).as_bytes()), Some((quota, used)));
        for text in ["", "files=1 bytes=2", "files=1 of bytes=7", "files=1 bytes=2 of inodes=7"] {
            assert_eq!(parse_quota(text.as_bytes()), None, "{text:?}");
        }
    }
}
