//! A crate built where it lies: thousands of small files, procedural macros mapped and run from the mount, hard links,
//! renames, locks.

use std::fs;
use std::path::Path;
use std::process::Command;

use frieze_harness::requirements;

use crate::{mount_server, succeed};

/// The sources of `base`, in a workspace of its own.
fn unpack(to: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::create_dir_all(to.join("crates")).unwrap();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    // Without the profiles: they optimise, which is the compiler's work and not the file system's.
    let manifest = manifest.split("[profile").next().unwrap();
    let members = manifest.lines().find(|line| line.starts_with("members")).unwrap();
    fs::write(to.join("Cargo.toml"), manifest.replace(members, "members = [\"crates/base\", \"crates/harness\"]"))
        .unwrap();
    fs::copy(root.join("Cargo.lock"), to.join("Cargo.lock")).unwrap();
    // The tests of the one use the other.
    for name in ["crates/base", "crates/harness"] {
        succeed(Command::new("cp").arg("-r").arg(root.join(name)).arg(to.join("crates")));
    }
}

#[test]
fn a_crate_is_built_and_tested_on_the_mount() {
    if !requirements::program("cargo") {
        return;
    }
    let Some(mounted) = mount_server() else { return };
    let at = mounted.mount.path("source");
    unpack(&at);
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(arguments).args(["--offline", "--target-dir", "target"]).current_dir(&at);
        // What a test inherits from the cargo that runs it.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO") && name != "CARGO_HOME") {
            command.env_remove(name);
        }
        let output = succeed(command.env_remove("RUSTFLAGS").env("CARGO_TERM_COLOR", "never"));
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (out, _) = cargo(&["test"]);
    assert!(out.contains("test result: ok"), "{out}");
    let (_, err) = cargo(&["test", "--no-run"]);
    assert!(!err.contains("Compiling"), "what was built is as new as its sources: {err}");
    // What changed is built again, and only that.
    let path = at.join("crates/base/src/lib.rs");
    let source = fs::read_to_string(&path).unwrap();
    fs::write(&path, source + "\n/// Added.\npub const ADDED: u32 = 1;\n").unwrap();
    let (_, err) = cargo(&["build"]);
    assert_eq!(err.matches("Compiling").count(), 1, "{err}");
    fs::remove_dir_all(&at).unwrap();
}
