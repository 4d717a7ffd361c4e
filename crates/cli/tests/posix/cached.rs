//! What the kernel keeps of files and directories, and when it must not: names made since a directory was opened, modes
//! that a write changes, bytes written past the page cache.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use frieze_harness::requirements;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, StatxFlags, open, statx};

use crate::mount_server;
use crate::support::Mount;

/// The mode by a question for nothing else, which the kernel may answer from what it keeps.
fn mode_alone(path: &Path) -> u32 {
    u32::from(statx(CWD, path, AtFlags::empty(), StatxFlags::MODE).unwrap().stx_mode) & 0o7777
}

#[test]
fn a_directory_that_is_rewound_shows_the_names_made_since_it_was_opened() {
    let Some(mounted) = mount_server() else { return };
    let second = Mount::at(&mounted.server, "second").unwrap();
    let open = |path: &Path| Dir::new(open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()).unwrap();
    let rest = |dir: &mut Dir| {
        let mut names: Vec<String> = dir.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    };
    let path = mounted.path("d");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("gone"), "").unwrap();
    // Nothing was read of it; then everything was.
    let mut dir = open(&path);
    fs::write(path.join("a"), "").unwrap();
    fs::create_dir(path.join("b")).unwrap();
    fs::rename(path.join("gone"), path.join("c")).unwrap();
    fs::write(second.path("d/by-another"), "").unwrap();
    dir.rewind();
    assert_eq!(rest(&mut dir), ["a", "b", "by-another", "c"]);
    fs::write(path.join("d"), "").unwrap();
    dir.rewind();
    assert_eq!(rest(&mut dir), ["a", "b", "by-another", "c", "d"]);
    // Snapshots are names of `.at`.
    let mut dir = open(&mounted.path(".at"));
    mounted.server.ok(&["snapshot", "create", "since"]);
    dir.rewind();
    assert_eq!(rest(&mut dir), ["since"]);
}

#[test]
fn the_mode_is_right_at_once_when_a_write_of_another_user_ends_its_set_id_bits() {
    let Some(mounted) = mount_server() else { return };
    if !requirements::root() || !requirements::program("python3") {
        return;
    }
    fs::set_permissions(mounted.server.local("."), PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(mounted.path("source"), vec![7; 1 << 20]).unwrap();
    fs::set_permissions(mounted.path("source"), PermissionsExt::from_mode(0o644)).unwrap();
    let second = Mount::at(&mounted.server, "second").unwrap();
    let open_first = "import ctypes, mmap, os, sys\n\
        os.setgroups([]); os.setgid(1001); os.setuid(1001)\n\
        fd = os.open(sys.argv[1], os.O_RDWR | int(sys.argv[2])); print('open', flush=True); sys.stdin.readline()\n\
        libc = ctypes.CDLL(None, use_errno=True); size = ctypes.c_long(65536)\n";
    let ways = [
        ("write", "os.pwrite(fd, b'x' * 4096, 0)"),
        ("append", "os.write(fd, b'x')"),
        ("fallocate", "assert libc.fallocate(fd, 0, ctypes.c_long(0), size) == 0"),
        ("punch", "assert libc.fallocate(fd, 3, ctypes.c_long(0), size) == 0"),
        ("truncate", "os.ftruncate(fd, 77)"),
        ("copy", "s = os.open('source', os.O_RDONLY); assert os.copy_file_range(s, fd, 1 << 20) > 0"),
        ("mapping", "m = mmap.mmap(fd, 65536); m[0:4] = b'abcd'; m.flush()"),
    ];
    for (name, way) in ways {
        let path = mounted.path(name);
        fs::write(&path, vec![0; 65536]).unwrap();
        chown(&path, Some(1001), Some(1001)).unwrap();
        // The bits are given before the file is opened, after that, and after that by another mount.
        for given in ["before", "after", "elsewhere"] {
            let gives = |path: &Path| fs::set_permissions(path, PermissionsExt::from_mode(0o6755)).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
            if given == "before" {
                gives(&path);
            }
            let flags = if name == "append" { OFlags::APPEND.bits() } else { 0 };
            let mut writer = Command::new("python3")
                .args(["-c", &format!("{open_first}{way}")])
                .arg(&path)
                .arg(flags.to_string())
                .current_dir(&mounted.mount.path)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = [0; 5];
            std::io::Read::read_exact(writer.stdout.as_mut().unwrap(), &mut line).unwrap();
            match given {
                "after" => gives(&path),
                "elsewhere" => gives(&second.path(name)),
                _ => {}
            }
            assert_eq!(mode_alone(&path), 0o6755, "{name}, given {given}");
            writer.stdin.take().unwrap().write_all(b"\n").unwrap();
            assert!(writer.wait().unwrap().success(), "{name}");
            assert_eq!(mode_alone(&path), 0o755, "{name}, given {given}");
            assert_eq!(mode_alone(&second.path(name)), 0o755, "{name}, given {given}, by another mount");
        }
    }
}

/// Writes a file by asynchronous O_DIRECT requests, and reads each back through the page cache, beside two processes
/// that read all the time: how many were read as they were before.
const DIRECT_WRITES: &str = r#"
import ctypes, mmap, os, platform, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
setup, submit, getevents = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}[platform.machine()]
size = 655360
path = sys.argv[1]
d = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
page = mmap.mmap(-1, size); page[:] = b"\1" * size
os.pwrite(d, page, 0)
b = os.open(path, os.O_RDONLY)
readers = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        while True:
            f = os.open(path, os.O_RDONLY); os.pread(f, size, 0); os.close(f)
    readers.append(child)
try:
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    context = ctypes.c_ulong(0)
    assert libc.syscall(setup, 8, ctypes.byref(context)) == 0
    event = ctypes.create_string_buffer(32)
    stale, rounds, end = 0, 0, time.time() + 4
    while time.time() < end:
        byte = bytes([2 + rounds % 200])
        page[:] = byte * size
        fields = struct.pack("QIiHhIQQqQII", 0, 0, 0, 1, 0, d, address, size, 0, 0, 0, 0)
        block = ctypes.create_string_buffer(fields, 64)
        pointer = ctypes.c_void_p(ctypes.addressof(block))
        assert libc.syscall(submit, context, 1, ctypes.byref(pointer)) == 1
        assert libc.syscall(getevents, context, 1, 1, event, None) == 1
        assert struct.unpack("QQqq", event.raw)[2] == size, struct.unpack("QQqq", event.raw)
        rounds += 1
        stale += os.pread(b, size, 0) != byte * size
finally:
    for child in readers:
        os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
print(stale, "of", rounds)
sys.exit(0 if rounds and not stale else 1)
"#;

#[test]
fn bytes_written_past_the_page_cache_are_read_at_once_beside_other_readers() {
    let Some(mounted) = mount_server() else { return };
    if !requirements::program("python3") {
        return;
    }
    let ran = Command::new("python3").args(["-c", DIRECT_WRITES]).arg(mounted.path("f")).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
}
