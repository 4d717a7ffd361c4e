//! A server within the test's own process, and clients of it by its socket.

use std::path::Path;
use std::time::Duration;

use frieze_client::{Client, Options};
use frieze_node::{Server, Settings};

/// Starts a server on `dir/data`, which may have been one before, with small chunks and segments.
pub(crate) fn start(dir: &Path) -> Server {
    let listen = vec![format!("unix:{}", dir.join("socket").display())];
    let settings = Settings {
        dir: dir.join("data"),
        listen,
        chunk_bytes: 1 << 20,
        segment_bytes: 8 << 20,
        reserve_bytes: 16 << 20,
        root_mode: Some(0o1777),
        ..Settings::default()
    };
    Server::start(settings).unwrap()
}

/// Connects to the server on `dir`.
pub(crate) fn connect(dir: &Path, timeout: Duration) -> Client {
    let server = format!("unix:{}", dir.join("socket").display()).parse().unwrap();
    Client::connect(Options { server, timeout, ..Options::default() }).unwrap()
}
