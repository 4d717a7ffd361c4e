//! A client that came by TCP goes on over the socket in the server's directory, and back when that leads nowhere.

use std::fs;
use std::path::Path;
use std::time::Duration;

use frieze_client::{Client, Options, Target};
use frieze_node::{Server, Settings};

fn serve(dir: &Path) -> Server {
    let listen = vec!["127.0.0.1:0".to_owned()];
    let settings = Settings {
        dir: dir.to_owned(),
        listen,
        segment_bytes: 8 << 20,
        reserve_bytes: 16 << 20,
        ..Settings::default()
    };
    Server::start(settings).unwrap()
}

fn connect(server: &Server, prefers_socket: bool) -> Client {
    let addresses = server.addresses();
    assert_eq!(addresses.len(), 1, "the socket is not announced: {addresses:?}");
    let server = addresses[0].parse().unwrap();
    Client::connect(Options { server, prefers_socket, timeout: Duration::from_secs(1), ..Options::default() }).unwrap()
}

fn is_answered(client: &Client) -> bool {
    client.fs().stat(&Target::path("/")).is_ok()
}

#[test]
fn who_prefers_the_socket_needs_the_tcp_port_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let first = serve(dir.path());
    let (near, far) = (connect(&first, true), connect(&first, false));
    assert_eq!(near.hello().uid, far.hello().uid);
    assert!(is_answered(&near) && is_answered(&far));
    first.stop().unwrap();
    // At another port, which nobody tells the clients.
    let second = serve(dir.path());
    assert!(is_answered(&near));
    assert!(!is_answered(&far));
    drop((near, far));
    second.stop().unwrap();
}

#[test]
fn without_the_socket_or_with_that_of_another_server_it_goes_on_over_tcp() {
    let (dir, other_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (server, other) = (serve(dir.path()), serve(other_dir.path()));
    let client = connect(&server, true);
    client.fs().mkdir(&Target::path("/here"), 0o700).unwrap();
    let socket = dir.path().join("socket");
    fs::remove_file(&socket).unwrap();
    let without = connect(&server, true);
    fs::rename(other_dir.path().join("socket"), &socket).unwrap();
    let misled = connect(&server, true);
    for client in [&client, &without, &misled] {
        client.fs().stat(&Target::path("/here")).unwrap();
    }
    drop((client, without, misled));
    server.stop().unwrap();
    other.stop().unwrap();
}
