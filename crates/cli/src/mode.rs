//! Modes as chmod(1) takes them: in octal, or as changes of what a file has (`u+x`, `go-w`, `a=rX`).
//!
//! Guarantees: an accepted mode has the meaning that chmod(1) of GNU gives it; a test compares them.

use anyhow::Result;
use frieze_client::{ModeAction, ModeChange};

use crate::failure::UsageError;

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const STICKY: u32 = 0o1000;

/// The changes that a text means, one after the other. `umask`: bits that a change without a class leaves.
///
/// # Errors
/// [`UsageError`] if the text is no mode.
pub(crate) fn parse(text: &str, umask: u32) -> Result<Vec<ModeChange>> {
    let wrong = || UsageError(format!("mode {text}: write it in octal, such as 755, or as changes, such as u+x,go-w"));
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777).ok_or_else(wrong)?;
        // Fewer than five digits keep the set-id bits of directories.
        let set = ModeAction::Set as i32;
        return Ok(vec![ModeChange {
            action: set,
            who: 0o7777,
            bits,
            exact: text.len() >= 5,
            ..ModeChange::default()
        }]);
    }
    let mut changes = Vec::new();
    for clause in text.split(',') {
        changes_of(clause, umask, &mut changes).ok_or_else(wrong)?;
    }
    Ok(changes)
}

/// The mode of a file that has `mode` now.
pub(crate) fn changed(changes: &[ModeChange], mode: u32, is_directory: bool) -> u32 {
    changes.iter().fold(mode & 0o7777, |mode, change| change.of(mode, is_directory))
}

/// The changes of `ug+r-w`, appended; `None` if it is none.
fn changes_of(clause: &str, umask: u32, changes: &mut Vec<ModeChange>) -> Option<()> {
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
            b'+' => ModeAction::Add,
            b'-' => ModeAction::Take,
            _ => ModeAction::Set,
        };
        let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |next| next + 1);
        let mut change = ModeChange {
            action: action as i32,
            who: who.unwrap_or(0o7777),
            // Without a class: not the bits that the umask keeps from new files.
            without: if who.is_none() { umask } else { 0 },
            ..ModeChange::default()
        };
        match &rest[1..end] {
            "u" => change.copy_of = Some(6),
            "g" => change.copy_of = Some(3),
            "o" => change.copy_of = Some(0),
            letters => {
                for letter in letters.chars() {
                    match letter {
                        'r' => change.bits |= 0o444,
                        'w' => change.bits |= 0o222,
                        'x' => change.bits |= 0o111,
                        'X' => change.if_any_executes = true,
                        's' => change.bits |= SET_USER | SET_GROUP,
                        't' => change.bits |= STICKY,
                        _ => return None,
                    }
                }
            }
        }
        changes.push(change);
        rest = &rest[end..];
    }
    Some(())
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
                let found = changed(&parse(&text, 0o027).unwrap(), before, is_directory);
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
            assert!(parse(text, 0).is_err(), "{text}");
        }
    }
}
