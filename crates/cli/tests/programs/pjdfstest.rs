//! pjdfstest: 398 cases of what POSIX says of every call on names and attributes.
//!
//! It runs in a plain directory of this machine first: whatever passes there passes on the mount. That is a higher bar
//! than another FUSE file system: `bindfs`, a mirror of such a directory, fails 31 of the cases.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use frieze_harness::requirements;

use crate::mount_server;

/// The kernel knows how many names a file may have of the file systems it has itself, and of none behind FUSE.
const UNKNOWABLE: &str = "link::link_count_max";

#[derive(Default)]
struct Results {
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
    said: String,
}

fn pjdfstest(config: &str, at: &Path) -> Results {
    fs::create_dir(at).unwrap();
    fs::set_permissions(at, Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("pjdfstest");
    command.args(["-c", config, "-p"]).arg(at);
    // For what must not be done across file systems.
    let elsewhere = tempfile::tempdir_in("/dev/shm").ok();
    if let Some(elsewhere) = &elsewhere {
        command.arg("-s").arg(elsewhere.path());
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut results = Results { said, ..Results::default() };
    for line in results.said.lines() {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [name, "ok"] => results.passed.insert(name.to_owned()),
            [name, "FAILED"] => results.failed.insert(name.to_owned()),
            _ => false,
        };
    }
    results
}

#[test]
fn every_case_of_pjdfstest_that_passes_in_a_plain_directory_passes_on_the_mount() {
    if !requirements::program("pjdfstest") {
        return;
    }
    let Some(mounted) = mount_server() else { return };
    // Other users have to get through to the mount.
    fs::set_permissions(mounted.server.local("."), Permissions::from_mode(0o755)).unwrap();
    let groups = fs::read_to_string("/etc/group").unwrap();
    let group_of_nobody = if groups.contains("\nnogroup:") { "nogroup" } else { "nobody" };
    let config = mounted.server.local_file(
        "pjdfstest.toml",
        format!(
            "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
             [settings]\nnaptime = 0.01\n\
             [dummy_auth]\nentries = [[\"nobody\", \"{group_of_nobody}\"], [\"daemon\", \"daemon\"]]\n"
        ),
    );
    let plain = pjdfstest(&config, &mounted.server.local("plain"));
    let here = pjdfstest(&config, &mounted.mount.path("pjdfstest"));
    assert!(plain.passed.len() > 100, "it ran: {}", plain.said);
    let missed: Vec<_> = plain.passed.difference(&here.passed).filter(|name| *name != UNKNOWABLE).collect();
    assert!(missed.is_empty(), "{missed:?}\n{}", here.said);
    eprintln!(
        "plain: {} passed, {} failed; here: {} passed",
        plain.passed.len(),
        plain.failed.len(),
        here.passed.len()
    );
}
