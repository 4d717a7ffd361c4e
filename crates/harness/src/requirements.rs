//! What a test needs from its machine, and what happens where the machine lacks it.
//!
//! Guarantees: if a function here returns false, it has printed a line that begins with `skipped:`. If `FRIEZE_STRICT`
//! is 1, the test fails instead, and names what is missing and how to install it. `FRIEZE_WITHOUT` lists tags
//! (`fuse,root,rsync`) that a strict run does without. `scripts/requirements.py` does the same for scripts.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

/// How to get every program that tests start.
const BOOTSTRAP: &str = "`scripts/bootstrap.sh --tests` installs it";

/// True if the machine has `/dev/fuse`, and this process may open it.
pub fn fuse() -> bool {
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => true,
        Err(error) => missing(
            "fuse",
            &format!("/dev/fuse, to mount a file system: {error}"),
            "load the module fuse, or give the container the device",
        ),
    }
}

/// True if this process is root: it becomes other users, mounts and sets quotas.
pub fn root() -> bool {
    rustix::process::geteuid().is_root() || missing("root", "the rights of root", "run the tests as root")
}

/// True if `program` is in the path.
pub fn program(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok() || missing(program, program, BOOTSTRAP)
}

/// True if every one of `programs` is in the path.
pub fn programs(programs: &[&str]) -> bool {
    programs.iter().all(|name| program(name))
}

/// Says that this test lacks `what`: false, so that the caller skips. `tag` is its name in `FRIEZE_WITHOUT`.
///
/// # Panics
/// If `FRIEZE_STRICT` is set and `FRIEZE_WITHOUT` does not list `tag`.
#[track_caller]
pub fn missing(tag: &str, what: &str, remedy: &str) -> bool {
    let setting = |name| std::env::var(name).unwrap_or_default();
    if refuses(&setting("FRIEZE_STRICT"), &setting("FRIEZE_WITHOUT"), tag) {
        panic!(
            "FRIEZE_STRICT: this test would be skipped, for it needs {what}: {remedy}, or list {tag} in FRIEZE_WITHOUT"
        );
    }
    eprintln!("skipped: needs {what}: {remedy}");
    false
}

/// True if a run with these settings fails where `tag` is missing.
fn refuses(strict: &str, without: &str, tag: &str) -> bool {
    !["", "0"].contains(&strict) && !without.split(',').any(|listed| listed.trim() == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strict_run_refuses_what_is_not_listed() {
        assert!(!refuses("", "", "fuse"));
        assert!(!refuses("0", "", "fuse"));
        assert!(refuses("1", "", "fuse"));
        assert!(refuses("1", "root, rsync", "fuse"));
        assert!(!refuses("1", "root, fuse", "fuse"));
        assert!(refuses("1", "fuses", "fuse"));
    }

    #[test]
    fn a_program_that_is_there_is_found() {
        assert!(program("sh"));
    }
}
