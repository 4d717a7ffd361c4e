//! Hostile messages, data and requests, and the clear refusal that each of them gets, while the server stays up and
//! serves every other client.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[expect(dead_code, reason = "shared with tests that need more of it")]
mod support;

#[path = "hostile/callers.rs"]
mod callers;
#[path = "hostile/connections.rs"]
mod connections;
#[path = "hostile/damage.rs"]
mod damage;
#[path = "hostile/directories.rs"]
mod directories;
#[path = "hostile/frames.rs"]
mod frames;
#[path = "hostile/fsck.rs"]
mod fsck;
#[path = "hostile/full.rs"]
mod full;
#[path = "hostile/power.rs"]
mod power;
#[path = "hostile/raw.rs"]
mod raw;
#[path = "hostile/requests.rs"]
mod requests;
#[path = "hostile/scrub.rs"]
mod scrub;

use frieze_client::{Client, CreateMode, OpenFlags, Target};

use support::served::Served;

/// A file from before the hostile client, which must be unchanged afterwards.
const KEPT: &[u8] = b"as it was";

/// A server with the file that has to survive.
fn server(settings: &str, also: &str) -> Served {
    let server = Served::with(settings, also);
    let client = support::client(&server.address);
    put(&client, "/kept", KEPT);
    server
}

fn put(client: &Client, path: &str, bytes: &[u8]) {
    let file = client.fs().create(&Target::path(path), 0o644, CreateMode::OpenExisting).unwrap();
    file.set_len(0).unwrap();
    file.write_at(0, bytes).unwrap();
    file.close().unwrap();
}

fn get(client: &Client, path: &str) -> Vec<u8> {
    let file = client.fs().open(&Target::path(path), OpenFlags::READ).unwrap();
    let mut bytes = vec![0; file.attr().size as usize];
    let len = file.read_at(0, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

/// The server serves: it is healthy, what was there is there, and a new file can be made.
fn check_well(server: &mut Served) {
    check_serves(server);
    assert_eq!(support::client(&server.address).status().unwrap().health, "healthy");
}

/// What was there is there, and a new file can be made.
fn check_serves(server: &mut Served) {
    assert!(server.is_up(), "the server is gone: {}", server.complaints());
    let client = support::client(&server.address);
    assert_eq!(get(&client, "/kept"), KEPT);
    put(&client, "/new", b"new");
    assert_eq!(get(&client, "/new"), b"new");
    client.fs().unlink(&Target::path("/new")).unwrap();
}
