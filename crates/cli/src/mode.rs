//! Modes as chmod(1) takes them: in octal, or as changes of what a file has (`u+x`, `go-w`, `a=rX`).
//!
//! Guarantees: an accepted mode has the meaning that chmod(1) of GNU gives it; a test compares them.

use anyhow::Result;

use crate::failure::UsageError;

/// The wanted mode of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModeSpec {
    /// These bits; `long`: with the set-id bits of directories, too, which fewer than five digits keep.
    Octal { bits: u32, long: bool },
    /// Changes, one after the other.
    Symbolic(Vec<ModeChange>),
}

/// One change: `go-w`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModeChange {
    /// Bits of the classes that are named; `None`: all, without those of the umask.
    who: Option<u32>,
    action: ModeOperator,
    what: ModeBits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModeOperator {
    Add,
    Take,
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModeBits {
    /// Permissions for all classes, applied to those that are named; `X`: to execute, if it is a directory or any class
    /// may.
    Bits { bits: u32, if_any_executes: bool },
    /// Those of another class, by the place of its bits.
    CopyOf(u32),
}

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const STICKY: u32 = 0o1000;

impl ModeSpec {
    /// # Errors
    /// [`UsageError`] if the text is no mode.
    pub(crate) fn parse(text: &str) -> Result<ModeSpec> {
        let wrong =
            || UsageError(format!("mode {text}: write it in octal, such as 755, or as changes, such as u+x,go-w"));
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777).ok_or_else(wrong)?;
            return Ok(ModeSpec::Octal { bits, long: text.len() >= 5 });
        }
        let mut changes = Vec::new();
        for clause in text.split(',') {
            changes_of(clause, &mut changes).ok_or_else(wrong)?;
        }
        Ok(ModeSpec::Symbolic(changes))
    }

    /// The mode of a file that has `mode` now.
    pub(crate) fn of(&self, mode: u32, is_directory: bool, umask: u32) -> u32 {
        match self {
            ModeSpec::Octal { bits, long } => {
                let kept = if is_directory && !long { mode & (SET_USER | SET_GROUP) } else { 0 };
                bits | kept
            }
            ModeSpec::Symbolic(changes) => {
                changes.iter().fold(mode & 0o7777, |mode, change| change.of(mode, is_directory, umask))
            }
        }
    }
}

/// The changes of `ug+r-w`, appended; `None` if it is none.
fn changes_of(clause: &str, changes: &mut Vec<ModeChange>) -> Option<()> {
    let at = clause.find(['+', '-', '='])?;
    let mut who = None;
    for class in clause[..at].chars() {
        let bits = match class {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            _ => return None,
        };
        who = Some(who.unwrap_or(0) | bits);
    }
    let mut rest = &clause[at..];
    while !rest.is_empty() {
        let action = match rest.as_bytes()[0] {
            b'+' => ModeOperator::Add,
            b'-' => ModeOperator::Take,
            _ => ModeOperator::Set,
        };
        let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |next| next + 1);
        let what = match &rest[1..end] {
            "u" => ModeBits::CopyOf(6),
            "g" => ModeBits::CopyOf(3),
            "o" => ModeBits::CopyOf(0),
            letters => {
                let (mut bits, mut if_any_executes) = (0, false);
                for letter in letters.chars() {
                    match letter {
                        'r' => bits |= 0o444,
                        'w' => bits |= 0o222,
                        'x' => bits |= 0o111,
                        'X' => if_any_executes = true,
                        's' => bits |= SET_USER | SET_GROUP,
                        't' => bits |= STICKY,
                        _ => return None,
                    }
                }
                ModeBits::Bits { bits, if_any_executes }
            }
        };
        changes.push(ModeChange { who, action, what });
        rest = &rest[end..];
    }
    Some(())
}

impl ModeChange {
    fn of(&self, mode: u32, is_directory: bool, umask: u32) -> u32 {
        let what = match self.what {
            ModeBits::CopyOf(shift) => {
                let class = mode >> shift & 0o7;
                class | class << 3 | class << 6
            }
            ModeBits::Bits { bits, if_any_executes } => {
                let executes = if_any_executes && (is_directory || mode & 0o111 != 0);
                bits | if executes { 0o111 } else { 0 }
            }
        };
        let who = self.who.unwrap_or(0o7777);
        // Without a class: not the bits that the umask keeps from new files.
        let bits = what & who & if self.who.is_none() { !umask } else { 0o7777 };
        match self.action {
            ModeOperator::Add => mode | bits,
            ModeOperator::Take => mode & !bits,
            ModeOperator::Set => {
                // A directory keeps its set-id bits unless they are named.
                let kept = if is_directory { (SET_USER | SET_GROUP) & !what } else { 0 };
                mode & (!who | kept) | bits
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    use super::*;

    /// Thousands of random modes, beside chmod(1) itself.
    #[test]
    fn modes_mean_what_they_mean_to_chmod() {
        let directory = tempfile::tempdir().unwrap();
        let (file, folder) = (directory.path().join("file"), directory.path().join("folder"));
        std::fs::write(&file, "").unwrap();
        std::fs::create_dir(&folder).unwrap();
        let mut rng = frieze_base::Rng::new(1);
        for _ in 0..300 {
            let mut text = String::new();
            for clause in 0..rng.between(1, 2) {
                text += if clause > 0 { "," } else { "" };
                text += *rng.choose(&["", "u", "g", "o", "a", "ug", "go", "uo"]);
                for _ in 0..rng.between(1, 2) {
                    text += *rng.choose(&["+", "-", "="]);
                    text += *rng.choose(&["", "r", "w", "x", "X", "rw", "rwx", "rX", "s", "t", "xs", "u", "g", "o"]);
                }
            }
            if rng.chance(4) {
                text = format!("{:o}", rng.below(0o10000));
            }
            if text.starts_with('-') {
                continue;
            }
            for (path, is_directory) in [(&file, false), (&folder, true)] {
                let before = rng.below(0o10000) as u32;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(before)).unwrap();
                let before = std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
                let mut chmod = Command::new("sh");
                chmod.args(["-c", "umask 027; exec chmod \"$1\" \"$2\"", "sh", &text]).arg(path);
                // Complains where the umask changed the requested mode.
                chmod.stderr(Stdio::null()).status().unwrap();
                let after = std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
                let found = ModeSpec::parse(&text).unwrap().of(before, is_directory, 0o027);
                assert_eq!(
                    format!("{found:o}"),
                    format!("{after:o}"),
                    "{text} of {before:o}, directory {is_directory}"
                );
            }
        }
    }

    #[test]
    fn an_invalid_mode_is_refused() {
        for text in ["", "8", "77777", "u", "z+x", "u+q", "u+x,", ",u+x", "+x-q", "0o755", "rwx"] {
            assert!(ModeSpec::parse(text).is_err(), "{text}");
        }
    }
}
