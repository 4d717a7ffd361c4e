//! fsx: one file, random operations by a seed, every byte compared with what it must be.

use std::fs;
use std::process::Command;

use frieze_harness::requirements;

use crate::{SETTINGS, mount_server, succeed};

const OPERATIONS: &str = "1500";

/// Every operation of fsx. The file is longer than some chunks; nothing is aligned to anything.
const MIX: &str = "\
flen = 3000000
[opsize]
max = 200000
[weights]
close_open = 1
invalidate = 1
truncate = 2
read = 10
write = 10
mapread = 5
mapwrite = 5
fsync = 1
fdatasync = 1
copy_file_range = 2
sendfile = 2
posix_fallocate = 2
punch_hole = 4
";

/// `MountedServer::new` with room to see chunks and segments change often.
#[test]
fn fsx_finds_no_byte_that_is_not_as_it_must_be() {
    if !requirements::program("fsx") {
        return;
    }
    assert!(SETTINGS.contains("chunk_bytes = 1048576"), "the file is longer than a chunk");
    let Some(mounted) = mount_server() else { return };
    let mix = mounted.server.local_file("fsx.toml", MIX);
    for seed in 1..=4 {
        let path = mounted.mount.path(format!("file-{seed}"));
        let mut command = Command::new("fsx");
        command.args(["-f", &mix, "-N", OPERATIONS, "-S", &seed.to_string()]).arg(&path);
        succeed(command.current_dir(mounted.server.local(".")));
        fs::remove_file(&path).unwrap();
    }
}
