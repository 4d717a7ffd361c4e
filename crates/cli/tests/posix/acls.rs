//! Access lists on a mount, by getfacl and setfacl, for real users.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Command;

use frieze_harness::requirements;
use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;

use crate::rights::{as_user, mode, set_mode};
use crate::support::Mount;
use crate::{MountedServer, mount_server};

/// What a program prints, which has to succeed without a word to its errors.
fn run(program: &str, args: &[&str], path: &Path) -> String {
    let output = Command::new(program).args(args).arg(path).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{program} {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn getfacl(path: &Path) -> String {
    run("getfacl", &["-cpnE"], path).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn setfacl(args: &[&str], path: &Path) {
    run("setfacl", args, path);
}

/// True if the shell command of a user succeeds.
fn may(mounted: &MountedServer, uid: u32, groups: &str, command: &str) -> bool {
    as_user(mounted, uid, groups, command).is_some_and(|output| output.status.success())
}

/// A mounted server where these programs are, and where root runs the test.
fn mount_with_acls() -> Option<MountedServer> {
    if !requirements::programs(&["setfacl", "getfacl"]) || !requirements::root() {
        return None;
    }
    mount_server()
}

#[test]
fn an_access_list_lets_named_users_and_groups_in_and_keeps_them_out() {
    let Some(mounted) = mount_with_acls() else { return };
    let path = mounted.path("f");
    fs::write(&path, "text").unwrap();
    chown(&path, Some(1001), Some(1001)).unwrap();
    set_mode(&path, 0o640);
    assert_eq!(getfacl(&path), "user::rw- group::r-- other::---");
    assert!(!may(&mounted, 1002, "", "cat f"));
    // By its owner.
    assert!(may(&mounted, 1001, "", "setfacl -m u:1002:rw,g:2002:r f"));
    assert_eq!(getfacl(&path), "user::rw- user:1002:rw- group::r-- group:2002:r-- mask::rw- other::---");
    assert_eq!(mode(&path), 0o660);
    // As the command has it.
    assert!(mounted.server.ok(&["ls", "-l", "/f"]).starts_with("-rw-rw----+ "));
    let told = &mounted.server.json(&["stat", "--json", "/f"])[0];
    let list = ["user::rw-", "user:1002:rw-", "group::r--", "group:2002:r--", "mask::rw-", "other::---"];
    assert_eq!((told["has_acl"].as_bool(), &told["default_acl"]), (Some(true), &serde_json::Value::Null));
    assert_eq!(told["acl"], serde_json::json!(list));
    assert!(may(&mounted, 1002, "", "cat f && echo more >> f"));
    assert!(may(&mounted, 1003, "2002", "cat f") && !may(&mounted, 1003, "2002", "echo x >> f"));
    assert!(!may(&mounted, 1003, "", "cat f"));
    assert!(!may(&mounted, 1002, "", "setfacl -m u:1003:rw f"), "it is not the owner");
    // The mask is what chmod changes for a group.
    set_mode(&path, 0o600);
    assert!(!may(&mounted, 1002, "", "cat f"));
    set_mode(&path, 0o640);
    assert!(may(&mounted, 1002, "", "cat f") && !may(&mounted, 1002, "", "echo x >> f"));
    assert_eq!(getfacl(&path), "user::rw- user:1002:rw- group::r-- group:2002:r-- mask::r-- other::---");
    setfacl(&["-b"], &path);
    assert_eq!((getfacl(&path).as_str(), mode(&path)), ("user::rw- group::r-- other::---", 0o640));
    assert!(!may(&mounted, 1002, "", "cat f"));
    // Directories on the way.
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/g"), "text").unwrap();
    set_mode(&mounted.path("d"), 0o700);
    assert!(!may(&mounted, 1002, "", "cat d/g"));
    setfacl(&["-m", "u:1002:x"], &mounted.path("d"));
    assert!(may(&mounted, 1002, "", "cat d/g") && !may(&mounted, 1002, "", "ls d"));
}

#[test]
fn new_entries_inherit_the_default_list_of_their_directory() {
    let Some(mounted) = mount_with_acls() else { return };
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    set_mode(&dir, 0o777);
    // Without one the umask counts.
    assert!(may(&mounted, 1001, "", "umask 027; echo x > d/before; mkdir d/dir-before; mkfifo d/fifo-before"));
    let modes = |names: [&str; 3]| names.map(|name| mode(&dir.join(name)));
    assert_eq!(modes(["before", "dir-before", "fifo-before"]), [0o640, 0o750, 0o640]);
    setfacl(&["-d", "-m", "u:1002:rwx,g::rwx,o::-"], &dir);
    assert!(may(&mounted, 1001, "", "umask 077; echo x > d/f; mkdir d/sub; mkfifo d/fifo"));
    assert_eq!(modes(["f", "sub", "fifo"]), [0o660, 0o770, 0o660]);
    assert_eq!(getfacl(&dir.join("f")), "user::rw- user:1002:rwx group::rwx mask::rw- other::---");
    let of_sub = "user::rwx user:1002:rwx group::rwx mask::rwx other::---";
    let default = "default:user::rwx default:user:1002:rwx default:group::rwx default:mask::rwx default:other::---";
    assert_eq!(getfacl(&dir.join("sub")), format!("{of_sub} {default}"));
    assert!(may(&mounted, 1002, "", "cat d/f && echo x > d/sub/g && cat d/sub/g"));
    setfacl(&["-k"], &dir);
    assert!(may(&mounted, 1001, "", "umask 077; echo x > d/after") && mode(&dir.join("after")) == 0o600);
}

#[test]
fn copies_keep_access_lists_and_the_past_has_those_of_then() {
    let Some(mounted) = mount_with_acls() else { return };
    let (dir, path) = (mounted.path("d"), mounted.path("d/f"));
    fs::create_dir(&dir).unwrap();
    fs::write(&path, "text").unwrap();
    set_mode(&path, 0o600);
    setfacl(&["-m", "u:1002:r"], &path);
    setfacl(&["-d", "-m", "u:1003:rx"], &dir);
    let (of_dir, of_file) = (getfacl(&dir), getfacl(&path));
    let copies = |copy: &str| (getfacl(&mounted.path(copy)), getfacl(&mounted.path(format!("{copy}/f").as_str())));
    let copied = Command::new("cp").arg("-a").args([&dir, &mounted.path("copy")]).output().unwrap();
    assert!(copied.status.success() && copied.stderr.is_empty(), "{copied:?}");
    assert_eq!(copies("copy"), (of_dir.clone(), of_file.clone()));
    if requirements::program("rsync") {
        let args = ["-aA".to_owned(), format!("{}/", dir.display()), format!("{}/", mounted.path("synced").display())];
        assert!(Command::new("rsync").args(args).status().unwrap().success());
        assert_eq!(copies("synced"), (of_dir.clone(), of_file.clone()));
    }
    mounted.server.ok(&["clone", "/d", "/cloned"]);
    assert_eq!(copies("cloned"), (of_dir.clone(), of_file.clone()));
    // What was, with the rights of then and of now.
    let then = mounted.server.now();
    let cat = format!("cat .at/{then}/d/f");
    assert!(may(&mounted, 1002, "", &cat));
    setfacl(&["-b"], &path);
    assert!(!may(&mounted, 1002, "", &cat), "not now");
    setfacl(&["-m", "u:1002:r,u:1003:r"], &path);
    assert!(
        may(&mounted, 1002, "", &cat) && may(&mounted, 1003, "", "cat d/f") && !may(&mounted, 1003, "", &cat),
        "not then"
    );
    assert_eq!(getfacl(&mounted.past(&then, "d/f")), of_file);
    let changed = mounted.server.ok(&["diff", "/d", "--from", &then]);
    assert!(changed.contains("access list"), "{changed}");
    mounted.server.ok(&["restore", "/d", "--to", &then]);
    assert_eq!((getfacl(&dir), getfacl(&path)), (of_dir, of_file));
    // What a user did goes, and what others did stays.
    chown(&path, Some(1001), Some(1001)).unwrap();
    let (before, then) = (getfacl(&path), mounted.server.now());
    assert!(may(&mounted, 1001, "", "setfacl -m u:1004:rw d/f") && may(&mounted, 1004, "", "echo x >> d/f"));
    mounted.server.ok(&["undo", "--user", "1001", "--from", &then, "--path", "/d"]);
    assert_eq!((getfacl(&path), may(&mounted, 1004, "", "cat d/f")), (before, false));
}

#[test]
fn another_mount_sees_an_access_list_at_once() {
    let Some(mounted) = mount_with_acls() else { return };
    let Some(other) = Mount::at(&mounted.server, "second") else { return };
    let path = mounted.path("f");
    fs::write(&path, "text").unwrap();
    set_mode(&path, 0o640);
    let there = other.path("f");
    let elsewhere = || as_user(&mounted, 1002, "", &format!("cat {}", there.display())).unwrap().status.success();
    for _ in 0..3 {
        assert!(!elsewhere() && !getfacl(&there).contains("user:1002"));
        setfacl(&["-m", "u:1002:r"], &path);
        assert!(getfacl(&there).contains("user:1002:r--") && elsewhere());
        assert_eq!(fs::metadata(&there).unwrap().mode() & 0o777, 0o640);
        setfacl(&["-b"], &path);
    }
}

#[test]
fn an_invalid_access_list_is_refused() {
    let Some(mounted) = mount_with_acls() else { return };
    let path = mounted.path("f");
    fs::write(&path, "text").unwrap();
    let set = |name: &str, value: &[u8]| setxattr(&path, name, value, XattrFlags::empty());
    // The kernel looks at it first.
    assert_eq!(set("system.posix_acl_access", b"none"), Err(Errno::OPNOTSUPP));
    assert_eq!(set("system.posix_acl_access", &[2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255]), Err(Errno::INVAL));
    if requirements::program("setfacl") {
        let default = Command::new("setfacl").args(["-d", "-m", "u:1001:r"]).arg(&path).output().unwrap();
        assert!(!default.status.success(), "only a directory has a default list");
        let named: Vec<String> = (2000..2029).map(|uid| format!("u:{uid}:r")).collect();
        let many = Command::new("setfacl").args(["-m", &named.join(",")]).arg(&path).output().unwrap();
        assert!(!many.status.success(), "{many:?}");
        setfacl(&["-m", &named[1..].join(",")], &path);
        assert_eq!(getfacl(&path).matches("user:20").count(), 28);
    }
}

#[test]
fn what_the_command_makes_has_what_a_default_list_says_and_else_the_umask() {
    let Some(mounted) = mount_with_acls() else { return };
    let local = mounted.path("../local");
    fs::write(&local, "text").unwrap();
    set_mode(&local, 0o666);
    let local = local.to_str().unwrap();
    for (directory, expected) in
        [("plain", [0o644, 0o644, 0o644, 0o755, 0o755]), ("listed", [0o664, 0o664, 0o664, 0o775, 0o775])]
    {
        fs::create_dir(mounted.path(directory)).unwrap();
        if directory == "listed" {
            setfacl(&["-d", "-m", "u::rwx,g::rwx,o::rx"], &mounted.path(directory));
        }
        let at = |name: &str| format!("/{directory}/{name}");
        mounted.server.ok(&["put", local, &at("put")]);
        mounted.server.ok(&["cp", &at("put"), &at("copy")]);
        mounted.server.ok(&["touch", &at("touched")]);
        mounted.server.ok(&["mkdir", &at("made")]);
        mounted.server.ok(&["mkdir", "-p", &at("parent/made")]);
        let modes = ["put", "copy", "touched", "made", "parent"]
            .map(|name| mode(&mounted.path(&format!("{directory}/{name}"))));
        assert_eq!(modes.map(|mode| mode & 0o777), expected, "{directory}: {modes:?}");
        mounted.server.ok(&["mkdir", "--mode", "700", &at("mine")]);
        assert_eq!(mode(&mounted.path(&format!("{directory}/mine"))), 0o700);
    }
    // What is replaced keeps its mode, whatever the umask.
    set_mode(&mounted.path("plain/put"), 0o666);
    mounted.server.ok(&["put", "--atomic", local, "/plain/put"]);
    assert_eq!(mode(&mounted.path("plain/put")), 0o666);
}
