//! Programs made to wear file systems down: stress-ng's stressors of files, all at once, and dbench's day at the
//! office.

use std::fs;
use std::process::Command;

use frieze_harness::requirements;

use crate::{mount_server, succeed};

/// Stressors that use a file system by its calls. Not among them: those for other kinds of files (`binderfs`,
/// `eventfd`, `procfs`), of whole file systems (`bind-mount`, `tmpfs`) and of file handles, which FUSE does not
/// provide.
const STRESSORS: &str = "access aio chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify dup \
    fallocate \
    fanotify fcntl fiemap file-ioctl filename flock fpunch fsize fstat getdent hdd inode-flags inotify io iomix lease \
    link \
    locka lockf lockofd mknod msync open readahead rename revio seek sendfile splice symlink sync-file touch utime \
    verity \
    xattr";

#[test]
fn every_file_stressor_runs_clean_beside_all_the_others() {
    if !requirements::program("stress-ng") {
        return;
    }
    let Some(mounted) = mount_server() else { return };
    let directory = mounted.mount.path("stress");
    fs::create_dir(&directory).unwrap();
    let mut command = Command::new("stress-ng");
    command.arg("--temp-path").arg(&directory).current_dir(&directory);
    let stressors: Vec<&str> = STRESSORS.split_whitespace().collect();
    for stressor in &stressors {
        command.args([&format!("--{stressor}"), "1"]);
    }
    // Seconds, after which they tidy up. They check what they read back.
    command.args(["--timeout", "3", "--verify", "--oomable"]);
    for bytes in ["--hdd-bytes", "--fallocate-bytes", "--readahead-bytes", "--iomix-bytes"] {
        command.args([bytes, "4m"]);
    }
    command.args(["--chdir-dirs", "512", "--open-max", "2000"]);
    let output = succeed(&mut command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("successful run completed"), "{said}");
    for word in ["fail:", "error:"] {
        assert!(!said.contains(word), "{said}");
    }
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "they tidied up");
}

#[test]
fn dbench_runs_its_script_to_the_end() {
    let script = "/usr/share/dbench/client.txt";
    if !requirements::program("dbench") {
        return;
    }
    let Some(mounted) = mount_server() else { return };
    let directory = mounted.mount.path("dbench");
    fs::create_dir(&directory).unwrap();
    let mut command = Command::new("dbench");
    command.args(["-c", script, "-t", "4", "-D"]).arg(&directory).arg("4");
    let output = succeed(command.current_dir(&directory));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("Throughput") && !said.contains("ERROR"), "{said}");
}
