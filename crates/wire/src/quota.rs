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

/// How much may lie below a directory, itself included. As text: `files=1000 bytes=1073741824 kept=2147483648`, some
/// of them, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Most inodes with a name; `None`: as many as there is room for.
    pub files_max: Option<u64>,
    /// Most bytes of files; `None`: as many as there is room for.
    pub bytes_max: Option<u64>,
    /// Most bytes that are stored of files, present and history, deleted files included; `None`: as many as there is
    /// room for.
    pub kept_max: Option<u64>,
}

/// The quota of a directory and its use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaUse {
    /// The quota.
    pub quota: Quota,
    /// What lies below the directory.
    pub used: TreeUsage,
    /// Bytes that are stored of files below it, present and history, as last counted; `None`: the quota does not bound
    /// them, or they are not counted yet.
    pub kept: Option<u64>,
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
            "a quota is written as `files=1000 bytes=1073741824 kept=2147483648`, or some of them, in whole numbers";
        let mut quota = Quota::default();
        for part in std::str::from_utf8(text).map_err(|_| WRONG)?.split_ascii_whitespace() {
            let (what, most) = part.split_once('=').ok_or(WRONG)?;
            let place = match what {
                "files" => &mut quota.files_max,
                "bytes" => &mut quota.bytes_max,
                "kept" => &mut quota.kept_max,
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
        let parts = [("files", self.files_max), ("bytes", self.bytes_max), ("kept", self.kept_max)];
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

/// The value of the attribute [`USAGE_XATTR`]: `files=3 bytes=10 kept=90 of files=1000 kept=500`.
pub fn format_quota(QuotaUse { quota, used, kept }: &QuotaUse) -> String {
    let kept = kept.map_or(String::new(), |kept| format!(" kept={kept}"));
    format!("{used}{kept} of {quota}")
}

/// Parses the text of [`format_quota`]; `None` if it is something else.
pub fn parse_quota(text: &[u8]) -> Option<QuotaUse> {
    let (used, quota) = std::str::from_utf8(text).ok()?.split_once(" of ")?;
    let Quota { files_max: Some(files), bytes_max: Some(bytes), kept_max: kept } =
        Quota::parse(used.as_bytes()).ok()?
    else {
        return None;
    };
    Some(QuotaUse { quota: Quota::parse(quota.as_bytes()).ok()?, used: TreeUsage { files, bytes }, kept })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_read_as_it_is_written() {
        for text in ["", "files=0", "bytes=18446744073709551615", "files=10 bytes=20", "files=10 kept=20"] {
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
        for kept in [None, Some(9)] {
            let quota = Quota { files_max: None, bytes_max: Some(7), kept_max: kept };
            let usage = QuotaUse { quota, used: TreeUsage { files: 1, bytes: 2 }, kept };
            assert_eq!(parse_quota(format_quota(&usage).as_bytes()), Some(usage));
        }
        for text in ["", "files=1 bytes=2", "files=1 of bytes=7", "files=1 bytes=2 of inodes=7"] {
            assert_eq!(parse_quota(text.as_bytes()), None, "{text:?}");
        }
    }
}
