//! What a service manager is told by a server and by a mount, on the socket that it names.

use std::os::unix::net::UnixDatagram;

use frieze_harness::requirements;
use frieze_testkit::process::ChildProcess;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::served::{Served, frieze};

/// The socket of a service manager.
struct Manager {
    directory: TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Manager {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        Manager { directory, socket }
    }

    /// Starts a command as a service.
    fn start(&self, args: &[&str]) -> ChildProcess {
        let mut command = frieze(args);
        command.env("NOTIFY_SOCKET", self.directory.path().join("notify")).env("FRIEZE_LOG", "error");
        ChildProcess::start(command, &self.directory.path().join("log"))
    }

    /// What comes next.
    fn told(&self) -> String {
        let mut room = [0; 512];
        let len = self.socket.recv(&mut room).unwrap();
        String::from_utf8(room[..len].to_vec()).unwrap()
    }
}

fn stop(mut service: ChildProcess) {
    assert_eq!(service.end(Signal::SIGTERM), Some(0));
}

#[test]
fn a_server_notifies_its_service_manager_when_it_serves_and_when_it_stops() {
    let manager = Manager::new();
    let data = manager.directory.path().join("data");
    let socket = format!("unix:{}", manager.directory.path().join("s").display());
    let service = manager.start(&["serve", "--memory", "256", "--listen", &socket, "--dir", data.to_str().unwrap()]);
    let told = manager.told();
    assert_eq!(told, format!("READY=1\nSTATUS=serving on {socket}\n"));
    // It is true: a client that connects now is answered.
    let asked = frieze(&["--server", &socket, "ls", "/"]).output().unwrap();
    assert!(asked.status.success(), "{asked:?}");
    stop(service);
    assert_eq!(manager.told(), "STOPPING=1\nSTATUS=flushing everything\n");
}

#[test]
fn a_service_manager_is_told_when_a_mount_is_there() {
    if !requirements::fuse() {
        return;
    }
    let server = Served::start();
    server.put("/there", "1");
    let manager = Manager::new();
    let mountpoint = manager.directory.path().join("mnt");
    std::fs::create_dir(&mountpoint).unwrap();
    let service = manager.start(&["--server", &server.address, "mount", "--foreground", mountpoint.to_str().unwrap()]);
    assert!(manager.told().starts_with("READY=1\nSTATUS=mounted "));
    assert_eq!(std::fs::read(mountpoint.join("there")).unwrap(), b"1");
    stop(service);
    assert!(manager.told().starts_with("STOPPING=1\n"));
}

#[test]
fn the_units_of_systemd_are_what_it_understands() {
    if !requirements::program("systemd-analyze") {
        return;
    }
    let units = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd");
    let directory = tempfile::tempdir().unwrap();
    for (unit, instance) in
        [("frieze.service", "frieze.service"), ("frieze-mount@.service", "frieze-mount@mnt-f.service")]
    {
        let text = std::fs::read_to_string(units.join(unit)).unwrap();
        let here = text.replace("/usr/local/bin/frieze", env!("CARGO_BIN_EXE_frieze"));
        assert_ne!(text, here, "{unit} runs the command");
        let path = directory.path().join(instance);
        std::fs::write(&path, here).unwrap();
        let looked = std::process::Command::new("systemd-analyze").arg("verify").arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&looked.stderr).into_owned();
        // What other units of this machine are warned of is not about this one.
        let about: Vec<&str> = said.lines().filter(|line| line.contains("frieze")).collect();
        assert!(looked.status.success() && about.is_empty(), "{unit}: {said}");
    }
}
