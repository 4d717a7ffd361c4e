//! fio writes blocks that carry their own checksum, place and number, and reads them back.

use std::fs;
use std::path::Path;
use std::process::Command;

use frieze_harness::requirements;

use crate::{mount_server, succeed};

fn fio(directory: &Path, options: &[&str]) {
    let mut command = Command::new("fio");
    command.arg("--name=load").args(options).arg(format!("--directory={}", directory.display()));
    command.args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--group_reporting"]);
    command.args(["--randrepeat=1", "--minimal"]);
    succeed(command.current_dir(directory));
}

#[test]
fn fio_reads_back_what_it_wrote() {
    if !requirements::program("fio") {
        return;
    }
    let Some(mounted) = mount_server() else { return };
    let loads: [(&str, &[&str]); 8] = [
        ("sequential", &["--rw=write", "--bs=128k", "--size=16m", "--numjobs=2"]),
        ("random", &["--rw=randwrite", "--bs=4k", "--size=4m", "--numjobs=4"]),
        ("overwritten", &["--rw=randwrite", "--norandommap", "--bs=512-64k", "--size=4m", "--io_size=12m"]),
        ("mixed", &["--rw=randrw", "--bs=1k-32k", "--size=4m", "--numjobs=2", "--verify_backlog=64"]),
        ("synced", &["--rw=randwrite", "--bs=16k", "--size=2m", "--numjobs=2", "--fsync=16"]),
        ("deep", &["--rw=randwrite", "--bs=8k", "--size=4m", "--ioengine=libaio", "--iodepth=32"]),
        ("direct", &["--rw=randwrite", "--bs=4k", "--size=4m", "--ioengine=libaio", "--iodepth=16", "--direct=1"]),
        ("mapped", &["--rw=randwrite", "--bs=4k", "--size=4m", "--ioengine=mmap", "--numjobs=2"]),
    ];
    for (name, options) in loads {
        let directory = mounted.mount.path(name);
        fs::create_dir(&directory).unwrap();
        fio(&directory, options);
    }
}

#[test]
fn fio_finds_in_the_past_what_it_wrote_before_it_was_written_over() {
    if !requirements::program("fio") {
        return;
    }
    let Some(mounted) = mount_server() else { return };
    let directory = mounted.mount.path("d");
    fs::create_dir(&directory).unwrap();
    let shape = ["--bs=16k", "--size=8m", "--numjobs=2"];
    fio(&directory, &[&["--rw=write"], &shape[..]].concat());
    let then = mounted.server.now();
    let read = [&["--rw=read", "--readonly"], &shape[..]].concat();
    // Other blocks, at places that do not line up, and shorter files.
    for job in 0..2 {
        let path = directory.join(format!("load.{job}.0"));
        let mut bytes = fs::read(&path).unwrap();
        bytes.rotate_left(1000);
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    }
    fio(&mounted.mount.path(format!(".at/{then}/d")), &read);
}
