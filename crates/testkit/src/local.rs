//! A real server, with threads and sockets, in the test's process: for gateways, mounts and clients.

use std::path::{Path, PathBuf};

use frieze_node::{Server, Settings};
use tempfile::TempDir;

/// A server on a scratch directory, which goes with it.
pub struct LocalServer {
    server: Option<Server>,
    settings: Settings,
    scratch: TempDir,
}

impl LocalServer {
    /// Starts a server at a socket in its scratch directory, with small chunks and segments.
    pub fn at_socket() -> LocalServer {
        let settings =
            Settings { chunk_bytes: 1 << 20, segment_bytes: 8 << 20, reserve_bytes: 16 << 20, ..Settings::default() };
        LocalServer::start_in(scratch_dir(), settings, |dir| format!("unix:{}", dir.join("socket").display()))
    }

    /// Starts a server at a free port of this machine, with at most 256 MiB of memory.
    pub fn at_port(settings: Settings) -> LocalServer {
        let settings = Settings { memory_bytes_max: 256 << 20, ..settings };
        LocalServer::start_in(scratch_dir(), settings, |_| "127.0.0.1:0".to_owned())
    }

    fn start_in(scratch: TempDir, settings: Settings, listen: impl Fn(&Path) -> String) -> LocalServer {
        let (dir, listen) = (scratch.path().join("data"), vec![listen(scratch.path())]);
        let settings = Settings { dir, listen, root_mode: Some(0o1777), ..settings };
        let server = Some(Server::start(settings.clone()).unwrap());
        LocalServer { server, settings, scratch }
    }

    /// The server, which runs.
    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    /// The scratch directory: `data` and, if it listens there, `socket` are the server's.
    pub fn dir(&self) -> &Path {
        self.scratch.path()
    }

    /// A path in the scratch directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Where clients of this machine reach it.
    pub fn socket(&self) -> String {
        format!("unix:{}", self.path("socket").display())
    }

    /// Number of cache leases granted and not expired.
    pub fn cache_leases(&self) -> usize {
        self.server().parts().service.sessions.grants()
    }

    /// Stops the server; its directory stays.
    pub fn stop(&mut self) {
        self.server.take().expect("it runs").stop().unwrap();
    }

    /// Starts the server again on the same directory.
    pub fn start(&mut self) {
        self.server = Some(Server::start(self.settings.clone()).unwrap());
    }

    /// Stops the server and starts it again.
    pub fn restart(&mut self) {
        self.stop();
        self.start();
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            // A test that fails has a reason of its own.
            let stopped = server.stop();
            assert!(std::thread::panicking() || stopped.is_ok(), "{stopped:?}");
        }
    }
}

/// A scratch directory that other users may pass through.
pub fn scratch_dir() -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}
